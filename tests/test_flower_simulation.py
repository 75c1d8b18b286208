"""A round of a thousand clients in the simulation of Flower, which needs Ray."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gcfcp

SCRIPT = Path(__file__).parents[1] / "examples/flower/simulation.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: python3 dev.py simulation brings it, and runs this",
    ),
]


def test_a_thousand_clients_in_simulation(tmp_path: Path) -> None:
    K = 1000
    sys.path.insert(0, str(SCRIPT.parent))
    import simulation

    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(K), "--output", str(tmp_path / "round")],
        env=os.environ | {"FLWR_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "round/record.json").read_text())
    assert len(record["answered"]) == K
    summaries = []
    for k in range(K):
        scores, membership = simulation.data_of(k)
        summaries.append(
            gcfcp.summarize(
                scores,
                membership,
                groups=simulation.GROUPS,
                client=f"client-{k:05d}",
                delta=250.0,
                min_count=10,
                by="group",
                score="gamma",
            )
        )
    expected = gcfcp.Predictor("gamma", gcfcp.calibrate(summaries, 0.1, "proportional"))
    assert (tmp_path / "round/predictor.json").read_text() == expected.to_json()
