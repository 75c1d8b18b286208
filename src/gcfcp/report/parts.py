"""What several sections of the page need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gcfcp import scores
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num

Row = dict[str, Any]

EVERYTHING = "holds every label"
_BUDGET = 1_700_000  # characters of rows: what is left of 2 MB is the page around them


def alpha_of(predictor: Predictor) -> float:
    return float(predictor.threshold_table.alpha)


def answer_of(predictor: Predictor) -> str:
    """What a prediction is called: an interval for scores of numbers, a set otherwise."""
    name = scores.describe(predictor.score)[0]
    return "interval" if name in ("residual", "cqr") else "set"


def every_group(groups: int) -> str:
    return "the one group" if groups == 1 else f"each of the {groups} groups"


@dataclass(frozen=True)
class Atom:
    groups: tuple[str, ...]
    threshold: float
    count: float | None
    weight: float | None
    reason: str | None


def atoms_of(predictor: Predictor) -> list[Atom]:
    table = predictor.threshold_table
    if predictor.atoms is not None:
        return [Atom(r.groups, r.threshold, r.count, r.weight, r.reason) for r in predictor.atoms]
    thresholds = table.thresholds_by_atom.tolist()
    if table.rule == "constant":
        return [Atom(("every record",), thresholds[0], None, None, None)]
    return [
        Atom(table.groups.names_of(row), threshold, None, None, None)
        for row, threshold in zip(table.membership, thresholds, strict=True)
    ]


def defined(predictor: Predictor) -> list[tuple[str, str]]:
    """The groups, each with its condition where there is one."""
    groups = predictor.groups
    return list(zip(groups.names, groups.predicates or [""] * len(groups), strict=True))


def mixture_words(mixture: Any) -> str:
    if mixture == "uniform":
        return "every client counts the same"
    if mixture == "proportional":
        return "every client counts by its number of records"
    if isinstance(mixture, Mapping) and len(set(map(str, mixture.values()))) == 1:
        return "every client counts the same"
    return "clients count by the weights that were given"


def sum_known(values: Sequence[float | None]) -> float | None:
    """The sum, or None if any is not known."""
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


def weight_of(atoms: Sequence[Atom]) -> float:
    return sum(a.weight or 0.0 for a in atoms)


def fit(
    rows: list[Row],
    importance: Callable[[Row], Any],
    size: Callable[[Row], int],
    what: str,
) -> tuple[list[Row], str]:
    """As many rows as fit a section, the most important ones, in the order they came in."""
    budget = _BUDGET // 4
    order = sorted(range(len(rows)), key=lambda i: importance(rows[i]))
    kept = []
    for i in order:
        budget -= size(rows[i])
        if budget < 0:
            break
        kept.append(i)
    left = len(rows) - len(kept)
    note = (
        f"{num.whole(left)} more, the {what}, are left out to keep this page small." if left else ""
    )
    return [rows[i] for i in sorted(kept)], note
