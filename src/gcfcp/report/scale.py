"""Numbers as places on an axis, in percent of a chart's width, which the page is free to choose."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gcfcp.report.numbers import exact_percent


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
