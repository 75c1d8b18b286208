"""How much each client moves each threshold: exactly, by leaving it out.

No approximation is made: for each client the whole calibration is done again without it, with the
mixture renormalised, and the thresholds of the same atoms are compared. An atom that only the
client has is solved from the others' records, as any atom that was never seen.

Cost: K calibrations for K clients.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError, GCFCPWarning

if TYPE_CHECKING:
    from gcfcp.calibration.server import Calibration


@dataclass(frozen=True)
class Influence:
    """What one client does to the thresholds of one group.

    A shift is S* with the client less S* without it: positive where the client makes sets larger.
    Atoms whose threshold is infinite either way do not move; those that are finite only with the
    client, or only without it, are counted and have no finite shift.
    """

    client: str
    group: str
    mean: float  # shift, averaged over the group's atoms by weight; NaN if none is finite
    largest: float  # the shift of largest size; NaN if none is finite
    atom: tuple[str, ...]  # where that is
    only_with: int  # atoms that are finite with the client and not without it
    only_without: int  # atoms that are finite without the client and not with it


def influences(calibration: Calibration) -> tuple[Influence, ...]:
    """One record for each client and group; see `Calibration.influence`."""
    clients = [s.client for s in calibration.summaries]
    if len(clients) < 2:
        raise GCFCPError(
            "influence compares with what is left without a client: two clients are needed"
        )
    table = calibration.threshold_table
    weight = np.array([record.weight for record in calibration.atoms])
    found: list[Influence] = []
    for client in clients:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GCFCPWarning)  # infinity is counted here, not news
            without = _without(calibration, client)
        found += [
            _record(
                calibration, client, g, weight, table.thresholds_by_atom, without, table.membership
            )
            for g in range(len(calibration.groups))
        ]
    return tuple(found)


def _without(calibration: Calibration, client: str) -> Floats:
    rows = calibration.threshold_table.membership
    left = [s for s in calibration.summaries if s.client != client]
    if not any(calibration.shares[s.client] and len(s.values) for s in left):
        return np.full(len(rows), np.inf)  # nothing is known without it
    return calibration.without(client).thresholds(rows)


def _record(
    calibration: Calibration,
    client: str,
    g: int,
    weight: Floats,
    present: Floats,
    without: Floats,
    membership: Bools,
) -> Influence:
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
