"""The client's side of Algorithm 1: it turns scores and memberships into a small summary.

`summarize` divides the scores into cells, compresses those of each cell into a T-Digest of plain
counts, and returns a `ClientSummary`. Nothing else leaves the site.

- By atom, as in the paper, a cell is an atom: the records that belong to exactly the same groups.
- By group a cell is a group, and a record is in the cell of each of its groups. Its score is the
  residual s - b(x), if a shape b is given (see `gcfcp.shape`).

Disclosure control: With `min_count=m` every centroid stands for at least m records, and a cell of
fewer than m records is not described. The promise must hold for its records too. The summary
therefore states an upper bound on their number in each group, and the server treats them as scores
of +inf.

- By group, a group of fewer than m records is hidden and charged m - 1, and a group that would tell
  a small cell by subtraction is described by what others say of it. `cells` says how, and why the
  promise stands.
- By atom, the number of suppressed records leaves the site. It would tell how many records a small
  atom has, and therefore some records of a large atom are withheld beside them. `withheld` says
  how many, and what a reader can learn.
- With m > 1 every representative is rounded up to a number that is no record's score (see
  `digest.ROUNDED_BITS`). There are three exceptions. A score of exactly 0 can be recognised. A
  representative that would pass the score's upper limit, such as 1, becomes that limit, which may
  be a record's score. `Disclosure.exact_scores` counts both. A score of +inf stays +inf. (Residuals
  have no such limit.) Whoever knows that scores lie on a coarser grid, such as two decimals, can
  undo the rounding.
- A group that the client declares absent has no records there, so its bound is 0. That the client
  cannot have the group is then known to the server.
- The number of records n_k always leaves the site, because the weight of the client depends on it.

With a `grid` the scores are not compressed: the records in each cell of a public grid are counted
(see `gcfcp.grid` and `counts`).

Cost: The scores of each atom are sorted once. By group all scores are sorted once, and there is one
pass over them for each group. A shape that was made from summaries costs one more summary, by atom:
it shows whether these very records are behind the shape.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from gcfcp import checks
from gcfcp import scores as known_scores
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.checks import Representative
from gcfcp.digest import DigestBuilder, TDigest
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.grid import as_grid
from gcfcp.groups import Atoms, Groups, find_atoms
from gcfcp.noise import checked_epsilon
from gcfcp.shape import as_shape
from gcfcp.summary.cells import certain_groups, counted, possible_groups
from gcfcp.summary.counts import CellCounter, CellCounts, counted_on
from gcfcp.summary.noisy import noisy
from gcfcp.summary.summary import BY, ClientSummary
from gcfcp.summary.withheld import withheld


@overload
def summarize(
    scores: ArrayLike,
    membership: Any,
    *,
    groups: Groups,
    client: str,
    delta: float = ...,
    representative: Representative = ...,
    min_count: int = ...,
    score: Any = ...,
    model: str | None = ...,
    absent: Iterable[str] = ...,
    by: str = ...,
    shape: Any = ...,
    holdout: None = ...,
    rng: None = ...,
    round: str | None = ...,
    date: Any = ...,
    grid: Any = ...,
    epsilon: float | None = ...,
) -> ClientSummary: ...
@overload
def summarize(
    scores: ArrayLike,
    membership: Any,
    *,
    groups: Groups,
    client: str,
    delta: float = ...,
    representative: Representative = ...,
    min_count: int = ...,
    score: Any = ...,
    model: str | None = ...,
    absent: Iterable[str] = ...,
    by: str = ...,
    shape: Any = ...,
    holdout: float,
    rng: np.random.Generator,
    round: str | None = ...,
    date: Any = ...,
    grid: Any = ...,
    epsilon: float | None = ...,
) -> tuple[ClientSummary, ClientSummary]: ...
def summarize(
    scores: ArrayLike,
    membership: Any,
    *,
    groups: Groups,
    client: str,
    delta: float = 250,
    representative: Representative = "upper",
    min_count: int = 1,
    score: Any = None,
    model: str | None = None,
    absent: Iterable[str] = (),
    by: str = "atom",
    shape: Any = None,
    holdout: float | None = None,
    rng: np.random.Generator | None = None,
    round: str | None = None,
    date: Any = None,
    grid: Any = None,
    epsilon: float | None = None,
) -> ClientSummary | tuple[ClientSummary, ClientSummary]:
    """Summarise the calibration scores of one client: Algorithm 1, client side.

    - `scores`: The n_k nonconformity scores. +inf is allowed, and NaN is an error.
    - `membership`: Which groups each record belongs to, of shape (n_k, G): the result of
      `groups.membership(frame)`, or any matrix of 0 and 1. If the groups have sites, the columns of
      the sites may be left out: they are filled in from `client`.
    - `groups`: The family of groups, which is the same for all clients.
    - `client`: The name of this client. If the groups have sites, it is one of them.
    - `delta`: How fine the digests are: each cell has about delta / 2 clusters.
    - `representative`: What stands for a cluster: "upper", its largest score, which loses no
      coverage at any delta, or "mean", its mean, as in the paper.
    - `min_count`: The smallest number of records that a cell or a cluster of the summary may stand
      for. Smaller cells are not described, and count as scores of +inf.
    - `score`: The score that was used: one of `gcfcp.scores`, another object with a name, or a
      name.
    - `model`: A fingerprint of the model, in any form.
    - `absent`: The names of the groups that this client cannot have, now or later. A record that
      belongs to one of them is an error.
    - `by`: "atom" describes each combination of groups that occurs, which every rule can use.
      "group" describes each group. That is smaller, proved with any compression, and stays useful
      with a `min_count`, because groups have more records than combinations of them.
    - `shape`: With `by="group"`, the shape that is subtracted from the scores: a `Shape`, a
      calibration or predictor made of other records, or the name of a file that holds one of them.
    - `holdout`: The share of the records, drawn with `rng`, that goes into a summary of its own,
      from which a shape can be made. The result is then a pair: the shape part, by atom, and the
      level part of all other records.
    - `round`: The round that the summary is for, such as "2026Q4". A server that calibrates a round
      refuses summaries of another, and a signature covers it.
    - `date`: The day on which it is made, as a date or as text such as "2026-11-17".
    - `grid`: A public `Grid`, the same at all sites. The records in each of its cells are then
      counted, and count as the cell's upper edge; `delta` is not used. It is the one compression
      under which the promise of the simultaneous rule is proved, as long as `min_count` is 1, and
      such summaries add up (`gcfcp.add`). With a shape, the residuals are counted.
    - `epsilon`: With a grid, the privacy loss of one record: noise is added to all counts, and the
      server charges it (rule "max"). It needs the extra `dp` and `min_count=1`. Every call is a
      release of its own: send one of them. See `gcfcp.noise` for what is protected.

    Returns a `ClientSummary`, or a pair of them with `holdout`. The server refuses to calibrate
    summaries of different scores, models, shapes or kinds together.
    """
    making = Making(
        groups,
        client,
        delta,
        representative,
        min_count,
        score,
        model,
        absent,
        by,
        shape,
        round=round,
        date=date,
        grid=grid,
        epsilon=epsilon,
    )
    values = checks.scores("scores", scores)
    matrix = groups.complete(membership, client) if groups.sites else groups.check(membership)
    if len(matrix) != len(values):
        raise GCFCPError(
            f"there are {len(values)} scores and {len(matrix)} membership rows: give one row for "
            "each score"
        )
    making.refuse_absent(matrix)
    making.refuse_outside(matrix)
    making.refuse_beyond(values)
    if holdout is None:
        return _summary_of(values, matrix, making)
    making.refuse_holdout()
    held = held_out(len(values), holdout, rng)
    refuse_empty(bool(held.all()), not held.any(), holdout)
    return (
        _summary_of(values[held], matrix[held], making.for_shape()),
        _summary_of(values[~held], matrix[~held], making),
    )


def held_out(n: int, holdout: float, rng: Any) -> Bools:
    """Which of n records go into the shape part: each by itself with probability `holdout`."""
    share = checks.probability("holdout", holdout)
    inside: Bools = checks.generator("rng", rng).random(n) < share
    return inside


def refuse_empty(no_level: bool, no_shape: bool, holdout: float) -> None:
    """Raise an error if one of the two parts of a holdout has no records."""
    if no_level or no_shape:
        raise GCFCPError(
            f"holdout={holdout:g} leaves the {'shape' if no_shape else 'level'} part without "
            "records: gather more records, or choose another share"
        )


def _summary_of(values: Floats, matrix: Bools, making: Making) -> ClientSummary:
    """The summary of checked scores and memberships."""
    atoms = find_atoms(matrix)
    if making.by == "atom":
        return assemble(_divided(values, atoms), atoms.membership, making)
    if making.shape is not None and making.shape.sources:
        refuse_sources(_divided(values, atoms), atoms.membership, making)
    residuals = making.residuals(values, atoms.membership, atoms.index)
    order = np.argsort(residuals)
    residuals, atom = residuals[order], atoms.index[order]
    return assemble_groups(
        lambda inside: residuals[inside[atom]], atoms.membership, atoms.counts, making
    )


def _divided(values: Floats, atoms: Atoms) -> list[Floats]:
    """The scores of each atom."""
    values = values[np.argsort(atoms.index, kind="stable")]
    return [
        values[end - count : end]
        for end, count in zip(np.cumsum(atoms.counts), atoms.counts, strict=True)
    ]


@dataclass(frozen=True)
class Making:
    """How a summary is made: the arguments of `summarize`, checked."""

    groups: Groups
    client: str
    delta: float | None = 250  # None with a grid.
    representative: Representative = "upper"
    min_count: int = 1
    score: Any = None
    model: str | None = None
    absent: Any = ()  # The groups that are declared absent, in the order of the family.
    by: str = "atom"
    shape: Any = None  # A `Shape`, or None.
    whole: bool = True  # Whether records that cannot be described are counted.
    round: str | None = None
    date: Any = None  # Text, or None.
    grid: Any = None  # A `Grid`, or None.
    epsilon: float | None = None  # That of the noise; None without noise.

    def __post_init__(self) -> None:
        if not isinstance(self.groups, Groups):
            raise GCFCPError(
                f"groups={self.groups!r:.60} is not a family of groups: give gcfcp.Groups([...])"
            )
        grid = as_grid(self.grid)
        given = {
            "client": checks.name("client", self.client),
            "grid": grid,
            "delta": checks.delta(self.delta) if grid is None else None,
            "representative": checks.representative(self.representative),
            "min_count": checks.min_count(self.min_count),
            "absent": _declared(self.groups, self.absent),
            "by": checks.choice("by", self.by, *BY),
            "shape": as_shape(self.shape, self.groups),
            "round": None if self.round is None else checks.name("round", self.round),
            "date": None if self.date is None else checks.day("date", self.date),
        }
        if self.by == "group" and self.min_count > 1 and self.representative == "mean":
            raise GCFCPError(
                "representative='mean' by group needs min_count=1, because means can be subtracted "
                "from each other: use representative='upper'"
            )
        if grid is not None and self.representative != "upper":
            raise GCFCPError(
                "representative='mean' is not possible with a grid, on which every record counts "
                "as the upper edge of its cell: use representative='upper'"
            )
        if self.epsilon is not None:
            given["epsilon"] = checked_epsilon(self.epsilon)
            if grid is None or self.min_count != 1:
                raise GCFCPError(
                    f"epsilon={self.epsilon:g} needs a grid and min_count=1: noise is added to the "
                    "counts of all cells of a public grid, and hides small ones"
                )
        if given["shape"] is not None and self.by == "atom":
            raise GCFCPError(
                "a summary by atom takes no shape: give by='group', or give the shape to calibrate"
            )
        for name, value in given.items():
            object.__setattr__(self, name, value)

    @property
    def limit(self) -> float | None:
        """The upper limit of the score, which rounding must not pass, or None if there is none.

        Representatives are rounded up with a `min_count` above 1. Those of a score that is never
        above 1 are then not rounded beyond 1. The limit is None where nothing is rounded,
        for scores without a known finite limit, and for residuals.
        """
        if self.min_count <= 1 or self.shape is not None:
            return None
        limit: Any = getattr(self._known_score(), "upper", None)
        return float(limit) if checks.is_number(limit) and math.isfinite(limit) else None

    def _error(self, digest: TDigest | CellCounts) -> int:
        """The certified error of a digest, in records.

        By group with a `min_count`, the error that occurred would tell how scores of different
        groups lie. There it is bounded by the counts: a maximum that is rounded up does not pass
        that of the next cluster.
        """
        if isinstance(digest, CellCounts):
            return 0
        if self.by == "atom" or self.min_count == 1:
            return math.ceil(digest.error_weight)
        pairs = digest.weights[1:] + digest.weights[:-1]
        return int(pairs.max(initial=digest.weights[0]))

    @property
    def possible(self) -> Bools:
        """Which groups the client can have, (G,): not those declared absent, nor other sites."""
        return possible_groups(self.groups, self.client, self.absent)

    @property
    def certain(self) -> Bools:
        """The groups to which every record of the client belongs by definition, (G,)."""
        return certain_groups(self.groups, self.client)

    def for_shape(self) -> Making:
        """How the shape part of the same site is made: by atom, whatever the level part is.

        A shape does not use suppressed records, so that not even their number is told. Without a
        `min_count` there are none, and the shape part is a summary like any other. The grid is that
        of the level part, whose residuals may lie elsewhere than the scores; the shape part has
        digests.
        """
        return replace(
            self,
            by="atom",
            shape=None,
            whole=self.min_count == 1,
            grid=None,
            delta=250 if self.delta is None else self.delta,
            epsilon=None,
        )

    def builder(self, buffer: int) -> DigestBuilder | CellCounter:
        """What follows a stream of scores: a builder of digests, or a counter with a grid."""
        if self.grid is not None:
            return CellCounter(self.grid)
        assert self.delta is not None
        return DigestBuilder(
            self.delta, self.representative, self.min_count, self.limit, buffer=buffer
        )

    def digests(
        self, cells: Sequence[Any], less: dict[int, int] | None = None
    ) -> list[TDigest | CellCounts]:
        """The digest of each cell, from its scores or from the builder that saw them.

        - `cells`: For each cell its scores, which are sorted in place here, or a builder.
        - `less`: How many of the largest scores are left out, by the place of the cell.
        """
        left_out = less or {}
        for cell in cells:
            if isinstance(cell, np.ndarray):
                cell.sort()
        if self.grid is not None or not all(isinstance(cell, np.ndarray) for cell in cells):
            return [self.digest(cell, left_out.get(i, 0)) for i, cell in enumerate(cells)]
        assert self.delta is not None
        ascending = [c[: len(c) - left_out.get(i, 0)] for i, c in enumerate(cells)]
        return [
            *TDigest.of_cells(
                ascending, self.delta, self.representative, self.min_count, self.limit
            )
        ]

    def digest(self, scores: Any, less: int = 0) -> TDigest | CellCounts:
        """The digest of one cell, from its ascending scores or from the builders that saw them.

        With a grid it is the counts of the grid's cells.

        - `less`: How many of the largest scores are left out.
        """
        if self.grid is not None:
            return CellCounts.of(self.grid, counted_on(self.grid, scores), self.min_count, less)
        assert self.delta is not None
        if isinstance(scores, DigestBuilder):
            return scores.digest(less)
        if isinstance(scores, list):
            return DigestBuilder.digest_of(scores, less)
        return TDigest.from_sorted(
            scores[: len(scores) - less],
            self.delta,
            representative=self.representative,
            min_count=self.min_count,
            limit=self.limit,
        )

    def residuals(self, values: Floats, atoms: Bools, index: Any) -> Floats:
        """The scores less the shape of their atoms; the scores themselves without a shape.

        - `atoms`, `index`: The distinct rows (a, G), and which of them each score has.
        """
        if self.shape is None:
            return values
        found: Floats = self.shape.subtracted(values, atoms, index)
        return found

    def refuse_absent(self, membership: Bools, counts: Ints | None = None) -> None:
        """Raise an error if a record belongs to a group that was declared absent.

        - `counts`: How many records each row of `membership` stands for. By default each is one
          record.
        """
        for name in self.absent:
            inside = membership[:, self.groups.names.index(name)]
            if inside.any():
                number = int(inside.sum() if counts is None else counts[inside].sum())
                first = f", the first in row {int(inside.argmax()) + 1}" if counts is None else ""
                raise GCFCPError(
                    f"{checks.counted(number, 'record belongs', 'records belong')} to group "
                    f"{name!r}, which was declared absent{first}: correct these records, or do "
                    "not declare the group absent"
                )

    def refuse_hiding_by_group(self) -> None:
        """Raise an error if a summary by group has a `min_count` and a grid."""
        if self.grid is not None and self.min_count > 1:
            raise GCFCPError(
                f"min_count={self.min_count} by group hides nothing on a grid, because the counts "
                "of two groups in a cell can be subtracted: use by='atom', or min_count=1 with "
                "noise (epsilon) or where only the sum of several sites is seen"
            )

    def refuse_holdout(self) -> None:
        """Raise an error if the shape part of a holdout would leave without noise."""
        if self.epsilon is not None:
            raise GCFCPError(
                f"epsilon={self.epsilon:g} does not go with holdout, whose shape part has no "
                "noise: make the shape of other, public records"
            )

    def refuse_outside(self, membership: Bools) -> None:
        """Raise an error if a record is not in a group that every record belongs to."""
        for g in np.flatnonzero(self.groups.everyone).tolist():
            inside = membership[:, g]
            if not inside.all():
                number = int((~inside).sum())
                raise GCFCPError(
                    f"{checks.counted(number, 'record does', 'records do')} not belong to group "
                    f"{self.groups.names[g]!r}, whose condition is TRUE: correct the membership"
                )

    def refuse_beyond(self, values: Floats) -> None:
        """Raise an error if a score lies beyond the limits of its definition, as 2 does for THR."""
        score = self._known_score()
        low: Any = getattr(score, "lower", None)
        high: Any = getattr(score, "upper", None)
        if not (checks.is_number(low) and checks.is_number(high)):
            return
        beyond = (values < low) | (values > high)
        if beyond.any():
            name, _ = known_scores.describe(self.score)
            first = int(beyond.argmax())
            raise GCFCPError(
                f"{checks.counted(int(beyond.sum()), 'score is', 'scores are')} not from {low:g} "
                f"to {high:g}, as all scores of {name!r} are: the first is {values[first]:g} "
                f"in row {first + 1}; correct how scores are computed, or name another score"
            )

    def _known_score(self) -> Any:
        """The score itself, also if only the name of one of `gcfcp.scores` was given."""
        score = self.score
        if isinstance(score, str) and score in known_scores.NAMES:
            return known_scores.from_name(score)
        return score

    def summary(
        self, cells: Bools, digests: Sequence[TDigest | CellCounts], **told: Any
    ) -> ClientSummary:
        """The summary of these cells (a, G) and their digests.

        - `told`: n and what is told about records that are not described; for a sum, its members.
        """
        members = told.pop("members", None) or ((self.client, told["n"]),)
        name, parameters = known_scores.describe(self.score)
        return ClientSummary(
            client=self.client,
            delta=self.delta,
            representative=self.representative,
            groups=self.groups,
            score=name,
            parameters=parameters,
            model=self.model,
            min_count=self.min_count,
            members=members,
            membership=cells,
            start=np.cumsum([0] + [len(d) for d in digests]),
            values=np.concatenate([np.empty(0), *(d.means for d in digests)]),
            counts=np.concatenate([np.empty(0), *(d.weights for d in digests)]).astype(np.int64),
            errors=np.array([self._error(d) for d in digests], dtype=np.int64),
            absent=self.absent,
            by=self.by,
            shape=self.shape,
            round=self.round,
            date=self.date,
            grid=self.grid,
            **told,
        )


def assemble(by_atom: list[Any], membership: Bools, making: Making) -> ClientSummary:
    """The summary of scores that are already divided by atom.

    - `by_atom`: The scores of each atom, in the order of `membership`: an array, which is sorted in
      place here, or a `DigestBuilder` that has seen all of them.
    - `membership`: The atoms as distinct membership rows (a, G), in ascending order. If the groups
      have sites, every row belongs to the site of the client.
    """
    counts = _sizes(by_atom)
    making.refuse_absent(membership, counts)
    in_group, n = membership.any(axis=1), int(counts.sum())
    if making.epsilon is not None:
        return noisy(assemble(by_atom, membership, replace(making, epsilon=None)), making)
    _warn_of_uncovered(making.client, int(counts[~in_group].sum()), n)
    if not making.whole:
        return _described_only(by_atom, membership, counts, making)
    told = withheld(membership, counts, making.possible, making.certain, making.min_count)
    shown = np.flatnonzero(told.described).tolist()
    less = {shown.index(told.atom): told.number} if told.atom in shown else {}
    digests = making.digests([by_atom[i] for i in shown], less)
    return making.summary(
        membership[shown],
        digests,
        n=n,
        suppressed=told.suppressed,
        suppressed_groups=tuple(told.bound.tolist()),
        # Fewer than min_count records in no group are suppressed like any small atom, because even
        # their number would describe them.
        uncovered=int(counts[~in_group & (counts >= making.min_count)].sum()),
    )


def _described_only(
    by_atom: list[Any], membership: Bools, counts: Ints, making: Making
) -> ClientSummary:
    """The shape part: the summary of the atoms that are large enough, as if there were no others.

    Nothing is charged for other records, so that nothing is told of them either.
    """
    large = np.flatnonzero(membership.any(axis=1) & (counts >= making.min_count))
    if not len(large):
        raise GCFCPError(
            f"{making.client}: no combination of groups has {making.min_count} records in the "
            "shape part: hold out a larger share, or lower min_count"
        )
    return making.summary(
        membership[large],
        making.digests([by_atom[i] for i in large]),
        n=int(counts[large].sum()),
        suppressed=0,
        suppressed_groups=(0,) * len(making.groups),
        uncovered=0,
    )


def assemble_groups(
    scores_of: Callable[[Bools], Any], atoms: Bools, counts: Ints, making: Making
) -> ClientSummary:
    """The summary by group.

    - `scores_of`: It gives the scores, or residuals, of all records of some atoms (a,): an
      ascending array, or the `DigestBuilder`s that have seen them. It is asked for one group at a
      time, so that one is held at a time.
    - `atoms`, `counts`: The distinct membership rows (a, G) of the records, and how many records
      each of them has.
    """
    making.refuse_hiding_by_group()
    if making.epsilon is not None:
        return noisy(
            assemble_groups(scores_of, atoms, counts, replace(making, epsilon=None)), making
        )
    making.refuse_absent(atoms, counts)
    in_group, n = atoms.any(axis=1), int(counts.sum())
    _warn_of_uncovered(making.client, int(counts[~in_group].sum()), n)
    told = counted(atoms, counts, making.possible, making.certain, making.min_count)
    # Keys are in ascending order if the last group comes first, because it has the lowest bit.
    shown = np.flatnonzero(~told.hidden)[::-1].tolist()
    return making.summary(
        np.eye(len(making.groups), dtype=bool)[shown],
        [making.digest(scores_of(told.members[:, g])) for g in shown],
        n=n,
        suppressed=0,
        suppressed_groups=tuple(told.bound.tolist()),
        strangers=tuple(told.strangers.tolist()),
        uncovered=0,
    )


def refuse_sources(by_atom: list[Any], membership: Bools, making: Making) -> None:
    """Raise an error if the shape was made from the summary of these very records.

    A record must not be behind both the shape and the levels. What can be found here is a summary
    by atom that was made with the same settings. (Other settings are not tried: to a stranger who
    sends shapes, the answer would confirm a guess about these records.)
    """
    # A shape is made from summaries with digests as well as from those with a grid.
    settings: list[dict[str, Any]] = [{}]
    if making.grid is not None:
        settings.append({"grid": None, "delta": 250})
    found = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        for other in settings:
            before = replace(making, by="atom", shape=None, epsilon=None, **other)
            found.add(assemble([part.copy() for part in by_atom], membership, before).source)
    if found & set(making.shape.sources):
        raise GCFCPError(
            f"{making.client}: the shape was made from these very records, so that nothing would "
            "be promised: give records that the shape has not seen, or use holdout"
        )


def _sizes(cells: list[Any]) -> Ints:
    """How many records each cell has."""
    return np.array([len(c) if isinstance(c, np.ndarray) else c.count for c in cells])


def _declared(groups: Groups, absent: Any) -> tuple[str, ...]:
    """The groups that a client declares absent, in the order of the family and each of them once.

    absent: Their names, in any order.
    """
    if isinstance(absent, str) or not isinstance(absent, Iterable):
        raise GCFCPError(f"absent={absent!r:.60} is not a list of groups: give one such as ['all']")
    given = list(absent)
    for name in given:
        if name not in groups.names:
            raise GCFCPError(
                f"absent={name!r:.60} is not one of the groups {checks.listed(groups.others)}: "
                "give the names of groups that this client cannot have"
            )
        if name not in groups.others:
            raise GCFCPError(
                f"absent={name!r} is the group of a site: leave it out, because a client can have "
                "its own site only"
            )
    return tuple(name for name in groups.others if name in given)


def _warn_of_uncovered(client: str, outside: int, n: int) -> None:
    """Warn if some of the n records of a client belong to no group."""
    if outside:
        warnings.warn(
            f"{client}: {outside} of {n} records belong to no group, so no coverage is promised "
            "for them; Groups.with_all() adds a group that every record belongs to",
            GCFCPWarning,
            stacklevel=5,
        )
