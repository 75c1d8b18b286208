"""Where the figures come from: the machine, the versions of the libraries, the threads."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers import PACKAGES, version

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


def _processor() -> str:
    """The name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    """The machine's memory in GB, or None if the system does not tell."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None


def one_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread for every contestant.

    The matrices here are so small that more threads cost everyone more than they gain. Without
    threadpoolctl there is no limit. The results say how many threads there were.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits


def _blas_threads() -> list[dict[str, Any]]:
    """Each BLAS library that is loaded, with its number of threads."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return []
    return [{k: pool.get(k) for k in ("internal_api", "num_threads")} for pool in threadpool_info()]


def _commit() -> str:
    """The commit of the code that is measured, with a + if the code was changed since."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "../src"])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + ("+" if changed.strip() else "")


def machine() -> dict[str, Any]:
    """Everything about this machine that a reader needs to judge the figures."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        "commit": _commit(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "threads": {
            "environment": {k: os.environ[k] for k in _THREADS if k in os.environ},
            "libraries": _blas_threads(),
        },
        "versions": {name: version(name) for name in ("gcfcp", "numpy", *PACKAGES)},
    }
