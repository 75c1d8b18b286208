"""What is promised for each group, and on what ground: proved, argued or measured.

| here        | paper                                                          |
|-------------|----------------------------------------------------------------|
| `lower`     | 1 - alpha - sin(pi / delta) (Theorem 5.1)                      |
| `certified` | 1 - alpha - sum_{A in G} W_A epsilon_A / D, errors as occurred |
| `upper`     | the bound of Theorem C.1, with eta                             |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Floats
from gcfcp.calibration.problem import Problem

PROVED = "proved"
PAPER = "proved under the paper's argument"
MEASURED = "measured"


@dataclass(frozen=True)
class Guarantee:
    """What is promised for one group, and on what ground.

    lower: the paper's bound 1 - alpha - sin(pi / delta), with one term more after recompression.
    Where a digest is coarser than that (an aggregate, or `min_count`), its certified error takes
    the place of sin(pi / delta).
    certified: the same with the errors that really occurred; 1 - alpha with `upper`.
    upper: the paper's bound on over-coverage (Theorem C.1) with confidence 1 - eta / 2, the
    group's share of each client taken from its records; scores must have no ties. It is 1 for
    rule="max" and where records are suppressed, which the theorem does not speak of.

    A status is "proved" for rule="max" and for disjoint groups, with `upper` or, for `lower`, with
    a bound that does not depend on the data, and for one client that sends every score; otherwise
    "proved under the paper's argument" or "measured". Groups count as disjoint if no record that
    is described belongs to two. (A row in two groups that turns up later is still covered if
    scores are not negative; where records are suppressed, disjoint groups need that, too.)
    """

    group: str
    lower: float
    lower_status: str
    certified: float
    certified_status: str
    upper: float
    upper_status: str
    eta: float
    weight: float  # W_G: the group's share of the mixture
    records: int
    effective_n: float  # (sum of weights)^2 / sum of squared weights


def guarantees_of(problem: Problem, rule: str, eta: float) -> tuple[Guarantee, ...]:
    summaries, weights, tally = problem.summaries, problem.weights, problem.tally
    alpha = float(problem.alpha)
    one_sided = summaries[0].representative == "upper"
    proof = rule == "max" or _disjoint(problem)
    one_exact_client = (
        len(summaries) == 1
        and not summaries[0].is_aggregate
        and not problem.slack.any()
        and not summaries[0].suppressed
    )
    worst_case = max(math.sin(math.pi / s.delta) for s in summaries)
    occurred = max(float((s.errors / s.atom_counts).max(initial=0.0)) for s in summaries)
    epsilon = max(worst_case, occurred)
    if problem.delta is not None:  # one sin(pi / delta) for each level of compression
        epsilon += math.sin(math.pi / problem.delta)
    by_group = problem.slack @ problem.pool.membership
    slack = by_group / (tally.weights(weights.rate) + weights.test)
    squares = weights.rate**2 @ tally.described
    mass = weights.rate @ tally.described
    upper = _over_coverage(problem, epsilon, eta)
    if rule == "max" or tally.suppressed.any():
        upper = np.ones(len(upper))
    return tuple(
        Guarantee(
            group=name,
            lower=max(0.0, 1 - alpha - epsilon),
            lower_status=PROVED
            if one_exact_client or (proof and (one_sided or occurred <= worst_case))
            else PAPER,
            certified=1 - alpha if one_sided else max(0.0, 1 - alpha - float(slack[g])),
            certified_status=PROVED
            if one_exact_client or (proof and one_sided)
            else (PAPER if proof else MEASURED),
            upper=float(upper[g]),
            upper_status=PAPER,
            eta=eta,
            weight=float(mass[g] / weights.unit),
            records=int(tally.described[:, g].sum()),
            effective_n=float(mass[g] ** 2 / squares[g]) if squares[g] else 0.0,
        )
        for g, name in enumerate(problem.groups.names)
    )


def _disjoint(problem: Problem) -> bool:
    """Whether no record is known to belong to two groups, nor could do harm if one did.

    The threshold of a row in two disjoint groups is the sum of theirs, so it is no less than
    either if scores are not negative.
    """
    if (problem.pool.membership.sum(axis=1) > 1).any():
        return False
    return not problem.tally.suppressed.any() or bool(problem.pool.values.min() >= 0)


def _over_coverage(problem: Problem, epsilon: float, eta: float) -> Floats:
    """1 - alpha + epsilon + |G| max(pi/delta, w_test) / sum_k pi_k n_k/(n_k+1) (p_kG - margin).

    margin = sqrt(log(2K/eta) / (2 n_k)). The paper's p_kG is unknown; the share of the group among
    client k's records stands for it. pi/delta bounds the weight of a centroid; where one is
    heavier, its own weight does.
    """
    K, unit = len(problem.summaries), problem.weights.unit
    n = np.array([s.n for s in problem.summaries], dtype=np.float64)
    members = np.array([len(s.members) for s in problem.summaries])
    shares = np.array([float(p) for p in problem.shares])
    margin = np.sqrt(math.log(2 * K / eta) / (2 * n))
    seen = problem.tally.described / n[:, None] - margin[:, None]
    mass = (shares * n / (n + members)) @ seen
    step = max(
        *(math.pi / s.delta for s in problem.summaries),
        problem.weights.test / unit,
        float(problem.coreset.weights.max()) / unit,
    )
    extra = np.full(len(mass), np.inf)
    np.divide(len(problem.groups) * step, mass, out=extra, where=mass > 0)
    bound: Floats = np.minimum(1.0, 1 - float(problem.alpha) + epsilon + extra)
    return bound
