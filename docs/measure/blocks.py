"""The blocks of a page of the documentation: text, code, shown outputs, and figures."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(
    r"(?P<why>^<!-- not run: [^\n]+ -->\n)?"
    r"^(?P<fence>`{3,})(?P<language>\w+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=fence) *$\n?",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')
_FIGURE = re.compile(r"^<!-- figure: (\S+) -->\n?", re.MULTILINE)
RUN = ("python", "sh")


@dataclass(frozen=True)
class Part:
    """One part of a page, in order."""

    kind: str  # "words", "python", "sh", "file", "shown" (the output above), or "not run".
    text: str
    title: str = ""  # The name of a file.
    figures: tuple[str, ...] = ()  # The figures that stand in words.


def parts_of(page: str) -> list[Part]:
    """The parts of a page. Words keep no figures, and no part is empty."""
    found: list[Part] = []
    end = 0
    for block in _BLOCK.finditer(page):
        words = _words(page[end : block.start()])
        if words is not None:
            found.append(words)
        title = _TITLE.search(block["info"])
        if title:
            found.append(Part("file", block["body"], title[1]))
        elif block["why"]:
            found.append(Part("not run", block.group()[len(block["why"]) :]))
        elif block["language"] in RUN:
            found.append(Part(block["language"], block["body"]))
        elif block["language"] == "text" and words is None and found[-1].kind in RUN:
            found.append(Part("shown", block["body"]))
        else:
            found.append(Part("not run", block.group()))
        end = block.end()
    last = _words(page[end:])
    return [*found, last] if last is not None else found


def _words(text: str) -> Part | None:
    """The text between two blocks; None if there is none."""
    if not text.strip():
        return None
    return Part("words", _FIGURE.sub("", text).strip(), figures=tuple(_FIGURE.findall(text)))
