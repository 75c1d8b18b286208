"""A secure sum within this process: sites and a server that hand each other bytes.

A test says which sites are lost before which step, and may change any message on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gcfcp import secure
from gcfcp.summary import signatures

STEPS = ("advertise", "share", "mask", "confirm", "reveal")
Change = Callable[[str, bytes], bytes]


@dataclass
class Federation:
    """Sites with vectors, and every message that travelled."""

    vectors: Mapping[str, Any]
    keys: Mapping[str, Any] | None = None  # The files of the private keys, in a signed sum.
    known: signatures.KnownKeys | None = None
    threshold: int | None = None
    rules: secure.Rules = field(default_factory=secure.Rules)
    noisy: int = 0  # How many sites add noise,
    needed: int = 0  # and how many of these must be in the sum.
    lost: Mapping[str, Collection[str]] = field(default_factory=dict)  # By step.
    states: dict[str, secure.State] = field(default_factory=dict)
    sent: dict[tuple[str, str], bytes] = field(default_factory=dict)  # By step and site.
    got: dict[tuple[str, str], bytes] = field(default_factory=dict)
    before: dict[tuple[str, str], secure.State | None] = field(default_factory=dict)

    def identity(self, name: str) -> secure.Identity:
        return secure.Identity(name, self.keys and self.keys[name], self.known)

    def step(self, step: str, name: str, request: bytes) -> bytes:
        """One step of one site."""
        me = self.identity(name)
        state = self.states.get(name)
        self.got[step, name], self.before[step, name] = request, state
        if step == "advertise":
            state, reply = secure.advertise(request, me)
        elif step == "share":
            state, reply = secure.share(state, request, me, self.rules)
        elif step == "mask":
            state, reply = secure.mask(state, request, lambda: self.vectors[name])
        elif step == "confirm":
            state, reply = secure.confirm(state, request, me)
        else:
            state, reply = secure.reveal(state, request, me)
        # A site is a new process at every step.
        self.states[name] = secure.State.from_bytes(state.to_bytes())
        self.sent[step, name] = reply
        return reply

    def ask(self, step: str, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        """One step of all sites that are still there."""
        gone = {n for s in STEPS[: STEPS.index(step) + 1] for n in self.lost.get(s, ())}
        return {n: self.step(step, n, data) for n, data in requests.items() if n not in gone}

    def begin(self) -> secure.Begin:
        length = len(next(iter(self.vectors.values())))
        signed = self.known is not None
        return secure.begin(b"counts", length, signed=signed, noisy=self.noisy, needed=self.needed)

    def until(self, last: str) -> None:
        """Make all steps up to and including `last`, as an honest server does."""
        self._run(STEPS.index(last))

    def run(self) -> secure.Total:
        return self._run(len(STEPS))

    def _run(self, last: int) -> Any:
        first = self.begin()
        adverts = self.ask("advertise", dict.fromkeys(self.vectors, first.to_bytes()))
        keys = [secure.read_keys(first, n, d, self.known) for n, d in adverts.items()]
        self.roster = secure.make_roster(first, keys, self.threshold)
        if last < 1:
            return None
        replies = self.ask("share", dict.fromkeys(adverts, self.roster.to_bytes()))
        self.shares = {n: secure.read_shares(self.roster, n, d) for n, d in replies.items()}
        self.parcels = secure.deliveries(self.roster, self.shares)
        if last < 2:
            return None
        replies = self.ask("mask", self.parcels)
        self.masked = {n: secure.read_masked(self.roster, n, d) for n, d in replies.items()}
        self.division = secure.divide(self.roster, list(self.shares), list(self.masked))
        if last < 3:
            return None
        signed = None
        if first.signed:
            question = secure.ask_survivors(self.roster, self.division)
            replies = self.ask("confirm", dict.fromkeys(self.masked, question))
            signed = {
                n: secure.read_confirmation(self.roster, self.division, n, d, self.known)
                for n, d in replies.items()
            }
        self.signed = signed
        self.request = secure.ask_reveal(self.roster, self.division, signed)
        if last < 4:
            return None
        replies = self.ask("reveal", dict.fromkeys(signed or self.masked, self.request))
        revealed = {
            n: secure.read_revealed(self.roster, self.division, n, d) for n, d in replies.items()
        }
        return secure.total(self.roster, self.division, self.masked, revealed)


def counts(names: Sequence[str], length: int, seed: int = 0) -> dict[str, Any]:
    """Random counts for each site."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 50, length) for name in names}


def names(number: int) -> list[str]:
    return [f"site-{i:02d}" for i in range(number)]
