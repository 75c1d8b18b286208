"""From summaries to one problem: weights, counts by group, and the coreset.

Client k's records weigh lambda_k = pi_k / (n_k + 1) each and the test point weighs
w_test = sum_k lambda_k. Weights are rational numbers, brought to whole ones where a common
denominator exists that floats can hold; then every comparison of weights in the solver is exact.

An aggregator's summary stands for its members with the mixture
proportional among them, pi_k ~ n_k + 1, which makes all their records weigh the same:
lambda = pi_R / (n_R + K_R), and the region adds K_R lambda to w_test.

Suppressed records (see `summary.client`) are known by an upper bound H_G on their weight in each
group; neither their scores nor their atoms are known. They count as scores of +inf:

- In a group on its own (rule "max", disjoint groups) as weight H_G at +inf. The threshold asks for
  at least the weight that it would ask for if they were known, from fewer scores, so it is no
  lower: the proof for disjoint groups holds wherever they lie.
- In the simultaneous problem weight e_A >= 0 is put at +inf into atoms A so that every group has
  e_G = sum_{A in G} e_A >= H_G. Of a solution the first-order condition says that the scores
  covered in G weigh at least (1-alpha)(W_G + e_G + w_test). While theta_A is finite in all atoms
  that carry e, these are scores of known records, so what is covered is at least (1-alpha) of
  everything, wherever the suppressed records lie and even if none of them is covered. Where
  theta_A is infinite in an atom that carries e, e_A was counted as covered and this fails for the
  groups of A: all rows of these groups then get +inf, and everything in them is covered.
- A group that H_G makes infinite on its own has thresholds of +inf in any case and needs no e.
  Its atoms carry nothing for other groups either, whose thresholds would be infinite with them.

| here           | paper                                       |
|----------------|---------------------------------------------|
| `shares`       | pi_k                                        |
| `Weights.rate` | lambda_k = pi_k / (n_k + 1)                 |
| `Weights.test` | w_test                                      |
| `coreset`      | D-tilde, the coreset (eq. 12)               |

Cost: one sort of the centroids.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.calibration import mixture as mixtures
from gcfcp.calibration.clients import in_order
from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.pooling import Pool, pool_of, recompressed
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.solver import Coreset, combined
from gcfcp.summary import ClientSummary

_ROUNDING = 2.0**-44  # far above the rounding of a sum of weights, far below a record


def shares_of(summaries: Sequence[ClientSummary], mixture: Mixture) -> list[Fraction]:
    """pi_k, exactly, in the order of the summaries. An aggregate counts for its members."""
    parts = [mixtures.Part(s.client, len(s.members), s.n + len(s.members)) for s in summaries]
    return mixtures.shares(parts, mixture)


@dataclass(frozen=True)
class Weights:
    """lambda_k and w_test in one unit: whole numbers if a common denominator is within reach."""

    rate: Floats  # (K,)
    test: float
    unit: float  # of these in one of pi

    @classmethod
    def of(
        cls, summaries: Sequence[ClientSummary], shares: Sequence[Fraction], alpha: Fraction
    ) -> Weights:
        rates = [p / (s.n + len(s.members)) for p, s in zip(shares, summaries, strict=True)]
        members = [len(s.members) for s in summaries]
        denominator = 1
        for r in rates:
            denominator = math.lcm(denominator, r.denominator)
            if denominator * alpha.denominator > 2**50:  # beyond it floats round
                break
        else:
            whole = [r.numerator * (denominator // r.denominator) for r in rates]
            common = math.gcd(*whole)
            whole = [w // common for w in whole]
            test = sum(w * m for w, m in zip(whole, members, strict=True))
            return cls(np.array(whole, dtype=np.float64), float(test), denominator / common)
        unit = 1.0 / float(max(rates))
        rate = np.array([float(r) * unit for r in rates])
        return cls(rate, math.fsum(rate * members), unit)


@dataclass(frozen=True)
class Tally:
    """Records of each client in each group, (K, G)."""

    described: Ints
    infinite: Ints  # of these, with a score of +inf
    suppressed: Ints  # besides; an upper bound

    @classmethod
    def of(cls, summaries: Sequence[ClientSummary]) -> Tally:
        return cls(
            np.array([s.atom_counts @ s.membership for s in summaries]),
            np.array([_at_infinity(s) @ s.membership for s in summaries]),
            np.array([s.suppressed_groups for s in summaries], dtype=np.int64),
        )

    def weights(self, rate: Floats) -> Floats:
        """W_G, suppressed records included."""
        total: Floats = rate @ (self.described + self.suppressed)
        return total

    def infinite_weights(self, rate: Floats) -> Floats:
        """The part of W_G at +inf, suppressed records included."""
        total: Floats = rate @ (self.infinite + self.suppressed)
        return total

    def least_alpha(self, weights: Weights) -> Floats:
        """The smallest alpha at which each group on its own has a finite threshold.

        It is finite iff (1 - alpha)(W_G + w_test) <= W_G less its weight at +inf.
        """
        W, infinite = self.weights(weights.rate), self.infinite_weights(weights.rate)
        least: Floats = (infinite + weights.test) / (W + weights.test)
        return least

    def finite_alone(self, weights: Weights, alpha: Fraction) -> Bools:
        finite: Bools = self.least_alpha(weights) <= float(alpha) * (1 + _ROUNDING)
        return finite


def _at_infinity(s: ClientSummary) -> Ints:
    """Records of each atom with a score of +inf: its last centroid, if it is that."""
    last = s.start[1:] - 1
    return np.where(np.isinf(s.values[last]), s.counts[last], 0)


def carried(membership: Bools, needed: Floats) -> Floats:
    """Weight to put at +inf into each atom so that every group gets at least what it `needed`.

    Greedily, into the atom that serves most groups still in need (of equal ones, that with the
    fewest groups): the total is then mostly the least possible, and less weight means smaller
    sets. A group without atoms needs nothing, its thresholds are infinite.
    """
    extra = np.zeros(len(membership))
    left = np.where(membership.any(axis=0), needed, 0.0)
    while (left > 0).any():
        served = (membership & (left > 0)).sum(axis=1)
        best = int(np.lexsort((membership.sum(axis=1), -served))[0])
        amount = float(left[membership[best] & (left > 0)].min())
        extra[best] += amount
        left = np.where(membership[best], np.maximum(left - amount, 0.0), left)
    return extra


@dataclass(frozen=True)
class Problem:
    """A calibration before it is solved: everything `plan` and `calibrate` have in common."""

    summaries: tuple[ClientSummary, ...]
    alpha: Fraction
    shares: list[Fraction]
    weights: Weights
    pool: Pool
    tally: Tally
    coreset: Coreset
    carriers: Bools | None  # atoms of the coreset with weight at +inf for suppressed records
    hopeless: Bools | None  # groups that suppressed records make infinite on their own
    slack: Floats  # (a,): certified error of each atom, in weight
    delta: float | None  # of the recompression

    @property
    def groups(self) -> Groups:
        return self.summaries[0].groups


def problem_of(
    summaries: Iterable[ClientSummary],
    alpha: float | Fraction,
    mixture: Mixture,
    merge: str,
    delta: float | None,
) -> Problem:
    """The problem of these summaries for a target; the arguments are those of `calibrate`."""
    exact_alpha = checks.alpha(alpha)
    checks.choice("merge", merge, "pool", "recompress")
    if merge == "pool" and delta is not None:
        raise GCFCPError(f"delta={delta} is of a recompression: give merge='recompress' with it")
    ordered = in_order(summaries)
    shares = shares_of(ordered, mixture)
    weights = Weights.of(ordered, shares, exact_alpha)
    pool, tally = pool_of(ordered), Tally.of(ordered)
    slack = pool.by_atom(pool.cell_errors, weights.rate)
    atom, values, masses = _weighted(pool, weights)
    if merge == "recompress":
        delta = max(s.delta for s in ordered) if delta is None else checks.delta(delta)
        atom, values, masses, added = recompressed(
            atom, values, masses, ordered[0].representative, delta
        )
        slack[np.unique(atom)] += added
    alive = np.flatnonzero(np.bincount(atom))
    carriers = hopeless = None
    if tally.suppressed.any():
        hopeless = tally.suppressed.any(axis=0) & ~tally.finite_alone(weights, exact_alpha)
        extra = _extra_weight(pool, alive, hopeless, weights.rate @ tally.suppressed)
        carriers = extra[alive] > 0
        atom, values, masses = _with_infinite(atom, values, masses, extra)
    atom, values, masses = combined(atom, values, masses)
    start = np.append(np.searchsorted(atom, alive), len(atom))
    coreset = Coreset(pool.membership[alive], start, values, masses, weights.test)
    return Problem(
        summaries=ordered,
        alpha=exact_alpha,
        shares=shares,
        weights=weights,
        pool=pool,
        tally=tally,
        coreset=coreset,
        carriers=carriers,
        hopeless=hopeless,
        slack=slack,
        delta=delta,
    )


def _weighted(pool: Pool, weights: Weights) -> tuple[Ints, Floats, Floats]:
    """Atom, value and weight of every centroid. A client of weight zero has no say."""
    masses = weights.rate[pool.owner] * pool.counts
    if weights.rate.all():
        return pool.atom, pool.values, masses
    heavy = masses > 0
    if not heavy.any():
        raise GCFCPError("every client that describes an atom has weight 0 in the mixture")
    return pool.atom[heavy], pool.values[heavy], masses[heavy]


def _extra_weight(pool: Pool, alive: Ints, hopeless: Bools, needed: Floats) -> Floats:
    """The weight e_A that each atom carries at +inf for suppressed records; see the module.

    Atoms of hopeless groups carry nothing.
    """
    extra = np.zeros(len(pool.membership))
    free = alive[~(pool.membership[alive] & hopeless).any(axis=1)]
    extra[free] = carried(pool.membership[free], needed)
    return extra


def _with_infinite(
    atom: Ints, values: Floats, masses: Floats, extra: Floats
) -> tuple[Ints, Floats, Floats]:
    """The same scores, with the extra weight of each atom as one more score of +inf."""
    added_to = np.flatnonzero(extra)
    ends = np.searchsorted(atom, added_to, side="right")
    return (
        np.insert(atom, ends, added_to),
        np.insert(values, ends, np.inf),
        np.insert(masses, ends, extra[added_to]),
    )
