"""`explore`: the same summaries calibrated at many alphas and mixtures, to look at side by side.

Every setting is an exact calibration: its numbers are those of `calibrate` with the same alpha and
mixture, to the last bit. Nothing between two settings is guessed. `lines` says which mixtures.

**What an exploration does to the promise.** The theorems (docs/guarantees.md) are about one alpha
and one mixture that do not depend on the scores and groups of the calibrating records. Whoever
compares settings on these records and keeps the one with the smallest sets has chosen with the
records, and for that choice nothing is proved. Explore the summaries of an earlier period, fix
alpha and mixture, and calibrate other records.

Cost: one calibration for each setting, of which there are at most `MOST_SETTINGS`. The time is
bounded by `within`, in seconds of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools, Floats
from gcfcp.calibration.admission import MAX_ATOMS, Admission, Aggregates
from gcfcp.calibration.clients import in_order, twin_texts, twins
from gcfcp.calibration.correction import Correction
from gcfcp.calibration.guarantees import Guarantee, guarantees_of
from gcfcp.calibration.lines import PARTS, Stop, stops_of
from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.problem import problem_of
from gcfcp.calibration.reasons import AtomRecord, atom_records
from gcfcp.calibration.server import solve_table
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.summary import ClientSummary

ALPHAS = tuple(k / 100 for k in range(1, 31))
"""The alphas that are tried if none are given: 0.01 to 0.3."""

MOST_SETTINGS = 2_000
"""The most settings of one exploration."""

WITHIN = 60.0
"""How many seconds of the processor an exploration may take if nothing else is said."""

Advance = Callable[[int, int], None]
"""A function that is told how many settings are done, and how many there are."""


@dataclass(frozen=True, eq=False)
class Setting:
    """The calibration at one alpha and one mixture; each field is that of `Calibration`."""

    alpha: float
    stop: Stop
    rule: str
    correction: Correction
    atoms: tuple[AtomRecord, ...]  # In the same order at every setting.
    guarantee: tuple[Guarantee, ...]

    @property
    def thresholds(self) -> Floats:
        """The threshold of each atom; for summaries by group, the level of each group."""
        return np.array([record.threshold for record in self.atoms])


@dataclass(frozen=True, eq=False)
class Exploration:
    """The calibrations of the same summaries at many alphas and mixtures."""

    alpha: float  # Where to start.
    alphas: tuple[float, ...]  # All alphas, in ascending order.
    stops: tuple[Stop, ...]  # All mixtures; the first is where all lines start.
    settings: tuple[tuple[Setting, ...], ...] = field(repr=False)  # By stop, then by alpha.
    summaries: tuple[ClientSummary, ...] = field(repr=False)
    options: dict[str, Any]  # The other arguments of `calibrate`, which gives the same settings.
    left_out: tuple[str, ...]  # What was not computed and why, one sentence each.

    @property
    def start(self) -> Setting:
        """The setting at the alpha and the mixture that were given."""
        return self.at(self.alpha)

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, in the order of `Stop.shares`."""
        return tuple(s.client for s in self.summaries)

    @property
    def groups(self) -> Groups:
        """The family of groups that the promises are about."""
        return self.summaries[0].groups

    @property
    def by(self) -> str:
        """What has a threshold of its own: "atom" or "group"."""
        return self.summaries[0].by

    @property
    def membership(self) -> Bools:
        """The groups of each atom, bool (a, G)."""
        names = self.groups.names
        return np.array([[name in r.groups for name in names] for r in self.start.atoms])

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever looks at the numbers should know: which clients sent the same content."""
        return tuple(twin_texts(twins(self.summaries)))

    def at(self, alpha: float, stop: int = 0) -> Setting:
        """The setting at one of the alphas and one of the stops, which are counted from 0."""
        if alpha not in self.alphas:
            raise GCFCPError(
                f"alpha={alpha:g} was not explored: it is one of "
                f"{', '.join(f'{a:g}' for a in self.alphas)}"
            )
        return self.settings[stop][self.alphas.index(alpha)]


def explore(
    summaries: Iterable[ClientSummary],
    alpha: float = 0.1,
    mixture: Mixture = "proportional",
    merge: str = "pool",
    *,
    alphas: Iterable[float] = ALPHAS,
    parts: Iterable[float] = PARTS,
    clients: Iterable[str] | None = None,
    within: float | None = WITHIN,
    progress: Advance | None = None,
    rule: str | None = None,
    correction: str = "sharp",
    delta: float | None = None,
    shape: Any = None,
    confidence: float | None = None,
    aggregates: Aggregates = (),
    round: str | None = None,
    max_atoms: int | None = MAX_ATOMS,
) -> Exploration:
    """Calibrate the same summaries at many alphas and mixtures, to see what each of them costs.

    - `alpha`, `mixture`: Where the exploration starts. All lines of mixtures start at `mixture`.
    - `alphas`: The alphas that are tried besides `alpha`; by default 0.01 to 0.3.
    - `parts`: How far towards another mixture the stops lie; by default a quarter, half, three
      quarters and all of the way.
    - `clients`: The clients that count alone at the end of a line. By default all of them; () means
      none, for a page that must not tell the thresholds of single clients.
    - `within`: How many seconds of the processor it may take; None does not limit them. When the
      time is over, the settings that were not reached are left out, and `left_out` says so.
    - `progress`: A function that is told how many settings are done, and how many there are.

    The other arguments are those of `calibrate`, and so are all results. No warning is given. Fix
    alpha and mixture with other records than those that you calibrate; the docstring of
    `gcfcp.calibration.exploration` says why.
    """
    admission = Admission.of(aggregates, round, max_atoms=max_atoms)
    ordered = in_order(summaries, admission)
    options: dict[str, Any] = {
        "merge": merge,
        "delta": delta,
        "rule": rule,
        "correction": correction,
        "shape": shape,
        "confidence": confidence,
    }
    tried = _checked_alphas(alpha, alphas)
    stops, left_out = stops_of(ordered, mixture, admission, parts, clients)
    kept = stops[: MOST_SETTINGS // len(tried)]
    many = f"there would be more than {MOST_SETTINGS:,} settings"
    left_out += _stops_left_out(stops[len(kept) :], many)
    clock = _Clock(within, len(tried) * len(kept), progress)

    def solved(at: float, stop: Stop) -> Setting:
        return clock.timed(lambda: _setting(ordered, at, stop, admission, options))

    first = _first_column(tried, checks.as_float(alpha), kept[0], solved, clock)
    left_out += _alphas_left_out(len(tried), len(first), clock.why)
    columns = [tuple(first[a] for a in sorted(first))]
    for place, stop in enumerate(kept[1:], 1):
        if not clock.has_time_for(len(first)):
            left_out += _stops_left_out(kept[place:], clock.why)
            break
        try:
            columns.append(tuple(solved(a, stop) for a in sorted(first)))
        except GCFCPError as error:  # Such as a client alone that describes no record.
            left_out.append(f"The mixture {stop} was left out: {error}.")
    return Exploration(
        alpha=checks.as_float(alpha),
        alphas=tuple(sorted(first)),
        stops=tuple(column[0].stop for column in columns),
        settings=tuple(columns),
        summaries=ordered,
        options=options
        | {"aggregates": admission.aggregates, "round": round, "max_atoms": max_atoms},
        left_out=tuple(left_out),
    )


def _setting(
    summaries: Sequence[ClientSummary],
    alpha: float,
    stop: Stop,
    admission: Admission,
    options: dict[str, Any],
) -> Setting:
    """The calibration at one alpha and one mixture, as `calibrate` makes it."""
    problem = problem_of(summaries, alpha, stop.mixture, admission=admission, **options)
    records = atom_records(problem, solve_table(problem))
    promised = guarantees_of(problem, eta=0.1)
    return Setting(alpha, stop, problem.rule, problem.correction, records, promised)


def _checked_alphas(alpha: float, alphas: Iterable[float]) -> list[float]:
    """All alphas to try, in ascending order; each lies between 0 and 1."""
    found = sorted({checks.as_float(checks.alpha(a)) for a in (alpha, *alphas)})
    if len(found) > MOST_SETTINGS:
        raise GCFCPError(
            f"{len(found):,} alphas are more than the {MOST_SETTINGS:,} settings that can be "
            "explored: give fewer"
        )
    return found


class _Clock:
    """How long the settings take, and how many are done."""

    def __init__(self, within: float | None, total: int, progress: Advance | None) -> None:
        self.within = None if within is None else checks.at_least("within", within, 0)
        self.total, self.progress = total, progress
        self.done, self.spent = 0, 0.0

    @property
    def why(self) -> str:
        """Why something is left out, if it is the time."""
        return f"the computation would take more than {self.within or 0:g} s of the processor"

    def has_time_for(self, number: int) -> bool:
        """Whether so many more settings fit, if they take as long as those so far on average."""
        mean = self.spent / max(self.done, 1)
        return self.within is None or self.spent + number * mean <= self.within

    def timed(self, work: Callable[[], Setting]) -> Setting:
        """The setting that this work makes, after its time was taken."""
        began = time.process_time()
        found = work()
        self.spent += time.process_time() - began
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)
        return found


def _first_column(
    alphas: Sequence[float],
    chosen: float,
    stop: Stop,
    solved: Callable[[float, Stop], Setting],
    clock: _Clock,
) -> dict[float, Setting]:
    """The settings of the first mixture by alpha, as many as there is time for.

    The chosen alpha comes first and the others from coarse to fine, so that they are spread over
    the whole range when the time is over.
    """
    found = {chosen: solved(chosen, stop)}
    for alpha in _coarse_to_fine([a for a in alphas if a != chosen]):
        if not clock.has_time_for(1):
            break
        found[alpha] = solved(alpha, stop)
    return found


def _coarse_to_fine(values: Sequence[float]) -> Iterator[float]:
    """All values, in such an order that the first so many are spread evenly."""
    step = 1 << len(values).bit_length()
    done: set[int] = set()
    while step:
        for i in range(0, len(values), step):
            if i not in done:
                done.add(i)
                yield values[i]
        step //= 2


def _alphas_left_out(tried: int, kept: int, why: str) -> list[str]:
    """One sentence about the alphas that were left out; none if there are none."""
    if tried == kept:
        return []
    return [f"{tried - kept:,} of {tried:,} alphas were left out, because {why}."]


def _stops_left_out(stops: Sequence[Stop], why: str) -> list[str]:
    """One sentence about the mixtures that were left out; none if there are none."""
    if not stops:
        return []
    text = (
        f"{len(stops):,} mixture{' was' if len(stops) == 1 else 's were'} left out, because {why}"
    )
    ends = [s.line.client for s in stops if s.part == 1 and s.line and s.line.client is not None]
    if ends:
        return [f"{text}; among them are these clients alone: {checks.listed(ends, 10)}."]
    parts = ", ".join(f"{100 * part:.6g} %" for part in sorted({s.part for s in stops}))
    return [f"{text}; they lie on the way from one mixture to another ({parts})."]
