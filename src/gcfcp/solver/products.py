"""Products of matrices and vectors, each computed by a single thread.

OpenBLAS, which NumPy computes with, divides larger products among threads. The products of a walk
are too small for that: it makes thousands of them, and on a busy machine the threads of each wait
for one another. With 256 groups and two threads that took twice the processor time of one. The
number of threads could only be set for the whole process, which is its owner's to decide. So
products are divided here into parts that are too small to be divided further: up to 2**18
multiplications for two matrices, and 9,216 for a matrix and a vector.

Cost: one call for many parts. A walk among 256 groups takes a seventh more processor time than with
undivided products on a single thread, and half of what it took with two.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gcfcp.arrays import Floats

IN_CACHE = 2**16  # So many numbers are computed before what becomes of them is read again.
ONE_THREAD = 2**18 - 1  # A product of two matrices takes a single thread up to here.
_ONE_THREAD_VECTOR = 9_215  # A product of a matrix and a vector takes a single thread up to here.
_TOGETHER = 32  # Larger products are divided into parts of at least so many vectors.
_BLOCK = 60  # Blocks of so many rows and columns are multiplied by a single thread.


def times(vectors: Floats, matrix: Floats) -> Floats:
    """matrix @ v for each of the `vectors` v, (m, k), with `matrix` (n, k): vectors @ matrix.T."""
    if len(vectors) != 1:
        return _by_matrix(vectors, matrix.T)
    if matrix.size <= _ONE_THREAD_VECTOR:
        return np.asarray(vectors @ matrix.T)
    parts, rest = _parts(matrix)
    found = np.matmul(parts, vectors[0][:, None]).reshape(1, -1)
    return np.hstack([found, vectors @ rest.T]) if len(rest) else found


def combined(vectors: Floats, matrix: Floats) -> Floats:
    """The combinations of the rows of `matrix`, (n, k), by `vectors`, (m, n): vectors @ matrix."""
    if len(vectors) != 1:
        return _by_matrix(vectors, matrix)
    if matrix.size <= _ONE_THREAD_VECTOR:
        return np.asarray(vectors @ matrix)
    parts, rest = _parts(matrix)
    done = len(matrix) - len(rest)
    found = np.matmul(vectors[:, :done].reshape(len(parts), 1, -1), parts).sum(axis=0)
    return np.asarray(found + vectors[:, done:] @ rest if len(rest) else found)


def times_each(matrices: Floats, vectors: Floats) -> Floats:
    """matrices[i] @ vectors[i] for every i, with `matrices` (m, n, k) and `vectors` (m, k)."""
    if len(matrices) == 0 or matrices[0].size <= _ONE_THREAD_VECTOR:
        return np.asarray(np.matmul(matrices, vectors[:, :, None])[:, :, 0])
    if len(matrices) == 1:
        return times(vectors, matrices[0])
    return np.concatenate([times(vectors[i : i + 1], own) for i, own in enumerate(matrices)])


def combined_each(vectors: Floats, matrices: Floats) -> Floats:
    """vectors[i] @ matrices[i] for every i, with `vectors` (m, n) and `matrices` (m, n, k)."""
    if len(matrices) == 0 or matrices[0].size <= _ONE_THREAD_VECTOR:
        return np.asarray(np.matmul(vectors[:, None, :], matrices)[:, 0])
    if len(matrices) == 1:
        return combined(vectors, matrices[0])
    return np.concatenate([combined(vectors[i : i + 1], own) for i, own in enumerate(matrices)])


def in_parts(vectors: int, numbers: int) -> list[slice]:
    """Some of so many vectors at a time, each with so many numbers, that they stay in the cache."""
    size = max(1, IN_CACHE // numbers)
    return [slice(i, i + size) for i in range(0, vectors, size)]


def product(left: Floats, right: Floats) -> Floats:
    """left @ right for larger matrices, (n, k) and (k, q), block by block."""
    if right.shape[1] == 1:
        return times(right.T, np.ascontiguousarray(left)).T
    if left.shape[0] * right.size <= ONE_THREAD:
        return np.asarray(left @ right)
    (n, k), q = left.shape, right.shape[1]
    high, inner, wide = (-(-size // _BLOCK) for size in (n, k, q))
    padded = np.zeros((high * _BLOCK, inner * _BLOCK)), np.zeros((inner * _BLOCK, wide * _BLOCK))
    padded[0][:n, :k], padded[1][:k, :q] = left, right
    first = padded[0].reshape(high, _BLOCK, inner, _BLOCK).transpose(2, 0, 1, 3)[:, :, None]
    second = padded[1].reshape(inner, _BLOCK, wide, _BLOCK).transpose(0, 2, 1, 3)[:, None]
    total = np.zeros((high, wide, _BLOCK, _BLOCK))
    for i in range(inner):
        total += np.matmul(np.ascontiguousarray(first[i]), np.ascontiguousarray(second[i]))
    return total.transpose(0, 2, 1, 3).reshape(high * _BLOCK, -1)[:n, :q]


def _by_matrix(vectors: Floats, matrix: Floats) -> Floats:
    """vectors @ matrix, in parts that a single thread computes: of some vectors and columns."""
    if len(vectors) * matrix.size <= ONE_THREAD:
        return np.asarray(vectors @ matrix)
    found = np.empty((len(vectors), matrix.shape[1]))
    columns = max(1, ONE_THREAD // (_TOGETHER * len(matrix)))
    for j in range(0, matrix.shape[1], columns):
        part = matrix[:, j : j + columns]
        size = max(2, ONE_THREAD // part.size)
        for i in range(0, len(vectors), size):
            found[i : i + size, j : j + columns] = vectors[i : i + size] @ part
    return found


def _parts(matrix: Floats) -> tuple[Floats, Floats]:
    """A matrix (n, k) in parts of equally many rows, (p, n / p, k), and the rows that are left.

    Parts are as large as may be, or somewhat smaller if no row is left then.
    """
    n, k = matrix.shape
    rows = _rows_of_parts(n, k)
    done = n - n % rows
    return matrix[:done].reshape(-1, rows, k), matrix[done:]


@lru_cache(maxsize=64)
def _rows_of_parts(n: int, k: int) -> int:
    """How many rows of a matrix (n, k) are in each of its parts."""
    most = min(n, max(1, _ONE_THREAD_VECTOR // k))
    even = [rows for rows in range(most, most // 2, -1) if n % rows == 0]
    return even[0] if even else most
