"""Three invented hospitals, whose risk model is worse for old people. The examples share them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

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


def site_file(directory: Path, client: str) -> str:
    """What a hospital writes down: where its data are, and the one question that it answers.

    The names of the data sets are the hospital's own. New records get a new name.
    """
    return "".join(
        f"{key} = {json.dumps(value)}\n"
        for key, value in {
            "client": client,
            "data": str(directory / "calibration.csv"),
            "dataset": "calibration 2026Q4",
            "audit-data": str(directory / "audit.csv"),
            "audit-dataset": "audit 2026Q4",
            "groups": str(directory / "groups.toml"),
            "score": "thr",
            "min-count": 20,
            "ledger": str(directory / "ledger"),
        }.items()
    )


def show(record: dict[str, Any]) -> None:
    """Print who answered, and what the audit found."""
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
