"""One digest of a stream that is larger than memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from gcfcp import checks
from gcfcp.arrays import Floats
from gcfcp.checks import Representative
from gcfcp.digest.clusters import (
    checked_limit,
    compress,
    compress_digests,
    least_weight,
    refuse_above,
    unit_sample,
)
from gcfcp.digest.tdigest import TDigest
from gcfcp.errors import GCFCPError

BUFFER = 2**20
"""Raw values that a `DigestBuilder` holds before it compresses them: 8 MB."""

FINER = 8
"""A `DigestBuilder` compresses its buffer with FINER * delta, so that a level of the stream adds
about an eighth of the error of the final digest."""

FAN_IN = 64
"""Digests of one level of a stream that a `DigestBuilder` merges into one of the next."""


class DigestBuilder:
    """Makes one digest of a stream that is larger than memory.

    A builder is the one mutable object here, because a stream is a process: it can be read once,
    and it has no value before its end. The digests that it makes are values as ever.

    Up to `buffer` raw values are held as they are, and while the stream is no longer than that the
    result is that of `TDigest.from_values`, to the last bit. Each full buffer becomes a digest of
    FINER * delta; FAN_IN of those are merged into one of the next level, and so on. How the stream
    is cut into chunks makes no difference.

    Error: at most sin(pi/delta) + L sin(pi/(FINER delta)) with L = 1 below 67 million values, 2
    below 4.3 billion, and so on; the digest's ``error`` is the bound for the stream itself, and
    usually far smaller.

    Memory: 8 bytes for each buffered value (room grows with what arrives; at most twice `buffer`
    while it is compressed), and at most FAN_IN * FINER * delta * 16 bytes for each level: 8 MB and
    2 MB at the defaults. With thousands of builders at once, give each a smaller buffer.
    """

    def __init__(
        self,
        delta: float = 250,
        representative: Representative = "mean",
        min_count: float = 1,
        limit: float | None = None,
        *,
        buffer: int = BUFFER,
    ) -> None:
        if buffer < 1:
            raise GCFCPError(f"buffer={buffer} is not at least 1: give room for some values")
        self._delta = checks.delta(delta)
        self._representative = checks.representative(representative)
        self._min_count = least_weight(min_count)
        self._limit = checked_limit(limit)
        self._capacity = buffer
        self._room = np.empty(0)
        self._used = 0
        self._compressed = 0
        self._levels: list[list[TDigest]] = []

    @property
    def count(self) -> int:
        """The number of values that were added."""
        return self._compressed + self._used

    def add(self, chunk: ArrayLike) -> None:
        """Take more values; none of a chunk is taken if any of it is unusable."""
        values = checks.series("values", chunk, empty=True)
        checks.refuse_unusable("values", values, self.count)
        refuse_above(values.max(initial=-np.inf), self._limit)
        while len(values):
            if self._used == self._capacity:
                self._compress_buffer()
            taken = values[: self._capacity - self._used]
            self._reserve(self._used + len(taken))
            self._room[self._used : self._used + len(taken)] = taken
            self._used += len(taken)
            values = values[len(taken) :]

    def digest(self) -> TDigest:
        """The digest of everything added so far; more may be added afterwards."""
        options = (self._delta, self._representative, self._min_count, self._limit)
        if not self.count:
            raise GCFCPError("no values were added: a digest needs at least one value")
        if not self._levels:
            sample = unit_sample(np.sort(self._buffered()), self._buffered())
            return TDigest(*compress(sample, *options))
        digests = [digest for level in self._levels for digest in level]
        if self._used:
            digests.append(self._fine_digest())
        return TDigest(*compress_digests(digests, self._delta, self._min_count, self._limit))

    def _buffered(self) -> Floats:
        return self._room[: self._used]

    def _reserve(self, size: int) -> None:
        """Room for `size` values, doubled as needed: many builders stay small."""
        if size > len(self._room):
            room = np.empty(min(max(size, 2 * len(self._room)), self._capacity))
            room[: self._used] = self._buffered()
            self._room = room

    def _fine_digest(self) -> TDigest:
        return TDigest.from_values(
            self._buffered(), FINER * self._delta, representative=self._representative
        )

    def _compress_buffer(self) -> None:
        """Turn the full buffer into a digest, and carry over every level that is full, as in
        counting: a value then goes through few compressions, however long the stream."""
        carried = self._fine_digest()
        self._compressed += self._used
        self._used = 0
        for level in self._levels:
            level.append(carried)
            if len(level) < FAN_IN:
                return
            carried = level[0].merge(*level[1:])
            level.clear()
        self._levels.append([carried])
