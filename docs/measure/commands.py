"""The page docs/reference/cli.md: every command, as the program itself describes it.

What stands above the mark is written by hand, and what stands below it is made here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "reference" / "cli.md"
MARK = "<!-- Below this line the page is made: python docs/measure commands -->"


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(made(PAGE.read_text()))


def made(text: str) -> str:
    """The page with everything below the mark made anew."""
    above, found, _ = text.partition(MARK)
    if not found:
        raise ValueError(f"{PAGE} has no line {MARK!r}")
    return f"{above}{MARK}\n\n{_commands()}\n"


def _commands() -> str:
    """All commands of gcfcp in Markdown, from the typer application itself."""
    import typer

    from gcfcp.cli.entry import app

    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="gcfcp")
    pages = []
    for name in command.list_commands(context):  # type: ignore[attr-defined]
        sub = command.get_command(context, name)  # type: ignore[attr-defined]
        pages.append(_command(sub, sub.context_class(sub, info_name=name, parent=context)))
    return "\n\n".join(pages)


def _command(command: Any, context: Any) -> str:
    """One command: what it does, how it is called, its arguments and options, an example."""
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    parts = [f"## gcfcp {command.name}", _paragraphs(command.help), f"```text\n{usage}\n```"]
    entries = [_entry(param, context) for param in command.get_params(context)]
    if known := [entry for entry in entries if entry]:
        parts.append("\n".join(known))
    if command.epilog:
        parts.append(_example(command.epilog))
    return "\n\n".join(parts)


def _entry(param: Any, context: Any) -> str:
    """One argument or option, with what it means; "" for one that is hidden."""
    record = param.get_help_record(context)
    if record is None:
        return ""
    name, meaning = record
    if not param.help:
        raise ValueError(f"{name} of gcfcp {context.info_name} has no description")
    return f"- `{' '.join(name.split())}`: {_line(meaning)}"


def _paragraphs(text: str | None) -> str:
    """The text with each paragraph on one line."""
    return "\n\n".join(_line(paragraph) for paragraph in (text or "").split("\n\n"))


def _example(epilog: str) -> str:
    """The text below a command, with its example as a block of code."""
    head, found, example = _line(epilog).partition("Example: ")
    example = example.replace("\\*", "*").replace("\\_", "_").replace("&lt;", "<")
    return f"{head}Example:\n\n```text\n{example}\n```" if found else head


def _line(text: str) -> str:
    """The text on one line. What Markdown would take for a tag or a mark is escaped."""
    plain = " ".join(text.split()).replace("\\[", "[")
    return plain.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
