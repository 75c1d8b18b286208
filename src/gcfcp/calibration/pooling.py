"""All centroids of all clients, atom by atom.

Cost: one sort of the centroids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.digest import TDigest
from gcfcp.errors import GCFCPError
from gcfcp.groups import find_atoms
from gcfcp.summary import ClientSummary


@dataclass(frozen=True)
class Pool:
    """All centroids of all clients by atom, with what is known of each atom."""

    membership: Bools  # (a, G), in order of their keys
    atom: Ints  # (m,): of each centroid, ascending
    owner: Ints  # (m,): its client; ascending among equal values
    values: Floats  # (m,): ascending within an atom
    counts: Ints  # (m,): records
    cell_atom: Ints  # a cell is an atom of a client
    cell_client: Ints
    cell_counts: Ints  # records
    cell_errors: Ints  # certified, in records

    def by_atom(self, cells: NDArray[Any], rate: Floats | None = None) -> Floats:
        """What the clients have in each atom, added up; with `rate`, in weight."""
        weights = cells if rate is None else rate[self.cell_client] * cells
        total: Any = np.bincount(self.cell_atom, weights, minlength=len(self.membership))
        return np.asarray(total, dtype=np.float64)


def pool_of(summaries: Sequence[ClientSummary]) -> Pool:
    rows = np.concatenate([s.membership for s in summaries])
    if not len(rows):
        raise GCFCPError(
            "no client describes a single atom: every one is below its min_count; "
            "lower min_count or gather more records"
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
        cell_atom=cell_atom,
        cell_client=cell_client,
        cell_counts=np.concatenate([s.atom_counts for s in summaries]),
        cell_errors=np.concatenate([s.errors for s in summaries]),
    )


def _order(atom: Ints, values: Floats, atoms: int) -> Ints:
    """By atom, then by value, then as they stand: np.lexsort((values, atom)), but several times
    faster, because a sort need be stable only where values are equal."""
    new = atom[1:] != atom[:-1]
    if ((atom[1:] >= atom[:-1]) & (new | (values[1:] >= values[:-1]))).all():
        return np.arange(len(atom))  # a single client's are in order
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


def recompressed(
    atom: Ints, values: Floats, weights: Floats, representative: Any, delta: float
) -> tuple[Ints, Floats, Floats, Floats]:
    """The paper's Merge of each atom, and the error that it adds, in weight."""
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
