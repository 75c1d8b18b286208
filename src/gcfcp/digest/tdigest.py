"""T-Digests: a few hundred weighted points that stand for any number of scores.

A client describes the scores of each atom by a digest, and only the digest leaves the client.
Values are sorted and cut, greedily and in ascending order, into clusters that span at most one unit
of the scale function r, so clusters are fine in the tails and coarse around the median:
T. Dunning and O. Ertl, "Computing extremely accurate quantiles using t-digests" (2019), as used by
the GC-FCP paper (section "T-Digest").

Guarantee. ``error`` bounds sup_t |F(t) - F^(t)| against the raw values: exactly that supremum for a
digest of raw values, where it is never above sin(pi/delta) unless ``min_count`` asks for wider
clusters; after merges the weighted average of what the arguments carried, plus the exact supremum
of the recompression, so at most one sin(pi/delta) for each level. With integer weights (counts)
every sum is exact; with others, exact up to the rounding of float64 sums. With
``representative="upper"`` F^ <= F everywhere, through any tree of merges.

Cost. One sort and O(delta log n) more. A digest keeps between delta/2 and delta clusters (runs of
equal values that are too heavy for a cluster can add some), 16 bytes each: 126 clusters for a
million distinct values at delta = 250.

| here              | paper                                                         |
|-------------------|---------------------------------------------------------------|
| `means`           | R-bar_c, the representatives                                  |
| `weights`         | W_c                                                           |
| `total`           | W                                                             |
| `delta`           | delta                                                         |
| `cdf`, `quantile` | F^, Q^                                                        |
| `merge`           | Merge                                                         |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from gcfcp import checks
from gcfcp.arrays import Floats
from gcfcp.checks import Representative
from gcfcp.digest.clusters import (
    as_weights,
    checked_total,
    compress,
    compress_digests,
    inherited_error,
    pooled_sample,
    running_total,
    unit_sample,
    weighted_sample,
)
from gcfcp.errors import GCFCPError


@dataclass(frozen=True, eq=False, repr=False)
class TDigest:
    """Weighted points in ascending order whose step function F^ approximates a distribution.

    A value: arrays are read-only, and every operation returns a new digest. Laws, to the last bit:
    ``a.merge(b) == b.merge(a)``, ``a.merge() == a``, the same for ``pool``; the order of the values
    that a digest is made of does not matter.

    means: representatives, strictly increasing; the last may be +inf, the mass at infinity.
    weights: positive; counts unless other weights were given.
    delta: compression; larger is finer. A pool has the smallest of its arguments.
    representative: "mean" of the cluster (the paper), or "upper", its maximum.
    error_weight: the error in units of weight, an integer for a digest of counts.
    """

    means: Floats
    weights: Floats
    delta: float
    representative: Representative = "mean"
    error_weight: float = 0.0

    def __post_init__(self) -> None:
        # Copies, which nobody else can write to; -0.0 becomes 0.0, so that equal is also identical.
        means = np.array(self.means, dtype=np.float64) + 0.0
        weights = np.array(self.weights, dtype=np.float64)
        if means.ndim != 1 or means.shape != weights.shape or not len(means):
            raise GCFCPError(
                f"means of shape {means.shape} and weights of shape {weights.shape}: "
                "a digest needs one weight for each mean, and at least one"
            )
        if not (means[0] > -np.inf and (means[1:] > means[:-1]).all()):
            raise GCFCPError("means are not strictly increasing from above -inf: sort and combine")
        total = checked_total(weights)
        if not 0 <= self.error_weight <= total * (1 + 1e-9):  # sums of floats round
            raise GCFCPError(
                f"error_weight={self.error_weight} is not between 0 and the total weight "
                f"{total}: give the error in units of weight"
            )
        means.setflags(write=False)
        weights.setflags(write=False)
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "delta", checks.delta(self.delta))
        object.__setattr__(self, "representative", checks.representative(self.representative))
        object.__setattr__(self, "error_weight", float(self.error_weight))

    @classmethod
    def from_values(
        cls,
        values: ArrayLike,
        delta: float = 250,
        weights: ArrayLike | None = None,
        representative: Representative = "mean",
        min_count: float = 1,
        limit: float | None = None,
    ) -> TDigest:
        """The digest of raw values, each of weight 1 unless weights are given.

        Equal values always share a cluster: a run of them that is too heavy for the criterion is a
        cluster of its own, exact. A cluster of one distinct value holds it to the last bit (with
        -0.0 as 0.0). +inf is kept as mass at infinity, a cluster of its own.

        min_count: every cluster stands for at least this weight; 1 asks for nothing. Neighbours are
        joined until it holds; if there is less mass at infinity than that, its finite neighbours
        join it there. With "upper", representatives are then also rounded up (`ROUNDED_BITS`).
        limit: a known upper limit of the values, beyond which nothing is rounded.
        """
        raw = checks.series("values", values)
        if weights is None:
            sample = unit_sample(np.sort(raw), raw)
        else:
            checks.refuse_unusable("values", raw)
            sample = weighted_sample(raw, as_weights(weights, raw))
        return cls(*compress(sample, delta, representative, min_count, limit))

    @classmethod
    def from_sorted(
        cls,
        values: ArrayLike,
        delta: float = 250,
        representative: Representative = "mean",
        min_count: float = 1,
        limit: float | None = None,
    ) -> TDigest:
        """`from_values` of values that are in ascending order already: the same, without a sort."""
        raw = checks.series("values", values)
        sample = unit_sample(raw, raw)
        if not (raw[1:] >= raw[:-1]).all():
            raise GCFCPError("values are not in ascending order: sort them, or use from_values")
        return cls(*compress(sample, delta, representative, min_count, limit))

    @property
    def total(self) -> float:
        """W, the weight of everything."""
        return running_total(self.weights)

    @property
    def error(self) -> float:
        """An upper bound on sup |F - F^| against the raw values; exact if made of raw values."""
        return min(self.error_weight / self.total, 1.0)

    def merge(self, *others: TDigest, delta: float | None = None) -> TDigest:
        """The paper's Merge: the construction of `from_values` over the clusters of all digests.

        delta: of the result; the smallest of the arguments' unless given.
        """
        digests = (self, *others)
        smallest = min(d.delta for d in digests)
        return TDigest(*compress_digests(digests, smallest if delta is None else delta))

    def pool(self, *others: TDigest) -> TDigest:
        """All clusters of all digests, equal representatives added up, nothing compressed again.

        The error is the weighted average of the arguments' and the size is the sum of theirs.
        """
        digests = (self, *others)
        sample = pooled_sample(digests)
        return TDigest(
            sample.values,
            sample.weights_of_all(),
            min(d.delta for d in digests),
            self.representative,
            inherited_error(digests),
        )

    @overload
    def cdf(self, t: float) -> float: ...
    @overload
    def cdf(self, t: ArrayLike) -> Floats: ...
    def cdf(self, t: ArrayLike) -> float | Floats:
        """F^(t): the share of the weight at representatives <= t. cdf(inf) is 1."""
        at = _as_numbers(t, "t")
        levels = np.concatenate(([0.0], self._levels()))
        return _like(at, levels[np.searchsorted(self.means, at, side="right")])

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: ArrayLike) -> Floats: ...
    def quantile(self, u: ArrayLike) -> float | Floats:
        """Q^(u) = inf {t : F^(t) >= u}, a representative; Q^(0) = -inf, as the definition says.

        F^ is what `cdf` returns, to the last bit, so quantile(k / n) of n counts has rank k.
        """
        at = _as_numbers(u, "u")
        if not ((at >= 0) & (at <= 1)).all():
            outside = at[(at < 0) | (at > 1)].flat[0]
            raise GCFCPError(f"u={outside} is not in [0, 1]: give a probability")
        found = self.means[np.searchsorted(self._levels(), at, side="left")]
        return _like(at, np.where(at == 0, -np.inf, found))

    def _levels(self) -> Floats:
        """F^ at each representative. The last is exactly 1: the total is the same running sum."""
        reached = np.cumsum(self.weights)
        levels: Floats = reached / reached[-1]
        return levels

    def __len__(self) -> int:
        return len(self.means)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TDigest):
            return NotImplemented
        return (
            np.array_equal(self.means, other.means)
            and np.array_equal(self.weights, other.weights)
            and (self.delta, self.representative, self.error_weight)
            == (other.delta, other.representative, other.error_weight)
        )

    def __hash__(self) -> int:
        return hash((self.means.tobytes(), self.weights.tobytes(), self.delta, self.error_weight))

    def __repr__(self) -> str:
        return (
            f"TDigest({len(self)} clusters, total={self.total:g}, delta={self.delta:g}, "
            f"representative={self.representative!r}, error={self.error:.3g})"
        )


def _as_numbers(values: ArrayLike, name: str) -> Floats:
    numbers = checks.vector(name, values)
    if np.isnan(numbers).any():
        raise GCFCPError(f"{name} has {np.isnan(numbers).sum()} NaN: give numbers")
    return numbers


def _like(given: Floats, found: Floats) -> float | Floats:
    """A float for a number, an array for an array."""
    return float(found) if given.ndim == 0 else found
