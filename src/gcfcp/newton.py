"""Where the simplex starts: near the optimum of a smooth h.

h(beta) = sum_A f_A(theta_A), theta = Phi beta, has breakpoints at all scores; seen from afar it is
smooth. Each f_A is taken for a parabola, with its own slope at theta_A and the curvature of the
weight in a window around it, and Newton's steps on the sum of these lead near the minimum of h,
the nearer the narrower the windows get. Of the atoms that then lie closest to one of their own
scores, independent ones are the first basis.

Nothing depends on it but the number of pivots. Beside a start from the heaviest atoms, each on
its own quantile, it saves three quarters of them with 16 groups and a third with 256. Cost of a
step: O(|A+| r^2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gcfcp.pieces import Pieces, independent

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEPS = 12  # more save fewer pivots than they cost
_NARROWER = 0.8  # each window than the one before
_NARROWEST = 2.0**-20  # of the spread of all scores: no window is taken for less wide
_FLATTEST = 2.0**-40  # of the largest curvature: none is taken for less


def start(pieces: Pieces) -> tuple[Ints, Ints]:
    """Independent atoms (r,), and the breakpoint near theta of every atom (a,)."""
    finite = pieces.size - pieces.infinite
    last = np.maximum(finite - 1, 0)
    spread = float(np.ptp(pieces.values)) or 1.0
    values = pieces.values / spread
    own = [values[i : i + k] for i, k in zip(pieces.start.tolist(), finite.tolist(), strict=True)]
    at = np.array(
        [
            pieces.slopes[i + 1 : i + k + 1].searchsorted(0.0)
            for i, k in zip(pieces.first.tolist(), finite.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    theta, slope = values[pieces.start + np.minimum(at, last)], np.zeros(len(at))
    window = pieces.size ** (2 / 3) / 2
    for _ in range(_STEPS):
        reach = np.maximum(window, 1).astype(np.int64)
        low, high = np.maximum(np.minimum(at, last) - reach, 0), np.minimum(at + reach, last)
        width = np.maximum(values[pieces.start + high] - values[pieces.start + low], _NARROWEST)
        curvature = (
            pieces.slopes[pieces.first + high + 1] - pieces.slopes[pieces.first + low]
        ) / width
        theta = pieces.rows @ _minimum(pieces.rows, curvature, theta, slope)
        at = np.array(
            [mine.searchsorted(x) for mine, x in zip(own, theta.tolist(), strict=True)],
            dtype=np.int64,
        )
        slope = pieces.slopes[pieces.first + at]
        window = window * _NARROWER
    below, above = np.clip(at - 1, 0, last), np.minimum(at, last)
    down = np.abs(theta - values[pieces.start + below])
    up = np.abs(values[pieces.start + above] - theta)
    distance = np.where(finite > 0, np.minimum(down, up), np.inf)
    nearest = np.where(down < up, below, above)
    return independent(pieces.rows.copy(), np.argsort(distance, kind="stable")), nearest


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
