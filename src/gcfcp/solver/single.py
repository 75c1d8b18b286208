"""The threshold of an atom that shares nothing with others, in closed form.

If beta' Phi_A can be chosen freely for one atom A, the problem has a single unknown theta, and

    S* = the smallest score after which the slope of f_A is at least t = (1 - alpha) w_test.

That is a weighted quantile: with n scores of weight 1 and w_test = 1 it is the
ceil((n + 1)(1 - alpha))-th smallest score. The slopes are the prefix sums of `problem`, and a
comparison of weights is decided as everywhere in the solver: exactly where all numbers are whole,
and otherwise a difference within rounding counts as a tie.

Cost: a running sum over the scores, and a binary search for each t.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.solver.problem import SLOPE_TOLERANCE, Coreset, slopes_of


@dataclass(frozen=True)
class Quantiles:
    """Where S* of one atom lies, for m values of t."""

    threshold: Floats  # (m,): S*.
    bounded: Bools  # (m,): If False, no finite threshold is valid, whatever the scores are.
    infinite: Bools  # (m,): theta rests on a score of +inf.


class SingleAtom:
    """The thresholds of one atom by itself."""

    def __init__(self, coreset: Coreset, alpha: Fraction) -> None:
        """coreset: It has one atom."""
        self.coreset = coreset
        self.alpha = alpha

    @cached_property
    def _slopes(self) -> tuple[Floats, bool]:
        """The slope before each score and after the last, and whether all of them are whole."""
        return slopes_of(self.coreset, self.alpha)

    def _rounding(self, t: Floats) -> Floats:
        """The rounding in a comparison of t with a slope, if they are not whole, (m,).

        f_A has the slope -(1 - alpha) W before the first score and alpha W after the last.
        """
        slopes, _ = self._slopes
        rounding: Floats = SLOPE_TOLERANCE * (slopes[-1] - slopes[0] + np.abs(t))
        return rounding

    def at(self, t: Floats) -> Quantiles:
        """S* for each t, (m,), which is in the units of `Solver.t`."""
        slopes, whole = self._slopes
        rounding = np.where(whole & (t == np.rint(t)), 0.0, self._rounding(t))
        place: Ints = slopes[1:].searchsorted(t - rounding)
        # t counts as lowered by an infinitesimal, so that it must exceed the first slope.
        bounded = (place < len(slopes) - 1) & (t > slopes[0] + rounding)
        values = self.coreset.values[np.minimum(place, len(slopes) - 2)]
        threshold = np.where(bounded, values, np.inf)
        return Quantiles(threshold, bounded, bounded & np.isposinf(values))

    def highest(self, t: Floats) -> Floats:
        """The largest theta that is optimal for each t, (m,); +inf if nothing limits it.

        That is the first score after which the slope exceeds t.
        """
        slopes, _ = self._slopes
        place = slopes[1:].searchsorted(t + self._rounding(t), side="right")
        values = np.append(self.coreset.values, np.inf)
        found: Floats = values[place]
        return found
