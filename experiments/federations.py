"""Random federations whose distributions are known, so that coverage is a formula.

Everything about a federation is drawn at random: the number of clients, their sizes, the mixture,
alpha, delta, the probability of each atom at each client, and the distribution of its scores.
Scores are normal, or normal and rounded, so that there are ties; where they are rounded to
multiples of 2, most clients have two or three different scores.

| family        | atoms and groups                                                   | gamma  |
|---------------|--------------------------------------------------------------------|--------|
| `disjoint`    | one to four disjoint groups                                        | 1      |
| `overlapping` | any atoms of two to four groups                                    | 1 to 3 |
| `partitions`  | everyone, one partition into two groups and one into three         | 1      |
| `windows`     | intervals of five classes                                          | 1      |
| `crossing 3`  | everyone and three attributes; so too `crossing 4`, `crossing 5`   | 1 to 5 |
| `sites`       | everyone or one attribute or both, and every site is a group       | 1      |
| `absent`      | any atoms, and clients declare groups that they cannot have        | 1 to 3 |
| `tight`       | one group; clients of one or two records, of which as many always  | 1      |
|               | miss as a weight of half a record allows                           |        |

`Federation.up_to_twenty` draws other federations, for calibrations by group, with a shape or with
a confidence: 1 to 20 clients of 1 to 300 records. It knows these families too:

| family               | atoms and groups                                                       |
|----------------------|------------------------------------------------------------------------|
| `everyone`           | a group that holds everyone by definition, and one to three attributes |
| `everyone alone`     | this group only                                                        |
| `everyone and sites` | this group, one attribute, and every site is a group                   |
| `missing`            | one group, or everyone and an attribute; small sites that always miss  |

`constructed` makes federations by hand in which the promise is kept with nothing to spare.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

import gcfcp
from gcfcp.checks import Representative

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.5)
NAMES = ["a", "b", "c", "d", "e", "f"]

SHAPES = ("none", "good", "bad", "absurd", "opposite", "two decimals")
"""What is subtracted from the scores: nothing; a shape that fits other records; random numbers of
the size of the scores; powers of ten up to 1e15 with random signs; the good shape with the opposite
sign; or random numbers with two decimals, where the scores have at most two decimals too."""


@dataclass(frozen=True)
class Configuration:
    """The options of one row of the table."""

    family: str
    rule: str
    representative: Representative
    merge: str  # "pool" or "recompress"; with "region" an aggregator merges two clients.
    min_count: int
    correction: str = "paper"
    # "every score": the digests are so fine that nothing can be compressed. "coarse": delta is 4, 8
    # or 25. "any": delta is anything from 4 to 250.
    digests: str = "any"
    by: str = "atom"  # What the summaries describe: atoms or groups.
    shape: str = "none"  # One of `SHAPES`.
    confidence: float | None = None  # That of a promise about the very predictor.


@dataclass(frozen=True)
class Outcome:
    """One calibration: how it covers, and what it says of itself."""

    excess: Floats  # (G,): The coverage of each group minus what is promised.
    status: str  # The ground of the promise, in the words of `Guarantee`; "" if it was refused.
    gamma: float  # The imbalance that was charged for; 1 where none was.


@dataclass(frozen=True)
class Federation:
    """A federation with K clients, a atoms and G groups, whose distributions are known."""

    configuration: Configuration
    seed: int
    alpha: float
    delta: float
    membership: Bools  # (a, G): The groups of each atom, without those of the sites.
    sizes: tuple[int, ...]  # (K,): The number of records of each client.
    mixture: str | dict[str, float]
    atoms: Floats  # (K, a): The probability of each atom at each client.
    mean: Floats  # (K, a): The mean of the scores.
    spread: Floats  # (K, a): The standard deviation of the scores.
    grain: float  # Scores are rounded to multiples of this number; they are not if it is 0.
    absent: tuple[tuple[int, ...], ...] = ()  # (K,): The groups that each client cannot have.

    @classmethod
    def draw(cls, configuration: Configuration, seed: int) -> Federation:
        """The random federation of this seed."""
        rng = np.random.default_rng([2026, seed])
        sharp = configuration.correction == "sharp"
        membership = family(configuration.family, rng)
        a = len(membership)
        least = 2 if configuration.merge == "region" else 1
        sizes = _sizes(configuration, least, rng) if sharp else _few(least, rng)
        K = len(sizes)
        delta = float(rng.choice([4, 8, 25] if configuration.digests == "coarse" else _DELTAS))
        if configuration.digests == "every score":
            delta = 4.0 * max(sizes) + 4
        alpha = float(rng.choice(ALPHAS))
        mean = rng.normal(0, rng.choice([0.0, 1.0, 3.0]), (K, a))
        mixture = _mixture(configuration, K, rng)
        if configuration.family == "tight":
            n, each = sum(sizes), sizes[0]
            mean[:] = 0.0
            mean[: max(0, int((alpha * n - 0.5) / each))] = 50.0
            mixture = "proportional"
        atoms = rng.dirichlet(np.full(a, 0.7), K)
        absent = _absent(membership, K, rng) if configuration.family == "absent" else ()
        for k, missing in enumerate(absent):
            atoms[k, membership[:, list(missing)].any(axis=1)] = 0.0
        return cls(
            configuration,
            seed,
            alpha,
            delta,
            membership,
            sizes,
            mixture,
            atoms / atoms.sum(axis=1, keepdims=True),
            mean,
            np.exp(rng.uniform(-1.5, 1, (K, a))),
            float(rng.choice([0.0, 0.0, 0.5, 2.0] if sharp else [0.0, 0.0, 0.5])),
            absent,
        )

    @classmethod
    def up_to_twenty(cls, configuration: Configuration, seed: int) -> Federation:
        """The random federation of this seed with at most 20 clients."""
        rng = np.random.default_rng([2026, seed])
        membership = family(configuration.family, rng)
        a = len(membership)
        sizes = _up_to_three_hundred(configuration, rng)
        K = len(sizes)
        delta = float(rng.choice([4, 8, 25] if configuration.digests == "coarse" else _DELTAS))
        if configuration.digests == "every score":
            delta = 4.0 * max(sizes) + 4
        alpha = float(rng.choice(ALPHAS))
        mean = rng.normal(0, rng.choice([0.0, 1.0, 3.0]), (K, a))
        mean += rng.normal(0, rng.choice([0.0, 1.0, 3.0]), a)
        mixture = _mixture(configuration, K, rng)
        spread = np.exp(rng.uniform(-1.5, 1, (K, a)))
        grain = float(rng.choice([0.0, 0.0, 0.5, 2.0]))
        if configuration.family == "missing":
            mean[_missing(sizes, alpha)] += 50.0
            mixture = "proportional"
        if configuration.shape == "two decimals":
            mean, spread = mean / 10, spread / 10
            grain = float(rng.choice([0.01, 0.05, 0.2]))
        atoms = rng.dirichlet(np.full(a, float(rng.choice([0.2, 0.7, 3.0]))), K) + 1e-4
        absent = _absent(membership, K, rng) if configuration.family == "absent" else ()
        for k, missing in enumerate(absent):
            atoms[k, membership[:, list(missing)].any(axis=1)] = 0.0
        atoms /= atoms.sum(axis=1, keepdims=True)
        return cls(
            configuration,
            seed,
            alpha,
            delta,
            membership,
            sizes,
            mixture,
            atoms,
            mean,
            spread,
            grain,
            absent,
        )

    @cached_property
    def groups(self) -> gcfcp.Groups:
        """The family of groups."""
        sites = self._clients if self._has_sites else []
        names = NAMES[: self.membership.shape[1]]
        if self.configuration.family.startswith("everyone"):
            conditions = {name: f"{name} = 1" for name in names}
            return gcfcp.Groups({**conditions, "a": "TRUE"}, sites=sites)
        return gcfcp.Groups(names, sites=sites)

    @cached_property
    def shape(self) -> gcfcp.Shape | None:
        """What is subtracted from the scores. No calibrating record is behind it."""
        kind = self.configuration.shape
        if kind == "none":
            return None
        rng = np.random.default_rng([2026, self.seed, 1_000_000])
        G = len(self.groups)
        if kind == "bad":
            beta = rng.normal(0, np.abs(self.mean).mean() + self.spread.mean(), G)
        elif kind == "two decimals":
            beta = np.round(rng.normal(0, 1, G), 2)
        elif kind == "absurd":
            beta = rng.choice([-1.0, 1.0], G) * 10.0 ** rng.choice([3, 6, 9, 12, 15], G)
        else:
            # The mixture may name a region, and any mixture gives a shape.
            beta = np.array(gcfcp.fit_shape(self._other_summaries(rng), self.alpha).coefficients)
        if kind == "opposite":
            beta = -beta
        return gcfcp.Shape(self.groups, tuple(beta.tolist()))

    def _other_summaries(self, rng: Generator) -> list[gcfcp.ClientSummary]:
        """Summaries by atom of other records, from which a shape is made."""
        return [
            gcfcp.summarize(scores, member, groups=self.groups, client=client)
            for client, scores, member in self._records(rng)
        ]

    @property
    def _has_sites(self) -> bool:
        return self.configuration.family in ("sites", "everyone and sites")

    @property
    def _clients(self) -> list[str]:
        return [f"c{k:02d}" for k in range(len(self.sizes))]

    @property
    def rows(self) -> Bools:
        """(K, a, G): The groups of each atom at each client, with those of the sites."""
        K, (a, G) = len(self.sizes), self.membership.shape
        rows = np.broadcast_to(self.membership, (K, a, G))
        if not self._has_sites:
            return rows
        own = np.broadcast_to(np.eye(K, dtype=bool)[:, None], (K, a, K))
        return np.concatenate([rows, own], axis=2)

    def coverage(self, thresholds: Floats) -> Floats:
        """The exact coverage P(covered | G) of each group under the mixture.

        thresholds: (a,), or (K, a) where the sites have thresholds of their own.
        """
        from scipy.special import ndtr

        t = thresholds
        # Let j be the largest whole number whose multiple of the grain is not above t. A rounded
        # score is at most t if and only if it was below (j + 1/2) grain before it was rounded.
        if self.grain:
            j = np.floor(thresholds / self.grain)
            finite = np.isfinite(j)
            j[finite & (self._multiple(j) > thresholds)] -= 1  # The quotient was rounded.
            j[finite & (self._multiple(j + 1) <= thresholds)] += 1
            t = (j + 0.5) * self.grain
        weight = self.shares[:, None] * self.atoms
        covered = weight * ndtr((t - self.mean) / self.spread)
        rows = self.rows
        found: Floats = np.einsum("ka,kag->g", covered, rows) / np.einsum("ka,kag->g", weight, rows)
        return found

    @property
    def shares(self) -> Floats:
        """pi_k of every client, also of those behind an aggregator."""
        n, K = np.array(self.sizes, dtype=np.float64), len(self.sizes)
        if self.mixture == "uniform":
            pi = np.full(K, 1 / K)
        elif self.mixture == "proportional":
            pi = n / n.sum()
        else:
            assert isinstance(self.mixture, dict)
            pi = np.array([self.mixture.get(c, 0.0) for c in self._clients])
        if self.configuration.merge == "region":
            region = self.mixture["region"] if isinstance(self.mixture, dict) else pi[:2].sum()
            # The paper's weights within a region are in proportion to n_k + 1.
            within = n[:2] + (self.configuration.correction == "paper")
            pi[:2] = region * within / within.sum()
        return pi

    def _multiple(self, j: Floats) -> Floats:
        """j times the grain, as a number with few decimals."""
        found: Floats = np.round(j * self.grain, 6)
        return found

    def _records(self, rng: Generator) -> Iterator[tuple[str, Floats, Bools]]:
        """Draw the records of each client: its name, their scores and their groups."""
        for k, n in enumerate(self.sizes):
            atom = rng.choice(len(self.membership), size=n, p=self.atoms[k])
            scores = rng.normal(self.mean[k, atom], self.spread[k, atom])
            if self.grain:
                scores = self._multiple(np.rint(scores / self.grain))
            yield self._clients[k], scores, self.membership[atom]

    def summaries(self, rng: Generator) -> list[gcfcp.ClientSummary]:
        """Draw the records of all clients, and summarise them."""
        c, groups = self.configuration, self.groups
        absent = self.absent or ((),) * len(self.sizes)
        summaries = [
            gcfcp.summarize(
                scores,
                member,
                groups=groups,
                client=client,
                delta=self.delta,
                representative=c.representative,
                min_count=c.min_count,
                absent=[NAMES[g] for g in missing],
                by=c.by,
                shape=self.shape if c.by == "group" else None,
            )
            for (client, scores, member), missing in zip(self._records(rng), absent, strict=True)
        ]
        if c.merge == "region" and any(len(s.values) for s in summaries[:2]):
            summaries = [gcfcp.merge(summaries[:2], "region"), *summaries[2:]]
        return summaries

    def calibrated(self, rng: Generator) -> Outcome:
        """Calibrate once. `rng` draws the records."""
        c = self.configuration
        summaries = self.summaries(rng)
        refused = c.merge == "region" and summaries[0].client != "region"
        if refused or not any(len(s.values) and self._share(s.client) for s in summaries):
            # If no client with a weight describes an atom, there is no calibration. Every set then
            # holds all outcomes, and coverage exceeds 1 - alpha by alpha.
            return Outcome(np.full(len(self.groups), self.alpha), "", 1.0)
        calibration = gcfcp.calibrate(
            summaries,
            self.alpha,
            self.mixture,
            "recompress" if c.merge == "recompress" else "pool",
            rule=c.rule,
            correction=c.correction,
            shape=self.shape,
            confidence=c.confidence,
            aggregates={"region": 2},
        )
        rows = self.rows if self._has_sites else self.membership
        thresholds = calibration.thresholds(rows.reshape(-1, rows.shape[-1]))
        promised = np.array([g.certified for g in calibration.guarantee])
        return Outcome(
            self.coverage(thresholds.reshape(rows.shape[:-1])) - promised,
            calibration.guarantee[0].certified_status,
            calibration.correction.gamma or 1.0,
        )

    def _share(self, client: str) -> float:
        return self.mixture.get(client, 0.0) if isinstance(self.mixture, dict) else 1.0


_DELTAS = (4, 8, 25, 250)


def family(kind: str, rng: Generator) -> Bools:
    """The atoms of a random family of groups, (a, G), without the groups of sites."""
    if kind in ("tight", "everyone alone"):
        return np.ones((1, 1), dtype=bool)
    if kind == "everyone and sites":
        return np.array([[True, False], [True, True]])
    if kind == "missing":
        return np.array([[1]] if rng.random() < 0.5 else [[1, 0], [1, 1]], dtype=bool)
    if kind == "everyone":
        return np.array(list(itertools.product([True], *[[False, True]] * int(rng.integers(1, 4)))))
    if kind == "disjoint":
        return np.eye(int(rng.integers(1, 5)), dtype=bool)
    if kind == "partitions":
        pairs = np.array(list(itertools.product(range(2), range(3))))
        return np.column_stack(
            [np.ones(6, dtype=bool), *(pairs[:, 0] == v for v in range(2))]
            + [pairs[:, 1] == v for v in range(3)]
        )
    if kind == "windows":
        starts = rng.integers(0, 4, 4)
        ends = [*(starts + rng.integers(2, 4, 4)), 5]
        classes = np.arange(5)
        inside = [(s <= classes) & (classes < e) for s, e in zip([*starts, 0], ends, strict=True)]
        return _distinct(np.column_stack(inside))
    if kind.startswith("crossing"):
        r = int(kind[-1])
        every = np.array(list(itertools.product([False, True], repeat=r)))
        some = rng.permutation(every)[:12]
        return _distinct(np.column_stack([np.ones(len(some), dtype=bool), some]))
    if kind == "sites":
        shapes = ([[1]], [[1, 0], [1, 1]], [[0], [1]])  # The third has records of their site alone.
        return np.array(shapes[int(rng.integers(3))], dtype=bool)
    G = int(rng.integers(2, 5))
    every = np.array(list(itertools.product([False, True], repeat=G)))[1:]
    some = rng.permutation(every)[: int(rng.integers(G, min(len(every), 6) + 1))]
    if rng.random() < 0.5:
        some[:, 0] = True  # In half of the families the first group holds everyone.
    some[~some.any(axis=1), 0] = True
    return _distinct(some)


def _distinct(rows: Bools) -> Bools:
    """The distinct rows that are in a group, without the groups that have no row."""
    some = np.unique(rows[rows.any(axis=1)], axis=0)
    columns: Bools = some[:, some.any(axis=0)]
    return columns


def _few(least: int, rng: Generator) -> tuple[int, ...]:
    """The sizes of at most five clients with 4 to 250 records each."""
    K = int(rng.integers(least, 6))
    sizes: list[int] = np.exp(rng.uniform(np.log(4), np.log(250), K)).astype(int).tolist()
    return tuple(sizes)


def _sizes(configuration: Configuration, least: int, rng: Generator) -> tuple[int, ...]:
    """In one of three federations few clients; otherwise up to 50 with 2 to 30 records each."""
    if configuration.family == "tight":
        return (int(rng.integers(1, 3)),) * int(rng.integers(6, 51))
    if rng.random() < 1 / 3:
        return _few(least, rng)
    most = 12 if configuration.family == "sites" else 50
    K = int(np.exp(rng.uniform(np.log(least), np.log(most + 1))))
    sizes: list[int] = rng.integers(2, int(rng.choice([3, 8, 31])), K).tolist()
    return tuple(sizes)


def _up_to_three_hundred(configuration: Configuration, rng: Generator) -> tuple[int, ...]:
    """The sizes of 1 to 20 clients with 1 to 300 records each.

    In the family `missing` some are large, and the others are those that may always miss.
    """
    if configuration.family == "missing":
        large = rng.integers(50, 301, int(rng.integers(1, 6)))
        small = rng.choice([3, 7, 8, 12], int(rng.integers(2, 15)))
        return (*large.tolist(), *small.tolist())
    least = 2 if configuration.merge == "region" else 1
    K = int(np.exp(rng.uniform(np.log(least), np.log(21))))
    log_most = math.log(rng.choice([3, 8, 31, 301]))
    sizes: list[int] = np.exp(rng.uniform(0, log_most, K)).astype(int).tolist()
    return tuple(sizes)


def _missing(sizes: Sequence[int], alpha: float) -> list[int]:
    """Small clients, from the last on, that can always miss without making a threshold infinite.

    If the mixture is in proportion to the n records, alpha n less one record may be missed.
    """
    allowed = alpha * sum(sizes) - 1.2
    found = []
    for k in range(len(sizes) - 1, -1, -1):
        if sizes[k] < 50 and sizes[k] <= allowed:
            allowed -= sizes[k]
            found.append(k)
    return found


def _mixture(configuration: Configuration, K: int, rng: Generator) -> str | dict[str, float]:
    """The mixture as a word, or weights that are drawn at random."""
    word = str(rng.choice(["uniform", "proportional", "given"]))
    if word != "given":
        return word
    weights = rng.dirichlet(np.ones(K))
    mixture = {f"c{k:02d}": float(w) for k, w in enumerate(weights / weights.sum())}
    if configuration.merge == "region":
        return {"region": mixture.pop("c00") + mixture.pop("c01"), **mixture}
    return mixture


def _absent(membership: Bools, K: int, rng: Generator) -> tuple[tuple[int, ...], ...]:
    """The groups that each client cannot have. Some atom is left to each, and client 0 has all."""
    found: list[tuple[int, ...]] = [()]
    for _ in range(1, K):
        missing = np.flatnonzero(rng.random(membership.shape[1]) < 0.4)
        left = ~membership[:, missing].any(axis=1)
        found.append(tuple(missing.tolist()) if left.any() else ())
    return tuple(found)


# --- made by hand --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constructed:
    """Clients of a few records each, some of which always miss; one group holds everyone.

    A record of the first clients has a score in (1, 2) with probability `p`, and otherwise the
    score 0. Each record of the other clients has the score 3. The mixture is in proportion to the
    records, so that all records weigh the same, and T is empty.

    With `steps` the scores in (1, 2) are rounded up to this many different values.
    """

    name: str
    clients: int  # How many clients have scores in (1, 2) or 0.
    missing: int  # How many clients always have the score 3.
    each: int  # How many records each client has.
    p: float
    alpha: float
    steps: int = 0
    seed: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of records of each client."""
        return (self.each,) * (self.clients + self.missing)

    def calibrated(self, rng: Generator, rule: str) -> Outcome:
        """Calibrate once. `rng` draws the records."""
        groups = gcfcp.Groups(["all"])
        shape = (self.clients, self.each)
        inside = 1 + rng.random(shape)
        if self.steps:
            inside = 1 + np.ceil((inside - 1) * self.steps) / self.steps
        scores = np.where(rng.random(shape) < self.p, inside, 0.0)
        scores = np.concatenate([scores, np.full((self.missing, self.each), 3.0)])
        member = np.ones((self.each, 1), dtype=bool)
        summaries = [
            gcfcp.summarize(s, member, groups=groups, client=f"c{k:03d}")
            for k, s in enumerate(scores)
        ]
        calibration = gcfcp.calibrate(summaries, self.alpha, rule=rule)
        [threshold] = calibration.thresholds([[True]])
        below = np.clip(threshold - 1, 0, 1)
        if self.steps:
            below = np.floor(below * self.steps + 1e-9) / self.steps
        covered = float(threshold >= 0) * (1 - self.p) + self.p * below
        share = self.clients / (self.clients + self.missing)
        total = share * covered + (1 - share) * float(threshold >= 3)
        status = calibration.guarantee[0].certified_status
        return Outcome(np.array([total - (1 - self.alpha)]), status, 1.0)


def constructed() -> list[Constructed]:
    """Federations in which little is to spare: the first with the whole weight, the others with
    half of it."""
    return [
        Constructed("118 clients of one record, 12 that miss", 118, 12, 1, 0.2, 0.1),
        Constructed("113 clients of one record, 12 that miss", 113, 12, 1, 0.2, 0.1),
        Constructed("50 clients of one record, 5 that miss", 50, 5, 1, 0.3, 0.1),
        Constructed("6 clients of one record", 6, 0, 1, 1.0, 0.1),
        Constructed("39 clients of two records, 4 that miss", 39, 4, 2, 0.3, 0.1),
        Constructed("23 clients of one record, 5 that miss, two decimals", 23, 5, 1, 0.3, 0.2, 100),
        Constructed(
            "42 clients of two records, 10 that miss, two decimals", 42, 10, 2, 0.2, 0.2, 100
        ),
    ]
