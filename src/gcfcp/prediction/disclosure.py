"""What a predictor's file tells of the clients' records, so that people can decide who may have it.

It is read from the file itself and not from what the file claims. Only the provenance is free text:
entries of it that are not known to this library are counted, and not understood.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcfcp.arrays import Floats
from gcfcp.prediction.file import Saved
from gcfcp.prediction.provenance import OF_CLIENT, OF_GROUP
from gcfcp.thresholds import ByGroup, Constant, SeenOnly

# The entries of the provenance that tell nothing of single records or of counts by cell.
_HARMLESS = frozenset([
    "alpha", "mixture", "merge", "recompression_delta", "rule", "by", "shape", "grid", "confidence",
    "representative", "model", "test_weight", "correction", "clients", "guarantee", "method",
    "bytes_sent", "values_sent", "missing", "round", "twins", "left_out",
])  # fmt: skip
EVERY, SEEN = "every combination of groups that can occur", "the combinations of groups seen"


@dataclass(frozen=True)
class PredictorDisclosure:
    """What a predictor's file tells. All of it is about all clients together, but for `clients`."""

    thresholds: int  # How many different thresholds it has, of combinations and of groups.
    finite: int  # How many of them are finite; where groups do not overlap, each is one value.
    covers: str  # Which combinations these are; the ones seen tell that they have records.
    pooled_values: int  # How many scores or means of the clients it holds, with their weights.
    pooled_from: tuple[str, ...]  # The clients whose values these are.
    counted_cells: int  # How many combinations, or groups, have their number of records told.
    counted_groups: int  # For how many groups the promise says how many records they have.
    detailed_clients: int  # Of how many clients it tells suppressed records, cells or bytes.
    clients: tuple[str, ...]  # The names of the clients, each with its number of records.
    shape_numbers: int  # How many rounded coefficients of shapes it has.
    shared_groups: int  # For how many groups it tells which client has the largest share.
    other: tuple[str, ...]  # Entries of the provenance that this gcfcp does not know.

    @property
    def minimal(self) -> bool:
        """Whether it tells no more than thresholds, promises, names and sizes of clients."""
        return not (
            self.pooled_values
            or self.counted_cells
            or self.counted_groups
            or self.detailed_clients
            or self.shared_groups
            or self.other
        )

    def __str__(self) -> str:
        lines = [
            f"thresholds: {self.thresholds:,}, of which {self.finite:,} are finite, of "
            f"{self.covers}; each is a number that the scores of all clients gave together",
            f"values of clients: {self.pooled_values:,} scores or means with their weights, of "
            f"{_some(self.pooled_from)}; the weights tell which client a value is from"
            if self.pooled_values
            else "values of clients: none, and no weights",
            f"counts: the records of {self.counted_cells:,} combinations and of "
            f"{self.counted_groups:,} groups, with their weights; the counts of each client may "
            "follow from them"
            if self.counted_cells or self.counted_groups
            else "counts: none by combination and none by group",
            f"clients: names and numbers of records of {_some(self.clients)}"
            if self.clients
            else "clients: none are named",
        ]
        if self.detailed_clients:
            lines.append(
                f"clients in detail: for {self.detailed_clients:,}, how many records are "
                "suppressed or in no group, or how many cells, values or bytes were sent"
            )
        if self.shared_groups:
            lines.append(
                f"largest shares: for {self.shared_groups:,} groups, which client has the largest "
                "share of the weight, in whole percent"
            )
        lines.append(
            f"shapes: {self.shape_numbers:,} rounded coefficients, fitted to all clients together"
            if self.shape_numbers
            else "shapes: none"
        )
        if self.other:
            lines.append(f"unknown: the provenance also has {', '.join(self.other)}")
        return "\n".join(lines)


def disclosure_of(saved: Saved) -> PredictorDisclosure:
    """What this file tells."""
    table = saved.threshold_table
    numbers = np.unique(_numbers(saved))
    coreset = table.coreset
    clients = _objects(saved.provenance.get("clients"))
    names = tuple(str(c.get("client"))[:200] for c in clients)
    shapes = [saved.next_shape, getattr(table.source, "shape", None)]
    unknown = saved.provenance.keys() - _HARMLESS - {"largest_shares"}
    return PredictorDisclosure(
        thresholds=len(numbers),
        finite=int(np.isfinite(numbers).sum()),
        covers=SEEN if _lists_the_seen(saved) else EVERY,
        pooled_values=0 if coreset is None else int(np.isfinite(coreset.values).sum()),
        pooled_from=() if coreset is None else names,
        counted_cells=sum(record.count is not None for record in saved.atoms or ()),
        counted_groups=_beyond(_objects(saved.provenance.get("guarantee")), OF_GROUP),
        detailed_clients=_beyond(clients, OF_CLIENT),
        clients=names,
        shape_numbers=sum(len(shape.coefficients) for shape in shapes if shape is not None),
        shared_groups=len(_objects(saved.provenance.get("largest_shares"))),
        other=tuple(sorted(ascii(key)[1:-1][:40] for key in unknown)),
    )


def _numbers(saved: Saved) -> Floats:
    """The thresholds that the file has, of combinations and of groups."""
    table = saved.threshold_table
    if isinstance(table.source, Constant):
        return np.array([table.source.threshold])
    by_group = table.source.by_group if isinstance(table.source, ByGroup) else np.empty(0)
    return np.concatenate([table.thresholds_by_atom, by_group])


def _lists_the_seen(saved: Saved) -> bool:
    """Whether the table tells which combinations have records."""
    source = saved.threshold_table.source
    counted = any(record.count is not None for record in saved.atoms or ())
    incomplete = isinstance(source, SeenOnly) and not source.complete
    return incomplete or saved.threshold_table.coreset is not None or counted


def _objects(given: Any) -> list[dict[str, Any]]:
    """The objects of a list; none if it is not a list."""
    return [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []


def _beyond(entries: Iterable[dict[str, Any]], known: Iterable[str]) -> int:
    """How many of the objects have other entries than these."""
    allowed = frozenset(known)
    return sum(not entry.keys() <= allowed for entry in entries)


def _some(names: tuple[str, ...]) -> str:
    """Names in a sentence: how many clients, and the first of them."""
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return f"{len(names):,} client{'' if len(names) == 1 else 's'} ({shown})"
