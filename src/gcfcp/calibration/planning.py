"""Before anything is calibrated: what will be infinite, why, and what would help.

A group on its own has a finite threshold iff (1 - alpha)(W_G + w_test) <= W_G less its weight at
+inf. A client so small that pi_k / (n_k + 1) is large makes w_test large for all groups at once.
Overlaps can still leave an atom without a finite threshold; that is found by solving.

Cost: that of a calibration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.problem import Problem, Weights, problem_of, shares_of
from gcfcp.calibration.reasons import AtomRecord, atom_records, shares_of_test
from gcfcp.calibration.screening import Screening, screen
from gcfcp.calibration.server import solve_table
from gcfcp.summary import ClientSummary


@dataclass(frozen=True)
class ClientPlan:
    client: str
    n: int
    share: float  # pi_k
    test_share: float  # its part of w_test: small clients with a large share dominate it
    suppressed: int


@dataclass(frozen=True)
class GroupPlan:
    group: str
    records: int
    weight: float
    finite: bool  # on its own; overlaps may still leave an atom without
    missing: int | None  # records still needed in the group; None: more of the same do not help
    growth: float | None  # the factor that all clients grow by to have them; None as there
    least_alpha: float  # smallest alpha at which it is finite as it is


@dataclass(frozen=True)
class Plan:
    """What a calibration of these summaries would give, and what stands in its way."""

    alpha: float
    test_weight: float
    clients: tuple[ClientPlan, ...]
    groups: tuple[GroupPlan, ...]
    atoms: tuple[AtomRecord, ...]
    advice: tuple[str, ...]
    screening: tuple[Screening, ...] = ()  # who is unlike the others; see `screening`

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
    if group.finite:
        return "finite"
    if group.missing is None or group.growth is None:
        return "INFINITE, and more records of the same kind would not help"
    return (
        f"INFINITE, {group.missing:,} more records needed (all clients grown by a factor of "
        f"{group.growth:.3g})"
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
    """What will be infinite and why, how many records are missing, and what else would help."""
    problem = problem_of(summaries, alpha, mixture, merge, delta)
    records = atom_records(problem, solve_table(problem, rule))
    weights, tally = problem.weights, problem.tally
    counts = tally.described.sum(axis=0)
    mass = weights.rate @ tally.described / weights.unit
    alone, least = tally.finite_alone(weights, problem.alpha), tally.least_alpha(weights)
    part = shares_of_test(problem)
    groups = []
    for g, name in enumerate(problem.groups.names):
        missing, growth = (0, 1.0) if alone[g] else _missing(problem, g)
        groups.append(
            GroupPlan(
                name,
                int(counts[g]),
                float(mass[g]),
                bool(alone[g]),
                missing,
                growth,
                float(least[g]),
            )
        )
    return Plan(
        alpha=float(problem.alpha),
        test_weight=weights.test / weights.unit,
        clients=tuple(
            ClientPlan(s.client, s.n, float(p), float(t), s.suppressed)
            for s, p, t in zip(problem.summaries, problem.shares, part, strict=True)
        ),
        groups=tuple(groups),
        atoms=records,
        advice=_advice(problem, records),
        screening=screen(problem.summaries),
    )


def _missing(problem: Problem, g: int) -> tuple[int, float] | tuple[None, None]:
    """The records that group g lacks, and the factor by which all clients must grow to have them.

    If every client grows by the factor f, and all in it with it, lambda_k = pi_k / (f n_k + K_k)
    and the condition of the module is: sum_k lambda_k (f b_k - K_k (1-alpha)/alpha) >= 0, with
    b_k = (finite records of G) - (1-alpha)/alpha (those at +inf). Its left side rises with f
    wherever it is negative. The answer is the first whole number of records that will do.
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

    if not held or float(share / n @ balance) <= 0:  # its limit, as f grows
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
    """What would help, each statement true as it stands."""
    if all(r.reason is None for r in records):
        return ()
    weights, tally, alpha = problem.weights, problem.tally, problem.alpha
    alone, least = tally.finite_alone(weights, alpha), tally.least_alpha(weights)
    part = shares_of_test(problem)
    advice = []
    k = int(np.argmax(part))
    if len(part) > 1 and part[k] > min(0.5, 2 / len(part)):
        s = problem.summaries[k]
        advice.append(
            f"{s.client} has {s.n:,} records and {part[k]:.0%} of the test weight, since its "
            f"weight in the mixture is {float(problem.shares[k]):.3g}: more records there help "
            "all groups"
        )
    proportional = shares_of(problem.summaries, "proportional")
    if not alone.all() and proportional != problem.shares:
        other = Weights.of(problem.summaries, proportional, alpha)
        helped = ~alone & tally.finite_alone(other, alpha)
        if helped.any():
            advice.append(
                "with mixture='proportional' these groups would be finite on their own: "
                + ", ".join(problem.groups.names_of(helped))
            )
    larger = _ceil(float(least.max()))
    if not alone.all() and larger < 1:
        advice.append(f"alpha={larger:g} would make every group finite on its own")
    if alone.all():
        advice.append("merge or drop overlapping groups: each of them alone has enough records")
    elif alone.any():
        advice.append(
            f"merge or drop {', '.join(problem.groups.names_of(~alone))}: the other groups have "
            "enough records on their own"
        )
    if tally.suppressed.any():
        advice.append("a smaller min_count would leave fewer records suppressed")
    return tuple(advice)


def _ceil(alpha: float) -> float:
    """Rounded up to three significant digits."""
    scale = 10.0 ** (2 - math.floor(math.log10(alpha)))
    return math.ceil(alpha * scale) / scale
