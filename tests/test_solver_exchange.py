"""How high a threshold can get if one record is exchanged, against linear programs on the way."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from gcfcp.solver import EXCESS, Coreset, Solver, combined

ALPHAS = [Fraction(1, 10), Fraction(1, 5), Fraction(1, 2), Fraction(3, 5)]


def problem(seed):
    """A random coreset of up to ten atoms, its alpha, and the weight of its heaviest record."""
    rng = np.random.default_rng(seed)
    rows = np.array(list(itertools.product([0, 1], repeat=int(rng.integers(2, 6)))))[1:]
    rows = rows[rng.permutation(len(rows))[: rng.integers(2, min(len(rows), 10) + 1)]]
    n = int(rng.integers(15, 50))
    chosen = rng.choice(len(rows), n, p=rng.dirichlet(np.ones(len(rows))))
    scores = 3 * rng.normal(size=n)
    if seed % 3 == 0:
        scores = np.rint(scores)
    weights = np.ones(n) if seed % 2 else rng.uniform(0.2, 1, n)
    atoms, index = np.unique(rows[chosen], axis=0, return_inverse=True)
    order = np.lexsort((scores, index.ravel()))
    atom, values, masses = combined(index.ravel()[order], scores[order], weights[order])
    start = np.append(np.searchsorted(atom, np.arange(len(atoms))), len(atom))
    return Coreset(atoms.astype(bool), start, values, masses, 1.0), ALPHAS[seed % 4], weights.max()


def theta(core, alpha, u, row):
    """theta of a row in some optimum for the right side u; infinite if there is none."""
    atom = np.repeat(np.arange(len(core.membership)), np.diff(core.start))
    phi, n = core.membership[atom].astype(float), len(atom)
    a = float(alpha)
    solved = linprog(
        np.concatenate([-u, (1 - a) * core.weights, a * core.weights]),
        A_eq=np.hstack([phi, np.eye(n), -np.eye(n)]),
        b_eq=core.values,
        bounds=[(None, None)] * phi.shape[1] + [(0, None)] * (2 * n),
    )
    return float(row @ solved.x[: phi.shape[1]]) if solved.status == 0 else np.inf


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
def test_no_exchange_leads_higher_and_some_exchange_leads_there(seed):
    core, alpha, omega = problem(seed)
    rows, a = core.membership, float(alpha)
    found = Solver(core, alpha).highest(rows, np.full(len(rows), omega))
    parts = np.concatenate([-(1 - a) * np.array([1, 0.7, 0.3]), a * np.array([0, 0.05, 0.5, 1])])
    for row, high in zip(rows.astype(float), found, strict=True):
        if not np.isfinite(high):
            continue
        reached = [
            theta(core, alpha, omega * ((1 - a) * (1 + EXCESS) * row + s * other), row)
            for other in rows.astype(float)
            for s in parts
        ]
        assert max(reached) == pytest.approx(high, abs=1e-7)


@pytest.mark.parametrize("seed", range(24))
def test_the_bound_by_gamma_is_never_below(seed):
    """What an exchange can do lies between the threshold of one record and that of the bound."""
    from gcfcp.groups import imbalances
    from gcfcp.thresholds import swing

    core, alpha, omega = problem(seed)
    rows, solver = core.membership, Solver(core, alpha)
    found = solver.highest(rows, np.full(len(rows), omega))
    for row, high, imbalance in zip(rows, found, imbalances(rows, rows), strict=True):
        bound = omega * float(1 + swing(imbalance, alpha)) * (1 + EXCESS)
        one, many = (
            solver.solve(row[None], solver.t_of(np.array([w])))[0].threshold for w in (omega, bound)
        )
        assert one <= high <= many


def test_a_row_outside_of_the_span_is_limited_by_nothing():
    core = Coreset(np.array([[True, False]]), np.array([0, 20]), np.arange(20.0), np.ones(20), 1.0)
    rows = np.array([[True, False], [False, True]])
    found = Solver(core, Fraction(1, 10)).highest(rows, np.ones(2))
    # 0.9 * 20 + 0.9 + 0.1 = 19 scores are asked for, and a little more: the largest of 20.
    assert found.tolist() == [19.0, np.inf]
