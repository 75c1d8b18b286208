"""Thresholds by atom: the table that every method returns, and the rules that fill it.

An atom is the set of all rows that belong to exactly the same groups. A threshold is one number for
each atom.

| module  | what it is for                                                           |
|---------|--------------------------------------------------------------------------|
| `charge`| what the test point weighs in the simultaneous rule, atom by atom        |
| `rules` | how an atom gets its threshold, whether calibration has seen it or not   |
| `every` | the thresholds of every combination of groups that can occur             |
| `table` | `ThresholdTable`: the thresholds as a value, and their lookup for a row  |
"""

from gcfcp.thresholds.charge import Charge, swing
from gcfcp.thresholds.every import MOST_COMBINATIONS, every_threshold
from gcfcp.thresholds.rules import ByGroup, Constant, Rule, SeenOnly, Simultaneous
from gcfcp.thresholds.table import ThresholdTable

__all__ = [
    "MOST_COMBINATIONS",
    "ByGroup",
    "Charge",
    "Constant",
    "Rule",
    "SeenOnly",
    "Simultaneous",
    "ThresholdTable",
    "every_threshold",
    "swing",
]
