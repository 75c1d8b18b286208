"""Scores from columns: which columns of a table matter follows from the score.

| score      | columns                         | a label y is                            |
|------------|---------------------------------|-----------------------------------------|
| `residual` | `y`, `prediction`               | a number                                |
| `cqr`      | `y`, `lo`, `hi`                 | a number                                |
| `thr`      | `y`, `proba_<label>`, ...       | the end of its column's name, as text   |
| `aps`      | the same                        | the same                                |
| `raps`     | the same                        | the same                                |
| `column`   | `score` (to predict: `score_*`) | not needed                              |

Labels are always the ends of the columns' names, whatever their order in the file: with `proba_cat`
and `proba_dog` y is `cat` or `dog`; with `proba_0` ... `proba_9` it is 0 ... 9. They are put in
numerical order if all of them are whole numbers and in alphabetical order otherwise, which decides
between equally probable labels in the same way at every site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gcfcp import scores
from gcfcp.arrays import Floats
from gcfcp.errors import GCFCPError
from gcfcp.tables.files import Table, listed

if TYPE_CHECKING:
    import polars as pl

SCORES = ("thr", "aps", "raps", "residual", "cqr", "column")
SCORE_COLUMN = "score"


@dataclass(frozen=True)
class Scoring:
    """How the columns of a table make predictions and scores."""

    score: Any  # one of gcfcp.scores, or "column"
    columns: tuple[str, ...]  # of the prediction
    labels: tuple[str, ...] | None = None

    @property
    def kind(self) -> Literal["set", "interval", "column"]:
        return "column" if isinstance(self.score, str) else self.score.kind

    def types(self) -> dict[str, Any]:
        import polars as pl

        types: dict[str, Any] = dict.fromkeys(self.columns, pl.Float64)
        if self.kind != "column":
            types["y"] = pl.String if self.labels else pl.Float64
        return types

    def prediction(self, frame: pl.DataFrame) -> NDArray[Any]:
        """What the score takes as the prediction: (n,), (n, 2) or (n, L)."""
        columns = [_number_column(frame, c) for c in self.columns]
        if len(columns) == 1 and not self.labels:
            return columns[0]
        # Column by column into place: one copy, and float32 stays what it is.
        out = np.empty((len(frame), len(columns)), dtype=np.result_type(*columns))
        for i, column in enumerate(columns):
            out[:, i] = column
        return out

    def outcomes(self, frame: pl.DataFrame) -> NDArray[Any]:
        """y as numbers, or as the places of its labels."""
        if self.labels is None:
            return _number_column(frame, "y")
        return _label_places(frame["y"], self.labels)

    def of(self, frame: pl.DataFrame, rng: Generator | None) -> Floats:
        if isinstance(self.score, str):
            return self.prediction(frame)
        found: Floats = self.score.of(self.prediction(frame), self.outcomes(frame), rng=rng)
        return found


def scoring(table: Table, name: str | None = None, **parameters: Any) -> Scoring:
    """The scoring of a table by the score's name, or by the columns if they leave no choice."""
    name = _guess(table) if name is None else name
    if name not in SCORES:
        raise GCFCPError(f"score {name!r:.60} is not one of {', '.join(SCORES)}")
    if name == "column":
        table.require((SCORE_COLUMN,))
        return Scoring("column", (SCORE_COLUMN,))
    return scoring_for(table, scores.from_name(name, parameters))


def scoring_for(table: Table, score: Any) -> Scoring:
    """The scoring of a table for a score that is known, such as a predictor's."""
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
        found = Scoring(score, tuple(f"proba_{label}" for label in labels), labels)
    table.require(found.columns)
    return found


def _guess(table: Table) -> str:
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
            f"{table.name} has the columns of several scores: say which, --score "
            + " or --score ".join(possible)
        )
    raise GCFCPError(
        f"{table.name} has no columns to score: it needs y with prediction, y with lo and hi, "
        f"y with proba_<label>, or score; it has {listed(table.columns)}"
    )


def labels_of(table: Table, prefix: str) -> tuple[str, ...]:
    labels = [c.removeprefix(prefix) for c in table.columns if c.startswith(prefix) and c != prefix]
    if all(_is_whole(label) for label in labels):
        return tuple(sorted(labels, key=int))
    return tuple(sorted(labels))


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text == str(int(text))


def _number_column(frame: pl.DataFrame, name: str) -> NDArray[Any]:
    column = frame[name]
    if not column.dtype.is_numeric():
        raise GCFCPError(f"column {name!r} is {column.dtype}, not numbers")
    return column.to_numpy()


def _label_places(y: pl.Series, labels: tuple[str, ...]) -> NDArray[np.int64]:
    """The place of each label among the labels; one that is not there is an error that shows it."""
    import polars as pl

    whole = all(_is_whole(label) for label in labels)
    text = y
    if y.dtype.is_float():
        text = y.cast(pl.Int64, strict=False) if whole and (y == y.floor()).all() else y
    text = text.cast(pl.String)
    if whole and y.dtype == pl.String:  # 3.0, from a tool that writes whole numbers as floats
        text = text.str.strip_chars().str.replace(r"\.0*$", "")
    places = text.replace_strict(
        list(labels), list(range(len(labels))), default=None, return_dtype=pl.Int64
    )
    if places.null_count():
        bad = y.filter(places.is_null())
        raise GCFCPError(
            f"{places.null_count()} labels such as y={bad[0]!r:.40} have no column: there are "
            f"labels {listed(labels)}; y holds the end of its column's name"
        )
    return places.to_numpy()
