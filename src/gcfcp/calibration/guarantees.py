"""What is promised for each group, and whether that is proved, argued in the paper or measured.

| here        | paper                                                                    |
|-------------|--------------------------------------------------------------------------|
| `lower`     | 1 - alpha - sin(pi / delta) (Theorem 5.1)                                |
| `certified` | 1 - alpha - sum_{A in G} W_A epsilon_A / D, with the errors that occurred |
| `upper`     | the upper bound of Theorem C.1, with eta                                 |

Here W_A is the weight of atom A, epsilon_A is the certified error sup |F - F^| of its digests, and
D = W_G + w_test is the weight of the group and the test point.

Why `lower` holds for rule "max". There the threshold tau of a group is a weighted quantile of the
digests: F^ gives the scores up to tau at least the weight (1 - alpha) D. If no digest errs by more
than epsilon, the true scores up to tau weigh at least
(1 - alpha) D - epsilon W_G = (1 - alpha - epsilon) W_G + (1 - alpha) w_test. In the terms of
theorem 1 (docs/guarantees.md) the last part is c, and c is not smaller than the c of the level
alpha + epsilon. So tau is not below the exact threshold for alpha + epsilon, and the coverage is at
least 1 - alpha - epsilon. For this step epsilon must not depend on the data, which is why
`certified`, with the errors that occurred, is not called proved. With `upper` representatives no
score is represented too low, tau is not below the exact threshold for alpha itself, and 1 - alpha
is proved.

A status never depends on what the data happened to show. "Nothing is compressed" means that nothing
could have been: every client has so few records that its digest keeps every score, however they
fall into atoms. For two clusters to be merged, their share of an atom must be at most
sin(pi / delta), and two of n records have at least the share 2 / n.

Counts on a public grid are not a compression in this sense. The grid is fixed before any record is
seen, and rounding up to it gives every record another score, by a rule that is the same for the
test record. All theorems hold for these scores as they do for any. A record whose score on the grid
is covered is covered itself, because its score is not above that on the grid. So the promise of the
simultaneous rule is proved on a grid with any number of records, and for sums of sites, whose
counts lose nothing. With a `min_count` above 1 it is not, because which cells are merged depends on
the records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Floats
from gcfcp.calibration.correction import (
    ONE_CLIENT,
    THEOREM_1,
    THEOREM_2,
    THEOREM_4,
    factor_inside,
)
from gcfcp.calibration.noisy import noisy_levels
from gcfcp.calibration.problem import Problem
from gcfcp.groups import imbalances

PROVED = "proved"
"""The bound has a complete proof; docs/guarantees.md has it or cites it."""

PAPER = "proved under the paper's argument"
"""The bound follows from the paper's proof, of which one step is not complete."""

MEASURED = "measured"
"""The bound held in every federation that was simulated, and no proof is known."""

ON_AVERAGE = "on average over calibrations"
"""The kind of promise that holds for the average of all calibrations that could have happened."""


def promise_of(confidence: float | None) -> str:
    """The kind of promise in words: on average, or for this predictor with some confidence."""
    if confidence is None:
        return ON_AVERAGE
    return f"for this predictor, with {100 * confidence:.6g} % confidence"


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

    `promise` says in words what kind of promise this is. By default it holds on average over
    calibrations, and one predictor may fall short. With a `confidence` it is about this very
    predictor and holds for all groups at once with that probability (theorem 3).

    Each bound has a status. If nothing is compressed, or records are counted on a public grid with
    `min_count=1`, `lower` and `certified` are "proved": for one client by Gibbs et al. (2023), and
    for several by theorem 1 (rule="max") or theorem 2 (rule="simultaneous"). With rule="max" and
    `upper` representatives they are proved with compression too. With rule="max" and `mean`
    representatives `lower` is proved, as long as each digest is that of a client itself and
    `min_count` is 1. All else is "measured". With the paper's correction, rule="simultaneous" is
    proved for one or two groups; for more groups it is "proved under the paper's argument" if the
    groups are unimodular, and "measured" if not, because the paper's weight is then not always
    enough.
    """

    group: str
    lower: float
    lower_status: str
    certified: float
    certified_status: str
    upper: float
    upper_status: str
    theorem: str | None  # The theorem by which `certified` is proved; None if it is not.
    eta: float
    weight: float  # W_G = sum_k lambda_k n_kG: about the group's share of the mixture.
    records: int  # How many described records the group has.
    effective_n: float  # W_G^2 / sum_k lambda_k^2 n_kG: the records if all weighed the same.
    promise: str = ON_AVERAGE  # What kind of promise it is, in words.
    confidence: float | None = None  # That of a promise about this very predictor.
    # The coverage that is aimed at beyond the promise because of noise: alpha - alpha' + q / W_G.
    privacy: float = 0.0
    epsilon: float | None = None  # The largest privacy loss of a record at any site with noise.


def guarantees_of(problem: Problem, eta: float) -> tuple[Guarantee, ...]:
    """What is promised for each group, in the order of the groups."""
    alpha, weights, described = float(problem.alpha), problem.weights, problem.tally.described
    one_sided = problem.summaries[0].representative == "upper"
    epsilon = _error(problem)
    lower_status, certified_status = _statuses(problem, one_sided)
    theorem = _theorem(problem) if certified_status == PROVED else None
    slack = _certified_errors(problem)
    upper = _over_coverage(problem, epsilon, eta)
    if problem.rule == "max" or problem.tally.suppressed.any():
        upper = np.ones(len(upper))
    privacy = _privacy(problem)
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
            upper_status=PAPER if problem.correction.kind == "paper" else MEASURED,
            theorem=theorem,
            eta=eta,
            weight=float(mass[g] / weights.unit),
            records=int(described[:, g].sum()),
            effective_n=float(mass[g] ** 2 / squares[g]) if squares[g] > 0 else 0.0,
            promise=promise_of(problem.confidence),
            confidence=problem.confidence,
            privacy=float(privacy[g]),
            epsilon=None if problem.noise is None else problem.noise.epsilon,
        )
        for g, name in enumerate(problem.groups.names)
    )


def _privacy(problem: Problem) -> Floats:
    """How much of the coverage goes to noise in each group, float (G,); see `noisy`."""
    found = np.zeros(len(problem.groups))
    if problem.noise is None:
        return found
    weight = problem.weights.rate @ problem.tally.described
    found[:] = 1.0  # All of it, where noise hides whether there are records.
    np.divide(noisy_levels(problem)[1], weight, out=found, where=weight > 0)
    lost: Floats = np.minimum(found + float(problem.alpha - problem.noise.alpha), 1.0)
    return lost


def _error(problem: Problem) -> float:
    """The epsilon that is taken from `lower`, as a share of an atom.

    It is the larger of the paper's worst case sin(pi / delta) over all clients and the largest
    certified error that occurred, plus one more sin(pi / delta) if the server compresses again.
    """
    worst_case = max(s.coarseness for s in problem.summaries)
    counts = np.maximum(problem.pool.cell_counts, 1)  # Noisy counts have no errors.
    occurred = float((problem.pool.cell_errors / counts).max())
    epsilon = max(worst_case, occurred)
    if problem.delta is not None:
        epsilon += math.sin(math.pi / problem.delta)
    return epsilon


def _statuses(problem: Problem, one_sided: bool) -> tuple[str, str]:
    """The statuses of `lower` and of `certified`, which are the same for all groups.

    - `one_sided`: Whether every score is represented by a number that is not below it.
    """
    if problem.rule == "max" and one_sided:
        return PROVED, PROVED
    if _sends_every_score(problem):
        status = _uncompressed(problem)
        return status, status
    if problem.rule == "max":
        by_design = all(s.min_count == 1 and not s.is_aggregate for s in problem.summaries)
        return PROVED if by_design else MEASURED, MEASURED
    return MEASURED, MEASURED


def _uncompressed(problem: Problem) -> str:
    """The status if nothing can be compressed."""
    if problem.rule == "max" or problem.correction.kind == "sharp":
        return PROVED
    if len(problem.summaries) == 1 or factor_inside(len(problem.groups), problem.alpha) == 1:
        return PROVED
    atoms = problem.coreset.membership
    return PAPER if all(i.gamma <= 1 for i in imbalances(atoms, atoms)) else MEASURED


def _sends_every_score(problem: Problem) -> bool:
    """Whether no client could have compressed or suppressed anything, whatever its data.

    A summary that says so although it was compressed, as one whose delta was raised afterwards, is
    given away by its certified errors. Counts on a grid say everything about the scores that are
    calibrated, which are those on the grid; adding them up takes nothing away.
    """
    return problem.delta is None and all(s.exact for s in problem.summaries)


def _theorem(problem: Problem) -> str:
    """The theorem that proves the promise, in words."""
    if problem.noise is not None:
        return THEOREM_4
    if problem.rule == "max" and problem.confidence is None and problem.by == "group":
        return THEOREM_1
    if problem.correction.kind == "sharp":
        return problem.correction.theorem
    if problem.rule == "max":
        return THEOREM_1
    return ONE_CLIENT if len(problem.summaries) == 1 else THEOREM_2


def _certified_errors(problem: Problem) -> Floats:
    """sum_{A in G} W_A epsilon_A / D of each group, float (G,), with the errors that occurred.

    It is 0 for a group that no client can have: nothing weighs anything there, the test point
    included, and its threshold is infinite.
    """
    by_group: Floats = problem.slack @ problem.pool.membership
    total = problem.tally.weights(problem.weights.rate) + problem.charged.least
    errors: Floats = np.divide(by_group, total, out=np.zeros_like(by_group), where=total > 0)
    return errors


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
    margin = np.sqrt(math.log(2 * K / eta) / (2 * n))
    seen = problem.tally.described / n[:, None] - margin[:, None]
    mass = (problem.weights.rate / unit * n) @ seen
    step = max(
        *(math.pi / s.delta for s in problem.summaries if s.delta is not None),
        problem.coreset.test / unit,
        float(problem.coreset.weights.max()) / unit,
    )
    extra = np.full(len(mass), np.inf)
    np.divide(len(problem.groups) * step, mass, out=extra, where=mass > 0)
    bound: Floats = np.minimum(1.0, 1 - float(problem.alpha) + epsilon + extra)
    return bound
