"""The client's side of Algorithm 1: scores and memberships in, a small summary out.

`summarize` splits the scores by atom, compresses each atom into a T-Digest of plain counts and
returns a `ClientSummary`, the only thing that leaves the site. The weights pi_k / (n_k + 1) are
the server's business: within a client all scores weigh the same, so counts are enough, and the
mixture can be changed later without another round.

Disclosure control: with `min_count=m` every centroid stands for at least m records and an atom
with fewer than m is not described. Its records are still counted, so that the promise holds: the
summary bounds how many there are in each group, and the server takes them as scores of +inf. The
bound of a group is the next multiple of m above their number, but no more than are suppressed in
all: it is the same whether j m or j m + m - 1 of them are there, none included. Only for a group
without a single record it is 0. With `upper` no record's exact score leaves when m > 1, but for
zeros, which have no digits to round (`digest.ROUNDED_BITS`; `Disclosure.exact_scores` counts
them). The number of records n_k, which weighs the client, always leaves.

The bytes of a summary (kind b"S", version 1 of the container in `codec`): the header's fields are
those of `ClientSummary` below plus `atoms` = a, `centroids` = m and `width` = w; the body is

    a * ceil(G / 8) bytes   key of each atom: its membership, packed as numpy.packbits does
    a integers              centroids of each atom          } little-endian,
    a integers              certified error of each atom    } unsigned,
    m integers              counts                          } w bytes each
    m float64               representatives, little-endian

atoms in ascending order of their keys, and within each the representatives in ascending order.

Cost: one sort of the scores. A summary takes 8 + w bytes a centroid and a header of some hundred
bytes; w is the least that holds every count, 3 or less up to 16.7 million records a centroid.

| here             | paper                                         |
|------------------|-----------------------------------------------|
| `n`              | n_k                                           |
| `membership`     | Phi_A of the active atoms A in A_k^+          |
| `values`         | S-bar_{k,A,c}                                 |
| `counts`         | W_{k,A,c} (n_k + 1) / pi_k                    |
| `errors` / count | certified sup |p_A - p-hat_A| of atom A       |
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gcfcp import codec, scores
from gcfcp.digest import ROUNDED_BITS, Representative, TDigest
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import MAX_NAME, Groups, find_atoms, pack

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LIBRARY = "gcfcp 0.1.0"
_KIND, _VERSION = b"S", 1
_REPRESENTATIVES = ("mean", "upper")
_ROUNDED_ZERO = 2.0 ** (-1021 - ROUNDED_BITS)  # what a maximum of 0 is rounded up to


@dataclass(frozen=True)
class Disclosure:
    """What a summary tells about the records behind it, in numbers."""

    client: str
    records: int
    atoms: int
    centroids: int
    smallest_atom: int  # records in the smallest atom that is described; 0 if there is none
    smallest_centroid: int  # records that the smallest centroid stands for; 0 if there is none
    exact_scores: int  # centroids known to hold some record's exact score
    suppressed: int  # records in atoms that are too small to be described
    uncovered: int  # records in no group
    min_count: int
    bytes: int

    def __str__(self) -> str:
        raw = 8 * self.records
        shown = (
            f"{self.atoms:,} atoms are described, the smallest of {self.smallest_atom:,} records"
            if self.atoms
            else "no atom is described"
        )
        exact = f"{self.exact_scores:,} hold" if self.exact_scores else "none holds"
        return (
            f"{self.client}: {self.bytes:,} bytes leave for {self.records:,} records "
            f"({raw:,} bytes of scores stay)\n"
            f"  {shown}\n"
            f"  {self.centroids:,} centroids, the smallest of {self.smallest_centroid:,} records; "
            f"{exact} a record's exact score\n"
            f"  min_count is {self.min_count}; {self.suppressed:,} records are in atoms below it "
            f"and count as scores of +inf\n"
            f"  {self.uncovered:,} records belong to no group"
        )


@dataclass(frozen=True, eq=False)
class ClientSummary:
    """What one client (or one aggregator of clients) sends. Two summaries are equal if their
    bytes are."""

    client: str
    n: int
    delta: float
    representative: str
    groups: Groups
    score: str
    parameters: dict[str, Any]
    model: str | None
    min_count: int
    suppressed: int
    suppressed_groups: tuple[int, ...]  # upper bounds, a group each
    uncovered: int
    members: tuple[tuple[str, int], ...]  # (client, n_k): itself, unless it is an aggregate
    membership: NDArray[np.bool_] = field(repr=False)  # (a, G)
    start: Ints = field(repr=False)  # (a + 1,): atom i owns values[start[i]:start[i + 1]]
    values: Floats = field(repr=False)
    counts: Ints = field(repr=False)
    errors: Ints = field(repr=False)  # (a,): in records
    library: str = LIBRARY

    def __post_init__(self) -> None:
        _check(self)
        for array in (self.membership, self.start, self.values, self.counts, self.errors):
            array.flags.writeable = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientSummary) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    @property
    def atom_counts(self) -> Ints:
        """Records of each described atom."""
        return np.add.reduceat(self.counts, self.start[:-1]) if len(self.errors) else self.errors

    @property
    def disclosure(self) -> Disclosure:
        """What leaves the site with this summary."""
        return Disclosure(
            client=self.client,
            records=self.n,
            atoms=len(self.errors),
            centroids=len(self.values),
            smallest_atom=int(self.atom_counts.min()) if len(self.errors) else 0,
            smallest_centroid=int(self.counts.min()) if len(self.counts) else 0,
            exact_scores=self._exact_scores(),
            suppressed=self.suppressed,
            uncovered=self.uncovered,
            min_count=self.min_count,
            bytes=len(self.to_bytes()),
        )

    def _exact_scores(self) -> int:
        """A maximum is a record's score unless it was rounded up, which zero shows through (see
        `digest.ROUNDED_BITS`). The mean of one record is its score; that of more is if they are
        all equal, which nobody can tell from here."""
        if self.representative == "mean":
            return int(np.count_nonzero(self.counts == 1))
        if self.min_count == 1:
            return len(self.values)
        return int(np.count_nonzero(self.values == _ROUNDED_ZERO))

    def to_bytes(self) -> bytes:
        """The summary as bytes: the same data, in any row order, give the same ones."""
        sizes = np.diff(self.start)
        whole = np.concatenate([sizes, self.errors, self.counts])
        width = max(1, -(-int(whole.max(initial=0)).bit_length() // 8))
        header = {
            "client": self.client,
            "n": self.n,
            "delta": self.delta,
            "representative": self.representative,
            "groups": list(self.groups.names),
            "predicates": None if self.groups.predicates is None else list(self.groups.predicates),
            "fingerprint": self.groups.fingerprint,
            "score": self.score,
            "parameters": self.parameters,
            "model": self.model,
            "min_count": self.min_count,
            "suppressed": self.suppressed,
            "suppressed_groups": list(self.suppressed_groups) if self.suppressed else [],
            "uncovered": self.uncovered,
            "members": [list(m) for m in self.members] if self.is_aggregate else [],
            "library": self.library,
            "atoms": len(sizes),
            "centroids": len(self.values),
            "width": width,
        }
        body = (
            pack(self.membership).tobytes()
            + whole.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
            + self.values.astype("<f8").tobytes()
        )
        return codec.pack(_KIND, _VERSION, header, body)

    @property
    def is_aggregate(self) -> bool:
        return self.members != ((self.client, self.n),)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "the summary") -> ClientSummary:
        """Read a summary that may come from anyone; a GCFCPError says what is wrong with it."""
        header, body = codec.unpack(data, _KIND, _VERSION, name)
        try:
            summary = _decode(header, body)
            # Whatever is added, padded or out of order would be written in another way.
            if summary.to_bytes() != data:
                raise GCFCPError("it is not written in the one way that the format has")
        except codec.MALFORMED as error:
            raise GCFCPError(f"{name} is not a valid summary: {codec.explain(error)}") from None
        return summary

    def save(self, path: str | PathLike[str]) -> None:
        """Write the summary to a file, whole or not at all."""
        codec.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ClientSummary:
        """Read a summary from a file."""
        return cls.from_bytes(codec.read(path), fspath(path))


def _decode(header: dict[str, Any], body: memoryview) -> ClientSummary:
    names, predicates = header["groups"], header["predicates"]
    groups = Groups(names) if predicates is None else Groups(names, predicates)
    if groups.fingerprint != header["fingerprint"]:
        raise GCFCPError("the groups' fingerprint does not match their definition")
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
    return ClientSummary(
        client=header["client"],
        n=header["n"],
        delta=header["delta"],
        representative=header["representative"],
        groups=groups,
        score=header["score"],
        parameters=header["parameters"],
        model=header["model"],
        min_count=header["min_count"],
        suppressed=header["suppressed"],
        suppressed_groups=tuple(header["suppressed_groups"]) or (0,) * len(groups),
        uncovered=header["uncovered"],
        members=tuple((k, n) for k, n in members) or ((header["client"], header["n"]),),
        membership=membership,
        start=np.concatenate([[0], np.cumsum(whole[:a])]).astype(np.int64),
        errors=whole[a : 2 * a],
        counts=whole[2 * a :],
        values=np.frombuffer(body[ends[3] :], dtype="<f8").astype(np.float64),
        library=header["library"],
    )


def _check(s: ClientSummary) -> None:
    """Everything that must hold between the fields of a summary, whoever made it."""
    check_name("client", s.client)
    for name in ("score", "library") + (("model",) if s.model is not None else ()):
        check_name(name, getattr(s, name))
    whole = {"n": s.n, "min_count": s.min_count, "suppressed": s.suppressed}
    for name, number in (whole | {"uncovered": s.uncovered}).items():
        if type(number) is not int or not 0 <= number < 2**53:
            raise GCFCPError(f"{name}={number!r} is not a whole number from 0 to 2**53")
    if s.n < 1 or s.min_count < 1:
        raise GCFCPError(f"n={s.n} and min_count={s.min_count} must be at least 1")
    if type(s.delta) not in (int, float) or not 2 <= s.delta <= sys.float_info.max:
        raise GCFCPError(f"delta={s.delta!r:.60} is not a number of at least 2")
    if s.representative not in _REPRESENTATIVES:
        raise GCFCPError(f"representative={s.representative!r} is neither 'mean' nor 'upper'")
    _check_parameters(s.parameters)
    _check_members(s)
    if len(s.suppressed_groups) != len(s.groups) or not all(
        type(k) is int and 0 <= k <= s.suppressed for k in s.suppressed_groups
    ):
        raise GCFCPError(
            "suppressed_groups must hold a count for each group, of all that is suppressed at most"
        )
    _check_arrays(s)


def _check_arrays(s: ClientSummary) -> None:
    a, m = len(s.errors), len(s.values)
    if s.membership.shape != (a, len(s.groups)) or len(s.start) != a + 1 or len(s.counts) != m:
        raise GCFCPError("the numbers of atoms and centroids do not fit together")
    if s.start[0] != 0 or s.start[-1] != m or np.any(np.diff(s.start) < 1):
        raise GCFCPError("each atom must have at least one centroid, and each centroid an atom")
    keys = [row.tobytes() for row in pack(s.membership)]
    if any(a >= b for a, b in pairwise(keys)):
        raise GCFCPError("the atoms are not in ascending order, each of them once")
    if not s.membership.any(axis=1).all():
        raise GCFCPError("an atom that belongs to no group is described")
    if np.any(s.counts < s.min_count):
        raise GCFCPError(f"a centroid of {s.counts.min()} records is below min_count={s.min_count}")
    if np.isnan(s.values).any() or np.any(s.values == -np.inf):
        raise GCFCPError("a representative is NaN or -inf")
    rising = np.ones(m, dtype=bool)
    rising[1:] = s.values[1:] > s.values[:-1]
    rising[s.start[:-1]] = True
    if not rising.all():
        raise GCFCPError("the representatives of an atom are not in ascending order")
    if s.counts.sum(dtype=np.float64) > 2**53:  # beyond it the sums below could overflow
        raise GCFCPError("the counts add up to more than 2**53")
    if np.any(s.errors < 0) or np.any(s.errors > s.atom_counts):
        raise GCFCPError("an error certificate is larger than its atom")
    described = int(s.counts.sum())
    if described + s.suppressed + s.uncovered != s.n:
        raise GCFCPError(
            f"the counts add up to {described} described + {s.suppressed} suppressed + "
            f"{s.uncovered} in no group, not to n={s.n}"
        )


def _check_members(s: ClientSummary) -> None:
    for name, n in s.members:
        check_name("member", name)
        if type(n) is not int or n < 1:
            raise GCFCPError(f"member {name!r} has n={n!r}, not a positive whole number")
    names = [name for name, _ in s.members]
    if len(set(names)) < len(names) or names != sorted(names):
        raise GCFCPError("the members are not in ascending order, each of them once")
    if sum(n for _, n in s.members) != s.n:
        raise GCFCPError(f"the members' records do not add up to n={s.n}")


def _check_parameters(parameters: Any) -> None:
    if not isinstance(parameters, dict) or not all(
        isinstance(k, str) and (v is None or isinstance(v, bool | int | float | str))
        for k, v in parameters.items()
    ):
        raise GCFCPError("the score's parameters must map names to plain values")
    for key, value in parameters.items():
        check_name("parameter", key)
        if isinstance(value, str):
            check_name("parameter value", value)
        if isinstance(value, int) and abs(value) >= 2**63:
            raise GCFCPError(f"the score's parameter {key}={value!s:.60} is beyond 2**63")
        if isinstance(value, float) and not math.isfinite(value):
            raise GCFCPError(f"the score's parameter {key}={value} is not finite")


def check_name(what: str, name: Any) -> None:
    """Names are shown to people and written to files: printable, UTF-8, not endless."""
    good = isinstance(name, str) and name.strip() and len(name) <= MAX_NAME
    if not good or not name.isprintable():
        raise GCFCPError(
            f"{what}={name!r:.60} is not a name: 1 to {MAX_NAME} printable characters are"
        )


def describe_score(score: Any) -> tuple[str, dict[str, Any]]:
    """Name and parameters of a score object, or of a score that is only named."""
    if score is None:
        return "unnamed", {}
    if isinstance(score, str):
        return score, {}
    name = getattr(score, "name", type(score).__name__)
    parameters = getattr(score, "parameters", {})
    if not isinstance(parameters, Mapping):
        return str(name), {}
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}
    return str(name), plain


def summarize(
    scores: ArrayLike,
    membership: Any,
    *,
    groups: Groups,
    client: str,
    delta: float = 250,
    representative: Representative = "upper",
    min_count: int = 1,
    score: Any = None,
    model: str | None = None,
) -> ClientSummary:
    """Summarise one client's calibration scores: Algorithm 1, client side.

    scores: n_k nonconformity scores; +inf is allowed, NaN is an error. membership: (n_k, G), from
    `groups.membership(frame)` or any 0/1 matrix. delta: clusters per atom are about delta / 2.
    representative: "upper" (no coverage loss at any delta) or "mean" (the paper's). min_count: see
    the module. score: one of `gcfcp.scores`, any object with a name, or a name; model: any
    fingerprint. The server refuses to mix different ones.
    """
    if not isinstance(groups, Groups):
        raise GCFCPError(f"groups={groups!r:.60} is no family: give gcfcp.Groups([...])")
    values = _checked_scores(scores)
    matrix = groups.check(membership)
    if len(matrix) != len(values):
        raise GCFCPError(
            f"there are {len(values)} scores and {len(matrix)} membership rows: give one row each"
        )
    atoms = find_atoms(matrix)
    order = np.argsort(atoms.index, kind="stable")
    values = values[order]
    del order
    return assemble(
        [
            values[end - count : end]
            for end, count in zip(np.cumsum(atoms.counts), atoms.counts, strict=True)
        ],
        atoms.membership,
        groups=groups,
        client=client,
        delta=delta,
        representative=representative,
        min_count=min_count,
        score=score,
        model=model,
    )


def assemble(
    by_atom: list[Any],
    membership: NDArray[np.bool_],
    *,
    groups: Groups,
    client: str,
    delta: float,
    representative: Representative,
    min_count: int,
    score: Any,
    model: str | None,
) -> ClientSummary:
    """A summary from the scores of each atom.

    An atom's scores are an array of its own (sorted in place here) or a `DigestBuilder` that has
    seen them all.
    """
    check_name("client", client)
    delta, min_count = _checked_delta(delta), _checked_min_count(min_count)
    name, parameters = describe_score(score)
    known = scores.from_name(name) if isinstance(score, str) and name in scores.NAMES else score
    limit = getattr(known, "upper", None)
    if not isinstance(limit, int | float) or not math.isfinite(limit):
        limit = None  # none is known
    counts = [s.count if hasattr(s, "digest") else len(s) for s in by_atom]
    uncovered = suppressed = outside = 0
    hidden = np.zeros(len(groups), dtype=np.int64)
    kept: list[int] = []
    digests: list[TDigest] = []
    for i, (own, row, count) in enumerate(zip(by_atom, membership, counts, strict=True)):
        if not row.any():
            outside = count
        if count < min_count:  # of those in no group, too: their number would describe them
            suppressed += count
            hidden += count * row
        elif not row.any():
            uncovered = count
        else:
            kept.append(i)
            digests.append(_digest(own, delta, representative, min_count, limit))
    if outside:
        warnings.warn(
            f"{client}: {outside} of {sum(counts)} records belong to no group and have no part "
            "in any promise; Groups.with_all() adds a group that everyone belongs to",
            GCFCPWarning,
            stacklevel=3,
        )
    # See the module: above the number itself, so that none and one look alike.
    bound = np.minimum((hidden // min_count + 1) * min_count, suppressed)
    n = sum(counts)
    return ClientSummary(
        client=client,
        n=n,
        delta=delta,
        representative=representative,
        groups=groups,
        score=name,
        parameters=parameters,
        model=model,
        min_count=min_count,
        suppressed=suppressed,
        suppressed_groups=tuple(np.where(membership.any(axis=0), bound, 0).tolist()),
        uncovered=uncovered,
        members=((client, n),),
        membership=membership[kept],
        start=np.cumsum([0] + [len(d) for d in digests]),
        values=np.concatenate([np.empty(0), *(d.means for d in digests)]),
        counts=np.concatenate([np.empty(0), *(d.weights for d in digests)]).astype(np.int64),
        errors=np.ceil([d.error_weight for d in digests]).astype(np.int64),
    )


def _digest(
    scores: Any, delta: float, representative: Representative, min_count: int, limit: float | None
) -> TDigest:
    if hasattr(scores, "digest"):
        return scores.digest()  # type: ignore[no-any-return]
    scores.sort()
    rounded = limit if representative == "upper" and min_count > 1 else None
    return TDigest.from_sorted(
        scores, delta, representative=representative, min_count=min_count, limit=rounded
    )


def _checked_delta(delta: Any) -> float:
    if isinstance(delta, bool) or not isinstance(delta, int | float | np.number):
        raise GCFCPError(f"delta={delta!r:.60} is not a number of at least 2")
    if not 2 <= delta < math.inf:
        raise GCFCPError(f"delta={delta} is not a number of at least 2: 250 is usual")
    return float(delta)  # 250 and 250.0 are written alike


def _checked_min_count(min_count: Any) -> int:
    whole = isinstance(min_count, int | np.integer) and not isinstance(min_count, bool)
    if not whole or min_count < 1:
        raise GCFCPError(f"min_count={min_count!r:.60} is not a whole number of at least 1")
    return int(min_count)


def _checked_scores(scores: ArrayLike) -> Floats:
    try:
        if isinstance(scores, np.ma.MaskedArray):  # asarray would unmask what is hidden
            scores = np.ma.filled(scores.astype(np.float64), np.nan)
        given = np.asarray(scores)
        if given.dtype.kind not in "biufO":
            raise TypeError(given.dtype)
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise GCFCPError("the scores are not numbers: give one float for each record") from None
    if values.ndim != 1:
        raise GCFCPError(f"the scores have shape {values.shape}: give one number for each record")
    if not len(values):
        raise GCFCPError("there are no scores: a client needs at least one record")
    for what, bad in (("NaN", np.isnan(values)), ("-inf", values == -np.inf)):
        if bad.any():
            raise GCFCPError(
                f"{np.count_nonzero(bad)} of {len(values)} scores are {what}, the first at "
                f"position {int(np.argmax(bad))}: drop these records or mend the score"
            )
    return values
