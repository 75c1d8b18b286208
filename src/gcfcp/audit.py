"""Was the promise kept? At a client: counts from labelled data, and nothing else leaves.

`audit` counts how many records of each group and of each atom were covered. Audits merge as
summaries do; `coverage` makes intervals and verdicts of them.

Disclosure control: with `min_count=m` a group or an atom of fewer than m records is suppressed, and
so is what would give it away by subtraction: an atom, where the group less its other atoms would be
small, or a group, where it is nested in another (or in all n records) and the rest would be small.
Of a suppressed group only a bound on its size is published, a multiple of m; an interval takes
these records as missed at its lower end and as covered at its upper, so it holds all the same.
(Other linear combinations of overlapping groups are not examined.)

The bytes of an audit (kind b"A", version 1 of the container in `codec`): the header's fields are
those of `Audit`, the counts as lists of integers (null where suppressed), the key of an atom as the
hexadecimal digits of its membership packed as numpy.packbits does; there is no body.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcfcp import codec
from gcfcp.client import LIBRARY, check_name
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, find_atoms, pack

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_KIND, _VERSION = b"A", 1


@dataclass(frozen=True, eq=False)
class Counts:
    """Everything an audit counts, by atom. `a + b` is the counts of both, in any order."""

    membership: Bools  # (a, G), in order of their keys
    covered: Ints  # (a,)
    total: Ints  # (a,)
    size: Floats | None  # (a,): sum of the bounded set sizes
    unbounded: Ints  # (a,): sets of infinite size

    def __add__(self, other: Counts) -> Counts:
        if (self.size is None) != (other.size is None):
            raise GCFCPError("some records have set sizes and others do not: give all or none")
        atoms = find_atoms(np.concatenate([self.membership, other.membership]))

        def added(mine: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any]:
            out = np.zeros(len(atoms), dtype=mine.dtype)
            np.add.at(out, atoms.index, np.concatenate([mine, theirs]))
            return out

        return Counts(
            atoms.membership,
            added(self.covered, other.covered),
            added(self.total, other.total),
            None if self.size is None or other.size is None else added(self.size, other.size),
            added(self.unbounded, other.unbounded),
        )


def count(
    covered: ArrayLike, membership: Any, *, groups: Groups, set_size: ArrayLike | None = None
) -> Counts:
    """Count by atom. covered: bool or 0/1 (n,); set_size: labels in each set, or widths, (n,)."""
    matrix = groups.check(membership)
    hits = _checked_covered(covered, len(matrix))
    atoms = find_atoms(matrix)
    a = len(atoms)
    size: Floats | None = None
    unbounded = np.zeros(a, dtype=np.int64)
    if set_size is not None:
        sizes = _checked_sizes(set_size, len(matrix))
        bounded = np.isfinite(sizes)
        sums = np.bincount(atoms.index[bounded], weights=sizes[bounded], minlength=a)
        size = sums.astype(np.float64)
        unbounded = np.bincount(atoms.index[~bounded], minlength=a).astype(np.int64)
    return Counts(
        atoms.membership,
        np.bincount(atoms.index[hits], minlength=a).astype(np.int64),
        atoms.counts,
        size,
        unbounded,
    )


def _checked_covered(covered: ArrayLike, n: int) -> Bools:
    array = np.asarray(covered)
    if array.shape != (n,):
        raise GCFCPError(f"covered has shape {array.shape} for {n} membership rows: give one each")
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
        raise GCFCPError("covered must be true or false (or 1 or 0) for each record")
    return array.astype(np.bool_)


def _checked_sizes(set_size: ArrayLike, n: int) -> Floats:
    try:
        sizes = np.asarray(set_size, dtype=np.float64)
    except (TypeError, ValueError):
        raise GCFCPError("set_size is not numbers: give the size of each set") from None
    if sizes.shape != (n,):
        raise GCFCPError(f"set_size has shape {sizes.shape} for {n} membership rows: give one each")
    if not (sizes >= 0).all():
        raise GCFCPError(
            f"set_size holds {int((~(sizes >= 0)).sum())} negative or NaN values: "
            "an empty set has size 0"
        )
    return sizes


@dataclass(frozen=True, eq=False)
class Audit:
    """What one client publishes about the coverage of its records: counts, and nothing else.

    Suppressed groups have total and covered of -1 in the arrays, and `bound` says how many records
    they hold at most; suppressed atoms are left out and only counted.
    """

    client: str
    n: int
    groups: Groups
    min_count: int
    alpha: float | None  # what was promised, if the caller said
    predictor: str | None  # fingerprint of what was audited, if the caller said
    uncovered: int  # records in no group
    total: Ints = field(repr=False)  # (G,)
    covered: Ints = field(repr=False)  # (G,)
    bound: Ints = field(repr=False)  # (G,): total, or a multiple of min_count not below it
    size: Floats | None = field(repr=False)  # (G,): sum of bounded set sizes
    unbounded: Ints = field(repr=False)  # (G,)
    atom_membership: Bools = field(repr=False)  # (a, G)
    atom_total: Ints = field(repr=False)
    atom_covered: Ints = field(repr=False)
    atom_size: Floats | None = field(repr=False)
    atom_unbounded: Ints = field(repr=False)
    suppressed_atoms: int = 0
    library: str = LIBRARY

    def __post_init__(self) -> None:
        _check(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Audit) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    @property
    def suppressed(self) -> Bools:
        """Which groups are suppressed, (G,)."""
        return self.total < 0

    def to_bytes(self) -> bytes:
        """The audit as bytes; the same counts always give the same ones."""

        def listed(values: NDArray[Any] | None) -> list[Any] | None:
            if values is None:
                return None
            return [None if s else v for v, s in zip(values.tolist(), self.suppressed, strict=True)]

        header = {
            "client": self.client,
            "n": self.n,
            "groups": list(self.groups.names),
            "predicates": None if self.groups.predicates is None else list(self.groups.predicates),
            "fingerprint": self.groups.fingerprint,
            "min_count": self.min_count,
            "alpha": self.alpha,
            "predictor": self.predictor,
            "uncovered": self.uncovered,
            "total": listed(self.total),
            "covered": listed(self.covered),
            "bound": self.bound.tolist(),
            "size": listed(self.size),
            "unbounded": listed(self.unbounded),
            "atoms": [row.tobytes().hex() for row in pack(self.atom_membership)],
            "atom_total": self.atom_total.tolist(),
            "atom_covered": self.atom_covered.tolist(),
            "atom_size": None if self.atom_size is None else self.atom_size.tolist(),
            "atom_unbounded": self.atom_unbounded.tolist(),
            "suppressed_atoms": self.suppressed_atoms,
            "library": self.library,
        }
        return codec.pack(_KIND, _VERSION, header, b"")

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "the audit") -> Audit:
        """Read an audit that may come from anyone; a GCFCPError says what is wrong with it."""
        header, body = codec.unpack(data, _KIND, _VERSION, name)
        try:
            if len(body):
                raise GCFCPError(f"it has {len(body)} bytes more than its header")
            return _decode(header)
        except codec.MALFORMED as error:
            raise GCFCPError(f"{name} is not a valid audit: {codec.explain(error)}") from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the audit to a file, whole or not at all."""
        codec.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Audit:
        """Read an audit from a file."""
        return cls.from_bytes(codec.read(path), fspath(path))


def audit(
    covered: ArrayLike,
    membership: Any,
    *,
    groups: Groups,
    client: str,
    set_size: ArrayLike | None = None,
    min_count: int = 1,
    alpha: float | None = None,
    predictor: str | None = None,
) -> Audit:
    """Count at one client who was covered, by group and by atom.

    covered: for each labelled record, whether its outcome was in the set. set_size: labels in each
    set or width of each interval (inf allowed, 0 if empty). min_count: smaller groups and atoms are
    suppressed, see the module. alpha, predictor: what was promised, and by which predictor (any
    fingerprint); they travel along, and `merge_audits` refuses to mix different ones.
    """
    counts = count(covered, membership, groups=groups, set_size=set_size)
    return publish(
        counts, groups=groups, client=client, min_count=min_count, alpha=alpha, predictor=predictor
    )


def publish(
    counts: Counts,
    *,
    groups: Groups,
    client: str,
    min_count: int = 1,
    alpha: float | None = None,
    predictor: str | None = None,
) -> Audit:
    """The audit of counts that may have been added up over a stream: suppress, then freeze."""
    if type(min_count) is not int or min_count < 1:
        raise GCFCPError(f"min_count={min_count!r} is not a whole number of at least 1")
    named = counts.membership.any(axis=1)
    inside = counts.membership[named]
    atom_total = counts.total[named]
    member = inside.astype(np.int64).T  # (G, a)
    total = member @ atom_total
    outside = int(counts.total[~named].sum())
    hide_group, hide_atom, hide_outside = _suppressed(inside, atom_total, outside, min_count)

    def by_group(values: NDArray[Any], hidden: int) -> NDArray[Any]:
        return np.where(hide_group, hidden, member @ values[named])

    shown = ~hide_atom
    return Audit(
        client=client,
        n=int(counts.total.sum()),
        groups=groups,
        min_count=min_count,
        alpha=None if alpha is None else checked_alpha(alpha),
        predictor=predictor,
        uncovered=-(-outside // min_count) * min_count if hide_outside else outside,
        total=by_group(counts.total, -1),
        covered=by_group(counts.covered, -1),
        bound=np.where(hide_group, -(-total // min_count) * min_count, total),
        size=None if counts.size is None else by_group(counts.size, 0),
        unbounded=by_group(counts.unbounded, 0),
        atom_membership=inside[shown],
        atom_total=atom_total[shown],
        atom_covered=counts.covered[named][shown],
        atom_size=None if counts.size is None else counts.size[named][shown],
        atom_unbounded=counts.unbounded[named][shown],
        suppressed_atoms=int(np.count_nonzero(hide_atom)),
    )


def _suppressed(inside: Bools, atom_total: Ints, outside: int, m: int) -> tuple[Bools, Bools, bool]:
    """Groups, atoms and whether the records in no group are to be hidden: what is small, and what
    would give something small away by subtraction.

    n is published, so all records together are one more group here, which is never hidden, and
    those in no group one more atom of it.
    """
    G, a = inside.shape[1], len(inside)
    cells = np.zeros((a + 1, G + 1), dtype=np.bool_)
    cells[:a, :G] = inside
    cells[:, G] = True
    size = np.append(atom_total, outside)
    group_size = cells.astype(np.int64).T @ size
    hide_group = (group_size > 0) & (group_size < m)
    hide_group[G] = False
    hide_cell = size < m
    order = np.argsort(size, kind="stable")

    def hide_one_of(candidates: Bools) -> bool:
        """Hide the smallest cell still shown among the candidates; it has at least m records."""
        shown = order[(candidates & ~hide_cell)[order]]
        if len(shown):
            hide_cell[shown[0]] = True
        return bool(len(shown))

    def leak() -> bool:
        """Close one leak, if there is one."""
        groups = np.flatnonzero(~hide_group & (group_size > 0))
        for g in groups:
            if 0 < size[cells[:, g] & hide_cell].sum() < m and hide_one_of(cells[:, g]):
                return True
        for g in groups:
            for h in groups[groups < G]:
                if h == g or (cells[:, h] & ~cells[:, g] & (size > 0)).any():
                    continue
                if 0 < size[cells[:, g] & ~cells[:, h]].sum() < m:
                    hide_group[h] = True
                    return True
        return False

    if m > 1:
        while leak():
            pass
    return hide_group[:G], hide_cell[:a], bool(outside and hide_cell[a])


def checked_alpha(alpha: Any) -> float:
    if type(alpha) not in (int, float, np.float64) or not 0 < alpha < 1:
        raise GCFCPError(f"alpha={alpha!r:.40} is not in (0, 1)")
    return float(alpha)


def _check(a: Audit) -> None:
    """Everything that must hold between the fields of an audit, whoever made it."""
    check_name("client", a.client)
    check_name("library", a.library)
    if a.predictor is not None:
        check_name("predictor", a.predictor)
    if a.alpha is not None:
        checked_alpha(a.alpha)
    for name in ("n", "min_count", "uncovered", "suppressed_atoms"):
        number = getattr(a, name)
        if type(number) is not int or not 0 <= number < 2**53:
            raise GCFCPError(f"{name}={number!r:.40} is not a whole number from 0 to 2**53")
    if a.n < 1 or a.min_count < 1:
        raise GCFCPError(f"n={a.n} and min_count={a.min_count} must be at least 1")
    G, atoms = len(a.groups), len(a.atom_membership)
    by_group: list[Any] = [a.total, a.covered, a.bound, a.unbounded]
    by_atom: list[Any] = [a.atom_total, a.atom_covered, a.atom_unbounded]
    by_group += [] if a.size is None else [a.size]
    by_atom += [] if a.atom_size is None else [a.atom_size]
    if any(x.shape != (G,) for x in by_group) or any(x.shape != (atoms,) for x in by_atom):
        raise GCFCPError("its counts do not fit its groups and atoms")
    if (a.size is None) != (a.atom_size is None):
        raise GCFCPError("it has set sizes for groups or for atoms, but not for both")
    shown = ~a.suppressed
    _check_counts(a.total[shown], a.covered[shown], a.unbounded[shown], a.n)
    _check_counts(a.atom_total, a.atom_covered, a.atom_unbounded, a.n)
    if np.any(a.bound < a.total) or np.any(a.bound > a.n + a.min_count):
        raise GCFCPError("the bound on a group's records is below its count or above n")
    for sizes in (a.size, a.atom_size):
        if sizes is not None and not (np.isfinite(sizes) & (sizes >= 0)).all():
            raise GCFCPError("a sum of set sizes is negative or not finite")
    if (a.atom_total.sum() if atoms else 0) + min(a.uncovered, 1) > a.n:
        raise GCFCPError(f"its atoms hold more records than n={a.n}")
    if np.any(a.atom_total < a.min_count):
        raise GCFCPError(f"an atom of fewer than min_count={a.min_count} records is described")
    if atoms and not a.atom_membership.any(axis=1).all():
        raise GCFCPError("an atom that belongs to no group is described")
    if len({row.tobytes() for row in a.atom_membership}) < atoms:
        raise GCFCPError("an atom is described twice")


def _check_counts(total: Ints, covered: Ints, unbounded: Ints, n: int) -> None:
    if np.any(covered < 0) or np.any(covered > total) or np.any(total > n):
        raise GCFCPError("a count is not between 0 and its total, or a total is above n")
    if np.any(unbounded < 0) or np.any(unbounded > total):
        raise GCFCPError("a count of unbounded sets is not between 0 and its total")


def _decode(header: dict[str, Any]) -> Audit:
    names, predicates = header["groups"], header["predicates"]
    groups = Groups(names) if predicates is None else Groups(names, predicates)
    if groups.fingerprint != header["fingerprint"]:
        raise GCFCPError("the groups' fingerprint does not match their definition")
    suppressed = [value is None for value in _list(header["total"])]

    def by_group(name: str, hidden: int) -> Ints:
        values = _list(header[name])
        if [value is None for value in values] != suppressed:
            raise GCFCPError(f"{name} is suppressed where total is not, or the other way round")
        return _integers(name, [hidden if value is None else value for value in values], hidden)

    sizes = header["size"]
    keys = [bytes.fromhex(key) for key in _list(header["atoms"])]
    width = -(-len(groups) // 8)
    if any(len(key) != width for key in keys):
        raise GCFCPError("an atom's key has the wrong length")
    packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), width)
    membership = np.unpackbits(packed, axis=1, count=len(groups)).astype(bool)
    if not np.array_equal(pack(membership), packed):
        raise GCFCPError("an atom belongs to groups that there are not")
    atom_sizes = header["atom_size"]
    return Audit(
        client=header["client"],
        n=header["n"],
        groups=groups,
        min_count=header["min_count"],
        alpha=header["alpha"],
        predictor=header["predictor"],
        uncovered=header["uncovered"],
        total=by_group("total", -1),
        covered=by_group("covered", -1),
        bound=_integers("bound", _list(header["bound"])),
        size=None if sizes is None else _reals([0 if s is None else s for s in _list(sizes)]),
        unbounded=by_group("unbounded", 0),
        atom_membership=membership,
        atom_total=_integers("atom_total", _list(header["atom_total"])),
        atom_covered=_integers("atom_covered", _list(header["atom_covered"])),
        atom_size=None if atom_sizes is None else _reals(atom_sizes),
        atom_unbounded=_integers("atom_unbounded", _list(header["atom_unbounded"])),
        suppressed_atoms=header["suppressed_atoms"],
        library=header["library"],
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise GCFCPError(f"{value!r:.40} is not a list")
    return value


def _integers(name: str, values: list[Any], least: int = 0) -> Ints:
    if not all(type(v) is int and least <= v < 2**53 for v in values):
        raise GCFCPError(f"{name} holds something that is no count")
    return np.array(values, dtype=np.int64)


def _reals(values: Any) -> Floats:
    if not all(type(v) in (int, float) and abs(v) < 1e300 for v in _list(values)):
        raise GCFCPError("a sum of set sizes is no number")
    return np.array(values, dtype=np.float64)
