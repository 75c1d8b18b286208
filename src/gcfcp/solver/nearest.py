"""Where the walks of test rows start: at the optimum of a similar row that is already solved.

Test rows are solved in rounds, first a few from the optimum without a test point, then more and
more of them, each from the nearest that is solved. The threshold does not depend on the start; only
the number of pivots does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.solver.equations import solved
from gcfcp.solver.problem import ZERO, Pieces
from gcfcp.solver.products import in_parts, product, times, times_each
from gcfcp.solver.vertex import Walk, along, resting_scores

_FIRST_ROUND = 16  # So many test rows start from the optimum without a test point.
_NEARER = 0.7  # A walk starts elsewhere if that is within this part of the squared distance.
_RIDGE = 2.0**-40  # This part of all squares keeps the least squares from being singular.
_ROUNDS = 4  # Each further round solves so many times as many test rows as the one before.


@dataclass(frozen=True)
class Starts:
    """Optimal vertices from which the walks of test rows may start; first that without one."""

    basis: Ints  # (k, r): The basic atoms.
    at: Ints  # (k, a): As in `Walk`.
    u: Floats  # (k, r): t Phi_test of each, on the independent columns.
    beta: Floats  # (k, r): beta of each, up to rounding.
    rest: Floats  # (a,): theta of each atom in the optimum without a test point.
    lowest: Floats  # (a,): The lowest theta of each atom in any of them.
    highest: Floats  # (a,): The highest theta of each atom in any of them.
    far: Bools  # (a,): theta of the atom is at infinity in some of them.
    pivots: float  # How many pivots a walk took, on average over the round where it took most.

    @classmethod
    def at_rest(cls, pieces: Pieces, walk: Walk) -> Starts:
        """The optimum without a test point alone."""
        scores, infinite = resting_scores(pieces, walk)
        beta = times_each(walk.inverse, scores)
        rest = times(beta, pieces.rows)[0]
        far = np.zeros(len(rest), dtype=bool)
        if infinite.any():
            far = np.abs(along(pieces, walk, infinite)[0]) > ZERO
        return cls(
            basis=walk.basis,
            at=walk.at,
            u=np.zeros((1, pieces.rows.shape[1])),
            beta=beta,
            rest=rest,
            lowest=rest,
            highest=rest,
            far=far,
            pivots=0.0,
        )

    @cached_property
    def response(self) -> Floats:
        """(r, r): How beta of the optimum changes with u, by least squares over all of them."""
        u, change = self.u[1:], self.beta[1:] - self.beta[0]
        size = float(np.abs(u).max()) or 1.0  # Weights may be so large that their squares overflow.
        u = u / size
        squares = product(u.T, u)
        squares += _RIDGE * np.trace(squares) * np.eye(len(squares))
        return solved(squares, product(u.T, change)) / size

    def nearest(self, u: Floats) -> Ints:
        """The start whose u is nearest to each of these, (m,). Cost: O(m k r).

        It is the first one, with u = 0, unless another one is nearer by far. Pivots are not saved
        by going almost as far from there.
        """
        own = np.square(u).sum(axis=1)
        distance = np.square(self.u).sum(axis=1) - 2 * times(u, self.u)  # Less |u|^2.
        found: Ints = distance.argmin(axis=1)
        return np.where(distance.min(axis=1) < (_NEARER - 1) * own, found, 0)

    def and_of(
        self, pieces: Pieces, walks: Sequence[Walk], u: Sequence[Floats], pivots: Sequence[Ints]
    ) -> Starts:
        """These, and the optima of a round of other rows, with u of each, (m, r), and the number of
        pivots that it took, (m,). Cost: O(m a r)."""
        lowest, highest, far = self.lowest.copy(), self.highest.copy(), self.far.copy()
        betas = [self.beta]
        for walk in walks:
            scores, infinite = resting_scores(pieces, walk)
            betas.append(times_each(walk.inverse, scores))
            for some in in_parts(len(scores), len(far)):
                theta = times(betas[-1][some], pieces.rows)
                np.minimum(lowest, theta.min(axis=0), out=lowest)
                np.maximum(highest, theta.max(axis=0), out=highest)
            if infinite.any():
                far |= (np.abs(along(pieces, walk, infinite)) > ZERO).any(axis=0)
        counts = np.concatenate(pivots)
        return Starts(
            basis=np.concatenate([self.basis, *(walk.basis for walk in walks)]),
            at=np.concatenate([self.at, *(walk.at for walk in walks)]),
            u=np.concatenate([self.u, *u]),
            beta=np.concatenate(betas),
            rest=self.rest,
            lowest=lowest,
            highest=highest,
            far=far,
            pivots=max(self.pivots, float(counts.mean()) if len(counts) else 0.0),
        )


def rounds(m: int) -> Iterator[Ints]:
    """m test rows in rounds: 16 of them, then four times as many each. The order is mixed, so that
    those of a round lie far from each other, and the same in every run."""
    order = np.random.default_rng(0).permutation(m) if m > _FIRST_ROUND else np.arange(m)
    size = _FIRST_ROUND
    while len(order):
        yield order[:size]
        order, size = order[size:], size * _ROUNDS
