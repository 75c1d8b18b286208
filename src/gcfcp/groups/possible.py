"""The combinations of groups that a row can have, as far as the definition of the groups tells.

A group whose condition is TRUE has every row. A row is of one site, or of none of those that are
listed. Everything else is possible: no condition is looked at beyond that. The combination of no
group at all is left out, because nothing is promised for it.

Cost: one row for each combination; their number is computed before any row is made.
"""

from __future__ import annotations

import itertools

import numpy as np

from gcfcp.arrays import Bools
from gcfcp.groups.family import Groups


def possible_rows(groups: Groups, most: int) -> Bools | None:
    """The possible combinations as membership rows (c, G), in ascending order of their bits.

    It is None if there are more than `most`.
    """
    everyone = groups.everyone[: len(groups.others)]
    free = int(np.count_nonzero(~everyone))
    of_site = 1 + len(groups.sites)
    if free > most.bit_length() or of_site << free > most + 1:
        return None
    rows = np.zeros((of_site << free, len(groups)), dtype=np.bool_)
    rows[:, : len(everyone)][:, everyone] = True
    chosen = np.array(list(itertools.product((False, True), repeat=free)), dtype=np.bool_)
    rows[:, np.flatnonzero(~everyone)] = np.repeat(chosen.reshape(1 << free, free), of_site, axis=0)
    # Below the row of no site, the sites are in descending order, which is that of their bits.
    sites = np.vstack([np.zeros((1, of_site - 1)), np.eye(of_site - 1)[::-1]]).astype(np.bool_)
    rows[:, len(everyone) :] = np.tile(sites, (1 << free, 1))
    rows = rows[rows.any(axis=1)]
    return rows if len(rows) <= most else None


def single_rows(groups: Groups) -> Bools:
    """For each group the row that is in it and otherwise only in the groups that have every row.

    These rows are distinct (c, G). A group that has every row has one row in common with the
    others of its kind.
    """
    rows = np.eye(len(groups), dtype=np.bool_) | groups.everyone
    alike = groups.everyone.copy()
    alike[int(np.argmax(alike))] = False  # The first of them is kept, if there is any.
    found: Bools = rows[~alike]
    return found
