"""What a calibration would give: which thresholds will be infinite, why, and what would help.

The plan also says what the test point weighs, and what the stated mixture and the groups cost. A
small client with a large share of the mixture has a large pi_k / n_k, which makes the test point
heavy for all groups at once. Where groups overlap, an atom can have no finite threshold although
each of its groups has one; the plan finds these atoms by solving the problem. Every remedy was
tried before the plan names it (see `remedies`).

Cost: that of a calibration, of one more for each client up to `SHOWN_SITES` clients, and of some
evaluations for each group that is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools
from gcfcp.calibration import remedies
from gcfcp.calibration.admission import MAX_ATOMS, Admission, Aggregates
from gcfcp.calibration.clients import twin_texts
from gcfcp.calibration.correction import THEOREM_2, Correction
from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.noisy import planned_costs
from gcfcp.calibration.problem import Problem, problem_of, shares_of
from gcfcp.calibration.reasons import AtomRecord, atom_records
from gcfcp.calibration.screening import Screening, screen
from gcfcp.calibration.server import Calibration, calibration_of, solve_table
from gcfcp.calibration.unseen import UnseenSite
from gcfcp.groups import BOUNDED, find_atoms, imbalances
from gcfcp.noise import checked_epsilon
from gcfcp.notebook import as_html
from gcfcp.summary import ClientSummary
from gcfcp.thresholds import ThresholdTable

SHOWN_SITES = 50
"""For more clients than this, the plan does not say how an unseen site would fare."""

_NOT_BY_CHANCE = 20.0  # An absence of probability exp(-20) is no accident.
_LARGE_GAMMA = 3.0  # From this size on, the plan says what the groups cost and what would help.


@dataclass(frozen=True)
class ClientPlan:
    """What the plan says about one client."""

    client: str
    n: int  # How many records it has.
    share: float  # pi_k, its weight in the mixture.
    record_weight: float  # The weight of one of its records; 1 is the average of all records.
    suppressed: int  # How many of its records are suppressed.


@dataclass(frozen=True)
class GroupPlan:
    """What the plan says about one group."""

    group: str
    records: int  # How many described records it has.
    weight: float  # W_G, the weight of its records: about its share of the mixture.
    charge: float  # How much the test point weighs in this group, in records.
    finite: bool  # Whether it has a finite threshold on its own. An atom of it may still have none.
    missing: int | None  # How many more records it needs; None if no number of them would help.
    growth: float | None  # The factor by which all clients must grow; None if none is enough.
    least_alpha: float  # An alpha of three digits at which it is surely finite on its own.
    withheld: int = 0  # By group: how many records of it may be withheld.
    largest_client: str | None = None  # The client with the largest share of its weight.
    largest_share: float = 0.0  # That share, suppressed records included.
    privacy: float = 0.0  # The coverage that noise costs; see `Guarantee.privacy`.
    nobody: bool = False  # Whether no client can have described or suppressed a record of it.


@dataclass(frozen=True)
class Plan:
    """What a calibration of these summaries would give, and what would make more of it finite."""

    alpha: float
    test_weight: float  # w_test, the largest weight of the test point in any group.
    correction: Correction  # The same in records, and on what ground.
    clients: tuple[ClientPlan, ...]
    groups: tuple[GroupPlan, ...]
    atoms: tuple[AtomRecord, ...]  # One record for each atom, with its threshold.
    notes: tuple[str, ...]  # Sentences that say what the mixture and the groups cost.
    advice: tuple[str, ...]  # Sentences that say what would help; none if every atom is finite.
    screening: tuple[Screening, ...] = ()  # How far each client is from the others; see `screen`.
    unseen_site: tuple[UnseenSite, ...] = ()  # See `Calibration.unseen_site`.
    by: str = "atom"  # What `atoms` are: atoms, or groups for summaries by group.

    @property
    def finite(self) -> bool:
        """Whether every atom will have a finite threshold."""
        return all(a.reason is None for a in self.atoms)

    @property
    def attention_first(self) -> list[GroupPlan]:
        """The groups, those without any record first."""
        return sorted(self.groups, key=lambda g: not g.nobody)

    def __str__(self) -> str:
        lines = [
            f"alpha={self.alpha:g}; {self.correction}",
            *(
                f"  {g.group}: {g.records:,} records, weight {g.weight:.4f}{self._most(g)}: "
                f"{_state(g)}"
                for g in self.attention_first
            ),
        ]
        return "\n".join([*lines, *self._remarks()])

    def _repr_html_(self) -> str:
        """The same for a notebook, with the groups as a table."""
        return as_html(
            [f"alpha={self.alpha:g}; {self.correction}"],
            ["group", "on its own", "records", "weight", "largest share"],
            [
                [
                    g.group,
                    _state(g),
                    f"{g.records:,}",
                    f"{g.weight:.4f}",
                    self._most(g).strip(" ()"),
                ]
                for g in self.attention_first
            ],
            self._remarks(),
            left=2,
        )

    def _remarks(self) -> list[str]:
        """What is said below the groups: infinite atoms, notes, odd clients, and advice."""
        lines = [
            f"  {self.by} {' & '.join(a.groups)}: {a.threshold}: {a.reason}"
            for a in self.atoms
            if a.reason is not None
        ]
        lines += [f"  * {note}" for note in self.notes]
        lines += [f"  ! {s}" for s in self.screening if s.flagged]
        return [*lines, *(f"  -> {a}" for a in self.advice)]

    def _most(self, group: GroupPlan) -> str:
        """Which client has the largest share of the group, if there are several clients."""
        if group.largest_client is None or len(self.clients) == 1:
            return ""
        return f" ({group.largest_share:.1%} from {group.largest_client})"


def _state(group: GroupPlan) -> str:
    """Whether the group is finite on its own and, if it is not, how many records it needs."""
    if group.nobody:
        return "INFINITE, because no site has a record of it"
    if group.finite:
        return "finite"
    if group.withheld:
        return f"INFINITE, and up to {group.withheld:,} records of it are withheld"
    if group.privacy and not group.finite and group.missing is None:
        return f"INFINITE, and noise costs {group.privacy:.3f} of the coverage"
    if group.missing is None or group.growth is None:
        return "INFINITE, and more records of the same kind would not help"
    return (
        f"INFINITE, {group.missing:,} more records are needed (all clients must grow by a factor "
        f"of {group.growth:.3g})"
    )


def plan(
    summaries: Iterable[ClientSummary],
    alpha: float = 0.1,
    mixture: Mixture = "proportional",
    merge: str = "pool",
    *,
    rule: str | None = None,
    correction: str = "sharp",
    delta: float | None = None,
    shape: Any = None,
    confidence: float | None = None,
    aggregates: Aggregates = (),
    round: str | None = None,
    max_atoms: int | None = MAX_ATOMS,
    epsilon: float | None = None,
) -> Plan:
    """Which thresholds would be infinite, why, how many records are missing, and what would help.

    - `epsilon`: For counts on a grid without noise, such as those of an earlier quarter: the plan
      says how much coverage noise of this epsilon would cost each group (`GroupPlan.privacy`).

    All other arguments are those of `calibrate`. No warning is given: the plan says everything, and
    which client has the largest share of each group.
    """
    problem = problem_of(
        summaries,
        alpha,
        mixture,
        merge,
        delta,
        rule,
        correction,
        shape,
        confidence,
        Admission.of(aggregates, round, max_atoms=max_atoms),
    )
    table = solve_table(problem)
    records = atom_records(problem, table)
    made = calibration_of(problem, table, records, mixture, merge, delta, eta=0.1)
    privacy = [g.privacy for g in made.guarantee]
    if epsilon is not None:
        privacy = planned_costs(problem, checked_epsilon(epsilon)).tolist()
    return Plan(
        alpha=float(problem.alpha),
        test_weight=made.test_weight,
        correction=problem.correction,
        clients=_client_plans(problem),
        groups=_group_plans(problem, privacy),
        atoms=records,
        notes=(
            *_notes_on_nobody(problem),
            *_note_on_the_mixture(problem),
            *_note_on_the_groups(problem),
            *_note_on_the_noise(problem, privacy, epsilon),
            *twin_texts(made.twins),
        ),
        advice=_advice(problem, table, records),
        screening=screen(problem.summaries, aggregates=problem.admission.aggregates),
        unseen_site=_unseen(made),
        by=problem.by,
    )


def _unseen(made: Calibration) -> tuple[UnseenSite, ...]:
    """How each site would fare if it took no part, unless there are too many sites or only one."""
    told = made.problem.noise is None and 1 < len(made.summaries) <= SHOWN_SITES
    return made.unseen_site() if told else ()


def _client_plans(problem: Problem) -> tuple[ClientPlan, ...]:
    """One record for each client, in the order of the clients' names."""
    relative = problem.weights.rate / problem.weights.unit * problem.sizes.n.sum()
    return tuple(
        ClientPlan(s.client, s.n, float(p), float(w), s.suppressed)
        for s, p, w in zip(problem.summaries, problem.shares, relative, strict=True)
    )


def _group_plans(problem: Problem, privacy: Sequence[float]) -> tuple[GroupPlan, ...]:
    """One record for each group, in the order of the groups."""
    weights, tally = problem.weights, problem.tally
    counts = tally.described.sum(axis=0)
    mass = weights.rate @ tally.described / weights.unit
    charge = problem.charged.most / weights.unit * problem.sizes.n.sum()
    alone, noise = problem.finite_alone, problem.noise is not None
    tried: dict[Fraction, Bools] = {}
    largest = {found.group: found for found in problem.largest_shares}
    plans = []
    for g, name in enumerate(problem.groups.names):
        withheld = int(tally.suppressed[:, g].sum()) if problem.by == "group" else 0
        missing, growth = (0, 1.0) if alone[g] else remedies.records_missing(problem, g)
        if (withheld or noise) and not alone[g]:  # What more records would give is not known.
            missing = growth = None
        plans.append(
            GroupPlan(
                group=name,
                records=int(counts[g]),
                weight=float(mass[g]),
                charge=float(charge[g]),
                finite=bool(alone[g]),
                missing=missing,
                growth=growth,
                least_alpha=min(
                    1.0 if noise else remedies.least_alpha(problem, g, tried),
                    float(problem.alpha) if alone[g] else 1.0,
                ),
                withheld=withheld,
                largest_client=largest[name].client if name in largest else None,
                largest_share=largest[name].share if name in largest else 0.0,
                privacy=privacy[g],
                nobody=not (counts[g] or tally.suppressed[:, g].any()),
            )
        )
    return tuple(plans)


# --- What the mixture and the groups cost --------------------------------------------------------


def _notes_on_nobody(problem: Problem) -> list[str]:
    """Which groups no site has, or one site lacks that the others have, and what to look at."""
    described, suppressed = problem.tally.described, problem.tally.suppressed
    n, notes = problem.sizes.n, []
    for g, name in enumerate(problem.groups.others):
        what = f"group {name!r} ({problem.groups.condition_of(name)})"
        if not described[:, g].any() and not suppressed[:, g].any():
            notes.append(
                f"no site has a record of {what}: look at its condition and at the values at the "
                "sites, which gcfcp summarize names there"
            )
            continue
        for k, s in enumerate(problem.summaries):
            if described[k, g] or suppressed[k, g] or not s.possible[g] or len(n) == 1:
                continue
            share = (described[:, g].sum() - described[k, g]) / (n.sum() - n[k])
            # By chance this happens with the probability (1 - share)^n_k.
            if -n[k] * math.log1p(-min(share, 1 - 1e-9)) > _NOT_BY_CHANCE:
                notes.append(
                    f"{s.client} has no record of {what}, which {share:.1%} of the records "
                    "elsewhere belong to: ask the site how it writes these values"
                )
    return notes


def _note_on_the_mixture(problem: Problem) -> list[str]:
    """What the stated mixture costs against the one in proportion to the records."""
    dearest = remedies.dearest_client(problem)
    if dearest is None:
        return []
    s, share = problem.summaries[dearest[0]], float(problem.shares[dearest[0]])
    cheaper = remedies.charged_records(problem, shares_of(problem.summaries, "proportional"))
    return [
        f"under this mixture the test point weighs as {problem.correction.records:.3g} records, "
        f"and as {cheaper:.3g} under mixture='proportional': {s.client} has {s.n:,} records for "
        f"{share:.1%} of the mixture"
    ]


def _note_on_the_groups(problem: Problem) -> list[str]:
    """What overlapping groups cost in one fit, and which rule or which group would change it."""
    correction = problem.correction
    large = (correction.gamma or 0.0) >= _LARGE_GAMMA and not correction.followed
    if correction.theorem != THEOREM_2 or not large:
        return []
    about = "at most " if correction.gamma_ground == BOUNDED else ""
    note = (
        f"the groups overlap in such a way that gamma is {about}{correction.gamma:.4g}, and one "
        f"fit for all groups charges up to {correction.records:.3g} records; rule='max' charges "
        f"{remedies.charged_records(problem, rule='max'):.3g}"
    )
    atoms = problem.coreset.membership
    if len(problem.groups) > 2 and correction.gamma_ground != BOUNDED:
        without = [_gamma_without(atoms, g) for g in range(len(problem.groups))]
        g = int(np.argmin(without))
        if without[g] < (correction.gamma or 0.0):
            note += f"; without group {problem.groups.names[g]!r} gamma would be {without[g]:.4g}"
    return [note]


def _note_on_the_noise(
    problem: Problem, privacy: Sequence[float], epsilon: float | None
) -> list[str]:
    """What noise costs in each group, or would cost."""
    names = problem.groups.names
    costs = ", ".join(f"{name} {cost:.3f}" for name, cost in zip(names, privacy, strict=True))
    if epsilon is not None:
        return [f"noise of epsilon={epsilon:g} would cost this much coverage: {costs}"]
    if problem.noise is None:
        return []
    return [
        f"noise of epsilon={problem.noise.epsilon:g} costs this much coverage beyond the promise: "
        f"{costs}; records are counted with noise"
    ]


def _gamma_without(atoms: Bools, g: int) -> float:
    """gamma of the atoms that are left if group g is not in the family."""
    left = np.delete(atoms, g, axis=1)
    rows = find_atoms(np.ascontiguousarray(left[left.any(axis=1)])).membership
    return max((i.gamma for i in imbalances(rows, rows)), default=1.0)


# --- What would help -----------------------------------------------------------------------------


def _advice(
    problem: Problem, table: ThresholdTable, records: Sequence[AtomRecord]
) -> tuple[str, ...]:
    """What would make more thresholds finite. Each sentence is true on its own, and was tried."""
    if all(r.reason is None for r in records):
        return ()
    if problem.noise is not None:
        return (
            "a larger epsilon, a grid of fewer cells near the thresholds, more records or a larger "
            "alpha would leave more groups finite",
        )
    short = ~problem.finite_alone
    advice = []
    if short.any():
        advice += _advice_on_the_correction(problem, short)
        advice += _advice_on_the_mixture(problem, short)
    advice += _advice_on_the_rule(problem, table)
    advice += _advice_on_records(problem, table, short)
    if short.any():
        advice += _advice_on_alpha(problem)
    if problem.tally.suppressed.any():
        advice.append("a smaller min_count would leave fewer records suppressed")
    advice += _advice_on_hidden_groups(problem, short)
    if short.any() and not short.all():
        advice.append(
            f"the promise could be given up for {', '.join(problem.groups.names_of(short))}, by "
            "merging these groups with others or leaving them out: the other groups have enough "
            "records on their own"
        )
    return tuple(advice)


def _helped(problem: Problem, found: Bools, short: Bools) -> str:
    """The names of the groups that a remedy makes finite on their own; "" if there are none."""
    return ", ".join(problem.groups.names_of(short & found))


def _advice_on_the_correction(problem: Problem, short: Bools) -> list[str]:
    """Name the groups that the sharp correction would make finite, if the paper's was used."""
    if problem.correction.kind == "sharp":
        return []
    helped = _helped(problem, remedies.finite_alone(problem, correction="sharp"), short)
    return [f"correction='sharp' makes finite on their own: {helped}"] if helped else []


def _advice_on_the_mixture(problem: Problem, short: Bools) -> list[str]:
    """Name the groups that the proportional mixture would make finite on their own, and the client
    that makes this mixture expensive."""
    proportional = shares_of(problem.summaries, "proportional")
    if proportional == problem.shares:
        return []
    advice = []
    helped = _helped(problem, remedies.finite_alone(problem, shares=proportional), short)
    if helped:
        advice.append(f"mixture='proportional' makes finite on their own: {helped}")
    dearest = remedies.dearest_client(problem)
    if dearest is not None:
        s, share = problem.summaries[dearest[0]], float(problem.shares[dearest[0]])
        needed = remedies.needed_at(problem, dearest[0], short)
        if needed is not None:
            advice.append(
                f"{s.client} has {s.n:,} records for {share:.1%} of the mixture; {needed:,} "
                "records there would make finite on their own under this mixture: "
                f"{', '.join(problem.groups.names_of(short))}"
            )
    return advice


def _advice_on_the_rule(problem: Problem, table: ThresholdTable) -> list[str]:
    """Say how many atoms rule "max" would make finite."""
    if problem.rule == "max":
        return []
    infinite = table.membership[~np.isfinite(table.thresholds_by_atom)]
    by_max = remedies.finite_alone(problem, rule="max")
    helped = int(np.count_nonzero(~(infinite & ~by_max).any(axis=1)))
    if not helped:
        return []
    return [f"rule='max' makes {helped} of the {len(infinite)} infinite atoms finite"]


def _advice_on_records(problem: Problem, table: ThresholdTable, short: Bools) -> list[str]:
    """Say how many times as many records every client would need."""
    if problem.by == "group" and problem.tally.suppressed[:, short].any():
        return []
    if problem.rule == "max":
        needed = [remedies.records_missing(problem, int(g))[1] for g in np.flatnonzero(short)]
        known = [f for f in needed if f is not None]
        factor = max(known) if len(known) == len(needed) and known else None
    else:
        factor = remedies.growth_for_all(problem, table)
    if factor is None:
        return []
    return [
        f"with {math.ceil(100 * factor) / 100:g} times as many records of each kind at every "
        f"client, every {problem.by} would be finite"
    ]


def _advice_on_hidden_groups(problem: Problem, short: Bools) -> list[str]:
    """Name the groups that would be finite if the sites that hide them declared them absent."""
    if problem.by == "atom":
        return []
    hidden = problem.tally.suppressed
    empty = replace(problem, tally=replace(problem.tally, suppressed=np.zeros_like(hidden)))
    helped = short & empty.finite_alone & hidden.any(axis=0)
    return [
        f"group {problem.groups.names[g]!r} would be finite if the {int((hidden[:, g] > 0).sum())} "
        "sites that withhold it had no record of it and declared it absent: "
        + checks.listed(
            [s.client for s, h in zip(problem.summaries, hidden[:, g], strict=True) if h], 5
        )
        for g in np.flatnonzero(helped).tolist()
    ]


def _advice_on_alpha(problem: Problem) -> list[str]:
    """Name an alpha at which every group is finite on its own, if there is one below 1."""
    tried: dict[Fraction, Bools] = {}
    groups = range(len(problem.groups))
    larger = max(remedies.least_alpha(problem, g, tried) for g in groups)
    return [f"alpha={larger:g} would make every group finite on its own"] if larger < 1 else []
