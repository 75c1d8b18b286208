"""The summary itself: the one thing that leaves a client.

For each described atom a summary holds the representatives of its clusters of scores, and how many
records each stands for. It holds counts and no weights, because within a client all scores weigh
the same. The weights pi_k / (n_k + 1) are the server's business, so the mixture can be changed
later without another round.

| here             | paper                                   |
|------------------|-----------------------------------------|
| `n`              | n_k                                     |
| `membership`     | Phi_A of the active atoms A in A_k^+    |
| `values`         | S-bar_{k,A,c}                           |
| `counts`         | W_{k,A,c} (n_k + 1) / pi_k              |
| `errors` / count | certified sup |p_A - p-hat_A| of atom A |
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike, fspath
from typing import Any

import numpy as np

from gcfcp import checks, codec
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, pack
from gcfcp.summary import layout
from gcfcp.summary.disclosure import Disclosure, disclosure_of
from gcfcp.version import LIBRARY


@dataclass(frozen=True, eq=False)
class ClientSummary:
    """What one client (or one aggregator of clients) sends. Two summaries are equal if their
    bytes are."""

    client: str
    n: int
    delta: float
    representative: str
    groups: Groups
    score: str
    parameters: dict[str, Any]
    model: str | None
    min_count: int
    suppressed: int
    suppressed_groups: tuple[int, ...]  # upper bounds, a group each
    uncovered: int
    members: tuple[tuple[str, int], ...]  # (client, n_k): itself, unless it is an aggregate
    membership: Bools = field(repr=False)  # (a, G)
    start: Ints = field(repr=False)  # (a + 1,): atom i owns values[start[i]:start[i + 1]]
    values: Floats = field(repr=False)
    counts: Ints = field(repr=False)
    errors: Ints = field(repr=False)  # (a,): in records
    library: str = LIBRARY

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
        """Records of each described atom."""
        return np.add.reduceat(self.counts, self.start[:-1]) if len(self.errors) else self.errors

    @property
    def disclosure(self) -> Disclosure:
        """What leaves the site with this summary."""
        return disclosure_of(self)

    @property
    def is_aggregate(self) -> bool:
        return self.members != ((self.client, self.n),)

    def to_bytes(self) -> bytes:
        """The summary as bytes: the same data, in any row order, give the same ones."""
        return layout.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "the summary") -> ClientSummary:
        """Read a summary that may come from anyone; a GCFCPError says what is wrong with it."""
        header, body = layout.unpack(data, name)
        with codec.reading(name, "summary"):
            summary = cls(**layout.fields(header, body))
            # Whatever is added, padded or out of order would be written in another way.
            if summary.to_bytes() != data:
                raise GCFCPError("it is not written in the one way that the format has")
        return summary

    def save(self, path: str | PathLike[str]) -> None:
        """Write the summary to a file, whole or not at all."""
        codec.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ClientSummary:
        """Read a summary from a file."""
        return cls.from_bytes(codec.read(path), fspath(path))


def _check(s: ClientSummary) -> None:
    """Everything that must hold between the fields of a summary, whoever made it."""
    checks.name("client", s.client)
    for name in ("score", "library") + (("model",) if s.model is not None else ()):
        checks.name(name, getattr(s, name))
    for name in ("n", "min_count", "suppressed", "uncovered"):
        checks.count(name, getattr(s, name))
    if s.n < 1 or s.min_count < 1:
        raise GCFCPError(f"n={s.n} and min_count={s.min_count} must be at least 1")
    if type(s.delta) not in (int, float) or s.delta > sys.float_info.max:
        raise GCFCPError(f"delta={s.delta!r:.60} is not a number that a file can hold")
    checks.delta(s.delta)
    checks.representative(s.representative)
    _check_parameters(s.parameters)
    _check_members(s)
    if len(s.suppressed_groups) != len(s.groups) or not all(
        type(k) is int and 0 <= k <= s.suppressed for k in s.suppressed_groups
    ):
        raise GCFCPError(
            "suppressed_groups must hold a count for each group, of all that is suppressed at most"
        )
    _check_arrays(s)


def _check_arrays(s: ClientSummary) -> None:
    a, m = len(s.errors), len(s.values)
    if s.membership.shape != (a, len(s.groups)) or len(s.start) != a + 1 or len(s.counts) != m:
        raise GCFCPError("the numbers of atoms and centroids do not fit together")
    if s.start[0] != 0 or s.start[-1] != m or np.any(np.diff(s.start) < 1):
        raise GCFCPError("each atom must have at least one centroid, and each centroid an atom")
    keys = [row.tobytes() for row in pack(s.membership)]
    if any(a >= b for a, b in pairwise(keys)):
        raise GCFCPError("the atoms are not in ascending order, each of them once")
    if not s.membership.any(axis=1).all():
        raise GCFCPError("an atom that belongs to no group is described")
    if np.any(s.counts < s.min_count):
        raise GCFCPError(f"a centroid of {s.counts.min()} records is below min_count={s.min_count}")
    if np.isnan(s.values).any() or np.any(s.values == -np.inf):
        raise GCFCPError("a representative is NaN or -inf")
    rising = np.ones(m, dtype=bool)
    rising[1:] = s.values[1:] > s.values[:-1]
    rising[s.start[:-1]] = True
    if not rising.all():
        raise GCFCPError("the representatives of an atom are not in ascending order")
    if s.counts.sum(dtype=np.float64) > 2**53:  # beyond it the sums below could overflow
        raise GCFCPError("the counts add up to more than 2**53")
    if np.any(s.errors < 0) or np.any(s.errors > s.atom_counts):
        raise GCFCPError("an error certificate is larger than its atom")
    described = int(s.counts.sum())
    if described + s.suppressed + s.uncovered != s.n:
        raise GCFCPError(
            f"the counts add up to {described} described + {s.suppressed} suppressed + "
            f"{s.uncovered} in no group, not to n={s.n}"
        )


def _check_members(s: ClientSummary) -> None:
    for name, n in s.members:
        checks.name("member", name)
        if type(n) is not int or n < 1:
            raise GCFCPError(f"member {name!r} has n={n!r}, not a positive whole number")
    names = [name for name, _ in s.members]
    if len(set(names)) < len(names) or names != sorted(names):
        raise GCFCPError("the members are not in ascending order, each of them once")
    if sum(n for _, n in s.members) != s.n:
        raise GCFCPError(f"the members' records do not add up to n={s.n}")


def _check_parameters(parameters: Any) -> None:
    if not isinstance(parameters, dict) or not all(
        isinstance(k, str) and (v is None or isinstance(v, bool | int | float | str))
        for k, v in parameters.items()
    ):
        raise GCFCPError("the score's parameters must map names to plain values")
    for key, value in parameters.items():
        checks.name("parameter", key)
        if isinstance(value, str):
            checks.name("parameter value", value)
        if isinstance(value, int) and abs(value) >= 2**63:
            raise GCFCPError(f"the score's parameter {key}={value!s:.60} is beyond 2**63")
        if isinstance(value, float) and not math.isfinite(value):
            raise GCFCPError(f"the score's parameter {key}={value} is not finite")
