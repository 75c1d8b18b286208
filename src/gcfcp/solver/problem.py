"""The functions that the solver minimises: one convex, piecewise linear f_A for each atom.

f_A(theta) is the pinball loss of everything in atom A. Its breakpoints are the atom's scores and
its slopes are prefix sums of weights, times alpha's denominator, so that whole weights give whole
slopes and comparing them is exact. A score of +inf is a breakpoint at infinity.

Cost: a few passes over the scores, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError

SLOPE_TOLERANCE = 2.0**-46  # of the weights that make up a multiplier: far above rounding
ZERO = 1e-9  # coefficients are small rationals; anything below this is rounding
_IN_CACHE = 2**15  # numbers that are looked at together
_ENORMOUS, _SMALLER = 2.0**900, 2.0**-124  # sums of several enormous scores must not overflow
_GRAIN = 2.0**-20  # scores that are multiples of this part of the largest are called discrete


@dataclass(frozen=True)
class Coreset:
    """Weighted scores by atom: what the server's problem is made of.

    `weights` and `test` are in any common unit; whole numbers below 2**53 make every comparison
    of weights exact. Within an atom the scores ascend strictly; +inf may come last.
    """

    membership: Bools  # (a, G), distinct rows
    start: Ints  # (a + 1,): atom i owns values[start[i]:start[i + 1]]
    values: Floats
    weights: Floats
    test: float

    def __post_init__(self) -> None:
        if not self.membership.shape[0]:
            raise GCFCPError("the coreset has no atoms: at least one record with weight is needed")


def combined(atom: Ints, values: Floats, weights: Floats) -> tuple[Ints, Floats, Floats]:
    """Equal values of an atom become one, their weights added up in the order they are in."""
    new = np.ones(len(values), dtype=bool)
    new[1:] = (atom[1:] != atom[:-1]) | (values[1:] != values[:-1])
    if new.all():
        return atom, values, weights
    first = np.flatnonzero(new)
    return atom[first], values[first], np.add.reduceat(weights, first)


@dataclass(frozen=True)
class Pieces:
    """The functions f_A: breakpoints and slopes, laid end to end."""

    rows: Floats  # (a, r): memberships on the independent columns
    start: Ints  # (a,): first breakpoint of each atom
    size: Ints  # (a,): breakpoints of each atom, the one at infinity included
    values: Floats  # breakpoints; the one at infinity is held as 0 and flagged
    exact: Floats  # the same, before enormous ones were scaled
    lossy: bool  # scaling has cost the smallest scores some bits
    infinite: Bools  # (a,): the last breakpoint is at infinity
    slopes: Floats  # slope before breakpoint i of atom a at first[a] + i; one more at its end
    tie: Floats  # (a,): each atom's infinitesimal shift
    weight: Floats  # (r,): total weight of each independent group
    whole: bool  # slopes are whole numbers, so that ties among them are exact
    grain: float  # all scores are multiples of it; 0 if they are not discrete
    first: Ints = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", self.start + np.arange(len(self.start)))

    def coarser(self, stride: int) -> Pieces:
        """Every `stride`-th breakpoint of each atom, and always the last.

        Breakpoint i becomes i // stride, or the next one that is left.
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
        values, exact = self.values[taken], self.exact[taken]
        return replace(self, start=start, size=kept, values=values, exact=exact, slopes=slopes)


def independent(matrix: Floats, order: Ints) -> Ints:
    """Indices of independent rows of a 0/1 matrix: each in `order` that adds to those before it."""
    chosen = []
    reduced = matrix[order]
    for i, row in enumerate(reduced):
        pivot = int(np.argmax(np.abs(row)))
        if abs(row[pivot]) > ZERO:
            chosen.append(order[i])
            if len(chosen) == len(row):
                break  # there cannot be more
            reduced[i + 1 :] -= np.outer(reduced[i + 1 :, pivot] / row[pivot], row)
    return np.array(chosen, dtype=np.int64)


def pieces_of(coreset: Coreset, alpha: Fraction) -> tuple[Pieces, Ints, float]:
    """f_A of every atom, the independent columns, and t; all weights times alpha's denominator.

    So scaled, whole weights give whole slopes, and comparing them is exact. A denominator beyond
    2**20 belongs to no fraction that anyone wrote down, and ties have no meaning there.
    """
    unit = alpha.denominator if alpha.denominator <= 2**20 else 1
    keep, cut = float(unit), float((1 - alpha) * unit)
    start, size = coreset.start[:-1], np.diff(coreset.start)
    atoms = len(start)
    slopes = np.empty(len(coreset.weights) + atoms)
    total = np.empty(atoms)
    ramp = np.arange(int(size.max()) + 1, dtype=np.float64)
    for a in range(atoms):  # atom by atom: one running sum over all of them would lose digits
        own = slopes[coreset.start[a] + a : coreset.start[a + 1] + a + 1]
        weights = coreset.weights[coreset.start[a] : coreset.start[a + 1]]
        if (weights == weights[0]).all():
            # All records of a client, of a region or of a proportional mixture weigh the same;
            # multiples are three times as fast as a sum, whose every step waits for the last.
            np.multiply(ramp[: len(own)], weights[0], out=own)
        else:
            own[0] = 0.0
            np.cumsum(weights, out=own[1:])
        total[a] = own[-1]
        own *= keep
        own -= cut * total[a]
    infinite = np.isinf(coreset.values[coreset.start[1:] - 1])
    values = coreset.values
    if infinite.any():
        values = np.where(np.isinf(values), 0.0, values)
    exact, lossy = values, False
    if _largest(values, coreset.start) > _ENORMOUS:
        values = exact * _SMALLER
        lossy = not np.array_equal(values / _SMALLER, exact)
    rows = coreset.membership.astype(np.float64)
    columns = independent(rows.T.copy(), np.arange(rows.shape[1]))
    pieces = Pieces(
        rows=np.ascontiguousarray(rows[:, columns]),
        start=start,
        size=size,
        values=values,
        exact=exact,
        lossy=lossy,
        infinite=infinite,
        slopes=slopes,
        tie=_shifts(atoms),
        weight=keep * (total @ rows[:, columns]),
        whole=unit > 1 and _multiples(coreset.weights, 1.0) and keep * total.sum() < 2**52,
        grain=_grain(values, _largest(values, coreset.start)),
    )
    return pieces, columns, cut * coreset.test


@lru_cache(maxsize=8)
def _shifts(atoms: int) -> Floats:
    """An infinitesimal shift for each atom, in general position."""
    shifts = np.random.default_rng(0).random(atoms)
    shifts.flags.writeable = False
    return shifts


def _largest(values: Floats, start: Ints) -> float:
    """The largest size of a score. Within an atom they ascend, but for an infinity held as 0."""
    ends = np.concatenate([start[:-1], start[1:] - 1, np.maximum(start[1:] - 2, start[:-1])])
    return float(np.abs(values[ends]).max())


def _multiples(numbers: Floats, of: float) -> bool:
    """Whether all are multiples of a power of two; the first few mostly tell."""
    for start in range(0, len(numbers), _IN_CACHE):
        part = numbers[start : start + _IN_CACHE]
        if of != 1.0:
            part = part / of
        if not (part == np.rint(part)).all():
            return False
    return True


def _grain(values: Floats, largest: float) -> float:
    """A power of two that all scores are multiples of, no tiny part of the largest; or 0."""
    grain = math.ldexp(_GRAIN, math.frexp(largest)[1])
    return grain if grain > 0 and _multiples(values, grain) else 0.0
