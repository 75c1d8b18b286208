"""Inverses, determinants and equations are what LAPACK says, and no thread is woken for them."""

from fractions import Fraction

import numpy as np
import pytest

from gcfcp.solver import Coreset, Solver, equations
from gcfcp.solver.equations import inverted, refreshed, solved

SIZES = [1, 5, 80, 81, 120, 121, 331]


def memberships(m, r):
    """m matrices of zeros and ones that have inverses, in an order that gives many zero pivots."""
    rng = np.random.default_rng(r)
    ordered = np.tril(rng.random((m, r, r)) < 4 / r, -1) + np.eye(r)
    mixed = [matrix[rng.permutation(r)][:, rng.permutation(r)] for matrix in ordered]
    return np.array(mixed, dtype=float)


@pytest.mark.parametrize("r", SIZES)
def test_inverses_and_determinants_of_memberships(r):
    """Rows and columns of a triangle are mixed here, so that its determinant is 1 or -1."""
    matrices = memberships(2, r)
    found, logarithms = inverted(matrices)
    np.testing.assert_allclose(matrices @ found, np.tile(np.eye(r), (2, 1, 1)), atol=1e-9)
    np.testing.assert_allclose(logarithms, 0, atol=1e-9)


@pytest.mark.parametrize("r", SIZES)
def test_inverses_and_determinants_of_any_numbers(r):
    matrices = np.random.default_rng(r).normal(size=(3, r, r))
    found, logarithms = inverted(matrices)
    expected = np.linalg.inv(matrices)
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(logarithms, np.linalg.slogdet(matrices)[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("r", [60, 120])
def test_a_matrix_without_an_inverse_is_refused(r):
    matrices = memberships(2, r)
    matrices[1, 7] = 0.0
    with pytest.raises(np.linalg.LinAlgError):
        inverted(matrices)


@pytest.mark.parametrize("error", [1e-9, 1e-3, np.nan], ids=["almost", "badly", "not at all"])
@pytest.mark.parametrize("r", [8, 120])
def test_inverses_that_are_known(r, error, monkeypatch):
    """What is almost known is not computed afresh. What is known badly is, and the rest is not."""
    matrices = memberships(2, r)
    exact, logarithms = inverted(matrices)
    known = exact.copy()
    known[1] += error
    afresh = []
    honest = equations._eliminated
    monkeypatch.setattr(
        equations, "_eliminated", lambda matrix: afresh.append(matrix) or honest(matrix)
    )
    wrong = np.array([logarithms[0], logarithms[1] if error == 1e-9 else 5.0])
    found, after = refreshed(matrices, known, wrong)
    np.testing.assert_allclose(found, exact, atol=1e-11)
    np.testing.assert_allclose(after, logarithms, atol=1e-11)
    expected = [matrices[1]] if r > 80 and error != 1e-9 else []
    np.testing.assert_array_equal(afresh, expected)


@pytest.mark.parametrize("r", SIZES)
def test_equations_in_halves(r):
    rng = np.random.default_rng(0)
    factor, right = rng.normal(size=(r, 2 * r)), rng.normal(size=(r, 2))
    matrix = factor @ factor.T
    np.testing.assert_allclose(matrix @ solved(matrix, right), right, atol=1e-8)


def test_equations_that_have_no_solution_are_refused():
    with pytest.raises(np.linalg.LinAlgError):
        solved(np.zeros((300, 300)), np.ones((300, 1)))


# --- what the solver makes of them ---------------------------------------------------------------


def entangled(seed, k, d):
    """A matrix of memberships whose inverse has large entries: [T 0; R D], in a mixed order."""
    rng = np.random.default_rng(seed)
    column = np.zeros(k, dtype=int)
    column[[0, 1]] = column[3::2] = 1
    triangle = np.array([[column[i - j] if i >= j else 0 for j in range(k)] for i in range(k)])
    while abs(np.linalg.det(dense := (rng.random((d, d)) < 0.5).astype(float))) < 0.5:
        pass
    whole = np.block([[triangle, np.zeros((k, d))], [rng.random((d, k)) < 0.5, dense]])
    return whole[rng.permutation(k + d)][:, rng.permutation(k + d)].astype(bool)


@pytest.mark.parametrize("dependent", [False, True], ids=["independent", "dependent"])
@pytest.mark.parametrize(("k", "d"), [(24, 20), (20, 50), (26, 0), (32, 75)])
def test_rounding_leaves_no_atom_without_a_threshold(k, d, dependent):
    """Each atom is limited by its own scores alone here: its threshold is the largest of 12."""
    rows = entangled(1, k, d)
    if dependent:  # A group that is given twice, and one of everyone.
        rows = np.column_stack([rows, rows[:, 0], np.ones(len(rows), dtype=bool)])
    values = np.sort(np.random.default_rng(0).gamma(2, size=(len(rows), 12)), axis=1)
    core = Coreset(rows, np.arange(len(rows) + 1) * 12, values.ravel(), np.ones(values.size), 1.0)
    found = [one.threshold for one in Solver(core, Fraction(1, 10)).solve(rows)]
    assert found == values[:, -1].tolist()


@pytest.mark.parametrize("unit", [1e-200, 1e-160, 1e153, 1e200])
def test_weights_may_be_in_any_unit(unit):
    """Squares of the weights would be zero or infinite, and walks begin at predicted vertices."""
    rng = np.random.default_rng(16)
    rows = np.vstack([np.eye(16, dtype=bool), rng.random((1_200, 16)) < 6 / 16])
    rows = np.unique(rows[rows.any(axis=1)], axis=0)
    values = np.sort(rng.gamma(2, size=(len(rows), 20)), axis=1) + np.arange(20) * 1e-9
    weights = rng.integers(1, 4, values.size)

    def thresholds(unit):
        start = np.arange(len(rows) + 1) * 20
        core = Coreset(rows, start, values.ravel(), weights * unit, 60 * unit)
        return [one.threshold for one in Solver(core, Fraction(1, 10)).solve(rows[:400])]

    assert thresholds(unit) == thresholds(1.0)
