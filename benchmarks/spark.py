"""When Spark pays: the summary of the same rows by Spark and by one process, on one machine.

    python -m benchmarks.spark --rows 10000000 100000000 -o docs/measured/spark.md

The rows are made in Spark from their numbers and written to one Parquet file, which all contestants
read. Spark runs as `local[2]`. With a grid, Spark counts equal rows, and Python sees each kind of
them once. "Row by row" is what is done instead where this is not certain to give the same result.
"By hand" is the same count in Spark's SQL for these two groups: what is left to gain. It is no
contestant, because SQL of Spark and of polars differ where a value is missing or NaN.

Processor time is that of this process and of all that it started. The driver has 2 GB.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gcfcp
import gcfcp.spark
from benchmarks.machine import machine

GROUPS = gcfcp.Groups({"all": "TRUE", "old": "age >= 65"})
CELLS = 200
GRID = gcfcp.Grid.uniform(0, 1, CELLS)
_TICKS = os.sysconf("SC_CLK_TCK")


def session() -> Any:
    """Spark on two cores of this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def write_rows(spark: Any, rows: int, folder: Path) -> Path:
    """One Parquet file of these rows, in groups that several tasks can read."""
    frame = spark.range(0, rows, 1, 1).selectExpr(
        "id % 70 + 20 AS age",
        "double(pmod(hash(id), 1000003)) / 1000003 AS prediction",
        "double(pmod(hash(id, 7), 1000003)) / 1000003 AS y",
    )
    frame.write.option("parquet.block.size", 2**24).parquet(str(folder / "rows"))
    [found] = (folder / "rows").glob("*.parquet")
    return found


def by_spark(spark: Any, path: Path, **how: Any) -> gcfcp.ClientSummary:
    """The summary by `gcfcp.spark`."""
    frame = spark.read.parquet(str(path))
    found: gcfcp.ClientSummary = gcfcp.spark.summarize(frame, groups=GROUPS, client="a", **how)
    return found


def row_by_row(spark: Any, path: Path, **how: Any) -> gcfcp.ClientSummary:
    """The same without counting in Spark: every row goes to Python."""
    with patch("gcfcp.spark.site.grouped", return_value=None):
        return by_spark(spark, path, **how)


def by_file(path: Path, **how: Any) -> gcfcp.ClientSummary:
    """The summary of the file, in this process."""
    from gcfcp.summary import Making
    from gcfcp.tables import open_table, scoring, summarize_table

    with open_table(path) as table:
        by = scoring(table)
        making = Making(groups=GROUPS, client="a", score=by.named, **how)
        [summary], _ = summarize_table(table, by, making)
    return summary


def by_sql(spark: Any, path: Path) -> int:
    """How many records a GROUP BY counts in the cells of the grid."""
    frame = spark.read.parquet(str(path)).selectExpr(
        "age >= 65 AS old", f"ceil(abs(y - prediction) * {CELLS}) AS cell"
    )
    return sum(row["count"] for row in frame.groupBy("old", "cell").count().collect())


def processor_seconds() -> float:
    """The processor time of this process and of all that it started, also of those that ended."""
    spent: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        spent[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15])) / _TICKS
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in spent.items() if parent in ours} - ours:
        ours |= more
    return sum(spent[pid][1] for pid in ours)


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a run gives, its seconds, and its seconds of processor time."""
    began, spent = time.perf_counter(), processor_seconds()
    found = run()
    return found, time.perf_counter() - began, processor_seconds() - spent


def main(given: list[str] | None = None) -> int:
    """Measure, check that all agree, and print the table."""
    parser = argparse.ArgumentParser("python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**7])
    parser.add_argument("-o", "--output", type=Path, help="a Markdown file for the table")
    parser.add_argument("--directory", type=Path, help="where the rows are written meanwhile")
    arguments = parser.parse_args(given)
    lines = ["| rows | way | seconds | processor seconds |", "|---|---|---|---|"]
    spark = session()
    warm_up(spark, arguments.directory)
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            path = write_rows(spark, rows, Path(folder))
            lines += measured(spark, path, rows)
    spark.stop()
    where = machine()
    text = "\n".join(lines) + (
        f"\n\nMeasured on {where['date'][:10]} on {where['cores']} cores of "
        f"{where['processor']}, at a "
        f"load of {max(where['load'] or [0]):.0f}; PySpark {spark_version()}.\n"
    )
    if arguments.output:
        arguments.output.write_text(text)
    print(text)
    return 0


def warm_up(spark: Any, directory: Path | None) -> None:
    """Import and start all that is imported and started once, which is not measured."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        path = write_rows(spark, 1000, Path(folder))
        by_spark(spark, path)
        by_spark(spark, path, grid=GRID)
        by_file(path)


def spark_version() -> str:
    """The version of PySpark."""
    from importlib.metadata import version

    return version("pyspark")


def measured(spark: Any, path: Path, rows: int) -> list[str]:
    """The lines of the table for one number of rows."""
    ways: dict[str, Callable[[], Any]] = {
        "one process, grid": lambda: by_file(path, grid=GRID),
        "one process, digests": lambda: by_file(path),
        "Spark, grid": lambda: by_spark(spark, path, grid=GRID),
        "Spark, grid, row by row": lambda: row_by_row(spark, path, grid=GRID),
        "Spark, digests": lambda: by_spark(spark, path),
        "Spark, GROUP BY by hand": lambda: by_sql(spark, path),
    }
    found, lines = {}, []
    for way, run in ways.items():
        found[way], seconds, spent = timed(run)
        lines.append(f"| {rows:,} | {way} | {seconds:.1f} | {spent:.1f} |")
        print(lines[-1], flush=True)
    for way in ("Spark, grid", "Spark, grid, row by row"):
        assert found[way] == found["one process, grid"], f"the counts differ: {way}"
    assert found["Spark, GROUP BY by hand"] == rows
    assert found["Spark, digests"].n == found["one process, digests"].n == rows
    return lines


if __name__ == "__main__":
    sys.exit(main())
