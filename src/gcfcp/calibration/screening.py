"""Which clients are unlike all others in scores or composition, with a bound on false alarms.

Checks of a file's form cannot tell honest scores from invented ones. What a server can see is that
a client's scores are distributed unlike those of all other clients in the same atoms, or that a
group is many times as common at a client as at the others. Rob-FCP (Kang et al., "Certifiably
Byzantine-robust federated conformal prediction", ICML 2024) compares clients by the distance of
their score histograms and leaves out the farthest. Here no client is left out, because sites that
differ are what group-conditional calibration is for. A client is flagged, the plan and the report
say so, and people decide.

The statistic of scores. In an atom, client k has the score distribution F_k, and R_k is the plain
average of F_j over the other clients that have the atom. F^ and R^ are the same for the digests,
e_k is the certified error of client k's digest, and D_k = sup |F^_k - R^_k| is the distance between
digests. C is the number of pairs (client, atom) that can be compared, because another client has
the atom too. By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart and a union bound over
these pairs, with probability at least 1 - level / 2 all of them satisfy

    sup |F^_k - F_k| <= e_k + b_k,    b_k = sqrt(log(4 C / level) / (2 n_k)).

Then, by the triangle inequality,

    sup |F_k - R_k| >= D_k - (e_k + b_k) - mean_j (e_j + b_j),

where j runs over the other clients. The right side is called `certain`. A client is flagged if
`certain` exceeds the tolerance in some atom.

The statistic of composition. A client decides how many of its records it puts into a group, and so
how much it weighs there: 1 of 20 sites that declares all of its records to be of a group of 0.5 %
has more than 9 tenths of the group. Let q_k be the probability that a record of client k is in the
group, p_k the observed share, and R_k the plain average of q_j over the reference: the other
clients that can have the group, but for those with fewer than a tenth of the median number of
records, of whom too little is known. C' is the number of pairs (client, group) that can be
compared, and L = log(6 C' / level). With probability at least 1 - level / 2 all of these hold:

    q_k >= p_k - sqrt(2 p_k L / n_k),                                       called low_k,
    q_j <= p_j + L / n_j + sqrt((L / n_j)^2 + 2 p_j L / n_j),               called high_j,
    R_k <= mean_j p_j + sqrt(2 L sum_j high_j / n_j) / s,                   called others_k,

where j runs over the s clients of the reference. The first two follow from Chernoff's bound P(p_k
is at or beyond x) <= exp(-n_k KL(x, q_k)), which holds for independent records of different
probabilities too (Hoeffding, 1963, theorem 1), because KL(x, q) is at least (x - q)^2 / (2 max(x,
q)). The third is the bound of Maurer (2003) for sums of nonnegative variables with the second
moment sum_j q_j / n_j / s^2. Suppressed records count as not in the group at client k, and as in it
at the others. `times` is low_k / others_k, and a client is flagged if it exceeds `ratio` in some
group. A client that has *fewer* records of a group than the others weighs less there, and is not
flagged.

False alarms. In a federation where no client's distribution is farther than `tolerance` from the
average of the others in any atom, and where no group is more than `ratio` times as common at a
client as on average in its reference, the probability that any client at all is flagged is at most
`level`. This holds for any sizes, any number of clients, ties, and clients that differ. The records
of a client must be independent and come from one distribution within an atom. In an aggregate of
several clients they come from several, and for them the inequality of scores is not proved with the
same constant; those of composition are. (Measured: 0 of 2,000 federations of alike clients had a
flag; the bound is far from tight. tests/test_screening.py repeats it with 300.)

What a flag does not say is who is wrong. Of two clients that differ both are flagged, and many
invented clients together make the honest ones look odd. A client that stays close to the others, or
whose atoms are small, is not flagged; `Calibration.influence` says how much it moves.

Every client counts alike in R_k, so that a client cannot become the norm by claiming more records.

Cost: one pass over the sorted centroids.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.calibration.admission import Admission, Aggregates
from gcfcp.calibration.clients import in_order
from gcfcp.calibration.noisy import has_noise
from gcfcp.calibration.pooling import Pool, pool_of
from gcfcp.summary import ClientSummary

LEVEL = 0.05
"""The probability of a flag is at most this if all clients are within the tolerance."""

TOLERANCE = 0.5
"""Two sites may differ this much without a flag.

A distance of 0.5 means that for some score t the shares of records with a score of at most t differ
by 0.5, for example 30% at one client and 80% on average at the others.
"""

RATIO = 5.0
"""A group may be so many times as common at a client as at the others without a flag.

At 5 times, 1 of 20 clients of equal size has 21 % of the weight of the group.
"""

_AT_A_TIME = 2**16  # So many centroids are compared at a time, and those with the same value.


@dataclass(frozen=True)
class Screening:
    """How far one client is from the others, in the atom where that is most certain."""

    client: str
    atoms: int  # How many of its atoms another client has too. With 0 it cannot be compared.
    groups: tuple[str, ...]  # The groups of the atom in which `certain` is largest.
    records: int  # How many records the client has in that atom.
    distance: float  # D_k = sup |F^_k - R^_k| in that atom, between 0 and 1.
    certain: float  # The part of the distance that chance and compression cannot explain, if > 0.
    flagged: bool  # Whether `certain` exceeds the tolerance, or `times` the ratio.
    level: float = LEVEL  # The bound on the probability of a false alarm.
    group: str = ""  # The group in which `times` is largest; "" if no group can be compared.
    share: float = 0.0  # The share of the client's records that is in that group.
    others: float = 0.0  # The average share of the group at the others.
    times: float = 0.0  # The group is surely so many times as common here as at the others.
    odd_scores: bool = False  # Whether `certain` exceeds the tolerance.
    odd_composition: bool = False  # Whether `times` exceeds the ratio.

    def __str__(self) -> str:
        if not self.flagged:
            return f"{self.client} is not far from the other clients in any atom they share"
        found = []
        if self.odd_scores:
            found.append(
                f"in {' & '.join(self.groups)} ({self.records:,} records) the distributions of "
                f"scores differ by {self.distance:.2f}, of which {self.certain:.2f} cannot be "
                "chance"
            )
        if self.odd_composition:
            found.append(
                f"{self.share:.1%} of its records are in group {self.group!r}, against "
                f"{self.others:.1%} on average at the others, which is at least {self.times:.3g} "
                "times as many"
            )
        return (
            f"{self.client} is unlike the other clients: {'; and '.join(found)} (the probability "
            f"of a false alarm is at most {self.level:.0%}). Sites may differ for good reasons, "
            "but another model, another score or invented numbers would look the same: ask this "
            "client. It was not left out"
        )


def screen(
    summaries: Iterable[ClientSummary],
    *,
    level: float = LEVEL,
    tolerance: float = TOLERANCE,
    ratio: float = RATIO,
    aggregates: Aggregates = (),
) -> tuple[Screening, ...]:
    """One record for each client, in the order of the clients' names; see the module.

    - `level`: The largest probability of a false alarm, between 0 and 1.
    - `tolerance`: The distance that is allowed without a flag, between 0 and 1.
    - `ratio`: How many times as common a group may be without a flag, at least 1.
    - `aggregates`: The aggregates that may be among the summaries; see `calibrate`.
    """
    level = checks.probability("level", level)
    tolerance = checks.probability("tolerance", tolerance)
    ratio = checks.at_least("ratio", ratio, 1)
    ordered = in_order(summaries, Admission.of(aggregates))
    return screen_pool(ordered, pool_of(ordered), level, tolerance, ratio)


def screen_pool(
    ordered: Sequence[ClientSummary],
    pool: Pool,
    level: float = LEVEL,
    tolerance: float = TOLERANCE,
    ratio: float = RATIO,
) -> tuple[Screening, ...]:
    """The same for summaries that are in order, and whose centroids are pooled already."""
    if has_noise(ordered):  # The bounds are about counts of records.
        return tuple(Screening(s.client, 0, (), 0, 0.0, 0.0, False, level) for s in ordered)
    # How many clients have the atom of each cell. A cell is one atom at one client.
    sharing = np.bincount(pool.cell_atom, minlength=len(pool.membership))[pool.cell_atom]
    distance = _distances(pool, np.concatenate([s.counts for s in ordered]), sharing)
    withheld = np.array([s.suppressed for s in ordered])[pool.cell_client]
    certain = _certain(pool, sharing, distance, level / 2, withheld)
    composition = _Composition.of(ordered, level / 2)
    scores = _scores(ordered, pool, sharing > 1, distance, certain, tolerance)
    shares = composition.found(ordered[0].groups.names, ratio)
    return tuple(
        Screening(
            client=summary.client,
            flagged=by_score["odd_scores"] or by_share["odd_composition"],
            level=level,
            **by_score,
            **by_share,
        )
        for summary, by_score, by_share in zip(ordered, scores, shares, strict=True)
    )


def _scores(
    ordered: Sequence[ClientSummary],
    pool: Pool,
    comparable: Bools,
    distance: Floats,
    certain: Floats,
    tolerance: float,
) -> list[dict[str, Any]]:
    """What the records say about the scores of each client: the atom with the most `certain`."""
    cells = np.flatnonzero(comparable)
    counts = np.bincount(pool.cell_client[cells], minlength=len(ordered)).tolist()
    # The most certain cell of each client comes first, and of equal ones the first.
    cells = cells[np.lexsort((-certain[cells], pool.cell_client[cells]))]
    clients, first = np.unique(pool.cell_client[cells], return_index=True)
    names = [ordered[0].groups.names_of(row) for row in pool.membership]
    nothing = {"atoms": 0, "groups": (), "records": 0, "distance": 0.0, "certain": 0.0}
    found: list[dict[str, Any]] = [nothing | {"odd_scores": False}] * len(ordered)
    for k, worst in zip(clients.tolist(), cells[first].tolist(), strict=True):
        found[k] = {
            "atoms": counts[k],
            "groups": names[pool.cell_atom[worst]],
            "records": int(pool.cell_counts[worst]),
            "distance": float(distance[worst]),
            "certain": float(certain[worst]),
            "odd_scores": bool(certain[worst] > tolerance),
        }
    return found


@dataclass(frozen=True)
class _Composition:
    """How common each group is at each client, against the others. All arrays are (K, G)."""

    share: Floats  # p_k, without suppressed records.
    others: Floats  # The average of p_j over the reference, with suppressed records.
    times: Floats  # low_k / others_k; 0 where nothing can be compared.

    @classmethod
    def of(cls, summaries: Sequence[ClientSummary], level: float) -> _Composition:
        """The composition of these clients, in the groups that are not sites; see the module."""
        G = len(summaries[0].groups.others)
        n = np.array([s.n for s in summaries], dtype=np.float64)[:, None]
        able: Bools = np.array([s.possible[:G] for s in summaries])
        counts = np.array([(s.atom_counts @ s.membership)[:G] for s in summaries])
        strange = np.array([(s.strangers or (0,) * G)[:G] for s in summaries])
        hidden = np.array([s.suppressed_groups[:G] for s in summaries])
        share = np.maximum(counts - strange, 0) / n
        most = np.minimum(counts + hidden, n) / n
        usable = able & (n >= np.median(n) / 10)
        s = usable.sum(axis=0) - usable  # How many clients are in the reference of each pair.
        compared = able & (s > 0)
        L = math.log(3 * max(1, int(compared.sum())) / level)
        low = np.maximum(share - np.sqrt(2 * share * L / n), 0.0)
        high = np.minimum(most + L / n + np.sqrt((L / n) ** 2 + 2 * most * L / n), 1.0)
        size = np.maximum(s, 1)
        average = _of_others(most, usable) / size
        moment = _of_others(high / n, usable)
        certain = np.minimum(average + np.sqrt(2 * L * moment) / size, 1.0)
        times = np.zeros(share.shape)
        np.divide(low, certain, out=times, where=compared & (certain > 0))
        return cls(share, average, times)

    def found(self, names: Sequence[str], ratio: float) -> list[dict[str, Any]]:
        """What the records say about each client: the group with the most `times`.

        - `names`: The names of the groups.
        """
        nothing = {"group": "", "share": 0.0, "others": 0.0, "times": 0.0, "odd_composition": False}
        found: list[dict[str, Any]] = [nothing] * len(self.times)
        if not self.times.size:
            return found
        for k, g in enumerate(self.times.argmax(axis=1).tolist()):
            times = float(self.times[k, g])
            if times > 0:
                found[k] = {
                    "group": names[g],
                    "share": float(self.share[k, g]),
                    "others": float(self.others[k, g]),
                    "times": times,
                    "odd_composition": times > ratio,
                }
        return found


def _of_others(values: Floats, usable: Bools) -> Floats:
    """The sum of the values (K, G) over the usable clients other than each client, (K, G)."""
    own = np.where(usable, values, 0.0)
    total: Floats = np.maximum(own.sum(axis=0) - own, 0.0)
    return total


def _certain(pool: Pool, sharing: Ints, distance: Floats, level: float, withheld: Ints) -> Floats:
    """D_k - (e_k + b_k) - mean_j (e_j + b_j) of every cell; -inf if no other client has the atom.

    - `sharing`: How many clients have the atom of each cell.
    - `withheld`: How many records of each cell may be withheld beside those that are described.
      They are its largest scores, and move its distribution by at most their share.
    """
    comparable = sharing > 1
    noise = pool.cell_errors / pool.cell_counts + withheld / (pool.cell_counts + withheld)
    noise = noise + np.sqrt(
        math.log(2 * max(1, int(comparable.sum())) / level) / (2 * pool.cell_counts)
    )
    others = pool.by_atom(noise)[pool.cell_atom] - noise
    certain = np.full(len(distance), -np.inf)
    np.subtract(
        distance, noise + others / np.maximum(sharing - 1, 1), out=certain, where=comparable
    )
    return certain


def _distances(pool: Pool, counts: Ints, sharing: Ints) -> Floats:
    """D_k = sup |F^_k - R^_k| of every cell; 0 if no other client has the atom.

    Let s clients have the atom, and let T be the sum of their F^_j. Then
    F^_k - R^_k = (s F^_k - T) / (s - 1). Between two centroids of client k only T changes, and it
    rises. So the supremum is reached at a centroid of client k, or just before one.

    - `counts`: How many records each centroid stands for, cell after cell.
    """
    # How many records come before each cell, and up to each centroid, cell after cell.
    earlier, up_to = np.cumsum(pool.cell_counts) - pool.cell_counts, np.cumsum(counts)
    cells = np.repeat(np.arange(len(sharing), dtype=np.int32), pool.cell_size)
    farthest, last = np.zeros(len(sharing)), (-1, 0.0)  # The last atom that was met, and its T.
    for some in _in_parts(pool):
        order, own, atom = pool.order[some], pool.counts[some], pool.atom[some]
        cell = cells[order].astype(np.int64)
        s, n, below = sharing[cell], pool.cell_counts[cell], up_to[order] - earlier[cell]
        known = last[1] if last[0] == atom[0] else 0.0
        before, at = _totals(atom, pool.values[some], own / n, known)
        last = int(atom[-1]), float(at[-1])
        at -= s * (below / n)
        below -= own
        before -= s * (below / n)
        np.maximum.at(farthest, cell, np.maximum(np.abs(at, out=at), np.abs(before, out=before)))
    return np.where(sharing > 1, np.minimum(farthest / np.maximum(sharing - 1, 1), 1.0), 0.0)


def _in_parts(pool: Pool) -> Iterator[slice]:
    """The centroids of the pool in parts that stay in the cache. Equal values of an atom stay
    together."""
    ends = np.cumsum(np.bincount(pool.atom))
    done = 0
    while done < len(pool.atom):
        end = min(done + _AT_A_TIME, len(pool.atom))
        rest = pool.values[end : ends[pool.atom[end - 1]]]
        end += int(rest.searchsorted(pool.values[end - 1], side="right"))
        yield slice(done, end)
        done = end


def _totals(atom: Ints, values: Floats, share: Floats, known: float) -> tuple[Floats, Floats]:
    """T just before and at each centroid, in the order of the pool. `share` is their F^ step.

    Equal values of an atom are one step of T.

    - `known`: T of the first atom before its first centroid.
    """
    new_atom = np.ones(len(share), dtype=bool)
    new_atom[1:] = atom[1:] != atom[:-1]
    new = new_atom.copy()
    new[1:] |= values[1:] != values[:-1]
    distinct = bool(new.all())
    if not distinct:
        share, new_atom = np.add.reduceat(share, np.flatnonzero(new)), new_atom[new]
    share[0] += known
    at = _running(share, np.flatnonzero(new_atom))
    before = np.empty_like(at)
    before[1:] = at[:-1]
    before[new_atom] = 0.0
    before[0] = known
    if distinct:
        return before, at
    step = np.cumsum(new) - 1
    return before[step], at[step]


def _running(values: Floats, starts: Ints) -> Floats:
    """Running sums that start again at each of these places, of which the first is 0."""
    sums = np.cumsum(values)
    before = np.concatenate([[0.0], sums[starts[1:] - 1]])
    sums -= np.repeat(before, np.diff(starts, append=len(values)))
    return sums
