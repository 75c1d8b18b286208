"""The report: one self-contained page that says what was promised and what an audit found.

Its readers may know no statistics, so its sentences use everyday words, and the page explains every
word that it needs.

| module      | what it is for                                                     |
|-------------|--------------------------------------------------------------------|
| `page`      | `render`: makes the page, as the text of one HTML file             |
| `head`      | the head of the page: promised, kept, where not, what was left out |
| `findings`  | the section about the audit, group by group                        |
| `sites`     | the section about coverage site by site                            |
| `sections`  | the sections about promises, thresholds, clients, words, provenance |
| `explorer`  | `render_explorer`: a page with sliders for alpha and the mixture   |
| `lookup`    | the numbers of the explorer as texts, by setting                   |
| `parts`     | what several sections use                                          |
| `frame`     | templates, style, scripts, the security policy and the date        |
| `numbers`   | numbers as text                                                    |
| `scale`     | numbers as places on an axis                                       |
| `templates` | the HTML, the style and the script of the page                     |
"""

from gcfcp.report.explorer import check_start, render_explorer
from gcfcp.report.page import render

__all__ = ["check_start", "render", "render_explorer"]
