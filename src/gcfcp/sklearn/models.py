"""What a score needs to know of a scikit-learn model: its predictions, its labels, and the groups.

| model                           | usual score        | prediction                    |
|---------------------------------|--------------------|-------------------------------|
| a classifier                    | `THR`              | `predict_proba(X)`, (n, L)    |
| a regressor                     | `AbsoluteResidual` | `predict(X)`, (n,)            |
| two regressors, (lower, upper)  | `CQR`              | both `predict(X)`, (n, 2)     |

A pipeline is a classifier or a regressor if its last step is one. Labels may be of any type that
the model knows. The scores of this library take their names from the model's `classes_`, and the
names travel in the summary. For any other score a label is its place among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, column_or_1d

from gcfcp import checks, scores
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups


def is_pair(model: Any) -> bool:
    """Whether this is a pair of regressors, for a lower and an upper quantile."""
    return isinstance(model, tuple | list)


def parts(model: Any) -> tuple[Any, ...]:
    """The estimators that a model consists of: itself, or the two of a pair."""
    if not is_pair(model):
        return (model,)
    if len(model) != 2:
        raise GCFCPError(
            f"there are {len(model)} models: give one, or a pair of regressors for a lower and an "
            "upper quantile"
        )
    return tuple(model)


def is_fitted(model: Any) -> bool:
    """Whether a model, or each of a pair, has been fitted."""
    try:
        for part in parts(model):
            check_is_fitted(part)
    except NotFittedError:
        return False
    return True


def name_of(model: Any) -> str:
    """What error messages call a model."""
    return " and ".join(type(part).__name__ for part in parts(model))


def usual_score(model: Any) -> Any:
    """The score that fits a model, if the caller names none."""
    if is_pair(model):
        return scores.CQR()
    if is_classifier(model):
        return scores.THR()
    if is_regressor(model):
        return scores.AbsoluteResidual()
    raise GCFCPError(
        f"{name_of(model)} is neither a classifier nor a regressor of scikit-learn: give a score, "
        "such as score=gcfcp.scores.THR()"
    )


def gives_sets(score: Any, model: Any) -> bool:
    """Whether a score is of labels, so that the model's probabilities are needed."""
    kind = getattr(score, "kind", None)
    return bool(is_classifier(model) if kind is None else kind == "set")


def predictions(model: Any, X: Any, score: Any) -> NDArray[Any]:
    """What the model says about each row of X, in the form that the score needs."""
    if is_pair(model):
        return np.column_stack([part.predict(X) for part in parts(model)])
    if not gives_sets(score, model):
        return np.asarray(model.predict(X))
    if not hasattr(model, "predict_proba"):
        raise GCFCPError(
            f"{name_of(model)} has no predict_proba, which a score of labels needs: wrap it in "
            "sklearn.calibration.CalibratedClassifierCV"
        )
    return np.asarray(model.predict_proba(X))


def labels_of(model: Any) -> tuple[Any, ...]:
    """The labels of a classifier, in the order of its columns, as plain values."""
    return tuple(np.asarray(model.classes_).tolist())


def outcomes(model: Any, y: Any, score: Any) -> NDArray[Any]:
    """The outcomes in the form that the score needs: labels, their places, or numbers."""
    y = column_or_1d(y)
    if not gives_sets(score, model) or getattr(score, "classes", None) is not None:
        return np.asarray(y)
    return scores.places(y, labels_of(model))


def refuse_other_labels(model: Any, score: Any) -> None:
    """Raise an error if the labels of a predictor's score are not those of the model."""
    named = getattr(score, "classes", None)
    if named is not None and tuple(named) != labels_of(model):
        ours, theirs = (checks.listed(map(str, c)) for c in (named, labels_of(model)))
        raise GCFCPError(
            f"the predictor is for the labels {ours}, and {name_of(model)} has {theirs}: use the "
            "model that the sites used"
        )


def memberships(groups: Groups, X: Any, given: Any) -> Any:
    """Which rows belong to which groups: what the caller gives, or what the conditions say of X."""
    if given is not None:
        return given
    if groups.everyone.all():
        return np.ones((np.shape(X)[0], len(groups)), dtype=np.bool_)
    if groups.predicates is None or not hasattr(X, "columns"):
        reason = (
            "the groups have no conditions"
            if groups.predicates is None
            else "conditions need named columns, and X has none"
        )
        raise GCFCPError(
            f"who belongs to the groups {checks.listed(groups.names)} is not known, because "
            f"{reason}: give membership=, a matrix of rows by groups"
        )
    return groups.membership(X)
