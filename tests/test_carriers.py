"""A round is the same over every carrier: here over one that moves bytes alone."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gcfcp
from gcfcp import GCFCPError
from gcfcp.carriers import Carrier, Exchange, Node, Outcome, Target, Terms, conduct, exchange
from gcfcp.carriers import read_roster as read_names
from gcfcp.rounds import (
    Code,
    Ledger,
    Policy,
    Question,
    Records,
    Request,
    Site,
    pack,
    protocol,
    respond_to_bytes,
    unpack,
)
from post_office import PostOffice

GROUPS = gcfcp.Groups(["all", "young"])
QUESTION = Question(GROUPS, "mine")
NAMES = ("hospital-a", "hospital-b", "hospital-c")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network there is no need to wait for long."""
    monkeypatch.setattr(exchange, "POLL", 0.005)
    monkeypatch.setattr(exchange, "CENSUS", 0.02)


def quiet(_: str) -> None:
    pass


def data_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    return rng.gamma(1 + k, size=200), np.column_stack([np.ones(200), rng.random(200) < 0.5])


def site_of(k: int, ledger: Path) -> Site:
    def covered(predictor: gcfcp.Predictor, question: Question) -> Any:
        scores, membership = data_of(10 + k)
        return scores <= predictor.thresholds(membership), membership

    return Site(
        NAMES[k],
        Policy(QUESTION),
        Ledger(ledger / NAMES[k], sync=False),
        Records("calibration", lambda _: data_of(k)),
        Records("audit", covered),
    )


def office_of(tmp_path: Path) -> PostOffice:
    """Three sites whose carrier vouches for a number, as vantage6 does for an organisation."""
    return PostOffice(
        {
            Node(str(9 + k), f"organisation {k}"): partial(
                respond_to_bytes, site_of=partial(site_of, k, tmp_path / "ledgers")
            )
            for k in range(3)
        }
    )


ROSTER = {name: f"organisation {k}" for k, name in enumerate(NAMES)}


def by_files(tmp_path: Path) -> bytes:
    """The bytes of predictor.json if the summaries go through files."""
    summaries = []
    for k, name in enumerate(NAMES):
        made = gcfcp.summarize(
            *data_of(k), client=name, score="mine", groups=GROUPS, min_count=10, by="group"
        )
        made.save(tmp_path / f"{name}.gcfcp")
        summaries.append(gcfcp.ClientSummary.load(tmp_path / f"{name}.gcfcp"))
    gcfcp.Predictor("mine", gcfcp.calibrate(summaries, 0.1)).save(tmp_path / "by-files.json")
    return (tmp_path / "by-files.json").read_bytes()


def test_the_predictor_over_a_carrier_of_bytes_is_that_of_the_files(tmp_path: Path) -> None:
    carrier: Carrier = office_of(tmp_path)
    terms = Terms(5, min_clients=3, clients=ROSTER)
    result = conduct(carrier, QUESTION, Target(audit=True), terms, tmp_path / "round", quiet)
    assert (tmp_path / "round/predictor.json").read_bytes() == by_files(tmp_path)
    assert result.audit is not None
    assert tuple(audited.client for audited in result.audit.clients) == NAMES
    assert "by hand" in (tmp_path / "round/report.html").read_text()


def test_a_lost_node_is_asked_again_and_a_failed_one_is_not(tmp_path: Path) -> None:
    """The carrier says both itself; nobody takes its word for that of another client."""
    office = office_of(tmp_path)
    lost, failed, _ = office.handlers
    works, told = office.handlers[lost], []

    def comes_back(data: bytes) -> Any:
        told.append(data)
        return Code.NODE_LOST if len(told) < exchange.ATTEMPTS else works(data)

    office.handlers[lost] = comes_back
    office.handlers[failed] = lambda _: Code.APP_FAILED
    terms = Terms(5, min_clients=3, clients=ROSTER)
    lines: list[str] = []
    with pytest.raises(GCFCPError, match="missing: hospital-b"):
        conduct(office, QUESTION, Target(), terms, tmp_path / "round", lines.append)
    assert len(told) == exchange.ATTEMPTS
    assert len(set(told)) == exchange.ATTEMPTS  # Each request has a nonce of its own.
    assert lines[1].startswith("hospital-a is left out, because the connection was lost")
    codes = {e["client"]: e["code"] for e in record_of(tmp_path / "round")["clients"]}
    assert codes == {"hospital-a": None, "hospital-b": "app-failed", "hospital-c": None}

    # The next run asks the one that is missing, and nobody else.
    office = office_of(tmp_path)
    conduct(office, QUESTION, Target(), terms, tmp_path / "round", quiet)
    assert [letter.node for letter in office.sent] == [failed]
    assert (tmp_path / "round/predictor.json").read_bytes() == by_files(tmp_path)


def record_of(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "record.json").read_text())
    return found


def test_bytes_that_are_no_message_are_named(tmp_path: Path) -> None:
    office = office_of(tmp_path)
    junk: list[Any] = [b"", b"GCFCPM" + bytes(60), pack({"protocol": 1, "nonce": "x"})]
    for node, reply in zip(list(office.handlers), junk, strict=True):
        office.handlers[node] = lambda _, reply=reply: reply
    with pytest.raises(GCFCPError, match="0 clients answered"):
        conduct(office, QUESTION, Target(), Terms(5, clients=ROSTER), tmp_path, quiet)
    codes = [e["code"] for e in record_of(tmp_path)["clients"]]
    assert codes == ["not-understood", "not-understood", "wrong-nonce"]


def test_a_site_answers_bytes_that_are_no_request_with_a_code(tmp_path: Path) -> None:
    site = partial(site_of, 0, tmp_path)
    unknown = Request(QUESTION, "n", action="steal").to_record()
    for data in (b"", b"\0" * 100, pack({}), pack({"request": 1}), pack(unknown)):
        reply = unpack(respond_to_bytes(data, site))
        assert reply == {"protocol": 1, "nonce": "", "client": "", "code": "bad-request"}
    assert not (tmp_path / "hospital-a").exists()  # Nothing was read, and nothing was noted.


def test_a_protocol_of_two_steps_with_another_letter_for_each_node(tmp_path: Path) -> None:
    """In the second step each node gets what belongs to it, and those that dropped out get none."""
    got: dict[str, list[bytes]] = {}

    def handler(name: str, data: bytes) -> bytes | None:
        request = Request.from_record(unpack(data))
        if name == "c" and request.action == "second":
            return None
        got.setdefault(name, []).append(request.body or b"")
        return pack(protocol.answer(request.nonce, name, f"{request.action} {name}".encode()))

    office = PostOffice({Node(name, name): partial(handler, name) for name in "abc"})
    office.handlers[Node("d", "d")] = lambda _: None
    terms = Terms(0.3, clients={name: name for name in "abcd"})

    def step(action: str, who: dict[str, str], bodies: dict[str, bytes]) -> dict[str, bytes]:
        """The answers to one step, by client."""
        answers: dict[str, bytes] = {}

        def accept(name: str | None, outcome: Outcome) -> Outcome:
            answers[str(name)] = outcome.payload
            return outcome

        Exchange(
            office,
            Terms(0.3, clients=who),
            lambda node, nonce: Request(QUESTION, nonce, bodies[node.id], action),
            accept,
            quiet,
            only_nodes=frozenset(who.values()),
        ).run()
        return answers

    assert terms.clients is not None
    first = step("first", dict(terms.clients), dict.fromkeys("abcd", b""))
    assert sorted(first) == ["a", "b", "c"]
    second = step("second", {n: n for n in first}, {n: f"for {n}".encode() for n in first})
    assert second == {"a": b"second a", "b": b"second b"}
    assert got == {"a": [b"", b"for a"], "b": [b"", b"for b"], "c": [b""]}
    assert [s.node.id for s in office.sent] == ["a", "b", "c", "d", "a", "b", "c"]


values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.binary()


@given(st.dictionaries(st.text(), values, max_size=5))
def test_a_message_survives_its_bytes(record: dict[str, Any]) -> None:
    assert unpack(pack(record)) == record


@given(st.binary(max_size=200), st.integers(0, 2**16), st.integers(0, 255))
def test_damaged_bytes_are_refused(junk: bytes, where: int, value: int) -> None:
    whole = pack(protocol.answer("n", "a", junk))
    damaged = bytearray(whole)
    damaged[where % len(whole)] = value
    for data in (junk, whole[:-1], whole + b"x", bytes(damaged)):
        if data != whole:
            with pytest.raises(GCFCPError):
                unpack(data)


def test_a_forged_list_of_lengths_is_refused() -> None:
    from gcfcp import codec

    for lengths in ([["a", 3]], [["a", -1], ["b", 3]], [["a", 1.0]], [["a", 1], ["a", 1]], 5, [1]):
        with pytest.raises(GCFCPError):
            unpack(codec.pack(b"M", 1, {"values": {}, "bytes": lengths}, b"xy"))


def test_a_roster_of_names(tmp_path: Path) -> None:
    path = tmp_path / "roster.toml"
    path.write_text('[clients]\nhospital-a = "site-1"\nhospital-b = "site-2"\n')
    assert read_names(path) == {"hospital-a": "site-1", "hospital-b": "site-2"}
    path.write_text('[clients]\nhospital-a = "site-1"\nhospital-b = "site-1"\n')
    with pytest.raises(GCFCPError, match="one key to two clients"):
        read_names(path)


def test_nodes_have_one_order_whatever_their_ids_are() -> None:
    ids = ["10", "9", "site-b", "site-a"]
    ordered = sorted((Node(i, None) for i in ids), key=lambda node: node.order)
    assert [node.id for node in ordered] == ["9", "10", "site-a", "site-b"]


# --- a round that cannot start says why -----------------------------------------------------------


def why(office: PostOffice, terms: Terms, tmp_path: Path) -> tuple[str, list[str]]:
    """The error of a round that fails, and what was said before it."""
    lines: list[str] = []
    with pytest.raises(GCFCPError) as caught:
        conduct(office, QUESTION, Target(), terms, tmp_path / "round", lines.append)
    assert record_of(tmp_path / "round")["problem"] == str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value), lines


def test_nobody_is_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "QUIET", 0.05)
    for terms in (Terms(0.2, min_clients=2), Terms(0.2, clients=ROSTER)):
        problem, lines = why(PostOffice({}), terms, tmp_path)
        assert "no node was connected; see that the sites' processes run" in problem
        assert lines[0] == "asking for summaries; the deadline is in 0.2 s"
        assert lines[1].startswith("nobody could be asked so far: no node was connected")


def test_nobody_connected_is_on_the_roster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "QUIET", 0.05)
    office = office_of(tmp_path)
    other = {name: f"SHA256:{name}" for name in NAMES}
    problem, lines = why(office, Terms(0.2, clients=other), tmp_path)
    assert "none of the 3 connected nodes has a key that the roster names" in problem
    assert "their keys are organisation 0, organisation 1, organisation 2:" in problem
    assert sum(line.startswith("nobody could be asked so far") for line in lines) == 1
    assert office.sent == []


def test_fewer_are_connected_than_are_needed(tmp_path: Path) -> None:
    problem, _ = why(office_of(tmp_path), Terms(0.2, min_clients=4), tmp_path)
    assert "3 clients answered, but min_clients is 4" in problem
    assert "no more than 3 nodes were connected: run again" in problem


def test_no_cause_is_invented_where_a_code_says_it(tmp_path: Path) -> None:
    office = office_of(tmp_path)
    office.handlers[next(iter(office.handlers))] = lambda _: None
    problem, lines = why(office, Terms(0.2, clients=ROSTER), tmp_path)
    assert problem.startswith(
        "2 clients answered, and some are missing: hospital-a: run again to ask only those"
    )
    assert "hospital-a: there was no answer before the deadline" in lines
