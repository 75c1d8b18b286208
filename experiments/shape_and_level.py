"""Shape and level: summaries by group beside summaries by atom, with and without small cells.

Groups overlap, so that a site has few records in each combination of groups (atom) and many in each
group. With a `min_count` a summary by atom loses most of them. A summary by group loses few, and
with a shape its sets are hardly larger than those of the simultaneous rule.

| data        | calibrate             | make the shape        | test   | groups                   |
|-------------|-----------------------|-----------------------|--------|--------------------------|
| CIFAR-10    | 5,000 of 10,000       | 2,500 other images at | 2,500  | all, two windows of      |
|             | images, THR           | the same sites        | images | labels, unsure, women,   |
|             |                       |                       |        | over 65                  |
| Communities | 1,000 of 1,994        | the 600 that train    | 394    | all, four demographic    |
|             | communities, absolute | the ridge regression, |        | groups                   |
|             | residual              | residuals of 5 folds  |        |                          |

Women and people over 65 are drawn at random for each image; the latter are more often unsure. Sites
are those of `many_sites`, the mixture is in proportion to the records.

The ways that are compared:

- By atom with the simultaneous rule, by group without a shape, and by group with a shape of other
  records. These were not subject to a `min_count`, as the modeller's own records are not.
- The same with a shape of other records that were summarised with the same `min_count`, and with a
  shape of fewer records, as many as a holdout takes.
- A holdout of 30 % of the calibration records, which make the shape with the same `min_count`. In
  one round the other records are summarised by atom and the server subtracts the shape. In two
  messages they are summarised by group, once the site knows the shape.
- By group with a shape, and a promise about this very predictor (`confidence`).

If all cells of the shape's records are too small to be described, there is no shape, and the scores
are calibrated without one.

An interval of Communities is cut at 0 and 1, so that an infinite threshold gives the length 1.
CIFAR-10 comes from --probs, or from ../shared/data where that is present, and is simulated
otherwise. Communities come from ../shared/data, and are left out where they are missing.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
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
from gcfcp.summary.client import held_out

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Parts = list[tuple[Floats, Bools]]  # The scores and memberships of each site.

NAME = "shape-and-level"
TITLE = "Shape and level: summaries by group beside summaries by atom"
FROM_PAPER = False  # There are no numbers of the paper to compare with.
RUNS = 30
SETTINGS: dict[str, Any] = {
    "sites": [5, 20],
    "min_counts": [1, 5, 10, 20],
    "alpha": 0.1,
    "delta": 250,
    "holdout": 0.3,
    "confidence": 0.95,
    "labels": 10,
    "n_cal": 5000,
    "n_other": 2500,
    "windows": [[0, 4], [3, 7]],  # The first and the last label of each.
    "unsure": 0.95,  # A record is unsure if no label has a probability above this.
    "women": 0.5,
    "over_65": [0.2, 0.4],  # Of the records that are not unsure, and of those that are.
    "concentration": 0.3,  # Of the Dirichlet distribution of each site's labels.
    "communities_training": 600,
    "communities_cal": 1000,
    "communities_groups": ["racepctblack", "racePctHisp", "agePct65up", "PctPopUnderPov"],
    "communities_quantile": 0.7,
    "folds": 5,
    "ridge": 10.0,
    "simulation": cifar10.SETTINGS["simulation"],
}


@dataclass(frozen=True)
class Way:
    """A way to calibrate.

    - `label`: The name in tables and figures.
    - `by`: What the cells of its summaries are, "atom" or "group".
    - `shape`: Where its shape comes from: a key of `_shapes`, "holdout", or None for no shape.
    - `confident`: Whether it promises something about this very predictor.
    """

    label: str
    by: str
    shape: str | None = None
    confident: bool = False


WAYS = {
    "atom": Way("by atom, simultaneous", "atom"),
    "group": Way("by group, no shape", "group"),
    "shape": Way("by group, shape of other records", "group", "other"),
    "fewer": Way("by group, shape of fewer other records", "group", "fewer"),
    "same": Way("by group, shape with the same min_count", "group", "same"),
    "one_round": Way("holdout, one round (by atom, max)", "atom", "holdout"),
    "two_messages": Way("holdout, two messages (by group)", "group", "holdout"),
    "confident": Way("by group, shape of other records, confident", "group", "other", True),
}
_SECTIONS = {
    "three ways": ("atom", "group", "shape"),
    "where the shape comes from": ("shape", "fewer", "same", "one_round", "two_messages"),
    "a promise about this very predictor": ("shape", "confident"),
}
_SHOWN = ("atom", "group", "shape")  # In the figures.
_NEAR = 0.03  # How far the size at min_count 1 may be above that of the simultaneous rule.
_LARGER = 0.10  # How far the size at the min_count of the target may be above that at 1.
_MIN_COUNT = 10  # The min_count of the target.


def prepare(probs: Any, settings: Settings, seed: int) -> tuple[dict[str, Any], str, bool]:
    """The arrays for the runs, where they come from in words, and whether they are simulated."""
    return sites.prepare(probs, settings, seed, SETTINGS["communities_groups"])


# --- the records ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """The records of one run, before they are dealt to sites."""

    data: str
    groups: gcfcp.Groups
    scores: Floats  # (n,): Of the calibration records.
    membership: Bools  # (n, G)
    other_scores: Floats  # (n',): Of the records that make the shape.
    other_membership: Bools  # (n', G)
    # The site of each calibration record and of each other record, for a number of sites.
    deal: Callable[[int], tuple[Ints, Ints]]
    test: evaluate.Test


def samples(arrays: Arrays, settings: Settings, run: int) -> Iterator[Sample]:
    """The records of this run, one sample for each of the data that are there."""
    yield _cifar10(arrays, settings, np.random.default_rng([settings["seed"], run, 1]))
    if "outcome" in arrays:
        yield _crime(arrays, settings, np.random.default_rng([settings["seed"], run, 2]))


def _cifar10(arrays: Arrays, settings: Settings, rng: np.random.Generator) -> Sample:
    order = rng.permutation(len(arrays["labels"]))
    P, y = np.asarray(arrays["probs"])[order], np.asarray(arrays["labels"])[order]
    n_cal = min(settings["n_cal"], len(y) // 2)
    n_other = min(settings["n_other"], len(y) // 4)
    cal, other, test = np.split(np.arange(len(y)), [n_cal, n_cal + n_other])
    sure = P.max(axis=1)
    groups = gcfcp.Groups(
        {"all": "TRUE"}
        | {f"{a} to {b}": f"predicted BETWEEN {a} AND {b}" for a, b in settings["windows"]}
        | {"unsure": f"sure < {settings['unsure']}", "women": "woman", "over 65": "over_65"}
    )
    plain, more = settings["over_65"]
    member = groups.membership(
        {
            "predicted": P.argmax(axis=1),
            "sure": sure,
            "woman": rng.random(len(y)) < settings["women"],
            "over_65": rng.random(len(y)) < np.where(sure < settings["unsure"], more, plain),
        }
    )
    matrix = scores.THR().all(P)
    own = matrix[np.arange(len(y)), y]

    def deal(K: int) -> tuple[Ints, Ints]:
        liking = rng.dirichlet(np.full(settings["labels"], settings["concentration"]), K)
        first, second = (
            sites.dealt(liking[:, y[rows]], sites.sizes(K, len(rows), rng), rng)
            for rows in (cal, other)
        )
        return first, second

    return Sample(
        CIFAR10,
        groups,
        own[cal],
        member[cal],
        own[other],
        member[other],
        deal,
        evaluate.Test(
            own[test],
            evaluate.label_sizes(matrix[test]),
            member[test],
            groups.names,
            np.ones(len(test)),
        ),
    )


def _crime(arrays: Arrays, settings: Settings, rng: np.random.Generator) -> Sample:
    X, y, state = arrays["features"], arrays["outcome"], np.asarray(arrays["state"])
    order = rng.permutation(len(y))
    n_fit, n_cal = settings["communities_training"], settings["communities_cal"]
    fit, cal, test = np.split(order, [n_fit, n_fit + n_cal])
    columns = settings["communities_groups"]
    cuts = np.quantile(arrays["groups"][fit], settings["communities_quantile"], axis=0)
    groups = gcfcp.Groups(
        {"all": "TRUE"}
        | {f"high {name}": f"{name} > {cut:.6g}" for name, cut in zip(columns, cuts, strict=True)}
    )
    member = groups.membership(dict(zip(columns, np.asarray(arrays["groups"]).T, strict=True)))
    predict = sites.ridge(X[fit], y[fit], settings["ridge"])
    centre = predict(X[test])

    def deal(K: int) -> tuple[Ints, Ints]:
        # The training records lie in one place.
        return sites.by_state(state[cal], state.max() + 1, K, rng), np.zeros(n_fit, dtype=np.int64)

    return Sample(
        COMMUNITIES,
        groups,
        np.abs(y[cal] - predict(X[cal])),
        member[cal],
        _folded(X[fit], y[fit], settings),
        member[fit],
        deal,
        evaluate.Test(
            np.abs(y[test] - centre),
            sites.lengths(centre),
            member[test],
            groups.names,
            np.ones(len(test)),
        ),
    )


def _folded(X: Floats, y: Floats, settings: Settings) -> Floats:
    """The absolute residual of each training record, by a ridge regression without its fold."""
    fold = np.arange(len(y)) % settings["folds"]
    found = np.empty(len(y))
    for f in range(settings["folds"]):
        predict = sites.ridge(X[fold != f], y[fold != f], settings["ridge"])
        found[fold == f] = np.abs(y[fold == f] - predict(X[fold == f]))
    return found


# --- one run -------------------------------------------------------------------------------------


def one(arrays: Arrays, settings: Settings, run: int) -> dict[str, Any]:
    """One run: records and costs for all data, numbers of sites, values of min_count and ways."""
    records: list[Any] = []
    costs: list[Any] = []
    for sample in samples(arrays, settings, run):
        for K in settings["sites"]:
            site, other = sample.deal(K)
            parts = _parts(sample.scores, sample.membership, site)
            for m in settings["min_counts"]:
                shapes = _shapes(sample, site, other, m, settings)
                for key, way in WAYS.items():
                    facts = {
                        "run": run,
                        "data": sample.data,
                        "clients": K,
                        "min_count": m,
                        "method": key,
                    }
                    with warnings.catch_warnings():
                        # The records count infinite thresholds.
                        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
                        made, cost = _calibrated(way, parts, shapes, sample, m, settings)
                    thresholds = made.thresholds(sample.test.membership)
                    records += sites.judged(thresholds, sample.test, sample.test.weights, facts)
                    costs.append(facts | cost | _told(made, sample))
    return {"records": records, "costs": costs}


def _parts(values: Floats, membership: Bools, site: Ints) -> Parts:
    """The scores and memberships of each site."""
    return [(values[site == k], membership[site == k]) for k in range(site.max() + 1)]


def _shapes(
    sample: Sample, site: Ints, other: Ints, min_count: int, settings: Settings
) -> dict[str, Any]:
    """The shapes that are made of other records; None if no cell could be described.

    - `other`: Of all other records, without a `min_count`.
    - `fewer`: Of as many as a holdout takes, without a `min_count`.
    - `same`: Of all other records, with this `min_count`.
    """
    few = int(settings["holdout"] * len(site))
    found = {}
    for key, n, m in (("other", None, 1), ("fewer", few, 1), ("same", None, min_count)):
        parts = _parts(sample.other_scores[:n], sample.other_membership[:n], other[:n])
        found[key] = _fitted(_summaries(parts, sample, m, settings), settings)
    return found


def _fitted(summaries: Sequence[Any], settings: Settings) -> Any:
    """The shape of these summaries, or None if none of them describes a cell."""
    if not any(len(s.values) for s in summaries):
        return None
    return gcfcp.fit_shape(summaries, settings["alpha"])


def _summaries(
    parts: Parts, sample: Sample, min_count: int, settings: Settings, **options: Any
) -> list[Any]:
    """The summary of each site."""
    return [
        gcfcp.summarize(
            values,
            membership,
            groups=sample.groups,
            client=f"site-{k:03d}",
            delta=settings["delta"],
            min_count=min_count,
            **options,
        )
        for k, (values, membership) in enumerate(parts)
    ]


def _pairs(
    parts: Parts, sample: Sample, min_count: int, settings: Settings, **options: Any
) -> list[tuple[Any, Any]]:
    """The shape part and the level part of each site.

    Each site draws with a seed of its own, so that it puts the same records aside again. If no cell
    of the shape part is large enough, the library refuses to make one. It is then None, and the
    records stay aside, so that the levels do not depend on it.
    """
    share = settings["holdout"]
    found: list[tuple[Any, Any]] = []
    for k, (values, membership) in enumerate(parts):
        how = {
            "groups": sample.groups,
            "client": f"site-{k:03d}",
            "delta": settings["delta"],
            "min_count": min_count,
            **options,
        }
        try:
            rng = np.random.default_rng(k)
            found.append(gcfcp.summarize(values, membership, holdout=share, rng=rng, **how))
        except gcfcp.GCFCPError:
            kept = ~held_out(len(values), share, np.random.default_rng(k))
            found.append((None, gcfcp.summarize(values[kept], membership[kept], **how)))
    return found


def _calibrated(
    way: Way,
    parts: Parts,
    shapes: dict[str, Any],
    sample: Sample,
    min_count: int,
    settings: Settings,
) -> tuple[gcfcp.Calibration, dict[str, Any]]:
    """The calibration, and what it cost: bytes and processor time a site, and at the server."""
    holdout = way.shape == "holdout"
    shape, first, at_sites, at_server = shapes.get(way.shape or ""), [], 0.0, 0.0
    given = (parts, sample, min_count, settings)
    if holdout:
        pairs, at_sites = _timed(_pairs, *given)
        first, level = [a for a, _ in pairs if a is not None], [b for _, b in pairs]
        shape, at_server = _timed(_fitted, first, settings)
    if way.by == "group" or not holdout:  # In one round the level part is there already.
        options = {"by": "group", "shape": shape} if way.by == "group" else {}
        made, spent = _timed(_pairs if holdout else _summaries, *given, **options)
        level, at_sites = [b for _, b in made] if holdout else made, at_sites + spent
    calibration, spent = _timed(
        gcfcp.calibrate,
        level,
        settings["alpha"],
        rule="max" if way.by == "group" or way.shape else None,
        shape=shape if way.by == "atom" else None,
        confidence=settings["confidence"] if way.confident else None,
    )
    return calibration, {
        "bytes_site": sum(len(s.to_bytes()) for s in [*first, *level]) / len(parts),
        "seconds_site": at_sites / len(parts),
        "seconds_server": at_server + spent,
        "shaped": shape is not None,
    }


def _timed(work: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    """What the function returns, and the processor time that it took."""
    started = time.process_time()  # A clock would also count the other runs on this machine.
    made = work(*arguments, **options)
    return made, time.process_time() - started


def _told(made: gcfcp.Calibration, sample: Sample) -> dict[str, Any]:
    """What the calibration says of itself, and what `min_count` took from the group that lost most.

    - `hidden`: The share of a group's records that may be suppressed and count as +inf.
    - `strangers`: The share of a group's records that may be strangers, by which it is described so
      that no subtraction tells a small cell. Each is charged as alpha records.
    - `smallest`: How many records a site has in the smallest group, on average.
    """
    held = sum(s.n for s in made.summaries) / len(sample.scores)
    sizes = sample.membership.sum(axis=0) * held
    hidden = np.sum([s.suppressed_groups for s in made.summaries], axis=0)
    strangers = np.sum([s.strangers or [0] * len(sizes) for s in made.summaries], axis=0)
    return {
        "status": made.guarantee[0].certified_status,
        "hidden": min(float(np.max(hidden / sizes)), 1.0),
        "strangers": float(np.max(strangers / sizes)),
        "smallest": float(sample.membership.sum(axis=0).min() / len(made.summaries)),
    }


# --- the report ----------------------------------------------------------------------------------


def report(
    records: tables.Records, costs: tables.Records, context: Any, out: Path
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The text of shape-and-level.md and the verdicts; figures and JSON are written to `out`."""
    settings = context.settings
    every = list(dict.fromkeys(r["data"] for r in records))
    rows = _rows(tables.Summary(records), costs, every, settings)
    verdicts = _verdicts(rows)
    text = [
        f"Mean ± standard error over {context.runs} splits; the target is "
        f"{1 - settings['alpha']:g}. The mixture is in proportion to the records. "
        "against simultaneous: the size beside that of the simultaneous rule by atom at the "
        f"min_count {settings['min_counts'][0]}, on the same splits. infinite: the share of test "
        "rows without a finite threshold. The last columns are the coverage of each group.\n",
        "\n## The targets\n",
        tables.markdown(["data, sites", "number", "verdict"], verdicts),
    ]
    for data in every:
        file = f"{NAME}-{data.lower().replace('-', '')}"
        what = _what(data)
        text += [f"\n## {data}\n", f"![{data}]({file}.png)\n"]
        for K in settings["sites"]:
            own = [r for r in rows if (r["data"], r["clients"]) == (data, K)]
            text.append(
                f"\nAt {K} sites the smallest group has {own[0]['smallest']:.0f} records a site.\n"
            )
            for title, ways in _SECTIONS.items():
                text += [f"\n### {data}, {K} sites: {title}\n", _table(own, ways, what)]
            text += [f"\n### {data}, {K} sites: costs\n", _costs_table(own)]
        context.save(_figure(rows, data, context), out / file)
    page = {"command": context.header, "runs": context.runs, "rows": rows}
    path = out / f"{NAME}.json"
    codec.write(path, (json.dumps(page, indent=1, ensure_ascii=False) + "\n").encode())
    context.files.append(path)
    return text, verdicts


def _what(data: str) -> str:
    """What the size of a set is, in words."""
    return "labels in a set" if data == CIFAR10 else "length of an interval"


def _rows(
    summary: tables.Summary, costs: tables.Records, every: list[str], settings: Settings
) -> list[dict[str, Any]]:
    """One row for each of the data, number of sites, way and min_count."""
    rows = []
    for data in every:
        for K in settings["sites"]:
            at_first = {"data": data, "clients": K, "min_count": settings["min_counts"][0]}
            for method, way in WAYS.items():
                for m in settings["min_counts"]:
                    where = at_first | {"method": method, "min_count": m}
                    own = [c for c in costs if all(c[k] == v for k, v in where.items())]
                    groups = list(dict.fromkeys(r["group"] for r in summary.rows(**where)))
                    coverage = {g: summary.mean("coverage", group=g, **where) for g in groups}
                    size = summary.mean("size", group="all", **where)
                    best = _ratio(summary, where, at_first | {"method": "atom"})
                    first = _ratio(summary, where, at_first | {"method": method})
                    rows.append(
                        {
                            **where,
                            "label": way.label,
                            "coverage": {g: c.value for g, c in coverage.items()},
                            "coverage_error": {g: c.error for g, c in coverage.items()},
                            "size": size.value,
                            "size_error": size.error,
                            "size_against_simultaneous": best.value,
                            "size_against_simultaneous_error": best.error,
                            "size_against_first": first.value,
                            "size_against_first_error": first.error,
                            "infinite": summary.mean("infinite", group="all", **where).value,
                            "status": ", ".join(sorted({c["status"] for c in own})),
                            "seconds_site": float(np.median([c["seconds_site"] for c in own])),
                            "seconds_server": float(np.median([c["seconds_server"] for c in own])),
                        }
                        | {
                            k: float(np.mean([c[k] for c in own]))
                            for k in ("bytes_site", "hidden", "strangers", "smallest", "shaped")
                        }
                    )
    return rows


def _ratio(
    summary: tables.Summary, where: dict[str, Any], reference: dict[str, Any]
) -> tables.Mean:
    """The size beside that of the reference, on the same splits."""
    pairs = zip(
        summary.rows(group="all", **where), summary.rows(group="all", **reference), strict=True
    )
    return tables.mean(mine["size"] / other["size"] for mine, other in pairs)


def _table(rows: list[dict[str, Any]], ways: Sequence[str], what: str) -> str:
    """Size and coverage of some ways as a Markdown table."""
    groups = list(rows[0]["coverage"])
    return tables.markdown(
        ["way", "min_count", what, "against simultaneous", "infinite", "promise", *groups],
        [
            [
                r["label"],
                r["min_count"],
                tables.Mean(r["size"], r["size_error"]).show(3),
                f"{r['size_against_simultaneous'] - 1:+.1%}",
                f"{r['infinite']:.0%}",
                r["status"],
                *(tables.Mean(r["coverage"][g], r["coverage_error"][g]).show(3) for g in groups),
            ]
            for way in ways
            for r in rows
            if r["method"] == way
        ],
    )


def _costs_table(rows: list[dict[str, Any]]) -> str:
    """What each way sends and computes, and what min_count takes away, as a Markdown table."""
    note = (
        "Bytes and milliseconds of processor time a site, for all of its messages; milliseconds at "
        "the server, with the fit of the shape if it is made of a holdout. Times are medians. "
        "hidden: the share of its records that the worst group is charged as +inf. strangers: the "
        "share of its records that may be strangers, so that no subtraction tells a small cell. no "
        "shape: the share of splits in which no cell was large enough to make a shape.\n\n"
    )
    return note + tables.markdown(
        ["way", "min_count", "bytes", "ms", "ms at the server", "hidden", "strangers", "no shape"],
        [
            [
                r["label"],
                r["min_count"],
                f"{r['bytes_site']:,.0f}",
                f"{1000 * r['seconds_site']:.1f}",
                f"{1000 * r['seconds_server']:.0f}",
                f"{r['hidden']:.1%}",
                f"{r['strangers']:.1%}",
                "-" if WAYS[r["method"]].shape is None else f"{1 - r['shaped']:.0%}",
            ]
            for r in rows
        ],
    )


def short_table(rows: list[dict[str, Any]], data: str) -> str:
    """The first table of docs/shape-and-level.md: the three ways."""
    lines = []
    for K in sorted({r["clients"] for r in rows}):
        for m in sorted({r["min_count"] for r in rows}):
            cells: list[Any] = [K, m]
            for way in _SHOWN:
                r = _at(rows, data, K, way, m)
                cells += [f"{r['size']:.3f}", f"{r['infinite']:.0%}", f"{_lowest(r):.3f}"]
            lines.append(cells)
    header = ["sites", "min_count"]
    for name in ("by atom", "by group", "by group, shape"):
        header += [f"{name}: size", "infinite", "lowest coverage"]
    return tables.markdown(header, lines)


def shapes_table(rows: list[dict[str, Any]], min_count: int) -> str:
    """The second table of docs/shape-and-level.md: sizes by where the shape comes from."""
    ways = _SECTIONS["where the shape comes from"]
    lines = [
        [f"{data}, {K} sites", *(f"{_at(rows, data, K, w, min_count)['size']:.3f}" for w in ways)]
        for data, K in dict.fromkeys((r["data"], r["clients"]) for r in rows)
    ]
    return tables.markdown(["", *(WAYS[w].label for w in ways)], lines)


def confident_table(rows: list[dict[str, Any]]) -> str:
    """The third table of docs/shape-and-level.md: on average, and with confidence."""
    lines = []
    for data, K in dict.fromkeys((r["data"], r["clients"]) for r in rows):
        mean, sure = (_at(rows, data, K, way, 1) for way in ("shape", "confident"))
        lines.append(
            [
                f"{data}, {K} sites",
                f"{mean['size']:.3f}",
                f"{_lowest(mean):.3f}",
                f"{sure['size']:.3f}",
                f"{_lowest(sure):.3f}",
                f"{sure['size'] / mean['size'] - 1:+.1%}",
            ]
        )
    header = ["", "on average: size", "lowest coverage"]
    return tables.markdown([*header, "confident: size", "lowest coverage", "larger by"], lines)


def costs_table(rows: list[dict[str, Any]]) -> str:
    """The fourth table of docs/shape-and-level.md: bytes and time at a site, and at the server."""
    lines = []
    for data, K in dict.fromkeys((r["data"], r["clients"]) for r in rows):
        for m in (1, _MIN_COUNT):
            atom, group = (_at(rows, data, K, way, m) for way in ("atom", "shape"))
            lines.append(
                [
                    f"{data}, {K} sites",
                    m,
                    *(f"{r['bytes_site']:,.0f}" for r in (atom, group)),
                    *(f"{1000 * r['seconds_site']:.1f}" for r in (atom, group)),
                    *(f"{1000 * r['seconds_server']:.0f}" for r in (atom, group)),
                ]
            )
    header = ["", "min_count", "bytes a site: by atom", "by group, shape", "ms a site: by atom"]
    header += ["by group, shape", "ms at the server: by atom", "by group, shape"]
    return tables.markdown(header, lines)


def _at(rows: list[dict[str, Any]], data: str, K: int, way: str, m: int) -> dict[str, Any]:
    """The row of these data, number of sites, way and min_count."""
    wanted = (data, K, way, m)
    return next(r for r in rows if (r["data"], r["clients"], r["method"], r["min_count"]) == wanted)


def _lowest(row: dict[str, Any]) -> float:
    """The coverage of the group that has the lowest, on average over splits."""
    return float(min(row["coverage"].values()))


def _verdicts(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Whether each target is met, by data and number of sites.

    The targets are about the shape of other records. At a min_count above 1 the shape that was made
    with the same min_count stands beside it.
    """
    found = []
    for r in rows:
        where = f"{r['data']}, {r['clients']} sites"
        if (r["method"], r["min_count"]) == ("shape", 1):
            said = _said(r, "size_against_simultaneous", _NEAR)
            found.append((where, "size at min_count 1, against the simultaneous rule", said))
        if (r["method"], r["min_count"]) == ("shape", _MIN_COUNT):
            of = f"with {r['smallest']:.0f} records a site in the smallest group"
            none = "no row" if r["infinite"] == 0 else f"{r['infinite']:.1%} of the rows"
            found.append((where, f"infinite thresholds at min_count {_MIN_COUNT}, {of}", none))
        if r["method"] in ("shape", "same") and r["min_count"] == _MIN_COUNT:
            what = f"size at min_count {_MIN_COUNT}, against min_count 1"
            made = "" if r["method"] == "shape" else ", shape with the same min_count"
            found.append((where, what + made, _said(r, "size_against_first", _LARGER)))
    return found


def _said(row: dict[str, Any], what: str, allowed: float) -> str:
    """By how much the size is larger, whether that is allowed, and the ground of the promise."""
    more, error = row[what] - 1, row[f"{what}_error"]
    said = "within" if more <= allowed else "NOT within"
    return f"{more:+.1%} ± {error:.1%}: {said} {allowed:.0%}, {row['status']}"


def _figure(rows: list[dict[str, Any]], data: str, context: Any) -> Any:
    """Mean size over min_count for the three ways, with a panel for each number of sites."""
    counts = context.settings["min_counts"]
    panels = {}
    for K in context.settings["sites"]:
        panels[f"{K} sites"] = {
            WAYS[way].label: [
                tables.Mean(r["size"], r["size_error"])
                for r in (_at(rows, data, K, way, m) for m in counts)
            ]
            for way in _SHOWN
        }
    n = context.settings["n_cal" if data == CIFAR10 else "communities_cal"]
    return figures.over_min_count(
        counts,
        panels,
        f"mean {_what(data)}",
        f"min_count ({n:,} records of {data} in all)",
        context.label,
    )
