"""Group-conditional federated conformal prediction (Wen, Simeone, Xing, UAI 2026).

Hospitals, banks and device fleets calibrate one model together without showing their data, and
get prediction sets with P(y in C(x) | x in G) >= 1 - alpha for every group G of a public,
overlapping family, under a stated mixture of the clients.

    summary = gcfcp.summarize(scores, membership, groups=groups, client="hospital-a")   # at each
    calibration = gcfcp.calibrate(summaries, alpha=0.1)                                 # at one
    sets = gcfcp.Predictor(score, calibration).predict_set(probabilities, membership)   # anywhere
"""

from importlib import import_module
from typing import Any

from gcfcp import methods, scores
from gcfcp.audit import Audit, audit
from gcfcp.client import ClientSummary, Disclosure, summarize
from gcfcp.coverage import AuditReport, merge_audits
from gcfcp.digest import DigestBuilder, TDigest
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.planning import Plan, plan
from gcfcp.predictor import Predictor
from gcfcp.server import AtomRecord, Calibration, Guarantee, calibrate, merge
from gcfcp.table import ThresholdTable

__version__ = "0.1.0"
__all__ = [
    "AtomRecord",
    "Audit",
    "AuditReport",
    "Calibration",
    "ClientSummary",
    "DigestBuilder",
    "Disclosure",
    "GCFCPError",
    "GCFCPWarning",
    "Groups",
    "Guarantee",
    "Plan",
    "Predictor",
    "TDigest",
    "ThresholdTable",
    "audit",
    "calibrate",
    "merge",
    "merge_audits",
    "methods",
    "plan",
    "scores",
    "summarize",
]

_ADAPTERS = ("flower", "plots")  # with libraries of their own, which importing gcfcp must not load


def __getattr__(name: str) -> Any:
    """`gcfcp.plots` and `gcfcp.flower` are imported when they are first used."""
    if name in _ADAPTERS:
        return import_module(f"gcfcp.{name}")
    raise AttributeError(f"module 'gcfcp' has no attribute {name!r}")
