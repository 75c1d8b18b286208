"""Audits answer whether the promise was kept.

Each client counts how many of its labelled records were covered, and the server turns the counts of
all clients into coverage by group, with confidence intervals.

| module     | what it is for                                                            |
|------------|---------------------------------------------------------------------------|
| `counts`   | how many records of each atom were covered                                |
| `client`   | `audit`: the counts at a client, and which of them are suppressed         |
| `record`   | `Audit`: what a client publishes, and its bytes                           |
| `coverage` | `merge_audits`: coverage by group, with intervals and verdicts            |
"""

from gcfcp.audit.client import audit, publish
from gcfcp.audit.counts import Counts, count
from gcfcp.audit.coverage import (
    AUDITS,
    BROKEN,
    KEPT,
    NO_TARGET,
    UNKNOWN,
    AuditReport,
    GroupAudit,
    merge_audits,
    span,
)
from gcfcp.audit.record import Audit, Ranges, Told

__all__ = [
    "AUDITS",
    "BROKEN",
    "KEPT",
    "NO_TARGET",
    "UNKNOWN",
    "Audit",
    "AuditReport",
    "Counts",
    "GroupAudit",
    "Ranges",
    "Told",
    "audit",
    "count",
    "merge_audits",
    "publish",
    "span",
]
