"""Groups that have names only, read from plain columns: arrays and lists, with NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.arrays import Bools
from gcfcp.errors import GCFCPError
from gcfcp.groups.frames import comes_from, one_value_for_each_row
from gcfcp.groups.predicates import first_line

# What a column that holds neither Booleans nor numbers is called, by the kind of its NumPy type.
_TYPES = {"U": "String", "S": "Binary", "M": "Datetime", "m": "Duration"}


def is_plain(data: Any, names: Sequence[str]) -> bool:
    """Whether `data` is a mapping, and no named column in it is a series of pandas or polars."""
    return isinstance(data, Mapping) and not any(
        comes_from(library, data[name], "Series")
        for name in names
        if name in data
        for library in ("pandas", "polars")
    )


def read(data: Mapping[str, Any], names: Sequence[str]) -> tuple[int, list[tuple[Bools, int]]]:
    """The number of rows and, for each name, who belongs and how many values are missing."""
    columns = [_array(name, data[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(columns[0]):
            raise GCFCPError(
                f"cannot read the columns: {name!r} has {len(column)} rows, "
                f"{names[0]!r} has {len(columns[0])}"
            )
    members = [_members(name, column) for name, column in zip(names, columns, strict=True)]
    return len(columns[0]), members


def _array(name: str, values: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise GCFCPError(f"cannot read the columns: {first_line(error)}") from None
    return one_value_for_each_row(name, array)


def _members(name: str, column: NDArray[Any]) -> tuple[Bools, int]:
    """Who belongs by a column of true/false or 0/1, and how many of its values are missing."""
    missing = _is_missing(column)
    known = column[~missing]
    if column.dtype == object:
        # What remains may be Booleans or numbers.
        known = _array(name, [float(v) if isinstance(v, Decimal) else v for v in known])
    if missing.all() and column.dtype == object:
        raise GCFCPError(f"group {name!r}: its column is Null, not Boolean")
    if known.dtype.kind not in "biuf":
        kind = _TYPES.get(known.dtype.kind, "Object")
        raise GCFCPError(f"group {name!r}: its column is {kind}, not Boolean")
    bad = known[(known != 0) & (known != 1)]
    if len(bad):
        raise GCFCPError(f"group {name!r}: value {bad[0].item()} is neither true/false nor 0/1")
    members = np.zeros(len(column), dtype=np.bool_)
    members[~missing] = known
    return members, int(missing.sum())


def _is_missing(column: NDArray[Any]) -> Bools:
    """Where a value is None or NaN."""
    if column.dtype.kind == "f":
        nan: Bools = np.isnan(column)
        return nan
    if column.dtype != object:
        return np.zeros(len(column), dtype=np.bool_)
    flags = [
        value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))
        for value in column
    ]
    return np.array(flags, dtype=np.bool_)
