"""The digest keeps its promises, as a comparison with brute force shows that shares no code."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp.digest import DigestBuilder, TDigest, stream
from gcfcp.digest import clusters as module
from gcfcp.errors import GCFCPError

INF = math.inf
KINDS = ("mean", "upper")

SHAPES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "uniform": lambda g, n: g.uniform(size=n),
    "normal": lambda g, n: g.normal(size=n),
    "exponential": lambda g, n: g.exponential(size=n),
    "cauchy": lambda g, n: g.standard_cauchy(size=n),
    "pareto": lambda g, n: g.pareto(0.5, size=n),
    "lognormal": lambda g, n: g.lognormal(0, 10, size=n),
    "beta_u_shaped": lambda g, n: g.beta(0.1, 0.1, size=n),
    "bimodal": lambda g, n: g.normal(size=n) + 1e6 * g.integers(0, 2, n),
    "ascending": lambda g, n: np.arange(n) / 7,
    "descending": lambda g, n: -np.arange(n) / 7,
    "all_equal": lambda g, n: np.full(n, 0.1),
    "bernoulli": lambda g, n: g.integers(0, 2, n),
    "rare_event": lambda g, n: g.uniform(size=n) < 0.001,
    "binomial": lambda g, n: g.binomial(10, 0.3, size=n),
    "poisson": lambda g, n: g.poisson(3, size=n),
    "geometric": lambda g, n: g.geometric(0.02, size=n),
    "zipf": lambda g, n: np.minimum(g.zipf(1.3, size=n), 10**6),
    "rounded": lambda g, n: np.round(g.normal(size=n), 1),
    "atom_and_tail": lambda g, n: np.maximum(g.normal(size=n), 0),
    "with_infinity": lambda g, n: np.where(g.uniform(size=n) < 0.1, INF, g.normal(size=n)),
    "denormal": lambda g, n: g.integers(-50, 50, n) * 5e-324,
    "near_overflow": lambda g, n: 1.7e308 * g.uniform(-1, 1, size=n),
    "last_digit": lambda g, n: 1 + g.integers(0, 9, n) * 2.0**-52,
}

shapes = pytest.mark.parametrize("shape", SHAPES)
kinds = pytest.mark.parametrize("kind", KINDS)
deltas = st.sampled_from([2, 2.5, 3, 4, 6, 10, 25, 100])
finite = st.one_of(
    st.integers(-5, 5).map(float),
    st.floats(-1e3, 1e3),
    st.floats(allow_nan=False, allow_infinity=False),
)
scores = st.lists(st.one_of(finite, st.just(INF)), min_size=1, max_size=80)


def draw(shape: str, n: int = 2000, seed: int = 0) -> np.ndarray:
    return np.asarray(SHAPES[shape](np.random.default_rng(seed), n), dtype=np.float64)


def brute_error(values: Sequence[float], weights: Sequence[float], digest: TDigest) -> float:
    """W sup |F - F^|, found by comparing both functions at and just below each of their steps."""
    t = np.union1d(values, digest.means)
    worst = 0.0
    for side in ("left", "right"):
        F, estimate = (
            np.append(0, np.cumsum(w))[np.searchsorted(x, t, side=side)]
            for x, w in (by_value(values, weights), (digest.means, digest.weights))
        )
        worst = max(worst, float(np.abs(F - estimate).max()))
    return worst


def by_value(values: Sequence[float], weights: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(values, kind="stable")
    return np.asarray(values, dtype=float)[order], np.asarray(weights, dtype=float)[order]


def scale(q: float, delta: float) -> float:
    return delta / (2 * math.pi) * math.asin(2 * q - 1)


def greedy_sizes(values: np.ndarray, delta: float) -> list[int]:
    """The paper's construction, one run of equal values at a time. +inf is never joined."""
    distinct, counts = np.unique(values, return_counts=True)
    n, left, right, sizes = len(values), 0, 0, []
    for value, count in zip(distinct, counts.tolist(), strict=True):
        span = scale((right + count) / n, delta) - scale(left / n, delta)
        if right > left and (span > 1 + 1e-12 or value == INF):
            sizes.append(right - left)
            left = right
        right += count
    return [*sizes, right - left]


def bits(digest: TDigest) -> tuple[bytes, bytes, float, str, float]:
    return (
        digest.means.tobytes(),
        digest.weights.tobytes(),
        digest.delta,
        digest.representative,
        digest.error_weight,
    )


def split(values: np.ndarray, parts: int, seed: int = 0) -> list[np.ndarray]:
    owner = np.random.default_rng(seed).integers(0, parts, len(values))
    return [values[owner == k] for k in range(parts) if (owner == k).any()]


# --- construction -------------------------------------------------------------------------------


@shapes
@kinds
@pytest.mark.parametrize("delta", [2, 7, 25, 250])
def test_raw_values(shape: str, kind: str, delta: float) -> None:
    values = draw(shape)
    d = TDigest.from_values(values, delta, representative=kind)
    ascending = np.sort(values)
    ends = np.cumsum(d.weights).astype(int)
    starts = np.append(0, ends[:-1])
    lowest, highest = ascending[starts], ascending[ends - 1]

    assert d.weights.tolist() == greedy_sizes(values, delta)
    assert d.total == len(values)
    assert (np.diff(d.means) > 0).all()
    assert (lowest <= d.means).all()
    assert (d.means <= highest).all()
    single = lowest == highest
    assert (d.means[single] == lowest[single]).all()
    assert (ascending[ends[:-1]] > ascending[ends[:-1] - 1]).all(), "a run of equal values was cut"
    for start, end, one in zip(starts, ends, single, strict=True):
        span = scale(end / len(values), delta) - scale(start / len(values), delta)
        assert one or span <= 1 + 1e-12
    assert d.error_weight == brute_error(values, np.ones(len(values)), d)
    assert d.error <= math.sin(math.pi / delta)
    if kind == "upper":
        assert (d.means == highest).all()


@shapes
def test_means_are_means(shape: str) -> None:
    values = draw(shape, 300)
    d = TDigest.from_values(values, 10)
    ascending = np.sort(values)
    cut = np.split(ascending, np.cumsum(d.weights).astype(int)[:-1])
    for mean, cluster in zip(d.means, cut, strict=True):
        if math.isinf(cluster[-1]):
            assert mean == INF
        else:
            exact = sum(map(Fraction, cluster.tolist())) / len(cluster)
            size = max(abs(cluster[0]), abs(cluster[-1]))
            assert abs(Fraction(float(mean)) - exact) <= Fraction(size) / 10**14 + Fraction(5e-324)


@shapes
@kinds
def test_order_does_not_matter(shape: str, kind: str) -> None:
    values = draw(shape)
    weights = np.random.default_rng(1).pareto(0.5, len(values)) + 0.1
    order = np.random.default_rng(2).permutation(len(values))
    assert bits(TDigest.from_values(values, 20, representative=kind)) == bits(
        TDigest.from_values(values[order], 20, representative=kind)
    )
    assert bits(TDigest.from_values(values, 20, weights, kind)) == bits(
        TDigest.from_values(values[order], 20, weights[order], kind)
    )


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(scores, deltas, st.sampled_from(KINDS), st.randoms(use_true_random=False))
def test_any_values(values: list[float], delta: float, kind: str, random: Any) -> None:
    d = TDigest.from_values(values, delta, representative=kind)
    assert d.total == len(values)
    assert d.weights.tolist() == greedy_sizes(np.array(values) + 0.0, delta)
    assert d.error_weight == brute_error(values, [1] * len(values), d)
    assert d.error <= math.sin(math.pi / delta)
    shuffled = random.sample(values, len(values))
    assert bits(TDigest.from_values(shuffled, delta, representative=kind)) == bits(d)
    assert bits(TDigest.from_sorted(sorted(values), delta, kind)) == bits(d)
    if kind == "upper":
        assert all(d.cdf(t) <= sum(v <= t for v in values) / len(values) for t in values)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(finite, st.floats(1e-6, 1e6)), min_size=1, max_size=60), deltas)
def test_any_weights(pairs: list[tuple[float, float]], delta: float) -> None:
    values, weights = zip(*pairs, strict=True)
    for kind in KINDS:
        d = TDigest.from_values(values, delta, weights, kind)
        assert d.total == pytest.approx(sum(weights), rel=1e-12)
        assert d.error_weight == pytest.approx(
            brute_error(values, weights, d), rel=1e-9, abs=1e-12 * sum(weights)
        )
        assert d.error <= math.sin(math.pi / delta) + 1e-12
        assert set(d.means) <= set(values) or kind == "mean"


def test_integer_weights_are_repetitions() -> None:
    g = np.random.default_rng(0)
    values, counts = g.normal(size=300), g.integers(1, 20, 300)
    for kind in KINDS:
        weighted = TDigest.from_values(values, 20, counts, kind)
        repeated = TDigest.from_values(np.repeat(values, counts), 20, representative=kind)
        assert weighted.weights.tolist() == repeated.weights.tolist()
        assert weighted.error_weight == repeated.error_weight
        assert weighted.means == pytest.approx(repeated.means, rel=1e-13)


def test_equality_meets_the_criterion() -> None:
    # r(1/2) - r(0) is exactly 1 at delta = 4, as is r(1/4) - r(0) at delta = 6.
    assert TDigest.from_values(np.arange(8), 4).weights.tolist() == [4, 4]
    assert TDigest.from_values(np.arange(8), 6).weights.tolist() == [2, 4, 2]
    assert TDigest.from_values(np.arange(8), 2).weights.tolist() == [8]


@pytest.mark.parametrize("delta", [3, 25, 250, 1e5])
def test_the_criterion_decides_not_its_inverse(delta: float) -> None:
    # With so many counts, the inverse of the scale misses the end by a few, because floats round.
    n = 10**15
    sample = module.Sample(np.empty(0), None, range(n + 1))
    step = math.pi / delta
    start = 0
    for _ in range(300):
        end = module._widest_end(sample.before, start, step)
        left = module._angle(start, n)
        assert module._angle(end, n) - left <= step
        assert end == n or module._angle(end + 1, n) - left > step
        start = end if end < n else 0


def test_more_delta_more_clusters() -> None:
    values = draw("normal", 10_000)
    for delta in (10, 50, 250):
        assert delta / 2 <= len(TDigest.from_values(values, delta)) <= delta
    assert len(TDigest.from_values(values, 1e9)) == 10_000


@kinds
def test_one_value(kind: str) -> None:
    for value in (0.1, -3.0, 5e-324, 1.7976931348623157e308, INF):
        d = TDigest.from_values([value], representative=kind)
        assert (d.means.tolist(), d.weights.tolist(), d.error) == ([value], [1.0], 0.0)


def test_negative_zero_is_zero() -> None:
    for values in ([-0.0, 0.0, 0.0], [0.0, 0.0, -0.0]):
        for weights in (None, [1, 1, 1]):
            for kind in KINDS:
                d = TDigest.from_values(values, 10, weights, kind)
                assert d.means.tobytes() == np.zeros(1).tobytes()


def test_heavy_run_is_exact() -> None:
    values = np.concatenate((np.arange(100), np.full(800, 100.0), np.arange(101, 201)))
    d = TDigest.from_values(values, 20)
    assert d.weights[d.means == 100].tolist() == [800]
    assert d.error <= 0.05


def test_infinity_is_mass_of_its_own() -> None:
    values = [1.0, 2.0, 3.0, INF, INF]
    for kind in KINDS:
        d = TDigest.from_values(values, 2, representative=kind)
        assert d.means[-1] == INF
        assert d.weights.tolist() == [3, 2]
        assert d.means[0] == (2 if kind == "mean" else 3)
        assert d.cdf(1e308) == 0.6
        assert d.cdf(INF) == 1
        assert (d.quantile(0.6) < INF, d.quantile(0.61)) == (True, INF)
    assert TDigest.from_values([INF, INF]).means.tolist() == [INF]


def test_sums_that_overflow() -> None:
    big = 1.7976931348623157e308
    d = TDigest.from_values([big] * 3 + [big / 2] * 3, 2)
    assert d.means.tolist() == pytest.approx([0.75 * big])
    d = TDigest.from_values([big, 0.9 * big, -big, 0.9 * -big], 2)
    assert abs(d.means[0]) <= 1e-15 * big
    d = TDigest.from_values([big, big / 2], 2, weights=[1e308, 1e307])
    assert big / 2 < d.means[0] <= big


def test_huge_weight_ratios() -> None:
    g = np.random.default_rng(0)
    weights = np.array([1e-300, 1e300, 1.0] * 50)
    values = g.normal(size=150)
    for kind in KINDS:
        d = TDigest.from_values(values, 50, weights, kind)
        assert (d.weights > 0).all()
        assert d.total == pytest.approx(5e301)
        assert d.error <= math.sin(math.pi / 50)
    tiny = TDigest.from_values([1.0, 2.0, 3.0], 2, [1e-300, 1e-300, 1e300])
    assert tiny.total == 1e300
    light = TDigest.from_values([1.0, 2.0], 2, [1e-320, 1e-320])
    assert light.means.tolist() == [1.5]
    crowd = TDigest.from_values(np.arange(20_000), 25, [1e300] + [1e-300] * 19_998 + [1e300])
    assert crowd.total == 2e300


# --- cdf and quantile ---------------------------------------------------------------------------


@pytest.mark.few(16)
@shapes
@kinds
def test_cdf_and_quantile_are_the_definitions(shape: str, kind: str) -> None:
    d = TDigest.from_values(draw(shape, 500), 20, representative=kind)
    W = d.total
    for t in [*d.means, *np.nextafter(d.means, -INF), -INF, INF, 0.0]:
        assert d.cdf(t) == d.weights[d.means <= t].sum() / W
    for u in [*np.arange(1, 501) / 500, *np.random.default_rng(0).uniform(size=100)]:
        reached = [t for t in d.means if d.weights[d.means <= t].sum() / W >= u]
        assert d.quantile(u) == reached[0]
    assert (d.quantile(d.cdf(d.means)) == d.means).all()
    assert (d.cdf(d.quantile(np.arange(1, 501) / 500)) >= np.arange(1, 501) / 500).all()


def test_quantile_has_the_exact_rank() -> None:
    for n in range(1, 200):
        d = TDigest.from_values(np.arange(1, n + 1), 1e6)
        assert d.quantile(np.arange(1, n + 1) / n).tolist() == list(range(1, n + 1))
    tenths = TDigest.from_values(np.arange(1, 11), 1e6)
    assert [tenths.quantile(u) for u in (0.1, 0.3, 0.7, 0.9, 1.0)] == [1, 3, 7, 9, 10]


def test_shapes_of_answers() -> None:
    d = TDigest.from_values([1.0, 2.0])
    assert type(d.cdf(1)) is float
    assert type(d.quantile(0.5)) is float
    assert d.cdf([[0, 1], [2, 3]]).tolist() == [[0, 0.5], [1, 1]]
    assert d.quantile([0.0, 0.5, 0.75]).tolist() == [-INF, 1, 2]
    assert d.quantile([]).shape == (0,)


# --- merge and pool -----------------------------------------------------------------------------


@shapes
@kinds
def test_merge_laws(shape: str, kind: str) -> None:
    a, b, c = (TDigest.from_values(part, 20, representative=kind) for part in split(draw(shape), 3))
    kept = [bits(d) for d in (a, b, c)]
    for together in (TDigest.merge, TDigest.pool):
        assert together(a) == a
        assert bits(together(a)) == bits(a)
        assert bits(together(a, b, c)) == bits(together(c, a, b))
        assert together(a, b, c).total == a.total + b.total + c.total
        assert (np.diff(together(a, b, c).means) > 0).all()
    assert [bits(d) for d in (a, b, c)] == kept
    assert bits(a.pool(b, c)) == bits(a.pool(b).pool(c))
    assert a.pool(b, c).error_weight == a.error_weight + b.error_weight + c.error_weight
    assert a.merge(b, c).weights.tolist() == a.pool(b, c).merge().weights.tolist()


@shapes
@kinds
@pytest.mark.parametrize("seed", [0, 1])
def test_merge_trees(shape: str, kind: str, seed: int) -> None:
    """A random tree of merges and pools keeps the mass, the bound on the error, and F^ <= F."""
    g = np.random.default_rng(seed)
    values = draw(shape, 1500, seed)
    leaves = [
        TDigest.from_values(part, float(g.choice([5, 10, 20])), representative=kind)
        for part in split(values, 9, seed)
    ]
    forest = [(leaf, math.sin(math.pi / leaf.delta)) for leaf in leaves]
    while len(forest) > 1:
        taken = [forest.pop(int(g.integers(len(forest)))) for _ in range(min(3, len(forest)))]
        digests = [d for d, _ in taken]
        inherited = sum(d.total * bound for d, bound in taken) / sum(d.total for d in digests)
        if g.uniform() < 0.3:
            forest.append((digests[0].pool(*digests[1:]), inherited))
        else:
            delta = float(g.choice([5, 10, 20]))
            merged = digests[0].merge(*digests[1:], delta=delta)
            forest.append((merged, inherited + math.sin(math.pi / delta)))
    [(d, bound)] = forest
    assert d.total == len(values)
    assert brute_error(values, np.ones(len(values)), d) <= d.error_weight <= bound * d.total
    assert d.error_weight == int(d.error_weight)
    if kind == "upper":
        t = np.union1d(values, d.means)
        assert (d.cdf(t) <= np.searchsorted(np.sort(values), t, side="right") / len(values)).all()


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(scores, min_size=1, max_size=5), deltas, st.sampled_from(KINDS))
def test_any_merge(parts: list[list[float]], delta: float, kind: str) -> None:
    values = [v for part in parts for v in part]
    first, *rest = (TDigest.from_values(part, 10, representative=kind) for part in parts)
    pooled, merged = first.pool(*rest), first.merge(*rest, delta=delta)
    for d in (pooled, merged):
        assert d.total == len(values)
        assert brute_error(values, [1] * len(values), d) <= d.error_weight
    extra = brute_error(pooled.means.tolist(), pooled.weights.tolist(), merged)
    assert merged.error_weight == min(pooled.error_weight + extra, len(values))
    assert bits(merged) == bits(pooled.merge(delta=delta))


def test_merge_takes_the_coarsest_delta() -> None:
    a, b = TDigest.from_values(np.arange(99), 30), TDigest.from_values(np.arange(99), 10)
    assert a.merge(b).delta == a.pool(b).delta == b.merge(a).delta == 10
    assert a.merge(b, delta=50).delta == 50


# --- disclosure: min_count and rounding ---------------------------------------------------------


@shapes
@kinds
@pytest.mark.parametrize("m", [2, 10, 150])
def test_min_count(shape: str, kind: str, m: int) -> None:
    values = draw(shape, 1000)
    d = TDigest.from_values(values, 50, representative=kind, min_count=m)
    assert d.total == 1000
    assert d.weights.min() >= m
    assert (np.diff(d.means) > 0).all()
    assert d.error_weight == brute_error(values, np.ones(1000), d)
    if kind == "upper":
        t = np.union1d(values, d.means)
        assert (d.cdf(t) <= np.searchsorted(np.sort(values), t, side="right") / 1000).all()
        finite = np.isfinite(d.means)
        strictly_below = np.searchsorted(np.sort(values), d.means, side="left")
        assert (strictly_below >= np.cumsum(d.weights))[finite].all(), "an exact score leaves"


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(scores, deltas, st.sampled_from(KINDS), st.integers(2, 30))
def test_any_min_count(values: list[float], delta: float, kind: str, m: int) -> None:
    if len(values) < m:
        with pytest.raises(
            GCFCPError, match=f"min_count={m}, but the values weigh only {len(values)} "
        ):
            TDigest.from_values(values, delta, representative=kind, min_count=m)
        return
    d = TDigest.from_values(values, delta, representative=kind, min_count=m)
    assert d.weights.min() >= m
    assert d.total == len(values)
    assert d.error_weight == brute_error(values, [1] * len(values), d)
    if kind == "upper":
        assert all(d.cdf(t) <= sum(v <= t for v in values) / len(values) for t in values)


def test_min_count_of_one_asks_nothing_of_weights() -> None:
    assert len(TDigest.from_values(np.arange(100), 20, np.full(100, 0.01), min_count=1)) > 10


def test_little_mass_at_infinity_takes_its_neighbours_along() -> None:
    values = [*range(100), INF]
    for kind in KINDS:
        d = TDigest.from_values(values, 50, representative=kind, min_count=5)
        assert d.means[-1] == INF
        assert 5 <= d.weights[-1] < 20
        own = TDigest.from_values([*range(100), *[INF] * 5], 50, representative=kind, min_count=5)
        assert own.weights[-1] == 5
        few = TDigest.from_values([1.0, *[INF] * 5], representative=kind, min_count=5)
        assert (few.means.tolist(), few.weights.tolist()) == ([INF], [6])


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(finite, finite)
@example(-1.0, -0.99999)
def test_rounding_up(x: float, y: float) -> None:
    low, high = module._rounded_up(np.array(sorted((x, y))))
    assert low <= high
    for value, rounded in zip(sorted((x, y)), (low, high), strict=True):
        assert rounded > value
        if math.isfinite(rounded):
            assert rounded - value <= max(abs(value) * 2.0**-11, 2.0**-1033)
            mantissa = abs(math.frexp(rounded)[0]) * 2**module.ROUNDED_BITS
            assert mantissa % 1 == module._TAIL or abs(rounded) < 2.0**-1020
            assert module.is_rounded(np.array([rounded]))[0]


def test_limit_stops_the_rounding() -> None:
    values = np.append(np.linspace(0, 0.9, 50), [0.99999] * 10)
    free = TDigest.from_values(values, representative="upper", min_count=5)
    held = TDigest.from_values(values, representative="upper", min_count=5, limit=1.0)
    assert free.means[-1] == 1 + 2.0**-11 * module._TAIL
    assert held.means[-1] == 1.0
    ones = np.ones(10)
    assert (
        TDigest.from_values(ones, representative="upper", min_count=5).means[0]
        == 1 + 2.0**-11 * module._TAIL
    )
    d = TDigest.from_values(ones, representative="upper", min_count=5, limit=1.0)
    assert (d.means.tolist(), d.error) == ([1.0], 0.0)


@pytest.mark.parametrize("limit", [Fraction(3, 2), np.float32(1.5), np.float64(1.5)])
def test_a_limit_of_any_type_is_the_same_number(limit: Any) -> None:
    values = np.append(np.zeros(5), np.full(5, 1.5))
    d = TDigest.from_values(values, representative="upper", min_count=5, limit=limit)
    assert d.means.dtype == np.float64
    assert d == TDigest.from_values(values, representative="upper", min_count=5, limit=1.5)


def test_a_limit_of_a_short_float_is_the_number_that_it_prints() -> None:
    # np.float32(0.1) is a little above 0.1, and as a limit it means 0.1.
    values, limit = np.full(5, 0.1), np.float32(0.1)
    d = TDigest.from_values(values, representative="upper", min_count=5, limit=limit)
    assert d.means.tolist() == [0.1]


def test_equal_after_rounding_are_combined() -> None:
    values = 1 + np.arange(1000) * 1e-9
    d = TDigest.from_values(values, representative="upper", min_count=2)
    assert (d.means.tolist(), d.weights.tolist(), d.error) == (
        [1 + 2.0**-11 * module._TAIL],
        [1000.0],
        1.0,
    )


# --- streams ------------------------------------------------------------------------------------


def build(values: np.ndarray, chunk: int, **options: Any) -> TDigest:
    builder = DigestBuilder(**options)
    for start in range(0, len(values), chunk):
        builder.add(values[start : start + chunk])
    assert builder.count == len(values)
    return builder.digest()


@shapes
@kinds
def test_short_stream_is_from_values(shape: str, kind: str) -> None:
    values = draw(shape)
    for m in (1, 10):
        whole = TDigest.from_values(values, 30, representative=kind, min_count=m)
        options = {"delta": 30, "representative": kind, "min_count": m}
        assert bits(build(values, 333, **options)) == bits(whole)
        assert bits(build(values, 2000, buffer=2000, **options)) == bits(whole)


@pytest.mark.few(10)
@shapes
@kinds
def test_long_stream(shape: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FAN_IN", 4)
    values = draw(shape, 5000)
    options = {"delta": 20, "representative": kind, "buffer": 100}
    d = build(values, 70, **options)
    assert d.total == 5000
    assert brute_error(values, np.ones(5000), d) <= d.error_weight
    # There are 50 buffers, so at most log4(50) < 3 levels of merges above the first.
    assert d.error <= math.sin(math.pi / 20) + 4 * math.sin(math.pi / 160)
    assert bits(build(values, 1, **options)) == bits(d) == bits(build(values, 5000, **options))
    hidden = build(values, 70, min_count=50, **options)
    assert hidden.weights.min() >= 50
    assert brute_error(values, np.ones(5000), hidden) <= hidden.error_weight
    if kind == "upper":
        t = np.union1d(values, hidden.means)
        truth = np.searchsorted(np.sort(values), t, side="right") / 5000
        assert (d.cdf(t) <= truth).all()
        assert (hidden.cdf(t) <= truth).all()


def test_builder_holds_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FAN_IN", 4)
    builder = DigestBuilder(10, buffer=50)
    assert builder._room.nbytes == 0
    builder.add([1.0])
    assert builder._room.nbytes <= 16
    g = np.random.default_rng(0)
    for _ in range(200):
        builder.add(g.normal(size=97))
        held = sum(len(d) for level in builder._levels for d in level)
        assert len(builder._room) <= 50
        assert held <= 3 * 80 * len(builder._levels)
    assert len(builder._levels) <= 1 + math.log(builder.count / 50, 4)


def test_builder_goes_on_after_a_digest() -> None:
    builder = DigestBuilder(10, buffer=8)
    chunk = np.arange(5.0)
    builder.add(chunk)
    chunk[:] = -1  # The caller may reuse its array.
    first = builder.digest()
    assert bits(first) == bits(builder.digest())
    builder.add([])
    builder.add(np.arange(5.0, 20))
    assert first.total == 5
    assert first.cdf(-0.5) == 0
    assert builder.digest().total == builder.count == 20


def test_builder_refuses_a_whole_chunk() -> None:
    builder = DigestBuilder()
    builder.add([1.0, 2.0])
    with pytest.raises(GCFCPError, match="1 of 3 values are NaN, the first in row 4"):
        builder.add([3.0, math.nan, 4.0])
    assert builder.count == 2
    with pytest.raises(GCFCPError, match="no values were added"):
        DigestBuilder().digest()
    with pytest.raises(GCFCPError, match=r"a value of 2\.0 is above limit=1"):
        DigestBuilder(limit=1).add([2.0])
    for wrong in ({"delta": 1}, {"representative": "x"}, {"min_count": 0}, {"buffer": 0}):
        with pytest.raises(GCFCPError, match=str(next(iter(wrong)))):
            DigestBuilder(**wrong)


# --- values, and what is refused ----------------------------------------------------------------


def test_a_digest_is_a_value() -> None:
    means = np.array([1.0, 2.0])
    d = TDigest(means, np.array([1, 3]), 10)
    means[0] = 0
    assert d.means.tolist() == [1, 2]
    for array in (d.means, d.weights):
        assert array.dtype == np.float64
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    with pytest.raises(AttributeError):
        d.delta = 3  # type: ignore[misc]
    same = TDigest([1, 2], [1, 3], 10)
    assert (d == same, hash(d) == hash(same), d == TDigest([1, 2], [1, 3], 11)) == (
        True,
        True,
        False,
    )
    assert d != "digest"
    assert len(d) == 2
    assert repr(d) == "TDigest(2 clusters, total=4, delta=10, representative='mean', error=0)"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [50, 500])
def test_a_digest_shares_no_memory_with_its_values(size: int, kind: Any) -> None:
    given = np.random.default_rng(size).gamma(2.0, 1.0, size)
    given.sort()
    made = {
        "from_values": TDigest.from_values(given, representative=kind),
        "from_sorted": TDigest.from_sorted(given, representative=kind),
        "of_cells": TDigest.of_cells([given], representative=kind)[0],
    }
    before = {name: d.means.copy() for name, d in made.items()}
    given[:] = -1.0  # The caller's array is still the caller's.
    for name, d in made.items():
        assert np.array_equal(d.means, before[name]), name


def test_arguments_are_untouched() -> None:
    values = np.array([3.0, 1.0, 2.0])
    weights = np.array([1.0, 2.0, 3.0])
    TDigest.from_values(values)
    TDigest.from_values(values, weights=weights)
    assert (values.tolist(), weights.tolist()) == ([3, 1, 2], [1, 2, 3])


@pytest.mark.parametrize("values", [[1, 2], (1.0, 2.0), np.array([2, 1], np.int32), [True, False]])
def test_array_likes(values: Any) -> None:
    assert TDigest.from_values(values).total == 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"values": []}, r"values is empty: at least one number is needed"),
    ({"values": 3.0}, r"values has shape \(\) and must have one dimension: give one number"),
    ({"values": [[1.0]]}, r"values has shape \(1, 1\) and must have one dimension: give one"),
    ({"values": ["a"]}, r"values cannot be read as numbers"),
    ({"values": [1j]}, r"values cannot be read as numbers \(their type is complex128\)"),
    ({"values": [[1], [1, 2]]}, r"values cannot be read as numbers"),
    ({"values": [5, math.nan, 1, math.nan]}, r"2 of 4 values are NaN, the first in row 2: "),
    ({"values": [5, None, 1]}, r"1 of 3 values are NaN, the first in row 2: "),
    ({"values": np.ma.array([5, 6], mask=[0, 1])}, r"1 of 2 values are NaN, the first in row 2"),
    ({"values": [5, 1, -INF]}, r"1 of 3 values are -inf, the first in row 3: "),
    ({"values": [1, -INF], "weights": [1, 1]}, r"1 of 2 values are -inf, the first in row 2"),
    ({"values": [1, math.nan], "weights": [1, 1]}, r"1 of 2 values are NaN, the first in row 2"),
    (
        {"values": [1, 2], "weights": [1]},
        r"weights have shape \(1,\), but values have shape \(2,\)",
    ),
    ({"values": [1, 2], "weights": [1, 0]}, r"weights\[1\]=0.0 is not positive and finite"),
    ({"values": [1, 2], "weights": [-1, 1]}, r"weights\[0\]=-1.0 is not positive"),
    ({"values": [1, 2], "weights": [1, math.nan]}, r"weights\[1\]=nan is not positive"),
    ({"values": [1, 2], "weights": [1, INF]}, r"weights\[1\]=inf is not positive and finite"),
    ({"values": [1, 2], "weights": [1e308, 1e308]}, r"weights add up to more .* scale them down"),
    ({"values": [1], "delta": 1.99}, r"delta=1.99 is not a finite number of at least 2"),
    ({"values": [1], "delta": math.nan}, r"delta=nan is not a finite number of at least 2"),
    ({"values": [1], "delta": INF}, r"delta=inf is not a finite number of at least 2"),
    ({"values": [1], "representative": "max"}, r"representative='max' is neither"),
    ({"values": [1], "min_count": 0}, r"min_count=0 is not a finite number of at least 1"),
    ({"values": [1], "min_count": math.nan}, r"min_count=nan is not a finite"),
    ({"values": [1, 2], "min_count": 3}, r"min_count=3, but the values weigh only 2 in all: lower"),
    ({"values": [1, 2], "limit": 1.5}, r"a value of 2.0 is above limit=1.5: raise the limit"),
    ({"values": [1, 2], "limit": math.nan}, r"limit=nan is not a number"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(GCFCPError, match=message) as refusal:
        TDigest.from_values(**arguments)
    assert "\n" not in str(refusal.value)


@given(
    st.lists(scores, max_size=8),
    st.sampled_from([2, 10, 100, 400]),
    st.sampled_from(KINDS),
    st.sampled_from([1, 3]),
)
def test_many_cells_at_once_are_those_of_each_alone(
    cells: list[list[float]], delta: float, kind: Any, least: int
) -> None:
    ascending = [np.sort(cell) for cell in cells if len(cell) >= least]
    alone = [TDigest.from_sorted(cell, delta, kind, least) for cell in ascending]
    assert [bits(d) for d in TDigest.of_cells(ascending, delta, kind, least)] == [
        bits(d) for d in alone
    ]


def test_an_empty_cell_among_many_is_refused() -> None:
    with pytest.raises(GCFCPError, match="values is empty: at least one number is needed"):
        TDigest.of_cells([np.ones(3), np.ones(0)])


def test_from_sorted_refuses_disorder() -> None:
    with pytest.raises(GCFCPError, match="not in ascending order"):
        TDigest.from_sorted([2.0, 1.0])
    with pytest.raises(GCFCPError, match="1 of 2 values are NaN, the first in row 2"):
        TDigest.from_sorted([2.0, math.nan])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 1], [1, 1], 9), "strictly increasing"),
        (([1, math.nan], [1, 1], 9), "strictly increasing"),
        (([-INF, 1], [1, 1], 9), "strictly increasing"),
        (([1, 2], [1], 9), "one weight for each mean"),
        (([], [], 9), "one weight for each mean"),
        (([1, 2], [1, 0], 9), r"weights\[1\]=0.0 is not positive"),
        (([1, 2], [1, 1], 1), "delta=1 is not"),
        (([1, 2], [1, 1], 9, "low"), "representative='low'"),
        (([1, 2], [1, 1], 9, "mean", 3), "error_weight=3 is not between 0 and the total weight 2"),
        (([1, 2], [1, 1], 9, "mean", math.nan), "error_weight=nan is not between"),
    ],
)
def test_constructor_refuses(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(GCFCPError, match=message):
        TDigest(*arguments)


def test_queries_and_merges_refuse() -> None:
    d = TDigest.from_values([1.0, 2.0])
    for u in (-0.1, 1.1, [0.5, 2]):
        with pytest.raises(GCFCPError, match=r"is not in \[0, 1\]"):
            d.quantile(u)
    for ask in (d.cdf, d.quantile):
        with pytest.raises(GCFCPError, match="has 1 NaN"):
            ask([0.5, math.nan])
    other = TDigest.from_values([1.0], representative="upper")
    for together in (d.merge, d.pool):
        with pytest.raises(GCFCPError, match="representative='mean' and representative='upper'"):
            together(other)
    heavy = TDigest.from_values([1.0], weights=[1.5e308])
    with pytest.raises(GCFCPError, match="add up to more"):
        heavy.merge(heavy)
    with pytest.raises(GCFCPError, match="delta=1 is not"):
        d.merge(delta=1)


@pytest.mark.parametrize("seed", range(12))
def test_the_shortcut_for_no_compression_is_the_walk(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 60))
    values = rng.normal(size=n).round(1 if seed % 2 else 9)
    values[: seed % 3] = np.inf
    weights = None if seed % 4 else rng.random(n) + 0.1
    deltas = [1.5 * n + 2, 3.2 * n, 10.0 * n]
    quick = [TDigest.from_values(values, delta, weights) for delta in deltas]
    monkeypatch.setattr("gcfcp.digest.clusters._runs_apart", lambda *_: None)
    assert quick == [TDigest.from_values(values, delta, weights) for delta in deltas]


@pytest.mark.parametrize("delta", [3.7, 11.6, 25.8, 251.7])
@pytest.mark.parametrize("n", [97, 1000, 30_000])
def test_a_delta_between_whole_numbers(delta: float, n: int) -> None:
    """Its last cluster spans less than a unit, and must still reach the end in one step."""
    values = draw("normal", n)
    assert TDigest.from_values(values, delta).weights.tolist() == greedy_sizes(values, delta)


@pytest.mark.parametrize("scale", [2.0**-30, 2.0**-8, 2.0**12])
@pytest.mark.parametrize("delta", [10, 300, 5000])
def test_the_unit_of_weights_makes_no_difference(scale: float, delta: float) -> None:
    rng = np.random.default_rng(3)
    values, weights = rng.random(200), rng.integers(1, 9, 200) / 4
    one = TDigest.from_values(values, delta, weights)
    other = TDigest.from_values(values, delta, scale * weights)
    assert one.means.tolist() == other.means.tolist()
    assert (scale * one.weights).tolist() == other.weights.tolist()


def test_the_usual_delta_is_250() -> None:
    for make in (TDigest.from_values, TDigest.from_sorted, DigestBuilder, gcfcp.summarize):
        assert inspect.signature(make).parameters["delta"].default == 250
    assert TDigest.from_values([1.0]).delta == TDigest.from_sorted([1.0]).delta == 250


def test_two_light_values_fit_into_one_cluster_beside_heavy_ones() -> None:
    """arcsin(sqrt(0.01 / 1.5)) is 0.0817, which is less than pi / 34.9."""
    made = TDigest.from_values([1.0, 2.0, 3.0, 4.0], 34.9, [0.005, 0.005, 0.745, 0.745])
    assert made.means.tolist() == [1.5, 3.0, 4.0]
    finer = TDigest.from_values([1.0, 2.0, 3.0, 4.0], 39, [0.005, 0.005, 0.745, 0.745])
    assert finer.means.tolist() == [1.0, 2.0, 3.0, 4.0]
