"""The same records at more and more sites: what the paper's correction costs, and what ours does.

The number of calibration records is fixed, and they lie at K = 1, 5, 20, 100 or 400 sites. The
paper charges one record for each site, so that its sets grow with K, until every threshold is
infinite. The sharp correction charges a few records, however many sites there are.

| data        | records                           | sites                     | groups             |
|-------------|-----------------------------------|---------------------------|--------------------|
| CIFAR-10    | 5,000 of 10,000 images, THR       | skewed labels             | all, three windows |
|             |                                   |                           | of labels, unsure  |
| Communities | 800 of 1,994 communities, ridge   | states, or parts of them, | all, three         |
|             | regression, absolute residual     | or several together       | demographic groups |

Sites have unequal sizes, between half and one and a half of the mean. With 400 sites a site of
Communities has 1 to 3 records.

Coverage and size are those of the mixture: with the mixture "uniform" test records are weighted so
that every site counts the same. For this a record of a label (of a state) is taken to have the same
distribution at every site, which is how the records are dealt. An interval of Communities is cut at
0 and 1, between which all outcomes lie; so an infinite threshold gives the length 1.

CIFAR-10 comes from --probs, or from ../shared/data where that is present, and is simulated
otherwise. Communities come from ../shared/data, and are left out where they are missing.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gcfcp
from experiments import cifar10, evaluate, figures, sites, tables
from experiments.montecarlo import Arrays, Settings
from experiments.sites import CIFAR10, COMMUNITIES
from gcfcp import codec, scores

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NAME = "many-sites"
TITLE = "The same records at more and more sites"
FROM_PAPER = False  # There are no numbers of the paper to compare with.
RUNS = 40
SETTINGS: dict[str, Any] = {
    "sites": [1, 5, 20, 100, 400],
    "alpha": 0.1,
    "delta": 250,
    "mixtures": ["proportional", "uniform"],
    "labels": 10,
    "n_cal": 5000,
    "n_test": 5000,
    "windows": [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]],
    "unsure": 0.9,  # A record is unsure if no label has a probability above this.
    "concentration": 0.3,  # Of the Dirichlet distribution of each site's labels.
    "communities_training": 800,
    "communities_cal": 800,
    "communities_groups": ["racepctblack", "racePctHisp", "PctPopUnderPov"],
    "communities_quantile": 0.7,
    "ridge": 10.0,
    "simulation": cifar10.SETTINGS["simulation"],
}

METHODS = {
    "paper_simultaneous": ("the paper's correction, simultaneous", "paper", "simultaneous"),
    "paper_max": ("the paper's correction, max", "paper", "max"),
    "sharp_simultaneous": ("sharp, simultaneous", "sharp", "simultaneous"),
    "sharp_max": ("sharp, max", "sharp", "max"),
}
_SHOWN = ("paper_simultaneous", "sharp_simultaneous", "sharp_max")  # In the figures.
_ALLOWED = 0.03  # How far the size with the most sites may be above that with one site.


def prepare(probs: Any, settings: Settings, seed: int) -> tuple[dict[str, Any], str, bool]:
    """The arrays for the runs, where they come from in words, and whether they are simulated."""
    return sites.prepare(probs, settings, seed, SETTINGS["communities_groups"])


# --- the records ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """The records of one run, before they are dealt to sites."""

    data: str
    groups: list[str]
    scores: Floats  # (n,): Of the calibration records.
    membership: Bools  # (n, G)
    strata: Ints  # (n,): The label or state, on which the site of a record depends.
    deal: Callable[[int], Ints]  # The site of each calibration record, for a number of sites.
    test: evaluate.Test  # Its weights are those of the mixture in proportion to the records.
    test_strata: Ints


def samples(arrays: Arrays, settings: Settings, run: int) -> Iterator[Sample]:
    """The records of this run, one sample for each of the data that are there."""
    yield _cifar10(arrays, settings, np.random.default_rng([settings["seed"], run, 1]))
    if "outcome" in arrays:
        yield _crime(arrays, settings, np.random.default_rng([settings["seed"], run, 2]))


def _cifar10(arrays: Arrays, settings: Settings, rng: np.random.Generator) -> Sample:
    labels = np.asarray(arrays["labels"])
    order = rng.permutation(len(labels))
    n_cal = min(settings["n_cal"], len(labels) // 2)
    cal, test = order[:n_cal], order[n_cal : n_cal + settings["n_test"]]
    P, Q = np.asarray(arrays["probs"][cal]), np.asarray(arrays["probs"][test])
    y, z = labels[cal], labels[test]
    matrix = scores.THR().all(Q)
    groups = ["all", *(f"{w[0]} to {w[-1]}" for w in settings["windows"]), "unsure"]

    def deal(K: int) -> Ints:
        own = rng.dirichlet(np.full(settings["labels"], settings["concentration"]), K)
        return sites.dealt(own[:, y], sites.sizes(K, n_cal, rng), rng)

    return Sample(
        CIFAR10,
        groups,
        scores.THR().of(P, y),
        _membership(P, settings),
        y,
        deal,
        evaluate.Test(
            matrix[np.arange(len(z)), z],
            evaluate.label_sizes(matrix),
            _membership(Q, settings),
            groups,
            np.ones(len(z)),
        ),
        z,
    )


def _membership(P: Floats, settings: Settings) -> Bools:
    """The groups of CIFAR-10: all, the windows of predicted labels, and unsure."""
    predicted = P.argmax(axis=1)
    return np.column_stack(
        [np.ones(len(P), dtype=bool)]
        + [np.isin(predicted, w) for w in settings["windows"]]
        + [P.max(axis=1) < settings["unsure"]]
    )


def _crime(arrays: Arrays, settings: Settings, rng: np.random.Generator) -> Sample:
    X, y, state = arrays["features"], arrays["outcome"], np.asarray(arrays["state"])
    order = rng.permutation(len(y))
    n_fit, n_cal = settings["communities_training"], settings["communities_cal"]
    fit, cal, test = np.split(order, [n_fit, n_fit + n_cal])
    predict = sites.ridge(X[fit], y[fit], settings["ridge"])
    cuts = np.quantile(arrays["groups"][fit], settings["communities_quantile"], axis=0)
    member = np.column_stack([np.ones(len(y), dtype=bool), arrays["groups"] > cuts])
    centre = predict(X[test])
    groups = ["all", *(f"high {name}" for name in settings["communities_groups"])]

    def deal(K: int) -> Ints:
        return sites.by_state(state[cal], state.max() + 1, K, rng)

    return Sample(
        COMMUNITIES,
        groups,
        np.abs(y[cal] - predict(X[cal])),
        member[cal],
        state[cal],
        deal,
        evaluate.Test(
            np.abs(y[test] - centre),
            sites.lengths(centre),
            member[test],
            groups,
            np.ones(len(test)),
        ),
        state[test],
    )


# --- one run -------------------------------------------------------------------------------------


def one(arrays: Arrays, settings: Settings, run: int) -> dict[str, Any]:
    """One run: records and costs for all data, numbers of sites, mixtures and corrections."""
    records: list[Any] = []
    costs: list[Any] = []
    for sample in samples(arrays, settings, run):
        groups = gcfcp.Groups(sample.groups)
        for K in settings["sites"]:
            site = sample.deal(K)
            own = [site == k for k in range(K)]
            summaries = [
                gcfcp.summarize(
                    sample.scores[rows],
                    sample.membership[rows],
                    groups=groups,
                    client=f"site-{k:03d}",
                    delta=settings["delta"],
                )
                for k, rows in enumerate(own)
            ]
            sent = sum(len(s.to_bytes()) for s in summaries)
            held = [(None, None, sample.strata[rows]) for rows in own]
            for mixture in settings["mixtures"]:
                weights = (
                    evaluate.mixture_weights(held, sample.test_strata)
                    if mixture == "uniform"
                    else sample.test.weights
                )
                for method, (_, correction, rule) in METHODS.items():
                    facts = {
                        "run": run,
                        "data": sample.data,
                        "clients": K,
                        "mixture": mixture,
                        "method": method,
                    }
                    started = time.process_time()
                    with warnings.catch_warnings():
                        # The records count infinite thresholds.
                        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
                        made = gcfcp.calibrate(
                            summaries, settings["alpha"], mixture, rule=rule, correction=correction
                        )
                    spent = time.process_time() - started
                    thresholds = made.thresholds(sample.test.membership)
                    records += sites.judged(thresholds, sample.test, weights, facts)
                    costs.append(
                        {
                            **facts,
                            "bytes_sent": sent,
                            "seconds": spent,
                            "charged_records": made.correction.records,
                            "status": made.guarantee[0].certified_status,
                        }
                    )
    return {"records": records, "costs": costs}


# --- the report ----------------------------------------------------------------------------------


def report(
    records: tables.Records, costs: tables.Records, context: Any, out: Path
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The text of many-sites.md and the verdicts; figures and JSON are written to `out`."""
    settings = context.settings
    summary = tables.Summary(records)
    every = list(dict.fromkeys(r["data"] for r in records))
    rows, verdicts = _rows(summary, costs, every, settings), []
    text = [
        f"Mean ± standard error over {context.runs} splits; the target is "
        f"{1 - settings['alpha']:g}. infinite: the share of test rows without a finite threshold. "
        "charged: what the test point weighs, in records. The last columns are the coverage of "
        "each group.\n",
    ]
    for data in every:
        file = f"many-sites-{data.lower().replace('-', '')}"
        what = "labels in a set" if data == CIFAR10 else "length of an interval"
        text += [f"\n## {data}\n", f"![{data}]({file}.png)\n"]
        for mixture in settings["mixtures"]:
            own = [r for r in rows if (r["data"], r["mixture"]) == (data, mixture)]
            text += [f"\n### {data}, mixture {mixture}\n", _table(own, what)]
            verdicts += _verdicts(own)
        context.save(_figure(summary, data, what, context), out / file)
    text += [
        "\n## Does the number of sites matter?\n",
        "The mean size with the most sites against that with one site, on the same splits.\n",
        tables.markdown(["data, mixture, method", "number", "verdict"], verdicts),
    ]
    page = {"command": context.header, "runs": context.runs, "rows": rows}
    path = out / "many-sites.json"
    codec.write(path, (json.dumps(page, indent=1, ensure_ascii=False) + "\n").encode())
    context.files.append(path)
    return text, verdicts


def _rows(
    summary: tables.Summary, costs: tables.Records, every: list[str], settings: Settings
) -> list[dict[str, Any]]:
    """One row for each of the data, mixture, method and number of sites."""
    rows = []
    for data in every:
        for mixture in settings["mixtures"]:
            for method, (label, _, _) in METHODS.items():
                for K in settings["sites"]:
                    where = {"data": data, "mixture": mixture, "method": method, "clients": K}
                    groups = list(dict.fromkeys(r["group"] for r in summary.rows(**where)))
                    coverage = {g: summary.mean("coverage", group=g, **where) for g in groups}
                    size = summary.mean("size", group="all", **where)
                    alone = summary.rows(group="all", **where | {"clients": settings["sites"][0]})
                    ratio = tables.mean(
                        r["size"] / first["size"]
                        for r, first in zip(summary.rows(group="all", **where), alone, strict=True)
                    )
                    charged = [
                        c["charged_records"]
                        for c in costs
                        if all(c[k] == v for k, v in where.items())
                    ]
                    rows.append(
                        {
                            **where,
                            "label": label,
                            "coverage": {g: m.value for g, m in coverage.items()},
                            "coverage_error": {g: m.error for g, m in coverage.items()},
                            "size": size.value,
                            "size_error": size.error,
                            "size_against_one_site": ratio.value,
                            "size_against_one_site_error": ratio.error,
                            "infinite": summary.mean("infinite", group="all", **where).value,
                            "charged_records": float(np.mean(charged)),
                        }
                    )
    return rows


def _table(rows: list[dict[str, Any]], what: str) -> str:
    """The rows of one mixture as a Markdown table."""
    groups = list(rows[0]["coverage"])
    return tables.markdown(
        ["method", "sites", what, "infinite", "charged", *groups],
        [
            [
                r["label"],
                r["clients"],
                tables.Mean(r["size"], r["size_error"]).show(3),
                f"{r['infinite']:.0%}",
                f"{r['charged_records']:.3g}",
                *(tables.Mean(r["coverage"][g], r["coverage_error"][g]).show(3) for g in groups),
            ]
            for r in rows
        ],
    )


def short_table(rows: list[dict[str, Any]], data: str) -> str:
    """The table of docs/many-sites.md: mixture in proportion to the records."""
    own = {
        (r["method"], r["clients"]): r
        for r in rows
        if (r["data"], r["mixture"]) == (data, "proportional")
    }
    digits = 2 if data == CIFAR10 else 3
    lines = []
    for K in sorted({K for _, K in own}):
        cells: list[Any] = [K]
        for method in _SHOWN:
            r = own[method, K]
            cells.append(f"{r['size']:.{digits}f}")
            if method in _SHOWN[:2]:
                cells += [f"{r['infinite']:.0%}", f"{min(r['coverage'].values()):.3f}"]
        lines.append(cells)
    header = ["sites", "paper's: size", "infinite", "lowest coverage"]
    header += ["sharp: size", "infinite", "lowest coverage", "sharp, max: size"]
    return tables.markdown(header, lines)


def _verdicts(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Whether the size with the most sites is near that with one site, by method."""
    most = max(r["clients"] for r in rows)
    found = []
    for r in rows:
        if r["clients"] == most:
            more = r["size_against_one_site"] - 1
            said = "within" if abs(more) <= _ALLOWED else "NOT within"
            found.append(
                (
                    f"{r['data']}, {r['mixture']}, {r['label']}",
                    f"size at {most} sites",
                    f"{more:+.1%} ± {r['size_against_one_site_error']:.1%}: {said} {_ALLOWED:.0%}",
                )
            )
    return found


def _figure(summary: tables.Summary, data: str, what: str, context: Any) -> Any:
    """Mean size and infinite thresholds over the number of sites, mixture in proportion."""
    series = {}
    for method in _SHOWN:
        where = {"data": data, "mixture": "proportional", "method": method, "group": "all"}
        series[METHODS[method][0]] = {
            quantity: [
                summary.mean(quantity, clients=K, **where) for K in context.settings["sites"]
            ]
            for quantity in ("size", "infinite")
        }
    n = context.settings["n_cal" if data == CIFAR10 else "communities_cal"]
    return figures.over_sites(
        context.settings["sites"],
        series,
        f"mean {what}",
        f"number of sites ({n:,} records of {data} in all)",
        context.label,
    )
