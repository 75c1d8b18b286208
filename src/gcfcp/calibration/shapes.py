"""A shape from summaries: the fit of all groups together, without a test point.

The coefficients beta minimise the weighted pinball losses of the records, as the simultaneous rule
does before a test point joins. They are finite for any records and defined for every combination of
groups. Where several coefficients fit equally well, they are those of the fit with an infinitesimal
weight at +inf in every atom, of another size in each, and so do not depend on how the fit was
found. Records with a score of +inf and suppressed records are left out: a shape promises nothing,
and any shape keeps the promise of the calibration that uses it (see `gcfcp.shape`). With a
`min_count` a small atom is described by its largest score alone, so that its shape is too high; a
shape of summaries without a `min_count` is better.

Cost: one sort of the centroids and the pivots of one fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Floats
from gcfcp.calibration.admission import Admission, Aggregates
from gcfcp.calibration.clients import in_order
from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.noisy import has_noise
from gcfcp.calibration.pooling import Pool, pool_of
from gcfcp.calibration.problem import shares_of
from gcfcp.errors import GCFCPError
from gcfcp.shape import Shape, shortened
from gcfcp.solver import Coreset, Solver, combined
from gcfcp.summary import ClientSummary


def fit_shape(
    summaries: Iterable[ClientSummary],
    alpha: float | Fraction,
    mixture: Mixture = "proportional",
    *,
    aggregates: Aggregates = (),
    round: str | None = None,
) -> Shape:
    """The shape that fits the 1 - alpha quantiles of all groups together.

    - `summaries`: Summaries by atom. They cannot be calibrated with the shape that they give; other
      records of the same clients can. With `holdout`, `summarize` makes both parts at once.
    - `alpha`: The alpha of the calibration that will use the shape.
    - `mixture`: The mixture of that calibration; see `calibrate`.
    - `aggregates`, `round`: What may be among the summaries; see `calibrate`.
    """
    admission = Admission.of(aggregates, round)
    exact_alpha = checks.alpha(alpha)
    ordered = in_order(summaries, admission)
    if ordered[0].by != "atom":
        raise GCFCPError(
            "a shape cannot be made from summaries by group, which do not tell how groups overlap: "
            "summarise some records by atom, for example with holdout"
        )
    shares = shares_of(ordered, mixture, admission)
    return fit_pool(ordered, pool_of(ordered), exact_alpha, shares)


def fit_pool(
    ordered: Sequence[ClientSummary], pool: Pool, alpha: Fraction, shares: Sequence[Fraction]
) -> Shape:
    """The same for summaries in order, whose centroids are pooled already; `shares` are pi_k."""
    if has_noise(ordered):
        raise GCFCPError(
            "a shape cannot be made from counts with noise, which may be negative: make it of "
            "public records, or of summaries without noise"
        )
    rate = np.array([float(p) / s.n for s, p in zip(ordered, shares, strict=True)])
    masses: Floats = rate[pool.owner] * pool.counts
    kept = np.isfinite(pool.values) & (masses > 0)
    if not kept.any():
        raise GCFCPError(
            "no client with weight has a finite score, so that there is nothing to fit: find out "
            "why scores are infinite"
        )
    atom, values = pool.atom, pool.values
    if not kept.all():
        atom, values, masses = atom[kept], values[kept], masses[kept]
    atom, values, weights = combined(atom, values, masses)
    alive = np.unique(atom)
    start = np.append(np.searchsorted(atom, alive), len(atom))
    coreset = Coreset(pool.membership[alive], start, values, weights / weights.max(), 1.0)
    beta = shortened(Solver(coreset, alpha).coefficients())
    sources = tuple(s.source for s in ordered)
    return Shape(ordered[0].groups, tuple(beta.tolist()), sources)
