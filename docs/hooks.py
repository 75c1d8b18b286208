"""Fill the pages with what the project itself says while the site is built, so that it stays true.

| in a page                                | becomes                                          |
|------------------------------------------|--------------------------------------------------|
| `$...$`, a paragraph `$$...$$`           | MathML, which browsers draw without a script     |
| `<!-- figure: NAME -->`                  | docs/figures/NAME.svg, in the page               |
| `<!-- docstring: gcfcp.codec -->`        | the docstring of a module                        |
| `<!-- symbols -->`                       | the tables of symbols of all modules' docstrings |
| `<!-- rooms -->`                         | the rooms of docs/figures/architecture.toml      |
| `<!-- results: NAME -->`                 | experiments/results/NAME, tables and pictures    |

If something that a page names does not exist, there is a warning, which stops a strict build.
"""

from __future__ import annotations

import ast
import importlib
import logging
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"
SOURCE = ROOT / "src" / "gcfcp"
RESULTS = ROOT / "experiments" / "results"

log = logging.getLogger("mkdocs.hooks.gcfcp")

_DIRECTIVE = re.compile(r"^<!-- ([a-z ]+?)(?:: (.+?))? -->$", re.MULTILINE)
_FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*~* *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_DISPLAY = re.compile(r"^( *)\$\$(.+?)\$\$ *$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<![\\$\w])\$(?! )([^$\n]+?)(?<! )\$(?![\w$])")


# --- events ------------------------------------------------------------------------------------


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its directives filled and its formulas set aside, before Markdown is read."""

    def directive(found: re.Match[str]) -> str:
        name, argument = found.group(1), found.group(2) or ""
        if name not in _DIRECTIVES:
            return found.group()
        try:
            return _DIRECTIVES[name](argument)
        except (OSError, KeyError, ValueError, ImportError) as error:
            log.warning("%s: %s cannot be filled: %s", page.file.src_path, found.group(), error)
            return ""

    page.kept = []
    return _keep_math(_DIRECTIVE.sub(directive, markdown), page.kept)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """The formulas come back now that Markdown, which would read _ and * as emphasis, is done."""
    for place, made in enumerate(page.kept):
        mark = _mark(place)
        content = content.replace(f"<p>{mark}</p>", made).replace(mark, made)
    return content


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the experiments' pictures to the site. They stay in experiments/results."""
    for path in sorted(RESULTS.rglob("*")) if RESULTS.is_dir() else ():
        if path.suffix in (".svg", ".png"):
            uri = f"results/{path.relative_to(RESULTS).as_posix()}"
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


# --- mathematics -------------------------------------------------------------------------------


def _mark(place: int) -> str:
    """The word that stands in the page for formula number `place` while Markdown works."""
    return f"xmathx{place}x"


def _keep_math(markdown: str, kept: list[str]) -> str:
    """The text with a mark for each formula; the MathML of the formulas is appended to `kept`.

    Code is hidden meanwhile, because a dollar sign in it is not a formula.
    """
    code: list[str] = []

    def hide(found: re.Match[str]) -> str:
        code.append(found.group())
        return f"\x00{len(code) - 1}\x00"

    def keep(made: str) -> str:
        kept.append(made)
        return _mark(len(kept) - 1)

    text = _CODE.sub(hide, _FENCE.sub(hide, markdown))
    text = _DISPLAY.sub(lambda m: m.group(1) + keep(convert(m.group(2), display="block")), text)
    text = _INLINE.sub(lambda m: keep(convert(m.group(1))), text)
    while "\x00" in text:
        text = re.sub(r"\x00(\d+)\x00", lambda m: code[int(m.group(1))], text)
    return text


# --- figures -----------------------------------------------------------------------------------


def _figure(name: str) -> str:
    """The figure as part of the page: it takes the page's colours, and its words can be found."""
    svg = (FIGURES / f"{name}.svg").read_text()
    svg = svg[svg.index("<svg") :].strip()
    return f'<figure class="gcfcp">{" ".join(svg.split())}</figure>'


# --- docstrings --------------------------------------------------------------------------------


def _docstring(name: str) -> str:
    """The docstring of the module with this name."""
    return importlib.import_module(name).__doc__ or ""


def _symbols(_: str) -> str:
    """The tables `| here | paper |` of all modules, each below the name of its module."""
    parts = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        table = re.search(r"^\| *(?:here|code) *\| *paper.*(?:\n\|.*)+", text, re.MULTILINE)
        if table:
            module = "gcfcp." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            parts.append(f"**`{module}`**\n\n{table.group()}")
    if not parts:
        raise ValueError("no module has a table of symbols")
    return "\n\n".join(parts)


def _rooms(_: str) -> str:
    """The table of rooms, the highest floor first."""
    floors = tomllib.loads((FIGURES / "architecture.toml").read_text())["floor"]
    rows = ["| floor | room | modules | what it does |", "|---|---|---|---|"]
    for height, floor in reversed(list(enumerate(floors))):
        for room in floor["room"]:
            modules = ", ".join(f"`{m}`" for m in room["modules"])
            rows.append(f"| {height} | {room['name']} | {modules} | {room['what']} |")
    return "\n".join(rows)


# --- results -----------------------------------------------------------------------------------


def _results(name: str) -> str:
    """A Markdown file of experiments/results, its links made right for a page in docs/paper."""
    path = RESULTS / name
    base = f"../results/{path.parent.relative_to(RESULTS).as_posix()}/"
    text = re.sub(r"(\]\()(?!https?:|#|/)", rf"\g<1>{base}", path.read_text())
    return text.replace("<details>", '<details markdown="1">')


_DIRECTIVES: dict[str, Callable[[str], str]] = {
    "figure": _figure,
    "docstring": _docstring,
    "symbols": _symbols,
    "rooms": _rooms,
    "results": _results,
}
