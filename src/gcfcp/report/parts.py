"""What several sections of the page use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gcfcp import codec
from gcfcp.calibration import Exploration
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num

Row = dict[str, Any]
"""One row of a table, as the template takes it."""

EVERYTHING = "holds every label"
_BUDGET = 1_700_000  # The characters of rows that fit into 2 MB beside the rest of the page.


def alpha_of(predictor: Predictor) -> float:
    """The share of true answers that may be missed."""
    return float(predictor.threshold_table.alpha)


def answer_of(predictor: Predictor) -> str:
    """What a prediction is called: "interval" if a number is predicted, "set" otherwise."""
    kind = getattr(predictor.score, "kind", "set")
    return "interval" if kind == "interval" else "set"


def every_group(groups: int) -> str:
    """All groups in a sentence: "each of the 4 groups", or "the one group"."""
    return "the one group" if groups == 1 else f"each of the {groups} groups"


@dataclass(frozen=True)
class Cells:
    """What the page calls the cells that have a threshold: combinations of groups, or groups."""

    word: str  # "combination" or "group".
    full: str  # "combination of groups" or "group".
    tail: str  # What follows the word in full: " of groups", or nothing.

    def counted(self, number: float) -> str:
        """So many cells: "1 combination of groups", "5 groups"."""
        return num.counted(number, self.word) + self.tail


def cells_of(of: Predictor | Exploration) -> Cells:
    """What has a threshold of its own in this predictor, or in this exploration."""
    if of.by == "group":
        return Cells("group", "group", "")
    return Cells("combination", "combination of groups", " of groups")


@dataclass(frozen=True)
class Atom:
    """A combination of groups, or a group by group. What a method did not record is None."""

    groups: tuple[str, ...]
    threshold: float
    count: float | None  # The number of calibration records, over all clients.
    weight: float | None  # W_A: what the combination weighs in the mixture of the clients.
    reason: str | None  # Why the threshold is not finite.


def atoms_of(predictor: Predictor) -> list[Atom]:
    """All combinations of groups that have a threshold of their own."""
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
    """The names of the groups, each with its condition, which is "" if there is none."""
    return list(zip(predictor.groups.names, predictor.groups.conditions, strict=True))


def mixture_words(predictor: Predictor) -> str:
    """How much the clients count in the promise, as part of a sentence."""
    return _MIXTURES[_mixture_kind(predictor)]


def mixture_weights(predictor: Predictor) -> str:
    """The same in fewer words, with the weight of each client if there are few.

    Weights that were given by name are recognised if they are those of the records.
    """
    short = mixture_words(predictor).partition(",")[0]
    clients = predictor.recorded("clients")
    shares = [(str(c.get("client")), codec.number(c.get("share"))) for c in clients]
    known = [f"{name} {num.share(share)}" for name, share in shares if share is not None]
    listed = f" ({', '.join(known)})" if known and len(known) == len(shares) <= 6 else ""
    return short + listed


_MIXTURES = {
    "proportional": (
        "in proportion to the records, so that every record counts the same, as if all records lay "
        "in one place"
    ),
    "uniform": "every client counts the same, however few records it has",
    "given": "every client counts with the weight that was given for it",
}


def _mixture_kind(predictor: Predictor) -> str:
    """Which of `_MIXTURES` the predictor's mixture is."""
    mixture, clients = predictor.provenance.get("mixture"), predictor.recorded("clients")
    if isinstance(mixture, str) and mixture in _MIXTURES:
        return mixture
    shares = [codec.number(c.get("share")) for c in clients]
    records = [codec.number(c.get("n")) for c in clients]
    total = sum_known(records)
    if not total or sum_known(shares) is None:
        return "given"
    pairs = [
        (w, n) for w, n in zip(shares, records, strict=True) if w is not None and n is not None
    ]
    if all(abs(w - n / total) < 1e-9 for w, n in pairs):
        return "proportional"
    return "uniform" if all(abs(w - 1 / len(pairs)) < 1e-9 for w, _ in pairs) else "given"


def sum_known(values: Sequence[float | None]) -> float | None:
    """The sum, or None if one of the values is not known or if there are none."""
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


def weight_of(atoms: Sequence[Atom]) -> float:
    """What the combinations weigh together; an unknown weight counts as 0."""
    return sum(a.weight or 0.0 for a in atoms)


def fit(
    rows: list[Row],
    importance: Callable[[Row], Any],
    size: Callable[[Row], int],
    what: str,
) -> tuple[list[Row], str]:
    """The most important rows, as many as fit into a section, in the order in which they came.

    importance: A key to sort by; the rows with the smallest keys are kept.
    size: About how many characters a row takes up in the page.
    what: What the rows are that may be left out, for the reader: "the smallest clients".
    Returns the rows that are kept, and a sentence about the others, which is "" if all are kept.
    """
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
        f"To keep this page small, {num.counted(left, 'row')} of the table had to be left out: "
        f"{what}."
        if left
        else ""
    )
    return [rows[i] for i in sorted(kept)], note
