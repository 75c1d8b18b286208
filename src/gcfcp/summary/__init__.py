"""What a client sends: its summary, the bytes of the summary, and signatures.

| module       | what it is for                                                |
|--------------|---------------------------------------------------------------|
| `client`     | `summarize`: makes a summary of scores and memberships        |
| `cells`      | which counts may leave, so that small cells cannot be told    |
| `withheld`   | the same for atoms: which records are not described           |
| `counts`     | counts on a public grid: one vector, and the sum of sites     |
| `noisy`      | the same counts with noise, for differential privacy          |
| `joining`    | parts of one site's records become the summary of the site    |
| `summary`    | `ClientSummary`: the summary itself, and what must hold in it |
| `disclosure` | what a summary tells about the records behind it              |
| `layout`     | the bytes of a summary                                        |
| `signatures` | who sent a file, and the keys that a server knows             |
"""

from gcfcp.summary import signatures
from gcfcp.summary.cells import (
    ALL,
    Counted,
    certain_groups,
    counted,
    possible_cells,
    possible_groups,
    sensitivity_of,
    small_combinations,
)
from gcfcp.summary.client import (
    Making,
    assemble,
    assemble_groups,
    held_out,
    refuse_empty,
    refuse_sources,
    summarize,
)
from gcfcp.summary.counts import (
    CellCounter,
    counts_of,
    places_of,
    rows_of,
    summary_from_counts,
    with_min_count,
)
from gcfcp.summary.disclosure import Disclosure, hidden_groups
from gcfcp.summary.joining import EXACT_ROWS, finer, joined, usual_delta
from gcfcp.summary.summary import BY, ClientSummary

__all__ = [
    "ALL",
    "BY",
    "EXACT_ROWS",
    "CellCounter",
    "ClientSummary",
    "Counted",
    "Disclosure",
    "Making",
    "assemble",
    "assemble_groups",
    "certain_groups",
    "counted",
    "counts_of",
    "finer",
    "held_out",
    "hidden_groups",
    "joined",
    "places_of",
    "possible_cells",
    "possible_groups",
    "refuse_empty",
    "refuse_sources",
    "rows_of",
    "sensitivity_of",
    "signatures",
    "small_combinations",
    "summarize",
    "summary_from_counts",
    "usual_delta",
    "with_min_count",
]
