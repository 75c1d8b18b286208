"""Run a thousand clients on this machine in Flower's simulation: `python simulation.py [CLIENTS]`.

The apps are the same as in a deployment. Only the processes that run them differ. The simulation
needs the extra flower-sim, which installs Ray. Each client has its own invented data. A real
site would write one function of its own, `load`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import gcfcp
from gcfcp.flower import Policy, Question, Target, Terms, client_app, server_app

GROUPS = gcfcp.Groups(["all", "young", "rural"])
QUESTION = Question(GROUPS, "gamma")  # The server asks it, and every client has agreed to it.


def data_of(k: int) -> tuple[Any, Any]:
    """Scores and memberships of client k."""
    rng = np.random.default_rng(k)
    n = 300 + k % 100
    groups = [np.ones(n, dtype=bool), rng.random(n) < 0.4, rng.random(n) < 0.3]
    return rng.gamma(1 + k % 3, size=n), np.column_stack(groups)


def load(question: Question, node: Any) -> tuple[Any, Any]:
    """The one function that a site writes: its scores, and the memberships of its records."""
    return data_of(int(node["partition-id"]))


def main() -> int:
    """Run one round and print the thresholds of the predictor."""
    parser = argparse.ArgumentParser(description="Simulate many clients")
    parser.add_argument("clients", nargs="?", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path("simulated-round"))
    given = parser.parse_args()
    os.environ |= {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    from flwr.simulation import run_simulation

    output = given.output.resolve()
    run_simulation(
        server_app(
            QUESTION,
            Target(alpha=0.1, mixture="proportional"),
            Terms(deadline=600, min_clients=given.clients),
            output,
        ),
        # A site would keep its own ledger. Here all clients have the one of this run.
        client_app(load, policy=Policy(QUESTION), ledger=output / "ledger"),
        num_supernodes=given.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    predictor = gcfcp.Predictor.load(output / "predictor.json")
    print(f"{len(predictor.provenance['clients'])} clients; thresholds:")
    for record in predictor.atoms or ():
        print(f"  {' & '.join(record.groups)}: {record.threshold:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
