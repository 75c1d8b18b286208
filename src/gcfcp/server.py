"""The server's side of Algorithm 1: summaries in, exact thresholds and honest guarantees out.

`calibrate` pools the clients' centroids by atom (or merges and compresses them again, the
paper's way), weighs them (see `pooling`) and solves every atom (see `solver`). It keeps the
summaries, so that the mixture, alpha or the set of clients can be changed later without another
round. `merge` makes one summary of several, for aggregators between clients and server.

| here        | paper                                                          |
|-------------|----------------------------------------------------------------|
| `lower`     | 1 - alpha - sin(pi / delta) (Theorem 5.1)                      |
| `certified` | 1 - alpha - sum_{A in G} W_A epsilon_A / D, errors as occurred |
| `upper`     | the bound of Theorem C.1, with eta                             |

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

from gcfcp.checks import rational
from gcfcp.client import ClientSummary, check_name
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.influence import Influence, influences
from gcfcp.pooling import (
    Mixture,
    Problem,
    in_order,
    pool_of,
    problem_of,
    recompressed,
)
from gcfcp.solver import combined, quantile
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

    lower: the paper's bound 1 - alpha - sin(pi / delta), with one term more after recompression.
    Where a digest is coarser than that (an aggregate, or `min_count`), its certified error takes
    the place of sin(pi / delta).
    certified: the same with the errors that really occurred; 1 - alpha with `upper`.
    upper: the paper's bound on over-coverage (Theorem C.1) with confidence 1 - eta / 2, the
    group's share of each client taken from its records; scores must have no ties. It is 1 for
    rule="max" and where records are suppressed, which the theorem does not speak of.

    A status is "proved" for rule="max" and for disjoint groups, with `upper` or, for `lower`, with
    a bound that does not depend on the data, and for one client that sends every score; otherwise
    "proved under the paper's argument" or "measured". Groups count as disjoint if no record that
    is described belongs to two. (A row in two groups that turns up later is still covered if
    scores are not negative; where records are suppressed, disjoint groups need that, too.)
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
    delta: float | None  # of the recompression, as asked for; None: the clients' largest
    eta: float
    shares: dict[str, float]  # pi_k
    test_weight: float  # w_test
    table: tuple[AtomRecord, ...] = field(repr=False)
    guarantee: tuple[Guarantee, ...] = field(repr=False)
    threshold_table: ThresholdTable = field(repr=False)

    @property
    def groups(self) -> Groups:
        return self.summaries[0].groups

    @property
    def recompression_delta(self) -> float | None:
        """The delta that centroids were merged with; None if they were pooled."""
        if self.merge == "pool":
            return None
        return max(s.delta for s in self.summaries) if self.delta is None else self.delta

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
        how = self.merge if merge is None else merge
        return calibrate(
            self.summaries,
            alpha=self.threshold_table.alpha if alpha is None else alpha,
            mixture=self.mixture if mixture is None else mixture,
            merge=how,
            rule=self.rule if rule is None else rule,
            delta=self.delta if how == "recompress" else None,
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
            alpha=self.threshold_table.alpha,
            mixture=mixture,
            merge=self.merge,
            rule=self.rule,
            delta=self.delta,
            eta=self.eta,
        )

    def influence(self) -> tuple[Influence, ...]:
        """How much each client moves each group's thresholds, exactly, by leaving it out: one
        record for each client and group. Cost: a calibration for each client."""
        return influences(self)


def calibrate(
    summaries: Iterable[ClientSummary],
    alpha: float | Fraction,
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
        raise GCFCPError(f"rule={rule!r:.40} is neither 'simultaneous' nor 'max'")
    if not isinstance(eta, int | float) or not 0 < eta < 1:
        raise GCFCPError(f"eta={eta!s:.40} is not in (0, 1)")
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
        delta=delta,
        eta=eta,
        shares={k: float(p) for k, p in zip(names, problem.shares, strict=True)},
        test_weight=problem.weights.test / problem.weights.unit,
        table=records,
        guarantee=_guarantees(problem, rule, eta),
        threshold_table=table,
    )


def solve_table(problem: Problem, rule: str) -> ThresholdTable:
    """The table by either rule. Atoms of clients without weight are listed too."""
    unsolved = ThresholdTable(
        groups=problem.groups,
        alpha=problem.alpha,
        rule=rule,
        membership=problem.pool.membership,
        thresholds_by_atom=np.empty(0),
        group_thresholds=_group_thresholds(problem) if rule == "max" else None,
        coreset=problem.coreset,
        carriers=problem.carriers,
        hopeless=problem.hopeless,
    )
    table = replace(unsolved, thresholds_by_atom=unsolved.of_atoms(unsolved.membership))
    if rule == "simultaneous":
        vars(table)["solver"] = unsolved.solver  # cached there; unseen atoms need it again
    return table


def _group_thresholds(problem: Problem) -> Floats:
    """The threshold of each group by itself, with all that the group may hide counted at +inf."""
    coreset = problem.coreset
    atom = np.repeat(np.arange(len(coreset.membership)), np.diff(coreset.start))
    infinite = problem.tally.infinite_weights(problem.weights.rate)
    order = np.argsort(coreset.values, kind="stable")
    order = order[np.isfinite(coreset.values[order])]
    thresholds = []
    for g in range(len(problem.groups)):
        mine = order[coreset.membership[atom[order], g]]
        scores = np.append(coreset.values[mine], np.inf)
        weights = np.append(coreset.weights[mine], infinite[g])
        thresholds.append(quantile(scores, weights, coreset.test, problem.alpha))
    return np.array(thresholds)


# --- Why a threshold is infinite, and what would help -------------------------------------------


def names_of(groups: Groups, row: Bools) -> tuple[str, ...]:
    return tuple(name for name, member in zip(groups.names, row, strict=True) if member)


def atom_records(problem: Problem, table: ThresholdTable) -> tuple[AtomRecord, ...]:
    pool = problem.pool
    count = pool.by_atom(pool.cell_counts)
    weight = pool.by_atom(pool.cell_counts, problem.weights.rate) / problem.weights.unit
    infinite = ~np.isfinite(table.thresholds_by_atom)
    alone = problem.tally.finite_alone(problem.weights, problem.alpha) if infinite.any() else None
    return tuple(
        AtomRecord(
            names_of(problem.groups, row),
            float(threshold),
            int(count[i]),
            float(weight[i]),
            None if alone is None or not infinite[i] else _reason(problem, row, threshold, alone),
        )
        for i, (row, threshold) in enumerate(
            zip(table.membership, table.thresholds_by_atom, strict=True)
        )
    )


def _reason(problem: Problem, row: Bools, threshold: float, alone: Bools) -> str:
    """Why nothing finite is valid for this atom, in one line."""
    if threshold < 0:
        return (
            "scores of +inf elsewhere push this atom below every score, so that its sets are "
            "empty: find out why scores are infinite"
        )
    alpha = f"alpha={float(problem.alpha):g}"
    short = row & ~alone
    if not short.any():
        return (
            f"each of its groups alone has enough records for {alpha}, but together they leave "
            "this combination too few: merge or drop overlapping groups"
        )
    described, infinite = problem.tally.described.sum(axis=0), problem.tally.infinite.sum(axis=0)
    suppressed = problem.tally.suppressed.sum(axis=0)
    listed = []
    for g in np.flatnonzero(short):
        parts = [f"{described[g]:,} records"]
        parts += [f"{infinite[g]:,} of them at +inf"] * bool(infinite[g])
        parts += [f"up to {suppressed[g]:,} more suppressed"] * bool(suppressed[g])
        listed.append(f"{problem.groups.names[g]} ({', '.join(parts)})")
    return f"too few records in {', '.join(listed)} for {alpha}{_dominating(problem)}"


def shares_of_test(problem: Problem) -> Floats:
    """Each client's part of w_test."""
    members = np.array([len(s.members) for s in problem.summaries])
    shares: Floats = members * problem.weights.rate / problem.weights.test
    return shares


def _dominating(problem: Problem) -> str:
    """The client that makes up most of w_test, if one does: it may be the only trouble."""
    part = shares_of_test(problem)
    k = int(np.argmax(part))
    if len(part) == 1 or part[k] <= 0.5:
        return ""
    s = problem.summaries[k]
    return (
        f"; {part[k]:.0%} of the test weight is that of {s.client}, with {s.n:,} records for "
        f"{float(problem.shares[k]):.3g} of the mixture"
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
    summaries, weights, tally = problem.summaries, problem.weights, problem.tally
    alpha = float(problem.alpha)
    one_sided = summaries[0].representative == "upper"
    proof = rule == "max" or _disjoint(problem)
    one_exact_client = (
        len(summaries) == 1
        and not summaries[0].is_aggregate
        and not problem.slack.any()
        and not summaries[0].suppressed
    )
    worst_case = max(math.sin(math.pi / s.delta) for s in summaries)
    occurred = max(float((s.errors / s.atom_counts).max(initial=0.0)) for s in summaries)
    epsilon = max(worst_case, occurred)
    if problem.delta is not None:  # one sin(pi / delta) for each level of compression
        epsilon += math.sin(math.pi / problem.delta)
    by_group = problem.slack @ problem.pool.membership
    slack = by_group / (tally.weights(weights.rate) + weights.test)
    squares = weights.rate**2 @ tally.described
    mass = weights.rate @ tally.described
    upper = _over_coverage(problem, epsilon, eta)
    if rule == "max" or tally.suppressed.any():
        upper = np.ones(len(upper))
    return tuple(
        Guarantee(
            group=name,
            lower=max(0.0, 1 - alpha - epsilon),
            lower_status=PROVED
            if one_exact_client or (proof and (one_sided or occurred <= worst_case))
            else PAPER,
            certified=1 - alpha if one_sided else max(0.0, 1 - alpha - float(slack[g])),
            certified_status=PROVED
            if one_exact_client or (proof and one_sided)
            else (PAPER if proof else MEASURED),
            upper=float(upper[g]),
            upper_status=PAPER,
            eta=eta,
            weight=float(mass[g] / weights.unit),
            records=int(tally.described[:, g].sum()),
            effective_n=float(mass[g] ** 2 / squares[g]) if squares[g] else 0.0,
        )
        for g, name in enumerate(problem.groups.names)
    )


def _disjoint(problem: Problem) -> bool:
    """Whether no record is known to belong to two groups, nor could do harm if one did.

    The threshold of a row in two disjoint groups is the sum of theirs, so it is no less than
    either if scores are not negative.
    """
    if (problem.pool.membership.sum(axis=1) > 1).any():
        return False
    return not problem.tally.suppressed.any() or bool(problem.pool.values.min() >= 0)


def _over_coverage(problem: Problem, epsilon: float, eta: float) -> Floats:
    """1 - alpha + epsilon + |G| max(pi/delta, w_test) / sum_k pi_k n_k/(n_k+1) (p_kG - margin).

    margin = sqrt(log(2K/eta) / (2 n_k)). The paper's p_kG is unknown; the share of the group among
    client k's records stands for it. pi/delta bounds the weight of a centroid; where one is
    heavier, its own weight does.
    """
    K, unit = len(problem.summaries), problem.weights.unit
    n = np.array([s.n for s in problem.summaries], dtype=np.float64)
    members = np.array([len(s.members) for s in problem.summaries])
    shares = np.array([float(p) for p in problem.shares])
    margin = np.sqrt(math.log(2 * K / eta) / (2 * n))
    seen = problem.tally.described / n[:, None] - margin[:, None]
    mass = (shares * n / (n + members)) @ seen
    step = max(
        *(math.pi / s.delta for s in problem.summaries),
        problem.weights.test / unit,
        float(problem.coreset.weights.max()) / unit,
    )
    extra = np.full(len(mass), np.inf)
    np.divide(len(problem.groups) * step, mass, out=extra, where=mass > 0)
    bound: Floats = np.minimum(1.0, 1 - float(problem.alpha) + epsilon + extra)
    return bound


# --- Aggregators ---------------------------------------------------------------------------------


def merge(
    summaries: Iterable[ClientSummary], client: str, delta: float | None = None
) -> ClientSummary:
    """One summary for several clients: what an intermediate aggregator sends on.

    Laws: any order gives the same bytes; records are conserved; arguments are untouched; a single
    summary comes back with its centroids as they are, unless `delta` is given. All records of the
    region weigh the same, so the mixture is proportional within it. delta: of the result, by
    default the members' largest; the certified error grows by what this compression really adds.
    """
    check_name("client", client)
    ordered = in_order(summaries)
    first, pool = ordered[0], pool_of(ordered)
    errors = pool.by_atom(pool.cell_errors)
    atom, values, counts = combined(pool.atom, pool.values, pool.counts.astype(np.float64))
    if len(ordered) > 1 or delta is not None:
        delta = max(s.delta for s in ordered) if delta is None else float(delta)
        atom, values, counts, added = recompressed(
            atom, values, counts, first.representative, delta
        )
        errors = np.minimum(errors + np.ceil(added), pool.by_atom(pool.cell_counts))
    return ClientSummary(
        client=client,
        n=sum(s.n for s in ordered),
        delta=first.delta if delta is None else delta,
        representative=first.representative,
        groups=first.groups,
        score=first.score,
        parameters=first.parameters,
        model=first.model,
        min_count=min(s.min_count for s in ordered),
        suppressed=sum(s.suppressed for s in ordered),
        suppressed_groups=tuple(
            map(sum, zip(*(s.suppressed_groups for s in ordered), strict=True))
        ),
        uncovered=sum(s.uncovered for s in ordered),
        members=tuple(sorted(m for s in ordered for m in s.members)),
        membership=pool.membership,
        start=np.searchsorted(atom, np.arange(len(pool.membership) + 1)),
        values=values,
        counts=counts.astype(np.int64),
        errors=errors.astype(np.int64),
    )
