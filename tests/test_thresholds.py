"""The threshold table: its rules, its lookups, unseen atoms, and suppressed records."""

import itertools
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from gcfcp import GCFCPError, GCFCPWarning, Groups, ThresholdTable, calibrate, summarize
from gcfcp.thresholds import ByGroup, Constant, SeenOnly, Simultaneous

ABC = Groups(["a", "b", "c"])
ROWS = np.array(list(itertools.product([False, True], repeat=3))[1:])


def quietly(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        return calibrate(*args, **kwargs)


def by_group(rule, thresholds=(1.0, 3.0, 2.0)):
    return ThresholdTable.by_rule(
        ABC, Fraction(1, 10), ROWS[:0], ByGroup(rule, np.array(thresholds))
    )


# --- Rules ----------------------------------------------------------------------------------------


def test_rules_by_group():
    rows = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
    assert by_group("max").thresholds(rows).tolist() == [1.0, 3.0, 2.0, 3.0]
    assert by_group("first").thresholds(rows).tolist() == [1.0, 3.0, 1.0, 1.0]
    infinite = by_group("max", (1.0, math.inf, 2.0))
    assert infinite.thresholds(rows).tolist() == [1.0, math.inf, 2.0, math.inf]
    negative = by_group("max", (-1.0, -3.0, -math.inf))
    assert negative.thresholds(rows).tolist() == [-1.0, -3.0, -1.0, -1.0]
    for rule in ("max", "first"):
        with pytest.warns(GCFCPWarning, match="2 rows belong to no group"):
            assert by_group(rule).thresholds(np.zeros((2, 3))).tolist() == [math.inf] * 2


def test_a_constant_is_the_same_for_every_row():
    table = ThresholdTable.by_rule(ABC, Fraction(1, 10), ROWS[:1], Constant(0.5))
    assert table.thresholds([[0, 0, 0], [1, 1, 1]]).tolist() == [0.5, 0.5]
    assert table.thresholds(np.ones((2, 4, 3))).shape == (2, 4)


def test_an_unknown_rule_is_an_error():
    with pytest.raises(GCFCPError, match="rule='last' is neither 'max' nor 'first'"):
        ByGroup("last", np.zeros(3))


def test_thresholds_belong_to_one_alpha(calibration):
    """A table whose alpha is changed would still hold the thresholds of the old alpha."""
    table = calibration.threshold_table
    with pytest.raises(GCFCPError, match=r"alpha=1/5 is not the alpha=1/10 .*retarget"):
        replace(table, alpha=Fraction(1, 5))
    unseen = ROWS[[1, 4, 5]]
    table.thresholds(unseen)  # The rule now keeps these thresholds.
    other = replace(table.source, alpha=Fraction(1, 5))
    expected = calibration.retarget(alpha=Fraction(1, 5)).thresholds(unseen)
    assert other.thresholds(unseen).tolist() == expected.tolist()
    assert table.thresholds(unseen).tolist() != expected.tolist()


# --- Lookups --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calibration():
    rng = np.random.default_rng(0)
    rows = ROWS[[0, 2, 3, 6]][rng.integers(4, size=400)]
    told = [
        summarize(rng.random(200), rows[i : i + 200], groups=ABC, client=f"k{i}") for i in (0, 200)
    ]
    return calibrate(told, 0.1)


def test_a_row_is_looked_up_whatever_its_type(calibration):
    table = calibration.threshold_table
    expected = {
        r.tobytes(): t for r, t in zip(table.membership, table.thresholds_by_atom, strict=True)
    }
    rng = np.random.default_rng(1)
    rows = table.membership[rng.integers(len(table.membership), size=1000)]
    found = table.thresholds(rows)
    assert found.tolist() == [expected[row.tobytes()] for row in rows]
    assert np.array_equal(table.thresholds(rows.astype(int).tolist()), found)
    assert np.array_equal(table.thresholds(np.asfortranarray(rows)), found)
    assert table.thresholds(rows[:0]).shape == (0,)
    assert table.thresholds(rows[None, :0]).shape == (1, 0)


def test_a_membership_of_another_shape_is_an_error(calibration):
    for wrong in ([1, 0, 0], [[1, 0]], [[1, 0, 2]], np.ones((1, 1, 1, 3)), 5):
        with pytest.raises(GCFCPError, match="membership"):
            calibration.thresholds(wrong)


def test_unseen_atoms_are_solved_once_and_kept(calibration, monkeypatch):
    table = calibration.threshold_table
    unseen = ROWS[[1, 4, 5]]
    first = table.thresholds(unseen)
    solver, weights = table.source.solver, table.source.test_weights(unseen)
    solved = solver.solve(unseen, solver.t_of(weights))
    assert np.array_equal(first, [s.threshold for s in solved])

    def never(*_):
        raise AssertionError("solved again")

    monkeypatch.setattr(Simultaneous, "solve", never)
    assert np.array_equal(table.thresholds(np.repeat(unseen, 5, axis=0)), np.repeat(first, 5))


def test_a_row_that_no_record_speaks_of_is_infinite():
    s = summarize(np.arange(50.0), np.tile([1, 0, 0], (50, 1)), groups=ABC, client="k")
    found = calibrate([s], 0.1).thresholds([[1, 0, 0], [0, 1, 0], [1, 1, 0]])
    assert found.tolist() == [45.0, math.inf, math.inf]


def test_without_a_coreset_only_seen_atoms_have_a_threshold(calibration):
    table = calibration.threshold_table
    bare = replace(table, source=SeenOnly())
    assert bare.rule == table.rule == "simultaneous"
    assert np.array_equal(bare.thresholds(table.membership), table.thresholds_by_atom)
    remedies = "not seen in calibration needs the coreset.*--with-coreset.*--rule max"
    with pytest.raises(GCFCPError, match=remedies):
        bare.thresholds(ROWS)
    with pytest.raises(GCFCPError, match="coreset"):
        bare.thresholds(table.membership, threshold_rng=np.random.default_rng(0))


def test_many_threads_find_the_same():
    rng = np.random.default_rng(2)
    groups = Groups([f"g{i}" for i in range(8)])
    membership = rng.random((3000, 8)) < 0.4
    membership[:, 0] = True
    s = summarize(rng.random(3000), membership, groups=groups, client="k")
    rows = rng.random((400, 8)) < 0.6
    rows[:, 0] = True
    expected = calibrate([s], 0.2).thresholds(rows)
    shared = calibrate([s], 0.2)
    with ThreadPoolExecutor(8) as pool:
        parts = [rng.permutation(400) for _ in range(16)]
        for part, found in zip(
            parts, pool.map(lambda p: shared.thresholds(rows[p]), parts), strict=True
        ):
            assert np.array_equal(found, expected[part])


# --- Suppressed records ---------------------------------------------------------------------------


def test_rows_of_a_hopeless_group_are_infinite_and_others_are_not():
    """Of group c 12 records are described and up to 4 are suppressed. With 4 scores of +inf it
    would need 45 others at alpha = 0.1."""
    rows = np.array([[1, 0, 0]] * 100 + [[1, 0, 1]] * 12 + [[1, 1, 1]] * 4)
    scores = np.random.default_rng(0).random(len(rows))
    s = summarize(scores, rows, groups=ABC, client="k", min_count=5)
    calibration = quietly([s], 0.1)
    assert calibration.threshold_table.source.hopeless.tolist() == [False, True, True]
    found = calibration.thresholds(ROWS)
    assert np.isinf(found[ROWS[:, 1] | ROWS[:, 2]]).all()
    assert np.isfinite(found[(ROWS == [True, False, False]).all(axis=1)]).all()
    assert np.isinf(calibration.thresholds(ROWS[[0]], threshold_rng=np.random.default_rng(0))).all()


# A linear program checks the requirement that `calibration.problem` states. Suppressed records are
# placed into atoms in every way that the summaries allow, and none of them counts as covered. For a
# row with a finite threshold, and for each of its groups, the described records that the solution
# covers must then weigh at least 1 - alpha of all records and the test point.


def hiding(seed, sizes=(40, 30)):
    """Clients whose rare atoms are suppressed. Scores are larger in atoms of more groups."""
    rng = np.random.default_rng(seed)
    told = []
    for k, n in enumerate(sizes):
        rows = ROWS[rng.choice(7, size=n, p=rng.dirichlet([6, 6, 0.4, 6, 0.4, 0.4, 2]))]
        scores = rng.random(n) + rows.sum(axis=1)
        told.append(summarize(scores, rows, groups=ABC, client=f"k{k}", min_count=3, delta=1e6))
    return told


def placements(summary):
    """Every way to place the suppressed records into the 7 atoms, as counts (7,), that the
    summary's bounds allow."""
    bound = np.array(summary.suppressed_groups)
    for cut in itertools.combinations(range(summary.suppressed + 6), 6):
        counts = np.diff([-1, *cut, summary.suppressed + 6]) - 1
        if (counts @ ROWS <= bound).all():
            yield counts


FAR = 1e3  # This stands for +inf in the linear program; all scores are below 5.


def thetas(coreset, alpha, row):
    """theta of every atom in a solution of the augmented problem for `row`; None without one."""
    unit = 1e4 / (coreset.weights.sum() + coreset.test)
    atom = np.repeat(np.arange(len(coreset.membership)), np.diff(coreset.start))
    weights, values = (
        coreset.weights * unit,
        np.where(np.isinf(coreset.values), FAR, coreset.values),
    )
    solved = linprog(
        -values,
        A_eq=coreset.membership[atom].T.astype(float),
        b_eq=-((1 - alpha) * coreset.test * unit - 1e-6) * row,
        bounds=np.column_stack([-alpha * weights, (1 - alpha) * weights]),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return None if solved.status == 2 else coreset.membership @ -solved.eqlin.marginals


def shortfall(told, coreset, alpha, row, theta):
    """(1 - alpha)(W_G + hidden + w_test) less what is covered, in the worst placement and group."""
    rates = [0.5 / (s.n + 1) for s in told]
    covered = np.zeros(3)
    for a, members in enumerate(coreset.membership):
        own = slice(coreset.start[a], coreset.start[a + 1])
        known = np.isfinite(coreset.values[own]) & (coreset.values[own] <= theta[a] + 1e-7)
        covered += coreset.weights[own][known].sum() * members
    covered *= sum(rates) / coreset.test  # Now a weight of 1 is the whole mixture.
    described = sum(r * (s.atom_counts @ s.membership) for r, s in zip(rates, told, strict=True))
    worst = -np.inf
    for way in itertools.product(*[list(placements(s)) for s in told]):
        hidden = sum(r * (counts @ ROWS) for r, counts in zip(rates, way, strict=True))
        missing = (1 - alpha) * (described + hidden + sum(rates)) - covered
        worst = max(worst, missing[row].max())
    return worst


def without_carried(coreset):
    """The coreset as if the suppressed records had been dropped."""
    finite = np.isfinite(coreset.values)
    start = np.append(0, np.cumsum(finite))[coreset.start]
    return replace(
        coreset, start=start, values=coreset.values[finite], weights=coreset.weights[finite]
    )


@pytest.mark.slow
def test_what_is_covered_is_enough_wherever_suppressed_records_lie():
    finite = careless = 0
    for seed in range(8):
        told, alpha = hiding(seed), [0.15, 0.3][seed % 2]
        table = quietly(told, alpha, "uniform", correction="paper").threshold_table
        if table.source.carriers is None:
            continue
        for row, threshold in zip(ROWS, table.thresholds(ROWS), strict=True):
            if threshold == np.inf:
                continue
            theta = thetas(table.coreset, alpha, row)
            assert theta is not None
            finite += 1
            assert shortfall(told, table.coreset, alpha, row, theta) <= 1e-6, (seed, row)
            bare = without_carried(table.coreset)
            theta = thetas(bare, alpha, row)
            careless += shortfall(told, bare, alpha, row, theta) > 1e-6
    assert finite > 15
    assert careless > 10  # Without the weight at +inf most of these rows would fail.


# Exact enumeration. A client has n records of six types: three atoms ({a}, {b} and {a, b}) with two
# scores each. A data set is a multiset of types. With the thresholds of all data sets, the exact
# coverage can be computed for any distribution of the records.

AB = Groups(["a", "b"])
ATOMS = np.array([[0, 1], [1, 0], [1, 1]], dtype=bool)
TYPES = list(itertools.product(range(3), range(2)))  # Each type is (atom, score).


class Bounded:
    """A score that is never above 1, so that rounding up stops there."""

    name, upper = "bounded", 1.0


def multisets(n):
    found = list(itertools.combinations_with_replacement(range(len(TYPES)), n))
    return found, np.array([np.bincount(d, minlength=len(TYPES)) for d in found])


def covered_types(datasets, alpha, mixture="uniform", min_count=2):
    """Which types of records the thresholds of these clients' data cover, bool (types,)."""
    told = [
        summarize(
            [TYPES[t][1] for t in data],
            ATOMS[[TYPES[t][0] for t in data]],
            groups=AB,
            client=f"k{k}",
            delta=1e6,
            min_count=min_count,
            score=Bounded(),
        )
        for k, data in enumerate(datasets)
    ]
    if not any(len(s.errors) for s in told):
        # Nothing is described. That is an error, and there are no sets that could miss anything.
        return np.ones(len(TYPES), dtype=bool)
    thresholds = quietly(told, alpha, mixture).thresholds(ATOMS)
    return np.array([score <= thresholds[atom] for atom, score in TYPES])


def probabilities(counts, p):
    """The multinomial probability of each data set, given as counts (d, types)."""
    ways = math.lgamma(counts[0].sum() + 1)
    ways -= np.array([[math.lgamma(c + 1) for c in row] for row in counts]).sum(axis=1)
    return np.exp(ways + counts @ np.log(p))


def coverage(hit, p):
    """P(covered | a) and P(covered | b) of a record with the distribution p."""
    inside = np.array([ATOMS[atom] for atom, _ in TYPES])
    return (hit * p) @ inside / (p @ inside)


def distributions(seed, count):
    """Distributions of several kinds: even ones, skewed ones, and some with very rare atoms."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        p = rng.dirichlet(np.full(len(TYPES), [0.2, 0.5, 1.0, 4.0][i % 4]))
        yield p * 0.999 + 0.001 / len(TYPES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "alpha"),
    [(5, Fraction(1, 2)), pytest.param(8, Fraction(1, 3), marks=pytest.mark.slow)],
)
def test_one_client_is_covered_exactly_as_promised(n, alpha):
    datasets, counts = multisets(n)
    covered = np.array([covered_types([d], alpha) for d in datasets])
    for p in distributions(n, 300):
        chance = probabilities(counts, p)
        assert chance.sum() == pytest.approx(1)
        exact = coverage(chance @ covered, p)
        assert exact.min() >= 1 - alpha - 1e-9, f"exact coverage {exact} at p = {p}"


@pytest.mark.slow
@pytest.mark.parametrize("mixture", [(0.5, 0.5), (0.8, 0.2)])
def test_two_clients_are_covered_exactly_as_promised(mixture):
    """Two clients of 2 and 3 records have different distributions, and their mixture is covered."""
    alpha = Fraction(1, 2)
    (first, first_counts), (second, second_counts) = multisets(2), multisets(3)
    weights = dict(zip(("k0", "k1"), mixture, strict=True))
    covered = np.array([[covered_types([x, y], alpha, weights) for y in second] for x in first])
    for p, q in zip(distributions(1, 200), distributions(2, 200), strict=True):
        hit = probabilities(first_counts, p) @ np.tensordot(
            probabilities(second_counts, q), covered, axes=(0, 1)
        )
        exact = coverage(hit, mixture[0] * p + mixture[1] * q)
        assert exact.min() >= 1 - alpha - 1e-9, f"exact coverage {exact} at p = {p}, q = {q}"
