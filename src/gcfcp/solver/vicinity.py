"""The few atoms that test rows move past a score. Test rows walk among these alone.

A test point weighs as much as one record or a few, so it moves the theta of every atom only a
little. Most atoms stay between the same two of their scores, where f_A is linear and only its slope
counts. So the walks of test rows see the other atoms, their vicinity, and the sum of slope Phi over
all that are left out (`Pieces.pull`). At the end theta of every atom that was left out must still
lie between the same two scores, beyond rounding. Then its slope is what it was taken to be, so that
the multipliers are those of the whole problem, and what proves the vertex optimal in the vicinity
proves it optimal among all atoms. Any other test row is solved among all atoms.

Which atoms belong to the vicinity is learned from test rows that are solved: an atom stays outside
if it would not meet a score even if it moved twice as far as in any of them. With 2,000 atoms of 20
scores each and a test point of the weight of one record, that leaves about 100 of them.

Cost: O(a) to choose the atoms, and O(a r) for each test row to see that the others stayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.solver.nearest import Starts
from gcfcp.solver.problem import ZERO, Pieces
from gcfcp.solver.products import in_parts, times, times_each
from gcfcp.solver.vertex import Walk, along, noise_by_group, resting_scores, scores_around

_FURTHER = 2.0  # An atom is left out if it may move so many times as far as it was seen to move.
_FEW = 64  # Where there are no more atoms than this, all of them are walked among.
_LARGEST = 0.5  # Leaving atoms out pays if no more than this part of them is in the vicinity.


@dataclass(frozen=True)
class Vicinity:
    """The problem of some of the atoms, while all others stay between the same two scores."""

    whole: Pieces  # The problem of all atoms.
    near: Pieces  # The same problem, in which only these atoms can meet a score.
    atoms: Ints  # (k,): Which atoms these are.
    place: Ints  # (a,): The place of each of them in `atoms`; what it is elsewhere means nothing.
    at: Ints  # (a,): How many scores of each atom lie below theta while it stays where it is.
    outside: Bools  # (a,): All other atoms.
    low: Floats  # (a,): theta of an atom outside must stay above this; elsewhere it is -inf.
    high: Floats  # (a,): theta of an atom outside must stay below this; elsewhere it is +inf.

    def start(self, starts: Starts, which: Ints, t: Floats) -> Walk:
        """The starts `which`, (m,), as walks in the vicinity that are not yet factorised."""
        basis = self.place[starts.basis[which]]
        return Walk.begun(basis, starts.at[:, self.atoms][which], t)

    def among_all(self, walk: Walk) -> Walk:
        """A walk in the vicinity as one among all atoms."""
        at = np.repeat(self.at[None], len(walk.at), axis=0)
        at[:, self.atoms] = walk.at
        return Walk(self.atoms[walk.basis], at, walk.inverse, walk.volume, walk.c, walk.t)

    def stayed(self, walk: Walk) -> Bools:
        """(m,): Whether all atoms outside stayed between their scores, beyond rounding."""
        scores, infinite = resting_scores(self.near, walk)
        beta = times_each(walk.inverse, scores)
        room = np.empty(len(beta))
        for some in in_parts(len(beta), len(self.outside)):
            theta = times(beta[some], self.whole.rows)
            above = (theta - self.low).min(axis=1)
            room[some] = np.minimum(above, (self.high - theta).min(axis=1))
        held: Bools = room > noise_by_group(walk, scores).sum(axis=1)
        if infinite.any():
            far = np.abs(along(self.whole, walk, infinite)) > ZERO
            held &= ~(far & self.outside).any(axis=1)
        return held


def vicinity_of(pieces: Pieces, starts: Starts) -> Vicinity | None:
    """The atoms that test rows like those of `starts` may move past a score.

    None says that leaving the others out would not pay.
    """
    if len(pieces.size) <= _FEW or pieces.lossy or len(starts.u) == 1:
        return None
    at, rest = starts.at[0], starts.rest
    low, high = scores_around(pieces, at)
    outside = rest + _FURTHER * (starts.lowest - rest) > low
    outside &= rest + _FURTHER * (starts.highest - rest) < high
    outside &= ~starts.far & (starts.at == at).all(axis=0)
    outside[starts.basis] = False
    atoms = np.flatnonzero(~outside)
    if len(atoms) > _LARGEST * len(outside):
        return None
    left = np.flatnonzero(outside)
    place = np.zeros(len(at), dtype=np.int64)
    place[atoms] = np.arange(len(atoms))
    return Vicinity(
        whole=pieces,
        near=replace(
            pieces,
            rows=pieces.rows[atoms],
            start=pieces.start[atoms],
            first=pieces.first[atoms],
            size=pieces.size[atoms],
            infinite=pieces.infinite[atoms],
            tie=pieces.tie[atoms],
            pull=pieces.slopes[pieces.first[left] + at[left]] @ pieces.rows[left],
        ),
        atoms=atoms,
        place=place,
        at=at,
        outside=outside,
        low=np.where(outside, low, -np.inf),
        high=np.where(outside, high, np.inf),
    )
