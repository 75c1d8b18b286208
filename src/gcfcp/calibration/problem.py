"""From summaries to one problem: the weight of each record, the counts by group, and the coreset.

Each record of client k weighs lambda_k = pi_k / (n_k + 1) or omega_k = pi_k / n_k, and the test
point has a weight of its own for each group or atom; `correction` says which and why. These weights
are rational numbers. They are scaled to whole numbers if floats can hold their common denominator
exactly; then every comparison of weights in the solver is exact.

An aggregator's summary stands for its members, with a mixture among them in proportion to n_k. All
of its records then weigh the same: with n_R records and the share pi_R of the mixture, each weighs
pi_R / n_R. (With the paper's correction the mixture among them is in proportion to n_k + 1, each
record weighs pi_R / (n_R + K_R), and K_R members add K_R times that to the test point.)

What suppressed records ask for. A client with a `min_count` does not describe small atoms, nor some
records of others (see `summary.withheld`). Of these records the server knows only an upper bound
H_G on their weight in each group G. It knows neither their scores nor their atoms, and counts them
as scores of +inf.

Let W_G be the weight of the described records in G, and w_test that of the test point in a row. The
requirement for a row with a finite threshold is that in each of its groups G the described records
that are covered weigh at least (1 - alpha)(W_G + H_G + w_test). They are then at least 1 - alpha of
all records of G and the test point, wherever the suppressed records lie, and even if none of them
is covered. (A record counts as covered if its score is at most its theta in the solution for that
row, or if its threshold is +inf in any case.)

One group on its own (rule "max"): weight H_G is put at +inf. The threshold is
then the smallest t that satisfies the requirement as it stands. If the suppressed records were
known, no more weight would be asked for and no fewer scores would count as covered, so the
threshold could only be lower. Theorem 1 therefore holds wherever they lie.

All groups together (rule "simultaneous"):

1. A group is called hopeless if weight H_G at +inf leaves it without a finite threshold on its own.
   Every row of a hopeless group has the threshold +inf.
2. Weight e_A >= 0 is put at +inf into atoms A that are in no hopeless group, so that
   e_G = sum_{A in G} e_A >= H_G in every group G that has such an atom. These atoms are the
   carriers. (An atom of a hopeless group is no carrier, because its threshold would mostly be
   infinite in the solution, and by point 4 the rows of its other groups would then be infinite
   as well.)
3. The first-order condition of the solution for a test row says, for every group G of that row,
   that the scores at or below theta weigh at least (1 - alpha)(W_G + e_G + w_test). If theta_A is
   not +inf for any carrier A in G, then none of the weight e_G is among these scores. All of them
   are scores of described records, and the requirement holds.
4. If theta_A is +inf for a carrier A in G, its weight e_A was counted as covered, and the
   requirement may fail in G. The test row is a row of G, and its threshold is set to +inf.
5. One kind of group is left: H_G > 0 and G is not hopeless, but each of its described atoms is in
   some hopeless group, so that no atom can carry weight for G. All described records of G then have
   the threshold +inf and are covered. They weigh W_G. Because G is not hopeless, it has a finite
   threshold on its own, which means that W_G is at least (1 - alpha)(W_G + H_G + w_test), even
   without its scores of +inf.

For overlapping groups the requirement is what the argument of the paper rests on, and it is not by
itself a proof of coverage; `guarantees` says what is proved.

| here           | paper                                       |
|----------------|---------------------------------------------|
| `shares`       | pi_k                                        |
| `Weights.rate` | lambda_k = pi_k / (n_k + 1), or pi_k / n_k  |
| `Problem.test` | w_test, for each group                      |
| `coreset`      | D-tilde, the coreset (eq. 12)               |

Cost: one sort of the centroids.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.calibration import mixture as mixtures
from gcfcp.calibration.admission import Admission, LargestShare, largest_shares
from gcfcp.calibration.clients import in_order, refuse_shape_parts, shape_of, twins
from gcfcp.calibration.confidence import exact_groups, finite_with_confidence
from gcfcp.calibration.correction import (
    CORRECTIONS,
    Charged,
    Correction,
    Sizes,
    charged_weights,
    chosen,
    correction_of,
)
from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.noisy import (
    NoiseCharge,
    charge_for,
    has_noise,
    noisy_levels,
    refuse_for_noise,
)
from gcfcp.calibration.pooling import Pool, largest_delta, pool_of, recompressed
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, imbalances
from gcfcp.shape import Shape, as_shape
from gcfcp.solver import Coreset, combined
from gcfcp.summary import ClientSummary
from gcfcp.thresholds import Simultaneous

MERGES = ("pool", "recompress")
"""What `calibrate` can do with the clients' centroids: keep all of them, or compress them again."""

RULES = ("simultaneous", "max")
"""The rules by which `calibrate` can give an atom its threshold; see `gcfcp.thresholds.rules`."""

# Sums of weights carry rounding errors far below this relative size, and the weight of one record
# lies far above it.
_ROUNDING = 2.0**-44


def shares_of(
    summaries: Sequence[ClientSummary], mixture: Mixture, admission: Admission | None = None
) -> list[Fraction]:
    """pi_k of each summary as an exact fraction, in the order of the summaries.

    With the mixture "uniform" an aggregate counts as so many clients as the server says.
    """
    sites = [1] * len(summaries)
    if mixture == "uniform":
        known = admission or Admission()
        sites = [known.sites(s, "mixture 'uniform'") for s in summaries]
    parts = [mixtures.Part(s.client, k, s.n) for s, k in zip(summaries, sites, strict=True)]
    return mixtures.shares(parts, mixture)


@dataclass(frozen=True)
class Weights:
    """The weights of a record of each client in a common unit, whole numbers if that is possible.

    For example, two clients of 9 and 19 records in a uniform mixture, both in T, have the weights
    1/20 and 1/40. They are held as rate = (2, 1) with unit = 40.
    """

    rate: Floats  # (K,): The weight of one record of each client.
    unit: float  # How many of these weight units make up a mixture weight of 1.

    @classmethod
    def of(cls, rates: Sequence[Fraction], alpha: Fraction, *, divided: bool = False) -> Weights:
        """The weights that are in the ratio of these rates.

        They are whole numbers if the common denominator of all rates, times that of alpha, is at
        most 2**50. Otherwise they are floats, and the largest is 1.

        - `divided`: Whether weights divided by 1 - alpha should be whole too, as theorem 1 needs
          it. All weights are then multiples of the numerator of 1 - alpha.
        """
        scale = (1 - alpha).numerator if divided else 1
        denominator = 1
        for r in rates:
            denominator = math.lcm(denominator, r.denominator)
            if denominator * scale * alpha.denominator > 2**50:  # Sums would be rounded.
                unit = 1.0 / float(max(rates))
                return cls(np.array([float(r) * unit for r in rates]), unit)
        numbers = [r.numerator * (denominator // r.denominator) for r in rates]
        common = math.gcd(*numbers)
        whole = [w // common * scale for w in numbers]
        return cls(np.array(whole, dtype=np.float64), denominator * scale / common)


@dataclass(frozen=True)
class Tally:
    """How many records each client has in each group. All arrays have the shape (K, G)."""

    described: Ints  # Records that the summary describes.
    infinite: Ints  # How many of the described records have a score of +inf.
    suppressed: Ints  # An upper bound on the records that the summary does not describe.
    strangers: Ints  # An upper bound on the described records that are not in the group.
    by_group: bool = False  # Whether the summaries are by group, where the bounds do not grow.

    @classmethod
    def of(cls, summaries: Sequence[ClientSummary]) -> Tally:
        """The counts of these summaries, in their order."""
        return cls(
            np.array([s.atom_counts @ s.membership for s in summaries]),
            np.array([_at_infinity(s) @ s.membership for s in summaries]),
            np.array([s.suppressed_groups for s in summaries], dtype=np.int64),
            np.array([s.strangers or (0,) * len(s.groups) for s in summaries], dtype=np.int64),
            summaries[0].by == "group",
        )

    def strange_weights(self, rate: Floats, alpha: Fraction) -> Floats:
        """How much the test point weighs more in each group because of strangers, float (G,).

        A stranger that is covered adds alpha to the sum Z of theorem 1. For S strangers the sum
        must exceed (1 - alpha) w_test by alpha S, as it does if w_test is alpha / (1 - alpha) S
        more.
        """
        strange: Floats = rate @ self.strangers * float(alpha / (1 - alpha))
        return strange

    def times(self, factors: Floats | float) -> Tally:
        """The counts if all clients, or each of them, had so many times as many records.

        By atom the suppressed records grow as well. By group the bounds depend on `min_count` and
        mostly not on the number of records.
        """
        column = np.reshape(factors, (-1, 1))
        grown = 1.0 if self.by_group else column
        return Tally(
            self.described * column,
            self.infinite * column,
            self.suppressed * grown,
            self.strangers,
            self.by_group,
        )

    def weights(self, rate: Floats) -> Floats:
        """The weight of each group, float (G,), suppressed records included: W_G + H_G."""
        total: Floats = rate @ (self.described + self.suppressed)
        return total

    def infinite_weights(self, rate: Floats) -> Floats:
        """The weight of each group at +inf, float (G,), suppressed records included."""
        total: Floats = rate @ (self.infinite + self.suppressed)
        return total

    def finite_alone(self, rate: Floats, test: Floats, alpha: Fraction) -> Bools:
        """Which groups have a finite threshold on their own at this alpha, bool (G,).

        With W the weight of the group and I its part at +inf, suppressed records included in both,
        the threshold is finite if and only if (1 - alpha)(W + w_test) <= W - I.

        - `rate`, `test`: The weight of a record of each client (K,), and of the test point in each
          group (G,), in the same unit.
        """
        W, infinite = self.weights(rate), self.infinite_weights(rate)
        test = test + self.strange_weights(rate, alpha)
        finite: Bools = infinite + test <= float(alpha) * (W + test) * (1 + _ROUNDING)
        return finite & (infinite < W)


def _at_infinity(s: ClientSummary) -> Ints:
    """How many records of each atom have a score of +inf.

    Values ascend within an atom, so that only the last centroid can be at +inf.
    """
    last = s.start[1:] - 1
    return np.where(np.isinf(s.values[last]), s.counts[last], 0)


def carried(membership: Bools, needed: Floats) -> Floats:
    """The weight e_A to put at +inf into each atom, so that every group gets what it needs.

    The choice is greedy: each step takes the atom that serves the most groups that still need
    weight, and among equals the one with the fewest groups. The total is then mostly the least
    possible one, and less weight at +inf means smaller sets.

    - `membership`: The atoms that may carry weight, bool (a, G).
    - `needed`: The least weight for each group, float (G,). A group without atoms gets none; see
      points 1 and 5 in the module.
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
    """A calibration before it is solved: everything that `plan` and `calibrate` have in common."""

    summaries: tuple[ClientSummary, ...]
    alpha: Fraction
    rule: str
    shape: Shape | None  # What was subtracted from the scores, by the clients or here.
    confidence: float | None  # That of the promise; None if it is about the average.
    exact: Bools  # (G,): With a confidence, whether the exact bound holds for the group.
    shares: list[Fraction]  # pi_k of each summary.
    sizes: Sizes  # What the correction depends on.
    inside: Bools  # (K,): Which clients are in T.
    weights: Weights
    charged: Charged  # The weight of the test point, in units of weight.
    source: Simultaneous | None  # The rule that gives the thresholds; None for rule "max".
    correction: Correction  # What was charged, in records.
    pool: Pool
    tally: Tally
    coreset: Coreset  # The weighted scores by atom that the solver gets.
    carriers: Bools | None  # Which atoms of the coreset carry weight for suppressed records.
    hopeless: Bools | None  # (G,): Which groups suppressed records leave without a threshold.
    slack: Floats  # (a,): The certified error of each atom of the pool, in units of weight.
    delta: float | None  # The delta of the recompression; None if the centroids were pooled.
    admission: Admission  # What the server lets in.
    noise: NoiseCharge | None = None  # What is charged for noise; None if there is none.

    @property
    def inner_alpha(self) -> Fraction:
        """The alpha at which the theorem is used: alpha' with noise, and alpha itself without."""
        return self.alpha if self.noise is None else self.noise.alpha

    @cached_property
    def twins(self) -> tuple[tuple[str, ...], ...]:
        """The names under which the same values and counts were sent, for each such content."""
        return twins(self.summaries)

    @property
    def largest_shares(self) -> tuple[LargestShare, ...]:
        """The client with the largest share of the weight of each group."""
        return largest_shares(*_held(self.summaries, self.tally, self.weights))

    @property
    def groups(self) -> Groups:
        """The family of groups, which is the same at all clients."""
        return self.summaries[0].groups

    @property
    def by(self) -> str:
        """What the cells of the summaries are: "atom" or "group"."""
        return self.summaries[0].by

    @property
    def finite_alone(self) -> Bools:
        """Which groups have a finite threshold on their own, bool (G,).

        If the weight of the test point depends on the atom, the atom with the smallest one decides.
        """
        if self.confidence is not None:
            rate = self.weights.rate
            return finite_with_confidence(self, self.alpha, rate, 1.0, self.exact)
        if self.noise is not None:
            finite: Bools = np.isfinite(noisy_levels(self)[0])
            return finite
        return self.tally.finite_alone(self.weights.rate, self.charged.least, self.alpha)


def problem_of(
    summaries: Iterable[ClientSummary],
    alpha: float | Fraction,
    mixture: Mixture,
    merge: str = "pool",
    delta: float | None = None,
    rule: str | None = None,
    correction: str = "sharp",
    shape: Any = None,
    confidence: float | None = None,
    admission: Admission | None = None,
) -> Problem:
    """The problem that these summaries pose. The arguments are those of `calibrate`.

    - `admission`: What the server lets in; `calibrate` has its parts as arguments of their own.
    """
    exact_alpha = checks.alpha(alpha)
    checks.choice("merge", merge, *MERGES)
    checks.choice("correction", correction, *CORRECTIONS)
    if merge == "pool" and delta is not None:
        raise GCFCPError(
            f"delta={delta} belongs to a recompression: give merge='recompress' with it, or leave "
            "delta out"
        )
    admission = admission or Admission()
    ordered = in_order(summaries, admission)
    refuse_shape_parts(ordered)
    shape = _shape_for(ordered, shape)
    if merge == "recompress" and ordered[0].grid is not None:
        raise GCFCPError(
            "merge='recompress' is not possible with a grid, whose counts add up as they are: use "
            "merge='pool'"
        )
    if has_noise(ordered):
        by_atom = ordered[0].by == "atom"
        refuse_for_noise(ordered, rule, confidence, shape is not None and by_atom)
        rule = "max"
    rule = _rule_for(ordered[0], rule, shape, confidence)
    if confidence is not None:
        confidence = _confidence_for(ordered[0], confidence, merge, correction)
    shares = shares_of(ordered, mixture, admission)
    if correction == "paper":
        for s in ordered:
            admission.sites(s, "correction 'paper'")
    sizes = Sizes.of(ordered, shares)
    noise = charge_for(ordered, shares, exact_alpha) if has_noise(ordered) else None
    inner = exact_alpha if noise is None else noise.alpha
    inside = chosen(sizes, inner, rule, correction)
    if confidence is not None:
        inside = np.array(sizes.shares == 0)  # Without a test point nobody has a record more.
    rates = _rates(ordered, shares, inside)
    weights = Weights.of(rates, inner, divided=not inside.all())
    pool, tally = pool_of(ordered), Tally.of(ordered)
    admission.check_shares(*_held(ordered, tally, weights))
    if rule == "simultaneous":
        admission.check_atoms(ordered, len(pool.membership))
    if shape is not None and ordered[0].by == "atom":
        pool = pool.less(shape)
    slack = pool.by_atom(pool.cell_errors, weights.rate)
    atom, values, masses = _weighted(pool, weights)
    if merge == "recompress":
        delta = largest_delta(ordered) if delta is None else checks.delta(delta)
        atom, values, masses, added = recompressed(
            atom, values, masses, ordered[0].representative, delta
        )
        slack[np.unique(atom)] += added
    alive = np.flatnonzero(np.bincount(atom))
    atoms = pool.membership[alive]
    charged = Charged.alike(np.zeros(sizes.groups))
    if confidence is None:
        charged = charged_weights(sizes, weights.rate, inside, inner, rule, correction, atoms)
    carriers = hopeless = None
    if tally.suppressed.any() and rule == "simultaneous":
        hopeless = tally.suppressed.any(axis=0) & ~tally.finite_alone(
            weights.rate, charged.most, exact_alpha
        )
        extra = _extra_weight(pool, alive, hopeless, weights.rate @ tally.suppressed)
        carriers = extra[alive] > 0
        atom, values, masses = _with_infinite(atom, values, masses, extra)
    atom, values, masses = combined(atom, values, masses)
    start = np.append(np.searchsorted(atom, alive), len(atom))
    worst = max(imbalances(atoms, atoms), key=lambda i: i.gamma) if charged.charge else None
    present = atoms.any(axis=0)
    known = charged.most[present & np.isfinite(charged.most)]
    coreset = Coreset(atoms, start, values, masses, float(known.max(initial=weights.rate.max())))
    source = None
    if rule == "simultaneous":
        source = Simultaneous(coreset, exact_alpha, charged.charge, carriers, hopeless)
        charged = charged.by_atom(atoms, source.test_weights(atoms))
    return Problem(
        summaries=ordered,
        alpha=exact_alpha,
        rule=rule,
        shape=shape,
        confidence=confidence,
        exact=exact_groups(shares, [s.n for s in ordered], sizes, ordered[0].groups.everyone),
        shares=shares,
        sizes=sizes,
        inside=inside,
        weights=weights,
        charged=charged,
        source=source,
        correction=correction_of(
            sizes,
            [s.client for s in ordered],
            inside,
            rule,
            correction,
            tuple(
                float(w) / weights.unit
                for w in (charged.least[present].min(), charged.most[present].max())
            ),
            worst,
            source is not None and source.follows,
            confidence,
        ),
        pool=pool,
        tally=tally,
        coreset=coreset,
        carriers=carriers,
        hopeless=hopeless,
        slack=slack,
        delta=delta,
        admission=admission,
        noise=noise,
    )


def _held(
    summaries: Sequence[ClientSummary], tally: Tally, weights: Weights
) -> tuple[list[str], Groups, Floats, Ints, Ints]:
    """The clients, the groups, and what each client has in each group: weight and records.

    The records are those that are described, and a bound on those that are not.
    """
    described = np.maximum(tally.described, 0)  # Noisy counts can be negative.
    held = weights.rate[:, None] * (described + tally.suppressed)
    names = [s.client for s in summaries]
    return names, summaries[0].groups, held, described, tally.suppressed


def _shape_for(summaries: Sequence[ClientSummary], given: Any) -> Shape | None:
    """The shape of a calibration: that of summaries by group, or the one given for those by atom.

    No record may be behind both the shape and the levels, so that a summary that the shape was made
    from is an error.
    """
    first = summaries[0]
    shape = as_shape(given, first.groups)
    if first.by == "group":
        if shape is not None and (
            first.shape is None or first.shape.fingerprint != shape.fingerprint
        ):
            raise GCFCPError(
                "these summaries by group were not made with this shape: leave it out, because "
                "they carry their own, or summarise again with it"
            )
        return shape_of(summaries)
    if shape is not None:
        for s in summaries:
            if s.source in shape.sources:
                raise GCFCPError(
                    f"the shape was made from this very summary of {s.client}, so that nothing "
                    "would be promised: calibrate other records, or make the shape from others"
                )
    return shape


def _rule_for(
    first: ClientSummary, rule: str | None, shape: Shape | None, confidence: float | None
) -> str:
    """The rule that was asked for, or the one that fits; a GCFCPError if it does not fit."""
    if rule is not None:
        checks.choice("rule", rule, *RULES)
    reason = (
        "summaries by group do not tell how groups overlap"
        if first.by == "group"
        else "a shape is subtracted before one group at a time is calibrated"
        if shape is not None
        else "a confidence is proved for one group at a time"
        if confidence is not None
        else None
    )
    if rule == "simultaneous" and reason is not None:
        raise GCFCPError(f"rule='simultaneous' is not possible, because {reason}: use rule='max'")
    return rule or ("simultaneous" if reason is None else "max")


def _confidence_for(first: ClientSummary, confidence: float, merge: str, correction: str) -> float:
    """The confidence, if it can be promised for these summaries in this way."""
    if first.representative != "upper":
        raise GCFCPError(
            f"confidence={confidence} needs representative='upper', because means may lie below "
            "the scores that they stand for"
        )
    if merge != "pool" or correction != "sharp":
        raise GCFCPError(
            f"confidence={confidence} needs merge='pool' and correction='sharp': it counts the "
            "records of each client and charges no test point"
        )
    return checks.probability("confidence", confidence)


def _rates(
    summaries: Sequence[ClientSummary], shares: Sequence[Fraction], inside: Bools
) -> list[Fraction]:
    """The weight of one record of each client: pi_k / (n_k + 1) in T, and pi_k / n_k outside."""
    return [
        share / (s.n + len(s.members) * within)
        for s, share, within in zip(summaries, shares, inside.tolist(), strict=True)
    ]


def _weighted(pool: Pool, weights: Weights) -> tuple[Ints, Floats, Floats]:
    """Atom, value and weight of every centroid. Centroids of weight 0 are left out."""
    masses = weights.rate[pool.owner] * pool.counts
    if weights.rate.all():
        return pool.atom, pool.values, masses
    heavy = weights.rate[pool.owner] > 0
    if not heavy.any():
        raise GCFCPError(
            "every client that describes an atom has weight 0 in the mixture: give one of them a "
            "positive weight"
        )
    return pool.atom[heavy], pool.values[heavy], masses[heavy]


def _extra_weight(pool: Pool, alive: Ints, hopeless: Bools, needed: Floats) -> Floats:
    """The weight e_A that each atom of the pool carries at +inf for suppressed records, (a,).

    Only atoms that have weight and are in no hopeless group carry any; see the module.
    """
    extra = np.zeros(len(pool.membership))
    free = alive[~(pool.membership[alive] & hopeless).any(axis=1)]
    extra[free] = carried(pool.membership[free], needed)
    return extra


def _with_infinite(
    atom: Ints, values: Floats, masses: Floats, extra: Floats
) -> tuple[Ints, Floats, Floats]:
    """The same scores, with one more score of +inf in each atom that carries extra weight."""
    added_to = np.flatnonzero(extra)
    ends = np.searchsorted(atom, added_to, side="right")
    return (
        np.insert(atom, ends, added_to),
        np.insert(values, ends, np.inf),
        np.insert(masses, ends, extra[added_to]),
    )
