"""What travels between the server and the clients, over any carrier.

A message is a few named values: texts, numbers and bytes. A carrier that moves named values moves
it as it is; one that moves bytes alone moves `pack(message)`. Nothing is pickled.

A request says what to do, holds the question as JSON, and may hold bytes for the client. A reply
holds the bytes of an answer, or a code. Each request carries its own nonce, a random text that the
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

from gcfcp import checks, codec
from gcfcp.errors import GCFCPError
from gcfcp.rounds.codes import FROM_CLIENTS, Code, Refusal
from gcfcp.rounds.question import Question

PROTOCOL = 1  # The version of the protocol, which every request and every reply names.
# What a server can ask for: a summary, an audit, or a step of a secure sum.
SUMMARIZE, AUDIT, SUM = "summarize", "audit", "sum"
RECORD = "gcfcp"  # The name of the only message in whatever a carrier moves, in both directions.
MAX_REQUEST = 64 * 2**20  # The most bytes that a client reads. Predictors are the largest part.

_BODY = "predictor"  # The name of a request's bytes. In 0.1.0 they could only be a predictor.
_KIND, _VERSION = b"M", 1  # The kind of container of a packed message, and its format version.

Record = Mapping[str, Any]
"""A message, as named values."""


@dataclass(frozen=True)
class Request:
    """One message to one node."""

    question: Question
    nonce: str
    # What the client needs: the JSON of the predictor, or the message of a step of a secure sum.
    body: bytes | None = None
    action: str = SUMMARIZE  # What the client is asked for.

    def to_record(self) -> dict[str, Any]:
        """The request as a message."""
        text = {
            "protocol": PROTOCOL,
            "nonce": self.nonce,
            "action": self.action,
            "question": self.question.to_json(),
        }
        record: dict[str, Any] = {"request": json.dumps(text, ensure_ascii=False)}
        return record if self.body is None else record | {_BODY: self.body}

    @classmethod
    def from_record(cls, record: Record, action: str | None = None) -> Request:
        """The request in a message from any server; an exception of any type if it is not one.

        action: What is asked for, if the carrier says it beside the message.
        """
        text, body = record["request"], record.get(_BODY)
        if not isinstance(text, str) or not isinstance(body, bytes | None):
            raise GCFCPError("this is not a request")
        if len(text) + len(body or b"") > MAX_REQUEST:
            raise GCFCPError("the request is too large")
        data = json.loads(text)
        if data["protocol"] != PROTOCOL:
            raise GCFCPError("the request has another version of the protocol")
        nonce, wanted = data["nonce"], data["action"] if action is None else action
        if not isinstance(nonce, str) or len(nonce) > 100:
            raise GCFCPError("the request has no valid nonce")
        if not isinstance(wanted, str):
            raise GCFCPError("the request does not say what it asks for")
        return cls(Question.from_json(data["question"]), nonce, body, wanted)


def pack(record: Record) -> bytes:
    """A message as bytes, for a carrier that moves nothing else: one container of `gcfcp.codec`.

    The header holds the values, and the names and lengths of those that are bytes; the body holds
    these bytes one after another.
    """
    blobs = {key: value for key, value in record.items() if isinstance(value, bytes)}
    header = {
        "values": {key: value for key, value in record.items() if key not in blobs},
        "bytes": [[key, len(blob)] for key, blob in blobs.items()],
    }
    return codec.pack(_KIND, _VERSION, header, b"".join(blobs.values()))


def unpack(data: bytes) -> dict[str, Any]:
    """The message in these bytes, which may come from anyone; a GCFCPError if there is none."""
    header, body = codec.unpack(data, _KIND, _VERSION, "the message")
    with codec.reading("the message", "message"):
        record, start = dict(header["values"]), 0
        for key, length in header["bytes"]:
            if type(length) is not int or length < 0 or key in record:
                raise GCFCPError("the lengths of its bytes make no sense")
            record[key] = bytes(body[start : start + length])
            start += length
        if start != len(body):
            raise GCFCPError("the lengths of its bytes do not add up")
        return record


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
