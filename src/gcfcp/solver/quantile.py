"""The threshold of one group by itself: a weighted quantile, with the test point counted."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from gcfcp.arrays import Floats
from gcfcp.solver.problem import Coreset, combined, t_of
from gcfcp.solver.single import SingleAtom


def quantile(scores: Floats, weights: Floats, test: float, alpha: Fraction) -> float:
    """inf{t : the weight of the scores <= t is at least (1 - alpha)(the weight of all + test)}.

    That is S* of a family of one group, and it is solved as such, so that a rank is decided in the
    same exact way everywhere. Scores of +inf count, and scores without weight do not. If there is
    no weight at all, the outcome is +inf. Cost: a sort.

    Example: 9 scores of weight 1, test = 1 and alpha = 1/10 need a weight of 9: the largest score.
    """
    heavy = weights > 0
    if not heavy.any():
        return math.inf
    order = np.argsort(scores[heavy], kind="stable")
    one_atom = np.zeros(len(order), dtype=np.int64)
    _, values, masses = combined(one_atom, scores[heavy][order], weights[heavy][order])
    row = np.ones((1, 1), dtype=bool)
    single = SingleAtom(Coreset(row, np.array([0, len(values)]), values, masses, test), alpha)
    return float(single.at(t_of(np.array([test]), alpha)).threshold[0])
