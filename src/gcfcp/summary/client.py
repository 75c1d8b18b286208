"""The client's side of Algorithm 1: scores and memberships in, a small summary out.

`summarize` splits the scores by atom, compresses each atom into a T-Digest of plain counts and
returns a `ClientSummary`, the only thing that leaves the site.

Disclosure control: with `min_count=m` every centroid stands for at least m records, and an atom
with fewer than m records is not described. Its records are still counted, so that the promise
holds: the summary bounds how many there are in each group, and the server takes them as scores of
+inf. The bound of a group is the next multiple of m above their number, but no more than are
suppressed in all: it is the same whether j m or j m + m - 1 of them are there, none included. Only
for a group without a single record it is 0. With `upper` no record's exact score leaves when m > 1,
except a score of exactly 0, which has no digits to round (`digest.ROUNDED_BITS`;
`Disclosure.exact_scores` counts these). The number of records n_k, which weighs the client, always
leaves.

Cost: one sort of the scores.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gcfcp import checks
from gcfcp import scores as known_scores
from gcfcp.arrays import Bools
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
    values = checks.scores("scores", scores)
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
    membership: Bools,
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
    checks.name("client", client)
    delta, min_count = checks.delta(delta), checks.min_count(min_count)
    representative = checks.representative(representative)
    name, parameters = known_scores.describe(score)
    limit = rounding_limit(score, representative, min_count)
    counts = np.array([s.count if hasattr(s, "digest") else len(s) for s in by_atom])
    in_group, n = membership.any(axis=1), int(counts.sum())
    if not in_group.all():
        _warn_of_uncovered(client, int(counts[~in_group].sum()), n)
    # Records in no group are suppressed like others: their number would describe them.
    small = counts < min_count
    kept = np.flatnonzero(in_group & ~small)
    digests = [_digest(by_atom[i], delta, representative, min_count, limit) for i in kept]
    suppressed = int(counts[small].sum())
    hidden = counts[small] @ membership[small]
    # The bound lies above the number itself, so that none and one look alike; see the module.
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
    )


def _warn_of_uncovered(client: str, outside: int, n: int) -> None:
    warnings.warn(
        f"{client}: {outside} of {n} records belong to no group and have no part in any promise; "
        "Groups.with_all() adds a group that everyone belongs to",
        GCFCPWarning,
        stacklevel=4,
    )


def rounding_limit(score: Any, representative: Representative, min_count: int) -> float | None:
    """The limit that rounded representatives must not pass; None where none is known or needed.

    Representatives are rounded up with `upper` and a `min_count` above 1. A score that never
    passes 1 is then never rounded beyond 1.
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
    if hasattr(scores, "digest"):
        return scores.digest()  # type: ignore[no-any-return]
    scores.sort()
    return TDigest.from_sorted(
        scores, delta, representative=representative, min_count=min_count, limit=limit
    )
