"""Thresholds: the whole table, the cost of a test point, and the growth with records and groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from benchmarks.oracles import WAYS, bisection, plain_lp
from benchmarks.peers import ConditionalConformal, MissingError, mapie_classifier
from gcfcp.groups import find_atoms
from gcfcp.solver import Coreset, Solver

ALPHA = 0.1
# At this alpha no (n_G + 1)(1 - alpha) is whole. If one were, there would be a tie, for which the
# peers have no rule.
NO_TIES = 0.0997


def _agree(found: float, exact: float, tolerance: float = 1e-7) -> bool:
    """Whether two thresholds are equal, up to a tolerance or both infinite."""
    return found == exact or abs(found - exact) <= tolerance * (1 + abs(exact))


def _weights(problem: data.Scored) -> tuple[data.Floats, float]:
    """The weight lambda_k of every record under the uniform mixture, and w_test."""
    counts = np.bincount(problem.client)
    rate = 1 / len(counts) / (counts + 1)
    return rate[problem.client], float(rate.sum())


def _lps(solve: Callable[[str], float], what: str) -> dict[str, Callable[[], float]]:
    """HiGHS as a contestant, in each of its ways; `solve` solves one LP in the way it is given."""
    return {f"HiGHS {way}, {what}": lambda way=way: solve(way) for way in WAYS}


def _best_lp(times: dict[str, Timing]) -> str:
    """The name of the fastest way of HiGHS."""
    return min((n for n in times if n.startswith("HiGHS ")), key=lambda n: times[n].median)


def _ways_agree(solve: Callable[[str], float], threshold: float) -> None:
    """Check that HiGHS finds this threshold in each of its ways."""
    for way in WAYS:
        found = solve(way)
        check(_agree(threshold, found, 1e-5), f"threshold {threshold} is {found} ({way})")


_BY_THE_BEST = "HiGHS solves the same LP in three ways, and is judged by the fastest"

# --- the whole table -----------------------------------------------------------------------------


def table(scale: Scale) -> list[Case]:
    """All thresholds of a problem, exact, beside one threshold by one LP at its best setting."""
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

    def one_lp(way: str) -> float:
        return plain_lp(scores, problem.membership, ones, 1.0, NO_TIES, rows[0], way)

    _ways_agree(one_lp, float(found[0]))
    runs: dict[str, Callable[[], Any]] = {"gcfcp, all atoms": ours} | _lps(one_lp, "one atom")
    absent: list[Entry] = []
    name = "conditionalconformal, one point"
    others = ("conditionalconformal, all atoms", "conditionalconformal, all atoms, already set up")
    try:
        with ConditionalConformal() as peer:
            cold = peer.problem(scores, problem.membership, rows[:1], NO_TIES, warm=False)
            whole = peer.problem(scores, problem.membership, rows, NO_TIES, warm=False)
            warm = peer.problem(scores, problem.membership, rows, NO_TIES, warm=True)
            cold()
            for threshold, cutoff in zip(found, warm()[1], strict=True):
                check(_agree(threshold, cutoff), f"threshold {threshold} is {cutoff}")
            checks.append("every threshold equals conditionalconformal's")
            runs[name] = lambda: cold()[0]
            runs[others[0]] = lambda: whole()[0]
            runs[others[1]] = lambda: warm()[0]
            times = race(runs, scale.turns)
            note = f"conditionalconformal ran on NumPy {peer.numpy} in its own process"
    except MissingError as missing:
        absent.append(Entry(name, why_not=str(missing)))
        for each in (name, *others):
            runs.pop(each, None)
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


def _imagenet(scale: Scale) -> Case:
    problem = data.imagenet_sized(scale.size(40_000, 4_000), seed=6)
    clients = problem.clients
    weights, test = _weights(problem)
    rows = np.unique(problem.membership, axis=0)

    def ours() -> gcfcp.methods.Result:
        return gcfcp.methods.centralized_gcfcp(clients, ALPHA)

    def one_lp(way: str, row: data.Bools = rows[0]) -> float:
        return plain_lp(problem.scores, problem.membership, weights, test, ALPHA, row, way)

    found = ours().thresholds(rows)
    every = scale.size(5, 10)
    for row, threshold in list(zip(rows, found, strict=True))[::every]:
        check(_agree(threshold, one_lp("plain", row)), f"threshold {threshold} is the LP's")
    _ways_agree(one_lp, float(found[0]))
    times = race({"gcfcp, all atoms": ours} | _lps(one_lp, "one atom"), scale.turns)
    best = _best_lp(times)
    return Case(
        "table-imagenet",
        "whole table, exact",
        f"ImageNet-sized: {len(problem.scores):,} records of 10 clients, 15 groups, 50 atoms",
        tuple(Entry(k, t) for k, t in times.items()),
        (at_most(f"all atoms / {best}", Ratio.of(times["gcfcp, all atoms"], times[best]), 0.2),),
        (f"every {every}th threshold equals a plain LP over all records",),
        (_BY_THE_BEST,),
    )


# --- the cost of a test point --------------------------------------------------------------------


def points(scale: Scale) -> list[Case]:
    """The time from probabilities to the prediction set of one test point.

    What is paid once is shared among all test points.
    """
    n = scale.size(5_000, 500)
    everything = data.cifar_sized(2 * n, seed=7)
    calibration = slice(0, n)
    test = slice(n, None)
    p, m = everything.probabilities, everything.membership
    thr = gcfcp.scores.THR()
    groups = gcfcp.Groups(["G1", "G2", "G3", "G4"])
    client = everything.client[calibration]
    by_client = [client == k for k in range(int(client.max()) + 1)]
    exact = 4.0 * n + 4  # With this delta, every score is a centroid of its own.

    def calibrated(clients: Sequence[Any], delta: float) -> gcfcp.Calibration:
        scores = thr.of(p[calibration], everything.labels[calibration])
        summaries = [
            gcfcp.summarize(
                scores[own],
                m[calibration][own],
                groups=groups,
                client=f"{k}",
                score=thr,
                delta=delta,
            )
            for k, own in enumerate(clients)
        ]
        # The peers solve the paper's problem, with the paper's weight of the test point.
        return gcfcp.calibrate(summaries, NO_TIES, "uniform", correction="paper")

    def sets(clients: Sequence[Any], delta: float) -> data.Bools:
        predictor = gcfcp.Predictor(thr, calibrated(clients, delta))
        return predictor.predict_set(p[test], m[test])

    ways: dict[str, tuple[Sequence[Any], float]] = {
        "gcfcp, exact": ([slice(None)], exact),
        "gcfcp, delta = 250": ([slice(None)], 250),
        "gcfcp, 5 clients, delta = 250": (by_client, 250),
    }
    for way in ways.values():
        _equals_lp(calibrated(*way))
    exact_sets = sets(*ways["gcfcp, exact"])
    agreement = float((sets(*ways["gcfcp, delta = 250"]) == exact_sets).mean())
    scores = thr.of(p[calibration], everything.labels[calibration])
    ones = np.ones(n)
    row = m[test][0]
    centroids = _centroids(calibrated(*ways["gcfcp, delta = 250"]))
    checks = [
        "every threshold of every contestant of ours equals a plain LP over its centroids",
        _bisection_check(scores, m[calibration], row),
    ]
    # Each turn has many whole calibrations, so that it takes about as long as a turn of the peers.
    often = scale.size(20, 2)
    runs: dict[str, Any] = {
        name: lambda way=way: [sets(*way) for _ in range(often)] for name, way in ways.items()
    }
    each = {name: (float(n * often), 0.0) for name in runs}
    on_records, on_centroids = "the paper's bisection, records", "the paper's bisection, centroids"
    runs[on_records] = lambda: bisection(scores, m[calibration], ones, 1.0, NO_TIES, row)
    runs[on_centroids] = lambda: bisection(*centroids, NO_TIES, row)
    each[on_records] = each[on_centroids] = (1.0, 0.0)
    some = scale.size(100, 10)
    absent = []
    try:

        def set_up() -> Callable[[data.Floats, data.Bools], data.Bools]:
            labels = everything.labels[calibration]
            peer = mapie_classifier(p[calibration], labels, m[calibration], NO_TIES)
            peer(p[test][:1], m[test][:1])
            return peer

        mapie = set_up()  # This also imports MAPIE, which is not timed.
        once = median(race({"": set_up}, 3)[""].seconds)
        found = mapie(p[test][:some], m[test][:some])
        checks.append(check(np.array_equal(found, exact_sets[:some]), "sets equal MAPIE's"))
        runs["MAPIE conditional"] = lambda: mapie(p[test][:some], m[test][:some])
        each["MAPIE conditional"] = (float(some), once / n)
    except MissingError as missing:
        absent.append(Entry("MAPIE conditional", why_not=str(missing)))
    distinct = "conditionalconformal, asked once for each distinct row"
    try:
        with ConditionalConformal() as peer:
            rows = np.unique(m[test], axis=0)
            cold = peer.problem(scores, m[calibration], row[None], NO_TIES, warm=False)
            warm = peer.problem(scores, m[calibration], m[test][:some], NO_TIES, warm=True)
            whole = peer.problem(scores, m[calibration], rows, NO_TIES, warm=False)
            once = median(cold()[0].seconds for _ in range(3))
            cutoffs = np.array(warm()[1])[:, None]
            same = np.array_equal(1.0 - p[test][:some] <= cutoffs + 1e-9, exact_sets[:some])
            checks.append(check(same, "sets equal conditionalconformal's"))
            runs["conditionalconformal"] = lambda: warm()[0]
            runs[distinct] = lambda: whole()[0]
            each["conditionalconformal"] = (float(some), once / n)
            each[distinct] = (float(n), 0.0)
            times = race(runs, scale.turns)
    except MissingError as missing:
        absent.append(Entry("conditionalconformal", why_not=str(missing)))
        for name in ("conditionalconformal", distinct):
            runs.pop(name, None)
        times = race(runs, scale.turns)
    times = {name: timing.each(*each[name]) for name, timing in times.items()}
    judged = (
        (on_records, "gcfcp, exact", 1e4),
        (on_centroids, "gcfcp, delta = 250", 1e4),
        *(
            (peer, ours, 1e3)
            for ours in ("gcfcp, exact", "gcfcp, delta = 250")
            for peer in ("MAPIE conditional", "conditionalconformal")
        ),
    )
    targets = [
        at_least(f"{peer} / {ours}, a point", Ratio.of(times[peer], times[ours]), limit)
        for peer, ours, limit in judged
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
                "the exact contestant's sets are the peers'; with delta = 250, a share of "
                f"{agreement:.4f} of all labels is decided as there",
                "a peer solves a problem for each point; where a user finds the few distinct rows "
                "by hand and asks for these alone, see the last line",
            ),
        )
    ]


def _centroids(
    calibration: gcfcp.Calibration,
) -> tuple[data.Floats, data.Bools, data.Floats, float]:
    """The scores, memberships and weights of all centroids that were calibrated, and w_test."""
    summaries = calibration.summaries
    return (
        np.concatenate([s.values for s in summaries]),
        np.concatenate([np.repeat(s.membership, np.diff(s.start), axis=0) for s in summaries]),
        np.concatenate([s.counts * calibration.shares[s.client] / (s.n + 1) for s in summaries]),
        calibration.test_weight,
    )


def _equals_lp(calibration: gcfcp.Calibration) -> None:
    """Check that each threshold equals a plain LP over all centroids."""
    alpha = float(calibration.alpha)
    centroids = _centroids(calibration)
    for row in calibration.threshold_table.membership:
        found = float(calibration.thresholds(row[None])[0])
        exact = plain_lp(*centroids, alpha, row)
        check(_agree(found, exact), f"threshold {found} is the LP's {exact}")


def _bisection_check(scores: data.Floats, membership: data.Bools, row: data.Bools) -> str:
    """Check that the threshold of a row lies in the last bracket of the paper's bisection."""
    precision = 1e-5
    found = float(gcfcp.methods.condcp([(scores, membership)], NO_TIES).thresholds(row[None])[0])
    exact = bisection(scores, membership, np.ones(len(scores)), 1.0, NO_TIES, row, precision)
    bracket = precision * (2 * scores.max() - scores.min())
    return check(
        exact - bracket - 1e-9 <= found <= exact + 1e-9,
        f"a threshold lies in the bisection's last bracket, run to {precision:g}",
    )


# --- growth --------------------------------------------------------------------------------------


def _coreset(problem: data.Scored) -> Coreset:
    """The raw records as a coreset: by atom, in ascending order, every record with weight 1."""
    weights, test = np.ones(len(problem.scores)), 1.0
    atoms = find_atoms(problem.membership)
    order = np.lexsort((problem.scores, atoms.index))
    start = np.concatenate([[0], np.cumsum(atoms.counts)])
    values = problem.scores[order]
    rises = np.diff(values) > 0
    rises[start[1:-1] - 1] = True
    if not rises.all():  # Equal scores of an atom become one score with their number as weight.
        first = np.concatenate([[0], np.flatnonzero(rises) + 1])
        weights = np.diff(np.append(first, len(values))).astype(float)
        values, start = values[first], np.searchsorted(first, start)
    return Coreset(atoms.membership, start.astype(np.int64), values, weights, test)


def _solve(coreset: Coreset, rows: data.Bools) -> list[float]:
    """The thresholds of these rows at alpha = 0.1."""
    solver = Solver(coreset, Fraction(1, 10))
    return [solution.threshold for solution in solver.solve(rows)]


def _solve_all(coreset: Coreset) -> list[float]:
    """The thresholds of all atoms of the coreset."""
    return _solve(coreset, coreset.membership)


def _is_optimal(coreset: Coreset, rows: data.Bools) -> None:
    """Check the first-order condition, which proves a threshold optimal, from the scores.

    It says that theta = Phi beta for some beta, that the gradient of each f_A lies between the
    slopes of f_A to the left and to the right of theta_A, and that the gradients add up to that of
    the test point.
    """
    alpha = Fraction(1, 10)
    solver = Solver(coreset, alpha)
    Phi = coreset.membership.astype(float)
    for row, solution in zip(rows, solver.solve(rows), strict=True):
        evidence = solver.evidence(row)
        if evidence is None or not np.isfinite(solution.threshold):
            continue
        beta = np.linalg.lstsq(Phi, evidence.theta, rcond=None)[0]
        near = np.abs(Phi @ beta - evidence.theta).max() <= 1e-9 * np.abs(evidence.theta).max()
        check(near and _agree(float(row @ beta), solution.threshold), "theta = Phi beta")
        for a, theta in enumerate(evidence.theta):
            own = slice(coreset.start[a], coreset.start[a + 1])
            values, weights = coreset.values[own], coreset.weights[own]
            margin = 1e-9 * max(abs(theta), 1e-9)
            low = weights[values < theta - margin].sum() - 0.9 * weights.sum()
            high = weights[values <= theta + margin].sum() - 0.9 * weights.sum()
            gradient = evidence.gradient[a] / alpha.denominator
            check(low - 1e-6 <= gradient <= high + 1e-6, "a gradient lies between its slopes")
        balance = evidence.gradient @ Phi - solver.t * row
        check(np.abs(balance).max() <= 1e-9 * len(coreset.values), "gradients balance")


def growth_with_records(scale: Scale) -> list[Case]:
    """The solver's time for all thresholds, for up to 4,000,000 records."""
    counts = (4_000, 40_000) if scale.quick else (40_000, 400_000, 4_000_000)
    coresets = {n: _coreset(data.imagenet_sized(n, seed=8)) for n in counts}
    small = data.imagenet_sized(counts[0], seed=8)
    found = _solve_all(coresets[counts[0]])
    for i in range(0, 50, 10):
        row = coresets[counts[0]].membership[i]
        exact = plain_lp(small.scores, small.membership, np.ones(counts[0]), 1.0, ALPHA, row)
        check(_agree(found[i], exact), f"threshold {found[i]} is the LP's {exact}")
    for coreset in coresets.values():
        _is_optimal(coreset, coreset.membership[::10])
    runs = {f"n = {n:,}": lambda c=c: _solve_all(c) for n, c in coresets.items()}
    row, ones = coresets[counts[0]].membership[0], np.ones(counts[0])

    def one_lp(way: str) -> float:
        return plain_lp(small.scores, small.membership, ones, 1.0, ALPHA, row, way)

    _ways_agree(one_lp, found[0])
    smallest = f"n = {counts[0]:,}"
    times = race({**runs, **_lps(one_lp, f"one atom, {smallest}")}, scale.turns)
    best = _best_lp(times)
    ratio = Ratio.of(times[f"n = {counts[-1]:,}"], times[f"n = {counts[0]:,}"])
    return [
        Case(
            "records",
            "solver, growth with records",
            "15 groups, 50 atoms, all thresholds, exact; scores sorted by atom beforehand",
            tuple(Entry(k, t) for k, t in times.items()),
            (
                at_most(f"time, n = {counts[-1]:,} / {smallest}", ratio, 3),
                at_most(f"{smallest} / {best}", Ratio.of(times[smallest], times[best]), 0.2),
            ),
            (
                f"every 10th threshold at n = {counts[0]:,} equals a plain LP over all records",
                "every 10th at any n is optimal, by gradients counted from the scores",
            ),
        )
    ]


def growth_with_groups(scale: Scale) -> list[Case]:
    """The solver's time for one threshold and for all, for up to 256 groups."""
    families = (4, 16) if scale.quick else (4, 16, 64, 256)
    n, most = scale.size(40_000, 2_000), scale.size(1_000, 60)
    entries, targets, wins = [], [], []
    for G in families:
        problem = data.overlapping(n, groups=G, atoms=most, seed=9)
        coreset = _coreset(problem)
        atoms = len(coreset.membership)

        def one_lp(row: data.Bools, way: str = "plain", problem: data.Scored = problem) -> float:
            return plain_lp(problem.scores, problem.membership, np.ones(n), 1.0, ALPHA, row, way)

        some = [0, atoms // 2]
        checked = _solve(coreset, coreset.membership[some])
        for i, threshold in zip(some, checked, strict=True):
            exact = one_lp(coreset.membership[i])
            check(_agree(threshold, exact, 1e-6), f"threshold {threshold} is the LP's {exact}")
        _ways_agree(lambda way, lp=one_lp, row=coreset.membership[0]: lp(row, way), checked[0])
        solved: list[list[float]] = []
        turns = scale.turns if G < 64 else min(scale.turns, 3)
        everything = {"all": lambda p=problem, s=solved: s.append(_solve_all(_coreset(p)))}
        alone = {
            "one": lambda p=problem, row=coreset.membership[:1]: _solve(_coreset(p), row),
            **{
                way: lambda one_lp=one_lp, row=coreset.membership[0], way=way: one_lp(row, way)
                for way in WAYS
            },
        }
        if G > 64:  # All thresholds take minutes. They have a turn of their own.
            times = race(everything, 1) | race(alone, turns)
        else:
            times = race(everything | alone, turns)
        check(all([f[i] for i in some] == checked for f in solved), "checked ones are as timed")
        _is_optimal(coreset, coreset.membership[:: max(1, atoms // 20)])
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
            **{
                f"HiGHS {way}, {G} groups, one threshold": (times[way], times[way], {})
                for way in WAYS
            },
        }
        best = min(WAYS, key=lambda way: times[way].median)
        entries += [
            Entry(name, whole, figures={"ms a threshold": one.median * 1e3, **figures})
            for name, (whole, one, figures) in contestants.items()
        ]
        targets += [
            at_most(f"{what} / HiGHS {best}, {G} groups", Ratio.of(time_of, times[best]), 1)
            for what, time_of in (("one threshold alone", times["one"]), ("each of all", each))
        ]
        share = Ratio.of(times[best], times["one"]).median
        wins += [f"{G} groups ({best}, in {share:.2f} of the time)"] if share < 1 else []
    sizes = ", ".join(map(str, families))
    return [
        Case(
            "groups",
            "solver, growth with groups",
            f"{n:,} records, up to {most:,} atoms, all thresholds, exact",
            tuple(entries),
            tuple(targets),
            (
                "two thresholds of each family equal a plain LP over all records",
                "twenty of each are optimal, by gradients counted from the scores",
            ),
            (f"{_BY_THE_BEST} for each number of groups",),
            (
                "For one threshold alone, HiGHS at its best setting is faster than gcfcp with "
                + (", ".join(wins) or f"none of these numbers of groups: {sizes}"),
            ),
        )
    ]
