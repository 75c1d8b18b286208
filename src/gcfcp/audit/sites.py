"""Coverage site by site: what the audit of each client says about each group, on its own.

The promise is about the mixture of all clients. The coverage of a group at one site may lie below
it, while that at another lies above, and both are told here, because a site will ask. A promise to
each site needs groups of sites (`Groups(..., sites=[...])`): then the group `site a` is promised
its coverage as any other group is, but still not each group within the site.

The intervals are those of Clopper and Pearson. For K sites and G groups each end has tail = (1 -
confidence) / (2 K G), so that all intervals of the table hold at once. Hidden counts are treated as
in `coverage`. Cost: less than 0.1 ms for each interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gcfcp.audit.record import Audit
from gcfcp.bounds import clopper_pearson

MOST_SITES = 200
"""For more sites than this, coverage is not told site by site."""


@dataclass(frozen=True)
class SiteCoverage:
    """The coverage of one group at one site."""

    group: str
    coverage: float | None  # The covered share; None without records, or if the counts hide it.
    low: float  # The lower end of its interval.
    high: float  # The upper end of its interval.
    total: int  # How many records there are at least.
    total_at_most: int  # How many records there may be.


@dataclass(frozen=True)
class SiteAudit:
    """The coverage of each group at one site."""

    client: str
    n: int  # How many records the site audited.
    groups: tuple[SiteCoverage, ...]


def by_site(audits: Sequence[Audit], confidence: float) -> tuple[SiteAudit, ...]:
    """One record for each site, in the order of the audits; none if there are too many sites.

    - `confidence`: The probability with which all intervals hold at once.
    """
    if len(audits) > MOST_SITES:
        return ()
    ranges = [a.ranges for a in audits]
    least, most = np.array([r.least for r in ranges]), np.array([r.most for r in ranges])
    least_missed = np.array([r.least_missed for r in ranges])
    most_missed = np.array([r.most_missed for r in ranges])
    tail = (1 - confidence) / (2 * least.size)
    # What is not known counts as missed at the lower end, and as covered at the upper end.
    low = clopper_pearson(np.maximum(least - most_missed, 0).ravel(), most_missed.ravel(), tail)
    high = 1 - clopper_pearson(least_missed.ravel(), (most - least_missed).ravel(), tail)
    low, high = low.reshape(least.shape), np.nextafter(high, 1.0).reshape(least.shape)
    known = (least == most) & (least_missed == most_missed) & (least > 0)
    share = np.divide(least - least_missed, least, out=np.zeros(least.shape), where=least > 0)
    return tuple(
        SiteAudit(
            a.client,
            a.n,
            tuple(
                SiteCoverage(
                    name,
                    float(share[k, g]) if known[k, g] else None,
                    # The share lies in its interval. Rounding does not change that.
                    float(min(low[k, g], share[k, g]) if known[k, g] else low[k, g]),
                    float(max(high[k, g], share[k, g]) if known[k, g] else high[k, g]),
                    int(least[k, g]),
                    int(most[k, g]),
                )
                for g, name in enumerate(a.groups.names)
            ),
        )
        for k, a in enumerate(audits)
    )
