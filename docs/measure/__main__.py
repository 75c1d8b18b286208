"""Measure every number and draw every figure that the documentation shows of its own.

    python docs/measure                 all of them, some minutes on one core
    python docs/measure why delta       some of them

Figures go to docs/figures, tables to docs/measured; both are committed, so that building the site
measures nothing. The paper's tables and the benchmarks have commands of their own.
"""

from __future__ import annotations

import importlib
import sys

NAMES = ("architecture", "recompression", "proved", "why", "delta")


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"{', '.join(unknown)}: not one of {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in names or NAMES:
        print(f"{name} ...", flush=True)
        importlib.import_module(name).main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
