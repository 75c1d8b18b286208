"""One record for each atom: its threshold and, where that is infinite, the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Bools, Floats
from gcfcp.calibration.problem import Problem
from gcfcp.thresholds import ThresholdTable


@dataclass(frozen=True)
class AtomRecord:
    """One atom of the table."""

    groups: tuple[str, ...]
    threshold: float
    count: int  # records, over all clients
    weight: float  # W_A: their share of the mixture
    reason: str | None  # why the threshold is not finite

    @property
    def membership(self) -> tuple[str, ...]:
        return self.groups


def atom_records(problem: Problem, table: ThresholdTable) -> tuple[AtomRecord, ...]:
    pool = problem.pool
    count = pool.by_atom(pool.cell_counts)
    weight = pool.by_atom(pool.cell_counts, problem.weights.rate) / problem.weights.unit
    infinite = ~np.isfinite(table.thresholds_by_atom)
    alone = problem.tally.finite_alone(problem.weights, problem.alpha) if infinite.any() else None
    return tuple(
        AtomRecord(
            problem.groups.names_of(row),
            float(threshold),
            int(count[i]),
            float(weight[i]),
            None if alone is None or not infinite[i] else _reason(problem, row, threshold, alone),
        )
        for i, (row, threshold) in enumerate(
            zip(table.membership, table.thresholds_by_atom, strict=True)
        )
    )


def _reason(problem: Problem, row: Bools, threshold: float, alone: Bools) -> str:
    """Why nothing finite is valid for this atom, in one line."""
    if threshold < 0:
        return (
            "scores of +inf elsewhere push this atom below every score, so that its sets are "
            "empty: find out why scores are infinite"
        )
    alpha = f"alpha={float(problem.alpha):g}"
    short = row & ~alone
    if not short.any():
        return (
            f"each of its groups alone has enough records for {alpha}, but together they leave "
            "this combination too few: merge or drop overlapping groups"
        )
    described, infinite = problem.tally.described.sum(axis=0), problem.tally.infinite.sum(axis=0)
    suppressed = problem.tally.suppressed.sum(axis=0)
    listed = []
    for g in np.flatnonzero(short):
        parts = [f"{described[g]:,} records"]
        parts += [f"{infinite[g]:,} of them at +inf"] * bool(infinite[g])
        parts += [f"up to {suppressed[g]:,} more suppressed"] * bool(suppressed[g])
        listed.append(f"{problem.groups.names[g]} ({', '.join(parts)})")
    return f"too few records in {', '.join(listed)} for {alpha}{_dominating(problem)}"


def shares_of_test(problem: Problem) -> Floats:
    """Each client's part of w_test."""
    members = np.array([len(s.members) for s in problem.summaries])
    shares: Floats = members * problem.weights.rate / problem.weights.test
    return shares


def _dominating(problem: Problem) -> str:
    """The client that makes up most of w_test, if one does: it may be the only trouble."""
    part = shares_of_test(problem)
    k = int(np.argmax(part))
    if len(part) == 1 or part[k] <= 0.5:
        return ""
    s = problem.summaries[k]
    return (
        f"; {part[k]:.0%} of the test weight is that of {s.client}, with {s.n:,} records for "
        f"{float(problem.shares[k]):.3g} of the mixture"
    )


def warning_of(
    problem: Problem, records: Sequence[AtomRecord], infinite: Sequence[AtomRecord]
) -> str:
    worst = max(infinite, key=lambda r: r.weight)
    share = sum(r.weight for r in infinite) / max(sum(r.weight for r in records), 1e-300)
    return (
        f"{len(infinite)} of {len(records)} atoms ({share:.1%} of the weight) have no finite "
        f"threshold; the largest, {' & '.join(worst.groups)}: {worst.reason}. "
        "plan(...) says how many records are missing and what else would help"
    )
