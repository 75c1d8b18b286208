"""One line on the terminal that says how far a command is, once it has taken two seconds.

The line is on standard error, and only if that is a terminal: a pipe or a log never gets it. Every
command has one from its beginning (`line`). Where it is known how much there is to do, the line has
a bar (`progress`). It is wiped before anything else is printed (`quiet`) and at the end.

It is written here, and not with rich, because it must be there for every command, wait for two
seconds, and never touch standard output.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gcfcp.tables import Progress

AFTER = 2.0  # A command that takes less than so many seconds shows nothing.
EVERY = 0.2  # The seconds between two drawings of the line.
_BAR = 24  # The characters of a full bar.
_WIPE = "\r\x1b[K"  # To the beginning of the line, and delete what stands there.


class _Line:
    """The line of the command that runs. A thread draws it; a lock keeps other prints apart."""

    def __init__(self, what: str) -> None:
        self.what, self.amount = what, ""
        self.begun = time.monotonic()
        self.lock = threading.RLock()
        self.ended = threading.Event()
        self.drawn = False
        self.thread = threading.Thread(target=self._draw_on, daemon=True)
        self.thread.start()

    def _draw_on(self) -> None:
        wait = AFTER
        while not self.ended.wait(wait):
            with self.lock:
                if not self.ended.is_set():
                    self._write(_WIPE + self._text())
                    self.drawn = True
            wait = EVERY

    def _text(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        text = f"{self.what}  {self.amount}{minutes}:{seconds:02d}"
        try:
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except (OSError, ValueError):
            width = 80
        return text if len(text) < width else text[: max(0, width - 4)] + "..."

    def wipe(self) -> None:
        """Delete the line, if there is one. The lock must be held."""
        if self.drawn:
            self._write(_WIPE)
            self.drawn = False

    def end(self) -> None:
        """Delete the line for good."""
        with self.lock:
            self.ended.set()
            self.wipe()
        self.thread.join()

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # The terminal was closed, which is no reason to fail.
            self.ended.set()


_running: _Line | None = None


@contextmanager
def line(what: str) -> Iterator[None]:
    """Have a line until the end of a command. A command within a command has that of the outer."""
    global _running
    if _running is not None or not _is_terminal():
        yield
        return
    _running = _Line(what)
    try:
        yield
    finally:
        _running.end()
        _running = None


def _is_terminal() -> bool:
    """Whether somebody can see the line, and the terminal can wipe it."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"


def off() -> None:
    """Show nothing until the end of the command, because its result is printed meanwhile."""
    if _running is not None:
        _running.end()


@contextmanager
def quiet() -> Iterator[None]:
    """Wipe the line, and draw none while something is printed."""
    if _running is None:
        yield
        return
    with _running.lock:
        _running.wipe()
        yield


@contextmanager
def progress(what: str, unit: str = "rows") -> Iterator[Progress | None]:
    """A function (done, total) that the line shows; None where no line can be shown.

    what: What is being done, such as "reading records.csv".
    unit: What is counted.
    """
    running = _running
    if running is None:
        yield None
        return
    before, running.what = running.what, what

    def advance(done: int, total: int | None) -> None:
        running.amount = f"{_bar(done, total)}{done:,} {unit}  "

    try:
        yield advance
    finally:
        running.what, running.amount = before, ""


def _bar(done: int, total: int | None) -> str:
    """The share that is done as a bar and in percent; "" if the total is not known."""
    if not total:
        return ""
    share = min(1.0, done / total)
    full = int(_BAR * share)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {100 * share:.0f} %  "
