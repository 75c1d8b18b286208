"""The bytes of an audit.

The bytes of an audit are a container of kind b"A"; see `codec`. The fields of the header are those
of `Audit`. Counts are lists of integers, with null where they are suppressed. The key of an atom is
the hexadecimal form of its membership row, packed as numpy.packbits does it. There is no body.

There are four format versions. Version 1, which gcfcp 0.1.0 wrote, has no field `share`. Version 2
has it: the weight pi_k of the client in the mixture of the audited predictor, a number from 0 to 1.
An audit of `min_count` 1 without a round and a date is written as version 2 if its share is known,
and as version 1 otherwise.

Any other audit without the fields of version 4 is written as version 3. Its header has the fields
of version 2, where `share` is a number or null, and two more:

| field               | JSON           | what it says                                             |
|---------------------|----------------|----------------------------------------------------------|
| `round`             | string or null | the round that the audit belongs to, such as "2026Q4"    |
| `date`              | string or null | the day of the audit, such as "2026-11-17"               |

With a `min_count` above 1, version 3 has neither `uncovered`, `covered`, `bound`, `size`,
`unbounded` nor any field of atoms. For the G groups it has instead, as lists of G integers each:

| field               | JSON           | what it says                                             |
|---------------------|----------------|----------------------------------------------------------|
| `total`             | list           | by how many records a group is described; null if hidden |
| `total_strangers`   | list           | how many of them may not be in the group                 |
| `total_bound`       | list           | how many records of the group may not be among them      |
| `missed`            | list           | the same for the records of the group that were missed   |
| `missed_strangers`  | list           |                                                          |
| `missed_bound`      | list           |                                                          |

The number of records in a group is then from `total` - `total_strangers` to `total` +
`total_bound`, and at most `total_bound` if it is hidden. `client` says how these are chosen.

Version 4 has the fields of version 3 and two more. At least one of them is not null:

| field               | JSON           | what it says                                             |
|---------------------|----------------|----------------------------------------------------------|
| `sets`              | object or null | how many sets of each group say nothing; null if         |
|                     |                | `min_count` is above 1                                   |
| `everything`        | list or null   | for each group, true if the predictor gives every record |
|                     |                | in it an infinite threshold                              |

The entries of `sets` are `full` (the set holds every label, or is unbounded), `empty` and
`infinite` (the threshold is +inf). Each is a list of G integers, or null if it was not counted.
Each audit can be written in one way only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import checks, codec
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.audit.counts import Sets
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, pack

if TYPE_CHECKING:
    from gcfcp.audit.record import Audit

_KIND = b"A"
# The format versions; see the module.
_WITHOUT_SHARE, _WITH_SHARE, _WITH_ROUND, _WITH_SETS = 1, 2, 3, 4
_NEWEST = _WITH_SETS
TOLD = ("total", "missed")  # What an audit with a `min_count` above 1 tells of each group.
BY_GROUP = tuple(f"{name}{more}" for name in TOLD for more in ("", "_strangers", "_bound"))
SETS = ("full", "empty", "infinite")  # The sets that say nothing.


def encode(audit: Audit) -> bytes:
    """The audit as bytes. Equal audits give equal bytes."""

    def listed(values: NDArray[Any] | None) -> list[Any] | None:
        if values is None:
            return None
        return [None if s else v for v, s in zip(values.tolist(), audit.suppressed, strict=True)]

    header: dict[str, Any] = {
        "client": audit.client,
        "n": audit.n,
        **audit.groups.to_dict("groups"),
        "min_count": audit.min_count,
        "alpha": audit.alpha,
        "predictor": audit.predictor,
        "library": audit.library,
    }
    if audit.told is not None:
        header |= {name: getattr(audit.told, name).tolist() for name in BY_GROUP}
        for name in TOLD:
            header[name] = [None if value < 0 else value for value in header[name]]
    else:
        header |= {
            "uncovered": audit.uncovered,
            "total": listed(audit.total),
            "covered": listed(audit.covered),
            "bound": audit.bound.tolist(),
            "size": listed(audit.size),
            "unbounded": listed(audit.unbounded),
            "atoms": [row.tobytes().hex() for row in pack(audit.atom_membership)],
            "atom_total": audit.atom_total.tolist(),
            "atom_covered": audit.atom_covered.tolist(),
            "atom_size": None if audit.atom_size is None else audit.atom_size.tolist(),
            "atom_unbounded": audit.atom_unbounded.tolist(),
            "suppressed_atoms": audit.suppressed_atoms,
        }
    since_3 = {"share": audit.share, "round": audit.round, "date": audit.date}
    if audit.sets is not None or audit.everything is not None:
        since_4 = {
            "sets": audit.sets and _plain_sets(audit.sets),
            "everything": None if audit.everything is None else audit.everything.tolist(),
        }
        return codec.pack(_KIND, _WITH_SETS, header | since_3 | since_4, b"")
    if audit.told is not None or audit.round is not None or audit.date is not None:
        return codec.pack(_KIND, _WITH_ROUND, header | since_3, b"")
    if audit.share is None:
        return codec.pack(_KIND, _WITHOUT_SHARE, header, b"")
    return codec.pack(_KIND, _WITH_SHARE, header | {"share": audit.share}, b"")


def unpack(data: bytes, name: str) -> tuple[int, dict[str, Any]]:
    """The format version and the header, or a GCFCPError that says what is wrong with `name`."""
    version, header, body = codec.unpack_with_version(data, _KIND, _NEWEST, name)
    if len(body):
        raise GCFCPError(
            f"{name} is not a valid audit: it has {len(body)} bytes after its header, where none "
            "may be"
        )
    return version, header


def has_one_form(version: int) -> bool:
    """Whether an audit can be written in one way only in this format version."""
    return version >= _WITH_ROUND


def fields(header: dict[str, Any], version: int) -> tuple[dict[str, Ints] | None, dict[str, Any]]:
    """The fields of `Told`, if the header has counts by group only, and those of the audit.

    version: The format version. Whatever is wrong with the header raises one of `codec.MALFORMED`.
    """
    if version == _WITHOUT_SHARE and "share" in header:
        raise GCFCPError("it has a share, but its format version 1 has none")
    groups = Groups.from_dict(header, "groups")
    if version >= _WITH_ROUND and "missed" in header:
        return _told(header), _of_told(header, groups, version)
    suppressed = [value is None for value in _list(header["total"])]

    def by_group(name: str, hidden: int) -> Ints:
        values = _list(header[name])
        if [value is None for value in values] != suppressed:
            raise GCFCPError(f"{name} is suppressed where total is not, or the other way round")
        return _integers(name, [hidden if value is None else value for value in values], hidden)

    sizes = header["size"]
    keys = [bytes.fromhex(key) for key in _list(header["atoms"])]
    width = -(-len(groups) // 8)
    if any(len(key) != width for key in keys):
        raise GCFCPError("an atom's key has the wrong length")
    packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), width)
    membership = np.unpackbits(packed, axis=1, count=len(groups)).astype(bool)
    if not np.array_equal(pack(membership), packed):
        raise GCFCPError("the key of an atom names a group that does not exist")
    atom_sizes = header["atom_size"]
    return None, {
        "client": header["client"],
        "n": header["n"],
        "groups": groups,
        "min_count": header["min_count"],
        "alpha": header["alpha"],
        "predictor": header["predictor"],
        "uncovered": header["uncovered"],
        "total": by_group("total", -1),
        "covered": by_group("covered", -1),
        "bound": _integers("bound", _list(header["bound"])),
        "size": None if sizes is None else _reals([0 if s is None else s for s in _list(sizes)]),
        "unbounded": by_group("unbounded", 0),
        "atom_membership": membership,
        "atom_total": _integers("atom_total", _list(header["atom_total"])),
        "atom_covered": _integers("atom_covered", _list(header["atom_covered"])),
        "atom_size": None if atom_sizes is None else _reals(atom_sizes),
        "atom_unbounded": _integers("atom_unbounded", _list(header["atom_unbounded"])),
        "suppressed_atoms": header["suppressed_atoms"],
        "library": header["library"],
        "share": _share(header, version),
        "round": header["round"] if version >= _WITH_ROUND else None,
        "date": header["date"] if version >= _WITH_ROUND else None,
        "sets": _sets(header["sets"]) if version >= _WITH_SETS else None,
        "everything": _everything(header, version),
    }


def _plain_sets(sets: Sets) -> dict[str, Any]:
    """The counts of sets as lists."""
    named = zip(SETS, sets.arrays, strict=True)
    return {name: None if array is None else array.tolist() for name, array in named}


def _sets(given: Any) -> Sets | None:
    """The counts of sets in a header."""
    if given is None:
        return None
    if not isinstance(given, dict) or set(given) != set(SETS):
        raise GCFCPError("sets does not have the entries full, empty and infinite")
    lists = ((name, given[name]) for name in SETS)
    return Sets(*(None if v is None else _integers(name, _list(v)) for name, v in lists))


def _everything(header: dict[str, Any], version: int) -> Bools | None:
    """For each group of a header, whether its records get everything; None if it is not said."""
    if version < _WITH_SETS or header["everything"] is None:
        return None
    flags = _list(header["everything"])
    if not all(type(flag) is bool for flag in flags):
        raise GCFCPError("everything holds a value that is neither true nor false")
    return np.array(flags, dtype=np.bool_)


def _share(header: dict[str, Any], version: int) -> float | None:
    """The share in a header; from version 3 on the field may have no value."""
    if version == _WITHOUT_SHARE or (version >= _WITH_ROUND and header["share"] is None):
        return None
    return checks.weight("share", header["share"])


def _told(header: dict[str, Any]) -> dict[str, Ints]:
    """The fields of `Told` in a header that has counts by group only."""

    def counts(name: str) -> Ints:
        values = _list(header[name])
        if name in TOLD:
            if -1 in values:
                raise GCFCPError(f"{name} holds a value that is not a count")
            values = [-1 if value is None else value for value in values]
        return _integers(name, values, -1 if name in TOLD else 0)

    return {name: counts(name) for name in BY_GROUP}


def _of_told(header: dict[str, Any], groups: Groups, version: int) -> dict[str, Any]:
    """The other fields of such an audit."""
    return {
        "n": checks.count("n", header["n"]),
        "groups": groups,
        "client": header["client"],
        "min_count": header["min_count"],
        "alpha": header["alpha"],
        "predictor": header["predictor"],
        "library": header["library"],
        "share": _share(header, version),
        "round": header["round"],
        "date": header["date"],
        "sets": _sets(header["sets"]) if version >= _WITH_SETS else None,
        "everything": _everything(header, version),
    }


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise GCFCPError(f"{value!r:.40} is not a list")
    return value


def _integers(name: str, values: list[Any], least: int = 0) -> Ints:
    if not all(type(v) is int and least <= v < 2**53 for v in values):
        raise GCFCPError(f"{name} holds a value that is not a count")
    return np.array(values, dtype=np.int64)


def _reals(values: Any) -> Floats:
    if not all(type(v) in (int, float) and abs(v) < 1e300 for v in _list(values)):
        raise GCFCPError("a sum of set sizes is not a number")
    return np.array(values, dtype=np.float64)
