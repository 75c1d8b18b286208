"""One request to every client, and the replies until a deadline. Only this module waits.

Flower delivers a message at most once, delivers nothing again to a node that restarts, and does not
say that a client hangs. So an `Exchange` keeps its own clock and looks again and again which nodes
are connected. It asks nodes that join late and, up to `ATTEMPTS` times, nodes that come back after
Flower has lost them. It ends with an account of every client: an answer, or a code.

A node is known by its public key if the SuperLink knows its key, and by its number otherwise.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from gcfcp import checks
from gcfcp.calibration import Admission
from gcfcp.errors import GCFCPError
from gcfcp.flower import protocol
from gcfcp.flower.protocol import Request
from gcfcp.flower.roster import fingerprint
from gcfcp.rounds import Code, Refusal

ATTEMPTS = 3  # The most times that a node is asked if Flower loses the message or the node.
CENSUS = 1.0  # The seconds after which the exchange looks again which nodes are connected.
POLL = 0.2  # The seconds between two looks for replies.
BATCH = 500  # The number of messages that are sent or fetched in one call.
GRACE = 30.0  # The seconds that a message is valid beyond the deadline.
LINES = 20  # The most clients that get a line of progress each.

# These are error codes of Flower (flwr.common.constant.ErrorCode, which is not public): the message
# is unavailable, the reply is unavailable, the node is unavailable, the app crashed. The texts of
# these errors may quote an exception of a client and are never read.
_LOST = (3, 4, 5, 8)


@dataclass(frozen=True)
class Node:
    """A machine that is connected to the SuperLink."""

    number: int  # The node ID of Flower. A new SuperLink gives new numbers.
    key: str | None  # The fingerprint of its public key, which stays the same.


@dataclass(frozen=True)
class Outcome:
    """What became of one client."""

    client: str | None  # Its name, or None for a node that has not shown who it is.
    node: Node | None  # Its node, or None if it never connected.
    code: Code | None  # Why its answer is missing, or None if the answer was accepted.
    detail: str = ""  # More about the code.
    claimed: str | None = None  # The name that the node gives itself.
    payload: bytes = field(default=b"", repr=False)  # Its answer, until that has been checked.
    size: int = 0  # How many bytes the answer has.
    sha256: str | None = None  # The SHA-256 of the answer.
    asked: str | None = None  # When the request was sent.
    received: str | None = None  # When the reply came.
    kept: bool = False  # Whether the answer came in an earlier run.

    @property
    def name(self) -> str:
        """What messages call it: the name of the client, or the number of the node."""
        return self.client or f"node {self.node.number if self.node else '?'}"


@dataclass(frozen=True)
class Terms:
    """The terms on which answers are gathered.

    deadline: The seconds after which nothing more is waited for.
    min_clients: If fewer clients answer, the round fails.
    missing: What happens if a client is missing: "fail" ends the round, "present" goes on with
    those that answered.
    clients: The roster: it maps the name of each client to the fingerprint of its node's key. None
    believes the name that a node gives itself.
    max_bytes: The most bytes that one reply may have.
    aggregates: The summaries that may stand for several clients: their names, or a mapping from
    each name to the number of its sites, as in `gcfcp.calibrate`.
    """

    deadline: float = 300
    min_clients: int = 1
    missing: str = "fail"
    clients: Mapping[str, str] | None = None
    max_bytes: int = 64 * 2**20
    aggregates: Iterable[str] | Mapping[str, int | None] = ()

    def __post_init__(self) -> None:
        _ = self.admission  # What is wrong in it is said before anyone is asked.
        if not checks.is_number(self.deadline) or not 0 < self.deadline <= 7 * 24 * 3600:
            raise GCFCPError(
                f"deadline={self.deadline} is not a number of seconds above 0, up to 604,800 (a "
                "week)"
            )
        object.__setattr__(self, "deadline", checks.as_float(self.deadline))
        object.__setattr__(self, "min_clients", checks.whole("min_clients", self.min_clients, 1))
        object.__setattr__(self, "max_bytes", checks.whole("max_bytes", self.max_bytes, 1))
        checks.choice("missing", self.missing, "fail", "present")
        if self.clients is not None and self.min_clients > len(self.clients):
            raise GCFCPError(
                f"min_clients={self.min_clients}, but the roster has {len(self.clients)} clients: "
                "give a smaller number"
            )

    @property
    def admission(self) -> Admission:
        """What is let in."""
        return Admission.of(self.aggregates)


Accept = Callable[[str | None, Outcome], Outcome]
"""A function that checks an answer; see `Exchange`."""
Say = Callable[[str], None]
"""A function that shows a line of progress."""


@dataclass
class _Asked:
    """A request that waits for its reply."""

    node: Node
    nonce: str
    asked: str  # When it was sent.


@dataclass
class Exchange:
    """One request to every client, and the state of it while replies come in.

    grid: Flower's connection to the nodes.
    terms: The deadline, the roster and so on.
    action: What is asked for: `protocol.SUMMARIZE` or `protocol.AUDIT`.
    request: It makes the request with a given nonce.
    accept: It checks the answer of a node. It gets the client's name on the roster (None without a
    roster) and the outcome with the answer. It returns the outcome, or raises a `Refusal`.
    say: It shows a line of progress.
    done: The names of clients that need not be asked.
    done_nodes: The nodes that need not be asked, by key or by number.
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
        """Ask, wait and check the answers, until all is known or the deadline has come.

        Returns an outcome for every node that was asked and for every client on the roster.
        """
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
        """The nodes that are connected but not on the roster; nothing was sent to them."""
        return [self._strangers[number] for number in sorted(self._strangers)]

    # --- whom to ask

    def _name(self, node: Node) -> str | None:
        """The client that the roster names for this node, if there is one."""
        return self._names.get(node.key) if node.key else None

    def _askable(self) -> list[Node]:
        """The connected nodes that should be asked now."""
        waiting = {asked.node.number for asked in self._pending.values()}
        nodes = []
        for node in connected(self.grid):
            if node.number in waiting or not self._may_ask(node):
                continue
            nodes.append(node)
        return nodes

    def _may_ask(self, node: Node) -> bool:
        """Whether a node is expected to answer and has not done so yet."""
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
        """Send a request to each of these nodes; `left` seconds are left until the deadline."""
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
        """The request as a message of Flower."""
        record = ConfigRecord(self.request(nonce).to_record())
        return Message(
            RecordDict({protocol.RECORD: record}),
            node.number,
            f"query.{self.action}",
            ttl=max(left, 0) + GRACE,
            group_id=self.action,
        )

    def _pull(self) -> Iterator[Message]:
        """The replies that have come in."""
        waiting = list(self._pending)
        for start in range(0, len(waiting), BATCH):
            yield from self.grid.pull_messages(waiting[start : start + BATCH])

    def _take(self, message: Message) -> bool:
        """Check one reply and note its outcome; False if no request waits for it."""
        asked = self._pending.pop(message.metadata.reply_to_message_id, None)
        if asked is None:
            return False
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
        """Whether there is nothing left to wait for.

        With a roster, every client on it must have a final outcome. Without one, every node that
        was asked must have a final outcome, and there must be at least `min_clients` of them.
        """
        if self._pending:
            return False
        final = [o for o in self._settled.values() if self._is_final(o)]
        if self.terms.clients is not None:
            names = self.done | {o.client for o in final}
            return names >= set(self.terms.clients)
        return len(final) == len(self._settled) >= self.terms.min_clients - len(self.done)

    def _is_final(self, outcome: Outcome) -> bool:
        """Whether a node is not asked again; a lost node is asked up to `ATTEMPTS` times."""
        assert outcome.node is not None
        return (
            outcome.code is not Code.NODE_LOST
            or self._tries.get(outcome.node.number, 0) >= ATTEMPTS
        )

    def _account(self) -> list[Outcome]:
        """All outcomes, also of nodes that have not answered and clients that never connected."""
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
        """Say who has answered: each client if there are few, about every tenth part if not."""
        answered, expected = self._answered, self._expected()
        if outcome.code is not None:
            if self._failed <= LINES:
                detail = f" ({outcome.detail})" if outcome.detail else ""
                self.say(f"{outcome.name} is left out, because {outcome.code.meaning}{detail}")
        elif expected <= LINES or answered % max(expected // 10, 1) == 0:
            size = f"{outcome.size:,} bytes"
            self.say(f"{outcome.name} answered with {size} ({answered} of {expected})")

    def _expected(self) -> int:
        """How many clients should answer, as far as this is known."""
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
            key = None  # In a simulation, the keys of the nodes are made up.
        nodes.append(Node(info.node_id, key))
    return sorted(nodes, key=lambda node: node.number)


def _record(message: Message) -> Mapping[str, Any]:
    """The content of a reply; a `Refusal` if it has none or reports an error of Flower."""
    if message.has_error():
        raise Refusal(Code.NODE_LOST if message.error.code in _LOST else Code.APP_FAILED)
    if not message.has_content():
        raise Refusal(Code.NOT_UNDERSTOOD)
    record = message.content.get(protocol.RECORD)
    if not isinstance(record, ConfigRecord):
        raise Refusal(Code.NOT_UNDERSTOOD)
    return record


def utc() -> str:
    """The time now, such as 2026-03-04T05:06:07.891+00:00."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
