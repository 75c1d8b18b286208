"""Why a group has none of the records: which values the columns of its condition hold instead.

A condition such as `sex = 'female'` matches nobody where the data say `Female`, and nothing else
would tell. These sentences quote the data. They are for the owner of the data alone, and are part
of no file, no reply and no log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_SHOWN = 8  # The most values of a column that a sentence shows.
_MOST = 10_000  # The most different values of a column that are counted.


class Held:
    """The values of one column: how often each text occurs, or the range of the numbers."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.low: float | None = None
        self.high: float | None = None
        self.missing = 0

    def add(self, values: pl.Series) -> None:
        """Take the values of one batch."""
        self.missing += values.null_count()
        known = values.drop_nulls()
        if known.is_empty():
            return
        if known.dtype.is_numeric():
            low, high = float(known.min()), float(known.max())  # type: ignore[arg-type]
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        elif len(self.counts) < _MOST:
            texts = known.cast(str, strict=False).drop_nulls()
            for text, count in texts.value_counts().iter_rows():
                self.counts[text] += count

    @property
    def texts(self) -> list[str]:
        """The values that are texts."""
        return list(self.counts)

    @property
    def text(self) -> str:
        """The values in words."""
        parts = []
        if self.low is not None:
            parts.append(f"numbers from {self.low:g} to {self.high:g}")
        if self.counts:
            shown = [f"{text!r:.60} ({n:,})" for text, n in self.counts.most_common(_SHOWN)]
            more = len(self.counts) - len(shown)
            parts.append(", ".join(shown) + (f" and {more:,} other values" if more > 0 else ""))
        if self.missing:
            parts.append(f"{self.missing:,} missing values")
        return " and ".join(parts) or "nothing"


def sentence(name: str, condition: str, held: Mapping[str, Held], where: str) -> str:
    """What is said about a group that has none of the records.

    held: What the columns of its condition hold.
    where: What the data are called, such as the name of a table.
    """
    columns = "; ".join(f"column {c!r} holds {values.text}" for c, values in held.items())
    hint = _hint(condition, [text for values in held.values() for text in values.texts])
    return (
        f"group {name!r} ({condition}) has none of the records of {where}: "
        f"{columns or 'it names no column'}{hint}"
    )


def _hint(condition: str, values: Sequence[str]) -> str:
    """Which values differ from a text in the condition only in capitals or in blanks."""
    quoted = {text.strip().casefold(): text for text in condition.split("'")[1::2]}
    near = [v for v in values if quoted.get(v.strip().casefold(), v) != v]
    if not near:
        return ""
    meant = quoted[near[0].strip().casefold()]
    more = f", ... ({len(near)} in all)" if len(near) > 3 else ""
    shown = ", ".join(f"{v!r:.60}" for v in near[:3]) + more
    levels = "trim(...) and lower(...) level them"
    return f"; {shown} differs from {meant!r} only in capitals or blanks ({levels})"
