"""How high a theta can get if one record is exchanged: the walk along all such exchanges.

Exchanging a record of atom B adds s Phi_B to the right side u = t Phi_test of the problem, where s
is at most the weight of a record. While s grows, the optimal vertex stays where it is until one of
its multipliers reaches the end of its slopes. There a neighbouring vertex takes over: the basic
atom moves along its ray to the next breakpoint, and h does not change on the way. So all vertices
that are optimal for some s are met one after the other, and the largest theta of the test row among
them is what was asked for. This is the parametric simplex method.

The multipliers are checked at every vertex. Where rounding or a tie leaves one outside of its
slopes, the usual walk (`descend`) leads back to an optimum. If a walk does not come to its end, or
theta is at infinity, the outcome is +inf, which is never too low.

Cost: some pivots for each pair of a test row and an atom, side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gcfcp.arrays import Floats, Ints
from gcfcp.solver.problem import ZERO, Pieces
from gcfcp.solver.products import combined_each
from gcfcp.solver.ray import long_step
from gcfcp.solver.vertex import Multipliers, Offenders, Walk, multipliers, pick, resting_scores
from gcfcp.solver.walk import descend, pivot

_MOST_PIVOTS = 60  # A walk that has not come to its end by then is given up.
_VALUE_TOLERANCE = 2.0**-44  # Rounding in a theta is below this part of the scores it is made of.


@dataclass
class Highest:
    """The highest vertex of each of m walks. It grows with the walks, and is therefore mutable."""

    theta: Floats  # (m,): theta of the test row there; -inf at first, +inf if nothing limits it.
    noise: Floats  # (m,): A bound on the rounding in theta.
    basis: Ints  # (m, r): The basic atoms there.
    at: Ints  # (m, r): The breakpoint that each basic atom rests on.

    def take(self, pieces: Pieces, walk: Walk, rows: Floats, which: Ints) -> None:
        """Look at the vertices of the walks `which`, and keep those that are higher."""
        c = combined_each(rows, walk.inverse)
        scores, infinite = resting_scores(pieces, walk)
        far = (c * infinite).sum(axis=1)
        theta = np.where(np.abs(far) > ZERO, np.copysign(np.inf, far), (c * scores).sum(axis=1))
        noise = _VALUE_TOLERANCE * (np.abs(c) * np.abs(scores)).sum(axis=1)
        better = theta > self.theta[which]
        kept = which[better]
        self.theta[kept], self.noise[kept] = theta[better], noise[better]
        self.basis[kept] = walk.basis[better]
        self.at[kept] = pick(walk.at, walk.basis)[better]


def highest(
    pieces: Pieces, walk: Walk, rows: Floats, t: Floats, along: Floats, length: Floats
) -> Highest:
    """The highest vertex that is optimal for some u = t row + s along with 0 <= s <= length.

    - `walk`: (m): An optimal vertex of each row (m, r) for s = 0. It is left as it is.
    - `along`: (m, r): The membership of the exchanged record, with its sign.
    - `length`: (m,): How much the record may weigh.
    """
    m, r = rows.shape
    best = Highest(
        np.full(m, -np.inf), np.zeros(m), np.zeros((m, r), np.int64), np.zeros((m, r), np.int64)
    )
    live, s = np.arange(m), np.zeros(m)
    walk = replace(walk.copy(), t=np.ones(m))
    for _ in range(_MOST_PIVOTS):
        u = t[live, None] * rows[live] + s[live, None] * along[live]
        live, walk, found = _at_optimum(pieces, walk, u, live, best)
        best.take(pieces, walk, rows[live], live)
        room, position, direction = _room(walk, found, along[live])
        going = (s[live] + room < length[live]) & ~np.isposinf(best.theta[live])
        live, walk = live[going], walk[going]
        if not len(live):
            return best
        s[live] += room[going]
        tolerance = found.tolerance[going].max(axis=1)
        # h does not change along the ray, so that the first breakpoint on it ends the step.
        moving = Offenders(position[going], direction[going], -2 * tolerance, tolerance)
        step = long_step(pieces, walk, moving)
        best.theta[live[~step.turned]] = np.inf  # Nothing limits this theta any more.
        on = step.turned
        live, walk, moving, step = live[on], walk[on], moving[on], step[on]
        if not len(live):
            return best
        pivot(pieces, walk, moving, step)
    best.theta[live] = np.inf
    return best


def _at_optimum(
    pieces: Pieces, walk: Walk, u: Floats, live: Ints, best: Highest
) -> tuple[Ints, Walk, Multipliers]:
    """The walks `live` at an optimum for their u, with the multipliers there.

    A walk that finds h unbounded has the outcome +inf, and goes no further.
    """
    walk.c = combined_each(u, walk.inverse)
    found = multipliers(pieces, walk)
    outside = np.maximum(found.low - found.y, found.y - found.high) > 2 * found.tolerance
    astray = np.flatnonzero(outside.any(axis=1))
    if not len(astray):
        return live, walk, found
    led, pivots = descend(pieces, walk[astray], u[astray])
    walk.basis[astray], walk.at[astray] = led.basis, led.at
    walk.inverse[astray], walk.volume[astray] = led.inverse, led.volume
    keep = np.ones(len(live), dtype=bool)
    keep[astray[pivots < 0]] = False
    best.theta[live[~keep]] = np.inf
    live, walk, u = live[keep], walk[keep], u[keep]
    walk.c = combined_each(u, walk.inverse)
    return live, walk, multipliers(pieces, walk)


def _room(walk: Walk, found: Multipliers, along: Floats) -> tuple[Floats, Ints, Ints]:
    """How much s can grow before a multiplier leaves its slopes, which one it is, and whether its
    atom then rises (1) or falls (-1). All are (m,)."""
    change = combined_each(along, walk.inverse)
    moves = np.abs(change) > ZERO
    ahead = np.where(change > 0, found.high - found.y, found.y - found.low)
    room = np.divide(ahead, np.abs(change), out=np.full(change.shape, np.inf), where=moves)
    position = room.argmin(axis=1)
    chosen = np.arange(len(position)), position
    return np.maximum(room[chosen], 0.0), position, np.where(change[chosen] > 0, 1, -1)
