"""Rational arithmetic for what floats cannot decide.

Thresholds are sums of scores with rational coefficients. `combine` computes them exactly and rounds
them up, never down. `ExactWalk` is the simplex of `walk` for a single test row, with every
comparison in fractions. It is slow and rarely needed, and it is right where 0.1 + 0.2 meets 0.3.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from gcfcp.arrays import Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.solver.equations import inverted
from gcfcp.solver.problem import SLOPE_TOLERANCE, Pieces
from gcfcp.solver.products import combined, combined_each, times

# A place on the line: a multiple of infinity, a number, and a multiple of an infinitesimal. Tuples
# are compared from left to right, which is the order of such places.
Point = tuple[Fraction, Fraction, Fraction]

_DIGIT = 24  # An exact solution gains this many bits at a time.
_LARGEST_WHOLE = 2.0**52  # Sums of floats that are whole numbers are exact up to this size.


def _solve_exactly(matrix: Floats, right: list[int]) -> tuple[list[int], int]:
    """x with matrix @ x = right: whole numerators and their common denominator.

    `matrix` holds zeros and ones. x is computed in binary digits first (`_binary_digits`). Its
    denominators divide det(matrix), so once there are twice as many digits as det has, continued
    fractions find them. The outcome is checked in whole numbers.
    Cost: O(r^3), and O(r^2) for each digit.
    """
    inverse, volume = inverted(matrix[None])
    bits = int(volume[0] / math.log(2)) + 2
    places = (2 * bits + 64) // _DIGIT + 1
    x = _binary_digits(matrix, inverse[0], right, places)
    denominator, one = 1, 1 << places * _DIGIT
    for k in x:
        over = (k * denominator) % one
        if min(over, one - over) << bits > one:  # k / one times `denominator` is not whole yet.
            denominator *= Fraction(over, one).limit_denominator(1 << bits).denominator
    scaled = [(2 * k * denominator + one) // (2 * one) for k in x]
    for row, k in zip(matrix, right, strict=True):
        if sum(scaled[j] for j in np.flatnonzero(row)) != k * denominator:
            raise GCFCPError(
                "the exact solution for these groups failed its check: a defect of gcfcp, please "
                "report it"
            )
    return scaled, denominator


def _binary_digits(matrix: Floats, inverse: Floats, right: list[int], places: int) -> list[int]:
    """x with matrix @ x = right, times 2**(24 places), cut off to whole numbers.

    As in long division, 24 bits of `right` are taken down at a time, the float inverse yields the
    next digit of x, and the rest is kept in whole numbers.
    """
    whole = matrix.astype(np.int64)
    sign, mask = [1 if k >= 0 else -1 for k in right], 2**_DIGIT - 1
    longest = max(abs(k).bit_length() for k in right) // _DIGIT
    rest = np.zeros(len(right), dtype=np.int64)
    x = [0] * len(right)
    for place in range(longest, -1 - places, -1):
        rest = rest << _DIGIT
        if place >= 0:
            down = [s * (abs(k) >> place * _DIGIT & mask) for s, k in zip(sign, right, strict=True)]
            rest = rest + np.array(down, dtype=np.int64)
        digit = np.rint(times(rest[None].astype(np.float64), inverse)[0]).astype(np.int64)
        rest = rest - whole @ digit
        x = [(k << _DIGIT) + d for k, d in zip(x, digit.tolist(), strict=True)]
    return x


class ExactWalk:
    """One test row in rational arithmetic. It decides where rounding leaves a comparison open.

    It is the same simplex, but it passes one breakpoint at a time and has no tolerance for scores.
    It starts where the floats ended, so mostly it has nothing to do but to agree.
    Cost of a pivot: O(r^3 + a r) for the equations, most of it in Python's whole numbers.
    """

    def __init__(self, pieces: Pieces, basis: Ints, at: Ints, row: Floats, t: float) -> None:
        self.pieces, self.row, self.t = pieces, row, Fraction(t)
        self.basis, self.at = basis.copy(), at.copy()
        self.support = [np.flatnonzero(row).tolist() for row in pieces.rows]

    def _point(self, a: int, i: int) -> Point:
        """Breakpoint i of atom a."""
        pieces = self.pieces
        far = pieces.infinite[a] and i == pieces.size[a] - 1
        value = Fraction(float(pieces.exact[pieces.start[a] + i]))
        return Fraction(int(far)), value, Fraction(float(pieces.tie[a]))

    def _slope(self, a: int, i: int) -> Fraction:
        """The slope of f_A of atom a just before its breakpoint i."""
        return Fraction(float(self.pieces.slopes[self.pieces.first[a] + i]))

    def _solved(self, matrix: Floats, right: Sequence[Fraction]) -> list[Fraction]:
        """x with matrix @ x = right."""
        unit = math.lcm(*(k.denominator for k in right))
        x, denominator = _solve_exactly(matrix, [int(k * unit) for k in right])
        return [Fraction(k, denominator * unit) for k in x]

    def _reached(self, basic: Sequence[Fraction]) -> list[Fraction]:
        """What every atom gets when the basic atoms get `basic`: Phi inv(Phi_basis) basic."""
        if not any(basic):
            return [Fraction(0)] * len(self.support)
        beta = self._solved(self.pieces.rows[self.basis], basic)
        return [sum((beta[j] for j in own), Fraction(0)) for own in self.support]

    def _place(self, a: int, theta: Point) -> int:
        """How many breakpoints of atom a lie below theta."""
        i, size = int(self.at[a]), int(self.pieces.size[a])
        if (i == 0 or self._point(a, i - 1) < theta) and (i == size or theta < self._point(a, i)):
            return i
        return bisect_left(range(size), theta, key=lambda k: self._point(a, k))

    def _offender(self) -> tuple[int, int]:
        """A basic position whose multiplier is outside its slopes, and the direction in which its
        theta must move: 1 or -1. It is (0, 0) at the optimum."""
        pieces, atoms = self.pieces, self.basis.tolist()
        test = [Fraction(int(k)) for k in self.row]
        right = [self.t * k for k in test]
        for a in set(range(len(self.support))).difference(atoms):
            slope = self._slope(a, int(self.at[a]))
            for j in self.support[a]:
                right[j] -= slope
        basic = pieces.rows[self.basis]
        y, c = self._solved(basic.T, right), self._solved(basic.T, test)
        # Weights that are not whole carry rounding, so ties among them need a tolerance.
        tolerance = np.zeros(len(atoms))
        if not pieces.whole:
            size = np.abs(inverted(basic[None])[0][0])
            tolerance = SLOPE_TOLERANCE * combined(pieces.weight[None], size)[0]
        for b, a in enumerate(atoms):
            i, tie = int(self.at[a]), Fraction(float(tolerance[b]))
            over, under = y[b] - self._slope(a, i + 1), self._slope(a, i) - y[b]
            # t counts as lowered by an infinitesimal. So y is lower where c is positive.
            if over > tie or (over >= -tie and c[b] < 0):
                return b, 1
            if under > tie or (under >= -tie and c[b] > 0):
                return b, -1
        return 0, 0

    def descend(self) -> bool:
        """Walk to the optimum. False if h is unbounded."""
        for _ in range(1000 + 20 * len(self.support)):
            theta = self._located()
            b, direction = self._offender()
            if not direction:
                return True
            stop = self._next_breakpoint(b, direction, theta)
            if stop is None:
                return False
            self.at[self.basis[b]] += direction > 0
            self.basis[b] = stop[0]
            self.at[stop[0]] = stop[1]
        raise GCFCPError("no exact optimum within the limit of pivots: please report it")

    def _located(self) -> list[Point]:
        """theta of every atom. It also sets `at` of the atoms outside the basis."""
        atoms = self.basis.tolist()
        resting = [self._point(a, int(self.at[a])) for a in atoms]
        theta = list(zip(*map(self._reached, zip(*resting, strict=True)), strict=True))
        for a in set(range(len(theta))).difference(atoms):
            self.at[a] = self._place(a, theta[a])
        return theta

    def _next_breakpoint(
        self, b: int, direction: int, theta: list[Point]
    ) -> tuple[int, int] | None:
        """The atom and the index of the breakpoint that the ray of position b meets first.

        None says that it meets none.
        """
        atoms = self.basis.tolist()
        unit = [Fraction(direction if k == b else 0) for k in range(len(atoms))]
        ahead = []
        for a, speed in enumerate(self._reached(unit)):
            i = int(self.at[a]) + (-1 if speed < 0 else a in atoms)
            if speed and 0 <= i < self.pieces.size[a]:
                there = self._point(a, i)
                time = tuple((p - q) / speed for p, q in zip(there, theta[a], strict=True))
                ahead.append((time, a, i))
        return min(ahead)[1:] if ahead else None


def _round_up(exact: Fraction) -> float:
    """The smallest float that is at least `exact`."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def combine(c: Floats, scores: Floats, rows: Floats, row: Floats, volume: Floats) -> list[float]:
    """S* = sum_b c_b s_b of m test rows from the scores s themselves, rounded up.

    `rows` is Phi_basis, (m, r, r), with `volume` = log |det(Phi_basis)|, (m,), up to rounding, and
    `row` is Phi_test, (m, r), as are `c` and `scores`. The floats `c` are used if they solve
    c Phi_basis = Phi_test once they are rounded to multiples of 1, or of 1 / det(Phi_basis), which
    is checked in whole numbers. Otherwise the equations are solved exactly. A single score of
    coefficient 1, which is what a basic atom has, is returned as it is.
    """
    found = []
    for (numerators, denominator), own in zip(
        _whole_coefficients(c, rows, row, volume), scores.tolist(), strict=True
    ):
        terms = [(k, s) for k, s in zip(numerators, own, strict=True) if k]
        if denominator == 1 and [k for k, _ in terms] == [1]:
            found.append(float(terms[0][1]) + 0.0)  # Adding 0.0 turns -0.0 into 0.0.
            continue
        ratios = [s.as_integer_ratio() for _, s in terms]
        unit = max((q for _, q in ratios), default=1)  # All denominators are powers of two.
        total = sum(k * p * (unit // q) for (k, _), (p, q) in zip(terms, ratios, strict=True))
        found.append(_round_up(Fraction(total, unit * denominator)))
    return found


def _whole_coefficients(
    c: Floats, rows: Floats, row: Floats, volume: Floats
) -> list[tuple[list[int], int]]:
    """c with c Phi_basis = Phi_test, exactly: numerators of each, and their common denominator."""
    found: list[tuple[list[int], int]] = [([], 0)] * len(c)
    left = np.arange(len(c))
    for whole_numbers in (True, False):
        size = np.ones(len(left)) if whole_numbers else _whole_determinants(volume[left])
        whole = np.rint(size[:, None] * c[left])
        exact = (size > 0) & (np.abs(whole).sum(axis=1) < _LARGEST_WHOLE)
        exact &= (combined_each(whole, rows[left]) == size[:, None] * row[left]).all(axis=1)
        for i in np.flatnonzero(exact).tolist():
            found[int(left[i])] = [int(k) for k in whole[i].tolist()], int(size[i])
        left = left[~exact]
    for i in left.tolist():
        found[i] = _solve_exactly(rows[i].T, [int(k) for k in row[i]])
    return found


def _whole_determinants(volume: Floats) -> Floats:
    """|det| of matrices of whole numbers, (m,), from log |det|.

    It is 0 where it is so large that it is not told from its neighbours.
    """
    clear = volume < math.log(_LARGEST_WHOLE)
    return np.asarray(np.rint(np.exp(np.where(clear, volume, -np.inf))))
