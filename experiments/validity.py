"""Does the promise hold? The coverage of thousands of random federations, computed exactly.

    python -m experiments.validity -o experiments/results/validity

`federations` draws the federations. For given thresholds, the coverage of a group is a formula. The
promise is about the average of this coverage over calibrations, which has to be estimated. Each
federation is calibrated a few times. Those that look worst are calibrated again and more often, and
the worst of those once more. Every round uses fresh draws, so the choice does not bias the last
round: where a promise holds, its z scores are those of chance.

Here deficit = promised coverage - average coverage, and z = deficit / its standard error. A table
has one row for each configuration. With `upper` the promised coverage is 1 - alpha. With `mean` it
is the certified bound of each calibration.

| part       | what it asks                                                                   |
|------------|--------------------------------------------------------------------------------|
| `sharp`    | Is the promise kept with the least weight of the test point that is proved?    |
| `half`     | Would the same search notice it if the weight were half of that?               |
| `by hand`  | The same in federations that were made so that nothing is to spare.            |
| `paper`    | Is the promise kept with the paper's weight?                                   |
| `excess`   | By how much is coverage above 1 - alpha, in 20 sites of 200 records?           |
| `small`    | 1,000 clients of 5 records, and 20 sites of 100 records that are groups.       |

Cost: about 13 ms for a calibration. All parts take 52 minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

import gcfcp
from experiments import tables
from experiments.federations import (
    NAMES,
    Configuration,
    Constructed,
    Federation,
    Outcome,
    constructed,
)
from gcfcp import codec
from gcfcp.calibration import problem
from gcfcp.checks import Representative
from gcfcp.thresholds import Simultaneous

Floats = NDArray[np.float64]

ROUNDS = ((1.0, 4), (0.05, 60), (0.25, 400))
"""The rounds: the share of the federations (the worst of the round before) that take part, and how
often each of them is calibrated."""

BY_HAND = 600
"""How often each federation that was made by hand is calibrated."""

RULES = ("simultaneous", "max")
MERGES = ("pool", "recompress", "region")  # With "region", an aggregator merges two clients.
FAMILIES = (
    "disjoint",
    "overlapping",
    "partitions",
    "windows",
    "crossing 3",
    "crossing 4",
    "crossing 5",
    "sites",
    "absent",
    "tight",
)
_REPRESENTATIVES: tuple[Representative, ...] = ("upper", "mean")
# How the records are sent: (merge, min_count, digests).
_TREATMENTS = (
    ("pool", 1, "every score"),
    ("pool", 1, "coarse"),
    ("pool", 4, "any"),
    ("region", 1, "any"),
)
# The smallest standard error that is assumed for one calibration. Coverage that was the same in six
# calibrations need not be the same in all.
_LEAST_ERROR = 1e-3

PAPER = [
    Configuration(*parts)
    for parts in itertools.product(
        ("disjoint", "overlapping"), RULES, _REPRESENTATIVES, MERGES, (1, 4)
    )
]
SHARP = [
    Configuration(family, rule, "upper", merge, min_count, "sharp", digests)
    for family, rule, (merge, min_count, digests) in itertools.product(FAMILIES, RULES, _TREATMENTS)
    if (family, min_count) != ("tight", 4)  # Clients of two records would be hidden altogether.
]


@contextmanager
def test_weight_times(factor: float) -> Iterator[None]:
    """Multiply the weight of the test point by a factor, to see what a wrong weight does."""
    # Its weight is the same in all atoms of a group, or found atom by atom.
    module, rule = cast(Any, problem), cast(Any, Simultaneous)
    alike, by_atom = module.charged_weights, rule._least_weights

    def scaled(*arguments: Any) -> Any:
        found = alike(*arguments)
        if found.charge is not None:
            return found
        return replace(found, most=found.most * factor, least=found.least * factor)

    module.charged_weights = scaled
    rule._least_weights = lambda self, rows: factor * by_atom(self, rows)
    try:
        yield
    finally:
        module.charged_weights, rule._least_weights = alike, by_atom


# --- random federations --------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """What was measured for the worst group of one federation."""

    federation: Federation
    group: int
    deficit: float
    error: float
    calibrations: int
    mean_excess: float  # Over all groups and calibrations.
    statuses: frozenset[str]
    gamma: float

    @property
    def z(self) -> float:
        """The deficit in standard errors."""
        return self.deficit / self.error if self.error else math.copysign(math.inf, self.deficit)


def measure(federation: Federation, calibrations: int, number: int) -> Measured:
    """The group with the largest z over fresh calibrations.

    number: The number of the round, which is part of the seed.
    """
    rng = np.random.default_rng([2026, federation.seed, number])
    outcomes = repeated(federation.calibrated, rng, calibrations)
    deficit, error = _deficit(outcomes)
    g = int(np.argmax(deficit / error))
    return Measured(
        federation,
        g,
        float(deficit[g]),
        float(error[g]),
        calibrations,
        float(np.mean([o.excess.mean() for o in outcomes])),
        frozenset(o.status for o in outcomes if o.status),
        max(o.gamma for o in outcomes),
    )


def repeated(
    calibrated: Callable[[Generator], Outcome], rng: Generator, calibrations: int
) -> list[Outcome]:
    """The outcomes of this many calibrations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)  # A threshold may be +inf here.
        return [calibrated(rng) for _ in range(calibrations)]


def _deficit(outcomes: Sequence[Outcome]) -> tuple[Floats, Floats]:
    """The mean deficit of each group and its standard error, both (G,)."""
    excess = np.array([o.excess for o in outcomes])
    error = excess.std(axis=0, ddof=1) / math.sqrt(len(excess))
    return -excess.mean(axis=0), np.maximum(error, _LEAST_ERROR / len(excess))


@dataclass(frozen=True)
class Row:
    """One configuration: how much was calibrated, and the worst federation of the last round."""

    family: str
    rule: str
    representative: str
    merge: str
    min_count: int
    correction: str
    digests: str
    claim: str  # The weakest ground of the promise, in the words of `Guarantee`.
    gamma: float  # The largest imbalance that was charged for.
    federations: int
    calibrations: int
    compared: int  # How many groups were compared in the last round, over all its federations.
    below: int  # How many federations of the last round have a deficit above 3 standard errors.
    deficit: float
    error: float
    z: float
    mean_excess: float  # The mean over-coverage of all groups of all federations.
    alpha: float
    delta: float
    clients: int
    sizes: tuple[int, ...]
    seed: int
    seconds: float
    by: str = "atom"
    shape: str = "none"
    confidence: float | None = None


@dataclass(frozen=True)
class Searched:
    """What all rounds found among some federations."""

    found: list[Measured]  # The federations of the last round.
    claim: str  # The weakest ground of the promise, in the words of `Guarantee`.
    gamma: float  # The largest imbalance that was charged for.
    calibrations: int
    mean_excess: float  # The mean over-coverage of all groups of all federations.

    @property
    def worst(self) -> Measured:
        """The federation of the last round with the largest z."""
        return max(self.found, key=lambda m: m.z)

    @property
    def compared(self) -> int:
        """How many groups were compared in the last round."""
        return sum(len(m.federation.groups) for m in self.found)

    @property
    def below(self) -> int:
        """How many federations of the last round have a deficit above 3 standard errors."""
        return sum(m.z > 3 for m in self.found)


def search(chosen: Sequence[Federation]) -> Searched:
    """Run all rounds, each with the worst federations of the one before."""
    done = 0
    found: list[Measured] = []
    statuses: frozenset[str] = frozenset()
    excess = 0.0
    gamma = 1.0
    for number, (share, calibrations) in enumerate(ROUNDS):
        if number:
            found.sort(key=lambda m: -m.z)
            chosen = [m.federation for m in found[: max(2, math.ceil(share * len(found)))]]
        found = [measure(f, calibrations, number) for f in chosen]
        if not number:
            excess = float(np.mean([m.mean_excess for m in found]))
        statuses = statuses.union(*(m.statuses for m in found))
        gamma = max(gamma, *(m.gamma for m in found))
        done += calibrations * len(chosen)
    return Searched(found, _weakest(statuses), gamma, done, excess)


def study(configuration: Configuration, federations: int, first: int, factor: float = 1.0) -> Row:
    """Run all rounds of one configuration. The federations have the seeds from `first` on.

    factor: By what the weight of the test point is multiplied.
    """
    started = time.process_time()
    with test_weight_times(factor):
        made = search([Federation.draw(configuration, first + i) for i in range(federations)])
    worst = made.worst
    f = worst.federation
    return Row(
        **asdict(configuration),
        claim=made.claim if factor == 1 else "none: the weight is too small",
        gamma=made.gamma,
        federations=federations,
        calibrations=made.calibrations,
        compared=made.compared,
        below=made.below,
        deficit=worst.deficit,
        error=worst.error,
        z=worst.z,
        mean_excess=made.mean_excess,
        alpha=f.alpha,
        delta=f.delta,
        clients=len(f.sizes),
        sizes=f.sizes,
        seed=f.seed,
        seconds=time.process_time() - started,
    )


def _weakest(statuses: frozenset[str]) -> str:
    """The weakest of these grounds."""
    for status in ("measured", "proved under the paper's argument"):
        if status in statuses:
            return status
    return "proved"


# --- federations that were made by hand ----------------------------------------------------------


@dataclass(frozen=True)
class ByHand:
    """One federation that was made by hand, with the whole weight of the test point or half."""

    name: str
    rule: str
    factor: float
    alpha: float
    calibrations: int
    deficit: float
    error: float
    z: float


def by_hand(case: Constructed, rule: str, factor: float, calibrations: int) -> ByHand:
    """Calibrate a federation that was made by hand, with fresh draws."""
    rng = np.random.default_rng([2026, case.clients, case.each])
    with test_weight_times(factor):
        outcomes = repeated(lambda r: case.calibrated(r, rule), rng, calibrations)
    deficit, error = (float(x[0]) for x in _deficit(outcomes))
    z = deficit / error
    return ByHand(case.name, rule, factor, case.alpha, calibrations, deficit, error, z)


# --- over-coverage -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Excess:
    """How far coverage is above 1 - alpha in one group of 20 sites with 200 records each."""

    groups: str
    rule: str
    weight: str  # "sharp", "paper", or "none" for a test point that weighs next to nothing.
    group: str
    share: float  # The group's share of the records.
    excess: float
    error: float


def over_coverage(kind: str, rule: str, weight: str, calibrations: int) -> list[Excess]:
    """The mean excess of each group; `kind` is "disjoint" or "crossing"."""
    rng = np.random.default_rng([2026, 4])
    K, alpha = 20, 0.1
    if kind == "disjoint":
        membership, p = np.eye(5, dtype=bool), np.array([0.1, 0.15, 0.2, 0.25, 0.3])
    else:  # Everyone, and three attributes of 50 %, 20 % and 10 % that cross.
        membership = np.array(list(itertools.product([True], *[[False, True]] * 3)))
        marginal = np.array([0.5, 0.2, 0.1])
        p = np.where(membership[:, 1:], marginal, 1 - marginal).prod(axis=1)
    a = len(p)
    configuration = Configuration(
        kind, rule, "upper", "pool", 1, "paper" if weight == "paper" else "sharp", "every score"
    )
    federation = Federation(
        configuration,
        0,
        alpha,
        4 * 200 + 4,
        membership,
        (200,) * K,
        "proportional",
        np.broadcast_to(p, (K, a)),
        rng.normal(0, 0.3, (K, 1)) + rng.normal(0, 0.5, a),
        np.ones((K, a)),
        0.0,
    )
    draws = np.random.default_rng([2026, 5])
    with test_weight_times(1e-6 if weight == "none" else 1.0):
        outcomes = repeated(federation.calibrated, draws, calibrations)
    deficit, error = _deficit(outcomes)
    return [
        Excess(kind, rule, weight, NAMES[g], float(p @ membership[:, g]), -d, float(e))
        for g, (d, e) in enumerate(zip(deficit.tolist(), error, strict=True))
    ]


# --- many small clients, and sites as groups -----------------------------------------------------


@dataclass(frozen=True)
class Small:
    """One group of a federation of many small clients, over all of its calibrations."""

    case: str
    rule: str
    correction: str
    group: str
    records: float  # The mean number of records of the group.
    calibrations: int
    infinite: float  # The share of the calibrations in which some row of the group is infinite.
    coverage: float
    error: float
    promised: float


def thousand_clients(rng: Generator) -> Federation:
    """1,000 clients of 5 records; everyone and attributes of 50 %, 25 %, 10 % and 3 %."""
    membership = np.array(list(itertools.product([True], *[[False, True]] * 4)))
    marginal = np.array([0.5, 0.25, 0.1, 0.03])
    p = np.where(membership[:, 1:], marginal, 1 - marginal).prod(axis=1)
    K, a = 1000, len(p)
    atoms = np.array([rng.dirichlet(200 * p) for _ in range(K)])
    return Federation(
        Configuration("crossing", "simultaneous", "upper", "pool", 1, "sharp", "every score"),
        0,
        0.1,
        250.0,
        membership,
        (5,) * K,
        "proportional",
        atoms,
        rng.normal(0, 0.5, (K, 1)) + rng.normal(0, 0.5, a),
        np.ones((K, a)),
        0.0,
    )


def sites_as_groups(rng: Generator) -> Federation:
    """20 sites of 100 records; everyone is a group, and so is every site."""
    K = 20
    return Federation(
        Configuration("sites", "simultaneous", "upper", "pool", 1, "sharp", "every score"),
        0,
        0.1,
        250.0,
        np.ones((1, 1), dtype=bool),
        (100,) * K,
        "proportional",
        np.ones((K, 1)),
        rng.normal(0, 1, (K, 1)),
        np.exp(rng.uniform(-0.5, 0.5, (K, 1))),
        0.0,
    )


def small(
    case: str, federation: Federation, rule: str, correction: str, calibrations: int
) -> list[Small]:
    """How each group of this federation fares."""
    c = replace(federation.configuration, rule=rule, correction=correction)
    f = replace(federation, configuration=c)
    rng = np.random.default_rng([2026, 6])
    rows = f.rows if c.family == "sites" else f.membership
    flat = rows.reshape(-1, rows.shape[-1])
    coverage, infinite, records = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        for _ in range(calibrations):
            made = gcfcp.calibrate(
                f.summaries(rng), f.alpha, f.mixture, rule=rule, correction=correction
            )
            thresholds = made.thresholds(flat)
            coverage.append(f.coverage(thresholds.reshape(rows.shape[:-1])))
            infinite.append(np.where(flat, np.isinf(thresholds)[:, None], False).any(axis=0))
            records.append([g.records for g in made.guarantee])
    mean, error = np.mean(coverage, axis=0), np.std(coverage, axis=0, ddof=1)
    return [
        Small(
            case,
            rule,
            correction,
            name,
            float(np.mean(records, axis=0)[g]),
            calibrations,
            float(np.mean(infinite, axis=0)[g]),
            float(mean[g]),
            float(error[g] / math.sqrt(calibrations)),
            1 - f.alpha,
        )
        for g, name in enumerate(f.groups.names)
    ]


# --- the page ------------------------------------------------------------------------------------


def largest_by_chance(comparisons: int) -> tuple[float, float]:
    """The median of the largest of this many standard normal numbers, and its 99 % quantile."""
    normal = NormalDist()
    return (
        -normal.inv_cdf(1 - 0.5 ** (1 / comparisons)),
        -normal.inv_cdf(1 - 0.99 ** (1 / comparisons)),
    )


def _random_table(rows: Sequence[Row]) -> str:
    """One line for each configuration."""
    shown: dict[str, Callable[[Row], Any]] = {
        "groups": lambda r: r.family,
        "rule": lambda r: r.rule,
        "representative": lambda r: r.representative,
        "merge": lambda r: r.merge,
        "min_count": lambda r: r.min_count,
        "digests": lambda r: r.digests,
        "claim": lambda r: r.claim,
        "gamma": lambda r: f"{r.gamma:.3g}",
        "federations": lambda r: r.federations,
        "worst deficit": lambda r: f"{r.deficit:+.4f}",
        "error": lambda r: f"{r.error:.4f}",
        "z": lambda r: f"{r.z:+.1f}",
        "mean excess": lambda r: f"{r.mean_excess:.3f}",
        "alpha": lambda r: f"{r.alpha:g}",
        "delta": lambda r: f"{r.delta:g}",
        "clients": lambda r: r.clients,
        "records": lambda r: sum(r.sizes),
    }
    return tables.markdown(list(shown), [[show(r) for show in shown.values()] for r in rows])


def page(results: dict[str, list[Any]], seconds: float) -> str:
    """The results as a Markdown page."""
    sharp, half, paper = results["sharp"], results["half"], results["paper"]
    proved = [r for r in sharp if r.claim == "proved"]
    compared = sum(r.compared for r in proved)
    usual, most = largest_by_chance(compared)
    largest = max(r.z for r in proved)
    found = [r for r in half if r.z > 3]
    families = dict.fromkeys(r.family for r in found)
    first = results["by_hand"][0].name
    halves = [h for h in results["by_hand"] if h.factor < 1 and h.name != first]
    lines = [
        "# Is the promise kept? Random federations, coverage computed exactly",
        "",
        "    python -m experiments.validity -o experiments/results/validity",
        "",
        f"{sum(r.calibrations for r in sharp + half + paper):,} calibrations of random "
        f"federations; {seconds / 60:.0f} minutes of processor time for the whole page. The module "
        "says what is drawn and how the worst are singled out.",
        "",
        "deficit: promised less average coverage of the worst group of the worst federation, from "
        f"{ROUNDS[-1][1]:,} fresh calibrations; negative: the promise is exceeded. error: its "
        "standard error. z: deficit by error. mean excess: coverage less promise, mean over all "
        "groups and federations. claim: what `Guarantee` says, the weakest of the row. Promised is "
        "1 - alpha with `upper`, the certified bound with `mean`. clients, records: those of the "
        "worst federation.",
        "",
        "## The sharp correction",
        "",
        f"{sum(r.federations for r in sharp):,} federations. The largest z of the "
        f"{len(proved)} rows that are proved is {largest:+.1f}. In the last round {compared:,} "
        "groups were compared. If every one of them had a coverage of exactly 1 - alpha, the "
        f"largest of as many independent z scores would be {usual:.1f} (median), and above "
        f"{most:.1f} in one of a hundred studies.",
        "",
        _random_table(sharp),
        "## The same search with half the weight of the test point",
        "",
        f"{sum(r.federations for r in half):,} federations. {len(found)} of {len(half)} rows have "
        f"a deficit above 3 standard errors, in the families {', '.join(families) or 'none'}; the "
        f"largest z is {max(r.z for r in half):.1f}, the largest deficit "
        f"{max(r.deficit for r in half):.4f}. In these families the search notices a weight that "
        "is too small by half. In the others it does not: most random federations of small clients "
        "have something to spare, because a threshold is one of few scores. For these families the "
        "ground of the promise is the proof, and the table above says only that nothing "
        "contradicts it.",
        "",
        _random_table(half),
        "## Federations that were made by hand",
        "",
        "One group; the mixture is in proportion to the records. In the first nothing is to spare "
        "with the whole weight: by a formula its coverage is 0.90007. (Half the weight asks for "
        "the same rank there.) The others have no finite threshold with the whole weight. With "
        f"half of it {sum(h.z > 3 for h in halves)} of {len(halves)} fall short by more than 3 "
        "standard errors.",
        "",
        _by_hand_table(results["by_hand"]),
        "## Over-coverage",
        "",
        "20 sites of 200 records, alpha 0.1, groups of 10 % of the records or more. Excess is the "
        "average coverage less 0.9, by group. With the weight `none` the test point weighs next to "
        "nothing: what is left then is due to the rule, because with the rule max a row in several "
        "groups gets the largest of their thresholds.",
        "",
        _excess_table(results["excess"]),
        "## Many small clients, and sites as groups",
        "",
        "1,000 clients of 5 records with five overlapping groups, and 20 sites of 100 records with "
        "everyone and every site as a group; alpha 0.1, mixture in proportion to the records. "
        "infinite: the share of calibrations in which a row of the group has no finite threshold.",
        "",
        _small_table(results["small"]),
        "## The paper's correction",
        "",
        f"{sum(r.federations for r in paper):,} federations of at most five clients.",
        "",
        _random_table(paper),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _by_hand_table(rows: Sequence[ByHand]) -> str:
    """One line for each federation, rule and weight."""
    return tables.markdown(
        ["federation", "rule", "weight", "alpha", "calibrations", "deficit", "error", "z"],
        [
            (
                h.name,
                h.rule,
                f"{h.factor:g}",
                f"{h.alpha:g}",
                f"{h.calibrations:,}",
                f"{h.deficit:+.5f}",
                f"{h.error:.5f}",
                f"{h.z:+.1f}",
            )
            for h in rows
        ],
    )


def _excess_table(rows: Sequence[Excess]) -> str:
    """Groups below each other, weights side by side."""
    by_weight: dict[tuple[str, str, str, float], dict[str, Excess]] = {}
    for e in rows:
        by_weight.setdefault((e.groups, e.rule, e.group, e.share), {})[e.weight] = e
    weights = list(dict.fromkeys(e.weight for e in rows))
    return tables.markdown(
        ["groups", "rule", "group", "share", *weights],
        [
            (
                kind,
                rule,
                group,
                f"{share:.0%}",
                *(f"{own[w].excess:+.4f} ± {own[w].error:.4f}" for w in weights),
            )
            for (kind, rule, group, share), own in by_weight.items()
        ],
    )


def _small_table(rows: Sequence[Small]) -> str:
    """One line for each group; of the sites, one line for the lowest and one for the highest."""
    shown: list[Small] = []
    for _, own in itertools.groupby(rows, key=lambda s: (s.case, s.rule, s.correction)):
        members = list(own)
        sites = [s for s in members if s.group.startswith("site ")]
        shown += [s for s in members if s not in sites]
        if sites:
            sites.sort(key=lambda s: s.coverage)
            shown += [replace(sites[0], group=f"the lowest of {len(sites)} sites")]
            shown += [replace(sites[-1], group=f"the highest of {len(sites)} sites")]
    return tables.markdown(
        (
            "federation",
            "rule",
            "correction",
            "group",
            "records",
            "calibrations",
            "infinite",
            "coverage",
        ),
        [
            (
                s.case,
                s.rule,
                s.correction,
                s.group,
                f"{s.records:,.0f}",
                f"{s.calibrations:,}",
                f"{s.infinite:.0%}",
                f"{s.coverage:.4f} ± {s.error:.4f}",
            )
            for s in shown
        ],
    )


# --- the command ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A call that a worker process makes: a function of this module and its arguments."""

    part: str
    function: str
    arguments: tuple[Any, ...]


def tasks(scale: float) -> list[Task]:
    """All calls of the study. With `scale` below 1 everything is repeated less often."""

    def times(number: int) -> int:
        return max(2, math.ceil(scale * number))

    found = []
    for part, configurations, federations, factor in (
        ("sharp", SHARP, 130, 1.0),
        ("half", [c for c in SHARP if c.merge == "pool" and c.min_count == 1], 60, 0.5),
        ("paper", PAPER, 42, 1.0),
    ):
        each = times(federations)
        first = {"sharp": 0, "half": 0, "paper": 1_000_000}[part]
        found += [
            Task(part, "study", (c, each, first + i * 1000, factor))
            for i, c in enumerate(configurations)
        ]
    found += [
        Task("by_hand", "by_hand", (case, rule, factor, times(BY_HAND)))
        for case in constructed()
        for rule in RULES
        for factor in (1.0, 0.5)
    ]
    found += [
        Task("excess", "over_coverage", (kind, rule, weight, times(600)))
        for kind in ("disjoint", "crossing")
        for rule in RULES
        for weight in ("sharp", "paper", "none")
    ]
    rng = np.random.default_rng([2026, 7])
    for case, federation, calibrations in (
        ("1,000 clients of 5", thousand_clients(rng), 40),
        ("20 sites of 100", sites_as_groups(rng), 400),
    ):
        found += [
            Task("small", "small", (case, federation, rule, "sharp", times(calibrations)))
            for rule in RULES
        ]
        found.append(Task("small", "small", (case, federation, RULES[0], "paper", times(10))))
    return found


def perform(task: Task) -> tuple[list[Any], float]:
    """What a task finds, and the seconds of processor time that it took."""
    started = time.process_time()
    made = globals()[task.function](*task.arguments)
    return made if isinstance(made, list) else [made], time.process_time() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, and write validity.md and validity.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", default="validity", help="directory for the tables")
    parser.add_argument("--scale", type=float, default=1.0, help="less than 1 for a shorter study")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    options = parser.parse_args(arguments)
    todo = tasks(options.scale)
    results: dict[str, list[Any]] = {}
    seconds = 0.0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, context) as pool:
        for i, (task, (found, spent)) in enumerate(zip(todo, pool.map(perform, todo), strict=True)):
            results.setdefault(task.part, []).extend(found)
            seconds += spent
            print(f"{i + 1} of {len(todo)}, {spent:.0f} s: {found[0]}", flush=True)
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    plain = {part: [asdict(r) for r in rows] for part, rows in results.items()}
    text = json.dumps({"seconds": seconds, **plain}, indent=1)
    codec.write(folder / "validity.json", (text + "\n").encode())
    codec.write(folder / "validity.md", page(results, seconds).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
