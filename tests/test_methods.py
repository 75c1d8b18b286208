"""The paper's methods are compared with ranks, with sums in rational arithmetic, and with each
other."""

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import methods
from oracles import brute_force, rounded_up

METHODS = (
    "split_cp",
    "fedcp",
    "condcp",
    "centralized_gcfcp",
    "gcfcp",
    "mondrian_fedcp",
    "group_digest",
    "importance_weighted",
)


def federation(rng, sizes=(60, 30, 45), G=3, ties=False, L=4):
    """Clients with overlapping groups; everyone is in the first group or the second."""
    clients = []
    for k, n in enumerate(sizes):
        membership = rng.random((n, G)) < 0.5
        membership[~membership[:, :2].any(axis=1), 0] = True
        scores = rng.normal(size=n) + k + membership @ np.arange(G)
        if ties:
            scores = np.round(scores)
        clients.append((scores, membership, rng.integers(0, L, size=n)))
    return clients


def weighted_rank(clients, shares, alpha, of_group=None):
    """inf{t : sum_k pi_k/(n_k+1) #{S_ki <= t} >= (1-alpha) sum_k pi_k/(n_k+1) (n_k^G + 1)}."""
    alpha = Fraction(alpha).limit_denominator(10**6)
    points, total = [], Fraction(0)
    for (scores, membership, *_), share in zip(clients, shares, strict=True):
        rate = Fraction(share) / (len(scores) + 1)
        own = scores if of_group is None else scores[membership[:, of_group]]
        points += [(s, rate) for s in own.tolist()]
        total += rate * (len(own) + 1)
    reached = Fraction(0)
    for score, rate in sorted(points):
        reached += rate
        if reached >= (1 - alpha) * total:
            return score
    return math.inf


@pytest.mark.parametrize("n", [1, 8, 9, 10, 18, 19, 29, 99, 100])
@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.05])
@pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")
def test_split_cp_is_the_published_rank(n, alpha):
    scores = np.random.default_rng(n).normal(size=n)
    halves = [scores[: n // 2], scores[n // 2 :]] if n > 1 else [scores]
    result = methods.split_cp([(s, np.ones((len(s), 1), bool)) for s in halves], alpha)
    rank = math.ceil((n + 1) * (1 - Fraction(alpha).limit_denominator(1000)))
    expected = np.sort(scores)[rank - 1] if rank <= n else math.inf
    assert result.thresholds(np.ones((2, 1), bool)).tolist() == [expected] * 2


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(5, 40), min_size=1, max_size=4),
    alpha=st.sampled_from([0.1, 0.2, 0.25, 0.4]),
    ties=st.booleans(),
    seed=st.integers(0, 2**20),
)
@pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")
def test_fedcp_with_shares_like_n_plus_one_is_the_published_rank(sizes, alpha, ties, seed):
    clients = federation(np.random.default_rng(seed), sizes, ties=ties)
    scores = np.sort(np.concatenate([c[0] for c in clients]))
    rank = math.ceil((1 - Fraction(alpha).limit_denominator(1000)) * (len(scores) + len(sizes)))
    expected = scores[rank - 1] if rank <= len(scores) else math.inf
    total = len(scores) + len(sizes)
    shares = [Fraction(n + 1, total) for n in sizes]
    result = methods.fedcp(clients, alpha, shares)
    assert result.thresholds(clients[0][1][:1]).item() == expected


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")
def test_fedcp_and_mondrian_are_their_definitions(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 50, size=3)
    clients = federation(rng, sizes, ties=seed % 2 == 0)
    mixture = [Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)]
    given_mixture = [float(p) for p in mixture]
    constant = methods.fedcp(clients, 0.1, given_mixture)
    row = clients[0][1][:1]
    assert constant.thresholds(row).item() == weighted_rank(clients, mixture, 0.1)
    by_group = [weighted_rank(clients, mixture, 0.1, g) for g in range(3)]
    first = methods.mondrian_fedcp(clients, 0.1, given_mixture)
    largest = methods.mondrian_fedcp(clients, 0.1, given_mixture, rule="max")
    rows = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1]], dtype=bool)
    assert first.thresholds(rows).tolist() == [by_group[g] for g in (0, 1, 0, 2)]
    assert largest.thresholds(rows).tolist() == [
        max(t for t, member in zip(by_group, row, strict=True) if member) for row in rows
    ]


def test_mondrian_max_is_the_rule_of_the_server():
    clients = federation(np.random.default_rng(3))
    ours = methods.mondrian_fedcp(clients, 0.1, rule="max")
    server = methods.gcfcp(clients, 0.1, delta=1e4, rule="max")
    rows = ours.threshold_table.membership
    assert ours.thresholds(rows).tolist() == server.thresholds(rows).tolist()


def test_the_test_point_keeps_small_groups_covered():
    """A group has 8 records. Without the "+1" of the test point its threshold at alpha = 0.1 would
    be its largest score; with it, it is +inf."""
    scores = np.arange(109.0)
    membership = np.zeros((109, 2), bool)
    membership[:, 0] = True
    membership[:8, 1] = True
    with pytest.warns(gcfcp.GCFCPWarning, match=r"G2 \(8 records\)"):
        result = methods.mondrian_fedcp([(scores, membership)], 0.1, rule="max")
    assert result.thresholds(membership[[0, 50]]).tolist() == [math.inf, 98.0]


def test_condcp_and_centralized_gcfcp_solve_their_problems():
    rng = np.random.default_rng(11)
    sizes = (7, 5)
    clients = [
        (np.round(rng.normal(size=n), 1), np.eye(2, dtype=bool)[rng.integers(0, 2, n)])
        for n in sizes
    ]
    for scores, membership in clients:
        membership[rng.random(len(scores)) < 0.3] = True
    alpha, row = Fraction(3, 10), np.array([True, True])
    scores = np.concatenate([c[0] for c in clients])
    membership = np.concatenate([c[1] for c in clients])
    pooled = brute_force(scores, membership, [Fraction(1, 13)] * 12, Fraction(1, 13), alpha, row)
    assert methods.condcp(clients, 0.3).thresholds(row[None]).item() == rounded_up(pooled)
    weights = [Fraction(1, 2) / (n + 1) for n in sizes for _ in range(n)]
    test = sum(Fraction(1, 2) / (n + 1) for n in sizes)
    exact = brute_force(scores, membership, weights, test, alpha, row)
    assert methods.centralized_gcfcp(clients, 0.3).thresholds(row[None]).item() == rounded_up(exact)


def test_one_client_makes_centralized_gcfcp_condcp_and_importance_weights_drop_out():
    clients = federation(np.random.default_rng(5), (120,))
    rows = np.unique(clients[0][1], axis=0)
    condcp = methods.condcp(clients, 0.1).thresholds(rows)
    assert methods.centralized_gcfcp(clients, 0.1).thresholds(rows).tolist() == condcp.tolist()
    marginal = methods.importance_weighted(clients, 0.1, rule="constant").thresholds(rows)
    assert marginal.tolist() == methods.split_cp(clients, 0.1).thresholds(rows).tolist()
    for rule in ("first", "max"):
        grouped = methods.importance_weighted(clients, 0.1, rule=rule).thresholds(rows)
        assert (
            grouped.tolist()
            == methods.mondrian_fedcp(clients, 0.1, rule=rule).thresholds(rows).tolist()
        )


def test_importance_weights_are_ratios_of_add_one_histograms():
    """Two clients have opposite labels, and the weights are computed by hand."""
    clients = [
        (np.arange(9.0), np.ones((9, 1), bool), np.array([0] * 8 + [1])),
        (np.arange(9.0) + 0.5, np.ones((9, 1), bool), np.array([1] * 8 + [0])),
    ]
    p = np.array([[9, 2], [2, 9]]) / 11
    q = p.mean(axis=0)
    ratio = np.clip(q / p, 1 / 2, 2)
    points = sorted(
        (s, 0.05 * ratio[k, y])
        for k, (scores, _, labels) in enumerate(clients)
        for s, y in zip(scores, labels, strict=True)
    )
    total = sum(w for _, w in points) + 0.05 * ratio.max(axis=1).sum()
    reached = np.cumsum([w for _, w in points])
    expected = points[int(np.argmax(reached >= 0.7 * total))][0]
    found = methods.importance_weighted(clients, 0.3, clip=2.0, rule="constant")
    assert found.thresholds(np.ones((1, 1), bool)).item() == expected
    plain = [c[:2] for c in clients]
    same = methods.importance_weighted(
        plain, 0.3, labels=[c[2] for c in clients], clip=2.0, rule="constant"
    )
    assert same.thresholds(np.ones((1, 1), bool)).item() == expected


def test_group_digest_with_fine_digests_is_mondrian_and_coarse_ones_err_upwards():
    clients = federation(np.random.default_rng(6), (400, 300))
    rows = np.unique(clients[0][1], axis=0)
    exact = methods.mondrian_fedcp(clients, 0.1).thresholds(rows)
    fine = methods.group_digest(clients, 0.1, delta=1e5, representative="upper", merge="pool")
    assert fine.thresholds(rows).tolist() == exact.tolist()
    coarse = methods.group_digest(clients, 0.1, delta=10, representative="upper", merge="pool")
    assert (coarse.thresholds(rows) >= exact).all()
    assert (coarse.thresholds(rows) > exact).any()


def test_a_group_that_nobody_is_in_is_infinite():
    clients = [(np.arange(50.0), np.column_stack([np.ones(50), np.zeros(50)]).astype(bool))]
    for method in (methods.group_digest, methods.mondrian_fedcp):
        with pytest.warns(gcfcp.GCFCPWarning, match=r"G2 \(0 records\)"):
            result = method(clients, 0.1, rule="max")
        assert result.thresholds([[0, 1], [1, 0]]).tolist() == [math.inf, 45.0]


def test_digest_forms_converge_to_the_exact_ones():
    clients = federation(np.random.default_rng(7), (500, 200, 300))
    rows = np.unique(clients[0][1], axis=0)
    exact = methods.centralized_gcfcp(clients, 0.1)
    fine = methods.gcfcp(clients, 0.1, delta=1e5)
    assert fine.thresholds(rows).tolist() == exact.thresholds(rows).tolist()
    published = methods.fedcp(clients, 0.1, delta=1e5).thresholds(rows[:1]).item()
    assert published == methods.fedcp(clients, 0.1).thresholds(rows[:1]).item()
    scores = np.concatenate([c[0] for c in clients])
    coarse = methods.fedcp(clients, 0.1, "proportional", delta=50)
    reached = np.mean(scores <= coarse.thresholds(rows[:1]).item())
    # The error is at most sin(pi/delta) for the clients' digests and as much for the merge.
    assert abs(reached - 0.9) <= 2 * math.sin(math.pi / 50) + 3 / len(scores)
    assert coarse.sent.values < len(scores) / 3


def test_every_method_has_one_shape_and_serves_a_predictor(tmp_path):
    rng = np.random.default_rng(8)
    probabilities = rng.dirichlet(np.ones(4), size=300)
    labels = rng.integers(0, 4, size=300)
    thr = gcfcp.scores.THR()
    membership = np.column_stack([np.ones(300), rng.random(300) < 0.5]).astype(bool)
    scores = thr.of(probabilities, labels)
    clients = [(scores[i::3], membership[i::3], labels[i::3]) for i in range(3)]
    for name in METHODS:
        method = getattr(methods, name)
        assert list(inspect.signature(method).parameters)[:3] == ["clients", "alpha", "mixture"]
        result = method(clients, 0.2, groups=["all", "some"])
        assert result.method == name
        assert result.groups.names == ("all", "some")
        predictor = gcfcp.Predictor(thr, result)
        sets = predictor.predict_set(probabilities, membership)
        assert np.array_equal(sets, 1 - probabilities <= result.thresholds(membership)[:, None])
        predictor.save(tmp_path / "p.json")
        again = gcfcp.Predictor.load(tmp_path / "p.json")
        assert np.array_equal(again.thresholds(membership), result.thresholds(membership))
        assert again.provenance["method"] == name


def test_what_is_sent_is_measured():
    clients = federation(np.random.default_rng(9), (400, 300, 200))
    n = 900
    told = {name: getattr(methods, name)(clients, 0.1) for name in METHODS}
    for name in ("split_cp", "fedcp", "condcp", "centralized_gcfcp", "mondrian_fedcp"):
        assert told[name].sent.values == n
        assert told[name].sent.bytes > 8 * n
    small = methods.gcfcp(clients, 0.1, delta=10)
    assert small.sent.bytes == sum(len(s.to_bytes()) for s in small.calibration.summaries)
    assert small.sent.values < n / 3
    assert small.sent.atoms_by_client == tuple(len(np.unique(m, axis=0)) for _, m, _ in clients)
    assert small.atom_count == len(np.unique(np.concatenate([c[1] for c in clients]), axis=0))
    assert small.problem == small.sent.values  # The server pools and keeps every centroid.
    recompressed = methods.gcfcp(clients, 0.1, delta=10, representative="mean", merge="recompress")
    assert recompressed.problem < small.problem
    assert told["split_cp"].sent.atoms_by_client == (1, 1, 1)
    assert told["group_digest"].sent.atoms_by_client == (3, 3, 3)


def test_names_and_order_of_clients_do_not_matter():
    clients = federation(np.random.default_rng(10), (60,) * 11)
    names = [f"site {chr(112 - k)}" for k in range(11)]
    weights = np.arange(1.0, 12) / 66
    rows = np.unique(clients[0][1], axis=0)
    for name in METHODS:
        method = getattr(methods, name)
        listed = method(clients, 0.2, weights).thresholds(rows)
        named = method(
            dict(zip(names, clients, strict=True)), 0.2, dict(zip(names, weights, strict=True))
        ).thresholds(rows)
        np.testing.assert_allclose(named, listed, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: methods.fedcp([], 0.1), "no clients"),
        (lambda c: methods.fedcp(c, 1.2), r"alpha=1.2 is not in \(0, 1\)"),
        (lambda c: methods.split_cp(c, 0.1, groups=["one"]), "3 columns for 1 groups"),
        (lambda c: methods.fedcp([c[0][0]], 0.1), "not a .scores, membership. pair"),
        (lambda c: methods.fedcp([(c[0][0][1:], c[0][1])], 0.1), "one number and one row"),
        (lambda c: methods.fedcp([([np.nan], [[1]])], 0.1), "1 NaN"),
        (lambda c: methods.fedcp(c, 0.1, [0.5, 0.5]), "2 weights for 3 clients"),
        (
            lambda c: methods.mondrian_fedcp(c, 0.1, rule="last"),
            "rule='last' is neither 'first' nor 'max'",
        ),
        (lambda c: methods.importance_weighted([x[:2] for x in c], 0.1), "has no labels"),
        (lambda c: methods.importance_weighted(c, 0.1, labels=[[0]]), "labels of 1 clients"),
        (lambda c: methods.importance_weighted(c, 0.1, clip=0.5), "clip=0.5"),
        (
            lambda c: methods.importance_weighted([(c[0][0], c[0][1], c[0][2] - 9)], 0.1),
            "whole numbers from 0",
        ),
    ],
)
def test_wrong_input_is_told_in_one_line(call, message):
    with pytest.raises(gcfcp.GCFCPError, match=message) as error:
        call(federation(np.random.default_rng(1)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", METHODS)
def test_weights_in_a_list_are_refused_for_clients_given_by_name(name):
    """Names have no order: in `fedcp({"b": B, "a": A}, 0.1, [0.99, 0.01])` nobody could say which
    client the first weight is for."""
    clients = federation(np.random.default_rng(11), (60, 50))
    named = dict(zip(["b", "a"], clients, strict=True))
    method = getattr(methods, name)
    with pytest.raises(gcfcp.GCFCPError, match="given by name: give"):
        method(named, 0.3, [0.99, 0.01])
    by_order = method(clients, 0.3, [0.75, 0.25])
    by_name = method(named, 0.3, {"b": 0.75, "a": 0.25})
    rows = by_order.threshold_table.membership
    assert by_name.thresholds(rows).tolist() == by_order.thresholds(rows).tolist()


def test_labels_in_a_list_are_refused_for_clients_given_by_name():
    clients = federation(np.random.default_rng(12), (60, 50))
    pairs, labels = [c[:2] for c in clients], [c[2] for c in clients]
    named, of_name = dict(zip("ba", pairs, strict=True)), dict(zip("ba", labels, strict=True))
    with pytest.raises(gcfcp.GCFCPError, match=r"\{client: labels\}"):
        methods.importance_weighted(named, 0.3, labels=labels)
    with pytest.raises(gcfcp.GCFCPError, match=r"\{client: labels\}"):
        methods.importance_weighted(named, 0.3, labels={"a": labels[0]})
    by_order = methods.importance_weighted(pairs, 0.3, labels=labels)
    by_name = methods.importance_weighted(named, 0.3, labels=of_name)
    rows = by_order.threshold_table.membership
    assert by_name.thresholds(rows).tolist() == by_order.thresholds(rows).tolist()
