"""Where the simplex starts: near the optimum of a smooth h.

h(beta) = sum_A f_A(theta_A), theta = Phi beta, has breakpoints at all scores; seen from afar it is
smooth. Each f_A is taken for a parabola, with its own slope at theta_A and the curvature of the
weight in a window around it, and Newton's steps on the sum of these lead near the minimum of h,
the nearer the narrower the windows get. Of the atoms that then lie closest to one of their own
scores, independent ones are the first basis.

Nothing depends on it but the number of pivots. Beside a start from the heaviest atoms, each on
its own quantile, it saves three quarters of them with 16 groups and a third with 256; with many
scores an atom, nine tenths. It saves none where each atom has a few scores, or where they crowd at
the optimum; and where they have a gap there, it fails and says so.
Cost of a step: O(|A+| r^2), and one search in the scores of each atom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Floats, Ints
from gcfcp.solver.problem import Pieces, independent

_MOST_STEPS = 12  # more save fewer pivots than they cost
_NARROWER = 0.8  # each window than the one before
_NARROWEST = 2.0**-20  # of a usual window: none is taken for less wide
_FLATTEST = 2.0**-40  # of the largest curvature: none is taken for less
_BALANCED = 2.0**-7  # of a group's weight: h falls no faster, in any direction of beta


@dataclass(frozen=True)
class Guess:
    basis: Ints  # (r,): independent atoms
    at: Ints  # (a,): the breakpoint nearest to theta, of every atom
    close: bool  # few breakpoints are left between it and the optimum


def near_optimum(pieces: Pieces) -> Guess:
    with np.errstate(over="ignore", invalid="ignore"):  # scores of any size: then it is not close
        return _guess(pieces)


def _guess(pieces: Pieces) -> Guess:
    finite = pieces.size - pieces.infinite
    last = np.maximum(finite - 1, 0)
    ends = (pieces.start + finite).tolist()
    own = [pieces.values[i:k] for i, k in zip(pieces.start.tolist(), ends, strict=True)]
    at = np.array(
        [
            pieces.slopes[i + 1 : i + k + 1].searchsorted(0.0)
            for i, k in zip(pieces.first.tolist(), finite.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    theta, slope = pieces.values[pieces.start + np.minimum(at, last)], np.zeros(len(at))
    window, unit = pieces.size ** (2 / 3) / 2, 0.0
    for _ in range(min(4 + pieces.rows.shape[1], _MOST_STEPS)):  # pivots of few groups are cheap
        reach = np.maximum(window, 1).astype(np.int64)
        low, high = np.maximum(np.minimum(at, last) - reach, 0), np.minimum(at + reach, last)
        width = pieces.values[pieces.start + high] - pieces.values[pieces.start + low]
        unit = unit or float(np.median(width)) or 1.0
        mass = pieces.slopes[pieces.first + high + 1] - pieces.slopes[pieces.first + low]
        curvature = mass / np.maximum(width / unit, _NARROWEST)
        theta = pieces.rows @ _minimum(pieces.rows, curvature, theta / unit, slope) * unit
        at = np.array(
            [mine.searchsorted(x) for mine, x in zip(own, theta.tolist(), strict=True)],
            dtype=np.int64,
        )
        slope = pieces.slopes[pieces.first + at]
        window = window * _NARROWER
    below, above = np.clip(at - 1, 0, last), np.minimum(at, last)
    down = np.abs(theta - pieces.values[pieces.start + below])
    up = np.abs(pieces.values[pieces.start + above] - theta)
    distance = np.where(finite > 0, np.minimum(down, up), np.inf)
    return Guess(
        independent(pieces.rows.copy(), np.argsort(distance, kind="stable")),
        np.where(down < up, below, above),
        bool((np.abs(slope @ pieces.rows) <= _BALANCED * pieces.weight).all()),
    )


def _minimum(rows: Floats, curvature: Floats, theta: Floats, slope: Floats) -> Floats:
    """beta that minimises sum_A slope_A x_A + curvature_A (x_A - theta_A)^2 / 2, x = Phi beta."""
    curvature = np.maximum(curvature, _FLATTEST * curvature.max())
    weighted = rows * curvature[:, None]
    normal = weighted.T @ rows
    normal.flat[:: len(normal) + 1] *= 1 + _FLATTEST
    target = weighted.T @ theta - slope @ rows
    try:
        return np.asarray(np.linalg.solve(normal, target), dtype=np.float64)
    except np.linalg.LinAlgError:  # rounding can make it singular
        return np.asarray(np.linalg.lstsq(normal, target, rcond=None)[0], dtype=np.float64)
