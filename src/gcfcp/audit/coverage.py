"""Was the promise kept? At the server: the audits of all clients become coverage by group.

`merge_audits` weighs the clients by the mixture and gives the coverage of every group with an
interval and a verdict; a group that is empty or suppressed is listed all the same.

What is estimated. Under the mixture sum_k pi_k P_k the coverage of group G is

    c_G = sum_k pi_k P_k(covered, G) / sum_k pi_k P_k(G),

of the predictor that was audited. The promise is about the average over calibrations, so the
c_G of one predictor scatters around it, by about sqrt(alpha (1 - alpha) / n_G) for n_G effective
calibration records: an audit with far more records than the calibration had can see that too.

The intervals are those of `bounds`. They are adjusted for the number of groups by Bonferroni, with
tail = (1 - confidence) / (2 G), which holds for overlapping groups too: with probability at least
`confidence` all groups' intervals hold.
The intervals of atoms are not adjusted: they show where to look, and nothing is promised there.

Verdicts, against 1 - alpha and a margin (alpha / 2 unless given):

    broken                  high < 1 - alpha: the coverage is below what was promised
    kept                    low >= 1 - alpha - margin: it is not below by more than the margin
    too few records to tell neither can be shown

No number of records could show that a coverage of exactly 1 - alpha is not a hair below it, which
is why `kept` needs a margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import checks, codec
from gcfcp.arrays import Floats, Ints
from gcfcp.audit.bounds import lower_bound
from gcfcp.audit.record import Audit
from gcfcp.calibration import Kind, Mixture, one_each
from gcfcp.calibration import mixture as mixtures
from gcfcp.errors import GCFCPError
from gcfcp.groups import find_atoms

AUDITS = Kind(Audit, "audits", "audited", ("predictor",))

KEPT = "kept"
BROKEN = "broken"
UNKNOWN = "too few records to tell"
NO_TARGET = "no target"  # no alpha was given, or nothing is promised for an atom


@dataclass(frozen=True)
class GroupAudit:
    """What the audits say about one group, or one atom."""

    group: str
    coverage: float | None  # weighted by the mixture; None without records
    low: float
    high: float
    covered: int  # plain sums over the clients
    total: int
    target: float | None  # 1 - alpha
    verdict: str
    mean_size: float | None  # weighted likewise; inf if some set is unbounded
    suppressed: bool  # at some client that has weight
    suppressed_at: tuple[str, ...] = ()
    unbounded: int = 0  # sets of infinite size
    mean_bounded_size: float | None = None  # of the other sets


@dataclass(frozen=True)
class ClientAudit:
    """One client's part in a report."""

    client: str
    n: int
    share: float  # pi_k
    min_count: int
    suppressed_groups: int
    suppressed_atoms: int
    uncovered: int


@dataclass(frozen=True)
class AuditReport:
    """The audits of all clients, merged: one record a group, in the order of the groups."""

    alpha: float | None
    confidence: float
    margin: float | None
    adjustment: str
    interval: str  # how the intervals were made
    clients: tuple[ClientAudit, ...]
    mixture: str | dict[str, float]
    groups: tuple[GroupAudit, ...]
    atoms: tuple[GroupAudit, ...]
    uncovered: int
    predictor: str | None
    fingerprint: str

    @property
    def kept(self) -> bool:
        """Whether no group's promise is shown to be broken."""
        return all(g.verdict != BROKEN for g in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite size is the word "inf"."""
        plain: dict[str, Any] = codec.plain(asdict(self))
        return plain

    def __str__(self) -> str:
        head = f"coverage at {self.confidence:.0%} confidence ({self.adjustment})"
        if self.alpha is not None:
            head += f", promised {1 - self.alpha:g}"
        return "\n".join([head, *(f"  {_line(g)}" for g in self.groups)])


def _line(g: GroupAudit) -> str:
    where = f", suppressed at {', '.join(g.suppressed_at)}" if g.suppressed else ""
    if g.coverage is None:
        return f"{g.group}: no records{where}: {g.verdict}"
    return (
        f"{g.group}: {g.coverage:.4f} [{g.low:.4f}, {g.high:.4f}] "
        f"({g.covered:,} of {g.total:,}{where}): {g.verdict}"
    )


def merge_audits(
    audits: Iterable[Audit],
    mixture: Mixture = "uniform",
    alpha: float | None = None,
    confidence: float = 0.95,
    *,
    margin: float | None = None,
) -> AuditReport:
    """Coverage of every group under a mixture of the clients, with an interval and a verdict.

    mixture: "uniform", "proportional" (to the audited records) or {client: weight}. alpha: what
    was promised, by default what the audits say. margin: see the module; alpha / 2 unless given.
    """
    ordered = _in_order(audits)
    confidence = checks.probability("confidence", confidence)
    alpha = _common_alpha(ordered) if alpha is None else float(checks.alpha(alpha))
    if alpha is not None:
        margin = alpha / 2 if margin is None else checks.share("margin", margin)
    shares = _shares(ordered, mixture)
    G = len(ordered[0].groups)
    groups = _Cells.of_groups(ordered)
    atoms = _Cells.of_atoms(ordered)
    tail = (1 - confidence) / 2
    one = sum(p > 0 for p in shares) == 1
    return AuditReport(
        alpha=alpha,
        confidence=confidence,
        margin=None if alpha is None else margin,
        adjustment=f"Bonferroni over {G} {'group' if G == 1 else 'groups'}",
        interval="Clopper-Pearson (exact)" if one else "betting bound (conservative)",
        clients=tuple(
            ClientAudit(
                a.client,
                a.n,
                float(p),
                a.min_count,
                int(np.count_nonzero(a.suppressed)),
                a.suppressed_atoms,
                a.uncovered,
            )
            for a, p in zip(ordered, shares, strict=True)
        ),
        mixture=dict(mixture) if isinstance(mixture, Mapping) else mixture,
        groups=groups.records(ordered, shares, tail / G, alpha, margin),
        atoms=atoms.records(ordered, shares, tail, None, None),
        uncovered=sum(a.uncovered for a in ordered),
        predictor=ordered[0].predictor,
        fingerprint=ordered[0].groups.fingerprint,
    )


def _in_order(audits: Iterable[Audit]) -> tuple[Audit, ...]:
    """One audit for each client, by name; whatever cannot be merged is refused."""
    ordered = one_each(audits, AUDITS)
    first = ordered[0]
    for a in ordered[1:]:
        if (a.size is None) != (first.size is None):
            raise GCFCPError(
                f"only one of {first.client} and {a.client} counted set sizes: give set_size "
                "everywhere or nowhere"
            )
    return ordered


def _common_alpha(audits: Sequence[Audit]) -> float | None:
    given = {a.alpha: a.client for a in audits}
    if len(given) > 1:
        listed = ", ".join(f"{client}: {alpha}" for alpha, client in given.items())
        raise GCFCPError(f"the audits were made for different alpha ({listed}): give alpha")
    return next(iter(given))


def _shares(audits: Sequence[Audit], mixture: Mixture) -> list[float]:
    parts = [mixtures.Part(a.client, 1, a.n) for a in audits]
    return [float(p) for p in mixtures.shares(parts, mixture)]


@dataclass(frozen=True)
class _Cells:
    """Counts of K clients in c cells, the groups or the atoms."""

    names: tuple[str, ...]
    covered: Ints  # (K, c)
    total: Ints
    hidden: Ints  # (K, c): a bound on the records of cells that are suppressed
    size: Floats | None
    unbounded: Ints

    @classmethod
    def of_groups(cls, audits: Sequence[Audit]) -> _Cells:
        hide = np.array([a.suppressed for a in audits])
        return cls(
            audits[0].groups.names,
            np.where(hide, 0, [a.covered for a in audits]),
            np.where(hide, 0, [a.total for a in audits]),
            np.where(hide, [a.bound for a in audits], 0),
            None if audits[0].size is None else np.array([a.size for a in audits]),
            np.array([a.unbounded for a in audits]),
        )

    @classmethod
    def of_atoms(cls, audits: Sequence[Audit]) -> _Cells:
        groups = audits[0].groups
        atoms = find_atoms(np.concatenate([a.atom_membership for a in audits]))
        client = np.repeat(np.arange(len(audits)), [len(a.atom_total) for a in audits])

        def spread(values: list[NDArray[Any]]) -> NDArray[Any]:
            out = np.zeros((len(audits), len(atoms)), dtype=values[0].dtype)
            out[client, atoms.index] = np.concatenate(values)
            return out

        return cls(
            tuple(" & ".join(groups.names_of(row)) for row in atoms.membership),
            spread([a.atom_covered for a in audits]),
            spread([a.atom_total for a in audits]),
            np.zeros((len(audits), len(atoms)), dtype=np.int64),
            None
            if audits[0].atom_size is None
            else spread([a.atom_size for a in audits if a.atom_size is not None]),
            spread([a.atom_unbounded for a in audits]),
        )

    def records(
        self,
        audits: Sequence[Audit],
        shares: Sequence[float],
        tail: float,
        alpha: float | None,
        margin: float | None,
    ) -> tuple[GroupAudit, ...]:
        pi = np.array(shares)
        n = np.array([a.n for a in audits])
        weighted = pi > 0
        v = pi / n
        missed = self.total - self.covered
        bounds = [
            lower_bound(hits[weighted], misses[weighted], v[weighted], n[weighted], tail)
            for hits, misses in (
                (self.covered, missed + self.hidden),
                (missed, self.covered + self.hidden),
            )
        ]
        weight = v @ self.total
        records = []
        for g, name in enumerate(self.names):
            low, high = float(bounds[0][g]), 1 - float(bounds[1][g])
            some = weight[g] > 0
            coverage = float(v @ self.covered[:, g] / weight[g]) if some else None
            if coverage is not None:  # the point lies in its interval, also after rounding
                low, high = min(low, coverage), max(high, coverage)
            at = tuple(
                a.client
                for a, hidden, p in zip(audits, self.hidden[:, g], pi, strict=True)
                if hidden and p > 0
            )
            bounded = self._mean_size(g, v)
            unbounded = int(self.unbounded[weighted, g].sum())
            records.append(
                GroupAudit(
                    group=name,
                    coverage=coverage,
                    low=low,
                    high=high,
                    covered=int(self.covered[weighted, g].sum()),
                    total=int(self.total[weighted, g].sum()),
                    target=None if alpha is None else 1 - alpha,
                    verdict=verdict(low, high, alpha, margin),
                    mean_size=math.inf if unbounded else bounded,
                    suppressed=bool(at),
                    suppressed_at=at,
                    unbounded=unbounded,
                    mean_bounded_size=bounded,
                )
            )
        return tuple(records)

    def _mean_size(self, g: int, v: Floats) -> float | None:
        if self.size is None:
            return None
        weight = float(v @ (self.total[:, g] - self.unbounded[:, g]))
        return float(v @ self.size[:, g]) / weight if weight > 0 else None


def verdict(low: float, high: float, alpha: float | None, margin: float | None) -> str:
    """Kept, broken, or too few records to tell; see the module."""
    if alpha is None:
        return NO_TARGET
    if high < 1 - alpha:
        return BROKEN
    return KEPT if low >= 1 - alpha - (margin or 0.0) else UNKNOWN
