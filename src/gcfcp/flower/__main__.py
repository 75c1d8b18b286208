"""What an operator runs: `python -m gcfcp.flower app DIRECTORY` and `... run DIRECTORY NAME`.

`app` writes the ready app. `run` starts a round of it and follows it to its end; see `run`.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from gcfcp import codec
from gcfcp.errors import GCFCPError
from gcfcp.flower.run import run

USAGE = """\
usage: python -m gcfcp.flower app DIRECTORY
       python -m gcfcp.flower run DIRECTORY NAME [-c CONFIG] [--start SECONDS]"""


def main(arguments: list[str]) -> int:
    """Do what is asked for, and return the exit code: 0, 1 for an error, 2 for wrong usage."""
    if arguments[:1] == ["run"]:
        return run(arguments[1:])
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
        f"{target} was written; change its defaults if needed, then: "
        f"python -m gcfcp.flower run {target.parent} NAME"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
