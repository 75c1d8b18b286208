"""One request to every client, and what comes back, by a deadline: the only part that waits.

Flower delivers a message at most once, redelivers nothing to a node that restarts, and says
nothing of a client that hangs. So this keeps its own clock, looks again and again at which nodes
are connected, asks those that join late and (up to `ATTEMPTS` times) those that come back after
a failure of the carrier, and ends with an account of everyone: an answer, or a code.

A node is known by its public key if the SuperLink knows one, and by its number otherwise.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from gcfcp.errors import GCFCPError
from gcfcp.flower import protocol
from gcfcp.flower.protocol import Code, Refusal, Request
from gcfcp.flower.roster import fingerprint

ATTEMPTS = 3  # requests to one node, if the carrier fails
CENSUS = 1.0  # seconds between looks at who is connected
POLL = 0.2  # seconds between looks for replies
BATCH = 500  # messages in one call
GRACE = 30.0  # seconds that a message outlives the deadline
LINES = 20  # clients that get a line of progress each

# Flower's error codes (flwr.common.constant.ErrorCode, which is not public). Their texts may
# quote a client's exception and are never looked at.
_LOST = (3, 4, 5, 8)  # message or reply unavailable, node unavailable, app crashed


@dataclass(frozen=True)
class Node:
    number: int  # of this SuperLink: Flower's node ID
    key: str | None  # the public key's fingerprint, which outlives the SuperLink


@dataclass(frozen=True)
class Outcome:
    """What became of one client: `code` is None if its answer was taken."""

    client: str | None  # None: a node of which it is not certain who it is
    node: Node | None  # None: it never connected
    code: Code | None
    detail: str = ""
    claimed: str | None = None  # who it says it is
    payload: bytes = field(default=b"", repr=False)  # until it is judged
    size: int = 0
    sha256: str | None = None
    asked: str | None = None
    received: str | None = None
    kept: bool = False  # from an earlier run

    @property
    def name(self) -> str:
        return self.client or f"node {self.node.number if self.node else '?'}"


@dataclass(frozen=True)
class Terms:
    """On which terms answers are gathered.

    deadline: seconds. min_clients: the quorum. missing: "fail", or "present" to go on with those
    that answered. clients: {name: fingerprint of its node's key}, see `roster`; None takes every
    node's word for its name. max_bytes: of one reply. aggregates: whether a summary may stand for
    several clients.
    """

    deadline: float = 300
    min_clients: int = 1
    missing: str = "fail"
    clients: Mapping[str, str] | None = None
    max_bytes: int = 64 * 2**20
    aggregates: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.deadline <= 7 * 24 * 3600:
            raise GCFCPError(f"deadline={self.deadline} is not within 0 to 604,800 s (a week)")
        if type(self.min_clients) is not int or self.min_clients < 1:
            raise GCFCPError(f"min_clients={self.min_clients!r} is not a whole number from 1")
        if self.missing not in ("fail", "present"):
            raise GCFCPError(f"missing={self.missing!r} is neither 'fail' nor 'present'")
        if self.clients is not None and self.min_clients > len(self.clients):
            raise GCFCPError(
                f"min_clients={self.min_clients}, but the roster has {len(self.clients)} clients"
            )
        if self.max_bytes < 1:
            raise GCFCPError(f"max_bytes={self.max_bytes} is not at least 1")


Accept = Callable[[str | None, Outcome], Outcome]
Say = Callable[[str], None]


@dataclass
class _Asked:
    node: Node
    nonce: str
    asked: str


@dataclass
class Exchange:
    """The state of one round. `accept(name on the roster or None, outcome)` judges a payload: it
    returns the outcome, now with the client's name, or raises a `Refusal`.

    done: names of clients that need not be asked; done_nodes: nodes likewise, by key or number.
    """

    grid: Grid
    terms: Terms
    action: str
    request: Callable[[str], Request]
    accept: Accept
    say: Say
    done: frozenset[str] = frozenset()
    done_nodes: frozenset[str | int] = frozenset()
    _pending: dict[str, _Asked] = field(default_factory=dict)
    _tries: dict[int, int] = field(default_factory=dict)
    _settled: dict[int, Outcome] = field(default_factory=dict)
    _strangers: dict[int, Node] = field(default_factory=dict)
    _answered: int = 0
    _failed: int = 0

    def __post_init__(self) -> None:
        self._answered = len(self.done)
        self._names = {key: name for name, key in (self.terms.clients or {}).items()}

    def run(self) -> list[Outcome]:
        """Ask, wait, judge; an outcome for every node that was asked and every client expected."""
        end = time.monotonic() + self.terms.deadline
        census = 0.0
        while True:
            now = time.monotonic()
            if now >= census:
                self._ask(self._askable(), end - now)
                census = now + CENSUS
            took = sum(self._take(message) for message in self._pull())
            if self._finished() or time.monotonic() >= end:
                break
            if not took:
                time.sleep(POLL)
        return self._account()

    @property
    def strangers(self) -> list[Node]:
        """Nodes that are connected but on no roster; nothing was sent to them."""
        return [self._strangers[number] for number in sorted(self._strangers)]

    # --- whom to ask

    def _name(self, node: Node) -> str | None:
        return self._names.get(node.key) if node.key else None

    def _askable(self) -> list[Node]:
        waiting = {asked.node.number for asked in self._pending.values()}
        nodes = []
        for node in connected(self.grid):
            if node.number in waiting or not self._may_ask(node):
                continue
            nodes.append(node)
        return nodes

    def _may_ask(self, node: Node) -> bool:
        settled = self._settled.get(node.number)
        if settled is not None and self._is_final(settled):
            return False
        if self.terms.clients is None:
            return node.number not in self.done_nodes and node.key not in self.done_nodes
        name = self._name(node)
        if name is None:
            self._strangers[node.number] = node
        return name is not None and name not in self.done

    # --- asking and taking

    def _ask(self, nodes: Sequence[Node], left: float) -> None:
        for start in range(0, len(nodes), BATCH):
            batch = []
            for node in nodes[start : start + BATCH]:
                nonce = secrets.token_hex(16)
                batch.append((self._message(node, nonce, left), node, nonce))
            pushed = set(self.grid.push_messages([message for message, _, _ in batch]))
            for message, node, nonce in batch:
                self._tries[node.number] = self._tries.get(node.number, 0) + 1
                if message.metadata.message_id in pushed:
                    self._pending[message.metadata.message_id] = _Asked(node, nonce, utc())

    def _message(self, node: Node, nonce: str, left: float) -> Message:
        record = ConfigRecord(self.request(nonce).to_record())
        return Message(
            RecordDict({protocol.RECORD: record}),
            node.number,
            f"query.{self.action}",
            ttl=max(left, 0) + GRACE,
            group_id=self.action,
        )

    def _pull(self) -> Iterator[Message]:
        waiting = list(self._pending)
        for start in range(0, len(waiting), BATCH):
            yield from self.grid.pull_messages(waiting[start : start + BATCH])

    def _take(self, message: Message) -> bool:
        asked = self._pending.pop(message.metadata.reply_to_message_id, None)
        if asked is None:
            return False  # nobody waits for it
        node = asked.node
        name = self._name(node)
        outcome = Outcome(name, node, None, asked=asked.asked, received=utc())
        try:
            if message.metadata.src_node_id != node.number:
                raise Refusal(Code.WRONG_CLIENT)
            claimed, payload = protocol.read_reply(
                _record(message), asked.nonce, self.terms.max_bytes
            )
            outcome = replace(
                outcome,
                client=name or claimed,
                claimed=claimed,
                payload=payload,
                size=len(payload),
                sha256=hashlib.sha256(payload).hexdigest(),
            )
            outcome = replace(self.accept(name, outcome), payload=b"")
        except Refusal as refused:
            outcome = replace(
                outcome, client=name, code=refused.code, detail=refused.detail, payload=b""
            )
        self._settled[node.number] = outcome
        self._answered += outcome.code is None
        self._failed += outcome.code is not None
        self._tell(outcome)
        return True

    # --- when to stop

    def _finished(self) -> bool:
        if self._pending:
            return False
        final = [o for o in self._settled.values() if self._is_final(o)]
        if self.terms.clients is not None:
            names = self.done | {o.client for o in final}
            return names >= set(self.terms.clients)
        return len(final) == len(self._settled) >= self.terms.min_clients - len(self.done)

    def _is_final(self, outcome: Outcome) -> bool:
        """A node that was lost may come back; one that is lost every time is given up."""
        assert outcome.node is not None
        return (
            outcome.code is not Code.NODE_LOST
            or self._tries.get(outcome.node.number, 0) >= ATTEMPTS
        )

    def _account(self) -> list[Outcome]:
        outcomes = dict(self._settled)
        for asked in self._pending.values():
            outcomes[asked.node.number] = Outcome(
                self._name(asked.node), asked.node, Code.NO_ANSWER, asked=asked.asked
            )
        heard = self.done | {o.client for o in outcomes.values()}
        never = [
            Outcome(name, None, Code.NOT_CONNECTED)
            for name in self.terms.clients or ()
            if name not in heard
        ]
        unheard = [o for o in (*outcomes.values(), *never) if o.received is None]
        for outcome in unheard[:LINES]:
            self.say(f"{outcome.name}: {outcome.code and outcome.code.meaning}")
        return [*outcomes.values(), *never]

    # --- telling

    def _tell(self, outcome: Outcome) -> None:
        """Who has answered: a line each while there are few, then now and then."""
        answered, expected = self._answered, self._expected()
        if outcome.code is not None:
            if self._failed <= LINES:
                detail = f" ({outcome.detail})" if outcome.detail else ""
                self.say(f"{outcome.name}: left out, {outcome.code.meaning}{detail}")
        elif expected <= LINES or answered % max(expected // 10, 1) == 0:
            size = f"{outcome.size:,} bytes"
            self.say(f"{outcome.name}: answered, {size} ({answered} of {expected})")

    def _expected(self) -> int:
        if self.terms.clients is not None:
            return len(self.terms.clients)
        return max(len(self._settled) + len(self._pending) + len(self.done), self.terms.min_clients)


_fingerprint = lru_cache(maxsize=1 << 17)(fingerprint)


def connected(grid: Grid) -> list[Node]:
    """The nodes that are connected now, in order of their numbers."""
    nodes = []
    for info in grid.get_nodes():
        try:
            key = _fingerprint(info.public_key) if info.public_key else None
        except GCFCPError:
            key = None  # a simulation's nodes have made-up keys
        nodes.append(Node(info.node_id, key))
    return sorted(nodes, key=lambda node: node.number)


def _record(message: Message) -> Mapping[str, Any]:
    if message.has_error():
        raise Refusal(Code.NODE_LOST if message.error.code in _LOST else Code.APP_FAILED)
    if not message.has_content():
        raise Refusal(Code.NOT_UNDERSTOOD)
    record = message.content.get(protocol.RECORD)
    if not isinstance(record, ConfigRecord):
        raise Refusal(Code.NOT_UNDERSTOOD)
    return record


def utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
