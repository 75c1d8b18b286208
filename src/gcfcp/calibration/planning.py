"""What a calibration would give: which thresholds will be infinite, why, and what would help.

With W_G the weight of a group and I_G its part at +inf, suppressed records included in both, the
group has a finite threshold on its own if and only if (1 - alpha)(W_G + w_test) <= W_G - I_G. A
small client with a large share of the mixture has a large pi_k / (n_k + 1), which makes w_test
large for all groups at once. Where groups overlap, an atom can have no finite threshold although
each of its groups has one; the plan finds these atoms by solving the problem.

Cost: that of a calibration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Bools
from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.problem import Problem, Weights, problem_of, shares_of
from gcfcp.calibration.reasons import AtomRecord, atom_records, shares_of_test
from gcfcp.calibration.screening import Screening, screen
from gcfcp.calibration.server import solve_table
from gcfcp.summary import ClientSummary


@dataclass(frozen=True)
class ClientPlan:
    """What the plan says about one client."""

    client: str
    n: int  # How many records it has.
    share: float  # pi_k, its weight in the mixture.
    test_share: float  # Its part of w_test, which is large for a small client with a large share.
    suppressed: int  # How many of its records are suppressed.


@dataclass(frozen=True)
class GroupPlan:
    """What the plan says about one group."""

    group: str
    records: int  # How many described records it has.
    weight: float  # W_G = sum_k lambda_k n_kG: about its share of the mixture.
    finite: bool  # Whether it has a finite threshold on its own. An atom of it may still have none.
    missing: int | None  # How many more records it needs; None if no number of them would help.
    growth: float | None  # The factor by which all clients must grow; None if none is enough.
    least_alpha: float  # The smallest alpha at which it is finite on its own with these records.


@dataclass(frozen=True)
class Plan:
    """What a calibration of these summaries would give, and what would make more of it finite."""

    alpha: float
    test_weight: float  # w_test, the weight of the test point.
    clients: tuple[ClientPlan, ...]
    groups: tuple[GroupPlan, ...]
    atoms: tuple[AtomRecord, ...]  # One record for each atom, with its threshold.
    advice: tuple[str, ...]  # Sentences that say what would help; none if every atom is finite.
    screening: tuple[Screening, ...] = ()  # How far each client is from the others; see `screen`.

    @property
    def finite(self) -> bool:
        """Whether every atom will have a finite threshold."""
        return all(a.reason is None for a in self.atoms)

    def __str__(self) -> str:
        lines = [
            f"alpha={self.alpha:g}, test weight {self.test_weight:.4g}",
            *(
                f"  {g.group}: {g.records:,} records, weight {g.weight:.4f}: {_state(g)}"
                for g in self.groups
            ),
        ]
        lines += [
            f"  atom {' & '.join(a.groups)}: {a.threshold}: {a.reason}"
            for a in self.atoms
            if a.reason is not None
        ]
        lines += [f"  ! {s}" for s in self.screening if s.flagged]
        return "\n".join([*lines, *(f"  -> {a}" for a in self.advice)])


def _state(group: GroupPlan) -> str:
    """Whether the group is finite on its own and, if it is not, how many records it needs."""
    if group.finite:
        return "finite"
    if group.missing is None or group.growth is None:
        return "INFINITE, and more records of the same kind would not help"
    return (
        f"INFINITE, {group.missing:,} more records are needed (all clients must grow by a factor "
        f"of {group.growth:.3g})"
    )


def plan(
    summaries: Iterable[ClientSummary],
    alpha: float = 0.1,
    mixture: Mixture = "uniform",
    merge: str = "pool",
    *,
    rule: str = "simultaneous",
    delta: float | None = None,
) -> Plan:
    """Which thresholds would be infinite, why, how many records are missing, and what would help.

    The arguments are those of `calibrate`. No warning is given: the plan says everything.
    """
    problem = problem_of(summaries, alpha, mixture, merge, delta)
    records = atom_records(problem, solve_table(problem, rule))
    return Plan(
        alpha=float(problem.alpha),
        test_weight=problem.weights.test / problem.weights.unit,
        clients=_client_plans(problem),
        groups=_group_plans(problem),
        atoms=records,
        advice=_advice(problem, records),
        screening=screen(problem.summaries),
    )


def _client_plans(problem: Problem) -> tuple[ClientPlan, ...]:
    """One record for each client, in the order of the clients' names."""
    part = shares_of_test(problem)
    return tuple(
        ClientPlan(s.client, s.n, float(p), float(t), s.suppressed)
        for s, p, t in zip(problem.summaries, problem.shares, part, strict=True)
    )


def _group_plans(problem: Problem) -> tuple[GroupPlan, ...]:
    """One record for each group, in the order of the groups."""
    weights, tally = problem.weights, problem.tally
    counts = tally.described.sum(axis=0)
    mass = weights.rate @ tally.described / weights.unit
    alone, least = tally.finite_alone(weights, problem.alpha), tally.least_alpha(weights)
    plans = []
    for g, name in enumerate(problem.groups.names):
        missing, growth = (0, 1.0) if alone[g] else _missing(problem, g)
        plans.append(
            GroupPlan(
                group=name,
                records=int(counts[g]),
                weight=float(mass[g]),
                finite=bool(alone[g]),
                missing=missing,
                growth=growth,
                least_alpha=float(least[g]),
            )
        )
    return tuple(plans)


def _missing(problem: Problem, g: int) -> tuple[int, float] | tuple[None, None]:
    """The records that group g lacks, and the factor by which all clients must grow to have them.

    Both are None if no growth is enough. Let every client grow by the factor f, and its records of
    each kind with it. A client (or an aggregate of K_k clients) then has the rate
    lambda_k = pi_k / (f n_k + K_k), and with o = (1 - alpha) / alpha the condition of the module is

        sum_k lambda_k (f b_k - K_k o) >= 0,    b_k = (finite records of G) - o (those at +inf).

    Each term rises with f: its derivative is pi_k K_k (b_k + o n_k) / (f n_k + K_k)^2, and
    b_k >= -o n_k. The limit of the sum for large f is sum_k pi_k b_k / n_k; if that is not
    positive, no growth is enough. Otherwise the first whole number of records that is enough is
    found by bisection.
    """
    tally, odds = problem.tally, float((1 - problem.alpha) / problem.alpha)
    finite = tally.described[:, g] - tally.infinite[:, g]
    infinite = tally.infinite[:, g] + tally.suppressed[:, g]
    balance = finite - odds * infinite
    share = np.array([float(p) for p in problem.shares])
    n = np.array([s.n for s in problem.summaries], dtype=np.float64)
    K = np.array([len(s.members) for s in problem.summaries], dtype=np.float64)
    held = int((finite + infinite).sum())

    def enough(more: int) -> bool:
        f = 1 + more / held
        terms = share / (f * n + K) * np.stack([f * balance, -K * odds])
        return math.fsum(terms.ravel()) >= -1e-12 * math.fsum(np.abs(terms).ravel())

    if not held or float(share / n @ balance) <= 0:  # This product is the limit for large f.
        return None, None
    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high, 1 + high / held


def _advice(problem: Problem, records: Sequence[AtomRecord]) -> tuple[str, ...]:
    """What would make more thresholds finite. Each sentence is true on its own."""
    if all(r.reason is None for r in records):
        return ()
    alone = problem.tally.finite_alone(problem.weights, problem.alpha)
    advice = _advice_on_small_clients(problem)
    if not alone.all():
        advice += _advice_on_the_mixture(problem, alone)
        advice += _advice_on_alpha(problem)
    advice += _advice_on_groups(problem, alone)
    if problem.tally.suppressed.any():
        advice.append("a smaller min_count would leave fewer records suppressed")
    return tuple(advice)


def _advice_on_small_clients(problem: Problem) -> list[str]:
    """Name the client with the largest part of w_test, if its part is out of proportion."""
    part = shares_of_test(problem)
    k = int(np.argmax(part))
    if len(part) == 1 or part[k] <= min(0.5, 2 / len(part)):
        return []
    s = problem.summaries[k]
    return [
        f"{s.client} has {s.n:,} records and {part[k]:.0%} of the test weight, since its "
        f"weight in the mixture is {float(problem.shares[k]):.3g}: more records there help "
        "all groups"
    ]


def _advice_on_the_mixture(problem: Problem, alone: Bools) -> list[str]:
    """Name the groups that the proportional mixture would make finite on their own."""
    proportional = shares_of(problem.summaries, "proportional")
    if proportional == problem.shares:
        return []
    other = Weights.of(problem.summaries, proportional, problem.alpha)
    helped = ~alone & problem.tally.finite_alone(other, problem.alpha)
    if not helped.any():
        return []
    return [
        "with mixture='proportional' these groups would be finite on their own: "
        + ", ".join(problem.groups.names_of(helped))
    ]


def _advice_on_alpha(problem: Problem) -> list[str]:
    """Name an alpha at which every group is finite on its own, if there is one below 1."""
    larger = _rounded_up(float(problem.tally.least_alpha(problem.weights).max()))
    return [f"alpha={larger:g} would make every group finite on its own"] if larger < 1 else []


def _advice_on_groups(problem: Problem, alone: Bools) -> list[str]:
    """Name the groups that could be merged or dropped. `alone`: which are finite on their own."""
    if alone.all():
        return ["merge or drop overlapping groups: each of them alone has enough records"]
    if alone.any():
        return [
            f"merge or drop {', '.join(problem.groups.names_of(~alone))}: the other groups have "
            "enough records on their own"
        ]
    return []


def _rounded_up(alpha: float) -> float:
    """The number, rounded up to three significant digits: 0.12345 becomes 0.124."""
    scale = 10.0 ** (2 - math.floor(math.log10(alpha)))
    return math.ceil(alpha * scale) / scale
