"""Measure time and memory of `gcfcp summarize`, `calibrate` and `audit` on a large table.

    python -m benchmarks.tables [--rows 100000000]

This writes a Parquet file of that many records (score, age, sex, region) into a temporary
directory. It runs the commands as a user would, and writes the wall time and the peak memory of
each to results/tables.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.machine import machine

PART = 5_000_000  # The table is written in parts of this many rows.
GROUPS = """\
all = "TRUE"
old = "age >= 65"
young = "age < 40"
female = "sex = 1"
west = "region in (0, 1, 2)"
"""
# The child reads its own peak memory. `ru_maxrss` would begin at what its parent held.
CHILD = """\
import sys
from pathlib import Path
from gcfcp.cli import main
try:
    main()
finally:
    peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    print("peak", peak, file=sys.stderr)
"""
_RESULTS = Path(__file__).resolve().parent / "results" / "tables.md"


def write(rows: int, path: Path) -> None:
    """Write the table, part by part, so that it may be larger than memory."""
    rng = np.random.default_rng(0)
    parts = []
    for start in range(0, rows, PART):
        n = min(PART, rows - start)
        parts.append(path.with_name(f"part-{len(parts):05}.parquet"))
        pl.DataFrame(
            {
                "score": rng.gamma(2.0, 1.0, n),
                "age": rng.integers(18, 95, n).astype(np.int32),
                "sex": rng.integers(0, 2, n).astype(np.int8),
                "region": rng.integers(0, 6, n).astype(np.int8),
            }
        ).write_parquet(parts[-1])
    pl.scan_parquet(parts).sink_parquet(path)
    for part in parts:
        part.unlink()


def run(directory: Path, *arguments: str) -> str:
    """Run one command of gcfcp; its row of the table: time and peak memory."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - start
    peak = int(done.stderr.split("peak ")[-1].split()[0]) * 1024 / 1e6
    return f"| `gcfcp {arguments[0]}` | {seconds:.1f} s | {peak:,.0f} MB |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    rows = parser.parse_args().rows
    where = machine()
    with tempfile.TemporaryDirectory(prefix="gcfcp-tables-") as name:
        directory = Path(name)
        (directory / "groups.toml").write_text(GROUPS)
        write(rows, directory / "data.parquet")
        size = (directory / "data.parquet").stat().st_size
        made = ["--groups", "groups.toml", "--client", "a", "-o", "a.gcfcp"]
        counted = ["--client", "a", "-o", "a.audit"]
        lines = [
            "<!-- made by `python -m benchmarks.tables`; do not edit -->",
            "",
            f"{rows:,} records, {size / 1e6:,.0f} MB of Parquet, 5 overlapping groups; one run, "
            f"wall time, and the most that the process held. {where['processor']}, "
            f"{where['cores']} cores, {where['date']}, load before {where['load']}, commit "
            f"{where['commit']}.",
            "",
            "| command | time | memory |",
            "|---|---|---|",
            run(directory, "summarize", "data.parquet", *made),
            run(directory, "calibrate", "a.gcfcp", "-o", "predictor.json"),
            run(directory, "audit", "predictor.json", "data.parquet", *counted),
        ]
    text = "\n".join([*lines, ""])
    print(text)
    _RESULTS.write_text(text)


if __name__ == "__main__":
    main()
