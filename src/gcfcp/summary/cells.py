"""Which counts of a summary by group may leave a site, so that small cells cannot be told.

With `min_count=m` a summary by group publishes n, the number of all records, and for each group the
number of its records and a digest of their scores. A cell of fewer than m records must not show:
whether it has 0 or m - 1 records must be the same to a reader of the counts.

**Groups.** A group of fewer than m records is hidden. The summary says "fewer than m" of it, and
the server charges m - 1 records at +inf, whatever the number is.

**What subtraction would tell.** Published counts can be subtracted from each other. If men and
women are groups, n - men - women is the number of records that are neither. If `over_75` lies
inside of `over_65`, their difference is the number of people between. If a group holds nearly all
records, n minus its count is its complement. All of these have one form: a whole H, which is a
group or all records, less groups J that divide it up. The records on which 1_H - sum_J 1_j is not 0
are the exceptions (those in H and in no group of J, in a group of J outside of H, or in two of J).
Wherever there are fewer than m exceptions, counts are lowered until the difference that a reader
computes is the same number, whatever the true one is:

- One group g of J is lowered so that the difference looks like C = m - 1 records (and more, by what
  the other counts may have been lowered). With a true difference of r, which is at most m - 1, the
  count is lowered by C - r.
- If every group of J was lowered for another difference, H itself is lowered in the same way.
- If that is not possible either, because counts depend on each other in a circle, the smallest
  group of J is hidden.

The exceptions count, and not their sum with signs, so that a record which goes from one exception
to another, or appears among them, changes nothing as long as there are fewer than m.

**Lowering is safe.** To lower a count by d, the d records with the lowest scores are left out of
the group. At any threshold that leaves a group its promise these records are covered, so that
leaving them out can only raise the threshold: theorem 1 and theorem 3 of docs/guarantees.md stand,
and the server need not know. It costs alpha d records of the group: with m = 10 and alpha = 0.1,
at most 0.9 of a record for each group and site.

**What is not hidden.** A group to which every record belongs by definition (its condition is TRUE,
or it is the site's own group) has the count n, which is public. The number n itself is exact. Sums
that a reader can only compute with more than one whole, such as N_G + N_H - N_K where K is exactly
the union of G and H, are not looked for. Two summaries of the same records for different groups can
be subtracted too; send one summary for each purpose.

Cost: a search over sets of groups that lie beside each other, which is short unless a family has
many of them. It is refused after `MOST_STEPS` steps, rather than left incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Bools, Ints
from gcfcp.errors import GCFCPError

MOST_STEPS = 200_000
"""How many steps the search for small cells may take."""


@dataclass(frozen=True)
class Counted:
    """What a site publishes about the sizes of its groups. All arrays have the shape (G,)."""

    lowered: Ints  # How many records with the lowest scores are left out of each group.
    bound: Ints  # For a group that is hidden, the records to charge; 0 for every other group.


@dataclass(frozen=True)
class _Rest:
    """A whole and the groups that divide it up with few exceptions."""

    whole: int  # The group H; -1 stands for all records.
    parts: tuple[int, ...]  # The groups J, ascending.

    @property
    def groups(self) -> set[int]:
        """The groups whose counts are subtracted from each other."""
        return {*self.parts, self.whole} - {-1}


def counted(atoms: Bools, counts: Ints, possible: Bools, certain: Bools, min_count: int) -> Counted:
    """What may be published of the group sizes of a site.

    - `atoms`, `counts`: The distinct membership rows (a, G) of the site, and how many records each
      of them has, (a,).
    - `possible`: The groups that the site can have, (G,).
    - `certain`: The groups to which every record belongs by definition, (G,).
    """
    sizes: Ints = counts @ atoms
    n, m = int(counts.sum()), min_count
    none = np.zeros(len(sizes), dtype=np.int64)
    if m == 1:
        return Counted(none, none)
    hidden = possible & (sizes < m)
    bound = np.where(hidden, min(m - 1, n), 0)
    while True:
        shown = np.flatnonzero(possible & (bound == 0) & ~certain)
        rests = list(_small_rests(atoms, counts, shown.tolist(), m))
        lowering = _Lowering(rests, sizes, n, m)
        circle = lowering.hide()
        if circle is None:
            break
        # Everything inside of the smallest group may be at +inf for all the server knows.
        bound[circle] = n
    for g, (lowered, most) in lowering.found.items():
        none[g] = lowered
        if sizes[g] - lowered < m:
            none[g], bound[g] = 0, min(m - 1 + most, n)
    return Counted(none, bound)


def _small_rests(atoms: Bools, counts: Ints, shown: list[int], m: int) -> Iterator[_Rest]:
    """Every whole with groups that divide it up with fewer than m exceptions, each once."""
    order = np.argsort(-counts, kind="stable")
    sizes = counts[order].tolist()
    inside = {g: _bits(atoms[order, g]) for g in shown}
    search = _Search(sizes, inside)
    every = (1 << len(sizes)) - 1
    for whole in [-1, *shown]:
        area = every if whole == -1 else inside[whole]
        others = [g for g in shown if g != whole]
        for parts in sorted(set(search.covers(area, ~area & every, 0, m - 1, (), others))):
            yield _Rest(whole, parts)


@dataclass
class _Search:
    """The search for groups that divide up a whole. Sets of atoms are the bits of whole numbers."""

    sizes: list[int]  # How many records each atom has, in descending order.
    inside: dict[int, int]  # The atoms of each group.
    steps: int = 0

    def covers(
        self,
        left: int,
        taken: int,
        excepted: int,
        spare: int,
        parts: tuple[int, ...],
        groups: list[int],
    ) -> Iterator[tuple[int, ...]]:
        """Cover the atoms `left` by groups that have no atom in common.

        - `taken`: The atoms that must not be covered: outside of the whole, or covered already.
        - `excepted`: The atoms that are exceptions.
        - `spare`: How many more records may be exceptions.
        - `parts`: The groups that were chosen. `groups`: those that may be.
        """
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise GCFCPError(
                f"{len(self.inside)} groups overlap in so many ways that small cells cannot be "
                "searched for: use by='atom', or fewer groups"
            )
        if not left:
            if parts:
                yield tuple(sorted(parts))
            return
        largest = left & -left  # The largest atom has the lowest bit.
        for g in groups:
            own = self.inside[g]
            if not own & largest:
                continue
            clash = own & taken & ~excepted
            cost = self._records(clash, spare)
            if cost <= spare:
                others = [h for h in groups if h != g]
                yield from self.covers(
                    left & ~own, taken | own, excepted | clash, spare - cost, (*parts, g), others
                )
        size = self.sizes[largest.bit_length() - 1]
        if size <= spare:
            yield from self.covers(
                left & ~largest, taken, excepted | largest, spare - size, parts, groups
            )

    def _records(self, atoms: int, most: int) -> int:
        """How many records these atoms have, or any number above `most` if there are more."""
        total = 0
        while atoms and total <= most:
            lowest = atoms & -atoms
            total += self.sizes[lowest.bit_length() - 1]
            atoms &= ~lowest
        return total


def _bits(column: Bools) -> int:
    """The atoms of a group as the bits of a whole number; atom 0 is the lowest bit."""
    return int.from_bytes(np.packbits(column, bitorder="little").tobytes(), "little")


class _Lowering:
    """By how much each group is lowered, so that no rest shows.

    `found` holds for each group that is lowered the number, and the most that it could have been.
    """

    def __init__(self, rests: list[_Rest], sizes: Ints, n: int, m: int) -> None:
        self.sizes, self.n, self.m = sizes, n, m
        self.found: dict[int, tuple[int, int]] = {}
        self.owner: dict[int, _Rest] = {}  # The rest for which each group is lowered.
        self.stuck: _Rest | None = None
        seen: list[list[int]] = []
        for rest in sorted(rests, key=lambda r: (len(r.parts), r.whole, r.parts)):
            vector = self._vector(rest)
            if seen and np.linalg.matrix_rank([*seen, vector]) == len(seen):
                continue  # The counts that are lowered already determine this rest.
            free = [g for g in rest.parts if g not in self.owner] or [
                g for g in (rest.whole,) if g >= 0 and g not in self.owner
            ]
            if not free:
                self.stuck = rest
                return
            self.owner[max(free, key=lambda g: (int(sizes[g]), -g))] = rest
            seen.append(vector)

    def _vector(self, rest: _Rest) -> list[int]:
        """The coefficients of the groups' counts in the rest."""
        vector = [0] * len(self.sizes)
        for g in rest.parts:
            vector[g] -= 1
        if rest.whole >= 0:
            vector[rest.whole] += 1
        return vector

    def hide(self) -> int | None:
        """Find all numbers, or return the group that must be hidden to make that possible."""
        if self.stuck is None:
            for g in self.owner:
                self._lower(g, set())
                if self.stuck is not None:
                    break
        if self.stuck is None:
            return None
        return min(self.stuck.parts, key=lambda g: (int(self.sizes[g]), g))

    def _lower(self, g: int, above: set[int]) -> tuple[int, int]:
        """By how much group g is lowered, and the most that it could be."""
        if g not in self.owner:
            return 0, 0
        if g in self.found:
            return self.found[g]
        rest = self.owner[g]
        if g in above:
            self.stuck = rest
            return 0, 0
        others = {h: self._lower(h, above | {g}) for h in rest.groups - {g}}
        parts = [others[h] for h in rest.parts if h != g]
        whole = others.get(rest.whole, (0, 0))
        total = self.n if rest.whole < 0 else int(self.sizes[rest.whole])
        left = total - int(self.sizes[list(rest.parts)].sum())  # The true difference.
        low, most = sum(d for d, _ in parts), sum(b for _, b in parts)
        # An exception counts 1 if it is in H only, and down to -len(J) if it is in groups of J.
        least = -len(rest.parts) * (self.m - 1)
        if g == rest.whole:
            self.found[g] = left + low - least, self.m - 1 + most - least
        else:
            looks = self.m - 1 + most  # What the difference will look like.
            self.found[g] = looks + whole[0] - low - left, looks + whole[1] - least
        return self.found[g]
