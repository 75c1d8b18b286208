"""One repetition: every method on the same calibration records, judged on the same test records.

A record of the results is one (method, group): its coverage, its mean set size, and how many test
rows that is. Coverage is reported twice: plainly over the test rows, as the paper does, and under
the mixture that the methods promise it for, sum_k pi_k P_k. The two differ where clients with
equal weight have different numbers of records and the test rows come from all records alike; a
test row of label y then counts q(y)/p(y), with q(y) = sum_k pi_k P_k(y) and p the share of y among
all records, since records of one label are alike whichever client they are dealt to.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import methods
from gcfcp.errors import GCFCPWarning

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
EVERYONE = "all"


@dataclass(frozen=True)
class Variant:
    """A method with its options, as a row of a table."""

    key: str
    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def delta(self) -> float | None:
        return self.options.get("delta")


def paper_gcfcp(delta: float) -> Variant:
    return Variant(
        f"gcfcp_paper_{delta:g}",
        f"GC-FCP, the paper's (δ={delta:g})",
        "gcfcp",
        {"delta": delta, "representative": "mean", "merge": "recompress"},
    )


def upper_gcfcp(delta: float) -> Variant:
    return Variant(
        f"gcfcp_upper_{delta:g}",
        f"GC-FCP, upper (δ={delta:g})",
        "gcfcp",
        {"delta": delta, "representative": "upper", "merge": "pool"},
    )


SPLIT_CP = Variant("split_cp", "Centralized CP", "split_cp")
FEDCP = Variant("fedcp", "FedCP", "fedcp")
FEDCP_DIGEST = Variant("fedcp_digest", "FedCP, T-Digest (δ=250)", "fedcp", {"delta": 250})
CONDCP = Variant("condcp", "Centralized CondCP", "condcp")
CENTRALIZED = Variant("centralized_gcfcp", "Centralized GC-FCP", "centralized_gcfcp")
MONDRIAN = Variant("mondrian_first", "Mondrian-FedCP, lowest index", "mondrian_fedcp")
MONDRIAN_MAX = Variant(
    "mondrian_max", "Mondrian-FedCP, max over groups", "mondrian_fedcp", {"rule": "max"}
)
GROUP_DIGEST = Variant(
    "group_digest", "Group digests, 'FedCF-style' (δ=250)", "group_digest", {"delta": 250}
)
IMPORTANCE = Variant("importance_weighted", "Importance-weighted FCP", "importance_weighted")


@dataclass(frozen=True)
class Test:
    """Test rows: the score of the truth, the size of the set at given thresholds, the groups."""

    __test__ = False  # not for pytest

    truth: Floats  # (n,)
    sizes: Callable[[Floats], Floats]
    membership: Bools  # (n, G)
    groups: Sequence[str]
    weights: Floats  # (n,): of the mixture


def label_sizes(matrix: Floats) -> Callable[[Floats], Floats]:
    """Labels in the sets, from the scores (n, L) of all labels."""

    def sizes(thresholds: Floats) -> Floats:
        inside: NDArray[np.intp] = np.count_nonzero(matrix <= thresholds[:, None], axis=1)
        return inside.astype(np.float64)

    return sizes


def mixture_weights(clients: Sequence[Any], labels: NDArray[np.int64]) -> Floats:
    """q(y)/p(y) of each test label, for a uniform mixture; q and p from calibration."""
    L = int(max(labels.max(), max(c[2].max() for c in clients))) + 1
    counts = np.array([np.bincount(c[2], minlength=L) for c in clients], dtype=np.float64)
    target = (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0)
    plain = counts.sum(axis=0) / counts.sum()
    ratio = np.divide(target, plain, out=np.ones(L), where=plain > 0)
    weights: Floats = ratio[labels]
    return weights


def judge(thresholds: Floats, test: Test, **facts: Any) -> list[dict[str, Any]]:
    """A record for everyone and for each group."""
    covered = test.truth <= thresholds
    sizes = test.sizes(thresholds)
    everyone = np.ones(len(covered), dtype=bool)
    records = []
    for group, rows in [(EVERYONE, everyone), *zip(test.groups, test.membership.T, strict=True)]:
        n = int(np.count_nonzero(rows))
        if n:
            weights = test.weights[rows]
            records.append(
                {
                    **facts,
                    "group": group,
                    "n": n,
                    "coverage": float(covered[rows].mean()),
                    "mixture_coverage": float(weights @ covered[rows] / weights.sum()),
                    "size": float(sizes[rows].mean()),
                    "infinite": float(np.isinf(thresholds[rows]).mean()),
                }
            )
    return records


def compare(
    variants: Sequence[Variant],
    clients: Sequence[Any],
    alpha: float,
    test: Test,
    **facts: Any,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, methods.Result]]:
    """Records and costs of every variant, and what it returned."""
    records, costs, results = [], [], {}
    for variant in variants:
        own = {
            **facts,
            "clients": len(clients),
            "method": variant.key,
            "delta": variant.delta,
            "alpha": alpha,
        }
        started = time.process_time()  # not of the clock: all cores are at work
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GCFCPWarning)  # infinite thresholds are counted
            result = getattr(methods, variant.method)(
                clients, alpha, groups=list(test.groups), **variant.options
            )
            seconds = time.process_time() - started
            records += judge(result.thresholds(test.membership), test, **own)
        atoms = result.sent.atoms_by_client
        costs.append(
            {
                **own,
                "values_sent": result.sent.values,
                "bytes_sent": result.sent.bytes,
                "atoms_per_client": sum(atoms) / len(atoms),
                "atoms": result.atom_count,
                "problem": result.problem,
                "groups": len(test.groups),
                "records": sum(len(c[0]) for c in clients),
                "seconds": seconds,
            }
        )
        results[variant.key] = result
    return records, costs, results
