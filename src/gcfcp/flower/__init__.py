"""GC-FCP over a network, with Flower: the same code runs in a simulation and on distant machines.

In one round the server sends every client the definition of the groups, the score, delta, the
representative, min_count and a nonce (a random text that belongs to this request only). Each client
checks that its own policy allows this, and replies with the bytes of its summary. A second round,
which is optional, sends out the predictor and brings back the counts of an audit. Flower carries
the bytes; this package opens no connection itself.

    app = client_app(load, policy=Policy(groups))               # at a site
    app = server_app(Question(groups, THR()), Target(0.1), Terms(min_clients=3), "round-1")

A site can also take part without writing Python. `gcfcp.flower.app` holds both apps ready to use;
the configurations of the node and of the run set them up. `python -m gcfcp.flower app DIRECTORY`
writes an app directory for `flwr run`. The guide is docs/flower.md.

| module     | what it is for                                                              |
|------------|-----------------------------------------------------------------------------|
| `protocol` | requests, replies, and the codes for what goes wrong                        |
| `client`   | a site's policy, and replies that give nothing else away                    |
| `roster`   | which public key may speak for which client                                 |
| `exchange` | asks all clients, waits until a deadline, and accounts for every one        |
| `store`    | keeps the round on disk, so that a new run asks only those that are missing |
| `server`   | checks every answer, calibrates, audits, and writes a record of the round   |
| `app`      | the app that is ready to use                                                |

Flower comes with the extra flower. Nothing else in gcfcp imports it.
"""

from gcfcp.libraries import needs as _needs

_needs("flwr", "gcfcp.flower", "flower")

from gcfcp.flower.client import Policy, Site, client_app
from gcfcp.flower.exchange import Terms
from gcfcp.flower.protocol import Code, Question
from gcfcp.flower.roster import read_roster
from gcfcp.flower.server import Result, Target, conduct, server_app

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
