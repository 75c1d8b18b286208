"""The prediction set or interval of every row of a table, written to a new table."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from queue import Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.random import Generator

from gcfcp import files
from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError
from gcfcp.prediction import Predictor
from gcfcp.tables.files import Columns, Table
from gcfcp.tables.labels import sets_by_label
from gcfcp.tables.passes import Batch, Pass, Progress, Rows, scan
from gcfcp.tables.scoring import Scoring, scoring_for

if TYPE_CHECKING:
    import polars as pl


def predict_table(
    table: Table,
    predictor: Predictor,
    output: str | PathLike[str],
    *,
    keep: tuple[str, ...] = (),
    site: str | None = None,
    missing: str = "error",
    rng: Generator | None = None,
    progress: Progress | None = None,
    overwrite: bool = True,
    escape_formulas: bool = False,
) -> Rows:
    """Write the prediction set or interval of every row.

    A set is written as the columns `set` (its labels, in CSV joined by "|"), `size` and
    `threshold`. An interval is written as `lower`, `upper` and `threshold`; the bounds of an empty
    interval are null. The file appears when it is complete, or not at all.

    table: The records to predict. They need the columns of the predictor's score, but no `y`.
    predictor: The predictor that `calibrate` made.
    output: The file to write: Parquet if its name ends in .parquet or .pq, CSV otherwise. "-"
    writes CSV to standard output.
    keep: The columns to copy from the table; they come first in the output.
    site: The site that the records are from, if the predictor's groups have sites.
    missing: "error" refuses a table in which a value is missing, "drop" leaves out such rows.
    rng: The generator for randomised scores, and None for all others.
    progress: It is called with the number of rows read so far, after each batch.
    overwrite: Whether a file that has the name of the output may be replaced.
    escape_formulas: Whether texts in CSV that a spreadsheet would take for a formula, because they
    begin with =, +, -, @, a tab or a line break, get a quotation mark before them.

    Returns how many rows were read and left out.
    """
    import polars as pl

    by = scoring_to_predict(table, predictor)
    table.require(keep)
    types = {c: t for c, t in by.types().items() if c in by.columns}
    found = Pass()
    with _writer(output, overwrite, escape_formulas) as write:

        def add(batch: Batch, columns: dict[str, Any]) -> None:
            refuse_clash(columns, keep)
            write(pl.DataFrame({**{name: batch.frame[name] for name in keep}, **columns}))

        for batch, sets, thresholds in sets_by_label(
            table, predictor, by, missing, progress, keep, site, found
        ):
            add(batch, _set_columns(by.labels or (), sets, thresholds))
        if found.rows.read < (table.rows or math.inf):
            rest = replace(table, start=found.rows.read)
            for batch in scan(
                rest, predictor.groups, by.columns, types, missing, progress, keep, site, found
            ):
                with batch.located():
                    columns = predicted(predictor, by, batch, rng)
                add(batch, columns)
        found.end(table.name, missing)
    return found.rows


def scoring_to_predict(table: Columns, predictor: Predictor) -> Scoring:
    """Which columns are predicted from."""
    by = scoring_for(table, predictor.score)
    if "y" in predictor.groups.columns:
        raise GCFCPError(
            f"the predictor's groups look at the outcome y, which {table.name} cannot know yet: "
            "each candidate label has groups of its own, which Predictor.predict_set takes as a "
            "membership (n, L, G) in Python"
        )
    if not by.columns:
        raise GCFCPError(
            f"score {by.score!r} is only known by its name, so {table.name} needs the score of "
            "every label, in columns score_<label>"
        )
    return by


def refuse_clash(columns: Iterable[str], keep: Iterable[str]) -> None:
    """Raise an error if a column to keep has the name of a column that is added."""
    if clash := set(columns) & set(keep):
        raise GCFCPError(
            f"column {min(clash)!r} cannot be kept, because the output has a column of its own "
            "with this name: rename it in the table"
        )


def predicted(
    predictor: Predictor, by: Scoring, batch: Batch, rng: Generator | None
) -> dict[str, Any]:
    """The output columns of one batch, by name."""
    import polars as pl

    prediction = by.prediction(batch.frame)
    thresholds = predictor.thresholds(batch.membership)
    if by.labels:
        sets = predictor.predict_set(prediction, batch.membership, rng=rng)
        return _set_columns(by.labels, sets, thresholds)
    ends = predictor.predict_interval(prediction, batch.membership, rng=rng)
    bounds = pl.DataFrame({"lower": ends[:, 0], "upper": ends[:, 1]}).fill_nan(None)
    return {"lower": bounds["lower"], "upper": bounds["upper"], "threshold": thresholds}


def _set_columns(labels: tuple[str, ...], sets: Bools, thresholds: Floats) -> dict[str, Any]:
    """The output columns of prediction sets, by name.

    - `sets`: Which labels are in the set of each row, (n, L).
    """
    import polars as pl

    sizes = np.count_nonzero(sets, axis=1)
    starts = np.arange(len(sets)) * sets.shape[1]  # Where the labels of each row begin.
    row = np.repeat(starts, sizes)
    places = np.flatnonzero(sets)
    places -= row
    flat = pl.Series(labels, dtype=pl.String).gather(places)
    lists = (
        pl.DataFrame({"row": row, "set": flat})
        .with_columns(pl.col("row").set_sorted())  # Runs of equal rows need no hash table.
        .group_by("row", maintain_order=True)
        .agg("set")
    )
    column = lists["set"]
    if len(column) < len(sets):  # Some sets are empty.
        rows = pl.DataFrame({"row": starts})
        full = rows.join(lists, on="row", how="left", maintain_order="left")
        column = full["set"].fill_null(pl.lit([], dtype=pl.List(pl.String)))
    return {"set": column, "size": sizes, "threshold": thresholds}


@contextmanager
def _writer(
    output: str | PathLike[str], overwrite: bool, escape: bool
) -> Iterator[Callable[[pl.DataFrame], None]]:
    """A function that takes frames one by one; the file appears once it has taken all of them.

    Memory holds some batches at a time. Whatever happens, at most one part of a file stays behind.
    """
    name = fspath(output)
    suffix = Path(name).suffix.lower() if name != "-" else ""
    parquet = suffix in (".parquet", ".pq")
    if suffix in _NOT_WRITTEN:
        raise GCFCPError(
            f"{name} would be CSV under another name, because {suffix} is not written: give a name "
            "that ends in .csv or .parquet"
        )
    if parquet and escape:
        raise GCFCPError(
            f"formulas are escaped in CSV alone, and {name} is a Parquet file, which no program "
            "reads as formulas: leave out --escape-formulas"
        )
    if name == "-":
        yield _csv_writer(sys.stdout, escape)
        return
    with files.creating(name, overwrite=overwrite) as part:
        if parquet:
            with _parquet_writer(part, name) as write:
                yield write
        else:
            with part.open("w", encoding="utf-8", newline="") as file:
                yield _csv_writer(file, escape)


# The names of formats that somebody might expect here, and that are not written.
_NOT_WRITTEN = frozenset(
    (".xlsx", ".xls", ".xlsm", ".ods", ".tsv", ".json", ".jsonl", ".ndjson", ".feather", ".arrow",
     ".ipc", ".avro", ".orc", ".h5", ".pkl", ".gz", ".zip", ".html")
)  # fmt: skip


def _csv_writer(file: TextIO, escape: bool) -> Callable[[pl.DataFrame], None]:
    """A function that writes frames one below the other, under one header."""
    first = True

    def write(frame: pl.DataFrame) -> None:
        nonlocal first
        file.write(_as_csv(frame, first, escape))
        first = False

    return write


@contextmanager
def _parquet_writer(part: Path, name: str) -> Iterator[Callable[[pl.DataFrame], None]]:
    """A function that hands frames to a thread, in which polars writes them as a stream.

    polars asks for frames and cannot be given them, so that a thread of its own has to ask.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    waiting: Queue[pl.DataFrame | None] = Queue(maxsize=1)
    failed: list[BaseException] = []
    threads: list[Thread] = []
    stopped = Event()

    def frames(*_: Any) -> Iterator[pl.DataFrame]:
        while (frame := waiting.get()) is not None:
            yield frame
        if stopped.is_set():
            raise GCFCPError("the rest of the table is missing")

    def sink(schema: pl.Schema) -> None:
        try:
            # Level 1 takes two thirds of the time of the usual level 3, and the file is as small.
            register_io_source(frames, schema=schema).sink_parquet(
                part, compression="zstd", compression_level=1, row_group_size=2**18
            )
        except BaseException as error:
            failed.append(error)

    def put(frame: pl.DataFrame | None) -> None:
        while threads[0].is_alive():
            with suppress(Full):
                waiting.put(frame, timeout=0.1)
                return

    def write(frame: pl.DataFrame) -> None:
        if not threads:
            threads.append(Thread(target=sink, args=(frame.schema,), daemon=True))
            threads[0].start()
        put(frame)
        if failed:
            raise failed[0]

    try:
        try:
            yield write
        except BaseException:
            stopped.set()
            raise
        finally:
            if threads:
                put(None)
                threads[0].join()
        if failed:
            raise failed[0]
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise GCFCPError(f"cannot write {name}: {_why(error)}") from None


def _why(error: BaseException) -> str:
    """Why polars could not write, in one line; for an error of the system, only its reason."""
    if number := re.search(r"\(os error (\d+)\)", str(error)):
        return os.strerror(int(number.group(1)))
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


# What a spreadsheet takes for the beginning of a formula, as OWASP lists it. The last four are the
# wide forms of the first four.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def _as_csv(frame: pl.DataFrame, header: bool, escape: bool) -> str:
    """The frame as CSV text; the labels of a set are joined by "|".

    escape: Whether a text that a spreadsheet would take for a formula gets a quotation mark before
    it. All texts are then put in double quotes, so that none can begin a cell of its own.
    """
    import polars as pl

    if "set" in frame.columns and frame["set"].dtype == pl.List(pl.String):
        frame = frame.with_columns(pl.col("set").list.join("|"))
    if not escape:
        return frame.write_csv(include_header=header)
    texts = pl.col(pl.String, pl.Categorical, pl.Enum)
    begins = pl.lit(False)
    for start in _FORMULA_STARTS:
        begins = begins | texts.cast(pl.String).str.starts_with(start)
    escaped = pl.when(begins).then("'" + texts.cast(pl.String)).otherwise(texts.cast(pl.String))
    frame = frame.with_columns(escaped.name.keep()).rename(
        {c: f"'{c}" for c in frame.columns if c.startswith(_FORMULA_STARTS)}
    )
    return frame.write_csv(include_header=header, quote_style="non_numeric")
