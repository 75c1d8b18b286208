"""A round from plain settings, such as the configuration of a run.

The settings of the question are those of a site (see `gcfcp.rounds`), and the file that
`python -m gcfcp.flower app` writes lists all of them with their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gcfcp import checks, codec
from gcfcp.calibration import MAX_ATOMS, mixture, parse_aggregates
from gcfcp.carriers.roster import read_roster
from gcfcp.carriers.target import Target, Terms
from gcfcp.errors import GCFCPError
from gcfcp.rounds import Question, number, question_of, split, text, whole
from gcfcp.summary import signatures

Setup = tuple[Question, Target, Terms, Path]
"""The question, the target, the terms and the output directory of a round."""


def setup_of(
    run: Mapping[str, Any], roster: Callable[[str], dict[str, str]] = read_roster
) -> Setup:
    """The question, the target, the terms and the output directory that settings describe.

    roster: It reads the roster that `clients` names.
    """
    target = Target(
        alpha=number(run, "alpha", 0.1),
        mixture=mixture.parse(str(run.get("mixture", "proportional")), codec.read),
        merge=str(run.get("merge", "pool")),
        rule=run.get("rule") or None,
        confidence=number(run, "confidence", 0) or None,
        correction=str(run.get("correction", "sharp")),
        coreset=checks.flag("coreset", run.get("coreset", False)),
        audit=checks.flag("audit", run.get("audit", False)),
        max_share=number(run, "max-share", 0) or None,
        allow_share=split(str(run["allow-share"])) if run.get("allow-share") else (),
        max_atoms=whole(run, "max-atoms", MAX_ATOMS) or None,
    )
    terms = Terms(
        deadline=number(run, "deadline", 300),
        min_clients=whole(run, "min-clients", 1),
        missing=str(run.get("missing", "fail")),
        clients=roster(run["clients"]) if run.get("clients") else None,
        max_bytes=whole(run, "max-bytes", 64 * 2**20),
        aggregates=_aggregates(run.get("aggregates", "")),
        known_keys=signatures.load_known(run["known-keys"]) if run.get("known-keys") else None,
    )
    return question_of(run), target, terms, Path(text(run, "output"))


def _aggregates(given: Any) -> dict[str, int | None]:
    """The aggregates that may answer, from text such as "north=3,south". False allows none."""
    if given is True:
        raise GCFCPError(
            'aggregates=true would believe any node: name them, such as aggregates = "north=3"'
        )
    return parse_aggregates(split(given)) if given else {}
