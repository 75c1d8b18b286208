"""GC-FCP over a network, with Flower: the same code runs in a simulation and on distant machines.

In one round the server sends every client a question (groups, score, delta and so on) and a nonce
(a random text that belongs to this request only). Each client checks that it has agreed to this
very question, and replies with the bytes of its summary. A second round, which is optional, sends
out the predictor and brings back the counts of an audit. What a site agrees to and what it has
answered is the matter of `gcfcp.rounds`, and what a round is that of `gcfcp.carriers`. Flower
carries the messages; this package opens no connection itself.

    question = Question(groups, THR())
    app = client_app(load, policy=Policy(question))             # at a site
    app = server_app(question, Target(0.1), Terms(min_clients=3), "round-1")

A site can also take part without writing Python. `gcfcp.flower.app` holds both apps ready to use;
the configurations of the node and of the run set them up. `python -m gcfcp.flower app DIRECTORY`
writes an app directory, and `python -m gcfcp.flower run DIRECTORY NAME` runs a round of it. The
guide is docs/flower.md.

| module    | what it is for                                 |
|-----------|------------------------------------------------|
| `client`  | a site as a ClientApp                          |
| `carrier` | Flower's messages as letters and replies       |
| `roster`  | which public key may speak for which client    |
| `server`  | a round as a ServerApp                         |
| `app`     | the app that is ready to use                   |
| `run`     | starts a round and sees that it starts         |

Flower comes with the extra flower. Nothing else in gcfcp imports it.
"""

from gcfcp.libraries import needs as _needs

_needs("flwr", "gcfcp.flower", "flower")

from gcfcp.carriers import Result, Target, Terms
from gcfcp.flower.client import client_app
from gcfcp.flower.roster import read_roster
from gcfcp.flower.server import conduct, server_app
from gcfcp.rounds import Code, Policy, Question, Site

__all__ = [
    "Code",
    "Policy",
    "Question",
    "Result",
    "Site",
    "Target",
    "Terms",
    "client_app",
    "conduct",
    "read_roster",
    "server_app",
]
