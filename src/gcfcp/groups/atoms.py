"""Atoms: the rows that belong to exactly the same groups, and how they are found.

| code               | paper                              |
|--------------------|------------------------------------|
| `Atoms.membership` | the distinct values of Phi, sorted |
| `Atoms.index`      | which of these values each row has |

Cost: The bits of a row are packed, and 16 groups are looked up at a time, so rows need not be
sorted. 10,000,000 rows x 16 groups take about 0.1 s, and 5 bytes for each row in addition to the
matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.arrays import Bools, Ints
from gcfcp.errors import GCFCPError

_BLOCK = 1 << 16  # This many rows (or bytes) are processed at a time, so that they stay in cache.


def pack(membership: Bools) -> NDArray[np.uint8]:
    """The matrix with 8 groups in each byte.

    The result equals np.packbits(membership, axis=1) and is computed faster. The first group is the
    highest bit of the first byte. The last byte is filled with zeros.
    """
    _require_matrix(membership)
    return _pack(membership, -(-membership.shape[1] // 8))


def _pack(membership: Bools, width: int) -> NDArray[np.uint8]:
    """The packed rows, each `width` bytes long and filled with zeros on the right.

    np.packbits is vectorised along one long axis only. Rows that fill whole bytes are therefore
    packed as if they were one long row. Other rows are first widened to whole bytes, one block at a
    time.
    """
    n, G = membership.shape
    if 8 * width == G and membership.flags.c_contiguous:
        return np.packbits(membership.reshape(-1)).reshape(n, width)
    packed = np.empty((n, width), dtype=np.uint8)
    rows = max(1, min(n, _BLOCK // (8 * width)))
    wide = np.zeros((rows, 8 * width), dtype=np.bool_)
    for start in range(0, n, rows):
        block = membership[start : start + rows]
        wide[: len(block), :G] = block
        flat = np.packbits(wide[: len(block)].reshape(-1))
        packed[start : start + rows] = flat.reshape(-1, width)
    return packed


def _chunks(membership: Bools) -> NDArray[Any]:
    """The packed rows as 16-bit numbers (8-bit for up to 8 groups) that sort in the rows' order.

    The numbers are big-endian, so that the first group is the most significant bit. Every use
    converts them to indices anyway, and the bytes are swapped on the way at no cost.
    """
    G = membership.shape[1]
    return _pack(membership, 1) if G <= 8 else _pack(membership, 2 * -(-G // 16)).view(">u2")


@dataclass(frozen=True, eq=False)
class Atoms:
    """The distinct rows of a membership matrix. `membership[index]` is the matrix again.

    Rows that belong to no group have an atom of their own, which is always the first; `uncovered`
    is their number. They are kept so that the caller can decide what becomes of them. The arrays
    are read-only.
    """

    membership: Bools
    """(a, G): One row for each atom, in lexicographic order, which is the order of `pack`."""
    index: NDArray[np.unsignedinteger]
    """(n,): The atom of each row, in the smallest unsigned type that holds it."""
    counts: Ints
    """(a,): The number of rows of each atom, never 0."""

    def __post_init__(self) -> None:
        for array in (self.membership, self.index, self.counts):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.membership)

    @property
    def uncovered(self) -> int:
        """The number of rows that belong to no group."""
        return int(self.counts[~self.membership.any(axis=1)].sum())


def find_atoms(membership: Bools) -> Atoms:
    """The atoms of a bool matrix (n, G), in time that is linear in its size.

    Rows are ranked by their first 16 groups, equal ones then by the next 16, and so on. Ranks are
    looked up in a table of all possible values. Rows are sorted only where this table would be much
    larger than the data, which happens with many groups and hardly two rows alike.
    """
    _require_matrix(membership)
    n = len(membership)
    ids: NDArray[Any] = np.zeros(n, dtype=np.uint8)
    counts = np.full(min(n, 1), n, dtype=np.int64)
    chunks = _chunks(membership)
    for c in range(chunks.shape[1]):
        if len(counts) == n:
            break  # Every row is an atom by itself, and further groups cannot change the order.
        chunk_ids, chunk_counts = _rank(chunks[:, c], 256**chunks.itemsize)
        if len(counts) == 1:
            ids, counts = chunk_ids, chunk_counts
        elif len(chunk_counts) > 1:
            ids, counts = _refine(ids, len(counts), chunk_ids, len(chunk_counts))
    return Atoms(membership[_any_row_of_each(ids, len(counts))], ids, counts)


def _refine(
    ids: NDArray[Any], a: int, chunk_ids: NDArray[Any], b: int
) -> tuple[NDArray[Any], Ints]:
    """Divide each atom by the values of the next chunk.

    - `ids`, `a`: The atom of each row, and the number of atoms so far.
    - `chunk_ids`, `b`: The rank of each row by the next chunk, and the number of such ranks.

    Returns the atom of each row among the new atoms, and the number of rows of each new atom.
    """
    pairs = ids.astype(np.int64)
    pairs *= b
    pairs += chunk_ids
    if a * b <= max(4 * len(ids), _BLOCK):
        return _rank(pairs, a * b)
    values, ranks, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    return ranks.astype(_index_type(len(values))), counts.astype(np.int64, copy=False)


def _rank(values: NDArray[Any], size: int) -> tuple[NDArray[Any], Ints]:
    """The rank of each value among the distinct values, and how often each distinct value occurs.

    All values are below `size`. They are processed in blocks, because NumPy converts indices to 64
    bits and the converted ones should stay in the cache.
    """
    n, step = len(values), max(_BLOCK, size)
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, n, step):
        counts += np.bincount(values[start : start + step], minlength=size)
    present = counts > 0
    counts = counts[present]
    ranks = (np.cumsum(present) - 1).astype(_index_type(len(counts)))
    out = np.empty(n, dtype=ranks.dtype)
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        # No value is clipped; mode="raise" would make NumPy buffer the output.
        np.take(ranks, values[block], out=out[block], mode="clip")
    return out, counts


def _index_type(size: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds every index below `size`."""
    return np.min_scalar_type(max(size - 1, 0))


def _any_row_of_each(ids: NDArray[Any], a: int) -> NDArray[np.intp]:
    """The number of some row for each id. Mostly the first block contains rows of all ids."""
    rows = np.full(a, -1, dtype=np.intp)
    for start in range(0, len(ids), _BLOCK):
        block = ids[start : start + _BLOCK]
        rows[block] = np.arange(start, start + len(block))
        if rows.min() >= 0:
            break
    return rows


@dataclass(frozen=True, eq=False)
class AtomLookup:
    """Finds the place of each row in a table of atoms. It never changes, so threads may share it.

    `AtomLookup(membership)` takes the distinct rows (a, G) of the table, in any order. With up to
    16 groups, a row is found by one access to an array of at most 2^16 entries. With more groups,
    it takes one access to a dictionary for each distinct row of the query.
    """

    membership: Bools
    # The place of each packed row, or -1. With more than 16 groups there is no such array.
    _table: NDArray[np.int32] | None = field(init=False, repr=False)
    # The place of each atom by the bytes of its packed row.
    _places: dict[bytes, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _require_matrix(self.membership)
        rows = self.membership.copy()
        rows.flags.writeable = False
        keys = _chunks(rows)
        places = {key.tobytes(): place for place, key in enumerate(keys)}
        if len(places) < len(rows):
            raise GCFCPError(
                f"the table has {len(rows)} atoms, but only {len(places)} distinct ones: list each "
                "atom once"
            )
        table = None
        if keys.shape[1] == 1:
            table = np.full(256**keys.itemsize, -1, dtype=np.int32)
            table[keys[:, 0]] = np.arange(len(rows))
            table.flags.writeable = False
        object.__setattr__(self, "membership", rows)
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_places", places)

    def find(self, membership: Bools) -> NDArray[np.int32]:
        """The place of each row (n, G) in the table, or -1 for a row that is not there."""
        _require_matrix(membership)
        if membership.shape[1] != self.membership.shape[1]:
            raise GCFCPError(
                f"membership has {membership.shape[1]} columns, but the table of atoms has "
                f"{self.membership.shape[1]}: give one column for each group"
            )
        if self._table is None:
            atoms = find_atoms(membership)
            keys = _chunks(atoms.membership)
            found = [self._places.get(key.tobytes(), -1) for key in keys]
            return np.take(np.array(found, dtype=np.int32), atoms.index)
        keys = _chunks(membership)[:, 0]
        places = np.empty(len(keys), dtype=np.int32)
        for start in range(0, len(keys), _BLOCK):
            block = slice(start, start + _BLOCK)
            np.take(self._table, keys[block], out=places[block], mode="clip")
        return places


def _require_matrix(membership: Bools) -> None:
    """Raise an error unless `membership` is a bool matrix with at least one column."""
    if not isinstance(membership, np.ndarray) or membership.dtype != np.bool_:
        kind = getattr(membership, "dtype", type(membership).__name__)
        raise GCFCPError(f"membership is {kind}, not a bool matrix: Groups.check makes one of it")
    if membership.ndim != 2 or membership.shape[1] == 0:
        raise GCFCPError(f"membership has shape {membership.shape}, expected (n, G) with G >= 1")
