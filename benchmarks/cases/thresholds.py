"""Thresholds: the whole table, the cost of a test point, and how both grow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from statistics import median
from typing import Any

import numpy as np

import gcfcp
from benchmarks import data
from benchmarks.measure import (
    Case,
    Entry,
    Ratio,
    Scale,
    Timing,
    at_least,
    at_most,
    check,
    race,
)
from benchmarks.oracles import bisection, plain_lp
from benchmarks.peers import ConditionalConformal, MissingError, mapie_classifier
from gcfcp.groups import find_atoms
from gcfcp.pieces import Coreset
from gcfcp.solver import Solver

ALPHA = 0.1
# No (n_G + 1)(1 - alpha) is whole at this one: peers have no rule for ties.
NO_TIES = 0.0997


def _agree(found: float, exact: float, tolerance: float = 1e-7) -> bool:
    return found == exact or abs(found - exact) <= tolerance * (1 + abs(exact))


def _weights(problem: data.Scored) -> tuple[data.Floats, float]:
    """lambda_k of every record under the uniform mixture, and w_test."""
    counts = np.bincount(problem.client)
    rate = 1 / len(counts) / (counts + 1)
    return rate[problem.client], float(rate.sum())


# --- the whole table -----------------------------------------------------------------------------


def table(scale: Scale) -> list[Case]:
    return [_cifar(scale), _imagenet(scale)]


def _cifar(scale: Scale) -> Case:
    labelled = data.cifar_sized(scale.size(5_000, 1_000), seed=5)
    n = len(labelled.labels)
    scores = gcfcp.scores.THR().of(labelled.probabilities, labelled.labels)
    problem = data.Scored(scores, labelled.membership, np.zeros(n, dtype=np.int64))
    clients = problem.clients

    def ours() -> gcfcp.methods.Result:
        return gcfcp.methods.condcp(clients, NO_TIES)

    rows = np.unique(problem.membership, axis=0)
    found = ours().thresholds(rows)
    ones = np.ones(n)
    for row, threshold in zip(rows, found, strict=True):
        exact = plain_lp(scores, problem.membership, ones, 1.0, NO_TIES, row)
        check(_agree(threshold, exact), f"threshold {threshold} is the LP's {exact}")
    checks = ["every threshold equals a plain LP over all records"]
    runs = {
        "gcfcp, all atoms": ours,
        "plain LP, one atom": lambda: plain_lp(
            scores, problem.membership, ones, 1.0, NO_TIES, rows[0]
        ),
    }
    absent: list[Entry] = []
    name = "conditionalconformal, one point"
    try:
        with ConditionalConformal() as peer:
            cold = peer.problem(scores, problem.membership, rows[:1], NO_TIES, warm=False)
            warm = peer.problem(scores, problem.membership, rows, NO_TIES, warm=True)
            cold()
            for threshold, cutoff in zip(found, warm()[1], strict=True):
                check(_agree(threshold, cutoff), f"threshold {threshold} is {cutoff}")
            checks.append("every threshold equals conditionalconformal's")
            runs[name] = lambda: cold()[0]
            runs["conditionalconformal, all atoms, already set up"] = lambda: warm()[0]
            times = race(runs, scale.turns)
            note = f"conditionalconformal ran on NumPy {peer.numpy} in its own process"
    except MissingError as missing:
        absent.append(Entry(name, why_not=str(missing)))
        runs.pop(name, None)
        note = ""
        times = race(runs, scale.turns)
    targets = []
    if name in times:
        ratio = Ratio.of(times["gcfcp, all atoms"], times[name])
        targets.append(at_most("all atoms / one conditionalconformal point", ratio, 0.25))
    return Case(
        "table-cifar",
        "whole table, exact",
        f"CIFAR-sized: {n:,} records, 4 groups, {len(rows)} atoms",
        tuple(Entry(k, t) for k, t in times.items()) + tuple(absent),
        tuple(targets),
        tuple(checks),
        (note,) if note else (),
    )


def _ratio(times: dict[str, Timing], over: int, under: int) -> Ratio:
    listed = list(times.values())
    return Ratio.of(listed[over], listed[under])


def _imagenet(scale: Scale) -> Case:
    problem = data.imagenet_sized(scale.size(40_000, 4_000), seed=6)
    clients = problem.clients
    weights, test = _weights(problem)
    rows = np.unique(problem.membership, axis=0)

    def ours() -> gcfcp.methods.Result:
        return gcfcp.methods.centralized_gcfcp(clients, ALPHA)

    def one_lp(row: data.Bools = rows[0]) -> float:
        return plain_lp(problem.scores, problem.membership, weights, test, ALPHA, row)

    found = ours().thresholds(rows)
    every = scale.size(5, 10)
    for row, threshold in list(zip(rows, found, strict=True))[::every]:
        check(_agree(threshold, one_lp(row)), f"threshold {threshold} is the LP's")
    times = race({"gcfcp, all atoms": ours, "plain LP, one atom": one_lp}, scale.turns)
    return Case(
        "table-imagenet",
        "whole table, exact",
        f"ImageNet-sized: {len(problem.scores):,} records of 10 clients, 15 groups, 50 atoms",
        tuple(Entry(k, t) for k, t in times.items()),
        (at_most("all atoms / one plain LP", _ratio(times, 0, 1), 0.2),),
        (f"every {every}th threshold equals a plain LP over all records",),
    )


# --- the cost of a test point --------------------------------------------------------------------


def points(scale: Scale) -> list[Case]:
    """From probabilities to prediction sets; everything that is paid once is shared out."""
    n = scale.size(5_000, 500)
    everything = data.cifar_sized(2 * n, seed=7)
    calibration = slice(0, n)
    test = slice(n, None)
    p, m = everything.probabilities, everything.membership
    thr = gcfcp.scores.THR()
    groups = gcfcp.Groups(["G1", "G2", "G3", "G4"])

    def sets(clients: Sequence[Any]) -> data.Bools:
        scores = thr.of(p[calibration], everything.labels[calibration])
        summaries = [
            gcfcp.summarize(
                scores[own], m[calibration][own], groups=groups, client=f"{k}", score=thr
            )
            for k, own in enumerate(clients)
        ]
        predictor = gcfcp.Predictor(thr, gcfcp.calibrate(summaries, NO_TIES))
        return predictor.predict_set(p[test], m[test])

    client = everything.client[calibration]
    by_client = [client == k for k in range(int(client.max()) + 1)]

    def pooled() -> data.Bools:
        return sets([slice(None)])

    def federated() -> data.Bools:
        return sets(by_client)

    def pooled_exact() -> data.Bools:
        scores = thr.of(p[calibration], everything.labels[calibration])
        result = gcfcp.methods.condcp([(scores, m[calibration])], NO_TIES)
        return gcfcp.Predictor(thr, result).predict_set(p[test], m[test])

    exact_sets = pooled_exact()
    agreement = float((pooled() == exact_sets).mean())
    scores = thr.of(p[calibration], everything.labels[calibration])
    ones = np.ones(n)
    row = m[test][0]
    checks = [_bisection_check(scores, m[calibration], row)]
    # Whole calibrations, so many in a turn that a turn is as long as the peers'.
    often = scale.size(20, 2)
    runs = {
        "gcfcp, pooled data": lambda: [pooled() for _ in range(often)],
        "gcfcp, pooled data, no compression": lambda: [pooled_exact() for _ in range(often)],
        "gcfcp, 5 clients": lambda: [federated() for _ in range(often)],
    }
    each = {name: (float(n * often), 0.0) for name in runs}
    runs["the paper's bisection"] = lambda: bisection(
        scores, m[calibration], ones, 1.0, NO_TIES, row
    )
    each["the paper's bisection"] = (1.0, 0.0)
    some = scale.size(100, 10)
    absent = []
    try:
        began = time.process_time()
        mapie = mapie_classifier(
            p[calibration], everything.labels[calibration], m[calibration], NO_TIES
        )
        mapie(p[test][:1], m[test][:1])
        once = time.process_time() - began
        found = mapie(p[test][:some], m[test][:some])
        checks.append(check(np.array_equal(found, exact_sets[:some]), "sets equal MAPIE's"))
        runs["MAPIE conditional"] = lambda: mapie(p[test][:some], m[test][:some])
        each["MAPIE conditional"] = (float(some), once / n)
    except MissingError as missing:
        absent.append(Entry("MAPIE conditional", why_not=str(missing)))
    try:
        with ConditionalConformal() as peer:
            cold = peer.problem(scores, m[calibration], row[None], NO_TIES, warm=False)
            warm = peer.problem(scores, m[calibration], m[test][:some], NO_TIES, warm=True)
            once = median(cold()[0].seconds for _ in range(3))
            cutoffs = np.array(warm()[1])[:, None]
            same = np.array_equal(1.0 - p[test][:some] <= cutoffs + 1e-9, exact_sets[:some])
            checks.append(check(same, "sets equal conditionalconformal's"))
            runs["conditionalconformal"] = lambda: warm()[0]
            each["conditionalconformal"] = (float(some), once / n)
            times = race(runs, scale.turns)
    except MissingError as missing:
        absent.append(Entry("conditionalconformal", why_not=str(missing)))
        runs.pop("conditionalconformal", None)
        times = race(runs, scale.turns)
    times = {name: timing.each(*each[name]) for name, timing in times.items()}
    limits = {"the paper's bisection": 1e4, "MAPIE conditional": 1e3, "conditionalconformal": 1e3}
    targets = [
        at_least(
            f"{peer} / gcfcp, a point", Ratio.of(times[peer], times["gcfcp, pooled data"]), limit
        )
        for peer, limit in limits.items()
        if peer in times
    ]
    return [
        Case(
            "points",
            "a test point, calibration included",
            f"{n:,} records, 4 groups, {n:,} test points with 10 labels",
            tuple(Entry(k, t) for k, t in times.items()) + tuple(absent),
            tuple(targets),
            tuple(checks),
            (
                "times are for one test point; what is paid once is shared by all test points",
                "peers can only take pooled data, and so does the contestant that is judged",
                "sets without compression equal the peers'; with delta = 250, a share of "
                f"{agreement:.4f} of all labels is decided alike",
            ),
        )
    ]


def _bisection_check(scores: data.Floats, membership: data.Bools, row: data.Bools) -> str:
    precision = 1e-5
    found = float(gcfcp.methods.condcp([(scores, membership)], NO_TIES).thresholds(row[None])[0])
    exact = bisection(scores, membership, np.ones(len(scores)), 1.0, NO_TIES, row, precision)
    return check(
        exact - 2 * precision * 2 * scores.max() <= found <= exact + 1e-9,
        "a threshold lies in the bisection's last bracket",
    )


# --- growth --------------------------------------------------------------------------------------


def _coreset(problem: data.Scored) -> Coreset:
    """Raw records as the solver takes them: by atom, in ascending order."""
    weights, test = np.ones(len(problem.scores)), 1.0
    atoms = find_atoms(problem.membership)
    order = np.lexsort((problem.scores, atoms.index))
    start = np.concatenate([[0], np.cumsum(atoms.counts)])
    values = problem.scores[order]
    rises = np.diff(values) > 0
    rises[start[1:-1] - 1] = True
    if not rises.all():  # equal scores of an atom: one breakpoint
        first = np.concatenate([[0], np.flatnonzero(rises) + 1])
        weights = np.diff(np.append(first, len(values))).astype(float)
        values, start = values[first], np.searchsorted(first, start)
    return Coreset(atoms.membership, start.astype(np.int64), values, weights, test)


def _solve(coreset: Coreset, rows: data.Bools) -> list[float]:
    solver = Solver(coreset, Fraction(1, 10))
    return [solution.threshold for solution in solver.solve(rows)]


def _solve_all(coreset: Coreset) -> list[float]:
    return _solve(coreset, coreset.membership)


def growth_with_records(scale: Scale) -> list[Case]:
    counts = (4_000, 40_000) if scale.quick else (40_000, 400_000, 4_000_000)
    coresets = {n: _coreset(data.imagenet_sized(n, seed=8)) for n in counts}
    small = data.imagenet_sized(counts[0], seed=8)
    found = _solve_all(coresets[counts[0]])
    for i in range(0, 50, 10):
        row = coresets[counts[0]].membership[i]
        exact = plain_lp(small.scores, small.membership, np.ones(counts[0]), 1.0, ALPHA, row)
        check(_agree(found[i], exact), f"threshold {found[i]} is the LP's {exact}")
    runs = {f"n = {n:,}": lambda c=c: _solve_all(c) for n, c in coresets.items()}
    times = race(runs, scale.turns)
    ratio = _ratio(times, len(times) - 1, 0)
    return [
        Case(
            "records",
            "solver, growth with records",
            "15 groups, 50 atoms, all thresholds, exact; scores sorted by atom beforehand",
            tuple(Entry(k, t) for k, t in times.items()),
            (at_most(f"time, n = {counts[-1]:,} / n = {counts[0]:,}", ratio, 3),),
            (f"every 10th threshold at n = {counts[0]:,} equals a plain LP over all records",),
        )
    ]


def growth_with_groups(scale: Scale) -> list[Case]:
    families = (4, 16) if scale.quick else (4, 16, 64, 256)
    n, most = scale.size(40_000, 2_000), scale.size(1_000, 60)
    entries, targets = [], []
    for G in families:
        problem = data.overlapping(n, groups=G, atoms=most, seed=9)
        coreset = _coreset(problem)
        atoms = len(coreset.membership)

        def one_lp(row: data.Bools, problem: data.Scored = problem) -> float:
            return plain_lp(problem.scores, problem.membership, np.ones(n), 1.0, ALPHA, row)

        some = [0, atoms // 2]
        checked = _solve(coreset, coreset.membership[some])
        for i, threshold in zip(some, checked, strict=True):
            exact = one_lp(coreset.membership[i])
            check(_agree(threshold, exact, 1e-6), f"threshold {threshold} is the LP's {exact}")
        solved: list[list[float]] = []
        times = race(
            {
                "all": lambda c=coreset, solved=solved: solved.append(_solve_all(c)),
                "one": lambda c=coreset: _solve(c, c.membership[:1]),
                "lp": lambda one_lp=one_lp, row=coreset.membership[0]: one_lp(row),
            },
            # All thresholds of 256 groups take minutes.
            scale.turns if G < 64 else 3 if G < 256 else 1,
        )
        check(all([f[i] for i in some] == checked for f in solved), "checked ones are as timed")
        found = solved[0]
        finite = float(np.isfinite(found).mean())
        each = times["all"].each(atoms)
        contestants = {
            f"gcfcp, {G} groups, one threshold alone": (times["one"], times["one"], {}),
            f"gcfcp, {G} groups, each of all": (
                times["all"],
                each,
                {"atoms": atoms, "finite": finite},
            ),
            f"plain LP, {G} groups, one threshold": (times["lp"], times["lp"], {}),
        }
        entries += [
            Entry(name, whole, figures={"ms a threshold": one.median * 1e3, **figures})
            for name, (whole, one, figures) in contestants.items()
        ]
        targets += [
            at_most(f"{what} / one plain LP, {G} groups", Ratio.of(time_of, times["lp"]), 1)
            for what, time_of in (("one threshold alone", times["one"]), ("each of all", each))
        ]
    return [
        Case(
            "groups",
            "solver, growth with groups",
            f"{n:,} records, up to {most:,} atoms, all thresholds, exact",
            tuple(entries),
            tuple(targets),
            ("two thresholds of each family equal a plain LP over all records",),
        )
    ]
