"""The files of a round that others want to have, for carriers that hand them on."""

from __future__ import annotations

from pathlib import Path

from gcfcp import codec

RECORD_FILE = "record.json"
_OTHERS = ("predictor.json", "report.html")


def results_of(directory: Path, problem: str | None) -> dict[str, bytes]:
    """The files that the last run has left, by name.

    The directory may hold files of an earlier run. If the last one has failed, its record alone
    counts, and only if it tells of this very problem.

    problem: Why the last run has failed, or None.
    """
    names = (RECORD_FILE,) if problem else (RECORD_FILE, *_OTHERS)
    found = {name: codec.read(directory / name) for name in names if (directory / name).exists()}
    if problem and found and codec.from_json(found[RECORD_FILE]).get("problem") != problem:
        return {}
    return found
