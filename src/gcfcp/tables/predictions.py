"""The prediction set or interval of every row of a table, written to a new table."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from gcfcp.errors import GCFCPError
from gcfcp.prediction import Predictor
from gcfcp.tables.files import Table
from gcfcp.tables.passes import Batch, Progress, Rows, batches
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

    Returns how many rows were read and left out.
    """
    import polars as pl

    by = scoring_for(table, predictor.score)
    if not by.columns:
        raise GCFCPError(
            f"score {by.score!r} is only known by its name, so {table.name} needs the score of "
            "every label, in columns score_<label>"
        )
    table.require(keep)
    types = {c: t for c, t in by.types().items() if c in by.columns}
    rows = Rows()
    with _writer(output) as write:
        for batch in batches(
            table, predictor.groups, by.columns, types, missing, progress, keep, site
        ):
            with batch.located():
                columns = _predicted(predictor, by, batch, rng)
            if clash := columns.keys() & set(keep):
                raise GCFCPError(
                    f"column {min(clash)!r} cannot be kept, because the output has a column of its "
                    "own with this name: rename it in the table"
                )
            write(pl.DataFrame({**{name: batch.frame[name] for name in keep}, **columns}))
            rows = batch.rows
    return rows


def _predicted(
    predictor: Predictor, by: Scoring, batch: Batch, rng: Generator | None
) -> dict[str, Any]:
    """The output columns of one batch, by name."""
    import polars as pl

    prediction = by.prediction(batch.frame)
    thresholds = predictor.thresholds(batch.membership)
    if by.labels:
        sets = predictor.predict_set(prediction, batch.membership, rng=rng)
        sizes = sets.sum(axis=1)
        places = np.nonzero(sets)[1]
        flat = pl.Series(np.array(by.labels, dtype=object)[places].tolist(), dtype=pl.String)
        row = np.repeat(np.arange(len(sets)), sizes)
        lists = (
            pl.DataFrame({"row": row, "set": flat}).group_by("row", maintain_order=True).agg("set")
        )
        full = pl.DataFrame({"row": np.arange(len(sets))}).join(
            lists, on="row", how="left", maintain_order="left"
        )
        column = full["set"].fill_null(pl.lit([], dtype=pl.List(pl.String)))
        return {"set": column, "size": sizes, "threshold": thresholds}
    ends = predictor.predict_interval(prediction, batch.membership, rng=rng)
    bounds = pl.DataFrame({"lower": ends[:, 0], "upper": ends[:, 1]}).fill_nan(None)
    return {"lower": bounds["lower"], "upper": bounds["upper"], "threshold": thresholds}


@contextmanager
def _writer(output: str | PathLike[str]) -> Iterator[Callable[[pl.DataFrame], None]]:
    """A function that takes frames one by one; the file appears once it has taken all of them.

    Parquet parts are collected as files in a temporary directory beside the output, so that memory
    holds one batch at a time.
    """
    import polars as pl

    name = fspath(output)
    if name == "-":
        first = True

        def to_stdout(frame: pl.DataFrame) -> None:
            nonlocal first
            sys.stdout.write(_as_csv(frame, header=first))
            first = False

        yield to_stdout
        return
    target = Path(name)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".gcfcp-") as directory:
            if target.suffix.lower() in (".parquet", ".pq"):
                parts: list[Path] = []

                def to_parquet(frame: pl.DataFrame) -> None:
                    parts.append(Path(directory) / f"{len(parts):09}.parquet")
                    frame.write_parquet(parts[-1])

                yield to_parquet
                whole = parts[0]
                if len(parts) > 1:
                    whole = Path(directory) / "whole.parquet"
                    pl.scan_parquet(parts).sink_parquet(whole)
            else:
                whole = Path(directory) / "whole.csv"
                with whole.open("w", encoding="utf-8", newline="") as file:

                    def to_csv(frame: pl.DataFrame) -> None:
                        file.write(_as_csv(frame, header=file.tell() == 0))

                    yield to_csv
            os.replace(whole, target)
    except OSError as error:
        raise GCFCPError(f"cannot write {name}: {error.strerror}") from None


def _as_csv(frame: pl.DataFrame, header: bool) -> str:
    """The frame as CSV text; the labels of a set are joined by "|"."""
    import polars as pl

    if "set" in frame.columns and frame["set"].dtype == pl.List(pl.String):
        frame = frame.with_columns(pl.col("set").list.join("|"))
    return frame.write_csv(include_header=header)
