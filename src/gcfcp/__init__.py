"""Group-conditional federated conformal prediction (Wen, Simeone, Xing, UAI 2026).

Several clients, such as hospitals, banks or devices, calibrate one model together without showing
each other their data. The result is a prediction set C(x) that is made to satisfy

    P(y in C(x) | x in G) >= 1 - alpha

for every group G of a public family. The groups may overlap. `calibration.guarantee` says for each
group whether this is proved or measured. The probability is that of a
future record, which comes from client k with probability pi_k; these shares are the mixture.

    # At each client:
    summary = gcfcp.summarize(scores, membership, groups=groups, client="hospital-a")
    # At the server, which has received the summaries of all clients:
    calibration = gcfcp.calibrate(summaries, alpha=0.1)
    # Wherever predictions are made:
    sets = gcfcp.Predictor(score, calibration).predict_set(probabilities, membership)
"""

from importlib import import_module
from typing import Any

from gcfcp import methods, scores
from gcfcp.audit import Audit, AuditReport, audit, merge_audits
from gcfcp.calibration import (
    AtomRecord,
    Calibration,
    Exploration,
    Guarantee,
    Plan,
    add,
    calibrate,
    explore,
    fit_shape,
    join,
    merge,
    plan,
)
from gcfcp.digest import DigestBuilder, TDigest
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.grid import Grid
from gcfcp.groups import Group, Groups
from gcfcp.prediction import Predictor
from gcfcp.shape import Shape
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
    "Exploration",
    "GCFCPError",
    "GCFCPWarning",
    "Grid",
    "Group",
    "Groups",
    "Guarantee",
    "Plan",
    "Predictor",
    "Shape",
    "TDigest",
    "ThresholdTable",
    "add",
    "audit",
    "calibrate",
    "explore",
    "fit_shape",
    "join",
    "merge",
    "merge_audits",
    "methods",
    "plan",
    "scores",
    "summarize",
]

# Each of these adapters needs libraries that `import gcfcp` must not load.
_ADAPTERS = ("flower", "nvflare", "plots", "sklearn", "spark", "vantage6")


def __getattr__(name: str) -> Any:
    """Import an adapter, such as `gcfcp.plots`, when it is first used."""
    if name in _ADAPTERS:
        return import_module(f"gcfcp.{name}")
    raise AttributeError(f"module 'gcfcp' has no attribute {name!r}")
