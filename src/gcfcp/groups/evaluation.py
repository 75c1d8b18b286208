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
        why = _misfit(frame, expr, condition or name)
        raise GCFCPError(f"group {name!r}: {why} (polars says: {first_line(error)})") from None
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


def _misfit(frame: pl.DataFrame, expr: pl.Expr, condition: str) -> str:
    """Why a condition cannot be evaluated: what its columns hold, and what it may ask of them."""
    columns = dict.fromkeys(expr.meta.root_names())
    if not columns:
        return f"{condition!r:.100} compares what cannot be compared: correct it"
    held = {column: _held(frame[column]) for column in columns}
    what = " and ".join(f"column {column!r}, which holds {one[0]}" for column, one in held.items())
    remedies = dict.fromkeys(one[1] for one in held.values())
    return f"{condition!r:.100} does not fit {what}: {', and '.join(remedies)}"


def _held(values: pl.Series) -> tuple[str, str]:
    """What a column holds, and how a condition can ask about it."""
    import polars as pl

    if values.dtype == pl.String:
        odd = values.filter(values.cast(pl.Float64, strict=False).is_null()).drop_nulls()
        held = f"the text {odd[0]!r:.60}" if len(odd) else "numbers that are stored as text"
        return held, "compare it with text in quotes, or correct it if it has to hold numbers"
    if values.dtype.is_numeric():
        return "numbers", "compare it with numbers without quotes"
    if values.dtype.is_temporal():
        return "dates or times", "compare it with one such as DATE '2026-11-17'"
    return f"{values.dtype}", "ask what this type allows"
