"""Confidence bounds on coverage, proved for any mixture of clients.

| module    | what it is for                                                         |
|-----------|------------------------------------------------------------------------|
| `betting` | a lower bound on the coverage of each cell, from counts of each client |
| `levels`  | the lowest threshold whose coverage is certain enough                  |
| `beta`    | the exact bound of one client (Clopper and Pearson)                    |
"""

from gcfcp.bounds.beta import clopper_pearson
from gcfcp.bounds.betting import lower_bound
from gcfcp.bounds.levels import Evidence, lowest_certain

__all__ = ["Evidence", "clopper_pearson", "lower_bound", "lowest_certain"]
