"""The long step in slow motion: rays, stretches and courses of a few breakpoints, by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import vertices
from gcfcp.solver import ray, vertex
from gcfcp.solver.ray import _Course, _Ray, _Stretch


def stretch_of(step, gain=None, leap=None, short=None, depth=2) -> _Stretch:
    """One test row; `depth` places for each atom."""
    step = np.atleast_2d(np.asarray(step, dtype=float))
    return _Stretch(
        depth=depth,
        index=np.arange(step.size).reshape(step.shape),
        step=step,
        gain=np.ones_like(step) if gain is None else np.atleast_2d(np.asarray(gain, dtype=float)),
        leap=None if leap is None else np.atleast_2d(np.asarray(leap, dtype=float)),
        short=np.atleast_2d(np.asarray(short if short else [False] * (step.shape[1] // depth))),
    )


def ray_of(atoms: int, turn=0.5, slack=0.0, beyond=np.inf) -> _Ray:
    """A ray of which only `turn`, `slack` and `beyond` matter."""
    ones = np.ones((1, atoms))
    return _Ray(
        atoms=np.arange(atoms)[None],
        speed=ones,
        sign=np.ones((1, atoms), dtype=np.int64),
        theta=0 * ones,
        far=None,
        ahead=np.zeros((1, atoms), dtype=np.int64),
        left=np.full((1, atoms), 9),
        slack=ones * slack,
        turn=np.array([turn]),
        beyond=np.array([beyond]),
    )


def course_of(order, stop, turned=True) -> _Course:
    order, stop = np.array([order]), np.array([[stop]])
    return _Course(order, stop, order[:, stop[0]], np.array([turned]), np.zeros(1, dtype=bool))


# --- merging ------------------------------------------------------------------------------------


def test_a_course_ends_where_the_gains_exceed_the_turn():
    stretch = stretch_of([1.0, 4.0, 2.0, 3.0], gain=[1, 2, 4, 8])
    for turn, stop, place in ((0.5, 0, 0), (1.0, 1, 2), (4.9, 1, 2), (5.0, 2, 3), (13.0, 3, 1)):
        course = ray._course_of(ray_of(2, turn), stretch)
        assert course.order.tolist() == [[0, 2, 3, 1]]
        assert (course.stop.item(), course.chosen.item(), course.turned.item()) == (
            stop,
            place,
            True,
        )
        assert not course.cut.any()
    assert not ray._course_of(ray_of(2, 15.0), stretch).turned.any()


def test_infinity_is_met_after_all_numbers():
    stretch = stretch_of([1.0, 0.0, 2.0, -1.0], leap=[0, 2, 0, 1])
    assert ray._course_of(ray_of(2), stretch).order.tolist() == [[0, 2, 3, 1]]


@pytest.mark.parametrize("size", [31, 32])
def test_only_rays_that_would_grow_too_long_are_cut(size, monkeypatch):
    """Four places, and eight times as many in the next stretch."""
    monkeypatch.setattr(ray, "_LONGEST_RAY", size)
    stretch = stretch_of([1.0, 4.0, 2.0, 3.0], short=[True, True])
    course = ray._course_of(ray_of(2, 99.0), stretch)
    assert course.cut.tolist() == [size == 31]
    full = dataclasses.replace(stretch, short=np.zeros((1, 2), dtype=bool))
    assert not ray._course_of(ray_of(2, 99.0), full).cut.any()
    # Where some atoms are not there yet, these come first.
    assert not ray._course_of(ray_of(2, 99.0, beyond=5.0), stretch).cut.any()


def test_a_step_is_cut_at_the_first_end_of_what_is_laid_out():
    # Atom 0 is known up to step 4, atom 1 up to step 3.
    step = [1.0, 4.0, 2.0, 3.0]
    order = [0, 2, 3, 1]
    for short, turned, stop, expected in (
        ([True, True], False, 0, (2, True)),  # Place 3, the end of atom 1, comes first.
        ([True, False], False, 0, (3, True)),
        ([True, True], True, 3, (2, True)),
        ([True, True], True, 2, (2, True)),  # It turns just there, but something could tie.
        ([True, True], True, 1, (1, False)),
        ([True, False], True, 2, (2, False)),
        ([False, False], True, 3, (3, False)),
    ):
        found = ray._cut_off(stretch_of(step, short=short), course_of(order, stop, turned))
        assert (found.stop.item(), found.cut.item()) == expected
        assert found.chosen.item() == order[expected[0]]
        assert found.turned.item() == (turned or expected[1])


# --- ties ---------------------------------------------------------------------------------------


def test_nothing_is_near_if_the_neighbours_are_clear():
    stretch = stretch_of([1.0, 4.0, 2.0, 3.0])
    for slack, near in ((0.1, None), (0.4, None), (0.5, [False, True, True, True])):
        # The chosen one is 3, and each neighbour is 1 away: twice the slack.
        found = ray._near(ray_of(2, slack=slack), stretch, course_of([0, 2, 3, 1], 2))
        assert (None if found is None else found[0].tolist()) == near


def test_neighbours_on_either_side_count():
    for step in ([1.0, 9.0, 8.9, 20.0], [1.0, 9.0, 9.1, 20.0]):
        stretch = stretch_of(step)
        order = np.argsort(step).tolist()
        course = course_of(order, order.index(1))
        assert ray._near(ray_of(2, slack=0.04), stretch, course) is None
        found = ray._near(ray_of(2, slack=0.06), stretch, course)
        assert found.tolist() == [[False, True, True, False]]


def test_each_atom_has_a_slack_of_its_own():
    """A breakpoint is near if it is within its own slack and that of the chosen one."""
    stretch = stretch_of([5.0, 6.0, 5.5, 9.0, 4.0, 12.0])
    slack = np.array([[0.2, 0.4, 0.7]])
    course = course_of(np.argsort(stretch.step[0]).tolist(), 1)  # Place 0, at 5.
    found = ray._near(dataclasses.replace(ray_of(3), slack=slack), stretch, course)
    assert found.tolist() == [[True, False, True, False, False, False]]
    slack = np.array([[0.2, 0.2, 0.85]])
    found = ray._near(dataclasses.replace(ray_of(3), slack=slack), stretch, course)
    assert found.tolist() == [[True, False, False, False, True, False]]


def test_only_the_same_level_of_infinity_is_near():
    stretch = stretch_of([5.0, 5.0, 5.0, 9.0], leap=[0, 1, 0, 1])
    course = course_of([0, 2, 1, 3], 0)
    assert ray._near(ray_of(2, slack=0.1), stretch, course).tolist() == [[True, False, True, False]]


@pytest.mark.parametrize(
    ("short", "stop", "turned", "again"),
    [
        ([False, False], 3, False, False),  # All is known: h is unbounded.
        ([True, True], 3, False, True),
        ([True, True], 0, True, False),
        ([True, True], 1, True, False),
        ([True, True], 2, True, True),  # The end of atom 1 itself: the next may tie with it.
        ([True, False], 2, True, False),
        ([True, False], 3, True, True),
        ([False, True], 3, True, True),
    ],
)
def test_a_stretch_is_too_short_if_more_may_be_met_before(short, stop, turned, again):
    stretch = stretch_of([1.0, 4.0, 2.0, 3.0], short=short)
    course, line = course_of([0, 2, 3, 1], stop, turned), ray_of(2)
    assert ray._too_short(line, stretch, course, None).tolist() == [again]
    levels = dataclasses.replace(stretch, leap=np.zeros((1, 4)))
    assert ray._too_short(line, levels, course, None).tolist() == [again]
    cut = dataclasses.replace(course, cut=np.ones(1, dtype=bool))
    assert ray._too_short(line, stretch, cut, None).tolist() == [False]


@pytest.mark.parametrize("short", [[False, False], [True, True]])
def test_a_stretch_is_too_short_if_an_atom_that_is_not_there_may_be_met_before(short):
    """The step ends at 2, give or take 0.25."""
    stretch, course = stretch_of([1.0, 4.0, 2.0, 3.0], short=short), course_of([0, 2, 3, 1], 1)
    for beyond, again in ((1.5, True), (2.25, True), (2.3, False), (np.inf, False)):
        line = ray_of(2, slack=0.25, beyond=beyond)
        assert ray._too_short(line, stretch, course, None).tolist() == [again]
    # If the derivative has not turned, it may turn at such an atom.
    never = course_of([0, 2, 3, 1], 1, turned=False)
    assert ray._too_short(ray_of(2, beyond=9.0), stretch, never, None).tolist() == [True]


def test_a_stretch_is_too_short_if_a_tie_reaches_its_end():
    stretch = stretch_of([1.0, 4.0, 2.0, 3.0], short=[False, True])
    course = course_of([0, 2, 3, 1], 1)
    near = np.array([[False, False, True, False]])
    assert ray._too_short(ray_of(2), stretch, course, near).tolist() == [False]
    near[0, 3] = True
    assert ray._too_short(ray_of(2), stretch, course, near).tolist() == [True]


def test_a_stretch_that_ends_below_infinity_is_too_short_for_a_step_to_it():
    stretch = stretch_of([1.0, 4.0, -2.0, 9.0], leap=[0, 0, 1, 2], short=[True, False])
    for stop, again in ((0, False), (1, True), (2, True)):
        course = course_of([0, 1, 2, 3], stop)
        assert ray._too_short(ray_of(2), stretch, course, None).tolist() == [again]


# --- how much is laid out -------------------------------------------------------------------------


def test_a_stretch_is_what_lies_ahead():
    """Index, step, gain and shortness of every place, against fractions."""
    rng = np.random.default_rng(0)
    for kind in vertices.KINDS:
        for width in (1, 3, 50):
            pieces, t = vertices.draw(rng, kind)
            rows = pieces.rows[:3]
            at = vertices.draw_walk(rng, pieces, rows, t)
            moving = vertex.Offenders(
                rng.integers(at.basis.shape[1], size=3),
                rng.choice([-1, 1], size=3),
                np.array([-1.0, -2.0, -3.0]),
                np.array([0.1, 0.2, 0.3]),
            )
            for count in (2, 99):
                line = ray._ray_of(pieces, at, moving, count)
                stretch = ray._laid_out(pieces, line, width)
                for i in range(3):
                    check_stretch(pieces, at, moving, line, stretch, i, rows[i])


def check_stretch(pieces, at, moving, line, stretch, i, row):
    basis, where = at.basis[i], at.at[i]
    b, direction = moving.position[i], moving.direction[i]
    c = vertices.in_terms(pieces, basis, row)[b]
    lowers = direction * c < 0
    assert line.turn[i] == -moving.derivative[i] + moving.tolerance[i] * (1 if lowers else -1)
    places = vertices.theta(pieces, basis, where)
    speeds = [direction * x[b] for x in vertices.coefficients(pieces, basis)]
    check_left_out(pieces, line, i, places, speeds, where, basis[b])
    for k, a in enumerate(line.atoms[i].tolist()):
        speed = speeds[a]
        up = range(where[a] + (a == basis[b]), pieces.size[a])
        ahead = up if speed > 0 else range(where[a] - 1, -1, -1) if speed < 0 else ()
        assert stretch.short[i, k] == (len(ahead) > stretch.depth)
        for j in range(stretch.depth):
            place = k * stretch.depth + j
            if j >= len(ahead):
                assert (stretch.step[i, place], stretch.gain[i, place]) == (np.inf, 0.0)
                continue
            index = ahead[j]
            assert stretch.index[i, place] == index
            jump = vertices.slope(pieces, a, index + 1) - vertices.slope(pieces, a, index)
            assert stretch.gain[i, place] == pytest.approx(float(abs(speed) * jump))
            gaps = zip(vertices.point(pieces, a, index), places[a], strict=True)
            leap, step, _ = (float((p - q) / speed) for p, q in gaps)
            assert stretch.step[i, place] == pytest.approx(step, abs=1e-9)
            if stretch.leap is not None:
                assert stretch.leap[i, place] * 1e-9 == pytest.approx(leap, abs=1e-6)


def check_left_out(pieces, line, i, places, speeds, where, leaving):
    """No atom that moves and is not there is met before `beyond`."""
    for a in set(np.flatnonzero(speeds)) - set(line.atoms[i].tolist()):
        index = where[a] + (a == leaving) if speeds[a] > 0 else where[a] - 1
        if 0 <= index < pieces.size[a]:
            gap = vertices.point(pieces, a, index)[1] - places[a][1]
            assert float(gap / speeds[a]) >= line.beyond[i]


def test_the_atoms_that_are_met_first_are_taken():
    """Three atoms at 0 that rise at the speeds 1, 2 and 3 to 6, and one that rests."""
    pieces, _ = vertices.draw(np.random.default_rng(0), "normal")
    pieces = dataclasses.replace(
        pieces,
        size=np.ones(4, dtype=np.int64),
        start=np.arange(4),
        values=np.full(4, 6.0),
        infinite=np.zeros(4, dtype=bool),
    )
    speed, theta, exact = np.array([[1.0, 3.0, 2.0, 0.0]]), np.zeros((1, 4)), np.zeros(1)
    ahead = np.zeros((1, 4), dtype=np.int64)
    for count, taken, beyond in ((1, {1}, 3.0), (2, {1, 2}, 6.0), (3, {0, 1, 2}, np.inf)):
        atoms, step = ray._met_first(pieces, speed, theta, ahead, exact, count)
        assert (set(atoms[0].tolist()), step.tolist()) == (taken, [beyond])
    # Rounding in theta lets an atom be met earlier, and one that has no breakpoint left never is.
    _, step = ray._met_first(pieces, speed, theta, ahead, exact + 1.0, 1)
    assert step.tolist() == [2.5]
    atoms, step = ray._met_first(pieces, speed, theta, ahead + np.array([[0, 1, -1, 0]]), exact, 1)
    assert (atoms.tolist(), step.tolist()) == ([[0]], [np.inf])
    atoms, step = ray._met_first(pieces, speed, theta, ahead, exact, 4)
    assert (atoms.tolist(), step.tolist()) == ([[0, 1, 2]], [np.inf])


def test_the_usual_stretch_has_a_few_hundred_breakpoints(monkeypatch):
    widths = []
    honest = ray._laid_out
    monkeypatch.setattr(
        ray, "_laid_out", lambda p, line, width: (widths.append(width), honest(p, line, width))[1]
    )
    rng = np.random.default_rng(0)
    pieces, t = vertices.draw(rng, "normal", n=4000, groups=2)  # Three atoms of 1,000 scores each.
    at = vertices.draw_walk(rng, pieces, pieces.rows[:1], t)
    one = np.zeros(1, dtype=np.int64)
    far = vertex.Offenders(one, one + 1, np.array([-1e6]), np.zeros(1))
    ray.long_step(pieces, at, far)
    moving = ray._ray_of(pieces, at, far, 99).atoms.shape[1]
    first = 256 // moving
    assert widths == [first, 2048 // moving, 16384 // moving][: len(widths)]
    assert len(widths) > 1
    widths.clear()
    near = dataclasses.replace(far, derivative=np.array([-1e-3]))
    ray.long_step(pieces, at, near)
    assert widths == [first]
