"""What a summary tells about the records behind it, counted before the summary is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gcfcp import checks
from gcfcp import scores as known_scores
from gcfcp.checks import counted
from gcfcp.digest import ROUNDED_ZERO, is_rounded
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from gcfcp.summary.summary import ClientSummary

# gcfcp 0.1.0 rounded maxima up to this number of bits, without a tail; and a score of 0 to this.
_OLD_BITS, _OLD_ZERO = 12, 2.0**-1033


@dataclass(frozen=True)
class Disclosure:
    """What a summary tells about the records behind it, in numbers."""

    client: str
    records: int  # All records of the client, n_k.
    atoms: int  # How many cells are described: atoms, or groups in a summary by group.
    centroids: int  # How many centroids describe them.
    smallest_atom: int  # The records of the smallest cell that is described, or 0 without any.
    smallest_centroid: int  # The records that the smallest centroid stands for, or 0 without any.
    exact_scores: int  # How many centroids are, or may be, the exact score of some record.
    suppressed: int  # How many records count as +inf beside the described; not told by group.
    uncovered: int  # How many records belong to no group; not told by group.
    min_count: int  # The smallest number of records that a cell or a centroid may stand for.
    bytes: int  # The size of the file.
    absent: tuple[str, ...] = ()  # The groups of which the client says that it cannot have them.
    sites: tuple[str, ...] = ()  # The sites to which the records belong, if sites are groups.
    by: str = "atom"  # What the cells are: "atom" or "group".
    hidden: tuple[str, ...] = ()  # By group: the groups of which only "few or none" is told.
    shape: str | None = None  # The fingerprint of the shape that was subtracted from the scores.
    grid: str | None = None  # The fingerprint of the grid on which records are counted.
    epsilon: float | None = None  # The privacy loss of one record, if all counts have noise.

    def __str__(self) -> str:
        """The numbers in sentences, for people."""
        raw = 8 * self.records
        if self.epsilon is not None:
            return self._noisy(raw)
        shown = (
            f"{counted(self.atoms, f'{self.by} is', f'{self.by}s are')} described, the smallest of "
            f"{counted(self.smallest_atom, 'record')}"
            if self.atoms
            else f"no {self.by} is described"
        )
        return (
            f"{self.client}: {self.bytes:,} bytes leave for {counted(self.records, 'record')} "
            f"({raw:,} bytes of scores stay)\n"
            f"  {shown}\n"
            f"  {self._values()}\n"
            f"  {self._withheld()}{self._declared()}"
        )

    def _noisy(self, raw: int) -> str:
        """The sentences about a summary with noise."""
        return (
            f"{self.client}: {self.bytes:,} bytes leave for {counted(self.records, 'record')} "
            f"({raw:,} bytes of scores stay)\n"
            f"  {self.centroids:,} counts, one for each cell of the public grid "
            f"{str(self.grid)[:8]}.. and each of {self.atoms:,} {self.by}s that are possible, "
            "whether it has records or not\n"
            f"  every count has noise: one record more or less changes the probability of this "
            f"summary by at most the factor e^{self.epsilon:g}, and another record in its place by "
            f"the square of that\n"
            "  exact are only the number of all records and what the site declares"
            f"{self._declared()}"
        )

    def _values(self) -> str:
        """What the values are, and how few records one of them stands for."""
        if self.grid is not None:
            return (
                f"{self.centroids:,} cells of the public grid {self.grid[:8]}.. hold records, the "
                f"smallest {self.smallest_centroid:,}; no score is told, only in which cell it lies"
            )
        exact = counted(self.exact_scores, "holds", "hold") if self.exact_scores else "none holds"
        return (
            f"{counted(self.centroids, 'centroid')}, the smallest of "
            f"{counted(self.smallest_centroid, 'record')}; {exact} a record's exact score"
            f"{self._rounding()}"
        )

    def _rounding(self) -> str:
        """What a reader can do about rounded values."""
        if self.min_count == 1 or not self.centroids:
            return ""
        return (
            "\n  values are rounded up by at most 0.05 %: whoever knows that scores lie on a "
            "coarser grid, such as two decimals, can undo that"
        )

    def _withheld(self) -> str:
        """What is not described, and what is told of it."""
        if self.by == "atom":
            what = counted(
                self.suppressed,
                "record is in an atom below it and counts as a score of +inf",
                "records are in atoms below it and count as scores of +inf",
            )
            if self.min_count > 1 and self.suppressed:
                what = counted(
                    self.suppressed, "record counts as a score", "records count as scores"
                )
                what += " of +inf: those in atoms below it, and others that hide how many these are"
            outside = counted(self.uncovered, "record belongs", "records belong")
            return f"min_count is {self.min_count}; {what}\n  {outside} to no group"
        text = f"min_count is {self.min_count}; "
        if self.hidden:
            text += (
                "of these groups it is only told that they have few records or none: "
                f"{checks.listed(self.hidden)}"
            )
        else:
            text += "no group is hidden"
        less = "themselves" if self.shape is None else f"less the shape {self.shape[:8]}.."
        return f"{text}\n  the values are the scores {less}"

    def _declared(self) -> str:
        """What the client says about itself: its sites, and the groups that it cannot have."""
        sites = f"\n  the records belong to the groups of the sites {checks.listed(self.sites)}"
        absent = f"\n  no record can belong to the groups {checks.listed(self.absent)}"
        return (sites if self.sites else "") + (absent if self.absent else "")


def disclosure_of(summary: ClientSummary) -> Disclosure:
    """What leaves the site with this summary."""
    return Disclosure(
        client=summary.client,
        records=summary.n,
        atoms=len(summary.errors),
        centroids=len(summary.values),
        smallest_atom=int(summary.atom_counts.min()) if len(summary.errors) else 0,
        smallest_centroid=int(summary.counts.min()) if len(summary.counts) else 0,
        exact_scores=_exact_scores(summary),
        suppressed=summary.suppressed,
        uncovered=summary.uncovered,
        min_count=summary.min_count,
        bytes=len(summary.to_bytes()),
        absent=summary.absent,
        sites=tuple(name for name, _ in summary.members) if summary.groups.sites else (),
        by=summary.by,
        hidden=hidden_groups(summary),
        shape=None if summary.shape is None else summary.shape.fingerprint,
        grid=None if summary.grid is None else summary.grid.fingerprint,
        epsilon=None if summary.noise is None else summary.noise.epsilon,
    )


def hidden_groups(summary: ClientSummary) -> tuple[str, ...]:
    """The groups that a summary by group hides, at some member at least."""
    if summary.by == "atom":
        return ()
    return summary.groups.names_of(np.array(summary.suppressed_groups) > 0)


def _exact_scores(summary: ClientSummary) -> int:
    """How many centroids are, or may be, the exact score of some record.

    Without a `min_count`, a maximum is the score of a record, and the mean of one record is its
    score. (So is the mean of several if all of them are equal, but nobody can tell this from the
    summary.) With one, representatives are rounded (see `digest.ROUNDED_BITS`). Then a value is
    counted if it was not rounded, as the means of gcfcp 0.1.0 were not; if it stands for a score of
    0, which can be recognised; and if it is the upper limit of the score, at which rounding stops.
    (The maxima of gcfcp 0.1.0 were rounded to numbers that scores with few bits can be as well.)
    The edges of a grid are everybody's and no record's. (Where scores themselves lie on the edges,
    as counts of the form 1/10 do on a grid of tenths, a cell tells the score.)
    """
    if summary.grid is not None:
        return 0
    values = summary.values
    if summary.min_count == 1:
        mean = summary.representative == "mean"
        return int(np.count_nonzero(summary.counts == 1)) if mean else len(values)
    rounded = is_rounded(values)
    if summary.representative == "upper":
        bits = np.ldexp(np.frexp(values)[0], _OLD_BITS)
        rounded |= bits == np.floor(bits)
    zero = (values == ROUNDED_ZERO) | (values == _OLD_ZERO)
    shown = (~rounded | zero | (values == _most(summary))) & np.isfinite(values)
    return int(np.count_nonzero(shown))


def _most(summary: ClientSummary) -> float:
    """The upper limit of the score, if it is known and finite; NaN otherwise."""
    try:
        score: Any = known_scores.from_name(summary.score, summary.parameters)
    except GCFCPError:
        return math.nan  # This score is the caller's own.
    limited = summary.shape is None and math.isfinite(score.upper)
    return float(score.upper) if limited else math.nan
