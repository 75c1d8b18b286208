"""All thresholds of a coreset, exact: a simplex that walks the pieces.

The augmented quantile regression of the paper (eq. 13) sees a test point only through its
membership row, so S* is a function of the atom. With theta_A = beta' Phi_A the objective is

    h(beta) = sum_A f_A(theta_A) - t beta' Phi_test,    t = (1 - alpha) w_test,

where f_A, the pinball loss of everything in atom A, is convex and piecewise linear in ONE
variable: its breakpoints are the atom's scores and its slopes are prefix sums. The problem has
|G| unknowns and |A+| terms, which does not depend on n. S* is the smallest beta' Phi_test over the
minimisers of h: the left derivative of the dual value at t, which for one group and one client is
the ceil((n+1)(1-alpha))-th smallest score.

How it works. A vertex is r = rank(Phi) independent atoms, each resting on one of its own scores.
These atoms are the basis. Every other atom knows how many of its scores lie below its theta. The
multipliers y of the basis must lie between the slopes left and right of their scores. The worst
offender moves along its ray and passes breakpoints of all atoms until the directional derivative
turns (a long step). The breakpoint where it turns takes its place. If there is no such breakpoint,
S* = +inf. The first walk, without a test point, begins near the minimum of a smooth h (`start`).
Those of the test rows begin where it has ended, at the optimum of a similar row (`nearest`), or at
a vertex that is predicted (`predicted`). They see only the atoms that they may move past a score
(`vicinity`). S* does not depend on that.

Why it is exact.
- Ties in weight, such as (n+1)(1-alpha) an integer, are broken by lowering t by an infinitesimal:
  y is compared as a pair (value, its change with t). That is the left derivative.
- Ties in score (discrete scores, equal scores across atoms) are broken by shifting each atom's
  scores by an infinitesimal of its own, so the walk cannot cycle.
- A score of +inf is a breakpoint at infinity, a level above all finite numbers.
- The basis is a combinatorial object. Once it is found, S* = sum_b c_b s_b is recomputed from the
  scores themselves in rational arithmetic and rounded up, never down. The coefficients c solve
  sum_b c_b Phi_b = Phi_test, and this is checked in integers.
- Scores above 2**900 are scaled for the floats. Where that costs a tiny score its bits, rational
  arithmetic decides everything, because it sees the scores as they are.
- Every solution is verified against the first-order condition before it is returned. Where
  rounding could change a comparison (0.1 + 0.2 against 0.3, or 1e12 next to 1e-12), the same
  condition is decided in rational arithmetic, and if it does not hold, the walk goes on there. What
  comes from there is checked once more. If that check fails, an error is raised: no threshold is
  returned that is not proved.
- Weights that are not whole carry rounding, so a difference within 2**-46 of the weights that make
  it up counts as a tie. A false tie costs that much coverage.

Why not an LP library: it would see n columns instead of |A+| functions, return a vertex of its
own choice from the optimal face, and be exact only to its tolerance (see benchmarks/).

Cost: O(n) once for the prefix sums. Then each threshold takes some pivots, and each pivot takes
O(k r) for the k atoms of its vicinity, at most O(|A+| r). None of it depends on n.

| here         | paper                                             |
|--------------|---------------------------------------------------|
| `rows`       | Phi_A, the membership vectors of the active atoms |
| `values`     | S-bar_{A,c}, the coreset's scores                 |
| `weights`    | W_{A,c}                                           |
| `test`       | w_test = sum_k pi_k / (n_k + 1)                   |
| `theta`      | beta' Phi_A                                       |
| `multiplier` | y: the dual variables of the basic scores         |
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.solver.certificate import refuted, unsure
from gcfcp.solver.equations import inverted
from gcfcp.solver.exact import ExactWalk, combine
from gcfcp.solver.exchange import highest
from gcfcp.solver.nearest import Starts, rounds
from gcfcp.solver.predicted import improve
from gcfcp.solver.problem import ZERO, Coreset, Pieces, pieces_of, t_of
from gcfcp.solver.products import IN_CACHE, combined, combined_each, times
from gcfcp.solver.start import near_optimum
from gcfcp.solver.vertex import (
    Walk,
    along,
    factorise,
    gradient_of,
    locate,
    pick,
    resting_scores,
    snap,
    thetas,
)
from gcfcp.solver.vicinity import Vicinity, vicinity_of
from gcfcp.solver.walk import NoOptimumError, descend

_LEVEL_RATIO = 128  # Each coarser level of the first solve keeps one breakpoint out of this many.
_COARSEST = 1024  # On the coarsest level no atom has more breakpoints than this.
EXCESS = 2.0**-10  # The part that is added to a weight where a little more than a bound is needed.
_INVERSES = 2**20  # The inverses of the rows that are solved side by side have so many entries.


@dataclass(frozen=True)
class Solution:
    """One threshold with what is known about it."""

    threshold: float  # The threshold S*.
    pivots: int  # How many pivots the floats took from where they started.
    bounded: bool  # If False, no finite threshold is valid, whatever the scores are.
    infinite_atoms: Bools  # (a,): The atoms whose own theta is at infinity in this solution.
    judged: bool  # The floats were unsure, and rational arithmetic decided.


@dataclass(frozen=True)
class Evidence:
    """What proves a finite threshold: theta = Phi beta for some beta, and each atom's gradient, a
    slope of f_A at theta_A, with sum_A gradient_A Phi_A = t Phi_test."""

    theta: Floats  # (a,): theta_A = beta' Phi_A of each atom.
    gradient: Floats  # (a,): A slope of f_A at theta_A, in the units of `Solver.t`.
    infinite: Bools  # (a,): theta_A is at infinity, and its number means nothing.


@dataclass(frozen=True)
class _Optima:
    """The certified optima of m test rows."""

    walk: Walk  # The optimal vertices, freshly factorised.
    pivots: Ints  # (m,): How many pivots the floats took; -1 if they found h unbounded.
    bounded: Bools  # (m,): If False, h is unbounded and the walk means nothing.
    judged: Bools  # (m,): The floats were unsure, and rational arithmetic decided.

    def put(self, which: Ints, others: _Optima) -> None:
        """Let these optima take the place of those of the rows `which`."""
        for name in ("basis", "at", "inverse", "volume", "c"):
            getattr(self.walk, name)[which] = getattr(others.walk, name)
        before = np.maximum(self.pivots[which], 0)
        self.pivots[which] = np.where(others.pivots < 0, -1, before + others.pivots)
        self.bounded[which], self.judged[which] = others.bounded, others.judged


def _batch(pieces: Pieces) -> int:
    """How many test rows are solved side by side: as many as the cache has room for."""
    atoms, r = pieces.rows.shape
    return max(1, min(IN_CACHE // int(atoms), _INVERSES // int(r * r)))


class Solver:
    """Thresholds of any atom from one coreset.

    A solver does not change once it is made, so that many threads may share it.
    """

    def __init__(self, coreset: Coreset, alpha: Fraction) -> None:
        self.coreset = coreset
        self.alpha = alpha
        self._pieces, self._columns, self.t = pieces_of(coreset, alpha)
        self._base = self._first_optimum()
        self._span = self._combinations()
        self._at_rest = Starts.at_rest(self._pieces, self._base)

    def _combinations(self) -> Floats:
        """(r, G): Every column as a combination of the independent ones.

        The equations of the basis are solved twice, the second time for what is left of the first,
        because its inverse carries rounding.
        """
        basis, inverse = self._base.basis[0], self._base.inverse[0]
        found = np.zeros((len(basis), self.coreset.membership.shape[1]))
        found[:, self._columns] = np.eye(len(basis))
        others = np.setdiff1d(np.arange(found.shape[1]), self._columns)
        wanted = self.coreset.membership[basis][:, others].astype(np.float64)
        first = combined(inverse, wanted)
        rest = wanted - combined(self._pieces.rows[basis], first)
        found[:, others] = snap(first + combined(inverse, rest))
        return found

    def t_of(self, test: Floats) -> Floats:
        """t = (1 - alpha) w_test for these weights of the test point, in the units of `self.t`."""
        return t_of(test, self.alpha)

    def _first_optimum(self) -> Walk:
        """The optimum without a test point, from where the walk of every test row starts.

        Where no guess comes close, the problem is solved from coarse to fine, so that the number
        of pivots hardly grows with n.
        """
        fine = pieces = self._pieces
        stride, guess = 1, near_optimum(fine)
        while not guess.close and int(pieces.size.max()) > _COARSEST:
            stride *= _LEVEL_RATIO
            pieces = fine.coarser(stride)
            guess = near_optimum(pieces)
        none = np.zeros((1, fine.rows.shape[1]))
        walk = Walk.begun(guess.basis[None], guess.at[None], np.zeros(1))
        factorise(pieces, walk, none)
        while True:
            locate(pieces, walk)
            walk, _ = descend(pieces, walk, none)
            if stride == 1:
                return walk
            basis = walk.basis[0]
            resting = np.minimum((walk.at[0, basis] + 1) * stride, fine.size[basis]) - 1
            stride //= _LEVEL_RATIO
            pieces = fine.coarser(stride)
            walk.at[0, basis] = resting // stride

    def coefficients(self) -> Floats:
        """beta of the optimum without a test point, float (G,), up to rounding.

        A column that depends on others has the coefficient 0. Scores of +inf must not be there.
        Where the optimum is not unique, it is that with an infinitesimal weight at +inf in every
        atom, of another size in each, so that it does not depend on where the walk began. Where an
        atom itself weighs so little that floats cannot tell, it is any optimum.
        """
        pieces, base = self._pieces, self._base
        weightless = -(1 + pieces.tie[None]) @ pieces.rows
        walk = base[np.zeros(1, dtype=np.int64)]
        factorise(pieces, walk, weightless)
        with suppress(NoOptimumError):
            walk, pivots = descend(pieces, walk, weightless)
            base = walk if pivots[0] >= 0 else base
        basis = base.basis[0]
        scores = self.coreset.values[pieces.start[basis] + base.at[0, basis]]
        found = np.zeros(self.coreset.membership.shape[1])
        found[self._columns] = times(scores[None], base.inverse[0])[0]
        return found

    @cached_property
    def infinite_at_rest(self) -> Bools:
        """(a,): The atoms whose theta is at infinity in the optimum without a test point."""
        infinite = resting_scores(self._pieces, self._base)[1]
        found: Bools = along(self._pieces, self._base, infinite)[0] > ZERO
        return found

    def holds(self, rows: Bools | Floats) -> Bools:
        """Whether each row (m, G) is in the span of the atoms and in some group, bool (m,).

        If a row is outside the span, some direction of beta changes its threshold and no theta_A,
        so that no score limits it. An atom is in the span whatever rounding says.
        """
        full = np.asarray(rows, dtype=np.float64)
        gaps = np.abs(combined(full[:, self._columns], self._span) - full)
        spanned: Bools = np.asarray((gaps <= ZERO).all(axis=1))
        for i in np.flatnonzero(~spanned).tolist():
            spanned[i] = (self.coreset.membership == full[i]).all(axis=1).any()
        return np.logical_and(spanned, full.any(axis=1))

    def solve(self, rows: Bools, t: Floats | None = None) -> list[Solution]:
        """S* of the atoms with membership `rows`, (m, G).

        `t`, (m,), takes the place of (1 - alpha) w_test. It is in the units of `self.t`.
        """
        full = np.atleast_2d(np.asarray(rows, dtype=np.float64))
        weights = np.full(len(full), self.t) if t is None else np.asarray(t, dtype=np.float64)
        reduced, held = full[:, self._columns], self.holds(full)
        free = Solution(math.inf, 0, False, np.zeros(len(self._pieces.size), dtype=bool), False)
        solutions = [free] * len(full)
        index = np.flatnonzero(held & ~self._too_heavy(full, weights))
        starts, left = self._at_rest, len(index)
        for chosen in rounds(left):
            part, left = index[chosen], left - len(chosen)
            near, done = vicinity_of(self._pieces, starts), []
            batch = _batch(self._pieces if near is None else near.near)
            for some in np.split(part, range(batch, len(part), batch)):
                optima = self._optima(reduced[some], weights[some], starts, near)
                for k, solution in zip(some, self._solutions(optima, reduced[some]), strict=True):
                    solutions[k] = solution
                if left:  # There is another round, which may start from here.
                    ok, u = optima.bounded, weights[some, None] * reduced[some]
                    done.append((optima.walk[ok], u[ok], optima.pivots[ok]))
            if left:
                starts = starts.and_of(self._pieces, *zip(*done, strict=True))
        return solutions

    def _too_heavy(self, rows: Floats, t: Floats) -> Bools:
        """Whether t exceeds what the scores of some group of each row (m, G) can balance, (m,).

        The gradients of the atoms of a group add up to t, and none exceeds the last slope of its
        f_A. So h is then unbounded, and no walk is needed to tell.
        """
        pieces = self._pieces
        most = pieces.slopes[pieces.first + pieces.size] @ self.coreset.membership
        room: Bools = t[:, None] > np.where(rows > 0, most * (1 + EXCESS), np.inf)
        return np.asarray(room.any(axis=1))

    def highest(self, rows: Bools, weight: Floats) -> Floats:
        """The largest theta of each row (m, G) after a record is exchanged for the test record.

        It is the largest one among the optima for u = (1 - alpha) omega Phi_row + s Phi_B, where B
        is any atom of the coreset and s is any number from -(1 - alpha) omega to alpha omega. It is
        rounded up, and +inf if nothing limits it. (The first omega is enlarged by a thousandth.
        Where an optimum is not unique, the largest theta of all of them is then counted.)

        - `weight`: (m,): omega, the weight of the record.
        """
        give = self.t_of(weight)
        take = give * float(self.alpha / (1 - self.alpha))
        t = give * (1 + EXCESS)
        full = np.atleast_2d(np.asarray(rows, dtype=np.float64))
        reduced, held = full[:, self._columns], self.holds(full)
        found = np.full(len(full), np.inf)
        index = np.flatnonzero(held)
        batch = max(1, _batch(self._pieces) // (2 * len(self._pieces.size)))
        for i in range(0, len(index), batch):
            part = index[i : i + batch]
            found[part] = self._highest(reduced[part], t[part], give[part], take[part])
        return found

    def _highest(self, rows: Floats, t: Floats, give: Floats, take: Floats) -> Floats:
        """The same for rows (m, r) on the independent columns."""
        pieces, m = self._pieces, len(rows)
        optima = self._optima(rows, t)
        atoms = pieces.rows
        # One walk for each row, atom and sign; those of a row stand together.
        pair = np.repeat(np.arange(m), 2 * len(atoms))
        along = np.tile(np.concatenate([atoms, -atoms]), (m, 1))
        length = np.repeat(np.column_stack([take, give]).ravel(), len(atoms))
        best = highest(pieces, optima.walk[pair], rows[pair], t[pair], along, length)
        theta = best.theta.reshape(m, -1)
        top = theta.max(axis=1)
        found = np.where(optima.bounded & np.isfinite(top), 0.0, np.inf)
        for i in np.flatnonzero(np.isfinite(found)).tolist():
            noise = best.noise.reshape(m, -1)[i]
            close = np.flatnonzero(theta[i] + noise >= top[i] - noise[theta[i].argmax()])
            place = i * theta.shape[1] + close
            vertices = np.unique(np.hstack([best.basis[place], best.at[place]]), axis=0)
            found[i] = max(self._at_vertex(v, rows[i]) for v in vertices)
        return found

    def _at_vertex(self, vertex: Ints, row: Floats) -> float:
        """theta of a row at a vertex, rounded up.

        - `vertex`: (2 r,): The basic atoms, and then the breakpoints that they rest on.
        """
        basis, at = vertex[: len(row)], vertex[len(row) :]
        basic = self._pieces.rows[basis]
        scores = self.coreset.values[self._pieces.start[basis] + at]
        scores = np.where(np.isinf(scores), 0.0, scores)
        inverse, volume = inverted(basic[None])
        c = snap(combined_each(row[None], inverse))
        return combine(c, scores[None], basic[None], row[None], volume)[0]

    def evidence(self, row: Bools) -> Evidence | None:
        """What proves the solution of one row; None if no finite threshold is valid."""
        if not self.solve(row)[0].bounded:
            return None
        reduced = np.asarray(row, dtype=np.float64)[None, self._columns]
        walk = self._optima(reduced, np.array([self.t])).walk
        number, far, _ = thetas(self._pieces, walk)
        return Evidence(number[0], gradient_of(self._pieces, walk)[0], np.abs(far[0]) > ZERO)

    def _optima(
        self,
        rows: Floats,
        t: Floats,
        starts: Starts | None = None,
        vicinity: Vicinity | None = None,
    ) -> _Optima:
        """Walk to the optimum of each row (m, r), and certify it.

        The walks begin at the nearest of the starts, or at the optimum without a test point. They
        go on among all atoms where those of the vicinity do not suffice.
        """
        starts = starts or self._at_rest
        begin = starts.nearest(t[:, None] * rows)
        if vicinity is None:
            return self._among_all(rows, t, starts, begin)
        walk = vicinity.start(starts, begin, t)
        improve(vicinity.near, starts, walk, rows)
        factorise(vicinity.near, walk, rows)
        walk, pivots = descend(vicinity.near, walk, rows)
        sure = pivots >= 0
        sure &= ~unsure(vicinity.near, walk) & vicinity.stayed(walk)
        optima = _Optima(vicinity.among_all(walk), pivots, sure.copy(), np.zeros_like(sure))
        rest = np.flatnonzero(~sure)
        if len(rest):
            optima.put(rest, self._among_all(rows[rest], t[rest], starts, begin[rest]))
        return optima

    def _among_all(self, rows: Floats, t: Floats, starts: Starts, begin: Ints) -> _Optima:
        """Walk from the start begin[i] to the optimum of row i among all atoms, and certify it.

        The certificate says that multipliers are within their slopes and scores on their side of
        theta. Where floats cannot tell, rational arithmetic goes on from where they ended.
        """
        pieces = self._pieces
        walk = Walk.begun(starts.basis[begin], starts.at[begin], t)
        factorise(pieces, walk, rows)
        walk, pivots = descend(pieces, walk, rows)
        bounded = pivots >= 0
        judged = bounded & unsure(pieces, walk)
        if judged.any():
            for i in np.flatnonzero(judged).tolist():
                judge = ExactWalk(pieces, walk.basis[i], walk.at[i], rows[i], t[i])
                bounded[i] = judge.descend()
                walk.basis[i], walk.at[i] = judge.basis, judge.at
            factorise(pieces, walk, rows)
            if refuted(pieces, walk[judged & bounded]).any():
                raise GCFCPError(
                    "a threshold does not satisfy the first-order condition, which proves it "
                    "optimal: a defect of gcfcp, please report it"
                )
        return _Optima(walk, pivots, bounded, judged)

    def _solutions(self, optima: _Optima, rows: Floats) -> list[Solution]:
        """S* of `rows`, (m, r), on the independent columns, whose optima these are.

        Where c times the scores at infinity is not zero, the threshold is infinite. Elsewhere they
        cancel, and 0 may stand in their place.
        """
        pieces, walk = self._pieces, optima.walk
        infinite = resting_scores(pieces, walk)[1]
        scores = self.coreset.values[pieces.start[walk.basis] + pick(walk.at, walk.basis)]
        scores = np.where(infinite > 0, 0.0, scores)
        far = np.einsum("mr,mr->m", walk.c, infinite)
        at_infinity = np.zeros(walk.at.shape, dtype=bool)
        if infinite.any():
            at_infinity = along(pieces, walk, infinite) > ZERO
        threshold = np.where(optima.bounded, np.copysign(np.inf, far), np.inf)
        finite = np.flatnonzero(optima.bounded & (np.abs(far) <= ZERO))
        basic = pieces.rows[walk.basis[finite]]
        threshold[finite] = combine(
            walk.c[finite], scores[finite], basic, rows[finite], walk.volume[finite]
        )
        return [
            Solution(*each)
            for each in zip(
                threshold.tolist(),
                optima.pivots.tolist(),
                optima.bounded.tolist(),
                at_infinity,
                optima.judged.tolist(),
                strict=True,
            )
        ]
