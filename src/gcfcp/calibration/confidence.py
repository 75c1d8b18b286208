"""Levels that keep the promise for this very predictor, with a stated confidence.

On average over calibrations a coverage of 1 - alpha lets one predictor fall short. With
`confidence=0.95` the probability that any group of the predictor has a coverage below 1 - alpha is
at most 0.05. The share 1 - confidence is divided among the groups that some client with weight can
have, and each group gets the lowest level at which a lower confidence bound on its coverage reaches
1 - alpha (`gcfcp.bounds.levels`; theorem 3 of docs/guarantees.md). There is no test point.

It needs one group at a time (rule "max") and scores that are not represented too low (`upper`).
Suppressed records count as missed, and strangers (see `summary.cells`) as not covered.

| here   | docs/guarantees.md                                |
|--------|---------------------------------------------------|
| `tail` | eta / G, what a single group may fail with        |
| `v`    | omega_k = pi_k / n_k, the weight of a record      |

Cost: some sums over the sorted centroids of each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from gcfcp.arrays import Bools, Floats
from gcfcp.bounds import Evidence, lowest_certain

if TYPE_CHECKING:
    from gcfcp.calibration.correction import Sizes
    from gcfcp.calibration.problem import Problem


def tail_of(confidence: float, possible: Bools) -> float:
    """The probability with which a single group may fail.

    - `possible`: The groups that each client with weight can have, (K, G).
    """
    return (1 - confidence) / max(1, int(possible.any(axis=0).sum()))


def exact_groups(
    shares: Sequence[Fraction], n: Sequence[int], sizes: Sizes, everyone: Bools
) -> Bools:
    """For which groups the exact bound of Clopper and Pearson holds, bool (G,).

    That is so if one client alone can have the group, and if every record is in the group by
    definition and all records weigh the same.
    """
    active = [k for k, share in enumerate(shares) if share > 0]
    alike = len({shares[k] / n[k] for k in active}) == 1
    able = sizes.possible[active]
    alone = (able.sum(axis=0) == 1) & (able * (sizes.members[active] == 1)[:, None]).any(axis=0)
    found: Bools = alone | (everyone if alike else np.zeros_like(everyone))
    return found


def confident_levels(problem: Problem) -> Floats:
    """The level of each group, float (G,)."""
    assert problem.confidence is not None
    pool, rate = problem.pool, problem.weights.rate
    order = np.argsort(pool.values, kind="stable")
    order = order[rate[pool.owner[order]] > 0]
    levels = []
    for g in range(len(problem.groups)):
        mine = order[pool.membership[pool.atom[order], g]]
        evidence = _evidence(problem, g, pool.values[mine], pool.counts[mine], pool.owner[mine])
        levels.append(_lowest(problem, evidence, problem.alpha, rate > 0))
    return np.array(levels)


def finite_with_confidence(
    problem: Problem, alpha: Fraction, rate: Floats, factors: Floats | float, exact: Bools
) -> Bools:
    """Which groups would have a finite level, bool (G,), if this were different.

    - `rate`: The weight of a record of each client, (K,).
    - `factors`: How many times as many records all clients have, or each of them, (K,).
    - `exact`: For which groups the exact bound holds.
    """
    tally, active = problem.tally, rate > 0
    times = np.broadcast_to(factors, rate.shape)
    grown = tally.times(times)
    found = []
    for g in range(len(problem.groups)):
        finite = (grown.described - grown.infinite)[:, g]
        missed = (grown.infinite + grown.suppressed)[:, g]
        held = active & (finite >= 1)
        lost = active & (missed > 0)
        evidence = Evidence(
            values=np.zeros(int(held.sum())),
            counts=np.floor(finite[held]).astype(np.int64),
            v=rate[held],
            hidden=np.ceil(missed[lost]),
            hidden_v=rate[lost],
            strange=tally.strangers[active, g].astype(np.float64),
            strange_v=rate[active],
            heaviest=float(rate[active & problem.sizes.possible[:, g]].max(initial=0.0)) or 1.0,
            n=max(1, int((problem.sizes.n * times)[active & problem.sizes.possible[:, g]].sum())),
            exact=bool(exact[g]),
            certain=bool(problem.groups.everyone[g]),
        )
        found.append(np.isfinite(_lowest(problem, evidence, alpha, active)))
    return np.array(found)


def _lowest(problem: Problem, evidence: Evidence, alpha: Fraction, active: Bools) -> float:
    """The lowest level that the evidence allows. `active` are the clients that have weight."""
    assert problem.confidence is not None
    if not len(evidence.values):
        return np.inf
    tail = tail_of(problem.confidence, problem.sizes.possible[active])
    return lowest_certain(evidence, float(alpha), tail)


def _evidence(problem: Problem, g: int, values: Floats, counts: Floats, owner: Floats) -> Evidence:
    """What is known about the scores of group g, which are ascending."""
    rate, sizes = problem.weights.rate, problem.sizes
    able = (rate > 0) & sizes.possible[:, g]
    hidden = np.where(able, problem.tally.suppressed[:, g], 0)
    return Evidence(
        values=values,
        counts=counts.astype(np.int64),
        v=rate[owner.astype(np.int64)],
        hidden=hidden[hidden > 0].astype(np.float64),
        hidden_v=rate[hidden > 0],
        strange=problem.tally.strangers[able, g].astype(np.float64),
        strange_v=rate[able],
        heaviest=float(rate[able].max(initial=0.0)) or 1.0,
        n=max(1, int(sizes.n[able].sum())),
        exact=bool(problem.exact[g]),
        certain=bool(problem.groups.everyone[g]),
    )
