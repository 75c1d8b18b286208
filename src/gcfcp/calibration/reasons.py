"""One record for each atom: its threshold and, if the threshold is infinite, the reason."""

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

    groups: tuple[str, ...]  # The names of the groups that its rows belong to.
    threshold: float  # The threshold S* of the atom.
    count: int  # How many described records it has, over all clients.
    weight: float  # W_A = sum_k lambda_k n_kA: about its share of the mixture.
    reason: str | None  # Why the threshold is infinite; None if it is finite.

    @property
    def membership(self) -> tuple[str, ...]:
        """Another name for `groups`."""
        return self.groups


def atom_records(problem: Problem, table: ThresholdTable) -> tuple[AtomRecord, ...]:
    """One record for each atom of the table, in the order of the table."""
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
    """Why this atom has no finite threshold, in one line.

    - `alone`: Which groups have a finite threshold on their own, (G,).
    """
    if threshold < 0:
        return (
            "scores of +inf in other atoms push the threshold of this atom to -inf, so that its "
            "sets are empty: find out why scores are infinite"
        )
    alpha = f"alpha={float(problem.alpha):g}"
    short = row & ~alone
    if not short.any():
        return (
            f"each of its groups alone has enough records for {alpha}, but together they leave "
            "too few for this combination of groups: merge or drop overlapping groups"
        )
    described, infinite = problem.tally.described.sum(axis=0), problem.tally.infinite.sum(axis=0)
    suppressed = problem.tally.suppressed.sum(axis=0)
    listed = []
    for g in np.flatnonzero(short):
        parts = [f"{described[g]:,} records"]
        parts += [f"{infinite[g]:,} of them at +inf"] * bool(infinite[g])
        parts += [f"up to {suppressed[g]:,} more suppressed"] * bool(suppressed[g])
        listed.append(f"group {problem.groups.names[g]!r} ({', '.join(parts)})")
    return f"there are too few records for {alpha} in {', '.join(listed)}{_dominating(problem)}"


def shares_of_test(problem: Problem) -> Floats:
    """The part of w_test that comes from each client, float (K,). The parts add up to 1."""
    members = np.array([len(s.members) for s in problem.summaries])
    shares: Floats = members * problem.weights.rate / problem.weights.test
    return shares


def _dominating(problem: Problem) -> str:
    """A clause that names the client that makes up more than half of w_test, or no text.

    A small client with a large share of the mixture makes w_test large, and with it the number of
    records that every group needs.
    """
    part = shares_of_test(problem)
    k = int(np.argmax(part))
    if len(part) == 1 or part[k] <= 0.5:
        return ""
    s = problem.summaries[k]
    return (
        f"; {part[k]:.0%} of the test weight comes from {s.client}, which has {s.n:,} records and "
        f"a weight of {float(problem.shares[k]):.3g} in the mixture"
    )


def warning_of(
    problem: Problem, records: Sequence[AtomRecord], infinite: Sequence[AtomRecord]
) -> str:
    """The warning that some atoms have no finite threshold, with the reason for the largest."""
    worst = max(infinite, key=lambda r: r.weight)
    share = sum(r.weight for r in infinite) / max(sum(r.weight for r in records), 1e-300)
    return (
        f"{len(infinite)} of {len(records)} atoms ({share:.1%} of the weight) have no finite "
        f"threshold. The largest of them is {' & '.join(worst.groups)}: {worst.reason}. "
        "plan(...) says how many records are missing and what else would help"
    )
