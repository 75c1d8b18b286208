"""Is the promise kept? The coverage of heterogeneous federations is computed and not sampled.

The clients have known distributions, so that the coverage of given thresholds is a sum over atoms
and not an estimate. Only the calibration data are drawn. The promise is about the average of
c_G = P(covered | G) over these draws. The mean of R draws has a standard error, which every message
states. A bound fails if the mean misses it by more than four standard errors, which happens by
chance in one of 30,000 comparisons.
"""

import functools
import math
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from gcfcp import GCFCPWarning, Groups, calibrate, summarize

pytestmark = pytest.mark.slow

ABC = Groups(["a", "b", "c"])
OVERLAPPING = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=bool)
DISJOINT = np.eye(3, dtype=bool)


@dataclass(frozen=True)
class Federation:
    """A federation with known distributions.

    The scores of client k in atom A are discrete, or a location plus an exponential variable.
    """

    atoms: np.ndarray  # (a, 3): The groups of each atom.
    sizes: tuple[int, ...]  # n_k of each client.
    pi: tuple[float, ...]  # pi_k of each client.
    shares: np.ndarray  # (K, a): P_k(A), the probability of each atom at each client.
    location: np.ndarray  # (K, a): The smallest score that is possible.
    scale: np.ndarray  # (K, a): The mean of the exponential part.
    pmf: np.ndarray | None  # (K, a, 4): The probabilities of the scores 0, 1, 2, 3 if discrete.

    def draw(self, rng):
        for k, n in enumerate(self.sizes):
            atom = rng.choice(len(self.atoms), size=n, p=self.shares[k])
            if self.pmf is None:
                scores = self.location[k, atom] + self.scale[k, atom] * rng.exponential(size=n)
            else:
                scores = (rng.random(n)[:, None] > self.pmf[k, atom].cumsum(axis=1)).sum(axis=1)
            yield scores.astype(float), self.atoms[atom]

    def coverage(self, thresholds):
        """P(covered | G) of the mixture for each group, given the threshold of each atom."""
        if self.pmf is None:
            past = np.maximum(thresholds - self.location, 0.0) / self.scale
            below = -np.expm1(-past)
        else:
            below = (self.pmf * (np.arange(4) <= thresholds[:, None])).sum(axis=2)
        weight = np.array(self.pi)[:, None] * self.shares
        return (weight * below).sum(axis=0) @ self.atoms / (weight.sum(axis=0) @ self.atoms)


def federation(seed, family="overlapping", kind="continuous", sizes=None):
    rng = np.random.default_rng([1, seed])
    atoms = DISJOINT if family == "disjoint" else OVERLAPPING
    sizes = tuple(rng.integers(5, 51, size=rng.integers(2, 5)).tolist()) if sizes is None else sizes
    K, a = len(sizes), len(atoms)
    pi = rng.dirichlet(np.full(K, [1.0, 0.4, 8.0][seed % 3]))  # Some mixtures are skewed.
    pi = tuple(np.round(pi * 0.97 + 0.03 / K, 3).tolist())
    pi = (*pi[:-1], round(1 - sum(pi[:-1]), 3))
    return Federation(
        atoms=atoms,
        sizes=sizes,
        pi=pi,
        shares=rng.dirichlet(np.full(a, 2.0), size=K),
        location=rng.normal(0, 1, size=(K, a)),  # Scores can therefore be negative.
        scale=rng.uniform(0.3, 3.0, size=(K, a)),
        pmf=rng.dirichlet(np.full(4, 1.0), size=(K, a)) if kind == "discrete" else None,
    )


@functools.cache
def simulate(seed, runs, variants, alpha=0.2, **options):
    """Coverage and the certified, lower and upper bounds of each variant, all (runs, G).

    A variant is (options of `summarize`, options of `calibrate`). All variants see the same draws.
    """
    fed = federation(seed, **options)
    mixture = {f"k{k}": p for k, p in enumerate(fed.pi)}
    rng = np.random.default_rng([2, seed])
    found = [[] for _ in variants]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        for _ in range(runs):
            clients = list(fed.draw(rng))
            for variant, results in zip(variants, found, strict=True):
                of_client, of_server = map(dict, variant)
                told = [
                    summarize(s, m, groups=ABC, client=f"k{k}", **of_client)
                    for k, (s, m) in enumerate(clients)
                ]
                if not any(len(s.errors) for s in told):
                    continue  # `calibrate` raises an error, and no set is promised.
                calibration = calibrate(told, alpha, mixture, **of_server)
                results.append(
                    [
                        fed.coverage(calibration.thresholds(fed.atoms)),
                        [g.certified for g in calibration.guarantee],
                        [g.lower for g in calibration.guarantee],
                        [g.upper for g in calibration.guarantee],
                    ]
                )
    return [np.array(results).transpose(1, 0, 2) for results in found]


def variant(*, merge="pool", rule="simultaneous", **of_client):
    return tuple(sorted(of_client.items())), (("merge", merge), ("rule", rule))


def shortfall(coverage, bound):
    """How far below the bound the mean coverage is, and the standard error of that, (G,)."""
    gap = np.asarray(bound) - coverage
    return gap.mean(axis=0), gap.std(axis=0, ddof=1) / math.sqrt(len(gap))


def assert_kept(coverage, bound, what):
    gap, error = shortfall(coverage, bound)
    g = int(np.argmax(gap - 4 * error))
    assert gap[g] <= 4 * error[g] + 1e-9, (
        f"{what}: coverage of group {ABC.names[g]} is {coverage[:, g].mean():.4f}, {gap[g]:.4f} "
        f"below its bound, with a standard error of {error[g]:.4f} over {len(coverage)} draws"
    )


UPPER = tuple(variant(delta=delta) for delta in (5, 25, 250))
SEEDS = range(3)  # One for each kind of mixture.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_upper_keeps_the_promise_at_any_delta(seed, kind):
    for delta, results in zip((5, 25, 250), simulate(seed, 100, UPPER, kind=kind), strict=True):
        assert_kept(results[0], 0.8, f"federation {seed}, {kind} scores, delta={delta}")


@pytest.mark.parametrize("seed", SEEDS)
def test_upper_keeps_the_promise_through_recompression_and_by_the_maximum(seed):
    variants = (
        variant(delta=8, merge="recompress"),
        variant(delta=25, rule="max"),
    )
    merged, largest = simulate(seed, 100, variants)
    assert_kept(merged[0], 0.8, f"federation {seed}, recompressed at delta=8")
    assert_kept(largest[0], 0.8, f"federation {seed}, rule='max'")
    for results in (merged, largest):
        assert (results[1] == 0.8).all()  # The certified bound is 1 - alpha itself.


@pytest.mark.parametrize("seed", SEEDS)
def test_disjoint_groups_keep_the_promise(seed):
    variants = (
        variant(delta=5),
        variant(delta=5, merge="recompress"),
        variant(delta=25, min_count=3),
    )
    for results in simulate(seed, 100, variants, family="disjoint"):
        assert_kept(results[0], 0.8, f"disjoint federation {seed}")


@pytest.mark.parametrize("seed", SEEDS)
def test_suppressed_records_keep_the_promise(seed):
    variants = (variant(delta=25, min_count=2), variant(delta=25, min_count=4))
    for m, results in zip((2, 4), simulate(seed, 100, variants), strict=True):
        assert_kept(results[0], 0.8, f"federation {seed}, min_count={m}")


@pytest.mark.parametrize("seed", SEEDS)
def test_certified_bounds_hold(seed):
    """With `mean` representatives coverage is at least 1 - alpha less the errors that occurred, and
    so at least 1 - alpha less sin(pi/delta) for each level of compression."""
    variants = (
        variant(delta=5, representative="mean"),
        variant(delta=5, representative="mean", merge="recompress"),
        variant(delta=25, representative="mean"),
        variant(delta=25, representative="mean", min_count=3),
    )
    for (of_client, of_server), results in zip(
        variants, simulate(seed, 100, variants), strict=True
    ):
        coverage, certified, lower, _ = results
        what = f"federation {seed}, {dict(of_client)}, {dict(of_server)}"
        assert_kept(coverage, certified, f"{what}, certified")
        assert_kept(coverage, lower, f"{what}, lower")
        assert (certified >= lower - 1e-12).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_centralized_coverage_is_within_the_papers_band(seed):
    """Without compression coverage is at least 1 - alpha and at most the bound of Theorem C.1."""
    sizes = (400, 300, 500)  # These are large enough for the upper bound to be below 1.
    (coverage, _, _, upper), *_ = simulate(seed, 30, (variant(delta=1e6),), sizes=sizes)
    assert_kept(coverage, 0.8, f"centralized federation {seed}")
    assert_kept(-coverage, -upper, f"centralized federation {seed}, upper bound")
    assert upper.mean() < 0.95, "an upper bound of 1 says nothing"
    small = simulate(seed, 100, (variant(delta=1e6),))[0]
    assert_kept(small[0], 0.8, f"small centralized federation {seed}")


def test_the_suite_sees_coverage_that_is_lost():
    """With `mean` representatives at delta=3 coverage is lost, and the same assertion finds it."""
    means = (variant(delta=3, representative="mean"),)
    lost = [simulate(seed, 20, means, sizes=(400, 300))[0][0] for seed in SEEDS]
    worst = max(lost, key=lambda coverage: shortfall(coverage, 0.8)[0].max())
    with pytest.raises(AssertionError, match=r"below its bound, with a standard error of"):
        assert_kept(worst, 0.8, "means")


def test_coverage_is_computed_right():
    """The formula for the coverage of given thresholds agrees with a large sample."""
    rng = np.random.default_rng(0)
    for kind in ("continuous", "discrete"):
        fed = federation(3, kind=kind, sizes=(200_000, 200_000))
        thresholds = np.array([0.5, 1.5, 2.0, 0.0, 3.0])
        hit, inside = np.zeros(3), np.zeros(3)
        for pi, (scores, rows) in zip(fed.pi, fed.draw(rng), strict=True):
            at = np.array([thresholds[(fed.atoms == r).all(axis=1)][0] for r in rows[:50_000]])
            covered = (scores[:50_000] <= at)[:, None] & rows[:50_000]
            hit += pi * covered.mean(axis=0)
            inside += pi * rows[:50_000].mean(axis=0)
        assert fed.coverage(thresholds) == pytest.approx(hit / inside, abs=0.02)
