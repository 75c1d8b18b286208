"""The rest of the solver's parts: its functions f_A, rational arithmetic, batches and levels."""

from __future__ import annotations

import dataclasses
import math
import sys
from fractions import Fraction

import numpy as np
import pytest

import oracles
import vertices
from gcfcp.errors import GCFCPError
from gcfcp.solver import Coreset, Solver, problem, quantile, solve, start
from gcfcp.solver.exact import ExactWalk, _round_up, _solve_exactly, combine
from gcfcp.solver.problem import combined, independent, pieces_of

ALPHA = Fraction(1, 10)


def coreset_of(parts, weights=None, test=1.0, membership=None) -> Coreset:
    """Scores atom by atom; one disjoint group for each atom unless said otherwise."""
    values = np.concatenate([np.asarray(p, dtype=float) for p in parts])
    if membership is None:
        membership = np.eye(len(parts), dtype=bool)
    start = np.cumsum([0, *map(len, parts)])
    weights = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float)
    return Coreset(np.asarray(membership, dtype=bool), start, values, weights, test)


# --- the functions f_A ----------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [Fraction(1, 10), Fraction(1, 3), Fraction(2, 7)])
@pytest.mark.parametrize("equal", [True, False])
def test_slopes_are_weights_below_less_a_part_of_all(alpha, equal):
    rng = np.random.default_rng(0)
    parts = [np.sort(rng.normal(size=k)) for k in (1, 5, 2, 9)]
    weights = np.full(17, 3.0) if equal else rng.integers(1, 9, size=17).astype(float)
    membership = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]])
    core = coreset_of(parts, weights, 4.0, membership)
    pieces, columns, t = pieces_of(core, alpha)
    unit = alpha.denominator
    assert t == (1 - alpha) * unit * 4
    assert columns.tolist() == [0, 1, 2]
    assert pieces.first.tolist() == [0, 2, 8, 11]
    assert len(pieces.slopes) == 17 + 4
    total = []
    for a, k in enumerate((1, 5, 2, 9)):
        own = [Fraction(w) for w in weights[core.start[a] : core.start[a + 1]]]
        total.append(sum(own))
        for i in range(k + 1):
            expected = unit * (sum(own[:i]) - (1 - alpha) * sum(own))
            assert Fraction(pieces.slopes[pieces.first[a] + i]) == expected
    assert pieces.weight.tolist() == [unit * float(w) for w in np.array(total) @ membership]
    assert pieces.whole
    assert pieces.size.tolist() == [1, 5, 2, 9]


def test_slopes_of_equal_weights_are_multiples_and_not_running_sums():
    """A running sum of 0.1 drifts; a multiple is rounded once."""
    pieces, _, _ = pieces_of(coreset_of([np.arange(1000.0)], np.full(1000, 0.1)), ALPHA)
    assert pieces.slopes.tolist() == [10 * (k * 0.1) - 9 * (1000 * 0.1) for k in range(1001)]


def test_whole_weights_are_seen_as_such():
    parts = [[1.0, 2.0], [3.0]]

    def whole(weights, alpha=ALPHA):
        return pieces_of(coreset_of(parts, weights), alpha)[0].whole

    assert whole([1, 2, 3])
    assert not whole([1, 2, 2.5])
    assert not whole([1, 2, 3], Fraction(math.pi / 30))  # No fraction that anyone wrote down.
    assert whole([1, 2, 3], Fraction(3, 2**20))
    assert not whole([1, 2, 3], Fraction(1, 2**20 + 1))
    # keep x total below 2**52, so that sums and differences of slopes are whole too.
    assert whole([1, 1, 2**48 - 3], Fraction(3, 16))
    assert not whole([1, 1, 2**48 - 2], Fraction(3, 16))


def test_an_alpha_without_a_small_denominator_leaves_weights_as_they_are():
    alpha = Fraction(math.pi / 30)
    pieces, _, t = pieces_of(coreset_of([[1.0, 2.0]], [4.0, 5.0], 7.0), alpha)
    cut = float(1 - alpha)
    assert t == float((1 - alpha) * 7)
    assert pieces.slopes.tolist() == [0 - cut * 9, 4 - cut * 9, 9 - cut * 9]
    assert pieces.weight.tolist() == [9.0]


def test_many_numbers_are_checked_to_the_last(monkeypatch):
    monkeypatch.setattr(problem, "_IN_CACHE", 4)
    for n in (1, 3, 4, 5, 9):
        for i in range(n):
            numbers = np.arange(n) * 2.0
            assert problem._multiples(numbers, 2.0)
            numbers[i] += 1
            assert not problem._multiples(numbers, 2.0)
            assert problem._multiples(numbers, 1.0)
            numbers[i] += 0.5
            assert not problem._multiples(numbers, 1.0)


def test_discrete_scores_have_a_grain():
    def grain(*scores):
        return pieces_of(coreset_of([scores]), ALPHA)[0].grain

    assert grain(1.0, 2.0, 3.0) == 2.0**-18  # 3 < 4 = 2**2.
    assert grain(1.0, 2.0, 4.0) == 2.0**-17
    assert grain(0.25, 1.5) == 2.0**-19
    assert grain(0.1, 0.2) == 0.0
    assert grain(1.0, 1 + 2.0**-19) == 2.0**-19
    assert grain(1.0, 1 + 2.0**-20) == 0.0
    assert grain(-3.0, 1.0) == 2.0**-18
    assert grain(-3.0, 1.0, np.inf) == 2.0**-18
    assert grain(0.0) == 2.0**-20
    assert grain(5e-324) == 0.0  # The grain itself would be zero.


def test_enormous_scores_are_scaled():
    def pieces(*scores):
        return pieces_of(coreset_of([scores]), ALPHA)[0]

    for scores in ((1.0, 2.0**900), (-(2.0**900), 1.0, np.inf)):
        made = pieces(*scores)
        assert made.values.tolist() == made.exact.tolist()
        assert not made.lossy
    for scores in ((1.0, 2.0**901), (-(2.0**901), 1.0), (1.0, 2.0**901, np.inf)):
        made = pieces(*scores)
        assert made.values.tolist() == (made.exact * 2.0**-124).tolist()
        assert not made.lossy
    assert pieces(2.0**-1000, 2.0**901).lossy
    made = pieces(3.0, np.inf)
    assert (made.values.tolist(), made.infinite.tolist()) == ([3.0, 0.0], [True])


def test_the_largest_score_is_that_of_any_atom():
    rng = np.random.default_rng(0)
    for _ in range(50):
        parts = [np.sort(rng.normal(size=rng.integers(1, 5))) for _ in range(3)]
        held = [np.append(p, 0.0) if rng.random() < 0.5 else p for p in parts]
        start = np.cumsum([0, *map(len, held)])
        expected = max(np.abs(p).max() for p in parts)
        assert problem._largest(np.concatenate(held), start) == expected


def test_equal_values_are_combined():
    atom = np.array([0, 0, 0, 1, 1, 2])
    values = np.array([1.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    found = combined(atom, values, np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    assert [x.tolist() for x in found] == [[0, 0, 1, 2], [1, 2, 2, 2], [3, 3, 9, 6]]
    distinct = (np.array([0, 0]), np.array([1.0, 2.0]), np.ones(2))
    assert all(x is y for x, y in zip(combined(*distinct), distinct, strict=True))


def test_coarser_pieces():
    rng = np.random.default_rng(0)
    sizes = [1, 7, 8, 9, 16, 3]
    parts = [np.sort(rng.normal(size=k)) for k in sizes]
    core = coreset_of(parts, rng.integers(1, 5, size=sum(sizes)))
    fine, _, _ = pieces_of(core, ALPHA)
    fine = dataclasses.replace(fine, exact=fine.values + 100)
    assert fine.coarser(1) is fine
    for stride in (2, 3, 8, 100):
        coarse = fine.coarser(stride)
        for a, k in enumerate(sizes):
            kept = sorted({min(i + stride, k) - 1 for i in range(0, k, stride)})
            own = slice(coarse.start[a], coarse.start[a] + coarse.size[a])
            assert coarse.values[own].tolist() == [parts[a][i] for i in kept]
            assert coarse.exact[own].tolist() == [parts[a][i] + 100 for i in kept]
            slopes = coarse.slopes[coarse.first[a] : coarse.first[a] + coarse.size[a] + 1]
            before = fine.slopes[fine.first[a]]
            assert slopes.tolist() == [before, *(fine.slopes[fine.first[a] + i + 1] for i in kept)]


def test_independent_rows_are_the_first_that_add_something():
    rng = np.random.default_rng(0)
    for _ in range(60):
        matrix = (rng.random((8, 5)) < 0.4).astype(float)
        before, order = matrix.copy(), rng.permutation(8)
        chosen = []
        for i in order.tolist():
            if len(oracles._reduce(matrix[[*chosen, i]].tolist())[1]) > len(chosen):
                chosen.append(i)
        assert independent(matrix, order).tolist() == chosen
        assert np.array_equal(matrix, before)


# --- rational arithmetic --------------------------------------------------------------------------


def test_equations_are_solved_exactly():
    rng = np.random.default_rng(0)
    solved = 0
    for r in (1, 2, 3, 5, 8, 12):
        for _ in range(30):
            matrix = (rng.random((r, r)) < 0.5).astype(float)
            inverse = vertices.inverse(matrix.tolist())
            if inverse is None:
                continue
            sizes = [int(x) for x in rng.choice([0, 3, 1000, 2**24, 2**24 - 1, 2**60], size=r)]
            right = [int(rng.integers(-9, 10)) * s + int(rng.integers(-3, 4)) for s in sizes]
            right[0] *= 10**40
            numerators, denominator = _solve_exactly(matrix, right)
            exact = [vertices.dot(line, right) for line in inverse]
            assert [Fraction(k, denominator) for k in numerators] == exact
            assert denominator == math.lcm(*(x.denominator for x in exact))
            solved += 1
    assert solved > 60


def test_equations_of_many_entangled_groups_are_solved_exactly():
    rng = np.random.default_rng(1)
    matrix = (rng.random((40, 40)) < 0.5).astype(float)
    numerators, denominator = _solve_exactly(matrix, list(range(40)))
    assert denominator > 2**30
    for row, k in zip(matrix.astype(int).tolist(), range(40), strict=True):
        assert sum(a * x for a, x in zip(row, numerators, strict=True)) == k * denominator


def test_an_inexact_solution_is_an_error(monkeypatch):
    """If the determinant were 1, as it is not, the digits would be too few."""
    monkeypatch.setattr(np.linalg, "slogdet", lambda _: (1.0, 0.0))
    rng = np.random.default_rng(1)
    matrix = (rng.random((12, 12)) < 0.5).astype(float)
    with pytest.raises(GCFCPError, match="failed its check"):
        _solve_exactly(matrix, list(range(12)))


def test_rounding_up():
    third = Fraction(1, 3)
    assert Fraction(_round_up(third)) >= third > Fraction(math.nextafter(_round_up(third), 0))
    assert Fraction(_round_up(-third)) >= -third > Fraction(math.nextafter(_round_up(-third), -1))
    assert _round_up(Fraction(3, 4)) == 0.75
    assert _round_up(Fraction(10) ** 400) == math.inf
    assert _round_up(-(Fraction(10) ** 400)) == -sys.float_info.max
    assert _round_up(Fraction(1, 10**400)) == 5e-324
    assert _round_up(-Fraction(1, 10**400)) == 0.0


def combine_one(c, scores, rows, row):
    """`combine` of a single test row; another one beside it changes nothing."""
    r = len(c)
    other = [np.arange(r) == 0, np.arange(r) + 0.5, np.eye(r), np.arange(r) == 0]
    both = [np.array([own, one]) for own, one in zip((c, scores, rows, row), other, strict=True)]
    found, beside = combine(*both, np.linalg.slogdet(both[2])[1])
    assert beside == 0.5
    return found


def test_thresholds_are_combined_exactly():
    rng = np.random.default_rng(2)
    for _ in range(150):
        r = int(rng.integers(1, 6))
        rows = (rng.random((r, r)) < 0.6).astype(float)
        inverse = vertices.inverse(rows.tolist())
        if inverse is None:
            continue
        row = (rng.random(r) < 0.6).astype(float)
        row[0] = 1.0
        scores = rng.normal(size=r) * 10.0 ** rng.integers(-8, 9, size=r)
        c = row @ np.linalg.inv(rows)
        exact = [vertices.dot(map(int, row), column) for column in zip(*inverse, strict=True)]
        expected = oracles.rounded_up(vertices.dot(exact, map(Fraction, scores.tolist())))
        assert combine_one(c, scores, rows, row) == expected
        assert combine_one(c + 1e-3, scores, rows, row) == expected  # c is made exact.


def test_a_basic_score_is_returned_as_it_is():
    eye = np.eye(3)
    assert combine_one(eye[1], np.array([1.0, 0.1, 3.0]), eye, eye[1]) == 0.1
    zero = combine_one(eye[0], np.array([-0.0, 1.0, 1.0]), eye, eye[0])
    assert (zero, math.copysign(1.0, zero)) == (0.0, 1.0)
    assert combine_one(-eye[0], np.array([2.0, 1.0, 1.0]), eye, -eye[0]) == -2.0
    assert combine_one(2 * eye[0], np.array([2.0, 1.0, 1.0]), eye, 2 * eye[0]) == 4.0


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", ["normal", "integers", "cents"])
@pytest.mark.parametrize("unit", [Fraction(1), Fraction(2**40, 3), Fraction(1, 3 * 2**40)])
def test_the_exact_walk_finds_the_optimum_from_any_start(kind, unit):
    """Weights that are not whole carry rounding, and what counts as a tie has to grow with them."""
    rng = np.random.default_rng(5)
    for trial in range(12):
        n, G = int(rng.integers(4, 10)), int(rng.integers(1, 4))
        membership = rng.random((n, G)) < 0.5
        membership[~membership.any(axis=1), 0] = True
        scores = vertices.draw_scores(rng, kind, n)
        weights = rng.integers(1, 4, size=n)
        alpha = [Fraction(1, 5), Fraction(1, 2)][trial % 2]
        core = oracles.coreset(scores, membership, weights * float(unit), float(unit))
        pieces, columns, t = pieces_of(core, alpha)
        row = membership[0][columns].astype(float)
        expected = oracles.brute_force(scores, membership, weights, 1, alpha, membership[0])
        for _ in range(3):
            at = vertices.draw_walk(rng, pieces, row[None], t)
            started = at.basis.copy(), at.at.copy()
            judge = ExactWalk(pieces, at.basis[0], rng.integers(pieces.size), row, t)
            bounded = judge.descend()
            assert np.array_equal(at.basis, started[0])
            assert np.array_equal(at.at, started[1])
            assert bounded == (expected != math.inf)
            if bounded:
                held = [vertices.point(pieces, a, judge.at[a])[1] for a in judge.basis]
                c = vertices.in_terms(pieces, judge.basis, row)
                assert vertices.dot(c, held) == expected
                exact = vertices.located(pieces, judge.basis, judge.at)
                assert judge.at.tolist() == exact.tolist()


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["infinite", "infinite integers"])
def test_the_exact_walk_with_scores_at_infinity(kind):
    rng = np.random.default_rng(6)
    finite = 0
    for _ in range(12):
        pieces, t = vertices.draw(rng, kind, n=20)
        row = pieces.rows[rng.integers(len(pieces.rows))]
        ends = set()
        for _ in range(3):
            at = vertices.draw_walk(rng, pieces, row[None], t)
            judge = ExactWalk(pieces, at.basis[0], at.at[0], row, t)
            if not judge.descend():
                ends.add(None)
                continue
            assert vertices.optimal(pieces, judge.basis, judge.at, row, t)
            held = [vertices.point(pieces, a, judge.at[a]) for a in judge.basis]
            c = vertices.in_terms(pieces, judge.basis, row)
            ends.add(tuple(vertices.dot(c, level) for level in zip(*held, strict=True)))
            finite += 1
        assert len(ends) == 1  # One outcome from anywhere.
    assert finite > 12


def test_the_exact_walk_gives_up_with_an_error(monkeypatch):
    rng = np.random.default_rng(0)
    pieces, t = vertices.draw(rng, "normal")
    at = vertices.draw_walk(rng, pieces, pieces.rows[:1], t)
    judge = ExactWalk(pieces, at.basis[0], at.at[0], pieces.rows[0], t)
    monkeypatch.setattr(judge, "_offender", lambda: (0, 1))
    monkeypatch.setattr(judge, "_located", list)
    monkeypatch.setattr(judge, "_next_breakpoint", lambda *_: (int(at.basis[0, 0]), 0))
    with pytest.raises(GCFCPError, match="no exact optimum"):
        judge.descend()


# --- the start ------------------------------------------------------------------------------------


def test_the_minimum_of_parabolas():
    rng = np.random.default_rng(0)
    rows = (rng.random((9, 4)) < 0.5).astype(float)
    curvature, theta, slope = 1 + rng.random(9), rng.normal(size=9), rng.normal(size=9)
    beta = start._minimum(rows, curvature, theta, slope)
    gradient = rows.T @ (slope + curvature * (rows @ beta - theta))
    assert gradient == pytest.approx(np.zeros(4), abs=1e-9)


def test_a_singular_sum_of_parabolas_has_a_minimum_all_the_same(monkeypatch):
    rows = np.array([[1.0, 0.0], [1.0, 1.0]])
    args = (rows, np.ones(2), np.array([3.0, 5.0]), np.zeros(2))

    def singular(*_):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(np.linalg, "solve", singular)
    assert start._minimum(*args) == pytest.approx([3.0, 2.0])


def test_own_minima_are_quantiles():
    """f_A by itself is smallest at the score of rank ceil(0.9 n)."""
    parts = [np.arange(k) * 1.0 for k in (1, 9, 10, 11, 100)]
    pieces, _, _ = pieces_of(coreset_of(parts), ALPHA)
    theta, reach = start._own_minima(pieces)
    assert theta.tolist() == [0, 8, 8, 9, 89]
    assert reach == 1.5  # Half of the median of the widths 0, 3, 3, 3 and 20.


def test_a_smooth_f_has_the_mean_slope_and_the_weight_of_its_window():
    """f of the scores 0 to 9: its slope rises by 10 at each, from -90 to 10."""
    pieces, _, _ = pieces_of(coreset_of([np.arange(10.0)]), ALPHA)
    here = start._smooth(pieces, np.array([4.6]), 2.0)
    assert (here.at.tolist(), here.weight.tolist(), here.scores) == ([5], [40.0], 4)
    points = [2.85, 3.35, 3.85, 4.35, 4.85, 5.35, 5.85, 6.35]
    assert here.slope[0] == np.mean([-90 + 10 * (np.floor(x) + 1) for x in points])


@pytest.mark.parametrize(("length", "taken"), [(1.0, 1.0), (8.0, 2.0), (-1.0, None)])
def test_a_step_that_is_too_long_is_halved_and_one_that_leads_up_is_not_taken(
    length, taken, monkeypatch
):
    rng = np.random.default_rng(1)
    parts, rows = [np.sort(rng.normal(size=500)) for _ in range(4)], np.eye(4)
    pieces, _, _ = pieces_of(coreset_of(parts, membership=rows), ALPHA)
    here = start._smooth(pieces, np.full(4, 0.9), 0.5)
    right = start._step(pieces, here)
    monkeypatch.setattr(start, "_step", lambda *_: length * right)
    ahead = start._ahead(pieces, here)
    if taken is None:
        assert ahead is None
    else:
        assert ahead is not None
        assert 0 < (ahead.theta - here.theta)[0] / right[0] <= 1.001 * taken
        assert ahead.reach == here.reach * (0.3 if length == 1.0 else 1.0)


def test_a_flat_place_does_not_end_the_steps():
    """Beyond all scores of an atom there is no curvature, and Newton's step is far too long."""
    rng = np.random.default_rng(3)
    rows = np.array([[1, 0], [1, 1], [0, 1]])
    parts = [np.sort(rng.random(400)) for _ in rows]
    pieces, _, _ = pieces_of(coreset_of(parts, membership=rows), ALPHA)
    here = start._smooth(pieces, np.array([0.9, 2.2, 1.3]), 0.01)
    assert here.weight[1] == here.weight[2] == 0
    far = np.abs(start._step(pieces, here)).max()
    ahead = start._ahead(pieces, here)
    assert ahead is not None
    assert np.abs(ahead.theta - here.theta).max() < 1e-3 * far


def test_first_windows_are_widened_until_they_hold_many_scores(monkeypatch):
    rng = np.random.default_rng(2)
    pieces, _, _ = pieces_of(coreset_of([np.sort(rng.normal(size=500))]), ALPHA)
    minima = start._own_minima(pieces)
    monkeypatch.setattr(start, "_own_minima", lambda _: (minima[0], 1e-9))
    assert 16 <= start._first(pieces).scores < 200


@pytest.mark.parametrize(("groups", "most"), [(4, 12), (16, 40), (48, 120)])
def test_the_walk_from_the_start_takes_few_pivots(groups, most, monkeypatch):
    """About two for each group."""
    rng = np.random.default_rng(groups)
    rows = np.unique(rng.random((300, groups)) < 0.3, axis=0)
    rows[:, 0] = True
    rows = np.unique(rows, axis=0)
    parts = [np.sort(rng.gamma(2.0, size=25) + 0.1 * row.sum()) for row in rows]
    taken = []
    honest = solve.descend

    def counted(*args):
        found = honest(*args)
        taken.append(int(found[1][0]))
        return found

    monkeypatch.setattr(solve, "descend", counted)
    Solver(coreset_of(parts, membership=rows), ALPHA)
    assert sum(taken) <= most


def test_a_guess_for_one_group_is_its_quantile():
    """One smooth f_A: Newton's steps must lead to where its slope changes sign."""
    rng = np.random.default_rng(0)
    core = coreset_of([np.sort(rng.gamma(2.0, size=20_000))])
    guess = start.near_optimum(pieces_of(core, ALPHA)[0])
    assert guess.close
    assert abs(int(guess.at[0]) - 18_000) <= 40


def test_atoms_at_infinity_are_no_first_choice():
    """An atom whose scores are all infinite has no number to be near to."""
    membership = np.array([[1, 0], [1, 1], [0, 1]])
    core = coreset_of([[np.inf], [1.0, 2.0], [1.0, 2.0]], membership=membership)
    guess = start.near_optimum(pieces_of(core, ALPHA)[0])
    assert sorted(guess.basis.tolist()) == [1, 2]
    assert (guess.at < [1, 2, 2]).all()


# --- the solver as a whole ------------------------------------------------------------------------


@pytest.fixture
def far(monkeypatch) -> None:
    """No guess comes close, as where scores differ by many orders of magnitude."""

    def guess(pieces):
        return dataclasses.replace(start.near_optimum(pieces), close=False)

    monkeypatch.setattr(solve, "near_optimum", guess)


@pytest.mark.parametrize("seed", range(4))
def test_where_the_optimum_is_not_unique_it_does_not_depend_on_the_start(seed, monkeypatch):
    """With 10 scores in each atom and alpha = 0.1, slopes of 0 are common."""
    rng = np.random.default_rng(seed)
    rows = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]])
    core = coreset_of([np.sort(rng.random(10)) for _ in rows], membership=rows)
    found = []
    for shift in range(8):

        def elsewhere(pieces, shift=shift):
            guess = start.near_optimum(pieces)
            basis = independent(pieces.rows, np.roll(np.arange(4), shift))
            return dataclasses.replace(guess, basis=basis, at=(guess.at + shift) % pieces.size)

        monkeypatch.setattr(solve, "near_optimum", elsewhere)
        found.append(Solver(core, ALPHA).coefficients().tolist())
    assert np.array(found) == pytest.approx(np.array(found[:1] * len(found)))


@pytest.mark.parametrize("seed", range(16))
def test_an_atom_that_weighs_next_to_nothing_does_not_spoil_the_coefficients(seed):
    """In all atoms but one the first two groups are a division of the third. The other atom has a
    weight that floats cannot tell from rounding."""
    rng = np.random.default_rng(seed)
    heavy = np.unique(rng.random((40, 6)) < 0.5, axis=0)[:14]
    heavy[:, 1], heavy[:, 2] = ~heavy[:, 0], True
    heavy = np.unique(heavy, axis=0)
    rows = np.vstack([heavy, [True, True, True, False, True, False]])
    scores = [np.unique(rng.gamma(2, size=60)) for _ in rows]
    ones = np.ones(60 * len(heavy))
    part = coreset_of(scores[:-1], ones, membership=heavy)
    whole = coreset_of(scores, np.append(ones, np.full(60, 1e-13)), membership=rows)
    losses = []
    for core in (part, whole):
        theta = np.repeat(heavy @ Solver(core, ALPHA).coefficients(), 60)
        over = part.values - theta
        losses.append(np.maximum(0.9 * over, -0.1 * over).sum())
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)


def gap_coreset(n=5_000) -> Coreset:
    """A gap in the scores just where the optimum is."""
    rng = np.random.default_rng(0)
    scores = np.sort(rng.random((4, n)) + 1e9 * (rng.random((4, n)) < 0.1), axis=1)
    membership = [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]]
    return coreset_of(list(scores), membership=membership)


def test_from_coarse_to_fine_takes_few_pivots(monkeypatch, far):
    levels = []
    honest = solve.descend

    def counted(pieces, walk, rows):
        found, pivots = honest(pieces, walk, rows)
        levels.append((int(pieces.size.max()), int(pivots[0])))
        return found, pivots

    monkeypatch.setattr(solve, "descend", counted)
    solver = Solver(gap_coreset(), ALPHA)
    assert [size for size, _ in levels] == [40, 5_000]
    assert levels[1][1] <= 12
    expected = [s.threshold for s in solver.solve(solver.coreset.membership)]
    levels.clear()
    monkeypatch.setattr(solve, "_COARSEST", 10)
    monkeypatch.setattr(solve, "_LEVEL_RATIO", 4)
    again = Solver(gap_coreset(), ALPHA)
    assert [size for size, _ in levels] == [5, 20, 79, 313, 1_250, 5_000]
    assert max(pivots for _, pivots in levels[1:]) <= 12
    assert [s.threshold for s in again.solve(again.coreset.membership)] == expected
    levels.clear()
    monkeypatch.setattr(solve, "_COARSEST", 20)  # A level of just that size is coarse enough.
    Solver(gap_coreset(), ALPHA)
    assert [size for size, _ in levels] == [20, 79, 313, 1_250, 5_000]


def test_each_level_starts_on_the_scores_where_the_last_one_ended(monkeypatch, far):
    """Every score of a coarse level is one of the finer levels, the last of an atom too."""
    began, ended = [], []
    locate, descend = solve.locate, solve.descend

    def resting(pieces, walk):
        basis = walk.basis[0]
        return pieces.values[pieces.start[basis] + walk.at[0, basis]].tolist()

    def located(pieces, walk):
        began.append(resting(pieces, walk))
        locate(pieces, walk)

    def descended(pieces, walk, rows):
        found = descend(pieces, walk, rows)
        ended.append(resting(pieces, found[0]))
        return found

    monkeypatch.setattr(solve, "locate", located)
    monkeypatch.setattr(solve, "descend", descended)
    monkeypatch.setattr(solve, "_COARSEST", 10)
    monkeypatch.setattr(solve, "_LEVEL_RATIO", 4)
    for n in (5_000, 333):
        core = gap_coreset(n)
        # The last score of every atom is so heavy that the optimum rests on it.
        weights = np.ones(4 * n)
        heavy = dataclasses.replace(
            core, weights=weights + 99 * n * (np.arange(4 * n) % n == n - 1)
        )
        for coreset in (core, heavy):
            began.clear()
            ended.clear()
            Solver(coreset, ALPHA)
            assert len(began) > 2
            assert began[1:] == ended[:-1]
    assert ended[-1] == [heavy.values[n * a + n - 1] for a in solver_basis(heavy)]


def solver_basis(core: Coreset) -> list[int]:
    return Solver(core, ALPHA)._base.basis[0].tolist()


def test_batches_of_any_size_give_the_same(monkeypatch):
    core = gap_coreset(200)
    rows = np.vstack([core.membership, [[0, 0, 0], [0, 1, 0], [0, 0, 1]]])
    made = Solver(core, ALPHA)
    expected = [s.threshold for s in made.solve(rows)]
    sizes = []
    honest = made._optima
    monkeypatch.setattr(made, "_optima", lambda r, *of: (sizes.append(len(r)), honest(r, *of))[1])
    atoms, r = made._pieces.rows.shape
    for rows_at_once, parts in ((0, [1] * 6), (2, [2, 2, 2]), (4, [4, 2]), (10**6, [6])):
        for limit, other in ((atoms, "_INVERSES"), (r * r, "IN_CACHE")):
            sizes.clear()
            both = {"IN_CACHE", "_INVERSES"}
            monkeypatch.setattr(solve, other, 10**9)
            monkeypatch.setattr(solve, (both - {other}).pop(), rows_at_once * limit)
            assert [s.threshold for s in made.solve(rows)] == expected
            assert sizes == parts


def test_the_weight_of_each_row_can_be_given():
    core = coreset_of([np.arange(99.0)])
    made = Solver(core, ALPHA)
    rows = np.ones((3, 1), dtype=bool)
    found = made.solve(rows, np.array([made.t, -10.0, 0.0]))
    assert [s.threshold for s in found] == [89.0, 88.0, 89.0]


def test_atoms_at_infinity_are_reported():
    """Two disjoint groups; in one of them the quantile is a score at infinity."""
    core = coreset_of([[1.0, np.inf], np.arange(50.0)], [1.0, 9.0, *[1.0] * 50])
    made = Solver(core, Fraction(1, 5))
    found = made.solve(np.eye(2, dtype=bool))
    assert [s.infinite_atoms.tolist() for s in found] == [[True, False]] * 2
    assert [s.threshold for s in found] == [math.inf, 40.0]
    assert [s.bounded for s in found] == [True, True]
    evidence = made.evidence(np.array([False, True]))
    assert evidence is not None
    assert evidence.infinite.tolist() == [True, False]
    assert evidence.theta[1] == 40.0


def test_infinite_scores_that_cancel():
    """theta of {0, 1} and of {0} are infinite, and their difference is a number or infinite."""
    membership = [[1, 0], [1, 1], [0, 1]]
    core = coreset_of(
        [[1.0, np.inf], [2.0, np.inf], np.arange(40.0)], [1, 20, 1, 20, *[1] * 40], 1.0, membership
    )
    for row in membership:
        made = Solver(core, Fraction(1, 5))
        lost = np.isinf(core.values)
        huge = [
            Fraction(10**9) if x else Fraction(v) for v, x in zip(core.values, lost, strict=True)
        ]
        phi = np.repeat(np.array(membership), np.diff(core.start), axis=0)
        limit = oracles.brute_force(huge, phi, core.weights, 1, Fraction(1, 5), row)
        limit = math.copysign(math.inf, limit) if abs(limit) > 10**7 else float(limit)
        assert made.solve(np.array(row, dtype=bool))[0].threshold == limit


def test_groups_that_add_up_to_others():
    """Columns 2 and 3 depend on 0 and 1. A row that contradicts this is limited by no score."""
    membership = np.array([[1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 0, 0]], dtype=bool)
    core = coreset_of([np.arange(40.0)] * 3, membership=membership)
    made = Solver(core, ALPHA)
    rows = np.array([[1, 0, 1, 1], [1, 0, 0, 1], [1, 0, 1, 0], [0, 1, 0, 0]], dtype=bool)
    span = np.linalg.matrix_rank(membership.astype(float))
    for row, found in zip(rows, made.solve(rows), strict=True):
        inside = np.linalg.matrix_rank(np.vstack([membership, row]).astype(float)) == span
        assert found.bounded == inside
        phi = np.repeat(membership, 40, axis=0)
        if inside:
            exact = oracles.dual_lp(core.values, phi, core.weights, 1.0, 0.1, row)
            assert found.threshold == pytest.approx(exact)


def test_quantiles():
    scores = np.array([5.0, 1.0, np.inf, 3.0, 3.0, 9.0])
    weights = np.array([1.0, 2.0, 1.0, 1.0, 1.0, 0.0])
    for twentieths in range(1, 20):
        alpha = Fraction(twentieths, 20)
        needed = (1 - alpha) * 7
        below = {t: sum(w for s, w in zip(scores, weights, strict=True) if s <= t) for t in scores}
        expected = min((t for t, w in below.items() if w >= needed), default=math.inf)
        assert quantile(scores, weights, 1.0, alpha) == expected
    assert quantile(scores, 0 * weights, 1.0, ALPHA) == math.inf
    assert quantile(np.zeros(0), np.zeros(0), 1.0, ALPHA) == math.inf
