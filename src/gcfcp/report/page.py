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
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files

from gcfcp.audit import AuditReport
from gcfcp.calibration import Plan
from gcfcp.errors import GCFCPError
from gcfcp.prediction import Predictor
from gcfcp.report import findings, sections
from gcfcp.report import numbers as num
from gcfcp.report.parts import alpha_of
from gcfcp.version import LIBRARY

_SERIES = 6  # markers and colours that are told apart at a glance


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
        promise=num.exact_percent(1 - alpha_of(predictor)),
        verdict=findings.verdict(predictor, audit, others),
        facts=findings.facts(predictor),
        audit=None if audit is None else findings.audited(predictor, audit, others),
        promises=sections.promises(predictor),
        infinite=sections.infinite(predictor, plan),
        thresholds=sections.thresholds(predictor),
        clients=sections.clients(predictor),
        words=sections.words(predictor, audit),
        provenance=sections.provenance(predictor, audit, _date(date), command),
    )
    return page + "\n"


def _template(name: str) -> str:
    return (files("gcfcp.report") / "templates" / name).read_text("utf-8")


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
        if report.alpha is not None and report.alpha != alpha_of(predictor):
            raise GCFCPError(
                f"{name} is for alpha={report.alpha:g}, the predictor for "
                f"alpha={alpha_of(predictor):g}: give merge_audits the predictor's alpha"
            )
