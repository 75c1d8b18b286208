"""The summary of a table, which may be larger than memory.

Guarantee: up to `EXACT_ROWS` records (16.8 million) the summary is bit for bit the one that
`gcfcp.summarize` makes of the whole table. Beyond that, the scores of each atom go through a
`DigestBuilder`, and the summary carries its certificate of error. How the table is cut into batches
changes nothing in the scores, not even in randomised ones, nor in an exact summary.

Cost: one pass over the table. Memory: `EXACT_ROWS` scores (128 MB), one batch, and the builders'
buffers, whatever the size of the table. benchmarks/ measures both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.random import Generator

from gcfcp import checks
from gcfcp.arrays import Bools, Floats
from gcfcp.checks import Representative
from gcfcp.digest import DigestBuilder
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, find_atoms
from gcfcp.summary import ClientSummary, assemble, declared, refuse_absent, rounding_limit
from gcfcp.tables.files import Table
from gcfcp.tables.passes import Progress, Rows, batches
from gcfcp.tables.scoring import Scoring

EXACT_ROWS = 2**24
"""The most scores of a table that are held unchanged; beyond that, digests take over."""
BUFFERED = 2**26
"""The most scores that may wait in the buffers of all digest builders together."""


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
    absent: Iterable[str] = (),
    missing: str = "error",
    rng: Generator | None = None,
    progress: Progress | None = None,
) -> tuple[ClientSummary, Rows]:
    """Summarise a table; up to `EXACT_ROWS` records the result equals that of `gcfcp.summarize`.

    table: The calibration records of this site.
    by: Which columns make the scores; see `scoring`.
    groups: The family of groups, the same at every site.
    client: The name of this site. If the groups have sites, it is one of them.
    delta: How fine the digests are; about delta / 2 clusters for each atom.
    representative: "upper" (a cluster's largest score) or "mean".
    min_count: Nothing that stands for fewer records than this is in the summary.
    model: The fingerprint of the model, or None.
    absent: The groups that this site cannot have; a record that belongs to one is an error.
    missing: "error" refuses a table in which a value is missing, "drop" leaves out such rows.
    rng: The generator for randomised scores, and None for all others.
    progress: It is called with the number of rows read so far, after each batch.

    Returns the summary, and how many rows were read and left out.
    """
    columns = by.columns if by.kind == "column" else ("y", *by.columns)
    min_count, absent = checks.min_count(min_count), declared(groups, absent)
    site = client if groups.sites else None
    limit = rounding_limit(by.score, representative, min_count)

    def builder(buffer: int) -> DigestBuilder:
        return DigestBuilder(delta, representative, min_count, limit, buffer=buffer)

    held = _Held(builder)
    rows = Rows()
    for batch in batches(table, groups, columns, by.types(), missing, progress, site=site):
        with batch.located():
            refuse_absent(groups, absent, batch.membership)
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
        absent=absent,
    )
    return summary, rows


class _Held:
    """The scores by atom: unchanged at first, and in digest builders once there are too many.

    The object changes with every batch, because it follows a stream. An atom's key is its row of
    the membership matrix as bytes.
    """

    def __init__(self, builder: Callable[[int], DigestBuilder]) -> None:
        self._builder = builder
        self._membership: dict[bytes, Bools] = {}
        self._chunks: dict[bytes, list[Floats]] = {}
        self._builders: dict[bytes, DigestBuilder] | None = None
        self._count = 0
        self._buffer = 0

    def add(self, values: Floats, membership: Bools) -> None:
        """Take the scores of one batch, in the order of its rows."""
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
        """The digest builder of an atom, made when the atom first occurs."""
        assert self._builders is not None
        if key not in self._builders:
            self._builders[key] = self._builder(self._buffer)
        return self._builders[key]

    def _turn_into_builders(self) -> None:
        """Move all scores that are held into digest builders, in the order in which they came."""
        self._builders = {}
        self._buffer = max(2**12, min(2**20, BUFFERED // len(self._membership)))
        for key in list(self._chunks):
            for part in self._chunks.pop(key):
                self._of(key).add(part)

    def finish(self) -> tuple[list[Any], Bools]:
        """For each atom its scores or its builder, and the atoms' rows of memberships."""
        # Sorted by the bytes of their rows, atoms are in the order that `find_atoms` gives them.
        keys = sorted(self._membership)
        if not keys:
            raise GCFCPError("there are no scores: a client needs at least one record")
        if self._builders is None:
            by_atom: list[Any] = [np.concatenate(self._chunks.pop(key)) for key in keys]
        else:
            by_atom = [self._builders[key] for key in keys]
        return by_atom, np.array([self._membership[key] for key in keys])
