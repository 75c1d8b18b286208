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
| `parts`     | what several sections use                                          |
| `numbers`   | numbers as text                                                    |
| `scale`     | numbers as places on an axis                                       |
| `templates` | the HTML, the style and the script of the page                     |
"""

from gcfcp.report.page import render

__all__ = ["render"]
