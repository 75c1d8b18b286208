"""What may be given: every rule about a number, a name or a choice stands here, once.

A number may be any real number that Python or NumPy has: an int, a float, a `Fraction`, a scalar
such as `numpy.float32(0.1)`. Booleans are not numbers here, because `min_count=True` is a mistake.
Each function returns the value in the one form that the library works with, or raises a
`GCFCPError` that says the value, the rule and, where there is one, the remedy.

Numbers that are read from a file are held to `count` instead, which takes whole numbers only in the
one way that a file writes them.
"""

from __future__ import annotations

import sys
import unicodedata
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from gcfcp.arrays import Floats
from gcfcp.errors import GCFCPError

Representative: TypeAlias = Literal["mean", "upper"]

MAX_NAME = 200
"""The most characters that a name may have."""

COUNT_LIMIT = 2**53
"""Counts lie below this, so that a float64 holds each of them exactly."""


# --- Numbers -------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    """Whether the value is a real number. A bool is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def as_float(number: Any) -> float:
    """The number as a float64. NumPy's narrow floats count as what they print.

    `float(numpy.float32(0.1))` is 0.10000000149011612, but whoever wrote it meant 0.1.
    """
    return float(str(number)) if isinstance(number, np.float16 | np.float32) else float(number)


def rational(number: Any) -> Fraction:
    """The simplest fraction that this number stands for: 0.1 is 1/10, 1/3 is 1/3.

    The exact value of the float 0.3 is a little below 3/10, which would push an integral
    (n+1)(1-alpha) over the next integer.
    """
    if isinstance(number, Fraction):
        return number
    near = as_float(number)
    exact = Fraction(near)
    simple = exact.limit_denominator(10**6)
    return simple if float(simple) == near else exact


def alpha(value: Any) -> Fraction:
    """The share of outcomes that may be missed: a number between 0 and 1, as a fraction."""
    probability("alpha", value)
    return rational(value)


def probability(name: str, value: Any) -> float:
    """A number between 0 and 1, both excluded: eta, confidence, a level, a tolerance."""
    if not is_number(value) or not 0 < value < 1 or not 0 < as_float(value) < 1:
        raise GCFCPError(f"{name}={value!s:.40} is not in (0, 1)")
    return as_float(value)


def share(name: str, value: Any) -> float:
    """A number from 0 to 1, of which only 0 is included."""
    if not is_number(value) or not 0 <= value < 1 or not as_float(value) < 1:
        raise GCFCPError(f"{name}={value!s:.40} is not in [0, 1)")
    return as_float(value)


def at_least(name: str, value: Any, least: float, remedy: str = "") -> float:
    """A finite number that is not below `least`."""
    if not is_number(value) or not least <= value <= sys.float_info.max:
        told = f": {remedy}" if remedy else ""
        raise GCFCPError(f"{name}={value!r:.60} is not a finite number of at least {least:g}{told}")
    return as_float(value)


def whole(name: str, value: Any, least: int = 0, below: int = COUNT_LIMIT) -> int:
    """A whole number from `least` to `below`: 5, numpy.int64(5), Fraction(5), but not 5.0.

    A float is refused even where it is whole, because it mostly comes from a computation that was
    not meant to end here.
    """
    is_whole = isinstance(value, Rational) and value.denominator == 1
    if not is_whole or isinstance(value, bool) or value < least:
        raise GCFCPError(f"{name}={value!r:.60} is not a whole number of at least {least}")
    if value >= below:
        raise GCFCPError(f"{name}={value!r:.60} is not a whole number below {below}")
    return int(value)


def delta(value: Any) -> float:
    """How fine a digest is. 250 and 250.0 become the same, because both are written to files."""
    return at_least("delta", value, 2, "250 is usual, and more is finer")


def min_count(value: Any) -> int:
    """The fewest records that anything in a published file may stand for."""
    return whole("min_count", value, 1)


def count(name: str, value: Any) -> int:
    """A count that was read from a file, where only a plain integer is written for one."""
    if type(value) is not int or not 0 <= value < COUNT_LIMIT:
        raise GCFCPError(f"{name}={value!r:.40} is not a whole number from 0 to 2**53")
    return value


def vector(name: str, values: Any) -> NDArray[np.float64]:
    """Numbers of any array type as float64, of any shape.

    What is masked becomes NaN, and None becomes NaN too; both are for the caller to refuse. Text,
    dates and complex numbers are no numbers.
    """
    try:
        if isinstance(values, np.ma.MaskedArray):  # np.asarray would show what is masked.
            values = np.ma.filled(values.astype(np.float64), np.nan)
        given = np.asarray(values)
        if given.dtype.kind not in "biufO":
            raise TypeError(f"their type is {given.dtype}")
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GCFCPError(f"{name} cannot be read as numbers ({error}): give real numbers") from None


def series(name: str, values: Any, *, empty: bool = False) -> Floats:
    """Numbers in one dimension. empty: whether there may be none."""
    found = vector(name, values)
    if found.ndim != 1:
        raise GCFCPError(f"{name} of shape {found.shape}: give one number for each record")
    if not len(found) and not empty:
        raise GCFCPError(f"{name} is empty: at least one number is needed")
    return found


def scores(name: str, values: Any) -> Floats:
    """Scores, one for each record: numbers or +inf, at least one of them."""
    found = series(name, values)
    refuse_unusable(name, found)
    return found


def refuse_unusable(name: str, values: Floats, offset: int = 0) -> None:
    """Refuse NaN and -inf, which are no scores.

    offset: how many records came before these, for the message.
    """
    for what, wrong in (("NaN", np.isnan(values)), ("-inf", values == -np.inf)):
        if wrong.any():
            raise GCFCPError(
                f"{np.count_nonzero(wrong)} of {len(values)} {name} are {what}, the first at "
                f"position {offset + int(wrong.argmax())}: a score is a number or +inf; correct "
                "these records or leave them out"
            )


# --- Names and choices ---------------------------------------------------------------------------


def name(what: str, value: Any) -> str:
    """The name of a client, a score, a model: shown to people and written to files.

    Only printable characters are allowed, because a name comes from a stranger and must not act on
    a terminal or hide in a page.
    """
    good = isinstance(value, str) and value.strip() and len(value) <= MAX_NAME
    if not good or not value.isprintable():
        raise GCFCPError(
            f"{what}={value!r:.60} is not a name: 1 to {MAX_NAME} printable characters are"
        )
    return str(value)


def group_name_problem(value: Any) -> str | None:
    """Why this cannot be the name of a group, or None.

    Groups are public and agreed on beforehand, so their names may hold what is not printable but
    does no harm, such as a no-break space. Control characters may not stand in them.
    """
    if not isinstance(value, str):
        return f"is of type {type(value).__name__}, not a string"
    if not value.strip():
        return "is empty"
    if len(value) > MAX_NAME:
        return f"has {len(value)} characters, more than {MAX_NAME}"
    categories = {unicodedata.category(character) for character in value}
    if "Cs" in categories:
        return "cannot be written as UTF-8"
    if categories & {"Cc", "Zl", "Zp"}:
        return "holds a control character"
    return None


def choice(what: str, value: Any, *options: str) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in options:
        if len(options) == 2:
            rule = f"is neither {options[0]!r} nor {options[1]!r}"
        else:
            rule = f"is none of {', '.join(options)}"
        raise GCFCPError(f"{what}={value!r:.40} {rule}")
    return value


def representative(value: Any) -> Representative:
    """How a cluster of scores is represented: by its mean, or from above by its maximum."""
    return cast(Representative, choice("representative", value, "mean", "upper"))
