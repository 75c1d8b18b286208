"""How much work a threshold takes: how many pivots, and that floats suffice for ordinary data.

The exact judge mends whatever the floats get wrong, so a broken start, a broken long step or a
certificate that doubts everything would change no threshold. They show here.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import oracles
from gcfcp.solver import Coreset, Solver
from gcfcp.solver.problem import pieces_of
from gcfcp.solver.start import near_optimum
from gcfcp.solver.vertex import Walk, factorise, locate
from gcfcp.solver.walk import descend

ALPHA = Fraction(1, 10)
CLIENTS = 5


def scores_of(kind: str, smooth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return {
        "continuous": smooth,
        "two decimals": np.round(smooth, 2),
        "integers": np.rint(20 * smooth),
        "single precision": smooth.astype(np.float32).astype(float),
        "some infinite": np.where(rng.random(len(smooth)) < 0.02, np.inf, smooth),
    }[kind]


def federation(groups: int, kind: str, mixture: str, n: int = 2000, seed: int = 0) -> Coreset:
    """Some 100 atoms, an 'everyone' group, and five clients under one of three mixtures."""
    rng = np.random.default_rng(seed)
    atoms = rng.random((100, groups)) < min(0.5, 5 / groups)
    atoms[np.arange(100), rng.integers(groups, size=100)] = True
    atoms[:, 0] = True
    membership = atoms[rng.integers(100, size=n)]
    scores = scores_of(kind, rng.gamma(2.0, 1 + membership @ rng.random(groups)), rng)
    client = rng.integers(CLIENTS, size=n)
    sizes = np.bincount(client, minlength=CLIENTS)
    pi = {"uniform": np.full(CLIENTS, 1 / CLIENTS), "proportional": sizes / n}
    if mixture == "one client":
        return oracles.coreset(scores, membership, np.ones(n), 1.0)
    weight = pi[mixture] / (sizes + 1)
    return oracles.coreset(scores, membership, weight[client], weight.sum())


KINDS = ["continuous", "two decimals", "integers", "single precision", "some infinite"]
# All thresholds together take at most so many pivots: a tenth more than they take now.
MOST_PIVOTS = {
    (4, "one client"): 18,
    (4, "uniform"): 60,
    (4, "proportional"): 51,
    (16, "one client"): 1050,
    (16, "uniform"): 2700,
    (16, "proportional"): 2620,
    (64, "one client"): 1430,
    (64, "uniform"): 8200,
    (64, "proportional"): 8050,
}


@pytest.mark.few(3)
@pytest.mark.parametrize(("groups", "mixture"), MOST_PIVOTS)
def test_ordinary_data_take_few_pivots_and_no_judge(groups, mixture):
    for kind in KINDS if groups < 64 else KINDS[1:2]:
        solver = Solver(federation(groups, kind, mixture), ALPHA)
        found = solver.solve(solver.coreset.membership)
        assert not any(s.judged for s in found)
        assert 0 < sum(s.pivots for s in found) <= MOST_PIVOTS[groups, mixture]


def test_the_judge_is_asked_where_floats_cannot_tell():
    """Scaled so that sums of 1e300 do not overflow, 5e-324 is zero."""
    scores = np.array([5e-324, 1e300] * 20)
    membership = np.array([[1, 0], [1, 0], [1, 1], [1, 1]] * 10, dtype=bool)
    solver = Solver(oracles.coreset(scores, membership, np.ones(40), 1.0), Fraction(1, 5))
    assert all(s.bounded and s.judged for s in solver.solve(solver.coreset.membership))


def test_a_row_that_no_score_limits_is_not_judged():
    solver = Solver(oracles.coreset([1.0, 2.0], np.eye(2), np.ones(2), 1), ALPHA)
    found = solver.solve(np.array([[1, 0], [0, 0]], dtype=bool))
    assert [(s.bounded, s.judged) for s in found] == [(False, False)] * 2


def first_walk(coreset: Coreset) -> int:
    """The pivots from the first guess to the optimum without a test point."""
    pieces, columns, _ = pieces_of(coreset, ALPHA)
    guess = near_optimum(pieces)
    none = np.zeros((1, len(columns)))
    walk = Walk.begun(guess.basis[None], guess.at[None], np.zeros(1))
    factorise(pieces, walk, none)
    locate(pieces, walk)
    return int(descend(pieces, walk, none)[1][0])


@pytest.mark.few(1)
@pytest.mark.parametrize(("groups", "most"), [(4, 14), (16, 65), (64, 230)])
def test_the_first_guess_leaves_few_pivots(groups, most):
    """With 20,000 scores the walk to the first optimum takes little more than one for each group;
    a tenth more than it takes now is allowed."""
    kinds = ("continuous", "two decimals", "some infinite")
    found = [first_walk(federation(groups, kind, "uniform", n=20_000)) for kind in kinds]
    assert sum(found) <= most
