"""A site's end of a carrier: a message comes in, and an answer or a code goes out.

What a site answers is decided by its policy and its ledger (see `site`). This module takes the
question out of a message and puts the answer into a reply. Every carrier calls it, so that a site
gives the same answers and the same codes over each.

Any exception in here, also one from the site's own code, becomes one of the fixed codes. Neither
the reply nor the log holds the text of an exception, because it may quote a value of the data.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gcfcp.rounds import protocol
from gcfcp.rounds.codes import Code, Refusal
from gcfcp.rounds.protocol import Record, Request
from gcfcp.rounds.site import Site, answer_audit, answer_summary, code_of
from gcfcp.rounds.sums import answer_sum

Work = Callable[[Request, Site], bytes]
"""A function that makes the bytes of an answer."""


def _summary(request: Request, site: Site) -> bytes:
    return answer_summary(site, request.question)


def _audit(request: Request, site: Site) -> bytes:
    return answer_audit(site, request.question, request.body)


def _sum(request: Request, site: Site) -> bytes:
    return answer_sum(site, request.question, request.body)


WORK: Mapping[str, Work] = MappingProxyType(
    {protocol.SUMMARIZE: _summary, protocol.AUDIT: _audit, protocol.SUM: _sum}
)
"""What a site does, by what it is asked for."""

_LOG = logging.getLogger("gcfcp")

SILENT = logging.Logger("gcfcp.silent")
"""A log that nobody reads, for sites whose carrier lets the server read their logs. What it would
have told is in the journal of the ledger."""
# It is not one of the loggers that a carrier finds by name and sets up as it likes.
SILENT.disabled = True


def respond(
    record: Record,
    site_of: Callable[[], Site],
    *,
    action: str | None = None,
    log: logging.Logger = _LOG,
) -> dict[str, Any]:
    """The reply to a message of any server: an answer, or a code if anything fails.

    record: The message.
    site_of: It makes the site from the site's own configuration, and from nothing of the server's.
    action: What is asked for, if the carrier says it beside the message.
    log: The log of the site.
    """
    nonce = client = ""
    stage = Code.BAD_REQUEST
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A warning may quote data, and would be logged.
            request = Request.from_record(record, action)
            work = WORK[request.action]
            nonce, stage = request.nonce, Code.SITE_NOT_SET_UP
            site = site_of()
            client, stage = site.client, Code.FAILED
            payload = work(request, site)
        log.info("gcfcp: %s answers with %d bytes", client, len(payload))
        return protocol.answer(nonce, client, payload)
    except BaseException as error:  # A site's code may even call sys.exit("score 0.37").
        code = code_of(error) if stage == Code.FAILED else stage
        # The name of an exception's class comes from source code and can be logged. Its text may
        # hold data, unless only the configuration has been read so far.
        what = str(error) if stage == Code.SITE_NOT_SET_UP else type(error).__name__
        if isinstance(error, Refusal) and error.detail:
            what = error.detail
        log.error("gcfcp: %s gives no answer: %s (%s)", client or "this node", code, what)
        return protocol.refusal(nonce, client, code)


def respond_to_bytes(
    data: bytes, site_of: Callable[[], Site], *, log: logging.Logger = _LOG
) -> bytes:
    """The same as `respond` for a carrier that moves bytes alone."""
    try:
        record = protocol.unpack(data)
    except BaseException:  # Whatever came, the server gets a code.
        record = {}
    return protocol.pack(respond(record, site_of, log=log))
