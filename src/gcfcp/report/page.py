"""The page as one HTML file: what was promised, what was found, and where it all comes from.

`render` makes a single HTML file from a predictor and, if there are any, from audits of it and of
baselines. The file needs no network (its content security policy forbids all access), follows the
reader's light or dark mode, can be printed, and turns each row of a table into a card on a phone.
Charts are drawn into the tables as SVG, with one row for each group. So a chart is sorted and
filtered together with its numbers, and its labels cannot collide.

Everything is read from `Predictor` (`score`, `threshold_table`, `atoms`, `provenance`), so that a
report can be made from predictor.json alone. Such a file may come from anyone: every text is
escaped, and a value that is missing or is not a number is shown as a dash. Bounds are rounded to
the safe side, never up to the promise.

The same arguments, with a `date`, give the same page. The page stays under 2 MB, and under 4 MB
with a section to explore: if a federation is too large for that, the rows that matter least are
left out, and the page says how many.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gcfcp import checks
from gcfcp.audit import AuditReport
from gcfcp.calibration import Exploration, Plan
from gcfcp.errors import GCFCPError
from gcfcp.prediction import Predictor
from gcfcp.report import explorer, findings, head, sections, sites
from gcfcp.report import numbers as num
from gcfcp.report.frame import date_text, environment, frame
from gcfcp.report.parts import alpha_of

_SERIES = 6  # The number of methods whose markers and colours a reader can tell apart.


def render(
    predictor: Predictor,
    audit: AuditReport | None = None,
    baselines: Mapping[str, AuditReport] | None = None,
    plan: Plan | None = None,
    command: str | None = None,
    *,
    date: str | datetime | None = None,
    title: str = "Coverage report",
    model: str | None = None,
    owner: str | None = None,
    period: str | None = None,
    explored: Exploration | None = None,
) -> str:
    """The report as the text of one HTML file.

    predictor: The predictor that the report is about.
    audit: The merged audits of the predictor. Without it, the page says what is promised, but not
    whether the promise was kept.
    baselines: The merged audits of other methods on the same records, by name. They are drawn
    beside the predictor's; there may be up to 5.
    plan: What `plan` said of the same summaries. It tells how many records are missing where a
    threshold is infinite.
    command: The command that the user ran; the page shows it.
    date: The date of the report, which is now if none is given.
    title: The title of the page.
    model: The name of the model, for people. By default it is what the summaries say.
    owner: Who answers for the model or for this report.
    period: The time that the report is about, such as "2026, fourth quarter". By default it is the
    round of the audit.
    explored: What `gcfcp.explore` returned for the predictor's own summaries, from its alpha and
    mixture on. The report then has a section with sliders that shows what others would cost.
    """
    empty = environment().get_template("report.html.j2")
    others = dict(baselines or {})
    _check_fit(predictor, audit, others)
    audit = None if audit is None else head.judged(predictor, audit)
    if explored is not None:
        explorer.check_start(predictor, explored)
    sliders = [] if explored is None else ["explorer"]
    date = date_text(date)
    page = empty.render(
        title=title,
        **frame(
            date,
            [f"{name}.css" for name in ("report", *sliders)],
            [f"{name}.js" for name in ("report", *sliders)],
        ),
        about=head.about(predictor, audit, date, model=model, owner=owner, period=period),
        **_content(predictor, audit, others, plan),
        explorer=None if explored is None else explorer.content(explored, level=3),
        provenance=sections.provenance(predictor, audit, date, command),
    )
    return page + "\n"


def _content(
    predictor: Predictor,
    audit: AuditReport | None,
    others: Mapping[str, AuditReport],
    plan: Plan | None,
) -> dict[str, object]:
    """What the template shows, section by section, except for the provenance."""
    return {
        "promise": num.exact_percent(1 - alpha_of(predictor)),
        "verdict": head.verdict(predictor, audit, others),
        "facts": head.facts(predictor),
        "audit": None if audit is None else findings.audited(predictor, audit, others),
        "sites": sites.by_site(predictor, audit),
        "promises": sections.promises(predictor),
        "infinite": sections.infinite(predictor, plan),
        "thresholds": sections.thresholds(predictor),
        "clients": sections.clients(predictor, plan),
        "unseen": sections.unseen(plan, 1 - alpha_of(predictor)),
        "words": sections.words(predictor, audit),
    }


def _check_fit(
    predictor: Predictor, audit: AuditReport | None, others: Mapping[str, AuditReport]
) -> None:
    """Refuse audits of another predictor, of other groups or of another alpha.

    The page would say what is not true. Audits that do not say which predictor they are of are let
    in, and the page says so.
    """
    if audit is None and others:
        raise GCFCPError(
            f"baselines {', '.join(others)} were given without an audit of the predictor to "
            "compare them with: give the predictor's audit too"
        )
    if len(others) >= _SERIES:
        raise GCFCPError(
            f"{len(others)} baselines were given, but at most {_SERIES - 1} can be drawn: leave "
            "some out"
        )
    if audit is not None and audit.predictor not in (None, predictor.fingerprint):
        raise GCFCPError(
            f"the audit is of predictor {checks.shown(audit.predictor)}, but the report is about "
            f"predictor {checks.shown(predictor.fingerprint)}: give the predictor that was "
            "audited, or audit this one"
        )
    named = {} if audit is None else {"the audit": audit}
    for name, report in [*named.items(), *others.items()]:
        if report.fingerprint != predictor.groups.fingerprint:
            raise GCFCPError(
                f"{name} is of groups {report.fingerprint[:8]}.., but the predictor is for groups "
                f"{predictor.groups.fingerprint[:8]}..: audit with the predictor's groups"
            )
        if report.alpha is not None and report.alpha != alpha_of(predictor):
            raise GCFCPError(
                f"{name} is for alpha={report.alpha:g}, but the predictor is for "
                f"alpha={alpha_of(predictor):g}: give merge_audits the predictor's alpha"
            )
