"""Does the promise hold? The coverage of thousands of random federations, computed exactly.

    python -m experiments.validity -o experiments/results/validity

Everything about a federation is drawn at random: the number of clients, their sizes, the mixture,
alpha, delta, the probability of each atom at each client, and the distribution of its scores.
Scores are normal, or normal and rounded, so that there are ties. For given thresholds, the coverage
of a group is then a formula.

The promise is about the average of this coverage over calibrations, which has to be estimated. Each
federation is calibrated a few times. Those that look worst are calibrated again and more often, and
the worst of those once more. Every round uses fresh draws, so the choice does not bias the last
round: where a promise holds, its z scores are those of chance.

Here deficit = promised coverage - average coverage, and z = deficit / its standard error. The table
has one row for each configuration: whether groups overlap, rule, representative, merge, min_count.
With `upper` the promised coverage is 1 - alpha. With `mean` it is the certified bound of each
calibration.

Cost: 5 ms for a calibration. 10,000 federations take a quarter of an hour on one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

import gcfcp
from gcfcp import codec
from gcfcp.checks import Representative

Floats = NDArray[np.float64]

ROUNDS = ((1.0, 6), (0.04, 100), (0.2, 800))
"""The rounds: the share of the federations (the worst of the round before) that take part, and how
often each of them is calibrated."""

FAMILIES = ("disjoint", "overlapping")
RULES = ("simultaneous", "max")
REPRESENTATIVES: tuple[Representative, ...] = ("upper", "mean")
MERGES = ("pool", "recompress", "region")  # With "region", an aggregator merges two clients.
MIN_COUNTS = (1, 4)
NAMES = ["a", "b", "c", "d"]
# The smallest standard error that is assumed for one calibration. Coverage that was the same in six
# calibrations need not be the same in all.
_LEAST_ERROR = 1e-3


@dataclass(frozen=True)
class Configuration:
    """The options of one row of the table."""

    family: str
    rule: str
    representative: Representative
    merge: str
    min_count: int

    @property
    def claim(self) -> str:
        """On what ground the promise stands, in the words of `Guarantee`."""
        if self.family == "disjoint" or self.rule == "max":
            return "proved" if self.representative == "upper" else "paper's argument"
        return "measured"


CONFIGURATIONS = [
    Configuration(*parts)
    for parts in itertools.product(FAMILIES, RULES, REPRESENTATIVES, MERGES, MIN_COUNTS)
]


@dataclass(frozen=True)
class Federation:
    """A random federation with K clients, a atoms and G groups, whose distributions are known."""

    configuration: Configuration
    seed: int
    alpha: float
    delta: float
    membership: NDArray[np.bool_]  # (a, G): The groups of each atom.
    sizes: tuple[int, ...]  # (K,): The number of records of each client.
    mixture: str | dict[str, float]
    atoms: Floats  # (K, a): The probability of each atom at each client.
    mean: Floats  # (K, a): The mean of the scores.
    spread: Floats  # (K, a): The standard deviation of the scores.
    grain: float  # Scores are rounded to multiples of this number; they are not if it is 0.

    @classmethod
    def draw(cls, configuration: Configuration, seed: int) -> Federation:
        """The random federation of this seed."""
        rng = np.random.default_rng([2026, seed])
        membership = _family(configuration.family, rng)
        a = len(membership)
        K = int(rng.integers(2 if configuration.merge == "region" else 1, 6))
        sizes = np.exp(rng.uniform(np.log(4), np.log(250), K)).astype(int)
        mixture: Any = rng.choice(["uniform", "proportional", "given"])
        if mixture == "given":
            weights = rng.dirichlet(np.ones(K))
            mixture = {f"c{k}": float(w) for k, w in enumerate(weights / weights.sum())}
        if configuration.merge == "region" and isinstance(mixture, dict):
            first = {"region": mixture.pop("c0") + mixture.pop("c1")}
            mixture = first | mixture
        return cls(
            configuration,
            seed,
            float(rng.choice([0.05, 0.1, 0.2, 0.3, 0.5])),
            float(rng.choice([4, 8, 25, 250])),
            membership,
            tuple(sizes.tolist()),
            mixture if isinstance(mixture, dict) else str(mixture),
            rng.dirichlet(np.full(a, 0.7), K),
            rng.normal(0, rng.choice([0.0, 1.0, 3.0]), (K, a)),
            np.exp(rng.uniform(-1.5, 1, (K, a))),
            float(rng.choice([0.0, 0.0, 0.5])),
        )

    def coverage(self, thresholds: Floats) -> Floats:
        """The exact coverage P(covered | G) of each group under the mixture."""
        from scipy.special import ndtr

        t = thresholds
        # Let m be the largest multiple of the grain that is not above t. A rounded score is at most
        # t if and only if it was below m + grain / 2 before it was rounded.
        if self.grain:
            t = (np.floor(thresholds / self.grain) + 0.5) * self.grain
        weight = self.shares[:, None] * self.atoms
        covered = weight * ndtr((t - self.mean) / self.spread)
        found: Floats = (covered @ self.membership).sum(axis=0) / (weight @ self.membership).sum(
            axis=0
        )
        return found

    @property
    def shares(self) -> Floats:
        """pi_k of every client, also of those behind an aggregator."""
        n, K = np.array(self.sizes) + 1.0, len(self.sizes)
        region = self.configuration.merge == "region"
        if self.mixture == "uniform":
            pi = np.full(K, 1 / K)
            if region:
                pi[:2] = 2 / K * n[:2] / n[:2].sum()
        elif self.mixture == "proportional":
            pi = n / n.sum()
        else:
            assert isinstance(self.mixture, dict)
            pi = np.array([self.mixture.get(f"c{k}", 0.0) for k in range(K)])
            if region:
                pi[:2] = self.mixture["region"] * n[:2] / n[:2].sum()
        return pi

    def excess(self, rng: Generator) -> Floats:
        """The coverage of each group minus what is promised, for one calibration.

        `rng` draws the records.
        """
        c = self.configuration
        groups = gcfcp.Groups(NAMES[: self.membership.shape[1]])
        summaries = []
        for k, n in enumerate(self.sizes):
            atom = rng.choice(len(self.membership), size=n, p=self.atoms[k])
            scores = rng.normal(self.mean[k, atom], self.spread[k, atom])
            if self.grain:
                scores = np.rint(scores / self.grain) * self.grain
            summaries.append(
                gcfcp.summarize(
                    scores,
                    self.membership[atom],
                    groups=groups,
                    client=f"c{k}",
                    delta=self.delta,
                    representative=c.representative,
                    min_count=c.min_count,
                )
            )
        # If no client with a weight describes an atom, there is no calibration. Every set then
        # holds all outcomes, and coverage exceeds 1 - alpha by alpha.
        refused = np.full(len(groups), self.alpha)
        if c.merge == "region":
            if not any(len(s.values) for s in summaries[:2]):
                return refused
            summaries = [gcfcp.merge(summaries[:2], "region"), *summaries[2:]]
        if not any(len(s.values) and self._share(s.client) for s in summaries):
            return refused
        calibration = gcfcp.calibrate(
            summaries,
            self.alpha,
            self.mixture,
            "recompress" if c.merge == "recompress" else "pool",
            rule=c.rule,
        )
        promised = np.array([g.certified for g in calibration.guarantee])
        found: Floats = self.coverage(calibration.thresholds(self.membership)) - promised
        return found

    def _share(self, client: str) -> float:
        return self.mixture.get(client, 0.0) if isinstance(self.mixture, dict) else 1.0


def _family(kind: str, rng: Generator) -> NDArray[np.bool_]:
    """The atoms of a random family of groups, (a, G)."""
    if kind == "disjoint":
        return np.eye(int(rng.integers(1, 5)), dtype=bool)
    G = int(rng.integers(2, 5))
    every = np.array(list(itertools.product([False, True], repeat=G)))[1:]
    some = rng.permutation(every)[: int(rng.integers(G, min(len(every), 6) + 1))]
    if rng.random() < 0.5:
        some[:, 0] = True  # In half of the families the first group holds everyone.
    some[~some.any(axis=1), 0] = True
    some = np.unique(some, axis=0)
    columns: NDArray[np.bool_] = some[:, some.any(axis=0)]
    return columns


@dataclass(frozen=True)
class Measured:
    """What was measured for the worst group of one federation."""

    federation: Federation
    group: int
    deficit: float
    error: float
    calibrations: int

    @property
    def z(self) -> float:
        """The deficit in standard errors."""
        return self.deficit / self.error if self.error else math.copysign(math.inf, self.deficit)


def measure(federation: Federation, calibrations: int, number: int) -> Measured:
    """The group with the largest z over fresh calibrations.

    number: The number of the round, which is part of the seed.
    """
    rng = np.random.default_rng([2026, federation.seed, number])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)  # A threshold may be +inf here.
        excess = np.array([federation.excess(rng) for _ in range(calibrations)])
    mean = excess.mean(axis=0)
    error = excess.std(axis=0, ddof=1) / math.sqrt(calibrations)
    error = np.maximum(error, _LEAST_ERROR / calibrations)
    g = int(np.argmax(-mean / error))
    return Measured(federation, g, float(-mean[g]), float(error[g]), calibrations)


@dataclass(frozen=True)
class Row:
    """One configuration: how much was calibrated, and the worst federation of the last round."""

    family: str
    rule: str
    representative: str
    merge: str
    min_count: int
    claim: str
    federations: int
    calibrations: int
    below: int  # How many federations of the last round have a deficit above 3 standard errors.
    deficit: float
    error: float
    z: float
    alpha: float
    delta: float
    sizes: tuple[int, ...]
    seed: int


def study(configuration: Configuration, federations: int, first: int) -> Row:
    """Run all rounds of one configuration. The federations have the seeds from `first` on."""
    chosen = [Federation.draw(configuration, first + i) for i in range(federations)]
    done = 0
    found: list[Measured] = []
    for number, (share, calibrations) in enumerate(ROUNDS):
        if number:
            found.sort(key=lambda m: -m.z)
            chosen = [m.federation for m in found[: max(2, math.ceil(share * len(found)))]]
        found = [measure(f, calibrations, number) for f in chosen]
        done += calibrations * len(chosen)
    worst = max(found, key=lambda m: m.z)
    f = worst.federation
    return Row(
        **asdict(configuration),
        claim=configuration.claim,
        federations=federations,
        calibrations=done,
        below=sum(m.z > 3 for m in found),
        deficit=worst.deficit,
        error=worst.error,
        z=worst.z,
        alpha=f.alpha,
        delta=f.delta,
        sizes=f.sizes,
        seed=f.seed,
    )


def table(rows: Sequence[Row], seconds: float) -> str:
    """The results as a Markdown page."""
    total = sum(r.federations for r in rows)
    last = f"{ROUNDS[-1][1]:,}"
    lines = [
        "# Is the promise kept? Random federations, coverage computed exactly",
        "",
        f"{total:,} random federations, {sum(r.calibrations for r in rows):,} calibrations, "
        f"{seconds:.0f} s of processor time. Made by `python -m experiments.validity`; its "
        "module says what is drawn and how the worst are singled out.",
        "",
        "deficit: promised less average coverage of the worst group of the worst federation, from "
        f"{last} fresh calibrations; negative: the promise is exceeded. z: deficit by its standard "
        "error. Promised is 1 - alpha with `upper`, the certified bound with `mean`.",
        "",
        "| groups | rule | representative | merge | min_count | claim | federations "
        "| worst deficit | error | z | alpha | delta | sizes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.family} | {r.rule} | {r.representative} | {r.merge} | {r.min_count} | {r.claim} "
        f"| {r.federations} | {r.deficit:+.4f} | {r.error:.4f} | {r.z:+.1f} | {r.alpha:g} "
        f"| {r.delta:g} | {', '.join(map(str, r.sizes))} |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, and write validity.md and validity.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", default="validity", help="directory for the table")
    parser.add_argument("--federations", type=int, default=10_080, help="federations in all")
    options = parser.parse_args(arguments)
    each = max(2, options.federations // len(CONFIGURATIONS))
    start = time.process_time()
    rows = []
    for i, configuration in enumerate(CONFIGURATIONS):
        rows.append(study(configuration, each, i * each))
        print(f"{i + 1} of {len(CONFIGURATIONS)}: {rows[-1]}", flush=True)
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    seconds = time.process_time() - start
    codec.write(folder / "validity.md", table(rows, seconds).encode())
    text = json.dumps([asdict(r) for r in rows], indent=1)
    codec.write(folder / "validity.json", (text + "\n").encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
