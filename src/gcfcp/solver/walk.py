"""The simplex over pieces, in floats, for many test rows side by side.

A vertex is r = rank(Phi) independent atoms, each resting on one of its own scores (the basis).
Every other atom knows how many of its scores lie below its theta; this is kept as a count and
never read off a float. See `solver` for the problem, and for why the outcome is exact.

Cost of a pivot: O(|A+| r) for each row, whatever n is. Only where scores differ by more than
2**44 and cancel, many count as tied, and telling them apart takes time for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.solver.problem import SLOPE_TOLERANCE, ZERO, Pieces

_VALUE_TOLERANCE = 2.0**-44  # of the scores that make up a theta
_SMALLEST = 2.0**-1022  # normal number
_BLOCK = 256  # breakpoints of a ray that are laid out at first
_BESIDE = np.array([-1, 1])  # the places next to one
_REFRESH = 64  # pivots between two fresh factorisations
_LONGEST_RAY = 2**22  # breakpoints that are laid out at a time
_LARGEST_DETERMINANT = 2**20  # of a basis whose multiples a float inverse tells apart


@dataclass
class Walk:
    """Where the simplex stands, for m test rows side by side. It is the loop variable of
    `descend` and nothing more, and so the one mutable thing here."""

    basis: Ints  # (m, r): basic atoms
    at: Ints  # (m, a): a basic atom's breakpoint; else how many breakpoints lie below theta
    inverse: Floats  # (m, r, r): of the basic rows
    c: Floats  # (m, r): Phi_test in terms of the basic ones
    t: Floats  # (m,): weight of the test row

    def __getitem__(self, which: Ints | Bools) -> Walk:
        return Walk(
            self.basis[which], self.at[which], self.inverse[which], self.c[which], self.t[which]
        )


def snap(matrix: NDArray[np.floating[Any]]) -> Floats:
    """Entries that are whole numbers but for rounding become whole, so that errors do not grow."""
    whole = np.rint(matrix)
    snapped: Floats = np.where(np.abs(matrix - whole) < ZERO, whole, matrix)
    return snapped


def pick(array: NDArray[Any], index: Ints) -> NDArray[Any]:
    """array[i, index[i]] for every problem i."""
    return array[np.arange(len(index))[:, None], index]


def put(array: NDArray[Any], index: Ints, values: Any) -> None:
    """array[i, index[i]] = values[i] for every problem i."""
    array[np.arange(len(index))[:, None], index] = values


def resting_scores(pieces: Pieces, walk: Walk) -> tuple[Floats, Floats]:
    """The scores that each basis rests on, and 1.0 where that is the one at infinity."""
    at = pick(walk.at, walk.basis)
    infinite = pieces.infinite[walk.basis] & (at == pieces.size[walk.basis] - 1)
    return pieces.values[pieces.start[walk.basis] + at], infinite.astype(np.float64)


def along(pieces: Pieces, walk: Walk, vector: Floats) -> Floats:
    """What every atom gets when the basic atoms get `vector`: Phi inv(Phi_basis) vector."""
    beta = np.matmul(walk.inverse, vector[:, :, None])[:, :, 0]
    reached: Floats = beta @ pieces.rows.T
    return reached


def _noise(pieces: Pieces, walk: Walk, scores: Floats) -> Floats:
    """A bound on the rounding in theta, of every atom. Below the smallest normal number rounding
    does not get smaller."""
    beta = np.matmul(np.abs(walk.inverse), (np.abs(scores) + _SMALLEST)[:, :, None])[:, :, 0]
    bound: Floats = _VALUE_TOLERANCE * (beta @ pieces.rows.T)
    return bound


def thetas(pieces: Pieces, walk: Walk) -> tuple[Floats, Floats, Floats]:
    """theta of every atom: the number, its multiple of infinity, and the rounding it may carry."""
    scores, infinite = resting_scores(pieces, walk)
    number = along(pieces, walk, scores)
    put(number, walk.basis, scores)
    return number, along(pieces, walk, infinite), _noise(pieces, walk, scores)


def locate(pieces: Pieces, walk: Walk) -> None:
    """Set `at` of the atoms outside the basis of a single problem from theta."""
    number, far, noise = (x[0] for x in thetas(pieces, walk))
    shift = pieces.tie - along(pieces, walk, pieces.tie[walk.basis])[0]
    finite = pieces.size - pieces.infinite
    # Past all finite scores; past the one at infinity too, if there is one?
    level = np.where(np.abs(far - 1) > ZERO, far - 1, number)
    beyond = pieces.infinite & ((level > noise) | ((np.abs(level) <= noise) & (shift < 0)))
    at = np.where(far > ZERO, finite + beyond, 0)
    undecided = np.abs(far) <= ZERO
    undecided[walk.basis[0]] = False
    for a in np.flatnonzero(undecided):
        own = pieces.values[pieces.start[a] : pieces.start[a] + finite[a]]
        at[a] = own.searchsorted(number[a] - noise[a], side="left")
        close = np.arange(at[a], own.searchsorted(number[a] + noise[a], side="right"))
        if len(close):  # equal but for rounding: whole numbers tell, or else the shift
            gaps = exact_gaps(pieces, walk, 0, np.full(len(close), a), close)
            at[a] += sum((gap or shift[a]) < 0 for gap in (gaps[0] if gaps else [0] * len(close)))
    at[walk.basis[0]] = walk.at[0, walk.basis[0]]
    walk.at[0] = at


def gradient_of(pieces: Pieces, walk: Walk) -> Floats:
    """The slope of every atom at its theta, so that sum_A slope_A Phi_A = t Phi_test.

    In the basis it is the multiplier, y = (t Phi_test - sum of slope Phi outside) inv(Phi_basis).
    """
    slope: Floats = pieces.slopes[pieces.first + walk.at]
    put(slope, walk.basis, 0.0)
    pull = slope @ pieces.rows
    y = walk.t[:, None] * walk.c - np.matmul(pull[:, None, :], walk.inverse)[:, 0]
    put(slope, walk.basis, y)
    return slope


@dataclass(frozen=True)
class Multipliers:
    """y of the basic atoms, (m, r), and what it must lie between."""

    y: Floats
    low: Floats  # the slope before the score that the atom rests on
    high: Floats  # and behind it
    tolerance: Floats  # a bound on the rounding in y


def multipliers(pieces: Pieces, walk: Walk) -> Multipliers:
    left = pieces.first[walk.basis] + pick(walk.at, walk.basis)
    y = pick(gradient_of(pieces, walk), walk.basis)
    # A group of almost no weight is held to its own weight.
    weights = np.matmul(pieces.weight, np.abs(walk.inverse)) + np.abs(walk.t[:, None] * walk.c)
    tolerance: Floats = SLOPE_TOLERANCE * weights
    return Multipliers(y, pieces.slopes[left], pieces.slopes[left + 1], tolerance)


def violation(walk: Walk, found: Multipliers) -> tuple[Ints, Ints, Floats, Floats]:
    """The basic score whose multiplier is furthest outside its slopes, for the way it moves beta.

    Returns its position, the direction it must move in (0: optimal), the derivative D of h along
    its ray, and the rounding that D may carry. t is lowered by an infinitesimal.
    """
    over, under, tolerance = found.y - found.high, found.low - found.y, found.tolerance
    over[(over < -tolerance) | ((over <= tolerance) & (walk.c > -ZERO))] = -np.inf
    under[(under < -tolerance) | ((under <= tolerance) & (walk.c < ZERO))] = -np.inf
    worst = np.maximum(over, under)
    # Steepest: by how fast h falls for the way beta goes.
    norms = np.sqrt(np.square(walk.inverse).sum(axis=1))
    b = (worst / norms).argmax(axis=1)
    chosen = np.arange(len(b)), b
    D = -worst[chosen]
    direction = np.where(over[chosen] >= under[chosen], 1, -1)
    return b, np.where(np.isinf(D), 0, direction), D, tolerance[chosen]


def exact_gaps(
    pieces: Pieces, walk: Walk, i: int, atoms: Ints, index: Ints
) -> tuple[list[int], int] | None:
    """det (score - theta) of these breakpoints, exactly, as multiples of some unit; and det.

    None if det(Phi_basis) is too large for the float inverse to tell its multiples apart.
    """
    basis = walk.basis[i]
    det = round(math.exp(np.linalg.slogdet(pieces.rows[basis])[1]))
    if det > _LARGEST_DETERMINANT:
        return None
    distinct, which = np.unique(atoms, return_inverse=True)
    c = np.rint(det * (pieces.rows[distinct] @ walk.inverse[i])).astype(np.int64)
    ahead = pieces.exact[pieces.start[atoms] + index].tolist()
    resting = pieces.exact[pieces.start[basis] + walk.at[i, basis]].tolist()
    ratios = [x.as_integer_ratio() for x in ahead + resting]
    unit = max(q for _, q in ratios)  # all are powers of two
    whole = [p * (unit // q) for p, q in ratios]
    held = whole[len(ahead) :]
    theta = [sum(k * s for k, s in zip(row, held, strict=True) if k) for row in c.tolist()]
    return [det * s - theta[k] for s, k in zip(whole, which.tolist(), strict=False)], det


def _ranks(
    pieces: Pieces, walk: Walk, i: int, atoms: Ints, index: Ints, speed: Floats
) -> list[int]:
    """The order in which a ray meets these breakpoints, exactly; equal ones have equal ranks."""
    gaps = exact_gaps(pieces, walk, i, atoms, index)
    if gaps is None:
        return [0] * len(atoms)
    # gap / speed; speeds are multiples of 1 / det, so over a common multiple all times are whole.
    pace = [round(gaps[1] * v) for v in speed.tolist()]
    common = math.lcm(*set(pace))
    times = [gap * (common // v) for gap, v in zip(gaps[0], pace, strict=True)]
    rank = {time: k for k, time in enumerate(sorted(set(times)))}
    return [rank[time] for time in times]


@dataclass(frozen=True)
class _Step:
    """What a ray passes before its derivative turns, for m problems."""

    turned: Bools  # (m,): False: it never turns, and h is unbounded
    passed: Ints  # (m, a): change of `at`
    entering: Ints  # (m,): the atom at whose breakpoint it turns
    index: Ints  # (m,): which of its breakpoints that is


def _ray(
    pieces: Pieces,
    walk: Walk,
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
    each = np.arange(m)
    endless = bool(pieces.infinite.any())  # some breakpoint is at infinity, a leap away
    scores, infinite = resting_scores(pieces, walk)
    leaving = walk.basis[each, b][:, None]
    ray = walk.inverse[each, :, b]
    speed = direction[:, None] * snap(ray @ pieces.rows.T)
    put(speed, walk.basis, 0.0)
    put(speed, leaving, direction[:, None])
    moves = np.abs(speed) > ZERO
    # Only the atoms that move in some problem; in the others they have nothing ahead.
    columns = np.flatnonzero(moves.any(axis=0))
    speed, moves, at = speed[:, columns], moves[:, columns], walk.at[:, columns]
    start, first, size = pieces.start[columns], pieces.first[columns], pieces.size[columns]
    v = np.where(moves, speed, 1.0)
    pace = np.abs(v)
    up = v > 0
    own = columns == leaving
    theta = np.where(own, scores[each, b][:, None], along(pieces, walk, scores)[:, columns])
    # The next breakpoint ahead and how many there are; the leaving atom stands on one already.
    ahead = at + np.where(up, own, -1)
    left = np.where(moves, np.where(up, size - ahead, ahead + 1), 0)
    sign = np.where(up, 1, -1)
    # With t an infinitesimal lower, a derivative of zero is negative where the ray gains on t.
    lowered = direction * walk.c[each, b] < -ZERO
    turn = -D + np.where(lowered, tolerance, -tolerance)

    width = width or max(4, _BLOCK // len(columns))
    depth = np.arange(max(1, min(width, int(left.max()))))
    known = depth < left[:, :, None]
    index = np.where(known, ahead[:, :, None] + sign[:, :, None] * depth, 0)
    step = (pieces.values[start[:, None] + index] - theta[:, :, None]) / v[:, :, None]
    slope = first[:, None] + index
    gain = pace[:, :, None] * (pieces.slopes[slope + 1] - pieces.slopes[slope])
    beyond = ~known
    leap = np.zeros((m, 1))
    if endless:
        far = along(pieces, walk, infinite)[:, columns]
        reaches = pieces.infinite[columns, None] & (index == size[:, None] - 1)
        leap = np.maximum(np.rint((reaches - far[:, :, None]) / v[:, :, None] / ZERO), 0.0)
        step[(step < 0) & (leap == 0)] = 0.0  # rounding: what is ahead is not behind
        leap[beyond] = np.inf
    else:
        np.maximum(step, 0.0, out=step)
    gain[beyond] = 0.0
    step[beyond] = np.inf
    short = left > len(depth)
    unknown = short.any(axis=1)
    some_unknown = bool(unknown.any())
    step, gain, leap = (x.reshape(m, -1) for x in (step, gain, leap))
    order = np.lexsort((step, leap)) if endless else step.argsort(axis=1)
    running = pick(gain, order).cumsum(axis=1)
    turned = running[:, -1] > turn
    stop = (running > turn[:, None]).argmax(axis=1)[:, None]
    cut = np.zeros(m, dtype=bool)
    if some_unknown and 8 * order.size > _LONGEST_RAY:
        # Too much to lay out: go to the first end of what is known, which is still downhill.
        ends = np.arange(len(depth) - 1, order.shape[1], len(depth))
        place = np.argsort(order, axis=1)[:, ends]
        earliest = np.min(np.where(short, place, order.shape[1]), axis=1)
        cut = unknown & (~turned | (earliest <= stop[:, 0]))
        stop[cut, 0], turned = earliest[cut], turned | cut
    chosen = pick(order, stop)

    # Steps that are equal but for rounding go in the order of the infinitesimal shifts. Mostly
    # there are none: then the neighbours of the chosen one are clear of it.
    slack = _noise(pieces, walk, scores)[:, columns] / pace
    step_chosen = pick(step, chosen)
    leap_chosen = pick(leap, chosen) if endless else leap
    beside = pick(step, pick(order, (stop + _BESIDE) % order.shape[1]))
    widest = 2 * slack.max(axis=1, keepdims=True)
    crowded = (beside >= step_chosen - widest) & (beside <= step_chosen + widest)
    reach, tied = step_chosen, np.zeros(m, dtype=bool)
    if crowded.any():
        allowed = (slack + pick(slack, chosen // len(depth))).repeat(len(depth), axis=1)
        near = (step >= step_chosen - allowed) & (step <= step_chosen + allowed)
        if endless:
            near &= leap == leap_chosen
        reach = np.where(near, step, -np.inf).max(axis=1, keepdims=True)
        tied = near.sum(axis=1) > 1
    again = unknown & ~turned
    if some_unknown:
        early = step[:, len(depth) - 1 :: len(depth)] <= reach
        if endless:
            edge_leap = leap[:, len(depth) - 1 :: len(depth)]
            early = (edge_leap < leap_chosen) | ((edge_leap == leap_chosen) & early)
        again |= (short & early).any(axis=1)
    again &= ~cut
    ties = (turned & tied & ~again & ~cut).nonzero()[0]
    if len(ties):  # so something is crowded, and `near` there
        own_shift = pieces.tie - along(pieces, walk[ties], pieces.tie[walk.basis[ties]])
        shift = np.repeat(own_shift[:, columns] / v[ties], len(depth), axis=1)
        rank = np.argsort(order[ties], axis=1)
        group = near[ties]
        rank = np.where(
            group, np.min(np.where(group, rank, rank.shape[1]), axis=1, keepdims=True), rank
        )
        fine = np.zeros(group.shape)
        for i, problem in enumerate(ties.tolist() if not pieces.grain else ()):
            member = np.flatnonzero(group[i])
            column = member // len(depth)
            fine[i, member] = _ranks(
                pieces,
                walk,
                problem,
                columns[column],
                index[problem].reshape(-1)[member],
                v[problem, column],
            )
        # Within an atom the order of its scores stands: lexsort is stable and index ascends.
        order[ties] = np.lexsort((np.where(group, shift, 0.0), fine, rank))
        running = np.cumsum(pick(gain[ties], order[ties]), axis=1)
        stop[ties] = np.argmax(running > turn[ties, None], axis=1)[:, None]
        chosen[ties] = pick(order[ties], stop[ties])

    row, place = np.nonzero(np.arange(order.shape[1]) < stop)
    moved = row * atoms + columns[order[row, place] // len(depth)]
    passed = np.bincount(moved, minlength=m * atoms).reshape(m, atoms)
    passed[:, columns] *= sign
    found = _Step(
        turned,
        passed,
        columns[chosen[:, 0] // len(depth)],
        pick(index.reshape(m, -1), chosen)[:, 0],
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


def _pivot(pieces: Pieces, walk: Walk, b: Ints, direction: Ints, step: _Step) -> None:
    each = np.arange(len(b))
    leaving = walk.basis[each, b]
    walk.at += step.passed
    walk.at[each, leaving] += direction > 0  # its own breakpoint is behind it now
    walk.at[each, step.entering] = step.index
    # Where the leaving atom moves on to another score of its own, p is zero and nothing changes.
    p = snap(np.matmul(pieces.rows[step.entering][:, None, :], walk.inverse)[:, 0])
    stays = (leaving == step.entering).nonzero()[0]
    p[stays] = 0.0
    p[stays, b[stays]] = 1.0
    pivot = p[each, b]
    p[each, b] -= 1.0
    ray = walk.inverse[each, :, b] / pivot[:, None]
    walk.inverse -= ray[:, :, None] * p[:, None, :]
    walk.c = snap(walk.c - (walk.c[each, b] / pivot)[:, None] * p)
    walk.basis[each, b] = step.entering


def factorise(pieces: Pieces, walk: Walk, rows: Floats) -> None:
    walk.inverse = snap(np.linalg.inv(pieces.rows[walk.basis]))
    walk.c = snap(np.matmul(rows[:, None, :], walk.inverse)[:, 0])


def descend(pieces: Pieces, walk: Walk, rows: Floats) -> tuple[Walk, Ints]:
    """Walk to the vertices that minimise h for test `rows` of weight t.

    Returns the walk (freshly factorised) and the pivots each took; -1 where h is unbounded.
    """
    pivots = np.zeros(len(rows), dtype=np.int64)
    basis, at = walk.basis.copy(), walk.at.copy()
    t = walk.t
    live = np.arange(len(rows))
    limit = 1000 + 20 * len(pieces.size) * (1 + rows.shape[1])
    for count in range(1, limit):
        b, direction, D, tolerance = violation(walk, multipliers(pieces, walk))
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
                factorise(pieces, walk, rows[live])
            if len(live):
                continue
        basis[live], at[live] = walk.basis, walk.at
        walk = Walk(basis, at, walk.inverse, walk.c, t)
        factorise(pieces, walk, rows)
        return walk, pivots
    raise GCFCPError(f"no optimum after {limit} pivots: a defect of gcfcp, please report it")
