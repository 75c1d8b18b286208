"""Thresholds by atom: the table that every method ends in, and the rules behind it.

| module  | what it is for                                             |
|---------|------------------------------------------------------------|
| `rules` | how an atom gets its threshold, seen or not                |
| `table` | `ThresholdTable`: the thresholds as a value, and the lookup |
"""

from gcfcp.thresholds.rules import ByGroup, Constant, Rule, SeenOnly, Simultaneous
from gcfcp.thresholds.table import ThresholdTable

__all__ = ["ByGroup", "Constant", "Rule", "SeenOnly", "Simultaneous", "ThresholdTable"]
