#!/usr/bin/env python3
"""Run the project from a fresh clone: `python3 dev.py demo`, `python3 dev.py test`.

Needs nothing but Python 3.11 or later. The first use makes a private environment in .venv beside
this file (so nothing is installed into the system, and PEP 668 has nothing to object to) and
installs the package there; later uses start at once. NVIDIA FLARE and vantage6 need other versions
of the same libraries, and PySpark is large, so each has an environment of its own, such as
.venv-nvflare.

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
ENV = ".venv"  # The environment of all tasks but those that are named in ENVIRONMENTS.
BLOCKS = "tests/test_docs.py::test_every_block_runs"  # The code of a page of the documentation.

DEPLOYMENTS = ["tests/test_flower_deployment.py", "tests/test_flower_secure_deployment.py"]
# A worker takes tests that stand together, so that what they share is made once, and those of
# another worker when it has no more. The tasks "deployments" and "simulation" have the rest.
SLOW = ["-n", "3", "--dist", "worksteal"]
SLOW += [f"--ignore={path}" for path in [*DEPLOYMENTS, "tests/test_flower_simulation.py"]]

# name -> (what it does, the extra it needs or none, the commands it runs)
TASKS: dict[str, tuple[str, str, list[list[str]]]] = {
    "demo": ("a whole federated calibration, ending in a report", "demo", [["gcfcp", "demo"]]),
    "test": ("the tests that take seconds", "test", [["pytest", "-m", "not slow"]]),
    "slow": (
        "the tests that take minutes",  # Some wait for other processes, so there is one more.
        "test",
        [["pytest", "-m", "slow and not long", *SLOW, "--durations=40"]],
    ),
    "deployments": (
        "Flower with TLS on this machine, with faults and kills",
        "test",
        [["pytest", "-n0", *DEPLOYMENTS, "--durations=0"]],
    ),
    "long": ("more cases of the searches among them", "test", [["pytest", "-m", "long"]]),
    "simulation": (
        "1,000 clients in Flower's simulation (installs Ray, 220 MB)",
        "test,flower-sim",
        [["pytest", "-n0", "tests/test_flower_simulation.py"]],
    ),
    "nvflare": (
        "three sites in the simulator of NVIDIA FLARE (installs it, 500 MB)",
        "nvflare-test",
        [["pytest", "-n0", "tests/test_nvflare.py", f"{BLOCKS}[docs/nvflare.md]"]],
    ),
    "vantage6": (
        "three nodes of vantage6, and its image (installs it, 600 MB)",
        "vantage6-test",
        [["pytest", "-n0", "tests/test_vantage6.py", f"{BLOCKS}[docs/vantage6.md]"]],
    ),
    "spark": (
        "a site in Spark on this machine (installs PySpark, 500 MB; needs Java 17)",
        "spark-test",
        [["pytest", "-n0", "tests/test_spark.py", f"{BLOCKS}[docs/spark.md]"]],
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

# Where what a task needs cannot be installed beside the rest. If it cannot be installed at all, for
# example because there is no version of it for this Python, the task is skipped and says so.
ENVIRONMENTS = {"nvflare": ".venv-nvflare", "spark": ".venv-spark", "vantage6": ".venv-vantage6"}


def _bin(environment: str) -> Path:
    """The directory of an environment's programs."""
    return ROOT / environment / ("Scripts" if os.name == "nt" else "bin")


def _stop(message: str) -> None:
    sys.exit(f"dev.py: {message}")


def _pip(environment: str) -> list[str]:
    """The environment's own pip, or this Python's pip aimed at it (Debian without python3-venv)."""
    python = str(_bin(environment) / "python")
    if not Path(python).exists():
        try:
            venv.EnvBuilder(with_pip=True).create(ROOT / environment)
        except (Exception, SystemExit):
            venv.EnvBuilder(with_pip=False, clear=True).create(ROOT / environment)
    for pip in ([python, "-m", "pip"], [sys.executable, "-m", "pip", "--python", python]):
        if subprocess.run([*pip, "--version"], capture_output=True).returncode == 0:
            return pip
    _stop("this Python has neither ensurepip nor pip: install python3-venv (or python3-pip) first")
    raise AssertionError


def _install(extra: str, environment: str) -> str:
    """Install the package with its extra, if any, unless this very pyproject was installed.

    Returns the command if it failed, and an empty text otherwise.
    """
    stamp = ROOT / environment / f"installed-{extra or 'alone'}"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return ""
    suffix = f"[{extra}]" if extra else ""
    print(f"Installing gcfcp{suffix} into {ROOT / environment} (once) ...", flush=True)
    command = [*_pip(environment), "install", "--quiet", "--editable", f"{ROOT}{suffix}"]
    if subprocess.run(command).returncode:
        return " ".join(command)
    stamp.write_text(wanted)
    return ""


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 (the message is for those who have it)
        _stop(f"Python {sys.version.split()[0]} is too old: gcfcp needs 3.11 or later")
    if not arguments or arguments[0] not in TASKS:
        lines = [f"  python3 dev.py {name:11}  {what}" for name, (what, _, _) in TASKS.items()]
        print("usage:", *lines, sep="\n")
        return 0 if not arguments else 2
    task = arguments[0]
    _, extra, commands = TASKS[task]
    environment = ENVIRONMENTS.get(task, ENV)
    if failed := _install(extra, environment):
        if task not in ENVIRONMENTS:
            _stop(f"the installation failed; the command was: {failed}")
        print(f"dev.py: {task} is SKIPPED: it cannot be installed here; the command was: {failed}")
        return 0
    for command in commands:
        # Only a single command can take the caller's own arguments.
        given = arguments[1:] if len(commands) == 1 else []
        program = str(_bin(environment) / command[0])
        code = subprocess.run([program, *command[1:], *given], cwd=ROOT).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
