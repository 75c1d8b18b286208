"""Conformity scores, each with its inverse: the number that is compared, and the set that follows.

A score s(x, y) is large where the outcome y disagrees with the model's prediction at x. `of`
computes the scores of calibration rows. `predict` inverts the score: it returns every y whose score
is at most the threshold.

| class              | prediction at x   | score of y                                          |
|--------------------|-------------------|-----------------------------------------------------|
| `AbsoluteResidual` | f(x)              | abs(y - f(x))                                       |
| `CQR`              | lo(x), hi(x)      | max(lo - y, y - hi)                                 |
| `THR`              | p_1(x) ... p_L(x) | 1 - p_y                                             |
| `APS`              | p_1(x) ... p_L(x) | sum of p over the labels ranked above y, plus u p_y |
| `RAPS`             | p_1(x) ... p_L(x) | APS + lam max(0, rank of y - k_reg)                 |

Sources: Lei et al. 2018 (residual); Romano, Patterson, Candes 2019 (CQR); Sadinle, Lei, Wasserman
2019 (THR); Romano, Sesia, Candes 2020 (APS); Angelopoulos et al. 2021, eq. 4 (RAPS).

Guarantee: Sets agree with scores to the last bit, ties included. With the same u, a label y is in
`predict(prediction, t)` if and only if `of(prediction, y) <= t`. An interval contains every y with
such a score. Where rounding would leave one of these y outside, the end of the interval is computed
from the next float64 after t. A larger threshold never gives a smaller set. t = +inf gives all
labels or the whole real line, and t = -inf gives the empty set.

Scores are computed in float64, and float32 predictions are converted without rounding. Calibration
and prediction must see the same predictions: if they are rounded or computed in another precision
in between, their scores change too.

Cost: One pass over the predictions, checks included, in blocks that fit into the processor's cache.
Predictions in float32 or float64 are never copied as a whole. APS and RAPS also sort each row.

A score of your own is any object with the methods `of` and `predict` (see `Score`). It may also
have the attributes `name`, `parameters` (JSON values that distinguish it from other scores of that
name), `lower` and `upper` (limits that no score passes) and `kind` ("set" or "interval").
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gcfcp import checks
from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError

__all__ = ["APS", "CQR", "RAPS", "THR", "AbsoluteResidual", "Score", "from_name"]

# The sum of the probabilities of a row may differ from 1 by this much. The rounding errors of a
# float16 softmax over 1,000 labels stay below it.
SUM_TOLERANCE = 1e-3
# A probability may be this far below 0. It then counts as 0, and one above 1 counts as 1.
RANGE_TOLERANCE = 1e-6
MOST_CLASSES = 10_000
"""The most labels that can be named."""
_BLOCK = 1 << 16  # This many numbers are processed at a time: 512 kB of float64 fit the cache.
# Up to this many numbers, calls of NumPy cost more than their work. They are checked in ways that
# take few of them.
_FEW_VALUES = 4096
_FEW_ROWS = 4  # Up to this many rows, of up to _VERY_FEW_VALUES numbers, are added up in Python.
_VERY_FEW_VALUES = 64
_FEW = 48  # Up to this many thresholds are inverted one by one, which is faster than all at once.
_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


@runtime_checkable
class Score(Protocol):
    """The two methods that every score has."""

    def of(self, prediction: Any, y: Any, rng: np.random.Generator | None = None) -> Floats:
        """The scores of n outcomes, of shape (n,).

        - `prediction`: What the model says about each of the n rows.
        - `y`: The outcome of each row.
        - `rng`: The source of randomness, for scores that need one.
        """

    def predict(
        self, prediction: Any, thresholds: Any, rng: np.random.Generator | None = None
    ) -> NDArray[Any]:
        """The outcomes of each row whose score is at most the threshold.

        - `prediction`: What the model says about each of the n rows.
        - `thresholds`: One number for all rows, or one for each row.
        - `rng`: The source of randomness, for scores that need one.

        Returns a bool array of shape (n, L), which says for each of L labels whether it is in the
        set, or a float array of shape (n, 2), the ends of an interval.
        """


class _Named:
    """What the scores of this module have in common: a name, a kind, limits and parameters."""

    name: ClassVar[str]
    kind: ClassVar[Literal["set", "interval"]]
    lower: ClassVar[float]
    upper: ClassVar[float]

    @property
    def parameters(self) -> dict[str, float | int | bool]:
        """The parameters that distinguish this score from others of its name, as JSON values."""
        return dict(vars(self))  # These are the fields of the dataclass, and nothing else.


# --- intervals --------------------------------------------------------------------------------


@dataclass(frozen=True)
class AbsoluteResidual(_Named):
    """The absolute residual s = |y - f|, inverted by the interval [f - t, f + t].

    A prediction is f, of shape (n,).
    """

    name = "residual"
    kind = "interval"
    lower = 0.0
    upper = np.inf

    def of(self, prediction: Any, y: Any, rng: np.random.Generator | None = None) -> Floats:
        """The scores |y - f|, of shape (n,)."""
        f = _finite("prediction", prediction, 1)
        return np.abs(_outcomes(y, len(f)) - f)

    def predict(
        self, prediction: Any, thresholds: Any, rng: np.random.Generator | None = None
    ) -> Floats:
        """The intervals [f - t, f + t], of shape (n, 2), both ends included.

        If t < 0 the interval is empty, and both its ends are NaN.
        """
        f = _finite("prediction", prediction, 1)
        t = _thresholds(thresholds, len(f))
        # No residual is negative, so t < 0 means an empty interval. Rounding outwards must not turn
        # t = -5e-324 into 0, which would admit y = f.
        return _interval(f, f, np.where(t < 0, -np.inf, t))


@dataclass(frozen=True)
class CQR(_Named):
    """Conformalised quantile regression: s = max(lo - y, y - hi), inverted by [lo - t, hi + t].

    A prediction is a lower and an upper quantile (lo, hi), of shape (n, 2). Where the
    quantiles cross (lo > hi), all scores are positive, and the sets are valid all the same.
    """

    name = "cqr"
    kind = "interval"
    lower = -np.inf
    upper = np.inf

    def of(self, prediction: Any, y: Any, rng: np.random.Generator | None = None) -> Floats:
        """The scores max(lo - y, y - hi), of shape (n,)."""
        lo, hi = _quantiles(prediction)
        outcomes = _outcomes(y, len(lo))
        return np.maximum(lo - outcomes, outcomes - hi)

    def predict(
        self, prediction: Any, thresholds: Any, rng: np.random.Generator | None = None
    ) -> Floats:
        """The intervals [lo - t, hi + t], of shape (n, 2), both ends included.

        If lo - t > hi + t the interval is empty, and both its ends are NaN.
        """
        lo, hi = _quantiles(prediction)
        return _interval(lo, hi, _thresholds(thresholds, len(lo)))


def _interval(lo: Floats, hi: Floats, t: Floats) -> Floats:
    """The intervals [lo - t, hi + t], rounded outwards where an outcome would be lost otherwise."""
    out = np.empty((len(t), 2))
    with np.errstate(over="ignore", invalid="ignore"):
        np.negative(_reach(-lo, t), out=out[:, 0])
        out[:, 1] = _reach(hi, t)
    # Both ends of an empty interval are NaN: no y lies between NaN and NaN, and a mean width that
    # includes an empty interval is NaN, which cannot be overlooked.
    out[(out[:, 0] > out[:, 1]) | (t == -np.inf)] = np.nan
    return out


def _reach(f: Floats, t: Floats) -> Floats:
    """The upper end of an interval: f + t, or slightly more if a larger y scores at most t.

    Such a y exists where rounding makes the computed difference y - f at most t although y lies
    above the computed sum f + t. The exact difference is then below t+, the next float64 after t.
    So y is below the exact sum f + t+, and it is at most the rounded one.
    """
    end = f + t
    beyond = np.nextafter(end, np.inf) - f <= t
    return np.where(beyond, f + np.nextafter(t, np.inf), end)


# --- sets -------------------------------------------------------------------------------------


class _SetScore(_Named):
    """A score of the labels 0, ..., L-1, or of the labels that `classes` names.

    A prediction is the probabilities of all labels, of shape (n, L). Each row sums to 1. With
    `classes`, the labels y are texts, numbers or booleans among them, such as scikit-learn's
    `model.classes_` in the order of the columns. The names travel in the summary, sites with other
    ones are refused, and so is a prediction with another number of columns.
    """

    kind = "set"
    classes: Any

    def __post_init__(self) -> None:
        if self.classes is not None:
            object.__setattr__(self, "classes", _classes(self.classes))

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters as JSON values; the names of the labels are one JSON text."""
        given = {k: v for k, v in vars(self).items() if k != "classes" or v is not None}
        if self.classes is not None:
            given["classes"] = json.dumps(self.classes, ensure_ascii=False, separators=(",", ":"))
        return given

    def _probabilities(self, prediction: Any) -> NDArray[Any]:
        """The prediction as a matrix, which has one column for each class if these are named."""
        matrix = _matrix(prediction)
        if self.classes is not None and matrix.shape[1] != len(self.classes):
            raise GCFCPError(
                f"the prediction has {matrix.shape[1]} columns, but there are {len(self.classes)} "
                f"classes ({checks.listed(map(str, self.classes), 5)}): use the model that has them"
            )
        return matrix

    def _scores(self, p: Floats, u: Floats) -> Floats:
        """The scores of all labels for a block of m rows, of shape (m, L).

        - `p`: The probabilities, of shape (m, L).
        - `u`: The random number of each row, of shape (m, 1).
        """
        raise NotImplementedError

    def _draw(self, n: int, rng: np.random.Generator | None) -> Floats:
        """The number u of each row, of shape (n, 1). It is 1 unless the score is randomised."""
        return np.ones((n, 1))

    def all(self, prediction: Any, rng: np.random.Generator | None = None) -> Floats:
        """The scores of all labels, of shape (n, L)."""
        probabilities = self._probabilities(prediction)
        out = np.empty(probabilities.shape)
        for rows, scores in self._blocks(probabilities, rng):
            out[rows] = scores
        return out

    def of(self, prediction: Any, y: Any, rng: np.random.Generator | None = None) -> Floats:
        """The scores of the labels y, of shape (n,)."""
        probabilities = self._probabilities(prediction)
        n, L = probabilities.shape
        labels = _labels(y, n, L, self.classes)
        out = np.empty(len(labels))
        for rows, scores in self._blocks(probabilities, rng):
            out[rows] = scores[np.arange(len(scores)), labels[rows]]
        return out

    def predict(
        self, prediction: Any, thresholds: Any, rng: np.random.Generator | None = None
    ) -> Bools:
        """The sets, as bool of shape (n, L): whether each label is in the set of each row.

        thresholds: One number for all rows, one for each row (n,), or one for each row and label
        (n, L).
        """
        probabilities = self._probabilities(prediction)
        t = _label_thresholds(thresholds, *probabilities.shape)
        out = np.empty(probabilities.shape, dtype=np.bool_)
        for rows, scores in self._blocks(probabilities, rng):
            np.less_equal(scores, t[rows], out=out[rows])
        return out

    def _blocks(
        self, probabilities: NDArray[Any], rng: np.random.Generator | None
    ) -> Iterator[tuple[slice, Floats]]:
        """Slices of rows, each with the scores of all labels in these rows."""
        # All u are drawn at once, so that they do not depend on the size of a block.
        u = self._draw(len(probabilities), rng)
        for rows in _checked_rows(probabilities):
            # The checks tolerate values slightly outside of [0, 1], which are clipped here.
            p = probabilities[rows].astype(np.float64)
            yield rows, self._scores(np.clip(p, 0.0, 1.0, out=p), u[rows])


@dataclass(frozen=True)
class THR(_SetScore):
    """s = 1 - p_y: a set holds the labels of probability at least 1 - t. Also known as LAC.

    - `classes`: The names of the labels, in the order of the columns of a prediction.
    """

    classes: Any = None

    name = "thr"
    lower = 0.0
    upper = 1.0

    def _scores(self, p: Floats, u: Floats) -> Floats:
        """The scores 1 - p, of shape (m, L)."""
        return 1.0 - p

    def of(self, prediction: Any, y: Any, rng: np.random.Generator | None = None) -> Floats:
        """The scores of the labels y, of shape (n,), without those of the other labels."""
        probabilities = self._probabilities(prediction)
        n, L = probabilities.shape
        labels = _labels(y, n, L, self.classes)
        p = np.empty(len(labels))
        for rows in _checked_rows(probabilities):
            block = probabilities[rows]
            p[rows] = block[np.arange(len(block)), labels[rows]]
        return 1.0 - np.clip(p, 0.0, 1.0)

    def predict(
        self, prediction: Any, thresholds: Any, rng: np.random.Generator | None = None
    ) -> Bools:
        """The sets, as bool of shape (n, L): whether each label is in the set of each row.

        thresholds: One number for all rows, one for each row (n,), or one for each row and label
        (n, L). Only in the last case are scores computed. Otherwise each probability is compared
        with the smallest one that is in the set, which is faster and gives the same sets.
        """
        if np.ndim(thresholds) == 2:
            return super().predict(prediction, thresholds, rng)
        p = self._probabilities(prediction)
        return _at_least(p, _least_probabilities(_thresholds(thresholds, len(p))))

    def least(self, thresholds: Floats) -> Floats:
        """The smallest probability that is in a set with each of these thresholds, of shape (n,).

        It depends on the threshold alone, so a predictor computes it once for each atom.
        """
        return _least_probabilities(_thresholds(thresholds, len(thresholds)))

    def predict_from(self, prediction: Any, least: Floats) -> Bools:
        """The sets, as bool of shape (n, L): the labels whose probability is at least `least`.

        least: What the method `least` gives, for each row (n,) or for each row and label (n, L).
        """
        p = self._probabilities(prediction)
        if least.shape != p.shape[:1]:
            _check_shape(least, p.shape)
        return _at_least(p, least)


def _at_least(p: NDArray[Any], least: Floats) -> Bools:
    """Whether each probability (n, L) is at least its number, (n,) or (n, L)."""
    least = least[:, None] if least.ndim == 1 else least
    if 0 < p.size <= _FEW_VALUES:
        _check_block(p, 0)
        inside: Bools = np.greater_equal(p, least)
        return inside
    least = round_up(least, p.dtype)
    out = np.empty(p.shape, dtype=np.bool_)
    for rows in _checked_rows(p):
        np.greater_equal(p[rows], least[rows], out=out[rows])
    return out


def _least_probability(t: float) -> float:
    """The smallest float64 p whose computed score 1 - p is at most t.

    A label is then in the set if and only if its probability is at least this p.

    For t < 1/2 such p are at least 1/2, where 1 - p is exact, so p is 1 - t, rounded up. From 1/2
    to 1 float64 numbers lie 2^-53 apart, so a score up to 2^-54 above t is rounded to t; where it
    lies halfway, the last bit of t decides. Scores lie in [0, 1]: none is at most t < 0, and all
    are at most t >= 1.
    """
    if not 0.0 <= t < 1.0:
        return math.inf if t < 0 else -math.inf
    p = (1.0 - t) - (2.0**-54 if t >= 0.5 else 0.0)
    return math.nextafter(p, math.inf) if 1.0 - p > t else p


def _least_probabilities(t: Floats) -> Floats:
    """`_least_probability` of each threshold, to the last bit; many are computed side by side."""
    if len(t) <= _FEW:
        return np.array([_least_probability(x) for x in t.tolist()], dtype=np.float64)
    inside = np.minimum(np.maximum(t, 0.0), 1.0)
    p = 1.0 - inside
    np.subtract(p, 2.0**-54, out=p, where=inside >= 0.5)
    np.nextafter(p, np.inf, out=p, where=1.0 - p > inside)
    np.copyto(p, np.inf, where=t < 0)
    np.copyto(p, -np.inf, where=t >= 1)
    return p


def round_up(values: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Each value rounded up to a number of a narrower type.

    A number of that type is at least the rounded value if and only if it is at least the value
    itself. Many numbers of that type are then compared without being converted.
    """
    if dtype == values.dtype:
        return values
    rounded = values.astype(dtype)
    return np.where(rounded < values, np.nextafter(rounded, dtype.type(np.inf)), rounded)


class _RankedScore(_SetScore):
    """What `APS` and `RAPS` share: sums of probabilities in the order of the labels' ranks."""

    randomized: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "randomized", checks.flag("randomized", self.randomized))

    def _draw(self, n: int, rng: np.random.Generator | None) -> Floats:
        """The number u of each row, of shape (n, 1): uniform on [0, 1), or 1 if not randomised."""
        if not self.randomized:
            return super()._draw(n, rng)
        if not isinstance(rng, np.random.Generator):
            raise GCFCPError(
                f"{self.name} is randomized: give rng=numpy.random.default_rng(seed), "
                f"not {rng!r:.40}, or use randomized=False"
            )
        return rng.random((n, 1))

    def _scores(self, p: Floats, u: Floats) -> Floats:
        """The scores (m, L): the sum of p over higher ranks, plus u p, plus the penalty."""
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=1)
        above = np.zeros_like(ranked)
        np.cumsum(ranked[:, :-1], axis=1, out=above[:, 1:])
        by_rank = np.minimum(above + u * ranked, 1.0) + self._penalty(p.shape[1])
        scores = np.empty_like(by_rank)
        np.put_along_axis(scores, order, by_rank, axis=1)
        return scores

    def _penalty(self, L: int) -> Floats:
        """The penalties that are added at the ranks 1, 2, ..., L. `APS` has none."""
        return np.zeros(L)


@dataclass(frozen=True)
class APS(_RankedScore):
    """Adaptive prediction sets: s = sum of p_j over the labels j ranked above y, plus u p_y.

    Labels are ranked by falling probability, and equally probable ones by their numbers. u is
    uniform on [0, 1), one number for each row, drawn from the generator `rng`. With
    `randomized=False` u is 1, and the sets are somewhat larger. A set always consists of the
    highest-ranked labels. A sum that rounding lifts above 1 counts as 1.
    """

    randomized: bool = True
    classes: Any = None  # The names of the labels; see `THR`.

    name = "aps"
    lower = 0.0
    upper = 1.0


@dataclass(frozen=True)
class RAPS(_RankedScore):
    """Regularised APS: s = the score of `APS`, plus lam max(0, rank of y - k_reg).

    The rank of the most probable label is 1. The penalty is not randomised. It keeps sets small
    where the small probabilities at the end of the ranking are noise.

    - `lam`: The penalty of each rank beyond `k_reg`.
    - `k_reg`: How many of the highest ranks have no penalty.
    - `randomized`: Whether u is drawn for each row, as for `APS`, or is 1.
    """

    lam: float = 0.01
    k_reg: int = 5
    randomized: bool = True
    classes: Any = None  # The names of the labels; see `THR`.

    name = "raps"
    lower = 0.0
    upper = np.inf  # The penalty grows with the number of labels.

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lam", checks.at_least("lam", self.lam, 0))
        object.__setattr__(self, "k_reg", checks.whole("k_reg", self.k_reg))

    def _penalty(self, L: int) -> Floats:
        """The penalties lam max(0, rank - k_reg) at the ranks 1, 2, ..., L."""
        penalty: Floats = self.lam * np.maximum(0, np.arange(1, L + 1) - self.k_reg)
        return penalty


# --- by name ----------------------------------------------------------------------------------

_BY_NAME: dict[str, Any] = {s.name: s for s in (AbsoluteResidual, CQR, THR, APS, RAPS)}
NAMES = tuple(_BY_NAME)
"""The names of the scores that `from_name` knows."""


def from_name(name: str, parameters: Mapping[str, Any] | None = None) -> Score:
    """The score of this name with these parameters, as a file holds both."""
    if name not in _BY_NAME:
        raise GCFCPError(f"score {name!r} is not one of {', '.join(_BY_NAME)}")
    known = _BY_NAME[name]
    given = dict(parameters or {})
    if unknown := given.keys() - {parameter.name for parameter in fields(known)}:
        raise GCFCPError(f"score {name!r} has no parameter {sorted(map(str, unknown))[0]!r}")
    score: Score = known(**given)
    return score


def describe(score: Any) -> tuple[str, dict[str, Any]]:
    """The name and the parameters of a score, as a file holds them.

    score: A score object, or the name of a score, which then has no parameters. The name of None is
    "unnamed".
    """
    if score is None:
        return "unnamed", {}
    if isinstance(score, str):
        return score, {}
    name = getattr(score, "name", type(score).__name__)
    parameters = getattr(score, "parameters", {})
    if not isinstance(parameters, Mapping):
        return str(name), {}
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}
    return str(name), plain


# --- what may come in -------------------------------------------------------------------------


def _array(name: str, values: Any) -> NDArray[Any]:
    """The values as an array of real numbers, of a floating or an integer type."""
    if type(values) is np.ndarray and values.dtype.kind == "f":  # It is mostly one already.
        return values
    try:
        array = np.asarray(checks.unmasked(name, values))
        if array.dtype == object:  # A pandas column of mixed numbers is one. None becomes NaN.
            array = array.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise GCFCPError(f"{name} is not an array of numbers: {error}") from None
    if array.dtype.kind not in "fiu":
        raise GCFCPError(f"{name} is of type {array.dtype}, not numbers")
    return array


def _finite(name: str, values: Any, ndim: int) -> Floats:
    """The values as finite float64 numbers in `ndim` dimensions, which is 1 or 2."""
    array = _array(name, values).astype(np.float64, copy=False)
    if array.ndim != ndim:
        expected = "(n,)" if ndim == 1 else "(n, 2)"
        raise GCFCPError(f"{name} has shape {array.shape}, expected {expected}")
    bad = ~np.isfinite(array)
    if bad.any():
        at = np.argwhere(bad)[0]
        raise GCFCPError(
            f"{name}[{', '.join(map(str, at))}] = {array[tuple(at)]} is not finite: correct this "
            "row or leave it out"
        )
    return array


def _outcomes(y: Any, n: int) -> Floats:
    """The outcomes y of n rows as float64."""
    outcomes = _finite("y", y, 1)
    if len(outcomes) != n:
        raise GCFCPError(
            f"y has {len(outcomes)} rows, but prediction has {n}: give one outcome for each row"
        )
    return outcomes


def _quantiles(prediction: Any) -> tuple[Floats, Floats]:
    """The lower and the upper quantiles, each of shape (n,)."""
    pairs = _finite("prediction", prediction, 2)
    if pairs.shape[1] != 2:
        raise GCFCPError(
            f"prediction has shape {pairs.shape}, expected (n, 2): give a lower and an upper "
            "quantile for each row"
        )
    return pairs[:, 0], pairs[:, 1]


def _thresholds(thresholds: Any, n: int) -> Floats:
    """The thresholds of n rows, of shape (n,), from one number or one number for each row."""
    t: Floats = _array("thresholds", thresholds).astype(np.float64, copy=False)
    if wrong := np.count_nonzero(np.isnan(t)):
        raise GCFCPError(
            f"{wrong} of {t.size} thresholds are NaN: a threshold is a number, +inf or -inf"
        )
    if t.ndim == 0:
        return np.full(n, t)
    if t.shape != (n,):
        raise GCFCPError(f"thresholds have shape {t.shape}, expected one number or ({n},)")
    return t


def _label_thresholds(thresholds: Any, n: int, L: int) -> Floats:
    """The thresholds in a shape that can be compared with scores (n, L): (n, 1) or (n, L)."""
    if np.ndim(thresholds) < 2:
        return _thresholds(thresholds, n)[:, None]
    t = np.asarray(thresholds)
    _check_shape(t, (n, L))
    return _thresholds(t.ravel(), n * L).reshape(n, L)


def _check_shape(thresholds: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise an error unless there is a threshold for each row and label."""
    if thresholds.shape != shape:
        raise GCFCPError(
            f"thresholds have shape {thresholds.shape}, expected one number, ({shape[0]},) or "
            f"{shape}"
        )


def _matrix(prediction: Any) -> NDArray[Any]:
    """The probabilities as a matrix of floats. `_checked_rows` checks its values later."""
    array = _array("probabilities", prediction)
    if array.ndim != 2 or array.shape[1] == 0:
        raise GCFCPError(f"probabilities have shape {array.shape}, expected (n, L) with L >= 1")
    if array.dtype == np.float16:
        return array.astype(np.float32)  # Sums in float16 would be too inexact to check.
    return array if array.dtype in _FLOATS else array.astype(np.float64)


def _checked_rows(probabilities: NDArray[Any]) -> Iterator[slice]:
    """Slices of rows, in blocks. A block that is yielded has been checked and is in the cache."""
    n, L = probabilities.shape
    step = max(1, _BLOCK // L)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        _check_block(probabilities[rows], start)
        yield rows


def _check_block(block: NDArray[Any], start: int) -> None:
    """Refuse rows that are not probabilities: each must sum to 1 and have no value below 0.

    No value can then be far above 1.

    start: The number of the first row of the block, for the message.
    """
    if block.size <= _FEW_VALUES and _few_are_good(block):
        return
    # This is up to 4 times as fast as sum(axis=1), which goes row by row.
    sums = np.einsum("ij->i", block)
    good = np.abs(sums - 1.0) <= SUM_TOLERANCE  # A sum of NaN is not good.
    if np.count_nonzero(good) < len(good):
        row = int(good.argmin())
        why = "" if np.isfinite(sums[row]) else ": a value is not finite"
        raise GCFCPError(
            f"probabilities of row {start + row + 1} sum to {float(sums[row]):.6g}, "
            f"not to 1 within {SUM_TOLERANCE}{why}"
        )
    if np.minimum.reduce(block, axis=None) < -RANGE_TOLERANCE:
        row, label = divmod(int(block.argmin()), block.shape[1])
        raise GCFCPError(
            f"probability of row {start + row + 1}, label {label} is "
            f"{float(block[row, label]):.6g}, which is below 0"
        )


def _few_are_good(block: NDArray[Any]) -> bool:
    """Whether a few rows are surely probabilities, with the margin that rounding can take.

    Python adds up a few numbers in a fifth of the time of NumPy, and a product takes a fourth of
    the time of other sums.
    """
    if len(block) <= _FEW_ROWS and block.size <= _VERY_FEW_VALUES:
        for row in block.tolist():
            if not (abs(sum(row) - 1.0) <= SUM_TOLERANCE / 2 and min(row) >= 0.0):
                return False
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        off = block.dot(_ones(block.shape[1], block.dtype)) - 1.0
        # If the sum of squares is small, each of them is. It is NaN if one of them is.
        close = off.dot(off) <= (SUM_TOLERANCE / 2) ** 2
    return bool(close and np.minimum.reduce(block, axis=None) >= 0.0)


@lru_cache(maxsize=8)
def _ones(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A vector of ones, which is made once."""
    ones = np.ones(size, dtype)
    ones.flags.writeable = False
    return ones


def sum_margin(labels: int, dtype: np.dtype[Any]) -> float:
    """How much the check of whole rows may miss the sum of a row by: less than L eps.

    The check adds up L values in their own type, in an order of its own, and each addition is off
    by at most eps / 2 of a sum that is close to 1.
    """
    return labels * float(np.finfo(dtype).eps)


def surely_probabilities(sums: Floats, least: float, margin: float) -> bool:
    """Whether rows whose columns were added up one by one would pass the check of whole rows.

    If not, the rows are wrong, or only the check itself can tell.

    - `sums`: The sum of each row in float64, (n,).
    - `least`: The least of all values.
    - `margin`: See `sum_margin`.
    """
    close = np.abs(sums - 1.0) <= SUM_TOLERANCE - margin
    return bool(close.all() and least >= -RANGE_TOLERANCE)


def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two scores have the same parameters. The names of labels may be missing in one."""
    if "classes" in one and "classes" in other:
        return dict(one) == dict(other)
    left, right = ({k: v for k, v in p.items() if k != "classes"} for p in (one, other))
    return left == right


def check_classes(text: str) -> None:
    """Raise a GCFCPError unless the text of a file names the labels of a score."""
    _classes(text)


def _classes(given: Any) -> tuple[Any, ...]:
    """The names of the labels as texts, numbers or booleans, each of them once."""
    if isinstance(given, str):  # So it stands in a file, which may come from anyone.
        try:
            given = json.loads(given) if len(given) < 2**22 else None
        except (ValueError, RecursionError):
            given = None
    if not isinstance(given, list | tuple | np.ndarray) or not 1 <= len(given) <= MOST_CLASSES:
        raise GCFCPError(
            f"classes={given!r:.60} is not a list of 1 to {MOST_CLASSES} labels: give them in the "
            "order of the columns, such as model.classes_"
        )
    names = [v.item() if isinstance(v, np.generic) else v for v in given]
    for name in names:
        if not isinstance(name, bool | int | float | str) or name != name:
            raise GCFCPError(f"class {name!r:.60} is neither a text, a number nor a boolean")
        if isinstance(name, str):
            checks.name("class", name)
    if len(set(names)) < len(names):
        raise GCFCPError("a class is named twice: give each label once")
    return tuple(names)


def places(labels: NDArray[Any], classes: tuple[Any, ...]) -> NDArray[np.integer]:
    """The place of each label among the classes."""
    place = {name: i for i, name in enumerate(classes)}
    found = [place.get(v, -1) for v in labels.tolist()]
    if -1 in found:
        row = found.index(-1)
        raise GCFCPError(
            f"y[{row}] = {labels[row]!s:.40} is not a label: the classes are "
            f"{checks.listed(map(str, classes), 12)}"
        )
    return np.array(found, dtype=np.intp)


def _labels(y: Any, n: int, L: int, classes: tuple[Any, ...] | None = None) -> NDArray[np.integer]:
    """The labels of n rows as indices, each from 0 to L-1.

    Booleans, and floats without a fraction, are taken as the numbers that they are.
    """
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise GCFCPError(
            f"y has shape {labels.shape}, expected ({n},): give one label for each row"
        )
    if classes is not None:
        return places(labels, classes)
    if labels.dtype == np.bool_ or (
        labels.dtype.kind == "f" and n and np.isfinite(labels).all() and (labels % 1 == 0).all()
    ):
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iu" and n:
        raise GCFCPError(
            f"y is of type {labels.dtype}: labels are whole numbers 0 ... {L - 1}, or name them "
            "with classes=[...], in the order of the columns"
        )
    bad = (labels < 0) | (labels >= L)
    if bad.any():
        row = int(bad.argmax())
        raise GCFCPError(f"y[{row}] = {labels[row]} is not a label: the labels are 0 ... {L - 1}")
    return labels.astype(np.intp, copy=False)
