"""The audit of a labelled table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gcfcp.arrays import Bools
from gcfcp.audit import Audit, Counts, count, publish
from gcfcp.prediction import Predictor
from gcfcp.tables.files import Table
from gcfcp.tables.passes import Batch, Progress, Rows, batches
from gcfcp.tables.scoring import SCORE_COLUMN, Scoring, labels_of, scoring_for


def audit_table(
    table: Table,
    predictor: Predictor,
    *,
    client: str,
    min_count: int = 1,
    missing: str = "error",
    rng: Generator | None = None,
    progress: Progress | None = None,
) -> tuple[Audit, Rows]:
    """`gcfcp.audit` of a labelled table with a predictor, and how many records it has."""
    by = _scoring_to_audit(table, predictor)
    columns = by.columns if by.kind == "column" and not by.labels else ("y", *by.columns)
    counts: Counts | None = None
    rows = Rows()
    for batch in batches(
        table, predictor.groups, columns, by.types() | _y_type(by), missing, progress
    ):
        with batch.located():
            covered, size = _coverage(predictor, by, batch, rng)
        more = count(covered, batch.membership, groups=predictor.groups, set_size=size)
        counts = more if counts is None else counts + more
        rows = batch.rows
    assert counts is not None  # a pass without rows is an error
    found = publish(
        counts,
        groups=predictor.groups,
        client=client,
        min_count=min_count,
        alpha=float(predictor.threshold_table.alpha),
        predictor=predictor.fingerprint,
    )
    return found, rows


def _y_type(by: Scoring) -> dict[str, Any]:
    import polars as pl

    return {"y": pl.String} if by.labels else {}


def _scoring_to_audit(table: Table, predictor: Predictor) -> Scoring:
    """A score that is only named can be audited by `score` itself, without sets."""
    if isinstance(predictor.score, str) and not labels_of(table, "score_"):
        table.require((SCORE_COLUMN,))
        return Scoring(predictor.score, (SCORE_COLUMN,))
    return scoring_for(table, predictor.score)


def _coverage(
    predictor: Predictor, by: Scoring, batch: Batch, rng: Generator | None
) -> tuple[Bools, NDArray[Any] | None]:
    prediction = by.prediction(batch.frame)
    if by.labels:
        sets = predictor.predict_set(prediction, batch.membership, rng=rng)
        places = by.outcomes(batch.frame)
        return sets[np.arange(len(sets)), places], sets.sum(axis=1)
    if by.kind == "column":
        return prediction <= predictor.thresholds(batch.membership), None
    ends = predictor.predict_interval(prediction, batch.membership, rng=rng)
    y = by.outcomes(batch.frame)
    with np.errstate(invalid="ignore"):
        width = np.nan_to_num(ends[:, 1] - ends[:, 0], nan=0.0, posinf=np.inf)
        return (ends[:, 0] <= y) & (y <= ends[:, 1]), width
