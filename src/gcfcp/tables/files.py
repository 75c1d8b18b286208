"""Tables on disk: CSV or Parquet, read in batches, so that they may be larger than memory."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    import polars as pl

_NULLS = ["NA", "N/A", "null", "None"]  # beside the empty field
_SMALL_FILE = 100 * 2**20  # bytes: types are inferred from all of a smaller CSV file
_MAGIC = b"PAR1"
_END = "\x00end"  # a column of no table


@dataclass(frozen=True)
class Table:
    """A CSV or Parquet file whose columns are known and whose rows are still on disk."""

    path: str
    name: str  # for people
    parquet: bool
    columns: tuple[str, ...]
    rows: int | None  # known for Parquet

    def batches(self, columns: tuple[str, ...], types: dict[str, Any]) -> Iterator[pl.DataFrame]:
        """The named columns, in order, some rows at a time. `types`: of columns, where CSV text
        could be taken for something else."""
        import polars as pl

        self.require(columns)
        size = max(1024, min(2**18, 2**23 // max(1, len(columns))))
        # A row that marks the end: where a signal cancels polars' query, its batches just stop,
        # and a part of the table must never pass for the whole.
        end = pl.LazyFrame({_END: [True]})
        finished = False
        with _reading(self.name):
            rows = _scan(self.path, self.parquet, types).select(*columns, pl.lit(None).alias(_END))
            marked = pl.concat([rows, end], how="diagonal_relaxed")
            for frame in marked.collect_batches(chunk_size=size, engine="streaming", lazy=True):
                finished = frame.height > 0 and frame[_END][-1] is not None
                found = frame.head(frame.height - finished).drop(_END)
                if found.height:
                    yield found
        if not finished:
            raise GCFCPError(f"{self.name} was not read to its end: something interrupted it")

    def require(self, columns: tuple[str, ...]) -> None:
        missing = [c for c in columns if c not in self.columns]
        if missing:
            raise GCFCPError(
                f"{self.name} has no column {listed(missing)}; it has {listed(self.columns)}"
            )


@contextmanager
def open_table(path: str | PathLike[str]) -> Iterator[Table]:
    """Open a table; "-" is standard input, kept in a temporary file while it is used."""
    if fspath(path) == "-":
        with tempfile.NamedTemporaryFile(prefix="gcfcp-") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
            yield _table(file.name, "standard input")
    else:
        yield _table(fspath(path), fspath(path))


def _table(path: str, name: str) -> Table:
    import polars as pl

    try:
        if os.path.isdir(path):
            raise GCFCPError(f"{name} is a directory: give a CSV or Parquet file")
        with open(path, "rb") as file:
            parquet = file.read(4) == _MAGIC
    except OSError as error:
        raise GCFCPError(f"cannot read {name}: {error.strerror}") from None
    with _reading(name):
        lazy = _scan(path, parquet, {})
        columns = tuple(lazy.collect_schema().names())
        rows = int(lazy.select(pl.len()).collect().item()) if parquet else None
    return Table(path, name, parquet, columns, rows)


def _scan(path: str, parquet: bool, types: dict[str, Any]) -> pl.LazyFrame:
    import polars as pl

    if parquet:
        return pl.scan_parquet(path, glob=False)
    small = os.path.getsize(path) <= _SMALL_FILE
    return pl.scan_csv(
        path,
        glob=False,
        null_values=_NULLS,
        schema_overrides=types,
        infer_schema_length=None if small else 100_000,
    )


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Whatever polars finds wrong with a file, in one line."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        what = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise GCFCPError(f"cannot read {name} as a table: {what:.300}") from None


def listed(names: Any, limit: int = 12) -> str:
    some = [f"{n!r:.60}" for n in names]
    return ", ".join(some[:limit]) + (f", ... ({len(some)} in all)" if len(some) > limit else "")
