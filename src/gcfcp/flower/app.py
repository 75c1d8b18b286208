"""The ready app: a client and a server that are set up by configuration alone.

A site says who it is and what it allows in its node configuration, which only the site can write:

    flower-supernode ... --node-config 'client="hospital-a" data="/data/calibration.parquet"
                                        groups="/data/groups.toml" min-count=20'

| key          | what it holds                                                    | default   |
|--------------|------------------------------------------------------------------|-----------|
| `client`     | the name of the client                                           | (needed)  |
| `groups`     | the groups file that the site allows; any other is refused       | (needed)  |
| `data`       | a CSV or Parquet file with the columns of `gcfcp summarize`      | (needed)  |
| `summary`    | in place of `data`: a summary that was made and inspected before | none      |
| `max-delta`  | the largest delta (the finest digest) that the site allows       | 250       |
| `min-count`  | the fewest records that a centroid may stand for                 | 10        |
| `scores`     | the names of the scores that may be asked for, with commas       | any       |
| `model`      | the fingerprint of the site's model                              | none      |
| `absent`     | the groups that the site cannot have, with commas                | none      |
| `missing`    | what is done with rows that lack a value: "error", or "drop"     | error     |
| `seed`       | the seed of randomised scores                                    | random    |
| `audit-data` | labelled records for audits, none of them used to calibrate      | no audits |
| `ledger`     | a file that gets one line for every answer                       | none      |

The run configuration of the server is in the pyproject.toml of the app directory, with its
defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from gcfcp import checks, codec, tables
from gcfcp.audit import Audit
from gcfcp.calibration import MAX_ATOMS, mixture, parse_aggregates
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
from gcfcp.shape import Shape
from gcfcp.summary import ClientSummary, Making

# --- a site --------------------------------------------------------------------------------------

_SITE_KEYS = frozenset(
    {"client", "groups", "data", "summary", "max-delta", "min-count", "scores", "model"}
    | {"absent", "missing", "seed", "audit-data", "ledger"}
)
_FLOWER_KEYS = frozenset({"partition-id", "num-partitions"})  # A simulation of Flower adds these.


def site_of(node: NodeConfig) -> Site:
    """The site that a node configuration describes; a GCFCPError if something is wrong with it."""
    if unknown := sorted(set(node) - _SITE_KEYS - _FLOWER_KEYS):
        raise GCFCPError(
            f"the node configuration has the unknown key {unknown[0]!r}: the keys are "
            f"{', '.join(sorted(_SITE_KEYS))}"
        )
    if ("data" in node) == ("summary" in node):
        raise GCFCPError("the node configuration needs data or summary, and not both")
    if "absent" in node and "summary" in node:
        raise GCFCPError(
            "the node configuration has absent beside summary: leave absent out, because the "
            "summary says itself which groups the site cannot have"
        )
    names = node.get("scores")
    policy = Policy(
        groups=Groups.from_toml(_text(node, "groups")),
        max_delta=_number(node, "max-delta", 250),
        min_count=_whole(node, "min-count", 10),
        scores=None if names is None else frozenset(_split(str(names))),
        model=_text(node, "model") if "model" in node else None,
        absent=_absent(node),
    )
    return Site(
        client=client_side.name_of(node),
        policy=policy,
        load=_load_summary if "summary" in node else _load_data,
        audit=_audit_data if "audit-data" in node else None,
        ledger=Path(_text(node, "ledger")) if "ledger" in node else None,
    )


def _load_summary(question: Question, node: NodeConfig) -> ClientSummary:
    """The summary that the site has made beforehand."""
    return ClientSummary.load(_text(node, "summary"))


def _load_data(question: Question, node: NodeConfig) -> ClientSummary:
    """The summary of the site's table; byte for byte what `gcfcp summarize` makes of it."""
    with tables.open_table(_text(node, "data")) as table:
        scoring = tables.scoring(table, question.score_name, **question.parameters)
        making = Making(
            groups=question.groups,
            client=client_side.name_of(node),
            delta=question.delta,
            representative=checks.representative(question.representative),
            min_count=question.min_count,
            score=scoring.score,
            model=question.model,
            absent=_absent(node),
            by=str(question.by),
            shape=question.shape,
        )
        (summary,), _ = tables.summarize_table(
            table,
            scoring,
            making,
            missing=str(node.get("missing", "error")),
            rng=_generator(question, node),
        )
    return summary


def _absent(node: NodeConfig) -> tuple[str, ...]:
    """The groups that the site cannot have, by its own statement."""
    return _split(_text(node, "absent")) if "absent" in node else ()


def _generator(question: Question, node: NodeConfig) -> Generator | None:
    """The generator for a randomised score, and None for any other score."""
    if not getattr(question.score, "randomized", False):
        return None
    return np.random.default_rng(node.get("seed"))


def _audit_data(predictor: Predictor, question: Question, node: NodeConfig) -> Audit:
    """The audit of the predictor on the site's labelled table."""
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
    """The question, the target, the terms and the output directory of a run configuration."""
    question = Question(
        groups=Groups.from_toml(_text(run, "groups")),
        score=score_of(_text(run, "score"), _parameters(run.get("parameters", ""))),
        model=run.get("model") or None,
        delta=_number(run, "delta", 250),
        representative=str(run.get("representative", "upper")),
        min_count=_whole(run, "min-count", 10),
        by=run.get("by") or None,
        shape=Shape.load(_text(run, "shape")) if run.get("shape") else None,
    )
    target = Target(
        alpha=_number(run, "alpha", 0.1),
        mixture=mixture.parse(str(run.get("mixture", "proportional")), codec.read),
        merge=str(run.get("merge", "pool")),
        rule=run.get("rule") or None,
        confidence=_number(run, "confidence", 0) or None,
        correction=str(run.get("correction", "sharp")),
        coreset=checks.flag("coreset", run.get("coreset", True)),
        audit=checks.flag("audit", run.get("audit", False)),
        max_share=_number(run, "max-share", 0) or None,
        allow_share=_split(str(run["allow-share"])) if run.get("allow-share") else (),
        max_atoms=_whole(run, "max-atoms", MAX_ATOMS) or None,
    )
    terms = Terms(
        deadline=_number(run, "deadline", 300),
        min_clients=_whole(run, "min-clients", 1),
        missing=str(run.get("missing", "fail")),
        clients=read_roster(run["clients"]) if run.get("clients") else None,
        max_bytes=_whole(run, "max-bytes", 64 * 2**20),
        aggregates=_aggregates(run.get("aggregates", "")),
        round=run.get("round") or None,
    )
    return question, target, terms, Path(_text(run, "output"))


def _aggregates(given: Any) -> dict[str, int | None]:
    """The aggregates that may answer, from text such as "north=3,south". False allows none."""
    if given is True:
        raise GCFCPError(
            'aggregates=true would believe any node: name them, such as aggregates = "north=3"'
        )
    return parse_aggregates(_split(given)) if given else {}


def _parameters(text: Any) -> dict[str, Any]:
    """The parameters of the score, which the configuration holds as JSON."""
    try:
        parameters = json.loads(text or "{}")
    except (ValueError, TypeError):
        parameters = None
    if not isinstance(parameters, dict):
        raise GCFCPError(f'parameters={text!r:.60} is not a JSON object such as {{"lam": 0.01}}')
    return parameters


# --- values of a configuration -------------------------------------------------------------------


def _text(config: Mapping[str, Any], key: str) -> str:
    """A value that must be a text and not empty."""
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise GCFCPError(f"{key}={value!r:.60} in the configuration is missing or is not a text")
    return value


def _split(text: str) -> tuple[str, ...]:
    """The names in a text that has commas between them."""
    return tuple(name.strip() for name in text.split(","))


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    """A value that must be a number."""
    value = config.get(key, default)
    if not checks.is_number(value):
        raise GCFCPError(f"{key}={value!r:.60} in the configuration is not a number")
    return checks.as_float(value)


def _whole(config: Mapping[str, Any], key: str, default: int) -> int:
    """A value that must be a whole number."""
    value = config.get(key, default)
    return checks.whole(key, value)


# Flower looks for these names in the source code, so they must be plain assignments.
client = client_side.app_of(site_of)
server = server_side.app_of(setup_of)
