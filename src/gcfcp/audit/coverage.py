"""An audit at the server: the counts of all clients become the coverage of each group.

`merge_audits` weighs the clients by the mixture and gives each group its coverage, an interval and
a verdict. A group that is empty or suppressed is listed as well.

Which mixture. The promise is about the mixture that the predictor was calibrated for, so an audit
is about the same mixture unless another one is given. Each audit carries the weight pi_k of its
client there (`Audit.share`), and these are scaled to add up to 1. If no audit carries one, each
audited record counts the same. The report says in words which mixture it is about.

What is estimated. Under the mixture sum_k pi_k P_k the audited predictor covers group G with

    c_G = sum_k pi_k P_k(covered, G) / sum_k pi_k P_k(G).

The promise is about the average of c_G over calibrations. The c_G of one predictor scatters around
this average by about sqrt(alpha (1 - alpha) / n_G), where n_G is the effective number of records in
the group that it was calibrated with. An audit with far more records than that can see the scatter,
and can find the coverage of one predictor below 1 - alpha although the promise holds on average.

The intervals are those of `gcfcp.bounds`. For G groups each end of an interval has
tail = (1 - confidence) / (2 G) (Bonferroni). By the union bound over these 2 G ends, which may
depend on each other because groups overlap, all intervals contain their c_G at once with
probability at least `confidence`. The intervals of atoms are not adjusted: they show where to look,
and nothing is promised for them. A client that suppresses an atom is left out of its interval.

Where counts are hidden (see `client`), client k has between N_k and N'_k records in a group, of
which between M_k and M'_k were missed. An interval must be right for all of them:

- The lower end takes M'_k records as missed, and N_k - M'_k as covered (or none, if that is
  negative). There are no more missed records in truth, and no fewer covered ones, since there are
  at least N_k in all. A lower bound never falls if a missed record is left out or if a covered one
  is added (`gcfcp.bounds`), so that it is not above the bound that the true counts give.
- The upper end takes M_k records as missed and N'_k - M_k as covered, for the same reasons.

The coverage of such a group is left open, and `lowest` and `highest` are the smallest and the
largest share of covered records that agree with the counts: the share rises with every covered
record and falls with every missed one, so that the same numbers give both.

The verdicts compare an interval with 1 - alpha and a margin, which is alpha / 2 unless it is given:

| verdict                 | when                      | what it means                           |
|-------------------------|---------------------------|-----------------------------------------|
| broken                  | high < 1 - alpha          | the coverage is below 1 - alpha         |
| kept                    | low >= 1 - alpha - margin | it is not below by more than the margin |
| too few records to tell | neither of the two        | the interval is too wide for either     |

No number of records could show that a coverage of exactly 1 - alpha is not a little below it. That
is why `kept` needs a margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import checks, codec
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.audit.record import Audit
from gcfcp.bounds import lower_bound
from gcfcp.calibration import Kind, Mixture, one_each
from gcfcp.calibration import mixture as mixtures
from gcfcp.errors import GCFCPError
from gcfcp.groups import find_atoms

AUDITS = Kind(Audit, "audits", "audited", ("predictor",))
"""What the audits of all clients must have in common to be merged."""

KEPT = "kept"
"""The verdict that the coverage is not below 1 - alpha by more than the margin."""

BROKEN = "broken"
"""The verdict that the coverage is below 1 - alpha."""

UNKNOWN = "too few records to tell"
"""The verdict if neither can be shown."""

NO_TARGET = "no target"
"""The verdict if no alpha is known, and that of every atom, because nothing is promised for it."""

_NAMED = 6  # For up to so many clients, the text about a mixture names the weight of each.


@dataclass(frozen=True)
class GroupAudit:
    """What the audits say about one group or one atom."""

    group: str
    # The covered share, weighted by the mixture; None without records, or if the counts that the
    # clients published leave it open.
    coverage: float | None
    low: float  # The lower end of the interval for the coverage.
    high: float  # The upper end of the interval for the coverage.
    covered: int  # How many records were covered at least, over all clients that have weight.
    total: int  # How many records there are at least, over all clients that have weight.
    target: float | None  # 1 - alpha; None if no alpha is known.
    verdict: str  # KEPT, BROKEN, UNKNOWN or NO_TARGET.
    mean_size: float | None  # The mean set size under the mixture; inf if a set is unbounded.
    suppressed: bool  # Whether some client that has weight suppressed this group.
    suppressed_at: tuple[str, ...] = ()  # The clients that suppressed it.
    unbounded: int = 0  # How many sets have an infinite size.
    mean_bounded_size: float | None = None  # The mean size of all other sets.
    # The smallest and the largest covered share that agree with the counts. Both are the coverage
    # where it is known, and None without records.
    lowest: float | None = None
    highest: float | None = None
    covered_at_most: int = 0  # How many records may have been covered.
    total_at_most: int = 0  # How many records there may be.

    @property
    def found(self) -> str:
        """The coverage for people: a number, the range that the counts leave open, or ""."""
        if self.coverage is not None:
            return f"{self.coverage:.4f}"
        if self.lowest is None or self.highest is None:
            return ""
        # Rounding outwards: the range must not look narrower than it is.
        low, high = math.floor(self.lowest * 1e4) / 1e4, math.ceil(self.highest * 1e4) / 1e4
        return f"between {low:.4f} and {high:.4f}"


@dataclass(frozen=True)
class ClientAudit:
    """What the report says about one client."""

    client: str
    n: int  # How many records it audited.
    share: float  # pi_k, its weight in the mixture.
    min_count: int  # It suppresses groups and atoms with fewer records.
    suppressed_groups: int  # How many groups it suppressed.
    suppressed_atoms: int  # How many atoms it suppressed.
    uncovered: int  # How many of its records are in no group.


@dataclass(frozen=True)
class AuditReport:
    """The merged audits of all clients."""

    alpha: float | None  # The alpha that was promised; None if it is not known.
    confidence: float  # All intervals of groups hold at once with at least this probability.
    margin: float | None  # The verdict "kept" allows the coverage to be this far below 1 - alpha.
    adjustment: str  # How the intervals are adjusted for the number of groups, in words.
    interval: str  # How the intervals were computed, in words.
    clients: tuple[ClientAudit, ...]  # One record for each client, by name.
    mixture: str | dict[str, float]  # "uniform", "proportional", or the weight of each client.
    mixture_text: str  # Which mixture this is and where it comes from, in words.
    groups: tuple[GroupAudit, ...]  # One record for each group, in the order of the groups.
    atoms: tuple[GroupAudit, ...]  # One record for each atom that some client published.
    uncovered: int  # How many records are in no group.
    predictor: str | None  # The fingerprint of the audited predictor, if it is known.
    fingerprint: str  # The fingerprint of the groups.
    round: str | None = None  # The round that all audits belong to, if they have one.

    @property
    def kept(self) -> bool:
        """Whether no group has the verdict "broken"."""
        return all(g.verdict != BROKEN for g in self.groups)

    @property
    def shares(self) -> dict[str, float]:
        """pi_k of each client, with which other audits can be merged under the same mixture."""
        return {c.client: c.share for c in self.clients}

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON. An infinite size becomes the text "inf"."""
        plain: dict[str, Any] = codec.plain(asdict(self))
        return plain

    def __str__(self) -> str:
        head = f"coverage at {self.confidence:.0%} confidence ({self.adjustment})"
        if self.alpha is not None:
            head += f", promised {1 - self.alpha:g}"
        mixture = f"mixture of the clients: {self.mixture_text}"
        return "\n".join([head, mixture, *(f"  {_line(g)}" for g in self.groups)])


def _line(g: GroupAudit) -> str:
    """One group as a line of text."""
    where = f", suppressed at {', '.join(g.suppressed_at)}" if g.suppressed else ""
    if not g.found:
        return f"{g.group}: no records{where}: {g.verdict}"
    return (
        f"{g.group}: {g.found} [{g.low:.4f}, {g.high:.4f}] "
        f"({span(g.covered, g.covered_at_most)} of {span(g.total, g.total_at_most)}{where}): "
        f"{g.verdict}"
    )


def span(least: int, most: int) -> str:
    """A number, or the smallest and the largest that are possible: "12" or "3 to 12"."""
    return f"{least:,} to {most:,}" if most > least else f"{least:,}"


def merge_audits(
    audits: Iterable[Audit],
    mixture: Mixture | None = None,
    alpha: float | None = None,
    confidence: float = 0.95,
    *,
    margin: float | None = None,
    round: str | None = None,
) -> AuditReport:
    """The coverage of every group under a mixture of the clients, with an interval and a verdict.

    - `mixture`: The weights pi_k of the clients: "proportional" (to the audited records), "uniform"
      or a mapping from each client to its weight. By default it is the predictor's own mixture, if
      the audits have a `share`, and "proportional" if none of them has.
    - `alpha`: The share of outcomes that may be missed. By default it is what the audits say.
    - `confidence`: The probability with which all intervals of groups hold at once.
    - `margin`: How far below 1 - alpha the verdict "kept" allows the coverage to be. By default it
      is alpha / 2.
    - `round`: The round that all audits must belong to. Audits of different rounds are refused in
      any case.
    """
    ordered = _in_order(audits)
    _check_round(ordered, round)
    confidence = checks.probability("confidence", confidence)
    alpha = _common_alpha(ordered) if alpha is None else float(checks.alpha(alpha))
    if alpha is not None:
        margin = alpha / 2 if margin is None else checks.share("margin", margin)
    weighed = _weighed(ordered, mixture)
    shares = weighed.shares
    G = len(ordered[0].groups)
    tail = (1 - confidence) / 2
    one = sum(p > 0 for p in shares) == 1
    return AuditReport(
        alpha=alpha,
        confidence=confidence,
        margin=None if alpha is None else margin,
        adjustment=f"Bonferroni over {G} {'group' if G == 1 else 'groups'}",
        interval="Clopper-Pearson (exact)" if one else "betting bound (conservative)",
        clients=_client_audits(ordered, shares),
        mixture=mixtures.to_plain(weighed.mixture),
        mixture_text=weighed.text,
        groups=_Cells.of_groups(ordered, shares).records(tail / G, alpha, margin),
        atoms=_Cells.of_atoms(ordered, shares).records(tail, None, None),
        uncovered=sum(a.uncovered for a in ordered),
        predictor=ordered[0].predictor,
        fingerprint=ordered[0].groups.fingerprint,
        round=ordered[0].round,
    )


def _check_round(audits: Sequence[Audit], wanted: str | None) -> None:
    """Raise an error unless all audits belong to one round, which is `wanted` if that is given."""
    if wanted is not None:
        checks.name("round", wanted)
    first = audits[0]
    for a in audits:
        if wanted is not None and a.round != wanted:
            raise GCFCPError(
                f"the audit of {a.client!r} {_in_round(a)}, and not to round {wanted!r}: ask this "
                "site for a new audit, or leave it out"
            )
        if a.round != first.round:
            raise GCFCPError(
                f"the audit of {first.client!r} {_in_round(first)}, and that of {a.client!r} "
                f"{_in_round(a)}: merge audits of one round"
            )


def _in_round(a: Audit) -> str:
    """Which round an audit belongs to, in words."""
    day = f" ({a.date})" if a.date is not None else ""
    return f"belongs to {'no round' if a.round is None else f'round {a.round!r}'}{day}"


def _client_audits(audits: Sequence[Audit], shares: Sequence[float]) -> tuple[ClientAudit, ...]:
    """One record for each client, in the order of the audits."""
    return tuple(
        ClientAudit(
            client=a.client,
            n=a.n,
            share=float(p),
            min_count=a.min_count,
            suppressed_groups=int(np.count_nonzero(a.suppressed)),
            suppressed_atoms=a.suppressed_atoms,
            uncovered=a.uncovered,
        )
        for a, p in zip(audits, shares, strict=True)
    )


def _in_order(audits: Iterable[Audit]) -> tuple[Audit, ...]:
    """One audit for each client, in the order of their names, or an error if they do not fit."""
    ordered = one_each(audits, AUDITS)
    first = next((a for a in ordered if a.told is None), ordered[0])
    for a in ordered:
        # With a `min_count` above 1 there are no sizes in any case.
        if a.told is None and first.told is None and (a.size is None) != (first.size is None):
            raise GCFCPError(
                f"only one of {first.client} and {a.client} counted set sizes: give set_size at "
                "all clients or at none"
            )
    return ordered


def _common_alpha(audits: Sequence[Audit]) -> float | None:
    """The alpha that all audits were made for; None if they do not say."""
    given = {a.alpha: a.client for a in audits}
    if len(given) > 1:
        listed = ", ".join(f"{client}: {alpha}" for alpha, client in given.items())
        raise GCFCPError(
            f"the audits were made for different alpha ({listed}): say with alpha=... which of "
            "them was promised"
        )
    return next(iter(given))


@dataclass(frozen=True)
class _Weighed:
    """How much each client counts."""

    mixture: Mixture
    shares: list[float]  # pi_k of each audit, in their order.
    text: str  # Which mixture this is, in words.


def _weighed(audits: Sequence[Audit], mixture: Mixture | None) -> _Weighed:
    """The shares of the audits under a mixture; None stands for the predictor's own, see the
    module."""
    if mixture is None:
        known = [a for a in audits if a.share is not None]
        if known:
            return _by_predictor(audits, known)
        mixture = "proportional"
    parts = [mixtures.Part(a.client, 1, a.n) for a in audits]
    shares = [float(p) for p in mixtures.shares(parts, mixture)]
    if isinstance(mixture, Mapping):
        text = "weights that were given " + _listed(audits, shares, "for")
    else:
        text = "uniform" if mixture == "uniform" else "in proportion to the audited records"
    return _Weighed(mixture, shares, text)


def _by_predictor(audits: Sequence[Audit], known: Sequence[Audit]) -> _Weighed:
    """The predictor's own mixture of the audited clients; `known` are the audits with a share."""
    unknown = next((a for a in audits if a.share is None), None)
    if unknown is not None:
        raise GCFCPError(
            f"the audit of {known[0].client!r} says what the client weighs in the predictor's "
            f"mixture ({known[0].share:g}), but that of {unknown.client!r} does not: audit both "
            "again under the names that the predictor knows, or say with mixture=... how much each "
            "client counts"
        )
    weights = {a.client: a.share for a in audits if a.share is not None}
    total = math.fsum(weights.values())  # It is exact up to the last bit, in any order.
    if not total:
        raise GCFCPError(
            f"the audited clients ({audits[0].client!r}{', ..' if len(audits) > 1 else ''}) have "
            "the weight 0 in the predictor's mixture: audit a client that has weight there, or say "
            "with mixture=... how much each client counts"
        )
    shares = {client: w / total for client, w in weights.items()}
    text = "the predictor's mixture " + _listed(audits, list(shares.values()), "of")
    if total < 1 - 1e-9:
        text += f" without the sites that were not audited, whose weight is {1 - total:.4g}"
    return _Weighed(shares, list(shares.values()), text)


def _listed(audits: Sequence[Audit], shares: Sequence[float], link: str) -> str:
    """The weight of each client, as in "(a 0.25, b 0.75)". If there are many clients it is their
    number, as in "of 120 sites", where `link` is the "of"."""
    if len(audits) > _NAMED:
        return f"{link} {len(audits):,} sites"
    return f"({', '.join(f'{a.client} {p:.4g}' for a, p in zip(audits, shares, strict=True))})"


@dataclass(frozen=True)
class _Cells:
    """The counts of K clients in c cells. The cells are the groups, or the atoms."""

    clients: tuple[str, ...]
    pi: Floats  # (K,): pi_k, the weight of each client in the mixture.
    n: Ints  # (K,): How many records each client audited.
    names: tuple[str, ...]  # The name of each cell.
    least: Ints  # (K, c): How many records there are at least.
    most: Ints  # (K, c): How many records there are at most.
    least_missed: Ints  # (K, c): How many of them were missed at least.
    most_missed: Ints  # (K, c): How many of them were missed at most.
    suppressed: Bools  # (K, c): Whether the client suppresses the cell.
    # (K, c): Whether the counts of the client leave the coverage open. Audits of gcfcp 0.1.0 left
    # suppressed cells out instead.
    open: Bools
    size: Floats | None  # (K, c): The sum of all finite set sizes, if they were counted.
    unbounded: Ints  # (K, c): How many sets have an infinite size.

    @classmethod
    def of_groups(cls, audits: Sequence[Audit], shares: Sequence[float]) -> _Cells:
        """The counts by group."""
        ranges = [a.ranges for a in audits]
        sizes = [a.size for a in audits if a.size is not None]
        hidden = [a.suppressed if a.told is None else a.told.total < 0 for a in audits]
        most = np.array([r.most for r in ranges])
        return cls(
            clients=tuple(a.client for a in audits),
            pi=np.array(shares),
            n=np.array([a.n for a in audits]),
            names=audits[0].groups.names,
            least=np.array([r.least for r in ranges]),
            most=most,
            least_missed=np.array([r.least_missed for r in ranges]),
            most_missed=np.array([r.most_missed for r in ranges]),
            suppressed=np.array(hidden) & (most > 0),
            open=np.array(
                [~r.exact & (a.told is not None) for a, r in zip(audits, ranges, strict=True)]
            ),
            size=np.array(sizes) if len(sizes) == len(audits) else None,
            unbounded=np.array([a.unbounded for a in audits]),
        )

    @classmethod
    def of_atoms(cls, audits: Sequence[Audit], shares: Sequence[float]) -> _Cells:
        """The counts by atom.

        An atom that a client suppresses counts as having no records at that client. The interval of
        the atom is then about the other clients only.
        """
        groups = audits[0].groups
        atoms = find_atoms(np.concatenate([a.atom_membership for a in audits]))
        client = np.repeat(np.arange(len(audits)), [len(a.atom_total) for a in audits])

        def spread(values: list[NDArray[Any]]) -> NDArray[Any]:
            out = np.zeros((len(audits), len(atoms)), dtype=values[0].dtype)
            out[client, atoms.index] = np.concatenate(values)
            return out

        total = spread([a.atom_total for a in audits])
        missed = total - spread([a.atom_covered for a in audits])
        sizes = [a.atom_size for a in audits if a.atom_size is not None]
        return cls(
            clients=tuple(a.client for a in audits),
            pi=np.array(shares),
            n=np.array([a.n for a in audits]),
            names=tuple(" & ".join(groups.names_of(row)) for row in atoms.membership),
            least=total,
            most=total,
            least_missed=missed,
            most_missed=missed,
            suppressed=np.zeros(total.shape, dtype=np.bool_),
            open=np.zeros(total.shape, dtype=np.bool_),
            size=spread(sizes) if len(sizes) == len(audits) else None,
            unbounded=spread([a.atom_unbounded for a in audits]),
        )

    @property
    def _weighted(self) -> Bools:
        """Which clients have weight in the mixture, (K,)."""
        return self.pi > 0

    @cached_property
    def _v(self) -> Floats:
        """v_k = pi_k / n_k, the weight of one record of each client, (K,)."""
        return self.pi / self.n

    @cached_property
    def _least_covered(self) -> Ints:
        """How many records were covered at least, (K, c)."""
        least: Ints = np.maximum(self.least - self.most_missed, 0)
        return least

    @cached_property
    def _most_covered(self) -> Ints:
        """How many records were covered at most, (K, c)."""
        return self.most - self.least_missed

    def records(
        self, tail: float, alpha: float | None, margin: float | None
    ) -> tuple[GroupAudit, ...]:
        """One record for each cell.

        - `tail`: The probability with which each end of an interval may fail.
        - `alpha`, `margin`: What the verdict compares the interval with; None if there is none.
        """
        low, high = self._intervals(tail)
        return tuple(
            self._record(g, float(low[g]), float(high[g]), alpha, margin)
            for g in range(len(self.names))
        )

    def _intervals(self, tail: float) -> tuple[Floats, Floats]:
        """The lower and the upper end of the interval of each cell, from clients with weight.

        Hidden records count as missed at the lower end and as covered at the upper end.
        """
        has_weight = self._weighted

        def bound(hits: Ints, misses: Ints) -> Floats:
            v, n = self._v[has_weight], self.n[has_weight]
            return lower_bound(hits[has_weight], misses[has_weight], v, n, tail)

        low = bound(self._least_covered, self.most_missed)
        high = 1 - bound(self.least_missed, self._most_covered)
        # The subtraction may have rounded down, so the upper end is the next number towards 1.
        return low, np.nextafter(high, 1.0)

    def _record(
        self, g: int, low: float, high: float, alpha: float | None, margin: float | None
    ) -> GroupAudit:
        """The record of cell g, whose interval is [low, high]."""
        has_weight = self._weighted
        lowest = self._share(g, self._least_covered, self.most_missed)
        highest = self._share(g, self._most_covered, self.least_missed)
        if self.open[has_weight, g].any():
            coverage = None
            lowest, highest = lowest or 0.0, 1.0 if highest is None else highest
        else:
            # Cells that audits of gcfcp 0.1.0 suppress have no records here.
            hits = np.where(self.suppressed, 0, self._least_covered)
            coverage = self._share(g, hits, np.where(self.suppressed, 0, self.least_missed))
        # The estimate lies in its interval. This makes sure that rounding does not change that.
        known = [x for x in (coverage, lowest, highest) if x is not None]
        low, high = min([low, *known]), max([high, *known])
        suppressed_at = tuple(
            self.clients[k] for k in np.flatnonzero(self.suppressed[:, g] & has_weight)
        )
        bounded = self._mean_size(g)
        unbounded = int(self.unbounded[has_weight, g].sum())

        def summed(counts: Ints) -> int:
            return int(counts[has_weight, g].sum())

        return GroupAudit(
            group=self.names[g],
            coverage=coverage,
            low=low,
            high=high,
            covered=summed(self._least_covered),
            total=summed(self.least),
            target=None if alpha is None else 1 - alpha,
            verdict=verdict(low, high, alpha, margin),
            mean_size=math.inf if unbounded else bounded,
            suppressed=bool(suppressed_at),
            suppressed_at=suppressed_at,
            unbounded=unbounded,
            mean_bounded_size=bounded,
            lowest=lowest,
            highest=highest,
            covered_at_most=summed(self._most_covered),
            total_at_most=summed(self.most),
        )

    def _share(self, g: int, hits: Ints, misses: Ints) -> float | None:
        """sum_k v_k hits_k / sum_k v_k (hits_k + misses_k) in cell g; None without records."""
        weight = float(self._v @ (hits[:, g] + misses[:, g]))
        return float(self._v @ hits[:, g]) / weight if weight > 0 else None

    def _mean_size(self, g: int) -> float | None:
        """The mean of all finite set sizes, weighted by the mixture; None if there are none."""
        if self.size is None:
            return None
        weight = float(self._v @ (self.least[:, g] - self.unbounded[:, g]))
        return float(self._v @ self.size[:, g]) / weight if weight > 0 else None


def verdict(low: float, high: float, alpha: float | None, margin: float | None) -> str:
    """The verdict on an interval [low, high]; see the module."""
    if alpha is None:
        return NO_TARGET
    if high < 1 - alpha:
        return BROKEN
    return KEPT if low >= 1 - alpha - (margin or 0.0) else UNKNOWN
