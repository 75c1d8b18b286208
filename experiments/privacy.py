"""What a public grid and noise cost in set size, and whether the promise holds with noise.

    python -m experiments.privacy -o experiments/results/privacy

The records are simulated, so that coverage is computed and not counted. A record of site k is in
the group `all` and, each with a probability of its own, in four attributes. Its outcome is normal
around the prediction with a standard deviation that depends on its attributes and its site. The
score is the absolute residual, an interval is cut at `LONGEST` standard deviations, and its length
is its size. The 16 combinations of groups and the sites give the exact coverage of a threshold.

| part          | what it asks                                                                   |
|---------------|--------------------------------------------------------------------------------|
| `grid`        | Coverage, size and bytes on grids of 32 to 1,024 cells, beside digests of 250  |
| `noise`       | Size with epsilon 0.1 to 10, 200 to 20,000 records a site, 1 and 10 sites      |
| `together`    | Size if only the sum of 10 sites is seen, and few of them add noise            |
| `compared`    | Size with min_count, with a sum alone, and with noise, side by side            |
| `federations` | Is any group covered too little with noise, in random federations?             |
| `uncharged`   | Does the same search find it out if nothing is charged for the noise?          |

`federations` draws federations of one to five sites, two or three overlapping attributes, records
from 30 to 2,000 a site, epsilon from 0.1 to 10, by atom and by group. Each is calibrated some
times with fresh records and fresh noise, and those with the lowest mean coverage again. z is the
mean deficit in standard errors; the largest z of so many comparisons that chance gives is printed
beside it.

Noise is drawn from seeds here, so that the tables can be repeated. tests/test_noise.py compares its
law with what OpenDP draws.

Cost: at the defaults about 20 minutes on one quiet core.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

import gcfcp
from experiments.validity import largest_by_chance
from gcfcp import Grid, Groups
from gcfcp.calibration import noisy as charges
from gcfcp.noise import Noise, imitated
from gcfcp.summary import Making, counts_of, sensitivity_of, summary_from_counts

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ALPHA = 0.1
LONGEST = 8.0
"""An interval reaches at most so far to each side of the prediction."""
EPSILONS = (0.1, 0.5, 1.0, 2.0, 10.0)
RECORDS = (200, 1000, 5000, 20_000)
SITES = (1, 10)
CELLS = (8, 16, 32)
PARTS = ("grid", "noise", "together", "compared", "federations", "uncharged")
WAYS = (
    "every score",
    "min_count 10",
    "sum alone",
    "sum and epsilon 1, two add noise",
    "epsilon 1 at each site",
)
GRID_CELLS = (32, 64, 128, 256, 1024)


@dataclass(frozen=True)
class World:
    """The law of the records: who is in which group, and how the outcomes spread."""

    groups: Groups
    atoms: Bools  # (a, G): All combinations of the groups.
    shares: Floats  # (K, a): The probability of each combination at each site.
    spread: Floats  # (K, a): The standard deviation of the outcomes.

    @classmethod
    def drawn(cls, attributes: int, sites: int, rng: Generator) -> World:
        """A world with this number of attributes beside `all`."""
        names = {"all": "TRUE"} | {f"g{i}": f"x{i} > 0" for i in range(attributes)}
        bits = (np.arange(2**attributes)[:, None] >> np.arange(attributes)) & 1
        atoms = np.column_stack([np.ones(2**attributes), bits]).astype(np.bool_)
        p = rng.uniform(0.2, 0.6, size=(sites, attributes))
        shares = np.array([np.where(bits, q, 1 - q).prod(axis=1) for q in p])
        effect = rng.uniform(0, 0.6, attributes)
        spread = (1 + bits @ effect) * rng.uniform(0.8, 1.25, (sites, 1))
        return cls(Groups(names), atoms, shares, spread)

    def records(self, site: int, n: int, rng: Generator) -> tuple[Floats, Bools]:
        """Scores and memberships of n records of a site."""
        atom = rng.choice(len(self.atoms), n, p=self.shares[site])
        return np.abs(rng.normal(size=n)) * self.spread[site, atom], self.atoms[atom]

    def coverage(self, thresholds: Floats, pi: Floats) -> Floats:
        """The exact coverage of each group, (G,), under the mixture pi (K,)."""
        t = np.minimum(thresholds, 1e6)[None] / self.spread
        inside = np.vectorize(math.erf)(t / math.sqrt(2))
        weight = pi[:, None] * self.shares
        covered, whole = (weight * inside).sum(axis=0), weight.sum(axis=0)
        found: Floats = (covered @ self.atoms) / (whole @ self.atoms)
        return found

    def size(self, thresholds: Floats, pi: Floats) -> float:
        """The mean length of an interval."""
        return float((pi @ self.shares) @ (2 * np.minimum(thresholds, LONGEST)))


def noisy_summary(
    exact: gcfcp.ClientSummary, epsilon: float, rng: Generator, copies: int = 1
) -> gcfcp.ClientSummary:
    """The summary with the noise of this epsilon, drawn from a seed."""
    groups = exact.groups
    noise = Noise.of(epsilon, sensitivity_of(np.ones(len(groups), np.bool_), exact.by), copies)
    vector = counts_of(exact)
    vector[1:] += imitated(rng, noise.scale, copies, (len(vector) - 1,)).astype(np.int64)
    making = Making(groups, exact.client, score=exact.score, by=exact.by, grid=exact.grid)
    members = [name for name, _ in exact.members] if exact.is_aggregate else None
    return summary_from_counts(vector, making, members, noise)


def summaries(
    world: World, sizes: Sequence[int], rng: Generator, epsilon: float | None = None, **how: Any
) -> list[gcfcp.ClientSummary]:
    """The summaries of all sites, with noise if there is an epsilon."""
    found = []
    for k, n in enumerate(sizes):
        scores, member = world.records(k, n, rng)
        one = gcfcp.summarize(
            scores, member, groups=world.groups, client=f"s{k}", score="residual", **how
        )
        found.append(one if epsilon is None else noisy_summary(one, epsilon, rng))
    return found


def judged(world: World, made: gcfcp.Calibration, pi: Floats) -> tuple[Floats, float]:
    """The coverage of each group and the mean size."""
    thresholds = made.thresholds(world.atoms)
    return world.coverage(thresholds, pi), world.size(thresholds, pi)


def earlier(world: World, rng: Generator) -> gcfcp.Predictor:
    """Last quarter's predictor, of 1,000 other records a site, by group."""
    parts = summaries(world, [1000] * len(world.shares), rng, by="group")
    return gcfcp.Predictor(gcfcp.scores.AbsoluteResidual(), gcfcp.calibrate(parts, ALPHA))


# --- grid -----------------------------------------------------------------------------------------


def grids(cells: int, before: gcfcp.Predictor) -> dict[str, Grid]:
    """A grid of each kind with about so many cells."""
    ratio = (LONGEST / 0.01) ** (1 / (cells - 2))
    relative = (ratio - 1) / (ratio + 1)
    return {
        "uniform": Grid.uniform(0, LONGEST, cells),
        "logarithmic": Grid.logarithmic(relative, 0.01, LONGEST),
        "near": Grid.near(before, cells, low=0, high=LONGEST),
    }


def grid_part(runs: int) -> list[dict[str, Any]]:
    """Coverage, size and bytes of each grid, and of digests, over the same records."""
    rng = np.random.default_rng([2026, 1])
    world = World.drawn(4, 5, rng)
    pi = np.full(5, 0.2)
    before = earlier(world, rng)
    ways: dict[tuple[str, int], dict[str, Any]] = {("digests, delta = 250", 0): {}}
    for cells in GRID_CELLS:
        ways |= {(kind, cells): {"grid": g} for kind, g in grids(cells, before).items()}
    rows = []
    for (kind, cells), how in ways.items():
        found = []
        for run in range(runs):
            parts = summaries(world, [1000] * 5, np.random.default_rng([2026, 2, run]), **how)
            made = gcfcp.calibrate(parts, ALPHA)
            sent = sum(len(s.to_bytes()) for s in parts) / len(parts)
            found.append((*judged(world, made, pi), sent, made.guarantee[0].certified_status))
        rows.append(
            {
                "kind": kind,
                "cells": cells,
                "lowest": float(np.mean([c for c, *_ in found], axis=0).min()),
                "size": float(np.mean([s for _, s, *_ in found])),
                "bytes": float(np.mean([b for *_, b, _ in found])),
                "status": found[0][-1],
                "runs": runs,
            }
        )
        print(rows[-1], flush=True)
    return rows


# --- noise ----------------------------------------------------------------------------------------


def noise_part(runs: int) -> list[dict[str, Any]]:
    """The size with noise, for each number of records and sites, with cells near last quarter's."""
    rows = []
    for K in SITES:
        rng = np.random.default_rng([2026, 3, K])
        world = World.drawn(4, K, rng)
        pi, before = np.full(K, 1 / K), earlier(world, rng)
        for n in RECORDS:
            for cells in CELLS:
                grid = Grid.near(before, cells, low=0, high=LONGEST)
                for epsilon in (None, *EPSILONS):
                    rows.append(
                        {"sites": K, "records": n, "cells": cells, "epsilon": epsilon}
                        | _noise_row(world, pi, grid, [n] * K, epsilon, runs)
                    )
                    print(rows[-1], flush=True)
    return rows


def _noise_row(
    world: World, pi: Floats, grid: Grid, sizes: list[int], epsilon: float | None, runs: int
) -> dict[str, Any]:
    """Mean size and coverage over the runs, with the same records for every epsilon."""
    found = []
    for run in range(runs):
        rng = np.random.default_rng([2026, 4, run])
        parts = summaries(world, sizes, rng, epsilon, grid=grid)
        made = gcfcp.calibrate(parts, ALPHA, rule="max")
        found.append((*judged(world, made, pi), max(g.privacy for g in made.guarantee)))
    return {
        "lowest": float(np.mean([c for c, *_ in found], axis=0).min()),
        "size": float(np.mean([s for _, s, _ in found])),
        "privacy": float(np.mean([p for *_, p in found])),
        "runs": runs,
    }


def together_part(runs: int) -> list[dict[str, Any]]:
    """10 sites of 1,000 records whose sum alone is seen: 0, 1, 2, 3 and 10 sites add noise."""
    rng = np.random.default_rng([2026, 3, 10])
    world = World.drawn(4, 10, rng)
    pi, before = np.full(10, 0.1), earlier(world, rng)
    grid = Grid.near(before, 32, low=0, high=LONGEST)
    rows = []
    for noisy in (0, 1, 2, 3, 10):
        found = []
        for run in range(runs):
            draw = np.random.default_rng([2026, 5, run])
            whole = gcfcp.add(summaries(world, [1000] * 10, draw, grid=grid), "sum")
            if noisy:
                whole = noisy_summary(whole, 1.0, draw, noisy)
            made = gcfcp.calibrate([whole], ALPHA, rule="max", aggregates=["sum"])
            found.append(judged(world, made, pi))
        rows.append(
            {
                "noisy sites": noisy,
                "lowest": float(np.mean([c for c, _ in found], axis=0).min()),
                "size": float(np.mean([s for _, s in found])),
                "runs": runs,
            }
        )
        print(rows[-1], flush=True)
    return rows


def compared_part(runs: int) -> list[dict[str, Any]]:
    """The size at 10 sites with each kind of protection, rule max, for the same records."""
    rng = np.random.default_rng([2026, 3, 10])
    world = World.drawn(4, 10, rng)
    pi, before = np.full(10, 0.1), earlier(world, rng)
    grid = Grid.near(before, 32, low=0, high=LONGEST)

    def protected(way: str, n: int, draw: Generator) -> list[gcfcp.ClientSummary]:
        sizes = [n] * 10
        if way == "every score":
            return summaries(world, sizes, draw, delta=10**6)
        if way == "min_count 10":
            return summaries(world, sizes, draw, by="group", min_count=10)
        if way == "epsilon 1 at each site":
            return summaries(world, sizes, draw, 1.0, grid=grid)
        whole = gcfcp.add(summaries(world, sizes, draw, grid=grid), "sum")
        noise = {"sum alone": 0, "sum and epsilon 1, two add noise": 2}[way]
        return [noisy_summary(whole, 1.0, draw, noise) if noise else whole]

    rows = []
    for way in WAYS:
        for n in RECORDS:
            found = []
            for run in range(runs):
                parts = protected(way, n, np.random.default_rng([2026, 9, run]))
                made = gcfcp.calibrate(parts, ALPHA, rule="max", aggregates=["sum"])
                found.append(judged(world, made, pi))
            rows.append(
                {
                    "way": way,
                    "records": n,
                    "lowest": float(np.mean([c for c, _ in found], axis=0).min()),
                    "size": float(np.mean([s for _, s in found])),
                    "runs": runs,
                }
            )
            print(rows[-1], flush=True)
    return rows


# --- federations ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A random federation with noise."""

    seed: int
    attributes: int
    sizes: tuple[int, ...]
    epsilon: float
    alpha: float
    cells: int
    by: str
    uniform: bool  # Whether every site counts the same, or every record.

    @classmethod
    def drawn(cls, seed: int) -> Case:
        """The case with this seed."""
        rng = np.random.default_rng([2026, 6, seed])
        uniform = bool(rng.random() < 0.1)
        K = 2 if uniform else int(rng.integers(1, 6))
        n = int(2 ** rng.uniform(5, 11))
        return cls(
            seed,
            int(rng.integers(2, 4)),
            (n, 4 * n) if uniform else tuple(int(n * f) for f in rng.uniform(0.5, 2, K)),
            float(rng.choice(EPSILONS)),
            float(rng.choice([0.1, 0.2])),
            int(rng.choice([8, 16])),
            str(rng.choice(["atom", "group"])),
            uniform,
        )

    def excess(self, calibrations: int, number: int) -> Floats:
        """Coverage less 1 - alpha of each group in each calibration, (calibrations, G)."""
        rng = np.random.default_rng([2026, 7, self.seed])
        world = World.drawn(self.attributes, len(self.sizes), rng)
        pi = np.array(self.sizes) / sum(self.sizes)
        mixture = "uniform" if self.uniform else "proportional"
        if self.uniform:
            pi = np.full(2, 0.5)
        grid = Grid.uniform(0, 5, self.cells)
        draw = np.random.default_rng([2026, 8, self.seed, number])
        found = []
        for _ in range(calibrations):
            parts = summaries(world, self.sizes, draw, self.epsilon, grid=grid, by=self.by)
            made = gcfcp.calibrate(parts, self.alpha, mixture)
            thresholds = made.thresholds(world.atoms)
            found.append(world.coverage(thresholds, pi) - (1 - self.alpha))
        return np.array(found)


def _z(excess: Floats) -> tuple[float, float]:
    """The largest mean deficit of any group in standard errors, and that deficit."""
    mean = excess.mean(axis=0)
    error = excess.std(axis=0, ddof=1) / math.sqrt(len(excess))
    z = np.where(error > 0, -mean / np.maximum(error, 1e-12), -np.inf)
    worst = int(np.argmax(z))
    return float(z[worst]), float(-mean[worst])


@contextlib.contextmanager
def uncharged() -> Iterator[None]:
    """Let the server take counts with noise for counts without: a wrong rule, for comparison."""
    kept = charges.margin_of, charges.NoiseCharge.of

    def nothing(alpha: Fraction, gamma: Fraction, epsilon: float) -> charges.NoiseCharge:
        return charges.NoiseCharge(gamma, alpha, epsilon)

    vars(charges)["margin_of"] = lambda law, cells, *_: np.zeros(cells)
    type.__setattr__(charges.NoiseCharge, "of", staticmethod(nothing))
    try:
        yield
    finally:
        vars(charges)["margin_of"] = kept[0]
        type.__setattr__(charges.NoiseCharge, "of", kept[1])


def federations_part(federations: int, seconds: float) -> dict[str, Any]:
    """Search random federations for a group that is covered too little.

    The first round stops after `seconds`, and the result says how many federations it has seen.
    """
    started, first = time.monotonic(), []
    for seed in range(federations):
        if time.monotonic() - started > seconds:
            break
        case = Case.drawn(seed)
        excess = case.excess(6, 0)
        first.append((_z(excess)[0], excess.mean(), case))
        if seed % 50 == 49:
            print(seed + 1, f"{time.monotonic() - started:.0f} s", flush=True)
    finite = [mean for _, mean, _ in first]
    again = sorted(first, key=lambda one: -one[0])[: max(1, len(first) * 3 // 100)]
    second = []
    for _, _, case in again:
        z, deficit = _z(case.excess(100, 1))
        second.append({"z": z, "deficit": deficit} | asdict(case))
    second.sort(key=lambda one: -float(one["z"]))
    groups = sum(1 + Case.drawn(one["seed"]).attributes for one in second)
    return {
        "federations": len(first),
        "calibrations": 6 * len(first) + 100 * len(second),
        "again": len(second),
        "compared": groups,
        "mean excess": float(np.mean(finite)),
        "largest z": second[0]["z"],
        "its deficit": second[0]["deficit"],
        "largest z by chance": largest_by_chance(groups)[1],
        "worst": second[:5],
    }


# --- the page -------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def page(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["# What a grid and noise cost", "", f"Made by `{found['command']}`.", ""]
    if rows := found.get("grid"):
        lines += [
            "## Grids beside digests",
            "",
            "5 sites of 1,000 records, 5 overlapping groups, by atom, rule simultaneous, alpha "
            f"0.1, {rows[0]['runs']} runs. Lowest mean coverage of a group, mean length, bytes a "
            "site.",
            "",
            *_table(
                ["cells", "kind", "lowest coverage", "size", "bytes", "status"],
                (
                    [
                        f"{r['cells']:,}" if r["cells"] else "",
                        r["kind"],
                        f"{r['lowest']:.3f}",
                        f"{r['size']:.3f}",
                        f"{r['bytes']:,.0f}",
                        r["status"],
                    ]
                    for r in rows
                ),
            ),
        ]
    if rows := found.get("noise"):
        lines += [
            "## Noise",
            "",
            f"5 overlapping groups by atom, rule max, alpha 0.1, {rows[0]['runs']} runs, the "
            f"best of {CELLS[0]}, {CELLS[1]} and {CELLS[2]} cells near last quarter's thresholds "
            "in each place. Mean length, with noise as a multiple of that without on the same "
            "grid, and the lowest mean coverage of a group. An infinite interval has the length "
            f"{2 * LONGEST:g}.",
            "",
            *_table(
                ["sites", "records a site", "no noise", *(f"epsilon {e:g}" for e in EPSILONS)],
                _noise_rows(rows),
            ),
        ]
    if rows := found.get("together"):
        lines += [
            "## Only the sum is seen",
            "",
            f"10 sites of 1,000 records, epsilon 1, 32 cells, {rows[0]['runs']} runs. 1 + "
            "dishonest + spare sites add noise; 10 is every site.",
            "",
            *_table(
                ["sites that add noise", "lowest coverage", "size"],
                ([r["noisy sites"], f"{r['lowest']:.3f}", f"{r['size']:.3f}"] for r in rows),
            ),
        ]
    if rows := found.get("compared"):
        size = {(r["way"], r["records"]): r for r in rows}
        lines += [
            "## Side by side",
            "",
            f"10 sites, rule max, {rows[0]['runs']} runs, grids of 32 cells. Mean length, and the "
            "lowest mean coverage of a group.",
            "",
            *_table(
                ["", *(f"{n:,} records a site" for n in RECORDS)],
                (
                    [
                        way,
                        *(
                            f"{size[way, n]['size']:.2f}, {size[way, n]['lowest']:.3f}"
                            for n in RECORDS
                        ),
                    ]
                    for way in WAYS
                ),
            ),
        ]
    if r := found.get("federations"):
        lines += [
            "## Is the promise kept with noise?",
            "",
            f"{r['federations']:,} random federations, {r['calibrations']:,} calibrations. The "
            f"{r['again']} with the lowest coverage were calibrated 100 times more: of their "
            f"{r['compared']} groups the largest z is {r['largest z']:.2f} (deficit "
            f"{r['its deficit']:+.4f}); chance alone stays below "
            f"{r['largest z by chance']:.2f} with probability 0.99. On average, coverage is "
            f"{r['mean excess']:.3f} above 1 - alpha.",
            "",
        ]
    if r := found.get("uncharged"):
        lines += [
            "The same search with a server that charges nothing for the noise, in "
            f"{r['federations']:,} federations: the largest z is {r['largest z']:.2f} (deficit "
            f"{r['its deficit']:+.4f}), and coverage is on average {r['mean excess']:.3f} above "
            "1 - alpha.",
            "",
        ]
    return "\n".join(lines)


def _noise_rows(rows: list[dict[str, Any]]) -> Iterable[list[str]]:
    """One line for each number of sites and records."""
    for K in SITES:
        for n in RECORDS:
            own = [r for r in rows if (r["sites"], r["records"]) == (K, n)]
            plain = {r["cells"]: r for r in own if r["epsilon"] is None}
            if not plain:
                continue
            least = min(plain.values(), key=lambda r: r["size"])
            line = [str(K), f"{n:,}", f"{least['size']:.2f}, {least['lowest']:.3f}"]
            for epsilon in EPSILONS:
                some = [r for r in own if r["epsilon"] == epsilon]
                best = min(some, key=lambda r: r["size"])
                ratio = best["size"] / plain[best["cells"]]["size"]
                line.append(f"{ratio:.2f}, {best['lowest']:.3f}")
            yield line


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the parts that are asked for, and write privacy.json and privacy.md."""
    parser = argparse.ArgumentParser(prog="python -m experiments.privacy")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--federations", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=3600, help="for the first round of these")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    parts = given.part or PARTS
    given.output.mkdir(parents=True, exist_ok=True)
    file = given.output / "privacy.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    found["command"] = "python -m experiments.privacy -o experiments/results/privacy"
    warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
    measure = {
        "grid": grid_part,
        "noise": noise_part,
        "together": together_part,
        "compared": compared_part,
    }
    for part in parts:
        with uncharged() if part == "uncharged" else contextlib.nullcontext():
            found[part] = (
                measure[part](given.runs)
                if part in measure
                else federations_part(given.federations, given.seconds)
            )
        file.write_text(json.dumps(found, indent=1) + "\n")
        (given.output / "privacy.md").write_text(page(found))


if __name__ == "__main__":
    main()
