"""How values look in a notebook: a few lines of text and one table, as HTML.

A notebook calls `_repr_html_` of a value and shows what it returns. Every text is escaped, because
names of groups and clients come from files. There is no colour and no script, so that it fits light
and dark notebooks. What is long is cut, and a line says how much is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_ROWS = 60
"""The most rows of the table, and the most lines below it."""


def as_html(
    above: Sequence[str],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    below: Sequence[str] = (),
    *,
    left: int = 1,
) -> str:
    """Lines, a table and further lines as HTML.

    - `left`: How many columns hold words and are aligned to the left; the others hold numbers.
    """
    from html import escape  # It is not needed for `import gcfcp`, which should be quick.

    cut = [f"and {len(rows) - MOST_ROWS:,} more rows"] * (len(rows) > MOST_ROWS)
    more = [f"and {len(below) - MOST_ROWS:,} more lines"] * (len(below) > MOST_ROWS)

    def line(text: str) -> str:
        return f'<div style="max-width: 60em">{escape(text.strip())}</div>'

    def row(cells: Sequence[str], tag: str) -> str:
        aligned = (
            f'<{tag} style="text-align: {"left" if i < left else "right"}">{escape(cell)}</{tag}>'
            for i, cell in enumerate(cells)
        )
        return f"<tr>{''.join(aligned)}</tr>"

    return (
        "<div>"
        + "".join(map(line, above))
        + f"<table><thead>{row(head, 'th')}</thead>"
        + f"<tbody>{''.join(row(cells, 'td') for cells in rows[:MOST_ROWS])}</tbody></table>"
        + "".join(map(line, [*cut, *below[:MOST_ROWS], *more]))
        + "</div>"
    )
