"""How many rows of a frame belong to each group, and to each pair of groups.

These are counts of the data, and the sentences about groups without rows quote the data. They are
for whoever has the data. What may leave a site is a summary, which says what it discloses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools, Ints
from gcfcp.groups.atoms import find_atoms


@dataclass(frozen=True)
class GroupCount:
    """The rows of one group."""

    group: str
    n: int  # How many rows belong to the group.
    share: float  # The share of all rows that this is; NaN if there are no rows.
    missing: int  # For how many rows a missing value leaves it open; they do not belong.


@dataclass(frozen=True, eq=False)
class GroupCounts:
    """The rows of every group of a family in one frame, for the eyes of whoever has the data.

    Printed, it is a table. It quotes the data, so it is no message to another site.
    """

    n: int
    """The number of rows."""
    groups: tuple[GroupCount, ...]
    """One entry for each group, in the order of the family."""
    overlap: Ints
    """(G, G): The number of rows that belong to both groups. The diagonal has the groups' own."""
    uncovered: int
    """The number of rows that belong to no group. Nothing is promised for them."""
    unmatched: tuple[str, ...]
    """One sentence for each group without rows, with the values that do occur."""

    def __post_init__(self) -> None:
        self.overlap.flags.writeable = False

    def __str__(self) -> str:
        shares = [f"{100 * g.share:.1f} %" if self.n else "" for g in self.groups]
        rows = [
            (g.group, f"{g.n:,}", shares[place], self._largest_overlap(place))
            for place, g in enumerate(self.groups)
        ]
        rows.insert(0, ("group", "records", "share", "overlaps most with"))
        wide = [max(len(row[i]) for row in rows) for i in range(3)]
        table = [
            f"  {name:{wide[0]}}  {n:>{wide[1]}}  {share:>{wide[2]}}  {other}".rstrip()
            for name, n, share, other in rows
        ]
        notes = [
            f"  {g.group}: a missing value leaves it open for {checks.counted(g.missing, 'record')}"
            for g in self.groups
            if g.missing
        ]
        none = f"; {self.uncovered:,} belong to no group" if self.uncovered else ""
        head = f"{checks.counted(self.n, 'record')}{none} (for this site's own eyes)"
        return "\n".join([head, *table, *notes, *(f"  {text}" for text in self.unmatched)])

    def _largest_overlap(self, place: int) -> str:
        """The other group that has most rows in common with this one, if there is any.

        A group that every row belongs to says nothing here, so it is left out.
        """
        common = self.overlap[place].copy()
        common[place] = 0
        common[np.diagonal(self.overlap) == self.n] = 0
        other = int(common.argmax())
        return f"{self.groups[other].group} ({common[other]:,})" if common[other] else ""


def counts_of(
    names: Sequence[str], membership: Bools, missing: Sequence[int], unmatched: Sequence[str]
) -> GroupCounts:
    """The counts of a membership matrix (n, G).

    The cost is that of finding the atoms, and G^2 for each of them.

    missing: For how many rows each group is left open.
    unmatched: The sentences about groups without rows.
    """
    n = len(membership)
    overlap = _overlap(membership)
    groups = tuple(
        GroupCount(name, int(count), float(count / n) if n else float("nan"), int(open_))
        for name, count, open_ in zip(names, np.diagonal(overlap), missing, strict=True)
    )
    uncovered = int(np.count_nonzero(~membership.any(axis=1)))
    return GroupCounts(n, groups, overlap, uncovered, tuple(unmatched))


def _overlap(membership: Bools) -> Ints:
    """How many rows each pair of groups has in common, exactly, from the atoms of the matrix."""
    atoms = find_atoms(membership)
    inside = atoms.membership.astype(np.int64)
    return np.asarray((inside * atoms.counts[:, None]).T @ inside)
