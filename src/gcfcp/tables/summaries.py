"""The summary of a table.

Guarantee: up to `EXACT_ROWS` records the summary is that of `gcfcp.summarize` over the whole table,
to the last bit. Beyond, each atom goes through a `DigestBuilder`, whose error certificate the
summary carries. Batches and their sizes change nothing in either, nor in randomised scores.

Cost: one pass. Memory: `EXACT_ROWS` scores (128 MB), a batch, and the builders' buffers, whatever
the size of the table. Measured in benchmarks/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator

from gcfcp import checks
from gcfcp.arrays import Bools, Floats
from gcfcp.checks import Representative
from gcfcp.digest import DigestBuilder
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, find_atoms
from gcfcp.summary import ClientSummary, assemble, rounding_limit
from gcfcp.tables.files import Table
from gcfcp.tables.passes import Progress, Rows, batches
from gcfcp.tables.scoring import Scoring

EXACT_ROWS = 2**24
"""Scores that are held as they are before digests take over."""
BUFFERED = 2**26
"""Scores that all builders together may hold once they have."""


def summarize_table(
    table: Table,
    by: Scoring,
    *,
    groups: Groups,
    client: str,
    delta: float = 250,
    representative: Representative = "upper",
    min_count: int = 1,
    model: str | None = None,
    missing: str = "error",
    rng: Generator | None = None,
    progress: Progress | None = None,
) -> tuple[ClientSummary, Rows]:
    """`gcfcp.summarize` of a table, and how many records it has."""
    columns = by.columns if by.kind == "column" else ("y", *by.columns)
    min_count = checks.min_count(min_count)
    limit = rounding_limit(by.score, representative, min_count)

    def builder(buffer: int) -> DigestBuilder:
        return DigestBuilder(delta, representative, min_count, limit, buffer=buffer)

    held = _Held(builder)
    rows = Rows()
    for batch in batches(table, groups, columns, by.types(), missing, progress):
        with batch.located():
            held.add(by.of(batch.frame, rng), batch.membership)
        rows = batch.rows
    by_atom, membership = held.finish()
    summary = assemble(
        by_atom,
        membership,
        groups=groups,
        client=client,
        delta=delta,
        representative=representative,
        min_count=min_count,
        score=by.score,
        model=model,
    )
    return summary, rows


class _Held:
    """Scores by atom: as they are at first, in builders once there are too many. Mutable, as a
    stream is a process."""

    def __init__(self, builder: Callable[[int], DigestBuilder]) -> None:
        self._builder = builder
        self._membership: dict[bytes, Bools] = {}
        self._chunks: dict[bytes, list[Floats]] = {}
        self._builders: dict[bytes, DigestBuilder] | None = None
        self._count = 0
        self._buffer = 0

    def add(self, values: Floats, membership: Bools) -> None:
        if not len(values):
            return
        atoms = find_atoms(membership)
        order = np.argsort(atoms.index, kind="stable")
        ends = np.cumsum(atoms.counts)
        for row, part in zip(atoms.membership, np.split(values[order], ends[:-1]), strict=True):
            key = row.tobytes()
            self._membership.setdefault(key, row)
            if self._builders is None:
                self._chunks.setdefault(key, []).append(part)
            else:
                self._of(key).add(part)
        self._count += len(values)
        if self._builders is None and self._count > EXACT_ROWS:
            self._turn_into_builders()

    def _of(self, key: bytes) -> DigestBuilder:
        assert self._builders is not None
        if key not in self._builders:
            self._builders[key] = self._builder(self._buffer)
        return self._builders[key]

    def _turn_into_builders(self) -> None:
        self._builders = {}
        self._buffer = max(2**12, min(2**20, BUFFERED // len(self._membership)))
        for key in list(self._chunks):
            for part in self._chunks.pop(key):
                self._of(key).add(part)

    def finish(self) -> tuple[list[Any], Bools]:
        keys = sorted(self._membership)  # of bool rows: the order of their packed keys
        if not keys:
            raise GCFCPError("there are no scores: a client needs at least one record")
        if self._builders is None:
            by_atom: list[Any] = [np.concatenate(self._chunks.pop(key)) for key in keys]
        else:
            by_atom = [self._builders[key] for key in keys]
        return by_atom, np.array([self._membership[key] for key in keys])
