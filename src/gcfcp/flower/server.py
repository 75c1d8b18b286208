"""The server's side of a round: ask, check every answer, calibrate, and leave an account of it.

The result is what `gcfcp calibrate` makes of the same summaries as files, to the last byte: the
order in which clients answer changes nothing, and everything the round adds (who, when, how) goes
into a record of its own. Only if clients are missing and the terms allow to go on without them
does the predictor say so itself, in `provenance.missing`.

A summary is taken only if it is valid, was made as asked, and comes from the node that may speak
for its client; anything else is named, left out, and treated as missing. What was taken is on disk
at once, so that a run after a crash, or after the deadline, asks only those that are missing.

Cost: a summary is checked in about 0.2 ms and kept in memory; then that of `calibrate`.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import gcfcp
from gcfcp import checks, codec, report
from gcfcp.audit import Audit, AuditReport
from gcfcp.calibration import MERGES, RULES, Calibration, Mixture
from gcfcp.calibration import mixture as mixtures
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.flower import protocol
from gcfcp.flower.client import differences
from gcfcp.flower.exchange import Exchange, Node, Outcome, Say, Terms, utc
from gcfcp.flower.protocol import Code, Question, Refusal, Request
from gcfcp.flower.store import Store, write_json
from gcfcp.prediction import Predictor
from gcfcp.summary import ClientSummary
from gcfcp.version import LIBRARY

REPORTED = 20_000  # clients that a page can list


@dataclass(frozen=True)
class Target:
    """What to calibrate for: the arguments of `gcfcp.calibrate`, and what to do with the result.

    audit: ask for an audit of the predictor afterwards. coreset: see `Predictor.save`; it also
    says whether the clients get the coreset with the predictor that they audit.
    """

    alpha: float = 0.1
    mixture: Mixture = "uniform"
    merge: str = "pool"
    rule: str = "simultaneous"
    coreset: bool = True
    audit: bool = False

    def __post_init__(self) -> None:
        # Said before the clients are asked, not after.
        object.__setattr__(self, "alpha", float(checks.alpha(self.alpha)))
        checks.choice("merge", self.merge, *MERGES)
        checks.choice("rule", self.rule, *RULES)
        mixtures.check(self.mixture)


@dataclass(frozen=True)
class Result:
    """What a round ends with."""

    calibration: Calibration
    predictor: Predictor
    missing: tuple[str, ...]
    audit: AuditReport | None
    record: dict[str, Any] = field(repr=False)


def server_app(question: Question, target: Target, terms: Terms, output: str | Path) -> ServerApp:
    """A ServerApp that conducts one round and leaves its results in the directory `output`."""
    return app_of(lambda _: (question, target, terms, Path(output)))


Setup = Callable[[Mapping[str, Any]], tuple[Question, Target, Terms, Path]]


def app_of(setup: Setup) -> ServerApp:
    """A ServerApp that is set up by its run configuration."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            conduct(grid, *setup(context.run_config))
        except GCFCPError as error:
            say(f"failed: {error}")  # in one line, before Flower shows where it came from
            raise

    return app


def say(text: str) -> None:
    """To the terminal; under Flower this is what `flwr log` and `flwr run --stream` show."""
    for line in text.splitlines():
        print(f"gcfcp: {line}", flush=True)


def conduct(
    grid: Grid,
    question: Question,
    target: Target,
    terms: Terms,
    output: str | Path,
    say: Say = say,
) -> Result:
    """One round, from the first request to the files in `output`; see `store` for these.

    Raises GCFCPError if there are too few clients; record.json then says who is missing and why,
    and what has arrived stays for the next run.
    """
    check_mixture(target, terms)
    round_ = _Round(grid, question, target, terms, Store(output, question), say)
    try:
        return round_.run()
    except GCFCPError as error:
        round_.write_record(str(error))
        raise
    finally:
        round_.store.close()


def check_mixture(target: Target, terms: Terms) -> None:
    """A mixture by name must fit the roster, and this can be known before anyone is asked."""
    if terms.clients is None or not isinstance(target.mixture, Mapping):
        return
    odd = sorted(set(target.mixture) ^ set(terms.clients))
    if odd:
        raise GCFCPError(
            f"the mixture and the roster differ in {', '.join(map(repr, odd[:5]))}: "
            "both must name every client and no other"
        )


@dataclass
class _Round:
    grid: Grid
    question: Question
    target: Target
    terms: Terms
    store: Store
    say: Say
    started: str = field(default_factory=utc)
    clock: float = field(default_factory=time.monotonic)
    taken: dict[str, ClientSummary] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    audits: list[Outcome] = field(default_factory=list)
    strangers: list[Node] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Result:
        self._gather()
        missing = self._missing()
        self._check_quorum(missing)
        calibration = self._calibrate(missing)
        predictor = _predictor(calibration)
        if missing:
            predictor.provenance["missing"] = list(missing)
        text = predictor.to_json(coreset=self.target.coreset).encode()
        self._write("predictor.json", text)
        audit = self._audit(text) if self.target.audit else None
        self._report(predictor, calibration, audit)
        self.write_record(None)
        self.say(f"{len(self.taken)} clients calibrated: {self.store.directory / 'predictor.json'}")
        return Result(calibration, predictor, missing, audit, self.record(None))

    # --- gathering

    def _gather(self) -> None:
        done = {}
        for outcome, data in self.store.kept():
            name = str(outcome.client)
            if self.terms.clients is not None and name not in self.terms.clients:
                continue  # it has left the roster
            try:
                self.taken[name] = self._checked(name, data)
            except Refusal:
                continue  # and it is asked again
            done[name] = outcome
        if done:
            self.say(f"{len(done)} clients answered in an earlier run and are not asked again")
        exchange = Exchange(
            self.grid,
            self.terms,
            protocol.SUMMARIZE,
            lambda nonce: Request(self.question, nonce),
            self._accept,
            self.say,
            frozenset(done),
            frozenset(node.key or node.number for node in (o.node for o in done.values()) if node),
        )
        outcomes = exchange.run()
        self.strangers = exchange.strangers
        self.outcomes = self._settle([*done.values(), *outcomes])

    def _checked(self, client: str, data: bytes) -> ClientSummary:
        """A summary that is valid, as asked and this client's; or a `Refusal`."""
        try:
            summary = ClientSummary.from_bytes(data)
        except GCFCPError as error:
            raise Refusal(Code.NOT_A_SUMMARY, _printable(str(error))) from None
        if summary.client != client:
            raise Refusal(Code.WRONG_CLIENT, f"it was sent for {summary.client!r:.60}")
        if wrong := differences(summary, self.question):
            raise Refusal(Code.NOT_AS_ASKED, wrong)
        if summary.is_aggregate and not self.terms.aggregates:
            raise Refusal(Code.IS_AGGREGATE)
        return summary

    def _accept(self, name: str | None, outcome: Outcome) -> Outcome:
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
        """One outcome a client, in the order of names, and no word on who came first.

        Two nodes that give one name with different summaries are both left out; the same summary
        twice is one. So are clients that are part of two aggregates.
        """
        contested = {o.claimed for o in outcomes if o.code is Code.NAME_TAKEN}
        owners = Counter(name for s in self.taken.values() for name, _ in s.members)
        settled: dict[str, Outcome] = {}
        for outcome in sorted(outcomes, key=_order):
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
                self.say(f"{name}: left out, {outcome.code.meaning}")
        return list(settled.values())

    # --- who is missing

    def _missing(self) -> tuple[str, ...]:
        missing = {o.name for o in self.outcomes if o.code is not None}
        if isinstance(self.target.mixture, Mapping):
            missing |= set(self.target.mixture) - set(self.taken)
        return tuple(sorted(missing - set(self.taken)))

    def _check_quorum(self, missing: tuple[str, ...]) -> None:
        answered = len(self.taken)
        remedy = "run again to ask only those that are missing"
        if answered < self.terms.min_clients:
            raise GCFCPError(
                f"{answered} clients answered, min_clients is {self.terms.min_clients}; "
                f"missing: {_listed(missing)}: {remedy}"
            )
        if missing and self.terms.missing == "fail":
            raise GCFCPError(
                f"{answered} clients answered, missing: {_listed(missing)}: {remedy}, or let "
                'missing = "present" go on with those that answered'
            )

    def _mixture(self, missing: tuple[str, ...]) -> Mixture:
        mixture = self.target.mixture
        return mixtures.among(mixture, self.taken, "answered") if missing else mixture

    # --- the results

    def _calibrate(self, missing: tuple[str, ...]) -> Calibration:
        if missing:
            self._note(
                f"calibrated without {_listed(missing)}; the mixture is that of the "
                f"{len(self.taken)} clients that answered"
            )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GCFCPWarning)
            calibration = gcfcp.calibrate(
                self.taken.values(),
                self.target.alpha,
                self._mixture(missing),
                self.target.merge,
                rule=self.target.rule,
            )
        for warning in caught:
            self._note(str(warning.message))
        self.result["shares"] = calibration.shares
        return calibration

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.say(text)

    def _write(self, name: str, data: bytes) -> None:
        codec.write(self.store.directory / name, data)
        self.files[name] = hashlib.sha256(data).hexdigest()

    def _report(
        self, predictor: Predictor, calibration: Calibration, audit: AuditReport | None
    ) -> None:
        if len(self.taken) > REPORTED:
            self._note(f"no report is written for more than {REPORTED:,} clients")
            return
        plan = None
        if any(atom.reason is not None for atom in calibration.atoms):
            plan = gcfcp.plan(calibration.summaries, calibration.alpha, calibration.mixture)
        page = report.render(predictor, audit, plan=plan, command="flwr run (gcfcp.flower)")
        self._write("report.html", page.encode())

    # --- the second round

    def _audit(self, predictor: bytes) -> AuditReport | None:
        """Send the predictor out and bring counts back; who stays silent is named."""
        fingerprint, roster = hashlib.sha256(predictor).hexdigest(), self.terms.clients
        audits: dict[str, Audit] = {}

        def accept(name: str | None, outcome: Outcome) -> Outcome:
            client = str(outcome.client)
            try:
                audit = Audit.from_bytes(outcome.payload)
            except GCFCPError as error:
                raise Refusal(Code.NOT_AN_AUDIT, _printable(str(error))) from None
            if audit.client != client or client not in self.taken:
                raise Refusal(Code.WRONG_CLIENT)
            if (
                audit.groups.fingerprint != self.question.groups.fingerprint
                or audit.predictor != fingerprint
                or audit.min_count != self.question.min_count
            ):
                raise Refusal(Code.NOT_AS_ASKED)
            if audits.setdefault(client, audit) != audit:
                raise Refusal(Code.NAME_TAKEN)
            return outcome

        self.say("asking for an audit of the predictor")
        exchange = Exchange(
            self.grid,
            replace(
                self.terms,
                min_clients=1,
                clients=roster and {k: key for k, key in roster.items() if k in self.taken},
            ),
            protocol.AUDIT,
            lambda nonce: Request(self.question, nonce, predictor),
            accept,
            self.say,
            done_nodes=frozenset(
                o.node.key or o.node.number for o in self.outcomes if o.code and o.node
            ),
        )
        self.audits = sorted(exchange.run(), key=_order)
        silent = sorted(set(self.taken) - set(audits))
        if silent:
            self._note(f"not audited: {_listed(tuple(silent))}")
        if not audits:
            return None
        mixture = self.target.mixture
        if isinstance(mixture, Mapping) and not any(mixture.get(k) for k in audits):
            mixture = "uniform"
        mixture = mixtures.among(mixture, audits, "were audited")
        found = gcfcp.merge_audits(audits.values(), mixture)
        for client in sorted(audits):
            self.say(f"{client}: audited {audits[client].n:,} records")
        self.say(str(found))
        self.result["audit"] = found.to_dict()
        return found

    # --- the record

    def write_record(self, problem: str | None) -> None:
        write_json(self.store.directory / "record.json", self.record(problem))

    def record(self, problem: str | None) -> dict[str, Any]:
        """Who, when, what, how many bytes, and what went wrong; nothing of the data."""
        mixture = self.target.mixture
        terms = self.terms
        return {
            "format": "gcfcp round",
            "version": 1,
            "library": LIBRARY,
            "outcome": "failed" if problem else "calibrated",
            "problem": problem,
            "started": self.started,
            "finished": utc(),
            "seconds": round(time.monotonic() - self.clock, 3),
            "question": self.question.to_json(),
            "target": {
                "alpha": self.target.alpha,
                "mixture": dict(mixture) if isinstance(mixture, Mapping) else mixture,
                "merge": self.target.merge,
                "rule": self.target.rule,
            },
            "terms": {
                "deadline": terms.deadline,
                "min_clients": terms.min_clients,
                "missing": terms.missing,
                "roster": None if terms.clients is None else dict(sorted(terms.clients.items())),
            },
            "clients": [_entry(o) for o in self.outcomes],
            "answered": sorted(self.taken),
            "missing": list(self._missing()),
            "not_on_the_roster": [{"node": str(n.number), "key": n.key} for n in self.strangers],
            "audits": [_entry(o) for o in self.audits],
            "notes": self.notes,
            "files": self.files,
            **self.result,
        }


def _entry(o: Outcome) -> dict[str, Any]:
    return {
        "client": o.client,
        # As text: 64 bits are more than a JSON number can hold everywhere.
        "node": None if o.node is None else str(o.node.number),
        "key": None if o.node is None else o.node.key,
        "status": "missing" if o.code else "kept from an earlier run" if o.kept else "answered",
        "code": o.code and str(o.code),
        "meaning": o.code and o.code.meaning,
        "detail": o.detail,
        "asked": o.asked,
        "received": o.received,
        "bytes": o.size,
        "sha256": o.sha256,
    }


def _order(outcome: Outcome) -> tuple[str, bool, int]:
    return (
        outcome.name,
        outcome.code is not None,
        outcome.node.number if outcome.node else 0,
    )


def _predictor(calibration: Calibration) -> Predictor:
    first = calibration.summaries[0]
    score = protocol.score_of(first.score, first.parameters)
    return Predictor(score, calibration)


def _printable(text: str) -> str:
    return "".join(c for c in text[:200] if c.isprintable())


def _listed(names: tuple[str, ...], limit: int = 10) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more if names else "nobody known by name"
