"""Who sent a file: Ed25519 signatures of summaries and audits, and the keys that a server knows.

The checksum in a file finds accidental damage, but anyone can compute it. A signature shows that
the file is, to the last bit, what the holder of a key signed. The signature is a file of its own,
named like the signed one with ".sig" at the end. Those who do not ask for signatures read the same
files as before.

A key speaks for one client. A server keeps a TOML file of the keys that it knows:

    hospital-a = "3b6a27bcceb6a42d62a3a8d02f0d732f2f4b0b1f7e0c4f0f9f0a0f3c3a1f5b2d"
    "clinic 7" = ["old key...", "new key..."]        # two while a key is being replaced

It refuses every summary whose client is not in that file, that has no signature, that was changed
after it was signed, or that was signed with the key of another client. So no client can speak for
another one. One key under two names is an error, because its holder would be counted twice. A
signature says nothing about whether the scores are true (see `screening`). Which of two signed
summaries of one client is the newer one is known only if they name a round, which is signed too.

The signed message is b"gcfcp signature 1\\0" followed by the 32 bytes of the SHA-256 of the file.
The words in front make sure that a signature made here is not valid for anything else. A signature
file is a container (see `codec`) of kind b"K" and format version 1. Its header has two fields,
`key` and `signature`: the public key in 64 and the signature in 128 hexadecimal digits. Its body is
empty. A private key is a PEM file as OpenSSL writes it (openssl genpkey -algorithm ed25519), which
only its owner can read.

Signatures need the package cryptography, which comes with the extra `sign`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from gcfcp import codec
from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs
from gcfcp.summary.summary import ClientSummary

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KIND, _VERSION = b"K", 1
_PURPOSE = b"gcfcp signature 1\0"  # Every message that is signed here begins with these bytes.
SUFFIX = ".sig"
"""The name of a signature file is that of the signed file with this at the end."""

KnownKeys = Mapping[str, Sequence[str]]
"""The public keys of each client; a key is a string of 64 hexadecimal digits."""


def new_key(path: str | PathLike[str]) -> str:
    """Write a new private key, readable by its owner only, and return its public key."""
    _require()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        # O_EXCL refuses to overwrite a key, and 0o600 hides it from others from the beginning.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
    except FileExistsError:
        raise GCFCPError(
            f"{fspath(path)} exists, and a key is never overwritten: choose another path"
        ) from None
    except OSError as error:
        raise GCFCPError(f"cannot write {fspath(path)}: {error.strerror}") from None
    return _public(key)


def public_key(path: str | PathLike[str]) -> str:
    """The public key that belongs to the private key in a file, as 64 hexadecimal digits."""
    return _public(_private(path))


def sign(data: bytes, key: str | PathLike[str]) -> bytes:
    """The bytes of a signature file for these bytes, by the private key in the file `key`."""
    private = _private(key)
    signature = private.sign(_message(data)).hex()
    return codec.pack(_KIND, _VERSION, {"key": _public(private), "signature": signature}, b"")


def verify(
    data: bytes, signature: bytes, client: str, known: KnownKeys, name: str = "the file"
) -> None:
    """Raise a GCFCPError unless these bytes were signed with a known key of this client.

    - `data`: The bytes of the signed file.
    - `signature`: The bytes of its signature file.
    - `client`: The client that the signed file names.
    - `known`: The keys that the server knows.
    - `name`: What error messages call the signed file.
    """
    _require()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if client not in known:
        raise GCFCPError(f"{name} is of client {client!r}, for whom no key is known: it is refused")
    header, body = codec.unpack(signature, _KIND, _VERSION, f"the signature of {name}")
    try:
        key, digits = header["key"], header["signature"]
        if len(body) or set(header) != {"key", "signature"} or not _is_hex(digits, 128):
            raise GCFCPError("it does not consist of one key and one signature")
        if key not in known[client]:
            raise GCFCPError(f"it is by key {key!s:.16}.., which is not a known key of {client!r}")
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(
            bytes.fromhex(digits), _message(data)
        )
    except InvalidSignature:
        raise GCFCPError(
            f"{name} is not what {client!r} signed: the signature does not match; send it again"
        ) from None
    except codec.MALFORMED as error:
        raise GCFCPError(f"the signature of {name} is refused: {codec.explain(error)}") from None


def load_known(path: str | PathLike[str]) -> dict[str, tuple[str, ...]]:
    """The public keys in a server's TOML file, by client."""
    import tomllib  # It is not needed for `import gcfcp`, which should be quick.

    try:
        table = tomllib.loads(codec.read(path).decode())
        known = {name: _keys(name, keys) for name, keys in table.items()}
    except GCFCPError:
        raise
    except (ValueError, RecursionError) as error:
        raise GCFCPError(f"{fspath(path)} is not a file of keys: {error!s:.200}") from None
    owner: dict[str, str] = {}
    for name, keys in known.items():
        for key in keys:
            if owner.setdefault(key, name) != name:
                raise GCFCPError(
                    f"{fspath(path)} has key {key[:16]}.. under two names, {owner[key]!r:.60} and "
                    f"{name!r:.60}: its holder would count twice; each client needs its own key"
                )
    return known


def load_signed(paths: Iterable[str | PathLike[str]], known: KnownKeys) -> list[ClientSummary]:
    """Load summaries, and refuse all of them if one is not signed by its client.

    paths: The files of the summaries. The signature of each stands beside it.
    """
    found = []
    for path in paths:
        data = codec.read(path)
        summary = ClientSummary.from_bytes(data, fspath(path))
        verify(data, read_signature(path), summary.client, known, fspath(path))
        found.append(summary)
    return found


def read_signature(path: str | PathLike[str]) -> bytes:
    """The bytes of the signature file that stands beside a file."""
    beside = fspath(path) + SUFFIX
    if not os.path.exists(beside):
        raise GCFCPError(f"{fspath(path)} is not signed: there is no {beside}; gcfcp sign makes it")
    return codec.read(beside)


def _keys(name: str, given: Any) -> tuple[str, ...]:
    """The keys of one client, from a string or a list of strings."""
    keys = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list) else ()
    if not keys or not all(_is_hex(key, 64) for key in keys):
        raise GCFCPError(
            f"the key of {name!r:.60} is neither a string of 64 hexadecimal digits (0-9, a-f) nor "
            "a list of such strings"
        )
    return keys


def _is_hex(text: Any, length: int) -> bool:
    """Whether this is a string of `length` hexadecimal digits, in small letters."""
    return isinstance(text, str) and len(text) == length and set(text) <= set("0123456789abcdef")


def _message(data: bytes) -> bytes:
    """The message that is signed for a file with these bytes."""
    return _PURPOSE + hashlib.sha256(data).digest()


def _private(path: str | PathLike[str]) -> Ed25519PrivateKey:
    """The private key in a PEM file."""
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    pem = codec.read(path)
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise GCFCPError(
            f"{fspath(path)} is not a private Ed25519 key in PEM without a password: gcfcp keygen "
            "makes one"
        )
    return key


def _public(key: Ed25519PrivateKey) -> str:
    """The public key of a private one, as 64 hexadecimal digits."""
    return key.public_key().public_bytes_raw().hex()


def _require() -> None:
    """Raise a GCFCPError that says what to install if the package cryptography is missing."""
    needs("cryptography", "signatures", "sign")
