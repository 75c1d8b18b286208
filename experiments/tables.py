"""From records to tables: means with standard errors, the paper's value beside ours, a verdict.

A standard error is that of the mean over repetitions. A verdict says whether our mean lies within
three standard errors of the paper's (both taken together, plus half a unit of the last digit that
the paper prints); if not, by how much it differs and why it may.
"""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.evaluate import EVERYONE, Variant

Records = Sequence[Mapping[str, Any]]


def paper() -> dict[str, Any]:
    """The paper's numbers."""
    return tomllib.loads((Path(__file__).parent / "paper.toml").read_text())


@dataclass(frozen=True)
class Mean:
    """A mean over repetitions."""

    value: float
    error: float  # standard; nan for a single run

    def __str__(self) -> str:
        return self.show(3)

    def show(self, digits: int) -> str:
        if not math.isfinite(self.value):
            return "∞" if self.value > 0 else "-"
        error = f" ± {self.error:.{digits}f}" if math.isfinite(self.error) else ""
        return f"{self.value:.{digits}f}{error}"

    def below(self, bound: float) -> bool:
        """Below the bound by more than three standard errors."""
        return self.value < bound - 3 * self.error

    def holds(self, bound: float) -> bool:
        """Not below the bound by more than three standard errors."""
        return self.value >= bound - 3 * self.error


def mean(values: Iterable[float]) -> Mean:
    array = np.array([v for v in values if v is not None], dtype=np.float64)
    if not len(array):
        return Mean(math.nan, math.nan)
    if not np.isfinite(array).all():
        return Mean(float(array.max()), math.nan)
    error = array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else math.nan
    return Mean(float(array.mean()), float(error))


class Summary:
    """Means by (score, design, clients, method, alpha, group)."""

    KEYS = ("score", "design", "clients", "method", "alpha", "group")

    def __init__(self, records: Records) -> None:
        self._records = records
        self._with: dict[tuple[str, Any], set[int]] = {}  # records by one part of their key
        for i, r in enumerate(records):
            for k in self.KEYS:
                self._with.setdefault((k, r.get(k)), set()).add(i)

    def rows(self, **where: Any) -> list[Mapping[str, Any]]:
        """The records of a key, in their order; what is not given matches anything."""
        if not where:
            return list(self._records)
        found = set.intersection(*(self._with.get(part, set()) for part in where.items()))
        return [self._records[i] for i in sorted(found)]

    def mean(self, what: str, **where: Any) -> Mean:
        return mean(r[what] for r in self.rows(**where))

    def groups(self, **where: Any) -> list[str]:
        seen = dict.fromkeys(r["group"] for r in self.rows(**where))
        return [g for g in seen if g != EVERYONE]

    def worst(self, what: str = "coverage", **where: Any) -> tuple[float, str]:
        """The lowest coverage of a group, all its test rows of all repetitions taken together."""
        pooled = []
        for group in self.groups(**where):
            own = self.rows(group=group, **where)
            total = sum(r["n"] for r in own)
            pooled.append((sum(r[what] * r["n"] for r in own) / total, group))
        return min(pooled)


def compared(ours: Mean, theirs: Any, digits: int, reason: str) -> str:
    """The verdict on one number. `theirs`: a number, or a pair with its standard error."""
    value, error = theirs if isinstance(theirs, list) else (theirs, 0.0)
    own = ours.error if math.isfinite(ours.error) else 0.0
    allowed = 3 * math.hypot(own, error) + 0.5 * 10.0**-digits
    difference = ours.value - value
    # Differences are of decimals: one that is printed as equal to what is allowed is allowed.
    if abs(difference) <= allowed + 1e-12:
        return "within 3 SE"
    return f"{difference:+.{digits}f}: {reason}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def csv_text(records: Records, command: str) -> str:
    """Tidy: one row a record. The first line is the command, as a comment."""
    columns = list(dict.fromkeys(k for r in records for k in r))
    text = io.StringIO()
    text.write(f"# {command}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(r.get(c)) for c in columns] for r in records)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


def costs_table(costs: Records, variants: Sequence[Variant], **where: Any) -> str:
    """Table 1, measured: what is sent and solved, beside the paper's O(.) with its terms put in.

    Means over the runs; of the seconds, which other processes disturb, the median.
    """
    terms = paper()["complexity"]
    rows = []
    for variant in variants:
        own = [
            c
            for c in costs
            if c["method"] == variant.key and all(c.get(k) == v for k, v in where.items())
        ]
        if not own:
            continue
        average = {
            k: sum(c[k] for c in own) / len(own)
            for k in ("values_sent", "bytes_sent", "atoms_per_client", "atoms", "problem")
        }
        first = own[0]
        rows.append(
            [
                variant.label,
                f"{average['values_sent']:,.0f}",
                f"{average['bytes_sent']:,.0f}",
                f"{average['atoms_per_client']:.1f}",
                f"{average['atoms']:.0f}",
                _problem(variant, average["problem"], first["groups"]),
                f"{np.median([c['seconds'] for c in own]):.4f}",
                *_orders(variant, first, average, terms),
            ]
        )
    note = (
        "All clients together: scores or centroids, of which a client sends equal ones of an atom "
        "once, and the bytes of the messages. Seconds are processor time of the whole method on "
        "this machine, all clients and the server one after the other.\n\n"
    )
    return note + markdown(
        [
            "method",
            "values sent",
            "bytes sent",
            "atoms a client",
            "atoms",
            "problem (scores × unknowns)",
            "seconds",
            "paper: communication",
            "paper: computation",
        ],
        rows,
    )


def _problem(variant: Variant, size: float, groups: int) -> str:
    """Scores and unknowns: one for a constant threshold, one in each group by itself, or all."""
    if variant.method in ("split_cp", "fedcp"):
        return f"{size:,.0f} × 1"
    if variant.method in ("mondrian_fedcp", "group_digest", "importance_weighted"):
        return f"{size:,.0f} × 1, by group"
    return f"{size:,.0f} × {groups}"


def _orders(
    variant: Variant, cost: Mapping[str, Any], average: Mapping[str, float], terms: Any
) -> list[str]:
    G, n = cost["groups"], cost["records"]
    if variant.method == "gcfcp":
        delta = variant.options["delta"]
        active = average["atoms_per_client"] * cost.get("clients", 0)
        sent, solved = delta * active, (delta * average["atoms"]) ** 1.5 * G**2
        kind = terms["gcfcp"]
    elif variant.method in ("condcp", "centralized_gcfcp"):
        sent, solved = n, n**1.5 * G**2
        kind = terms["centralised"]
    else:
        return ["-", "-"]
    return [f"{kind['communication']} = {sent:,.0f}", f"{kind['computation']} = {solved:.2g}"]
