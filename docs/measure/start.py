"""Draw the figures of the ten-minute start, and make its notebook, both from the page itself.

The Python of the page is run, and the figures that a block draws get the names that stand below it
in the page. The notebook has the words and the code of the page, and no outputs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
from typing import Any

import page
from blocks import Part, parts_of
from page import figure, save_figure

_LINK = re.compile(r"\]\((?!https?:|#|\.\./)([^)]+)\)")
_HERE = re.compile(r"\]\((#[^)]+)\)")


def text_of_page() -> str:
    """The page that all of this is made from."""
    return (page.DOCS / "start.md").read_text()


# --- figures -------------------------------------------------------------------------------------


def _described(name: str, names: dict[str, Any]) -> str:
    """What a figure shows, in words and numbers, for those who do not see it."""
    if name == "start-thresholds":
        atoms = names["calibration"].atoms
        listed = "; ".join(f"{' and '.join(a.groups)}: {a.threshold:.2f}" for a in atoms)
        return f"The threshold of every atom. {listed}."
    of = (
        (lambda g: f"{g.coverage:.3f}")
        if name == "start-coverage"
        else lambda g: f"{g.mean_size:.1f}"
    )
    what = "Coverage" if name == "start-coverage" else "Mean width of the intervals"
    told = [
        f"{label}: " + ", ".join(f"{g.group} {of(g)}" for g in report.groups)
        for label, report in names["reports"].items()
    ]
    return f"{what} by group. {'; '.join(told)}."


def draw() -> None:
    """Run the Python of the page up to its last figure, and save the figures."""
    drawn, _ = figure(1, 1)  # This sets the look of every figure that follows.
    from matplotlib import pyplot

    pyplot.close(drawn)
    parts = parts_of(text_of_page())
    last = max(i for i, part in enumerate(parts) if part.figures)
    names: dict[str, Any] = {"__name__": "__main__"}
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(directory)
        try:
            for part in parts[: last + 1]:
                if part.kind == "python":
                    pyplot.close("all")
                    exec(part.text, names)
                for number, name in zip(pyplot.get_fignums(), part.figures, strict=False):
                    save_figure(name, pyplot.figure(number), _described(name, names))
        finally:
            os.chdir(before)


# --- the notebook --------------------------------------------------------------------------------


def _cell(place: int, part: Part) -> dict[str, Any]:
    """One part of the page as a cell."""
    kind = "code" if part.kind in ("python", "sh", "file") else "markdown"
    source = part.text.strip("\n")
    if part.kind == "sh":
        source = "%%sh\n" + source
    elif part.kind == "file":
        source = f"%%writefile {part.title}\n" + source
    elif kind == "markdown":
        source = _LINK.sub(r"](../\1)", _HERE.sub(r"](../start.md\1)", source))
    cell: dict[str, Any] = {"cell_type": kind, "id": f"part-{place}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"source": source.splitlines(keepends=True)}


def notebook(text: str) -> str:
    """The notebook of a page: its words and its code, in order, without outputs."""
    cells = [_cell(i, part) for i, part in enumerate(parts_of(text)) if part.kind != "shown"]
    made = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write docs/figures/start-*.svg and docs/notebooks/start.ipynb."""
    draw()
    place = page.DOCS / "notebooks"
    place.mkdir(exist_ok=True)
    (place / "start.ipynb").write_text(notebook(text_of_page()))
