"""Federations for the tests of plots and reports: a small one, and one with very many groups."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

import gcfcp
from gcfcp.audit import AuditReport, audit, merge_audits


@dataclass(frozen=True)
class Sample:
    """A predictor with the audits and the plan that belong to it."""

    calibration: gcfcp.Calibration
    predictor: gcfcp.Predictor
    plan: gcfcp.Plan
    audit: AuditReport
    baselines: dict[str, AuditReport]


Rows = tuple[NDArray[np.float64], NDArray[np.bool_]]


def _report(rows: list[Rows], groups: gcfcp.Groups, thresholds, scale: float) -> AuditReport:
    """The merged audits of all clients.

    thresholds: A function of scores and membership. scale: The set size for a threshold of 1.
    """
    audits = []
    for k, (scores, membership) in enumerate(rows):
        limit = thresholds(scores, membership)
        audits.append(
            audit(
                scores <= limit,
                membership,
                groups=groups,
                client=f"clinic-{k:02d}",
                set_size=np.where(np.isfinite(limit), np.ceil(scale * limit), 10.0),
            )
        )
    return merge_audits(audits, alpha=0.1)


def _sample(
    calibration_rows: list[Rows],
    test_rows: list[Rows],
    groups: gcfcp.Groups,
    min_count: int,
    rule: str,
) -> Sample:
    """Calibrate on some rows and audit on others, with two baselines of one threshold each."""
    summaries = [
        gcfcp.summarize(
            s, m, groups=groups, client=f"clinic-{k:02d}", score="residual", min_count=min_count
        )
        for k, (s, m) in enumerate(calibration_rows)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        calibration = gcfcp.calibrate(summaries, alpha=0.1, rule=rule)
        plan = gcfcp.plan(summaries, alpha=0.1, rule=rule)
    largest = max((s for s, _ in calibration_rows), key=len)
    pooled = np.concatenate([s for s, _ in calibration_rows])
    alone, together = np.quantile(largest, 0.9), np.quantile(pooled, 0.9)
    return Sample(
        calibration,
        gcfcp.Predictor("residual", calibration),
        plan,
        _report(test_rows, groups, lambda s, m: calibration.thresholds(m), 2.0),
        {
            "split CP": _report(test_rows, groups, lambda s, m: np.full(len(s), alone), 2.0),
            "FedCP": _report(test_rows, groups, lambda s, m: np.full(len(s), together), 2.0),
        },
    )


@cache
def small() -> Sample:
    """Four overlapping groups and five clients; all thresholds are finite."""
    rng = np.random.default_rng(0)
    groups = gcfcp.Groups(["everyone", "women", "over 65", "rare type"])

    def rows(n: int, k: int) -> Rows:
        u = rng.random((n, 3))
        membership = np.column_stack(
            [np.ones(n, bool), u[:, 0] < 0.5, u[:, 1] < 0.1 * (k + 1), u[:, 2] < 0.2]
        )
        spread = 1 + 1.5 * membership[:, 2] + 1.2 * membership[:, 3]
        return np.abs(rng.normal(0, spread)), membership

    sizes = [1200, 800, 650, 400, 300]
    return _sample(
        [rows(n, k) for k, n in enumerate(sizes)],
        [rows(2 * n, k) for k, n in enumerate(sizes)],
        groups,
        2,
        "simultaneous",
    )


@cache
def large() -> Sample:
    """30 groups with long names, some 100 atoms and 40 clients; some thresholds are infinite."""
    rng = np.random.default_rng(1)
    names = [
        f"{kind} {place}"
        for kind in ("outpatients,", "inpatients,", "emergency admissions,")
        for place in (
            "north",
            "east",
            "south",
            "west",
            "centre",
            "islands",
            "mountains",
            "coast",
            "abroad",
            "unknown place of residence",
        )
    ]
    groups = gcfcp.Groups(names)
    kinds = rng.random((120, 30)) < rng.choice([0.03, 0.06, 0.15], (120, 1))
    kinds[np.arange(120), rng.integers(0, 30, 120)] = True
    kinds[~kinds[:, :-1].any(axis=1), 0] = True
    kinds[:, -1] = np.arange(120) < 3  # This group is so rare that its thresholds are infinite.
    popularity = rng.dirichlet(np.where(np.arange(120) < 3, 0.001, 0.4))
    popularity[:3] = 0.00005
    popularity /= popularity.sum()

    def rows(n: int) -> Rows:
        membership = kinds[rng.choice(120, n, p=popularity)]
        return np.abs(rng.normal(0, 1 + 0.4 * membership[:, :5].sum(axis=1))), membership

    sizes = np.maximum(90, rng.lognormal(6.3, 0.8, 40).astype(int))
    return _sample([rows(n) for n in sizes], [rows(n) for n in sizes], groups, 1, "max")
