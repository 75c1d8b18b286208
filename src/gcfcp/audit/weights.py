"""How much each client counts in an audit: the mixture that a verdict is about, also in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gcfcp.audit.record import Audit
from gcfcp.calibration import Mixture
from gcfcp.calibration import mixture as mixtures
from gcfcp.errors import GCFCPError

_NAMED = 6  # For up to so many clients, the text about a mixture names the weight of each.


@dataclass(frozen=True)
class Weighed:
    """How much each client counts."""

    mixture: Mixture
    shares: list[float]  # pi_k of each audit, in their order.
    text: str  # Which mixture this is, in words.
    promised: bool | None  # Whether it is the predictor's own; None if that is not known.


def weighed(audits: Sequence[Audit], mixture: Mixture | None) -> Weighed:
    """The shares of the audits under a mixture; None stands for the predictor's own, see the
    module."""
    if mixture is None:
        known = [a for a in audits if a.share is not None]
        if known:
            return _by_predictor(audits, known)
        mixture = "proportional"
    parts = [mixtures.Part(a.client, 1, a.n) for a in audits]
    shares = [float(p) for p in mixtures.shares(parts, mixture)]
    text, own = _in_words(audits, mixture, shares), _own(audits)
    promised = None if own is None else _alike(shares, own)
    if own is not None and not promised:
        text += f"; the promise was made for another mixture {_listed(audits, own, 'of')}"
    return Weighed(mixture, shares, text, promised)


def _in_words(audits: Sequence[Audit], mixture: Mixture, shares: Sequence[float]) -> str:
    """A mixture in words. Weights that are given by name may be one of the two that have a word."""
    total = sum(a.n for a in audits)
    proportional = _alike(shares, [a.n / total for a in audits])
    uniform = _alike(shares, [1 / len(audits)] * len(audits))
    if mixture == "proportional" or (proportional and mixture != "uniform"):
        return "in proportion to the audited records"
    if uniform:
        return "every site counts the same"
    return "weights that were given " + _listed(audits, shares, "for")


def _own(audits: Sequence[Audit]) -> list[float] | None:
    """The shares of the clients in the predictor's mixture, scaled to add up to 1.

    It is None if an audit does not say what its client weighs there.
    """
    known = [a.share for a in audits if a.share is not None]
    total = math.fsum(known)
    return [w / total for w in known] if len(known) == len(audits) and total else None


def _alike(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two mixtures give each client the same weight, up to rounding."""
    return all(abs(a - b) < 1e-9 for a, b in zip(one, other, strict=True))


def _by_predictor(audits: Sequence[Audit], known: Sequence[Audit]) -> Weighed:
    """The predictor's own mixture of the audited clients; `known` are the audits with a share."""
    unknown = next((a for a in audits if a.share is None), None)
    if unknown is not None:
        raise GCFCPError(
            f"the audit of {known[0].client!r} says what the client weighs in the predictor's "
            f"mixture ({known[0].share:g}), but that of {unknown.client!r} does not: audit both "
            "again under the names that the predictor knows, or say with mixture=... how much each "
            "client counts"
        )
    weights = {a.client: a.share for a in audits if a.share is not None}
    total = math.fsum(weights.values())  # It is exact up to the last bit, in any order.
    if not total:
        raise GCFCPError(
            f"the audited clients ({audits[0].client!r}{', ..' if len(audits) > 1 else ''}) have "
            "the weight 0 in the predictor's mixture: audit a client that has weight there, or say "
            "with mixture=... how much each client counts"
        )
    shares = {client: w / total for client, w in weights.items()}
    text = "the predictor's mixture " + _listed(audits, list(shares.values()), "of")
    if total < 1 - 1e-9:
        text += f" without the sites that were not audited, whose weight is {1 - total:.4g}"
    return Weighed(shares, list(shares.values()), text, True)


def _listed(audits: Sequence[Audit], shares: Sequence[float], link: str) -> str:
    """The weight of each client, as in "(a 0.25, b 0.75)". If there are many clients it is their
    number, as in "of 120 sites", where `link` is the "of"."""
    if len(audits) > _NAMED:
        return f"{link} {len(audits):,} sites"
    return f"({', '.join(f'{a.client} {p:.4g}' for a, p in zip(audits, shares, strict=True))})"
