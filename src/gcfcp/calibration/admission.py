"""Which summaries the server lets in, and how much each of them may weigh.

A file's form says nothing about whether its claims are true. What a site can gain by claims is
limited here, by what the server itself knows:

- **Aggregates.** A summary that stands for other clients is refused unless the server names it. The
  mixture "uniform" counts an aggregate as its sites, and so does the paper's correction. How many
  these are is said by the server, and never by the aggregate: 1 of 5 sites that claims 1,000
  members would have 0.996 of the mixture. Under other mixtures a name is enough.
- **Rounds.** A server that calibrates a round refuses a summary of another round, or of none. A
  summary of last quarter, validly signed, is then of no use to whoever sends it again.
- **Shares.** A site decides how many of its records are in a group, and so its weight within the
  group. With `max_share` no site has more than this share of the weight of a group, suppressed
  records included, unless it is named. Nothing is capped: a larger share is an error.
- **Atoms.** The simultaneous rule solves one problem for each atom, with all atoms in it. A site
  decides how many atoms it describes, at 14 bytes each, so that the server limits their number.

Cost: that of counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Floats
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.summary import ClientSummary

MAX_ATOMS = 1000
"""How many atoms the simultaneous rule takes, unless the caller says otherwise.

Measured with one hostile summary of one record in each atom, beside one of 500 records: 1,000 atoms
of 12, 16 and 32 groups (14 kB) take 2 to 7 s, and 2,000 atoms (28 kB) take 3 to 50 s.
"""

Aggregates = Iterable[str] | Mapping[str, int | None]
"""The aggregates that are allowed: names, or a mapping from names to the number of their sites."""


@dataclass(frozen=True)
class Admission:
    """What a server lets in. The arguments are those of `calibrate`."""

    # The aggregates that are allowed, each with the number of its sites, if the server said it.
    aggregates: Mapping[str, int | None] = field(default_factory=dict)
    round: str | None = None
    max_share: float | None = None
    allow_share: tuple[str, ...] = ()
    max_atoms: int | None = None  # None does not limit them.

    @classmethod
    def of(
        cls,
        aggregates: Any = (),
        round: str | None = None,
        max_share: float | None = None,
        allow_share: Any = (),
        max_atoms: int | None = None,
    ) -> Admission:
        """The same from what a caller gives, checked."""
        return cls(
            checked_aggregates(aggregates),
            None if round is None else checks.name("round", round),
            None if max_share is None else checks.probability("max_share", max_share),
            tuple(checks.name("allow_share", name) for name in _listed("allow_share", allow_share)),
            None if max_atoms is None else checks.whole("max_atoms", max_atoms, 1),
        )

    def refusal(self, summary: ClientSummary, name: str) -> str | None:
        """Why this summary is refused, whatever the others are, or None if it is not.

        - `name`: What the text calls it: the name of its client or of its file.
        """
        if self.round is not None and summary.round != self.round:
            theirs = "no round" if summary.round is None else f"round {summary.round!r}"
            return (
                f"{name} is a summary of {theirs}, not of round {self.round!r}: ask "
                f"{summary.client!r} for one of this round"
            )
        return self._refused_aggregate(summary, name) if summary.is_aggregate else None

    def _refused_aggregate(self, summary: ClientSummary, name: str) -> str | None:
        """Why this aggregate is refused."""
        claimed = len(summary.members)
        if summary.client not in self.aggregates:
            stands = "another client" if claimed == 1 else f"{claimed:,} clients"
            return (
                f"{name} says that it stands for {stands}, and aggregates are refused unless they "
                f"are named: if it may, name it with the number of its sites (aggregates="
                f"{{{summary.client!r}: {claimed}}}, --aggregate {summary.client}={claimed})"
            )
        known = self.aggregates[summary.client]
        if known is not None and known != claimed:
            return (
                f"{name} says that it stands for {claimed:,} clients, but the server knows of "
                f"{known:,}: find out which clients it was made from"
            )
        return None

    def sites(self, summary: ClientSummary, why: str) -> int:
        """How many sites are behind a summary, by the server's own knowledge.

        - `why`: What counts an aggregate as its sites, for the message if the number is not known.
        """
        if not summary.is_aggregate:
            return 1
        known = self.aggregates.get(summary.client)
        if known is None:
            raise GCFCPError(
                f"{why} counts an aggregate as its sites: say how many with "
                f"aggregates={{{summary.client!r}: {len(summary.members)}}} (--aggregate "
                f"{summary.client}={len(summary.members)}), if that is true"
            )
        return known

    def check_shares(
        self, clients: Sequence[str], groups: Groups, weights: Floats, described: Any, hidden: Any
    ) -> None:
        """Raise a GCFCPError if a site has more than `max_share` of the weight of a group.

        A site that hides a group may have no record of it. What it may have counts all the same,
        because it is charged at +inf and can make the group infinite. The message says so.

        - `weights`, `described`, `hidden`: As in `largest_shares`.
        """
        if self.max_share is None:
            return
        if odd := sorted(set(self.allow_share) - set(clients)):
            raise GCFCPError(
                f"allow_share names {odd[0]!r}, which is not among the clients "
                f"{checks.listed(clients)}"
            )
        for largest in largest_shares(
            clients, groups, weights, described, hidden, self.allow_share
        ):
            if largest.share > self.max_share * (1 + 1e-12):
                raise GCFCPError(_beyond(largest, self.max_share))

    def check_atoms(self, summaries: Sequence[ClientSummary], atoms: int) -> None:
        """Raise a GCFCPError if there are more atoms than the simultaneous rule may take.

        - `atoms`: How many atoms all summaries have together.
        """
        if self.max_atoms is None or atoms <= self.max_atoms:
            return
        most = max(summaries, key=lambda s: len(s.errors))
        raise GCFCPError(
            f"there are {atoms:,} combinations of groups, of which {most.client} describes "
            f"{len(most.errors):,}, and max_atoms={self.max_atoms:,}: rule='max' needs no limit; "
            "or leave this client out, or raise max_atoms (twice as many take four to eight times "
            "as long)"
        )


@dataclass(frozen=True)
class LargestShare:
    """The client that has the largest share of the weight of a group."""

    group: str
    client: str
    share: float  # Its share of the weight of the group, suppressed records included.
    records: int  # How many records it has in the group; by bounds, if some are suppressed.
    described: int  # How many of them its summary describes. The others may not exist.


def _beyond(largest: LargestShare, max_share: float) -> str:
    """The sentence that names a site with too large a share, what it rests on, and the remedy."""
    name, hidden = largest.client, largest.records - largest.described
    records, remedy = f"with {largest.records:,} records", "find out whether this is true"
    if hidden:
        records = f"with {largest.described:,} records and up to {hidden:,} that it hides"
        remedy = (
            "if it cannot have this group, let it declare the group absent; or lower min_count; "
            "or find out whether this is true"
        )
    return (
        f"{name} has {largest.share:.1%} of the weight of group {largest.group!r}, {records}, and "
        f"max_share={max_share:g} allows no more than that: {remedy}; then name it "
        f"(allow_share=[{name!r}], --allow-share {name}) or leave it out"
    )


def largest_shares(
    clients: Sequence[str],
    groups: Groups,
    weights: Floats,
    described: Any,
    hidden: Any,
    but: Iterable[str] = (),
) -> tuple[LargestShare, ...]:
    """The client with the largest share of each group that has weight, in the order of the groups.

    The groups of sites are left out, because each belongs to one site.

    - `weights`: What each client weighs in each group, (K, G), hidden records included.
    - `described`, `hidden`: How many records of each group each client describes, and how many more
      it may have, (K, G).
    - `but`: Clients that are not looked at. They count in the whole.
    """
    total = weights.sum(axis=0)
    exempt = set(but)
    seen = np.array([name not in exempt for name in clients])
    found = []
    for g, group in enumerate(groups.others):
        own = np.where(seen, weights[:, g], 0.0)
        k = int(np.argmax(own))
        if own[k] > 0:
            share = min(1.0, float(own[k] / total[g]))
            known = int(described[k, g])
            found.append(LargestShare(group, clients[k], share, known + int(hidden[k, g]), known))
    return tuple(found)


def checked_aggregates(given: Any) -> dict[str, int | None]:
    """Names, or a mapping from names to numbers of sites, as a mapping."""
    if not isinstance(given, Mapping):
        given = dict.fromkeys(_listed("aggregates", given))
    return {
        checks.name("aggregates", name): None
        if sites is None
        else checks.whole(f"aggregates[{name!r}]", sites, 1)
        for name, sites in given.items()
    }


def parse_aggregates(parts: Iterable[str]) -> dict[str, int | None]:
    """Aggregates as people write them: "north", or "north=3" for an aggregate of three sites."""
    found: dict[str, int | None] = {}
    for part in parts:
        name, sign, number = part.strip().rpartition("=")
        if not (sign and number.isdecimal()):
            name, number = part.strip(), ""
        if name in found:
            raise GCFCPError(f"aggregate {name!r:.60} is named twice: name it once")
        found[name] = int(number) if number else None
    return checked_aggregates(found)


def _listed(what: str, given: Any) -> list[Any]:
    """The names in a list; a single text is mostly a mistake."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise GCFCPError(f"{what}={given!r:.60} is not a list of names: give one such as ['north']")
    return list(given)
