"""Weights, mixtures and coresets are exact, do not depend on the order of clients, and are
conservative where records are suppressed."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from gcfcp import GCFCPError, GCFCPWarning, Groups, checks, merge, summarize
from gcfcp.calibration import (
    SUMMARIES,
    Admission,
    in_order,
    misfits,
    mixture,
    pool_of,
    problem_of,
)
from gcfcp.calibration.problem import carried, shares_of
from gcfcp.solver import combined

TWO = Groups(["all", "a"])


def client(name, n, seed=0, groups=TWO, **options):
    rng = np.random.default_rng([seed, n])
    membership = rng.random((n, len(groups))) < 0.5
    membership[:, 0] = True
    scores = options.pop("scores", rng.exponential(size=n))
    return summarize(scores, membership, groups=groups, client=name, **options)


# --- Weights --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    mixture=st.sampled_from(["uniform", "proportional"]),
    alpha=st.sampled_from([Fraction(1, 10), Fraction(1, 3), Fraction(1, 20)]),
)
def test_weights_are_whole_numbers_in_the_ratio_of_the_paper(sizes, mixture, alpha):
    summaries = in_order(client(f"k{i}", n) for i, n in enumerate(sizes))
    K, total = len(sizes), sum(sizes)
    pi = [Fraction(1, K) if mixture == "uniform" else Fraction(n, total) for n in sizes]
    assert shares_of(summaries, mixture) == pi
    problem = problem_of(summaries, alpha, mixture, correction="paper")
    weights, rates = problem.weights, [p / (n + 1) for p, n in zip(pi, sizes, strict=True)]
    unit = Fraction(weights.unit)
    assert [Fraction(r) for r in weights.rate] == [r * unit for r in rates]
    assert [Fraction(t) for t in problem.charged.most] == [sum(rates) * unit] * 2
    assert all(r.is_integer() for r in weights.rate)
    assert math.gcd(*map(int, weights.rate)) == 1


def test_weights_beyond_whole_numbers_are_right_to_rounding():
    sizes = [97, 89, 83, 79, 73, 71, 67, 61, 59, 53, 47, 43, 41, 37]
    summaries = in_order(client(f"k{i:02d}", n - 1) for i, n in enumerate(sizes))
    problem = problem_of(summaries, Fraction(1, 10), "uniform", correction="paper")
    weights, exact = problem.weights, [Fraction(1, len(sizes)) / n for n in sizes]
    assert weights.rate / weights.unit == pytest.approx([float(r) for r in exact], rel=1e-15)
    assert problem.charged.most / weights.unit == pytest.approx([float(sum(exact))] * 2, rel=1e-15)


REGION = Admission.of({"region": 2})  # The server knows that two sites are behind it.


def test_a_region_weighs_as_its_members_with_a_proportional_mixture():
    parts = [client("a", 10), client("b", 20, 1)]
    region, other = merge(parts, "region"), client("c", 30, 2)
    mixture = {"a": Fraction(1, 6), "b": Fraction(1, 3), "c": 0.5}
    for rule in ("simultaneous", "max"):
        apart = problem_of([*parts, other], Fraction(1, 10), mixture, rule=rule)
        together = problem_of(
            [region, other], 0.1, {"region": 0.5, "c": 0.5}, rule=rule, admission=REGION
        )
        a, b, c = apart.weights.rate / apart.weights.unit
        assert a == b == 0.5 / 30
        assert (together.weights.rate / together.weights.unit).tolist() == [c, a]
        assert (together.charged.most / together.weights.unit).tolist() == pytest.approx(
            (apart.charged.most / apart.weights.unit).tolist(), rel=1e-15
        )
    ordered = in_order([region, other], REGION)
    assert shares_of(ordered, "uniform", REGION) == [Fraction(1, 3), Fraction(2, 3)]
    assert shares_of(ordered, "proportional") == [Fraction(1, 2), Fraction(1, 2)]


def test_with_the_papers_weight_a_region_has_one_test_point_for_each_member():
    parts = [client("a", 10), client("b", 20, 1)]
    region, other = merge(parts, "region"), client("c", 30, 2)
    mixture = {"a": Fraction(11, 64), "b": Fraction(21, 64), "c": 0.5}
    apart = problem_of([*parts, other], 0.1, mixture, correction="paper")
    together = problem_of(
        [region, other], 0.1, {"region": 0.5, "c": 0.5}, correction="paper", admission=REGION
    )
    a, b, c = apart.weights.rate / apart.weights.unit
    assert a == b
    assert (together.weights.rate / together.weights.unit).tolist() == pytest.approx([c, a])
    assert (together.charged.most / together.weights.unit).tolist() == pytest.approx(
        (apart.charged.most / apart.weights.unit).tolist()
    )


# --- Mixtures -------------------------------------------------------------------------------------


def test_a_mixture_may_be_given_in_any_kind_of_number():
    summaries = in_order([client("a", 10), client("b", 20)])
    for half in (0.5, Fraction(1, 2), np.float32(0.5), np.float64(0.5)):
        assert shares_of(summaries, {"a": half, "b": 1 - half}) == [Fraction(1, 2)] * 2
    assert shares_of(summaries, {"a": 1 / 3, "b": 2 / 3}) == [Fraction(1, 3), Fraction(2, 3)]
    assert shares_of(summaries, {"a": 1, "b": 0}) == [1, 0]
    thirds = shares_of(summaries, {"a": 0.3333333333, "b": 0.6666666667})
    assert sum(thirds) == 1


@pytest.mark.parametrize(
    ("mixture", "words"),
    [
        ({"a": 0.5, "b": 0.6}, r"add up to 1\.1, not to 1"),
        ({"a": 0.5, "b": 0.499}, r"add up to 0\.999, not to 1"),
        ({"a": 0, "b": 0}, "add up to 0, not to 1"),
        ({"a": 1.0}, "missing 'b'"),
        ({"a": 0.5, "b": 0.3, "c": 0.2}, "unknown 'c'"),
        ({"a": 1.0, "c": 0.0}, "missing 'b'; unknown 'c'"),
        ({}, "missing 'a', 'b'"),
        ({"a": -0.5, "b": 1.5}, "-0.5 of 'a' is not a number of 0 or more"),
        ({"a": math.nan, "b": 1.0}, "nan of 'a'"),
        ({"a": math.inf, "b": 1.0}, "inf of 'a'"),
        ({"a": "0.5", "b": 0.5}, "0.5 of 'a' is not a number"),
        ({"a": None, "b": 1.0}, "None of 'a'"),
        ("equal", "neither 'uniform' nor 'proportional' nor a mapping"),
        ([0.5, 0.5], "neither 'uniform' nor"),
        (None, "neither 'uniform' nor"),
    ],
)
def test_a_mixture_that_is_none_is_an_error(mixture, words):
    summaries = in_order([client("a", 10), client("b", 20)])
    with pytest.raises(GCFCPError, match=words) as error:
        shares_of(summaries, mixture)
    assert "\n" not in str(error.value)


def test_many_missing_clients_are_not_all_listed():
    summaries = in_order(client(f"k{i:02d}", 5) for i in range(20))
    with pytest.raises(GCFCPError, match=r"missing 'k00', 'k01', 'k02', 'k03', 'k04'\.\.$"):
        shares_of(summaries, {})


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.2, math.nan, math.inf, "0.1", None, 1j, [0.1]])
def test_alpha_outside_its_range_is_an_error(alpha):
    with pytest.raises(GCFCPError, match=r"alpha=.* is not in \(0, 1\)"):
        checks.alpha(alpha)


def test_alpha_is_the_fraction_that_was_meant():
    for alpha in (0.1, Fraction(1, 10), np.float64(0.1)):
        assert checks.alpha(alpha) == Fraction(1, 10)
    assert checks.alpha(1 / 3) == Fraction(1, 3)


# --- Which summaries go together ------------------------------------------------------------------


def test_order_and_repeats_make_no_difference():
    a, b = client("a", 10), client("b", 20)
    again = type(a).from_bytes(a.to_bytes())
    assert in_order([b, a, again, a]) == (a, b)
    with pytest.raises(GCFCPError, match=r"'a' sent two different summaries \(n=10 and n=11\)"):
        in_order([a, b, client("a", 11)])
    with pytest.raises(GCFCPError, match="two different"):
        in_order([a, client("a", 10, model="m")])


def test_what_does_not_go_together_is_refused_with_both_sides():
    a = client("a", 10, score="mine", model="m1")
    for other, words in [
        ({"groups": Groups(["all", "b"])}, r"b was summarised for groups \w{8}\.\., a for \w{8}"),
        ({"score": "cqr"}, "b was summarised with score 'cqr', a with 'mine'"),
        ({"model": "m2"}, "b was summarised with model 'm2', a with 'm1'"),
        ({"model": None}, "b was summarised with model None, a with 'm1'"),
        ({"representative": "mean"}, "b was summarised with representative 'mean', a with 'upper'"),
    ]:
        with pytest.raises(GCFCPError, match=words):
            in_order([a, client("b", 10, **({"score": "mine", "model": "m1"} | other))])
    same = {"score": "mine", "model": "m1"}
    with pytest.raises(GCFCPError, match=r"parameters \{'lam': 0.1\}, a with \{\}"):
        in_order([a, replace(client("b", 10, **same), parameters={"lam": 0.1})])
    in_order([a, client("b", 10, delta=5, min_count=2, **same)])  # delta and min_count may differ.


@pytest.mark.parametrize("given", [[], iter(()), [1], ["a.gcfcp"], None, 7, "a.gcfcp"])
def test_no_summaries_are_an_error(given):
    with pytest.raises(GCFCPError, match=r"summaries|a summary was expected"):
        in_order(given)


def test_one_summary_is_no_list():
    with pytest.raises(GCFCPError, match="a list of summaries"):
        in_order(client("a", 10))


def test_records_never_count_twice():
    a, b = client("a", 10), client("b", 20)
    region = merge([a, b], "region")
    with pytest.raises(GCFCPError, match=r"'a' is in both 'a' and 'region'.*count twice"):
        in_order([region, a], REGION)
    with pytest.raises(GCFCPError, match="'b' is in both 'other' and 'region'"):
        in_order([region, merge([b, client("c", 5)], "other")], Admission.of(["region", "other"]))
    with pytest.raises(GCFCPError, match="two different"):
        in_order([merge([a, b], "a"), a], Admission.of(["a"]))


# --- The coreset ----------------------------------------------------------------------------------


def test_the_pool_holds_every_centroid_once_in_order():
    rng = np.random.default_rng(0)
    summaries = in_order(
        client(f"k{i}", 50, i, scores=rng.integers(0, 9, size=50) / 2, delta=9) for i in range(4)
    )
    pool = pool_of(summaries)
    rows = sorted(
        (s.membership[a].tolist(), v, k, c)
        for k, s in enumerate(summaries)
        for a in range(len(s.errors))
        for v, c in zip(
            s.values[s.start[a] : s.start[a + 1]].tolist(),
            s.counts[s.start[a] : s.start[a + 1]].tolist(),
            strict=True,
        )
    )
    found = zip(
        pool.membership[pool.atom].tolist(),
        pool.values.tolist(),
        pool.owner.tolist(),
        pool.counts.tolist(),
        strict=True,
    )
    assert [tuple(x) for x in found] == rows
    assert pool.by_atom(pool.cell_counts).tolist() == np.bincount(pool.atom, pool.counts).tolist()


def test_equal_values_are_added_up():
    atom, values, weights = combined(
        np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0, 4.0])
    )
    assert (atom.tolist(), values.tolist()) == ([0, 0, 1], [1.0, 2.0, 2.0])
    assert weights.tolist() == [3.0, 3.0, 4.0]


def test_a_client_without_weight_changes_nothing():
    a, b = client("a", 40), client("b", 40, 1)
    problem = problem_of([a, b], 0.1, {"a": 1, "b": 0}, "pool", None)
    alone = problem_of([a], 0.1, "uniform", "pool", None)
    for field in ("membership", "start", "values", "weights", "test"):
        assert np.array_equal(getattr(problem.coreset, field), getattr(alone.coreset, field))


def test_if_nobody_with_weight_describes_anything_it_is_an_error():
    silent = summarize([1.0], [[1, 0]], groups=TWO, client="b", min_count=5)
    for how in ("pool", "recompress"):
        with pytest.raises(GCFCPError, match="every client that describes an atom has weight 0"):
            problem_of([client("a", 10), silent], 0.1, {"a": 0, "b": 1}, how, None)
        with pytest.raises(GCFCPError, match="no client describes a single atom"):
            problem_of([silent], 0.1, "uniform", how, None)


def test_unknown_ways_to_merge_are_an_error():
    a = [client("a", 10)]
    with pytest.raises(GCFCPError, match="merge='append' is neither"):
        problem_of(a, 0.1, "uniform", "append", None)
    with pytest.raises(GCFCPError, match="delta=5 belongs to a recompression"):
        problem_of(a, 0.1, "uniform", "pool", 5)
    with pytest.raises(GCFCPError, match="delta=1"):
        problem_of(a, 0.1, "uniform", "recompress", 1)


@pytest.mark.parametrize("how", ["pool", "recompress"])
def test_mass_is_conserved(how):
    summaries = [client(f"k{i}", 100 + i, i, delta=10) for i in range(3)]
    problem = problem_of(summaries, 0.1, "uniform", how, None)
    expected = sum(Fraction(s.n, 3 * s.n) for s in summaries)
    total = problem.coreset.weights.sum() / problem.weights.unit
    assert total == pytest.approx(float(expected), rel=1e-12)
    starts = problem.coreset.start
    for a, b in itertools.pairwise(starts):
        assert (np.diff(problem.coreset.values[a:b]) > 0).all()


# --- Groups on their own --------------------------------------------------------------------------


def test_a_group_is_finite_from_the_rank_on():
    rng = np.random.default_rng(0)
    membership = rng.random((60, 3)) < [1.0, 0.5, 0.1]
    scores = np.where(rng.random(60) < 0.03, np.inf, rng.random(60))
    told = [summarize(scores, membership, groups=Groups(["a", "b", "c"]), client="k")]
    for g in range(3):
        n = int(membership[:, g].sum())
        infinite = int(np.isinf(scores[membership[:, g]]).sum())
        least = Fraction(infinite + 1, n + 1)
        if least < 1:
            problem = problem_of(told, least, "uniform")
            assert problem.tally.described[0, g] == n
            assert problem.tally.infinite[0, g] == infinite
            assert problem.finite_alone[g]
            assert not problem_of(told, least - Fraction(1, 10**9), "uniform").finite_alone[g]


# --- Suppressed records ---------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=9),
    needed=st.lists(st.integers(0, 20), min_size=4, max_size=4),
)
def test_every_group_carries_what_it_needs(rows, needed):
    membership = np.unique(np.array(rows), axis=0)
    extra = carried(membership, np.array(needed, dtype=float))
    has_atoms = membership.any(axis=0)
    assert (extra >= 0).all()
    assert (extra @ membership >= np.where(has_atoms, needed, 0)).all()
    least = linprog(
        np.ones(len(membership)),
        A_ub=-membership.T.astype(float),
        b_ub=-np.where(has_atoms, needed, 0),
    ).fun
    # With four groups the greedy choice takes at most twice the least weight, and mostly the least.
    assert extra.sum() <= 2 * least + 1e-9


def hiding(m=5, seed=0, n=200, share=0.05):
    """A client with small atoms: its groups are all, a, b, and c, which is rare."""
    rng = np.random.default_rng(seed)
    membership = rng.random((n, 4)) < [1.0, 0.4, 0.3, share]
    membership[:, 0] = True
    groups = Groups(["all", "a", "b", "c"])
    return summarize(rng.random(n), membership, groups=groups, client=f"k{seed}", min_count=m)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("how", ["pool", "recompress"])
def test_suppressed_weight_is_at_infinity_in_every_group_that_can_be_finite(alpha, how):
    summaries = [hiding(seed=i) for i in range(3)]
    assert all(s.suppressed for s in summaries)
    problem = problem_of(summaries, alpha, "uniform", how, None)
    needed = problem.weights.rate @ problem.tally.suppressed
    coreset = problem.coreset
    at_infinity = np.array(
        [
            coreset.weights[a:b][np.isinf(coreset.values[a:b])].sum()
            for a, b in itertools.pairwise(coreset.start)
        ]
    )
    assert np.array_equal(at_infinity > 0, problem.carriers)
    clean = coreset.membership[~(coreset.membership & problem.hopeless).any(axis=1)]
    free = clean.any(axis=0)
    assert (at_infinity @ coreset.membership >= needed * (1 - 1e-12))[free].all()
    assert free.any()
    # No atom of a hopeless group is a carrier.
    assert not (coreset.membership[problem.carriers] & problem.hopeless).any()
    assert np.array_equal(problem.hopeless, ~problem.finite_alone & (needed > 0))


def test_without_suppressed_records_nothing_is_carried():
    problem = problem_of([hiding(m=1)], 0.1, "uniform", "pool", None)
    assert problem.carriers is None
    assert problem.hopeless is None


def test_an_uncovered_record_weighs_on_the_client_only():
    scores, rows = [1.0, 2.0, 3.0], [[1, 0], [1, 1], [0, 0]]
    with pytest.warns(GCFCPWarning):
        s = summarize(scores, rows, groups=TWO, client="k")
    problem = problem_of([s], 0.1, "uniform", "pool", None)
    assert (problem.charged.most / problem.weights.unit).tolist() == [0.25, 0.25]
    assert problem.tally.described.tolist() == [[2, 1]]


def test_equal_values_stay_in_the_order_of_their_clients():
    """Their weights are added up in this order, so that the sum is the same on every machine."""
    rng = np.random.default_rng(5)
    scores = rng.integers(0, 40, (12, 400)).astype(float)
    scores[0, :30] = -np.arange(1, 31)  # The lowest values of every atom have no equals.
    told = [client(f"k{i:02d}", 400, seed=i, scores=s, delta=5000) for i, s in enumerate(scores)]
    pool = pool_of(in_order(told))
    same = (pool.atom[1:] == pool.atom[:-1]) & (pool.values[1:] == pool.values[:-1])
    assert same.sum() > 300
    assert (pool.owner[1:][same] > pool.owner[:-1][same]).all()
    assert ((pool.atom[1:] > pool.atom[:-1]) | (pool.values[1:] >= pool.values[:-1])).all()


def test_a_single_summary_is_merged_as_it_is():
    """It may hold more centroids than its delta would make of them."""
    fine = client("a", 400, delta=1000)
    coarse = replace(fine, delta=4.0)
    assert merge([coarse], "region").values.tolist() == fine.values.tolist()
    assert len(merge([coarse], "region", 4.0).values) < len(fine.values)


@pytest.mark.parametrize("names", [("a.gcfcp", "b.gcfcp"), ("b.gcfcp", "a.gcfcp")])
def test_a_misfit_names_both_files_whatever_their_order(names):
    pair = [client("k", 30, seed=1), client("k", 30, seed=2)]
    (line,) = misfits(pair, names, SUMMARIES)
    assert line.startswith(f"{names[0]} and {names[1]}: client 'k' sent two different summaries")
    (line,) = misfits(pair, ("k", "k"), SUMMARIES)
    assert line.startswith("client 'k' sent two different summaries")


# --- the text of a mixture ------------------------------------------------------------------------


def read_nothing(name):
    raise AssertionError(f"{name} was read")


def test_a_mixture_is_read_in_every_form():
    for word in ("uniform", "proportional"):
        assert mixture.parse(word, read_nothing) == word
    assert mixture.parse("a=0.25, b = 0.75", read_nothing) == {"a": 0.25, "b": 0.75}
    assert mixture.parse("a=b=1", read_nothing) == {"a=b": 1.0}
    assert mixture.parse(' {"a": 0.5, "b": 0.5}', read_nothing) == {"a": 0.5, "b": 0.5}
    assert mixture.parse("w.json", lambda name: b'{"%s": 1}' % name.encode()) == {"w.json": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("half", "neither uniform, proportional, nor weights"),
        ("a=x", "neither uniform, proportional, nor weights"),
        ("", "neither uniform, proportional, nor weights"),
        ("a=0.5,a=0.5", "names 'a' twice"),
        ("{'a': 0.5}", 'not JSON such as {"a": 0.5}'),
        ('{"a": ' * 100_000, "not JSON"),
    ],
)
def test_a_mixture_that_cannot_be_read_is_refused(text, words):
    with pytest.raises(GCFCPError) as refused:
        mixture.parse(text, read_nothing)
    assert words in str(refused.value)
    with pytest.raises(GCFCPError, match="not a JSON object of weights"):
        mixture.parse("w.json", lambda _: b"[1, 2]")


def test_weights_that_cannot_be_whole_are_scaled_to_1():
    """Weights of very different size would fall below the tolerances of the solver."""
    told = in_order([client(f"k{i}", n) for i, n in enumerate((101, 103, 107, 109, 113, 127, 131))])
    shares = dict(zip([s.client for s in told], [1 / 7] * 7, strict=True))
    problem = problem_of(told, 0.123456789, shares, correction="paper")
    assert problem.weights.rate.max() == 1.0
    assert problem.charged.most == pytest.approx([problem.weights.rate.sum()] * 2)
