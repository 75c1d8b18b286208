"""Calibration: thresholds are compared with oracles on the raw records, laws hold to the last bit,
and guarantees have the values and the grounds that they should have."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
import oracles
from gcfcp import (
    Calibration,
    ClientSummary,
    GCFCPError,
    GCFCPWarning,
    Groups,
    calibrate,
    merge,
    summarize,
)
from gcfcp.calibration import MEASURED, PAPER, PROVED
from gcfcp.calibration.correction import ONE_CLIENT, THEOREM_1, THEOREM_2

FINE = 1e6  # At this delta nothing is compressed.


def quietly(*args, **kwargs):
    """`calibrate` without its warning of infinite thresholds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        return calibrate(*args, **kwargs)


def federation(seed, sizes, G=3, kind="normal", family="overlapping"):
    """The raw records of every client: a list of (scores, membership)."""
    rng = np.random.default_rng(seed)
    clients = []
    for k, n in enumerate(sizes):
        if family == "disjoint":
            membership = np.eye(G, dtype=bool)[rng.integers(G, size=n)]
        elif family == "nested":
            membership = rng.random(n)[:, None] < (np.arange(G) + 1) / G
            membership[:, -1] = True
        else:
            membership = rng.random((n, G)) < rng.uniform(0.2, 0.8, size=G)
            membership[~membership.any(axis=1), 0] = True
        scores = {
            "normal": lambda n=n, k=k: rng.normal(k, 1 + k, size=n),
            "discrete": lambda n=n: rng.integers(0, 5, size=n) * 1.0,
            "positive": lambda n=n, k=k: rng.exponential(1 + k, size=n),
        }[kind]()
        clients.append((scores, membership))
    return clients


def summaries_of(clients, groups=None, **options):
    G = clients[0][1].shape[1]
    groups = groups or Groups([f"g{i}" for i in range(G)])
    options = {"delta": FINE} | options
    return [
        summarize(s, m, groups=groups, client=f"k{i}", **options)
        for i, (s, m) in enumerate(clients)
    ]


def raw_problem(clients, pi):
    """The scores, memberships and exact weights of all records with weight, and w_test."""
    rates = [p / (len(s) + 1) for p, (s, _) in zip(pi, clients, strict=True)]
    scores = np.concatenate([s for s, _ in clients])
    membership = np.concatenate([m for _, m in clients])
    weights = [r for r, (s, _) in zip(rates, clients, strict=True) for _ in s]
    heavy = [i for i, w in enumerate(weights) if w]
    return scores[heavy], membership[heavy], [weights[i] for i in heavy], sum(rates)


def uniform(clients):
    return [Fraction(1, len(clients))] * len(clients)


def rows_of(G):
    return np.array(list(itertools.product([False, True], repeat=G))[1:])


# --- Against oracles on the raw records -----------------------------------------------------------


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["pool", "recompress"])
def test_without_compression_thresholds_are_those_of_the_raw_records(seed, how):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 9, size=rng.integers(1, 4)).tolist()
    kind = ["normal", "discrete", "positive"][seed % 3]
    G = int(rng.integers(1, 4))
    clients = federation(seed, sizes, G, kind)
    alpha = [Fraction(1, 5), Fraction(1, 3), Fraction(1, 2)][seed % 3]
    problem = raw_problem(clients, uniform(clients))
    calibration = quietly(summaries_of(clients), alpha, "uniform", how, correction="paper")
    rows = rows_of(G)
    found = calibration.thresholds(rows)
    for row, threshold in zip(rows, found, strict=True):
        exact = oracles.brute_force(*problem, alpha, row)
        # With both ways to merge: a recompression at this delta does not change the whole weights.
        assert threshold == oracles.rounded_up(exact), row


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mixture", ["uniform", "proportional", "skewed"])
def test_larger_federations_agree_with_the_dual(seed, mixture):
    clients = federation(seed, [40, 25, 60], kind="normal")
    n = [len(s) for s, _ in clients]
    pi = {
        "uniform": [Fraction(1, 3)] * 3,
        "proportional": [Fraction(k, sum(n)) for k in n],
        "skewed": [Fraction(7, 10), Fraction(1, 5), Fraction(1, 10)],
    }[mixture]
    given = mixture if mixture != "skewed" else {"k0": 0.7, "k1": 0.2, "k2": 0.1}
    scores, membership, weights, test = raw_problem(clients, pi)
    weights = np.array([float(w) for w in weights])
    calibration = quietly(summaries_of(clients), 0.1, given, correction="paper")
    rows = rows_of(3)
    for row, threshold in zip(rows, calibration.thresholds(rows), strict=True):
        expected = oracles.dual_lp(scores, membership, weights, float(test), 0.1, row)
        assert threshold == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert calibration.test_weight == pytest.approx(float(test), rel=1e-12)
    assert list(calibration.shares.values()) == pytest.approx([float(p) for p in pi])


@pytest.mark.few(2)
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.2, 1 / 3, 0.5])
def test_one_client_one_group_is_the_rank(alpha):
    exact, one = Fraction(alpha).limit_denominator(100), Groups(["all"])
    rng = np.random.default_rng(0)
    for n in [*range(1, 30), 98, 99, 100, 199, 200]:
        scores = rng.permutation(rng.random(n))
        s = summarize(scores, np.ones((n, 1)), groups=one, client="k", delta=FINE)
        rank = math.ceil((n + 1) * (1 - exact))
        expected = np.sort(scores)[rank - 1] if rank <= n else math.inf
        for how, rule in [
            ("pool", "simultaneous"),
            ("recompress", "simultaneous"),
            ("pool", "max"),
        ]:
            assert quietly([s], alpha, merge=how, rule=rule).table[0].threshold == expected


def test_the_papers_own_variant_is_the_problem_over_its_digests():
    from gcfcp import TDigest

    clients = federation(3, [120, 80])
    told = summaries_of(clients, delta=10, representative="mean")
    calibration = calibrate(told, 0.2, "uniform", "recompress", correction="paper")
    weights = [0.5 / 121, 0.5 / 81]
    entries = []
    for row in np.unique(np.concatenate([m for _, m in clients]), axis=0):
        means, mass = [], []
        for (s, m), w in zip(clients, weights, strict=True):
            own = s[(m == row).all(axis=1)]
            if len(own):
                digest = TDigest.from_values(own, 10)
                means.append(digest.means)
                mass.append(digest.weights * w)
        merged = TDigest.from_values(np.concatenate(means), 10, weights=np.concatenate(mass))
        entries += [(v, row, w) for v, w in zip(merged.means, merged.weights, strict=True)]
    scores, membership, mass = map(np.array, zip(*entries, strict=True))
    for record, row in zip(calibration.table, calibration.threshold_table.membership, strict=True):
        expected = oracles.dual_lp(scores, membership, mass, sum(weights), 0.2, row)
        assert record.threshold == pytest.approx(expected, rel=1e-8)
    coarser = calibrate(told, 0.2, merge="recompress", delta=3)
    assert len(coarser.threshold_table.coreset.values) < len(
        calibration.threshold_table.coreset.values
    )


def test_a_client_without_weight_changes_nothing_but_the_list_of_atoms():
    (s, m), other = federation(0, [60, 40], G=2)
    m[:] = [True, False]
    told = summaries_of([(s, m), other])
    alone, both = calibrate(told[:1], 0.2), quietly(told, 0.2, {"k0": 1.0, "k1": 0})
    rows = rows_of(2)
    assert np.array_equal(alone.thresholds(rows), both.thresholds(rows))
    assert len(both.table) > len(alone.table)
    assert [r.weight for r in both.table if r.groups != ("g0",)] == [0.0] * (len(both.table) - 1)
    reason = next(r.reason for r in both.table if "g1" in r.groups)
    assert "group 'g1' has" in reason


def test_label_dependent_groups_are_one_more_lookup():
    rng = np.random.default_rng(0)
    calibration = calibrate(summaries_of(federation(1, [200, 100])), 0.1)
    membership = rng.random((50, 4, 3)) < 0.5
    membership[..., 0] = True
    found = calibration.thresholds(membership)
    assert found.shape == (50, 4)
    for y in range(4):
        assert np.array_equal(found[:, y], calibration.thresholds(membership[:, y]))


# --- Laws, to the last bit ------------------------------------------------------------------------


def same(a: Calibration, b: Calibration):
    assert a.table == b.table
    assert a.guarantee == b.guarantee
    assert (a.shares, a.test_weight, a.alpha, a.mixture) == (
        b.shares,
        b.test_weight,
        b.alpha,
        b.mixture,
    )
    assert (a.merge, a.rule, a.delta, a.eta) == (b.merge, b.rule, b.delta, b.eta)
    assert a.correction == b.correction
    for field in ("membership", "start", "values", "weights", "test"):
        left, right = (getattr(c.coreset, field) for c in (a, b))
        assert np.array_equal(left, right)


@settings(max_examples=15, deadline=None)
@given(
    order=st.permutations(range(5)),
    merge_by=st.sampled_from(["pool", "recompress"]),
    mixture=st.sampled_from(["uniform", "proportional", "irrational"]),
    kind=st.sampled_from(["normal", "discrete"]),
)
def test_the_order_of_arrival_changes_nothing(order, merge_by, mixture, kind):
    told = summaries_of(federation(5, [31, 17, 64, 5, 40], kind=kind), delta=12)
    if mixture == "irrational":
        raw = [math.sqrt(i + 2) for i in range(5)]
        mixture = {f"k{i}": w / math.fsum(raw) for i, w in enumerate(raw)}
    shuffled = [told[i] for i in order]
    again = [ClientSummary.from_bytes(s.to_bytes()) for s in shuffled] + [told[2]]
    turned = dict(reversed(mixture.items())) if isinstance(mixture, dict) else mixture
    first = quietly(told, 0.2, mixture, merge_by)
    same(first, quietly(shuffled, 0.2, turned, merge_by))
    same(first, quietly(iter(again), 0.2, mixture, merge_by))


def test_retargeting_is_a_fresh_calibration():
    told = summaries_of(federation(7, [80, 50, 30]), delta=20)
    start = calibrate(told, 0.1)
    mixture = {"k0": 0.2, "k1": 0.3, "k2": 0.5}
    same(start.retarget(), start)
    same(start.retarget(alpha=0.3), calibrate(told, 0.3))
    same(start.retarget(mixture=mixture), quietly(told, 0.1, mixture))
    same(start.retarget(rule="max"), calibrate(told, 0.1, rule="max"))
    same(start.retarget(merge="recompress"), calibrate(told, 0.1, merge="recompress"))
    coarse = calibrate(told, 0.1, merge="recompress", delta=5, eta=0.2)
    same(coarse.retarget(alpha=0.2), calibrate(told, 0.2, merge="recompress", delta=5, eta=0.2))
    same(coarse.retarget(merge="pool"), calibrate(told, 0.1, eta=0.2))
    third = calibrate(told, Fraction(1, 3))
    same(third.retarget(mixture="uniform").retarget(mixture="proportional"), third)
    paper = calibrate(told, 0.2, "uniform", correction="paper")
    same(paper.retarget(alpha=0.1), quietly(told, 0.1, "uniform", correction="paper"))
    same(paper.retarget(correction="sharp"), calibrate(told, 0.2, "uniform"))


def test_withdrawing_a_client_is_a_fresh_calibration():
    clients = federation(8, [80, 50, 30])
    told = [
        summarize(s, m, groups=Groups(["g0", "g1", "g2"]), client=f"k{i}", delta=10 * (i + 1))
        for i, (s, m) in enumerate(clients)
    ]
    for how in ("pool", "recompress"):  # Without k2 the largest delta is another one.
        start = calibrate(told, 0.2, merge=how)
        same(start.without("k2"), calibrate(told[:2], 0.2, merge=how))
        same(start.without("k0", "k2"), calibrate(told[1:2], 0.2, merge=how))
    mixed = quietly(told, 0.2, {"k0": 0.2, "k1": 0.3, "k2": 0.5})
    same(mixed.without("k2"), calibrate(told[:2], 0.2, {"k0": 0.4, "k1": 0.6}))
    with pytest.raises(GCFCPError, match="'k9' is not among the clients k0, k1, k2"):
        mixed.without("k9")
    with pytest.raises(GCFCPError, match="no summaries"):
        calibrate(told, 0.2).without("k0", "k1", "k2")
    with pytest.raises(GCFCPError, match="no weight"):
        quietly(told, 0.2, {"k0": 1, "k1": 0, "k2": 0}).without("k0")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": 1.2}, r"alpha=1.2 is not in \(0, 1\)"),
        ({"rule": "first"}, "rule='first' is neither"),
        ({"correction": "none"}, "correction='none' is neither 'sharp' nor 'paper'"),
        ({"merge": "mean"}, "merge='mean' is neither"),
        ({"eta": 0}, r"eta=0 is not in \(0, 1\)"),
        ({"eta": "x"}, "eta='x'"),
        ({"delta": 5}, "give merge='recompress' with it"),
        ({"mixture": {"k0": 1.0}}, "missing 'k1'"),
    ],
)
def test_options_that_make_no_sense_are_an_error(options, words):
    told = summaries_of(federation(1, [20, 20]))
    with pytest.raises(GCFCPError, match=words):
        calibrate(told, **({"alpha": 0.1} | options))


# --- Aggregates -----------------------------------------------------------------------------------


def test_a_region_that_compresses_nothing_is_its_members_with_a_proportional_mixture():
    clients = federation(9, [30, 20, 40])
    told = summaries_of(clients)
    region = merge(told, "region")
    assert region.is_aggregate
    assert region.members == (("k0", 30), ("k1", 20), ("k2", 40))
    for alpha in (0.1, 0.2, 1 / 3):
        together = quietly([region], alpha, aggregates=["region"])
        apart = quietly(told, alpha, "proportional")
        rows = rows_of(3)
        assert np.array_equal(together.thresholds(rows), apart.thresholds(rows))
        assert together.test_weight == apart.test_weight


@pytest.mark.parametrize("representative", ["mean", "upper"])
@pytest.mark.parametrize("min_count", [1, 4])
def test_merge_laws(representative, min_count):
    options = {"delta": 15, "representative": representative, "min_count": min_count}
    told = summaries_of(federation(10, [130, 120, 140]), **options)
    before = [s.to_bytes() for s in told]
    region = merge(told, "region")
    for order in itertools.permutations(told):
        assert merge(order, "region").to_bytes() == region.to_bytes()
    assert [s.to_bytes() for s in told] == before
    assert region.n == 390
    assert int(region.counts.sum()) + region.suppressed == 390
    assert region.min_count == min_count
    assert region.counts.min() >= min_count
    assert np.array_equal(
        region.suppressed_groups, np.sum([s.suppressed_groups for s in told], axis=0)
    )
    assert ClientSummary.from_bytes(region.to_bytes()) == region
    assert merge([told[0]], "k0") == told[0]  # A single summary does not change.
    alone = merge([told[0]], "r")
    assert np.array_equal(alone.values, told[0].values)
    coarse = merge([told[0]], "r", delta=3)
    assert len(coarse.values) < len(alone.values)
    assert coarse.delta == 3.0
    assert merge(told, "r", delta=5).delta == 5.0


@pytest.mark.parametrize("representative", ["mean", "upper"])
def test_the_error_of_a_merge_tree_is_certified(representative):
    clients = federation(11, [200, 150, 90, 60])
    told = summaries_of(clients, delta=8, representative=representative)
    both = {"west": 2, "east": 2}
    tree = merge([merge(told[:2], "west"), merge(told[2:], "east")], "all", aggregates=both)
    scores = np.concatenate([s for s, _ in clients])
    membership = np.concatenate([m for _, m in clients])
    for a, row in enumerate(tree.membership):
        own = np.sort(scores[(membership == row).all(axis=1)])
        values = tree.values[tree.start[a] : tree.start[a + 1]]
        reached = np.cumsum(tree.counts[tree.start[a] : tree.start[a + 1]])
        at = np.union1d(own, values)
        true = np.searchsorted(own, at, side="right")
        ours = np.append(0, reached)[np.searchsorted(values, at, side="right")]
        assert np.abs(true - ours).max() <= tree.errors[a] <= tree.atom_counts[a]
        if representative == "upper":
            assert (ours <= true).all()


def test_a_region_needs_a_name_and_members_that_go_together():
    told = summaries_of(federation(1, [20, 20]))
    with pytest.raises(GCFCPError, match="printable"):
        merge(told, "a\nb")
    with pytest.raises(GCFCPError, match="no summaries"):
        merge([], "r")
    with pytest.raises(GCFCPError, match="representative"):
        merge([told[0], *summaries_of(federation(1, [20, 20]), representative="mean")[1:]], "r")
    with pytest.raises(GCFCPError, match="delta=1"):
        merge(told, "r", delta=1)


# --- Infinite thresholds say why ------------------------------------------------------------------


def test_infinite_thresholds_are_one_readable_warning():
    groups = Groups(["all", "rare"])
    membership = np.ones((100, 2), dtype=bool)
    membership[5:, 1] = False
    s = summarize(np.arange(100.0), membership, groups=groups, client="k")
    with pytest.warns(GCFCPWarning) as caught:
        calibration = calibrate([s], 0.1)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert message == (
        "1 of 2 atoms (5.0% of the weight) have no finite threshold. The largest of them is all & "
        "rare: group 'rare' has 5 records and needs 4 more for alpha=0.1 (1.8 times as many). "
        "plan(...) says what else would help"
    )
    assert caught[0].filename == __file__
    reasons = {r.groups: r.reason for r in calibration.table}
    assert reasons[("all",)] is None
    assert [r.membership for r in calibration.table] == [r.groups for r in calibration.table]


def test_a_small_client_that_eats_alpha_is_named():
    groups = Groups(["all", "a"])
    big = summarize(
        np.arange(500.0), np.tile([[1, 0], [1, 1]], (250, 1)), groups=groups, client="b"
    )
    tiny = summarize([1.0, 2.0], [[1, 0], [1, 0]], groups=groups, client="tiny")
    made = quietly([big, tiny], 0.1, "uniform")
    reason = next(r.reason for r in made.table if "a" in r.groups)
    assert "tiny has 2 records for 50.0% of the mixture" in reason
    assert "mixture='proportional' costs less" in reason
    assert all(r.reason is None for r in calibrate([big, tiny], 0.1).table)


def test_scores_at_infinity_are_named():
    scores = np.where(np.arange(50) < 10, np.inf, 1.0)
    s = summarize(scores, np.ones((50, 1)), groups=Groups(["all"]), client="k")
    reason = quietly([s], 0.1).table[0].reason
    assert reason == (
        "group 'all' has 50 records, 10 of them at +inf, and more records of the same kind would "
        "not be enough for alpha=0.1"
    )


def test_overlaps_that_leave_too_few_are_named():
    """Each group has at least 20 records, but the atom of a and c has a single one."""
    membership = np.array([[1, 1, 0]] * 20 + [[1, 0, 1]] * 1 + [[0, 1, 1]] * 19, dtype=bool)
    s = summarize(np.arange(40.0), membership, groups=Groups(["a", "b", "c"]), client="k")
    calibration = quietly([s], 0.1)
    infinite = [r for r in calibration.table if r.reason]
    assert infinite
    for r in infinite:
        assert r.reason.startswith("each of its groups alone has enough records for alpha=0.1, but")
        assert r.reason.endswith("rule='max' makes it finite")
    assert all(r.reason is None for r in calibrate([s], 0.1, rule="max").table)


def test_suppressed_records_are_named():
    membership = np.array([[1, 0]] * 60 + [[1, 1]] * 4, dtype=bool)
    s = summarize(np.arange(64.0), membership, groups=Groups(["all", "a"]), client="k", min_count=5)
    row = np.array([[True, True], [True, False]])
    calibration = calibrate([s], 0.1)
    assert calibration.thresholds(row).tolist() == [math.inf, calibration.table[0].threshold]
    with pytest.warns(GCFCPWarning, match="'all' has 60 records, up to 4 more suppressed"):
        calibrate([s], 0.07)


def test_rows_in_no_group_have_no_promise():
    calibration = calibrate(summaries_of(federation(1, [100], G=2)), 0.2)
    with pytest.warns(GCFCPWarning, match="1 row belongs to no group"):
        assert calibration.thresholds([[False, False]]).tolist() == [math.inf]


# --- The rule of the maximum ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["pool", "recompress"])
def test_the_largest_single_group_threshold(how):
    clients = federation(12, [60, 40])
    told = summaries_of(clients, min_count=1)
    calibration = quietly(told, 0.1, "uniform", how, rule="max", correction="paper")
    scores, membership, weights, test = raw_problem(clients, uniform(clients))
    alone = []
    for g in range(3):
        own = membership[:, g]
        need = Fraction(9, 10) * (sum(w for w, i in zip(weights, own, strict=True) if i) + test)
        reached, threshold = Fraction(0), math.inf
        for i in np.argsort(scores):
            if own[i]:
                reached += weights[i]
                if reached >= need:
                    threshold = scores[i]
                    break
        alone.append(threshold)
    assert calibration.threshold_table.source.by_group.tolist() == alone
    rows = rows_of(3)
    expected = [max(t for t, member in zip(alone, row, strict=True) if member) for row in rows]
    assert calibration.thresholds(rows).tolist() == expected
    simultaneous = quietly(summaries_of(federation(12, [60, 40], family="disjoint")), 0.1)
    largest = simultaneous.retarget(rule="max")
    assert [r.threshold for r in simultaneous.table] == [r.threshold for r in largest.table]


def test_a_randomised_maximum_is_refused():
    calibration = calibrate(summaries_of(federation(1, [100])), 0.2, rule="max")
    with pytest.raises(GCFCPError, match="rule 'max' has no randomised thresholds"):
        calibration.thresholds([[1, 0, 0]], threshold_rng=np.random.default_rng(0))


# --- Guarantees -----------------------------------------------------------------------------------


def guarantee(told, alpha=0.1, **options):
    return {g.group: g for g in quietly(told, alpha, **options).guarantee}


def test_the_numbers_of_a_hand_computed_case():
    """Two clients have 4 and 9 records. All are in group all, and 2 and 3 of them in group a."""
    groups = Groups(["all", "a"])
    rows = [[1, 1]] * 2 + [[1, 0]] * 2, [[1, 1]] * 3 + [[1, 0]] * 6
    told = [
        summarize(np.arange(float(len(r))), r, groups=groups, client=name, delta=10)
        for name, r in zip("xy", rows, strict=True)
    ]
    g = guarantee(told, 0.4, mixture={"x": 0.25, "y": 0.75}, eta=0.5, correction="paper")
    lx, ly = 0.25 / 5, 0.75 / 10
    assert (g["all"].records, g["a"].records) == (13, 5)
    assert g["all"].weight == pytest.approx(4 * lx + 9 * ly)
    assert g["a"].weight == pytest.approx(2 * lx + 3 * ly)
    assert g["a"].effective_n == pytest.approx((2 * lx + 3 * ly) ** 2 / (2 * lx**2 + 3 * ly**2))
    assert g["a"].lower == pytest.approx(0.6 - math.sin(math.pi / 10))
    assert g["a"].certified == 0.6
    assert g["a"].eta == 0.5
    # Theorem C.1 for 2 groups: 2 max(pi/10, lx + ly) / sum_k pi_k n_k/(n_k+1) (p_kG - margin).
    margin = [math.sqrt(math.log(2 * 2 / 0.5) / (2 * n)) for n in (4, 9)]
    mass = 0.25 * 4 / 5 * (1 - margin[0]) + 0.75 * 9 / 10 * (1 - margin[1])
    delta = 2 * max(math.pi / 10, lx + ly) / mass
    assert g["all"].upper == pytest.approx(min(1, 0.6 + math.sin(math.pi / 10) + delta))


def test_the_upper_bound_narrows_with_delta_and_n():
    rng = np.random.default_rng(0)
    n, groups = 100_000, Groups(["all"])
    s = summarize(rng.random(n), np.ones((n, 1)), groups=groups, client="k", delta=1000)
    upper = guarantee([s])["all"].upper
    margin = math.sqrt(math.log(2 / 0.1) / (2 * n))
    expected = 0.9 + math.sin(math.pi / 1000) + (math.pi / 1000) / (n / (n + 1) * (1 - margin))
    assert upper == pytest.approx(expected, rel=1e-12)


def test_certified_slack_is_the_error_that_occurred():
    clients = federation(13, [150, 80])
    told = summaries_of(clients, delta=6, representative="mean")
    g = guarantee(told, 0.1, mixture="uniform", correction="paper")
    lam = [0.5 / 151, 0.5 / 81]
    for i, name in enumerate(["g0", "g1", "g2"]):
        slack = sum(lam[k] * sum(s.errors[s.membership[:, i]]) for k, s in enumerate(told))
        D = sum(lam[k] * clients[k][1][:, i].sum() for k in range(2)) + sum(lam)
        assert g[name].certified == pytest.approx(0.9 - slack / D, rel=1e-12)
        assert g[name].lower == pytest.approx(0.9 - math.sin(math.pi / 6))
        assert g[name].certified > g[name].lower
        assert (g[name].lower_status, g[name].certified_status) == (MEASURED, MEASURED)
    recompressed = guarantee(told, 0.1, mixture="uniform", correction="paper", merge="recompress")
    for name in ("g0", "g1", "g2"):
        assert recompressed[name].certified < g[name].certified
        two_levels = 0.9 - 2 * math.sin(math.pi / 6)
        assert recompressed[name].lower == pytest.approx(max(0, two_levels))


def test_lower_counts_every_level_of_compression_that_happened():
    told = summaries_of(federation(14, [300, 300]), delta=50, representative="mean")
    region = merge(told, "region", delta=20)
    worst = float((region.errors / region.atom_counts).max())
    expected = max(math.sin(math.pi / 20), worst)
    assert guarantee([region], aggregates=["region"])["g0"].lower == pytest.approx(0.9 - expected)
    # Because of min_count clusters are larger than sin(pi/delta) allows, and the error that
    # occurred takes the place of it.
    coarse = summaries_of(federation(14, [300, 300]), representative="mean", min_count=30)
    worst = max(float((s.errors / s.atom_counts).max()) for s in coarse)
    g = guarantee(coarse)["g0"]
    assert worst > math.sin(math.pi / FINE)
    assert g.lower == pytest.approx(0.9 - worst)


@pytest.mark.parametrize(
    ("family", "options", "rule", "lower", "certified"),
    [
        ("overlapping", {}, "simultaneous", MEASURED, MEASURED),
        ("overlapping", {"delta": FINE}, "simultaneous", PROVED, PROVED),
        ("overlapping", {}, "max", PROVED, PROVED),
        ("overlapping", {"min_count": 3}, "max", PROVED, PROVED),
        ("overlapping", {"representative": "mean"}, "simultaneous", MEASURED, MEASURED),
        ("overlapping", {"representative": "mean"}, "max", PROVED, MEASURED),
        ("overlapping", {"representative": "mean", "min_count": 9}, "max", MEASURED, MEASURED),
        # That no record is in two groups may be chance, so that it proves nothing.
        ("disjoint", {}, "simultaneous", MEASURED, MEASURED),
        ("disjoint", {}, "max", PROVED, PROVED),
        ("nested", {"delta": FINE}, "simultaneous", PROVED, PROVED),
        ("nested", {"delta": FINE, "min_count": 2}, "simultaneous", MEASURED, MEASURED),
    ],
)  # fmt: skip
def test_each_bound_says_on_what_ground_it_stands(family, options, rule, lower, certified):
    # With a min_count, small sites withhold so much that no threshold is finite.
    sizes = [900, 600] if "min_count" in options and rule == "max" else [90, 60]
    clients = federation(15, sizes, kind="positive", family=family)
    told = summaries_of(clients, **({"delta": 10} | options))
    theorem = THEOREM_1 if rule == "max" else THEOREM_2
    for g in guarantee(told, rule=rule).values():
        assert (g.lower_status, g.certified_status, g.upper_status) == (lower, certified, MEASURED)
        assert g.theorem == (theorem if certified == PROVED else None)
        if rule == "max":
            assert g.upper == 1.0
        if options.get("representative") != "mean":
            assert g.certified == 0.9


@pytest.mark.parametrize(
    ("G", "rule", "status"),
    [
        (1, "simultaneous", PROVED),
        (2, "simultaneous", PROVED),
        (3, "simultaneous", MEASURED),
        (3, "max", PROVED),
    ],
)
def test_the_papers_weight_is_proved_where_it_is_valid(G, rule, status):
    """The atoms {1, 2}, {1, 3}, {2, 3} and {1} have gamma 2; there the paper's weight can fail."""
    rows = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 0, 0]] * 15, dtype=bool)[:, :G]
    rows[~rows.any(axis=1)] = True
    clients = [(np.arange(60.0), rows), (np.arange(60.0) / 7, rows)]
    found = guarantee(summaries_of(clients), rule=rule, correction="paper")
    assert {g.certified_status for g in found.values()} == {status}
    sharp = guarantee(summaries_of(clients), rule=rule)
    assert {g.certified_status for g in sharp.values()} == {PROVED}


def test_the_papers_argument_is_named_for_unimodular_groups_alone():
    clients = federation(15, [90, 60], family="nested")
    found = guarantee(summaries_of(clients), mixture="uniform", correction="paper")
    assert {g.certified_status for g in found.values()} == {PAPER}
    assert {g.theorem for g in found.values()} == {None}


def test_a_client_that_could_have_compressed_is_not_proved():
    """With delta = 250 a digest keeps up to 159 scores, whatever atoms they are in."""
    for n, status in ((159, PROVED), (160, MEASURED)):
        told = summaries_of(federation(16, [n, 40]), delta=250)
        assert not any(s.errors.any() for s in told)
        assert guarantee(told)["g0"].certified_status == status


def test_a_delta_that_was_raised_afterwards_proves_nothing():
    """A summary of delta = 5 whose own merge says delta = 1e6 is still compressed."""
    coarse = summaries_of(federation(16, [500, 500]), delta=5)
    raised = [merge([s], s.client, delta=FINE) for s in coarse]
    assert not any(s.is_aggregate for s in raised)
    assert guarantee(raised)["g0"].certified_status == MEASURED


@settings(max_examples=60, deadline=None)
@given(
    delta=st.floats(2, 300),
    share=st.floats(0.2, 1),
    ties=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_a_digest_keeps_every_score_of_so_few_records(delta, share, ties, seed):
    n = max(1, math.ceil(share * 2 / math.sin(math.pi / delta)) - 1)
    assert n * math.sin(math.pi / delta) < 2
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, n) * 1.0 if ties else rng.normal(size=n)
    s = summarize(scores, np.ones((n, 1)), groups=Groups(["all"]), client="k", delta=delta)
    assert np.repeat(s.values, s.counts).tolist() == sorted(scores.tolist())


def test_one_client_that_sends_every_score_is_proved():
    one = summaries_of(federation(16, [90]))
    assert guarantee(one)["g0"].certified_status == guarantee(one)["g0"].lower_status == PROVED
    assert guarantee(one)["g0"].theorem == ONE_CLIENT
    compressed = summaries_of(federation(16, [90]), delta=5)
    assert guarantee(compressed)["g0"].certified_status == MEASURED
    two = summaries_of(federation(16, [90, 80]))
    region = guarantee([merge(two, "region")], aggregates=["region"])
    assert region["g0"].certified_status == MEASURED


def test_a_row_in_two_disjoint_groups_is_covered_as_well_as_either():
    told = summaries_of(federation(17, [90, 60], kind="positive", family="disjoint"))
    calibration = quietly(told, 0.2)
    single = calibration.thresholds(np.eye(3, dtype=bool))
    for row in rows_of(3):
        assert calibration.thresholds(row[None])[0] >= single[row].max()


# --- Randomised thresholds ------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "alpha"), [(4, 0.3), (9, 0.1), (3, 0.1), (2, 0.9), (7, 0.5)])
def test_randomised_thresholds_cover_exactly(n, alpha):
    """The scores are 1 to n. The next score is equally likely to fall into each of the n + 1 gaps
    between them, so that a threshold of r covers with probability r / (n + 1)."""
    one = Groups(["all"])
    s = summarize(np.arange(1.0, n + 1), np.ones((n, 1)), groups=one, client="k", delta=FINE)
    calibration = quietly([s], alpha)
    draws = 200_000
    rng = np.random.default_rng(0)
    found = calibration.thresholds(np.ones((draws, 1), dtype=bool), threshold_rng=rng)
    fixed = calibration.table[0].threshold
    assert (found <= fixed).all()
    ranks = np.where(found == -np.inf, 0, np.where(found == np.inf, n + 1, found))
    covered = ranks / (n + 1)
    error = 5 * covered.std() / math.sqrt(draws) + 1e-12
    assert abs(covered.mean() - (1 - alpha)) <= error, (
        f"mean coverage {covered.mean():.5f} of {draws} draws is not {1 - alpha:.5f} within five "
        f"standard errors, {error:.5f}"
    )
    again = calibration.thresholds(
        np.ones((draws, 1), dtype=bool), threshold_rng=np.random.default_rng(0)
    )
    assert np.array_equal(found, again)


def test_randomised_thresholds_are_steps_of_the_dual():
    """The bisection over sorted draws gives the thresholds that solving each draw alone gives."""
    told = summaries_of(federation(18, [30]), delta=30)
    table = quietly(told, 0.2).threshold_table
    row, rng = np.array([[True, True, False]]), np.random.default_rng(1)
    found = table.thresholds(np.repeat(row, 60, axis=0), threshold_rng=rng)
    top = table.source.solver.t_of(table.source.test_weights(row))
    t = np.random.default_rng(1).uniform(-0.25, 1.0, size=60) * top
    each = [table.source.solver.solve(row, t[[i]])[0].threshold for i in range(60)]
    assert found.tolist() == each
    assert (found <= table.thresholds(row)[0]).all()
    assert len(set(each)) > 2


def test_randomised_thresholds_of_several_clients_are_refused():
    """130 one-record clients, of which 118 score in (1, 2) with probability 0.44 and 12 always 3,
    would be covered 0.8993 where 0.9 is promised."""
    table = quietly(summaries_of(federation(18, [60, 40])), 0.2).threshold_table
    with pytest.raises(GCFCPError, match="for one client only, and this calibration has several"):
        table.thresholds([[True, True, False]], threshold_rng=np.random.default_rng(0))


def test_a_row_that_nothing_holds_is_covered_as_often_as_asked():
    told = summaries_of([(np.arange(20.0), np.tile([True, False], (20, 1)))])
    calibration = calibrate(told, 0.25)
    unseen = np.tile([False, True], (4000, 1))
    assert np.isposinf(calibration.thresholds(unseen)).all()
    found = calibration.thresholds(unseen, threshold_rng=np.random.default_rng(0))
    assert set(found) == {-np.inf, np.inf}
    assert abs((found == np.inf).mean() - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 4000)


def test_clients_may_come_in_descending_order_of_their_scores():
    """One record each: the client that is first by its name has the larger score."""
    groups = Groups(["all"])
    sent = [
        summarize([score], [[True]], groups=groups, client=name)
        for name, score in (("a", 3.0), ("b", 2.0), ("c", 1.0))
    ]
    for alpha, threshold in ((0.5, 3.0), (0.6, 3.0), (0.7, 2.0), (0.9, 1.0)):
        made = calibrate(sent, alpha, correction="paper")
        assert made.thresholds([[True]]).tolist() == [threshold]


def test_its_short_form_shows_no_tables():
    sent = [summarize(np.arange(50.0), np.ones((50, 1)), groups=Groups(["all"]), client="a")]
    shown = repr(calibrate(sent, 0.1))
    assert "alpha=0.1" in shown
    assert "array" not in shown
    assert "ThresholdTable" not in shown


def test_the_repr_of_a_calibration_is_short():
    told = summaries_of(federation(3, [60, 50]), delta=20)
    shown = repr(quietly(told, 0.2))
    for hidden in ("Guarantee(", "AtomRecord(", "ThresholdTable(", "Coreset(", "ClientSummary("):
        assert hidden not in shown
    assert len(shown) < 700


def test_other_labels_are_refused_also_behind_a_client_without_names():
    groups, probabilities = gcfcp.Groups(["all"]), np.full((60, 2), 0.5)
    summaries = [
        gcfcp.summarize(
            score.of(probabilities, [0 if names is None else names[0]] * 60),
            np.ones((60, 1)),
            groups=groups,
            client=client,
            score=score,
        )
        for client, names in (("a", None), ("b", ("x", "y")), ("c", ("y", "z")))
        for score in [gcfcp.scores.THR(classes=names)]
    ]
    assert gcfcp.calibrate(summaries[:2], 0.1).table
    with pytest.raises(gcfcp.GCFCPError, match=r"c has the labels \["):
        gcfcp.calibrate(summaries, 0.1)
