#!/usr/bin/env python3
"""Run the project from a fresh clone: `python3 dev.py demo`, `python3 dev.py test`.

Needs nothing but Python 3.11 or later. The first use makes a private environment in .venv beside
this file (so nothing is installed into the system, and PEP 668 has nothing to object to) and
installs the package there; later uses start at once.

Every task runs in the directory of this file, wherever it is started: paths are taken from there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENV = ROOT / ".venv"
BIN = ENV / ("Scripts" if os.name == "nt" else "bin")

# name -> (what it does, the extra it needs or none, the commands it runs)
TASKS: dict[str, tuple[str, str, list[list[str]]]] = {
    "demo": ("a whole federated calibration, ending in a report", "demo", [["gcfcp", "demo"]]),
    "test": ("the tests that take seconds", "test", [["pytest", "-m", "not slow"]]),
    "slow": ("the tests that take minutes", "test", [["pytest", "-m", "slow"]]),
    "simulation": (
        "1,000 clients in Flower's simulation (installs Ray, 220 MB)",
        "test,flower-sim",
        [["pytest", "-n0", "tests/test_flower_simulation.py"]],
    ),
    "bench": (
        "gcfcp and its peers side by side (--quick: under a minute after installation)",
        "bench",
        [["python", "-m", "benchmarks", "--install-peers"]],
    ),
    "reproduce": (
        "an experiment of the paper, its tables and figures beside ours",
        "experiments",
        [["python", "-m", "experiments"]],
    ),
    "footprint": (
        "what an installation weighs, measured in fresh environments",
        "",
        [["python", "-m", "benchmarks.footprint"]],
    ),
    "docs": (
        "the documentation site, into site/ (open site/index.html)",
        "docs",
        [["mkdocs", "build", "--strict"]],  # --quiet would silence the warnings, and --strict.
    ),
    "lint": (
        "lint, format check and strict typing",
        "dev",
        [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ),
    "mutate": (
        "random changes of the core, and those that no test notices (--only solver)",
        "mutation",
        [["python", "-m", "mutation"]],
    ),
}


def _stop(message: str) -> None:
    sys.exit(f"dev.py: {message}")


def _pip() -> list[str]:
    """The environment's own pip, or this Python's pip aimed at it (Debian without python3-venv)."""
    python = str(BIN / "python")
    if not (BIN / "python").exists():
        try:
            venv.EnvBuilder(with_pip=True).create(ENV)
        except (Exception, SystemExit):
            venv.EnvBuilder(with_pip=False, clear=True).create(ENV)
    for pip in ([python, "-m", "pip"], [sys.executable, "-m", "pip", "--python", python]):
        if subprocess.run([*pip, "--version"], capture_output=True).returncode == 0:
            return pip
    _stop("this Python has neither ensurepip nor pip: install python3-venv (or python3-pip) first")
    raise AssertionError


def _install(extra: str) -> None:
    """Install the package with its extra, if any, unless this very pyproject was installed."""
    stamp = ENV / f"installed-{extra or 'alone'}"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    suffix = f"[{extra}]" if extra else ""
    print(f"Installing gcfcp{suffix} into {ENV} (once) ...", flush=True)
    command = [*_pip(), "install", "--quiet", "--editable", f"{ROOT}{suffix}"]
    if subprocess.run(command).returncode:
        _stop(f"the installation failed; the command was: {' '.join(command)}")
    stamp.write_text(wanted)


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 (the message is for those who have it)
        _stop(f"Python {sys.version.split()[0]} is too old: gcfcp needs 3.11 or later")
    if not arguments or arguments[0] not in TASKS:
        lines = [f"  python3 dev.py {name:10}  {what}" for name, (what, _, _) in TASKS.items()]
        print("usage:", *lines, sep="\n")
        return 0 if not arguments else 2
    _, extra, commands = TASKS[arguments[0]]
    _install(extra)
    for command in commands:
        # Only a single command can take the caller's own arguments.
        given = arguments[1:] if len(commands) == 1 else []
        code = subprocess.run([str(BIN / command[0]), *command[1:], *given], cwd=ROOT).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
