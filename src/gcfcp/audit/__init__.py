"""Audits: was the promise kept? Counts at the clients, coverage with intervals at the server.

| module     | what it is for                                              |
|------------|-------------------------------------------------------------|
| `counts`   | how many records of each atom were covered                  |
| `client`   | `audit`: counts at a client, and what of them is suppressed |
| `record`   | `Audit`: what a client publishes, and the bytes of it       |
| `coverage` | `merge_audits`: coverage by group, with verdicts            |
| `bounds`   | confidence bounds, proved for any mixture                   |
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
)
from gcfcp.audit.record import Audit

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
    "audit",
    "count",
    "merge_audits",
    "publish",
]
