"""Thresholds computed in other ways, which are short, slow and easy to check.

None of them uses gcfcp's solver. All take raw records: `scores` (n,), `membership` (n, G),
`weights` (n,), the weight of the test point, alpha, and the membership `row` (G,) of the test
point. They return S*.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

from gcfcp.solver import Coreset

TIGHT = {
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}
TOTAL = 1e6  # Weights are scaled to this total, far above the tolerances of an LP solver.
STEP = 1e-8  # This share of the total is far below the weight of a record and above a tolerance.


def coreset(scores, membership, weights, test_weight):
    """The raw records as a Coreset: atoms in lexical order, equal scores of an atom as one."""
    scores, weights = np.asarray(scores, dtype=float), np.asarray(weights, dtype=float)
    atoms, atom = np.unique(np.asarray(membership, dtype=bool), axis=0, return_inverse=True)
    values, sums, start = [], [], [0]
    for a in range(len(atoms)):
        own = atom.ravel() == a
        distinct, which = np.unique(scores[own], return_inverse=True)
        values.append(distinct)
        sums.append(np.bincount(which, weights[own]))
        start.append(start[-1] + len(distinct))
    return Coreset(
        atoms, np.array(start), np.concatenate(values), np.concatenate(sums), float(test_weight)
    )


def _scaled(scores, weights, test_weight):
    """Scores scaled to a largest size of 1, weights scaled to TOTAL, and the scores' scale."""
    size = float(np.max(np.abs(scores))) or 1.0
    unit = TOTAL / (np.sum(weights) + test_weight)
    return np.asarray(scores) / size, np.asarray(weights) * unit, test_weight * unit, size


def _solved(objective, A, b, bounds):
    """Solve one LP. HiGHS in older SciPy fails on some LPs, so other options are tried then."""
    for options in (TIGHT, {**TIGHT, "presolve": False}, {}):
        solved = linprog(objective, A_eq=A, b_eq=b, bounds=bounds, options=options)
        if solved.status in (0, 2):
            break
    return solved


def paper_bisection(scores, membership, weights, test_weight, alpha, row, steps=46):
    """S* as in the paper's appendix: the largest S whose (P1) has eta_test < (1 - alpha) w_test.

    (P1): max sum_i eta_i S_i + S eta_test  s.t.  sum_i eta_i Phi_i + eta_test Phi_test = 0,
    where each eta lies between -alpha w and (1 - alpha) w.
    """
    scores, weights, test_weight, size = _scaled(scores, weights, test_weight)
    alpha = float(alpha)
    w = np.append(weights, test_weight)
    A = np.vstack([membership, row]).astype(float).T
    bounds = np.column_stack([-alpha * w, (1 - alpha) * w])

    def at_its_bound(S):
        solved = _solved(-np.append(scores, S), A, np.zeros(len(A)), bounds)
        assert solved.status == 0, solved.message
        return solved.x[-1] >= (1 - alpha) * test_weight - STEP * TOTAL

    # |S*| = |sum_b c_b s_b| is at most G max|c|, and |c| is small for the few groups of a test.
    low, high = -32.0 * len(A), 32.0 * len(A)
    if not at_its_bound(high):
        return math.inf
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if at_its_bound(middle) else (middle, high)
    return high * size


def dual_lp(scores, membership, weights, test_weight, alpha, row):
    """S* = -v'(u-), the left derivative at u = (1 - alpha) w_test, from one LP just below u.

    Here v(t) = max { sum_i eta_i S_i : sum_i eta_i Phi_i = -t Phi_test }, and beta is the
    derivative of v in its right side. linprog minimises -v, so its marginals are -beta.
    """
    scores, weights, test_weight, size = _scaled(scores, weights, test_weight)
    alpha = float(alpha)
    row = np.asarray(row, dtype=float)
    t = (1 - alpha) * test_weight - STEP * TOTAL
    bounds = np.column_stack([-alpha * weights, (1 - alpha) * weights])
    solved = _solved(-scores, np.asarray(membership, dtype=float).T, -t * row, bounds)
    if solved.status == 2:
        return math.inf
    assert solved.status == 0, solved.message
    return float(-solved.eqlin.marginals @ row) * size


def _reduce(rows):
    """The reduced row echelon form in rational numbers, and the pivot columns."""
    rows = [[Fraction(x) for x in row] for row in rows]
    pivots = []
    for column in range(len(rows[0]) if rows else 0):
        rank = len(pivots)
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        rows[rank] = [x / rows[rank][column] for x in rows[rank]]
        for i in range(len(rows)):
            if i != rank and rows[i][column]:
                factor = rows[i][column]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[rank], strict=True)]
        pivots.append(column)
    return rows, pivots


def _exact(x):
    """x as a Fraction of Python's integers. NumPy's integers would overflow silently."""
    return Fraction(x.item() if isinstance(x, np.generic) else x)


def _dot(x, y):
    """The exact inner product."""
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def brute_force(scores, membership, weights, test_weight, alpha, row):
    """S* as a Fraction (or math.inf), by looking at every vertex and every ray.

    The objective is h(beta) = sum_i w_i pinball(S_i - beta' Phi_i) - t beta' Phi_test with
    t = (1 - alpha) w_test. If h falls without end along a ray, S* is infinite. Otherwise S* is the
    smallest beta' Phi_test over the vertices where h is smallest. `weights`, `test_weight` and
    `alpha` are used as the exact numbers that they are. Give Fractions where ties must be exact.
    """
    phi = [[int(x) for x in m] for m in membership]
    row = [int(x) for x in row]
    rank = len(_reduce(phi)[1])
    if len(_reduce([*phi, row])[1]) > rank or not any(row):
        return math.inf
    columns = _reduce(phi)[1]  # These columns are independent, and the others depend on them.
    phi, row = [[m[j] for j in columns] for m in phi], [row[j] for j in columns]
    weights, alpha = [_exact(w) for w in weights], _exact(alpha)
    t = (1 - alpha) * _exact(test_weight)
    scores = [_exact(s) for s in scores]

    def h(beta, scores):
        loss = Fraction(0)
        for m, s, w in zip(phi, scores, weights, strict=True):
            residual = s - _dot(beta, m)
            loss += w * ((1 - alpha) * residual if residual > 0 else -alpha * residual)
        return loss - t * _dot(beta, row)

    atoms = sorted({tuple(m) for m in phi})
    zeros = [Fraction(0)] * len(scores)
    # Along a ray h grows as it would if all scores were zero.
    for few in itertools.combinations(atoms, rank - 1):
        reduced, pivots = _reduce(few)
        if len(pivots) < rank - 1:
            continue
        free = next(j for j in range(rank) if j not in pivots)
        ray = [Fraction(0)] * rank
        ray[free] = Fraction(1)
        for i, j in enumerate(pivots):
            ray[j] = -reduced[i][free]
        if min(h(ray, zeros), h([-x for x in ray], zeros)) < 0:
            return math.inf

    best, smallest = None, Fraction(0)
    for vertex in itertools.combinations(
        sorted(set(zip(map(tuple, phi), scores, strict=True))), rank
    ):
        reduced, pivots = _reduce([[*m, s] for m, s in vertex])
        if pivots != list(range(rank)):
            continue
        beta = [r[-1] for r in reduced]
        value, theta = h(beta, scores), _dot(beta, row)
        if best is None or (value, theta) < (best, smallest):
            best, smallest = value, theta
    return smallest


def rounded_up(exact):
    """The smallest float that is not below `exact`."""
    if exact == math.inf:
        return math.inf
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
