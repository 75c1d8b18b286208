"""Thresholds by atom: what every method ends in, and what prediction looks up.

A `ThresholdTable` holds the threshold of each atom that was seen in calibration, and the rule
that gives the threshold of any other. One kind of table serves all methods, so one predictor, one
audit and one report serve them too.

| rule         | threshold of a row                                                   |
|--------------|----------------------------------------------------------------------|
| simultaneous | S* of the augmented quantile regression over the coreset (the paper) |
| max          | the largest single-group threshold over the groups of the row        |
| first        | the single-group threshold of the row's lowest group                 |
| constant     | the same for every row                                               |

Cost of a lookup: some nanoseconds a row; an atom that was not seen is solved once and kept.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import AtomLookup, Groups, find_atoms
from gcfcp.solver import Coreset, Solution, Solver

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

RULES = ("simultaneous", "max", "first", "constant")


@dataclass(frozen=True, eq=False)
class ThresholdTable:
    """The thresholds of a calibration, and where those of unseen atoms come from.

    `coreset` is what the simultaneous rule solves; without it only the atoms of the table have a
    threshold. `carriers` and `hopeless` account for suppressed records, of which neither score nor
    atom is known; `pooling` shows why they must, and why this is enough:

    - a row of a `hopeless` group, which they make infinite on its own, has threshold +inf;
    - `carriers` are atoms of the coreset with weight at +inf on their behalf. Where the threshold
      of such an atom is infinite in a solution, that weight was counted as covered though nobody
      knows where it lies, so rows that share a group with the atom have threshold +inf.
    """

    groups: Groups
    alpha: Fraction
    rule: str
    membership: Bools  # (a, G)
    thresholds_by_atom: Floats  # (a,)
    group_thresholds: Floats | None = None  # (G,) of the rules max and first
    coreset: Coreset | None = None
    carriers: Bools | None = None  # (atoms of the coreset,)
    hopeless: Bools | None = None  # (G,)
    _unseen: dict[bytes, float] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise GCFCPError(f"rule={self.rule!r:.40} is none of {', '.join(RULES)}")

    @cached_property
    def solver(self) -> Solver:
        """The solver of the simultaneous rule; an error where the coreset was left out."""
        if self.coreset is None:
            raise GCFCPError(
                "an atom that was not seen in calibration needs the coreset, which this predictor "
                "was saved without: save it with coreset=True, or predict only for seen atoms"
            )
        return Solver(self.coreset, self.alpha)

    @cached_property
    def _lookup(self) -> AtomLookup:
        return AtomLookup(self.membership)

    def thresholds(self, membership: Any, rng: Generator | None = None) -> Floats:
        """The threshold of every row: (n, G) gives (n,), label-dependent (n, L, G) gives (n, L).

        With `rng` thresholds are randomised (Gibbs et al.): the dual threshold of each row is
        drawn from [-alpha w_test, (1 - alpha) w_test], which makes coverage exact instead of
        conservative for one client without ties. A threshold can then be -inf, which is an empty
        set, as easily as +inf. Only the simultaneous rule has this.
        """
        shape = np.shape(membership)
        matrix = self.groups.check(membership, label_dependent=len(shape) == 3)
        rows = matrix.reshape(-1, len(self.groups))
        values = self._of_rows(rows) if rng is None else self._randomised(rows, rng)
        return values.reshape(matrix.shape[:-1])

    def _of_rows(self, rows: Bools) -> Floats:
        if self.rule == "constant":
            return np.full(len(rows), self.thresholds_by_atom[0])
        index = self._lookup.find(rows)
        known = np.append(self.thresholds_by_atom, np.nan)
        values = known[index]
        missing = index < 0
        if missing.any():
            atoms = find_atoms(np.ascontiguousarray(rows[missing]))
            self._warn_of_uncovered(atoms.uncovered)
            values[missing] = self.of_atoms(atoms.membership)[atoms.index]
        return values

    @staticmethod
    def _warn_of_uncovered(count: int) -> None:
        if count:
            warnings.warn(
                f"{count} rows belong to no group: nothing is promised for them and their "
                "threshold is +inf; Groups.with_all() adds a group that everyone belongs to",
                GCFCPWarning,
                stacklevel=4,
            )

    def of_atoms(self, membership: Bools) -> Floats:
        """Thresholds of atoms by the rule, solved once and kept."""
        if self.rule in ("max", "first"):
            return self._of_groups(membership)
        # One lookup and one store a key: both are atomic, so that many threads may come here.
        keys = [row.tobytes() for row in membership]
        new = [i for i, key in enumerate(keys) if key not in self._unseen]
        if new:
            for i, threshold in zip(new, self.solve(membership[new]), strict=True):
                self._unseen[keys[i]] = threshold
        return np.array([self._unseen[key] for key in keys])

    def solve(self, membership: Bools) -> list[float]:
        """S* of each row by the simultaneous rule, nothing looked up."""
        return [
            self._admissible(row, solution)
            for row, solution in zip(membership, self.solver.solve(membership), strict=True)
        ]

    def _admissible(self, row: Bools, solution: Solution) -> float:
        """The solution's threshold, or +inf where suppressed records stand in its way."""
        if self.hopeless is not None and (row & self.hopeless).any():
            return np.inf
        if self.carriers is not None and self.coreset is not None:
            doubtful = self.carriers & solution.infinite_atoms
            if (self.coreset.membership[doubtful] & row).any():
                return np.inf
        return solution.threshold

    def _of_groups(self, membership: Bools) -> Floats:
        assert self.group_thresholds is not None
        by_group: Floats = np.where(membership, self.group_thresholds, -np.inf)
        none = ~membership.any(axis=1)
        if self.rule == "max":
            values: Floats = by_group.max(axis=1)
        else:
            values = by_group[np.arange(len(by_group)), np.argmax(membership, axis=1)]
        values[none] = np.inf
        return values

    def _randomised(self, rows: Bools, rng: Generator) -> Floats:
        """One draw of the dual threshold a row. S is a rising step function of it in each atom."""
        if self.rule != "simultaneous":
            raise GCFCPError(f"rule {self.rule!r} has no randomised thresholds: leave rng out")
        atoms = find_atoms(rows)
        solver = self.solver
        ratio = float(self.alpha / (1 - self.alpha))
        t = rng.uniform(-ratio * solver.t, solver.t, size=len(rows))
        values = np.empty(len(rows))
        for i, row in enumerate(atoms.membership):
            mine = np.flatnonzero(atoms.index == i)
            order = mine[np.argsort(t[mine])]
            values[order] = self._steps(row, t[order])
        return values

    def _steps(self, row: Bools, t: Floats) -> Floats:
        """S at ascending dual thresholds: where two ends agree, so does all between them."""
        values = np.empty(len(t))
        spans = [(0, len(t) - 1)]
        while spans:
            ends = sorted({i for span in spans for i in span})
            solved = self.solver.solve(np.repeat(row[None], len(ends), axis=0), t[ends])
            for i, solution in zip(ends, solved, strict=True):
                if t[i] < 0 and not solution.bounded and row.any():
                    # Nothing holds this row from below, where S* = +inf says: from above.
                    solution = replace(solution, threshold=-np.inf)
                values[i] = self._admissible(row, solution)
            halves = []
            for low, high in spans:
                if values[low] == values[high]:
                    values[low : high + 1] = values[low]
                elif high - low > 1:
                    middle = (low + high) // 2
                    halves += [(low, middle), (middle, high)]
            spans = halves
        return values
