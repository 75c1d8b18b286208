"""Secure sums: a server learns the sum of the sites' vectors, and nothing else of a single site.

The vectors hold whole numbers, such as the counts of records in the cells of a public grid. The
room knows no carrier: at every step a site or the server takes bytes and gives bytes. The protocol
is that of Bonawitz et al. (CCS 2017); `client` says what each step does and what is protected.

| module       | what it is for                                                       |
|--------------|----------------------------------------------------------------------|
| `primitives` | the cryptographic tools, each a call of a library                    |
| `messages`   | what travels, as bytes, and how strictly it is read                  |
| `identity`   | signing keys, what an unsigned sum lacks, and a site's rules         |
| `client`     | the five steps of a site                                             |
| `server`     | passing on, adding and unmasking                                     |

The libraries come with the extra secure. `import gcfcp` loads none of them.
"""

from gcfcp.secure.client import State, advertise, confirm, mask, reveal, share
from gcfcp.secure.identity import Identity, Rules, usual_threshold
from gcfcp.secure.messages import (
    LIMIT,
    MAX_LENGTH,
    MAX_SITES,
    Begin,
    Division,
    Roster,
    addressed,
)
from gcfcp.secure.primitives import Vector
from gcfcp.secure.server import (
    Total,
    ask_reveal,
    ask_survivors,
    begin,
    deliveries,
    divide,
    make_roster,
    read_confirmation,
    read_keys,
    read_masked,
    read_revealed,
    read_shares,
    total,
)

__all__ = [
    "LIMIT",
    "MAX_LENGTH",
    "MAX_SITES",
    "Begin",
    "Division",
    "Identity",
    "Roster",
    "Rules",
    "State",
    "Total",
    "Vector",
    "addressed",
    "advertise",
    "ask_reveal",
    "ask_survivors",
    "begin",
    "confirm",
    "deliveries",
    "divide",
    "make_roster",
    "mask",
    "read_confirmation",
    "read_keys",
    "read_masked",
    "read_revealed",
    "read_shares",
    "reveal",
    "share",
    "total",
    "usual_threshold",
]
