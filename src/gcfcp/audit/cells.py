"""The counts of all clients in the groups, or in the atoms: shares, intervals and verdicts.

`coverage` says what is estimated, which intervals these are, and what the verdicts mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.audit.counts import Sets
from gcfcp.audit.record import Audit
from gcfcp.bounds import lower_bound
from gcfcp.groups import find_atoms

KEPT = "kept"
"""The verdict that the coverage is not below 1 - alpha by more than the margin."""

GIVEN_EVERYTHING = "kept, but only by giving everything"
"""The verdict if at least 1 - alpha of the records got a set that holds everything."""

BROKEN = "broken"
"""The verdict that the coverage is below 1 - alpha."""

UNKNOWN = "too few records to tell"
"""The verdict if neither can be shown."""

NO_TARGET = "no target"
"""The verdict if no alpha is known, and that of every atom, because nothing is promised for it."""


@dataclass(frozen=True)
class GroupAudit:
    """What the audits say about one group or one atom."""

    group: str
    # The covered share, weighted by the mixture; None without records, or if the counts that the
    # clients published leave it open.
    coverage: float | None
    low: float  # The lower end of the interval for the coverage.
    high: float  # The upper end of the interval for the coverage.
    covered: int  # How many records were covered at least, over all clients that have weight.
    total: int  # How many records there are at least, over all clients that have weight.
    target: float | None  # 1 - alpha; None if no alpha is known.
    verdict: str  # KEPT, GIVEN_EVERYTHING, BROKEN, UNKNOWN or NO_TARGET.
    mean_size: float | None  # The mean set size under the mixture; inf if a set is unbounded.
    suppressed: bool  # Whether some client that has weight suppressed this group.
    suppressed_at: tuple[str, ...] = ()  # The clients that suppressed it.
    unbounded: int = 0  # How many sets have an infinite size.
    mean_bounded_size: float | None = None  # The mean size of all other sets.
    # The smallest and the largest covered share that agree with the counts. Both are the coverage
    # where it is known, and None without records.
    lowest: float | None = None
    highest: float | None = None
    covered_at_most: int = 0  # How many records may have been covered.
    total_at_most: int = 0  # How many records there may be.
    # Shares of the records, weighted by the mixture; None where they were not counted.
    full: float | None = None  # Those whose set holds every label, or is unbounded.
    infinite: float | None = None  # Those whose threshold is +inf.
    empty: float | None = None  # Those whose set is empty.

    @property
    def found(self) -> str:
        """The coverage for people: a number, the range that the counts leave open, or ""."""
        if self.coverage is not None:
            return f"{self.coverage:.4f}"
        if self.lowest is None or self.highest is None:
            return ""
        # Rounding outwards: the range must not look narrower than it is.
        low, high = math.floor(self.lowest * 1e4) / 1e4, math.ceil(self.highest * 1e4) / 1e4
        return f"between {low:.4f} and {high:.4f}"


@dataclass(frozen=True)
class Cells:
    """The counts of K clients in c cells. The cells are the groups, or the atoms."""

    clients: tuple[str, ...]
    pi: Floats  # (K,): pi_k, the weight of each client in the mixture.
    n: Ints  # (K,): How many records each client audited.
    names: tuple[str, ...]  # The name of each cell.
    least: Ints  # (K, c): How many records there are at least.
    most: Ints  # (K, c): How many records there are at most.
    least_missed: Ints  # (K, c): How many of them were missed at least.
    most_missed: Ints  # (K, c): How many of them were missed at most.
    suppressed: Bools  # (K, c): Whether the client suppresses the cell.
    # (K, c): Whether the counts of the client leave the coverage open. Audits of gcfcp 0.1.0 left
    # suppressed cells out instead.
    open: Bools
    size: Floats | None  # (K, c): The sum of all finite set sizes, if they were counted.
    unbounded: Ints  # (K, c): How many sets have an infinite size.
    # (K, c): How many sets say nothing, as far as all clients counted them.
    sets: Sets = field(default_factory=lambda: Sets(None, None, None))
    # (c,): Whether the predictor gives every record of a cell an infinite threshold.
    everything: Bools | None = None

    @classmethod
    def of_groups(cls, audits: Sequence[Audit], shares: Sequence[float]) -> Cells:
        """The counts by group."""
        ranges = [a.ranges for a in audits]
        sizes = [a.size for a in audits if a.size is not None]
        hidden = [a.suppressed if a.told is None else a.told.total < 0 for a in audits]
        most = np.array([r.most for r in ranges])
        return cls(
            clients=tuple(a.client for a in audits),
            pi=np.array(shares),
            n=np.array([a.n for a in audits]),
            names=audits[0].groups.names,
            least=np.array([r.least for r in ranges]),
            most=most,
            least_missed=np.array([r.least_missed for r in ranges]),
            most_missed=np.array([r.most_missed for r in ranges]),
            suppressed=np.array(hidden) & (most > 0),
            open=np.array(
                [~r.exact & (a.told is not None) for a, r in zip(audits, ranges, strict=True)]
            ),
            size=np.array(sizes) if len(sizes) == len(audits) else None,
            unbounded=np.array([a.unbounded for a in audits]),
            sets=_stacked([a.sets for a in audits]),
            everything=_everything(audits),
        )

    @classmethod
    def of_atoms(cls, audits: Sequence[Audit], shares: Sequence[float]) -> Cells:
        """The counts by atom.

        An atom that a client suppresses counts as having no records at that client. The interval of
        the atom is then about the other clients only.
        """
        groups = audits[0].groups
        atoms = find_atoms(np.concatenate([a.atom_membership for a in audits]))
        client = np.repeat(np.arange(len(audits)), [len(a.atom_total) for a in audits])

        def spread(values: list[NDArray[Any]]) -> NDArray[Any]:
            out = np.zeros((len(audits), len(atoms)), dtype=values[0].dtype)
            out[client, atoms.index] = np.concatenate(values)
            return out

        total = spread([a.atom_total for a in audits])
        missed = total - spread([a.atom_covered for a in audits])
        sizes = [a.atom_size for a in audits if a.atom_size is not None]
        return cls(
            clients=tuple(a.client for a in audits),
            pi=np.array(shares),
            n=np.array([a.n for a in audits]),
            names=tuple(" & ".join(groups.names_of(row)) for row in atoms.membership),
            least=total,
            most=total,
            least_missed=missed,
            most_missed=missed,
            suppressed=np.zeros(total.shape, dtype=np.bool_),
            open=np.zeros(total.shape, dtype=np.bool_),
            size=spread(sizes) if len(sizes) == len(audits) else None,
            unbounded=spread([a.atom_unbounded for a in audits]),
        )

    @property
    def _weighted(self) -> Bools:
        """Which clients have weight in the mixture, (K,)."""
        return self.pi > 0

    @cached_property
    def _v(self) -> Floats:
        """v_k = pi_k / n_k, the weight of one record of each client, (K,)."""
        return self.pi / self.n

    @cached_property
    def _least_covered(self) -> Ints:
        """How many records were covered at least, (K, c)."""
        least: Ints = np.maximum(self.least - self.most_missed, 0)
        return least

    @cached_property
    def _most_covered(self) -> Ints:
        """How many records were covered at most, (K, c)."""
        return self.most - self.least_missed

    def records(
        self, tail: float, alpha: float | None, margin: float | None
    ) -> tuple[GroupAudit, ...]:
        """One record for each cell.

        - `tail`: The probability with which each end of an interval may fail.
        - `alpha`, `margin`: What the verdict compares the interval with; None if there is none.
        """
        low, high = self._intervals(tail)
        return tuple(
            self._record(g, float(low[g]), float(high[g]), alpha, margin)
            for g in range(len(self.names))
        )

    def _intervals(self, tail: float) -> tuple[Floats, Floats]:
        """The lower and the upper end of the interval of each cell, from clients with weight.

        Hidden records count as missed at the lower end and as covered at the upper end.
        """
        has_weight = self._weighted

        def bound(hits: Ints, misses: Ints) -> Floats:
            v, n = self._v[has_weight], self.n[has_weight]
            return lower_bound(hits[has_weight], misses[has_weight], v, n, tail)

        low = bound(self._least_covered, self.most_missed)
        high = 1 - bound(self.least_missed, self._most_covered)
        # The subtraction may have rounded down, so the upper end is the next number towards 1.
        return low, np.nextafter(high, 1.0)

    def _record(
        self, g: int, low: float, high: float, alpha: float | None, margin: float | None
    ) -> GroupAudit:
        """The record of cell g, whose interval is [low, high]."""
        has_weight = self._weighted
        lowest = self._share(g, self._least_covered, self.most_missed)
        highest = self._share(g, self._most_covered, self.least_missed)
        if self.open[has_weight, g].any():
            coverage = None
            lowest, highest = lowest or 0.0, 1.0 if highest is None else highest
        else:
            # Cells that audits of gcfcp 0.1.0 suppress have no records here.
            hits = np.where(self.suppressed, 0, self._least_covered)
            coverage = self._share(g, hits, np.where(self.suppressed, 0, self.least_missed))
        # The estimate lies in its interval. This makes sure that rounding does not change that.
        known = [x for x in (coverage, lowest, highest) if x is not None]
        low, high = min([low, *known]), max([high, *known])
        suppressed_at = tuple(
            self.clients[k] for k in np.flatnonzero(self.suppressed[:, g] & has_weight)
        )
        bounded = self._mean_size(g)
        unbounded = int(self.unbounded[has_weight, g].sum())
        full, empty, infinite = (self._part(g, array) for array in self.sets.arrays)
        if full is None and unbounded:
            full = self._part(g, self.unbounded)
        given = max(full or 0.0, infinite or 0.0)

        def summed(counts: Ints) -> int:
            return int(counts[has_weight, g].sum())

        return GroupAudit(
            group=self.names[g],
            coverage=coverage,
            low=low,
            high=high,
            covered=summed(self._least_covered),
            total=summed(self.least),
            target=None if alpha is None else 1 - alpha,
            verdict=verdict(
                low, high, alpha, margin, given, self._gives_everything(g, summed(self.most_missed))
            ),
            mean_size=math.inf if unbounded else bounded,
            suppressed=bool(suppressed_at),
            suppressed_at=suppressed_at,
            unbounded=unbounded,
            mean_bounded_size=bounded,
            lowest=lowest,
            highest=highest,
            covered_at_most=summed(self._most_covered),
            total_at_most=summed(self.most),
            full=full,
            infinite=infinite,
            empty=empty,
        )

    def _gives_everything(self, g: int, missed: int) -> bool:
        """Whether every record of a cell gets everything; not if one of them was missed."""
        said = self.everything is not None and bool(self.everything[g])
        return said and (missed == 0 or bool(self.open[self._weighted, g].any()))

    def _part(self, g: int, counts: Ints | None) -> float | None:
        """The share of these among the records of cell g, weighted by the mixture.

        It is None without records, and if they were not counted.
        """
        weight = float(self._v @ self.least[:, g])
        if counts is None or not weight > 0:
            return None
        return min(1.0, float(self._v @ counts[:, g]) / weight)

    def _share(self, g: int, hits: Ints, misses: Ints) -> float | None:
        """sum_k v_k hits_k / sum_k v_k (hits_k + misses_k) in cell g; None without records."""
        weight = float(self._v @ (hits[:, g] + misses[:, g]))
        return float(self._v @ hits[:, g]) / weight if weight > 0 else None

    def _mean_size(self, g: int) -> float | None:
        """The mean of all finite set sizes, weighted by the mixture; None if there are none."""
        if self.size is None:
            return None
        weight = float(self._v @ (self.least[:, g] - self.unbounded[:, g]))
        return float(self._v @ self.size[:, g]) / weight if weight > 0 else None


def _stacked(sets: Sequence[Sets | None]) -> Sets:
    """The counts of all clients, (K, G), of what all of them counted."""
    known = [one for one in sets if one is not None]
    if len(known) < len(sets):
        return Sets(None, None, None)

    def stacked(arrays: Sequence[Ints | None]) -> Ints | None:
        given = [array for array in arrays if array is not None]
        return np.array(given) if len(given) == len(arrays) else None

    return Sets(*(stacked(arrays) for arrays in zip(*(s.arrays for s in known), strict=True)))


def _everything(audits: Sequence[Audit]) -> Bools | None:
    """In which groups every record gets everything; None if no audit says so.

    All audits are of one predictor, and so they agree. If they do not, somebody is wrong, and
    nothing is claimed.
    """
    said = [a.everything for a in audits if a.everything is not None]
    return np.all(said, axis=0) if said else None


def verdict(
    low: float,
    high: float,
    alpha: float | None,
    margin: float | None,
    given: float = 0.0,
    everything: bool = False,
) -> str:
    """The verdict on an interval [low, high]; see the module.

    - `given`: The share of the records that got a set that holds everything.
    - `everything`: Whether every record of the group gets such a set from the predictor.
    """
    if alpha is None:
        return NO_TARGET
    if high < 1 - alpha:
        return BROKEN
    kept = low >= 1 - alpha - (margin or 0.0)
    if everything or (kept and given >= 1 - alpha):
        return GIVEN_EVERYTHING
    return KEPT if kept else UNKNOWN
