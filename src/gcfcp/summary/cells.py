"""Which counts of a summary by group may leave a site, so that small cells cannot be told.

With `min_count=m` a summary by group publishes n, the number of all records, and for each group the
number of its records and a digest of their scores. A cell of fewer than m records must not show:
whether it has 0 or m - 1 records must be the same to a reader of the counts.

**Groups.** A group of fewer than m records is hidden. The summary says "fewer than m" of it, and
the server charges m - 1 records at +inf, whatever the number is.

**What subtraction would tell.** Published counts can be added and subtracted. If men and women are
groups, n - men - women is the number of records that are neither. If `over_75` lies inside of
`over_65`, their difference is the number of people between. If a group holds nearly all records, n
minus its count is its complement. If "women over 65" is a group beside women and over 65,
n - women - over_65 + both is the number of men below 65. All of these have one form: a combination
of counts with coefficients +1 and -1 that is 0 on all records but a few. These few are the
exceptions. And digests can be subtracted like counts, at every threshold.

Wherever a combination has fewer than m exceptions that count positive and fewer than m that count
negative, one of its groups, the pivot, is therefore
described by what the others say, and not by its own records: the pivot g is described by V_g, the
records for which the other groups of the combination imply that they are in g (all but the women,
for men). Its count and its digest are then functions of the other groups: not a bit of them depends
on whether there are 0 or m - 1 exceptions.

**Why the promise stands.** V_g holds all records of g, and at most S = m - 1 strangers (m - 1 for
each pivot, if combinations have groups in common). The summary publishes S, and the server takes
alpha S records off what the group has to spare: a stranger that is covered adds alpha to the sum Z
of theorem 1, and one that is missed only lowers it. With a confidence, S covered records are not
counted. The same S is published for all groups of a combination, because which of them is the pivot
may depend on the exceptions. With m = 10 and alpha = 0.1 this costs 0.9 of a record for each of
these groups and site.

**Records of g among the exceptions.** The pivot is chosen so that none of its own records is an
exception, if there is such a group: of two groups of which one contains the other it is the inner
one, and of a whole and its parts it is a part. If there is none (two groups that are nearly the
same, each with a few records that the other does not have; or a complete table with its margins,
one of whose cells is small), V_g lacks up to S records of g, which are charged at +inf as hidden
ones are. That is dearer, and it shows that there are such records, but not how many. So if a hidden
group is what two groups have in common that otherwise nearly divide all records, it shows whether
it has any. The number of records that the others imply twice may show.

**Several combinations.** Pivots are found by elimination, so that each is a sum of groups that are
no pivots. Each of p pivots of connected combinations can bring m - 1 strangers, and S is p (m - 1)
for all of their groups, whatever the number is; only a larger number would show. If no group of a
combination has the coefficient +1 or -1 after that, its smallest group is hidden and charged n
records.

**What is not hidden.** A group to which every record belongs by definition (its condition is TRUE,
or it is the site's own group) has the count n, which is public. The number n itself is exact. That
a cell has m records or more can be told. The values tell what values tell: that of a cluster is the
rounded maximum of its records. Combinations of more than four counts (more than three, if there are
more than `MOST_COMBINED` groups) are found only if they divide a whole into parts, and none has
other coefficients than +1 and -1. A shape moves the values of a hidden group's records by its
coefficient, so that a site must not use a shape from somebody whom it does not trust. Of a table
that is larger than memory, digests are made of digests, and their counts may tell a little of how
many records there are in a part of V_g. Two summaries of the same records for different groups, or
with another `min_count`, can be subtracted too; send one summary for each purpose.

Cost: a look at the combinations of up to three counts, and a search over the ways to divide a whole
into groups. Both are refused after `MOST_STEPS` steps, rather than left incomplete.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Bools, Ints
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups

MOST_STEPS = 200_000
"""How many steps the search for ways to divide a whole may take."""

MOST_COMBINED = 80
"""For more groups than this, only combinations of up to three counts are listed."""

ALL = -1
"""It stands for all records, among places of groups."""

Combination = tuple[tuple[int, int], ...]
"""Places of groups, each with its coefficient +1 or -1, in ascending order."""


@dataclass(frozen=True)
class Counted:
    """What a site publishes about its groups."""

    members: Bools  # (a, G): The atoms by which each group is described.
    strangers: Ints  # (G,): How many of these records may not be in the group.
    bound: Ints  # (G,): How many records of the group may not be described. They are charged.
    hidden: Bools  # (G,): Whether the group is not described at all.


def possible_groups(groups: Groups, client: str, absent: Sequence[str] = ()) -> Bools:
    """Which groups a client can have, (G,): not those declared absent, nor other sites."""
    return np.array(
        [name not in absent for name in groups.others] + [site == client for site in groups.sites],
        dtype=np.bool_,
    )


def certain_groups(groups: Groups, client: str) -> Bools:
    """The groups to which every record of a client belongs by definition, (G,).

    These are the groups whose condition is TRUE, and the client's own site.
    """
    certain = groups.everyone.copy()
    certain[len(groups.others) :] = [site == client for site in groups.sites]
    return certain


def counted(atoms: Bools, counts: Ints, possible: Bools, certain: Bools, min_count: int) -> Counted:
    """What may be published of the groups of a site.

    - `atoms`, `counts`: The distinct membership rows (a, G) of the site, and how many records each
      of them has, (a,).
    - `possible`: The groups that the site can have, (G,).
    - `certain`: The groups to which every record belongs by definition, (G,).
    """
    sizes: Ints = counts @ atoms
    n, m = int(counts.sum()), min_count
    strangers = np.zeros(len(sizes), dtype=np.int64)
    if m == 1:
        return Counted(atoms, strangers, strangers, sizes == 0)
    hidden = possible & (sizes < m)
    bound = np.where(hidden, min(m - 1, n), 0)
    while True:
        shown = np.flatnonzero(possible & ~hidden & ~certain).tolist()
        pivots = _Pivots(small_combinations(atoms, counts, shown, m), atoms, counts, m)
        stuck = pivots.to_hide()
        if stuck is None:
            break
        # For all the server knows, any record may be in the group and at +inf.
        hidden[stuck], bound[stuck] = True, n
    members = atoms.copy()
    for g, known in pivots.described().items():
        described = int(counts @ known.atoms)
        if described < m:
            hidden[g], bound[g] = True, min(m - 1 + known.missing, n)
            continue
        members[:, g], strangers[g] = known.atoms, min(known.strangers, described)
        bound[g] = min(known.missing, n - described)
    # Which group is the pivot may depend on the exceptions, so that all groups look like one.
    for g in pivots.involved:
        if not hidden[g]:
            strangers[g] = max(int(strangers[g]), min(pivots.usual(g), int(counts @ members[:, g])))
    return Counted(members, strangers, bound, hidden | ~possible)


# --- every cell, for noise ------------------------------------------------------------------------


def possible_cells(possible: Bools, certain: Bools, by: str, most: int) -> Bools:
    """The rows (a, G) that a site could describe, in ascending order of their keys.

    - `possible`, `certain`: The groups that the site can have, and those to which all of its
      records belong, (G,).
    - `most`: How many rows there may be.
    """
    if by == "group":
        found: Bools = np.eye(len(possible), dtype=np.bool_)[possible][::-1]
        return found
    free = np.flatnonzero(possible & ~certain)
    if 1 << min(len(free), 62) > most:
        raise GCFCPError(
            f"noise must be added to all 2**{len(free)} combinations of groups, of which at most "
            f"{most:,} are possible on this grid: use by='group', or fewer cells or groups"
        )
    rows = np.tile(certain & possible, (1 << len(free), 1))
    rows[:, free] = list(itertools.product((False, True), repeat=len(free)))
    return np.asarray(rows[rows.any(axis=1)])


def sensitivity_of(possible: Bools, by: str) -> int:
    """D: by how much one record can change all counts together; see `gcfcp.noise`."""
    return 1 if by == "atom" else int(np.count_nonzero(possible))


# --- combinations with few exceptions -------------------------------------------------------------


def small_combinations(
    atoms: Bools, counts: Ints, shown: list[int], min_count: int
) -> list[Combination]:
    """The combinations of these groups, and of all records, that have too few exceptions.

    Short ones come first.
    """
    found = {
        *_short(atoms, counts, shown, min_count),
        *_divisions(atoms, counts, shown, min_count),
    }
    return sorted(found, key=lambda c: (len(c), c))


def _short(atoms: Bools, counts: Ints, shown: list[int], m: int) -> Iterator[Combination]:
    """Every combination of two to four counts that has fewer than m exceptions.

    What a combination adds up to is at most the number of its counts times that of its exceptions.
    So the last count is sought only among those of about the right size, in which nearly all others
    drop out. And an atom of m records or more can be no exception, so that the large atoms of the
    last count are a sum of those of the others.
    """
    places = [ALL, *shown]
    columns = np.array(
        [np.ones(len(counts), dtype=np.int8), *(atoms[:, g] for g in shown)], dtype=np.int8
    )
    large = np.ascontiguousarray(columns[:, counts >= m])
    patterns = [column.tobytes() for column in large]
    sizes: list[int] = (columns.astype(np.int64) @ counts).tolist()
    by_size = sorted(range(len(places)), key=lambda i: sizes[i])
    ascending = [sizes[i] for i in by_size]

    def of_size(least: int, most: int, after: int) -> list[int]:
        """The counts from `least` to `most`, of those behind place `after`."""
        low, high = bisect_left(ascending, least), bisect_right(ascending, most)
        return sorted(i for i in by_size[low:high] if i > after)

    steps = 0
    for size in range(1, 4 if len(shown) <= MOST_COMBINED else 3):
        most = 2 * (size + 1) * (m - 1)
        for chosen in itertools.combinations(range(len(places)), size):
            for signs in itertools.product((1, -1), repeat=size - 1):
                total = sum(c * sizes[k] for k, c in zip(chosen, (1, *signs), strict=True))
                near = [
                    (i, sign)
                    for sign in (-1, 1)
                    for i in of_size(-sign * total - most, -sign * total + most, chosen[-1])
                ]
                if not near:
                    continue
                coefficients = np.array((1, *signs), dtype=np.int8)
                wanted = coefficients @ large[[*chosen]]
                keys = {-1: wanted.tobytes(), 1: (-wanted).tobytes()}
                for i, sign in near:
                    if patterns[i] != keys[sign]:
                        continue
                    steps += 1
                    if steps > MOST_STEPS:
                        raise _too_many(len(shown))
                    value = coefficients @ columns[[*chosen]] + np.int8(sign) * columns[i]
                    if max(counts[value > 0].sum(), counts[value < 0].sum()) < m:
                        found = [*zip(chosen, (1, *signs), strict=True), (i, sign)]
                        yield tuple((places[k], c) for k, c in found)


def _too_many(groups: int) -> GCFCPError:
    """The error for a family in which small cells cannot be searched for."""
    return GCFCPError(
        f"{groups} groups overlap in so many ways that small cells cannot be searched for: use "
        "by='atom', or fewer groups"
    )


def _divisions(atoms: Bools, counts: Ints, shown: list[int], m: int) -> Iterator[Combination]:
    """Wholes that groups divide up with fewer than m exceptions.

    Those that are left out are sums and differences of those that are found.
    """
    order = np.argsort(-counts, kind="stable")
    sizes = counts[order].tolist()
    inside = {g: _bits(atoms[order, g]) for g in shown}
    every = (1 << len(sizes)) - 1
    search = _Search(sizes, inside)
    for whole in [ALL, *shown]:
        area = every if whole == ALL else inside[whole]
        search.known.clear()
        others = [g for g in shown if g != whole]
        for parts in search.covers(area, ~area & every, 0, m - 1, others):
            if parts:
                yield tuple(sorted([(whole, 1), *((g, -1) for g in parts)]))


def _bits(column: Bools) -> int:
    """The atoms of a group as the bits of a whole number; atom 0 is the lowest bit."""
    return int.from_bytes(np.packbits(column, bitorder="little").tobytes(), "little")


class _Search:
    """The search for groups that divide up a whole. Sets of atoms are the bits of whole numbers."""

    def __init__(self, sizes: list[int], inside: dict[int, int]) -> None:
        self.sizes = sizes  # How many records each atom has, in descending order.
        self.inside = inside  # The atoms of each group.
        self.steps = 0
        # What is left to cover, the exceptions so far and how many more there may be; and one way
        # to go on from there, if there is any. Going on in another way gives nothing new.
        self.known: dict[tuple[int, int, int], tuple[int, ...] | None] = {}

    def covers(
        self, left: int, taken: int, excepted: int, spare: int, groups: list[int]
    ) -> Iterator[tuple[int, ...]]:
        """Cover the atoms `left` by groups that have no atom in common.

        - `taken`: The atoms that must not be covered: outside of the whole, or covered already.
        - `excepted`: The atoms that are exceptions.
        - `spare`: How many more records may be exceptions.
        - `groups`: The groups that may be chosen.
        """
        if not left:
            yield ()
            return
        state = (left, excepted, spare)
        if state in self.known:
            one = self.known[state]
            if one is not None:
                yield one
            return
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise _too_many(len(self.inside))
        first: tuple[int, ...] | None = None
        for parts in self._ways(left, taken, excepted, spare, groups):
            first = parts if first is None else first
            yield parts
        self.known[state] = first

    def _ways(
        self, left: int, taken: int, excepted: int, spare: int, groups: list[int]
    ) -> Iterator[tuple[int, ...]]:
        """All ways to cover the largest atom that is left, or to except it, and to go on."""
        largest = left & -left  # The largest atom has the lowest bit.
        for g in groups:
            own = self.inside[g]
            if not own & largest:
                continue
            clash = own & taken & ~excepted
            cost = self._records(clash, spare)
            if cost <= spare:
                others = [h for h in groups if h != g]
                for rest in self.covers(
                    left & ~own, taken | own, excepted | clash, spare - cost, others
                ):
                    yield (g, *rest)
        size = self.sizes[largest.bit_length() - 1]
        if size <= spare:
            yield from self.covers(
                left & ~largest, taken | largest, excepted | largest, spare - size, groups
            )

    def _records(self, atoms: int, most: int) -> int:
        """How many records these atoms have, or any number above `most` if there are more."""
        total = 0
        while atoms and total <= most:
            lowest = atoms & -atoms
            total += self.sizes[lowest.bit_length() - 1]
            atoms &= ~lowest
        return total


# --- pivots ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Described:
    """How a pivot is described, and what that could be for other data with the same structure."""

    atoms: Bools  # (a,): V_g.
    strangers: int  # How many records of V_g are at most not in g.
    missing: int  # How many records of g are at most not in V_g.


_Sum = dict[int, int]
"""A sum of counts of groups that are no pivots: the coefficient of each, and of all records."""


def _replace(terms: _Sum, g: int, by: _Sum) -> None:
    """Put another sum in the place of group g."""
    times = terms.pop(g, 0)
    for h, c in by.items():
        terms[h] = terms.get(h, 0) + times * c
        if not terms[h]:
            del terms[h]


class _Pivots:
    """One pivot for each combination, as a sum of groups that are no pivots (by elimination)."""

    def __init__(
        self, combinations: Sequence[Combination], atoms: Bools, counts: Ints, m: int
    ) -> None:
        self.atoms, self.counts, self.m = atoms, counts, m
        self.sums: dict[int, _Sum] = {}
        self.involved: set[int] = set()  # All groups of all combinations, pivots or not.
        self.stuck: Combination | None = None  # A combination for which there is no pivot.
        for combination in combinations:
            row = dict(combination)
            for g in [g for g in row if g in self.sums]:
                _replace(row, g, self.sums[g])
            free = [g for g, c in row.items() if g != ALL and abs(c) == 1]
            if not row:
                continue  # It is a sum of others, which are constants.
            if not free:
                self.stuck = combination
                return
            sums = {g: _solved(row, g) for g in free}
            best = max(free, key=lambda g: (self._fit(sums[g], g), -g))
            self.involved |= {g for g, _ in combination if g != ALL}
            for other in self.sums.values():
                _replace(other, best, sums[best])
            self.sums[best] = sums[best]
        self._families = _connected(combinations)

    def _fit(self, found: _Sum, g: int) -> int:
        """How well a sum describes group g.

        - 2: It implies every record of g, and each record once at most.
        - 1: It implies each record once at most.
        - 0: It implies some record twice, or less than not at all, so that the number shows.
        """
        implied, own = self._implied(found), self.atoms[:, g]
        if not np.isin(implied, (0, 1)).all():
            return 0
        return 2 if (implied[own] == 1).all() else 1

    def _implied(self, found: _Sum) -> Ints:
        """How often a sum implies the records of each atom, (a,)."""
        implied = np.zeros(len(self.counts), dtype=np.int64)
        for h, c in found.items():
            implied += c * (1 if h == ALL else self.atoms[:, h].astype(np.int64))
        return implied

    def to_hide(self) -> int | None:
        """The group that must be hidden, if there is a combination without a pivot."""
        if self.stuck is None:
            return None
        sizes = self.counts @ self.atoms
        return min((g for g, _ in self.stuck if g != ALL), key=lambda g: (int(sizes[g]), g))

    def described(self) -> dict[int, _Described]:
        """How each pivot is described."""
        found = {}
        for g, terms in self.sums.items():
            own: Bools = np.asarray(self._implied(terms) >= 1)
            strangers = int(self.counts @ (own & ~self.atoms[:, g]))
            missing = int(self.counts @ (self.atoms[:, g] & ~own))
            found[g] = _Described(
                own, self._at_most(g, strangers), self._at_most(g, missing) if missing else 0
            )
        return found

    def usual(self, g: int) -> int:
        """How many records that describe a group may not be in it, for all that can be told.

        Each pivot among the groups that combinations connect with g can bring m - 1 of them.
        """
        return (self.m - 1) * len(self._families.get(g, frozenset()) & self.sums.keys())

    def _at_most(self, g: int, number: int) -> int:
        """A bound on a number of records that does not depend on the number.

        Only if it is above what is usual, the bound grows with it, in steps of m - 1.
        """
        least = self.usual(g)
        return max(least, -(-number // (self.m - 1)) * (self.m - 1))


def _connected(combinations: Sequence[Combination]) -> dict[int, frozenset[int]]:
    """For each group of a combination, all groups that combinations connect with it."""
    family: dict[int, frozenset[int]] = {}
    for combination in combinations:
        places = {g for g, _ in combination if g != ALL}
        joined = frozenset(places.union(*(family.get(g, frozenset()) for g in places)))
        family |= dict.fromkeys(joined, joined)
    return family


def _solved(row: _Sum, g: int) -> _Sum:
    """Group g as a sum of the others, if the sum of the row is 0 but for exceptions."""
    sign = -row[g]
    return {h: sign * c for h, c in row.items() if h != g}
