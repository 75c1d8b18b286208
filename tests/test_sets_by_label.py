"""Sets that are found by the columns of a Parquet file are those that are found by its rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import scores, tables
from gcfcp.tables import labels as by_label
from gcfcp.tables import predictions

GROUPS = gcfcp.Groups({"all": "TRUE", "old": "age >= 65", "rare": "age >= 88"})


def predictor(score: object = None) -> gcfcp.Predictor:
    """Thresholds below and above 1/2, and an infinite one for the rare group."""
    rng = np.random.default_rng(1)
    age = np.concatenate([rng.integers(20, 88, 300), [88, 89]])
    values = np.where(age >= 65, 0.9, 0.4) * rng.random(302)
    given = scores.THR() if score is None else score
    summary = gcfcp.summarize(
        values, GROUPS.membership({"age": age}), groups=GROUPS, client="x", score=given
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)  # The rare group has too few records.
        return gcfcp.Predictor(given, gcfcp.calibrate([summary], 0.1))


def rows_of(labels: int, n: int = 100, dtype: type = np.float64, seed: int = 0) -> pl.DataFrame:
    """Rows of which one probability each is a threshold itself, or the number next to it."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(labels, 0.3), n)
    age = rng.integers(20, 90, n)
    thresholds = predictor().thresholds(GROUPS.membership({"age": age}))
    finite = np.isfinite(thresholds) & (labels > 1)
    ends = np.nextafter(1 - thresholds, rng.choice([-1.0, 0.5, 2.0], n))[finite]
    p[finite, 0] = 0.0
    p[finite] *= ((1 - ends) / p[finite].sum(axis=1))[:, None]
    p[finite, 0] = ends
    columns = {f"proba_{i}": p[:, i].astype(dtype) for i in range(labels)}
    return pl.DataFrame({"age": age, "name": [f"r{i}" for i in range(n)], **columns})


@contextmanager
def small_parts(rows: int = 32, values: int = 100) -> Iterator[None]:
    """Let files of a few rows have several parts, and a part several reads and batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_label, "rows_at_a_time", lambda _: 10)
        patch.setattr(by_label, "_MOST_ROWS", rows)
        patch.setattr(by_label, "_VALUES", values)
        yield


@contextmanager
def by_rows() -> Iterator[None]:
    """Find no set by columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictions, "sets_by_label", lambda *_: iter(()))
        yield


def outcome(data: pl.DataFrame, folder: Path, made: gcfcp.Predictor, **options: object) -> object:
    """The bytes that are written and the rows that are counted, or the error."""
    source, output = folder / "in.parquet", folder / "out.parquet"
    data.write_parquet(source, row_group_size=17)
    try:
        with tables.open_table(source) as table:
            rows = tables.predict_table(table, made, output, keep=("name",), **options)
    except gcfcp.GCFCPError as error:
        return str(error)
    return rows, output.read_bytes()


def how_many_by_label(data: pl.DataFrame, folder: Path, made: gcfcp.Predictor) -> int:
    """How many rows are found by columns."""
    data.write_parquet(folder / "in.parquet")
    with tables.open_table(folder / "in.parquet") as table:
        by = tables.scoring_for(table, made.score)
        none = (None, (), None)
        found = by_label.sets_by_label(table, made, by, "error", *none, tables.Pass())
        return sum(len(batch.frame) for batch, _, _ in found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("labels", [1, 2, 8, 9, 17])
def test_columns_and_rows_give_the_same_file(tmp_path: Path, labels: int, dtype: type) -> None:
    data, made = rows_of(labels, dtype=dtype), predictor()
    with small_parts():
        assert how_many_by_label(data, tmp_path, made) == 100
        found = outcome(data, tmp_path, made)
    with by_rows():
        assert found == outcome(data, tmp_path, made)
    p = data.select("^proba_.*$").to_numpy()
    expected = made.predict_set(p, GROUPS.membership(data)).sum(axis=1)
    written = pl.read_parquet(tmp_path / "out.parquet")
    assert written["size"].to_list() == expected.tolist()
    assert written["name"].to_list() == data["name"].to_list()


def edited(data: pl.DataFrame, row: int, label: int, value: float | None) -> pl.DataFrame:
    """The rows with one other probability."""
    column = data[f"proba_{label}"].clone()
    column[row] = value
    return data.with_columns(column)


@pytest.mark.parametrize("missing", ["error", "drop"])
@pytest.mark.parametrize("row", [0, 31, 32, 77])
@pytest.mark.parametrize("value", [None, np.nan, np.inf, -0.1, 0.99, -1e-9])
def test_what_is_wrong_is_said_as_by_rows(
    tmp_path: Path, row: int, value: float | None, missing: str
) -> None:
    data, made = edited(rows_of(5), row, 3, value), predictor()
    with small_parts():
        found = outcome(data, tmp_path, made, missing=missing)
    with by_rows():
        assert found == outcome(data, tmp_path, made, missing=missing)


def test_a_negative_probability_is_an_error_although_its_row_sums_to_one(tmp_path: Path) -> None:
    data = rows_of(5)
    first = 1.1 - data.select(pl.sum_horizontal("^proba_[123]$"))[40, 0]
    data = edited(edited(data, 40, 4, -0.1), 40, 0, first)
    found = outcome(data, tmp_path, predictor())
    assert found == (
        f"{tmp_path / 'in.parquet'}: probability of row 41, label 4 is -0.1, which is below 0"
    )


def test_parts_before_the_first_doubt_are_found_by_columns(tmp_path: Path) -> None:
    data = rows_of(5)
    with small_parts():
        assert how_many_by_label(edited(data, 77, 3, np.nan), tmp_path, predictor()) == 64
        assert how_many_by_label(edited(data, 5, 3, -0.1), tmp_path, predictor()) == 0


class _Other(scores.THR):
    """A score that is not `THR`, although it has its methods."""


@pytest.mark.parametrize(
    ("data", "score"),
    [
        (rows_of(5), scores.APS(randomized=False)),
        (rows_of(5), _Other()),
        (rows_of(5).with_columns(pl.col("proba_2").cast(pl.Float32)), None),
        (rows_of(5).with_columns(proba_9=pl.lit(0)), None),
        (rows_of(5).head(0), None),
    ],
    ids=["aps", "a score of one's own", "two types", "whole numbers", "no rows"],
)
def test_other_scores_and_types_go_by_rows(
    tmp_path: Path, data: pl.DataFrame, score: object
) -> None:
    made = predictor(score)
    assert how_many_by_label(data, tmp_path, made) == 0
    found = outcome(data, tmp_path, made)
    with by_rows():
        assert found == outcome(data, tmp_path, made)


def test_a_wrong_group_column_is_said_as_by_rows(tmp_path: Path) -> None:
    data = rows_of(5).with_columns(age=pl.lit("old"))
    found = outcome(data, tmp_path, predictor())
    with by_rows():
        assert found == outcome(data, tmp_path, predictor())
    assert isinstance(found, str)
    assert "age" in found


def test_rows_in_no_group_are_warned_of_once(tmp_path: Path) -> None:
    groups = gcfcp.Groups({"old": "age >= 65"})
    rng = np.random.default_rng(0)
    everyone = np.ones((100, 1), dtype=bool)
    summary = gcfcp.summarize(
        rng.random(100), everyone, groups=groups, client="x", score=scores.THR()
    )
    made = gcfcp.Predictor(scores.THR(), gcfcp.calibrate([summary], 0.2))
    data = rows_of(5, n=20).with_columns(age=pl.Series([70] * 13 + [20] * 7))
    with pytest.warns(gcfcp.GCFCPWarning, match="7 rows belong to no group") as caught:
        outcome(data, tmp_path, made)
    assert len(caught) == 1
    assert pl.read_parquet(tmp_path / "out.parquet")["size"].to_list()[13:] == [5] * 7


def test_groups_without_rows_are_counted_over_all_parts(tmp_path: Path) -> None:
    data = rows_of(5).with_columns(age=pl.Series([20] * 99 + [89]))
    with small_parts():
        rows, _ = outcome(data, tmp_path, predictor())
        assert rows.unmatched == ()
        rows, _ = outcome(data.head(99), tmp_path, predictor())
        assert rows.unmatched == ("old", "rare")
        gap = edited(data, 99, 0, None)  # The only row of these groups is left out.
        rows, _ = outcome(gap, tmp_path, predictor(), missing="drop")
        assert (rows.unmatched, rows.dropped) == (("old", "rare"), 1)


def test_progress_ends_with_all_rows(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    with small_parts():
        outcome(rows_of(5), tmp_path, predictor(), progress=lambda *now: told.append(now))
    assert told == sorted(told)
    assert told[-1] == (100, 100)


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    rows_of(5).write_parquet(source)
    with tables.open_table(source) as table:
        rows_of(5, n=200).write_parquet(source)
        with pytest.raises(gcfcp.GCFCPError, match="changed while it was read"):
            tables.predict_table(table, predictor(), tmp_path / "out.parquet")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.parquet"]


@given(
    labels=st.integers(1, 300),
    off=st.floats(-2e-3, 2e-3),
    lowest=st.sampled_from([0.0, -9e-7, -1.1e-6]),
    wide=st.booleans(),
    seed=st.integers(0, 5),
)
@example(labels=300, off=1e-3, lowest=0.0, wide=False, seed=0)
@settings(max_examples=200, deadline=None)
def test_what_is_sure_passes_the_check_of_rows(
    labels: int, off: float, lowest: float, wide: bool, seed: int
) -> None:
    """The check of rows, in its own order and precision, never refuses what was sure."""
    dtype = np.dtype(np.float64 if wide else np.float32)
    p = np.random.default_rng(seed).dirichlet(np.ones(labels), 3) * (1 + off)
    p[:, 0] += lowest - p[:, 0] * (lowest < 0)
    p = p.astype(dtype)
    sums = np.zeros(3)
    for column in p.T:
        sums += column
    margin = scores.sum_margin(labels, dtype)
    if scores.surely_probabilities(sums, float(p.min()), margin):
        scores.THR().predict(p, 0.5)
    elif abs(off) < 5e-4 and lowest > -1e-6 and labels > 1 and lowest == 0:
        pytest.fail("ordinary probabilities are in doubt")
