"""Group-conditional federated conformal prediction (Wen, Simeone, Xing, UAI 2026)."""

from gcfcp.errors import GCFCPError, GCFCPWarning

__version__ = "0.1.0"
__all__ = ["GCFCPError", "GCFCPWarning"]
