"""Who belongs to a group: its condition, or its column, evaluated in a frame of polars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gcfcp.errors import GCFCPError
from gcfcp.groups.predicates import first_line

if TYPE_CHECKING:
    import polars as pl


def evaluate(frame: pl.DataFrame, name: str, expr: pl.Expr, condition: str | None) -> pl.Series:
    """The membership of one group as a Boolean column, in which null means a missing value.

    condition: The text of the condition, and None for a group that is a column of the frame.
    """
    import polars as pl

    try:
        # A constant such as TRUE gives one value, which NumPy later repeats for all rows.
        column = frame.select(expr.alias("member")).to_series()
    except pl.exceptions.PolarsError as error:
        raise GCFCPError(f"group {name!r}: {first_line(error)}{_texts(frame, expr)}") from None
    except (Exception, pl.exceptions.PanicException) as error:
        # A panic of polars derives from BaseException, and is a defect of polars. polars has
        # then printed lines of its own.
        raise GCFCPError(
            f"group {name!r}: polars cannot evaluate {condition or name!r:.100} "
            f"({first_line(error)}): write the condition in another way"
        ) from None
    if column.dtype == pl.Boolean:
        return column
    if condition is None and column.dtype.is_numeric():
        bad = column.filter((column != 0) & (column != 1))
        if bad.is_empty():
            return column.cast(pl.Boolean)
        raise GCFCPError(f"group {name!r}: value {bad[0]} is neither true/false nor 0/1")
    what = "its column" if condition is None else "its condition"
    raise GCFCPError(f"group {name!r}: {what} is {column.dtype}, not Boolean")


def _texts(frame: pl.DataFrame, expr: pl.Expr) -> str:
    """Which columns of a condition hold texts, with the first that is no number; "" if none do."""
    import polars as pl

    found = []
    for column in dict.fromkeys(expr.meta.root_names()):
        values = frame[column]
        if values.dtype == pl.String:
            odd = values.filter(values.cast(pl.Float64, strict=False).is_null()).drop_nulls()
            found += [f"column {column!r} holds the text {odd[0]!r:.60}"] if len(odd) else []
    return f"; {' and '.join(found)}" if found else ""
