"""The methods that the paper compares: each takes the clients' scores and returns thresholds.

Every method is called as `method(clients, alpha, mixture="uniform", **options)` and returns a
`Result`. Prediction, audit and report use its `threshold_table` as they use that of `calibrate`:

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
| `importance_weighted` | Plassier et al. 2023    | first, max, const.| nothing that is proved     |

"Clients alike" means that every record counts the same, whatever the mixture is.

`rule="first"` gives a row in several groups the threshold of the group with the lowest index, as
the paper does for its group-wise baselines. Later groups then have no promise, because some of
their rows get the threshold of an earlier group. `rule="max"` gives a row the largest threshold of
its groups. That is proved for every family of groups, and sets are larger. Both rules count the
test point, with weight w_test = sum_k pi_k / (n_k + 1), in every group. The authors' script leaves
it out, and then small groups are under-covered.

All thresholds come from one solver and are exact. The rank of a threshold is decided with whole
numbers. A group with too few records has the threshold +inf, and never its largest score.

Cost: one sort of the scores. `Result.sent` counts what the clients send, in numbers and in bytes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

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
"""What a method takes: (scores, membership) for each client, in a list or by the client's name."""

_EVERYONE = Groups(["everyone"])


@dataclass(frozen=True)
class Sent:
    """What the clients sent (communication in Table 1), measured on the messages themselves."""

    values: int  # How many scores or centroids all clients sent together.
    bytes: int  # How many bytes all clients sent together.
    atoms_by_client: tuple[int, ...]  # |A_k^+| of each client; 1 if the method ignores groups.

    @classmethod
    def of(cls, summaries: Iterable[ClientSummary]) -> Sent:
        """What it costs to send these summaries, one for each client."""
        told = list(summaries)
        return cls(
            sum(len(s.values) for s in told),
            sum(len(s.to_bytes()) for s in told),
            tuple(len(s.errors) for s in told),
        )


@dataclass(frozen=True, eq=False)
class Result:
    """The thresholds of one method, and what they cost."""

    method: str  # The name of the method.
    threshold_table: ThresholdTable = field(repr=False)
    sent: Sent
    problem: int  # How many weighted scores the problem has that the server solved.
    provenance: dict[str, Any] = field(repr=False)
    # The calibration, if the method is `condcp`, `centralized_gcfcp` or `gcfcp`.
    calibration: Calibration | None = field(default=None, repr=False)

    @property
    def groups(self) -> Groups:
        """The family of groups."""
        return self.threshold_table.groups

    @property
    def atom_count(self) -> int:
        """|A^+|: the number of atoms that were seen."""
        return len(self.threshold_table.membership)

    def thresholds(
        self, membership: Any, threshold_rng: np.random.Generator | None = None
    ) -> Floats:
        """The threshold of every row; see `ThresholdTable.thresholds`."""
        return self.threshold_table.thresholds(membership, threshold_rng)


# --- The methods ---------------------------------------------------------------------------------


def split_cp(
    clients: Clients, alpha: float, mixture: Any = "uniform", *, groups: Any = None
) -> Result:
    """Split conformal prediction: the ceil((n + 1)(1 - alpha))-th smallest of all n scores.

    All records are brought together and count the same, so that the mixture changes nothing.
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
    """FedCP (Lu et al. 2023): inf{t : sum_k pi_k / (n_k + 1) #{i : S_ki <= t} >= 1 - alpha}.

    If pi_k is proportional to n_k + 1, this is the ceil((1 - alpha)(N + K))-th smallest of all N
    scores of K clients, as published.

    - `delta`: If it is given, each client sends one T-Digest of its scores, and the server merges
      the digests, as in the published protocol. Without it each client sends all scores.
    - `representative`, `merge`: How the digests are made and merged; see `summarize` and
      `calibrate`.
    """
    fed = _federation(clients, groups)
    told = fed.everyone() if delta is None else fed.everyone(delta, representative)
    problem = problem_of(
        told,
        alpha,
        fed.mixture(mixture),
        "pool" if delta is None else merge,
        correction="paper",
    )
    table = _constant(fed, problem.alpha, _only_group(problem))
    return _result("fedcp", fed, table, Sent.of(told), len(problem.coreset.values), mixture)


def condcp(
    clients: Clients, alpha: float, mixture: Any = "uniform", *, groups: Any = None
) -> Result:
    """CondCP (Gibbs et al. 2023) on all n records together, each of weight 1 / (n + 1).

    All records count the same, so that the mixture changes nothing.
    """
    fed = _federation(clients, groups)
    together = _Client("everyone", fed.scores, fed.membership)
    calibration = calibrate([together.summary(fed.groups)], alpha)
    return _calibrated("condcp", fed, calibration, fed.summaries(), mixture)


def centralized_gcfcp(
    clients: Clients,
    alpha: float,
    mixture: Any = "uniform",
    *,
    correction: str = "paper",
    groups: Any = None,
) -> Result:
    """The augmented quantile regression of the federation over all scores (eq. 9).

    Every client sends every score, and nothing is compressed. `correction` is that of `calibrate`.
    """
    fed = _federation(clients, groups)
    told = fed.summaries()
    calibration = calibrate(told, alpha, fed.mixture(mixture), correction=correction)
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
    correction: str = "paper",
    groups: Any = None,
) -> Result:
    """GC-FCP, Algorithm 1: one T-Digest for each client and atom, and one problem at the server.

    The paper uses representative="mean" and merge="recompress". The defaults here lose no coverage
    at any delta, and compress the scores once instead of twice. The test point has the paper's
    weight, one record for each client; correction="sharp" gives it the least weight that is proved,
    as `calibrate` does by itself. The options are those of `summarize` and `calibrate`.
    """
    fed = _federation(clients, groups)
    told = fed.summaries(delta, representative, min_count)
    calibration = calibrate(
        told, alpha, fed.mixture(mixture), merge, rule=rule, correction=correction
    )
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

        inf{t : sum_k lambda_k #{i in G : S_ki <= t} >= (1 - alpha) sum_k lambda_k (n_k^G + 1)}

    with lambda_k = pi_k / (n_k + 1). The "+1" is the test point. The module explains it, and the
    rules "first" and "max" for a row in several groups.
    """
    checks.choice("rule", rule, "first", "max")
    fed = _federation(clients, groups)
    told = fed.summaries()
    problem = problem_of(told, alpha, fed.mixture(mixture), correction="paper")
    weights = np.repeat(problem.weights.rate, [len(c.scores) for c in fed.clients])
    by_group = _group_quantiles(fed, weights, problem.coreset.test, problem.alpha)
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
    """One T-Digest for each client and group, and one quantile for each group by itself.

    The paper calls this baseline "FedCF-style". FedCF itself (Srinivasan et al. 2025) does
    something else: it bounds the gap of a fairness metric between groups, such as demographic
    parity or equal opportunity, and searches for thresholds that keep this bound.

    A record in several groups is sent once for each of them, which atoms avoid. The thresholds are
    those of `mondrian_fedcp`, with digests in the place of scores.
    """
    checks.choice("rule", rule, "first", "max")
    fed = _federation(clients, groups)
    exact = checks.alpha(alpha)
    by_group = np.full(len(fed.groups), np.inf)
    told = [fed.of_group(g, delta, representative) for g in range(len(fed.groups))]
    size = 0
    for g, own in enumerate(told):
        if any(len(s.errors) for s in own):
            problem = problem_of(own, alpha, fed.mixture(mixture), merge, correction="paper")
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
    """Importance-weighted FCP (after Plassier et al. 2023), for labels whose frequencies differ.

    Record i of client k weighs pi_k / (n_k + 1) r_k(y_ki), with r_k(y) = q(y) / p_k(y) clipped to
    [1 / clip, clip]. Here p_k is the histogram of the client's labels with 1 added to each count,
    and q = sum_k pi_k p_k is the target. The test point's label is unknown, so that it weighs as
    much as the heaviest record of each client: sum_k pi_k / (n_k + 1) max_i r_k(y_ki).

    - `clients`: Triples (scores, membership, labels). Labels are whole numbers from 0.
    - `labels`: The labels of each client, if the clients are pairs (scores, membership).
    - `clip`: The largest ratio of two frequencies that counts.
    - `rule`: "first" or "max" as in the module, or "constant" for one threshold for all rows.
    """
    checks.choice("rule", rule, "first", "max", "constant")
    clip = checks.at_least("clip", clip, 1)
    fed = _federation(clients, groups, labels)
    told = fed.summaries()
    problem = problem_of(told, alpha, fed.mixture(mixture), correction="paper")
    weights, test = _importance_weights(fed, problem, clip)
    if rule == "constant":
        table = _constant(fed, problem.alpha, quantile(fed.scores, weights, test, problem.alpha))
    else:
        by_group = _group_quantiles(fed, weights, test, problem.alpha)
        table = _by_group(fed, problem.alpha, by_group, rule)
    plain = Sent.of(told)
    # Each client sends the label of every score as well, which takes two bytes.
    sent = Sent(plain.values, plain.bytes + 2 * len(fed.scores), plain.atoms_by_client)
    return _result("importance_weighted", fed, table, sent, len(fed.scores), mixture)


def _importance_weights(fed: _Federation, problem: Problem, clip: float) -> tuple[Floats, float]:
    """The weight of every record and that of the test point; see `importance_weighted`."""
    counts = _label_counts(fed)
    density = (counts + 1) / (counts + 1).sum(axis=1, keepdims=True)
    target = np.array([float(p) for p in problem.shares]) @ density
    ratio = np.clip(target / density, 1 / clip, clip)
    rate = problem.weights.rate
    test = float(rate @ np.where(counts > 0, ratio, 0).max(axis=1))
    weights = np.concatenate([rate[k] * ratio[k][c.labels] for k, c in enumerate(fed.clients)])
    return weights, test


# --- The clients that a method is given ----------------------------------------------------------


@dataclass(frozen=True)
class _Client:
    """The records of one client."""

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
        """The summary that this client sends.

        Without `delta` the digests are so fine that every distinct score is a centroid of its own:
        delta = 4 n + 4 allows a cluster at most the share sin(pi / delta) < 1 / n of its atom, and
        two of at most n records have at least the share 2 / n.
        """
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
    """All clients in the order of their names, which is also their order in a calibration."""

    groups: Groups
    clients: tuple[_Client, ...]
    by_name: bool  # Whether the caller named the clients. If not, they are numbered in their order.

    @cached_property
    def scores(self) -> Floats:
        """The scores of all records, client after client."""
        return np.concatenate([c.scores for c in self.clients])

    @cached_property
    def membership(self) -> Bools:
        """The membership rows of all records, client after client."""
        return np.concatenate([c.membership for c in self.clients])

    @cached_property
    def atoms(self) -> Bools:
        """The groups of each atom that was seen, (a, G), without the atom that is in no group."""
        found = find_atoms(self.membership).membership
        return found[found.any(axis=1)]

    def summaries(
        self,
        delta: float | None = None,
        representative: Representative = "upper",
        min_count: int = 1,
    ) -> list[ClientSummary]:
        """One summary for each client; without `delta`, of every score."""
        return [c.summary(self.groups, delta, representative, min_count) for c in self.clients]

    def everyone(
        self, delta: float | None = None, representative: Representative = "upper"
    ) -> list[ClientSummary]:
        """One summary for each client, with a single group that holds all of its records."""
        one = [np.ones((len(c.scores), 1), dtype=bool) for c in self.clients]
        return [
            _Client(c.name, c.scores, m).summary(_EVERYONE, delta, representative)
            for c, m in zip(self.clients, one, strict=True)
        ]

    def of_group(self, g: int, delta: float, representative: Representative) -> list[ClientSummary]:
        """One summary for each client of its records in group g; n_k still counts all records."""
        single = Groups([self.groups.names[g]])
        with warnings.catch_warnings():
            # A client would be warned of its records outside of the group, which are meant here.
            warnings.simplefilter("ignore", GCFCPWarning)
            return [
                _Client(c.name, c.scores, c.membership[:, [g]]).summary(
                    single, delta, representative
                )
                for c in self.clients
            ]

    def mixture(self, mixture: Any) -> Mixture:
        """The mixture as a word or by the clients' names.

        A list holds the weights in the order in which the clients were given. Clients that were
        given by name have no order, so that a list is refused for them.
        """
        if isinstance(mixture, str | Mapping):
            return mixture
        weights = list(mixture)
        if self.by_name:
            raise GCFCPError(
                f"the mixture is a list of {len(weights)} weights, but the clients were given by "
                "name: give a mapping {client: weight}"
            )
        if len(weights) != len(self.clients):
            raise GCFCPError(
                f"the mixture has {len(weights)} weights for {len(self.clients)} clients: give one "
                "weight for each client"
            )
        return {c.name: w for c, w in zip(self.clients, weights, strict=True)}


def _federation(clients: Clients, groups: Any = None, labels: Any = None) -> _Federation:
    """The clients that a method was given, checked and in the order of their names.

    The clients of a list are named "client-1", "client-2" and so on in their order, with leading
    zeros where these keep the order.
    """
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
                "triple: give one of these for each client"
            )
    family = _groups(groups, given[0][1])
    own_labels = _labels(labels, names, by_name) or [c[2] if len(c) == 3 else None for c in given]
    made = tuple(
        _client(name, family, client[0], client[1], own)
        for name, client, own in zip(names, given, own_labels, strict=True)
    )
    return _Federation(family, made, by_name)


def _labels(labels: Any, names: Sequence[str], by_name: bool) -> list[Any] | None:
    """The labels of each client in the order of `names`; None if they were not given apart."""
    if labels is None:
        return None
    if isinstance(labels, Mapping) and set(labels) == set(names):
        return [labels[name] for name in names]
    if by_name or isinstance(labels, Mapping):
        raise GCFCPError("labels must be given as {client: labels}, for every client and no other")
    if len(labels) != len(names):
        raise GCFCPError(
            f"there are labels of {len(labels)} clients for {len(names)} clients: give the labels "
            "of every client"
        )
    return list(labels)


def _groups(groups: Any, membership: Any) -> Groups:
    """The given groups. If there are none, the columns of the matrix are "G1", "G2" and so on."""
    if isinstance(groups, Groups):
        return groups
    if groups is not None:
        return Groups(groups)
    shape = np.shape(membership)
    if len(shape) != 2 or not shape[1]:
        raise GCFCPError(
            f"membership has shape {shape}: give a matrix (n, G) with one row for each record and "
            "one column for each group"
        )
    return Groups([f"G{g}" for g in range(1, shape[1] + 1)])


def _client(name: str, groups: Groups, scores: Any, membership: Any, labels: Any) -> _Client:
    """One client with its scores, memberships and labels checked."""
    values = checks.vector(f"the scores of {name}", scores)
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
            f"the labels of {name} are not {len(values)} whole numbers from 0: give one for each "
            "record"
        )
    return _Client(name, values, matrix, own.astype(np.int64))


def _label_counts(fed: _Federation) -> Ints:
    """How many records each client has of each label, (K, L)."""
    for c in fed.clients:
        if c.labels is None:
            raise GCFCPError(
                f"{c.name} has no labels, which importance weights need: give (scores, "
                "membership, labels) triples, or the argument labels"
            )
    L = max(int(c.labels.max()) + 1 for c in fed.clients if c.labels is not None)
    return np.array([np.bincount(c.labels, minlength=L) for c in fed.clients])  # type: ignore[arg-type]


# --- Thresholds and tables -----------------------------------------------------------------------


def _group_quantiles(fed: _Federation, weights: Floats, test: float, alpha: Fraction) -> Floats:
    """The threshold of each group by itself, (G,), for these weights of all records."""
    return np.array(
        [quantile(fed.scores[own], weights[own], test, alpha) for own in fed.membership.T]
    )


def _only_group(problem: Problem) -> float:
    """The threshold of a problem whose family has a single group."""
    core = problem.coreset
    return quantile(core.values, core.weights, core.test, problem.alpha)


def _constant(fed: _Federation, alpha: Fraction, threshold: float) -> ThresholdTable:
    """The table that gives every row the same threshold."""
    atoms = find_atoms(fed.membership).membership
    return ThresholdTable.by_rule(fed.groups, alpha, atoms, Constant(threshold))


def _by_group(fed: _Federation, alpha: Fraction, by_group: Floats, rule: str) -> ThresholdTable:
    """The table that gives a row a threshold of its groups, by the rule "first" or "max"."""
    return ThresholdTable.by_rule(fed.groups, alpha, fed.atoms, ByGroup(rule, by_group))


def _calibrated(
    method: str,
    fed: _Federation,
    calibration: Calibration,
    told: Sequence[ClientSummary],
    mixture: Any,
) -> Result:
    """The result of a method that ends in a calibration. `told` is what the clients sent."""
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
    """The result of a method, with its provenance; it warns if some threshold is infinite."""
    provenance = {
        "method": method,
        "alpha": float(table.alpha),
        "mixture": fed.mixture(mixture),
        "clients": [{"client": c.name, "n": len(c.scores)} for c in fed.clients],
        "values_sent": sent.values,
        "bytes_sent": sent.bytes,
    }
    if calibration is None:  # A calibration has given this warning already.
        _warn_of_infinite(method, fed, table)
    return Result(method, table, sent, problem, provenance, calibration)


def _warn_of_infinite(method: str, fed: _Federation, table: ThresholdTable) -> None:
    """Warn if the threshold of a group, or the one threshold of all rows, is infinite."""
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
            f"{method} has no finite threshold for {', '.join(short)}: there are too few records, "
            f"or too many scores of +inf, for alpha={float(table.alpha):g} (number of clients: "
            f"{len(fed.clients)}); gather more records or give a larger alpha",
            GCFCPWarning,
            stacklevel=4,
        )
