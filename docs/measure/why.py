"""Measure what one threshold for all does to small groups, beside GC-FCP (why.svg, why.md)."""

from __future__ import annotations

from functools import partial

import numpy as np
from page import BLUE, ORANGE, figure, save_figure, write_table
from visits import GROUPS, Visits

import gcfcp

ALPHA, SPLITS = 0.1, 200
METHODS = {
    "one threshold for all (FedCP)": gcfcp.methods.fedcp,
    "GC-FCP": partial(gcfcp.methods.gcfcp, correction="sharp"),  # As `calibrate` does it.
}


def measure(splits: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each method the coverage and the mean width, each (splits, G)."""
    data, rng = Visits(), np.random.default_rng(2026)
    found: dict[str, list[tuple[list[float], list[float]]]] = {name: [] for name in METHODS}
    for _ in range(splits):
        split = data.split(rng)
        for name, method in METHODS.items():
            result = method(split.clients, ALPHA, "proportional", groups=GROUPS)
            t = result.thresholds(split.membership)
            inside = [split.membership[:, g] for g in range(len(GROUPS))]
            covered = [float((split.scores[m] <= t[m]).mean()) for m in inside]
            found[name].append((covered, [float(2 * t[m].mean()) for m in inside]))
    return {
        name: (np.array([c for c, _ in rows]), np.array([w for _, w in rows]))
        for name, rows in found.items()
    }


def main(splits: int = SPLITS) -> None:
    """Write docs/figures/why.svg and docs/measured/why.md."""
    found = measure(splits)
    share = Visits().membership.mean(axis=0)
    order = np.argsort(-share)
    drawn, ax = figure(5.4, 3.6)
    ax.axvline(1 - ALPHA, color="#767676", linestyle=(0, (4, 3)), linewidth=1.2)
    looks = zip(METHODS, ((ORANGE, "D", 0.14), (BLUE, "o", -0.14)), strict=True)
    for name, (colour, marker, lift) in looks:
        coverage = found[name][0]
        error = coverage.std(axis=0, ddof=1) / np.sqrt(len(coverage))
        ax.errorbar(
            coverage.mean(axis=0)[order],
            np.arange(len(order))[::-1] + lift,
            xerr=2 * error[order],
            fmt=marker,
            color=colour,
            label=name,
            markersize=6,
        )
    ax.set_yticks(
        np.arange(len(order))[::-1],
        [f"{GROUPS.names[g]} ({100 * share[g]:.3g} %)" for g in order],
    )
    ax.set_xlim(0.65, 1.0)
    ax.set_xlabel("coverage (promised: 0.9)")
    drawn.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=10.5)
    (one, ours) = (found[name] for name in METHODS)
    poor = GROUPS.names.index("poor health")
    save_figure(
        "why",
        drawn,
        f"Coverage by group. With one threshold for all, people in poor health are covered "
        f"{100 * one[0][:, poor].mean():.0f} percent of the time instead of 90; with GC-FCP "
        f"{100 * ours[0][:, poor].mean():.0f} percent.",
    )
    rows = [
        [
            GROUPS.names[g],
            f"{100 * share[g]:.3g} %",
            f"{one[0][:, g].mean():.3f}",
            f"{ours[0][:, g].mean():.3f}",
            f"{one[1][:, g].mean():.1f}",
            f"{ours[1][:, g].mean():.1f}",
        ]
        for g in order
    ]
    worst = max(float(c.std(axis=0, ddof=1).max() / np.sqrt(splits)) for c in (one[0], ours[0]))
    write_table(
        "why",
        [
            "group",
            "share of the records",
            "covered, one threshold",
            "covered, GC-FCP",
            "width, one threshold",
            "width, GC-FCP",
        ],
        rows,
        f"""Every number is a mean over {splits} random splits into 4,000 records to train, 4,000 to
        calibrate at three clients, and 12,190 to test, with alpha = {ALPHA}. The standard error of
        a coverage is at most {worst:.4f}. Widths are in visits a year.""",
    )
