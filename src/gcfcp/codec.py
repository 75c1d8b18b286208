"""Bytes and files: one container, checked before anything in it is believed.

A gcfcp file is

    offset  size  what
    0       5     b"GCFCP"
    5       1     the kind of content, one letter: b"S" for a client's summary
    6       2     format version of that kind, unsigned, little-endian
    8       4     h, the length of the header, unsigned, little-endian
    12      h     the header: one JSON object, UTF-8, keys sorted, no blanks
    12+h    b     the body: plain arrays whose sizes the header states
    12+h+b  32    SHA-256 of all bytes before it

Nothing is ever unpickled or evaluated. The checksum finds accidents; who sent a file is another
question (signatures answer it). What is read never takes more memory than a small multiple of
the bytes that were given.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import struct
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from gcfcp.errors import GCFCPError

_MAGIC = b"GCFCP"
_PREFIX = struct.Struct("<5scHI")
_CHECKSUM = 32

MALFORMED = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What taking a stranger's header apart can raise; GCFCPError is one of them."""

MAX_DEPTH = 32
"""Levels of a JSON text. Nothing of ours has ten; a thousand would exhaust whoever walks them."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def explain(error: Exception) -> str:
    """What is wrong with a header, in one line."""
    what = f"{error} is missing" if isinstance(error, KeyError) else f"a field is wrong ({error})"
    if isinstance(error, GCFCPError):
        what = str(error)
    return " ".join(what.split())[:500]


@contextlib.contextmanager
def reading(name: str, kind: str) -> Iterator[None]:
    """Whatever is wrong with a stranger's file becomes one line that names the file."""
    try:
        yield
    except MALFORMED as error:
        raise GCFCPError(f"{name} is not a valid {kind}: {explain(error)}") from None


def pack(kind: bytes, version: int, header: dict[str, Any], body: bytes) -> bytes:
    """The container's bytes; the same values always give the same bytes."""
    text = json.dumps(
        header, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()
    data = _PREFIX.pack(_MAGIC, kind, version, len(text)) + text + body
    return data + hashlib.sha256(data).digest()


def unpack(data: bytes, kind: bytes, version: int, name: str) -> tuple[dict[str, Any], memoryview]:
    """Header and body of a container, or a GCFCPError that says what is wrong with `name`."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise GCFCPError(f"{name} is given as {type(data).__name__}, not as bytes")
    view = memoryview(data).cast("B")
    if len(view) < _PREFIX.size + _CHECKSUM or bytes(view[:5]) != _MAGIC:
        raise GCFCPError(f"{name} is not a gcfcp file: it does not begin as one does")
    _, found, written, length = _PREFIX.unpack(view[: _PREFIX.size])
    if found != kind:
        raise GCFCPError(f"{name} holds content of kind {found!r}, not {kind!r}")
    if written != version:
        raise GCFCPError(
            f"{name} has format version {written}; this gcfcp reads version {version}: "
            + ("upgrade gcfcp" if written > version else "make the file anew")
        )
    if hashlib.sha256(view[:-_CHECKSUM]).digest() != view[-_CHECKSUM:]:
        raise GCFCPError(f"{name} is damaged: its checksum does not match; send the file again")
    end = _PREFIX.size + length
    if end > len(view) - _CHECKSUM:
        raise GCFCPError(f"{name} is damaged: its header is longer than the file")
    return _header(bytes(view[_PREFIX.size : end]), name), view[end:-_CHECKSUM]


def _header(text: bytes, name: str) -> dict[str, Any]:
    try:
        header = from_json(text, constants=True)
    except ValueError:
        raise GCFCPError(f"{name} is damaged: its header is not JSON") from None
    if not isinstance(header, dict):
        raise GCFCPError(f"{name} is damaged: its header is not a JSON object")
    return header


def from_json(text: str | bytes, *, constants: bool = False) -> Any:
    """A stranger's JSON; a ValueError for what is none, or is nested beyond all measure.

    constants: take NaN and Infinity, which Python writes and JSON has not, for a better message.
    """
    whole = text if isinstance(text, str) else str(text, "utf-8")
    try:
        value = json.loads(whole, parse_constant=float if constants else _refuse)
        if _SURROGATE.search(whole):  # half of a pair, if it stays one, could never be written
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
    """Our JSON for people and programs: a line for each entry, and an infinity as its word."""
    return json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """The value with every infinity as the word "inf" or "-inf", because JSON has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def number(value: Any) -> float | None:
    """The number that a stranger's JSON holds here, or None. "inf" and "-inf" are numbers."""
    if value in ("inf", "-inf"):
        return float(value)
    if type(value) not in (int, float):
        return None
    try:
        found = float(value)
    except OverflowError:  # An integer of a thousand digits is no number of ours.
        return None
    return None if math.isnan(found) else found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def read(path: str | PathLike[str]) -> bytes:
    """A file's bytes; what stands in the way is said in one line."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise GCFCPError(f"cannot read {os.fspath(path)!s:.200}: {_why(error)}") from None


def write(path: str | PathLike[str], data: bytes, *, sync: bool = True) -> None:
    """Write a file whole or not at all: a crash leaves the old file, or none, never half of one.

    sync=False leaves it to the system when the bytes reach the disk: after a power failure the
    file may be empty, which only a reader who checks what it reads can live with.
    """
    target = Path(path)
    temporary = target.parent / f".gcfcp-{secrets.token_hex(8)}.part"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except (OSError, ValueError) as error:
        raise GCFCPError(f"cannot write {os.fspath(path)!s:.200}: {_why(error)}") from None
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.unlink(temporary)


def _why(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)
