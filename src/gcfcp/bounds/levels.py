"""The lowest threshold at which a lower confidence bound on coverage reaches 1 - alpha.

A calibration that promises 1 - alpha on average may fall short in one predictor. Here the promise
is about the very predictor that is made: with probability at least 1 - tail, its coverage of a
group is at least 1 - alpha. docs/guarantees.md has the proof (theorem 3, after Bates et al. 2021):
at each fixed threshold t it is tested whether the coverage at t is below 1 - alpha, and the lowest
t at which this is rejected is taken. The tests are nested, so that no union over t is needed.

Which test. The records of client k weigh v_k = pi_k / n_k each.

- One client: the bound of Clopper and Pearson. Given the number N of records in the group, the
  number of covered ones is binomial.
- Several clients, all records weigh the same, and every record is in the group by definition: the
  same bound. The number of covered records is a sum of independent indicators with different
  chances, and Hoeffding (1956, theorem 4) shows that P(sum >= h) is at most that of a binomial
  with the average chance, for every h of at least the mean plus 1.
- Any other case: the bet E = average over stakes f of
  prod_k (1 + f r_k alpha / (1 - alpha))^A_k (1 - f r_k)^B_k, where A_k records of client k are
  covered and B_k are missed, and r_k = v_k / max_j v_j. If the coverage is below 1 - alpha, the
  mean of E is at most 1 (see `betting`), so that E >= 1 / tail happens with probability at most
  `tail`. The stakes are powers of 1/2, from 1 down to the one that is best for a group that has
  all n records. They depend on n, alpha and tail only.

Records that a client withholds count as missed. Of records that may not be in the group, so many
covered ones are not counted. Neither ever raises E or the exact bound.

Cost: some sums over the sorted scores of a group, for each stake.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.bounds.beta import lower_bound

_ROUNDING = 1e-9  # A bet must exceed what is needed by this part, far above rounding errors.


@dataclass(frozen=True)
class Evidence:
    """What is known about the scores of one group, for the clients that can have it."""

    values: Floats  # (m,): The scores in ascending order; +inf may be among them.
    counts: Ints  # (m,): How many records each score stands for.
    v: Floats  # (m,): The weight of one record of the score's client.
    hidden: Floats  # (h,): How many records each client may withhold.
    hidden_v: Floats  # (h,): The weight of one record of that client.
    strange: Floats  # (q,): How many records of each client may not be in the group.
    strange_v: Floats  # (q,): The weight of one record of that client.
    heaviest: float  # The largest weight of a record of any client that can have the group.
    n: int  # How many records these clients have, in the group or not.
    exact: bool  # Whether the exact bound may be used; see the module.
    certain: bool  # Whether every record is in the group by definition.


def lowest_certain(group: Evidence, alpha: float, tail: float) -> float:
    """The lowest score t at which the coverage is at least 1 - alpha with confidence 1 - tail.

    It is +inf if there is none among the finite scores. The coverage is that of {s <= t}.
    """
    last = np.ones(len(group.values), dtype=bool)  # Equal scores are covered together.
    last[:-1] = group.values[1:] != group.values[:-1]
    if group.exact:
        covered = np.cumsum(group.counts)
        misses = covered[-1] - covered + int(group.hidden.sum()) if len(covered) else covered
        hits = np.maximum(covered - int(group.strange.sum()), 0)
        reached = _exactly(hits, misses, alpha, tail, group.certain)
    else:
        reached = _by_betting(group, alpha, tail)
    good = np.flatnonzero(reached & last & np.isfinite(group.values))
    return float(group.values[good[0]]) if len(good) else math.inf


def _exactly(hits: Ints, misses: Ints, alpha: float, tail: float, certain: bool) -> Bools:
    """Whether Clopper and Pearson's bound is at least 1 - alpha after each score, bool (m,).

    The bound rises with every hit, so that the first score at which it is reached is found by
    halving.
    """
    low, high = 0, len(hits)
    while low < high:
        middle = (low + high) // 2
        h, m = int(hits[middle]), int(misses[middle])
        enough = lower_bound(h, m, tail) >= 1 - alpha
        if certain:  # Hoeffding's theorem begins one record above the mean.
            enough = enough and h >= (h + m) * (1 - alpha) + 1
        low, high = (low, middle) if enough else (middle + 1, high)
    return np.arange(len(hits)) >= low


def _by_betting(group: Evidence, alpha: float, tail: float) -> Bools:
    """Whether E >= 1 / tail after each score, bool (m,)."""
    stakes = _stakes(group.n, alpha, tail)
    r, hidden_r = group.v / group.heaviest, group.hidden_v / group.heaviest
    odds, strange_r = alpha / (1 - alpha), group.strange_v / group.heaviest
    logs = np.empty((len(stakes), len(group.values)))
    with np.errstate(divide="ignore"):
        for i, f in enumerate(stakes.tolist()):
            won = np.cumsum(group.counts * np.log1p(f * r * odds))
            won = won - float((group.strange * np.log1p(f * strange_r * odds)).sum())
            lost = group.counts * np.log1p(-f * r)
            lost_after = np.append(np.cumsum(lost[::-1])[::-1][1:], 0.0)
            withheld = group.hidden > 0
            lost_hidden = float((group.hidden[withheld] * np.log1p(-f * hidden_r[withheld])).sum())
            logs[i] = won + lost_after + lost_hidden
    needed = math.log(len(stakes) / tail) * (1 + _ROUNDING)
    found: Bools = np.logaddexp.reduce(logs, axis=0) >= needed
    return found


def _stakes(n: int, alpha: float, tail: float) -> Floats:
    """Powers of 1/2 from 1 down to the best stake for n records, sqrt(2 log(1/tail) c/(1-c)/n)."""
    best = math.sqrt(2 * math.log(1 / tail) * (1 - alpha) / alpha / n)
    halvings = max(0, math.ceil(-math.log2(min(best, 1.0))))
    return np.asarray(0.5 ** np.arange(halvings + 1))
