"""`python -m gcfcp.flower app DIRECTORY` writes the ready app, for `flwr run DIRECTORY`."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from gcfcp import codec
from gcfcp.errors import GCFCPError

USAGE = "usage: python -m gcfcp.flower app DIRECTORY"


def main(arguments: list[str]) -> int:
    """Write the app directory, and return the exit code: 0, 1 for an error, 2 for wrong usage."""
    if len(arguments) != 2 or arguments[0] != "app":
        print(USAGE, file=sys.stderr)
        return 2
    target = Path(arguments[1]) / "pyproject.toml"
    try:
        if target.exists():
            raise GCFCPError(f"{target} exists: give the name of a new directory")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise GCFCPError(f"cannot make directory {target.parent}: {error.strerror}") from None
        codec.write(target, files("gcfcp.flower").joinpath("ready/pyproject.toml").read_bytes())
    except GCFCPError as error:
        print(f"gcfcp: {error}", file=sys.stderr)
        return 1
    print(
        f"{target} was written; change its defaults if needed, then: flwr run {target.parent} NAME"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
