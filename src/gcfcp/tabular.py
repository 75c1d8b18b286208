"""Tables on disk to scores and memberships, and back to prediction sets: CSV or Parquet.

A table is read in batches, so it may be larger than memory. Which columns matter follows from the
score:

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

A record with a missing value (null or NaN) in one of these columns has no score: that is an error
that says how many there are and where the first is, unless told to drop them; they are counted
either way. The columns of the groups' conditions are read beside them (`Groups.columns`).

Guarantee: up to `EXACT_ROWS` records the summary is that of `gcfcp.summarize` over the whole table,
to the last bit. Beyond, each atom goes through a `DigestBuilder`, whose error certificate the
summary carries. Batches and their sizes change nothing in either, nor in randomised scores.

Cost: one pass. Memory: `EXACT_ROWS` scores (128 MB), a batch, and the builders' buffers, whatever
the size of the table. Measured in benchmarks/.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gcfcp import scores
from gcfcp.audit import Audit, Counts, count, publish
from gcfcp.client import ClientSummary, assemble, describe_score
from gcfcp.digest import DigestBuilder, Representative
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups, find_atoms
from gcfcp.predictor import Predictor

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Progress = Callable[[int, int | None], None]

EXACT_ROWS = 2**24
"""Scores that are held as they are before digests take over."""
BUFFERED = 2**26
"""Scores that all builders together may hold once they have."""
SCORES = ("thr", "aps", "raps", "residual", "cqr", "column")
_NULLS = ["NA", "N/A", "null", "None"]  # beside the empty field
_SMALL_FILE = 100 * 2**20  # bytes: types are inferred from all of a smaller CSV file
_MAGIC = b"PAR1"
_COLUMN = "score"
_END = "\x00end"  # a column of no table


# --- tables ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A CSV or Parquet file whose columns are known and whose rows are still on disk."""

    path: str
    name: str  # for people
    parquet: bool
    columns: tuple[str, ...]
    rows: int | None  # known for Parquet

    def batches(self, columns: tuple[str, ...], types: dict[str, Any]) -> Iterator[pl.DataFrame]:
        """The named columns, in order, some rows at a time. `types`: of columns, where CSV text
        could be taken for something else."""
        import polars as pl

        self.require(columns)
        size = max(1024, min(2**18, 2**23 // max(1, len(columns))))
        # A row that marks the end: where a signal cancels polars' query, its batches just stop,
        # and a part of the table must never pass for the whole.
        end = pl.LazyFrame({_END: [True]})
        finished = False
        with _reading(self.name):
            rows = _scan(self.path, self.parquet, types).select(*columns, pl.lit(None).alias(_END))
            marked = pl.concat([rows, end], how="diagonal_relaxed")
            for frame in marked.collect_batches(chunk_size=size, engine="streaming", lazy=True):
                finished = frame.height > 0 and frame[_END][-1] is not None
                found = frame.head(frame.height - finished).drop(_END)
                if found.height:
                    yield found
        if not finished:
            raise GCFCPError(f"{self.name} was not read to its end: something interrupted it")

    def require(self, columns: tuple[str, ...]) -> None:
        missing = [c for c in columns if c not in self.columns]
        if missing:
            raise GCFCPError(
                f"{self.name} has no column {_listed(missing)}; it has {_listed(self.columns)}"
            )


@contextmanager
def open_table(path: str | PathLike[str]) -> Iterator[Table]:
    """Open a table; "-" is standard input, kept in a temporary file while it is used."""
    if fspath(path) == "-":
        with tempfile.NamedTemporaryFile(prefix="gcfcp-") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
            yield _table(file.name, "standard input")
    else:
        yield _table(fspath(path), fspath(path))


def _table(path: str, name: str) -> Table:
    import polars as pl

    try:
        if os.path.isdir(path):
            raise GCFCPError(f"{name} is a directory: give a CSV or Parquet file")
        with open(path, "rb") as file:
            parquet = file.read(4) == _MAGIC
    except OSError as error:
        raise GCFCPError(f"cannot read {name}: {error.strerror}") from None
    with _reading(name):
        lazy = _scan(path, parquet, {})
        columns = tuple(lazy.collect_schema().names())
        rows = int(lazy.select(pl.len()).collect().item()) if parquet else None
    return Table(path, name, parquet, columns, rows)


def _scan(path: str, parquet: bool, types: dict[str, Any]) -> pl.LazyFrame:
    import polars as pl

    if parquet:
        return pl.scan_parquet(path, glob=False)
    small = os.path.getsize(path) <= _SMALL_FILE
    return pl.scan_csv(
        path,
        glob=False,
        null_values=_NULLS,
        schema_overrides=types,
        infer_schema_length=None if small else 100_000,
    )


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Whatever polars finds wrong with a file, in one line."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        what = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise GCFCPError(f"cannot read {name} as a table: {what:.300}") from None


def _listed(names: Any, limit: int = 12) -> str:
    some = [f"{n!r:.60}" for n in names]
    return ", ".join(some[:limit]) + (f", ... ({len(some)} in all)" if len(some) > limit else "")


# --- scores from columns -----------------------------------------------------------------------


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
        table.require((_COLUMN,))
        return Scoring("column", (_COLUMN,))
    return scoring_for(table, scores.from_name(name, parameters))


def scoring_for(table: Table, score: Any) -> Scoring:
    """The scoring of a table for a score that is known, such as a predictor's."""
    name, _ = describe_score(score)
    if name == "residual":
        found = Scoring(score, ("prediction",))
    elif name == "cqr":
        found = Scoring(score, ("lo", "hi"))
    elif isinstance(score, str):
        labels = _labels(table, "score_")
        found = Scoring(score, tuple(f"score_{label}" for label in labels), labels or None)
    else:
        labels = _labels(table, "proba_")
        if not labels:
            raise GCFCPError(
                f"{table.name} has no columns proba_<label>, which score {name!r} needs; "
                f"it has {_listed(table.columns)}"
            )
        found = Scoring(score, tuple(f"proba_{label}" for label in labels), labels)
    table.require(found.columns)
    return found


def _guess(table: Table) -> str:
    present = set(table.columns)
    choices = {
        "column": _COLUMN in present,
        "thr": bool(_labels(table, "proba_")),
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
        f"y with proba_<label>, or score; it has {_listed(table.columns)}"
    )


def _labels(table: Table, prefix: str) -> tuple[str, ...]:
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
            f"labels {_listed(labels)}; y holds the end of its column's name"
        )
    return places.to_numpy()


# --- one pass ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """How many records a pass has seen, and how many of them it left out."""

    read: int = 0
    dropped: int = 0

    @property
    def used(self) -> int:
        return self.read - self.dropped


@dataclass(frozen=True)
class _Batch:
    frame: pl.DataFrame  # complete records; it may have none
    membership: Bools
    rows: Rows  # up to and with this batch
    where: str

    @contextmanager
    def located(self) -> Iterator[None]:
        """An error about these records says which rows of the table it is about."""
        try:
            yield
        except GCFCPError as error:
            raise GCFCPError(f"{self.where}: {error}") from None


def _pass(
    table: Table,
    groups: Groups,
    columns: tuple[str, ...],
    types: dict[str, Any],
    missing: str,
    progress: Progress | None,
    also: tuple[str, ...] = (),
) -> Iterator[_Batch]:
    """The table in batches: complete records only, with their groups.

    Missing values are looked for in all of the table before they are reported, so the count is
    that of the table. What groups warn of is said once, at the end.
    """
    if missing not in ("error", "drop"):
        raise GCFCPError(f"missing={missing!r:.40} is neither 'error' nor 'drop'")
    table.require(groups.columns)
    # Where no column is needed one is read all the same: a frame without columns has no rows.
    wanted = tuple(dict.fromkeys((*columns, *groups.columns, *also))) or table.columns[:1]
    rows = Rows()
    first: tuple[int, str] | None = None
    said: list[str] = []
    for frame in table.batches(wanted, types):
        gaps, column = _gaps(frame, columns)
        if gaps is not None and first is None:
            first = rows.read + int(gaps.arg_max() or 0), column
        lost = 0 if gaps is None else int(gaps.sum())
        start, rows = rows.read, Rows(rows.read + len(frame), rows.dropped + lost)
        if progress is not None:
            progress(rows.read, table.rows)
        if first is not None and missing == "error":
            continue  # only to count
        complete = frame if gaps is None else frame.filter(~gaps)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GCFCPWarning)
            membership = groups.membership(complete)
        said += [str(w.message) for w in caught]
        where = f"{table.name}, rows {start + 1:,} to {rows.read:,}" if start else table.name
        yield _Batch(complete, membership, rows, where)
    if first is not None and missing == "error":
        row, column = first
        raise GCFCPError(
            f"{table.name}: {rows.dropped:,} of {rows.read:,} rows have a missing value where the "
            f"score needs one, the first in column {column!r} of row {row + 1:,}: mend them, or "
            "leave them out (--missing drop)"
        )
    if not rows.used:
        raise GCFCPError(f"{table.name} has no rows{' left' if rows.read else ''} to work with")
    if said:
        more = f" (and in {len(said) - 1} more batches)" if len(said) > 1 else ""
        warnings.warn(f"{table.name}: {said[0]}{more}", GCFCPWarning, stacklevel=3)


def _gaps(frame: pl.DataFrame, columns: tuple[str, ...]) -> tuple[pl.Series | None, str]:
    """Which rows have a null or a NaN, if any, and in which column the first of them."""
    found: pl.Series | None = None
    first: dict[str, int] = {}
    for name in columns:
        gaps = frame[name].is_null()
        if frame[name].dtype.is_float():
            gaps = gaps | frame[name].is_nan().fill_null(False)
        if gaps.any():
            first[name] = int(gaps.arg_max() or 0)
            found = gaps if found is None else found | gaps
    return found, min(first, key=lambda name: first[name], default="")


# --- the three things that are done with a table -------------------------------------------------


def summarize_table(
    table: Table,
    by: Scoring,
    *,
    groups: Groups,
    client: str,
    delta: float = 250,
    representative: Representative = "upper",
    min_count: int = 1,
    model: str | None = None,
    missing: str = "error",
    rng: Generator | None = None,
    progress: Progress | None = None,
) -> tuple[ClientSummary, Rows]:
    """`gcfcp.summarize` of a table, and how many records it has."""
    columns = by.columns if by.kind == "column" else ("y", *by.columns)
    limit = getattr(by.score, "upper", np.inf) if not isinstance(by.score, str) else np.inf
    rounded = representative == "upper" and min_count > 1 and np.isfinite(limit)

    def builder(buffer: int) -> DigestBuilder:
        return DigestBuilder(
            delta, representative, min_count, limit if rounded else None, buffer=buffer
        )

    held = _Held(builder)
    rows = Rows()
    for batch in _pass(table, groups, columns, by.types(), missing, progress):
        with batch.located():
            held.add(by.of(batch.frame, rng), batch.membership)
        rows = batch.rows
    by_atom, membership = held.finish()
    summary = assemble(
        by_atom,
        membership,
        groups=groups,
        client=client,
        delta=delta,
        representative=representative,
        min_count=min_count,
        score=by.score,
        model=model,
    )
    return summary, rows


class _Held:
    """Scores by atom: as they are at first, in builders once there are too many. Mutable, as a
    stream is a process."""

    def __init__(self, builder: Callable[[int], DigestBuilder]) -> None:
        self._builder = builder
        self._membership: dict[bytes, Bools] = {}
        self._chunks: dict[bytes, list[Floats]] = {}
        self._builders: dict[bytes, DigestBuilder] | None = None
        self._count = 0
        self._buffer = 0

    def add(self, values: Floats, membership: Bools) -> None:
        if not len(values):
            return
        atoms = find_atoms(membership)
        order = np.argsort(atoms.index, kind="stable")
        ends = np.cumsum(atoms.counts)
        for row, part in zip(atoms.membership, np.split(values[order], ends[:-1]), strict=True):
            key = row.tobytes()
            self._membership.setdefault(key, row)
            if self._builders is None:
                self._chunks.setdefault(key, []).append(part)
            else:
                self._of(key).add(part)
        self._count += len(values)
        if self._builders is None and self._count > EXACT_ROWS:
            self._turn_into_builders()

    def _of(self, key: bytes) -> DigestBuilder:
        assert self._builders is not None
        if key not in self._builders:
            self._builders[key] = self._builder(self._buffer)
        return self._builders[key]

    def _turn_into_builders(self) -> None:
        self._builders = {}
        self._buffer = max(2**12, min(2**20, BUFFERED // len(self._membership)))
        for key in list(self._chunks):
            for part in self._chunks.pop(key):
                self._of(key).add(part)

    def finish(self) -> tuple[list[Any], Bools]:
        keys = sorted(self._membership)  # of bool rows: the order of their packed keys
        if not keys:
            raise GCFCPError("there are no scores: a client needs at least one record")
        if self._builders is None:
            by_atom: list[Any] = [np.concatenate(self._chunks.pop(key)) for key in keys]
        else:
            by_atom = [self._builders[key] for key in keys]
        return by_atom, np.array([self._membership[key] for key in keys])


def audit_table(
    table: Table,
    predictor: Predictor,
    *,
    client: str,
    min_count: int = 1,
    missing: str = "error",
    rng: Generator | None = None,
    predictor_id: str | None = None,
    progress: Progress | None = None,
) -> tuple[Audit, Rows]:
    """`gcfcp.audit` of a labelled table with a predictor, and how many records it has."""
    by = _scoring_to_audit(table, predictor)
    columns = by.columns if by.kind == "column" and not by.labels else ("y", *by.columns)
    counts: Counts | None = None
    rows = Rows()
    for batch in _pass(
        table, predictor.groups, columns, by.types() | _y_type(by), missing, progress
    ):
        with batch.located():
            covered, size = _coverage(predictor, by, batch, rng)
        more = count(covered, batch.membership, groups=predictor.groups, set_size=size)
        counts = more if counts is None else counts + more
        rows = batch.rows
    assert counts is not None  # a pass without rows is an error
    found = publish(
        counts,
        groups=predictor.groups,
        client=client,
        min_count=min_count,
        alpha=float(predictor.table.alpha),
        predictor=predictor_id,
    )
    return found, rows


def _y_type(by: Scoring) -> dict[str, Any]:
    import polars as pl

    return {"y": pl.String} if by.labels else {}


def _scoring_to_audit(table: Table, predictor: Predictor) -> Scoring:
    """A score that is only named can be audited by `score` itself, without sets."""
    if isinstance(predictor.score, str) and not _labels(table, "score_"):
        table.require((_COLUMN,))
        return Scoring(predictor.score, (_COLUMN,))
    return scoring_for(table, predictor.score)


def _coverage(
    predictor: Predictor, by: Scoring, batch: _Batch, rng: Generator | None
) -> tuple[Bools, NDArray[Any] | None]:
    prediction = by.prediction(batch.frame)
    if by.labels:
        sets = predictor.predict_set(prediction, batch.membership, rng=rng)
        places = by.outcomes(batch.frame)
        return sets[np.arange(len(sets)), places], sets.sum(axis=1)
    if by.kind == "column":
        return prediction <= predictor.thresholds(batch.membership), None
    ends = predictor.predict_interval(prediction, batch.membership, rng=rng)
    y = by.outcomes(batch.frame)
    with np.errstate(invalid="ignore"):
        width = np.nan_to_num(ends[:, 1] - ends[:, 0], nan=0.0, posinf=np.inf)
        return (ends[:, 0] <= y) & (y <= ends[:, 1]), width


def predict_table(
    table: Table,
    predictor: Predictor,
    output: str | PathLike[str],
    *,
    keep: tuple[str, ...] = (),
    missing: str = "error",
    rng: Generator | None = None,
    progress: Progress | None = None,
) -> Rows:
    """Write the prediction of every row, CSV or Parquet by the name of `output` ("-": CSV).

    Sets: `set` (labels; in CSV joined by "|"), `size`, `threshold`. Intervals: `lower`, `upper`
    (empty ones are null), `threshold`. The kept columns come first. Whole or not at all.
    """
    import polars as pl

    by = scoring_for(table, predictor.score)
    if not by.columns:
        raise GCFCPError(
            f"score {by.score!r} is only a name: to predict, {table.name} needs the scores of all "
            "labels as columns score_<label>"
        )
    table.require(keep)
    types = {c: t for c, t in by.types().items() if c in by.columns}
    rows = Rows()
    with _writer(output) as write:
        for batch in _pass(table, predictor.groups, by.columns, types, missing, progress, keep):
            with batch.located():
                columns = _predicted(predictor, by, batch, rng)
            if clash := columns.keys() & set(keep):
                raise GCFCPError(
                    f"column {min(clash)!r} cannot be kept: the output has one so named"
                )
            write(pl.DataFrame({**{name: batch.frame[name] for name in keep}, **columns}))
            rows = batch.rows
    return rows


def _predicted(
    predictor: Predictor, by: Scoring, batch: _Batch, rng: Generator | None
) -> dict[str, Any]:
    import polars as pl

    prediction = by.prediction(batch.frame)
    thresholds = predictor.thresholds(batch.membership)
    if by.labels:
        sets = predictor.predict_set(prediction, batch.membership, rng=rng)
        sizes = sets.sum(axis=1)
        places = np.nonzero(sets)[1]
        flat = pl.Series(np.array(by.labels, dtype=object)[places].tolist(), dtype=pl.String)
        row = np.repeat(np.arange(len(sets)), sizes)
        lists = (
            pl.DataFrame({"row": row, "set": flat}).group_by("row", maintain_order=True).agg("set")
        )
        full = pl.DataFrame({"row": np.arange(len(sets))}).join(
            lists, on="row", how="left", maintain_order="left"
        )
        column = full["set"].fill_null(pl.lit([], dtype=pl.List(pl.String)))
        return {"set": column, "size": sizes, "threshold": thresholds}
    ends = predictor.predict_interval(prediction, batch.membership, rng=rng)
    bounds = pl.DataFrame({"lower": ends[:, 0], "upper": ends[:, 1]}).fill_nan(None)
    return {"lower": bounds["lower"], "upper": bounds["upper"], "threshold": thresholds}


@contextmanager
def _writer(output: str | PathLike[str]) -> Iterator[Callable[[pl.DataFrame], None]]:
    """Takes frames one by one; the file appears when all of them are in."""
    import polars as pl

    name = fspath(output)
    if name == "-":
        first = True

        def to_stdout(frame: pl.DataFrame) -> None:
            nonlocal first
            sys.stdout.write(_as_csv(frame, header=first))
            first = False

        yield to_stdout
        return
    target = Path(name)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".gcfcp-") as directory:
            if target.suffix.lower() in (".parquet", ".pq"):
                parts: list[Path] = []

                def to_parquet(frame: pl.DataFrame) -> None:
                    parts.append(Path(directory) / f"{len(parts):09}.parquet")
                    frame.write_parquet(parts[-1])

                yield to_parquet
                whole = parts[0]
                if len(parts) > 1:
                    whole = Path(directory) / "whole.parquet"
                    pl.scan_parquet(parts).sink_parquet(whole)
            else:
                whole = Path(directory) / "whole.csv"
                with whole.open("w", encoding="utf-8", newline="") as file:

                    def to_csv(frame: pl.DataFrame) -> None:
                        file.write(_as_csv(frame, header=file.tell() == 0))

                    yield to_csv
            os.replace(whole, target)
    except OSError as error:
        raise GCFCPError(f"cannot write {name}: {error.strerror}") from None


def _as_csv(frame: pl.DataFrame, header: bool) -> str:
    import polars as pl

    if "set" in frame.columns and frame["set"].dtype == pl.List(pl.String):
        frame = frame.with_columns(pl.col("set").list.join("|"))
    return frame.write_csv(include_header=header)
