"""What is promised for each group, and whether that is proved, argued in the paper or measured.

| here        | paper                                                                    |
|-------------|--------------------------------------------------------------------------|
| `lower`     | 1 - alpha - sin(pi / delta) (Theorem 5.1)                                |
| `certified` | 1 - alpha - sum_{A in G} W_A epsilon_A / D, with the errors that occurred |
| `upper`     | the upper bound of Theorem C.1, with eta                                 |

Here W_A is the weight of atom A, epsilon_A is the certified error sup |F - F^| of its digests, and
D = W_G + w_test is the weight of the group and the test point.

Why `lower` holds for rule "max" and for disjoint groups. There the threshold tau of a group is a
weighted quantile of the digests: F^ gives the scores up to tau at least the weight (1 - alpha) D.
If no digest errs by more than epsilon, the true scores up to tau weigh at least
(1 - alpha) D - epsilon W_G >= (1 - alpha - epsilon) D. So tau is not below the exact threshold for
alpha + epsilon, and the proof for exact thresholds (docs/guarantees.md) gives a coverage of at
least 1 - alpha - epsilon. For this step epsilon must not depend on the data, which is why
`certified`, with the errors that occurred, is not called proved. With `upper` representatives no
score is represented too low, tau is not below the exact threshold for alpha itself, and 1 - alpha
is proved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Floats
from gcfcp.calibration.problem import Problem

PROVED = "proved"
"""The bound has a complete proof; docs/guarantees.md has it or cites it."""

PAPER = "proved under the paper's argument"
"""The bound follows from the paper's proof, of which one step is not complete."""

MEASURED = "measured"
"""The bound held in every federation that was simulated, and no proof is known."""


@dataclass(frozen=True)
class Guarantee:
    """What is promised for one group, and on what ground.

    - `lower`: The paper's bound 1 - alpha - sin(pi / delta). Each further level of compression
      takes away another sin(pi / delta). Where a digest is coarser than sin(pi / delta), because it
      is an aggregate's or because of `min_count`, its certified error takes the place of it.
    - `certified`: The same bound with the errors that really occurred. With `upper`
      representatives it is 1 - alpha.
    - `upper`: The paper's upper bound on coverage (Theorem C.1), which says that sets are not
      needlessly large. It holds with confidence 1 - eta / 2, for scores without ties, with the
      group's share of each client estimated from its records. It is 1, which says nothing, for
      rule="max" and where records are suppressed, because the theorem does not treat these.

    Each bound has a status. The bounds `lower` and `certified` are "proved" for one client that
    sends every score (Gibbs et al. 2023), and for rule="max" and disjoint groups with `upper`
    representatives. With `mean` representatives `lower` is proved for rule="max" and disjoint
    groups as long as no digest errs by more than sin(pi / delta). All else is "proved under the
    paper's argument" or "measured".

    Groups count as disjoint here if no described record belongs to two of them. The threshold of a
    row in two such groups is the sum of both thresholds. If scores are not negative, the sum is not
    below either of them, so that such a row is covered too if it turns up later. Where records are
    suppressed and some scores are negative, groups do not count as disjoint, because a suppressed
    record may belong to two.
    """

    group: str
    lower: float
    lower_status: str
    certified: float
    certified_status: str
    upper: float
    upper_status: str
    eta: float
    weight: float  # W_G = sum_k lambda_k n_kG: about the group's share of the mixture.
    records: int  # How many described records the group has.
    effective_n: float  # W_G^2 / sum_k lambda_k^2 n_kG: the records if all weighed the same.


def guarantees_of(problem: Problem, rule: str, eta: float) -> tuple[Guarantee, ...]:
    """What is promised for each group, in the order of the groups."""
    alpha, weights, described = float(problem.alpha), problem.weights, problem.tally.described
    one_sided = problem.summaries[0].representative == "upper"
    worst_case, occurred, epsilon = _errors(problem)
    lower_status, certified_status = _statuses(problem, rule, one_sided, occurred <= worst_case)
    slack = _certified_errors(problem)
    upper = _over_coverage(problem, epsilon, eta)
    if rule == "max" or problem.tally.suppressed.any():
        upper = np.ones(len(upper))
    mass = weights.rate @ described
    squares = weights.rate**2 @ described
    return tuple(
        Guarantee(
            group=name,
            lower=max(0.0, 1 - alpha - epsilon),
            lower_status=lower_status,
            certified=1 - alpha if one_sided else max(0.0, 1 - alpha - float(slack[g])),
            certified_status=certified_status,
            upper=float(upper[g]),
            upper_status=PAPER,
            eta=eta,
            weight=float(mass[g] / weights.unit),
            records=int(described[:, g].sum()),
            effective_n=float(mass[g] ** 2 / squares[g]) if squares[g] else 0.0,
        )
        for g, name in enumerate(problem.groups.names)
    )


def _errors(problem: Problem) -> tuple[float, float, float]:
    """Three errors of the digests, as shares of an atom.

    Returns the paper's worst case sin(pi / delta) over all clients, the largest certified error
    that occurred at a client, and the epsilon that is taken from `lower`: the larger of the two,
    plus one more sin(pi / delta) if the server compresses the centroids again.
    """
    worst_case = max(math.sin(math.pi / s.delta) for s in problem.summaries)
    occurred = max(float((s.errors / s.atom_counts).max(initial=0.0)) for s in problem.summaries)
    epsilon = max(worst_case, occurred)
    if problem.delta is not None:
        epsilon += math.sin(math.pi / problem.delta)
    return worst_case, occurred, epsilon


def _statuses(
    problem: Problem, rule: str, one_sided: bool, within_worst_case: bool
) -> tuple[str, str]:
    """The statuses of `lower` and of `certified`, which are the same for all groups.

    - `one_sided`: Whether every score is represented by a number that is not below it.
    - `within_worst_case`: Whether no digest errs by more than the paper's sin(pi / delta).
    """
    group_by_group = rule == "max" or _disjoint(problem)
    if _one_exact_client(problem):
        return PROVED, PROVED
    lower = PROVED if group_by_group and (one_sided or within_worst_case) else PAPER
    if group_by_group:
        return lower, PROVED if one_sided else PAPER
    return lower, MEASURED


def _one_exact_client(problem: Problem) -> bool:
    """Whether one client sends every score, so that the theorem of Gibbs et al. applies."""
    first = problem.summaries[0]
    return (
        len(problem.summaries) == 1
        and not first.is_aggregate
        and not problem.slack.any()
        and not first.suppressed
    )


def _certified_errors(problem: Problem) -> Floats:
    """sum_{A in G} W_A epsilon_A / D of each group, float (G,), with the errors that occurred."""
    by_group = problem.slack @ problem.pool.membership
    weights = problem.weights
    errors: Floats = by_group / (problem.tally.weights(weights.rate) + weights.test)
    return errors


def _disjoint(problem: Problem) -> bool:
    """Whether no described record belongs to two groups, and no suppressed one can do harm.

    A suppressed record may belong to two groups. The threshold of a row in two disjoint groups is
    the sum of both thresholds, which is not below either of them if scores are not negative.
    """
    if (problem.pool.membership.sum(axis=1) > 1).any():
        return False
    return not problem.tally.suppressed.any() or bool(problem.pool.values.min() >= 0)


def _over_coverage(problem: Problem, epsilon: float, eta: float) -> Floats:
    """The upper bound of Theorem C.1 for each group, float (G,):

        1 - alpha + epsilon + |G| max(pi / delta, w_test) / sum_k pi_k n_k / (n_k + 1) (p_kG - m_k)

    with m_k = sqrt(log(2 K / eta) / (2 n_k)). The paper's p_kG, the probability of the group at
    client k, is unknown, and the group's share among the client's records stands for it. The
    paper's pi / delta bounds the weight of a centroid; if a centroid is heavier than that, its own
    weight takes the place of it.
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
