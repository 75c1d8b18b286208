"""Records that lie at sites: what `many_sites` and `shape_and_level` have in common.

Both divide the records of CIFAR-10 and of Communities among a stated number of sites of unequal
sizes, between half and one and a half of the mean. The sites of CIFAR-10 like some labels more than
others; those of Communities are states, or parts of them, or several together.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import evaluate, windows
from experiments.montecarlo import Settings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
CIFAR10, COMMUNITIES = "CIFAR-10", "Communities"


def prepare(
    probs: Any, settings: Settings, seed: int, columns: Sequence[str]
) -> tuple[dict[str, Any], str, bool]:
    """The arrays for the runs, where they come from in words, and whether they are simulated.

    columns: The columns of Communities from which groups are made.
    """
    usual = SHARED / "cifar10_resnet56.npz"
    if probs is None and usual.exists():
        probs = os.path.relpath(usual)
    arrays, source, simulated = windows.prepare(probs, settings, seed)
    path = SHARED / "communities.csv"
    if not path.exists():
        return arrays, f"{source}; {path.name} is missing, so Communities are left out", simulated
    return arrays | _communities(path, columns), f"{source}; {path.name}", simulated


def _communities(path: Path, columns: Sequence[str]) -> dict[str, Any]:
    """The features, outcome, state and group columns of all communities."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    apart = {"state", "county", "community", "communityname", "fold", "ViolentCrimesPerPop"}
    features = [k for k in rows[0] if k not in apart and all(r[k] for r in rows)]
    return {
        "features": np.array([[float(r[k]) for k in features] for r in rows]),
        "outcome": np.array([float(r["ViolentCrimesPerPop"]) for r in rows]),
        "state": np.unique([int(r["state"]) for r in rows], return_inverse=True)[1],
        "groups": np.array([[float(r[k]) for k in columns] for r in rows]),
    }


def ridge(X: Floats, y: Floats, penalty: float) -> Callable[[Floats], Floats]:
    """A ridge regression on standardised features."""
    centre, scale = X.mean(axis=0), X.std(axis=0) + 1e-12
    Z = (X - centre) / scale
    beta = np.linalg.solve(Z.T @ Z + penalty * np.eye(Z.shape[1]), Z.T @ (y - y.mean()))

    def predict(new: Floats) -> Floats:
        found: Floats = (new - centre) / scale @ beta + y.mean()
        return found

    return predict


def lengths(centre: Floats) -> Callable[[Floats], Floats]:
    """A function that measures intervals around these centres, cut at 0 and 1."""

    def found(t: Floats) -> Floats:
        cut: Floats = np.maximum(np.minimum(centre + t, 1) - np.maximum(centre - t, 0), 0)
        return cut

    return found


def sizes(K: int, n: int, rng: np.random.Generator) -> Ints:
    """The numbers of records of K sites: together n, each at least one, unequal."""
    shares = rng.uniform(0.5, 1.5, K)
    cuts = np.rint(np.cumsum(shares) / shares.sum() * n).astype(np.int64)
    found: Ints = np.diff(cuts, prepend=0)
    while found.min() < 1:
        found[found.argmax()] -= 1
        found[found.argmin()] += 1
    return found


def dealt(liking: Floats, room: Ints, rng: np.random.Generator) -> Ints:
    """The site of each record. It is drawn by how much a site likes the record (K, n), times the
    room that is left at the site."""
    left = room.astype(np.float64)
    site = np.empty(liking.shape[1], dtype=np.int64)
    for i in rng.permutation(len(site)):
        ends = np.cumsum((liking[:, i] + 1e-9) * left)
        k = int(np.searchsorted(ends, rng.random() * ends[-1], side="right"))
        site[i] = k
        left[k] -= 1
    return site


def by_state(state: Ints, states: int, K: int, rng: np.random.Generator) -> Ints:
    """The site of each record. States lie side by side in a random order and are cut into sites.

    states: How many states there are in all.
    """
    place = np.lexsort((rng.random(len(state)), rng.permutation(states)[state]))
    site = np.empty(len(state), dtype=np.int64)
    site[place] = np.repeat(np.arange(K), sizes(K, len(state), rng))
    return site


def judged(
    thresholds: Floats, test: evaluate.Test, weights: Floats, facts: dict[str, Any]
) -> list[dict[str, Any]]:
    """One record for each group: coverage, mean size and infinite thresholds in the mixture."""
    covered, sizes_found, infinite = (
        test.truth <= thresholds,
        test.sizes(thresholds),
        np.isinf(thresholds),
    )
    found = []
    for g, group in enumerate(test.groups):
        w = np.where(test.membership[:, g], weights, 0.0)
        w = w / w.sum()
        found.append(
            {
                **facts,
                "group": group,
                "n": int(test.membership[:, g].sum()),
                "coverage": float(w @ covered),
                "size": float(w @ sizes_found),
                "infinite": float(w @ infinite),
            }
        )
    return found
