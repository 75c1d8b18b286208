"""A secure sum over a carrier: up to five exchanges after one another, and who was lost at which.

Each step is an `Exchange` with its own deadline. The first asks all clients, and each later one
those that took the step before. A client that does not answer in time, or whose message is
malformed, is lost; if fewer than the threshold remain, the sum ends with nothing.

| step        | the clients send      | a client that is lost here                                |
|-------------|-----------------------|-----------------------------------------------------------|
| `keys`      | public keys           | is not on the roster                                      |
| `shares`    | sealed shares         | is not in the sum                                         |
| `masked`    | masked vectors        | is not in the sum; its pairwise masks are taken out of it |
| `confirmed` | signatures, if signed | is in the sum                                             |
| `revealed`  | shares that unmask    | is in the sum                                             |

A client that has sent its masked vector takes part in no other sum for this question. So with
missing="fail" the sum ends as soon as someone is missing, best before any vector has left.

The threshold is two thirds of the clients on the roster, and at least `min_clients`. In a sum with
noise it may be higher, and the sum also ends with nothing if too few of the clients that add noise
remain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gcfcp import secure
from gcfcp.carriers.carrier import Carrier, Node
from gcfcp.carriers.exchange import Exchange, Outcome, Say
from gcfcp.carriers.target import Terms
from gcfcp.errors import GCFCPError
from gcfcp.rounds import SUM, Code, Question, Refusal, Request, begin_of
from gcfcp.secure import Total
from gcfcp.summary import ClientSummary

T = TypeVar("T")
_LAST_BEFORE = ("keys", "shares", "masked")  # Who is lost at one of these is not in the sum.


@dataclass
class SecureSum:
    """One secure sum over a carrier, and what has happened so far.

    carrier: It moves the messages.
    question: What is counted.
    terms: The deadline of each step, the roster of nodes, the signing keys and so on.
    say: It shows a line of progress.
    outcomes: What became of each client, by its name or that of its node.
    strangers: The nodes that are not on the roster.
    record: What the record of the round says about the sum.
    """

    carrier: Carrier
    question: Question
    terms: Terms
    say: Say
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    strangers: list[Node] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    _nodes: dict[str, Node] = field(default_factory=dict)  # The node of each client.

    def run(self) -> Total:
        """Make all steps; a GCFCPError if the sum ends with nothing."""
        known = self.terms.known_keys
        first = begin_of(self.question, signed=known is not None)
        lost: dict[str, list[str]] = {}
        self.record |= {"round": first.round, "signed": first.signed, "lost": lost}
        keys = self._ask_all(
            first.to_bytes(), lambda name, data: secure.read_keys(first, name, data, known)
        )
        self._check_missing()
        least = max(secure.usual_threshold(len(keys), first.needed), self.terms.min_clients)
        roster = secure.make_roster(first, list(keys.values()), least)
        self.record |= {"roster": list(roster.names), "threshold": roster.threshold}
        self.say(f"{len(keys)} clients take part in a secure sum, {roster.threshold} are needed")

        def step(
            name: str, requests: Mapping[str, bytes], read: Callable[[str, bytes], T]
        ) -> dict[str, T]:
            found = self._ask(name, requests, read)
            lost[name] = sorted(set(requests) - set(found))
            if name in _LAST_BEFORE:
                self._check_missing()
            return found

        shares = step(
            "shares",
            dict.fromkeys(keys, roster.to_bytes()),
            lambda name, data: secure.read_shares(roster, name, data),
        )
        masked = step(
            "masked",
            secure.deliveries(roster, shares),
            lambda name, data: secure.read_masked(roster, name, data),
        )
        division = secure.divide(roster, list(shares), list(masked))
        confirmed: dict[str, bytes] | None = None
        if first.signed:
            confirmed = step(
                "confirmed",
                dict.fromkeys(masked, secure.ask_survivors(roster, division)),
                lambda name, data: secure.read_confirmation(roster, division, name, data, known),
            )
        revealed = step(
            "revealed",
            dict.fromkeys(
                masked if confirmed is None else confirmed,
                secure.ask_reveal(roster, division, confirmed),
            ),
            lambda name, data: secure.read_revealed(roster, division, name, data),
        )
        total = secure.total(roster, division, masked, revealed)
        self.record |= {"sites": list(total.sites), "dropped": list(total.dropped)}
        self.record["noisy"] = total.noisy
        return total

    # --- asking

    def _ask_all(self, request: bytes, read: Callable[[str, bytes], T]) -> dict[str, T]:
        """The first step: ask all clients, and remember which node speaks for which."""
        found: dict[str, T] = {}
        contested: set[str] = set()

        def accept(name: str | None, outcome: Outcome) -> Outcome:
            client, node = name or str(outcome.claimed), outcome.node
            assert node is not None
            value = _read(read, client, outcome)
            if self._nodes.setdefault(client, node).id != node.id:
                contested.add(client)
                raise Refusal(Code.NAME_TAKEN)
            found[client] = value
            return outcome

        exchange = Exchange(
            self.carrier,
            self.terms,
            lambda _, nonce: Request(self.question, nonce, request, SUM),
            accept,
            self.say,
        )
        for outcome in exchange.run():
            self.outcomes[outcome.name] = outcome
        self.strangers = exchange.strangers
        for client in contested:  # Two nodes claim one name, and both are left out.
            del found[client]
            self.outcomes[client] = replace(self.outcomes[client], code=Code.NAME_TAKEN)
        return found

    def _ask(
        self, step: str, requests: Mapping[str, bytes], read: Callable[[str, bytes], T]
    ) -> dict[str, T]:
        """A later step: ask these clients, at the nodes that have spoken for them."""
        found: dict[str, T] = {}
        names = {self._nodes[name].known_as: name for name in requests}

        def accept(name: str | None, outcome: Outcome) -> Outcome:
            assert outcome.node is not None
            client = names[outcome.node.known_as]
            if outcome.claimed != client:
                raise Refusal(Code.WRONG_CLIENT)
            found[client] = _read(read, client, outcome)
            return outcome

        roster = self.terms.clients
        exchange = Exchange(
            self.carrier,
            replace(
                self.terms,
                min_clients=len(requests),
                clients=roster and {name: roster[name] for name in requests},
            ),
            lambda node, nonce: Request(self.question, nonce, requests[names[node.known_as]], SUM),
            accept,
            self.say,
            only_nodes=frozenset(names),
        )
        for outcome in exchange.run():
            client = names[outcome.node.known_as] if outcome.node else outcome.name
            if outcome.code is not None and step in _LAST_BEFORE:
                why = f"lost at the step {step!r} of the secure sum"
                detail = f"{why}: {outcome.detail}" if outcome.detail else why
                self.outcomes[client] = replace(outcome, client=client, detail=detail)
            elif step == "masked":
                self.outcomes[client] = outcome
        return found

    # --- who is missing

    def _check_missing(self) -> None:
        """Raise a GCFCPError if a client is missing and the terms do not allow that."""
        missing = sorted(name for name, o in self.outcomes.items() if o.code is not None)
        if missing and self.terms.missing == "fail":
            raise GCFCPError(
                f"the secure sum ends with nothing, because clients are missing: "
                f"{', '.join(missing[:10])}: run again, which takes another round for clients "
                'whose masked vector has left, or set missing = "present" to go on without them'
            )


def outcomes_of(summary: ClientSummary, terms: Terms) -> list[Outcome]:
    """What became of each client in the secure sum of an earlier run.

    summary: The summary of this sum.
    """
    inside = {name for name, _ in summary.members}
    outside = set(terms.clients or ()) - inside
    told = "it is not in the secure sum of an earlier run"
    return [
        *(Outcome(name, None, None, kept=True) for name in sorted(inside)),
        *(Outcome(name, None, Code.NO_ANSWER, told) for name in sorted(outside)),
    ]


def _read(read: Callable[[str, bytes], T], client: str, outcome: Outcome) -> T:
    """What a client sent; a `Refusal` if it is malformed."""
    try:
        return read(client, outcome.payload)
    except GCFCPError as error:
        told = "".join(c for c in str(error)[:200] if c.isprintable())
        raise Refusal(Code.NOT_UNDERSTOOD, told) from None
