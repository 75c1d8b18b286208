"""The server's side of a round: it asks, checks every answer, calibrates, and keeps a record.

The predictor is byte for byte what `gcfcp calibrate` makes of the same summaries as files. The
order in which clients answer changes nothing, and what belongs to the round (who answered, when and
how) goes into record.json. There is one exception: if clients are missing and the terms allow going
on without them, the predictor names them in `provenance.missing`.

A summary is accepted only if it is valid, was made as asked, and comes from the node that may speak
for its client. Any other summary is left out, its client is named, and it counts as missing. What
is accepted is written to disk at once. So a new run, after a crash or after the deadline, asks only
the clients that are missing.

A question with `secure=True` is answered by a secure sum (see `sums`): no summary of a single
client arrives, and the sum of all is calibrated. It is written to disk at once, with its
`min_count`, and a new run takes it from there, because no client takes part in a second sum for the
same question.

Cost: a summary is checked in about 0.2 ms and kept in memory. The calibration then costs what
`calibrate` costs.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gcfcp
from gcfcp import checks, codec, report
from gcfcp.audit import Audit, AuditReport
from gcfcp.calibration import Calibration, Mixture
from gcfcp.calibration import mixture as mixtures
from gcfcp.carriers.carrier import Carrier, Node
from gcfcp.carriers.exchange import Exchange, Outcome, Say, utc
from gcfcp.carriers.record import agreed_on, entry_of, order_of
from gcfcp.carriers.store import Store, write_json
from gcfcp.carriers.sums import SecureSum, outcomes_of
from gcfcp.carriers.target import Target, Terms, check_mixture, check_rule, check_sum
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.prediction import Predictor
from gcfcp.rounds import (
    AUDIT,
    Code,
    Question,
    Refusal,
    Request,
    differences,
    summary_of_total,
)
from gcfcp.summary import ClientSummary
from gcfcp.version import LIBRARY

REPORTED = 20_000  # For more clients than this, no report is written.
SUM_FILE = "sum.gcfcp"  # The summary of a secure sum, with its min_count.


@dataclass(frozen=True)
class Result:
    """The results of a round."""

    calibration: Calibration
    predictor: Predictor
    missing: tuple[str, ...]  # The names of the clients that are missing.
    audit: AuditReport | None  # None if none was asked for, or if no client with weight gave one.
    record: dict[str, Any] = field(repr=False)  # What record.json holds.


def say(text: str) -> None:
    """Print lines to the terminal or to the log of the carrier's server."""
    for line in text.splitlines():
        print(f"gcfcp: {line}", flush=True)


def conduct(
    carrier: Carrier,
    question: Question,
    target: Target,
    terms: Terms,
    output: str | Path,
    say: Say = say,
) -> Result:
    """Conduct one round, from the first request to the files in the directory `output`.

    The module `store` says which files these are. If too few clients answer, a GCFCPError is
    raised. Then record.json says who is missing and why, and the summaries that have arrived stay
    there for the next run.

    carrier: It moves the messages.
    question: What every client is asked for.
    target: What to calibrate for.
    terms: The deadline, the roster and so on.
    output: The directory of the round, which may hold an earlier run of the same question.
    say: It shows a line of progress.
    """
    check_mixture(target, terms)
    check_rule(question, target)
    check_sum(question, target, terms)
    round_ = _Round(carrier, question, target, terms, Store(output, question), say)
    try:
        return round_.run()
    except GCFCPError as error:
        round_.write_record(str(error))
        raise
    finally:
        round_.store.close()


@dataclass
class _Round:
    """One round: what was given, and what has happened so far."""

    carrier: Carrier
    question: Question
    target: Target
    terms: Terms
    store: Store
    say: Say
    started: str = field(default_factory=utc)  # When the round began.
    clock: float = field(default_factory=time.monotonic)  # The same on a clock that is never set.
    taken: dict[str, ClientSummary] = field(default_factory=dict)  # Accepted summaries by client.
    outcomes: list[Outcome] = field(default_factory=list)  # What became of each client.
    audits: list[Outcome] = field(default_factory=list)  # What became of each client's audit.
    strangers: list[Node] = field(default_factory=list)  # Nodes that are not on the roster.
    cause: str = ""  # The probable cause if too few clients could be asked.
    notes: list[str] = field(default_factory=list)  # Remarks for the record.
    files: dict[str, str] = field(default_factory=dict)  # The SHA-256 of each file that is written.
    result: dict[str, Any] = field(default_factory=dict)  # More entries for the record.

    def run(self) -> Result:
        """Gather summaries, calibrate, audit if that is wanted, and write all files."""
        if self.question.secure:
            self._add_up()
        else:
            self._gather()
        missing = self._missing()
        self._check_quorum(missing)
        calibration = self._calibrate(missing)
        predictor = _predictor(calibration)
        if missing:
            predictor.provenance["missing"] = list(missing)
        text = predictor.to_json(coreset=self.target.coreset).encode()
        self._write("predictor.json", text)
        audit = self._audit(text, calibration.shares) if self.target.audit else None
        self._report(predictor, calibration, audit)
        self.write_record(None)
        path = self.store.directory / "predictor.json"
        made = checks.counted(len(self._answered()), "client was", "clients were")
        self.say(f"{made} calibrated; the predictor is {path}")
        return Result(calibration, predictor, missing, audit, self.record(None))

    # --- gathering

    def _gather(self) -> None:
        """Ask all clients for summaries, except for those whose summary is on disk already."""
        done = {}
        for outcome, data in self.store.kept():
            name = str(outcome.client)
            if self.terms.clients is not None and name not in self.terms.clients:
                continue  # This client is not on the roster any more.
            try:
                self.taken[name] = self._checked(name, data)
            except Refusal:
                continue  # This client is asked again.
            done[name] = outcome
        if done:
            kept = checks.counted(len(done), "client")
            self.say(f"{kept} answered in an earlier run, and nobody is asked twice")
        self.say(f"asking for summaries; the deadline is in {self.terms.deadline:g} s")
        exchange = Exchange(
            self.carrier,
            self.terms,
            lambda _, nonce: Request(self.question, nonce),
            self._accept,
            self.say,
            frozenset(done),
            frozenset(o.node.known_as for o in done.values() if o.node),
        )
        outcomes = exchange.run()
        self.strangers, self.cause = exchange.strangers, exchange.cause
        self.outcomes = self._settle([*done.values(), *outcomes])

    def _add_up(self) -> None:
        """Let the clients add up their counts, unless their sum is on disk already."""
        path = self.store.directory / SUM_FILE
        if path.exists():
            summary = ClientSummary.load(path)
            if wrong := list(differences(summary, self.question.of_sum)):
                raise GCFCPError(
                    f"{path} was made with another {wrong[0][0]}: use another directory for this "
                    "question"
                )
            self.outcomes = outcomes_of(summary, self.terms)
            self.say(f"the secure sum of an earlier run is taken from {path}")
        else:
            summed = SecureSum(self.carrier, self.question, self.terms, self.say)
            self.result["sum"] = summed.record
            try:
                total = summed.run()
            finally:
                self.outcomes = sorted(summed.outcomes.values(), key=order_of)
                self.strangers = summed.strangers
            summary = summary_of_total(self.question, total)
            self._write(SUM_FILE, summary.to_bytes())
        self.taken[summary.client] = summary

    def _answered(self) -> list[str]:
        """The names of the clients whose summaries are there, or whose counts are in the sum."""
        if self.question.secure:
            return [name for summary in self.taken.values() for name, _ in summary.members]
        return sorted(self.taken)

    @property
    def _aggregates(self) -> Mapping[str, int | None]:
        """The aggregates that are let in: those of the terms, or the secure sum."""
        if self.question.secure:
            return {name: len(summary.members) for name, summary in self.taken.items()}
        return self.terms.admission.aggregates

    def _checked(self, client: str, data: bytes) -> ClientSummary:
        """The summary in these bytes; a `Refusal` if it is not valid, not this client's or not as
        asked."""
        try:
            summary = ClientSummary.from_bytes(data)
        except GCFCPError as error:
            raise Refusal(Code.NOT_A_SUMMARY, _printable(str(error))) from None
        if summary.client != client:
            raise Refusal(Code.WRONG_CLIENT, f"its summary is that of {summary.client!r:.60}")
        if wrong := "; ".join(
            f"{what} is {theirs!r:.60}, but {ours!r:.60} was asked for"
            for what, theirs, ours in differences(summary, self.question)
        ):
            raise Refusal(Code.NOT_AS_ASKED, wrong)
        if refused := self.terms.admission.refusal(summary, "it"):
            raise Refusal(Code.IS_AGGREGATE, _printable(refused))
        return summary

    def _accept(self, name: str | None, outcome: Outcome) -> Outcome:
        """Check an answer, and keep its summary in memory and on disk; see `Exchange`."""
        client = str(outcome.client)
        summary = self._checked(name or client, outcome.payload)
        before = self.taken.get(client)
        if before is None:
            self.taken[client] = summary
            self.store.keep(client, outcome.payload, outcome)
        elif before != summary:
            raise Refusal(Code.NAME_TAKEN)
        return outcome

    def _settle(self, outcomes: list[Outcome]) -> list[Outcome]:
        """One outcome for each client, in the order of names, whoever came first.

        If two nodes give the same name with different summaries, both are left out; the same
        summary twice counts once. Summaries that have a member in common are left out as well.
        """
        contested = {o.claimed for o in outcomes if o.code is Code.NAME_TAKEN}
        owners = Counter(name for s in self.taken.values() for name, _ in s.members)
        settled: dict[str, Outcome] = {}
        for outcome in sorted(outcomes, key=order_of):
            client = outcome.client
            if outcome.code is None and client is not None:
                code = None
                if client in contested:
                    code = Code.NAME_TAKEN
                elif any(owners[name] > 1 for name, _ in self.taken[client].members):
                    code = Code.MEMBERS_OVERLAP
                outcome = replace(outcome, code=code)
            settled.setdefault(outcome.name, outcome)
        for name, outcome in settled.items():
            if outcome.code in (Code.NAME_TAKEN, Code.MEMBERS_OVERLAP) and name in self.taken:
                del self.taken[name]
                self.store.withdraw(name)
                self.say(f"{name} is left out, because {outcome.code.meaning}")
        return list(settled.values())

    # --- who is missing

    def _missing(self) -> tuple[str, ...]:
        """The names of all clients that were asked for, or have a weight, but are not there."""
        missing = {o.name for o in self.outcomes if o.code is not None}
        if isinstance(self.target.mixture, Mapping):
            missing |= set(self.target.mixture) - set(self.taken)
        return tuple(sorted(missing - set(self.taken)))

    def _check_quorum(self, missing: tuple[str, ...]) -> None:
        """Raise a GCFCPError if the terms do not allow going on without the missing clients."""
        number = len(self._answered())
        answered = f"{checks.counted(number, 'client')} answered"
        remedy = "run again to ask only those that are missing"
        if self.cause:
            remedy = f"{self.cause}: {remedy}"
        if number < self.terms.min_clients:
            raise GCFCPError(
                f"{answered}, but min_clients is {self.terms.min_clients}; "
                f"missing: {_listed(missing)}: {remedy}"
            )
        if missing and self.terms.missing == "fail":
            raise GCFCPError(
                f"{answered}, and some are missing: {_listed(missing)}: {remedy}, "
                'or set missing = "present" to go on with those that answered'
            )

    def _mixture(self, missing: tuple[str, ...]) -> Mixture:
        """The mixture of the clients that answered."""
        mixture = self.target.mixture
        return mixtures.among(mixture, self.taken, "answered") if missing else mixture

    # --- the results

    def _calibrate(self, missing: tuple[str, ...]) -> Calibration:
        """Calibrate with the clients that answered; warnings become notes of the record."""
        if missing:
            self._note(
                f"this is calibrated without {_listed(missing)}; the mixture is that of the "
                f"{checks.counted(len(self._answered()), 'client')} that answered"
            )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GCFCPWarning)
            calibration = gcfcp.calibrate(
                self.taken.values(),
                self.target.alpha,
                self._mixture(missing),
                self.target.merge,
                rule=self.target.rule,
                correction=self.target.correction,
                confidence=self.target.confidence,
                aggregates=self._aggregates,
                round=self.question.round,
                max_share=self.target.max_share,
                allow_share=[k for k in self.target.allow_share if k in self.taken],
                max_atoms=self.target.max_atoms,
            )
        for warning in caught:
            self._note(str(warning.message))
        self.result["shares"] = calibration.shares
        return calibration

    def _note(self, text: str) -> None:
        """Say something, and put it into the record."""
        self.notes.append(text)
        self.say(text)

    def _write(self, name: str, data: bytes) -> None:
        """Write a file of the round, and note its SHA-256."""
        codec.write(self.store.directory / name, data)
        self.files[name] = hashlib.sha256(data).hexdigest()

    def _report(
        self, predictor: Predictor, calibration: Calibration, audit: AuditReport | None
    ) -> None:
        """Write report.html; where a threshold is infinite, the report says what is missing."""
        if len(self.taken) > REPORTED:
            self._note(f"no report is written for more than {REPORTED:,} clients")
            return
        plan = None
        if any(atom.reason is not None for atom in calibration.atoms):
            plan = gcfcp.plan(
                calibration.summaries,
                calibration.alpha,
                calibration.mixture,
                rule=calibration.rule,
                confidence=calibration.confidence,
                aggregates=self._aggregates,
                max_atoms=self.target.max_atoms,
            )
        page = report.render(predictor, audit, plan=plan, command=self.carrier.command)
        self._write("report.html", page.encode())

    # --- the second round

    def _audit(self, predictor: bytes, shares: Mapping[str, float]) -> AuditReport | None:
        """Send the predictor out, bring the counts back, and merge them.

        predictor: The bytes of predictor.json.
        shares: The weight of each client in the predictor's mixture.
        Returns None if no client that has weight gave an audit. Clients that gave none are named in
        a note.
        """
        audits = self._gather_audits(predictor, shares)
        silent = sorted(set(self.taken) - set(audits))
        if silent:
            self._note(f"these clients were not audited: {_listed(tuple(silent))}")
        if not audits:
            return None
        if not any(shares[client] for client in audits):
            self._note("no client that has weight in the mixture was audited, so nothing is judged")
            return None
        found = gcfcp.merge_audits(audits.values())
        for client in sorted(audits):
            self.say(f"{client} audited {audits[client].n:,} records")
        self.say(str(found))
        self.result["audit"] = found.to_dict()
        return found

    def _gather_audits(self, predictor: bytes, shares: Mapping[str, float]) -> dict[str, Audit]:
        """Ask all clients whose summary was accepted for an audit, and return audits by client."""
        fingerprint, roster = hashlib.sha256(predictor).hexdigest(), self.terms.clients
        audits: dict[str, Audit] = {}

        def accept(name: str | None, outcome: Outcome) -> Outcome:
            client = str(outcome.client)
            audit = self._checked_audit(client, outcome.payload, fingerprint, shares)
            if audits.setdefault(client, audit) != audit:
                raise Refusal(Code.NAME_TAKEN)
            return outcome

        self.say("asking for an audit of the predictor")
        exchange = Exchange(
            self.carrier,
            replace(
                self.terms,
                min_clients=1,
                clients=roster and {k: key for k, key in roster.items() if k in self.taken},
            ),
            lambda _, nonce: Request(self.question, nonce, predictor, AUDIT),
            accept,
            self.say,
            done_nodes=frozenset(o.node.known_as for o in self.outcomes if o.code and o.node),
        )
        self.audits = sorted(exchange.run(), key=order_of)
        return audits

    def _checked_audit(
        self, client: str, data: bytes, predictor: str, shares: Mapping[str, float]
    ) -> Audit:
        """The audit in these bytes; a `Refusal` if it is not valid, not this client's or not as
        asked.

        predictor: The SHA-256 of the predictor that had to be audited.
        shares: The weight of each client in its mixture. A site cannot claim another one, and that
        of a site whose gcfcp is too old to state it is filled in.
        """
        try:
            audit = Audit.from_bytes(data)
        except GCFCPError as error:
            raise Refusal(Code.NOT_AN_AUDIT, _printable(str(error))) from None
        if audit.client != client or client not in self.taken:
            raise Refusal(Code.WRONG_CLIENT)
        if (
            audit.groups.fingerprint != self.question.groups.fingerprint
            or audit.predictor != predictor
            or audit.min_count != self.question.min_count
            or audit.share not in (None, shares[client])
        ):
            raise Refusal(Code.NOT_AS_ASKED)
        return replace(audit, share=shares[client])

    # --- the record

    def write_record(self, problem: str | None) -> None:
        """Write record.json."""
        write_json(self.store.directory / "record.json", self.record(problem))

    def record(self, problem: str | None) -> dict[str, Any]:
        """The record of the round: who answered, when, with how many bytes, and what went wrong.

        It holds nothing of the data.

        problem: Why the round failed, or None.
        """
        return {
            "format": "gcfcp round",
            "version": 1,
            "library": LIBRARY,
            "outcome": "failed" if problem else "calibrated",
            "problem": problem,
            "started": self.started,
            "finished": utc(),
            "seconds": round(time.monotonic() - self.clock, 3),
            **agreed_on(self.question, self.target, self.terms),
            "clients": [entry_of(o) for o in self.outcomes],
            "answered": self._answered(),
            "missing": list(self._missing()),
            "not_on_the_roster": [{"node": n.id, "key": n.key} for n in self.strangers],
            "audits": [entry_of(o) for o in self.audits],
            "notes": self.notes,
            "files": self.files,
            **self.result,
        }


def _predictor(calibration: Calibration) -> Predictor:
    """The predictor of a calibration, with the score that the summaries name."""
    return Predictor(calibration.summaries[0].score, calibration)


def _printable(text: str) -> str:
    """The first 200 characters without those that a terminal could obey."""
    return "".join(c for c in text[:200] if c.isprintable())


def _listed(names: tuple[str, ...], limit: int = 10) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more if names else "no client that is known by name"
