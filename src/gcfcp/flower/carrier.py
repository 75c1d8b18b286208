"""Flower as a carrier: letters are pushed to the SuperLink, and replies are pulled from it.

Flower delivers a message at most once, and delivers nothing again to a node that restarts. It says
that a node is lost some 60 s after its last sign of life, but only to a server that asks before the
node is back. So the carrier looks itself whether a node has started anew since a letter was sent.

A node is known by its public key if the SuperLink knows its key, and by its number otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from gcfcp.carriers import Letter, Node, Reply
from gcfcp.errors import GCFCPError
from gcfcp.flower.roster import fingerprint
from gcfcp.rounds import RECORD, Code

GRACE = 30.0  # The seconds that a message is valid beyond the deadline.

# These are error codes of Flower (flwr.common.constant.ErrorCode, which is not public): the message
# is unavailable, the reply is unavailable, the node is unavailable, the app crashed. The texts of
# these errors may quote an exception of a client and are never read.
_LOST = (3, 4, 5, 8)


class FlowerCarrier:
    """A `gcfcp.carriers.Carrier` over Flower's connection to the nodes."""

    command = "flwr run (gcfcp.flower)"
    pause = 0.0

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._started: dict[str, str] = {}  # When each node was started, as far as is known.
        self._sent: dict[str, tuple[str, str]] = {}  # The node of each ticket, and its start then.

    def nodes(self) -> Iterable[Node]:
        """The nodes that are connected now."""
        nodes = []
        for info in self.grid.get_nodes():
            node = Node(str(info.node_id), _key(info.public_key))
            self._started[node.id] = info.last_activated_at
            nodes.append(node)
        return nodes

    def send(self, letters: Sequence[Letter]) -> Sequence[str | None]:
        """Push letters; the ticket of each is the number of its message."""
        messages = [_message(letter) for letter in letters]
        pushed = set(self.grid.push_messages(messages))
        tickets = []
        for letter, message in zip(letters, messages, strict=True):
            ticket = message.metadata.message_id
            tickets.append(ticket if ticket in pushed else None)
            self._sent[ticket] = (letter.node.id, self._started.get(letter.node.id, ""))
        return tickets

    def receive(self, tickets: Sequence[str]) -> Iterator[Reply]:
        """Pull the replies that have come, and name the letters that went down with their node."""
        waiting = set(tickets)
        for message in self.grid.pull_messages(tickets):
            reply = _reply(message)
            waiting.discard(reply.ticket)
            yield reply
        for ticket in sorted(waiting):
            node, started = self._sent[ticket]
            if self._started.get(node, started) != started:
                yield Reply(ticket, None, code=Code.NODE_LOST)


def _message(letter: Letter) -> Message:
    """A letter as a message of Flower."""
    return Message(
        RecordDict({RECORD: ConfigRecord(dict(letter.record))}),
        int(letter.node.id),
        f"query.{letter.action}",
        ttl=letter.seconds + GRACE,
        group_id=letter.action,
    )


def _reply(message: Message) -> Reply:
    """A message of Flower as a reply.

    If the message reports an error of Flower, the SuperLink has sent it in the place of the node.
    """
    ticket = message.metadata.reply_to_message_id
    if message.has_error():
        lost = message.error.code in _LOST
        return Reply(ticket, None, code=Code.NODE_LOST if lost else Code.APP_FAILED)
    sender = str(message.metadata.src_node_id)
    record = message.content.get(RECORD) if message.has_content() else None
    if not isinstance(record, ConfigRecord):
        return Reply(ticket, sender, code=Code.NOT_UNDERSTOOD)
    return Reply(ticket, sender, record)


@lru_cache(maxsize=1 << 17)
def _key(public_key: bytes) -> str | None:
    """The fingerprint of a node's key; None if it has none."""
    try:
        return fingerprint(public_key) if public_key else None
    except GCFCPError:
        return None  # In a simulation, the keys of the nodes are made up.
