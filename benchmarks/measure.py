"""Timings that can be compared, and the values that a benchmark returns.

Contestants run in turns, so a machine that is busy for a while slows all of them alike. A ratio is
taken within each turn, and the median over the turns is reported. All single timings are kept.

What is timed is the processor time of all threads of the process. All contestants use one thread.
On an idle machine their processor time is what a clock would show, and on a busy machine it does
not include the time of other programs.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Timing:
    """The seconds that one contestant took, one number for each turn."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """The lower and the upper quartile, or the extremes of fewer than three numbers."""
        return quartiles(self.seconds)

    def each(self, count: float, once: float = 0.0) -> Timing:
        """The seconds for one of `count` items, plus `once`: its share of what is paid once."""
        return Timing(tuple(s / count + once for s in self.seconds))


def quartiles(numbers: tuple[float, ...]) -> tuple[float, float]:
    """The lower and the upper quartile, or the extremes of fewer than three numbers."""
    if len(numbers) < 3:
        return min(numbers), max(numbers)
    low, _, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, high


@dataclass(frozen=True)
class Elsewhere:
    """What a contestant returns if it ran in another process and measured its own time."""

    seconds: float


def race(contestants: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, Timing]:
    """Time the contestants in turns. Garbage is collected before each run and never during one.

    Each turn has another order. If the system takes back memory that one contestant gave up, the
    next one pays for it, and that should not always be the same one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    shuffle = random.Random(0).shuffle
    order = list(contestants.items())
    for _ in range(turns):
        shuffle(order)
        for name, run in order:
            gc.collect()
            gc.disable()
            try:
                began = time.process_time()
                result = run()
                took = time.process_time() - began
                seconds[name].append(result.seconds if isinstance(result, Elsewhere) else took)
            finally:
                gc.enable()
    return {name: Timing(tuple(s)) for name, s in seconds.items()}


@dataclass(frozen=True)
class Ratio:
    """How many times as long as another one a contestant took, turn by turn."""

    by_turn: tuple[float, ...]

    @classmethod
    def of(cls, over: Timing, under: Timing) -> Ratio:
        """The ratio over / under of each turn, or of the medians if their turns differ."""
        if len(over.seconds) != len(under.seconds):
            return cls((over.median / under.median,))
        return cls(tuple(a / b for a, b in zip(over.seconds, under.seconds, strict=True)))

    @property
    def median(self) -> float:
        return statistics.median(self.by_turn)


def peak_memory(run: Callable[[], Any]) -> int:
    """The most bytes that were allocated at once while `run` ran, without its arguments."""
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@dataclass(frozen=True)
class Target:
    """A promise about this run: `value` is at most (or at least) `limit`."""

    claim: str
    value: float
    limit: float
    at_least: bool = False
    spread: tuple[float, float] | None = None
    turns: int | None = None  # If `value` is the median of a ratio, the number of its turns.

    @property
    def met(self) -> bool:
        """Whether the value keeps the promise."""
        return self._holds(self.value)

    @property
    def narrow(self) -> bool:
        """Whether the target is met, but a quarter of the turns or more would have missed it."""
        return self.met and self.spread is not None and not all(map(self._holds, self.spread))

    def _holds(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def at_most(claim: str, value: float | Ratio, limit: float) -> Target:
    """The target that the value is at most the limit."""
    return _target(claim, value, limit, at_least=False)


def at_least(claim: str, value: float | Ratio, limit: float) -> Target:
    """The target that the value is at least the limit."""
    return _target(claim, value, limit, at_least=True)


def _target(claim: str, value: float | Ratio, limit: float, at_least: bool) -> Target:
    if isinstance(value, Ratio):
        turns = value.by_turn
        return Target(claim, value.median, limit, at_least, quartiles(turns), len(turns))
    return Target(claim, value, limit, at_least)


@dataclass(frozen=True)
class Entry:
    """One contestant in a case: its times, or why there are none, and other figures."""

    name: str
    timing: Timing | None = None
    why_not: str | None = None
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """How large a run is. A `quick` run shows that the benchmark works; its times mean little."""

    quick: bool
    turns: int

    def size(self, full: int, quick: int) -> int:
        """The size for this run: `full`, or `quick` in a quick run."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Case:
    """One part of the table: what was measured, on which data, and what was promised."""

    key: str
    what: str
    data: str
    entries: tuple[Entry, ...]
    targets: tuple[Target, ...] = ()
    checks: tuple[str, ...] = ()  # Statements that were compared with an oracle and found true.
    notes: tuple[str, ...] = ()
    says: tuple[str, ...] = ()  # What has to be read beside the targets, such as who else wins.


class CheckError(AssertionError):
    """A result differs from its oracle, so its speed does not matter."""


def check(holds: bool, what: str) -> str:
    """Return the statement `what` if it holds, for the record; otherwise raise CheckError."""
    if not holds:
        raise CheckError(f"does not hold: {what}")
    return what
