"""A command that takes long says so on a terminal, and never in a pipe or in its result."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gcfcp
from gcfcp.cli import console, waiting

WIPE = "\r\x1b[K"
# The commands are as fast as ever; only the two seconds are shorter, and the drawings denser.
PROGRAM = """
import sys
from gcfcp.cli import waiting
waiting.AFTER, waiting.EVERY = {after}, 0.001
from gcfcp.cli import main
sys.argv = ["gcfcp", *{arguments!r}]
main()
"""


def run_on_terminal(arguments: list[str], cwd: Path, after: float = 0.0) -> tuple[str, str, int]:
    """What a command writes to a terminal as standard error, to a pipe, and its exit code."""
    master, slave = pty.openpty()
    code = PROGRAM.format(after=after, arguments=arguments)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # The other end is closed when the process ends.
        while chunk := os.read(master, 65536):
            seen += chunk
    out = process.communicate(timeout=60)[0]
    os.close(master)
    return seen.decode(), out.decode(), process.returncode


def left_on_screen(text: str) -> str:
    """What remains on the terminal: of each line only what follows its last wipe."""
    return "\n".join(line.rpartition(WIPE)[2] for line in text.replace("\r\n", "\n").split("\n"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    lines = ["y,prediction,age", *(f"{i % 7},{i % 5},{20 + i % 60}" for i in range(400))]
    (place / "records.csv").write_text("\n".join(lines) + "\n")
    (place / "groups.toml").write_text('all = "TRUE"\nold = "age >= 65"\n')
    groups = gcfcp.Groups(["all", "old"])
    membership = np.column_stack([np.ones(200, bool), np.arange(200) % 3 == 0])
    for name in ("a", "b"):
        scores = np.random.default_rng(ord(name)).random(200)
        summary = gcfcp.summarize(scores, membership, groups=groups, client=name)
        summary.save(place / f"{name}.gcfcp")
    return place


SUMMARIZE = [
    *("summarize", "records.csv", "--groups", "groups.toml", "--client", "a"),
    *("-o", "made.gcfcp", "--force"),
]
CASES = {
    "summarize": (SUMMARIZE, "score residual; a: "),
    "plan": (["plan", "a.gcfcp", "b.gcfcp"], ""),
    "calibrate": (["calibrate", "a.gcfcp", "b.gcfcp", "-o", "p.json", "--force", "--json"], ""),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_a_command_that_takes_long_says_so_on_a_terminal(site: Path, name: str) -> None:
    arguments, note = CASES[name]
    seen, out, code = run_on_terminal(arguments, site)
    assert code == 0, seen
    assert f"{WIPE}gcfcp {name}  0:0" in seen
    # All that stays is what the command has to say, and the result is untouched.
    assert "0:0" not in left_on_screen(seen)
    assert note in left_on_screen(seen)
    assert WIPE not in out
    assert "\x1b[K" not in out


@pytest.mark.slow
def test_a_command_that_is_fast_shows_nothing(site: Path) -> None:
    seen, _, code = run_on_terminal(SUMMARIZE, site, after=30.0)
    assert code == 0
    assert WIPE not in seen
    assert seen.startswith("score residual")


def test_a_pipe_gets_nothing_of_it(site: Path) -> None:
    code = PROGRAM.format(after=0.0, arguments=SUMMARIZE)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=site, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "\r" not in done.stderr + done.stdout
    assert done.stderr.startswith("score residual")


class Terminal:
    """A pseudo-terminal in the place of standard error of this process.

    It is made inside of a test, because pytest puts its own standard error in place before one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w")
        monkeypatch.setattr(sys, "stderr", self.stream)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(waiting, "AFTER", 0.0)
        monkeypatch.setattr(waiting, "EVERY", 0.005)

    def read(self, until: str = "") -> str:
        """What was written; with `until` it is waited for."""
        seen, end = "", time.monotonic() + 20
        while time.monotonic() < end:
            if select.select([self.master], [], [], 0.02)[0]:
                seen += os.read(self.master, 65536).decode()
            elif not until:
                break
            if until and until in seen:
                break
        return seen


def test_the_bar_shows_what_is_done_and_wipes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with waiting.line("gcfcp x"), console.progress("reading a\x1b[2Jb.csv") as advance:
        assert advance is not None
        advance(250, 1000)
        seen = terminal.read("250 rows  0:0")
        # Control characters of a file's name are spelled out.
        assert "reading a\\x1b[2Jb.csv  [######..................] 25 %  250 rows  0:0" in seen
        advance(1500, None)
        assert "b.csv  1,500 rows  0:0" in terminal.read("1,500 rows  0:0")
        with waiting.line("gcfcp inner"):  # A command within a command has no line of its own.
            assert "inner" not in terminal.read("1,500")
        console.note("a note")
        assert re.search(r"\x1b\[Ka note\r\n", terminal.read("a note"))
        terminal.read("1,500 rows")  # The line is there again.
    assert terminal.read().endswith(WIPE)


def test_a_long_line_is_cut_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((40, 20)))
    with waiting.line("gcfcp " + "x" * 200):
        seen = terminal.read("...")
    drawn = [part for part in seen.split(WIPE) if part]
    assert drawn
    assert all(len(part) < 40 for part in drawn)


def test_an_error_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)

    def fail() -> None:
        with waiting.line("gcfcp x"):
            terminal.read("gcfcp x")
            raise gcfcp.GCFCPError("no")

    with pytest.raises(gcfcp.GCFCPError):
        fail()
    assert terminal.read().endswith(WIPE)
    with waiting.progress("nothing runs") as advance:
        assert advance is None


def test_a_terminal_that_cannot_wipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    Terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with waiting.line("gcfcp x"), waiting.progress("reading") as advance:
        assert advance is None


def test_a_result_on_the_terminal_turns_the_line_off(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with waiting.line("gcfcp x"):
        terminal.read("gcfcp x")
        waiting.off()
        assert terminal.read().endswith(WIPE)
        assert terminal.read() == ""
