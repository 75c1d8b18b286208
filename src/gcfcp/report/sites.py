"""The section about coverage site by site, and what is promised to a site."""

from __future__ import annotations

from typing import Any

from gcfcp.audit import AuditReport, SiteCoverage, span
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num
from gcfcp.report.parts import alpha_of, fit


def by_site(predictor: Predictor, audit: AuditReport | None) -> dict[str, Any] | None:
    """One row for each site, with a cell for each group; None where there are not several sites."""
    if audit is None or len(audit.sites) < 2:
        return None
    alpha = alpha_of(predictor)
    names = [g.group for g in audit.sites[0].groups]
    rows, left_out = fit(
        [
            {
                "site": site.client,
                "n": num.Cell.of(site.n, num.whole),
                "cells": [_cell(g, alpha) for g in site.groups],
            }
            for site in audit.sites
        ],
        lambda row: -float(row["n"].value),
        lambda row: 200 + len(row["site"]) + sum(180 + len(name) for name in names),
        "the sites with the fewest audited records",
    )
    return {"text": _text(audit), "groups": names, "rows": rows, "left_out": left_out}


def _text(audit: AuditReport) -> str:
    """What is promised to a site and what is not, and how to read the table."""
    promised = (
        "The promise is made for each group over all sites together, and here also for each site "
        "as a whole, because the sites are groups of their own; it is not made for a group within "
        "one site."
        if audit.site_groups
        else "The promise is made for each group over all sites together. It is not made for a "
        "single site: at one site the coverage may lie below, and at another above. A promise to "
        "each site can be asked for by listing the sites in the groups file."
    )
    return (
        f"{promised} The table shows what each site found on its own. All ranges of the table "
        f"together are right with {num.exact_percent(audit.confidence)} confidence. An arrow marks "
        "a range that lies below the promised share as a whole."
    )


def _cell(g: SiteCoverage, alpha: float) -> dict[str, Any]:
    """The coverage of one group at one site, with its range and its number of records."""
    if not g.total_at_most:
        return {"text": num.DASH, "value": "", "notes": ["no records"], "below": False}
    low, high = num.rounded(alpha, up=False)(g.low), num.rounded(alpha, up=True)(g.high)
    records = span(g.total, g.total_at_most)
    return {
        "text": "withheld" if g.coverage is None else num.percent(alpha)(g.coverage),
        "value": "" if g.coverage is None else f"{g.coverage:.12g}",
        "notes": [f"{low[:-1]} to {high}", f"{records} record{'' if records == '1' else 's'}"],
        "below": g.high < 1 - alpha,
    }
