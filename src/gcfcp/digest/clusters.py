"""How sorted values are divided into clusters: the construction behind every digest.

The values are divided, greedily and in ascending order, into clusters that span at most one unit of
the paper's scale function r. In terms of the angle arcsin(sqrt(V/W)), where V of the total weight W
lies below a value, a cluster spans at most pi/delta.

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
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcfcp import checks
from gcfcp.arrays import Bools, Floats
from gcfcp.checks import Representative
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from gcfcp.digest.tdigest import TDigest

Indices: TypeAlias = NDArray[np.intp]
Compressed: TypeAlias = tuple[Floats, Floats, float, Representative, float]

ROUNDED_BITS = 12
"""How finely representatives are rounded when min_count > 1. The maximum of a cluster is the exact
score of some record, and so is its mean if all of its scores are equal. Representatives are
therefore rounded up to the next number that has ROUNDED_BITS free significant bits and then a fixed
tail, which has its last bit far behind them. Whole numbers, the numbers of a float16 or float32,
and decimal fractions such as 0.35 do not end in this tail, so that a representative is no record's
score. An upper bound of a cluster remains one. The relative change is about 2**-12 on average and
2**-11 at most. A score of exactly 0 is rounded to about 2**-1034, half of the smallest step there
is, and can be recognised by that."""

# The tail, in units of the last free bit.
_TAIL = 0.5 + 2.0**-30

# The difference of two angles has an error of a few units in the last place. Without this slack,
# chance would decide about a cluster that exactly meets the criterion, such as one of half of the
# weight at delta = 4.
_ANGLE_SLACK = 4 * float(np.finfo(np.float64).eps)


# --- sorted samples ---------------------------------------------------------------------------


class Sample(NamedTuple):
    """Values in ascending order, as a tuple, which is made in half of the time of a dataclass.

    If there are weights, the values are distinct. Without weights, values may repeat and weigh 1
    each.
    """

    values: Floats
    weights: Floats | None
    before: Floats | range
    """before[i] is the weight of values[:i]. Without weights it is a range, which saves memory."""

    @property
    def total(self) -> float:
        """W, the weight of all values."""
        return float(self.before[-1])

    def weight_before(self, index: Indices) -> Floats | Indices:
        """The weight of all values in front of each index, which without weights is the index."""
        return index if isinstance(self.before, range) else self.before[index]

    def first(self, count: int) -> Sample:
        """The sample of the lowest values, this many of them."""
        weights = None if self.weights is None else self.weights[:count]
        return Sample(self.values[:count], weights, self.before[: count + 1])

    def weights_of_all(self) -> Floats:
        """The weight of each value."""
        return np.ones(len(self.values)) if self.weights is None else self.weights


@dataclass(frozen=True)
class Clusters:
    """Where the clusters of a sample lie. Each of them holds the values[start:end].

    Its first value is at `starts` and its last at `lasts`.
    """

    starts: Indices
    lasts: Indices
    ends: Indices
    weights: Floats
    """W_c, the weight of each cluster."""
    before: Floats | Indices
    """V in front of each cluster."""
    reached: Floats | Indices
    """V at the end of each cluster."""

    @classmethod
    def at(cls, sample: Sample, ends: Indices) -> Clusters:
        """The clusters that end there.

        Their weights are not differences of running sums, because a weight of 1 would be lost
        beside one of 1e300.
        """
        if sample.weights is None:
            return cls.counted(ends)
        starts = _starts(ends)
        weights = np.add.reduceat(sample.weights[: ends[-1]], starts)
        before, reached = sample.weight_before(starts), sample.weight_before(ends)
        return cls(starts, ends - 1, ends, weights, before, reached)

    @classmethod
    def counted(cls, ends: Indices) -> Clusters:
        """The clusters that end there, of values that weigh 1 each."""
        starts = _starts(ends)
        return cls(starts, ends - 1, ends, (ends - starts).astype(np.float64), starts, ends)


def unit_sample(ascending: Floats, raw: Floats) -> Sample:
    """The sample of values that weigh 1 each, or an error if one of them is NaN or -inf.

    - `ascending`: The sorted values.
    - `raw`: The values in their original order, for the positions in the message.
    """
    # A sort puts NaN last and -inf first, so it is enough to look at both ends.
    if len(ascending) and (math.isnan(ascending[-1]) or ascending[0] == -math.inf):
        checks.refuse_unusable("values", raw)
    return Sample(ascending, None, range(len(ascending) + 1))


def weighted_sample(values: Floats, weights: Floats) -> Sample:
    """The sample of values with weights. The weights of equal values are added up."""
    # Equal values are sorted by weight, so that the rounding of their sum does not depend on the
    # order of the input.
    order = np.lexsort((weights, values))
    values = values[order]
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    weights = np.add.reduceat(weights[order], starts)
    return Sample(values[starts], weights, np.concatenate(([0.0], np.cumsum(weights))))


def pooled_sample(digests: Sequence[TDigest]) -> Sample:
    """The sample of all clusters of all digests."""
    kinds = sorted({d.representative for d in digests})
    if len(kinds) > 1:
        raise GCFCPError(
            f"representative={kinds[0]!r} and representative={kinds[1]!r} do not mix: "
            "make all digests with the same one"
        )
    means = np.concatenate([d.means for d in digests])
    weights = np.concatenate([d.weights for d in digests])
    checked_total(weights)  # The total of each digest is finite, but their sum may not be.
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
    """The paper's construction over a sorted sample.

    - `min_count`: The smallest weight of a cluster.
    - `limit`: The upper limit of the values, beyond which no representative is rounded.
    - `inherited`: The error, in units of weight, that the sample itself already has.

    Returns the fields of the digest, in their order.
    """
    delta = checks.delta(delta)
    representative = checks.representative(representative)
    min_count = least_weight(min_count)
    limit = checked_limit(limit)
    refuse_above(sample.values[-1], limit)
    clusters, lowest, highest = _clusters(sample, delta)
    if min_count > 1:
        clusters = Clusters.at(sample, _joined_ends(sample, clusters.ends, min_count))
        lowest, highest = _extremes(sample.values, clusters)
    mean = representative == "mean"
    means = _cluster_means(sample, clusters, lowest, highest) if mean else highest
    if min_count > 1:
        means = np.minimum(_rounded_up(means), np.inf if limit is None else limit)
        distinct = np.append(means[1:] != means[:-1], True)
        means, clusters = means[distinct], Clusters.at(sample, clusters.ends[distinct])
    error = _sup_error(sample, means, clusters, above=mean)
    if inherited:
        error = min(inherited + error, sample.total)
    return means, clusters.weights, delta, representative, error


def compress_digests(
    digests: Sequence[TDigest], delta: float, min_count: float = 1, limit: float | None = None
) -> Compressed:
    """The paper's construction over the clusters of several digests, whose errors are inherited."""
    sample = pooled_sample(digests)
    kind = digests[0].representative
    return compress(sample, delta, kind, min_count, limit, inherited_error(digests))


def runs_of_cells(cells: Sequence[Floats], delta: float) -> list[tuple[Floats, Floats] | None]:
    """The clusters of all cells that are so small that only equal values share one, in one pass.

    - `cells`: The ascending values of each cell.

    Returns the distinct values of each cell and how often each occurs, or None for a larger cell.
    """
    step = math.pi / delta + _ANGLE_SLACK
    small = [i for i, cell in enumerate(cells) if len(cell) and _all_apart(len(cell), step)]
    found: list[tuple[Floats, Floats] | None] = [None] * len(cells)
    if not small:
        return found
    values = np.concatenate([cells[i] for i in small])
    ends = np.cumsum([len(cells[i]) for i in small])
    first = np.append(True, values[1:] != values[:-1])  # Whether a run of equal values starts.
    first[ends[:-1]] = True
    starts = np.flatnonzero(first)
    runs, counts = values[starts], np.diff(starts, append=len(values)).astype(np.float64)
    runs.setflags(write=False)
    counts.setflags(write=False)
    cut = 0
    for i, end in zip(small, np.searchsorted(starts, ends).tolist(), strict=True):
        found[i] = (runs[cut:end], counts[cut:end])
        cut = end
    return found


def inherited_error(digests: Sequence[TDigest]) -> float:
    """The sum of the errors of several digests, in units of weight."""
    return math.fsum(d.error_weight for d in digests)  # fsum gives the same sum in any order.


def _starts(ends: Indices) -> Indices:
    """Where the clusters with these ends start: the first at 0, each other at the end before it."""
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1]
    return starts


def _clusters(sample: Sample, delta: float) -> tuple[Clusters, Floats, Floats]:
    """The greedy clusters, with the lowest and the highest value of each.

    Each cluster takes as many runs of equal values as the criterion allows, but at least one. The
    mass at infinity is a cluster by itself.
    """
    size = len(sample.values)
    finite = _finite_size(sample)
    step = math.pi / delta + _ANGLE_SLACK
    if sample.weights is None:
        # Only the numbers of values matter, unless an end would divide a run of equal values.
        made = _clusters_of_ranks if delta <= _MOST_KEPT else _clusters_of_ranks.__wrapped__
        clusters = made(size, finite, step)
        lowest, highest = _extremes(sample.values, clusters)
        if not np.count_nonzero(highest[:-1] == lowest[1:]):
            return clusters, lowest, highest
    runs = _runs_apart(sample, finite, step)
    ends = np.array(list(_walk(sample, finite, step)), dtype=np.intp) if runs is None else runs
    # The mass at infinity is never part of a finite cluster.
    clusters = Clusters.at(sample, ends if finite == size else np.append(ends, size))
    return clusters, *_extremes(sample.values, clusters)


def _extremes(ascending: Floats, clusters: Clusters) -> tuple[Floats, Floats]:
    """The lowest and the highest value of each cluster.

    If each value is a cluster by itself, both are the given array.
    """
    if len(clusters.ends) == len(ascending):
        return ascending, ascending
    return ascending[clusters.starts], ascending[clusters.lasts]


def _walk(sample: Sample, finite: int, step: float) -> Iterator[int]:
    """Where the greedy clusters of the finite values end, found one by one."""
    end = 0
    while end < finite:
        end = min(_cluster_end(sample, end, step), finite)
        yield end


_MOST_KEPT = 1_000.0
"""Up to this delta, the clusters of so and so many ranks are kept. They are about delta at most."""


@lru_cache(maxsize=256)
def _clusters_of_ranks(total: int, finite: int, step: float) -> Clusters:
    """The greedy clusters of distinct values that weigh 1 each, of which the last may be infinite.

    They are those of `_walk`, in a tenth of the time. They are kept, so that the digests of many
    cells of about the same size cost little more than their sorts.

    - `total`: W, the number of all values.
    - `finite`: How many of them are finite.
    """
    if _all_apart(total, step):
        ends = np.arange(1, finite + 1, dtype=np.intp)
    else:
        ends = np.array(_ends_of_ranks(total, finite, step), dtype=np.intp)
    clusters = Clusters.counted(ends if finite == total else np.append(ends, total))
    for array in vars(clusters).values():
        array.setflags(write=False)
    return clusters


def _all_apart(total: int, step: float) -> bool:
    """Whether no two of these ranks fit into one cluster: they span an angle of at least 2/n."""
    return (step + 1e-12) * total < 2


def _ends_of_ranks(total: int, finite: int, step: float) -> list[int]:
    """Where the greedy clusters of the ranks 0, 1, ..., finite - 1 end.

    A cluster that starts at rank V reaches the rank W sin(angle(V) + step)^2 = W sin(step)^2 + V
    cos(2 step) + sqrt(V (W - V)) sin(2 step), or W if the angle passes pi/2. Where this is so near
    to a whole number that rounding could decide, the criterion itself is evaluated.
    """
    low = 1e-13 * total
    high = 1 - low
    at_zero, by_rank, by_root = total * math.sin(step) ** 2, math.cos(2 * step), math.sin(2 * step)
    # From this rank on, all remaining values fit into one cluster.
    last = total * math.cos(step) ** 2 if step < math.pi / 2 else 0.0
    sqrt, before = math.sqrt, range(total + 1)
    ends = []
    end = 0
    while end < finite:
        reach = at_zero + by_rank * end + by_root * sqrt(end * (total - end))
        whole = int(reach)
        if low < reach - whole < high and end < last:
            end = whole if whole > end else end + 1
        else:
            end = max(_widest_end(before, end, step), end + 1)
        ends.append(end)
    if ends:
        ends[-1] = finite
    return ends


def _runs_apart(sample: Sample, finite: int, step: float) -> Indices | None:
    """Where the runs of equal values end, if no two neighbouring runs fit into one cluster.

    The greedy walk then gives the same ends, but much more slowly. This is so if delta is so large
    that nothing is compressed. Otherwise the result is None.
    """
    values = sample.values[:finite]
    # Two of n values span an angle of at least 2/n. If twice that still fits into the step, some
    # neighbours very likely share a cluster, and the walk decides.
    if finite < 3 or step * finite > 4:
        return None
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, finite)
    if isinstance(sample.before, range) and _all_apart(len(sample.values), step):
        return ends
    before = sample.weight_before(np.append(0, ends))
    angles = np.arctan2(np.sqrt(before), np.sqrt(sample.total - before))
    # The criterion must fail by more than rounding errors can explain. Otherwise the walk decides.
    apart = angles[2:] - angles[:-2] > step + 1e-12
    return ends if apart.all() else None


def _finite_size(sample: Sample) -> int:
    """How many values are finite."""
    if sample.values[-1] < math.inf:
        return len(sample.values)
    return int(np.searchsorted(sample.values, np.inf, side="left"))


def _cluster_end(sample: Sample, start: int, step: float) -> int:
    """The end of the greedy cluster that starts at `start`."""
    values = sample.values
    end = _widest_end(cast("Sequence[float]", sample.before), start, step)
    if start < end < len(values) and values[end - 1] == values[end]:
        end = start + int(np.searchsorted(values[start:end], values[end], side="left"))
    if end == start:
        # The first run alone is too heavy. It becomes a cluster of one value, without error.
        end = start + int(np.searchsorted(values[start:], values[start], side="right"))
    return end


def _widest_end(before: Sequence[float], start: int, step: float) -> int:
    """The largest end with r(q_R) - r(q_L) <= 1, or `start` if there is none.

    Here q_L is the share of the weight in front of `start`, and q_R that in front of the end. Runs
    of equal values are not considered.

    - `before`: before[i] is the weight of the first i values.
    """
    last = len(before) - 1
    total = before[last]
    left = _angle(before[start], total)

    def fits(end: int) -> bool:
        return _angle(before[end], total) - left <= step

    # The inverse of the scale gives the end up to rounding errors, and the criterion itself then
    # decides. Each move goes to the next distinct running sum, because tiny weights may leave the
    # sum unchanged.
    guess = total * math.sin(min(left + step, math.pi / 2)) ** 2
    end = max(bisect_right(before, guess) - 1, start)
    while end < last and fits(end + 1):
        end = bisect_right(before, before[end + 1]) - 1
    while end > start and not fits(end):
        end = max(bisect_left(before, before[end]) - 1, start)
    return end


def _angle(V: float, W: float) -> float:
    """arcsin(sqrt(V/W)) = arcsin(2V/W - 1)/2 + pi/4, computed accurately at both ends of [0, W]."""
    return math.atan2(math.sqrt(V), math.sqrt(W - V))


def _joined_ends(sample: Sample, ends: Indices, min_count: float) -> Indices:
    """The ends that remain when neighbouring clusters are joined until each weighs `min_count`.

    They are joined from the top down, because the upper tail decides a threshold: the cluster of
    the largest values is as light as it can be, and what is left over joins the lowest cluster. If
    the mass at infinity is too light, the clusters below are joined to it and count as infinite,
    which never understates a value.
    """
    if sample.total < min_count:
        raise GCFCPError(
            f"min_count={min_count:g}, but the values weigh only {sample.total:g} in all: "
            "lower min_count, or leave these values out"
        )
    starts: list[int] = []  # Where the joined clusters start, in descending order.
    above = sample.total  # The weight of everything that is not yet part of a joined cluster.
    for start in _starts(ends)[::-1].tolist():
        below = float(sample.before[start])
        if above - below >= min_count:
            starts.append(start)
            above = below
    # The lowest cluster starts at 0 in any case, so that its own start is no end.
    return np.array([*starts[-2::-1], len(sample.values)], dtype=np.intp)


def _cluster_means(sample: Sample, clusters: Clusters, lowest: Floats, highest: Floats) -> Floats:
    """The weighted mean of each cluster, or +inf for the mass at infinity."""
    if highest is sample.values:
        return highest
    if highest[-1] == math.inf:  # Only the last can be infinite.
        return np.append(_finite_means(sample, clusters, lowest, highest), np.inf)
    means = _weighted_means(sample, clusters)
    # Rounding can push a mean out of its cluster and past a value, where F^ would be wrong.
    np.maximum(means, lowest, out=means)
    return np.minimum(means, highest, out=means)


def _finite_means(sample: Sample, clusters: Clusters, lowest: Floats, highest: Floats) -> Floats:
    """The weighted mean of each cluster but the last."""
    if len(highest) == 1:
        return np.empty(0)
    finite = Clusters.at(sample, clusters.ends[:-1])
    return _cluster_means(sample.first(finite.ends[-1]), finite, lowest[:-1], highest[:-1])


def _weighted_means(sample: Sample, clusters: Clusters) -> Floats:
    """The weighted mean of each cluster, which is finite, without overflow."""
    values, starts = sample.values, clusters.starts
    largest = max(-float(values[0]), float(values[-1]))
    if sample.weights is None and largest * len(values) < _LARGE:
        means = np.add.reduceat(values, starts)
        return np.divide(means, clusters.weights, out=means)
    # The weights of each cluster are scaled by a power of two so that they add up to at most 1.
    # Neither values near 1e308 nor huge weights then overflow, and the scaling rounds nothing.
    fraction, exponent = np.frexp(clusters.weights)
    scale = np.repeat(-exponent, clusters.ends - starts)
    weights = np.ldexp(sample.weights_of_all(), scale)
    return np.add.reduceat(weights * values, starts) / fraction


# A sum of numbers below this does not overflow.
_LARGE = 1e308


def _rounded_up(values: Floats) -> Floats:
    """The next number with ROUNDED_BITS free bits and the tail, strictly above each value."""
    # Numbers just above -1, -2, -4, ... lie closer together than those just below.
    step = _step(np.where(values < 0, np.nextafter(values, 0.0), values))
    low = 2.0 ** (ROUNDED_BITS - 1)  # In units of a step, numbers lie from `low` to 2 `low`.
    with np.errstate(over="ignore", invalid="ignore"):  # Above the largest number comes infinity.
        size = np.abs(values) / step
        up = np.floor(size - _TAIL) + 1 + _TAIL
        up = np.where(up > 2 * low, 2 * (low + _TAIL), up)  # Beyond it, steps are twice as wide.
        down = np.ceil(size - _TAIL) - 1 + _TAIL
        narrow = (down < low) & (step > _SMALLEST_STEP)  # There, steps are half as wide.
        down = np.where(narrow, (2 * low - 1 + _TAIL) / 2, down)
        below = np.where(down < 0, _TAIL, -down)  # Nothing lies between 0 and the smallest number.
        rounded: Floats = np.where(values < 0, below, up) * step
    return np.where(np.isposinf(values), values, rounded)


def _step(values: Floats) -> Floats:
    """The value of the last of ROUNDED_BITS significant bits.

    Below the smallest normal number, 2**-1022, and at 0 the step does not become smaller.
    """
    exponent = np.where(values == 0, -1021, np.maximum(np.frexp(values)[1], -1021))
    step: Floats = np.ldexp(1.0, exponent - ROUNDED_BITS)
    return step


_SMALLEST_STEP = 2.0 ** (-1021 - ROUNDED_BITS)

ROUNDED_ZERO = _TAIL * _SMALLEST_STEP
"""What a score of exactly 0 is rounded to."""


def is_rounded(values: Floats) -> Bools:
    """Which values end in the tail of rounded representatives."""
    with np.errstate(invalid="ignore"):
        size = np.abs(values) / _step(values)
        return np.asarray(size - np.floor(size) == _TAIL)


def _sup_error(sample: Sample, means: Floats, clusters: Clusters, above: bool) -> float:
    """W sup |F - F^|, exactly.

    F^ is constant between representatives, and F never falls. So F is furthest above F^ just below
    a representative, and furthest below F^ at a representative.

    - `above`: Whether F^ can lie above F: it does not where no value of a cluster is above its
      representative.
    """
    values = sample.values
    if means is values:
        return 0.0  # Each value is a cluster by itself, so F^ = F.
    if 2 * len(means) > len(values) and _all_equal(values, means, clusters):
        return 0.0  # Every cluster has one distinct value, so F^ = F.
    at = values.searchsorted(means, side="left")
    V = sample.weight_before(at)
    below = _largest(V - clusters.before)
    if not above:
        return below
    # The weight that is not below a representative, of which that of equal values is not above it
    # either. A second search is needed only if there are any in the cluster that decides.
    behind = clusters.reached - V
    decides = behind.argmax()
    most = float(behind[decides])
    if most > below and values[at[decides]] == means[decides]:
        V = sample.weight_before(values.searchsorted(means, side="right"))
        most = _largest(clusters.reached - V)
    return max(below, most)


def _largest(numbers: Floats | Indices) -> float:
    """The largest number, in a third of the time of `numbers.max()`."""
    return float(numbers[numbers.argmax()])


def _all_equal(values: Floats, means: Floats, clusters: Clusters) -> bool:
    """Whether all values of each cluster are equal to its mean."""
    return not (
        np.count_nonzero(values[clusters.starts] != means)
        or np.count_nonzero(values[clusters.lasts] != means)
    )


# --- what is accepted -------------------------------------------------------------------------


def as_weights(weights: ArrayLike, values: Floats) -> Floats:
    """The weights as float64, one for each value, all of them positive and finite."""
    vector = checks.vector("weights", weights)
    if vector.shape != values.shape:
        raise GCFCPError(
            f"weights have shape {vector.shape}, but values have shape {values.shape}: "
            "give one weight for each value"
        )
    checked_total(vector)
    return vector


def checked_total(weights: Floats) -> float:
    """W, the sum of the weights, or an error unless they and their sum are positive and finite."""
    total = running_total(weights)
    if weights.min() > 0 and total < np.inf:
        return total
    wrong = ~((weights > 0) & (weights < np.inf))
    if wrong.any():
        first = int(wrong.argmax())
        raise GCFCPError(
            f"weights[{first}]={weights[first]} is not positive and finite "
            f"({wrong.sum()} of {len(weights)} weights are not): give each value a positive "
            "weight, or leave it out"
        )
    raise GCFCPError("weights add up to more than the largest float64: scale them down")


def running_total(weights: Floats) -> float:
    """W, computed as the last of the running sums, so that F^ ends at exactly 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.cumsum(weights)[-1])


def refuse_above(largest: float, limit: float | None) -> None:
    """Raise an error if the largest value is above the limit."""
    if limit is not None and largest > limit:
        raise GCFCPError(f"a value of {largest} is above limit={limit}: raise the limit")


def checked_limit(limit: float | None) -> float | None:
    """The limit, or an error if it is NaN."""
    if limit is None:
        return None
    if not checks.is_number(limit) or math.isnan(limit):
        raise GCFCPError(f"limit={limit!r:.60} is not a number: give the upper limit, or None")
    return checks.as_float(limit)


def least_weight(min_count: float) -> float:
    """min_count as the smallest weight of a cluster, which may be any number of at least 1."""
    return checks.at_least("min_count", min_count, 1, "1 means no limit")
