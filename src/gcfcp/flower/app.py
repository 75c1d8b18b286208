"""The ready app: a client and a server that are set up by configuration alone.

A site says who it is and to which question it has agreed in its node configuration, which only the
site can write:

    flower-supernode ... --node-config 'client="hospital-a" data="/data/calibration.parquet"
                                        groups="/data/groups.toml" score="thr" min-count=20'

`client` is the name of the client, and `ledger` is the directory in which the site keeps what it
has answered (by default `gcfcp.rounds.default_directory`). The other keys are those of
`gcfcp.rounds.settings`, which lists them with their defaults.

The run configuration of the server is in the pyproject.toml of the app directory, with its
defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gcfcp import checks, codec, rounds
from gcfcp.calibration import MAX_ATOMS, mixture, parse_aggregates
from gcfcp.errors import GCFCPError
from gcfcp.flower import client as client_side
from gcfcp.flower import server as server_side
from gcfcp.flower.client import NodeConfig
from gcfcp.flower.exchange import Terms
from gcfcp.flower.roster import read_roster
from gcfcp.flower.server import Target
from gcfcp.rounds import Question, Site, number, question_of, text, whole

# A site's settings do not include these. A simulation of Flower adds the last two.
_OWN_KEYS = frozenset({"client", "ledger", "partition-id", "num-partitions"})


def site_of(node: NodeConfig) -> Site:
    """The site that a node configuration describes; a GCFCPError if something is wrong with it."""
    settings = {key: value for key, value in node.items() if key not in _OWN_KEYS}
    return rounds.site_of(settings, client_side.name_of(node), client_side.ledger_of(node))


def setup_of(run: Mapping[str, Any]) -> tuple[Question, Target, Terms, Path]:
    """The question, the target, the terms and the output directory of a run configuration."""
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
        allow_share=_split(str(run["allow-share"])) if run.get("allow-share") else (),
        max_atoms=whole(run, "max-atoms", MAX_ATOMS) or None,
    )
    terms = Terms(
        deadline=number(run, "deadline", 300),
        min_clients=whole(run, "min-clients", 1),
        missing=str(run.get("missing", "fail")),
        clients=read_roster(run["clients"]) if run.get("clients") else None,
        max_bytes=whole(run, "max-bytes", 64 * 2**20),
        aggregates=_aggregates(run.get("aggregates", "")),
    )
    return question_of(run), target, terms, Path(text(run, "output"))


def _aggregates(given: Any) -> dict[str, int | None]:
    """The aggregates that may answer, from text such as "north=3,south". False allows none."""
    if given is True:
        raise GCFCPError(
            'aggregates=true would believe any node: name them, such as aggregates = "north=3"'
        )
    return parse_aggregates(_split(given)) if given else {}


def _split(text: str) -> tuple[str, ...]:
    """The names in a text that has commas between them."""
    return tuple(name.strip() for name in text.split(","))


# Flower looks for these names in the source code, so they must be plain assignments.
client = client_side.app_of(site_of)
server = server_side.app_of(setup_of)
