"""Thresholds by atom: what every method returns, and what prediction looks up.

A `ThresholdTable` is a plain value. It holds the atoms that were seen in calibration, the threshold
of each of them, and the rule that gives the threshold of any other atom. Because all methods return
the same kind of table, one predictor, one audit and one report serve all of them.

Cost of a lookup: some nanoseconds for each row. An atom that was not seen in calibration is solved
when it is first asked for, and its threshold is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools, Floats
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import AtomLookup, Groups, find_atoms
from gcfcp.solver import Coreset
from gcfcp.thresholds.rules import ByGroup, Constant, Mapped, Rule, SeenOnly, Simultaneous

_FEW = 96  # Up to this many rows are looked up one by one.


@dataclass(frozen=True, eq=False)
class ThresholdTable:
    """The thresholds of a calibration by atom, and the rule that gives them.

    The thresholds hold for this alpha only. For another alpha calibrate again, or use
    `Calibration.retarget`.
    """

    groups: Groups
    alpha: Fraction
    membership: Bools  # (a, G): The groups of each atom that was seen in calibration.
    thresholds_by_atom: Floats  # (a,): The threshold of each atom that was seen in calibration.
    source: Rule = field(repr=False)  # The rule that gives the threshold of every other atom.

    def __post_init__(self) -> None:
        solved_for = getattr(self.source, "alpha", self.alpha)
        if solved_for != self.alpha:
            raise GCFCPError(
                f"alpha={self.alpha} is not the alpha={solved_for} that these thresholds were "
                "solved for: calibrate again, or use Calibration.retarget"
            )

    @classmethod
    def by_rule(
        cls, groups: Groups, alpha: Fraction, membership: Bools, source: Rule
    ) -> ThresholdTable:
        """The table of these atoms (a, G), with the thresholds that the rule gives them."""
        solve = source.solve if isinstance(source, Simultaneous) else source.thresholds
        return cls(groups, alpha, membership, solve(membership), source)

    @property
    def rule(self) -> str:
        """The name of the rule: "simultaneous", "max", "first" or "constant"."""
        return self.source.name

    @property
    def coreset(self) -> Coreset | None:
        """The weighted scores that the simultaneous rule solves; None for every other rule."""
        return self.source.coreset if isinstance(self.source, Simultaneous) else None

    @cached_property
    def _lookup(self) -> AtomLookup:
        return AtomLookup(self.membership)

    @cached_property
    def _known(self) -> dict[bytes, float]:
        """The threshold of each atom of the table, by the bytes of its membership row."""
        keys = (row.tobytes() for row in self.membership)
        return dict(zip(keys, self.thresholds_by_atom.tolist(), strict=True))

    @cached_property
    def _row_type(self) -> np.dtype[np.void]:
        """The bytes of a membership row as one item."""
        return np.dtype((np.void, len(self.groups)))

    @cached_property
    def _or_nan(self) -> Floats:
        """The thresholds of the atoms of the table, and NaN at the last place, which is -1."""
        return np.append(self.thresholds_by_atom, np.nan)

    def thresholds(
        self, membership: Any, threshold_rng: np.random.Generator | None = None
    ) -> Floats:
        """The threshold of every row.

        - `membership`: A matrix (n, G), for which the thresholds have the shape (n,). If groups
          depend on the label, it is an array (n, L, G), and the thresholds have the shape (n, L).
        - `threshold_rng`: If it is given, the thresholds are randomised (Gibbs et al. 2023): the
          test point's dual variable is drawn uniformly from [-alpha w_test, (1 - alpha) w_test] for
          each row. For one client without ties and without compression, coverage is then exactly
          1 - alpha instead of at least that. With several clients it could fall below, and is
          refused. A drawn threshold can be -inf, which gives an empty set. Only the simultaneous
          rule can be randomised.
        """
        by_label = np.ndim(membership) == 3
        matrix = self.groups.check(membership, label_dependent=by_label)
        rows = matrix.reshape(-1, len(self.groups)) if by_label else matrix
        values = (
            self.of_rows(rows) if threshold_rng is None else self._randomised(rows, threshold_rng)
        )
        return values.reshape(matrix.shape[:-1]) if by_label else values

    def mapped(self, of: Callable[[Floats], Floats]) -> ThresholdTable:
        """The table with of(threshold) in the place of each threshold.

        `of` maps thresholds (n,) one by one, and never to NaN.
        """
        source = Mapped.from_rule(self.source, of)
        return replace(self, thresholds_by_atom=of(self.thresholds_by_atom), source=source)

    @property
    def infinite_groups(self) -> Bools:
        """Which groups have no record with a finite threshold, bool (G,).

        Where thresholds are the largest of those of the groups, these decide. Otherwise it is
        said of the atoms of the table, and a group that is in none of them is not counted.
        """
        if isinstance(self.source, Constant):
            return np.full(len(self.groups), self.source.threshold == np.inf)
        if isinstance(self.source, ByGroup) and self.rule == "max":
            return np.asarray(self.source.by_group == np.inf)
        finite = self.membership[self.thresholds_by_atom < np.inf].any(axis=0)
        return np.asarray(self.membership.any(axis=0) & ~finite)

    def count_seen(self, rows: Bools) -> int:
        """How many of these rows (n, G) have an atom that is in the table."""
        return int((self._lookup.find(rows) >= 0).sum())

    def of_rows(self, rows: Bools) -> Floats:
        """The threshold of each row (n, G) of a checked matrix, which is C-contiguous.

        It is looked up if its atom was seen, and comes from the rule if not. For a few rows, one
        access to a dictionary each is faster than looking all of them up at once.
        """
        if isinstance(self.source, Constant):
            return self.source.thresholds(rows)
        if len(rows) <= _FEW:
            keys: list[Any] = rows.view(self._row_type).ravel().tolist()
            found = list(map(self._known.get, keys))
            if None not in found:
                return np.array(found, dtype=np.float64)
        place = self._lookup.find(rows)
        values = self._or_nan[place]
        unseen = place < 0
        if np.count_nonzero(unseen):
            atoms = find_atoms(np.ascontiguousarray(rows[unseen]))
            _warn_of_uncovered(atoms.uncovered)
            values[unseen] = self.source.thresholds(atoms.membership)[atoms.index]
        return values

    def _randomised(self, rows: Bools, rng: np.random.Generator) -> Floats:
        """A randomised threshold for each row (n, G), or an error if the rule has none."""
        if isinstance(self.source, SeenOnly):
            self.source.refuse_randomised()
        if not isinstance(self.source, Simultaneous):
            raise GCFCPError(
                f"rule {self.rule!r} has no randomised thresholds: leave threshold_rng out"
            )
        return self.source.randomised(rows, checks.generator("threshold_rng", rng))


def _warn_of_uncovered(count: int) -> None:
    """Warn if rows belong to no group."""
    if count:
        warnings.warn(
            f"{checks.counted(count, 'row belongs', 'rows belong')} to no group: nothing is "
            "promised there, and the threshold is +inf; Groups.with_all() adds a group that "
            "everyone belongs to",
            GCFCPWarning,
            stacklevel=4,
        )
