"""The start of the simplex: any vertex will do, a near one is better."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfcp.solver import Solver
from gcfcp.solver.problem import Coreset, pieces_of
from gcfcp.solver.start import near_optimum

SCALES = (1.0, 1e-300, 5e-324, 1e300, 2.0**-1060)


@st.composite
def coresets(draw) -> Coreset:
    groups = draw(st.integers(1, 4))
    membership = draw(
        st.lists(
            st.tuples(*[st.booleans()] * groups).filter(any), min_size=1, max_size=6, unique=True
        )
    )
    scale, shift = draw(st.sampled_from(SCALES)), draw(st.sampled_from((0.0, 1.0, -3.0, 1e12)))
    finite = st.integers(-9, 9).map(lambda k: float(k * scale + shift))
    parts = [
        sorted(set(draw(st.lists(finite, max_size=9)))) + draw(st.sampled_from(([], [np.inf])))
        for _ in membership
    ]
    parts = [part or [draw(finite)] for part in parts]
    sizes = [len(part) for part in parts]
    weights = st.sampled_from((1.0, 3.0, 1e-12, 2.0**40))
    return Coreset(
        np.array(membership),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate(parts),
        np.array(draw(st.lists(weights, min_size=sum(sizes), max_size=sum(sizes)))),
        1.0,
    )


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(coresets())
def test_it_is_a_vertex_whatever_the_scores(coreset):
    """Independent atoms, as many as there are, each on a breakpoint that it has."""
    pieces, columns, _ = pieces_of(coreset, Fraction(1, 10))
    found = near_optimum(pieces)
    basis, at = found.basis, found.at
    assert len(basis) == len(columns) == np.linalg.matrix_rank(coreset.membership.astype(float))
    assert np.linalg.matrix_rank(pieces.rows[basis]) == len(basis)
    assert ((at >= 0) & (at < pieces.size)).all()


SHAPES = {
    "gamma": lambda rng, size: rng.gamma(2.0, 1.0 + rng.random((size[0], 1)), size=size),
    "heavy tails": lambda rng, size: rng.standard_cauchy(size) ** 3,
    "many orders of magnitude": lambda rng, size: np.exp(10 * rng.normal(size=size)),
    "a gap at the optimum": lambda rng, size: rng.random(size) + 1e9 * (rng.random(size) < 0.1),
    "one enormous": lambda rng, size: np.where(np.arange(size[1]) == 7, 1e100, rng.random(size)),
}


def _four_atoms(values: np.ndarray) -> Coreset:
    membership = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=bool)
    n = values.shape[1]
    ascending = np.sort(values, axis=1)
    return Coreset(membership, np.arange(5) * n, ascending.ravel(), np.ones(4 * n), 1.0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_near_the_optimum(shape, seed):
    """With many scores, few of them lie between the start and the optimum."""
    n = 5_000
    coreset = _four_atoms(SHAPES[shape](np.random.default_rng(seed), (4, n)))
    found = near_optimum(pieces_of(coreset, Fraction(1, 10))[0])
    assert found.close
    optimum = Solver(coreset, Fraction(1, 10)).evidence(coreset.membership[0])
    assert optimum is not None
    exact = [
        np.searchsorted(coreset.values[i * n : (i + 1) * n], theta)
        for i, theta in enumerate(optimum.theta)
    ]
    assert np.abs(found.at - exact)[found.basis].max() <= 0.02 * n


def test_where_it_is_not_near_it_says_so():
    """Atoms whose scores differ by many orders of magnitude: no width of the windows is right for
    all of them. The solver then goes from coarse to fine and arrives all the same."""
    rng = np.random.default_rng(0)
    scale = np.array([1e-6, 1e6, 1.0, 1e-3])
    coreset = _four_atoms(scale[:, None] * rng.gamma(2.0, size=(4, 5_000)))
    assert not near_optimum(pieces_of(coreset, Fraction(1, 10))[0]).close
    solver = Solver(coreset, Fraction(1, 10))
    for row in coreset.membership:
        evidence = solver.evidence(row)
        assert evidence is not None
        balance = evidence.gradient @ coreset.membership
        assert np.array_equal(balance, solver.t * row)
