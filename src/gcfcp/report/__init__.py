"""One self-contained page: what was promised, what was found, and where it all comes from.

| module      | what it is for                                            |
|-------------|-----------------------------------------------------------|
| `page`      | `render`: the page as one HTML file                       |
| `findings`  | the head of the page, and what the audit found            |
| `sections`  | promises, thresholds, clients, words, provenance          |
| `parts`     | what several sections need                                |
| `numbers`   | numbers as text                                           |
| `scale`     | numbers as places on an axis                              |
| `templates` | the page's HTML, style and script                         |
"""

from gcfcp.report.page import render

__all__ = ["render"]
