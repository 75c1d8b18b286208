"""What one client publishes about the coverage of its records.

`layout` has its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import numpy as np

from gcfcp import checks, codec
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.audit import layout
from gcfcp.audit.counts import Sets
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.version import LIBRARY


@dataclass(frozen=True, eq=False)
class Told:
    """What an audit with a `min_count` above 1 publishes about each group: arrays of shape (G,).

    Of a group, and of its missed records, a set of records is counted of which some may not belong
    there (`strangers`), and which may lack some that do (`bound`).
    """

    total: Ints  # How many records describe the group; -1 if it is hidden.
    total_strangers: Ints
    total_bound: Ints
    missed: Ints  # How many records describe those that were missed; -1 if they are hidden.
    missed_strangers: Ints
    missed_bound: Ints

    def ranges(self, n: int) -> Ranges:
        """The numbers that agree with these counts, for n records in all."""
        most = np.minimum(np.maximum(self.total, 0) + self.total_bound, n)
        missed = np.minimum(np.maximum(self.missed, 0) + self.missed_bound, most)
        least_missed = np.minimum(np.maximum(self.missed - self.missed_strangers, 0), missed)
        least = np.maximum(self.total - self.total_strangers, least_missed)
        return Ranges(least, most, least_missed, missed)


@dataclass(frozen=True, eq=False)
class Ranges:
    """Between which numbers the records of each group lie, and those that were missed, (G,)."""

    least: Ints
    most: Ints
    least_missed: Ints
    most_missed: Ints

    @property
    def exact(self) -> Bools:
        """Where both numbers are known, (G,)."""
        known: Bools = (self.least == self.most) & (self.least_missed == self.most_missed)
        return known


@dataclass(frozen=True, eq=False)
class Audit:
    """What one client publishes about the coverage of its records: counts, and nothing else.

    In the arrays, `total` and `covered` of a suppressed group are -1, and `bound` says how many
    records the group has at most. Suppressed atoms are left out, and only their number is given.

    With a `min_count` above 1, `told` has what is published; `total` and `covered` are then -1
    wherever it leaves one of them open, and there are neither atoms nor sizes. (gcfcp 0.1.0 wrote
    such audits without `told`.) `ranges` has the numbers that are possible, for every audit.
    """

    client: str
    n: int  # How many records were audited.
    groups: Groups
    min_count: int  # Groups and atoms with fewer records are suppressed.
    alpha: float | None  # The alpha that was promised, if the client gave it.
    predictor: str | None  # The fingerprint of the audited predictor, if the client gave it.
    uncovered: int  # How many records are in no group; a multiple of min_count if suppressed.
    total: Ints = field(repr=False)  # (G,): How many records each group has.
    covered: Ints = field(repr=False)  # (G,): How many records of each group were covered.
    bound: Ints = field(repr=False)  # (G,): The total or, if it is suppressed, an upper bound.
    size: Floats | None = field(repr=False)  # (G,): The sum of all finite set sizes, if counted.
    unbounded: Ints = field(repr=False)  # (G,): How many sets have an infinite size.
    atom_membership: Bools = field(repr=False)  # (a, G): The groups of each published atom.
    atom_total: Ints = field(repr=False)  # (a,): How many records each of these atoms has.
    atom_covered: Ints = field(repr=False)  # (a,): How many of them were covered.
    atom_size: Floats | None = field(repr=False)  # (a,): The sum of their finite set sizes.
    atom_unbounded: Ints = field(repr=False)  # (a,): How many of their sets are infinite.
    suppressed_atoms: int = 0  # How many atoms are suppressed.
    library: str = LIBRARY  # The library that made the audit, with its version.
    share: float | None = None  # pi_k, the client's weight in the predictor's mixture, if known.
    told: Told | None = field(default=None, repr=False)  # What is published if min_count > 1.
    round: str | None = None  # The round that the audit belongs to, such as "2026Q4".
    date: str | None = None  # The day of the audit, such as "2026-11-17".
    sets: Sets | None = field(default=None, repr=False)  # (G,): How many sets say nothing.
    # (G,): Whether the predictor gives every record of a group an infinite threshold, if known.
    everything: Bools | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.share is not None:
            object.__setattr__(self, "share", checks.weight("share", self.share))
        _check(self)

    @classmethod
    def of_told(cls, told: Told, *, n: int, groups: Groups, **fields: Any) -> Audit:
        """The audit that publishes these counts by group."""
        ranges = told.ranges(n)
        exact, G = ranges.exact & (told.total >= 0), len(groups)
        none = np.zeros(0, dtype=np.int64)
        return cls(
            n=n,
            groups=groups,
            uncovered=0,
            total=np.where(exact, ranges.least, -1),
            covered=np.where(exact, ranges.least - ranges.least_missed, -1),
            bound=ranges.most,
            size=None,
            unbounded=np.zeros(G, dtype=np.int64),
            atom_membership=np.zeros((0, G), dtype=np.bool_),
            atom_total=none,
            atom_covered=none,
            atom_size=None,
            atom_unbounded=none,
            told=told,
            **fields,
        )

    @property
    def ranges(self) -> Ranges:
        """The numbers of records, and of missed records, that agree with what is published."""
        if self.told is not None:
            return self.told.ranges(self.n)
        hidden, none = self.suppressed, np.zeros_like(self.total)
        missed = self.total - self.covered
        return Ranges(
            np.where(hidden, none, self.total),
            np.where(hidden, self.bound, self.total),
            np.where(hidden, none, missed),
            np.where(hidden, self.bound, missed),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Audit) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    @property
    def suppressed(self) -> Bools:
        """Of which groups not all counts are known, bool (G,)."""
        return self.total < 0

    def to_bytes(self) -> bytes:
        """The audit as bytes. Equal audits give equal bytes."""
        return layout.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "the audit") -> Audit:
        """Read an audit from bytes that anyone may have sent.

        If they are not a valid audit, a GCFCPError says what is wrong with `name`.
        """
        version, header = layout.unpack(data, name)
        with codec.reading(name, "audit"):
            told, fields = layout.fields(header, version)
            found = cls(**fields) if told is None else cls.of_told(Told(**told), **fields)
            if layout.has_one_form(version) and found.to_bytes() != data:
                raise GCFCPError("it is not written in the one way that the format allows")
            return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write the audit to a file. If writing fails, an older file stays as it was."""
        codec.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Audit:
        """Read an audit from a file."""
        return cls.from_bytes(codec.read(path), fspath(path))


def _check(a: Audit) -> None:
    """Check everything that must hold for the fields of an audit, whoever made it."""
    _check_values(a)
    _check_shapes(a)
    shown = ~a.suppressed
    _check_counts(a.total[shown], a.covered[shown], a.unbounded[shown], a.n)
    _check_counts(a.atom_total, a.atom_covered, a.atom_unbounded, a.n)
    if np.any(a.bound < a.total) or np.any(a.bound > a.n + a.min_count):
        raise GCFCPError("the bound on a group's records is below its count or above n")
    for sizes in (a.size, a.atom_size):
        if sizes is not None and not (np.isfinite(sizes) & (sizes >= 0)).all():
            raise GCFCPError("a sum of set sizes is negative or not finite")
    _check_atoms(a)
    if a.told is not None:
        _check_told(a, a.told)
    _check_sets(a)


def _check_sets(a: Audit) -> None:
    """Check what is said of sets that say nothing."""
    if a.everything is not None and (
        a.everything.shape != (len(a.groups),) or a.everything.dtype != np.bool_
    ):
        raise GCFCPError("everything does not have one true or false for each group")
    if a.sets is None:
        return
    if a.told is not None or (a.suppressed.any()):
        raise GCFCPError("it counts sets that say nothing, although its min_count is above 1")
    if all(array is None for array in a.sets.arrays):
        raise GCFCPError("its sets say nothing about any kind of set")
    for name, array in zip(layout.SETS, a.sets.arrays, strict=True):
        if array is None:
            continue
        if array.shape != (len(a.groups),) or np.any(array < 0) or np.any(array > a.total):
            raise GCFCPError(f"the number of {name} sets of a group is not from 0 to its total")


def _check_values(a: Audit) -> None:
    """Check the fields that are single values."""
    checks.name("client", a.client)
    checks.name("library", a.library)
    if a.predictor is not None:
        checks.name("predictor", a.predictor)
    if a.alpha is not None:
        checks.alpha(a.alpha)
    if a.round is not None:
        checks.name("round", a.round)
    if a.date is not None:
        checks.day("date", a.date)
    for name in ("n", "min_count", "uncovered", "suppressed_atoms"):
        checks.count(name, getattr(a, name))
    if a.n < 1 or a.min_count < 1:
        raise GCFCPError(f"n={a.n} and min_count={a.min_count} must be at least 1")


def _check_told(a: Audit, told: Told) -> None:
    """Check that what is told of each group is possible, and that it obeys `min_count`."""
    if a.min_count < 2:
        raise GCFCPError("it counts by group only, although its min_count is 1")
    if any(getattr(told, name).shape != (len(a.groups),) for name in layout.BY_GROUP):
        raise GCFCPError("its counts do not fit its groups")
    for name in layout.TOLD:
        count, strangers, bound = (
            getattr(told, name + end) for end in ("", "_strangers", "_bound")
        )
        if np.any((count >= 0) & (count < a.min_count)):
            raise GCFCPError(f"a count of {name} is below min_count={a.min_count}")
        if np.any(strangers < 0) or np.any(strangers > np.maximum(count, 0)):
            raise GCFCPError(f"{name}_strangers holds more records than are described")
        if np.any(bound < 0) or np.any(np.maximum(count, 0) + bound > a.n):
            raise GCFCPError(f"a group has more than n={a.n} records")


def _check_shapes(a: Audit) -> None:
    """Check that every array has one number for each group or for each atom."""
    G, atoms = len(a.groups), len(a.atom_membership)
    by_group: list[Any] = [a.total, a.covered, a.bound, a.unbounded]
    by_atom: list[Any] = [a.atom_total, a.atom_covered, a.atom_unbounded]
    by_group += [] if a.size is None else [a.size]
    by_atom += [] if a.atom_size is None else [a.atom_size]
    if any(x.shape != (G,) for x in by_group) or any(x.shape != (atoms,) for x in by_atom):
        raise GCFCPError("its counts do not fit its groups and atoms")
    if (a.size is None) != (a.atom_size is None):
        raise GCFCPError("it has set sizes for groups or for atoms, but not for both")


def _check_atoms(a: Audit) -> None:
    """Check the atoms: each of them once, in some group, and with enough records to be shown."""
    atoms = len(a.atom_membership)
    if (a.atom_total.sum() if atoms else 0) + min(a.uncovered, 1) > a.n:
        raise GCFCPError(f"its atoms hold more records than n={a.n}")
    if np.any(a.atom_total < a.min_count):
        raise GCFCPError(f"an atom of fewer than min_count={a.min_count} records is described")
    if atoms and not a.atom_membership.any(axis=1).all():
        raise GCFCPError("an atom that belongs to no group is described")
    if len({row.tobytes() for row in a.atom_membership}) < atoms:
        raise GCFCPError("an atom is described twice")


def _check_counts(total: Ints, covered: Ints, unbounded: Ints, n: int) -> None:
    """Check that each count lies between 0 and its total, and each total is at most n."""
    if np.any(covered < 0) or np.any(covered > total) or np.any(total > n):
        raise GCFCPError("a count is not between 0 and its total, or a total is above n")
    if np.any(unbounded < 0) or np.any(unbounded > total):
        raise GCFCPError("a count of unbounded sets is not between 0 and its total")
