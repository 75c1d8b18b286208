"""Measure the numbers and draw the figures that only the documentation shows.

    python docs/measure                 all of them; this takes some minutes on one core
    python docs/measure why delta       only these

Figures go to docs/figures and tables to docs/measured. `commands` writes the list of commands into
docs/reference/cli.md, and `start` makes the notebook of the ten-minute start besides its figures.
All of it is committed, so that building the site measures nothing. The paper's tables and the
benchmarks have commands of their own.
"""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "commands",
    "architecture",
    "start",
    "serving",
    "recompression",
    "proved",
    "why",
    "delta",
    "privacy",
    "explorer",
)


def main(names: list[str]) -> int:
    """Measure what is named, or everything; the exit code is 2 if a name is unknown."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"{', '.join(unknown)}: choose from {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in names or NAMES:
        print(f"{name} ...", flush=True)
        importlib.import_module(name).main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
