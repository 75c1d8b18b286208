"""A site's side of a round: the site decides what it answers, and nothing else leaves it.

The server asks, and the site's `Policy` says what may be answered: for which groups, with how fine
a digest, with how many records for each centroid, for which score and which model. A request that
asks for more is refused. It is never answered in part, so that the server always knows what it has
got.

Any exception in here, also one from the site's own code, becomes one of the fixed codes of
`protocol`. Neither the reply nor the log holds the text of an exception, because it may quote a
value of the data.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

import gcfcp
from gcfcp import checks
from gcfcp.audit import Audit
from gcfcp.errors import GCFCPError
from gcfcp.flower import protocol
from gcfcp.flower.protocol import Code, Question, Refusal, Request
from gcfcp.groups import Groups
from gcfcp.prediction import Predictor
from gcfcp.shape import Shape
from gcfcp.summary import ClientSummary

NodeConfig = Mapping[str, Any]
"""The configuration of a node, which only its site can write."""
Load = Callable[[Question, NodeConfig], Any]
"""A function that loads a site's scores and memberships, or its summary; see `Site`."""
Check = Callable[[Predictor, Question, NodeConfig], Any]
"""A function that audits a predictor on a site's labelled records; see `Site`."""

_log = logging.getLogger("flwr")  # Flower's processes show the lines of this logger only.


@dataclass(frozen=True)
class Policy:
    """What a site lets the server ask for.

    groups: The family of groups that is allowed, or several families. None allows any family, even
    one that singles out a person, so it has no default.
    max_delta: The largest delta, that is the finest digest, that is allowed.
    min_count: The fewest records that a centroid may stand for.
    scores: The names of the scores that may be asked for. None allows all that `load` can compute.
    model: The fingerprint of this site's model. A server that names a model is refused unless it
    names this one.
    absent: The names of the groups that this site cannot have. The site states it and never the
    server. Of several families, each takes those names that it has.
    """

    groups: Groups | Sequence[Groups] | None
    max_delta: float = 250
    min_count: int = 10
    scores: frozenset[str] | None = None
    model: str | None = None
    absent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_delta", checks.delta(self.max_delta))
        object.__setattr__(self, "min_count", checks.min_count(self.min_count))
        if isinstance(self.absent, str):
            raise GCFCPError(f"absent={self.absent!r:.60} is not a list of groups: give a tuple")
        object.__setattr__(self, "absent", tuple(self.absent))
        if self._allowed is not None:
            known = [name for groups in self._allowed for name in groups.others]
            for name in self.absent:
                if name not in known:
                    raise GCFCPError(
                        f"absent={name!r:.60} is not one of the groups {checks.listed(known)}: "
                        "give the names of groups that this site cannot have"
                    )

    @property
    def _allowed(self) -> Sequence[Groups] | None:
        """The families of groups that are allowed; None allows any family."""
        return [self.groups] if isinstance(self.groups, Groups) else self.groups

    def absent_of(self, groups: Groups) -> tuple[str, ...]:
        """The groups of a family that this site cannot have, in the order of the family."""
        return tuple(name for name in groups.others if name in self.absent)

    def check(self, question: Question) -> None:
        """Raise a `Refusal` if the question asks for more than is allowed."""
        allowed = self._allowed
        if allowed is not None and question.groups.fingerprint not in {
            groups.fingerprint for groups in allowed
        }:
            raise Refusal(Code.GROUPS_NOT_ALLOWED)
        if question.delta > self.max_delta:
            raise Refusal(Code.DELTA_TOO_LARGE)
        if question.min_count < self.min_count:
            raise Refusal(Code.MIN_COUNT_TOO_SMALL)
        if self.scores is not None and question.score_name not in self.scores:
            raise Refusal(Code.SCORE_NOT_ALLOWED)
        if question.model is not None and question.model != self.model:
            raise Refusal(Code.MODEL_DIFFERS)


@dataclass(frozen=True)
class Site:
    """One client: its name, its policy, and the functions that read its data.

    client: The name of the client. If the groups have sites, it is one of them.
    policy: What the site lets the server ask for.
    load: A function of the question and the node configuration. It returns the scores and the
    memberships of the calibration records, or a `ClientSummary` that was made beforehand. The
    memberships need no columns for sites, which are filled in from the name of the client.
    audit: A function of the predictor, the question and the node configuration. It returns
    (covered, membership) or (covered, membership, set sizes) of labelled records that were not used
    to calibrate, or an `Audit` of them. None means that the site takes part in no audit.
    ledger: A file that gets one line for every answer, with what was asked and how much was sent.
    """

    client: str
    policy: Policy
    load: Load
    audit: Check | None = None
    ledger: Path | None = None


def client_app(
    load: Load, *, policy: Policy, client: str | None = None, audit: Check | None = None
) -> ClientApp:
    """A ClientApp for a site that is written in Python.

    load, policy, audit: As in `Site`.
    client: The name of this client. By default it is `client` in the node configuration or, in a
    simulation, client-00000 and so on.
    """

    def site_of(node: NodeConfig) -> Site:
        ledger = node.get("ledger")
        return Site(
            client or name_of(node), policy, load, audit, None if ledger is None else Path(ledger)
        )

    return app_of(site_of)


def name_of(node: NodeConfig) -> str:
    """The name of the client in the node configuration; a simulation numbers its nodes instead."""
    name = node.get("client")
    if name is None and "partition-id" in node:
        name = f"client-{int(node['partition-id']):05d}"
    if name is None:
        raise GCFCPError('the node configuration has no client: add client="NAME"')
    checks.name("client", name)
    return str(name)


def app_of(site_of: Callable[[NodeConfig], Site]) -> ClientApp:
    """A ClientApp for the site that `site_of` makes of the node configuration, at every request."""
    app = ClientApp()

    # Only node_config belongs to the site. run_config comes from the server and is not read.
    @app.query(protocol.SUMMARIZE)
    def summarize(message: Message, context: Context) -> Message:
        return _reply(message, context.node_config, site_of, _summary)

    @app.query(protocol.AUDIT)
    def audit(message: Message, context: Context) -> Message:
        return _reply(message, context.node_config, site_of, _audit)

    return app


Work = Callable[[Request, Site, NodeConfig], bytes]
"""A function that makes the bytes of an answer."""


def _reply(
    message: Message, node: NodeConfig, site_of: Callable[[NodeConfig], Site], work: Work
) -> Message:
    """The reply to a message: the bytes that `work` makes, or a code if anything fails."""
    nonce = client = ""
    site, code, payload = None, Code.BAD_REQUEST, b""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A warning may quote data, and would be logged.
            request = Request.from_record(message.content[protocol.RECORD])
            nonce, code = request.nonce, Code.SITE_NOT_SET_UP
            site = site_of(node)
            client, code = site.client, Code.FAILED
            payload = work(request, site, node)
            if site.ledger is not None:
                _enter(site.ledger, request, payload)
        _log.info("gcfcp: %s answers with %d bytes", client, len(payload))
        record = protocol.answer(nonce, client, payload)
    except BaseException as error:  # A site's code may even call sys.exit("score 0.37").
        if isinstance(error, Refusal):
            code = error.code
        elif isinstance(error, GCFCPError) and code == Code.FAILED:
            code = Code.DATA_REFUSED
        # The name of an exception's class comes from source code and can be logged. Its text may
        # hold data, unless only the configuration has been read so far.
        what = str(error) if code == Code.SITE_NOT_SET_UP else type(error).__name__
        _log.error("gcfcp: %s gives no answer: %s (%s)", client or "this node", code, what)
        record = protocol.refusal(nonce, client, code)
    return Message(RecordDict({protocol.RECORD: ConfigRecord(record)}), reply_to=message)


def _summary(request: Request, site: Site, node: NodeConfig) -> bytes:
    """The bytes of the site's summary, if its policy allows the question."""
    question = request.question
    site.policy.check(question)
    absent = site.policy.absent_of(question.groups)
    loaded = site.load(question, node)
    if isinstance(loaded, ClientSummary):
        summary = loaded
    else:
        scores, membership = loaded
        summary = gcfcp.summarize(
            scores,
            membership,
            groups=question.groups,
            client=site.client,
            delta=question.delta,
            representative=checks.representative(question.representative),
            min_count=question.min_count,
            score=question.score,
            model=question.model,
            absent=absent,
            by=str(question.by),
            shape=question.shape,
        )
    # A summary that was made beforehand must be exactly what the policy has just allowed.
    if summary.client != site.client or differences(summary, question):
        raise Refusal(Code.DATA_REFUSED)
    # What the policy declares absent must be what the summary declares, unless it says nothing.
    if absent and summary.absent != absent:
        raise Refusal(Code.DATA_REFUSED)
    return summary.to_bytes()


def _audit(request: Request, site: Site, node: NodeConfig) -> bytes:
    """The bytes of the site's audit of the predictor in the request."""
    question = request.question
    site.policy.check(question)
    if site.audit is None:
        raise Refusal(Code.AUDIT_NOT_ALLOWED)
    if request.predictor is None:
        raise Refusal(Code.BAD_REQUEST)
    predictor = Predictor.from_json(request.predictor)
    if predictor.groups.fingerprint != question.groups.fingerprint:
        raise Refusal(Code.BAD_REQUEST)
    counted = site.audit(predictor, question, node)
    if not isinstance(counted, Audit):
        covered, membership, *sizes = counted
        counted = gcfcp.audit(
            covered,
            membership,
            groups=question.groups,
            client=site.client,
            set_size=sizes[0] if sizes else None,
            min_count=question.min_count,
            alpha=float(predictor.threshold_table.alpha),
        )
    if counted.client != site.client or counted.min_count != question.min_count:
        raise Refusal(Code.DATA_REFUSED)
    return replace(
        counted,
        predictor=hashlib.sha256(request.predictor).hexdigest(),
        share=predictor.share_of(site.client),
    ).to_bytes()


def differences(summary: ClientSummary, question: Question) -> str:
    """What in a summary differs from the question, with both values; "" if nothing does."""
    pairs = {
        "groups": (summary.groups.fingerprint, question.groups.fingerprint),
        "score": (summary.score, question.score_name),
        "parameters": (summary.parameters, dict(question.parameters)),
        "model": (summary.model, question.model),
        "delta": (summary.delta, question.delta),
        "representative": (summary.representative, question.representative),
        "min_count": (summary.min_count, question.min_count),
        "by": (summary.by, question.by),
        "shape": (_mark(summary.shape), _mark(question.shape)),
    }
    return "; ".join(
        f"{what} is {theirs!r:.60}, but {ours!r:.60} was asked for"
        for what, (theirs, ours) in pairs.items()
        if theirs != ours
    )


def _mark(shape: Shape | None) -> str | None:
    """What tells a shape from others."""
    return None if shape is None else shape.fingerprint


def _enter(ledger: Path, request: Request, payload: bytes) -> None:
    """Add a line to the ledger before an answer leaves: what was asked, when, and how much left."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "asked": "audit" if request.predictor is not None else "summary",
        "question": request.question.to_json(),
        "nonce": request.nonce,
        "bytes": len(payload),
    }
    with open(ledger, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
