"""Where the thresholds of a predictor come from, in plain values that its file can hold.

`provenance_of` is all that the server knows. `public_part` is what a predictor's file tells unless
the coreset is written too. It has no number from which the records of a site in a group, or of a
combination of groups, could be computed. Such numbers are not only the counts themselves:

| entry                              | what it would tell                                          |
|------------------------------------|-------------------------------------------------------------|
| `records`, `weight`, `effective_n` | sum_k n_kG, sum_k lambda_k n_kG and sum_k lambda_k^2 n_kG   |
| of a group                         | with public lambda_k: three equations for the counts n_kG   |
|                                    | of the sites, which are whole numbers                       |
| `upper` of a group                 | sum_k lambda_k n_kG again, by the formula of Theorem C.1    |
| `certified` (means), `lower`       | ratios of small whole numbers of records                    |
| `suppressed`, `uncovered`, `atoms`,| how many records of a site are in small cells or in no      |
| `hidden_groups` of a client        | group, and how many cells it has                            |
| `centroids` and `bytes` of a client| about how many cells it has; the sums of all clients stay   |
| `unlike` of a client               | its records in one combination of groups                    |
| `largest_shares`                   | about how many records one site has in a group              |

So the first, the fourth, the fifth and the last are left out, `unlike` names neither the
combination nor its records, and the bounds have three decimals, `upper` two. They are rounded to
the safe side, so that what is promised is never more than was computed, and a bound of exactly
1 - alpha stays. An `upper` below 1 needs a group of at least |G| pi / (delta alpha) of the weight,
and none is below 1 if any record was suppressed, so that two decimals tell next to nothing of a
small group.

What stays about a site is its name, its size, its share, its settings and the SHA-256 of its
summary: audits and the repetition of a calibration need them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from gcfcp import codec
from gcfcp.calibration import Calibration, Guarantee, mixture, screen_pool
from gcfcp.summary import ClientSummary, hidden_groups


def provenance_of(calibration: Calibration) -> dict[str, Any]:
    """The settings, the clients and the guarantees of a calibration, in plain values.

    The entry `unlike` of a client is the text of its screening if it is flagged, and None if not.
    """
    first = calibration.summaries[0]
    screened = screen_pool(calibration.summaries, calibration.pool)
    unlike = {s.client: str(s) for s in screened if s.flagged}
    return {
        "alpha": calibration.alpha,
        "mixture": mixture.to_plain(calibration.mixture),
        "merge": calibration.merge,
        "recompression_delta": calibration.recompression_delta,
        "rule": calibration.rule,
        "by": calibration.by,
        "shape": calibration.used_shape and calibration.used_shape.fingerprint,
        "grid": first.grid and first.grid.fingerprint,
        "confidence": calibration.confidence,
        "representative": first.representative,
        "model": first.model,
        "test_weight": calibration.test_weight,
        "correction": asdict(calibration.correction),
        "clients": [
            _client(s, calibration.shares[s.client]) | {"unlike": unlike.get(s.client)}
            for s in calibration.summaries
        ],
        "guarantee": [_promise(g, calibration) for g in calibration.guarantee],
        "round": calibration.round,
        # In whole percent, because an exact share would tell how many records a client has.
        "largest_shares": [
            {"group": s.group, "client": s.client, "share": math.ceil(100 * s.share) / 100}
            for s in calibration.largest_shares
        ],
        "twins": [list(names) for names in calibration.twins],
    }


def _promise(given: Guarantee, calibration: Calibration) -> dict[str, Any]:
    """What is promised to one group.

    What noise took depends on the weight of the group, so that it is told only if every count
    behind that weight has noise.
    """
    found = asdict(given)
    if any(s.noise is None for s in calibration.summaries):
        del found["privacy"]
    return found


def _client(s: ClientSummary, share: float) -> dict[str, Any]:
    """What the file says about one client, whose weight in the mixture is `share`."""
    size, sha256 = s.size_and_sha256
    return {
        "client": s.client,
        "n": s.n,
        "share": share,
        "delta": s.delta,
        "min_count": s.min_count,
        "suppressed": s.suppressed,
        "hidden_groups": len(hidden_groups(s)),
        "uncovered": s.uncovered,
        "atoms": len(s.errors),
        "centroids": len(s.values),
        "bytes": size,
        "sha256": sha256,
        "members": len(s.members),
        "library": s.library,
        "date": s.date,
    }


# --- What a file tells ---------------------------------------------------------------------------

OF_CLIENT = (
    "client", "n", "share", "delta", "min_count", "sha256", "members", "library", "date",
    "unlike",
)  # fmt: skip
"""What a file without the coreset says about a client."""

OF_GROUP = (
    "group", "lower", "lower_status", "certified", "certified_status", "upper", "upper_status",
    "theorem", "eta", "promise", "confidence", "epsilon", "privacy",
)  # fmt: skip
"""What a file without the coreset says about the promise to a group."""

# How many decimals a bound has, and to which side it is rounded.
_BOUNDS = {
    "lower": (Decimal("0.001"), ROUND_FLOOR),
    "certified": (Decimal("0.001"), ROUND_FLOOR),
    "upper": (Decimal("0.01"), ROUND_CEILING),
    "privacy": (Decimal("0.001"), ROUND_CEILING),
}


def public_part(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance without what tells the counts of a site or of a cell; see the module.

    Done twice, it changes nothing more. Entries that are not what `provenance_of` writes, as in a
    file of a stranger, stay as they are.
    """
    found = {key: value for key, value in provenance.items() if key != "largest_shares"}
    clients, guarantee = found.get("clients"), found.get("guarantee")
    if isinstance(clients, list):
        for total, name in (("bytes_sent", "bytes"), ("values_sent", "centroids")):
            sent = [c.get(name) for c in clients if isinstance(c, dict)]
            known = [number for number in sent if type(number) is int]
            if known and len(known) == len(sent):
                found.setdefault(total, sum(known))
        found["clients"] = [_public_client(c) if isinstance(c, dict) else c for c in clients]
    if isinstance(guarantee, list):
        alpha = codec.number(found.get("alpha"))
        found["guarantee"] = [
            _public_promise(g, alpha) if isinstance(g, dict) else g for g in guarantee
        ]
    return found


def _public_client(client: dict[str, Any]) -> dict[str, Any]:
    """What is told about one client."""
    kept = {key: value for key, value in client.items() if key in OF_CLIENT}
    if kept.get("unlike"):
        kept["unlike"] = (
            f"{client.get('client')} is unlike the other clients in some combination of groups: "
            "gcfcp plan says in which. It was not left out"
        )
    return kept


def _public_promise(promise: dict[str, Any], alpha: float | None) -> dict[str, Any]:
    """What is told about the promise to one group, whose bounds are rounded to the safe side."""
    kept = {key: value for key, value in promise.items() if key in OF_GROUP}
    for key, (unit, side) in _BOUNDS.items():
        bound = codec.number(kept.get(key))
        if bound is not None and 0 <= bound <= 1 and (alpha is None or bound != 1 - alpha):
            # The shortest text of a float is rounded, so that a rounded bound stays what it is.
            kept[key] = float(Decimal(repr(bound)).quantize(unit, rounding=side))
    return kept
