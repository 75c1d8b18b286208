"""Promises about one predictor: the bounds, their exact numbers, and what is charged."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import gcfcp
from gcfcp import GCFCPError, Groups
from gcfcp.bounds import Evidence, lower_bound, lowest_certain

ONE = Groups({"all": "TRUE"})


def evidence(values, counts=None, v=None, hidden=(), hidden_v=(), strange=0, **options):
    values = np.asarray(values, dtype=float)
    counts = np.ones(len(values), dtype=int) if counts is None else np.asarray(counts)
    v = np.ones(len(values)) if v is None else np.asarray(v, dtype=float)
    options = {
        "strange": np.array([float(strange)]),
        "strange_v": np.array([1.0]),
        "heaviest": float(max([*v, *hidden_v], default=1.0)),
        "n": int(counts.sum() + sum(hidden)),
        "exact": False,
        "certain": False,
    } | options
    hidden, hidden_v = np.asarray(hidden, float), np.asarray(hidden_v, float)
    return Evidence(values=values, counts=counts, v=v, hidden=hidden, hidden_v=hidden_v, **options)


# --- one group ------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("tail", [0.05, 0.01])
@pytest.mark.parametrize("n", [1, 10, 58, 59, 100, 1000])
def test_one_client_has_the_rank_of_the_binomial(n, alpha, tail):
    """The smallest h with P(Bin(n, 1 - alpha) >= h) <= tail, by scipy; no h if there is none."""
    ranks = np.arange(1, n + 1)
    good = ranks[stats.binom.sf(ranks - 1, n, 1 - alpha) <= tail]
    found = lowest_certain(evidence(ranks, exact=True), alpha, tail)
    assert found == (float(good[0]) if len(good) else math.inf)


def test_ties_are_covered_together():
    values = np.repeat([1.0, 2.0, 3.0], [50, 40, 10])
    assert lowest_certain(evidence(values, exact=True), 0.2, 0.05) == 2.0
    assert lowest_certain(evidence(values), 0.2, 0.05) in (2.0, 3.0)


def test_hidden_and_infinite_records_count_as_missed():
    values = np.arange(100.0)
    free = lowest_certain(evidence(values, exact=True), 0.1, 0.05)
    some = lowest_certain(evidence(values, exact=True, hidden=[2], hidden_v=[1.0]), 0.1, 0.05)
    assert free < some < math.inf
    for exact in (True, False):
        many = evidence(values, exact=exact, hidden=[30], hidden_v=[1.0])
        assert lowest_certain(many, 0.1, 0.05) == math.inf
        infinite = evidence([*values[:80], *[math.inf] * 20], exact=exact)
        assert lowest_certain(infinite, 0.1, 0.05) == math.inf


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([0.05, 0.1, 0.3, 0.6]),
    tail=st.sampled_from([0.05, 0.01, 0.001]),
)
def test_the_bet_is_that_of_its_formula(seed, alpha, tail):
    """E at each score from the counts of each client, as the module writes it."""
    rng = np.random.default_rng(seed)
    K, n = int(rng.integers(2, 5)), int(rng.integers(1, 200))
    owner, v = rng.integers(0, K, n), rng.uniform(0.1, 1, K)
    values = np.sort(rng.normal(size=n).round(1))
    lost = rng.integers(0, 3, K)
    known = evidence(values, v=v[owner], hidden=lost, hidden_v=v, heaviest=float(v.max()), n=n)
    found = lowest_certain(known, alpha, tail)
    best = math.sqrt(2 * math.log(1 / tail) * (1 - alpha) / alpha / n)
    stakes = [0.5**j for j in range(1 + max(0, math.ceil(-math.log2(min(1.0, best)))))]
    r = v / v.max()
    for t in np.unique(values):
        covered = np.bincount(owner[values <= t], minlength=K)
        missed = np.bincount(owner[values > t], minlength=K) + lost
        bets = [
            np.prod((1 + f * r * alpha / (1 - alpha)) ** covered * (1 - f * r) ** missed)
            for f in stakes
        ]
        if np.mean(bets) * tail >= 1 + 1e-6:
            assert found <= t
        elif np.mean(bets) * tail <= 1 - 1e-6:
            assert found > t
    # It is the same bound as that of an audit, with stakes for one coverage instead of any.
    if math.isfinite(found):
        hits = np.array([[np.sum((values <= found) & (owner == k))] for k in range(K)])
        misses = (
            np.array([[np.sum((values > found) & (owner == k))] for k in range(K)]) + lost[:, None]
        )
        assert lower_bound(hits, misses, v, np.full(K, n), tail)[0] > 1 - alpha - 0.2


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), exact=st.booleans())
def test_missed_records_and_strangers_never_lower_a_level(seed, exact):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(30, 200))
    values = np.sort(rng.normal(size=n))
    before = lowest_certain(evidence(values, exact=exact, n=300), 0.2, 0.05)
    hidden = evidence(values, exact=exact, n=300, hidden=[1], hidden_v=[1.0])
    assert lowest_certain(hidden, 0.2, 0.05) >= before
    strange = evidence(values, exact=exact, n=300, strange=int(rng.integers(1, 9)))
    assert lowest_certain(strange, 0.2, 0.05) >= before


@pytest.mark.parametrize("alpha", [0.1, 0.3])
@pytest.mark.parametrize("shift", [0.0, 0.05, 0.2])
def test_the_mean_of_the_bet_is_at_most_one(alpha, shift):
    """Exactly, by summing over all outcomes of two clients of three records.

    The coverage under the mixture is 1 - alpha, or less by `shift` at one client.
    """
    share = np.array([0.5, 0.5])
    # (in the group and covered, in the group and missed) at each client.
    p = np.array([0.9 * (1 - alpha) * 0.8 - 0.1 * shift, 1 - alpha])
    q = np.array([0.9 * alpha * 0.8, alpha])
    scale = (alpha * p - (1 - alpha) * q) @ share
    assert scale <= 1e-12 or shift == 0.0
    r = np.array([1.0, 1.0])
    for f in (1.0, 0.5, 0.25):
        mean = 0.0
        for outcome in itertools.product(range(3), repeat=6):
            chance, bet = 1.0, 1.0
            for i, kind in enumerate(outcome):
                k = i // 3
                chance *= (p[k], q[k], 1 - p[k] - q[k])[kind]
                bet *= (1 + f * r[k] * alpha / (1 - alpha), 1 - f * r[k], 1.0)[kind]
            mean += chance * bet
        assert mean <= 1 + 1e-9


def test_hoeffdings_theorem_where_it_is_used():
    """Sums of different indicators, computed exactly, never pass the binomial of their average."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, alpha = int(rng.integers(5, 40)), float(rng.choice([0.1, 0.2, 0.5]))
        chances = rng.beta(0.5, 0.5, n)
        chances *= (1 - alpha) / max(chances.mean(), 1 - alpha)
        chances = np.minimum(chances + (1 - alpha - chances.mean()), 1)
        if chances.mean() > 1 - alpha or chances.min() < 0:
            continue
        law = np.ones(1)
        for c in chances:
            law = np.convolve(law, [1 - c, c])
        for h in range(math.ceil(n * (1 - alpha) + 1), n + 1):
            assert law[h:].sum() <= stats.binom.sf(h - 1, n, 1 - alpha) * (1 + 1e-9)


# --- calibrations ---------------------------------------------------------------------------------


def parts_of(sizes, seed=0, groups=ONE, **options):
    rng = np.random.default_rng(seed)
    G = len(groups.others)
    made = []
    for k, n in enumerate(sizes):
        member = rng.random((n, G)) < 0.5
        member[:, 0] = True
        made.append(
            gcfcp.summarize(
                rng.normal(size=n), member, groups=groups, client=f"c{k}", delta=1e6, **options
            )
        )
    return made


def test_one_client_and_one_group_is_the_binomial_rank():
    made = parts_of([200])
    found = gcfcp.calibrate(made, 0.1, confidence=0.95)
    ranks = np.arange(1, 201)
    rank = ranks[stats.binom.sf(ranks - 1, 200, 0.9) <= 0.05][0]
    assert found.thresholds([[1]])[0] == np.sort(made[0].values)[rank - 1]
    assert found.rule == "max"
    guarantee = found.guarantee[0]
    assert guarantee.promise == "for this predictor, with 95 % confidence"
    assert (guarantee.confidence, guarantee.certified_status) == (0.95, "proved")
    assert guarantee.theorem == found.correction.theorem == "theorem 3 (this very predictor)"


def test_everyone_at_many_sites_costs_no_more_than_at_one():
    """By Hoeffding's theorem the exact bound holds if all records weigh the same."""
    many = parts_of([20] * 10)
    pooled = np.sort(np.concatenate([s.values for s in many]))
    ranks = np.arange(1, 201)
    rank = ranks[stats.binom.sf(ranks - 1, 200, 0.9) <= 0.05][0]
    found = gcfcp.calibrate(many, 0.1, confidence=0.95).thresholds([[1]])[0]
    assert found == pooled[rank - 1]
    # Not if the mixture gives records different weights, nor for names without a condition.
    weights = {f"c{k}": (1 + k) / 55 for k in range(10)}
    assert gcfcp.calibrate(many, 0.1, weights, confidence=0.95).thresholds([[1]])[0] > found
    named = parts_of([20] * 10, groups=Groups(["all"]))
    assert gcfcp.calibrate(named, 0.1, confidence=0.95).thresholds([[1]])[0] > found


TWO = Groups({"all": "TRUE", "b": "b = 1"}, sites=["c0", "c1"])


def test_the_share_is_divided_among_the_groups_that_there_can_be():
    """Four groups, and the group of each site has one client: the exact bound with 0.05 / 4."""
    made = parts_of([300, 200], groups=TWO, by="group")
    found = gcfcp.calibrate(made, 0.1, confidence=0.95).threshold_table.source.by_group
    for k, n in enumerate((300, 200)):
        own = np.sort(made[k].values[made[k].start[0] : made[k].start[1]])
        assert len(own) == n
        ranks = np.arange(1, n + 1)
        rank = ranks[stats.binom.sf(ranks - 1, n, 0.9) <= 0.05 / 4][0]
        assert found[2 + k] == own[rank - 1]


def test_confidence_costs_more_than_the_average_and_less_than_certainty():
    made = parts_of([300, 400], groups=Groups({"all": "TRUE", "b": "b = 1"}), by="group")
    levels = [
        gcfcp.calibrate(made, 0.1, confidence=c).threshold_table.source.by_group
        for c in (None, 0.5, 0.95, 0.999)
    ]
    for low, high in itertools.pairwise(levels):
        assert (low <= high).all()
    assert (levels[0] < levels[2]).all()


def test_means_and_the_simultaneous_rule_are_refused():
    with pytest.raises(GCFCPError, match=r"confidence=0.9 needs representative='upper'"):
        gcfcp.calibrate(parts_of([90], representative="mean"), 0.1, confidence=0.9)
    with pytest.raises(GCFCPError, match="a confidence is proved for one group at a time"):
        gcfcp.calibrate(parts_of([90]), 0.1, confidence=0.9, rule="simultaneous")


def test_it_survives_retarget_without_and_the_file():
    made = parts_of([300, 200], groups=Groups({"all": "TRUE", "b": "b = 1"}))
    first = gcfcp.calibrate(made, 0.1, confidence=0.9)
    rows = [[1, 0], [1, 1]]
    assert first.retarget(alpha=0.2).confidence == 0.9
    assert first.retarget(confidence=0.99).confidence == 0.99
    assert (first.without("c1").thresholds(rows)
            == gcfcp.calibrate(made[:1], 0.1, confidence=0.9).thresholds(rows)).all()  # fmt: skip
    again = gcfcp.Predictor.from_json(gcfcp.Predictor("s", first).to_json())
    assert (again.thresholds(rows) == first.thresholds(rows)).all()
    assert again.provenance["confidence"] == 0.9
    assert again.recorded("guarantee")[0]["promise"] == "for this predictor, with 90 % confidence"


def test_a_plan_says_what_confidence_needs():
    """At alpha = 0.1 the exact bound needs 29 records for 0.95; 28 are too few."""
    assert gcfcp.plan(parts_of([29]), 0.1, confidence=0.95).finite
    plan = gcfcp.plan(parts_of([28]), 0.1, confidence=0.95)
    assert not plan.finite
    assert plan.groups[0].missing == 1
    assert "with 0.95 confidence for all groups together, by theorem 3" in str(plan)
    with pytest.warns(gcfcp.GCFCPWarning, match="the promise is about this predictor"):
        assert gcfcp.calibrate(parts_of([28]), 0.1, confidence=0.95).thresholds([[1]])[0] == np.inf
