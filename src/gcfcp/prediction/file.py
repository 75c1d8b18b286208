"""A predictor's file: JSON that a person can read.

Its entries are `format`, `version`, `library`, `score`, `groups`, `alpha`, `rule`, and

- `table`: for each atom its groups, its threshold and, where that is infinite, the reason;
- `group_thresholds`: the thresholds of the groups by themselves, for the rules max and first;
- `coreset`: the scores and weights by atom from which atoms that were not seen are solved;
- `hopeless`: the groups that suppressed records make infinite;
- `provenance`: clients, sizes, mixture, guarantees, fingerprints.

Infinity is written as "inf".

The coreset is what the server got from the clients, pooled. `coreset=False` leaves it out where
that must not be passed on, and a row of an unseen atom is then an error.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import checks, codec
from gcfcp.arrays import Bools, Floats
from gcfcp.calibration import AtomRecord
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.solver import Coreset
from gcfcp.thresholds import ByGroup, Constant, Rule, SeenOnly, Simultaneous, ThresholdTable
from gcfcp.version import LIBRARY

_FORMAT, _VERSION = "gcfcp predictor", 1
_HEAVIEST = 2.0**200  # Our weights are below 2**60; products of weights must stay finite.
_EXPANSION = 100  # A membership matrix may take this many bytes for each byte of its file.


@dataclass(frozen=True, eq=False)
class Saved:
    """What a file holds in the place of a calibration."""

    threshold_table: ThresholdTable
    atoms: tuple[AtomRecord, ...] | None = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)
    score: tuple[str, dict[str, Any]]  # name and parameters
    library: str
    fingerprint: str  # SHA-256 of the file, in hexadecimal digits


# --- Writing -------------------------------------------------------------------------------------


def to_text(
    table: ThresholdTable,
    atoms: Sequence[AtomRecord] | None,
    score: tuple[str, Mapping[str, Any]],
    provenance: Mapping[str, Any],
    library: str = LIBRARY,
    *,
    coreset: bool = True,
) -> str:
    """The file's text. An entry of a long list has a line of its own, for diffs and for eyes."""
    name, parameters = score
    values = {
        "format": _FORMAT,
        "version": _VERSION,
        "library": library,
        "score": {"name": name, "parameters": parameters},
        "groups": table.groups.to_dict(),
        "alpha": str(table.alpha),
        "rule": table.rule,
        "table": _entries(table, atoms),
        **_source_to_json(table, coreset),
        "provenance": provenance,
    }
    return codec.to_json(values) + "\n"


def _entries(table: ThresholdTable, atoms: Sequence[AtomRecord] | None) -> list[dict[str, Any]]:
    entries = []
    thresholds = table.thresholds_by_atom.tolist()
    for i, (row, threshold) in enumerate(zip(table.membership, thresholds, strict=True)):
        entry = {"groups": list(table.groups.names_of(row)), "threshold": threshold}
        if atoms is not None:
            entry |= {"count": atoms[i].count, "weight": atoms[i].weight}
            if atoms[i].reason is not None:
                entry["reason"] = atoms[i].reason
        entries.append(entry)
    return entries


def _source_to_json(table: ThresholdTable, coreset: bool) -> dict[str, Any]:
    source = table.source
    names = np.array(table.groups.names, dtype=object)
    by_group = kept = hopeless = None
    if isinstance(source, ByGroup):
        by_group = source.by_group.tolist()
    if isinstance(source, Simultaneous):
        kept = _coreset_to_json(source.coreset, source.carriers, names) if coreset else None
        hopeless = None if source.hopeless is None else names[source.hopeless].tolist()
    return {"group_thresholds": by_group, "coreset": kept, "hopeless": hopeless}


def _coreset_to_json(
    coreset: Coreset, carriers: Bools | None, names: NDArray[Any]
) -> dict[str, Any]:
    bounds = coreset.start.tolist()
    return {
        "test": coreset.test,
        "atoms": [
            {
                "groups": names[row].tolist(),
                "values": coreset.values[bounds[i] : bounds[i + 1]].tolist(),
                "weights": coreset.weights[bounds[i] : bounds[i + 1]].tolist(),
            }
            for i, row in enumerate(coreset.membership)
        ],
        "carriers": None if carriers is None else carriers.tolist(),
    }


# --- Reading -------------------------------------------------------------------------------------


def from_text(text: str | bytes, name: str) -> Saved:
    """What a file holds, which may come from anyone; a GCFCPError says what is wrong with it."""
    try:
        data = codec.from_json(text)
    except ValueError:
        raise GCFCPError(f"{name} is not a predictor: it is not JSON") from None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise GCFCPError(f"{name} is not a predictor: calibrate makes one")
    if data.get("version") != _VERSION:
        raise GCFCPError(
            f"{name} has format version {data.get('version')!r:.20}; "
            f"this gcfcp reads version {_VERSION}"
        )
    with codec.reading(name, "predictor"):
        return _saved(data, text.encode() if isinstance(text, str) else bytes(text))


def _saved(data: dict[str, Any], raw: bytes) -> Saved:
    table = _table_from_json(data, len(raw))
    score, parameters = data["score"]["name"], data["score"]["parameters"]
    checks.name("score", score)
    provenance = data["provenance"]
    if not isinstance(provenance, dict):
        raise GCFCPError("its provenance is not an object")
    return Saved(
        threshold_table=table,
        atoms=_records_from_json(data["table"], table),
        provenance=provenance,
        score=(score, parameters),
        library=checks.name("library", data.get("library", LIBRARY)),
        fingerprint=hashlib.sha256(raw).hexdigest(),
    )


def _table_from_json(data: dict[str, Any], size: int) -> ThresholdTable:
    groups = Groups.from_dict(data["groups"])
    membership = _membership(data["table"], groups, size)
    thresholds = np.array([_number(entry["threshold"]) for entry in data["table"]])
    alpha, rule = _alpha(data["alpha"]), data["rule"]
    if rule == "constant" and not len(membership):
        raise GCFCPError("rule 'constant' needs an atom in the table")
    if rule != "constant" and not membership.any(axis=1).all():
        raise GCFCPError("an atom of the table belongs to no group")
    source = _source_from_json(data, groups, alpha, thresholds, size)
    return ThresholdTable(groups, alpha, membership, thresholds, source)


def _source_from_json(
    data: dict[str, Any], groups: Groups, alpha: Fraction, thresholds: Floats, size: int
) -> Rule:
    rule = checks.choice("rule", data["rule"], "simultaneous", "max", "first", "constant")
    by_group = data["group_thresholds"]
    if (rule in ("max", "first")) != (by_group is not None):
        raise GCFCPError(f"rule {rule!r:.40} does not fit the group thresholds")
    coreset, carriers = None, None
    if data["coreset"] is not None:
        coreset, carriers = _coreset_from_json(data["coreset"], groups, size)
    hopeless = None
    if data["hopeless"] is not None:
        hopeless = _membership([{"groups": data["hopeless"]}], groups, size)[0]
    if by_group is not None:
        numbers = _numbers(by_group)
        if len(numbers) != len(groups):
            raise GCFCPError("there must be a group threshold for each group")
        return ByGroup(rule, numbers)
    if rule == "constant":
        return Constant(float(thresholds[0]))
    return SeenOnly() if coreset is None else Simultaneous(coreset, alpha, carriers, hopeless)


def _number(value: Any) -> float:
    """A number, or the word for an infinity."""
    found = codec.number(value)
    if found is None:
        raise GCFCPError(f"{value!r:.40} is not a number")
    return found


def _numbers(values: Any) -> Floats:
    if not isinstance(values, list):
        raise GCFCPError("a list of numbers was expected")
    return np.array([_number(v) for v in values], dtype=np.float64)


def _membership(entries: Any, groups: Groups, size: int) -> Bools:
    """The groups that each entry lists, as a matrix, which must be in proportion to the file."""
    if not isinstance(entries, list):
        raise GCFCPError("a list of atoms was expected")
    if len(entries) * len(groups) > _EXPANSION * size:
        raise GCFCPError(f"{len(entries)} atoms of {len(groups)} groups are more than it can hold")
    place = {name: i for i, name in enumerate(groups.names)}
    rows = np.zeros((len(entries), len(groups)), dtype=bool)
    for i, entry in enumerate(entries):
        rows[i, [place[name] for name in entry["groups"]]] = True
    if len({row.tobytes() for row in rows}) < len(rows):
        raise GCFCPError("an atom is listed twice")
    return rows


def _alpha(text: Any) -> Fraction:
    """Digits, a slash and digits: a Fraction would read 1e-999999999, too, and never be done."""
    if not isinstance(text, str) or not re.fullmatch("[0-9]{1,40}/[0-9]{1,40}", text):
        raise GCFCPError(f"alpha={text!r:.40} is not a fraction such as '1/10'")
    alpha = Fraction(text)
    if not 0 < alpha < 1:
        raise GCFCPError(f"alpha={text} is not in (0, 1)")
    return alpha


def _records_from_json(entries: Any, table: ThresholdTable) -> tuple[AtomRecord, ...] | None:
    if not all("count" in entry and "weight" in entry for entry in entries):
        return None
    records = []
    for entry, threshold in zip(entries, table.thresholds_by_atom.tolist(), strict=True):
        count, weight, reason = entry["count"], _number(entry["weight"]), entry.get("reason")
        if type(count) is not int or count < 0 or not 0 <= weight < math.inf:
            raise GCFCPError("an atom has a count of 0 or more and a weight of 0 or more")
        if not isinstance(reason, str | None):
            raise GCFCPError("the reason of an atom is not a text")
        records.append(AtomRecord(tuple(entry["groups"]), threshold, count, weight, reason))
    return tuple(records)


def _coreset_from_json(
    data: dict[str, Any], groups: Groups, size: int
) -> tuple[Coreset, Bools | None]:
    membership = _membership(data["atoms"], groups, size)
    if not len(membership) or not membership.any(axis=1).all():
        raise GCFCPError("the coreset must have atoms, each of at least one group")
    values = [_numbers(atom["values"]) for atom in data["atoms"]]
    weights = [_numbers(atom["weights"]) for atom in data["atoms"]]
    for v, w in zip(values, weights, strict=True):
        if not len(v) or len(v) != len(w) or v[0] == -np.inf or not (v[1:] > v[:-1]).all():
            raise GCFCPError("the scores of an atom must ascend and have a weight each")
        if not np.all(w > 0):
            raise GCFCPError("the weights of an atom must be positive")
    test = _number(data["test"])
    with np.errstate(over="ignore"):
        if not test > 0 or not test + sum(w.sum() for w in weights) < _HEAVIEST:
            raise GCFCPError("the weights must be positive, and their sum below 2**200")
    coreset = Coreset(
        membership=membership,
        start=np.cumsum([0, *map(len, values)]),
        values=np.concatenate(values),
        weights=np.concatenate(weights),
        test=test,
    )
    carriers = data["carriers"]
    if carriers is None:
        return coreset, None
    if len(carriers) != len(membership) or not all(type(x) is bool for x in carriers):
        raise GCFCPError("carriers must say true or false for each atom of the coreset")
    return coreset, np.array(carriers, dtype=bool)
