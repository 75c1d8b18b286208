"""Appendix E.2: ImageNet-1K, 50 clients, ten semantic and five ambiguity groups, three scores.

In each run 40,000 records are used to calibrate and 10,000 to test. The calibration records are
dealt to the clients class by class, in shares that are drawn from a Dirichlet(0.3) distribution.
This is repeated if a client gets fewer than 200 records.

Each record is in two groups. Its semantic group is the category with the largest total probability.
Its ambiguity group follows from its margin, the difference of its two largest probabilities: the
quantiles of the calibration records cut the margins into five parts. The scores are THR, APS and
RAPS (lambda 0.01, k_reg 5), not randomised, as in the authors' script.

The input is a probability file of the 50,000 validation images (`models.imagenet_file` makes one).
The paper does not print how it divides the labels into ten categories; its script matches keywords
in the class names. Ours is `semantic_categories`, by class index. A file may bring its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import evaluate, figures, probabilities, tables
from experiments.montecarlo import Arrays, Settings
from gcfcp import scores
from gcfcp.errors import GCFCPError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NAME = "imagenet"
TITLE = "ImageNet-1K (appendix)"
RUNS = 10
SETTINGS: dict[str, Any] = {
    "labels": 1000,
    "n_cal": 40_000,
    "n_test": 10_000,
    "clients": 50,
    "concentration": 0.3,
    "smallest_client": 200,
    "alpha": 0.1,
    "deltas": [25, 50, 250, 500, 1000, 2500],
    "shown_deltas": [50, 250, 500],
    "scores": ["raps", "thr", "aps"],
    "design_delta": 250,
    "other_clients": [10, 25, 100],
    "bins": 5,
    "simulation": {
        "each": 50,  # The number of records of each label.
        "accuracy": 0.8,
        "resemblance": 1.0,
        "spread": 0.7,
    },
}

CATEGORIES = (
    "dogs, wolves, foxes",
    "other mammals",
    "birds",
    "fish, reptiles, amphibians",
    "invertebrates",
    "vehicles",
    "instruments, devices",
    "household",
    "food, plants, fungi",
    "structures, other things",
)
DESIGNS = ("semantic-ambiguity", "semantic", "ambiguity")

# The categories by class index, in the usual order of ImageNet-1K. Animals and food come in blocks.
# Artefacts (398 to 923) come in alphabetical order, so some of them are listed one by one below.
_BLOCKS: tuple[tuple[int, int, int], ...] = (
    # (first index, last index, category)
    (0, 6, 3),
    (7, 24, 2),
    (25, 68, 3),
    (69, 79, 4),
    (80, 100, 2),
    (101, 106, 1),
    (107, 126, 4),
    (127, 146, 2),
    (147, 150, 1),
    (151, 280, 0),
    (281, 299, 1),
    (300, 329, 4),
    (330, 388, 1),
    (389, 397, 3),
    (398, 923, 9),
    (924, 969, 8),
    (970, 983, 9),
    (984, 998, 8),
    (999, 999, 7),
)
_VEHICLES = (
    403, 404, 405, 407, 408, 436, 444, 450, 466, 468, 472, 484, 510, 511, 537, 547, 554, 555, 561,
    565, 569, 573, 575, 576, 586, 595, 603, 609, 612, 625, 627, 628, 654, 656, 661, 665, 670, 671,
    675, 690, 705, 717, 724, 734, 751, 757, 779, 780, 802, 803, 812, 814, 817, 820, 829, 833, 847,
    864, 866, 867, 870, 871, 874, 880, 895, 913, 914,
)  # fmt: skip
_INSTRUMENTS = (
    398, 401, 402, 420, 426, 432, 473, 481, 482, 486, 487, 494, 508, 513, 527, 528, 531, 541, 542,
    546, 558, 566, 577, 579, 590, 593, 594, 605, 606, 613, 620, 632, 641, 642, 650, 662, 664, 673,
    681, 683, 684, 687, 688, 699, 707, 710, 713, 732, 740, 742, 754, 761, 769, 776, 778, 782, 810,
    822, 826, 844, 848, 851, 875, 878, 881, 889,
)  # fmt: skip
_HOUSEHOLD = (
    423, 435, 441, 453, 469, 493, 495, 504, 505, 516, 520, 521, 526, 532, 534, 544, 548, 553, 559,
    564, 567, 572, 618, 619, 647, 648, 651, 659, 703, 721, 725, 729, 738, 750, 760, 765, 766, 794,
    799, 809, 813, 827, 828, 831, 846, 849, 857, 859, 861, 876, 882, 883, 891, 892, 894, 896, 897,
    899, 905, 907, 909,
)  # fmt: skip


def semantic_categories() -> Ints:
    """The category of each of the 1000 labels."""
    category = np.empty(1000, dtype=np.int64)
    for first, last, which in _BLOCKS:
        category[first : last + 1] = which
    category[list(_VEHICLES)] = 5
    category[list(_INSTRUMENTS)] = 6
    category[list(_HOUSEHOLD)] = 7
    return category


_SCORES: dict[str, Any] = {
    "thr": scores.THR(),
    "aps": scores.APS(randomized=False),
    "raps": scores.RAPS(lam=0.01, k_reg=5, randomized=False),
}


def prepare(probs: Any, settings: Settings, seed: int) -> tuple[dict[str, Any], str, bool]:
    """The arrays for the runs, where they come from in words, and whether they are simulated.

    Beside the probabilities they hold what is the same in every run: the scores, the category and
    the margin of every record.
    """
    L = settings["labels"]
    if probs is not None:
        made = probabilities.load(probs, L)
        stated = f"{made.source} (sha256 {made.fingerprint[:12]}…, accuracy {made.accuracy:.4f})"
    else:
        spec = settings["simulation"]
        made = probabilities.simulate(
            probabilities.Simulation(
                (spec["each"],) * L,
                tuple(_semantic(None, L).tolist()),
                spec["accuracy"],
                spec["resemblance"],
                spec["spread"],
            ),
            seed,
        )
        stated = made.source
    semantic = _semantic(made.semantic, L)
    arrays: dict[str, Any] = {"probs": made.probs, "labels": made.labels}
    for name in settings["scores"]:
        arrays[name] = _SCORES[name].of(made.probs, made.labels)
    arrays["category"], arrays["margin"] = _facts(made.probs, semantic)
    return arrays, stated, made.simulated


def _semantic(given: Ints | None, L: int) -> Ints:
    """The category of each label: the given ones, ours for ImageNet, or blocks of equal size."""
    if given is not None:
        return given
    if L == 1000:
        return semantic_categories()
    return np.arange(L) * len(CATEGORIES) // L


def _facts(P: Any, semantic: Ints) -> tuple[Ints, Any]:
    """The most probable category M(x) and the margin A(x) of every record."""
    indicator = np.eye(int(semantic.max()) + 1)[semantic]
    category = np.empty(len(P), dtype=np.int64)
    margin = np.empty(len(P))
    for start in range(0, len(P), 2_000):
        block = np.asarray(P[start : start + 2_000], dtype=np.float64)
        rows = slice(start, start + len(block))
        category[rows] = (block @ indicator).argmax(axis=1)
        top = np.partition(block, block.shape[1] - 2, axis=1)[:, -2:]
        margin[rows] = top[:, 1] - top[:, 0]
    return category, margin


def variants(settings: Settings) -> list[evaluate.Variant]:
    """The methods that are compared, in the order of the tables."""
    return [
        evaluate.SPLIT_CP,
        evaluate.FEDCP,
        evaluate.MONDRIAN,
        evaluate.GROUP_DIGEST,
        evaluate.IMPORTANCE,
        evaluate.CONDCP,
        evaluate.CENTRALIZED,
        *(evaluate.paper_gcfcp(d) for d in settings["deltas"]),
        *(evaluate.upper_gcfcp(d) for d in settings["deltas"]),
        evaluate.sharp_gcfcp(settings["design_delta"]),
        evaluate.MONDRIAN_MAX,
    ]


def _deal(labels: Ints, K: int, settings: Settings, rng: np.random.Generator) -> Ints:
    """The client of each record. Each class is dealt in shares from a Dirichlet distribution."""
    least = settings["smallest_client"] * len(labels) // settings["n_cal"]
    least = min(least, len(labels) // K // 2)
    client = np.empty(len(labels), dtype=np.int64)
    for _ in range(1_000):
        for y in range(settings["labels"]):
            own = rng.permutation(np.flatnonzero(labels == y))
            shares = rng.dirichlet(np.full(K, settings["concentration"]))
            cuts = (np.cumsum(shares)[:-1] * len(own)).astype(np.int64)
            client[own] = np.searchsorted(cuts, np.arange(len(own)), side="right")
        if np.bincount(client, minlength=K).min() >= max(least, 1):
            return client
    raise GCFCPError(
        f"no Dirichlet({settings['concentration']}) split in 1,000 gave each of {K} clients "
        f"{least} of {len(labels)} records: use fewer clients or more records"
    )


def one(arrays: Arrays, settings: Settings, run: int) -> dict[str, Any]:
    """One run: records and costs of every method, for all scores, designs and client numbers."""
    rng = np.random.default_rng([settings["seed"], run])
    labels = np.asarray(arrays["labels"])
    order = rng.permutation(len(labels))
    n_cal = min(settings["n_cal"], len(labels) * 4 // 5)
    cal, test = order[:n_cal], order[n_cal : n_cal + settings["n_test"]]
    edges = np.quantile(arrays["margin"][cal], np.arange(1, settings["bins"]) / settings["bins"])
    member = {
        part: _membership(arrays, rows, edges) for part, rows in (("cal", cal), ("test", test))
    }
    client = {K: _deal(labels[cal], K, settings, rng) for K in _numbers(settings)}
    Q, y = np.asarray(arrays["probs"][test]), labels[test]
    records: list[Any] = []
    costs: list[Any] = []
    for name in settings["scores"]:
        matrix = _SCORES[name].all(Q)
        truth, sizes = matrix[np.arange(len(y)), y], evaluate.label_sizes(matrix)
        for K, design, chosen in _cases(settings, name):
            columns = _columns(design, member["cal"].shape[1], settings["bins"])
            own = [client[K] == k for k in range(K)]
            s = np.asarray(arrays[name][cal])
            clients = [(s[m], member["cal"][m][:, columns], labels[cal][m]) for m in own]
            judged = evaluate.Test(
                truth,
                sizes,
                member["test"][:, columns],
                [group_names(settings, member["cal"].shape[1])[c] for c in columns],
                evaluate.mixture_weights(clients, y),
            )
            found, cost, _ = evaluate.compare(
                chosen, clients, settings["alpha"], judged, run=run, score=name, design=design
            )
            records += found
            costs += cost
    return {"records": records, "costs": costs}


def _numbers(settings: Settings) -> list[int]:
    """The numbers of clients that are tried, the main one first."""
    return [settings["clients"], *settings["other_clients"]]


def _cases(settings: Settings, score: str) -> list[tuple[int, str, list[evaluate.Variant]]]:
    """What is run for a score: (number of clients, design of the groups, methods).

    All methods run on the paper's groups. The paper's way and ours also run on other groups. For
    the first score, they and FedCP also run with other numbers of clients.
    """
    K, delta = settings["clients"], settings["design_delta"]
    ways = [evaluate.paper_gcfcp(delta), evaluate.upper_gcfcp(delta), evaluate.sharp_gcfcp(delta)]
    cases = [(K, DESIGNS[0], variants(settings))]
    cases += [(K, design, ways) for design in DESIGNS[1:]]
    if score == settings["scores"][0]:
        others = [evaluate.FEDCP, *ways]
        cases += [(other, DESIGNS[0], others) for other in settings["other_clients"]]
    return cases


def _membership(arrays: Arrays, rows: Ints, edges: Any) -> Bools:
    """The groups of these records: first the semantic ones, then those by ambiguity."""
    categories = int(arrays["category"].max()) + 1
    semantic = np.eye(categories, dtype=bool)[arrays["category"][rows]]
    fifth = np.searchsorted(edges, arrays["margin"][rows], side="right")
    return np.hstack([semantic, np.eye(len(edges) + 1, dtype=bool)[fifth]])


def _columns(design: str, G: int, bins: int) -> list[int]:
    """The groups that a design uses, as columns of the membership."""
    if design == "semantic":
        return list(range(G - bins))
    return list(range(G - bins, G)) if design == "ambiguity" else list(range(G))


def group_names(settings: Settings, G: int) -> list[str]:
    """The names of all groups: the semantic ones, then those by margin."""
    categories = G - settings["bins"]
    named = CATEGORIES if categories == len(CATEGORIES) else [f"s{i}" for i in range(categories)]
    ends = {0: " (most ambiguous)", settings["bins"] - 1: " (least ambiguous)"}
    return [*named, *(f"margin {b + 1}{ends.get(b, '')}" for b in range(settings["bins"]))]


# --- the report ----------------------------------------------------------------------------------


def report(
    records: tables.Records, costs: tables.Records, context: Any, out: Path
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The text of imagenet.md and the verdicts; the figures are written to `out`."""
    settings = context.settings
    summary = tables.Summary(records)
    text: list[str] = []
    for name in settings["scores"]:
        text += _score_table(summary, name, context)
    designs, verdicts = _design_table(summary, context)
    text += designs
    text += _clients_table(summary, context)
    text += [
        "\n![coverage by group](imagenet-coverage.png)\n",
        "\n![set size by group](imagenet-size.png)\n",
        "\n![worst-group coverage over δ](imagenet-delta.png)\n",
        f"## Table 1, measured ({settings['scores'][0].upper()})\n",
        tables.costs_table(
            costs,
            variants(settings),
            score=settings["scores"][0],
            design=DESIGNS[0],
            clients=settings["clients"],
        ),
    ]
    _draw(summary, context, out)
    return text, verdicts


def _score_table(summary: tables.Summary, score: str, context: Any) -> list[str]:
    """All methods with one score on the paper's groups."""
    settings = context.settings
    target, L = 1 - settings["alpha"], settings["labels"]
    rows = []
    for variant in variants(settings):
        where = {
            "score": score,
            "design": DESIGNS[0],
            "clients": settings["clients"],
            "method": variant.key,
        }
        by_group = {g: summary.mean("coverage", group=g, **where) for g in summary.groups(**where)}
        low = [g for g, m in by_group.items() if m.below(target)]
        worst, group = summary.worst(**where)
        mixed, mixed_group = summary.worst("mixture_coverage", **where)
        size = summary.mean("size", group=evaluate.EVERYONE, **where)
        rows.append(
            [
                variant.label,
                summary.mean("coverage", group=evaluate.EVERYONE, **where),
                f"{worst:.3f} ({group})",
                f"{mixed:.3f} ({mixed_group})",
                len(low),
                tables.Mean(size.value / L, size.error / L).show(4),
            ]
        )
    return [
        f"\n## {score.upper()}, semantic and ambiguity groups\n",
        f"K = {settings['clients']} clients, {context.runs} runs. Worst-group coverage is pooled "
        "over the runs, as in the paper; beside it the same with test records weighted to the "
        "uniform mixture of the clients. The paper shows these methods in figures only.\n",
        tables.markdown(
            [
                "method",
                "marginal coverage",
                "worst group",
                "worst group, mixture",
                f"groups below {target:g} by 3 SE",
                "normalised set size",
            ],
            rows,
        ),
    ]


def _design_table(
    summary: tables.Summary, context: Any
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The three designs of groups, beside the paper's numbers, and the verdicts."""
    settings = context.settings
    L = settings["labels"]
    theirs = tables.paper()["imagenet"]
    reason = "simulated data" if context.simulated else "another partition of the labels"
    rows, verdicts = [], []
    ways = [evaluate.paper_gcfcp, evaluate.upper_gcfcp, evaluate.sharp_gcfcp]
    for score in sorted(settings["scores"]):
        for design in sorted(DESIGNS):
            for way in ways:
                variant = way(settings["design_delta"])
                where = {
                    "score": score,
                    "design": design,
                    "clients": settings["clients"],
                    "method": variant.key,
                }
                marginal = summary.mean("coverage", group=evaluate.EVERYONE, **where)
                runs = {r["run"] for r in summary.rows(**where)}
                groups = set(summary.groups(**where))
                average = tables.mean(
                    float(np.mean([r["coverage"] for r in own]))
                    for run in sorted(runs)
                    if (
                        own := [
                            r
                            for r in summary.rows(**where)
                            if r["run"] == run and r["group"] in groups
                        ]
                    )
                )
                size = summary.mean("size", group=evaluate.EVERYONE, **where)
                size = tables.Mean(size.value / L, size.error / L)
                worst = tables.Mean(summary.worst(**where)[0], float("nan"))
                said = theirs[score][design] if way is evaluate.paper_gcfcp else None
                rows.append(
                    [
                        score.upper(),
                        design,
                        variant.label,
                        *_cells(said, marginal, worst, average, size),
                    ]
                )
                if said:
                    row = f"{score.upper()}, {design}"
                    # The worst group is pooled over the runs and has no standard error of its own,
                    # so that of the average is used.
                    with_error = tables.Mean(worst.value, average.error)
                    verdicts += [
                        (
                            row,
                            "coverage, marginal",
                            tables.compared(marginal, said["marginal"], 3, reason),
                        ),
                        (
                            row,
                            "coverage, worst group",
                            tables.compared(with_error, said["worst"], 3, reason),
                        ),
                        (
                            row,
                            "coverage, group average",
                            tables.compared(average, said["average"], 3, reason),
                        ),
                        (
                            row,
                            "normalised set size, all",
                            tables.compared(size, said["size"], 4, reason),
                        ),
                    ]
    return [
        f"\n## Group designs (δ={settings['design_delta']:g})\n",
        "The paper's value beside ours.\n",
        tables.markdown(
            [
                "score",
                "groups",
                "method",
                "marginal coverage",
                "worst group",
                "group average",
                "normalised set size",
            ],
            rows,
        ),
    ], verdicts


def _cells(said: Any, *ours: tables.Mean) -> list[str]:
    """Our numbers as text, with the paper's beside them if it has any."""
    cells = []
    for mean, key, digits in zip(
        ours, ("marginal", "worst", "average", "size"), (3, 3, 3, 4), strict=True
    ):
        beside = ""
        if said:
            printed = said[key][0] if isinstance(said[key], list) else said[key]
            beside = f" (paper {printed:.{digits}f})"
        cells.append(mean.show(digits) + beside)
    return cells


def _clients_table(summary: tables.Summary, context: Any) -> list[str]:
    """The first score with several numbers of clients."""
    settings = context.settings
    score, delta = settings["scores"][0], settings["design_delta"]
    rows = []
    for K in sorted(_numbers(settings)):
        for variant in (
            evaluate.FEDCP,
            evaluate.paper_gcfcp(delta),
            evaluate.upper_gcfcp(delta),
            evaluate.sharp_gcfcp(delta),
        ):
            where = {"score": score, "design": DESIGNS[0], "clients": K, "method": variant.key}
            worst, group = summary.worst(**where)
            mixed, _ = summary.worst("mixture_coverage", **where)
            size = summary.mean("size", group=evaluate.EVERYONE, **where)
            by_group = [summary.mean("coverage", group=g, **where) for g in summary.groups(**where)]
            rows.append(
                [
                    K,
                    variant.label,
                    summary.mean("coverage", group=evaluate.EVERYONE, **where),
                    f"{worst:.3f} ({group})",
                    f"{mixed:.3f}",
                    sum(m.below(1 - settings["alpha"]) for m in by_group),
                    size.show(2),
                ]
            )
    return [
        f"\n## Number of clients ({score.upper()}, δ={delta:g})\n",
        tables.markdown(
            [
                "clients",
                "method",
                "marginal coverage",
                "worst group",
                "worst group, mixture",
                "groups below by 3 SE",
                "set size",
            ],
            rows,
        ),
    ]


def _draw(summary: tables.Summary, context: Any, out: Path) -> None:
    """Write coverage and set size by group, and the worst group's coverage over delta."""
    settings = context.settings
    score, K, target = settings["scores"][0], settings["clients"], 1 - settings["alpha"]
    shown = [
        evaluate.SPLIT_CP,
        evaluate.FEDCP,
        evaluate.MONDRIAN,
        evaluate.GROUP_DIGEST,
        evaluate.IMPORTANCE,
        *(evaluate.paper_gcfcp(d) for d in settings["shown_deltas"]),
    ]
    base = {"score": score, "design": DESIGNS[0], "clients": K}
    groups = summary.groups(**base)
    note = context.label
    for what, label, file in (
        ("coverage", f"coverage, {score.upper()}", "imagenet-coverage"),
        ("size", f"set size / {settings['labels']}, {score.upper()}", "imagenet-size"),
    ):
        unit = settings["labels"] if what == "size" else 1
        series = {}
        for v in shown:
            means = [summary.mean(what, method=v.key, group=g, **base) for g in groups]
            series[v.label] = [tables.Mean(m.value / unit, m.error / unit) for m in means]
        line = target if what == "coverage" else None
        context.save(figures.by_group_rows(series, groups, label, line, note), out / file)
    lines = {}
    for name in sorted(settings["scores"]):
        for way, said in ((evaluate.paper_gcfcp, "the paper's"), (evaluate.upper_gcfcp, "upper")):
            lines[f"{name.upper()}, {said}"] = [
                summary.worst(score=name, design=DESIGNS[0], clients=K, method=way(d).key)[0]
                for d in settings["deltas"]
            ]
    context.save(
        figures.over_delta(settings["deltas"], lines, target, "worst-group coverage", note),
        out / "imagenet-delta",
    )
