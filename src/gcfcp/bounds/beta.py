"""The exact (Clopper-Pearson) lower bound on the chance of a hit, with NumPy alone.

Among independent records, `hits` were hits and `misses` were not. The lower bound at the level
1 - tail is the chance c at which this many hits, or more, would be seen with probability `tail`:

    P(c) = P(Binomial(hits + misses, c) >= hits) = I_c(hits, misses + 1) = tail,

where I is the regularised incomplete beta function. With 9 hits and 1 miss, tail = 0.025 gives
c = 0.555. scipy inverts I as well, but scipy is 113 MB and this would be our only use of it.

P(c) is the probability b of exactly `hits` hits times a sum of positive terms,

    P(c) = b S,   S = 1 + r_0 + r_0 r_1 + ...,   r_j = (misses - j) / (hits + 1 + j) * c / (1 - c),

so nothing cancels in S, and Loader's form of b keeps its logarithm free of large numbers that
cancel. As a function of log c, log P is concave and has the slope hits / S. Each step of Newton's
method on it therefore ends below the root, or on it, wherever it started.

Guarantee: the result is never above the exact bound, so the confidence statement stays true after
rounding. Rounding moves the root by about 1e-14 of its value at most (the largest error that we
have measured with 40 digits is 1.4e-14), and the result is lowered by 1e-13 of its value,
`ALLOWANCE`. The factors r_j fall as j grows. In cells with more than 10^10 records, several
factors in a row are replaced by the first of them. This makes P larger, and lowers the result by
less than a thousandth of its standard deviation.

Cost: about ten sums S for each pair of counts. A sum has about 9 sqrt(n c (1 - c)) terms, where
n = hits + misses, and at most 600,000, whatever counts a file claims: 1 ms for a cell of 1,000
records, 50 ms for one of 10^9.

Reference: C. Loader, Fast and accurate computation of binomial probabilities (2000).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from gcfcp.arrays import Floats, Ints

ALLOWANCE = 1e-13  # The result is lowered by this share of itself, to stay below the exact bound.

_STEPS = 60  # About ten steps are enough. With fewer the result is below the root, which is safe.
_CLOSE = 2.0**-51  # A step of log c that is smaller than this is rounding.
_LONGEST_STEP = 50.0  # The largest change of log c in a step, so that c stays above 0.
_LARGEST_BELOW_ONE = 1 - 2.0**-53
_EXACT_DEVIATION = 2.0**15  # Up to twice this standard deviation, every term is summed by itself.
_CELLS = 512  # The number of cells that are solved together, in arrays that fit into the cache.
_BLOCK = 1 << 16  # The largest number of terms that are held in memory at once.
_FEWEST_TERMS = 32  # The number of terms that are summed before we ask whether that is enough.


def clopper_pearson(hits: Ints, misses: Ints, tail: float) -> Floats:
    """The lower bound of every cell, at the level 1 - tail; 0 where there is no hit.

    hits, misses: whole numbers of the same shape, from 0. tail: from 1e-30 to 0.5.
    """
    # Small cells often have the same counts, so each pair of counts is solved once.
    pairs, place = np.unique(np.stack([hits, misses]), axis=1, return_inverse=True)
    bound = np.zeros(pairs.shape[1])
    some = np.flatnonzero(pairs[0])
    with np.errstate(under="ignore"):
        for cells in np.split(some, range(_CELLS, len(some), _CELLS)):
            h, m = pairs[:, cells].astype(np.float64)
            bound[cells] = _root(h, m, math.log(tail)) * (1 - ALLOWANCE)
    found: Floats = bound[place.reshape(hits.shape)]
    return found


@lru_cache(maxsize=4096)
def lower_bound(hits: int, misses: int, tail: float) -> float:
    """The same bound of one cell. It is kept, because groups of equal sizes ask for the same."""
    return float(clopper_pearson(np.array([hits]), np.array([misses]), tail)[0])


def _root(h: Floats, m: Floats, log_tail: float) -> Floats:
    """The c with log P(c) = log_tail, by Newton's method in log c."""
    # We start at the mean of the beta distribution whose quantile we look for.
    c = np.minimum(h / (h + m + 1), _LARGEST_BELOW_ONE)
    stride = np.maximum(1.0, np.floor(np.sqrt(h * (1 - c)) / _EXACT_DEVIATION))
    for _ in range(_STEPS):
        terms = _sum_of_terms(h, m, c, stride)
        excess = _log_probability(h, m, c) + np.log(terms) - log_tail
        step = np.clip(-excess * terms / h, -_LONGEST_STEP, _LONGEST_STEP)
        c = np.minimum(c * np.exp(step), _LARGEST_BELOW_ONE)
        if (np.abs(step) <= _CLOSE).all():
            break
    return c


def _sum_of_terms(h: Floats, m: Floats, c: Floats, stride: Floats) -> Floats:
    """S of the module, or a little more than S where `stride` is above 1.

    Terms are taken in runs of `stride`. Within a run the first factor stands for all of them, so
    that the run is a geometric series.
    """
    odds = c / (1 - c)
    total, term = np.ones_like(c), np.ones_like(c)  # The sum so far, and its last term.
    left = np.arange(len(c))  # The cells whose sum is not finished.
    run, width = 0, _FEWEST_TERMS
    while len(left):
        length = stride[left, None]
        j = np.arange(run, run + width) * length
        factor = np.maximum(m[left, None] - j, 0) * odds[left, None] / (h[left, None] + 1 + j)
        if (length == 1).all():
            runs = last = term[left, None] * np.cumprod(factor, axis=1)
        else:
            last = term[left, None] * np.cumprod(factor**length, axis=1)
            before = np.concatenate([term[left, None], last[:, :-1]], axis=1)
            runs = before * _geometric_sum(factor, length)
        total[left] += runs.sum(axis=1)
        term[left] = last[:, -1]
        # All later factors are smaller, so the rest is below a geometric series.
        q = factor[:, -1]
        left = left[(q >= 1) | (term[left] * q > 2.0**-55 * (1 - q) * total[left])]
        run += width
        width = max(_FEWEST_TERMS, min(2 * width, _BLOCK // max(1, len(left))))
    return total


def _geometric_sum(q: Floats, length: Floats) -> Floats:
    """q + q^2 + ... + q^length."""
    ones = np.broadcast_to(length, q.shape).copy()  # The sum where q is 1.
    return np.divide(q * (1 - q**length), 1 - q, out=ones, where=q != 1)


def _log_probability(h: Floats, m: Floats, c: Floats) -> Floats:
    """The logarithm of the probability of exactly h hits among h + m, in Loader's form."""
    n = h + m
    # Where there is no miss, 1 stands in for 0, and the result is replaced below.
    some = np.maximum(m, 1)
    mixed = (
        _stirling_error(n)
        - _stirling_error(h)
        - _stirling_error(some)
        - _deviance(h, n * c)
        - _deviance(some, n * (1 - c))
        - 0.5 * np.log(2 * math.pi * h * (some / n))
    )
    found: Floats = np.where(m > 0, mixed, n * np.log(c))
    return found


def _deviance(x: Floats, mean: Floats) -> Floats:
    """x log(x / mean) + mean - x, also where x is close to the mean."""
    away = x - mean
    near = np.abs(away) < 0.5 * mean
    log = np.where(near, np.log1p(np.where(near, away / mean, 0.0)), np.log(x / mean))
    deviance: Floats = x * log - away
    return deviance


def _stirling_error(x: Floats) -> Floats:
    """log(x!) less Stirling's formula log(sqrt(2 pi x) (x / e)^x), for x >= 1."""
    y = 1 / np.maximum(x, len(_SMALL))
    z = y * y
    series = y * (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z / 1188))))
    table = _SMALL[np.minimum(x, len(_SMALL) - 1).astype(np.int64)]
    error: Floats = np.where(x < len(_SMALL), table, series)
    return error


# From 16 on, the series is exact to the last bit. Below it, the factorials are small numbers.
_SMALL = np.array(
    [0.0]
    + [
        math.log(math.factorial(k) * math.exp(k) / (k**k * math.sqrt(2 * math.pi * k)))
        for k in range(1, 16)
    ]
)
