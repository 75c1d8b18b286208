"""The server's half of a round, over any carrier: ask, wait, check, calibrate, keep a record.

A carrier such as `gcfcp.flower` implements `Carrier`, which moves messages, and calls `conduct`.
All that a round is belongs to this room: who is asked and asked again, until when, which answers
are accepted, who is missing, what is on disk for the next run, predictor, audit and record. So a
round is the same over every carrier, and its predictor is that of the files, byte for byte.
The site's half is `gcfcp.rounds`.

    conduct(carrier, question, Target(0.1), Terms(min_clients=3), "round-1")

| module     | what it is for                                                              |
|------------|-----------------------------------------------------------------------------|
| `carrier`  | what a carrier must do                                                      |
| `target`   | what to calibrate for, and the terms on which answers are gathered          |
| `roster`   | which node may speak for which client                                       |
| `settings` | a round from plain settings                                                 |
| `plain`    | a round in plain values, for carriers whose jobs or tasks are JSON          |
| `exchange` | asks all clients, waits until a deadline, and accounts for every one        |
| `sums`     | a secure sum: up to five exchanges after one another                        |
| `store`    | keeps the round on disk, so that a new run asks only those that are missing |
| `server`   | checks every answer, calibrates, audits, and writes a record of the round   |
| `record`   | the parts of that record                                                    |
| `results`  | the files of a round, for carriers that hand them on                        |
"""

from gcfcp.carriers.carrier import Carrier, Letter, Node, Reply
from gcfcp.carriers.exchange import Exchange, Outcome, Say, utc
from gcfcp.carriers.plain import round_of, round_to_json
from gcfcp.carriers.results import results_of
from gcfcp.carriers.roster import read_roster
from gcfcp.carriers.server import Result, conduct, say
from gcfcp.carriers.settings import Setup, setup_of
from gcfcp.carriers.store import Store
from gcfcp.carriers.target import Target, Terms

__all__ = [
    "Carrier",
    "Exchange",
    "Letter",
    "Node",
    "Outcome",
    "Reply",
    "Result",
    "Say",
    "Setup",
    "Store",
    "Target",
    "Terms",
    "conduct",
    "read_roster",
    "results_of",
    "round_of",
    "round_to_json",
    "say",
    "setup_of",
    "utc",
]
