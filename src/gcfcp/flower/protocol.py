"""What travels between the server and the clients.

A request is one JSON object. A reply holds the bytes of a summary or of an audit, and a few named
values beside them. Nothing is pickled. Each request carries its own nonce, a random text that the
reply must repeat. Only the node that the request was sent to knows it, so no node can answer for
another one.

If a client fails, it sends a code (`gcfcp.rounds.Code`) and nothing else. The text of an exception
may hold a value of the data, so it never leaves a client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gcfcp import checks
from gcfcp.errors import GCFCPError
from gcfcp.rounds import FROM_CLIENTS, Code, Question, Refusal

PROTOCOL = 1  # The version of the protocol, which every request and every reply names.
SUMMARIZE, AUDIT = "summarize", "audit"  # These are the two things that a server can ask for.
RECORD = "gcfcp"  # The name of the only record in a message, in both directions.
MAX_REQUEST = 64 * 2**20  # The most bytes that a client reads. Predictors are the largest part.

Record = Mapping[str, Any]
"""The content of a message, as named values."""


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
