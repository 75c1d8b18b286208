"""The prediction sets of a Parquet file, found label by label instead of row by row.

A Parquet file keeps columns together: some hundred thousand rows of a column, a row group, are
unpacked at once. Whole rows of 1,000 labels therefore take a row group of all of them in memory,
packed and unpacked, and have to be turned around afterwards. By the score `thr` a label is in the
set of a row if its probability is large enough, whatever the others are. So some columns are read
at a time, compared with the least probability of each row, and one bit for each row and label is
kept.

Only rows that are beyond doubt are handled here. If a value is missing, a row is not a row of
probabilities, or anything else is wrong, this part of the file and all that follows are left to the
pass by rows, which says what is wrong in its own words.

Cost: Each value is read once. At most 2^20 rows are in work at a time, with one bit for each row
and label (at most 128 MB), the columns that the groups need, and 4 million values.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import scores
from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.prediction import Predictor
from gcfcp.tables.files import Source, Table, rows_at_a_time
from gcfcp.tables.passes import Batch, Pass, Progress, scan
from gcfcp.tables.scoring import Scoring

if TYPE_CHECKING:
    import polars as pl

_MOST_ROWS = 2**20  # The usual row groups of other libraries are not larger than this.
_MOST_BITS = 2**30  # For 1,000 labels these are the bits of 2^20 rows.
_VALUES = 2**22  # So many values are read at a time.


class _Part(Source):
    """Some rows of a Parquet file, of which a few columns are read at once.

    - `start`: How many rows stand above them.
    - `count`: How many rows these are at most.
    - `size`: How many of them are given out at a time.
    """

    def __init__(self, table: Table, start: int, count: int, size: int):
        self.table = table
        self.name = table.name
        self.columns = table.columns
        self.rows = table.rows
        self.start = start
        self.count = min(count, (table.rows or 0) - start)
        self.size = size

    def batches(self, columns: tuple[str, ...], types: dict[str, Any]) -> Iterator[pl.DataFrame]:
        """See `Source`.

        types: Polars types, which the columns of a Parquet file have without being told.
        """
        yield from self.read(columns).iter_slices(self.size)

    def read(self, columns: tuple[str, ...]) -> pl.DataFrame:
        """All rows of these columns."""
        return self.table.read(columns, self.start, self.count)


def sets_by_label(
    table: Table,
    predictor: Predictor,
    by: Scoring,
    missing: str,
    progress: Progress | None,
    keep: tuple[str, ...],
    site: str | None,
    found: Pass,
) -> Iterator[tuple[Batch, Bools, Floats]]:
    """Yield rows of a file in batches, with their sets (n, L) and their thresholds.

    The frame of a batch has the columns to keep and those of the groups. `found` tells how many
    rows were handled, from the top; there are none if the score or the file does not allow it.
    """
    if not (table.parquet and table.rows and by.labels and type(predictor.score) is scores.THR):
        return
    L = len(by.labels)
    size = rows_at_a_time(len({*by.columns, *predictor.groups.columns, *keep}))
    rows = _rows_in_work(L)
    for start in range(0, table.rows, rows):
        part = _Part(table, start, rows, size)
        trial = replace(found, seen=found.seen.copy(), said=[*found.said])
        try:
            made = list(scan(part, predictor.groups, (), {}, missing, None, keep, site, trial))
            bits = _bits(part, predictor, by.columns, made, progress)
        except GCFCPError:
            return
        if bits is None:
            return
        found.rows, found.seen, found.said = trial.rows, trial.seen, trial.said
        for first, batch in zip(range(0, part.count, size), made, strict=True):
            packed = np.ascontiguousarray(bits[:, first : first + size].T)
            sets = np.unpackbits(packed, axis=1, count=L).view(np.bool_)
            yield batch, sets, predictor.thresholds(batch.membership)


def _rows_in_work(labels: int) -> int:
    """How many rows are in work at a time: a power of two, as row groups often are."""
    return min(_MOST_ROWS, 1 << (max(1, _MOST_BITS // labels).bit_length() - 1))


def _bits(
    part: _Part,
    predictor: Predictor,
    columns: tuple[str, ...],
    made: list[Batch],
    progress: Progress | None,
) -> NDArray[np.uint8] | None:
    """Which labels are in the sets of the rows, as bits (L / 8, n); None if a row is in doubt.

    The first label is the highest bit of the first byte, as for `np.unpackbits`. Warnings are left
    to whoever uses the thresholds.
    """
    n, L = part.count, len(columns)
    kind = _kind(part.table.read(columns, 0, 0))
    if kind is None or scores.sum_margin(L, kind) > scores.SUM_TOLERANCE / 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        thresholds = np.concatenate([predictor.thresholds(batch.membership) for batch in made])
    least = scores.round_up(predictor.score.least(thresholds), kind)
    bits = np.zeros((-(-L // 8), n), dtype=np.uint8)
    sums, lowest = np.zeros(n), np.inf
    step = max(1, _VALUES // n)
    for first in range(0, L, step):
        for label, column in enumerate(part.read(columns[first : first + step]), first):
            p = column.to_numpy()  # A missing value is NaN, and so is the sum of its row.
            bits[label // 8] |= (p >= least).view(np.uint8) * np.uint8(128 >> label % 8)
            sums += p
            lowest = min(lowest, float(p.min()))
        if progress is not None:
            progress(part.start + n * min(first + step, L) // L, part.rows)
    sure = scores.surely_probabilities(sums, lowest, scores.sum_margin(L, kind))
    return bits if sure else None


def _kind(frame: pl.DataFrame) -> np.dtype[Any] | None:
    """The type of all columns, float32 or float64; None if one of them has another."""
    import polars as pl

    if set(frame.dtypes) == {pl.Float32}:
        return np.dtype(np.float32)
    return np.dtype(np.float64) if set(frame.dtypes) == {pl.Float64} else None
