"""A site in a Spark data frame: the same summary, sets and audit as from a file, on `local[2]`.

`python3 dev.py spark` makes an environment that has PySpark, and runs this file there.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: python3 dev.py spark brings it")
if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
    pytest.skip(
        "Spark needs Java 17, such as Debian's openjdk-17-jre-headless", allow_module_level=True
    )

import polars as pl
from pyspark import TaskContext
from pyspark.sql import SparkSession

import gcfcp
import gcfcp.spark
from gcfcp.summary import Making
from gcfcp.tables import audit_table, open_table, predict_table, scoring, summarize_table

pytestmark = pytest.mark.slow

GROUPS = gcfcp.Groups({"all": "TRUE", "old": "age >= 65", "female": "sex = 'F'"})
GRID = gcfcp.Grid.uniform(0, 4, 60)
N = 6000


@pytest.fixture(scope="module")
def spark() -> Any:
    """One session for all tests; a task may fail three times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if other := SparkSession.getActiveSession():  # It would be taken as it is.
        other.stop()
    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "300")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def records(n: int = N, seed: int = 0) -> pl.DataFrame:
    """Records of all kinds of scores, with missing values in the columns of the groups alone."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(3), n)
    prediction = rng.normal(size=n)
    sexes = np.array(["F", "M", None], dtype=object)[rng.choice(3, n, p=[0.5, 0.48, 0.02])]
    return pl.DataFrame(
        {
            "id": np.arange(n),
            "age": rng.integers(20, 90, n),
            "sex": pl.Series(sexes.tolist(), dtype=pl.String),
            "prediction": prediction,
            "lo": prediction - 0.5,
            "hi": prediction + 0.5,
            "y": prediction + rng.exponential(size=n) * rng.choice([-1, 1], n),
            "label": pl.Series(rng.choice(["cat", "dog", "owl"], n).tolist()),
            "proba_cat": chances[:, 0],
            "proba_dog": chances[:, 1],
            "proba_owl": chances[:, 2],
        }
    )


COLUMNS = {
    "residual": ["id", "age", "sex", "y", "prediction"],
    "cqr": ["id", "age", "sex", "y", "lo", "hi"],
    "thr": ["id", "age", "sex", "label", "proba_cat", "proba_dog", "proba_owl"],
}
quietly = pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")


def table_of(frame: pl.DataFrame, score: str, folder: Path) -> Path:
    """A Parquet file with the columns that a score needs."""
    path = folder / f"{score}.parquet"
    frame.select(COLUMNS[score]).rename({"label": "y"}, strict=False).write_parquet(path)
    return path


def from_file(path: Path, score: str, missing: str = "error", **how: Any) -> gcfcp.ClientSummary:
    """The summary that the file gives."""
    with open_table(path) as table:
        by = scoring(table, score)
        making = Making(groups=GROUPS, client="a", score=by.named, **how)
        [summary], _ = summarize_table(table, by, making, missing=missing)
    return summary


def read(spark: Any, path: Path, partitions: int = 5) -> Any:
    return spark.read.parquet(str(path)).repartition(partitions)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    return {score: table_of(records(), score, folder) for score in COLUMNS}


@pytest.fixture(scope="module")
def predictors(paths: dict[str, Path]) -> dict[str, gcfcp.Predictor]:
    """A predictor for each score, made of the first third of the records."""
    found = {}
    for score, path in paths.items():
        first = path.with_name(f"first-{score}.parquet")
        pl.read_parquet(path).head(N // 3).write_parquet(first)
        with pytest.warns(gcfcp.GCFCPWarning, match="missing values leave open"):
            summary = from_file(first, score)
        known = gcfcp.scores.from_name(summary.score, summary.parameters)
        found[score] = gcfcp.Predictor(known, gcfcp.calibrate([summary], 0.1))
    return found


# --- summaries -----------------------------------------------------------------------------------


@quietly
@pytest.mark.parametrize(
    ("score", "how"),
    [
        ("residual", {}),
        ("cqr", {"min_count": 20}),
        ("thr", {"by": "group"}),
        ("residual", {"by": "group", "shape": gcfcp.Shape(GROUPS, (0.3, 0.2, -0.1))}),
    ],
    ids=["residual", "min_count", "by group", "shape"],
)
def test_on_a_grid_the_summary_is_that_of_the_file(spark, paths, score, how):
    frame = read(spark, paths[score])
    ours = gcfcp.spark.summarize(frame, groups=GROUPS, client="a", score=score, grid=GRID, **how)
    assert ours.to_bytes() == from_file(paths[score], score, grid=GRID, **how).to_bytes()


@quietly
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"delta": 40},
        {"representative": "mean"},
        {"by": "group"},
        {"by": "group", "min_count": 20},
        {"min_count": 20},
        {"by": "group", "shape": gcfcp.Shape(GROUPS, (0.3, 0.2, -0.1))},
        {"by": "group", "min_count": 20, "shape": gcfcp.Shape(GROUPS, (0.3, 0.2, -0.1))},
    ],
    ids=["plain", "delta", "mean", "group", "group-20", "20", "shape", "shape-20"],
)
def test_digests_are_within_the_certified_error(spark, paths, how):
    """For each cell the supremum over all scores, against the exact scores of the file."""
    ours = gcfcp.spark.summarize(read(spark, paths["residual"]), groups=GROUPS, client="a", **how)
    plain = from_file(paths["residual"], "residual", **how)
    whole = from_file(paths["residual"], "residual", **{**how, "delta": 10**7})
    assert (ours.n, ours.delta, ours.suppressed) == (plain.n, plain.delta, plain.suppressed)
    assert (ours.suppressed_groups, ours.strangers) == (plain.suppressed_groups, plain.strangers)
    assert np.array_equal(ours.membership, whole.membership)
    assert np.array_equal(ours.atom_counts, whole.atom_counts)
    hidden = how.get("min_count", 1) > 1  # The exact scores are rounded and clustered as well.
    for i, error in enumerate(ours.errors):
        a, b = slice(*ours.start[i : i + 2]), slice(*whole.start[i : i + 2])
        points = np.concatenate([ours.values[a], whole.values[b]])
        here = ours.counts[a] @ (ours.values[a][:, None] <= points)
        there = whole.counts[b] @ (whole.values[b][:, None] <= points)
        assert np.abs(here - there).max() <= error + (whole.errors[i] if hidden else 0)
        if how.get("representative") != "mean" and not hidden:
            assert (here <= there).all()
    if not hidden:
        assert (ours.errors <= np.sin(np.pi / ours.delta) * ours.atom_counts + 1e-9).all()


@quietly
@pytest.mark.parametrize("partitions", [1, 200])
def test_one_partition_and_200_with_empty_ones(spark, paths, partitions):
    """200 partitions of 100 rows have some with nothing, and some of one record."""
    frame = spark.read.parquet(str(paths["residual"])).where("id < 100").repartition(partitions)
    small = paths["residual"].with_name("small.parquet")
    pl.read_parquet(paths["residual"]).filter(pl.col("id") < 100).write_parquet(small)
    ours = gcfcp.spark.summarize(frame, groups=GROUPS, client="a", grid=GRID)
    assert ours == from_file(small, "residual", grid=GRID)
    if partitions == 1:
        digests = gcfcp.spark.summarize(frame, groups=GROUPS, client="a")
        assert digests == from_file(small, "residual")  # Nothing is compressed.


@quietly
def test_skewed_partitions_change_nothing_on_a_grid(spark, paths):
    """Sorted by age, so that partitions differ in size and hold some groups only."""
    frame = spark.read.parquet(str(paths["residual"]))
    sorted_ = frame.where("age >= 65").coalesce(1).unionAll(frame.where("age < 65").repartition(6))
    ours = gcfcp.spark.summarize(sorted_, groups=GROUPS, client="a", grid=GRID)
    assert ours == from_file(paths["residual"], "residual", grid=GRID)


@quietly
def test_a_task_that_fails_and_is_tried_again_changes_nothing(spark, paths, predictors):
    frame = read(spark, paths["residual"], 4)

    def failing(stream):
        context = TaskContext.get()
        for i, batch in enumerate(stream):
            if context.attemptNumber() < 2 and context.partitionId() == 1 and i == 2:
                raise RuntimeError("this machine went away")
            yield batch

    failed = frame.mapInArrow(failing, frame.schema)
    for how in ({"grid": GRID}, {}):
        ours = gcfcp.spark.summarize(failed, groups=GROUPS, client="a", **how)
        assert ours == gcfcp.spark.summarize(frame, groups=GROUPS, client="a", **how)
    predictor = predictors["residual"]
    one, two = (gcfcp.spark.audit(f, predictor, client="a") for f in (failed, frame))
    assert one.covered.tolist() == two.covered.tolist()
    assert one.size == pytest.approx(two.size, rel=1e-12)  # Rows come in any order.
    rows = [gcfcp.spark.predict(f, predictor).orderBy("id").collect() for f in (failed, frame)]
    assert rows[0] == rows[1]


def test_records_without_a_group_and_groups_without_a_record_are_named(spark, paths):
    groups = gcfcp.Groups({"old": "age >= 65", "nobody": "age > 200"})
    frame = read(spark, paths["residual"])
    with pytest.warns(gcfcp.GCFCPWarning) as said:
        gcfcp.spark.summarize(frame, groups=groups, client="a")
    texts = [str(w.message) for w in said if issubclass(w.category, gcfcp.GCFCPWarning)]
    assert len(texts) == 2
    assert "group 'nobody' (age > 200) has none of the records of the data frame" in texts[0]
    assert "of 6000 records belong to no group" in texts[1]


@quietly
def test_sites_noise_holdout_and_random_scores(spark, paths):
    frame = read(spark, paths["thr"])
    sites = gcfcp.Groups({"all": "TRUE"}, sites=["a", "b"])
    ours = gcfcp.spark.summarize(frame, groups=sites, client="a", score="thr")
    assert ours.possible.tolist() == [True, True, False]
    assert ours.parameters["classes"] == '["cat","dog","owl"]'
    shape, level = gcfcp.spark.summarize(
        frame, groups=GROUPS, client="a", score="thr", holdout=0.3, seed=1, min_count=20, by="group"
    )
    assert (shape.by, level.by) == ("atom", "group")
    assert (shape.suppressed, shape.min_count) == (0, 20)
    assert 0.25 * N < N - level.n < 0.35 * N
    aps = gcfcp.scores.APS()
    first, again = (
        gcfcp.spark.summarize(frame, groups=GROUPS, client="a", score=aps, seed=4) for _ in range(2)
    )
    assert first == again
    assert first.parameters["randomized"] is True
    with pytest.raises(gcfcp.GCFCPError, match="score 'aps' is randomised and needs a seed"):
        gcfcp.spark.summarize(frame, groups=GROUPS, client="a", score="aps")
    with pytest.raises(gcfcp.GCFCPError, match="a holdout is drawn and needs a seed"):
        gcfcp.spark.summarize(frame, groups=GROUPS, client="a", score="thr", holdout=0.3)


@quietly
def test_noise_is_that_of_one_site(spark, paths):
    pytest.importorskip("opendp", reason="noise needs the extra dp")
    frame = read(spark, paths["thr"])
    ours = gcfcp.spark.summarize(
        frame, groups=GROUPS, client="a", score="thr", grid=GRID, epsilon=1.0
    )
    plain = from_file(paths["thr"], "thr", grid=GRID, epsilon=1.0)
    assert (ours.noise, ours.n) == (plain.noise, plain.n)


@quietly
def test_a_shape_of_these_very_records_is_refused(spark, paths):
    frame = spark.read.parquet(str(paths["residual"]))  # The same partitions both times.
    summary = gcfcp.spark.summarize(frame, groups=GROUPS, client="a")
    shape = gcfcp.fit_shape([summary], 0.1)
    with pytest.raises(gcfcp.GCFCPError, match="the shape was made from these very records"):
        gcfcp.spark.summarize(frame, groups=GROUPS, client="a", by="group", shape=shape)


# --- rows that are bad ---------------------------------------------------------------------------


def text_of(path: Path, score: str) -> str:
    """What is said of a file."""
    with pytest.raises(gcfcp.GCFCPError) as raised:
        from_file(path, score)
    return str(raised.value)


@quietly
def test_missing_values_are_counted_by_partition(spark, tmp_path):
    frame = records(400).with_columns(
        pl.when(pl.col("id").is_in([7, 150, 151])).then(None).otherwise(pl.col("y")).alias("y"),
        pl.when(pl.col("id") == 390)
        .then(float("nan"))
        .otherwise(pl.col("prediction"))
        .alias("prediction"),
    )
    path = table_of(frame, "residual", tmp_path)
    cut = spark.read.parquet(str(path)).repartitionByRange(4, "id").sortWithinPartitions("id")
    with pytest.raises(gcfcp.GCFCPError) as raised:
        gcfcp.spark.summarize(cut, groups=GROUPS, client="a")
    assert str(raised.value) == (
        "the data frame: 4 of 400 rows have a missing value where the score needs one, and the "
        "first is in column 'y' of row 8 of partition 0 (1 in partition 0, 2 in partition 1, 1 in "
        "partition 3): fill them in, or leave these rows out (missing='drop')"
    )
    same = text_of(path, "residual").partition(" of row 8")[0]
    assert str(raised.value).startswith(same.replace(str(path), "the data frame"))
    with pytest.warns(
        gcfcp.GCFCPWarning, match=r"4 of 400 rows had no score and were dropped \(1 in"
    ):
        ours = gcfcp.spark.summarize(cut, groups=GROUPS, client="a", missing="drop", grid=GRID)
    assert ours == from_file(path, "residual", missing="drop", grid=GRID)


@quietly
def test_wrong_values_and_types_have_the_text_of_the_file(spark, tmp_path):
    good = records(40)
    cases = {
        "type": (good.with_columns(pl.col("y").cast(pl.String)), "residual"),
        "label": (good.with_columns(pl.lit("fox").alias("label")), "thr"),
        "chance": (good.with_columns(pl.col("proba_cat") + 3), "thr"),
        "infinite": (good.with_columns(pl.lit(float("inf")).alias("y")), "residual"),
        "column": (good.rename({"prediction": "guess"}), "residual"),
        "condition": (good.with_columns(pl.lit("x").alias("age")), "residual"),
        "empty": (good.head(0), "residual"),
    }
    for what, (frame, score) in cases.items():
        folder = tmp_path / what
        folder.mkdir()
        names = [c for c in COLUMNS[score] if c in frame.columns]
        path = folder / "t.parquet"
        frame.select(names).rename({"label": "y"}, strict=False).write_parquet(path)
        whole = spark.read.parquet(str(path)).coalesce(1)
        with pytest.raises(gcfcp.GCFCPError) as raised:
            gcfcp.spark.summarize(whole, groups=GROUPS, client="a", score=score)
        text = str(raised.value).replace("the data frame, partition 0", "the data frame")
        assert text == text_of(path, score).replace(str(path), "the data frame"), what
    parts = spark.createDataFrame([("x", 1.0)] * 9, "y string, prediction double").repartition(3)
    with pytest.raises(gcfcp.GCFCPError, match=r"partition 0: column 'y' .*\(and in 2 more part"):
        gcfcp.spark.summarize(parts, groups=gcfcp.Groups({"all": "TRUE"}), client="a")


def test_arguments_that_are_wrong_are_refused_before_a_task_starts(spark, paths):
    frame = read(spark, paths["residual"])
    with pytest.raises(gcfcp.GCFCPError, match="df is of type DataFrame, and not a Spark"):
        gcfcp.spark.summarize(records(5), groups=GROUPS, client="a")
    with pytest.raises(gcfcp.GCFCPError, match="has no column 'sex'; it has 'id', 'age'"):
        gcfcp.spark.summarize(frame.drop("sex"), groups=GROUPS, client="a")
    twice = frame.withColumnRenamed("id", "AGE")
    with pytest.raises(gcfcp.GCFCPError, match="has 2 columns 'age', in capitals or not"):
        gcfcp.spark.summarize(twice, groups=GROUPS, client="a")
    odd = frame.withColumnRenamed("age", "age.in `years`")
    dotted = gcfcp.Groups({"all": "TRUE", "old": '"age.in `years`" >= 65'})
    assert gcfcp.spark.summarize(odd, groups=dotted, client="a").n == N


# --- predictions and audits ----------------------------------------------------------------------


@pytest.mark.parametrize("score", COLUMNS)
@quietly
def test_predictions_are_those_of_the_file(spark, paths, predictors, score, tmp_path):
    predictor = predictors[score]
    with open_table(paths[score]) as table:
        predict_table(table, predictor, tmp_path / "out.parquet", keep=("id",))
    theirs = pl.read_parquet(tmp_path / "out.parquet").sort("id")
    frame = read(spark, paths[score])
    found = gcfcp.spark.predict(frame, predictor)
    assert found.columns[: len(frame.columns)] == frame.columns
    ours = pl.from_arrow(found.select(theirs.columns).toArrow()).sort("id")
    assert ours.equals(theirs.cast(dict(ours.schema)))
    assert ours["threshold"].to_numpy().tobytes() == theirs["threshold"].to_numpy().tobytes()
    kept = pl.from_arrow(found.select(frame.columns).toArrow()).sort("id")
    assert kept.equals(pl.read_parquet(paths[score]).sort("id"))


@quietly
def test_rows_without_a_prediction_fail_or_are_left_out(spark, predictors):
    frame = spark.createDataFrame(
        [(1, 50, "F", 0.5), (2, 70, "M", None), (3, 70, None, 1.5)],
        "id long, age long, sex string, prediction double",
    ).coalesce(1)
    predictor = predictors["residual"]
    with pytest.raises(Exception, match=r"partition 0: 1 of 3 rows have a missing value") as raised:
        gcfcp.spark.predict(frame, predictor).collect()
    assert "in column 'prediction' of row 2: fill them in" in str(raised.value)
    kept = gcfcp.spark.predict(frame, predictor, missing="drop").collect()
    assert [row["id"] for row in kept] == [1, 3]
    with pytest.raises(gcfcp.GCFCPError, match="column 'threshold' cannot be kept"):
        gcfcp.spark.predict(frame.withColumnRenamed("id", "threshold"), predictor)


@pytest.mark.parametrize(("score", "min_count"), [("residual", 1), ("cqr", 20), ("thr", 1)])
@quietly
def test_audits_are_those_of_the_file(spark, paths, predictors, score, min_count):
    predictor = predictors[score]
    with open_table(paths[score]) as table:
        theirs, _ = audit_table(table, predictor, client="a", min_count=min_count, round="2026Q4")
    ours = gcfcp.spark.audit(
        read(spark, paths[score]), predictor, client="a", min_count=min_count, round="2026Q4"
    )
    if score == "thr" or min_count > 1:
        assert ours.to_bytes() == theirs.to_bytes()
    assert ours.covered.tolist() == theirs.covered.tolist()
    assert ours.total.tolist() == theirs.total.tolist()
    if theirs.size is not None:
        assert ours.size == pytest.approx(theirs.size, rel=1e-12)


# --- size ----------------------------------------------------------------------------------------


def test_ten_million_rows(spark):
    """Made in Spark, so that nothing but summaries reaches the driver."""
    frame = spark.range(0, 10**7, 1, 8).selectExpr(
        "id % 70 + 20 AS age",
        "double(pmod(hash(id), 1000003)) / 1000003 AS prediction",
        "double(pmod(hash(id, 7), 1000003)) / 1000003 AS y",
    )
    groups = gcfcp.Groups({"all": "TRUE", "old": "age >= 65"})
    grid = gcfcp.Grid.uniform(0, 1, 200)
    counted = gcfcp.spark.summarize(frame, groups=groups, client="a", grid=grid)
    assert counted.n == counted.counts.sum() == 10**7
    digests = gcfcp.spark.summarize(frame, groups=groups, client="a")
    assert digests.atom_counts.tolist() == counted.atom_counts.tolist()
    # At every edge the digest says no more than the count, and not much less.
    for i, error in enumerate(digests.errors):
        a, b = slice(*digests.start[i : i + 2]), slice(*counted.start[i : i + 2])
        edges = counted.values[b]
        here = digests.counts[a] @ (digests.values[a][:, None] <= edges)
        there = np.cumsum(counted.counts[b])
        assert (here <= there).all()
        assert (there - here).max() <= error <= 0.0126 * there[-1]
