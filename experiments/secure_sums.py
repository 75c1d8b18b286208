"""What does min_count cost if it applies to the sum of the sites, as a secure sum allows?

    python -m experiments.secure_sums -o experiments/results/secure-sums

The records, the sites, the shape of other records and the splits are those of `shape_and_level`.
All summaries are by group with the shape of other records. Two ways are compared:

| way      | who hides small cells           | what is calibrated                               |
|----------|---------------------------------|--------------------------------------------------|
| `sites`  | every site, before it sends     | the digests of all sites (delta = 250)           |
| `sum`    | the server, in the sum of all   | the sum of the sites' counts on a public grid    |

The grid is uniform, from the smallest residual that is possible to the largest. The sum is that of
`gcfcp.add`: a secure sum gives the same summary, byte for byte (tests/test_secure_rounds.py).

Cost: about 6 s of processor time for each of the 30 splits.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gcfcp
from experiments import shape_and_level, sites, tables
from experiments.montecarlo import Settings
from experiments.shape_and_level import Sample
from experiments.sites import CIFAR10
from gcfcp import codec
from gcfcp.summary import with_min_count

NAME = "secure-sums"
MIN_COUNTS = (1, 10)
CELLS = (64, 256, 1024)
TARGET = 0.10  # At min_count 10 the sets may be this much larger than at 1.
_SUMS = tuple(f"sum {cells}" for cells in CELLS)
WAYS = {"sites": "every site hides", "sum": "the sum hides"}


def one(arrays: Any, settings: Settings, run: int) -> Iterator[dict[str, Any]]:
    """The records of one run: coverage and size by group, for all ways."""
    for sample in shape_and_level.samples(arrays, settings, run):
        for K in settings["sites"]:
            site, other = sample.deal(K)
            parts = shape_and_level._parts(sample.scores, sample.membership, site)
            shape = shape_and_level._shapes(sample, site, other, 1, settings)["other"]
            for m in MIN_COUNTS:
                facts = {"run": run, "data": sample.data, "clients": K, "min_count": m}
                digests = shape_and_level._summaries(
                    parts, sample, m, settings, by="group", shape=shape
                )
                where = facts | {"way": "sites", "cells": 0, "method": "sites"}
                yield from _judged(digests, sample, settings, where)
                for cells in CELLS:
                    total = _sum(parts, sample, shape, cells, settings, m)
                    where = facts | {"way": "sum", "cells": cells, "method": f"sum {cells}"}
                    yield from _judged([total], sample, settings, where)


def _sum(
    parts: Any, sample: Sample, shape: Any, cells: int, settings: Settings, min_count: int
) -> gcfcp.ClientSummary:
    """The sum of the sites' counts on a public grid, with a min_count."""
    counted = shape_and_level._summaries(
        parts, sample, 1, settings, by="group", shape=shape, grid=_grid(shape, cells)
    )
    total = gcfcp.add(counted)
    return total if min_count == 1 else with_min_count(total, min_count)


def _grid(shape: Any, cells: int) -> gcfcp.Grid:
    """A uniform grid for residuals of scores from 0 to 1, from the coefficients of the shape."""
    above = sum(c for c in shape.coefficients if c > 0)
    below = sum(c for c in shape.coefficients if c < 0)
    return gcfcp.Grid.uniform(-above, 1 - below, cells)


def _judged(
    summaries: Sequence[gcfcp.ClientSummary],
    sample: Sample,
    settings: Settings,
    facts: dict[str, Any],
) -> list[dict[str, Any]]:
    """Calibrate, and look at the test records."""
    aggregates = {s.client: len(s.members) for s in summaries if s.is_aggregate}
    with warnings.catch_warnings():
        # The records count infinite thresholds.
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        made = gcfcp.calibrate(summaries, settings["alpha"], rule="max", aggregates=aggregates)
    thresholds = made.thresholds(sample.test.membership)
    facts = facts | {"status": made.guarantee[0].certified_status}
    return sites.judged(thresholds, sample.test, sample.test.weights, facts)


def rows_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each of the data, numbers of sites, ways and min_counts."""
    summary = tables.Summary(records)
    rows = []
    for data, K, method in dict.fromkeys((r["data"], r["clients"], r["method"]) for r in records):
        for m in MIN_COUNTS:
            where = {"data": data, "clients": K, "method": method, "min_count": m}
            own = summary.rows(**where)
            groups = dict.fromkeys(r["group"] for r in own)
            size = summary.mean("size", group="all", **where)
            ratio = shape_and_level._ratio(summary, where, where | {"min_count": 1})
            plain = {"method": "sites", "min_count": 1}
            beside = shape_and_level._ratio(summary, where, where | plain)
            rows.append(
                where
                | {
                    "way": own[0]["way"],
                    "cells": own[0]["cells"],
                    "size": size.value,
                    "size_error": size.error,
                    "size_against_first": ratio.value,
                    "size_against_first_error": ratio.error,
                    "size_against_digests": beside.value,
                    "lowest": min(summary.mean("coverage", group=g, **where).value for g in groups),
                    "infinite": summary.mean("infinite", group="all", **where).value,
                    "status": ", ".join(sorted({r["status"] for r in own})),
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    return tables.markdown(
        [
            *("data", "sites", "way", "cells", "min_count", "size", "against min_count 1"),
            *("against digests", "infinite", "lowest coverage", "promise"),
        ],
        [
            [
                r["data"],
                r["clients"],
                WAYS[r["way"]],
                r["cells"] or "-",
                r["min_count"],
                tables.Mean(r["size"], r["size_error"]).show(3),
                f"{r['size_against_first'] - 1:+.1%}",
                f"{r['size_against_digests'] - 1:+.1%}",
                f"{r['infinite']:.0%}",
                f"{r['lowest']:.3f}",
                r["status"],
            ]
            for r in rows
        ],
    )


def verdicts(rows: list[dict[str, Any]]) -> str:
    """Whether the target is met, as a Markdown table."""
    last = [r for r in rows if r["way"] == "sum" and r["min_count"] == MIN_COUNTS[-1]]
    return tables.markdown(
        ["data, sites, cells", f"larger than at min_count 1, at most {TARGET:.0%}"],
        [
            [
                f"{r['data']}, {r['clients']}, {r['cells']}",
                f"{'yes' if r['size_against_first'] <= 1 + TARGET else '**no**'}, "
                f"{r['size_against_first'] - 1:+.1%}",
            ]
            for r in last
        ],
    )


def short_table(rows: list[dict[str, Any]]) -> str:
    """The table of docs/secure.md: how much larger sets are with min_count 10 than with 1."""
    lines = []
    for data, K in dict.fromkeys((r["data"], r["clients"]) for r in rows):
        own = {r["method"]: r for r in rows if (r["data"], r["clients"]) == (data, K)}
        last = {r["method"]: r for r in own.values() if r["min_count"] == MIN_COUNTS[-1]}
        lines.append(
            [f"{data}, {K} sites"]
            + [f"{last[m]['size_against_first'] - 1:+.1%}" for m in ("sites", *_SUMS)]
            + [f"{last[m]['size_against_digests'] - 1:+.1%}" for m in _SUMS[1:]]
        )
    return tables.markdown(
        [
            "",
            "every site hides",
            *(f"the sum hides, {cells:,} cells" for cells in CELLS),
            *(f"the same beside digests, {cells:,} cells" for cells in CELLS[1:]),
        ],
        lines,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, and write secure-sums.md and secure-sums.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", default=NAME, help="directory for the tables")
    parser.add_argument("--runs", type=int, default=shape_and_level.RUNS)
    options = parser.parse_args(arguments)
    settings = shape_and_level.SETTINGS | {"seed": 0}
    arrays, source, simulated = shape_and_level.prepare(None, settings, 0)
    arrays = {key: np.asarray(value) for key, value in arrays.items()}
    records: list[dict[str, Any]] = []
    for run in range(options.runs):
        records += one(arrays, settings, run)
        print(f"{run + 1} of {options.runs}", flush=True)
    rows = rows_of(records)
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    simulation = " SIMULATED." if simulated else ""
    told = (
        f"# What min_count costs in the sum\n\n`python -m experiments.secure_sums -o "
        f"experiments/results/{NAME}`\n\nData: {source}.{simulation} Mean ± standard error over "
        f"{options.runs} splits; all by group, with the shape of other records. Size is the mean "
        f"number of labels in a set ({CIFAR10}), or the mean length of an interval. Against "
        "min_count 1: the same way on the same splits. Against digests: beside the digests of the "
        "sites without a min_count.\n\n"
    )
    page = f"{told}{verdicts(rows)}\n\n{table(rows)}\n"
    codec.write(folder / f"{NAME}.md", page.encode())
    text = json.dumps({"runs": options.runs, "source": source, "rows": rows}, indent=1)
    codec.write(folder / f"{NAME}.json", (text + "\n").encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
