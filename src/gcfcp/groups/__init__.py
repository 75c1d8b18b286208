"""Groups of rows, and the atoms that they cut the rows into.

A family of G groups is public: every client uses the same one, and its fingerprint travels with
every summary. `Groups` names the family and, if it has conditions, says who belongs to it. A
membership matrix (bool, n rows x G groups) says who does. Groups may overlap. The rows that belong
to exactly the same groups form an atom, the finest cell that the family can tell apart: a threshold
is a number for each atom.

| module       | what it is for                                                  |
|--------------|-----------------------------------------------------------------|
| `family`     | `Groups`: names, conditions, fingerprint, the groups file       |
| `predicates` | what SQL a condition may use                                    |
| `frames`     | columns from pandas, polars, Arrow or a mapping                 |
| `atoms`      | the distinct rows of a membership matrix, and looking them up   |
"""

from gcfcp.groups.atoms import AtomLookup, Atoms, find_atoms, pack
from gcfcp.groups.family import Groups

__all__ = ["AtomLookup", "Atoms", "Groups", "find_atoms", "pack"]
