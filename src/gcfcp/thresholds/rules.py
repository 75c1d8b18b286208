"""The rules by which an atom gets its threshold.

| rule           | threshold of a row                                                    |
|----------------|-----------------------------------------------------------------------|
| `Simultaneous` | S* of the augmented quantile regression over the coreset (the paper)  |
| `ByGroup`      | "max": the largest single-group threshold over the groups of the row  |
|                | "first": the single-group threshold of the row's first group          |
| `Constant`     | the same for every row                                                |
| `SeenOnly`     | none: the file was saved without what an unseen atom would need       |

A rule is a value that answers for any atom, whether it was seen in calibration or not. A
`ThresholdTable` asks it once for the seen atoms, and later only for atoms that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.random import Generator

from gcfcp import checks
from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError
from gcfcp.groups import find_atoms
from gcfcp.solver import Coreset, Solution, Solver


class Rule(Protocol):
    """What every rule can do."""

    @property
    def name(self) -> str:
        """The word for the rule in files and options."""

    def thresholds(self, atoms: Bools) -> Floats:
        """The threshold of each atom, given as membership rows (a, G)."""


@dataclass(frozen=True)
class Constant:
    """One threshold for every row, whatever its groups."""

    threshold: float
    name: ClassVar[str] = "constant"

    def thresholds(self, atoms: Bools) -> Floats:
        """The one threshold, for each atom."""
        return np.full(len(atoms), self.threshold)


@dataclass(frozen=True, eq=False)
class ByGroup:
    """The threshold of a row follows from those of its groups, each calibrated by itself.

    name: "max" takes the largest of them, "first" that of the row's first group.
    """

    name: str
    by_group: Floats  # (G,)

    def __post_init__(self) -> None:
        checks.choice("rule", self.name, "max", "first")

    def thresholds(self, atoms: Bools) -> Floats:
        """The threshold of each atom; +inf for the atom of no group, for which nothing is known."""
        own = np.where(atoms, self.by_group, -np.inf)
        if self.name == "max":
            values: Floats = own.max(axis=1)
        else:
            values = own[np.arange(len(own)), np.argmax(atoms, axis=1)]
        values[~atoms.any(axis=1)] = np.inf
        return values


@dataclass(frozen=True)
class SeenOnly:
    """The simultaneous rule without its coreset: only the atoms of the table have a threshold."""

    name: ClassVar[str] = "simultaneous"

    def thresholds(self, atoms: Bools) -> Floats:
        """An error that says what is missing."""
        raise GCFCPError(
            "an atom that was not seen in calibration needs the coreset, which this predictor "
            "was saved without: save it with coreset=True, or predict only for seen atoms"
        )


@dataclass(frozen=True, eq=False)
class Simultaneous:
    """S* of any atom, solved from the coreset, and kept once it is solved.

    `carriers` and `hopeless` account for suppressed records, of which neither score nor atom is
    known. `calibration.pooling` shows why they must, and why this is enough:

    - A row of a `hopeless` group, which suppressed records make infinite on its own, has threshold
      +inf.
    - `carriers` are atoms of the coreset that carry weight at +inf on behalf of suppressed records.
      Where the threshold of such an atom is infinite in a solution, that weight was counted as
      covered though nobody knows where it lies. Rows that share a group with the atom then have
      threshold +inf.
    """

    coreset: Coreset
    alpha: Fraction
    carriers: Bools | None = None  # (atoms of the coreset,)
    hopeless: Bools | None = None  # (G,)
    _kept: dict[bytes, float] = field(default_factory=dict, init=False, repr=False)

    name: ClassVar[str] = "simultaneous"

    @cached_property
    def solver(self) -> Solver:
        """The solver over the coreset, made when it is first needed."""
        return Solver(self.coreset, self.alpha)

    def thresholds(self, atoms: Bools) -> Floats:
        """S* of each atom; one that was solved before is looked up."""
        # Each key is looked up once and stored once, and both are atomic: threads may share this.
        keys = [row.tobytes() for row in atoms]
        new = [i for i, key in enumerate(keys) if key not in self._kept]
        if new:
            for i, threshold in zip(new, self.solve(atoms[new]).tolist(), strict=True):
                self._kept[keys[i]] = threshold
        return np.array([self._kept[key] for key in keys])

    def solve(self, atoms: Bools) -> Floats:
        """S* of each atom, solved anew."""
        solutions = zip(atoms, self.solver.solve(atoms), strict=True)
        return np.array([self._admissible(row, solution) for row, solution in solutions])

    def _admissible(self, row: Bools, solution: Solution) -> float:
        """The solution's threshold, or +inf where suppressed records stand in its way."""
        if self.hopeless is not None and (row & self.hopeless).any():
            return np.inf
        if self.carriers is not None:
            doubtful = self.carriers & solution.infinite_atoms
            if (self.coreset.membership[doubtful] & row).any():
                return np.inf
        return solution.threshold

    def randomised(self, rows: Bools, rng: Generator) -> Floats:
        """Randomised thresholds (Gibbs et al.), one draw of the dual threshold for each row.

        The dual threshold is uniform on [-alpha w_test, (1 - alpha) w_test]. Within an atom S is a
        rising step function of it, so rows of an atom share most of the work.
        """
        atoms = find_atoms(rows)
        ratio = float(self.alpha / (1 - self.alpha))
        t = rng.uniform(-ratio * self.solver.t, self.solver.t, size=len(rows))
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
                    # No record limits this row's threshold from below, so it is -inf. (A threshold
                    # of +inf means that no record limits it from above.)
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
