"""Numbers as text. A number that bounds something is rounded to the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gcfcp import checks, codec

DASH = "–"  # What stands where a number is not known.


@dataclass(frozen=True)
class Cell:
    """What a table shows, and the number that it sorts by ("" if the number is not known)."""

    text: str
    value: str

    @classmethod
    def of(cls, value: Any, form: Callable[[float], str]) -> Cell:
        """The cell of a value, written by `form`; a dash if the value is not a number."""
        known = codec.number(value)
        if known is None:
            return cls(DASH, "")
        if math.isinf(known):
            return cls("∞" if known > 0 else "−∞", "inf" if known > 0 else "-inf")
        return cls(form(known), f"{known:.12g}")


def whole(value: float) -> str:
    """Without decimals: 1,204."""
    return f"{value:,.0f}"


def short(value: float) -> str:
    """Short, and exact enough to compare: 0.1773, 12.3, 1,204, 12,346, 1.2e+07."""
    if value == 0 or 1e-4 <= abs(value) < 1e3:
        return f"{value:.4g}".replace("-", "−")
    return (f"{value:,.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.3g}").replace("-", "−")


def size(value: float) -> str:
    """The mean size of a set or an interval, with three significant digits: 2.73."""
    return f"{value:.3g}" if value < 1e3 else short(value)


def in_bytes(value: float) -> str:
    """A number of bytes with its unit: 812 B, 15.5 kB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def exact_percent(value: float) -> str:
    """A percentage that was chosen and not measured, with all its digits: 90%, 99.95%."""
    return f"{100 * value:.6g}%"


def share(value: float) -> str:
    """A share with one decimal: 35.8%, and <0.1% for what would be rounded to nothing."""
    return f"{100 * value:.1f}%" if value >= 0.0005 or value == 0 else "<0.1%"


def _digits(alpha: float) -> int:
    """How many decimals a percentage needs: 1 for alpha down to 1%, 2 down to 0.1%, and so on."""
    return max(1, -math.floor(math.log10(alpha) + 1e-9) - 1)


def percent(alpha: float) -> Callable[[float], str]:
    """A function that writes a coverage as a percentage, rounded to the nearest."""
    return lambda value: f"{100 * value:.{_digits(alpha)}f}%"


def rounded(alpha: float, up: bool) -> Callable[[float], str]:
    """A function that writes a bound as a percentage, rounded up or down.

    A bound must not look better than it is, so a lower bound is rounded down: 0.89999 is 89.9%. An
    error of 1e-6 in the last digit is forgiven, because 0.1 + 0.2 + 0.6 is 0.8999999999999999.
    """
    scale = 10.0 ** (_digits(alpha) + 2)

    def form(value: float) -> str:
        whole = math.ceil(value * scale - 1e-6) if up else math.floor(value * scale + 1e-6)
        return f"{100 * whole / scale:.{_digits(alpha)}f}%"

    return form


counted = checks.counted
"""A number with its noun: "1 client", "5 clients"."""


def listed(names: Sequence[str], limit: int = 3) -> str:
    """Names in a sentence: "a and b", "a, b, c and 7 more"."""
    if len(names) <= limit + 1:
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"
