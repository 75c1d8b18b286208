"""Rational arithmetic for what floats cannot decide.

Thresholds are sums of scores with rational coefficients: `combine` computes them exactly and
rounds up, never down. `ExactWalk` is the simplex of `simplex` for a single test row with every
comparison in fractions: slow, rarely needed, and right where 0.1 + 0.2 meets 0.3.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from gcfcp.arrays import Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.solver.problem import SLOPE_TOLERANCE, Pieces

Point = tuple[Fraction, Fraction, Fraction]  # multiple of infinity, number, infinitesimal shift

_DIGIT = 24  # bits that an exact solution gains at a time


def _solve_exactly(matrix: Floats, right: list[int]) -> tuple[list[int], int]:
    """x with matrix @ x = right, in whole numbers: numerators and their common denominator.

    The float inverse yields some binary digits of x at a time, and the residual is kept in whole
    numbers. Once there are twice as many as det has, continued fractions give x; it is checked.
    """
    inverse = np.linalg.inv(matrix)
    whole = matrix.astype(np.int64)
    bits = int(np.linalg.slogdet(matrix)[1] / math.log(2)) + 2
    sign = [1 if k >= 0 else -1 for k in right]
    longest = max(abs(k).bit_length() for k in right) // _DIGIT
    tail = (2 * bits + 64) // _DIGIT + 1
    residual = np.zeros(len(right), dtype=np.int64)
    x = [0] * len(right)
    for place in range(longest, -1 - tail, -1):
        residual = residual << _DIGIT
        if place >= 0:
            mask = 2**_DIGIT - 1
            digit = [
                s * (abs(k) >> place * _DIGIT & mask) for s, k in zip(sign, right, strict=True)
            ]
            residual = residual + np.array(digit, dtype=np.int64)
        part = np.rint(inverse @ residual).astype(np.int64)
        residual = residual - whole @ part
        x = [(a << _DIGIT) + b for a, b in zip(x, part.tolist(), strict=True)]
    denominator, one = 1, 1 << tail * _DIGIT
    for k in x:
        over = (k * denominator) % one
        if min(over, one - over) << bits > one:  # not whole yet
            denominator *= Fraction(over, one).limit_denominator(1 << bits).denominator
    scaled = [(2 * k * denominator + one) // (2 * one) for k in x]
    for row, k in zip(whole, right, strict=True):
        if sum(scaled[j] for j in np.flatnonzero(row)) != k * denominator:
            raise GCFCPError("the groups are too entangled for an exact solution: please report it")
    return scaled, denominator


class ExactWalk:
    """One test row in rational arithmetic: the judge where floats are unsure.

    The same simplex, one breakpoint at a time and without a tolerance for scores. It starts where
    the floats ended, so it mostly has nothing to do but to agree.
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
        return Fraction(float(self.pieces.slopes[self.pieces.first[a] + i]))

    def _solved(self, matrix: Floats, right: Sequence[Fraction]) -> list[Fraction]:
        unit = math.lcm(*(k.denominator for k in right))
        x, denominator = _solve_exactly(matrix, [int(k * unit) for k in right])
        return [Fraction(k, denominator * unit) for k in x]

    def _reached(self, basic: Sequence[Fraction]) -> list[Fraction]:
        """What every atom gets when the basic ones get this."""
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
        """A basic position outside its slopes and the direction it must move in, or (0, 0)."""
        pieces, atoms = self.pieces, self.basis.tolist()
        test = [Fraction(int(k)) for k in self.row]
        right = [self.t * k for k in test]
        for a in set(range(len(self.support))).difference(atoms):
            slope = self._slope(a, int(self.at[a]))
            for j in self.support[a]:
                right[j] -= slope
        basic = pieces.rows[self.basis]
        y, c = self._solved(basic.T, right), self._solved(basic.T, test)
        # Weights that are not whole are rounded, and so is every tie among them.
        tolerance = np.zeros(len(atoms))
        if not pieces.whole:
            tolerance = SLOPE_TOLERANCE * (pieces.weight @ np.abs(np.linalg.inv(basic)))
        for b, a in enumerate(atoms):
            i, tie = int(self.at[a]), Fraction(float(tolerance[b]))
            over, under = y[b] - self._slope(a, i + 1), self._slope(a, i) - y[b]
            # With t an infinitesimal lower, y is lower where c is positive.
            if over > tie or (over >= -tie and c[b] < 0):
                return b, 1
            if under > tie or (under >= -tie and c[b] > 0):
                return b, -1
        return 0, 0

    def descend(self) -> bool:
        """Walk to the optimum; False if h is unbounded."""
        pieces = self.pieces
        for _ in range(1000 + 20 * len(self.support)):
            atoms = self.basis.tolist()
            resting = [self._point(a, int(self.at[a])) for a in atoms]
            theta = list(zip(*map(self._reached, zip(*resting, strict=True)), strict=True))
            for a in set(range(len(theta))).difference(atoms):
                self.at[a] = self._place(a, theta[a])
            b, direction = self._offender()
            if not direction:
                return True
            unit = [Fraction(direction if k == b else 0) for k in range(len(atoms))]
            ahead = []
            for a, speed in enumerate(self._reached(unit)):
                step = -1 if speed < 0 else a in atoms
                i = int(self.at[a]) + step
                if speed and 0 <= i < pieces.size[a]:
                    there = self._point(a, i)
                    time = tuple((p - q) / speed for p, q in zip(there, theta[a], strict=True))
                    ahead.append((time, a, i))
            if not ahead:
                return False
            _, a, i = min(ahead)
            self.at[atoms[b]] += direction > 0
            self.basis[b], self.at[a] = a, i
        raise GCFCPError("no exact optimum within the limit of pivots: please report it")


def _round_up(exact: Fraction) -> float:
    """The smallest float that is at least `exact`."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -1.7976931348623157e308
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def combine(c: Floats, scores: Floats, rows: Floats, row: Floats) -> float:
    """sum_b c_b s_b from the scores themselves, rounded up; c is made exact first."""
    whole, denominator = np.rint(c), 1
    numerators = [int(k) for k in whole.tolist()]
    if not (whole @ rows == row).all():
        numerators, denominator = _solve_exactly(rows.T, [int(k) for k in row])
    terms = [(k, s) for k, s in zip(numerators, scores.tolist(), strict=True) if k]
    if denominator == 1 and [k for k, _ in terms] == [1]:
        return float(terms[0][1]) + 0.0  # a score itself, as for every atom in the basis
    return _round_up(sum((k * Fraction(s) for k, s in terms), Fraction(0)) / denominator)
