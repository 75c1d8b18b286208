"""The audit of a predictor on a Spark data frame: counts of all partitions, added up."""

from __future__ import annotations

import io
from functools import reduce
from typing import Any

import numpy as np

from gcfcp.audit import Audit, Counts, Sets
from gcfcp.prediction import Predictor
from gcfcp.spark.frames import Frame, Partition
from gcfcp.spark.tasks import ask, judge, require_seed, seeded, warn_of_unmatched
from gcfcp.tables import Pass, count_part, publish_for, scoring_to_audit


def audit(
    df: Any,
    predictor: Predictor,
    *,
    client: str,
    min_count: int = 1,
    seed: int | None = None,
    round: str | None = None,
    date: str | None = None,
    missing: str = "error",
    name: str = "the data frame",
) -> Audit:
    """Count how many labelled records of a Spark data frame were covered, by group and by atom.

    - `df`: Records that have an outcome `y` and that were not used to calibrate, with the columns
      of the predictor's score and of its groups.
    - `predictor`: The predictor to audit.
    - `client`: The name of this site.
    - `min_count`, `round`, `date`: Those of `gcfcp.audit`. What is small is decided for all records
      together.
    - `seed`, `missing`, `name`: Those of `gcfcp.spark.summarize`.

    The result is the audit of a file with the same rows. Sums of interval widths may differ in
    their last digits, because floats are added in another order.
    """
    frame = Frame(df, name)
    by = scoring_to_audit(frame, predictor)
    outcome = () if by.kind == "column" and not by.labels else ("y",)
    randomized = bool(getattr(by.score, "randomized", False))
    if randomized:
        require_seed(seed, f"score {by.score.name!r} is randomised")

    def work(rows: Partition, found: Pass, number: int) -> list[bytes]:
        rng = seeded(seed, 0, number) if randomized else None
        counts = count_part(rows, by, predictor, client, found, missing, rng)
        return [] if counts is None else _packed(counts)

    columns = (*outcome, *by.columns, *predictor.groups.columns)
    replies = ask(frame, columns, work)
    rows = judge(replies, frame, predictor.groups, missing)
    warn_of_unmatched(frame, predictor.groups, rows)
    counts = reduce(Counts.__add__, (_unpacked(r.data) for r in replies if r.data))
    return publish_for(predictor, counts, client, min_count, round, date)


def _packed(counts: Counts) -> list[bytes]:
    """The arrays of counts as bytes; none for an array that is not known."""
    sets = (None, None, None) if counts.sets is None else counts.sets.arrays
    arrays = (
        counts.membership,
        counts.covered,
        counts.total,
        counts.size,
        counts.unbounded,
        *sets,
    )
    return [b"" if array is None else _bytes_of(array) for array in arrays]


def _bytes_of(array: Any) -> bytes:
    """An array in NumPy's own format."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def _unpacked(data: tuple[bytes, ...]) -> Counts:
    """The counts that `_packed` wrote."""
    arrays: list[Any] = [
        np.load(io.BytesIO(one), allow_pickle=False) if one else None for one in data
    ]
    sets = Sets(*arrays[5:])
    known = any(array is not None for array in sets.arrays)
    membership, covered, total, size, unbounded = arrays[:5]
    return Counts(membership, covered, total, size, unbounded, sets if known else None)
