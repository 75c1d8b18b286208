"""From summaries to one problem: the clients in order, their weights, and the coreset.

Client k's records weigh lambda_k = pi_k / (n_k + 1) each and the test point weighs
w_test = sum_k lambda_k. Weights are rational numbers, brought to whole ones where a common
denominator exists that floats can hold; then every comparison of weights in the solver is exact.

Summaries are put in order of their client's name first: the order in which they arrive changes
nothing, to the last bit. An aggregator's summary stands for its members with the mixture
proportional among them, pi_k ~ n_k + 1, which makes all their records weigh the same:
lambda = pi_R / (n_R + K_R), and the region adds K_R lambda to w_test.

Suppressed records (`min_count` in `client`) are known by an upper bound H_G on their weight in each
group; neither their scores nor their atoms are known. They count as scores of +inf:

- In a group on its own (rule "max", disjoint groups) as weight H_G at +inf. The threshold asks for
  at least the weight that it would ask for if they were known, from fewer scores, so it is no
  lower: the proof for disjoint groups holds wherever they lie.
- In the simultaneous problem weight e_A >= 0 is put at +inf into atoms A so that every group has
  e_G = sum_{A in G} e_A >= H_G. Of a solution the first-order condition says that the scores
  covered in G weigh at least (1-alpha)(W_G + e_G + w_test). While theta_A is finite in all atoms
  that carry e, these are scores of known records, so what is covered is at least (1-alpha) of
  everything, wherever the suppressed records lie and even if none of them is covered. Where
  theta_A is infinite in an atom that carries e, e_A was counted as covered and this fails for the
  groups of A: all rows of these groups then get +inf, and everything in them is covered.
- A group that H_G makes infinite on its own has thresholds of +inf in any case and needs no e.
  Its atoms carry nothing for other groups either, whose thresholds would be infinite with them.

| here           | paper                                       |
|----------------|---------------------------------------------|
| `shares`       | pi_k                                        |
| `Weights.rate` | lambda_k = pi_k / (n_k + 1)                 |
| `Weights.test` | w_test                                      |
| `coreset`      | D-tilde, the coreset (eq. 12)               |

Cost: one sort of the centroids.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import scores
from gcfcp.checks import rational
from gcfcp.client import ClientSummary
from gcfcp.digest import TDigest
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, find_atoms
from gcfcp.solver import Coreset, combined

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Mixture = str | Mapping[str, float]

_ROUNDING = 2.0**-44  # far above the rounding of a sum of weights, far below a record


def in_order(summaries: Iterable[ClientSummary]) -> tuple[ClientSummary, ...]:
    """One summary a client, by name; whatever cannot be calibrated together is refused."""
    if isinstance(summaries, ClientSummary) or not isinstance(summaries, Iterable):
        raise GCFCPError(f"give a list of summaries, not {type(summaries).__name__}")
    by_client: dict[str, ClientSummary] = {}
    for s in summaries:
        if not isinstance(s, ClientSummary):
            raise GCFCPError(f"a summary was expected, not {type(s).__name__}: see summarize")
        first = by_client.setdefault(s.client, s)
        if first is not s and first != s:
            raise GCFCPError(
                f"client {s.client!r} sent two different summaries (n={first.n} and n={s.n}): "
                "keep one of them"
            )
    if not by_client:
        raise GCFCPError("there are no summaries: at least one client is needed")
    ordered = tuple(by_client[name] for name in sorted(by_client))
    _check_alike(ordered)
    _check_range(ordered)
    owner: dict[str, str] = {}
    for s in ordered:
        for name, _ in s.members:
            if owner.setdefault(name, s.client) != s.client:
                raise GCFCPError(
                    f"client {name!r} is in both {owner[name]!r} and {s.client!r}: its records "
                    "would count twice; leave one of them out"
                )
    return ordered


def _check_alike(summaries: Sequence[ClientSummary]) -> None:
    first = summaries[0]
    for s in summaries[1:]:
        if s.groups.fingerprint != first.groups.fingerprint:
            raise GCFCPError(
                f"{s.client} was summarised for groups {s.groups.fingerprint[:8]}.., "
                f"{first.client} for {first.groups.fingerprint[:8]}..: use one groups file"
            )
        for what in ("score", "parameters", "model", "representative"):
            theirs, ours = getattr(s, what), getattr(first, what)
            if theirs != ours:
                raise GCFCPError(
                    f"{s.client} was summarised with {what} {theirs!r}, {first.client} with "
                    f"{ours!r}: all clients must use the same"
                )


def _check_range(summaries: Sequence[ClientSummary]) -> None:
    """Scores that their own definition rules out: 1 - p beyond [0, 1], or |y - f| below 0."""
    first = summaries[0]
    try:
        score: Any = scores.from_name(first.score, first.parameters)
    except GCFCPError:
        return  # an own score, whose range nobody knows here
    for s in summaries:
        low, high = s.values.min(initial=score.upper), s.values.max(initial=score.lower)
        if low < score.lower or high > score.upper:
            raise GCFCPError(
                f"{s.client} has scores from {low:.6g} to {high:.6g}, and score {s.score!r} is "
                f"from {score.lower:g} to {score.upper:g}: find out how they were made"
            )


def check_alpha(alpha: Any) -> Fraction:
    if not isinstance(alpha, Real) or not 0 < float(alpha) < 1:
        raise GCFCPError(f"alpha={alpha!s:.40} is not in (0, 1)")
    return _exactly(alpha)


def _exactly(number: Real) -> Fraction:
    """NumPy's narrow floats are no numbers to a Fraction."""
    return rational(number if isinstance(number, Fraction) else float(number))


def shares_of(summaries: Sequence[ClientSummary], mixture: Mixture) -> list[Fraction]:
    """pi_k, exactly, in the order of the summaries."""
    if mixture == "uniform":
        weights = [Fraction(len(s.members)) for s in summaries]
    elif mixture == "proportional":
        weights = [Fraction(s.n + len(s.members)) for s in summaries]
    elif isinstance(mixture, Mapping):
        weights = named_shares([s.client for s in summaries], mixture)
    else:
        raise GCFCPError(
            f"mixture={mixture!r} is neither 'uniform' nor 'proportional' nor a mapping from "
            "each client to its weight"
        )
    total = sum(weights, Fraction(0))
    return [w / total for w in weights]


def named_shares(clients: Sequence[str], mixture: Mapping[str, float]) -> list[Fraction]:
    missing = [k for k in clients if k not in mixture]
    unknown = [k for k in mixture if k not in set(clients)]
    if missing or unknown:
        raise GCFCPError(
            "the mixture must name every client and no other: "
            + "; ".join(
                f"{what} {', '.join(map(repr, names[:5]))}{'..' if len(names) > 5 else ''}"
                for what, names in (("missing", missing), ("unknown", unknown))
                if names
            )
        )
    weights = []
    for k in clients:
        given: Any = mixture[k]
        if not isinstance(given, Real) or not 0 <= float(given) < math.inf:
            raise GCFCPError(
                f"the mixture's weight {given!s:.40} of {k!r} is not a number of 0 or more"
            )
        weights.append(_exactly(given))
    total = sum(weights, Fraction(0))
    if abs(float(total) - 1) > 1e-9:
        raise GCFCPError(f"the mixture's weights add up to {float(total):.10g}, not to 1")
    return weights


@dataclass(frozen=True)
class Weights:
    """lambda_k and w_test in one unit: whole numbers if a common denominator is within reach."""

    rate: Floats  # (K,)
    test: float
    unit: float  # of these in one of pi

    @classmethod
    def of(
        cls, summaries: Sequence[ClientSummary], shares: Sequence[Fraction], alpha: Fraction
    ) -> Weights:
        rates = [p / (s.n + len(s.members)) for p, s in zip(shares, summaries, strict=True)]
        members = [len(s.members) for s in summaries]
        denominator = 1
        for r in rates:
            denominator = math.lcm(denominator, r.denominator)
            if denominator * alpha.denominator > 2**50:  # beyond it floats round
                break
        else:
            whole = [r.numerator * (denominator // r.denominator) for r in rates]
            common = math.gcd(*whole)
            whole = [w // common for w in whole]
            test = sum(w * m for w, m in zip(whole, members, strict=True))
            return cls(np.array(whole, dtype=np.float64), float(test), denominator / common)
        unit = 1.0 / float(max(rates))
        rate = np.array([float(r) * unit for r in rates])
        return cls(rate, math.fsum(rate * members), unit)


@dataclass(frozen=True)
class Pool:
    """All centroids of all clients by atom, with what is known of each atom."""

    membership: Bools  # (a, G), in order of their keys
    atom: Ints  # (m,): of each centroid, ascending
    owner: Ints  # (m,): its client; ascending among equal values
    values: Floats  # (m,): ascending within an atom
    counts: Ints  # (m,): records
    cell_atom: Ints  # a cell is an atom of a client
    cell_client: Ints
    cell_counts: Ints  # records
    cell_errors: Ints  # certified, in records

    def by_atom(self, cells: NDArray[Any], rate: Floats | None = None) -> Floats:
        """What the clients have in each atom, added up; with `rate`, in weight."""
        weights = cells if rate is None else rate[self.cell_client] * cells
        total: Any = np.bincount(self.cell_atom, weights, minlength=len(self.membership))
        return np.asarray(total, dtype=np.float64)


def pool_of(summaries: Sequence[ClientSummary]) -> Pool:
    rows = np.concatenate([s.membership for s in summaries])
    if not len(rows):
        raise GCFCPError(
            "no client describes a single atom: every one is below its min_count; "
            "lower min_count or gather more records"
        )
    atoms = find_atoms(rows)
    cell_atom = atoms.index.astype(np.int64)
    cell_client = np.repeat(np.arange(len(summaries)), [len(s.errors) for s in summaries])
    sizes = np.concatenate([np.diff(s.start) for s in summaries])
    atom = np.repeat(cell_atom, sizes)
    values = np.concatenate([s.values for s in summaries])
    order = _order(atom, values, len(atoms))
    return Pool(
        membership=atoms.membership,
        atom=atom[order],
        owner=np.repeat(cell_client, sizes)[order],
        values=values[order],
        counts=np.concatenate([s.counts for s in summaries])[order],
        cell_atom=cell_atom,
        cell_client=cell_client,
        cell_counts=np.concatenate([s.atom_counts for s in summaries]),
        cell_errors=np.concatenate([s.errors for s in summaries]),
    )


def _order(atom: Ints, values: Floats, atoms: int) -> Ints:
    """By atom, then by value, then as they stand: np.lexsort((values, atom)), but several times
    faster, because a sort need be stable only where values are equal."""
    new = atom[1:] != atom[:-1]
    if ((atom[1:] >= atom[:-1]) & (new | (values[1:] >= values[:-1]))).all():
        return np.arange(len(atom))  # a single client's are in order
    order = np.argsort(atom.astype(np.min_scalar_type(atoms)), kind="stable")
    ends = np.cumsum(np.bincount(atom, minlength=atoms)).tolist()
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        own = order[start:end]
        mine = values[own]
        within = np.argsort(mine)
        ranked = mine[within]
        if (ranked[1:] == ranked[:-1]).any():
            within = np.argsort(mine, kind="stable")
        order[start:end] = own[within]
    return order


@dataclass(frozen=True)
class Tally:
    """Records of each client in each group, (K, G)."""

    described: Ints
    infinite: Ints  # of these, with a score of +inf
    suppressed: Ints  # besides; an upper bound

    @classmethod
    def of(cls, summaries: Sequence[ClientSummary]) -> Tally:
        return cls(
            np.array([s.atom_counts @ s.membership for s in summaries]),
            np.array([_at_infinity(s) @ s.membership for s in summaries]),
            np.array([s.suppressed_groups for s in summaries], dtype=np.int64),
        )

    def weights(self, rate: Floats) -> Floats:
        """W_G, suppressed records included."""
        total: Floats = rate @ (self.described + self.suppressed)
        return total

    def infinite_weights(self, rate: Floats) -> Floats:
        """The part of W_G at +inf, suppressed records included."""
        total: Floats = rate @ (self.infinite + self.suppressed)
        return total

    def least_alpha(self, weights: Weights) -> Floats:
        """The smallest alpha at which each group on its own has a finite threshold.

        It is finite iff (1 - alpha)(W_G + w_test) <= W_G less its weight at +inf.
        """
        W, infinite = self.weights(weights.rate), self.infinite_weights(weights.rate)
        least: Floats = (infinite + weights.test) / (W + weights.test)
        return least

    def finite_alone(self, weights: Weights, alpha: Fraction) -> Bools:
        finite: Bools = self.least_alpha(weights) <= float(alpha) * (1 + _ROUNDING)
        return finite


def _at_infinity(s: ClientSummary) -> Ints:
    """Records of each atom with a score of +inf: its last centroid, if it is that."""
    last = s.start[1:] - 1
    return np.where(np.isinf(s.values[last]), s.counts[last], 0)


def recompressed(
    atom: Ints, values: Floats, weights: Floats, representative: Any, delta: float
) -> tuple[Ints, Floats, Floats, Floats]:
    """The paper's Merge of each atom, and the error that it adds, in weight."""
    atoms, starts = np.unique(atom, return_index=True)
    digests = [
        TDigest.from_values(v, delta, weights=w, representative=representative)
        for v, w in zip(np.split(values, starts[1:]), np.split(weights, starts[1:]), strict=True)
    ]
    return (
        np.repeat(atoms, [len(d) for d in digests]),
        np.concatenate([d.means for d in digests]),
        np.concatenate([d.weights for d in digests]),
        np.array([d.error_weight for d in digests]),
    )


def carried(membership: Bools, needed: Floats) -> Floats:
    """Weight to put at +inf into each atom so that every group gets at least what it `needed`.

    Greedily, into the atom that serves most groups still in need (of equal ones, that with the
    fewest groups): the total is then mostly the least possible, and less weight means smaller
    sets. A group without atoms needs nothing, its thresholds are infinite.
    """
    extra = np.zeros(len(membership))
    left = np.where(membership.any(axis=0), needed, 0.0)
    while (left > 0).any():
        served = (membership & (left > 0)).sum(axis=1)
        best = int(np.lexsort((membership.sum(axis=1), -served))[0])
        amount = float(left[membership[best] & (left > 0)].min())
        extra[best] += amount
        left = np.where(membership[best], np.maximum(left - amount, 0.0), left)
    return extra


@dataclass(frozen=True)
class Problem:
    """A calibration before it is solved: everything `plan` and `calibrate` have in common."""

    summaries: tuple[ClientSummary, ...]
    alpha: Fraction
    shares: list[Fraction]
    weights: Weights
    pool: Pool
    tally: Tally
    coreset: Coreset
    carriers: Bools | None  # atoms of the coreset with weight at +inf for suppressed records
    hopeless: Bools | None  # groups that suppressed records make infinite on their own
    slack: Floats  # (a,): certified error of each atom, in weight
    delta: float | None  # of the recompression

    @property
    def groups(self) -> Groups:
        return self.summaries[0].groups


def problem_of(
    summaries: Iterable[ClientSummary],
    alpha: float | Fraction,
    mixture: Mixture,
    merge: str,
    delta: float | None,
) -> Problem:
    exact_alpha = check_alpha(alpha)
    if merge not in ("pool", "recompress"):
        raise GCFCPError(f"merge={merge!r:.40} is neither 'pool' nor 'recompress'")
    if merge == "pool" and delta is not None:
        raise GCFCPError(f"delta={delta} is of a recompression: give merge='recompress' with it")
    ordered = in_order(summaries)
    shares = shares_of(ordered, mixture)
    weights = Weights.of(ordered, shares, exact_alpha)
    pool, tally = pool_of(ordered), Tally.of(ordered)
    slack = pool.by_atom(pool.cell_errors, weights.rate)
    atom, values, weight = pool.atom, pool.values, weights.rate[pool.owner] * pool.counts
    if not weights.rate.all():  # a client of weight zero has no say
        heavy = weight > 0
        atom, values, weight = atom[heavy], values[heavy], weight[heavy]
        if not len(atom):
            raise GCFCPError("every client that describes an atom has weight 0 in the mixture")
    if merge == "recompress":
        delta = max(s.delta for s in ordered) if delta is None else delta
        atom, values, weight, added = recompressed(
            atom, values, weight, ordered[0].representative, delta
        )
        slack[np.unique(atom)] += added
    alive = np.flatnonzero(np.bincount(atom))
    carriers = hopeless = None
    if tally.suppressed.any():
        hopeless = tally.suppressed.any(axis=0) & ~tally.finite_alone(weights, exact_alpha)
        extra = np.zeros(len(pool.membership))
        free = alive[~(pool.membership[alive] & hopeless).any(axis=1)]
        extra[free] = carried(pool.membership[free], weights.rate @ tally.suppressed)
        carriers = extra[alive] > 0
        added_to = np.flatnonzero(extra)
        ends = np.searchsorted(atom, added_to, side="right")
        atom = np.insert(atom, ends, added_to)
        values = np.insert(values, ends, np.inf)
        weight = np.insert(weight, ends, extra[added_to])
    atom, values, weight = combined(atom, values, weight)
    coreset = Coreset(
        membership=pool.membership[alive],
        start=np.append(np.searchsorted(atom, alive), len(atom)),
        values=values,
        weights=weight,
        test=weights.test,
    )
    return Problem(
        ordered,
        exact_alpha,
        shares,
        weights,
        pool,
        tally,
        coreset,
        carriers,
        hopeless,
        slack,
        delta,
    )
