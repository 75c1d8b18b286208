"""Pictures of a calibration and its audit, on matplotlib axes.

Every function draws on the axes `ax`, or makes a figure of a fitting size if none are given, and
returns the axes. Groups, atoms and clients stand on the vertical axis, so that long names never
collide. The colours are those of Okabe and Ito (2008), which colour-blind readers can tell apart.
Every series also has a marker of its own, for print in black and white.

`reports` is one `AuditReport`, or a mapping {name: AuditReport}. The first entry of a mapping is
drawn boldest. matplotlib is imported when something is drawn, and pyplot only if no axes are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gcfcp.calibration import Calibration
from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs
from gcfcp.prediction import Predictor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import Formatter

    from gcfcp.audit import AuditReport

    Reports = AuditReport | Mapping[str, AuditReport]

# These are the colours of Okabe and Ito without black and yellow, which are hard to see on a dark
# and on a white background. There is one marker for each colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "D", "s", "^", "v", "P")
_GREY = "#767676"


def coverage_by_group(reports: Reports, ax: Axes | None = None) -> Axes:
    """Draw the coverage of every group with its interval, and the promise 1 - alpha as a line.

    A group whose coverage is not known keeps its row. If the counts leave it open, a thick line
    shows between which shares it lies, and a thin one its interval. Otherwise the row is empty.
    """
    series = _named(reports)
    groups = _groups_of(series)
    ax = _axes(ax, len(groups), len(series))
    alpha = next(iter(series.values())).alpha
    if alpha is not None:
        ax.axvline(1 - alpha, color=_GREY, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1)
    handles: dict[str, Any] = {}
    for i, (name, report) in enumerate(series.items()):
        found = {g.group: g for g in report.groups}
        rows = [(y, found[g]) for y, g in enumerate(groups) if g in found and _known(found[g])]
        for place, g in enumerate(groups):
            if g in found and not _known(found[g]) and found[g].lowest is not None:
                _draw_range(
                    ax, place + _offset(i, len(series)), found[g], COLOURS[i % len(COLOURS)]
                )
        y = np.array([row for row, _ in rows]) + _offset(i, len(series))
        coverage = np.array([g.coverage for _, g in rows])
        ends = np.array([(g.low, g.high) for _, g in rows]).reshape(-1, 2)
        handles[name] = ax.errorbar(
            coverage,
            y,
            xerr=np.abs(ends.T - coverage),
            **_look(i),
            linestyle="none",
            elinewidth=1.8 if i == 0 else 1.2,
            zorder=3 if i == 0 else 2,
        )
    _rows(ax, groups)
    ax.xaxis.set_major_formatter(_percent())
    line = "" if alpha is None else f" (line: the promised {100 * (1 - alpha):.6g}%)"
    ax.set_xlabel("coverage" + line)
    if len(series) > 1:
        _legend(ax, handles)
    return ax


def set_sizes(reports: Reports, ax: Axes | None = None) -> Axes:
    """Draw the mean size of the prediction sets, or the mean width of the intervals, by group.

    An infinite mean is written as a sign at the right edge.
    """
    series = _named(reports)
    groups = _groups_of(series)
    ax = _axes(ax, len(groups), len(series))
    handles: dict[str, Any] = {}
    for i, (name, report) in enumerate(series.items()):
        sizes = {g.group: g.mean_size for g in report.groups}
        rows = [(y, sizes.get(g)) for y, g in enumerate(groups)]
        known = [(y, size) for y, size in rows if size is not None and math.isfinite(size)]
        (handles[name],) = ax.plot(
            [size for _, size in known],
            [y + _offset(i, len(series)) for y, _ in known],
            **_look(i),
            linestyle="none",
            zorder=3 if i == 0 else 2,
        )
        for y, size in rows:
            if size is not None and size == math.inf:
                _note_infinite(ax, y + _offset(i, len(series)), COLOURS[i % len(COLOURS)])
    _rows(ax, groups)
    if not ax.lines:
        ax.set_xlim(0, 1)
    ax.set_xlim(left=min(0.0, ax.get_xlim()[0]))
    ax.set_xlabel("mean set size")
    if len(series) > 1:
        _legend(ax, handles)
    return ax


def thresholds_by_atom(source: Any, ax: Axes | None = None, *, limit: int | None = 60) -> Axes:
    """Draw the threshold of every atom; +inf is written as a sign at the right edge.

    The atoms with the largest weight come first, on top.

    source: A `Calibration`, a `Predictor`, or what one of `gcfcp.methods` returns.
    limit: The most atoms that are drawn. How many were left out is written below the plot.
    None draws all atoms.
    """
    predictor = _predictor(source)
    atoms = _atoms(predictor)
    kept = atoms if limit is None else atoms[:limit]
    ax = _axes(ax, len(kept), 1)
    finite = [(y, t) for y, (_, t, _) in enumerate(kept) if math.isfinite(t)]
    ax.plot([t for _, t in finite], [y for y, _ in finite], **_look(0), linestyle="none", zorder=3)
    if finite:
        # A line begins at 0, so that its length can be compared with that of another.
        left, right = ax.get_xlim()
        ax.hlines([y for y, _ in finite], 0, [t for _, t in finite], color=_GREY, lw=0.6)
        lowest, highest = min(t for _, t in finite), max(t for _, t in finite)
        ax.set_xlim(left if lowest < 0 else 0, right if highest >= 0 else 0)
    for y, (_, threshold, _) in enumerate(kept):
        if threshold == math.inf:
            _note_infinite(ax, y, COLOURS[1])
    _rows(ax, [name for name, _, _ in kept])
    left_out = len(atoms) - len(kept)
    ax.set_xlabel(f"threshold (and {left_out:,} lighter atoms)" if left_out else "threshold")
    return ax


def clients(source: Any, ax: Axes | None = None) -> Axes:
    """Draw every client's weight in the mixture beside its share of the records.

    If the two lie apart, a record of that client counts for more or for less than a record of the
    other clients.

    source: A `Calibration`, or a `Predictor` that was made from one.
    """
    listed = _predictor(source).provenance.get("clients") or []
    if not listed:
        raise GCFCPError("no clients are recorded here: give the result of calibrate")
    ax = _axes(ax, len(listed), 1)
    rows = range(len(listed))
    total = sum(c["n"] for c in listed)
    records = [c["n"] / total for c in listed]
    handles: dict[str, Any] = {}
    if all("share" in c for c in listed):
        weights = [float(c["share"]) for c in listed]
        ax.hlines(rows, weights, records, color=_GREY, linewidth=1, zorder=1)
        (handles["weight in the mixture"],) = ax.plot(weights, rows, **_look(0), linestyle="none")
    (handles["share of the records"],) = ax.plot(records, rows, **_look(1), linestyle="none")
    _rows(ax, [f"{c['client']} ({c['n']:,})" for c in listed])
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(_percent())
    ax.set_xlabel("share")
    _legend(ax, handles)
    return ax


def interval_band(
    x: ArrayLike,
    prediction: ArrayLike,
    intervals: ArrayLike,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw prediction intervals over x as a band, with the predictions as a line.

    Intervals without an end reach the edge of the picture and are shaded in a lighter colour.

    intervals: The lower and the upper ends, of shape (n, 2).
    y: The true outcomes, if they are known. Those outside of their interval are marked.
    """
    order = np.argsort(np.asarray(x, dtype=np.float64), kind="stable")
    xs = np.asarray(x, dtype=np.float64)[order]
    centre = np.asarray(prediction, dtype=np.float64)[order]
    ends = np.asarray(intervals, dtype=np.float64)
    if ends.shape != (len(xs), 2) or centre.shape != xs.shape:
        raise GCFCPError(
            f"x has {len(xs)} values, but prediction has shape {centre.shape} and intervals shape "
            f"{ends.shape}: give one prediction for each x, and intervals of shape (n, 2)"
        )
    low, high = ends[order].T
    if ax is None:
        ax = _new_figure(7.0, 4.0)
    bounded = np.isfinite(low) & np.isfinite(high)
    ax.fill_between(
        xs, low, high, where=bounded, color=COLOURS[0], alpha=0.22, lw=0, label="interval"
    )
    ax.plot(xs, centre, color=COLOURS[0], linewidth=1.8, label="prediction")
    if y is not None:
        _mark_outcomes(ax, xs, np.asarray(y, dtype=np.float64)[order], low, high)
    _shade_unbounded(ax, xs, low, high)
    _bare(ax)
    ax.legend(frameon=False, fontsize="small", loc="best")
    return ax


def _mark_outcomes(ax: Axes, xs: Any, truth: Any, low: Any, high: Any) -> None:
    """Outcomes inside of their interval as dots, and those outside of it as crosses."""
    inside = (low <= truth) & (truth <= high)
    ax.plot(xs[inside], truth[inside], ".", color=_GREY, markersize=3.5, label="covered")
    ax.plot(
        xs[~inside],
        truth[~inside],
        "x",
        color=COLOURS[1],
        markersize=6,
        markeredgewidth=1.6,
        label="missed",
    )


def _shade_unbounded(ax: Axes, xs: Any, low: Any, high: Any) -> None:
    """Shade the intervals that have no end up to the edge of what is drawn so far."""
    unbounded = np.isinf(low) | np.isinf(high)
    if unbounded.any():
        bottom, top = ax.get_ylim()
        ax.fill_between(
            xs,
            np.maximum(low, bottom),
            np.minimum(high, top),
            where=unbounded,
            color=COLOURS[4],
            alpha=0.18,
            lw=0,
            label="unbounded",
        )
        ax.set_ylim(bottom, top)


def coverage_curve(
    alphas: ArrayLike,
    coverage: ArrayLike | Mapping[str, ArrayLike],
    intervals: ArrayLike | Mapping[str, ArrayLike] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the coverage over alpha, beside the promise 1 - alpha.

    coverage: One value for each alpha, or a mapping {name: values} for several series.
    intervals: The lower and the upper ends of each series, of shape (m, 2), drawn as a band.
    """
    curves = coverage if isinstance(coverage, Mapping) else {"coverage": coverage}
    if intervals is None:
        bands: Mapping[str, ArrayLike] = {}
    else:
        bands = intervals if isinstance(intervals, Mapping) else {next(iter(curves)): intervals}
    at = np.asarray(alphas, dtype=np.float64)
    if ax is None:
        ax = _new_figure(6.0, 4.2)
    handles: dict[str, Any] = {}
    (handles["promised"],) = ax.plot(at, 1 - at, color=_GREY, linestyle=(0, (4, 3)), linewidth=1.2)
    for i, (name, curve) in enumerate(curves.items()):
        values = np.asarray(curve, dtype=np.float64)
        if values.shape != at.shape:
            raise GCFCPError(
                f"{name} has values of shape {values.shape} for alphas of shape {at.shape}: give "
                "one value for each alpha"
            )
        (handles[name],) = ax.plot(at, values, **_look(i), linewidth=1.4, zorder=4 if i == 0 else 3)
        if name in bands:
            low, high = np.asarray(bands[name], dtype=np.float64).T
            ax.fill_between(at, low, high, color=COLOURS[i % len(COLOURS)], alpha=0.18, lw=0)
    ax.xaxis.set_major_formatter(_percent())
    ax.yaxis.set_major_formatter(_percent())
    ax.set_xlabel("alpha")
    ax.set_ylabel("coverage")
    _bare(ax)
    ax.grid(axis="both", color="0.5", alpha=0.18, linewidth=0.8)
    _legend(ax, handles, above=False)
    return ax


# --- What is drawn -------------------------------------------------------------------------------


def _named(reports: Reports) -> Mapping[str, AuditReport]:
    """The reports by name; a report without a name is called "gcfcp"."""
    if isinstance(reports, Mapping):
        if not reports:
            raise GCFCPError("there is no report to draw: give at least one")
        return reports
    return {"gcfcp": reports}


def _groups_of(series: Mapping[str, AuditReport]) -> list[str]:
    """All groups, in the order in which the reports name them."""
    return list(dict.fromkeys(g.group for report in series.values() for g in report.groups))


def _draw_range(ax: Axes, y: float, group: Any, colour: str) -> None:
    """A coverage that the counts leave open: its range, and its interval."""
    ax.hlines(y, group.low, group.high, color=colour, linewidth=1.2, zorder=2)
    ax.hlines(y, group.lowest, group.highest, color=colour, linewidth=6, alpha=0.6, zorder=2)


def _known(group: Any) -> bool:
    """Whether the coverage of a group is known."""
    return group.coverage is not None and not math.isnan(group.coverage)


def _predictor(source: Any) -> Predictor:
    """The source as a predictor, which holds thresholds and provenance in one form."""
    return source if isinstance(source, Predictor) else Predictor(_score_of(source), source)


def _score_of(source: Any) -> str:
    """The name of the score of a calibration; other sources do not know it."""
    if isinstance(source, Calibration):
        return source.summaries[0].score
    return "unnamed"


def _atoms(predictor: Predictor) -> list[tuple[str, float, float]]:
    """The name, the threshold and the weight of each atom, those of the largest weight first.

    If weights are not recorded, the atoms are in the order of the table, with a weight of 0.
    """
    if predictor.atoms is not None:
        rows = [(_atom_name(r.groups), r.threshold, r.weight or 0.0) for r in predictor.atoms]
        return sorted(rows, key=lambda row: -row[2])
    table = predictor.threshold_table
    if table.rule == "constant":
        return [("every row", float(table.thresholds_by_atom[0]), 1.0)]
    return [
        (_atom_name(table.groups.names_of(row)), float(t), 0.0)
        for row, t in zip(table.membership, table.thresholds_by_atom, strict=True)
    ]


def _atom_name(groups: Sequence[str]) -> str:
    """A name that fits on an axis: the first three groups, and how many more there are."""
    name = " & ".join(groups[:3]) or "no group"
    return f"{name} + {len(groups) - 3} more" if len(groups) > 3 else name


# --- How it looks --------------------------------------------------------------------------------


def _axes(ax: Axes | None, rows: int, series: int) -> Axes:
    """The given axes, or new ones with enough room for every row."""
    if ax is not None:
        return ax
    return _new_figure(7.0, 1.2 + rows * (0.18 + 0.09 * series))


def _new_figure(width: float, height: float) -> Axes:
    """The axes of a new pyplot figure; width and height are in inches."""
    needs("matplotlib", "plots", "cli")
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def _look(i: int) -> dict[str, Any]:
    """The colour and the marker of series number i."""
    colour = COLOURS[i % len(COLOURS)]
    return {
        "color": colour,
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 6.5 if i == 0 else 5.5,
        # Only the first series is filled: it is the one that the picture is about.
        "markerfacecolor": colour if i == 0 else "none",
        "markeredgewidth": 1.4,
    }


def _offset(i: int, series: int) -> float:
    """How far below the middle of its row series number i is drawn; the first is on top."""
    return 0.0 if series == 1 else 0.5 * (i / (series - 1) - 0.5)


def _rows(ax: Axes, names: Sequence[str]) -> None:
    """Write names on the vertical axis, the first on top, and shade every second row.

    Names are literal text, whatever they contain, and their size fits the height of a row. A long
    one is cut in its middle, because atoms often begin with the same group.
    """
    short = [name if len(name) <= 40 else f"{name[:20]}…{name[-19:]}" for name in names]
    ax.set_yticks(range(len(names)), short, parse_math=False)
    room = ax.get_window_extent().height / ax.figure.get_dpi() * 72 / max(len(names), 1)
    size = min(10.0, 0.82 * room)
    ax.tick_params(axis="y", length=0, labelsize=max(size, 4.0))
    ax.set_ylim(len(names) - 0.4, -0.6)
    for y in range(1, len(names), 2):
        ax.axhspan(y - 0.5, y + 0.5, color="0.5", alpha=0.07, linewidth=0, zorder=0)
    ax.grid(axis="x", color="0.5", alpha=0.18, linewidth=0.8)
    _bare(ax)


def _bare(ax: Axes) -> None:
    """Take away the frame except for its lower edge, and draw the grid behind everything else."""
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_axisbelow(True)


def _note_infinite(ax: Axes, y: float, colour: str) -> None:
    """Write the sign for infinity at the right edge of a row."""
    ax.annotate(
        "∞",
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        color=colour,
        fontsize="large",
        fontweight="bold",
    )


def _percent() -> Formatter:
    """Tick labels as percentages."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{100 * value:.4g}%")


def _legend(ax: Axes, handles: Mapping[str, Any], above: bool = True) -> None:
    """Draw the legend above the plot, where it cannot cover a point, or in its emptiest corner.

    Names are literal text. Otherwise matplotlib would hide a name that begins with "_" and take a
    name with "$" for a formula.
    """
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    legend = ax.legend(
        list(handles.values()),
        list(handles),
        frameon=False,
        fontsize="small",
        ncols=min(4, len(handles)) if above else 1,
        **(place if above else {"loc": "best"}),
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
