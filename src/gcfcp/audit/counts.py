"""How many records of each atom were covered, and how large their prediction sets were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcfcp import checks
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, find_atoms


@dataclass(frozen=True, eq=False)
class Sets:
    """How many sets say nothing, by atom or by group. What is not known is None."""

    full: Ints | None  # How many hold every label, or are unbounded.
    empty: Ints | None  # How many hold nothing.
    infinite: Ints | None  # How many have the threshold +inf, and so hold everything.

    def add(self, other: Sets, added: Callable[[Ints, Ints], Ints]) -> Sets:
        """What is known of both, added up by `added`."""
        return Sets(
            *(
                None if mine is None or theirs is None else added(mine, theirs)
                for mine, theirs in zip(self.arrays, other.arrays, strict=True)
            )
        )

    def by_group(self, member: Ints) -> Sets:
        """The sums over atoms; `member` is 1 where an atom lies in a group, (G, a)."""
        return Sets(*(None if array is None else member @ array for array in self.arrays))

    @property
    def arrays(self) -> tuple[Ints | None, Ints | None, Ints | None]:
        """The three arrays, in the order of the fields."""
        return self.full, self.empty, self.infinite


@dataclass(frozen=True, eq=False)
class Counts:
    """Everything that an audit counts, by atom.

    `x + y` are the counts of the records of both, and the order does not matter.
    """

    membership: Bools  # (a, G): The groups of each atom; the rows ascend by their packed bits.
    covered: Ints  # (a,): How many records of each atom were covered.
    total: Ints  # (a,): How many records each atom has.
    size: Floats | None  # (a,): The sum of all finite set sizes; None if no sizes were given.
    unbounded: Ints  # (a,): How many sets have an infinite size.
    sets: Sets | None = None  # How many sets say nothing; None if none of it is known.

    def __add__(self, other: Counts) -> Counts:
        """The counts of both sets of records together."""
        if (self.size is None) != (other.size is None):
            raise GCFCPError(
                "some records have set sizes and others do not: give set sizes for all records or "
                "for none"
            )
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
            None if self.sets is None or other.sets is None else self.sets.add(other.sets, added),
        )


def count(
    covered: ArrayLike,
    membership: Any,
    *,
    groups: Groups,
    set_size: ArrayLike | None = None,
    labels: int | None = None,
    thresholds: ArrayLike | None = None,
) -> Counts:
    """The counts of n records by atom.

    - `covered`: Whether the outcome of each record was in its set: n booleans, or n zeros and ones.
    - `membership`: The groups of each record, (n, G).
    - `set_size`: The number of labels in each set or the width of each interval, n numbers. An
      infinite size is allowed.
    - `labels`: How many labels there are. A set of this size holds everything.
    - `thresholds`: The threshold of each record, n numbers. A set at +inf holds everything.
    """
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
    said = _saying_nothing(hits, set_size, labels, thresholds)

    def counted(marked: Bools | None) -> Ints | None:
        if marked is None:
            return None
        return np.bincount(atoms.index[marked], minlength=a).astype(np.int64)

    return Counts(
        atoms.membership,
        np.bincount(atoms.index[hits], minlength=a).astype(np.int64),
        atoms.counts,
        size,
        unbounded,
        None if said is None else Sets(*map(counted, said)),
    )


def _saying_nothing(
    hits: Bools, set_size: ArrayLike | None, labels: int | None, thresholds: ArrayLike | None
) -> tuple[Bools | None, Bools | None, Bools | None] | None:
    """Which sets are full, which are empty, and which have an infinite threshold, (n,) each.

    Without `labels` and `thresholds` nothing is known, because a set of two labels may be full.
    A set of size 0 that covers its record is an interval of one point, and not empty.
    """
    if labels is None and thresholds is None:
        return None
    n, full, empty, infinite = len(hits), None, None, None
    if thresholds is not None:
        limits = checks.vector("thresholds", thresholds)
        if limits.shape != (n,) or np.isnan(limits).any():
            raise GCFCPError(
                f"thresholds has shape {limits.shape} or holds NaN, but there are {n} membership "
                "rows: give one threshold for each row"
            )
        infinite = limits == np.inf
    if set_size is not None:
        sizes = _checked_sizes(set_size, n)
        most = np.inf if labels is None else checks.whole("labels", labels, 1)
        if labels is not None and (sizes[np.isfinite(sizes)] > most).any():
            raise GCFCPError(
                f"a set has {sizes.max():g} labels, but labels={labels}: give the number of all "
                "labels"
            )
        full, empty = sizes >= most, (sizes == 0) & ~hits
        if infinite is not None:
            full = full | infinite
    return full, empty, infinite


def _checked_covered(covered: ArrayLike, n: int) -> Bools:
    """`covered` as n booleans, or an error."""
    array = np.asarray(checks.unmasked("covered", covered))
    if array.shape != (n,):
        raise GCFCPError(
            f"covered has shape {array.shape}, but there are {n} membership rows: give one value "
            "for each row"
        )
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
        raise GCFCPError("covered must be true or false (or 1 or 0) for each record")
    return array.astype(np.bool_)


def _checked_sizes(set_size: ArrayLike, n: int) -> Floats:
    """`set_size` as n numbers that are not negative, or an error."""
    sizes = checks.vector("set_size", set_size)
    if sizes.shape != (n,):
        raise GCFCPError(
            f"set_size has shape {sizes.shape}, but there are {n} membership rows: give one value "
            "for each row"
        )
    if not (sizes >= 0).all():
        raise GCFCPError(
            f"set_size holds {int((~(sizes >= 0)).sum())} negative or NaN values: "
            "give a size of 0 or more for each set, and 0 for an empty one"
        )
    return sizes
