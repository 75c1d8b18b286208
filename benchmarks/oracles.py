"""What the solver is raced against and checked with: the plain LP and the paper's bisection.

Both take raw records with their weights lambda_k, and the weight and membership row of the test
point. Neither uses atoms. Weights are scaled to a large total, far above the tolerances of an LP
solver.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from benchmarks.data import Bools, Floats

_TOTAL = 1e6  # All weights together are scaled to this total.
_STEP = 1e-8  # This share of the total is far below the weight of a record and above a tolerance.
WAYS = ("plain", "sparse", "interior point")
"""How HiGHS can be asked: its own choice on a full matrix, the same on a sparse one, or its
interior point method on a sparse one. Which is fastest depends on the size."""

_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def plain_lp(
    scores: Floats,
    membership: Bools,
    weights: Floats,
    test: float,
    alpha: float,
    row: Bools,
    way: str = "plain",
) -> float:
    """S* of one test point from one LP over all n records, in one of `WAYS`.

    v(t) = max { sum_i eta_i S_i : sum_i eta_i Phi_i = -t Phi_test, eta in the boxes } has the
    derivative -beta' Phi_test, and S* is that at t = (1 - alpha) w_test from the left.
    """
    matrix = membership.T.astype(float)
    unit = _TOTAL / (weights.sum() + test)
    t = (1 - alpha) * test * unit - _STEP * _TOTAL
    solved = linprog(
        -scores,
        A_eq=matrix if way == "plain" else csr_array(matrix),
        b_eq=-t * row,
        bounds=np.outer(weights * unit, [-alpha, 1 - alpha]),
        method="highs-ipm" if way == "interior point" else "highs",
        options=_OPTIONS,
    )
    if solved.status == 2:
        return math.inf
    if solved.status:
        raise ArithmeticError(solved.message)
    return float(-solved.eqlin.marginals @ row)


def bisection(
    scores: Floats,
    membership: Bools,
    weights: Floats,
    test: float,
    alpha: float,
    row: Bools,
    precision: float = 1e-3,
) -> float:
    """S* as the paper computes it (its appendix on the dual, after Gibbs et al., Algorithm 1).

    The bisection searches for the largest S at which the test point's dual variable is below
    (1 - alpha) w_test. Each step solves the dual over all n records and the test point. The search
    goes from the smallest score to twice the largest, until `precision` of that range is left. The
    default needs ten steps, and every further digit more than three.
    """
    unit = _TOTAL / (weights.sum() + test)
    A = np.vstack([membership, row]).T.astype(float)
    bounds = np.outer(np.append(weights, test) * unit, [-alpha, 1 - alpha])
    none = np.zeros(len(A))

    def at_its_bound(S: float) -> bool:
        solved = linprog(-np.append(scores, S), A_eq=A, b_eq=none, bounds=bounds, options=_OPTIONS)
        if solved.status:
            raise ArithmeticError(solved.message)
        return bool(solved.x[-1] >= (1 - alpha) * test * unit - _STEP * _TOTAL)

    low, high = float(scores.min()), 2 * float(scores.max())
    tolerance = precision * (high - low)
    if not at_its_bound(high):
        return math.inf
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if at_its_bound(middle) else (middle, high)
    return high
