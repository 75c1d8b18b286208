"""T-Digests: a few hundred weighted points that stand for any number of scores.

| module     | what it is for                                           |
|------------|----------------------------------------------------------|
| `tdigest`  | `TDigest`: the digest, its guarantee, merging, F^ and Q^ |
| `clusters` | how sorted values are divided into clusters              |
| `stream`   | `DigestBuilder`: the digest of a stream                  |
"""

from gcfcp.digest.clusters import ROUNDED_BITS, ROUNDED_ZERO, is_rounded
from gcfcp.digest.stream import DigestBuilder
from gcfcp.digest.tdigest import TDigest

__all__ = ["ROUNDED_BITS", "ROUNDED_ZERO", "DigestBuilder", "TDigest", "is_rounded"]
