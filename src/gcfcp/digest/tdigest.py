"""T-Digests: a few hundred weighted points that stand for any number of scores.

A client describes the scores of each atom by a digest, and only the digest leaves the client. The
values are sorted and divided, greedily and in ascending order, into clusters that span at most one
unit of the scale function r. Clusters are therefore fine in the tails and coarse around the median.
The construction is that of T. Dunning and O. Ertl, "Computing extremely accurate quantiles using
t-digests" (2019), as the GC-FCP paper uses it (section "T-Digest").

Guarantee: ``error`` is an upper bound on sup_t |F(t) - F^(t)|, where F is the distribution function
of the raw values and F^ that of the digest.

- For a digest of raw values, ``error`` is exactly this supremum. It is at most sin(pi/delta),
  unless ``min_count`` asks for wider clusters.
- After a merge, it is the weighted average of the errors of the arguments plus the exact supremum
  that the new compression adds. So each level of merges adds at most sin(pi/delta).
- With ``representative="upper"``, F^ <= F everywhere, through any tree of merges.
- With whole weights, such as counts, every sum is exact. With other weights, sums are rounded as
  float64 sums are.

Cost: One sort, and O(delta log n) more. A digest of many values has between delta/2 and delta
clusters, 16 bytes each: 126 clusters for a million distinct values at delta = 250. Runs of equal
values that are too heavy for a cluster can add some.

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

from collections.abc import Sequence
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
    runs_of_cells,
    unit_sample,
    weighted_sample,
)
from gcfcp.errors import GCFCPError


@dataclass(frozen=True, eq=False, repr=False)
class TDigest:
    """Weighted points in ascending order whose step function F^ approximates a distribution.

    A digest is a value: its arrays are read-only, and every operation returns a new digest. These
    laws hold to the last bit: ``a.merge(b) == b.merge(a)``, ``a.pool(b) == b.pool(a)``,
    ``a.pool() == a``, and ``a.merge() == a`` unless ``a`` is a pool, which a merge compresses. The
    order of the values that a digest is made of does not matter.

    - `means`: The representatives of the clusters, strictly increasing. The last may be +inf; its
      weight is the mass at infinity.
    - `weights`: The weight of each cluster. It is positive, and a count unless other weights are
      given.
    - `delta`: The compression; a larger delta is finer. A pool has the smallest of its arguments.
    - `representative`: What stands for a cluster: "mean", its mean, as in the paper, or "upper",
      its maximum.
    - `error_weight`: The error in units of weight, which is a whole number for a digest of counts.
    """

    means: Floats
    weights: Floats
    delta: float
    representative: Representative = "mean"
    error_weight: float = 0.0

    def __post_init__(self) -> None:
        # These are copies, which nobody else can write to. Adding 0.0 turns -0.0 into 0.0, so that
        # equal digests have identical bytes.
        means = np.array(checks.vector("means", self.means)) + 0.0
        weights = np.array(checks.vector("weights", self.weights))
        if means.ndim != 1 or means.shape != weights.shape or not len(means):
            raise GCFCPError(
                f"means have shape {means.shape} and weights have shape {weights.shape}: "
                "a digest needs one weight for each mean, and at least one mean"
            )
        if not (means[0] > -np.inf and (means[1:] > means[:-1]).all()):
            raise GCFCPError(
                "means are not strictly increasing numbers above -inf: sort them, and combine "
                "those that are equal"
            )
        total = checked_total(weights)
        most = total * (1 + 1e-9)  # Sums of floats are rounded.
        if not checks.is_number(self.error_weight) or not 0 <= self.error_weight <= most:
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
    def _made(
        cls,
        means: Floats,
        weights: Floats,
        delta: float,
        representative: Representative,
        error_weight: float,
    ) -> TDigest:
        """The digest of what `compress` returns, which needs none of the checks above.

        Nobody else may be able to write to the arrays.
        """
        made = object.__new__(cls)
        if not means[0] > 0:  # Otherwise there is no -0.0 among them.
            means = means + 0.0
        means.setflags(write=False)
        weights.setflags(write=False)
        # A frozen dataclass can be filled at once, which takes a quarter of the time.
        fields = vars(made)
        fields["means"] = means
        fields["weights"] = weights
        fields["delta"] = delta
        fields["representative"] = representative
        fields["error_weight"] = error_weight
        return made

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

        Equal values are always in the same cluster. If a run of equal values is too heavy for the
        criterion, it is a cluster by itself, which has no error. A cluster of one distinct value
        holds this value to the last bit (with 0.0 for -0.0). Values of +inf form a cluster of their
        own, the mass at infinity.

        - `values`: The values; +inf is allowed, NaN and -inf are not.
        - `delta`: How fine the digest is. Many values make between delta / 2 and delta clusters.
        - `weights`: The weight of each value.
        - `representative`: "mean" or "upper".
        - `min_count`: The smallest weight of a cluster; 1 means no limit. Neighbouring clusters are
          joined until each has it. If the mass at infinity is smaller, its finite neighbours are
          joined to it and count as +inf. Representatives are then also rounded up (see
          `ROUNDED_BITS`).
        - `limit`: A known upper limit of the values, beyond which no representative is rounded.
        """
        raw = checks.series("values", values)
        if weights is None:
            ascending = raw.copy()  # These two steps are those of np.sort, without its other calls.
            ascending.sort()
            sample = unit_sample(ascending, raw)
        else:
            checks.refuse_unusable("values", raw)
            sample = weighted_sample(raw, as_weights(weights, raw))
        return cls._made(*compress(sample, delta, representative, min_count, limit))

    @classmethod
    def from_sorted(
        cls,
        values: ArrayLike,
        delta: float = 250,
        representative: Representative = "mean",
        min_count: float = 1,
        limit: float | None = None,
    ) -> TDigest:
        """The same digest as `from_values`, of values that are already in ascending order.

        It saves the sort, and has no weights.
        """
        raw = checks.series("values", values)
        sample = unit_sample(raw, raw)
        if not (raw[1:] >= raw[:-1]).all():
            raise GCFCPError("values are not in ascending order: sort them, or use from_values")
        fields = compress(sample, delta, representative, min_count, limit)
        means = raw.copy() if fields[0] is raw else fields[0]
        return cls._made(means, *fields[1:])

    @classmethod
    def of_cells(
        cls,
        cells: Sequence[Floats],
        delta: float = 250,
        representative: Representative = "mean",
        min_count: float = 1,
        limit: float | None = None,
    ) -> list[TDigest]:
        """The digests of many cells, each as `from_sorted` makes it.

        Cells of fewer than about 2 delta / pi values, in which only equal values share a cluster,
        are described in one pass, which takes a fifth of the time.

        - `cells`: The ascending scores of each cell, which are numbers or +inf.
        """

        def alone(values: Floats) -> TDigest:
            return cls.from_sorted(values, delta, representative, min_count, limit)

        if min_count != 1 or not cells:
            return [alone(values) for values in cells]
        fineness, kind = checks.delta(delta), checks.representative(representative)
        return [
            alone(values) if runs is None else cls._made(*runs, fineness, kind, 0.0)
            for values, runs in zip(cells, runs_of_cells(cells, fineness), strict=True)
        ]

    @property
    def total(self) -> float:
        """W, the sum of all weights."""
        return running_total(self.weights)

    @property
    def error(self) -> float:
        """An upper bound on sup_t |F(t) - F^(t)|, where F belongs to the raw values.

        For a digest that was made of raw values it is the supremum itself. It is never above 1.
        """
        return min(self.error_weight / self.total, 1.0)

    def merge(self, *others: TDigest, delta: float | None = None) -> TDigest:
        """The paper's Merge: the construction of `from_values` over the clusters of all digests.

        delta: The delta of the result. Unless it is given, it is the smallest of the arguments.
        """
        digests = (self, *others)
        smallest = min(d.delta for d in digests)
        return TDigest._made(*compress_digests(digests, smallest if delta is None else delta))

    def pool(self, *others: TDigest) -> TDigest:
        """All clusters of all digests, without another compression.

        The weights of equal representatives are added up. The error is the weighted average of the
        errors of the arguments, and the size is at most the sum of their sizes.
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

    def without_largest(self, k: float) -> TDigest:
        """The digest without the weight k of its largest values. Weights are counts.

        Whole clusters are taken from the top, and the rest of k from the next one. The error does
        not grow: both distribution functions, in units of weight, are cut off at the same height.
        """
        if not 0 <= k < self.total:
            raise GCFCPError(f"k={k} is not between 0 and the total weight {self.total:g}")
        reached = np.cumsum(self.weights)
        left = reached[-1] - k
        last = int(np.searchsorted(reached, left, side="left"))
        weights = self.weights[: last + 1].copy()
        weights[last] -= reached[last] - left
        error = min(self.error_weight, float(left))
        return TDigest(self.means[: last + 1], weights, self.delta, self.representative, error)

    @overload
    def cdf(self, t: float) -> float: ...
    @overload
    def cdf(self, t: ArrayLike) -> Floats: ...
    def cdf(self, t: ArrayLike) -> float | Floats:
        """F^(t): the share of the weight whose representatives are at most t. cdf(inf) is 1."""
        at = _as_numbers(t, "t")
        levels = np.concatenate(([0.0], self._levels()))
        return _like(at, levels[np.searchsorted(self.means, at, side="right")])

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: ArrayLike) -> Floats: ...
    def quantile(self, u: ArrayLike) -> float | Floats:
        """Q^(u) = inf {t : F^(t) >= u}, which is a representative. Q^(0) = -inf by definition.

        F^ is what `cdf` returns, to the last bit. For n counted values, quantile(k / n) is
        therefore the representative of the cluster that holds the k-th smallest value.
        """
        at = _as_numbers(u, "u")
        if not ((at >= 0) & (at <= 1)).all():
            outside = at[(at < 0) | (at > 1)].flat[0]
            raise GCFCPError(f"u={outside} is not in [0, 1]: give a probability")
        found = self.means[np.searchsorted(self._levels(), at, side="left")]
        return _like(at, np.where(at == 0, -np.inf, found))

    def _levels(self) -> Floats:
        """F^ at each representative. The last is exactly 1: the total is the last running sum."""
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
    """The argument of a query as float64, which must not be NaN."""
    numbers = checks.vector(name, values)
    if np.isnan(numbers).any():
        raise GCFCPError(f"{name} has {np.isnan(numbers).sum()} NaN: give numbers")
    return numbers


def _like(given: Floats, found: Floats) -> float | Floats:
    """A float if a single number was given, and an array if an array was given."""
    return float(found) if given.ndim == 0 else found
