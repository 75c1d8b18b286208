"""Plans: a calibration gives what the plan says, the missing records are those that it says, and
its advice is true."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfcp import GCFCPError, GCFCPWarning, Groups, calibrate, plan, summarize
from gcfcp.calibration.remedies import least

ONE = Groups(["all"])


def everyone(name, n, groups=ONE):
    return summarize(
        np.arange(float(n)), np.ones((n, len(groups))), groups=groups, client=name, delta=1e6
    )


def quietly(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        return calibrate(*args, **kwargs)


def random_federation(seed):
    rng = np.random.default_rng(seed)
    G = int(rng.integers(1, 5))
    told = []
    for k in range(rng.integers(1, 5)):
        n = int(rng.integers(2, 60))
        membership = rng.random((n, G)) < rng.uniform(0.1, 0.9, size=G)
        membership[~membership.any(axis=1), 0] = True
        scores = np.where(rng.random(n) < 0.02, np.inf, rng.random(n))
        told.append(
            summarize(
                scores,
                membership,
                groups=Groups([f"g{i}" for i in range(G)]),
                client=f"k{k}",
                min_count=int(rng.integers(1, 4)),
            )
        )
    return [s for s in told if len(s.errors)] or random_federation(seed + 10_000)


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("rule", ["simultaneous", "max"])
def test_what_is_foretold_is_what_happens(seed, rule):
    told = random_federation(seed)
    alpha = [0.05, 0.1, 0.3][seed % 3]
    mixture = ["uniform", "proportional"][seed % 2]
    made = quietly(told, alpha, mixture, rule=rule)
    found = plan(told, alpha, mixture, rule=rule)
    assert found.atoms == made.table
    assert found.finite == all(math.isfinite(r.threshold) for r in made.table)
    assert found.test_weight == made.test_weight
    assert {c.client: c.share for c in found.clients} == made.shares
    assert found.correction == made.correction
    assert [(c.n, c.suppressed) for c in found.clients] == [(s.n, s.suppressed) for s in told]
    for i, (g, guarantee) in enumerate(zip(found.groups, made.guarantee, strict=True)):
        if rule == "max":
            assert g.finite == math.isfinite(made.threshold_table.source.by_group[i]), g
        elif not g.finite:
            assert not any(math.isfinite(r.threshold) for r in made.table if g.group in r.groups)
        assert (g.records, g.weight) == (guarantee.records, guarantee.weight)
        assert g.finite == (g.missing == 0) == (g.growth == 1.0)
        assert g.finite == (alpha >= g.least_alpha)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(n=st.integers(1, 150), alpha=st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.3, 1 / 3, 0.5]))
def test_one_client_and_one_group_lack_what_the_rank_lacks(n, alpha):
    exact = Fraction(alpha).limit_denominator(100)
    needed = math.ceil((1 - exact) / exact)
    group = plan([everyone("k", n)], alpha).groups[0]
    assert group.missing == max(0, needed - n)
    assert group.finite == (n >= needed)
    if group.missing:
        assert plan([everyone("k", n + group.missing)], alpha).groups[0].finite
        assert not plan([everyone("k", n + group.missing - 1)], alpha).groups[0].finite
        assert group.growth == pytest.approx(needed / n)


@pytest.mark.parametrize("alpha", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("sizes", [(5, 5, 5), (2, 4, 6), (1, 1), (3, 30)])
def test_growing_by_what_is_missing_is_enough_and_less_is_not(sizes, alpha):
    told = [everyone(f"k{i}", n) for i, n in enumerate(sizes)]
    group = plan(told, alpha, "uniform", correction="paper").groups[0]

    def enough(more):
        """The condition for a finite threshold if every client grows by the same factor."""
        f = 1 + Fraction(more, sum(sizes))
        rates = [Fraction(1, len(sizes)) / (f * n + 1) for n in sizes]
        mass = sum(r * f * n for r, n in zip(rates, sizes, strict=True))
        exact = Fraction(alpha).limit_denominator(100)
        return (1 - exact) * (mass + sum(rates)) <= mass

    if group.missing:
        assert enough(group.missing)
        assert not enough(group.missing - 1)
        # A client has whole records, so that it is grown by a whole factor here.
        factor = math.ceil(group.growth)
        grown = [everyone(f"k{i}", factor * n) for i, n in enumerate(sizes)]
        assert plan(grown, alpha, "uniform", correction="paper").finite
    else:
        assert enough(0)


def test_records_of_the_same_kind_do_not_always_help():
    half = summarize([1.0, math.inf] * 20, np.ones((40, 1)), groups=ONE, client="k")
    group = plan([half], 0.1).groups[0]
    assert (group.missing, group.growth, group.finite) == (None, None, False)
    assert group.least_alpha == 0.513  # The next number of three digits from 21 / 41 on.
    assert "would not help" in str(plan([half], 0.1))
    absent = summarize(
        np.arange(50.0), np.tile([1, 0], (50, 1)), groups=Groups(["a", "b"]), client="k"
    )
    found = plan([absent], 0.1)
    assert found.groups[1].missing is None
    assert found.groups[1].least_alpha == 1.0
    assert found.finite  # No row of b was seen. A later one would have no finite threshold.


def test_a_share_at_infinity_is_reckoned_with():
    """One record in 20 has a score of +inf, which uses up more than half of alpha = 0.09."""
    scores = np.where(np.arange(20) == 0, np.inf, 1.0)
    s = summarize(scores, np.ones((20, 1)), groups=ONE, client="k")
    alpha = 0.09
    group = plan([s], alpha).groups[0]
    n = 20 + group.missing
    f = Fraction(n, 20)
    # The condition is alpha (finite records) >= (1 - alpha)(infinite records + 1 test point).
    a = Fraction(9, 100)
    assert a * 19 * f >= (1 - a) * (f + 1)
    f = Fraction(n - 1, 20)
    assert a * 19 * f < (1 - a) * (f + 1)


# --- Advice ---------------------------------------------------------------------------------------


def test_a_finite_plan_needs_no_advice():
    found = plan([everyone("k", 100)], 0.1)
    assert found.finite
    assert found.advice == found.notes == ()
    assert str(found) == (
        "alpha=0.1; one client: the test point weighs as one record\n"
        "  all: 100 records, weight 0.9901: finite"
    )


def big_and_tiny():
    groups = Groups(["all", "a"])
    rows = np.tile([[1, 0], [1, 1], [1, 0], [1, 0]], (250, 1))
    big = summarize(np.arange(1000.0), rows, groups=groups, client="big")

    def tiny(n):
        return summarize(np.arange(float(n)), np.tile([1, 0], (n, 1)), groups=groups, client="tiny")

    return big, tiny


def test_a_client_that_makes_the_mixture_expensive_is_named_with_its_cost():
    big, tiny = big_and_tiny()
    found = plan([big, tiny(4)], 0.1, "uniform")
    assert found.clients[1].record_weight > 100
    assert len(found.notes) == 1
    assert found.notes[0].endswith("tiny has 4 records for 50.0% of the mixture")
    assert plan([big, tiny(4)], 0.1).notes == ()


@pytest.mark.parametrize("rule", ["simultaneous", "max"])
def test_following_the_advice_on_a_small_client_is_enough(rule):
    big, tiny = big_and_tiny()
    found = plan([big, tiny(4)], 0.1, "uniform", rule=rule)
    assert not found.finite
    line = next(a for a in found.advice if "records there" in a)
    assert line.startswith("tiny has 4 records for 50.0% of the mixture; ")
    needed = int(line.split("; ")[1].split()[0].replace(",", ""))
    assert plan([big, tiny(needed)], 0.1, "uniform", rule=rule).groups[1].finite
    assert not plan([big, tiny(needed - 1)], 0.1, "uniform", rule=rule).groups[1].finite


def test_following_the_advice_on_the_mixture_or_on_alpha_is_enough():
    big, tiny = big_and_tiny()
    told = [big, tiny(6)]
    found = plan(told, 0.1, "uniform")
    assert found.advice[0] == "mixture='proportional' makes finite on their own: a"
    assert plan(told, 0.1, "proportional").finite
    larger = next(a for a in found.advice if a.startswith("alpha="))
    alpha = float(larger.split()[0].removeprefix("alpha="))
    assert 0.1 < alpha < 1
    assert all(g.finite for g in plan(told, alpha, "uniform").groups)
    assert not all(g.finite for g in plan(told, alpha - 0.001, "uniform").groups)


def test_giving_up_a_group_is_the_last_advice():
    big, tiny = big_and_tiny()
    found = plan([big, tiny(6)], 0.1, "uniform")
    assert len(found.advice) > 2
    assert found.advice[-1].startswith("the promise could be given up for a, by merging")
    assert not any("given up" in a or "drop" in a for a in found.advice[:-1])


def test_the_papers_weight_is_named_as_the_cause():
    told = [everyone(f"k{i:02d}", 5) for i in range(40)]
    found = plan(told, 0.1, correction="paper")
    assert "correction='sharp' is enough" in found.atoms[0].reason
    assert found.advice[0] == "correction='sharp' makes finite on their own: all"
    assert plan(told, 0.1).finite


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", range(30))
def test_following_the_advice_on_records_is_enough(seed):
    """Every record of every client is taken so many times as the plan asks for."""
    rng = np.random.default_rng(seed)
    groups = Groups(["all", "a", "b"])
    raw = []
    for k in range(int(rng.integers(1, 5))):
        n = int(rng.integers(4, 25))
        raw.append((k, rng.random(n), np.column_stack([np.ones(n), rng.random((n, 2)) < 0.3])))

    def told(times):
        return [
            summarize(
                np.repeat(s, times),
                np.repeat(m, times, axis=0),
                groups=groups,
                client=f"k{k}",
                delta=1e6,
            )
            for k, s, m in raw
        ]

    rule = ["simultaneous", "max"][seed % 2]
    found = plan(told(1), 0.1, rule=rule)
    if found.finite:
        return
    lines = [a for a in found.advice if "times as many records" in a]
    if rule == "max":
        assert lines
    for line in lines:
        times = math.ceil(float(line.split()[1]))
        assert plan(told(times), 0.1, rule=rule).finite


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(20))
def test_following_the_advice_on_the_rule_is_enough(seed):
    told = random_federation(seed)
    found = plan(told, 0.1)
    line = next((a for a in found.advice if a.startswith("rule='max' makes")), None)
    infinite = [r.groups for r in found.atoms if r.threshold == math.inf]
    by_max = {r.groups: r.threshold for r in quietly(told, 0.1, rule="max").table}
    helped = sum(math.isfinite(by_max[groups]) for groups in infinite)
    expected = f"rule='max' makes {helped} of the {len(infinite)} infinite atoms finite"
    assert line == (expected if helped else None)


def test_a_large_gamma_is_shown_with_what_would_lower_it(monkeypatch):
    """Everyone and four crossing attributes: gamma is 3, and 2 without one of the attributes."""
    rows = np.array([[1, *bits] for bits in np.ndindex(2, 2, 2, 2)] * 20)
    groups = Groups(["all", "a", "b", "c", "d"])
    told = [
        summarize(np.arange(320.0) % 7 + k, rows, groups=groups, client=f"k{k}") for k in range(2)
    ]
    assert plan(told, 0.1).notes == ()  # Every exchange is followed, and gamma bounds nothing.
    monkeypatch.setattr("gcfcp.thresholds.rules.MOST_FOLLOWED", 4)
    found = plan(told, 0.1)
    assert found.correction.gamma == 3
    assert found.correction.records == pytest.approx(4 * (1 + 1 / 1024))
    assert len(found.notes) == 1
    assert "gamma is 3" in found.notes[0]
    assert "rule='max' charges 1.11" in found.notes[0]
    assert "gamma would be 2" in found.notes[0]
    name = found.notes[0].split("without group ")[1].split()[0].strip("'")
    left = [n for n in groups.names if n != name]
    kept = rows[:, [groups.names.index(n) for n in left]]
    again = [
        summarize(np.arange(320.0), kept, groups=Groups(left), client=f"k{k}") for k in range(2)
    ]
    assert plan(again, 0.1).correction.gamma == 2
    assert plan(told, 0.1, rule="max").notes == ()


def test_advice_on_min_count():
    rows = np.array([[1, 0]] * 30 + [[1, 1]] * 4)
    groups = Groups(["all", "a"])
    s = summarize(np.arange(34.0), rows, groups=groups, client="k", min_count=5)
    found = plan([s], 0.1)
    assert "a smaller min_count would leave fewer records suppressed" in found.advice
    assert "up to 4 more suppressed" in str(found)


def test_advice_on_overlaps():
    membership = np.array([[1, 1, 0]] * 20 + [[1, 0, 1]] * 1 + [[0, 1, 1]] * 19, dtype=bool)
    s = summarize(np.arange(40.0), membership, groups=Groups(["a", "b", "c"]), client="k")
    found = plan([s], 0.1)
    assert all(g.finite for g in found.groups)
    assert not found.finite
    assert found.advice[0] == "rule='max' makes 1 of the 1 infinite atoms finite"
    assert plan([s], 0.1, rule="max").finite


def test_the_text_says_what_is_missing():
    text = str(plan([everyone("k", 4)], 0.1))
    assert text.splitlines() == [
        "alpha=0.1; one client: the test point weighs as one record",
        "  all: 4 records, weight 0.8000: INFINITE, 5 more records are needed (all clients must "
        "grow by a factor of 2.25)",
        "  atom all: inf: group 'all' has 4 records and needs 5 more for alpha=0.1 (2.25 times as "
        "many)",
        "  -> with 2.25 times as many records of each kind at every client, every atom would be "
        "finite",
        "  -> alpha=0.2 would make every group finite on its own",
    ]


def test_plans_refuse_what_calibrations_refuse():
    with pytest.raises(GCFCPError, match="no summaries"):
        plan([])
    with pytest.raises(GCFCPError, match="alpha=2"):
        plan([everyone("k", 4)], 2)
    with pytest.raises(GCFCPError, match="rule='last'"):
        plan([everyone("k", 4)], rule="last")


def test_the_least_number_is_found_and_a_hopeless_search_asks_once() -> None:
    for wanted in (1, 2, 3, 100, 1000):
        assert least(wanted.__le__, 1000) == wanted
    asked: list[int] = []
    assert least(lambda m: bool(asked.append(m)), 2**40) is None
    assert asked == [2**40]
