"""A site in a Spark data frame: the same summary, sets and audit as from a file, on `local[2]`.

`python3 dev.py spark` makes an environment that has PySpark, and runs this file there.
"""

from __future__ import annotations

import datetime
import decimal
import os
import shutil
import sys
import warnings
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
from gcfcp.spark import grouping, site
from gcfcp.summary import Making
from gcfcp.tables import audit_table, open_table, predict_table, scoring, summarize_table

pytestmark = pytest.mark.slow

GROUPS = gcfcp.Groups({"all": "TRUE", "old": "age >= 65", "female": "sex = 'F'"})
OLD = gcfcp.Groups({"all": "TRUE", "old": "age >= 65"})  # They have no missing values.
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
    for how in ({"grid": GRID, "groups": OLD}, {"groups": GROUPS}):  # Counted, and row by row.
        ours = gcfcp.spark.summarize(failed, client="a", **how)
        assert ours == gcfcp.spark.summarize(frame, client="a", **how)
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


@quietly
@pytest.mark.parametrize("shape", [None, gcfcp.Shape(GROUPS, (0.3, 0.2, -0.1))])
def test_a_min_count_by_group_is_refused_on_a_grid_as_for_a_file(spark, paths, shape):
    how: dict[str, Any] = {"grid": GRID, "by": "group", "min_count": 20, "shape": shape}
    with pytest.raises(gcfcp.GCFCPError, match="by group hides nothing on a grid") as ours:
        gcfcp.spark.summarize(read(spark, paths["residual"]), groups=GROUPS, client="a", **how)
    with pytest.raises(gcfcp.GCFCPError) as of_file:
        from_file(paths["residual"], "residual", **how)
    assert str(ours.value) == str(of_file.value)


# --- rows that Spark counts ----------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """Whether Spark counted the rows, for each summary that has been made."""
    found: list[bool] = []

    def watched(*given):
        replies = grouping.grouped(*given)
        found.append(replies is not None)
        return replies

    monkeypatch.setattr(site, "grouped", watched)
    return found


def made(frame: Any, **how: Any) -> tuple[Any, list[str]]:
    """The summary, or the error in its place, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", gcfcp.GCFCPWarning)
        try:
            result = gcfcp.spark.summarize(frame, client="a", **how)
        except gcfcp.GCFCPError as error:
            result = str(error)
    return result, [str(w.message) for w in caught if w.category is gcfcp.GCFCPWarning]


def same_both_ways(frame: Any, counted: list[bool], **how: Any) -> tuple[Any, bool]:
    """What comes out both ways, and whether Spark counted the rows."""
    counted.clear()
    result, said = made(frame, **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "grouped", lambda *_: None)
        plain, said_plain = made(frame, **how)
    assert said == said_plain
    assert result == plain
    if not isinstance(plain, str):
        assert result.to_bytes() == plain.to_bytes()
    return result, counted == [True]


def of_table(path: Path, groups: gcfcp.Groups, **how: Any) -> gcfcp.ClientSummary:
    """The summary of a Parquet file."""
    with open_table(path) as table, warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        by = scoring(table)
        making = Making(groups=groups, client="a", score=by.named, **how)
        [summary], _ = summarize_table(table, by, making)
    return summary


KINDS: dict[str, tuple[Any, list[Any]]] = {
    "b": (pl.Boolean, [True, False, None]),
    "i8": (pl.Int8, [-128, 0, 7, 127, None]),
    "i16": (pl.Int16, [-32768, 0, 300, None]),
    "i32": (pl.Int32, [-(2**31), 0, 2**24 + 1, None]),
    "i64": (pl.Int64, [2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0, None]),
    "f32": (pl.Float32, [0.0, -0.0, float("nan"), float("inf"), 1e-45, 0.1, None]),
    "f64": (
        pl.Float64,
        [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324, -5e-324, 0.1, 2.0**53, None],
    ),
    "s": (pl.String, ["a", "A", "a ", "\u00e4", "a\u0308", "", "0", None]),
    "d": (pl.Date, [datetime.date(1970, 1, 1), datetime.date(1582, 10, 4), None]),
    "m": (pl.Decimal(20, 4), [decimal.Decimal("0.1000"), decimal.Decimal("-7.25"), None]),
}
CONDITIONS = (
    "TRUE",
    "b IS NULL",
    "coalesce(b, FALSE)",
    "i8 IS NOT NULL",
    "coalesce(i8 > 5, TRUE)",
    "coalesce(i16 * 2 > 500, FALSE)",
    "coalesce(i32 = 16777217, FALSE)",
    "coalesce(i64 = 9007199254740993, FALSE)",
    "coalesce(i64 > 9007199254740992, FALSE)",
    "coalesce(i64 / 2 > 0, FALSE)",
    "f32 IS NULL",
    "coalesce(1 / f32 > 0, FALSE)",
    "coalesce(f32 = 0.1, FALSE)",
    "f64 IS NULL",
    "coalesce(1 / f64 > 0, FALSE)",
    "coalesce(1 / f64 < 0, FALSE)",
    "coalesce(f64 >= 0, FALSE)",
    "coalesce(f64 > 1e300, FALSE)",
    "coalesce(f64 + i64 > 9007199254740992, FALSE)",
    "coalesce(s = 'a', FALSE)",
    "coalesce(s IN ('A', 'a '), TRUE)",
    "coalesce(lower(s) = 'a', FALSE)",
    "coalesce(length(s) > 1, FALSE)",
    "s IS NULL OR s = ''",
    "coalesce(d < DATE '1970-01-01', FALSE)",
    "coalesce(m > 0, FALSE)",
    "m IS NULL AND b IS NULL",
    "coalesce(CASE WHEN f64 > 0 THEN s = 'a' ELSE b END, FALSE)",
)


def anything(seed: int, n: int = 600) -> pl.DataFrame:
    """Records whose columns have all kinds of odd values, and whose scores lie on edges too."""
    rng = np.random.default_rng(seed)
    frame = {
        name: pl.Series([pool[i] for i in rng.integers(0, len(pool), n)], dtype=kind)
        for name, (kind, pool) in KINDS.items()
    }
    prediction = rng.choice([0.0, -0.0, 0.1, 1e-300, 5e-324, 1e16, 1e308], n)
    away = rng.choice([0.0, 0.1, 0.2, 0.30000000000000004, 5e-324, 1.0, 1e17, -1e308], n)
    noise = np.where(rng.random(n) < 0.5, 0.0, rng.normal(size=n))
    return pl.DataFrame({**frame, "prediction": prediction, "y": prediction + away + noise})


@quietly
@pytest.mark.parametrize("seed", range(12))
def test_counted_rows_give_the_bytes_of_the_file(spark, tmp_path, counted, seed):
    """Random conditions on columns with null, NaN, both zeros, infinities, and large integers."""
    rng = np.random.default_rng([seed, 1])
    chosen = rng.choice(len(CONDITIONS), rng.integers(1, 9), replace=False)
    groups = gcfcp.Groups({f"g{i}": CONDITIONS[i] for i in sorted(chosen.tolist())})
    grid = [gcfcp.Grid.uniform(0, 1, 10), gcfcp.Grid.logarithmic(0.3), gcfcp.Grid([0.0, 0.1, 0.2])]
    how: dict[str, Any] = {"groups": groups, "grid": grid[seed % 3]}
    how |= [{}, {"by": "group"}, {"min_count": 15}, {"absent": []}][seed % 4]
    path = tmp_path / "t.parquet"
    anything(seed).write_parquet(path)
    frame = spark.read.parquet(str(path)).repartition(3)
    result, by_spark = same_both_ways(frame, counted, **how)
    assert by_spark
    assert result.to_bytes() == of_table(path, **how).to_bytes()


MOST = float(np.finfo(np.float64).max)
GRIDS = {
    "uniform": gcfcp.Grid.uniform(0, 1, 60),
    "below 0": gcfcp.Grid.uniform(-3, 0.3, 7),
    "logarithmic": gcfcp.Grid.logarithmic(),
    "negative": gcfcp.Grid.logarithmic(0.3, 1e-150, 1e150, negative=True),
    "one edge": gcfcp.Grid([0.0]),
    "denormal": gcfcp.Grid([-5e-324, 0.0, 5e-324]),
    "largest": gcfcp.Grid([-MOST, -1.0, 0.1, MOST]),
    "neighbours": gcfcp.Grid(np.nextafter(1.0, 2.0) + np.arange(255) * 2.0**-52),
    "256": gcfcp.Grid.uniform(0, 256, 256),
    "1,023": gcfcp.Grid(np.sort(np.random.default_rng(3).normal(size=1023))),
    "65,536": gcfcp.Grid(np.sort(np.random.default_rng(3).normal(size=2**16))),
}


@pytest.mark.parametrize("name", GRIDS)
def test_every_score_is_in_the_cell_of_numpy(spark, tmp_path, counted, name):
    """Edges, the floats beside them, both zeros, denormal and infinite scores."""
    grid = GRIDS[name]
    edges = np.random.default_rng(0).choice(grid.upper_edges, min(len(grid), 1500), replace=False)
    with np.errstate(over="ignore"):
        beside = [np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
    odd = [0.0, -0.0, 5e-324, -5e-324, MOST, -MOST, 1.0, np.inf]
    scores = np.concatenate([edges, *beside, odd])
    scores = scores[scores > -np.inf]
    path = tmp_path / "t.parquet"
    pl.DataFrame({"score": scores}).write_parquet(path)
    groups = gcfcp.Groups({"all": "TRUE"})
    ours = gcfcp.spark.summarize(
        spark.read.parquet(str(path)), groups=groups, client="a", grid=grid
    )
    assert counted == [True]
    assert ours.to_bytes() == of_table(path, groups, grid=grid).to_bytes()
    cells, counts = np.unique(np.searchsorted(grid.upper_edges, scores), return_counts=True)
    assert ours.values.tolist() == grid.points[cells].tolist()
    assert ours.counts.tolist() == counts.tolist()


@pytest.mark.parametrize("kind", [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Float32, pl.Float64])
def test_numbers_of_all_types_have_the_score_of_the_file(spark, tmp_path, counted, kind):
    """To the last bit: the scores themselves and the floats below them are the edges."""
    rng = np.random.default_rng(4)
    n = 400
    bits = {pl.Int8: 7, pl.Int16: 15, pl.Int32: 31, pl.Int64: 63}.get(kind)
    numbers = rng.normal(size=n) if bits is None else rng.integers(-(2**bits), 2**bits, n)
    other = rng.permutation(numbers)
    base = pl.DataFrame({"a": numbers, "b": other}).cast(kind)
    groups = gcfcp.Groups({"all": "TRUE"})
    for what, frame in {
        "residual": base.select(y="a", prediction="b"),
        "residual with a double": base.select("b", y="a").select(
            "y", prediction=pl.col("b").cast(pl.Float64) + 0.1
        ),
        "cqr": base.select(y="a", lo="b", hi=pl.col("b").reverse()),
        "column": base.select(score="a"),
    }.items():
        path = tmp_path / f"{what}.parquet"
        frame.write_parquet(path)
        with open_table(path) as table:
            scores = scoring(table).of(frame, None).astype(np.float64)
        grid = gcfcp.Grid(np.unique(np.concatenate([scores, np.nextafter(scores, -np.inf)])))
        counted.clear()
        read_back = spark.read.parquet(str(path))
        ours = gcfcp.spark.summarize(read_back, groups=groups, client="a", grid=grid)
        assert counted == [True], what
        assert ours.to_bytes() == of_table(path, groups, grid=grid).to_bytes(), what


@pytest.mark.parametrize(
    "how",
    [
        {"groups": gcfcp.Groups({"all": "TRUE"})},
        {"groups": gcfcp.Groups([], sites=["a", "b"])},
        {"groups": gcfcp.Groups({"old": "age >= 65"}, sites=["b", "a"]), "by": "group"},
        {"groups": gcfcp.Groups({"old": "age >= 65", "none": "age > 200"})},
        {"groups": gcfcp.Groups({"all": "TRUE", "none": "age > 200"}), "absent": ["none"]},
        {"groups": gcfcp.Groups(["old", "whole"])},
        {"groups": OLD, "min_count": 40},
        {"groups": gcfcp.Groups({"all": "TRUE"}), "score": gcfcp.scores.AbsoluteResidual()},
        {"groups": gcfcp.Groups({"all": "TRUE"}), "score": gcfcp.scores.CQR()},
        {"groups": gcfcp.Groups({"all": "TRUE"}), "missing": "drop", "round": "q", "model": "m"},
        {"groups": gcfcp.Groups({"all": "TRUE"}), "date": "2026-11-17", "by": "group"},
        {"groups": gcfcp.Groups({"odd": '"a.b `c`" > 40', "ID": "ID > 40"})},
    ],
    ids=lambda how: " ".join(map(str, how["groups"].names)),
)
def test_what_spark_counts(spark, counted, how):
    frame = spark.createDataFrame(
        records(600).select("age", "y", "prediction", "lo", "hi").to_pandas()
    ).selectExpr("*", "age >= 65 AS old", "age % 2 AS whole", "age AS `a.b ``c```", "age AS ID")
    how = {"score": "residual", "grid": GRID} | how
    result, by_spark = same_both_ways(frame.repartition(3), counted, **how)
    assert by_spark
    assert result.n == 600


@quietly
def test_noise_is_added_to_counted_rows(spark, counted):
    pytest.importorskip("opendp", reason="noise needs the extra dp")
    frame = spark.createDataFrame(records(600).select("age", "y", "prediction").to_pandas())
    ours = gcfcp.spark.summarize(frame, groups=OLD, client="a", grid=GRID, epsilon=1.0)
    assert counted == [True]
    assert (ours.n, ours.noise is None) == (600, False)


def stranger() -> Any:
    """A score of somebody else that has the name of one of ours."""

    class Square:  # Workers cannot import this file, and get the class itself.
        name, parameters, kind = "residual", {}, "interval"

        def of(self, prediction, y, rng=None):
            return (y - prediction) ** 2

    return Square()


ROW_BY_ROW: dict[str, tuple[list[str], dict[str, Any]]] = {
    "no grid": ([], {"grid": None}),
    "a shape": ([], {"by": "group", "shape": gcfcp.Shape(OLD, (0.3, 0.2))}),
    "another score": ([], {"score": stranger()}),
    "no y": (["if(id = 5, NULL, y) AS y"], {}),
    "no y is dropped": (["if(id IN (5, 300), NULL, y) AS y"], {"missing": "drop"}),
    "y is NaN": (["if(id = 5, double('NaN'), y) AS y"], {}),
    "y is infinite": (["if(id = 5, double('inf'), y) AS y"], {}),
    "y is minus infinite": (["if(id = 5, double('-inf'), y) AS y"], {}),
    "no prediction": (["if(id = 5, NULL, prediction) AS prediction"], {}),
    "y is a decimal": (["cast(y AS decimal(20, 10)) AS y"], {}),
    "y is a text": (["cast(y AS string) AS y"], {}),
    "y is true": (["y > 0 AS y"], {}),
    "nothing is left": (["double(NULL) AS y"], {"missing": "drop"}),
    "missing": ([], {"missing": "perhaps"}),
    "score -inf": (["if(id = 5, double('-inf'), y) AS score"], {"score": "column"}),
    "score NaN": (["if(id = 5, double('NaN'), y) AS score"], {"score": "column"}),
    "no score": (["if(id = 5, NULL, y) AS score"], {"score": "column"}),
    "a condition is open": (["if(id = 5, NULL, age) AS age"], {}),
    "a condition fails": (["cast(age AS string) AS age"], {}),
    "a group is declared absent": (["if(id = 5, 70, 30) AS age"], {"absent": ["old"]}),
    "no Boolean": (["id % 3 AS old", "true AS all"], {"groups": gcfcp.Groups(["all", "old"])}),
    "a timestamp": (
        ["timestamp_seconds(id) AS t"],
        {"groups": gcfcp.Groups({"all": "TRUE", "t": "t IS NULL"})},
    ),
    "a collation": (
        ["if(id % 2 = 0, 'a', 'A') COLLATE UTF8_LCASE AS s"],
        {"groups": gcfcp.Groups({"all": "TRUE", "s": "s = 'a'"})},
    ),
    "bytes": (
        ["cast('x' AS binary) AS s"],
        {"groups": gcfcp.Groups({"all": "TRUE", "s": "s IS NULL"})},
    ),
    "a text is read as a date": (
        ["if(id % 2 = 0, '2020-01-02', '2018-01-02') AS s"],
        {"groups": gcfcp.Groups({"all": "TRUE", "d": "date(s) >= DATE '2019-01-01'"})},
    ),
    "very many cells": ([], {"grid": gcfcp.Grid.uniform(0, 4, 2**16)}),
    "hardly two rows are alike": (
        ["y * 2 AS x"],
        {"groups": gcfcp.Groups({"all": "TRUE", "x": "x > 0"})},
    ),
}


LATE = [name for name, case in ROW_BY_ROW.items() if "id = 5" in str(case)]


@pytest.mark.parametrize(
    ("name", "look"), [(name, 10_000) for name in ROW_BY_ROW] + [(name, 3) for name in LATE]
)
def test_what_goes_to_python_row_by_row(spark, counted, monkeypatch, name, look):
    """The result, errors and warnings are those of the rows, wherever it is noticed."""
    monkeypatch.setattr(grouping, "LOOK", look)
    monkeypatch.setattr(grouping, "FEW", 100)
    extra, how = ROW_BY_ROW[name]
    plain = spark.createDataFrame(records(400).select("id", "age", "y", "prediction").to_pandas())
    named = [one.rpartition(" AS ")[2] for one in extra]
    frame = plain.selectExpr(*(c for c in plain.columns if c not in named), *extra)
    frame = frame.repartitionByRange(3, "id").sortWithinPartitions("id")
    how = {"groups": OLD, "grid": GRID, "score": "residual"} | how
    _, by_spark = same_both_ways(frame, counted, **how)
    assert not by_spark


def test_what_spark_refuses_goes_to_python_row_by_row(spark, counted):
    """With this setting a GROUP BY leaves out the columns by which it groups."""
    frame = spark.createDataFrame(records(400).select("age", "y", "prediction").to_pandas())
    spark.conf.set("spark.sql.retainGroupColumns", "false")
    try:
        result, by_spark = same_both_ways(frame, counted, groups=OLD, grid=GRID)
    finally:
        spark.conf.unset("spark.sql.retainGroupColumns")
    assert not by_spark
    assert result.n == 400


def test_an_empty_frame_and_a_holdout_are_not_counted(spark, paths, counted):
    frame = read(spark, paths["residual"])
    result, by_spark = same_both_ways(frame.where("id < 0"), counted, groups=OLD, grid=GRID)
    assert "has no rows to work with: the table is empty" in result
    assert not by_spark
    counted.clear()
    gcfcp.spark.summarize(frame, groups=OLD, client="a", grid=GRID, holdout=0.3, seed=1)
    assert counted == []


def test_nothing_but_summaries_is_collected(spark, paths, counted, monkeypatch):
    """The driver gets the replies of tasks, and no row that was counted."""
    from pyspark.sql.classic.dataframe import DataFrame

    got: list[Any] = []
    collect = DataFrame.collect

    def watched(frame):
        got.append((frame.columns, rows := collect(frame)))
        return rows

    monkeypatch.setattr(DataFrame, "collect", watched)
    gcfcp.spark.summarize(read(spark, paths["residual"]), groups=OLD, client="a", grid=GRID)
    assert counted == [True]
    assert [columns[:2] for columns, _ in got] == [["partition", "read"]] * 2


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
    grid = gcfcp.Grid.uniform(0, 1, 200)
    counted = gcfcp.spark.summarize(frame, groups=OLD, client="a", grid=grid)
    assert counted.n == counted.counts.sum() == 10**7
    digests = gcfcp.spark.summarize(frame, groups=OLD, client="a")
    assert digests.atom_counts.tolist() == counted.atom_counts.tolist()
    # At every edge the digest says no more than the count, and not much less.
    for i, error in enumerate(digests.errors):
        a, b = slice(*digests.start[i : i + 2]), slice(*counted.start[i : i + 2])
        edges = counted.values[b]
        here = digests.counts[a] @ (digests.values[a][:, None] <= edges)
        there = np.cumsum(counted.counts[b])
        assert (here <= there).all()
        assert (there - here).max() <= error <= 0.0126 * there[-1]
