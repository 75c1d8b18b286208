"""How many records of each atom were covered: everything that an audit counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, find_atoms


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
