"""An audit at the server: the counts of all clients become the coverage of each group.

`merge_audits` weighs the clients by the mixture and gives each group its coverage, an interval and
a verdict. A group that is empty or suppressed is listed as well.

Which mixture. The promise is about the mixture that the predictor was calibrated for, so an audit
is about the same mixture unless another one is given. Each audit carries the weight pi_k of its
client there (`Audit.share`), and these are scaled to add up to 1. If no audit carries one, each
audited record counts the same. The report says in words which mixture it is about, and whether it
is the one that the promise was made for: under another mixture, "broken" breaks no promise.

What is estimated. Under the mixture sum_k pi_k P_k the audited predictor covers group G with

    c_G = sum_k pi_k P_k(covered, G) / sum_k pi_k P_k(G).

The promise is about the average of c_G over calibrations. The c_G of one predictor scatters around
this average by about sqrt(alpha (1 - alpha) / n_G), where n_G is the effective number of records in
the group that it was calibrated with. An audit with far more records than that can see the scatter,
and can find the coverage of one predictor below 1 - alpha although the promise holds on average.

The intervals are those of `gcfcp.bounds`. For G groups each end of an interval has
tail = (1 - confidence) / (2 G) (Bonferroni). By the union bound over these 2 G ends, which may
depend on each other because groups overlap, all intervals contain their c_G at once with
probability at least `confidence`. Those of single sites (`sites`) are adjusted apart from them. The
intervals of atoms are not adjusted: they show where to look, and nothing is promised for them. A
client that suppresses an atom is left out of its interval.

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

A set that holds every label, or an unbounded interval, is never wrong and says nothing. If at least
1 - alpha of the records of a group got such a set, weighted by the mixture, the promise would have
been kept whatever the model had said. Then the verdict is not "kept" but "kept, but only by giving
everything". The same holds if the predictor has no finite threshold for any record of the group
(`Audit.everything`); no audit is needed to know that these are covered, so that this verdict also
takes the place of "too few records to tell".

No number of records could show that a coverage of exactly 1 - alpha is not a little below it. That
is why `kept` needs a margin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gcfcp import checks, codec
from gcfcp.audit.cells import BROKEN, Cells, GroupAudit
from gcfcp.audit.record import Audit
from gcfcp.audit.sites import SiteAudit, by_site
from gcfcp.audit.weights import weighed
from gcfcp.calibration import Kind, Mixture, one_each
from gcfcp.calibration import mixture as mixtures
from gcfcp.errors import GCFCPError
from gcfcp.notebook import as_html

AUDITS = Kind(Audit, "audits", "audited", ("predictor",))
"""What the audits of all clients must have in common to be merged."""


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
    # Whether the mixture is the one that the promise was made for; None if it is not known.
    promised_mixture: bool | None = None
    sites: tuple[SiteAudit, ...] = ()  # Coverage site by site; see `sites`.
    site_groups: tuple[str, ...] = ()  # The groups that are sites, to which a promise is made.

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
        return "\n".join([*self._head(), *(f"  {_line(g)}" for g in self.groups)])

    def _repr_html_(self) -> str:
        """The same for a notebook, with the groups as a table."""
        return as_html(
            self._head(),
            ["group", "verdict", "coverage", "interval", "covered", "records", "suppressed at"],
            [
                [
                    g.group,
                    g.verdict,
                    g.found or "no records",
                    f"[{g.low:.4f}, {g.high:.4f}]" if g.found else "",
                    span(g.covered, g.covered_at_most),
                    span(g.total, g.total_at_most),
                    ", ".join(g.suppressed_at),
                ]
                for g in self.groups
            ],
            left=2,
        )

    def _head(self) -> list[str]:
        """With which confidence, what was promised, and under which mixture."""
        head = f"coverage at {self.confidence:.0%} confidence ({self.adjustment})"
        if self.alpha is not None:
            head += f", promised {1 - self.alpha:g}"
        return [head, f"mixture of the clients: {self.mixture_text}"]


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
    weights = weighed(ordered, mixture)
    shares = weights.shares
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
        mixture=mixtures.to_plain(weights.mixture),
        mixture_text=weights.text,
        groups=Cells.of_groups(ordered, shares).records(tail / G, alpha, margin),
        atoms=Cells.of_atoms(ordered, shares).records(tail, None, None),
        uncovered=sum(a.uncovered for a in ordered),
        predictor=ordered[0].predictor,
        fingerprint=ordered[0].groups.fingerprint,
        round=ordered[0].round,
        promised_mixture=weights.promised,
        sites=by_site(ordered, confidence),
        site_groups=ordered[0].groups.names[len(ordered[0].groups.others) :],
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
