"""What commands are given: files to read or to write, mixtures and seeds.

The file name "-" stands for standard input or output. All files of one kind are read before
anything is done with them, and everything that is wrong with them is said at once, with the names
of the files. Results are written completely or not at all.
"""

from __future__ import annotations

import glob
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gcfcp.checks import counted
from gcfcp.cli import console, waiting
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from numpy.random import Generator

    from gcfcp.audit import Audit
    from gcfcp.calibration import Mixture
    from gcfcp.prediction import Predictor
    from gcfcp.summary import ClientSummary


LEFT_OUT = 3
"""The exit code if a result was made, but files were left out of it."""


def name_of(path: str, stream: str = "input") -> str:
    """What messages call a file: its path, or "standard input" or "standard output"."""
    return f"standard {stream}" if path == "-" else path


def read(path: str) -> bytes:
    """The bytes of a file, or of standard input."""
    from gcfcp import codec

    return sys.stdin.buffer.read() if path == "-" else codec.read(path)


def check_output(path: str, force: bool, as_json: bool = False) -> None:
    """Raise a GCFCPError if the result could not be written; called before any work is done.

    Parts of files that killed commands have left beside the output are removed.
    """
    from gcfcp import files

    if path == "-":
        if as_json:
            raise GCFCPError(
                "--json and -o - would both write to standard output: give -o the name of a file"
            )
        if sys.stdout.isatty():
            waiting.off()  # The result appears where the line would be.
        return
    if os.path.isdir(path):
        raise GCFCPError(f"{path} is a directory: give the name of a file")
    if not force and os.path.lexists(path):
        raise files.exists(path)
    if not os.path.isdir(Path(path).parent):
        raise GCFCPError(f"cannot write {path}: its directory does not exist")
    files.sweep(Path(path).parent)


def write(path: str, data: bytes, force: bool) -> None:
    """Write a result to a file, completely or not at all, or to standard output.

    Without `force`, the file must not exist even if another process has just made it.
    """
    from gcfcp import files

    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    files.write(path, data, overwrite=force)


def load_predictor(path: str) -> Predictor:
    """The predictor in a file."""
    from gcfcp.prediction import Predictor

    return Predictor.from_json(read(path), name_of(path))


def _load_all(paths: Sequence[str], load: Any) -> list[Any]:
    """Load all files; if some cannot be loaded, one line for each of them says why."""
    loaded, wrong = _loaded(paths, load)
    _fail_all(wrong, len(paths))
    return [one for _, one in loaded]


def _loaded(paths: Sequence[str], load: Any) -> tuple[list[tuple[str, Any]], list[str]]:
    """Each file that can be loaded, with its path, and one line for each that cannot."""
    loaded, wrong = [], []
    with console.progress("reading", "files") as advance:
        for done, path in enumerate(paths, start=1):
            try:
                loaded.append((path, load(read(path), name_of(path))))
            except GCFCPError as error:
                wrong.append(str(error))
            if advance is not None:
                advance(done, len(paths))
    return loaded, wrong


def _fail_all(wrong: Sequence[str], total: int) -> None:
    """Raise a GCFCPError if anything is wrong; several messages are printed before it."""
    if len(wrong) > 1:
        for line in wrong:
            console.fail(line)
        raise GCFCPError(f"{len(wrong)} of {total} files cannot be used")
    if wrong:
        raise GCFCPError(wrong[0])


@dataclass(frozen=True)
class Gathered:
    """The summaries of a command, and what was left out of them."""

    summaries: list[ClientSummary]
    aggregates: dict[str, int | None]  # The aggregates that are allowed.
    left_out: tuple[str, ...] = ()  # The files that were left out.

    def mixture(self, text: str) -> Mixture:
        """The mixture that the user wrote, among the clients that are not left out."""
        from gcfcp.calibration import mixture

        given = mixture_of(text)
        if not self.left_out or isinstance(given, str):
            return given
        console.note("the weights of the mixture are those of the clients that are left")
        return mixture.among(given, {s.client for s in self.summaries}, "are left")

    def end(self) -> None:
        """End with the exit code that says whether files were left out."""
        if self.left_out:
            files = counted(len(self.left_out), "file was", "files were")
            console.note(f"{files} left out; the exit code is {LEFT_OUT}")
            raise typer.Exit(LEFT_OUT)


def load_summaries(
    paths: Sequence[str],
    known_keys: str | None = None,
    aggregates: Sequence[str] | None = None,
    round: str | None = None,
    skip_bad: bool = False,
) -> Gathered:
    """The summaries in these files, which must fit together.

    known_keys: A file with the public keys of the clients. If it is given, every summary must be
    signed with the key of its client.
    aggregates: The aggregates that are allowed, as the user wrote them.
    round: The round that they must be of.
    skip_bad: Whether files that are refused are named and left out, and no error.
    """
    from gcfcp.calibration import SUMMARIES, Admission, out_of_range, parse_aggregates, set_aside
    from gcfcp.summary import ClientSummary

    verified = _verifier(known_keys)
    allowed = parse_aggregates(aggregates or ())
    admission = Admission.of(allowed, round)

    def load(data: bytes, name: str) -> ClientSummary:
        summary = ClientSummary.from_bytes(data, name)
        verified(data, summary.client, name)
        if refused := admission.refusal(summary, name) or out_of_range(summary, name):
            raise GCFCPError(refused)
        return summary

    if not skip_bad:
        found: list[ClientSummary] = _load_all(paths, load)
        _check_alike(paths, found, SUMMARIES)
        return Gathered(found, allowed)
    good, bad = _loaded(paths, load)
    used, lines = set_aside([one for _, one in good], [name_of(path) for path, _ in good])
    for line in (*bad, *lines):
        console.note(f"left out: {line}")
    kept = [good[i] for i in used]
    if not kept:
        raise GCFCPError(f"none of {counted(len(paths), 'file')} can be used")
    _note_repeated(kept)
    names = {path for path, _ in kept}
    return Gathered([s for _, s in kept], allowed, tuple(p for p in paths if p not in names))


def load_parts(paths: Sequence[str]) -> list[ClientSummary]:
    """The summaries in these files, each of which is given once."""
    from gcfcp.summary import ClientSummary

    known: dict[str, int] = {}
    for i, path in enumerate(paths):
        first = known.setdefault(os.path.realpath(path), i)
        if first != i:
            raise GCFCPError(f"{paths[first]} and {path} are the same file: give each part once")
    found: list[ClientSummary] = _load_all(paths, ClientSummary.from_bytes)
    return found


def load_audits(paths: Sequence[str], known_keys: str | None = None) -> list[Audit]:
    """The audits in these files, which must fit together.

    known_keys: A file with the public keys of the clients. If it is given, every audit must be
    signed with the key of its client.
    """
    from gcfcp.audit import AUDITS, Audit

    verified = _verifier(known_keys)

    def load(data: bytes, name: str) -> Audit:
        audit = Audit.from_bytes(data, name)
        verified(data, audit.client, name)
        return audit

    found: list[Audit] = _load_all(paths, load)
    _check_alike(paths, found, AUDITS)
    return found


def verify(paths: Sequence[str], known_keys: str) -> list[tuple[str, str, Any]]:
    """The path, the kind and the content of each file, if all are signed by their clients."""
    from gcfcp.audit import Audit
    from gcfcp.summary import ClientSummary

    verified = _verifier(known_keys)

    def load(data: bytes, name: str) -> tuple[str, str, Any]:
        audit = data[:6] == b"GCFCPA"
        read = Audit.from_bytes if audit else ClientSummary.from_bytes
        one: Any = read(data, name)
        verified(data, one.client, name)
        return name, "audit" if audit else "summary", one

    return _load_all(paths, load)


def _verifier(known_keys: str | None) -> Callable[[bytes, str, str], None]:
    """A function that raises a GCFCPError unless a file is signed by its client.

    It gets the bytes of the file, the client that it names, and the name of the file. Without a
    file of known keys it accepts everything.
    """
    from gcfcp.summary import signatures

    if known_keys is None:
        return lambda data, client, name: None
    known = signatures.load_known(known_keys)

    def verified(data: bytes, client: str, name: str) -> None:
        signatures.verify(data, signatures.read_signature(name), client, known, name)

    return verified


def _check_alike(paths: Sequence[str], found: Sequence[Any], kind: Any) -> None:
    """Refuse files that do not fit together, and name all of them.

    The library would stop at the first misfit and name the client, not the file.
    """
    from gcfcp.calibration import misfits

    _fail_all(list(misfits(found, [name_of(path) for path in paths], kind)), len(paths))
    _note_repeated(zip(paths, found, strict=True))


def _note_repeated(given: Iterable[tuple[str, Any]]) -> None:
    """Say which files repeat another one, because such a file is counted once."""
    owner: dict[str, str] = {}
    for path, one in given:
        first = owner.get(one.client)
        if first == path:
            console.note(f"{path} is given twice, and is counted once")
        elif first is not None:
            console.note(f"{path} holds the same as {first}, so it is counted once")
        owner.setdefault(one.client, path)


def baselines(given: Sequence[str]) -> dict[str, list[str]]:
    """The files of each baseline by its name, from options of the form NAME=FILE."""
    found: dict[str, list[str]] = {}
    for text in given:
        name, _, path = text.partition("=")
        if not name or not path:
            raise GCFCPError(f"--baseline {text!r:.60} does not have the form NAME=FILE")
        # The shell does not expand a pattern such as *.audit after an equals sign.
        several = [] if os.path.exists(path) else sorted(glob.glob(path))
        found.setdefault(name, []).extend(several or [path])
    return found


def mixture_of(text: str) -> Mixture:
    """A mixture as a user writes it: uniform, proportional, a=0.5,b=0.5, JSON, or a .json file."""
    from gcfcp.calibration import mixture

    return mixture.parse(text, read)


def generator_of(score: Any, seed: int | None) -> Generator | None:
    """A generator for a randomised score, and None for any other score.

    If no seed is given, one is drawn and printed, so that the result can be repeated.
    """
    return seeded(seed, "scores") if getattr(score, "randomized", False) else None


def seeded(seed: int | None, what: str) -> Generator:
    """A generator with this seed, or with one that is drawn and printed.

    what: What it draws. The same seed draws different numbers for scores and for other things.
    """
    import numpy as np

    if seed is None:
        seed = secrets.randbits(32)
        console.note(f"seed {seed} was drawn for {what}; --seed {seed} repeats this result")
    return np.random.default_rng(seed if what == "scores" else [seed, 1])
