"""Write measured tables and figures to their places, in the look of the site."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent
# The colours of Okabe and Ito, which every kind of colour vision tells apart.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
INK = "#123456"  # `save_figure` replaces this colour by that of the page's text.


def write_table(name: str, head: Sequence[str], rows: Iterable[Sequence[str]], note: str) -> None:
    """Write docs/measured/NAME.md: a table, and below it the note on how it was measured."""
    lines = [
        f"<!-- made by `python docs/measure {name}`; do not edit -->",
        "",
        "| " + " | ".join(head) + " |",
        "|---" + "|---:" * (len(head) - 1) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        " ".join(note.split()),
    ]
    (DOCS / "measured" / f"{name}.md").write_text("\n".join(lines) + "\n")


def figure(width: float, height: float) -> tuple[Any, Any]:
    """A small figure without a background, its text in the page's own font and colour."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "gcfcp",
            "font.size": 11,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    return pyplot.subplots(figsize=(width, height), layout="constrained")


def save_figure(name: str, drawn: Any, what: str) -> None:
    """Write docs/figures/NAME.svg, in the page's font and colour; `what` describes the picture."""
    out = io.StringIO()
    drawn.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"(width|height)=\"[\d.]+pt\" ?", "", svg, count=2)
    # Identifiers must be unique in a page, and a page may show several figures.
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{what}" ', 1)
    (DOCS / "figures" / f"{name}.svg").write_text(svg)
