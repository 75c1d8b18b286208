"""Noise inside of a secure sum: its law, who must be in the sum, and servers that want it without.

Sites add noise by their place on the roster. A server decides who is on it, who is lost and what
each site hears of the others; that must not help it to a sum with less noise than was agreed on.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

import gcfcp
from gcfcp import GCFCPError, carriers, secure
from gcfcp.calibration import PROVED
from gcfcp.carriers import Target, exchange
from gcfcp.noise import Makers, Noise
from gcfcp.rounds import (
    Code,
    Ledger,
    Policy,
    Question,
    Refusal,
    Site,
    answer_sum,
    begin_of,
    question_of,
    site_of,
    spent,
)
from gcfcp.secure import Identity, client, server
from gcfcp.summary import counts_of, signatures
from secure_sum import Federation, names
from test_secure_rounds import GROUPS, NAMES, Desk, plain, quiet, roster, site, terms

pytest.importorskip("opendp", reason="noise needs OpenDP (extra dp)")

GRID = gcfcp.Grid.uniform(0, 8, 16)
QUESTION = Question(GROUPS, "column", grid=GRID, secure=True, min_count=1, by="atom", epsilon=1.0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network there is no need to wait for long."""
    monkeypatch.setattr(exchange, "POLL", 0.005)
    monkeypatch.setattr(exchange, "CENSUS", 0.02)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], dict[str, Any]]:
    """The files of the private keys of all sites, and their public keys."""
    folder = tmp_path_factory.mktemp("keys")
    files = {name: folder / f"{name}.key" for name in [*NAMES, *names(6)]}
    return files, {name: (signatures.new_key(path),) for name, path in files.items()}


# --- the protocol ---------------------------------------------------------------------------------


def federation(keys: Any, number: int = 5, noisy: int = 2, needed: int = 2, **more: Any) -> Any:
    rng = np.random.default_rng(0)
    more.setdefault("vectors", {name: rng.integers(-40, 40, 6) for name in names(number)})
    return Federation(keys=keys[0], known=keys[1], noisy=noisy, needed=needed, **more)


def test_negative_numbers_are_summed_exactly(keys):
    extreme = {
        "site-00": np.array([secure.LIMIT - 1, 1 - secure.LIMIT, -1]),
        "site-01": np.array([secure.LIMIT - 1, 1 - secure.LIMIT, 3]),
        "site-02": np.array([secure.LIMIT - 1, 1 - secure.LIMIT, -7]),
    }
    found = federation(keys, vectors=extreme).run()
    assert found.values.tolist() == [3 * secure.LIMIT - 3, 3 - 3 * secure.LIMIT, -5]
    assert found.noisy == 2
    beyond = extreme | {"site-02": np.array([0, -secure.LIMIT, 0])}
    with pytest.raises(GCFCPError, match="a number of the vector is below"):
        federation(keys, vectors=beyond).run()
    with pytest.raises(GCFCPError, match="a number of the vector is below 0"):
        federation(keys, 3, 0, 0, vectors=extreme).run()


def test_a_sum_with_noise_is_signed_and_its_numbers_make_sense():
    what = {"what": b"counts", "length": 3}
    with pytest.raises(GCFCPError, match="must be signed"):
        secure.begin(**what, signed=False, noisy=1, needed=1)
    for noisy, needed in ((1, 2), (2, 0), (0, 1), (-1, 0), (1001, 1)):
        with pytest.raises(GCFCPError):
            secure.begin(**what, signed=True, noisy=noisy, needed=needed)
    first = secure.begin(**what, signed=True, noisy=2, needed=1)
    assert secure.Begin.from_bytes(first.to_bytes()) == first
    assert first.fingerprint != replace(first, needed=2).fingerprint


def test_two_sums_of_one_roster_cannot_be_unmasked_by_those_who_may_be_dishonest(keys):
    """2t > n + dishonest, or else the difference of two sums could have no noise."""
    assert [secure.usual_threshold(n, 2) for n in (3, 4, 5, 6, 30)] == [3, 3, 4, 4, 20]
    with pytest.raises(GCFCPError, match=r"threshold=3 of 5 sites is too low .* at least 4"):
        federation(keys, threshold=3).run()
    with pytest.raises(GCFCPError, match="3 sites, but 4 must add noise"):
        federation(keys, 3, 4, 1).run()


def crafted(message: str, roster: secure.Roster, **header: Any) -> bytes:
    """A message of a server that checks nothing itself."""
    return roster.write(message, header)


@pytest.mark.parametrize("signed_first", [True, False])
def test_a_server_that_drops_the_sites_that_add_noise_gets_nothing(keys, signed_first):
    """No site signs such a division, and none reveals a share for it."""
    given = federation(keys, 6)
    given.until("mask")
    masked = given.masked
    everyone = list(range(6))
    for survivors in ([2, 3, 4, 5], [0, 2, 3, 4, 5], [1, 2, 3, 4, 5]):
        with pytest.raises(GCFCPError, match=r"of the 2 sites that add noise .* 2 are needed"):
            secure.divide(given.roster, list(masked), [names(6)[i] for i in survivors])
        division = {"senders": everyone, "survivors": survivors}
        for name in (names(6)[i] for i in survivors):
            with pytest.raises(GCFCPError, match="sites that add noise"):
                given.step("confirm", name, crafted("survivors", given.roster, **division))
            reveal = {"confirmed": [], "sizes": []} | division
            with pytest.raises(GCFCPError):
                given.step("reveal", name, crafted("reveal", given.roster, **reveal))
    if signed_first:  # Once the honest division is signed, the other one is refused as well.
        division = secure.divide(given.roster, list(masked), list(masked))
        request = secure.ask_survivors(given.roster, division)
        signed = {
            n: secure.read_confirmation(
                given.roster, division, n, given.step("confirm", n, request), given.known
            )
            for n in masked
        }
        header = {"senders": everyone, "survivors": [2, 3, 4, 5], "confirmed": [2, 3, 4, 5]}
        sizes = [len(signed[names(6)[i]]) for i in (2, 3, 4, 5)]
        body = b"".join(signed[names(6)[i]] for i in (2, 3, 4, 5))
        lie = given.roster.write("reveal", header | {"sizes": sizes}, body)
        for i in (2, 3, 4, 5):
            with pytest.raises(GCFCPError, match="sites that add noise"):
                given.step("reveal", names(6)[i], lie)


def test_no_vector_leaves_if_too_few_that_add_noise_have_sent_shares(keys):
    given = federation(keys, 6)
    given.until("share")
    read: list[str] = []
    for name in names(6)[1:]:
        others = {n: s for n, s in given.shares.items() if n != "site-00"}
        with pytest.raises(GCFCPError, match="1 of the 2 sites that add noise sent shares"):
            secure.deliveries(given.roster, others)
        senders = [1, 2, 3, 4, 5]
        body = b"".join(others[names(6)[i]][name] for i in senders if names(6)[i] != name)
        lie = given.roster.write("delivery", {"senders": senders}, body)
        with pytest.raises(GCFCPError, match="1 of the 2 sites that add noise sent shares"):
            secure.mask(given.states[name], lie, lambda: read.append("records"))
    assert not read


def test_who_adds_noise_depends_on_the_roster_alone(keys):
    """A server that names other senders to a site does not take its noise away."""
    given = federation(keys, 6, noisy=3, needed=2)
    given.until("share")
    assert [given.states[n].adds_noise for n in names(6)] == [True] * 3 + [False] * 3
    some = {n: given.shares[n] for n in names(6) if n != "site-01"}
    for parcels in (given.parcels, secure.deliveries(given.roster, some)):
        assert given.states["site-02"].adds_noise
        secure.mask(given.states["site-02"], parcels["site-02"], lambda: np.zeros(6, int))


def test_a_vector_that_is_named_as_a_survivors_but_not_added_leaves_its_masks(keys):
    """A lying server says that the noise is in the sum, and leaves it out: chance remains."""
    vectors = {name: np.zeros(2000, np.int64) for name in names(5)}
    given = federation(keys, vectors=vectors)
    assert not given.run().values.any()
    revealed = {
        n: secure.read_revealed(given.roster, given.division, n, given.sent["reveal", n])
        for n in vectors
    }
    bare = np.zeros(2000, np.uint64)
    for place in (2, 3, 4):  # The two that add noise are left out, and self masks taken off.
        seed = server._joined(given.roster, place, range(5), revealed)
        bare += given.masked[names(5)[place]]
        bare -= client.self_mask(seed, given.roster, names(5)[place])
    top = (bare >> np.uint64(61)).astype(int)
    assert chisquare(np.bincount(top, minlength=8)).pvalue > 1e-6


def possible_answers(roster: secure.Roster, here: int) -> list[tuple[set[int], set[int]]]:
    """All that a site may hear and agree to: who has sent shares, and who survives."""
    found = []
    every = range(len(roster.keys))
    subsets = [set(c) for size in every for c in itertools.combinations(every, size + 1)]
    for senders, survivors in itertools.product(subsets, subsets):
        if here in survivors and survivors <= senders:
            header = {"senders": sorted(senders), "survivors": sorted(survivors)}
            with contextlib.suppress(GCFCPError):
                roster.check_enough(sorted(senders), "sent shares")
                roster.check_noise(sorted(senders), "sent shares")
                secure.Division.of(header, roster)
                found.append((senders, survivors))
    return found


def without_noise(roster: secure.Roster, answers: dict[int, Any], bad: set[int]) -> list[set[int]]:
    """The sets of honest sites whose counts a lying server can add up without honest noise.

    answers: For each honest site the senders that it was told of, and the survivors it has signed.
    bad: The sites that work together with the server. They sign anything.

    A vector counts if its self mask is known. The masks of a pair are known if the mask key of one
    of them is. Vectors that share an unknown mask can only be added up together.
    """
    given = list(answers.values())
    unmasked = [a for a in given if given.count(a) + len(bad & a[1]) >= roster.threshold]
    usable = set(answers).intersection(set().union(*(survivors for _, survivors in unmasked)))
    told = set().union(*(senders - survivors for senders, survivors in unmasked))
    parts: list[tuple[set[int], list[frozenset[int]]]] = []
    for u in usable:
        others = answers[u][0] & set(answers) - {u}
        part, masks = {u}, [frozenset({u, v}) for v in others if not {u, v} & told]
        for joined in [p for p in parts if set(p[1]) & set(masks)]:
            parts.remove(joined)
            part, masks = part | joined[0], masks + joined[1]
        parts.append((part, masks))
    return [
        part
        for part, masks in parts
        if all(masks.count(m) == 2 for m in masks) and not roster.noisy(part)
    ]


@pytest.mark.parametrize(("number", "noisy"), [(4, 2), (4, 3), (5, 2), (5, 3)])
def test_no_lie_about_the_others_adds_counts_up_without_noise(keys, number, noisy):
    """Each site may hear of other senders and survivors: all such lies are tried."""
    given = federation(keys, number, noisy, 2)
    given.until("advertise")
    for bad in range(number):
        honest = [u for u in range(number) if u != bad]
        choices = [possible_answers(given.roster, u) for u in honest]
        assert all(choices)
        for answers in itertools.product(*choices):
            lied = dict(zip(honest, answers, strict=True))
            assert without_noise(given.roster, lied, {bad}) == []


def test_a_lower_threshold_would_add_counts_up_without_noise(keys, monkeypatch):
    """The test above can fail: with 3 of 5 sites two divisions are signed, and tell everything."""
    monkeypatch.setattr(secure.Roster, "_check_makers", lambda *_: None)
    given = federation(keys, threshold=3)
    given.until("advertise")
    roster, every = given.roster, set(range(5))
    lied = {u: (every, {0, 1, 2} if u < 3 else {0, 1, 3, 4}) for u in range(1, 5)}
    assert all(lied[u] in possible_answers(roster, u) for u in lied)
    assert {2} in without_noise(roster, lied, {0})


# --- a round --------------------------------------------------------------------------------------


def sites(keys: Any, tmp: Path, policy: Policy) -> dict[str, Callable[[], Site]]:
    def made(name: str) -> Site:
        identity = Identity(name, keys[0][name], {n: keys[1][n] for n in NAMES})
        return site(name, tmp / "sites", policy, identity=identity)

    return {name: lambda name=name: made(name) for name in NAMES}


def conducted(keys: Any, tmp: Path, question: Question = QUESTION, **more: Any) -> Any:
    desk = Desk(sites(keys, tmp, more.pop("policy", Policy(question))), more.pop("lost", {}))
    known = {n: keys[1][n] for n in NAMES}
    given = terms(known_keys=known, clients=roster(), **({"min_clients": 3} | more))
    return carriers.conduct(desk, question, Target(0.2), given, tmp / "round", quiet)


def test_a_round_ends_with_the_sum_and_the_noise_of_those_who_add_it(tmp_path, keys):
    found = conducted(keys, tmp_path, replace(QUESTION, epsilon=20.0))
    summary = gcfcp.ClientSummary.load(tmp_path / "round/sum.gcfcp")
    assert summary.noise == Noise(20.0, ((0.05, 2),))
    assert summary.n == sum(plain(n, QUESTION).n for n in NAMES)
    assert summary.members == tuple((n, None) for n in NAMES)
    record = json.loads((tmp_path / "round/record.json").read_text())
    assert record["sum"]["noisy"] == 2
    assert record["question"]["dishonest"] == 1
    made = gcfcp.calibrate([summary], 0.2, aggregates={summary.client: 6})
    expected = gcfcp.Predictor(summary.score, made).to_json()
    assert (tmp_path / "round/predictor.json").read_text() == expected
    for promised in found.calibration.guarantee:
        assert promised.certified_status == PROVED
        assert promised.epsilon == 20.0
        assert 0 < promised.privacy < 0.2
    again = conducted(keys, tmp_path, replace(QUESTION, epsilon=20.0))  # From the sum on disk.
    assert again.predictor.to_json() == found.predictor.to_json()


@pytest.mark.slow
def test_the_noise_of_the_sum_has_the_law_that_is_charged(tmp_path, keys):
    """The frequencies of the noise are those of a sum of two discrete Laplace variables."""
    fine = gcfcp.Grid.uniform(0, 8, 400)
    question = replace(QUESTION, grid=fine, by="group", epsilon=3.0)
    conducted(keys, tmp_path, question)
    summary = gcfcp.ClientSummary.load(tmp_path / "round/sum.gcfcp")
    assert summary.noise == Noise(3.0, ((1.0, 2),))  # Three groups: a record is in up to three.
    noise = counts_of(summary) - sum(counts_of(plain(n, question)) for n in NAMES)
    assert noise[0] == 0
    drawn, a = noise[1:], math.exp(-1.0)
    one = (1 - a) / (1 + a) * a ** np.abs(np.arange(-40, 41))
    two = np.convolve(one, one)[80 - 4 : 80 + 5]
    expected = np.array([*two, 1 - two.sum()]) * len(drawn)
    inside = [(drawn == x).sum() for x in range(-4, 5)]
    found = np.array([*inside, len(drawn) - sum(inside)])
    assert len(drawn) == 1203
    assert chisquare(found, expected).pvalue > 1e-6
    # The noise of one site or of three would be told apart.
    three = np.convolve(np.convolve(one, one), one)[120 - 4 : 120 + 5]
    for other in (one[36:45], three):
        wrong = np.array([*other, 1 - other.sum()]) * len(drawn)
        assert chisquare(found, wrong).pvalue < 1e-6


@pytest.mark.few(2)
@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("step", [0, 1, 2, 3, 4])
def test_a_site_that_adds_noise_is_lost_at_each_step(tmp_path, keys, step, spare):
    """At step 0 others take its place, then a spare one or nothing, and later it is in the sum."""
    question = replace(QUESTION, spare=spare, epsilon=20.0)
    out = tmp_path / "round"
    if step in (1, 2) and not spare:
        with pytest.raises(GCFCPError, match="1 of the 2 sites that add noise"):
            conducted(keys, tmp_path, question, lost={NAMES[0]: step})
        assert not (out / "sum.gcfcp").exists()
        told = json.loads((out / "record.json").read_text())["problem"]
        assert "would not be protected: it ends with nothing" in told
        return
    conducted(keys, tmp_path, question, lost={NAMES[0]: step})
    summary = gcfcp.ClientSummary.load(out / "sum.gcfcp")
    inside = 2 + spare - (step in (1, 2))
    assert summary.noise.terms == ((0.05, inside),)
    assert len(summary.members) == (6 if step > 2 else 5)


def code(work: Callable[[], Any]) -> Code | None:
    try:
        work()
    except Refusal as refusal:
        return refusal.code
    return None


def test_the_ledger_counts_the_epsilon_of_a_secure_sum(tmp_path, keys):
    """Of a site that adds noise and of one that does not, once, and within the budget."""
    again = replace(QUESTION, round="2026Q4b")
    policy = Policy([QUESTION, again], questions=2, budget=1.5)
    conducted(keys, tmp_path, policy=policy)
    for name in (NAMES[0], NAMES[5]):
        here = sites(keys, tmp_path, policy)[name]()
        (entry,) = here.ledger.entries()
        assert spent([entry]) == 1.0
        reader = replace(here, calibration=replace(here.calibration, read=lambda _: 1 / 0))
        # The same question again is in this sum or in none.
        first = begin_of(QUESTION, signed=True).to_bytes()
        assert code(lambda r=reader, f=first: answer_sum(r, QUESTION, f)) is Code.SUM_USED_UP
        # Another one is beyond the budget, which is said before any key is made.
        first = begin_of(again, signed=True).to_bytes()
        assert code(lambda r=reader, f=first: answer_sum(r, again, f)) is Code.BUDGET_USED_UP
        assert spent(here.ledger.entries()) == 1.0


def test_a_round_that_failed_has_cost_its_epsilon(tmp_path, keys):
    """Nobody knows whether the server has the sum, so that masked counts that left are counted."""
    lost = dict.fromkeys(NAMES[2:], 3)
    with pytest.raises(GCFCPError, match="ends with nothing"):
        conducted(keys, tmp_path, lost=lost)
    here = sites(keys, tmp_path, Policy(QUESTION, budget=1.0))[NAMES[0]]()
    assert spent(here.ledger.entries()) == 1.0
    other = replace(QUESTION, round="again")
    policy = Policy([QUESTION, other], questions=2, budget=1.0)
    first = begin_of(other, signed=True).to_bytes()
    there = sites(keys, tmp_path, policy)[NAMES[0]]()
    assert code(lambda: answer_sum(there, other, first)) is Code.BUDGET_USED_UP


def test_a_server_cannot_change_who_adds_noise(tmp_path, keys):
    here = sites(keys, tmp_path, Policy(QUESTION))[NAMES[0]]()
    for change in ({"dishonest": 0}, {"dishonest": 3}, {"spare": 2}):
        asked = replace(QUESTION, **change)
        first = begin_of(asked, signed=True).to_bytes()
        assert code(lambda a=asked, f=first: answer_sum(here, a, f)) is Code.MAKERS_DIFFER
        # The agreed question with another beginning is refused as well.
        assert code(lambda f=first: answer_sum(here, QUESTION, f)) is Code.SUM_REFUSED
    honest = begin_of(QUESTION, signed=True)
    for change in ({"needed": 1}, {"noisy": 3}, {"noisy": 0, "needed": 0}):
        first = replace(honest, **change).to_bytes()
        assert code(lambda f=first: answer_sum(here, QUESTION, f)) is Code.SUM_REFUSED
    assert code(lambda: answer_sum(here, QUESTION, honest.to_bytes())) is None


def test_a_site_without_a_key_takes_part_in_no_sum_with_noise(tmp_path):
    bare = site(NAMES[0], tmp_path, Policy(QUESTION))
    first = begin_of(QUESTION, signed=True).to_bytes()
    assert code(lambda: answer_sum(bare, QUESTION, first)) is Code.SUM_REFUSED


def test_what_does_not_go_together_is_refused_before_anyone_is_asked(tmp_path, keys):
    given = Desk(sites(keys, tmp_path, Policy(QUESTION)))
    with pytest.raises(GCFCPError, match="needs the keys of all sites"):
        carriers.conduct(given, QUESTION, Target(0.1), terms(), tmp_path / "round", quiet)
    known = {n: keys[1][n] for n in NAMES}
    for changes in ({"rule": "simultaneous"}, {"confidence": 0.9}):
        with pytest.raises(GCFCPError, match="goes with rule='max' and without confidence"):
            carriers.conduct(
                given, QUESTION, Target(**changes), terms(known_keys=known), tmp_path / "r", quiet
            )
    assert given.sent == []
    with pytest.raises(GCFCPError, match="say who adds noise to a secure sum"):
        Question(GROUPS, "column", grid=GRID, secure=True, dishonest=1)
    with pytest.raises(GCFCPError, match="say who adds noise to a secure sum"):
        replace(QUESTION, secure=False)
    with pytest.raises(GCFCPError, match="needs a grid and min_count=1"):
        replace(QUESTION, min_count=10)
    with pytest.raises(GCFCPError, match="dishonest"):
        replace(QUESTION, dishonest=-1)


def test_a_question_says_who_adds_noise():
    assert QUESTION.makers == Makers(1, 0)
    assert (QUESTION.makers.number, QUESTION.makers.needed) == (2, 2)
    assert Makers(2, 3).number == 6
    assert Makers(2, 3).needed == 3
    assert Question.from_json(QUESTION.to_json()).fingerprint == QUESTION.fingerprint
    assert replace(QUESTION, dishonest=2).fingerprint != QUESTION.fingerprint
    assert QUESTION.at_site.epsilon is None
    assert QUESTION.of_sum.epsilon == 1.0
    assert QUESTION.of_sum.makers is None


def test_a_site_and_a_question_from_settings(tmp_path, keys):
    (tmp_path / "groups.toml").write_text('all = "TRUE"\nyoung = "age < 40"\n')
    (tmp_path / "keys.toml").write_text(f'{NAMES[0]} = "{keys[1][NAMES[0]][0]}"\n')
    (tmp_path / "a.csv").write_text("age,score\n30,0.5\n")
    asked = {"groups": str(tmp_path / "groups.toml"), "score": "column", "grid": "uniform:0,1,8"}
    asked |= {"secure": True, "min-count": 1, "epsilon": 0.5, "dishonest": 2, "spare": 1}
    assert question_of(asked).makers == Makers(2, 1)
    more = {"data": str(tmp_path / "a.csv"), "key": str(keys[0][NAMES[0]]), "budget": 0.5}
    more["known-keys"] = str(tmp_path / "keys.toml")
    made = site_of(asked | more, NAMES[0], Ledger(tmp_path / "ledger"))
    assert made.policy.agreed[0].makers == Makers(2, 1)
