"""Measure coverage in random federations whose distributions are known (proved.md).

Each client draws an atom and then a normal score, whose mean and spread depend on client and atom.
For given thresholds, the coverage of a group is then a formula. Only the average over calibrations
is estimated.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from page import write_table
from scipy.stats import norm

import gcfcp
from gcfcp.calibration.guarantees import EVERYTHING_GIVEN

ALPHA, FEDERATIONS, CALIBRATIONS = 0.1, 25, 200

DISJOINT = np.eye(3, dtype=bool)
CHAIN = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=bool)
CROSSING = np.array([[c >> 2 & 1, c >> 1 & 1, c & 1] for c in range(1, 8)], dtype=bool)
FAMILIES = {"disjoint": DISJOINT, "a chain": CHAIN, "crossing": CROSSING}


@dataclass(frozen=True)
class Case:
    """One row of the table. A delta of 1,000 keeps every score of up to 636 records."""

    groups: str  # The family of groups, by its name in FAMILIES.
    mixture: str = "proportional"  # Or "random".
    rule: str = "simultaneous"
    correction: str = "sharp"
    representative: str = "upper"
    delta: float = 1000


CASES = [
    Case("disjoint", rule="max"),
    Case("crossing", rule="max"),
    Case("crossing", "random", rule="max"),
    Case("a chain"),
    Case("crossing"),
    Case("crossing", "random"),
    Case("crossing", correction="paper"),
    Case("crossing", rule="max", delta=5),
    Case("crossing", delta=25),
    Case("crossing", delta=5),
    Case("disjoint", rule="max", representative="mean", delta=5),
    Case("crossing", "random", representative="mean", delta=5),
]


@dataclass(frozen=True)
class Federation:
    """K clients, a atoms and G groups, with the distribution of every client."""

    membership: np.ndarray  # (a, G): The groups of each atom.
    sizes: np.ndarray  # (K,): The number of records of each client.
    shares: np.ndarray  # (K,): The mixture pi_k.
    atoms: np.ndarray  # (K, a): The probability of each atom at each client.
    mean: np.ndarray  # (K, a): The mean of the scores.
    spread: np.ndarray  # (K, a): The standard deviation of the scores.

    @classmethod
    def draw(cls, case: Case, rng: np.random.Generator) -> Federation:
        """A random federation with the groups and the mixture of the case."""
        membership = FAMILIES[case.groups]
        K, a = int(rng.integers(2, 5)), len(membership)
        sizes = np.exp(rng.uniform(np.log(30), np.log(400), K)).astype(int)
        random = rng.dirichlet(np.ones(K))
        return cls(
            membership,
            sizes,
            random if case.mixture == "random" else sizes / sizes.sum(),
            rng.dirichlet(np.ones(a), K),
            rng.normal(0, 1, (K, a)),
            rng.uniform(0.2, 2, (K, a)),
        )

    def calibrate(self, rng: np.random.Generator, case: Case) -> gcfcp.methods.Result:
        """Draw the clients' records and calibrate."""
        clients = {}
        for k, n in enumerate(self.sizes):
            atom = rng.choice(len(self.membership), size=n, p=self.atoms[k])
            scores = rng.normal(self.mean[k, atom], self.spread[k, atom])
            clients[f"client-{k}"] = (scores, self.membership[atom])
        stated = {f"client-{k}": float(share) for k, share in enumerate(self.shares)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gcfcp.GCFCPWarning)  # A threshold may be +inf here.
            return gcfcp.methods.gcfcp(
                clients,
                ALPHA,
                stated if case.mixture == "random" else case.mixture,
                delta=case.delta,
                representative=case.representative,
                rule=case.rule,
                correction=case.correction,
            )

    def coverage(self, thresholds: np.ndarray) -> np.ndarray:
        """The exact coverage of each group under the mixture, (G,)."""
        weight = self.shares[:, None] * self.atoms
        covered = weight * norm.cdf(thresholds, self.mean, self.spread)
        return (covered @ self.membership).sum(axis=0) / (weight @ self.membership).sum(axis=0)


@dataclass(frozen=True)
class Measured:
    """What was found in all federations of one case."""

    least: float  # The lowest average coverage of any group of any federation.
    error: float  # Its standard error.
    mean: float  # The mean coverage of all groups of all federations.
    charged: float  # The mean weight of the test point, in records.
    status: str  # What the library says about a coverage of 1 - alpha.


def measure(case: Case, federations: int, calibrations: int) -> Measured:
    """Calibrate every federation many times."""
    rng = np.random.default_rng(2026)
    means, errors, charged, statuses = [], [], [], set()
    for _ in range(federations):
        federation = Federation.draw(case, rng)
        found = []
        for _ in range(calibrations):
            result = federation.calibrate(rng, case)
            found.append(federation.coverage(result.thresholds(federation.membership)))
            charged.append(result.calibration.correction.records)
            # A group without a finite threshold is covered, whatever the theorem.
            finite = [
                g for g in result.calibration.guarantee if g.certified_status != EVERYTHING_GIVEN
            ]
            statuses |= {status_of(g) for g in finite}
        means.append(np.mean(found, axis=0))
        errors.append(np.std(found, axis=0, ddof=1) / np.sqrt(calibrations))
    at = np.unravel_index(np.argmin(means), np.shape(means))
    return Measured(
        float(np.min(means)),
        float(np.array(errors)[at]),
        float(np.mean(means)),
        float(np.mean(charged)),
        " or ".join(sorted(statuses)),
    )


def status_of(guarantee: gcfcp.Guarantee) -> str:
    """What the library says about a coverage of 1 - alpha, in the words of the table."""
    if guarantee.certified < 1 - ALPHA:
        return "not promised"
    if guarantee.theorem is None:
        return guarantee.certified_status
    return f"{guarantee.certified_status}, {guarantee.theorem.split(' (')[0]}"


def main(federations: int = FEDERATIONS, calibrations: int = CALIBRATIONS) -> None:
    """Write docs/measured/proved.md."""
    rows = []
    for case in CASES:
        found = measure(case, federations, calibrations)
        rows.append(
            [
                case.groups,
                case.mixture,
                f"`{case.rule}`",
                f"`{case.representative}`",
                f"{case.delta:,g}",
                f"`{case.correction}`, {found.charged:.3g}",
                f"{found.least:.3f} +- {found.error:.3f}",
                f"{found.mean:.3f}",
                found.status,
            ]
        )
    write_table(
        "proved",
        [
            "groups",
            "mixture",
            "rule",
            "representative",
            "delta",
            "correction, records",
            "least coverage",
            "mean",
            "0.9 is",
        ],
        rows,
        f"""Each row has {federations} random federations (two to four clients of 30 to 400 records,
        three groups, alpha = {ALPHA}) and {calibrations} calibrations of each. The groups are
        disjoint, or a chain in which the first overlaps the second and the second the third, or
        they cross in all seven combinations. A random mixture is drawn without regard to the
        numbers of records. At delta = 1,000 nothing is compressed. "Records" is the mean weight of
        the test point, in the group where it is largest. Least coverage is the lowest average
        coverage of any group in any federation, with its standard error. The last column is what
        `calibration.guarantee` says about a coverage of 0.9. For given thresholds, coverage is
        computed exactly and not sampled.""",
    )
