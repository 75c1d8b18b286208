"""How long and how large: `gcfcp summarize` and `gcfcp audit` over a table larger than memory.

    python -m benchmarks.tables --rows 100000000

writes a Parquet file of that many records (score, age, sex, region: 9 bytes a record) into a
temporary directory, runs the commands as a user does, and prints wall time and peak memory of each.
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

PART = 5_000_000
GROUPS = """\
all = "TRUE"
old = "age >= 65"
young = "age < 40"
female = "sex = 1"
west = "region in (0, 1, 2)"
"""
# The child tells its own peak, as the children of one parent share a single maximum.
CHILD = """\
import resource, sys
from gcfcp.cli import main
try:
    main()
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def write(rows: int, path: Path) -> None:
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


def run(directory: Path, *arguments: str) -> None:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - start
    peak = int(done.stderr.split("peak ")[-1].split()[0]) / 1024
    print(f"gcfcp {arguments[0]}: {seconds:.1f} s, peak {peak:,.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="gcfcp-tables-") as name:
        directory = Path(name)
        (directory / "groups.toml").write_text(GROUPS)
        write(rows, directory / "data.parquet")
        size = (directory / "data.parquet").stat().st_size
        print(f"{rows:,} records, {size / 2**20:,.0f} MiB of Parquet", flush=True)
        made = ["--groups", "groups.toml", "--client", "a", "-o", "a.gcfcp"]
        run(directory, "summarize", "data.parquet", *made)
        run(directory, "calibrate", "a.gcfcp", "-o", "predictor.json")
        run(directory, "audit", "predictor.json", "data.parquet", "--client", "a", "-o", "a.audit")


if __name__ == "__main__":
    main()
