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
from numpy.typing import NDArray

from gcfcp.client import ClientSummary
from gcfcp.pooling import Mixture, Problem, Weights, problem_of, shares_of
from gcfcp.server import AtomRecord, atom_records, finite_alone, least_alpha, names_of, solve_table

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


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
    missing: int  # records still needed in the group, the mix of clients as it is
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

    @property
    def finite(self) -> bool:
        """Whether every atom will have a finite threshold."""
        return all(a.reason is None for a in self.atoms)

    def __str__(self) -> str:
        lines = [f"alpha={self.alpha:g}, test weight {self.test_weight:.4g}"]
        for g in self.groups:
            state = "finite" if g.finite else f"INFINITE, about {g.missing:,} more records needed"
            lines.append(f"  {g.group}: {g.records:,} records, weight {g.weight:.4f}: {state}")
        lines += [
            f"  atom {' & '.join(a.groups)}: {a.threshold}: {a.reason}"
            for a in self.atoms
            if a.reason is not None
        ]
        return "\n".join([*lines, *(f"  -> {a}" for a in self.advice)])


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
    weights = problem.weights
    alone, least = finite_alone(problem), least_alpha(problem)
    counts = problem.group_counts.sum(axis=0)
    part = np.array([len(s.members) for s in problem.summaries]) * weights.rate / weights.test
    return Plan(
        alpha=float(alpha),
        test_weight=weights.test / weights.unit,
        clients=tuple(
            ClientPlan(s.client, s.n, float(p), float(t), s.suppressed)
            for s, p, t in zip(problem.summaries, problem.shares, part, strict=True)
        ),
        groups=tuple(
            GroupPlan(
                name,
                int(counts[g]),
                float(weights.rate @ problem.group_counts[:, g] / weights.unit),
                bool(alone[g]),
                0 if alone[g] else _missing(problem, g),
                float(least[g]),
            )
            for g, name in enumerate(problem.groups.names)
        ),
        atoms=records,
        advice=_advice(problem, records, alone, least, part),
    )


def _missing(problem: Problem, g: int) -> int:
    """How many more records group g needs if every client grows by the same factor."""
    n = np.array([s.n for s in problem.summaries], dtype=np.float64)
    members = np.array([len(s.members) for s in problem.summaries], dtype=np.float64)
    share = np.array([float(p) for p in problem.shares])
    inside = problem.group_counts[:, g] / n
    at_infinity = float(problem.infinite_weights[g] / max(problem.group_weights[g], 1e-300))
    alpha = float(problem.alpha)
    if not inside.any() or at_infinity >= alpha:
        # No growth helps: nothing to grow from, or what is at +inf grows with it.
        return math.ceil((1 - alpha) / alpha)

    def enough(factor: float) -> bool:
        rate = share / (np.ceil(n * factor) + members)
        mass = float(rate @ (np.ceil(n * factor) * inside))
        test = float(rate @ members)
        return (1 - alpha) * (mass + test) <= mass * (1 - at_infinity) * (1 + 1e-12)

    low, high = 1.0, 2.0
    while not enough(high):
        low, high = high, 2 * high
        if high > 2**40:
            break
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    grown = float(np.ceil(n * high) @ inside)
    return max(1, math.ceil(grown - float(n @ inside) - 1e-6))


def _advice(
    problem: Problem,
    records: Sequence[AtomRecord],
    alone: Bools,
    least: Floats,
    part: Floats,
) -> tuple[str, ...]:
    if all(r.reason is None for r in records):
        return ()
    advice = []
    biggest = int(np.argmax(part))
    if len(part) > 1 and part[biggest] > 2 / len(part):
        s = problem.summaries[biggest]
        advice.append(
            f"{s.client} has {s.n:,} records and {part[biggest]:.0%} of the test weight, since its "
            f"weight in the mixture is {float(problem.shares[biggest]):.3g}: more records there, "
            "or a smaller weight, help all groups"
        )
    proportional = shares_of(problem.summaries, "proportional")
    if proportional != problem.shares:
        other = Weights.of(problem.summaries, proportional, problem.alpha)
        mass = other.rate @ problem.group_counts
        alpha = float(problem.alpha)
        helped = ~alone & ((1 - alpha) * (mass + other.test) <= mass)
        if helped.any():
            advice.append(
                "with mixture='proportional' these groups would be finite on their own: "
                + ", ".join(names_of(problem.groups, helped))
            )
    if (~alone).any() and least[~alone].max() < 1:
        advice.append(
            f"alpha={_ceil(float(least[~alone].max())):g} would make every group finite on its own"
        )
    if alone.all():
        advice.append("merge or drop overlapping groups: each of them alone has enough records")
    if problem.hidden.any():
        advice.append("a smaller min_count would leave fewer records suppressed")
    return tuple(advice)


def _ceil(alpha: float) -> float:
    """Rounded up to three significant digits."""
    scale = 10.0 ** (2 - math.floor(math.log10(alpha)))
    return math.ceil(alpha * scale) / scale
