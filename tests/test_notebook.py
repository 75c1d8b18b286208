"""The notebook of the ten-minute start is made from the page, runs, and prints what the page shows.

Its figures are those that the page's own code draws.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import test_docs

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOTEBOOK = DOCS / "notebooks" / "start.ipynb"
PAGE = DOCS / "start.md"


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(DOCS / "measure")
    return importlib.import_module("start")


def code_cells() -> list[dict[str, Any]]:
    return [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]


def test_the_notebook_is_made_from_the_page(start: Any) -> None:
    """`python docs/measure start` makes it."""
    assert start.notebook(PAGE.read_text()) == NOTEBOOK.read_text()


def test_the_notebook_has_all_code_of_the_page_and_no_outputs() -> None:
    cells = code_cells()
    blocks = [b for b in test_docs.blocks_of(PAGE) if b.why_not is None]
    ours = [b.body.strip() for b in blocks if b.language in test_docs.RUN or b.title]
    theirs = [re.sub(r"^%%(sh|writefile \S+)\n", "", "".join(c["source"])) for c in cells]
    assert theirs == ours
    assert all(c["outputs"] == [] and c["execution_count"] is None for c in cells)


def test_links_of_the_notebook_lead_somewhere() -> None:
    text = NOTEBOOK.read_text()
    links = re.findall(r"\]\(((?!https?:)[^)]+)\)", text)
    assert len(links) > 5
    for link in links:
        assert (NOTEBOOK.parent / link.partition("#")[0]).exists(), link


def printed(cell: Any) -> str:
    """What a cell prints, without colours, which a kernel asks programs for."""
    text = "".join(o["text"] for o in cell["outputs"] if o["output_type"] == "stream")
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def masked(text: str) -> Counter[str]:
    """How often each word occurs, without its numbers."""
    return Counter(re.sub(r"[\d.,]+", "#", text).split())


@pytest.mark.slow
def test_the_notebook_runs_and_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    ran = [c for c in notebook.cells if c.cell_type == "code"]
    blocks = [b for b in test_docs.blocks_of(PAGE) if b.why_not is None]
    blocks = [b for b in blocks if b.language in test_docs.RUN or b.title]
    for cell, block in zip(ran, blocks, strict=True):
        if block.expected is None:
            continue
        if block.language == "python":
            assert test_docs.alike(block.expected, printed(cell)), printed(cell)
        else:  # Standard output and standard error arrive in any order.
            assert masked(block.expected) == masked(printed(cell))
    pictures = [o for c in ran for o in c["outputs"] if "image/png" in o.get("data", {})]
    assert len(pictures) == 3
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_the_figures_show_what_the_page_computes(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = importlib.import_module("page")
    (tmp_path / "figures").mkdir()
    (tmp_path / "start.md").write_text(PAGE.read_text())
    monkeypatch.setattr(page, "DOCS", tmp_path)
    start.draw()
    made = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert made == ["start-coverage.svg", "start-sizes.svg", "start-thresholds.svg"]
    for name in made:
        new, old = ((d / "figures" / name).read_text() for d in (tmp_path, DOCS))
        told, shown = (re.search(r'aria-label="([^"]+)"', svg) for svg in (new, old))
        assert told is not None
        assert shown is not None
        assert test_docs.alike(shown[1], told[1])
        assert re.findall(r">([^<>\s][^<>]*)</text>", new) == re.findall(
            r">([^<>\s][^<>]*)</text>", old
        )
