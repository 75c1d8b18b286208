"""What a client sends: its summary, the bytes of the summary, and signatures.

| module       | what it is for                                                |
|--------------|---------------------------------------------------------------|
| `client`     | `summarize`: makes a summary of scores and memberships        |
| `summary`    | `ClientSummary`: the summary itself, and what must hold in it |
| `disclosure` | what a summary tells about the records behind it              |
| `layout`     | the bytes of a summary                                        |
| `signatures` | who sent a file, and the keys that a server knows             |
"""

from gcfcp.summary import signatures
from gcfcp.summary.client import assemble, declared, refuse_absent, rounding_limit, summarize
from gcfcp.summary.disclosure import Disclosure
from gcfcp.summary.summary import ClientSummary

__all__ = [
    "ClientSummary",
    "Disclosure",
    "assemble",
    "declared",
    "refuse_absent",
    "rounding_limit",
    "signatures",
    "summarize",
]
