"""Measure what delta costs: bytes, coverage, width, certified bound (delta.svg, delta.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from page import BLUE, GREEN, ORANGE, figure, save_figure, write_table
from visits import GROUPS, Visits

import gcfcp

ALPHA, SPLITS = 0.1, 60
DELTAS = (5, 10, 25, 50, 100, 250, 1000)
SHARP: dict[str, Any] = {"merge": "pool", "correction": "sharp"}  # The defaults of `calibrate`.
WAYS: dict[str, dict[str, Any]] = {
    "upper, pooled (default)": {"representative": "upper", **SHARP},
    "mean, pooled": {"representative": "mean", **SHARP},
    "mean, recompressed (paper)": {
        "representative": "mean",
        "merge": "recompress",
        "correction": "paper",
    },
}


def measure(splits: int) -> tuple[dict[tuple[str, int], np.ndarray], float]:
    """What each way and delta gave in each split, and how many bytes the raw scores have.

    The arrays are (splits, G + 3): the coverage of each of G groups, the mean width, the bytes that
    were sent, and the smallest certified coverage of a group. All groups are kept because the least
    of them can only be found after averaging over the splits.
    """
    data, rng = Visits(), np.random.default_rng(2026)
    found: dict[tuple[str, int], list[list[float]]] = {}
    raw = 0.0
    for _ in range(splits):
        split = data.split(rng)
        raw = sum(8 * len(scores) for scores, _ in split.clients.values())
        for name, way in WAYS.items():
            for delta in DELTAS:
                result = gcfcp.methods.gcfcp(
                    split.clients, ALPHA, "proportional", delta=delta, groups=GROUPS, **way
                )
                t = result.thresholds(split.membership)
                hit = split.scores <= t
                covered = [float(hit[m].mean()) for m in split.membership.T]
                promised = min(g.certified for g in result.calibration.guarantee)
                row = [*covered, float(2 * t.mean()), float(result.sent.bytes), promised]
                found.setdefault((name, delta), []).append(row)
    return {key: np.array(rows) for key, rows in found.items()}, raw


def main(splits: int = SPLITS) -> None:
    """Write docs/figures/delta.svg and docs/measured/delta.md."""
    found, raw = measure(splits)
    G = len(GROUPS)

    def least(key: tuple[str, int]) -> float:
        return float(found[key][:, :G].mean(axis=0).min())

    drawn, ax = figure(5.4, 3.4)
    ax.axhline(1 - ALPHA, color="#767676", linestyle=(0, (4, 3)), linewidth=1.2)
    for name, colour, marker in zip(WAYS, (BLUE, GREEN, ORANGE), "osD", strict=True):
        size = [found[name, d][:, G + 1].mean() / 1000 for d in DELTAS]
        ax.plot(size, [least((name, d)) for d in DELTAS], marker, ls="-", color=colour, label=name)
    ax.set_xscale("log")
    ax.set_xticks([3, 5, 10, 20, 30], ["3", "5", "10", "20", "30"], minor=False)
    ax.minorticks_off()
    ax.set_xlabel("kilobytes sent by all three clients (log scale)")
    ax.set_ylabel("least coverage of a group")
    drawn.legend(loc="outside upper left", ncols=1, frameon=False, fontsize=10.5)
    save_figure(
        "delta",
        drawn,
        "The least coverage over seven groups against the bytes sent, for three ways of "
        "compressing: upper representatives stay above the promise at every size and approach it "
        "from above; means are closer to it.",
    )
    rows = []
    for delta in DELTAS:
        upper, mean, paper = ((name, delta) for name in WAYS)
        rows.append(
            [
                f"{delta:,}",
                f"{found[upper][:, G + 1].mean():,.0f}",
                f"{least(upper):.3f}",
                f"{found[upper][:, G].mean():.2f}",
                f"{least(mean):.3f}",
                f"{found[mean][:, G].mean():.2f}",
                f"{least(paper):.3f}",
                f"{found[mean][:, G + 2].mean():.3f}",
                f"{1 - ALPHA - math.sin(math.pi / delta):.3f}",
            ]
        )
    write_table(
        "delta",
        [
            "delta",
            "bytes",
            "`upper`: least coverage",
            "width",
            "`mean`: least coverage",
            "width",
            "recompressed `mean`: least coverage",
            "`mean`: certified",
            "paper's bound",
        ],
        rows,
        f"""Every number is a mean over {splits} random splits of the same data, with alpha =
        {ALPHA}, seven overlapping groups and three clients. The bytes are those of all three
        summaries together; the scores themselves would have {raw:,.0f} bytes. Least coverage is
        that of the group with the lowest average coverage. Widths are in visits a year. Certified
        is what `calibration.guarantee` states for `mean`, in the group where it is lowest; for
        `upper` it is {1 - ALPHA:g} at every delta.""",
    )
