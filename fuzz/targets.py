"""What strangers can send. Each kind is a function of bytes that must return or raise GCFCPError.

A target decodes its input and, if that succeeds, uses the value as a server or a reader would.
`check` runs a target. It returns True if the input was accepted, and False if it was refused with a
message of one line. Everything else is a defect and ends in an exception: any other error, NaN
among thresholds, a value that is another one after it was written and read, or more than a second
of processor time.

A summary and an audit end in a checksum, which would be wrong after any mutation. Their targets
therefore take only the content, `flags header 0xff body`, and put the container around it. (The
byte 0xff cannot occur in UTF-8.) The flags repair other fields, so that a mutation of one field is
not refused because of another:

    flags & 1   write the header in its canonical form
    flags & 2   make the groups' fingerprint match
    flags & 4   make the stated sizes match the body
    flags & 8   make n match the counts

A message of a secure sum is bound to its sum and roster, which are new in each process. With flags
& 2 the header names those of `_sums`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import struct
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import gcfcp
from gcfcp import codec, secure, tables
from gcfcp.audit import Audit
from gcfcp.cli import printing
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.summary import Making

SECONDS = 1.0
"""The most processor time that one input may take."""

LONGEST_MESSAGE = 2000  # An error message may have this many characters.
_NEWER = {b"S": ("absent", "by", "round", "grid"), b"A": ("share", "round", "sets")}
"""By the kind of a container, a field that each format version from 2 on has and none before."""

# The flags of the module's docstring.
CANONICAL, FINGERPRINT, SIZES, TOTAL = 1, 2, 4, 8


class Defect(AssertionError):  # noqa: N818 (it is what the fuzzer looks for, not its failure)
    """An input had an outcome that must not be."""


def check(name: str, data: bytes) -> bool:
    """Run one target on one input, and return whether the input was accepted."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        try:
            TARGETS[name](data)
            accepted = True
        except GCFCPError as error:
            message = str(error)
            if not message.strip() or len(message) > LONGEST_MESSAGE:
                raise Defect(f"a message of {len(message)} characters: {message:.200}") from error
            accepted = False
    spent = time.process_time() - start
    if spent > SECONDS:
        raise Defect(f"{name}: {len(data)} bytes took {spent:.2f} s")
    return accepted


# --- containers --------------------------------------------------------------------------------


def split(data: bytes) -> tuple[int, bytes, bytes]:
    """Flags, header and body of a target's input."""
    flags, content = (data[0], data[1:]) if data else (0, b"")
    header, _, body = content.partition(b"\xff")
    return flags, header, body


def join(flags: int, header: bytes, body: bytes) -> bytes:
    """The target's input with these flags, header and body."""
    return bytes([flags]) + header + b"\xff" + body


def container(kind: bytes, data: bytes) -> bytes:
    """The file for a target's input: its content in a container of this kind."""
    flags, header, body = split(data)
    version = 1
    with contextlib.suppress(*codec.MALFORMED):
        fields = json.loads(header)
        if isinstance(fields, dict):
            newer = _NEWER.get(kind, ())
            version = 1 + max((i for i, key in enumerate(newer, 1) if key in fields), default=0)
            header = _mended(flags, fields, len(body), body)
    whole = struct.pack("<5scHI", b"GCFCP", kind, version, len(header)) + header + body
    return whole + hashlib.sha256(whole).digest()


def _mended(flags: int, fields: dict[str, Any], size: int, body: bytes) -> bytes:
    """The header with the fields repaired that the flags name; `size` is that of the body."""
    if flags & FINGERPRINT:
        sites = fields.get("sites", [])
        others = fields["groups"][: len(fields["groups"]) - len(sites)]
        groups = gcfcp.Groups(others, fields["predicates"], sites=sites)
        fields["fingerprint"] = groups.fingerprint
    sizes = (fields.get("atoms"), fields.get("width"), fields.get("centroids"))
    if not all(type(k) is int and 0 <= k < 2**32 for k in sizes):
        flags &= ~(SIZES | TOTAL)
    if flags & SIZES:
        key = -(-len(fields["groups"]) // 8)
        a, w = fields["atoms"], fields["width"]
        fields["centroids"] = (size - a * (key + 2 * w)) // (w + 8)
    if flags & TOTAL:
        key = -(-len(fields["groups"]) // 8)
        a, w, m = fields["atoms"], fields["width"], fields["centroids"]
        counts = body[a * (key + 2 * w) : a * (key + 2 * w) + m * w]
        described = sum(
            int.from_bytes(counts[i : i + w], "little") for i in range(0, len(counts), w)
        )
        if "by" not in fields:
            fields["n"] = described + fields["suppressed"] + fields["uncovered"]
    separators = (",", ":") if flags & CANONICAL else (", ", ": ")
    return json.dumps(
        fields, sort_keys=bool(flags & CANONICAL), separators=separators, ensure_ascii=False
    ).encode()


def content(whole: bytes, flags: int = CANONICAL | FINGERPRINT | TOTAL) -> bytes:
    """The target's input for a file: the reverse of `container`."""
    (length,) = struct.unpack("<I", whole[8:12])
    return join(flags, whole[12 : 12 + length], whole[12 + length : -32])


# --- targets -----------------------------------------------------------------------------------


def raw(data: bytes) -> None:
    """A file of any kind with its checksum, as `gcfcp inspect` takes it."""
    errors = []
    for decode in (gcfcp.ClientSummary.from_bytes, Audit.from_bytes, gcfcp.Predictor.from_json):
        try:
            decode(data)
        except GCFCPError as error:
            errors.append(error)
    if len(errors) == 3:
        raise errors[0]


def summary(data: bytes) -> None:
    """A client's summary. It is decoded, shown, and used for a plan, a merge and a calibration."""
    whole = container(b"S", data)
    found = gcfcp.ClientSummary.from_bytes(whole)
    if found.to_bytes() != whole:
        raise Defect("a summary is not written as it was read")
    if _some(data, 8):
        _show(lambda: printing.show_summary(found, False))
        use_summary(found, data[0])


def use_summary(found: gcfcp.ClientSummary, choice: int = 0) -> None:
    """Do all that a server does with a summary. Each step must succeed or raise GCFCPError.

    The bits of `choice` choose the rule, the merge, alpha and delta.
    """
    rule = "max" if choice & 16 else None
    confidence = 0.9 if choice & 16 and choice & 1 else None
    way = "recompress" if choice & 32 else "pool"
    alpha = 0.1 if choice & 64 else 0.37
    attempts = (
        lambda: gcfcp.plan([found], alpha, merge=way, rule=rule),
        lambda: gcfcp.merge([found], "region", 10 if choice & 128 else None),
        lambda: _calibrated(found, alpha, way, rule, confidence),
    )
    errors = []
    for attempt in attempts:
        try:
            attempt()
        except GCFCPError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _calibrated(
    found: gcfcp.ClientSummary, alpha: float, way: str, rule: str | None, confidence: float | None
) -> None:
    """Calibrate, save and load; the thresholds must be numbers and must not change."""
    calibration = gcfcp.calibrate([found], alpha, merge=way, rule=rule, confidence=confidence)
    thresholds = calibration.thresholds(found.membership)
    if np.isnan(thresholds).any():
        raise Defect("a threshold is NaN")
    predictor = gcfcp.Predictor(found.score, calibration)
    text = predictor.to_json()
    again = gcfcp.Predictor.from_json(text)
    if not np.array_equal(again.thresholds(found.membership), thresholds):
        raise Defect("a predictor that was saved and loaded has other thresholds")


def audit(data: bytes) -> None:
    """An audit. It is decoded, shown and merged."""
    whole = container(b"A", data)
    found = Audit.from_bytes(whole)
    if Audit.from_bytes(found.to_bytes()) != found:
        raise Defect("an audit that was written and read is another one")
    if not _some(data, 4):
        return
    _show(lambda: printing.show_audit(found, False))
    report = gcfcp.merge_audits([found], alpha=0.1 if found.alpha is None else None)
    for group in report.groups:
        if not 0 <= group.low <= group.high <= 1:
            raise Defect(f"an interval is [{group.low}, {group.high}]")
    _show(lambda: printing.show_report(report))


def predictor(data: bytes) -> None:
    """A predictor's file. It is decoded, shown, used to predict, and sometimes made into a page."""
    found = gcfcp.Predictor.from_json(data)
    if _some(data, 4):
        _show(lambda: printing.show_predictor(found, data, False))
        _show(lambda: printing.show_predictor(found, data, True))
    coreset = found.table.coreset is not None
    again = gcfcp.Predictor.from_json(found.to_json(coreset=coreset))
    rows = np.vstack([found.table.membership, np.ones((1, len(found.groups)), dtype=bool)])
    thresholds = found.thresholds(rows)
    if np.isnan(thresholds).any() or not np.array_equal(again.thresholds(rows), thresholds):
        raise Defect("thresholds are NaN, or other ones after saving and loading")
    if coreset and _some(data, 4):
        _public(found)
    if isinstance(found.score, str):
        found.predict_set(np.linspace(0, 1, 2 * len(rows)).reshape(-1, 2), rows)
    if _some(data, 32):
        from gcfcp.report import render

        render(found, date="today")


def _public(found: gcfcp.Predictor) -> None:
    """Save without the coreset: listed thresholds are the same, and nothing else is told."""
    public = gcfcp.Predictor.from_json(found.to_json())
    rows = public.table.membership
    if not np.array_equal(public.thresholds(rows), found.thresholds(rows)):
        raise Defect("without the coreset, thresholds are other ones")
    told = public.disclosure
    if told.pooled_values or told.counted_cells or told.counted_groups or told.detailed_clients:
        raise Defect(f"without the coreset, the file tells {told}")
    if public.to_json() != found.to_json():
        raise Defect("a file without the coreset is another one after it was read")


def shape(data: bytes) -> None:
    """A shape's file. It is decoded, written again, shown, and used for thresholds."""
    found = gcfcp.Shape.from_json(data)
    if gcfcp.Shape.from_json(found.to_json()) != found:
        raise Defect("a shape that was written and read is another one")
    _show(lambda: printing.show_shape(found, data, False))
    rows = np.eye(len(found.groups), dtype=bool)
    levels = np.linspace(-1, 1, len(rows))
    thresholds = found.raised(levels, rows)
    if not (thresholds - found.of_atoms(rows) <= levels).all():
        raise Defect("a threshold admits a residual above its level")


def grid(data: bytes) -> None:
    """A grid's file. It is decoded, written again, and used to round scores up."""
    found = gcfcp.Grid.from_json(data)
    again = gcfcp.Grid.from_json(found.to_json())
    if again != found or again.values != found.values:
        raise Defect("a grid that was written and read is another one")
    scores = np.array([-1e308, -1.0, 0.0, 5e-324, 0.5, 1e308, np.inf])
    up = found.up(scores)
    if (up < scores).any() or not np.array_equal(found.up(up), up):
        raise Defect("a score was rounded down, or twice")


@functools.cache
def _sums() -> dict[str, Any]:
    """Three sites in an unsigned secure sum of four numbers, and their states after each step."""
    first = secure.begin(b"fuzz", 4, signed=False, round="0" * 32)
    me = {name: secure.Identity(name) for name in ("a", "b", "c")}
    states: dict[str, list[secure.State]] = {name: [] for name in me}
    sent: dict[str, dict[str, bytes]] = {}

    def step(name: str, made: tuple[secure.State, bytes]) -> bytes:
        states[name].append(made[0])
        return made[1]

    sent["keys"] = {n: step(n, secure.advertise(first.to_bytes(), me[n])) for n in me}
    keys = [secure.read_keys(first, n, data) for n, data in sent["keys"].items()]
    roster = secure.make_roster(first, keys)
    whole, rules = roster.to_bytes(), secure.Rules()
    sent["shares"] = {n: step(n, secure.share(states[n][0], whole, me[n], rules)) for n in me}
    shares = {n: secure.read_shares(roster, n, data) for n, data in sent["shares"].items()}
    sent["delivery"] = secure.deliveries(roster, shares)
    sent["masked"] = {
        n: step(n, secure.mask(states[n][1], sent["delivery"][n], lambda: np.arange(4))) for n in me
    }
    division = secure.divide(roster, list(me), list(me))
    sent["reveal"] = dict.fromkeys(me, secure.ask_reveal(roster, division))
    sent["revealed"] = {
        n: step(n, secure.reveal(states[n][2], sent["reveal"][n], me[n])) for n in me
    }
    sent["begin"], sent["roster"] = {"a": first.to_bytes()}, {"a": whole}
    found = {"first": first, "me": me["a"], "roster": roster, "division": division}
    return found | {"states": states["a"], "sent": sent}


def sums(data: bytes) -> None:
    """A message of a secure sum, at a site for the server's messages, or at the server."""
    here, (flags, header, body) = _sums(), split(data)
    first, roster, states = here["first"], here["roster"], here["states"]
    with contextlib.suppress(*codec.MALFORMED):
        fields = json.loads(header)
        if isinstance(fields, dict):
            for key, value in (("sum", first.fingerprint), ("roster", roster.fingerprint)):
                if flags & FINGERPRINT and key in fields:
                    fields[key] = value
            separators = (",", ":") if flags & CANONICAL else (", ", ": ")
            canonical = bool(flags & CANONICAL)
            header = json.dumps(
                fields, sort_keys=canonical, separators=separators, ensure_ascii=False
            ).encode()
    whole = struct.pack("<5scHI", b"GCFCP", b"U", 1, len(header)) + header + body
    whole += hashlib.sha256(whole).digest()
    message, _ = secure.addressed(whole)
    steps: dict[str, Callable[[], Any]] = {
        "begin": lambda: secure.advertise(whole, here["me"]),
        "keys": lambda: secure.read_keys(first, "a", whole),
        "roster": lambda: secure.share(states[0], whole, here["me"], secure.Rules()),
        "shares": lambda: secure.read_shares(roster, "a", whole),
        "delivery": lambda: secure.mask(states[1], whole, lambda: np.arange(4)),
        "masked": lambda: secure.read_masked(roster, "a", whole),
        "reveal": lambda: secure.reveal(states[2], whole, here["me"]),
        "revealed": lambda: secure.read_revealed(roster, here["division"], "a", whole),
    }
    if message not in steps:
        raise GCFCPError("no site and no server takes this message")
    made = steps[message]()
    state = made[0] if isinstance(made, tuple) else None
    if state is not None and secure.State.from_bytes(state.to_bytes()) != state:
        raise Defect("a state that was written and read is another one")
    if message == "begin" and secure.Begin.from_bytes(whole).to_bytes() != whole:
        raise Defect("a beginning is not written as it was read")


_FRAME = {
    "age": [1.0, 64.0, 65.0, None, float("nan"), -1e308],
    "sex": ["F", "M", "", None, "<b>", "\x1b[31m"],
    "x": [0, 1, 2, 3, 4, 2**40],
    "b": [True, False, None, True, False, True],
    "score": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
}


def groups(data: bytes) -> None:
    """A groups file. It is read, written again, and applied to a small table."""
    import polars as pl

    with tempfile.NamedTemporaryFile(suffix=".toml", dir=_memory()) as file:
        file.write(data)
        file.flush()
        found = gcfcp.Groups.from_toml(file.name)
    if gcfcp.Groups.from_toml_text(found.to_toml()).fingerprint != found.fingerprint:
        raise Defect("a groups file that was written and read is another family")
    site = found.sites[0] if found.sites else None
    matrix = found.membership(pl.DataFrame(_FRAME, strict=False), site)
    if matrix.shape != (6, len(found)):
        raise Defect(f"membership of 6 rows has shape {matrix.shape}")


def table(data: bytes) -> None:
    """A CSV file with scores of any kind. It is summarised."""
    with tempfile.NamedTemporaryFile(suffix=".csv", dir=_memory()) as file:
        file.write(data)
        file.flush()
        with tables.open_table(file.name) as opened:
            family = gcfcp.Groups({"all": "TRUE", "old": "age >= 65", "f": "sex = 'F'"})
            by = tables.scoring(opened)
            (found,), _ = tables.summarize_table(
                opened,
                by,
                Making(family, "a", score=by.score),
                missing="drop",
                rng=np.random.default_rng(0),
            )
    gcfcp.ClientSummary.from_bytes(found.to_bytes())


def _show(draw: Callable[[], None]) -> None:
    """Draw on a terminal that is a string. What is drawn must not contain control characters."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        draw()
    shown = out.getvalue()
    if any(not (c.isprintable() or c == "\n") for c in shown):
        raise Defect(f"control characters reach the terminal: {shown!r:.200}")


def _some(data: bytes, one_in: int) -> bool:
    """Whether this input is one of those (one in `one_in`) on which costly uses are tried."""
    return hashlib.sha256(data).digest()[0] % one_in == 0


def _memory() -> str | None:
    """A directory in memory for temporary files, or None if there is none."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


TARGETS: dict[str, Callable[[bytes], None]] = {
    "raw": raw,
    "summary": summary,
    "audit": audit,
    "predictor": predictor,
    "shape": shape,
    "grid": grid,
    "groups": groups,
    "table": table,
    "sums": sums,
}
