"""Levels from counts with noise: what the server must charge so that the promise stays proved.

The sites have added independent noise of a public law to their counts on a public grid (see
`gcfcp.noise`). For one group and the edges e_1 < ... < e_B, theorem 1 needs the sum Z(e_j) of the
records' alpha - L_i, and the server has Z plus noise. If S_j is the weighted noise of all cells up
to e_j, and S that of all cells, the one of +inf included, the noise of Z(e_j) is

    E_j = alpha' S_j - (1 - alpha') (S - S_j).

**The charge.** Let W be the weight of the group's records, w' that of the heaviest record of all,
and s a number with P(S > s) <= gamma_0. The server knows W + S. For

    w = W + S - s - w'

let kappa(w) be a number that does not grow with w, with E[max_j (E_j - kappa(w) sd_j)^+] <= gamma w
for every w > 0; sd_j is the standard deviation of E_j. The level T is the first edge at which Z
plus noise is at least c + q_j, with q_j = kappa(w) sd_j, where c and the weights are those of
theorem 1 for alpha' = alpha - gamma - gamma_0. If w is not positive, T is infinite.

*Proof.* Fix the noise, and let m(W) be max_j (E_j - q_j)^+, which does not fall with W. T is not
below the first edge with Z >= c - m(W). Go through the proof of theorem 1 with c - m in the place
of c, and with sigma the first edge at which Z+, the sum with one more record of each client of the
set T, is at least -m+. Here m+ is m for w = W+ + S - s. One more record only adds to W, and a
replaced one adds at most w', so that m <= m+ in all data sets of that proof, and each of their
levels is at least sigma. So E v(T) >= E Z+(sigma) >= -E m+: at +inf Z+ is not negative. Now let the
noise vary. Where S <= s, m+ is at most max_j (E_j - kappa(W+) sd_j)^+, whose mean over the noise is
at most gamma W+, and E W+ is the probability p of the group. Elsewhere v is above -1 in the group.
Hence E v(T) >= -(gamma + gamma_0) p, which says that the group is missed with a probability of at
most alpha' + gamma + gamma_0 = alpha. No union over groups is needed, because the promise is about
one group at a time.

**Why it is cheap.** Where noise lets T fall by as much as it changes Z, coverage falls by as much,
and not to 0. So q_j need not be a bound that noise hardly ever exceeds: its mean excess is charged.

**How kappa and s are found.** s is Chernoff's bound, from the generating function of the noise,
with gamma_0 = `OUTLYING`. The mean excess is estimated for each kappa of `KAPPAS` from `COPIES`
imitated copies of the noise: what is below b by the empirical Bernstein bound of Maurer and Pontil
(2009, theorem 4), and what is above b by Chernoff's bound, edge by edge. The probability that any
of these bounds is too low is at most `MISLED`, and is charged as well. The copies come from a seed
that is fixed here, before any noise is drawn. kappa(w) is the least kappa whose bound is at most
gamma w.

gamma is chosen from `GAMMAS` by n, the mixture, the grid and the law of the noise, which are public
and no outcome of chance.

| here     | docs/guarantees.md                                               |
|----------|------------------------------------------------------------------|
| `gamma`  | gamma, the part of alpha that goes to the mean excess of noise   |
| `alpha`  | alpha'                                                           |
| `margin` | q_j, in units of weight                                          |

Cost: COPIES draws for each cell and each different law. Sites whose records weigh the same and
whose scale is the same share one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError
from gcfcp.noise import Noise, imitated, variance_of
from gcfcp.summary import ClientSummary, possible_cells, sensitivity_of

if TYPE_CHECKING:
    from gcfcp.calibration.problem import Problem, Weights

COPIES = 20_000
"""How many copies of the noise are imitated; on a fine grid fewer, as far as a tenth of them."""

_DRAWS = 2**23  # About so many numbers are drawn for each law, unless the grid is very fine.

MISLED = 1e-6
"""The probability with which the copies may show too little noise; it is charged as well."""

OUTLYING = 1e-5
"""gamma_0, the probability with which the noise of a group's weight may exceed s."""

GAMMAS = tuple(Fraction(k, 10_000) for k in (2, 5, 10, 20, 30, 50, 70, 100, 150, 200, 300, 500))
"""The parts of the coverage that may go to the noise."""

KAPPAS = (*(k / 10 for k in range(20)), *(k / 4 for k in range(8, 25)))
"""The multiples of the standard deviation that may be charged."""

_CHUNK = 2**22  # How many numbers are drawn at a time.
_ROUNDING = 1e-12  # Sums of weights are rounded by less than this part of them.
_REACH = 9.0  # Copies are cut at about so many standard deviations.
_SLOPES = np.linspace(0.01, 0.99, 99)  # Chernoff's bound is taken at these parts of the largest t.

Law = tuple[tuple[float, float, int], ...]
"""The noise of one cell of a group: (weight of a record in the mixture, scale, copies)."""


@dataclass(frozen=True)
class NoiseCharge:
    """What is charged for noise."""

    gamma: Fraction  # One of GAMMAS.
    alpha: Fraction  # alpha', the level at which theorem 1 is used.
    epsilon: float  # The largest privacy loss of any site.

    @classmethod
    def of(cls, alpha: Fraction, gamma: Fraction, epsilon: float) -> NoiseCharge | None:
        """The charge with this gamma; None if nothing of alpha would be left."""
        chance = Fraction(1, round(1 / MISLED)) + Fraction(1, round(1 / OUTLYING))
        inner = alpha - gamma - chance
        return cls(gamma, inner, epsilon) if inner > 0 else None


def has_noise(summaries: Sequence[ClientSummary]) -> bool:
    """Whether any of the summaries has noise."""
    return any(s.noise is not None for s in summaries)


def refuse_for_noise(
    summaries: Sequence[ClientSummary], rule: str | None, confidence: float | None, shape: bool
) -> None:
    """Raise an error if something is asked of noisy counts that is not proved for them."""
    if rule == "simultaneous":
        raise GCFCPError(
            "rule='simultaneous' is not possible with noise: what noise does to one fit for all "
            "groups is not known; use rule='max'"
        )
    if confidence is not None:
        raise GCFCPError(
            f"confidence={confidence:g} is not possible with noise: the bound is proved for counts "
            "of records; leave it out for the promise on average"
        )
    if shape:
        raise GCFCPError(
            "a shape cannot be subtracted from noisy counts by atom: let the sites subtract it "
            "(by='group', shape=...)"
        )
    for s in summaries:
        if s.min_count > 1:
            raise GCFCPError(
                f"{s.client} has min_count={s.min_count} beside sites with noise: use min_count=1 "
                "where others add noise"
            )


def charge_for(
    summaries: Sequence[ClientSummary], shares: Sequence[Fraction], alpha: Fraction
) -> NoiseCharge:
    """The charge for the noise of these summaries."""
    noises = [s.noise for s in summaries]
    rows = [len(s.membership) / 2 if s.by == "atom" else 1.0 for s in summaries]
    return _cheapest(summaries, shares, noises, rows, alpha)


def _cheapest(
    summaries: Sequence[ClientSummary],
    shares: Sequence[Fraction],
    noises: Sequence[Noise | None],
    rows: Sequence[float],
    alpha: Fraction,
) -> NoiseCharge:
    """The charge with the gamma that costs little, as far as public numbers tell.

    The cost in coverage is about gamma + kappa sd / W. It is least, and flat, where kappa is about
    a half, which is where gamma W is about half of the largest standard deviation. In the place of
    what is not known there is a group of a quarter of all records.

    - `noises`: The noise of each client, or None.
    - `rows`: About how many atoms of each client a group has.
    """
    epsilon = max(noise.epsilon for noise in noises if noise is not None)
    cell = math.fsum(
        (float(p) / s.n) ** 2 * noise.variance * r
        for p, s, noise, r in zip(shares, summaries, noises, rows, strict=True)
        if noise is not None
    )
    wanted = 0.5 * 4 * math.sqrt(cell * _cells(summaries))
    charge = NoiseCharge.of(alpha, GAMMAS[0], epsilon)
    if charge is None:
        raise GCFCPError(
            f"alpha={float(alpha):g} is too small for noise, of which at least "
            f"{float(GAMMAS[0]):g} must be left for chance: use a larger alpha"
        )
    for gamma in GAMMAS:
        if gamma <= min(wanted, float(alpha) / 2):
            charge = NoiseCharge.of(alpha, gamma, epsilon) or charge
    return charge


def planned_costs(problem: Problem, epsilon: float) -> Floats:
    """How much coverage noise of this epsilon would cost in each group, float (G,), up to 1.

    The summaries are counts on a grid without noise, such as those of last quarter: the cost is
    alpha - alpha' + q / W_G at the edge where the group has its 1 - alpha quantile now.
    """
    summaries = problem.summaries
    if summaries[0].grid is None or has_noise(summaries):
        raise GCFCPError(
            f"epsilon={epsilon:g} in a plan needs counts on a grid without noise, such as those "
            "of the sites themselves or of an earlier quarter"
        )
    rows = [_possible_rows(s) for s in summaries]
    noises = [Noise.of(epsilon, sensitivity_of(s.possible, s.by)) for s in summaries]
    typical = [r.sum(axis=0).max() / (2 if problem.by == "atom" else 1) for r in rows]
    charge = _cheapest(summaries, problem.shares, noises, typical, problem.alpha)
    cells = _cells(summaries)
    rate = problem.weights.rate / problem.weights.unit
    counts = _group_counts(summaries, cells + 1)
    costs = []
    for g in range(len(problem.groups)):
        found: dict[tuple[float, float], int] = {}
        for weight, noise, own in zip(rate.tolist(), noises, rows, strict=True):
            key = weight, noise.scale
            found[key] = found.get(key, 0) + int(np.count_nonzero(own[:, g]))
        law = tuple((r, s, n) for (r, s), n in sorted(found.items()) if r and n)
        weights = rate @ counts[:, g]
        total = float(weights.sum())
        if not total:
            costs.append(1.0)
            continue
        edge = int(np.searchsorted(np.cumsum(weights)[:-1], float(1 - charge.alpha) * total))
        margin = margin_of(law, cells, charge, total - rate.max())[min(edge, cells - 1)]
        costs.append(min(1.0, float(problem.alpha - charge.alpha) + margin / total))
    return np.array(costs)


def _possible_rows(s: ClientSummary) -> Bools:
    """The rows (a, G) to which a site would add noise."""
    certain = s.groups.everyone.copy()
    certain[len(s.groups.others) :] = s.possible[len(s.groups.others) :]
    return possible_cells(s.possible, certain, s.by, 2**16)


def noisy_levels(problem: Problem) -> tuple[Floats, Floats]:
    """The level of each group, float (G,), and q at that level in units of weight, float (G,).

    Where the level is infinite, q is that of the highest edge, which may be infinite too.
    """
    charge = problem.noise
    assert charge is not None
    grid = problem.summaries[0].grid
    assert grid is not None
    keep = float(1 - charge.alpha)
    counts = _group_counts(problem.summaries, len(grid) + 1)
    rate = problem.weights.rate
    levels, margins = [], []
    for g in range(len(problem.groups)):
        weights = rate @ counts[:, g]
        below, total = np.cumsum(weights)[:-1], math.fsum(weights)
        law = law_of(problem.summaries, problem.weights, g)
        known = (total - float(rate.max())) / problem.weights.unit
        margin = margin_of(law, len(grid), charge, known) * problem.weights.unit
        needed = keep * (total + float(problem.charged.most[g])) + margin
        size = np.abs(weights).sum() + np.abs(needed)
        enough = np.flatnonzero((below >= needed + _ROUNDING * size) & (total > 0))
        first = int(enough[0]) if len(enough) else -1
        levels.append(grid.upper_edges[first] if len(enough) else math.inf)
        margins.append(margin[first])
    return np.array(levels), np.array(margins)


def _group_counts(summaries: Sequence[ClientSummary], cells: int) -> Floats:
    """The counts of each client, group and cell, (K, G, B + 1)."""
    found = np.zeros((len(summaries), len(summaries[0].groups), cells))
    for k, s in enumerate(summaries):
        assert s.grid is not None
        row = np.repeat(np.arange(len(s.membership)), np.diff(s.start))
        by_row = np.zeros((len(s.membership), cells))
        by_row[row, s.grid.place(s.values)] = s.counts
        found[k] = s.membership.T.astype(np.float64) @ by_row
    return found


def _cells(summaries: Sequence[ClientSummary]) -> int:
    """B, the number of finite cells."""
    grid = summaries[0].grid
    assert grid is not None
    return len(grid)


def law_of(summaries: Sequence[ClientSummary], weights: Weights, g: int) -> Law:
    """The noise of one cell of group g. Terms whose records weigh the same are taken together."""
    found: dict[tuple[float, float], int] = {}
    for s, rate in zip(summaries, (weights.rate / weights.unit).tolist(), strict=True):
        rows = int(np.count_nonzero(s.membership[:, g]))
        if s.noise is None or not rate or not rows:
            continue
        for scale, copies in s.noise.terms:
            found[rate, scale] = found.get((rate, scale), 0) + copies * rows
    return tuple((rate, scale, copies) for (rate, scale), copies in sorted(found.items()))


def margin_of(law: Law, cells: int, charge: NoiseCharge, weight: float) -> Floats:
    """q_j of each edge, (B,), as parts of the mixture; infinite if the noise drowns the group.

    - `weight`: W + S - w', the noisy weight of the group less that of the heaviest record.
    """
    if not law:
        return np.zeros(cells)
    heaviest = max(rate for rate, _, _ in law)
    scaled = tuple((rate / heaviest, scale, copies) for rate, scale, copies in law)
    allowed = float(charge.gamma) * (weight / heaviest - outlying(scaled, cells))
    fit = np.flatnonzero(np.array(mean_excess(scaled, cells, charge.alpha)) <= allowed)
    if not len(fit):
        return np.full(cells, math.inf)
    found: Floats = heaviest * KAPPAS[int(fit[0])] * deviations(scaled, cells, charge.alpha)
    return found


def deviations(law: Law, cells: int, alpha: Fraction) -> Floats:
    """The standard deviation of E_j for each edge, (B,)."""
    one = math.fsum(rate**2 * copies * variance_of(scale) for rate, scale, copies in law)
    j = np.arange(1, cells + 1)
    a = float(alpha)
    found: Floats = np.sqrt(one * (a**2 * j + (1 - a) ** 2 * (cells + 1 - j)))
    return found


def outlying(law: Law, cells: int) -> float:
    """s, which the noise S of all cells exceeds with a probability of at most `OUTLYING`."""
    t = _SLOPES * _steepest(law)
    return float(np.min(((cells + 1) * _log_moment(law, t) - math.log(OUTLYING)) / t))


@lru_cache(maxsize=4096)
def mean_excess(law: Law, cells: int, alpha: Fraction) -> tuple[float, ...]:
    """Upper bounds of E[max_j (E_j - kappa sd_j)^+], one for each of `KAPPAS`; see the module."""
    rng = np.random.default_rng([cells, *alpha.as_integer_ratio()])
    number = min(COPIES, max(COPIES // 10, _DRAWS // (cells + 1)))
    sd, a = deviations(law, cells, alpha), float(alpha)
    cut = np.maximum((_REACH - np.array(KAPPAS)) * sd.max(), _REACH / _steepest(law))
    first, second = np.zeros(len(KAPPAS)), np.zeros(len(KAPPAS))
    step = max(1, _CHUNK // (cells + 1))
    for start in range(0, number, step):
        size = (min(step, number - start), cells + 1)
        noise = np.zeros(size)
        for rate, scale, copies in law:
            noise += rate * imitated(rng, scale, copies, size)
        below = np.cumsum(noise, axis=1)
        error = below[:, :-1] - (1 - a) * below[:, -1:]
        for i, kappa in enumerate(KAPPAS):
            most = np.clip((error - kappa * sd).max(axis=1), 0, cut[i])
            first[i] += most.sum()
            second[i] += np.square(most).sum()
    mean = first / number
    variance = np.maximum(second - number * np.square(mean), 0) / (number - 1)
    chance = math.log(2 * len(KAPPAS) / MISLED)
    bound = mean + np.sqrt(2 * variance * chance / number) + 7 * cut * chance / (3 * (number - 1))
    beyond = [_beyond(law, a, kappa * sd + b) for kappa, b in zip(KAPPAS, cut, strict=True)]
    return tuple((bound + beyond).tolist())


def _beyond(law: Law, alpha: float, levels: Floats) -> float:
    """An upper bound of the sum over all edges of E[(E_j - level_j)^+], by Chernoff's bound.

    E[(X - u)^+] is the integral of P(X > x) over x > u, and P(X > x) <= exp(-t x) E exp(t X).
    """
    cells = len(levels)
    t = _SLOPES * _steepest(law) / max(alpha, 1 - alpha)
    j = np.arange(1, cells + 1)[:, None]
    moment = j * _log_moment(law, alpha * t) + (cells + 1 - j) * _log_moment(law, (1 - alpha) * t)
    return float(np.exp(np.min(moment - levels[:, None] * t - np.log(t), axis=1)).sum())


def _steepest(law: Law) -> float:
    """Below this t the noise of one cell has a finite E exp(t noise)."""
    return min(1 / (rate * scale) for rate, scale, _ in law)


def _log_moment(law: Law, t: Floats) -> Floats:
    """log E exp(t noise) of one cell: with a = exp(-1 / scale), that of discrete Laplace noise is
    (1 - a)^2 / ((1 - a e^t)(1 - a e^-t))."""
    found = np.zeros_like(t)
    for rate, scale, copies in law:
        x, one = rate * t, -math.expm1(-1 / scale)
        found += copies * (
            2 * math.log(one) - np.log(-np.expm1(x - 1 / scale)) - np.log(-np.expm1(-x - 1 / scale))
        )
    return found
