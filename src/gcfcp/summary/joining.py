"""Parts of one site's records become the summary of the site.

A site whose records are on several machines, or in many files, summarises each part by itself. The
parts stay at the site. `joined` makes of them the one summary that leaves it, as if all records had
been summarised together:

- **One client.** The result has the site's name, n is the sum of the parts, and it has no members
  but itself. Records of one site are exchangeable with each other and with the record to come,
  however they were divided. (The records of several sites are not: `merge` keeps them apart.)
- **Rules of disclosure come last.** Whether a cell is small is a question about the whole site. So
  parts have `min_count=1` and no noise, and both are applied to the cells of the site, by the same
  code as if there had been no parts.
- **On a grid** counts add up. The result is that of all records at once, to the last bit.
- **Digests** are compressed once more. All clusters of all parts are sorted, and equal ones added
  up, before that: so the order of the parts changes no bit.

Why the promise stands. Let F be the number of a cell's scores that are at most t, and F^ what the
digest says. With `upper` every cluster of a part stands for scores that are not above its
representative, so F_i^(t) <= F_i(t) for each part i, for all t. Their sum says the same of the
cell. The new compression represents clusters by the largest representative among them, which moves
weight upwards only, and so do the roundings of `min_count`. Hence F^ <= sum_i F_i^ <= sum_i F_i,
which is F. No score of the site is represented too low, and theorem 1 applies as it does to any
digest: a threshold by rule max is never below that of the exact scores.

The certified error. sup |F - F^| is at most the sum of the parts' errors, in records, plus the
supremum that the new compression adds, which is computed exactly. Both are added up, and rounded up
to whole records.

What `delta` says. Every digest of a client errs by at most sin(pi / delta) of its cell, whatever
the data are; a proof for `mean` needs it (see `calibration.guarantees`). For this to be true of the
result, the new compression uses a finer delta', with

    sin(pi / delta') = sin(pi / delta) - e,

where e is the worst case of the parts, the largest sin(pi / delta_i). (A part of more than
`EXACT_ROWS` records went through a `DigestBuilder`, which may add half as much.) So delta must be
smaller than that of the parts. By default it is half of theirs, and delta' is then about theirs.

Cost: one sort of the clusters of all parts, which are in memory together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gcfcp.arrays import Bools
from gcfcp.digest import DigestBuilder, TDigest
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import find_atoms
from gcfcp.summary.client import Making, assemble, assemble_groups
from gcfcp.summary.counts import CellCounter, counted_cells
from gcfcp.summary.noisy import noisy
from gcfcp.summary.summary import ClientSummary

EXACT_ROWS = 2**24
"""Up to so many records the summary of a table is that of all of its scores together. That of a
larger one is a digest of digests."""


@dataclass(frozen=True)
class _Outside:
    """The records in no group. How many there are is known of them, and nothing else."""

    count: int


def joined(parts: Sequence[ClientSummary], making: Making) -> ClientSummary:
    """The summary of all records of these parts; see the module.

    - `parts`: Summaries of disjoint records with `min_count=1`, without noise, that fit together.
    - `making`: How the result is made. By group it may be made from parts by atom. Its `delta` must
      be one that `finer` allows.
    """
    if parts[0].by == "group":
        return _joined_groups(parts, making)
    if making.shape is not None:
        _refuse_source(parts, making)
    atoms, cells = _cells(parts, making)
    if making.by == "atom":
        return assemble(cells, atoms, making)

    def scores_of(inside: Bools) -> list[Any]:
        chosen = [cells[i] for i in np.flatnonzero(inside)]
        if outside := [c for c in chosen if isinstance(c, _Outside)]:
            raise GCFCPError(
                f"{making.client}: {outside[0].count} records are in no group, and min_count="
                f"{making.min_count} describes a group with them, whose scores the parts do not "
                "hold: add a group of everyone (Groups.with_all)"
            )
        return chosen

    counts = np.array([cell.count for cell in cells])
    found = assemble_groups(scores_of, atoms, counts, making)
    return found if making.grid is not None else _with_inherited(found, parts)


def finer(delta: float, parts: Sequence[ClientSummary]) -> float:
    """The delta' of the new compression, for which the whole error stays below sin(pi / delta).

    It is an error if the parts are too coarse for this.
    """
    left = math.sin(math.pi / delta) - _inherited(parts)
    if left <= 0:
        coarse = min(s.delta for s in parts if s.delta is not None)
        raise GCFCPError(
            f"delta={delta:g} is too fine for parts of delta={coarse:g}, whose errors add to that "
            f"of the join: give at most {usual_delta(parts):g}, or make the parts with a delta of "
            f"{8 * delta:g}"
        )
    return math.pi / math.asin(left)


def usual_delta(parts: Sequence[ClientSummary]) -> float:
    """Half of the smallest delta of the parts, and a third of it after a stream."""
    coarse = min(s.delta for s in parts if s.delta is not None)
    return max(coarse / (3 if any(s.n > EXACT_ROWS for s in parts) else 2), 2.0)


def _inherited(parts: Sequence[ClientSummary]) -> float:
    """The largest share of a cell by which the digests of the parts can err, whatever the data."""
    return max(s.coarseness * (1.5 if s.n > EXACT_ROWS else 1.0) for s in parts)


def _cells(parts: Sequence[ClientSummary], making: Making) -> tuple[Bools, list[Any]]:
    """The cells of all parts (a, G), and for each what has seen its scores."""
    found = find_atoms(np.concatenate([s.membership for s in parts]))
    places = np.split(found.index, np.cumsum([len(s.errors) for s in parts])[:-1])
    of_cell: list[list[tuple[ClientSummary, int]]] = [[] for _ in range(len(found))]
    for part, indices in zip(parts, places, strict=True):
        for i, cell in enumerate(indices.tolist()):
            of_cell[cell].append((part, i))
    delta = None if making.delta is None else finer(making.delta, parts)
    rows, cells = found.membership, [_seen(pairs, making, delta) for pairs in of_cell]
    if outside := sum(s.uncovered for s in parts):
        rows = np.vstack([np.zeros((1, rows.shape[1]), dtype=np.bool_), rows])
        cells.insert(0, _Outside(outside))
    return rows, cells


def _seen(pairs: list[tuple[ClientSummary, int]], making: Making, delta: float | None) -> Any:
    """A builder, or a counter with a grid, that has seen the scores of one cell in all parts."""
    if making.grid is not None:
        counter = CellCounter(making.grid)
        for part, i in pairs:
            inside = slice(part.start[i], part.start[i + 1])
            counter.counts += counted_cells(making.grid, part.values[inside], part.counts[inside])
        return counter
    assert delta is not None
    digests = [_digest(part, i, making) for part, i in pairs]
    return DigestBuilder.from_digests(
        digests, delta, making.representative, making.min_count, making.limit
    )


def _digest(part: ClientSummary, i: int, making: Making) -> TDigest:
    """The digest of one cell of a part, less the shape of the cell if the part is by atom.

    A shift keeps the order of scores and representatives, also where differences are rounded. So
    neither the direction of the error nor its size changes.
    """
    inside = slice(part.start[i], part.start[i + 1])
    values, counts = part.values[inside], part.counts[inside].astype(np.float64)
    if part.by == "atom" and making.shape is not None:
        cell = np.zeros(len(values), dtype=np.int64)
        values = making.residuals(values, part.membership[i : i + 1], cell)
        first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
        values, counts = values[first], np.add.reduceat(counts, first)
    assert part.delta is not None
    return TDigest(values, counts, part.delta, making.representative, float(part.errors[i]))


def _joined_groups(parts: Sequence[ClientSummary], making: Making) -> ClientSummary:
    """The summary by group of parts by group, of which nothing is hidden."""
    making.refuse_hiding_by_group()
    rows, cells = _cells(parts, making)
    none = (0,) * len(making.groups)
    found = replace(making, epsilon=None).summary(
        rows,
        [making.digest(cell) for cell in cells],
        n=sum(s.n for s in parts),
        suppressed=0,
        suppressed_groups=none,
        strangers=none,
        uncovered=0,
    )
    return found if making.epsilon is None else noisy(found, making)


def _with_inherited(found: ClientSummary, parts: Sequence[ClientSummary]) -> ClientSummary:
    """The same summary by group, whose errors cover those of the parts.

    With a `min_count` the errors of a summary by group are bounds by its counts, and know nothing
    of what was compressed before. What is added is a bound by counts too, and tells no more.
    """
    if found.min_count == 1:
        return found
    more = np.ceil(_inherited(parts) * found.atom_counts).astype(np.int64)
    return replace(found, errors=np.minimum(found.errors + more, found.atom_counts))


def _refuse_source(parts: Sequence[ClientSummary], making: Making) -> None:
    """Raise an error if the shape was made from the join of these very parts.

    A record must not be behind both the shape and the levels. See `client.refuse_sources`.
    """
    before = replace(making, by="atom", shape=None, epsilon=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        source = joined(parts, before).source
    if source in making.shape.sources:
        raise GCFCPError(
            f"{making.client}: the shape was made from these very records, so that nothing would "
            "be promised: give records that the shape has not seen, or use holdout"
        )
