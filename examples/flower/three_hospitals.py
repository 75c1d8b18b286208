"""Three hospitals calibrate one model together, each behind its own SuperNode, on this machine.

    python examples/flower/three_hospitals.py [--directory hospitals] [--keep-running]

The program invents data (of a risk model that is worse for old people) and makes keys and
certificates. It starts a SuperLink, which is Flower's server process, with TLS and node
authentication, and three SuperNodes, which are its client processes. Two of the hospitals write no
Python; the third one has a file of its own, my_site.py. The program runs one round with an audit,
and stops everything. It prints each command, so that the same can be done on four machines.
The guide is docs/flower.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

from deployment import Deployment
from hospitals import GROUPS, HOSPITALS, make_site, show
from keys import make_keys


def node_config(site: Path, client: str) -> dict[str, str | int]:
    """What this hospital tells its SuperNode: its name, where its data are, what it agrees to.

    The names of the data sets are the hospital's own. New records get a new name. The third
    hospital says all this in Python.
    """
    if client == "hospital-c":
        return {"site": f"{site / 'my_site.py'}:site", "folder": str(site)}
    return {
        "client": client,
        "data": str(site / "calibration.csv"),
        "dataset": "calibration 2026Q4",
        "audit-data": str(site / "audit.csv"),
        "audit-dataset": "audit 2026Q4",
        "groups": str(site / "groups.toml"),
        "score": "thr",
        "min-count": 20,
        "ledger": str(site / "ledger"),
    }


def run_config(server: Path) -> dict[str, str | int | float | bool]:
    """What the server asks the hospitals for, and where it writes the result."""
    return {
        "groups": str(server / "groups.toml"),
        "clients": str(server.parent / "keys/roster.toml"),
        "output": str(server / "round"),
        "score": "thr",
        "min-count": 20,
        "alpha": 0.1,
        "min-clients": 3,
        "deadline": 300,
        "audit": True,
    }


def main() -> int:
    """Run everything; the exit code is 0 if the round ended in a calibration."""
    parser = argparse.ArgumentParser(description="Three hospitals on one machine")
    parser.add_argument("--directory", type=Path, help="where everything is left to look at")
    parser.add_argument("--keep-running", action="store_true", help="wait for Enter before the end")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="three-hospitals-"))
    directory = directory.resolve()
    server = directory / "server"
    server.mkdir(parents=True, exist_ok=True)

    print(f"everything is in {directory}")
    # Four machines would need the name of the server here; on this one it is localhost.
    make_keys(directory / "keys", list(HOSPITALS), ["localhost"])
    for k, name in enumerate(HOSPITALS):
        make_site(directory / name, seed=k, records=2000 + 1000 * k)
    shutil.copy(Path(__file__).with_name("my_site.py"), directory / "hospital-c")
    (server / "groups.toml").write_text(GROUPS)
    if not (server / "app").exists():
        command = [sys.executable, "-m", "gcfcp.flower", "app", str(server / "app")]
        subprocess.run(command, check=True)

    with Deployment(directory, directory / "keys", echo=print) as deployment:
        deployment.start_superlink()
        for name in HOSPITALS:
            deployment.register(name)
            deployment.start_node(name, node_config(directory / name, name))
        for name in HOSPITALS:
            deployment.wait_for_node(name)
        deployment.run(server / "app", run_config(server), "--start 300")
        if given.keep_running:
            input("Everything is running; press Enter to stop it.")

    record_file = server / "round/record.json"
    if not record_file.exists():
        print(f"there is no result; see {directory}/superlink.log", file=sys.stderr)
        return 1
    record = json.loads(record_file.read_text())
    show(record)
    print(f"predictor, report and record: {server / 'round'}")
    print(f"what a hospital has told: gcfcp ledger {directory / HOSPITALS[0] / 'ledger'}")
    return 0 if record["outcome"] == "calibrated" else 1


if __name__ == "__main__":
    sys.exit(main())
