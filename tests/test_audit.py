"""Audits of coverage: counts add up, intervals hold, and no small number can be computed from what
is published."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import gcfcp
from gcfcp import codec
from gcfcp.audit import (
    BROKEN,
    GIVEN_EVERYTHING,
    KEPT,
    NO_TARGET,
    UNKNOWN,
    Audit,
    Counts,
    count,
    publish,
    verdict,
)
from gcfcp.bounds import lower_bound

GROUPS = gcfcp.Groups(["all", "a", "b"])


def membership(n: int, seed: int, shares: tuple[float, ...] = (1.0, 0.4, 0.2)) -> np.ndarray:
    return np.random.default_rng(seed).random((n, len(shares))) < np.array(shares)


def make(n: int, seed: int, client: str = "x", coverage: float = 0.9, **options: object) -> Audit:
    rng = np.random.default_rng([7, seed])
    return gcfcp.audit(
        rng.random(n) < coverage,
        membership(n, seed),
        groups=GROUPS,
        client=client,
        set_size=rng.integers(0, 5, n),
        **options,
    )


# --- Counting ----------------------------------------------------------------------------------


def test_counts_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    rows, covered, size = membership(500, 3), rng.random(500) < 0.8, rng.integers(0, 4, 500)
    found = gcfcp.audit(covered, rows, groups=GROUPS, client="x", set_size=size)
    for g in range(3):
        assert found.total[g] == rows[:, g].sum()
        assert found.covered[g] == (covered & rows[:, g]).sum()
        assert found.size is not None
        assert found.size[g] == size[rows[:, g]].sum()
    for row, total, hit in zip(
        found.atom_membership, found.atom_total, found.atom_covered, strict=True
    ):
        same = (rows == row).all(axis=1)
        assert (total, hit) == (same.sum(), covered[same].sum())


@given(st.integers(0, 2**31), st.integers(1, 200), st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_counts_add_up_in_any_order(seed: int, n: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    rows, covered = rng.random((n, 3)) < 0.5, rng.random(n) < 0.7
    size = rng.integers(0, 9, n)
    cut = min(cut, n)

    limits = np.where(rng.random(n) < 0.3, np.inf, 1.0)

    def part(rows_of: slice) -> Counts:
        return count(
            covered[rows_of],
            rows[rows_of],
            groups=GROUPS,
            set_size=size[rows_of],
            labels=9,
            thresholds=limits[rows_of],
        )

    whole = publish(part(slice(None)), groups=GROUPS, client="x")
    first, second = part(slice(0, cut)), part(slice(cut, None))
    for both in (first + second, second + first):
        assert publish(both, groups=GROUPS, client="x") == whole


def test_records_in_no_group_are_counted_apart() -> None:
    rows = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]], dtype=bool)
    found = gcfcp.audit([1, 0, 1], rows, groups=GROUPS, client="x")
    assert found.uncovered == 1
    assert found.n == 3
    assert len(found.atom_total) == 2


@pytest.mark.parametrize(
    ("covered", "sizes", "message"),
    [
        ([True], None, "covered has shape"),
        ([0, 2], None, "true or false"),
        (["yes", "no"], None, "true or false"),
        ([1, 0], [1, -1], "negative or NaN"),
        ([1, 0], [1, math.nan], "negative or NaN"),
        ([1, 0], [1], "set_size has shape"),
        ([1, 0], ["a", "b"], "cannot be read as numbers"),
    ],
)
def test_what_cannot_be_counted_is_refused(covered: list, sizes: list, message: str) -> None:
    with pytest.raises(gcfcp.GCFCPError, match=message):
        gcfcp.audit(covered, np.ones((2, 3), bool), groups=GROUPS, client="x", set_size=sizes)


def test_unbounded_sets_make_the_mean_infinite_and_are_counted() -> None:
    rows = np.ones((4, 3), dtype=bool)
    found = gcfcp.audit([1, 1, 1, 0], rows, groups=GROUPS, client="x", set_size=[1, 2, np.inf, 3])
    record = gcfcp.merge_audits([found], alpha=0.1).groups[0]
    assert record.mean_size == math.inf
    assert record.unbounded == 1
    assert record.mean_bounded_size == 2.0


# --- Sets that say nothing -----------------------------------------------------------------------


def nothing(client: str = "x", n: int = 900, **options: object) -> Audit:
    """In group a every set is full, in b the last tenth is empty, and two labels are all."""
    rows = np.column_stack([np.ones(n, bool), np.arange(n) < n // 3, np.arange(n) >= n // 3])
    size = np.where(rows[:, 1], 2, 1)
    size[-n // 10 :] = 0
    limits = np.where(rows[:, 1], np.inf, 0.5)
    fields = {"labels": 2, "thresholds": limits, "set_size": size} | options
    return gcfcp.audit(size > 0, rows, groups=GROUPS, client=client, **fields)


def test_sets_that_say_nothing_are_counted() -> None:
    found = nothing()
    assert found.sets is not None
    assert [a.tolist() for a in found.sets.arrays] == [[300, 300, 0], [90, 0, 90], [300, 300, 0]]
    assert Audit.from_bytes(found.to_bytes()) == found
    for group, full, empty in zip(
        gcfcp.merge_audits([found], alpha=0.3).groups, (1 / 3, 1, 0), (0.1, 0, 0.15), strict=True
    ):
        assert (group.full, group.infinite) == (pytest.approx(full), pytest.approx(full))
        assert group.empty == pytest.approx(empty)
    # A full set may have a finite threshold, and without the number of labels none is full.
    assert nothing(thresholds=None).sets.infinite is None
    assert nothing(thresholds=None).sets.full.tolist() == [300, 300, 0]
    assert nothing(thresholds=None, labels=None).sets is None
    assert nothing(set_size=None, labels=None).sets.full is None
    point = gcfcp.audit([1], [[1, 0, 0]], groups=GROUPS, client="x", set_size=[0], thresholds=[0])
    assert point.sets is not None
    assert point.sets.empty.tolist() == [0, 0, 0]  # It is an interval of one point.


def test_a_promise_that_is_kept_by_full_sets_is_not_just_kept() -> None:
    groups = gcfcp.merge_audits([nothing()], alpha=0.3).groups
    assert [g.verdict for g in groups] == [KEPT, GIVEN_EVERYTHING, KEPT]
    assert str(gcfcp.merge_audits([nothing()], alpha=0.3)).count(GIVEN_EVERYTHING) == 1
    # The mixture decides how many sets are full, and what one client did not count is not known.
    plain = gcfcp.audit(
        np.ones(900), np.tile([[1, 1, 0]], (900, 1)), groups=GROUPS, client="y",
        set_size=np.ones(900), labels=2,
    )  # fmt: skip
    for share, verdict_ in ((0.95, GIVEN_EVERYTHING), (0.3, KEPT)):
        merged = gcfcp.merge_audits([nothing(), plain], {"x": share, "y": 1 - share}, alpha=0.3)
        weight = share / 3
        assert merged.groups[1].full == pytest.approx(weight / (weight + 1 - share))
        assert merged.groups[1].infinite is None
        assert merged.groups[1].verdict == verdict_
    unbounded = nothing(labels=None, thresholds=None, set_size=np.full(900, np.inf))
    groups = gcfcp.merge_audits([unbounded], alpha=0.05).groups
    assert [g.full for g in groups] == [1.0, 1.0, 1.0]
    assert groups[1].verdict == GIVEN_EVERYTHING


def test_verdicts_of_full_sets() -> None:
    assert verdict(0.9, 1.0, 0.1, 0.05, given=0.9) == GIVEN_EVERYTHING
    assert verdict(0.9, 1.0, 0.1, 0.05, given=0.89) == KEPT
    assert verdict(0.7, 1.0, 0.1, 0.05, given=1.0) == UNKNOWN
    assert verdict(0.7, 1.0, 0.1, 0.05, everything=True) == GIVEN_EVERYTHING
    assert verdict(0.7, 0.8, 0.1, 0.05, 1.0, everything=True) == BROKEN
    assert verdict(0.9, 1.0, None, None, 1.0, everything=True) == NO_TARGET


def test_with_a_min_count_only_what_the_predictor_tells_is_said() -> None:
    """The bytes are the same whatever the sizes and thresholds of the records are."""
    flags = [False, True, False]
    found = nothing(min_count=5, everything=flags)
    assert found.sets is None
    other = nothing(min_count=5, everything=flags, set_size=None, labels=None, thresholds=None)
    assert found.to_bytes() == gcfcp.Audit.from_bytes(found.to_bytes()).to_bytes()
    assert found.told is not None
    assert other.told is not None
    assert found.to_bytes() == other.to_bytes()
    groups = gcfcp.merge_audits([found], alpha=0.3).groups
    assert [g.verdict for g in groups] == [KEPT, GIVEN_EVERYTHING, KEPT]
    assert [g.full for g in groups] == [None] * 3
    # A missed record shows that the predictor does not give everything there.
    broken = nothing(everything=[True] * 3)
    assert gcfcp.merge_audits([broken], alpha=0.3).groups[2].verdict == KEPT


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.update(sets=None, everything=None),
        lambda h: h.update(sets={"full": None, "empty": None, "infinite": None}),
        lambda h: h["sets"].update(full=[301, 300, 0, 0]),
        lambda h: h["sets"].update(full=[901, 300, 0]),
        lambda h: h["sets"].update(empty=[-1, 0, 0]),
        lambda h: h["sets"].update(more=[0, 0, 0]),
        lambda h: h["sets"].pop("full"),
        lambda h: h.update(sets=[1]),
        lambda h: h.update(everything=[True, False]),
        lambda h: h.update(everything=[1, 0, 0]),
        lambda h: h.update(everything="yes"),
    ],
)
def test_counts_of_sets_that_cannot_be_are_refused(change: object) -> None:
    header, _ = codec.unpack(nothing(everything=[False] * 3).to_bytes(), b"A", 4, "x")
    change(header)
    with pytest.raises(gcfcp.GCFCPError, match=r"x\.audit"):
        Audit.from_bytes(codec.pack(b"A", 4, header, b""), "x.audit")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": 1}, "a set has 2 labels, but labels=1"),
        ({"labels": 0}, "labels=0"),
        ({"thresholds": [1.0]}, "thresholds has shape"),
        ({"thresholds": np.full(900, np.nan)}, "holds NaN"),
        ({"everything": [True]}, "everything does not have one true or false for each group"),
    ],
)
def test_what_cannot_be_said_of_sets_is_refused(options: dict, message: str) -> None:
    with pytest.raises(gcfcp.GCFCPError, match=message):
        nothing(**options)


# --- Site by site --------------------------------------------------------------------------------


def test_coverage_is_told_site_by_site() -> None:
    audits = [make(300, 0, "x", 0.95), make(50, 1, "y", 0.7), make(400, 2, "z", min_count=60)]
    report = gcfcp.merge_audits(audits, alpha=0.1)
    assert [(s.client, s.n) for s in report.sites] == [("x", 300), ("y", 50), ("z", 400)]
    tail = 0.05 / (2 * 9)
    for audited, site in zip(audits, report.sites, strict=True):
        for g, found in enumerate(site.groups):
            ranges = audited.ranges
            least, missed = int(ranges.least[g]), int(ranges.least_missed[g])
            assert (found.group, found.total) == (GROUPS.names[g], least)
            if ranges.exact[g]:
                assert found.coverage == (least - missed) / least
                hits = least - missed
                low = stats.beta.ppf(tail, hits, missed + 1) if hits else 0.0
                high = stats.beta.ppf(1 - tail, hits + 1, missed) if missed else 1.0
                assert found.low == pytest.approx(low, rel=1e-9)
                assert found.high == pytest.approx(high, rel=1e-9)
                assert found.low <= low
                assert found.high >= high
            else:
                assert found.coverage is None
                assert found.low < found.high
    assert not report.sites[2].groups[2].coverage  # The group is too small to be told.
    assert report.to_dict()["sites"][0]["groups"][0]["group"] == "all"


def test_hidden_records_only_widen_the_interval_of_a_site() -> None:
    for seed in range(20):
        plain, hidden = (make(120, seed, min_count=m) for m in (1, 8))
        for one, other in zip(
            *(gcfcp.merge_audits([a]).sites[0].groups for a in (plain, hidden)), strict=True
        ):
            assert other.low <= one.low
            assert one.high <= other.high
            assert other.total <= one.total <= other.total_at_most


def test_very_many_sites_are_not_told_one_by_one() -> None:
    from gcfcp.audit import MOST_SITES

    audits = [make(3, k, f"c{k}") for k in range(MOST_SITES + 1)]
    assert gcfcp.merge_audits(audits).sites == ()
    assert len(gcfcp.merge_audits(audits[1:]).sites) == MOST_SITES


# --- Disclosure --------------------------------------------------------------------------------


def test_small_groups_are_hidden_but_listed() -> None:
    rows = np.zeros((100, 3), dtype=bool)
    rows[:, 0] = True
    rows[:40, 1] = True
    rows[90:93, 2] = True
    found = gcfcp.audit(np.ones(100, bool), rows, groups=GROUPS, client="x", min_count=5)
    assert found.told is not None
    assert found.told.total.tolist() == [100, 40, -1]
    assert found.bound[2] == 4  # It is not the true number, which is 3.
    assert found.suppressed.all()  # That nobody was missed is not told of any group.
    record = gcfcp.merge_audits([found], alpha=0.1).groups[2]
    assert record.suppressed
    assert record.suppressed_at == ("x",)
    assert (record.total, record.total_at_most) == (0, 4)
    assert (record.coverage, record.lowest, record.highest) == (None, 0.0, 1.0)
    assert record.verdict == UNKNOWN


def test_the_interval_allows_for_what_is_suppressed() -> None:
    """Whatever the hidden records are, the interval that knows them lies inside this one."""
    rows = np.zeros((60, 3), dtype=bool)
    rows[:, 0] = True
    rows[:3, 1] = True
    other = make(200, 1, "y")
    hidden = gcfcp.audit(
        np.ones(60, bool), rows, groups=GROUPS, client="x", min_count=5, set_size=np.ones(60)
    )
    told = gcfcp.merge_audits([hidden, other], alpha=0.1).groups[1]
    for hits in range(4):
        covered = np.ones(60, bool)
        covered[: 3 - hits] = False
        shown = gcfcp.audit(covered, rows, groups=GROUPS, client="x", set_size=np.ones(60))
        known = gcfcp.merge_audits([shown, other], alpha=0.1).groups[1]
        assert told.low <= known.low
        assert told.high >= known.high


# --- Intervals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "total"), [(0, 1), (1, 1), (0, 50), (50, 50), (45, 50), (7, 9)])
def test_one_client_has_the_clopper_pearson_interval(hits: int, total: int) -> None:
    rows = np.ones((total, 1), dtype=bool)
    groups = gcfcp.Groups(["all"])
    found = gcfcp.audit(np.arange(total) < hits, rows, groups=groups, client="x")
    record = gcfcp.merge_audits([found], alpha=0.1, confidence=0.9).groups[0]
    reference = stats.binomtest(hits, total).proportion_ci(0.9, method="exact")
    assert record.low == pytest.approx(reference.low, abs=1e-12)
    assert record.high == pytest.approx(reference.high, abs=1e-12)


def test_the_adjustment_is_bonferroni_over_the_groups() -> None:
    report = gcfcp.merge_audits([make(400, 0)], alpha=0.1, confidence=0.95)
    for record in report.groups:
        exact = stats.binomtest(record.covered, record.total).proportion_ci(1 - 0.05 / 3, "exact")
        assert (record.low, record.high) == pytest.approx((exact.low, exact.high), abs=1e-12)
    assert report.adjustment == "Bonferroni over 3 groups"


def test_the_weighted_coverage_is_that_of_the_mixture() -> None:
    audits = [make(300, 0, "x", 0.95), make(900, 1, "y", 0.7)]
    weights = {"x": 0.25, "y": 0.75}
    report = gcfcp.merge_audits(audits, weights, alpha=0.1)
    for g, record in enumerate(report.groups):
        inside = sum(weights[a.client] * a.total[g] / a.n for a in audits)
        hit = sum(weights[a.client] * a.covered[g] / a.n for a in audits)
        size = sum(weights[a.client] * a.size[g] / a.n for a in audits)
        assert record.coverage == pytest.approx(hit / inside)
        assert record.mean_size == pytest.approx(size / inside)
        assert record.low <= record.coverage <= record.high


# --- Which mixture -----------------------------------------------------------------------------


def test_the_default_is_the_predictor_s_own_mixture() -> None:
    audits = [make(300, 0, "x", 0.95, share=0.25), make(600, 1, "y", 0.7, share=0.75)]
    report = gcfcp.merge_audits(audits, alpha=0.1)
    assert report.mixture == report.shares == {"x": 0.25, "y": 0.75}
    assert report.mixture_text == "the predictor's mixture (x 0.25, y 0.75)"
    given = gcfcp.merge_audits(audits, {"x": 0.25, "y": 0.75}, alpha=0.1)
    assert given.mixture_text == "weights that were given (x 0.25, y 0.75)"
    assert report.groups == given.groups
    for mixture, text in (
        ("uniform", "every site counts the same"),
        ("proportional", "in proportion to the audited records"),
    ):
        other = gcfcp.merge_audits(audits, mixture, alpha=0.1)
        text += "; the promise was made for another mixture (x 0.25, y 0.75)"
        assert (other.mixture, other.mixture_text) == (mixture, text)
        assert other.groups != report.groups


def test_shares_of_some_of_the_clients_are_scaled_and_the_text_says_so() -> None:
    audits = [make(300, 0, "x", share=0.1), make(900, 1, "y", share=0.3)]
    report = gcfcp.merge_audits(audits, alpha=0.1)
    assert report.shares == pytest.approx({"x": 0.25, "y": 0.75})
    assert report.mixture_text == (
        "the predictor's mixture (x 0.25, y 0.75) without the sites that were not audited, whose "
        "weight is 0.6"
    )
    none = gcfcp.merge_audits([make(300, 0, "x", share=0.0), audits[1]], alpha=0.1)
    assert none.shares == {"x": 0.0, "y": 1.0}


def test_without_shares_every_audited_record_counts_the_same() -> None:
    audits = [make(300, 0, "x", 0.95), make(900, 1, "y", 0.7)]
    report = gcfcp.merge_audits(audits, alpha=0.1)
    assert report.mixture == "proportional"
    assert report.mixture_text == "in proportion to the audited records"
    for g, record in enumerate(report.groups):
        hits, total = (sum(int(getattr(a, w)[g]) for a in audits) for w in ("covered", "total"))
        assert record.coverage == pytest.approx(hits / total)


def test_many_clients_are_counted_and_not_named() -> None:
    for K, own, told in (
        (3, "the predictor's mixture (c0 0.1667,", "weights that were given (c0 0.1667,"),
        (7, "the predictor's mixture of 7 sites", "weights that were given for 7 sites"),
    ):
        weights = np.arange(1, K + 1) / (K * (K + 1) / 2)
        audits = [make(20, k, f"c{k}", share=p) for k, p in enumerate(weights)]
        report = gcfcp.merge_audits(audits)
        assert report.mixture_text.startswith(own)
        assert report.promised_mixture
        assert gcfcp.merge_audits(audits, report.shares).mixture_text.startswith(told)


def test_a_mixture_that_the_audits_do_not_agree_on_must_be_given() -> None:
    some = [make(30, 0, "x", share=0.25), make(30, 1, "y"), make(30, 2, "z", share=0.5)]
    with pytest.raises(gcfcp.GCFCPError, match=r"'x' .*\(0.25\).* 'y' does not: .*mixture=\.\.\."):
        gcfcp.merge_audits(some)
    assert gcfcp.merge_audits(some, "uniform").mixture_text == "every site counts the same"
    zero = [make(30, 0, "x", share=0.0), make(30, 1, "y", share=0.0)]
    with pytest.raises(gcfcp.GCFCPError, match=r"weight 0 in the predictor's .*mixture=\.\.\."):
        gcfcp.merge_audits(zero)


def test_weights_that_have_a_name_are_called_by_it() -> None:
    audits = [make(300, 0, "x"), make(900, 1, "y")]
    for weights, text in (
        ({"x": 0.25, "y": 0.75}, "in proportion to the audited records"),
        ({"x": 0.5, "y": 0.5}, "every site counts the same"),
        ({"x": 0.1, "y": 0.9}, "weights that were given (x 0.1, y 0.9)"),
    ):
        report = gcfcp.merge_audits(audits, weights, alpha=0.1)
        assert (report.mixture_text, report.promised_mixture) == (text, None)


def test_a_verdict_under_another_mixture_than_the_promise_says_so() -> None:
    audits = [make(300, 0, "x", share=0.1), make(900, 1, "y", share=0.3)]
    own = gcfcp.merge_audits(audits, alpha=0.1)
    assert own.promised_mixture is True
    assert gcfcp.merge_audits(audits, "proportional", alpha=0.1).promised_mixture is True
    other = gcfcp.merge_audits(audits, "uniform", alpha=0.1)
    assert other.promised_mixture is False
    assert other.mixture_text == (
        "every site counts the same; the promise was made for another mixture (x 0.25, y 0.75)"
    )


def test_every_form_of_a_report_names_its_mixture() -> None:
    report = gcfcp.merge_audits([make(100, 0, "x", alpha=0.1, share=1)])
    text = "the predictor's mixture (x 1)"
    assert f"mixture of the clients: {text}" in str(report).splitlines()
    assert report.to_dict()["mixture_text"] == text
    assert report.to_dict()["mixture"] == {"x": 1.0}


@pytest.mark.slow
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_shares_add_up_to_one_in_any_order(shares: list[float]) -> None:
    audits = [make(9, k, f"c{k}", share=p) for k, p in enumerate(shares)]
    if not any(shares):
        with pytest.raises(gcfcp.GCFCPError, match="weight 0"):
            gcfcp.merge_audits(audits)
        return
    report = gcfcp.merge_audits(audits)
    assert math.fsum(report.shares.values()) == pytest.approx(1)
    assert gcfcp.merge_audits(audits[::-1]) == report


def exact_coverage(
    n: tuple[int, int],
    pi: tuple[float, float],
    share: tuple[float, float],
    hit: tuple[float, float],
    tail: float,
) -> tuple[float, float]:
    """The probability that the lower end lies above the truth, and that the upper end lies below.

    Every outcome of two clients is enumerated: how many records are covered, missed or outside.
    """
    truth = sum(p * s * c for p, s, c in zip(pi, share, hit, strict=True)) / sum(
        p * s for p, s in zip(pi, share, strict=True)
    )
    outcomes, chances = [], []
    for size, s, c in zip(n, share, hit, strict=True):
        grid = [(a, b) for a in range(size + 1) for b in range(size + 1 - a)]
        cells = np.array([(a, b, size - a - b) for a, b in grid])
        chances.append(stats.multinomial.pmf(cells, size, [s * c, s * (1 - c), 1 - s]))
        outcomes.append(cells[:, :2])
    first, second = np.meshgrid(
        np.arange(len(outcomes[0])), np.arange(len(outcomes[1])), indexing="ij"
    )
    chance = np.outer(*chances)[first, second].ravel()
    likely = chance > 1e-12
    hits = np.stack([outcomes[0][first.ravel()[likely], 0], outcomes[1][second.ravel()[likely], 0]])
    misses = np.stack(
        [outcomes[0][first.ravel()[likely], 1], outcomes[1][second.ravel()[likely], 1]]
    )
    v, sizes = np.array(pi) / np.array(n), np.array(n)
    low = lower_bound(hits, misses, v, sizes, tail)
    high = 1 - lower_bound(misses, hits, v, sizes, tail)
    return (
        float(chance[likely][low > truth + 1e-12].sum()),
        float(chance[likely][high < truth - 1e-12].sum()),
    )


@pytest.mark.parametrize(
    ("n", "pi", "share", "hit"),
    [
        ((12, 12), (0.5, 0.5), (0.9, 0.9), (0.9, 0.9)),
        ((14, 6), (0.5, 0.5), (0.5, 1.0), (0.95, 0.6)),  # A small client weighs as much.
        ((10, 14), (0.9, 0.1), (0.3, 0.9), (0.2, 0.99)),
        ((8, 15), (0.2, 0.8), (1.0, 0.2), (0.5, 0.5)),
        ((15, 9), (0.6, 0.4), (0.9, 0.1), (1.0, 0.0)),  # One is always covered, one never.
    ],
)
def test_the_betting_bound_holds_exactly(n: tuple, pi: tuple, share: tuple, hit: tuple) -> None:
    for tail in (0.1, 0.025):
        below, above = exact_coverage(n, pi, share, hit, tail)
        assert below <= tail
        assert above <= tail


def test_the_betting_bound_holds_where_a_pooled_interval_does_not() -> None:
    """Two clients have weight one half each, and 20 and 1000 records. The Clopper-Pearson interval
    of all records together misses the truth in most audits, ours in at most one of twenty."""
    rng = np.random.default_rng(5)
    n, hit, tail, runs = np.array([20, 1000]), np.array([0.6, 0.95]), 0.025, 2000
    hits = rng.binomial(n[:, None], hit[:, None], size=(2, runs))
    misses = n[:, None] - hits
    truth = hit.mean()
    low = lower_bound(hits, misses, 0.5 / n, n, tail)
    high = 1 - lower_bound(misses, hits, 0.5 / n, n, tail)
    pooled = stats.beta.ppf(tail, hits.sum(axis=0), misses.sum(axis=0) + 1)
    assert np.mean((low > truth) | (high < truth)) <= 2 * tail
    assert np.mean(pooled > truth) > 0.9


def test_the_betting_bound_is_not_much_wider_than_the_best_there_could_be() -> None:
    """For equal clients of equal weight it is compared with Clopper-Pearson over all records."""
    for records in (100, 1000, 10_000):
        n = np.full(5, records // 5)
        hits = (0.9 * n).astype(int)[:, None]
        misses = n[:, None] - hits
        for tail in (0.025, 0.0025):
            low = lower_bound(hits, misses, 0.2 / n, n, tail)[0]
            best = stats.beta.ppf(tail, hits.sum(), misses.sum() + 1)
            assert low <= best
            assert (0.9 - low) <= 1.75 * (0.9 - best)


@given(st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_bounds_rise_with_hits_and_fall_with_misses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = rng.integers(5, 100, 3)
    hits = rng.integers(0, n)
    misses = rng.integers(0, n - hits + 1)
    v = rng.random(3) / n
    k = rng.integers(3)
    step = np.arange(3) == k
    base = lower_bound(hits[:, None], misses[:, None], v, n, 0.025)[0]
    assert lower_bound((hits + step)[:, None], misses[:, None], v, n, 0.025)[0] >= base
    assert lower_bound(hits[:, None], (misses + step)[:, None], v, n, 0.025)[0] <= base


# --- Merging -----------------------------------------------------------------------------------


def test_any_order_gives_the_same_report() -> None:
    audits = [make(50 + 10 * i, i, f"c{i}") for i in range(4)]
    reports = {str(gcfcp.merge_audits(p, alpha=0.1)) for p in itertools.permutations(audits)}
    assert len(reports) == 1


def test_empty_groups_are_listed() -> None:
    rows = np.array([[1, 0, 0]] * 30, dtype=bool)
    report = gcfcp.merge_audits(
        [gcfcp.audit(np.ones(30), rows, groups=GROUPS, client="x")], alpha=0.1
    )
    assert [g.group for g in report.groups] == ["all", "a", "b"]
    empty = report.groups[1]
    assert (empty.coverage, empty.total, empty.low, empty.high) == (None, 0, 0.0, 1.0)
    assert empty.verdict == UNKNOWN
    assert "no records" in str(report)


def test_a_client_without_weight_changes_nothing() -> None:
    audits = [make(300, 0, "x"), make(300, 1, "y", 0.2)]
    report = gcfcp.merge_audits(audits, {"x": 1.0, "y": 0.0}, alpha=0.1)
    alone = gcfcp.merge_audits(audits[:1], alpha=0.1)
    assert report.groups == alone.groups
    assert "Clopper-Pearson" in report.interval


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.5, 0.8999, BROKEN),
        (0.86, 0.89, BROKEN),  # It is within the margin, but shown to be below 1 - alpha.
        (0.85, 0.95, KEPT),
        (0.93, 0.99, KEPT),
        (0.84, 0.95, UNKNOWN),
        (0.0, 1.0, UNKNOWN),
    ],
)
def test_verdicts(low: float, high: float, expected: str) -> None:
    assert verdict(low, high, 0.1, 0.05) == expected
    assert verdict(low, high, None, None) == NO_TARGET


def test_alpha_travels_with_the_audits() -> None:
    report = gcfcp.merge_audits([make(100, 0, "x", alpha=0.2), make(100, 1, "y", alpha=0.2)])
    assert report.alpha == 0.2
    assert report.margin == 0.1
    with pytest.raises(gcfcp.GCFCPError, match="different alpha"):
        gcfcp.merge_audits([make(100, 0, "x", alpha=0.2), make(100, 1, "y", alpha=0.1)])
    assert gcfcp.merge_audits([make(100, 0, "x")]).groups[0].verdict == NO_TARGET


def test_what_does_not_belong_together_is_refused() -> None:
    first = make(50, 0, "x", predictor="p1")
    others = gcfcp.Groups(["all", "a", "c"])
    cases = {
        "two different audits": [first, make(50, 1, "x", predictor="p1")],
        "one groups file": [
            first,
            gcfcp.audit(np.ones(5), np.ones((5, 3)), groups=others, client="y", predictor="p1"),
        ],
        "with predictor": [first, make(50, 1, "y", predictor="p2")],
        "set_size": [
            first,
            gcfcp.audit(np.ones(5), np.ones((5, 3)), groups=GROUPS, client="y", predictor="p1"),
        ],
        "no audits": [],
    }
    for message, audits in cases.items():
        with pytest.raises(gcfcp.GCFCPError, match=message):
            gcfcp.merge_audits(audits)
    for options in (
        {"mixture": "equal"},
        {"mixture": {"x": 0.5}},
        {"confidence": 1.0},
        {"alpha": 1.0},
        {"alpha": 0.1, "margin": -0.1},
    ):
        with pytest.raises(gcfcp.GCFCPError):
            gcfcp.merge_audits([first], **options)


def test_the_report_is_plain_json() -> None:
    import json

    report = gcfcp.merge_audits([make(100, 0, "x", alpha=0.1)])
    text = json.dumps(report.to_dict(), allow_nan=False)
    assert [g["group"] for g in json.loads(text)["groups"]] == ["all", "a", "b"]


# --- Bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("min_count", [1, 5, 40])
def test_a_round_trip_is_the_same_audit(min_count: int, tmp_path: object) -> None:
    found = make(90, 2, min_count=min_count, alpha=0.1, predictor="abc")
    again = Audit.from_bytes(found.to_bytes())
    assert again == found
    assert again.to_bytes() == found.to_bytes()
    assert np.array_equal(again.total, found.total)
    path = f"{tmp_path}/x.audit"
    found.save(path)
    assert Audit.load(path) == found


@given(
    st.integers(0, 2**31),
    st.integers(1, 80),
    st.integers(1, 9),
    st.none() | st.floats(0, 1) | st.fractions(0, 1) | st.sampled_from([0, 1, -0.0]),
)
@settings(max_examples=80, deadline=None)
def test_a_round_trip_keeps_the_share(seed: int, n: int, m: int, share: object) -> None:
    found = make(n, seed, min_count=m, alpha=0.1, predictor="abc", share=share)
    data = found.to_bytes()
    again = Audit.from_bytes(data)
    assert (again, again.to_bytes()) == (found, data)
    assert again.share == (None if share is None else float(share))
    # This byte is the format version.
    assert data[6] == (3 if m > 1 else 1 if share is None else 2)
    assert (b'"share"' in data) == (share is not None or m > 1)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf, True, "1", [0.5], 10**400])
def test_a_share_is_a_number_from_0_to_1(share: object) -> None:
    with pytest.raises(gcfcp.GCFCPError, match=r"share=.* is not a number from 0 to 1"):
        make(60, 4, share=share)


def test_equal_shares_are_written_in_one_way() -> None:
    assert make(60, 4, share=1).to_bytes() == make(60, 4, share=np.float32(1)).to_bytes()
    assert make(60, 4, share=-0.0).to_bytes() == make(60, 4, share=0).to_bytes()
    assert make(60, 4, share=0.5) != make(60, 4, share=0.25)


def test_a_file_has_a_share_if_and_only_if_its_version_says_so() -> None:
    header, _ = codec.unpack(make(60, 4).to_bytes(), b"A", 1, "x")
    for version, more, message in (
        (1, {"share": 0.5}, "it has a share, but its format version 1 has none"),
        (1, {"share": None}, "it has a share, but its format version 1 has none"),
        (2, {}, "the field 'share' is missing"),
        (2, {"share": None}, "share=None is not a number from 0 to 1"),
        (2, {"share": 1.5}, "share=1.5 is not a number from 0 to 1"),
        (2, {"share": "1"}, "share='1' is not a number from 0 to 1"),
        (3, {"share": 0.5}, "the field 'round' is missing"),
        (3, {"share": 0.5, "round": None, "date": None}, "is not written in the one way"),
        (4, {"share": 0.5}, "the field 'round' is missing"),
        (4, {"share": 0.5, "round": None, "date": None}, "the field 'sets' is missing"),
        (5, {"share": 0.5}, "format version 5; this gcfcp reads versions 1 to 4: upgrade gcfcp"),
        (0, {}, "format version 0; this gcfcp reads versions 1 to 4: make the file again"),
    ):
        with pytest.raises(gcfcp.GCFCPError, match=message):
            Audit.from_bytes(codec.pack(b"A", version, header | more, b""), "x.audit")
    assert Audit.from_bytes(codec.pack(b"A", 2, header | {"share": 1}, b"")).share == 1.0


def repacked(change: object) -> bytes:
    header, _ = codec.unpack(make(60, 4).to_bytes(), b"A", 1, "x")
    change(header)
    return codec.pack(b"A", 1, header, b"")


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.update(total=[1]),
        lambda h: h.update(total="many"),
        lambda h: h.update(total=[None, 3, 3]),
        lambda h: h.update(covered=[61, 61, 61]),
        lambda h: h.update(covered=[1.5, 1, 1]),
        lambda h: h.update(n=-1),
        lambda h: h.update(n=True),
        lambda h: h.update(atoms=["zz"]),
        lambda h: h.update(atoms=["ff"]),
        lambda h: h.update(atoms=h["atoms"][:1]),
        lambda h: h.update(fingerprint="0"),
        lambda h: h.update(groups=["all", "all", "b"]),
        lambda h: h.update(size=[10**400, 0, 0]),
        lambda h: h.update(size=None),
        lambda h: h.update(client="\x1b[31m"),
        lambda h: h.update(alpha=2),
        lambda h: h.update(bound=[0, 0, 0]),
        lambda h: h.update(min_count=50),
        lambda h: h.update(unbounded=[100, 0, 0]),
        lambda h: h.pop("uncovered"),
        lambda h: h.update(atom_total=[10**30] * len(h["atoms"])),
    ],
)
def test_hostile_headers_are_one_line(change: object) -> None:
    with pytest.raises(gcfcp.GCFCPError) as caught:
        Audit.from_bytes(repacked(change), "x.audit")
    assert "x.audit" in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_bytes_are_one_line(data: st.DataObject) -> None:
    good = make(60, 4).to_bytes()
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    for bad in (damaged, good[:at], good + b"x", b""):
        with pytest.raises(gcfcp.GCFCPError):
            Audit.from_bytes(bad)


def test_a_report_is_kept_unless_a_group_is_broken() -> None:
    def report(covered: int, total: int, alpha: float | None) -> gcfcp.AuditReport:
        sent = gcfcp.audit(
            np.arange(total) < covered,
            np.ones((total, 1)),
            groups=gcfcp.Groups(["all"]),
            client="x",
        )
        return gcfcp.merge_audits([sent], alpha=alpha)

    for covered, total, alpha, said, kept in (
        (1000, 1000, 0.1, KEPT, True),
        (9, 10, 0.1, UNKNOWN, True),
        (500, 1000, None, NO_TARGET, True),
        (500, 1000, 0.1, BROKEN, False),
    ):
        found = report(covered, total, alpha)
        assert found.groups[0].verdict == said
        assert found.kept is kept


def test_a_report_in_words_says_what_was_promised_if_it_is_known():
    groups = gcfcp.Groups(["all"])
    one = gcfcp.audit([True] * 9 + [False], np.ones((10, 1)), groups=groups, client="a")
    assert "promised 0.8" in str(gcfcp.merge_audits([one], alpha=0.2))
    assert "promised" not in str(gcfcp.merge_audits([one]))


def test_the_site_of_an_audit_is_its_client() -> None:
    groups = gcfcp.Groups(["all", "old"], sites=["a", "b"])
    membership = np.array([[1, 0], [1, 1], [1, 1]])
    found = gcfcp.audit([1, 0, 1], membership, groups=groups, client="b")
    assert found.total.tolist() == [3, 2, 0, 3]
    assert found.covered.tolist() == [2, 1, 0, 2]
    assert gcfcp.Audit.from_bytes(found.to_bytes()) == found
    full = groups.complete(membership, "b")
    assert gcfcp.audit([1, 0, 1], full, groups=groups, client="b") == found
    with pytest.raises(gcfcp.GCFCPError, match="row 1 belongs to site b, but its site is 'a'"):
        gcfcp.audit([1, 0, 1], full, groups=groups, client="a")
    with pytest.raises(gcfcp.GCFCPError, match="site='c' is not one of the sites a, b"):
        gcfcp.audit([1, 0, 1], membership, groups=groups, client="c")
