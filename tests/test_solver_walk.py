"""The parts of the simplex one by one, at random vertices, against fractions."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import oracles
import vertices
from gcfcp.errors import GCFCPError
from gcfcp.solver import Solver, ray, vertex, walk
from gcfcp.solver.vertex import Walk

KINDS = vertices.KINDS


def random_walks(kind, count, seed=0, test=1.0, n=30):
    """Problems with several test rows side by side, each at a random vertex."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        pieces, t = vertices.draw(rng, kind, n=n, groups=int(rng.integers(1, 5)), test=test)
        rows = pieces.rows[rng.integers(len(pieces.rows), size=3)]
        yield rng, pieces, rows, vertices.draw_walk(rng, pieces, rows, t)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_theta_and_its_rounding(kind):
    for _, pieces, _, at in random_walks(kind, 10):
        number, far, noise = vertex.thetas(pieces, at)
        for i in range(len(at.t)):
            exact = vertices.theta(pieces, at.basis[i], at.at[i])
            assert far[i] == pytest.approx([float(p[0]) for p in exact], abs=1e-12)
            for b in at.basis[i]:  # To the last bit: it rests on a score.
                assert number[i, b] == pieces.values[pieces.start[b] + at.at[i, b]]
            errors = [abs(Fraction(x) - p[1]) for x, p in zip(number[i], exact, strict=True)]
            assert (np.array([float(e) for e in errors]) <= noise[i]).all()
            held = [abs(vertices.point(pieces, a, at.at[i, a])[1]) for a in at.basis[i]]
            inverse = vertices.inverse(pieces.rows[at.basis[i]])
            beta = [float(vertices.dot(map(abs, line), held)) for line in inverse]
            assert noise[i] * 2.0**44 == pytest.approx(pieces.rows @ beta)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_locate_counts_the_scores_below_theta(kind):
    for rng, pieces, rows, at in random_walks(kind, 25, seed=1):
        for i in range(len(rows)):
            one = at[np.array([i])]
            outside = np.setdiff1d(np.arange(len(pieces.size)), one.basis[0])
            one.at[0, outside] = rng.integers(pieces.size[outside] + 1)
            vertex.locate(pieces, one)
            assert np.array_equal(one.at[0], at.at[i])


@pytest.mark.parametrize("kind", KINDS)
def test_gaps_are_exact(kind):
    for rng, pieces, _, at in random_walks(kind, 10, seed=2):
        atoms = rng.integers(len(pieces.size), size=9)
        index = rng.integers(pieces.size[atoms])
        for i in range(len(at.t)):
            gaps, det = vertex.exact_gaps(pieces, at, i, atoms, index)
            assert det == round(abs(np.linalg.det(pieces.rows[at.basis[i]])))
            exact = vertices.theta(pieces, at.basis[i], at.at[i])
            held = [(a, at.at[i, a]) for a in at.basis[i]]
            points = [vertices.point(pieces, a, k)[1] for a, k in zip(atoms, index, strict=True)]
            numbers = points + [vertices.point(pieces, a, k)[1] for a, k in held]
            unit = max(x.denominator for x in numbers)
            expected = [det * unit * (p - exact[a][1]) for p, a in zip(points, atoms, strict=True)]
            assert gaps == expected


def entangled(det_above=2**20):
    """A random family whose first basis has a large determinant."""
    rng = np.random.default_rng(0)
    while True:
        rows = rng.random((24, 24)) < 0.5
        if det_above < abs(np.linalg.det(rows.astype(float))) < 2**40:
            core = oracles.coreset(rng.normal(size=24), rows, np.ones(24), 1.0)
            if len(core.membership) == 24:
                return vertex_of_all(core)


def vertex_of_all(core):
    pieces, _, t = vertices.pieces_of(core, Fraction(1, 5))
    atoms = np.arange(len(pieces.size))[None]
    where = Walk.begun(atoms, np.zeros_like(atoms), np.array([t]))
    vertex.factorise(pieces, where, pieces.rows[:1])
    return pieces, where


def test_no_gaps_where_the_determinant_is_too_large():
    pieces, where = entangled()
    atoms = np.arange(3)
    assert vertex.exact_gaps(pieces, where, 0, atoms, atoms * 0) is None
    assert ray._ranks(pieces, where, 0, atoms, atoms * 0, np.ones(3)) == [0, 0, 0]


def test_the_largest_determinant_is_still_told_apart(monkeypatch):
    membership = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=bool)  # det = 2
    pieces, where = vertex_of_all(oracles.coreset([1.0, 2.0, 4.0], membership, np.ones(3), 1))
    one = np.array([0])
    monkeypatch.setattr(vertex, "_LARGEST_DETERMINANT", 2)
    assert vertex.exact_gaps(pieces, where, 0, one, one) == ([0], 2)
    monkeypatch.setattr(vertex, "_LARGEST_DETERMINANT", 1)
    assert vertex.exact_gaps(pieces, where, 0, one, one) is None


def test_gaps_are_not_told_by_a_wrong_determinant():
    """Half of each of three rows is the fourth, so that thirds of whole numbers are no help."""
    membership = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]], dtype=bool)
    core = oracles.coreset([1.0, 2.0, 4.0, 3.0], membership, np.ones(4), 1)
    pieces, _, t = vertices.pieces_of(core, Fraction(1, 5))
    [last] = np.flatnonzero(core.membership.all(axis=1))
    basis = np.setdiff1d(np.arange(4), last)[None]
    where = Walk.begun(basis, np.zeros((1, 4), dtype=np.int64), np.array([t]))
    vertex.factorise(pieces, where, pieces.rows[:1])
    atoms, index = np.array([last]), np.array([0])
    assert vertex.exact_gaps(pieces, where, 0, atoms, index) == ([2 * 3 - (1 + 2 + 4)], 2)
    where.volume = np.log([3.0])
    assert vertex.exact_gaps(pieces, where, 0, atoms, index) is None


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_multipliers_and_gradient(kind):
    for _, pieces, rows, at in random_walks(kind, 15, seed=3):
        found, gradient = vertex.multipliers(pieces, at), vertex.gradient_of(pieces, at)
        for i, row in enumerate(rows):
            basis, where = at.basis[i], at.at[i]
            exact = vertices.multipliers(pieces, basis, where, row, at.t[i])
            assert found.y[i] == pytest.approx([float(y) for y in exact], abs=1e-9)
            own = [pieces.slopes[pieces.start[a] + a + where[a]] for a in basis]
            assert found.low[i].tolist() == own
            above = [pieces.slopes[pieces.start[a] + a + where[a] + 1] for a in basis]
            assert found.high[i].tolist() == above
            assert gradient[i][basis].tolist() == found.y[i].tolist()
            assert gradient[i] @ pieces.rows == pytest.approx(at.t[i] * row, abs=1e-9)
            outside = np.setdiff1d(np.arange(len(where)), basis)
            expected = [float(vertices.slope(pieces, a, where[a])) for a in outside]
            assert gradient[i][outside].tolist() == expected
            # |weight| |inverse| + t |c|, in units of 2**-46.
            inverse = [[abs(x) for x in line] for line in vertices.inverse(pieces.rows[basis])]
            sums = [
                vertices.dot(map(Fraction, pieces.weight.tolist()), column)
                for column in zip(*inverse, strict=True)
            ]
            c = vertices.in_terms(pieces, basis, row)
            bound = [s + abs(Fraction(at.t[i]) * k) for s, k in zip(sums, c, strict=True)]
            assert found.tolerance[i] * 2.0**46 == pytest.approx([float(x) for x in bound])


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["normal", "integers", "infinite"])
def test_the_steepest_offender_moves(kind):
    for rng, pieces, rows, at in random_walks(kind, 25, seed=4, test=5.0):
        # Optima too: they have no offender.
        if rng.random() < 0.5:
            at, pivots = walk.descend(pieces, at, rows)
            at, rows = at[pivots >= 0], rows[pivots >= 0]
        found = vertex.offenders(at, vertex.multipliers(pieces, at))
        for i, row in enumerate(rows):
            args = (pieces, at.basis[i], at.at[i], row, at.t[i])
            exact = vertices.violations(*args)
            if not found.direction[i]:
                assert vertices.optimal(*args)
                continue
            norms = [
                math.sqrt(sum(x * x for x in column))
                for column in zip(*vertices.inverse(pieces.rows[at.basis[i]]), strict=True)
            ]
            steepness = [
                float(-derivative) / norm if direction else -math.inf
                for (direction, derivative), norm in zip(exact, norms, strict=True)
            ]
            b = found.position[i]
            assert steepness[b] == pytest.approx(max(steepness), abs=1e-9)
            assert found.direction[i] == exact[b][0]
            assert found.derivative[i] == pytest.approx(float(exact[b][1]), abs=1e-9)
            assert found.tolerance[i] == vertex.multipliers(pieces, at).tolerance[i, b]


def check_steps(pieces, rows, at):
    """Walk to the optimum, and compare every step and every vertex with the exact ones."""
    live = np.arange(len(rows))
    steps = 0
    while True:
        moving = vertex.offenders(at, vertex.multipliers(pieces, at))
        going = moving.direction != 0
        live, at, moving = live[going], at[going], moving[going]
        if not len(live):
            return steps
        found = ray.long_step(pieces, at, moving)
        for i, row in enumerate(rows[live]):
            args = (pieces, at.basis[i], at.at[i], row, at.t[i])
            exact = vertices.step(*args, moving.position[i])
            assert found.turned[i] == (exact is not None)
            if exact is not None:
                passed, entering, index = exact
                assert (found.entering[i], found.index[i]) == (entering, index)
                assert found.passed[i].tolist() == passed.tolist()
        kept = found.turned
        live, at, moving, found = live[kept], at[kept], moving[kept], found[kept]
        walk.pivot(pieces, at, moving, found)
        fresh = at[np.arange(len(live))]
        vertex.factorise(pieces, fresh, rows[live])
        assert at.inverse == pytest.approx(fresh.inverse, abs=1e-9)
        assert at.c == pytest.approx(fresh.c, abs=1e-9)
        determinants = np.linalg.det(pieces.rows[at.basis])
        assert np.exp(at.volume) == pytest.approx(np.abs(determinants), rel=1e-9)
        for i in range(len(live)):
            exact = vertices.located(pieces, at.basis[i], at.at[i])
            assert at.at[i].tolist() == exact.tolist()
        steps += len(live)


@pytest.mark.few(4)
@pytest.mark.parametrize("block", [256, 8, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_every_long_step_ends_at_the_minimum_of_its_ray(kind, block, monkeypatch):
    """With a smaller block, or fewer atoms, the ray is laid out in several goes."""
    monkeypatch.setattr(ray, "_BLOCK", block)
    monkeypatch.setattr(ray, "_NEAREST", min(32, block // 4 + 1))
    monkeypatch.setattr(ray, "_MORE", 2)
    monkeypatch.setattr(ray, "_FEWEST", min(4, block))
    monkeypatch.setattr(ray, "_GROWTH", 8 if block > 1 else 2)
    n = 30 if block > 1 else 60
    steps = [
        check_steps(pieces, rows, at)
        for _, pieces, rows, at in random_walks(kind, 4, seed=5 + block, test=6.0, n=n)
    ]
    assert sum(steps) > 10


@pytest.mark.parametrize("kind", ["normal", "infinite"])
def test_steps_that_are_cut_off_lead_downhill_all_the_same(kind, monkeypatch):
    """Where a ray is too long to lay out, a step ends at a breakpoint that is known for sure, and
    every vertex on the way is a true one."""
    monkeypatch.setattr(ray, "_LONGEST_RAY", 0)
    monkeypatch.setattr(ray, "_BLOCK", 1)
    monkeypatch.setattr(ray, "_FEWEST", 2)
    for _, pieces, rows, at in random_walks(kind, 4, seed=9, n=40):
        moving = vertex.offenders(at, vertex.multipliers(pieces, at))
        going = moving.direction != 0
        at, moving, rows = at[going], moving[going], rows[going]
        found = ray.long_step(pieces, at, moving)
        kept = found.turned
        at, moving, rows, found = at[kept], moving[kept], rows[kept], found[kept]
        for i, row in enumerate(rows):
            b = moving.position[i]
            whole = vertices.step(pieces, at.basis[i], at.at[i], row, at.t[i], b)
            if whole is not None:  # No atom passes more than on the whole way.
                assert (np.abs(found.passed[i]) <= np.abs(whole[0])).all()
        walk.pivot(pieces, at, moving, found)
        for i in range(len(rows)):
            exact = vertices.located(pieces, at.basis[i], at.at[i])
            assert at.at[i].tolist() == exact.tolist()


def test_exact_ranks():
    for rng, pieces, _, at in random_walks("cents", 20, seed=6):
        atoms = rng.integers(len(pieces.size), size=8)
        index = rng.integers(pieces.size[atoms])
        b = int(rng.integers(at.basis.shape[1]))
        speed = np.array([float(c[b]) for c in vertices.coefficients(pieces, at.basis[0])])
        moving = np.abs(speed[atoms]) > 0
        atoms, index = atoms[moving], index[moving]
        if not len(atoms):
            continue
        found = ray._ranks(pieces, at, 0, atoms, index, speed[atoms])
        places = vertices.theta(pieces, at.basis[0], at.at[0])
        exact = vertices.coefficients(pieces, at.basis[0])
        times = [
            (vertices.point(pieces, a, i)[1] - places[a][1]) / exact[a][b]
            for a, i in zip(atoms, index, strict=True)
        ]
        assert found == [sorted(set(times)).index(time) for time in times]


def test_snap_rounds_only_what_is_whole_within_a_billionth():
    matrix = np.array([1 + 9e-10, 1 - 9e-10, 2.5, -3.0, 1 + 2e-9, 1e-10])
    assert vertex.snap(matrix).tolist() == [1.0, 1.0, 2.5, -3.0, 1 + 2e-9, 0.0]


# --- the walk as a whole ------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_walk_ends_at_an_exact_optimum_from_anywhere(kind):
    """Without the judge, and with the certificate from fractions."""
    for _, pieces, rows, at in random_walks(kind, 15, seed=7):
        start = at[np.arange(len(rows))]
        found, pivots = walk.descend(pieces, at, rows)
        for i, row in enumerate(rows):
            if pivots[i] < 0:
                assert found.basis[i].tolist() == start.basis[i].tolist()
                continue
            args = (pieces, found.basis[i], found.at[i], row, found.t[i])
            assert vertices.optimal(*args)
            exact = vertices.located(*args[:3])
            assert found.at[i].tolist() == exact.tolist()
            moved = not vertices.optimal(pieces, start.basis[i], start.at[i], row, start.t[i])
            assert (pivots[i] > 0) == moved


def test_side_by_side_is_one_by_one():
    for _, pieces, rows, at in random_walks("integers", 15, seed=8):
        alone = [walk.descend(pieces, at[np.array([i])], rows[i : i + 1]) for i in range(len(rows))]
        found, pivots = walk.descend(pieces, at, rows)
        assert pivots.tolist() == [int(p[0]) for _, p in alone]
        for i, (one, _) in enumerate(alone):
            if pivots[i] >= 0:
                assert found.basis[i].tolist() == one.basis[0].tolist()
                assert found.at[i].tolist() == one.at[0].tolist()
                assert found.inverse[i].tolist() == one.inverse[0].tolist()


def test_the_inverse_is_refreshed(monkeypatch):
    """Every 64 pivots, for those that still walk, and once at the end."""
    sizes = []
    honest = vertex.factorise
    monkeypatch.setattr(walk, "_REFRESH", 2)
    monkeypatch.setattr(
        walk, "factorise", lambda p, w, rows: (sizes.append(len(rows)), honest(p, w, rows))
    )
    rng = np.random.default_rng(0)
    pieces, t = vertices.draw(rng, "normal", n=200, groups=4)
    rows = pieces.rows[:5]
    at = vertices.draw_walk(rng, pieces, rows, t)
    _, pivots = walk.descend(pieces, at, rows)
    assert sizes == [int((pivots >= k).sum()) for k in range(2, pivots.max() + 1, 2)] + [5]


def test_a_walk_that_never_ends_is_an_error(monkeypatch):
    rng = np.random.default_rng(0)
    pieces, t = vertices.draw(rng, "normal")
    at = vertices.draw_walk(rng, pieces, pieces.rows[:1], t)
    at.t[:] = t
    while not vertex.offenders(at, vertex.multipliers(pieces, at)).direction[0]:
        at = vertices.draw_walk(rng, pieces, pieces.rows[:1], t)
    honest = ray.long_step
    moves = []

    def nowhere(pieces, where, moving, width=0):
        """Go to where the atom already rests."""
        moves.append(1)
        found = honest(pieces, where, moving, width)
        leaving = where.basis[np.arange(len(where.t)), moving.position]
        rests = where.at[np.arange(len(where.t)), leaving]
        return dataclasses.replace(
            found,
            turned=found.turned | True,
            passed=0 * found.passed,
            entering=leaving,
            index=rests,
        )

    monkeypatch.setattr(walk, "long_step", nowhere)
    with pytest.raises(GCFCPError, match="no optimum after"):
        walk.descend(pieces, at, pieces.rows[:1])
    assert len(moves) == 999 + 20 * len(pieces.size) * (1 + pieces.rows.shape[1])


def test_a_long_step_lays_out_more_if_it_must():
    """One group of 5,000 scores and a heavy test point: one step passes nearly all of them."""
    n = 5_000
    core = oracles.coreset(np.arange(n) * 1.0, np.ones((n, 1)), np.ones(n), 1.0)
    pieces, _, _ = vertices.pieces_of(core, Fraction(1, 10))
    at = Walk(
        np.array([[0]]),
        np.array([[3]]),
        np.ones((1, 1, 1)),
        np.zeros(1),
        np.ones((1, 1)),
        np.array([9.0]),
    )
    moving = vertex.offenders(at, vertex.multipliers(pieces, at))
    found = ray.long_step(pieces, at, moving)
    # The rank ceil((n + 1) 0.9) = 4501, which is index 4500.
    assert (found.entering[0], found.index[0], found.passed[0, 0]) == (0, 4500, 4496)
    solver = Solver(core, Fraction(1, 10))
    assert solver.solve(np.array([True]))[0].threshold == 4500.0
