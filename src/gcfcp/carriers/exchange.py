"""One request to every client, and the replies until a deadline. Only this module waits.

No carrier can be relied on to say that a client hangs, or to deliver a message again to a node that
restarts. So an `Exchange` keeps its own clock and looks again and again which nodes can be reached.
It asks nodes that join late and, up to `ATTEMPTS` times, nodes that come back after the carrier has
lost them. It ends with an account of every client: an answer, or a code.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gcfcp.carriers.carrier import Carrier, Letter, Node, Reply
from gcfcp.carriers.target import Terms
from gcfcp.rounds import Code, Record, Refusal, Request, read_reply

ATTEMPTS = 3  # The most times that a node is asked if the carrier loses the message or the node.
CENSUS = 1.0  # The seconds after which the exchange looks again which nodes can be reached.
POLL = 0.2  # The seconds between two looks for replies.
BATCH = 500  # The number of letters that are sent or looked for in one call.
LINES = 20  # The most clients that get a line of progress each.
QUIET = 15.0  # After so many seconds without any node to ask, the exchange says why it waits.


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
        """What messages call it: the name of the client, or the id of the node."""
        return self.client or f"node {self.node.id if self.node else '?'}"


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

    carrier: It moves the messages.
    terms: The deadline, the roster and so on.
    request: It makes the request to a node with a given nonce. It may differ from node to node.
    accept: It checks the answer of a node. It gets the client's name on the roster (None without a
    roster) and the outcome with the answer. It returns the outcome, or raises a `Refusal`.
    say: It shows a line of progress.
    done: The names of clients that need not be asked.
    done_nodes: The nodes that need not be asked, by key, or by id if they have no key.
    only_nodes: If given, no other nodes are asked. A protocol of several steps goes on with those
    nodes that have taken the step before.
    """

    carrier: Carrier
    terms: Terms
    request: Callable[[Node, str], Request]
    accept: Accept
    say: Say
    done: frozenset[str] = frozenset()
    done_nodes: frozenset[str] = frozenset()
    only_nodes: frozenset[str] | None = None
    _pending: dict[str, _Asked] = field(default_factory=dict)
    _tries: dict[str, int] = field(default_factory=dict)
    _settled: dict[str, Outcome] = field(default_factory=dict)
    _strangers: dict[str, Node] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _answered: int = 0
    _failed: int = 0

    def __post_init__(self) -> None:
        self._answered = len(self.done)
        self._names = {key: name for name, key in (self.terms.clients or {}).items()}

    def run(self) -> list[Outcome]:
        """Ask, wait and check the answers, until all is known or the deadline has come.

        Returns an outcome for every node that was asked and for every client on the roster.
        """
        begin = time.monotonic()
        end, census, told = begin + self.terms.deadline, 0.0, False
        while True:
            now = time.monotonic()
            if now >= census:
                self._ask(self._askable(), end - now)
                census = now + max(CENSUS, self.carrier.pause)
            if not told and not self._tries and now >= begin + QUIET and self.cause:
                told = True
                self.say(f"nobody could be asked so far: {self.cause}; waiting until the deadline")
            took = sum(self._take(reply) for reply in self._receive())
            left = end - time.monotonic()
            if self._finished() or left <= 0:
                break
            if not took:
                time.sleep(min(max(POLL, self.carrier.pause), left))
        return self._account()

    @property
    def strangers(self) -> list[Node]:
        """The nodes that are connected but not on the roster; nothing was sent to them."""
        return sorted(self._strangers.values(), key=lambda node: node.order)

    @property
    def cause(self) -> str:
        """Why nobody, or too few, could be asked: the probable cause in a few words, or nothing.

        What went wrong with a node that was asked is said by the code of its outcome.
        """
        seen, least = len(self._seen), self.terms.min_clients
        if not seen and len(self.done) < least:
            return (
                "no node was connected; see that the sites' processes run, that they reach this "
                "server, and that it lets them in"
            )
        if self.terms.clients is not None:
            if self._strangers and not self._tries and not self.done:
                keys = sorted({node.key or "none" for node in self._strangers.values()})
                more = ", and so on" if len(keys) > 3 else ""
                return (
                    f"none of the {seen} connected nodes has a key that the roster names; their "
                    f"keys are {', '.join(keys[:3])}{more}"
                )
        elif len(self._tries) + len(self.done) < least:
            return f"no more than {len(self._tries) + len(self.done)} nodes were connected"
        return ""

    # --- whom to ask

    def _name(self, node: Node) -> str | None:
        """The client that the roster names for this node, if there is one."""
        return self._names.get(node.key) if node.key else None

    def _askable(self) -> list[Node]:
        """The connected nodes that should be asked now."""
        waiting = {asked.node.id for asked in self._pending.values()}
        nodes = sorted(self.carrier.nodes(), key=lambda node: node.order)
        self._seen.update(node.id for node in nodes)
        return [node for node in nodes if node.id not in waiting and self._may_ask(node)]

    def _may_ask(self, node: Node) -> bool:
        """Whether a node is expected to answer and has not done so yet."""
        settled = self._settled.get(node.id)
        if settled is not None and self._is_final(settled):
            return False
        if self.only_nodes is not None and node.known_as not in self.only_nodes:
            return False
        if self.terms.clients is None:
            return node.id not in self.done_nodes and node.key not in self.done_nodes
        name = self._name(node)
        if name is None:
            self._strangers[node.id] = node
        return name is not None and name not in self.done

    # --- asking and taking

    def _ask(self, nodes: Sequence[Node], left: float) -> None:
        """Send a request to each of these nodes; `left` seconds are left until the deadline."""
        for start in range(0, len(nodes), BATCH):
            batch = []
            for node in nodes[start : start + BATCH]:
                request = self.request(node, secrets.token_hex(16))
                letter = Letter(node, request.action, request.to_record(), max(left, 0))
                batch.append((letter, request.nonce))
            tickets = self.carrier.send([letter for letter, _ in batch])
            for (letter, nonce), ticket in zip(batch, tickets, strict=True):
                self._tries[letter.node.id] = self._tries.get(letter.node.id, 0) + 1
                if ticket is not None:
                    self._pending[ticket] = _Asked(letter.node, nonce, utc())

    def _receive(self) -> Iterator[Reply]:
        """The replies that have come in."""
        waiting = list(self._pending)
        for start in range(0, len(waiting), BATCH):
            yield from self.carrier.receive(waiting[start : start + BATCH])

    def _take(self, reply: Reply) -> bool:
        """Check one reply and note its outcome; False if no request waits for it."""
        asked = self._pending.pop(reply.ticket, None)
        if asked is None:
            return False
        name = self._name(asked.node)
        outcome = Outcome(name, asked.node, None, asked=asked.asked, received=utc())
        try:
            claimed, payload = read_reply(
                _message(reply, asked.node), asked.nonce, self.terms.max_bytes
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
        self._settled[asked.node.id] = outcome
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
        return outcome.code is not Code.NODE_LOST or self._tries.get(outcome.node.id, 0) >= ATTEMPTS

    def _account(self) -> list[Outcome]:
        """All outcomes, also of nodes that have not answered and clients that never connected."""
        outcomes = dict(self._settled)
        for asked in self._pending.values():
            outcomes[asked.node.id] = Outcome(
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


def _message(reply: Reply, node: Node) -> Record:
    """The message of a reply; a `Refusal` if there is none, or if another node has sent it.

    The code comes first: a carrier says itself that a node is lost, and not the node.
    """
    if reply.code is not None:
        raise Refusal(reply.code)
    if reply.record is None:
        raise Refusal(Code.NOT_UNDERSTOOD)
    if reply.sender != node.id:
        raise Refusal(Code.WRONG_CLIENT)
    return reply.record


def utc() -> str:
    """The time now, such as 2026-03-04T05:06:07.891+00:00."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
