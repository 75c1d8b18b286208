"""A round on disk: every summary is written as it arrives, so that nothing has to be asked twice.

    DIRECTORY/
      round.json         what was asked; a directory holds the answers to one question only
      received.jsonl     one line for each summary: client, node, time, size, SHA-256
      summaries/         NAME.gcfcp, exactly the bytes that `gcfcp summarize` would have written
      predictor.json, report.html, record.json      at the end

Files are written whole or not at all, and the journal line after its file. A file whose bytes are
not those in the journal, or that no longer passes the checks of a new reply, is not used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from gcfcp import codec
from gcfcp.errors import GCFCPError
from gcfcp.flower.exchange import Node, Outcome
from gcfcp.flower.protocol import Question

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def file_name(client: str) -> str:
    """A file for a client, whatever its name: no path, no clash where case does not count."""
    if _PLAIN.fullmatch(client) and not _RESERVED.fullmatch(client):
        return f"{client}.gcfcp"
    return f"client-{hashlib.sha256(client.encode()).hexdigest()[:32]}.gcfcp"


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
        path = self.directory / "round.json"
        if not path.exists():
            write_json(path, question)
            return
        try:
            before = json.loads(codec.read(path))
            changed = [key for key, value in question.items() if before[key] != value]
        except (ValueError, KeyError, TypeError):
            raise GCFCPError(f"{path} is damaged: remove {self.directory} or use another") from None
        if changed:
            key = changed[0]
            raise GCFCPError(
                f"{self.directory} holds a round with {key} {before[key]!r:.60}, not "
                f"{question[key]!r:.60}: use another directory for another question"
            )

    def keep(self, client: str, data: bytes, outcome: Outcome) -> None:
        """Write a summary, then its line in the journal.

        Neither waits for the disk, which would cost some milliseconds for each of perhaps 100,000
        clients: what a power failure loses fails its checksum, and is asked for again.
        """
        codec.write(self.summaries / file_name(client), data, sync=False)
        line = {
            "client": client,
            "node": outcome.node.number if outcome.node else None,
            "key": outcome.node.key if outcome.node else None,
            "asked": outcome.asked,
            "received": outcome.received,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        try:
            if self._lines_out is None:
                # A crash may have cut the last line short: begin on a new one.
                self._lines_out = open(self._journal, "a", encoding="utf-8")  # noqa: SIM115
                self._lines_out.write("\n" * _is_cut_short(self._journal))
            self._lines_out.write(json.dumps(line) + "\n")
            self._lines_out.flush()
        except OSError as error:
            raise GCFCPError(f"cannot write {self._journal}: {error.strerror}") from None

    def close(self) -> None:
        if self._lines_out is not None:
            self._lines_out.close()
            self._lines_out = None

    def withdraw(self, client: str) -> None:
        """Forget a client's summary."""
        (self.summaries / file_name(client)).unlink(missing_ok=True)

    def kept(self) -> Iterator[tuple[Outcome, bytes]]:
        """What earlier runs left: the last line of every client whose file is still its own."""
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
        if not self._journal.exists():
            return
        for line in codec.read(self._journal).splitlines():
            try:
                entry = json.loads(line)
                node = None if entry["node"] is None else Node(int(entry["node"]), entry["key"])
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
                continue  # cut short by a crash: its client is asked again


def _is_cut_short(journal: Path) -> bool:
    with open(journal, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def write_json(path: Path, value: Any) -> None:
    codec.write(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())
