"""Conformity scores, each with its inverse: what is compared, and the set that this gives.

A score s(x, y) is large where y disagrees with the model's prediction at x. `of` computes it for
calibration rows; `predict` inverts it, returning every y whose score is at most the threshold:

| class              | prediction at x   | score of y                              |
|--------------------|-------------------|-----------------------------------------|
| `AbsoluteResidual` | f(x)              | abs(y - f(x))                           |
| `CQR`              | lo(x), hi(x)      | max(lo - y, y - hi)                     |
| `THR`              | p_1(x) ... p_L(x) | 1 - p_y                                 |
| `APS`              | p_1(x) ... p_L(x) | p of all labels ranked above y, + u p_y |
| `RAPS`             | p_1(x) ... p_L(x) | APS + lam max(0, rank of y - k_reg)     |

Sources: Lei et al. 2018 (residual); Romano, Patterson, Candes 2019 (CQR); Sadinle, Lei, Wasserman
2019 (THR); Romano, Sesia, Candes 2020 (APS); Angelopoulos et al. 2021, eq. 4 (RAPS).

Guarantee: sets agree with scores to the last bit, ties included: with the same u, y is in
`predict(prediction, t)` if and only if `of(prediction, y) <= t`. The sets compare the very numbers
that `of` returns. An interval always holds every such y; where its end would be rounded past one,
it is moved outwards by the last digit of the threshold. Sets grow with the threshold; t = inf
gives all labels or the whole line, t = -inf nothing.

Scores are computed in float64, whatever the input: float32 predictions are widened exactly, so
they must be neither rounded nor recomputed between calibration and prediction.

Cost: one pass over the predictions in blocks that stay in the cache, checks included, and no
temporary of their size; APS and RAPS sort each row.

A score of your own is any object with `of` and `predict` (`Score`). It may also have `name`,
`parameters` (JSON values that tell it from its siblings), `lower`, `upper` (limits that the score
never passes) and `kind` ("set" or "interval").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gcfcp import checks
from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError

__all__ = ["APS", "CQR", "RAPS", "THR", "AbsoluteResidual", "Score", "from_name"]

SUM_TOLERANCE = 1e-3  # of a row of probabilities: float16 softmax over 1,000 labels stays within
RANGE_TOLERANCE = 1e-6  # below 0; such values are taken as 0, and values above 1 as 1
_BLOCK = 1 << 16  # numbers in a block: 512 kB of float64


@runtime_checkable
class Score(Protocol):
    """What a score must do."""

    def of(self, prediction: Any, y: Any, rng: Generator | None = None) -> Floats:
        """The scores (n,) of the outcomes y."""

    def predict(
        self, prediction: Any, thresholds: Any, rng: Generator | None = None
    ) -> NDArray[Any]:
        """The outcomes with a score of at most the threshold: bool (n, L) or float (n, 2)."""


class _Named:
    name: ClassVar[str]
    kind: ClassVar[Literal["set", "interval"]]
    lower: ClassVar[float]
    upper: ClassVar[float]

    @property
    def parameters(self) -> dict[str, float | int | bool]:
        """What tells this score from others of its name, as JSON values."""
        return dict(vars(self))  # a dataclass: its fields and nothing else


# --- intervals --------------------------------------------------------------------------------


@dataclass(frozen=True)
class AbsoluteResidual(_Named):
    """s = |y - f|, inverted by [f - t, f + t]. `prediction`: f, of shape (n,)."""

    name = "residual"
    kind = "interval"
    lower = 0.0
    upper = np.inf

    def of(self, prediction: Any, y: Any, rng: Generator | None = None) -> Floats:
        f = _finite("prediction", prediction, 1)
        return np.abs(_outcomes(y, len(f)) - f)

    def predict(self, prediction: Any, thresholds: Any, rng: Generator | None = None) -> Floats:
        """Intervals (n, 2), ends included; (nan, nan) where none exists, which is for t < 0."""
        f = _finite("prediction", prediction, 1)
        t = _thresholds(thresholds, len(f))
        # No residual is negative: without this, rounding outwards from t = -5e-324 would admit f.
        return _interval(f, f, np.where(t < 0, -np.inf, t))


@dataclass(frozen=True)
class CQR(_Named):
    """s = max(lo - y, y - hi), inverted by [lo - t, hi + t]. `prediction`: (lo, hi), (n, 2).

    Quantiles may cross (lo > hi); the score is then positive everywhere, and valid all the same.
    """

    name = "cqr"
    kind = "interval"
    lower = -np.inf
    upper = np.inf

    def of(self, prediction: Any, y: Any, rng: Generator | None = None) -> Floats:
        lo, hi = _quantiles(prediction)
        outcomes = _outcomes(y, len(lo))
        return np.maximum(lo - outcomes, outcomes - hi)

    def predict(self, prediction: Any, thresholds: Any, rng: Generator | None = None) -> Floats:
        """Intervals (n, 2), ends included; (nan, nan) where lo - t > hi + t: an empty one."""
        lo, hi = _quantiles(prediction)
        return _interval(lo, hi, _thresholds(thresholds, len(lo)))


def _interval(lo: Floats, hi: Floats, t: Floats) -> Floats:
    t = np.broadcast_to(t, lo.shape)
    out = np.stack([-_reach(-lo, t), _reach(hi, t)], axis=1)
    # An empty interval has no ends: NaN compares false with every y, and shows up in a mean width.
    out[(out[:, 0] > out[:, 1]) | (t == -np.inf)] = np.nan
    return out


def _reach(f: Floats, t: Floats) -> Floats:
    """f + t, or somewhat more where a larger y has y - f <= t as computed.

    Then y - f < t+ exactly, t+ being the next number after t, so that y <= fl(f + t+).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        end = f + t
        beyond = np.nextafter(end, np.inf) - f <= t
        return np.where(beyond, f + np.nextafter(t, np.inf), end)


# --- sets -------------------------------------------------------------------------------------


class _SetScore(_Named):
    """A score of labels 0 ... L-1. `prediction`: probabilities (n, L), whose rows sum to 1."""

    kind = "set"

    def _scores(self, p: Floats, u: Floats) -> Floats:
        """All labels' scores (m, L) of a block of rows; u is (m, 1)."""
        raise NotImplementedError

    def _draw(self, n: int, rng: Generator | None) -> Floats:
        return np.ones((n, 1))

    def all(self, prediction: Any, rng: Generator | None = None) -> Floats:
        """The scores (n, L) of all labels."""
        probabilities = _matrix(prediction)
        out = np.empty(probabilities.shape)
        for rows, scores in self._blocks(probabilities, rng):
            out[rows] = scores
        return out

    def of(self, prediction: Any, y: Any, rng: Generator | None = None) -> Floats:
        """The scores (n,) of the labels y."""
        probabilities = _matrix(prediction)
        labels = _labels(y, *probabilities.shape)
        out = np.empty(len(labels))
        for rows, scores in self._blocks(probabilities, rng):
            out[rows] = scores[np.arange(len(scores)), labels[rows]]
        return out

    def predict(self, prediction: Any, thresholds: Any, rng: Generator | None = None) -> Bools:
        """The sets (n, L). `thresholds`: one for all, one a row, or (n, L) one a row and label."""
        probabilities = _matrix(prediction)
        t = _label_thresholds(thresholds, *probabilities.shape)
        out = np.empty(probabilities.shape, dtype=np.bool_)
        for rows, scores in self._blocks(probabilities, rng):
            np.less_equal(scores, t[rows], out=out[rows])
        return out

    def _blocks(
        self, probabilities: NDArray[Any], rng: Generator | None
    ) -> Iterator[tuple[slice, Floats]]:
        # All at once, so that u does not depend on the size of a block.
        u = self._draw(len(probabilities), rng)
        for rows in _checked_rows(probabilities):
            # Float64 in [0, 1]: what the tolerances let through is clipped.
            p = probabilities[rows].astype(np.float64)
            yield rows, self._scores(np.clip(p, 0.0, 1.0, out=p), u[rows])


@dataclass(frozen=True)
class THR(_SetScore):
    """s = 1 - p_y: the labels with probability at least 1 - t. Also known as LAC."""

    name = "thr"
    lower = 0.0
    upper = 1.0

    def _scores(self, p: Floats, u: Floats) -> Floats:
        return 1.0 - p

    def of(self, prediction: Any, y: Any, rng: Generator | None = None) -> Floats:
        """The scores (n,) of the labels y, without computing those of the others."""
        probabilities = _matrix(prediction)
        labels = _labels(y, *probabilities.shape)
        p = np.empty(len(labels))
        for rows in _checked_rows(probabilities):
            block = probabilities[rows]
            p[rows] = block[np.arange(len(block)), labels[rows]]
        return 1.0 - np.clip(p, 0.0, 1.0)

    def predict(self, prediction: Any, thresholds: Any, rng: Generator | None = None) -> Bools:
        """The sets (n, L), as for every score, but without computing scores: p is compared."""
        if np.ndim(thresholds) == 2:
            return super().predict(prediction, thresholds, rng)
        p = _matrix(prediction)
        least = _round_up(_least_probability(_thresholds(thresholds, len(p))), p.dtype)[:, None]
        out = np.empty(p.shape, dtype=np.bool_)
        for rows in _checked_rows(p):
            np.greater_equal(p[rows], least[rows], out=out[rows])
        return out


def _least_probability(t: Floats) -> Floats:
    """The smallest float64 p with 1 - p <= t as computed, so that p >= it is the same test.

    For t < 1/2 such p are at least 1/2, where 1 - p is exact: it is 1 - t, rounded up. From 1/2 on
    numbers lie 2^-53 apart, so 1 - p is rounded to t from as far as 2^-54 above, t's last bit
    deciding a tie. Scores lie in [0, 1], so none is at most t < 0, and all are at most t >= 1.
    """
    inside = np.clip(t, 0.0, 1.0)
    p = (1.0 - inside) - np.where(inside >= 0.5, 2.0**-54, 0.0)
    low = 1.0 - p > inside
    p[low] = np.nextafter(p[low], np.inf)
    p[t < 0], p[t >= 1] = np.inf, -np.inf
    return p


def _round_up(values: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The next number of a narrower type: the same bound for numbers of that type."""
    if dtype == values.dtype:
        return values
    rounded = values.astype(dtype)
    return np.where(rounded < values, np.nextafter(rounded, dtype.type(np.inf)), rounded)


class _RankedScore(_SetScore):
    """What `APS` and `RAPS` share: sums of probabilities in the order of the labels' ranks."""

    randomized: bool

    def __post_init__(self) -> None:
        if not isinstance(self.randomized, bool | np.bool_):
            raise GCFCPError(f"randomized={self.randomized!r} is not True or False")
        object.__setattr__(self, "randomized", bool(self.randomized))

    def _draw(self, n: int, rng: Generator | None) -> Floats:
        if not self.randomized:
            return super()._draw(n, rng)
        if not isinstance(rng, Generator):
            raise GCFCPError(
                f"{self.name} is randomized: give rng=numpy.random.default_rng(seed), "
                f"not {rng!r:.40}, or use randomized=False"
            )
        return rng.random((n, 1))

    def _scores(self, p: Floats, u: Floats) -> Floats:
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=1)
        above = np.zeros_like(ranked)
        np.cumsum(ranked[:, :-1], axis=1, out=above[:, 1:])
        by_rank = np.minimum(above + u * ranked, 1.0) + self._penalty(p.shape[1])
        scores = np.empty_like(by_rank)
        np.put_along_axis(scores, order, by_rank, axis=1)
        return scores

    def _penalty(self, L: int) -> Floats:
        """What is added at rank 1, 2, ..., L."""
        return np.zeros(L)


@dataclass(frozen=True)
class APS(_RankedScore):
    """s = sum of p_j over the labels j ranked above y, + u p_y.

    Labels are ranked by falling probability, equal ones by label. u is uniform on [0, 1), one a
    row, from the generator `rng`; with `randomized=False` u = 1 and sets are somewhat larger. The
    labels of a set are always the highest ranked. Sums that rounding lifts above 1 count as 1.
    """

    randomized: bool = True

    name = "aps"
    lower = 0.0
    upper = 1.0


@dataclass(frozen=True)
class RAPS(_RankedScore):
    """s = sum of p_j over the labels j ranked above y, + u p_y, + lam max(0, rank of y - k_reg).

    The rank of the most probable label is 1. Only the middle term is randomised. As `APS`
    otherwise; the penalty keeps sets small where the tail of the probabilities is noise.
    """

    lam: float = 0.01
    k_reg: int = 5
    randomized: bool = True

    name = "raps"
    lower = 0.0
    upper = np.inf  # the penalty grows with the number of labels

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lam", checks.at_least("lam", self.lam, 0))
        object.__setattr__(self, "k_reg", checks.whole("k_reg", self.k_reg))

    def _penalty(self, L: int) -> Floats:
        penalty: Floats = self.lam * np.maximum(0, np.arange(1, L + 1) - self.k_reg)
        return penalty


# --- by name ----------------------------------------------------------------------------------

_BY_NAME: dict[str, Any] = {s.name: s for s in (AbsoluteResidual, CQR, THR, APS, RAPS)}
NAMES = tuple(_BY_NAME)


def from_name(name: str, parameters: Mapping[str, Any] | None = None) -> Score:
    """The score that a file names, as written by its `name` and `parameters`."""
    if name not in _BY_NAME:
        raise GCFCPError(f"score {name!r} is not one of {', '.join(_BY_NAME)}")
    known = _BY_NAME[name]
    given = dict(parameters or {})
    if unknown := given.keys() - {parameter.name for parameter in fields(known)}:
        raise GCFCPError(f"score {name!r} has no parameter {sorted(map(str, unknown))[0]!r}")
    score: Score = known(**given)
    return score


def describe(score: Any) -> tuple[str, dict[str, Any]]:
    """Name and parameters of a score object, or of a score that is only named."""
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
    """As an array of real numbers, floating or whole."""
    try:
        array = np.asarray(values)
        if array.dtype == object:  # pandas columns of mixed numbers; None becomes NaN
            array = array.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise GCFCPError(f"{name} is not an array of numbers: {error}") from None
    if array.dtype.kind not in "fiu":
        raise GCFCPError(f"{name} is of type {array.dtype}, not numbers")
    return array


def _finite(name: str, values: Any, ndim: int) -> Floats:
    array = _array(name, values).astype(np.float64, copy=False)
    if array.ndim != ndim:
        expected = "(n,)" if ndim == 1 else "(n, 2)"
        raise GCFCPError(f"{name} has shape {array.shape}, expected {expected}")
    bad = ~np.isfinite(array)
    if bad.any():
        at = np.argwhere(bad)[0]
        raise GCFCPError(f"{name}[{', '.join(map(str, at))}] = {array[tuple(at)]} is not finite")
    return array


def _outcomes(y: Any, n: int) -> Floats:
    outcomes = _finite("y", y, 1)
    if len(outcomes) != n:
        raise GCFCPError(f"y has {len(outcomes)} rows, prediction has {n}")
    return outcomes


def _quantiles(prediction: Any) -> tuple[Floats, Floats]:
    pairs = _finite("prediction", prediction, 2)
    if pairs.shape[1] != 2:
        raise GCFCPError(f"prediction has shape {pairs.shape}, expected (n, 2): lower, upper")
    return pairs[:, 0], pairs[:, 1]


def _thresholds(thresholds: Any, n: int) -> Floats:
    t = _array("thresholds", thresholds).astype(np.float64, copy=False)
    if np.isnan(t).any():
        raise GCFCPError(f"thresholds: {int(np.isnan(t).sum())} of {t.size} are NaN")
    if t.ndim == 0:
        return np.full(n, t)
    if t.shape != (n,):
        raise GCFCPError(f"thresholds have shape {t.shape}, expected one number or ({n},)")
    return t


def _label_thresholds(thresholds: Any, n: int, L: int) -> Floats:
    """As (n, 1) or (n, L), to be compared with scores (n, L)."""
    if np.ndim(thresholds) < 2:
        return _thresholds(thresholds, n)[:, None]
    t = np.asarray(thresholds)
    if t.shape != (n, L):
        raise GCFCPError(
            f"thresholds have shape {t.shape}, expected one number, ({n},) or ({n}, {L})"
        )
    return _thresholds(t.ravel(), n * L).reshape(n, L)


def _matrix(prediction: Any) -> NDArray[Any]:
    """Probabilities as a floating matrix, its values not yet looked at."""
    array = _array("probabilities", prediction)
    if array.ndim != 2 or array.shape[1] == 0:
        raise GCFCPError(f"probabilities have shape {array.shape}, expected (n, L) with L >= 1")
    if array.dtype == np.float16:
        return array.astype(np.float32)  # to sum in
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _checked_rows(probabilities: NDArray[Any]) -> Iterator[slice]:
    """The rows in blocks, each found to hold probabilities and now in the cache."""
    n, L = probabilities.shape
    step = max(1, _BLOCK // L)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        _check_block(probabilities[rows], start)
        yield rows


def _check_block(block: NDArray[Any], start: int) -> None:
    """Sums near 1 and no value below 0 keep values from being far above 1, too."""
    sums = np.einsum("ij->i", block)  # up to 4 x faster than sum(axis=1), which goes row by row
    good = np.abs(sums - 1.0) <= SUM_TOLERANCE  # not so for NaN
    if not good.all():
        row = int(good.argmin())
        why = "" if np.isfinite(sums[row]) else ": a value is not finite"
        raise GCFCPError(
            f"probabilities of row {start + row} sum to {float(sums[row]):.6g}, "
            f"not to 1 within {SUM_TOLERANCE}{why}"
        )
    if block.min() < -RANGE_TOLERANCE:
        row, label = divmod(int(block.argmin()), block.shape[1])
        raise GCFCPError(
            f"probability of row {start + row}, label {label} is "
            f"{float(block[row, label]):.6g}, below 0"
        )


def _labels(y: Any, n: int, L: int) -> NDArray[np.integer]:
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise GCFCPError(f"y has shape {labels.shape}, expected ({n},): one label a row")
    if labels.dtype.kind not in "iu" and n:
        raise GCFCPError(f"y is of type {labels.dtype}: labels are whole numbers 0 ... {L - 1}")
    bad = (labels < 0) | (labels >= L)
    if bad.any():
        row = int(bad.argmax())
        raise GCFCPError(f"y[{row}] = {labels[row]} is not a label: they are 0 ... {L - 1}")
    return labels.astype(np.intp, copy=False)
