"""Secure sums over a carrier: the round as a whole, and a server that wants more than the sum."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gcfcp
from gcfcp import GCFCPError, carriers, codec, secure
from gcfcp.carriers import Letter, Node, Reply, Target, Terms, exchange
from gcfcp.rounds import (
    SUM,
    Code,
    Ledger,
    Policy,
    Question,
    Records,
    Refusal,
    Site,
    answer_audit,
    answer_sum,
    answer_summary,
    question_of,
    respond,
    site_of,
    what_is_counted,
)
from gcfcp.secure import Identity, Rules
from gcfcp.summary import counts_of, signatures, with_min_count

GROUPS = gcfcp.Groups(["all", "young", "rural"])
GRID = gcfcp.Grid.uniform(0, 8, 16)
QUESTION = Question(GROUPS, "column", grid=GRID, secure=True)
NAMES = [f"site-{k}" for k in range(6)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network there is no need to wait for long."""
    monkeypatch.setattr(exchange, "POLL", 0.005)
    monkeypatch.setattr(exchange, "CENSUS", 0.02)


def records_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    k = NAMES.index(name)
    rng = np.random.default_rng(k)
    n = 40 + 7 * k
    return rng.gamma(2, size=n), np.column_stack([np.ones(n, bool), *(rng.random((2, n)) < 0.4)])


def plain(name: str, question: Question = QUESTION) -> gcfcp.ClientSummary:
    scores, membership = records_of(name)
    asked = question.at_site
    return gcfcp.summarize(scores, membership, client=name, score=asked.score, **asked.arguments)


def site(name: str, directory: Path, policy: Policy | None = None, **changes: Any) -> Site:
    """The site as it is after a restart: nothing is remembered but what is in the directory."""
    made = Site(
        client=name,
        policy=policy or Policy(QUESTION),
        ledger=Ledger(directory / name, sync=False),
        calibration=Records("2026Q4", lambda question: records_of(name)),
    )
    return replace(made, **changes)


@dataclass
class Desk:
    """A carrier within this process: every node is a site, or hangs from some step on.

    lost: At which of its steps a site hangs, from 0.
    """

    sites: dict[str, Callable[[], Site]]
    lost: dict[str, int] = field(default_factory=dict)
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    replies: list[dict[str, Any]] = field(default_factory=list)
    command: str = "a test"
    pause: float = 0.0

    def __post_init__(self) -> None:
        self.waiting: dict[str, Letter] = {}
        self.steps = dict.fromkeys(self.sites, 0)

    def nodes(self) -> list[Node]:
        return [Node(str(i), f"key of {name}") for i, name in enumerate(self.sites)]

    def send(self, letters: Any) -> list[str]:
        tickets = []
        for letter in letters:
            tickets.append(f"ticket {len(self.sent)}")
            self.sent.append((letter.node.id, dict(letter.record)))
            self.waiting[tickets[-1]] = letter
        return tickets

    def receive(self, tickets: Any) -> list[Reply]:
        found = []
        for ticket in tickets:
            letter = self.waiting[ticket]
            name = list(self.sites)[int(letter.node.id)]
            if self.steps[name] >= self.lost.get(name, 99):
                continue
            self.steps[name] += 1
            record = respond(letter.record, self.sites[name])
            self.replies.append(record)
            found.append(Reply(ticket, letter.node.id, record))
        return found


def desk(tmp: Path, names: list[str] = NAMES, lost: Any = None, **changes: Any) -> Desk:
    made = {n: lambda n=n: site(n, tmp / "sites", **changes) for n in names}
    return Desk(made, lost or {})


def terms(**changes: Any) -> Terms:
    given: dict[str, Any] = {"deadline": 0.4, "min_clients": len(NAMES), "missing": "present"}
    return Terms(**(given | changes))


def roster(names: list[str] = NAMES) -> dict[str, str]:
    return {name: f"key of {name}" for name in names}


def quiet(_: str) -> None:
    pass


def added(names: list[str], question: Question = QUESTION) -> gcfcp.ClientSummary:
    """What `gcfcp.add` makes of the plain summaries, with min_count and without their sizes."""
    found = gcfcp.add([plain(name, question) for name in names])
    found = replace(found, members=tuple((name, None) for name, _ in found.members))
    return with_min_count(found, question.min_count) if question.min_count > 1 else found


def expected(names: list[str], question: Question = QUESTION) -> bytes:
    summary = added(names, question)
    made = gcfcp.calibrate([summary], 0.1, aggregates={summary.client: len(names)})
    return gcfcp.Predictor(summary.score, made).to_json().encode()


# --- the round ------------------------------------------------------------------------------------


@pytest.mark.parametrize("min_count", [1, 10])
@pytest.mark.parametrize("by", ["group", "atom"])
def test_the_predictor_is_that_of_the_plain_summaries_added_up(tmp_path, min_count, by):
    question = replace(QUESTION, min_count=min_count, by=by)
    given = desk(tmp_path, policy=Policy(question))
    found = carriers.conduct(given, question, Target(0.1), terms(), tmp_path / "round", quiet)
    assert (tmp_path / "round/predictor.json").read_bytes() == expected(NAMES, question)
    written = gcfcp.ClientSummary.load(tmp_path / "round/sum.gcfcp")
    assert written == added(NAMES, question)
    assert written.min_count == min_count
    assert min(written.counts) >= min_count
    assert found.missing == ()
    record = json.loads((tmp_path / "round/record.json").read_text())
    assert record["answered"] == NAMES == record["sum"]["sites"] == record["sum"]["roster"]
    assert record["sum"]["threshold"] == 6
    assert record["sum"]["signed"] is False
    assert record["question"]["secure"] is True
    files = {path.name for path in (tmp_path / "round").rglob("*.gcfcp")}
    assert files == {"sum.gcfcp"}


@pytest.mark.few(3)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("step", range(5))
def test_sites_that_are_lost_at_any_step(tmp_path, step, known):
    """Two of six sites hang from some step on: signed or not, with a roster or without."""
    extra: dict[str, Any] = {}
    keys, files = {}, {}
    if known:
        for name in NAMES:
            files[name] = tmp_path / f"{name}.key"
            keys[name] = (signatures.new_key(files[name]),)
        extra = {"known_keys": keys, "clients": roster()}
    elif step == 4:
        pytest.skip("an unsigned sum has four steps")
    given = Desk(
        {
            n: lambda n=n: site(
                n, tmp_path / "sites", identity=Identity(n, files[n], keys) if known else None
            )
            for n in NAMES
        },
        {NAMES[1]: step, NAMES[4]: step},
    )
    out = tmp_path / "round"
    found = carriers.conduct(
        given, QUESTION, Target(0.1), terms(min_clients=3, **extra), out, quiet
    )
    inside = [n for n in NAMES if step > 2 or n not in (NAMES[1], NAMES[4])]
    record = json.loads((out / "record.json").read_text())
    assert record["sum"]["sites"] == record["answered"] == inside
    assert record["sum"]["signed"] is known
    steps = ["keys", "shares", "masked", "confirmed", "revealed"]
    name = steps[step] if known or step < 3 else "revealed"
    if step:
        assert record["sum"]["lost"][name] == [NAMES[1], NAMES[4]]
    missing = set(found.missing)
    assert missing == set(NAMES) - set(inside) or (not known and step == 0 and len(missing) == 2)
    assert gcfcp.ClientSummary.load(out / "sum.gcfcp") == added(inside)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_fewer_than_the_threshold_leave_nothing_behind(tmp_path, step):
    given = desk(tmp_path, lost=dict.fromkeys(NAMES[:3], step))
    out = tmp_path / "round"
    with pytest.raises(GCFCPError, match="ends with nothing"):
        carriers.conduct(given, QUESTION, Target(0.1), terms(min_clients=1), out, quiet)
    record = json.loads((out / "record.json").read_text())
    assert record["outcome"] == "failed"
    assert "ends with nothing" in record["problem"]
    assert {path.name for path in out.iterdir()} <= {"record.json", "round.json", "summaries"}


def test_a_missing_client_ends_the_sum_before_its_vector_has_left(tmp_path):
    given = desk(tmp_path, lost={NAMES[2]: 0})
    wanted = terms(missing="fail", clients=roster())
    with pytest.raises(GCFCPError, match="clients are missing: site-2"):
        carriers.conduct(given, QUESTION, Target(0.1), wanted, tmp_path / "round", quiet)
    assert not list((tmp_path / "sites").rglob("*.entry"))
    # Nothing was used up: the next run asks all of them again.
    again = desk(tmp_path)
    carriers.conduct(again, QUESTION, Target(0.1), wanted, tmp_path / "round", quiet)
    assert (tmp_path / "round/predictor.json").read_bytes() == expected(NAMES)


def test_a_new_run_takes_the_sum_from_disk(tmp_path):
    out = tmp_path / "round"
    carriers.conduct(desk(tmp_path), QUESTION, Target(0.1), terms(), out, quiet)
    before = (out / "predictor.json").read_bytes()
    (out / "predictor.json").unlink()
    silent = desk(tmp_path, lost=dict.fromkeys(NAMES, 0))
    carriers.conduct(silent, QUESTION, Target(0.1), terms(), out, quiet)
    assert (out / "predictor.json").read_bytes() == before
    assert silent.sent == []
    # In another directory the sites are asked again, and none of them adds its counts twice.
    with pytest.raises(GCFCPError, match="0 sites take part"):
        carriers.conduct(desk(tmp_path), QUESTION, Target(0.1), terms(), tmp_path / "b", quiet)
    record = json.loads((tmp_path / "b/record.json").read_text())
    assert {entry["code"] for entry in record["clients"]} == {"sum-used-up"}


@pytest.mark.parametrize(
    "changes",
    [
        {"mixture": "uniform"},
        {"mixture": dict.fromkeys(NAMES, 1 / 6)},
        {"correction": "paper"},
        {"max_share": 0.5},
        {"audit": True},
    ],
)
def test_what_a_sum_cannot_tell_is_refused_before_anyone_is_asked(tmp_path, changes):
    given = desk(tmp_path)
    with pytest.raises(GCFCPError, match="not possible with a secure sum"):
        carriers.conduct(given, QUESTION, Target(**changes), terms(), tmp_path / "round", quiet)
    assert given.sent == []


def test_a_secure_question_needs_a_grid_and_no_sites():
    with pytest.raises(GCFCPError, match="give a grid"):
        Question(GROUPS, "column", secure=True)
    with pytest.raises(GCFCPError, match="groups have sites"):
        Question(gcfcp.Groups(["all"], sites=["a", "b"]), "column", grid=GRID, secure=True)
    assert Question.from_json(QUESTION.to_json()).fingerprint == QUESTION.fingerprint
    assert replace(QUESTION, min_count=3).fingerprint != QUESTION.fingerprint


def test_the_server_never_gets_a_plain_count(tmp_path):
    """No reply of the whole round holds a site's counts in any form that can be looked for."""
    given = desk(tmp_path)
    carriers.conduct(given, QUESTION, Target(0.1), terms(), tmp_path / "round", quiet)
    for name in NAMES:
        vector = counts_of(plain(name))
        for dtype in ("<u8", "<u4", "<u2"):
            data = vector.astype(dtype).tobytes()
            assert not any(data in record.get("payload", b"") for record in given.replies)
    assert all("code" not in record for record in given.replies)


# --- what a site refuses --------------------------------------------------------------------------


def code(work: Callable[[], Any]) -> Code | None:
    try:
        work()
    except Refusal as refusal:
        return refusal.code
    return None


def test_a_secure_question_is_answered_neither_by_a_summary_nor_by_an_audit(tmp_path):
    audited = site(
        NAMES[0], tmp_path, audit=Records("audit", lambda *_: pytest.fail("it was read"))
    )
    assert code(lambda: answer_summary(audited, QUESTION)) is Code.SUM_NEEDED
    assert code(lambda: answer_audit(audited, QUESTION, b"{}")) is Code.AUDIT_NOT_ALLOWED
    assert code(lambda: answer_summary(audited, QUESTION.at_site)) is Code.MIN_COUNT_DIFFERS
    assert code(lambda: answer_summary(audited, QUESTION.of_sum)) is Code.SECURE_DIFFERS
    agreed = site(NAMES[0], tmp_path, Policy(QUESTION.of_sum))
    assert code(lambda: answer_sum(agreed, QUESTION, b"")) is Code.SECURE_DIFFERS
    assert code(lambda: answer_sum(agreed, QUESTION.of_sum, b"")) is Code.BAD_REQUEST


class Server:
    """A server that asks sites step by step, and may ask for anything at any time."""

    def __init__(self, tmp: Path, names: list[str] = NAMES, **changes: Any) -> None:
        self.tmp, self.names, self.changes = tmp, names, changes
        what, length = what_is_counted(QUESTION)
        self.first = secure.begin(what, length, signed=False)

    def ask(self, name: str, data: bytes) -> bytes:
        return answer_sum(site(name, self.tmp, **self.changes), QUESTION, data)

    def until(self, last: str) -> None:
        names, first = self.names, self.first
        keys = [secure.read_keys(first, n, self.ask(n, first.to_bytes())) for n in names]
        self.roster = secure.make_roster(first, keys, 4)
        if last == "roster":
            return
        data = self.roster.to_bytes()
        self.shares = {n: secure.read_shares(self.roster, n, self.ask(n, data)) for n in names}
        self.parcels = secure.deliveries(self.roster, self.shares)
        if last == "delivery":
            return
        self.masked = {
            n: secure.read_masked(self.roster, n, self.ask(n, self.parcels[n])) for n in names
        }

    def division(self, survivors: list[str]) -> bytes:
        roster = self.roster
        return secure.ask_reveal(roster, secure.divide(roster, self.names, survivors))


def test_a_step_is_repeated_byte_for_byte_and_never_made_anew(tmp_path):
    server = Server(tmp_path)
    server.until("mask")
    here = NAMES[0]
    first = server.division(NAMES)
    reply = server.ask(here, first)
    assert server.ask(here, first) == reply
    # Another division of the same sum would give both shares of a site.
    assert code(lambda: server.ask(here, server.division(NAMES[:5]))) is Code.SUM_REFUSED
    for earlier in (server.first.to_bytes(), server.roster.to_bytes(), server.parcels[here]):
        server.ask(here, earlier)  # The same bytes again, and nothing new.
    other = secure.make_roster(server.first, list(server.roster.keys), 5)
    assert code(lambda: server.ask(here, other.to_bytes())) is Code.SUM_REFUSED
    # After the last step no secret is left in any file.
    left = list((tmp_path / here).rglob("*.step"))
    assert len(left) == 4
    for path in left:
        header, body = codec.unpack(path.read_bytes(), b"L", 1, "step")
        after = bytes(body[header["reply"] :])
        assert not after or secure.State.from_bytes(after).held == b""


def test_a_site_takes_part_in_one_sum_for_one_question(tmp_path):
    """Two sums with and without one site could be subtracted: there is no second sum."""
    one, two = Server(tmp_path), Server(tmp_path, NAMES[:5])
    two.until("delivery")  # Both sums are begun at the same time.
    one.until("mask")
    for name in NAMES[:5]:
        assert code(lambda name=name: two.ask(name, two.parcels[name])) is Code.SUM_USED_UP
    three = Server(tmp_path)
    assert code(lambda: three.ask(NAMES[0], three.first.to_bytes())) is Code.SUM_USED_UP
    # Nor does it answer a plain question, or another secure one, about the same records.
    for asked in (QUESTION.of_sum, replace(QUESTION, min_count=20)):
        agreed = site(NAMES[0], tmp_path, Policy([QUESTION, asked]))
        work = answer_summary if not asked.secure else lambda s, q: answer_sum(s, q, begin(q))
        assert code(lambda a=agreed, q=asked, w=work: w(a, q)) is Code.QUESTIONS_USED_UP


def begin(question: Question) -> bytes:
    what, length = what_is_counted(question)
    return secure.begin(what, length, signed=False).to_bytes()


def test_after_a_plain_answer_there_is_no_sum(tmp_path):
    asked = QUESTION.of_sum
    both = site(NAMES[0], tmp_path, Policy([QUESTION, replace(asked, min_count=1)]))
    answer_summary(both, replace(asked, min_count=1))
    assert code(lambda: answer_sum(both, QUESTION, begin(QUESTION))) is Code.QUESTIONS_USED_UP


def test_a_sum_is_about_the_agreed_question(tmp_path):
    here = site(NAMES[0], tmp_path)
    what, length = what_is_counted(QUESTION)
    other, _ = what_is_counted(replace(QUESTION, min_count=1))
    for bad in (
        secure.begin(other, length, signed=False),
        secure.begin(what, length + 1, signed=False),
        secure.begin(what, length, signed=True),
    ):
        assert code(lambda b=bad: answer_sum(here, QUESTION, b.to_bytes())) is Code.SUM_REFUSED
    for odd in (b"", b"GCFCP", bytes(100), codec.pack(b"U", 1, {"message": "x", "sum": 1}, b"")):
        assert code(lambda b=odd: answer_sum(here, QUESTION, b)) in (
            Code.SUM_REFUSED,
            Code.BAD_REQUEST,
        )
    assert code(lambda: answer_sum(here, QUESTION, None)) is Code.BAD_REQUEST


@pytest.mark.parametrize("rules", [Rules(7), Rules(3, 5)])
def test_a_policy_demands_sites_and_a_threshold(tmp_path, rules):
    server = Server(tmp_path, policy=Policy(QUESTION, sums=rules))
    with pytest.raises(Refusal) as refused:
        server.until("mask")
    assert refused.value.code is Code.SUM_REFUSED
    assert "this site takes part" in refused.value.detail
    assert not list(tmp_path.rglob("*.entry"))


def test_no_record_is_read_before_the_shares_are_in_order(tmp_path):
    def never(question: Question) -> Any:
        raise AssertionError("the records were read")

    server = Server(tmp_path, calibration=Records("2026Q4", never))
    server.until("delivery")
    changed = bytearray(server.parcels[NAMES[0]][:-32])
    changed[-1] ^= 1
    bad = bytes(changed) + hashlib.sha256(bytes(changed)).digest()
    assert code(lambda: server.ask(NAMES[0], bad)) is Code.SUM_REFUSED


def test_what_goes_wrong_with_the_records_is_told_by_a_code_alone(tmp_path):
    def broken(question: Question) -> Any:
        raise GCFCPError("score 0.37194428 is wrong")

    server = Server(tmp_path, calibration=Records("2026Q4", broken))
    server.until("delivery")
    with pytest.raises(Refusal) as refused:
        server.ask(NAMES[0], server.parcels[NAMES[0]])
    assert refused.value.code is Code.DATA_REFUSED
    assert refused.value.detail == ""
    assert not any(b"0.3719" in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


def test_records_that_change_are_noticed(tmp_path):
    marks = iter(["one", "one", "one", "two"])
    server = Server(
        tmp_path,
        calibration=Records("2026Q4", lambda q: records_of(NAMES[0]), lambda: next(marks, "two")),
    )
    server.names = NAMES[:1]
    here, data = NAMES[0], server.first.to_bytes()
    others = {n: answer_sum(site(n, tmp_path), QUESTION, data) for n in NAMES[1:]}
    replies = others | {here: server.ask(here, data)}
    keys = [secure.read_keys(server.first, n, d) for n, d in replies.items()]
    roster = secure.make_roster(server.first, keys)
    shares = {n: answer_sum(site(n, tmp_path), QUESTION, roster.to_bytes()) for n in NAMES[1:]}
    shares[here] = server.ask(here, roster.to_bytes())
    read = {n: secure.read_shares(roster, n, d) for n, d in shares.items()}
    parcels = secure.deliveries(roster, read)
    assert code(lambda: server.ask(here, parcels[here])) is Code.DATA_CHANGED
    assert not list((tmp_path / here).rglob("*.entry"))


def _reveal(directory: str, name: str, request: bytes, gate: Any, results: Any) -> None:
    gate.wait()
    try:
        results.put(answer_sum(site(name, Path(directory)), QUESTION, request))
    except Refusal as refusal:
        results.put(str(refusal.code))


def test_of_racing_processes_one_division_wins(tmp_path):
    """A server asks for two divisions at the same moment, in ten processes of one site."""
    server = Server(tmp_path)
    server.until("mask")
    here = NAMES[0]
    requests = [server.division(NAMES), server.division(NAMES[:5])] * 5
    context = multiprocessing.get_context("fork")
    gate, results = context.Barrier(len(requests)), context.Queue()
    workers = [
        context.Process(target=_reveal, args=(str(tmp_path), here, request, gate, results))
        for request in requests
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert len({reply for reply in found if isinstance(reply, bytes)}) == 1
    assert {reply for reply in found if isinstance(reply, str)} == {"sum-refused"}


def test_of_two_sums_at_the_same_moment_a_site_is_in_one(tmp_path):
    one, two = Server(tmp_path), Server(tmp_path, NAMES[:5])
    one.until("delivery")
    two.until("delivery")
    here = NAMES[0]
    requests = [server.parcels[here] for server in (one, two)] * 4
    context = multiprocessing.get_context("fork")
    gate, results = context.Barrier(len(requests)), context.Queue()
    workers = [
        context.Process(target=_reveal, args=(str(tmp_path), here, request, gate, results))
        for request in requests
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert len({reply for reply in found if isinstance(reply, bytes)}) == 1
    assert {reply for reply in found if isinstance(reply, str)} == {"sum-used-up"}
    assert len(list((tmp_path / here).rglob("*.entry"))) == 1


@pytest.mark.parametrize("step", [0, 1, 2, 4])
def test_a_damaged_file_of_a_step_means_no_answer(tmp_path, step):
    server = Server(tmp_path)
    server.until("mask")
    here = NAMES[0]
    request = server.division(NAMES)
    server.ask(here, request)
    (path,) = (tmp_path / here).rglob(f"*-{step}.step")
    path.write_bytes(path.read_bytes()[:-5])
    assert code(lambda: server.ask(here, request)) is Code.LEDGER_UNUSABLE


# --- settings -------------------------------------------------------------------------------------


def test_a_site_and_a_round_from_settings(tmp_path):
    GROUPS_FILE = tmp_path / "groups.toml"
    GROUPS_FILE.write_text(gcfcp.Groups({"all": "TRUE", "young": "age < 40"}).to_toml())
    known, settings = {}, {}
    for k, name in enumerate(NAMES[:3]):
        rng = np.random.default_rng(k)
        rows = zip(rng.integers(20, 80, 60), rng.random(60).round(6), strict=True)
        table = tmp_path / f"{name}.csv"
        table.write_text("age,score\n" + "".join(f"{a},{s}\n" for a, s in rows))
        known[name] = signatures.new_key(tmp_path / f"{name}.key")
        settings[name] = {"data": str(table), "key": str(tmp_path / f"{name}.key")}
    keys = tmp_path / "keys.toml"
    keys.write_text("".join(f'{name} = "{key}"\n' for name, key in known.items()))
    asked = {"groups": str(GROUPS_FILE), "score": "column", "grid": "uniform:0,1,32"}
    asked |= {"secure": True, "min-count": 5}
    question, target, given, out = carriers.setup_of(
        asked | {"known-keys": str(keys), "output": str(tmp_path / "round"), "min-clients": 3}
    )
    assert question.secure
    assert set(given.known_keys) == set(NAMES[:3])

    def made(name: str) -> Site:
        more = {"known-keys": str(keys), "sum-threshold": 3}
        return site_of(asked | settings[name] | more, name, Ledger(tmp_path / f"ledger {name}"))

    found = carriers.conduct(
        Desk({n: lambda n=n: made(n) for n in NAMES[:3]}), question, target, given, out, quiet
    )
    record = json.loads((out / "record.json").read_text())
    assert record["sum"]["signed"] is True
    assert record["sum"]["sites"] == NAMES[:3]
    assert found.calibration.summaries[0].n == 180
    # The key of another site is not one's own.
    settings[NAMES[0]]["key"] = settings[NAMES[1]]["key"]
    with pytest.raises(GCFCPError, match="is not a key of 'site-0'"):
        made(NAMES[0])
    with pytest.raises(GCFCPError, match="known-keys"):
        site_of(asked | settings[NAMES[0]], NAMES[0], Ledger(tmp_path / "x"))
    assert question_of(asked).secure
    assert SUM == "sum"


def test_the_ledger_lists_a_secure_sum(tmp_path, capsys):
    from gcfcp.cli import entry as cli

    server = Server(tmp_path)
    server.until("mask")
    cli.run(["ledger", str(tmp_path / NAMES[0])])
    shown = capsys.readouterr().out
    assert "1 answer is kept" in shown
    assert "on a grid, in a secure sum, min_count 10, by group" in " ".join(shown.split())
