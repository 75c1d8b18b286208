"""The long step: how far a basic atom moves along its ray, and which breakpoint stops it.

A basic atom that moves drags beta along the ray +-inv(Phi_basis) e_b, and theta_A of every atom A
moves at a constant speed, speed_A = +-Phi_A inv(Phi_basis) e_b. Along the ray h is convex and
piecewise linear. Its derivative D is negative at first. At each breakpoint that an atom meets it
gains |speed_A| times the jump of that atom's slope. The breakpoint where it turns positive is the
minimum of h on the ray, and the step ends there, however many breakpoints it passes.

How it works. A step seldom passes more than a few breakpoints. So only the atoms whose next
breakpoint is met first are looked at (`_Ray`). Their next few breakpoints are laid out (`_Stretch`)
and merged in the order in which they are met (`_Course`). If the derivative does not turn before
something is met that is not laid out, four times as many atoms are taken, and eight times as many
breakpoints. Breakpoints that are met at the same time within rounding are put in order exactly, by
whole numbers and by the infinitesimal shifts (`_untied`).

Cost: O(a r) for the speeds and the next breakpoint of each atom, and a sort of the breakpoints laid
out, about 64 for a test row at first. Where scores differ by more than 2**44 and cancel, many
breakpoints count as tied, and telling them apart takes time for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.solver.problem import ZERO, Pieces
from gcfcp.solver.products import times, times_each
from gcfcp.solver.vertex import (
    Offenders,
    Walk,
    along,
    exact_gaps,
    noise_by_group,
    pick,
    put,
    resting_scores,
    snap,
)

_NEAREST = 16  # At first this many atoms are looked at: those whose next breakpoint is met first.
_MORE = 4  # If a stretch was too short, the next one has this many times its atoms.
_BLOCK = 64  # At first about this many breakpoints are laid out for each test row.
_ALONE = 2  # A single test row has this many times the atoms, and as many times their breakpoints.
_FEWEST = 4  # At least this many breakpoints of each moving atom are laid out, if it has them.
_GROWTH = 8  # If a stretch was too short, the next one has this many times its breakpoints.
_LONGEST_RAY = 2**22  # A stretch does not grow beyond this many breakpoints, over all test rows.
_BESIDE = np.array([-1, 1])  # These steps lead to the places just before and just after a place.


@dataclass(frozen=True)
class Step:
    """What a ray passes before its derivative turns, for m test rows."""

    turned: Bools  # (m,): If False, the derivative never turns, and h is unbounded.
    passed: Ints  # (m, a): The change of `at` of each atom.
    entering: Ints  # (m,): The atom at whose breakpoint the derivative turns.
    index: Ints  # (m,): Which of the entering atom's breakpoints that is.

    def __getitem__(self, which: Ints | Bools) -> Step:
        return Step(self.turned[which], self.passed[which], self.entering[which], self.index[which])


@dataclass(frozen=True)
class _Ray:
    """How the atoms move, for m test rows. Only k atoms are here, which may differ by row."""

    atoms: Ints  # (m, k): Which atoms these are.
    speed: Floats  # (m, k): The change of theta for a step of 1; 1.0 if the atom does not move.
    sign: Ints  # (m, k): 1 where theta rises, -1 where it falls.
    theta: Floats  # (m, k): Where theta starts.
    far: Floats | None  # (m, k): theta's multiple of infinity. None: no score is infinite.
    ahead: Ints  # (m, k): The next breakpoint on the way.
    left: Ints  # (m, k): How many breakpoints are on the way; 0 if the atom does not move.
    slack: Floats  # (m, k): A bound on the rounding in the step at which a breakpoint is met.
    turn: Floats  # (m,): The derivative turns once its gains add up to more than this.
    beyond: Floats  # (m,): No atom that is not here is met before this step, whatever is rounded.


@dataclass(frozen=True)
class _Stretch:
    """The next `depth` breakpoints of each moving atom, flat: place j belongs to j // depth.

    All arrays are (m, k depth), except for `short`. Where an atom has fewer breakpoints on its
    way, the remaining places are never met (step inf) and gain nothing.
    """

    depth: int  # How many places each atom has.
    index: Ints  # Which of the atom's breakpoints it is.
    step: Floats  # How far along the ray it is met.
    gain: Floats  # What it adds to the derivative.
    leap: Floats | None  # Its multiple of infinity along the ray; the smaller one is met first.
    short: Bools  # (m, k): The atom has more breakpoints on its way than are laid out.

    def ends(self) -> slice:
        """The places of the last breakpoint laid out of each atom."""
        return slice(self.depth - 1, None, self.depth)


@dataclass(frozen=True)
class _Course:
    """In which order a stretch is met, and where the derivative turns, for m test rows."""

    order: Ints  # (m, k depth): The places of the stretch in the order in which they are met.
    stop: Ints  # (m, 1): How many breakpoints are met before the one where the step ends.
    chosen: Ints  # (m, 1): The place of that breakpoint in the stretch, order[stop].
    turned: Bools  # (m,): If False, the derivative does not turn on this stretch.
    cut: Bools  # (m,): The step ends before the derivative turns, where the stretch ends.


def long_step(pieces: Pieces, walk: Walk, moving: Offenders, level: int = 0) -> Step:
    """The step to the minimum of h on the ray of each test row's offender.

    Test rows for which too little was laid out take the step again on the next `level`, with more
    atoms and more of their breakpoints.
    """
    wider = _ALONE if len(walk.at) == 1 else 1  # Trying again would cost it more than a wider try.
    ray = _ray_of(pieces, walk, moving, wider * _NEAREST * _MORE**level)
    width = max(_FEWEST, wider * wider * _BLOCK * _GROWTH**level // ray.atoms.shape[1])
    stretch = _laid_out(pieces, ray, width)
    course = _course_of(ray, stretch)
    near = _near(ray, stretch, course)
    again = _too_short(ray, stretch, course, near)
    if near is not None:
        ties = (course.turned & (near.sum(axis=1) > 1) & ~again & ~course.cut).nonzero()[0]
        if len(ties):
            course = _untied(pieces, walk, ray, stretch, course, near, ties)
    found = _taken(ray, stretch, course, len(pieces.size))
    if again.any():
        rest = np.flatnonzero(again)
        more = long_step(pieces, walk[rest], moving[rest], level + 1)
        found.turned[rest], found.passed[rest] = more.turned, more.passed
        found.entering[rest], found.index[rest] = more.entering, more.index
    return found


def _ray_of(pieces: Pieces, walk: Walk, moving: Offenders, count: int) -> _Ray:
    """The ray of each test row's offender, with the `count` atoms whose next breakpoint is met
    first. Cost: O(a r) for a test row."""
    each, b, direction = np.arange(len(walk.at)), moving.position, moving.direction
    leaving = walk.basis[each, b]
    speed = times(direction[:, None] * walk.inverse[each, :, b], pieces.rows)
    put(speed, walk.basis, 0.0)
    speed[each, leaving] = direction
    scores, infinite = resting_scores(pieces, walk)
    theta = along(pieces, walk, scores)
    theta[each, leaving] = scores[each, b]
    ahead = walk.at - (speed < 0)
    # The leaving atom stands on a breakpoint already. On its way up, the next one is ahead.
    ahead[each, leaving] += direction > 0
    noise = noise_by_group(walk, scores)
    atoms, beyond = _met_first(pieces, speed, theta, ahead, noise.sum(axis=1), count)
    speed, ahead = snap(pick(speed, atoms)), pick(ahead, atoms)
    moves = np.abs(speed) > ZERO
    speed[~moves] = 1.0
    up = speed > 0
    # t counts as lowered by an infinitesimal. So a derivative of zero counts as negative where
    # the ray lowers beta' Phi_test, and as positive elsewhere.
    lowers = direction * walk.c[each, b] < -ZERO
    return _Ray(
        atoms=atoms,
        speed=speed,
        sign=np.where(up, 1, -1),
        theta=pick(theta, atoms),
        far=pick(along(pieces, walk, infinite), atoms) if pieces.infinite.any() else None,
        ahead=ahead,
        left=np.where(moves, np.where(up, pieces.size[atoms] - ahead, ahead + 1), 0),
        slack=times_each(pieces.rows[atoms], noise) / np.abs(speed),
        turn=-moving.derivative + np.where(lowers, moving.tolerance, -moving.tolerance),
        beyond=beyond,
    )


def _met_first(
    pieces: Pieces, speed: Floats, theta: Floats, ahead: Ints, noise: Floats, count: int
) -> tuple[Ints, Floats]:
    """The `count` atoms of each test row whose next breakpoint is met first, (m, count), and the
    first step at which any other atom may be met, (m,).

    All atoms that move in some row are taken if there are not more, or if a score may be infinite.

    - `speed`, `theta`, `ahead`: Those of all atoms, (m, a).
    - `noise`: (m,): A bound on the rounding in any theta.
    """
    pace = np.abs(speed)
    rests = pace <= ZERO
    if count >= len(pieces.size) or pieces.infinite.any():
        some = np.flatnonzero(~rests.all(axis=0))
        return np.broadcast_to(some, (len(speed), len(some))), np.full(len(speed), np.inf)
    # Where there is no breakpoint ahead, one of another atom is taken, and counts for nothing.
    step = pieces.values.take(pieces.start + ahead, mode="clip")
    step -= theta
    np.abs(step, out=step)
    step -= noise[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        step /= pace
    step[rests | (ahead < 0) | (ahead >= pieces.size)] = np.inf
    atoms = step.argpartition(count, axis=1)[:, : count + 1]
    return atoms[:, :count], step[np.arange(len(step)), atoms[:, count]]


def _laid_out(pieces: Pieces, ray: _Ray, width: int) -> _Stretch:
    """The next `width` breakpoints of each moving atom. Cost: O(k width) for a test row."""
    m, start, first = len(ray.left), pieces.start[ray.atoms], pieces.first[ray.atoms]
    last = pieces.size[ray.atoms] - 1
    depth = np.arange(max(1, min(width, int(ray.left.max()))))
    known = depth < ray.left[:, :, None]
    index = np.where(known, ray.ahead[:, :, None] + ray.sign[:, :, None] * depth, 0)
    speed = ray.speed[:, :, None]
    step = (pieces.values[start[:, :, None] + index] - ray.theta[:, :, None]) / speed
    slope = first[:, :, None] + index
    gain = np.abs(speed) * (pieces.slopes[slope + 1] - pieces.slopes[slope])
    beyond = ~known
    leap = None
    # Rounding can put a breakpoint behind theta, but what is ahead is met at 0 or later.
    if ray.far is None:
        np.maximum(step, 0.0, out=step)
    else:
        reaches = pieces.infinite[ray.atoms][:, :, None] & (index == last[:, :, None])
        leap = np.maximum(np.rint((reaches - ray.far[:, :, None]) / speed / ZERO), 0.0)
        step[(step < 0) & (leap == 0)] = 0.0
        leap[beyond] = np.inf
        leap = leap.reshape(m, -1)
    gain[beyond] = 0.0
    step[beyond] = np.inf
    return _Stretch(
        depth=len(depth),
        index=index.reshape(m, -1),
        step=step.reshape(m, -1),
        gain=gain.reshape(m, -1),
        leap=leap,
        short=ray.left > len(depth),
    )


def _course_of(ray: _Ray, stretch: _Stretch) -> _Course:
    """Merge the breakpoints and add up what they gain. Cost: a sort for each test row."""
    if stretch.leap is None:
        order = stretch.step.argsort(axis=1)
    else:
        order = np.lexsort((stretch.step, stretch.leap))
    running = pick(stretch.gain, order).cumsum(axis=1)
    turned = running[:, -1] > ray.turn
    stop = (running > ray.turn[:, None]).argmax(axis=1)[:, None]
    cut = np.zeros(len(turned), dtype=bool)
    course = _Course(order, stop, pick(order, stop), turned, cut)
    complete = np.isposinf(ray.beyond).all()
    if complete and _GROWTH * order.size > _LONGEST_RAY and stretch.short.any():
        return _cut_off(stretch, course)
    return course


def _cut_off(stretch: _Stretch, course: _Course) -> _Course:
    """End the step where the first atom runs out of breakpoints that are laid out.

    Up to there every breakpoint is known and h still falls. So the step is valid, but another one
    may have to follow. It is taken where the next stretch would be too much to lay out. Ties at its
    end are not put in order, because some members may lie beyond the stretch.
    """
    order, stop = course.order, course.stop.copy()
    place = np.argsort(order, axis=1)[:, stretch.ends()]
    earliest = np.min(np.where(stretch.short, place, order.shape[1]), axis=1)
    cut = stretch.short.any(axis=1) & (~course.turned | (earliest <= stop[:, 0]))
    stop[cut, 0] = earliest[cut]
    return _Course(order, stop, pick(order, stop), course.turned | cut, cut)


def _near(ray: _Ray, stretch: _Stretch, course: _Course) -> Bools | None:
    """(m, k depth): The breakpoints that are met within rounding of the place where a step ends.

    Mostly there are no others. None says that this is so for all test rows: the breakpoints met
    just before and just after are clear of it.
    """
    step, chosen = stretch.step, course.chosen
    here = pick(step, chosen)
    beside = pick(step, pick(course.order, (course.stop + _BESIDE) % course.order.shape[1]))
    widest = 2 * ray.slack.max(axis=1, keepdims=True)
    if not ((beside >= here - widest) & (beside <= here + widest)).any():
        return None
    slack = ray.slack + pick(ray.slack, chosen // stretch.depth)
    allowed = slack.repeat(stretch.depth, axis=1)
    near: Bools = (step >= here - allowed) & (step <= here + allowed)
    if stretch.leap is not None:
        near &= stretch.leap == pick(stretch.leap, chosen)
    return near


def _too_short(ray: _Ray, stretch: _Stretch, course: _Course, near: Bools | None) -> Bools:
    """(m,): Breakpoints that are not laid out may be met before the step ends, or tie with it."""
    step, chosen = stretch.step, course.chosen
    end = pick(step, chosen) + pick(ray.slack, chosen // stretch.depth)
    more: Bools = np.isfinite(ray.beyond) & (~course.turned | (ray.beyond <= end[:, 0]))
    if not stretch.short.any():
        return more
    if near is None:
        reach = pick(step, chosen)
    else:
        reach = np.where(near, step, -np.inf).max(axis=1, keepdims=True)
    early = step[:, stretch.ends()] <= reach
    if stretch.leap is not None:
        leap, there = stretch.leap[:, stretch.ends()], pick(stretch.leap, chosen)
        early = (leap < there) | ((leap == there) & early)
    again = stretch.short.any(axis=1) & ~course.turned
    again |= (stretch.short & early).any(axis=1)
    short: Bools = more | (again & ~course.cut)
    return short


def _untied(
    pieces: Pieces,
    walk: Walk,
    ray: _Ray,
    stretch: _Stretch,
    course: _Course,
    near: Bools,
    ties: Ints,
) -> _Course:
    """The course with the breakpoints that are `near` put in order exactly, for the rows `ties`.

    Whole numbers say which are met first. Those that are met together go in the order of the
    infinitesimal shifts. Within an atom the order of its scores stands, because lexsort is stable
    and the places of an atom ascend. If all scores are multiples of one grain, two that are near
    are equal, and only the shifts order them.
    """
    order, stop, group = course.order.copy(), course.stop.copy(), near[ties]
    own_shift = pieces.tie - along(pieces, walk[ties], pieces.tie[walk.basis[ties]])
    own_shift = pick(own_shift, ray.atoms[ties])
    shift = np.repeat(own_shift / ray.speed[ties], stretch.depth, axis=1)
    rank = np.argsort(order[ties], axis=1)
    first = np.min(np.where(group, rank, rank.shape[1]), axis=1, keepdims=True)
    rank = np.where(group, first, rank)
    fine = np.zeros(group.shape)
    for i, row in enumerate(ties.tolist() if not pieces.grain else ()):
        member = np.flatnonzero(group[i])
        column = member // stretch.depth
        index, speed = stretch.index[row, member], ray.speed[row, column]
        fine[i, member] = _ranks(pieces, walk, row, ray.atoms[row, column], index, speed)
    order[ties] = np.lexsort((np.where(group, shift, 0.0), fine, rank))
    running = np.cumsum(pick(stretch.gain[ties], order[ties]), axis=1)
    stop[ties] = np.argmax(running > ray.turn[ties, None], axis=1)[:, None]
    return replace(course, order=order, stop=stop, chosen=pick(order, stop))


def _ranks(
    pieces: Pieces, walk: Walk, i: int, atoms: Ints, index: Ints, speed: Floats
) -> list[int]:
    """The order in which a ray meets these breakpoints, exactly. Equal ones have equal ranks.

    The step to a breakpoint is gap / speed. Speeds are multiples of 1 / det, so that over a common
    multiple of them all steps are whole numbers.
    """
    gaps = exact_gaps(pieces, walk, i, atoms, index)
    if gaps is None:
        return [0] * len(atoms)
    pace = [round(gaps[1] * v) for v in speed.tolist()]
    common = math.lcm(*set(pace))
    times = [gap * (common // v) for gap, v in zip(gaps[0], pace, strict=True)]
    rank = {time: k for k, time in enumerate(sorted(set(times)))}
    return [rank[time] for time in times]


def _taken(ray: _Ray, stretch: _Stretch, course: _Course, atoms: int) -> Step:
    """Count the breakpoints before the one where the step ends. Cost: O(a + k depth) for a row."""
    m, chosen = len(course.stop), course.chosen
    row, place = np.nonzero(np.arange(course.order.shape[1]) < course.stop)
    moved = row * atoms + ray.atoms[row, course.order[row, place] // stretch.depth]
    passed = np.bincount(moved, minlength=m * atoms).reshape(m, atoms)
    put(passed, ray.atoms, pick(passed, ray.atoms) * ray.sign)
    entering = pick(ray.atoms, chosen // stretch.depth)[:, 0]
    return Step(course.turned, passed, entering, pick(stretch.index, chosen)[:, 0])
