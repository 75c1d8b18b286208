"""One pass over a table, in batches: the complete records, with the groups that they belong to.

A record has no score if a value that the score needs is missing (null or NaN). By default such
records are an error, which says how many there are and where the first one is; with "drop" they are
left out. They are counted in both cases. The columns that the conditions of the groups use
(`Groups.columns`) are read in the same pass.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.tables.files import Table

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


def batches(
    table: Table,
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
    checks.choice("missing", missing, "error", "drop")
    table.require(groups.columns, groups.quoting_hint)
    # If no column is needed, the first one is read all the same: a frame without columns would
    # have no rows to count.
    wanted = tuple(dict.fromkeys((*columns, *groups.columns, *also))) or table.columns[:1]
    rows, seen = Rows(), np.zeros(len(groups), dtype=np.bool_)
    first: tuple[int, str] | None = None
    said: list[str] = []
    for frame in table.batches(wanted, types):
        gaps, column = _gaps(frame, columns)
        if gaps is not None and first is None:
            first = rows.read + int(gaps.arg_max() or 0), column
        lost = 0 if gaps is None else int(gaps.sum())
        start, rows = rows.read, Rows(rows.read + len(frame), rows.dropped + lost)
        if progress is not None:
            progress(rows.read, table.rows)
        if first is not None and missing == "error":
            continue  # The error is certain, and the other rows are only counted.
        complete = frame if gaps is None else frame.filter(~gaps)
        try:
            membership, warned = _membership(groups, complete, site)
        except GCFCPError as error:
            raise GCFCPError(f"{table.name}: {error}") from None
        said += warned
        seen |= membership.any(axis=0)
        empty = tuple(name for name, any_ in zip(groups.others, seen, strict=False) if not any_)
        rows = replace(rows, unmatched=empty)
        where = f"{table.name}, rows {start + 1:,} to {rows.read:,}" if start else table.name
        yield Batch(complete, membership, rows, where, None if lost else start)
    if first is not None and missing == "error":
        raise _missing_values(table, rows, *first)
    if not rows.used:
        raise _nothing_left(table, rows)
    if said:
        more = f" (and in {len(said) - 1} more batches)" if len(said) > 1 else ""
        warnings.warn(f"{table.name}: {said[0]}{more}", GCFCPWarning, stacklevel=3)


def _membership(groups: Groups, frame: pl.DataFrame, site: str | None) -> tuple[Bools, list[str]]:
    """Who belongs to which group, and what the groups warn of, which is collected here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GCFCPWarning)
        membership = groups.membership(frame, site)
    return membership, [str(w.message) for w in caught]


def _missing_values(table: Table, rows: Rows, row: int, column: str) -> GCFCPError:
    """The error for a table with missing values, of which the first is at `row` (from 0)."""
    return GCFCPError(
        f"{table.name}: {rows.dropped:,} of {rows.read:,} rows have a missing value where the "
        f"score needs one, and the first is in column {column!r} of row {row + 1:,}: fill them in, "
        "or leave these rows out (--missing drop)"
    )


def _nothing_left(table: Table, rows: Rows) -> GCFCPError:
    """The error for a table that has no complete record."""
    if rows.read:
        return GCFCPError(
            f"{table.name} has no rows left to work with: all {rows.read:,} have a missing value "
            "where the score needs one"
        )
    return GCFCPError(f"{table.name} has no rows to work with: the table is empty")


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
