"""Audits answer whether the promise was kept.

Each client counts how many of its labelled records were covered, and the server turns the counts of
all clients into coverage by group, with confidence intervals.

| module     | what it is for                                                            |
|------------|---------------------------------------------------------------------------|
| `counts`   | how many records of each atom were covered                                |
| `client`   | `audit`: the counts at a client, and which of them are suppressed         |
| `record`   | `Audit`: what a client publishes                                          |
| `layout`   | its bytes                                                                 |
| `coverage` | `merge_audits`: coverage by group, with intervals and verdicts            |
| `weights`  | how much each client counts, in numbers and in words                      |
| `cells`    | the shares, intervals and verdicts of groups and atoms                    |
| `sites`    | coverage site by site                                                     |
"""

from gcfcp.audit.cells import (
    BROKEN,
    GIVEN_EVERYTHING,
    KEPT,
    NO_TARGET,
    UNKNOWN,
    GroupAudit,
    verdict,
)
from gcfcp.audit.client import audit, publish
from gcfcp.audit.counts import Counts, Sets, count
from gcfcp.audit.coverage import AUDITS, AuditReport, merge_audits, span
from gcfcp.audit.record import Audit, Ranges, Told
from gcfcp.audit.sites import MOST_SITES, SiteAudit, SiteCoverage

__all__ = [
    "AUDITS",
    "BROKEN",
    "GIVEN_EVERYTHING",
    "KEPT",
    "MOST_SITES",
    "NO_TARGET",
    "UNKNOWN",
    "Audit",
    "AuditReport",
    "Counts",
    "GroupAudit",
    "Ranges",
    "Sets",
    "SiteAudit",
    "SiteCoverage",
    "Told",
    "audit",
    "count",
    "merge_audits",
    "publish",
    "span",
    "verdict",
]
