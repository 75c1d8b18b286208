"""The numbers of an explorer page as texts, and which setting has which.

Every number becomes a text here, by the same functions as in the report. The script of the page
looks texts up and computes nothing but the places of marks. Each text, each threshold and each list
stands in the result once, and settings refer to it by its place.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.calibration import Exploration, Guarantee, Line, Mixture, Setting, Stop, mixture
from gcfcp.report import numbers as num
from gcfcp.report import sections
from gcfcp.report.parts import cells_of

_BUDGET = 1_600_000  # The characters of numbers and names that fit into 2 MB beside the rest.
_REASONS = 6  # The most reasons that are listed for one setting.
_LISTED = 8  # The most clients whose shares are listed for one mixture.

STARTS = {
    "proportional": "in proportion to the records",
    "uniform": "every site counts the same",
    "given": "the weights that were given",
}
"""What the mixtures are called at which lines start or end."""


@dataclass(frozen=True)
class Lookup:
    """What the page looks up."""

    text: str  # JSON in which no character means anything to HTML.
    rows: int  # How many rows the table of thresholds has.


def lookup_of(explored: Exploration) -> Lookup:
    """All that the page looks up, with as many reasons and rows as fit, those of most weight."""
    rows, reasons = _by_weight(explored.start), _REASONS
    while True:
        found = _Settings(explored, rows, reasons).data()
        text = _escaped(json.dumps(found, separators=(",", ":")))
        if len(text) <= _BUDGET or len(rows) <= 1:
            return Lookup(text, len(rows))
        if reasons > 1:
            reasons //= 2
        else:
            rows = rows[: len(rows) * 3 // 4]


def _by_weight(setting: Setting) -> Ints:
    """The places of the atoms, heaviest first."""
    weights = np.array([record.weight or 0.0 for record in setting.atoms])
    found: Ints = np.argsort(-weights, kind="stable")
    return found


def _escaped(text: str) -> str:
    """JSON without a character that ends or opens anything in HTML; its meaning is the same."""
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


class _Once:
    """Values of which each is kept once."""

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}

    def place(self, value: Hashable) -> int:
        """The place of a value."""
        return self._places.setdefault(value, len(self._places))

    @property
    def values(self) -> list[Any]:
        """All values, in the order of their places."""
        return list(self._places)


class _Settings:
    """The settings of an exploration in texts.

    - `rows`: The places of the atoms that the table shows, in its order.
    - `reasons`: The most reasons that are listed for one setting.
    """

    def __init__(self, explored: Exploration, rows: Ints, reasons: int) -> None:
        self.explored, self.rows, self.most = explored, rows, reasons
        self.membership = explored.membership
        self.texts, self.numbers, self.lists = _Once(), _Once(), _Once()

    def data(self) -> dict[str, Any]:
        """All of them, as JSON can hold it."""
        explored, start = self.explored, self.explored.start
        found = {
            "settings": [[self._setting(s) for s in column] for column in explored.settings],
            "alphas": [
                [f"{a:g}", num.exact_percent(1 - a), f"--alpha {a!r}"] for a in explored.alphas
            ],
            "start": explored.alphas.index(explored.alpha),
            "lines": _lines(explored.stops),
            "stops": [
                [stop_text(explored, s), _shares(explored, s), _option(s.mixture)]
                for s in explored.stops
            ],
            "groups": [
                [name, condition, num.whole(g.records)]
                for name, condition, g in zip(
                    explored.groups.names, explored.groups.conditions, start.guarantee, strict=True
                )
            ],
            "rows": [
                [num.whole(start.atoms[i].count or 0), np.flatnonzero(self.membership[i]).tolist()]
                for i in self.rows.tolist()
            ],
        }
        return found | {
            "texts": self.texts.values,
            "lists": [list(one) for one in self.lists.values],
            "numbers": [_number(text) for text in self.numbers.values],
        }

    def _text(self, text: str) -> int:
        return self.texts.place(text)

    def _list(self, texts: Sequence[str]) -> int:
        """The place of a list of texts."""
        return self.lists.place(tuple(map(self._text, texts)))

    def _setting(self, setting: Setting) -> dict[str, Any]:
        """One setting. `_list` and `_text` say what is kept elsewhere."""
        thresholds, infinite = setting.thresholds, ~np.isfinite(setting.thresholds)
        weights = np.array([record.weight or 0.0 for record in setting.atoms])
        if self.explored.by == "atom" and weights.sum() > 0:
            # Where the record to come has a share as well, and where records are hidden, the
            # weights do not add up to 1. People add them up, so that these are shares.
            weights = weights / weights.sum()
        shown = self.rows.tolist()
        promised = [_promise(g, setting.alpha) for g in setting.guarantee]
        return {
            "t": [self.numbers.place(repr(float(thresholds[i]))) for i in shown],
            "w": self._list([num.share(float(weights[i])) for i in shown]),
            "p": self._list([text for pair in promised for text in pair]),
            "e": self._list([num.whole(g.effective_n) for g in setting.guarantee]),
            "m": self._list(self._missing(weights, infinite)),
            "f": self._list(
                [
                    setting.correction.size,
                    str(setting.correction),
                    f"{num.whole(int(infinite.sum()))} of {num.whole(len(infinite))}",
                    self._infinite_share(weights, infinite),
                ]
            ),
            "r": self._reasons(setting, weights, infinite),
        }

    def _infinite_share(self, weights: Floats, infinite: Bools) -> str:
        """The share of the mixture's records that have no finite threshold; by group not known."""
        if self.explored.by == "group" or not weights.sum() > 0:
            return num.DASH
        return num.share(float(weights[infinite].sum()))

    def _missing(self, weights: Floats, infinite: Bools) -> list[str]:
        """The share of the records of each group that have no finite threshold."""
        if self.explored.by == "group":
            return ["all" if one else "none by its own level" for one in infinite]
        total, without = weights @ self.membership, (weights * infinite) @ self.membership
        return [
            num.share(float(part / whole)) if whole > 0 else num.DASH
            for part, whole in zip(without, total, strict=True)
        ]

    def _reasons(self, setting: Setting, weights: Floats, infinite: Bools) -> list[list[int]]:
        """The reasons that concern the most weight, each with the atoms that it concerns."""
        members: dict[str, list[int]] = {}
        for i in np.flatnonzero(infinite).tolist():
            members.setdefault(setting.atoms[i].reason or "no reason was recorded", []).append(i)
        order = sorted(members, key=lambda reason: -float(weights[members[reason]].sum()))
        cells = cells_of(self.explored)
        found = [
            [self._text(_sentence(reason)), self._text(_extent(cells, weights[members[reason]]))]
            for reason in order[: self.most]
        ]
        if len(order) > self.most:
            left = f"and {num.counted(len(order) - self.most, 'other reason')} of less weight"
            found.append([self._text(left), self._text("")])
        return found


def _number(text: str) -> tuple[float | str, str]:
    """A threshold as JSON can hold it, infinite ones as words, and as the report writes it."""
    value = float(text)
    shown = num.Cell.of(value, num.short).text
    return (value if math.isfinite(value) else text), shown


def _promise(g: Guarantee, alpha: float) -> tuple[str, str]:
    """What is promised for a group at least, and on what ground."""
    bound = num.rounded(alpha, up=False)(g.certified)
    ground = sections.GROUNDS.get(g.certified_status, g.certified_status)
    return bound, f"{ground}, {g.theorem}" if g.theorem else ground


def _sentence(reason: str) -> str:
    """A reason as a sentence."""
    return f"{reason[:1].upper()}{reason[1:]}."


def _extent(cells: Any, weights: Floats) -> str:
    """How many combinations, or groups, a reason concerns, and what they weigh."""
    text: str = cells.counted(len(weights))
    if cells.word == "group":  # Groups overlap, so that their weights do not add up.
        return text
    return f"{text}, {num.share(float(weights.sum()))} of the weight"


# --- mixtures -------------------------------------------------------------------------------------


def _lines(stops: Sequence[Stop]) -> list[dict[str, Any]]:
    """The lines of mixtures: a name, and the stops with the part of the way, from the start on."""
    found: dict[Line, list[tuple[float, int]]] = {}
    for place, stop in enumerate(stops):
        if stop.line is not None:
            found.setdefault(stop.line, []).append((stop.part, place))
    return [
        {
            "name": line_text(line),
            "stops": [
                [num.exact_percent(part), place] for part, place in [(0.0, 0), *sorted(ends)]
            ],
        }
        for line, ends in found.items()
    ]


def line_text(line: Line) -> str:
    """What the end of a line is called."""
    return STARTS[line.kind] if line.client is None else f"{line.client} alone"


def start_text(explored: Exploration) -> str:
    """What the mixture is called at which all lines start."""
    given = explored.stops[0].mixture
    return STARTS[given if isinstance(given, str) else "given"]


def stop_text(explored: Exploration, stop: Stop) -> str:
    """A mixture in words."""
    start = start_text(explored)
    if stop.line is None:
        return start
    end = line_text(stop.line)
    if stop.part == 1:
        return end
    return f"{num.exact_percent(stop.part)} of the way from “{start}” to “{end}”"


def _shares(explored: Exploration, stop: Stop) -> str:
    """What each client counts, the largest first; those that do not count are left out."""
    pairs = sorted(zip(explored.clients, stop.shares, strict=True), key=lambda pair: -pair[1])
    listed = [f"{name} {num.share(share)}" for name, share in pairs if share > 0]
    found = listed[:_LISTED]
    if len(listed) > _LISTED:
        found.append(f"and {num.whole(len(listed) - _LISTED)} more")
    elif len(listed) < len(pairs):
        found.append(f"and {num.counted(len(pairs) - len(listed), 'other')} not at all")
    return ", ".join(found)


def _option(given: Mixture) -> str:
    """The mixture as an option of the command line."""
    plain = mixture.to_plain(given)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return f"--mixture {shlex.quote(text)}"
