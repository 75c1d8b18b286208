"""Levels from counts with noise: what the server must charge so that the promise stays proved.

The sites have added independent noise of a public law to their counts on a public grid (see
`gcfcp.noise`). For one group and the edges e_1 < ... < e_B, theorem 1 needs the sum Z(e_j) of the
records' alpha - L_i, and the server has Z plus noise. If S_j is the weighted noise of all cells up
to e_j, and S that of all cells, the one of +inf included, the noise of Z(e_j) is

    E_j = alpha' S_j - (1 - alpha') (S - S_j).

**The charge.** Let q_1, ..., q_B be numbers with P(E_j > q_j for some j) <= gamma', and alpha' such
that (1 - gamma')(1 - alpha') = 1 - alpha. The level is the first edge at which Z plus noise is at
least c + q_j, where c and the weights are those of theorem 1 for alpha'.

*Proof.* Call the level T, and T_0 the first edge with Z >= c, as it is without noise. If no E_j
exceeds q_j, then Z(T) >= c + q_j - E_j >= c, so that T >= T_0. This event does not depend on the
records, because noise is drawn independently of them. So P(s <= T | G) is at least
P(s <= T_0 | G) (1 - gamma') >= (1 - alpha')(1 - gamma') = 1 - alpha. No union over groups is
needed, because the promise is about one group at a time.

**How q is found.** q_j is kappa times the standard deviation of E_j. It is larger for low edges,
above which many cells with noise lie, and small near the top, where thresholds are. Of `COPIES`
imitated copies of max_j E_j / sd_j, kappa is the r-th smallest, where r is so high that the
probability that kappa is below the 1 - gamma quantile is at most `MISLED`; by Chernoff's bound
COPIES KL(r / COPIES, 1 - gamma) >= log(1 / MISLED) is enough. And gamma' is gamma + MISLED. The
copies come from a seed that is fixed here, before any noise is drawn.

gamma is chosen from `GAMMAS` by n, the mixture, the grid and the law of the noise, which are public
and no outcome of chance.

| here     | docs/privacy.md                                    |
|----------|----------------------------------------------------|
| `gamma`  | gamma', the part of alpha that goes to the noise   |
| `alpha`  | alpha'                                             |
| `margin` | q_j, in units of weight                            |

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
"""How many copies of the noise are imitated."""

MISLED = 1e-6
"""The probability with which the copies may show too little noise; it is charged as well."""

GAMMAS = tuple(Fraction(k, 1000) for k in (1, 2, 5, 10, 20, 50))
"""The parts of the coverage that may go to the noise."""

_CHUNK = 2**22  # How many numbers are drawn at a time.
_ROUNDING = 1e-12  # Sums of weights are rounded by less than this part of them.

Law = tuple[tuple[float, float, int], ...]
"""The noise of one cell of a group: (weight of a record in the mixture, scale, copies)."""


@dataclass(frozen=True)
class NoiseCharge:
    """What is charged for noise."""

    gamma: Fraction  # gamma', which is MISLED more than one of GAMMAS.
    alpha: Fraction  # alpha', the level at which theorem 1 is used.
    epsilon: float  # The largest privacy loss of any site.

    @classmethod
    def of(cls, alpha: Fraction, gamma: Fraction, epsilon: float) -> NoiseCharge | None:
        """The charge with this gamma; None if nothing of alpha would be left."""
        whole = gamma + Fraction(1, round(1 / MISLED))
        inner = 1 - (1 - alpha) / (1 - whole)
        return cls(whole, inner, epsilon) if inner > 0 else None

    @property
    def quantile(self) -> float:
        """gamma, without MISLED."""
        return float(self.gamma) - MISLED


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
    """The charge with the gamma that costs least, as far as public numbers tell.

    The cost in coverage is about (1 - alpha) gamma + kappa sd / W, with kappa = sqrt(2 log(1 /
    gamma)) and, in the place of what is not known, a group of a quarter of all records and an edge
    in the middle of the grid.

    - `noises`: The noise of each client, or None.
    - `rows`: About how many atoms of each client a group has.
    """
    epsilon = max(noise.epsilon for noise in noises if noise is not None)
    cell = math.fsum(
        (float(p) / s.n) ** 2 * noise.variance * r
        for p, s, noise, r in zip(shares, summaries, noises, rows, strict=True)
        if noise is not None
    )
    sd = math.sqrt(cell * _cells(summaries) / 2)
    best: tuple[float, NoiseCharge] | None = None
    for gamma in GAMMAS:
        charge = NoiseCharge.of(alpha, gamma, epsilon)
        if charge is not None:
            kappa = math.sqrt(2 * math.log(1 / float(gamma)))
            cost = float(alpha - charge.alpha) + kappa * sd * 4
            if best is None or cost < best[0]:
                best = cost, charge
    if best is None:
        raise GCFCPError(
            f"alpha={float(alpha):g} is too small for noise, of which at least "
            f"{float(GAMMAS[0]):g} must be left for chance: use a larger alpha"
        )
    return best[1]


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
        margin = margin_of(law, cells, charge)[min(edge, cells - 1)]
        costs.append(min(1.0, float(problem.alpha - charge.alpha) + margin / total))
    return np.array(costs)


def _possible_rows(s: ClientSummary) -> Bools:
    """The rows (a, G) to which a site would add noise."""
    certain = s.groups.everyone.copy()
    certain[len(s.groups.others) :] = s.possible[len(s.groups.others) :]
    return possible_cells(s.possible, certain, s.by, 2**16)


def noisy_levels(problem: Problem) -> tuple[Floats, Floats]:
    """The level of each group, float (G,), and q at that level in units of weight, float (G,).

    Where the level is infinite, q is that of the highest edge.
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
        margin = margin_of(law, len(grid), charge) * problem.weights.unit
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


def margin_of(law: Law, cells: int, charge: NoiseCharge) -> Floats:
    """q_j of each edge, (B,), as parts of the mixture."""
    if not law:
        return np.zeros(cells)
    heaviest = max(rate for rate, _, _ in law)
    scaled = tuple((rate / heaviest, scale, copies) for rate, scale, copies in law)
    return heaviest * _kappa(scaled, cells, charge) * deviations(scaled, cells, charge)


def deviations(law: Law, cells: int, charge: NoiseCharge) -> Floats:
    """The standard deviation of E_j for each edge, (B,)."""
    one = math.fsum(rate**2 * copies * variance_of(scale) for rate, scale, copies in law)
    j = np.arange(1, cells + 1)
    a = float(charge.alpha)
    found: Floats = np.sqrt(one * (a**2 * j + (1 - a) ** 2 * (cells + 1 - j)))
    return found


@lru_cache(maxsize=4096)
def _kappa(law: Law, cells: int, charge: NoiseCharge) -> float:
    """The number of standard deviations that no E_j exceeds with probability 1 - gamma."""
    rng = np.random.default_rng([cells, *charge.alpha.as_integer_ratio()])
    sd, a = deviations(law, cells, charge), float(charge.alpha)
    most = np.empty(COPIES)
    step = max(1, _CHUNK // (cells + 1))
    for start in range(0, COPIES, step):
        size = (min(step, COPIES - start), cells + 1)
        noise = np.zeros(size)
        for rate, scale, copies in law:
            noise += rate * imitated(rng, scale, copies, size)
        below = np.cumsum(noise, axis=1)
        error = a * below[:, :-1] - (1 - a) * (below[:, -1:] - below[:, :-1])
        most[start : start + step] = (error / sd).max(axis=1)
    return float(np.sort(most)[safe_rank(charge.quantile) - 1])


def safe_rank(gamma: float, copies: int = COPIES, misled: float = MISLED) -> int:
    """The least r for which the r-th smallest copy is surely not below the 1 - gamma quantile.

    If it were, r or more of the copies would be below that quantile, each with a probability of at
    most 1 - gamma; see the module.
    """
    needed, p = math.log(1 / misled), 1 - gamma
    for r in range(math.ceil(copies * p), copies):
        x = r / copies
        kl = x * math.log(x / p) + (1 - x) * math.log((1 - x) / gamma)
        if copies * kl >= needed and x > p:
            return r
    if copies * -math.log(p) >= needed:
        return copies
    raise GCFCPError(f"gamma={gamma:g} is too small for {copies:,} copies of the noise")
