"""A grid: public score values, to which every site rounds its scores up before it counts them.

A grid has ascending upper edges e_1 < ... < e_B. A score s is in the first cell whose edge is not
below it, and counts as that edge; a score above the last edge counts as +inf. The edges are chosen
beforehand and are the same at all sites. Three things follow:

- **Counts add up.** A site sends whole numbers over cells that everybody knows, so that the counts
  of several sites can be added (`gcfcp.add`) without loss.
- **The promise stays proved, that of the simultaneous rule included.** Rounding up to public edges
  only renames the scores before they are seen, and no score is renamed to a smaller one. A digest,
  whose points depend on the records, does not have this proof for the simultaneous rule.
- **No value is a record's.** What leaves are edges, which everybody knows.

What it costs is the width of a cell. By rule "max" a threshold is an edge, the first that is not
below the threshold of the scores themselves. By the simultaneous rule it is a combination of edges.
`Grid.near` makes the cells narrow where an earlier predictor has its thresholds, and wide
elsewhere.

With `Grid.logarithmic` an edge is (1 + r) / (1 - r) times the edge below it, as in DDSketch
(Masson, Rim, Lee, VLDB 2019), so that a score is at most the factor (1 + r) / (1 - r) below its
edge. Scores of 0 and below have the edge 0; with `negative=True` there are edges below 0 as well.

The edges of `uniform` and `logarithmic` are the same on every machine: those of the first are
rounded once from exact fractions, and those of the second are products of floats, one after the
other.

Cost: one binary search for each score, and 8 bytes for each cell.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from os import PathLike, fspath
from os.path import exists
from typing import Any

import numpy as np

from gcfcp import checks, codec
from gcfcp.arrays import Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.version import LIBRARY

MOST_CELLS = 2**16
"""How many cells a grid may have. A hostile file must not ask for more memory than it has bytes."""

_FORMAT, _VERSION = "gcfcp grid", 1
_LOGARITHMIC = (0.01, 1e-6, 1e6)  # The defaults of `logarithmic`.
_REMEDY = "write uniform:LOW,HIGH,CELLS, logarithmic:RELATIVE,LOW,HIGH or edges:E1,E2,.."
_DIGITS = 5  # The significant decimal digits of an edge that `near` computes.
_FINEST = 1e-3  # Beside a threshold, the cells of `near` are about this part of the range apart.

Recipe = tuple[str, tuple[float, ...]]
"""The name of the function that makes a grid, and its numbers."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Public upper edges of cells of scores. Two grids are equal if their edges are.

    `Grid([0.5, 0.8, 1.0])` has the cells "up to 0.5", "above 0.5 and up to 0.8", "above 0.8 and up
    to 1", and what lies above 1 counts as +inf.
    """

    upper_edges: Floats = field(repr=False)
    _recipe: Recipe | None = None  # How the edges were made; None if they were given.

    def __post_init__(self) -> None:
        edges = checks.vector("upper_edges", self.upper_edges).copy() + 0.0
        if not 1 <= len(edges) <= MOST_CELLS:
            raise GCFCPError(
                f"a grid with {len(edges):,} edges is not possible: give 1 to {MOST_CELLS:,}"
            )
        if not np.isfinite(edges).all() or np.any(edges[1:] <= edges[:-1]):
            raise GCFCPError(
                "the upper edges of a grid must be finite numbers, each above the one before"
            )
        edges.flags.writeable = False
        object.__setattr__(self, "upper_edges", edges)

    # --- making one

    @classmethod
    def uniform(cls, low: float, high: float, cells: int) -> Grid:
        """Cells of equal width between `low` and `high`, for scores that lie between them.

        The edges are low + i (high - low) / cells for i = 1, ..., cells. A score at or below `low`
        is in the first cell.
        """
        low, high = _finite("low", low), _finite("high", high)
        cells = checks.whole("cells", cells, 1, MOST_CELLS + 1)
        if not low < high:
            raise GCFCPError(f"low={low:g} is not below high={high:g}")
        first, width = Fraction(low), (Fraction(high) - Fraction(low)) / cells
        edges = [float(first + i * width) for i in range(1, cells + 1)]
        return cls(np.array(edges), ("uniform", (low, high, float(cells))))

    @classmethod
    def logarithmic(
        cls,
        relative: float = _LOGARITHMIC[0],
        low: float = _LOGARITHMIC[1],
        high: float = _LOGARITHMIC[2],
        negative: bool = False,
    ) -> Grid:
        """Cells whose width is in proportion to the score, for scores without a known limit.

        - `relative`: r. An edge is (1 + r) / (1 - r) times the edge below it.
        - `low`, `high`: The smallest edge above 0, and a number that the largest is not below.
          Scores of 0 and below have the edge 0, and scores above the last edge count as +inf.
        - `negative`: Whether there are edges below 0 too, the mirror image of those above.

        At the defaults there are 1,384 cells. Only those that hold a record are sent, unless noise
        is added.
        """
        relative = checks.probability("relative", relative)
        low, high = _finite("low", low), _finite("high", high)
        if not 0 < low < high:
            raise GCFCPError(f"low={low:g} and high={high:g} must be above 0, and low the smaller")
        factor = (1 + relative) / (1 - relative)
        if math.log(high / low) / math.log(factor) > MOST_CELLS / 2 - 2:
            raise GCFCPError(
                f"relative={relative:g} gives more than {MOST_CELLS:,} cells between low={low:g} "
                f"and high={high:g}: give a larger one, or narrower limits"
            )
        edges = [low]
        while edges[-1] < high:
            edges.append(edges[-1] * factor)
        below = [-e for e in reversed(edges)] if checks.flag("negative", negative) else []
        numbers = (relative, low, high, float(negative))
        return cls(np.array([*below, 0.0, *edges]), ("logarithmic", numbers))

    @classmethod
    def near(
        cls, predictor: Any, cells: int = 64, low: float | None = None, high: float | None = None
    ) -> Grid:
        """Cells that are narrow around the thresholds of an earlier predictor, and wide elsewhere.

        The width of a cell is about in proportion to its distance from the nearest threshold: the
        number of edges below x grows with sum_j log(1 + |x - t_j| / u) over the thresholds t_j,
        where u is a thousandth of the range.

        - `predictor`: A `Predictor` or a `Calibration`, made of other records. With a shape its
          levels count, and the grid is then for residuals of the same shape.
        - `cells`: How many cells there are at most. Edges have five digits, and equal ones are one.
        - `low`, `high`: The range. By default it reaches from the thresholds as far as the largest
          of them is from 0, within the limits of the score.

        Make it once, at the server, and send it to the sites: the last digit of an edge may differ
        between machines. No record that is counted on the grid may be behind the predictor.
        """
        cells = checks.whole("cells", cells, 2, MOST_CELLS + 1)
        found = _thresholds_of(predictor)
        reach = max(float(np.abs(found).max()), float(found.max() - found.min())) or 1.0
        least, most = _limits_of(predictor)
        low = max(float(found.min()) - reach, least) if low is None else _finite("low", low)
        high = min(float(found.max()) + reach, most) if high is None else _finite("high", high)
        if not low < high:
            raise GCFCPError(f"low={low:g} is not below high={high:g}: give both")
        unit = _FINEST * (high - low)
        x = np.unique(np.concatenate([np.linspace(low, high, 4096), *_around(found, unit)]))
        x = x[(low <= x) & (x <= high)]
        mass = np.zeros(len(x))
        for t in found:
            mass += np.sign(x - t) * np.log1p(np.abs(x - t) / unit)
        wanted = np.linspace(mass[0], mass[-1], cells + 1)[1:]
        edges = np.interp(wanted, mass, x)
        return cls(np.unique([float(f"{e:.{_DIGITS}g}") for e in [*edges[:-1], high]]))

    @classmethod
    def parse(cls, text: str) -> Grid:
        """A grid as people write it on a command line or in a configuration.

        "uniform:0,1,64", "logarithmic:0.01", "logarithmic:0.01,1e-6,1e6", "edges:0.5,0.8,1", or the
        name of a file that `save` wrote.
        """
        kind, sign, numbers = text.partition(":")
        if not sign or kind not in ("uniform", "logarithmic", "edges"):
            if not exists(text):
                raise GCFCPError(f"grid={text!r:.60} is neither a grid nor a file: {_REMEDY}")
            return cls.load(text)
        try:
            given = [float(number) for number in numbers.split(",")] if numbers else []
        except ValueError:
            what = f"grid={text!r:.60} has a part that is not a number"
            raise GCFCPError(f"{what}: {_REMEDY}") from None
        if kind == "edges":
            return cls(np.array(given))
        if kind == "uniform" and len(given) == 3 and given[2].is_integer():
            return cls.uniform(given[0], given[1], int(given[2]))
        if kind == "logarithmic" and len(given) <= 3:
            relative, low, high = [*given, *_LOGARITHMIC[len(given) :]]
            return cls.logarithmic(relative, low, high)
        raise GCFCPError(f"grid={text!r:.60} cannot be read as a grid: {_REMEDY}")

    # --- using one

    def __len__(self) -> int:
        """B, the number of cells, without the one for +inf."""
        return len(self.upper_edges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __str__(self) -> str:
        edges = self.upper_edges
        how = "" if self._recipe is None else f"{self._recipe[0]}, "
        return f"{how}{len(self):,} cells from {edges[0]:g} to {edges[-1]:g}"

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the edges as little-endian float64, in hexadecimal digits."""
        return hashlib.sha256(self.upper_edges.astype("<f8").tobytes()).hexdigest()

    @cached_property
    def points(self) -> Floats:
        """What scores can become: the edges and +inf, (B + 1,)."""
        found: Floats = np.append(self.upper_edges, np.inf)
        found.flags.writeable = False
        return found

    def place(self, scores: Any) -> Ints:
        """The cell of each score: 0 for the first, and B for scores above the last edge."""
        found: Ints = np.searchsorted(self.upper_edges, scores, side="left").astype(np.int64)
        return found

    def up(self, scores: Any) -> Floats:
        """Each score, rounded up to the upper edge of its cell; +inf above the last edge.

        No score falls, and s <= e holds for an edge e if and only if up(s) <= e.
        """
        values = checks.series("scores", scores, empty=True)
        checks.refuse_unusable("scores", values)
        found: Floats = self.points[self.place(values)]
        return found

    # --- plain values and files

    @property
    def values(self) -> dict[str, Any]:
        """The grid as plain values for a file: the numbers of its recipe, or all of its edges."""
        if self._recipe is None:
            return {"edges": self.upper_edges.tolist()}
        return {self._recipe[0]: list(self._recipe[1])}

    @classmethod
    def from_values(cls, values: Any) -> Grid:
        """The grid that `values` wrote; a GCFCPError if it makes no sense."""
        if not isinstance(values, Mapping) or len(values) != 1:
            raise GCFCPError("a grid must be an object with one entry")
        ((kind, given),) = values.items()
        if not isinstance(given, list) or any(type(x) not in (int, float) for x in given):
            raise GCFCPError("the numbers of a grid must be a list of numbers")
        if kind == "edges":
            return cls(np.array([float(x) for x in given]))
        if kind == "uniform" and len(given) == 3 and given[2] == int(given[2]):
            return cls.uniform(given[0], given[1], int(given[2]))
        if kind == "logarithmic" and len(given) == 4 and given[3] in (0, 1):
            return cls.logarithmic(given[0], given[1], given[2], bool(given[3]))
        raise GCFCPError("a grid must be uniform, logarithmic or a list of edges")

    def to_json(self) -> str:
        """The text of the file: JSON that a person can read."""
        head = {"format": _FORMAT, "version": _VERSION, "library": LIBRARY}
        return codec.to_json(head | {"grid": self.values}) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "the grid") -> Grid:
        """A grid from the text of its file, which anyone may have written.

        name: What error messages call it.
        """
        codec.refuse_other(text, name, "a grid")
        try:
            data = codec.from_json(text)
        except ValueError:
            raise GCFCPError(f"{name} is not a grid: it is not JSON") from None
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise GCFCPError(f"{name} is not a grid: give a file that gcfcp grid wrote")
        if data.get("version") != _VERSION:
            raise GCFCPError(
                f"{name} has format version {data.get('version')!r:.20}, and this gcfcp reads "
                f"version {_VERSION}: make the grid again with this gcfcp"
            )
        with codec.reading(name, "grid"):
            return cls.from_values(data["grid"])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the grid to a file, whole or not at all."""
        codec.write(path, self.to_json().encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Grid:
        """Read a grid from its file."""
        return cls.from_json(codec.read(path), fspath(path))


def as_grid(given: Any) -> Grid | None:
    """The grid that a caller gives, or None if none is given: a `Grid`, or what `parse` reads."""
    if given is None or isinstance(given, Grid):
        return given
    if isinstance(given, str | PathLike):
        return Grid.parse(fspath(given))
    raise GCFCPError(
        f"grid={given!r:.60} is not a grid: give gcfcp.Grid(edges), Grid.uniform(low, high, cells) "
        "or Grid.logarithmic()"
    )


def _finite(name: str, value: Any) -> float:
    """A finite number as a float."""
    if not checks.is_number(value) or not math.isfinite(value):
        raise GCFCPError(f"{name}={value!r:.60} is not a finite number")
    return checks.as_float(value) + 0.0


def _thresholds_of(predictor: Any) -> Floats:
    """The finite thresholds of a predictor, or its levels if it has a shape, each once."""
    table = getattr(predictor, "threshold_table", None)
    if table is None:
        raise GCFCPError(
            f"predictor={predictor!r:.60} has no thresholds: give a Predictor or a Calibration"
        )
    levels = getattr(table.source, "by_group", None)
    found = table.thresholds_by_atom if levels is None else levels
    found = np.unique(found[np.isfinite(found)])
    if not len(found):
        raise GCFCPError(
            "the predictor has no finite threshold to be near to: use Grid.uniform or "
            "Grid.logarithmic"
        )
    return np.asarray(found, dtype=np.float64)


def _limits_of(predictor: Any) -> tuple[float, float]:
    """The limits of the predictor's score; there are none with a shape or without a score."""
    score, table = getattr(predictor, "score", None), predictor.threshold_table
    if score is None or getattr(table.source, "shape", None) is not None:
        return -math.inf, math.inf
    limits: list[Any] = [getattr(score, "lower", None), getattr(score, "upper", None)]
    least, most = (
        float(x) if checks.is_number(x) else end
        for x, end in zip(limits, (-math.inf, math.inf), strict=True)
    )
    return least, most


def _around(thresholds: Floats, unit: float) -> list[Floats]:
    """Points around each threshold, so that the sum of logarithms is followed closely there."""
    steps = unit * np.concatenate([[0.0], 2.0 ** np.arange(-6, 12)])
    return [t + sign * steps for t in thresholds.tolist() for sign in (-1, 1)]
