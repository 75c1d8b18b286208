"""The problems: synthetic data with fixed seeds, in the sizes of the paper's experiments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import gcfcp

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Labelled:
    """Probabilities (n, L), labels (n,), memberships (n, G) and the client (n,) of each record."""

    probabilities: Floats
    labels: Ints
    membership: Bools
    client: Ints


def cifar_sized(n: int, seed: int) -> Labelled:
    """A problem of the size of CIFAR-10: 10 labels and 5 clients with two labels each.

    The groups are 4 overlapping windows of the predicted label, which make 5 atoms.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=n)
    logits = rng.normal(size=(n, 10)) * rng.uniform(0.5, 2.0, size=(n, 1))
    logits[np.arange(n), labels] += rng.gamma(4.0, 1.0, size=n)
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    predicted = probabilities.argmax(axis=1)
    windows = [range(4), range(2, 6), range(4, 8), range(6, 10)]
    membership = np.column_stack([np.isin(predicted, list(w)) for w in windows])
    return Labelled(probabilities, labels, membership, labels // 2)


@dataclass(frozen=True)
class Scored:
    """Scores (n,), memberships (n, G) and the client (n,) of each record."""

    scores: Floats
    membership: Bools
    client: Ints

    @property
    def clients(self) -> list[tuple[Floats, Bools]]:
        """The scores and memberships of each client."""
        return [
            (self.scores[self.client == k], self.membership[self.client == k])
            for k in range(int(self.client.max()) + 1)
        ]

    @property
    def groups(self) -> gcfcp.Groups:
        """A family with as many groups as the memberships have columns."""
        return gcfcp.Groups([f"G{g + 1}" for g in range(self.membership.shape[1])])


def imagenet_sized(n: int, seed: int, clients: int = 10) -> Scored:
    """A problem of the size of ImageNet: 15 groups and 50 atoms.

    Each record is in one of 10 semantic groups and in one of 5 groups by ambiguity.
    """
    rng = np.random.default_rng(seed)
    semantic, ambiguity = rng.integers(10, size=n), rng.integers(5, size=n)
    membership = np.zeros((n, 15), dtype=bool)
    membership[np.arange(n), semantic] = True
    membership[np.arange(n), 10 + ambiguity] = True
    scores = rng.gamma(2.0, 1.0, size=n) * (1 + 0.3 * ambiguity) + 0.1 * semantic
    return Scored(scores, membership, rng.integers(clients, size=n))


def overlapping(n: int, groups: int, atoms: int, seed: int) -> Scored:
    """n records in `atoms` random combinations of `groups` (or in all, if there are fewer).

    Each group by itself is one of the atoms, so that no group depends on the others.
    """
    rng = np.random.default_rng(seed)
    atoms = min(atoms, 2**groups - 1)
    rows = {tuple(row) for row in np.eye(groups, dtype=bool).tolist()}
    share = min(0.5, 6 / groups)
    while len(rows) < atoms:
        row = rng.random(groups) < (share if rng.random() < 0.9 else 0.5)
        if row.any():
            rows.add(tuple(row.tolist()))
    patterns = np.array(sorted(rows), dtype=bool)
    atom = np.concatenate(
        [np.arange(len(patterns)), rng.choice(len(patterns), size=n - len(patterns))]
    )
    scores = rng.gamma(2.0, 1.0, size=n) * rng.uniform(0.5, 2.0, size=len(patterns))[atom]
    return Scored(scores, patterns[atom], np.zeros(n, dtype=np.int64))


def at_sites(n: int, sites: int, others: int, atoms: int, seed: int) -> Scored:
    """n records in `atoms` combinations: everyone, a site, and random ones of the other groups.

    There is one group for each site, and `others` groups, of which the first holds everyone.
    """
    rng = np.random.default_rng(seed)
    rows: set[tuple[bool, ...]] = set()
    while len(rows) < atoms:
        own = np.arange(sites) == len(rows) % sites
        rows.add((True, *(rng.random(others - 1) < 0.4).tolist(), *own.tolist()))
    patterns = np.array(sorted(rows), dtype=bool)
    atom = np.concatenate([np.arange(atoms), rng.choice(atoms, size=n - atoms)])
    scores = rng.gamma(2.0, 1.0, size=n) * rng.uniform(0.5, 2.0, size=atoms)[atom]
    return Scored(scores, patterns[atom], np.zeros(n, dtype=np.int64))


def seven_atoms(n: int, seed: int) -> Scored:
    """n records in 3 overlapping groups and all their 7 combinations, for one client of many."""
    rng = np.random.default_rng(seed)
    patterns = np.array([[int(b) for b in f"{i:03b}"] for i in range(1, 8)], dtype=bool)
    return Scored(
        rng.gamma(2.0, 1.0, size=n), patterns[rng.integers(7, size=n)], np.zeros(n, dtype=np.int64)
    )
