"""The paper's methods side by side: clients' scores in, one and the same kind of table out.

Every method is `(clients, alpha, mixture="uniform", **its own options)` and returns a `Result`,
whose `threshold_table` serves prediction, audit and report as that of `calibrate` does:

    result = methods.fedcp([(scores_a, membership_a), (scores_b, membership_b)], 0.1)
    result.thresholds(membership)                       # float (n,)
    gcfcp.Predictor(gcfcp.scores.THR(), result)         # sets, JSON

| method                | after                   | rule of the table | promises coverage of       |
|-----------------------|-------------------------|-------------------|----------------------------|
| `split_cp`            | vanilla centralised CP  | constant          | everyone, clients alike    |
| `fedcp`               | Lu et al. 2023          | constant          | the mixture                |
| `condcp`              | Gibbs et al. 2023       | simultaneous      | every group, clients alike |
| `centralized_gcfcp`   | the paper, section 4.1  | simultaneous      | every group of the mixture |
| `gcfcp`               | the paper, Algorithm 1  | simultaneous      | every group of the mixture |
| `mondrian_fedcp`      | FedCP, group by group   | first, max        | max: every group           |
| `group_digest`        | the paper's FedCF-style | first, max        | max, `upper`: every group  |
| `importance_weighted` | Plassier et al. 2023    | first, max, const.| none that is proved here   |

`rule="first"` assigns a row in several groups to the one with the lowest index, as the paper does
for the group-wise baselines; a later group is then covered only as well as earlier ones happen to
let it. `rule="max"` takes the largest threshold of the row's groups, which is proved for every
family, with larger sets. Both keep the "+1" of the test point, w_test = sum_k pi_k/(n_k+1), in
every group; the authors' script leaves it out, and then small groups are under-covered.

All thresholds come from one solver and are exact: a rank is decided by whole numbers, and
too few records give +inf, never the largest score.

Cost: a sort of the scores. `sent` counts what really leaves the clients, in bytes too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from gcfcp import checks
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.calibration import Calibration, Mixture, Problem, calibrate, problem_of
from gcfcp.checks import Representative
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Groups, find_atoms
from gcfcp.solver import quantile
from gcfcp.summary import ClientSummary, summarize
from gcfcp.thresholds import ByGroup, Constant, ThresholdTable

__all__ = [
    "Result",
    "Sent",
    "centralized_gcfcp",
    "condcp",
    "fedcp",
    "gcfcp",
    "group_digest",
    "importance_weighted",
    "mondrian_fedcp",
    "split_cp",
]

Clients = Sequence[Any] | Mapping[str, Any]

_EVERYONE = Groups(["everyone"])


@dataclass(frozen=True)
class Sent:
    """What the clients sent (Table 1, communication), measured on the messages themselves."""

    values: int  # scores or centroids, over all clients
    bytes: int
    atoms_by_client: tuple[int, ...]  # |A_k^+| of what is told apart: 1 each where groups are not

    @classmethod
    def of(cls, summaries: Iterable[ClientSummary]) -> Sent:
        told = list(summaries)
        return cls(
            sum(len(s.values) for s in told),
            sum(len(s.to_bytes()) for s in told),
            tuple(len(s.errors) for s in told),
        )


@dataclass(frozen=True, eq=False)
class Result:
    """Thresholds of one method, with what they cost."""

    method: str
    threshold_table: ThresholdTable = field(repr=False)
    sent: Sent
    problem: int  # weighted scores in the problem that the server solved
    provenance: dict[str, Any] = field(repr=False)
    calibration: Calibration | None = field(default=None, repr=False)  # of the simultaneous ones

    @property
    def groups(self) -> Groups:
        return self.threshold_table.groups

    @property
    def atom_count(self) -> int:
        """|A^+|: the number of atoms that were seen."""
        return len(self.threshold_table.membership)

    def thresholds(self, membership: Any, threshold_rng: Generator | None = None) -> Floats:
        """The threshold of every row; +inf where nothing smaller is valid."""
        return self.threshold_table.thresholds(membership, threshold_rng)


# --- the methods ---------------------------------------------------------------------------------


def split_cp(
    clients: Clients, alpha: float, mixture: Any = "uniform", *, groups: Any = None
) -> Result:
    """Vanilla centralised CP: the ceil((n+1)(1-alpha))-th smallest of all n scores.

    All records count alike, so the mixture has no say.
    """
    fed = _federation(clients, groups)
    exact = checks.alpha(alpha)
    threshold = quantile(fed.scores, np.ones(len(fed.scores)), 1.0, exact)
    sent = Sent.of(fed.everyone())
    return _result(
        "split_cp", fed, _constant(fed, exact, threshold), sent, len(fed.scores), mixture
    )


def fedcp(
    clients: Clients,
    alpha: float,
    mixture: Any = "uniform",
    *,
    delta: float | None = None,
    representative: Representative = "mean",
    merge: str = "recompress",
    groups: Any = None,
) -> Result:
    """FedCP (Lu et al. 2023): inf{t : sum_k pi_k/(n_k+1) #{i : S_ki <= t} >= 1 - alpha}.

    With mixture="proportional", pi_k ~ n_k + 1, that is the ceil((1-alpha)(N+K))-th smallest
    score, as published. With `delta` each client sends one T-Digest of its scores, which the
    server merges (the published protocol); without it, all scores.
    """
    fed = _federation(clients, groups)
    told = fed.everyone() if delta is None else fed.everyone(delta, representative)
    problem = problem_of(
        told, alpha, fed.mixture(mixture), "pool" if delta is None else merge, None
    )
    table = _constant(fed, problem.alpha, _only_group(problem))
    return _result("fedcp", fed, table, Sent.of(told), len(problem.coreset.values), mixture)


def condcp(
    clients: Clients, alpha: float, mixture: Any = "uniform", *, groups: Any = None
) -> Result:
    """CondCP (Gibbs et al. 2023) on all records together, each of weight 1/(n+1).

    All records count alike, so the mixture has no say.
    """
    fed = _federation(clients, groups)
    together = _Client("everyone", fed.scores, fed.membership)
    calibration = calibrate([together.summary(fed.groups)], alpha)
    return _calibrated("condcp", fed, calibration, fed.summaries(), mixture)


def centralized_gcfcp(
    clients: Clients, alpha: float, mixture: Any = "uniform", *, groups: Any = None
) -> Result:
    """The federated augmented quantile regression over all scores (eq. 9): nothing compressed."""
    fed = _federation(clients, groups)
    told = fed.summaries()
    calibration = calibrate(told, alpha, fed.mixture(mixture))
    return _calibrated("centralized_gcfcp", fed, calibration, told, mixture)


def gcfcp(
    clients: Clients,
    alpha: float,
    mixture: Any = "uniform",
    *,
    delta: float = 250,
    representative: Representative = "upper",
    merge: str = "pool",
    rule: str = "simultaneous",
    min_count: int = 1,
    groups: Any = None,
) -> Result:
    """GC-FCP, Algorithm 1: a T-Digest for each client and atom, one problem at the server.

    representative="mean", merge="recompress" is the paper's own way; the defaults lose no
    coverage at any delta and compress once instead of twice.
    """
    fed = _federation(clients, groups)
    told = fed.summaries(delta, representative, min_count)
    calibration = calibrate(told, alpha, fed.mixture(mixture), merge, rule=rule)
    return _calibrated("gcfcp", fed, calibration, told, mixture)


def mondrian_fedcp(
    clients: Clients,
    alpha: float,
    mixture: Any = "uniform",
    *,
    rule: str = "first",
    groups: Any = None,
) -> Result:
    """FedCP in every group G by itself:

        inf{t : sum_k lambda_k #{i in G : S_ki <= t} >= (1-alpha) sum_k lambda_k (n_k^G + 1)}

    with lambda_k = pi_k/(n_k+1). The "+1" is the test point; see the module for it and the rules.
    """
    checks.choice("rule", rule, "first", "max")
    fed = _federation(clients, groups)
    told = fed.summaries()
    problem = problem_of(told, alpha, fed.mixture(mixture), "pool", None)
    weights = np.repeat(problem.weights.rate, [len(c.scores) for c in fed.clients])
    by_group = _group_quantiles(fed, weights, problem.weights.test, problem.alpha)
    table = _by_group(fed, problem.alpha, by_group, rule)
    return _result("mondrian_fedcp", fed, table, Sent.of(told), len(fed.scores), mixture)


def group_digest(
    clients: Clients,
    alpha: float,
    mixture: Any = "uniform",
    *,
    delta: float = 250,
    representative: Representative = "mean",
    merge: str = "recompress",
    rule: str = "first",
    groups: Any = None,
) -> Result:
    """One digest for each client and group, one quantile for each group: no common solution.

    It is the baseline that the paper calls "FedCF-style". FedCF proper (Srinivasan et al. 2025) is
    another thing: it bounds the gap of a fairness metric between groups (demographic parity, equal
    opportunity, ...) and searches for thresholds that keep it. A record in several groups is sent
    once for each of them, which atoms avoid. Thresholds as in `mondrian_fedcp`.
    """
    checks.choice("rule", rule, "first", "max")
    fed = _federation(clients, groups)
    exact = checks.alpha(alpha)
    by_group = np.full(len(fed.groups), np.inf)
    told = [fed.of_group(g, delta, representative) for g in range(len(fed.groups))]
    size = 0
    for g, own in enumerate(told):
        if any(len(s.errors) for s in own):
            problem = problem_of(own, alpha, fed.mixture(mixture), merge, None)
            by_group[g] = _only_group(problem)
            size += len(problem.coreset.values)
    held = tuple(sum(len(s.errors) for s in of_client) for of_client in zip(*told, strict=True))
    sent = Sent.of(s for own in told for s in own)
    table = _by_group(fed, exact, by_group, rule)
    return _result("group_digest", fed, table, Sent(sent.values, sent.bytes, held), size, mixture)


def importance_weighted(
    clients: Clients,
    alpha: float,
    mixture: Any = "uniform",
    *,
    labels: Sequence[Any] | Mapping[str, Any] | None = None,
    clip: float = 50.0,
    rule: str = "first",
    groups: Any = None,
) -> Result:
    """Importance-weighted FCP (after Plassier et al. 2023), for labels that shift.

    Record i of client k weighs pi_k/(n_k+1) r_k(y_ki) with r_k(y) = q(y)/p_k(y) clipped to
    [1/clip, clip]; p_k is the add-one histogram of the client's labels and q = sum_k pi_k p_k.
    The test point's label is unknown, so it weighs as much as the heaviest record of each client,
    sum_k pi_k/(n_k+1) max_i r_k(y_ki). Clients are triples (scores, membership, labels), or
    `labels` gives those of each client, whole numbers from 0. rule: "first", "max", or "constant":
    one threshold for all.
    """
    checks.choice("rule", rule, "first", "max", "constant")
    clip = checks.at_least("clip", clip, 1)
    fed = _federation(clients, groups, labels)
    told = fed.summaries()
    problem = problem_of(told, alpha, fed.mixture(mixture), "pool", None)
    counts = _label_counts(fed)
    density = (counts + 1) / (counts + 1).sum(axis=1, keepdims=True)
    target = np.array([float(p) for p in problem.shares]) @ density
    ratio = np.clip(target / density, 1 / clip, clip)
    rate = problem.weights.rate
    test = float(rate @ np.where(counts > 0, ratio, 0).max(axis=1))
    weights = np.concatenate([rate[k] * ratio[k][c.labels] for k, c in enumerate(fed.clients)])
    if rule == "constant":
        table = _constant(fed, problem.alpha, quantile(fed.scores, weights, test, problem.alpha))
    else:
        by_group = _group_quantiles(fed, weights, test, problem.alpha)
        table = _by_group(fed, problem.alpha, by_group, rule)
    plain = Sent.of(told)
    # With every score goes its label, in two bytes.
    sent = Sent(plain.values, plain.bytes + 2 * len(fed.scores), plain.atoms_by_client)
    return _result("importance_weighted", fed, table, sent, len(fed.scores), mixture)


# --- clients, as they are given ------------------------------------------------------------------


@dataclass(frozen=True)
class _Client:
    name: str
    scores: Floats
    membership: Bools
    labels: Ints | None = None

    def summary(
        self,
        groups: Groups,
        delta: float | None = None,
        representative: Representative = "upper",
        min_count: int = 1,
    ) -> ClientSummary:
        """Without `delta` so fine a digest that every distinct score is a centroid of its own:
        two records have a share of 2/n, and a cluster has at most sin(pi/delta) < 1/n."""
        return summarize(
            self.scores,
            self.membership,
            groups=groups,
            client=self.name,
            delta=4.0 * len(self.scores) + 4 if delta is None else delta,
            representative=representative,
            min_count=min_count,
        )


@dataclass(frozen=True)
class _Federation:
    """Clients in the order of their names, which is the order of `pooling` too."""

    groups: Groups
    clients: tuple[_Client, ...]
    by_name: bool  # The caller named the clients; otherwise they are numbered as they came.

    @cached_property
    def scores(self) -> Floats:
        return np.concatenate([c.scores for c in self.clients])

    @cached_property
    def membership(self) -> Bools:
        return np.concatenate([c.membership for c in self.clients])

    @cached_property
    def atoms(self) -> Bools:
        """The atoms that were seen, (a, G)."""
        found = find_atoms(self.membership).membership
        return found[found.any(axis=1)]

    def summaries(
        self,
        delta: float | None = None,
        representative: Representative = "upper",
        min_count: int = 1,
    ) -> list[ClientSummary]:
        return [c.summary(self.groups, delta, representative, min_count) for c in self.clients]

    def everyone(
        self, delta: float | None = None, representative: Representative = "upper"
    ) -> list[ClientSummary]:
        """Summaries that know of no groups."""
        one = [np.ones((len(c.scores), 1), dtype=bool) for c in self.clients]
        return [
            _Client(c.name, c.scores, m).summary(_EVERYONE, delta, representative)
            for c, m in zip(self.clients, one, strict=True)
        ]

    def of_group(self, g: int, delta: float, representative: Representative) -> list[ClientSummary]:
        """Summaries of one group's records; n_k stays that of the client."""
        single = Groups([self.groups.names[g]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GCFCPWarning)  # records outside the group are no news
            return [
                _Client(c.name, c.scores, c.membership[:, [g]]).summary(
                    single, delta, representative
                )
                for c in self.clients
            ]

    def mixture(self, mixture: Any) -> Mixture:
        """The mixture by name. A list of weights is in the order in which clients were given.

        Clients that were given by name have no order, so a list is refused for them.
        """
        if isinstance(mixture, str | Mapping):
            return mixture
        weights = list(mixture)
        if self.by_name:
            raise GCFCPError(
                f"the mixture is a list of {len(weights)} weights, but the clients were given by "
                "name: give {client: weight}"
            )
        if len(weights) != len(self.clients):
            raise GCFCPError(
                f"the mixture has {len(weights)} weights for {len(self.clients)} clients"
            )
        return {c.name: w for c, w in zip(self.clients, weights, strict=True)}


def _federation(clients: Clients, groups: Any = None, labels: Any = None) -> _Federation:
    """A list of clients is numbered; a mapping names them, and is put in order of the names."""
    by_name = isinstance(clients, Mapping)
    if isinstance(clients, Mapping):
        names = sorted(clients)
        given = [clients[name] for name in names]
    else:
        given = list(clients)
        width = len(str(len(given)))
        names = [f"client-{k:0{width}d}" for k in range(1, len(given) + 1)]
    if not given:
        raise GCFCPError("there are no clients: give at least one (scores, membership) pair")
    for name, client in zip(names, given, strict=True):
        if not isinstance(client, tuple | list) or len(client) not in (2, 3):
            raise GCFCPError(
                f"{name} is not a (scores, membership) pair or a (scores, membership, labels) "
                "triple"
            )
    family = _groups(groups, given[0][1])
    own_labels = _labels(labels, names, by_name) or [c[2] if len(c) == 3 else None for c in given]
    made = tuple(
        _client(name, family, client[0], client[1], own)
        for name, client, own in zip(names, given, own_labels, strict=True)
    )
    return _Federation(family, made, by_name)


def _labels(labels: Any, names: Sequence[str], by_name: bool) -> list[Any] | None:
    """The labels of each client in the order of the names, if they were given apart."""
    if labels is None:
        return None
    if isinstance(labels, Mapping) and set(labels) == set(names):
        return [labels[name] for name in names]
    if by_name or isinstance(labels, Mapping):
        raise GCFCPError("labels must be given as {client: labels}, for every client and no other")
    if len(labels) != len(names):
        raise GCFCPError(f"there are labels of {len(labels)} clients for {len(names)} clients")
    return list(labels)


def _groups(groups: Any, membership: Any) -> Groups:
    if isinstance(groups, Groups):
        return groups
    if groups is not None:
        return Groups(groups)
    shape = np.shape(membership)
    if len(shape) != 2 or not shape[1]:
        raise GCFCPError(f"membership has shape {shape}, expected (n, G)")
    return Groups([f"G{g}" for g in range(1, shape[1] + 1)])


def _client(name: str, groups: Groups, scores: Any, membership: Any, labels: Any) -> _Client:
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise GCFCPError(f"the scores of {name} are not numbers") from None
    matrix = groups.check(membership)
    if values.shape != (len(matrix),) or not len(values) or np.isnan(values).any():
        raise GCFCPError(
            f"{name} has scores of shape {values.shape} ({int(np.isnan(values).sum())} NaN) and "
            f"{len(matrix)} membership rows: give one number and one row for each record"
        )
    if labels is None:
        return _Client(name, values, matrix)
    own = np.asarray(labels)
    if own.shape != values.shape or own.dtype.kind not in "iu" or own.min() < 0:
        raise GCFCPError(
            f"the labels of {name} are not {len(values)} whole numbers from 0, one for each record"
        )
    return _Client(name, values, matrix, own.astype(np.int64))


def _label_counts(fed: _Federation) -> Ints:
    """(K, L): records of each client and label."""
    for c in fed.clients:
        if c.labels is None:
            raise GCFCPError(
                f"{c.name} has no labels: importance weights need (scores, membership, labels) "
                "triples, or labels="
            )
    L = max(int(c.labels.max()) + 1 for c in fed.clients if c.labels is not None)
    return np.array([np.bincount(c.labels, minlength=L) for c in fed.clients])  # type: ignore[arg-type]


# --- thresholds and tables -----------------------------------------------------------------------


def _group_quantiles(fed: _Federation, weights: Floats, test: float, alpha: Fraction) -> Floats:
    return np.array(
        [quantile(fed.scores[own], weights[own], test, alpha) for own in fed.membership.T]
    )


def _only_group(problem: Problem) -> float:
    """The threshold of a family of one group."""
    core = problem.coreset
    return quantile(core.values, core.weights, core.test, problem.alpha)


def _constant(fed: _Federation, alpha: Fraction, threshold: float) -> ThresholdTable:
    atoms = find_atoms(fed.membership).membership
    return ThresholdTable.by_rule(fed.groups, alpha, atoms, Constant(threshold))


def _by_group(fed: _Federation, alpha: Fraction, by_group: Floats, rule: str) -> ThresholdTable:
    return ThresholdTable.by_rule(fed.groups, alpha, fed.atoms, ByGroup(rule, by_group))


def _calibrated(
    method: str,
    fed: _Federation,
    calibration: Calibration,
    told: Sequence[ClientSummary],
    mixture: Any,
) -> Result:
    table, size = calibration.threshold_table, len(calibration.coreset.values)
    return _result(method, fed, table, Sent.of(told), size, mixture, calibration)


def _result(
    method: str,
    fed: _Federation,
    table: ThresholdTable,
    sent: Sent,
    problem: int,
    mixture: Any,
    calibration: Calibration | None = None,
) -> Result:
    provenance = {
        "method": method,
        "alpha": float(table.alpha),
        "mixture": fed.mixture(mixture),
        "clients": [{"client": c.name, "n": len(c.scores)} for c in fed.clients],
        "values_sent": sent.values,
        "bytes_sent": sent.bytes,
    }
    if calibration is None:  # which warns of its own
        _warn_of_infinite(method, fed, table)
    return Result(method, table, sent, problem, provenance, calibration)


def _warn_of_infinite(method: str, fed: _Federation, table: ThresholdTable) -> None:
    short: list[str] = []
    if isinstance(table.source, ByGroup):
        counts = fed.membership.sum(axis=0)
        short = [
            f"{name} ({counts[g]:,} records)"
            for g, name in enumerate(fed.groups.names)
            if np.isinf(table.source.by_group[g])
        ]
    elif np.isinf(table.thresholds_by_atom[0]):
        short = [f"{len(fed.scores):,} records in all"]
    if short:
        warnings.warn(
            f"{method} has no finite threshold for {', '.join(short)}: too few, or too many at "
            f"+inf, for alpha={float(table.alpha):g} and {len(fed.clients)} clients",
            GCFCPWarning,
            stacklevel=4,
        )
