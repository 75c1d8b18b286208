"""The summary of a site, from its fitted model and its records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.random import Generator

import gcfcp
from gcfcp import scores as known_scores
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.sklearn.models import (
    is_fitted,
    memberships,
    name_of,
    outcomes,
    predictions,
    usual_score,
)
from gcfcp.summary import ClientSummary


def summarize(
    model: Any,
    X: Any,
    y: Any,
    *,
    groups: Groups,
    client: str,
    score: Any = None,
    membership: Any = None,
    rng: Generator | None = None,
    fingerprint: str | None = None,
    **options: Any,
) -> ClientSummary:
    """The summary of a site from a fitted model: `gcfcp.summarize` of the scores of its records.

    - `model`: A fitted classifier or regressor, such as a pipeline, or a pair of fitted quantile
      regressors (lower, upper). It must not have been fitted to these records.
    - `X`, `y`: The records of the site and their outcomes. Labels are those of the model.
    - `score`: One of `gcfcp.scores` or its name. By default it is `THR` for a classifier,
      `AbsoluteResidual` for a regressor and `CQR` for a pair.
    - `membership`: Which groups each row belongs to, (n, G). By default the conditions of the
      groups are evaluated on X, which must then be a data frame.
    - `rng`: The generator for scores that are randomised, such as `APS`.
    - `fingerprint`: The fingerprint of the model, `model` in `gcfcp.summarize`. The server refuses
      to mix different ones.
    - `options`: The other arguments of `gcfcp.summarize`, such as `min_count`.
    """
    check_fitted(model)
    score = resolved(score, model)
    values = score.of(predictions(model, X, score), outcomes(model, y, score), rng=rng)
    summary: ClientSummary = gcfcp.summarize(
        values,
        memberships(groups, X, membership),
        groups=groups,
        client=client,
        score=score,
        model=fingerprint,
        **options,
    )
    return summary


def check_fitted(model: Any) -> None:
    """Raise an error if a model has not been fitted."""
    if not is_fitted(model):
        raise GCFCPError(
            f"{name_of(model)} has not been fitted: fit it to other records than these first"
        )


def resolved(score: Any, model: Any) -> Any:
    """The score that the caller means: an object, a name of `gcfcp.scores`, or the usual one.

    A score of this library that names no labels gets those of the model.
    """
    if score is None:
        score = usual_score(model)
    elif isinstance(score, str):
        score = known_scores.from_name(score)
    nameless = getattr(score, "classes", score) is None
    return replace(score, classes=model.classes_) if nameless else score
