"""The exact bound of one client: against scipy, exact sums in fractions, and closed forms."""

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc, betaincinv

from gcfcp.bounds.beta import ALLOWANCE, clopper_pearson, lower_bound

# Counts of every size are equally likely, not only the large ones.
counts = st.one_of(
    st.integers(0, 9), *(st.integers(10**k, 10 ** (k + 1)) for k in range(1, 9)), st.just(10**9)
)
tails = st.one_of(st.floats(-12, math.log10(0.5)).map(lambda x: min(10**x, 0.5)), st.just(0.5))

# Two bounds of nearly the same counts may differ by rounding, which is far below the allowance.
ROUNDING = ALLOWANCE / 2


def bound(hits: int, misses: int, tail: float) -> float:
    with np.errstate(all="raise"):
        return lower_bound(hits, misses, tail)


def probability_of_so_many(hits: int, misses: int, c: Fraction) -> Fraction:
    """P(Binomial(n, c) >= hits), exact."""
    n = hits + misses
    return sum(
        (math.comb(n, k) * c**k * (1 - c) ** (n - k) for k in range(hits, n + 1)), Fraction(0)
    )


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(counts.filter(bool), counts, tails)
def test_agrees_with_scipy(hits, misses, tail):
    ours, theirs = bound(hits, misses, tail), float(betaincinv(hits, misses + 1, tail))
    if ours != pytest.approx(theirs, rel=1e-11):
        # scipy's inverse stops early for some large counts, as its own function of c shows.
        wrong = [abs(float(betainc(hits, misses + 1, c)) / tail - 1) for c in (ours, theirs)]
        assert wrong[0] < 0.1 * wrong[1]
    assert betainc(hits, misses + 1, ours) <= tail * (1 + 1e-9)
    assert betainc(hits, misses + 1, min(1.0, ours * (1 + 1e-12))) >= tail * (1 - 1e-9)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.integers(0, 40), tails)
def test_is_below_the_exact_bound_and_close_to_it(hits, misses, tail):
    c = Fraction(bound(hits, misses, tail))
    assert probability_of_so_many(hits, misses, c) <= Fraction(tail)
    above = c * (1 + Fraction(2 * ALLOWANCE))
    assert probability_of_so_many(hits, misses, above) >= Fraction(tail)


@settings(max_examples=100, deadline=None)
@given(counts.filter(bool), tails)
def test_closed_forms(count, tail):
    assert bound(0, count, tail) == 0
    all_hits = math.exp(math.log(tail) / count)
    assert all_hits * (1 - 2 * ALLOWANCE) <= bound(count, 0, tail) <= all_hits
    one_hit = -math.expm1(math.log1p(-tail) / count)
    assert one_hit * (1 - 2 * ALLOWANCE) <= bound(1, count - 1, tail) <= one_hit


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(counts, counts, tails, st.integers(1, 10**6), st.floats(1.001, 100))
def test_is_monotone(hits, misses, tail, more, factor):
    here = bound(hits, misses, tail)
    assert bound(hits + more, misses, tail) >= here * (1 - ROUNDING)
    assert bound(hits, misses + more, tail) <= here * (1 + ROUNDING)
    assert bound(hits, misses, min(0.5, factor * tail)) >= here * (1 - ROUNDING)


@pytest.mark.slow
def test_many_cells_are_the_cells_one_by_one():
    rng = np.random.default_rng(0)
    hits, misses = rng.integers(0, 10 ** rng.integers(1, 6, (2, 1500)))
    together = clopper_pearson(hits, misses, 0.01)
    alone = [bound(h, m, 0.01) for h, m in zip(hits.tolist(), misses.tolist(), strict=True)]
    np.testing.assert_allclose(together, alone, rtol=ROUNDING)
    assert clopper_pearson(hits[:0], misses[:0], 0.01).shape == (0,)


@pytest.mark.few(30)
@pytest.mark.parametrize("tail", [1e-30, 1e-12, 0.025, 0.5])
@pytest.mark.parametrize("hits", [1, 7, 10**6, 2**40, 2**62])
@pytest.mark.parametrize("misses", [0, 1, 10**6, 2**40, 2**62])
def test_any_counts_that_a_file_may_hold(hits, misses, tail):
    """The sum has few terms whatever the counts are, and the bound errs to the safe side."""
    found, share = bound(hits, misses, tail), hits / (hits + misses)
    assert 0 < found < 1
    assert found <= share
    if min(hits, misses) >= 2**40:  # So many records follow the normal distribution.
        deviation = math.sqrt(share * (1 - share) / (hits + misses))
        z = -NormalDist().inv_cdf(tail)
        near = 0.002 * deviation + 2 * ALLOWANCE
        assert found == pytest.approx(share - z * deviation, abs=near)
