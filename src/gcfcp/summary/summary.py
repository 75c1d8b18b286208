"""The summary itself: the one thing that leaves a client.

A summary describes cells. By atom (`by="atom"`) a cell is an atom, that is, the records that belong
to exactly the same groups, and every record is in one cell. By group (`by="group"`) a cell is a
group, and a record is in the cell of each of its groups; the scores are then residuals s - b(x) if
the summary has a shape. For each described cell a summary holds the representatives of its clusters
of scores, and how many records each of them stands for. It holds counts and not weights, because
all scores of a client weigh the same. The server computes the weights pi_k / (n_k + 1), so the
mixture can be changed later without asking the clients again.

With a `grid` (see `gcfcp.grid`) there are no clusters: the values are edges of the grid, each with
the number of records in its cell. Such summaries can be added (`gcfcp.add`). A sum may have been
made in such a way that nobody knows the sizes n_k of its members, only their total; these are then
None in `members`.

| here             | paper                                             |
|------------------|---------------------------------------------------|
| `n`              | n_k                                               |
| `membership`     | Phi_A of the active atoms A in A_k^+              |
| `values`         | S-bar_{k,A,c}                                     |
| `counts`         | W_{k,A,c} (n_k + 1) / pi_k                        |
| `errors` / count | a bound on sup abs(p_A - p-hat_A) for each atom A |
"""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from os import PathLike, fspath
from typing import Any

import numpy as np

from gcfcp import checks, codec, scores
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.grid import Grid
from gcfcp.groups import Groups, pack
from gcfcp.noise import Noise, fits
from gcfcp.notebook import as_html
from gcfcp.shape import Shape, source_of
from gcfcp.summary import layout
from gcfcp.summary.cells import possible_cells, sensitivity_of
from gcfcp.summary.disclosure import Disclosure, disclosure_of
from gcfcp.version import LIBRARY

BY = ("atom", "group")
"""What the cells of a summary can be."""
_ONE = {"atom": "an atom", "group": "a group"}


@dataclass(frozen=True, eq=False)
class ClientSummary:
    """What one client, or one aggregator of several clients, sends to the server.

    Two summaries are equal if their bytes are.
    """

    client: str
    n: int  # The number of all records, described or not.
    delta: float | None  # How fine the digests are; None with a grid, which has none.
    representative: str  # What stands for a cluster: "upper" or "mean"; "upper" with a grid.
    groups: Groups
    score: str  # The name of the score.
    parameters: dict[str, Any]  # The parameters of the score, as JSON values.
    model: str | None  # A fingerprint of the model, if one was given.
    min_count: int  # The smallest number of records that a centroid may stand for.
    # The number of records that are not described: those in atoms that are too small, and others
    # that hide how many these are (see `withheld`); 0 by group, where it is not told.
    suppressed: int
    suppressed_groups: tuple[int, ...]  # For each group, a bound on its suppressed records.
    # The number of records in no group that are not suppressed; 0 by group, where it is not told.
    uncovered: int
    # The clients that it stands for, with their n_k; None for all of these if they are not known.
    members: tuple[tuple[str, int | None], ...]
    # (a, G): The described cells, in ascending order. By group, each row has one group.
    membership: Bools = field(repr=False)
    start: Ints = field(repr=False)  # (a + 1,): Cell i has the values[start[i]:start[i + 1]].
    values: Floats = field(repr=False)  # (m,): The representatives, ascending within a cell.
    counts: Ints = field(repr=False)  # (m,): How many records each representative stands for.
    # (a,): The certified error of each cell, in records. On a grid it is 0: the scores that are
    # calibrated are those on the grid, and these are known exactly.
    errors: Ints = field(repr=False)
    absent: tuple[str, ...] = ()  # The groups that it declares it cannot have, in their order.
    by: str = "atom"  # What the cells are: "atom" or "group".
    shape: Shape | None = None  # The shape that was subtracted from the scores, if any.
    # By group, for each group a bound on the described records that are not in it; see `cells`.
    strangers: tuple[int, ...] = ()
    library: str = LIBRARY  # The name and version of what made the summary.
    round: str | None = None  # The round that it is for, such as "2026Q4", if one was named.
    date: str | None = None  # The day on which it was made, such as "2026-11-17", if it says so.
    grid: Grid | None = None  # The grid on which the records are counted, if there is one.
    noise: Noise | None = None  # The law of the noise in all counts, if there is any.

    def __post_init__(self) -> None:
        _check(self)
        for array in (self.membership, self.start, self.values, self.counts, self.errors):
            array.flags.writeable = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientSummary) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    @property
    def atom_counts(self) -> Ints:
        """The number of records of each described cell, of shape (a,)."""
        return np.add.reduceat(self.counts, self.start[:-1]) if len(self.errors) else self.errors

    @property
    def disclosure(self) -> Disclosure:
        """What this summary tells about the records behind it."""
        return disclosure_of(self)

    def _repr_html_(self) -> str:
        """What this summary tells, and for which groups, for a notebook."""
        names, conditions = self.groups.names, self.groups.conditions
        return as_html(
            str(self.disclosure).splitlines(),
            ["group", "condition"],
            list(zip(names, conditions, strict=True)),
            left=2,
        )

    @cached_property
    def possible(self) -> Bools:
        """Which groups the records can belong to, of shape (G,).

        These are all groups but those that are declared absent. Of the groups of sites they are
        those of the members; a client that stands for itself is its own member.
        """
        absent, members = set(self.absent), {name for name, _ in self.members}
        found = np.array(
            [name not in absent for name in self.groups.others]
            + [site in members for site in self.groups.sites],
            dtype=np.bool_,
        )
        found.flags.writeable = False
        return found

    @property
    def is_shape_part(self) -> bool:
        """Whether records were left out of it without being charged, as in the part of a holdout.

        Such a summary gives a shape and no thresholds. It can be recognised: a whole summary by
        atom with a `min_count` above 1 withholds some records wherever a combination of groups that
        is possible is not described (see `withheld`), unless all of its records are in no group; a
        shape part never counts those. The versions before did not know holdouts.
        """
        if self.by != "atom" or self.min_count == 1 or self.is_aggregate:
            return False
        if self.suppressed or self.uncovered:
            return False
        others = self.possible[: len(self.groups.others)]
        free = others & ~self.groups.everyone[: len(others)]
        left_out = len(self.errors) < 2 ** int(np.count_nonzero(free))
        return left_out and not self.library.startswith("gcfcp 0.1.")

    @property
    def is_aggregate(self) -> bool:
        """Whether this is the merged summary of several clients."""
        return self.members != ((self.client, self.n),)

    @property
    def exact(self) -> bool:
        """Whether every score is described as it is, or as the public grid renames it.

        Then the promise of every rule is proved (see `calibration.guarantees`). It does not depend
        on the scores: without a grid, n must be so small that no two records can share a cluster.
        """
        if self.min_count > 1 or self.errors.any() or self.noise is not None:
            return False
        if self.delta is None:
            return True
        return not self.is_aggregate and self.n * self.coarseness < 2

    @property
    def coarseness(self) -> float:
        """The largest share of a cell that a digest may have in one cluster: sin(pi / delta)."""
        return 0.0 if self.delta is None else math.sin(math.pi / self.delta)

    @cached_property
    def size_and_sha256(self) -> tuple[int, str]:
        """How many bytes the summary has, and their SHA-256 in hexadecimal digits."""
        data = self.to_bytes()
        return len(data), hashlib.sha256(data).hexdigest()

    @property
    def source(self) -> str:
        """What a shape that is made from this summary remembers of it; see `gcfcp.shape`.

        The round and the date do not count: the same records in another round are the same records.
        """
        if self.round is None and self.date is None:
            return source_of(self.size_and_sha256[1])
        return source_of(hashlib.sha256(layout.encode(self, dated=False)).hexdigest())

    def to_bytes(self) -> bytes:
        """The bytes of the summary. The same data give the same bytes, in any order of the rows."""
        return layout.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "the summary") -> ClientSummary:
        """Read a summary that may come from anyone. A GCFCPError says what is wrong with it.

        name: What error messages call it.
        """
        header, body = layout.unpack(data, name)
        with codec.reading(name, "summary"):
            summary = cls(**layout.fields(header, body))
            # Additional, padded or unordered content would not be written in the same way again.
            if summary.to_bytes() != data:
                raise GCFCPError("it is not written in the one way that the format allows")
        return summary

    def save(self, path: str | PathLike[str]) -> None:
        """Write the summary to a file, whole or not at all."""
        codec.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ClientSummary:
        """Read a summary from a file."""
        return cls.from_bytes(codec.read(path), fspath(path))


def _check(s: ClientSummary) -> None:
    """Raise a GCFCPError unless everything holds that must hold between the fields of a summary."""
    checks.name("client", s.client)
    stated = [name for name in ("model", "round") if getattr(s, name) is not None]
    for name in ("score", "library", *stated):
        checks.name(name, getattr(s, name))
    if s.date is not None and checks.day("date", s.date) != s.date:
        raise GCFCPError(f"date={s.date!r:.60} is not text")
    for name in ("n", "min_count", "suppressed", "uncovered"):
        checks.count(name, getattr(s, name))
    if s.n < 1 or s.min_count < 1:
        raise GCFCPError(f"n={s.n} and min_count={s.min_count} must both be at least 1")
    _check_grid(s) if s.grid is not None else _check_delta(s)
    checks.representative(s.representative)
    _check_parameters(s.parameters)
    _check_members(s)
    checks.choice("by", s.by, *BY)
    if s.by == "atom" and s.strangers:
        raise GCFCPError("a summary by atom has no strangers")
    if s.shape is not None and s.by == "atom":
        raise GCFCPError("a summary by atom has no shape: the server subtracts it")
    if s.shape is not None and s.shape.groups.fingerprint != s.groups.fingerprint:
        raise GCFCPError("the shape is for other groups")
    most = s.suppressed if s.by == "atom" else s.n
    if len(s.suppressed_groups) != len(s.groups) or not all(
        type(k) is int and 0 <= k <= most for k in s.suppressed_groups
    ):
        raise GCFCPError(
            "suppressed_groups must hold one count for each group, none above "
            + ("suppressed itself" if s.by == "atom" else "n")
        )
    _check_arrays(s)
    if s.noise is not None:
        _check_noise(s, s.noise)
    else:
        (_check_atoms if s.by == "atom" else _check_groups)(s)
    _check_possible(s)
    if not s.is_aggregate:
        _check_claims(s)


def _check_noise(s: ClientSummary, noise: Noise) -> None:
    """Raise a GCFCPError unless every count that the site could have is there, with its noise.

    Which cells are described must not depend on the records. (Which rows these must be is known for
    a single client; a sum has the rows of its members.)
    """
    if s.grid is None or s.min_count != 1:
        raise GCFCPError("only counts on a grid with min_count=1 have noise")
    hidden = s.suppressed or s.uncovered or any(s.suppressed_groups) or any(s.strangers)
    if hidden or len(s.strangers) != (len(s.groups) if s.by == "group" else 0):
        raise GCFCPError("a summary with noise tells no exact number of records but n")
    if not np.array_equal(s.values, np.tile(s.grid.points, len(s.errors))):
        raise GCFCPError("a summary with noise must have a count for every cell of the grid")
    certain = s.groups.everyone.copy()
    certain[len(s.groups.others) :] = s.possible[len(s.groups.others) :]
    rows = possible_cells(s.possible, certain, s.by, most=len(s.membership) + 1)
    if not np.array_equal(rows, s.membership):
        raise GCFCPError(f"a summary with noise must describe every {s.by} that is possible")
    if not s.is_aggregate and not fits(noise, sensitivity_of(s.possible, s.by)):
        raise GCFCPError(
            f"noise of scale {noise.scale:g} is not that of epsilon={noise.epsilon:g} by {s.by}"
        )


def _check_delta(s: ClientSummary) -> None:
    """Raise a GCFCPError unless delta is one that a file can hold."""
    if type(s.delta) not in (int, float) or (s.delta or 0) > sys.float_info.max:
        raise GCFCPError(f"delta={s.delta!r:.60} is not a number that a file can hold")
    checks.delta(s.delta)


def _check_grid(s: ClientSummary) -> None:
    """Raise a GCFCPError unless a summary with a grid has counts on this grid and no digests."""
    assert s.grid is not None
    if s.delta is not None or s.representative != "upper" or s.errors.any():
        raise GCFCPError("a summary with a grid has no delta, no means and no errors of digests")
    if np.isnan(s.values).any() or not np.array_equal(s.grid.up(s.values), s.values):
        raise GCFCPError("a value is not an edge of the grid")


def _check_arrays(s: ClientSummary) -> None:
    """Raise a GCFCPError unless the arrays of a summary fit together and add up to n."""
    a, m = len(s.errors), len(s.values)
    if s.membership.shape != (a, len(s.groups)) or len(s.start) != a + 1 or len(s.counts) != m:
        raise GCFCPError(f"the numbers of {s.by}s and centroids do not fit together")
    if s.start[0] != 0 or s.start[-1] != m or np.any(np.diff(s.start) < 1):
        raise GCFCPError(
            f"each {s.by} must have at least one centroid, and each centroid must be part of one"
        )
    keys = [row.tobytes() for row in pack(s.membership)]
    if any(a >= b for a, b in pairwise(keys)):
        raise GCFCPError(f"the {s.by}s are not in ascending order, or one of them occurs twice")
    if not s.membership.any(axis=1).all():
        raise GCFCPError("an atom that belongs to no group is described")
    if s.noise is None and np.any(s.counts < s.min_count):
        raise GCFCPError(f"a centroid of {s.counts.min()} records is below min_count={s.min_count}")
    if np.isnan(s.values).any() or np.any(s.values == -np.inf):
        raise GCFCPError("a representative is NaN or -inf")
    rising = np.ones(m, dtype=bool)
    rising[1:] = s.values[1:] > s.values[:-1]
    rising[s.start[:-1]] = True
    if not rising.all():
        raise GCFCPError(f"the representatives of {_ONE[s.by]} are not in ascending order")
    if (
        np.abs(s.counts).sum(dtype=np.float64) > 2**53
    ):  # Larger counts could overflow in the sums below.
        raise GCFCPError("the counts add up to more than 2**53")
    if np.any(s.errors < 0) or (s.noise is None and np.any(s.errors > s.atom_counts)):
        raise GCFCPError(
            f"the certified error of {_ONE[s.by]} is negative or above its number of records"
        )


def _check_atoms(s: ClientSummary) -> None:
    """Raise a GCFCPError unless each record is in one atom, is suppressed, or is in no group."""
    described = int(s.counts.sum())
    if described + s.suppressed + s.uncovered != s.n:
        raise GCFCPError(
            f"the counts add up to {described} described + {s.suppressed} suppressed + "
            f"{s.uncovered} in no group, not to n={s.n}"
        )


def _check_groups(s: ClientSummary) -> None:
    """Raise a GCFCPError unless a summary by group describes or hides each group that it can have.

    A client with a `min_count` above 1 must not leave open which of its groups are empty.
    """
    if s.suppressed or s.uncovered:
        raise GCFCPError("a summary by group does not tell suppressed or uncovered records")
    if not (s.membership.sum(axis=1) == 1).all():
        raise GCFCPError("a summary by group describes a combination of groups")
    if np.any(s.atom_counts > s.n):
        raise GCFCPError(f"a group has more than n={s.n} records")
    hidden = np.array(s.suppressed_groups) > 0
    counts = s.atom_counts @ s.membership
    if len(s.strangers) != len(s.groups) or not all(
        type(k) is int and 0 <= k <= most
        for k, most in zip(s.strangers, counts.tolist(), strict=True)
    ):
        raise GCFCPError(
            "strangers must hold one count for each group, none above the records that describe it"
        )
    strange = np.array(s.strangers) > 0
    if np.any(counts + np.array(s.suppressed_groups) > s.n):
        raise GCFCPError(f"a group has more than n={s.n} records, with those that are suppressed")
    if s.is_aggregate:
        return
    described = s.membership.any(axis=0)
    if np.any((counts != s.n) & described & s.groups.everyone):
        raise GCFCPError(f"a group that holds every record does not have n={s.n} records")
    if np.any(hidden & described & ~strange):
        raise GCFCPError("a group is described although records of it are suppressed")
    if s.min_count == 1 and (hidden | strange).any():
        raise GCFCPError("a group is hidden, or has strangers, although min_count is 1")
    if s.min_count > 1 and np.any(s.possible & ~described & ~hidden):
        raise GCFCPError("a group is neither described nor hidden nor declared absent")


def _check_claims(s: ClientSummary) -> None:
    """Raise a GCFCPError if more records are said to be withheld than small cells can hold.

    Every summary that `summarize` makes passes. An aggregate is not judged, because its members may
    each have a larger `min_count` m than it says.

    - By atom, suppressed records lie in atoms of fewer than m records that are not described. With
      F groups that a record may or may not be in, there are 2^F atoms, among them that of no group.
      Beside them a site may withhold up to m records of one described atom, or describe nothing at
      all if no atom has 3 m - 2 records or more (see `withheld`).
    - By group, a group is charged m - 1 records if it is small, and more only if other groups say
      nearly the same (see `cells`). With one or two groups beside those to which everyone belongs,
      that is at most 3 m - 2. A group a that holds nearly all records, and a group b that holds
      nearly none of a's, has at most 2 m - 2 records; those are charged as 2 m - 1 and m - 1. Only
      two groups that are nearly the same and nearly divide all records are charged all n records,
      and then n is at most 3 m - 3. With three groups and more there are families in which a group
      is rightly charged n records.
    """
    m, free = s.min_count, s.possible[: len(s.groups.others)]
    if s.by == "group":
        uncertain = int(np.count_nonzero(free & ~s.groups.everyone[: len(free)]))
        claimed = max(s.suppressed_groups)
        if uncertain <= 2 and claimed > 3 * m - 2:
            raise GCFCPError(
                f"{claimed:,} records of a group are said to be withheld, but with {uncertain} "
                f"groups and min_count={m:,} there can be at most {3 * m - 2:,}"
            )
        return
    atoms = 2 ** int(np.count_nonzero(free))
    if m == 1:
        most = 0
    elif len(s.errors):
        most = (m - 1) * (atoms - len(s.errors) - (s.uncovered > 0)) + m
    else:
        most = (3 * m - 3) * atoms
    if s.suppressed > most:
        raise GCFCPError(
            f"{s.suppressed:,} records are said to be suppressed, but with {len(s.groups)} groups, "
            f"min_count={m:,} and {len(s.errors):,} described atoms there can be at most {most:,}"
        )


def _check_possible(s: ClientSummary) -> None:
    """Raise a GCFCPError unless the records belong to groups that the client can have."""
    absent = {name for name in s.absent if isinstance(name, str)}
    if s.absent != tuple(name for name in s.groups.others if name in absent):
        raise GCFCPError(
            "absent must hold names of groups that are not sites, in their order and each once"
        )
    if s.groups.sites:
        _check_sites(s)
    described, bounds = s.membership.any(axis=0), np.array(s.suppressed_groups) > 0
    for what, there in (("a record", described), ("a suppressed record", bounds)):
        if np.any(there & ~s.possible):
            name = s.groups.names[int(np.argmax(there & ~s.possible))]
            raise GCFCPError(f"{what} belongs to group {name!r}, which this client cannot have")


def _check_sites(s: ClientSummary) -> None:
    """Raise a GCFCPError unless every record belongs to the site of one member."""
    sites = set(s.groups.sites)
    for name, n in s.members:
        if n is None:
            raise GCFCPError(
                "where sites are groups, the group of a site tells its records, so that sizes "
                "cannot be left open: leave the sites out of the groups"
            )
        if name not in sites:
            raise GCFCPError(
                f"client {name!r} is not one of the sites {checks.listed(s.groups.sites)}: use the "
                "name that this site has in the groups, or add it there"
            )
    if s.by == "group":
        if s.noise is None:
            _check_site_counts(s)
    elif s.uncovered or not (s.membership[:, len(s.groups.others) :].sum(axis=1) == 1).all():
        raise GCFCPError("a record does not belong to exactly one site, as every record must")


def _check_site_counts(s: ClientSummary) -> None:
    """Raise a GCFCPError unless the groups of sites have the records of their members, by group."""
    counts = s.atom_counts @ s.membership + np.array(s.suppressed_groups)
    for name, n in s.members:
        if counts[len(s.groups.others) + s.groups.sites.index(name)] != n:
            raise GCFCPError(f"the group of site {name!r} does not have its n={n} records")


def _check_members(s: ClientSummary) -> None:
    """Raise a GCFCPError unless the members are distinct clients whose records add up to n."""
    known = [n for _, n in s.members if n is not None]
    for name, n in s.members:
        checks.name("member", name)
        if known and (type(n) is not int or n < 1):
            raise GCFCPError(f"member {name!r} has n={n!r}, which is not a positive whole number")
    names = [name for name, _ in s.members]
    if len(set(names)) < len(names) or names != sorted(names):
        raise GCFCPError("the members are not in ascending order, or one of them occurs twice")
    if known and sum(known) != s.n:
        raise GCFCPError(f"the members' records do not add up to n={s.n}")
    if not known and (s.grid is None or len(names) < 2 or len(names) > s.n):
        raise GCFCPError(
            "only a sum of two or more members on a grid, each with a record, may leave their "
            "sizes open"
        )


def _check_parameters(parameters: Any) -> None:
    """Raise a GCFCPError unless the parameters map names to plain values that a file can hold."""
    if not isinstance(parameters, dict) or not all(
        isinstance(k, str) and (v is None or isinstance(v, bool | int | float | str))
        for k, v in parameters.items()
    ):
        raise GCFCPError("the score's parameters must map names to plain values")
    for key, value in parameters.items():
        checks.name("parameter", key)
        if isinstance(value, str) and key == "classes" and value.startswith("["):
            scores.check_classes(value)
        elif isinstance(value, str):
            checks.name("parameter value", value)
        if isinstance(value, int) and abs(value) >= 2**63:
            raise GCFCPError(
                f"the score's parameter {key}={value!s:.60} is not between -2**63 and 2**63"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise GCFCPError(f"the score's parameter {key}={value} is not finite")
