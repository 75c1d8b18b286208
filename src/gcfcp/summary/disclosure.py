"""What a summary tells about the records behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gcfcp.digest import ROUNDED_BITS

if TYPE_CHECKING:
    from gcfcp.summary.summary import ClientSummary

_ROUNDED_ZERO = 2.0 ** (-1021 - ROUNDED_BITS)  # A maximum of exactly 0 is rounded up to this.


@dataclass(frozen=True)
class Disclosure:
    """What a summary tells about the records behind it, in numbers."""

    client: str
    records: int
    atoms: int
    centroids: int
    smallest_atom: int  # records in the smallest atom that is described; 0 if there is none
    smallest_centroid: int  # records that the smallest centroid stands for; 0 if there is none
    exact_scores: int  # centroids known to hold some record's exact score
    suppressed: int  # records in atoms that are too small to be described
    uncovered: int  # records in no group
    min_count: int
    bytes: int

    def __str__(self) -> str:
        raw = 8 * self.records
        shown = (
            f"{self.atoms:,} atoms are described, the smallest of {self.smallest_atom:,} records"
            if self.atoms
            else "no atom is described"
        )
        exact = f"{self.exact_scores:,} hold" if self.exact_scores else "none holds"
        return (
            f"{self.client}: {self.bytes:,} bytes leave for {self.records:,} records "
            f"({raw:,} bytes of scores stay)\n"
            f"  {shown}\n"
            f"  {self.centroids:,} centroids, the smallest of {self.smallest_centroid:,} records; "
            f"{exact} a record's exact score\n"
            f"  min_count is {self.min_count}; {self.suppressed:,} records are in atoms below it "
            f"and count as scores of +inf\n"
            f"  {self.uncovered:,} records belong to no group"
        )


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
    )


def _exact_scores(summary: ClientSummary) -> int:
    """How many centroids are known to hold some record's exact score.

    A maximum is a record's score unless it was rounded up, and zero shows through the rounding (see
    `digest.ROUNDED_BITS`). The mean of one record is its score. The mean of several records is a
    score if all of them are equal, which nobody can tell from here.
    """
    if summary.representative == "mean":
        return int(np.count_nonzero(summary.counts == 1))
    if summary.min_count == 1:
        return len(summary.values)
    return int(np.count_nonzero(summary.values == _ROUNDED_ZERO))
