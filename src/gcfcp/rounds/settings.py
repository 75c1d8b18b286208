"""A question and a site from plain settings, such as a carrier's configuration file has.

A site that writes no Python says here who it is, where its records are, and to which question it
has agreed. The settings of the question are the same as those of the server, with the same
defaults, so that both sides can write down the same lines.

| key              | what it holds                                                     | default   |
|------------------|-------------------------------------------------------------------|-----------|
| `data`           | a CSV or Parquet file with the columns of `gcfcp summarize`       | (needed)  |
| `summary`        | in place of `data`: a summary that was made and inspected before  | none      |
| `groups`         | the groups file                                                   | (needed)  |
| `score`          | the name of the score                                             | (needed)  |
| `parameters`     | the parameters of the score, as JSON                              | none      |
| `model`          | the fingerprint of the model                                      | none      |
| `delta`          | how fine the digests are                                          | 250       |
| `representative` | what stands for a cluster of scores: upper or mean                | upper     |
| `min-count`      | the fewest records that a centroid may stand for                  | 10        |
| `by`             | atom or group                                                     | (derived) |
| `shape`          | by group: a shape or an earlier predictor, made of other records  | none      |
| `grid`           | a grid file, or words such as uniform:0,1,64; none: digests       | none      |
| `epsilon`        | with a grid: the privacy loss of one record; sites add noise      | no noise  |
| `secure`         | whether the counts are added up in a secure sum; needs a grid     | false     |
| `dishonest`      | in a secure sum with noise: sites that may tell others their own  | 1         |
| `spare`          | in a secure sum with noise: sites that add it and may be lost     | 0         |
| `round`          | the round that summary and audit name, such as 2026Q4             | none      |
| `absent`         | the groups that the site cannot have, with commas                 | none      |
| `questions`      | how many different questions are answered about a data set        | 1         |
| `budget`         | the most epsilon that all summaries of a data set may lose        | no limit  |
| `dataset`        | the name of the records in `data` or `summary`                    | its path  |
| `audit-data`     | labelled records for audits, none of them used to calibrate       | no audits |
| `audit-dataset`  | the name of the records in `audit-data`                           | its path  |
| `audits`         | how many different predictors are audited on a data set           | 1         |
| `sum-sites`      | the fewest sites on the roster of a secure sum                    | 3         |
| `sum-threshold`  | the fewest sites in a secure sum                                  | 2/3       |
| `key`            | the private key of the site (`gcfcp keygen`), for signed sums     | none      |
| `known-keys`     | the public keys of all sites, its own included, for signed sums   | none      |
| `missing`        | what is done with rows that lack a value: "error", or "drop"      | error     |
| `seed`           | the seed of randomised scores                                     | random    |

A summary that was made beforehand is itself the question that the site has agreed to. Then the
settings from `groups` to `absent` are left out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from gcfcp import checks, tables
from gcfcp.audit import Audit
from gcfcp.errors import GCFCPError
from gcfcp.grid import Grid
from gcfcp.groups import Groups
from gcfcp.prediction import Predictor
from gcfcp.rounds.ledger import Ledger
from gcfcp.rounds.policy import Policy
from gcfcp.rounds.question import Question, score_of
from gcfcp.rounds.site import Records, Site
from gcfcp.secure import Identity, Rules
from gcfcp.shape import Shape
from gcfcp.summary import ClientSummary, Making, signatures

Settings = Mapping[str, Any]
"""Values by name."""

_QUESTION_KEYS = (
    *("groups", "score", "parameters", "model", "delta", "representative", "min-count"),
    *("by", "shape", "grid", "epsilon", "round", "absent", "secure"),
    *("dishonest", "spare"),
)
_SITE_KEYS = frozenset(
    {*_QUESTION_KEYS, "data", "summary", "questions", "budget", "dataset"}
    | {"audit-data", "audit-dataset", "audits", "missing", "seed"}
    | {"sum-sites", "sum-threshold", "key", "known-keys"}
)
# These keys of 0.1.0 allowed a server to vary its question, which gave scores away.
_FORMER_KEYS = {
    "max-delta": "write the agreed delta as delta",
    "scores": "write the agreed score as score",
}


def question_of(settings: Settings) -> Question:
    """The question that settings describe, at the server as at a site."""
    return Question(
        groups=Groups.from_toml(text(settings, "groups")),
        score=score_of(text(settings, "score"), _parameters(settings.get("parameters", ""))),
        model=settings.get("model") or None,
        delta=number(settings, "delta", 250),
        representative=str(settings.get("representative", "upper")),
        min_count=whole(settings, "min-count", 10),
        by=settings.get("by") or None,
        shape=Shape.load(text(settings, "shape")) if settings.get("shape") else None,
        round=settings.get("round") or None,
        grid=Grid.parse(text(settings, "grid")) if settings.get("grid") else None,
        epsilon=number(settings, "epsilon", 0) or None,
        secure=checks.flag("secure", settings.get("secure", False)),
        dishonest=whole(settings, "dishonest", 0) if "dishonest" in settings else None,
        spare=whole(settings, "spare", 0) if "spare" in settings else None,
    )


def site_of(settings: Settings, client: str, ledger: Ledger) -> Site:
    """The site that settings describe; a GCFCPError if something is wrong with them.

    client: The name of the site.
    ledger: Where the site keeps what it has answered.
    """
    _check_keys(settings)
    absent = split(text(settings, "absent")) if "absent" in settings else ()
    if "summary" in settings:
        path = text(settings, "summary")
        agreed = Question.of_summary(ClientSummary.load(path))
        read = partial(_read_summary, path)
    else:
        path = text(settings, "data")
        agreed = question_of(settings)
        read = partial(_summarise, path, settings, client, absent)
    return Site(
        client=client,
        policy=Policy(
            agreed,
            absent=absent,
            questions=whole(settings, "questions", 1),
            audits=whole(settings, "audits", 1),
            budget=number(settings, "budget", 0) if "budget" in settings else None,
            sums=Rules(
                whole(settings, "sum-sites", 3), whole(settings, "sum-threshold", 0) or None
            ),
        ),
        ledger=ledger,
        calibration=_records(settings, "dataset", path, read),
        audit=_audit_records(settings, client),
        identity=_identity(settings, client),
    )


def _identity(settings: Settings, client: str) -> Identity | None:
    """The signing key of the site and those that it knows, if the settings name them."""
    if "key" not in settings and "known-keys" not in settings:
        return None
    known = signatures.load_known(text(settings, "known-keys"))
    path = text(settings, "key")
    if signatures.public_key(path) not in known.get(client, ()):
        raise GCFCPError(
            f"{path!s:.200} is not a key of {client!r:.60} in the file of known keys: the other "
            "sites would refuse this site"
        )
    return Identity(client, path, known)


def _check_keys(settings: Settings) -> None:
    """Raise a GCFCPError if a key is unknown, or does not go with another one."""
    for key, remedy in _FORMER_KEYS.items():
        if key in settings:
            raise GCFCPError(
                f"the configuration has {key}, but a site now agrees to one whole question: "
                f"{remedy}"
            )
    if unknown := sorted(set(settings) - _SITE_KEYS):
        raise GCFCPError(
            f"the configuration has the unknown key {unknown[0]!r}: the keys are client, ledger, "
            f"{', '.join(sorted(_SITE_KEYS))}"
        )
    if ("data" in settings) == ("summary" in settings):
        raise GCFCPError("the configuration needs data or summary, and not both")
    if "data" in settings and "audit-data" in settings:
        both = [os.path.realpath(text(settings, key)) for key in ("data", "audit-data")]
        if both[0] == both[1]:
            raise GCFCPError(
                f"the configuration has {both[0]} as data and as audit-data: an audit needs other "
                "records than those that calibrate"
            )
    if "summary" in settings:
        for key in _QUESTION_KEYS:
            if key in settings:
                raise GCFCPError(
                    f"the configuration has {key} beside summary: leave {key} out, because the "
                    "summary says itself to which question the site has agreed"
                )


def _records(settings: Settings, key: str, path: str, read: Any) -> Records:
    """The records in a file, under the name that the settings give them."""
    name = text(settings, key) if key in settings else os.path.realpath(path)
    return Records(name, read, partial(_fingerprint, path))


def _fingerprint(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise GCFCPError(f"cannot read {path!s:.200}: {why}") from None


def _read_summary(path: str, question: Question) -> ClientSummary:
    """The summary that the site has made beforehand."""
    return ClientSummary.load(path)


def _summarise(
    path: str, settings: Settings, client: str, absent: tuple[str, ...], question: Question
) -> ClientSummary:
    """The summary of the site's table; byte for byte what `gcfcp summarize` makes of it."""
    with tables.open_table(path) as table:
        scoring = tables.scoring(table, question.score_name, **question.parameters)
        making = Making(client=client, score=scoring.named, absent=absent, **question.arguments)
        (summary,), _ = tables.summarize_table(
            table,
            scoring,
            making,
            missing=str(settings.get("missing", "error")),
            rng=_generator(question, settings),
        )
    return summary


def _audit_records(settings: Settings, client: str) -> Records | None:
    """The labelled records that the settings name; None if they name none."""
    if "audit-data" not in settings:
        return None
    path = text(settings, "audit-data")
    return _records(settings, "audit-dataset", path, partial(_count, path, settings, client))


def _count(
    path: str, settings: Settings, client: str, predictor: Predictor, question: Question
) -> Audit:
    """The audit of the predictor on the site's labelled table."""
    with tables.open_table(path) as table:
        audit, _ = tables.audit_table(
            table,
            predictor,
            client=client,
            min_count=question.min_count,
            missing=str(settings.get("missing", "error")),
            rng=_generator(question, settings),
        )
    return audit


def _generator(question: Question, settings: Settings) -> Generator | None:
    """The generator for a randomised score, and None for any other score."""
    if not getattr(question.score, "randomized", False):
        return None
    return np.random.default_rng(settings.get("seed"))


# --- values --------------------------------------------------------------------------------------


def text(settings: Settings, key: str) -> str:
    """A value that must be a text and not empty."""
    value = settings.get(key)
    if not isinstance(value, str) or not value:
        raise GCFCPError(f"{key}={value!r:.60} in the configuration is missing or is not a text")
    return value


def number(settings: Settings, key: str, default: float) -> float:
    """A value that must be a number."""
    value = settings.get(key, default)
    if not checks.is_number(value):
        raise GCFCPError(f"{key}={value!r:.60} in the configuration is not a number")
    return checks.as_float(value)


def whole(settings: Settings, key: str, default: int) -> int:
    """A value that must be a whole number."""
    return checks.whole(key, settings.get(key, default))


def split(names: str) -> tuple[str, ...]:
    """The names in a text that has commas between them."""
    return tuple(name.strip() for name in names.split(","))


def _parameters(given: Any) -> dict[str, Any]:
    """The parameters of the score, which the settings hold as JSON."""
    try:
        parameters = json.loads(given or "{}")
    except (ValueError, TypeError):
        parameters = None
    if not isinstance(parameters, dict):
        raise GCFCPError(f'parameters={given!r:.60} is not a JSON object such as {{"lam": 0.01}}')
    return parameters
