"""Which records of a summary by atom are not described, so that small atoms cannot be told.

With `min_count=m` an atom of fewer than m records is not described. Its records are suppressed: the
server counts them as scores of +inf. Their number R leaves the site as `suppressed`, and a reader
must not learn from it how many records a small atom has, nor whether it has any.

**Which atoms can be small.** Atoms are possible at a site if they agree with what everybody knows:
its records are in all groups whose condition is TRUE and in the group of the site, in no group that
is declared absent, and in no other site. With f other groups there are 2**f possible atoms; one of
them may be "in no group". Let u be the number of possible atoms that are not described. Everybody
can count them. (Whether conditions contradict each other is not examined. A man who is a woman as
well counts as possible.)

**What is told.** The number T that is published is at least R:

| u         | R                      | T              |
|-----------|------------------------|----------------|
| 0         | 0                      | 0              |
| 1 or 2    | any                    | u (m - 1)      |
| 3 or more | 0 to m - 1             | m - 1          |
| 3 or more | m to (u - 2)(m - 1)    | R              |
| 3 or more | above, and at least m  | u (m - 1)      |

Where T is above R, the T - R largest scores of one described atom P are withheld as well. P is the
first atom, in the order of keys, that has enough records to keep m of them. If there is none,
no atom is described, and T is the number of all records that are in a group or fewer than m.

**What a reader learns.** For every possible atom that is not described, every number from 0 to
m - 1 agrees with all published counts, as long as some atom is described:

- Where T is R, u - 1 other atoms can hold R less this number, because R is at least m and at most
  (u - 2)(m - 1).
- Otherwise let the first described atom be P, with x records published. Then x + T - R' is a number
  of records from which exactly x are published, whatever R' is; and there is an R' in the row of
  the table for every number of records in the one small atom.

The same bound, T, is published for each group that the site can have, because another number would
tell what P is, and with it something about R. Where T is R, no record is withheld; the bound of a
group is then T, or what its atoms can hold if that is less.

**Why the promise stands.** A withheld record is charged at +inf in each of its groups, since the
bound of every group is at least the number of its suppressed and withheld records. Giving a record
the score +inf takes it away from the covered records at every threshold and adds nothing, so that
the sum Z of theorem 1 only falls and, by rule max, thresholds only rise. (The simultaneous rule is
not monotone: there the requirement of `calibration.problem` holds, and a threshold may fall.)

**What it costs.** u (m - 1) or m - 1 records at +inf, even where no atom is small. With m = 10 and
alpha = 0.1 the groups of a site need 90 records more for every 9 of them. Summaries by group
do not have this price.

**What is not hidden.** That an atom has m records or more. The scores of P without its largest ones
tell what scores tell. Where a reader knows that some atoms are impossible although no declaration
says so, m or more suppressed records may tell him that each of two atoms has one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Bools, Ints


@dataclass(frozen=True)
class Withheld:
    """What a summary by atom does not describe."""

    described: Bools  # (a,): Which atoms of the site are described.
    suppressed: int  # T, the number of records that are not.
    atom: int | None  # P, the atom whose largest scores are withheld, if there is one.
    number: int  # How many scores of P are withheld.
    bound: Ints  # (G,): For each group, how many of its records may not be described.


def withheld(
    membership: Bools, counts: Ints, possible: Bools, certain: Bools, min_count: int
) -> Withheld:
    """What is not described of the atoms of a site.

    - `membership`, `counts`: The distinct membership rows (a, G) of the site in ascending order,
      and how many records each of them has, (a,).
    - `possible`: The groups that the site can have, (G,).
    - `certain`: The groups to which every record belongs by definition, (G,).
    """
    m, in_group = min_count, membership.any(axis=1)
    small = counts < m
    described = in_group & ~small
    r = int(counts[small].sum())
    if m == 1:
        return Withheld(described, 0, None, 0, np.zeros(len(possible), dtype=np.int64))
    free = possible & ~certain
    shown = membership[~small]  # Of records in no group, m or more are told as `uncovered`.
    u = 2 ** int(free.sum()) - len(shown)
    if m <= r <= (u - 2) * (m - 1):
        # Of the possible atoms, half are in a group that is not certain.
        half = 2 ** max(int(free.sum()) - 1, 0)
        cells = [u if sure else half - int(shown[:, g].sum()) for g, sure in enumerate(certain)]
        most = [min(c * (m - 1), r) if p else 0 for c, p in zip(cells, possible, strict=True)]
        return Withheld(described, r, None, 0, np.array(most, dtype=np.int64))
    t = m - 1 if u > 2 and r < m else u * (m - 1)
    enough = np.flatnonzero(described & (counts + r >= m + t))
    if len(enough):
        bound = np.where(possible, t, 0)
        return Withheld(described, t, int(enough[0]), t - r, bound)
    t = int(counts[in_group | small].sum())
    return Withheld(np.zeros_like(described), t, None, 0, np.where(possible, t, 0))
