"""The entry point: all commands in one application, and how an error becomes one line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

import typer

# The order of these imports is the order of the commands in `gcfcp --help`.
from gcfcp.cli import console, site, waiting  # isort: split

from gcfcp.cli import ledger  # isort: split

from gcfcp.cli import server  # isort: split

from gcfcp.cli import explore
from gcfcp.cli.options import Force, Json, app, typed
from gcfcp.errors import GCFCPError

__all__ = ["app", "demo", "explore", "ledger", "main", "run", "server", "site"]


@app.command(epilog="Example: gcfcp demo")
def demo(
    directory: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="The directory for the files; by default a new directory ./gcfcp-demo.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run a whole federated calibration on built-in data.

    It ends with a report to look at, and prints the commands that do the same by hand.
    """
    from gcfcp.cli import demo as story

    result = story.run(directory, force=force, quiet=as_json)
    if as_json:
        console.show_json(result)


def run(arguments: Sequence[str]) -> None:
    """Run one command in this process; whatever goes wrong is raised as an exception."""
    token = typed.set(tuple(arguments))
    try:
        with waiting.line(_named(arguments)):
            app(args=list(arguments), standalone_mode=False)
    finally:
        typed.reset(token)


def _named(arguments: Sequence[str]) -> str:
    """What the line on the terminal calls a command."""
    return console.safe(" ".join(("gcfcp", *arguments[:1])))


def _end(number: int, _: FrameType | None) -> None:
    """End the command, so that files that are half written are removed on the way out."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    """Run the command that the user typed, and exit with its code."""
    typed.set(tuple(sys.argv[1:]))
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP.
        number = getattr(signal, name, None)
        # A command that was started with nohup goes on when its terminal is closed.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name with characters that the terminal cannot show is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        with waiting.line(_named(sys.argv[1:])), console.warnings_as_notes():
            try:
                app()
            finally:
                sys.stdout.flush()  # A full disk is noticed here, and not when Python exits.
    except GCFCPError as error:
        console.fail(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # Otherwise Python would complain once more when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # A reader that has left needs no message.
            console.fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
        sys.exit(1)
