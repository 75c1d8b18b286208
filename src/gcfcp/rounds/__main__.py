"""`python -m gcfcp.rounds SITE.toml` says what the site in a file answers, or what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gcfcp.errors import GCFCPError
from gcfcp.rounds import Question, Records, Site, read_site

USAGE = "usage: python -m gcfcp.rounds SITE.toml"


def main(arguments: list[str]) -> int:
    """Check the file of a site; the exit code is 0, 1 for an error, and 2 for wrong usage.

    The data are opened, as every answer does, and none is summarised.
    """
    if len(arguments) != 1:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        site = read_site(arguments[0])
        marks = [_line(what, records) for what, records in _all_records(site)]
    except GCFCPError as error:
        print(f"gcfcp: {error}", file=sys.stderr)
        return 1
    for question in _agreed(site):
        print(f"{site.client} answers this question:")
        for key, value in question.to_json().items():
            print(f"  {key}: {value}")
    print(*marks, f"ledger: {site.ledger.directory}", sep="\n")
    return 0


def _agreed(site: Site) -> Sequence[Question]:
    """The questions that a site has agreed to."""
    agreed = site.policy.agreed
    return (agreed,) if isinstance(agreed, Question) else agreed


def _all_records(site: Site) -> list[tuple[str, Records]]:
    """The records of a site, with what they are for."""
    audit = [] if site.audit is None else [("audit", site.audit)]
    return [("calibration", site.calibration), *audit]


def _line(what: str, records: Records) -> str:
    """The name and the fingerprint of records."""
    return f"{what}: data set {records.dataset!r}, SHA-256 {records.mark()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
