"""What a carrier must do: know its nodes, send letters to them, and bring their replies.

A carrier moves messages between a server and its sites, and does nothing else. It neither reads
what it moves nor decides anything about it. Flower pushes messages and lets one look for replies,
NVIDIA FLARE hands out tasks and calls back, and vantage6 creates a task for each organisation and
lets one look for results. All of them fit into three functions that return at once:

    nodes()              who can be reached now
    send(letters)        a ticket for each letter that is on its way
    receive(tickets)     the replies that have come to some of these tickets

`Exchange` keeps the clock, asks late nodes and lost nodes again, and decides when it is over. A
letter to one node may differ from that to another, and a protocol of several steps is several
exchanges after one another.

A carrier fails in two ways. If it knows that there will be no answer to a letter, it returns a
`Reply` with a code: `NODE_LOST` if asking again may help, and `APP_FAILED` if not. If it knows
nothing, it returns nothing, and the deadline decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gcfcp.errors import GCFCPError
from gcfcp.rounds import Code, Record, pack, unpack


@dataclass(frozen=True)
class Node:
    """A machine or an organisation that a carrier can reach.

    id: What the carrier calls it now, as text. It may change when the carrier is restarted.
    key: Who it is, as far as the carrier vouches for that, and the same after a restart: the
    fingerprint of its public key, the name in its certificate, the number of its organisation. The
    roster names clients by their keys. None if the carrier vouches for nothing.
    """

    id: str
    key: str | None

    @property
    def known_as(self) -> str:
        """The key, or the id of a node without a key."""
        return self.key or self.id

    @property
    def order(self) -> tuple[int, str]:
        """A fixed order of nodes, in which numbers are sorted as numbers."""
        return len(self.id), self.id


@dataclass(frozen=True)
class Letter:
    """A message to one node.

    node: To whom it goes.
    action: What is asked for, such as "summarize". The message says it too.
    record: The message, as named values.
    seconds: How long the sender waits for a reply.
    """

    node: Node
    action: str
    record: Record = field(repr=False)
    seconds: float

    @property
    def data(self) -> bytes:
        """The message, for a carrier that moves bytes alone."""
        return pack(self.record)


@dataclass(frozen=True)
class Reply:
    """What came back for one letter: a message, or a code that says why there is none.

    ticket: The ticket of the letter.
    sender: The id of the node that the carrier got it from; None if the carrier itself says that
    there is no answer.
    record: The message, as named values.
    code: Why there is none, if there is none.
    """

    ticket: str
    sender: str | None
    record: Record | None = field(default=None, repr=False)
    code: Code | None = None

    @classmethod
    def of_bytes(cls, ticket: str, sender: str, data: Any) -> Reply:
        """The reply that a carrier which moves bytes alone has brought."""
        try:
            return cls(ticket, sender, unpack(data))
        except GCFCPError:
            return cls(ticket, sender, code=Code.NOT_UNDERSTOOD)


class Carrier(Protocol):
    """What moves messages; see the module's docstring.

    command: What an operator runs, such as "flwr run (gcfcp.flower)". The report shows it.
    pause: The least seconds between two looks for nodes or replies, if a look costs something.
    """

    command: str
    pause: float

    def nodes(self) -> Iterable[Node]:
        """The nodes that can be reached now."""
        ...

    def send(self, letters: Sequence[Letter]) -> Sequence[str | None]:
        """Send letters, and return a ticket for each, or None for one that could not be sent."""
        ...

    def receive(self, tickets: Sequence[str]) -> Iterable[Reply]:
        """The replies that have come to letters with these tickets, each of them once."""
        ...
