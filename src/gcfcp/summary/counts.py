"""Counts on a public grid: how a site counts, one vector for all cells, and the sum of sites.

**At a site.** For each atom or group the records in each cell of the grid are counted. With
`min_count=m` cells of fewer than m records are merged upwards (`raised`): from the highest cell
down, cells are taken together until they hold m records, and count as the highest of them. So no
score is represented too low, and theorem 1 stands. Which cells are merged depends on the records,
and therefore the simultaneous rule is proved without a `min_count` only.

By group, a site cannot use a `min_count` with a grid: two groups that overlap are counted on the
same cells, and the difference of two counts of a cell may be a single record.

**One vector.** `counts_of` turns the counts of a summary into one dense vector of whole numbers,
and `summary_from_counts` turns such a vector, or the sum of several, back into a summary. What a
place of the vector means follows from the groups, the grid and `by` alone, and from no record:

    place 0                   n, the number of records
    place 1 + r (B + 1) + j   the records of row r in cell j; cell B is that of scores of +inf

By group, row r is group r. By atom, row r is the r-th of the combinations of groups that are
possible (see `groups.possible_rows`). There are 2^f of them for f groups that are not everybody's,
which is refused if it gives more than `MOST_PLACES` places. Records in no group are counted in n
only.

**A sum with a min_count.** A sum of sites may hide what is small in the sum (`with_min_count`): a
group of fewer than m records is told as "few or none" and charged m - 1 records at +inf, and cells
below m are merged upwards. By atom the rule is that of `withheld`. What is promised is that no
number that is told stands for fewer than m records. Two groups of a sum by group can still be
subtracted from each other, cell by cell.

Cost: one binary search for each score, and 8 bytes for each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.grid import Grid
from gcfcp.groups import AtomLookup, Groups, possible_rows
from gcfcp.noise import Noise
from gcfcp.summary.summary import ClientSummary
from gcfcp.summary.withheld import withheld

if TYPE_CHECKING:
    from gcfcp.summary.client import Making

MOST_PLACES = 2**22
"""How many places a vector of counts may have. They take 32 MB."""


@dataclass(frozen=True)
class CellCounts:
    """The cells of one atom or group that hold records: what a digest is without a grid."""

    means: Floats  # (m,): The upper edges of these cells, ascending.
    weights: Ints  # (m,): How many records each of them holds.

    def __len__(self) -> int:
        return len(self.means)

    @classmethod
    def of(cls, grid: Grid, counts: Ints, min_count: int = 1, less: int = 0) -> CellCounts:
        """The same from the counts of all cells (B + 1,).

        - `less`: How many of the largest scores are left out.
        """
        if less:
            above = np.cumsum(counts[::-1])[::-1] - counts  # The records in higher cells.
            counts = counts - np.clip(less - above, 0, counts)
        counts = raised(counts, min_count)
        inside = counts > 0
        return cls(grid.points[inside], counts[inside])


class CellCounter:
    """Counts a stream of scores on a grid, exactly, whatever its length.

    It changes with every chunk, as a `DigestBuilder` does, because it follows a stream.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.counts: Ints = np.zeros(len(grid) + 1, dtype=np.int64)

    @property
    def count(self) -> int:
        """How many scores have been added."""
        return int(self.counts.sum())

    def add(self, chunk: Any, numbers: Ints | None = None) -> None:
        """Add more scores. If one of them cannot be used, an error is raised and none is added.

        - `numbers`: How many records each score is that of. By default it is one.
        """
        values = checks.series("values", chunk, empty=True)
        checks.refuse_unusable("values", values, self.count)
        places = self._grid.place(values)
        if numbers is None:
            self.counts += np.bincount(places, minlength=len(self.counts))
        else:  # bincount would add up weights as floats.
            np.add.at(self.counts, places, numbers)


def counted_on(grid: Grid, scores: Any) -> Ints:
    """The records in each cell, (B + 1,), of scores or of the counters that have seen them."""
    if isinstance(scores, list):
        parts = [counted_on(grid, part) for part in scores]
        return np.sum(parts, axis=0) if parts else CellCounter(grid).counts
    if isinstance(scores, CellCounter):
        return scores.counts
    counter = CellCounter(grid)
    counter.add(scores)
    return counter.counts


def raised(counts: Ints, min_count: int) -> Ints:
    """The counts (B + 1,) with cells of fewer than `min_count` records merged upwards.

    The records of the lowest cells that are left at the end are added to the merged cell above
    them. All records together are `min_count` or more.
    """
    if min_count == 1:
        return counts
    found = np.zeros_like(counts)
    held, top = 0, -1
    for j in np.flatnonzero(counts)[::-1].tolist():
        if not held:
            top = j
        held += int(counts[j])
        if held >= min_count:
            found[top], held, last = held, 0, top
    if held:
        found[last] += held
    return found


# --- one vector -----------------------------------------------------------------------------------


def rows_of(groups: Groups, grid: Grid, by: str) -> Bools:
    """The rows (r, G) of a vector of counts, by group in the order of the groups."""
    cells = len(grid) + 1
    if by == "group":
        rows: Bools | None = np.eye(len(groups), dtype=np.bool_)
        if len(groups) * cells >= MOST_PLACES:
            rows = None
    elif groups.sites:
        raise GCFCPError(
            "by atom, groups that are sites cannot be counted in one vector, because each site has "
            "combinations of its own: use by='group', or leave the sites out of the groups"
        )
    else:
        rows = possible_rows(groups, (MOST_PLACES - 1) // cells)
    if rows is None:
        free = int(np.count_nonzero(~groups.everyone))
        many = f"2**{free} combinations of groups" if by == "atom" else f"{len(groups)} groups"
        raise GCFCPError(
            f"{many} on {len(grid):,} cells are more than {MOST_PLACES:,} counts: use "
            + ("by='group', fewer groups" if by == "atom" else "fewer groups")
            + " or a grid of fewer cells"
        )
    return rows


def places_of(groups: Groups, grid: Grid, by: str) -> int:
    """How many places the vector of counts has: 1 + r (B + 1)."""
    return 1 + len(rows_of(groups, grid, by)) * (len(grid) + 1)


def counts_of(summary: ClientSummary) -> Ints:
    """The counts of a summary as one vector of whole numbers; see the module.

    Adding vectors of several sites gives the vector of their sum.
    """
    grid = _grid_of(summary)
    if summary.min_count > 1:
        raise GCFCPError(
            f"{summary.client}: a summary with min_count={summary.min_count} does not tell all "
            "counts: count with min_count=1, and apply min_count to the sum"
        )
    rows = rows_of(summary.groups, grid, summary.by)
    row = AtomLookup(rows).find(summary.membership).astype(np.int64)
    if np.any(row < 0):
        raise GCFCPError(
            f"{summary.client} has records outside of a group whose condition is TRUE: correct the "
            "membership"
        )
    vector = np.zeros(1 + len(rows) * (len(grid) + 1), dtype=np.int64)
    vector[0] = summary.n
    of_value = np.repeat(row, np.diff(summary.start))
    vector[1 + of_value * (len(grid) + 1) + grid.place(summary.values)] = summary.counts
    return vector


def summary_from_counts(
    vector: Any,
    making: Making,
    members: Sequence[str] | None = None,
    noise: Noise | None = None,
) -> ClientSummary:
    """The summary that a vector of counts, or the sum of several, stands for.

    - `making`: How the counts were made: groups, grid, by, shape, score and so on. Its `client` is
      the name of the result. Its `min_count` is applied to these counts; see `with_min_count`.
    - `members`: The names of the clients that were added, if there were several. How many records
      each of them has is not known, and the result says so.
    - `noise`: The law of the noise in all counts but n, if the sites have added noise. The counts
      may then be negative.
    """
    groups, grid, by = making.groups, _grid_of(making), making.by
    rows, cells = rows_of(groups, grid, by), len(grid) + 1
    given = np.asarray(vector)
    if given.dtype.kind not in "iu" or given.shape != (1 + len(rows) * cells,):
        raise GCFCPError(
            f"counts of the shape {given.shape} and type {given.dtype} do not fit: these groups "
            f"and this grid have {1 + len(rows) * cells:,} whole numbers"
        )
    if given[0] < 0 or (noise is None and np.any(given < 0)) or np.any(np.abs(given) > 2**53):
        raise GCFCPError("a count is negative or above 2**53: a site sent a wrong vector")
    n, counts = int(given[0]), given[1:].astype(np.int64).reshape(len(rows), cells)
    if noise is not None:
        return _noisy_sum(n, rows, counts, making, members, noise)
    order = np.arange(len(rows)) if by == "atom" else np.arange(len(rows))[::-1]
    shown = order[counts[order].any(axis=1)]
    outside = n - int(counts.sum()) if by == "atom" else 0
    if outside < 0 or (outside and groups.everyone.any()):
        raise GCFCPError(
            f"the cells hold {int(counts.sum()):,} records, which does not fit n={n:,}: a site "
            "sent a wrong vector"
        )
    exact = replace(making, min_count=1)
    found = exact.summary(
        rows[shown],
        [CellCounts.of(grid, counts[i]) for i in shown],
        n=n,
        suppressed=0,
        suppressed_groups=(0,) * len(groups),
        strangers=() if by == "atom" else (0,) * len(groups),
        uncovered=outside,
        members=None if members is None else tuple((name, None) for name in sorted(members)),
    )
    return found if making.min_count == 1 else with_min_count(found, making.min_count)


def _noisy_sum(
    n: int,
    rows: Bools,
    counts: Ints,
    making: Making,
    members: Sequence[str] | None,
    noise: Noise,
) -> ClientSummary:
    """The summary of counts with noise, which describes every row that the groups allow."""
    if making.min_count > 1:
        raise GCFCPError("a sum with noise takes no min_count, because noise hides small counts")
    absent = [making.groups.names.index(name) for name in making.absent]
    shown = np.flatnonzero(~rows[:, absent].any(axis=1))
    if making.by == "group":
        shown = shown[::-1]
    points = _grid_of(making).points
    return making.summary(
        rows[shown],
        [CellCounts(points, counts[i]) for i in shown],
        n=n,
        suppressed=0,
        suppressed_groups=(0,) * len(making.groups),
        strangers=() if making.by == "atom" else (0,) * len(making.groups),
        uncovered=0,
        members=None if members is None else tuple((name, None) for name in sorted(members)),
        noise=noise,
    )


def _grid_of(counted: Any) -> Grid:
    """The grid of a summary or of a `Making`; an error if it has none."""
    if counted.grid is None:
        raise GCFCPError(
            f"{counted.client} has no grid, so that its records are not counted on cells that "
            "everybody knows: summarise with grid=gcfcp.Grid..."
        )
    found: Grid = counted.grid
    return found


# --- a min_count on a sum -------------------------------------------------------------------------


def with_min_count(summary: ClientSummary, min_count: int) -> ClientSummary:
    """The sum of several sites with what is small in the sum hidden; see the module.

    - `summary`: An aggregate with a grid and `min_count=1`, such as `gcfcp.add` returns.
    """
    m = checks.min_count(min_count)
    grid = _grid_of(summary)
    if not summary.is_aggregate or summary.min_count != 1 or summary.noise is not None:
        raise GCFCPError(
            f"{summary.client} is not a sum with min_count=1 and without noise: give min_count to "
            "summarize, at the site, or to the sum of several sites"
        )
    counts = [
        counted_cells(grid, summary.values[a:b], summary.counts[a:b])
        for a, b in zip(summary.start[:-1], summary.start[1:], strict=True)
    ]
    hide = _hidden_atoms if summary.by == "atom" else _hidden_groups
    shown, less, told = hide(summary, m)
    cells = [CellCounts.of(grid, counts[i], m, less.get(i, 0)) for i in shown]
    return replace(
        summary,
        min_count=m,
        membership=summary.membership[shown],
        start=np.cumsum([0] + [len(c) for c in cells]),
        values=np.concatenate([np.empty(0), *(c.means for c in cells)]),
        counts=np.concatenate([np.empty(0), *(c.weights for c in cells)]).astype(np.int64),
        errors=np.zeros(len(cells), dtype=np.int64),
        **told,
    )


def counted_cells(grid: Grid, values: Floats, counts: Ints) -> Ints:
    """The counts of all cells (B + 1,), from those of some edges."""
    found = np.zeros(len(grid) + 1, dtype=np.int64)
    found[grid.place(values)] = counts
    return found


def _hidden_groups(summary: ClientSummary, m: int) -> tuple[Any, dict[int, int], dict[str, Any]]:
    """Which described groups stay, and what is told of the others, in a sum by group."""
    sizes = summary.atom_counts @ summary.membership
    hidden = summary.possible & (sizes < m)
    bound = np.where(hidden, min(m - 1, summary.n), 0)
    shown = np.flatnonzero(~hidden[summary.membership.argmax(axis=1)])
    return shown, {}, {"suppressed_groups": tuple(bound.tolist())}


def _hidden_atoms(summary: ClientSummary, m: int) -> tuple[Any, dict[int, int], dict[str, Any]]:
    """Which described atoms stay, and what is told of the others, in a sum by atom."""
    rows, sizes, first = summary.membership, summary.atom_counts, 0
    if summary.uncovered:  # The records in no group are an atom too, and the first.
        rows = np.vstack([np.zeros((1, len(summary.groups)), dtype=np.bool_), rows])
        sizes, first = np.concatenate([[summary.uncovered], sizes]), 1
    told = withheld(rows, sizes, summary.possible, summary.groups.everyone, m)
    shown = np.flatnonzero(told.described[first:])
    less = {} if told.atom is None else {told.atom - first: told.number}
    return (
        shown,
        less,
        {
            "suppressed": told.suppressed,
            "suppressed_groups": tuple(told.bound.tolist()),
            "uncovered": summary.uncovered if summary.uncovered >= m else 0,
        },
    )
