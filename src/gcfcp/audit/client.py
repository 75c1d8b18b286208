"""Was the promise kept? At a client: counts from labelled data, and nothing else leaves.

`audit` counts how many records of each group and of each atom were covered. Audits merge as
summaries do; `coverage` makes intervals and verdicts of them.

Disclosure control: with `min_count=m` a group or an atom of fewer than m records is suppressed, and
so is what would give it away by subtraction: an atom, where the group less its other atoms would be
small, or a group, where it is nested in another (or in all n records) and the rest would be small.
Of a suppressed group only a bound on its size is published, a multiple of m; an interval takes
these records as missed at its lower end and as covered at its upper, so it holds all the same.
(Other linear combinations of overlapping groups are not examined.)
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
    """Count at one client who was covered, by group and by atom.

    covered: for each labelled record, whether its outcome was in the set. set_size: labels in each
    set or width of each interval (inf allowed, 0 if empty). min_count: smaller groups and atoms are
    suppressed, see the module. alpha, predictor: what was promised, and by which predictor (any
    fingerprint); they travel along, and `merge_audits` refuses to mix different ones.
    """
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
    """The audit of counts that may have been added up over a stream: suppress, then freeze."""
    min_count = checks.min_count(min_count)
    named = counts.membership.any(axis=1)
    inside = counts.membership[named]
    atom_total = counts.total[named]
    member = inside.astype(np.int64).T  # (G, a)
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
    """Groups, atoms and whether the records in no group are to be hidden: what is small, and what
    would give something small away by subtraction.

    n is published, so all records together are one more group here, which is never hidden, and
    those in no group one more atom of it.
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
        """Hide the smallest cell still shown among the candidates; it has at least m records."""
        shown = order[(candidates & ~hide_cell)[order]]
        if len(shown):
            hide_cell[shown[0]] = True
        return bool(len(shown))

    def leak() -> bool:
        """Close one leak, if there is one."""
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
