"""Aggregators: several clients' summaries become one summary, which is sent on to the server."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gcfcp import checks
from gcfcp.calibration.admission import Admission, Aggregates
from gcfcp.calibration.clients import in_order, refuse_shape_parts, shape_of
from gcfcp.calibration.pooling import pool_of, recompressed
from gcfcp.solver import combined
from gcfcp.summary import ClientSummary


def merge(
    summaries: Iterable[ClientSummary],
    client: str,
    delta: float | None = None,
    *,
    aggregates: Aggregates = (),
    round: str | None = None,
) -> ClientSummary:
    """One summary for several clients: what an intermediate aggregator sends to the server.

    The centroids of each atom are merged into one T-Digest. All records of the result weigh the
    same, so the mixture among its members is proportional.

    - `client`: The name of the result, for example that of a region.
    - `delta`: How fine the digests of the result are. By default it is the largest delta among the
      summaries.
    - `aggregates`, `round`: Which aggregates may be among the summaries, and the round that all of
      them must be of; see `calibrate`.

    Four laws hold. The order of the summaries does not change the bytes of the result. No record
    is lost or added. The arguments are not changed. A single summary keeps its centroids unless
    `delta` is given. The certified error of an atom grows by the error that this compression
    really adds, not by its worst case. A group is declared absent in the result if every summary
    declares it absent. The result has the round of the summaries, and their date if they all have
    the same.

    Cost: one sort of the centroids.
    """
    checks.name("client", client)
    ordered = in_order(summaries, Admission.of(aggregates, round))
    refuse_shape_parts(ordered)  # An aggregate of them could not be recognised any more.
    first, pool = ordered[0], pool_of(ordered)
    errors = pool.by_atom(pool.cell_errors)
    atom, values, counts = combined(pool.atom, pool.values, pool.counts.astype(np.float64))
    if len(ordered) > 1 or delta is not None:
        delta = max(s.delta for s in ordered) if delta is None else checks.delta(delta)
        atom, values, counts, added = recompressed(
            atom, values, counts, first.representative, delta
        )
        errors = np.minimum(errors + np.ceil(added), pool.by_atom(pool.cell_counts))
    return ClientSummary(
        client=client,
        n=sum(s.n for s in ordered),
        delta=first.delta if delta is None else delta,
        representative=first.representative,
        groups=first.groups,
        score=first.score,
        parameters=first.parameters,
        model=first.model,
        min_count=min(s.min_count for s in ordered),
        suppressed=sum(s.suppressed for s in ordered),
        suppressed_groups=tuple(
            map(sum, zip(*(s.suppressed_groups for s in ordered), strict=True))
        ),
        uncovered=sum(s.uncovered for s in ordered),
        members=tuple(sorted(m for s in ordered for m in s.members)),
        membership=pool.membership,
        start=np.searchsorted(atom, np.arange(len(pool.membership) + 1)),
        values=values,
        counts=counts.astype(np.int64),
        errors=errors.astype(np.int64),
        absent=tuple(name for name in first.absent if all(name in s.absent for s in ordered)),
        by=first.by,
        shape=shape_of(ordered),
        round=first.round,
        date=first.date if all(s.date == first.date for s in ordered) else None,
        strangers=tuple(map(sum, zip(*(s.strangers for s in ordered), strict=True))),
    )
