"""The bytes of a summary.

They are kind b"S", version 1 of the container in `codec`. The header's fields are those of
`ClientSummary` plus `atoms` = a, `centroids` = m and `width` = w. The body is

    a * ceil(G / 8) bytes   key of each atom: its membership, packed as numpy.packbits does
    a integers              centroids of each atom          } little-endian,
    a integers              certified error of each atom    } unsigned,
    m integers              counts                          } w bytes each
    m float64               representatives, little-endian

Atoms stand in ascending order of their keys, and within each atom the representatives ascend.

Cost: a summary takes 8 + w bytes for each centroid and a header of some hundred bytes. w is the
least number of bytes that holds every count: 3 or less up to 16.7 million records a centroid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gcfcp import codec
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, pack

if TYPE_CHECKING:
    from gcfcp.summary.summary import ClientSummary

_KIND, _VERSION = b"S", 1


def encode(summary: ClientSummary) -> bytes:
    """The bytes of a summary: the same data, in any row order, give the same ones."""
    sizes = np.diff(summary.start)
    whole = np.concatenate([sizes, summary.errors, summary.counts])
    width = max(1, -(-int(whole.max(initial=0)).bit_length() // 8))
    header = {
        "client": summary.client,
        "n": summary.n,
        "delta": summary.delta,
        "representative": summary.representative,
        **summary.groups.to_dict("groups"),
        "score": summary.score,
        "parameters": summary.parameters,
        "model": summary.model,
        "min_count": summary.min_count,
        "suppressed": summary.suppressed,
        "suppressed_groups": list(summary.suppressed_groups) if summary.suppressed else [],
        "uncovered": summary.uncovered,
        "members": [list(m) for m in summary.members] if summary.is_aggregate else [],
        "library": summary.library,
        "atoms": len(sizes),
        "centroids": len(summary.values),
        "width": width,
    }
    body = (
        pack(summary.membership).tobytes()
        + whole.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
        + summary.values.astype("<f8").tobytes()
    )
    return codec.pack(_KIND, _VERSION, header, body)


def unpack(data: bytes, name: str) -> tuple[dict[str, Any], memoryview]:
    """Header and body of the bytes, as far as the container goes."""
    return codec.unpack(data, _KIND, _VERSION, name)


def fields(header: dict[str, Any], body: memoryview) -> dict[str, Any]:
    """The fields of the `ClientSummary` that header and body describe.

    Only what is needed to take the body apart is checked here; the summary checks the rest itself.
    """
    groups = Groups.from_dict(header, "groups")
    a, m, width = header["atoms"], header["centroids"], header["width"]
    if not all(type(k) is int and k >= 0 for k in (a, m, width)) or not 1 <= width <= 8:
        raise GCFCPError("its counts of atoms and centroids make no sense")
    key = -(-len(groups) // 8)
    sizes = [a * key, a * width, a * width, m * width, m * 8]
    if sum(sizes) != len(body):
        raise GCFCPError(f"its body has {len(body)} bytes where its header asks for {sum(sizes)}")
    ends = np.cumsum(sizes)
    keys = np.frombuffer(body[: ends[0]], dtype=np.uint8).reshape(a, key)
    padded = np.zeros((2 * a + m, 8), dtype=np.uint8)
    padded[:, :width] = np.frombuffer(body[ends[0] : ends[3]], dtype=np.uint8).reshape(-1, width)
    whole = padded.view("<u8")[:, 0]
    if whole.max(initial=0) >= 2**53:
        raise GCFCPError("a count is beyond 2**53")
    whole = whole.astype(np.int64)
    if whole[:a].max(initial=0) > m:
        raise GCFCPError("an atom has more centroids than there are")
    membership = np.unpackbits(keys, axis=1, count=len(groups)).view(bool)
    members = header["members"]
    return {
        "client": header["client"],
        "n": header["n"],
        "delta": header["delta"],
        "representative": header["representative"],
        "groups": groups,
        "score": header["score"],
        "parameters": header["parameters"],
        "model": header["model"],
        "min_count": header["min_count"],
        "suppressed": header["suppressed"],
        "suppressed_groups": tuple(header["suppressed_groups"]) or (0,) * len(groups),
        "uncovered": header["uncovered"],
        "members": tuple((k, n) for k, n in members) or ((header["client"], header["n"]),),
        "membership": membership,
        "start": np.concatenate([[0], np.cumsum(whole[:a])]).astype(np.int64),
        "errors": whole[a : 2 * a],
        "counts": whole[2 * a :],
        "values": np.frombuffer(body[ends[3] :], dtype="<f8").astype(np.float64),
        "library": header["library"],
    }
