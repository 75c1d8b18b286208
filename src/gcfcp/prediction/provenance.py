"""Where the thresholds of a predictor come from, in plain values that its file can hold."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict
from typing import Any

from gcfcp.calibration import Calibration, mixture, screen
from gcfcp.summary import ClientSummary


def provenance_of(calibration: Calibration) -> dict[str, Any]:
    """The settings, the clients and the guarantees of a calibration, in plain values.

    The entry `unlike` of a client is the text of its screening if it is flagged, and None if not.
    """
    first = calibration.summaries[0]
    screened = screen(calibration.summaries, aggregates=calibration.admission.aggregates)
    unlike = {s.client: str(s) for s in screened if s.flagged}
    return {
        "alpha": calibration.alpha,
        "mixture": mixture.to_plain(calibration.mixture),
        "merge": calibration.merge,
        "recompression_delta": calibration.recompression_delta,
        "rule": calibration.rule,
        "by": calibration.by,
        "shape": calibration.used_shape and calibration.used_shape.fingerprint,
        "confidence": calibration.confidence,
        "representative": first.representative,
        "model": first.model,
        "test_weight": calibration.test_weight,
        "correction": asdict(calibration.correction),
        "clients": [
            _client(s, calibration.shares[s.client]) | {"unlike": unlike.get(s.client)}
            for s in calibration.summaries
        ],
        "guarantee": [asdict(g) for g in calibration.guarantee],
        "round": calibration.round,
        # In whole percent, because an exact share would tell how many records a client has.
        "largest_shares": [
            {"group": s.group, "client": s.client, "share": math.ceil(100 * s.share) / 100}
            for s in calibration.largest_shares
        ],
        "twins": [list(names) for names in calibration.twins],
    }


def _client(s: ClientSummary, share: float) -> dict[str, Any]:
    """What the file says about one client, whose weight in the mixture is `share`."""
    data = s.to_bytes()
    return {
        "client": s.client,
        "n": s.n,
        "share": share,
        "delta": s.delta,
        "min_count": s.min_count,
        "suppressed": s.suppressed,
        "hidden_groups": len(s.disclosure.hidden),
        "uncovered": s.uncovered,
        "atoms": len(s.errors),
        "centroids": len(s.values),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "members": len(s.members),
        "library": s.library,
        "date": s.date,
    }
