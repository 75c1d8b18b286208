"""The client's side of Algorithm 1: it turns scores and memberships into a small summary.

`summarize` divides the scores by atom, compresses those of each atom into a T-Digest of plain
counts, and returns a `ClientSummary`. Nothing else leaves the site.

Disclosure control: With `min_count=m` every centroid stands for at least m records, and an atom of
fewer than m records is suppressed, which means that it is not described. The promise must hold for
suppressed records too. The summary therefore states an upper bound on their number in each group,
and the server treats them as scores of +inf.

- The bound of a group is the next multiple of m above the number of its suppressed records, but at
  most the number of all suppressed records. With m = 5 and 100 suppressed records, a group that has
  0 to 4 of them has the bound 5, and one that has 5 to 9 has the bound 10. The bound is 0 for a
  group to which no record of the client belongs, and for all groups if nothing is suppressed.
- With `upper` and m > 1 every representative is rounded up, so that it does not reveal the exact
  score of a record. There are three exceptions. A score of exactly 0 can be recognised
  (`Disclosure.exact_scores` counts these; see `digest.ROUNDED_BITS`). A score of +inf stays +inf. A
  representative that would pass the score's upper limit, such as 1, becomes that limit.
- A group that the client declares absent has no records there, so its bound is 0 as well. That the
  client cannot have the group is then known to the server.
- The number of records n_k always leaves the site, because the weight of the client depends on it.
  So does the number of suppressed records.

Cost: The scores of each atom are sorted once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gcfcp import checks
from gcfcp import scores as known_scores
from gcfcp.arrays import Bools, Ints
from gcfcp.checks import Representative
from gcfcp.digest import TDigest
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups, find_atoms
from gcfcp.summary.summary import ClientSummary


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
    absent: Iterable[str] = (),
) -> ClientSummary:
    """Summarise the calibration scores of one client: Algorithm 1, client side.

    - `scores`: The n_k nonconformity scores. +inf is allowed, and NaN is an error.
    - `membership`: Which groups each record belongs to, of shape (n_k, G): the result of
      `groups.membership(frame)`, or any matrix of 0 and 1. If the groups have sites, the columns of
      the sites may be left out: they are filled in from `client`.
    - `groups`: The family of groups, which is the same for all clients.
    - `client`: The name of this client. If the groups have sites, it is one of them.
    - `delta`: How fine the digests are: each atom has about delta / 2 clusters.
    - `representative`: What stands for a cluster: "upper", its largest score, which loses no
      coverage at any delta, or "mean", its mean, as in the paper.
    - `min_count`: The smallest number of records that an atom or a cluster of the summary may stand
      for. Smaller atoms are suppressed: they are not described, and count as scores of +inf.
    - `score`: The score that was used: one of `gcfcp.scores`, another object with a name, or a
      name.
    - `model`: A fingerprint of the model, in any form.
    - `absent`: The names of the groups that this client cannot have, now or later. A record that
      belongs to one of them is an error.

    The server refuses to calibrate summaries of different scores or models together.
    """
    if not isinstance(groups, Groups):
        raise GCFCPError(
            f"groups={groups!r:.60} is not a family of groups: give gcfcp.Groups([...])"
        )
    values = checks.scores("scores", scores)
    absent = declared(groups, absent)
    matrix = groups.complete(membership, client) if groups.sites else groups.check(membership)
    if len(matrix) != len(values):
        raise GCFCPError(
            f"there are {len(values)} scores and {len(matrix)} membership rows: give one row for "
            "each score"
        )
    refuse_absent(groups, absent, matrix)
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
        absent=absent,
    )


def assemble(
    by_atom: list[Any],
    membership: Bools,
    *,
    groups: Groups,
    client: str,
    delta: float,
    representative: Representative,
    min_count: int,
    score: Any,
    model: str | None,
    absent: Iterable[str] = (),
) -> ClientSummary:
    """The summary of scores that are already divided by atom.

    - `by_atom`: The scores of each atom, in the order of `membership`: an array, which is sorted in
      place here, or a `DigestBuilder` that has seen all of them.
    - `membership`: The atoms as distinct membership rows (a, G), in ascending order. If the groups
      have sites, every row belongs to the site `client`.

    The other arguments are those of `summarize`.
    """
    checks.name("client", client)
    delta, min_count = checks.delta(delta), checks.min_count(min_count)
    representative = checks.representative(representative)
    name, parameters = known_scores.describe(score)
    limit = rounding_limit(score, representative, min_count)
    counts = np.array([s.count if hasattr(s, "digest") else len(s) for s in by_atom])
    absent = declared(groups, absent)
    refuse_absent(groups, absent, membership, counts)
    in_group, n = membership.any(axis=1), int(counts.sum())
    if not in_group.all():
        _warn_of_uncovered(client, int(counts[~in_group].sum()), n)
    # Fewer than min_count records in no group are suppressed like any small atom, because even
    # their number would describe them.
    small = counts < min_count
    kept = np.flatnonzero(in_group & ~small)
    digests = [_digest(by_atom[i], delta, representative, min_count, limit) for i in kept]
    suppressed = int(counts[small].sum())
    hidden = counts[small] @ membership[small]
    # The bound is larger than the number, so that a group without hidden records cannot be told
    # from a group with some.
    bound = np.minimum((hidden // min_count + 1) * min_count, suppressed)
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
        uncovered=int(counts[~in_group & ~small].sum()),
        members=((client, n),),
        membership=membership[kept],
        start=np.cumsum([0] + [len(d) for d in digests]),
        values=np.concatenate([np.empty(0), *(d.means for d in digests)]),
        counts=np.concatenate([np.empty(0), *(d.weights for d in digests)]).astype(np.int64),
        errors=np.ceil([d.error_weight for d in digests]).astype(np.int64),
        absent=absent,
    )


def declared(groups: Groups, absent: Any) -> tuple[str, ...]:
    """The groups that a client declares absent, in the order of the family and each of them once.

    absent: Their names, in any order.
    """
    if isinstance(absent, str) or not isinstance(absent, Iterable):
        raise GCFCPError(f"absent={absent!r:.60} is not a list of groups: give one such as ['all']")
    given = list(absent)
    for name in given:
        if name not in groups.names:
            raise GCFCPError(
                f"absent={name!r:.60} is not one of the groups {checks.listed(groups.others)}: "
                "give the names of groups that this client cannot have"
            )
        if name not in groups.others:
            raise GCFCPError(
                f"absent={name!r} is the group of a site: leave it out, because a client can have "
                "its own site only"
            )
    return tuple(name for name in groups.others if name in given)


def refuse_absent(
    groups: Groups, absent: tuple[str, ...], membership: Bools, counts: Ints | None = None
) -> None:
    """Raise an error if a record belongs to a group that was declared absent.

    - `absent`: The groups as `declared` gives them.
    - `counts`: How many records each row of `membership` stands for. By default each is one record.
    """
    for name in absent:
        inside = membership[:, groups.names.index(name)]
        if inside.any():
            number = int(inside.sum() if counts is None else counts[inside].sum())
            first = f", the first at position {int(inside.argmax())}" if counts is None else ""
            raise GCFCPError(
                f"{number} records belong to group {name!r}, which was declared absent{first}: "
                "correct these records, or do not declare the group absent"
            )


def _warn_of_uncovered(client: str, outside: int, n: int) -> None:
    """Warn that `outside` of the n records of a client belong to no group."""
    warnings.warn(
        f"{client}: {outside} of {n} records belong to no group, so no coverage is promised for "
        "them; Groups.with_all() adds a group that every record belongs to",
        GCFCPWarning,
        stacklevel=4,
    )


def rounding_limit(score: Any, representative: Representative, min_count: int) -> float | None:
    """The upper limit of the score, which rounding must not pass, or None if there is none.

    Representatives are rounded up with `upper` and a `min_count` above 1. Those of a score that is
    never above 1 are then not rounded beyond 1. The limit is None where nothing is rounded, and for
    scores without a known finite limit.
    """
    if representative != "upper" or min_count <= 1:
        return None
    if isinstance(score, str) and score in known_scores.NAMES:
        score = known_scores.from_name(score)
    limit: Any = getattr(score, "upper", None)
    return float(limit) if checks.is_number(limit) and math.isfinite(limit) else None


def _digest(
    scores: Any, delta: float, representative: Representative, min_count: int, limit: float | None
) -> TDigest:
    """The digest of one atom, from its scores or from the builder that has seen them."""
    if hasattr(scores, "digest"):
        return scores.digest()  # type: ignore[no-any-return]
    scores.sort()
    return TDigest.from_sorted(
        scores, delta, representative=representative, min_count=min_count, limit=limit
    )
