"""The server's side of a secure sum: it passes messages on, adds masked vectors, and unmasks.

Every function takes what sites sent and gives what they get, as bytes. None keeps anything, so a
carrier may collect messages in any order. What a site sent is read by the function of its step
(`read_keys` and so on), which refuses whatever is malformed; the site is then treated as lost.

    begin                    -> keys      read_keys
    make_roster              -> shares    read_shares
    deliveries               -> masked    read_masked
    ask_survivors            -> confirmation    read_confirmation      (signed sums only)
    ask_reveal               -> revealed  read_revealed
    total

If fewer sites than the threshold remain at any step, a GCFCPError says so, and the masked vectors
tell nothing: the self mask is still on each of them.

The sum is exact or an error. A reconstructed key must be the one that was advertised, and a
reconstructed seed the one that was committed to, so a wrong share cannot change the sum unnoticed.
What the server cannot see is what a site counted: a site may state any numbers below 2^43,
and one that masks badly spoils the sum, which then almost surely has a number out of range.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gcfcp import codec
from gcfcp.arrays import Ints
from gcfcp.errors import GCFCPError
from gcfcp.secure import primitives
from gcfcp.secure.client import commitment, mask_public, pair_mask, self_mask
from gcfcp.secure.identity import check_confirmation, check_keys, usual_threshold
from gcfcp.secure.messages import (
    LIMIT,
    Begin,
    Division,
    Keys,
    Roster,
    even,
    sealed_parts,
    share_parts,
)
from gcfcp.secure.primitives import Vector
from gcfcp.summary import signatures


def begin(
    what: bytes,
    length: int,
    *,
    signed: bool,
    round: str | None = None,
    noisy: int = 0,
    needed: int = 0,
) -> Begin:
    """A new sum.

    what: What is counted, in a form that every site can make itself.
    length: How many numbers a vector has.
    signed: Whether the sites know each other's signing keys.
    round: 32 hexadecimal digits. None draws them at random, as every new sum needs.
    noisy, needed: How many sites add noise, and how many of these must be in the sum.
    """
    primitives.require()
    purpose = hashlib.sha256(what).hexdigest()
    return Begin(round or secrets.token_hex(16), purpose, length, signed, noisy, needed)


def read_keys(
    first: Begin, client: str, data: bytes, known: signatures.KnownKeys | None = None
) -> Keys:
    """The keys that a site advertises.

    known: The signing keys of the sites, if the server has them; the sites check them in any case.
    """
    keys = Keys.from_bytes(data, first)
    if keys.client != client:
        raise GCFCPError(f"{client!r:.60} advertises keys for {keys.client!r:.60}")
    check_keys(keys, known if first.signed else None)
    return keys


def make_roster(first: Begin, keys: Sequence[Keys], threshold: int | None = None) -> Roster:
    """The roster of all sites that have advertised keys; None takes two thirds as threshold."""
    if len(keys) < (2 if threshold is None else threshold):
        raise GCFCPError(
            f"{len(keys)} sites take part in the secure sum, but "
            f"{2 if threshold is None else threshold} are needed: it ends with nothing"
        )
    usual = usual_threshold(len(keys), first.needed)
    chosen = usual if threshold is None else threshold
    return Roster(first, chosen, tuple(sorted(keys, key=lambda k: k.client)))


def read_shares(roster: Roster, client: str, data: bytes) -> dict[str, bytes]:
    """The sealed shares of a site, by receiver."""
    here = roster.position(client)
    with codec.reading("a message", "message with shares"):
        _, body = roster.read(data, "shares", site=here)
        others = [name for name in roster.names if name != client]
        return dict(zip(others, sealed_parts(body, len(others)), strict=True))


def deliveries(roster: Roster, shares: Mapping[str, Mapping[str, bytes]]) -> dict[str, bytes]:
    """For every site that sent shares, the message with those that the others have for it."""
    senders = sorted(map(roster.position, shares))
    roster.check_enough(senders, "sent shares")
    roster.check_noise(senders, "sent shares")
    header = {"senders": senders}
    found = {}
    for receiver in shares:
        parts = [
            shares[roster.names[sender]][receiver]
            for sender in senders
            if roster.names[sender] != receiver
        ]
        found[receiver] = roster.write("delivery", header, b"".join(parts))
    return found


def read_masked(roster: Roster, client: str, data: bytes) -> Vector:
    """The masked vector of a site."""
    with codec.reading("a message", "masked vector"):
        _, body = roster.read(data, "masked", site=roster.position(client))
        even(body, 8, roster.begin.length)
        return np.frombuffer(body, dtype="<u8").astype(np.uint64)


def divide(roster: Roster, senders: Sequence[str], survivors: Sequence[str]) -> Division:
    """The division into sites whose vectors came and sites that were lost after their shares."""
    header = {
        "senders": sorted(map(roster.position, senders)),
        "survivors": sorted(map(roster.position, survivors)),
    }
    return Division.of(header, roster)


def ask_survivors(roster: Roster, division: Division) -> bytes:
    """The request to confirm a division."""
    return roster.write("survivors", division.header)


def read_confirmation(
    roster: Roster,
    division: Division,
    client: str,
    data: bytes,
    known: signatures.KnownKeys | None = None,
) -> bytes:
    """The signature of a site below the division."""
    here = roster.position(client)
    with codec.reading("a message", "confirmation"):
        header, signature = roster.read(data, "confirmation", "senders", "survivors", site=here)
        if Division.of(header, roster) != division or not 0 < len(signature) <= 1000:
            raise GCFCPError("it confirms another division, or is not signed")
    check_confirmation(roster, division, here, signature, known)
    return signature


def ask_reveal(
    roster: Roster, division: Division, confirmations: Mapping[str, bytes] | None = None
) -> bytes:
    """The request to reveal the shares that unmask the sum.

    confirmations: The signatures by site, in a signed sum.
    """
    given = {roster.position(name): data for name, data in (confirmations or {}).items()}
    confirmed = sorted(given)
    if roster.begin.signed:
        roster.check_enough(confirmed, "have confirmed who is in the sum")
    parts = [given[site] for site in confirmed]
    header = {"confirmed": confirmed, "sizes": list(map(len, parts))}
    return roster.write("reveal", division.header | header, b"".join(parts))


def read_revealed(roster: Roster, division: Division, client: str, data: bytes) -> dict[str, bytes]:
    """The shares that a site reveals, by the site whose secret it is."""
    here = roster.position(client)
    with codec.reading("a message", "message with revealed shares"):
        header, body = roster.read(data, "revealed", "senders", "survivors", site=here)
        if Division.of(header, roster) != division or here not in division.survivors:
            raise GCFCPError("it reveals shares for another division")
        parts = share_parts(body, len(division.senders))
        return {
            roster.names[site]: part for site, part in zip(division.senders, parts, strict=True)
        }


@dataclass(frozen=True)
class Total:
    """The sum of the survivors' vectors.

    values: The sum, number by number, between -2^53 and 2^53.
    sites: The names of the sites in it.
    dropped: The names of the sites that were lost after they had sent shares.
    noisy: How many of the sites in it have added noise.
    """

    values: Ints
    sites: tuple[str, ...]
    dropped: tuple[str, ...]
    noisy: int = 0


def total(
    roster: Roster,
    division: Division,
    masked: Mapping[str, Vector],
    revealed: Mapping[str, Mapping[str, bytes]],
) -> Total:
    """The sum of the survivors' vectors, unmasked.

    masked: The masked vectors of the survivors.
    revealed: The shares that sites have revealed, by holder and then by the site they belong to.
    """
    holders = sorted(map(roster.position, revealed))
    roster.check_enough(holders, "have revealed their shares")
    names = roster.names
    found = np.zeros(roster.begin.length, np.uint64)
    for site in division.survivors:
        found += masked[names[site]]
        seed = _joined(roster, site, holders, revealed)
        if commitment(seed, roster.begin, names[site]) != roster.keys[site].commitment:
            raise _bad_shares(names[site])
        found -= self_mask(seed, roster, names[site])
    for site in division.dropped:
        seed = _joined(roster, site, holders, revealed)
        secret, public = mask_public(seed, roster.begin, names[site])
        if public != roster.keys[site].mask_key:
            raise _bad_shares(names[site])
        for there in division.survivors:
            found += pair_mask(secret, roster, site, there)
    values, most = found.view(np.int64), LIMIT * len(division.survivors)
    least = 1 - most if roster.begin.noisy else 0
    if values.min() < least or values.max() >= most:
        raise GCFCPError(
            "the secure sum has numbers that no sum of counts can have, because a site did not "
            "mask its vector as agreed: it ends with nothing"
        )
    return Total(
        values,
        tuple(names[site] for site in division.survivors),
        tuple(names[site] for site in division.dropped),
        roster.noisy(division.survivors),
    )


def _joined(
    roster: Roster, site: int, holders: Sequence[int], revealed: Mapping[str, Mapping[str, bytes]]
) -> bytes:
    """The secret of a site, from the shares that others have revealed."""
    name = roster.names[site]
    shares = {holder: revealed[roster.names[holder]][name] for holder in holders}
    return primitives.join(shares, roster.threshold)


def _bad_shares(name: str) -> GCFCPError:
    """The error for shares that do not give what was advertised."""
    return GCFCPError(
        f"the shares of {name!r:.60} do not give the secret that it has committed to: this site or "
        "one that holds a share of it departs from the protocol, and the sum ends with nothing"
    )
