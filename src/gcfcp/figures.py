"""The figures of a report: numbers as text, and as places on an axis.

Texts round to the safe side where they bound something. Places are in percent of a chart's width,
which the page is free to choose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

DASH = "–"


# --- Numbers as text -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What a table shows, and the number it sorts by ("" where it is not known)."""

    text: str
    value: str

    @classmethod
    def of(cls, value: Any, form: Callable[[float], str]) -> Cell:
        known = number(value)
        if known is None:
            return cls(DASH, "")
        if math.isinf(known):
            return cls("∞" if known > 0 else "−∞", "inf" if known > 0 else "-inf")
        return cls(form(known), f"{known:.12g}")


def number(value: Any) -> float | None:
    """A number of a file that may hold anything; infinities are words in JSON."""
    if value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if math.isnan(value) else float(value)


def whole(value: float) -> str:
    return f"{value:,.0f}"


def short(value: float) -> str:
    """Four significant digits: 0.1773, 12.3, 1,204, 1.2e+07."""
    if value == 0 or 1e-4 <= abs(value) < 1e3:
        return f"{value:.4g}".replace("-", "−")
    return (f"{value:,.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.3g}").replace("-", "−")


def size(value: float) -> str:
    return f"{value:.3g}" if value < 1e3 else short(value)


def in_bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def exact_percent(value: float) -> str:
    return f"{100 * value:.6g}%"


def share(value: float) -> str:
    return f"{100 * value:.1f}%" if value >= 0.0005 or value == 0 else "<0.1%"


def _digits(alpha: float) -> int:
    """Decimals of a percentage that alpha makes meaningful: 1 down to 1%, 2 down to 0.1%, ..."""
    return max(1, -math.floor(math.log10(alpha) + 1e-9) - 1)


def percent(alpha: float) -> Callable[[float], str]:
    return lambda value: f"{100 * value:.{_digits(alpha)}f}%"


def rounded(alpha: float, up: bool) -> Callable[[float], str]:
    """Rounded to the safe side: a bound must not look better than it is."""
    scale = 10.0 ** (_digits(alpha) + 2)

    def form(value: float) -> str:
        whole = math.ceil(value * scale - 1e-6) if up else math.floor(value * scale + 1e-6)
        return f"{100 * whole / scale:.{_digits(alpha)}f}%"

    return form


def counted(n: float, noun: str, plural: str | None = None) -> str:
    return f"{whole(n)} {noun if n == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], limit: int = 3) -> str:
    if len(names) <= limit + 1:
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"


# --- Positions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tick:
    x: str
    label: str
    strong: bool = False


@dataclass(frozen=True)
class Scale:
    """Numbers to positions in percent of a chart's width, which the page is free to choose."""

    low: float
    high: float
    left: float  # of `low`, in percent
    right: float
    ticks: tuple[Tick, ...] = ()

    def at(self, value: float) -> str:
        span = self.high - self.low
        part = 0.5 if span <= 0 else min(1.0, max(0.0, (value - self.low) / span))
        return f"{self.left + (self.right - self.left) * part:.2f}"


@dataclass(frozen=True)
class Mark:
    series: int
    x: str
    y: int  # pixels from the middle of the row
    title: str
    low: str | None = None
    high: str | None = None
    cut: bool = False  # the interval goes on beyond the left edge
    infinite: bool = False


def scale_of(
    low: float,
    high: float,
    form: Callable[[float], str],
    left: float = 6,
    right: float = 93,
    strong: float | None = None,
    ticks: int = 5,
) -> Scale:
    """A scale with round ticks; `strong` is a tick of its own and has its neighbours give way."""
    bare = Scale(low, high, left, right)
    step = step_of((high - low) / ticks)
    marked = []
    if step > 0:
        first = math.ceil(low / step - 1e-9)
        marked = [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
    if strong is not None:
        apart = 0.11 * (high - low)
        marked = [t for t in marked if abs(t - strong) >= apart]
    if not marked and strong is None:
        marked = [low]
    found = [Tick(bare.at(t), form(t)) for t in marked]
    if strong is not None:
        found.append(Tick(bare.at(strong), exact_percent(strong), True))
    return Scale(low, high, left, right, tuple(found))


def step_of(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... times a power of ten that is at least `least`."""
    if not 0 < least < math.inf:
        return 0.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))
