"""The paper's figures, in the colours and markers of `gcfcp.plots`.

Error bars are three standard errors (SE) long in each direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.tables import Mean
from gcfcp.plots import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
_LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), "-", (0, (3, 1)))
_INK = "0.25"
_COLOURS = (*COLOURS, "#000000", "#8C6D31")
_MARKERS = (*MARKERS, "X", "<")


def figure(
    width: float, height: float, columns: int = 1, **options: Any
) -> tuple[Figure, NDArray[Any]]:
    """An empty figure with its axes side by side, (1, columns)."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(1, columns, squeeze=False, **options)


def save(made: Figure, path: Path, command: str) -> list[Path]:
    """Write the figure as PNG and SVG, with the command inside. The bytes are always the same."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "gcfcp", "svg.fonttype": "path"}):
        made.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Description": command})
        made.savefig(
            path.with_suffix(".png"),
            dpi=150,
            metadata={"Software": None, "Description": command},
        )
    return [path.with_suffix(".png"), path.with_suffix(".svg")]


def _bare(ax: Axes) -> None:
    """Remove the upper and right spine, and draw a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.5", alpha=0.18, linewidth=0.8)
    ax.set_axisbelow(True)


def _look(i: int) -> dict[str, Any]:
    """The colour and the marker of series i."""
    colour = _COLOURS[i % len(_COLOURS)]
    return {
        "color": colour,
        "marker": _MARKERS[i % len(_MARKERS)],
        "markersize": 5.5,
        "markerfacecolor": colour if i % 2 == 0 else "white",
        "markeredgewidth": 1.3,
    }


def _bars(means: Sequence[Mean]) -> Floats:
    """The lengths of error bars, three standard errors; 0 where there is none."""
    bars: Floats = np.nan_to_num(3 * np.array([m.error for m in means]))
    return bars


def _legend(made: Figure, ax: Axes, columns: int) -> None:
    """Put the legend above the figure."""
    handles, labels = ax.get_legend_handles_labels()
    made.legend(handles, labels, loc="outside upper left", ncols=columns, frameon=False, fontsize=9)


def by_group(
    series: Mapping[str, Sequence[Mean]],
    groups: Sequence[str],
    line: float,
    label: str,
    line_label: str,
    note: str = "",
) -> Figure:
    """One value for each method in each group, with the groups side by side."""
    made, axes = figure(1.6 + 1.6 * len(groups), 4.3)
    ax = axes[0, 0]
    ax.axhline(line, color=_INK, linestyle=(0, (4, 3)), linewidth=1.2, label=line_label, zorder=1)
    at = np.arange(len(groups))
    for i, (name, means) in enumerate(series.items()):
        offset = 0.62 * (i / max(len(series) - 1, 1) - 0.5)
        ax.errorbar(
            at + offset,
            [m.value for m in means],
            yerr=_bars(means),
            label=name,
            linestyle="none",
            elinewidth=1.4,
            capsize=2.5,
            **_look(i),
        )
    for x in at[1:]:
        ax.axvline(x - 0.5, color="0.85", linewidth=0.8, zorder=0)
    ax.set_xticks(at, groups)
    ax.set_xlim(-0.5, len(groups) - 0.5)
    ax.set_xlabel(f"group{note and '   '}{note}")
    ax.set_ylabel(f"{label} (bars: 3 standard errors)")
    _bare(ax)
    ax.grid(axis="x", visible=False)
    _legend(made, ax, 2)
    return made


def by_group_rows(
    series: Mapping[str, Sequence[Mean]],
    groups: Sequence[str],
    label: str,
    line: float | None = None,
    note: str = "",
    log: bool = False,
) -> Figure:
    """The same as `by_group` with the groups below each other, for many groups with long names."""
    made, axes = figure(8.2, 1.6 + len(groups) * (0.16 + 0.075 * len(series)))
    ax = axes[0, 0]
    if line is not None:
        ax.axvline(line, color=_INK, linestyle=(0, (4, 3)), linewidth=1.2, label=f"target {line:g}")
    at = np.arange(len(groups))
    for i, (name, means) in enumerate(series.items()):
        offset = 0.72 * (i / max(len(series) - 1, 1) - 0.5)
        ax.errorbar(
            [m.value for m in means],
            at + offset,
            xerr=_bars(means),
            label=name,
            linestyle="none",
            elinewidth=1.2,
            **_look(i),
        )
    for y in at[1::2]:
        ax.axhspan(y - 0.5, y + 0.5, color="0.5", alpha=0.08, linewidth=0, zorder=0)
    ax.set_yticks(at, groups)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(groups) - 0.5, -0.5)
    if log:
        ax.set_xscale("log")
    ax.set_xlabel(f"{label} (bars: 3 standard errors){note and '   '}{note}")
    _bare(ax)
    ax.grid(axis="y", visible=False)
    _legend(made, ax, 2)
    return made


def bands(
    x: Floats,
    centre: Floats,
    thresholds: Mapping[str, Floats],
    x_test: Floats,
    y_test: Floats,
    intervals: Sequence[Sequence[float]],
) -> Figure:
    """Prediction intervals over x, with the test points, and the groups as bars at the bottom."""
    made, axes = figure(7.4, 4.6)
    ax = axes[0, 0]
    ax.plot(x_test, y_test, ".", color="0.55", markersize=4, label="test points", zorder=1)
    ax.plot(x, centre, color="black", linewidth=1.6, label="linear regression", zorder=3)
    ends = []
    for i, (name, t) in enumerate(thresholds.items()):
        look = {"color": _COLOURS[i], "linestyle": _LINES[i], "linewidth": 2.2 - 0.25 * i}
        ax.plot(x, centre + t, label=name, zorder=4 + i, **look)
        ax.plot(x, centre - t, zorder=4 + i, **look)
        ends += [centre + t, centre - t]
        if i == 0:
            ax.fill_between(x, centre - t, centre + t, color=_COLOURS[i], alpha=0.1, linewidth=0)
    low = min(float(np.min(e)) for e in ends) - 1.6
    high = max(float(np.max(e)) for e in ends) + 1.0
    outside = int(np.count_nonzero((y_test < low) | (y_test > high)))
    for g, (a, b) in enumerate(intervals):
        y = low + 0.25 + 0.28 * (g % 2)
        ax.plot([a + 0.02, b - 0.02], [y, y], color="0.35", linewidth=3, solid_capstyle="butt")
        ax.text((a + b) / 2, y + 0.06, f"G{g + 1}", ha="center", fontsize=8, color="0.25")
    ax.set_ylim(low, high)
    ax.set_xlim(min(a for a, _ in intervals), max(b for _, b in intervals))
    ax.set_xlabel("x" + (f"   ({outside} test points lie outside the picture)" if outside else ""))
    ax.set_ylabel("y")
    _bare(ax)
    _legend(made, ax, 3)
    return made


def curves(
    alphas: Sequence[float],
    series: Mapping[str, Mapping[str, Sequence[Mean]]],
    groups: Sequence[str],
    label: str,
    diagonal: bool,
    note: str = "",
) -> Figure:
    """Curves over the coverage level 1 - alpha, with one panel for each group."""
    made, axes = figure(1.2 + 2.5 * len(groups), 3.5, len(groups), sharey=True)
    level = 1 - np.asarray(alphas)
    for ax, group in zip(axes[0], groups, strict=True):
        if diagonal:
            ax.plot(level, level, color=_INK, linestyle=(0, (4, 3)), linewidth=1.1, label="target")
        for i, (name, own) in enumerate(series.items()):
            means = own[group]
            ax.errorbar(
                level,
                [m.value for m in means],
                yerr=_bars(means),
                label=name,
                linestyle=_LINES[i],
                linewidth=1.5,
                **_look(i),
            )
        ax.set_title(group, fontsize=10)
        ax.set_xlabel("coverage level 1-α")
        _bare(ax)
    axes[0, 0].set_ylabel(label)
    if note:
        made.supxlabel(note, fontsize=9, color="0.3")
    _legend(made, axes[0, 0], 3)
    return made


def over_delta(
    deltas: Sequence[float],
    series: Mapping[str, Sequence[float]],
    target: float,
    label: str,
    note: str = "",
    xlabel: str = "compression δ",
) -> Figure:
    """One line for each series over delta, on a logarithmic axis.

    The series come in pairs, for each score the paper's way and ours, which share a colour.
    """
    made, axes = figure(7.4, 4.2)
    ax = axes[0, 0]
    ax.axhline(target, color=_INK, linestyle=(0, (4, 3)), linewidth=1.2, label=f"target {target:g}")
    for i, (name, values) in enumerate(series.items()):
        # Each score has two lines of one colour: the paper's way and ours.
        look = _look(i // 2)
        look["markerfacecolor"] = look["color"] if i % 2 else "white"
        ax.plot(deltas, values, label=name, linestyle="-" if i % 2 else (0, (5, 2)), **look)
    ax.set_xscale("log")
    ax.set_xticks(deltas, [f"{d:g}" for d in deltas])
    ax.minorticks_off()
    ax.set_xlabel(f"{xlabel}{note and '   '}{note}")
    ax.set_ylabel(label)
    _bare(ax)
    _legend(made, ax, 3)
    return made


def over_sites(
    sites: Sequence[int],
    series: Mapping[str, Mapping[str, Sequence[Mean]]],
    label: str,
    xlabel: str,
    note: str = "",
) -> Figure:
    """Mean size, and the share of rows with an infinite threshold, over the number of sites."""
    made, axes = figure(8.6, 3.9, 2)
    for ax, what in zip(axes[0], ("size", "infinite"), strict=True):
        for i, (name, own) in enumerate(series.items()):
            # The paper's is the second colour, as in the other figures; ours are blue and green.
            look = _look((1, 0, 2)[i % 3])
            look["markerfacecolor"] = look["color"]
            ax.errorbar(
                sites,
                [m.value for m in own[what]],
                yerr=_bars(own[what]),
                label=name,
                linestyle=((0, (5, 2)), "-", (0, (1, 1.5)))[i % 3],
                linewidth=1.8,
                **look,
            )
            if what == "size":
                # Ours lie close together: one number is put below its line, the other above.
                ax.annotate(
                    f"{own[what][-1].value:.3g}",
                    (sites[-1], own[what][-1].value),
                    ((-18, -3), (0, -15), (0, 8))[i % 3],
                    textcoords="offset points",
                    ha="center",
                    fontsize=9,
                    color=look["color"],
                )
        ax.set_xscale("log")
        ax.set_xticks(sites, [str(K) for K in sites])
        ax.minorticks_off()
        _bare(ax)
    axes[0, 0].set_ylabel(label)
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 1].set_ylabel("rows with an infinite threshold")
    axes[0, 1].set_ylim(-0.04, 1.04)
    axes[0, 1].set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    made.supxlabel(f"{xlabel}{note and '   '}{note}", fontsize=10)
    _legend(made, axes[0, 0], 3)
    return made


def over_min_count(
    counts: Sequence[int],
    panels: Mapping[str, Mapping[str, Sequence[Mean]]],
    label: str,
    xlabel: str,
    note: str = "",
) -> Figure:
    """Mean size over min_count on a logarithmic axis, one line for each way to summarise."""
    made, axes = figure(8.6, 3.9, len(panels), sharey=True)
    at = np.arange(len(counts))
    for ax, (title, series) in zip(axes[0], panels.items(), strict=True):
        for i, (name, means) in enumerate(series.items()):
            # Ours is blue and full; what it is compared with is dashed or dotted.
            look = _look((1, 2, 0)[i % 3])
            look["markerfacecolor"] = look["color"]
            ax.errorbar(
                at,
                [m.value for m in means],
                yerr=_bars(means),
                label=name,
                linestyle=((0, (5, 2)), (0, (1, 1.5)), "-")[i % 3],
                linewidth=1.8,
                **look,
            )
        ax.set_title(title, fontsize=10)
        ax.set_xticks(at, [str(m) for m in counts])
        ax.set_yscale("log")
        _bare(ax)
    shown = [m.value for series in panels.values() for means in series.values() for m in means]
    low, high = min(shown) / 1.15, max(shown) * 1.15
    axes[0, 0].set_ylim(low, high)
    ticks = [
        t for t in (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1, 1.2, 1.5, 2, 3, 5, 10) if low <= t <= high
    ]
    axes[0, 0].set_yticks(ticks, [f"{t:g}" for t in ticks])
    for ax in axes[0]:
        ax.minorticks_off()
    axes[0, 0].set_ylabel(label)
    made.supxlabel(f"{xlabel}{note and '   '}{note}", fontsize=10)
    _legend(made, axes[0, 0], 3)
    return made
