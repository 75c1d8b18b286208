"""One page to show: what was promised, what was found, and where it all comes from.

`render` makes a single HTML file of a predictor and, where there are, the audits of it and of
baselines. The file needs no network (its content security policy forbids any), follows the
reader's light or dark mode, prints, and turns each table row into a card on a phone. Charts are
drawn into the tables as SVG, a row a group, so that a chart sorts and filters with its numbers and
its labels cannot collide.

Everything is read from `Predictor` (`score`, `table`, `records`, `provenance`), so that a report
can be made from predictor.json alone. Such a file may come from anyone: every text is escaped, and
what is missing or is no number is shown as a dash. Bounds are rounded to the safe side, never up
to the promise.

The same arguments, with a `date`, give the same page. Size: under 2 MB; where a federation is too
large for that, the rows that matter least are left out, and the page says how many.
"""

from __future__ import annotations

import base64
import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import numpy as np

from gcfcp import figures as fig
from gcfcp.audit import BROKEN, KEPT, NO_TARGET, UNKNOWN, AuditReport, GroupAudit
from gcfcp.client import LIBRARY, describe_score
from gcfcp.errors import GCFCPError
from gcfcp.planning import Plan
from gcfcp.predictor import Predictor
from gcfcp.server import MEASURED, PAPER, PROVED

Row = dict[str, Any]

_OURS = "gcfcp"
_SERIES = 6  # markers and colours that are told apart at a glance
_BUDGET = 1_700_000  # characters of rows: what is left of 2 MB is the page around them


def render(
    predictor: Predictor,
    audit: AuditReport | None = None,
    baselines: Mapping[str, AuditReport] | None = None,
    plan: Plan | None = None,
    command: str | None = None,
    *,
    date: str | datetime | None = None,
    title: str = "Coverage report",
) -> str:
    """The report as the text of one HTML file.

    baselines: audits of other methods on the same records, by name, drawn beside ours. plan: what
    `plan` said of the same summaries; it tells how many records are missing where something is
    infinite. command: what the user ran. date: of the report, by default now.
    """
    import jinja2
    from markupsafe import Markup

    others = dict(baselines or {})
    _check_fit(predictor, audit, others)
    css, script = _template("report.css"), _template("report.js")
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FunctionLoader(_template),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    page = environment.get_template("report.html.j2").render(
        title=title,
        library=LIBRARY,
        date=_date(date),
        css=Markup(css),
        script=Markup(script),
        policy=_policy(css, script),
        promise=fig.exact_percent(1 - _alpha(predictor)),
        verdict=_verdict(predictor, audit, others),
        facts=_facts(predictor),
        audit=None if audit is None else _audit(predictor, audit, others),
        promises=_promises(predictor),
        infinite=_infinite(predictor, plan),
        thresholds=_thresholds(predictor),
        clients=_clients(predictor),
        words=_words(predictor, audit),
        provenance=_provenance(predictor, audit, _date(date), command),
    )
    return page + "\n"


def _template(name: str) -> str:
    return (files("gcfcp") / "templates" / name).read_text("utf-8")


def _policy(css: str, script: str) -> str:
    """Nothing may be loaded, and nothing may run but the style and the script of this page."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; style-src {digest(css)}; script-src {digest(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _date(date: str | datetime | None) -> str:
    if isinstance(date, str):
        return date
    when = datetime.now(UTC) if date is None else date
    return f"{when:%Y-%m-%d %H:%M} {when.tzname() or ''}".strip()


def _check_fit(
    predictor: Predictor, audit: AuditReport | None, others: Mapping[str, AuditReport]
) -> None:
    """Audits of other groups or of another alpha would make a page that lies."""
    if audit is None and others:
        raise GCFCPError(f"baselines {', '.join(others)} were given without an audit to compare")
    if len(others) >= _SERIES:
        raise GCFCPError(f"{len(others)} baselines were given: at most {_SERIES - 1} can be drawn")
    named = {} if audit is None else {"the audit": audit}
    for name, report in [*named.items(), *others.items()]:
        if report.fingerprint != predictor.groups.fingerprint:
            raise GCFCPError(
                f"{name} is of groups {report.fingerprint[:8]}.., the predictor of "
                f"{predictor.groups.fingerprint[:8]}..: audit with the predictor's groups"
            )
        if report.alpha is not None and report.alpha != _alpha(predictor):
            raise GCFCPError(
                f"{name} is for alpha={report.alpha:g}, the predictor for "
                f"alpha={_alpha(predictor):g}: give merge_audits the predictor's alpha"
            )


# --- Sections ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    tone: str
    sign: str
    word: str
    rank: int  # broken first


_VERDICTS = {
    BROKEN: Verdict("bad", "✕", "broken", 0),
    UNKNOWN: Verdict("open", "?", "too few records", 1),
    NO_TARGET: Verdict("open", "?", "no target", 2),
    KEPT: Verdict("good", "✓", "kept", 3),
}


def _alpha(predictor: Predictor) -> float:
    return float(predictor.table.alpha)


def _answers(predictor: Predictor) -> str:
    """What a prediction is called: an interval for scores of numbers, a set otherwise."""
    name = describe_score(predictor.score)[0]
    return "interval" if name in ("residual", "cqr") else "set"


def _verdict(
    predictor: Predictor, audit: AuditReport | None, others: Mapping[str, AuditReport]
) -> dict[str, Any]:
    """One sentence for those who read no further, and what they must know beside it."""
    promise = fig.exact_percent(1 - _alpha(predictor))
    answer = _answers(predictor)
    every = _every(len(predictor.groups))
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
            f"Broken for {_some(len(by[BROKEN]), total)}: for {fig.listed(by[BROKEN])} "
            f"the prediction {answer} contained the true answer less often than the promised "
            f"{promise}."
        )
        if by[KEPT]:
            more.append(
                f"The promise was kept for {len(by[KEPT])} of {fig.counted(total, 'group')}."
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
        more.append(f"Too few audited records to tell: {fig.listed(by[UNKNOWN], 6)}.")
    for name, report in others.items():
        broken = [g.group for g in report.groups if g.verdict == BROKEN]
        if broken:
            more.append(
                f"With {name} instead, the promise would have been broken for "
                f"{_some(len(broken), total)}: {fig.listed(broken)}."
            )
    return {"tone": tone, "sign": sign, "headline": headline, "more": more + _caveats(predictor)}


def _every(groups: int) -> str:
    return "the one group" if groups == 1 else f"each of the {groups} groups"


def _some(count: int, total: int) -> str:
    if count < total:
        return f"{count} of {fig.counted(total, 'group')}"
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
        f"Without {fig.counted(len(missing), 'client')} that gave no answer: "
        f"{fig.listed([str(name) for name in missing], 10)}. The mixture is that of the others."
    ]


def _not_finite(predictor: Predictor) -> list[str]:
    """What is not finite is true and useless, and belongs to the top."""
    atoms = _atoms(predictor)
    infinite = [a for a in atoms if not math.isfinite(a.threshold)]
    if not infinite:
        return []
    weight, total = _total([a.weight for a in infinite]), _total([a.weight for a in atoms])
    part = "" if not total or weight is None else f", {fig.share(weight / total)} of the weight"
    there = ""
    if all(a.threshold > 0 for a in infinite):
        answer = _answers(predictor)
        there = f": there the {answer} {'is unbounded' if answer == 'interval' else _EVERYTHING}"
    return [
        f"For {len(infinite)} of {fig.counted(len(atoms), 'combination')} of groups{part}, no "
        f"finite threshold is valid{there}."
    ]


_EVERYTHING = "holds every label"


def _facts(predictor: Predictor) -> list[dict[str, str]]:
    clients = _dicts(predictor.provenance.get("clients"))
    facts = [
        ("promised in every group", fig.exact_percent(1 - _alpha(predictor))),
        ("groups", fig.whole(len(predictor.groups))),
        ("combinations of groups", fig.whole(len(_atoms(predictor)))),
    ]
    if clients:
        facts.append(("clients", fig.whole(len(clients))))
    records = _total([fig.number(c.get("n")) for c in clients])
    if records:
        facts.append(("calibration records", fig.whole(records)))
    sent = _total([fig.number(c.get("bytes")) for c in clients])
    sent = sent or fig.number(predictor.provenance.get("bytes_sent"))
    if sent:
        facts.append(("left the clients, in all", fig.in_bytes(sent)))
    return [{"what": what, "value": value} for what, value in facts]


def _audit(
    predictor: Predictor, audit: AuditReport, others: Mapping[str, AuditReport]
) -> dict[str, Any]:
    alpha = _alpha(predictor)
    reports = {_OURS: audit, **others}
    scale = _coverage_scale(list(reports.values()), alpha)
    found = [{g.group: g for g in report.groups} for report in reports.values()]
    names = list(reports)
    sizes = any(g.mean_size is not None for g in audit.groups)
    rows = [
        _audit_row(group, definition, [by.get(group) for by in found], names, scale, alpha)
        for group, definition in _defined(predictor)
    ]
    rows.sort(key=lambda row: int(row["verdict"].rank))
    rows, left_out = _fit(
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
        "size_word": "Mean width" if _answers(predictor) == "interval" else "Mean set size",
        "how": _how(audit),
        "comparison": _comparison(audit, others),
    }


def _coverage_scale(reports: Sequence[AuditReport], alpha: float) -> fig.Scale:
    """From what was found to 100%. Very wide intervals do not set it: they are cut, and say so."""
    groups = [g for report in reports for g in report.groups if g.coverage is not None]
    points = [g.coverage for g in groups if g.coverage is not None]
    ends = [g.low for g in groups if g.high - g.low <= max(0.15, 3 * alpha)]
    low = min([1 - 2 * alpha, *points, *ends])
    step = fig.step_of((1 - low) / 5)
    low = max(0.0, math.floor(low / step + 1e-9) * step)
    return fig.scale_of(low, 1.0, lambda v: f"{100 * v:.6g}%", strong=1 - alpha)


def _audit_row(
    group: str,
    definition: str,
    found: Sequence[GroupAudit | None],
    names: Sequence[str],
    scale: fig.Scale,
    alpha: float,
) -> dict[str, Any]:
    ours = found[0]
    assert ours is not None  # the fingerprints agree
    percent, low, high = (
        fig.percent(alpha),
        fig.rounded(alpha, up=False),
        fig.rounded(alpha, up=True),
    )
    marks, cells = [], []
    for i, g in enumerate(found):
        if g is None or g.coverage is None:
            cells.append({"text": fig.DASH, "value": "", "under": False, "interval": ""})
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
            fig.Mark(
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
            "text": fig.whole(ours.total),
            "value": str(ours.total),
            "note": f"withheld at {fig.listed(ours.suppressed_at)}" if ours.suppressed else "",
        },
    }


def _sizes(found: Sequence[GroupAudit | None], names: Sequence[str]) -> dict[str, Any]:
    ours = fig.Cell.of(found[0].mean_size if found[0] else None, fig.size)
    others = [
        f"{name} {fig.Cell.of(g.mean_size, fig.size).text}"
        for name, g in zip(names[1:], found[1:], strict=True)
        if g is not None and g.mean_size is not None
    ]
    if found[0] is not None and found[0].unbounded and found[0].mean_bounded_size is not None:
        others.insert(0, f"{fig.size(found[0].mean_bounded_size)} where bounded")
    return {"text": ours.text, "value": ours.value, "others": others}


def _how(audit: AuditReport) -> str:
    records = fig.counted(sum(c.n for c in audit.clients), "labelled record")
    return (
        f"{records} at {fig.counted(len(audit.clients), 'client')} were checked; only counts left "
        "the sites. The lines are intervals that hold for all groups at once with "
        f"{fig.exact_percent(audit.confidence)} confidence. In the averages "
        f"{_mixture_words(audit.mixture)}."
    )


def _comparison(audit: AuditReport, others: Mapping[str, AuditReport]) -> str:
    """Who is worst off with each method, in numbers."""
    worst = []
    for name, report in {_OURS: audit, **others}.items():
        known = [(g.coverage, g.group) for g in report.groups if g.coverage is not None]
        if known:
            coverage, group = min(known)
            worst.append(f"{100 * coverage:.1f}% ({group}) with {name}")
    if len(worst) < 2:
        return ""
    return f"The lowest coverage of any group was {fig.listed(worst, len(worst))}."


def _promises(predictor: Predictor) -> dict[str, Any]:
    alpha = _alpha(predictor)
    promise = fig.exact_percent(1 - alpha)
    answer = _answers(predictor)
    given = {str(g.get("group")): g for g in _dicts(predictor.provenance.get("guarantee"))}
    low, high = fig.rounded(alpha, up=False), fig.rounded(alpha, up=True)
    text = (
        f"For {_every(len(predictor.groups))}: of new records of the group, at least {promise} "
        f"have their true answer in the prediction {answer}. Records come from the clients in a "
        f"stated mixture: {_mixture_words(predictor.provenance.get('mixture'))}."
    )
    if not given:
        method = predictor.provenance.get("method")
        named = f" ({method})" if isinstance(method, str) else ""
        return {
            "text": text + f" The method{named} recorded no bound for single groups.",
            "rows": [],
        }
    rows: list[Row] = []
    for group, definition in _defined(predictor):
        g = given.get(group, {})
        rows.append(
            {
                "group": group,
                "definition": definition,
                "bounds": [
                    {"label": label, "cell": fig.Cell.of(g.get(key), form), "status": status}
                    for label, key, form in (
                        ("Certified at least", "certified", low),
                        ("Worst case at least", "lower", low),
                        ("At most", "upper", high),
                    )
                    if (status := str(g.get(f"{key}_status", fig.DASH)))
                ],
                "records": fig.Cell.of(g.get("records"), fig.whole),
                "effective": fig.Cell.of(g.get("effective_n"), fig.whole),
                "weight": fig.Cell.of(g.get("weight"), fig.share),
            }
        )
    statuses = {bound["status"] for row in rows for bound in row["bounds"]}
    eta = fig.number(next(iter(given.values())).get("eta"))
    rows, left_out = _fit(
        rows,
        lambda row: float(row["records"].value or 0),
        lambda row: 900 + len(row["group"]) + len(row["definition"]),
        "largest groups",
    )
    if eta is not None:
        text += f" The bound from above holds with {fig.exact_percent(1 - eta / 2)} confidence."
    return {
        "text": text,
        "rows": rows,
        "left_out": left_out,
        "words": [(status, _STATUS[status]) for status in _STATUS if status in statuses],
    }


_STATUS = {
    PROVED: (
        "A theorem covers exactly what was done here. It assumes only that new records of a client "
        "are drawn as its calibration records were."
    ),
    PAPER: (
        "The bound follows from the proof in the paper behind this method (Wen, Simeone and Xing, "
        "UAI 2026). For several clients that proof leaves a step open, so read it as the authors' "
        "argument and not as a theorem."
    ),
    MEASURED: (
        "No proof covers this combination of overlapping groups and clients. The bound held in "
        "simulations with known truth; whether it holds for your data is what an audit finds out. "
        'The rule "max" is proved for overlapping groups too, with larger sets.'
    ),
}


@dataclass(frozen=True)
class Atom:
    groups: tuple[str, ...]
    threshold: float
    count: float | None
    weight: float | None
    reason: str | None


def _atoms(predictor: Predictor) -> list[Atom]:
    table = predictor.table
    if predictor.records is not None:
        return [Atom(r.groups, r.threshold, r.count, r.weight, r.reason) for r in predictor.records]
    thresholds = table.thresholds_by_atom.tolist()
    if table.rule == "constant":
        return [Atom(("every record",), thresholds[0], None, None, None)]
    names = np.array(table.groups.names, dtype=object)
    return [
        Atom(tuple(names[row]), threshold, None, None, None)
        for row, threshold in zip(table.membership, thresholds, strict=True)
    ]


def _infinite(predictor: Predictor, plan: Plan | None) -> dict[str, Any]:
    atoms = _atoms(predictor)
    infinite = [a for a in atoms if not math.isfinite(a.threshold)]
    answer = _answers(predictor)
    if not infinite:
        text = (
            f"Nothing: each of the {fig.counted(len(atoms), 'combination')} of groups that "
            "occurred in calibration has a finite threshold."
        )
    else:
        text = (
            f"{fig.counted(len(infinite), 'combination')} of groups, of {fig.whole(len(atoms))}: "
            f"no finite threshold would keep the promise there. Nothing was made up in its place: "
            f"the prediction {answer} "
            + ("is unbounded" if answer == "interval" else _EVERYTHING)
            + ", which is true and says nothing."
        )
    by_reason: dict[str, list[Atom]] = {}
    for atom in infinite:
        by_reason.setdefault(atom.reason or "no reason was recorded", []).append(atom)
    items = []
    for reason, members in sorted(by_reason.items(), key=lambda item: -_weight(item[1])):
        shown = sorted(members, key=lambda a: -(a.weight or 0))[:8]
        extent = fig.counted(len(members), "combination") + " of groups"
        records = _total([a.count for a in members])
        if records is not None:
            extent += (
                f", {fig.counted(records, 'record')}, {fig.share(_weight(members))} of the weight"
            )
        left = len(members) - len(shown)
        items.append(
            {
                "reason": reason[:1].upper() + reason[1:],
                "extent": extent,
                "atoms": [a.groups or ("no group",) for a in shown],
                "more": f"and {fig.counted(left, 'more combination')}" if left else "",
            }
        )
    listed = items[:40]
    if len(items) > len(listed):
        text += f" The {len(listed)} reasons of most weight, of {len(items)}, are listed."
    return {
        "text": text,
        "reasons": listed,
        "missing": [] if plan is None else _missing(plan),
        "advice": [] if plan is None else [_sentence(a) for a in plan.advice],
    }


def _missing(plan: Plan) -> list[str]:
    lines = []
    for g in plan.groups:
        if g.finite:
            continue
        if g.missing is None:
            need = f"more records like its {fig.whole(g.records)} would not help"
        else:
            need = (
                f"{fig.counted(g.missing, 'more record')} beside its {fig.whole(g.records)}, if "
                f"all clients grow alike, {g.growth:.3g}-fold"
            )
        lines.append(
            f"{g.group}: {need}; as it is, alpha could be no less than {g.least_alpha:.3g}."
        )
    return lines[:40]


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def _thresholds(predictor: Predictor) -> dict[str, Any]:
    atoms = _atoms(predictor)
    counted = predictor.records is not None
    finite = [a.threshold for a in atoms if math.isfinite(a.threshold)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if high == low:
        low, high = min(0.0, low), max(0.0, high) or low + 1
    elif 0 < low < 0.7 * high:
        low = 0.0
    infinite = any(a.threshold == math.inf for a in atoms)
    scale = fig.scale_of(low, high, fig.short, right=85 if infinite else 93)
    if infinite:
        scale = fig.Scale(
            scale.low, scale.high, scale.left, scale.right, (*scale.ticks, fig.Tick("95", "∞"))
        )
    zero = scale.at(max(low, min(high, 0.0)))
    rows: list[Row] = []
    for atom in atoms:
        threshold = fig.Cell.of(atom.threshold, fig.short)
        if math.isfinite(atom.threshold):
            x = scale.at(atom.threshold)
            mark = fig.Mark(0, x, 0, f"threshold {threshold.text}")
            stem: tuple[str, str] | None = (zero, x)
        else:
            mark = fig.Mark(0, "95" if atom.threshold > 0 else "2", 0, "", infinite=True)
            stem = None
        rows.append(
            {
                "groups": atom.groups or ("no group",),
                "marks": [mark],
                "stem": stem,
                "threshold": threshold,
                "count": fig.Cell.of(atom.count, fig.whole),
                "weight": fig.Cell.of(atom.weight, fig.share),
            }
        )

    def importance(row: Row) -> tuple[bool, float]:
        return (math.isfinite(float(row["threshold"].value)), -float(row["weight"].value or 0))

    rows.sort(key=importance)
    rows, left_out = _fit(
        rows,
        importance,
        lambda row: 1400 + sum(12 + len(name) for name in row["groups"]),
        "lightest combinations",
    )
    sets = _answers(predictor) == "set"
    below = (
        "An answer is in the prediction set if its score is at most the threshold of the "
        "combination of groups that the record belongs to; a lower threshold means smaller sets. "
        if sets
        else "The interval holds the answers whose score is at most the threshold of the "
        "combination of groups that the record belongs to; a lower one means narrower intervals. "
    )
    return {
        "text": below + _RULES[predictor.table.rule],
        "scale": scale,
        "rows": rows,
        "left_out": left_out,
        "counted": counted,
    }


_RULES = {
    "simultaneous": "All thresholds were found together, so that every group keeps its promise.",
    "max": "Each is the largest of the thresholds of its groups.",
    "first": "Each is the threshold of the first of its groups.",
    "constant": "There is one threshold for every record, whatever its groups.",
}


def _clients(predictor: Predictor) -> dict[str, Any]:
    given = _dicts(predictor.provenance.get("clients"))
    if not given:
        return {"text": "No clients are recorded.", "rows": [], "notes": []}
    total = _total([fig.number(c.get("n")) for c in given]) or 0
    weighted = any(fig.number(c.get("share")) is not None for c in given)
    parts = [(fig.number(c.get("share")), _part(fig.number(c.get("n")), total)) for c in given]
    highest = max([v for pair in parts for v in pair if v is not None], default=1.0) or 1.0
    scale = fig.scale_of(0.0, highest, lambda v: f"{100 * v:.4g}%")
    rows: list[Row] = []
    for client, (share, part) in zip(given, parts, strict=True):
        marks = []
        if part is not None:
            marks.append(fig.Mark(1, scale.at(part), 0, f"{fig.share(part)} of the records"))
        if share is not None:
            marks.append(fig.Mark(0, scale.at(share), 0, f"weight {fig.share(share)}"))
        rows.append(
            {
                "client": str(client.get("client", fig.DASH)),
                "note": _client_note(client),
                "marks": marks,
                "stem": None
                if share is None or part is None
                else (scale.at(share), scale.at(part)),
                "n": fig.Cell.of(client.get("n"), fig.whole),
                "share": fig.Cell.of(share, fig.share),
                "bytes": fig.Cell.of(client.get("bytes"), fig.in_bytes),
                "centroids": fig.Cell.of(client.get("centroids"), fig.whole),
                "atoms": fig.Cell.of(client.get("atoms"), fig.whole),
                "suppressed": fig.Cell.of(client.get("suppressed"), fig.whole),
                "sha256": str(client.get("sha256", fig.DASH)),
            }
        )
    rows, left_out = _fit(
        rows,
        lambda row: -float(row["n"].value or 0),
        lambda row: 1800 + len(row["client"]) + len(row["note"]),
        "smallest clients",
    )
    return {
        "text": _disclosed(predictor, given),
        "names": ["weight in the mixture", "share of the records"]
        if weighted
        else ["", "share of the records"],
        "scale": scale,
        "rows": rows,
        "left_out": left_out,
        "detailed": any("centroids" in c for c in given),
        "notes": _client_notes(predictor, given),
    }


def _part(n: float | None, total: float) -> float | None:
    return None if n is None or not total else n / total


def _client_note(client: Mapping[str, Any]) -> str:
    members = fig.number(client.get("members"))
    notes = []
    if members is not None and members > 1:
        notes.append(f"for {fig.counted(members, 'client')}")
    uncovered = fig.number(client.get("uncovered"))
    if uncovered:
        notes.append(f"{fig.counted(uncovered, 'record')} in no group")
    if client.get("unlike"):
        notes.append("unlike the others")
    return ", ".join(notes)


def _disclosed(predictor: Predictor, given: Sequence[Mapping[str, Any]]) -> str:
    sent = _total([fig.number(c.get("bytes")) for c in given])
    records = _total([fig.number(c.get("n")) for c in given])
    values = _total([fig.number(c.get("centroids")) for c in given])
    if sent is None or records is None or values is None:
        return "The method recorded the clients' sizes, and not what they sent."
    return (
        "No feature, label or prediction left a client. What left is one summary each: its number "
        "of records, and for every combination of groups that occurred how many records it has and "
        f"a few score values with their counts. In all, {fig.in_bytes(sent)} for "
        f"{fig.counted(records, 'record')}: {fig.counted(values, 'score value')}."
    )


def _client_notes(predictor: Predictor, given: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = []
    least = [c for c in given if fig.number(c.get("min_count")) == 1]
    if least and predictor.provenance.get("representative") == "upper":
        every = "every client" if len(least) == len(given) else fig.counted(len(least), "client")
        notes.append(
            f"For {every} the smallest combination that may be described has 1 record (min_count), "
            "and each score value sent is the exact score of some record. A larger min_count hides "
            "small combinations and rounds."
        )
    suppressed = _total([fig.number(c.get("suppressed")) for c in given])
    if suppressed:
        notes.append(
            f"{fig.counted(suppressed, 'record')} lie in combinations too small to be described "
            "(min_count). They count as if their score were infinite, which can only raise "
            "thresholds."
        )
    uncovered = _total([fig.number(c.get("uncovered")) for c in given])
    if uncovered:
        notes.append(
            f"{fig.counted(uncovered, 'record')} belong to no group, and nothing is promised for "
            "such records."
        )
    notes += [_sentence(c["unlike"]) for c in given if isinstance(c.get("unlike"), str)]
    return notes


def _words(predictor: Predictor, audit: AuditReport | None) -> list[tuple[str, str]]:
    answer = _answers(predictor)
    words = [
        (
            "Coverage",
            f"The share of records whose true answer lies in the prediction {answer}. It is "
            "counted group by group, so that a good average cannot hide a group that is let down.",
        ),
        (
            "Certified at least, worst case, at most",
            "Bounds on the coverage of a group. The worst case follows from how strongly "
            "scores may be compressed; the certified bound from the errors that really occurred. "
            "Each has its ground beside it.",
        ),
        (
            "Combination of groups",
            "Groups may overlap. Records that belong to exactly the same groups share one "
            "threshold; such a set of records is called an atom in the files.",
        ),
        (
            "Weight",
            "A share of the mixture of clients for which the promise is made, and not of the "
            "records.",
        ),
    ]
    if audit is not None:
        margin = audit.margin or 0.0
        words.insert(
            1,
            (
                "Kept, broken, too few records",
                "Broken: the whole interval lies below the promise. Kept: the whole interval lies "
                f"above the promise less {100 * margin:.3g} points; no number of records could "
                "rule out a coverage that is a hair below. Too few records: neither can be shown.",
            ),
        )
    return words


def _provenance(
    predictor: Predictor, audit: AuditReport | None, date: str, command: str | None
) -> list[dict[str, Any]]:
    given = predictor.provenance
    name, parameters = describe_score(predictor.score)
    settings = ", ".join(f"{key} = {value}" for key, value in sorted(parameters.items()))
    clients = _dicts(given.get("clients"))
    libraries = sorted({str(c["library"]) for c in clients if "library" in c})
    deltas = sorted({d for c in clients if (d := fig.number(c.get("delta"))) is not None})
    minimum = sorted({m for c in clients if (m := fig.number(c.get("min_count"))) is not None})
    python = ".".join(map(str, sys.version_info[:3]))
    pairs = [
        ("Date", date, False),
        ("Command", command, True),
        ("Versions", f"{LIBRARY}, Python {python}, NumPy {np.__version__}", False),
        ("Versions at the clients", ", ".join(libraries), False),
        ("Method", given.get("method"), False),
        ("Score", f"{name} ({settings})" if settings else name, False),
        ("alpha", f"{_alpha(predictor):g}", False),
        ("Mixture", _mixture_text(given.get("mixture")), False),
        ("Rule", predictor.table.rule, False),
        ("Merge", given.get("merge"), False),
        ("Compression at the clients (delta)", ", ".join(f"{d:g}" for d in deltas), False),
        ("Compression at the server (delta)", given.get("recompression_delta"), False),
        ("Representative of a cluster", given.get("representative"), False),
        ("Smallest combination described (min_count)", ", ".join(map(fig.whole, minimum)), False),
        ("Model", given.get("model"), True),
        ("Groups, fingerprint", predictor.groups.fingerprint, True),
        ("Predictor, SHA-256", hashlib.sha256(predictor.to_json().encode()).hexdigest(), True),
    ]
    if audit is not None:
        pairs += [
            ("Predictor that was audited", audit.predictor, True),
            ("Mixture of the audit", _mixture_text(audit.mixture), False),
            ("Intervals of the audit", f"{audit.interval}, {audit.adjustment}", False),
            ("Confidence of the audit", fig.exact_percent(audit.confidence), False),
        ]
    return [
        {"what": what, "value": str(value), "mono": mono} for what, value, mono in pairs if value
    ]


# --- Parts of sections ---------------------------------------------------------------------------


def _defined(predictor: Predictor) -> list[tuple[str, str]]:
    """The groups, each with its condition where there is one."""
    groups = predictor.groups
    return list(zip(groups.names, groups.predicates or [""] * len(groups), strict=True))


def _mixture_words(mixture: Any) -> str:
    if mixture == "uniform":
        return "every client counts the same"
    if mixture == "proportional":
        return "every client counts by its number of records"
    if isinstance(mixture, Mapping) and len(set(map(str, mixture.values()))) == 1:
        return "every client counts the same"
    return "clients count by the weights that were given"


def _mixture_text(mixture: Any) -> str | None:
    if isinstance(mixture, Mapping):
        parts = [f"{k}: {fig.number(w) or 0:.4g}" for k, w in list(mixture.items())[:50]]
        more = f", and {len(mixture) - 50} more" if len(mixture) > 50 else ""
        return ", ".join(parts) + more
    return None if mixture is None else str(mixture)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _total(values: Sequence[float | None]) -> float | None:
    """The sum, or None if any is not known."""
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


def _weight(atoms: Sequence[Atom]) -> float:
    return sum(a.weight or 0.0 for a in atoms)


def _fit(
    rows: list[Row],
    importance: Callable[[Row], Any],
    size: Callable[[Row], int],
    what: str,
) -> tuple[list[Row], str]:
    """As many rows as fit a section, the most important ones, in the order they came in."""
    budget = _BUDGET // 4
    order = sorted(range(len(rows)), key=lambda i: importance(rows[i]))
    kept = []
    for i in order:
        budget -= size(rows[i])
        if budget < 0:
            break
        kept.append(i)
    left = len(rows) - len(kept)
    note = (
        f"{fig.whole(left)} more, the {what}, are left out to keep this page small." if left else ""
    )
    return [rows[i] for i in sorted(kept)], note
