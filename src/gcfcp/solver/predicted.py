"""A vertex near the optimum of a test row, predicted from test rows that are solved.

Where the test point weighs as much as many records, its walk is long, from wherever it starts. But
seen from afar h is smooth, and beta of the optimum is nearly linear in u = t Phi_test. How it
responds to u is learned from the rows that are solved, by least squares. The same response leads
from a beta whose gradient is not yet u to one whose gradient is nearer to it, which is a step of
Newton's method:

    beta <- beta + part response' (u - sum_A slope_A(theta_A) Phi_A).

Slopes jump at scores, so that whole steps would go to and fro between them. The steps therefore get
smaller and smaller. The walk starts at the vertex of the independent atoms that then lie closest to
one of their own scores. With 16 groups, 2,000 atoms and a test point of the weight of 20 records,
walks take 42 pivots from the optimum without a test point, 24 from where the response alone leads,
and 9 after eight steps. The threshold does not depend on it.

Cost: for each test row and step O(k r) for k atoms, and O(r^3) once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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

_PARTS = tuple(0.7 / (1 + 0.3 * k) for k in range(8))  # How much of each step is taken.
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
    u = walk.t[:, None] * rows
    beta, at = starts.beta[0] + combined(u, starts.response), walk.at.copy()
    theta = times(beta, pieces.rows)
    _follow(pieces, theta, at)
    for part in _PARTS:
        gradient = combined(pieces.slopes[pieces.first + at], pieces.rows) + pieces.pull
        beta += part * combined(u - gradient, starts.response)
        theta = times(beta, pieces.rows)
        _follow(pieces, theta, at)
    down, up = _distances(pieces, at, theta)
    basis, complete = _independent(pieces.rows, np.minimum(down, up).argsort(axis=1))
    complete &= np.isfinite(theta).all(axis=1)
    rest = np.where(down < up, at - 1, at)[complete]
    there = Walk.begun(basis[complete], rest, walk.t[complete])
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
    _follow(pieces, theta, walk.at)
    room = np.minimum(*_distances(pieces, walk.at, theta)) - noise_of(pieces, walk, scores)
    put(room, walk.basis, np.inf)
    put(walk.at, walk.basis, resting)
    return np.asarray((room > 0).all(axis=1))


def _follow(pieces: Pieces, theta: Floats, at: Ints) -> None:
    """Let `at`, (m, k), be how many scores of each atom lie below theta, in place.

    Cost: O(m k), and O(1) for each score that an atom passes from where `at` stood.
    """
    change = _one_further(pieces, slice(None), theta, at)
    at += change
    moving = np.flatnonzero(change)
    counts, goal = at.reshape(-1), theta.reshape(-1)
    while len(moving):
        change = _one_further(pieces, moving % at.shape[1], goal[moving], counts[moving])
        counts[moving] += change
        moving = moving[change != 0]


def _one_further(pieces: Pieces, atoms: Ints | slice, theta: Floats, at: Ints) -> NDArray[np.int8]:
    """1 where the score after the first `at` lies below theta, -1 where the last of them does not,
    else 0. `atoms` says which atoms those of the last axis are."""
    place = pieces.start[atoms] + at
    rises = pieces.values.take(place, mode="clip") < theta
    rises &= at < pieces.size[atoms]
    place -= 1
    falls = pieces.values.take(place, mode="clip") >= theta
    falls &= at > 0
    return rises.view(np.int8) - falls.view(np.int8)


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
