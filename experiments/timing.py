"""What one test point costs: with the paper's bisection over linear programs, and with our table.

The paper (appendix D) finds S* of each test point by bisection. Each step solves the dual (P1), a
linear program with one variable for every score of the problem. For thousands of points this would
take hours, so a few points are timed and their mean is reported. Times are processor times, which
other programs on the machine disturb least.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import methods
from gcfcp.solver import Coreset

STEPS = 50  # The bisection has as many steps as in the authors' script.


def bisection(coreset: Coreset, alpha: float, row: NDArray[np.bool_]) -> float:
    """S* by bisection: the smallest S whose (P1) has eta_test at its upper bound.

    The search ends after 50 steps, or when the bracket is narrower than 1e-7.
    """
    from scipy.optimize import linprog

    weights = np.append(coreset.weights, coreset.test)
    weights = weights / weights.sum() * 1e5  # The solver's tolerance does not scale with them.
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
    """The mean time of the bisection over the first rows, and its largest distance from our S*."""
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
    """The seconds for one test point of every variant, and the speed-ups.

    All variants are timed by their table, and those in `theirs` by bisection too. A speed-up is
    relative to the bisection of the first variant in `theirs`.
    """
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
