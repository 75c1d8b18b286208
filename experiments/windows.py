"""Sections 5.2 and 5.3: what `cifar10` and `pathmnist` have in common.

In each run all records are shuffled and split into calibration and test records. Each client has
some of the labels and holds the calibration records of these labels. A group is a window of labels,
and a record belongs to it if its predicted label is in the window. The score is THR, 1 - p_y.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import evaluate, figures, probabilities, tables, timing
from experiments.montecarlo import Arrays, Settings
from gcfcp import methods, scores

Bools = NDArray[np.bool_]


def prepare(probs: Any, settings: Settings, seed: int) -> tuple[dict[str, Any], str, bool]:
    """The arrays for the runs, where they come from in words, and whether they are simulated."""
    L = settings["labels"]
    if probs is None:
        spec = settings["simulation"]
        made = probabilities.simulate(
            probabilities.Simulation(
                tuple(spec["counts"]),
                tuple(spec["kin"]),
                spec["accuracy"],
                spec["resemblance"],
                spec["spread"],
            ),
            seed,
        )
        stated = made.source
    else:
        made = probabilities.load(probs, L)
        stated = f"{made.source} (sha256 {made.fingerprint[:12]}…, accuracy {made.accuracy:.4f})"
    return {"probs": made.probs, "labels": made.labels}, stated, made.simulated


def main_variants(settings: Settings) -> list[evaluate.Variant]:
    """The methods that are compared, in the order of the tables."""
    return [
        evaluate.SPLIT_CP,
        evaluate.CONDCP,
        evaluate.CENTRALIZED,
        evaluate.FEDCP,
        *(evaluate.paper_gcfcp(d) for d in settings["deltas"]),
        *(evaluate.upper_gcfcp(d) for d in settings["deltas"]),
        *(evaluate.sharp_gcfcp(d) for d in settings["deltas"]),
        evaluate.FEDCP_DIGEST,
        evaluate.MONDRIAN,
        evaluate.MONDRIAN_MAX,
        evaluate.GROUP_DIGEST,
        evaluate.IMPORTANCE,
    ]


def _split(
    arrays: Arrays, settings: Settings, run: int
) -> tuple[list[Any], Any, NDArray[np.int64], Bools]:
    """The clients as (scores, membership, labels), and the test rows.

    Test rows are probabilities, labels and membership.
    """
    rng = np.random.default_rng([settings["seed"], run])
    labels = arrays["labels"]
    order = rng.permutation(len(labels))
    n_cal = min(settings["n_cal"], len(labels) // 2)
    cal, test = order[:n_cal], order[n_cal : n_cal + settings["n_test"]]
    P, y = np.asarray(arrays["probs"][cal]), labels[cal]
    s, member = scores.THR().of(P, y), _windows(P, settings)
    clients = []
    for own in settings["client_labels"]:
        mine = np.isin(y, own)
        clients.append((s[mine], member[mine], y[mine]))
    Q = np.asarray(arrays["probs"][test])
    return clients, Q, labels[test], _windows(Q, settings)


def _windows(P: Any, settings: Settings) -> Bools:
    """Which predicted label lies in which window, (n, G)."""
    predicted = P.argmax(axis=1)
    return np.column_stack([np.isin(predicted, w) for w in settings["windows"]])


def group_names(settings: Settings) -> list[str]:
    return [f"G{g + 1}" for g in range(len(settings["windows"]))]


def one(arrays: Arrays, settings: Settings, run: int) -> dict[str, Any]:
    """One run: records and costs of every method, and records at other levels for the curves."""
    clients, Q, y, member = _split(arrays, settings, run)
    matrix = scores.THR().all(Q)
    test = evaluate.Test(
        matrix[np.arange(len(y)), y],
        evaluate.label_sizes(matrix),
        member,
        group_names(settings),
        evaluate.mixture_weights(clients, y),
    )
    records, costs, results = evaluate.compare(
        main_variants(settings), clients, settings["alpha"], test, run=run
    )
    for key in curve_methods(settings):
        for alpha in settings["alphas"]:
            if alpha == settings["alpha"]:
                continue
            calibration = results[key].calibration
            if calibration is None:
                thresholds = methods.split_cp(clients, alpha).thresholds(member)
            else:
                thresholds = calibration.retarget(alpha=alpha).thresholds(member)
            own = {"clients": len(clients), "method": key, "alpha": alpha}
            records += evaluate.judge(thresholds, test, run=run, **own)
    return {"records": records, "costs": costs}


def curve_methods(settings: Settings) -> list[str]:
    """The keys of the methods that Figs. 5 and 6 show."""
    return ["split_cp", f"gcfcp_paper_{settings['deltas'][1]:g}"]


def report(
    records: tables.Records, costs: tables.Records, context: Any, out: Path
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The text of the page and the verdicts; the figures are written to `out`."""
    settings = context.settings
    summary = tables.Summary(records)
    shown = main_variants(settings)
    speed: dict[str, Any] = {}
    if settings.get("speed_points"):
        clients, _, _, member = _split(context.arrays, settings, 0)
        theirs = [evaluate.CONDCP, evaluate.CENTRALIZED]
        theirs += [evaluate.paper_gcfcp(d) for d in settings["deltas"]]
        ours = [evaluate.upper_gcfcp(d) for d in settings["deltas"]]
        ours += [evaluate.sharp_gcfcp(d) for d in settings["deltas"]]
        rows = timing.speedups(
            theirs, ours, clients, settings["alpha"], member, settings["speed_points"]
        )
        speed = {row["method"]: row for row in rows}
    text, verdicts = _main_tables(summary, shown, speed, context)
    if speed:
        text += _speed_text(speed, shown, context)
    text += [
        f"\n![coverage by group]({settings['figure']}-groups.png)\n",
        f"\n![coverage over 1-α]({settings['figure']}a.png)\n",
        f"\n![set size over 1-α]({settings['figure']}b.png)\n",
        "## Table 1, measured\n",
        tables.costs_table(costs, shown),
    ]
    _draw(summary, context, out)
    return text, verdicts


def _main_tables(
    summary: tables.Summary, shown: list[evaluate.Variant], speed: dict[str, Any], context: Any
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The tables of coverage and set sizes, and a verdict for each of the paper's numbers."""
    settings = context.settings
    alpha, groups = settings["alpha"], group_names(settings)
    theirs = tables.paper()[settings["paper"]]
    target = 1 - alpha
    coverage_rows, mixture_rows, size_rows, verdicts = [], [], [], []
    for variant in shown:
        where = {"method": variant.key, "alpha": alpha}
        said = theirs.get(variant.key)
        cells, mixed, sizes = [], [], []
        for i, group in enumerate([evaluate.EVERYONE, *groups]):
            ours = summary.mean("coverage", group=group, **where)
            star = " ★" if ours.below(target) else ""
            beside = ""
            if said:
                printed = said["marginal"] if i == 0 else said["coverage"][i - 1]
                beside = f" (paper {printed[0]:.3f})"
                verdict = tables.compared(ours, printed, 3, _reason(variant, context))
                verdicts.append((variant.label, f"coverage, {group}", verdict))
            cells.append(f"{ours}{star}{beside}")
            mixture = summary.mean("mixture_coverage", group=group, **where)
            mixed.append(f"{mixture}{' ★' if mixture.below(target) else ''}")
            size = summary.mean("size", group=group, **where)
            beside = ""
            if said and i:
                beside = f" (paper {said['size'][i - 1]:.2f})"
                why = "simulated data" if context.simulated else "set sizes are the model's"
                verdict = tables.compared(size, said["size"][i - 1], 2, why)
                verdicts.append((variant.label, f"set size, {group}", verdict))
            sizes.append(f"{size.show(2)}{beside}")
        coverage_rows.append([variant.label, *cells])
        mixture_rows.append([variant.label, *mixed])
        size_rows.append([variant.label, *sizes])
    header = ["method", "all", *groups]
    text = [
        "## Coverage by group\n",
        f"Target {target:g}. Mean ± standard error over {context.runs} runs, the paper's value "
        f"({theirs['source']}) beside it; ★ marks coverage below the target by more than three "
        "standard errors. Rows without the paper's value are not in its table.\n",
        tables.markdown(header, coverage_rows),
        "\n## Coverage under the mixture\n",
        "The same, with test records weighted to the uniform mixture of the clients, which is "
        "what the federated methods promise coverage for (the table above weighs all test records "
        "alike, as the paper does).\n",
        tables.markdown(header, mixture_rows),
        "\n## Set sizes\n",
        tables.markdown(header, size_rows),
    ]
    text += _must_hold(summary, context)
    return text, verdicts


def _reason(variant: evaluate.Variant, context: Any) -> str:
    """Why a number may differ from the paper's."""
    if context.simulated:
        return "simulated data"
    if variant.key == "gcfcp_paper_25":
        return "another model, and at δ=25 another T-Digest (the authors use a package's)"
    return "another model"


def _must_hold(summary: tables.Summary, context: Any) -> list[str]:
    """The statements that the paper's table is there to show, and whether they are true."""
    settings = context.settings
    alpha, groups = settings["alpha"], group_names(settings)
    target = 1 - alpha

    def coverage(key: str) -> dict[str, tables.Mean]:
        return {g: summary.mean("coverage", method=key, alpha=alpha, group=g) for g in groups}

    named = {v.key: v.label for v in main_variants(settings)}
    lines = []
    for key, label in (("split_cp", "Centralized CP"), ("fedcp", "FedCP")):
        low = [f"{g} {m}" for g, m in coverage(key).items() if m.below(target)]
        lines.append((f"{label} leaves a group below {target:g} by more than 3 SE", low, bool(low)))
    keys = ["condcp", "centralized_gcfcp"]
    keys += [
        f"gcfcp_{way}_{d:g}" for way in ("paper", "upper", "sharp") for d in settings["deltas"][1:]
    ]
    for key in keys:
        low = [f"{g} {m}" for g, m in coverage(key).items() if not m.holds(target)]
        lines.append(
            (f"{named[key]} holds every group within 3 SE of {target:g}, or above", low, not low)
        )
    coarse = f"{settings['deltas'][0]:g}"
    upper, theirs = coverage(f"gcfcp_upper_{coarse}"), coverage(f"gcfcp_paper_{coarse}")
    low = [f"{g} {m}" for g, m in upper.items() if m.value < target]
    lines.append((f"δ={coarse} with `upper` holds every group at {target:g}", low, not low))
    low = [f"{g} {m}" for g, m in theirs.items() if m.below(target)]
    lines.append((f"δ={coarse}, the paper's own, does not (by more than 3 SE)", low, bool(low)))
    return [
        "\n## What must hold\n",
        tables.markdown(
            ["statement", "groups below", "holds"],
            [
                [what, "; ".join(low) or "none", "yes" if good else "NO"]
                for what, low, good in lines
            ],
        ),
    ]


def _speed_text(speed: dict[str, Any], shown: list[evaluate.Variant], context: Any) -> list[str]:
    """The table of speed-ups."""
    theirs = tables.paper()[context.settings["paper"]]
    points = context.settings["speed_points"]
    rows = []
    for variant in shown:
        if variant.key in speed:
            s = speed[variant.key]
            printed = theirs.get(variant.key, {}).get("speedup")
            rows.append(
                [
                    variant.label,
                    f"{s['problem']:,}",
                    f"{1e3 * s['bisection_seconds']:,.0f} ms" if "speedup" in s else "-",
                    f"{s['speedup']:.2f}×" if "speedup" in s else "-",
                    "-" if printed is None else f"{printed:.2f}×",
                    f"{1e6 * s['table_seconds']:.3g} µs",
                    f"{s['speedup_table']:,.0f}×",
                    f"{s['largest_difference']:.1g}" if "speedup" in s else "-",
                ]
            )
    return [
        "\n## Speed-up against per-point CondCP\n",
        f"The paper's way solves some {timing.STEPS} linear programs (HiGHS) for each test point. "
        f"It was timed on {points} points of one run and scaled: the mean is what a point costs. "
        "Ours is one table for all atoms and a lookup for each of the test points, clients' "
        "digests included, divided by their number. Where a digest keeps every score, bisection "
        "gains nothing from it. Times are processor time of this machine; the last column is how "
        "far the two thresholds lie apart at most.\n",
        tables.markdown(
            [
                "method",
                "scores in the problem",
                "bisection, a point",
                "speed-up",
                "paper's speed-up",
                "table, a point",
                "speed-up",
                "difference",
            ],
            rows,
        ),
    ]


def _draw(summary: tables.Summary, context: Any, out: Path) -> None:
    """Write the coverage by group, and the curves of coverage and set size over 1 - alpha."""
    settings = context.settings
    alpha, groups = settings["alpha"], group_names(settings)
    labels = {v.key: v.label for v in main_variants(settings)}
    coarse, middle = (f"{d:g}" for d in settings["deltas"][:2])
    keys = [
        "split_cp",
        "fedcp",
        "condcp",
        f"gcfcp_paper_{middle}",
        f"gcfcp_paper_{coarse}",
        f"gcfcp_upper_{coarse}",
        f"gcfcp_sharp_{middle}",
    ]
    coverage = {
        labels[k]: [summary.mean("coverage", method=k, alpha=alpha, group=g) for g in groups]
        for k in keys
    }
    name = settings["figure"]
    note = context.label
    context.save(
        figures.by_group(coverage, groups, 1 - alpha, "coverage", "target 1-α", note),
        out / f"{name}-groups",
    )
    alphas = sorted(settings["alphas"])
    for what, part in (("coverage", "a"), ("size", "b")):
        series = {
            labels[k]: {
                g: [summary.mean(what, method=k, alpha=a, group=g) for a in alphas] for g in groups
            }
            for k in curve_methods(settings)
        }
        if any(
            math.isfinite(m.value) for own in series.values() for ms in own.values() for m in ms
        ):
            ylabel = "coverage" if what == "coverage" else "mean set size"
            context.save(
                figures.curves(alphas, series, groups, ylabel, what == "coverage", note),
                out / f"{name}{part}",
            )
