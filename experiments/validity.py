"""Does the promise hold? Coverage of thousands of random federations, computed, not sampled.

    python -m experiments.validity -o experiments/results/validity

A federation is drawn at random: clients, their sizes, the mixture, how likely each atom is and how
scores are distributed there (normal, or normal and rounded, so that there are ties), alpha, delta.
Given thresholds, the coverage of a group is then a formula. The promise is about its average over
calibrations, which is estimated: each federation is calibrated some times, those that look worst
again and more often, and the worst of those once more. Every round uses fresh draws, so the last
one is not biased by the choice: where a promise holds, its z scores are those of chance.

deficit = promised - average coverage; z = deficit / its standard error. The table has one row for
each configuration: the way groups lie, rule, representative, merge, min_count. What is promised is
1 - alpha with `upper`, and the certified bound of each calibration with `mean`.

Cost: 5 ms a calibration; 10,000 federations take a quarter of an hour of one core.
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
"""Of the federations of each configuration: the share of the last round's worst that go on, and
how often each is calibrated."""

FAMILIES = ("disjoint", "overlapping")
RULES = ("simultaneous", "max")
REPRESENTATIVES: tuple[Representative, ...] = ("upper", "mean")
MERGES = ("pool", "recompress", "region")  # region: two clients behind an aggregator
MIN_COUNTS = (1, 4)
NAMES = ["a", "b", "c", "d"]
_LEAST_ERROR = 1e-3  # of one calibration: a coverage that did not move in six is no certainty


@dataclass(frozen=True)
class Configuration:
    """What a row of the table is about."""

    family: str
    rule: str
    representative: Representative
    merge: str
    min_count: int

    @property
    def claim(self) -> str:
        """On what ground the promise stands, as `Guarantee` says."""
        if self.family == "disjoint" or self.rule == "max":
            return "proved" if self.representative == "upper" else "paper's argument"
        return "measured"


CONFIGURATIONS = [
    Configuration(*parts)
    for parts in itertools.product(FAMILIES, RULES, REPRESENTATIVES, MERGES, MIN_COUNTS)
]


@dataclass(frozen=True)
class Federation:
    """A random federation whose distributions are known."""

    configuration: Configuration
    seed: int
    alpha: float
    delta: float
    membership: NDArray[np.bool_]  # (a, G)
    sizes: tuple[int, ...]
    mixture: str | dict[str, float]
    atoms: Floats  # (K, a): how likely each atom is
    mean: Floats  # (K, a)
    spread: Floats  # (K, a)
    grain: float  # scores are rounded to multiples of it; 0: they are not

    @classmethod
    def draw(cls, configuration: Configuration, seed: int) -> Federation:
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
        """P(covered | G) of each group under the mixture, exactly."""
        from scipy.special import ndtr

        t = thresholds
        if self.grain:  # a score is at most t iff it was below the next multiple's half
            t = (np.floor(thresholds / self.grain) + 0.5) * self.grain
        weight = self.shares[:, None] * self.atoms
        covered = weight * ndtr((t - self.mean) / self.spread)
        found: Floats = (covered @ self.membership).sum(axis=0) / (weight @ self.membership).sum(
            axis=0
        )
        return found

    @property
    def shares(self) -> Floats:
        """pi_k of every client, those behind an aggregator included."""
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
        """Coverage of each group less what is promised, for one calibration drawn with `rng`."""
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
        refused = np.full(len(groups), self.alpha)  # nobody gets less than all
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
    if kind == "disjoint":
        return np.eye(int(rng.integers(1, 5)), dtype=bool)
    G = int(rng.integers(2, 5))
    every = np.array(list(itertools.product([False, True], repeat=G)))[1:]
    some = rng.permutation(every)[: int(rng.integers(G, min(len(every), 6) + 1))]
    if rng.random() < 0.5:
        some[:, 0] = True  # a group of everyone
    some[~some.any(axis=1), 0] = True
    some = np.unique(some, axis=0)
    columns: NDArray[np.bool_] = some[:, some.any(axis=0)]
    return columns


@dataclass(frozen=True)
class Measured:
    """The worst group of one federation."""

    federation: Federation
    group: int
    deficit: float
    error: float
    calibrations: int

    @property
    def z(self) -> float:
        return self.deficit / self.error if self.error else math.copysign(math.inf, self.deficit)


def measure(federation: Federation, calibrations: int, number: int) -> Measured:
    """The group with the largest z over fresh calibrations; `number` of the round seeds them."""
    rng = np.random.default_rng([2026, federation.seed, number])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)  # +inf is a fair answer here
        excess = np.array([federation.excess(rng) for _ in range(calibrations)])
    mean = excess.mean(axis=0)
    error = excess.std(axis=0, ddof=1) / math.sqrt(calibrations)
    error = np.maximum(error, _LEAST_ERROR / calibrations)
    g = int(np.argmax(-mean / error))
    return Measured(federation, g, float(-mean[g]), float(error[g]), calibrations)


@dataclass(frozen=True)
class Row:
    """One configuration: how many were looked at, and the worst of those looked at most closely."""

    family: str
    rule: str
    representative: str
    merge: str
    min_count: int
    claim: str
    federations: int
    calibrations: int
    below: int  # federations of the last round with a deficit above 3 standard errors
    deficit: float
    error: float
    z: float
    alpha: float
    delta: float
    sizes: tuple[int, ...]
    seed: int


def study(configuration: Configuration, federations: int, first: int) -> Row:
    """All rounds of one configuration."""
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
    """The study as Markdown."""
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", default="validity", help="directory of the table")
    parser.add_argument("--federations", type=int, default=10_080, help="in all")
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
