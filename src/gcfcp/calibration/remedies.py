"""What would make thresholds finite: every remedy here was tried before it is named.

With W_G the weight of a group and I_G its part at +inf, suppressed records included in both, and
w_G the weight of the test point, the group has a finite threshold on its own if and only if
(1 - alpha)(W_G + w_G) <= W_G - I_G. A remedy changes something of this: the mixture, the rule,
alpha, or the numbers of records. If a client has f times as many records, its records of each kind
grow by the same factor, and the weight of each of them falls.

Cost: some evaluations of the condition for each remedy. Where groups overlap, the atoms that are
infinite are solved again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, cached_property

import numpy as np

from gcfcp.arrays import Bools, Floats
from gcfcp.calibration.confidence import exact_groups, finite_with_confidence
from gcfcp.calibration.correction import Charged, Sizes, charge_of, charged_weights, chosen
from gcfcp.calibration.problem import Problem, shares_of
from gcfcp.thresholds import Simultaneous, ThresholdTable

_MOST = 2**40  # No remedy asks for more records than this, nor for a larger factor.
_MOST_WITH_CONFIDENCE = 2**20  # Exact bounds of more records than this take long.
_DOMINATES = 2.0  # A client is named if it makes the correction this many times as large.


def finite_alone(
    problem: Problem,
    *,
    alpha: Fraction | None = None,
    rule: str | None = None,
    shares: Sequence[Fraction] | None = None,
    factors: Floats | float = 1.0,
    correction: str | None = None,
    row: Bools | None = None,
) -> Bools:
    """Which groups would have a finite threshold on their own, bool (G,), if this were different.

    - `factors`: How many times as many records all clients have, or each of them, (K,).
    - `row`: The row (G,) whose weight of the test point is meant; without it, for each group the
      smallest one of its atoms.
    """
    changed = _Changed(problem, alpha, rule, shares, factors, correction)
    return changed.finite(row)


def charged_records(
    problem: Problem, shares: Sequence[Fraction] | None = None, rule: str | None = None
) -> float:
    """The largest weight of the test point in any group, in records, if this were different."""
    if shares is None and rule is None:
        return problem.correction.records
    present = problem.coreset.membership.any(axis=0)
    charged = _Changed(problem, shares=shares, rule=rule).charged()
    return float(charged.most[present].max() * problem.sizes.n.sum())


class _Changed:
    """A problem in which something is different: alpha, the rule, the mixture and so on.

    If nothing is, the weights of the test point are those of the problem. Otherwise exchanges of
    records are not followed, and the weights are those that are enough in any case.
    """

    def __init__(
        self,
        problem: Problem,
        alpha: Fraction | None = None,
        rule: str | None = None,
        shares: Sequence[Fraction] | None = None,
        factors: Floats | float = 1.0,
        correction: str | None = None,
    ) -> None:
        self.problem, self.shares, self.factors = problem, shares, factors
        self.same = (alpha, rule, shares, correction) == (None,) * 4 and bool(
            np.all(np.equal(factors, 1))
        )
        self.alpha = problem.alpha if alpha is None else alpha
        self.rule = problem.rule if rule is None else rule
        self.kind = problem.correction.kind if correction is None else correction

    def finite(self, row: Bools | None) -> Bools:
        """Which groups are finite on their own, bool (G,); see `finite_alone`."""
        problem = self.problem
        if problem.confidence is not None:
            return _with_confidence(problem, self.alpha, self.shares, self.factors)
        if self.same:
            test, rate = problem.charged.least, problem.weights.rate
            if row is not None and problem.source is not None:
                test = np.repeat(problem.source.test_weights(row[None]), problem.sizes.groups)
            return problem.tally.finite_alone(rate, test, problem.alpha)
        _, _, rate = self._weighed
        tally = problem.tally.times(self.factors)
        return tally.finite_alone(rate, self._least(row), self.alpha)

    def charged(self) -> Charged:
        """The weight of the test point in each group."""
        sizes, inside, rate = self._weighed
        atoms = self.problem.coreset.membership
        return charged_weights(sizes, rate, inside, self.alpha, self.rule, self.kind, atoms)

    @cached_property
    def _weighed(self) -> tuple[Sizes, Bools, Floats]:
        """What the correction depends on, T, and the weight of a record of each client."""
        sizes = replace(self.problem.sizes, n=self.problem.sizes.n * self.factors)
        if self.shares is not None:
            sizes = replace(sizes, shares=np.array([float(p) for p in self.shares]))
        inside = chosen(sizes, self.alpha, self.rule, self.kind)
        return sizes, inside, sizes.rates(inside)

    def _least(self, row: Bools | None) -> Floats:
        """The smallest weight of the test point in each group, (G,), or that of one row.

        Of a single row the weights of all other atoms need not be found, which takes far longer.
        """
        sizes, inside, rate = self._weighed
        if row is not None and self.rule == "simultaneous" and self.kind != "paper":
            charge = charge_of(sizes, rate, inside, self.alpha)
            if charge is not None:
                atoms = self.problem.coreset.membership
                return np.repeat(charge.weights(atoms, row[None]), sizes.groups)
        return self.charged().least


def _with_confidence(
    problem: Problem,
    alpha: Fraction,
    shares: Sequence[Fraction] | None,
    factors: Floats | float,
) -> Bools:
    """Which groups would have a finite level with the same confidence, if this were different."""
    shares = problem.shares if shares is None else shares
    n = [s.n for s in problem.summaries]
    exact = exact_groups(shares, n, problem.sizes, problem.groups.everyone)
    if np.ndim(factors) and len(np.unique(factors)) > 1:
        exact = np.zeros_like(exact)  # The records need not weigh the same any more.
    rate = np.array([float(p) for p in shares]) / (problem.sizes.n * factors)
    return finite_with_confidence(problem, alpha, rate, factors, exact)


def least(enough: Callable[[int], bool], most: int = _MOST) -> int | None:
    """The smallest whole number from 1 to `most` that is enough; None if there is none.

    If a number is enough, so is every larger one.
    """
    if not enough(most):
        return None
    high = 1
    while not enough(high):
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def records_missing(
    problem: Problem, g: int, row: Bools | None = None
) -> tuple[int, float] | tuple[None, None]:
    """The records that group g lacks, and the factor by which all clients must grow to have them.

    Both are None if no growth is enough, as where too many scores are at +inf. `row` is that of
    `finite_alone`.
    """
    tally = problem.tally
    held = int((tally.described + tally.suppressed)[:, g].sum())
    if not held:
        return None, None
    most = _MOST if problem.confidence is None else _MOST_WITH_CONFIDENCE
    more = least(lambda m: bool(finite_alone(problem, factors=1 + m / held, row=row)[g]), most)
    return (None, None) if more is None else (more, 1 + more / held)


def dearest_client(problem: Problem) -> tuple[int, float] | None:
    """The client that makes the correction large, and how many times as large it makes it.

    That is the client with the heaviest records, if it has a larger share of the mixture than of
    the records, and the mixture that is in proportion to the records would cost at most half.
    """
    weight = problem.sizes.omega
    k = int(np.argmax(weight))
    cheaper = charged_records(problem, shares_of(problem.summaries, "proportional"))
    times = problem.correction.records / cheaper if cheaper else 1.0
    return (k, times) if len(weight) > 1 and times >= _DOMINATES else None


def needed_at(problem: Problem, k: int, wanted: Bools) -> int | None:
    """How many records client k alone would have to have, so that the wanted groups are finite."""
    n = problem.summaries[k].n

    def enough(more: int) -> bool:
        factors = np.ones(len(problem.summaries))
        factors[k] = (n + more) / n
        return bool(finite_alone(problem, factors=factors)[wanted].all())

    more = least(enough)
    return None if more is None else n + more


def least_alpha(problem: Problem, g: int, tried: dict[Fraction, Bools]) -> float:
    """The smallest alpha of three digits at which group g is finite on its own; 1 if none is.

    - `tried`: What was found for other groups: which of them are finite at an alpha.
    """
    alphas = _alphas()

    def enough(i: int) -> bool:
        alpha = alphas[i - 1]
        if alpha not in tried:
            tried[alpha] = finite_alone(problem, alpha=alpha)
        return bool(tried[alpha][g])

    found = least(enough, len(alphas))
    return 1.0 if found is None else float(alphas[found - 1])


@cache
def _alphas() -> tuple[Fraction, ...]:
    """All numbers between 0 and 1 of three digits, in ascending order."""
    digits = range(100, 1000)
    return tuple(Fraction(d, 10**places) for places in range(8, 2, -1) for d in digits)


def growth_for_all(problem: Problem, table: ThresholdTable) -> float | None:
    """The factor by which all clients must grow so that every atom is finite, in steps of 1 %.

    None if no growth is enough, or if it cannot be told here. If all clients grow alike and none of
    them is in T, or there is only one, the weights of the atoms stay as they are and that of the
    test point is divided by the factor. So the infinite atoms are solved with a lighter test point.
    """
    source = table.source
    active = problem.sizes.shares > 0
    if not isinstance(source, Simultaneous) or (problem.inside & active).any() > (
        active.sum() == 1
    ):
        return None
    if problem.tally.suppressed.any():
        return None  # Which groups are hopeless would change too.
    rows = table.membership[np.isposinf(table.thresholds_by_atom)]
    if source.charge is None:
        weights = source.test_weights(rows)
    else:  # This weight is enough whatever the exchanges of the larger federation are.
        weights = source.charge.weights(source.coreset.membership, rows)

    def enough(percent: int) -> bool:
        t = source.solver.t_of(weights / (1 + percent / 100))
        return all(math.isfinite(s.threshold) for s in source.solver.solve(rows, t))

    percent = least(enough, 10**7)
    return None if percent is None else 1 + percent / 100
