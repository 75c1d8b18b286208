"""How much each client moves each threshold, computed exactly by leaving the client out.

For each client the whole calibration is done again without it, with the mixture renormalised, and
the thresholds of the same atoms are compared (for summaries by group, the levels of the groups).
Nothing is approximated. An atom that only this
client has is solved from the records of the other clients, like any atom that was never seen.

Cost: one calibration for each client.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gcfcp.arrays import Bools, Floats
from gcfcp.calibration.reasons import cells_of
from gcfcp.errors import GCFCPError, GCFCPWarning

if TYPE_CHECKING:
    from gcfcp.calibration.server import Calibration


@dataclass(frozen=True)
class Influence:
    """What one client does to the thresholds of one group.

    The shift of an atom is its S* with the client minus its S* without the client. It is positive
    where the client makes sets larger. Only atoms that have a finite threshold both with and
    without the client have a shift. Atoms that are finite in one of the two cases only are counted.
    """

    client: str
    group: str
    mean: float  # The mean shift of the group's atoms, by weight; NaN if no atom has a shift.
    largest: float  # The shift of the largest absolute size; NaN if no atom has a shift.
    atom: tuple[str, ...]  # The groups of the atom that has the largest shift.
    only_with: int  # How many atoms have a finite threshold with the client but not without it.
    only_without: int  # How many atoms have a finite threshold without the client but not with it.


def influences(calibration: Calibration) -> tuple[Influence, ...]:
    """One record for each client and group; see `Calibration.influence`."""
    clients = [s.client for s in calibration.summaries]
    if len(clients) < 2:
        raise GCFCPError(
            "influence compares a calibration with one that leaves a client out, and this one has "
            "a single client: two clients are needed"
        )
    rows, thresholds = cells_of(calibration.threshold_table)
    weight = np.array([record.weight for record in calibration.atoms])
    found: list[Influence] = []
    for client in clients:
        with warnings.catch_warnings():
            # Infinite thresholds are counted in the records below and need no warning.
            warnings.simplefilter("ignore", GCFCPWarning)
            without = _without(calibration, client, rows)
        found += [
            _record(calibration, client, g, weight, thresholds, without, rows)
            for g in range(len(calibration.groups))
        ]
    return tuple(found)


def _without(calibration: Calibration, client: str, rows: Bools) -> Floats:
    """The threshold of each atom (a, G) if this client is left out, float (a,).

    For summaries by group it is the level of each group.
    """
    left = [s for s in calibration.summaries if s.client != client]
    if not any(calibration.shares[s.client] and len(s.values) for s in left):
        return np.full(len(rows), np.inf)  # No record with weight is left.
    table = calibration.table_without(client)
    return cells_of(table)[1] if calibration.by == "group" else table.thresholds(rows)


def _record(
    calibration: Calibration,
    client: str,
    g: int,
    weight: Floats,
    present: Floats,
    without: Floats,
    membership: Bools,
) -> Influence:
    """What the client does to group g: `present` and `without` are the thresholds of all atoms."""
    mine = np.flatnonzero(membership[:, g])
    finite, also = np.isfinite(present[mine]), np.isfinite(without[mine])
    both = mine[finite & also]
    shift = present[both] - without[both]
    mean, largest, atom = math.nan, math.nan, ()
    if len(both):
        at = int(np.argmax(np.abs(shift)))
        largest = float(shift[at])
        total = float(weight[both].sum())
        mean = float(weight[both] @ shift / total) if total else float(shift.mean())
        atom = calibration.atoms[both[at]].groups
    return Influence(
        client,
        calibration.groups.names[g],
        mean,
        largest,
        atom,
        int(np.count_nonzero(finite & ~also)),
        int(np.count_nonzero(~finite & also)),
    )
