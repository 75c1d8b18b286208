"""A vertex near the optimum of a test row, predicted from test rows that are solved.

Where the test point weighs as much as many records, its walk is long, from wherever it starts. But
beta of the optimum is nearly linear in u = t Phi_test: seen from afar h is smooth. So beta is
predicted from the rows that are solved, by least squares, and the walk starts at the vertex of the
independent atoms that lie closest to one of their own scores there. With 16 groups, 2,000 atoms and
a test point of the weight of 20 records that saves two pivots out of five. The threshold does not
depend on it.

Cost: for each test row O(k r) for k atoms, a binary search in the scores of each, and O(r^3).
"""

from __future__ import annotations

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.solver.nearest import Starts
from gcfcp.solver.problem import ZERO, Pieces
from gcfcp.solver.products import combined, combined_each, times
from gcfcp.solver.vertex import (
    Walk,
    along,
    factorise,
    noise_of,
    pick,
    put,
    resting_scores,
    scores_around,
)

_LONG = 1.5  # A prediction pays where walks take more than this many pivots for each group.
_KNOWN = 2  # beta is predicted from at least so many solved rows for each group.


def improve(pieces: Pieces, starts: Starts, walk: Walk, rows: Floats) -> None:
    """Let the walks of `rows`, (m, r), start at a predicted vertex if that is likely to be nearer.

    A walk stays where it is if floats cannot tell on which side of theta a score lies there.
    """
    r = rows.shape[1]
    few = len(starts.u) <= _KNOWN * r or starts.pivots <= _LONG * r
    if few or pieces.infinite.any():
        return
    beta = starts.beta[0] + combined(walk.t[:, None] * rows, starts.response)
    theta = times(beta, pieces.rows)
    at = _below(pieces, theta)
    down, up = _distances(pieces, at, theta)
    basis, complete = _independent(pieces.rows, np.minimum(down, up).argsort(axis=1))
    rest = np.where(down < up, at - 1, at)[complete]
    there = Walk(basis[complete], rest, np.empty(0), np.empty(0), walk.t[complete])
    clear = _located(pieces, there, rows[complete])
    which = np.flatnonzero(complete)[clear]
    walk.basis[which], walk.at[which] = there.basis[clear], there.at[clear]


def _located(pieces: Pieces, walk: Walk, rows: Floats) -> Bools:
    """Set `at` of the atoms outside each basis from theta.

    Returns whether each score is clear of theta, beyond rounding, (m,).
    """
    factorise(pieces, walk, rows)
    scores, _ = resting_scores(pieces, walk)
    theta, resting = along(pieces, walk, scores), pick(walk.at, walk.basis)
    walk.at = _below(pieces, theta)
    room = np.minimum(*_distances(pieces, walk.at, theta)) - noise_of(pieces, walk, scores)
    put(room, walk.basis, np.inf)
    put(walk.at, walk.basis, resting)
    return np.asarray((room > 0).all(axis=1))


def _below(pieces: Pieces, theta: Floats) -> Ints:
    """(m, k): How many scores of each atom lie below theta: a binary search in all at once."""
    low = np.zeros(theta.shape, dtype=np.int64)
    high = np.broadcast_to(pieces.size, theta.shape)
    for _ in range(int(pieces.size.max()).bit_length()):
        middle = (low + high) // 2
        below = pieces.values.take(pieces.start + middle, mode="clip") < theta
        below &= low < high
        low = np.where(below, middle + 1, low)
        high = np.where(below, high, np.minimum(middle, high))
    return low


def _distances(pieces: Pieces, at: Ints, theta: Floats) -> tuple[Floats, Floats]:
    """(m, k): How far the scores just below and just above theta are; inf where there is none."""
    below, above = scores_around(pieces, at)
    return theta - below, above - theta


def _independent(rows: Floats, order: Ints) -> tuple[Ints, Bools]:
    """The first r atoms of each `order`, (m, k), whose rows are independent, and whether there are
    so many.

    `left` maps a row to what the rows that are already chosen leave of it.
    Cost: O(r^2) for each atom that is looked at, mostly some more than r of them.
    """
    m, r = len(order), rows.shape[1]
    basis, count = np.zeros((m, r), dtype=np.int64), np.zeros(m, dtype=np.int64)
    left = np.repeat(np.eye(r)[None], m, axis=0)
    for atom in order.T:
        rest = combined_each(rows[atom], left)
        pivot = np.abs(rest).argmax(axis=1)
        size = rest[np.arange(m), pivot]
        new = np.flatnonzero((np.abs(size) > ZERO) & (count < r))
        basis[new, count[new]] = atom[new]
        count[new] += 1
        share = rest[new] / size[new, None]
        left[new] -= left[new, :, pivot[new]][:, :, None] * share[:, None, :]
        if (count == r).all():
            break
    return basis, count == r
