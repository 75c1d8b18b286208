"""GC-FCP over vantage6: a central function that asks, and a partial function that answers.

Both are in the image of the algorithm, whose module is `gcfcp.vantage6.algorithm`. A task names one
of them and gives it plain values. What a node answers is in a file of its own, which the node's
configuration names in the variable GCFCP_SITE of `algorithm_env`; no task can set it. A round is
conducted by `gcfcp.carriers`, and what a site does is `gcfcp.rounds`; vantage6 moves the bytes, as
base64.

    client.task.create(
        organizations=[1], image=IMAGE, databases=[],                      # Of the researcher.
        input_={"method": "calibrate", "kwargs": round_to_json(question, target, terms)},
    )

| module      | what it is for                                                           |
|-------------|--------------------------------------------------------------------------|
| `central`   | conducts a round in a container of one node                              |
| `partial`   | a node's answer                                                          |
| `carrier`   | a task for each organisation, and the results that come back             |
| `algorithm` | what a task can call, and nothing else                                   |

vantage6 comes with the extra vantage6. Nothing else in gcfcp imports it. The guide is
docs/vantage6.md.
"""

from gcfcp.libraries import needs as _needs

_needs("vantage6.algorithm.tools", "gcfcp.vantage6", "vantage6")

from gcfcp.carriers import Target, Terms, round_to_json
from gcfcp.rounds import Code, Policy, Question, Site
from gcfcp.vantage6.central import calibrate
from gcfcp.vantage6.partial import answer

__all__ = [
    "Code",
    "Policy",
    "Question",
    "Site",
    "Target",
    "Terms",
    "answer",
    "calibrate",
    "round_to_json",
]
