"""Three hospitals calibrate one model together over vantage6, with its mock client.

    python examples/vantage6/three_hospitals.py [--directory hospitals]

The program invents data (of a risk model that is worse for old people), writes down what each
hospital answers, and calls the central function as a task would. The mock client runs the functions
of an algorithm in this process, without a server, nodes or containers. The guide, also to the
image and to a real collaboration, is docs/vantage6.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import pandas as pd
from hospitals import GROUPS, HOSPITALS, make_site, show, site_file
from vantage6.algorithm.tools.decorators import data
from vantage6.algorithm.tools.mock_client import MockAlgorithmClient

import gcfcp
from gcfcp.vantage6 import Question, Target, Terms, algorithm, round_to_json
from gcfcp.vantage6.partial import VARIABLE

calibrate = algorithm.calibrate


@data(1)
def answer(node: pd.DataFrame, request: str) -> dict[str, str]:
    """The partial function at one of the mocked nodes.

    A node sets the variable that names the file of its site, and starts a container. The mock has
    neither, so the path of the file is the mocked data of the node.
    """
    os.environ[VARIABLE] = str(node["site"].iloc[0])
    return algorithm.answer(request)


def main() -> int:
    """Run everything; the exit code is 0 if the round ended in a calibration."""
    parser = argparse.ArgumentParser(description="Three hospitals with the mock client")
    parser.add_argument("--directory", type=Path, help="where everything is left to look at")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="three-hospitals-"))
    directory = directory.resolve()
    print(f"everything is in {directory}")
    for k, name in enumerate(HOSPITALS):
        make_site(directory / name, seed=k, records=2000 + 1000 * k)
        (directory / name / "site.toml").write_text(site_file(directory / name, name))
    (directory / "groups.toml").write_text(GROUPS)

    numbers = {name: 11 + k for k, name in enumerate(HOSPITALS)}  # Of the organisations.
    client = MockAlgorithmClient(
        datasets=[
            [{"database": pd.DataFrame({"site": [str(directory / name / "site.toml")]})}]
            for name in HOSPITALS
        ],
        module=__name__,
        organization_ids=list(numbers.values()),
    )
    groups = gcfcp.Groups.from_toml(directory / "groups.toml")
    round_ = round_to_json(
        Question(groups, gcfcp.scores.THR(), min_count=20),
        Target(alpha=0.1, audit=True),
        Terms(deadline=60, min_clients=3, clients={name: str(k) for name, k in numbers.items()}),
    )
    task = client.task.create(
        input_={"method": "calibrate", "kwargs": round_}, organizations=[numbers["hospital-a"]]
    )
    (result,) = client.wait_for_results(task_id=task["id"])

    record = json.loads(result["record"])
    show(record)
    if result["outcome"] == "calibrated":
        (directory / "predictor.json").write_text(result["predictor"])
        (directory / "report.html").write_text(result["report"])
    print(f"predictor and report: {directory}")
    print(f"what a hospital has told: gcfcp ledger {directory / HOSPITALS[0] / 'ledger'}")
    return 0 if result["outcome"] == "calibrated" else 1


if __name__ == "__main__":
    sys.exit(main())
