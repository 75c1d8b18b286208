"""Summaries, sets and audits of tables are bit for bit what the library makes of whole frames."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gcfcp
from gcfcp import tables
from gcfcp.summary import Making, summarize
from gcfcp.tables import files as table_files
from gcfcp.tables import summaries

GROUPS = gcfcp.Groups({"all": "TRUE", "old": "age >= 65", "mid": "age between 40 and 70"})
LABELS = ("cat", "dog", "owl")


def frame(n: int = 400, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), n)
    centre = rng.normal(size=n)
    return pl.DataFrame(
        {
            "age": rng.integers(20, 90, n),
            "y": [LABELS[i] for i in rng.integers(0, 3, n)],
            # The columns are not in the order of the labels: their names decide, not their places.
            "proba_owl": p[:, 2],
            "proba_cat": p[:, 0],
            "proba_dog": p[:, 1],
            "outcome": centre + rng.normal(size=n),
            "prediction": centre,
            "lo": centre - 1,
            "hi": centre + 1,
            "score": rng.gamma(2.0, size=n),
        }
    )


def table_for(score: str, data: pl.DataFrame) -> pl.DataFrame:
    """Only the columns that the score needs."""
    if score in ("thr", "aps", "raps"):
        return data.select("age", "y", "^proba_.*$")
    if score == "column":
        return data.select("age", "score")
    columns = ["prediction"] if score == "residual" else ["lo", "hi"]
    return data.select("age", pl.col("outcome").alias("y"), *columns)


def reference(name: str, data: pl.DataFrame, seed: int = 5) -> np.ndarray:
    """The scores that the library computes without tables."""
    rng = np.random.default_rng(seed)
    if name == "column":
        return data["score"].to_numpy()
    score = gcfcp.scores.from_name(name)
    if name == "residual":
        return score.of(data["prediction"].to_numpy(), data["y"].to_numpy())
    if name == "cqr":
        return score.of(data.select("lo", "hi").to_numpy(), data["y"].to_numpy())
    p = data.select([f"proba_{label}" for label in LABELS]).to_numpy()
    return score.of(p, np.array([LABELS.index(y) for y in data["y"]]), rng=rng)


def save(data: pl.DataFrame, path: Path) -> Path:
    data.write_csv(path) if path.suffix == ".csv" else data.write_parquet(path)
    return path


def summarised(path: Path, score: str | None = None, **options: object) -> tuple:
    with tables.open_table(path) as table:
        by = tables.scoring(table, score)
        reading = {"rng": np.random.default_rng(5)}
        for name in ("rng", "missing", "progress", "holdout", "holdout_rng"):
            if name in options:
                reading[name] = options.pop(name)
        making = Making(**{"groups": GROUPS, "client": "x", "score": by.score} | options)
        parts, rows = tables.summarize_table(table, by, making, **reading)
        return (parts[0] if len(parts) == 1 else parts), rows


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("name", tables.SCORES)
@pytest.mark.parametrize("min_count", [1, 7])
def test_the_summary_is_that_of_the_whole_frame(
    tmp_path: Path, suffix: str, name: str, min_count: int
) -> None:
    data = table_for(name, frame())
    path = save(data, tmp_path / f"data{suffix}")
    expected = summarize(
        reference(name, data),
        GROUPS.membership(data),
        groups=GROUPS,
        client="x",
        min_count=min_count,
        score="column" if name == "column" else gcfcp.scores.from_name(name),
    )
    found, rows = summarised(path, name, min_count=min_count)
    assert found == expected
    assert rows == tables.Rows(400, 0)


@pytest.mark.parametrize("name", ["thr", "aps", "column"])
def test_batches_change_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small batches give the same bytes as one, randomised scores included."""
    data = table_for(name, frame(3000))
    path = save(data, tmp_path / "data.parquet")
    whole, _ = summarised(path, name)
    original, sizes = pl.LazyFrame.collect_batches, []

    def small(self: pl.LazyFrame, **options: object) -> object:
        for batch in original(self, **(options | {"chunk_size": 170})):
            sizes.append(len(batch))
            yield batch

    monkeypatch.setattr(pl.LazyFrame, "collect_batches", small)
    assert summarised(path, name)[0] == whole
    assert len(sizes) > 10


def test_beyond_the_exact_rows_builders_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts stay exact, and no atom's digest is further from the truth than it says."""
    data = table_for("column", frame(30_000))
    path = save(data, tmp_path / "data.parquet")
    exact, _ = summarised(path, delta=50)
    monkeypatch.setattr(summaries, "EXACT_ROWS", 5_000)
    monkeypatch.setattr(summaries, "BUFFERED", 2**12)
    streamed, _ = summarised(path, delta=50)
    assert streamed != exact
    assert streamed.n == 30_000
    assert np.array_equal(streamed.membership, exact.membership)
    assert np.array_equal(streamed.atom_counts, exact.atom_counts)
    scores, rows = data["score"].to_numpy(), GROUPS.membership(data)
    for i, row in enumerate(streamed.membership):
        raw = np.sort(scores[(rows == row).all(axis=1)])
        part = slice(streamed.start[i], streamed.start[i + 1])
        cdf = np.cumsum(streamed.counts[part])
        at = np.searchsorted(raw, streamed.values[part], side="right")
        assert (at >= cdf).all()  # With "upper", the digest's F^ is never above the true F.
        before = np.searchsorted(raw, streamed.values[part], side="left")
        gap = (before - np.concatenate([[0], cdf[:-1]])).max()
        assert gap <= streamed.errors[i]


def test_few_scores_stay_exact_in_builders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the scores of every atom fit into its builder's buffer, the result is exact again."""
    path = save(table_for("column", frame(3000)), tmp_path / "data.parquet")
    exact, _ = summarised(path)
    monkeypatch.setattr(summaries, "EXACT_ROWS", 10)
    assert summarised(path)[0] == exact


# --- labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "y",
    [[0, 1, 10], [0.0, 1.0, 10.0], ["0", "1", "10"], ["0.0", "1.0", "10.0"]],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_whole_numbers_are_labels_however_they_are_written(
    tmp_path: Path, y: list, suffix: str
) -> None:
    data = pl.DataFrame(
        {
            "proba_10": [0.1, 0.2, 0.7],
            "proba_0": [0.6, 0.5, 0.1],
            "proba_1": [0.3, 0.3, 0.2],
            "y": y,
        }
    )
    path = save(data, tmp_path / f"data{suffix}")
    groups = gcfcp.Groups({"all": "TRUE"})
    found, _ = summarised(path, groups=groups)
    assert np.allclose(found.values, sorted([1 - 0.6, 1 - 0.3, 1 - 0.7]))
    with tables.open_table(path) as table:
        assert tables.scoring(table).labels == ("0", "1", "10")


def test_a_label_without_a_column_is_named(tmp_path: Path) -> None:
    data = frame(20).with_columns(pl.lit(3).alias("y")).select("age", "y", "^proba_.*$")
    with pytest.raises(gcfcp.GCFCPError, match=r"y=3 have no column: .* for the labels 'cat'"):
        summarised(save(data, tmp_path / "data.parquet"))


# --- which score -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["thr", "residual", "cqr", "column"])
def test_the_columns_say_which_score(tmp_path: Path, name: str) -> None:
    path = save(table_for(name, frame(20)), tmp_path / "data.csv")
    assert summarised(path)[0].score == name


def test_several_possible_scores_must_be_decided(tmp_path: Path) -> None:
    path = save(frame(20), tmp_path / "data.csv")
    with pytest.raises(gcfcp.GCFCPError, match="choose one with --score column or --score thr"):
        summarised(path)
    with pytest.raises(gcfcp.GCFCPError, match="no columns to score"):
        summarised(save(frame(20).select("age"), tmp_path / "bare.csv"))
    with pytest.raises(gcfcp.GCFCPError, match=r"no column 'lo', 'hi'; it has 'age', 'score'"):
        summarised(save(table_for("column", frame(5)), tmp_path / "c.csv"), "cqr")


class Rows(tables.Source):
    """The rows of a frame, some at a time."""

    def __init__(self, data: pl.DataFrame, size: int) -> None:
        self.name, self.columns, self.rows = "rows", tuple(data.columns), data.height
        self._data, self._size = data, size

    def batches(self, columns, types):
        yield from self._data.select(columns).iter_slices(self._size)


@pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")
@pytest.mark.parametrize("by", ["atom", "group"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_rows_that_were_counted_have_the_summary_of_the_rows(by: str, size: int) -> None:
    """Equal rows are one row with their number; some records are in no group."""
    grid = gcfcp.Grid.uniform(0, 4, 9)
    data = table_for("column", frame(3000))
    counted = (
        data.with_columns(cell=pl.Series(grid.place(data["score"].to_numpy())))
        .group_by("age", "cell")
        .agg(number=pl.len().cast(pl.Int64))
    )
    groups = gcfcp.Groups({"old": "age >= 65", "even": "age % 2 = 0", "minor": "age < 18"})
    making = Making(groups, "a", score="column", grid=grid, by=by)
    found = tables.Pass()
    ours = tables.summarize_counted(Rows(counted, size), "cell", "number", making, found)
    plain, rows = tables.Pass(), Rows(data, 500)
    [theirs] = tables.summarize_part(rows, tables.scoring(rows, "column"), [making], plain)
    assert ours == theirs
    assert found.seen.tolist() == plain.seen.tolist()
    assert found.rows.unmatched == plain.rows.unmatched == ("minor",)
    nothing = tables.summarize_counted(Rows(counted.head(0), 1), "cell", "number", making, found)
    assert nothing is None
    gap = counted.with_columns(cell=pl.when(pl.col("number") > 0).then(None).otherwise(1))
    tables.summarize_counted(Rows(gap, 5), "cell", "number", making, found := tables.Pass())
    assert found.first == (0, "cell")


# --- missing values ----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("hole", [None, float("nan")])
def test_missing_scores_are_an_error_or_dropped_and_counted(
    tmp_path: Path, suffix: str, hole: float | None
) -> None:
    data = table_for("residual", frame(50))
    holes = data.with_columns(
        prediction=pl.when(pl.int_range(50).is_in([7, 30])).then(hole).otherwise("prediction"),
        y=pl.when(pl.int_range(50) == 20).then(None).otherwise("y"),
    )
    path = save(holes, tmp_path / f"data{suffix}")
    message = "3 of 50 rows .* first is in column 'prediction' of row 8"
    with pytest.raises(gcfcp.GCFCPError, match=message):
        summarised(path)
    found, rows = summarised(path, missing="drop")
    assert rows == tables.Rows(50, 3)
    assert rows.used == found.n == 47
    kept = data.filter(~pl.int_range(50).is_in([7, 20, 30]))
    expected = summarize(
        reference("residual", kept),
        GROUPS.membership(kept),
        groups=GROUPS,
        client="x",
        score=gcfcp.scores.AbsoluteResidual(),
    )
    assert found == expected


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    data = pl.DataFrame({"age": [1, 2], "score": [None, None]}, schema_overrides={"score": float})
    path = save(data, tmp_path / "data.parquet")
    with pytest.raises(gcfcp.GCFCPError, match="no rows left"):
        summarised(path, missing="drop")
    with pytest.raises(gcfcp.GCFCPError, match="no rows to work with"):
        summarised(save(data.head(0), tmp_path / "none.parquet"))


def test_missing_values_in_groups_are_said_once(tmp_path: Path) -> None:
    data = table_for("column", frame(50)).with_columns(
        age=pl.when(pl.int_range(50) < 5).then(None).otherwise("age")
    )
    path = save(data, tmp_path / "data.parquet")
    with pytest.warns(gcfcp.GCFCPWarning, match="old: 5, mid: 5") as said:
        summarised(path)
    assert len(said) == 1


def test_infinite_scores_are_kept(tmp_path: Path) -> None:
    data = table_for("column", frame(50)).with_columns(
        score=pl.when(pl.int_range(50) < 3).then(np.inf).otherwise("score")
    )
    for suffix in (".csv", ".parquet"):
        found, _ = summarised(save(data, tmp_path / f"data{suffix}"))
        assert found.counts[np.isinf(found.values)].sum() == 3


# --- files that are not what they seem -----------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot read"),
        (b"PAR1 not really", "cannot read"),
        (b"age,score\n1,2\n3,4,5,6\n", "cannot read"),
        (b"age,score\n1,high\n", "column 'score' holds the text 'high' where a number has to be"),
        (b"\x00\xff\xfe\x80", "no columns to score|cannot read"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    with pytest.raises(gcfcp.GCFCPError, match=message) as caught:
        summarised(path)
    assert "\n" not in str(caught.value)


def test_a_text_far_down_is_never_the_silent_end_of_the_data(tmp_path: Path) -> None:
    """Versions of polars before 1.37 ended such a stream early, without an error."""
    numbers = "\n".join(f"30,{i}" for i in range(300_000))
    path = tmp_path / "data.csv"
    path.write_text(f"age,score\n{numbers}\n30,high\n{numbers}\n")
    with pytest.raises(gcfcp.GCFCPError, match=r"data\.csv: column 'score' holds the text 'high'"):
        summarised(path)


def test_a_stream_that_just_stops_is_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens when a signal cancels polars' query in a process that ignores signals."""
    path = save(table_for("column", frame(3000)), tmp_path / "data.parquet")
    original = pl.LazyFrame.collect_batches
    batches: list[int] = []

    def some(self: pl.LazyFrame, **options: object) -> object:
        for batch in original(self, **(options | {"chunk_size": 500})):
            batches.append(len(batch))
            if len(batches) == 4:
                return
            yield batch

    monkeypatch.setattr(pl.LazyFrame, "collect_batches", some)
    with pytest.raises(gcfcp.GCFCPError, match="not read to its end"):
        summarised(path)


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(gcfcp.GCFCPError, match="No such file"):
        summarised(tmp_path / "none.csv")
    with pytest.raises(gcfcp.GCFCPError, match="is a directory"):
        summarised(tmp_path)


def test_a_bad_value_far_down_is_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = table_for("thr", frame(600)).with_columns(
        proba_cat=pl.when(pl.int_range(600) == 555).then(7.0).otherwise("proba_cat")
    )
    path = save(data, tmp_path / "data.parquet")
    original = pl.LazyFrame.collect_batches
    monkeypatch.setattr(
        pl.LazyFrame,
        "collect_batches",
        lambda self, **o: original(self, **(o | {"chunk_size": 100})),
    )
    with pytest.raises(gcfcp.GCFCPError, match=r"probabilities of row 556 sum"):
        summarised(path)


def test_standard_input_is_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = table_for("column", frame(30))
    for suffix in (".csv", ".parquet"):
        path = save(data, tmp_path / f"data{suffix}")
        expected, _ = summarised(path)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        assert summarised("-")[0] == expected


# --- prediction and audit ------------------------------------------------------------------------


def predictor(name: str, data: pl.DataFrame) -> gcfcp.Predictor:
    score = "column" if name == "column" else gcfcp.scores.from_name(name)
    summary = summarize(
        reference(name, data), GROUPS.membership(data), groups=GROUPS, client="x", score=score
    )
    return gcfcp.Predictor(score, gcfcp.calibrate([summary], 0.2))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("name", ["thr", "aps"])
def test_sets_are_those_of_the_predictor(tmp_path: Path, suffix: str, name: str) -> None:
    data = table_for(name, frame())
    made = predictor(name, data)
    output = tmp_path / f"sets{suffix}"
    with tables.open_table(save(data, tmp_path / "data.csv")) as table:
        rows = tables.predict_table(
            table, made, output, keep=("age",), rng=np.random.default_rng(1)
        )
    found = pl.read_csv(output) if suffix == ".csv" else pl.read_parquet(output)
    p = data.select([f"proba_{label}" for label in LABELS]).to_numpy()
    sets = made.predict_set(p, GROUPS.membership(data), rng=np.random.default_rng(1))
    expected = [[label for label, yes in zip(LABELS, s, strict=True) if yes] for s in sets]
    if suffix == ".csv":
        written = [(text or "").split("|") if text else [] for text in found["set"].to_list()]
    else:
        written = found["set"].to_list()
    assert written == expected
    assert found["size"].to_list() == sets.sum(axis=1).tolist()
    assert found["age"].to_list() == data["age"].to_list()
    assert rows.used == 400


@pytest.mark.parametrize("name", ["residual", "cqr"])
def test_intervals_are_those_of_the_predictor(tmp_path: Path, name: str) -> None:
    data = table_for(name, frame())
    made = predictor(name, data)
    output = tmp_path / "intervals.parquet"
    with tables.open_table(save(data.drop("y"), tmp_path / "data.parquet")) as table:
        tables.predict_table(table, made, output)
    columns = ["prediction"] if name == "residual" else ["lo", "hi"]
    values = data.select(columns).to_numpy()
    expected = made.predict_interval(
        values[:, 0] if name == "residual" else values, GROUPS.membership(data)
    )
    assert np.array_equal(pl.read_parquet(output).select("lower", "upper").to_numpy(), expected)


def test_predictions_come_in_order_over_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = table_for("residual", frame(1000))
    made = predictor("residual", data)
    original = pl.LazyFrame.collect_batches
    monkeypatch.setattr(
        pl.LazyFrame,
        "collect_batches",
        lambda self, **o: original(self, **(o | {"chunk_size": 90})),
    )
    expected = made.predict_interval(data["prediction"].to_numpy(), GROUPS.membership(data))
    for suffix in (".csv", ".parquet"):
        output = tmp_path / f"out{suffix}"
        with tables.open_table(save(data, tmp_path / "data.parquet")) as table:
            tables.predict_table(table, made, output)
        found = pl.read_csv(output) if suffix == ".csv" else pl.read_parquet(output)
        assert np.array_equal(found["lower"].to_numpy(), expected[:, 0])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.parquet", "out.csv", "out.parquet"]


@pytest.mark.parametrize("name", tables.SCORES)
def test_the_audit_is_that_of_the_library(tmp_path: Path, name: str) -> None:
    data = table_for(name, frame())
    made = predictor(name, data)
    with tables.open_table(save(data, tmp_path / "data.csv")) as table:
        found, _ = tables.audit_table(table, made, client="x", rng=np.random.default_rng(5))
    membership = GROUPS.membership(data)
    covered = reference(name, data) <= made.thresholds(membership)
    for g in range(3):
        assert found.total[g] == membership[:, g].sum()
        assert found.covered[g] == (covered & membership[:, g]).sum()
    assert found.alpha == 0.2
    assert (found.size is None) == (name == "column")
    assert found.sets is not None
    limits = made.thresholds(membership)
    groups = membership.astype(int)
    assert found.sets.infinite.tolist() == (np.isinf(limits) @ groups).tolist()
    if name == "thr":
        sets = made.predict_set(data.select([f"proba_{x}" for x in LABELS]).to_numpy(), membership)
        assert found.sets.full.tolist() == (sets.all(axis=1) @ groups).tolist()
        assert found.sets.empty.tolist() == (~sets.any(axis=1) @ groups).tolist()


def test_a_named_score_predicts_from_a_matrix_of_scores(tmp_path: Path) -> None:
    data = table_for("column", frame())
    made = predictor("column", data)
    new = pl.DataFrame({"age": [30, 70], "score_a": [0.1, 99.0], "score_b": [99.0, 0.1], "y": "a"})
    path = save(new, tmp_path / "new.csv")
    with tables.open_table(path) as table:
        tables.predict_table(table, made, tmp_path / "sets.parquet")
        found, _ = tables.audit_table(table, made, client="x")
    assert pl.read_parquet(tmp_path / "sets.parquet")["set"].to_list() == [["a"], ["b"]]
    assert found.covered[0] == 1
    with (
        tables.open_table(save(data, tmp_path / "bare.csv")) as table,
        pytest.raises(gcfcp.GCFCPError, match="score_<label>"),
    ):
        tables.predict_table(table, made, tmp_path / "other.parquet")


def test_groups_of_true_classes_predict_in_python_alone(tmp_path: Path) -> None:
    """A table with y would give sets that know it. The audit counts coverage, and no sizes."""
    data = frame()
    groups = gcfcp.Groups.from_column("y", LABELS)
    path = save(data.select("y", "^proba_.*$"), tmp_path / "records.csv")
    score = gcfcp.scores.THR(classes=LABELS)
    with tables.open_table(str(path)) as table:
        scoring = tables.scoring(table, "thr")
        making = Making(groups=groups, client="a", score=scoring.named)
        (summary,), _ = tables.summarize_table(table, scoring, making)
    predictor = gcfcp.Predictor(score, gcfcp.calibrate([summary], 0.2))
    with (
        tables.open_table(str(path)) as table,
        pytest.raises(
            gcfcp.GCFCPError, match=r"look at the outcome y, which .*records\.csv cannot"
        ),
    ):
        tables.predict_table(table, predictor, tmp_path / "sets.csv")
    assert not (tmp_path / "sets.csv").exists()
    with tables.open_table(str(path)) as table:
        found, _ = tables.audit_table(table, predictor, client="a")
    probabilities = data.select([f"proba_{label}" for label in LABELS]).to_numpy()
    every = np.stack(
        [groups.membership(data.with_columns(y=pl.lit(label))) for label in LABELS], axis=1
    )
    sets = predictor.predict_set(probabilities, every)
    truth = np.array([LABELS.index(y) for y in data["y"]])
    covered = sets[np.arange(len(sets)), truth]
    for g in gcfcp.merge_audits([found]).groups:
        mine = data["y"].to_numpy() == g.group.removeprefix("y ")
        assert g.coverage == pytest.approx(covered[mine].mean())
        assert g.mean_size is None
        assert g.full is None


def test_a_failed_prediction_leaves_nothing_behind(tmp_path: Path) -> None:
    data = table_for("residual", frame())
    made = predictor("residual", data)
    holes = data.with_columns(prediction=pl.lit(None, dtype=pl.Float64))
    with (
        tables.open_table(save(holes, tmp_path / "data.parquet")) as table,
        pytest.raises(gcfcp.GCFCPError, match="400 of 400"),
    ):
        tables.predict_table(table, made, tmp_path / "out.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["data.parquet"]


# --- sites as groups, and groups that a site cannot have ------------------------------------------

SITES = gcfcp.Groups({"all": "TRUE", "old": "age >= 65"}, sites=["x", "y"])


def predictor_of_sites() -> gcfcp.Predictor:
    score = gcfcp.scores.AbsoluteResidual()
    made = []
    for seed, name in enumerate(SITES.sites):
        data = table_for("residual", frame(300, seed))
        values = (1 + 4 * seed) * reference("residual", data)
        matrix = SITES.membership(data, name)
        made.append(summarize(values, matrix, groups=SITES, client=name, score=score))
    return gcfcp.Predictor(score, gcfcp.calibrate(made, 0.1))


def test_the_client_is_the_site_of_a_table(tmp_path: Path) -> None:
    data = table_for("column", frame())
    path = save(data, tmp_path / "t.csv")
    made, _ = summarised(path, groups=SITES, client="y")
    matrix = SITES.membership(data, "y")
    assert made == summarize(data["score"], matrix, groups=SITES, client="y", score="column")
    assert made.possible.tolist() == [True, True, False, True]
    with pytest.raises(gcfcp.GCFCPError, match="site='z' is not one of the sites x, y"):
        summarised(path, groups=SITES, client="z")


def test_a_row_of_a_group_that_was_declared_absent_is_located(tmp_path: Path) -> None:
    data = table_for("column", frame()).with_columns(age=pl.lit(50))
    made, _ = summarised(save(data, tmp_path / "t.parquet"), absent=["old"])
    assert made.absent == ("old",)
    ages = np.full(400, 50)
    ages[[230, 240]] = 70
    path = save(data.with_columns(age=ages), tmp_path / "u.parquet")
    words = r"u\.parquet.*: 2 records belong to group 'old', which was declared absent, the first"
    with pytest.raises(gcfcp.GCFCPError, match=words):
        summarised(path, absent=["old"])
    with pytest.raises(gcfcp.GCFCPError, match="absent='young' is not one of the groups"):
        summarised(path, absent=["young"])


def test_predictions_and_audits_of_a_table_are_those_of_its_site(tmp_path: Path) -> None:
    predictor = predictor_of_sites()
    data = table_for("residual", frame(50, 7))
    path = save(data, tmp_path / "t.csv")
    for name in SITES.sites:
        matrix = SITES.membership(data, name)
        with tables.open_table(path) as table:
            tables.predict_table(table, predictor, tmp_path / "out.csv", site=name)
        ends = predictor.predict_interval(data["prediction"].to_numpy(), matrix)
        found = pl.read_csv(tmp_path / "out.csv")
        assert np.array_equal(found.select("lower", "upper").to_numpy(), ends)
        with tables.open_table(path) as table:
            audit, _ = tables.audit_table(table, predictor, client=name)
        y = data["y"].to_numpy()
        assert audit == gcfcp.audit(
            (ends[:, 0] <= y) & (y <= ends[:, 1]),
            matrix,
            groups=SITES,
            client=name,
            set_size=ends[:, 1] - ends[:, 0],
            thresholds=predictor.thresholds(matrix),
            alpha=0.1,
            predictor=predictor.fingerprint,
            everything=predictor.gives_everything,
            share=predictor.share_of(name),
        )


def test_predictions_need_the_site_if_sites_are_groups(tmp_path: Path) -> None:
    path = save(table_for("residual", frame(50)), tmp_path / "t.csv")
    output = tmp_path / "out.csv"
    with tables.open_table(path) as table:
        with pytest.raises(gcfcp.GCFCPError, match="one group for each of the sites x, y: give"):
            tables.predict_table(table, predictor_of_sites(), output)
        with pytest.raises(gcfcp.GCFCPError, match="site='z' is not one of the sites x, y"):
            tables.audit_table(table, predictor_of_sites(), client="z")
    assert not output.exists()


@pytest.mark.parametrize("quoted", [False, True])
def test_the_type_of_a_column_is_what_polars_makes_of_the_whole_file(
    tmp_path: Path, quoted: bool
) -> None:
    """Without quotation marks the texts of a column decide, and with them the whole file."""
    columns = {
        "whole": ["1", "", "-3"],
        "late": ["1", "2", "2.5"],
        "text": ["1", "2", "x"],
        "flag": ["true", "false", "NA"],
        "gone": ["NA", "", "null"],
        "spaced": [" 1", "2 ", "3"],
        "day": ["2026-01-01", "2026-01-02", ""],
        "code": ["007", "08", "1"],
        "marked": ['"5"', '"6"', '"7"'] if quoted else ["5", "6", "7"],
        "given": ["1", "2", "3"],
    }
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    path = tmp_path / "types.csv"
    path.write_text("\n".join(lines) + "\n")
    expected = pl.scan_csv(
        path, null_values=["NA", "N/A", "null", "None"], infer_schema_length=None
    ).collect_schema()
    found = table_files._types(str(path), tuple(columns), {"given": pl.String}, ",")
    assert found == {**expected, "given": pl.String}
    found = table_files._types(str(path), ("given",), {"given": pl.String}, ",")
    assert found == {"given": pl.String}
