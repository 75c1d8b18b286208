"""What the calibration must charge so that the promise is proved: the weight of the test point.

A threshold is fitted to n records, and the promise is about one more. The test point therefore
takes part in the fit, with some weight. The paper gives every client a point of its own: the test
point weighs sum_k pi_k / (n_k + 1), about as much as K records. docs/guarantees.md proves that far
less is enough, with these words:

- T is a set of clients. It depends on the sizes n_k, the shares pi_k, alpha and the number of
  groups, but never on scores or memberships.
- A record of client k weighs lambda_k = pi_k / (n_k + 1) if k is in T, and omega_k = pi_k / n_k if
  it is not.
- Theorem 1, one group at a time (rule "max"): it is enough that the test point weighs
  sum_{k in T} lambda_k + max_{k not in T} omega_k / (1 - alpha), over the clients that can have
  records of the group.
- Theorem 2, all groups together (rule "simultaneous"): it is enough that the threshold is as high
  as it can get if the test record takes the place of another one, which can be computed (see
  `thresholds.rules`). In any case it is enough that the test point weighs more than
  x sum_{k in T} lambda_k + (1 + y_A) max_{k not in T} omega_k; see `thresholds.charge`. If all
  clients are in T, it is x sum_k lambda_k - (x - 1) min_k lambda_k. Here x is 1 for one or two
  groups, and in general the largest determinant of zeros and ones.
- One client is in T by itself, and w_test = 1 / (n + 1), as Gibbs, Cherian and Candes prove it.

If the shares are in proportion to the records, every omega_k is 1 / n. Then T is empty for two or
more clients, and the test point weighs 1.11 records at alpha = 0.1 for one group at a time, and
mostly 1 to 2 for all groups together, however many clients there are.

How T is chosen. For any threshold on omega_k it is best to put just the clients above it into T, so
that only the K + 1 prefixes of the clients in descending order of omega_k are tried. The least
weight wins. For the simultaneous rule y_A would depend on the memberships. The least that it can
be, alpha / (1 - alpha), stands in its place, so that a client is in T only where that is better for
all groups. An aggregate is never in T: the mixture within it is in proportion to the records of its
members, and all of its records weigh pi_R / n_R.

`correction="paper"` has all clients in T, with the paper's own weight for every rule and group.

| here         | docs/guarantees.md             |
|--------------|--------------------------------|
| `inside`     | T                              |
| `rate`       | lambda_k in T, omega_k outside |
| `test`       | w, by group                    |

Cost: a sort of the clients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.groups import Imbalance, largest_of_any
from gcfcp.summary import ClientSummary
from gcfcp.thresholds import Charge

CORRECTIONS = ("sharp", "paper")
"""The least weight that is proved for the rule and the groups at hand, or the paper's weight."""

ONE_CLIENT = "one client (Gibbs, Cherian, Candes 2023)"
"""The ground of w_test = 1 / (n + 1) for one client."""

THEOREM_1 = "theorem 1 (one group at a time)"
"""The ground of the weight for rule "max"; docs/guarantees.md has the proof."""

THEOREM_2 = "theorem 2 (all groups together)"
"""The ground of the weight for rule "simultaneous"; docs/guarantees.md has the proof."""

THEOREM_3 = "theorem 3 (this very predictor)"
"""The ground of levels with a stated confidence; docs/guarantees.md has the proof."""

THEOREM_4 = "theorem 4 (counts with noise)"
"""The ground of levels from counts with noise; docs/guarantees.md has the proof."""

_ONE_RECORD = 1.005  # A weight below this is called one record: n / (n + 1) of one, or just one.

PAPERS = "the paper's weight"
"""One record for each client, for every rule and group."""


@dataclass(frozen=True)
class Correction:
    """What a calibration charged for the test point.

    Sizes are in records: a weight of w is as much as w n records, if n is the number of all records
    and the weights of all records add up to about 1.
    """

    kind: str  # "sharp" or "paper".
    theorem: str  # The ground: ONE_CLIENT, THEOREM_1, THEOREM_2, THEOREM_3 or PAPERS.
    records: float  # The largest weight of the test point in any group, in records.
    least_records: float  # The smallest one; it is smaller for some groups or atoms.
    paper: float  # What the paper's weight would be, in records.
    inside: tuple[str, ...]  # The clients in T.
    gamma: float | None  # The imbalance of the groups, if theorem 2 was used.
    gamma_ground: str | None  # How gamma was found: "exact", "unimodular", "at most", ...
    followed: bool = False  # Every exchange of a record was followed, so that gamma bounds nothing.
    confidence: float | None = None  # With theorem 3, that of the promise; there is no test point.

    @property
    def size(self) -> str:
        """What the test point weighs, in records: "1.11", or "1.11 to 1.5" if that differs."""
        if self.confidence is not None:
            return "0"
        if self.theorem == ONE_CLIENT and self.records < _ONE_RECORD:
            return "1"
        if self.least_records >= 0.995 * self.records:
            return f"{self.records:.3g}"
        return f"{self.least_records:.3g} to {self.records:.3g}"

    def __str__(self) -> str:
        if self.confidence is not None:
            return (
                f"with {self.confidence:.4g} confidence for all groups together, by {self.theorem};"
                " no test point is charged"
            )
        if self.theorem == ONE_CLIENT:
            text = "one client: the test point weighs as one record"
            if self.records < _ONE_RECORD:
                return text
            return f"{text} of it, which is {self.size} records of all clients"
        text = f"the test point weighs as {self.size} records, by {self.theorem}"
        if self.gamma is not None and not self.followed:
            about = "at most " if self.gamma_ground == "at most" else ""
            text += f" with gamma {about}{self.gamma:.4g}"
        if self.inside:
            text += f"; clients in T: {len(self.inside):,}"
        return text if self.kind == "paper" else f"{text} (the paper's weight: {self.paper:.3g})"


@dataclass(frozen=True)
class Sizes:
    """What the correction depends on, for K clients. Nothing here is known from the scores."""

    n: Floats  # (K,): How many records each client has.
    members: Ints  # (K,): How many clients it stands for.
    shares: Floats  # (K,): pi_k.
    possible: Bools  # (K, G): The groups that each client can have.

    @classmethod
    def of(cls, summaries: Sequence[ClientSummary], shares: Sequence[Fraction]) -> Sizes:
        """The sizes of these summaries."""
        return cls(
            np.array([s.n for s in summaries], dtype=np.float64),
            np.array([len(s.members) for s in summaries]),
            np.array([float(p) for p in shares]),
            np.array([s.possible for s in summaries]),
        )

    @property
    def groups(self) -> int:
        """G, the number of groups."""
        return int(self.possible.shape[1])

    @property
    def omega(self) -> Floats:
        """(K,): pi_k / n_k, the weight of a record of a client outside of T."""
        return self.shares / self.n

    def rates(self, inside: Bools) -> Floats:
        """(K,): The weight of a record of each client, if the clients `inside` are T."""
        return np.where(inside, self.shared, self.omega)

    @property
    def shared(self) -> Floats:
        """(K,): pi_k / (n_k + 1), the weight of a record of a client in T.

        An aggregate of K_R clients has pi_R / (n_R + K_R), which only the paper's weight uses.
        """
        return self.shares / (self.n + self.members)


def factor_inside(groups: int, alpha: Fraction) -> Fraction:
    """x, by which the weight of the clients in T is multiplied for this number of groups.

    It is 1 for one group. The extra records of T may be in atoms that the records do not have, so
    that it must hold for every set of atoms.
    """
    if groups == 1:
        return Fraction(1)
    return largest_of_any(groups) * max(Fraction(1), alpha / (1 - alpha))


def chosen(sizes: Sizes, alpha: Fraction, rule: str, correction: str) -> Bools:
    """T: which clients are in it, bool (K,). A client without weight is always in it."""
    if correction == "paper":
        return np.ones(len(sizes.n), dtype=bool)
    together = rule == "simultaneous" and sizes.groups > 1
    # Beyond the limit only one client by itself can be in T, and the product cannot overflow.
    x = float(min(factor_inside(sizes.groups, alpha), Fraction(10**9))) if together else 1.0
    y = float(alpha / (1 - alpha))
    active = np.flatnonzero(sizes.shares > 0)
    omega, shared, single = sizes.omega[active], sizes.shared[active], sizes.members[active] == 1
    # The clients that may be in T, in descending order, and after them all others.
    order = np.lexsort((-omega, ~single))
    most = int(np.count_nonzero(single))
    # The largest omega_k behind each prefix; behind all clients there is none.
    behind = np.append(np.maximum.accumulate(omega[order][::-1])[::-1], 0.0)[: most + 1]
    weight = x * np.concatenate([[0.0], np.cumsum(shared[order][:most])]) + (1 + y) * behind
    if most == len(omega):
        lightest = float(shared.min())
        weight[-1] = lightest + x * (math.fsum(shared) - lightest)
    inside: Bools = np.array(sizes.shares == 0)
    inside[active[order[: int(np.argmin(weight))]]] = True
    return inside


@dataclass(frozen=True)
class Charged:
    """What the test point weighs. By theorem 2 that may depend on the atom.

    A group then has the weights of its atoms, and those of the largest and smallest weight count.
    """

    most: Floats  # (G,): The largest weight of the test point in an atom of each group.
    least: Floats  # (G,): The smallest one. Below it no atom of the group can be finite.
    charge: Charge | None  # The weight by atom; None if it is the same in all atoms of a group.

    @classmethod
    def alike(cls, weights: Floats) -> Charged:
        """The same weight in all atoms of a group, (G,)."""
        return cls(weights, weights, None)

    def by_atom(self, atoms: Bools, weights: Floats) -> Charged:
        """The same with these weights (a,) of the atoms (a, G), if they depend on the atom at all.

        No record is in a group without atoms, and no weight is enough for it.
        """
        if self.charge is None:
            return self
        own = np.where(atoms, weights[:, None], np.nan)
        present: Bools = np.asarray(atoms.any(axis=0))
        most, least = np.full(len(present), np.inf), np.full(len(present), np.inf)
        most[present] = np.nanmax(own[:, present], axis=0)
        least[present] = np.nanmin(own[:, present], axis=0)
        return Charged(most, least, self.charge)


def charged_weights(
    sizes: Sizes,
    rate: Floats,
    inside: Bools,
    alpha: Fraction,
    rule: str,
    correction: str,
    atoms: Bools,
) -> Charged:
    """The weight of the test point in each group, in the unit of `rate`.

    - `rate`: (K,): The weight of a record of each client, in any unit.
    - `inside`: T.
    - `atoms`: (a, G): The atoms of the records.
    """
    if correction == "paper":
        return Charged.alike(np.full(sizes.groups, math.fsum(sizes.members * rate)))
    keep = 1 - alpha
    if rule == "max":
        within = np.where(inside, rate, 0.0) @ sizes.possible
        # The product is divided only once, so that whole numbers stay whole where they can.
        behind = _heaviest(rate, ~inside, sizes) * keep.denominator / keep.numerator
        return Charged.alike(within + behind)
    charge = charge_of(sizes, rate, inside, alpha)
    if charge is None:
        within = rate[inside & (rate > 0)]
        lightest, x = float(within.min()), factor_inside(sizes.groups, alpha)
        total = lightest + times(x, math.fsum(within) - lightest)
        return Charged.alike(np.full(sizes.groups, total))
    return Charged(np.empty(0), np.empty(0), charge).by_atom(atoms, charge.weights(atoms, atoms))


def charge_of(sizes: Sizes, rate: Floats, inside: Bools, alpha: Fraction) -> Charge | None:
    """What the test point weighs by atom in the simultaneous rule; None if all clients are in T.

    The arguments are those of `charged_weights`.
    """
    if inside.all():
        return None
    within = rate[inside & (rate > 0)]
    distinct, index = np.unique(sizes.possible, axis=0, return_inverse=True)
    outside = np.zeros(len(distinct))
    np.maximum.at(outside, index.ravel(), np.where(inside, 0.0, rate))
    x = factor_inside(sizes.groups, alpha)
    return Charge(alpha, times(x, math.fsum(within)), outside, distinct)


def _heaviest(rate: Floats, which: Bools, sizes: Sizes) -> Floats:
    """The largest rate of these clients that can have each group, (G,); 0 if there is none."""
    own = sizes.possible[which]
    found: Floats = np.where(own, rate[which][:, None], 0.0).max(axis=0, initial=0.0)
    return found


def correction_of(
    sizes: Sizes,
    clients: Sequence[str],
    inside: Bools,
    rule: str,
    kind: str,
    tests: tuple[float, ...],
    worst: Imbalance | None,
    followed: bool,
    confidence: float | None,
) -> Correction:
    """What was charged.

    - `clients`: The names of the clients.
    - `tests`: The smallest and the largest weight of the test point, as parts of the mixture.
    - `worst`: The largest imbalance of any atom, if theorem 2 was used with clients outside of T.
    - `followed`: Whether every exchange of a record was followed.
    - `confidence`: That of the promise, if there is no test point.
    """
    n = float(sizes.n.sum())
    active = sizes.shares > 0
    by_rule = THEOREM_1 if rule == "max" else THEOREM_2
    one = bool(active.sum() == 1 and inside.all())
    return Correction(
        kind=kind,
        theorem=THEOREM_3
        if confidence is not None
        else PAPERS
        if kind == "paper"
        else ONE_CLIENT
        if one
        else by_rule,
        records=tests[1] * n,
        least_records=tests[0] * n,
        paper=paper_weight(sizes) * n,
        inside=tuple(k for k, within in zip(clients, inside & active, strict=True) if within),
        gamma=None if worst is None else worst.gamma,
        gamma_ground=None if worst is None else worst.ground,
        followed=followed,
        confidence=confidence,
    )


def times(x: Fraction, weight: float) -> float:
    """x times a weight. It is infinite if it is beyond all floats, and 0 if the weight is 0."""
    try:
        return float(x * Fraction(weight))
    except OverflowError:
        return math.inf


def paper_weight(sizes: Sizes) -> float:
    """The paper's w_test = sum_k pi_k / (n_k + 1), as a part of the mixture."""
    return math.fsum(sizes.members * sizes.shared)
