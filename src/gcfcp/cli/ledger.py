"""The command for the owner of records: what a site has told about them, and how often."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gcfcp.checks import counted
from gcfcp.cli import console
from gcfcp.cli.options import Json, app
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from gcfcp.rounds import Entry, Ledger


@app.command(epilog="Example: gcfcp ledger")
def ledger(
    directory: Annotated[
        str | None,
        typer.Argument(
            metavar="DIRECTORY",
            help="The ledger, as in the site's configuration; by default the directory that a site "
            "uses if its configuration names none.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List what this site has told over a network: to which question, about which records.

    Each entry is an answer that was kept. It is repeated whenever the same question is asked.
    """
    from gcfcp.rounds import Ledger, default_directory

    if not as_json:
        console.check_tables()
    found = Ledger(default_directory() if directory is None else Path(directory))
    if not found.directory.is_dir():
        raise GCFCPError(
            f"{found.directory} is not a ledger: give the directory that the site's configuration "
            "names as ledger, or none for the usual one"
        )
    values = ledger_values(found)
    if as_json:
        console.show_json(values)
        return
    kept = counted(len(values["entries"]), "answer is", "answers are")
    console.lines(f"{found.directory}: {kept} kept")
    if values["entries"]:
        console.table(
            ["data set", "answer", "to", "first", "last", "times", "bytes"],
            [
                [
                    entry["dataset"],
                    f"{entry['asked']} {entry['number']}",
                    _told(entry),
                    entry["time"],
                    entry["last"] or "never sent",
                    f"{entry['times']:,}",
                    f"{entry['bytes']:,}",
                ]
                for entry in values["entries"]
            ],
            left=5,
        )
    for dataset, epsilon in values["epsilon"].items():
        lost = f"epsilon {epsilon:g} in all"
        if math.isinf(epsilon):
            lost = "told without noise: no epsilon bounds it"
        console.lines(f"data set {dataset}: {lost}")
    for code, times in values["refused"].items():
        console.lines(f"refused with {code}: {times:,} times")


def ledger_values(ledger: Ledger) -> dict[str, Any]:
    """What a ledger holds, in plain values."""
    lines = ledger.journal()
    sent = Counter(_key(line) for line in lines if "code" not in line)
    last = {_key(line): line.get("time") for line in lines if "code" not in line}
    refused = Counter(str(line["code"]) for line in lines if "code" in line)
    from gcfcp.rounds import spent

    entries = ledger.entries()
    noisy = {e.asked.dataset for e in entries if e.asked.question.epsilon is not None}
    return {
        "directory": str(ledger.directory),
        "entries": [_entry_values(e, sent, last) for e in entries],
        # What all answers about a data set have lost together: infinite without noise.
        "epsilon": {
            dataset: spent(e for e in entries if e.asked.dataset == dataset)
            for dataset in sorted(noisy)
        },
        "refused": dict(sorted(refused.items())),
    }


def _key(line: dict[str, Any]) -> tuple[str, str, str]:
    """What tells an entry from others, in a line of the journal."""
    return str(line.get("dataset")), str(line.get("asked")), str(line.get("number"))


def _entry_values(entry: Entry, sent: Counter[Any], last: dict[Any, Any]) -> dict[str, Any]:
    """An entry in plain values, with how often and when it was last sent."""
    asked = entry.asked
    key = (asked.dataset, asked.kind, str(entry.number))
    return {
        **asked.header(),
        "number": entry.number,
        "time": entry.time,
        "last": last.get(key),
        "times": sent[key],
        "bytes": len(entry.answer),
        "sha256": entry.sha256,
        "library": entry.library,
    }


def _told(entry: dict[str, Any]) -> str:
    """What was asked, in a few words."""
    question = entry["question"]
    if entry["predictor"] is not None:
        return f"predictor {entry['predictor'][:8]}.., min_count {question['min_count']}"
    how = "on a grid"
    if question["delta"] is not None:
        how = f"delta {question['delta']:g}, {question['representative']}"
    if question.get("epsilon") is not None:
        how += f", epsilon {question['epsilon']:g}"
    if question.get("secure"):
        how += ", in a secure sum"
    return (
        f"score {question['score']}, {how}, min_count {question['min_count']}, by {question['by']}"
    )
