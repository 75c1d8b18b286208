"""The head of the page, and the section about what the audit found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gcfcp import codec
from gcfcp.audit import BROKEN, KEPT, NO_TARGET, UNKNOWN, AuditReport, GroupAudit, span
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num
from gcfcp.report.parts import (
    EVERYTHING,
    alpha_of,
    answer_of,
    atoms_of,
    cells_of,
    defined,
    every_group,
    fit,
    sum_known,
)
from gcfcp.report.scale import Mark, Scale, scale_of, step_of

_OURS = "gcfcp"  # What the page calls the predictor that it is about, beside other methods.


@dataclass(frozen=True)
class _Verdict:
    """How a verdict looks in a table."""

    tone: str  # The class that gives it its colour: good, bad or open.
    sign: str
    word: str
    rank: int  # Its place when a table is sorted by verdict; broken promises come first.


_VERDICTS = {
    BROKEN: _Verdict("bad", "✕", "broken", 0),
    UNKNOWN: _Verdict("open", "?", "too few records", 1),
    NO_TARGET: _Verdict("open", "?", "no target", 2),
    KEPT: _Verdict("good", "✓", "kept", 3),
}


# --- the head of the page -------------------------------------------------------------------------


def verdict(
    predictor: Predictor, audit: AuditReport | None, others: Mapping[str, AuditReport]
) -> dict[str, Any]:
    """The head of the page: one sentence for those who read no further, and what else they need.

    Returns the tone (good, bad or open), a sign, the headline, and more lines below it.
    """
    if audit is None:
        return {
            "tone": "open",
            "sign": "○",
            "headline": _promised(predictor),
            "more": _caveats(predictor),
        }
    by = {v: [g.group for g in audit.groups if g.verdict == v] for v in _VERDICTS}
    tone, sign, headline = _headline(predictor, audit, by)
    more = _besides(by, len(audit.groups)) + _compared(others, len(audit.groups))
    more += [_mixture(audit, others), *_caveats(predictor)]
    return {"tone": tone, "sign": sign, "headline": headline, "more": more}


def _promised(predictor: Predictor) -> str:
    """The headline of a page without an audit."""
    return (
        f"Promised, not yet audited: for {every_group(len(predictor.groups))}, the prediction "
        f"{answer_of(predictor)} should contain the true answer for at least "
        f"{num.exact_percent(1 - alpha_of(predictor))} of the records."
    )


def _headline(
    predictor: Predictor, audit: AuditReport, by: Mapping[str, Sequence[str]]
) -> tuple[str, str, str]:
    """Tone, sign and sentence for what the audit found; `by` lists the groups of each verdict."""
    promise = num.exact_percent(1 - alpha_of(predictor))
    answer = answer_of(predictor)
    total = len(audit.groups)
    as_promised = f"at least {promise} of the records{_tolerance(audit)}"
    if by[BROKEN]:
        return (
            "bad",
            "✕",
            f"Broken for {_some(len(by[BROKEN]), total)}: for {num.listed(by[BROKEN])}, the "
            f"prediction {answer} contained the true answer less often than the promised "
            f"{promise}.",
        )
    if len(by[KEPT]) == total:
        return (
            "good",
            "✓",
            f"Kept: for {every_group(len(predictor.groups))}, the prediction {answer} contained "
            f"the true answer as often as promised ({as_promised}).",
        )
    if by[KEPT]:
        return (
            "open",
            "◐",
            f"No broken promise was found: the promise was kept for {_some(len(by[KEPT]), total)} "
            f"({as_promised}), and for {num.counted(len(by[UNKNOWN]), 'group')} there are too few "
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


def _besides(by: Mapping[str, Sequence[str]], total: int) -> list[str]:
    """Lines about the groups that the headline does not name."""
    lines = []
    if by[BROKEN] and by[KEPT]:
        lines.append(f"The promise was kept for {len(by[KEPT])} of {num.counted(total, 'group')}.")
    if by[UNKNOWN] and (by[KEPT] or by[BROKEN]):
        lines.append(f"There are too few audited records to tell for {num.listed(by[UNKNOWN], 6)}.")
    return lines


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


def _tolerance(audit: AuditReport) -> str:
    """How far below the promise a coverage may lie and still count as kept."""
    if not audit.margin:
        return ""
    return f", with a tolerance of {100 * audit.margin:.3g} percentage points"


def _caveats(predictor: Predictor) -> list[str]:
    """What a reader must know before any number: who is missing, and which thresholds are not
    finite."""
    return _absent(predictor) + _not_finite(predictor)


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


# --- what the audit found -------------------------------------------------------------------------


def audited(
    predictor: Predictor, audit: AuditReport, others: Mapping[str, AuditReport]
) -> dict[str, Any]:
    """The section about the audit: one row for each group, broken promises first."""
    alpha = alpha_of(predictor)
    reports = {_OURS: audit, **others}
    scale = _coverage_scale(list(reports.values()), alpha)
    found = [{g.group: g for g in report.groups} for report in reports.values()]
    names = list(reports)
    sizes = any(g.mean_size is not None for g in audit.groups)
    rows = [
        _audit_row(group, definition, [by.get(group) for by in found], names, scale, alpha)
        for group, definition in defined(predictor)
    ]
    rows.sort(key=lambda row: int(row["verdict"].rank))
    rows, left_out = fit(
        rows,
        lambda row: (row["verdict"].rank, -int(row["total"]["value"])),
        lambda row: 700 + 450 * len(names) + 3 * len(row["group"]) + len(row["definition"]),
        "the groups that need attention least",
    )
    return {
        "names": names,
        "height": next(h for h in (1, 2, 3, 4, 6) if h >= len(names)),
        "scale": scale,
        "rows": rows,
        "left_out": left_out,
        "sizes": sizes,
        "size_word": "Mean width" if answer_of(predictor) == "interval" else "Mean set size",
        "how": _how(audit),
        "comparison": _comparison(audit, others),
    }


def _coverage_scale(reports: Sequence[AuditReport], alpha: float) -> Scale:
    """The axis of the coverages, from the lowest one that was found to 100%.

    Very wide intervals would squeeze everything else together, so they do not set the axis: they
    are cut off at its left end, with an arrow.
    """
    groups = [g for report in reports for g in report.groups if _is_known(g)]
    points = [g.coverage for g in groups if g.coverage is not None]
    ends = [g.low for g in groups if g.high - g.low <= max(0.15, 3 * alpha)]
    low = min([1 - 2 * alpha, *points, *ends])
    step = step_of((1 - low) / 5)
    low = max(0.0, math.floor(low / step + 1e-9) * step)
    return scale_of(low, 1.0, lambda v: f"{100 * v:.6g}%", strong=1 - alpha)


def _audit_row(
    group: str,
    definition: str,
    found: Sequence[GroupAudit | None],
    names: Sequence[str],
    scale: Scale,
    alpha: float,
) -> dict[str, Any]:
    """One group: what was found with each method, as numbers and as marks on the axis.

    found: What the audit of each method says about the group, in the order of `names`; the first
    is the predictor that the page is about.
    """
    ours = found[0]
    assert ours is not None  # `_check_fit` has made sure that the audit is of these groups.
    marks = [
        _coverage_mark(g, i, len(found), names[i], scale, alpha)
        for i, g in enumerate(found)
        if g is not None and _is_known(g)
    ]
    return {
        "group": group,
        "definition": definition,
        "verdict": _VERDICTS[ours.verdict],
        "marks": marks[::-1],  # The mark of this predictor is drawn last, on top of the others.
        "found": [_coverage_cell(g, alpha, is_baseline=i > 0) for i, g in enumerate(found)],
        "size": _sizes(found, names),
        "total": {
            "text": span(ours.total, ours.total_at_most),
            "value": str(ours.total),
            "note": f"withheld at {num.listed(ours.suppressed_at)}" if ours.suppressed else "",
        },
    }


def _coverage_cell(g: GroupAudit | None, alpha: float, is_baseline: bool) -> dict[str, Any]:
    """The coverage of a group with one method, with its interval; a dash if it is not known."""
    if g is None or not _is_known(g):
        return {"text": num.DASH, "value": "", "under": False, "interval": ""}
    return {
        "text": _coverage_text(g, alpha),
        "value": f"{g.lowest if g.coverage is None else g.coverage:.12g}",
        "under": is_baseline and g.verdict == BROKEN,
        "interval": _interval(g, alpha),
    }


def _is_known(g: GroupAudit) -> bool:
    """Whether the counts say anything about the coverage: a number, or a range."""
    return g.coverage is not None or (g.lowest, g.highest) not in ((None, None), (0.0, 1.0))


def _coverage_text(g: GroupAudit, alpha: float) -> str:
    """The coverage, or the range that the counts leave open, rounded outwards."""
    if g.coverage is not None:
        return num.percent(alpha)(g.coverage)
    assert g.lowest is not None
    assert g.highest is not None  # `_is_known` has made sure of both.
    low, high = num.rounded(alpha, up=False)(g.lowest), num.rounded(alpha, up=True)(g.highest)
    return f"between {low[:-1]} and {high}"


def _coverage_mark(
    g: GroupAudit, series: int, methods: int, name: str, scale: Scale, alpha: float
) -> Mark:
    """The coverage as a mark on the axis; the marks of several methods lie 15 pixels apart.

    If the counts leave the coverage open, a band takes the place of the mark.
    """
    known = g.coverage is not None
    return Mark(
        series=series,
        x=None if g.coverage is None else scale.at(g.coverage),
        band=None if known else (scale.at(g.lowest or 0.0), scale.at(g.highest or 0.0)),
        y=round(15 * (series - (methods - 1) / 2)),
        title=f"{name}: {_coverage_text(g, alpha)} ({_interval(g, alpha)})",
        low=scale.at(g.low),
        high=scale.at(g.high),
        cut=g.low < scale.low,
    )


def _interval(g: GroupAudit, alpha: float) -> str:
    """The confidence interval of a coverage, such as "88.1 to 92.4%", rounded outwards.

    An upper end just below the promise would be rounded up to it. Then it is written as "<90.0%",
    because rounding must not hide what the verdict "broken" rests on.
    """
    low, high = num.rounded(alpha, up=False), num.rounded(alpha, up=True)
    end = high(g.high)
    if g.high < 1 - alpha and end == high(1 - alpha):
        end = "<" + end
    return f"{low(g.low)[:-1]} to {end}"


def _sizes(found: Sequence[GroupAudit | None], names: Sequence[str]) -> dict[str, Any]:
    """The mean size of the predictions with this predictor, and below it with other methods."""
    ours = num.Cell.of(found[0].mean_size if found[0] else None, num.size)
    others = [
        f"{name} {num.Cell.of(g.mean_size, num.size).text}"
        for name, g in zip(names[1:], found[1:], strict=True)
        if g is not None and g.mean_size is not None
    ]
    if found[0] is not None and found[0].unbounded and found[0].mean_bounded_size is not None:
        others.insert(0, f"{num.size(found[0].mean_bounded_size)} where bounded")
    return {"text": ours.text, "value": ours.value, "others": others}


def _how(audit: AuditReport) -> str:
    """How the audit was made, and how to read its chart."""
    records = num.counted(sum(c.n for c in audit.clients), "labelled record")
    band = (
        " A bar in place of a mark shows between which shares the coverage that was found lies: "
        "some sites do not tell small numbers."
        if any(g.coverage is None and g.lowest is not None for g in audit.groups)
        else ""
    )
    return (
        f"At {num.counted(len(audit.clients), 'client')}, the predictions for {records} (whose "
        "true answer is known) were checked; only counts left the sites. A mark shows the "
        "coverage: the share of a group's records whose prediction contained the true answer. The "
        "line through the mark shows the range in which the true coverage lies; all lines together "
        "are right with "
        f"{num.exact_percent(audit.confidence)} confidence.{band}"
    )


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


def _comparison(audit: AuditReport, others: Mapping[str, AuditReport]) -> str:
    """One sentence with the lowest coverage of each method.

    It is "" if there is only one method, or if the counts leave some coverage open.
    """
    worst = []
    for name, report in {_OURS: audit, **others}.items():
        if any(g.coverage is None and g.lowest is not None for g in report.groups):
            return ""
        known = [(g.coverage, g.group) for g in report.groups if g.coverage is not None]
        if known:
            coverage, group = min(known)
            worst.append(f"{100 * coverage:.1f}% ({group}) with {name}")
    if len(worst) < 2:
        return ""
    return f"The lowest coverage of any group was {num.listed(worst, len(worst))}."
