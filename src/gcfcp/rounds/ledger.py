"""What a site has told about which records, on disk: one frozen answer for each question.

Every answer tells a little, and many different answers about the same records tell the records. So
a site answers one question about a data set (or as many as its owner allows), keeps the answer, and
repeats it byte for byte whenever the same question is asked again. A score that is randomised is
therefore drawn once. Another question is refused. Audits are kept in the same way: one predictor
for each data set.

Where summaries have noise, the ledger also adds up their privacy losses: the epsilons of different
answers about one data set add up (basic composition; a repeated answer is the same bytes and loses
nothing more). In a secure sum a site loses the epsilon of the sum when its masked counts leave,
whether it adds noise itself or another site does, and whether the sum is made or not. An answer
that would exceed the owner's budget is refused. Whoever has told something without noise about a
data set has no budget left for it. Audits have no noise, and no budget is asked for them.

    DIRECTORY/
      journal.jsonl       One line for every reply: when, what, how many bytes, whether repeated.
      DATASET/            One directory for each data set, named after it (see `names`).
        summary-1.entry   The first question about it, and the answer.
        audit-1.asked     The first predictor that was to be audited on it.
        audit-1.entry     The same, and the audit.
        sum-SUM-0.step    A step of a secure sum (see `steps`).

An entry is a container of `codec`, of kind b"L": its header says what was asked, by whom it was
answered, about which records and when, and its body is the answer. A reader ignores what it does
not know in the header, so that later versions can write more into it.

**No answer without an entry.** An entry is written whole, reaches the disk, and then gets its name
by a hard link, which fails if the name is taken. Only then does the answer leave. So a crash leaves
either the entry with its answer, or nothing, and nothing has left. Of two processes that race for
the same number one gets it. The other finds the entry: if its question is the same, it sends the
bytes of the first one, and if not, it is refused. There is no lock that a crash could leave behind.
If an entry or the journal cannot be read or written, nothing is answered.

**An audit is used up when it is asked for.** Whether the audit of a predictor fails may depend on
the records: a server could leave one combination of groups out of each of many predictors, and see
which of them the site cannot audit. So a predictor takes its number before any record is read, in a
file of its own. The same predictor can be asked for again until its audit succeeds, and another one
is refused. A summary that cannot be made uses nothing up, because the question is agreed on.

**Summarised or audited, and not both.** Counts of an audit can be subtracted from those of a
summary. Of a data set that was summarised no audit is answered, and no summary of one that was
audited, also if the site's configuration has changed in between.

**A data set is what its owner names.** The ledger cannot know whether two names mean the same
records, and nothing that a server sends is part of a name. For records in a file, the entry keeps
the SHA-256 of the file. If it changes under the same name, nothing more is answered under it: new
records need a name of their own.

Cost: an entry is as large as its answer and some hundred bytes, and a line of the journal has about
300.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gcfcp import codec, files
from gcfcp.errors import GCFCPError
from gcfcp.rounds.codes import Code, Refusal
from gcfcp.rounds.names import file_stem
from gcfcp.rounds.question import Question, differences
from gcfcp.version import LIBRARY

SUMMARY, AUDIT = "summary", "audit"
"""The two kinds of answer."""

_KIND, _VERSION = b"L", 1  # The kind of container and its format version.
_DONE, _BEGUN = "entry", "asked"  # The suffix of an answer, and of an audit that was asked for.
_ENTRY = re.compile(rf"(summary|audit)-([1-9]\d{{0,8}})\.({_DONE}|{_BEGUN})")
_USED_UP = {SUMMARY: Code.QUESTIONS_USED_UP, AUDIT: Code.AUDITS_USED_UP}
_SETTING = {SUMMARY: "questions", AUDIT: "audits"}
_NAME = {SUMMARY: "dataset", AUDIT: "audit-dataset"}
_OTHER = {SUMMARY: AUDIT, AUDIT: SUMMARY}
_LONGEST = 4000  # The most characters of a data set's name, which may be a path.


@dataclass(frozen=True)
class Asked:
    """What is asked of a site, and about which records."""

    kind: str  # SUMMARY or AUDIT.
    dataset: str  # The name that the owner of the records gives them.
    client: str
    question: Question
    absent: tuple[str, ...] = ()  # The groups that the site declares it cannot have.
    predictor: str | None = None  # The SHA-256 of the predictor that is to be audited.
    records: str | None = None  # A fingerprint of the records, if there is one.

    def header(self) -> dict[str, Any]:
        """What an entry says about it."""
        return {
            "asked": self.kind,
            "dataset": self.dataset,
            "client": self.client,
            "question": self.question.to_json(),
            "absent": list(self.absent),
            "predictor": self.predictor,
            "records": self.records,
        }

    def is_that_of(self, entry: Entry) -> bool:
        """Whether the entry answers this very question."""
        return (
            not any(differences(entry.asked.question, self.question))
            and entry.asked.client == self.client
            and entry.asked.absent == self.absent
            and entry.asked.predictor == self.predictor
        )


@dataclass(frozen=True)
class Entry:
    """An answer that has left the site, or was about to, with what was asked."""

    asked: Asked
    number: int  # 1 for the first question about a data set.
    time: str  # When the answer was made.
    library: str  # What made it.
    answer: bytes = field(repr=False)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the answer."""
        return hashlib.sha256(self.answer).hexdigest()

    def to_bytes(self) -> bytes:
        """The bytes of the entry's file."""
        header = self.asked.header() | {
            "number": self.number,
            "time": self.time,
            "library": self.library,
        }
        return codec.pack(_KIND, _VERSION, header, self.answer)

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Entry:
        """An entry from its bytes; a GCFCPError that names the file if it is damaged."""
        header, body = codec.unpack(data, _KIND, _VERSION, name)
        with codec.reading(name, "entry of a ledger"):
            records, predictor = header["records"], header["predictor"]
            asked = Asked(
                kind=str(header["asked"]),
                dataset=str(header["dataset"]),
                client=str(header["client"]),
                question=Question.from_json(header["question"]),
                absent=tuple(map(str, header["absent"])),
                predictor=None if predictor is None else str(predictor),
                records=None if records is None else str(records),
            )
            number, time = int(header["number"]), str(header["time"])
            return cls(asked, number, time, str(header["library"]), bytes(body))


@dataclass(frozen=True)
class Ledger:
    """The ledger in a directory, which is made when it is first needed.

    directory: It belongs to the site. Whoever deletes it lets everything be asked again.
    sync: Whether an entry must reach the disk before the answer leaves. False is for simulations,
    in which one person holds all data anyway: a power failure could then lose entries.
    """

    directory: Path
    sync: bool = True

    def answer(
        self,
        asked: Asked,
        limit: int,
        make: Callable[[], bytes],
        check: Callable[[bytes], None] = lambda _: None,
        budget: float | None = None,
    ) -> bytes:
        """The answer to what is asked: the one that was kept, or a new one, which is then kept.

        limit: How many different questions are answered about a data set.
        make: It makes a new answer. It is not called if one was kept, or if the limit is reached.
        check: It raises a GCFCPError if bytes that were kept are not such an answer.
        budget: The most epsilon that all answers about a data set may lose together, or None.
        Raises a `Refusal` if there is no answer.
        """
        with usable():
            folder = self.prepare(asked)
        entry, made, repeated = None, None, True
        while entry is None:
            with usable():
                kept = self._entries_in(folder, asked.kind, asked.dataset)
                begun = self._entries_in(folder, asked.kind, asked.dataset, _BEGUN)
                others = [
                    *self._entries_in(folder, _OTHER[asked.kind], asked.dataset),
                    *self._entries_in(folder, _OTHER[asked.kind], asked.dataset, _BEGUN),
                ]
            _refuse_changed(asked, kept)
            entry = next((e for e in kept if asked.is_that_of(e)), None)
            if entry is not None:
                break
            if others:
                raise Refusal(
                    _USED_UP[asked.kind],
                    f"data set {asked.dataset!r:.60} was used for {others[0].asked.kind} "
                    f"{others[0].number}, and records are summarised or audited, not both: give "
                    f"{_NAME[asked.kind]} other records, under a name of their own",
                )
            mine = next((e for e in begun if asked.is_that_of(e)), None)
            taken = {e.number for e in (*kept, *begun)}
            if mine is None and len(taken) >= limit:
                raise self._used_up(asked, len(taken))
            _refuse_beyond(asked, kept, budget)
            number = max(taken, default=0) + 1 if mine is None else mine.number
            if mine is None and asked.kind == AUDIT:
                start = Entry(asked, number, _now(), LIBRARY, b"")
                with usable():
                    self.create(folder / f"{asked.kind}-{number}.{_BEGUN}", start.to_bytes())
                continue
            if made is None:
                made = make()
            new = Entry(asked, number, _now(), LIBRARY, made)
            with usable():
                if self.create(folder / f"{asked.kind}-{number}.{_DONE}", new.to_bytes()):
                    entry, repeated = new, False
        with usable():
            check(entry.answer)
            self._note(
                asked.kind,
                asked.client,
                asked.dataset,
                number=entry.number,
                bytes=len(entry.answer),
                sha256=entry.sha256,
                repeated=repeated,
            )
        return entry.answer

    def kept(self, asked: Asked, limit: int, budget: float | None = None) -> bytes | None:
        """The answer that was kept; None if there is none, and a new one could be made.

        Raises a `Refusal` if `answer` would raise one before it makes an answer.
        """
        with usable():
            folder = self.prepare(asked)
            kept = self._entries_in(folder, asked.kind, asked.dataset)
        _refuse_changed(asked, kept)
        entry = next((e for e in kept if asked.is_that_of(e)), None)
        if entry is None and len(kept) >= limit:
            raise self._used_up(asked, len(kept))
        if entry is None:
            _refuse_beyond(asked, kept, budget)
        return None if entry is None else entry.answer

    def _used_up(self, asked: Asked, number: int) -> Refusal:
        """The refusal of one question too many."""
        return Refusal(
            _USED_UP[asked.kind],
            f"{number} were asked about data set {asked.dataset!r:.60} (gcfcp ledger "
            f"{self.directory} lists answers); to allow more, raise {_SETTING[asked.kind]}",
        )

    def refused(self, kind: str, client: str, dataset: str, code: Code, detail: str = "") -> None:
        """Note that there was no answer. If this cannot be noted, there is none all the same.

        code, detail: As in `Refusal`.
        """
        with contextlib.suppress(GCFCPError, OSError):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._note(kind, client, dataset, code=str(code), detail=detail)

    # --- looking at it

    def entries(self) -> list[Entry]:
        """All entries, by data set, kind and number; a GCFCPError if one is damaged."""
        found: list[Entry] = []
        with _as_errors(self.directory):
            folders = sorted(path for path in self.directory.iterdir() if path.is_dir())
            for folder in folders:
                found += self._entries_in(folder)
        return sorted(found, key=lambda e: (e.asked.dataset, e.asked.kind, e.number))

    def journal(self) -> list[dict[str, Any]]:
        """The lines of the journal; a line that a crash has cut short is left out."""
        path = self.directory / "journal.jsonl"
        lines = codec.read(path).splitlines() if path.exists() else []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                value = codec.from_json(line)
                if isinstance(value, dict):
                    found.append(value)
        return found

    # --- files

    def prepare(self, asked: Asked) -> Path:
        """The directory of a data set, which is made if it is not there."""
        name = asked.dataset
        if not name.strip() or len(name) > _LONGEST or not name.isprintable():
            raise GCFCPError(
                f"data set {name!r:.60} has no usable name: give {_NAME[asked.kind]} a name of 1 "
                f"to {_LONGEST} printable characters"
            )
        folder = self.directory / file_stem("dataset", name)
        with _as_errors(self.directory):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._append(b"")  # If no line could be written, no records need to be read.
        return folder

    def _entries_in(
        self,
        folder: Path,
        kind: str | None = None,
        dataset: str | None = None,
        suffix: str = _DONE,
    ) -> list[Entry]:
        """The entries of one directory, in order; a GCFCPError if one is damaged.

        kind, dataset: If they are given, only entries of this kind are read, and an entry about
        another data set is an error.
        """
        found = []
        with _as_errors(folder):
            names = sorted(path.name for path in folder.iterdir())
        for name in names:
            match = _ENTRY.fullmatch(name)
            if match is None or kind not in (None, match[1]) or match[3] != suffix:
                continue
            path = folder / name
            entry = Entry.from_bytes(codec.read(path), str(path))
            here = (match[1], int(match[2]), dataset or entry.asked.dataset)
            if here != (entry.asked.kind, entry.number, entry.asked.dataset):
                raise GCFCPError(f"{path} belongs elsewhere: restore the ledger from a backup")
            found.append(entry)
        return sorted(found, key=lambda e: e.number)

    def create(self, path: Path, data: bytes) -> bool:
        """Write a file that must not exist; False if it does.

        The name appears when the file is whole. After this the file outlives a power failure.
        """
        try:
            files.write(path, data, sync=self.sync, overwrite=False)
        except files.AlreadyThereError:
            return False
        if self.sync:
            with _as_errors(path):
                for folder in (path.parent, self.directory, self.directory.parent):
                    _sync(folder)
        return True

    def _note(self, kind: str, client: str, dataset: str, **more: Any) -> None:
        """Add a line to the journal."""
        line = {"time": _now(), "asked": kind, "client": client, "dataset": dataset} | more
        with _as_errors(self.directory):
            self._append((json.dumps(line) + "\n").encode())

    def _append(self, line: bytes) -> None:
        """Append a line to the journal in one piece, so that lines of two processes do not mix."""
        handle = os.open(
            self.directory / "journal.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600
        )
        with open(handle, "r+b", buffering=0) as file:
            if not line:
                return
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                if file.read(1) != b"\n":  # A crash has cut the last line short.
                    line = b"\n" + line
            if file.write(line) != len(line):
                raise OSError(None, "the disk is full")


def default_directory() -> Path:
    """Where a ledger is kept if nothing else is said: gcfcp in the user's directory for state.

    That is $XDG_STATE_HOME/gcfcp or, if this is not set, ~/.local/state/gcfcp.
    """
    given = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(given):
        return Path(given) / "gcfcp"
    try:
        return Path.home() / ".local" / "state" / "gcfcp"
    except RuntimeError:
        raise GCFCPError(
            "there is no home directory to keep the ledger in: give a directory as ledger"
        ) from None


def _refuse_changed(asked: Asked, kept: list[Entry]) -> None:
    """Raise a `Refusal` if the records are not those that an earlier answer was about."""
    for entry in kept:
        if None not in (asked.records, entry.asked.records) and (
            asked.records != entry.asked.records
        ):
            raise Refusal(
                Code.DATA_CHANGED,
                f"the records of data set {asked.dataset!r:.60} are not those that were answered "
                f"about on {entry.time}: give the new records a name of their own, such as "
                f'{_NAME[asked.kind]}="2026Q4"',
            )


def spent(entries: Iterable[Entry]) -> float:
    """The epsilon that these answers have lost together; infinite if one of them has no noise.

    An audit has none, also if its question has an epsilon.
    """
    return math.fsum(
        math.inf
        if e.asked.kind == AUDIT or e.asked.question.epsilon is None
        else e.asked.question.epsilon
        for e in entries
    )


def _refuse_beyond(asked: Asked, kept: list[Entry], budget: float | None) -> None:
    """Raise a `Refusal` if one more answer would lose more than the owner's budget."""
    if budget is None:
        return
    before, more = spent(kept), asked.question.epsilon
    if more is None or before + more > budget * (1 + 1e-12):
        raise Refusal(
            Code.BUDGET_USED_UP,
            f"epsilon {before:g} of {budget:g} is spent on data set {asked.dataset!r:.60}, and "
            f"this question asks for {more if more is None else format(more, 'g')} more",
        )


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """Turn whatever is wrong with the ledger into a `Refusal`."""
    try:
        yield
    except GCFCPError as error:
        raise Refusal(Code.LEDGER_UNUSABLE, str(error)) from None


@contextlib.contextmanager
def _as_errors(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a GCFCPError that names the path."""
    try:
        yield
    except OSError as error:
        raise GCFCPError(
            f"cannot use the ledger at {path!s:.200}: {error.strerror or error}: give a directory "
            "that this user can write to"
        ) from None


def _sync(folder: Path) -> None:
    """Wait until the names in a directory have reached the disk."""
    if os.name == "nt":
        return  # Windows cannot open a directory for this.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
