"""Screening and influence: the distance is compared with its definition, false alarms with their
bound, and the influence of a client with a calibration that leaves it out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import GCFCPError
from gcfcp.calibration import screening
from gcfcp.calibration.screening import LEVEL, TOLERANCE, screen
from gcfcp.report import render

GROUPS = gcfcp.Groups(["all", "b"])


def client(rng, name: str, n: int, shift: float = 0.0, score: str = "own", **options):
    membership = np.column_stack([np.ones(n, bool), rng.random(n) < 0.4])
    scores = rng.normal(shift, 1, n) if score == "own" else rng.random(n)
    return gcfcp.summarize(
        scores, membership, groups=GROUPS, client=name, score=score, **options
    ), (scores, membership)


def cdf(values: np.ndarray, t: np.ndarray) -> np.ndarray:
    return (values[:, None] <= t).mean(axis=0)


# --- The statistic -----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(2, 5), st.booleans())
def test_the_distance_is_its_definition(seed: int, K: int, ties: bool) -> None:
    """The definition is evaluated at all scores, and nothing is compressed."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(K):
        n = int(rng.integers(1, 40))
        scores = rng.normal(rng.choice([0, 3]), 1, n)
        rows.append(np.round(scores) if ties else scores)
    one = gcfcp.Groups(["all"])
    summaries = [
        gcfcp.summarize(s, np.ones((len(s), 1), bool), groups=one, client=f"c{k}", delta=1e9)
        for k, s in enumerate(rows)
    ]
    grid = np.concatenate(rows)
    for k, found in enumerate(screen(summaries)):
        others = [cdf(s, grid) for j, s in enumerate(rows) if j != k]
        expected = np.abs(cdf(rows[k], grid) - np.mean(others, axis=0)).max()
        assert found.distance == pytest.approx(expected, abs=1e-12)
        bands = [np.sqrt(np.log(4 * K / LEVEL) / (2 * len(s))) for s in rows]
        noise = bands[k] + np.mean([b for j, b in enumerate(bands) if j != k])
        assert found.certain == pytest.approx(expected - noise, abs=1e-12)


@pytest.mark.parametrize("representative", ["upper", "mean"])
def test_compression_takes_away_from_certainty_and_never_adds(representative: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        rows = [rng.normal(rng.choice([0, 2]), 1, 60) for _ in range(3)]
        one = gcfcp.Groups(["all"])

        def made(delta: float, rows=rows, one=one):
            return [
                gcfcp.summarize(
                    s,
                    np.ones((60, 1), bool),
                    groups=one,
                    client=f"c{k}",
                    delta=delta,
                    representative=representative,
                )
                for k, s in enumerate(rows)
            ]

        for exact, coarse in zip(screen(made(1e9)), screen(made(5)), strict=True):
            assert coarse.certain <= exact.certain + 1e-12


# --- Alarms, true and false ----------------------------------------------------------------------


@pytest.mark.parametrize("ties", [False, True])
def test_the_distance_does_not_depend_on_the_parts_that_it_is_computed_in(ties, monkeypatch):
    rng = np.random.default_rng(11)
    summaries = []
    for k in range(6):
        membership = np.column_stack([np.ones(90, bool), rng.random((90, 2)) < 0.4])
        scores = rng.normal(k % 3, 1, 90)
        groups = gcfcp.Groups(["all", "b", "c"])
        taken = np.round(scores, 1) if ties else scores
        summaries.append(gcfcp.summarize(taken, membership, groups=groups, client=f"c{k}"))
    whole = screen(summaries)
    for size in (1, 2, 7, 50):
        monkeypatch.setattr(screening, "_AT_A_TIME", size)
        parts = screen(summaries)
        assert [s.groups for s in parts] == [s.groups for s in whole]
        assert [s.distance for s in parts] == pytest.approx([s.distance for s in whole], abs=1e-12)


def test_a_client_of_invented_scores_is_flagged_and_stays_in() -> None:
    rng = np.random.default_rng(0)
    summaries = [client(rng, f"c{k}", 400)[0] for k in range(5)]
    summaries.append(client(rng, "odd", 400, shift=6)[0])
    plan = gcfcp.plan(summaries, 0.1)
    assert [s.client for s in plan.screening if s.flagged] == ["odd"]
    assert "odd is unlike the other clients" in str(plan)
    assert "not left out" in str(plan)
    calibration = gcfcp.calibrate(summaries, 0.1)
    assert calibration.shares["odd"] == pytest.approx(1 / 6)
    predictor = gcfcp.Predictor("own", calibration)
    page = render(gcfcp.Predictor.from_json(predictor.to_json()), date="today")
    assert "unlike the others" in page
    assert "odd is unlike the other clients" in page
    honest = render(gcfcp.Predictor("own", calibration.without("odd")), date="today")
    assert "unlike the others" not in honest


@pytest.mark.slow
def test_false_alarms_are_below_their_bound() -> None:
    """All clients have the same distribution, so that every flag is a false alarm, even with a
    tolerance of almost 0. None of these 300 federations has a flag, and none of 2,000 had one in a
    longer run. The bound is conservative, as union bounds are."""
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(300):
        sizes = rng.integers(20, 200, int(rng.integers(2, 6)))
        summaries = [client(rng, f"c{k}", n)[0] for k, n in enumerate(sizes)]
        alarms += any(s.flagged for s in screen(summaries, tolerance=1e-9))
    assert alarms <= LEVEL * 300


@pytest.mark.slow
def test_false_alarms_at_the_edge_of_the_tolerance_are_below_their_bound() -> None:
    """In the hardest case the distributions of two clients differ by exactly the tolerance."""
    rng = np.random.default_rng(3)
    one = gcfcp.Groups(["all"])
    alarms = 0
    for _ in range(400):
        # F_1 is uniform on [0, 1] and F_2 on [tolerance, 1 + tolerance], so that
        # sup |F_1 - F_2| is the tolerance.
        summaries = [
            gcfcp.summarize(
                rng.random(300) + k * TOLERANCE, np.ones((300, 1), bool), groups=one, client=f"c{k}"
            )
            for k in range(2)
        ]
        alarms += any(s.flagged for s in screen(summaries))
    assert alarms <= LEVEL * 400


def test_nobody_becomes_the_norm_by_claiming_more_records() -> None:
    rng = np.random.default_rng(4)
    summaries = [client(rng, f"c{k}", 300)[0] for k in range(4)]
    summaries.append(client(rng, "loud", 30_000, shift=8)[0])
    assert [s.client for s in screen(summaries) if s.flagged] == ["loud"]


def test_a_client_alone_in_its_atoms_cannot_be_judged() -> None:
    rng = np.random.default_rng(5)
    groups = gcfcp.Groups(["a", "b"])
    row = np.zeros((50, 2), bool)
    summaries = []
    for k in range(2):
        own = row.copy()
        own[:, k] = True
        summaries.append(
            gcfcp.summarize(rng.random(50) + 100 * k, own, groups=groups, client=f"c{k}")
        )
    for found in screen(summaries):
        assert (found.atoms, found.flagged) == (0, False)
        assert "not far" in str(found)


def test_levels_outside_their_range_are_refused() -> None:
    summary = client(np.random.default_rng(0), "a", 10)[0]
    for bad in (0, 1, -1, float("nan"), "x"):
        with pytest.raises(GCFCPError, match="level="):
            screen([summary], level=bad)
        with pytest.raises(GCFCPError, match="tolerance="):
            screen([summary], tolerance=bad)


# --- The range of scores -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "scores", "words"),
    [
        ("thr", [0.5, 1.5], "from 0 to 1"),
        ("thr", [-0.1, 0.5], "from 0 to 1"),
        ("residual", [-1.0, 2.0], "from 0 to inf"),
        ("aps", [0.5, np.inf], "from 0 to 1"),
    ],
)
def test_scores_that_their_definition_rules_out_are_refused(
    score: str, scores: list[float], words: str
) -> None:
    """A client can send what `summarize` would never write: here the score's name is changed."""
    from dataclasses import replace

    made = gcfcp.summarize(scores, np.ones((2, 1), bool), groups=gcfcp.Groups(["a"]), client="x")
    hostile = replace(made, score=score, parameters={"randomized": True} if score == "aps" else {})
    for use in (
        lambda: gcfcp.calibrate([hostile], 0.5),
        lambda: gcfcp.plan([hostile], 0.5),
        lambda: gcfcp.merge([hostile], "region"),
    ):
        with pytest.raises(GCFCPError, match=f"x has scores from .*{words}"):
            use()


def test_scores_of_any_range_are_taken_under_a_name_of_their_own() -> None:
    made = gcfcp.summarize(
        [-5.0, 7.0], np.ones((2, 1), bool), groups=gcfcp.Groups(["a"]), client="x", score="mine"
    )
    assert gcfcp.calibrate([made], 0.5).table[0].threshold == 7.0


# --- Influence -----------------------------------------------------------------------------------


def federation(seed: int, K: int = 4, **options):
    rng = np.random.default_rng(seed)
    return [client(rng, f"c{k}", int(rng.integers(30, 200)), **options)[0] for k in range(K)]


@pytest.mark.parametrize("rule", ["simultaneous", "max"])
@pytest.mark.parametrize("mixture", ["uniform", "proportional", "given"])
def test_influence_is_what_leaving_a_client_out_changes(rule: str, mixture: str) -> None:
    summaries = federation(0)
    weights = {"c0": 0.1, "c1": 0.2, "c2": 0.3, "c3": 0.4} if mixture == "given" else mixture
    calibration = gcfcp.calibrate(summaries, 0.1, weights, rule=rule)
    found = {(i.client, i.group): i for i in calibration.influence()}
    assert len(found) == 4 * len(GROUPS)
    for k in range(4):
        left = [s for s in summaries if s.client != f"c{k}"]
        rest = weights
        if mixture == "given":
            rest = {c: w / (1 - weights[f"c{k}"]) for c, w in weights.items() if c != f"c{k}"}
        other = gcfcp.calibrate(left, 0.1, rest, rule=rule)
        for g, group in enumerate(GROUPS.names):
            rows = np.unique(calibration.threshold_table.membership, axis=0)
            rows = rows[rows[:, g]]
            shifts = calibration.thresholds(rows) - other.thresholds(rows)
            record = found[f"c{k}", group]
            assert abs(record.largest) == np.abs(shifts).max()
            assert record.largest in shifts
            places = [tuple(np.array(GROUPS.names)[row].tolist()) for row in rows]
            weight = [a.weight for p in places for a in calibration.table if a.groups == p]
            assert record.mean == pytest.approx(np.average(shifts, weights=weight), abs=1e-12)
            assert (record.only_with, record.only_without) == (0, 0)


def test_influence_sees_the_client_that_pulls() -> None:
    rng = np.random.default_rng(1)
    summaries = [client(rng, f"c{k}", 200)[0] for k in range(4)]
    summaries.append(client(rng, "high", 200, shift=5)[0])
    moved = {
        i.client: i.mean for i in gcfcp.calibrate(summaries, 0.1).influence() if i.group == "all"
    }
    assert max(moved, key=lambda c: abs(moved[c])) == "high"
    assert moved["high"] > 1


def test_influence_counts_what_becomes_infinite() -> None:
    rng = np.random.default_rng(2)
    groups = gcfcp.Groups(["a", "b"])
    eye = np.eye(2, dtype=bool)
    common = gcfcp.summarize(rng.random(99), eye[np.zeros(99, int)], groups=groups, client="x")
    both = gcfcp.summarize(rng.random(198), eye[np.arange(198) % 2], groups=groups, client="y")
    calibration = gcfcp.calibrate([common, both], 0.1, "proportional")
    found = {(i.client, i.group): i for i in calibration.influence()}
    assert found["y", "b"].only_with == 1  # No other client has records there.
    assert np.isnan(found["y", "b"].largest)
    assert found["x", "b"].only_with == 0
    assert found["x", "a"].only_with == 0


def test_influence_where_nothing_is_left() -> None:
    summaries = federation(3, K=2)
    weights = {"c0": 1.0, "c1": 0.0}
    calibration = gcfcp.calibrate(summaries, 0.1, weights)
    found = {(i.client, i.group): i for i in calibration.influence()}
    assert found["c0", "all"].only_with == 2
    assert found["c1", "all"].largest == 0.0
    with pytest.raises(GCFCPError, match="two clients are needed"):
        gcfcp.calibrate(summaries[:1], 0.1).influence()


def test_influence_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gcfcp.calibrate(federation(4), 0.1).influence()


# --- What one client can do to the others (docs/threat-model.md) ----------------------------------


@pytest.mark.parametrize("clients", [2, 5, 10])
def test_a_client_that_sends_low_scores_costs_what_the_threat_model_says(clients: int) -> None:
    """With a share pi of the mixture it pulls the coverage of all others down to
    (1 - alpha - pi) / (1 - pi)."""
    n, alpha, pi = 4000, 0.1, 1 / clients
    one, everyone = gcfcp.Groups(["all"]), np.ones((n, 1), bool)
    summaries = [
        gcfcp.summarize(
            (np.arange(n) + 0.5 + k / 99) / n, everyone, groups=one, client=f"c{k}", delta=1e9
        )
        for k in range(clients - 1)
    ]
    low = gcfcp.summarize(np.full(n, -1.0), everyone, groups=one, client="low")
    threshold = gcfcp.calibrate([*summaries, low], alpha).table[0].threshold
    assert threshold == pytest.approx((1 - alpha - pi) / (1 - pi), abs=2e-3)
    assert any(s.flagged and s.client == "low" for s in screen([*summaries, low]))


@pytest.mark.parametrize(("clients", "finite"), [(5, False), (9, False), (20, True)])
def test_a_client_that_sends_infinite_scores_switches_off_from_a_share_of_alpha(
    clients: int, finite: bool
) -> None:
    n = 1000
    one, everyone = gcfcp.Groups(["all"]), np.ones((n, 1), bool)
    rng = np.random.default_rng(0)
    summaries = [
        gcfcp.summarize(rng.random(n), everyone, groups=one, client=f"c{k}")
        for k in range(clients - 1)
    ]
    high = gcfcp.summarize(np.full(n, np.inf), everyone, groups=one, client="high")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        record = gcfcp.calibrate([*summaries, high], 0.1).table[0]
    assert np.isfinite(record.threshold) == finite
    assert (record.reason is None) == finite


def test_withheld_records_count_as_noise() -> None:
    """A site withholds two thirds of an atom, its largest scores, and is like the others otherwise.

    Its distribution then differs by 0.66, which is above the tolerance, from that of sites with so
    many records that as many withheld ones make no difference.
    """
    groups, m = gcfcp.Groups({"all": "TRUE", "a": "x = 1", "b": "y = 1"}), 500
    rows = np.array([[1, 0, 0], [1, 0, 1]], dtype=bool)

    def site(name: str, *counts: int) -> gcfcp.ClientSummary:
        scores = np.concatenate([(np.arange(k) + 0.5) / k for k in counts])
        member = np.repeat(rows, counts, axis=0)
        return gcfcp.summarize(scores, member, groups=groups, client=name, min_count=m)

    few = site("few", 3 * m - 2, m)
    found = screen([few, *(site(f"many{k}", 50 * m, m) for k in range(3))])
    assert [one.flagged for one in found] == [False] * 4
    assert found[0].distance > 0.6
    assert (few.suppressed, found[0].records) == (2 * m - 2, m)
    noise = few.errors[0] / m + few.suppressed / (m + few.suppressed)
    assert found[0].certain <= found[0].distance - noise
