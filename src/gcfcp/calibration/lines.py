"""Mixtures on straight lines, at which an exploration calibrates.

Each line starts at one mixture, by default in proportion to the records, and leads to "uniform", to
"proportional", or to one client alone. For a part t of the way the weight of client k is
(1 - t) pi_k + t pi'_k, rounded to a millionth so that people can write it down. The weights add up
to exactly 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gcfcp import checks
from gcfcp.calibration.admission import Admission
from gcfcp.calibration.mixture import WORDS, Mixture
from gcfcp.calibration.problem import shares_of
from gcfcp.errors import GCFCPError
from gcfcp.summary import ClientSummary

PARTS = (0.25, 0.5, 0.75, 1.0)
"""How far towards another mixture the stops lie, as parts of the whole way."""

_MILLION = 10**6


@dataclass(frozen=True)
class Line:
    """Where a line of mixtures leads to: "uniform", "proportional", or one client alone."""

    kind: str  # "uniform", "proportional" or "client".
    client: str | None = None  # The client that counts alone, for the kind "client".

    def __str__(self) -> str:
        return self.kind if self.client is None else f"{self.client} alone"


@dataclass(frozen=True)
class Stop:
    """One mixture at which the summaries were calibrated."""

    line: Line | None  # The line on which it lies; None for the mixture at which all lines start.
    part: float  # How far along the line it lies, from 0 to 1.
    mixture: Mixture  # The mixture, as `calibrate` takes it.
    shares: tuple[float, ...]  # pi_k of each client, in the order of `Exploration.clients`.

    def __str__(self) -> str:
        if self.line is None:
            return "at the start"
        way = "" if self.part == 1 else f", {100 * self.part:.6g} % of the way to it"
        return f"{self.line}{way}"


def stops_of(
    summaries: Sequence[ClientSummary],
    mixture: Mixture,
    admission: Admission,
    parts: Iterable[float],
    clients: Iterable[str] | None,
) -> tuple[list[Stop], list[str]]:
    """The stops in the order of their importance, and what is left out of them.

    The ends of the lines come first, then the middles, then the others. Of the lines those to
    "uniform" and "proportional" come first, then the clients with the most records.
    """
    shares = shares_of(summaries, mixture, admission)
    start = Stop(None, 0.0, mixture, tuple(map(float, shares)))
    ends, left_out = _ends(summaries, shares, admission, clients)
    found = [start]
    for part in sorted(_checked(parts), key=lambda p: (p != 1, abs(p - 0.5), p)):
        found += [_stop(line, part, shares, end, summaries) for line, end in ends]
    return found, left_out


def _checked(parts: Iterable[float]) -> set[float]:
    """The parts of the way; each is above 0 and at most 1."""
    given = list(parts)
    for part in given:
        if not checks.is_number(part) or not 0 < part <= 1:
            raise GCFCPError(f"part {part!r:.40} of the way to a mixture is not in (0, 1]")
    return {checks.as_float(part) for part in given}


def _ends(
    summaries: Sequence[ClientSummary],
    start: Sequence[Fraction],
    admission: Admission,
    clients: Iterable[str] | None,
) -> tuple[list[tuple[Line, list[Fraction]]], list[str]]:
    """Where the lines lead to, each with its shares; a line that leads nowhere is none."""
    names = [s.client for s in summaries]
    alone = names if clients is None else [checks.name("client", name) for name in clients]
    for name in alone:
        if name not in names:
            raise GCFCPError(f"{name!r} is not among the clients {checks.listed(sorted(names))}")
    ends, left_out = [], []
    for word in WORDS:
        try:
            ends.append((Line(word), shares_of(summaries, word, admission)))
        except GCFCPError as error:  # Nobody said how many sites an aggregate stands for.
            left_out.append(f"The mixture {word} was left out: {error}.")
    size = {s.client: s.n for s in summaries}
    ends += [
        (Line("client", name), [Fraction(int(k == name)) for k in names])
        for name in sorted(set(alone), key=lambda name: (-size[name], name))
    ]
    return [end for end in ends if end[1] != list(start)], left_out


def _stop(
    line: Line,
    part: float,
    start: Sequence[Fraction],
    end: Sequence[Fraction],
    summaries: Sequence[ClientSummary],
) -> Stop:
    """The stop at some part of the way from one mixture to another."""
    names = [s.client for s in summaries]
    mixture: Mixture
    if part == 1 and line.kind != "client":
        mixture, shares = line.kind, list(end)
    else:
        t = checks.rational(part)
        blended = [(1 - t) * a + t * b for a, b in zip(start, end, strict=True)]
        shares = [Fraction(k, _MILLION) for k in _whole(blended)]
        mixture = {name: float(share) for name, share in zip(names, shares, strict=True)}
    return Stop(line, part, mixture, tuple(map(float, shares)))


def _whole(shares: Sequence[Fraction]) -> list[int]:
    """The shares in millionths, as whole numbers that add up to a million.

    What rounding down leaves over goes to the shares that lost the most by it, one millionth each.
    """
    scaled = [share * _MILLION for share in shares]
    found = [int(value) for value in scaled]
    order = sorted(range(len(scaled)), key=lambda k: (found[k] - scaled[k], k))
    for k in order[: _MILLION - sum(found)]:
        found[k] += 1
    return found
