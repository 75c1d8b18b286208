"""One group for each level of a column, such as every region.

The levels are part of the family, which is public and must be the same at every site. So they are
stated, or taken from one frame whose levels may be known to everybody; the family is then given to
the other sites, for example as a groups file (`Groups.to_toml`). A level that occurs at a site and
is not in the family belongs to none of its groups.

The condition of a level is an equation, such as `"region" = 'north'`. The name of its group is that
of the column and of the level: `region north`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from gcfcp import checks
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups.frames import select, table_of

if TYPE_CHECKING:
    from gcfcp.groups.family import Groups

Level = str | bool | int | float

_MISSING = ("NAType", "NaTType")  # What pandas has besides None and NaN; it is not imported here.

MAX_LEVELS = 200  # A column of a frame with more levels is rather a number or a key.


@dataclass(frozen=True)
class Levels:
    """Groups of the levels of a column that are not known yet: `Groups.from_column("region")`.

    `of(frame)` lists the levels that a frame has, and `fill(frame)` makes the family of them. Where
    sites have different levels, one of them collects the lists and makes the family of all:
    `Groups.from_column("region", values)`.
    """

    column: str

    def of(self, frame: Any) -> tuple[Level, ...]:
        """The levels of the column in a frame, sorted, without missing values.

        They are values of the data: whoever passes them on makes them public.
        """
        return levels_of(self.column, frame)

    def fill(self, frame: Any) -> Groups:
        """The family with one group for each level that the frame has."""
        from gcfcp.groups.family import Groups

        return Groups.from_column(self.column, frame=frame)

    def __getattr__(self, name: str) -> Any:
        from gcfcp.groups.family import Groups

        if not name.startswith("_") and hasattr(Groups, name):
            raise GCFCPError(
                f"the levels of column {self.column!r} are not known yet: agree on them with all "
                f"sites and give them (values=[...]), or take those of a frame (.fill(frame))"
            )
        raise AttributeError(f"'Levels' object has no attribute {name!r}")


def conditions_of(column: Any, values: Any) -> dict[str, str]:
    """The name and the condition of the group of each value of a column."""
    if problem := checks.group_name_problem(column):
        raise GCFCPError(f"column {column!a:.60} {problem}")
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise GCFCPError(
            f"values={values!r:.60} is not a list: give one such as ['north', 'south']"
        )
    levels = [_level(column, value) for value in values]
    if not levels:
        raise GCFCPError(f"column {column!r} has no values: give at least one level")
    kinds = {type(level) for level in levels}
    if len(kinds) > 1 and kinds != {int, float}:
        words = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise GCFCPError(
            f"the values of column {column!r} are of different types ({words}): a column has one"
        )
    quoted = '"' + column.replace('"', '""') + '"'
    found: dict[str, str] = {}
    looks: dict[str, Level] = {}
    for place, level in enumerate(levels):
        name = f"{column} {_shown(level)}"
        other = looks.setdefault(checks.look(name), level)
        if level in levels[:place]:
            raise GCFCPError(f"value {level!r:.60} of column {column!r} is given twice")
        if other != level:
            raise GCFCPError(
                f"values {other!r:.60} and {level!r:.60} of column {column!r} differ only in "
                "blanks or in how Unicode writes them: make them one value in the data first"
            )
        found[name] = f"{quoted} = {_literal(level)}"
    return found


def levels_of(column: str, frame: Any) -> tuple[Level, ...]:
    """The levels of a column of a frame, sorted, without missing values."""
    table = table_of(frame)
    present = [str(c) for c in getattr(table, "columns", table)]
    if column not in present:
        raise GCFCPError(
            f"there is no column {column!r}; the data have {checks.listed(present) or 'no columns'}"
        )
    found, _ = select(table, (column,))
    values = found[column].drop_nulls().unique()
    if values.dtype.is_float():
        values = values.drop_nans()
    if len(values) > MAX_LEVELS:
        raise GCFCPError(
            f"column {column!r} has {len(values):,} different values, and at most {MAX_LEVELS} are "
            "taken from a frame: give those that are meant (values=[...]), or conditions such as "
            '"age >= 65"'
        )
    levels = sorted(_level(column, value) for value in values.to_list())
    _warn_of_alike(column, [level for level in levels if isinstance(level, str)])
    return tuple(levels)


def _warn_of_alike(column: str, levels: Sequence[str]) -> None:
    """Warn of two levels that differ only in capitals and blanks, which are probably one."""
    first: dict[str, str] = {}
    for level in levels:
        other = first.setdefault("".join(level.casefold().split()), level)
        if other != level:
            warnings.warn(
                f"levels {other!r:.60} and {level!r:.60} of column {column!r} differ only in "
                "capitals or blanks, and become two groups: make them one value in the data, or "
                "list the values that are meant (values=[...])",
                GCFCPWarning,
                stacklevel=4,
            )
            return


def _level(column: str, value: Any) -> Level:
    """The value as plain Python, or an error if no equation can be written with it."""
    plain = value.item() if isinstance(value, np.generic) else value
    nan = isinstance(plain, float) and math.isnan(plain)
    if plain is None or nan or type(plain).__name__ in _MISSING:
        raise GCFCPError(
            f"a missing value is no level of column {column!r}: leave it out, or write a condition "
            "with IS NULL"
        )
    if isinstance(plain, str) and not plain.strip():
        raise GCFCPError(
            f"the text {plain!r:.20} is no level of column {column!r}, because nobody sees it: "
            "list the values that are meant (values=[...])"
        )
    if isinstance(plain, date):
        raise GCFCPError(
            f"the date {plain} is no level of column {column!r}: write a condition, such as "
            f"\"{column}\" >= DATE '{plain:%Y-%m-%d}'"
        )
    if not isinstance(plain, str | bool | int | float) or plain in (math.inf, -math.inf):
        raise GCFCPError(
            f"value {plain!r:.60} of column {column!r} is neither a text, a number nor true or "
            "false: write a condition for it"
        )
    return plain


def _shown(level: Level) -> str:
    """The level as part of a name."""
    return str(level).lower() if isinstance(level, bool) else str(level)


def _literal(level: Level) -> str:
    """The level in SQL."""
    if isinstance(level, bool):
        return str(level).upper()
    return "'" + level.replace("'", "''") + "'" if isinstance(level, str) else repr(level)
