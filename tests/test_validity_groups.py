"""The study of calibrations by group, with a shape and with a confidence: it computes coverage
correctly, it finds rules that are wrong, and the promise holds in a small run of it. The tables of
the long run are committed in experiments/results/validity-groups."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import validity, validity_groups
from experiments.federations import SHAPES, Configuration, Federation
from experiments.validity_groups import CONFIDENCE, KINDS, Confident, Row, confident, on_average
from gcfcp.calibration.problem import problem_of

pytestmark = pytest.mark.slow  # Hundreds of federations are drawn.

RESULTS = Path(__file__).resolve().parent.parent / "experiments" / "results" / "validity-groups"


def drawn(family: str, seed: int, shape: str = "none", min_count: int = 1) -> Federation:
    configuration = Configuration(
        family, "max", "upper", "pool", min_count, "sharp", "any", "group", shape
    )
    return Federation.up_to_twenty(configuration, seed)


# --- the federations -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shape", ["good", "two decimals"])
@pytest.mark.parametrize("family", ["everyone and sites", "overlapping"])
def test_coverage_is_what_sampling_gives(family: str, shape: str, seed: int) -> None:
    """Thresholds are multiples of the grain, so that a quotient that is rounded would show."""
    f = drawn(family, seed, shape)
    rng = np.random.default_rng(seed)
    thresholds = rng.normal(f.mean, f.spread)
    if f.grain:
        thresholds = np.round(np.rint(thresholds / f.grain) * f.grain, 6)
    n = 100_000
    k = rng.choice(len(f.sizes), size=n, p=f.shares)
    atom = (rng.random(n)[:, None] > np.cumsum(f.atoms, axis=1)[k]).sum(axis=1)
    atom = np.minimum(atom, thresholds.shape[1] - 1)
    scores = rng.normal(f.mean[k, atom], f.spread[k, atom])
    if f.grain:
        scores = np.round(np.rint(scores / f.grain) * f.grain, 6)
    covered, member = scores <= thresholds[k, atom], f.rows[k, atom]
    for g, exact in enumerate(f.coverage(thresholds)):
        count = member[:, g].sum()
        if count > 500:
            assert abs(covered[member[:, g]].mean() - exact) < 5 * math.sqrt(0.25 / count)


def test_the_federations_are_of_all_kinds() -> None:
    made = [drawn("everyone", seed, "two decimals") for seed in range(300)]
    assert {len(f.sizes) for f in made} >= {1, 2, 5, 10, 20}
    assert max(len(f.sizes) for f in made) == 20
    sizes = [n for f in made for n in f.sizes]
    assert min(sizes) == 1
    assert max(sizes) > 200
    assert {f.grain for f in made} == {0.01, 0.05, 0.2}
    assert {type(f.mixture) for f in made} == {str, dict}
    assert all(f.groups.everyone[0] for f in made)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_the_same_in_every_calibration(shape: str) -> None:
    f, again = (drawn("overlapping", 3, shape) for _ in range(2))
    summaries = f.summaries(np.random.default_rng(0))
    if shape == "none":
        assert f.shape is None
        return
    assert f.shape is not None
    assert again.shape == f.shape
    assert all(s.shape == f.shape for s in summaries)
    largest = max(abs(c) for c in f.shape.coefficients)
    assert (largest >= 1000) == (shape == "absurd")


def test_a_kind_of_bound_has_the_federations_that_it_names() -> None:
    exact = {}
    for kind in KINDS.values():
        found = set()
        for f in validity_groups.with_confidence(kind, 10, 0):
            summaries = f.summaries(np.random.default_rng(0))
            posed = problem_of(summaries, f.alpha, f.mixture, shape=f.shape, confidence=CONFIDENCE)
            found |= set(posed.exact.tolist())
            assert (len(f.sizes) == 1) == (kind.name == "one client")
        exact[kind.name] = found
    assert exact == {
        "one client": {True},
        "everyone, records alike": {True},
        "everyone, other mixtures": {False},
        "groups by data": {False},
        "everyone, attributes and sites": {True, False},
    }


# --- does it find what is broken? ----------------------------------------------------------------


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rounds with few calibrations."""
    monkeypatch.setattr(validity_groups, "ROUNDS", ((1.0, 4), (0.1, 40)))
    monkeypatch.setattr(validity_groups, "CONFIDENCE_ROUNDS", ((1.0, 40), (0.34, 200)))


@pytest.mark.usefixtures("short")
def test_the_study_finds_a_shape_that_is_added_in_floats() -> None:
    """Scores and shape have two decimals. If the shape is added to the level, a tied score is lost
    where the sum is rounded down."""
    wrong, right = (
        on_average("group", "two decimals", 1, 6, 11_000_000, broken, ["everyone alone"])
        for broken in ("level + shape in floats", "none")
    )
    assert wrong.z > 4
    assert right.z < 4


def one_group(
    sizes: tuple[int, ...],
    mean: list[float],
    min_count: int = 1,
    confidence: float | None = None,
) -> Federation:
    """Clients with one group, to which all records belong; every score is sent."""
    K = len(sizes)
    configuration = Configuration(
        "missing",
        "max",
        "upper",
        "pool",
        min_count,
        "sharp",
        "every score",
        "group",
        confidence=confidence,
    )
    return Federation(
        configuration,
        0,
        0.1,
        4.0 * max(sizes) + 4,
        np.ones((1, 1), dtype=bool),
        sizes,
        "proportional",
        np.ones((K, 1)),
        np.array(mean)[:, None],
        np.ones((K, 1)),
        0.0,
    )


def test_the_study_finds_a_tail_that_is_too_large() -> None:
    """One client with 300 records. By a formula 0.046 of the calibrations fall short."""
    federation = one_group((300,), [0.0], confidence=CONFIDENCE)
    with validity_groups.tail_times(5):
        wrong = validity_groups.share_of(federation, 80, 0)
    right = validity_groups.share_of(federation, 80, 0)
    assert wrong.z > 4
    assert wrong.share > 2 * (1 - CONFIDENCE)
    assert right.z < 3


def test_the_study_finds_that_an_average_is_no_confidence() -> None:
    """A promise on average is short in about half of the calibrations."""
    found = validity_groups.share_of(one_group((100, 100), [0.0, 1.0]), 100, 0)
    assert 0.3 < found.share < 0.7
    assert found.z > 10


@pytest.mark.parametrize("min_count", [1, 2, 4])
def test_sites_that_always_miss_are_counted_in_full(min_count: int) -> None:
    """One site of 720 records, and ten of 7 that always miss; nearly as many as may be missed.

    What a site does not tell because of its `min_count` must not be records that are missed.
    """
    federation = one_group((720, *[7] * 10), [0.0] + [50.0] * 10, min_count)
    found = validity.measure(federation, 20, 0)
    assert found.statuses == {"proved"}
    assert found.z < 4
    sure = replace(
        federation, configuration=replace(federation.configuration, confidence=CONFIDENCE)
    )
    assert validity_groups.share_of(sure, 40, 0).z < 3


def test_the_study_finds_hidden_records_that_are_not_charged() -> None:
    """One site of 720 records, and 26 of 3 that always miss and are hidden at a min_count of 4."""
    federation = one_group((720, *[3] * 26), [0.0] + [50.0] * 26, 4)
    assert validity.measure(federation, 20, 0).z < 4
    with validity_groups.hidden_times(0.5):
        assert validity.measure(federation, 20, 0).z > 4


# --- a small run ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("min_count", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("by", ["group", "atom"])
@pytest.mark.some(6)
def test_the_promise_holds(by: str, shape: str, min_count: int) -> None:
    assert on_average(by, shape, min_count, 24, 12_000_000).z < 4


@pytest.mark.slow
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("kind", KINDS)
def test_few_predictors_fall_short_with_a_confidence(kind: str) -> None:
    assert confident(kind, 12, 12_000_000).z < 4


# --- the committed tables ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def committed() -> dict[str, list[dict[str, object]]]:
    text = (RESULTS / "validity-groups.json").read_text()
    found: dict[str, list[dict[str, object]]] = json.loads(text)
    return found


def test_the_committed_tables_show_no_deficit_beyond_error(committed) -> None:
    assert sum(r["federations"] for r in committed["groups"]) >= 3_000
    assert {(r["shape"], r["min_count"]) for r in committed["groups"]} == {
        (shape, m) for shape in SHAPES for m in (1, 4)
    }
    for row in committed["groups"] + committed["atoms"]:
        assert row["claim"] == "proved"
        assert row["z"] < 4, row


def test_the_committed_tables_show_few_predictors_that_fall_short(committed) -> None:
    assert sum(r["federations"] for r in committed["confidence"]) >= 300
    for row in committed["confidence"]:
        assert row["z"] < 3, row
        assert row["mean_share"] < 1 - CONFIDENCE
        assert row["finite"] > row["federations"] / 4


def test_the_committed_tables_show_that_wrong_rules_are_noticed(committed) -> None:
    assert {r["broken"] for r in committed["broken"]} == set(validity_groups.BROKEN) - {"none"}
    noticed = {r["broken"] for r in committed["broken"] if r["z"] > 4}
    assert noticed == set(validity_groups.BROKEN) - {"none"}


@pytest.mark.usefixtures("short")
def test_a_short_study_writes_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validity_groups, "ROUNDS", ((1.0, 2),))
    monkeypatch.setattr(validity_groups, "CONFIDENCE_ROUNDS", ((1.0, 3),))
    results: dict[str, list[Row | Confident]] = {}
    for task in validity_groups.tasks(0.001):
        results.setdefault(task.part, []).append(validity_groups.perform(task))
    text = validity_groups.page(results, 1.0)
    for heading in ("by group", "by atom", "a confidence of 0.95", "wrong rule"):
        assert heading in text
