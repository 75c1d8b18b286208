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

import numpy as np
from deployment import Deployment
from keys import make_keys

HOSPITALS = ("hospital-a", "hospital-b", "hospital-c")
GROUPS = """\
[groups]
all = "TRUE"
over_65 = "age >= 65"
female = "sex = 'F'"
"""


def make_site(directory: Path, seed: int, records: int) -> None:
    """Write a hospital's calibration.csv and audit.csv: probabilities of three outcomes, and y."""
    rng = np.random.default_rng(seed)
    directory.mkdir(parents=True, exist_ok=True)
    for name, n in (("calibration", records), ("audit", records)):
        age = rng.integers(18, 95, n)
        logits = rng.normal(size=(n, 3)) * 2 + rng.normal(size=3) * 0.3
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        # For young people outcomes follow the model, for old people only loosely.
        real = np.where((age >= 65)[:, None], 0.5 * p + 0.5 / 3, p)
        y = (rng.random((n, 1)) > real.cumsum(axis=1)).sum(axis=1).clip(max=2)
        sex = np.where(rng.random(n) < 0.5, "F", "M")
        with open(directory / f"{name}.csv", "w") as file:
            file.write("age,sex,y,proba_home,proba_ward,proba_icu\n")
            for i in range(n):
                label = ("home", "ward", "icu")[y[i]]
                file.write(f"{age[i]},{sex[i]},{label},{','.join(map(repr, p[i].tolist()))}\n")
    (directory / "groups.toml").write_text(GROUPS)


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
    for entry in record["clients"]:
        print(
            f"{entry['client']}: {entry['status']} {entry['meaning'] or ''}, {entry['bytes']} bytes"
        )
    if "audit" in record:
        print(f"mixture of the clients: {record['audit']['mixture_text']}")
    for group in record.get("audit", {}).get("groups", []):
        low, high = group["low"], group["high"]
        print(
            f"  {group['group']}: covered {group['coverage']:.3f} [{low:.3f}, {high:.3f}]"
            f" {group['verdict']}"
        )
    print(f"predictor, report and record: {server / 'round'}")
    print(f"what a hospital has told: gcfcp ledger {directory / HOSPITALS[0] / 'ledger'}")
    return 0 if record["outcome"] == "calibrated" else 1


if __name__ == "__main__":
    sys.exit(main())
