"""Aggregators: several clients' summaries become one summary, which is sent on to the server.

`merge` merges digests, which compresses them again. `add` adds counts on a grid, which loses
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools
from gcfcp.calibration.admission import Admission, Aggregates
from gcfcp.calibration.clients import in_order, refuse_shape_parts, shape_of
from gcfcp.calibration.pooling import largest_delta, pool_of, recompressed
from gcfcp.errors import GCFCPError
from gcfcp.noise import Noise
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
    if first.grid is not None:
        if delta is not None:
            raise GCFCPError(
                f"delta={delta} is not possible with a grid, whose counts add up as they are: "
                "leave delta out"
            )
        return _sum(ordered, client)
    errors = pool.by_atom(pool.cell_errors)
    atom, values, counts = combined(pool.atom, pool.values, pool.counts.astype(np.float64))
    if len(ordered) > 1 or delta is not None:
        delta = largest_delta(ordered) if delta is None else checks.delta(delta)
        atom, values, counts, added = recompressed(
            atom, values, counts, first.representative, delta
        )
        errors = np.minimum(errors + np.ceil(added), pool.by_atom(pool.cell_counts))
    return _merged(
        ordered,
        client,
        pool.membership,
        delta=first.delta if delta is None else delta,
        start=np.searchsorted(atom, np.arange(len(pool.membership) + 1)),
        values=values,
        counts=counts.astype(np.int64),
        errors=errors.astype(np.int64),
    )


def add(
    summaries: Iterable[ClientSummary],
    client: str | None = None,
    *,
    aggregates: Aggregates = (),
    round: str | None = None,
) -> ClientSummary:
    """The sum of summaries on one grid: the counts of each cell are added.

    - `summaries`: Summaries of different clients that were made with the same `Grid`.
    - `client`: The name of the result. By default that of a single summary stays, and a sum of
      several is called "sum of 3 clients".
    - `aggregates`, `round`: What may be among the summaries; see `calibrate`. A sum of sums must
      name them.

    Five laws hold. The order of the summaries does not change the bytes of the result, nor does the
    way in which they are grouped into sums of sums. No record is lost or added, in any cell. The
    arguments are not changed. The sum of a single summary is that summary. The calibration of the
    sum, in the mixture "proportional", is that of the summaries themselves.

    All records of the result weigh the same, so the mixture among its members is proportional.

    Cost: one sort of the cells that hold records.
    """
    ordered = in_order(summaries, Admission.of(aggregates, round))
    refuse_shape_parts(ordered)
    if ordered[0].grid is None:
        raise GCFCPError(
            f"{ordered[0].client} has no grid, and only counts on a public grid add up: summarise "
            "with a grid, or use merge in the place of add"
        )
    if len(ordered) == 1 and client in (None, ordered[0].client):
        return ordered[0]
    number = sum(len(s.members) for s in ordered)
    name = f"sum of {number} clients" if client is None else checks.name("client", client)
    return _sum(ordered, name)


def _sum(ordered: Sequence[ClientSummary], client: str) -> ClientSummary:
    """The sum of summaries on a grid, which fit together."""
    for s in ordered:
        if s.min_count != ordered[0].min_count:
            raise GCFCPError(
                f"{s.client} was summarised with min_count={s.min_count}, {ordered[0].client} with "
                f"{ordered[0].min_count}, and their sum would hide it: use the same at all sites"
            )
    noises = [s.noise for s in ordered if s.noise is not None]
    if noises and not all(
        s.noise is not None and np.array_equal(s.possible, ordered[0].possible) for s in ordered
    ):
        raise GCFCPError(
            "counts with noise add up only if all sites add noise, and to the same cells: give "
            "them to calibrate one by one"
        )
    pool = pool_of(ordered)
    atom, values, counts = combined(pool.atom, pool.values, pool.counts.astype(np.float64))
    return _merged(
        ordered,
        client,
        pool.membership,
        delta=None,
        start=np.searchsorted(atom, np.arange(len(pool.membership) + 1)),
        values=values,
        counts=counts.astype(np.int64),
        errors=np.zeros(len(pool.membership), dtype=np.int64),
    )


def _merged(
    ordered: Sequence[ClientSummary], client: str, membership: Bools, **arrays: Any
) -> ClientSummary:
    """The aggregate of these summaries, with the cells that are given."""
    first = ordered[0]
    members = sorted(m for s in ordered for m in s.members)
    if any(n is None for _, n in members):  # Where some sizes are not known, none is told.
        members = [(name, None) for name, _ in members]
    return ClientSummary(
        client=client,
        n=sum(s.n for s in ordered),
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
        members=tuple(members),
        membership=membership,
        absent=tuple(name for name in first.absent if all(name in s.absent for s in ordered)),
        by=first.by,
        shape=shape_of(ordered),
        round=first.round,
        date=first.date if all(s.date == first.date for s in ordered) else None,
        strangers=tuple(map(sum, zip(*(s.strangers for s in ordered), strict=True))),
        grid=first.grid,
        noise=Noise.total(s.noise for s in ordered if s.noise) if first.noise else None,
        **arrays,
    )
