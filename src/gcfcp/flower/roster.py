"""The roster of a deployment of Flower: which public key of a node belongs to which client.

    [clients]
    hospital-a = "hospital-a.pub"           # An OpenSSH public key, relative to this file.
    hospital-b = "SHA256:0Jx..."            # Or its fingerprint, as ssh-keygen -l shows it.

The SuperLink lets in only nodes whose key was registered, and the roster says which client each of
them is. Without a roster, a node can claim any name, which is good enough for a simulation.
"""

from __future__ import annotations

import base64
import hashlib
import re
from os import PathLike
from pathlib import Path

from gcfcp import carriers, codec
from gcfcp.errors import GCFCPError

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def fingerprint(public_key: bytes) -> str:
    """The fingerprint SHA256:... of a public key, as `ssh-keygen -l` writes it.

    public_key: The key in OpenSSH or PEM form.
    """
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
        raise GCFCPError("this is not a public key: give an OpenSSH .pub file") from None
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read_roster(path: str | PathLike[str]) -> dict[str, str]:
    """Read a roster file; the result maps each client to the fingerprint of its key."""
    return carriers.read_roster(path, _key)


def _key(roster: Path, text: str) -> str:
    """A fingerprint, or that of the key in a file, whose path is relative to the roster."""
    if _FINGERPRINT.fullmatch(text):
        return text
    return fingerprint(codec.read(roster.parent / text))
