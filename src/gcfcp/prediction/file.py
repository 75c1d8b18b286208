"""A predictor's file: JSON that a person can read.

By default it has what prediction needs, what is promised, and where that comes from. It holds no
score of any record but the thresholds themselves, and no count but the sizes of the clients. These
are the entries of version 3:

- `format` ("gcfcp predictor"), `version`, and `library`, which wrote it;
- `score`: `name` and `parameters`;
- `groups`: `names`, `predicates`, `sites` if there are any, and their `fingerprint`;
- `alpha` as a fraction such as "1/10", and `rule`: "simultaneous", "max", "first" or "constant";
- `by`: "atom" or "group", what the summaries were by;
- `shape`: the shape that was subtracted from the scores, or null: `coefficients` and `sources`;
- `covers`: "all" if every combination of groups that can occur has a threshold, and "seen" if only
  those have one that were seen in calibration;
- `table`: `groups` and `threshold` of each combination and, if the threshold is infinite and it is
  known why, the `reason`. By group there is one object for each group, in their order, and its
  `threshold` is the level of the group. For the rule "constant" there is one object for all rows;
- `group_thresholds`: the threshold of each group by itself for the rules "max" and "first", and
  null for others. With a shape these are levels, and b(x) is added to the largest one of a row;
- `next_shape`, if there is one: a shape for the next calibration, fitted to the records of this
  one: one coefficient for each group, and the fingerprints of the summaries that it was made from;
- `provenance`: the clients, their sizes and fingerprints, the mixture, what was charged, and the
  guarantees; `gcfcp.prediction.provenance` says what is left out of it, and why.

Nothing else may stand in such a file. Infinity is written as "inf".

**Which combinations.** With "all", the table does not tell which combinations had records: those
that had none are solved when the file is written, exactly as the predictor in memory would solve
them. There must be at most `MOST_COMBINATIONS`, and solving them must not take too long (see
`gcfcp.thresholds.every`). Beyond that the table has those that were seen, and a row of another one
is an error. By the rules "max" and "first" any combination follows from `group_thresholds`; the
table then lists all combinations, or beyond the limit one for each group.

**With the coreset.** `coreset=True` writes versions 1 and 2, as gcfcp 0.1.0 and 0.2.0 did. They
pass on what the clients' summaries hold, and nothing in them hides which client a value is from:

- `coreset`: the scores and weights by atom, from which atoms that were not seen are solved;
- `charge`, in the coreset: what the test point weighs, if that depends on the atom;
- `hopeless`: the groups that have no finite threshold because of suppressed records;
- `count` and `weight` in each object of the table, which lists the atoms that were seen;
- all of the provenance, with the counts by group.

Version 2 is for calibrations by group, and for those with a shape; version 1 has no `by` and no
`shape`. All three versions are read.

Guarantee: Reading a file takes less memory than `MOST_MEMORY` times its size and 4 MB, and time in
proportion to its size, whoever wrote it. 2,000 atoms of 64 groups and 1,000 groups by group are
read; a file that would take more is refused with one line.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import checks, codec
from gcfcp.arrays import Bools, Floats
from gcfcp.calibration import AtomRecord, cells_of
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, single_rows
from gcfcp.prediction.provenance import public_part
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
    every_threshold,
)
from gcfcp.version import LIBRARY

_FORMAT = "gcfcp predictor"
_PLAIN, _BY_GROUP_OR_SHAPED, _PUBLIC = 1, 2, 3
# The entries of version 3, which may have no others; a predictor need not have `next_shape`.
_ENTRIES = frozenset([
    "format", "version", "library", "score", "groups", "alpha", "rule", "by", "shape", "covers",
    "table", "group_thresholds", "next_shape", "provenance",
])  # fmt: skip
_OF_ATOM = frozenset(["groups", "threshold", "reason"])
_HEAVIEST = 2.0**200  # The weights of a file add up to less, so that their products are finite.
MOST_MEMORY = 26
"""Reading a file takes less than this many times its size, and 4 MB."""

# All membership matrices together take at most this many bytes for each byte of the file.
_EXPANSION = 8
# A file has at most one list or object, and one name in an object, for each so many bytes: these
# take some 300 bytes of memory each, and no predictor is made of them alone.
_LEAST_BYTES = 12
_SMALL = 2**16  # A file that is smaller than this may be as dense as it likes.

Why = Callable[[Bools, Floats], list[str | None]]
"""Tells why rows (n, G) with these thresholds (n,) have no finite one, without counts."""


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
    coreset: bool = False,
    by: str = "atom",
    next_shape: Shape | None = None,
    why: Why | None = None,
) -> str:
    """The file's text. Each entry of a long list has its own line, so that it is easy to read.

    - `atoms`: One record for each atom of the table, or None if there are none.
    - `score`: The name of the score and its parameters.
    - `coreset`: Whether the coreset is written, and with it the counts.
    - `by`: What `atoms` are: "atom" or "group".
    - `next_shape`: A shape for the next calibration, if there is one.
    - `why`: The reasons that are told without the coreset; without it no reason is told.
    """
    shape = getattr(table.source, "shape", None)
    shaped = {"by": by, "shape": shape and shape.values}
    newer = shaped if by == "group" or shape else {}
    name, parameters = score
    values = {
        "format": _FORMAT,
        "version": _PUBLIC if not coreset else _BY_GROUP_OR_SHAPED if newer else _PLAIN,
        "library": library,
        "score": {"name": name, "parameters": parameters},
        "groups": table.groups.to_dict(),
        "alpha": str(table.alpha),
        "rule": table.rule,
    }
    if coreset:
        values |= newer
        values["table"] = _group_entries(atoms or ()) if by == "group" else _entries(table, atoms)
        values |= _source_to_json(table)
    else:
        values |= shaped | _public_table(table, by, why)
    if next_shape is not None:
        values["next_shape"] = next_shape.values
    values["provenance"] = provenance if coreset else public_part(provenance)
    return codec.to_json(values) + "\n"


def _public_table(table: ThresholdTable, by: str, why: Why | None) -> dict[str, Any]:
    """The entries `covers`, `table` and `group_thresholds` of a file without the coreset."""
    rows, thresholds, covers = _listed(table, by)
    reasons = [None] * len(rows) if why is None else why(rows, thresholds)
    source = table.source
    return {
        "covers": covers,
        "table": [
            {"groups": list(table.groups.names_of(row)), "threshold": threshold}
            | ({} if reason is None else {"reason": reason})
            for row, threshold, reason in zip(rows, thresholds.tolist(), reasons, strict=True)
        ],
        "group_thresholds": source.by_group.tolist() if isinstance(source, ByGroup) else None,
    }


def _listed(table: ThresholdTable, by: str) -> tuple[Bools, Floats, str]:
    """The rows (c, G) that such a file lists, their thresholds (c,), and what they cover."""
    source = table.source
    if isinstance(source, Constant):
        return np.zeros((1, len(table.groups)), bool), np.array([source.threshold]), "all"
    if by == "group":
        return *cells_of(table), "all"
    if isinstance(source, SeenOnly):
        covers = "all" if source.complete else "seen"
        return table.membership, table.thresholds_by_atom, covers
    every = every_threshold(table)
    if every is not None:
        return *every, "all"
    if isinstance(source, ByGroup):
        rows = single_rows(table.groups)
        return rows, source.thresholds(rows), "all"
    return table.membership, table.thresholds_by_atom, "seen"


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


def _source_to_json(table: ThresholdTable) -> dict[str, Any]:
    """The entries that hold what the rule needs for atoms that are not in the table."""
    source = table.source
    if isinstance(source, SeenOnly):
        raise GCFCPError(
            "the coreset cannot be saved, because this predictor was loaded from a file without "
            "it: calibrate again with --with-coreset, or save it with coreset=False"
        )
    names = np.array(table.groups.names, dtype=object)
    by_group = kept = hopeless = None
    if isinstance(source, ByGroup):
        by_group = source.by_group.tolist()
    if isinstance(source, Simultaneous):
        kept = _coreset_to_json(source, names)
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
    codec.refuse_other(text, name, "a predictor")
    _refuse_dense(text, name)
    try:
        data = codec.from_json(text)
    except ValueError:
        raise GCFCPError(f"{name} is not a predictor: it is not JSON") from None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise GCFCPError(f"{name} is not a predictor: give a file that Predictor.save wrote")
    if type(data.get("version")) is not int or not 1 <= data["version"] <= _PUBLIC:
        raise GCFCPError(
            f"{name} has format version {data.get('version')!r:.20}, and this gcfcp reads versions "
            f"1 to {_PUBLIC}: save the predictor again with this gcfcp, or use the gcfcp that "
            "wrote it"
        )
    with codec.reading(name, "predictor"):
        raw = text.encode() if isinstance(text, str) else text
        return _saved(data, len(raw), hashlib.sha256(raw).hexdigest())


def _refuse_dense(text: str | bytes, name: str) -> None:
    """Refuse a text whose lists, objects and names would take far more memory than the text."""
    lists, objects, colon = ("[", "{", ":") if isinstance(text, str) else (b"[", b"{", b":")
    count = max(text.count(lists) + text.count(objects), text.count(colon))  # type: ignore[arg-type]
    if count * _LEAST_BYTES > len(text) + _SMALL:
        raise GCFCPError(
            f"{name} is not a predictor: it has {count:,} lists, objects or names in "
            f"{len(text):,} bytes, and a predictor has at most one for each {_LEAST_BYTES} bytes"
        )


def _saved(data: dict[str, Any], size: int, fingerprint: str) -> Saved:
    """What the JSON object holds, checked. `size` is the number of bytes of the file."""
    public = data["version"] == _PUBLIC
    if public and not data.keys() <= _ENTRIES:
        odd = sorted(data.keys() - _ENTRIES)[0]
        raise GCFCPError(f"a file of version 3 has no entry {odd!r:.40}")
    table = _table_from_json(data, size)
    score, parameters = data["score"]["name"], data["score"]["parameters"]
    checks.name("score", score)
    provenance = data["provenance"]
    if not isinstance(provenance, dict):
        raise GCFCPError("its provenance is not a JSON object")
    next_shape = data.get("next_shape")
    return Saved(
        threshold_table=table,
        atoms=_records_from_json(data["table"], data["rule"], public),
        by=_by(data),
        next_shape=None if next_shape is None else Shape.from_values(table.groups, next_shape),
        provenance=provenance,
        score=(score, parameters),
        library=checks.name("library", data.get("library", LIBRARY)),
        fingerprint=fingerprint,
    )


def _table_from_json(data: dict[str, Any], size: int) -> ThresholdTable:
    """The threshold table. `size` is the number of bytes of the file."""
    groups = Groups.from_dict(data["groups"])
    _refuse_large(data, groups, size)
    thresholds = _numbers([entry["threshold"] for entry in data["table"]])
    alpha, rule = _alpha(data["alpha"]), data["rule"]
    if _by(data) == "group":
        named = [entry["groups"] for entry in data["table"]] == [[name] for name in groups.names]
        if rule != "max" or not named:
            raise GCFCPError(
                "by group, the rule must be 'max', and the table must list each group in order"
            )
        if not np.array_equal(thresholds, _numbers(data["group_thresholds"])):
            raise GCFCPError("the levels of the table are not those of group_thresholds")
        membership, thresholds = np.zeros((0, len(groups)), dtype=bool), thresholds[:0]
    else:
        membership = _membership([entry["groups"] for entry in data["table"]], groups)
    if rule == "constant" and not len(membership):
        raise GCFCPError("rule 'constant' needs at least one atom in the table")
    if rule != "constant" and not membership.any(axis=1).all():
        raise GCFCPError("an atom of the table belongs to no group")
    source = _source_from_json(data, groups, alpha, thresholds)
    return ThresholdTable(groups, alpha, membership, thresholds, source)


def _refuse_large(data: dict[str, Any], groups: Groups, size: int) -> None:
    """Refuse a file whose membership matrices would be large beside it.

    A small file could list many atoms and many groups, and a matrix grows with their product. By
    group there is no matrix.
    """
    if not isinstance(data["table"], list):
        raise GCFCPError("a list of atoms was expected")
    rows = 0 if _by(data) == "group" else len(data["table"])
    if data.get("coreset") is not None:
        rows += len(data["coreset"]["atoms"])
        charge = data["coreset"].get("charge")
        rows += 0 if charge is None else len(charge["classes"])
    if rows * len(groups) > _EXPANSION * (size + _SMALL):
        raise GCFCPError(
            f"{rows} atoms of {len(groups)} groups are more than a file of {size} bytes may have: "
            f"they would take {rows * len(groups) / size:.0f} times as much memory as the file"
        )


def _source_from_json(
    data: dict[str, Any], groups: Groups, alpha: Fraction, thresholds: Floats
) -> Rule:
    """The rule of the table. Entries that do not belong to this rule are an error."""
    rule = checks.choice("rule", data["rule"], "simultaneous", "max", "first", "constant")
    by_group = data["group_thresholds"]
    if (rule in ("max", "first")) != (by_group is not None):
        raise GCFCPError(
            "the rules 'max' and 'first' need group_thresholds, and no other rule has them; the "
            f"rule is {rule!r:.40}"
        )
    shape = None
    if data["version"] != _PLAIN and data["shape"] is not None:
        shape = Shape.from_values(groups, data["shape"])
        if rule != "max":
            raise GCFCPError("only rule 'max' can have a shape")
    if data["version"] == _PUBLIC:
        covers = checks.choice("covers", data["covers"], "all", "seen")
        solved: Rule = SeenOnly(complete=covers == "all")
        if covers == "seen" and rule != "simultaneous":
            raise GCFCPError(f"by rule {rule!r} all combinations are covered, not only those seen")
    else:
        solved = _solving(data, groups, alpha)
    if by_group is not None:
        numbers = _numbers(by_group)
        if len(numbers) != len(groups):
            raise GCFCPError("group_thresholds must hold one number for each group")
        return ByGroup(rule, numbers, shape)
    return Constant(float(thresholds[0])) if rule == "constant" else solved


def _solving(data: dict[str, Any], groups: Groups, alpha: Fraction) -> Rule:
    """The rule that solves atoms from the coreset, if the file has one."""
    coreset = carriers = charge = hopeless = None
    if data["coreset"] is not None:
        coreset, carriers = _coreset_from_json(data["coreset"], groups)
        if data["coreset"].get("charge") is not None:
            charge = _charge_from_json(data["coreset"]["charge"], groups, alpha)
    if data["hopeless"] is not None:
        hopeless = _membership([data["hopeless"]], groups)[0]
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
    return np.fromiter(map(_number, values), np.float64, len(values))


def _membership(named: Sequence[Any], groups: Groups) -> Bools:
    """The groups that each entry names, as a membership matrix of distinct rows."""
    place = {name: i for i, name in enumerate(groups.names)}
    rows = np.zeros((len(named), len(groups)), dtype=bool)
    for i, names in enumerate(named):
        rows[i, [place[name] for name in names]] = True
    if len(rows) and len(np.unique(np.packbits(rows, axis=1), axis=0)) < len(rows):
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
    """What the entries of the table are: atoms, or groups in a file of version 2 or 3."""
    if data["version"] == _PLAIN:
        if "by" in data or "shape" in data:  # Its thresholds would mean something else.
            raise GCFCPError("a file of version 1 has no entries by and shape")
        return "atom"
    return checks.choice("by", data["by"], "atom", "group")


def _records_from_json(
    entries: list[dict[str, Any]], rule: str, public: bool
) -> tuple[AtomRecord, ...] | None:
    """One record for each entry, or None if there are no records to speak of.

    - `public`: Whether the file is one without counts. In other files they are all or nothing.
    """
    if public:
        if not all(entry.keys() <= _OF_ATOM for entry in entries):
            raise GCFCPError("an atom of a file of version 3 has groups, threshold and reason only")
        return None if rule == "constant" else tuple(_record(e, None, None) for e in entries)
    if not all("count" in entry and "weight" in entry for entry in entries):
        return None
    return tuple(_record(e, *_counted(e["count"], _number(e["weight"]))) for e in entries)


def _counted(count: Any, weight: float) -> tuple[int, float]:
    """The count and the weight of an atom, checked."""
    if not 0 <= weight < math.inf:
        raise GCFCPError("the weight of an atom is not a finite number of 0 or more")
    return checks.count("the count of an atom", count), weight


def _record(entry: dict[str, Any], count: int | None, weight: float | None) -> AtomRecord:
    """The record of one entry of the table."""
    reason = entry.get("reason")
    if not isinstance(reason, str | None):
        raise GCFCPError("the reason of an atom is not a text")
    return AtomRecord(tuple(entry["groups"]), _number(entry["threshold"]), count, weight, reason)


def _coreset_from_json(data: dict[str, Any], groups: Groups) -> tuple[Coreset, Bools | None]:
    """The coreset and which of its atoms are carriers; see `Simultaneous`."""
    membership = _membership([atom["groups"] for atom in data["atoms"]], groups)
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


def _charge_from_json(data: dict[str, Any], groups: Groups, alpha: Fraction) -> Charge:
    """What the test point weighs by atom."""
    inside = _number(data["inside"])
    outside = _numbers([entry["outside"] for entry in data["classes"]])
    absent = _membership([entry["absent"] for entry in data["classes"]], groups)
    weights = np.append(outside, inside)
    if not len(outside) or not ((weights >= 0) & (weights < _HEAVIEST)).all():
        raise GCFCPError("the weights of the test point are not numbers from 0 to 2**200")
    return Charge(alpha, inside, outside, np.logical_not(absent, out=absent))
