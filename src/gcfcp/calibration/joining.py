"""`join`: summaries of disjoint parts of one site's records become that site's summary.

`gcfcp.summary.joining` says how, why the promise stands, and what the certified error is. Here is
decided which parts can be joined. What cannot be seen is whether two parts share some of their
records. That a part was given twice can: see `SAME_BY_CHANCE`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcfcp import checks, scores
from gcfcp.calibration.clients import Kind, disagreements, out_of_range, shape_of, with_labels
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.summary import ClientSummary, Making, joined, usual_delta

PARTS = Kind(
    ClientSummary,
    "parts",
    "summarised",
    ("score", "parameters", "model", "representative", "by", "shape", "grid", "round", "absent"),
    "parts of a site",
)

SAME_BY_CHANCE = 1e-12
"""Two equal parts are refused if they are equal by chance with a probability below this.

If independent records fall into cells with any probabilities whatever, the counts c_1, ..., c_m are
found with a probability of at most n! / (c_1! ... c_m!) (c_1 / n)^c_1 ... (c_m / n)^c_m. Two equal
parts with a larger probability are named in a warning.
"""


def join(
    parts: Iterable[ClientSummary],
    client: str,
    *,
    delta: float | None = None,
    min_count: int = 1,
    by: str | None = None,
    shape: Any = None,
    epsilon: float | None = None,
    names: Sequence[str] | None = None,
) -> ClientSummary:
    """The summary of one site, from summaries of disjoint parts of its records.

    The parts stay at the site, and the result is what leaves it: one client with all records of the
    parts. Make the parts with the site's name, `min_count=1`, no `epsilon`, and a `delta` that is
    eight times that of the result.

    - `parts`: The summaries of the parts. No record may be in two of them.
    - `client`: The name of the site, which the parts carry too.
    - `delta`: How fine the digests of the result are. By default it is half of the smallest delta
      of the parts. The errors of the parts count in it: each cell errs by at most sin(pi / delta).
    - `min_count`: The smallest number of records that a cell or a cluster of the result may stand
      for, as in `summarize`. It is about the whole site, so that the parts must have 1.
    - `by`: What the result describes. By default it is what the parts describe, and "group" with a
      shape. Parts by atom can become a result by group.
    - `shape`: The shape that is subtracted by group. Parts by group bring their own.
    - `epsilon`: With a grid, the privacy loss of one record; noise is added to the result.
    - `names`: What messages call the parts. By default they are part 1, part 2 and so on.

    Five laws hold. The order of the parts changes no bit of the result. No record is lost or added.
    The arguments are not changed. On a grid the result is that of all records at once, to the last
    bit (but for noise). A single part for which nothing else is asked is the result.

    With `upper` no score is represented too low, so that rule "max" gives no threshold below that
    of the exact scores. The certified error of a cell is the sum of the errors of the parts and of
    what this compression really adds.

    Cost: one sort of the clusters of all parts.
    """
    checks.name("client", client)
    given, called = _given(parts, names)
    _refuse_unfit(given, called, client)
    _refuse_repeated(given, called)
    # Parts may leave out the names of the labels, and the result has them if one part does.
    first = given[with_labels(given)]
    making = _making(given, first, client, delta, min_count, by, shape, epsilon)
    changed = (delta, shape, epsilon) != (None, None, None) or making.min_count > 1
    if len(given) == 1 and making.by == first.by and not changed:
        return first
    return joined(given, making)


def _given(parts: Any, names: Sequence[str] | None) -> tuple[list[ClientSummary], list[str]]:
    """The parts as a list, and what messages call them."""
    if isinstance(parts, ClientSummary) or not isinstance(parts, Iterable):
        raise GCFCPError(f"give a list of parts, not {type(parts).__name__}")
    given = list(parts)
    for one in given:
        if not isinstance(one, ClientSummary):
            raise GCFCPError(f"summaries were expected as parts, not {type(one).__name__}")
    if not given:
        raise GCFCPError("there are no parts: give at least one summary of this site's records")
    called = [f"part {i + 1}" for i in range(len(given))] if names is None else list(names)
    if len(called) != len(given):
        raise GCFCPError(
            f"names has {checks.counted(len(called), 'entry', 'entries')} for "
            f"{checks.counted(len(given), 'part')}: give one for each part"
        )
    return given, called


def _refuse_unfit(parts: Sequence[ClientSummary], names: Sequence[str], client: str) -> None:
    """Raise an error unless all of these can be parts of one site."""
    base = with_labels(parts)
    for part, name in zip(parts, names, strict=True):
        if part.is_aggregate:
            raise GCFCPError(
                f"{name} is the summary of {checks.counted(len(part.members), 'client')}, and not "
                "a part of one site: use merge or add for several clients, and not join"
            )
        if part.client != client:
            raise GCFCPError(
                f"{name} is of client {part.client!r}, and not of {client!r}: the parts of a site "
                "carry its name; summarise this part with that name, or use merge and not join if "
                "it belongs to another site"
            )
        if part.min_count > 1:
            raise GCFCPError(
                f"{name} was summarised with min_count={part.min_count}, which hides what is small "
                "in this part and may be large at the site: summarise the parts with min_count=1, "
                f"keep them at the site, and give min_count={part.min_count} to join"
            )
        if part.noise is not None:
            raise GCFCPError(
                f"{name} has noise of epsilon={part.noise.epsilon:g}, and the noise of all parts "
                "would add up: summarise the parts without epsilon, keep them at the site, and "
                "give epsilon to join"
            )
        for why in disagreements(part, name, parts[base], names[base], PARTS):
            raise GCFCPError(why)
        if refused := out_of_range(part, name):
            raise GCFCPError(refused)


def _refuse_repeated(parts: Sequence[ClientSummary], names: Sequence[str]) -> None:
    """Raise an error if a part is given twice, and warn if two small parts are equal."""
    found: dict[bytes, int] = {}
    objects: dict[int, int] = {}
    for i, part in enumerate(parts):
        first = objects.setdefault(id(part), i)
        same = found.setdefault(part.source.encode(), i)
        if first != i or (same != i and _chance(part) < math.log(SAME_BY_CHANCE)):
            raise GCFCPError(
                f"{names[min(first, same)]} and {names[i]} hold the same "
                f"{checks.counted(part.n, 'record')}, which would count twice: leave one of them "
                "out"
            )
        if same != i:
            warnings.warn(
                f"{names[same]} and {names[i]} are equal, which can be chance with {part.n:,} "
                "records: make sure that they are not the same records, which would count twice",
                GCFCPWarning,
                stacklevel=3,
            )


def _chance(part: ClientSummary) -> float:
    """The logarithm of a bound on the probability of just these counts; see `SAME_BY_CHANCE`.

    By group a record is in several cells, and the group with the smallest probability counts.
    """
    cells = [part.counts]
    if part.by == "group":
        cells = [
            np.append(c, part.n - c.sum()) for c in np.split(part.counts, part.start[1:-1].tolist())
        ]
    return min(_log_of_counts(c[c > 0].tolist()) for c in cells)


def _log_of_counts(counts: Sequence[int]) -> float:
    """log n! - sum log c_j! + sum c_j log(c_j / n)."""
    n = sum(counts)
    if n == 0:
        return 0.0
    return math.lgamma(n + 1) + math.fsum(c * math.log(c / n) - math.lgamma(c + 1) for c in counts)


@dataclass(frozen=True)
class _Scored:
    """The score of the parts, as far as files tell: what `Making` needs to know of it."""

    name: str
    parameters: dict[str, Any]
    lower: float
    upper: float


def _score_of(part: ClientSummary) -> _Scored:
    """The score of a part. The range of a score that is not one of `gcfcp.scores` is not known."""
    try:
        known: Any = scores.from_name(part.score, part.parameters)
    except GCFCPError:
        return _Scored(part.score, part.parameters, -math.inf, math.inf)
    return _Scored(part.score, part.parameters, float(known.lower), float(known.upper))


def _making(
    parts: Sequence[ClientSummary],
    first: ClientSummary,
    client: str,
    delta: float | None,
    min_count: int,
    by: str | None,
    shape: Any,
    epsilon: float | None,
) -> Making:
    """How the site's summary is made."""
    cells = by or ("group" if shape is not None else first.by)
    if first.by == "group":
        _refuse_by_group(cells, min_count, shape)
        shape = shape_of(parts)
    elif shape is not None and first.grid is not None:
        raise GCFCPError(
            "on a grid the residuals are counted, which parts by atom do not hold: summarise the "
            "parts with by='group' and the shape"
        )
    if first.grid is not None and delta is not None:
        raise GCFCPError(
            f"delta={delta} is not possible with a grid, whose counts add up as they are: leave "
            "delta out"
        )
    if first.grid is None and delta is None:
        delta = usual_delta(parts)
    dates = {s.date for s in parts}
    return Making(
        groups=first.groups,
        client=client,
        delta=delta,
        representative=first.representative,  # type: ignore[arg-type]
        min_count=min_count,
        score=_score_of(first),
        model=first.model,
        absent=first.absent,
        by=cells,
        shape=shape,
        round=first.round,
        date=dates.pop() if len(dates) == 1 else None,
        grid=first.grid,
        epsilon=epsilon,
    )


def _refuse_by_group(by: str, min_count: int, shape: Any) -> None:
    """Raise an error if more is asked of parts by group than they hold."""
    if by != "group":
        raise GCFCPError(f"parts by group cannot become a summary by {by}: make them by atom")
    if min_count > 1:
        raise GCFCPError(
            f"min_count={min_count} needs parts by atom, because what two groups have in common "
            "may be small: summarise the parts with by='atom', and give by='group' to join"
        )
    if shape is not None:
        raise GCFCPError(
            "parts by group already hold scores or residuals by group: give the shape to their "
            "summarize, or make the parts by atom"
        )
