"""How many records of each atom were covered, and how large their prediction sets were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcfcp import checks
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, find_atoms


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
        )


def count(
    covered: ArrayLike, membership: Any, *, groups: Groups, set_size: ArrayLike | None = None
) -> Counts:
    """The counts of n records by atom.

    - `covered`: Whether the outcome of each record was in its set: n booleans, or n zeros and ones.
    - `membership`: The groups of each record, (n, G).
    - `set_size`: The number of labels in each set or the width of each interval, n numbers. An
      infinite size is allowed.
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
    return Counts(
        atoms.membership,
        np.bincount(atoms.index[hits], minlength=a).astype(np.int64),
        atoms.counts,
        size,
        unbounded,
    )


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
