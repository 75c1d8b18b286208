"""Bytes and files: one container, which is checked before anything in it is believed.

A summary, an audit, a signature, an entry of a site's ledger, a message of a round and a message of
a secure sum are one container each. Its parts follow without a gap:

    offset    size  what
    0         5     the bytes b"GCFCP"
    5         1     the kind of content: b"S" summary, b"A" audit, b"K" signature, b"L" entry,
                    b"M" message of a round, b"U" message of a secure sum, b"P" what a site keeps
                    of a secure sum
    6         2     the format version of that kind, unsigned and little-endian
    8         4     h, the length of the header, unsigned and little-endian
    12        h     the header: one JSON object, in UTF-8
    12+h      b     the body: arrays whose sizes the header states; b may be 0
    12+h+b    32    the SHA-256 of all bytes before it

The header is written as Python's `json.dumps` does with `sort_keys=True`, `separators=(",", ":")`,
`ensure_ascii=False` and `allow_nan=False`: the keys of every object are sorted, no blank stands
between tokens, and characters beyond ASCII are not escaped. So the same values always give the same
bytes. The length b is what remains of the file.

Nothing is ever unpickled or evaluated. The checksum finds accidental damage. It does not show who
sent the file; a signature does (see `gcfcp.summary.signatures`). Reading never takes more memory
than a small multiple of the bytes that were given.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from gcfcp.errors import GCFCPError
from gcfcp.files import read, write

__all__ = [
    "MALFORMED",
    "MAX_DEPTH",
    "explain",
    "from_json",
    "number",
    "pack",
    "plain",
    "read",
    "reading",
    "refuse_other",
    "to_json",
    "unpack",
    "unpack_with_version",
    "write",
]

_MAGIC = b"GCFCP"
_PREFIX = struct.Struct("<5scHI")  # The first 12 bytes: GCFCP, kind, version, length of the header.
_CHECKSUM_SIZE = 32

MALFORMED = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""The exceptions that can arise while the header of an untrusted file is taken apart. GCFCPError is
a ValueError, so it is among them."""

MAX_DEPTH = 32
"""How many levels of objects and lists a JSON text may have inside each other. The files of gcfcp
have fewer than ten. Thousands would exhaust the stack of a function that walks through them."""

# This finds one half of a UTF-16 surrogate pair, as an escape or as a character.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


_KINDS = {
    b"S": "a summary",
    b"A": "an audit",
    b"K": "a signature",
    b"L": "an entry of a ledger",
    b"M": "a message of a round",
    b"U": "a message of a secure sum",
    b"P": "the state of a secure sum",
}
_TEXTS = {
    b"predictor": "a predictor",
    b"shape": "a shape",
    b"grid": "a grid",
    b"round": "the record of a round",
}
_TEXT = re.compile(rb'\s*\{\s*"format":\s*"gcfcp (\w+)"')  # So begin the files that are JSON.


def explain(error: Exception) -> str:
    """What is wrong with a header, in one line of at most 500 characters."""
    what = (
        f"the field {error} is missing"
        if isinstance(error, KeyError)
        else f"a field is wrong ({error})"
    )
    if isinstance(error, GCFCPError):
        what = str(error)
    return " ".join(what.split())[:500]


@contextlib.contextmanager
def reading(name: str, kind: str) -> Iterator[None]:
    """Turn every error that a malformed file causes into one line that names the file."""
    try:
        yield
    except MALFORMED as error:
        raise GCFCPError(f"{name} is not a valid {kind}: {explain(error)}") from None


def pack(kind: bytes, version: int, header: dict[str, Any], body: bytes) -> bytes:
    """The bytes of a container. The same values always give the same bytes."""
    text = json.dumps(
        header, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()
    data = _PREFIX.pack(_MAGIC, kind, version, len(text)) + text + body
    return data + hashlib.sha256(data).digest()


def unpack(data: bytes, kind: bytes, newest: int, name: str) -> tuple[dict[str, Any], memoryview]:
    """Header and body of a container, or a GCFCPError that says what is wrong with `name`.

    newest: The newest format version that is read. All versions from 1 on are read.
    """
    return unpack_with_version(data, kind, newest, name)[1:]


def unpack_with_version(
    data: bytes, kind: bytes, newest: int, name: str
) -> tuple[int, dict[str, Any], memoryview]:
    """The same as `unpack`, with the format version before the header."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise GCFCPError(f"{name} is given as {type(data).__name__}, not as bytes")
    view = memoryview(data).cast("B")
    wanted = _KINDS.get(kind, f"a file of kind {kind!r}")
    if len(view) < _PREFIX.size + _CHECKSUM_SIZE or bytes(view[:5]) != _MAGIC:
        refuse_other(view, name, wanted)
        raise GCFCPError(
            f"{name} is not a gcfcp file: it does not begin with GCFCP, or has fewer than 44 bytes"
        )
    _, found, written, length = _PREFIX.unpack(view[: _PREFIX.size])
    if found != kind:
        refuse_other(view, name, wanted)
        raise GCFCPError(f"{name} is of the unknown kind {found!r}, but {wanted} is needed here")
    if not 1 <= written <= newest:
        read = "version 1" if newest == 1 else f"versions 1 to {newest}"
        raise GCFCPError(
            f"{name} has format version {written}; this gcfcp reads {read}: "
            + ("upgrade gcfcp" if written > newest else "make the file again with this gcfcp")
        )
    if hashlib.sha256(view[:-_CHECKSUM_SIZE]).digest() != view[-_CHECKSUM_SIZE:]:
        raise GCFCPError(f"{name} is damaged: its checksum does not match; send the file again")
    end = _PREFIX.size + length
    if end > len(view) - _CHECKSUM_SIZE:
        raise GCFCPError(f"{name} is damaged: its header is longer than the file")
    header = _header(bytes(view[_PREFIX.size : end]), name)
    return written, header, view[end:-_CHECKSUM_SIZE]


def refuse_other(data: str | bytes | memoryview, name: str, wanted: str) -> None:
    """Raise an error that names what a file is, if its beginning is that of another gcfcp file.

    wanted: What is needed in its place, such as "a predictor".
    """
    start = bytes(data[:200].encode(errors="replace") if isinstance(data, str) else data[:200])
    text = _TEXT.match(start)
    found = _TEXTS.get(text[1]) if text else _KINDS.get(start[5:6] if start[:5] == _MAGIC else b"")
    if found and found != wanted:
        raise GCFCPError(f"{name} is {found}, but {wanted} is needed here")


def _header(text: bytes, name: str) -> dict[str, Any]:
    """The header as a dict, or a GCFCPError that says what is wrong with `name`."""
    try:
        header = from_json(text, constants=True)
    except ValueError:
        raise GCFCPError(f"{name} is damaged: its header is not JSON") from None
    if not isinstance(header, dict):
        raise GCFCPError(f"{name} is damaged: its header is not a JSON object")
    return header


def from_json(text: str | bytes, *, constants: bool = False) -> Any:
    """The value of a JSON text that may come from anyone.

    A ValueError is raised if the text is not JSON, if it contains half of a surrogate pair, or if
    it is nested more than `MAX_DEPTH` levels deep.

    constants: Whether NaN and Infinity are accepted, which Python writes although JSON has no such
    numbers. The check of the field that contains one then gives a better message.
    """
    whole = text if isinstance(text, str) else str(text, "utf-8")
    try:
        value = json.loads(whole, parse_constant=float if constants else _refuse)
        if _SURROGATE.search(whole):
            # Two escaped halves have become one character; a single half cannot be encoded.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return value
    raise ValueError("nested too deeply")


def to_json(value: Any) -> str:
    """The JSON that gcfcp prints and saves, with one line for each entry (see `plain`)."""
    return _indented(plain(value), "\n")


def _indented(value: Any, line: str) -> str:
    """json.dumps(value, indent=1), in a quarter of the time.

    Python writes JSON with indents in Python, and without them in C. So each object or list that
    holds no other is written in C, with the line break and its indent in every separator. A list of
    such objects is written in C as a whole.

    line: The line break and the indent before the end of the value.
    """
    if not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    deeper = line + " "
    inside = list(value.values()) if isinstance(value, dict) else value
    if _is_flat(inside):
        flat = _separated(value, deeper)
        return f"{flat[0]}{deeper}{flat[1:-1]}{line}{flat[-1]}"
    if isinstance(value, list) and all(
        type(inner) is dict and inner and _is_flat(inner.values()) for inner in value
    ):
        # No text in JSON has a line break, so that braces around one stand between two objects.
        deepest = deeper + " "
        start, end = "{" + deepest, deeper + "}"
        between = _separated(value, deepest).replace(f"}},{deepest}{{", f"{end},{deeper}{start}")
        return f"[{deeper}{start}{between[2:-2]}{end}{line}]"
    written = [_indented(inner, deeper) for inner in inside]
    if isinstance(value, dict):
        keys = (json.dumps(key, ensure_ascii=False) for key in value)
        entries = (f"{key}: {text}" for key, text in zip(keys, written, strict=True))
        return "{" + deeper + ("," + deeper).join(entries) + line + "}"
    return "[" + deeper + ("," + deeper).join(written) + line + "]"


def _is_flat(inside: Iterable[Any]) -> bool:
    """Whether these plain values hold no object and no list."""
    return {dict, list}.isdisjoint(map(type, inside))


def _separated(value: Any, line: str) -> str:
    """The JSON of the value with `line` after each comma."""
    separators = ("," + line, ": ")
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=separators)


def plain(value: Any) -> Any:
    """The value with each float that JSON does not have as a word: "inf", "-inf" or "nan".

    Keys become strings, and tuples become lists.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {
            str(key): inner if type(inner) in _PLAIN else plain(inner)
            for key, inner in value.items()
        }
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


_PLAIN = frozenset([str, int, bool, type(None)])  # The types whose values JSON has.


def number(value: Any) -> float | None:
    """The number that a value from a JSON text stands for, or None if it is not a number.

    The words "inf" and "-inf" stand for the infinities.
    """
    if value in ("inf", "-inf"):
        return float(value)
    if type(value) not in (int, float):
        return None
    try:
        found = float(value)
    except OverflowError:  # The value is an integer beyond the largest float64, about 1.8e308.
        return None
    return None if math.isnan(found) else found


def _refuse(constant: str) -> float:
    """Refuse NaN, Infinity and -Infinity, which JSON does not have."""
    raise ValueError(f"{constant} is not JSON")
