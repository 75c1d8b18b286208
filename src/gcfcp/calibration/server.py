"""The server's side of Algorithm 1: summaries in, exact thresholds and honest guarantees out.

`calibrate` pools the clients' centroids by atom (or merges and compresses them again, the paper's
way), weighs them (see `problem`) and solves every atom (see `solver`). It keeps the summaries, so
that the mixture, alpha or the set of clients can be changed later without another round.

Cost: one sort of the centroids, then the solver's, which n does not touch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.random import Generator

from gcfcp import checks
from gcfcp.arrays import Floats
from gcfcp.calibration import mixture as mixtures
from gcfcp.calibration.guarantees import Guarantee, guarantees_of
from gcfcp.calibration.influence import Influence, influences
from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.problem import Problem, problem_of
from gcfcp.calibration.reasons import AtomRecord, atom_records, warning_of
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.solver import Coreset, quantile
from gcfcp.summary import ClientSummary
from gcfcp.thresholds import ByGroup, Simultaneous, ThresholdTable

RULES = ("simultaneous", "max")
MERGES = ("pool", "recompress")


@dataclass(frozen=True, eq=False)
class Calibration:
    """Thresholds with their provenance. A value: `retarget` and `without` return new ones."""

    summaries: tuple[ClientSummary, ...] = field(repr=False)
    alpha: float
    mixture: Mixture
    merge: str
    rule: str
    delta: float | None  # The delta that was asked for; None takes the clients' largest.
    eta: float
    shares: dict[str, float]  # pi_k of each client.
    test_weight: float  # w_test, the weight of the test point.
    atoms: tuple[AtomRecord, ...] = field(repr=False)  # One record for each atom that was seen.
    guarantee: tuple[Guarantee, ...] = field(repr=False)
    threshold_table: ThresholdTable = field(repr=False)
    coreset: Coreset = field(repr=False)  # The weighted scores by atom that were solved.

    @property
    def table(self) -> tuple[AtomRecord, ...]:
        """Another name for `atoms`, and the older one."""
        return self.atoms

    @property
    def groups(self) -> Groups:
        """The family of groups that the promise is about."""
        return self.summaries[0].groups

    @property
    def recompression_delta(self) -> float | None:
        """The delta that centroids were merged with; None if they were pooled."""
        if self.merge == "pool":
            return None
        return max(s.delta for s in self.summaries) if self.delta is None else self.delta

    def thresholds(self, membership: Any, threshold_rng: Generator | None = None) -> Floats:
        """S* of each row's atom; +inf where nothing smaller is valid.

        (n, G) gives (n,), and a label-dependent (n, L, G) gives (n, L). With `threshold_rng` the
        thresholds are randomised; see `ThresholdTable.thresholds`.
        """
        return self.threshold_table.thresholds(membership, threshold_rng)

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
        left = present.difference(clients)
        return calibrate(
            [s for s in self.summaries if s.client not in clients],
            alpha=self.threshold_table.alpha,
            mixture=mixtures.among(self.mixture, left, "are left"),
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
    eta = checks.probability("eta", eta)
    problem = problem_of(summaries, alpha, mixture, merge, delta)
    table = solve_table(problem, rule)
    records = atom_records(problem, table)
    infinite = [r for r in records if r.reason is not None]
    if infinite:
        warnings.warn(warning_of(problem, records, infinite), GCFCPWarning, stacklevel=2)
    names = [s.client for s in problem.summaries]
    return Calibration(
        summaries=problem.summaries,
        alpha=float(problem.alpha),
        mixture=dict(mixture) if isinstance(mixture, Mapping) else mixture,
        merge=merge,
        rule=rule,
        delta=delta,
        eta=eta,
        shares={k: float(p) for k, p in zip(names, problem.shares, strict=True)},
        test_weight=problem.weights.test / problem.weights.unit,
        atoms=records,
        guarantee=guarantees_of(problem, rule, eta),
        threshold_table=table,
        coreset=problem.coreset,
    )


def solve_table(problem: Problem, rule: str) -> ThresholdTable:
    """The table by either rule. Atoms of clients without weight are listed too."""
    checks.choice("rule", rule, *RULES)
    source = (
        ByGroup("max", _group_thresholds(problem))
        if rule == "max"
        else Simultaneous(problem.coreset, problem.alpha, problem.carriers, problem.hopeless)
    )
    return ThresholdTable.by_rule(problem.groups, problem.alpha, problem.pool.membership, source)


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
