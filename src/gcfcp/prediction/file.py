"""A predictor's file: JSON that a person can read.

Its entries are `format`, `version`, `library`, `score`, `groups`, `alpha`, `rule`, and

- `table`: the groups and the threshold of each atom and, if the threshold is infinite, the reason;
- `group_thresholds`: the threshold of each group by itself, for the rules "max" and "first";
- `coreset`: the scores and weights by atom, from which atoms that were not seen are solved;
- `charge`, in the coreset: what the test point weighs, if that depends on the atom;
- `hopeless`: the groups that have no finite threshold because of suppressed records;
- `next_shape`: a shape for the next calibration, fitted to the records of this one: one coefficient
  for each group, and the fingerprints of the summaries that it was made from (see `gcfcp.shape`);
- `provenance`: the clients, their sizes, the mixture, the guarantees and the fingerprints.

Version 2 is for calibrations by group, and for those with a shape. It has two entries more:

- `by`: "atom" or "group". By group, `table` has one object for each group, in their order, and its
  `threshold` is the level of the group;
- `shape`: the shape that was subtracted from the scores, or null. `group_thresholds` are then
  levels, and b(x) is added to the largest level of a row's groups.

Infinity is written as "inf".

The coreset is the pooled content of the clients' summaries. If it must not be passed on,
`coreset=False` leaves it out of the file. A row whose atom was not seen in calibration is then an
error.
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
from gcfcp.shape import Shape
from gcfcp.solver import Coreset
from gcfcp.thresholds import (
    ByGroup,
    Charge,
    Constant,
    Rule,
    SeenOnly,
    Simultaneous,
    ThresholdTable,
)
from gcfcp.version import LIBRARY

_FORMAT = "gcfcp predictor"
_PLAIN, _BY_GROUP_OR_SHAPED = 1, 2
_HEAVIEST = 2.0**200  # The weights of a file add up to less, so that their products are finite.
_EXPANSION = 100  # A membership matrix may take this many bytes for each byte of its file.


@dataclass(frozen=True, eq=False)
class Saved:
    """What was read from a file. A predictor has it in the place of a calibration."""

    threshold_table: ThresholdTable
    atoms: tuple[AtomRecord, ...] | None = field(repr=False)  # One for each atom, if they are kept.
    provenance: dict[str, Any] = field(repr=False)
    score: tuple[str, dict[str, Any]]  # The name of the score and its parameters.
    library: str  # The library that wrote the file, with its version.
    fingerprint: str  # The SHA-256 of the file, in hexadecimal digits.
    by: str = "atom"  # What `atoms` are: atoms or groups.
    next_shape: Shape | None = None  # A shape for the next calibration, if the file has one.


# --- Writing -------------------------------------------------------------------------------------


def to_text(
    table: ThresholdTable,
    atoms: Sequence[AtomRecord] | None,
    score: tuple[str, Mapping[str, Any]],
    provenance: Mapping[str, Any],
    library: str = LIBRARY,
    *,
    coreset: bool = True,
    by: str = "atom",
    next_shape: Shape | None = None,
) -> str:
    """The file's text. Each entry of a long list has its own line, so that it is easy to read.

    - `atoms`: One record for each atom of the table, or None if there are none.
    - `score`: The name of the score and its parameters.
    - `coreset`: Whether the coreset is written.
    - `by`: What `atoms` are: "atom" or "group".
    - `next_shape`: A shape for the next calibration, if there is one.
    """
    name, parameters = score
    shape = getattr(table.source, "shape", None)
    newer = {"by": by, "shape": shape and shape.values} if by == "group" or shape else {}
    values = {
        "format": _FORMAT,
        "version": _BY_GROUP_OR_SHAPED if newer else _PLAIN,
        "library": library,
        "score": {"name": name, "parameters": parameters},
        "groups": table.groups.to_dict(),
        "alpha": str(table.alpha),
        "rule": table.rule,
        **newer,
        "table": _group_entries(atoms or ()) if by == "group" else _entries(table, atoms),
        **_source_to_json(table, coreset),
        **({} if next_shape is None else {"next_shape": next_shape.values}),
        "provenance": provenance,
    }
    return codec.to_json(values) + "\n"


def _entries(table: ThresholdTable, atoms: Sequence[AtomRecord] | None) -> list[dict[str, Any]]:
    """The entry `table`: one object for each atom."""
    entries = []
    thresholds = table.thresholds_by_atom.tolist()
    for i, (row, threshold) in enumerate(zip(table.membership, thresholds, strict=True)):
        entry = {"groups": list(table.groups.names_of(row)), "threshold": threshold}
        entries.append(entry if atoms is None else entry | _counts(atoms[i]))
    return entries


def _group_entries(records: Sequence[AtomRecord]) -> list[dict[str, Any]]:
    """The same by group: one object for each group, with its level."""
    return [{"groups": list(r.groups), "threshold": r.threshold} | _counts(r) for r in records]


def _counts(record: AtomRecord) -> dict[str, Any]:
    """Count, weight and reason of an entry."""
    found: dict[str, Any] = {"count": record.count, "weight": record.weight}
    return found if record.reason is None else found | {"reason": record.reason}


def _source_to_json(table: ThresholdTable, coreset: bool) -> dict[str, Any]:
    """The entries that hold what the rule needs for atoms that are not in the table."""
    source = table.source
    names = np.array(table.groups.names, dtype=object)
    by_group = kept = hopeless = None
    if isinstance(source, ByGroup):
        by_group = source.by_group.tolist()
    if isinstance(source, Simultaneous):
        kept = _coreset_to_json(source, names) if coreset else None
        hopeless = None if source.hopeless is None else names[source.hopeless].tolist()
    return {"group_thresholds": by_group, "coreset": kept, "hopeless": hopeless}


def _coreset_to_json(source: Simultaneous, names: NDArray[Any]) -> dict[str, Any]:
    """The entry `coreset`. `names` are the names of the groups."""
    coreset, carriers = source.coreset, source.carriers
    bounds = coreset.start.tolist()
    entry = {
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
    if source.charge is not None:
        entry["charge"] = _charge_to_json(source.charge, names)
    return entry


def _charge_to_json(charge: Charge, names: NDArray[Any]) -> dict[str, Any]:
    """The entry `charge`: for each class of clients the groups that it cannot have."""
    return {
        "inside": charge.inside,
        "classes": [
            {"absent": names[~row].tolist(), "outside": outside}
            for row, outside in zip(charge.possible, charge.outside.tolist(), strict=True)
        ],
    }


# --- Reading -------------------------------------------------------------------------------------


def from_text(text: str | bytes, name: str) -> Saved:
    """What the text of a file holds. Anyone may have written the file.

    If it is not a valid predictor, a GCFCPError says what is wrong with `name`.
    """
    try:
        data = codec.from_json(text)
    except ValueError:
        raise GCFCPError(f"{name} is not a predictor: it is not JSON") from None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise GCFCPError(f"{name} is not a predictor: give a file that Predictor.save wrote")
    if type(data.get("version")) is not int or not 1 <= data["version"] <= _BY_GROUP_OR_SHAPED:
        raise GCFCPError(
            f"{name} has format version {data.get('version')!r:.20}, and this gcfcp reads versions "
            f"1 to {_BY_GROUP_OR_SHAPED}: save the predictor again with this gcfcp, or use the "
            "gcfcp that wrote it"
        )
    with codec.reading(name, "predictor"):
        return _saved(data, text.encode() if isinstance(text, str) else bytes(text))


def _saved(data: dict[str, Any], raw: bytes) -> Saved:
    """What the JSON object holds, checked. `raw` are the bytes of the file."""
    table = _table_from_json(data, len(raw))
    score, parameters = data["score"]["name"], data["score"]["parameters"]
    checks.name("score", score)
    provenance = data["provenance"]
    if not isinstance(provenance, dict):
        raise GCFCPError("its provenance is not a JSON object")
    by, next_shape = _by(data), data.get("next_shape")
    return Saved(
        threshold_table=table,
        atoms=_records_from_json(data["table"]),
        by=by,
        next_shape=None if next_shape is None else Shape.from_values(table.groups, next_shape),
        provenance=provenance,
        score=(score, parameters),
        library=checks.name("library", data.get("library", LIBRARY)),
        fingerprint=hashlib.sha256(raw).hexdigest(),
    )


def _table_from_json(data: dict[str, Any], size: int) -> ThresholdTable:
    """The threshold table. `size` is the number of bytes of the file."""
    groups = Groups.from_dict(data["groups"])
    membership = _membership(data["table"], groups, size)
    thresholds = np.array([_number(entry["threshold"]) for entry in data["table"]])
    alpha, rule = _alpha(data["alpha"]), data["rule"]
    if _by(data) == "group":
        if rule != "max" or not np.array_equal(membership, np.eye(len(groups), dtype=bool)):
            raise GCFCPError(
                "by group, the rule must be 'max', and the table must list each group in order"
            )
        if not np.array_equal(thresholds, _numbers(data["group_thresholds"])):
            raise GCFCPError("the levels of the table are not those of group_thresholds")
        membership, thresholds = membership[:0], thresholds[:0]
    if rule == "constant" and not len(membership):
        raise GCFCPError("rule 'constant' needs at least one atom in the table")
    if rule != "constant" and not membership.any(axis=1).all():
        raise GCFCPError("an atom of the table belongs to no group")
    source = _source_from_json(data, groups, alpha, thresholds, size)
    return ThresholdTable(groups, alpha, membership, thresholds, source)


def _source_from_json(
    data: dict[str, Any], groups: Groups, alpha: Fraction, thresholds: Floats, size: int
) -> Rule:
    """The rule of the table. Entries that do not belong to this rule are an error."""
    rule = checks.choice("rule", data["rule"], "simultaneous", "max", "first", "constant")
    by_group = data["group_thresholds"]
    if (rule in ("max", "first")) != (by_group is not None):
        raise GCFCPError(
            "the rules 'max' and 'first' need group_thresholds, and no other rule has them; the "
            f"rule is {rule!r:.40}"
        )
    coreset = carriers = charge = None
    if data["coreset"] is not None:
        coreset, carriers = _coreset_from_json(data["coreset"], groups, size)
        if data["coreset"].get("charge") is not None:
            charge = _charge_from_json(data["coreset"]["charge"], groups, alpha, size)
    hopeless = None
    if data["hopeless"] is not None:
        hopeless = _membership([{"groups": data["hopeless"]}], groups, size)[0]
    shape = None
    if data["version"] == _BY_GROUP_OR_SHAPED and data["shape"] is not None:
        shape = Shape.from_values(groups, data["shape"])
        if rule != "max":
            raise GCFCPError("only rule 'max' can have a shape")
    if by_group is not None:
        numbers = _numbers(by_group)
        if len(numbers) != len(groups):
            raise GCFCPError("group_thresholds must hold one number for each group")
        return ByGroup(rule, numbers, shape)
    if rule == "constant":
        return Constant(float(thresholds[0]))
    if coreset is None:
        return SeenOnly()
    return Simultaneous(coreset, alpha, charge, carriers, hopeless)


def _number(value: Any) -> float:
    """A number, which may be written as the text "inf" or "-inf"."""
    found = codec.number(value)
    if found is None:
        raise GCFCPError(f"{value!r:.40} is not a number")
    return found


def _numbers(values: Any) -> Floats:
    """A list of such numbers."""
    if not isinstance(values, list):
        raise GCFCPError("a list of numbers was expected")
    return np.array([_number(v) for v in values], dtype=np.float64)


def _membership(entries: Any, groups: Groups, size: int) -> Bools:
    """The groups that each entry lists, as a membership matrix of distinct rows.

    A small file could list many atoms and many groups, whose matrix grows with their product. A
    matrix of more than `_EXPANSION` times `size`, the bytes of the file, is refused.
    """
    if not isinstance(entries, list):
        raise GCFCPError("a list of atoms was expected")
    if len(entries) * len(groups) > _EXPANSION * size:
        raise GCFCPError(
            f"{len(entries)} atoms of {len(groups)} groups are more than a file of {size} bytes "
            "may have"
        )
    place = {name: i for i, name in enumerate(groups.names)}
    rows = np.zeros((len(entries), len(groups)), dtype=bool)
    for i, entry in enumerate(entries):
        rows[i, [place[name] for name in entry["groups"]]] = True
    if len({row.tobytes() for row in rows}) < len(rows):
        raise GCFCPError("an atom is listed twice")
    return rows


def _alpha(text: Any) -> Fraction:
    """Alpha from a text such as "1/10".

    Only digits, a slash and digits are allowed. `Fraction` itself would also take "1e-999999999",
    and compute for hours.
    """
    if not isinstance(text, str) or not re.fullmatch("[0-9]{1,40}/[0-9]{1,40}", text):
        raise GCFCPError(f"alpha={text!r:.40} is not a fraction in the form '1/10'")
    return checks.alpha(Fraction(text))


def _by(data: dict[str, Any]) -> str:
    """What the entries of the table are: atoms, or groups in a file of version 2."""
    if data["version"] == _PLAIN:
        if "by" in data or "shape" in data:  # Its thresholds would mean something else.
            raise GCFCPError("a file of version 1 has no entries by and shape")
        return "atom"
    return checks.choice("by", data["by"], "atom", "group")


def _records_from_json(entries: Any) -> tuple[AtomRecord, ...] | None:
    """One record for each entry; None unless every entry has a count and a weight."""
    if not all("count" in entry and "weight" in entry for entry in entries):
        return None
    records = []
    for entry in entries:
        threshold = _number(entry["threshold"])
        count, weight, reason = entry["count"], _number(entry["weight"]), entry.get("reason")
        if type(count) is not int or count < 0 or not 0 <= weight < math.inf:
            raise GCFCPError(
                "the count of an atom is not a whole number of 0 or more, or its weight is not a "
                "finite number of 0 or more"
            )
        if not isinstance(reason, str | None):
            raise GCFCPError("the reason of an atom is not a text")
        records.append(AtomRecord(tuple(entry["groups"]), threshold, count, weight, reason))
    return tuple(records)


def _coreset_from_json(
    data: dict[str, Any], groups: Groups, size: int
) -> tuple[Coreset, Bools | None]:
    """The coreset and which of its atoms are carriers; see `Simultaneous`."""
    membership = _membership(data["atoms"], groups, size)
    if not len(membership) or not membership.any(axis=1).all():
        raise GCFCPError("the coreset must have atoms, each of at least one group")
    values = [_numbers(atom["values"]) for atom in data["atoms"]]
    weights = [_numbers(atom["weights"]) for atom in data["atoms"]]
    for v, w in zip(values, weights, strict=True):
        if not len(v) or len(v) != len(w) or v[0] == -np.inf or not (v[1:] > v[:-1]).all():
            raise GCFCPError(
                "the scores of an atom must be above -inf and ascend, and each needs a weight"
            )
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


def _charge_from_json(data: dict[str, Any], groups: Groups, alpha: Fraction, size: int) -> Charge:
    """What the test point weighs by atom."""
    inside = _number(data["inside"])
    outside = _numbers([entry["outside"] for entry in data["classes"]])
    absent = _membership([{"groups": entry["absent"]} for entry in data["classes"]], groups, size)
    weights = np.append(outside, inside)
    if not len(outside) or not ((weights >= 0) & (weights < _HEAVIEST)).all():
        raise GCFCPError("the weights of the test point are not numbers from 0 to 2**200")
    return Charge(alpha, inside, outside, ~absent)
