"""One pass over a table, in batches: the complete records, with the groups that they belong to.

A record has no score if a value that the score needs is missing (null or NaN). By default such
records are an error, which says how many there are and where the first one is; with "drop" they are
left out. They are counted in both cases. The columns that the conditions of the groups use
(`Groups.columns`) are read in the same pass.

A pass may also go over a part of a table only, such as a partition of a cluster (`scan`). What it
has found (`Pass`) is then judged where all parts come together.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.tables.files import Source

if TYPE_CHECKING:
    import polars as pl

_ROW = re.compile(r"\brow (\d+)\b")  # A row in a message, counted from one within a batch.

Progress: TypeAlias = Callable[[int, int | None], None]
"""A function that is told how many rows were read and how many there are (None if unknown)."""


@dataclass(frozen=True)
class Rows:
    """How many records a pass has seen, and how many of them it left out."""

    read: int = 0
    dropped: int = 0
    unmatched: tuple[str, ...] = ()  # The groups, sites apart, that none of them belongs to.

    @property
    def used(self) -> int:
        """How many records were not left out."""
        return self.read - self.dropped


@dataclass(frozen=True)
class Batch:
    """Some rows of a table that have all values that the score needs."""

    frame: pl.DataFrame  # The complete records of this batch; there may be none.
    membership: Bools  # Which of these records belong to which group, (n, G).
    rows: Rows  # How many records were read and left out up to the end of this batch.
    where: str  # What messages call these rows, such as "data.csv, rows 501 to 600".
    before: int | None = None  # How many rows stand above them; None if some were left out here.

    @contextmanager
    def located(self) -> Iterator[None]:
        """Let an error about these records say which rows of the table it is about."""
        try:
            yield
        except GCFCPError as error:
            if self.before is None:
                raise GCFCPError(f"{self.where}: {error}") from None
            before = self.before
            text = _ROW.sub(lambda found: f"row {before + int(found.group(1)):,}", str(error))
            where = self.where if text == str(error) else self.where.partition(", rows ")[0]
            raise GCFCPError(f"{where}: {text}") from None


@dataclass
class Pass:
    """What a pass has found so far. It changes with every batch, because it follows a stream."""

    rows: Rows = field(default_factory=Rows)
    seen: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))  # Groups with rows.
    first: tuple[int, str] | None = None  # The first row (from 0) with a gap, and its column.
    said: list[str] = field(default_factory=list)  # What the groups warned of.

    def end(self, name: str, missing: str, where: str = "", drop: str = "--missing drop") -> None:
        """Raise the error that these findings ask for, or give the warning.

        - `name`: What messages call the table.
        - `where`: What stands behind the number of the first row, such as " of partition 3".
        - `drop`: How a user asks to leave rows out.
        """
        if self.first is not None and missing == "error":
            raise _missing_values(name, self.rows, *self.first, where, drop)
        if not self.rows.used:
            raise _nothing_left(name, self.rows)
        if self.said:
            more = f" (and in {len(self.said) - 1} more batches)" if len(self.said) > 1 else ""
            warnings.warn(f"{name}: {self.said[0]}{more}", GCFCPWarning, stacklevel=4)


def batches(
    table: Source,
    groups: Groups,
    columns: tuple[str, ...],
    types: dict[str, Any],
    missing: str,
    progress: Progress | None,
    also: tuple[str, ...] = (),
    site: str | None = None,
) -> Iterator[Batch]:
    """Yield the complete records of a table in batches, with their groups.

    If missing values are an error, the rest of the table is still read after the first of them,
    so that the message counts all rows that have one. What the groups warn of is said once, at the
    end.

    columns: The columns in which no value may be missing.
    types: Polars types of columns, where the text of a CSV file could be taken for another type.
    missing: "error" or "drop".
    progress: It is called with the number of rows read so far, after each batch.
    also: More columns to read; their values may be missing.
    site: The site of all records, which groups with sites need and other groups do not take.
    """
    found = Pass()
    yield from scan(table, groups, columns, types, missing, progress, also, site, found)
    found.end(table.name, missing)


def scan(
    table: Source,
    groups: Groups,
    columns: tuple[str, ...],
    types: dict[str, Any],
    missing: str,
    progress: Progress | None,
    also: tuple[str, ...],
    site: str | None,
    found: Pass,
) -> Iterator[Batch]:
    """The same, of what may be a part of a table: whoever calls it judges what is `found`.

    A pass that has `found` something already goes on from there.
    """
    checks.choice("missing", missing, "error", "drop")
    table.require(groups.columns, groups.quoting_hint)
    # If no column is needed, the first one is read all the same: a frame without columns would
    # have no rows to count.
    wanted = tuple(dict.fromkeys((*columns, *groups.columns, *also))) or table.columns[:1]
    if not len(found.seen):
        found.seen = np.zeros(len(groups), dtype=np.bool_)
    for frame in table.batches(wanted, types):
        rows = found.rows
        gaps, column = _gaps(frame, columns)
        if gaps is not None and found.first is None:
            found.first = rows.read + int(gaps.arg_max() or 0), column
        lost = 0 if gaps is None else int(gaps.sum())
        start, rows = rows.read, Rows(rows.read + len(frame), rows.dropped + lost)
        found.rows = rows
        if progress is not None:
            progress(rows.read, table.rows)
        if found.first is not None and missing == "error":
            continue  # The error is certain, and the other rows are only counted.
        complete = frame if gaps is None else frame.filter(~gaps)
        try:
            membership, warned = _membership(groups, complete, site)
        except GCFCPError as error:
            raise GCFCPError(f"{table.name}: {error}") from None
        found.said += warned
        # any(axis=0) takes a hundred times as long for a long matrix of few columns.
        found.seen |= [column.any() for column in membership.T]
        found.rows = rows = replace(rows, unmatched=unmatched_groups(groups, found.seen))
        where = f"{table.name}, rows {start + 1:,} to {rows.read:,}" if start else table.name
        yield Batch(complete, membership, rows, where, None if lost else start)


def unmatched_groups(groups: Groups, seen: Bools) -> tuple[str, ...]:
    """The groups, sites apart, that no record belongs to.

    - `seen`: Which groups have a record, (G,).
    """
    return tuple(name for name, any_ in zip(groups.others, seen, strict=False) if not any_)


def _membership(groups: Groups, frame: pl.DataFrame, site: str | None) -> tuple[Bools, list[str]]:
    """Who belongs to which group, and what the groups warn of, which is collected here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GCFCPWarning)
        membership = groups.membership(frame, site)
    return membership, [str(w.message) for w in caught]


def _missing_values(
    name: str, rows: Rows, row: int, column: str, where: str, drop: str
) -> GCFCPError:
    """The error for a table with missing values, of which the first is at `row` (from 0)."""
    return GCFCPError(
        f"{name}: {rows.dropped:,} of {rows.read:,} rows have a missing value where the score "
        f"needs one, and the first is in column {column!r} of row {row + 1:,}{where}: fill them "
        f"in, or leave these rows out ({drop})"
    )


def _nothing_left(name: str, rows: Rows) -> GCFCPError:
    """The error for a table that has no complete record."""
    if rows.read:
        return GCFCPError(
            f"{name} has no rows left to work with: all {rows.read:,} have a missing value where "
            "the score needs one"
        )
    return GCFCPError(f"{name} has no rows to work with: the table is empty")


def _gaps(frame: pl.DataFrame, columns: tuple[str, ...]) -> tuple[pl.Series | None, str]:
    """Which rows have a null or a NaN in one of the columns, and in which column the first is.

    The series is None if no row has one, and the column is then "".
    """
    import polars as pl

    # A sum is NaN if a value is, and it takes a fifth of the time of looking at each of them. It is
    # also NaN if both infinities occur, so that the values themselves then decide.
    schema = frame.schema
    floats = [name for name in columns if schema[name].is_float()]
    nulls = frame.select(columns).null_count().row(0, named=True)
    sums = frame.select(pl.col(floats).sum()).row(0, named=True) if floats else {}
    found: pl.Series | None = None
    first: dict[str, int] = {}
    for name in [name for name in columns if nulls[name] or math.isnan(sums.get(name, 0.0))]:
        gaps = frame[name].is_null()
        if name in sums:
            gaps = gaps | frame[name].is_nan().fill_null(False)
        if gaps.any():
            first[name] = int(gaps.arg_max() or 0)
            found = gaps if found is None else found | gaps
    return found, min(first, key=lambda name: first[name], default="")
