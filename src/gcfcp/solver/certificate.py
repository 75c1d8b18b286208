"""Whether a walk has arrived: the first-order condition, which proves a threshold optimal.

The multiplier of each basic atom must lie between the slopes on both sides of the score that the
atom rests on, and every score of every other atom must lie on its side of theta, as `Walk.at`
says. Where floats cannot tell, `unsure` says so, and rational arithmetic decides (`exact`). What
comes from there is checked once more (`refuted`).
"""

from __future__ import annotations

import math

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.solver.problem import ZERO, Pieces
from gcfcp.solver.products import times
from gcfcp.solver.vertex import (
    Multipliers,
    Walk,
    along,
    exact_gaps,
    multipliers,
    offenders,
    put,
    resting_scores,
    thetas,
)

_SMALL_DENOMINATOR = 64  # A denominator of an inverse is sought up to this size.


def unsure(pieces: Pieces, walk: Walk) -> Bools:
    """(m,): Whether floats leave it open that a test row is at its optimum.

    Floats settle a comparison if the difference is beyond rounding. They also settle it if all
    numbers are whole and rounding is below the smallest difference there can be, because y and
    theta are multiples of 1 / det(Phi_basis). Then what looks like a tie is one.
    Cost: O(a r) for each test row, and rational numbers for the scores that are too close.
    """
    found = multipliers(pieces, walk)
    unsure: Bools = offenders(walk, found).direction != 0
    if pieces.lossy:
        return np.ones_like(unsure)
    fraction = smallest_differences(walk)[:, None]
    if pieces.whole:
        _doubt_weights(pieces, walk, found, fraction, unsure)
    _doubt_scores(pieces, walk, fraction, unsure)
    return unsure


def smallest_differences(walk: Walk) -> Floats:
    """(m,): 1 / |det(Phi_basis)|. Multiples of it are what whole numbers give for y and theta."""
    return np.asarray(np.exp(-walk.volume), dtype=np.float64)


def refuted(pieces: Pieces, walk: Walk) -> Bools:
    """(m,): Whether a test row is not at its optimum, beyond all rounding.

    The judge's verdict is checked once more, by other means: without a walk and without ties, only
    whether each multiplier is within its slopes and each score on its side of theta.
    """
    found = multipliers(pieces, walk)
    outside = np.maximum(found.low - found.y, found.y - found.high) > 2 * found.tolerance
    number, far, noise = thetas(pieces, walk)
    finite = pieces.size - pieces.infinite
    last, following = _scores_around(pieces, walk)
    passed = (walk.at > 0) & (walk.at <= finite) & (last - number > 2 * noise)
    missed = (walk.at < finite) & (number - following > 2 * noise)
    astray = (passed | missed) & (np.abs(far) <= ZERO)
    put(astray, walk.basis, False)
    return np.logical_or(outside.any(axis=1), astray.any(axis=1))


def _scores_around(pieces: Pieces, walk: Walk) -> tuple[Floats, Floats]:
    """(m, a): The last score below theta and the first one above it, as `at` says.

    Where there is none, some other score of the atom stands in its place and must be ignored.
    """
    last = pieces.values[pieces.start + np.maximum(walk.at, 1) - 1]
    following = pieces.values[pieces.start + np.minimum(walk.at, pieces.size - 1)]
    return last, following


def _doubt_weights(
    pieces: Pieces, walk: Walk, found: Multipliers, fraction: Floats, unsure: Bools
) -> None:
    """Set `unsure` where a multiplier is within rounding of its slopes and could be elsewhere.

    Slopes are whole here and y is a multiple of 1 / denominator of a column of the inverse, so a
    rounding of less than half of that decides. |det(Phi_basis)| = 1 / `fraction` is a multiple of
    every such denominator and is tried first.
    """
    room = np.minimum(found.y - found.low, found.high - found.y)
    tolerance = found.tolerance
    open_ties = ((room <= tolerance) & (2 * tolerance >= fraction)).nonzero()
    for i, b in zip(*(x.tolist() for x in open_ties), strict=True):
        if not unsure[i]:
            denominator = _denominator(pieces.rows[walk.basis[i]], b, walk.inverse[i, :, b])
            unsure[i] = 2 * tolerance[i, b] * denominator >= 1


def _doubt_scores(pieces: Pieces, walk: Walk, fraction: Floats, unsure: Bools) -> None:
    """Set `unsure` where a score outside the basis may lie on the other side of theta."""
    number, far, noise = thetas(pieces, walk)
    room = _room(pieces, walk, number, far)
    put(room, walk.basis, np.inf)
    tied = (room >= -noise) & (2 * noise < fraction * pieces.grain)
    close = (room <= noise) & ~tied
    for i in (close.any(axis=1) & ~unsure).nonzero()[0].tolist():
        unsure[i] = not _in_place(pieces, walk, i, np.flatnonzero(close[i]))


def _room(pieces: Pieces, walk: Walk, number: Floats, far: Floats) -> Floats:
    """(m, a): How far theta is from the scores around it; negative if it lies beyond one of them.

    `number` and `far` are theta and its multiple of infinity. Between theta and a score that are
    both at infinity, their levels must be clear of each other.
    """
    finite = pieces.size - pieces.infinite
    number = np.where(far > ZERO, np.inf, np.where(far < -ZERO, -np.inf, number))
    last, following = _scores_around(pieces, walk)
    behind = np.where((walk.at == 0) | (walk.at > finite), np.inf, number - last)
    ahead = np.where(walk.at >= finite, np.inf, following - number)
    if pieces.infinite.any():
        behind[(walk.at > finite) & (far <= 1 + ZERO)] = -np.inf
        ahead[pieces.infinite & (walk.at == finite) & (far >= 1 - ZERO)] = -np.inf
    room: Floats = np.minimum(behind, ahead)
    return room


def _denominator(matrix: Floats, b: int, column: Floats) -> float:
    """The least common denominator of `column`, which is column b of the inverse of `matrix`.

    It is infinite if none up to 64 fits. The column is checked in whole numbers.
    """
    for k in range(1, _SMALL_DENOMINATOR + 1):
        whole = np.rint(k * column)
        if np.abs(whole - k * column).max() < ZERO:
            unit = np.zeros(len(column))
            unit[b] = k
            return k if np.array_equal(times(whole[None], matrix)[0], unit) else math.inf
    return math.inf


def _in_place(pieces: Pieces, walk: Walk, i: int, atoms: Ints) -> bool:
    """Whether theta of these atoms lies between the scores that `at` says, exactly.

    Equal numbers are told apart by the infinitesimal shifts. If theta is at infinity, or if the
    determinant is too large for `exact_gaps`, the answer is no: rational arithmetic must decide.
    """
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
