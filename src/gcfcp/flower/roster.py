"""Who may speak for which client: a file that binds names to the public keys of nodes.

    [clients]
    hospital-a = "hospital-a.pub"                     # an OpenSSH public key, beside this file
    hospital-b = "SHA256:0Jx..."                      # or its fingerprint, as ssh-keygen -l shows

The SuperLink lets in only nodes whose key was registered; the roster says which of them is whom.
Without a roster a client's name is what the node claims, which is good enough for a simulation.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from gcfcp import checks, codec
from gcfcp.errors import GCFCPError

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def fingerprint(public_key: bytes) -> str:
    """SHA256:... of a public key in OpenSSH or PEM form, as `ssh-keygen -l` writes it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        if public_key.startswith(b"-----BEGIN"):
            text = serialization.load_pem_public_key(public_key).public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
        else:
            text = public_key
            serialization.load_ssh_public_key(text)
        blob = base64.b64decode(text.split()[1])
    except (ValueError, TypeError, IndexError, UnsupportedAlgorithm):
        raise GCFCPError("not a public key: an OpenSSH .pub file was expected") from None
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read_roster(path: str | PathLike[str]) -> dict[str, str]:
    """{client: fingerprint of its key} from a roster file."""
    file = Path(path)
    try:
        table = tomllib.loads(codec.read(file).decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GCFCPError(f"roster {file} is not TOML: {error}") from None
    clients = table.get("clients")
    if not isinstance(clients, Mapping) or not clients or len(table) > 1:
        raise GCFCPError(f'roster {file} needs one table, [clients], with lines NAME = "KEY.pub"')
    roster: dict[str, str] = {}
    for name, key in clients.items():
        checks.name("client", name)
        if not isinstance(key, str):
            raise GCFCPError(f"roster {file}: the key of {name!r} is not a string")
        roster[name] = key if _FINGERPRINT.fullmatch(key) else _of_file(file, name, key)
    if len(set(roster.values())) < len(roster):
        raise GCFCPError(f"roster {file} gives one key to two clients: each needs its own")
    return roster


def _of_file(roster: Path, client: str, key: str) -> str:
    try:
        return fingerprint(codec.read(roster.parent / key))
    except GCFCPError as error:
        raise GCFCPError(f"roster {roster}: {client!r}: {error}") from None
