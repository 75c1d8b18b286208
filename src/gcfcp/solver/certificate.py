"""Whether a walk has arrived: the first-order condition, which proves a threshold optimal.

The multipliers of the basis must lie between the slopes on both sides of the scores that it rests
on, and every other score must lie on its side of theta. Where floats cannot tell, `unsure` says so,
and rational arithmetic decides (`exact`); what comes from there is looked at once more (`refuted`).
"""

from __future__ import annotations

import math

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.solver.problem import ZERO, Pieces
from gcfcp.solver.walk import (
    Walk,
    along,
    exact_gaps,
    multipliers,
    put,
    resting_scores,
    thetas,
    violation,
)

_SMALL_DENOMINATOR = 64


def unsure(pieces: Pieces, walk: Walk) -> Bools:
    """Whether it is still open that a walk is at its optimum.

    Floats settle a comparison if the difference is beyond rounding, or if all numbers are whole
    and rounding is below the smallest difference there can be: y and theta are multiples of
    1 / det(Phi_basis). Then what looks like a tie is one.
    """
    found = multipliers(pieces, walk)
    unsure: Bools = violation(walk, found)[1] != 0
    if pieces.lossy:
        return np.ones_like(unsure)
    fraction = np.exp(-np.linalg.slogdet(pieces.rows[walk.basis])[1])[:, None]
    if pieces.whole:
        room = np.minimum(found.y - found.low, found.high - found.y)
        tolerance = found.tolerance
        open_ties = ((room <= tolerance) & (2 * tolerance >= fraction)).nonzero()
        for i, b in zip(*(x.tolist() for x in open_ties), strict=True):
            if unsure[i]:
                continue
            column = walk.inverse[i, :, b]
            unsure[i] = (
                2 * tolerance[i, b] * _denominator(pieces.rows[walk.basis[i]], b, column) >= 1
            )
    number, far, noise = thetas(pieces, walk)
    finite = pieces.size - pieces.infinite
    number[far > ZERO], number[far < -ZERO] = np.inf, -np.inf
    last = pieces.values[pieces.start + np.maximum(walk.at, 1) - 1]
    following = pieces.values[pieces.start + np.minimum(walk.at, pieces.size - 1)]
    behind = np.where((walk.at == 0) | (walk.at > finite), np.inf, number - last)
    ahead = np.where(walk.at >= finite, np.inf, following - number)
    if pieces.infinite.any():  # around infinity the levels must be clear of each other
        behind[(walk.at > finite) & (far <= 1 + ZERO)] = -np.inf
        ahead[pieces.infinite & (walk.at == finite) & (far >= 1 - ZERO)] = -np.inf
    room = np.minimum(behind, ahead)
    put(room, walk.basis, np.inf)
    tied = (room >= -noise) & (2 * noise < fraction * pieces.grain)
    close = (room <= noise) & ~tied
    for i in (close.any(axis=1) & ~unsure).nonzero()[0].tolist():
        unsure[i] = not _in_place(pieces, walk, i, np.flatnonzero(close[i]))
    return unsure


def refuted(pieces: Pieces, walk: Walk) -> Bools:
    """Whether a walk is not at its optimum, beyond all rounding.

    The judge's verdict is checked once more, by other means: no walk, no ties, only whether each
    multiplier is within its slopes and each score on its side of theta.
    """
    found = multipliers(pieces, walk)
    outside = np.maximum(found.low - found.y, found.y - found.high) > 2 * found.tolerance
    number, far, noise = thetas(pieces, walk)
    finite = pieces.size - pieces.infinite
    last = pieces.values[pieces.start + np.maximum(walk.at, 1) - 1]
    following = pieces.values[pieces.start + np.minimum(walk.at, pieces.size - 1)]
    passed = (walk.at > 0) & (walk.at <= finite) & (last - number > 2 * noise)
    missed = (walk.at < finite) & (number - following > 2 * noise)
    astray = (passed | missed) & (np.abs(far) <= ZERO)
    put(astray, walk.basis, False)
    return np.logical_or(outside.any(axis=1), astray.any(axis=1))


def _denominator(matrix: Floats, b: int, column: Floats) -> float:
    """The least common denominator of column b of matrix's inverse; infinite if it is not small."""
    for k in range(1, _SMALL_DENOMINATOR + 1):
        whole = np.rint(k * column)
        if np.abs(whole - k * column).max() < ZERO:
            unit = np.zeros(len(column))
            unit[b] = k
            return k if np.array_equal(matrix @ whole, unit) else math.inf
    return math.inf


def _in_place(pieces: Pieces, walk: Walk, i: int, atoms: Ints) -> bool:
    """Whether theta of these atoms lies between the scores that `at` says, exactly."""
    at, finite = walk.at[i, atoms], (pieces.size - pieces.infinite)[atoms]
    own = walk[np.array([i])]
    far = along(pieces, own, resting_scores(pieces, own)[1])[0, atoms]
    if (np.abs(far) > ZERO).any():
        return False
    shift = pieces.tie - along(pieces, own, pieces.tie[own.basis])[0]
    for there, side in ((at - 1, -1), (at, 1)):
        has = (there >= 0) & (there < finite)
        gaps = exact_gaps(pieces, walk, i, atoms[has], there[has])
        if gaps is None:
            return False
        for gap, tie in zip(gaps[0], shift[atoms[has]].tolist(), strict=True):
            if side * (gap or tie) <= 0:
                return False
    return True
