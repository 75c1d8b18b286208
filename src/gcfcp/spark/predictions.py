"""The prediction set or interval of every row of a Spark data frame, as new columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import types

from gcfcp.errors import GCFCPWarning
from gcfcp.prediction import Predictor
from gcfcp.spark.frames import ROW, Frame, Partition
from gcfcp.spark.tasks import partition_number, require_seed, seeded
from gcfcp.tables import Pass, Scoring, predicted, refuse_clash, scan, scoring_to_predict

if TYPE_CHECKING:
    import pyarrow as pa


def predict(
    df: Any,
    predictor: Predictor,
    *,
    site: str | None = None,
    seed: int | None = None,
    missing: str = "error",
    name: str = "the data frame",
) -> Any:
    """Add the prediction set or interval of every row of a Spark data frame.

    A set is added as the columns `set` (an array of labels), `size` and `threshold`. An interval is
    added as `lower`, `upper` and `threshold`; the bounds of an empty interval are null. These are
    the values that `gcfcp predict` writes for a file.

    - `df`: The records to predict, with the columns of the predictor's score and of its groups. All
      columns are kept.
    - `predictor`: The predictor that `calibrate` made.
    - `site`: The site that the records are from, if the predictor's groups have sites.
    - `seed`: For a randomised score, the seed of all generators. Spark may compute a data frame
      several times, and each time the same partition draws the same numbers.
    - `missing`: "error" fails the task of a partition in which a value is missing, and "drop"
      leaves out such rows.
    - `name`: What messages call the data frame.

    Returns a data frame. As always in Spark, nothing is computed before it is used, so that an
    error about the rows comes then, as an error of Spark with the same text.
    """
    frame = Frame(df, name)
    by = scoring_to_predict(frame, predictor)
    frame.selected((*by.columns, *predictor.groups.columns))  # All of them are there, and once.
    added = _added(by)
    refuse_clash([field.name for field in added], frame.columns)
    randomized = bool(getattr(by.score, "randomized", False))
    if randomized:
        require_seed(seed, f"score {by.score.name!r} is randomised")
    task = _task(
        frame.name, frame.columns, by, predictor, site, missing, seed if randomized else None
    )
    return frame.renamed().mapInArrow(task, types.StructType([*df.schema.fields, *added]))


def _added(by: Scoring) -> list[types.StructField]:
    """The columns that are added."""
    number = types.DoubleType()
    if by.labels:
        labels = types.ArrayType(types.StringType())
        return [
            types.StructField("set", labels),
            types.StructField("size", types.LongType()),
            types.StructField("threshold", number),
        ]
    return [types.StructField(name, number) for name in ("lower", "upper", "threshold")]


def _task(
    name: str,
    columns: tuple[str, ...],
    by: Scoring,
    predictor: Predictor,
    site: str | None,
    missing: str,
    seed: int | None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark runs in each partition."""

    def run(stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = partition_number()
        rows = Partition(stream, f"{name}, partition {number}", columns)
        rng = None if seed is None else seeded(seed, 0, number)
        found = Pass()
        kinds = {c: t for c, t in by.types().items() if c in by.columns}
        for batch in scan(
            rows, predictor.groups, by.columns, kinds, missing, None, (ROW,), site, found
        ):
            with batch.located(), warnings.catch_warnings():
                warnings.simplefilter("ignore", GCFCPWarning)
                new = predicted(predictor, by, batch, rng)
            yield from _appended(rows.current, batch.frame[ROW], new)
        if found.first is not None and missing == "error":
            found.end(rows.name, missing, drop="missing='drop'")

    return run


def _appended(table: Any, kept: Any, new: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The rows that are kept, as Spark sent them, with the new columns."""
    import pyarrow as pa

    kinds = {"set": pa.list_(pa.string()), "size": pa.int64()}
    if len(kept) < table.num_rows:
        table = table.take(pa.array(kept.to_numpy()))
    for name, values in new.items():
        array = values.to_arrow() if hasattr(values, "to_arrow") else pa.array(values)
        table = table.append_column(name, array.cast(kinds.get(name, pa.float64())))
    yield from table.combine_chunks().to_batches()
