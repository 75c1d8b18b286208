"""What travels in a secure sum, as bytes: every message is one container and is read strictly.

A message is a container of `codec`, of kind b"U" and format version 1. Its header says which
message it is (`message`), to which sum it belongs (`sum`) and, after the roster, to which roster
(`roster`). Sites are named once, in the roster; afterwards a site is its position there, from 0.
Lists of positions ascend. Digits are hexadecimal, in small letters.

From the server:

| message     | fields of the header                                           | body             |
|-------------|----------------------------------------------------------------|------------------|
| `begin`     | `round`, 32 random digits; `purpose`, the SHA-256 of what is   | empty            |
|             | counted; `length`, the numbers of a vector; `signed`; `noisy`, |                  |
|             | the sites that add noise, and `needed`, those in the sum       |                  |
| `roster`    | `threshold`; `sizes` of the parts of the body                  | all `keys`       |
| `delivery`  | `senders`, the sites that sent shares                          | sealed shares    |
| `survivors` | `senders`; `survivors`, the sites whose masked vectors came    | empty            |
| `reveal`    | `senders`; `survivors`; `confirmed`, the sites that signed it; | their signatures |
|             | `sizes` of their signatures                                    |                  |

From a site:

| message        | fields of the header                                        | body             |
|----------------|-------------------------------------------------------------|------------------|
| `keys`         | `client`; `cipher_key` and `mask_key`, 64 digits each;      | a signature      |
|                | `commitment` to the seed of the self mask, 64 digits        |                  |
| `shares`       | `site`, its position                                        | sealed shares    |
| `masked`       | `site`                                                      | numbers          |
| `confirmation` | `site`; `senders`; `survivors`                              | a signature      |
| `revealed`     | `site`; `senders`; `survivors`                              | shares           |

`sum` is the SHA-256 of the bytes of `begin`, and `roster` that of the bytes of the roster, so every
message is of one sum with one roster. (`begin` itself has neither, and `keys` and `roster` have no
`roster`.) A signature is that of `summary.signatures`, over the same message with an empty body; if
the sum is not signed, there is none. Sealed shares have 60 bytes each: in `shares` one for every
other site, in `delivery` one for every sender but the receiver. Masked numbers have 8 bytes each,
modulo 2^64 and little-endian. The shares in `revealed` have 16 bytes each, one for every sender:
that of the seed of the self mask for a survivor, and that of the mask key for any other.

Whatever does not have exactly this form is refused: an unknown field, a number out of range, bytes
that `pack` would have written in another way, or more than `MAX_SITES` sites or `MAX_LENGTH`
numbers. Reading takes no more memory than a small multiple of the bytes that were given.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gcfcp import checks, codec
from gcfcp.errors import GCFCPError
from gcfcp.secure.primitives import KEY, SEALED, SEED, check_public

MAX_SITES = 1000
"""The most sites of a sum. The work of a site grows with their number, that of the server with its
square."""
MAX_LENGTH = 2**22
"""The most numbers of a vector, which are 32 MB."""
LIMIT = 2**43
"""A number of a site lies below this. The sum of `MAX_SITES` of them lies below 2^53."""

_KIND, _VERSION = b"U", 1


def pack(message: str, header: dict[str, Any], body: bytes = b"") -> bytes:
    """The bytes of a message."""
    return codec.pack(_KIND, _VERSION, {"message": message} | header, body)


def unpack(data: bytes, message: str, fields: Iterable[str]) -> tuple[dict[str, Any], bytes]:
    """Header and body of a message of this name, which has exactly these fields."""
    header, body = codec.unpack(data, _KIND, _VERSION, f"the message {message!r}")
    if header.get("message") != message:
        raise GCFCPError(f"the message {message!r} was expected, but not {header.get('message')!r}")
    if set(header) != {"message", *fields}:
        raise GCFCPError(f"the message {message!r} has other fields than its form allows")
    plain = {key: value for key, value in header.items() if key != "message"}
    if pack(message, plain, bytes(body)) != data:
        raise GCFCPError(f"the message {message!r} is not written as gcfcp writes it")
    return plain, bytes(body)


def addressed(data: bytes) -> tuple[str, str]:
    """Which message this is, and the fingerprint of the sum that it belongs to.

    Nothing else of it is checked. A GCFCPError is raised if it is no message of a secure sum.
    """
    header, _ = codec.unpack(data, _KIND, _VERSION, "the message of a secure sum")
    with codec.reading("the message", "message of a secure sum"):
        message = header["message"]
        if message == "begin":
            return message, _sha256(data)
        return str(message), digits(header["sum"], 64)


def digits(value: Any, number: int) -> str:
    """A text of this many hexadecimal digits."""
    if not isinstance(value, str) or len(value) != number or set(value) - set("0123456789abcdef"):
        raise GCFCPError(f"{value!r:.40} is not a text of {number} hexadecimal digits")
    return value


def positions(value: Any, number: int) -> tuple[int, ...]:
    """An ascending list of positions below `number`."""
    if not isinstance(value, list) or len(value) > number:
        raise GCFCPError("a list of sites is not a list, or too long")
    for position in value:
        if type(position) is not int or not 0 <= position < number:
            raise GCFCPError(f"{position!r:.20} is not the position of a site on the roster")
    if any(a >= b for a, b in itertools.pairwise(value)):
        raise GCFCPError("a list of sites does not ascend")
    return tuple(value)


def cut(body: bytes, sizes: Any, number: int) -> list[bytes]:
    """The parts of a body whose sizes a header states."""
    if not isinstance(sizes, list) or len(sizes) != number:
        raise GCFCPError(f"the sizes are not those of {number} parts")
    if any(type(size) is not int or not 0 <= size <= len(body) for size in sizes):
        raise GCFCPError("a size is not that of a part of the body")
    if sum(sizes) != len(body):
        raise GCFCPError("the sizes do not add up to that of the body")
    found, start = [], 0
    for size in sizes:
        found.append(body[start : start + size])
        start += size
    return found


def even(body: bytes, size: int, number: int) -> list[bytes]:
    """The parts of a body that consists of `number` parts of one size."""
    if len(body) != size * number:
        raise GCFCPError(f"the body has {len(body)} bytes, but {number} parts of {size} are needed")
    return [body[start : start + size] for start in range(0, len(body), size)]


@dataclass(frozen=True)
class Begin:
    """The first message: which sum this is. The server chooses it, and every site knows it.

    round: 32 random hexadecimal digits, new for each sum.
    purpose: The SHA-256 of what is counted, as 64 hexadecimal digits.
    length: How many numbers a vector has.
    signed: Whether the sites know each other's signing keys.
    noisy: How many sites add noise to their vectors: the first ones on the roster. The numbers of a
    vector may then be negative. 0 if the sum has no noise.
    needed: How many of these must be in the sum, so that it can be unmasked.
    """

    round: str
    purpose: str
    length: int
    signed: bool
    noisy: int = 0
    needed: int = 0

    def __post_init__(self) -> None:
        digits(self.round, 32)
        digits(self.purpose, 64)
        checks.whole("length", self.length, 1, MAX_LENGTH + 1)
        checks.flag("signed", self.signed)
        checks.whole("noisy", self.noisy, 0, MAX_SITES + 1)
        checks.whole("needed", self.needed, min(self.noisy, 1), self.noisy + 1)
        if self.noisy and not self.signed:
            raise GCFCPError(
                "a secure sum with noise must be signed, because a server that invents sites reads "
                "the counts of one that adds no noise: give all sites keys (gcfcp keygen)"
            )

    def to_bytes(self) -> bytes:
        """The bytes of the message."""
        header = {"round": self.round, "purpose": self.purpose, "length": self.length}
        noise = {"noisy": self.noisy, "needed": self.needed}
        return pack("begin", header | {"signed": self.signed} | noise)

    @classmethod
    def from_bytes(cls, data: bytes) -> Begin:
        """The message in these bytes; a GCFCPError if they hold none."""
        with codec.reading("a message", "beginning of a secure sum"):
            whole = ("length", "noisy", "needed")
            header, body = unpack(data, "begin", ("round", "purpose", "signed", *whole))
            if body or any(type(header[key]) is not int for key in whole):
                raise GCFCPError("it has a body, or something else than a number")
            return cls(**header)

    @property
    def fingerprint(self) -> str:
        """What later messages call this sum."""
        return _sha256(self.to_bytes())


@dataclass(frozen=True)
class Keys:
    """What a site advertises: the public keys that it has made for this sum.

    cipher_key: For the key under which shares are sealed.
    mask_key: For the key from which pairwise masks are made.
    commitment: It fixes the seed of the self mask, and does not tell it.
    signature: That of the site, over the message without it; empty if the sum is not signed.
    """

    sum: str
    client: str
    cipher_key: bytes
    mask_key: bytes
    commitment: str
    signature: bytes = b""

    def to_bytes(self, *, signed: bool = True) -> bytes:
        """The bytes of the message; with signed=False those that are signed."""
        header = {
            "sum": self.sum,
            "client": self.client,
            "cipher_key": self.cipher_key.hex(),
            "mask_key": self.mask_key.hex(),
            "commitment": self.commitment,
        }
        return pack("keys", header, self.signature if signed else b"")

    @classmethod
    def from_bytes(cls, data: bytes, begin: Begin) -> Keys:
        """The message in these bytes; a GCFCPError if they hold none of this sum."""
        fields = ("sum", "client", "cipher_key", "mask_key", "commitment")
        with codec.reading("a message", "advertisement of keys"):
            header, signature = unpack(data, "keys", fields)
            _refuse_other(header, sum=begin.fingerprint)
            found = cls(
                sum=header["sum"],
                client=checks.name("client", header["client"]),
                cipher_key=bytes.fromhex(digits(header["cipher_key"], 2 * KEY)),
                mask_key=bytes.fromhex(digits(header["mask_key"], 2 * KEY)),
                commitment=digits(header["commitment"], 64),
                signature=signature,
            )
            check_public(found.cipher_key)
            check_public(found.mask_key)
            if bool(signature) != begin.signed or len(signature) > 1000:
                raise GCFCPError("it is not signed although the sum is, or the reverse")
            return found


@dataclass(frozen=True)
class Roster:
    """The sites of a sum with their keys, in the order of their names, and the threshold.

    threshold: A sum of fewer sites than this cannot be unmasked.
    """

    begin: Begin
    threshold: int
    keys: tuple[Keys, ...]
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        names = [k.client for k in self.keys]
        number = len(names)
        if number > MAX_SITES:
            raise GCFCPError(f"the roster has {number} sites, but a sum has at most {MAX_SITES}")
        checks.whole("threshold", self.threshold, 2)
        if not self.threshold <= number < 2 * self.threshold:
            raise GCFCPError(
                f"threshold={self.threshold} is not more than half of the {number} sites of the "
                "roster, up to all of them: two halves could be unmasked apart"
            )
        if self.begin.noisy:
            self._check_makers(number)
        if names != sorted(set(names)):
            raise GCFCPError("the roster names a site twice, or is not in the order of names")
        if len({checks.look(name) for name in names}) < number:
            raise GCFCPError("two sites of the roster have names that look the same")
        public = {key for k in self.keys for key in (k.cipher_key, k.mask_key)}
        if len(public) < 2 * number or len({k.commitment for k in self.keys}) < number:
            raise GCFCPError("two sites of the roster have the same key")
        object.__setattr__(self, "fingerprint", _sha256(self.to_bytes()))

    def to_bytes(self) -> bytes:
        """The bytes of the message."""
        parts = [k.to_bytes() for k in self.keys]
        header = {"sum": self.begin.fingerprint, "threshold": self.threshold}
        return pack("roster", header | {"sizes": list(map(len, parts))}, b"".join(parts))

    @classmethod
    def from_bytes(cls, data: bytes, begin: Begin) -> Roster:
        """The message in these bytes; a GCFCPError if they hold none of this sum."""
        with codec.reading("a message", "roster of a secure sum"):
            header, body = unpack(data, "roster", ("sum", "threshold", "sizes"))
            _refuse_other(header, sum=begin.fingerprint)
            sizes = header["sizes"]
            if not isinstance(sizes, list) or len(sizes) > MAX_SITES:
                raise GCFCPError(f"it does not have up to {MAX_SITES} sites")
            parts = cut(body, sizes, len(sizes))
            keys = tuple(Keys.from_bytes(part, begin) for part in parts)
            return cls(begin, checks.count("threshold", header["threshold"]), keys)

    def _check_makers(self, number: int) -> None:
        """Raise a GCFCPError if the noise of the sum is not certain with so many sites.

        With d = needed - 1 sites that work together with it, a server that lies can unmask two sums
        if 2t <= n + d. Their difference may have no noise.
        """
        if number < self.begin.noisy:
            raise GCFCPError(
                f"the roster has {number} sites, but {self.begin.noisy} must add noise: it ends "
                "with nothing"
            )
        if 2 * self.threshold < number + self.begin.needed:
            raise GCFCPError(
                f"threshold={self.threshold} of {number} sites is too low for noise of which "
                f"{self.begin.needed - 1} sites may tell: two sums could be unmasked, and "
                f"subtracted; at least {-(-(number + self.begin.needed) // 2)} is needed"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sites, in order."""
        return tuple(k.client for k in self.keys)

    def position(self, client: str) -> int:
        """The position of a site, from 0; a GCFCPError if it is not on the roster."""
        try:
            return self.names.index(client)
        except ValueError:
            raise GCFCPError(f"{client!r:.60} is not on the roster") from None

    @property
    def here(self) -> dict[str, str]:
        """What every later message says first: the sum and the roster that it belongs to."""
        return {"sum": self.begin.fingerprint, "roster": self.fingerprint}

    def read(
        self, data: bytes, message: str, *fields: str, site: int | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Header and body of a message that belongs to this roster, and to this site."""
        expected = self.here if site is None else self.here | {"site": site}
        header, body = unpack(data, message, (*expected, *fields))
        _refuse_other(header, **expected)
        return header, body

    def write(
        self, message: str, header: dict[str, Any], body: bytes = b"", site: int | None = None
    ) -> bytes:
        """The bytes of a message that belongs to this roster, and comes from this site."""
        first: dict[str, Any] = self.here if site is None else self.here | {"site": site}
        return pack(message, first | header, body)

    def check_enough(self, sites: Sequence[int], what: str) -> None:
        """Raise a GCFCPError if these are fewer sites than the threshold."""
        if len(sites) < self.threshold:
            raise GCFCPError(
                f"{len(sites)} of {len(self.keys)} sites {what}, but the threshold of this secure "
                f"sum is {self.threshold}: it ends with nothing"
            )

    def noisy(self, sites: Iterable[int]) -> int:
        """How many of these sites add noise.

        It is the roster that decides, and not who has sent shares: every mask is bound to the
        roster, and a server could name different senders to different sites.
        """
        return sum(site < self.begin.noisy for site in sites)

    def check_noise(self, sites: Sequence[int], what: str) -> None:
        """Raise a GCFCPError if fewer of these sites add noise than the sum needs."""
        if self.noisy(sites) < self.begin.needed:
            raise GCFCPError(
                f"{self.noisy(sites)} of the {self.begin.noisy} sites that add noise {what}, but "
                f"{self.begin.needed} are needed, so that the sum would not be protected: it ends "
                "with nothing"
            )


@dataclass(frozen=True)
class Division:
    """Who is in the sum: of the sites that sent shares, those whose masked vector came.

    senders: The sites that sent shares, by position.
    survivors: Those of them whose vectors are added up. The others are dropped.
    """

    senders: tuple[int, ...]
    survivors: tuple[int, ...]

    @classmethod
    def of(cls, header: dict[str, Any], roster: Roster) -> Division:
        """The division that a header states; a GCFCPError if it is not possible."""
        number = len(roster.keys)
        senders, survivors = (positions(header[key], number) for key in ("senders", "survivors"))
        if not set(survivors) <= set(senders):
            raise GCFCPError("a site is named as a survivor that sent no shares")
        roster.check_enough(survivors, "are named as survivors")
        roster.check_noise(survivors, "are named as survivors")
        return cls(senders, survivors)

    @property
    def header(self) -> dict[str, Any]:
        """The division as fields of a header."""
        return {"senders": list(self.senders), "survivors": list(self.survivors)}

    def confirmation(self, roster: Roster, site: int, signature: bytes = b"") -> bytes:
        """The message in which a site confirms this division; without signature, what it signs."""
        return roster.write("confirmation", self.header, signature, site)

    @property
    def dropped(self) -> tuple[int, ...]:
        """The sites that sent shares and no masked vector."""
        inside = set(self.survivors)
        return tuple(site for site in self.senders if site not in inside)


def sealed_parts(body: bytes, number: int) -> list[bytes]:
    """The sealed shares in a body."""
    return even(body, SEALED, number)


def share_parts(body: bytes, number: int) -> list[bytes]:
    """The shares in a body."""
    return even(body, SEED, number)


def _refuse_other(header: dict[str, Any], **expected: Any) -> None:
    """Raise a GCFCPError if a message is of another sum or roster, or of another site."""
    for key, value in expected.items():
        if type(header[key]) is not type(value) or header[key] != value:
            raise GCFCPError(f"it belongs to another {key}: {header[key]!r:.20} is not this one")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
