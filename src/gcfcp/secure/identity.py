"""Who a site is to the other sites, and what it demands of a secure sum before it takes part.

The server passes on every message between the sites. If the sites know each other's signing keys,
it cannot pass on keys of its own instead: each site signs the keys that it advertises and, later,
the division into survivors and dropped sites.

**What an unsigned sum does not protect against.** Without signing keys, a server that departs from
the protocol can invent sites. It sends every real site a roster on which all the others are its own
inventions, knows the masks that they share with it, and reads the site's vector. An unsigned sum
protects against a server that follows the protocol and looks at all that it receives, against
whoever reads its disk or its log later, and against other sites. It does not protect against a
server that lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from gcfcp import checks
from gcfcp.errors import GCFCPError
from gcfcp.secure.messages import Begin, Division, Keys, Roster
from gcfcp.summary import signatures


@dataclass(frozen=True)
class Identity:
    """A site, with its signing key and the public keys of the sites that it knows.

    client: The name of the site.
    key: The file of its private key, or None if it signs nothing.
    known: The public keys of all sites, its own included (`signatures.load_known`), or None.
    """

    client: str
    key: str | PathLike[str] | None = None
    known: signatures.KnownKeys | None = None

    def __post_init__(self) -> None:
        checks.name("client", self.client)
        if (self.key is None) != (self.known is None):
            raise GCFCPError(
                f"site {self.client!r} has a signing key or a file of known keys, but not both: a "
                "signed secure sum needs both, and an unsigned one neither"
            )

    @property
    def signs(self) -> bool:
        """Whether this site takes part in signed sums, and in no others."""
        return self.key is not None

    def check_begin(self, begin: Begin) -> None:
        """Raise a GCFCPError if the sum is unsigned and this site signs, or the reverse."""
        if begin.signed and not self.signs:
            raise GCFCPError(
                "the secure sum is signed, but this site has no signing key: give it a key and a "
                "file of the keys of all sites"
            )
        if self.signs and not begin.signed:
            raise GCFCPError(
                "the secure sum is not signed, but this site takes part in signed ones only"
            )

    def sign(self, data: bytes) -> bytes:
        """The signature of this site, or nothing if it does not sign."""
        return b"" if self.key is None else signatures.sign(data, self.key)

    def check_keys(self, keys: Keys) -> None:
        """Raise a GCFCPError unless the site that is named there has signed these keys."""
        check_keys(keys, self.known)

    def check_confirmation(
        self, roster: Roster, division: Division, site: int, signature: bytes
    ) -> None:
        """Raise a GCFCPError unless a site has signed this division."""
        check_confirmation(roster, division, site, signature, self.known)


def check_keys(keys: Keys, known: signatures.KnownKeys | None) -> None:
    """Raise a GCFCPError unless the site that is named there has signed these keys.

    known: The public keys of all sites, or None if the sum is not signed.
    """
    if known is not None:
        signatures.verify(
            keys.to_bytes(signed=False), keys.signature, keys.client, known, "the advertised keys"
        )


def check_confirmation(
    roster: Roster,
    division: Division,
    site: int,
    signature: bytes,
    known: signatures.KnownKeys | None,
) -> None:
    """Raise a GCFCPError unless a site has signed this division."""
    if known is not None:
        signatures.verify(
            division.confirmation(roster, site),
            signature,
            roster.names[site],
            known,
            "the division into survivors and dropped sites",
        )


@dataclass(frozen=True)
class Rules:
    """What a site demands of a secure sum.

    sites: The fewest sites on the roster. The site leaves before it has sent anything if there are
    fewer.
    threshold: The fewest sites in the sum. None stands for two thirds of the roster.

    A sum of m sites, c of which work together with the server, tells them the sum of the other
    m - c. And a server that lies can unmask two different sums if 2t <= n + c, for a threshold t
    and n sites on the roster. With two thirds it needs at least a third of all sites for this.
    """

    sites: int = 3
    threshold: int | None = None

    def __post_init__(self) -> None:
        checks.whole("sites", self.sites, 3)
        if self.threshold is not None:
            checks.whole("threshold", self.threshold, 2)

    def check(self, roster: Roster) -> None:
        """Raise a GCFCPError if a roster does not satisfy the rules."""
        number = len(roster.keys)
        if number < self.sites:
            raise GCFCPError(
                f"the roster has {number} sites, but this site takes part in secure sums of at "
                f"least {self.sites}"
            )
        least = self.threshold
        if least is None:
            least = usual_threshold(number, roster.begin.needed)
        if roster.threshold < least:
            raise GCFCPError(
                f"the threshold is {roster.threshold} of {number} sites, but this site takes part "
                f"only if it is at least {least}"
            )


def usual_threshold(number: int, needed: int = 0) -> int:
    """Two thirds of the sites of a roster, rounded up, and at least 2.

    needed: In a sum with noise, how many of the sites that add noise must be in it. The threshold
    is then as high as `Roster` demands for it.
    """
    return max(2, -(-2 * number // 3), -(-(number + needed) // 2))
