"""Confidence bounds on coverage, proved for any mixture of clients.

The interval, at the level 1 - tail on each side:

- One client: Clopper-Pearson, exact.
- Several: the records are independent but not alike, and no single binomial describes a weighted
  ratio of theirs. We use a betting bound. With v_k = pi_k / n_k, r_k = v_k / max v, A_k records of
  G covered and B_k missed, and any 0 < f <= 1 fixed in advance,

      E_f(c) = prod_k (1 + f r_k (1 - c) / c)^A_k (1 - f r_k)^B_k

  has mean prod_k (1 + f r_k [(1 - c) p_k - c q_k] / c)^n_k <= exp(f sum_k n_k r_k [...] / c) = 1
  if c is the true coverage (p_k, q_k being the chances that a record of k is in G and covered, or
  missed): the sum is proportional to sum_k pi_k [(1 - c) p_k - c q_k] = 0. So is the mean over a
  fixed grid of f, and by Markov's inequality E(c) >= 1 / tail happens with probability at most
  tail. E falls in c, so {c : E(c) < 1 / tail} is [low, 1]. Proved, for any mixture, any number of
  clients, any shares of the group; the price is an interval 1.4 to 1.7 times as wide as
  Clopper-Pearson would give if all records came from one client. The upper end is the lower end
  of the missed.
"""

from __future__ import annotations

import math

import numpy as np

from gcfcp.arrays import Floats, Ints

_BLOCK = 1 << 18  # numbers in the arrays of a bisection


def lower_bound(hits: Ints, misses: Ints, v: Floats, n: Ints, tail: float) -> Floats:
    """A lower confidence bound, at level 1 - tail, on the mixture's share of hits in each cell.

    hits, misses: (K, c); v: (K,) weight of a record of each client, pi_k / n_k; n: (K,) records.
    Exact Clopper-Pearson for one client, the betting bound of the module for several.
    """
    if len(v) == 1:
        from scipy.special import betaincinv

        exact: Floats = np.where(
            hits[0] > 0, betaincinv(np.maximum(hits[0], 1), misses[0] + 1.0, tail), 0.0
        )
        return exact
    return _betting_bound(hits.T, misses.T, v / v.max(), int(n.sum()), tail)


def _betting_bound(hits: Ints, misses: Ints, r: Floats, n: int, tail: float) -> Floats:
    """The largest c, rounded down, with E(c) >= 1 / tail; hits and misses are (c, K)."""
    # The best stake is about 3 / sqrt(N) for a group of N records, so those from 1 to 1 / sqrt(n)
    # serve groups of every size; their number is the price, log(len) / log(1 / tail).
    stakes = 0.5 ** np.arange(1 + math.ceil(math.log2(n) / 2))
    fr = stakes[:, None] * r  # (F, K)
    needed = math.log(len(stakes) / tail)
    step = max(1, _BLOCK // fr.size)
    blocks = [slice(i, i + step) for i in range(0, len(hits), step)]
    return np.concatenate([np.empty(0), *(_bisect(hits[b], misses[b], fr, needed) for b in blocks)])


def _bisect(hits: Ints, misses: Ints, fr: Floats, needed: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):  # a stake of 1 is lost with one miss
        each = np.where(misses[:, None, :] > 0, misses[:, None, :] * np.log1p(-fr), 0.0)
    lost = each.sum(axis=2)  # (c, F)
    low, high = np.zeros(len(hits)), np.ones(len(hits))
    for _ in range(60):
        middle = (low + high) / 2
        odds = (1 - middle) / middle
        won = np.einsum("ck,cfk->cf", hits, np.log1p(odds[:, None, None] * fr))
        rejected = np.logaddexp.reduce(won + lost, axis=1) >= needed
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return low
