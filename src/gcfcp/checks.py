"""Which numbers, names and choices are accepted as arguments: each rule is written here, once.

A number may be any real number that Python or NumPy has: an int, a float, a `Fraction`, a scalar
such as `numpy.float32(0.1)`. A boolean does not count as a number, because `min_count=True` is a
mistake. Each function returns the value in the one form that the library works with, or raises a
`GCFCPError` that states the value, the rule and, where there is one, the remedy.

Counts that are read from a file are checked by `count`, which accepts only Python's own `int`: this
is what a whole number in a file becomes when the file is read.
"""

from __future__ import annotations

import datetime
import math
import re
import sys
import unicodedata
from collections.abc import Iterable
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from gcfcp.arrays import Floats
from gcfcp.errors import GCFCPError

Representative: TypeAlias = Literal["mean", "upper"]
"""What stands for a cluster of scores: its mean, or its largest score."""

MAX_NAME = 200
"""The most characters that a name may have."""

COUNT_LIMIT = 2**53
"""Counts lie below this, so that a float64 holds each of them exactly."""

_FINGERPRINT = re.compile("[0-9a-f]{64}")  # A SHA-256, of which a message shows the first digits.
_SHOWN = 58  # The most characters of a text that a message shows between quotes.


# --- Numbers -------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    """Whether the value is a real number. A boolean does not count as one."""
    # The two usual types come first, because asking an abstract class takes ten times as long.
    return type(value) in (float, int) or (isinstance(value, Real) and not isinstance(value, bool))


def as_float(number: Any) -> float:
    """The number as a float64. A float16 or float32 of NumPy becomes the decimal number it prints.

    A caller who writes `numpy.float32(0.1)` means 0.1, and not 0.10000000149011612, which is what
    `float` makes of it.
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


def _shown(value: Any) -> str:
    """A number as it is printed, and anything else as Python would write it: 0.9, but '0.9'."""
    return f"{value!s:.40}" if is_number(value) else f"{value!r:.40}"


def alpha(value: Any) -> Fraction:
    """Alpha, the share of outcomes that may be missed: a number between 0 and 1, as a fraction."""
    try:
        probability("alpha", value)
    except GCFCPError as error:
        raise GCFCPError(f"{error}{_meant(value)}") from None
    return rational(value)


def doubt_about_alpha(value: Any) -> str | None:
    """The question to somebody whose alpha looks like the coverage that is wanted, or None."""
    if not is_number(value) or not 0.5 < value < 1:
        return None
    given = as_float(value)
    missed = f"alpha={given:g} lets {given:.3g} of the outcomes be missed"
    return f"{missed}: did you mean {1 - given:.3g}?"


def _meant(value: Any) -> str:
    """What somebody probably meant who gave alpha, or the coverage, in percent; "" if unclear."""
    if not is_number(value) or not 1 < value < 100 or value != int(value):
        return ""
    percent = int(value) if value <= 50 else 100 - int(value)
    return f": did you mean {percent / 100:g}?"


def probability(name: str, value: Any) -> float:
    """A number between 0 and 1, both excluded: eta, confidence, a level, a tolerance."""
    if not is_number(value) or not 0 < value < 1 or not 0 < as_float(value) < 1:
        raise GCFCPError(f"{name}={_shown(value)} is not in (0, 1)")
    return as_float(value)


def share(name: str, value: Any) -> float:
    """A number from 0 to 1, where 0 is included and 1 is not."""
    if not is_number(value) or not 0 <= value < 1 or not as_float(value) < 1:
        raise GCFCPError(f"{name}={_shown(value)} is not in [0, 1)")
    return as_float(value)


def weight(name: str, value: Any) -> float:
    """A number from 0 to 1, both included: the weight of a client in a mixture."""
    if not is_number(value) or not 0 <= value <= 1:
        raise GCFCPError(f"{name}={_shown(value)} is not a number from 0 to 1")
    return as_float(value) + 0.0  # A negative zero becomes 0, so that equal weights look alike.


def _fits_a_float(number: Any) -> bool:
    """Whether a float64 can hold the number. An integer or a Fraction may be too large for it."""
    return not isinstance(number, Rational) or number <= sys.float_info.max


def at_least(name: str, value: Any, least: float, remedy: str = "") -> float:
    """A finite number that is not below `least`.

    remedy: What the caller should do instead, which ends the message.
    """
    if type(value) in (float, int) and least <= value <= sys.float_info.max:
        return float(value)  # The questions below take five times as long.
    if not is_number(value) or not least <= value < math.inf or not _fits_a_float(value):
        told = f": {remedy}" if remedy else ""
        raise GCFCPError(f"{name}={value!r:.60} is not a finite number of at least {least:g}{told}")
    return as_float(value)


def whole(name: str, value: Any, least: int = 0, below: int = COUNT_LIMIT) -> int:
    """A whole number that is at least `least` and less than `below`.

    5, numpy.int64(5) and Fraction(5) are accepted. 5.0 is not, because a float is usually the
    result of a computation that was not meant to give a count.
    """
    is_whole = isinstance(value, Rational) and value.denominator == 1
    if not is_whole or isinstance(value, bool) or value < least:
        raise GCFCPError(f"{name}={value!r:.60} is not a whole number of at least {least}")
    if value >= below:
        raise GCFCPError(f"{name}={value!r:.60} is not a whole number below {below}")
    return int(value)


def delta(value: Any) -> float:
    """How fine a digest is. 250 and 250.0 become the same float, because files contain it."""
    return at_least("delta", value, 2, "250 is usual, and a larger delta is finer")


def min_count(value: Any) -> int:
    """The smallest number of records that an entry of a published file may describe."""
    return whole("min_count", value, 1)


def count(name: str, value: Any) -> int:
    """A count that was read from a file: an int from 0 to 2**53 - 1."""
    if type(value) is not int or not 0 <= value < COUNT_LIMIT:
        raise GCFCPError(f"{name}={value!r:.40} is not a whole number from 0 to 2**53 - 1")
    return value


def unmasked(name: str, values: Any) -> Any:
    """The values, or an error if some of them are masked. np.asarray would show what is masked."""
    masked = np.ma.getmaskarray(values).sum() if isinstance(values, np.ma.MaskedArray) else 0
    if masked:
        raise GCFCPError(
            f"{masked} of {values.size} values of {name} are masked: fill them in, or leave these "
            "records out"
        )
    return values


def flag(name: str, value: Any) -> bool:
    """True or False, of Python or NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise GCFCPError(f"{name}={value!r:.60} is neither true nor false")
    return bool(value)


def generator(name: str, value: Any) -> np.random.Generator:
    """A generator of NumPy, which is where all chance comes from."""
    if not isinstance(value, np.random.Generator):
        raise GCFCPError(f"{name}={value!r:.60}: give numpy.random.default_rng(seed)")
    return value


def vector(name: str, values: Any) -> NDArray[np.float64]:
    """Real numbers in an array of any type and shape, as a float64 array of the same shape.

    A masked entry becomes NaN, and so does None; the caller decides what to do with NaN. Text,
    dates and complex numbers are refused.
    """
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values  # What follows would return it too.
    try:
        if isinstance(values, np.ma.MaskedArray):  # np.asarray would ignore the mask.
            values = np.ma.filled(values.astype(np.float64), np.nan)
        given = np.asarray(values)
        if given.dtype.kind not in "biufO":
            raise TypeError(f"their type is {given.dtype}")
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GCFCPError(f"{name} cannot be read as numbers ({error}): give real numbers") from None


def series(name: str, values: Any, *, empty: bool = False) -> Floats:
    """Numbers in one dimension, as float64.

    empty: Whether the array may be empty.
    """
    found = vector(name, values)
    if found.ndim != 1:
        raise GCFCPError(
            f"{name} has shape {found.shape} and must have one dimension: give one number for each "
            "record"
        )
    if not len(found) and not empty:
        raise GCFCPError(f"{name} is empty: at least one number is needed")
    return found


def scores(name: str, values: Any) -> Floats:
    """The scores of at least one record: one number or +inf for each."""
    found = series(name, values)
    refuse_unusable(name, found)
    return found


def refuse_unusable(name: str, values: Floats, offset: int = 0) -> None:
    """Raise an error if any of these scores is NaN or -inf, which no score can be.

    offset: How many records came before these, so that the message counts the rows of all.
    """
    for what, wrong in (("NaN", np.isnan(values)), ("-inf", values == -np.inf)):
        if wrong.any():
            raise GCFCPError(
                f"{np.count_nonzero(wrong)} of {len(values)} {name} are {what}, the first in "
                f"row {offset + int(wrong.argmax()) + 1}: a score is a number or +inf; correct "
                "these records or leave them out"
            )


# --- Names and choices ---------------------------------------------------------------------------


def name(what: str, value: Any) -> str:
    """The name of a client, a score or a model, which is shown to people and written to files.

    Only printable characters are allowed, because a name comes from a stranger: it must neither
    control a terminal nor be invisible on a page. A character that is invisible or turns the
    direction of writing could make two names look alike, and is named in the message.
    """
    if isinstance(value, str) and (hidden := hidden_character(value)):
        raise GCFCPError(f"{what}={value!r:.60} is not a name: it {hidden}")
    good = isinstance(value, str) and value.strip() and len(value) <= MAX_NAME
    if not good or not value.isprintable():
        raise GCFCPError(
            f"{what}={value!r:.60} is not a name: give 1 to {MAX_NAME} printable characters, not "
            "only blanks"
        )
    return str(value)


def day(what: str, value: Any) -> str:
    """A day as text, in the one form 2026-11-17; a date of Python's is accepted too."""
    given = value.isoformat() if type(value) is datetime.date else value
    try:
        if isinstance(given, str) and datetime.date.fromisoformat(given).isoformat() == given:
            return given
    except ValueError:
        pass
    raise GCFCPError(f"{what}={value!r:.60} is not a day: give one such as 2026-11-17")


# Characters that are not drawn, although Unicode does not call them format characters (category
# Cf): the combining grapheme joiner, the fillers of Hangul, two vowels of Khmer, the variation
# selectors of Mongolian and of rare ideographs, and the blank pattern of Braille.
_HIDDEN = frozenset([0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0])
_HIDDEN |= {*range(0x180B, 0x1810), *range(0xFE00, 0xFE0E), *range(0xE0000, 0xE1000)}
# Format characters that are drawn: signs of Arabic, Syriac and Kaithi that enclose numbers.
_DRAWN = frozenset([*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2])
_DRAWN |= {0x110BD, 0x110CD}
# After an emoji, these choose its form, and keyboards type them. They are allowed, and do not count
# when two names are compared.
_EMOJI_FORMS = "\ufe0e\ufe0f"


def hidden_character(text: str) -> str | None:
    """Which invisible or direction-changing character a text has, as the end of a sentence.

    None is returned if it has none. These are the characters with which two different names can
    look the same: zero-width spaces and joiners, soft hyphens, marks and overrides of direction.
    """
    for character in text:
        code = ord(character)
        is_format = unicodedata.category(character) == "Cf" and code not in _DRAWN
        if is_format or code in _HIDDEN:
            name = unicodedata.name(character, "without a name")
            return f"has the invisible character U+{code:04X} ({name}): write it without"
    return None


def look(text: str) -> str:
    """What a name looks like: names that are equal here cannot be told apart on a page.

    Compatible forms of characters (Unicode's NFKC), such as a no-break space for a space, several
    blanks for one, and the forms of emojis make no difference. Capital and small letters do.
    """
    drawn = "".join(c for c in text if c not in _EMOJI_FORMS)
    return " ".join(unicodedata.normalize("NFKC", drawn).split())


def group_name_problem(value: Any) -> str | None:
    """Why the value cannot be the name of a group, as the end of a sentence, or None if it can.

    Groups are public and agreed on beforehand, so their names may contain characters that are not
    printable but do no harm, such as a no-break space. Control characters, invisible characters
    and those that turn the direction of writing are not allowed.
    """
    if not isinstance(value, str):
        return f"is of type {type(value).__name__}, not a string"
    if not value.strip():
        return "is empty or blank"
    if len(value) > MAX_NAME:
        return f"has {len(value)} characters, and at most {MAX_NAME} are allowed"
    categories = {unicodedata.category(character) for character in value}
    if "Cs" in categories:
        return "cannot be written as UTF-8"
    if categories & {"Cc", "Zl", "Zp"}:
        return "contains a control character or a line separator"
    return hidden_character(value)


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """A number with its noun: "1 client", "5 clients", "1 record is", "1,204 records are".

    plural: By default it is the noun with an s.
    """
    return f"{number:,.0f} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Iterable[str], limit: int = 20) -> str:
    """Names for a message: the first `limit` with commas between them, and how many there are."""
    given = list(names)
    more = f", ... ({len(given)} in all)" if len(given) > limit else ""
    return ", ".join(given[:limit]) + more


def shown(value: Any) -> str:
    """A value of a file in a message: the first digits of a fingerprint, or the value in quotes.

    What is cut off is marked by two dots inside the quotes, so that the quotes are closed.
    """
    if isinstance(value, str) and _FINGERPRINT.fullmatch(value):
        return f"{value[:8]}.."
    if isinstance(value, str) and len(value) > _SHOWN:
        return repr(value[: _SHOWN - 2] + "..")
    return f"{value!r:.60}"


def choice(what: str, value: Any, *options: str) -> str:
    """The value, if it is one of the words in `options`."""
    if not isinstance(value, str) or value not in options:
        if len(options) == 2:
            rule = f"is neither {options[0]!r} nor {options[1]!r}"
        else:
            rule = f"is not one of {', '.join(options)}"
        raise GCFCPError(f"{what}={value!r:.40} {rule}")
    return value


def representative(value: Any) -> Representative:
    """What stands for a cluster of scores: "mean", its mean, or "upper", its largest score."""
    return cast(Representative, choice("representative", value, "mean", "upper"))
