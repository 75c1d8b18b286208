"""One record for each atom: its threshold and, if the threshold is infinite, the reason.

For summaries by group there is one record for each group, with the level of the group.

The reasons in these records are for the server and count records. Those of `public_reasons` are for
a file that is handed on: they are given for any row, whether it was seen or not, and hold no number
but alpha, the weight of the test point, and the size and share of a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gcfcp.arrays import Bools, Floats
from gcfcp.calibration.problem import Problem
from gcfcp.calibration.remedies import dearest_client, finite_alone, records_missing
from gcfcp.thresholds import ByGroup, ThresholdTable


@dataclass(frozen=True)
class AtomRecord:
    """One atom of the table; for summaries by group, one group."""

    groups: tuple[str, ...]  # The names of the groups that its rows belong to.
    threshold: float  # The threshold S* of the atom; for summaries by group, the group's level.
    count: int | None  # How many described records it has, over all clients; None if not told.
    weight: float | None  # W_A, its weight: about its share of the mixture; None if not told.
    reason: str | None  # Why the threshold is infinite; None if it is finite, or if not told.

    @property
    def membership(self) -> tuple[str, ...]:
        """Another name for `groups`."""
        return self.groups


def atom_records(problem: Problem, table: ThresholdTable) -> tuple[AtomRecord, ...]:
    """One record for each atom of the table, in the order of the table, or for each group."""
    rows, thresholds = cells_of(table)
    if problem.by == "atom":
        pool = problem.pool
        count = pool.by_atom(pool.cell_counts)
        weight = pool.by_atom(pool.cell_counts, problem.weights.rate)
    else:
        count = problem.tally.described.sum(axis=0)
        weight = problem.weights.rate @ problem.tally.described
    infinite = ~np.isfinite(thresholds)
    why = _Reasons(problem) if infinite.any() else None
    return tuple(
        AtomRecord(
            problem.groups.names_of(row),
            float(threshold),
            int(count[i]),
            float(weight[i] / problem.weights.unit),
            None if why is None or not infinite[i] else why.of(row, float(threshold)),
        )
        for i, (row, threshold) in enumerate(zip(rows, thresholds, strict=True))
    )


def public_reasons(problem: Problem, rows: Bools, thresholds: Floats) -> list[str | None]:
    """Why each row (n, G) has no finite threshold, without counts; None for one that has.

    For summaries by group the rows are the groups, one by one, and the thresholds their levels.
    """
    infinite = ~np.isfinite(thresholds)
    if not infinite.any():
        return [None] * len(rows)
    why = _Reasons(problem, counted=False)
    return [
        why.of(row, float(threshold)) if without else None
        for row, threshold, without in zip(rows, thresholds, infinite, strict=True)
    ]


def cells_of(table: ThresholdTable) -> tuple[Bools, Floats]:
    """The rows (a, G) of a table and their thresholds (a,).

    A table without rows is one of summaries by group: its rows are the groups, one by one, and the
    thresholds are their levels.
    """
    if len(table.membership) or not isinstance(table.source, ByGroup):
        return table.membership, table.thresholds_by_atom
    return np.eye(len(table.groups), dtype=bool), table.source.by_group


class _Reasons:
    """The reasons of one problem. What several atoms have in common is found once.

    - `counted`: Whether a reason says how many records there are, and how many are missing.
    """

    def __init__(self, problem: Problem, counted: bool = True) -> None:
        self.problem = problem
        self.counted = counted
        self.by_max = (
            problem.finite_alone if problem.noise is not None else finite_alone(problem, rule="max")
        )
        self.known: dict[tuple[int, float], str] = {}  # By group, and weight of the test point.

    def of(self, row: Bools, threshold: float) -> str:
        """Why an atom with these groups has no finite threshold, in one line."""
        if threshold < 0:
            return (
                "scores of +inf in other atoms push the threshold of this atom to -inf, so that "
                "its sets are empty: find out why scores are infinite"
            )
        if self.problem.noise is not None:
            return self._of_noise(row)
        source = self.problem.source
        charge = None if source is None else source.charge
        if charge is not None and charge.heaviest(row[None])[0] < 0:
            return "no client can have a record with this combination of groups"
        short = np.flatnonzero(row & ~finite_alone(self.problem, row=row))
        if len(short):
            return "; ".join(self._of_group(int(g), row) for g in short)
        alpha = f"alpha={float(self.problem.alpha):g}"
        remedy = (
            "rule='max' makes it finite"
            if self.by_max[row].all()
            else "more records in these groups, or a larger alpha, would help"
        )
        return (
            f"each of its groups alone has enough records for {alpha}, but one fit for all groups "
            f"leaves too few for this combination of groups: {remedy}"
        )

    def _of_noise(self, row: Bools) -> str:
        """Why groups of this row have no finite level if the counts have noise."""
        assert self.problem.noise is not None
        short = row & ~self.problem.finite_alone
        names = ", ".join(repr(name) for name in self.problem.groups.names_of(short))
        return (
            f"group {names} has too few records for alpha={float(self.problem.alpha):g} and noise "
            f"of epsilon={self.problem.noise.epsilon:g}: a larger epsilon, a grid of fewer cells, "
            "more records or a larger alpha would help"
        )

    def _of_group(self, g: int, row: Bools) -> str:
        """Why group g has no finite threshold in this row, what it lacks, and what would help.

        Rows in which the test point weighs the same have this in common.
        """
        source = self.problem.source
        key = g, 0.0 if source is None else float(source.test_weights(row[None])[0])
        if key not in self.known:
            self.known[key] = (
                f"{self._has(g)}{self._lacks(g, row)}{self._cause(g)}"
                if self.counted
                else f"group {self.problem.groups.names[g]!r} has too few records for "
                f"alpha={float(self.problem.alpha):g}{self._cause(g)}"
            )
        return self.known[key]

    def _has(self, g: int) -> str:
        """What the group has."""
        tally = self.problem.tally
        described, infinite = int(tally.described[:, g].sum()), int(tally.infinite[:, g].sum())
        suppressed = int(tally.suppressed[:, g].sum())
        parts = [f"{described:,} record{'' if described == 1 else 's'}"]
        parts += [f"{infinite:,} of them at +inf"] * bool(infinite)
        parts += [f"up to {suppressed:,} more suppressed"] * bool(suppressed)
        return f"group {self.problem.groups.names[g]!r} has {', '.join(parts)}"

    def _lacks(self, g: int, row: Bools) -> str:
        """How many records the group lacks."""
        alpha = f"alpha={float(self.problem.alpha):g}"
        if self.problem.tally.suppressed[:, g].any() and self.problem.by == "group":
            return f", which are too few for {alpha}"
        more, factor = records_missing(self.problem, g, row)
        if more is None or factor is None:
            return f", and more records of the same kind would not be enough for {alpha}"
        each = "" if len(self.problem.summaries) == 1 else " at every site alike"
        return f" and needs {more:,} more for {alpha} ({factor:.3g} times as many{each})"

    def _cause(self, g: int) -> str:
        """What makes the group so expensive, if it is not the number of its records, and a remedy.

        The test point may weigh much because of the mixture, or because of the groups.
        """
        problem, correction = self.problem, self.problem.correction
        weighs = f"the test point weighs as {correction.records:.3g} records"
        if correction.kind == "paper":
            if finite_alone(problem, correction="sharp")[g]:
                return f", because by the paper's weight {weighs}: correction='sharp' is enough"
            return ""
        if problem.confidence is not None:
            return ", because the promise is about this predictor"
        dearest = dearest_client(problem)
        if dearest is not None:
            s, share = problem.summaries[dearest[0]], float(problem.shares[dearest[0]])
            return (
                f", because {weighs}: {s.client} has {s.n:,} records for {share:.1%} of the "
                "mixture; mixture='proportional' costs less"
            )
        if problem.rule != "max" and self.by_max[g]:
            return f", because {weighs} in one fit for all groups: rule='max' makes it finite"
        return ""


def warning_of(
    problem: Problem, records: Sequence[AtomRecord], infinite: Sequence[AtomRecord]
) -> str:
    """The warning that some atoms have no finite threshold, with the reason for the largest."""
    worst = max(infinite, key=lambda r: r.weight or 0.0)
    weight = sum(r.weight or 0.0 for r in infinite)
    share = weight / max(sum(r.weight or 0.0 for r in records), 1e-300)
    if problem.by == "group":
        return (
            f"{len(infinite)} of {len(records)} groups have no finite threshold, and neither has "
            f"any record that belongs to one of them. The largest of them is {worst.groups[0]}: "
            f"{worst.reason}. plan(...) says what else would help"
        )
    return (
        f"{len(infinite)} of {len(records)} atoms ({share:.1%} of the weight) have no finite "
        f"threshold. The largest of them is {' & '.join(worst.groups)}: {worst.reason}. "
        "plan(...) says what else would help"
    )
