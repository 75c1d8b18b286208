"""From records to tables: means with standard errors, the paper's value beside ours, a verdict.

A standard error is that of the mean over repetitions. A verdict says whether our mean lies within
three standard errors of the paper's. For this the standard errors of both are combined, and half a
unit of the last digit that the paper prints is added. If it does not, the verdict says by how much
our mean differs, and what the reason may be.
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
    """The paper's numbers, from paper.toml."""
    return tomllib.loads((Path(__file__).parent / "paper.toml").read_text())


@dataclass(frozen=True)
class Mean:
    """A mean over repetitions."""

    value: float
    error: float  # The standard error; NaN for a single run.

    def __str__(self) -> str:
        return self.show(3)

    def show(self, digits: int) -> str:
        """The mean and its standard error as text, such as "0.901 ± 0.002"."""
        if not math.isfinite(self.value):
            return "∞" if self.value > 0 else "-"
        error = f" ± {self.error:.{digits}f}" if math.isfinite(self.error) else ""
        return f"{self.value:.{digits}f}{error}"

    def below(self, bound: float) -> bool:
        """Whether it is below the bound by more than three standard errors."""
        return self.value < bound - 3 * self.error

    def holds(self, bound: float) -> bool:
        """Whether it is not below the bound by more than three standard errors."""
        return self.value >= bound - 3 * self.error


def mean(values: Iterable[float]) -> Mean:
    """The mean of the values that are not None; infinite if one of them is."""
    array = np.array([v for v in values if v is not None], dtype=np.float64)
    if not len(array):
        return Mean(math.nan, math.nan)
    if not np.isfinite(array).all():
        return Mean(float(array.max()), math.nan)
    error = array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else math.nan
    return Mean(float(array.mean()), float(error))


class Summary:
    """Means of records that are selected by score, design, clients, method, alpha, group and so on.

    A record need not have all of these fields.
    """

    KEYS = (
        "score",
        "design",
        "data",
        "mixture",
        "clients",
        "min_count",
        "method",
        "alpha",
        "group",
    )

    def __init__(self, records: Records) -> None:
        self._records = records
        # The records that have this value of this field.
        self._with: dict[tuple[str, Any], set[int]] = {}
        for i, r in enumerate(records):
            for k in self.KEYS:
                self._with.setdefault((k, r.get(k)), set()).add(i)

    def rows(self, **where: Any) -> list[Mapping[str, Any]]:
        """The records with these values, in their order. A field that is not named may be any."""
        if not where:
            return list(self._records)
        found = set.intersection(*(self._with.get(part, set()) for part in where.items()))
        return [self._records[i] for i in sorted(found)]

    def mean(self, what: str, **where: Any) -> Mean:
        """The mean of one field over the records with these values."""
        return mean(r[what] for r in self.rows(**where))

    def groups(self, **where: Any) -> list[str]:
        """The groups of these records in their order, without the one for all rows."""
        seen = dict.fromkeys(r["group"] for r in self.rows(**where))
        return [g for g in seen if g != EVERYONE]

    def worst(self, what: str = "coverage", **where: Any) -> tuple[float, str]:
        """The lowest coverage of a group, over its test rows in all repetitions, and the group."""
        pooled = []
        for group in self.groups(**where):
            own = self.rows(group=group, **where)
            total = sum(r["n"] for r in own)
            pooled.append((sum(r[what] * r["n"] for r in own) / total, group))
        return min(pooled)


def compared(ours: Mean, theirs: Any, digits: int, reason: str) -> str:
    """The verdict on one number.

    theirs: The paper's number, or a pair of it and its standard error. digits: How many digits the
    paper prints. reason: Why the numbers may differ.
    """
    value, error = theirs if isinstance(theirs, list) else (theirs, 0.0)
    own = ours.error if math.isfinite(ours.error) else 0.0
    allowed = 3 * math.hypot(own, error) + 0.5 * 10.0**-digits
    difference = ours.value - value
    # Both are decimal numbers. A difference that is printed as equal to what is allowed is allowed.
    if abs(difference) <= allowed + 1e-12:
        return "within 3 SE"
    return f"{difference:+.{digits}f}: {reason}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def csv_text(records: Records, command: str) -> str:
    """The records as CSV, one row for each. The first line is a comment with the command."""
    columns = list(dict.fromkeys(k for r in records for k in r))
    text = io.StringIO()
    text.write(f"# {command}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(r.get(c)) for c in columns] for r in records)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A value as it is written to CSV: None as nothing, a float with six digits."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


def costs_table(costs: Records, variants: Sequence[Variant], **where: Any) -> str:
    """The paper's Table 1, measured: what is sent and what is solved.

    Beside it stand the paper's O(.) terms with the numbers of the experiment put in. Every number
    is a mean over the runs. Only the seconds, which other processes disturb, are a median.
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
    """The size of the problem: the number of scores, and the number of unknowns.

    There is one unknown for a constant threshold, one for each group that is solved by itself, and
    one for every group if they are solved together.
    """
    if variant.method in ("split_cp", "fedcp"):
        return f"{size:,.0f} × 1"
    if variant.method in ("mondrian_fedcp", "group_digest", "importance_weighted"):
        return f"{size:,.0f} × 1, by group"
    return f"{size:,.0f} × {groups}"


def _orders(
    variant: Variant, cost: Mapping[str, Any], average: Mapping[str, float], terms: Any
) -> list[str]:
    """The paper's orders of communication and computation, with their values."""
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
