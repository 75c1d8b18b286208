"""`python -m gcfcp.flower run APP NAME`: start a round, show what it says, and see that it starts.

`flwr run` returns as soon as the SuperLink has taken the run in. If the part of the SuperLink that
starts runs is not there, nothing more is ever heard. So this command waits for the first line of
the round, and says the probable cause if there is none. It ends with the round.

| exit code | what it means                                             |
|-----------|-----------------------------------------------------------|
| 0         | the round ended in a predictor                            |
| 1         | it failed, or did not start; the last line says why       |
| 2         | the command was wrong                                     |

Cost: each call of `flwr`, of which there are three, takes one to two seconds of processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

from gcfcp.errors import GCFCPError

START = 90.0  # The seconds within which a round says its first line.
_FAILED = "gcfcp: failed: "


def run(arguments: list[str]) -> int:
    """Start a round and follow it to its end; return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        number = _submit(given.app, given.name, given.run_config)
        print(f"gcfcp: run {number} was taken in; waiting for it to start", flush=True)
        failed = _follow(number, given.name, given.start)
        status = _last_status(number, given.name)
    except GCFCPError as error:
        print(f"gcfcp: {error}", file=sys.stderr)
        return 1
    if status == "finished:completed":
        return 0
    why = "" if failed else "; the SuperLink's log says why"
    print(f"gcfcp: run {number} ended: {status}{why}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gcfcp.flower run", description="Start a round and follow it to its end."
    )
    parser.add_argument("app", metavar="APP", help="the app directory")
    parser.add_argument("name", metavar="NAME", help="the SuperLink's name in Flower's config.toml")
    parser.add_argument("-c", "--run-config", default="", help="as in flwr run")
    parser.add_argument(
        "--start", type=float, default=START, help="the seconds within which it must start"
    )
    return parser


def _submit(app: str, name: str, config: str) -> str:
    """Give the run to the SuperLink, and return its number."""
    given = ["-c", config] if config else []
    return str(_flwr("run", app, name, *given, "--format", "json")["run-id"])


def _status(number: str, name: str) -> str:
    """The status of a run, such as finished:completed."""
    return str(_flwr("list", name, "--run-id", number, "--format", "json")["runs"][0]["status"])


def _last_status(number: str, name: str) -> str:
    """The status of a run whose log has ended; a GCFCPError if the run has not.

    The SuperLink was then killed or restarted, or cannot be reached, and its run is lost.
    """
    try:
        status = _status(number, name)
    except GCFCPError as error:
        status = str(error)
    if status.startswith("finished"):
        return status
    raise GCFCPError(
        f"run {number} cannot be followed any more, as if the SuperLink had been restarted or were "
        "unreachable; the answers that have come are on its disk: run the same command again when "
        f"it is back, and only the missing clients are asked (the status is: {status})"
    )


def _follow(number: str, name: str, start: float) -> bool:
    """Print the lines of a round until it ends; True if one of them says why it failed.

    Raises a GCFCPError, and stops the run, if it has not started within `start` seconds.
    """
    log = subprocess.Popen(
        [_program(), "log", number, name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    lines, end, heard, failed = _lines(log), time.monotonic() + start, False, False
    try:
        while True:
            try:
                line = lines.get(timeout=None if heard else max(end - time.monotonic(), 0))
            except queue.Empty:
                _refuse_not_started(number, name, start)
                heard = True
                continue
            if line is None:
                break
            if line.startswith("gcfcp:"):
                heard = True
                failed |= line.startswith(_FAILED)
                print(line.rstrip(), flush=True)
    finally:
        log.terminate()
        log.wait()
    return failed


def _lines(log: subprocess.Popen[str]) -> queue.Queue[str | None]:
    """The lines of a process as they come, and None when it has ended."""
    found: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert log.stdout is not None
        for line in log.stdout:
            found.put(line)
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    return found


def _refuse_not_started(number: str, name: str, start: float) -> None:
    """Stop a run that has not started, and raise a GCFCPError that says why.

    A run that has started is left alone: on a busy machine its log may come late.
    """
    status = _status(number, name)
    if status not in ("pending", "starting"):
        return
    with contextlib.suppress(GCFCPError):  # It may have ended just now.
        _flwr("stop", number, name, "--format", "json")
    raise GCFCPError(
        f"run {number} has not started within {start:g} s (it is {status}) and was stopped: "
        f"{_cause(name)}"
    )


def _cause(name: str) -> str:
    """Why runs may not start: the certificate does not name loopback, or what else it may be."""
    usual = (
        "the part of the SuperLink that starts runs (flower-superexec) is not there or is busy; "
        "see the SuperLink's log"
    )
    try:
        table = tomllib.loads((_home() / "config.toml").read_text(encoding="utf-8"))
        superlink = table["superlink"][name]
        host, _, port = superlink["address"].rpartition(":")
        names = _names(host.strip("[]"), int(port), superlink["root-certificates"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return usual
    if "127.0.0.1" in names:
        return usual
    return (
        "the SuperLink's certificate does not name 127.0.0.1, where the SuperLink's own parts "
        f"reach it (it names {', '.join(sorted(names))}): make one that does, and restart the "
        "SuperLink"
    )


def _names(host: str, port: int, authority: str) -> set[str]:
    """The names and addresses in the certificate of a server."""
    trust = ssl.create_default_context(cafile=authority)
    with (
        socket.create_connection((host, port), timeout=10) as plain,
        trust.wrap_socket(plain, server_hostname=host) as connection,
    ):
        certificate = connection.getpeercert() or {}
    pairs: Any = certificate.get("subjectAltName", ())
    return {str(name) for _, name in pairs}


def _home() -> Path:
    """Flower's directory, in which its configuration is."""
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")


def _program() -> str:
    """The program `flwr`: the one beside this Python, or else the one on the path."""
    beside = Path(sys.executable).parent / "flwr"
    found = str(beside) if beside.exists() else shutil.which("flwr")
    if found is None:
        raise GCFCPError("the program flwr is not on the path: install gcfcp[flower]")
    return found


def _flwr(*arguments: str) -> dict[str, Any]:
    """Run flwr, and return its answer, which is JSON; a GCFCPError that says what it says."""
    done = subprocess.run(
        [_program(), *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    try:
        answer = json.loads(done.stdout)
        if not answer.get("success", True):
            raise ValueError
    except (ValueError, AttributeError):
        said = " ".join(f"{done.stdout} {done.stderr}".split())[:500]
        raise GCFCPError(f"flwr {arguments[0]} failed: {said or 'it said nothing'}") from None
    return dict(answer)
