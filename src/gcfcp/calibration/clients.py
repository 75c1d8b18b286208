"""Which summaries can be calibrated together (or audits merged), and in which order.

They are put in the order of their clients' names: the order in which they arrive changes nothing,
to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gcfcp import scores
from gcfcp.errors import GCFCPError
from gcfcp.summary import ClientSummary

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """Something that every client sends one of, and what all of them must have in common.

    agreed: the attributes that must be equal, beside the groups.
    """

    type: type[T]
    several: str
    made: str
    agreed: tuple[str, ...]


SUMMARIES = Kind(
    ClientSummary, "summaries", "summarised", ("score", "parameters", "model", "representative")
)


def in_order(summaries: Iterable[ClientSummary]) -> tuple[ClientSummary, ...]:
    """One summary for each client, by name; whatever cannot be calibrated together is refused."""
    ordered = one_each(summaries, SUMMARIES)
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


def one_each(given: Iterable[T], kind: Kind[T]) -> tuple[T, ...]:
    """One of a kind for each client, in the order of the clients' names.

    A client that is given twice counts once if both are the same.
    """
    if isinstance(given, kind.type) or not isinstance(given, Iterable):
        raise GCFCPError(f"give a list of {kind.several}, not {type(given).__name__}")
    found: list[Any] = []
    for one in given:
        if not isinstance(one, kind.type):
            raise GCFCPError(f"{kind.several} were expected, not {type(one).__name__}")
        found.append(one)
    if not found:
        raise GCFCPError(f"there are no {kind.several}: at least one client is needed")
    found.sort(key=lambda one: str(one.client))
    for misfit in misfits(found, [one.client for one in found], kind):
        raise GCFCPError(misfit)
    return tuple({one.client: one for one in found}.values())


def misfits(found: Sequence[Any], names: Sequence[str], kind: Kind[T]) -> Iterator[str]:
    """What keeps these from being used together: a line for each misfit.

    names: what each is called in the message, its client or its file.
    """
    first, called = found[0], names[0]
    owner: dict[str, tuple[str, Any]] = {}
    for one, name in zip(found, names, strict=True):
        other, before = owner.setdefault(one.client, (name, one))
        if before is not one and before != one:
            both = "" if name == other else f"{other} and {name}: "
            yield (
                f"{both}client {one.client!r} sent two different {kind.several} (n={before.n} and "
                f"n={one.n}): keep one of them"
            )
            continue
        if one.groups.fingerprint != first.groups.fingerprint:
            yield (
                f"{name} was {kind.made} for groups {one.groups.fingerprint[:8]}.., {called} for "
                f"{first.groups.fingerprint[:8]}..: use one groups file"
            )
        for what in kind.agreed:
            theirs, ours = getattr(one, what), getattr(first, what)
            if theirs != ours:
                yield (
                    f"{name} was {kind.made} with {what} {theirs!r:.60}, {called} with "
                    f"{ours!r:.60}: all clients must use the same"
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
