"""From summaries to one problem: the clients in order, their weights, and the coreset.

Client k's records weigh lambda_k = pi_k / (n_k + 1) each and the test point weighs
w_test = sum_k lambda_k. Weights are rational numbers, brought to whole ones where a common
denominator exists that floats can hold; then every comparison of weights in the solver is exact.

Summaries are put in order of their client's name first: the order in which they arrive changes
nothing, to the last bit. An aggregator's summary stands for its members with the mixture
proportional among them, pi_k ~ n_k + 1, which makes all their records weigh the same:
lambda = pi_R / (n_R + K_R), and the region adds K_R lambda to w_test.

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
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.client import ClientSummary
from gcfcp.digest import TDigest
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups, find_atoms
from gcfcp.solver import Coreset, rational

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Mixture = str | Mapping[str, float]


def in_order(summaries: Iterable[ClientSummary]) -> tuple[ClientSummary, ...]:
    """One summary a client, by name; whatever cannot be calibrated together is refused."""
    given = list(summaries)
    for s in given:
        if not isinstance(s, ClientSummary):
            raise GCFCPError(f"a summary was expected, not {type(s).__name__}: see summarize")
    by_client: dict[str, ClientSummary] = {}
    for s in given:
        first = by_client.setdefault(s.client, s)
        if first != s:
            raise GCFCPError(
                f"client {s.client!r} sent two different summaries (n={first.n} and n={s.n}): "
                "keep one of them"
            )
    if not by_client:
        raise GCFCPError("there are no summaries: at least one client is needed")
    ordered = tuple(by_client[name] for name in sorted(by_client))
    _check_alike(ordered)
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


def check_alpha(alpha: Any) -> Fraction:
    try:
        exact = rational(alpha)
    except (TypeError, ValueError, OverflowError):
        raise GCFCPError(f"alpha={alpha!r} is not a number in (0, 1)") from None
    if not 0 < exact < 1:
        raise GCFCPError(f"alpha={alpha} is not in (0, 1)")
    return exact


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
        try:
            weights.append(rational(mixture[k]))
        except (TypeError, ValueError, OverflowError):
            raise GCFCPError(f"the mixture's weight {mixture[k]!r} of {k!r} is no number") from None
        if weights[-1] < 0:
            raise GCFCPError(f"the mixture's weight {mixture[k]} of {k!r} is negative")
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
        test = sum((r * len(s.members) for r, s in zip(rates, summaries, strict=True)), Fraction(0))
        denominator = 1
        for r in rates:
            denominator = math.lcm(denominator, r.denominator)
            if denominator * alpha.denominator > 2**50:  # beyond it floats round
                break
        else:
            whole = [int(r * denominator) for r in rates]
            common = math.gcd(*whole)
            return cls(
                np.array([float(w // common) for w in whole]),
                float(test * denominator / common),
                denominator / common,
            )
        unit = 1.0 / float(max(rates))
        return cls(np.array([float(r) * unit for r in rates]), float(test) * unit, unit)


@dataclass(frozen=True)
class Pool:
    """All centroids of all clients by atom, with what is known of each atom."""

    membership: Bools  # (a, G), in order of their keys
    counts: Ints  # (a,): records
    by_client: Ints  # (K, a): records of each client
    atom: Ints  # (m,): of each centroid, ascending
    owner: Ints  # (m,)
    values: Floats  # (m,): ascending within an atom
    centroid_counts: Ints  # (m,)
    errors: Ints  # (K, a): certified, in records


def pool_of(summaries: Sequence[ClientSummary]) -> Pool:
    groups = summaries[0].groups
    rows = np.concatenate([s.membership for s in summaries])
    if not len(rows):
        raise GCFCPError(
            "no client describes a single atom: every one is below its min_count; "
            "lower min_count or gather more records"
        )
    atoms = find_atoms(np.ascontiguousarray(rows))
    a, K = len(atoms.membership), len(summaries)
    index = atoms.index.astype(np.int64)
    described = np.array([len(s.errors) for s in summaries])
    client = np.repeat(np.arange(K), described)
    by_client = np.zeros((K, a), dtype=np.int64)
    by_client[client, index] = np.concatenate([s.atom_counts for s in summaries])
    errors = np.zeros((K, a), dtype=np.int64)
    errors[client, index] = np.concatenate([s.errors for s in summaries])
    sizes = np.concatenate([np.diff(s.start) for s in summaries])
    atom, owner = np.repeat(index, sizes), np.repeat(client, sizes)
    values = np.concatenate([s.values for s in summaries])
    order = np.lexsort((owner, values, atom))
    assert atoms.membership.shape[1] == len(groups)
    return Pool(
        atoms.membership,
        by_client.sum(axis=0),
        by_client,
        atom[order],
        owner[order],
        values[order],
        np.concatenate([s.counts for s in summaries])[order],
        errors,
    )


def combined(atom: Ints, values: Floats, weights: Floats) -> tuple[Ints, Floats, Floats]:
    """Equal values of an atom become one, their weights added up in the order they are in."""
    new = np.ones(len(values), dtype=bool)
    new[1:] = (atom[1:] != atom[:-1]) | (values[1:] != values[:-1])
    first = np.flatnonzero(new)
    return atom[first], values[first], np.add.reduceat(weights, first)


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


def _cover(membership: Bools, needed: Floats) -> Floats:
    """Weight to put at +inf in each atom so that every group gets at least what it `needed`.

    The atoms of suppressed records are unknown; their groups are known up to a bound. The
    greedy choice takes the atom that serves most groups still in need. A group that no atom
    belongs to needs nothing: its thresholds are infinite anyway.
    """
    extra = np.zeros(len(membership))
    left = np.where(membership.any(axis=0), needed, 0.0)
    while (left > 0).any():
        served = membership & (left > 0)
        best = int(np.argmax(served.sum(axis=1) - 1e-6 * membership.sum(axis=1)))
        amount = float(left[served[best]].min())
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
    coreset: Coreset
    hidden: Floats  # (G,): upper bound on the suppressed weight of each group
    suppressed: Bools | None  # atoms that carry it
    slack: Floats  # (a,): certified error of each atom, in weight
    delta: float | None

    @property
    def groups(self) -> Groups:
        return self.summaries[0].groups

    @cached_property
    def group_counts(self) -> Ints:
        """Records described, (K, G)."""
        return self.pool.by_client @ self.pool.membership.astype(np.int64)

    @cached_property
    def group_weights(self) -> Floats:
        """W_G in units of the weights, suppressed records included."""
        return self.weights.rate @ self.group_counts + self.hidden

    @cached_property
    def infinite_weights(self) -> Floats:
        """Weight of each group at +inf, suppressed records included."""
        at_infinity = np.isinf(self.pool.values)
        weight = np.bincount(
            self.pool.atom[at_infinity],
            weights=(self.weights.rate[self.pool.owner] * self.pool.centroid_counts)[at_infinity],
            minlength=len(self.pool.membership),
        )
        return weight @ self.pool.membership + self.hidden


def problem_of(
    summaries: Iterable[ClientSummary],
    alpha: float,
    mixture: Mixture,
    merge: str,
    delta: float | None,
) -> Problem:
    ordered = in_order(summaries)
    exact_alpha = check_alpha(alpha)
    if merge not in ("pool", "recompress"):
        raise GCFCPError(f"merge={merge!r} is neither 'pool' nor 'recompress'")
    shares = shares_of(ordered, mixture)
    weights = Weights.of(ordered, shares, exact_alpha)
    pool = pool_of(ordered)
    entry = weights.rate[pool.owner] * pool.centroid_counts
    heavy = entry > 0  # a client of weight zero has no say
    slack = weights.rate @ pool.errors
    atom, values, weight = pool.atom[heavy], pool.values[heavy], entry[heavy]
    if merge == "recompress":
        delta = max(s.delta for s in ordered) if delta is None else delta
        atom, values, weight, added = recompressed(
            atom, values, weight, ordered[0].representative, delta
        )
        slack[np.unique(atom)] += added
    else:
        delta = None
    hidden = weights.rate @ np.array([s.suppressed_groups for s in ordered], dtype=np.float64)
    alive = np.unique(atom)
    extra = _cover(pool.membership[alive], hidden)
    carriers = alive[extra > 0]
    atom = np.concatenate([atom, carriers])
    values = np.concatenate([values, np.full(len(carriers), np.inf)])
    weight = np.concatenate([weight, extra[extra > 0]])
    order = np.lexsort((values, atom))
    atom, values, weight = combined(atom[order], values[order], weight[order])
    dense = np.searchsorted(alive, atom)
    coreset = Coreset(
        membership=pool.membership[alive],
        start=np.searchsorted(dense, np.arange(len(alive) + 1)).astype(np.int64),
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
        coreset,
        hidden,
        extra > 0 if len(carriers) else None,
        slack,
        delta,
    )
