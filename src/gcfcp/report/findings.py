"""The section about what the audit found, group by group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gcfcp.audit import (
    BROKEN,
    GIVEN_EVERYTHING,
    KEPT,
    NO_TARGET,
    UNKNOWN,
    AuditReport,
    GroupAudit,
    span,
)
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num
from gcfcp.report.parts import alpha_of, answer_of, defined, fit
from gcfcp.report.scale import Mark, Scale, scale_of, step_of

_OURS = "gcfcp"  # What the page calls the predictor that it is about, beside other methods.


@dataclass(frozen=True)
class _Verdict:
    """How a verdict looks in a table."""

    tone: str  # The class that gives it its colour: good, warn, bad or open.
    sign: str
    word: str
    rank: int  # Its place when a table is sorted by verdict; broken promises come first.


_VERDICTS = {
    BROKEN: _Verdict("bad", "✕", "broken", 0),
    GIVEN_EVERYTHING: _Verdict("warn", "!", "kept, but only by giving everything", 1),
    UNKNOWN: _Verdict("open", "?", "too few records", 2),
    NO_TARGET: _Verdict("open", "?", "no target", 3),
    KEPT: _Verdict("good", "✓", "kept", 4),
}


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
    nothing = any(g.full is not None or g.infinite is not None for g in audit.groups)
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
        "nothing": nothing,
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
        "nothing": _saying_nothing(ours),
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


def _saying_nothing(g: GroupAudit) -> dict[str, Any]:
    """The share of the predictions that hold everything, and what else is known of them."""
    full = g.infinite if g.full is None else g.full
    cell = num.Cell.of(full, num.share)
    notes = []
    if g.infinite:
        notes.append(f"{num.share(g.infinite)} have an infinite threshold")
    if g.empty:
        notes.append(f"{num.share(g.empty)} are empty")
    return {"text": cell.text, "value": cell.value, "notes": notes}


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
        f"{num.exact_percent(audit.confidence)} confidence.{band}{_kept_means(audit)}"
    )


def _kept_means(audit: AuditReport) -> str:
    """What the verdict "kept" allows."""
    if audit.alpha is None or not audit.margin:
        return ""
    low = num.exact_percent(1 - audit.alpha - audit.margin)
    return (
        f" Kept means that the whole line lies above {low}: no number of records could rule out a "
        f"coverage just below {num.exact_percent(1 - audit.alpha)}, so that "
        f"{100 * audit.margin:.3g} percentage points are tolerated."
    )


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
