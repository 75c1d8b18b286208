"""One reply from each partition, and what is wrong with the rows of all of them.

A task sends one row: how many records it has read and left out, where the first gap is, which
groups it has seen, and bytes that hold its summary or its counts. An error about the records is
sent as text and is no failure of the task, so that Spark does not try it again. Whatever else goes
wrong fails the task, and Spark tries again as often as it is told to.

Guarantee: the reply of a partition depends on its rows alone, and on their order where numbers are
drawn. The generator of a partition has the seed (seed, what is drawn, number of the partition).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from gcfcp import checks
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.spark.frames import Frame, Partition
from gcfcp.tables import Pass, Rows, unmatched_groups

if TYPE_CHECKING:
    import pyarrow as pa

Work = Callable[[Partition, Pass, int], "list[bytes]"]
"""What is done with a partition: it gets the rows, where to leave findings, and its number."""

SCHEMA = (
    "partition int, read long, dropped long, row long, gap string, seen binary, "
    "said array<string>, failed string, data array<binary>"
)
_SHOWN = 5  # The most partitions that a message lists.


@dataclass(frozen=True)
class Reply:
    """What one partition replied."""

    partition: int
    found: Pass
    failed: str | None  # The error about its records, if there is one.
    data: tuple[bytes, ...]


def seeded(seed: int | None, what: int, partition: int) -> Generator:
    """The generator of a partition. `what` is 0 for scores and 1 for a holdout."""
    return np.random.default_rng([checks.whole("seed", seed, 0), what, partition])


def require_seed(seed: int | None, why: str) -> None:
    """Raise an error if numbers are drawn and no seed is given."""
    if seed is None:
        raise GCFCPError(
            f"{why} and needs a seed, so that a task that is tried again draws the same numbers: "
            "give seed=7 or another whole number"
        )
    checks.whole("seed", seed, 0)


def ask(frame: Frame, columns: tuple[str, ...], work: Work) -> list[Reply]:
    """The replies of all partitions that have rows, in the order of the partitions."""
    return replies_of(*frame.selected(columns), frame.name, work)


def replies_of(df: Any, columns: tuple[str, ...], name: str, work: Work) -> list[Reply]:
    """The same of a data frame of Spark, whose columns have other names to us."""
    rows = df.mapInArrow(_task(work, name, columns), SCHEMA).collect()
    return sorted((_reply(row) for row in rows), key=lambda reply: reply.partition)


def _task(
    work: Work, name: str, columns: tuple[str, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark runs in each partition."""

    def run(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = partition_number()
        rows = Partition(stream, f"{name}, partition {number}", columns)
        found, failed, data = Pass(), None, []
        try:
            with warnings.catch_warnings():
                # What there is to warn of is said once, by the driver.
                warnings.simplefilter("ignore", GCFCPWarning)
                data = work(rows, found, number)
        except GCFCPError as error:
            failed = str(error)
        if found.rows.read or failed is not None:
            yield _row(number, found, failed, data)

    return run


def partition_number() -> int:
    """The number of the partition whose task this is."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def _row(number: int, found: Pass, failed: str | None, data: list[bytes]) -> pa.RecordBatch:
    """The reply of a partition as a batch of one row."""
    import pyarrow as pa

    row, gap = found.first or (-1, "")
    values = {
        "partition": pa.array([number], pa.int32()),
        "read": pa.array([found.rows.read], pa.int64()),
        "dropped": pa.array([found.rows.dropped], pa.int64()),
        "row": pa.array([row], pa.int64()),
        "gap": pa.array([gap], pa.string()),
        "seen": pa.array([found.seen.tobytes()], pa.binary()),
        "said": pa.array([found.said], pa.list_(pa.string())),
        "failed": pa.array([failed], pa.string()),
        "data": pa.array([data], pa.list_(pa.binary())),
    }
    return pa.RecordBatch.from_pydict(values)


def _reply(row: Any) -> Reply:
    """The reply that a row of Spark holds."""
    found = Pass(
        Rows(row["read"], row["dropped"]),
        np.frombuffer(bytes(row["seen"]), dtype=np.bool_),
        None if row["row"] < 0 else (row["row"], row["gap"]),
        list(row["said"]),
    )
    return Reply(row["partition"], found, row["failed"], tuple(map(bytes, row["data"])))


# --- what is wrong in all of them ----------------------------------------------------------------


def judge(replies: Sequence[Reply], frame: Frame, groups: Groups, missing: str) -> Rows:
    """Raise the error that the partitions ask for, or give their warnings, each of them once.

    Returns how many rows were read and left out in all.
    """
    failed = [reply for reply in replies if reply.failed is not None]
    if failed:
        more = f" (and in {len(failed) - 1} more partitions)" if len(failed) > 1 else ""
        raise GCFCPError(f"{failed[0].failed}{more}")
    seen = np.zeros(len(groups), dtype=np.bool_)
    for reply in replies:
        seen[: len(reply.found.seen)] |= reply.found.seen
    rows = Rows(
        sum(reply.found.rows.read for reply in replies),
        sum(reply.found.rows.dropped for reply in replies),
        unmatched_groups(groups, seen),
    )
    gaps = [reply for reply in replies if reply.found.first is not None]
    total = Pass(
        rows,
        seen,
        gaps[0].found.first if gaps else None,
        [text for reply in replies for text in reply.found.said],
    )
    several = f" ({_counted(gaps)})" if len(gaps) > 1 else ""
    where = f" of partition {gaps[0].partition}{several}" if gaps else ""
    total.end(frame.name, missing, where, "missing='drop'")
    if rows.dropped:
        warnings.warn(
            f"{frame.name}: {rows.dropped:,} of {rows.read:,} rows had no score and were dropped "
            f"({_counted(gaps)})",
            GCFCPWarning,
            stacklevel=4,
        )
    return rows


def _counted(replies: Sequence[Reply]) -> str:
    """How many rows have a gap in each of these partitions."""
    some = [f"{r.found.rows.dropped:,} in partition {r.partition}" for r in replies[:_SHOWN]]
    if len(replies) > _SHOWN:
        rest = sum(r.found.rows.dropped for r in replies[_SHOWN:])
        some.append(f"{rest:,} in {len(replies) - _SHOWN} more partitions")
    return ", ".join(some)


def warn_of_unmatched(frame: Frame, groups: Groups, rows: Rows, absent: Iterable[str] = ()) -> None:
    """Warn of groups that have none of the records."""
    for name in rows.unmatched:
        if name not in absent:
            warnings.warn(
                f"group {name!r} ({groups.condition_of(name)}) has none of the records of "
                f"{frame.name}: see which values its columns hold, or declare it absent if the "
                "site cannot have such records",
                GCFCPWarning,
                stacklevel=4,
            )
