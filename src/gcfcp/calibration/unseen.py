"""How a site would fare that takes no part: each site is left out once, and looked at afterwards.

Nothing can be promised for a site that takes no part in the calibration, because its records may be
unlike all others. It can be shown how the present sites would have fared in that place: the
predictor is made without a site, and its thresholds are compared with that site's summary. No
further round is needed.

The coverage of a group at the site is a lower end: a record counts as covered only if the number
that stands for its score is at most the threshold. With `upper` representatives such a record is
covered. With `mean` representatives the certified error of the digest is taken off. Suppressed
records count as missed. If the groups include one for each site, the rows of the left-out site are
treated as those of no site.

For summaries by group, a record counts as covered in a group if its residual is at most the level
of that group. The record may have a higher level by another group, so that this is a lower end too.

Cost: one calibration for each client.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.calibration.noisy import has_noise
from gcfcp.calibration.reasons import cells_of
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.summary import ClientSummary
from gcfcp.thresholds import ThresholdTable

if TYPE_CHECKING:
    from gcfcp.calibration.server import Calibration


@dataclass(frozen=True)
class UnseenSite:
    """What a predictor that was made without a site does at that site, in one group."""

    client: str
    group: str
    records: int  # How many records the site has in the group, suppressed ones included.
    coverage: float  # At least this share of them is covered.
    infinite: float  # The share of the described records whose threshold is infinite.


def unseen_sites(calibration: Calibration) -> tuple[UnseenSite, ...]:
    """One record for each client and each group that it has; see `Calibration.unseen_site`."""
    if len(calibration.summaries) < 2:
        raise GCFCPError(
            "an unseen site is one of several that is left out, and this calibration has a single "
            "client: two clients are needed"
        )
    if has_noise(calibration.summaries):
        raise GCFCPError(
            "how a site would fare without taking part cannot be told from counts with noise: "
            "audit the predictor at a site that takes no part"
        )
    found: list[UnseenSite] = []
    for summary in calibration.summaries:
        with warnings.catch_warnings():
            # Infinite thresholds are counted in the records and need no warning.
            warnings.simplefilter("ignore", GCFCPWarning)
            found += _of_site(calibration, summary)
    return tuple(found)


def _of_site(calibration: Calibration, summary: ClientSummary) -> list[UnseenSite]:
    """One record for each group that the site has.

    By group these are the groups that are described; the site's own group has no level without it.
    """
    others = [s for s in calibration.summaries if s.client != summary.client]
    if any(calibration.shares[s.client] and len(s.values) for s in others):
        table = calibration.table_without(summary.client)
        thresholds = _thresholds(summary, table)
    else:
        thresholds = np.full(len(summary.errors), np.inf)  # No record with weight is left.
    covered = _covered(summary, thresholds)
    suppressed = np.array(summary.suppressed_groups)
    total = summary.atom_counts @ summary.membership
    shown = total + suppressed > 0
    if summary.by == "group":
        shown = (total > 0) & (np.arange(len(total)) < len(summary.groups.others))
    return [
        UnseenSite(
            summary.client,
            name,
            int(total[g] + suppressed[g]),
            _lowest_coverage(
                float(covered @ summary.membership[:, g]),
                int(total[g] + suppressed[g]),
                summary.strangers[g] if summary.strangers else 0,
            ),
            _share(np.isposinf(thresholds), summary.atom_counts, summary.membership[:, g]),
        )
        for g, name in enumerate(summary.groups.names)
        if shown[g]
    ]


def _lowest_coverage(covered: float, total: int, strangers: int) -> float:
    """At least this share of a group is covered, if so many of its records may be strangers."""
    certain = max(0.0, covered - strangers)
    missed = total - covered
    return certain / (certain + missed) if certain + missed else 0.0


def _thresholds(summary: ClientSummary, table: ThresholdTable) -> Floats:
    """The threshold of each cell of the summary in the table of the other clients, (a,)."""
    if summary.by == "group":
        place: Ints = summary.membership.argmax(axis=1)
        return cells_of(table)[1][place]
    return table.thresholds(_without_sites(summary))


def _without_sites(summary: ClientSummary) -> Bools:
    """The atoms of the summary, without the groups that stand for sites."""
    rows = summary.membership.copy()
    rows[:, len(summary.groups.others) :] = False
    return rows


def _covered(summary: ClientSummary, thresholds: Floats) -> Floats:
    """How many records of each atom are covered at least, (a,)."""
    atom = np.repeat(np.arange(len(summary.errors)), np.diff(summary.start))
    inside = np.where(summary.values <= thresholds[atom], summary.counts, 0).astype(np.float64)
    covered: Floats = np.bincount(atom, inside, minlength=len(summary.errors)).astype(np.float64)
    if summary.representative == "upper":
        return covered
    lowered = np.maximum(covered - summary.errors, 0.0)
    return np.where(np.isposinf(thresholds), covered, lowered)


def _share(which: Bools, counts: Ints, member: Bools) -> float:
    """The share of the records of a group that are in these atoms; 0 if it has none."""
    total = int(counts[member].sum())
    return float(counts[member & which].sum() / total) if total else 0.0
