"""A hospital's own Python: its policy, its records and its scores, in one file of the hospital's.

    flower-supernode ... --node-config 'site="/srv/gcfcp/my_site.py:site" folder="/srv/gcfcp"'

The file lies at the hospital, where nobody else can write, and the node configuration names it by
its whole path. `site` gets the node configuration. It returns who the hospital is, to which
question it has agreed, where it keeps what it has answered, and the functions that read its
records. Here these are CSV files with the probabilities of a model. Others would run their model.

To see that all is well before the first round: `python my_site.py FOLDER`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gcfcp
from gcfcp.rounds import Ledger, Policy, Question, Records, Site

LABELS = ("home", "icu", "ward")
SCORE = gcfcp.scores.THR(classes=LABELS)


def site(settings: Mapping[str, Any]) -> Site:
    """The hospital. Only its own settings come in here, and nothing of the server's."""
    folder = Path(settings["folder"])
    agreed = Question(gcfcp.Groups.from_toml(folder / "groups.toml"), SCORE, min_count=20)
    return Site(
        client="hospital-c",
        policy=Policy(agreed),
        ledger=Ledger(folder / "ledger"),
        # New records get a new name, so that they can be asked about anew.
        calibration=Records("calibration 2026Q4", partial(scores_of, folder / "calibration.csv")),
        audit=Records("audit 2026Q4", partial(covered_in, folder / "audit.csv")),
    )


def read(path: Path) -> tuple[dict[str, Any], Any, Any]:
    """The columns for the groups, the model's probabilities, and the true labels."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {"age": np.array([int(r["age"]) for r in rows]), "sex": [r["sex"] for r in rows]}
    probabilities = np.array([[float(r[f"proba_{label}"]) for label in LABELS] for r in rows])
    return columns, probabilities, np.array([r["y"] for r in rows])


def scores_of(path: Path, question: Question) -> tuple[Any, Any]:
    """The scores of the calibration records, and which groups they belong to."""
    columns, probabilities, y = read(path)
    return SCORE.of(probabilities, y), question.groups.membership(columns)


def covered_in(path: Path, predictor: gcfcp.Predictor, question: Question) -> tuple[Any, Any, Any]:
    """Which labelled records the predictor's sets cover, their groups, and the sets' sizes."""
    columns, probabilities, y = read(path)
    membership = question.groups.membership(columns)
    sets = predictor.predict_set(probabilities, membership)
    covered = sets[np.arange(len(y)), [LABELS.index(label) for label in y]]
    return covered, membership, sets.sum(axis=1)


if __name__ == "__main__":
    here = site({"folder": sys.argv[1]})
    (agreed,) = here.policy.agreed
    found, _ = here.calibration.read(agreed)
    print(f"{here.client} has {len(found)} scores for the agreed question")
