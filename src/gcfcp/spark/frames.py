"""A Spark data frame, and one partition of it, as `gcfcp.tables` reads tables.

A partition comes as a stream of Arrow batches, which Spark makes of 10,000 rows each. They are put
together to the batches of a file, because what is done once for each batch would otherwise take
longer than what is done for each row. Memory holds one such batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs
from gcfcp.tables import Columns, Source, rows_at_a_time

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

ROW = "\x00row"
"""The name of a column with the places of rows in their batch. No real column has a zero byte."""


class Frame(Columns):
    """The columns of a data frame, of which no row is read."""

    def __init__(self, df: Any, name: str) -> None:
        needs("polars", "gcfcp.spark", "spark")
        if not callable(getattr(df, "mapInArrow", None)):
            raise GCFCPError(
                f"df is of type {type(df).__name__}, and not a Spark data frame: give one, or use "
                "gcfcp.summarize and gcfcp.tables for other data"
            )
        self.df = df
        self.name = name
        self.columns = tuple(df.columns)

    def selected(self, columns: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """A data frame of these columns alone, so that no others are sent, and their names.

        In the data frame they are called c0, c1 and so on, and a `Partition` gives them their names
        again: `mapInArrow` takes a dot in a name for a field of a struct.
        """
        wanted = tuple(dict.fromkeys(columns)) or self.columns[:1]
        self.require(wanted)
        counts = Counter(column.lower() for column in self.columns)
        for column in wanted:
            if counts[column.lower()] > 1:
                raise GCFCPError(
                    f"{self.name} has {counts[column.lower()]} columns {column!r}, in capitals or "
                    "not, which Spark does not tell apart: rename all but one of them"
                )
        plain = (functions.col(_quoted(c)).alias(f"c{i}") for i, c in enumerate(wanted))
        return self.df.select(*plain), wanted

    def renamed(self) -> Any:
        """The data frame with all columns, called c0, c1 and so on."""
        return self.df.toDF(*(f"c{i}" for i in range(len(self.columns))))


class Partition(Source):
    """The rows of one partition, in a task.

    - `columns`: The names of the columns, in their order in the stream.
    """

    def __init__(self, stream: Iterable[pa.RecordBatch], name: str, columns: tuple[str, ...]):
        self._stream = stream
        self.name = name
        self.columns = columns
        self.rows = None
        self.current: pa.Table | None = None  # What the frame that was last given is made of.

    def batches(self, columns: tuple[str, ...], types: dict[str, Any]) -> Iterator[pl.DataFrame]:
        """See `Source`.

        types: Polars types, which the columns of a data frame have without being told.
        """
        import polars as pl

        named = [column for column in columns if column != ROW]
        for plain in _gathered(self._stream, rows_at_a_time(len(self.columns))):
            self.current = table = plain.rename_columns(list(self.columns))
            found: Any = pl.from_arrow(table.select(named))
            if ROW in columns:
                found = found.with_columns(pl.int_range(pl.len()).alias(ROW))
            yield found


def _gathered(stream: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """The batches of a stream, put together to about `size` rows."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for batch in stream:
        if batch.num_rows:
            held.append(batch)
        if sum(b.num_rows for b in held) >= size:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _quoted(column: str) -> str:
    """The name of a column as Spark reads it literally; a dot would ask for a field."""
    return f"`{column.replace('`', '``')}`"
