"""What the terminal shows: tables, notes, progress. Nothing here computes anything.

Results go to standard output, everything else to standard error, so results can be piped. Text that
came from files is shown as it is, never as markup, and control characters in it are spelled out. A
progress bar appears on a terminal only.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from gcfcp import codec
from gcfcp.errors import GCFCPWarning

if TYPE_CHECKING:
    from rich.console import Console

    from gcfcp.tables import Progress

WIDE = 200  # columns in a pipe, where nothing should be folded


def safe(text: object) -> str:
    """One line of printable characters; anything else is spelled out, such as \\x1b."""
    return "".join(
        c if c.isprintable() else " " if c in "\n\t" else ascii(c)[1:-1] for c in str(text)
    )


def console(error: bool = False) -> Console:
    """A console that takes text literally."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else WIDE,
        soft_wrap=not stream.isatty(),
    )


def note(text: object) -> None:
    """A line for the person at the terminal."""
    print(safe(text), file=sys.stderr)


def fail(text: object) -> None:
    note(f"gcfcp: {text}")


def lines(text: str) -> None:
    """Several lines of a result."""
    for line in text.splitlines():
        print(safe(line))


def show_json(value: Any) -> None:
    text = codec.to_json(value)
    # JSON escapes the old control characters only; \x9b starts a terminal's commands as well.
    print("".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text))


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


Style = str
Cell = str | tuple[str, Style]


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    title: str | None = None,
    left: int = 1,
    error: bool = False,
) -> None:
    """A table; the first `left` columns hold words, the others numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(head):
        drawn.add_column(name, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        cells = [c if isinstance(c, tuple) else (c, "") for c in row]
        drawn.add_row(*(Text(safe(text), style=style) for text, style in cells))
    screen = console(error)
    if title is not None:  # not the table's own, which would fold it to the table's width
        screen.print(safe(title), style="bold")
    screen.print(drawn)


@contextmanager
def progress(what: str) -> Iterator[Progress | None]:
    """Rows done, on a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[rows]} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task(safe(what), total=None, rows="0")

        def advance(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total, rows=f"{done:,}")

        yield advance


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Our own warnings in one line each; those of others stay what they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", GCFCPWarning)
        others = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, GCFCPWarning):
                note(f"warning: {message}")
            else:
                others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
