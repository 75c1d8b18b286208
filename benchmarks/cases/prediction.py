"""Prediction sets and thresholds of rows, beside the bare NumPy operations that do the same."""

from __future__ import annotations

import numpy as np

import gcfcp
from benchmarks import data
from benchmarks.measure import Case, Entry, Ratio, Scale, at_most, check, race


def prediction(scale: Scale) -> list[Case]:
    """Prediction sets of many labels and of few rows, and the lookup of many thresholds."""
    return [_sets(scale), _few_rows(scale), _thresholds(scale)]


def _sets(scale: Scale) -> Case:
    """Prediction sets, beside one bare comparison of all probabilities."""
    n, L = scale.size(10_000, 500), scale.size(1_000, 100)
    rng = np.random.default_rng(3)
    probabilities = rng.dirichlet(np.full(L, 0.05), size=n)
    problem = data.imagenet_sized(n, seed=3, clients=1)
    thr = gcfcp.scores.THR()
    summary = gcfcp.summarize(
        thr.of(probabilities, rng.integers(L, size=n)),
        problem.membership,
        groups=problem.groups,
        client="a",
        score=thr,
    )
    predictor = gcfcp.Predictor(thr, gcfcp.calibrate([summary], 0.2))
    thresholds = predictor.thresholds(problem.membership)[:, None]
    least = 1.0 - thresholds

    def ours() -> data.Bools:
        return predictor.predict_set(probabilities, problem.membership)

    what = "sets equal {y : 1 - p_y <= threshold}, computed score by score"
    checked = check(np.array_equal(ours(), 1.0 - probabilities <= thresholds), what)
    times = race({"bare comparison": lambda: probabilities >= least, "gcfcp": ours}, scale.turns)
    ratio = Ratio.of(times["gcfcp"], times["bare comparison"])
    return Case(
        "sets",
        "prediction sets",
        f"{n:,} rows x {L:,} labels, 15 groups, float64",
        tuple(Entry(name, t) for name, t in times.items()),
        (at_most("time of p >= 1 - t x", ratio, 3),),
        (checked,),
    )


def _few_rows(scale: Scale) -> Case:
    """One row and small batches, as a service asks for them, beside one bare comparison."""
    L, often = 10, scale.size(2_000, 20)
    rng = np.random.default_rng(5)
    problem = data.imagenet_sized(2_000, seed=5, clients=1)
    probabilities = rng.dirichlet(np.full(L, 0.5), size=len(problem.scores))
    thr = gcfcp.scores.THR()
    summary = gcfcp.summarize(
        thr.of(probabilities, rng.integers(L, size=len(probabilities))),
        problem.membership,
        groups=problem.groups,
        client="a",
        score=thr,
    )
    made = gcfcp.Predictor(thr, gcfcp.calibrate([summary], 0.2))
    predictor = gcfcp.Predictor.from_json(made.to_json(coreset=True))  # As a service loads it.
    runs, same = {}, True
    for n in (1, 10, 100):
        p, m = probabilities[:n].copy(), problem.membership[:n].copy()
        t = predictor.thresholds(m)[:, None]
        same &= np.array_equal(predictor.predict_set(p, m), 1.0 - p <= t)
        rows = f"{n} row{'s' * (n > 1)}"
        runs[f"gcfcp, {rows}"] = lambda p=p, m=m: [
            predictor.predict_set(p, m) for _ in range(often)
        ]
        runs[f"bare comparison, {rows}"] = lambda p=p, t=t: [p >= 1.0 - t for _ in range(often)]
    checked = check(same, "sets equal {y : 1 - p_y <= threshold}, computed score by score")
    times = {name: timing.each(often) for name, timing in race(runs, scale.turns).items()}
    return Case(
        "rows",
        "prediction sets of few rows",
        f"{L} labels, 15 groups, a predictor from its file",
        tuple(Entry(name, t) for name, t in times.items()),
        (
            at_most("1 row, microseconds", times["gcfcp, 1 row"].median * 1e6, 15),
            at_most("10 rows, microseconds", times["gcfcp, 10 rows"].median * 1e6, 30),
            at_most("100 rows, microseconds", times["gcfcp, 100 rows"].median * 1e6, 60),
        ),
        (checked,),
    )


def _thresholds(scale: Scale) -> Case:
    """The thresholds of rows, beside a lookup by hand."""
    n = scale.size(10**6, 10**4)
    problem = data.overlapping(n, groups=16, atoms=200, seed=4)
    summary = gcfcp.summarize(
        problem.scores, problem.membership, groups=problem.groups, client="a", delta=100
    )
    calibration = gcfcp.calibrate([summary], 0.2)
    by_atom = {
        row.tobytes(): threshold
        for row, threshold in zip(
            calibration.threshold_table.membership,
            calibration.threshold_table.thresholds_by_atom,
            strict=True,
        )
    }

    def ours() -> data.Floats:
        return calibration.thresholds(problem.membership)

    table = np.full(2**16, np.nan)
    for row, threshold in by_atom.items():
        key = np.packbits(np.frombuffer(row, dtype=bool)).view(np.uint16)[0]
        table[key] = threshold

    def by_hand() -> data.Floats:
        found: data.Floats = table[np.packbits(problem.membership.reshape(-1)).view(np.uint16)]
        return found

    what = "every row gets its atom's threshold, looked up by hand"
    checked = check(np.array_equal(ours(), by_hand()), what)
    runs = {
        "gcfcp": ours,
        "by hand: bits packed flat, one look into a table": by_hand,
        "np.packbits by row": lambda: np.packbits(problem.membership, axis=1),
    }
    times = race(runs, scale.turns)
    targets = [
        at_most(f"time / {name}", Ratio.of(times["gcfcp"], times[name]), 3)
        for name in runs
        if name != "gcfcp"
    ]
    return Case(
        "lookup",
        "thresholds of rows",
        f"{n:,} rows x 16 groups, 200 atoms",
        tuple(Entry(name, t) for name, t in times.items()),
        tuple(targets),
        (checked,),
    )
