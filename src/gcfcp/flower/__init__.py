"""GC-FCP over a network, on Flower: the same code in a simulation and on machines far apart.

One round: the server sends every client the groups' definition, the score, delta, the
representative, min_count and a nonce; each client checks that its own policy allows this, and
replies with the bytes of its summary. A second, optional round sends the predictor out and brings
the counts of an audit back. Flower carries the bytes; nothing here opens a socket.

    app = client_app(load, policy=Policy(groups))               # at a site that writes Python
    app = server_app(Question(groups, THR()), Target(0.1), Terms(min_clients=3), "round-1")

A site without Python needs none: `gcfcp.flower.app` has both apps ready, set up by the node's and
the run's configuration, and `python -m gcfcp.flower app DIRECTORY` writes an app directory that
`flwr run` takes as it is. docs/flower.md is the guide.

| module     | what it is for                                                        |
|------------|-----------------------------------------------------------------------|
| `protocol` | requests, replies and the codes for what goes wrong                   |
| `client`   | a site's policy, and replies that never leak                          |
| `roster`   | which public key may speak for which client                           |
| `exchange` | asking and waiting: deadline, late joiners, an account of everyone    |
| `store`    | the round on disk, so that a new run asks only those that are missing |
| `server`   | checking every answer, calibration, audit, the record                 |
| `app`      | the ready app                                                         |

Needs the extra `gcfcp[flower]`; nothing else in gcfcp imports Flower.
"""

try:
    import flwr as _flwr  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "gcfcp.flower needs Flower: install gcfcp with its extra, gcfcp[flower]"
    ) from None

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
