"""The head of the page: what was promised, whether it was kept, where not, and what was left out.

It is written for somebody who answers for compliance and may read no further.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gcfcp import codec
from gcfcp.audit import (
    BROKEN,
    GIVEN_EVERYTHING,
    KEPT,
    NO_TARGET,
    UNKNOWN,
    AuditReport,
)
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num
from gcfcp.report.parts import (
    EVERYTHING,
    alpha_of,
    answer_of,
    atoms_of,
    cells_of,
    every_group,
    mixture_weights,
    mixture_words,
    sum_known,
)

_By = Mapping[str, Sequence[str]]
"""The names of the groups that have each verdict."""


def judged(predictor: Predictor, audit: AuditReport) -> AuditReport:
    """The audit, in which no group is called "kept" whose records all get everything.

    An audit that was made without sizes and thresholds does not know that; the predictor does.
    """
    groups = tuple(
        replace(g, verdict=GIVEN_EVERYTHING)
        if everything and g.verdict in (KEPT, UNKNOWN) and g.coverage in (None, 1.0)
        else g
        for g, everything in zip(audit.groups, predictor.gives_everything.tolist(), strict=True)
    )
    return replace(audit, groups=groups)


def about(
    predictor: Predictor,
    audit: AuditReport | None,
    date: str,
    *,
    model: str | None,
    owner: str | None,
    period: str | None,
) -> list[dict[str, str]]:
    """What the page is about, who answers for it, and for which time: pairs below the title."""
    recorded = predictor.provenance.get("model")
    when = period or (audit.round if audit is not None else None)
    pairs = [
        ("Model", model or (recorded if isinstance(recorded, str) else None)),
        ("Owner", owner),
        ("Period", when),
        ("Mixture", mixture_weights(predictor)),
        ("Date of this page", date),
    ]
    return [{"what": what, "value": value} for what, value in pairs if value]


def verdict(
    predictor: Predictor, audit: AuditReport | None, others: Mapping[str, AuditReport]
) -> dict[str, Any]:
    """The head of the page: one sentence for those who read no further, and four answers.

    Returns the tone (good, warn, bad or open), a sign, the headline, and the answers: a question
    with some lines each.
    """
    promised = [_promise(predictor), f"The mixture of the clients: {mixture_words(predictor)}."]
    left = _left_out(predictor, audit)
    if audit is None:
        return {
            "tone": "open",
            "sign": "○",
            "headline": _promised(predictor),
            "answers": [
                ("What was promised", promised),
                ("Was it kept?", ["That is not known yet: no audit was given."]),
                ("Where it says nothing", _not_finite(predictor)),
                ("What was left out", left),
            ],
        }
    by = {v: [g.group for g in audit.groups if g.verdict == v] for v in _ALL}
    tone, sign, headline = _headline(predictor, audit, by)
    kept = [_counts(by, len(audit.groups)), _mixture(audit, others)]
    kept += _compared(others, len(audit.groups))
    return {
        "tone": tone,
        "sign": sign,
        "headline": headline,
        "answers": [
            ("What was promised", promised),
            ("Was it kept?", kept),
            ("Where not", _where_not(predictor, audit, by)),
            ("What was left out", left),
        ],
    }


_ALL = (KEPT, GIVEN_EVERYTHING, BROKEN, UNKNOWN, NO_TARGET)


# --- what was promised ----------------------------------------------------------------------------


def _promised(predictor: Predictor) -> str:
    """The headline of a page without an audit."""
    return (
        f"Promised, not yet audited: for {every_group(len(predictor.groups))}, the prediction "
        f"{answer_of(predictor)} should contain the true answer for at least "
        f"{num.exact_percent(1 - alpha_of(predictor))} of the records."
    )


def _promise(predictor: Predictor) -> str:
    """The promise in one sentence."""
    confidence = codec.number(predictor.provenance.get("confidence"))
    kind = (
        "on average over calibrations"
        if confidence is None
        else f"by this very predictor, with {num.exact_percent(confidence)} confidence"
    )
    return (
        f"For {every_group(len(predictor.groups))}, at least "
        f"{num.exact_percent(1 - alpha_of(predictor))} of the prediction {answer_of(predictor)}s "
        f"contain the true answer, {kind}."
    )


# --- was it kept ----------------------------------------------------------------------------------


def _headline(predictor: Predictor, audit: AuditReport, by: _By) -> tuple[str, str, str]:
    """Tone, sign and sentence for what the audit found; `by` lists the groups of each verdict."""
    tone, sign, sentence = _found(predictor, audit, by)
    if audit.promised_mixture is False:
        # Under another mixture nothing was promised, and so nothing is kept or broken.
        return "open", sign, f"Under another mixture than the promise. {sentence}"
    return tone, sign, sentence


def _found(predictor: Predictor, audit: AuditReport, by: _By) -> tuple[str, str, str]:
    """Tone, sign and sentence, whatever the mixture."""
    promise = num.exact_percent(1 - alpha_of(predictor))
    answer, total = answer_of(predictor), len(audit.groups)
    if by[BROKEN]:
        return (
            "bad",
            "✕",
            f"Broken for {_some(len(by[BROKEN]), total)}: for {num.listed(by[BROKEN])}, the "
            f"prediction {answer} contained the true answer less often than the promised "
            f"{promise}.",
        )
    if by[GIVEN_EVERYTHING]:
        given = by[GIVEN_EVERYTHING]
        rest = f", and kept for {num.counted(len(by[KEPT]), 'group')}" if by[KEPT] else ""
        state = "is unbounded" if answer == "interval" else EVERYTHING
        return (
            "warn",
            "!",
            f"Kept only by giving everything for {_some(len(given), total)}{rest}: for "
            f"{num.listed(given)}, the prediction {answer} {state} so often that it is never wrong "
            "and says nothing.",
        )
    if len(by[KEPT]) == total:
        return (
            "good",
            "✓",
            f"Kept{_within(audit)}: for {every_group(total)}, the prediction {answer} contained "
            f"the true answer for {_at_least(audit, promise)}.",
        )
    if by[KEPT]:
        return (
            "open",
            "◐",
            f"No broken promise was found: the promise was kept for {_some(len(by[KEPT]), total)}"
            f"{_within(audit)}, and for {num.counted(len(by[UNKNOWN]), 'group')} there are too few "
            "audited records to tell.",
        )
    if by[NO_TARGET]:
        return (
            "open",
            "○",
            "Counted, not judged: the audits do not say which share of misses (alpha) was allowed, "
            "so this page cannot say whether a promise was kept.",
        )
    return (
        "open",
        "?",
        "Too few records to tell: the audit cannot show for any group whether the promised "
        f"{promise} was kept or broken.",
    )


def _within(audit: AuditReport) -> str:
    """How far below the promise a coverage may lie and still count as kept."""
    return f" within {100 * audit.margin:.3g} percentage points" if audit.margin else ""


def _at_least(audit: AuditReport, promise: str) -> str:
    """What the audit shows of a promise that was kept."""
    if not audit.margin or audit.alpha is None:
        return f"at least {promise} of the records, as promised"
    return (
        f"at least {num.exact_percent(1 - audit.alpha - audit.margin)} of the records, with "
        f"{num.exact_percent(audit.confidence)} confidence; {promise} were promised"
    )


def _counts(by: _By, total: int) -> str:
    """How many groups have each verdict."""
    words = {
        KEPT: "kept",
        GIVEN_EVERYTHING: "kept only by giving everything",
        BROKEN: "broken",
        UNKNOWN: "too few records to tell",
        NO_TARGET: "not judged",
    }
    parts = [f"{words[v]} for {len(by[v])}" for v in words if by[v]]
    return f"Of {num.counted(total, 'group')}: {', '.join(parts)}."


def _compared(others: Mapping[str, AuditReport], total: int) -> list[str]:
    """One line for each other method that breaks the promise for some group."""
    lines = []
    for name, report in others.items():
        broken = [g.group for g in report.groups if g.verdict == BROKEN]
        if broken:
            lines.append(
                f"With {name} instead, the promise would have been broken for "
                f"{_some(len(broken), total)}: {num.listed(broken)}."
            )
    return lines


def _some(count: int, total: int) -> str:
    """How many of all groups, in words: "2 of 5 groups", "all 5 groups", "the one group"."""
    if count < total:
        return f"{count} of {num.counted(total, 'group')}"
    return "the one group" if total == 1 else f"all {total} groups"


def _mixture(audit: AuditReport, others: Mapping[str, AuditReport]) -> str:
    """How much the clients count in the coverage that was found, also where others differ in it."""
    text = f"Mixture of the clients in the audit: {audit.mixture_text}."
    for name, report in others.items():
        if not _alike(report.shares, audit.shares):
            text += f" With {name}, it is another one: {report.mixture_text}."
    return text


def _alike(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two mixtures give each client the same weight, up to rounding."""
    return one.keys() == other.keys() and all(abs(one[k] - other[k]) < 1e-9 for k in one)


# --- where not ------------------------------------------------------------------------------------


def _where_not(predictor: Predictor, audit: AuditReport, by: _By) -> list[str]:
    """Which groups and sites a reader should look at."""
    lines = []
    if by[BROKEN]:
        lines.append(f"Broken: {num.listed(by[BROKEN], 10)}.")
    if by[GIVEN_EVERYTHING]:
        lines.append(f"Kept only by giving everything: {num.listed(by[GIVEN_EVERYTHING], 10)}.")
    if by[UNKNOWN]:
        lines.append(f"There are too few audited records to tell for {num.listed(by[UNKNOWN], 6)}.")
    lines += _not_finite(predictor) + _below_at_sites(audit)
    return lines or ["Nowhere: every group has the verdict kept, and every threshold is finite."]


def _below_at_sites(audit: AuditReport) -> list[str]:
    """A line about the groups whose coverage at a single site is below the promise."""
    below = [
        f"{g.group} at {site.client}"
        for site in audit.sites
        for g in site.groups
        if audit.alpha is not None and g.high < 1 - audit.alpha
    ]
    if len(audit.sites) < 2 or not below:
        return []
    return [
        f"At single sites, the coverage is below the promised share for {num.listed(below, 5)}. To "
        "a group within one site nothing is promised; the section on sites says more."
    ]


def _not_finite(predictor: Predictor) -> list[str]:
    """A line about the thresholds that are not finite.

    A set that holds every label is never wrong and says nothing, so a reader must know of it first.
    """
    atoms = atoms_of(predictor)
    infinite = [a for a in atoms if not math.isfinite(a.threshold)]
    if not infinite:
        return []
    weight, total = sum_known([a.weight for a in infinite]), sum_known([a.weight for a in atoms])
    part = "" if not total or weight is None else f" ({num.share(weight / total)} of the weight)"
    if predictor.by == "group":
        part = ", and so for every record in one of them,"  # Groups overlap: weights do not add up.
    there = ""
    if all(a.threshold > 0 for a in infinite):
        answer = answer_of(predictor)
        state = "is unbounded" if answer == "interval" else EVERYTHING
        there = f", so that the prediction {answer} {state} there"
    return [
        f"For {len(infinite)} of {cells_of(predictor).counted(len(atoms))}{part}, no "
        f"finite threshold would keep the promise{there}."
    ]


# --- what was left out ----------------------------------------------------------------------------


def _left_out(predictor: Predictor, audit: AuditReport | None) -> list[str]:
    """Who and what is missing from the numbers of the page."""
    lines = _absent(predictor)
    files = predictor.provenance.get("left_out")
    if isinstance(files, list) and files:
        lines.append(
            f"The calibration left out {num.counted(len(files), 'file')} that could not be used: "
            f"{num.listed([str(name) for name in files], 10)}."
        )
    if audit is None:
        return lines or ["Nothing that the predictor tells of."]
    lines += _not_audited(predictor, audit) + _not_counted(audit)
    return lines or ["Nothing: every site was audited, and every audited record is in a group."]


def _absent(predictor: Predictor) -> list[str]:
    """A line that names the clients that did not answer when the summaries were collected."""
    missing = predictor.provenance.get("missing")
    if not isinstance(missing, list) or not missing:
        return []
    return [
        f"This predictor was made without {num.counted(len(missing), 'client')} that gave no "
        f"answer: {num.listed([str(name) for name in missing], 10)}. The promise is made for the "
        "mixture of the other clients."
    ]


def _not_audited(predictor: Predictor, audit: AuditReport) -> list[str]:
    """Lines about the sites that are in the promise or in the audit, but not in both."""
    names = [str(c["client"]) for c in predictor.recorded("clients") if "client" in c]
    audited = [c.client for c in audit.clients]
    lines = []
    if lacking := [name for name in names if name not in set(audited)]:
        lines.append(f"Not audited: {num.listed(lacking, 10)}.")
    if names and (strange := [name for name in audited if name not in set(names)]):
        lines.append(f"Audited, but not part of the calibration: {num.listed(strange, 10)}.")
    if audit.predictor is None:
        lines.append("The audits do not say which predictor they are of.")
    return lines


def _not_counted(audit: AuditReport) -> list[str]:
    """Lines about the records that are in no number of a group."""
    lines = []
    if audit.uncovered:
        lines.append(
            f"{num.counted(audit.uncovered, 'audited record')} in no group: nothing is promised "
            "for them."
        )
    shy = [c.client for c in audit.clients if c.min_count > 1]
    if shy:
        lines.append(
            f"Small numbers are withheld at {num.listed(shy, 5)}; the ranges allow for them."
        )
    return lines


# --- numbers --------------------------------------------------------------------------------------


def facts(predictor: Predictor) -> list[dict[str, str]]:
    """The large numbers below the headline, each with what it counts."""
    clients = predictor.recorded("clients")
    known = [
        ("promised in every group", num.exact_percent(1 - alpha_of(predictor))),
        ("groups", num.whole(len(predictor.groups))),
    ]
    if predictor.by == "atom":
        known.append(("combinations of groups", num.whole(len(atoms_of(predictor)))))
    if clients:
        known.append(("clients", num.whole(len(clients))))
    records = sum_known([codec.number(c.get("n")) for c in clients])
    if records:
        known.append(("calibration records", num.whole(records)))
    sent = sum_known([codec.number(c.get("bytes")) for c in clients])
    sent = sent or codec.number(predictor.provenance.get("bytes_sent"))
    if sent:
        known.append(("sent by all clients together", num.in_bytes(sent)))
    return [{"what": what, "value": value} for what, value in known]
