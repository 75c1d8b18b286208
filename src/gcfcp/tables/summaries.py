"""The summary of a table, which may be larger than memory.

Guarantee: up to `EXACT_ROWS` records (16.8 million) the summary is bit for bit the one that
`gcfcp.summarize` makes of the whole table. Beyond that, the scores of each cell (an atom, or a
group) go through a `DigestBuilder`, and the summary carries its certificate of error. How the table
is cut into batches changes nothing in the scores, not even in randomised ones, nor in an exact
summary. With a grid the summary is exact for any number of records, because counts add up.

Cost: one pass over the table. Memory: `EXACT_ROWS` scores (128 MB), one batch, and the builders'
buffers, whatever the size of the table. benchmarks/ measures both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.digest import DigestBuilder
from gcfcp.errors import GCFCPError
from gcfcp.groups import find_atoms
from gcfcp.summary import (
    EXACT_ROWS,
    CellCounter,
    ClientSummary,
    Making,
    assemble,
    assemble_groups,
    held_out,
    refuse_empty,
    refuse_sources,
)
from gcfcp.tables.files import Source, Table
from gcfcp.tables.passes import Pass, Progress, Rows, scan
from gcfcp.tables.scoring import Scoring

BUFFERED = 2**26
"""The most scores that may wait in the buffers of all digest builders together."""


def summarize_table(
    table: Table,
    by: Scoring,
    making: Making,
    *,
    missing: str = "error",
    rng: Generator | None = None,
    holdout: float | None = None,
    holdout_rng: Generator | None = None,
    progress: Progress | None = None,
) -> tuple[tuple[ClientSummary, ...], Rows]:
    """Summarise a table; up to `EXACT_ROWS` records the result equals that of `gcfcp.summarize`.

    table: The calibration records of this site.
    by: Which columns make the scores; see `scoring`.
    making: How the summary is made: groups, client, delta and so on.
    missing: "error" refuses a table in which a value is missing, "drop" leaves out such rows.
    rng: The generator for randomised scores, and None for all others.
    holdout: The share of the records that goes into a summary of its own; see `gcfcp.summarize`.
    holdout_rng: The generator that draws these records.
    progress: It is called with the number of rows read so far, after each batch.

    Returns one summary, or the shape part and the level part with `holdout`, and how many rows were
    read and left out.
    """
    found = Pass()
    makings = [making] if holdout is None else [making.for_shape(), making]
    parts = _held(table, by, makings, found, missing, rng, holdout, holdout_rng, progress)
    found.end(table.name, missing)
    if holdout is not None:
        refuse_empty(parts[1].empty, parts[0].empty, holdout)
    return tuple(part.summary() for part in parts), found.rows


def summarize_part(
    part: Source,
    by: Scoring,
    makings: Sequence[Making],
    found: Pass,
    *,
    missing: str = "error",
    rng: Generator | None = None,
    holdout: float | None = None,
    holdout_rng: Generator | None = None,
) -> tuple[ClientSummary | None, ...]:
    """Summarise a part of a site's records, such as a partition of a cluster.

    Nothing is judged that depends on other parts: what the pass has found is left in `found`, and a
    summary that would have no records is None.

    makings: How the summary is made; with `holdout` that of the shape part comes first.
    """
    parts = _held(part, by, makings, found, missing, rng, holdout, holdout_rng, None)
    return tuple(None if held.empty else held.summary() for held in parts)


def summarize_counted(
    part: Source, cell: str, number: str, making: Making, found: Pass, missing: str = "error"
) -> ClientSummary | None:
    """Summarise a part of which equal rows have been counted, on the grid of `making`.

    The summary is that of `summarize_part` for the rows themselves.

    - `cell`: The column with the place of a row's score on the grid. It is missing where a value is
      missing that the score needs.
    - `number`: The column that says how many records a row stands for.
    """
    held = _Held(making)
    site = making.client if making.groups.sites else None
    for batch in scan(part, making.groups, (cell,), {}, missing, None, (number,), site, found):
        with batch.located():
            making.refuse_absent(batch.membership)
        scores = making.grid.points[batch.frame[cell].to_numpy()]
        held.add(scores, batch.membership, batch.frame[number].to_numpy())
    return None if held.empty else held.summary()


def _held(
    table: Source,
    by: Scoring,
    makings: Sequence[Making],
    found: Pass,
    missing: str,
    rng: Generator | None,
    holdout: float | None,
    holdout_rng: Generator | None,
    progress: Progress | None,
) -> list[_Held]:
    """The scores of a table, divided into the shape part and the level part with `holdout`."""
    making = makings[-1]
    if holdout is not None:
        making.refuse_holdout()
    columns = by.columns if by.kind == "column" else ("y", *by.columns)
    site = making.client if making.groups.sites else None
    parts = [_Held(how) for how in makings]
    for batch in scan(
        table, making.groups, columns, by.types(), missing, progress, (), site, found
    ):
        with batch.located():
            making.refuse_absent(batch.membership)
            values = by.of(batch.frame, rng)
            if holdout is None:
                parts[0].add(values, batch.membership)
            else:
                held = held_out(len(values), holdout, holdout_rng)
                parts[0].add(values[held], batch.membership[held])
                parts[1].add(values[~held], batch.membership[~held])
    return parts


class _Held:
    """The scores by cell: unchanged at first, and in digest builders once there are too many.

    The object changes with every batch, because it follows a stream. As long as scores are held
    unchanged they are held by atom, whose key is its row of the membership matrix as bytes. By
    group, the digest of a group is made of its atoms at the end.
    """

    def __init__(self, making: Making) -> None:
        self._making = making
        self._membership: dict[bytes, Bools] = {}
        self._counts: dict[bytes, int] = {}
        self._chunks: dict[bytes, list[Floats]] = {}
        self._builders: dict[bytes, DigestBuilder | CellCounter] | None = None
        self._buffer = 0

    @property
    def empty(self) -> bool:
        """Whether there are no records."""
        return not self._counts

    def add(self, values: Floats, membership: Bools, numbers: Ints | None = None) -> None:
        """Take the scores of one batch, in the order of its rows.

        - `numbers`: With a grid, how many records each score is that of. By default it is one.
        """
        if not len(values):
            return
        if numbers is not None and self._builders is None:
            self._builders = {}
        atoms = find_atoms(membership)
        order = np.argsort(atoms.index, kind="stable")
        ends = np.cumsum(atoms.counts)
        parts = np.split(values[order], ends[:-1])
        of_parts = [None] * len(parts) if numbers is None else np.split(numbers[order], ends[:-1])
        for row, part, of_part in zip(atoms.membership, parts, of_parts, strict=True):
            key, records = row.tobytes(), len(part) if of_part is None else int(of_part.sum())
            self._membership.setdefault(key, row)
            self._counts[key] = self._counts.get(key, 0) + records
            if self._builders is None:
                self._chunks.setdefault(key, []).append(part)
            else:
                self._build(key, part, of_part)
        if self._builders is None and sum(self._counts.values()) > EXACT_ROWS:
            self._turn_into_builders()

    def _build(self, key: bytes, part: Floats, numbers: Ints | None = None) -> None:
        """Add scores of one atom to its builder, less the shape if there is one."""
        assert self._builders is not None
        if key not in self._builders:
            self._builders[key] = self._making.builder(self._buffer)
        builder, residuals = self._builders[key], self._residuals(part, self._membership[key])
        if numbers is None:
            builder.add(residuals)
        else:
            assert isinstance(builder, CellCounter)
            builder.add(residuals, numbers)

    def _residuals(self, part: Floats, row: Bools) -> Floats:
        """The scores of one atom less its shape; the scores themselves by atom."""
        return self._making.residuals(part, row[None], np.zeros(len(part), dtype=np.int64))

    def _turn_into_builders(self) -> None:
        """Move all scores that are held into digest builders, in the order in which they came."""
        self._builders = {}
        self._buffer = max(2**12, min(2**20, BUFFERED // len(self._membership)))
        for key in list(self._chunks):
            for part in self._chunks.pop(key):
                self._build(key, part)

    def summary(self) -> ClientSummary:
        """The summary of all scores."""
        # Sorted by the bytes of their rows, atoms are in the order that `find_atoms` gives them.
        keys = sorted(self._membership)
        if not keys:
            raise GCFCPError("there are no scores: a client needs at least one record")
        atoms = np.array([self._membership[key] for key in keys])
        making = self._making
        cells: list[Any]
        if self._builders is None:
            cells = [np.concatenate(self._chunks.pop(key)) for key in keys]
        else:
            cells = [self._builders[key] for key in keys]
        if making.by == "atom":
            return assemble(cells, atoms, making)
        if self._builders is None:
            if making.shape is not None and making.shape.sources:
                refuse_sources(cells, atoms, making)
            cells = [self._residuals(part, row) for part, row in zip(cells, atoms, strict=True)]

        def scores_of(inside: Bools) -> Any:
            chosen = [cells[i] for i in np.flatnonzero(inside)]
            return chosen if self._builders is not None else np.sort(np.concatenate(chosen))

        return assemble_groups(
            scores_of, atoms, np.array([self._counts[key] for key in keys]), making
        )
