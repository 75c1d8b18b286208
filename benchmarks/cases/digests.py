"""One digest, against np.sort and against every t-digest library that we know of.

Each peer gets a size parameter that gives it at least as many clusters as gcfcp has. The error of a
digest is that of the step function over its centroids, sup |F - F^|, because a coreset is made of
these points and the solver sees nothing else. The peers' own cdf interpolates between centroids.
For smooth data that is closer to F, but it says nothing about the worst case. The results list it
too.
"""

from __future__ import annotations

import math

import numpy as np

import gcfcp
from benchmarks.data import Floats
from benchmarks.measure import Case, Entry, Ratio, Scale, at_least, at_most, check, race
from benchmarks.peers import DigestPeer, MissingError, digest_peers

DELTA = 250
# For at least so many values, a digest takes at most so many times as long as np.sort.
_MOST_OF_SORT = ((10**5, 1.6), (10**4, 2.0), (10**3, 5.0), (0, 8.0))


def digest(scale: Scale) -> list[Case]:
    """A digest of n values, for several n."""
    sizes = (300, 3_000, 30_000) if scale.quick else (100, 10**3, 10**4, 10**5, 10**6, 10**7)
    return [_digest_of(n, scale) for n in sizes]


def step_error(ascending: Floats, means: Floats, weights: Floats) -> float:
    """sup |F - F^| of the step function over weighted points, counted from the data.

    Between two neighbouring points F^ is constant and F rises, so the largest difference is next to
    a point.
    """
    at, first = np.unique(means, return_index=True)
    reached = np.add.reduceat(weights, first).cumsum()
    F_hat = np.concatenate([[0.0], reached / reached[-1]])
    below = np.searchsorted(ascending, at, side="left") / len(ascending)
    up_to = np.searchsorted(ascending, at, side="right") / len(ascending)
    return float(max(np.abs(below - F_hat[:-1]).max(), np.abs(up_to - F_hat[1:]).max()))


def _matched(peer: DigestPeer, values: Floats, clusters: int) -> float:
    """A size parameter that gives the peer at least `clusters` clusters.

    It is searched for on a sample first. Then it is raised in steps on all values, unless the peer
    is slow.
    """
    sample = values[: 5_000 if peer.slow else 10**5]
    size = peer.usual
    while len(peer.centroids(peer.build(sample, size))) > clusters and size > 2:
        size = math.floor(size * 0.98)
    while len(peer.centroids(peer.build(sample, size))) < clusters:
        size = math.ceil(size * 1.02)
    if not peer.slow:
        while len(peer.centroids(peer.build(values, size))) < clusters:
            size = math.ceil(size * 1.02)
    return size


def _figures(peer: DigestPeer, built: object, ascending: Floats) -> dict[str, float]:
    """How many clusters a peer's digest has, and its two errors."""
    centroids = peer.centroids(built)
    order = np.argsort(centroids[:, 0], kind="stable")
    grid = ascending[:: max(1, len(ascending) // 2000)].copy()
    exact = np.searchsorted(ascending, grid, side="right") / len(ascending)
    return {
        "clusters": len(centroids),
        "step error": step_error(ascending, *centroids[order].T),
        "interpolated error": float(np.abs(peer.cdf(built, grid) - exact).max()),
    }


def _digest_of(n: int, scale: Scale) -> Case:
    """All libraries on the same n values."""
    values = np.random.default_rng(n).gamma(2.0, 1.0, size=n)
    ascending = np.sort(values)
    digests = {
        kind: gcfcp.TDigest.from_values(values, DELTA, representative=kind)
        for kind in ("mean", "upper")
    }
    checks = []
    for kind, d in digests.items():
        counted = step_error(ascending, d.means, d.weights)
        what = f"the certified error of {kind} is the error counted from the data, below the bound"
        checks.append(
            check(abs(d.error - counted) < 1e-12 and d.error <= math.sin(math.pi / DELTA), what)
        )
    runs = {"np.sort": lambda: np.sort(values)}
    figures: dict[str, dict[str, float]] = {"np.sort": {}}
    for kind, d in digests.items():
        runs[f"gcfcp {kind}"] = lambda kind=kind: gcfcp.TDigest.from_values(
            values, DELTA, representative=kind
        )
        figures[f"gcfcp {kind}"] = {"clusters": len(d), "step error": d.error}
    absent = []
    for name, peer in digest_peers():
        if isinstance(peer, MissingError):
            absent.append(Entry(name, why_not=str(peer)))
        elif n < scale.size(10**5, 3_000):
            absent.append(Entry(name, why_not="not run: peers are compared from 100,000 values on"))
        elif peer.slow and n > scale.size(10**5, 3_000):
            why = "not run: it takes 1,000 times as long as gcfcp for fewer values, see there"
            absent.append(Entry(name, why_not=why))
        else:
            size = _matched(peer, values, len(digests["mean"]))
            runs[name] = lambda peer=peer, size=size: peer.build(values, size)
            figures[name] = _figures(peer, peer.build(values, size), ascending)
    # A turn of small digests has many of them, so that it takes long enough to be timed.
    often = max(1, 10**6 // (n + 10**4))
    times = {
        name: timing.each(often)
        for name, timing in race(
            {name: lambda run=run: [run() for _ in range(often)] for name, run in runs.items()},
            scale.turns,
        ).items()
    }
    most = next(limit for size, limit in _MOST_OF_SORT if n >= size)
    own = digests["mean"].error
    peers = [name for name in runs if not name.startswith(("gcfcp", "np."))]
    targets = [
        at_most(f"{name}: time of np.sort x", Ratio.of(times[name], times["np.sort"]), most)
        for name in ("gcfcp mean", "gcfcp upper")
    ]
    if peers and n >= 10**6:  # The fastest peer is judged where a digest is worth its while.
        fastest = min(peers, key=lambda name: times[name].median)
        targets += [
            at_least(
                f"{name}: faster than the fastest peer ({fastest}) x",
                Ratio.of(times[fastest], times[name]),
                7,
            )
            for name in ("gcfcp mean", "gcfcp upper")
        ]
    targets += [
        at_most(f"step error of mean / that of {name}", own / figures[name]["step error"], 1)
        for name in peers
    ]
    return Case(
        f"digest-{n}",
        "digest of n values, with certificate",
        f"n = {n:,}, delta = {DELTA}",
        tuple(Entry(name, times[name], figures=figures[name]) for name in runs) + tuple(absent),
        tuple(targets),
        tuple(checks),
    )
