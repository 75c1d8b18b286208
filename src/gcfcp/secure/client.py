"""A site's side of a secure sum: five steps, each from the server's bytes to the site's bytes.

The protocol is that of Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine
Learning (CCS 2017), with double masking and the consistency check of its figure 4.

| step        | takes       | gives          | in the paper                                       |
|-------------|-------------|----------------|----------------------------------------------------|
| `advertise` | `begin`     | `keys`         | round 0: c_PK (cipher key) and s_PK (mask key)     |
| `share`     | `roster`    | `shares`       | round 1: sealed shares of s_SK and of b            |
| `mask`      | `delivery`  | `masked`       | round 2: y_u = x_u + PRG(b_u) + sum of +-PRG(s_uv) |
| `confirm`   | `survivors` | `confirmation` | round 3: a signature of U_3, in signed sums        |
| `reveal`    | `reveal`    | `revealed`     | round 4: shares of b or of s_SK                    |

A pair of sites agrees on a mask, which one of them adds and the other subtracts, so that all of
these masks cancel in the sum. Every site adds a self mask as well. The self mask of a survivor is
taken away with the shares of its seed b. The pairwise masks of a site that was lost are taken away
with the shares of its mask key. Nobody learns both of the same site, so a vector that comes late
stays masked.

**What a site never does.** It reveals shares for one division only: the state that `reveal` returns
has no secrets left, and a carrier must keep each state before it sends the bytes (`gcfcp.rounds`
does). It never gives both shares of one site, reveals nothing for a sum of fewer sites than the
threshold, takes part in no sum whose roster breaks its own `Rules`, and masks one vector only. In a
sum with noise it neither signs nor reveals anything for a division in which fewer of the sites that
add noise survive than are needed: a server that drops just these sites gets nothing.

**What is learnt.** Let n sites be on the roster, let t be the threshold, and let c sites work
together with the server.

- If the server follows the protocol and c < t, they learn the sum of the vectors of the other
  survivors, of whom there are at least t - c, and nothing else about these vectors.
- If the server lies, the same holds in a signed sum if c < 2t - n. The server needs t confirmations
  for each division that it wants to unmask. Each of the n - c other sites signs one, so two
  divisions need 2(t - c) <= n - c.
- If the server lies and the sum is not signed, nothing is protected (see `identity`).

The names of the sites and who was lost at which step are no secret.

A step raises a GCFCPError if the bytes are not what a server that follows the protocol would send.
Then nothing has been sent, and the site is lost for this sum.

Cost, for n sites and L numbers: a site makes 3n key agreements, n masks of L numbers and 2n shares,
and sends 60n + 8L bytes and some hundred more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gcfcp import codec
from gcfcp.errors import GCFCPError
from gcfcp.secure import primitives
from gcfcp.secure.identity import Identity, Rules
from gcfcp.secure.messages import (
    LIMIT,
    Begin,
    Division,
    Keys,
    Roster,
    cut,
    positions,
    sealed_parts,
)
from gcfcp.secure.primitives import KEY, SEED, Vector

_KIND, _VERSION = b"P", 1  # The container of a state, which is private and stays at its site.
_PARTS = ("cipher_secret", "mask_seed", "self_seed", "keys", "roster", "own", "held", "division")

ADVERTISED, SHARED, MASKED, CONFIRMED, REVEALED = range(5)
"""How far a site has come: the last step that it has made."""
_STEPS = ("advertise", "share", "mask", "confirm", "reveal")


@dataclass(frozen=True)
class State:
    """What a site keeps between two steps. It holds secrets until it has revealed.

    stage: The last step that was made.
    begin: The sum.
    client: The site.
    cipher_secret: The private key of its cipher key.
    mask_seed: Its mask key is derived from these 16 bytes, which are shared.
    self_seed: Its self mask is derived from these 16 bytes, which are shared.
    keys: What it has advertised.
    roster: The roster that it has accepted.
    own: Its own shares of its two seeds, the self mask first.
    held: The shares that it holds of others, by position: 32 bytes each, the self mask first.
    division: The division that it has confirmed.
    """

    stage: int
    begin: Begin
    client: str
    cipher_secret: bytes = field(repr=False)
    mask_seed: bytes = field(repr=False)
    self_seed: bytes = field(repr=False)
    keys: bytes = b""
    roster: bytes = field(default=b"", repr=False)
    own: bytes = field(default=b"", repr=False)
    held: bytes = field(default=b"", repr=False)
    senders: tuple[int, ...] = ()
    division: bytes = b""

    @property
    def adds_noise(self) -> bool:
        """Whether this site adds noise to its vector, once the roster is known."""
        roster = Roster.from_bytes(self.roster, self.begin)
        return roster.noisy([roster.position(self.client)]) == 1

    def to_bytes(self) -> bytes:
        """The bytes of a file that only the site may read."""
        parts = [getattr(self, name) for name in _PARTS]
        header = {
            "stage": self.stage,
            "begin": self.begin.to_bytes().hex(),
            "client": self.client,
            "senders": list(self.senders),
            "sizes": list(map(len, parts)),
        }
        return codec.pack(_KIND, _VERSION, header, b"".join(parts))

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "the state of a secure sum") -> State:
        """The state in the bytes of a file."""
        header, body = codec.unpack(data, _KIND, _VERSION, name)
        with codec.reading(name, "state of a secure sum"):
            parts = cut(bytes(body), header["sizes"], len(_PARTS))
            return cls(
                stage=int(header["stage"]),
                begin=Begin.from_bytes(bytes.fromhex(header["begin"])),
                client=str(header["client"]),
                senders=tuple(map(int, header["senders"])),
                **dict(zip(_PARTS, parts, strict=True)),
            )

    def forget(self) -> State:
        """The state after the last step: nothing is left of the secrets."""
        none: dict[str, Any] = dict.fromkeys(_PARTS, b"")
        return replace(self, stage=REVEALED, **none)


def advertise(data: bytes, me: Identity) -> tuple[State, bytes]:
    """Make new keys for a sum, and say their public parts."""
    primitives.require()
    begin = Begin.from_bytes(data)
    me.check_begin(begin)
    cipher_secret = primitives.random_bytes(KEY)
    mask_seed, self_seed = primitives.random_bytes(SEED), primitives.random_bytes(SEED)
    unsigned = Keys(
        sum=begin.fingerprint,
        client=me.client,
        cipher_key=primitives.public_of(cipher_secret),
        mask_key=primitives.public_of(_mask_secret(mask_seed, begin, me.client)),
        commitment=commitment(self_seed, begin, me.client),
    )
    keys = replace(unsigned, signature=me.sign(unsigned.to_bytes())).to_bytes()
    state = State(ADVERTISED, begin, me.client, cipher_secret, mask_seed, self_seed, keys)
    return state, keys


def share(state: State, data: bytes, me: Identity, rules: Rules) -> tuple[State, bytes]:
    """Check the roster, and give every other site a sealed share of each of the two seeds."""
    _refuse_unless(state, ADVERTISED, "share")
    roster = Roster.from_bytes(data, state.begin)
    here = roster.position(state.client)
    if roster.keys[here].to_bytes() != state.keys:
        raise GCFCPError("the roster has other keys for this site than it has advertised")
    rules.check(roster)
    for keys in roster.keys:
        me.check_keys(keys)
    number = len(roster.keys)
    selves = primitives.split(state.self_seed, roster.threshold, number)
    masks = primitives.split(state.mask_seed, roster.threshold, number)
    sealed = []
    for there in range(number):
        if there != here:
            key = _cipher_key(state, roster, there, sender=here)
            context = _context(roster, here, there)
            sealed.append(primitives.seal(key, selves[there] + masks[there], context))
    own = selves[here] + masks[here]
    message = roster.write("shares", {}, b"".join(sealed), here)
    return replace(state, stage=SHARED, roster=roster.to_bytes(), own=own), message


def mask(state: State, data: bytes, vector: Callable[[], Any]) -> tuple[State, bytes]:
    """Take the shares of the others, and send the masked vector.

    vector: It gives the vector, whole numbers from 0 to 2^43 - 1, or from -(2^43 - 1) on in a sum
    with noise. It is called when everything else is in order, so that no record is read for a sum
    that cannot be.
    """
    _refuse_unless(state, SHARED, "mask")
    roster = Roster.from_bytes(state.roster, state.begin)
    here, number = roster.position(state.client), len(roster.keys)
    with codec.reading("a message", "delivery of shares"):
        header, body = roster.read(data, "delivery", "senders")
        senders = positions(header["senders"], number)
        others = [there for there in senders if there != here]
        if len(others) == len(senders):
            raise GCFCPError("this site sent shares and is not among the senders")
        roster.check_enough(senders, "sent shares")
        roster.check_noise(senders, "sent shares")
        sealed = dict(zip(others, sealed_parts(body, len(others)), strict=True))
    held = []
    for there in senders:
        if there == here:
            held.append(state.own)
            continue
        key = _cipher_key(state, roster, there, sender=there)
        held.append(primitives.unseal(key, sealed[there], _context(roster, there, here)))
    masked = checked_vector(vector(), state.begin).copy()
    masked += self_mask(state.self_seed, roster, state.client)
    secret = _mask_secret(state.mask_seed, state.begin, state.client)
    for there in others:
        masked += pair_mask(secret, roster, here, there)
    message = roster.write("masked", {}, masked.astype("<u8").tobytes(), here)
    after = replace(state, stage=MASKED, held=b"".join(held), senders=senders)
    # Its own seeds are not needed any more: what others must know of them, they have as shares.
    return replace(after, mask_seed=b"", self_seed=b"", cipher_secret=b"", own=b""), message


def confirm(state: State, data: bytes, me: Identity) -> tuple[State, bytes]:
    """Sign the division into survivors and dropped sites; a site signs one only."""
    _refuse_unless(state, MASKED, "confirm")
    if not state.begin.signed:
        raise GCFCPError("an unsigned secure sum has no confirmations")
    roster = Roster.from_bytes(state.roster, state.begin)
    with codec.reading("a message", "division of a secure sum"):
        header, body = roster.read(data, "survivors", "senders", "survivors")
        division = _own_division(state, roster, header)
        if body:
            raise GCFCPError("it has a body")
    unsigned = division.confirmation(roster, roster.position(state.client))
    message = division.confirmation(roster, roster.position(state.client), me.sign(unsigned))
    return replace(state, stage=CONFIRMED, division=unsigned), message


def reveal(state: State, data: bytes, me: Identity) -> tuple[State, bytes]:
    """Give the shares that unmask the sum: of the self masks of survivors, of the keys of others.

    In a signed sum, at least as many sites as the threshold must have signed the same division.
    """
    _refuse_unless(state, CONFIRMED if state.begin.signed else MASKED, "reveal")
    roster = Roster.from_bytes(state.roster, state.begin)
    here = roster.position(state.client)
    with codec.reading("a message", "request to reveal shares"):
        fields = ("senders", "survivors", "confirmed", "sizes")
        header, body = roster.read(data, "reveal", *fields)
        division = _own_division(state, roster, header)
        confirmed = positions(header["confirmed"], len(roster.keys))
        found = dict(zip(confirmed, cut(body, header["sizes"], len(confirmed)), strict=True))
        if not set(confirmed) <= set(division.survivors):
            raise GCFCPError("a site has confirmed the division that is not a survivor")
    if state.begin.signed:
        if division.confirmation(roster, here) != state.division:
            raise GCFCPError("this is not the division that this site has confirmed")
        roster.check_enough(confirmed, "have confirmed the division")
        for site, signature in found.items():
            me.check_confirmation(roster, division, site, signature)
    elif confirmed:
        raise GCFCPError("an unsigned secure sum has no confirmations")
    survivors = set(division.survivors)
    shares = []
    for index, site in enumerate(division.senders):
        pair = state.held[2 * SEED * index : 2 * SEED * (index + 1)]
        shares.append(pair[:SEED] if site in survivors else pair[SEED:])
    message = roster.write("revealed", division.header, b"".join(shares), here)
    return state.forget(), message


# --- what both sides compute ---------------------------------------------------------------------


def checked_vector(values: Any, begin: Begin) -> Vector:
    """A vector that may be added, modulo 2^64: whole numbers, as many as were agreed on.

    They lie below 2^43 and, unless the sum has noise, not below 0.
    """
    length, least = begin.length, 1 - LIMIT if begin.noisy else 0
    found = np.asarray(values)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise GCFCPError("a vector of a secure sum consists of whole numbers in one dimension")
    if len(found) != length:
        raise GCFCPError(f"the vector has {len(found)} numbers, but {length} were agreed on")
    if len(found) and (found.min() < least or found.max() >= LIMIT):
        raise GCFCPError(f"a number of the vector is below {min(least, 0)} or not below 2**43")
    return found.astype(np.int64).view(np.uint64)


def commitment(seed: bytes, begin: Begin, client: str) -> str:
    """What fixes the seed of a self mask without telling it."""
    return primitives.derive(seed, "commitment", begin.fingerprint, client).hex()


def self_mask(seed: bytes, roster: Roster, client: str) -> Vector:
    """The self mask that belongs to a seed: PRG(b_u)."""
    key = primitives.derive(seed, "self mask", roster.fingerprint, client)
    return primitives.expand(key, roster.begin.length)


def pair_mask(secret: bytes, roster: Roster, here: int, there: int) -> Vector:
    """What the site at `here` adds for the one at `there`, modulo 2^64: +-PRG(s_u,v).

    The first of the two on the roster adds the mask, and the second subtracts it.

    secret: The private mask key of the site at `here`.
    """
    first, second = sorted((here, there))
    names = roster.names[first], roster.names[second]
    public = roster.keys[there].mask_key
    key = primitives.agree(secret, public, "pair mask", roster.fingerprint, *names)
    found = primitives.expand(key, roster.begin.length)
    return found if here == first else np.negative(found)


def mask_public(seed: bytes, begin: Begin, client: str) -> tuple[bytes, bytes]:
    """The private and the public mask key that belong to a seed."""
    secret = _mask_secret(seed, begin, client)
    return secret, primitives.public_of(secret)


def _mask_secret(seed: bytes, begin: Begin, client: str) -> bytes:
    return primitives.derive(seed, "mask key", begin.fingerprint, client)


def _cipher_key(state: State, roster: Roster, there: int, sender: int) -> bytes:
    """The key for sealed shares between this site and another one, in one direction."""
    here = roster.position(state.client)
    names = (here, there) if sender == here else (there, here)
    public = roster.keys[there].cipher_key
    return primitives.agree(
        state.cipher_secret,
        public,
        "shares",
        roster.fingerprint,
        *(roster.names[site] for site in names),
    )


def _context(roster: Roster, sender: int, receiver: int) -> bytes:
    """What sealed shares are bound to: the roster, and with it the sum, sender and receiver."""
    return f"{roster.fingerprint} {sender} {receiver}".encode()


def _own_division(state: State, roster: Roster, header: dict[str, Any]) -> Division:
    """The division in a header, which must fit what this site knows."""
    division = Division.of(header, roster)
    if division.senders != state.senders:
        raise GCFCPError("the senders of shares are not those that were named to this site")
    if roster.position(state.client) not in division.survivors:
        raise GCFCPError("this site sent its vector and is named as dropped")
    return division


def _refuse_unless(state: State, stage: int, step: str) -> None:
    """Raise a GCFCPError if a step comes too early, or a second time."""
    if state.stage != stage:
        raise GCFCPError(
            f"the last step of this site in the secure sum was {_STEPS[state.stage]!r}, so it does "
            f"not take the step {step!r}: each step is made once, in order"
        )
