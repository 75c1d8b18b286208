"""The counts of a site on a grid by one GROUP BY, so that Python sees each kind of row only once.

Spark finds the score of every record and its cell on the grid, and counts the rows that have the
same cell and the same values in all columns that conditions use. Of these rows, each with its
count, Python makes summaries as it does of records.

Guarantee: the summary is that of the file, to the last bit, as if every row had gone to Python.

- Conditions are still evaluated by polars. They look at one row only, so equal rows belong to the
  same groups. Equal means equal to polars: `GROUP BY` takes -0.0 for 0.0, and therefore the sign of
  a zero is told beside it. It takes all NaN for one, and to a condition they are null.
- A score is a difference of doubles, and IEEE 754 leaves no choice for its bits. All numbers are
  made doubles before, here as there.
- A cell is the number of edges below a score. It is found by comparisons with these edges.

What is not certain goes the other way, where every row is sent to Python: scores of other kinds,
residuals of a shape, and columns of types that are not listed here. So does what a message is
needed for, because it has to name rows, partitions and batches: a value that is missing or that no
score can be made of, a condition that fails or is left open, a record in a group that was declared
absent. So does a text that is read as a date, because polars takes the format from the first text
that it sees, and what Spark cannot plan, as with some of its settings. A summary is then
made of all rows anew, and nothing is kept of the counts.

Cost: an aggregation in Spark, and Python for each count. Spark computes the first `LOOK` rows of
the data frame beforehand, for which it may read as many rows of each partition. They show whether
the way pays: it does not where hardly two rows are alike, nor with very many cells. The data frame
is computed twice if something is in the way that these rows do not show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sql

from gcfcp.grid import Grid
from gcfcp.scores import CQR, AbsoluteResidual
from gcfcp.spark.frames import Frame, Partition
from gcfcp.spark.tasks import Reply, replies_of
from gcfcp.summary import Making
from gcfcp.tables import Pass, Scoring, summarize_counted

LOOK = 10_000
"""So many of the first rows are looked at."""
FEW = LOOK // 2
"""If conditions see more kinds of rows among them, hardly two rows are alike."""
MOST_COUNTS = 2**17
"""More counts than these pay with hundreds of millions of rows only."""

_FLOATS = {"float", "double"}
_NUMBERS = _FLOATS | {"tinyint", "smallint", "int", "bigint"}
_TYPES = _NUMBERS | {"boolean", "string", "date"}  # A collation would stand behind "string".
_READS_DATES = re.compile(r"\b(date|strptime)\s*\(", re.IGNORECASE)


def grouped(
    frame: Frame, how: Scoring, part: Making, columns: tuple[str, ...], missing: str
) -> list[Reply] | None:
    """The replies of a GROUP BY, or None if every row has to be sent to Python.

    - `part`: How the summary of a part of the rows is made.
    - `columns`: The columns that scores and conditions need.
    """
    if part.grid is None or part.shape is not None:
        return None
    chosen, names = frame.selected(columns)
    plain = dict(zip(names, chosen.columns, strict=True))
    types = dict(chosen.dtypes)
    score = _score(how, {name: sql.col(c) for name, c in plain.items() if types[c] in _NUMBERS})
    keys = [plain[name] for name in part.groups.columns]
    if score is None or not all(_can_be_grouped(types[key]) for key in keys):
        return None
    if any(_READS_DATES.search(text or "") for text in part.groups.predicates or ()):
        return None
    scored = chosen.select(*keys, score.alias("score"))
    cell, number = (_new(name, part.groups.columns) for name in ("cell", "number"))

    def counted(rows: Any) -> list[Reply]:
        found = _counted(rows, keys, types)
        return replies_of(found, (*part.groups.columns, cell, number), frame.name, work)

    def work(rows: Partition, found: Pass, _: int) -> list[bytes]:
        summary = summarize_counted(rows, cell, number, part, found, missing)
        return [b"" if summary is None else summary.to_bytes()]

    any_cell = sql.when(sql.col("score").isNotNull(), 0)
    try:
        first = counted(scored.limit(LOOK).withColumn("cell", any_cell))
        kinds = sum(reply.found.rows.read for reply in first)
        if not _good(first) or not 0 < kinds <= min(FEW, MOST_COUNTS // len(part.grid)):
            return None
        replies = counted(_placed(scored, part.grid))
    except AnalysisException:  # With some settings Spark cannot plan it, which it says at once.
        return None
    return replies if _good(replies) else None


def _can_be_grouped(kind: str) -> bool:
    """Whether values of a type that are equal to Spark are equal to polars, signs of zero apart."""
    return kind in _TYPES or kind.startswith("decimal(")


def _new(name: str, columns: tuple[str, ...]) -> str:
    """The name of a new column, with an end that makes it differ from all others."""
    return name if name not in columns else _new(f"{name}_", columns)


def _good(replies: Sequence[Reply]) -> bool:
    """Whether there is nothing that a message has to be about."""
    return not any(r.failed or r.found.first is not None or r.found.said for r in replies)


# --- in Spark ------------------------------------------------------------------------------------


def _score(how: Scoring, numbers: dict[str, Any]) -> Any:
    """The score of a record as a column, null where there is none; None for a score of other kinds.

    - `numbers`: The columns that hold numbers.
    """
    needed = how.columns if how.kind == "column" else ("y", *how.columns)
    if not set(needed) <= numbers.keys():
        return None
    values = [numbers[name].cast("double") for name in needed]
    if how.score == "column":
        [score] = values
        return sql.when((score > -np.inf) & (score <= np.inf), score)  # NaN is above +inf.
    finite = [sql.abs(value) < np.inf for value in values]
    if type(how.score) is AbsoluteResidual:
        y, prediction = values
        return sql.when(finite[0] & finite[1], sql.abs(y - prediction))
    if type(how.score) is CQR:
        y, lo, hi = values
        return sql.when(finite[0] & finite[1] & finite[2], sql.greatest(lo - y, y - hi))
    return None


def _placed(scored: Any, grid: Grid) -> Any:
    """The rows with the cell of their scores, which is the number of edges below the score.

    It is a binary search. Its steps are columns, each of which finds one more bit of the cell with
    the edges that lie between those of the steps before.
    """
    steps = len(grid).bit_length()
    padded = np.full(2**steps - 1, np.inf)
    padded[: len(grid)] = grid.upper_edges
    placed = scored.withColumn("cell", sql.lit(0))
    for half in [2**i for i in reversed(range(steps))]:
        text = ",".join(map(str, padded[half - 1 :: 2 * half].tolist()))
        edges = sql.split(sql.lit(text), ",").cast("array<double>")  # Spark does this only once.
        below = sql.get(edges, sql.col("cell")) < sql.col("score")
        placed = placed.withColumn("cell", sql.col("cell") * 2 + sql.when(below, 1).otherwise(0))
    return placed.withColumn("cell", sql.when(sql.col("score").isNotNull(), sql.col("cell")))


def _counted(placed: Any, keys: Sequence[str], types: dict[str, str]) -> Any:
    """How many rows have the same keys and the same cell."""
    floats = [key for key in keys if types[key] in _FLOATS]
    signs = [_is_minus_zero(key).alias(f"{key}_sign") for key in floats]
    counts = placed.groupBy(*keys, *signs, "cell").agg(sql.count(sql.lit(1)).alias("number"))
    signed = [
        sql.when(sql.col(f"{key}_sign"), sql.lit(-0.0).cast(types[key]))
        .otherwise(sql.col(key))
        .alias(key)
        if key in floats
        else sql.col(key)
        for key in keys
    ]
    return counts.select(*signed, "cell", "number")


def _is_minus_zero(key: str) -> Any:
    """Whether a float is -0.0, which is found by 1 / -0.0 = -inf."""
    value = sql.col(key)
    return (value == 0) & (sql.pow(value, sql.lit(-1.0)) < 0)
