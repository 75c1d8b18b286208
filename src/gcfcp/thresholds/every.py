"""The thresholds of every combination of groups that can occur.

A file without the coreset cannot solve anything, so it lists what could be asked of it. Which of
the combinations had records in calibration cannot be told from such a list.

The limits below depend on the groups and on the coreset alone, and never on the time that a machine
needs, so that equal calibrations give equal files. They were chosen so that a list takes some
seconds on one core. docs/reference/formats.md has the measurements.

Cost: one solve for each combination that was not seen.
"""

from __future__ import annotations

from gcfcp.arrays import Bools, Floats
from gcfcp.groups import listing, possible_rows
from gcfcp.thresholds.rules import Simultaneous
from gcfcp.thresholds.table import ThresholdTable

MOST_COMBINATIONS = 1_024
"""A list has at most this many combinations: ten groups that overlap freely. As text they are some
hundred kilobytes."""

# A combination that was not seen is one more solve, whose effort grows with the number of atoms.
_MOST_EFFORT = 50_000
# The weight of its test point may need a list of subsets of the atoms (see `groups.imbalance`).
_MOST_SUBSETS = 2_000_000


def every_threshold(table: ThresholdTable) -> tuple[Bools, Floats] | None:
    """All combinations (c, G) and their thresholds (c,); None if they are beyond the limits."""
    rows = possible_rows(table.groups, MOST_COMBINATIONS)
    if rows is None or (isinstance(table.source, Simultaneous) and not _quick(table, rows)):
        return None
    return rows, table.of_rows(rows)


def _quick(table: ThresholdTable, rows: Bools) -> bool:
    """Whether the combinations that were not seen can be solved within the limits."""
    assert isinstance(table.source, Simultaneous)
    unseen = len(rows) - table.count_seen(rows)
    atoms = table.source.coreset.membership
    if unseen * len(atoms) > _MOST_EFFORT:
        return False
    return table.source.charge is None or unseen * listing(atoms) <= _MOST_SUBSETS
