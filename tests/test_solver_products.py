"""Products in parts are the products, and no part is large enough for BLAS to divide it."""

import numpy as np
import pytest

from gcfcp.solver import products

SHAPES = [(1, 1, 1), (1, 3, 7), (5, 40, 16), (1, 2_000, 16), (1, 1_000, 256), (9, 700, 90)]


def draws(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_products_with_vectors(m, n, k):
    matrix, right, left = draws((n, k), (m, k), (m, n))
    np.testing.assert_allclose(products.times(right, matrix), right @ matrix.T, atol=1e-11)
    np.testing.assert_allclose(products.combined(left, matrix), left @ matrix, atol=1e-11)


@pytest.mark.parametrize(("m", "n", "k"), [(3, 4, 5), (2, 120, 130), (1, 256, 256), (0, 256, 256)])
def test_products_of_one_matrix_for_each_vector(m, n, k):
    matrices, right, left = draws((m, n, k), (m, k), (m, n))
    expected = np.einsum("mnk,mk->mn", matrices, right)
    np.testing.assert_allclose(products.times_each(matrices, right), expected, atol=1e-11)
    expected = np.einsum("mn,mnk->mk", left, matrices)
    np.testing.assert_allclose(products.combined_each(left, matrices), expected, atol=1e-11)


@pytest.mark.parametrize(("n", "k", "q"), [(2, 3, 4), (60, 60, 180), (61, 119, 200), (9, 9, 300)])
def test_products_of_matrices(n, k, q):
    left, right = draws((n, k), (k, q))
    np.testing.assert_allclose(products.product(left, right), left @ right, atol=1e-11)


@pytest.mark.parametrize(
    ("n", "k"), [(1_000, 256), (997, 256), (2_000, 16), (256, 256), (3, 9_000)]
)
def test_parts_are_small_and_hold_every_row(n, k):
    matrix = np.arange(float(n * k)).reshape(n, k)
    parts, rest = products._parts(matrix)
    assert parts[0].size < 9_216
    assert rest.size < 9_216
    assert np.array_equal(np.vstack([*parts, rest]), matrix)


def test_whole_numbers_are_added_up_exactly():
    """Slopes are whole numbers, and ties among them must stay ties."""
    rng = np.random.default_rng(0)
    slopes, rows = rng.integers(-(2**40), 2**40, size=(1, 3_000)), rng.random((3_000, 64)) < 0.5
    found = products.combined(slopes.astype(float), rows.astype(float))
    assert (found == slopes @ rows.astype(np.int64)).all()
