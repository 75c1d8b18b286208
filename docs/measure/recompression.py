"""Measure the error of digests that were compressed twice (recompression.md)."""

from __future__ import annotations

import math

import numpy as np
from page import write_table

from gcfcp import TDigest

DELTAS, FEDERATIONS = (10.0, 25.0, 50.0, 100.0), 500


def distance(raw: np.ndarray, digest: TDigest) -> float:
    """sup |F - F^|, exactly. Both are step functions, so the supremum is found at a step."""
    ordered = np.sort(raw)
    at = np.union1d(ordered, digest.means)
    truth = np.searchsorted(ordered, at, side="right") / len(ordered)
    return float(np.abs(truth - digest.cdf(at)).max())


def federation(rng: np.random.Generator) -> list[np.ndarray]:
    """Two to five clients. Their scores bunch around 17 powers of ten, from 1e-8 to 1e8."""

    def scores(n: int) -> np.ndarray:
        return 10.0 ** rng.integers(-8, 9, size=n) * rng.uniform(1, 1.01, size=n)

    return [scores(int(rng.integers(10, 600))) for _ in range(int(rng.integers(2, 6)))]


def measure(
    delta: float, representative: str, federations: int, seed: int = 2026
) -> tuple[float, float, int]:
    """The largest distance of a pooled digest, and of a recompressed one, by sin(pi/delta).

    The third number says how many recompressed digests were above sin(pi/delta).
    """
    rng = np.random.default_rng(seed)
    bound = math.sin(math.pi / delta)
    pooled, merged = [], []
    for _ in range(federations):
        clients = federation(rng)
        first, *others = (
            TDigest.from_values(c, delta, representative=representative) for c in clients
        )
        everything = np.concatenate(clients)
        pooled.append(distance(everything, first.pool(*others)) / bound)
        merged.append(distance(everything, first.merge(*others)) / bound)
    return max(pooled), max(merged), sum(m > 1 for m in merged)


def main(federations: int = FEDERATIONS) -> None:
    """Write docs/measured/recompression.md."""
    rows = []
    for representative in ("mean", "upper"):
        for delta in DELTAS:
            pooled, merged, above = measure(delta, representative, federations)
            rows.append(
                [
                    f"`{representative}`",
                    f"{delta:g}",
                    f"{math.sin(math.pi / delta):.4f}",
                    f"{pooled:.2f} x",
                    f"{merged:.2f} x",
                    f"{above} of {federations}",
                ]
            )
    write_table(
        "recompression",
        [
            "representative",
            "delta",
            "sin(pi/delta)",
            "largest error, pooled",
            "largest error, recompressed",
            "recompressed digests above the bound",
        ],
        rows,
        f"""Each row has {federations} random federations of two to five clients with 10 to 600
        scores each, which bunch around a few sizes. The error is the largest difference between the
        digest's distribution function and that of all raw scores. It is computed exactly and given
        as a multiple of sin(pi/delta).""",
    )
