"""The thresholds of a coreset whose atoms fall into parts that are solved apart.

`parts` says when atoms have nothing to do with each other. A part of one atom is solved in closed
form (`single`), any other by the simplex (`solve`). A row that is in the span of several parts
only, such as one that is in two groups which never overlapped in calibration, is solved from all
atoms together. The outcome is the same in each case; only the time differs. Solvers are made when
they are first needed.

Cost: that of each part by itself. With 1,000 groups that do not overlap, that is one running sum
for each group instead of a simplex of rank 1,000.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.solver.parts import columns_of, parts_of
from gcfcp.solver.problem import Coreset, t_of
from gcfcp.solver.single import SingleAtom
from gcfcp.solver.solve import EXCESS, Solution, Solver

_ALL = -1  # The row is solved from all atoms together.


class DividedSolver:
    """Thresholds of any atom from one coreset, part by part.

    It answers as `Solver` does. Threads may share it: at worst two of them make the same solver.
    """

    def __init__(self, coreset: Coreset, alpha: Fraction) -> None:
        self.coreset = coreset
        self.alpha = alpha
        self.t = float(t_of(np.array([coreset.test]), alpha)[0])
        self.parts = parts_of(coreset.membership)
        self._made: dict[int, Solver | SingleAtom] = {}

    @cached_property
    def whole(self) -> Solver:
        """The solver of all atoms together."""
        return Solver(self.coreset, self.alpha)

    @cached_property
    def _part_of_atom(self) -> dict[bytes, int]:
        """The part of each atom, by the bytes of its membership row."""
        rows = self.coreset.membership
        return {rows[i].tobytes(): k for k, part in enumerate(self.parts) for i in part.tolist()}

    @cached_property
    def _part_of_column(self) -> Ints:
        """The part of each group, (G,); -1 for those that hold every atom or none."""
        return columns_of(self.coreset.membership, self.parts)

    @cached_property
    def _at_rest(self) -> Bools:
        """The atoms whose theta is at infinity in the optimum without a test point, (a,)."""
        found = np.zeros(len(self.coreset.membership), dtype=bool)
        last = self.coreset.values[self.coreset.start[1:] - 1]
        for k, part in enumerate(self.parts):
            if np.isinf(last[part]).any():
                solver = self._solver(k)
                if isinstance(solver, SingleAtom):
                    found[part] = solver.at(np.zeros(1)).infinite
                else:
                    found[part] = solver.infinite_at_rest
        return found

    def t_of(self, test: Floats) -> Floats:
        """t = (1 - alpha) w_test for these weights of the test point, in the units of `self.t`."""
        return t_of(test, self.alpha)

    def solve(self, rows: Bools, t: Floats | None = None) -> list[Solution]:
        """S* of the atoms with membership `rows`, (m, G); see `Solver.solve`."""
        rows = np.atleast_2d(np.asarray(rows, dtype=bool))
        weights = np.full(len(rows), self.t) if t is None else np.asarray(t, dtype=np.float64)
        if len(self.parts) == 1:
            return self.whole.solve(rows, weights)
        found: list[Solution] = [_NOTHING] * len(rows)
        for k, which in self._by_part(rows):
            for i, solution in zip(
                which.tolist(), self._solve(k, rows[which], weights[which]), strict=True
            ):
                found[i] = solution
        return found

    def highest(self, rows: Bools, weight: Floats) -> Floats:
        """The largest theta of each row (m, G) after an exchange; see `Solver.highest`.

        An exchange for a record of another part changes nothing in the part of the row. `Solver`
        says +inf where such an exchange leaves the other part without an optimum; theorem 2 counts
        only exchanges after which there is one, so that this part alone decides.
        """
        rows = np.atleast_2d(np.asarray(rows, dtype=bool))
        found = np.full(len(rows), np.inf)
        for k, which in self._by_part(rows):
            solver = self.whole if k == _ALL else self._solver(k)
            if isinstance(solver, SingleAtom):
                give = self.t_of(weight[which])
                take = give * float(self.alpha / (1 - self.alpha))
                found[which] = solver.highest(give * (1 + EXCESS) + take)
            else:
                found[which] = solver.highest(rows[which], weight[which])
        return found

    def _solver(self, k: int) -> Solver | SingleAtom:
        """The solver of part k."""
        if k not in self._made:
            part = _restricted(self.coreset, self.parts[k])
            make: Callable[[Coreset, Fraction], Solver | SingleAtom]
            make = SingleAtom if len(self.parts[k]) == 1 else Solver
            self._made[k] = make(part, self.alpha)
        return self._made[k]

    def _by_part(self, rows: Bools) -> list[tuple[int, Ints]]:
        """The rows (m, G) of each part: its number, and which rows these are."""
        if len(self.parts) == 1:
            return [(_ALL, np.arange(len(rows)))]
        part = np.array([self._place(row) for row in rows], dtype=np.int64)
        return [(int(k), np.flatnonzero(part == k)) for k in np.unique(part)]

    def _place(self, row: Bools) -> int:
        """The part in whose span a row (G,) lies, or _ALL if there may be none."""
        known = self._part_of_atom.get(row.tobytes())
        if known is not None:
            return known
        touched = np.unique(self._part_of_column[row])
        touched = touched[touched >= 0]
        if len(touched) != 1:
            return _ALL
        solver = self._solver(int(touched[0]))
        held = isinstance(solver, Solver) and bool(solver.holds(row[None])[0])
        return int(touched[0]) if held else _ALL

    def _solve(self, k: int, rows: Bools, t: Floats) -> list[Solution]:
        """S* of rows that are in the span of part k."""
        if k == _ALL:
            return self.whole.solve(rows, t)
        solver, part = self._solver(k), self.parts[k]
        if not isinstance(solver, SingleAtom):
            return [
                Solution(
                    s.threshold, s.pivots, s.bounded, self._spread(part, s.infinite_atoms), s.judged
                )
                for s in solver.solve(rows, t)
            ]
        found = solver.at(t)
        return [
            Solution(threshold, 0, bounded, self._spread(part, infinite), False)
            for threshold, bounded, infinite in zip(
                found.threshold.tolist(),
                found.bounded.tolist(),
                found.infinite.tolist(),
                strict=True,
            )
        ]

    def _spread(self, part: Ints, infinite: Bools | bool) -> Bools:
        """The atoms at infinity, (a,): those of this part as given, and the others at rest."""
        if not self._any_infinite:
            return self._none
        found = self._at_rest.copy()
        found[part] = infinite
        return found

    @cached_property
    def _any_infinite(self) -> bool:
        """Whether any score is +inf, so that a theta can be at infinity."""
        return bool(np.isinf(self.coreset.values[self.coreset.start[1:] - 1]).any())

    @cached_property
    def _none(self) -> Bools:
        """No atom, (a,)."""
        return np.zeros(len(self.coreset.membership), dtype=bool)


_NOTHING = Solution(math.inf, 0, False, np.zeros(0, dtype=bool), False)


def _restricted(coreset: Coreset, part: Ints) -> Coreset:
    """The coreset of these atoms alone."""
    if len(part) == 1:
        i = int(part[0])
        own = slice(int(coreset.start[i]), int(coreset.start[i + 1]))
        start = np.array([0, own.stop - own.start])
        return Coreset(
            coreset.membership[part], start, coreset.values[own], coreset.weights[own], coreset.test
        )
    sizes = np.diff(coreset.start)[part]
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    place = np.repeat(coreset.start[part] - start[:-1], sizes) + np.arange(start[-1])
    return Coreset(
        coreset.membership[part], start, coreset.values[place], coreset.weights[place], coreset.test
    )
