"""How sorted values are cut into clusters: the construction behind every digest.

Values are cut, greedily and in ascending order, into clusters that span at most one unit of the
scale function r. The criterion is a step of pi/delta in the angle arcsin(sqrt(V/W)).

| here           | paper                                                         |
|----------------|---------------------------------------------------------------|
| `_angle(V, W)` | pi/delta * r(V/W) + pi/4; the criterion is a step of pi/delta |
| `before[i]`    | V, the weight of everything in front of index i               |
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcfcp import checks
from gcfcp.arrays import Floats
from gcfcp.checks import Representative
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from gcfcp.digest.tdigest import TDigest

Indices: TypeAlias = NDArray[np.intp]
Compressed: TypeAlias = tuple[Floats, Floats, float, Representative, float]

ROUNDED_BITS = 12
"""Significant bits of an `upper` representative when min_count > 1. The maximum of a cluster is
some record's exact score; rounded strictly up it no longer is, it stays an upper bound, and the
price is a relative 2**-12 on average and 2**-11 at most. (A maximum of exactly 0 rounds to the
smallest step there is, 2**-1033, and can be recognised: zero has no scale to hide in.)"""

# The difference of two angles is off by a few units in the last place; without this slack a cluster
# that meets the criterion with equality (half of the weight at delta = 4) would be cut by chance.
_ANGLE_SLACK = 4 * float(np.finfo(np.float64).eps)


# --- sorted samples ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Values in ascending order. With weights, the values are distinct; without, each weighs 1."""

    values: Floats
    weights: Floats | None
    before: Floats | range
    """before[i] is the weight of values[:i]; a range costs nothing for a million counts."""

    @property
    def total(self) -> float:
        return float(self.before[-1])

    def weight_before(self, index: Indices) -> Floats:
        if isinstance(self.before, range):
            return index.astype(np.float64)
        return self.before[index]

    def weights_of_all(self) -> Floats:
        return np.ones(len(self.values)) if self.weights is None else self.weights

    def cluster_weights(self, starts: Indices, ends: Indices) -> Floats:
        """W_c. Not differences of running sums: beside 1e300 those would lose a weight of 1."""
        if self.weights is None:
            return (ends - starts).astype(np.float64)
        return np.add.reduceat(self.weights[: ends[-1]], starts)


def unit_sample(ascending: Floats, raw: Floats) -> Sample:
    # A sort puts NaN last and -inf first, so two looks replace two passes.
    if len(ascending) and (math.isnan(ascending[-1]) or ascending[0] == -np.inf):
        checks.refuse_unusable("values", raw)
    return Sample(ascending, None, range(len(ascending) + 1))


def weighted_sample(values: Floats, weights: Floats) -> Sample:
    # Ties are ordered by weight, so that their sum does not depend on the order of the input.
    order = np.lexsort((weights, values))
    values = values[order]
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    weights = np.add.reduceat(weights[order], starts)
    return Sample(values[starts], weights, np.concatenate(([0.0], np.cumsum(weights))))


def pooled_sample(digests: Sequence[TDigest]) -> Sample:
    kinds = sorted({d.representative for d in digests})
    if len(kinds) > 1:
        raise GCFCPError(
            f"representative={kinds[0]!r} and representative={kinds[1]!r} do not mix: "
            "make all digests with one"
        )
    means = np.concatenate([d.means for d in digests])
    weights = np.concatenate([d.weights for d in digests])
    checked_total(weights)  # each total is finite; their sum may not be
    return weighted_sample(means, weights)


# --- the construction -------------------------------------------------------------------------


def compress(
    sample: Sample,
    delta: float,
    representative: Representative,
    min_count: float = 1,
    limit: float | None = None,
    inherited: float = 0.0,
) -> Compressed:
    """The paper's construction over a sorted sample that itself carries an inherited error.

    Returns the fields of the digest, in their order.
    """
    delta = checks.delta(delta)
    representative = checks.representative(representative)
    min_count = least_weight(min_count)
    refuse_above(sample.values[-1], checked_limit(limit))
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
    weights = sample.cluster_weights(_starts(ends), ends)
    error_weight = min(inherited + _sup_error(sample, means, ends), sample.total)
    return means, weights, delta, representative, error_weight


def compress_digests(
    digests: Sequence[TDigest], delta: float, min_count: float = 1, limit: float | None = None
) -> Compressed:
    """The same over the clusters of several digests, whose errors it inherits."""
    sample = pooled_sample(digests)
    kind = digests[0].representative
    return compress(sample, delta, kind, min_count, limit, inherited_error(digests))


def inherited_error(digests: Sequence[TDigest]) -> float:
    return math.fsum(d.error_weight for d in digests)  # fsum: the same in any order


def _starts(ends: Indices) -> Indices:
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1]
    return starts


def _cluster_ends(sample: Sample, delta: float) -> Indices:
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


def _walk(sample: Sample, finite: int, step: float) -> Iterator[int]:
    end = 0
    while end < finite:
        end = min(_cluster_end(sample, end, step), finite)
        yield end


def _counted_ends(sample: Sample, finite: int, step: float) -> list[int] | None:
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


def _runs_apart(sample: Sample, finite: int, step: float) -> Indices | None:
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


def _finite_size(sample: Sample) -> int:
    return int(np.searchsorted(sample.values, np.inf, side="left"))


def _cluster_end(sample: Sample, start: int, step: float) -> int:
    """The end of the greedy cluster that begins at `start`."""
    values = sample.values
    end = _widest_end(sample, start, step)
    if start < end < len(values) and values[end - 1] == values[end]:
        end = start + int(np.searchsorted(values[start:end], values[end], side="left"))
    if end == start:  # the first run alone is too heavy: a cluster of one value, without error
        end = start + int(np.searchsorted(values[start:], values[start], side="right"))
    return end


def _widest_end(sample: Sample, start: int, step: float) -> int:
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


def _joined_ends(sample: Sample, ends: Indices, min_count: float) -> Indices:
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


def _cluster_means(sample: Sample, ends: Indices) -> Floats:
    starts = _starts(ends)
    lowest, highest = sample.values[starts], sample.values[ends - 1]
    means = highest.copy()
    finite = int(np.searchsorted(highest, np.inf, side="left"))  # only the last can be infinite
    if finite:
        plain = _weighted_means(sample, starts[:finite], ends[:finite])
        # Rounding can push a mean out of its cluster, which would move F^ by a whole value.
        means[:finite] = np.clip(plain, lowest[:finite], highest[:finite])
    return means


def _weighted_means(sample: Sample, starts: Indices, ends: Indices) -> Floats:
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


def _rounded_up(values: Floats) -> Floats:
    """The next number of ROUNDED_BITS significant bits strictly above each value."""
    # Above -1, -2, -4... the grid is finer than at them.
    _, exponent = np.frexp(np.where(values < 0, np.nextafter(values, 0.0), values))
    # Below the smallest normal number the grid stays as fine as there; 0 rounds up to its step,
    # as anything larger would overtake small positive values.
    exponent = np.where(values == 0, -1021, np.maximum(exponent, -1021))
    step = np.ldexp(1.0, exponent - ROUNDED_BITS)
    with np.errstate(over="ignore"):  # beyond the largest number is infinity
        rounded: Floats = (np.floor(values / step) + 1) * step
    return rounded


def _sup_error(sample: Sample, means: Floats, ends: Indices) -> float:
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


def as_weights(weights: ArrayLike, values: Floats) -> Floats:
    vector = checks.vector("weights", weights)
    if vector.shape != values.shape:
        raise GCFCPError(
            f"weights of shape {vector.shape} for values of shape {values.shape}: "
            "give one weight for each value"
        )
    checked_total(vector)
    return vector


def checked_total(weights: Floats) -> float:
    """W, of weights that are positive and finite, as is their sum."""
    total = running_total(weights)
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


def running_total(weights: Floats) -> float:
    """W, as the last of the running sums, so that F^ ends at exactly 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.cumsum(weights)[-1])


def refuse_above(largest: float, limit: float | None) -> None:
    if limit is not None and largest > limit:
        raise GCFCPError(f"a value of {largest} is above limit={limit}: raise the limit")


def checked_limit(limit: float | None) -> float | None:
    if limit is not None and math.isnan(limit):
        raise GCFCPError("limit=nan is not a number: give the scores' upper limit, or None")
    return limit


def least_weight(min_count: float) -> float:
    """The least weight of a cluster, which is a count only where weights are counts."""
    return checks.at_least("min_count", min_count, 1, "1 asks for nothing")
