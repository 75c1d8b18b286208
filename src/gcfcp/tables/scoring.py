"""Scores from columns: the score decides which columns of a table are read.

| score      | columns                         | a label y is                            |
|------------|---------------------------------|-----------------------------------------|
| `residual` | `y`, `prediction`               | a number                                |
| `cqr`      | `y`, `lo`, `hi`                 | a number                                |
| `thr`      | `y`, `proba_<label>`, ...       | the end of its column's name, as text   |
| `aps`      | the same                        | the same                                |
| `raps`     | the same                        | the same                                |
| `column`   | `score` (to predict: `score_*`) | not needed                              |

Labels are always the ends of the columns' names, whatever the order of the columns in the file:
with `proba_cat` and `proba_dog`, y is `cat` or `dog`; with `proba_0` ... `proba_9`, it is 0 ... 9.
Labels are put in numerical order if all of them are whole numbers, and in alphabetical order
otherwise. So every site has the same order, and ties between equally probable labels are broken in
the same way everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gcfcp import scores
from gcfcp.arrays import Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.tables.files import Columns, listed

if TYPE_CHECKING:
    import polars as pl

SCORES = ("thr", "aps", "raps", "residual", "cqr", "column")
"""The names of the scores that can be computed from, or read from, the columns of a table."""
SCORE_COLUMN = "score"
"""The column that holds scores which were computed elsewhere."""


@dataclass(frozen=True)
class Scoring:
    """How predictions and scores follow from the columns of a table."""

    score: Any  # A score of `gcfcp.scores`, or the name of a score that is computed elsewhere.
    columns: tuple[str, ...]  # The columns that hold the prediction, or the ready scores.
    labels: tuple[str, ...] | None = None  # The labels of a classification, in order.

    @property
    def named(self) -> Any:
        """The score with the names of its labels, which travel in the summary."""
        return replace(self.score, classes=self.labels) if self.labels else self.score

    @property
    def kind(self) -> Literal["set", "interval", "column"]:
        """What is predicted: a set of labels or an interval; "column" if scores are ready."""
        return "column" if isinstance(self.score, str) else self.score.kind

    def types(self) -> dict[str, Any]:
        """The polars types of the columns that the score reads, by name."""
        import polars as pl

        types: dict[str, Any] = dict.fromkeys(self.columns, pl.Float64)
        if self.kind != "column":
            types["y"] = pl.String if self.labels else pl.Float64
        return types

    def prediction(self, frame: pl.DataFrame) -> NDArray[Any]:
        """What the score takes as the prediction of n rows.

        The shape is (n,) for one prediction or score, (n, 2) for two quantiles, and (n, L) for the
        probabilities or scores of L labels.
        """
        wanted = frame.select(self.columns)
        if self.labels and len(set(wanted.dtypes)) == 1 and wanted.dtypes[0].is_float():
            return wanted.to_numpy(order="c")
        columns = [_number_column(frame, c) for c in self.columns]
        if len(columns) == 1 and not self.labels:
            return columns[0]
        # The columns are copied one by one into place, so that there is one copy in all and
        # float32 stays float32.
        out = np.empty((len(frame), len(columns)), dtype=np.result_type(*columns))
        for i, column in enumerate(columns):
            out[:, i] = column
        return out

    def outcomes(self, frame: pl.DataFrame) -> NDArray[Any]:
        """The outcomes y: numbers, or for each label its place among `labels`."""
        if self.labels is None:
            return _number_column(frame, "y")
        return _label_places(frame["y"], self.labels)

    def of(self, frame: pl.DataFrame, rng: Generator | None) -> Floats:
        """The score of the true outcome of every row."""
        if isinstance(self.score, str):
            return self.prediction(frame)
        found: Floats = self.score.of(self.prediction(frame), self.outcomes(frame), rng=rng)
        return found


def scoring(table: Columns, name: str | None = None, **parameters: Any) -> Scoring:
    """The scoring of a table for a score that is given by its name.

    table: The table whose columns are to be scored.
    name: One of `SCORES`. None takes the only score that the columns allow; if they allow
    several or none, a GCFCPError says so. Probabilities alone mean `thr`.
    parameters: The parameters of the score, such as `lam=0.01` for `raps`.
    """
    name = _guess(table) if name is None else name
    if name not in SCORES:
        raise GCFCPError(f"score {name!r:.60} is not known: give one of {', '.join(SCORES)}")
    if name == "column":
        table.require((SCORE_COLUMN,))
        return Scoring("column", (SCORE_COLUMN,))
    return scoring_for(table, scores.from_name(name, parameters))


def scoring_for(table: Columns, score: Any) -> Scoring:
    """The scoring of a table for a score that is given as a value, such as a predictor's score.

    score: A score of `gcfcp.scores`, or the name of a score that is computed elsewhere. Such a
    score has columns `score_<label>`, or none if the table does not hold them.
    """
    name, _ = scores.describe(score)
    if name == "residual":
        found = Scoring(score, ("prediction",))
    elif name == "cqr":
        found = Scoring(score, ("lo", "hi"))
    elif isinstance(score, str):
        labels = labels_of(table, "score_")
        found = Scoring(score, tuple(f"score_{label}" for label in labels), labels or None)
    else:
        labels = labels_of(table, "proba_")
        if not labels:
            raise GCFCPError(
                f"{table.name} has no columns proba_<label>, which score {name!r} needs; "
                f"it has {listed(table.columns)}"
            )
        _refuse_other_labels(table, labels, getattr(score, "classes", None))
        found = Scoring(score, tuple(f"proba_{label}" for label in labels), labels)
    table.require(found.columns)
    return found


def _refuse_other_labels(table: Columns, labels: tuple[str, ...], classes: Any) -> None:
    """Raise an error if the labels of a table are not those of the predictor's model."""
    if classes is not None and tuple(map(str, classes)) != labels:
        raise GCFCPError(
            f"{table.name} has the labels {listed(labels)}, but the predictor is for "
            f"{listed(classes)}: use the model that the predictor was made for"
        )


def _guess(table: Columns) -> str:
    """The name of the one score that the columns allow."""
    present = set(table.columns)
    choices = {
        "column": SCORE_COLUMN in present,
        "thr": bool(labels_of(table, "proba_")),
        "cqr": {"lo", "hi"} <= present,
        "residual": "prediction" in present,
    }
    possible = [name for name, is_possible in choices.items() if is_possible]
    if len(possible) == 1:
        return possible[0]
    if possible:
        raise GCFCPError(
            f"{table.name} has the columns of several scores: choose one with --score "
            + " or --score ".join(possible)
        )
    raise GCFCPError(
        f"{table.name} has no columns to score: it needs y with prediction, y with lo and hi, "
        f"y with proba_<label>, or score; it has {listed(table.columns)}"
    )


def labels_of(table: Columns, prefix: str) -> tuple[str, ...]:
    """The ends of the names of all columns that start with `prefix`, in the order of labels."""
    labels = [c.removeprefix(prefix) for c in table.columns if c.startswith(prefix) and c != prefix]
    if all(_is_whole(label) for label in labels):
        return tuple(sorted(labels, key=int))
    return tuple(sorted(labels))


def _is_whole(text: str) -> bool:
    """Whether a label is a whole number in its usual form: 7 or -7, but neither 07 nor 7.0."""
    return text.removeprefix("-").isdecimal() and text == str(int(text))


def _number_column(frame: pl.DataFrame, name: str) -> NDArray[Any]:
    """A column as an array; a GCFCPError if it does not hold numbers."""
    column = frame[name]
    if not column.dtype.is_numeric():
        raise GCFCPError(
            f"column {name!r} has the type {column.dtype}, but the score needs numbers there"
        )
    return column.to_numpy()


def _label_places(y: pl.Series, labels: tuple[str, ...]) -> Ints:
    """The place of each outcome among the labels.

    Whole numbers are recognised however they are written: y may be 3, 3.0 or the text "3.0" where
    the column is `proba_3`. An outcome that is not among the labels is an error that shows it.
    """
    import polars as pl

    whole = all(_is_whole(label) for label in labels)
    text = y
    if y.dtype.is_float():
        text = y.cast(pl.Int64, strict=False) if whole and (y == y.floor()).all() else y
    text = text.cast(pl.String)
    if whole and y.dtype == pl.String:  # Some tools write the whole number 3 as "3.0".
        text = text.str.strip_chars().str.replace(r"\.0*$", "")
    places = text.replace_strict(
        list(labels), list(range(len(labels))), default=None, return_dtype=pl.Int64
    )
    if places.null_count():
        bad = y.filter(places.is_null())
        raise GCFCPError(
            f"{places.null_count()} labels such as y={bad[0]!r:.40} have no column: the columns "
            f"are for the labels {listed(labels)}, and y must hold the end of a column's name"
        )
    return places.to_numpy()
