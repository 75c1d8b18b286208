"""The entry: every command in one application, and what becomes of an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

# The order of these imports is the order of the commands in `gcfcp --help`.
from gcfcp.cli import console, site  # isort: split

from gcfcp.cli import server
from gcfcp.cli.options import Force, Json, app, typed
from gcfcp.errors import GCFCPError

__all__ = ["app", "demo", "main", "run", "server", "site"]


@app.command(epilog="Example: gcfcp demo")
def demo(
    directory: Annotated[
        str | None,
        typer.Option("-o", "--output", help="Where the files go; a fresh ./gcfcp-demo."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run a whole federated calibration on built-in data, ending in a report to look at."""
    from gcfcp.cli import demo as story

    result = story.run(directory, force=force, quiet=as_json)
    if as_json:
        console.show_json(result)


def run(arguments: Sequence[str]) -> None:
    """One command, in this process; what is wrong is an exception."""
    token = typed.set(tuple(arguments))
    try:
        app(args=list(arguments), standalone_mode=False)
    finally:
        typed.reset(token)


def main() -> None:
    """The console command."""
    typed.set(tuple(sys.argv[1:]))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # no name is a reason to fail
    try:
        with console.warnings_as_notes():
            try:
                app()
            finally:
                sys.stdout.flush()  # what cannot be written is said here, not while Python ends
    except GCFCPError as error:
        console.fail(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # the reader has left, and knows
            console.fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
        sys.exit(1)
