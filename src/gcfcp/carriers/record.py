"""The parts of record.json: what was asked on which terms, and what became of each client.

The record is the same over every carrier. It holds nothing of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gcfcp.carriers.exchange import Outcome
from gcfcp.carriers.target import Target, Terms
from gcfcp.rounds import Question


def agreed_on(question: Question, target: Target, terms: Terms) -> dict[str, Any]:
    """The question, the target and the terms, in plain values."""
    mixture = target.mixture
    return {
        "question": question.to_json(),
        "target": {
            "alpha": target.alpha,
            "mixture": dict(mixture) if isinstance(mixture, Mapping) else mixture,
            "merge": target.merge,
            "rule": target.rule,
            "correction": target.correction,
            "confidence": target.confidence,
            "max_share": target.max_share,
            "allow_share": list(target.allow_share),
            "max_atoms": target.max_atoms,
        },
        "terms": {
            "deadline": terms.deadline,
            "min_clients": terms.min_clients,
            "missing": terms.missing,
            "aggregates": dict(terms.admission.aggregates),
            "roster": None if terms.clients is None else dict(sorted(terms.clients.items())),
            "signed": terms.known_keys is not None,
        },
    }


def entry_of(o: Outcome) -> dict[str, Any]:
    """What became of one client."""
    return {
        "client": o.client,
        # The id is a text, because not every reader of JSON can hold the 64 bits of a number.
        "node": None if o.node is None else o.node.id,
        "key": None if o.node is None else o.node.key,
        "status": "missing" if o.code else "kept from an earlier run" if o.kept else "answered",
        "code": o.code and str(o.code),
        "meaning": o.code and o.code.meaning,
        "detail": o.detail,
        "asked": o.asked,
        "received": o.received,
        "bytes": o.size,
        "sha256": o.sha256,
    }


def order_of(outcome: Outcome) -> tuple[str, bool, tuple[int, str]]:
    """The order of outcomes: by name, accepted answers first, and then by the node's id."""
    return (
        outcome.name,
        outcome.code is not None,
        outcome.node.order if outcome.node else (0, ""),
    )
