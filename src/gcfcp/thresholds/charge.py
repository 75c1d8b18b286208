"""What the test point weighs at most in the simultaneous rule, atom by atom.

A record of client k weighs omega_k = pi_k / n_k, or lambda_k = pi_k / (n_k + 1) if the client is in
the set T (see `calibration.correction`). Theorem 2 of docs/guarantees.md says how much the test
point must weigh so that every group keeps its promise. `rules.Simultaneous` finds that by following
every exchange of a record, if there are not too many. In any case it is enough, for a test row of
atom A, if

    w_A > x sum_{k in T} lambda_k + (1 + y_A) max_k omega_k,
    y_A = max(plus_A alpha / (1 - alpha), minus_A),

where the maximum is over the clients outside of T that can have rows of A, `plus_A` and `minus_A`
are the imbalance of A among the atoms of the records (see `groups.imbalance`), and x is 1 for one
group and grows with the number of groups. So the weight is a matter of the atom, and an atom that
was never seen has one too.

Example: all records weigh 1 / n, T is empty, alpha = 0.1 and two groups overlap. A row in both
groups has plus = 1 and minus = 0, so that the test point weighs 1.11 records. A row in one of them
has minus = 1, and it weighs 2.

Cost: that of `imbalances`, which keeps what it has found.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gcfcp.arrays import Bools, Floats
from gcfcp.groups import INDEPENDENT, Imbalance, imbalances
from gcfcp.solver import EXCESS


@dataclass(frozen=True, eq=False)
class Charge:
    """How much the test point weighs, by atom, in the unit of the coreset's weights.

    The clients fall into classes that can have the same groups; c is the number of classes.
    """

    alpha: Fraction
    inside: float  # x sum_{k in T} lambda_k.
    outside: Floats  # (c,): The largest omega_k among the clients of each class outside of T.
    possible: Bools  # (c, G): The groups that the clients of each class can have.

    def weights(self, atoms: Bools, rows: Bools) -> Floats:
        """w_A of each row (m, G), if the records have these atoms (a, G).

        It is infinite for a row that no client can have, and for one that is in no group.
        """
        inside = rows.any(axis=1)
        own = rows[inside]
        pairs = list(zip(self.heaviest(own).tolist(), imbalances(atoms, own), strict=True))
        known = {pair: self._weight(*pair) for pair in set(pairs)}  # Few of them are different.
        weights = np.full(len(rows), np.inf)
        weights[inside] = [known[pair] for pair in pairs]
        return weights

    def heaviest(self, rows: Bools) -> Floats:
        """max_k omega_k over the clients that can have each row (m, G); -1 if none can."""
        # (m, c): Whether a class can have the row, that is, all groups of it.
        fits = ~(rows[:, None, :] & ~self.possible[None]).any(axis=2)
        heaviest: Floats = np.where(fits, self.outside, -1.0).max(axis=1)
        return heaviest

    def _weight(self, heaviest: float, imbalance: Imbalance) -> float:
        """w_A for the largest omega_k and the imbalance of one atom, rounded once."""
        if heaviest < 0 or (heaviest > 0 and np.isinf(imbalance.gamma)):
            return np.inf
        if heaviest == 0:
            return self.inside
        total = Fraction(self.inside) + (1 + swing(imbalance, self.alpha)) * Fraction(heaviest)
        # If no other atom can move this one, the bound itself is enough, as for a single group.
        # Elsewhere a little more is needed, which lies far above the rounding of sums of weights.
        alone = imbalance.ground == INDEPENDENT and self.inside == 0
        return float(total if alone else total * (1 + Fraction(EXCESS)))


def swing(imbalance: Imbalance, alpha: Fraction) -> Fraction:
    """y_A = max(plus alpha / (1 - alpha), minus): what an exchanged record can take away, in
    records, beside the test record itself."""
    return max(Fraction(imbalance.plus) * alpha / (1 - alpha), Fraction(imbalance.minus))
