"""The audit of a labelled table: how often the prediction contained the true outcome, and how often
it said nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gcfcp.arrays import Bools, Floats
from gcfcp.audit import Audit, Counts, count, publish
from gcfcp.errors import GCFCPWarning
from gcfcp.prediction import Predictor
from gcfcp.tables.files import Columns, Source, Table
from gcfcp.tables.passes import Batch, Pass, Progress, Rows, scan
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
    round: str | None = None,
    date: str | None = None,
) -> tuple[Audit, Rows]:
    """Audit a predictor on a labelled table; the result equals that of `gcfcp.audit`.

    table: Records that have an outcome `y` and that were not used to calibrate. A score that is
    only known by its name can also be audited from a column `score`, without `y`.
    predictor: The predictor to audit. Its score decides which columns are read.
    client: The name of this site. If the groups have sites, it is one of them. If it is among the
    predictor's clients, the audit says what it weighs in the predictor's mixture.
    min_count: No number of covered or missed records below this is told; see `gcfcp.audit`.
    missing: "error" refuses a table in which a value is missing, "drop" leaves out such rows.
    rng: The generator for randomised scores, and None for all others.
    progress: It is called with the number of rows read so far, after each batch.
    round, date: The round that the audit belongs to, and the day on which it was made.

    Returns the audit, and how many rows were read and left out.
    """
    by = scoring_to_audit(table, predictor)
    found = Pass()
    counts = count_part(table, by, predictor, client, found, missing, rng, progress)
    found.end(table.name, missing)
    assert counts is not None  # `Pass.end` raises an error if there is no row to count.
    audit = publish_for(predictor, counts, client, min_count, round, date)
    return audit, found.rows


def count_part(
    table: Source,
    by: Scoring,
    predictor: Predictor,
    client: str,
    found: Pass,
    missing: str,
    rng: Generator | None,
    progress: Progress | None = None,
) -> Counts | None:
    """Count a table, or a part of one; None if it has no rows. Counts of parts add up.

    by: Which columns are audited; see `scoring_to_audit`.
    found: What the pass has found is left here, for whoever judges it.
    """
    columns = by.columns if by.kind == "column" and not by.labels else ("y", *by.columns)
    types = by.types() | _y_type(by)
    site = client if predictor.groups.sites else None
    counts: Counts | None = None
    for batch in scan(table, predictor.groups, columns, types, missing, progress, (), site, found):
        with batch.located():
            covered, size = _coverage(predictor, by, batch, rng)
            limits = _thresholds(predictor, batch)
        more = count(
            covered,
            batch.membership,
            groups=predictor.groups,
            set_size=size,
            labels=len(by.labels) if by.labels and size is not None else None,
            thresholds=limits,
        )
        counts = more if counts is None else counts + more
    return counts


def publish_for(
    predictor: Predictor,
    counts: Counts,
    client: str,
    min_count: int,
    round: str | None,
    date: str | None,
) -> Audit:
    """The audit of this predictor from all counts of a client."""
    return publish(
        counts,
        groups=predictor.groups,
        client=client,
        min_count=min_count,
        alpha=float(predictor.threshold_table.alpha),
        predictor=predictor.fingerprint,
        everything=predictor.gives_everything,
        share=predictor.share_of(client),
        round=round,
        date=date,
    )


def _thresholds(predictor: Predictor, batch: Batch) -> Floats:
    """The threshold of each row. What there is to warn of was said when the sets were made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        return predictor.thresholds(batch.membership)


def _y_type(by: Scoring) -> dict[str, Any]:
    """Labels are read as text, so that the label 7 of a CSV file is not taken for a number."""
    import polars as pl

    return {"y": pl.String} if by.labels else {}


def scoring_to_audit(table: Columns, predictor: Predictor) -> Scoring:
    """Which columns are audited.

    A score that is only known by its name needs either the scores of all labels (`score_<label>`)
    or, to count without making sets, the score of the true outcome (`score`).
    """
    if isinstance(predictor.score, str) and not labels_of(table, "score_"):
        table.require((SCORE_COLUMN,))
        return Scoring(predictor.score, (SCORE_COLUMN,))
    return scoring_for(table, predictor.score)


def _coverage(
    predictor: Predictor, by: Scoring, batch: Batch, rng: Generator | None
) -> tuple[Bools, NDArray[Any] | None]:
    """For each record, whether the prediction covers its outcome, and the size of the prediction.

    The size is the number of labels in a set or the width of an interval. It is None where only the
    score of the true outcome is known: its comparison with the threshold makes no set. It is also
    None where the groups look at y, because the memberships are then those of the true outcome.
    """
    prediction = by.prediction(batch.frame)
    of_outcome = "y" in predictor.groups.columns
    if by.labels:
        sets = predictor.predict_set(prediction, batch.membership, rng=rng)
        places = by.outcomes(batch.frame)
        covered = sets[np.arange(len(sets)), places]
        return covered, None if of_outcome else sets.sum(axis=1)
    if by.kind == "column":
        return prediction <= predictor.thresholds(batch.membership), None
    ends = predictor.predict_interval(prediction, batch.membership, rng=rng)
    y = by.outcomes(batch.frame)
    with np.errstate(invalid="ignore"):
        width = np.nan_to_num(ends[:, 1] - ends[:, 0], nan=0.0, posinf=np.inf)
        return (ends[:, 0] <= y) & (y <= ends[:, 1]), None if of_outcome else width
