"""All centroids of all clients, sorted by atom and by value.

If the summaries are by group, a group takes the place of an atom: its row has this one group.

A centroid is a value that stands for a number of records with similar scores; see `digest`.

Cost: one sort of the centroids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.digest import TDigest
from gcfcp.errors import GCFCPError
from gcfcp.groups import find_atoms
from gcfcp.shape import Shape
from gcfcp.summary import ClientSummary


@dataclass(frozen=True)
class Pool:
    """All centroids of all clients by atom.

    A cell is one atom at one client. There are a atoms, m centroids and c cells.
    """

    membership: Bools  # (a, G): The groups of each atom; the rows ascend by their packed bits.
    atom: Ints  # (m,): The atom of each centroid. The centroids are sorted by this first.
    owner: Ints  # (m,): The client of each centroid. It ascends among equal values of an atom.
    values: Floats  # (m,): The value of each centroid. Within an atom the values ascend.
    counts: Ints  # (m,): How many records each centroid stands for.
    order: Ints  # (m,): The place of each centroid where cell follows cell, each ascending.
    cell_size: Ints  # (c,): How many centroids each cell has. None is empty.
    cell_atom: Ints  # (c,): The atom of each cell.
    cell_client: Ints  # (c,): The client of each cell, which ascends.
    cell_counts: Ints  # (c,): How many records each cell has.
    cell_errors: Ints  # (c,): The certified error sup |F - F^| of each cell's digest, in records.

    def by_atom(self, cells: NDArray[Any], rate: Floats | None = None) -> Floats:
        """The sum of a number per cell over all clients, for each atom: (c,) gives (a,).

        - `rate`: The weight of one record of each client, (K,). If it is given, the numbers are
          multiplied by it, so that counts of records become weights.
        """
        weights = cells if rate is None else rate[self.cell_client] * cells
        total: Any = np.bincount(self.cell_atom, weights, minlength=len(self.membership))
        return np.asarray(total, dtype=np.float64)

    def less(self, shape: Shape) -> Pool:
        """The same pool with the shape of each atom subtracted from its values."""
        return replace(self, values=shape.subtracted(self.values, self.membership, self.atom))


def pool_of(summaries: Sequence[ClientSummary]) -> Pool:
    """The pool of these summaries, whose order is the order of the clients in it."""
    rows = np.concatenate([s.membership for s in summaries])
    if not len(rows):
        cell = summaries[0].by
        raise GCFCPError(
            f"no client describes a single {cell}, because every {cell} has fewer records than "
            "min_count: lower min_count or gather more records"
        )
    atoms = find_atoms(rows)
    cell_atom = atoms.index.astype(np.int64)
    cell_client = np.repeat(np.arange(len(summaries)), [len(s.errors) for s in summaries])
    sizes = np.concatenate([np.diff(s.start) for s in summaries])
    atom = np.repeat(cell_atom, sizes)
    values = np.concatenate([s.values for s in summaries])
    order = _order(atom, values, len(atoms))
    return Pool(
        membership=atoms.membership,
        atom=atom[order],
        owner=np.repeat(cell_client, sizes)[order],
        values=values[order],
        counts=np.concatenate([s.counts for s in summaries])[order],
        order=order,
        cell_size=sizes,
        cell_atom=cell_atom,
        cell_client=cell_client,
        cell_counts=np.concatenate([s.atom_counts for s in summaries]),
        cell_errors=np.concatenate([s.errors for s in summaries]),
    )


def _order(atom: Ints, values: Floats, atoms: int) -> Ints:
    """The order that sorts by atom, then by value, and keeps equal entries in their order.

    This is np.lexsort((values, atom)), but several times faster: the fast sort is not stable, and
    the slow stable sort is needed only for atoms in which some values are equal.
    """
    new = atom[1:] != atom[:-1]
    if ((atom[1:] >= atom[:-1]) & (new | (values[1:] >= values[:-1]))).all():
        return np.arange(len(atom))  # They are sorted already; those of one client always are.
    order = np.argsort(atom.astype(np.min_scalar_type(atoms)), kind="stable")
    ends = np.cumsum(np.bincount(atom, minlength=atoms)).tolist()
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        own = order[start:end]
        mine = values[own]
        within = np.argsort(mine)
        ranked = mine[within]
        if (ranked[1:] == ranked[:-1]).any():
            within = np.argsort(mine, kind="stable")
        order[start:end] = own[within]
    return order


def largest_delta(summaries: Sequence[ClientSummary]) -> float:
    """The largest delta of these summaries, which have no grid."""
    return max(s.delta for s in summaries if s.delta is not None)


def recompressed(
    atom: Ints, values: Floats, weights: Floats, representative: Any, delta: float
) -> tuple[Ints, Floats, Floats, Floats]:
    """The paper's Merge: the weighted values of each atom, compressed into a T-Digest again.

    Returns the atom, the value and the weight of each new centroid, and for each atom the error
    sup |F - F^| that this compression adds, in units of weight.
    """
    atoms, starts = np.unique(atom, return_index=True)
    digests = [
        TDigest.from_values(v, delta, weights=w, representative=representative)
        for v, w in zip(np.split(values, starts[1:]), np.split(weights, starts[1:]), strict=True)
    ]
    return (
        np.repeat(atoms, [len(d) for d in digests]),
        np.concatenate([d.means for d in digests]),
        np.concatenate([d.weights for d in digests]),
        np.array([d.error_weight for d in digests]),
    )
