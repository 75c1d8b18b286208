"""What the terminal shows: tables, notes and progress. Nothing is computed here.

Results go to standard output and everything else to standard error, so that results can be piped.
Text from files is shown literally, never as markup, and control characters in it are spelled out.
Progress is shown only on a terminal, not in a pipe.
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
from gcfcp.libraries import has, needs

if TYPE_CHECKING:
    from rich.console import Console

    from gcfcp.tables import Progress

WIDE = 200  # The width in characters that is assumed for a pipe. Hardly any line is folded then.


def safe(text: object) -> str:
    """The text as one line of printable characters; others are spelled out, such as \\x1b."""
    return "".join(
        c if c.isprintable() else " " if c in "\n\t" else ascii(c)[1:-1] for c in str(text)
    )


def console(error: bool = False) -> Console:
    """A rich console for standard output or standard error that takes all text literally."""
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
    """Print one line to standard error, for the person at the terminal."""
    print(safe(text), file=sys.stderr)


def fail(text: object) -> None:
    """Print one line to standard error that says what is wrong."""
    note(f"gcfcp: {text}")


def lines(text: str) -> None:
    """Print the lines of a result to standard output."""
    for line in text.splitlines():
        print(safe(line))


def show_json(value: Any) -> None:
    """Print a result as JSON in which every character is printable."""
    text = codec.to_json(value)
    # JSON escapes only control characters up to \x1f, but \x9b starts a terminal command as well.
    print("".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text))


def _escaped(character: str) -> str:
    """A character as JSON writes it in escaped form, such as \\u009b."""
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def check_tables() -> None:
    """Raise an error if the library for tables is missing. Commands call this before they start."""
    needs("rich", "tables on the terminal", "cli")


Style = str
"""The name of a style of rich, such as "bold red"."""
Cell = str | tuple[str, Style]
"""The text of a cell of a table, with a style if it has one."""


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    title: str | None = None,
    left: int = 1,
    error: bool = False,
) -> None:
    """Print a table.

    title: A line above the table.
    left: How many columns hold words and are aligned to the left; the others hold numbers.
    error: Whether the table goes to standard error.
    """
    check_tables()
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
    if title is not None:  # A title of the table itself would be folded to its width.
        screen.print(safe(title), style="bold")
    screen.print(drawn)


@contextmanager
def progress(what: str, unit: str = "rows") -> Iterator[Progress | None]:
    """A function that shows how many rows, or other units, are done; None where that is impossible.

    It needs a terminal and the library rich.
    """
    if not sys.stderr.isatty() or not has("rich"):
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[rows]} " + unit, markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task(safe(what), total=None, rows="0")

        def advance(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total, rows=f"{done:,}")

        yield advance


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print each warning of gcfcp as one line; the warnings of other libraries are unchanged."""
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
