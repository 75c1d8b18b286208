"""What travels between the server and the clients, and the codes for what goes wrong.

A request is one JSON object. A reply holds the bytes of a summary or of an audit, and a few named
values beside them. Nothing is pickled. Each request carries its own nonce, a random text that the
reply must repeat. Only the node that the request was sent to knows it, so no node can answer for
another one.

If a client fails, it sends a `Code` and nothing else. The text of an exception may hold a value of
the data, so it never leaves a client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gcfcp import checks, scores
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.shape import Shape, as_shape
from gcfcp.summary import BY

PROTOCOL = 1  # The version of the protocol, which every request and every reply names.
SUMMARIZE, AUDIT = "summarize", "audit"  # These are the two things that a server can ask for.
RECORD = "gcfcp"  # The name of the only record in a message, in both directions.
MAX_REQUEST = 64 * 2**20  # The most bytes that a client reads. Predictors are the largest part.

Record = Mapping[str, Any]
"""The content of a message, as named values."""


class Code(StrEnum):
    """Why the answer of a client is missing. Its `meaning` says it in words."""

    # A client sends one of these.
    BAD_REQUEST = "bad-request"
    GROUPS_NOT_ALLOWED = "groups-not-allowed"
    DELTA_TOO_LARGE = "delta-too-large"
    MIN_COUNT_TOO_SMALL = "min-count-too-small"
    SCORE_NOT_ALLOWED = "score-not-allowed"
    MODEL_DIFFERS = "model-differs"
    AUDIT_NOT_ALLOWED = "audit-not-allowed"
    SITE_NOT_SET_UP = "site-not-set-up"
    DATA_REFUSED = "data-refused"
    FAILED = "failed"
    # The server finds that one of these is the case.
    NO_ANSWER = "no-answer"
    NOT_CONNECTED = "not-connected"
    NODE_LOST = "node-lost"
    APP_FAILED = "app-failed"
    NOT_UNDERSTOOD = "not-understood"
    TOO_LARGE = "too-large"
    WRONG_NONCE = "wrong-nonce"
    NOT_A_SUMMARY = "not-a-summary"
    NOT_AN_AUDIT = "not-an-audit"
    WRONG_CLIENT = "wrong-client"
    NAME_TAKEN = "name-taken"
    NOT_AS_ASKED = "not-as-asked"
    IS_AGGREGATE = "is-aggregate"
    MEMBERS_OVERLAP = "members-overlap"

    @property
    def meaning(self) -> str:
        """The code in words, with the remedy if there is one."""
        return _MEANINGS[self]


_MEANINGS = {
    Code.BAD_REQUEST: "the client did not understand the request: use one gcfcp version everywhere",
    Code.GROUPS_NOT_ALLOWED: "the site does not allow these groups: agree on one groups file",
    Code.DELTA_TOO_LARGE: "the site allows only a smaller delta",
    Code.MIN_COUNT_TOO_SMALL: "the site allows only a larger min_count",
    Code.SCORE_NOT_ALLOWED: "the site does not offer this score",
    Code.MODEL_DIFFERS: "the site uses another model, or does not say which one",
    Code.AUDIT_NOT_ALLOWED: "the site has no audit data to offer",
    Code.SITE_NOT_SET_UP: "the site's node configuration is incomplete or wrong: see its log",
    Code.DATA_REFUSED: "the site's data cannot be summarised: run gcfcp summarize there to see why",
    Code.FAILED: "something failed at the site: run gcfcp summarize there to see what",
    Code.NO_ANSWER: "there was no answer before the deadline",
    Code.NOT_CONNECTED: "the client did not connect before the deadline",
    Code.NODE_LOST: "the connection was lost",
    Code.APP_FAILED: "the client's app did not start, or died",
    Code.NOT_UNDERSTOOD: "the reply does not follow the protocol",
    Code.TOO_LARGE: "the reply is larger than allowed",
    Code.WRONG_NONCE: "the reply does not belong to the request",
    Code.NOT_A_SUMMARY: "the reply holds no valid summary",
    Code.NOT_AN_AUDIT: "the reply holds no valid audit",
    Code.WRONG_CLIENT: "the node speaks for another client",
    Code.NAME_TAKEN: "two nodes claim this name with different summaries",
    Code.NOT_AS_ASKED: "the summary was not made as asked",
    Code.IS_AGGREGATE: "the summary stands for several clients, which this round does not allow",
    Code.MEMBERS_OVERLAP: "a client is part of two summaries",
}
_NAMES = list(Code)
FROM_CLIENTS = frozenset(_NAMES[: _NAMES.index(Code.NO_ANSWER)])
"""The codes that a client may send."""


class Refusal(Exception):  # noqa: N818 (an outcome, not a fault)
    """A client gives no answer, or the server does not accept it.

    code: Why.
    detail: More about it, which never comes from the data of a client.
    """

    def __init__(self, code: Code, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail


@dataclass(frozen=True)
class Question:
    """What the server asks of every client: the arguments of `gcfcp.summarize`.

    groups: The family of groups.
    score: A score of `gcfcp.scores`, another object with a name, or a name.
    model: A fingerprint of the model that the sites must confirm, or None.
    delta: How fine the digests are; about delta / 2 clusters for each atom.
    representative: "upper" or "mean".
    min_count: Nothing that stands for fewer records than this leaves a site. The default is 10 and
    not 1, because over a network nobody looks at a summary before it leaves.
    by: "atom" or "group". By default it is "group" if min_count is above 1, because groups have
    more records than combinations of groups, and "atom" otherwise.
    shape: With by="group", the shape that the sites subtract from their scores, or None.
    """

    groups: Groups
    score: Any = None
    model: str | None = None
    delta: float = 250
    representative: str = "upper"
    min_count: int = 10
    by: str | None = None
    shape: Shape | None = None
    parameters: Mapping[str, Any] = field(init=False)
    score_name: str = field(init=False)

    def __post_init__(self) -> None:
        name, parameters = scores.describe(self.score)
        object.__setattr__(self, "score_name", name)
        object.__setattr__(self, "parameters", parameters)
        checks.name("score", name)
        if self.model is not None:
            checks.name("model", self.model)
        # As floats, 250 and 250.0 give the same bytes in a summary.
        object.__setattr__(self, "delta", checks.delta(self.delta))
        object.__setattr__(self, "representative", checks.representative(self.representative))
        object.__setattr__(self, "min_count", checks.min_count(self.min_count))
        usual = "group" if self.min_count > 1 or self.shape is not None else "atom"
        by = checks.choice("by", usual if self.by is None else self.by, *BY)
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "shape", as_shape(self.shape, self.groups))
        if by == "atom" and self.shape is not None:
            raise GCFCPError("a summary by atom takes no shape: ask with by='group'")

    def to_json(self) -> dict[str, Any]:
        """The question in plain values; equal questions give equal values."""
        return {
            **self.groups.to_dict("groups"),
            "score": self.score_name,
            "parameters": dict(self.parameters),
            "model": self.model,
            "delta": self.delta,
            "representative": self.representative,
            "min_count": self.min_count,
            "by": self.by,
            "shape": self.shape and self.shape.values,
        }

    @classmethod
    def from_json(cls, data: Any) -> Question:
        """The question in plain values from any server; a GCFCPError if it makes no sense."""
        try:
            groups, shape = Groups.from_dict(data, "groups"), data.get("shape")
            return cls(
                groups=groups,
                score=score_of(data["score"], data["parameters"]),
                model=data["model"],
                delta=data["delta"],
                representative=data["representative"],
                min_count=data["min_count"],
                by=data.get("by", "atom"),  # A server of 0.1.0 knows no other.
                shape=None if shape is None else Shape.from_values(groups, shape),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise GCFCPError(f"this is not a question: {type(error).__name__}") from None


@dataclass(frozen=True)
class NamedScore:
    """A score that the library does not know, with its name and its parameters."""

    name: str
    parameters: Mapping[str, Any]


def score_of(name: Any, parameters: Any) -> Any:
    """The score with this name and these parameters; one that is not known stays a name."""
    checks.name("score", name)
    try:
        return scores.from_name(name, parameters)
    except (GCFCPError, TypeError):
        if not isinstance(parameters, Mapping):
            raise GCFCPError("the parameters of a score must be a mapping") from None
        return NamedScore(name, dict(parameters)) if parameters else name


@dataclass(frozen=True)
class Request:
    """One message to one node."""

    question: Question
    nonce: str
    predictor: bytes | None = None  # The JSON of the predictor, if an audit is asked for.

    def to_record(self) -> dict[str, Any]:
        """The request as the content of a message."""
        text = {"protocol": PROTOCOL, "nonce": self.nonce, "question": self.question.to_json()}
        record: dict[str, Any] = {"request": json.dumps(text, ensure_ascii=False)}
        return record if self.predictor is None else record | {"predictor": self.predictor}

    @classmethod
    def from_record(cls, record: Record) -> Request:
        """The request in a message from any server; an exception of any type if it is not one."""
        text, predictor = record["request"], record.get("predictor")
        if not isinstance(text, str) or not isinstance(predictor, bytes | None):
            raise GCFCPError("this is not a request")
        if len(text) + len(predictor or b"") > MAX_REQUEST:
            raise GCFCPError("the request is too large")
        data = json.loads(text)
        if data["protocol"] != PROTOCOL:
            raise GCFCPError("the request has another version of the protocol")
        nonce = data["nonce"]
        if not isinstance(nonce, str) or len(nonce) > 100:
            raise GCFCPError("the request has no valid nonce")
        return cls(Question.from_json(data["question"]), nonce, predictor)


def answer(nonce: str, client: str, payload: bytes) -> dict[str, Any]:
    """The reply of a client that answers with the bytes of its summary or audit."""
    return {"protocol": PROTOCOL, "nonce": nonce, "client": client, "payload": payload}


def refusal(nonce: str, client: str, code: Code) -> dict[str, Any]:
    """The reply of a client that does not answer: a code, and nothing else."""
    return {"protocol": PROTOCOL, "nonce": nonce, "client": client, "code": str(code)}


def read_reply(record: Record, nonce: str, max_bytes: int) -> tuple[str, bytes]:
    """The client that a reply claims to come from, and the bytes that it holds.

    nonce: The nonce of the request.
    max_bytes: The most bytes that are accepted.
    Raises a `Refusal` if the reply holds a code, or is not a valid answer to this request.
    """
    if record.get("protocol") != PROTOCOL:
        raise Refusal(Code.NOT_UNDERSTOOD)
    code, echo = record.get("code"), record.get("nonce")
    # A client that did not understand the request could not read its nonce either.
    if echo != nonce and not (code == Code.BAD_REQUEST and echo == ""):
        raise Refusal(Code.WRONG_NONCE)
    if code is not None:
        known = isinstance(code, str) and code in FROM_CLIENTS
        raise Refusal(Code(code) if known else Code.NOT_UNDERSTOOD)
    client, payload = record.get("client"), record.get("payload")
    if not isinstance(payload, bytes):
        raise Refusal(Code.NOT_UNDERSTOOD)
    try:
        checks.name("client", client)
    except GCFCPError:
        raise Refusal(Code.NOT_UNDERSTOOD) from None
    if len(payload) > max_bytes:
        raise Refusal(Code.TOO_LARGE, f"{len(payload):,} bytes, but {max_bytes:,} are allowed")
    return str(client), payload
