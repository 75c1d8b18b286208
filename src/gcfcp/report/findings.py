"""The head of the page and its audit: what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gcfcp import codec
from gcfcp.audit import BROKEN, KEPT, NO_TARGET, UNKNOWN, AuditReport, GroupAudit
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num
from gcfcp.report.parts import (
    EVERYTHING,
    alpha_of,
    answer_of,
    atoms_of,
    defined,
    every_group,
    fit,
    mixture_words,
    sum_known,
)
from gcfcp.report.scale import Mark, Scale, scale_of, step_of

_OURS = "gcfcp"


@dataclass(frozen=True)
class _Verdict:
    tone: str
    sign: str
    word: str
    rank: int  # broken first


_VERDICTS = {
    BROKEN: _Verdict("bad", "✕", "broken", 0),
    UNKNOWN: _Verdict("open", "?", "too few records", 1),
    NO_TARGET: _Verdict("open", "?", "no target", 2),
    KEPT: _Verdict("good", "✓", "kept", 3),
}


def verdict(
    predictor: Predictor, audit: AuditReport | None, others: Mapping[str, AuditReport]
) -> dict[str, Any]:
    """One sentence for those who read no further, and what they must know beside it."""
    promise = num.exact_percent(1 - alpha_of(predictor))
    answer = answer_of(predictor)
    every = every_group(len(predictor.groups))
    if audit is None:
        return {
            "tone": "open",
            "sign": "○",
            "headline": (
                f"Promised, not yet audited: the prediction {answer} is to contain the true answer "
                f"for at least {promise} of {every}."
            ),
            "more": _caveats(predictor),
        }
    by = {v: [g.group for g in audit.groups if g.verdict == v] for v in _VERDICTS}
    total = len(audit.groups)
    margin = _margin(audit)
    more = []
    if by[BROKEN]:
        sign, tone = "✕", "bad"
        headline = (
            f"Broken for {_some(len(by[BROKEN]), total)}: for {num.listed(by[BROKEN])} "
            f"the prediction {answer} contained the true answer less often than the promised "
            f"{promise}."
        )
        if by[KEPT]:
            more.append(
                f"The promise was kept for {len(by[KEPT])} of {num.counted(total, 'group')}."
            )
    elif len(by[KEPT]) == total:
        sign, tone = "✓", "good"
        headline = (
            f"Kept: for {every}, the prediction {answer} contained the true answer as often as "
            f"the promised {promise}{margin}."
        )
    elif by[KEPT]:
        sign, tone = "◐", "open"
        headline = (
            f"No group is shown to be let down: of {total} groups, {len(by[KEPT])} "
            f"{'is' if len(by[KEPT]) == 1 else 'are'} shown to get the promised {promise}{margin}, "
            f"and {len(by[UNKNOWN])} {'has' if len(by[UNKNOWN]) == 1 else 'have'} too few audited "
            "records to tell."
        )
    elif by[NO_TARGET]:
        sign, tone = "○", "open"
        headline = (
            "Counted, not judged: the audits name no alpha, so nothing says what was promised."
        )
    else:
        sign, tone = "?", "open"
        headline = (
            f"Too few records to tell: the audit can show for no group that the promised {promise} "
            "was kept, nor that it was broken."
        )
    if by[UNKNOWN] and (by[KEPT] or by[BROKEN]):
        more.append(f"Too few audited records to tell: {num.listed(by[UNKNOWN], 6)}.")
    for name, report in others.items():
        broken = [g.group for g in report.groups if g.verdict == BROKEN]
        if broken:
            more.append(
                f"With {name} instead, the promise would have been broken for "
                f"{_some(len(broken), total)}: {num.listed(broken)}."
            )
    return {"tone": tone, "sign": sign, "headline": headline, "more": more + _caveats(predictor)}


def _some(count: int, total: int) -> str:
    if count < total:
        return f"{count} of {num.counted(total, 'group')}"
    return "the one group" if total == 1 else f"all {total} groups"


def _margin(audit: AuditReport) -> str:
    return f" (to within {100 * audit.margin:.3g} points)" if audit.margin else ""


def _caveats(predictor: Predictor) -> list[str]:
    """What a reader must know before any number: who is missing, and what is not finite."""
    return _absent(predictor) + _not_finite(predictor)


def _absent(predictor: Predictor) -> list[str]:
    missing = predictor.provenance.get("missing")
    if not isinstance(missing, list) or not missing:
        return []
    return [
        f"Without {num.counted(len(missing), 'client')} that gave no answer: "
        f"{num.listed([str(name) for name in missing], 10)}. The mixture is that of the others."
    ]


def _not_finite(predictor: Predictor) -> list[str]:
    """What is not finite is true and useless, and belongs to the top."""
    atoms = atoms_of(predictor)
    infinite = [a for a in atoms if not math.isfinite(a.threshold)]
    if not infinite:
        return []
    weight, total = sum_known([a.weight for a in infinite]), sum_known([a.weight for a in atoms])
    part = "" if not total or weight is None else f", {num.share(weight / total)} of the weight"
    there = ""
    if all(a.threshold > 0 for a in infinite):
        answer = answer_of(predictor)
        there = f": there the {answer} {'is unbounded' if answer == 'interval' else EVERYTHING}"
    return [
        f"For {len(infinite)} of {num.counted(len(atoms), 'combination')} of groups{part}, no "
        f"finite threshold is valid{there}."
    ]


def facts(predictor: Predictor) -> list[dict[str, str]]:
    clients = predictor.recorded("clients")
    known = [
        ("promised in every group", num.exact_percent(1 - alpha_of(predictor))),
        ("groups", num.whole(len(predictor.groups))),
        ("combinations of groups", num.whole(len(atoms_of(predictor)))),
    ]
    if clients:
        known.append(("clients", num.whole(len(clients))))
    records = sum_known([codec.number(c.get("n")) for c in clients])
    if records:
        known.append(("calibration records", num.whole(records)))
    sent = sum_known([codec.number(c.get("bytes")) for c in clients])
    sent = sent or codec.number(predictor.provenance.get("bytes_sent"))
    if sent:
        known.append(("left the clients, in all", num.in_bytes(sent)))
    return [{"what": what, "value": value} for what, value in known]


def audited(
    predictor: Predictor, audit: AuditReport, others: Mapping[str, AuditReport]
) -> dict[str, Any]:
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
        "groups with the fewest doubts",
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
    """From what was found to 100%. Very wide intervals do not set it: they are cut, and say so."""
    groups = [g for report in reports for g in report.groups if g.coverage is not None]
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
    ours = found[0]
    assert ours is not None  # the fingerprints agree
    percent, low, high = (
        num.percent(alpha),
        num.rounded(alpha, up=False),
        num.rounded(alpha, up=True),
    )
    marks, cells = [], []
    for i, g in enumerate(found):
        if g is None or g.coverage is None:
            cells.append({"text": num.DASH, "value": "", "under": False, "interval": ""})
            continue
        end = high(g.high)
        if g.high < 1 - alpha and end == high(1 - alpha):
            end = "<" + end  # rounding must not hide what the verdict rests on
        interval = f"{low(g.low)[:-1]} to {end}"
        cells.append(
            {
                "text": percent(g.coverage),
                "value": f"{g.coverage:.12g}",
                "under": i > 0 and g.verdict == BROKEN,
                "interval": interval,
            }
        )
        marks.append(
            Mark(
                series=i,
                x=scale.at(g.coverage),
                y=round(15 * (i - (len(found) - 1) / 2)),
                title=f"{names[i]}: {percent(g.coverage)} ({interval})",
                low=scale.at(g.low),
                high=scale.at(g.high),
                cut=g.low < scale.low,
            )
        )
    return {
        "group": group,
        "definition": definition,
        "verdict": _VERDICTS[ours.verdict],
        "marks": marks[::-1],  # ours is drawn last, on top
        "found": cells,
        "size": _sizes(found, names),
        "total": {
            "text": num.whole(ours.total),
            "value": str(ours.total),
            "note": f"withheld at {num.listed(ours.suppressed_at)}" if ours.suppressed else "",
        },
    }


def _sizes(found: Sequence[GroupAudit | None], names: Sequence[str]) -> dict[str, Any]:
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
    records = num.counted(sum(c.n for c in audit.clients), "labelled record")
    return (
        f"{records} at {num.counted(len(audit.clients), 'client')} were checked; only counts left "
        "the sites. The lines are intervals that hold for all groups at once with "
        f"{num.exact_percent(audit.confidence)} confidence. In the averages "
        f"{mixture_words(audit.mixture)}."
    )


def _comparison(audit: AuditReport, others: Mapping[str, AuditReport]) -> str:
    """Who is worst off with each method, in num."""
    worst = []
    for name, report in {_OURS: audit, **others}.items():
        known = [(g.coverage, g.group) for g in report.groups if g.coverage is not None]
        if known:
            coverage, group = min(known)
            worst.append(f"{100 * coverage:.1f}% ({group}) with {name}")
    if len(worst) < 2:
        return ""
    return f"The lowest coverage of any group was {num.listed(worst, len(worst))}."
