"""The documentation is true, and the site builds without a warning and without the network.

Every block of code runs and prints what the page shows below it, every example runs, and figures
and tables are those that their commands make.

The blocks `python` and `sh` of a page are run one after the other in one directory. A block `text`
right below such a block is what it must print. A block with a title is a file of that name.
`<!-- not run: why -->` above a block says why it is not run. `<!-- needs: NAME -->` names a library
that is not among our dependencies; the block is run only where it is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

import chromium
import gcfcp

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "CONTRIBUTING.md"]
PAGES = [p for p in PAGES if p.parent.name != "measured"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
RUN = ("python", "sh")
BIN = Path(sys.executable).parent

_BLOCK = re.compile(
    r"(?:^ *<!-- (?:not run: (?P<why>[^\n]+?)|needs: (?P<needs>\w+)) -->\n)?"
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Block:
    """One block of code of a page."""

    language: str
    title: str | None
    body: str
    line: int
    why_not: str | None
    needs: str | None = None
    expected: str | None = None  # The output that the page shows below the block.


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, each with the output that is shown below it."""
    text = page.read_text()
    blocks: list[Block] = []
    end = 0
    for found in _BLOCK.finditer(text):
        info = found["info"].strip()
        title = _TITLE.search(info)
        block = Block(
            language=info.split(" ")[0],
            title=title[1] if title else None,
            body=textwrap.dedent(found["body"]),
            line=text.count("\n", 0, found.start()) + 1,
            why_not=found["why"],
            needs=found["needs"],
        )
        below = not text[end : found.start()].strip()
        if block.language == "text" and below and blocks and blocks[-1].language in RUN:
            last = blocks.pop()
            block = Block(**{**vars(last), "expected": textwrap.dedent(found["body"])})
        blocks.append(block)
        end = found.end()
    return blocks


def run_python(block: Block, page: Path, namespace: dict[str, object]) -> str:
    """Run a block of Python, and return what it prints."""
    # The empty lines make a traceback show the line in the page.
    code = compile("\n" * block.line + block.body, str(page), "exec")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)  # Some pages show cases that warn.
        exec(code, namespace)
    return out.getvalue()


def run_shell(block: Block, page: Path, directory: Path) -> str:
    """Run a block of shell commands, and return what they print."""
    environment = os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "110",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.body],
        cwd=directory,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    assert done.returncode == 0, f"{page.name}:{block.line} ended with {done.stdout}"
    return done.stdout


def alike(shown: str, printed: str) -> bool:
    """Whether both texts have the same words, and numbers that differ by at most 2 % or 0.02.

    Other versions of a library may train a slightly different model.
    """

    def words(text: str) -> list[str]:
        return " ".join(_NUMBER.sub("#", text).split()).split(" ")

    def numbers(text: str) -> list[float]:
        return [float(n.replace(",", "")) for n in _NUMBER.findall(text)]

    ours, theirs = numbers(shown), numbers(printed)
    return (
        words(shown) == words(printed)
        and len(ours) == len(theirs)
        and all(abs(a - b) <= 0.02 * max(1, abs(a)) for a, b in zip(ours, theirs, strict=True))
    )


def is_there(library: str) -> bool:
    """Whether a library is installed, with all that it needs; Spark needs Java as well."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    return importlib.util.find_spec(library) is not None and bool(library != "pyspark" or java)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.title is not None:
            Path(block.title).write_text(block.body)
            continue
        if block.why_not is not None or block.language not in RUN:
            continue
        if block.needs is not None and not is_there(block.needs):
            continue
        if block.language == "python":
            printed = run_python(block, page, namespace)
        else:
            printed = run_shell(block, page, tmp_path)
        if block.expected is not None:
            assert alike(block.expected, printed), (
                f"{page.name}:{block.line} prints\n{printed}\nwhere the page shows\n"
                f"{block.expected}"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language, f"{page.name}:{block.line} has no language: text if none fits"
        assert block.language not in ("bash", "shell", "console", "py"), (
            f"{page.name}:{block.line} is {block.language}: python and sh are run"
        )


def test_the_comparison_of_outputs_can_fail() -> None:
    assert alike("coverage 0.912 of 1,200", "coverage  0.905 of 1,210\n")
    assert not alike("coverage 0.912", "coverage 0.88")
    assert not alike("coverage 0.912", "coverage nan")
    assert not alike("kept 0.9", "broken 0.9")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


# --- figures and tables --------------------------------------------------------------------------


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put docs/measure on the path, and let it write into a copy of docs/."""
    monkeypatch.syspath_prepend(DOCS / "measure")
    page = importlib.import_module("page")
    for folder in ("figures", "measured"):
        (tmp_path / folder).mkdir()
    shutil.copy(DOCS / "figures" / "architecture.toml", tmp_path / "figures")
    monkeypatch.setattr(page, "DOCS", tmp_path)
    return tmp_path


def table_of(name: str) -> list[list[str]]:
    """The rows of a committed table as lists of cells, without the head."""
    lines = (DOCS / "measured" / f"{name}.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    return rows[2:]


def test_the_diagram_is_the_one_that_the_plan_gives(
    measure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture = importlib.import_module("architecture")
    monkeypatch.setattr(architecture, "DOCS", measure)
    architecture.main()
    made = (measure / "figures" / "architecture.svg").read_text()
    drawn = (DOCS / "figures" / "architecture.svg").read_text()
    assert made == drawn, "the plan has changed: draw it with python docs/measure architecture"


def test_recompression_breaks_the_bound_and_pooling_does_not(measure: Path) -> None:
    recompression = importlib.import_module("recompression")
    pooled, merged, above = recompression.measure(50.0, "mean", 25)
    assert pooled <= 1 < merged <= 2
    assert above > 0
    for row in table_of("recompression"):
        assert float(row[3].split()[0]) <= 1 < float(row[4].split()[0]) <= 2


def test_the_page_shows_a_group_that_is_left_out() -> None:
    """The first page says this about its picture."""
    rows = {row[0]: row for row in table_of("why")}
    assert rows["poor health"][1] == "1.5 %"
    assert float(rows["poor health"][2]) < 0.75
    assert all(float(row[3]) >= 0.9 for row in rows.values())


def test_upper_keeps_the_promise_at_every_delta_and_mean_comes_closer_to_it() -> None:
    """The page on concepts says this about its curves, and that certificates fall faster."""
    rows = table_of("delta")
    for row in rows:
        assert 0.9 <= float(row[4]) <= float(row[2])
        assert float(row[7]) <= float(row[4])
    certified = [float(row[7]) for row in rows]
    assert certified == sorted(certified)
    assert certified[0] < 0.6


def test_what_is_called_proved_was_never_below() -> None:
    for row in table_of("proved"):
        least, error = (float(part) for part in row[6].split(" +- "))
        if row[8].startswith(("proved", "measured")):
            assert least >= 0.9 - 3 * error, row
        else:
            assert row[8] == "not promised", row
            assert least < 0.9, row


@pytest.mark.slow
def test_committed_tables_are_what_the_commands_measure(measure: Path) -> None:
    """This makes few repetitions, so it is rough. An outdated table would still be noticed."""
    why, delta, proved = map(importlib.import_module, ("why", "delta", "proved"))
    found = why.measure(8)
    for row in table_of("why"):
        g = why.GROUPS.names.index(row[0])
        for shown, (coverage, _) in zip(row[2:4], found.values(), strict=True):
            assert abs(coverage[:, g].mean() - float(shown)) < 0.06, row
    sizes, _ = delta.measure(1)
    for row in table_of("delta"):
        key = ("upper, pooled (default)", int(row[0].replace(",", "")))
        assert abs(sizes[key][0, -2] / float(row[1].replace(",", "")) - 1) < 0.1, row
    for case, row in zip(proved.CASES, table_of("proved"), strict=True):
        found = proved.measure(case, 3, 30)
        assert found.status in row[8], row  # Fewer calibrations may show fewer grounds.
        assert abs(found.mean - float(row[7])) < 0.03, row


@pytest.mark.slow
def test_the_service_that_was_measured_answers_on_loopback(measure: Path) -> None:
    """The service of the page runs in a process of its own, and every request is answered."""
    for library in ("fastapi", "httpx", "uvicorn"):
        pytest.importorskip(library)
    serving = importlib.import_module("serving")
    serving.page.DOCS = DOCS  # The page that is committed is measured.
    found = serving.measure(20)
    assert [len(times) for times in found.values()] == [20, 20, 20]
    assert [row[0] for row in table_of("serving")] == list(found)


# --- the site ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all tests of it."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        # No --quiet: it silences the warnings, and with them --strict.
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


_ASSET = re.compile(
    r"<(?:script|img|iframe|source|embed|object|video|audio|link)\b[^>]*?"
    r"(?:src|href|data)=[\"']?([^\"' >]+)"
)


@pytest.mark.slow
def test_the_site_asks_the_network_for_nothing(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        for asset in _ASSET.findall(page.read_text()):
            assert not re.match(r"(https?:)?//", asset), f"{page.name} loads {asset}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", sheet.read_text()), sheet.name


@pytest.mark.slow
def test_the_site_is_filled_from_the_project(site: Path) -> None:
    commands = (site / "reference" / "cli.html").read_text()
    for name in ("summarize", "calibrate", "audit-merge"):
        assert f'id="gcfcp-{name}"' in commands
    assert "--min-count" in commands
    reference = (site / "reference" / "api.html").read_text()
    for name in gcfcp.__all__:
        if name not in ("methods", "scores"):
            assert f".{name}</" in reference or f">{name}</" in reference, f"{name} is missing"
    assert "the length of the header, unsigned" in (site / "reference" / "formats.html").read_text()
    assert "<math" in (site / "guarantees.html").read_text()
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r"xmathx\d+x|\x00", text), f"{page.name} has a formula left over"
        assert "--8<--" not in text, f"{page.name} has a file left over"


@pytest.mark.slow
@pytest.mark.skipif(chromium.find() is None, reason="no Chromium on the path, or in CHROMIUM")
def test_the_site_opens_from_the_disk_and_search_finds(site: Path, tmp_path: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    with chromium.page(tmp_path) as page:
        for path in pages:
            if path.name == "404.html":
                continue
            page.open(path, 390, dark=True)
            wide = page.run("document.documentElement.scrollWidth")
            assert wide <= 390, f"{path.name} is {wide} px wide on a phone of 390"
            assert not page.complaints, f"{path.name}: {page.complaints}"
        for path in (site / "index.html", site / "reference" / "api.html"):
            page.open(path, 1300)
            page.run("document.querySelector('[data-md-component=search-query]').focus()")
            page.type("recompression")
            page.press("Shift", 16)  # The search starts when a key is pressed.
            found = page.run(
                """new Promise((done) => {
                    const end = Date.now() + 30000;
                    (function look() {
                        const links = [...document.querySelectorAll(".md-search-result__link")];
                        if (links.length || Date.now() > end) done(links.map((a) => a.href));
                        else setTimeout(look, 100);
                    })();
                })"""
            )
            assert any("guarantees.html" in link for link in found), found
            strangers = [u for u in page.requests if not u.startswith(("file:", "data:"))]
            assert not strangers


def test_the_page_of_the_command_line_is_in_step_with_the_program() -> None:
    """`python docs/measure commands` writes it."""
    sys.path.insert(0, str(DOCS / "measure"))
    try:
        commands = importlib.import_module("commands")
    finally:
        sys.path.remove(str(DOCS / "measure"))
    text = (DOCS / "reference" / "cli.md").read_text()
    assert commands.made(text) == text
    assert "- `DATA`: A CSV or Parquet file" in text
    assert text.count("## gcfcp ") >= 15
