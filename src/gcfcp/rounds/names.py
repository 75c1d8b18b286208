"""File names for whatever clients and data sets are called."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")  # Such a name can be a file name.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # Windows uses these for devices.


def file_stem(kind: str, name: str) -> str:
    """A file name for this name: itself if that is plain, and otherwise its kind and a hash of it.

    So no name leads out of a directory, and no two names share a file, even where "A" and "a" are
    the same file. A plain name that looks like a hash of another one is hashed, too.
    """
    looks_hashed = re.fullmatch(rf"{kind}-[0-9a-f]{{32}}", name)
    if _PLAIN.fullmatch(name) and not _RESERVED.fullmatch(name) and not looks_hashed:
        return name
    return f"{kind}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}"
