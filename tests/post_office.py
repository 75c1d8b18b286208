"""A carrier within this process that moves bytes alone, as NVIDIA FLARE and vantage6 do.

The handler of a node gets the bytes of a message and returns those of its reply, such as
`respond_to_bytes`. It may also return a `Code`, with which the carrier says itself that there is no
answer, or None, if nothing ever comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gcfcp.carriers import Letter, Node, Reply
from gcfcp.rounds import Code

Handler = Callable[[bytes], bytes | Code | None]


@dataclass
class PostOffice:
    """A `gcfcp.carriers.Carrier`. The nodes answer when their replies are looked for."""

    handlers: dict[Node, Handler]
    command: str = "by hand"
    pause: float = 0.0
    sent: list[Letter] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)

    def nodes(self) -> list[Node]:
        return list(self.handlers)

    def send(self, letters: Sequence[Letter]) -> list[str]:
        first = len(self.sent)
        self.sent += letters
        return [str(first + i) for i in range(len(letters))]

    def receive(self, tickets: Sequence[str]) -> Iterator[Reply]:
        for ticket in tickets:
            letter = self.sent[int(ticket)]
            got = self.handlers[letter.node](letter.data)
            if got is None:
                continue
            if isinstance(got, Code):
                yield Reply(ticket, None, code=got)
            else:
                yield Reply.of_bytes(ticket, letter.node.id, got)
