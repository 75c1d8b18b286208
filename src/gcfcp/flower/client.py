"""A site's side of a round: the site decides what it answers, and nothing else gets out.

The server proposes, the site's `Policy` disposes: which groups, how fine a digest, how many
records a centroid must stand for, which score, which model. A request that asks for more than the
policy allows is refused, never trimmed, so that the server cannot mistake what it got.

Whatever is raised in here, by the site's own code too, becomes one of the fixed codes of
`protocol`. Neither the reply nor the log holds an exception's text: it may quote a value.
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
from gcfcp.summary import ClientSummary

NodeConfig = Mapping[str, Any]
Load = Callable[[Question, NodeConfig], Any]
Check = Callable[[Predictor, Question, NodeConfig], Any]

_log = logging.getLogger("flwr")  # the one logger that Flower's processes show


@dataclass(frozen=True)
class Policy:
    """What a site lets the server ask for.

    groups: the family that is allowed (or several); None allows any, whatever it singles out, and
    must be said. max_delta: the finest digest. min_count: the fewest records that a centroid may
    stand for. scores: the names of those that may be asked for; None is any that `load` can
    compute. model: the fingerprint of this site's model; a server that names another one, or one
    where this is None, is refused.
    """

    groups: Groups | Sequence[Groups] | None
    max_delta: float = 250
    min_count: int = 10
    scores: frozenset[str] | None = None
    model: str | None = None

    def check(self, question: Question) -> None:
        """Raise a `Refusal` if the question goes beyond what is allowed."""
        allowed = [self.groups] if isinstance(self.groups, Groups) else self.groups
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

    load: (question, node config) -> (scores, membership), or a `ClientSummary` made beforehand.
    audit: (predictor, question, node config) -> (covered, membership) or (covered, membership,
    set sizes) on labelled records that were not used to calibrate, or an `Audit` made of them;
    None takes part in no audit.
    ledger: a file that gets one line for every request, with what was answered.
    """

    client: str
    policy: Policy
    load: Load
    audit: Check | None = None
    ledger: Path | None = None


def client_app(
    load: Load, *, policy: Policy, client: str | None = None, audit: Check | None = None
) -> ClientApp:
    """A ClientApp for a site that brings one function; see `Site` for what it returns.

    client: this client's name; by default the node configuration's `client`, or, in a simulation,
    client-00000 and so on.
    """

    def site_of(node: NodeConfig) -> Site:
        ledger = node.get("ledger")
        return Site(
            client or name_of(node), policy, load, audit, None if ledger is None else Path(ledger)
        )

    return app_of(site_of)


def name_of(node: NodeConfig) -> str:
    """The client's name as the node is configured; a simulation numbers its nodes instead."""
    name = node.get("client")
    if name is None and "partition-id" in node:
        name = f"client-{int(node['partition-id']):05d}"
    if name is None:
        raise GCFCPError('the node configuration has no client: add client="NAME"')
    checks.name("client", name)
    return str(name)


def app_of(site_of: Callable[[NodeConfig], Site]) -> ClientApp:
    """A ClientApp for sites that are read from their node configuration at every request."""
    app = ClientApp()

    # Only node_config belongs to the site; run_config is the server's, and is not looked at.
    @app.query(protocol.SUMMARIZE)
    def summarize(message: Message, context: Context) -> Message:
        return _reply(message, context.node_config, site_of, _summary)

    @app.query(protocol.AUDIT)
    def audit(message: Message, context: Context) -> Message:
        return _reply(message, context.node_config, site_of, _audit)

    return app


Work = Callable[[Request, Site, NodeConfig], bytes]


def _reply(
    message: Message, node: NodeConfig, site_of: Callable[[NodeConfig], Site], work: Work
) -> Message:
    nonce = client = ""
    site, code, payload = None, Code.BAD_REQUEST, b""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # their text may quote data, and would be logged
            request = Request.from_record(message.content[protocol.RECORD])
            nonce, code = request.nonce, Code.SITE_NOT_SET_UP
            site = site_of(node)
            client, code = site.client, Code.FAILED
            payload = work(request, site, node)
            if site.ledger is not None:
                _enter(site.ledger, request, payload)
        _log.info("gcfcp: %s answers with %d bytes", client, len(payload))
        record = protocol.answer(nonce, client, payload)
    except BaseException as error:  # a site's code may even call sys.exit("score 0.37")
        if isinstance(error, Refusal):
            code = error.code
        elif isinstance(error, GCFCPError) and code == Code.FAILED:
            code = Code.DATA_REFUSED
        # The kind of exception is a name out of some source code; its text may be data, unless
        # nothing but the configuration has been read so far.
        what = str(error) if code == Code.SITE_NOT_SET_UP else type(error).__name__
        _log.error("gcfcp: %s gives no answer: %s (%s)", client or "this node", code, what)
        record = protocol.refusal(nonce, client, code)
    return Message(RecordDict({protocol.RECORD: ConfigRecord(record)}), reply_to=message)


def _summary(request: Request, site: Site, node: NodeConfig) -> bytes:
    question = request.question
    site.policy.check(question)
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
            representative=question.representative,  # type: ignore[arg-type]
            min_count=question.min_count,
            score=question.score,
            model=question.model,
        )
    # Nothing coarser or finer than what the policy was asked about may leave, whoever made it.
    if summary.client != site.client or differences(summary, question):
        raise Refusal(Code.DATA_REFUSED)
    return summary.to_bytes()


def _audit(request: Request, site: Site, node: NodeConfig) -> bytes:
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
    return replace(counted, predictor=hashlib.sha256(request.predictor).hexdigest()).to_bytes()


def differences(summary: ClientSummary, question: Question) -> str:
    """What in a summary is not as asked, both sides said; empty if all is."""
    pairs = {
        "groups": (summary.groups.fingerprint, question.groups.fingerprint),
        "score": (summary.score, question.score_name),
        "parameters": (summary.parameters, dict(question.parameters)),
        "model": (summary.model, question.model),
        "delta": (summary.delta, question.delta),
        "representative": (summary.representative, question.representative),
        "min_count": (summary.min_count, question.min_count),
    }
    return "; ".join(
        f"{what} {theirs!r:.60}, asked {ours!r:.60}"
        for what, (theirs, ours) in pairs.items()
        if theirs != ours
    )


def _enter(ledger: Path, request: Request, payload: bytes) -> None:
    """One line for every answer, written before it leaves: what the site gave away, and when."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "asked": "audit" if request.predictor is not None else "summary",
        "question": request.question.to_json(),
        "nonce": request.nonce,
        "bytes": len(payload),
    }
    with open(ledger, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
