"""Sites with small tables, and the predictor that files alone make of them, for every carrier."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import gcfcp
from gcfcp.rounds import Question

SECRET = "0.37194428"  # A score that must not leave its site.
GROUPS = gcfcp.Groups({"all": "TRUE", "over_65": "age >= 65"})
QUESTION = Question(GROUPS, "column", min_count=10)
COMMAND = [sys.executable, "-c", "from gcfcp.cli import main; main()"]


def make_table(path: Path, seed: int) -> None:
    """Write a table of 200 records with scores."""
    rng = np.random.default_rng(seed)
    rows = zip(rng.integers(20, 90, 200).tolist(), rng.random(200).tolist(), strict=True)
    path.write_text("age,score\n" + "".join(f"{age},{score}\n" for age, score in rows))


def write_site(path: Path, directory: Path, **changes: Any) -> None:
    """Write the file of a site whose tables are in a directory; None leaves a key out."""
    (directory / "groups.toml").write_text(GROUPS.to_toml())
    settings = {
        "data": str(directory / "calibration.csv"),
        "groups": str(directory / "groups.toml"),
        "score": "column",
        "min-count": 10,
        "ledger": str(directory / "ledger"),
    } | {key.replace("_", "-"): value for key, value in changes.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{k} = {json.dumps(v)}\n" for k, v in settings.items() if v is not None]
    path.write_text("".join(lines))


def run(*arguments: object) -> None:
    """Run a command of gcfcp."""
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def by_files(folder: Path, tables: dict[str, Path], groups: Path, *options: object) -> bytes:
    """The predictor that `gcfcp summarize` and `gcfcp calibrate` make of the clients' tables."""
    folder.mkdir()
    for client, table in tables.items():
        arguments = ("--groups", groups, "--client", client, "-o", folder / f"{client}.gcfcp")
        run("summarize", table, *arguments, *options)
    run("calibrate", *sorted(folder.glob("*.gcfcp")), "--alpha", 0.1, "-o", folder / "p.json")
    return (folder / "p.json").read_bytes()


def codes(record: dict[str, Any]) -> dict[str, Any]:
    """The code of every client in a record, by name."""
    return {entry["client"]: entry["code"] for entry in record["clients"]}


def refuse_secret(folder: Path, *texts: str, but: tuple[str, ...] = ()) -> None:
    """Assert that the secret stands in no text and in no file, but those with certain names."""
    for text in texts:
        assert SECRET not in text
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in but:
            assert SECRET.encode() not in path.read_bytes(), path
