"""Sabotage: a walk that is not at its optimum is found out, and one that is there is believed.

Walks are taken from the solver and spoiled in one place. `unsure` must say so of the spoiled rows
and of no other, and so must `refuted`, which has the last word on what the judge hands over.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import oracles
import vertices
from gcfcp import GCFCPError
from gcfcp.solver import Coreset, Solver, certificate, solve, vertex
from gcfcp.solver.certificate import _denominator, refuted, smallest_differences, unsure
from gcfcp.solver.problem import Pieces, pieces_of
from gcfcp.solver.vertex import Multipliers, Walk, factorise

ALPHA = Fraction(1, 10)


def problem(kind="continuous", n=400, groups=4, seed=0) -> Coreset:
    """Records of weight 1000 in eight atoms."""
    rng = np.random.default_rng(seed)
    membership = rng.random((n, groups)) < 0.5
    membership[:, 0] = True
    scores = rng.gamma(2.0, 1 + membership @ rng.random(groups))
    if kind == "integers":
        scores = np.rint(20 * scores)
    if kind == "some infinite":
        scores[rng.random(n) < 0.05] = np.inf
    return oracles.coreset(scores, membership, np.full(n, 1000.0), 1000.0)


def optima(core: Coreset, alpha=ALPHA) -> tuple[Pieces, np.ndarray, Walk]:
    solver = Solver(core, alpha)
    rows = core.membership[:, solver._columns].astype(float)
    found = solver._optima(rows, np.full(len(rows), solver.t))
    assert found.bounded.all()
    assert not found.judged.any()
    return solver._pieces, rows, found.walk


def copy_of(walk: Walk) -> Walk:
    return walk.copy()


def outside(walk: Walk, i: int) -> np.ndarray:
    return np.setdiff1d(np.arange(walk.at.shape[1]), walk.basis[i])


def only(i: int, m: int) -> list[bool]:
    return [k == i for k in range(m)]


@pytest.mark.parametrize("kind", ["continuous", "integers", "some infinite"])
def test_optima_are_believed(kind):
    pieces, _, walk = optima(problem(kind))
    assert len(walk.t) == 8
    assert not unsure(pieces, walk).any()
    assert not refuted(pieces, walk).any()


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("light", [False, True])
def test_a_wrong_count_of_one_atom_in_one_row_is_found_out(light, side):
    """Where most records have almost no weight, the multipliers stay between their slopes, and the
    place of the score alone tells."""
    core = problem()
    if light:
        weights = np.where(np.arange(len(core.values)) % 10 == 0, 1000.0, 1e-3)
        core = dataclasses.replace(core, weights=weights)
    pieces, _, walk = optima(core)
    m = len(walk.t)
    by_scores = 0
    for i in range(m):
        for a in outside(walk, i):
            spoiled = copy_of(walk)
            spoiled.at[i, a] += side
            if not 0 <= spoiled.at[i, a] <= pieces.size[a]:
                continue
            assert unsure(pieces, spoiled).tolist() == only(i, m)
            assert refuted(pieces, spoiled).tolist() == only(i, m)
            found = vertex.offenders(spoiled, vertex.multipliers(pieces, spoiled))
            by_scores += found.direction[i] == 0
    assert by_scores > 10 if light else by_scores == 0


@pytest.mark.parametrize("side", [-1, 1])
def test_another_breakpoint_of_a_basic_atom_is_found_out(side):
    pieces, _, walk = optima(problem())
    m = len(walk.t)
    for i in range(m):
        for a in walk.basis[i]:
            spoiled = copy_of(walk)
            spoiled.at[i, a] += side
            found = vertex.multipliers(pieces, spoiled)
            b = walk.basis[i].tolist().index(a)
            too_high = found.y[i, b] > found.high[i, b]
            assert too_high == (side < 0)  # It rests too low if y is above its slopes.
            assert unsure(pieces, spoiled).tolist() == only(i, m)
            assert refuted(pieces, spoiled).tolist() == only(i, m)


def test_a_wrong_basis_is_found_out():
    """Another atom in place of a basic one, on the breakpoint nearest to its theta. No two sums of
    weights are equal here, so that every optimum is a single vertex."""
    core = problem()
    weights = np.random.default_rng(1).integers(500, 1000, size=len(core.values))
    pieces, rows, walk = optima(dataclasses.replace(core, weights=weights * 1.0))
    m, spoilt = len(walk.t), 0
    for i in range(m):
        for a in outside(walk, i):
            spoiled = copy_of(walk)
            leaving = walk.basis[i, 0]
            spoiled.basis[i, 0] = a
            if abs(np.linalg.det(pieces.rows[spoiled.basis[i]])) < 0.5:
                continue
            spoiled.at[i, a] = min(walk.at[i, a], pieces.size[a] - 1)
            factorise(pieces, spoiled, rows)
            spoiled.at[i] = vertices.located(pieces, spoiled.basis[i], spoiled.at[i])
            assert leaving not in spoiled.basis[i]
            assert unsure(pieces, spoiled).tolist() == only(i, m)
            assert refuted(pieces, spoiled).tolist() == only(i, m)
            spoilt += 1
    assert spoilt > 10


@pytest.mark.parametrize("factor", [-20.0, 0.0, 20.0])
def test_a_wrong_weight_of_the_test_point_is_found_out(factor):
    """Each multiplier is y = t c - ..., and the optimum of one t is not that of another."""
    pieces, _, walk = optima(problem(n=4000))
    m = len(walk.t)
    for i in range(m):
        spoiled = copy_of(walk)
        spoiled.t[i] *= factor
        assert unsure(pieces, spoiled).tolist() == only(i, m)
        assert refuted(pieces, spoiled).tolist() == only(i, m)


@pytest.mark.parametrize("side", ["low", "high"])
def test_a_single_wrong_multiplier_is_found_out(side, monkeypatch):
    pieces, _, walk = optima(problem())
    honest = vertex.multipliers(pieces, walk)
    m, r = walk.basis.shape
    for i, b in [(0, 0), (m // 2, r - 1), (m - 1, 1)]:
        y = honest.y.copy()
        bound = getattr(honest, side)[i, b]
        for excess, wrong in ((3.0, True), (-3.0, False)):
            y[i, b] = bound + (1 if side == "high" else -1) * excess * honest.tolerance[i, b]
            told = dataclasses.replace(honest, y=y)
            monkeypatch.setattr(certificate, "multipliers", lambda p, w, told=told: told)
            expected = only(i, m) if wrong else [False] * m
            assert unsure(pieces, walk).tolist() == expected
            assert refuted(pieces, walk).tolist() == expected


def test_a_tie_in_weight_is_decided_by_the_direction_of_c():
    """(n + 1)(1 - alpha) is whole: y equals a slope, and t counts as lowered. The rank 9 of 9 and
    not 'beyond the last' is right; from the next lower score the walk has to rise."""
    core = oracles.coreset(np.arange(19.0), np.ones((19, 1)), np.ones(19), 1.0)
    pieces, _, walk = optima(core)
    assert walk.at[0, 0] == 17
    for at, wrong in ((16, True), (17, False), (18, True)):
        walk.at[0, 0] = at
        assert unsure(pieces, walk).tolist() == [wrong]
    # Beyond rounding, both ends of the tie are optimal: the smallest is S*, but none is refuted.
    assert refuted(pieces, walk).tolist() == [False]
    walk.at[0, 0] = 15
    assert refuted(pieces, walk).tolist() == [True]


# --- ties ---------------------------------------------------------------------------------------


def tied_walk(scale: float) -> tuple[Pieces, Walk]:
    """Three groups; atom {0, 1} has theta = 1 scale + 2 scale, between or on scores of its own."""
    membership = np.array([[1, 0], [0, 1], [1, 1], [1, 1], [1, 1]], dtype=bool)
    scores = np.array([1, 2, 2, 3, 4]) * scale
    core = oracles.coreset(scores, membership, np.array([10.0, 10.0, 1.0, 1.0, 1.0]), 1.0)
    pieces, _, _ = pieces_of(core, Fraction(1, 2))
    order = {tuple(row): a for a, row in enumerate(core.membership.astype(int).tolist())}
    basis = np.array([[order[1, 0], order[0, 1]]])
    walk = Walk.begun(basis, np.zeros((1, 3), dtype=np.int64), np.zeros(1))
    factorise(pieces, walk, np.zeros((1, 2)))
    walk.at[0, order[1, 1]] = 1
    return pieces, walk


def test_ties_of_whole_scores_need_no_rational_numbers(monkeypatch):
    """theta = 1 + 2 is the score 3. Whichever side it is counted on, it is optimal."""
    pieces, walk = tied_walk(1.0)
    both = int(np.setdiff1d(np.arange(3), walk.basis[0])[0])
    monkeypatch.setattr(certificate, "_in_place", lambda *_: pytest.fail("floats can tell"))
    for at, wrong in ((0, True), (1, False), (2, False), (3, True)):
        walk.at[0, both] = at
        assert refuted(pieces, walk).tolist() == [wrong]
        if not wrong:
            assert unsure(pieces, walk).tolist() == [False]


def test_ties_of_cents_are_decided_in_whole_numbers():
    """0.1 + 0.2 is not 0.3 but above it: counting 0.3 as above theta is wrong."""
    pieces, walk = tied_walk(0.1)
    both = int(np.setdiff1d(np.arange(3), walk.basis[0])[0])
    exact = vertices.located(pieces, walk.basis[0], walk.at[0])[both]
    for at in range(4):
        walk.at[0, both] = at
        assert unsure(pieces, walk).tolist() == [at != exact]
        assert certificate._in_place(pieces, walk, 0, np.array([both])) == (at == exact)
    walk.at[0, both] = exact
    assert not refuted(pieces, walk).any()


@pytest.mark.parametrize("kind", vertices.KINDS)
def test_in_place_is_what_fractions_say(kind):
    rng = np.random.default_rng(2)
    for _ in range(15):
        pieces, t = vertices.draw(rng, kind)
        rows = pieces.rows[:2]
        walk = vertices.draw_walk(rng, pieces, rows, t)
        for i in range(len(rows)):
            exact = vertices.located(pieces, walk.basis[i], walk.at[i])
            at_infinity = [place[0] != 0 for place in vertices.theta(pieces, walk.basis[i], exact)]
            atoms = np.setdiff1d(np.arange(len(exact)), walk.basis[i])
            for a in atoms:
                for change in (-1, 0, 1):
                    walk.at[i] = exact
                    walk.at[i, a] += change
                    if 0 <= walk.at[i, a] <= pieces.size[a]:
                        right = change == 0 and not at_infinity[a]
                        # Beyond the score at infinity there is no finite one that could tell.
                        if pieces.infinite[a] and walk.at[i, a] == pieces.size[a]:
                            continue
                        found = certificate._in_place(pieces, walk, i, np.array([a]))
                        if not (pieces.infinite[a] and walk.at[i, a] == pieces.size[a] - 1):
                            assert found == right
                        elif right:
                            assert found
            walk.at[i] = exact
            finite = np.array([a for a in atoms if not at_infinity[a]], dtype=int)
            assert certificate._in_place(pieces, walk, i, finite)


@pytest.mark.parametrize("kind", vertices.KINDS)
def test_room_is_the_distance_to_the_scores_around(kind):
    rng = np.random.default_rng(3)
    for _ in range(15):
        pieces, t = vertices.draw(rng, kind)
        walk = vertices.draw_walk(rng, pieces, pieces.rows[:2], t)
        number, far, _ = vertex.thetas(pieces, walk)
        walk.at = np.minimum(rng.integers(pieces.size + 1, size=walk.at.shape), pieces.size)
        room = certificate._room(pieces, walk, number, far)
        for i, a in np.ndindex(*room.shape):
            count, finite = walk.at[i, a], pieces.size[a] - pieces.infinite[a]
            own = pieces.values[pieces.start[a] : pieces.start[a] + finite].tolist()
            level, theta = round(far[i, a], 6), number[i, a]
            # Scores and theta as pairs (level, number).
            gaps = []
            if 0 < count <= finite:
                last = own[count - 1]
                gaps.append(theta - last if level == 0 else np.inf * level)
            if count < finite:
                gaps.append(own[count] - theta if level == 0 else -np.inf * level)
            if count > finite and level <= 1:
                gaps.append(-np.inf)
            if pieces.infinite[a] and count == finite and level >= 1:
                gaps.append(-np.inf)
            assert room[i, a] == min(gaps, default=np.inf)


def test_scores_that_scaling_has_cost_bits_are_always_doubted():
    pieces, _, walk = optima(problem())
    assert unsure(dataclasses.replace(pieces, lossy=True), walk).all()


# --- ties in weight that rounding could hide -----------------------------------------------------


def test_a_multiplier_near_its_slope_is_doubted_if_rounding_could_move_it():
    """y = 0 rests on a slope; a step of y is 1 / denominator of its column of the inverse."""
    rows = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=bool)  # Every column is over 2.
    core = oracles.coreset(np.arange(3.0), rows, np.ones(3), 1.0)
    pieces, _, _ = pieces_of(core, ALPHA)
    walk = Walk.begun(np.arange(3)[None], np.zeros((1, 3), int), np.ones(1))
    factorise(pieces, walk, np.ones((1, 3)))
    for tolerance, near, expected in (
        (0.24, 0.0, False),  # Less than half of a half.
        (0.26, 0.0, True),
        (0.25, 0.0, True),
        (0.26, 0.3, False),  # Beyond rounding.
        (0.26, 0.26, True),
    ):
        for side in (1, -1):
            zero, one = np.zeros((1, 3)), np.ones((1, 3))
            low, high = (zero, 9 * one) if side > 0 else (-9 * one, zero)
            y = np.full((1, 3), 4.0 * side)
            y[0, 1] = near * side
            doubt = np.zeros(1, dtype=bool)
            found = Multipliers(y, low, high, tolerance * one)
            certificate._doubt_weights(pieces, walk, found, np.full((1, 1), 0.5), doubt)
            assert doubt.tolist() == [expected]


def test_a_column_of_whole_numbers_is_not_doubted_for_the_determinant():
    """det = 2, but the fourth atom has a group of its own, and its multiplier is whole."""
    rows = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]], dtype=bool)
    core = oracles.coreset(np.arange(4.0), rows, np.ones(4), 1.0)
    pieces, _, _ = pieces_of(core, ALPHA)
    walk = Walk.begun(np.arange(4)[None], np.zeros((1, 4), int), np.ones(1))
    factorise(pieces, walk, np.ones((1, 4)))
    for a, atom in enumerate(core.membership.astype(int).tolist()):
        for tolerance, expected in ((0.3, atom != [0, 0, 0, 1]), (0.5, True)):
            y, one = np.full((1, 4), 4.0), np.ones((1, 4))
            y[0, a] = 0.0
            doubt = np.zeros(1, dtype=bool)
            found = Multipliers(y, 0 * one, 9 * one, tolerance * one)
            certificate._doubt_weights(pieces, walk, found, np.full((1, 1), 0.5), doubt)
            assert doubt.tolist() == [expected]


def test_a_row_that_is_unsure_stays_so():
    pieces, _, walk = optima(problem("integers"))
    doubt = np.ones(len(walk.t), dtype=bool)
    fraction = np.ones((len(walk.t), 1))
    certificate._doubt_scores(pieces, walk, fraction, doubt)
    assert doubt.all()
    certificate._doubt_weights(pieces, walk, vertex.multipliers(pieces, walk), fraction, doubt)
    assert doubt.all()


def test_denominators_of_inverses():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(300):
        matrix = (rng.random((6, 6)) < 0.5).astype(float)
        inverse = vertices.inverse(matrix.tolist())
        if inverse is None:
            continue
        for b, column in enumerate(zip(*inverse, strict=True)):
            exact = np.lcm.reduce([x.denominator for x in column])
            floats = np.array([float(x) for x in column])
            assert _denominator(matrix, b, floats) == exact
            seen.add(int(exact))
    assert max(seen) >= 5
    assert _denominator(np.eye(2), 0, np.array([np.pi, 1.0])) == np.inf
    assert _denominator(np.eye(2), 0, np.array([1.0, 1.0])) == np.inf  # No column of its inverse.
    assert _denominator(64 * np.eye(1), 0, np.array([1 / 64])) == 64
    assert _denominator(65 * np.eye(1), 0, np.array([1 / 65])) == np.inf


# --- a simplex, and a judge, that lie ------------------------------------------------------------


def lazy_descend(pieces, where, rows):
    """A simplex that never moves and says that it has arrived."""
    factorise(pieces, where, rows)
    return where, np.zeros(len(rows), dtype=np.int64)


def test_a_simplex_that_stops_too_early_is_found_out_and_put_right(monkeypatch):
    core = problem()
    right = [s.threshold for s in Solver(core, ALPHA).solve(core.membership)]
    lazy = Solver(core, ALPHA)
    monkeypatch.setattr(solve, "descend", lazy_descend)
    found = lazy.solve(core.membership)
    assert [s.threshold for s in found] == right
    assert any(s.judged for s in found)


def test_if_the_judge_is_wrong_as_well_an_error_is_raised(monkeypatch):
    core = problem(n=4000)
    made = Solver(core, ALPHA)
    monkeypatch.setattr(solve, "descend", lazy_descend)
    monkeypatch.setattr(solve.ExactWalk, "descend", lambda self: True)
    with pytest.raises(GCFCPError, match="first-order condition"):
        made.solve(core.membership)


@pytest.mark.parametrize("liar", [0, 3, 7])
def test_one_lie_of_the_judge_among_many_rows_is_an_error(liar, monkeypatch):
    """All rows are judged, and of one the judge hands over another vertex."""
    core = problem()
    made = Solver(core, ALPHA)
    honest, calls = solve.ExactWalk.descend, []

    def lie(self):
        bounded = honest(self)
        if len(calls) == liar:
            a = self.basis[0]
            self.at[a] += 1 if self.at[a] + 1 < self.pieces.size[a] else -1
        calls.append(1)
        return bounded

    monkeypatch.setattr(solve, "unsure", lambda p, w: np.ones(len(w.t), dtype=bool))
    honestly = made.solve(core.membership)
    assert all(s.judged for s in honestly)
    monkeypatch.setattr(solve.ExactWalk, "descend", lie)
    with pytest.raises(GCFCPError, match="first-order condition"):
        made.solve(core.membership)
    assert len(calls) == 8


def test_only_the_rows_that_are_unsure_are_judged(monkeypatch):
    core = problem()
    made = Solver(core, ALPHA)
    expected = [s.threshold for s in made.solve(core.membership)]
    wanted = np.arange(8) % 3 == 1
    monkeypatch.setattr(solve, "unsure", lambda p, w: wanted)
    found = made.solve(core.membership)
    assert [s.judged for s in found] == wanted.tolist()
    assert [s.threshold for s in found] == expected


def test_a_judge_that_finds_no_bound_is_believed(monkeypatch):
    core = problem()
    made = Solver(core, ALPHA)
    monkeypatch.setattr(solve, "unsure", lambda p, w: np.arange(len(w.t)) == 2)
    monkeypatch.setattr(solve.ExactWalk, "descend", lambda self: False)
    found = made.solve(core.membership)
    assert [s.bounded for s in found] == [i != 2 for i in range(8)]
    assert found[2].threshold == np.inf


def test_multipliers_that_are_tampered_with_are_found_out(monkeypatch):
    """The gradient a walk believes in is wrong: the certificate does not hold."""
    core = problem()
    made = Solver(core, ALPHA)
    monkeypatch.setattr(solve.ExactWalk, "descend", lambda self: True)
    honest = certificate.multipliers
    monkeypatch.setattr(
        certificate,
        "multipliers",
        lambda p, w: dataclasses.replace(honest(p, w), y=1e9 + honest(p, w).y),
    )
    with pytest.raises(GCFCPError, match="first-order condition"):
        made.solve(core.membership)


def test_the_smallest_difference_is_that_of_the_determinant():
    """Fractions say it: the inverse of a 0/1 matrix has multiples of 1 / det in it."""
    rng = np.random.default_rng(0)
    core = problem(groups=6, n=600)
    pieces = pieces_of(core, ALPHA)[0]
    r = pieces.rows.shape[1]
    found = set()
    for _ in range(300):
        basis = rng.permutation(len(pieces.rows))[:r]
        matrix = pieces.rows[basis]
        det = round(abs(np.linalg.det(matrix)))
        if not det:
            continue
        walk = Walk.begun(basis[None], np.zeros((1, len(pieces.rows)), int), np.zeros(1))
        factorise(pieces, walk, np.zeros((1, r)))
        assert smallest_differences(walk) == pytest.approx([1 / det], rel=1e-9)
        found.add(det)
    assert max(found) > 2


def test_an_atom_beyond_infinity_has_room():
    """Theta above the score at infinity is clear of every score, so that nothing is in doubt."""
    pieces, _, walk = optima(problem("some infinite"))
    atom = int(np.flatnonzero(pieces.infinite)[0])
    walk = copy_of(walk)
    walk.at[0, atom] = pieces.size[atom]
    number, far = np.zeros(walk.at.shape), np.zeros(walk.at.shape)
    far[0, atom] = 2.0
    assert certificate._room(pieces, walk, number, far)[0, atom] == np.inf
    far[0, atom] = 1.0
    assert certificate._room(pieces, walk, number, far)[0, atom] == -np.inf


def test_what_whole_numbers_cannot_tell_is_not_in_place(monkeypatch):
    pieces, _, walk = optima(problem("integers"))
    atoms = outside(walk, 0)
    monkeypatch.setattr(certificate, "exact_gaps", lambda *_: None)
    assert certificate._in_place(pieces, walk, 0, atoms) is False
