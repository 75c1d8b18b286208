"""The server's side of Algorithm 1: summaries go in, thresholds and guarantees come out.

`calibrate` pools the clients' centroids by atom, or merges and compresses them again as the paper
does. It gives them their weights (see `problem`) and solves the threshold of every atom exactly
(see `solver`). The result keeps the summaries, so that the mixture, alpha or the set of clients can
be changed later without asking the clients again.

Cost: one sort of the centroids and the solver's pivots. Neither depends on the number of records.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Floats
from gcfcp.calibration import mixture as mixtures
from gcfcp.calibration.admission import MAX_ATOMS, Admission, Aggregates, LargestShare
from gcfcp.calibration.clients import twin_texts
from gcfcp.calibration.confidence import confident_levels
from gcfcp.calibration.correction import Correction
from gcfcp.calibration.guarantees import Guarantee, guarantees_of
from gcfcp.calibration.influence import Influence, influences
from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.noisy import noisy_levels
from gcfcp.calibration.pooling import Pool, largest_delta, pool_of
from gcfcp.calibration.problem import Problem, problem_of
from gcfcp.calibration.reasons import AtomRecord, atom_records, warning_of
from gcfcp.calibration.shapes import fit_pool
from gcfcp.calibration.unseen import UnseenSite, unseen_sites
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups
from gcfcp.notebook import as_html
from gcfcp.shape import Shape
from gcfcp.solver import Coreset, quantile
from gcfcp.summary import ClientSummary
from gcfcp.thresholds import ByGroup, ThresholdTable


@dataclass(frozen=True, eq=False)
class Calibration:
    """Thresholds, what is promised for them, and everything that they were computed from.

    A calibration is never changed: `retarget` and `without` return a new one.
    """

    summaries: tuple[ClientSummary, ...] = field(repr=False)
    alpha: float
    mixture: Mixture
    merge: str
    rule: str
    delta: float | None  # The delta that was asked for; None stands for the clients' largest.
    eta: float  # The upper bounds on coverage hold with confidence 1 - eta / 2.
    # With what confidence this very predictor keeps the promise; None if the promise is about the
    # average over calibrations.
    confidence: float | None
    shares: dict[str, float]  # pi_k of each client.
    test_weight: float  # w_test, the largest weight of the test point in any group.
    correction: Correction  # What was charged for the test point, in records, and on what ground.
    # One record for each atom that was seen; for summaries by group one for each group, whose
    # threshold is its level.
    atoms: tuple[AtomRecord, ...] = field(repr=False)
    guarantee: tuple[Guarantee, ...] = field(repr=False)  # One record for each group.
    threshold_table: ThresholdTable = field(repr=False)
    coreset: Coreset = field(repr=False)  # The weighted scores by atom that were solved.
    problem: Problem = field(repr=False)  # What was solved, from which reasons can be told.
    # The client with the largest share of the weight of each group.
    largest_shares: tuple[LargestShare, ...] = field(repr=False)
    admission: Admission = field(repr=False)  # What the server lets in.

    @property
    def round(self) -> str | None:
        """The round that all summaries are of; None if they name none."""
        return self.summaries[0].round

    @property
    def twins(self) -> tuple[tuple[str, ...], ...]:
        """The names under which the same values and counts were sent, for each such content."""
        return self.problem.twins

    @property
    def table(self) -> tuple[AtomRecord, ...]:
        """The older name of `atoms`."""
        return self.atoms

    @property
    def groups(self) -> Groups:
        """The family of groups that the promise is about."""
        return self.summaries[0].groups

    @property
    def by(self) -> str:
        """What the cells of the summaries are: "atom" or "group"."""
        return self.summaries[0].by

    @property
    def used_shape(self) -> Shape | None:
        """The shape that was subtracted from the scores of this calibration; None if none was."""
        return getattr(self.threshold_table.source, "shape", None)

    @property
    def state(self) -> str:
        """How many thresholds are finite, of how many clients, and what was charged, in words."""
        finite, clients = sum(r.reason is None for r in self.atoms), len(self.shares)
        return (
            f"{finite} of {len(self.atoms)} {self.by}s have a finite threshold; {clients:,} "
            f"client{'' if clients == 1 else 's'}, alpha {self.alpha:g}; {self.correction}"
        )

    def _repr_html_(self) -> str:
        """What is promised, and how many thresholds are finite, for a notebook."""
        reasons = {r.reason: None for r in self.atoms if r.reason is not None}
        return as_html(
            [],
            ["group", "promised coverage", "records", "effective"],
            [
                [
                    g.group,
                    f"{g.certified:.4f} ({g.certified_status})",
                    f"{g.records:,.0f}",
                    f"{g.effective_n:,.0f}",
                ]
                for g in self.guarantee
            ],
            [f"promised {self.guarantee[0].promise}", self.state, *reasons],
            left=2,
        )

    @property
    def pool(self) -> Pool:
        """All centroids of all clients, as the clients sent them."""
        shaped = self.by == "atom" and self.used_shape is not None
        return pool_of(self.summaries) if shaped else self.problem.pool

    @cached_property
    def shape(self) -> Shape:
        """The shape for the next calibration, of other records.

        For summaries by atom it is fitted to them (`fit_shape`). Summaries by group do not tell how
        groups overlap; theirs is the shape that they were made with.
        """
        if self.by == "atom":
            alpha, shares = self.threshold_table.alpha, self.problem.shares
            return fit_pool(self.summaries, self.pool, alpha, shares)
        if self.used_shape is None:
            raise GCFCPError(
                "summaries by group without a shape give none, because they do not tell how groups "
                "overlap: make one of summaries by atom with fit_shape"
            )
        return self.used_shape

    @property
    def recompression_delta(self) -> float | None:
        """The delta with which the centroids were compressed again; None if they were pooled."""
        if self.merge == "pool":
            return None
        return largest_delta(self.summaries) if self.delta is None else self.delta

    def thresholds(
        self, membership: Any, threshold_rng: np.random.Generator | None = None
    ) -> Floats:
        """S* of each row's atom. It is +inf where no finite threshold keeps the promise.

        A membership matrix (n, G) gives thresholds of the shape (n,), and a label-dependent array
        (n, L, G) gives (n, L). With `threshold_rng` the thresholds are randomised; see
        `ThresholdTable.thresholds`.
        """
        return self.threshold_table.thresholds(membership, threshold_rng)

    def retarget(
        self,
        mixture: Mixture | None = None,
        alpha: float | None = None,
        rule: str | None = None,
        merge: str | None = None,
        correction: str | None = None,
        confidence: float | None = None,
    ) -> Calibration:
        """The calibration of the same summaries with another mixture, alpha, rule and so on.

        What is not given stays as it is in this calibration.
        """
        how = self.merge if merge is None else merge
        return calibrate(
            self.summaries,
            alpha=self.threshold_table.alpha if alpha is None else alpha,
            mixture=self.mixture if mixture is None else mixture,
            merge=how,
            rule=self.rule if rule is None else rule,
            delta=self.delta if how == "recompress" else None,
            eta=self.eta,
            correction=self.correction.kind if correction is None else correction,
            shape=self.used_shape,
            confidence=self.confidence if confidence is None else confidence,
            **vars(self.admission),
        )

    def without(self, *clients: str) -> Calibration:
        """The calibration of all clients except these.

        A mixture that names weights is scaled so that the weights of the other clients add up to 1.
        """
        settings = self._settings_without(*clients)
        allowed = tuple(k for k in self.admission.allow_share if k not in clients)
        admitted = replace(self.admission, allow_share=allowed)
        return calibrate(**settings, eta=self.eta, **vars(admitted))

    def table_without(self, client: str) -> ThresholdTable:
        """The thresholds of all clients except this one, without anything else.

        No share is refused here: the others have larger shares only because this client is left out
        to see what it does.
        """
        admitted = replace(self.admission, max_share=None, allow_share=())
        return solve_table(problem_of(**self._settings_without(client), admission=admitted))

    def _settings_without(self, *clients: str) -> dict[str, Any]:
        """The arguments of `calibrate` for all clients except these."""
        present = {s.client for s in self.summaries}
        for name in clients:
            if name not in present:
                raise GCFCPError(f"{name!r} is not among the clients {', '.join(sorted(present))}")
        left = present.difference(clients)
        return {
            "summaries": [s for s in self.summaries if s.client not in clients],
            "alpha": self.threshold_table.alpha,
            "mixture": mixtures.among(self.mixture, left, "are left"),
            "merge": self.merge,
            "rule": self.rule,
            "delta": self.delta,
            "correction": self.correction.kind,
            "shape": self.used_shape,
            "confidence": self.confidence,
        }

    def influence(self) -> tuple[Influence, ...]:
        """How much each client moves the thresholds of each group.

        Returns one record for each client and group. It is computed exactly, by calibrating again
        without the client. Cost: one calibration for each client.
        """
        return influences(self)

    def unseen_site(self) -> tuple[UnseenSite, ...]:
        """How each site would fare if it took no part: coverage by group at the site.

        Nothing is promised for a site that takes no part; this shows what happened in the place of
        one. Cost: one calibration for each client. See the module `unseen`.
        """
        return unseen_sites(self)


def calibrate(
    summaries: Iterable[ClientSummary],
    alpha: float | Fraction,
    mixture: Mixture = "proportional",
    merge: str = "pool",
    *,
    rule: str | None = None,
    correction: str = "sharp",
    delta: float | None = None,
    eta: float = 0.1,
    shape: Any = None,
    confidence: float | None = None,
    aggregates: Aggregates = (),
    round: str | None = None,
    max_share: float | None = None,
    allow_share: Iterable[str] = (),
    max_atoms: int | None = MAX_ATOMS,
) -> Calibration:
    """Thresholds of all atoms from the clients' summaries: the server's side of Algorithm 1.

    - `alpha`: The share of outcomes that may be missed in every group, between 0 and 1.
    - `mixture`: The weights pi_k of the clients: "proportional" (every record counts the same, as
      if all records lay in one place), "uniform" (every client counts the same), or a mapping from
      each client to its weight.
    - `merge`: "pool" keeps every centroid of every client. "recompress" is the paper's Merge: the
      centroids of each atom are compressed again into one T-Digest.
    - `rule`: "simultaneous" is the paper's rule. It is proved where every score is sent, and for
      counts on a public grid, and measured for digests. "max" takes the largest single-group
      threshold among the groups of a row; it is proved for any family of groups, and gives larger
      sets unless a good shape is subtracted. By default it is "simultaneous", and "max" for
      summaries by group, with a shape, and with a confidence.
    - `correction`: How much the test point weighs: "sharp" is the least weight that is proved for
      the rule and the groups, "paper" is the paper's, one record for each client; see `correction`.
    - `delta`: How fine the digests of "recompress" are. By default it is the clients' largest.
    - `eta`: The upper bounds on coverage hold with confidence 1 - eta / 2; see `Guarantee`.
    - `shape`: For summaries by atom, a shape that is subtracted from their scores: what `fit_shape`
      returns, a calibration or a predictor of other records, or a file that holds one of them.
      Summaries by group carry their own.
    - `confidence`: By default the promise is about the average over calibrations. With 0.95 it is
      about this very predictor: with that probability every group has a coverage of at least
      1 - alpha.
    - `aggregates`: The names of the summaries that may stand for several clients, or a mapping from
      each name to the number of sites that you know to be behind it, such as {"north": 3}. Any
      other summary that says it stands for others is refused. mixture="uniform" needs the numbers.
    - `round`: The round that every summary must be of, such as "2026Q4". Summaries of different
      rounds are refused in any case.
    - `max_share`: The largest share of the weight of a group that one client may have, such as 0.5.
      A larger one is an error that names the client.
    - `allow_share`: The names of the clients that may have more.
    - `max_atoms`: How many combinations of groups rule "simultaneous" may be given, because it
      takes longer than in proportion to them; None does not limit them. Rule "max" has no limit.

    If some threshold is infinite, one warning says why and what would help. Others name
    clients that sent the same content.
    """
    eta = checks.probability("eta", eta)
    problem = problem_of(
        summaries,
        alpha,
        mixture,
        merge,
        delta,
        rule,
        correction,
        shape,
        confidence,
        Admission.of(aggregates, round, max_share, allow_share, max_atoms),
    )
    for text in twin_texts(problem.twins):
        warnings.warn(text, GCFCPWarning, stacklevel=2)
    table = solve_table(problem)
    records = atom_records(problem, table)
    infinite = [r for r in records if r.reason is not None]
    if infinite:
        warnings.warn(warning_of(problem, records, infinite), GCFCPWarning, stacklevel=2)
    return calibration_of(problem, table, records, mixture, merge, delta, eta)


def calibration_of(
    problem: Problem,
    table: ThresholdTable,
    records: tuple[AtomRecord, ...],
    mixture: Mixture,
    merge: str,
    delta: float | None,
    eta: float,
) -> Calibration:
    """The calibration that a solved problem gives. The last arguments are those of `calibrate`."""
    names = [s.client for s in problem.summaries]
    return Calibration(
        summaries=problem.summaries,
        alpha=float(problem.alpha),
        mixture=dict(mixture) if isinstance(mixture, Mapping) else mixture,
        merge=merge,
        rule=problem.rule,
        delta=None if delta is None else problem.delta,
        eta=eta,
        confidence=problem.confidence,
        shares={k: float(p) for k, p in zip(names, problem.shares, strict=True)},
        test_weight=problem.correction.records / float(problem.sizes.n.sum()),
        correction=problem.correction,
        atoms=records,
        guarantee=guarantees_of(problem, eta),
        threshold_table=table,
        coreset=problem.coreset,
        problem=problem,
        largest_shares=problem.largest_shares,
        admission=problem.admission,
    )


def solve_table(problem: Problem) -> ThresholdTable:
    """The thresholds of all atoms by the rule of the problem.

    The table also lists the atoms that only clients of weight 0 have. Summaries by group do not
    tell which atoms there are, and their table lists none.
    """
    source = problem.source or ByGroup("max", _group_levels(problem), problem.shape)
    atoms = problem.pool.membership[: None if problem.by == "atom" else 0]
    return ThresholdTable.by_rule(problem.groups, problem.alpha, atoms, source)


def _group_levels(problem: Problem) -> Floats:
    """The threshold, or the level if there is a shape, of each group by itself, float (G,).

    The records that may be suppressed in the group are counted as scores of +inf.
    """
    if problem.confidence is not None:
        return confident_levels(problem)
    if problem.noise is not None:
        return noisy_levels(problem)[0]
    coreset = problem.coreset
    atom = np.repeat(np.arange(len(coreset.membership)), np.diff(coreset.start))
    infinite = problem.tally.infinite_weights(problem.weights.rate)
    test = problem.charged.most + problem.tally.strange_weights(problem.weights.rate, problem.alpha)
    order = np.argsort(coreset.values, kind="stable")
    order = order[np.isfinite(coreset.values[order])]
    thresholds = []
    for g in range(len(problem.groups)):
        mine = order[coreset.membership[atom[order], g]]
        scores = np.append(coreset.values[mine], np.inf)
        weights = np.append(coreset.weights[mine], infinite[g])
        thresholds.append(quantile(scores, weights, float(test[g]), problem.alpha))
    return np.array(thresholds)
