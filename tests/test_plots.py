"""Plots draw what the numbers say, on the axes that they are given, and no labels collide."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import gcfcp
import samples
from gcfcp import plots


@pytest.fixture(autouse=True)
def _headless() -> Iterator[None]:
    mpl.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def new_axes(width: float = 7, height: float = 5) -> Axes:
    figure = Figure((width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def drawn(ax: Axes) -> None:
    ax.figure.canvas.draw()


def reports(sample: samples.Sample) -> dict[str, object]:
    return {"gcfcp": sample.audit, **sample.baselines}


def names_on(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


DRAWINGS = {
    "coverage_by_group": lambda ax: plots.coverage_by_group(reports(samples.small()), ax),
    "set_sizes": lambda ax: plots.set_sizes(reports(samples.small()), ax),
    "thresholds_by_atom": lambda ax: plots.thresholds_by_atom(samples.small().calibration, ax),
    "clients": lambda ax: plots.clients(samples.small().predictor, ax),
    "interval_band": lambda ax: plots.interval_band([2, 1], [0, 1], [[-1, 1], [0, 2]], ax=ax),
    "coverage_curve": lambda ax: plots.coverage_curve([0.1, 0.2], [0.9, 0.8], ax=ax),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_axes_are_taken_and_returned_without_pyplot(name: str) -> None:
    from matplotlib import pyplot

    ax = new_axes()
    assert DRAWINGS[name](ax) is ax
    drawn(ax)
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("name", DRAWINGS)
def test_without_axes_a_figure_is_made(name: str) -> None:
    ax = DRAWINGS[name](None)
    assert isinstance(ax, Axes)
    drawn(ax)


def test_coverage_stands_where_the_audit_found_it() -> None:
    sample = samples.small()
    ax = plots.coverage_by_group(reports(sample), new_axes())
    assert names_on(ax) == [g.group for g in sample.audit.groups]
    assert ax.yaxis_inverted()  # The first group is on top.
    promise = next(line for line in ax.lines if len(set(line.get_xdata())) == 1)
    assert promise.get_xdata()[0] == pytest.approx(0.9)
    assert len(ax.containers) == 3
    for container, found in zip(ax.containers, reports(sample).values(), strict=True):
        points, _, bars = container.lines
        assert points.get_xdata() == pytest.approx([g.coverage for g in found.groups])
        ends = np.array([segment[:, 0] for segment in bars[0].get_segments()])
        assert ends == pytest.approx(np.array([(g.low, g.high) for g in found.groups]))
        rows = np.asarray(points.get_ydata())
        assert np.array_equal(np.rint(rows), np.arange(4))
    assert len({c.lines[0].get_marker() for c in ax.containers}) == 3
    assert len({c.lines[0].get_color() for c in ax.containers}) == 3
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["gcfcp", "split CP", "FedCP"]


def test_a_group_without_records_keeps_its_row() -> None:
    found = samples.small().audit
    empty = replace(found.groups[1], coverage=None, low=0.0, high=1.0, mean_size=None)
    some = replace(found, groups=(found.groups[0], empty, *found.groups[2:]), alpha=None)
    ax = plots.coverage_by_group(some, new_axes())
    assert len(names_on(ax)) == 4
    assert len(ax.containers[0].lines[0].get_xdata()) == 3
    assert ax.get_legend() is None
    assert len(names_on(plots.set_sizes(some, new_axes()))) == 4


def test_sizes_and_unbounded_sizes() -> None:
    found = samples.small().audit
    endless = replace(found.groups[0], mean_size=math.inf)
    ax = plots.set_sizes(replace(found, groups=(endless, *found.groups[1:])), new_axes())
    assert ax.lines[0].get_xdata() == pytest.approx([g.mean_size for g in found.groups[1:]])
    assert [t.get_text() for t in ax.texts] == ["∞"]
    assert ax.get_xlim()[0] == 0


@pytest.mark.slow
def test_thresholds_with_the_heaviest_atoms_on_top() -> None:
    sample = samples.large()
    records = sorted(sample.predictor.records or (), key=lambda r: -r.weight)
    shown = len(records) - 1
    ax = plots.thresholds_by_atom(sample.predictor, new_axes(), limit=shown)
    assert len(names_on(ax)) == shown
    assert "1 lighter atom" in ax.get_xlabel()
    finite = [r.threshold for r in records[:shown] if math.isfinite(r.threshold)]
    assert ax.lines[0].get_xdata() == pytest.approx(finite)
    assert len(ax.texts) == shown - len(finite) >= 1
    everything = plots.thresholds_by_atom(sample.calibration, new_axes(), limit=None)
    assert len(names_on(everything)) == len(records)
    assert everything.get_xlabel() == "threshold"


def test_thresholds_of_one_constant_and_of_none_that_is_finite() -> None:
    rng = np.random.default_rng(0)
    clients = [(rng.random(50), np.ones((50, 1), bool))]
    result = gcfcp.methods.fedcp(clients, 0.1)
    ax = plots.thresholds_by_atom(result, new_axes())
    assert names_on(ax) == ["every row"]
    assert ax.lines[0].get_xdata()[0] == result.thresholds([[True]])[0]
    with pytest.warns(gcfcp.GCFCPWarning):
        few = gcfcp.methods.fedcp([(rng.random(5), np.ones((5, 1), bool))], 0.1)
    ax = plots.thresholds_by_atom(few, new_axes())
    drawn(ax)
    assert [t.get_text() for t in ax.texts] == ["∞"]


@pytest.mark.parametrize("shift", [0.0, 5.0, -5.0])
def test_lines_of_thresholds_begin_at_zero(shift: float) -> None:
    rng = np.random.default_rng(0)
    groups = gcfcp.Groups(["everyone in a country of many people", "rare"])
    membership = np.column_stack([np.ones(200), np.arange(200) < 60])
    summary = gcfcp.summarize(rng.random(200) + shift, membership, groups=groups, client="a")
    ax = plots.thresholds_by_atom(gcfcp.calibrate([summary], 0.1), new_axes())
    (lines,) = ax.collections
    assert {line[0][0] for line in lines.get_segments()} == {0.0}
    low, high = ax.get_xlim()
    assert low <= 0 <= high
    assert low < high
    assert names_on(ax)[1].endswith("people & rare")


def test_clients_by_weight_and_by_records() -> None:
    predictor = samples.small().predictor
    ax = plots.clients(predictor, new_axes())
    weights, records = (line.get_xdata() for line in ax.lines[:2])
    n = np.array([c["n"] for c in predictor.provenance["clients"]])
    assert records == pytest.approx(n / n.sum())
    assert weights == pytest.approx(records)  # The mixture is in proportion to the records.
    assert names_on(ax)[0] == "clinic-00 (1,200)"
    with pytest.raises(gcfcp.GCFCPError, match="no clients are recorded"):
        plots.clients(gcfcp.Predictor("thr", predictor.table))


def test_clients_of_a_method_have_no_weights() -> None:
    rng = np.random.default_rng(0)
    result = gcfcp.methods.fedcp({"a": (rng.random(20), np.ones((20, 1), bool))}, 0.1)
    ax = plots.clients(result, new_axes())
    assert names_on(ax) == ["a (20)"]


def test_the_band_is_sorted_and_marks_what_it_missed() -> None:
    x, prediction = [3.0, 1.0, 2.0], [30.0, 10.0, 20.0]
    intervals = [[29, 31], [9, 11], [-math.inf, math.inf]]
    ax = plots.interval_band(x, prediction, intervals, y=[30.5, 12.0, 99.0], ax=new_axes())
    by_label = {line.get_label(): line for line in ax.lines}
    assert list(by_label["prediction"].get_xdata()) == [1, 2, 3]
    assert list(by_label["prediction"].get_ydata()) == [10, 20, 30]
    assert list(by_label["missed"].get_ydata()) == [12]
    assert list(by_label["covered"].get_ydata()) == [99, 30.5]
    assert {"interval", "unbounded"} <= {c.get_label() for c in ax.collections}
    with pytest.raises(gcfcp.GCFCPError, match=r"intervals shape \(2,\)"):
        plots.interval_band([1, 2], [1, 2], [1, 2])


def test_curves_against_the_promise() -> None:
    alphas = np.array([0.05, 0.1, 0.2])
    curves = {"ours": 1 - alphas + 0.01, "other": 1 - alphas - 0.1}
    ax = plots.coverage_curve(
        alphas, curves, {"ours": np.column_stack([1 - alphas, 1 - alphas + 0.02])}, new_axes()
    )
    promised, ours, other = (line.get_ydata() for line in ax.lines)
    assert promised == pytest.approx(1 - alphas)
    assert ours == pytest.approx(curves["ours"])
    assert other == pytest.approx(curves["other"])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["promised", "ours", "other"]
    assert len(ax.collections) == 1
    assert len(plots.coverage_curve(alphas, 1 - alphas, np.ones((3, 2)), new_axes()).lines) == 2
    with pytest.raises(gcfcp.GCFCPError, match="give one value for each"):
        plots.coverage_curve(alphas, {"ours": [1, 2]})


@pytest.mark.parametrize("given", [None, (6, 4)])
def test_labels_of_30_groups_do_not_collide(given: tuple[float, float] | None) -> None:
    ax = plots.coverage_by_group(
        reports(samples.large()), None if given is None else new_axes(*given)
    )
    drawn(ax)
    boxes = sorted(
        (label.get_window_extent() for label in ax.get_yticklabels()), key=lambda box: box.y0
    )
    assert len(boxes) == 30
    assert all(low.y1 <= high.y0 + 0.5 for low, high in itertools.pairwise(boxes))
    assert all(box.x0 >= -0.5 for box in boxes)  # No label is cut off either.


def test_names_are_text_and_not_formulas() -> None:
    groups = gcfcp.Groups(["$\\frac{1}{$", "a $5 b $6", "_hidden", "x" * 150])
    membership = np.eye(4, dtype=bool)[np.arange(80) % 4]
    summary = gcfcp.summarize(
        np.arange(80.0), membership, groups=groups, client="$x^$", score="residual"
    )
    calibration = gcfcp.calibrate([summary], alpha=0.2)
    for ax in (
        plots.thresholds_by_atom(calibration, new_axes()),
        plots.clients(calibration, new_axes()),
    ):
        drawn(ax)  # A broken formula would raise an error here.
    found = gcfcp.merge_audits(
        [gcfcp.audit(np.ones(80), membership, groups=groups, client="c")], alpha=0.2
    )
    ax = plots.coverage_by_group({"_first": found, "$\\bad{$": found}, new_axes())
    drawn(ax)
    assert len(ax.get_legend().get_texts()) == 2


def test_colours_are_told_apart_without_red_and_green() -> None:
    """Okabe and Ito's colours differ for readers without red cones and without green cones."""
    # From linear RGB to what dichromats see, after Viénot, Brettel and Mollon (1999).
    views = {
        "all": np.eye(3),
        "protanope": np.array(
            [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]
        ),
        "deuteranope": np.array(
            [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]
        ),
    }
    rgb = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in plots.COLOURS]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    for name, view in views.items():
        seen = np.clip(linear @ view.T, 0, 1) ** (1 / 2.4)
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)
        assert apart[np.triu_indices(len(seen), 1)].min() > 0.12, name
    assert len(set(plots.MARKERS)) == len(plots.MARKERS) == len(plots.COLOURS)


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(gcfcp.GCFCPError, match="no report to draw"):
        plots.coverage_by_group({})


def test_importing_plots_loads_no_matplotlib() -> None:
    code = "import sys, gcfcp.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_coverage_that_counts_leave_open_is_drawn_as_a_range():
    groups = gcfcp.Groups({"all": "TRUE"})
    audit = gcfcp.audit(
        np.arange(200) > 3, np.ones((200, 1)), groups=groups, client="c", min_count=10
    )
    found = gcfcp.merge_audits([audit], alpha=0.1)
    ax = plots.coverage_by_group(found)
    lines = [segment for c in ax.collections for segment in c.get_segments()]
    ends = {(round(float(a[0]), 3), round(float(b[0]), 3)) for a, b in lines}
    assert (0.955, 1.0) in ends
    assert (round(found.groups[0].low, 3), round(found.groups[0].high, 3)) in ends
