"""A page with sliders for alpha and the mixture, which shows what each setting costs.

`render_explorer` makes one HTML file from an `Exploration`. Like the report it needs no network.
The stops of its sliders are the settings of the exploration, and each of them is an exact
calibration: nothing is interpolated, and the script of the page computes no number (see `lookup`).

The numbers travel in the page as JSON, inside of a block that browsers do not run. No "<" is left
in it, and the script writes nothing but text, so that no name can become a part of the page.

The page stays under 2 MB: if there is too much to show, the rows with the least weight are left
out, and the page says how many. Shares and counts are always those of all rows.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from gcfcp import scores
from gcfcp.calibration import Exploration
from gcfcp.calibration import cells_of as cells_of_table
from gcfcp.errors import GCFCPError
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num
from gcfcp.report import sections
from gcfcp.report.frame import date_text, environment, frame
from gcfcp.report.lookup import lookup_of, start_text
from gcfcp.report.parts import cells_of
from gcfcp.version import LIBRARY

CHOICE = (
    "Every promise on this page is made for one alpha and one mixture that were fixed without a "
    "look at the scores and the groups of these records. If you compare settings here and keep the "
    "one with the smallest sets, alpha and mixture depend on these records, and for the setting "
    "that you kept nothing is proved: what was picked because it is small tends to cover less than "
    "was promised.",
    "To choose safely, explore the summaries of an earlier period or of other records, fix alpha "
    "and the mixture, and then calibrate records that had no part in the choice. What you may use "
    "is what does not come from the scores and groups of the calibrated records: how many records "
    "each site has, and where future records will come from.",
)
"""What it means to choose a setting after a look at the records."""


def render_explorer(
    explored: Exploration,
    command: str | None = None,
    *,
    date: str | datetime | None = None,
    title: str = "What alpha and the mixture cost",
) -> str:
    """The page as the text of one HTML file.

    explored: What `gcfcp.explore` returned.
    command: The command that the user ran; the page shows it.
    date: The date of the page, which is now if none is given.
    title: The title of the page.
    """
    empty = environment().get_template("explore.html.j2")
    page = empty.render(
        title=title,
        **frame(date, ("report.css", "explorer.css"), ("explorer.js",)),
        explorer=content(explored, level=2),
        provenance=_provenance(explored, date_text(date), command),
    )
    return page + "\n"


def content(explored: Exploration, level: int) -> dict[str, Any]:
    """What the part of a page shows in which settings are explored.

    level: That of its headings, 2 or 3.
    """
    from markupsafe import Markup

    cells, start, found = cells_of(explored), explored.start, lookup_of(explored)
    every = [setting for column in explored.settings for setting in column]
    statuses = {g.certified_status for setting in every for g in setting.guarantee}
    rows = len(start.atoms)
    return {
        "data": Markup(found.text),  # `lookup` has taken out what means anything to HTML.
        "level": level,
        "choice": CHOICE,
        "cells": cells,
        "by": explored.by,
        "heading": sections.HEADINGS[explored.by],
        "number": "Level" if explored.by == "group" and _shape(explored) else "Threshold",
        "scale": sections.threshold_scale(np.concatenate([s.thresholds for s in every]).tolist()),
        "settings": num.whole(len(every)),
        "several": len(explored.stops) > 1,
        "began": f"at alpha {explored.alpha:g}, {start_text(explored)}",
        "kind": start.guarantee[0].promise,
        "answer": "interval" if _kind(explored) == "interval" else "set",
        "options": _options(explored),
        "rows": num.whole(found.rows),
        "left_out": (
            f"To keep this page small, {num.counted(rows - found.rows, 'row')} of the table had to "
            f"be left out: the {cells.word}s{cells.tail} with the least weight. The shares and "
            "counts above are those of all of them."
            if rows > found.rows
            else ""
        ),
        "words": [
            (sections.GROUNDS.get(status, status), meaning)
            for status, meaning in sections.STATUS.items()
            if status in statuses
        ],
        "notes": [*explored.notes, *explored.left_out],
    }


def check_start(predictor: Predictor, explored: Exploration) -> None:
    """Refuse an exploration that does not start at this predictor.

    The thresholds at the start must be those of the predictor, bit for bit.
    """
    table, start = predictor.threshold_table, explored.start
    if explored.groups.fingerprint != predictor.groups.fingerprint or explored.by != predictor.by:
        raise GCFCPError(
            f"the summaries are for groups {explored.groups.fingerprint[:8]}.. by {explored.by}, "
            f"but the predictor is for groups {predictor.groups.fingerprint[:8]}.. by "
            f"{predictor.by}: give the summaries that the predictor was made of"
        )
    own = (
        table.thresholds(explored.membership) if explored.by == "atom" else cells_of_table(table)[1]
    )
    differ = np.flatnonzero(own != start.thresholds)
    if explored.alpha != float(table.alpha) or len(differ):
        where = " & ".join(start.atoms[differ[0]].groups) if len(differ) else "alpha"
        raise GCFCPError(
            f"the summaries do not give the predictor's thresholds (they differ at {where}): give "
            "the summaries that it was made of"
        )


def _shape(explored: Exploration) -> bool:
    """Whether a shape was subtracted from the scores."""
    return explored.summaries[0].shape is not None or explored.options["shape"] is not None


def _kind(explored: Exploration) -> str:
    """What is predicted: "interval", or "set" for labels and for a score that is not known."""
    first = explored.summaries[0]
    try:
        score = scores.from_name(first.score, first.parameters)
    except ValueError:  # A score of the user's own.
        return "set"
    return str(getattr(score, "kind", "set"))


def _options(explored: Exploration) -> str:
    """The options of `gcfcp calibrate` beside alpha and the mixture that give the same numbers."""
    given = explored.options
    found = []
    for name in ("merge", "delta", "rule", "correction", "confidence"):
        if given[name] not in (None, "pool", "sharp"):
            found += [f"--{name}", f"{given[name]}"]
    if given["shape"] is not None:
        found += ["--shape", given["shape"] if isinstance(given["shape"], str) else "SHAPE"]
    aggregates: Mapping[str, int | None] = given["aggregates"]
    for name, sites in aggregates.items():
        found += ["--aggregate", name if sites is None else f"{name}={sites}"]
    return shlex.join(found)


def _provenance(explored: Exploration, date: str, command: str | None) -> list[dict[str, Any]]:
    """Where the page comes from."""
    first, sites = explored.summaries[0], len(explored.clients)
    total = sum(s.n for s in explored.summaries)
    pairs: list[tuple[str, str | None, bool]] = [
        ("Summaries", f"{num.counted(sites, 'client')}, {num.counted(total, 'record')}", False),
        ("Groups", explored.groups.fingerprint, True),
        ("Score", first.score, False),
        ("Model", first.model, False),
        ("Round", first.round, False),
        ("Rule", explored.start.rule, False),
        ("Command", command, True),
        ("Software", LIBRARY, False),
        ("Date", date, False),
    ]
    return [{"what": what, "value": value, "mono": mono} for what, value, mono in pairs if value]
