"""The columns that conditions need, read from any kind of data frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.errors import GCFCPError
from gcfcp.groups.predicates import first_line
from gcfcp.libraries import needs

if TYPE_CHECKING:
    import polars as pl


def table_of(data: Any) -> Any:
    """The data as an object whose columns are known: a mapping, or a pandas or polars frame."""
    if comes_from("polars", data, "LazyFrame"):
        raise GCFCPError("membership of a LazyFrame is not known yet: call .collect() first")
    if isinstance(data, Mapping) or any(
        comes_from(library, data, "DataFrame") for library in ("pandas", "polars")
    ):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        needs("polars", "the membership of a data frame", "cli")
        import polars as pl

        return _read(pl.DataFrame, data)
    raise GCFCPError(
        f"membership needs a data frame or a mapping of columns, not {type(data).__name__}; "
        "a matrix is read by Groups.check"
    )


def select(table: Any, columns: tuple[str, ...]) -> tuple[pl.DataFrame, int]:
    """The named columns as a polars frame, and the number of rows, even if no column is named."""
    needs("polars", "the membership of a data frame", "cli")
    import polars as pl

    names = list(columns)
    if isinstance(table, pl.DataFrame):
        return table.select(names), table.height
    if not isinstance(table, Mapping):
        return (_read(pl.from_pandas, table[names]) if names else pl.DataFrame()), len(table)
    n = rows_of(table)
    frame = _read(pl.DataFrame, {name: _column(name, table[name]) for name in names})
    return frame, frame.height if names else n


def rows_of(table: Any) -> int:
    """The number of rows, where no column needs to be read."""
    if not isinstance(table, Mapping):
        return len(table)
    if not table:
        raise GCFCPError("the data have no columns, so the number of rows is unknown")
    return len(next(iter(table.values())))


def _column(name: str, values: Any) -> Any:
    """The values of one column of a mapping in a form that polars reads."""
    import polars as pl

    if comes_from("pandas", values, "Series"):
        return _read(pl.from_pandas, values)
    if isinstance(values, pl.Series | list | tuple):
        return values
    return one_value_for_each_row(name, np.asarray(values))


def one_value_for_each_row(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """The column, or an error where it is a single value or a matrix."""
    if column.ndim != 1:
        raise GCFCPError(
            f"column {name!r} has shape {column.shape}, expected one value for each row"
        )
    return column


def _read(reader: Callable[[Any], pl.DataFrame], data: Any) -> pl.DataFrame:
    """What a reader of polars makes of the data, or a GCFCPError in one line."""
    import polars as pl

    try:
        return reader(data)
    except (pl.exceptions.PolarsError, TypeError, ValueError, ImportError) as error:
        raise GCFCPError(f"cannot read the columns: {first_line(error)}") from None


def comes_from(library: str, data: Any, kind: str) -> bool:
    """Whether the data are of this class of a library.

    The name of the class decides, so that no library is imported for it.
    """
    classes = type(data).__mro__
    return any(c.__name__ == kind and c.__module__.split(".")[0] == library for c in classes)
