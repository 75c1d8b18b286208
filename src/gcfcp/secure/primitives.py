"""The cryptographic tools of a secure sum. Each is a call of a library; nothing is invented here.

| tool              | what it is                                               | library       |
|-------------------|----------------------------------------------------------|---------------|
| `derive`          | HKDF with SHA-256 (RFC 5869)                             | cryptography  |
| `agree`           | X25519 key agreement (RFC 7748), then `derive`           | cryptography  |
| `expand`          | the key stream of ChaCha20 (RFC 8439) as 64-bit numbers  | cryptography  |
| `seal`, `unseal`  | ChaCha20-Poly1305 (RFC 8439), which also authenticates   | cryptography  |
| `split`, `join`   | Shamir's secret sharing over GF(2^128)                   | pycryptodome  |

**Why the shared secrets have 16 bytes.** pycryptodome shares secrets of 16 bytes, so both secrets
of a site, the seed of its self mask and the seed of its mask key, have 16 random bytes. A key is
derived from a seed by HKDF, which also takes the sum and the name of the site. Whoever wants to
find a seed by trial has to make about 2^127 attempts, and each attempt serves for one site in one
sum only. X25519 itself needs about 2^126 operations to break, so 32 bytes would add nothing.

All chance comes from the operating system (`secrets`), and not from a generator with a seed,
because whoever knew the seed would know the masks.

Cost: a mask of a million numbers takes some 10 ms. Shamir's scheme is plain Python: to split a
secret for 100 sites takes about 0.2 s of processor time, and to join 67 shares about 0.3 s.
"""

from __future__ import annotations

import secrets
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

SEED = 16
"""The bytes of a secret that is shared, and of each share of it."""
KEY = 32
"""The bytes of a key: of X25519, private or public, and of the ciphers."""
SEALED = 12 + 2 * SEED + 16
"""The bytes of two sealed shares: a nonce, the shares, and what authenticates them."""

_PURPOSE = b"gcfcp secure sum 1 "  # Every key that is derived here is for this and nothing else.
_P = 2**255 - 19  # The prime of X25519.

Vector = NDArray[np.uint64]
"""Whole numbers modulo 2^64. NumPy adds and subtracts them with wrap-around."""


def require() -> None:
    """Raise a GCFCPError that says what to install if a library is missing."""
    needs("cryptography", "secure sums", "secure")
    needs("Crypto", "secure sums", "secure")


def random_bytes(number: int) -> bytes:
    """Random bytes of the operating system."""
    return secrets.token_bytes(number)


def derive(secret: bytes, use: str, *parts: str) -> bytes:
    """A key of 32 bytes from a secret, for one use, in the context that the parts name."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = _PURPOSE + b"".join(map(_framed, (use, *parts)))
    return HKDF(hashes.SHA256(), KEY, salt=None, info=info).derive(secret)


def public_of(private: bytes) -> bytes:
    """The public X25519 key of a private one."""
    return _private(private).public_key().public_bytes_raw()


def check_public(key: bytes) -> None:
    """Raise a GCFCPError unless these are the one encoding of a number below 2^255 - 19.

    X25519 ignores the highest bit and reduces modulo 2^255 - 19, so one key would otherwise have
    several encodings and could be advertised twice. Points of small order are found by `agree`.
    """
    if len(key) != KEY or int.from_bytes(key, "little") >= _P:
        raise GCFCPError("a public key is not the usual encoding of a point: it is refused")


def agree(private: bytes, public: bytes, use: str, *parts: str) -> bytes:
    """The key that the holders of two X25519 keys have in common, for one use.

    A public key of small order would give the same key with everybody. It is refused.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    check_public(public)
    try:
        shared = _private(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise GCFCPError("a public key is a point of small order: it is refused") from None
    return derive(shared, use, *parts)


def expand(key: bytes, length: int) -> Vector:
    """The first `length` 64-bit numbers of the key stream of a key, which is used only once."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * length)), dtype="<u8").astype(np.uint64)


def seal(key: bytes, secret: bytes, context: bytes) -> bytes:
    """The secret, encrypted and bound to its context; only holders of the key can make it."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = random_bytes(12)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, secret, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """The secret in sealed bytes; a GCFCPError if they were not sealed by this key and context."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:12], sealed[12:], context)
    except (InvalidTag, ValueError):
        raise GCFCPError("sealed shares were changed, or belong to another round") from None


def split(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Shares of a secret of 16 bytes: any `threshold` of them give it back, fewer say nothing."""
    from Crypto.Protocol.SecretSharing import Shamir

    return [share for _, share in Shamir.split(threshold, number, secret, ssss=False)]


def join(shares: dict[int, bytes], threshold: int) -> bytes:
    """The secret behind shares, by position from 0. The first `threshold` of them are used."""
    from Crypto.Protocol.SecretSharing import Shamir

    if len(shares) < threshold:
        raise GCFCPError(f"{len(shares)} shares do not give a secret that needs {threshold}")
    chosen = sorted(shares.items())[:threshold]
    pairs = [(position + 1, share) for position, share in chosen]
    return bytes(Shamir.combine(pairs, ssss=False))


def _private(key: bytes) -> X25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(key)


def _framed(part: str) -> Any:
    """A text with its length in front, so that no two lists of texts give the same bytes."""
    data = part.encode()
    return struct.pack("<I", len(data)) + data
