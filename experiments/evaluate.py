"""One repetition: every method on the same calibration records, judged on the same test records.

A record of the results is about one method and one group: its coverage, its mean set size, and how
many test rows the group has.

Coverage is reported twice: plainly over the test rows, as the paper does, and under the mixture
sum_k pi_k P_k, which is what the methods promise it for. The two differ where clients of equal
weight have different numbers of records and the test rows are drawn from all records alike. Records
of one label have the same distribution at every client. So a test row of label y gets the weight
q(y) / p(y), with q(y) = sum_k pi_k P_k(y), and p(y) the share of label y among all records.
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
EVERYONE = "all"  # The name under which results over all test rows are reported.


@dataclass(frozen=True)
class Variant:
    """A method with its options: one row of a table.

    key: The name in the CSV files. label: The name in tables and figures. method: The function of
    `gcfcp.methods`. options: The arguments of that function.
    """

    key: str
    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def delta(self) -> float | None:
        """The delta of its digests, or None if it has none."""
        return self.options.get("delta")


def paper_gcfcp(delta: float) -> Variant:
    """GC-FCP as in the paper: cluster means, merged and compressed again."""
    return Variant(
        f"gcfcp_paper_{delta:g}",
        f"GC-FCP, the paper's (δ={delta:g})",
        "gcfcp",
        {
            "delta": delta,
            "representative": "mean",
            "merge": "recompress",
            "correction": "paper",
        },
    )


def upper_gcfcp(delta: float) -> Variant:
    """GC-FCP with cluster maxima, pooled, and the paper's weight of the test point."""
    return Variant(
        f"gcfcp_upper_{delta:g}",
        f"GC-FCP, upper (δ={delta:g})",
        "gcfcp",
        {"delta": delta, "representative": "upper", "merge": "pool", "correction": "paper"},
    )


def sharp_gcfcp(delta: float) -> Variant:
    """The same with the least weight of the test point that is proved, as `calibrate` has it."""
    return Variant(
        f"gcfcp_sharp_{delta:g}",
        f"GC-FCP, sharp (δ={delta:g})",
        "gcfcp",
        {"delta": delta, "representative": "upper", "merge": "pool", "correction": "sharp"},
    )


SPLIT_CP = Variant("split_cp", "Centralized CP", "split_cp")
FEDCP = Variant("fedcp", "FedCP", "fedcp")
FEDCP_DIGEST = Variant("fedcp_digest", "FedCP, T-Digest (δ=250)", "fedcp", {"delta": 250})
CONDCP = Variant("condcp", "Centralized CondCP", "condcp")
CENTRALIZED = Variant(
    "centralized_gcfcp", "Centralized GC-FCP", "centralized_gcfcp", {"correction": "paper"}
)
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
    """The test rows of one repetition."""

    __test__ = False  # It tells pytest that this class is not a test.

    truth: Floats  # (n,): The score of the true outcome.
    sizes: Callable[[Floats], Floats]  # The size of each set, for given thresholds (n,).
    membership: Bools  # (n, G): The groups of each row.
    groups: Sequence[str]  # The names of the groups.
    weights: Floats  # (n,): The weight of each row under the mixture.


def label_sizes(matrix: Floats) -> Callable[[Floats], Floats]:
    """A function that counts the labels in each set, from the scores (n, L) of all labels."""

    def sizes(thresholds: Floats) -> Floats:
        inside: NDArray[np.intp] = np.count_nonzero(matrix <= thresholds[:, None], axis=1)
        return inside.astype(np.float64)

    return sizes


def mixture_weights(clients: Sequence[Any], labels: NDArray[np.int64]) -> Floats:
    """The weight q(y) / p(y) of each test row under a uniform mixture.

    q and p are estimated from the calibration records.
    """
    L = int(max(labels.max(), max(c[2].max() for c in clients))) + 1
    counts = np.array([np.bincount(c[2], minlength=L) for c in clients], dtype=np.float64)
    target = (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0)
    plain = counts.sum(axis=0) / counts.sum()
    ratio = np.divide(target, plain, out=np.ones(L), where=plain > 0)
    weights: Floats = ratio[labels]
    return weights


def judge(thresholds: Floats, test: Test, **facts: Any) -> list[dict[str, Any]]:
    """One record for all test rows, and one for each group that has test rows.

    facts: Further fields of every record, such as the method and the run.
    """
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
    """Run every variant: its records, what it cost, and its result."""
    records, costs, results = [], [], {}
    for variant in variants:
        own = {
            **facts,
            "clients": len(clients),
            "method": variant.key,
            "delta": variant.delta,
            "alpha": alpha,
        }
        started = time.process_time()  # A clock would also count the other runs on this machine.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GCFCPWarning)  # The records count infinite thresholds.
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
