"""The simplex over pieces, in floats, for many test rows side by side.

At each vertex the basic atom whose multiplier lies furthest outside its slopes leaves the basis,
moves along its ray (`ray`), and the atom at whose breakpoint it stops takes its place: a pivot.
The walk ends where all multipliers lie between their slopes.

Cost of a pivot: O(a r) for each test row, with a atoms of rank r, whatever the number of scores.
"""

from __future__ import annotations

import numpy as np

from gcfcp.arrays import Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.solver.problem import Pieces
from gcfcp.solver.products import combined_each
from gcfcp.solver.ray import Step, long_step
from gcfcp.solver.vertex import Offenders, Walk, factorise, multipliers, offenders, snap

_REFRESH = 64  # After this many pivots the inverse is computed afresh. So errors do not grow.


class NoOptimumError(GCFCPError):
    """A walk did not end, which is a defect."""


def descend(pieces: Pieces, walk: Walk, rows: Floats) -> tuple[Walk, Ints]:
    """Walk to the vertices that minimise h for the test rows `rows`, (m, r).

    Returns the walk, freshly factorised, and the number of pivots that each test row took, which
    is -1 where h is unbounded.
    """
    pivots = np.zeros(len(rows), dtype=np.int64)
    ended = walk.copy()
    live = np.arange(len(rows))
    limit = 1000 + 20 * len(pieces.size) * (1 + rows.shape[1])
    for count in range(1, limit):
        moving = offenders(walk, multipliers(pieces, walk))
        going = moving.direction != 0
        if not going.all():
            _arrive(ended, live[~going], walk[~going])
            live, walk, moving = live[going], walk[going], moving[going]
        if len(live):
            step = long_step(pieces, walk, moving)
            pivots[live] += 1
            if not step.turned.all():
                pivots[live[~step.turned]] = -1
                kept = step.turned
                live, walk, moving, step = live[kept], walk[kept], moving[kept], step[kept]
            pivot(pieces, walk, moving, step)
            if count % _REFRESH == 0 and len(live):
                factorise(pieces, walk, rows[live])
        if not len(live):
            factorise(pieces, ended, rows)
            return ended, pivots
    raise NoOptimumError(f"no optimum after {limit} pivots: a defect of gcfcp, please report it")


def _arrive(ended: Walk, which: Ints, walk: Walk) -> None:
    """Record where the test rows `which` have arrived."""
    ended.basis[which], ended.at[which] = walk.basis, walk.at
    ended.inverse[which], ended.volume[which] = walk.inverse, walk.volume


def pivot(pieces: Pieces, walk: Walk, moving: Offenders, step: Step) -> None:
    """Exchange the atom that leaves each basis for the one that enters it, in place.

    With p = Phi_entering inv(Phi_basis), the new inverse differs from the old one by a matrix of
    rank one: the column of the leaving atom, divided by its entry of p, times (p - e_b). The
    determinant is multiplied by that entry. Where the atom moves on to another of its own scores,
    p = e_b and nothing changes.
    Cost: O(a + r^2) for each test row.
    """
    b = moving.position
    each = np.arange(len(b))
    leaving = walk.basis[each, b]
    walk.at += step.passed
    walk.at[each, leaving] += moving.direction > 0  # Its own breakpoint lies below theta now.
    walk.at[each, step.entering] = step.index
    p = snap(combined_each(pieces.rows[step.entering], walk.inverse))
    stays = (leaving == step.entering).nonzero()[0]
    p[stays] = 0.0
    p[stays, b[stays]] = 1.0
    divisor = p[each, b]
    p[each, b] -= 1.0
    ray = walk.inverse[each, :, b] / divisor[:, None]
    walk.inverse -= ray[:, :, None] * p[:, None, :]
    walk.c = snap(walk.c - (walk.c[each, b] / divisor)[:, None] * p)
    walk.volume = walk.volume + np.log(np.abs(divisor))
    walk.basis[each, b] = step.entering
