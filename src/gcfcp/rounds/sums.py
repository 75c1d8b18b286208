"""A site's part in a secure sum: its policy, its ledger and its records behind `gcfcp.secure`.

A question with `secure=True` is answered in five steps instead of one, and what leaves the site is
a masked vector of counts. It goes through the same three gates as a summary (see `site`): the
policy pins the question, the ledger counts the masked vector as the one answer to it, and no record
is read before both agree.

**One sum for one question.** A server that gets two sums, one with a site and one without it,
subtracts them. So a site whose masked vector has left takes part in no other sum for the same
question, even if the server says that the first one failed: the site cannot know. If a sum did fail
after that step, the sites agree on another `round` and allow one more question.

**Noise.** If the question has an epsilon, the first sites on the roster each add the whole noise to
their counts, but not to n (see `gcfcp.noise` for how many, and why). They draw it when they mask,
and a step is made once, so that a repeated request gets the same noise. The epsilon is counted in
the ledger of every site when its masked counts leave. Such a sum is signed, or there is none.

**No summary for a secure question.** A server that asks for the plain summary, or for an audit, of
a question that was agreed as secure is refused.

What a site checks of the sum itself is in `gcfcp.secure`; what it demands is `Policy.sums`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from gcfcp import secure
from gcfcp.arrays import Ints
from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs
from gcfcp.noise import Noise, with_noise
from gcfcp.rounds import ledger as ledgers
from gcfcp.rounds.codes import Code, Refusal
from gcfcp.rounds.ledger import Asked
from gcfcp.rounds.question import Question
from gcfcp.rounds.site import Site, noting, refuse_moving, summary_of
from gcfcp.rounds.steps import Steps
from gcfcp.secure import Begin, Identity, State, Total
from gcfcp.summary import (
    ClientSummary,
    Making,
    counts_of,
    places_of,
    sensitivity_of,
    summary_from_counts,
)

_STEPS = {"begin": 0, "roster": 1, "delivery": 2, "survivors": 3, "reveal": 4}
_MASKED = 2  # The step after which something of the records has left.


def answer_sum(site: Site, question: Question, request: bytes | None) -> bytes:
    """The bytes of the site's next step in a secure sum; a `Refusal` if it does not make it.

    request: The server's message of this step, which may come from anyone.
    """
    with noting(site, ledgers.SUMMARY, site.calibration.dataset), _refusing():
        agreed = site.policy.agreed_to(question)
        if request is None or not agreed.secure:
            raise Refusal(Code.BAD_REQUEST)
        message, sum_ = secure.addressed(request)
        if message not in _STEPS:
            raise Refusal(Code.BAD_REQUEST)
        asked = Asked(
            kind=ledgers.SUMMARY,
            dataset=site.calibration.dataset,
            client=site.client,
            question=agreed,
        )
        number = _STEPS[message]
        if number <= _MASKED:
            asked = replace(asked, records=site.calibration.mark())
            kept = site.ledger.kept(asked, site.policy.questions, site.policy.budget)
            _refuse_other(kept, asked, sum_)
        take = partial(Steps(site.ledger, asked, sum_).take, number, request)
        make = partial(_made, site, asked, message, request)
        if number != _MASKED:
            return take(make)
        limit, budget = site.policy.questions, site.policy.budget
        found = site.ledger.answer(asked, limit, lambda: take(make), _check_kept, budget)
        # Of two sums that were asked for at the same moment, one was kept as the answer.
        _refuse_other(found, asked, sum_)
        return found


def _check_kept(data: bytes) -> None:
    """Raise a GCFCPError if what the ledger has kept is not a message of a secure sum."""
    secure.addressed(data)


def what_is_counted(question: Question) -> tuple[bytes, int]:
    """What a sum is for, as bytes that both sides make of the question, and its length."""
    if question.grid is None or question.by is None:
        raise GCFCPError("a secure sum needs a question with a grid")
    length = places_of(question.groups, question.grid, question.by)
    return question.fingerprint.encode(), length


def begin_of(question: Question, *, signed: bool, round: str | None = None) -> Begin:
    """The first message of a secure sum for a question, as both sides make it."""
    what, length = what_is_counted(question)
    makers = question.makers
    noise = {} if makers is None else {"noisy": makers.number, "needed": makers.needed}
    return secure.begin(what, length, signed=signed, round=round, **noise)


def noise_in(question: Question, sites: int = 1) -> Noise | None:
    """The law of the noise in a secure sum to which so many sites have added it, or None."""
    if question.epsilon is None or question.by is None:
        return None
    return Noise.of(question.epsilon, _sensitivity(question), sites)


def summary_of_total(question: Question, total: Total) -> ClientSummary:
    """The summary of a secure sum: with the law of its noise, or with what is small hidden.

    Without noise, what is smaller than min_count is merged or hidden.
    """
    client = f"sum of {len(total.sites)} clients"
    making = Making(client=client, score=question.score, **question.arguments)
    noise = noise_in(question, total.noisy)
    return summary_from_counts(total.values, making, total.sites, noise)


def _made(
    site: Site, asked: Asked, message: str, request: bytes, before: bytes
) -> tuple[bytes, bytes]:
    """The state after a step, and the reply, from the state before it."""
    me = site.identity or Identity(site.client)
    state = State.from_bytes(before) if before else None
    if message == "begin":
        _check_begin(Begin.from_bytes(request), asked.question)
        after, reply = secure.advertise(request, me)
    elif state is None:
        raise Refusal(Code.BAD_REQUEST)
    elif message == "roster":
        after, reply = secure.share(state, request, me, site.policy.sums)
    elif message == "delivery":
        vector = partial(_vector, site, asked, noisy=state.adds_noise)
        after, reply = secure.mask(state, request, vector)
    elif message == "survivors":
        after, reply = secure.confirm(state, request, me)
    else:
        after, reply = secure.reveal(state, request, me)
    return after.to_bytes(), reply


def _check_begin(begin: Begin, agreed: Question) -> None:
    """Raise a GCFCPError if the sum is not about the agreed question."""
    if begin != begin_of(agreed, signed=begin.signed, round=begin.round):
        raise GCFCPError("the secure sum is about another question than the one that is asked")
    if begin.noisy:  # Whether this site adds noise is not known yet.
        needs("opendp", "noise for differential privacy", "dp")


def _vector(site: Site, asked: Asked, noisy: bool) -> Ints:
    """The counts of the site's records; a `Refusal` with a code alone if there are none.

    noisy: Whether this site adds the noise of the sum, to all counts but n.
    """
    question = asked.question
    try:
        found = counts_of(summary_of(site, question.at_site, ()))
    except GCFCPError:  # Its text may quote the data, and would be logged.
        raise Refusal(Code.DATA_REFUSED) from None
    refuse_moving(site.calibration, asked.records)
    noise = noise_in(question) if noisy else None
    if noise is not None:
        found[1:] = with_noise(found[1:], noise.scale, _sensitivity(question), noise.epsilon)
    return found


def _sensitivity(question: Question) -> int:
    """By how much one record can change all counts of the vector together, n left out."""
    return sensitivity_of(np.ones(len(question.groups), np.bool_), str(question.by))


def _refuse_other(kept: bytes | None, asked: Asked, sum_: str) -> None:
    """Raise a `Refusal` if the answer to the question that was kept belongs to another sum."""
    if kept is not None and secure.addressed(kept)[1] != sum_:
        raise Refusal(
            Code.SUM_USED_UP,
            f"the records of data set {asked.dataset!r:.60} are in another secure sum for this "
            "question: if that failed, agree on another round and allow one more question",
        )


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Turn what `gcfcp.secure` refuses into a `Refusal`; its text never comes from the data."""
    try:
        yield
    except GCFCPError as error:
        raise Refusal(Code.SUM_REFUSED, str(error)) from None
