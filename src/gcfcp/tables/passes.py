"""One pass over a table: complete records only, in batches, with their groups.

A record with a missing value (null or NaN) where the score needs one has no score: that is an error
that says how many there are and where the first is, unless told to drop them. They are counted
either way. The columns of the groups' conditions are read beside them (`Groups.columns`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gcfcp import checks
from gcfcp.arrays import Bools
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.tables.files import Table

if TYPE_CHECKING:
    import polars as pl

Progress: TypeAlias = Callable[[int, int | None], None]
"""It is told how many rows were read, and how many there are where that is known."""


@dataclass(frozen=True)
class Rows:
    """How many records a pass has seen, and how many of them it left out."""

    read: int = 0
    dropped: int = 0

    @property
    def used(self) -> int:
        return self.read - self.dropped


@dataclass(frozen=True)
class Batch:
    frame: pl.DataFrame  # complete records; it may have none
    membership: Bools
    rows: Rows  # up to and with this batch
    where: str

    @contextmanager
    def located(self) -> Iterator[None]:
        """An error about these records says which rows of the table it is about."""
        try:
            yield
        except GCFCPError as error:
            raise GCFCPError(f"{self.where}: {error}") from None


def batches(
    table: Table,
    groups: Groups,
    columns: tuple[str, ...],
    types: dict[str, Any],
    missing: str,
    progress: Progress | None,
    also: tuple[str, ...] = (),
) -> Iterator[Batch]:
    """The table in batches: complete records only, with their groups.

    Missing values are looked for in all of the table before they are reported, so the count is
    that of the table. What groups warn of is said once, at the end.
    """
    checks.choice("missing", missing, "error", "drop")
    table.require(groups.columns)
    # Where no column is needed one is read all the same: a frame without columns has no rows.
    wanted = tuple(dict.fromkeys((*columns, *groups.columns, *also))) or table.columns[:1]
    rows = Rows()
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
            continue  # only to count
        complete = frame if gaps is None else frame.filter(~gaps)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GCFCPWarning)
            membership = groups.membership(complete)
        said += [str(w.message) for w in caught]
        where = f"{table.name}, rows {start + 1:,} to {rows.read:,}" if start else table.name
        yield Batch(complete, membership, rows, where)
    if first is not None and missing == "error":
        row, column = first
        raise GCFCPError(
            f"{table.name}: {rows.dropped:,} of {rows.read:,} rows have a missing value where the "
            f"score needs one, the first in column {column!r} of row {row + 1:,}: mend them, or "
            "leave them out (--missing drop)"
        )
    if not rows.used:
        raise GCFCPError(f"{table.name} has no rows{' left' if rows.read else ''} to work with")
    if said:
        more = f" (and in {len(said) - 1} more batches)" if len(said) > 1 else ""
        warnings.warn(f"{table.name}: {said[0]}{more}", GCFCPWarning, stacklevel=3)


def _gaps(frame: pl.DataFrame, columns: tuple[str, ...]) -> tuple[pl.Series | None, str]:
    """Which rows have a null or a NaN, if any, and in which column the first of them."""
    found: pl.Series | None = None
    first: dict[str, int] = {}
    for name in columns:
        gaps = frame[name].is_null()
        if frame[name].dtype.is_float():
            gaps = gaps | frame[name].is_nan().fill_null(False)
        if gaps.any():
            first[name] = int(gaps.arg_max() or 0)
            found = gaps if found is None else found | gaps
    return found, min(first, key=lambda name: first[name], default="")
