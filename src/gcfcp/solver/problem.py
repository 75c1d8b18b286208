"""The functions that the solver minimises: one convex, piecewise linear f_A for each atom.

f_A(theta) is the pinball loss of everything in atom A. Its breakpoints are the atom's scores. Its
slope between two of them is W(scores below) - (1 - alpha) W(all), with W the sum of weights, so the
slopes are prefix sums. All slopes are multiplied by alpha's denominator, so that whole weights give
whole slopes and comparing them is exact. A score of +inf is a breakpoint at infinity.

Example: scores 1, 2, 5 of weight 1 each and alpha = 1/10 give the slopes -27, -17, -7 and 3 before,
between and after the scores: f_A is smallest at 5.

Cost: a few passes over the scores, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError

SLOPE_TOLERANCE = 2.0**-46  # Rounding in a multiplier is far below this part of its weights.
ZERO = 1e-9  # Coefficients are rationals of small denominator; one below this size is zero.
_IN_CACHE = 2**15  # This many numbers are checked at a time, because they fit into the cache.
_ENORMOUS = 2.0**900  # Beyond this size, a sum of several scores could overflow.
_SMALLER = 2.0**-124  # If a score is that large, all of them are multiplied by this.
_GRAIN = 2.0**-20  # Scores are discrete if all are multiples of about this part of the largest.
_LARGEST_DENOMINATOR = 2**20  # An alpha of larger denominator is no fraction that a person chose.


@dataclass(frozen=True)
class Coreset:
    """Weighted scores by atom: what the server's problem is made of.

    Weights may be in any unit. If they and `test` are whole numbers, and their sum times alpha's
    denominator is below 2**52, every comparison of weights is exact. Within an atom the scores
    ascend strictly, and +inf may come last.
    """

    membership: Bools  # (a, G): Phi_A of each atom. The rows are distinct.
    start: Ints  # (a + 1,): Atom i owns values[start[i]:start[i + 1]].
    values: Floats  # (n,): The scores S-bar, atom by atom.
    weights: Floats  # (n,): The weight W of each score.
    test: float  # w_test, the weight of the test point, in the unit of `weights`.

    def __post_init__(self) -> None:
        if not self.membership.shape[0]:
            raise GCFCPError("the coreset has no atoms: at least one record with weight is needed")


def combined(atom: Ints, values: Floats, weights: Floats) -> tuple[Ints, Floats, Floats]:
    """Merge equal values of an atom into one, and add up their weights from left to right.

    `atom` ascends, and so do the `values` of each atom. Cost: O(n).
    """
    new = np.ones(len(values), dtype=bool)
    new[1:] = (atom[1:] != atom[:-1]) | (values[1:] != values[:-1])
    if new.all():
        return atom, values, weights
    first = np.flatnonzero(new)
    return atom[first], values[first], np.add.reduceat(weights, first)


@dataclass(frozen=True)
class Pieces:
    """The functions f_A: breakpoints and slopes, laid end to end."""

    rows: Floats  # (a, r): The memberships Phi_A on the independent columns.
    start: Ints  # (a,): Where the breakpoints of each atom begin in `values`.
    size: Ints  # (a,): How many breakpoints each atom has, the one at infinity included.
    values: Floats  # The breakpoints. One at infinity is held as 0 and flagged in `infinite`.
    exact: Floats  # The same numbers as they were before enormous ones were scaled.
    lossy: bool  # Scaling has cost the smallest scores some bits.
    infinite: Bools  # (a,): The atom's last breakpoint is at infinity.
    slopes: Floats  # The slope before breakpoint i of atom a is at first[a] + i; one more follows.
    tie: Floats  # (a,): An infinitesimal shift of each atom's scores, which breaks ties.
    weight: Floats  # (r,): The total weight of each independent group.
    whole: bool  # All slopes are whole numbers, so that ties among them are exact.
    grain: float  # All scores are multiples of this power of two; 0 if they are not discrete.
    first: Ints  # (a,): Where the slopes of each atom begin in `slopes`.
    pull: Floats  # (r,): The sum of slope Phi over atoms that are left out (see `vicinity`).

    def coarser(self, stride: int) -> Pieces:
        """Keep every `stride`-th breakpoint of each atom, and always the last. Cost: O(n / stride).

        Breakpoint i of the coarser function is number (i + 1) stride - 1 of the finer one, or its
        last. It takes the jumps of the slope of all that were dropped since the one before.
        """
        if stride == 1:
            return self
        kept = -(-self.size // stride)
        start = np.concatenate([[0], np.cumsum(kept)[:-1]]).astype(np.int64)
        atom = np.repeat(np.arange(len(kept)), kept)
        within = np.arange(len(atom)) - start[atom]
        index = np.minimum((within + 1) * stride, self.size[atom]) - 1
        slopes = np.empty(len(atom) + len(kept))
        slopes[start + np.arange(len(kept))] = self.slopes[self.first]
        slopes[np.arange(len(atom)) + atom + 1] = self.slopes[self.first[atom] + index + 1]
        taken = self.start[atom] + index
        return replace(
            self,
            start=start,
            size=kept,
            values=self.values[taken],
            exact=self.exact[taken],
            slopes=slopes,
            first=start + np.arange(len(start)),
        )


def independent(matrix: Floats, order: Ints) -> Ints:
    """The indices in `order` whose rows are independent of the rows chosen before them.

    `matrix` holds zeros and ones and is left as it is. Cost: O(rows rank columns), less if the
    first rows of `order` are independent.
    """
    chosen = []
    reduced = np.ascontiguousarray(matrix[order])
    for i, row in enumerate(reduced):
        pivot = int(np.argmax(np.abs(row)))
        if abs(row[pivot]) > ZERO:
            chosen.append(order[i])
            if len(chosen) == len(row):
                break  # No further row can be independent.
            reduced[i + 1 :] -= np.outer(reduced[i + 1 :, pivot] / row[pivot], row)
    return np.array(chosen, dtype=np.int64)


def pieces_of(coreset: Coreset, alpha: Fraction) -> tuple[Pieces, Ints, float]:
    """f_A of every atom, the independent columns, and t = (1 - alpha) w_test. Cost: O(n).

    All weights are multiplied by alpha's denominator. If that is beyond 2**20, alpha is
    the result of a computation. Exact ties in weight are then accidental, and the weights are not
    multiplied.
    """
    keep = float(_unit(alpha))
    slopes, total = _prefix_sums(coreset, keep, float(t_scale(alpha)))
    infinite = np.isinf(coreset.values[coreset.start[1:] - 1])
    exact = coreset.values
    if infinite.any():
        exact = np.where(np.isinf(exact), 0.0, exact)
    values, lossy = _within_range(exact, coreset.start)
    rows = coreset.membership.astype(np.float64)
    columns = independent(rows.T, np.arange(rows.shape[1]))
    pieces = Pieces(
        rows=np.ascontiguousarray(rows[:, columns]),
        start=coreset.start[:-1],
        size=np.diff(coreset.start),
        values=values,
        exact=exact,
        lossy=lossy,
        infinite=infinite,
        slopes=slopes,
        tie=_shifts(len(rows)),
        weight=keep * (total @ rows[:, columns]),
        whole=_whole(coreset, alpha, total),
        grain=_grain(values, _largest(values, coreset.start)),
        first=coreset.start[:-1] + np.arange(len(rows)),
        pull=np.zeros(len(columns)),
    )
    return pieces, columns, float(t_scale(alpha) * Fraction(coreset.test))


def slopes_of(coreset: Coreset, alpha: Fraction) -> tuple[Floats, bool]:
    """The slopes of f_A of every atom, end to end, and whether all of them are whole. Cost: O(n).

    They are in the units of `pieces_of`.
    """
    keep = float(_unit(alpha))
    slopes, total = _prefix_sums(coreset, keep, float(t_scale(alpha)))
    return slopes, _whole(coreset, alpha, total)


def _whole(coreset: Coreset, alpha: Fraction, total: Floats) -> bool:
    """Whether all slopes are whole numbers. `total` is the weight of each atom, (a,)."""
    unit = _unit(alpha)
    return unit > 1 and _multiples(coreset.weights, 1.0) and float(unit) * total.sum() < 2**52


def _unit(alpha: Fraction) -> int:
    """What all weights are multiplied by: alpha's denominator, or 1 if that is too large."""
    return alpha.denominator if alpha.denominator <= _LARGEST_DENOMINATOR else 1


def t_of(test: Floats, alpha: Fraction) -> Floats:
    """t = (1 - alpha) w_test for these weights of the test point, in the unit of the slopes.

    Each is rounded once, so that it is exact if it is a whole number.
    """
    scale = t_scale(alpha)
    return np.array([float(scale * Fraction(w)) if math.isfinite(w) else w for w in test.tolist()])


def t_scale(alpha: Fraction) -> Fraction:
    """What the weight of the test point is multiplied by to give t: 1 - alpha, in that unit."""
    return (1 - alpha) * _unit(alpha)


def _prefix_sums(coreset: Coreset, keep: float, cut: float) -> tuple[Floats, Floats]:
    """The slopes keep W(scores below) - cut W(all) of every atom, end to end, and W(all), (a,).

    Each atom has a running sum of its own, because one over all atoms would lose digits. Where all
    weights of an atom are equal, as those of one client or of a proportional mixture are, multiples
    of that weight take a third of the time of a running sum.
    """
    atoms = len(coreset.start) - 1
    slopes, total = np.empty(len(coreset.weights) + atoms), np.empty(atoms)
    ramp = np.arange(int(np.diff(coreset.start).max()) + 1, dtype=np.float64)
    for a in range(atoms):
        own = slopes[coreset.start[a] + a : coreset.start[a + 1] + a + 1]
        weights = coreset.weights[coreset.start[a] : coreset.start[a + 1]]
        if (weights == weights[0]).all():
            np.multiply(ramp[: len(own)], weights[0], out=own)
        else:
            own[0] = 0.0
            np.cumsum(weights, out=own[1:])
        total[a] = own[-1]
        own *= keep
        own -= cut * total[a]
    return slopes, total


def _within_range(exact: Floats, start: Ints) -> tuple[Floats, bool]:
    """Scores whose sums do not overflow, and whether scaling them has cost some of them bits."""
    if _largest(exact, start) <= _ENORMOUS:
        return exact, False
    values = exact * _SMALLER
    return values, not np.array_equal(values / _SMALLER, exact)


@lru_cache(maxsize=8)
def _shifts(atoms: int) -> Floats:
    """A random shift for each atom, the same in every run. No sum of shifts is zero by chance."""
    shifts = np.random.default_rng(0).random(atoms)
    shifts.flags.writeable = False
    return shifts


def _largest(values: Floats, start: Ints) -> float:
    """The largest size of a score. Cost: O(a).

    Within an atom scores ascend, so the first, the last, or the last but one is the largest. The
    last but one counts because a score at infinity is held as 0 and comes last.
    """
    ends = np.concatenate([start[:-1], start[1:] - 1, np.maximum(start[1:] - 2, start[:-1])])
    return float(np.abs(values[ends]).max())


def _multiples(numbers: Floats, of: float) -> bool:
    """Whether all `numbers` are multiples of the power of two `of`. It stops once one is not."""
    for start in range(0, len(numbers), _IN_CACHE):
        part = numbers[start : start + _IN_CACHE]
        if of != 1.0:
            part = part / of
        if not (part == np.rint(part)).all():
            return False
    return True


def _grain(values: Floats, largest: float) -> float:
    """The power of two near 2**-20 of the largest score if all are multiples of it, else 0."""
    grain = math.ldexp(_GRAIN, math.frexp(largest)[1])
    return grain if grain > 0 and _multiples(values, grain) else 0.0
