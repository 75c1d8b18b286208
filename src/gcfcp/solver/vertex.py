"""Where the simplex stands, for many test rows side by side, and what can be read off there.

A vertex is r = rank(Phi) independent atoms, each of which rests on one of its own scores. These
atoms are the basis. Every other atom knows how many of its scores lie below its theta. This number
is kept as a count and is never read off a float, so that rounding cannot add up from pivot to
pivot. The module `solve` describes the problem and says why the outcome is exact.

| here      | meaning                                                                   |
|-----------|---------------------------------------------------------------------------|
| m         | the number of test rows                                                   |
| a, r      | the number of atoms |A+|, and the rank of their membership vectors Phi    |
| theta_A   | beta' Phi_A, where beta' Phi_B is the score that B rests on, for basic B  |
| y         | the multipliers: dual variables of the basic scores                       |

Cost: each function takes O(a r) for a test row, unless its docstring says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.solver.equations import inverted, refreshed
from gcfcp.solver.problem import SLOPE_TOLERANCE, ZERO, Pieces
from gcfcp.solver.products import combined, combined_each, times, times_each

_VALUE_TOLERANCE = 2.0**-44  # Rounding in a theta is below this part of the scores it is made of.
_SMALLEST_NORMAL = 2.0**-1022  # Below this, floats lose precision.
_LARGEST_VOLUME = 700.0  # Up to here the exponential function is finite.
_LARGEST_DETERMINANT = 2**20  # Up to this determinant, a float inverse tells its multiples apart.


@dataclass
class Walk:
    """Where the simplex stands, for m test rows side by side.

    It is the loop variable of `walk.descend`, and is therefore mutable.
    """

    basis: Ints  # (m, r): The basic atoms.
    at: Ints  # (m, a): The breakpoint of a basic atom; else the number of those below theta.
    inverse: Floats  # (m, r, r): The inverse of Phi_basis, the matrix of the basic rows.
    volume: Floats  # (m,): log |det(Phi_basis)|.
    c: Floats  # (m, r): Phi_test as a combination of the basic rows: c Phi_basis = Phi_test.
    t: Floats  # (m,): The weight of the test row.

    @classmethod
    def begun(cls, basis: Ints, at: Ints, t: Floats) -> Walk:
        """A walk that stands somewhere, of which `factorise` must compute the rest."""
        return cls(basis, at, np.empty(0), np.empty(0), np.empty(0), t)

    def __getitem__(self, which: Ints | Bools) -> Walk:
        return Walk(
            self.basis[which],
            self.at[which],
            self.inverse[which],
            self.volume[which],
            self.c[which],
            self.t[which],
        )

    def copy(self) -> Walk:
        """A walk that can go on from here by itself."""
        return self[np.arange(len(self.t))]


def snap(matrix: NDArray[np.floating[Any]]) -> Floats:
    """Round the entries that are within 1e-9 of a whole number, so that errors do not grow."""
    whole = np.rint(matrix)
    snapped: Floats = np.where(np.abs(matrix - whole) < ZERO, whole, matrix)
    return snapped


def pick(array: NDArray[Any], index: Ints) -> NDArray[Any]:
    """Return array[i, index[i]] for every test row i."""
    return array[np.arange(len(index))[:, None], index]


def put(array: NDArray[Any], index: Ints, values: Any) -> None:
    """Set array[i, index[i]] = values[i] for every test row i."""
    array[np.arange(len(index))[:, None], index] = values


def factorise(pieces: Pieces, walk: Walk, rows: Floats) -> None:
    """Compute `inverse`, `volume` and `c` from the basis, without what rounding has added up on the
    way.

    Cost: O(r^3) for a test row.
    """
    if len(walk.inverse):
        inverse, walk.volume = refreshed(pieces.rows[walk.basis], walk.inverse, walk.volume)
    else:
        inverse, walk.volume = inverted(pieces.rows[walk.basis])
    walk.inverse = snap(inverse)
    walk.c = snap(combined_each(rows, walk.inverse))


# --- theta ------------------------------------------------------------------------------------


def resting_scores(pieces: Pieces, walk: Walk) -> tuple[Floats, Floats]:
    """The scores that each basis rests on, and 1.0 where such a score is at infinity, else 0.0."""
    at = pick(walk.at, walk.basis)
    infinite = pieces.infinite[walk.basis] & (at == pieces.size[walk.basis] - 1)
    return pieces.values[pieces.start[walk.basis] + at], infinite.astype(np.float64)


def along(pieces: Pieces, walk: Walk, vector: Floats) -> Floats:
    """What every atom gets when the basic atoms get `vector`: Phi inv(Phi_basis) vector."""
    return times(times_each(walk.inverse, vector), pieces.rows)


def noise_by_group(walk: Walk, scores: Floats) -> Floats:
    """(m, r): What each group of an atom adds to a bound on the rounding in its theta, where the
    basis rests on `scores`.

    Rounding is proportional to a number down to the smallest normal number, and constant below.
    """
    sizes = np.abs(scores) + _SMALLEST_NORMAL
    bound: Floats = _VALUE_TOLERANCE * times_each(np.abs(walk.inverse), sizes)
    return bound


def noise_of(pieces: Pieces, walk: Walk, scores: Floats) -> Floats:
    """A bound on the rounding in theta of every atom, where the basis rests on `scores`."""
    return times(noise_by_group(walk, scores), pieces.rows)


def thetas(pieces: Pieces, walk: Walk) -> tuple[Floats, Floats, Floats]:
    """theta of every atom: the number, its multiple of infinity, and the rounding it may carry."""
    scores, infinite = resting_scores(pieces, walk)
    number = along(pieces, walk, scores)
    put(number, walk.basis, scores)
    return number, along(pieces, walk, infinite), noise_of(pieces, walk, scores)


def locate(pieces: Pieces, walk: Walk) -> None:
    """Set `at` of the atoms outside the basis from theta. The walk has a single test row.

    Cost: a binary search in the scores of each atom, and whole numbers for the scores that are
    within rounding of theta.
    """
    number, far, noise = (x[0] for x in thetas(pieces, walk))
    shift = pieces.tie - along(pieces, walk, pieces.tie[walk.basis])[0]
    finite = pieces.size - pieces.infinite
    # Where theta is at infinity, all finite scores lie below it. The score at infinity, if there
    # is one, lies below it if theta is a larger multiple of infinity, or the larger number.
    level = np.where(np.abs(far - 1) > ZERO, far - 1, number)
    beyond = pieces.infinite & ((level > noise) | ((np.abs(level) <= noise) & (shift < 0)))
    at = np.where(far > ZERO, finite + beyond, 0)
    undecided = np.abs(far) <= ZERO
    undecided[walk.basis[0]] = False
    for a in np.flatnonzero(undecided):
        own = pieces.values[pieces.start[a] : pieces.start[a] + finite[a]]
        at[a] = own.searchsorted(number[a] - noise[a], side="left")
        close = np.arange(at[a], own.searchsorted(number[a] + noise[a], side="right"))
        if len(close):  # Floats cannot tell on which side these lie. Whole numbers or shifts can.
            gaps = exact_gaps(pieces, walk, 0, np.full(len(close), a), close)
            at[a] += sum((gap or shift[a]) < 0 for gap in (gaps[0] if gaps else [0] * len(close)))
    at[walk.basis[0]] = walk.at[0, walk.basis[0]]
    walk.at[0] = at


def exact_gaps(
    pieces: Pieces, walk: Walk, i: int, atoms: Ints, index: Ints
) -> tuple[list[int], int] | None:
    """det (score - theta) of breakpoint `index` of each of these atoms, for test row i, exactly.

    The gaps are whole multiples of some unit. det = |det(Phi_basis)| is returned beside them.
    The outcome is None if det is too large for the float inverse to tell its multiples apart.
    Cost: O(r^2) for each distinct atom, and O(r) products of whole numbers.
    """
    basis, det = walk.basis[i], round(math.exp(min(walk.volume[i], _LARGEST_VOLUME)))
    if det > _LARGEST_DETERMINANT:
        return None
    distinct, which = np.unique(atoms, return_inverse=True)
    rows = pieces.rows[distinct]
    combination = np.rint(det * combined(rows, walk.inverse[i]))
    if not np.array_equal(combined(combination, pieces.rows[basis]), det * rows):
        return None
    c = combination.astype(np.int64)
    ahead = pieces.exact[pieces.start[atoms] + index].tolist()
    resting = pieces.exact[pieces.start[basis] + walk.at[i, basis]].tolist()
    ratios = [x.as_integer_ratio() for x in ahead + resting]
    unit = max(q for _, q in ratios)  # All denominators are powers of two, so it is their lcm.
    whole = [p * (unit // q) for p, q in ratios]
    held = whole[len(ahead) :]
    theta = [sum(k * s for k, s in zip(row, held, strict=True) if k) for row in c.tolist()]
    return [det * s - theta[k] for s, k in zip(whole, which.tolist(), strict=False)], det


def scores_around(pieces: Pieces, at: Ints) -> tuple[Floats, Floats]:
    """The finite scores just below and just above theta, of which `at` lie below it.

    `at` is (a,) or (m, a), and so are the scores. They are -inf and +inf where there are none.
    """
    finite = pieces.size - pieces.infinite
    below = pieces.values.take(pieces.start + at - 1, mode="clip")
    above = pieces.values.take(pieces.start + at, mode="clip")
    return np.where(at > 0, below, -np.inf), np.where(at < finite, above, np.inf)


# --- multipliers ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Multipliers:
    """The multipliers y of the basic atoms, (m, r), and the slopes that they must lie between."""

    y: Floats
    low: Floats  # The slope of f_A just below the score that the atom rests on.
    high: Floats  # The slope of f_A just above that score.
    tolerance: Floats  # A bound on the rounding in y.


@dataclass(frozen=True)
class Offenders:
    """The basic atom of each test row that has to move, if there is one. All arrays are (m,)."""

    position: Ints  # The atom is walk.basis[i, position[i]].
    direction: Ints  # Its theta must rise (1) or fall (-1). At 0 the walk is at its optimum.
    derivative: Floats  # D: the derivative of h along its ray, which is negative.
    tolerance: Floats  # A bound on the rounding in D.

    def __getitem__(self, which: Ints | Bools) -> Offenders:
        return Offenders(
            self.position[which],
            self.direction[which],
            self.derivative[which],
            self.tolerance[which],
        )


def _slopes_and_multipliers(pieces: Pieces, walk: Walk) -> tuple[Floats, Floats]:
    """The slope of every atom outside the basis at its theta, (m, a), and the multipliers, (m, r).

    y = (t Phi_test - sum of slope Phi outside the basis) inv(Phi_basis). Basic atoms have slope 0.
    """
    slope: Floats = pieces.slopes[pieces.first + walk.at]
    put(slope, walk.basis, 0.0)
    pull = combined(slope, pieces.rows) + pieces.pull
    y = walk.t[:, None] * walk.c - combined_each(pull, walk.inverse)
    return slope, y


def gradient_of(pieces: Pieces, walk: Walk) -> Floats:
    """(m, a): The slope of every atom at its theta, so that sum_A slope_A Phi_A = t Phi_test.

    The slope of a basic atom is its multiplier.
    """
    slope, y = _slopes_and_multipliers(pieces, walk)
    put(slope, walk.basis, y)
    return slope


def multipliers(pieces: Pieces, walk: Walk) -> Multipliers:
    """The multipliers of the basic atoms beside the slopes that they must lie between.

    The tolerance follows the weights of the groups that a multiplier is made of. For a group of
    tiny weight it is therefore tiny too.
    """
    left = pieces.first[walk.basis] + pick(walk.at, walk.basis)
    _, y = _slopes_and_multipliers(pieces, walk)
    weight = np.broadcast_to(pieces.weight, walk.c.shape)
    weights = combined_each(weight, np.abs(walk.inverse)) + np.abs(walk.t[:, None] * walk.c)
    tolerance: Floats = SLOPE_TOLERANCE * weights
    return Multipliers(y, pieces.slopes[left], pieces.slopes[left + 1], tolerance)


def offenders(walk: Walk, found: Multipliers) -> Offenders:
    """The basic atom of each test row along whose ray h falls most steeply.

    Its multiplier lies outside its slopes. Steepness is the fall of h divided by the length of the
    way of beta. t counts as lowered by an infinitesimal: where y equals a slope within rounding,
    it lies below the slope if c is positive and above it if c is negative.
    """
    over, under, tolerance = found.y - found.high, found.low - found.y, found.tolerance
    over[(over < -tolerance) | ((over <= tolerance) & (walk.c > -ZERO))] = -np.inf
    under[(under < -tolerance) | ((under <= tolerance) & (walk.c < ZERO))] = -np.inf
    worst = np.maximum(over, under)
    norms = np.sqrt(np.square(walk.inverse).sum(axis=1))
    position = (worst / norms).argmax(axis=1)
    chosen = np.arange(len(position)), position
    derivative = -worst[chosen]
    direction = np.where(over[chosen] >= under[chosen], 1, -1)
    direction = np.where(np.isinf(derivative), 0, direction)
    return Offenders(position, direction, derivative, tolerance[chosen])
