"""What one test point costs: the paper's bisection over linear programs, and our table.

The paper (appendix D) finds S* of each test point by bisection; each step solves the dual (P1), a
linear program with a variable for every score of the problem. Doing that for thousands of points
takes hours, so it is timed on a few and the mean is what a point costs. Times are processor time,
which other programs on the machine disturb least.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import methods
from gcfcp.solver import Coreset

STEPS = 50  # of the bisection, as in the authors' script


def bisection(coreset: Coreset, alpha: float, row: NDArray[np.bool_]) -> float:
    """The smallest S on a grid of 2^-50 whose (P1) has eta_test at its upper bound."""
    from scipy.optimize import linprog

    weights = np.append(coreset.weights, coreset.test)
    weights = weights / weights.sum() * 1e5  # a solver's tolerance is absolute
    rows = np.repeat(coreset.membership, np.diff(coreset.start), axis=0)
    equal = np.vstack([rows, row]).astype(np.float64).T
    bounds = np.column_stack([-alpha * weights, (1 - alpha) * weights])
    low, high = 0.0, 1.05 * float(np.abs(coreset.values).max()) + 1e-8
    for _ in range(STEPS):
        middle = (low + high) / 2
        solved: Any = linprog(  # type: ignore[call-overload]
            -np.append(coreset.values, middle),
            A_eq=equal,
            b_eq=np.zeros(len(equal)),
            bounds=bounds,
            method="highs",
        )
        if solved.status != 0:
            raise RuntimeError(f"the linear program failed: {solved.message}")
        at_bound = solved.x[-1] >= bounds[-1, 1] - 1e-7
        low, high = (low, middle) if at_bound else (middle, high)
        if high - low < 1e-7:
            break
    return high


def seconds_a_point(
    result: methods.Result, alpha: float, membership: NDArray[np.bool_], points: int
) -> tuple[float, float]:
    """Mean time of the bisection over the first `points` rows, and how far it is from our S*."""
    coreset = result.threshold_table.coreset
    assert coreset is not None
    ours = result.thresholds(membership[:points])
    started = time.process_time()
    found = [bisection(coreset, alpha, row) for row in membership[:points]]
    spent = (time.process_time() - started) / points
    return spent, float(np.max(np.abs(np.array(found) - ours)))


def speedups(
    theirs: Sequence[Any],
    ours: Sequence[Any],
    clients: Sequence[Any],
    alpha: float,
    membership: NDArray[np.bool_],
    points: int,
) -> list[dict[str, Any]]:
    """Seconds per test point, by bisection (of `theirs` alone) and by a table, against bisection
    for the first of `theirs`."""
    times: list[dict[str, Any]] = []
    for variant in [*theirs, *ours]:
        started = time.process_time()
        result = getattr(methods, variant.method)(clients, alpha, **variant.options)
        result.thresholds(membership)
        spent = (time.process_time() - started) / len(membership)
        entry = {"method": variant.key, "problem": result.problem, "table_seconds": spent}
        if variant in theirs:
            bisected, apart = seconds_a_point(result, alpha, membership, points)
            entry |= {"bisection_seconds": bisected, "largest_difference": apart}
        times.append(entry)
    reference = times[0]["bisection_seconds"]
    for entry in times:
        entry["speedup_table"] = reference / entry["table_seconds"]
        if "bisection_seconds" in entry:
            entry["speedup"] = reference / entry["bisection_seconds"]
    return times
