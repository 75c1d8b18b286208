"""Show what experiments.privacy has measured: privacy.svg, and the tables of docs/privacy.md.

Nothing is measured here: the numbers are those of experiments/results/privacy/privacy.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from page import BLUE, DOCS, GREEN, INK, ORANGE, PINK, figure, save_figure, write_table

RESULTS = DOCS.parent / "experiments" / "results" / "privacy" / "privacy.json"
COLOURS = {
    "every score": INK,
    "min_count 10": ORANGE,
    "sum alone": BLUE,
    "sum and epsilon 1, two add noise": GREEN,
    "epsilon 1 at each site": PINK,
}


def main() -> None:
    """Write the figure and the tables of docs/privacy.md."""
    found = json.loads(RESULTS.read_text())
    draw(found["compared"])
    command = "`python -m experiments.privacy -o experiments/results/privacy`"
    runs = {part: found[part][0]["runs"] for part in ("grid", "noise", "together")}
    write_table(
        "grid",
        ["grid", "cells", "lowest coverage of a group", "mean length", "bytes a site", "status"],
        grid_rows(found["grid"]),
        f"Mean of {runs['grid']} runs; coverage is computed exactly. Measured by {command}.",
    )
    epsilons = sorted({r["epsilon"] for r in found["noise"] if r["epsilon"] is not None})
    write_table(
        "noise",
        ["sites", "records a site", "length without noise", *(f"epsilon {e:g}" for e in epsilons)],
        noise_rows(found["noise"], epsilons),
        f"Mean of {runs['noise']} runs. An infinite interval is counted with the length 16, which "
        f"is all that an outcome can be. Measured by {command}.",
    )
    write_table(
        "together",
        ["sites that add noise", "lowest coverage of a group", "mean length"],
        (
            [str(r["noisy sites"]), f"{r['lowest']:.3f}", f"{r['size']:.2f}"]
            for r in found["together"]
        ),
        f"Mean of {runs['together']} runs. Measured by {command}.",
    )
    write_private(found["federations"], found["uncharged"], command)
    for name in ("grid", "noise", "together"):
        page = DOCS / "measured" / f"{name}.md"
        page.write_text(page.read_text().replace(f"docs/measure {name}`", "docs/measure privacy`"))


def grid_rows(rows: list[dict[str, Any]]) -> Iterable[list[str]]:
    """One line for each kind of grid and number of cells, after that of digests."""
    for r in sorted(rows, key=lambda r: (r["cells"] > 0, r["kind"], r["cells"])):
        yield [
            r["kind"],
            f"{r['cells']:,}" if r["cells"] else "",
            f"{r['lowest']:.3f}",
            f"{r['size']:.3f}",
            f"{r['bytes']:,.0f}",
            r["status"],
        ]


def noise_rows(rows: list[dict[str, Any]], epsilons: list[float]) -> Iterable[list[str]]:
    """One line for each number of sites and records."""
    for K, n in sorted({(r["sites"], r["records"]) for r in rows}):
        own = [r for r in rows if (r["sites"], r["records"]) == (K, n)]
        plain = {r["cells"]: r["size"] for r in own if r["epsilon"] is None}
        # Where all grids give infinite intervals alone, the first is as good as the others.
        best = [
            min((r for r in own if r["epsilon"] == e), key=lambda r: r["size"]) for e in epsilons
        ]
        ratios = (f"{r['size'] / plain[r['cells']]:.2f}" for r in best)
        yield [str(K), f"{n:,}", f"{min(plain.values()):.2f}", *ratios]


def write_private(r: dict[str, Any], without: dict[str, Any], command: str) -> None:
    """Write docs/measured/private.md: the search for a group that is covered too little."""
    text = (
        f"In {r['federations']:,} random federations with noise ({r['calibrations']:,} "
        f"calibrations), coverage was on average {r['mean excess']:.3f} above $1-\\alpha$. The "
        f"{r['again']} federations with the lowest coverage were calibrated 100 times more with "
        f"fresh records and noise: of their {r['compared']} groups, the largest mean deficit is "
        f"{r['largest z']:.2f} standard errors ({r['its deficit']:+.4f}); chance alone stays below "
        f"{r['largest z by chance']:.2f} with probability 0.99. Measured by {command}.\n\n"
        "This search has little power: with a server that charges nothing for the noise its "
        f"largest deficit is {without['largest z']:.2f} standard errors, because in random "
        f"federations coverage is then still {without['mean excess']:.3f} above $1-\\alpha$ on "
        "average. So the charge is also tested where it is needed: `tests/test_noise_exact.py` "
        "enumerates the law of the noise for records that were searched for. There the coverage is "
        "below $1-\\alpha$ without the charge, and not below it with the charge."
    )
    head = "<!-- made by `python docs/measure privacy`; do not edit -->\n\n"
    (DOCS / "measured" / "private.md").write_text(f"{head}{text}\n")


def draw(rows: list[dict[str, Any]]) -> None:
    """The mean length with each kind of protection, for each number of records a site."""
    drawn, axes = figure(7, 3.6)
    for way, colour in COLOURS.items():
        own = [r for r in rows if r["way"] == way]
        x, y = [r["records"] for r in own], [r["size"] for r in own]
        axes.plot(x, y, "o-", color=colour, label=way)
    axes.set_xscale("log")
    axes.set_xticks(sorted({r["records"] for r in rows}))
    axes.set_xticklabels([f"{n:,}" for n in sorted({r["records"] for r in rows})])
    axes.minorticks_off()
    axes.set_xlabel("records a site (10 sites)")
    axes.set_ylabel("mean length of an interval")
    axes.legend(frameon=False)
    save_figure("privacy", drawn, "The mean length of an interval with each kind of protection")
