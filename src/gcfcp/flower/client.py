"""A site as a ClientApp of Flower.

What a site answers is decided in `gcfcp.rounds`: its policy pins the question, its ledger keeps the
one answer, and whatever goes wrong becomes a code. This module makes a site from its functions and
its node configuration, and moves messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from gcfcp import checks
from gcfcp.errors import GCFCPError
from gcfcp.prediction import Predictor
from gcfcp.rounds import (
    RECORD,
    WORK,
    Ledger,
    Policy,
    Question,
    Records,
    Site,
    default_directory,
    respond,
    text,
)
from gcfcp.secure import Identity
from gcfcp.summary import signatures

NodeConfig = Mapping[str, Any]
"""The configuration of a node, which only its site can write."""
Load = Callable[[Question, NodeConfig], Any]
"""A function that loads a site's scores and memberships, or its summary; see `client_app`."""
Check = Callable[[Predictor, Question, NodeConfig], Any]
"""A function that audits a predictor on a site's labelled records; see `client_app`."""

_log = logging.getLogger("flwr")  # Flower's processes show the lines of this logger only.


def client_app(
    load: Load,
    *,
    policy: Policy,
    client: str | None = None,
    audit: Check | None = None,
    dataset: str | None = None,
    audit_dataset: str | None = None,
    ledger: str | PathLike[str] | None = None,
    fingerprint: Callable[[NodeConfig], str] | None = None,
    key: str | PathLike[str] | None = None,
    known_keys: signatures.KnownKeys | None = None,
) -> ClientApp:
    """A ClientApp for a site that is written in Python.

    load: A function of the question and the node configuration. It returns the scores and the
    memberships of the calibration records, or a `ClientSummary` that was made beforehand. The
    memberships need no columns for sites, which are filled in from the name of the client.
    policy: What the site has agreed to answer.
    client: The name of this client. By default it is `client` in the node configuration or, in a
    simulation, client-00000 and so on.
    audit: A function of the predictor, the question and the node configuration. It returns
    (covered, membership) or (covered, membership, set sizes) of labelled records that were not used
    to calibrate, or an `Audit` of them. None means that the site takes part in no audit.
    dataset, audit_dataset: The names of the records that `load` and `audit` read. By default they
    are the name of the client, and the same followed by "audit". New records need a new name.
    ledger: The directory in which the site keeps what it has answered. By default it is
    `gcfcp.rounds.default_directory`. In a simulation it must be given: it is that of the run, since
    whoever simulates holds all data.
    fingerprint: A function of the node configuration that returns a text which changes whenever the
    records that `load` reads do. With it, changed records under the same name are noticed.
    key, known_keys: For signed secure sums, the file of the private key of this site, and the
    public keys of all sites (`gcfcp.summary.signatures.load_known`).

    `dataset`, `audit-dataset` and `ledger` in the node configuration come before the arguments.
    """

    def site_of(node: NodeConfig) -> Site:
        name = client or name_of(node)
        return Site(
            client=name,
            policy=policy,
            ledger=ledger_of(node, ledger, named=client is not None),
            calibration=Records(
                _chosen(node, "dataset", dataset, name),
                lambda question: load(question, node),
                None if fingerprint is None else partial(fingerprint, node),
            ),
            audit=None
            if audit is None
            else Records(
                _chosen(node, "audit-dataset", audit_dataset, f"{name} audit"),
                lambda predictor, question: audit(predictor, question, node),
            ),
            identity=None if key is None else Identity(name, key, known_keys),
        )

    return app_of(site_of)


def _chosen(node: NodeConfig, key: str, given: str | None, default: str) -> str:
    """A name: that of the node configuration, or the one that was given, or the default."""
    return text(node, key) if key in node else given or default


def name_of(node: NodeConfig) -> str:
    """The name of the client in the node configuration; a simulation numbers its nodes instead."""
    name = node.get("client")
    if name is None and "partition-id" in node:
        name = f"client-{int(node['partition-id']):05d}"
    if name is None:
        raise GCFCPError('the node configuration has no client: add client="NAME"')
    checks.name("client", name)
    return str(name)


def ledger_of(
    node: NodeConfig, given: str | PathLike[str] | None = None, *, named: bool = False
) -> Ledger:
    """The ledger of a node: that of its configuration, or the one that was given, or the default.

    A node without a name is one of a simulation, which must say where its ledger is. If each run
    had a new ledger without anyone saying so, then so would a site that is known by its number
    only, and a server could ask it a new question in every run.

    named: Whether the client has a name that is not in the node configuration.
    """
    simulated = not named and node.get("client") is None
    directory = text(node, "ledger") if "ledger" in node else given
    if directory is None:
        if simulated:
            raise GCFCPError(
                "a node without a name has no ledger of its own: in a simulation give "
                "client_app(ledger=DIRECTORY), a new directory for each run; at a site add "
                'client="NAME" to the node configuration'
            )
        return Ledger(default_directory())
    if not Path(directory).is_absolute():
        raise GCFCPError(
            f"ledger={str(directory)!r:.60} is not an absolute path: a node that is started in "
            "another directory would begin another ledger; write the path from the root on"
        )
    return Ledger(Path(directory), sync=not simulated)


def app_of(site_of: Callable[[NodeConfig], Site]) -> ClientApp:
    """A ClientApp for the site that `site_of` makes of the node configuration, at every request."""
    app = ClientApp()
    for action in WORK:
        app.query(action)(_handler(action, site_of))
    return app


def _handler(
    action: str, site_of: Callable[[NodeConfig], Site]
) -> Callable[[Message, Context], Message]:
    """A function that answers messages which ask for this action."""

    # Only node_config belongs to the site. run_config comes from the server and is not read.
    def answer(message: Message, context: Context) -> Message:
        content = message.content.get(RECORD) if message.has_content() else None
        record = respond(
            content if isinstance(content, ConfigRecord) else {},
            partial(site_of, context.node_config),
            action=action,
            log=_log,
        )
        return Message(RecordDict({RECORD: ConfigRecord(record)}), reply_to=message)

    return answer
