"""Atoms that have nothing to do with each other are solved apart.

Atoms fall into parts if every linear dependence among their membership rows is a sum of
dependences within the parts. beta' Phi_A of the atoms of one part can then be chosen freely of all
other parts, so that h is a sum of one function for each part. The threshold of a row that lies in
the span of one part is that of this part alone, and the records of other parts do not matter, even
if they are in the same groups. For example, groups that do not overlap have one part for each
group, with a group of everyone or without.

How parts are found. Groups that hold every atom are set aside. Atoms that share one of the other
groups, directly or through others, are a block; blocks share no column. If no group was set aside,
blocks are parts. Otherwise a dependence sum_i lambda_i Phi_i = 0 is one of each block whose
lambdas add up to 0 over all blocks together. In most blocks they add up to 0 in any case: where
some weights of the groups give every atom of the block the sum 1. Such blocks are parts, and all
blocks without such weights are one part. The weights are checked in whole numbers. Parts that are
not found cost time only, never exactness.

`gcfcp.groups.imbalances` divides atoms as well, in floats and as far as possible. Here a part that
is divided too far would give a wrong threshold, so that every division is proved in whole numbers.

Cost: one pass over the memberships, and for each block of several atoms a small linear system.
"""

from __future__ import annotations

import numpy as np

from gcfcp.arrays import Bools, Ints

_SMALL_DENOMINATOR = 64  # A common denominator of the weights of groups is sought up to this.


def parts_of(membership: Bools) -> list[Ints]:
    """The atoms (a, G) divided into parts: the indices of each, ascending, first atom first."""
    universal = membership.all(axis=0)
    rows = membership[:, ~universal]
    blocks = _blocks(rows)
    if not universal.any() or len(blocks) == 1:
        return blocks
    found: list[Ints] = []
    linked: list[Ints] = []
    for block in blocks:
        (found if _adds_up_to_one(rows[block]) else linked).append(block)
    if linked:
        found.append(np.sort(np.concatenate(linked)))
    return sorted(found, key=lambda part: int(part[0]))


def _blocks(rows: Bools) -> list[Ints]:
    """The atoms that share a group, directly or through others. Cost: O(a G)."""
    owner = np.arange(len(rows))  # owner[i] leads to the first atom of the block of atom i.

    def first(i: int) -> int:
        while owner[i] != i:
            owner[i] = owner[owner[i]]
            i = int(owner[i])
        return i

    for column in rows.T:
        inside = np.flatnonzero(column)
        for i in inside[1:].tolist():
            a, b = first(int(inside[0])), first(i)
            owner[max(a, b)] = min(a, b)
    label = np.array([first(i) for i in range(len(rows))])
    order = np.argsort(label, kind="stable")
    starts = np.flatnonzero(np.diff(label[order], prepend=-1))
    return list(np.split(order, starts[1:]))


def _adds_up_to_one(rows: Bools) -> bool:
    """Whether some weights of the groups give every row the sum 1, exactly."""
    if not rows.any(axis=1).all():
        return False
    rows = rows[:, rows.any(axis=0)]
    if (rows.sum(axis=1) == rows[0].sum()).all():
        return True  # Each atom is in equally many of these groups: equal weights will do.
    numbers = rows.astype(np.float64)
    weights = np.linalg.lstsq(numbers, np.ones(len(rows)), rcond=None)[0]
    for k in range(1, _SMALL_DENOMINATOR + 1):
        whole = np.rint(k * weights)
        if np.abs(whole).sum() < 2**52 and (numbers @ whole == k).all():
            return True
    return False


def columns_of(membership: Bools, parts: list[Ints]) -> Ints:
    """Which part each group belongs to, (G,).

    It is -1 for a group that holds every atom, and for one that holds none.
    """
    owner = np.full(membership.shape[1], -1, dtype=np.int64)
    universal = membership.all(axis=0)
    for k, part in enumerate(parts):
        owner[membership[part].any(axis=0) & ~universal] = k
    return owner
