"""The codes for what goes wrong in a round, and the exception that carries one.

If a client fails, it sends a `Code` and nothing else. The text of an exception may hold a value of
the data, so it never leaves a client.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Why the answer of a client is missing. Its `meaning` says it in words."""

    # A client sends one of these.
    BAD_REQUEST = "bad-request"
    GROUPS_NOT_ALLOWED = "groups-not-allowed"
    SCORE_NOT_ALLOWED = "score-not-allowed"
    MODEL_DIFFERS = "model-differs"
    DELTA_DIFFERS = "delta-differs"
    REPRESENTATIVE_DIFFERS = "representative-differs"
    MIN_COUNT_DIFFERS = "min-count-differs"
    BY_DIFFERS = "by-differs"
    SHAPE_DIFFERS = "shape-differs"
    GRID_DIFFERS = "grid-differs"
    EPSILON_DIFFERS = "epsilon-differs"
    ROUND_DIFFERS = "round-differs"
    SECURE_DIFFERS = "secure-differs"
    MAKERS_DIFFER = "makers-differ"
    SUM_NEEDED = "sum-needed"
    SUM_REFUSED = "sum-refused"
    SUM_USED_UP = "sum-used-up"
    QUESTIONS_USED_UP = "questions-used-up"
    BUDGET_USED_UP = "budget-used-up"
    AUDITS_USED_UP = "audits-used-up"
    DATA_CHANGED = "data-changed"
    LEDGER_UNUSABLE = "ledger-unusable"
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
    Code.GROUPS_NOT_ALLOWED: "the site has not agreed to these groups: agree on one groups file",
    Code.SCORE_NOT_ALLOWED: "the site has not agreed to this score with these parameters",
    Code.MODEL_DIFFERS: "the site has agreed to another model, or one side does not name its model",
    Code.DELTA_DIFFERS: "the site has agreed to another delta",
    Code.REPRESENTATIVE_DIFFERS: "the site has agreed to another representative",
    Code.MIN_COUNT_DIFFERS: "the site has agreed to another min_count",
    Code.BY_DIFFERS: "the site has agreed to summaries by atom and not by group, or the reverse",
    Code.SHAPE_DIFFERS: "the site has agreed to another shape, or to none",
    Code.GRID_DIFFERS: "the site has agreed to another grid, or to none",
    Code.EPSILON_DIFFERS: "the site has agreed to another epsilon, or to none",
    Code.ROUND_DIFFERS: "the site has agreed to another round, or to none",
    Code.SECURE_DIFFERS: "the site has agreed to a secure sum and not to a summary, or the reverse",
    Code.MAKERS_DIFFER: "the site has agreed to another number of sites that add noise to a sum",
    Code.SUM_NEEDED: "the site answers this question in a secure sum only",
    Code.SUM_REFUSED: "the site does not take this step of the secure sum: see its log",
    Code.SUM_USED_UP: "the site's records are in another secure sum for this question, and two "
    "sums could be subtracted: agree on another round, and allow one more question",
    Code.QUESTIONS_USED_UP: "the site has told something else about these records (an answer to "
    "another question, or an audit), and answers no further question",
    Code.BUDGET_USED_UP: "the site's privacy budget for these records does not allow another "
    "answer",
    Code.AUDITS_USED_UP: "the site has told something else about these records (an audit of "
    "another predictor, or a summary), and audits no further predictor",
    Code.DATA_CHANGED: "the site's records are not those of its earlier answer: the site gives new "
    "records a name of their own",
    Code.LEDGER_UNUSABLE: "the site cannot read or write its ledger, and answers nothing without "
    "it: see its log",
    Code.AUDIT_NOT_ALLOWED: "the site has no audit data to offer",
    Code.SITE_NOT_SET_UP: "the site's own configuration is incomplete or wrong: see its log, or "
    "check its file there with python -m gcfcp.rounds",
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
    detail: More about it, which never comes from the data of a client. At a site it goes to the
    site's own log and nowhere else.
    """

    def __init__(self, code: Code, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail
