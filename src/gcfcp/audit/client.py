"""An audit at a client: counts of labelled records, and nothing else leaves the site.

`audit` counts how many records of each group and of each atom were covered. The server merges the
audits of all clients into intervals and verdicts; see `coverage`.

Disclosure control. With `min_count=m` above 1 an audit counts by group only: n, and for each group
g the columns "in g" and "in g and missed". What may be published of these 2 G columns is decided by
the rule of summaries by group (`gcfcp.summary.cells`), as if they were 2 G groups:

- A column of fewer than m records is hidden, and the audit says "at most m - 1", whatever the
  number is.
- If a combination of counts is 0 for all records but fewer than m (the missed records of all less
  those of men and of women; the records of a group less its missed ones, which are the covered
  ones), one of its columns is described by what the others say, so that this number does not show.
  The audit says how far these counts may be from the truth: see `record.Told`.
- Covered records are a cell as missed ones are, also where they are found by six counts: if a
  combination of groups has fewer than m covered records, but m or more records, the missed records
  of one of its groups are not told.
- Of m to 2 m - 2 records, not both the covered and the missed ones can be m or more, so that it
  would tell something whether these are. If a group or a combination has so few, the missed records
  of this group, or of one of the combination, are not told.
- If missed records are nearly the same records as a group, so that exceptions on both sides would
  show, the missed records of the last groups are not told.

What is not hidden is what `cells` says. Neither atoms nor records in no group nor sums of set sizes
nor numbers of full or empty sets are published: the sizes of intervals are often the same for all
records of an atom and known from the predictor, so that one sum would tell how many records of each
atom there are.

If the groups overlap in so many ways that combinations cannot be searched for, less is told and
never more: the missed records of the first half of the groups, of the first quarter, and so on; and
if the groups themselves overlap too much, nothing at all of the others. So put the groups that
matter most first. For 12, 20, 30 and 50 groups that overlap at random the search took 0.2, 2, 9
and 18 s, and nearly all were told.

An interval counts as many records as missed as the counts allow at its lower end, and as few at its
upper end, so that it remains valid.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gcfcp import checks
from gcfcp.arrays import Bools, Ints
from gcfcp.audit.counts import Counts, count
from gcfcp.audit.record import Audit, Told
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.summary import (
    ALL,
    Counted,
    certain_groups,
    counted,
    possible_groups,
    small_combinations,
)


def audit(
    covered: ArrayLike,
    membership: Any,
    *,
    groups: Groups,
    client: str,
    set_size: ArrayLike | None = None,
    labels: int | None = None,
    thresholds: ArrayLike | None = None,
    min_count: int = 1,
    alpha: float | None = None,
    predictor: str | None = None,
    everything: ArrayLike | None = None,
    share: float | None = None,
    round: str | None = None,
    date: str | None = None,
) -> Audit:
    """Count at one client how many labelled records were covered, by group and by atom.

    - `covered`: For each record, whether its outcome was in its prediction set.
    - `membership`: The groups of each record, (n, G). If the groups have sites, the columns of the
      sites may be left out: they are filled in from `client`, which is one of the sites.
    - `set_size`: The number of labels in each set or the width of each interval. It is infinite for
      an unbounded set and 0 for an empty one.
    - `labels`: How many labels there are in all, so that sets that hold every label are counted.
    - `thresholds`: The threshold of each record, so that infinite ones are counted.
    - `min_count`: No number below this is told, neither of covered nor of missed records; see the
      module. With more than 1, only groups are counted.
    - `alpha`: The share of outcomes that may be missed, as it was promised.
    - `predictor`: A fingerprint of the predictor that was audited. `merge_audits` refuses audits of
      different predictors.
    - `everything`: For each group, whether the predictor gives every record in it an infinite
      threshold, as `Predictor.gives_everything` says. It is no secret, since it follows from the
      predictor alone, and with a `min_count` it is all that is told of such sets.
    - `share`: pi_k, the weight of this client in the mixture of the predictor (from 0 to 1), as
      `Predictor.share_of` gives it. `merge_audits` weighs the clients by their shares.
    - `round`, `date`: The round that the audit belongs to, such as "2026Q4", and the day on which
      it was made, such as "2026-11-17". Audits of different rounds are not merged.
    """
    if groups.sites:
        membership = groups.complete(membership, client)
    counts = count(
        covered,
        membership,
        groups=groups,
        set_size=set_size,
        labels=labels,
        thresholds=thresholds,
    )
    return publish(
        counts,
        groups=groups,
        client=client,
        min_count=min_count,
        alpha=alpha,
        predictor=predictor,
        everything=everything,
        share=share,
        round=round,
        date=date,
    )


def publish(
    counts: Counts,
    *,
    groups: Groups,
    client: str,
    min_count: int = 1,
    alpha: float | None = None,
    predictor: str | None = None,
    everything: ArrayLike | None = None,
    share: float | None = None,
    round: str | None = None,
    date: str | None = None,
) -> Audit:
    """The audit that a client publishes for these counts, with small numbers suppressed.

    The counts may be those of several batches, added up. The other arguments are those of `audit`.
    """
    min_count = checks.min_count(min_count)
    fields: dict[str, Any] = {
        "client": client,
        "min_count": min_count,
        "alpha": None if alpha is None else float(checks.alpha(alpha)),
        "predictor": predictor,
        "everything": None if everything is None else np.asarray(everything, dtype=np.bool_),
        "share": share,
        "round": round,
        "date": date,
    }
    n = int(counts.total.sum())
    if min_count > 1:
        possible, certain = possible_groups(groups, client), certain_groups(groups, client)
        told = _told(counts, possible, certain, min_count)
        return Audit.of_told(told, n=n, groups=groups, **fields)
    named = counts.membership.any(axis=1)
    inside = counts.membership[named]
    member = inside.astype(np.int64).T  # (G, a): 1 where the atom lies in the group.
    total = member @ counts.total[named]
    return Audit(
        n=n,
        groups=groups,
        uncovered=int(counts.total[~named].sum()),
        total=total,
        covered=member @ counts.covered[named],
        bound=total,
        size=None if counts.size is None else member @ counts.size[named],
        unbounded=member @ counts.unbounded[named],
        atom_membership=inside,
        atom_total=counts.total[named],
        atom_covered=counts.covered[named],
        atom_size=None if counts.size is None else counts.size[named],
        atom_unbounded=counts.unbounded[named],
        sets=None if counts.sets is None else counts.sets.by_group(counts.membership.T * 1),
        **fields,
    )


def _told(counts: Counts, possible: Bools, certain: Bools, m: int) -> Told:
    """What is told of each group, by the rules of the module.

    - `possible`, `certain`: The groups that the client can have, and those that every record is
      in, (G,).
    """
    atoms, missed = counts.membership, counts.total - counts.covered
    G, n = atoms.shape[1], int(counts.total.sum())
    # Each atom is divided in two: its covered records, and its missed ones.
    rows = np.block([[atoms, np.zeros_like(atoms)], [atoms, atoms]])
    sizes = np.concatenate([counts.covered, missed])
    rows, sizes = rows[sizes > 0], sizes[sizes > 0]
    can = np.append(possible, possible)
    sure = np.append(certain, np.zeros(G, dtype=np.bool_))

    @cache  # It is asked for twice: alone, and for comparison.
    def plain_of(groups: int) -> Counted:
        """What is told of the first groups without their missed records."""
        return counted(rows[:, :groups], sizes, can[:groups], sure[:groups], m)

    def found_of(groups: int, missed: int) -> tuple[Ints, Counted]:
        """What is told of the first groups, and of the missed records of the first of them."""
        untold = _untold(counts, np.flatnonzero(possible[:missed]).tolist(), m)
        told = np.setdiff1d(np.arange(missed), untold)
        plain = plain_of(groups)
        while len(told):
            shown = np.concatenate([np.arange(groups), G + told])
            found = counted(rows[:, shown], sizes, can[shown], sure[shown], m)
            if not _shows_exceptions(found, plain).any():
                return shown, found
            told = told[:-1]
        return np.arange(groups), plain

    shown, found = _first(found_of, G)
    count, strangers = np.full(2 * G, -1), np.zeros(2 * G, dtype=np.int64)
    bound = np.where(can, n, 0)  # Of what is not told, anything is possible.
    count[shown] = np.where(found.hidden, -1, sizes @ found.members)
    strangers[shown] = found.strangers
    bound[shown] = found.bound
    return Told(count[:G], strangers[:G], bound[:G], count[G:], strangers[G:], bound[G:])


def _first(found_of: Callable[[int, int], tuple[Ints, Counted]], G: int) -> tuple[Ints, Counted]:
    """The most that can be told of G groups, if some of them overlap in too many ways."""
    halves = [G >> k for k in range(G.bit_length())]  # G, G / 2, ..., 1.
    every = _possible(found_of, G, 0)
    attempts = [(G, k) for k in halves] if every else [(k, k) for k in halves[1:]]
    for groups, missed in attempts:
        found = _possible(found_of, groups, missed)
        if found:
            return found
    return every or found_of(0, 0)


def _possible(
    found_of: Callable[[int, int], tuple[Ints, Counted]], groups: int, missed: int
) -> tuple[Ints, Counted] | None:
    """What is told, or None if the search for combinations would take too long."""
    try:
        return found_of(groups, missed)
    except GCFCPError:
        return None


def _shows_exceptions(found: Counted, plain: Counted) -> Bools:
    """Which columns show that records of theirs are not among those that describe them.

    That happens where missed records are nearly the same records as a group, each with a few that
    the other does not have.

    - `plain`: What is told of the groups without their missed records. What is shown there is not
      counted again.
    """
    shows = ~found.hidden & (found.bound > 0)
    groups = len(plain.bound)
    shows[:groups] &= found.bound[:groups] > plain.bound
    return shows


def _untold(counts: Counts, groups: list[int], m: int) -> list[int]:
    """The groups whose missed records are not told; see the module.

    Of each combination that asks for it the last group is chosen, unless one is chosen already.
    """
    atoms, total = counts.membership, counts.total
    sizes = total @ atoms
    chosen = {g for g in groups if m <= sizes[g] < 2 * m - 1}
    for by, limit in ((total, 2 * m - 1), (counts.covered, m)):
        for combination in small_combinations(atoms, by, groups, limit):
            places = {g for g, _ in combination if g != ALL}
            value = sum(c * (np.int64(1) if g == ALL else atoms[:, g]) for g, c in combination)
            # With fewer than m records in all, `counted` makes sure that nothing shows.
            if total[np.asarray(value) != 0].sum() >= m and not chosen & places:
                chosen.add(max(places))
    return sorted(chosen)
