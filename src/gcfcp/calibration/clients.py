"""Which summaries can be calibrated together, which audits can be merged, and in which order.

Both are put in the order of their clients' names. The order in which they arrive therefore changes
nothing, not even the last bit of a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from gcfcp import scores
from gcfcp.digest import ROUNDED_BITS
from gcfcp.errors import GCFCPError
from gcfcp.shape import Shape
from gcfcp.summary import ClientSummary

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of object of which every client sends one, and what all clients must agree on."""

    type: type[T]
    several: str  # The plural that messages use, such as "summaries".
    made: str  # The participle that messages use, such as "summarised".
    agreed: tuple[str, ...]  # The attributes that must be equal at all clients, beside the groups.


SUMMARIES = Kind(
    ClientSummary,
    "summaries",
    "summarised",
    ("score", "parameters", "model", "representative", "by", "shape"),
)


def in_order(summaries: Iterable[ClientSummary]) -> tuple[ClientSummary, ...]:
    """One summary for each client, in the order of the clients' names.

    Summaries that cannot be calibrated together are an error: different groups, scores, models or
    representatives, scores outside the range of their definition, or a client whose records would
    count twice because an aggregate holds them as well.
    """
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


def shape_of(summaries: Sequence[ClientSummary]) -> Shape | None:
    """The shape that all summaries have, with what it was made from according to any of them."""
    first = summaries[0].shape
    if first is None:
        return None
    known = {source for s in summaries if s.shape is not None for source in s.shape.sources}
    return replace(first, sources=tuple(known))


def one_each(given: Iterable[T], kind: Kind[T]) -> tuple[T, ...]:
    """One object of the kind for each client, in the order of the clients' names.

    An object that is given twice counts once. Two different objects of one client are an error.
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
    """Why these objects cannot be used together: one line of text for each reason.

    - `names`: What each object is called in the text: the name of its client or of its file.
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
            if _compared(theirs) != _compared(ours):
                yield (
                    f"{name} was {kind.made} with {what} {_shown(theirs)}, {called} with "
                    f"{_shown(ours)}: all clients must use the same"
                )


def _compared(value: Any) -> Any:
    """What is compared: of a shape its fingerprint, whatever it was made from."""
    return value.fingerprint if isinstance(value, Shape) else value


def _shown(value: Any) -> str:
    """The value in a message."""
    return f"{value.fingerprint[:8]}.." if isinstance(value, Shape) else f"{value!r:.60}"


def _check_range(summaries: Sequence[ClientSummary]) -> None:
    """Refuse scores that their own definition rules out.

    For example 1 - p lies in [0, 1] for a probability p, and |y - f| is never negative. Residuals
    are scores less b(x), which lies between the sums of the negative and of the positive
    coefficients of the shape, and they may have been rounded up.
    """
    first = summaries[0]
    try:
        score: Any = scores.from_name(first.score, first.parameters)
    except GCFCPError:
        return  # This score is the caller's own, and its range is not known here.
    least, most = float(score.lower), float(score.upper)
    if first.shape is not None:
        least -= math.fsum(c for c in first.shape.coefficients if c > 0)
        most -= math.fsum(c for c in first.shape.coefficients if c < 0)
        most += 2.0 ** (1 - ROUNDED_BITS) * abs(most)
    kind = "scores" if first.shape is None else "residuals"
    for s in summaries:
        finite = s.values[np.isfinite(s.values)] if first.shape is not None else s.values
        low, high = finite.min(initial=most), finite.max(initial=least)
        if low < least or high > most:
            raise GCFCPError(
                f"{s.client} has {kind} from {low:.6g} to {high:.6g}, but score {s.score!r} only "
                f"takes {kind} from {least:g} to {most:g}: find out how this client computed its "
                "scores"
            )
