"""The ready app: a client and a server that are set up by configuration alone.

A site says who it is and to which question it has agreed in its node configuration, which only the
site can write:

    flower-supernode ... --node-config 'client="hospital-a" data="/data/calibration.parquet"
                                        groups="/data/groups.toml" score="thr" min-count=20'

`client` is the name of the client, and `ledger` is the directory in which the site keeps what it
has answered (by default `gcfcp.rounds.default_directory`). The other keys are those of
`gcfcp.rounds.settings`, which lists them with their defaults.

A site that computes its scores in Python names a function of its own instead, and whatever keys
that function reads:

    flower-supernode ... --node-config 'site="/srv/gcfcp/my_site.py:site"'

The function gets the node configuration and returns a `gcfcp.rounds.Site`. The file belongs to the
site. The app that the server sends has no part in it.

The run configuration of the server is in the pyproject.toml of the app directory, with its
defaults.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gcfcp import carriers, rounds
from gcfcp.carriers import Setup
from gcfcp.flower import client as client_side
from gcfcp.flower import server as server_side
from gcfcp.flower.client import NodeConfig
from gcfcp.flower.roster import read_roster
from gcfcp.rounds import Site, own_site, text

# A site's settings do not include these. A simulation of Flower adds the last two.
_OWN_KEYS = frozenset({"client", "ledger", "partition-id", "num-partitions"})


def site_of(node: NodeConfig) -> Site:
    """The site that a node configuration describes; a GCFCPError if something is wrong with it."""
    if "site" in node:
        return own_site(text(node, "site"), node, app_directories())
    settings = {key: value for key, value in node.items() if key not in _OWN_KEYS}
    return rounds.site_of(settings, client_side.name_of(node), client_side.ledger_of(node))


def app_directories() -> list[Path]:
    """The directories on Python's path that hold an app which a server has sent.

    Flower unpacks the app of a run and puts its directory before all others.
    """
    return [Path(entry) for entry in sys.path if entry and _is_app(Path(entry))]


def _is_app(directory: Path) -> bool:
    """Whether this directory holds an app of Flower."""
    try:
        table = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    tool = table.get("tool")
    flwr = tool.get("flwr") if isinstance(tool, dict) else None
    return isinstance(flwr, dict) and "app" in flwr


def setup_of(run: Mapping[str, Any]) -> Setup:
    """The question, the target, the terms and the output directory of a run configuration."""
    return carriers.setup_of(run, read_roster)


# Flower looks for these names in the source code, so they must be plain assignments.
client = client_side.app_of(site_of)
server = server_side.app_of(setup_of)
