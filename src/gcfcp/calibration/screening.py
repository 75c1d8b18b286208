"""Which clients are wildly unlike the others, with a stated rate of false alarms.

Checks of form cannot tell honest scores from invented ones. What a server can see is that a
client's scores are distributed unlike everybody else's in the same atoms. Rob-FCP (Kang et al.,
"Certifiably Byzantine-robust federated conformal prediction", ICML 2024) compares clients by the
distance of their score histograms and leaves the farthest out. Here nobody is left out: sites that
differ are what group-conditional calibration is for. A client is flagged, the plan and the report
say so, and people decide.

In atom A client k has the distribution F_k, and R_k is the plain average of F_j over the other
clients that have the atom. The distance is D_k = sup |F^_k - R^_k| between digests. By the
inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, and a union bound over the C cells (client,
atom) that can be compared, with probability at least 1 - level all cells at once satisfy

    sup |F^_k - F_k| <= e_k + b_k,    b_k = sqrt(log(2 C / level) / (2 n_k)),

with e_k the digest's certified error; so sup |F_k - R_k| >= D_k - (e_k + b_k) - mean_j (e_j + b_j),
which is `certain`. A client is flagged where `certain` exceeds the tolerance.

False alarms: in a federation where no client's distribution is farther than `tolerance` from the
average of the others in any atom, the probability that anyone at all is flagged is at most `level`.
No other assumption: any sizes, any number of clients, ties, clients that differ. (Measured: 0 of
2,000 federations of alike clients, see tests/test_screening.py; the bound is far from tight.)

What a flag does not say: who is wrong. Of two clients that differ both are flagged, and a flood of
invented clients makes the honest ones look odd. A client that stays close to the others, or whose
atoms are small, is not seen; `Calibration.influence` says how much it moves.

Every client counts alike in R_k, so that a client cannot become the norm by claiming more records.

Cost: one pass over the sorted centroids.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Floats, Ints
from gcfcp.calibration.clients import in_order
from gcfcp.calibration.pooling import Pool, pool_of
from gcfcp.summary import ClientSummary

LEVEL = 0.05
"""Probability that anyone is flagged although all clients are within the tolerance."""

TOLERANCE = 0.5
"""Distance between score distributions that is nobody's business: half of the records differ."""


@dataclass(frozen=True)
class Screening:
    """How far one client is from the others, in the atom where that is most certain."""

    client: str
    atoms: int  # that some other client has as well; 0: nothing can be said
    groups: tuple[str, ...]  # of the atom where `certain` is largest
    records: int  # of the client in that atom
    distance: float  # sup |F^_k - R^_k| there, 0 to 1
    certain: float  # what remains of it beyond chance and compression; negative: nothing
    flagged: bool
    level: float = LEVEL

    def __str__(self) -> str:
        if not self.flagged:
            return f"{self.client} is not far from the other clients in any atom they share"
        return (
            f"{self.client} is unlike the other clients in {' & '.join(self.groups)} "
            f"({self.records:,} records): the distributions of scores differ by {self.distance:.2f}"
            f", of which {self.certain:.2f} is not chance (false alarms: at most "
            f"{self.level:.0%}). Sites may differ for good reasons, and another model, another "
            "score or invented numbers look the same: ask. It was not left out"
        )


def screen(
    summaries: Iterable[ClientSummary], *, level: float = LEVEL, tolerance: float = TOLERANCE
) -> tuple[Screening, ...]:
    """One record a client, in order of their names; see the module."""
    level = checks.probability("level", level)
    tolerance = checks.probability("tolerance", tolerance)
    ordered = in_order(summaries)
    pool = pool_of(ordered)
    sharing = np.bincount(pool.cell_atom, minlength=len(pool.membership))[pool.cell_atom]
    comparable = sharing > 1
    distance = _distances(pool, sharing)
    noise = pool.cell_errors / pool.cell_counts
    noise = noise + np.sqrt(
        math.log(2 * max(1, int(comparable.sum())) / level) / (2 * pool.cell_counts)
    )
    others = pool.by_atom(noise)[pool.cell_atom] - noise
    certain = np.full(len(distance), -np.inf)
    np.subtract(
        distance, noise + others / np.maximum(sharing - 1, 1), out=certain, where=comparable
    )
    groups = ordered[0].groups
    found = []
    for k, summary in enumerate(ordered):
        own = np.flatnonzero((pool.cell_client == k) & comparable)
        if not len(own):
            found.append(Screening(summary.client, 0, (), 0, 0.0, 0.0, False, level))
            continue
        worst = int(own[np.argmax(certain[own])])
        row = pool.membership[pool.cell_atom[worst]]
        found.append(
            Screening(
                summary.client,
                len(own),
                groups.names_of(row),
                int(pool.cell_counts[worst]),
                float(distance[worst]),
                float(certain[worst]),
                bool(certain[worst] > tolerance),
                level,
            )
        )
    return tuple(found)


def _distances(pool: Pool, sharing: Ints) -> Floats:
    """sup |F^_k - R^_k| of every cell, 0 where it has nobody to be compared with.

    With T the sum of all F^_j of the atom, F_k - R_k = (s F_k - T) / (s - 1) for s clients. Between
    two centroids of client k only T moves, and it rises, so that the supremum is at a centroid of
    k: just before it or at it.
    """
    clients = int(pool.cell_client.max()) + 1
    keys = pool.cell_atom * clients + pool.cell_client
    place = np.argsort(keys)
    cell = place[np.searchsorted(keys[place], pool.atom * clients + pool.owner)]
    share = pool.counts / pool.cell_counts[cell]
    # T before and at each value, equal values of an atom taken together.
    new = np.ones(len(share), dtype=bool)
    new[1:] = (pool.atom[1:] != pool.atom[:-1]) | (pool.values[1:] != pool.values[:-1])
    jump = np.cumsum(new) - 1
    at = _running(np.add.reduceat(share, np.flatnonzero(new)), pool.atom[new])
    total_at = at[jump]
    first = np.ones(len(at), dtype=bool)
    first[1:] = pool.atom[new][1:] != pool.atom[new][:-1]
    total_before = np.where(first, 0.0, np.roll(at, 1))[jump]
    # F_k before and at each of its own centroids.
    order = np.argsort(cell, kind="stable")
    own_at = np.empty(len(share))
    own_at[order] = _running(share[order], cell[order])
    s = sharing[cell].astype(np.float64)
    gap = np.maximum(
        np.abs(s * own_at - total_at), np.abs(s * (own_at - share) - total_before)
    ) / np.maximum(s - 1, 1)
    distance = np.zeros(len(keys))
    np.maximum.at(distance, cell, gap)
    return np.where(sharing > 1, np.minimum(distance, 1.0), 0.0)


def _running(values: Floats, label: Ints) -> Floats:
    """Running sums that begin anew with each label; equal labels stand together."""
    sums = np.cumsum(values)
    first = np.ones(len(label), dtype=bool)
    first[1:] = label[1:] != label[:-1]
    start = np.flatnonzero(first)
    before = np.concatenate([[0.0], sums[start[1:] - 1]])
    running: Floats = sums - np.repeat(before, np.diff(np.append(start, len(label))))
    return running
