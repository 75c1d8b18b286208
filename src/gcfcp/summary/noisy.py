"""A summary with noise: what leaves a site that is asked for differential privacy.

Every count of every cell that the site could have gets noise, also where it has no record: an atom
that is there only if it has records would tell that it has some. Which cells these are follows from
the groups, the grid, `by` and what the site declares (its name, and the groups that are absent),
and from no record. By atom they are all combinations of the groups, by group all groups.

What else leaves is public or declared: n, the names, the settings. `suppressed`, `uncovered` and
the errors are 0 and say nothing, and records in no group are not counted anywhere but in n. Noisy
counts can be negative. They are neither clipped nor smoothed, because the server's proof is about
counts plus noise; see `calibration.noisy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gcfcp.groups import AtomLookup
from gcfcp.noise import Noise, with_noise
from gcfcp.summary.cells import possible_cells, sensitivity_of
from gcfcp.summary.counts import MOST_PLACES, CellCounts
from gcfcp.summary.summary import ClientSummary

if TYPE_CHECKING:
    from gcfcp.summary.client import Making


def noisy(summary: ClientSummary, making: Making) -> ClientSummary:
    """The same summary with fresh noise in every count.

    - `summary`: The exact summary, with `min_count=1`, which stays at the site.
    - `making`: How it was made; its `epsilon` is that of the noise.
    """
    grid, possible = summary.grid, summary.possible
    assert grid is not None
    assert making.epsilon is not None
    cells = len(grid) + 1
    rows = possible_cells(possible, making.certain, summary.by, MOST_PLACES // cells)
    counts = np.zeros((len(rows), cells), dtype=np.int64)
    row = np.repeat(AtomLookup(rows).find(summary.membership), np.diff(summary.start))
    counts[row, grid.place(summary.values)] = summary.counts
    sensitivity = sensitivity_of(possible, summary.by)
    noise = Noise.of(making.epsilon, sensitivity)
    told = with_noise(counts.ravel(), noise.scale, sensitivity, noise.epsilon)
    return making.summary(
        rows,
        [CellCounts(grid.points, one) for one in told.reshape(counts.shape)],
        n=summary.n,
        suppressed=0,
        suppressed_groups=(0,) * len(summary.groups),
        strangers=() if summary.by == "atom" else (0,) * len(summary.groups),
        uncovered=0,
        noise=noise,
    )
