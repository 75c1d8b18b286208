"""The bytes of a summary.

A summary is a container (see `codec`) of kind b"S" and format version 1 to 5. Its header
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

Version 5 is for summaries, by atom or by group, that count records on a public grid (see
`gcfcp.grid`). The header has all fields of version 4, of which `round` and `date` may both be null,
but for `delta` and `representative`. A grid has neither: every record counts as the upper edge of
its cell. There is one field more:

| field               | JSON           | what it says                                             |
|---------------------|----------------|----------------------------------------------------------|
| `grid`              | object         | the grid, with one entry of the following                |

| entry               | JSON           | the B upper edges                                        |
|---------------------|----------------|----------------------------------------------------------|
| `edges`             | list           | the edges themselves, B numbers                          |
| `uniform`           | list           | [low, high, B]: low + i (high - low) / B, rounded once   |
| `logarithmic`       | list           | [r, low, high, 0 or 1]; see below                        |

The edges of `logarithmic` are 0, low, low f, low f f and so on up to the first that is not below
high, where f = (1 + r) / (1 - r); each product is one multiplication of float64. If the last number
is 1, their negatives are edges as well. In `members` all n_k may be null: only n, their sum, is
known. There are then at least two members, and no groups of sites.

A summary with noise has one field more, `noise`: an object with the entries `epsilon`, a number,
`mechanism`, "discrete Laplace", and `terms`, a list of [scale, copies] in ascending order of the
scales, one pair for a single client. All counts have noise, also those of cells without a record.

The body of the versions 1 to 4 follows without gaps. Its integers are unsigned and little-endian, w
bytes each:

    a * ceil(G / 8) bytes   for each atom its key: G bits, one for each group, as numpy.packbits
                            packs them; the first group is the highest bit of the first byte, and
                            the last byte is filled with zeros
    a integers              for each atom the number of its centroids, at least 1
    a integers              for each atom its certified error, in records
    m integers              for each centroid the number of records that it stands for
    m float64               for each centroid its representative, little-endian; the last of an
                            atom may be +inf

The body of version 5 has no errors and no float64. A centroid is a cell of the grid that holds at
least one record, and only these are written:

    a * ceil(G / 8) bytes   for each atom its key, as above
    a integers              for each atom the number of its centroids, at least 1
    m integers              for each centroid its cell: 0 for the lowest, B for scores of +inf
    m integers              for each centroid the number of records in it, at least 1

With noise every cell of every possible atom is written, and the counts may be negative:

    a * ceil(G / 8) bytes   for each atom its key, as above
    a * (B + 1) integers    for each atom and cell its count, signed (two's complement)

Atoms stand in ascending order of their keys. The centroids of the first atom come first, then those
of the second, and so on; the representatives, or cells, of an atom ascend strictly. w is the
smallest number of bytes, at least 1, that holds every integer of the body. By atom, the counts of
all centroids, `suppressed` and `uncovered` add up to n. A summary can be written in one way only,
and a reader refuses bytes that are written in another.

Cost: 8 + w bytes for each centroid, ceil(G / 8) + 2 w bytes for each atom, and a header of some
hundred bytes. On a grid: 2 w bytes for each cell that holds a record, ceil(G / 8) + w bytes for
each atom, and a header that holds the edges unless they follow from a few numbers. As long as no
integer of the body is above 16,777,215, w is at most 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gcfcp import codec
from gcfcp.arrays import Ints
from gcfcp.errors import GCFCPError
from gcfcp.grid import Grid
from gcfcp.groups import Groups, pack
from gcfcp.noise import Noise
from gcfcp.shape import Shape

if TYPE_CHECKING:
    from gcfcp.summary.summary import ClientSummary

_KIND = b"S"
_PLAIN, _WITH_SITES_OR_ABSENT, _BY_GROUP, _OF_A_ROUND, _ON_A_GRID = 1, 2, 3, 4, 5


def encode(summary: ClientSummary, *, dated: bool = True) -> bytes:
    """The bytes of a summary. The same data give the same bytes, in any order of the rows.

    dated: Whether the round and the date are written, if there are any.
    """
    if summary.noise is not None:
        return _encode_noisy(summary, dated)
    grid, sizes = summary.grid, np.diff(summary.start)
    parts = [sizes, summary.errors, summary.counts]
    if grid is not None:
        parts = [sizes, grid.place(summary.values), summary.counts]
    whole = np.concatenate(parts)
    width = max(1, -(-int(whole.max(initial=0)).bit_length() // 8))
    version, header = _header(summary, dated)
    header |= {"atoms": len(sizes), "centroids": len(summary.values), "width": width}
    body = (
        pack(summary.membership).tobytes()
        + whole.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
        + (summary.values.astype("<f8").tobytes() if grid is None else b"")
    )
    return codec.pack(_KIND, version, header, body)


def _encode_noisy(summary: ClientSummary, dated: bool) -> bytes:
    """The bytes of a summary with noise, whose counts are signed and all there."""
    counts = summary.counts
    # One bit more than the number of the largest magnitude needs, for the sign.
    most = max(int(counts.max(initial=0)), -int(counts.min(initial=0)) - 1)
    width = most.bit_length() // 8 + 1
    version, header = _header(summary, dated)
    header |= {"atoms": len(summary.errors), "centroids": len(counts), "width": width}
    whole = counts.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
    return codec.pack(_KIND, version, header, pack(summary.membership).tobytes() + whole.tobytes())


def _header(summary: ClientSummary, dated: bool) -> tuple[int, dict[str, Any]]:
    """The format version of a summary, and its header without the sizes of the body."""
    header: dict[str, Any] = {
        "client": summary.client,
        "n": summary.n,
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
    }
    version, grid = _PLAIN, summary.grid
    day = {"round": summary.round, "date": summary.date} if dated else {"round": None, "date": None}
    full = grid is not None or any(value is not None for value in day.values())
    if grid is None:
        header |= {"delta": summary.delta, "representative": summary.representative}
    if summary.groups.sites or summary.absent or summary.by == "group" or full:
        version = _WITH_SITES_OR_ABSENT
        header |= {"sites": list(summary.groups.sites), "absent": list(summary.absent)}
    if summary.by == "group" or full:
        version = _BY_GROUP
        header |= {"by": summary.by, "shape": summary.shape and summary.shape.values}
        header["strangers"] = list(summary.strangers)
    if full:
        version = _OF_A_ROUND
        header |= day
    if grid is not None:
        version = _ON_A_GRID
        header["grid"] = grid.values
    if summary.noise is not None:
        header["noise"] = summary.noise.values
    return version, header


def unpack(data: bytes, name: str) -> tuple[dict[str, Any], memoryview]:
    """The header and the body of the bytes, with only the container checked."""
    return codec.unpack(data, _KIND, _ON_A_GRID, name)


def fields(header: dict[str, Any], body: memoryview) -> dict[str, Any]:
    """The fields of the `ClientSummary` that a header and a body describe.

    Only what is needed to take the body apart is checked here. The summary checks the rest itself.
    """
    groups = Groups.from_dict(header, "groups")
    a, m, width = header["atoms"], header["centroids"], header["width"]
    if not all(type(k) is int and k >= 0 for k in (a, m, width)) or not 1 <= width <= 8:
        raise GCFCPError("atoms, centroids and width are not whole numbers, or width is not 1 to 8")
    grid = Grid.from_values(header["grid"]) if "grid" in header else None
    noise = Noise.from_values(header["noise"]) if "noise" in header else None
    key = -(-len(groups) // 8)
    ints = 2 * a + m if grid is None else m if noise is not None else a + 2 * m
    end = a * key + ints * width
    asked = end if grid is not None else end + m * 8
    if asked != len(body):
        raise GCFCPError(f"its body has {len(body)} bytes, but its header asks for {asked}")
    keys = np.frombuffer(body[: a * key], dtype=np.uint8).reshape(a, key)
    whole = _integers(body[a * key : end], width, signed=noise is not None)
    sizes, errors = whole[:a], np.zeros(a, dtype=np.int64)
    if grid is None:
        errors, counts = whole[a : 2 * a], whole[2 * a :]
        values = np.frombuffer(body[end:], dtype="<f8").astype(np.float64)
    elif noise is None:
        counts = whole[a + m :]
        if whole[a : a + m].max(initial=0) > len(grid):
            raise GCFCPError(f"a record is in a cell beyond the {len(grid):,} cells of the grid")
        values = grid.points[whole[a : a + m]]
    else:
        if m != a * (len(grid) + 1):
            raise GCFCPError("a summary with noise does not have a count for every cell")
        sizes, counts = np.full(a, len(grid) + 1), whole
        values = np.tile(grid.points, a)
    if sizes.max(initial=0) > m:
        raise GCFCPError("an atom has more centroids than the file")
    membership = np.unpackbits(keys, axis=1, count=len(groups)).view(bool)
    members, absent, shape = header["members"], header.get("absent", []), header.get("shape")
    if not isinstance(absent, list):
        raise GCFCPError("absent is not a list")
    return {
        "client": header["client"],
        "n": header["n"],
        "delta": header["delta"] if grid is None else None,
        "representative": header["representative"] if grid is None else "upper",
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
        "start": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "errors": errors,
        "counts": counts,
        "values": values,
        "absent": tuple(absent),
        "by": header.get("by", "atom"),
        "strangers": tuple(header.get("strangers", ())),
        "shape": None if shape is None else Shape.from_values(groups, shape),
        "round": header.get("round"),
        "date": header.get("date"),
        "grid": grid,
        "noise": noise,
        "library": header["library"],
    }


def _integers(data: memoryview, width: int, signed: bool) -> Ints:
    """The integers of a body, of `width` bytes each."""
    padded = np.zeros((len(data) // width, 8), dtype=np.uint8)
    padded[:, :width] = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
    if signed:
        padded[:, width:] = np.where(padded[:, width - 1 : width] >= 128, 255, 0)
    whole = padded.view("<i8" if signed else "<u8")[:, 0]
    if np.any(whole >= 2**53) or (signed and np.any(whole <= -(2**53))):
        raise GCFCPError("a count is not below 2**53")
    return whole.astype(np.int64)
