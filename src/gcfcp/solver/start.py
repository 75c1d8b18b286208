"""Where the simplex starts: near the optimum of a smooth h.

h(beta) = sum_A f_A(theta_A), theta = Phi beta, has breakpoints at all scores, but seen from afar it
is smooth. Each f_A is replaced by its mean over a window around theta_A. The slope of this mean is
the mean slope of f_A in the window, and its curvature is the weight of the scores in the window,
divided by the width of the window. All windows have the same width: the curvature of an atom that
has few scores is then right on average, where a window of its own with two scores, which may be
very close, would give far too much. Newton's steps lead to the minimum of the smooth h. Each time a
whole step is not too long the windows get narrower, until they hold few scores. The first basis is
made of the atoms that then lie closest to one of their own scores.

Only the number of pivots depends on the start, never the outcome. With 40,000 records, 1,000 atoms
and 16, 64 or 256 groups, the walk to the optimum takes 13, 57 or 425 pivots from here. Where scores
differ by many orders of magnitude, no width is right for all of them. Then the guess is poor, and
`Guess.close` is False.

Cost of a step: O(a r^2) for a atoms of rank r, and some binary searches in the scores of each atom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Floats, Ints
from gcfcp.solver.equations import solved
from gcfcp.solver.problem import Pieces, independent
from gcfcp.solver.products import combined, product, times

_STEPS = 3  # So many steps are taken, one more for each group, and no more than _MOST_STEPS.
_MOST_STEPS = 24  # Further steps would cost more than the pivots that they save.
_MANY = 16  # Windows hold many scores if they hold more than this for each group.
_FEW = 2  # Windows that hold fewer scores than this for each group are narrow enough.
_WIDER = 4.0  # Windows that hold too few scores at first get so many times as wide.
_WIDENINGS = 20  # They do so at most so often.
_NARROWER = 0.6  # After a whole step windows have this part of their width,
_NARROWER_BY_FAR = 0.3  # or this part if they hold many scores.
_POINTS = 8  # The mean slope in a window is that of so many points, evenly spaced.
_INNER = (2 * np.arange(_POINTS) + 1) / _POINTS - 1  # Where these lie in a window from -1 to 1.
_PLACES = np.concatenate([[-1.0, 0.0, 1.0], _INNER])
_HALVINGS = 8  # At most so many lengths of a step are tried, each half of the one before.
_GOOD = 0.5  # A step is too long if h rises at its end by more than this part of its first fall.
_FLATTEST = 2.0**-20, 2.0**-12, 2.0**-4  # No parabola is flatter than this part of the steepest.
_BALANCED = 2.0**-7  # A guess is close if h falls by less than this part of a group's weight.


@dataclass(frozen=True)
class Guess:
    """A vertex to start from."""

    basis: Ints  # (r,): Independent atoms.
    at: Ints  # (a,): Every atom's breakpoint that is nearest to its theta.
    close: bool  # Few breakpoints lie between the guess and the optimum.


@dataclass(frozen=True)
class _Smooth:
    """The smooth h at some theta. All arrays are (a,)."""

    theta: Floats
    reach: float  # The windows reach from theta - reach to theta + reach.
    flat: int  # Which of _FLATTEST the last step took.
    at: Ints  # How many finite breakpoints lie below theta.
    slope: Floats  # The mean slope of f_A in its window.
    weight: Floats  # The weight of the scores in the window.
    scores: int  # How many scores are in all windows.


def near_optimum(pieces: Pieces) -> Guess:
    """A vertex near the minimum of h without a test point.

    Scores may be so large that a sum overflows, or so small that a window has no width. Then the
    guess is a vertex, but it is not close.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _vertex_near(pieces, _newton(pieces))


def _newton(pieces: Pieces) -> _Smooth:
    """Newton's steps from where each f_A is smallest by itself, with ever narrower windows.

    Families of few groups take fewer steps, because their pivots are cheap.
    """
    groups = pieces.rows.shape[1]
    here = _first(pieces)
    for _ in range(min(_STEPS + groups, _MOST_STEPS)):
        ahead = _ahead(pieces, here)
        if ahead is None:
            break
        here = ahead
        if here.scores < _FEW * groups:
            break
    return here


def _first(pieces: Pieces) -> _Smooth:
    """The thetas of some beta near those where each f_A is smallest, with windows that hold many
    scores."""
    here = _smooth(pieces, *_own_minima(pieces))
    here = _smooth(pieces, here.theta + _step(pieces, here), here.reach)
    enough = min(_MANY * pieces.rows.shape[1], int(pieces.size.sum()) // 4)
    for _ in range(_WIDENINGS):
        if here.scores >= enough:
            break
        here = _smooth(pieces, here.theta, _WIDER * here.reach)
    return here


def _ahead(pieces: Pieces, here: _Smooth) -> _Smooth | None:
    """Where the next step leads, with narrower windows if it is a whole one. None: no step leads
    down, as far as can be seen.

    Where windows are empty, h looks flat and steps are far too long. Then parabolas are taken to be
    less flat, from then on.
    """
    groups = pieces.rows.shape[1]
    many = here.scores > _MANY * groups
    narrower = here.reach * (_NARROWER_BY_FAR if many else _NARROWER)
    for flat in range(here.flat, len(_FLATTEST)):
        step = _step(pieces, here, _FLATTEST[flat])
        most = -_GOOD * float(here.slope @ step)
        whole = _smooth(pieces, here.theta + step, narrower, flat)
        if float(whole.slope @ step) <= most:
            return whole
        for k in range(min(groups, _HALVINGS)):
            ahead = _smooth(pieces, here.theta + 0.5**k * step, here.reach, flat)
            if float(ahead.slope @ step) <= most:
                return ahead if k else whole
    return None


def _smooth(pieces: Pieces, theta: Floats, reach: float, flat: int = 0) -> _Smooth:
    """The smooth h at theta, with windows from theta - reach to theta + reach.

    - `flat`: Which of _FLATTEST the step to here took.
    Cost: a binary search in the scores of each atom for each point.
    """
    points = theta[:, None] + reach * _PLACES
    ends = pieces.start + pieces.size - pieces.infinite
    limits = zip(pieces.start.tolist(), ends.tolist(), points, strict=True)
    below = np.array([pieces.values[i:k].searchsorted(x) for i, k, x in limits], dtype=np.int64)
    slopes = pieces.slopes[pieces.first[:, None] + below]
    return _Smooth(
        theta=theta,
        reach=reach,
        flat=flat,
        at=below[:, 1],
        slope=slopes[:, 3:].sum(axis=1) / _POINTS,
        weight=slopes[:, 2] - slopes[:, 0],
        scores=int((below[:, 2] - below[:, 0]).sum()),
    )


def _own_minima(pieces: Pieces) -> tuple[Floats, float]:
    """(a,): The finite score where each f_A is smallest, or its last one if that is at infinity;
    and how far the first windows reach: about n^(2/3) scores are in that of an atom of n."""
    finite = pieces.size - pieces.infinite
    last = np.maximum(finite - 1, 0)
    found = [
        pieces.slopes[i + 1 : i + k + 1].searchsorted(0.0)
        for i, k in zip(pieces.first.tolist(), finite.tolist(), strict=True)
    ]
    at = np.minimum(np.array(found, dtype=np.int64), last)
    half = np.maximum(pieces.size ** (2 / 3) / 2, 1).astype(np.int64)
    low, high = np.maximum(at - half, 0), np.minimum(at + half, last)
    width = pieces.values[pieces.start + high] - pieces.values[pieces.start + low]
    return pieces.values[pieces.start + at], float(np.median(width)) / 2 or 1.0


def _vertex_near(pieces: Pieces, smooth: _Smooth) -> Guess:
    """The vertex of the independent atoms whose theta lies closest to one of their own scores."""
    finite = pieces.size - pieces.infinite
    last = np.maximum(finite - 1, 0)
    below, above = np.clip(smooth.at - 1, 0, last), np.minimum(smooth.at, last)
    down = np.abs(smooth.theta - pieces.values[pieces.start + below])
    up = np.abs(pieces.values[pieces.start + above] - smooth.theta)
    distance = np.where(finite > 0, np.minimum(down, up), np.inf)
    slope = pieces.slopes[pieces.first + smooth.at]
    return Guess(
        independent(pieces.rows, np.argsort(distance, kind="stable")),
        np.where(down < up, below, above),
        bool((np.abs(slope @ pieces.rows) <= _BALANCED * pieces.weight).all()),
    )


def _step(pieces: Pieces, here: _Smooth, flattest: float = _FLATTEST[0]) -> Floats:
    """The change of theta, (a,), in one of Newton's steps. Cost: O(a r^2 + r^3)."""
    # Lengths are in units of `reach`, in which a curvature is half of the weight in its window.
    curvature = np.maximum(here.weight / 2, flattest * here.weight.max())
    beta = _minimum(pieces.rows, curvature, here.theta / here.reach, here.slope)
    return np.asarray(here.reach * times(beta[None], pieces.rows)[0] - here.theta)


def _minimum(rows: Floats, curvature: Floats, theta: Floats, slope: Floats) -> Floats:
    """beta that minimises sum_A slope_A x_A + curvature_A (x_A - theta_A)^2 / 2, x = Phi beta."""
    normal = product((rows * curvature[:, None]).T, rows)
    target = combined((curvature * theta - slope)[None], rows)[0]
    try:
        return solved(normal, target[:, None])[:, 0]
    except np.linalg.LinAlgError:  # Rounding can make the matrix singular.
        return np.asarray(np.linalg.lstsq(normal, target, rcond=None)[0], dtype=np.float64)
