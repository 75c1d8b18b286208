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
| `_angle(V, W)`    | pi/delta * r(V/W) + pi/4; the criterion is a step of pi/delta |
| `before[i]`       | V, the weight of everything in front of index i               |
| `cdf`, `quantile` | F^, Q^                                                        |
| `merge`           | Merge                                                         |
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcfcp.errors import GCFCPError

FloatArray: TypeAlias = NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.intp]
Representative: TypeAlias = Literal["mean", "upper"]

ROUNDED_BITS = 12
"""Significant bits of an `upper` representative when min_count > 1. The maximum of a cluster is
some record's exact score; rounded strictly up it no longer is, it stays an upper bound, and the
price is a relative 2**-12 on average and 2**-11 at most. (A maximum of exactly 0 rounds to the
smallest step there is, 2**-1033, and can be recognised: zero has no scale to hide in.)"""

BUFFER = 2**20
"""Raw values that a `DigestBuilder` holds before it compresses them: 8 MB."""

FINER = 8
"""A `DigestBuilder` compresses its buffer with FINER * delta, so that a level of the stream adds
about an eighth of the error of the final digest."""

FAN_IN = 64
"""Digests of one level of a stream that a `DigestBuilder` merges into one of the next."""

# The difference of two angles is off by a few units in the last place; without this slack a cluster
# that meets the criterion with equality (half of the weight at delta = 4) would be cut by chance.
_ANGLE_SLACK = 4 * float(np.finfo(np.float64).eps)


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

    means: FloatArray
    weights: FloatArray
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
        total = _checked_total(weights)
        if not 0 <= self.error_weight <= total * (1 + 1e-9):  # sums of floats round
            raise GCFCPError(
                f"error_weight={self.error_weight} is not between 0 and the total weight "
                f"{total}: give the error in units of weight"
            )
        means.setflags(write=False)
        weights.setflags(write=False)
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "delta", _checked_delta(self.delta))
        object.__setattr__(self, "representative", _checked_representative(self.representative))
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
        raw = _as_vector(values, "values")
        if weights is None:
            sample = _unit_sample(np.sort(raw), raw)
        else:
            _refuse_unusable(raw)
            sample = _weighted_sample(raw, _as_weights(weights, raw))
        return _compress(sample, delta, representative, min_count, limit)

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
        raw = _as_vector(values, "values")
        sample = _unit_sample(raw, raw)
        if not (raw[1:] >= raw[:-1]).all():
            raise GCFCPError("values are not in ascending order: sort them, or use from_values")
        return _compress(sample, delta, representative, min_count, limit)

    @property
    def total(self) -> float:
        """W, the weight of everything."""
        return _sum(self.weights)

    @property
    def error(self) -> float:
        """An upper bound on sup |F - F^| against the raw values; exact if made of raw values."""
        return min(self.error_weight / self.total, 1.0)

    def merge(self, *others: TDigest, delta: float | None = None) -> TDigest:
        """The paper's Merge: the construction of `from_values` over the clusters of all digests.

        delta: of the result; the smallest of the arguments' unless given.
        """
        digests = (self, *others)
        return _compress_digests(digests, min(d.delta for d in digests) if delta is None else delta)

    def pool(self, *others: TDigest) -> TDigest:
        """All clusters of all digests, equal representatives added up, nothing compressed again.

        The error is the weighted average of the arguments' and the size is the sum of theirs.
        """
        digests = (self, *others)
        sample = _pooled_sample(digests)
        return TDigest(
            sample.values,
            sample.weights_of_all(),
            min(d.delta for d in digests),
            self.representative,
            _inherited(digests),
        )

    @overload
    def cdf(self, t: float) -> float: ...
    @overload
    def cdf(self, t: ArrayLike) -> FloatArray: ...
    def cdf(self, t: ArrayLike) -> float | FloatArray:
        """F^(t): the share of the weight at representatives <= t. cdf(inf) is 1."""
        at = _as_numbers(t, "t")
        levels = np.concatenate(([0.0], self._levels()))
        return _like(at, levels[np.searchsorted(self.means, at, side="right")])

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: ArrayLike) -> FloatArray: ...
    def quantile(self, u: ArrayLike) -> float | FloatArray:
        """Q^(u) = inf {t : F^(t) >= u}, a representative; Q^(0) = -inf, as the definition says.

        F^ is what `cdf` returns, to the last bit, so quantile(k / n) of n counts has rank k.
        """
        at = _as_numbers(u, "u")
        if not ((at >= 0) & (at <= 1)).all():
            outside = at[(at < 0) | (at > 1)].flat[0]
            raise GCFCPError(f"u={outside} is not in [0, 1]: give a probability")
        found = self.means[np.searchsorted(self._levels(), at, side="left")]
        return _like(at, np.where(at == 0, -np.inf, found))

    def _levels(self) -> FloatArray:
        """F^ at each representative. The last is exactly 1: the total is the same running sum."""
        reached = np.cumsum(self.weights)
        levels: FloatArray = reached / reached[-1]
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


class DigestBuilder:
    """Makes one digest of a stream that is larger than memory.

    A builder is the one mutable object here, because a stream is a process: it can be read once,
    and it has no value before its end. The digests that it makes are values as ever.

    Up to `buffer` raw values are held as they are, and while the stream is no longer than that the
    result is that of `TDigest.from_values`, to the last bit. Each full buffer becomes a digest of
    FINER * delta; FAN_IN of those are merged into one of the next level, and so on. How the stream
    is cut into chunks makes no difference.

    Error: at most sin(pi/delta) + L sin(pi/(FINER delta)) with L = 1 below 67 million values, 2
    below 4.3 billion, and so on; the digest's ``error`` is the bound for the stream itself, and
    usually far smaller.

    Memory: 8 bytes for each buffered value (room grows with what arrives; at most twice `buffer`
    while it is compressed), and at most FAN_IN * FINER * delta * 16 bytes for each level: 8 MB and
    2 MB at the defaults. With thousands of builders at once, give each a smaller buffer.
    """

    def __init__(
        self,
        delta: float = 250,
        representative: Representative = "mean",
        min_count: float = 1,
        limit: float | None = None,
        *,
        buffer: int = BUFFER,
    ) -> None:
        if buffer < 1:
            raise GCFCPError(f"buffer={buffer} is not at least 1: give room for some values")
        self._delta = _checked_delta(delta)
        self._representative = _checked_representative(representative)
        self._min_count = _checked_min_count(min_count)
        self._limit = _checked_limit(limit)
        self._capacity = buffer
        self._room = np.empty(0)
        self._used = 0
        self._compressed = 0
        self._levels: list[list[TDigest]] = []

    @property
    def count(self) -> int:
        """The number of values that were added."""
        return self._compressed + self._used

    def add(self, chunk: ArrayLike) -> None:
        """Take more values; none of a chunk is taken if any of it is unusable."""
        values = _as_vector(chunk, "chunk", empty=True)
        _refuse_unusable(values, self.count)
        _refuse_above(values.max(initial=-np.inf), self._limit)
        while len(values):
            if self._used == self._capacity:
                self._compress_buffer()
            taken = values[: self._capacity - self._used]
            self._reserve(self._used + len(taken))
            self._room[self._used : self._used + len(taken)] = taken
            self._used += len(taken)
            values = values[len(taken) :]

    def digest(self) -> TDigest:
        """The digest of everything added so far; more may be added afterwards."""
        options = (self._delta, self._representative, self._min_count, self._limit)
        if not self.count:
            raise GCFCPError("no values were added: a digest needs at least one value")
        if not self._levels:
            return _compress(_unit_sample(np.sort(self._buffered()), self._buffered()), *options)
        digests = [digest for level in self._levels for digest in level]
        if self._used:
            digests.append(self._fine_digest())
        return _compress_digests(digests, self._delta, self._min_count, self._limit)

    def _buffered(self) -> FloatArray:
        return self._room[: self._used]

    def _reserve(self, size: int) -> None:
        """Room for `size` values, doubled as needed: many builders stay small."""
        if size > len(self._room):
            room = np.empty(min(max(size, 2 * len(self._room)), self._capacity))
            room[: self._used] = self._buffered()
            self._room = room

    def _fine_digest(self) -> TDigest:
        return TDigest.from_values(
            self._buffered(), FINER * self._delta, representative=self._representative
        )

    def _compress_buffer(self) -> None:
        """Turn the full buffer into a digest, and carry over every level that is full, as in
        counting: a value then goes through few compressions, however long the stream."""
        carried = self._fine_digest()
        self._compressed += self._used
        self._used = 0
        for level in self._levels:
            level.append(carried)
            if len(level) < FAN_IN:
                return
            carried = level[0].merge(*level[1:])
            level.clear()
        self._levels.append([carried])


# --- sorted samples ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sample:
    """Values in ascending order. With weights, the values are distinct; without, each weighs 1."""

    values: FloatArray
    weights: FloatArray | None
    before: FloatArray | range
    """before[i] is the weight of values[:i]; a range costs nothing for a million counts."""

    @property
    def total(self) -> float:
        return float(self.before[-1])

    def weight_before(self, index: IndexArray) -> FloatArray:
        if isinstance(self.before, range):
            return index.astype(np.float64)
        return self.before[index]

    def weights_of_all(self) -> FloatArray:
        return np.ones(len(self.values)) if self.weights is None else self.weights

    def cluster_weights(self, starts: IndexArray, ends: IndexArray) -> FloatArray:
        """W_c. Not differences of running sums: beside 1e300 those would lose a weight of 1."""
        if self.weights is None:
            return (ends - starts).astype(np.float64)
        return np.add.reduceat(self.weights[: ends[-1]], starts)


def _unit_sample(ascending: FloatArray, raw: FloatArray) -> _Sample:
    # A sort puts NaN last and -inf first, so two looks replace two passes.
    if len(ascending) and (math.isnan(ascending[-1]) or ascending[0] == -np.inf):
        _refuse_unusable(raw)
    return _Sample(ascending, None, range(len(ascending) + 1))


def _weighted_sample(values: FloatArray, weights: FloatArray) -> _Sample:
    # Ties are ordered by weight, so that their sum does not depend on the order of the input.
    order = np.lexsort((weights, values))
    values = values[order]
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    weights = np.add.reduceat(weights[order], starts)
    return _Sample(values[starts], weights, np.concatenate(([0.0], np.cumsum(weights))))


def _pooled_sample(digests: Sequence[TDigest]) -> _Sample:
    kinds = sorted({d.representative for d in digests})
    if len(kinds) > 1:
        raise GCFCPError(
            f"representative={kinds[0]!r} and representative={kinds[1]!r} do not mix: "
            "make all digests with one"
        )
    means = np.concatenate([d.means for d in digests])
    weights = np.concatenate([d.weights for d in digests])
    _checked_total(weights)  # each total is finite; their sum may not be
    return _weighted_sample(means, weights)


# --- the construction -------------------------------------------------------------------------


def _compress(
    sample: _Sample,
    delta: float,
    representative: Representative,
    min_count: float = 1,
    limit: float | None = None,
    inherited: float = 0.0,
) -> TDigest:
    """The paper's construction over a sorted sample that itself carries an inherited error."""
    delta = _checked_delta(delta)
    representative = _checked_representative(representative)
    min_count = _checked_min_count(min_count)
    _refuse_above(sample.values[-1], _checked_limit(limit))
    ends = _cluster_ends(sample, delta)
    if min_count > 1:
        ends = _joined_ends(sample, ends, min_count)
    if representative == "mean":
        means = _cluster_means(sample, ends)
    else:
        means = sample.values[ends - 1]
        if min_count > 1:
            means = np.minimum(_rounded_up(means), np.inf if limit is None else limit)
            distinct = np.append(means[1:] != means[:-1], True)
            means, ends = means[distinct], ends[distinct]
    return TDigest(
        means,
        sample.cluster_weights(_starts(ends), ends),
        delta,
        representative,
        min(inherited + _sup_error(sample, means, ends), sample.total),
    )


def _compress_digests(
    digests: Sequence[TDigest], delta: float, min_count: float = 1, limit: float | None = None
) -> TDigest:
    sample = _pooled_sample(digests)
    kind = digests[0].representative
    return _compress(sample, delta, kind, min_count, limit, _inherited(digests))


def _inherited(digests: Sequence[TDigest]) -> float:
    return math.fsum(d.error_weight for d in digests)  # fsum: the same in any order


def _starts(ends: IndexArray) -> IndexArray:
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1]
    return starts


def _cluster_ends(sample: _Sample, delta: float) -> IndexArray:
    """Where the greedy clusters end: each takes what the criterion allows, in whole runs."""
    size = len(sample.values)
    finite = _finite_size(sample)
    step = math.pi / delta + _ANGLE_SLACK
    runs = _runs_apart(sample, finite, step)
    if runs is not None:
        return runs if finite == size else np.append(runs, size)
    ends = _counted_ends(sample, finite, step)
    if ends is None:
        ends = list(_walk(sample, finite, step))
    if finite < size:
        ends.append(size)  # the mass at infinity: one more run, and never part of a finite cluster
    return np.array(ends, dtype=np.intp)


def _walk(sample: _Sample, finite: int, step: float) -> Iterator[int]:
    end = 0
    while end < finite:
        end = min(_cluster_end(sample, end, step), finite)
        yield end


def _counted_ends(sample: _Sample, finite: int, step: float) -> list[int] | None:
    """The walk over values that are only counted, if it cuts no run of equal ones: the same ends,
    at a tenth of the time.

    A cluster from rank V reaches W sin(angle(V) + step)^2
    = W sin(step)^2 + V cos(2 step) + sqrt(V (W - V)) sin(2 step), or W if the angle passes pi/2.
    Where this comes so near to a whole number that rounding could decide, the criterion does.
    """
    if not finite or not isinstance(sample.before, range):
        return None
    total = len(sample.values)
    low = 1e-13 * total
    high = 1 - low
    at_zero, by_rank, by_root = total * math.sin(step) ** 2, math.cos(2 * step), math.sin(2 * step)
    last = total * math.cos(step) ** 2 if step < math.pi / 2 else 0.0  # beyond, all the rest fits
    sqrt = math.sqrt
    ends = []
    end = 0
    while end < finite:
        reach = at_zero + by_rank * end + by_root * sqrt(end * (total - end))
        whole = int(reach)
        if low < reach - whole < high and end < last:
            end = whole if whole > end else end + 1
        else:
            end = max(_widest_end(sample, end, step), end + 1)
        ends.append(end)
    ends[-1] = finite
    cuts = np.array(ends[:-1], dtype=np.intp)
    return None if (sample.values[cuts - 1] == sample.values[cuts]).any() else ends


def _runs_apart(sample: _Sample, finite: int, step: float) -> IndexArray | None:
    """Where the runs of equal values end, if no two neighbours fit into a cluster: the same as the
    greedy walk, and much faster, for a delta so large that nothing is compressed."""
    values = sample.values[:finite]
    if finite < 3 or step * finite > 4:  # two of n values take an angle of 2/n or more
        return None
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, finite)
    if isinstance(sample.before, range) and (step + 1e-12) * sample.total < 2:
        return ends
    before = sample.weight_before(np.append(0, ends))
    angles = np.arctan2(np.sqrt(before), np.sqrt(sample.total - before))
    # Only where the criterion fails beyond all rounding; else the walk decides.
    apart = angles[2:] - angles[:-2] > step + 1e-12
    return ends if apart.all() else None


def _finite_size(sample: _Sample) -> int:
    return int(np.searchsorted(sample.values, np.inf, side="left"))


def _cluster_end(sample: _Sample, start: int, step: float) -> int:
    """The end of the greedy cluster that begins at `start`."""
    values = sample.values
    end = _widest_end(sample, start, step)
    if start < end < len(values) and values[end - 1] == values[end]:
        end = start + int(np.searchsorted(values[start:end], values[end], side="left"))
    if end == start:  # the first run alone is too heavy: a cluster of one value, without error
        end = start + int(np.searchsorted(values[start:], values[start], side="right"))
    return end


def _widest_end(sample: _Sample, start: int, step: float) -> int:
    """The largest end with r(q_R) - r(q_L) <= 1, ties aside; `start` if there is none."""
    before = cast("Sequence[float]", sample.before)
    last = len(before) - 1
    total = before[last]
    left = _angle(before[start], total)

    def fits(end: int) -> bool:
        return _angle(before[end], total) - left <= step

    # The inverse of the scale gives the end but for rounding; the criterion itself decides.
    # Moves go from one distinct running sum to the next, as tiny weights may leave it unchanged.
    guess = total * math.sin(min(left + step, math.pi / 2)) ** 2
    end = max(bisect_right(before, guess) - 1, start)
    while end < last and fits(end + 1):
        end = bisect_right(before, before[end + 1]) - 1
    while end > start and not fits(end):
        end = max(bisect_left(before, before[end]) - 1, start)
    return end


def _angle(V: float, W: float) -> float:
    """arcsin(sqrt(V/W)) = arcsin(2V/W - 1)/2 + pi/4, accurate at both ends of [0, W]."""
    return math.atan2(math.sqrt(V), math.sqrt(W - V))


def _joined_ends(sample: _Sample, ends: IndexArray, min_count: float) -> IndexArray:
    """Join neighbouring clusters until each weighs at least `min_count`."""
    if sample.total < min_count:
        raise GCFCPError(
            f"min_count={min_count:g} but the values weigh {sample.total:g} in all: "
            "lower min_count, or leave these values out"
        )
    finite = _finite_size(sample)
    joined: list[int] = []
    reached = 0.0
    for end, weight in zip(ends.tolist(), sample.weight_before(ends).tolist(), strict=True):
        # The last finite cluster must not be left to the mass at infinity: it joins those below.
        if end == finite and weight - reached < min_count and joined:
            joined[-1], reached = end, weight
        elif weight - reached >= min_count:
            joined.append(end)
            reached = weight
    if not joined or joined[-1] < len(sample.values):
        # Too little mass at infinity (or too little below it): counted at infinity, which is safe.
        joined[-1:] = [len(sample.values)]
    return np.array(joined, dtype=np.intp)


def _cluster_means(sample: _Sample, ends: IndexArray) -> FloatArray:
    starts = _starts(ends)
    lowest, highest = sample.values[starts], sample.values[ends - 1]
    means = highest.copy()
    finite = int(np.searchsorted(highest, np.inf, side="left"))  # only the last can be infinite
    if finite:
        plain = _weighted_means(sample, starts[:finite], ends[:finite])
        # Rounding can push a mean out of its cluster, which would move F^ by a whole value.
        means[:finite] = np.clip(plain, lowest[:finite], highest[:finite])
    return means


def _weighted_means(sample: _Sample, starts: IndexArray, ends: IndexArray) -> FloatArray:
    values = sample.values[: ends[-1]]
    cluster_weights = sample.cluster_weights(starts, ends)
    if sample.weights is None:
        with np.errstate(over="ignore", invalid="ignore"):
            means = np.add.reduceat(values, starts) / cluster_weights
        if np.isfinite(means).all():
            return means
    # Weights are scaled by a power of two to at most 1 in all for each cluster, so that neither
    # values near 1e308 nor weights of any size overflow, and nothing is rounded by the scaling.
    fraction, exponent = np.frexp(cluster_weights)
    scale = np.repeat(-exponent, ends - starts)
    weights = np.ldexp(sample.weights_of_all()[: len(values)], scale)
    return np.add.reduceat(weights * values, starts) / fraction


def _rounded_up(values: FloatArray) -> FloatArray:
    """The next number of ROUNDED_BITS significant bits strictly above each value."""
    # Above -1, -2, -4... the grid is finer than at them.
    _, exponent = np.frexp(np.where(values < 0, np.nextafter(values, 0.0), values))
    # Below the smallest normal number the grid stays as fine as there; 0 rounds up to its step,
    # as anything larger would overtake small positive values.
    exponent = np.where(values == 0, -1021, np.maximum(exponent, -1021))
    step = np.ldexp(1.0, exponent - ROUNDED_BITS)
    with np.errstate(over="ignore"):  # beyond the largest number is infinity
        rounded: FloatArray = (np.floor(values / step) + 1) * step
    return rounded


def _sup_error(sample: _Sample, means: FloatArray, ends: IndexArray) -> float:
    """W sup |F - F^|, exactly. F^ is constant between representatives and F does not decrease, so
    F is furthest above F^ just below a representative and furthest below it at one."""
    if 2 * len(ends) > len(sample.values) and (
        (sample.values[_starts(ends)] == means).all() and (sample.values[ends - 1] == means).all()
    ):
        return 0.0  # every cluster is a single value: F^ is F
    V = sample.weight_before(ends)
    ahead = sample.weight_before(sample.values.searchsorted(means, side="left"))
    ahead[1:] -= V[:-1]
    behind = V - sample.weight_before(sample.values.searchsorted(means, side="right"))
    return float(max(ahead.max(), behind.max(), 0.0))


# --- what is accepted -------------------------------------------------------------------------


def _as_vector(values: ArrayLike, name: str, empty: bool = False) -> FloatArray:
    vector = _as_floats(values, name)
    if vector.ndim != 1:
        raise GCFCPError(f"{name} of shape {vector.shape}: give one dimension")
    if not len(vector) and not empty:
        raise GCFCPError(f"{name} is empty: a digest needs at least one value")
    return vector


def _as_numbers(values: ArrayLike, name: str) -> FloatArray:
    numbers = _as_floats(values, name)
    if np.isnan(numbers).any():
        raise GCFCPError(f"{name} has {np.isnan(numbers).sum()} NaN: give numbers")
    return numbers


def _as_floats(values: ArrayLike, name: str) -> FloatArray:
    try:
        if isinstance(values, np.ma.MaskedArray):  # asarray would unmask what is hidden
            values = np.ma.filled(values.astype(np.float64), np.nan)
        given = np.asarray(values)
        if given.dtype.kind not in "biufO":
            raise TypeError(f"dtype {given.dtype}")
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GCFCPError(f"{name} cannot be read as numbers ({error}): give real numbers") from None


def _as_weights(weights: ArrayLike, values: FloatArray) -> FloatArray:
    vector = _as_floats(weights, "weights")
    if vector.shape != values.shape:
        raise GCFCPError(
            f"weights of shape {vector.shape} for values of shape {values.shape}: "
            "give one weight for each value"
        )
    _checked_total(vector)
    return vector


def _checked_total(weights: FloatArray) -> float:
    """W, of weights that are positive and finite, as is their sum."""
    total = _sum(weights)
    if weights.min() > 0 and total < np.inf:
        return total
    wrong = ~((weights > 0) & (weights < np.inf))
    if wrong.any():
        first = int(wrong.argmax())
        raise GCFCPError(
            f"weights[{first}]={weights[first]} is not positive and finite "
            f"({wrong.sum()} such of {len(weights)}): leave those values out or weigh them"
        )
    raise GCFCPError("weights add up to more than the largest number: scale them down")


def _sum(weights: FloatArray) -> float:
    """W, as the last of the running sums, so that F^ ends at exactly 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.cumsum(weights)[-1])


def _refuse_unusable(values: FloatArray, offset: int = 0) -> None:
    for name, wrong in (("NaN", np.isnan(values)), ("-inf", values == -np.inf)):
        if wrong.any():
            raise GCFCPError(
                f"{wrong.sum()} of {len(values)} values are {name}, the first at position "
                f"{offset + int(wrong.argmax())}: a score is a number or +inf; "
                "correct these records or leave them out"
            )


def _refuse_above(largest: float, limit: float | None) -> None:
    if limit is not None and largest > limit:
        raise GCFCPError(f"a value of {largest} is above limit={limit}: raise the limit")


def _checked_limit(limit: float | None) -> float | None:
    if limit is not None and math.isnan(limit):
        raise GCFCPError("limit=nan is not a number: give the scores' upper limit, or None")
    return limit


def _checked_delta(delta: float) -> float:
    if not 2 <= delta < math.inf:
        raise GCFCPError(f"delta={delta} is not a finite number >= 2: 250 is usual, more is finer")
    return float(delta)


def _checked_min_count(min_count: float) -> float:
    if not 1 <= min_count < math.inf:
        raise GCFCPError(f"min_count={min_count} is not a finite number >= 1: 1 asks for nothing")
    return float(min_count)


def _checked_representative(representative: Representative) -> Representative:
    if representative not in ("mean", "upper"):
        raise GCFCPError(f'representative={representative!r} is neither "mean" nor "upper"')
    return representative


def _like(given: FloatArray, found: FloatArray) -> float | FloatArray:
    """A float for a number, an array for an array."""
    return float(found) if given.ndim == 0 else found
