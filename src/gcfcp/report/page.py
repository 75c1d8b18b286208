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

The same arguments, with a `date`, give the same page. The page stays under 2 MB: if a federation is
too large for that, the rows that matter least are left out, and the page says how many.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files

from gcfcp import checks
from gcfcp.audit import AuditReport
from gcfcp.calibration import Plan
from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs
from gcfcp.prediction import Predictor
from gcfcp.report import findings, head, sections, sites
from gcfcp.report import numbers as num
from gcfcp.report.parts import alpha_of
from gcfcp.version import LIBRARY

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
    """
    needs("jinja2", "reports", "cli")
    import jinja2
    from markupsafe import Markup

    others = dict(baselines or {})
    _check_fit(predictor, audit, others)
    audit = None if audit is None else head.judged(predictor, audit)
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
        about=head.about(predictor, audit, _date(date), model=model, owner=owner, period=period),
        **_content(predictor, audit, others, plan),
        provenance=sections.provenance(predictor, audit, _date(date), command),
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


def _template(name: str) -> str:
    """The text of a file in `templates`."""
    return (files("gcfcp.report") / "templates" / name).read_text("utf-8")


def _policy(css: str, script: str) -> str:
    """The content security policy: the browser loads nothing, and runs only this page's own script.

    The style and the script of the page are allowed by their SHA-256.
    """

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; style-src {digest(css)}; script-src {digest(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _date(date: str | datetime | None) -> str:
    """The date as the page shows it, such as "2026-03-04 05:06 UTC"."""
    if isinstance(date, str):
        return date
    when = datetime.now(UTC) if date is None else date
    return f"{when:%Y-%m-%d %H:%M} {when.tzname() or ''}".strip()


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
