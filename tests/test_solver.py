"""Thresholds to the last bit: against ranks, LPs, exact enumeration, MAPIE and themselves."""

import dataclasses
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from gcfcp.checks import rational
from gcfcp.errors import GCFCPError
from gcfcp.solver import Coreset, Solver, nearest, ray
from gcfcp.solver import solve as solver_module

ALPHAS = [Fraction(1, 100), Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(1, 3)]
ALPHAS += [Fraction(1, 2)]
FAMILIES = ["overlapping", "nested", "duplicate", "disjoint", "crossed", "deficient"]


def threshold(scores, membership, weights, test_weight, alpha, row):
    solver = Solver(oracles.coreset(scores, membership, weights, test_weight), Fraction(alpha))
    return solver.solve(np.asarray(row))[0].threshold


def members(rng, family, n, G):
    """(n, G) memberships of one kind of family; every record has a group."""
    if family == "overlapping":
        matrix = rng.random((n, G)) < 0.5
    elif family == "nested":
        matrix = rng.random(n)[:, None] < (np.arange(G) + 1) / G
    elif family == "duplicate":
        matrix = (rng.random((n, G)) < 0.6)[:, rng.integers(G, size=G)]
    elif family == "disjoint":
        matrix = np.eye(G, dtype=bool)[rng.integers(G, size=n)]
    elif family == "crossed":  # the columns of each half add up to one
        half = max(1, G // 2)
        left = np.eye(half, dtype=bool)[rng.integers(half, size=n)]
        right = np.eye(G - half + 1, dtype=bool)[rng.integers(G - half + 1, size=n)]
        matrix = np.hstack([left, right])[:, :G]
    else:  # everyone, a group and its complement, all there twice
        one = rng.random((n, G)) < 0.5
        matrix = np.hstack([np.ones((n, 1), dtype=bool), one, ~one])
    matrix[~matrix.any(axis=1), 0] = True
    return matrix


def client_weights(rng, n, clients):
    """pi_k / (n_k + 1) of records that belong to random clients, and their sum, as Fractions."""
    client = rng.integers(clients, size=n)
    pi = [Fraction(int(x)) for x in rng.integers(1, 9, size=clients)]
    unit = [p / int(np.sum(client == k) + 1) for k, p in enumerate(pi)]
    return [unit[k] for k in client], sum(unit)


def draw_scores(rng, kind, n):
    if kind == "normal":
        return rng.normal(size=n)
    if kind == "negative":
        return -rng.exponential(size=n)
    if kind == "discrete":
        return rng.integers(-2, 3, size=n) * 1.0
    if kind == "rounded":
        return np.round(rng.normal(size=n), 1)
    return np.full(n, 0.1)


def floats(weights):
    return np.array([float(w) for w in weights])


# --- one group, one client: a rank ------------------------------------------------------------


@pytest.mark.few(4)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["distinct", "tied", "integer"])
def test_one_group_one_client_is_the_rank(alpha, kind):
    rng = np.random.default_rng(0)
    for n in range(1, 201):
        scores = {
            "distinct": rng.normal(size=n),
            "tied": np.round(rng.normal(size=n), 1),
            "integer": rng.integers(5, size=n) * 1.0,
        }[kind]
        rank = math.ceil((n + 1) * (1 - alpha))
        expected = np.sort(scores)[rank - 1] if rank <= n else math.inf
        found = threshold(scores, np.ones((n, 1)), np.ones(n), 1, alpha, [True])
        assert found == expected, (n, rank)


def test_alpha_as_a_float_is_the_fraction_that_was_meant():
    assert rational(0.1) == Fraction(1, 10)
    assert rational(1 / 3) == Fraction(1, 3)
    assert rational(0.3) == Fraction(3, 10)
    assert rational(math.pi / 4) == Fraction(math.pi / 4)
    assert rational(Fraction(1, 7)) == Fraction(1, 7)


def test_an_alpha_with_a_huge_denominator():
    alpha = Fraction(math.pi / 30)
    scores = np.random.default_rng(0).normal(size=57)
    expected = np.sort(scores)[math.ceil(58 * (1 - alpha)) - 1]
    assert threshold(scores, np.ones((57, 1)), np.ones(57), 1, alpha, [True]) == expected


# --- against the oracles ----------------------------------------------------------------------


@pytest.mark.few(8)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["normal", "negative", "discrete", "rounded", "equal"])
def test_agrees_with_one_lp(family, kind):
    rng = np.random.default_rng(1)
    for trial in range(24):
        n, G = int(rng.integers(5, 120)), int(rng.integers(1, 6))
        membership = members(rng, family, n, G)
        weights, test = client_weights(rng, n, 3) if trial % 2 else ([1] * n, 1)
        weights, test = floats(weights), float(test)
        scores, alpha = draw_scores(rng, kind, n), ALPHAS[trial % 6]
        row = membership[rng.integers(n)] if trial % 3 else rng.random(membership.shape[1]) < 0.5
        row[0] |= not row.any()
        args = (scores, membership, weights, test, alpha, row)
        assert threshold(*args) == pytest.approx(
            oracles.dual_lp(*args), rel=1e-8, abs=1e-8 * np.abs(scores).max()
        )


@pytest.mark.few(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_the_bisection_of_the_paper(family):
    rng = np.random.default_rng(2)
    for trial in range(6):
        n, G = int(rng.integers(5, 60)), int(rng.integers(1, 5))
        membership = members(rng, family, n, G)
        weights, test = client_weights(rng, n, 3)
        kind = ["normal", "discrete", "negative"][trial % 3]
        scores, alpha = draw_scores(rng, kind, n), ALPHAS[trial % 6]
        args = (scores, membership, floats(weights), float(test), alpha, membership[0])
        expected = oracles.paper_bisection(*args)
        assert threshold(*args) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def small_problem(rng, family, kind, clients):
    """A problem small enough to enumerate. Weights are whole."""
    n, G = int(rng.integers(1, 10)), int(rng.integers(1, 4))
    membership = members(rng, family, n, G)
    weights, test = client_weights(rng, n, clients) if clients else ([Fraction(1)] * n, 1)
    unit = math.lcm(*(Fraction(w).denominator for w in [*weights, test]))
    weights, test = np.array([int(w * unit) for w in weights]), int(test * unit)
    alpha = [Fraction(1, 10), Fraction(1, 5), Fraction(1, 3), Fraction(1, 2), Fraction(2, 5)]
    row = membership[rng.integers(n)] if rng.random() < 0.7 else rng.random(G) < 0.5
    row = np.resize(row, membership.shape[1])
    row[0] |= not row.any()
    return draw_scores(rng, kind, n), membership, weights, test, alpha[rng.integers(5)], row


@pytest.mark.few(6)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["normal", "discrete", "equal"])
def test_equals_exact_enumeration(family, kind):
    rng = np.random.default_rng(3)
    for trial in range(40):
        args = small_problem(rng, family, kind, clients=trial % 3)
        assert threshold(*args) == oracles.rounded_up(oracles.brute_force(*args)), args


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [4, 5])
def test_equals_exact_enumeration_often(family, seed):
    rng = np.random.default_rng(seed)
    for trial in range(400):
        args = small_problem(rng, family, ["discrete", "rounded"][trial % 2], clients=trial % 4)
        assert threshold(*args) == oracles.rounded_up(oracles.brute_force(*args)), args


def test_agrees_with_mapie(monkeypatch):
    mapie = pytest.importorskip("mapie.conditional_conformal_prediction")
    # MAPIE builds a cvxpy problem that its exact path never uses.
    monkeypatch.setattr(mapie, "setup_cvx_problem", lambda *_: None)
    rng = np.random.default_rng(6)
    for trial in range(60):
        n = int(rng.integers(60, 300))
        membership = members(rng, FAMILIES[trial % 6], n, 3)
        scores, row = rng.normal(size=n), membership[rng.integers(n)]
        peer = mapie._ConditionalConformalMixin()
        peer._init_conditional(lambda x: x, randomize=False, exact=True, infinite_params={}, seed=0)
        peer._conformalize_conditional(membership.astype(float), scores)
        # No (n_G + 1)(1 - alpha) is whole at this alpha: MAPIE has no rule for ties.
        expected = peer._predict_conditional_cutoff(1 - 0.097, row[None].astype(float))
        found = threshold(scores, membership, np.ones(n), 1, Fraction(97, 1000), row)
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)


# --- rows -------------------------------------------------------------------------------------


def test_rows_that_nothing_holds_are_infinite():
    membership = np.array([[1, 1, 0], [1, 0, 0]] * 50, dtype=bool)
    solver = Solver(oracles.coreset(np.arange(100.0), membership, np.ones(100), 1), Fraction(1, 10))
    rows = np.array([[1, 1, 1], [0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 0]], dtype=bool)
    found = solver.solve(rows)
    assert [s.threshold for s in found[:3]] == [math.inf] * 3
    assert not any(s.bounded for s in found[:3])
    # Seen nowhere, but the difference of two atoms.
    exact = oracles.dual_lp(np.arange(100.0), membership, np.ones(100), 1, 0.1, rows[3])
    assert found[3].threshold == pytest.approx(exact, rel=1e-9)
    assert found[4].bounded
    assert math.isfinite(found[4].threshold)


def test_a_coreset_without_atoms_is_refused():
    none = np.zeros(0)
    with pytest.raises(GCFCPError, match="no atoms"):
        Coreset(np.zeros((0, 2), dtype=bool), np.zeros(1, dtype=np.int64), none, none, 1.0)


# --- scores at infinity -----------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_infinite_score_is_the_limit_of_a_huge_one(family):
    rng = np.random.default_rng(7)
    huge = Fraction(10**9)
    for trial in range(60):
        scores, *rest = small_problem(rng, family, "discrete", clients=trial % 2)
        lost = rng.random(len(scores)) < 0.4
        exact = [huge if x else Fraction(s) for s, x in zip(scores, lost, strict=True)]
        limit = oracles.brute_force(exact, *rest)
        if limit != math.inf and abs(limit) > huge / 100:
            limit = math.copysign(math.inf, limit)
        found = threshold(np.where(lost, np.inf, scores), *rest)
        assert found == (limit if abs(limit) == math.inf else oracles.rounded_up(limit))


def test_all_scores_infinite():
    assert threshold([np.inf] * 50, np.ones((50, 1)), np.ones(50), 1, 0.5, [True]) == math.inf


# --- numbers of all sizes ---------------------------------------------------------------------


def test_heavy_tails():
    rng = np.random.default_rng(8)
    for trial in range(60):
        n = int(rng.integers(20, 80))
        membership = members(rng, FAMILIES[trial % 6], n, 3)
        scores = 10.0 ** rng.uniform(-12, 12, size=n) * rng.choice([-1, 1], size=n)
        args = (scores, membership, np.ones(n), 1, Fraction(1, 5), membership[0])
        expected = oracles.dual_lp(*args)
        assert threshold(*args) == pytest.approx(expected, rel=1e-8, abs=1e-8 * abs(scores).max())


@pytest.mark.slow
def test_heavy_tails_exactly():
    rng = np.random.default_rng(9)
    for trial in range(200):
        scores, *rest = small_problem(rng, FAMILIES[trial % 6], "discrete", clients=0)
        scores = scores * 10.0 ** rng.integers(-12, 13, size=len(scores))
        assert threshold(scores, *rest) == oracles.rounded_up(oracles.brute_force(scores, *rest))


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-300, 1e300, 4e307, 8e307])
def test_denormal_and_enormous_scores(size):
    rng = np.random.default_rng(10)
    for trial in range(40):
        scores, *rest = small_problem(rng, FAMILIES[trial % 6], "discrete", clients=0)
        exact = oracles.brute_force(scores * size, *rest)
        with warnings.catch_warnings(action="error"):
            found = threshold(scores * size, *rest)
        if exact == math.inf or abs(exact) < Fraction(1.7e308):
            assert found == oracles.rounded_up(exact)


def test_enormous_scores_beside_tiny_ones():
    """Scaled so that sums of the enormous ones do not overflow, the tiny ones would be zero."""
    rng = np.random.default_rng(16)
    sizes = np.array([5e-324, 2.0**-1033, 1e-300, 1e-57, 1.0, 1e280, 1e300, 1e307])
    for trial in range(150):
        scores, *rest = small_problem(rng, FAMILIES[trial % 6], "discrete", clients=0)
        scores = scores * rng.choice(sizes, size=len(scores))
        exact = oracles.brute_force(scores, *rest)
        with warnings.catch_warnings(action="error"):
            found = threshold(scores, *rest)
        if exact == math.inf or abs(exact) < Fraction(1.7e308):
            assert found == oracles.rounded_up(exact), (scores, *rest)


@pytest.mark.slow
@pytest.mark.parametrize("trials", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_the_smallest_numbers_in_many_atoms(trials):
    """Where numbers are smallest, rounding is no part of their size any more."""
    rng = np.random.default_rng(17)
    for _ in range(trials):
        membership = np.unique(rng.random((int(rng.integers(4, 13)), 4)) < 0.6, axis=0)
        membership = membership[membership.any(axis=1)]
        scores = rng.choice([0.0, 5e-324, 2.0**-1033], size=len(membership))
        args = (scores, membership, np.ones(len(scores)), 1, Fraction(1, 2), membership[0])
        assert threshold(*args) == oracles.rounded_up(oracles.brute_force(*args)), args


@pytest.mark.parametrize("ratio", [1e3, 1e6, 1e9, 1e12])
def test_weights_of_very_different_size(ratio):
    rng = np.random.default_rng(11)
    for trial in range(40):
        scores, membership, weights, test, alpha, row = small_problem(
            rng, FAMILIES[trial % 6], "discrete", clients=0
        )
        weights = weights * np.where(rng.random(len(weights)) < 0.5, 1.0, ratio)
        args = (scores, membership, weights, test, alpha, row)
        assert threshold(*args) == oracles.rounded_up(oracles.brute_force(*args)), args


def test_a_group_of_almost_no_weight_still_gets_its_own_quantile():
    """A client with a tiny share of the mixture is alone in a group: its ranks must be right."""
    membership = np.repeat(np.eye(2, dtype=bool), 99, axis=0)
    scores = np.concatenate([np.arange(99.0), np.arange(99.0) + 1000])
    for share in (1e-3, 1e-8, 1e-12, 1e-15):
        weights = np.repeat([1.0, share], 99)
        args = (scores, membership, weights, share, Fraction(1, 10))
        assert threshold(*args, [False, True]) == 1089.0
        assert threshold(*args, [True, False]) == 89.0


# --- invariances ------------------------------------------------------------------------------


@st.composite
def problems(draw):
    """Scores are multiples of 6, so that sums c_b s_b of up to four groups are whole numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, G = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    membership = members(rng, draw(st.sampled_from(FAMILIES[:5])), n, G)
    scores = 6.0 * rng.integers(-4, 5, size=n)
    weights = rng.integers(1, 4, size=n) if draw(st.booleans()) else np.ones(n)
    alpha = draw(st.sampled_from([Fraction(1, 10), Fraction(1, 5), Fraction(1, 3), Fraction(1, 2)]))
    return rng, (scores, membership, weights, 1, alpha, membership[rng.integers(n)])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(problems(), st.lists(st.integers(-5, 5), min_size=4, max_size=4), st.integers(-40, 40))
def test_shift_and_scale(problem, beta, power):
    _, (scores, membership, *rest) = problem
    found = threshold(scores, membership, *rest)
    beta = 6.0 * np.array(beta[: membership.shape[1]])
    assert threshold(scores + membership @ beta, membership, *rest) == found + rest[-1] @ beta
    assert threshold(scores * 2.0**power, membership, *rest) == found * 2.0**power


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(1, 64))
def test_names_orders_and_units_do_not_matter(problem, unit):
    rng, (scores, membership, weights, test, alpha, row) = problem
    found = threshold(scores, membership, weights, test, alpha, row)
    n, G = membership.shape
    rows, columns = rng.permutation(n), rng.permutation(G)
    twice = rng.integers(G, size=2 * G)
    twice[:G] = columns
    for names in (columns, twice):
        mixed = membership[rows][:, names]
        assert threshold(scores[rows], mixed, weights[rows], test, alpha, row[names]) == found
    assert threshold(scores, membership, weights * unit, test * unit, alpha, row) == found
    # One record of weight w is two of weights that add up to w.
    part = rng.integers(1, 4, size=n) / 4
    assert (
        threshold(
            np.tile(scores, 2),
            np.tile(membership, (2, 1)),
            np.concatenate([weights * part, weights * (1 - part)]),
            test,
            alpha,
            row,
        )
        == found
    )
    # Atoms in any order.
    core = oracles.coreset(scores, membership, weights, test)
    order = rng.permutation(len(core.membership))
    pieces = [slice(core.start[a], core.start[a + 1]) for a in order]
    mixed = Coreset(
        core.membership[order],
        np.cumsum([0, *(p.stop - p.start for p in pieces)]),
        np.concatenate([core.values[p] for p in pieces]),
        np.concatenate([core.weights[p] for p in pieces]),
        core.test,
    )
    assert Solver(mixed, alpha).solve(row)[0].threshold == found


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(problems())
def test_monotone_in_alpha_for_one_group(problem):
    _, (scores, membership, weights, *_) = problem
    found = [
        threshold(scores, membership[:, :1] | True, weights, 1, Fraction(k, 20), [True])
        for k in range(1, 20)
    ]
    assert found == sorted(found, reverse=True)


# --- many at once -----------------------------------------------------------------------------


def medium(seed, kind="normal", n=2000, G=7):
    rng = np.random.default_rng(seed)
    membership = members(rng, "overlapping", n, G)
    scores = draw_scores(rng, kind, n)
    return Solver(oracles.coreset(scores, membership, np.ones(n), 1), Fraction(1, 10))


@pytest.mark.parametrize("kind", ["normal", "discrete"])
def test_a_batch_equals_one_by_one(kind):
    solver = medium(12, kind)
    rows = solver.coreset.membership
    batch = [s.threshold for s in solver.solve(rows)]
    assert batch == [solver.solve(row)[0].threshold for row in rows]
    assert batch[::-1] == [s.threshold for s in solver.solve(rows[::-1])]


def test_many_threads_share_a_solver():
    solver = medium(13)
    rows = solver.coreset.membership
    expected = [s.threshold for s in solver.solve(rows)]
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: [s.threshold for s in solver.solve(rows)], range(8)):
            assert found == expected


def test_no_rows():
    assert medium(14).solve(np.zeros((0, 7), dtype=bool)) == []


# --- too close for floats ---------------------------------------------------------------------


def close_scores(rng, kind, n):
    few = rng.integers(-3, 4, size=n)
    if kind == "cents":  # 0.1 + 0.2 is not 0.3
        return few * 0.1 + rng.integers(-2, 3, size=n) * 2.0**-54
    if kind == "tails":
        return np.where(rng.random(n) < 0.5, few * 1e12, few * 1e-12)
    if kind == "ulps":
        return few * 1e12 + rng.integers(-3, 4, size=n) * 2.0**-10
    return few * 10.0 ** rng.integers(-12, 13, size=n)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cents", "tails", "ulps", "sizes"])
def test_scores_that_differ_by_less_than_rounding(kind):
    """Each of these kinds had failures while ties were decided by floats."""
    rng = np.random.default_rng(15)
    for trial in range(300):
        family = ["overlapping", "crossed", "deficient"][trial % 3]
        scores, *rest = small_problem(rng, family, "discrete", clients=0)
        scores = close_scores(rng, kind, len(scores))
        expected = oracles.rounded_up(oracles.brute_force(scores, *rest))
        assert threshold(scores, *rest) == expected, (scores, *rest)


@pytest.mark.slow
def test_entangled_groups_have_exact_coefficients():
    """Random families of 40 groups: coefficients with huge denominators, still rounded up once."""
    rng = np.random.default_rng(16)
    membership = members(rng, "overlapping", 400, 40)
    scores = 2.0 ** rng.integers(-30, 30, size=400)
    core = oracles.coreset(scores, membership, np.ones(400), 1)
    solver = Solver(core, Fraction(1, 5))
    rows = membership[:5]
    for row, solution in zip(rows, solver.solve(rows), strict=True):
        optima = solver._optima(row[None, solver._columns] * 1.0, np.array([solver.t]))
        walk, bounded = optima.walk, optima.bounded
        if not bounded[0]:
            assert solution.threshold == math.inf
            continue
        basis = walk.basis[0]
        held = [core.values[core.start[a] + walk.at[0, a]] for a in basis]
        exact, pivots = oracles._reduce(
            np.column_stack([core.membership[basis].astype(int).T, row.astype(int)]).tolist()
        )
        assert pivots == list(range(len(basis)))
        total = sum(r[-1] * Fraction(s) for r, s in zip(exact, held, strict=False))
        assert solution.threshold == oracles.rounded_up(total)


# --- the first-order condition ----------------------------------------------------------------


@pytest.mark.few(4)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["normal", "discrete"])
def test_the_first_order_condition_holds(family, kind):
    """sum_A g_A Phi_A = t Phi_test with g_A a slope of f_A at theta_A, theta = Phi beta: a proof
    that theta minimises h, from the records alone."""
    rng = np.random.default_rng(17)
    for trial in range(20):
        n = int(rng.integers(30, 200))
        membership = members(rng, family, n, 4)
        scores, alpha = draw_scores(rng, kind, n), Fraction(1, 5)
        weights, test = client_weights(rng, n, 3) if trial % 2 else ([1] * n, 1)
        weights = floats(weights)
        core = oracles.coreset(scores, membership, weights, test)
        solver = Solver(core, alpha)
        row = membership[rng.integers(n)]
        solution, found = solver.solve(row)[0], solver.evidence(row)
        if found is None:
            assert solution.threshold == math.inf
            continue
        phi = core.membership.astype(float)
        beta = np.linalg.lstsq(phi, found.theta, rcond=None)[0]
        assert phi @ beta == pytest.approx(found.theta, abs=1e-9)
        assert row @ beta == pytest.approx(solution.threshold, abs=1e-9)
        gradient = found.gradient / alpha.denominator  # in the units of the weights
        assert gradient @ phi == pytest.approx(0.8 * float(test) * row, abs=1e-9 * weights.sum())
        for a, atom in enumerate(core.membership):
            own = (membership == atom).all(axis=1)
            s, w = scores[own], weights[own]
            low = w[s < found.theta[a] - 1e-9].sum() - 0.8 * w.sum()
            high = w[s <= found.theta[a] + 1e-9].sum() - 0.8 * w.sum()
            assert low - 1e-9 <= gradient[a] <= high + 1e-9


def test_no_evidence_for_what_nothing_holds():
    solver = Solver(oracles.coreset([1.0, 2.0], np.eye(2), np.ones(2), 1), Fraction(1, 10))
    assert solver.evidence(np.array([True, False])) is None


# --- discrete scores in bulk ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_discrete_scores_neither_cycle_nor_fail(family):
    """Nothing but ties: every solve must end, with its certificate, at what an LP says."""
    rng = np.random.default_rng(18)
    for trial in range(120):
        n, G = int(rng.integers(5, 300)), int(rng.integers(1, 9))
        membership = members(rng, family, n, G)
        scores = rng.integers(int(rng.integers(1, 6)), size=n) * [1.0, 0.1][trial % 2]
        solver = Solver(oracles.coreset(scores, membership, np.ones(n), 1), ALPHAS[trial % 6])
        rows = solver.coreset.membership
        found = solver.solve(rows)
        i = int(rng.integers(len(rows)))
        expected = oracles.dual_lp(scores, membership, np.ones(n), 1, solver.alpha, rows[i])
        assert found[i].threshold == pytest.approx(expected, rel=1e-8, abs=1e-8)


# --- the parts that seldom run ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["normal", "discrete", "rounded"])
def test_the_judge_agrees_wherever_floats_are_sure(kind, monkeypatch):
    core = medium(19, kind, n=600, G=5).coreset
    rows = core.membership
    expected = [s.threshold for s in Solver(core, Fraction(1, 5)).solve(rows)]
    monkeypatch.setattr(solver_module, "unsure", lambda _, walk: np.ones(len(walk.t), dtype=bool))
    assert [s.threshold for s in Solver(core, Fraction(1, 5)).solve(rows)] == expected


@pytest.mark.parametrize("kind", ["normal", "discrete", "rounded"])
def test_the_judge_finds_the_optimum_from_anywhere(kind, monkeypatch):
    """Even if the floats never took a step, so a failed certificate is mended, not reported."""
    core = medium(20, kind, n=200, G=4).coreset
    rows = core.membership
    expected = [s.threshold for s in Solver(core, Fraction(1, 5)).solve(rows)]
    lazy = Solver(core, Fraction(1, 5))
    monkeypatch.setattr(
        solver_module, "descend", lambda pieces, walk, rows: (walk, np.zeros(len(rows), int))
    )
    assert [s.threshold for s in lazy.solve(rows)] == expected


@pytest.mark.parametrize("kind", ["normal", "discrete", "rounded"])
def test_long_rays_are_walked_in_parts(kind, monkeypatch):
    core = dataclasses.replace(medium(21, kind, n=800, G=4).coreset, test=100.0)
    rows = core.membership
    expected = [s.threshold for s in Solver(core, Fraction(1, 5)).solve(rows)]
    monkeypatch.setattr(ray, "_LONGEST_RAY", 0)
    assert [s.threshold for s in Solver(core, Fraction(1, 5)).solve(rows)] == expected


@pytest.mark.parametrize("doubtful", [False, True])
def test_a_row_that_nothing_bounds_takes_no_walk_unless_that_is_in_doubt(doubtful, monkeypatch):
    """Three scores of weight 1 balance t up to 3 alpha; a little more is left to the walk."""
    core = Coreset(np.ones((1, 1), bool), np.array([0, 3]), np.arange(3.0), np.ones(3), 1.0)
    solver = Solver(core, Fraction(1, 100))
    t = np.array([3 * (1 + 2.0**-11) if doubtful else solver.t])
    (solution,) = solver.solve(np.ones((1, 1), bool), t)
    assert (solution.threshold, solution.bounded) == (math.inf, False)
    assert solution.pivots == (-1 if doubtful else 0)


@pytest.mark.parametrize("kind", ["normal", "discrete", "rounded"])
def test_thresholds_do_not_depend_on_where_a_walk_starts(kind, monkeypatch):
    core = dataclasses.replace(medium(22, kind, n=900, G=6).coreset, test=4.0)
    rows = core.membership
    expected = [Solver(core, Fraction(1, 5)).solve(row)[0].threshold for row in rows]
    monkeypatch.setattr(nearest, "_FIRST_ROUND", 1)
    monkeypatch.setattr(nearest, "_ROUNDS", 2)
    monkeypatch.setattr(nearest, "_NEARER", 1.0)
    assert [s.threshold for s in Solver(core, Fraction(1, 5)).solve(rows)] == expected
