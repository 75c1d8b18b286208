"""The mixture of the clients for which the promise is made.

The promise is about a future record that comes from client k with probability pi_k. A mixture is
one of three things: "proportional" makes pi_k proportional to n_k, so that every record counts the
same, as if all records lay in one place; "uniform" gives every client the same pi_k, however few
records it has; and a mapping names the weight of each client. `shares` turns a mixture into exact
fractions pi_k that add up to 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from gcfcp import checks, codec
from gcfcp.checks import rational
from gcfcp.errors import GCFCPError

Mixture: TypeAlias = str | Mapping[str, float | Fraction]

WORDS = ("uniform", "proportional")


@dataclass(frozen=True)
class Part:
    """One client or aggregate of a mixture, with its weight before all weights are scaled to 1."""

    client: str
    uniform: int  # Its weight if the mixture is "uniform": how many clients it stands for.
    proportional: int  # Its weight if the mixture is "proportional": its records.


def check(mixture: Any) -> Mixture:
    """The mixture itself, if it is one of the two words or a mapping.

    Whether a mapping names the right clients is checked in `shares`, where the clients are known.
    """
    if isinstance(mixture, Mapping):
        return {client: _plain(client, weight) for client, weight in mixture.items()}
    if isinstance(mixture, str) and mixture in WORDS:
        return mixture
    raise GCFCPError(
        f"mixture={mixture!r:.60} is neither 'uniform' nor 'proportional' nor a mapping from "
        "each client to its weight"
    )


def _plain(client: str, weight: Any) -> float | Fraction:
    """A weight of 0 or more. A Fraction stays exact; any other number becomes a float."""
    if not checks.is_number(weight) or not 0 <= weight <= sys.float_info.max:
        raise GCFCPError(
            f"the mixture's weight {weight!s:.40} of {client!r} is not a number of 0 or more"
        )
    return weight if isinstance(weight, Fraction) else checks.as_float(weight)


def shares(parts: Sequence[Part], mixture: Mixture) -> list[Fraction]:
    """pi_k of each part as an exact fraction, in the order of the parts."""
    mixture = check(mixture)
    if isinstance(mixture, Mapping):
        weights = _named([part.client for part in parts], mixture)
    else:
        weights = [Fraction(getattr(part, mixture)) for part in parts]
    total = sum(weights, Fraction(0))
    return [w / total for w in weights]


def _named(clients: Sequence[str], mixture: Mapping[str, float | Fraction]) -> list[Fraction]:
    """The weight that the mapping gives each client, checked, in the order of the clients."""
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
    weights = [rational(mixture[k]) for k in clients]
    total = sum(weights, Fraction(0))
    if abs(float(total) - 1) > 1e-9:
        raise GCFCPError(f"the mixture's weights add up to {float(total):.10g}, not to 1")
    return weights


def to_plain(mixture: Mixture) -> str | dict[str, float]:
    """The mixture in plain values, as a file can hold it."""
    if not isinstance(mixture, Mapping):
        return mixture
    return {client: checks.as_float(weight) for client, weight in mixture.items()}


def among(mixture: Mixture, clients: Collection[str], who: str) -> Mixture:
    """The mixture of these clients only. Weights by name are scaled so that they add up to 1.

    - `who`: A phrase such as "are left", which follows "the clients that" in the message for
      clients that have no weight.
    """
    if not isinstance(mixture, Mapping):
        return mixture
    left = {k: rational(w) for k, w in mixture.items() if k in clients}
    total = sum(left.values(), Fraction(0))
    if not total:
        raise GCFCPError(f"the clients that {who} have no weight in the mixture")
    return {k: float(w / total) for k, w in left.items()}


def parse(text: str, read: Callable[[str], bytes]) -> Mixture:
    """A mixture from the text that people write for it.

    The text is "uniform", "proportional", a list such as a=0.5,b=0.5, a JSON object, or the name of
    a file that ends in .json and holds such an object.

    - `read`: A function that reads a file by its name.
    """
    if text in WORDS:
        return text
    if text.endswith(".json") or text.lstrip().startswith("{"):
        raw = text if text.lstrip().startswith("{") else read(text).decode(errors="replace")
        try:
            found = codec.from_json(raw)
        except ValueError:
            raise GCFCPError(f'mixture {text:.60} is not JSON such as {{"a": 0.5}}') from None
        if not isinstance(found, dict):
            raise GCFCPError(f"mixture {text:.60} is not a JSON object of weights")
        return found
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, sign, number = part.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            sign = ""
        if name.strip() in weights:
            raise GCFCPError(f"mixture {text!r:.60} names {name.strip()!r} twice: give one weight")
        if sign:
            weights[name.strip()] = weight
        else:
            raise GCFCPError(
                f"mixture {text!r:.60} is neither uniform, proportional, nor weights such as "
                "a=0.5,b=0.5"
            )
    return weights
