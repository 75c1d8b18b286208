"""The rules by which an atom gets its threshold.

| rule           | threshold of a row                                                    |
|----------------|-----------------------------------------------------------------------|
| `Simultaneous` | S* of the augmented quantile regression over the coreset (the paper)  |
| `ByGroup`      | "max": the largest single-group threshold over the groups of the row  |
|                | "first": the single-group threshold of the row's first group          |
|                | with a shape b, b(x) is added to it                                   |
| `Constant`     | the same for every row                                                |
| `SeenOnly`     | an error for a row that is not in the table: the file has no coreset  |
| `Mapped`       | a function of the threshold of another rule                           |

A rule is a value that gives the threshold of any atom, whether calibration has seen the atom or
not. A `ThresholdTable` asks its rule once for all atoms that were seen, and later only for atoms
that are not in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError
from gcfcp.groups import find_atoms
from gcfcp.shape import Shape
from gcfcp.solver import Coreset, DividedSolver, Solution
from gcfcp.thresholds.charge import Charge

MOST_FOLLOWED = 64
"""With more atoms than this, exchanges of records are not followed.

Their number grows as the square of that of the atoms.
"""

# The weights that are tried for the test point, in records.
_RECORDS = (1.125, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 9.0, 16.0)


class Rule(Protocol):
    """What every rule has: a name, and a threshold for any atom."""

    @property
    def name(self) -> str:
        """The word that files and options use for this rule."""

    def thresholds(self, atoms: Bools) -> Floats:
        """The threshold of each atom, float (a,). The atoms are membership rows, bool (a, G)."""


@dataclass(frozen=True)
class Constant:
    """One threshold for every row, whatever its groups."""

    threshold: float
    name: ClassVar[str] = "constant"

    def thresholds(self, atoms: Bools) -> Floats:
        """The same threshold for each atom, float (a,)."""
        return np.full(len(atoms), self.threshold)


@dataclass(frozen=True)
class Mapped:
    """A function of the threshold of another rule, such as the least probability in a set."""

    rule: Rule
    of: Callable[[Floats], Floats]  # It maps thresholds (n,) one by one.

    @classmethod
    def from_rule(cls, rule: Rule, of: Callable[[Floats], Floats]) -> Constant | Mapped:
        """A constant stays one, whose rows need not be looked up."""
        if isinstance(rule, Constant):
            return Constant(float(of(np.array([rule.threshold]))[0]))
        return cls(rule, of)

    @property
    def name(self) -> str:
        """The name of the other rule."""
        return self.rule.name

    def thresholds(self, atoms: Bools) -> Floats:
        """The function of the threshold of each atom, float (a,)."""
        return self.of(self.rule.thresholds(atoms))


@dataclass(frozen=True, eq=False)
class ByGroup:
    """A row's threshold comes from the thresholds of its groups, each calibrated by itself.

    name: "max" takes the largest of these thresholds; "first" takes that of the row's first group.
    With a shape these are levels, that is, thresholds of residuals s - b(x), and the row's
    threshold is b(x) more (see `Shape.raised`).
    """

    name: str
    by_group: Floats  # (G,): The threshold or level of each group, calibrated by itself.
    shape: Shape | None = None  # What was subtracted from the scores.

    def __post_init__(self) -> None:
        checks.choice("rule", self.name, "max", "first")

    def thresholds(self, atoms: Bools) -> Floats:
        """The threshold of each atom, float (a,). It is +inf for the atom that is in no group."""
        levels = self.levels(atoms)
        return levels if self.shape is None else self.shape.raised(levels, atoms)

    def levels(self, atoms: Bools) -> Floats:
        """The level of each atom, float (a,): its threshold before the shape is added."""
        own = np.where(atoms, self.by_group, -np.inf)
        if self.name == "max":
            values: Floats = own.max(axis=1)
        else:
            values = own[np.arange(len(own)), np.argmax(atoms, axis=1)]
        values[~atoms.any(axis=1)] = np.inf
        return values


@dataclass(frozen=True)
class SeenOnly:
    """The simultaneous rule without its coreset: only the atoms in the table have a threshold."""

    complete: bool = False  # Whether the table has every combination of groups that can occur.
    name: ClassVar[str] = "simultaneous"

    def thresholds(self, atoms: Bools) -> Floats:
        """+inf for the atom that is in no group; an error that says why for any other atom."""
        if not atoms.any(axis=1).any():
            return np.full(len(atoms), np.inf)
        if self.complete:
            raise GCFCPError(
                "a row has a combination of groups that cannot occur, because it is not in a group "
                "whose condition is TRUE, or is in the groups of two sites: correct its membership"
            )
        raise GCFCPError(
            "an atom that was not seen in calibration needs the coreset, which this predictor was "
            "saved without: make the predictor with gcfcp calibrate --with-coreset (or save it "
            "with coreset=True), or with --rule max, which needs none, or predict only for seen "
            "atoms"
        )

    def refuse_randomised(self) -> None:
        """Raise the error that says what randomised thresholds need."""
        raise GCFCPError(
            "randomised thresholds need the coreset, which this predictor was saved without: make "
            "the predictor with gcfcp calibrate --with-coreset (or save it with coreset=True), or "
            "leave threshold_rng out"
        )


@dataclass(frozen=True, eq=False)
class Simultaneous:
    """S* of any atom, solved from the coreset. A solved threshold is kept and not solved again.

    `carriers` and `hopeless` account for suppressed records: small atoms whose scores and groups a
    client does not publish. `calibration.problem` shows why this is needed and why it is enough.

    - A group is hopeless if it has no finite threshold on its own, with its suppressed records
      counted as scores of +inf. Every row of a hopeless group has the threshold +inf.
    - A carrier is an atom of the coreset that carries weight at +inf on behalf of suppressed
      records. If the threshold of a carrier is +inf in the solution for a row, this weight was
      counted as covered, although nobody knows where these records lie. If the row shares a group
      with the carrier, its threshold is +inf.

    `charge` gives the weight of the test point by atom. Without it, the test point weighs
    `coreset.test` in every atom, as it does in the paper and for one client.

    The weight of `charge` is enough, and often more than that. By theorem 2 of docs/guarantees.md
    it is enough that S* is at least as high as theta can get if the test record takes the place of
    another record (`Solver.highest`). So the exchanges with all atoms are followed, and the test
    point gets the least of some weights (1.125, 1.25, 1.5, ... records) at which S* is that high.
    """

    coreset: Coreset
    alpha: Fraction
    charge: Charge | None = None
    carriers: Bools | None = None  # (a,): Which atoms of the coreset are carriers.
    hopeless: Bools | None = None  # (G,): Which groups are hopeless.
    _kept: dict[bytes, float] = field(default_factory=dict, init=False, repr=False)
    _weights: dict[bytes, float] = field(default_factory=dict, init=False, repr=False)

    name: ClassVar[str] = "simultaneous"

    @cached_property
    def solver(self) -> DividedSolver:
        """The solver of the coreset. It is made when it is first needed."""
        return DividedSolver(self.coreset, self.alpha)

    def thresholds(self, atoms: Bools) -> Floats:
        """S* of each atom, float (a,). An atom that was solved before is looked up."""
        # Looking up a key and storing one are both atomic in Python, so threads may share a rule.
        # At worst two threads solve the same atom, and both store the same threshold.
        keys = [row.tobytes() for row in atoms]
        new = [i for i, key in enumerate(keys) if key not in self._kept]
        if new:
            for i, threshold in zip(new, self.solve(atoms[new]).tolist(), strict=True):
                self._kept[keys[i]] = threshold
        return np.array([self._kept[key] for key in keys])

    def test_weights(self, rows: Bools) -> Floats:
        """The weight of the test point in each row (n, G), in the unit of the coreset."""
        if self.charge is None:
            return np.full(len(rows), float(self.coreset.test))
        keys = [row.tobytes() for row in rows]
        new = [i for i, key in enumerate(keys) if key not in self._weights]
        if new:
            for i, weight in zip(new, self._least_weights(rows[new]).tolist(), strict=True):
                self._weights[keys[i]] = weight
        return np.array([self._weights[key] for key in keys])

    @property
    def follows(self) -> bool:
        """Whether exchanges are followed: not for too many atoms, nor with suppressed records.

        Nor are they with clients in T, whose extra records may be in any atom.
        """
        few = len(self.coreset.membership) <= MOST_FOLLOWED
        return self.charge is not None and few and self.hopeless is None and not self.charge.inside

    def _least_weights(self, rows: Bools) -> Floats:
        """The weight of the test point in each row (m, G), by theorem 2."""
        assert self.charge is not None
        weights = self.charge.weights(self.coreset.membership, rows)
        if not self.follows:
            return weights
        omega = self.charge.heaviest(rows)
        worth = np.isfinite(weights) & (omega > 0) & self._matters(rows, weights)
        index = np.flatnonzero(worth)
        if len(index):
            least = self._followed(rows[index], omega[index])
            weights[index] = np.minimum(weights[index], least)
        return weights

    def _followed(self, rows: Bools, omega: Floats) -> Floats:
        """The least weight of `_RECORDS` in each row (m, G) at which S* is as high as it can get.

        It is infinite where none of them is enough. `omega` is the weight of a record, (m,).
        """
        wanted = self.solver.highest(rows, omega)
        found = np.full(len(rows), np.inf)
        left = np.flatnonzero(np.isfinite(wanted))
        for records in _RECORDS:
            tried = records * omega[left]
            solutions = self.solver.solve(rows[left], self.solver.t_of(tried))
            reached = np.array([s.threshold for s in solutions]) >= wanted[left]
            found[left[reached]] = tried[reached]
            left = left[~reached]
            if not len(left):
                break
        return found

    def _matters(self, rows: Bools, weights: Floats) -> Bools:
        """Whether the weight is more than a thousandth of the smallest group of each row."""
        coreset = self.coreset
        by_atom = np.add.reduceat(coreset.weights, coreset.start[:-1])
        by_group = by_atom @ coreset.membership
        matters: Bools = weights > 1e-3 * np.where(rows, by_group, np.inf).min(axis=1)
        return matters

    def solve(self, atoms: Bools) -> Floats:
        """S* of each atom, float (a,), solved now whether it was kept or not."""
        weights = self.test_weights(atoms)
        # A row that no client can have has no weight that would be enough, and is not solved.
        can = np.isfinite(weights)
        found = np.full(len(atoms), np.inf)
        solutions = self.solver.solve(atoms[can], self.solver.t_of(weights[can]))
        found[can] = [
            self._admissible(row, weight, solution)
            for row, weight, solution in zip(atoms[can], weights[can], solutions, strict=True)
        ]
        return found

    def _admissible(self, row: Bools, weight: float, solution: Solution) -> float:
        """The solution's threshold, or +inf if suppressed records could make it too low.

        - `weight`: The weight of the test point in this row. Whether a group is hopeless was found
          with the weights of the atoms that were seen, so that it is not known for a larger one.
        """
        if self.hopeless is not None and (
            (row & self.hopeless).any() or weight > self.coreset.test
        ):
            return np.inf
        if self.carriers is not None:
            doubtful = self.carriers & solution.infinite_atoms
            if (self.coreset.membership[doubtful] & row).any():
                return np.inf
        return solution.threshold

    def randomised(self, rows: Bools, rng: np.random.Generator) -> Floats:
        """Randomised thresholds (Gibbs et al. 2023), float (n,): one draw for each row.

        The test point's dual variable t is drawn uniformly from
        [-alpha w_test, (1 - alpha) w_test]; S* is the threshold at the upper end of this interval.
        Within an atom the threshold is a rising step function of t, so that the rows of an atom
        share most of the work.
        """
        if self.charge is not None:
            raise GCFCPError(
                "randomised thresholds keep the promise for one client only, and this calibration "
                "has several: leave threshold_rng out"
            )
        atoms = find_atoms(rows)
        weights = self.test_weights(atoms.membership)
        top = self.solver.t_of(weights)[atoms.index]
        t = rng.uniform(-float(self.alpha / (1 - self.alpha)), 1.0, size=len(rows)) * top
        values = np.empty(len(rows))
        for i, (row, weight) in enumerate(zip(atoms.membership, weights.tolist(), strict=True)):
            mine = np.flatnonzero(atoms.index == i)
            order = mine[np.argsort(t[mine])]
            values[order] = self._steps(row, weight, t[order]) if np.isfinite(weight) else np.inf
        return values

    def _steps(self, row: Bools, weight: float, t: Floats) -> Floats:
        """The thresholds of one atom at ascending values of the dual variable t.

        The threshold never falls as t rises. Where the two ends of a span have the same threshold,
        all values between them have it too; any other span is halved.
        """
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
                values[i] = self._admissible(row, weight, solution)
            halves = []
            for low, high in spans:
                if values[low] == values[high]:
                    values[low : high + 1] = values[low]
                elif high - low > 1:
                    middle = (low + high) // 2
                    halves += [(low, middle), (middle, high)]
            spans = halves
        return values
