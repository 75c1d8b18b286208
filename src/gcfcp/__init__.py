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
from gcfcp.audit import Audit, AuditReport, audit, merge_audits
from gcfcp.calibration import AtomRecord, Calibration, Guarantee, Plan, calibrate, merge, plan
from gcfcp.digest import DigestBuilder, TDigest
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.prediction import Predictor
from gcfcp.summary import ClientSummary, Disclosure, summarize
from gcfcp.thresholds import ThresholdTable
from gcfcp.version import __version__ as __version__

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

# These adapters need libraries of their own, which importing gcfcp must not load.
_ADAPTERS = ("flower", "plots")


def __getattr__(name: str) -> Any:
    """`gcfcp.plots` and `gcfcp.flower` are imported when they are first used."""
    if name in _ADAPTERS:
        return import_module(f"gcfcp.{name}")
    raise AttributeError(f"module 'gcfcp' has no attribute {name!r}")
