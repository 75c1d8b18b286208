"""Where the simplex starts: near the optimum of a smooth h.

h(beta) = sum_A f_A(theta_A), theta = Phi beta, has breakpoints at all scores, but seen from afar it
is smooth. Each f_A is replaced by a parabola. The parabola has the slope of f_A at theta_A, and its
curvature is the weight of the scores in a window around theta_A, divided by the width of the
window. Newton's steps on the sum of the parabolas lead near the minimum of h, and the narrower the
windows get, the nearer. The first basis is made of the atoms that then lie closest to one of their
own scores.

Only the number of pivots depends on the start, never the outcome. Compared with a start from the
heaviest atoms, each at its own quantile, it saves three quarters of the pivots with 16 groups, a
third with 256, and nine tenths where atoms have many scores. It saves none where atoms have few
scores, or where scores crowd at the optimum. If the scores have a gap at the optimum, the guess is
poor, and `Guess.close` is False.

Cost of a step: O(a r^2) for a atoms of rank r, and one binary search in the scores of each atom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Floats, Ints
from gcfcp.solver.problem import Pieces, independent
from gcfcp.solver.products import combined, product, solved, times

_MOST_STEPS = 12  # Further steps would cost more than the pivots that they save.
_NARROWER = 0.8  # Each window has this part of the breakpoints of the one before.
_NARROWEST = 2.0**-20  # No window is taken to be narrower than this part of the median window.
_FLATTEST = 2.0**-40  # No parabola is taken to be flatter than this part of the steepest one.
_BALANCED = 2.0**-7  # A guess is close if h falls by less than this part of a group's weight.


@dataclass(frozen=True)
class Guess:
    """A vertex to start from."""

    basis: Ints  # (r,): Independent atoms.
    at: Ints  # (a,): Every atom's breakpoint that is nearest to its theta.
    close: bool  # Few breakpoints lie between the guess and the optimum.


@dataclass(frozen=True)
class _Smooth:
    """Where Newton's steps have led. All arrays are (a,)."""

    theta: Floats
    at: Ints  # How many finite breakpoints lie below theta.
    slope: Floats  # The slope of f_A at theta.


def near_optimum(pieces: Pieces) -> Guess:
    """A vertex near the minimum of h without a test point.

    Scores may be so large that a sum overflows. Then the guess is a vertex, but it is not close.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _vertex_near(pieces, _newton(pieces))


def _newton(pieces: Pieces) -> _Smooth:
    """Newton's steps from where each f_A is smallest by itself, with ever narrower windows.

    Families of few groups take fewer steps, because their pivots are cheap.
    """
    finite = pieces.size - pieces.infinite
    last = np.maximum(finite - 1, 0)
    ends = (pieces.start + finite).tolist()
    own = [pieces.values[i:k] for i, k in zip(pieces.start.tolist(), ends, strict=True)]
    at = _own_minima(pieces, finite)
    theta, slope = pieces.values[pieces.start + np.minimum(at, last)], np.zeros(len(at))
    window, unit = pieces.size ** (2 / 3) / 2, 0.0
    for _ in range(min(4 + pieces.rows.shape[1], _MOST_STEPS)):
        reach = np.maximum(window, 1).astype(np.int64)
        low, high = np.maximum(np.minimum(at, last) - reach, 0), np.minimum(at + reach, last)
        width = pieces.values[pieces.start + high] - pieces.values[pieces.start + low]
        unit = unit or float(np.median(width)) or 1.0
        mass = pieces.slopes[pieces.first + high + 1] - pieces.slopes[pieces.first + low]
        curvature = mass / np.maximum(width / unit, _NARROWEST)
        beta = _minimum(pieces.rows, curvature, theta / unit, slope)
        theta = times(beta[None], pieces.rows)[0] * unit
        found = [mine.searchsorted(x) for mine, x in zip(own, theta.tolist(), strict=True)]
        at = np.array(found, dtype=np.int64)
        slope = pieces.slopes[pieces.first + at]
        window = window * _NARROWER
    return _Smooth(theta, at, slope)


def _own_minima(pieces: Pieces, finite: Ints) -> Ints:
    """(a,): The finite breakpoint where each f_A is smallest; their number if it is at infinity."""
    found = [
        pieces.slopes[i + 1 : i + k + 1].searchsorted(0.0)
        for i, k in zip(pieces.first.tolist(), finite.tolist(), strict=True)
    ]
    return np.array(found, dtype=np.int64)


def _vertex_near(pieces: Pieces, smooth: _Smooth) -> Guess:
    """The vertex of the independent atoms whose theta lies closest to one of their own scores."""
    finite = pieces.size - pieces.infinite
    last = np.maximum(finite - 1, 0)
    below, above = np.clip(smooth.at - 1, 0, last), np.minimum(smooth.at, last)
    down = np.abs(smooth.theta - pieces.values[pieces.start + below])
    up = np.abs(pieces.values[pieces.start + above] - smooth.theta)
    distance = np.where(finite > 0, np.minimum(down, up), np.inf)
    return Guess(
        independent(pieces.rows, np.argsort(distance, kind="stable")),
        np.where(down < up, below, above),
        bool((np.abs(smooth.slope @ pieces.rows) <= _BALANCED * pieces.weight).all()),
    )


def _minimum(rows: Floats, curvature: Floats, theta: Floats, slope: Floats) -> Floats:
    """beta that minimises sum_A slope_A x_A + curvature_A (x_A - theta_A)^2 / 2, x = Phi beta.

    Cost: O(a r^2 + r^3).
    """
    curvature = np.maximum(curvature, _FLATTEST * curvature.max())
    weighted = rows * curvature[:, None]
    normal = product(weighted.T, rows)
    normal.flat[:: len(normal) + 1] *= 1 + _FLATTEST
    target = combined((curvature * theta - slope)[None], rows)[0]
    try:
        return solved(normal, target[:, None])[:, 0]
    except np.linalg.LinAlgError:  # Rounding can make the matrix singular.
        return np.asarray(np.linalg.lstsq(normal, target, rcond=None)[0], dtype=np.float64)
