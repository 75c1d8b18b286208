"""A round on disk: every summary is written when it arrives, so that nobody is asked twice.

    DIRECTORY/
      round.json         The question. A directory holds the answers to one question only.
      received.jsonl     The journal: one line for each summary (client, node, time, size, SHA-256).
      summaries/         NAME.gcfcp, exactly the bytes that `gcfcp summarize` would have written.
      predictor.json, report.html, record.json      These are written at the end.

Files are written completely or not at all. The line in the journal is written after its file. A
file is not used if its bytes are not those in the journal, or if it would not pass the checks of a
new reply.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from gcfcp import codec
from gcfcp.carriers.carrier import Node
from gcfcp.carriers.exchange import Outcome
from gcfcp.errors import GCFCPError
from gcfcp.rounds import Question, file_stem


def file_name(client: str) -> str:
    """The name of a client's file, in which its own name stands if that is plain."""
    return f"{file_stem('client', client)}.gcfcp"


class Store:
    """The directory of one round."""

    def __init__(self, directory: str | os.PathLike[str], question: Question) -> None:
        self.directory = Path(directory)
        self.summaries = self.directory / "summaries"
        self._journal = self.directory / "received.jsonl"
        self._lines_out: TextIO | None = None
        try:
            self.summaries.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise GCFCPError(f"cannot make {self.summaries}: {error.strerror}") from None
        self._claim(question.to_json())

    def _claim(self, question: dict[str, Any]) -> None:
        """Write the question to the directory, or check that it is the one that is there."""
        path = self.directory / "round.json"
        if not path.exists():
            write_json(path, question)
            return
        try:
            before = json.loads(codec.read(path))
            changed = [key for key, value in question.items() if before[key] != value]
        except (ValueError, KeyError, TypeError):
            raise GCFCPError(
                f"{path} is damaged: remove {self.directory}, or use another directory"
            ) from None
        if changed:
            key = changed[0]
            raise GCFCPError(
                f"{self.directory} holds a round with {key} {before[key]!r:.60}, but "
                f"{question[key]!r:.60} is asked for now: use another directory for this question"
            )

    def keep(self, client: str, data: bytes, outcome: Outcome) -> None:
        """Write a summary, then its line in the journal.

        Neither waits until the disk has written it, which would cost some milliseconds for each of
        perhaps 100,000 clients. What a power failure damages does not match its checksum in the
        journal, so it is asked for again.
        """
        codec.write(self.summaries / file_name(client), data, sync=False)
        line = {
            "client": client,
            "node": outcome.node.id if outcome.node else None,
            "key": outcome.node.key if outcome.node else None,
            "asked": outcome.asked,
            "received": outcome.received,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        try:
            if self._lines_out is None:
                # A crash may have cut the last line short, so a new line is begun.
                self._lines_out = open(self._journal, "a", encoding="utf-8")  # noqa: SIM115
                self._lines_out.write("\n" * _is_cut_short(self._journal))
            self._lines_out.write(json.dumps(line) + "\n")
            self._lines_out.flush()
        except OSError as error:
            raise GCFCPError(f"cannot write {self._journal}: {error.strerror}") from None

    def close(self) -> None:
        """Close the journal."""
        if self._lines_out is not None:
            self._lines_out.close()
            self._lines_out = None

    def withdraw(self, client: str) -> None:
        """Delete the summary of a client."""
        (self.summaries / file_name(client)).unlink(missing_ok=True)

    def kept(self) -> Iterator[tuple[Outcome, bytes]]:
        """The summaries of earlier runs, each with its outcome.

        The last line of a client in the journal counts, and only if the file matches its SHA-256.
        """
        last: dict[str, Outcome] = {}
        for outcome in self._lines():
            last[str(outcome.client)] = outcome
        for client, outcome in sorted(last.items()):
            try:
                data = codec.read(self.summaries / file_name(client))
            except GCFCPError:
                continue
            if hashlib.sha256(data).hexdigest() == outcome.sha256:
                yield outcome, data

    def _lines(self) -> Iterator[Outcome]:
        """The lines of the journal."""
        if not self._journal.exists():
            return
        for line in codec.read(self._journal).splitlines():
            try:
                entry = json.loads(line)
                node = None if entry["node"] is None else Node(str(entry["node"]), entry["key"])
                yield Outcome(
                    client=str(entry["client"]),
                    node=node,
                    code=None,
                    size=int(entry["bytes"]),
                    sha256=str(entry["sha256"]),
                    asked=entry["asked"],
                    received=entry["received"],
                    kept=True,
                )
            except (ValueError, KeyError, TypeError):
                continue  # A crash has cut this line short, and its client is asked again.


def _is_cut_short(journal: Path) -> bool:
    """Whether the last line of the journal has no end."""
    with open(journal, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def write_json(path: Path, value: Any) -> None:
    """Write plain values to a JSON file, completely or not at all."""
    codec.write(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())
