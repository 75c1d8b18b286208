"""Prediction sets and intervals, from one small file.

A `Predictor` is a score and a threshold table. A label y is in the set of x if and only if its
score is at most the threshold of x's atom. An interval is the set of all numbers y with such a
score, which the score finds by inverting its formula. Loading and predicting need nothing but
NumPy. The module `file` describes the file.

Cost: one lookup for each row, and one comparison for each label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import checks, codec, scores
from gcfcp.arrays import Bools, Floats
from gcfcp.calibration import AtomRecord, Calibration, public_reasons
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.prediction.disclosure import PredictorDisclosure, disclosure_of
from gcfcp.prediction.file import Saved, from_text, to_text
from gcfcp.prediction.provenance import provenance_of
from gcfcp.shape import Shape
from gcfcp.thresholds import ThresholdTable
from gcfcp.version import LIBRARY

SHAPED_GROUPS = 64
"""With more groups than this, a predictor's file carries no shape, which would take a fit of its
own."""

_ENORMOUS = 2.0**900  # Sums of scores beyond this size could overflow, and make no shape.

# The scores of this library whose predictions are class probabilities.
_PROBABILITY_SCORES = (scores.THR, scores.APS, scores.RAPS)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A score with calibrated thresholds: `Predictor(score, calibration)`.

    - `score`: One of `gcfcp.scores` or its name, or an object of your own with the methods `of` and
      `predict`. Any other name is allowed too; predictions are then the matrix (n, L) of the
      scores of all labels. It must be the score that the clients used.
    - `calibration`: What `calibrate` or one of `gcfcp.methods` returns.
    """

    score: Any
    calibration: Any = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.score, str) and not callable(getattr(self.score, "predict", None)):
            raise GCFCPError(
                f"score={self.score!r:.60} is neither one of gcfcp.scores nor an object with `of` "
                "and `predict` nor a name: give one of these"
            )
        self.threshold_table  # noqa: B018 (It raises an error if there is no table.)
        if isinstance(self.calibration, Calibration):
            _check_score(self.score, self.calibration)
        if isinstance(self.score, str):
            object.__setattr__(self, "score", _named(self.score, _parameters(self.calibration)))

    @property
    def threshold_table(self) -> ThresholdTable:
        """The thresholds by atom."""
        table = getattr(self.calibration, "threshold_table", self.calibration)
        if not isinstance(table, ThresholdTable):
            raise GCFCPError(
                f"{type(self.calibration).__name__} holds no thresholds: give what calibrate "
                "returns"
            )
        return table

    @property
    def atoms(self) -> tuple[AtomRecord, ...] | None:
        """Thresholds, counts, weights and reasons by atom, in the order of the table.

        It is None if the calibration has none, as that of each of `gcfcp.methods`. A predictor that
        was loaded from a file without the coreset has every combination of groups here, or those
        that the file lists, with counts and weights of None: the file does not tell them.
        """
        atoms: tuple[AtomRecord, ...] | None = getattr(self.calibration, "atoms", None)
        return atoms

    @property
    def table(self) -> ThresholdTable:
        """The older name of `threshold_table`."""
        return self.threshold_table

    @property
    def records(self) -> tuple[AtomRecord, ...] | None:
        """The older name of `atoms`."""
        return self.atoms

    @property
    def by(self) -> str:
        """What `atoms` are: atoms, or groups if the calibration was by group."""
        return str(getattr(self.calibration, "by", "atom"))

    @cached_property
    def shape(self) -> Shape:
        """A shape for the next calibration, of other records; see `Calibration.shape`."""
        found = self._next_shape()
        if found is None:
            raise GCFCPError(
                "this predictor carries no shape: make one of the summaries with gcfcp.fit_shape"
            )
        return found

    def _next_shape(self) -> Shape | None:
        """The shape that the file carries. None if there is none, or if it would cost too much."""
        made = self.calibration
        if not isinstance(made, Calibration):
            return getattr(made, "next_shape", None)
        if made.by == "group":
            return made.used_shape
        if made.problem.noise is not None:
            return None  # Counts with noise give no shape.
        scores = np.concatenate([s.values for s in made.summaries])
        if scores.max(initial=0.0) == np.inf:
            scores = scores[np.isfinite(scores)]
        fits = len(made.groups) <= SHAPED_GROUPS and len(scores) > 0
        fits = fits and max(-scores.min(), scores.max()) < _ENORMOUS
        return made.shape if fits else None

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Where the thresholds come from: clients, sizes, mixture, guarantees, fingerprints.

        A loaded predictor has here whatever its file says, which without the coreset is less.
        """
        if isinstance(self.calibration, Calibration):
            return provenance_of(self.calibration)
        return dict(getattr(self.calibration, "provenance", {}))

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256, in hexadecimal digits, of the file that the predictor was loaded from.

        If it was not loaded, it is that of the file that `save` would write.
        """
        if isinstance(self.calibration, Saved):
            return self.calibration.fingerprint
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def described(self) -> tuple[str, Mapping[str, Any]]:
        """Name and parameters of the score. A score that is only named has the clients' ones."""
        if isinstance(self.score, str):
            return self.score, _parameters(self.calibration)
        return scores.describe(self.score)

    @property
    def groups(self) -> Groups:
        """The family of groups that the promise is about."""
        return self.threshold_table.groups

    def recorded(self, what: str) -> list[dict[str, Any]]:
        """The list of objects that the provenance has under the name `what`, such as "clients".

        The provenance of a loaded predictor is whatever its file says. If it has no such list, the
        result is empty, and entries that are not objects are left out.
        """
        given = self.provenance.get(what)
        return [r for r in given if isinstance(r, dict)] if isinstance(given, list) else []

    def share_of(self, client: str) -> float | None:
        """pi_k, the weight of a client in the mixture that the promise is about.

        It is None if the client is not among those of the calibration. The file of a loaded
        predictor may come from anyone: it is None, too, if the file does not give the client
        exactly one weight from 0 to 1.
        """
        if isinstance(self.calibration, Calibration):
            return self.calibration.shares.get(client)
        given = [c.get("share") for c in self.recorded("clients") if c.get("client") == client]
        share = codec.number(given[0]) if len(given) == 1 else None
        return share if share is not None and 0 <= share <= 1 else None

    @cached_property
    def gives_everything(self) -> Bools:
        """For each group, whether every record in it has the threshold +inf, bool (G,).

        The sets of such a group hold every label and its intervals are unbounded. They are never
        wrong, and say nothing.
        """
        return self.threshold_table.infinite_groups

    def thresholds(
        self, membership: Any, threshold_rng: np.random.Generator | None = None
    ) -> Floats:
        """The threshold of each row; see `ThresholdTable.thresholds`."""
        return self.threshold_table.thresholds(membership, threshold_rng)

    def predict_set(
        self,
        prediction: Any,
        membership: Any,
        rng: np.random.Generator | None = None,
        *,
        threshold_rng: np.random.Generator | None = None,
        allow_empty: bool = True,
    ) -> Bools:
        """Prediction sets, bool (n, L): which labels are in the set of each row.

        A threshold of +inf gives the set of all labels.

        - `prediction`: The model's predictions in the form that the score needs, such as class
          probabilities (n, L).
        - `membership`: The groups of each row, (n, G), or (n, L, G) if groups depend on the label.
        - `rng`: The generator for scores that are randomised, such as `APS`.
        - `threshold_rng`: The generator for randomised thresholds; see
          `ThresholdTable.thresholds`. Without it thresholds are not randomised.
        - `allow_empty`: If it is False, a set that would be empty gets the label with the lowest
          score. This can only raise coverage.
        """
        if self._least is not None and threshold_rng is None:
            least = _of_rows(self._least, prediction, membership)
            sets: Bools = self.score.predict_from(prediction, least)
            return sets if allow_empty else self._not_empty(sets, prediction)
        thresholds = _of_rows(self.threshold_table, prediction, membership, threshold_rng)
        if isinstance(self.score, str):
            sets = _compare(prediction, thresholds)
        else:
            sets = np.asarray(self.score.predict(prediction, thresholds, rng=rng))
        if sets.ndim != 2 or sets.dtype != np.bool_:
            raise GCFCPError(
                f"score {scores.describe(self.score)[0]!r} gives intervals: use predict_interval"
            )
        return sets if allow_empty else self._not_empty(sets, prediction)

    @cached_property
    def _least(self) -> ThresholdTable | None:
        """For the score `THR`, the least probability in the set, in the place of a threshold."""
        score = self.score
        return self.threshold_table.mapped(score.least) if type(score) is scores.THR else None

    def _not_empty(self, sets: Bools, prediction: Any) -> Bools:
        """The sets, where one that is empty has the label with the lowest score."""
        empty = np.flatnonzero(~sets.any(axis=1))
        filled = sets.copy()
        filled[empty, self._best(np.asarray(prediction)[empty])] = True
        return filled

    def _best(self, prediction: NDArray[Any]) -> Any:
        """The label with the lowest score in each row."""
        if isinstance(self.score, _PROBABILITY_SCORES):
            # Each of these scores is lowest for the most probable label.
            return np.argmax(prediction, axis=1)
        if isinstance(self.score, str):
            return np.argmin(prediction, axis=1)
        if not callable(getattr(self.score, "all", None)):
            raise GCFCPError(
                f"score {scores.describe(self.score)[0]!r} has no `all(prediction)` that gives the "
                "scores (n, L) of all labels, which allow_empty=False needs: add it, or allow "
                "empty sets"
            )
        return np.argmin(np.asarray(self.score.all(prediction)), axis=1)

    def predict_interval(
        self,
        prediction: Any,
        membership: Any,
        rng: np.random.Generator | None = None,
        *,
        threshold_rng: np.random.Generator | None = None,
    ) -> Floats:
        """Prediction intervals, float (n, 2): the lower and the upper end for each row.

        A threshold of +inf gives (-inf, inf), and an empty interval is (nan, nan). The arguments
        are those of `predict_set`.
        """
        if isinstance(self.score, str):
            raise GCFCPError(
                f"score {self.score!r} is only a name and cannot be inverted: load with "
                "Predictor.load(path, score=...)"
            )
        thresholds = _of_rows(self.threshold_table, prediction, membership, threshold_rng)
        intervals = np.asarray(self.score.predict(prediction, thresholds, rng=rng))
        if intervals.ndim != 2 or intervals.shape[1] != 2 or intervals.dtype == np.bool_:
            raise GCFCPError(
                f"score {scores.describe(self.score)[0]!r} gives label sets: use predict_set"
            )
        return intervals

    @cached_property
    def disclosure(self) -> PredictorDisclosure:
        """What the predictor's file tells of the clients' records, in numbers and in words.

        If the predictor was not loaded, it is what the file tells that `save` writes by default.
        """
        if not isinstance(self.calibration, Saved):
            return Predictor.from_json(self.to_json()).disclosure
        return disclosure_of(self.calibration)

    def save(self, path: str | PathLike[str], *, coreset: bool = False) -> None:
        """Write the predictor to a JSON file. If writing fails, an older file stays as it was.

        - `coreset`: Whether the file also holds the coreset, that is, the pooled content of the
          clients' summaries, with counts by combination of groups. Without it, the file has the
          thresholds of every combination that can occur, or of those that were seen if these would
          be too many; see the module `file`.
        """
        codec.write(path, self.to_json(coreset=coreset).encode())

    def to_json(self, *, coreset: bool = False) -> str:
        """The text of the file. Equal calibrations give equal texts."""
        return to_text(
            self.threshold_table,
            self.atoms,
            self.described(),
            self.provenance,
            getattr(self.calibration, "library", LIBRARY),
            coreset=coreset,
            by=self.by,
            next_shape=self._next_shape(),
            why=self._why,
        )

    def _why(self, rows: Bools, thresholds: Floats) -> list[str | None]:
        """The reasons for infinite thresholds of rows (n, G) that a file may tell: without counts.

        A file that was read with counts has reasons with counts, and none of them is passed on.
        """
        if isinstance(self.calibration, Calibration):
            return public_reasons(self.calibration.problem, rows, thresholds)
        known = {r.groups: r.reason for r in self.atoms or () if r.count is None}
        return [known.get(self.groups.names_of(row)) for row in rows]

    @classmethod
    def load(cls, path: str | PathLike[str], score: Any = None) -> Predictor:
        """Read a predictor from a file.

        - `score`: A score of your own, of which the file holds only the name and the parameters.
          It must have the same ones.
        """
        return cls.from_json(codec.read(path), fspath(path), score)

    @classmethod
    def from_json(
        cls, text: str | bytes, name: str = "the predictor", score: Any = None
    ) -> Predictor:
        """A predictor from the text of its file. Anyone may have written the text.

        - `name`: What the text is called in an error message.
        - `score`: A score of your own; see `load`.
        """
        saved = from_text(text, name)
        with codec.reading(name, "predictor"):
            return cls(_named(*saved.score) if score is None else _same(score, saved.score), saved)


def _of_rows(
    table: ThresholdTable, prediction: Any, membership: Any, rng: np.random.Generator | None = None
) -> Floats:
    """What the table has for each row, or an error if the rows do not match the predictions."""
    found = table.thresholds(membership, rng)
    n = len(prediction) if np.ndim(prediction) else 1
    if len(found) != n:
        raise GCFCPError(
            f"there are {n} predictions and {len(found)} membership rows: give one row "
            "for each prediction"
        )
    return found


def _compare(matrix: Any, thresholds: Floats) -> Bools:
    """Prediction sets from a matrix (n, L) of the scores of all labels."""
    values = checks.vector("the matrix of scores", matrix)
    if values.ndim != 2 or np.isnan(values).any():
        raise GCFCPError(
            f"a matrix of scores has shape (n, L) and no NaN; this one has shape {values.shape} "
            f"and {int(np.isnan(values).sum())} NaN: give the score of every label"
        )
    sets: Bools = values <= (thresholds if thresholds.ndim == 2 else thresholds[:, None])
    return sets


def _named(name: str, parameters: Mapping[str, Any]) -> Any:
    """The score of `gcfcp.scores` that has this name, or the name itself if there is none."""
    return scores.from_name(name, parameters) if name in scores.NAMES else name


def _parameters(calibration: Any) -> Mapping[str, Any]:
    """The parameters of the score that the clients used; none if they are not known."""
    if isinstance(calibration, Calibration):
        return calibration.summaries[0].parameters
    return calibration.score[1] if isinstance(calibration, Saved) else {}


def _check_score(score: Any, calibration: Calibration) -> None:
    """Refuse a score that is not the one that the clients used."""
    name, parameters = scores.describe(score)
    summary = calibration.summaries[0]
    if summary.score == "unnamed" or (isinstance(score, str) and name == summary.score):
        return
    if name != summary.score or not scores.alike(parameters, summary.parameters):
        raise GCFCPError(
            f"the clients were summarised with score {summary.score!r} {summary.parameters}, but "
            f"the predictor was given {name!r} {parameters}: use the same score"
        )


def _same(score: Any, saved: tuple[str, dict[str, Any]]) -> Any:
    """The score that the caller gives, or an error if it is not the one that the file names."""
    name, parameters = scores.describe(score)
    if name != saved[0] or not scores.alike(parameters, saved[1]):
        raise GCFCPError(
            f"it was made for score {saved[0]!r} {saved[1]!s:.60}, not for {name!r} "
            f"{parameters!s:.60}: give the score that it was made for"
        )
    return score
