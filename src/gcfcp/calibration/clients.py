"""Which summaries can be calibrated together, which audits can be merged, and in which order.

Both are put in the order of their clients' names. The order in which they arrive therefore changes
nothing, not even the last bit of a threshold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from gcfcp import checks, scores
from gcfcp.calibration.admission import Admission
from gcfcp.digest import ROUNDED_BITS
from gcfcp.errors import GCFCPError
from gcfcp.grid import Grid
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
    who: str = "clients"  # Those who must agree, as messages call them.


SUMMARIES = Kind(
    ClientSummary,
    "summaries",
    "summarised",
    ("score", "parameters", "model", "representative", "by", "shape", "grid", "round"),
)

TWIN_RECORDS, TWIN_VALUES = 20, 10
"""From how many described records and different values on two equal summaries are named.

Small sites, and sites whose scores take few values, can agree by chance. The probability that 20
scores with 10 equally likely values give the same counts at two sites is below 1 in 40,000.
"""
_MOST_TWINS = 3  # So many sentences name equal summaries at most.


def in_order(
    summaries: Iterable[ClientSummary], admission: Admission | None = None
) -> tuple[ClientSummary, ...]:
    """One summary for each client, in the order of the clients' names.

    Summaries that cannot be calibrated together are an error: different groups, scores, models,
    rounds or representatives, scores outside the range of their definition, or a client whose
    records would count twice because an aggregate holds them as well. So is a summary that the
    server does not let in.

    - `admission`: What the server lets in. None refuses every aggregate.
    """
    admission = admission or Admission()
    if isinstance(summaries, Iterable):
        summaries = list(summaries)
        for s in summaries:
            # What the server asked for comes first, because it says who is wrong.
            if isinstance(s, ClientSummary) and (refused := admission.refusal(s, s.client)):
                raise GCFCPError(refused)
    ordered = one_each(summaries, SUMMARIES)
    for s in ordered:
        if refused := out_of_range(s, s.client):
            raise GCFCPError(refused)
    owner: dict[str, str] = {}
    for s in ordered:
        for name, _ in s.members:
            if owner.setdefault(name, s.client) != s.client:
                raise GCFCPError(
                    f"client {name!r} is in both {owner[name]!r} and {s.client!r}: its records "
                    "would count twice; leave one of them out"
                )
    return ordered


def twins(summaries: Sequence[ClientSummary]) -> tuple[tuple[str, ...], ...]:
    """The names under which the same content was sent, for each content that has several.

    Two summaries are twins if they describe the same cells with the same values and counts. Whoever
    sends the records of one site under two names gets the weight of two; the change of a single
    value is not noticed. See `TWIN_RECORDS` for the summaries that are compared.
    """
    names: dict[tuple[Any, ...], list[str]] = {}
    for s in summaries:
        if s.counts.sum() >= TWIN_RECORDS and _has_many_values(s):
            arrays = (s.membership, s.start, s.values, s.counts)
            names.setdefault((s.n, *(a.tobytes() for a in arrays)), []).append(s.client)
    return tuple(tuple(sorted(several)) for several in names.values() if len(several) > 1)


def _has_many_values(s: ClientSummary) -> bool:
    """Whether a summary has at least `TWIN_VALUES` different values."""
    # Those of a cell ascend strictly, so that a long cell has enough, and nothing need be sorted.
    return bool((np.diff(s.start) >= TWIN_VALUES).any()) or len(np.unique(s.values)) >= TWIN_VALUES


def twin_texts(sets: Sequence[Sequence[str]]) -> list[str]:
    """The sentences that name twins: one for each of the first sets, and one for all others."""
    many = len(sets) > _MOST_TWINS
    told = [
        f"{checks.listed(names, 5)} sent the same values and counts under different names, so that "
        "the same records may count more than once: ask them, and keep one of them"
        for names in (sets[: _MOST_TWINS - 1] if many else sets)
    ]
    if many:
        others = sets[_MOST_TWINS - 1 :]
        told.append(
            f"{sum(map(len, others)):,} other clients sent {len(others):,} contents under several "
            f"names each, such as {checks.listed(others[0], 2)}: ask them, too"
        )
    return told


def set_aside(found: Sequence[ClientSummary], names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Which summaries can be used together, by their places, and why the others cannot.

    Nobody can stop the others, and nobody is chosen by the order of arrival. If two different
    summaries have the name of one client, neither is used. Of summaries that do not fit together,
    those are used that most clients agree with; if there is no such majority, it is an error.

    - `names`: What each summary is called in the lines: the name of its client or of its file.
    """
    lines: list[str] = []
    given = list(zip(found, names, range(len(found)), strict=True))
    by_client: dict[str, list[str]] = {}
    distinct = {s.client: s for s, _, _ in given}
    for s, name, _ in given:
        by_client.setdefault(s.client, []).append(name)
    contested = {s.client for s, _, _ in given if s != distinct[s.client]}
    lines += [
        f"{checks.listed(by_client[client])}: these are different summaries of client {client!r}, "
        "and nothing says which is true; none of them is used"
        for client in sorted(contested)
    ]
    left = [one for one in given if one[0].client not in contested]
    if left:
        votes = Counter(_agreement(s) for s in {s.client: s for s, _, _ in left}.values())
        (winner, most), *others = votes.most_common(2)
        if others and others[0][1] == most:
            raise GCFCPError(
                "the summaries do not fit together, and no kind of them has a majority: find out "
                "which are right, and give only those"
            )
        kept = [one for one in left if _agreement(one[0]) == winner]
        for s, name, _ in left:
            if _agreement(s) != winner:
                why = next(misfits([kept[0][0], s], [kept[0][1], name], SUMMARIES))
                lines.append(f"{why}; it is left out, because most use the other")
        left = kept
    owners = Counter(k for s in {s.client: s for s, _, _ in left}.values() for k, _ in s.members)
    used = []
    for s, name, place in left:
        shared = [k for k, _ in s.members if owners[k] > 1]
        if shared:
            lines.append(f"{name} holds client {shared[0]!r}, and so does another: it is left out")
        else:
            used.append(place)
    return used, lines


def _agreement(s: ClientSummary) -> tuple[Any, ...]:
    """What all clients must agree on, as one value that can be compared."""
    agreed = (repr(_compared(getattr(s, what))) for what in SUMMARIES.agreed)
    return (s.groups.fingerprint, *agreed)


def refuse_shape_parts(summaries: Iterable[ClientSummary]) -> None:
    """Raise an error if a summary is the shape part of a holdout, which leaves records out."""
    for s in summaries:
        if s.is_shape_part:
            raise GCFCPError(
                f"{s.client} sent the shape part of a holdout, which leaves small combinations of "
                "groups out, so that nothing would be promised: use it with fit_shape (gcfcp "
                "shape), and calibrate the other part"
            )


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
    base = with_labels(found)
    first, called = found[base], names[base]
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
        yield from disagreements(one, name, first, called, kind)


def with_labels(found: Sequence[Any]) -> int:
    """The place of the one that the others are compared with.

    It is the first that names its labels, if one does: what has no names agrees with all of them.
    """
    known = (i for i, one in enumerate(found) if "classes" in getattr(one, "parameters", ()))
    return next(known, 0)


def disagreements(one: Any, name: str, first: Any, called: str, kind: Kind[T]) -> Iterator[str]:
    """What one object and the first do not agree on: one line of text for each reason.

    - `name`, `called`: What the one and the first are called in the text.
    """
    if one.groups.fingerprint != first.groups.fingerprint:
        yield (
            f"{name} was {kind.made} for groups {one.groups.fingerprint[:8]}.., {called} for "
            f"{first.groups.fingerprint[:8]}..: use one groups file"
        )
    for what in kind.agreed:
        theirs, ours = getattr(one, what), getattr(first, what)
        if what == "parameters":
            if not scores.alike(theirs, ours):
                yield _other_parameters(name, theirs, called, ours, kind)
            continue
        if _compared(theirs) != _compared(ours):
            yield (
                f"{name} was {kind.made} with {what} {_shown(theirs)}, {called} with "
                f"{_shown(ours)}: all {kind.who} must use the same"
            )


def _other_parameters(
    name: str, theirs: dict[str, Any], called: str, ours: dict[str, Any], kind: Kind[Any]
) -> str:
    """Why two scores differ: in the names of their labels, or in another parameter."""
    if {**theirs, "classes": 0} == {**ours, "classes": 0}:
        return (
            f"{name} has the labels {theirs['classes']:.60}, {called} has {ours['classes']:.60}: "
            f"all {kind.who} must use the same model and the same labels"
        )
    return (
        f"{name} was {kind.made} with parameters {_shown(theirs)}, {called} with {_shown(ours)}: "
        f"all {kind.who} must use the same"
    )


def _compared(value: Any) -> Any:
    """What is compared: of a shape or a grid its fingerprint, whatever it was made from."""
    return value.fingerprint if isinstance(value, Shape | Grid) else value


def _shown(value: Any) -> str:
    """The value in a message."""
    return checks.shown(_compared(value))


def out_of_range(s: ClientSummary, name: str) -> str | None:
    """Why the scores cannot be what their own definition allows, or None if they can.

    For example 1 - p lies in [0, 1] for a probability p, and |y - f| is never negative. Residuals
    are scores less b(x), which lies between the sums of the negative and of the positive
    coefficients of the shape, and they may have been rounded up.

    - `name`: What the text calls the summary.
    """
    try:
        score: Any = scores.from_name(s.score, s.parameters)
    except GCFCPError:
        return None  # This score is the caller's own, and its range is not known here.
    least, most = float(score.lower), float(score.upper)
    if s.shape is not None:
        least -= math.fsum(c for c in s.shape.coefficients if c > 0)
        most -= math.fsum(c for c in s.shape.coefficients if c < 0)
        most += 2.0 ** (1 - ROUNDED_BITS) * abs(most)
    kind = "scores" if s.shape is None else "residuals"
    if s.grid is not None:
        return _out_of_cells(s, s.grid, name, kind, least, most)
    finite = s.values[np.isfinite(s.values)] if s.shape is not None else s.values
    low, high = finite.min(initial=most), finite.max(initial=least)
    if least <= low and high <= most:
        return None
    return (
        f"{name} has {kind} from {low:.6g} to {high:.6g}, but score {s.score!r} only takes {kind} "
        f"from {least:g} to {most:g}: find out how this client computed its scores"
    )


def _out_of_cells(
    s: ClientSummary, grid: Grid, name: str, kind: str, least: float, most: float
) -> str | None:
    """The same for counts on a grid: a record lies above the edge below its cell.

    A score of +inf is in the last cell too, so that this cell says nothing.
    """
    place = grid.place(s.values)
    above = np.concatenate([[-np.inf], grid.upper_edges])[place]
    odd = (s.values < least) | ((above >= most) & (place < len(grid)))
    if not odd.any():
        return None
    i = int(odd.argmax())
    return (
        f"{name} has {kind} between {above[i]:.6g} and {s.values[i]:.6g}, but score {s.score!r} "
        f"only takes {kind} from {least:g} to {most:g}: find out how this client computed its "
        "scores"
    )
