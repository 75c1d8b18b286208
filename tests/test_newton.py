"""The start of the simplex: any vertex will do, a near one is better."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfcp.newton import start
from gcfcp.pieces import Coreset, pieces_of
from gcfcp.solver import Solver

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


@settings(max_examples=300, deadline=None)
@given(coresets())
def test_it_is_a_vertex_whatever_the_scores(coreset):
    """Independent atoms, as many as there are, each on a breakpoint that it has."""
    pieces, columns, _ = pieces_of(coreset, Fraction(1, 10))
    basis, at = start(pieces)
    assert len(basis) == len(columns) == np.linalg.matrix_rank(coreset.membership.astype(float))
    assert np.linalg.matrix_rank(pieces.rows[basis]) == len(basis)
    assert ((at >= 0) & (at < pieces.size)).all()


@pytest.mark.parametrize("seed", range(5))
def test_it_is_near_the_optimum(seed):
    """With many scores, few of them lie between the start and the optimum."""
    rng = np.random.default_rng(seed)
    membership = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=bool)
    n = 2_000
    values = np.sort(rng.gamma(2.0, 1.0 + rng.random((4, 1)), size=(4, n)), axis=1)
    coreset = Coreset(membership, np.arange(5) * n, values.ravel(), np.ones(4 * n), 1.0)
    basis, at = start(pieces_of(coreset, Fraction(1, 10))[0])
    optimum = Solver(coreset, Fraction(1, 10)).evidence(membership[0])
    assert optimum is not None
    exact = [np.searchsorted(own, theta) for own, theta in zip(values, optimum.theta, strict=True)]
    assert np.abs(at - exact)[basis].max() <= 0.02 * n
