"""Groups of rows, and the atoms into which they divide the rows.

A family of G groups is public: every client uses the same one, and its fingerprint travels with
every summary. `Groups` holds the names of the groups and, if they have any, the conditions that
decide which rows belong to them. A membership matrix (bool, n rows x G groups) states for each row
which groups it belongs to. Groups may overlap. The rows that belong to exactly the same groups form
an atom, the finest cell that the family can tell apart. Each atom has one threshold.

| module       | what it is for                                                  |
|--------------|-----------------------------------------------------------------|
| `family`     | `Groups`: names, conditions, fingerprint, the groups file       |
| `algebra`    | `Group`: one group, and new ones by `&`, `|` and `~`            |
| `levels`     | one group for each level of a column                            |
| `counting`   | how many rows of a frame each group has                         |
| `unmatched`  | which values occur where a group has no rows                    |
| `definition` | what may be a name or a condition                               |
| `given`      | the membership matrix that a caller gives                       |
| `evaluation` | conditions and columns, evaluated in a frame                    |
| `sites`      | every site as a group: who belongs to it                        |
| `predicates` | the SQL that a condition may use                                |
| `costs`      | what a condition may cost at most, computed from its words      |
| `frames`     | columns from pandas, polars, Arrow or a mapping                 |
| `plain`      | groups without conditions, from arrays and lists                |
| `atoms`      | the distinct rows of a membership matrix, and how to find them  |
| `imbalance`  | how much one record can move the threshold of another atom      |
| `possible`   | the combinations of groups that a row can have                  |
"""

from gcfcp.groups.algebra import Group
from gcfcp.groups.atoms import AtomLookup, Atoms, find_atoms, pack
from gcfcp.groups.counting import GroupCount, GroupCounts
from gcfcp.groups.family import Groups
from gcfcp.groups.imbalance import (
    BOUNDED,
    INDEPENDENT,
    Imbalance,
    imbalances,
    largest_of_any,
    listing,
)
from gcfcp.groups.levels import Levels
from gcfcp.groups.possible import possible_rows, single_rows
from gcfcp.groups.unmatched import Held
from gcfcp.groups.unmatched import sentence as unmatched_sentence

__all__ = [
    "BOUNDED",
    "INDEPENDENT",
    "AtomLookup",
    "Atoms",
    "Group",
    "GroupCount",
    "GroupCounts",
    "Groups",
    "Held",
    "Imbalance",
    "Levels",
    "find_atoms",
    "imbalances",
    "largest_of_any",
    "listing",
    "pack",
    "possible_rows",
    "single_rows",
    "unmatched_sentence",
]
