"""Which summaries can be calibrated together, and in which order.

Summaries are put in the order of their clients' names: the order in which they arrive changes
nothing, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gcfcp import scores
from gcfcp.errors import GCFCPError
from gcfcp.summary import ClientSummary


def in_order(summaries: Iterable[ClientSummary]) -> tuple[ClientSummary, ...]:
    """One summary a client, by name; whatever cannot be calibrated together is refused."""
    if isinstance(summaries, ClientSummary) or not isinstance(summaries, Iterable):
        raise GCFCPError(f"give a list of summaries, not {type(summaries).__name__}")
    by_client: dict[str, ClientSummary] = {}
    for s in summaries:
        if not isinstance(s, ClientSummary):
            raise GCFCPError(f"a summary was expected, not {type(s).__name__}: see summarize")
        first = by_client.setdefault(s.client, s)
        if first is not s and first != s:
            raise GCFCPError(
                f"client {s.client!r} sent two different summaries (n={first.n} and n={s.n}): "
                "keep one of them"
            )
    if not by_client:
        raise GCFCPError("there are no summaries: at least one client is needed")
    ordered = tuple(by_client[name] for name in sorted(by_client))
    _check_alike(ordered)
    _check_range(ordered)
    owner: dict[str, str] = {}
    for s in ordered:
        for name, _ in s.members:
            if owner.setdefault(name, s.client) != s.client:
                raise GCFCPError(
                    f"client {name!r} is in both {owner[name]!r} and {s.client!r}: its records "
                    "would count twice; leave one of them out"
                )
    return ordered


def _check_alike(summaries: Sequence[ClientSummary]) -> None:
    first = summaries[0]
    for s in summaries[1:]:
        if s.groups.fingerprint != first.groups.fingerprint:
            raise GCFCPError(
                f"{s.client} was summarised for groups {s.groups.fingerprint[:8]}.., "
                f"{first.client} for {first.groups.fingerprint[:8]}..: use one groups file"
            )
        for what in ("score", "parameters", "model", "representative"):
            theirs, ours = getattr(s, what), getattr(first, what)
            if theirs != ours:
                raise GCFCPError(
                    f"{s.client} was summarised with {what} {theirs!r}, {first.client} with "
                    f"{ours!r}: all clients must use the same"
                )


def _check_range(summaries: Sequence[ClientSummary]) -> None:
    """Scores that their own definition rules out: 1 - p beyond [0, 1], or |y - f| below 0."""
    first = summaries[0]
    try:
        score: Any = scores.from_name(first.score, first.parameters)
    except GCFCPError:
        return  # an own score, whose range nobody knows here
    for s in summaries:
        low, high = s.values.min(initial=score.upper), s.values.max(initial=score.lower)
        if low < score.lower or high > score.upper:
            raise GCFCPError(
                f"{s.client} has scores from {low:.6g} to {high:.6g}, and score {s.score!r} is "
                f"from {score.lower:g} to {score.upper:g}: find out how they were made"
            )
