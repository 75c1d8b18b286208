"""The mixture of the clients for which the promise is made.

A mixture is "uniform" (every client counts the same), "proportional" (every record counts the
same) or a mapping from each client to its weight pi_k. `shares` turns it into exact fractions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from gcfcp import checks
from gcfcp.checks import rational
from gcfcp.errors import GCFCPError

Mixture: TypeAlias = str | Mapping[str, float]

WORDS = ("uniform", "proportional")


@dataclass(frozen=True)
class Part:
    """One party of a mixture, and what it weighs by either word."""

    client: str
    uniform: int  # How many clients it stands for.
    proportional: int  # How many records it brings, the test points' places included.


def check(mixture: Any) -> Mixture:
    """A word or a mapping; whether the mapping fits the clients shows only with the clients."""
    if isinstance(mixture, Mapping) or (isinstance(mixture, str) and mixture in WORDS):
        return mixture
    raise GCFCPError(
        f"mixture={mixture!r:.60} is neither 'uniform' nor 'proportional' nor a mapping from "
        "each client to its weight"
    )


def shares(parts: Sequence[Part], mixture: Mixture) -> list[Fraction]:
    """pi_k of each part, exactly, in the order of the parts."""
    mixture = check(mixture)
    if isinstance(mixture, Mapping):
        weights = _named([part.client for part in parts], mixture)
    else:
        weights = [Fraction(getattr(part, mixture)) for part in parts]
    total = sum(weights, Fraction(0))
    return [w / total for w in weights]


def _named(clients: Sequence[str], mixture: Mapping[str, float]) -> list[Fraction]:
    missing = [k for k in clients if k not in mixture]
    unknown = [k for k in mixture if k not in set(clients)]
    if missing or unknown:
        raise GCFCPError(
            "the mixture must name every client and no other: "
            + "; ".join(
                f"{what} {', '.join(map(repr, names[:5]))}{'..' if len(names) > 5 else ''}"
                for what, names in (("missing", missing), ("unknown", unknown))
                if names
            )
        )
    weights = []
    for k in clients:
        given: Any = mixture[k]
        if not checks.is_number(given) or not 0 <= given < math.inf:
            raise GCFCPError(
                f"the mixture's weight {given!s:.40} of {k!r} is not a number of 0 or more"
            )
        weights.append(rational(given))
    total = sum(weights, Fraction(0))
    if abs(float(total) - 1) > 1e-9:
        raise GCFCPError(f"the mixture's weights add up to {float(total):.10g}, not to 1")
    return weights


def among(mixture: Mixture, clients: Collection[str], who: str) -> Mixture:
    """The mixture of these clients only: weights by name are renormalised over them.

    who: the clients in words, for the message if they have no weight at all.
    """
    if not isinstance(mixture, Mapping):
        return mixture
    left = {k: rational(w) for k, w in mixture.items() if k in clients}
    total = sum(left.values(), Fraction(0))
    if not total:
        raise GCFCPError(f"the clients that {who} have no weight in the mixture")
    return {k: float(w / total) for k, w in left.items()}


def parse(text: str, read: Callable[[str], bytes]) -> Mixture:
    """A mixture as people write it: a word, a=0.5,b=0.5, a JSON object, or a .json file of one.

    read: reads a file by its name.
    """
    if text in WORDS:
        return text
    if text.endswith(".json") or text.lstrip().startswith("{"):
        raw = text if text.lstrip().startswith("{") else read(text).decode(errors="replace")
        try:
            found = json.loads(raw)
        except ValueError:
            raise GCFCPError(f"mixture {text:.60} is not JSON such as {{'a': 0.5}}") from None
        if not isinstance(found, dict):
            raise GCFCPError(f"mixture {text:.60} is not a JSON object of weights")
        return found
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, sign, number = part.rpartition("=")
        try:
            weights[name.strip()] = float(number)
        except ValueError:
            sign = ""
        if not sign:
            raise GCFCPError(
                f"mixture {text!r:.60} is neither uniform, proportional, nor weights such as "
                "a=0.5,b=0.5"
            )
    return weights
