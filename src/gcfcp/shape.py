"""A shape: one number for each group, subtracted from scores before they are calibrated.

The shape of a row x is b(x) = sum of beta_g over the groups g of x. A calibration by group compares
the residuals s - b(x), finds one level for each group, and gives a row the threshold b(x) plus the
largest level of its groups. Any shape keeps the promise, because it only renames the scores before
the calibrating records are seen. A good shape makes the levels of all groups agree, so that taking
the largest of them costs next to nothing.

**Independence.** No record may be behind both the shape and the levels. A shape therefore carries
the fingerprints of the summaries that it was made from (`sources`), and these very summaries cannot
be calibrated with it. Other records of the same sites can. The check finds the plain mistake; the
same records in a merged summary, or summarised with another delta or `min_count`, are not noticed.
Nor may a shape be chosen because the sets that it gives are small.

**Rounding.** Sites and predictions compute the residual s - b(x) as one float64 subtraction, with
b(x) rounded once from the exact sum of its coefficients. A subtraction in floats never falls as s
rises. So there is a largest float t with fl(t - b) <= level, and s <= t holds if and only if
fl(s - b) <= level. This t is the threshold (`raised`). Adding b to the level instead would lose
whole atoms where scores are discrete: 0.85 - -0.26 is 1.11 in floats, but 1.11 + -0.26 is less than
0.85.

The coefficients have `SIGNIFICANT_BITS` significant bits, because a finer shape would pass exact
scores of records on to all sites and would not be any better.

Cost of a file: a line for each group, and one for each summary that the shape was made from.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from typing import Any

import numpy as np

from gcfcp import codec
from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, find_atoms
from gcfcp.version import LIBRARY

SIGNIFICANT_BITS = 16
"""How many significant bits a fitted coefficient has."""

_FORMAT, _VERSION = "gcfcp shape", 1
_PREDICTOR = "gcfcp predictor"  # The format of a predictor's file, which carries a shape too.
_LARGEST = 2.0**1000  # The coefficients add up to less than this, so that no b(x) overflows.
_SOURCE_DIGITS = 16  # The hexadecimal digits of a source: the first 64 bits of a SHA-256.
_MASK = np.int64(2**63 - 1)


@dataclass(frozen=True)
class Shape:
    """One coefficient for each group of a family, and what they were made from."""

    groups: Groups
    coefficients: tuple[float, ...]  # beta_g of each group, in the order of the groups.
    sources: tuple[str, ...] = ()  # The fingerprints of the summaries that it was made from.

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", tuple(_checked(self.groups, self.coefficients)))
        object.__setattr__(self, "sources", tuple(sorted(set(_checked_sources(self.sources)))))

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the groups' fingerprint and the coefficients, in hexadecimal digits."""
        text = json.dumps([self.groups.fingerprint, list(self.coefficients)])
        return hashlib.sha256(text.encode()).hexdigest()

    def of(self, membership: Any) -> Floats:
        """b(x) of each row (n, G): the sum of the coefficients of its groups, rounded once.

        The sum is exact before it is rounded, so that every machine gets the same number. Cost: one
        sum for each distinct row.
        """
        matrix = self.groups.check(membership)
        atoms = find_atoms(matrix)
        found: Floats = self.of_atoms(atoms.membership)[atoms.index]
        return found

    def of_atoms(self, rows: Bools) -> Floats:
        """The same for checked rows (a, G), each of which is summed by itself."""
        beta = np.array(self.coefficients)
        return np.array([math.fsum(beta[row].tolist()) for row in rows], dtype=np.float64)

    def raised(self, levels: Floats, rows: Bools) -> Floats:
        """The thresholds (a,) of rows (a, G) whose residuals may be at most these levels (a,).

        That is the largest float t with fl(t - b) <= level, found by halving the ordered floats.
        """
        b = self.of_atoms(rows)
        low = _ordered(np.full(len(b), -np.inf))
        high = _ordered(np.full(len(b), np.inf))
        with np.errstate(over="ignore"):
            for _ in range(64):
                middle = (low & high) + ((low ^ high) >> 1)
                below = _float(middle) - b <= levels
                low, high = np.where(below, middle, low), np.where(below, high, middle)
        found: Floats = np.where(np.isposinf(levels), np.inf, _float(low))
        return found

    def subtracted(self, scores: Floats, atoms: Bools, index: Any) -> Floats:
        """s - b(x) of each score, as one subtraction of floats.

        - `atoms`, `index`: The distinct rows (a, G), and which of them each score has.
        """
        with np.errstate(over="ignore"):
            found: Floats = scores - self.of_atoms(atoms)[index]
        lost = np.isinf(found) & np.isfinite(scores)
        if lost.any():
            raise GCFCPError(
                f"{int(lost.sum())} scores such as {scores[int(lost.argmax())]:g} are so large that"
                " less the shape they are infinite: scale the scores, or write inf for them"
            )
        return found

    @property
    def values(self) -> dict[str, Any]:
        """Coefficients and sources as plain values for a file."""
        return {"coefficients": list(self.coefficients), "sources": list(self.sources)}

    @classmethod
    def from_values(cls, groups: Groups, values: Any) -> Shape:
        """The shape that `values` wrote; a GCFCPError if it makes no sense."""
        if not isinstance(values, Mapping):
            raise GCFCPError("a shape must be an object with coefficients and sources")
        given, sources = values["coefficients"], values["sources"]
        if not isinstance(given, list) or not isinstance(sources, list):
            raise GCFCPError("the coefficients and sources of a shape must be lists")
        return cls(groups, tuple(given), tuple(sources))

    def to_json(self) -> str:
        """The text of the file: JSON that a person can read."""
        named = dict(zip(self.groups.names, self.coefficients, strict=True))
        values = {
            "format": _FORMAT,
            "version": _VERSION,
            "library": LIBRARY,
            "groups": self.groups.to_dict(),
            "coefficients": named,
            "sources": list(self.sources),
        }
        return codec.to_json(values) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "the shape") -> Shape:
        """A shape from the text of its file, or of a predictor's file. Anyone may have written it.

        name: What error messages call it.
        """
        try:
            data = codec.from_json(text)
        except ValueError:
            raise GCFCPError(f"{name} is not a shape: it is not JSON") from None
        kind = data.get("format") if isinstance(data, dict) else None
        if kind == _PREDICTOR:
            return _from_predictor(data, name)
        if kind != _FORMAT:
            raise GCFCPError(
                f"{name} is neither a shape nor a predictor: give a file that gcfcp shape or gcfcp "
                "calibrate wrote"
            )
        if data.get("version") != _VERSION:
            raise GCFCPError(
                f"{name} has format version {data.get('version')!r:.20}, and this gcfcp reads "
                f"version {_VERSION}: make the shape again with this gcfcp"
            )
        with codec.reading(name, "shape"):
            groups, named = Groups.from_dict(data["groups"]), data["coefficients"]
            if not isinstance(named, dict) or list(named) != list(groups.names):
                raise GCFCPError("it does not have one coefficient for each group, in their order")
            values = {"coefficients": list(named.values()), "sources": data["sources"]}
            return cls.from_values(groups, values)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the shape to a file, whole or not at all."""
        codec.write(path, self.to_json().encode())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Shape:
        """Read a shape from its file, or from the file of a predictor, which carries one too."""
        return cls.from_json(codec.read(path), fspath(path))


def as_shape(given: Any, groups: Groups) -> Shape | None:
    """The shape that a caller gives for these groups, or None if none is given.

    given: A `Shape`, a calibration or predictor that has one, or the name of a file.
    """
    if given is None:
        return None
    shape = Shape.load(given) if isinstance(given, str | PathLike) else given
    if not isinstance(shape, Shape):
        shape = getattr(given, "shape", None)
    if not isinstance(shape, Shape):
        raise GCFCPError(
            f"shape={given!r:.60} is neither a shape nor a calibration, a predictor or a file that "
            "has one: give what gcfcp.fit_shape returns"
        )
    if shape.groups.fingerprint != groups.fingerprint:
        raise GCFCPError(
            f"the shape is for groups {shape.groups.fingerprint[:8]}.., but these are groups "
            f"{groups.fingerprint[:8]}..: use one groups file"
        )
    return shape


def source_of(sha256: str) -> str:
    """The fingerprint of a summary whose bytes have this SHA-256, as `Shape.sources` holds it."""
    return sha256[:_SOURCE_DIGITS]


def shortened(values: Floats) -> Floats:
    """The numbers with `SIGNIFICANT_BITS` significant bits."""
    fraction, exponent = np.frexp(values)
    unit = 2.0**SIGNIFICANT_BITS
    short: Floats = np.ldexp(np.rint(fraction * unit) / unit, exponent)
    return short + 0.0  # A negative zero becomes 0, so that equal shapes look alike.


def _from_predictor(data: Mapping[str, Any], name: str) -> Shape:
    """The shape that a predictor's file carries for the next calibration."""
    with codec.reading(name, "predictor"):
        if data.get("next_shape") is None:
            raise GCFCPError(
                "it carries no shape: make one of the summaries with gcfcp shape, or calibrate "
                "summaries by atom with this gcfcp"
            )
        return Shape.from_values(Groups.from_dict(data["groups"]), data["next_shape"])


def _checked(groups: Groups, given: Sequence[Any]) -> Iterable[float]:
    """The coefficients as floats, one finite number for each group."""
    found = [codec.number(c.item() if isinstance(c, np.generic) else c) for c in given]
    if len(found) != len(groups) or any(c is None or not math.isfinite(c) for c in found):
        raise GCFCPError(
            f"a shape for {len(groups)} groups needs {len(groups)} finite coefficients, one for "
            "each group"
        )
    numbers = [float(c) + 0.0 for c in found if c is not None]
    if not sum(abs(c) for c in numbers) < _LARGEST:
        raise GCFCPError("the coefficients of the shape add up to more than 2**1000")
    return numbers


def _checked_sources(given: Sequence[Any]) -> Iterable[str]:
    """The sources, each of them 16 hexadecimal digits."""
    for source in given:
        good = isinstance(source, str) and len(source) == _SOURCE_DIGITS
        if not good or not set(source) <= set("0123456789abcdef"):
            raise GCFCPError(f"source {source!r:.40} of the shape is not 16 hexadecimal digits")
    return given


def _ordered(values: Floats) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Whole numbers in the order of the floats; neighbouring floats have neighbouring numbers."""
    bits = values.view(np.int64)
    return np.asarray(bits ^ ((bits >> 63) & _MASK))


def _float(ordered: np.ndarray[Any, np.dtype[np.int64]]) -> Floats:
    """The floats that these whole numbers stand for; the inverse of `_ordered`."""
    return np.asarray((ordered ^ ((ordered >> 63) & _MASK)).view(np.float64))
