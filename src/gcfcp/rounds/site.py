"""A site, and how it answers a question: what is agreed, once, and nothing else.

An answer goes through three gates. The `policy` says whether the question is agreed on, and no
record is read if it is not. The `ledger` says whether it was answered before. Only then are the
records read, and the answer leaves when the ledger has kept it.

The carrier turns everything that is raised in here, also by the functions that read a site's
records, into a code (`code_of`): the text of an exception may quote a value of the data.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import gcfcp
from gcfcp.audit import Audit
from gcfcp.errors import GCFCPError
from gcfcp.prediction import Predictor
from gcfcp.rounds import ledger as ledgers
from gcfcp.rounds.codes import Code, Refusal
from gcfcp.rounds.ledger import Asked, Ledger
from gcfcp.rounds.policy import Policy
from gcfcp.rounds.question import Question, differences
from gcfcp.secure import Identity
from gcfcp.summary import ClientSummary


@dataclass(frozen=True)
class Records:
    """Records of a site, by name, and the function that reads them.

    dataset: The name that the site gives these records. New records get a new name.
    read: For calibration, a function of the question. It returns the scores and the memberships of
    the records, or a `ClientSummary` that was made beforehand. The memberships need no columns for
    sites, which are filled in from the name of the client. For audits, a function of the predictor
    and the question. It returns (covered, membership) or (covered, membership, set sizes) of
    labelled records that were not used to calibrate, or an `Audit` of them.
    fingerprint: A function that returns a text which changes whenever the records do, or None.
    """

    dataset: str
    read: Callable[..., Any]
    fingerprint: Callable[[], str] | None = None

    def mark(self) -> str | None:
        """The fingerprint of the records, if they have one."""
        return None if self.fingerprint is None else self.fingerprint()


@dataclass(frozen=True)
class Site:
    """One client: its name, what it has agreed to, what it has told, and its records.

    client: The name of the client. If the groups have sites, it is one of them.
    policy: What the site has agreed to answer.
    ledger: What the site has answered.
    calibration: The records that are summarised.
    audit: Labelled records for audits. None means that the site takes part in no audit.
    identity: For signed secure sums, the signing key of the site and those that it knows.
    """

    client: str
    policy: Policy
    ledger: Ledger
    calibration: Records
    audit: Records | None = None
    identity: Identity | None = None

    def __post_init__(self) -> None:
        if self.identity is not None and self.identity.client != self.client:
            raise GCFCPError(
                f"site {self.client!r:.60} has the signing key of {self.identity.client!r:.60}: "
                "each site signs for itself"
            )
        if self.audit is not None and self.audit.dataset == self.calibration.dataset:
            raise GCFCPError(
                f"data set {self.audit.dataset!r:.60} is both summarised and audited: an audit "
                "needs other records than those that calibrate, under a name of their own"
            )


def answer_summary(site: Site, question: Question) -> bytes:
    """The bytes of the site's summary; a `Refusal` if it does not answer this question."""
    with noting(site, ledgers.SUMMARY, site.calibration.dataset):
        agreed = site.policy.agreed_to(question)
        if agreed.secure:
            raise Refusal(Code.SUM_NEEDED)
        records = site.calibration.mark()
        absent = site.policy.absent_of(agreed.groups)

        def make() -> bytes:
            data = summary_of(site, agreed, absent).to_bytes()
            refuse_moving(site.calibration, records)
            return data

        def check(data: bytes) -> None:
            summary = ClientSummary.from_bytes(data, "the answer in the ledger")
            if summary.client != site.client or any(differences(summary, agreed)):
                raise GCFCPError("the answer in the ledger is not to the question in its entry")

        asked = Asked(
            kind=ledgers.SUMMARY,
            dataset=site.calibration.dataset,
            client=site.client,
            question=agreed,
            absent=absent,
            records=records,
        )
        return site.ledger.answer(
            asked, site.policy.questions, make, check, budget=site.policy.budget
        )


def answer_audit(site: Site, question: Question, predictor: bytes | None) -> bytes:
    """The bytes of the site's audit of a predictor; a `Refusal` if it does not make this audit.

    predictor: The bytes of the predictor's file, which may come from anyone.
    """
    dataset = "" if site.audit is None else site.audit.dataset
    with noting(site, ledgers.AUDIT, dataset):
        agreed = site.policy.agreed_to(question)
        if site.audit is None or agreed.secure:
            raise Refusal(Code.AUDIT_NOT_ALLOWED)
        if predictor is None:
            raise Refusal(Code.BAD_REQUEST)
        try:
            given = Predictor.from_json(predictor)
        except GCFCPError:
            raise Refusal(Code.BAD_REQUEST, "what was to be audited is not a predictor") from None
        site.policy.check_predictor(given, agreed)
        records, mark = site.audit.mark(), hashlib.sha256(predictor).hexdigest()
        source = site.audit
        _refuse_same(site.calibration, source, records)

        def make() -> bytes:
            data = _audit(site, source, agreed, given, mark).to_bytes()
            refuse_moving(source, records)
            return data

        def check(data: bytes) -> None:
            audit = Audit.from_bytes(data, "the answer in the ledger")
            if audit.client != site.client or audit.predictor != mark:
                raise GCFCPError("the answer in the ledger is not to the question in its entry")

        asked = Asked(
            kind=ledgers.AUDIT,
            dataset=source.dataset,
            client=site.client,
            question=agreed,
            predictor=mark,
            records=records,
        )
        return site.ledger.answer(asked, site.policy.audits, make, check)


def code_of(error: BaseException) -> Code:
    """The code that stands for whatever was raised while a site made its answer."""
    if isinstance(error, Refusal):
        return error.code
    return Code.DATA_REFUSED if isinstance(error, GCFCPError) else Code.FAILED


@contextlib.contextmanager
def noting(site: Site, kind: str, dataset: str) -> Iterator[None]:
    """Note in the ledger that there was no answer, and why."""
    try:
        yield
    except BaseException as error:  # A site's code may even call sys.exit("score 0.37").
        detail = error.detail if isinstance(error, Refusal) else ""
        site.ledger.refused(kind, site.client, dataset, code_of(error), detail)
        raise


def summary_of(site: Site, agreed: Question, absent: tuple[str, ...]) -> ClientSummary:
    """The site's summary, made as agreed."""
    loaded = site.calibration.read(agreed)
    if isinstance(loaded, ClientSummary):
        summary = loaded
    else:
        scores, membership = loaded
        summary = gcfcp.summarize(
            scores,
            membership,
            client=site.client,
            score=agreed.score,
            absent=absent,
            **agreed.arguments,
        )
    # A summary that was made beforehand must be exactly what is agreed on.
    if summary.client != site.client or any(differences(summary, agreed)):
        raise Refusal(Code.DATA_REFUSED)
    # What the policy declares absent must be what the summary declares, unless it says nothing.
    if absent and summary.absent != absent:
        raise Refusal(Code.DATA_REFUSED)
    return summary


def _audit(site: Site, source: Records, agreed: Question, given: Predictor, mark: str) -> Audit:
    """The site's audit of a predictor, whose SHA-256 is `mark`."""
    counted = source.read(given, agreed)
    if not isinstance(counted, Audit):
        covered, membership, *sizes = counted
        counted = gcfcp.audit(
            covered,
            membership,
            groups=agreed.groups,
            client=site.client,
            set_size=sizes[0] if sizes else None,
            min_count=agreed.min_count,
            alpha=float(given.threshold_table.alpha),
        )
    if (
        counted.client != site.client
        or counted.min_count != agreed.min_count
        or counted.groups.fingerprint != agreed.groups.fingerprint
    ):
        raise Refusal(Code.DATA_REFUSED)
    return replace(counted, predictor=mark, share=given.share_of(site.client), round=agreed.round)


def _refuse_same(calibration: Records, audit: Records, mark: str | None) -> None:
    """Raise a `Refusal` if the records of an audit are, byte for byte, those that calibrate.

    mark: The fingerprint of the records of the audit.
    """
    same = False
    if mark is not None:
        with contextlib.suppress(GCFCPError):  # The records that calibrated may be gone by now.
            same = mark == calibration.mark()
    if same:
        raise Refusal(
            Code.AUDIT_NOT_ALLOWED,
            f"data sets {audit.dataset!r:.60} and {calibration.dataset!r:.60} hold the same bytes: "
            "an audit needs other records than those that calibrate",
        )


def refuse_moving(source: Records, before: str | None) -> None:
    """Raise a `Refusal` if the records have changed while they were read."""
    if source.mark() != before:
        raise Refusal(
            Code.DATA_CHANGED,
            f"the records of data set {source.dataset!r:.60} changed while they were read: ask "
            "again when they are complete",
        )
