"""The bytes of a summary.

A summary is a container (see `codec`) of kind b"S" and format version 1, 2, 3 or 4. Its header
has exactly these fields, where G is the number of groups:

| field               | JSON           | what it says                                             |
|---------------------|----------------|----------------------------------------------------------|
| `client`            | string         | the name of the client                                   |
| `n`                 | integer        | n_k, the number of all its records                       |
| `delta`             | number         | how fine the digests are                                 |
| `representative`    | string         | "upper" or "mean"                                        |
| `groups`            | list           | the names of the G groups, in order                      |
| `predicates`        | list or null   | the conditions of the groups, if they have any           |
| `fingerprint`       | string         | the fingerprint of the groups                            |
| `score`             | string         | the name of the score                                    |
| `parameters`        | object         | the parameters of the score                              |
| `model`             | string or null | the fingerprint of the model, if one was given           |
| `min_count`         | integer        | the smallest number of records of a centroid             |
| `suppressed`        | integer        | the number of records that are not described             |
| `suppressed_groups` | list           | upper bounds on these by group; [] if there are none     |
| `uncovered`         | integer        | the number of other records that belong to no group      |
| `members`           | list           | [client, n_k] of each member, by name; [] for one client |
| `library`           | string         | what wrote the summary, such as "gcfcp 0.2.0"            |
| `atoms`             | integer        | a, the number of described atoms                         |
| `centroids`         | integer        | m, the number of centroids of all atoms                  |
| `width`             | integer        | w, the number of bytes of an integer in the body         |

Version 2 is for groups that are sites, and for groups that the client declares absent. A summary
that has neither is written in version 1. In version 2 the header has two fields more, of which at
least one is not empty:

| field               | JSON           | what it says                                             |
|---------------------|----------------|----------------------------------------------------------|
| `sites`             | list           | the names of the S sites; see below                      |
| `absent`            | list           | the groups that are declared absent, in their order      |

The last S of the G groups are those of the sites, in the order of `sites`; that of site a is called
`site a`. The `predicates` are then the conditions of the first G - S groups only. Every member is
one of the sites, every atom belongs to the site of exactly one member, and `uncovered` is 0. No
atom belongs to a group that is declared absent. In `suppressed_groups`, the bound of such a group
and that of a site that is not a member are 0.

Version 3 is for summaries by group. In the words of this page a group takes the place of an atom:
`atoms` is the number of described groups, and the key of each has exactly one bit. A record is
counted in each of its groups, so that counts do not add up to n. The header has the fields of
version 2, both of which may be empty, and three more:

| field               | JSON           | what it says                                             |
|---------------------|----------------|----------------------------------------------------------|
| `by`                | string         | "group"                                                  |
| `shape`             | object or null | the shape that was subtracted from the scores, or null   |
| `strangers`         | list           | how many records that describe a group may not be in it  |

The object `shape` has the entries `coefficients`, a list of G numbers, and `sources`, an ascending
list of texts of 16 hexadecimal digits: the first 64 bits of the SHA-256 of each summary that the
shape was made from. `suppressed` and `uncovered` are 0, because they are not told.
`suppressed_groups` has G entries: for a group that is hidden the number of records to charge for
it, which is min_count - 1 or more, and 0 for most other groups. If `min_count` is above 1, every
group is described, hidden, declared absent, or the group of another site. A group with strangers is
described by records of which so many may not be in it, because its own would tell a small cell. It
may have an entry in `suppressed_groups` as well: so many of its own records may not be described.

Version 4 is for summaries, by atom or by group, that say which round they are for or on what day
they were made. The header has all fields of version 3, where `by` may also be "atom", with `shape`
null and `strangers` empty, and two more, of which at least one is not null. All bytes are covered
by a signature, and so are these two:

| field               | JSON           | what it says                                             |
|---------------------|----------------|----------------------------------------------------------|
| `round`             | string or null | the round that it is for, such as "2026Q4"               |
| `date`              | string or null | the day on which it was made, such as "2026-11-17"       |

The body follows without gaps. Its integers are unsigned and little-endian, w bytes each:

    a * ceil(G / 8) bytes   for each atom its key: G bits, one for each group, as numpy.packbits
                            packs them; the first group is the highest bit of the first byte, and
                            the last byte is filled with zeros
    a integers              for each atom the number of its centroids, at least 1
    a integers              for each atom its certified error, in records
    m integers              for each centroid the number of records that it stands for
    m float64               for each centroid its representative, little-endian; the last of an
                            atom may be +inf

Atoms stand in ascending order of their keys. The centroids of the first atom come first, then those
of the second, and so on; the representatives of an atom ascend strictly. w is the smallest number
of bytes, at least 1, that holds every integer of the body. By atom, the counts of all centroids,
`suppressed` and `uncovered` add up to n. A summary can be written in one way only, and a reader
refuses bytes that are written in another.

Cost: 8 + w bytes for each centroid, ceil(G / 8) + 2 w bytes for each atom, and a header of some
hundred bytes. As long as no integer of the body is above 16,777,215, w is at most 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gcfcp import codec
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, pack
from gcfcp.shape import Shape

if TYPE_CHECKING:
    from gcfcp.summary.summary import ClientSummary

_KIND = b"S"
_PLAIN, _WITH_SITES_OR_ABSENT, _BY_GROUP, _OF_A_ROUND = 1, 2, 3, 4


def encode(summary: ClientSummary, *, dated: bool = True) -> bytes:
    """The bytes of a summary. The same data give the same bytes, in any order of the rows.

    dated: Whether the round and the date are written, if there are any.
    """
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
        "suppressed_groups": list(summary.suppressed_groups)
        if summary.suppressed or summary.by == "group"
        else [],
        "uncovered": summary.uncovered,
        "members": [list(m) for m in summary.members] if summary.is_aggregate else [],
        "library": summary.library,
        "atoms": len(sizes),
        "centroids": len(summary.values),
        "width": width,
    }
    version = _PLAIN
    dated = dated and (summary.round is not None or summary.date is not None)
    if summary.groups.sites or summary.absent or summary.by == "group" or dated:
        version = _WITH_SITES_OR_ABSENT
        header |= {"sites": list(summary.groups.sites), "absent": list(summary.absent)}
    if summary.by == "group" or dated:
        version = _BY_GROUP
        header |= {"by": summary.by, "shape": summary.shape and summary.shape.values}
        header["strangers"] = list(summary.strangers)
    if dated:
        version = _OF_A_ROUND
        header |= {"round": summary.round, "date": summary.date}
    body = (
        pack(summary.membership).tobytes()
        + whole.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
        + summary.values.astype("<f8").tobytes()
    )
    return codec.pack(_KIND, version, header, body)


def unpack(data: bytes, name: str) -> tuple[dict[str, Any], memoryview]:
    """The header and the body of the bytes, with only the container checked."""
    return codec.unpack(data, _KIND, _OF_A_ROUND, name)


def fields(header: dict[str, Any], body: memoryview) -> dict[str, Any]:
    """The fields of the `ClientSummary` that a header and a body describe.

    Only what is needed to take the body apart is checked here. The summary checks the rest itself.
    """
    groups = Groups.from_dict(header, "groups")
    a, m, width = header["atoms"], header["centroids"], header["width"]
    if not all(type(k) is int and k >= 0 for k in (a, m, width)) or not 1 <= width <= 8:
        raise GCFCPError("atoms, centroids and width are not whole numbers, or width is not 1 to 8")
    key = -(-len(groups) // 8)
    sizes = [a * key, a * width, a * width, m * width, m * 8]
    if sum(sizes) != len(body):
        raise GCFCPError(f"its body has {len(body)} bytes, but its header asks for {sum(sizes)}")
    ends = np.cumsum(sizes)
    keys = np.frombuffer(body[: ends[0]], dtype=np.uint8).reshape(a, key)
    padded = np.zeros((2 * a + m, 8), dtype=np.uint8)
    padded[:, :width] = np.frombuffer(body[ends[0] : ends[3]], dtype=np.uint8).reshape(-1, width)
    whole = padded.view("<u8")[:, 0]
    if whole.max(initial=0) >= 2**53:
        raise GCFCPError("a count is not below 2**53")
    whole = whole.astype(np.int64)
    if whole[:a].max(initial=0) > m:
        raise GCFCPError("an atom has more centroids than the file")
    membership = np.unpackbits(keys, axis=1, count=len(groups)).view(bool)
    members, absent, shape = header["members"], header.get("absent", []), header.get("shape")
    if not isinstance(absent, list):
        raise GCFCPError("absent is not a list")
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
        "absent": tuple(absent),
        "by": header.get("by", "atom"),
        "strangers": tuple(header.get("strangers", ())),
        "shape": None if shape is None else Shape.from_values(groups, shape),
        "round": header.get("round"),
        "date": header.get("date"),
        "library": header["library"],
    }
