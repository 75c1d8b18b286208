"""Numbers as places on an axis.

A place is a percentage of the chart's width, so that the page can choose how wide the chart is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gcfcp.report.numbers import exact_percent


@dataclass(frozen=True)
class Tick:
    """A label of the axis, with a line through the chart; a strong one marks the promise."""

    x: str
    label: str
    strong: bool = False


@dataclass(frozen=True)
class Scale:
    """A linear map from numbers to places, in percent of the chart's width."""

    low: float
    high: float
    left: float  # The place of `low`, in percent.
    right: float  # The place of `high`, in percent.
    ticks: tuple[Tick, ...] = ()

    def at(self, value: float) -> str:
        """The place of a number; what lies outside of the scale is put at its nearer end."""
        span = self.high - self.low
        part = 0.5 if span <= 0 else min(1.0, max(0.0, (value - self.low) / span))
        return f"{self.left + (self.right - self.left) * part:.2f}"


@dataclass(frozen=True)
class Mark:
    """A point in a row of a chart, with an interval if it has one."""

    series: int  # Which colour and shape it has.
    x: str | None  # Its place, in percent of the chart's width; None if only a range is known.
    y: int  # How many pixels it lies below the middle of the row.
    title: str  # What is shown when a pointer rests on it.
    low: str | None = None  # The place of the lower end of its interval.
    high: str | None = None  # The place of the upper end of its interval.
    cut: bool = False  # The interval goes on beyond the left end of the scale.
    band: tuple[str, str] | None = None  # The ends of the range, if the number is not known.
    infinite: bool = False  # The number is infinite, and a sign is drawn in place of a point.


def scale_of(
    low: float,
    high: float,
    form: Callable[[float], str],
    left: float = 6,
    right: float = 93,
    strong: float | None = None,
    ticks: int = 5,
) -> Scale:
    """A scale with ticks at round numbers.

    form: It writes the label of a tick.
    left, right: The places of `low` and `high`, in percent.
    strong: A number that gets a tick of its own; ticks that would be too close to it are left out.
    ticks: About how many ticks there are.
    """
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
    """The smallest number of the form 1, 2 or 5 times a power of ten that is at least `least`.

    step_of(0.03) is 0.05. It is 0 if `least` is not a positive number.
    """
    if not 0 < least < math.inf:
        return 0.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))
