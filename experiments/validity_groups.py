"""Does the promise hold by group, with any shape, and for the very predictor that is made?

    python -m experiments.validity_groups -o experiments/results/validity-groups

The federations are those of `Federation.up_to_twenty`. Their coverage is computed exactly.

**On average.** The search is that of `validity`: each federation is calibrated a few times, and the
worst are calibrated again with fresh draws. deficit, z and the reasoning about chance are explained
there. A row of a table is one kind of shape with one `min_count`, and goes through all families.

**With confidence 0.95.** A calibration falls short if any group has an exact coverage below
1 - alpha. The share of calibrations that fall short may be at most 0.05 in every federation. Each
federation is calibrated 100 times, and those with the largest shares again with fresh draws. Here
z = (share - 0.05) / sqrt(0.05 * 0.95 / calibrations). A row is one kind of bound.

| part         | what it asks                                                                   |
|--------------|--------------------------------------------------------------------------------|
| `groups`     | Is the promise kept by group, with good, bad and absurd shapes?                |
| `atoms`      | Is it kept if summaries by atom are calibrated with a shape?                   |
| `confidence` | With a confidence of 0.95, how often does a predictor fall short?              |
| `broken`     | Would the search notice a wrong rule? (`BROKEN` says which ones are tried.)    |

Cost: about 15 ms for a calibration. All parts take 20 minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from experiments import tables, validity
from experiments.federations import SHAPES, Configuration, Federation
from experiments.validity import largest_by_chance, repeated
from gcfcp import codec
from gcfcp.calibration import confidence as confidences
from gcfcp.calibration import server
from gcfcp.calibration.problem import Tally
from gcfcp.shape import Shape

CONFIDENCE = 0.95

FAMILIES = (
    "disjoint",
    "overlapping",
    "partitions",
    "crossing 4",
    "sites",
    "absent",
    "everyone",
    "missing",
)

ROUNDS = ((1.0, 4), (0.03, 40), (0.3, 200))
"""Those of the search for a deficit; see `validity.ROUNDS`."""

CONFIDENCE_ROUNDS = ((1.0, 100), (0.1, 300), (0.34, 1000))
"""Those of the search for shares above 0.05."""

_FIRST_SEED = 10_000_000
_DIGESTS = ("any", "coarse", "every score")


# --- wrong rules ---------------------------------------------------------------------------------


@contextmanager
def _instead(owner: Any, name: str, new: Any) -> Iterator[None]:
    """Put something else in the place of an attribute."""
    old = vars(owner)[name]
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def without_reasons() -> AbstractContextManager[None]:
    """Do not find out why a threshold is infinite, which takes longer than to calibrate."""
    return _instead(server, "atom_records", lambda *_: ())


def levels_plus_shape() -> AbstractContextManager[None]:
    """Add the shape to the level in floats, instead of comparing residuals."""
    return _instead(Shape, "raised", lambda self, levels, rows: levels + self.of_atoms(rows))


def hidden_times(factor: float) -> AbstractContextManager[None]:
    """Charge only this part of the records that may be hidden, rounded down."""
    honest = Tally.of

    def fewer(summaries: Any) -> Tally:
        tally = honest(summaries)
        return replace(tally, suppressed=np.floor(factor * tally.suppressed).astype(np.int64))

    return _instead(Tally, "of", staticmethod(fewer))


def tail_times(factor: float) -> AbstractContextManager[None]:
    """Let each group fail with so many times the probability that it may fail with."""
    honest = confidences.tail_of
    return _instead(confidences, "tail_of", lambda *given: min(0.99, factor * honest(*given)))


BROKEN: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "none": nullcontext,
    "level + shape in floats": levels_plus_shape,
    "five times the tail": lambda: tail_times(5),
    "an average instead of a confidence": nullcontext,
}
"""The wrong rules that are tried. With the last, no confidence is asked for."""


# --- on average ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One kind of shape and one `min_count`, and the worst federation of the last round."""

    by: str
    shape: str
    min_count: int
    broken: str  # Which rule is wrong; "none" if all are right.
    claim: str
    federations: int
    calibrations: int
    compared: int
    below: int
    deficit: float
    error: float
    z: float
    mean_excess: float
    family: str  # This and all that follows describe the worst federation.
    merge: str
    digests: str
    alpha: float
    delta: float
    grain: float
    mixture: str
    sizes: tuple[int, ...]
    seed: int
    seconds: float


def drawn(
    by: str, shape: str, min_count: int, federations: int, first: int, families: Sequence[str]
) -> list[Federation]:
    """Federations of all these families, digests and merges in turn."""
    kinds = itertools.cycle(itertools.product(_DIGESTS, ("pool", "pool", "region"), families))
    return [
        Federation.up_to_twenty(
            Configuration(family, "max", "upper", merge, min_count, "sharp", digests, by, shape),
            first + i,
        )
        for i, (digests, merge, family) in enumerate(itertools.islice(kinds, federations))
    ]


def on_average(
    by: str,
    shape: str,
    min_count: int,
    federations: int,
    first: int,
    broken: str = "none",
    families: Sequence[str] = FAMILIES,
) -> Row:
    """Search these federations for a group whose mean coverage is below 1 - alpha."""
    started = time.process_time()
    chosen = drawn(by, shape, min_count, federations, first, families)
    with BROKEN[broken](), without_reasons(), _instead(validity, "ROUNDS", ROUNDS):
        made = validity.search(chosen)
    worst = made.worst
    f = worst.federation
    c = f.configuration
    return Row(
        by,
        shape,
        min_count,
        broken,
        made.claim,
        federations,
        made.calibrations,
        made.compared,
        made.below,
        worst.deficit,
        worst.error,
        worst.z,
        made.mean_excess,
        c.family,
        c.merge,
        c.digests,
        f.alpha,
        f.delta,
        f.grain,
        f.mixture if isinstance(f.mixture, str) else "given",
        f.sizes,
        f.seed,
        time.process_time() - started,
    )


# --- with a confidence ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Federations in which one bound applies to all groups, or the bounds are mixed."""

    name: str
    bound: str
    families: tuple[str, ...]
    fits: Callable[[Federation], bool]


def _alike(f: Federation) -> bool:
    """Whether several clients take part, and all of their records weigh the same."""
    return len(f.sizes) > 1 and f.mixture == "proportional"


KINDS = {
    k.name: k
    for k in (
        Kind(
            "one client",
            "exact (Clopper-Pearson)",
            ("everyone alone", "disjoint", "overlapping", "everyone"),
            lambda f: len(f.sizes) == 1,
        ),
        Kind(
            "everyone, records alike",
            "exact (Hoeffding 1956)",
            ("everyone alone",),
            _alike,
        ),
        Kind(
            "everyone, other mixtures",
            "betting",
            ("everyone alone",),
            lambda f: len(f.sizes) > 1 and f.mixture != "proportional",
        ),
        Kind(
            "groups by data",
            "betting",
            ("disjoint", "overlapping", "crossing 3", "missing"),
            lambda f: len(f.sizes) > 1,
        ),
        Kind(
            "everyone, attributes and sites",
            "Hoeffding, betting, and exact for sites",
            ("everyone", "everyone and sites"),
            _alike,
        ),
    )
}


@dataclass(frozen=True)
class Share:
    """How often the calibrations of one federation fell short."""

    federation: Federation
    calibrations: int
    short: int  # How many had a group below 1 - alpha.
    finite: float  # In what share of them some group had a coverage below 1.

    @property
    def share(self) -> float:
        """The share that fell short."""
        return self.short / self.calibrations

    @property
    def z(self) -> float:
        """How far the share is above 0.05, in standard errors of a share of 0.05."""
        error = math.sqrt((1 - CONFIDENCE) * CONFIDENCE / self.calibrations)
        return (self.share - (1 - CONFIDENCE)) / error


def share_of(federation: Federation, calibrations: int, number: int) -> Share:
    """Calibrate this federation so many times. `number` is that of the round."""
    rng = np.random.default_rng([2026, federation.seed, number])
    outcomes = repeated(federation.calibrated, rng, calibrations)
    excess = np.array([o.excess for o in outcomes])
    return Share(
        federation,
        calibrations,
        int((excess < -1e-12).any(axis=1).sum()),
        float((excess < federation.alpha - 1e-12).any(axis=1).mean()),
    )


def with_confidence(
    kind: Kind, federations: int, first: int, confidence: float | None = CONFIDENCE
) -> list[Federation]:
    """Federations of one kind that have enough records for finite thresholds."""
    settings = itertools.cycle(
        itertools.product(
            (("atom", 1), ("group", 1), ("group", 4)), ("none", "good", "bad"), kind.families
        )
    )
    found: list[Federation] = []
    setting = next(settings)
    for seed in itertools.count(first):
        (by, min_count), shape, family = setting
        c = Configuration(
            family, "max", "upper", "pool", min_count, "sharp", "any", by, shape, confidence
        )
        f = Federation.up_to_twenty(c, seed)
        if kind.fits(f) and len(f.sizes) <= 10 and f.alpha * sum(f.sizes) >= 8:
            found.append(f)
            setting = next(settings)
        if len(found) == federations:
            break
    return found


@dataclass(frozen=True)
class Confident:
    """One kind of bound: the mean share, and the largest of the last round."""

    kind: str
    bound: str
    broken: str
    federations: int
    calibrations: int
    finite: int  # How many federations have mostly finite thresholds.
    mean_share: float  # The mean share that falls short, over these federations.
    first_share: float  # The largest share of the first round.
    compared: int  # How many federations take part in the last round.
    largest: float  # The largest share of the last round; the federation is described below.
    last: int  # How often this federation was calibrated in the last round.
    z: float
    family: str
    by: str
    shape: str
    min_count: int
    alpha: float
    delta: float
    groups: int
    sizes: tuple[int, ...]
    seed: int
    seconds: float


def confident(name: str, federations: int, first: int, broken: str = "none") -> Confident:
    """Search the federations of a kind for one that falls short more often than it may."""
    started = time.process_time()
    kind = KINDS[name]
    plain = broken == "an average instead of a confidence"
    chosen = with_confidence(kind, federations, first, None if plain else CONFIDENCE)
    done = 0
    rounds: list[list[Share]] = []
    with BROKEN[broken](), without_reasons():
        for number, (share, calibrations) in enumerate(CONFIDENCE_ROUNDS):
            if number:
                worst_first = sorted(rounds[-1], key=lambda s: -s.share)
                left = worst_first[: max(2, math.ceil(share * len(worst_first)))]
                chosen = [s.federation for s in left]
            rounds.append([share_of(f, calibrations, number) for f in chosen])
            done += calibrations * len(chosen)
    finite = [s.share for s in rounds[0] if s.finite > 0.5]
    worst = max(rounds[-1], key=lambda s: s.share)
    f = worst.federation
    c = f.configuration
    return Confident(
        name,
        kind.bound,
        broken,
        federations,
        done,
        len(finite),
        float(np.mean(finite)) if finite else 0.0,
        max(s.share for s in rounds[0]),
        len(rounds[-1]),
        worst.share,
        worst.calibrations,
        worst.z,
        c.family,
        c.by,
        c.shape,
        c.min_count,
        f.alpha,
        f.delta,
        len(f.groups),
        f.sizes,
        f.seed,
        time.process_time() - started,
    )


# --- the page ------------------------------------------------------------------------------------


def _row_table(rows: Sequence[Row]) -> str:
    """One line for each kind of shape and `min_count`."""
    shown: dict[str, Callable[[Row], Any]] = {
        "by": lambda r: r.by,
        "shape": lambda r: r.shape,
        "min_count": lambda r: r.min_count,
        "what is wrong": lambda r: r.broken,
        "claim": lambda r: r.claim,
        "federations": lambda r: r.federations,
        "worst deficit": lambda r: f"{r.deficit:+.4f}",
        "error": lambda r: f"{r.error:.4f}",
        "z": lambda r: f"{r.z:+.1f}",
        "mean excess": lambda r: f"{r.mean_excess:.3f}",
        "groups": lambda r: r.family,
        "mixture": lambda r: r.mixture,
        "alpha": lambda r: f"{r.alpha:g}",
        "clients": lambda r: len(r.sizes),
        "records": lambda r: sum(r.sizes),
    }
    if all(r.broken == "none" for r in rows):
        del shown["what is wrong"]
    return tables.markdown(list(shown), [[show(r) for show in shown.values()] for r in rows])


def _confident_table(rows: Sequence[Confident]) -> str:
    """One line for each kind of bound."""
    shown: dict[str, Callable[[Confident], Any]] = {
        "federations of": lambda r: r.kind,
        "bound": lambda r: r.bound,
        "what is wrong": lambda r: r.broken,
        "federations": lambda r: r.federations,
        "with finite thresholds": lambda r: r.finite,
        "mean share": lambda r: f"{r.mean_share:.4f}",
        "largest of the first round": lambda r: f"{r.first_share:.3f}",
        "largest of the last": lambda r: f"{r.largest:.4f}",
        "z": lambda r: f"{r.z:+.1f}",
        "groups": lambda r: f"{r.groups} ({r.family})",
        "by": lambda r: r.by,
        "min_count": lambda r: r.min_count,
        "alpha": lambda r: f"{r.alpha:g}",
        "clients": lambda r: len(r.sizes),
        "records": lambda r: sum(r.sizes),
    }
    if all(r.broken == "none" for r in rows):
        del shown["what is wrong"]
    return tables.markdown(list(shown), [[show(r) for show in shown.values()] for r in rows])


def page(results: dict[str, list[Any]], seconds: float) -> str:
    """The results as a Markdown page."""
    groups, atoms, sure = results["groups"], results["atoms"], results["confidence"]
    broken = results["broken"]
    rows = [*groups, *atoms]
    compared = sum(r.compared for r in rows)
    usual, most = largest_by_chance(compared)
    sure_usual, sure_most = largest_by_chance(sum(r.compared for r in sure))
    everything = [*rows, *sure, *broken]
    finite = sum(r.finite for r in sure)
    lines = [
        "# Is the promise kept by group, with any shape, and with a confidence?",
        "",
        "    python -m experiments.validity_groups -o experiments/results/validity-groups",
        "",
        f"{sum(r.calibrations for r in everything):,} calibrations of random federations with 1 to "
        f"20 clients; {seconds / 60:.0f} minutes of processor time. Coverage is computed exactly. "
        "The module says what is drawn and how the worst are singled out.",
        "",
        "deficit: 1 - alpha less average coverage of the worst group of the worst federation, from "
        f"{ROUNDS[-1][1]:,} fresh calibrations; negative: the promise is exceeded. error: its "
        "standard error. z: deficit by error. mean excess: coverage less 1 - alpha, mean over all "
        "groups and federations. claim: what `Guarantee` says. The last columns describe the worst "
        "federation.",
        "",
        "## Summaries by group",
        "",
        f"{sum(r.federations for r in groups):,} federations. The largest z is "
        f"{max(r.z for r in groups):+.1f}. In the last round of this table and the next, "
        f"{compared:,} groups were compared. If every one of them had a coverage of exactly "
        f"1 - alpha, the largest of as many independent z scores would be {usual:.1f} (median), "
        f"and above {most:.1f} in one of a hundred studies.",
        "",
        _row_table(groups),
        "## Summaries by atom, calibrated with a shape",
        "",
        f"{sum(r.federations for r in atoms):,} federations. The largest z is "
        f"{max(r.z for r in atoms):+.1f}.",
        "",
        _row_table(atoms),
        f"## With a confidence of {CONFIDENCE:g}",
        "",
        "A calibration falls short if any of its groups has a coverage below 1 - alpha; that may "
        f"happen in {1 - CONFIDENCE:.2g} of the calibrations. {sum(r.federations for r in sure):,} "
        f"federations were calibrated {CONFIDENCE_ROUNDS[0][1]} times each, and the worst again "
        f"with fresh draws, at last {CONFIDENCE_ROUNDS[-1][1]:,} times. mean share: the mean share "
        "that falls short, over the federations that mostly have a finite threshold; on average "
        f"over all {finite} of them it is "
        f"{sum(r.mean_share * r.finite for r in sure) / max(1, finite):.4f}. z: how far the "
        "largest share of the last round is above 0.05, in standard errors of a share of 0.05. "
        f"The largest z is {max(r.z for r in sure):+.1f}; if all shares were exactly 0.05, it "
        f"would be {sure_usual:.1f} (median), and above {sure_most:.1f} in one of a hundred "
        "studies.",
        "",
        _confident_table(sure),
        "## Would a wrong rule be noticed?",
        "",
        "The same searches, with rules that were made wrong on purpose.",
        "",
        _row_table([r for r in broken if isinstance(r, Row)]),
        _confident_table([r for r in broken if isinstance(r, Confident)]),
    ]
    return "\n".join(lines).rstrip() + "\n"


# --- the command ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A call of a function of this module."""

    part: str
    function: str
    arguments: tuple[Any, ...]


def tasks(scale: float) -> list[Task]:
    """All calls of the study. With `scale` below 1 there are fewer federations."""

    def times(number: int) -> int:
        return max(2, math.ceil(scale * number))

    found = [
        Task("groups", "on_average", ("group", shape, min_count, times(250)))
        for shape in SHAPES
        for min_count in (1, 4)
    ]
    found += [
        Task("atoms", "on_average", ("atom", shape, min_count, times(40)))
        for shape in ("good", "bad", "absurd", "two decimals")
        for min_count in (1, 4)
    ]
    found += [Task("confidence", "confident", (kind, times(60))) for kind in KINDS]
    seeded = [
        replace(t, arguments=(*t.arguments, _FIRST_SEED + 10_000 * i)) for i, t in enumerate(found)
    ]
    first = _FIRST_SEED + 10_000 * len(found)
    seeded += [
        Task("broken", "on_average", (*given, times(50), first, broken, families))
        for given, broken, families in (
            (("group", "two decimals", 1), "level + shape in floats", ("everyone alone",)),
        )
    ]
    seeded += [
        Task("broken", "confident", (kind, times(8), first, broken))
        for kind, broken in (
            ("one client", "five times the tail"),
            ("one client", "an average instead of a confidence"),
            ("everyone, records alike", "five times the tail"),
            ("groups by data", "an average instead of a confidence"),
        )
    ]
    return seeded


def perform(task: Task) -> Row | Confident:
    """What a task finds."""
    found = globals()[task.function](*task.arguments)
    return cast(Row | Confident, found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, and write validity-groups.md and validity-groups.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "-o", "--output", default="validity-groups", help="directory for the tables"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="less than 1 for a shorter study")
    options = parser.parse_args(arguments)
    todo = tasks(options.scale)
    results: dict[str, list[Row | Confident]] = {}
    for i, task in enumerate(todo):
        found = perform(task)
        results.setdefault(task.part, []).append(found)
        print(f"{i + 1} of {len(todo)}, {found.seconds:.0f} s: {found}", flush=True)
    seconds = sum(r.seconds for rows in results.values() for r in rows)
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    plain = {part: [asdict(r) for r in rows] for part, rows in results.items()}
    text = json.dumps({"seconds": seconds, **plain}, indent=1)
    codec.write(folder / "validity-groups.json", (text + "\n").encode())
    codec.write(folder / "validity-groups.md", page(results, seconds).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
