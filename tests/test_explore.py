"""Explorations: every setting is the calibration at its alpha and mixture, to the last bit."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

import gcfcp
from gcfcp import GCFCPError, Grid, Groups, calibrate, explore, summarize
from gcfcp.calibration import ALPHAS, exploration
from gcfcp.summary import Making, counts_of, summary_from_counts

GROUPS = Groups({"all": "TRUE", "f": "sex = 'F'", "old": "age >= 65"})
SIZES = {"city": 60, "coast": 30, "isle": 12}
FEW = {"alphas": (0.3,), "parts": (1,), "within": None}


def rows(n, seed=0):
    rng = np.random.default_rng([seed, n])
    membership = np.column_stack([np.ones(n, bool), rng.random(n) < 0.5, rng.random(n) < 0.3])
    return rng.exponential(1 + membership[:, 1]), membership


def federation(**options):
    options = {"groups": GROUPS, "score": "residual"} | options
    return [summarize(*rows(n, k), client=c, **options) for k, (c, n) in enumerate(SIZES.items())]


def calibrated(summaries, setting, **options):
    """The calibration at a setting, made by the function that users call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        return calibrate(summaries, setting.alpha, setting.stop.mixture, **options)


def assert_exact(explored, summaries, **options):
    """Every setting has the numbers, words and reasons of `calibrate`, to the last bit."""
    seen = 0
    for column in explored.settings:
        for setting in column:
            found = calibrated(summaries, setting, **options)
            assert setting.atoms == found.atoms
            assert (
                setting.thresholds.tobytes()
                == np.array([r.threshold for r in found.atoms]).tobytes()
            )
            assert setting.guarantee == found.guarantee
            assert setting.correction == found.correction
            assert setting.rule == found.rule
            assert dict(zip(explored.clients, setting.stop.shares, strict=True)) == found.shares
            seen += 1
    assert seen == len(explored.alphas) * len(explored.stops) > 1


def stops(explored):
    return [(s.line and (s.line.client or s.line.kind), s.part) for s in explored.stops]


def test_every_setting_is_the_calibration_at_its_alpha_and_mixture():
    summaries = federation()
    explored = explore(summaries, alphas=(0.3,), parts=(0.5, 1), within=None)
    assert explored.alphas == (0.1, 0.3)
    assert stops(explored) == [
        (None, 0.0),
        *[("uniform", 1), ("city", 1), ("coast", 1), ("isle", 1)],
        *[("uniform", 0.5), ("city", 0.5), ("coast", 0.5), ("isle", 0.5)],
    ]
    assert_exact(explored, summaries)
    assert explored.start.alpha == 0.1
    assert explored.left_out == ()
    assert (
        explored.membership.tolist()
        == calibrate(summaries, 0.1).threshold_table.membership.tolist()
    )
    infinite = {
        len(s.atoms) - np.isfinite(s.thresholds).sum() for c in explored.settings for s in c
    }
    assert len(infinite) > 1  # The sites and alphas were chosen so that some are infinite.


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("made", "asked"),
    [
        ({}, {"rule": "max"}),
        ({}, {"rule": "max", "correction": "paper"}),
        ({}, {"confidence": 0.9}),
        ({"delta": 30}, {"merge": "recompress", "delta": 20.0}),
        ({"min_count": 5}, {}),
        ({"by": "group", "min_count": 5}, {}),
        ({"grid": Grid.uniform(0, 8, 32)}, {}),
        ({"grid": Grid.uniform(0, 8, 32), "by": "group"}, {"confidence": 0.9}),
    ],
    ids=str,
)
def test_hidden_cells_grids_and_all_options_are_those_of_calibrate(made, asked):
    summaries = federation(**made)
    explored = explore(summaries, clients=["city"], **FEW, **asked)
    assert_exact(explored, summaries, **asked)
    assert len(explored.start.atoms) == (3 if made.get("by") == "group" else 4)
    assert stops(explored) == [(None, 0.0), ("uniform", 1), ("city", 1)]


def test_noise_is_explored_as_it_is_calibrated():
    pytest.importorskip("opendp", reason="noise needs OpenDP (extra dp)")
    summaries = federation(grid=Grid.uniform(0, 8, 4), epsilon=2.0)[:2]
    explored = explore(summaries, alphas=(), parts=(1,), clients=["city"], within=None)
    assert stops(explored) == [(None, 0.0), ("uniform", 1), ("city", 1)]
    assert_exact(explored, summaries)
    assert explored.start.guarantee[0].privacy > 0
    with pytest.raises(GCFCPError, match="rule"):
        explore(summaries, rule="simultaneous")


def test_a_level_part_with_its_shape_is_explored_and_a_shape_part_is_refused():
    draw = np.random.default_rng(5)
    options = {"groups": GROUPS, "holdout": 0.5, "rng": draw, "min_count": 10}
    parts = [summarize(*rows(90, k), client=c, **options) for k, c in enumerate("ab")]
    shape = gcfcp.fit_shape([shaped for shaped, _ in parts], 0.1)
    levels = [level for _, level in parts]
    explored = explore(levels, shape=shape, **FEW)
    assert_exact(explored, levels, shape=shape)
    assert explored.start.rule == "max"
    with pytest.raises(GCFCPError, match="a sent the shape part of a holdout"):
        explore([shaped for shaped, _ in parts])


def test_a_client_that_describes_nothing_cannot_count_alone():
    summaries = federation(min_count=9)
    explored = explore(summaries, clients=["isle"], **FEW)
    assert stops(explored) == [(None, 0.0), ("uniform", 1)]
    assert explored.left_out == (
        "The mixture isle alone was left out: every client that describes an atom has weight 0 in "
        "the mixture: give one of them a positive weight.",
    )
    with pytest.raises(GCFCPError, match="every client that describes an atom has weight 0"):
        explore(summaries, mixture={"city": 0, "coast": 0, "isle": 1})


def test_the_charge_of_a_client_alone_agrees_with_its_reasons():
    """One record of the isle is worth many of all clients; correction and reasons say the same."""
    explored = explore(federation(), alphas=(), parts=(1,), clients=["isle"], within=None)
    alone, one = explored.settings[2][0], explore(federation()[:1], alphas=(), within=None).start
    size = f"{102 / 13:.3g}"
    assert alone.correction.size == size
    assert str(alone.correction).endswith(
        f"one record of it, which is {size} records of all clients"
    )
    assert any(f"the test point weighs as {size} records" in (r.reason or "") for r in alone.atoms)
    assert (one.correction.size, str(one.correction)[-10:]) == ("1", "one record")


def test_a_sum_of_which_nobody_knows_the_parts_has_one_mixture():
    making = Making(
        groups=GROUPS, client="sum of 3 clients", grid=Grid.uniform(0, 8, 16), by="group"
    )
    vector = sum(counts_of(s) for s in federation(grid=making.grid, by="group", score=None))
    total = summary_from_counts(vector, making, list(SIZES))
    with pytest.raises(GCFCPError, match="aggregate"):
        explore([total])
    explored = explore([total], aggregates=["sum of 3 clients"], **FEW)
    assert stops(explored) == [(None, 0.0)]
    assert_exact(explored, [total], aggregates=["sum of 3 clients"])
    (said,) = explored.left_out
    assert said.startswith("The mixture uniform was left out: ")
    known = explore([total], aggregates={"sum of 3 clients": 3}, **FEW)
    assert (stops(known), known.left_out) == ([(None, 0.0)], ())


def test_the_lines_start_at_the_mixture_that_was_given():
    summaries = federation()
    given = {"city": 0.5, "coast": 0.5, "isle": 0}
    explored = explore(summaries, 0.1, given, alphas=(), clients=["isle"], within=None, rule="max")
    first = explored.stops[0]
    assert (first.mixture, first.shares) == (given, (0.5, 0.5, 0.0))
    assert stops(explored)[1:4] == [("uniform", 1), ("proportional", 1), ("isle", 1)]
    quarter = next(s for s in explored.stops if s.line and s.line.client and s.part == 0.25)
    assert quarter.mixture == {"city": 0.375, "coast": 0.375, "isle": 0.25}
    assert (
        explore(summaries, alphas=(), clients=(), within=None, rule="max").stops[-1].line.client
        is None
    )


def test_weights_on_the_way_can_be_written_down_and_add_up_to_one():
    summaries = federation()
    for stop in explore(summaries, alphas=(), parts=(1 / 3,), within=None, rule="max").stops[1:]:
        weights = [Fraction(str(w)) for w in stop.mixture.values()]
        assert sum(weights) == 1
        assert all((w * 10**6).denominator == 1 for w in weights)


def test_alphas_that_are_tried_by_default_are_fine():
    assert ALPHAS[0] == 0.01
    assert ALPHAS[9] == 0.1
    assert ALPHAS[-1] == 0.3
    assert len(ALPHAS) == 30
    order = list(exploration._coarse_to_fine(ALPHAS))
    assert sorted(order) == list(ALPHAS)
    for first in (4, 8, 15):  # Wherever it is cut off, no gap is much larger than it must be.
        gaps = np.diff(sorted(order[:first]))
        assert gaps.max() <= 4 * 0.3 / first


def test_the_time_is_bounded_and_what_is_left_out_is_said(monkeypatch):
    summaries, clock = federation(), iter(range(10**6))
    monkeypatch.setattr(exploration.time, "process_time", lambda: float(next(clock)))
    told = []
    explored = explore(
        summaries, alphas=(0.2, 0.3), parts=(1,), within=7, progress=lambda *p: told.append(p)
    )
    assert [len(c) for c in explored.settings] == [3, 3]  # Each takes one second here.
    assert explored.left_out == (
        "3 mixtures were left out, because the computation would take more than 7 s of the "
        "processor; among them are these clients alone: city, coast, isle.",
    )
    assert told == [(i + 1, 15) for i in range(6)]
    one = explore(summaries, alphas=(0.2, 0.3), within=1)
    assert one.alphas == (0.1,)
    assert one.left_out[0].startswith("2 of 3 alphas were left out, because the computation")
    assert "on the way" not in one.left_out[0]


def test_the_number_of_settings_is_bounded():
    groups = Groups(["all"])
    many = [
        summarize(np.arange(20.0), np.ones((20, 1)), groups=groups, client=f"c{k:02}", delta=k + 99)
        for k in range(12)
    ]
    alphas = [k / 400 for k in range(1, 400)]
    explored = explore(many, alphas=alphas, within=0)
    assert explored.alphas == (0.1,)
    said = explored.left_out[0]
    assert "there would be more than 2,000 settings; among them are these clients alone" in said
    with pytest.raises(GCFCPError, match="2,001 alphas are more than the 2,000 settings"):
        explore(many, alphas=[k / 3000 for k in range(1, 2002)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alphas": (0.1, 1.5)}, r"alpha=1.5 is not in \(0, 1\)"),
        ({"alpha": 10}, "did you mean 0.1"),
        ({"parts": (0,)}, r"part 0 of the way to a mixture is not in \(0, 1\]"),
        ({"clients": ["nobody"]}, "'nobody' is not among the clients city, coast, isle"),
        ({"within": -1}, "within=-1 is not a finite number of at least 0"),
        ({"mixture": {"city": 1}}, "the mixture must name every client"),
    ],
    ids=str,
)
def test_what_cannot_be_explored_is_refused(options, words):
    with pytest.raises(GCFCPError, match=words):
        explore(federation(), **options)


def test_a_setting_is_found_by_its_alpha():
    explored = explore(federation(), clients=(), rule="max", **FEW)
    assert explored.at(0.3, 1) is explored.settings[1][1]
    with pytest.raises(GCFCPError, match=r"alpha=0.15 was not explored: it is one of 0.1, 0.3"):
        explored.at(0.15)


def test_clients_that_sent_the_same_are_named_without_a_warning():
    scores, membership = rows(60)
    twins = [summarize(scores, membership, groups=GROUPS, client=c) for c in "ab"]
    (note,) = explore(twins, **FEW).notes
    assert "a" in note
    assert "b" in note
