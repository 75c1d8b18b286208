"""A model with its prediction sets, as an estimator of scikit-learn.

There are two ways to thresholds, and an estimator goes one of them:

- `predictor=`: A `gcfcp.Predictor` or the name of its file, which a server made from the summaries
  of several sites. It belongs to this very model, so the model is never fitted again: `fit` only
  checks it, and `clone` keeps it as it is.
- `conformalize(X, y)`: All records are here. They are scored and calibrated in memory, without
  compression. The model is the given one, if it has been fitted, or the one that `fit` made.

What is promised: the coverage P(y in C(x) | x in G) of every group G is at least 1 - alpha, on
average over calibrations, if the records that calibrate are drawn like those to come and the model
has not seen them. `calibration_.guarantee` says for each group what is proved.
"""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import column_or_1d

import gcfcp
from gcfcp import checks, scores
from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.prediction import Predictor
from gcfcp.sklearn.models import (
    gives_sets,
    is_fitted,
    is_pair,
    labels_of,
    memberships,
    name_of,
    outcomes,
    parts,
    predictions,
    refuse_other_labels,
)
from gcfcp.sklearn.site import check_fitted, resolved, summarize

EVERYONE = Groups({"all": "TRUE"})
"""The family of groups if none is given: one group that every record belongs to."""

# Calibration and prediction draw from different streams of the same seed. With one stream, the
# random number of a row to come would be that of a calibration row, and the two not independent.
_CALIBRATING, _PREDICTING = 0, 1


class _Conformal(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators have in common: a model, thresholds, and how they come together."""

    def __init__(
        self,
        model: Any,
        predictor: Predictor | str | PathLike[str] | None = None,
        *,
        groups: Groups | None = None,
        alpha: float = 0.1,
        conformity_score: Any = None,
        rule: str | None = None,
        confidence: float | None = None,
        random_state: int | Generator | None = None,
    ) -> None:
        self.model = model
        self.predictor = predictor
        self.groups = groups
        self.alpha = alpha
        # scikit-learn has a method `score`, so that this argument cannot have that name.
        self.conformity_score = conformity_score
        self.rule = rule
        self.confidence = confidence
        self.random_state = random_state

    def __sklearn_clone__(self) -> Self:
        """A copy with the same arguments, without what was fitted.

        A predictor belongs to one fitted model, so that with a predictor the model stays as it is.
        """
        if self.predictor is None:
            copy: Self = super().__sklearn_clone__()
            return copy
        return type(self)(**self.get_params(deep=False))

    def __sklearn_tags__(self) -> Any:
        """What the model can do, the estimator can: it hands on the records as they are."""
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(parts(self.model)[0]).input_tags
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_") or is_fitted(self.model)

    def fit(self, X: Any, y: Any, **fit_params: Any) -> Self:
        """Fit a copy of the model, `model_`. With a predictor the model stays as it is.

        Thresholds of an earlier `conformalize` are dropped, because they belong to another model.
        """
        if self.predictor is not None:
            check_fitted(self.model)
            return self
        y = column_or_1d(y, warn=True)
        fitted = tuple(clone(part).fit(X, y, **fit_params) for part in parts(self.model))
        self.model_ = fitted if is_pair(self.model) else fitted[0]
        for stale in ("predictor_", "calibration_"):
            if hasattr(self, stale):
                delattr(self, stale)
        return self

    def conformalize(self, X: Any, y: Any, membership: Any = None) -> Self:
        """Calibrate with records that the model has not seen.

        It sets `calibration_`, which says what is promised, and `predictor_`.

        - `membership`: Which groups each row belongs to, (n, G). By default the conditions of the
          groups are evaluated on X, which must then be a data frame.
        """
        if self.predictor is not None:
            raise GCFCPError(
                "a predictor was given, so there is nothing to calibrate: leave predictor= out to "
                "calibrate here"
            )
        if doubt := checks.doubt_about_alpha(self.alpha):
            warnings.warn(doubt, GCFCPWarning, stacklevel=2)
        model = self._fitted()
        score = resolved(self.conformity_score, model)
        if gives_sets(score, model) != isinstance(self, ClassifierMixin):
            right = "ConformalClassifier" if gives_sets(score, model) else "ConformalRegressor"
            raise GCFCPError(
                f"{name_of(model)} with score {getattr(score, 'name', score)!r} is not for "
                f"{type(self).__name__}: use {right}"
            )
        summary = summarize(
            model,
            X,
            y,
            groups=EVERYONE if self.groups is None else self.groups,
            client="this machine",
            score=score,
            membership=membership,
            rng=self._rng(_CALIBRATING),
            # So fine that every score is kept as it is.
            delta=4.0 * max(1, np.shape(X)[0]),
        )
        self.calibration_ = gcfcp.calibrate(
            [summary], self.alpha, rule=self.rule, confidence=self.confidence
        )
        self.predictor_ = Predictor(score, self.calibration_)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """What the model itself predicts."""
        return np.asarray(self._fitted().predict(X))

    def covers(self, X: Any, y: Any, membership: Any = None) -> Bools:
        """Whether the set of each row holds its outcome, (n,): what `gcfcp.audit` counts."""
        raise NotImplementedError

    @property
    def n_features_in_(self) -> int:
        """The number of features that the model was fitted with."""
        return int(parts(self._fitted())[0].n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """The names of these features, if the model knows them."""
        return parts(self._fitted())[0].feature_names_in_

    def _fitted(self) -> Any:
        """The fitted model: the one that `fit` made, or the given one."""
        found = getattr(self, "model_", self.model)
        if not is_fitted(found):
            raise NotFittedError(
                f"This {type(self).__name__} instance has no fitted model: give a fitted model, or "
                "call fit first"
            )
        return found

    def _calibrated(self) -> Predictor:
        """The predictor in use: the given one, read from its file if need be, or our own."""
        if self.predictor is None:
            if not hasattr(self, "predictor_"):
                raise NotFittedError(
                    f"This {type(self).__name__} instance has no thresholds: call conformalize "
                    "with records that the model has not seen, or give a predictor"
                )
            found: Predictor = self.predictor_
            return found
        if isinstance(self.predictor, Predictor):
            return self.predictor
        given, loaded = getattr(self, "_loaded", (None, None))
        if loaded is None or given != self.predictor:
            loaded = Predictor.load(self.predictor)
            self._loaded = (self.predictor, loaded)
        return loaded

    def _inputs(self, X: Any, membership: Any) -> tuple[Predictor, NDArray[Any], Any]:
        """The predictor, the model's predictions, and the membership of each row."""
        predictor, model = self._calibrated(), self._fitted()
        refuse_other_labels(model, predictor.score)
        given = predictions(model, X, predictor.score)
        return predictor, given, memberships(predictor.groups, X, membership)

    def _rng(self, stream: int) -> Generator | None:
        """The generator for a randomised score: one of the streams of `random_state`."""
        if self.random_state is None or isinstance(self.random_state, Generator):
            return np.random.default_rng(self.random_state)
        return np.random.default_rng([self.random_state, stream])


def _model_has(name: str) -> Any:
    """Whether the model has a method, for `available_if`."""

    def check(estimator: _Conformal) -> bool:
        return hasattr(getattr(estimator, "model_", estimator.model), name)

    return check


class ConformalClassifier(ClassifierMixin, _Conformal):  # type: ignore[misc]
    """A classifier with prediction sets that keep their promise for every group.

    - `model`: A classifier with `predict_proba`, such as a pipeline. It is fitted already, or
      `fit` fits a copy of it.
    - `predictor`: A `gcfcp.Predictor` or the name of its file; see the module.
    - `groups`: The family of groups to calibrate for. By default it is one group of everyone.
    - `alpha`: The share of outcomes that may be missed in every group.
    - `conformity_score`: One of `gcfcp.scores` or its name; `THR` by default.
    - `rule`, `confidence`: As in `gcfcp.calibrate`.
    - `random_state`: The seed, or the generator, for scores that are randomised, such as `APS`.
    """

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of the columns of a set."""
        return np.asarray(self._fitted().classes_)

    def predict_set(self, X: Any, membership: Any = None, *, allow_empty: bool = True) -> Bools:
        """Prediction sets, bool (n, L): which labels of `classes_` are in the set of each row.

        - `membership`: Which groups each row belongs to, (n, G). By default the conditions of the
          groups are evaluated on X.
        - `allow_empty`: If it is False, an empty set gets the most probable label.
        """
        predictor, given, member = self._inputs(X, membership)
        return predictor.predict_set(
            given, member, rng=self._rng(_PREDICTING), allow_empty=allow_empty
        )

    def covers(self, X: Any, y: Any, membership: Any = None) -> Bools:
        """Whether the set of each row holds its label, (n,): what `gcfcp.audit` counts."""
        sets = self.predict_set(X, membership)
        found: Bools = sets[np.arange(len(sets)), scores.places(column_or_1d(y), labels_of(self))]
        return found

    @available_if(_model_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The model's own probabilities, (n, L)."""
        return np.asarray(self._fitted().predict_proba(X))


class ConformalRegressor(RegressorMixin, _Conformal):  # type: ignore[misc]
    """A regressor with prediction intervals that keep their promise for every group.

    - `model`: A regressor, or a pair of quantile regressors (lower, upper), whose intervals are
      then conformalised quantile regression (`CQR`). It is fitted already, or `fit` fits a copy.
    - `conformity_score`: `AbsoluteResidual` by default, and `CQR` for a pair.

    The other arguments are those of `ConformalClassifier`.
    """

    def predict(self, X: Any) -> NDArray[Any]:
        """What the model itself predicts; for a pair the middle between the two quantiles."""
        found = [np.asarray(part.predict(X)) for part in parts(self._fitted())]
        return np.asarray(np.mean(found, axis=0))

    def predict_interval(self, X: Any, membership: Any = None) -> Floats:
        """Prediction intervals, float (n, 2): the lower and the upper end for each row.

        - `membership`: Which groups each row belongs to, (n, G). By default the conditions of the
          groups are evaluated on X.
        """
        predictor, given, member = self._inputs(X, membership)
        return predictor.predict_interval(given, member, rng=self._rng(_PREDICTING))

    def covers(self, X: Any, y: Any, membership: Any = None) -> Bools:
        """Whether the interval of each row holds its outcome, (n,): what `gcfcp.audit` counts."""
        low, high = self.predict_interval(X, membership).T
        y = outcomes(self, y, self._calibrated().score)
        inside: Bools = (low <= y) & (y <= high)
        return inside
