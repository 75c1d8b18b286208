"""Inverses, determinants and systems of equations, each computed by a single thread.

LAPACK divides its work among threads as soon as a matrix has some hundred rows, and OpenBLAS keeps
a thread that it has woken busy for up to a tenth of a second. So LAPACK gets matrices of up to 80
rows alone, but for the least squares of the rare problems that have no other start. Larger ones are
eliminated here, some columns at a time, by the products of `products`.

Cost: O(r^3) for r rows. An inverse takes 2.5 times as long as that of LAPACK on one thread for
r = 120, and 1.5 times for r = 256. Where an inverse is almost known, it takes two products.
"""

from __future__ import annotations

import numpy as np

from gcfcp.arrays import Floats, Ints
from gcfcp.solver.products import combined, product

_ONE_THREAD = 80  # LAPACK works on a matrix of so many rows in a single thread.
_PANEL = 40  # So many columns are eliminated at a time.
_ALMOST = 2.0**-20  # An inverse is almost known if no entry of I - M X is larger.


def inverted(matrices: Floats) -> tuple[Floats, Floats]:
    """The inverse of each of the matrices (m, r, r), and log |det| of each, (m,).

    Many walks begin at the same vertex, so that a large matrix that comes again is not eliminated
    again.
    """
    m, r, _ = matrices.shape
    inverse, logarithm = np.empty(matrices.shape), np.empty(m)
    if r <= _ONE_THREAD:
        inverse[:], logarithm[:] = np.linalg.inv(matrices), np.linalg.slogdet(matrices)[1]
        return inverse, logarithm
    known: dict[bytes, tuple[Floats, float]] = {}
    for i, matrix in enumerate(matrices):
        key = matrix.tobytes()
        if key not in known:
            known[key] = _eliminated(matrix)
        inverse[i], logarithm[i] = known[key]
    return inverse, logarithm


def refreshed(matrices: Floats, known: Floats, logarithms: Floats) -> tuple[Floats, Floats]:
    """The same, where the inverses are almost `known`, (m, r, r), and the logarithms as well, (m,).

    From X the Newton-Schulz step X (2 I - M X) leads to the inverse of M up to rounding. The
    logarithm stays as it is then. Where X is far from the inverse of M, both are computed afresh.
    """
    r = matrices.shape[1]
    if r <= _ONE_THREAD:
        return inverted(matrices)
    inverse, logarithm = np.empty(matrices.shape), logarithms.copy()
    for i, (matrix, near) in enumerate(zip(matrices, known, strict=True)):
        error = np.eye(r) - product(matrix, near)
        if np.abs(error).max() < _ALMOST:
            inverse[i] = near + product(near, error)
        else:
            inverse[i], logarithm[i] = _eliminated(matrix)
    return inverse, logarithm


def solved(matrix: Floats, right: Floats) -> Floats:
    """x with matrix @ x = right, (r, q), for a symmetric positive definite `matrix`, (r, r).

    With the matrix in four parts P, Q, Q', S, its second half of x solves the equations of the
    Schur complement S - Q' inv(P) Q. No pivots are sought, which saves more than half of the time.
    A LinAlgError says that `matrix` has no inverse.
    """
    half = len(matrix) // 2
    if len(matrix) <= _ONE_THREAD:
        return product(np.asarray(np.linalg.inv(matrix), dtype=np.float64), right)
    across = matrix[:half, half:]
    first = solved(matrix[:half, :half], np.hstack([across, right[:half]]))
    left = np.hstack([matrix[half:, half:], right[half:]]) - product(across.T, first)
    q = matrix.shape[1] - half
    lower = solved(left[:, :q], left[:, q:])
    return np.vstack([first[:, q:] - product(first[:, :q], lower), lower])


def _eliminated(matrix: Floats) -> tuple[Floats, float]:
    """The inverse of a matrix (r, r) and log |det|, by the elimination of Gauss and Jordan.

    The columns of a panel are first eliminated among themselves, which finds the rows of their
    pivots: the largest entries, for the sake of rounding. Products with these rows then clear the
    panel in all other rows.
    """
    r, logarithm = len(matrix), 0.0
    left = np.hstack([matrix, np.eye(r)])
    for done in range(0, r, _PANEL):
        end = min(done + _PANEL, r)
        order, pivots = _pivots(left[done:, done:end])
        logarithm += float(np.log(np.abs(pivots)).sum())
        left[done:] = left[done:][order]
        own = combined(np.linalg.inv(left[done:end, done:end]), left[done:end, end:])
        for others in (slice(done), slice(end, r)):
            left[others, end:] -= combined(left[others, done:end], own)
        left[done:end, end:] = own
    return left[:, r:], logarithm


def _pivots(panel: Floats) -> tuple[Ints, Floats]:
    """The rows of a panel (k, q), those of its q pivots first, and the pivots."""
    left = np.ascontiguousarray(panel.T)
    q, k = left.shape
    chosen, pivots, free = np.empty(q, dtype=np.int64), np.empty(q), np.ones(k)
    for j in range(q):
        column = left[j] * free
        i = chosen[j] = np.abs(column).argmax()
        pivots[j] = column[i]
        if not pivots[j]:
            raise np.linalg.LinAlgError("Singular matrix")
        column[i] = free[i] = 0.0
        left[j + 1 :] -= (left[j + 1 :, i] / pivots[j])[:, None] * column
    return np.concatenate([chosen, free.nonzero()[0]]), pivots
