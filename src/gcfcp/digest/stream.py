"""The digest of a stream that may be larger than memory."""

from __future__ import annotations

from collections.abc import Sequence

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
"""How many raw values a `DigestBuilder` holds before it compresses them. They take 8 MB."""

FINER = 8
"""A `DigestBuilder` compresses its buffer with FINER * delta. A level of the stream then adds only
about an eighth of the error that the final compression adds."""

FAN_IN = 64
"""How many digests of one level a `DigestBuilder` merges into one digest of the next level."""


class DigestBuilder:
    """Makes the digest of a stream that may be larger than memory.

    A builder is the only mutable object of `gcfcp.digest`, because a stream can be read only once
    and has no value before its end. The digests that it makes are immutable values like all others.

    Up to `buffer` raw values are held unchanged. While the stream is no longer than that, the
    result is that of `TDigest.from_values`, to the last bit. Each full buffer becomes a digest of
    FINER * delta. FAN_IN of these digests are merged into one of the next level, FAN_IN of those
    into one of the level after it, and so on. It makes no difference how the stream is cut into
    chunks.

    Error: At most sin(pi/delta) + L sin(pi/(FINER delta)), where L is the number of levels: 1 below
    67 million values, 2 below 4.3 billion, and so on. The ``error`` of the digest is the bound for
    the stream itself, and is usually far smaller.

    Memory: 8 bytes for each buffered value, and at most FAN_IN * FINER * delta * 16 bytes for each
    level. At the defaults these are 8 MB and 2 MB. The buffer grows with the stream, and takes up
    to twice its size while it is compressed. If you need thousands of builders at once, give each
    of them a smaller buffer.

    - `delta`, `representative`, `min_count`, `limit`: Those of `TDigest.from_values`.
    - `buffer`: How many raw values are held before they are compressed.
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
        self._delta = checks.delta(delta)
        self._representative = checks.representative(representative)
        self._min_count = least_weight(min_count)
        self._limit = checked_limit(limit)
        self._capacity = checks.whole("buffer", buffer, 1)
        self._room = np.empty(0)
        self._used = 0
        self._compressed = 0
        self._levels: list[list[TDigest]] = []

    @classmethod
    def from_digests(
        cls,
        digests: Sequence[TDigest],
        delta: float = 250,
        representative: Representative = "mean",
        min_count: float = 1,
        limit: float | None = None,
    ) -> DigestBuilder:
        """A builder that has seen the values behind these digests of counts, and no others.

        Its digest is the same in any order of the digests, because all of them are compressed at
        once. It inherits the sum of their errors.
        """
        made = cls(delta, representative, min_count, limit)
        made._compressed = int(sum(d.total for d in digests))
        made._levels = [list(digests)]
        return made

    @property
    def count(self) -> int:
        """How many values have been added."""
        return self._compressed + self._used

    def add(self, chunk: ArrayLike) -> None:
        """Add more values. If one of them cannot be used, an error is raised and none is added."""
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

    def digest(self, less: int = 0) -> TDigest:
        """The digest of all values that have been added. More can be added afterwards.

        - `less`: How many of the largest values are left out.
        """
        return self.digest_of([self], less)

    @staticmethod
    def digest_of(builders: Sequence[DigestBuilder], less: int = 0) -> TDigest:
        """The digest of all values that were added to these builders, which are of one kind.

        - `less`: How many of the largest values are left out.
        """
        if sum(b.count for b in builders) <= less:
            raise GCFCPError("no values were added: a digest needs at least one value")
        first = builders[0]
        options = (first._delta, first._representative, first._min_count, first._limit)
        raw = np.concatenate([b._buffered() for b in builders])
        digests = [d for b in builders for level in b._levels for d in level]
        if not digests:
            raw.sort()
            raw = raw[: len(raw) - less]
            return TDigest(*compress(unit_sample(raw, raw), *options))
        if len(raw):
            digests.append(first._fine_digest(raw))
        if less:
            digests = [digests[0].pool(*digests[1:]).without_largest(less)]
        return TDigest(*compress_digests(digests, first._delta, first._min_count, first._limit))

    def _buffered(self) -> Floats:
        """The raw values that have not been compressed yet."""
        return self._room[: self._used]

    def _reserve(self, size: int) -> None:
        """Make room for `size` values. The room is doubled as needed, so that it starts small."""
        if size > len(self._room):
            room = np.empty(min(max(size, 2 * len(self._room)), self._capacity))
            room[: self._used] = self._buffered()
            self._room = room

    def _fine_digest(self, raw: Floats) -> TDigest:
        """The digest of raw values that have not been compressed yet, with FINER * delta."""
        return TDigest.from_values(raw, FINER * self._delta, representative=self._representative)

    def _compress_buffer(self) -> None:
        """Turn the full buffer into a digest of the first level.

        A level that is full is merged into one digest of the next level, like a carry in addition.
        A value therefore goes through few compressions, however long the stream is.
        """
        carried = self._fine_digest(self._buffered())
        self._compressed += self._used
        self._used = 0
        for level in self._levels:
            level.append(carried)
            if len(level) < FAN_IN:
                return
            carried = level[0].merge(*level[1:])
            level.clear()
        self._levels.append([carried])
