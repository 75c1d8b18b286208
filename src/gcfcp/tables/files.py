"""CSV and Parquet files, read in batches, so that a table may be larger than memory."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from gcfcp import checks
from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs

if TYPE_CHECKING:
    import polars as pl

_NULLS = ["NA", "N/A", "null", "None"]  # A CSV field with one of these texts, or none, is missing.
_SMALL_FILE = 100 * 2**20  # In bytes. All rows of a CSV file up to this size decide its types.
_DECISIVE_ROWS = 100_000  # So many rows decide the types of a larger CSV file.
_PART = 2**22  # So many bytes of a file are searched at a time.
_PARQUET_START = b"PAR1"  # Every Parquet file starts with these four bytes.
_END = "\x00end"  # The name of a helper column. No real column has a zero byte in its name.


@dataclass(frozen=True)
class _Stamp:
    """What tells whether a file is still the one that was opened, and unchanged."""

    device: int
    inode: int
    size: int  # In bytes.
    changed: int  # When its content last changed, in nanoseconds.

    @classmethod
    def of(cls, path: str) -> _Stamp:
        """The stamp of the file that has this path now."""
        found = os.stat(path)
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Columns:
    """Something that has columns, and a name by which messages call it."""

    name: str
    columns: tuple[str, ...]

    def require(
        self,
        columns: tuple[str, ...],
        hint: Callable[[str, Iterable[str]], str] | None = None,
    ) -> None:
        """Raise a GCFCPError that names the missing columns if there are not all of these.

        hint: What else to say of a missing column, given the columns that there are.
        """
        missing = [c for c in columns if c not in self.columns]
        if missing:
            more = "" if hint is None else hint(missing[0], self.columns)
            raise GCFCPError(
                f"{self.name} has no column {listed(missing)}; it has {listed(self.columns)}{more}"
            )


class Source(Columns):
    """Where the rows of a pass come from: a `Table`, or a part of something larger."""

    rows: int | None  # How many rows it has, if that is known beforehand.

    def batches(self, columns: tuple[str, ...], types: dict[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield the named columns, in this order, `rows_at_a_time` of them at a time.

        types: Polars types by column name, where they cannot be told from the rows.
        """
        raise NotImplementedError


def rows_at_a_time(columns: int) -> int:
    """How many rows of so many columns are read at a time: up to 262,144, of 8 million values."""
    return max(1024, min(2**18, 2**23 // max(1, columns)))


@dataclass(frozen=True)
class Table(Source):
    """A CSV or Parquet file whose columns are known and whose rows are still on disk."""

    path: str
    name: str  # What messages call the table: its path, or "standard input".
    parquet: bool  # True for Parquet, False for CSV.
    columns: tuple[str, ...]
    rows: int | None  # The number of rows, which a CSV file does not tell before it is read.
    stamp: _Stamp  # What the file was like when it was opened.
    separator: str = ","  # What stands between the fields of a CSV file.
    start: int = 0  # How many rows at the top of a Parquet file `batches` leaves out.

    def batches(self, columns: tuple[str, ...], types: dict[str, Any]) -> Iterator[pl.DataFrame]:
        """See `Source`.

        A file that another process changes, cuts off or replaces meanwhile is an error. Some rows
        may have been given out by then, and must not be used.

        types: Polars types by column name, for columns whose type polars would guess wrongly from
        the text of a CSV file, such as labels that look like numbers.
        """
        import polars as pl

        self.require(columns)
        size = rows_at_a_time(len(columns))
        # One more row marks the end. If a signal cancels polars' query, the batches just stop
        # without an error, and a part of the table must never be taken for the whole.
        end = pl.LazyFrame({_END: [True]})
        finished = False
        with _unchanged(self), _reading(self.name):
            if not self.parquet:
                types = _types(self.path, columns, types, self.separator)
            rows = _scan(self.path, self.parquet, types, self.separator).select(
                *columns, pl.lit(None).alias(_END)
            )
            if self.start:
                rows = rows.slice(self.start)
            marked = pl.concat([rows, end], how="diagonal_relaxed")
            for frame in marked.collect_batches(chunk_size=size, engine="streaming", lazy=True):
                finished = frame.height > 0 and frame[_END][-1] is not None
                found = frame.head(frame.height - finished).drop(_END)
                if found.height:
                    yield found
        if not finished:
            raise self._interrupted()

    def read(self, columns: tuple[str, ...], start: int, count: int) -> pl.DataFrame:
        """The named columns of `count` rows of a Parquet file, all at once.

        A file that another process has changed meanwhile is an error.
        """
        with _unchanged(self), _reading(self.name):
            rows = _scan(self.path, self.parquet, {}, self.separator).select(*columns)
            frame = rows.slice(start, count).collect()
        if frame.height != count:
            raise self._interrupted()
        return frame

    def _interrupted(self) -> GCFCPError:
        """The error for a part of the table that must not be taken for the whole."""
        return GCFCPError(
            f"{self.name} was not read to its end, because something interrupted the reading: "
            "run the command again"
        )


@contextmanager
def open_table(path: str | PathLike[str], separator: str = ",") -> Iterator[Table]:
    """Open a CSV or Parquet file; which of the two it is follows from its first four bytes.

    path: "-" stands for standard input, which is copied to a temporary file while it is used.
    separator: The character between the fields of a CSV file: "," or ";", or "\\t" for a tab.
    """
    separator = _separator(separator)
    if fspath(path) == "-":
        with tempfile.NamedTemporaryFile(prefix="gcfcp-") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
            yield _table(file.name, "standard input", separator)
    else:
        yield _table(fspath(path), fspath(path), separator)


def _separator(given: str) -> str:
    """The one character that stands between fields; a tab may be written in words."""
    found = {"tab": "\t", "\\t": "\t"}.get(given, given)
    if len(found) != 1 or found in '\r\n"' or not found.isascii():
        raise GCFCPError(f"separator={given!r:.20} is not one character: give , or ; or tab")
    return found


def _table(path: str, name: str, separator: str) -> Table:
    """The columns of a file and, for Parquet, the number of its rows; no rows are read."""
    needs("polars", "tables", "cli")
    import polars as pl

    try:
        if os.path.isdir(path):
            raise GCFCPError(f"{name} is a directory: give a CSV or Parquet file")
        stamp = _Stamp.of(path)
        with open(path, "rb") as file:
            start = file.read(2048)
        parquet = start[:4] == _PARQUET_START
    except OSError as error:
        raise GCFCPError(f"cannot read {name}: {error.strerror}") from None
    _refuse_other_formats(name, start)
    with _reading(name):
        lazy = _scan(path, parquet, {}, separator)
        columns = tuple(lazy.collect_schema().names())
        rows = int(lazy.select(pl.len()).collect().item()) if parquet else None
    if not parquet and len(columns) == 1:
        _refuse_other_separator(name, columns[0], separator)
    return Table(path, name, parquet, columns, rows, stamp, separator)


# How files begin that people take for CSV: Excel's two formats, and UTF-16 in both orders.
_EXCEL = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def _refuse_other_formats(name: str, start: bytes) -> None:
    """Raise an error that says what a file is that is neither CSV in UTF-8 nor Parquet."""
    if start.startswith(_EXCEL):
        raise GCFCPError(
            f"{name} is an Excel workbook or another archive, and not a table: save the sheet as "
            "CSV UTF-8 (in Excel: Save As), or write it with pandas as Parquet"
        )
    if start.startswith(_UTF_16) or start[1::2].count(0) > len(start) // 4 > 0:
        raise GCFCPError(
            f"{name} is written in UTF-16: save it as CSV UTF-8 (iconv -f UTF-16 -t UTF-8 on the "
            "command line)"
        )


def _refuse_other_separator(name: str, header: str, separator: str) -> None:
    """Raise an error if the only column of a CSV file looks like several."""
    for other, written in ((";", "';'"), ("\t", "tab"), (",", ","), ("|", "'|'")):
        if other != separator and other in header:
            raise GCFCPError(
                f"{name} has one column, {checks.shown(header)}: its fields seem to be separated "
                f"by {'tabs' if other == chr(9) else repr(other)}; give --separator {written}"
            )


def _scan(path: str, parquet: bool, types: dict[str, Any], separator: str) -> pl.LazyFrame:
    """The file as a polars query that has not been run yet.

    types: The types of the columns of a CSV file; the others are texts.
    """
    import polars as pl

    if parquet:
        return pl.scan_parquet(path, glob=False)
    return pl.scan_csv(
        path,
        glob=False,
        separator=separator,
        null_values=_NULLS,
        schema_overrides=types,
        infer_schema_length=0,
    )


def _types(
    path: str, columns: tuple[str, ...], given: dict[str, Any], separator: str
) -> dict[str, Any]:
    """The types of these columns of a CSV file: those given, and what polars makes of the others.

    polars looks at all columns of a file to tell the type of one, which for 1,000 labels takes
    longer than reading them. Without quotation marks in the file, the type of a column depends on
    its own texts alone. So these are read first, and polars is asked about them.
    """
    import polars as pl

    others = [name for name in columns if name not in given]
    if not others:
        return given
    how_many = None if os.path.getsize(path) <= _SMALL_FILE else _DECISIVE_ROWS
    if _has_quotes(path):
        asked = pl.scan_csv(
            path,
            glob=False,
            separator=separator,
            null_values=_NULLS,
            infer_schema_length=how_many,
        )
        found = asked.collect_schema()
    else:
        texts = _scan(path, False, {}, separator).select(*others, pl.lit("x").alias(_END))
        if how_many is not None:
            texts = texts.head(how_many)
        written = texts.collect().write_csv(separator=separator).encode()
        found = pl.read_csv(
            written, separator=separator, null_values=_NULLS, infer_schema_length=None
        ).schema
    return {**{name: found[name] for name in others}, **given}


def _has_quotes(path: str) -> bool:
    """Whether the file has a quotation mark anywhere."""
    with open(path, "rb") as file:
        return any(b'"' in part for part in iter(lambda: file.read(_PART), b""))


@contextmanager
def _unchanged(table: Table) -> Iterator[None]:
    """Raise an error if the file of a table has changed since it was opened.

    This is also what is wrong if polars stumbles over a file that was cut off while it was read.
    """
    try:
        yield
    finally:
        try:
            found: _Stamp | None = _Stamp.of(table.path)
        except OSError:
            found = None
        raised = sys.exc_info()[1]  # An interrupt, or a caller who stops early, comes first.
        if found != table.stamp and (raised is None or isinstance(raised, Exception)):
            raise GCFCPError(
                f"{table.name} changed while it was read: run the command again when no other "
                "program writes to it"
            ) from None


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn whatever polars finds wrong with a file into a GCFCPError of one line."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        what = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if "utf-8" in what.lower():
            raise GCFCPError(f"{name} is not written in UTF-8: save it as CSV UTF-8") from None
        if text := _NOT_A_NUMBER.search(what):
            raise GCFCPError(_text_for_a_number(name, *text.groups())) from None
        raise GCFCPError(f"cannot read {name} as a table: {what:.300}") from None


# What polars says of a text in a column that has to hold numbers.
_NOT_A_NUMBER = re.compile(r"could not parse `(.*)` as dtype `[fiu]\d+` at column '(.*)'")


def _text_for_a_number(name: str, value: str, column: str) -> str:
    """The message for a text where a number has to be."""
    value = value.strip('"')
    comma = re.fullmatch(r"[-+]?\d+,\d+", value)
    remedy = (
        f"write {value.replace(',', '.')} with a point"
        if comma
        else "correct it, or leave the field empty if the value is missing"
    )
    return (
        f"{name}: column {column!r} holds the text {value!r:.60} where a number has to be: {remedy}"
    )


def listed(names: Any, limit: int = 12) -> str:
    """The first `limit` names in quotes and, if there are more, how many there are in all."""
    some = [f"{n!r:.60}" for n in names]
    return ", ".join(some[:limit]) + (f", ... ({len(some)} in all)" if len(some) > limit else "")
