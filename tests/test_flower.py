"""The Flower adapter without a network: the real apps run in a grid within this process."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import tomllib
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; it comes with gcfcp[test]")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

import gcfcp
from flower_grid import InProcessGrid, InProcessNode
from gcfcp import GCFCPError, rounds
from gcfcp.carriers import exchange, store
from gcfcp.flower import (
    Code,
    Policy,
    Question,
    Target,
    Terms,
    client_app,
    conduct,
    read_roster,
)
from gcfcp.flower import app as ready
from gcfcp.flower.__main__ import main as write_app
from gcfcp.flower.roster import fingerprint
from gcfcp.rounds import Ledger, Records, Site, pack, protocol, respond_to_bytes, unpack
from gcfcp.rounds.protocol import Request
from gcfcp.summary import signatures, with_min_count

GROUPS = gcfcp.Groups(["all", "young", "rural"])
SCORE = "column"
QUESTION = Question(GROUPS, SCORE)
SECRET = "0.37194428"  # A score that must not leave its client.


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network there is no need to wait for long."""
    monkeypatch.setattr(exchange, "POLL", 0.005)
    monkeypatch.setattr(exchange, "CENSUS", 0.02)


@pytest.fixture(autouse=True)
def _ledgers(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ledgers are kept in a directory of the test, and never in somebody's home."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def new_ledger() -> str:
    """A ledger in which nothing has been answered yet."""
    return tempfile.mkdtemp(dir=os.environ["XDG_STATE_HOME"])


def data_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    n = 60 + k % 40
    everyone = np.ones(n, dtype=bool)
    return rng.gamma(1 + k % 3, size=n), np.column_stack([everyone, *(rng.random((2, n)) < 0.5)])


def name_of(k: int) -> str:
    return f"client-{k:05d}"


@cache
def summary_of(k: int, **changes: Any) -> gcfcp.ClientSummary:
    scores, membership = data_of(k)
    options: dict[str, Any] = {"groups": GROUPS, "client": name_of(k), "min_count": 10}
    options |= {"delta": 250.0, "by": "group"}  # As a question with a min_count asks for it.
    return gcfcp.summarize(scores, membership, **(options | {"score": SCORE} | changes))


def load(question: Question, node: Any) -> Any:
    return data_of(int(node["partition-id"]))


APP = client_app(load, policy=Policy(QUESTION))


def simulated(k: int, ledger: str) -> dict[str, Any]:
    """The configuration of a node in a simulation, with the ledger of the run."""
    return {"partition-id": k, "ledger": ledger}


def grid_of(clients: int, shuffle: int | None = None, app: Any = APP) -> InProcessGrid:
    ledger = new_ledger()
    nodes = {100 + k: InProcessNode(app, simulated(k, ledger)) for k in range(clients)}
    return InProcessGrid(nodes, shuffle)


def by_files(summaries: Any, tmp: Path, alpha: float = 0.1, mixture: Any = "proportional") -> bytes:
    """The bytes of predictor.json if the summaries go through files."""
    paths = []
    for s in summaries:
        paths.append(tmp / f"{s.client}.gcfcp")
        s.save(paths[-1])
    read = [gcfcp.ClientSummary.load(path) for path in paths]
    gcfcp.Predictor(SCORE, gcfcp.calibrate(read, alpha, mixture)).save(tmp / "by-files.json")
    return (tmp / "by-files.json").read_bytes()


def record_of(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "record.json").read_text())
    return found


def quiet(_: str) -> None:
    pass


def reply(message: Message, **record: Any) -> Message:
    return Message(RecordDict({protocol.RECORD: ConfigRecord(record)}), reply_to=message)


def nonce_of(message: Message) -> str:
    return Request.from_record(message.content[protocol.RECORD]).nonce


# --- the round ------------------------------------------------------------------------------------


def test_the_result_is_that_of_the_file_workflow_in_any_order_of_arrival(tmp_path: Path) -> None:
    expected = by_files([summary_of(k) for k in range(12)], tmp_path)
    for shuffle in range(3):
        out = tmp_path / f"round-{shuffle}"
        conduct(grid_of(12, shuffle), QUESTION, Target(0.1), Terms(min_clients=12), out, quiet)
        assert (out / "predictor.json").read_bytes() == expected
        for k in range(12):
            assert (out / f"summaries/{name_of(k)}.gcfcp").read_bytes() == summary_of(k).to_bytes()


def test_the_record_says_who_when_and_how_much(tmp_path: Path) -> None:
    lines: list[str] = []
    conduct(grid_of(3), QUESTION, Target(0.1), Terms(min_clients=3), tmp_path, lines.append)
    record = record_of(tmp_path)
    assert record["outcome"] == "calibrated"
    assert record["answered"] == [name_of(k) for k in range(3)]
    assert record["missing"] == []
    assert record["question"]["fingerprint"] == GROUPS.fingerprint
    for k, entry in enumerate(record["clients"]):
        data = summary_of(k).to_bytes()
        assert entry["client"] == name_of(k)
        assert entry["bytes"] == len(data)
        assert entry["sha256"] == hashlib.sha256(data).hexdigest()
        assert entry["asked"] <= entry["received"]
        assert any(name_of(k) in line and f"{len(data):,} bytes" in line for line in lines)
    for name in ("predictor.json", "report.html"):
        written = (tmp_path / name).read_bytes()
        assert record["files"][name] == hashlib.sha256(written).hexdigest()


def keys(count: int) -> list[bytes]:
    """Public keys in PEM form, as Flower hands them out."""
    made = (ec.generate_private_key(ec.SECP384R1()).public_key() for _ in range(count))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return [key.public_bytes(serialization.Encoding.PEM, form) for key in made]


def hostile(kind: str, k: int) -> Any:
    """A node that does not follow the protocol; it has the key of client number k."""

    def handler(message: Message, context: Context) -> Message:
        nonce, own, other = nonce_of(message), summary_of(k), summary_of(0)
        payload = own.to_bytes()
        if kind == "garbage":
            payload = bytes(range(256)) * 4
        elif kind == "truncated":
            payload = payload[:-7]
        elif kind == "oversized":
            payload = bytes(200_000)
        elif kind == "wrong nonce":
            nonce = "0" * 32
        elif kind == "someone else's summary":
            payload = other.to_bytes()
        elif kind == "someone else's name":
            return reply(message, **protocol.answer(nonce, other.client, other.to_bytes()))
        elif kind == "other groups":
            groups = gcfcp.Groups(["all", "young", "urban"])
            payload = summary_of(k, groups=groups).to_bytes()
        elif kind == "other delta":
            payload = summary_of(k, delta=20).to_bytes()
        elif kind == "other score":
            payload = summary_of(k, score="mine").to_bytes()
        elif kind == "exact scores":
            payload = summary_of(k, min_count=1).to_bytes()
        elif kind == "aggregate":
            merged = gcfcp.merge([own, summary_of(k, client="ghost")], own.client)
            payload = merged.to_bytes()
        elif kind == "no record":
            return Message(RecordDict({"other": ConfigRecord({"x": 1})}), reply_to=message)
        elif kind == "odd types":
            return reply(message, protocol=1, nonce=nonce, client=[1, 2], payload="text")
        elif kind == "unknown code":
            return reply(message, protocol=1, nonce=nonce, client="x", code="all is well")
        elif kind == "list as code":
            return reply(message, protocol=1, nonce=nonce, client="x", code=["failed"])
        elif kind == "control characters":
            return reply(message, **protocol.answer(nonce, "\x1b[2Jgone", payload))
        elif kind == "flower error":
            return Message(Error(2, f"ValueError: score {SECRET}"), reply_to=message)
        return reply(message, **protocol.answer(nonce, own.client, payload))

    return handler


def raising(message: Message, context: Context) -> Message:
    def load(question: Question, node: Any) -> Any:
        raise ValueError(f"could not convert {SECRET}")

    return client_app(load, policy=Policy(QUESTION))(message, context)


EXPECTED = {
    "garbage": Code.NOT_A_SUMMARY,
    "truncated": Code.NOT_A_SUMMARY,
    "oversized": Code.TOO_LARGE,
    "wrong nonce": Code.WRONG_NONCE,
    "someone else's summary": Code.WRONG_CLIENT,
    "someone else's name": Code.WRONG_CLIENT,
    "other groups": Code.NOT_AS_ASKED,
    "other delta": Code.NOT_AS_ASKED,
    "other score": Code.NOT_AS_ASKED,
    "exact scores": Code.NOT_AS_ASKED,
    "aggregate": Code.IS_AGGREGATE,
    "no record": Code.NOT_UNDERSTOOD,
    "odd types": Code.NOT_UNDERSTOOD,
    "unknown code": Code.NOT_UNDERSTOOD,
    "list as code": Code.NOT_UNDERSTOOD,
    "control characters": Code.NOT_UNDERSTOOD,
    "flower error": Code.APP_FAILED,
    "raising": Code.FAILED,
    "silent": Code.NO_ANSWER,
}


@pytest.mark.slow
def test_a_thousand_clients_some_of_them_raising_silent_or_hostile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    K, out = 1000, tmp_path / "round"
    pem = keys(K + 1)
    roster = {name_of(k): fingerprint(pem[k]) for k in range(K)}
    kinds = dict(zip(range(3, K, 50), EXPECTED, strict=False))
    assert len(kinds) == len(EXPECTED)
    ledger = new_ledger()
    nodes = {
        10_000 - k: InProcessNode(APP, simulated(k, ledger), pem[k])
        for k in range(K)  # The last client has the lowest node number.
    }
    for k, kind in kinds.items():
        special = {"silent": None, "raising": raising}
        nodes[10_000 - k].handler = special.get(kind, hostile(kind, k))
    stranger = InProcessNode(hostile("someone else's name", 0), {}, pem[K])
    nodes[20_000] = stranger
    terms = Terms(deadline=3, min_clients=900, missing="present", clients=roster, max_bytes=100_000)
    grid = InProcessGrid(nodes, shuffle=1)
    result = conduct(grid, QUESTION, Target(0.1), terms, out)

    good = [k for k in range(K) if k not in kinds]
    missing = tuple(name_of(k) for k in kinds)
    assert result.missing == missing
    assert stranger.asked == 0
    record = record_of(out)
    codes = {e["client"]: e["code"] for e in record["clients"]}
    assert codes == {name_of(k): None for k in good} | {
        name_of(k): str(EXPECTED[kind]) for k, kind in kinds.items()
    }
    assert record["not_on_the_roster"] == [{"node": "20000", "key": fingerprint(pem[K])}]
    # The predictor is what the files of the good clients give, except that it names the others.
    written = json.loads((out / "predictor.json").read_text())
    assert written["provenance"].pop("missing") == list(missing)
    by_hand = gcfcp.calibrate([summary_of(k) for k in good], 0.1, "proportional")
    assert written == json.loads(gcfcp.Predictor(SCORE, by_hand).to_json())
    everything = capfd.readouterr()
    assert SECRET not in everything.out + everything.err + json.dumps(record)
    assert "\x1b[2J" not in everything.out

    # The faulty clients are mended, and the round is run again: only they are asked, and nothing of
    # their faults remains.
    for k in kinds:
        nodes[10_000 - k].handler = APP
    before = len(grid.sent)
    conduct(grid, QUESTION, Target(0.1), terms, out, quiet)
    asked = {10_000 - m.metadata.dst_node_id for m in grid.sent[before:]}
    assert asked == set(kinds)
    everyone = gcfcp.calibrate([summary_of(k) for k in range(K)], 0.1, "proportional")
    assert (out / "predictor.json").read_text() == gcfcp.Predictor(SCORE, everyone).to_json()


def test_a_node_cannot_answer_a_request_that_went_to_another(tmp_path: Path) -> None:
    """Even if Flower let a node forge the sender, it could not know the nonce of the other."""
    grid = grid_of(2)
    forged: list[Message] = []

    def thief(message: Message, context: Context) -> Message:
        fake = summary_of(7, client=name_of(1))
        made = reply(message, **protocol.answer(nonce_of(message), name_of(1), fake.to_bytes()))
        other = next(m for m in grid.sent if m.metadata.dst_node_id == 101)
        made.metadata.__dict__["_reply_to_message_id"] = other.metadata.message_id
        made.metadata.__dict__["_src_node_id"] = 101
        forged.append(made)
        return made

    grid.nodes[100].handler = thief
    grid.nodes[101].handler = None
    with pytest.raises(GCFCPError, match="0 clients answered"):
        conduct(grid, QUESTION, Target(0.1), Terms(0.2, 1, "present"), tmp_path, quiet)
    assert forged
    codes = {e["node"]: e["code"] for e in record_of(tmp_path)["clients"]}
    assert codes == {"100": "no-answer", "101": "wrong-nonce"}


@pytest.mark.few(1)
@pytest.mark.parametrize("shuffle", range(4))
def test_two_nodes_that_claim_one_name_are_both_left_out(tmp_path: Path, shuffle: int) -> None:
    grid = grid_of(4, shuffle)
    grid.nodes[200] = InProcessNode(
        client_app(lambda q, n: data_of(77), policy=Policy(QUESTION), client=name_of(2))
    )
    terms = Terms(min_clients=1, missing="present")
    result = conduct(grid, QUESTION, Target(0.1), terms, tmp_path / "a", quiet)
    assert sorted(result.calibration.shares) == [name_of(0), name_of(1), name_of(3)]
    assert not (tmp_path / f"a/summaries/{name_of(2)}.gcfcp").exists()
    # The same summary from two nodes counts as one client.
    grid.nodes[200] = InProcessNode(APP, simulated(2, new_ledger()))
    conduct(grid, QUESTION, Target(0.1), Terms(min_clients=4), tmp_path / "b", quiet)
    assert (tmp_path / "b/predictor.json").read_bytes() == by_files(
        [summary_of(k) for k in range(4)], tmp_path
    )


# --- deadline, quorum, who is missing -------------------------------------------------------------


def test_a_missing_client_fails_the_round_or_is_named_in_the_result(tmp_path: Path) -> None:
    grid = grid_of(3)
    grid.nodes[101].handler = None
    mixture = {name_of(0): 0.5, name_of(1): 0.25, name_of(2): 0.25}
    with pytest.raises(GCFCPError, match=r"missing: .*: run again"):
        conduct(grid, QUESTION, Target(0.1, mixture), Terms(deadline=0.2), tmp_path, quiet)
    assert record_of(tmp_path)["outcome"] == "failed"
    assert not (tmp_path / "predictor.json").exists()

    terms = Terms(deadline=0.2, missing="present")
    lines: list[str] = []
    conduct(grid, QUESTION, Target(0.1, mixture), terms, tmp_path, lines.append)
    assert any(name_of(1) in line and "without" in line for line in lines)
    provenance = gcfcp.Predictor.load(tmp_path / "predictor.json").provenance
    assert name_of(1) in provenance["missing"]
    whole = gcfcp.calibrate([summary_of(k) for k in range(3)], 0.1, mixture)
    assert provenance["mixture"] == whole.without(name_of(1)).mixture
    assert provenance["mixture"] == {name_of(0): 2 / 3, name_of(2): 1 / 3}
    page = (tmp_path / "report.html").read_text()
    assert f"gave no answer: {provenance['missing'][0]}" in page

    with pytest.raises(GCFCPError, match=r"2 clients answered, but min_clients is 3"):
        conduct(grid, QUESTION, Target(0.1), Terms(0.2, 3, "present"), tmp_path, quiet)


def test_clients_that_never_connect_are_known_by_the_roster(tmp_path: Path) -> None:
    pem = keys(2)
    grid = grid_of(1)
    grid.nodes[100].public_key = pem[0]
    roster = {name_of(k): fingerprint(pem[k]) for k in range(2)}
    with pytest.raises(GCFCPError, match=f"missing: {name_of(1)}"):
        conduct(grid, QUESTION, Target(0.1), Terms(0.2, clients=roster), tmp_path, quiet)
    entry = record_of(tmp_path)["clients"][1]
    assert (entry["client"], entry["code"]) == (name_of(1), "not-connected")


def test_late_joiners_and_nodes_that_come_back_are_asked(tmp_path: Path) -> None:
    grid = grid_of(1)
    late = InProcessNode(APP, simulated(1, new_ledger()))
    failures = []

    def flaky(message: Message, context: Context) -> Message:
        if len(failures) < 2:
            failures.append(message)
            grid.nodes[500] = late  # This node joins when the round has begun.
            return Message(Error(5, "node unavailable"), reply_to=message)
        return APP(message, context)

    grid.nodes[100].handler = flaky
    conduct(grid, QUESTION, Target(0.1), Terms(10, min_clients=2), tmp_path, quiet)
    assert len(failures) == 2
    assert late.asked == 1
    assert (tmp_path / "predictor.json").read_bytes() == by_files(
        [summary_of(0), summary_of(1)], tmp_path
    )


def test_the_superlinks_word_that_a_node_is_lost_is_not_taken_for_another_clients(
    tmp_path: Path,
) -> None:
    """Flower's replies for a lost node carry the number of the SuperLink as their sender."""
    grid = grid_of(2)
    lost: list[Message] = []

    def killed(message: Message, context: Context) -> Message:
        if lost:
            return APP(message, context)
        lost.append(Message(Error(5, "node unavailable"), reply_to=message))
        lost[0].metadata.__dict__["_src_node_id"] = 1
        return lost[0]

    grid.nodes[100].handler = killed
    lines: list[str] = []
    conduct(grid, QUESTION, Target(0.1), Terms(10, min_clients=2), tmp_path, lines.append)
    assert any("the connection was lost" in line for line in lines)
    assert not any("speaks for another client" in line for line in lines)
    assert (tmp_path / "predictor.json").read_bytes() == by_files(
        [summary_of(0), summary_of(1)], tmp_path
    )


def test_a_node_that_is_back_before_flower_misses_it_is_asked_again(tmp_path: Path) -> None:
    """Flower then says nothing, and delivers nothing again."""
    grid = grid_of(2)
    node = grid.nodes[100]
    node.handler, node.started = None, "2026-11-18T00:00:00+00:00"
    real, looks = grid.get_nodes, []

    def get_nodes() -> Any:
        looks.append(len(grid.sent))
        if len(looks) == 3:  # The node was asked, has died, and is here again.
            node.started, node.handler = "2026-11-18T00:01:00+00:00", APP
            grid._waiting = {k: m for k, m in grid._waiting.items() if m not in grid.sent}
        return real()

    grid.get_nodes = get_nodes  # type: ignore[method-assign]
    conduct(grid, QUESTION, Target(0.1), Terms(10, min_clients=2), tmp_path, quiet)
    assert [m.metadata.dst_node_id for m in grid.sent] == [100, 101, 100]
    assert (tmp_path / "predictor.json").read_bytes() == by_files(
        [summary_of(0), summary_of(1)], tmp_path
    )


def test_a_node_that_is_lost_every_time_is_given_up(tmp_path: Path) -> None:
    grid = grid_of(1)
    grid.nodes[100].handler = lambda m, c: Message(Error(8, SECRET), reply_to=m)
    with pytest.raises(GCFCPError, match="0 clients answered"):
        conduct(grid, QUESTION, Target(0.1), Terms(60), tmp_path, quiet)
    assert grid.nodes[100].asked == exchange.ATTEMPTS
    assert SECRET not in (tmp_path / "record.json").read_text()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Terms(deadline=0), "deadline=0"),
        (lambda: Terms(min_clients=0), "min_clients=0"),
        (lambda: Terms(missing="ignore"), "missing='ignore'"),
        (lambda: Terms(min_clients=2, clients={"a": "SHA256:x"}), "roster has 1"),
        (lambda: Target(alpha=1.2), "alpha=1.2"),
        (lambda: Target(mixture="equal"), "mixture='equal'"),
        (lambda: Target(merge="add"), "merge='add'"),
        (lambda: Target(rule="min"), "rule='min'"),
        (lambda: Question(GROUPS, delta=1), "delta=1"),
        (lambda: Question(GROUPS, min_count=0), "min_count=0"),
        (lambda: Question(GROUPS, representative="lower"), "representative='lower'"),
    ],
)
def test_wrong_settings_are_said_before_anyone_is_asked(make: Any, message: str) -> None:
    with pytest.raises(GCFCPError, match=message):
        make()


def test_mixture_and_roster_must_name_the_same_clients(tmp_path: Path) -> None:
    pem = keys(1)
    terms = Terms(clients={name_of(0): fingerprint(pem[0])})
    target = Target(0.1, {name_of(0): 0.5, name_of(1): 0.5})
    with pytest.raises(GCFCPError, match="differ in 'client-00001'"):
        conduct(grid_of(1), QUESTION, target, terms, tmp_path, quiet)


# --- the round on disk ----------------------------------------------------------------------------


def test_a_repeated_run_asks_nobody_twice_and_never_takes_what_is_stale(tmp_path: Path) -> None:
    grid = grid_of(3)
    conduct(grid, QUESTION, Target(0.1), Terms(min_clients=3), tmp_path, quiet)
    first = (tmp_path / "predictor.json").read_bytes()
    # With another target, the same answers are used.
    conduct(grid, QUESTION, Target(0.2), Terms(min_clients=3), tmp_path, quiet)
    assert len(grid.sent) == 3
    assert [e["status"] for e in record_of(tmp_path)["clients"]] == ["kept from an earlier run"] * 3
    # Another question needs new answers, and another directory for them.
    for other in (Question(GROUPS, SCORE, delta=100), Question(GROUPS, SCORE, min_count=20)):
        with pytest.raises(GCFCPError, match="use another directory"):
            conduct(grid, other, Target(0.1), Terms(), tmp_path, quiet)
    # If a file is damaged or was put there by somebody, its client is asked again.
    (tmp_path / f"summaries/{name_of(1)}.gcfcp").write_bytes(b"half")
    summary_of(2, client=name_of(0)).save(tmp_path / f"summaries/{name_of(0)}.gcfcp")
    conduct(grid, QUESTION, Target(0.1), Terms(min_clients=3), tmp_path, quiet)
    assert sorted(m.metadata.dst_node_id for m in grid.sent[3:]) == [100, 101]
    assert (tmp_path / "predictor.json").read_bytes() == first


def test_a_journal_cut_short_by_a_crash_costs_one_question(tmp_path: Path) -> None:
    grid = grid_of(3)
    conduct(grid, QUESTION, Target(0.1), Terms(min_clients=3), tmp_path, quiet)
    journal = tmp_path / "received.jsonl"
    journal.write_bytes(journal.read_bytes()[:-30])
    for asked in (4, 4):  # The line that is written after the stump is complete.
        conduct(grid, QUESTION, Target(0.1), Terms(min_clients=3), tmp_path, quiet)
        assert len(grid.sent) == asked


def test_what_arrived_before_a_crash_is_not_asked_again(tmp_path: Path) -> None:
    grid = grid_of(20)

    def crash(message: Message, context: Context) -> Message:
        raise KeyboardInterrupt

    grid.nodes[119].handler = crash  # The server dies when it comes to this node.
    real = grid.pull_messages
    grid.pull_messages = lambda ids: (m for i in ids for m in real([i]))  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        conduct(grid, QUESTION, Target(0.1), Terms(min_clients=20), tmp_path, quiet)
    assert len(list((tmp_path / "summaries").glob("*.gcfcp"))) == 19
    again = grid_of(20)
    conduct(again, QUESTION, Target(0.1), Terms(min_clients=20), tmp_path, quiet)
    assert [m.metadata.dst_node_id for m in again.sent] == [119]


@given(st.lists(st.text(min_size=1, max_size=60), min_size=2, max_size=2, unique=True))
def test_every_client_has_a_file_of_its_own_in_the_directory(names: list[str]) -> None:
    files = [store.file_name(name) for name in names]
    assert files[0].lower() != files[1].lower()
    for file in files:
        assert Path(file).name == file
        assert file.isascii()
        assert not file.startswith(".")
        assert len(file) < 120


# --- a client decides, and never leaks ------------------------------------------------------------


def ask(app: Any, question: Question = QUESTION, node: Any = None, **record: Any) -> dict[str, Any]:
    """The reply of a client app as a plain dictionary."""
    content = record or Request(question, "n" * 32).to_record()
    message = Message(
        RecordDict({protocol.RECORD: ConfigRecord(content)}), 7, f"query.{protocol.SUMMARIZE}"
    )
    context = Context(1, 7, simulated(0, new_ledger()) if node is None else node, RecordDict(), {})
    return dict(app(message, context).content[protocol.RECORD])


SHAPE = gcfcp.Shape(GROUPS, (1.0, 0.5, -2.0))
OTHER_SHAPE = gcfcp.Shape(GROUPS, (1.0, 2.0**60, -2.0))
RAPS = gcfcp.scores.RAPS(lam=0.1)


@pytest.mark.parametrize(
    ("agreed", "question", "code"),
    [
        (Question(gcfcp.Groups(["all"]), SCORE), QUESTION, Code.GROUPS_NOT_ALLOWED),
        (Question(GROUPS, "thr"), QUESTION, Code.SCORE_NOT_ALLOWED),
        (Question(GROUPS, RAPS), Question(GROUPS, gcfcp.scores.RAPS()), Code.SCORE_NOT_ALLOWED),
        (
            Question(GROUPS, SCORE, model="m1"),
            Question(GROUPS, SCORE, model="m2"),
            Code.MODEL_DIFFERS,
        ),
        (QUESTION, Question(GROUPS, SCORE, model="m2"), Code.MODEL_DIFFERS),
        (Question(GROUPS, SCORE, model="m1"), QUESTION, Code.MODEL_DIFFERS),
        (Question(GROUPS, SCORE, delta=249), QUESTION, Code.DELTA_DIFFERS),
        (Question(GROUPS, SCORE, delta=251), QUESTION, Code.DELTA_DIFFERS),
        (Question(GROUPS, SCORE, representative="mean"), QUESTION, Code.REPRESENTATIVE_DIFFERS),
        (Question(GROUPS, SCORE, min_count=11), QUESTION, Code.MIN_COUNT_DIFFERS),
        (QUESTION, Question(GROUPS, SCORE, min_count=11), Code.MIN_COUNT_DIFFERS),
        (QUESTION, Question(GROUPS, SCORE, min_count=1), Code.MIN_COUNT_DIFFERS),
        (QUESTION, Question(GROUPS, SCORE, by="atom"), Code.BY_DIFFERS),
        (QUESTION, Question(GROUPS, SCORE, shape=SHAPE), Code.SHAPE_DIFFERS),
        (
            Question(GROUPS, SCORE, shape=SHAPE),
            Question(GROUPS, SCORE, shape=OTHER_SHAPE),
            Code.SHAPE_DIFFERS,
        ),
        (QUESTION, QUESTION, None),
        (Question(GROUPS, SCORE, shape=SHAPE), Question(GROUPS, SCORE, shape=SHAPE), None),
        (Question(GROUPS, SCORE, model="m"), Question(GROUPS, SCORE, model="m"), None),
        ([Question(gcfcp.Groups(["all"]), SCORE), QUESTION], QUESTION, None),
        # Of several agreed questions, the nearest one says what differs.
        (
            [Question(gcfcp.Groups(["all"]), SCORE), QUESTION],
            Question(GROUPS, SCORE, delta=100),
            Code.DELTA_DIFFERS,
        ),
    ],
)
def test_the_site_decides(agreed: Any, question: Question, code: Code | None) -> None:
    called = []

    def load(question: Question, node: Any) -> Any:
        called.append(question)
        return data_of(0)

    got = ask(client_app(load, policy=Policy(agreed)), question)
    assert got.get("code") == code
    assert bool(called) == (code is None)  # No data are read for a refused question.
    assert ("payload" in got) == (code is None)


def _exit() -> Any:
    sys.exit(f"score {SECRET}")


def _raise(error: BaseException) -> Any:
    raise error


def _warn() -> Any:
    warnings.warn(f"odd score {SECRET}", stacklevel=1)
    return _raise(RuntimeError(SECRET))


@pytest.mark.parametrize(
    ("load", "code"),
    [
        (lambda: _raise(ValueError(SECRET)), Code.FAILED),
        (lambda: _raise(GCFCPError(SECRET)), Code.DATA_REFUSED),
        (lambda: _raise(KeyboardInterrupt(SECRET)), Code.FAILED),
        (lambda: _raise(MemoryError(SECRET)), Code.FAILED),
        (_exit, Code.FAILED),
        (_warn, Code.FAILED),
        (lambda: ([float(SECRET), float("nan")], [[1, 0, 0], [1, 0, 0]]), Code.DATA_REFUSED),
        (lambda: ([float(SECRET)], [[1, 0, float(SECRET)]]), Code.DATA_REFUSED),
        (lambda: None, Code.FAILED),
        (lambda: summary_of(1), Code.DATA_REFUSED),  # This summary is another client's.
        (lambda: summary_of(0, min_count=1), Code.DATA_REFUSED),  # It is finer than was asked for.
    ],
)
def test_no_failure_says_anything_but_its_code(
    load: Any, code: Code, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    got = ask(client_app(lambda q, n: load(), policy=Policy(QUESTION)))
    assert got == {"protocol": 1, "nonce": "n" * 32, "client": name_of(0), "code": str(code)}
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err + caplog.text
    assert str(code) in caplog.text + said.err + said.out  # The site is told the code.


@pytest.mark.parametrize(
    "record",
    [
        {"x": 1},
        {"request": b"{}"},
        {"request": "not JSON"},
        {"request": "[" * 100_000},
        {"request": json.dumps({"protocol": 99, "nonce": "n", "question": QUESTION.to_json()})},
        {"request": json.dumps({"protocol": 1, "nonce": 5, "question": QUESTION.to_json()})},
        {"request": json.dumps({"protocol": 1, "nonce": "n", "question": None})},
        {
            "request": json.dumps(
                {"protocol": 1, "nonce": "n", "question": QUESTION.to_json() | {"delta": -1}}
            )
        },
        {
            "request": json.dumps(
                {"protocol": 1, "nonce": "n", "question": QUESTION.to_json() | {"groups": ["a"]}}
            )
        },
        {
            "request": json.dumps(
                {"protocol": 1, "nonce": "n", "question": QUESTION.to_json() | {"min_count": 1e9}}
            )
        },
    ],
)
def test_a_request_that_makes_no_sense_is_refused(record: dict[str, Any]) -> None:
    assert ask(APP, **record)["code"] == Code.BAD_REQUEST


def test_a_question_arrives_as_it_was_asked() -> None:
    groups = gcfcp.Groups({"all": "TRUE", "old": "age >= 65"})
    for score in (None, "mine", gcfcp.scores.THR(), gcfcp.scores.RAPS(lam=0.1, k_reg=2)):
        question = Question(groups, score, model="m", delta=31.5, representative="mean")
        got = Question.from_json(json.loads(json.dumps(question.to_json())))
        assert got.to_json() == question.to_json()
        if not isinstance(score, str | None):
            assert got.score == score


def test_every_code_has_a_meaning_and_the_guide_lists_it() -> None:
    guide = (Path(__file__).parents[1] / "docs/flower.md").read_text()
    for code in Code:
        assert code.meaning
        assert f"`{code}`" in guide


# --- the ready app --------------------------------------------------------------------------------


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """The files of three hospitals: calibration data, audit data and the groups."""
    import polars as pl

    (tmp_path / "groups.toml").write_text('all = "TRUE"\nover_65 = "age >= 65"\n')
    for k, name in enumerate("abc"):
        rng = np.random.default_rng(k)
        for what, n in (("data", 300 + k), ("audit", 400)):
            p = rng.dirichlet(np.ones(3) * 0.7, size=n).astype(np.float64)
            y = [rng.choice(3, p=row / row.sum()) for row in p]
            columns = {f"proba_{label}": p[:, i] for i, label in enumerate(["no", "so", "yes"])}
            frame = {"y": np.array(["no", "so", "yes"])[y], "age": rng.integers(20, 90, n)}
            pl.DataFrame(frame | columns).write_parquet(tmp_path / f"{name}-{what}.parquet")
    return tmp_path


def node_of(sites: Path, name: str, **more: Any) -> dict[str, Any]:
    return {
        "client": f"hospital-{name}",
        "data": str(sites / f"{name}-data.parquet"),
        "groups": str(sites / "groups.toml"),
        "score": "thr",
        "audit-data": str(sites / f"{name}-audit.parquet"),
        "ledger": str(sites / f"{name}-ledger"),
    } | more


def summary_node(sites: Path, name: str, summary: Path, **more: Any) -> dict[str, Any]:
    """The configuration of a node that sends a summary which was made beforehand."""
    of_data = node_of(sites, name)
    return {k: of_data[k] for k in ("client", "audit-data", "ledger")} | {
        "summary": str(summary),
        **more,
    }


def run_config(sites: Path, **changes: Any) -> dict[str, Any]:
    """The defaults of the ready app with some changes, as Flower would hand them over."""
    path = Path(ready.__file__).parent / "ready/pyproject.toml"
    defaults = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"]
    own = {"groups": str(sites / "groups.toml"), "output": str(sites / "round"), "score": "thr"}
    assert set(own) | set(changes) <= set(defaults)
    return defaults | own | {"min-clients": 3, "deadline": 20} | changes


def run_ready(sites: Path, nodes: dict[int, InProcessNode], **changes: Any) -> None:
    context = Context(1, 0, {}, RecordDict(), run_config(sites, **changes))
    ready.server(InProcessGrid(nodes), context)


def gcfcp_command(command: str) -> None:
    from gcfcp.cli import entry as cli

    cli.run(shlex.split(command))


def test_a_secure_sum_gives_the_predictor_of_the_plain_summaries_added_up(sites: Path) -> None:
    """The ready apps, four nodes, signed; one of the nodes dies after it has sent its shares."""
    names, files = "abcd", {name: sites / f"{name}.key" for name in "abcd"}
    for what in ("data", "audit"):
        (sites / f"d-{what}.parquet").write_bytes((sites / f"a-{what}.parquet").read_bytes())
    known = "".join(f'hospital-{n} = "{signatures.new_key(f)}"\n' for n, f in files.items())
    (sites / "keys.toml").write_text(known)
    agreed = {"grid": "uniform:0,1,32", "secure": True, "known-keys": str(sites / "keys.toml")}
    nodes = {
        k: InProcessNode(ready.client, node_of(sites, n, key=str(files[n]), **agreed))
        for k, n in enumerate(names)
    }

    def dies_later(message: Message, context: Context) -> Message:
        if nodes[3].asked > 2:
            return Message(Error(6, SECRET), reply_to=message)
        return ready.client(message, context)

    nodes[3].handler = dies_later
    run_ready(sites, nodes, missing="present", **agreed)
    plain = []
    for name in "abc":
        alone = {"grid": "uniform:0,1,32", "min-count": 1, "by": "group"}
        settings = {k: v for k, v in node_of(sites, name, **alone).items() if k != "client"}
        ledger = Ledger(Path(settings.pop("ledger") + "-plain"))
        site = rounds.site_of(settings, f"hospital-{name}", ledger)
        question = rounds.question_of(settings)
        plain.append(gcfcp.ClientSummary.from_bytes(rounds.answer_summary(site, question)))
    total = gcfcp.add(plain)
    members = tuple((name, None) for name, _ in total.members)
    expected = with_min_count(replace(total, members=members, parameters={}), 10)
    found = gcfcp.ClientSummary.load(sites / "round/sum.gcfcp")
    assert found.to_bytes() == expected.to_bytes()
    made = gcfcp.calibrate([expected], 0.1, aggregates={expected.client: 3})
    predictor = gcfcp.Predictor(expected.score, made)
    predictor.provenance["missing"] = ["hospital-d"]
    assert (sites / "round/predictor.json").read_bytes() == predictor.to_json().encode()
    record = record_of(sites / "round")
    assert record["answered"] == [f"hospital-{name}" for name in "abc"]
    assert record["sum"]["dropped"] == record["missing"] == ["hospital-d"]
    assert (record["sum"]["signed"], record["sum"]["threshold"]) == (True, 3)
    # Sizes of sites and names of labels are all that the sum of the plain summaries tells more.
    other = gcfcp.calibrate([with_min_count(total, 10)], 0.1, aggregates={expected.client: 3})
    assert other.table == made.table


def test_the_ready_app_gives_the_bytes_of_the_command_line(sites: Path) -> None:
    nodes = {k: InProcessNode(ready.client, node_of(sites, name)) for k, name in enumerate("abc")}
    run_ready(sites, nodes, audit=True)
    files = []
    for name in "abc":
        files.append(str(sites / f"hospital-{name}.gcfcp"))
        data, groups = sites / f"{name}-data.parquet", sites / "groups.toml"
        command = f"summarize {data} --groups {groups} --client hospital-{name} --score thr"
        gcfcp_command(f"{command} --min-count 10 -o {files[-1]}")
        kept = sites / f"round/summaries/hospital-{name}.gcfcp"
        assert kept.read_bytes() == Path(files[-1]).read_bytes()
    gcfcp_command(f"calibrate {' '.join(files)} --alpha 0.1 -o {sites / 'by-files.json'}")
    written = (sites / "round/predictor.json").read_bytes()
    assert written == (sites / "by-files.json").read_bytes()
    record = record_of(sites / "round")
    assert [e["status"] for e in record["audits"]] == ["answered"] * 3
    assert [c["n"] for c in record["audit"]["clients"]] == [400] * 3
    assert [g["group"] for g in record["audit"]["groups"]] == ["all", "over_65"]
    for name in "abc":  # The ledger of a site says what was asked and how much left it.
        ledger = Ledger(sites / f"{name}-ledger")
        kept = (sites / f"round/summaries/hospital-{name}.gcfcp").read_bytes()
        by_kind = {e.asked.kind: e for e in ledger.entries()}
        assert by_kind["summary"].answer == kept
        assert by_kind["summary"].asked.dataset == str(sites / f"{name}-data.parquet")
        assert by_kind["audit"].asked.dataset == str(sites / f"{name}-audit.parquet")
        lines = ledger.journal()
        assert [(e["asked"], e["repeated"]) for e in lines] == [
            ("summary", False),
            ("audit", False),
        ]
        assert lines[0]["bytes"] == len(kept)


def test_a_site_may_send_a_summary_that_it_has_looked_at(sites: Path) -> None:
    nodes = {k: InProcessNode(ready.client, node_of(sites, name)) for k, name in enumerate("abc")}
    run_ready(sites, nodes)
    expected = (sites / "round/predictor.json").read_bytes()
    for k, name in enumerate("abc"):
        made = sites / f"round/summaries/hospital-{name}.gcfcp"
        nodes[k] = InProcessNode(ready.client, summary_node(sites, name, made))
    run_ready(sites, nodes, output=str(sites / "again"))
    assert (sites / "again/predictor.json").read_bytes() == expected
    # A summary that was made in another way than is asked now is not sent.
    with pytest.raises(GCFCPError, match="0 clients answered"):
        run_ready(sites, nodes, output=str(sites / "third"), delta=100)
    assert {e["code"] for e in record_of(sites / "third")["clients"]} == {"delta-differs"}


def test_a_region_answers_for_its_clients_if_the_round_allows_it(sites: Path) -> None:
    nodes = {k: InProcessNode(ready.client, node_of(sites, name)) for k, name in enumerate("abc")}
    run_ready(sites, nodes)
    parts = [
        gcfcp.ClientSummary.load(sites / f"round/summaries/hospital-{name}.gcfcp") for name in "ab"
    ]
    gcfcp.merge(parts, "north").save(sites / "north.gcfcp")
    config = summary_node(sites, "a", sites / "north.gcfcp", client="north")
    region = InProcessNode(ready.client, config)
    nodes = {0: region, 1: nodes[2]}
    more: dict[str, Any] = {"min-clients": 1, "missing": "present"}
    run_ready(sites, nodes, output=str(sites / "no"), **more)
    codes = {e["client"]: e["code"] for e in record_of(sites / "no")["clients"] if e["client"]}
    assert codes == {"hospital-c": None}
    with pytest.raises(GCFCPError, match="say how many 'north' has"):
        run_ready(sites, nodes, output=str(sites / "x"), aggregates="north", mixture="uniform")
    run_ready(sites, nodes, output=str(sites / "wrong"), aggregates="north=3", **more)
    (entry,) = (e for e in record_of(sites / "wrong")["clients"] if e["code"])
    assert entry["code"] == "is-aggregate"
    assert "stands for 2 clients, but the server knows of 3" in entry["detail"]
    run_ready(sites, nodes, output=str(sites / "yes"), aggregates="north=2", **more)
    predictor = gcfcp.Predictor.load(sites / "yes/predictor.json")
    assert [c["members"] for c in predictor.provenance["clients"]] == [1, 2]
    # No client may count twice. Here hospital-a is part of the region and also answers itself.
    nodes[2] = InProcessNode(ready.client, node_of(sites, "a"))
    run_ready(sites, nodes, output=str(sites / "twice"), aggregates="north", **more)
    codes = {e["client"]: e["code"] for e in record_of(sites / "twice")["clients"]}
    assert codes == {
        "hospital-a": "members-overlap",
        "hospital-c": None,
        "north": "members-overlap",
    }


def test_a_dead_site_is_a_code_and_its_own_log_says_why(
    sites: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    (sites / "broken.csv").write_text(f"y,age,proba_no,proba_so,proba_yes\nno,70,{SECRET},x,y\n")
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "no such file": ({"data": "/nowhere.csv"}, "data-refused"),
        "not numbers": ({"data": str(sites / "broken.csv")}, "data-refused"),
        "typing error": ({"min-cuont": 5}, "site-not-set-up"),
        "not a number": ({"min-count": "5"}, "site-not-set-up"),
        "no groups": ({"groups": "/nowhere.toml"}, "site-not-set-up"),
        "two sources": ({"summary": "x.gcfcp"}, "site-not-set-up"),
        "ledger": ({"ledger": "/dev/null/ledger"}, "ledger-unusable"),
        "no score": ({"score": ""}, "site-not-set-up"),
        "former key": ({"max-delta": 250}, "site-not-set-up"),
    }
    nodes = {
        k: InProcessNode(ready.client, node_of(sites, "a") | change)
        for k, (change, _) in enumerate(cases.values())
    }
    with pytest.raises(GCFCPError, match="0 clients answered"):
        run_ready(sites, nodes)
    printed = capfd.readouterr()
    assert "gcfcp: failed: 0 clients answered" in printed.out
    found = {e["node"]: e["code"] for e in record_of(sites / "round")["clients"]}
    assert found == {str(k): code for k, (_, code) in enumerate(cases.values())}
    said = capfd.readouterr()
    log = caplog.text + printed.err + printed.out + said.err + said.out
    assert "'min-cuont'" in log
    assert "write the agreed delta as delta" in log
    assert "/dev/null/ledger" in log
    assert SECRET not in log


def test_a_roster_binds_names_to_keys(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    ssh = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    pem = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert fingerprint(ssh) == fingerprint(ssh + b" a@b\n") == fingerprint(pem)
    (tmp_path / "a.pub").write_bytes(ssh)
    other = fingerprint(keys(1)[0])
    (tmp_path / "r.toml").write_text(f'[clients]\na = "a.pub"\n"b c" = "{other}"\n')
    assert read_roster(tmp_path / "r.toml") == {"a": fingerprint(pem), "b c": other}
    for text, message in [
        ("clients = 5", "one table"),
        ("[clients]", "one table"),
        ("[clients", "not TOML"),
        ('[clients]\na = "none.pub"', "cannot read"),
        ('[clients]\na = "r.toml"', "not a public key"),
        ("[clients]\na = 5", "not a string"),
        ('[clients]\na = "a.pub"\nb = "a.pub"', "one key to two"),
    ]:
        (tmp_path / "r.toml").write_text(text)
        with pytest.raises(GCFCPError, match=message):
            read_roster(tmp_path / "r.toml")


def test_the_mixture_is_written_as_on_the_command_line(sites: Path) -> None:
    weights = {"hospital-a": 0.5, "hospital-b": 0.3, "hospital-c": 0.2}
    (sites / "mixture.json").write_text(json.dumps(weights))
    nodes = {k: InProcessNode(ready.client, node_of(sites, name)) for k, name in enumerate("abc")}
    for text in (str(sites / "mixture.json"), "hospital-a=0.5, hospital-b=0.3,hospital-c=0.2"):
        run_ready(sites, nodes, mixture=text)
        assert record_of(sites / "round")["shares"] == weights
    (sites / "mixture.json").write_text("[1]")
    for text in (str(sites / "mixture.json"), "equal", "a=1,b", "/nowhere.json"):
        with pytest.raises(GCFCPError, match=r"mixture|cannot read"):
            ready.setup_of(run_config(sites, mixture=text))


def test_the_app_directory_is_written_once_and_flower_accepts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write_app(["app", str(tmp_path / "round")]) == 0
    assert [p.name for p in (tmp_path / "round").iterdir()] == ["pyproject.toml"]
    assert write_app(["app", str(tmp_path / "round")]) == 1
    assert "exists" in capsys.readouterr().err
    assert write_app([]) == 2
    config = tomllib.loads((tmp_path / "round/pyproject.toml").read_text())
    from flwr.common.config import validate_config

    assert validate_config(config, check_module=True) == (True, [], [])


def test_the_core_never_imports_flower() -> None:
    code = "import gcfcp, sys; print([m for m in sys.modules if m.split('.')[0] == 'flwr'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_resolver_gave_a_flower_that_is_new_enough() -> None:
    major, minor = (int(part) for part in version("flwr").split(".")[:2])
    assert (major, minor) >= (1, 39)


@pytest.mark.parametrize(
    ("agreed", "more", "message"),
    [
        (GROUPS, {}, "agreed=.* is not a question: give Question"),
        (None, {}, "agreed=None is not a question"),
        ([], {}, "is not a question"),
        ([QUESTION, "thr"], {}, "agreed='thr' is not a question"),
        (QUESTION, {"questions": 0}, "questions=0 is not a whole number of at least 1"),
        (QUESTION, {"audits": True}, "audits=True is not a whole number"),
    ],
)
def test_a_policy_that_would_allow_anything_is_refused(
    agreed: Any, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(GCFCPError, match=message):
        Policy(agreed, **more)


@pytest.mark.parametrize("name", ["coreset", "audit"])
def test_a_word_is_not_taken_for_true(name: str, tmp_path: Path) -> None:
    """`coreset = "no"` in a configuration would have sent the coreset to every client."""
    from gcfcp.flower.app import setup_of

    (tmp_path / "groups.toml").write_text('all = "TRUE"\n')
    run = {"groups": str(tmp_path / "groups.toml"), "score": "thr", "output": str(tmp_path / "o")}
    setup_of(run | {name: True})
    with pytest.raises(GCFCPError, match=f"{name}='no' is neither true nor false"):
        setup_of(run | {name: "no"})


# --- sites as groups, and groups that a site cannot have ------------------------------------------


def test_a_site_is_the_group_of_its_own_name() -> None:
    family = gcfcp.Groups(["all", "young", "rural"], sites=[name_of(0), name_of(1)])
    policy = Policy(Question(family, SCORE))
    got = ask(client_app(load, policy=policy), Question(family, SCORE))
    found = gcfcp.ClientSummary.from_bytes(got["payload"])
    assert found == summary_of(0, groups=family)
    assert found.possible.tolist() == [True, True, True, True, False]
    stranger = ask(client_app(load, policy=policy, client="x"), Question(family, SCORE))
    assert stranger["code"] == Code.DATA_REFUSED
    assert Question.from_json(Question(family, SCORE).to_json()).groups == family


def all_alike(question: Question, node: Any) -> Any:
    return data_of(0)[0], [[1, 0, 0]] * len(data_of(0)[0])


def test_a_site_says_itself_which_groups_it_cannot_have() -> None:
    policy = Policy(QUESTION, absent=("rural", "young"))
    got = ask(client_app(all_alike, policy=policy))
    assert gcfcp.ClientSummary.from_bytes(got["payload"]).absent == ("young", "rural")
    assert ask(client_app(load, policy=policy))["code"] == Code.DATA_REFUSED
    # Of several families, each takes the names that it has.
    other = gcfcp.Groups(["all", "old"])
    both = Policy([QUESTION, Question(other, SCORE)], absent=("rural", "old"))
    got = ask(client_app(all_alike, policy=both))
    assert gcfcp.ClientSummary.from_bytes(got["payload"]).absent == ("rural",)


def test_a_summary_made_beforehand_declares_what_the_policy_declares() -> None:
    scores, membership = all_alike(QUESTION, {})
    made = gcfcp.summarize(
        scores, membership, groups=GROUPS, client=name_of(0), min_count=10, score=SCORE,
        absent=["young"], by="group",
    )  # fmt: skip

    def answer(**policy: Any) -> dict[str, Any]:
        return ask(client_app(lambda question, node: made, policy=Policy(QUESTION, **policy)))

    assert answer()["payload"] == made.to_bytes()
    assert answer(absent=("young",))["payload"] == made.to_bytes()
    assert answer(absent=("rural",))["code"] == Code.DATA_REFUSED


@pytest.mark.parametrize(
    ("absent", "message"),
    [
        ("young", "absent='young' is not a list of groups: give a tuple"),
        (("old",), "absent='old' is not one of the groups all, young, rural: give the names"),
    ],
)
def test_a_policy_that_declares_what_it_does_not_know_is_refused(absent: Any, message: str) -> None:
    with pytest.raises(GCFCPError, match=message):
        Policy(QUESTION, absent=absent)


def test_the_ready_app_takes_sites_and_absent_groups(sites: Path) -> None:
    import polars as pl

    names = ", ".join(f'"hospital-{name}"' for name in "abc")
    text = f'sites = [{names}]\nall = "TRUE"\nover_65 = "age >= 65"\nunder_9 = "age < 9"\n'
    (sites / "groups.toml").write_text(text)
    young = pl.read_parquet(sites / "a-data.parquet").filter(pl.col("age") < 65)
    young.write_parquet(sites / "a-data.parquet")
    more = {"a": {"absent": "under_9, over_65"}}
    nodes = {
        k: InProcessNode(ready.client, node_of(sites, name, **more.get(name, {})))
        for k, name in enumerate("abc")
    }
    run_ready(sites, nodes, audit=True)
    kept = {
        name: gcfcp.ClientSummary.load(sites / f"round/summaries/hospital-{name}.gcfcp")
        for name in "abc"
    }
    assert [kept[name].absent for name in "abc"] == [("over_65", "under_9"), (), ()]
    assert kept["b"].possible.tolist() == [True, True, True, False, True, False]
    audited = record_of(sites / "round")["audit"]["groups"]
    assert [g["total"] for g in audited if g["group"].startswith("site")] == [400] * 3


def test_a_ready_summary_says_itself_what_is_absent(sites: Path) -> None:
    for key, value in {"absent": "over_65", "groups": "g.toml", "delta": 250}.items():
        config = summary_node(sites, "a", sites / "a.gcfcp", **{key: value})
        with pytest.raises(GCFCPError, match=f"{key} beside summary: leave {key} out"):
            ready.site_of(config)
    config = node_of(sites, "a", absent="over_56")
    with pytest.raises(GCFCPError, match="absent='over_56' is not one of the groups all, over_65"):
        ready.site_of(config)


# --- the mixture of the audit ---------------------------------------------------------------------


def audited_nodes(count: int, silent: tuple[int, ...] = ()) -> dict[int, InProcessNode]:
    """Sites that count coverage by hand; the `silent` ones take part in no audit."""

    def check(predictor: gcfcp.Predictor, question: Question, node: Any) -> Any:
        scores, membership = data_of(int(node["partition-id"]))
        return scores <= predictor.thresholds(membership), membership

    app, ledger = client_app(load, policy=Policy(QUESTION), audit=check), new_ledger()
    return {
        100 + k: InProcessNode(APP if k in silent else app, simulated(k, ledger))
        for k in range(count)
    }


def test_an_audit_is_about_the_mixture_of_the_predictor(tmp_path: Path) -> None:
    lines: list[str] = []
    grid = InProcessGrid(audited_nodes(3))
    terms = Terms(min_clients=3)
    result = conduct(grid, QUESTION, Target(audit=True), terms, tmp_path, lines.append)
    assert result.calibration.mixture == "proportional"
    assert result.audit is not None
    assert result.audit.mixture == result.audit.shares
    assert result.audit.shares == pytest.approx(result.calibration.shares, abs=1e-12)
    assert result.audit.mixture_text.startswith(f"the predictor's mixture ({name_of(0)} 0.3")
    said = f"mixture of the clients: {result.audit.mixture_text}"
    assert any(said in line.splitlines() for line in lines)
    assert record_of(tmp_path)["audit"]["mixture_text"] == result.audit.mixture_text
    page = (tmp_path / "report.html").read_text()
    assert f"Mixture of the clients in the audit: the predictor&#39;s mixture ({name_of(0)}" in page


def test_the_mixture_of_an_audit_says_who_is_missing(tmp_path: Path) -> None:
    mixture = {name_of(0): 0.5, name_of(1): 0.25, name_of(2): 0.25, name_of(3): 0.0}
    grid = InProcessGrid(audited_nodes(4, silent=(1,)))
    target, terms = Target(0.1, mixture, audit=True), Terms(min_clients=4)
    found = conduct(grid, QUESTION, target, terms, tmp_path / "a", quiet).audit
    assert found is not None
    assert found.shares == pytest.approx({name_of(0): 2 / 3, name_of(2): 1 / 3, name_of(3): 0})
    assert found.mixture_text.endswith(
        "without the sites that were not audited, whose weight is 0.25"
    )
    # If only a client without weight was audited, nothing can be said of the mixture.
    grid = InProcessGrid(audited_nodes(4, silent=(0, 1, 2)))
    result = conduct(grid, QUESTION, target, terms, tmp_path / "b", quiet)
    assert result.audit is None
    assert any("no client that has weight" in note for note in result.record["notes"])


@pytest.mark.parametrize("claimed", [None, 0.9])
def test_a_site_cannot_claim_another_weight(tmp_path: Path, claimed: float | None) -> None:
    """A site of gcfcp 0.1.0 claims no weight, and then the server fills it in."""
    nodes = audited_nodes(3)
    honest = nodes[101].handler

    def claiming(message: Message, context: Context) -> Message:
        answer = honest(message, context)
        record = dict(answer.content[protocol.RECORD])
        with suppress(GCFCPError):  # In the first round it is a summary.
            audit = replace(gcfcp.Audit.from_bytes(record["payload"]), share=claimed)
            return reply(message, **(record | {"payload": audit.to_bytes()}))
        return answer

    nodes[101].handler = claiming
    terms = Terms(min_clients=3)
    result = conduct(InProcessGrid(nodes), QUESTION, Target(audit=True), terms, tmp_path, quiet)
    assert result.audit is not None
    codes = {e["client"]: e["code"] for e in result.record["audits"]}
    if claimed is None:
        assert set(codes.values()) == {None}
        assert result.audit.shares == pytest.approx(result.calibration.shares, abs=1e-12)
    else:
        assert sorted(result.audit.shares) == [name_of(0), name_of(2)]
        assert any(e["code"] == "not-as-asked" for e in result.record["audits"])


def test_what_was_answered_over_flower_is_repeated_over_another_carrier(tmp_path: Path) -> None:
    """All carriers ask through one ledger, so a question cannot be asked once over each."""
    sent = ask(APP, node=simulated(0, str(tmp_path)))["payload"]

    def read(question: Question) -> Any:
        raise AssertionError("the records are not read again")

    site = Site(
        name_of(0),
        Policy([QUESTION, Question(GROUPS, SCORE, delta=100)]),
        Ledger(tmp_path),
        Records(name_of(0), read),
    )
    for delta, found in ((250, sent), (100, None)):
        request = Request(Question(GROUPS, SCORE, delta=delta), "n")
        reply = unpack(respond_to_bytes(pack(request.to_record()), lambda: site))
        assert reply.get("payload") == found
    assert reply["code"] == "questions-used-up"


def test_a_sites_own_file_is_not_taken_from_an_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower puts the directory of a run's app before all others on Python's path."""
    from gcfcp.flower.app import app_directories, client

    app, own = tmp_path / "app", tmp_path / "own"
    assert write_app(["app", str(app)]) == 0
    own.mkdir()
    source = Path(__file__).parents[1] / "examples/flower/my_site.py"
    question = Question(gcfcp.Groups(["all"]), gcfcp.scores.THR(), min_count=20)
    monkeypatch.setattr(sys, "path", [str(app), *sys.path])
    assert app_directories() == [app]
    for directory, code in ((app, "site-not-set-up"), (own, "groups-not-allowed")):
        (directory / "my_site.py").write_text(source.read_text())
        (own / "groups.toml").write_text('all = "TRUE"\nold = "age > 65"\n')
        node = {"site": f"{directory / 'my_site.py'}:site", "folder": str(own)}
        assert ask(client, question, node)["code"] == code
    assert str(app) not in sys.path


# --- the ledger: one answer, whatever the server does ---------------------------------------------


def test_a_server_can_choose_neither_ledger_nor_data_set(tmp_path: Path) -> None:
    """Nothing of a message or of a run's configuration is part of a name on the site's disk."""
    other = Question(GROUPS, SCORE, delta=100)
    app = client_app(load, policy=Policy([QUESTION, other]))
    evil = {"dataset": "new", "ledger": str(tmp_path / "evil"), "client": "new", "questions": 99}
    codes = []
    for run, question in enumerate((QUESTION, other, QUESTION)):
        request = {"protocol": 1, "nonce": "n", "question": question.to_json() | evil} | evil
        content = {"request": json.dumps(request)} | evil
        message = Message(
            RecordDict({protocol.RECORD: ConfigRecord(content)}), 7, "query.summarize"
        )
        node = simulated(0, str(tmp_path / "ledger"))
        answer = app(message, Context(run, 7 + run, node, RecordDict(), evil))
        codes.append(answer.content[protocol.RECORD].get("code"))
    assert codes == [None, "questions-used-up", None]
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]
    (entry,) = Ledger(tmp_path / "ledger").entries()
    assert entry.asked.dataset == entry.asked.client == name_of(0)


def test_a_node_without_a_name_must_say_where_its_ledger_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A new ledger for every run would let a server ask such a site again and again."""
    assert ask(APP, node={"partition-id": 0})["code"] == Code.SITE_NOT_SET_UP
    printed = capfd.readouterr()
    said = caplog.text + printed.out + printed.err
    assert "client_app(ledger=DIRECTORY)" in said
    in_python = client_app(load, policy=Policy(QUESTION), ledger=tmp_path / "python")
    assert "payload" in ask(in_python, node={"partition-id": 0})
    assert len(Ledger(tmp_path / "python").entries()) == 1
    # A relative path would be another ledger after a start in another directory.
    relative = {"client": "a", "partition-id": 1, "ledger": "ledger"}
    assert ask(APP, node=relative)["code"] == Code.SITE_NOT_SET_UP
    # A site with a name has the usual ledger.
    assert "payload" in ask(APP, node={"partition-id": 1, "client": "a"})
    usual = Ledger(Path(os.environ["XDG_STATE_HOME"]) / "gcfcp")
    assert [e.asked.dataset for e in usual.entries()] == ["a"]
    # The node configuration comes before what is written in Python.
    node = {"client": "b", "partition-id": 2, "dataset": "Q4", "ledger": str(tmp_path / "node")}
    app = client_app(load, policy=Policy(QUESTION), ledger=tmp_path / "python", dataset="Q3")
    assert "payload" in ask(app, node=node)
    assert [e.asked.dataset for e in Ledger(tmp_path / "node").entries()] == ["Q4"]


def test_a_site_in_python_can_notice_that_its_records_changed(tmp_path: Path) -> None:
    marks = ["1", "1", "2"]
    app = client_app(
        load,
        policy=Policy(QUESTION),
        ledger=tmp_path,
        fingerprint=lambda node: marks.pop(0),
    )
    assert "payload" in ask(app, node={"partition-id": 0})
    assert ask(app, node={"partition-id": 0})["code"] == Code.DATA_CHANGED


def test_the_ready_app_repeats_its_answer_and_names_changed_records(
    sites: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The next quarter: other records need another name, or another file."""
    import polars as pl

    question = Question(gcfcp.Groups.from_toml(sites / "groups.toml"), gcfcp.scores.APS())
    config = node_of(sites, "a", score="aps")  # It is randomised, and there is no seed.
    first = ask(ready.client, question, config)["payload"]
    assert ask(ready.client, question, config)["payload"] == first
    again = pl.read_parquet(config["data"]).head(299)
    again.write_parquet(config["data"])
    assert ask(ready.client, question, config)["code"] == Code.DATA_CHANGED
    printed = capfd.readouterr()
    said = caplog.text + printed.out + printed.err
    assert "give the new records a name of their own" in said
    named = config | {"dataset": "2026Q4"}
    second = ask(ready.client, question, named)["payload"]
    assert gcfcp.ClientSummary.from_bytes(second).n == 299
    assert ask(ready.client, question, named)["payload"] == second
    datasets = [e.asked.dataset for e in Ledger(sites / "a-ledger").entries()]
    assert datasets == [config["data"], "2026Q4"]


def test_a_site_that_agrees_to_the_defaults_writes_little(sites: Path) -> None:
    """The defaults of a site's settings are those of the server's configuration."""
    config = run_config(sites)
    asked = ready.setup_of(config)[0]
    (agreed,) = ready.site_of(node_of(sites, "a")).policy.agreed
    assert agreed.to_json() == asked.to_json()
    same = {k: config[k] for k in ("parameters", "model", "delta", "representative", "by", "shape")}
    (written,) = ready.site_of(node_of(sites, "a", **same)).policy.agreed
    assert written.to_json() == asked.to_json()


def test_a_predictor_of_another_score_is_not_audited_over_flower(sites: Path) -> None:
    """0.1.0 answered: a policy said which score may be summarised, but not which is audited."""
    groups = gcfcp.Groups.from_toml(sites / "groups.toml")
    residual = gcfcp.scores.AbsoluteResidual()
    made = gcfcp.summarize(
        np.ones(40), np.ones((40, 2), dtype=bool), groups=groups, client="x", score=residual
    )
    predictor = gcfcp.Predictor(residual, gcfcp.calibrate([made], 0.1)).to_json().encode()
    content = Request(Question(groups, gcfcp.scores.THR()), "n", predictor).to_record()
    message = Message(RecordDict({protocol.RECORD: ConfigRecord(content)}), 7, "query.audit")
    answer = ready.client(message, Context(1, 7, node_of(sites, "a"), RecordDict(), {}))
    assert answer.content[protocol.RECORD]["code"] == Code.SCORE_NOT_ALLOWED


# --- by group, with a shape and with confidence ---------------------------------------------------


def test_a_question_with_a_min_count_is_by_group() -> None:
    shape = gcfcp.Shape(GROUPS, (1.0, 0.5, -2.0), ("0123456789abcdef",))
    assert Question(GROUPS).by == "group"
    assert Question(GROUPS, min_count=1).by == "atom"
    assert Question(GROUPS, min_count=1, shape=shape).by == "group"
    assert Question(GROUPS, by="atom").by == "atom"
    asked = Question(GROUPS, SCORE, shape=shape)
    assert Question.from_json(json.loads(json.dumps(asked.to_json()))) == asked
    older = {k: v for k, v in Question(GROUPS).to_json().items() if k not in ("by", "shape")}
    assert Question.from_json(older).by == "atom"
    with pytest.raises(GCFCPError, match="a summary by atom takes no shape"):
        Question(GROUPS, by="atom", shape=shape)
    with pytest.raises(GCFCPError, match="by='x' is neither"):
        Question(GROUPS, by="x")


def test_a_round_with_a_shape_and_confidence_is_that_of_the_files(tmp_path: Path) -> None:
    shape = gcfcp.fit_shape([summary_of(k, by="atom", min_count=1) for k in range(20, 26)], 0.1)
    made = [summary_of(k, shape=shape) for k in range(6)]
    target = Target(0.1, confidence=0.9)
    question = Question(GROUPS, SCORE, shape=shape)
    grid = grid_of(6, app=client_app(load, policy=Policy(question)))
    result = conduct(grid, question, target, Terms(min_clients=6), tmp_path, quiet)
    expected = gcfcp.Predictor(SCORE, gcfcp.calibrate(made, 0.1, confidence=0.9))
    assert (tmp_path / "predictor.json").read_text() == expected.to_json()
    assert result.calibration.guarantee[0].promise == "for this predictor, with 90 % confidence"
    assert record_of(tmp_path)["target"]["confidence"] == 0.9
    # A summary with another shape, or with none, is not what was asked for.
    stranger = summary_of(0).to_bytes()

    def other(message: Message, context: Context) -> Message:
        nonce = nonce_of(message)
        return reply(message, **protocol.answer(nonce, name_of(0), stranger))

    grid = InProcessGrid({0: InProcessNode(other, {"partition-id": 0})})
    with pytest.raises(GCFCPError, match="0 clients answered"):
        conduct(grid, question, target, Terms(deadline=1), tmp_path / "other", quiet)
    (entry,) = record_of(tmp_path / "other")["clients"]
    assert entry["code"] == "not-as-asked"
    assert entry["detail"].startswith("shape is None, but")


def test_a_rule_that_cannot_be_is_refused_before_anyone_is_asked(tmp_path: Path) -> None:
    for question, target in (
        (QUESTION, Target(0.1, rule="simultaneous")),
        (Question(GROUPS, by="atom"), Target(0.1, rule="simultaneous", confidence=0.9)),
    ):
        grid = grid_of(3)
        with pytest.raises(GCFCPError, match="needs summaries by atom and no confidence"):
            conduct(grid, question, target, Terms(min_clients=3), tmp_path, quiet)
        assert not grid.sent


def test_the_ready_app_takes_by_shape_and_confidence(sites: Path) -> None:
    first = sites / "round/predictor.json"

    def nodes_of(turn: int, **more: Any) -> dict[int, InProcessNode]:
        """The nodes of three hospitals; with a turn of 1 each has the records of the next one."""
        return {
            k: InProcessNode(
                ready.client,
                node_of(sites, name, **more)
                | {"data": str(sites / f"{'abc'[(k + turn) % 3]}-data.parquet")},
            )
            for k, name in enumerate("abc")
        }

    run_ready(sites, nodes_of(0, by="atom"), by="atom")
    assert gcfcp.Predictor.load(first).provenance["by"] == "atom"
    again = {"output": str(sites / "second"), "shape": str(first), "confidence": 0.9}
    # The sites have answered one question about these records, and answer no other one.
    codes = []
    for more in ({}, {"questions": 2}):
        nodes = nodes_of(0, shape=str(first), **more)
        with pytest.raises(GCFCPError, match="0 clients answered"):
            run_ready(sites, nodes, **again)
        codes.append({e["code"] for e in record_of(sites / "second")["clients"]})
    # Even if their owner allows two, the records behind the shape are not used with it.
    assert codes == [{"questions-used-up"}, {"data-refused"}]
    # Other data take their place.
    run_ready(sites, nodes_of(1, shape=str(first)), **again)
    made = gcfcp.Predictor.load(sites / "second/predictor.json")
    assert made.provenance["confidence"] == 0.9
    assert made.shape == gcfcp.Shape.load(first)


# --- who weighs what ------------------------------------------------------------------------------


def test_a_summary_of_another_round_is_left_out_and_the_others_go_on(sites: Path) -> None:
    nodes = {k: InProcessNode(ready.client, node_of(sites, name)) for k, name in enumerate("abc")}
    run_ready(sites, nodes)
    for k, (name, when) in enumerate(zip("abc", ("2026Q4", "2026Q4", "2026Q3"), strict=True)):
        path = sites / f"round/summaries/hospital-{name}.gcfcp"
        dated = replace(gcfcp.ClientSummary.load(path), round=when)
        dated.save(sites / f"{name}.gcfcp")
        config = summary_node(sites, name, sites / f"{name}.gcfcp")
        nodes[k] = InProcessNode(ready.client, config)
    more: dict[str, Any] = {"min-clients": 1, "missing": "present"}
    run_ready(sites, nodes, output=str(sites / "q4"), round="2026Q4", **more)
    record = record_of(sites / "q4")
    assert record["answered"] == ["hospital-a", "hospital-b"]
    # The site itself refuses to pass its summary off as one of another round.
    assert [e["code"] for e in record["clients"] if e["code"]] == ["round-differs"]
    assert gcfcp.Predictor.load(sites / "q4/predictor.json").provenance["round"] == "2026Q4"
    # A limit of the operator ends the round with one line that names the site.
    limit = {"max-share": 0.3, "round": "2026Q4"}
    with pytest.raises(GCFCPError, match=r"has .* of the weight of group"):
        run_ready(sites, nodes, output=str(sites / "share"), **limit, **more)
