"""The exact coverage of counts with noise: the noise's law is enumerated, and nothing is drawn.

The records lie still: each site has one score only, so that its counts are certain and the coverage
at each edge is known. What is left to chance is the noise. Given the total S of the noise, whether
an edge is reached depends on the noise S_j of the cells up to it, which is a Markov chain. So for
every value of S the law of the first edge that is reached follows from one product of a vector and
a matrix for each cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Floats = Any


def level_law(
    counts: Any, scale: float, needed: Callable[[Floats], Floats], most: int, widest: int
) -> Floats:
    """P(level = e_j) for each edge, and that of +inf last, (B + 1,).

    counts: The certain counts of the cells, (B + 1,), in which every place has noise of this scale.
    needed: From the noisy totals (t,), what the noisy count up to each edge must reach, (t, B).
    most: The noise of a cell is enumerated from -most to most.
    widest: Sums of noise are enumerated from -widest to widest.
    """
    counts = np.asarray(counts)
    edges = len(counts) - 1
    step = np.arange(-most, most + 1)
    one = np.exp(-np.abs(step) / scale)
    one /= one.sum()
    side = np.arange(-widest, widest + 1)
    below = np.cumsum(counts)[:-1]
    difference = side[:, None] - side[None, :]  # From the column to the row.

    def law(cells: int) -> Floats:
        """P(the noise of so many cells is the difference)."""
        found = np.ones(1)
        for _ in range(cells):
            found = np.convolve(found, one)
        reach = len(found) // 2
        inside = np.abs(difference) <= reach
        return np.where(inside, found[np.clip(difference + reach, 0, len(found) - 1)], 0.0)

    need = needed(counts.sum() + side)
    kernel = law(1)
    waiting = np.zeros((len(side), len(side)))  # P(S_j, no edge was reached), for each total S.
    waiting[widest] = 1.0
    found = []
    for j in range(edges):
        waiting = kernel @ waiting
        reached = (below[j] + side)[:, None] >= need[:, j][None, :]
        rest = law(edges - j).T  # P(the other cells bring S_j to S).
        found.append(float((np.where(reached, waiting, 0) * rest).sum()))
        waiting = np.where(reached, 0, waiting)
    found.append(float((waiting * kernel.T).sum()))
    assert math.isclose(sum(found), 1, abs_tol=1e-4), sum(found)
    return np.array(found) / sum(found)


def coverage(counts: Any, law: Floats) -> float:
    """The coverage of the records, whose law is that of the counts, on average over the noise."""
    reached = np.append(np.cumsum(counts)[:-1] / np.sum(counts), 1.0)
    return float(law @ reached)
