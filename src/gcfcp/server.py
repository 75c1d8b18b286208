"""The server's side of Algorithm 1: summaries in, exact thresholds and honest guarantees out.

`calibrate` pools the clients' centroids by atom (or merges and compresses them again, the
paper's way), weighs them (see `pooling`) and solves every atom (see `solver`). It keeps the
summaries, so that the mixture, alpha or the set of clients can be changed later without another
round. `merge` makes one summary of several, for aggregators between clients and server.

| here        | paper                                                         |
|-------------|---------------------------------------------------------------|
| `certified` | 1 - alpha - sum_{A in G} W_A epsilon_A / D, errors as occurred |
| `lower`     | 1 - alpha - sin(pi / delta) (Theorem 5.1)                     |
| `upper`     | the bound of Theorem C.1, with eta                            |

Cost: one sort of the centroids, then the solver's, which n does not touch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gcfcp.client import ClientSummary, check_name
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.pooling import (
    Mixture,
    Problem,
    combined,
    in_order,
    pool_of,
    problem_of,
    recompressed,
)
from gcfcp.solver import Coreset, Solver, rational
from gcfcp.table import ThresholdTable

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

PROVED = "proved"
PAPER = "proved under the paper's argument"
MEASURED = "measured"


@dataclass(frozen=True)
class AtomRecord:
    """One atom of the table."""

    groups: tuple[str, ...]
    threshold: float
    count: int  # records, over all clients
    weight: float  # W_A: their share of the mixture
    reason: str | None  # why the threshold is not finite

    @property
    def membership(self) -> tuple[str, ...]:
        return self.groups


@dataclass(frozen=True)
class Guarantee:
    """What is promised for one group, and on what ground.

    lower: the paper's bound 1 - alpha - sin(pi / delta), with a term for each level of
    compression. certified: the same with the errors that really occurred; 1 - alpha with
    `upper`. upper: the paper's bound on over-coverage (Theorem C.1) with confidence 1 - eta / 2,
    the group's share of each client taken from its records.
    """

    group: str
    lower: float
    lower_status: str
    certified: float
    certified_status: str
    upper: float
    upper_status: str
    eta: float
    weight: float  # W_G: the group's share of the mixture
    records: int
    effective_n: float  # (sum of weights)^2 / sum of squared weights


@dataclass(frozen=True, eq=False)
class Calibration:
    """Thresholds with their provenance. A value: `retarget` and `without` return new ones."""

    summaries: tuple[ClientSummary, ...] = field(repr=False)
    alpha: float
    mixture: Mixture
    merge: str
    rule: str
    delta: float | None  # of the recompression
    eta: float
    shares: dict[str, float]  # pi_k
    test_weight: float  # w_test
    table: tuple[AtomRecord, ...] = field(repr=False)
    guarantee: tuple[Guarantee, ...] = field(repr=False)
    threshold_table: ThresholdTable = field(repr=False)

    @property
    def groups(self) -> Groups:
        return self.summaries[0].groups

    def thresholds(self, membership: Any, rng: Generator | None = None) -> Floats:
        """S* of each row's atom; +inf where nothing smaller is valid. (n, G) gives (n,), a
        label-dependent (n, L, G) gives (n, L). With `rng`, randomised thresholds."""
        return self.threshold_table.thresholds(membership, rng)

    def retarget(
        self,
        mixture: Mixture | None = None,
        alpha: float | None = None,
        rule: str | None = None,
        merge: str | None = None,
    ) -> Calibration:
        """The calibration of the same summaries for another target."""
        return calibrate(
            self.summaries,
            alpha=self.alpha if alpha is None else alpha,
            mixture=self.mixture if mixture is None else mixture,
            merge=self.merge if merge is None else merge,
            rule=self.rule if rule is None else rule,
            delta=self.delta,
            eta=self.eta,
        )

    def without(self, *clients: str) -> Calibration:
        """The calibration of all but these clients; a given mixture is renormalised."""
        present = {s.client for s in self.summaries}
        for name in clients:
            if name not in present:
                raise GCFCPError(f"{name!r} is not among the clients {', '.join(sorted(present))}")
        mixture = self.mixture
        if isinstance(mixture, Mapping):
            left = {k: rational(w) for k, w in mixture.items() if k not in clients}
            total = sum(left.values(), Fraction(0))
            if not total:
                raise GCFCPError("the clients that are left have no weight in the mixture")
            mixture = {k: float(w / total) for k, w in left.items()}
        return calibrate(
            [s for s in self.summaries if s.client not in clients],
            alpha=self.alpha,
            mixture=mixture,
            merge=self.merge,
            rule=self.rule,
            delta=self.delta,
            eta=self.eta,
        )


def calibrate(
    summaries: Iterable[ClientSummary],
    alpha: float,
    mixture: Mixture = "uniform",
    merge: str = "pool",
    *,
    rule: str = "simultaneous",
    delta: float | None = None,
    eta: float = 0.1,
) -> Calibration:
    """Thresholds of all atoms from the clients' summaries: Algorithm 1, server side.

    mixture: "uniform", "proportional" (pi_k ~ n_k + 1) or {client: weight}. merge: "pool" keeps
    every centroid, "recompress" is the paper's Merge (with `delta`, by default the clients'
    largest). rule: "simultaneous" is the paper's; "max" takes the largest single-group threshold
    over the groups of a row, which is proved for any family, with larger sets. eta: of the upper
    bound on coverage.

    Warns once if some threshold is infinite, and says why and what would help.
    """
    if rule not in ("simultaneous", "max"):
        raise GCFCPError(f"rule={rule!r} is neither 'simultaneous' nor 'max'")
    if not 0 < eta < 1:
        raise GCFCPError(f"eta={eta} is not in (0, 1)")
    problem = problem_of(summaries, alpha, mixture, merge, delta)
    table = solve_table(problem, rule)
    records = atom_records(problem, table)
    infinite = [r for r in records if r.reason is not None]
    if infinite:
        warnings.warn(_warning(problem, records, infinite), GCFCPWarning, stacklevel=2)
    names = [s.client for s in problem.summaries]
    return Calibration(
        summaries=problem.summaries,
        alpha=float(alpha),
        mixture=dict(mixture) if isinstance(mixture, Mapping) else mixture,
        merge=merge,
        rule=rule,
        delta=problem.delta,
        eta=eta,
        shares={k: float(p) for k, p in zip(names, problem.shares, strict=True)},
        test_weight=problem.weights.test / problem.weights.unit,
        table=records,
        guarantee=_guarantees(problem, rule, eta),
        threshold_table=table,
    )


def solve_table(problem: Problem, rule: str) -> ThresholdTable:
    """The table by either rule. Atoms of clients without weight are listed too."""
    table = ThresholdTable(
        groups=problem.groups,
        alpha=problem.alpha,
        rule=rule,
        membership=problem.pool.membership,
        thresholds_by_atom=np.empty(0),
        group_thresholds=_group_thresholds(problem) if rule == "max" else None,
        coreset=problem.coreset,
        suppressed=problem.suppressed,
    )
    return replace(table, thresholds_by_atom=table.of_atoms(table.membership))


def _group_thresholds(problem: Problem) -> Floats:
    """inf{t : sum of lambda over the group's scores <= t is at least (1-alpha)(W_G + w_test)}.

    That is S* of a family of one group; solved as such, with all that the group may hide at +inf.
    """
    coreset = problem.coreset
    thresholds = np.full(len(problem.groups), np.inf)
    atom = np.repeat(np.arange(len(coreset.membership)), np.diff(coreset.start))
    finite = np.isfinite(coreset.values)
    infinite = problem.infinite_weights
    for g in range(len(problem.groups)):
        mine = np.flatnonzero(coreset.membership[atom, g] & finite)
        order = mine[np.argsort(coreset.values[mine], kind="stable")]
        values = np.append(coreset.values[order], np.inf)
        weights = np.append(coreset.weights[order], infinite[g])
        _, values, weights = combined(np.zeros(len(values), dtype=np.int64), values, weights)
        keep = weights > 0
        if keep.any():
            single = Coreset(
                membership=np.ones((1, 1), dtype=bool),
                start=np.array([0, np.count_nonzero(keep)]),
                values=values[keep],
                weights=weights[keep],
                test=coreset.test,
            )
            thresholds[g] = Solver(single, problem.alpha).solve(single.membership)[0].threshold
    return thresholds


# --- Why a threshold is infinite, and what would help -------------------------------------------


def names_of(groups: Groups, row: Bools) -> tuple[str, ...]:
    return tuple(name for name, member in zip(groups.names, row, strict=True) if member)


def least_alpha(problem: Problem) -> Floats:
    """The smallest alpha at which each group on its own has a finite threshold.

    A group's threshold is finite iff (1 - alpha)(W_G + w_test) <= W_G - (its weight at +inf).
    """
    total = problem.group_weights + problem.weights.test
    least: Floats = 1 - (problem.group_weights - problem.infinite_weights) / total
    return least


def finite_alone(problem: Problem) -> Bools:
    return least_alpha(problem) <= float(problem.alpha) * (1 + 1e-12)


def atom_records(problem: Problem, table: ThresholdTable) -> tuple[AtomRecord, ...]:
    alone = finite_alone(problem)
    weight = problem.weights.rate @ problem.pool.by_client / problem.weights.unit
    return tuple(
        AtomRecord(
            names_of(problem.groups, row),
            float(threshold),
            int(count),
            float(w),
            None if math.isfinite(threshold) else _reason(problem, row, float(threshold), alone),
        )
        for row, threshold, count, w in zip(
            table.membership, table.thresholds_by_atom, problem.pool.counts, weight, strict=True
        )
    )


def _reason(problem: Problem, row: Bools, threshold: float, alone: Bools) -> str:
    """Why nothing finite is valid for this atom, in one line."""
    short = names_of(problem.groups, row & ~alone)
    if threshold < 0:
        return (
            "records with a score of +inf elsewhere push this atom below every score, so that its "
            "sets are empty: lower min_count, or find out why scores are infinite"
        )
    if short:
        counts = problem.group_counts.sum(axis=0)
        listed = ", ".join(
            f"{name} ({counts[problem.groups.names.index(name)]:,} records)" for name in short
        )
        at_infinity = problem.infinite_weights[row & ~alone].max()
        why = "or too many of them at +inf, " if at_infinity > 0 else ""
        return f"too few records {why}in {listed} for alpha={float(problem.alpha):g}"
    return (
        f"each of its groups alone has enough records for alpha={float(problem.alpha):g}, but "
        "together they leave this combination too few: merge or drop overlapping groups"
    )


def _warning(
    problem: Problem, records: Sequence[AtomRecord], infinite: Sequence[AtomRecord]
) -> str:
    worst = max(infinite, key=lambda r: r.weight)
    share = sum(r.weight for r in infinite) / max(sum(r.weight for r in records), 1e-300)
    return (
        f"{len(infinite)} of {len(records)} atoms ({share:.1%} of the weight) have no finite "
        f"threshold; the largest, {' & '.join(worst.groups)}: {worst.reason}. "
        "plan(...) says how many records are missing and what else would help"
    )


# --- Guarantees ----------------------------------------------------------------------------------


def _guarantees(problem: Problem, rule: str, eta: float) -> tuple[Guarantee, ...]:
    summaries, weights, pool = problem.summaries, problem.weights, problem.pool
    alpha = float(problem.alpha)
    one_sided = summaries[0].representative == "upper"
    disjoint = bool((pool.membership.sum(axis=1) <= 1).all())
    one_exact_client = (
        len(summaries) == 1
        and not summaries[0].is_aggregate
        and not problem.slack.any()
        and not summaries[0].suppressed
    )
    proof = disjoint or rule == "max"
    # One sin(pi / delta) for each level of compression.
    epsilon = max(math.sin(math.pi / s.delta) for s in summaries)
    if problem.delta is not None:
        epsilon += math.sin(math.pi / problem.delta)
    inside = pool.membership.astype(np.float64)
    slack = np.zeros(len(problem.groups)) if one_sided else problem.slack @ inside
    slack = slack / (problem.group_weights + weights.test)
    counts = problem.group_counts
    squares = weights.rate**2 @ counts
    mass = weights.rate @ counts
    upper = _over_coverage(problem, epsilon, eta)
    return tuple(
        Guarantee(
            group=name,
            lower=max(0.0, 1 - alpha - epsilon),
            lower_status=PROVED if proof else PAPER,
            certified=max(0.0, 1 - alpha - float(slack[g])),
            certified_status=(
                PROVED
                if (proof and one_sided) or one_exact_client
                else PAPER
                if proof
                else MEASURED
            ),
            upper=float(upper[g]) if rule == "simultaneous" else 1.0,
            upper_status=PAPER,
            eta=eta,
            weight=float(mass[g] / weights.unit),
            records=int(counts[:, g].sum()),
            effective_n=float(mass[g] ** 2 / squares[g]) if squares[g] else 0.0,
        )
        for g, name in enumerate(problem.groups.names)
    )


def _over_coverage(problem: Problem, epsilon: float, eta: float) -> Floats:
    """1 - alpha + epsilon + |G| max(pi/delta, w_test) / sum_k pi_k n_k/(n_k+1) (p_kG - margin).

    The paper's p_kG is unknown; the share of the group among client k's records stands for it.
    """
    K = len(problem.summaries)
    n = np.array([s.n for s in problem.summaries], dtype=np.float64)
    members = np.array([len(s.members) for s in problem.summaries])
    shares = np.array([float(p) for p in problem.shares])
    margin = np.sqrt(math.log(2 * K / eta) / (2 * n))
    seen = problem.group_counts / n[:, None] - margin[:, None]
    mass = (shares * n / (n + members)) @ seen
    coarse = max(math.pi / s.delta for s in problem.summaries)
    step = max(coarse, problem.weights.test / problem.weights.unit)
    with np.errstate(divide="ignore"):
        extra = np.where(mass > 0, len(problem.groups) * step / np.maximum(mass, 1e-300), np.inf)
    bound: Floats = np.minimum(1.0, 1 - float(problem.alpha) + epsilon + extra)
    return bound


# --- Aggregators ---------------------------------------------------------------------------------


def merge(
    summaries: Iterable[ClientSummary], client: str, delta: float | None = None
) -> ClientSummary:
    """One summary for several clients: what an intermediate aggregator sends on.

    Laws: any order gives the same bytes; records are conserved; arguments are untouched; a single
    summary comes back with its centroids as they are. All records of the region weigh the same,
    so the mixture is proportional within it. delta: of the result, by default the members'
    largest; the certified error grows by what this compression really adds.
    """
    check_name("client", client)
    ordered = in_order(summaries)
    first = ordered[0]
    pool = pool_of(ordered)
    delta = max(s.delta for s in ordered) if delta is None else delta
    errors = pool.errors.sum(axis=0)
    atom, values, counts = combined(pool.atom, pool.values, pool.centroid_counts.astype(np.float64))
    if len(ordered) > 1:
        atom, values, counts, added = recompressed(
            atom, values, counts, first.representative, delta
        )
        errors = errors + np.ceil(added).astype(np.int64)
    return ClientSummary(
        client=client,
        n=sum(s.n for s in ordered),
        delta=delta,
        representative=first.representative,
        groups=first.groups,
        score=first.score,
        parameters=first.parameters,
        model=first.model,
        min_count=min(s.min_count for s in ordered),
        suppressed=sum(s.suppressed for s in ordered),
        suppressed_groups=tuple(
            np.sum([s.suppressed_groups for s in ordered], axis=0).astype(np.int64).tolist()
        ),
        uncovered=sum(s.uncovered for s in ordered),
        members=tuple(sorted(m for s in ordered for m in s.members)),
        membership=pool.membership,
        start=np.searchsorted(atom, np.arange(len(pool.membership) + 1)).astype(np.int64),
        values=values,
        counts=counts.astype(np.int64),
        errors=np.minimum(errors, pool.counts),
    )
