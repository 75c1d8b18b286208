"""The ready app: both components, set up by configuration alone.

A site says who it is and what it allows in its node configuration, which only the site can write:

    flower-supernode ... --node-config 'client="hospital-a" data="/data/calibration.parquet"
                                        groups="/data/groups.toml" min-count=20'

| key          | what                                                              | default   |
|--------------|-------------------------------------------------------------------|-----------|
| `client`     | the client's name                                                 | (needed)  |
| `groups`     | the groups file that the site allows; any other is refused        | (needed)  |
| `data`       | CSV or Parquet, columns as for `gcfcp summarize`                  | (this or) |
| `summary`    | a ready summary, which somebody has looked at (`gcfcp inspect`)   | (this)    |
| `max-delta`  | the finest digest that the site gives                             | 250       |
| `min-count`  | the fewest records that the site lets a centroid stand for        | 10        |
| `scores`     | names of the scores that may be asked for, with commas            | any       |
| `model`      | fingerprint of the site's model                                   | none      |
| `missing`    | rows with a missing score: "error", or "drop"                     | error     |
| `seed`       | of the generator for randomised scores                            | fresh     |
| `audit-data` | labelled records for audits, none of them used to calibrate       | no audits |
| `ledger`     | a file that gets a line for every answer                          | none      |

The server's run configuration is in the app directory's pyproject.toml, with its defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from gcfcp import codec, tables
from gcfcp.audit import Audit
from gcfcp.calibration import mixture
from gcfcp.errors import GCFCPError
from gcfcp.flower import client as client_side
from gcfcp.flower import server as server_side
from gcfcp.flower.client import NodeConfig, Policy, Site
from gcfcp.flower.exchange import Terms
from gcfcp.flower.protocol import Question, score_of
from gcfcp.flower.roster import read_roster
from gcfcp.flower.server import Target
from gcfcp.groups import Groups
from gcfcp.prediction import Predictor
from gcfcp.summary import ClientSummary

# --- a site --------------------------------------------------------------------------------------

_SITE_KEYS = frozenset(
    {"client", "groups", "data", "summary", "max-delta", "min-count", "scores", "model"}
    | {"missing", "seed", "audit-data", "ledger"}
)
_FLOWER_KEYS = frozenset({"partition-id", "num-partitions"})


def site_of(node: NodeConfig) -> Site:
    """The site that a node configuration describes; a GCFCPError says what is wrong with it."""
    if unknown := sorted(set(node) - _SITE_KEYS - _FLOWER_KEYS):
        raise GCFCPError(
            f"the node configuration has {unknown[0]!r}, which is none of "
            f"{', '.join(sorted(_SITE_KEYS))}"
        )
    if ("data" in node) == ("summary" in node):
        raise GCFCPError("the node configuration needs either data or summary")
    names = node.get("scores")
    policy = Policy(
        groups=Groups.from_toml(_text(node, "groups")),
        max_delta=_number(node, "max-delta", 250),
        min_count=_whole(node, "min-count", 10),
        scores=None if names is None else frozenset(s.strip() for s in str(names).split(",")),
        model=_text(node, "model") if "model" in node else None,
    )
    return Site(
        client=client_side.name_of(node),
        policy=policy,
        load=_load_summary if "summary" in node else _load_data,
        audit=_audit_data if "audit-data" in node else None,
        ledger=Path(_text(node, "ledger")) if "ledger" in node else None,
    )


def _load_summary(question: Question, node: NodeConfig) -> ClientSummary:
    return ClientSummary.load(_text(node, "summary"))


def _load_data(question: Question, node: NodeConfig) -> ClientSummary:
    """What `gcfcp summarize` makes of the same file, to the last byte."""
    with tables.open_table(_text(node, "data")) as table:
        summary, _ = tables.summarize_table(
            table,
            tables.scoring(table, question.score_name, **question.parameters),
            groups=question.groups,
            client=client_side.name_of(node),
            delta=question.delta,
            representative=question.representative,  # type: ignore[arg-type]
            min_count=question.min_count,
            model=question.model,
            missing=str(node.get("missing", "error")),
            rng=_generator(question, node),
        )
    return summary


def _generator(question: Question, node: NodeConfig) -> Generator | None:
    if not getattr(question.score, "randomized", False):
        return None
    return np.random.default_rng(node.get("seed"))


def _audit_data(predictor: Predictor, question: Question, node: NodeConfig) -> Audit:
    with tables.open_table(_text(node, "audit-data")) as table:
        audit, _ = tables.audit_table(
            table,
            predictor,
            client=client_side.name_of(node),
            min_count=question.min_count,
            missing=str(node.get("missing", "error")),
            rng=_generator(question, node),
        )
    return audit


# --- the server ----------------------------------------------------------------------------------


def setup_of(run: Mapping[str, Any]) -> tuple[Question, Target, Terms, Path]:
    """Question, target, terms and output directory of a run configuration."""
    question = Question(
        groups=Groups.from_toml(_text(run, "groups")),
        score=score_of(_text(run, "score"), _parameters(run.get("parameters", ""))),
        model=run.get("model") or None,
        delta=_number(run, "delta", 250),
        representative=str(run.get("representative", "upper")),
        min_count=_whole(run, "min-count", 10),
    )
    target = Target(
        alpha=_number(run, "alpha", 0.1),
        mixture=mixture.parse(str(run.get("mixture", "uniform")), codec.read),
        merge=str(run.get("merge", "pool")),
        rule=str(run.get("rule", "simultaneous")),
        coreset=bool(run.get("coreset", True)),
        audit=bool(run.get("audit", False)),
    )
    terms = Terms(
        deadline=_number(run, "deadline", 300),
        min_clients=_whole(run, "min-clients", 1),
        missing=str(run.get("missing", "fail")),
        clients=read_roster(run["clients"]) if run.get("clients") else None,
        max_bytes=_whole(run, "max-bytes", 64 * 2**20),
        aggregates=bool(run.get("aggregates", False)),
    )
    return question, target, terms, Path(_text(run, "output"))


def _parameters(text: Any) -> dict[str, Any]:
    try:
        parameters = json.loads(text or "{}")
    except (ValueError, TypeError):
        parameters = None
    if not isinstance(parameters, dict):
        raise GCFCPError(f'parameters={text!r:.60} is not JSON such as {{"lam": 0.01}}')
    return parameters


# --- values of a configuration -------------------------------------------------------------------


def _text(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise GCFCPError(f"{key}={value!r:.60} is missing or not text in the configuration")
    return value


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    if type(value) not in (int, float):
        raise GCFCPError(f"{key}={value!r:.60} is not a number in the configuration")
    return value  # type: ignore[no-any-return]


def _whole(config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key, default)
    if type(value) is not int:
        raise GCFCPError(f"{key}={value!r:.60} is not a whole number in the configuration")
    return value


# Flower reads the syntax tree to find these names, so they are plain assignments.
client = client_side.app_of(site_of)
server = server_side.app_of(setup_of)
