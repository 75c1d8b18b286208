"""Three hospitals calibrate one model together over NVIDIA FLARE, simulated on this machine.

    python examples/nvflare/three_hospitals.py [--directory hospitals]

The program invents data (of a risk model that is worse for old people), writes down what each
hospital answers, and executes the recipe of a round with an audit in FLARE's simulator. The same
recipe runs in a deployment (`--export JOB` writes the job that is submitted there). The guide is
docs/nvflare.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

from hospitals import GROUPS, HOSPITALS, make_site, show, site_file
from nvflare.recipe import SimEnv

import gcfcp
from gcfcp.nvflare import CalibrationRecipe, Question, Target, Terms

NAME = "gcfcp"  # The name of the job, and of the round at the server.


def recipe_of(groups: gcfcp.Groups) -> CalibrationRecipe:
    """The round: what is asked for, what is calibrated, and on which terms."""
    return CalibrationRecipe(
        Question(groups, gcfcp.scores.THR(), min_count=20),
        Target(alpha=0.1, audit=True),
        Terms(deadline=60, min_clients=3, clients={name: name for name in HOSPITALS}),
        name=NAME,
    )


def write_local(local: Path, directory: Path) -> None:
    """Write what the sites and the server have in the directory `local` of their startup kits.

    The simulator copies one such directory to all of them. In a deployment each site has its own.
    """
    (local / "gcfcp").mkdir(parents=True, exist_ok=True)
    for name in HOSPITALS:
        (local / "gcfcp" / f"{name}.toml").write_text(site_file(directory / name, name))
    (local / "gcfcp" / "server.toml").write_text(
        f"rounds = {json.dumps(str(directory / 'rounds'))}\n"
    )
    write_allowed(local)


def write_allowed(local: Path) -> None:
    """Let jobs name the two classes of gcfcp, and no others; a site needs the second one alone."""
    allowed = [
        "gcfcp.nvflare.controller.CalibrationController",
        "gcfcp.nvflare.executor.SiteExecutor",
    ]
    local.mkdir(parents=True, exist_ok=True)
    (local / "resources.json").write_text(
        json.dumps({"format_version": 2, "class_allow_list": allowed}, indent=1)
    )


def main() -> int:
    """Run everything; the exit code is 0 if the round ended in a calibration."""
    parser = argparse.ArgumentParser(description="Three hospitals in FLARE's simulator")
    parser.add_argument("--directory", type=Path, help="where everything is left to look at")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="three-hospitals-"))
    directory = directory.resolve()
    print(f"everything is in {directory}", flush=True)
    for k, name in enumerate(HOSPITALS):
        make_site(directory / name, seed=k, records=2000 + 1000 * k)
    (directory / "groups.toml").write_text(GROUPS)

    recipe = recipe_of(gcfcp.Groups.from_toml(directory / "groups.toml"))
    write_local(directory / "simulation" / NAME / "local", directory)
    try:
        recipe.execute(
            SimEnv(clients=list(HOSPITALS), workspace_root=str(directory / "simulation"))
        )
    except RuntimeError as error:
        print(error, file=sys.stderr)
    record_file = directory / "rounds" / NAME / "record.json"
    if not record_file.exists():
        print(f"there is no result; see the logs in {directory}/simulation", file=sys.stderr)
        return 1
    record = json.loads(record_file.read_text())
    show(record)
    print(f"predictor, report and record: {record_file.parent}")
    print(f"what a hospital has told: gcfcp ledger {directory / HOSPITALS[0] / 'ledger'}")
    return 0 if record["outcome"] == "calibrated" else 1


if __name__ == "__main__":
    sys.exit(main())
