"""Prediction anywhere, from one small file.

A `Predictor` is a score and a threshold table. A label y is in the set of x iff its score is at
most the threshold of x's atom; for intervals the score is inverted. Loading and predicting need
NumPy alone.

The file is JSON that a person can read: `format`, `version`, `score`, `groups`, `alpha`, `rule`,
`table` (one entry an atom: its groups, its threshold and why that is infinite if it is),
`provenance` (clients, sizes, mixture, guarantees, fingerprints) and `coreset`, the scores and
weights by atom from which atoms that were not seen are solved. The coreset is what the server
got from the clients, pooled; `save(..., coreset=False)` leaves it out where that must not be
passed on, and a row of an unseen atom is then an error. Infinity is written as "inf".

Cost: a lookup and a comparison for each label.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gcfcp import codec, scores
from gcfcp.client import LIBRARY, ClientSummary, check_name, describe_score
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.screening import screen
from gcfcp.server import AtomRecord, Calibration
from gcfcp.solver import Coreset
from gcfcp.table import ThresholdTable

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_FORMAT, _VERSION = "gcfcp predictor", 1
_PROBABILITY_SCORES = (scores.THR, scores.APS, scores.RAPS)
_HEAVIEST = 2.0**200  # weights of ours are below 2**60, and products of these must be finite
_EXPANSION = 100  # bytes that a membership matrix may take for each byte of a file


@dataclass(frozen=True, eq=False)
class Predictor:
    """A score with calibrated thresholds: `Predictor(score, calibration)`.

    score: one of `gcfcp.scores` or its name, any object with `of` and `predict`, or any other
    name, with which predictions are taken as the matrix (n, L) of the scores of all labels.
    calibration: what `calibrate` or one of `gcfcp.methods` returns. The clients' score and this
    one must be the same.
    """

    score: Any
    calibration: Any = field(repr=False)
    records: tuple[AtomRecord, ...] | None = field(init=False, repr=False)
    """Counts, weights and reasons by atom, in the table's order; None if the method kept none."""

    def __post_init__(self) -> None:
        if not isinstance(self.score, str) and not callable(getattr(self.score, "predict", None)):
            raise GCFCPError(
                f"score={self.score!r:.60} is neither one of gcfcp.scores nor an object with `of` "
                "and `predict` nor a name"
            )
        self.table  # noqa: B018 (an error here and now if there is none)
        if isinstance(self.calibration, Calibration):
            _check_score(self.score, self.calibration)
        if isinstance(self.score, str):
            object.__setattr__(self, "score", _named(self.score, _parameters(self.calibration)))
        object.__setattr__(self, "records", getattr(self.calibration, "table", None))

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Where the thresholds come from: clients, sizes, mixture, guarantees, fingerprints."""
        if isinstance(self.calibration, Calibration):
            return _provenance(self.calibration)
        return dict(getattr(self.calibration, "provenance", {}))

    @property
    def table(self) -> ThresholdTable:
        """The thresholds by atom."""
        table = getattr(self.calibration, "threshold_table", self.calibration)
        if not isinstance(table, ThresholdTable):
            raise GCFCPError(
                f"{type(self.calibration).__name__} holds no thresholds: give what calibrate "
                "returns"
            )
        return table

    @property
    def groups(self) -> Groups:
        return self.table.groups

    def recorded(self, what: str) -> list[dict[str, Any]]:
        """A list of records in the provenance, which is whatever the file says; else nothing."""
        given = self.provenance.get(what)
        return [r for r in given if isinstance(r, dict)] if isinstance(given, list) else []

    def thresholds(self, membership: Any, rng: Generator | None = None) -> Floats:
        """The threshold of each row; see `ThresholdTable.thresholds`."""
        return self.table.thresholds(membership, rng)

    def predict_set(
        self,
        prediction: Any,
        membership: Any,
        rng: Generator | None = None,
        *,
        allow_empty: bool = True,
    ) -> Bools:
        """Prediction sets, bool (n, L). An infinite threshold gives the full set.

        membership: (n, G), or (n, L, G) where groups depend on the label. rng: for randomised
        scores. allow_empty=False puts the label of the lowest score into a set that would be
        empty, which can only raise coverage.
        """
        thresholds = self._thresholds_for(prediction, membership)
        if isinstance(self.score, str):
            sets = _compare(prediction, thresholds)
        else:
            sets = np.asarray(self.score.predict(prediction, thresholds, rng=rng))
        if sets.ndim != 2 or sets.dtype != np.bool_:
            raise GCFCPError(
                f"score {describe_score(self.score)[0]!r} gives intervals: use predict_interval"
            )
        if not allow_empty:
            empty = np.flatnonzero(~sets.any(axis=1))
            sets = sets.copy()
            sets[empty, self._best(np.asarray(prediction)[empty])] = True
        return sets

    def _best(self, prediction: NDArray[Any]) -> Any:
        """The label of the lowest score in each row."""
        if isinstance(self.score, _PROBABILITY_SCORES):  # all of them fall with the probability
            return np.argmax(prediction, axis=1)
        if isinstance(self.score, str):
            return np.argmin(prediction, axis=1)
        if not callable(getattr(self.score, "all", None)):
            raise GCFCPError(
                f"score {describe_score(self.score)[0]!r} has no `all(prediction)` that gives the "
                "scores (n, L) of all labels, which allow_empty=False needs"
            )
        return np.argmin(np.asarray(self.score.all(prediction)), axis=1)

    def predict_interval(
        self, prediction: Any, membership: Any, rng: Generator | None = None
    ) -> Floats:
        """Prediction intervals, float (n, 2). An infinite threshold gives (-inf, inf), an empty
        set (nan, nan)."""
        if isinstance(self.score, str):
            raise GCFCPError(
                f"score {self.score!r} is only a name and cannot be inverted: load with "
                "Predictor.load(path, score=...)"
            )
        thresholds = self._thresholds_for(prediction, membership)
        intervals = np.asarray(self.score.predict(prediction, thresholds, rng=rng))
        if intervals.ndim != 2 or intervals.shape[1] != 2 or intervals.dtype == np.bool_:
            raise GCFCPError(
                f"score {describe_score(self.score)[0]!r} gives label sets: use predict_set"
            )
        return intervals

    def _thresholds_for(self, prediction: Any, membership: Any) -> Floats:
        thresholds = self.thresholds(membership)
        n = len(prediction) if np.ndim(prediction) else 1
        if len(thresholds) != n:
            raise GCFCPError(
                f"there are {n} predictions and {len(thresholds)} membership rows: give one each"
            )
        return thresholds

    def save(self, path: str | PathLike[str], *, coreset: bool = True) -> None:
        """Write one readable JSON file, whole or not at all."""
        codec.write(path, self.to_json(coreset=coreset).encode())

    def to_json(self, *, coreset: bool = True) -> str:
        """The file's text; the same calibration always gives the same text."""
        name, parameters = describe_score(self.score)
        return _dump(
            {
                "format": _FORMAT,
                "version": _VERSION,
                "library": LIBRARY,
                "score": {"name": name, "parameters": parameters},
                **_table_to_json(self.table, self.records, coreset),
                "provenance": self.provenance,
            }
        )

    @classmethod
    def load(cls, path: str | PathLike[str], score: Any = None) -> Predictor:
        """Read a predictor. `score` supplies an own score, which the file knows by name only."""
        return cls.from_json(codec.read(path), fspath(path), score)

    @classmethod
    def from_json(
        cls, text: str | bytes, name: str = "the predictor", score: Any = None
    ) -> Predictor:
        """A predictor from its text, which may come from anyone."""
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
        try:
            table = _table_from_json(data, len(text))
            records = _records_from_json(data["table"], table)
            found = _score_from_json(data["score"], score)
            provenance = data["provenance"]
            if not isinstance(provenance, dict):
                raise GCFCPError("its provenance is not an object")
        except codec.MALFORMED as error:
            raise GCFCPError(f"{name} is not a valid predictor: {codec.explain(error)}") from None
        predictor = cls(found, table)
        object.__setattr__(predictor, "provenance", provenance)
        object.__setattr__(predictor, "records", records)
        return predictor


def _compare(matrix: Any, thresholds: Floats) -> Bools:
    """Sets from a plain matrix of scores."""
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or np.isnan(values).any():
        raise GCFCPError(
            f"a matrix of scores has shape (n, L) and no NaN; this one has shape {values.shape} "
            f"and {int(np.isnan(values).sum())} NaN"
        )
    sets: Bools = values <= (thresholds if thresholds.ndim == 2 else thresholds[:, None])
    return sets


def _named(name: str, parameters: Mapping[str, Any]) -> Any:
    """The score of gcfcp that has this name; an own one is known by it and no more."""
    return scores.from_name(name, parameters) if name in scores.NAMES else name


def _parameters(calibration: Any) -> Mapping[str, Any]:
    known = isinstance(calibration, Calibration)
    return calibration.summaries[0].parameters if known else {}


def _check_score(score: Any, calibration: Calibration) -> None:
    name, parameters = describe_score(score)
    summary = calibration.summaries[0]
    if summary.score == "unnamed" or (isinstance(score, str) and name == summary.score):
        return
    if (name, parameters) != (summary.score, summary.parameters):
        raise GCFCPError(
            f"the clients were summarised with score {summary.score!r} {summary.parameters}, the "
            f"predictor was given {name!r} {parameters}: use the same"
        )


def _provenance(calibration: Calibration) -> dict[str, Any]:
    """Where the thresholds come from, in plain values."""
    first = calibration.summaries[0]
    unlike = {s.client: str(s) for s in screen(calibration.summaries) if s.flagged}
    return {
        "alpha": calibration.alpha,
        "mixture": calibration.mixture,
        "merge": calibration.merge,
        "recompression_delta": calibration.recompression_delta,
        "rule": calibration.rule,
        "representative": first.representative,
        "model": first.model,
        "test_weight": calibration.test_weight,
        "clients": [
            _client(s, calibration.shares[s.client]) | {"unlike": unlike.get(s.client)}
            for s in calibration.summaries
        ],
        "guarantee": [asdict(g) for g in calibration.guarantee],
    }


def _client(s: ClientSummary, share: float) -> dict[str, Any]:
    data = s.to_bytes()
    return {
        "client": s.client,
        "n": s.n,
        "share": share,
        "delta": s.delta,
        "min_count": s.min_count,
        "suppressed": s.suppressed,
        "uncovered": s.uncovered,
        "atoms": len(s.errors),
        "centroids": len(s.values),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "members": len(s.members),
        "library": s.library,
    }


# --- JSON ----------------------------------------------------------------------------------------


def _dump(value: Any) -> str:
    """JSON with one entry of a long list a line, so that a diff and an eye can follow it."""
    return json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _number(value: Any) -> float:
    """A number, or the word for an infinity."""
    if value in ("inf", "-inf"):
        return float(value)
    if type(value) not in (int, float) or math.isnan(value):
        raise GCFCPError(f"{value!r:.40} is not a number")
    return float(value)


def _numbers(values: Any) -> Floats:
    if not isinstance(values, list):
        raise GCFCPError("a list of numbers was expected")
    return np.array([_number(v) for v in values], dtype=np.float64)


def _table_to_json(
    table: ThresholdTable, records: Sequence[AtomRecord] | None, coreset: bool
) -> dict[str, Any]:
    names = np.array(table.groups.names, dtype=object)
    entries = []
    for i, (row, threshold) in enumerate(
        zip(table.membership, table.thresholds_by_atom.tolist(), strict=True)
    ):
        entry = {"groups": names[row].tolist(), "threshold": threshold}
        if records is not None:
            entry |= {"count": records[i].count, "weight": records[i].weight}
            if records[i].reason is not None:
                entry["reason"] = records[i].reason
        entries.append(entry)
    groups = table.groups
    kept = table.coreset if coreset and table.rule == "simultaneous" else None
    return {
        "groups": {
            "names": list(groups.names),
            "predicates": None if groups.predicates is None else list(groups.predicates),
            "fingerprint": groups.fingerprint,
        },
        "alpha": str(table.alpha),
        "rule": table.rule,
        "table": entries,
        "group_thresholds": None
        if table.group_thresholds is None
        else table.group_thresholds.tolist(),
        "coreset": None if kept is None else _coreset_to_json(kept, table.carriers, names),
        "hopeless": None if table.hopeless is None else names[table.hopeless].tolist(),
    }


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


def _table_from_json(data: dict[str, Any], size: int) -> ThresholdTable:
    named = data["groups"]
    groups = Groups(named["names"], named["predicates"])
    if groups.fingerprint != named["fingerprint"]:
        raise GCFCPError("the groups' fingerprint does not match their definition")
    membership = _membership(data["table"], groups, size)
    rule = data["rule"]
    if rule == "constant" and not len(membership):
        raise GCFCPError("rule 'constant' needs an atom in the table")
    if rule != "constant" and not membership.any(axis=1).all():
        raise GCFCPError("an atom of the table belongs to no group")
    by_group = data["group_thresholds"]
    group_thresholds = None if by_group is None else _numbers(by_group)
    if group_thresholds is not None and len(group_thresholds) != len(groups):
        raise GCFCPError("there must be a group threshold for each group")
    if (rule in ("max", "first")) != (group_thresholds is not None):
        raise GCFCPError(f"rule {rule!r:.40} does not fit the group thresholds")
    coreset, carriers = None, None
    if data["coreset"] is not None:
        coreset, carriers = _coreset_from_json(data["coreset"], groups, size)
    hopeless = None
    if data["hopeless"] is not None:
        hopeless = _membership([{"groups": data["hopeless"]}], groups, size)[0]
    return ThresholdTable(
        groups=groups,
        alpha=_alpha(data["alpha"]),
        rule=rule,
        membership=membership,
        thresholds_by_atom=np.array([_number(entry["threshold"]) for entry in data["table"]]),
        group_thresholds=group_thresholds,
        coreset=coreset,
        carriers=carriers,
        hopeless=hopeless,
    )


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


def _score_from_json(data: Any, own: Any) -> Any:
    name, parameters = data["name"], data["parameters"]
    check_name("score", name)
    if own is not None:
        if describe_score(own) != (name, parameters):
            raise GCFCPError(
                f"it was made for score {name!r} {parameters!s:.60}, not for "
                f"{describe_score(own)[0]!r} {describe_score(own)[1]!s:.60}"
            )
        return own
    return _named(name, parameters)
