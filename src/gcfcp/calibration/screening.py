"""Which clients have scores that are distributed unlike all others', with a bound on false alarms.

Checks of a file's form cannot tell honest scores from invented ones. What a server can see is that
a client's scores are distributed unlike those of all other clients in the same atoms. Rob-FCP (Kang
et al., "Certifiably Byzantine-robust federated conformal prediction", ICML 2024) compares clients
by the distance of their score histograms and leaves out the farthest. Here no client is left out,
because sites that differ are what group-conditional calibration is for. A client is flagged, the
plan and the report say so, and people decide.

The statistic. In an atom, client k has the score distribution F_k, and R_k is the plain average of
F_j over the other clients that have the atom. F^ and R^ are the same for the digests, e_k is the
certified error of client k's digest, and D_k = sup |F^_k - R^_k| is the distance between digests. C
is the number of pairs (client, atom) that can be compared, because another client has the atom too.
By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart and a union bound over these pairs,
with probability at least 1 - level all of them satisfy

    sup |F^_k - F_k| <= e_k + b_k,    b_k = sqrt(log(2 C / level) / (2 n_k)).

Then, by the triangle inequality,

    sup |F_k - R_k| >= D_k - (e_k + b_k) - mean_j (e_j + b_j),

where j runs over the other clients. The right side is called `certain`. A client is flagged if
`certain` exceeds the tolerance in some atom.

False alarms. In a federation where no client's distribution is farther than `tolerance` from the
average of the others in any atom, the probability that any client at all is flagged is at most
`level`. This holds for any sizes, any number of clients, ties, and clients that differ. The records
of a client must be independent and come from one distribution within an atom. In an aggregate of
several clients they come from several, and for them the inequality above is not proved with the
same constant. (Measured: 0 of 2,000 federations of alike clients had a flag; the bound is far from
tight. tests/test_screening.py repeats it with 300.)

What a flag does not say is who is wrong. Of two clients that differ both are flagged, and many
invented clients together make the honest ones look odd. A client that stays close to the others, or
whose atoms are small, is not flagged; `Calibration.influence` says how much it moves.

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
"""The probability of a flag is at most this if all clients are within the tolerance."""

TOLERANCE = 0.5
"""Two sites may differ this much without a flag.

A distance of 0.5 means that for some score t the shares of records with a score of at most t differ
by 0.5, for example 30% at one client and 80% on average at the others.
"""


@dataclass(frozen=True)
class Screening:
    """How far one client is from the others, in the atom where that is most certain."""

    client: str
    atoms: int  # How many of its atoms another client has too. With 0 it cannot be compared.
    groups: tuple[str, ...]  # The groups of the atom in which `certain` is largest.
    records: int  # How many records the client has in that atom.
    distance: float  # D_k = sup |F^_k - R^_k| in that atom, between 0 and 1.
    certain: float  # The part of the distance that chance and compression cannot explain, if > 0.
    flagged: bool  # Whether `certain` exceeds the tolerance.
    level: float = LEVEL  # The bound on the probability of a false alarm.

    def __str__(self) -> str:
        if not self.flagged:
            return f"{self.client} is not far from the other clients in any atom they share"
        return (
            f"{self.client} is unlike the other clients in {' & '.join(self.groups)} "
            f"({self.records:,} records): the distributions of scores differ by {self.distance:.2f}"
            f", of which {self.certain:.2f} cannot be chance (the probability of a false alarm is "
            f"at most {self.level:.0%}). Sites may differ for good reasons, but another model, "
            "another score or invented numbers would look the same: ask this client. It was not "
            "left out"
        )


def screen(
    summaries: Iterable[ClientSummary], *, level: float = LEVEL, tolerance: float = TOLERANCE
) -> tuple[Screening, ...]:
    """One record for each client, in the order of the clients' names; see the module.

    - `level`: The largest probability of a false alarm, between 0 and 1.
    - `tolerance`: The distance that is allowed without a flag, between 0 and 1.
    """
    level = checks.probability("level", level)
    tolerance = checks.probability("tolerance", tolerance)
    ordered = in_order(summaries)
    pool = pool_of(ordered)
    # How many clients have the atom of each cell. A cell is one atom at one client.
    sharing = np.bincount(pool.cell_atom, minlength=len(pool.membership))[pool.cell_atom]
    distance = _distances(pool, sharing)
    certain = _certain(pool, sharing, distance, level)
    groups = ordered[0].groups
    found = []
    for k, summary in enumerate(ordered):
        own = np.flatnonzero((pool.cell_client == k) & (sharing > 1))
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


def _certain(pool: Pool, sharing: Ints, distance: Floats, level: float) -> Floats:
    """D_k - (e_k + b_k) - mean_j (e_j + b_j) of every cell; -inf if no other client has the atom.

    - `sharing`: How many clients have the atom of each cell.
    """
    comparable = sharing > 1
    noise = pool.cell_errors / pool.cell_counts
    noise = noise + np.sqrt(
        math.log(2 * max(1, int(comparable.sum())) / level) / (2 * pool.cell_counts)
    )
    others = pool.by_atom(noise)[pool.cell_atom] - noise
    certain = np.full(len(distance), -np.inf)
    np.subtract(
        distance, noise + others / np.maximum(sharing - 1, 1), out=certain, where=comparable
    )
    return certain


def _distances(pool: Pool, sharing: Ints) -> Floats:
    """D_k = sup |F^_k - R^_k| of every cell; 0 if no other client has the atom.

    Let s clients have the atom, and let T be the sum of their F^_j. Then
    F^_k - R^_k = (s F^_k - T) / (s - 1). Between two centroids of client k only T changes, and it
    rises. So the supremum is reached at a centroid of client k, or just before one.
    """
    clients = int(pool.cell_client.max()) + 1
    keys = pool.cell_atom * clients + pool.cell_client
    place = np.argsort(keys)
    cell = place[np.searchsorted(keys[place], pool.atom * clients + pool.owner)]
    share = pool.counts / pool.cell_counts[cell]
    # T just before and at each centroid. Equal values of an atom are one step of T.
    new = np.ones(len(share), dtype=bool)
    new[1:] = (pool.atom[1:] != pool.atom[:-1]) | (pool.values[1:] != pool.values[:-1])
    jump = np.cumsum(new) - 1
    at = _running(np.add.reduceat(share, np.flatnonzero(new)), pool.atom[new])
    total_at = at[jump]
    first = np.ones(len(at), dtype=bool)
    first[1:] = pool.atom[new][1:] != pool.atom[new][:-1]
    total_before = np.where(first, 0.0, np.roll(at, 1))[jump]
    # F^_k at each centroid of client k; just before the centroid it is lower by `share`.
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
    """Running sums that start again at each new label. Equal labels must stand together."""
    sums = np.cumsum(values)
    first = np.ones(len(label), dtype=bool)
    first[1:] = label[1:] != label[:-1]
    start = np.flatnonzero(first)
    before = np.concatenate([[0.0], sums[start[1:] - 1]])
    running: Floats = sums - np.repeat(before, np.diff(np.append(start, len(label))))
    return running
