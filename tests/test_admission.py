"""What a site cannot gain by claims: aggregates, rounds, shares, suppressed records, atoms, twins.

Each test of an attack fails on 0.1.0.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import ClientSummary, GCFCPError, GCFCPWarning, Groups, calibrate, plan, summarize
from gcfcp.calibration import Admission, parse_aggregates, screen, set_aside
from gcfcp.calibration.clients import twins
from gcfcp.report import render

TWO = Groups({"all": "TRUE", "rare": "r = 1"})


def site(name: str, n: int = 200, rare: float = 0.1, seed: int = 0, **options) -> ClientSummary:
    """An honest site; its scores and memberships depend on its name."""
    rng = np.random.default_rng([seed, *name.encode()])
    member = np.column_stack([np.ones(n, bool), rng.random(n) < rare])
    return summarize(rng.random(n), member, groups=TWO, client=name, **options)


def sites(count: int, **options) -> list[ClientSummary]:
    return [site(f"s{k:02}", **options) for k in range(count)]


# --- Aggregates -----------------------------------------------------------------------------------


def claiming(summary: ClientSummary, members: int) -> ClientSummary:
    """The same summary, which says that it stands for so many clients."""
    names = [f"made-up-{k:04}" for k in range(members)]
    left = summary.n - members + 1
    given = ((names[0], left), *((name, 1) for name in names[1:]))
    return ClientSummary.from_bytes(replace(summary, members=given).to_bytes())


def test_one_of_five_sites_cannot_claim_a_thousand_members() -> None:
    """On 0.1.0 it had 0.996 of the uniform mixture."""
    *honest, last = sites(5, n=2000)
    liar = claiming(last, 1000)
    for use in (
        lambda **more: calibrate([*honest, liar], 0.1, "uniform", **more),
        lambda **more: plan([*honest, liar], 0.1, "uniform", **more),
        lambda **more: gcfcp.merge([*honest, liar], "region", **more),
        lambda **more: gcfcp.fit_shape([*honest, liar], 0.1, **more),
        lambda **more: screen([*honest, liar], **more),
    ):
        with pytest.raises(GCFCPError, match=r"s04 says that it stands for 1,000 clients.*named"):
            use()
        with pytest.raises(GCFCPError, match="1,000 clients, but the server knows of 3"):
            use(aggregates={"s04": 3})
    with pytest.raises(GCFCPError, match=r"'uniform' counts an aggregate as its sites"):
        calibrate([*honest, liar], 0.1, "uniform", aggregates=["s04"])
    with pytest.raises(GCFCPError, match=r"'paper' counts an aggregate as its sites"):
        calibrate([*honest, liar], 0.1, correction="paper", aggregates=["s04"])
    # A name is enough where the number of sites does not count.
    shares = calibrate([*honest, liar], 0.1, aggregates=["s04"]).shares
    assert shares["s04"] == pytest.approx(0.2)


def test_an_aggregate_weighs_as_many_sites_as_the_server_says() -> None:
    parts = sites(3)
    north, other = gcfcp.merge(parts, "north"), site("south")
    made = calibrate([north, other], 0.1, "uniform", aggregates={"north": 3, "west": 7})
    assert made.shares == {"north": 0.75, "south": 0.25}
    assert made.retarget(alpha=0.2).shares == made.shares
    assert made.without("south").shares == {"north": 1.0}
    assert made.unseen_site()
    assert made.shape.groups == TWO
    text = gcfcp.Predictor("own", made).to_json()
    assert gcfcp.Predictor.from_json(text).provenance["clients"][0]["members"] == 3
    with pytest.raises(GCFCPError, match="aggregates='north' is not a list"):
        calibrate([north, other], 0.1, aggregates="north")
    with pytest.raises(GCFCPError, match="whole number"):
        calibrate([north, other], 0.1, aggregates={"north": 0})


def test_aggregates_as_people_write_them() -> None:
    assert parse_aggregates(["north=3", " south "]) == {"north": 3, "south": None}
    assert parse_aggregates(["a=b", "x=1=2"]) == {"a=b": None, "x=1": 2}
    with pytest.raises(GCFCPError, match="named twice"):
        parse_aggregates(["a", "a=2"])


# --- Suppressed records ---------------------------------------------------------------------------


def test_431_bytes_cannot_claim_a_million_suppressed_records() -> None:
    """On 0.1.0 these bytes made a group of 2,000 honest records infinite."""
    small = site("liar", n=30, min_count=10, by="atom", rare=0.0)
    described = int(small.counts.sum())
    assert described
    for by, told in (
        ("atom", {"suppressed": 10**6, "suppressed_groups": (10**6,) * 2, "n": 10**6 + described}),
        ("group", {"suppressed_groups": (0, 10**6), "n": 10**6}),
    ):
        made = small if by == "atom" else site("liar", n=40, min_count=10, by="group", rare=0.0)
        if by == "group":  # Its one group holds all of the records that it claims.
            told |= {"counts": np.array([10**6]), "errors": np.array([0])}
            told |= {"start": np.array([0, 1]), "values": made.values[-1:]}
        told["members"] = (("liar", told["n"]),)
        with pytest.raises(GCFCPError, match=r"1,000,000 records.*there can be at most (2|3)\d"):
            replace(made, **told)


def test_many_records_of_middling_atoms_may_all_be_withheld() -> None:
    """Six of eight atoms have 26 records. None of them could give up 18 and keep 10."""
    groups = gcfcp.Groups(["a", "b", "c"])
    member = np.repeat(np.array(list(np.ndindex(2, 2, 2)))[2:], 26, axis=0).astype(bool)
    scores = np.random.default_rng(0).random(len(member))
    made = gcfcp.summarize(scores, member, groups=groups, client="a", min_count=10)
    assert made.suppressed == made.n == 6 * 26


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.integers(0, 10_000),
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from(["atom", "group"]),
    st.booleans(),
)
def test_what_summarize_makes_is_never_called_impossible(
    seed: int, m: int, G: int, by: str, everyone: bool
) -> None:
    """Groups that are nearly everyone, nearly nobody, or nearly each other are the hard cases."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6 * m + 5))
    member = rng.random((n, G)) < rng.choice([0.02, 0.1, 0.5, 0.9, 0.98], G)
    if G > 1 and rng.random() < 0.5:
        member[:, 1] = member[:, 0] ^ (rng.random(n) < 0.1) ^ bool(rng.random() < 0.5)
    predicates = {f"g{g}": f"x > {g}" for g in range(G)}
    if everyone:
        predicates["g0"], member[:, 0] = "TRUE", True
    absent = [f"g{g}" for g in range(G) if not member[:, g].any() and rng.random() < 0.5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        made = summarize(
            rng.random(n),
            member,
            groups=Groups(predicates),
            client="a",
            min_count=m,
            by=by,
            absent=absent,
        )
    assert ClientSummary.from_bytes(made.to_bytes()) == made


# --- Shares ---------------------------------------------------------------------------------------


def rare_claims(share: float = 1.0, n: int = 2000, low: bool = True) -> list[ClientSummary]:
    """19 honest sites with 0.5 % of a rare group, and one that declares its records rare."""
    honest = sites(19, n=n, rare=0.005)
    member = np.column_stack([np.ones(n, bool), np.arange(n) < share * n])
    scores = np.full(n, 0.0) + 1e-9 * np.arange(n) if low else np.full(n, np.inf)
    return [*honest, summarize(scores, member, groups=TWO, client="liar")]


def coverage(calibration: gcfcp.Calibration) -> dict[str, float]:
    """The coverage at the honest sites, whose scores are uniform on [0, 1] in every group."""
    rows = {"all": [1, 0], "rare": [1, 1]}
    return {g: min(1.0, float(calibration.thresholds([row])[0])) for g, row in rows.items()}


def test_a_site_that_declares_its_records_rare_is_flagged_and_can_be_refused() -> None:
    """On 0.1.0 nothing said that the rare group, of 0.5 %, had lost its coverage."""
    summaries = rare_claims()
    made = calibrate(summaries, 0.1)
    assert coverage(made)["rare"] < 0.05
    (flagged,) = (s for s in screen(summaries) if s.flagged)
    assert (flagged.client, flagged.group, flagged.odd_composition) == ("liar", "rare", True)
    assert "100.0% of its records are in group 'rare', against 0.4%" in str(flagged)
    found = plan(summaries, 0.1)
    rare = found.groups[1]
    assert rare.largest_client == "liar"
    assert rare.largest_share == pytest.approx(2000 / made.guarantee[1].records)
    assert f"({rare.largest_share:.1%} from liar)" in str(found)
    assert "! liar is unlike the other clients" in str(found)
    page = render(gcfcp.Predictor("own", made), date="today")
    assert "rare: liar (93" in page  # 92.3 %, rounded up to whole percent.
    with pytest.raises(GCFCPError, match=r"liar has 9\d.\d% of the weight of group 'rare'"):
        calibrate(summaries, 0.1, max_share=0.5)
    with pytest.raises(GCFCPError, match="liar has"):
        calibrate(summaries, 0.1, "uniform", max_share=0.5)
    allowed = calibrate(summaries, 0.1, max_share=0.5, allow_share=["liar"])
    assert allowed.shares == made.shares
    assert allowed.without("liar").admission.allow_share == ()
    with pytest.raises(GCFCPError, match="allow_share names 'lair'"):
        calibrate(summaries, 0.1, max_share=0.5, allow_share=["lair"])


def test_a_share_counts_suppressed_records() -> None:
    """With a min_count of its own of a million, a site may suppress as many records."""
    liar = summarize(
        np.arange(10.0), np.ones((10, 2)), groups=TWO, client="liar", min_count=11, by="atom"
    )
    n = 10**6
    liar = replace(
        liar,
        n=n,
        min_count=n + 1,
        suppressed=n,
        suppressed_groups=(n, n),
        members=(("liar", n),),
    )
    with pytest.warns(GCFCPWarning, match="no finite threshold"):
        calibrate([*sites(5), liar], 0.1)
    with pytest.raises(GCFCPError, match=r"liar has 99.9% of the weight of group 'all'"):
        calibrate([*sites(5), liar], 0.1, max_share=0.5)


def test_a_site_that_hides_a_group_is_named_with_what_it_hides() -> None:
    """It may have no record of the group, and weighs in it all the same. The line says so.

    Its 9 records count, because they are charged at +inf and can make the group infinite.
    """
    options = {"by": "group", "min_count": 10}
    small = site("tiny", n=20, rare=0.0, **options)
    others = [site(f"s{k}", n=2000, rare=0.02, **options) for k in range(2)]
    with pytest.raises(GCFCPError) as error:
        calibrate([*others, small], 0.1, "uniform", max_share=0.8)
    assert re.search(
        r"tiny has 9.* of the weight of group 'rare', with 0 records and up to 9 that it hides",
        str(error.value),
    )
    for remedy in ("declare the group absent", "lower min_count", "--allow-share tiny"):
        assert remedy in str(error.value)
    declared = site("tiny", n=20, rare=0.0, absent=["rare"], **options)
    made = calibrate([*others, declared], 0.1, "uniform", max_share=0.8)
    assert all(one.described == one.records for one in made.largest_shares)


def test_a_share_is_computed_from_the_weights() -> None:
    summaries = [site("a", 300), site("b", 100)]
    made = calibrate(summaries, 0.1, {"a": 0.1, "b": 0.9})
    (of_all, of_rare) = made.largest_shares
    assert (of_all.client, of_all.share) == ("b", pytest.approx(0.9, rel=0.01))
    counts = [int((s.atom_counts @ s.membership)[1]) for s in summaries]
    weights = [0.1 * counts[0] / 300, 0.9 * counts[1] / 100]
    assert of_rare.share == pytest.approx(weights[1] / sum(weights), rel=0.01)
    with pytest.raises(GCFCPError, match="max_share=1 is not in"):
        calibrate(summaries, 0.1, max_share=1)


def test_the_group_of_a_site_is_its_own() -> None:
    groups = Groups(["all"], sites=["a", "b"])
    rng = np.random.default_rng(0)
    both = [
        summarize(rng.random(50), np.ones((50, 1)), groups=groups, client=name) for name in "ab"
    ]
    made = calibrate(both, 0.1, max_share=0.6)
    assert [s.group for s in made.largest_shares] == ["all"]
    assert not any(s.flagged for s in screen(both))


# --- Composition ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_false_alarms_of_composition_are_below_their_bound() -> None:
    """In the hardest case a group is exactly `ratio` times as common at a client."""
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(300):
        summaries = []
        for k in range(5):
            n = int(rng.integers(50, 2000))
            rare = rng.random(n) < (0.1 if k == 0 else 0.02)
            member = np.column_stack([np.ones(n, bool), rare])
            summaries.append(summarize(rng.random(n), member, groups=TWO, client=f"c{k}"))
        alarms += any(s.odd_composition for s in screen(summaries))
    assert alarms <= 0.05 * 300


def test_a_site_with_few_or_none_of_a_group_is_not_flagged() -> None:
    summaries = [*sites(6, n=3000, rare=0.5), site("none", 3000, rare=0.0)]
    assert not any(s.flagged for s in screen(summaries))
    absent = [site(f"x{k}", 3000, rare=0.0, absent=["rare"]) for k in range(5)]
    assert not any(s.flagged for s in screen([*absent, site("only", 3000, rare=0.9)]))


def test_tiny_sites_do_not_hide_an_odd_one() -> None:
    summaries = [*rare_claims(0.2), *(site(f"t{k}", 2, rare=0.0) for k in range(8))]
    assert "liar" in [s.client for s in screen(summaries) if s.odd_composition]


# --- Rounds ---------------------------------------------------------------------------------------


def test_a_summary_of_last_quarter_cannot_be_sent_again() -> None:
    now = [site(f"s{k}", round="2026Q4", date="2026-11-17") for k in range(3)]
    old, none = site("s2", seed=1, round="2026Q3"), site("s2", seed=1)
    made = calibrate(now, 0.1, round="2026Q4")
    assert made.round == "2026Q4"
    assert gcfcp.Predictor("own", made).provenance["round"] == "2026Q4"
    assert "2026Q4" in render(gcfcp.Predictor("own", made), date="today")
    with pytest.raises(GCFCPError, match="s2 is a summary of round '2026Q3', not of round '2026Q4"):
        calibrate([*now[:2], old], 0.1, round="2026Q4")
    with pytest.raises(GCFCPError, match="s2 is a summary of no round, not of round '2026Q4'"):
        plan([*now[:2], none], 0.1, round="2026Q4")
    # Rounds never mix, whether or not the server names one.
    with pytest.raises(GCFCPError, match="s2 was summarised with round '2026Q3', s0 with '2026Q4"):
        calibrate([*now[:2], old], 0.1)
    with pytest.raises(GCFCPError, match="round None"):
        calibrate([*now[:2], none], 0.1)
    merged = gcfcp.merge(now, "north", round="2026Q4")
    assert (merged.round, merged.date) == ("2026Q4", "2026-11-17")
    later = [*now[:2], replace(now[2], date="2026-11-18")]
    assert gcfcp.merge(later, "north").date is None


@pytest.mark.parametrize("by", ["atom", "group"])
def test_a_round_is_in_the_bytes_and_nothing_else_changes(by: str) -> None:
    plain = site("a", by=by, min_count=2)
    named = site("a", by=by, min_count=2, round="2026Q4")
    assert named != plain
    assert replace(named, round=None) == plain
    assert ClientSummary.from_bytes(named.to_bytes()).round == "2026Q4"
    assert named.source == plain.source
    assert plain.to_bytes()[6] == (1 if by == "atom" else 3)
    assert named.to_bytes()[6] == 4
    for wrong in ({"round": ""}, {"round": "a\n"}, {"date": "17.11.2026"}, {"date": "2026-13-01"}):
        with pytest.raises(GCFCPError, match=next(iter(wrong))):
            site("a", by=by, **wrong)
    import datetime

    assert site("a", date=datetime.date(2026, 11, 17)).date == "2026-11-17"


def test_a_shape_of_the_same_records_is_refused_in_any_round() -> None:
    """No record may be behind both the shape and the levels, whatever the round is called."""
    shape = gcfcp.fit_shape([site("a", round="2026Q3")], 0.1)
    with pytest.raises(GCFCPError, match="made from this very summary"):
        calibrate([site("a", round="2026Q4")], 0.1, shape=shape)
    with pytest.raises(GCFCPError, match="these very records"):
        site("a", by="group", shape=shape, round="2026Q4")


# --- Twins ----------------------------------------------------------------------------------------


def test_one_content_under_two_names_is_named() -> None:
    """On 0.1.0 the site `a` got the weight of two sites, without a word."""
    a, b = site("a"), site("b")
    copy = replace(a, client="z", members=(("z", a.n),))
    with pytest.warns(GCFCPWarning, match="a, z sent the same values and counts under different"):
        made = calibrate([a, b, copy], 0.1)
    assert made.twins == (("a", "z"),)
    assert "a, z sent the same" in str(plan([a, b, copy], 0.1))
    assert "a, z sent the same" in render(gcfcp.Predictor("own", made), date="today")
    # Another round, date, min_count or library does not hide it.
    assert twins([a, replace(copy, round="x", date="2026-01-01", library="y")]) == (("a", "z"),)


def test_many_contents_under_two_names_are_told_in_few_words() -> None:
    sites = [site(f"k{k}", seed=k) for k in range(9)]
    copies = [replace(s, client=f"z{s.client}", members=((f"z{s.client}", s.n),)) for s in sites]
    with pytest.warns(GCFCPWarning) as caught:
        made = calibrate([*sites, *copies], 0.1)
    texts = [str(w.message) for w in caught]
    assert [t.split(" sent")[0] for t in texts] == ["k0, zk0", "k1, zk1", "14 other clients"]
    assert texts[2] == (
        "14 other clients sent 7 contents under several names each, such as k2, zk2: ask them, too"
    )
    assert len(made.twins) == 9


def test_small_and_discrete_sites_are_not_accused() -> None:
    one = Groups(["all"])
    rng = np.random.default_rng(0)
    for scores in (np.full(500, 0.5), rng.random(19), np.arange(9.0).repeat(9)):
        both = [summarize(scores, np.ones((len(scores), 1)), groups=one, client=k) for k in "ab"]
        assert twins(both) == ()


# --- Atoms ----------------------------------------------------------------------------------------


def test_1994_atoms_are_refused_with_one_line() -> None:
    """On 0.1.0 these 28 kB took half a minute."""
    G, a = 12, 1994
    rng = np.random.default_rng(0)
    bits = rng.choice(2 ** (G - 1), a, replace=False)
    rows = np.column_stack([np.ones(a, bool), (bits[:, None] >> np.arange(G - 1)) & 1 == 1])
    groups = Groups([f"g{i}" for i in range(G)])
    many = summarize(rng.random(a), rows, groups=groups, client="many")
    few = summarize(rng.random(a), rows[:50].repeat(40, axis=0)[:a], groups=groups, client="few")
    assert len(many.to_bytes()) < 28_000
    for use in (calibrate, plan):
        with pytest.raises(GCFCPError, match=r"1,994 combi.*many describes 1,994.*max_atoms=1,000"):
            use([many, few], 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        assert calibrate([many, few], 0.1, rule="max").rule == "max"
        assert calibrate([few], 0.1, max_atoms=50).rule == "simultaneous"
    with pytest.raises(GCFCPError, match="max_atoms=49"):
        calibrate([few], 0.1, max_atoms=49)


# --- Leaving files out ----------------------------------------------------------------------------


def test_nobody_is_chosen_by_the_order_of_arrival() -> None:
    good = sites(4)
    other = site("s00", seed=9)  # The name is taken: both are left out.
    odd = site("odd", model="another")
    given = [good[0], odd, other, *good[1:]]
    names = [f"{k}.gcfcp" for k in range(len(given))]
    for order in (slice(None), slice(None, None, -1)):
        used, lines = set_aside(given[order], names[order])
        assert sorted(given[order][i].client for i in used) == ["s01", "s02", "s03"]
        assert len(lines) == 2
        assert any("different summaries of client 's00'" in line for line in lines)
        assert any("1.gcfcp was summarised with model 'another'" in line for line in lines)
    with pytest.raises(GCFCPError, match="no kind of them has a majority"):
        set_aside([good[0], odd], ["a", "b"])
    region = gcfcp.merge(good[:2], "north")
    used, lines = set_aside([region, *good[1:]], ["n", "1", "2", "3"])
    assert used == [2, 3]
    assert len(lines) == 2


def test_admission_checks_what_it_is_given() -> None:
    assert Admission.of() == Admission()
    with pytest.raises(GCFCPError, match="allow_share='a' is not a list"):
        Admission.of(allow_share="a")
    with pytest.raises(GCFCPError, match="max_atoms=0"):
        Admission.of(max_atoms=0)


# --- What one dishonest site can do at worst ------------------------------------------------------

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "clients.md"
K, N = 20, 2000  # One of 20 sites is dishonest. Each has 2,000 records, of which 10 are rare.


def even(k: int) -> tuple[np.ndarray, np.ndarray]:
    """The records of honest site k: scores that are spread evenly over [0, 1] in both groups."""
    member = np.column_stack([np.ones(N, bool), np.arange(N) % 200 == 10 * k])
    return (np.arange(N) + 0.5 + k / K) / N, member


def lies() -> dict[str, ClientSummary]:
    """What the dishonest site sends, by what it lies about."""
    _, member = even(K - 1)
    low, high = -1 - np.arange(N) / N, np.full(N, np.inf)
    rare = np.ones((N, 2), bool)

    def sent(scores: np.ndarray, member: np.ndarray) -> ClientSummary:
        return summarize(scores, member, groups=TWO, client="liar", delta=1e6)

    loud, n, m = sent(low, member), 10**6, 10**6 + 1
    suppressed = replace(
        summarize([0.0], [[1, 1]], groups=TWO, client="liar", min_count=2),
        n=n,
        min_count=m,
        suppressed=n,
        suppressed_groups=(n, n),
        members=(("liar", n),),
    )
    return {
        "low scores": loud,
        "infinite scores": sent(high, member),
        "1,000,000 records, low scores": replace(
            loud,
            n=N * 500,
            counts=loud.counts * 500,
            errors=loud.errors * 500,
            members=(("liar", N * 500),),
        ),
        "all its records are rare, low scores": sent(low, rare),
        "all its records are rare, infinite scores": sent(high, rare),
        "a min_count of 1,000,001 suppresses 1,000,000 records": suppressed,
        "it stands for 1,000 clients": claiming(loud, 1000),
    }


def cell(lie: ClientSummary, mixture: object = "proportional", **more: object) -> str:
    """The coverage of both groups at the honest sites, or that the lie is refused."""
    honest = [summarize(*even(k), groups=TWO, client=f"s{k:02}", delta=1e6) for k in range(K - 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        try:
            made = calibrate([*honest, lie], 0.1, mixture, **more)
        except GCFCPError:
            return "refused"
    common, rare = np.clip(made.thresholds([[1, 0], [1, 1]]), 0, None)
    everyone = 0.995 * common + 0.005 * min(rare, 1.0)
    return ", ".join("infinite sets" if np.isinf(c) else f"{c:.2f}" for c in (everyone, rare))


def table() -> list[str]:
    """The rows of the table in the documentation."""
    honest = summarize(*even(K - 1), groups=TWO, client="liar", delta=1e6)
    stated = {f"s{k:02}": 1 / K for k in range(K - 1)} | {"liar": 1 / K}
    rows = []
    for what, sent in {"nothing": honest, **lies()}.items():
        others = [
            summarize(*even(k), groups=TWO, client=f"s{k:02}", delta=1e6) for k in range(K - 1)
        ]
        flagged = "refused"
        if not sent.is_aggregate:
            flagged = "yes" if any(s.flagged for s in screen([*others, sent])) else "no"
        cells = [
            cell(sent),
            cell(sent, stated),
            cell(sent, max_share=0.2),
            cell(sent, stated, max_share=0.2),
        ]
        rows.append(f"| {' | '.join([what, *cells, flagged])} |")
    return rows


@pytest.mark.slow
def test_the_documentation_says_what_one_dishonest_site_can_do() -> None:
    page = PAGE.read_text()
    for row in table():
        assert row in page, row
