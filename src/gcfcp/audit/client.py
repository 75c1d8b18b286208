"""An audit at a client: counts of labelled records, and nothing else leaves the site.

`audit` counts how many records of each group and of each atom were covered. The server merges the
audits of all clients into intervals and verdicts; see `coverage`.

Disclosure control. With `min_count=m` a group or an atom of fewer than m records is suppressed. So
is what would give a small number away by subtraction:

- an atom is suppressed if a group, less all atoms of it that are published, would leave from 1 to
  m - 1 records;
- a group is suppressed if it lies inside another group, or inside all n records, and the rest of
  that would be from 1 to m - 1 records.

Other linear combinations of overlapping groups are not examined.

Of a suppressed group only an upper bound on its size is published: the next multiple of m. An
interval counts these records as missed at its lower end and as covered at its upper end, so that it
remains valid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcfcp import checks
from gcfcp.arrays import Bools, Ints
from gcfcp.audit.counts import Counts, count
from gcfcp.audit.record import Audit
from gcfcp.groups import Groups


def audit(
    covered: ArrayLike,
    membership: Any,
    *,
    groups: Groups,
    client: str,
    set_size: ArrayLike | None = None,
    min_count: int = 1,
    alpha: float | None = None,
    predictor: str | None = None,
) -> Audit:
    """Count at one client how many labelled records were covered, by group and by atom.

    - `covered`: For each record, whether its outcome was in its prediction set.
    - `membership`: The groups of each record, (n, G). If the groups have sites, the columns of the
      sites may be left out: they are filled in from `client`, which is one of the sites.
    - `set_size`: The number of labels in each set or the width of each interval. It is infinite for
      an unbounded set and 0 for an empty one.
    - `min_count`: Groups and atoms with fewer records are suppressed; see the module.
    - `alpha`: The share of outcomes that may be missed, as it was promised.
    - `predictor`: A fingerprint of the predictor that was audited. `merge_audits` refuses audits of
      different predictors.
    """
    if groups.sites:
        membership = groups.complete(membership, client)
    counts = count(covered, membership, groups=groups, set_size=set_size)
    return publish(
        counts, groups=groups, client=client, min_count=min_count, alpha=alpha, predictor=predictor
    )


def publish(
    counts: Counts,
    *,
    groups: Groups,
    client: str,
    min_count: int = 1,
    alpha: float | None = None,
    predictor: str | None = None,
) -> Audit:
    """The audit that a client publishes for these counts, with small numbers suppressed.

    The counts may be those of several batches, added up. The other arguments are those of `audit`.
    """
    min_count = checks.min_count(min_count)
    named = counts.membership.any(axis=1)
    inside = counts.membership[named]
    atom_total = counts.total[named]
    member = inside.astype(np.int64).T  # (G, a): 1 where the atom lies in the group.
    total = member @ atom_total
    outside = int(counts.total[~named].sum())
    hide_group, hide_atom, hide_outside = _suppressed(inside, atom_total, outside, min_count)

    def by_group(values: NDArray[Any], hidden: int) -> NDArray[Any]:
        return np.where(hide_group, hidden, member @ values[named])

    shown = ~hide_atom
    return Audit(
        client=client,
        n=int(counts.total.sum()),
        groups=groups,
        min_count=min_count,
        alpha=None if alpha is None else float(checks.alpha(alpha)),
        predictor=predictor,
        uncovered=-(-outside // min_count) * min_count if hide_outside else outside,
        total=by_group(counts.total, -1),
        covered=by_group(counts.covered, -1),
        bound=np.where(hide_group, -(-total // min_count) * min_count, total),
        size=None if counts.size is None else by_group(counts.size, 0),
        unbounded=by_group(counts.unbounded, 0),
        atom_membership=inside[shown],
        atom_total=atom_total[shown],
        atom_covered=counts.covered[named][shown],
        atom_size=None if counts.size is None else counts.size[named][shown],
        atom_unbounded=counts.unbounded[named][shown],
        suppressed_atoms=int(np.count_nonzero(hide_atom)),
    )


def _suppressed(inside: Bools, atom_total: Ints, outside: int, m: int) -> tuple[Bools, Bools, bool]:
    """Which groups and which atoms to hide, and whether to hide the number of records in no group.

    Hidden is what is small, and what would give something small away by subtraction. The number n
    of all records is always published. So all records together are treated as one more group, which
    is never hidden, and the records in no group as one more atom. A cell is an atom or this one.

    - `inside`, `atom_total`: The groups (a, G) and the size (a,) of each atom.
    - `outside`: How many records are in no group.
    - `m`: The smallest number that may be published.
    """
    G, a = inside.shape[1], len(inside)
    cells = np.zeros((a + 1, G + 1), dtype=np.bool_)
    cells[:a, :G] = inside
    cells[:, G] = True
    size = np.append(atom_total, outside)
    group_size = cells.astype(np.int64).T @ size
    hide_group = (group_size > 0) & (group_size < m)
    hide_group[G] = False
    hide_cell = size < m
    order = np.argsort(size, kind="stable")

    def hide_one_of(candidates: Bools) -> bool:
        """Hide the smallest cell among the candidates that is not hidden yet, if there is one.

        It has at least m records, so that the hidden cells together have at least m, too.
        """
        shown = order[(candidates & ~hide_cell)[order]]
        if len(shown):
            hide_cell[shown[0]] = True
        return bool(len(shown))

    def leak() -> bool:
        """Find a small number that subtraction would give away, and hide a cell or a group so
        that it does not. Returns whether there was one."""
        groups = np.flatnonzero(~hide_group & (group_size > 0))
        for g in groups:
            if 0 < size[cells[:, g] & hide_cell].sum() < m and hide_one_of(cells[:, g]):
                return True
        for g in groups:
            for h in groups[groups < G]:
                if h == g or (cells[:, h] & ~cells[:, g] & (size > 0)).any():
                    continue
                if 0 < size[cells[:, g] & ~cells[:, h]].sum() < m:
                    hide_group[h] = True
                    return True
        return False

    if m > 1:
        while leak():
            pass
    return hide_group[:G], hide_cell[:a], bool(outside and hide_cell[a])
