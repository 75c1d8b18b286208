"""All thresholds of a coreset, exact: a simplex that walks the pieces.

The augmented quantile regression of the paper (eq. 13) sees a test point only through its
membership row, so S* is a function of the atom. With theta_A = beta' Phi_A the objective is

    h(beta) = sum_A f_A(theta_A) - t beta' Phi_test,    t = (1 - alpha) w_test,

where f_A, the pinball loss of everything in atom A, is convex and piecewise linear in ONE
variable: its breakpoints are the atom's scores and its slopes are prefix sums. The problem has
|G| unknowns and |A+| terms, whatever n is. S* is the smallest beta' Phi_test over the minimisers
of h: the left derivative of the dual value at t, which for one group and one client is the
ceil((n+1)(1-alpha))-th smallest score.

How it works. A vertex is r = rank(Phi) independent atoms, each resting on one of its own scores
(the basis). Every other atom knows how many of its scores lie below its theta. The multipliers y
of the basis must lie between the slopes left and right of their scores; the worst offender moves
along its ray, passing breakpoints of all atoms until the directional derivative turns (a long
step), and the breakpoint where it turns takes its place. No such breakpoint: S* = +inf.

Why it is exact.
- Ties in weight, such as (n+1)(1-alpha) an integer, are broken by lowering t by an infinitesimal:
  y is compared as a pair (value, its change with t). That is the left derivative.
- Ties in score (discrete scores, equal scores across atoms) are broken by shifting each atom's
  scores by an infinitesimal of its own, so the walk cannot cycle.
- A score of +inf is a breakpoint at infinity, a level above all finite numbers.
- The basis is a combinatorial object. Once it is found, S* = sum_b c_b s_b is recomputed from the
  scores themselves in rational arithmetic and rounded up, never down; c solves
  sum_b c_b Phi_b = Phi_test, checked in integers.
- Every solution is verified against the first-order condition before it is returned. Where a
  float is too close to call (0.1 + 0.2 against 0.3, or 1e12 next to 1e-12), the same condition is
  decided in rational arithmetic, and the walk goes on there if it does not hold.
- Weights that are not whole carry rounding, so a difference within 2**-46 of the weights that make
  it up counts as a tie. A false tie costs that much coverage.

Why not an LP library: it would see n columns instead of |A+| functions, return a vertex of its
own choice from the optimal face, and be exact only to its tolerance (see benchmarks/).

Cost: O(n) once for the prefix sums; then some pivots a threshold, each O(|A+| r), whatever n is.

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
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.errors import GCFCPError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SLOPE_TOLERANCE = 2.0**-46  # of the weights that make up a multiplier: far above rounding
_VALUE_TOLERANCE = 2.0**-44  # of the scores that make up a theta
_ZERO = 1e-9  # coefficients are small rationals; anything below this is rounding
_LEVEL_RATIO = 128  # how much coarser each level of the first solve is
_COARSEST = 1024  # breakpoints an atom may have on the coarsest level
_BLOCK = 128
_IN_CACHE = 2**15  # numbers that are looked at together
_REFRESH = 64  # pivots between two fresh factorisations
_LONGEST_RAY = 2**22  # breakpoints that are laid out at a time
_BATCH = 2**18  # memberships, over all the problems that are solved side by side
_LARGEST_DETERMINANT = 2**20  # of a basis whose multiples a float inverse tells apart
_SMALL_DENOMINATOR = 64
_DIGIT = 24  # bits that an exact solution gains at a time
_ENORMOUS = 2.0**900
_GRAIN = 2.0**-20  # scores that are multiples of this part of the largest are called discrete


def rational(number: float | Fraction) -> Fraction:
    """The simplest fraction that this float stands for: 0.1 is 1/10, 1/3 is 1/3.

    The exact value of the float 0.3 is a little below 3/10, which would push an integral
    (n+1)(1-alpha) over the next integer.
    """
    exact = Fraction(number)
    simple = exact.limit_denominator(10**6)
    return simple if float(simple) == float(number) else exact


@dataclass(frozen=True)
class Coreset:
    """Weighted scores by atom: what the server's problem is made of.

    `weights` and `test` are in any common unit; whole numbers below 2**53 make every comparison
    of weights exact. Within an atom the scores ascend strictly; +inf may come last.
    """

    membership: NDArray[np.bool_]  # (a, G), distinct rows
    start: Ints  # (a + 1,): atom i owns values[start[i]:start[i + 1]]
    values: Floats
    weights: Floats
    test: float

    def __post_init__(self) -> None:
        if not self.membership.shape[0]:
            raise GCFCPError("the coreset has no atoms: at least one record with weight is needed")


@dataclass(frozen=True)
class Solution:
    """One threshold with the evidence for it."""

    threshold: float
    pivots: int
    bounded: bool  # False: no finite threshold is valid, whatever the scores are
    infinite_atoms: NDArray[np.bool_]  # atoms whose own theta is at infinity in this solution


@dataclass(frozen=True)
class Evidence:
    """What proves a finite threshold: theta = Phi beta for some beta, and each atom's gradient, a
    slope of f_A at theta_A, with sum_A gradient_A Phi_A = t Phi_test."""

    theta: Floats  # (a,)
    gradient: Floats  # (a,), in the units of `Solver.t`
    infinite: NDArray[np.bool_]  # (a,): theta_A is at infinity and its number means nothing


@dataclass(frozen=True)
class _Pieces:
    """The functions f_A: breakpoints and slopes, laid end to end."""

    rows: Floats  # (a, r): memberships on the independent columns
    start: Ints  # (a,): first breakpoint of each atom
    size: Ints  # (a,): breakpoints of each atom, the one at infinity included
    values: Floats  # breakpoints; the one at infinity is held as 0 and flagged
    infinite: NDArray[np.bool_]  # (a,): the last breakpoint is at infinity
    slopes: Floats  # slope before breakpoint i of atom a at first[a] + i; one more at its end
    tie: Floats  # (a,): each atom's infinitesimal shift
    weight: Floats  # (r,): total weight of each independent group
    whole: bool  # slopes are whole numbers, so that ties among them are exact
    grain: float  # all scores are multiples of it; 0 if they are not discrete
    first: Ints = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", self.start + np.arange(len(self.start)))

    def coarser(self, stride: int) -> _Pieces:
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
        values = self.values[self.start[atom] + index]
        return replace(self, start=start, size=kept, values=values, slopes=slopes)


@dataclass
class _Walk:
    """Where the simplex stands, for m test rows side by side. It is the loop variable of
    `_descend` and nothing more, and so the one mutable thing here."""

    basis: Ints  # (m, r): basic atoms
    at: Ints  # (m, a): a basic atom's breakpoint; else how many breakpoints lie below theta
    inverse: Floats  # (m, r, r): of the basic rows
    c: Floats  # (m, r): Phi_test in terms of the basic ones
    t: Floats  # (m,): weight of the test row

    def __getitem__(self, which: Ints | NDArray[np.bool_]) -> _Walk:
        return _Walk(
            self.basis[which], self.at[which], self.inverse[which], self.c[which], self.t[which]
        )


def _snap(matrix: NDArray[np.floating[Any]]) -> Floats:
    """Entries that are whole numbers but for rounding become whole, so that errors do not grow."""
    whole = np.rint(matrix)
    snapped: Floats = np.where(np.abs(matrix - whole) < _ZERO, whole, matrix)
    return snapped


def _independent(matrix: Floats, order: Ints) -> Ints:
    """Indices of independent rows of a 0/1 matrix: each in `order` that adds to those before it."""
    chosen = []
    reduced = matrix[order]
    for i, row in enumerate(reduced):
        pivot = int(np.argmax(np.abs(row)))
        if abs(row[pivot]) > _ZERO:
            chosen.append(order[i])
            if len(chosen) == len(row):
                break  # there cannot be more
            reduced[i + 1 :] -= np.outer(reduced[i + 1 :, pivot] / row[pivot], row)
    return np.array(chosen, dtype=np.int64)


def _pieces(coreset: Coreset, alpha: Fraction) -> tuple[_Pieces, Ints, float]:
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
    for a in range(atoms):  # atom by atom: one running sum over all of them would lose digits
        own = slopes[coreset.start[a] + a : coreset.start[a + 1] + a + 1]
        own[0] = 0.0
        np.cumsum(coreset.weights[coreset.start[a] : coreset.start[a + 1]], out=own[1:])
        total[a] = own[-1]
        own *= keep
        own -= cut * total[a]
    infinite = np.isinf(coreset.values[coreset.start[1:] - 1])
    values = coreset.values
    if infinite.any():
        values = np.where(np.isinf(values), 0.0, values)
    if _largest(values, coreset.start) > _ENORMOUS:
        values = values / _ENORMOUS  # sums of several must not overflow
    rows = coreset.membership.astype(np.float64)
    columns = _independent(rows.T.copy(), np.arange(rows.shape[1]))
    pieces = _Pieces(
        rows=np.ascontiguousarray(rows[:, columns]),
        start=start,
        size=size,
        values=values,
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


def _pick(array: NDArray[Any], index: Ints) -> NDArray[Any]:
    """array[i, index[i]] for every problem i."""
    return array[np.arange(len(index))[:, None], index]


def _put(array: NDArray[Any], index: Ints, values: Any) -> None:
    """array[i, index[i]] = values[i] for every problem i."""
    array[np.arange(len(index))[:, None], index] = values


def _resting(pieces: _Pieces, walk: _Walk) -> tuple[Floats, Floats]:
    """The scores that each basis rests on, and 1.0 where that is the one at infinity."""
    at = _pick(walk.at, walk.basis)
    infinite = pieces.infinite[walk.basis] & (at == pieces.size[walk.basis] - 1)
    return pieces.values[pieces.start[walk.basis] + at], infinite.astype(np.float64)


def _along(pieces: _Pieces, walk: _Walk, vector: Floats) -> Floats:
    """What every atom gets when the basic atoms get `vector`: Phi inv(Phi_basis) vector."""
    beta = np.matmul(walk.inverse, vector[:, :, None])[:, :, 0]
    reached: Floats = beta @ pieces.rows.T
    return reached


def _noise(pieces: _Pieces, walk: _Walk, scores: Floats) -> Floats:
    """A bound on the rounding in theta, of every atom."""
    beta = np.matmul(np.abs(walk.inverse), np.abs(scores)[:, :, None])[:, :, 0]
    bound: Floats = _VALUE_TOLERANCE * (beta @ pieces.rows.T)
    return bound


def _theta(pieces: _Pieces, walk: _Walk) -> tuple[Floats, Floats, Floats]:
    """theta of every atom: the number, its multiple of infinity, and the rounding it may carry."""
    scores, infinite = _resting(pieces, walk)
    number = _along(pieces, walk, scores)
    _put(number, walk.basis, scores)
    return number, _along(pieces, walk, infinite), _noise(pieces, walk, scores)


def _locate(pieces: _Pieces, walk: _Walk) -> None:
    """Set `at` of the atoms outside the basis of a single problem from theta."""
    number, far, noise = (x[0] for x in _theta(pieces, walk))
    shift = pieces.tie - _along(pieces, walk, pieces.tie[walk.basis])[0]
    finite = pieces.size - pieces.infinite
    # Past all finite scores; past the one at infinity too, if there is one?
    level = np.where(np.abs(far - 1) > _ZERO, far - 1, number)
    beyond = pieces.infinite & ((level > noise) | ((np.abs(level) <= noise) & (shift < 0)))
    at = np.where(far > _ZERO, finite + beyond, 0)
    undecided = np.abs(far) <= _ZERO
    undecided[walk.basis[0]] = False
    for a in np.flatnonzero(undecided):
        own = pieces.values[pieces.start[a] : pieces.start[a] + finite[a]]
        at[a] = own.searchsorted(number[a] - noise[a], side="left")
        close = np.arange(at[a], own.searchsorted(number[a] + noise[a], side="right"))
        if len(close):  # equal but for rounding: whole numbers tell, or else the shift
            gaps = _gaps(pieces, walk, 0, np.full(len(close), a), close)
            at[a] += sum((gap or shift[a]) < 0 for gap in (gaps[0] if gaps else [0] * len(close)))
    at[walk.basis[0]] = walk.at[0, walk.basis[0]]
    walk.at[0] = at


def _gradient(pieces: _Pieces, walk: _Walk) -> Floats:
    """The slope of every atom at its theta, so that sum_A slope_A Phi_A = t Phi_test.

    In the basis it is the multiplier, y = (t Phi_test - sum of slope Phi outside) inv(Phi_basis).
    """
    slope: Floats = pieces.slopes[pieces.first + walk.at]
    _put(slope, walk.basis, 0.0)
    pull = slope @ pieces.rows
    y = walk.t[:, None] * walk.c - np.matmul(pull[:, None, :], walk.inverse)[:, 0]
    _put(slope, walk.basis, y)
    return slope


def _weight_tolerance(pieces: _Pieces, walk: _Walk) -> Floats:
    """A bound on the rounding in y. A group of almost no weight is held to its own weight."""
    weights = np.matmul(pieces.weight, np.abs(walk.inverse)) + np.abs(walk.t[:, None] * walk.c)
    return _SLOPE_TOLERANCE * np.asarray(weights)


def _violation(pieces: _Pieces, walk: _Walk) -> tuple[Ints, Ints, Floats, Floats]:
    """The basic score whose multiplier is furthest outside its slopes, for the way it moves beta.

    Returns its position, the direction it must move in (0: optimal), the derivative D of h along
    its ray, and the rounding that D may carry. t is lowered by an infinitesimal.
    """
    left = pieces.first[walk.basis] + _pick(walk.at, walk.basis)
    y = _pick(_gradient(pieces, walk), walk.basis)
    over, under = y - pieces.slopes[left + 1], pieces.slopes[left] - y
    tolerance = _weight_tolerance(pieces, walk)
    over[(over < -tolerance) | ((over <= tolerance) & (walk.c > -_ZERO))] = -np.inf
    under[(under < -tolerance) | ((under <= tolerance) & (walk.c < _ZERO))] = -np.inf
    worst = np.maximum(over, under)
    # Steepest: by how fast h falls for the way beta goes.
    norms = np.sqrt(np.square(walk.inverse).sum(axis=1))
    b = np.argmax(worst / norms, axis=1)
    chosen = b[:, None]
    D = -_pick(worst, chosen)[:, 0]
    direction = np.where(_pick(over, chosen) >= _pick(under, chosen), 1, -1)[:, 0]
    return b, np.where(np.isinf(D), 0, direction), D, _pick(tolerance, chosen)[:, 0]


def _gaps(
    pieces: _Pieces, walk: _Walk, i: int, atoms: Ints, index: Ints
) -> tuple[list[int], int] | None:
    """det (score - theta) of these breakpoints, exactly, as multiples of some unit; and det.

    None if det(Phi_basis) is too large for the float inverse to tell its multiples apart.
    """
    basis = walk.basis[i]
    det = round(math.exp(np.linalg.slogdet(pieces.rows[basis])[1]))
    if det > _LARGEST_DETERMINANT:
        return None
    c = np.rint(det * (pieces.rows[atoms] @ walk.inverse[i])).astype(np.int64)
    ahead = pieces.values[pieces.start[atoms] + index].tolist()
    resting = pieces.values[pieces.start[basis] + walk.at[i, basis]].tolist()
    ratios = [x.as_integer_ratio() for x in ahead + resting]
    unit = max(q for _, q in ratios)  # all are powers of two
    whole = [p * (unit // q) for p, q in ratios]
    held = whole[len(ahead) :]
    theta = [sum(k * s for k, s in zip(row, held, strict=True) if k) for row in c.tolist()]
    return [det * s - x for s, x in zip(whole, theta, strict=False)], det


def _ranks(
    pieces: _Pieces, walk: _Walk, i: int, atoms: Ints, index: Ints, speed: Floats
) -> list[int]:
    """The order in which a ray meets these breakpoints, exactly; equal ones have equal ranks."""
    gaps = _gaps(pieces, walk, i, atoms, index)
    if gaps is None:
        return [0] * len(atoms)
    times = [Fraction(g, round(gaps[1] * v)) for g, v in zip(gaps[0], speed.tolist(), strict=True)]
    rank = {time: k for k, time in enumerate(sorted(set(times)))}
    return [rank[time] for time in times]


@dataclass(frozen=True)
class _Step:
    """What a ray passes before its derivative turns, for m problems."""

    turned: NDArray[np.bool_]  # (m,): False: it never turns, and h is unbounded
    passed: Ints  # (m, a): change of `at`
    entering: Ints  # (m,): the atom at whose breakpoint it turns
    index: Ints  # (m,): which of its breakpoints that is


def _ray(
    pieces: _Pieces,
    walk: _Walk,
    b: Ints,
    direction: Ints,
    D: Floats,
    tolerance: Floats,
    width: int = 0,
) -> _Step:
    """The long step of basic position b along its ray, for every problem.

    The breakpoints ahead of all moving atoms are merged, `width` of each, until the derivative
    turns. Problems for which that part of the ray was too short go round again with more.
    """
    m, atoms = walk.at.shape
    scores, infinite = _resting(pieces, walk)
    leaving = _pick(walk.basis, b[:, None])
    ray = walk.inverse[np.arange(m), :, b]
    speed = direction[:, None] * _snap(ray @ pieces.rows.T)
    _put(speed, walk.basis, 0.0)
    _put(speed, leaving, direction[:, None])
    moves = np.abs(speed) > _ZERO
    # Only the atoms that move in some problem; in the others they have nothing ahead.
    columns = np.flatnonzero(moves.any(axis=0))
    speed, moves, at = speed[:, columns], moves[:, columns], walk.at[:, columns]
    start, first, size = pieces.start[columns], pieces.first[columns], pieces.size[columns]
    v = np.where(moves, speed, 1.0)
    up = v > 0
    own = columns == leaving
    theta = np.where(own, _pick(scores, b[:, None]), _along(pieces, walk, scores)[:, columns])
    # The next breakpoint ahead and how many there are; the leaving atom stands on one already.
    ahead = at + np.where(up, own, -1)
    left = np.where(moves, np.where(up, size - ahead, ahead + 1), 0)
    sign = np.where(up, 1, -1)
    # With t an infinitesimal lower, a derivative of zero is negative where the ray gains on t.
    lowered = direction * _pick(walk.c, b[:, None])[:, 0] < -_ZERO
    turn = -D + np.where(lowered, tolerance, -tolerance)

    width = width or max(4, _BLOCK // len(columns))
    depth = np.arange(max(1, min(width, int(left.max()))))
    known = depth < left[:, :, None]
    index = np.where(known, ahead[:, :, None] + sign[:, :, None] * depth, 0)
    step = (pieces.values[start[:, None] + index] - theta[:, :, None]) / v[:, :, None]
    slope = first[:, None] + index
    gain = np.abs(v)[:, :, None] * (pieces.slopes[slope + 1] - pieces.slopes[slope])
    gain[~known] = 0.0
    leap = np.zeros_like(step)
    if pieces.infinite.any():
        far = _along(pieces, walk, infinite)[:, columns]
        reaches = pieces.infinite[columns, None] & (index == size[:, None] - 1)
        leap = np.maximum(np.rint((reaches - far[:, :, None]) / v[:, :, None] / _ZERO), 0.0)
    step[(step < 0) & (leap == 0)] = 0.0  # rounding: what is ahead is not behind
    leap[~known] = np.inf
    step[~known] = np.inf
    short = left > len(depth)
    step, gain, leap = (x.reshape(m, -1) for x in (step, gain, leap))
    order = np.lexsort((step, leap)) if pieces.infinite.any() else np.argsort(step, axis=1)
    running = np.cumsum(_pick(gain, order), axis=1)
    turned = running[:, -1] > turn
    stop = np.argmax(running > turn[:, None], axis=1)[:, None]
    cut = np.zeros(m, dtype=bool)
    if short.any() and 8 * order.size > _LONGEST_RAY:
        # Too much to lay out: go to the first end of what is known, which is still downhill.
        ends = np.arange(len(depth) - 1, order.shape[1], len(depth))
        place = np.argsort(order, axis=1)[:, ends]
        first = np.min(np.where(short, place, order.shape[1]), axis=1)
        cut = short.any(axis=1) & (~turned | (first <= stop[:, 0]))
        stop[cut, 0], turned = first[cut], turned | cut
    chosen = _pick(order, stop)

    # Steps that are equal but for rounding go in the order of the infinitesimal shifts.
    slack = _noise(pieces, walk, scores)[:, columns] / np.abs(v)
    atom = chosen // len(depth)
    leap_chosen, step_chosen = _pick(leap, chosen), _pick(step, chosen)
    allowed = np.repeat(slack + _pick(slack, atom), len(depth), axis=1)
    with np.errstate(invalid="ignore"):
        near = (np.abs(step - step_chosen) <= allowed) & (leap == leap_chosen)
    again = short.any(axis=1) & ~turned
    if short.any():
        reach = np.max(np.where(near, step, -np.inf), axis=1, keepdims=True)
        edge_leap, edge = (
            leap[:, len(depth) - 1 :: len(depth)],
            step[:, len(depth) - 1 :: len(depth)],
        )
        early = (edge_leap < leap_chosen) | ((edge_leap == leap_chosen) & (edge <= reach))
        again |= (short & early).any(axis=1)
    again &= ~cut
    ties = np.flatnonzero(turned & ~again & ~cut & (near.sum(axis=1) > 1))
    if len(ties):
        own_shift = pieces.tie - _along(pieces, walk[ties], pieces.tie[walk.basis[ties]])
        shift = np.repeat(own_shift[:, columns] / v[ties], len(depth), axis=1)
        rank = np.argsort(order[ties], axis=1)
        group = near[ties]
        rank = np.where(
            group, np.min(np.where(group, rank, rank.shape[1]), axis=1, keepdims=True), rank
        )
        fine = np.zeros(group.shape)
        for i, tied in enumerate(ties.tolist() if not pieces.grain else ()):
            member = np.flatnonzero(group[i])
            column = member // len(depth)
            fine[i, member] = _ranks(
                pieces,
                walk,
                tied,
                columns[column],
                index[tied].reshape(-1)[member],
                v[tied, column],
            )
        # Within an atom the order of its scores stands: lexsort is stable and index ascends.
        order[ties] = np.lexsort((np.where(group, shift, 0.0), fine, rank))
        running = np.cumsum(_pick(gain[ties], order[ties]), axis=1)
        stop[ties] = np.argmax(running > turn[ties, None], axis=1)[:, None]
        chosen[ties] = _pick(order[ties], stop[ties])

    problem, place = np.nonzero(np.arange(order.shape[1]) < stop)
    moved = problem * atoms + columns[order[problem, place] // len(depth)]
    passed = np.bincount(moved, minlength=m * atoms).reshape(m, atoms)
    passed[:, columns] *= sign
    found = _Step(
        turned,
        passed,
        columns[chosen[:, 0] // len(depth)],
        _pick(index.reshape(m, -1), chosen)[:, 0],
    )
    if again.any():
        rest = np.flatnonzero(again)
        more = _ray(
            pieces, walk[rest], b[rest], direction[rest], D[rest], tolerance[rest], width * 8
        )
        for whole, part in zip(
            (found.turned, found.passed, found.entering, found.index),
            (more.turned, more.passed, more.entering, more.index),
            strict=True,
        ):
            whole[rest] = part
    return found


def _pivot(pieces: _Pieces, walk: _Walk, b: Ints, direction: Ints, step: _Step) -> None:
    each = np.arange(len(b))
    leaving = walk.basis[each, b]
    walk.at += step.passed
    walk.at[each, leaving] += direction > 0  # its own breakpoint is behind it now
    walk.at[each, step.entering] = step.index
    # Where the leaving atom moves on to another score of its own, p is zero and nothing changes.
    p = _snap(np.matmul(pieces.rows[step.entering][:, None, :], walk.inverse)[:, 0])
    p[leaving == step.entering] = np.eye(p.shape[1])[b[leaving == step.entering]]
    pivot = p[each, b]
    p[each, b] -= 1.0
    ray = walk.inverse[each, :, b] / pivot[:, None]
    walk.inverse -= ray[:, :, None] * p[:, None, :]
    walk.c = _snap(walk.c - (walk.c[each, b] / pivot)[:, None] * p)
    walk.basis[each, b] = step.entering


def _factorise(pieces: _Pieces, walk: _Walk, rows: Floats) -> None:
    walk.inverse = _snap(np.linalg.inv(pieces.rows[walk.basis]))
    walk.c = _snap(np.matmul(rows[:, None, :], walk.inverse)[:, 0])


def _descend(pieces: _Pieces, walk: _Walk, rows: Floats) -> tuple[_Walk, Ints]:
    """Walk to the vertices that minimise h for test `rows` of weight t.

    Returns the walk (freshly factorised) and the pivots each took; -1 where h is unbounded.
    """
    pivots = np.zeros(len(rows), dtype=np.int64)
    basis, at = walk.basis.copy(), walk.at.copy()
    t = walk.t
    live = np.arange(len(rows))
    limit = 1000 + 20 * len(pieces.size) * (1 + rows.shape[1])
    for count in range(1, limit):
        b, direction, D, tolerance = _violation(pieces, walk)
        going = direction != 0
        if going.any():
            if not going.all():
                basis[live[~going]], at[live[~going]] = walk.basis[~going], walk.at[~going]
                live, walk = live[going], walk[going]
                b, direction, D, tolerance = (x[going] for x in (b, direction, D, tolerance))
            step = _ray(pieces, walk, b, direction, D, tolerance)
            pivots[live] += 1
            if not step.turned.all():
                pivots[live[~step.turned]] = -1
                kept = step.turned
                live, walk, b, direction = live[kept], walk[kept], b[kept], direction[kept]
                step = _Step(kept[kept], step.passed[kept], step.entering[kept], step.index[kept])
            _pivot(pieces, walk, b, direction, step)
            if count % _REFRESH == 0 and len(live):
                _factorise(pieces, walk, rows[live])
            if len(live):
                continue
        basis[live], at[live] = walk.basis, walk.at
        walk = _Walk(basis, at, walk.inverse, walk.c, t)
        _factorise(pieces, walk, rows)
        return walk, pivots
    raise GCFCPError(f"no optimum after {limit} pivots: a defect of gcfcp, please report it")


def _unsure(pieces: _Pieces, walk: _Walk) -> NDArray[np.bool_]:
    """Whether it is still open that a walk is at its optimum.

    Floats settle a comparison if the difference is beyond rounding, or if all numbers are whole
    and rounding is below the smallest difference there can be: y and theta are multiples of
    1 / det(Phi_basis). Then what looks like a tie is one.
    """
    unsure: NDArray[np.bool_] = _violation(pieces, walk)[1] != 0
    fraction = np.exp(-np.linalg.slogdet(pieces.rows[walk.basis])[1])[:, None]
    if pieces.whole:
        left = pieces.first[walk.basis] + _pick(walk.at, walk.basis)
        y = _pick(_gradient(pieces, walk), walk.basis)
        room = np.minimum(y - pieces.slopes[left], pieces.slopes[left + 1] - y)
        tolerance = _weight_tolerance(pieces, walk)
        for i, b in np.argwhere((room <= tolerance) & (2 * tolerance >= fraction)).tolist():
            column = walk.inverse[i, :, b]
            unsure[i] |= (
                2 * tolerance[i, b] * _denominator(pieces.rows[walk.basis[i]], b, column) >= 1
            )
    number, far, noise = _theta(pieces, walk)
    finite = pieces.size - pieces.infinite
    number[far > _ZERO], number[far < -_ZERO] = np.inf, -np.inf
    last = pieces.values[pieces.start + np.clip(walk.at, 1, None) - 1]
    following = pieces.values[pieces.start + np.minimum(walk.at, pieces.size - 1)]
    behind = np.where((walk.at == 0) | (walk.at > finite), np.inf, number - last)
    ahead = np.where(walk.at >= finite, np.inf, following - number)
    if pieces.infinite.any():  # around infinity the levels must be clear of each other
        behind[(walk.at > finite) & (far <= 1 + _ZERO)] = -np.inf
        ahead[pieces.infinite & (walk.at == finite) & (far >= 1 - _ZERO)] = -np.inf
    room = np.minimum(behind, ahead)
    _put(room, walk.basis, np.inf)
    tied = (room >= -noise) & (2 * noise < fraction * pieces.grain)
    close = (room <= noise) & ~tied
    for i in np.flatnonzero(close.any(axis=1) & ~unsure).tolist():
        unsure[i] = not _in_place(pieces, walk, i, np.flatnonzero(close[i]))
    return unsure


def _denominator(matrix: Floats, b: int, column: Floats) -> float:
    """The least common denominator of column b of matrix's inverse; infinite if it is not small."""
    for k in range(1, _SMALL_DENOMINATOR + 1):
        whole = np.rint(k * column)
        if np.abs(whole - k * column).max() < _ZERO:
            unit = np.zeros(len(column))
            unit[b] = k
            return k if np.array_equal(matrix @ whole, unit) else math.inf
    return math.inf


def _in_place(pieces: _Pieces, walk: _Walk, i: int, atoms: Ints) -> bool:
    """Whether theta of these atoms lies between the scores that `at` says, exactly."""
    at, finite = walk.at[i, atoms], (pieces.size - pieces.infinite)[atoms]
    own = walk[np.array([i])]
    far = _along(pieces, own, _resting(pieces, own)[1])[0, atoms]
    if (np.abs(far) > _ZERO).any():
        return False
    shift = pieces.tie - _along(pieces, own, pieces.tie[own.basis])[0]
    for there, side in ((at - 1, -1), (at, 1)):
        has = (there >= 0) & (there < finite)
        gaps = _gaps(pieces, walk, i, atoms[has], there[has])
        if gaps is None:
            return False
        for gap, tie in zip(gaps[0], shift[atoms[has]].tolist(), strict=True):
            if side * (gap or tie) <= 0:
                return False
    return True


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


Point = tuple[Fraction, Fraction, Fraction]  # multiple of infinity, number, infinitesimal shift


class _Exact:
    """One test row in rational arithmetic: the judge where floats are unsure.

    The same simplex, one breakpoint at a time and without a tolerance for scores. It starts where
    the floats ended, so it mostly has nothing to do but to agree.
    """

    def __init__(self, pieces: _Pieces, basis: Ints, at: Ints, row: Floats, t: float) -> None:
        self.pieces, self.row, self.t = pieces, row, Fraction(t)
        self.basis, self.at = basis.copy(), at.copy()
        self.support = [np.flatnonzero(row).tolist() for row in pieces.rows]

    def _point(self, a: int, i: int) -> Point:
        """Breakpoint i of atom a."""
        pieces = self.pieces
        far = pieces.infinite[a] and i == pieces.size[a] - 1
        value = Fraction(float(pieces.values[pieces.start[a] + i]))
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
            tolerance = _SLOPE_TOLERANCE * (pieces.weight @ np.abs(np.linalg.inv(basic)))
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


def _combine(c: Floats, scores: Floats, rows: Floats, row: Floats) -> float:
    """sum_b c_b s_b from the scores themselves, rounded up; c is made exact first."""
    whole, denominator = np.rint(c), 1
    numerators = [int(k) for k in whole]
    if not np.array_equal(whole @ rows, row):
        numerators, denominator = _solve_exactly(rows.T, [int(k) for k in row])
    terms = (k * Fraction(s) for k, s in zip(numerators, scores.tolist(), strict=True) if k)
    return _round_up(sum(terms, Fraction(0)) / denominator)


class Solver:
    """Thresholds of any atom from one coreset. Immutable once made; safe for many threads."""

    def __init__(self, coreset: Coreset, alpha: Fraction) -> None:
        self.coreset = coreset
        self.alpha = alpha
        self._pieces, self._columns, self.t = _pieces(coreset, alpha)
        rows = coreset.membership.astype(np.float64)
        # Each dependent column as a combination of the independent ones.
        self._span = _snap(np.linalg.lstsq(self._pieces.rows, rows, rcond=None)[0])
        self._base = self._first_optimum()

    def _first_optimum(self) -> _Walk:
        """The optimum without a test point, from coarse to fine so that n does not matter."""
        fine = self._pieces
        stride = 1
        while int(fine.size.max()) > stride * _COARSEST:
            stride *= _LEVEL_RATIO
        none = np.zeros((1, fine.rows.shape[1]))
        pieces = fine.coarser(stride)
        walk = self._start(pieces)
        while True:
            _locate(pieces, walk)
            walk, _ = _descend(pieces, walk, none)
            if stride == 1:
                return walk
            basis = walk.basis[0]
            resting = np.minimum((walk.at[0, basis] + 1) * stride, fine.size[basis]) - 1
            stride //= _LEVEL_RATIO
            pieces = fine.coarser(stride)
            walk.at[0, basis] = resting // stride

    @staticmethod
    def _start(pieces: _Pieces) -> _Walk:
        """Independent atoms, the heaviest first, near a least-squares fit to all quantiles."""
        ends = pieces.first + pieces.size
        weight = pieces.slopes[ends] - pieces.slopes[pieces.first]
        basis = _independent(pieces.rows.copy(), np.argsort(-weight, kind="stable"))
        at = np.zeros(len(pieces.start), dtype=np.int64)
        for a in range(len(at)):
            own = pieces.slopes[pieces.first[a] + 1 : ends[a] + 1]
            at[a] = min(int(own.searchsorted(0.0)), int(pieces.size[a]) - 1)
        root, quantile = np.sqrt(weight), pieces.values[pieces.start + at]
        beta = np.linalg.lstsq(pieces.rows * root[:, None], quantile * root, rcond=None)[0]
        for a in basis:
            own = pieces.values[pieces.start[a] : pieces.start[a] + pieces.size[a]]
            at[a] = min(int(own.searchsorted(pieces.rows[a] @ beta)), int(pieces.size[a]) - 1)
        none = np.zeros((1, pieces.rows.shape[1]))
        walk = _Walk(basis[None], at[None], none[None], none, np.zeros(1))
        _factorise(pieces, walk, none)
        return walk

    def solve(self, rows: NDArray[np.bool_], t: Floats | None = None) -> list[Solution]:
        """S* of the atoms with membership `rows` (m, G); `t` (m,) in place of (1 - alpha) w_test.

        `t` is in the units of `self.t`.
        """
        full = np.atleast_2d(np.asarray(rows, dtype=np.float64))
        weights = np.full(len(full), self.t) if t is None else np.asarray(t, dtype=np.float64)
        reduced = full[:, self._columns]
        # A row outside the span: some direction of beta moves it and no atom, so nothing holds it.
        held = (np.abs(reduced @ self._span - full) <= _ZERO).all(axis=1) & full.any(axis=1)
        free = Solution(math.inf, 0, False, np.zeros(len(self._pieces.size), dtype=bool))
        solutions = [free] * len(full)
        index = np.flatnonzero(held)
        batch = max(1, _BATCH // (len(self._pieces.size) * len(self._columns)))
        for i in range(0, len(index), batch):
            part = index[i : i + batch]
            for j, solution in zip(part, self._solve(reduced[part], weights[part]), strict=True):
                solutions[j] = solution
        return solutions

    def evidence(self, row: NDArray[np.bool_]) -> Evidence | None:
        """The first-order condition of one row's solution; None if nothing finite is valid."""
        if not self.solve(row)[0].bounded:
            return None
        reduced = np.asarray(row, dtype=np.float64)[None, self._columns]
        walk, _, _ = self._optima(reduced, np.array([self.t]))
        number, far, _ = _theta(self._pieces, walk)
        return Evidence(number[0], _gradient(self._pieces, walk)[0], np.abs(far[0]) > _ZERO)

    def _optima(self, rows: Floats, t: Floats) -> tuple[_Walk, Ints, NDArray[np.bool_]]:
        """Certified optima of all rows, the pivots they took, and which of them are bounded."""
        pieces, base = self._pieces, self._base
        m = len(rows)
        walk = _Walk(
            np.repeat(base.basis, m, axis=0),
            np.repeat(base.at, m, axis=0),
            np.repeat(base.inverse, m, axis=0),
            _snap(rows @ base.inverse[0]),
            t,
        )
        walk, pivots = _descend(pieces, walk, rows)
        bounded = pivots >= 0
        # The certificate: multipliers within their slopes, scores on their side of theta. Where a
        # float cannot tell, rational arithmetic does.
        doubtful = np.flatnonzero(bounded & _unsure(pieces, walk))
        for i in doubtful.tolist():
            judge = _Exact(pieces, walk.basis[i], walk.at[i], rows[i], t[i])
            bounded[i] = judge.descend()
            walk.basis[i], walk.at[i] = judge.basis, judge.at
        if len(doubtful):
            _factorise(pieces, walk, rows)
        return walk, pivots, bounded

    def _solve(self, rows: Floats, t: Floats) -> list[Solution]:
        pieces = self._pieces
        walk, pivots, bounded = self._optima(rows, t)
        infinite = _resting(pieces, walk)[1]
        scores = self.coreset.values[pieces.start[walk.basis] + _pick(walk.at, walk.basis)]
        scores = np.where(infinite > 0, 0.0, scores)  # they cancel, or the threshold is infinite
        far = np.einsum("mr,mr->m", walk.c, infinite)
        at_infinity = _along(pieces, walk, infinite) > _ZERO
        solutions = []
        for i in range(len(rows)):
            if not bounded[i]:
                threshold = math.inf
            elif abs(far[i]) > _ZERO:
                threshold = math.copysign(math.inf, far[i])
            else:
                basic = pieces.rows[walk.basis[i]]
                threshold = _combine(walk.c[i], scores[i], basic, rows[i])
            solutions.append(Solution(threshold, int(pivots[i]), bool(bounded[i]), at_infinity[i]))
        return solutions
