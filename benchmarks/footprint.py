"""What an installation weighs, and how long an import takes: `python3 dev.py footprint`.

Installs this clone into fresh environments, once alone and once with the extra cli, and measures
the disk space and the packages of each. In the first it times `import gcfcp` beside `import numpy`,
in processes of their own and in turns. Writes benchmarks/results/footprint.md and the same lines
into the README. Needs Python and pip alone, and an index that pip can reach.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import venv
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "footprint.md"
README = ROOT / "README.md"
BEGIN = "<!-- made by `python3 dev.py footprint`; do not edit -->"
END = "<!-- end of the footprint -->"

TURNS = 15  # The number of times that each import is timed.

# The installation of version 0.1.0, which had one form only: its packages and megabytes, found by
# `measured` in the same way.
BEFORE = (29, 525)

# Processor time, because other work on the machine does not change it.
_TIME = """
import time
began = time.process_time()
import {module}
print(time.process_time() - began)
"""


def installed(source: str, folder: Path) -> Path:
    """A fresh environment with `source` installed, and without pip; the Python in it."""
    venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(folder)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    done = subprocess.run([*pip, "install", "--quiet", source], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"pip cannot install {source}: {done.stderr.strip().splitlines()[-1:]}")
    return python


def measured(python: Path) -> tuple[int, int]:
    """The number of packages in an environment, and their space on disk in megabytes (2^20)."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    place = Path(done.stdout.strip())
    # Disk space is counted in blocks, as du does.
    size = sum(512 * path.lstat().st_blocks for path in place.rglob("*"))
    return len(list(place.glob("*.dist-info"))), round(size / 2**20)


def import_times(python: Path) -> tuple[float, float]:
    """Seconds of processor time for `import numpy` and for `import gcfcp`; medians of the turns."""
    times: dict[str, list[float]] = {"numpy": [], "gcfcp": []}
    for _ in range(TURNS + 1):
        for module, found in times.items():
            command = [python, "-I", "-c", _TIME.format(module=module)]  # Not from this directory.
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(float(done.stdout))
    # The first turn compiles modules and fills the cache of the disk.
    return statistics.median(times["numpy"][1:]), statistics.median(times["gcfcp"][1:])


def as_markdown(alone: tuple[int, int], cli: tuple[int, int], times: tuple[float, float]) -> str:
    """The table, and what stands below it."""
    numpy, gcfcp = times
    lines = [
        "| installed by | what it can do | packages | on disk |",
        "|---|---|---|---|",
        f"| `pip install .` | summarize, calibrate, predict and audit in Python | {alone[0]} "
        f"(gcfcp and NumPy) | {alone[1]} MB |",
        "| `pip install '.[cli]'` | the commands, conditions of groups, tables, reports, plots | "
        f"{cli[0]} | {cli[1]} MB |",
        "",
        f"(Version 0.1.0 always installed {BEFORE[0]} packages, {BEFORE[1]} MB.) `import gcfcp` "
        f"takes {gcfcp:.2f} s of processor time, {gcfcp / numpy:.1f} times as long as the "
        "`import numpy` in it.",
    ]
    return "\n".join(lines) + "\n"


def into_readme(readme: str, text: str) -> str:
    """The README with the text between its two marks."""
    head, rest = readme.split(BEGIN + "\n")
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{text}\n{END}{tail}"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gcfcp-footprint-") as folder:
        alone = installed(str(ROOT), Path(folder) / "alone")
        cli = installed(f"{ROOT}[cli]", Path(folder) / "cli")
        text = as_markdown(measured(alone), measured(cli), import_times(alone))
    where = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{datetime.now(UTC):%Y-%m-%d}. Sizes are of `site-packages` without pip, times the "
        f"median of {TURNS} processes. Made by `python3 dev.py footprint`."
    )
    RESULT.write_text(f"# What an installation weighs\n\n{text}\n{where}\n", encoding="utf-8")
    README.write_text(into_readme(README.read_text("utf-8"), text), encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
