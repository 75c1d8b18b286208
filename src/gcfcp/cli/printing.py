"""What commands print: tables for people, or JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gcfcp import checks, codec
from gcfcp.cli import console

if TYPE_CHECKING:
    from gcfcp.audit import Audit, AuditReport, GroupAudit
    from gcfcp.calibration import Calibration, GroupPlan, Plan
    from gcfcp.prediction import Predictor
    from gcfcp.shape import Shape
    from gcfcp.summary import ClientSummary


def _parameters_text(parameters: dict[str, Any]) -> str:
    """The parameters of a score, with a blank before them, and its labels by name."""
    if "classes" not in parameters:
        return f" {parameters}" if parameters else ""
    labels = [str(label) for label in json.loads(parameters["classes"])]
    others = {key: value for key, value in parameters.items() if key != "classes"}
    return f"{f' {others}' if others else ''} of the labels {checks.listed(labels, 12)}"


def show_summary(summary: ClientSummary, as_json: bool) -> None:
    """Print what a summary discloses, and how it was made."""
    values = _summary_values(summary)
    if as_json:
        console.show_json(values)
        return
    console.lines(str(summary.disclosure))
    parameters = _parameters_text(summary.parameters)
    how = (
        f"grid of {summary.grid}{f', {summary.noise}' if summary.noise else ''}"
        if summary.grid is not None
        else f"delta {summary.delta:g}, {summary.representative} representatives"
    )
    console.lines(f"  score {summary.score}{parameters}, model {summary.model or 'unnamed'}, {how}")
    if summary.round is not None or summary.date is not None:
        console.lines(f"  round {summary.round or 'unnamed'}, date {summary.date or 'unnamed'}")
    if summary.is_aggregate:
        console.lines(
            f"  it stands for {clients(len(summary.members))}: "
            + ", ".join(k if n is None else f"{k} ({n:,})" for k, n in summary.members)
        )
    console.lines(f"  groups {summary.groups.fingerprint[:8]}..:")
    for name, condition in zip(summary.groups.names, summary.groups.conditions, strict=True):
        console.lines(f"    {name}{' = ' + condition if condition else ''}")
    console.table(
        [summary.by, "records", "centroids"],
        [
            [" & ".join(atom["groups"]), f"{atom['records']:,}", f"{atom['centroids']:,}"]
            for atom in values["described"]
        ],
    )


def _described(summary: ClientSummary) -> list[dict[str, Any]]:
    """For each atom of a summary its groups, and how many records and centroids it has.

    By group the last group comes first in a summary; here groups are in their own order.
    """
    cells = [
        {
            "groups": list(summary.groups.names_of(row)),
            "records": int(n),
            "centroids": int(m),
        }
        for row, n, m in zip(
            summary.membership,
            summary.atom_counts,
            summary.start[1:] - summary.start[:-1],
            strict=True,
        )
    ]
    return cells[::-1] if summary.by == "group" else cells


def _summary_values(summary: ClientSummary) -> dict[str, Any]:
    """A summary for programs."""
    return {
        "kind": "summary",
        **asdict(summary.disclosure),
        "score": summary.score,
        "parameters": summary.parameters,
        "model": summary.model,
        "round": summary.round,
        "date": summary.date,
        "delta": summary.delta,
        "representative": summary.representative,
        "cells": None if summary.grid is None else summary.grid.values,
        "noise": None if summary.noise is None else summary.noise.values,
        "fingerprint": summary.groups.fingerprint,
        "groups": list(summary.groups.names),
        "predicates": summary.groups.predicates,
        "members": [{"client": k, "n": n} for k, n in summary.members],
        "described": _described(summary),
        "library": summary.library,
    }


def shape_values(shape: Shape) -> dict[str, Any]:
    """A shape for programs."""
    return {
        "kind": "shape",
        "fingerprint": shape.fingerprint,
        "groups": list(shape.groups.names),
        "coefficients": list(shape.coefficients),
        "sources": list(shape.sources),
    }


def show_shape(shape: Shape, data: bytes, as_json: bool) -> None:
    """Print what a shape discloses. `data` are the bytes of its file."""
    if as_json:
        console.show_json(shape_values(shape) | {"bytes": len(data)})
        return
    console.lines(
        f"{len(data):,} bytes: shape {shape.fingerprint[:8]}.., one rounded number for each of "
        f"{checks.counted(len(shape.groups), 'group')}, fitted to the scores of "
        f"{checks.counted(len(shape.sources), 'summary', 'summaries')}; a summary among them "
        "cannot be calibrated with it"
    )
    console.table(
        ["group", "coefficient"],
        [
            [name, f"{coefficient:+.6g}"]
            for name, coefficient in zip(shape.groups.names, shape.coefficients, strict=True)
        ],
    )


def clients(count: int) -> str:
    """A number of clients in words: "1 client", "1,200 clients"."""
    return f"{count:,} client{'' if count == 1 else 's'}"


def audit_values(found: Audit) -> dict[str, Any]:
    """An audit for programs; the counts of a suppressed group are null."""
    hidden, ranges = found.suppressed.tolist(), found.ranges
    unknown = [None] * len(found.groups)
    sets = [
        unknown if array is None else array.tolist()
        for array in (found.sets.arrays if found.sets is not None else (None, None, None))
    ]

    def published(values: Any) -> list[Any]:
        return [None if h else v for v, h in zip(values.tolist(), hidden, strict=True)]

    rows = zip(
        found.groups.names,
        hidden,
        published(found.covered),
        published(found.total),
        found.bound.tolist(),
        ranges.least.tolist(),
        ranges.least_missed.tolist(),
        ranges.most_missed.tolist(),
        *sets,
        unknown if found.everything is None else found.everything.tolist(),
        strict=True,
    )
    return {
        "client": found.client,
        "n": found.n,
        "min_count": found.min_count,
        "alpha": found.alpha,
        "predictor": found.predictor,
        "share": found.share,
        "round": found.round,
        "date": found.date,
        "uncovered": found.uncovered,
        "suppressed_atoms": found.suppressed_atoms,
        "groups": [
            {
                "group": g,
                "suppressed": h,
                "covered": c,
                "total": t,
                "at_most": b,
                "at_least": a,
                "missed_at_least": low,
                "missed_at_most": high,
                "full": full,
                "empty": empty,
                "infinite": infinite,
                "everything": everything,
            }
            for g, h, c, t, b, a, low, high, full, empty, infinite, everything in rows
        ],
    }


def show_audit(found: Audit, as_json: bool) -> None:
    """Print what the audit of one client discloses."""
    from gcfcp.audit import span

    values = audit_values(found)
    if as_json:
        console.show_json({"kind": "audit", **values, "bytes": len(found.to_bytes())})
        return
    records = checks.counted(found.n, "record")
    console.lines(
        f"{found.client}: {len(found.to_bytes()):,} bytes of counts for {records} "
        f"{counted_in(found)}"
    )
    if found.round is not None or found.date is not None:
        console.lines(f"  round {found.round or 'not stated'}, date {found.date or 'not stated'}")
    if found.share is not None:
        console.lines(f"  its weight in the predictor's mixture is {found.share:.4g}")
    counted = [
        name for name in ("full", "empty", "infinite") if values["groups"][0][name] is not None
    ]
    console.table(
        ["group", "covered", "total", *counted],
        [
            [
                g["group"],
                span(
                    max(g["at_least"] - g["missed_at_most"], 0),
                    g["at_most"] - g["missed_at_least"],
                ),
                span(g["at_least"], g["at_most"]),
                *(f"{g[name]:,}" for name in counted),
            ]
            for g in values["groups"]
        ],
    )
    if counted:
        console.lines("full, empty: sets that hold everything or nothing; infinite: thresholds")


def counted_in(found: Audit) -> str:
    """What an audit counts, and what it leaves open."""
    groups = checks.counted(len(found.groups), "group")
    if found.told is not None:
        told = int((~found.suppressed).sum())
        return (
            f"in {groups}; both numbers of {told} of them are exact, and of the others no cell of "
            f"fewer than {found.min_count} covered or missed records is told"
        )
    return (
        f"in {groups} and {checks.counted(len(found.atom_total), 'atom')}; "
        f"{checks.counted(int(found.suppressed.sum()), 'group')} and "
        f"{checks.counted(found.suppressed_atoms, 'atom')} are suppressed "
        f"(min_count is {found.min_count})"
    )


def show_predictor(predictor: Predictor, data: bytes, as_json: bool) -> None:
    """Print what a predictor discloses, who took part, and what it promises.

    data: The bytes of its file.
    """
    values = _predictor_values(predictor, data)
    if as_json:
        console.show_json(values)
        return
    console.lines(
        f"{values['bytes']:,} bytes: score {values['score']}, alpha {values['alpha']:g}, "
        f"rule {values['rule']}, "
        + ("by group" if predictor.by == "group" else checks.counted(values["atoms"], "atom"))
    )
    told = predictor.disclosure
    console.lines(
        "it tells what prediction needs, and no more:"
        if told.minimal
        else "it tells more than prediction needs (calibrate without --with-coreset leaves that "
        "out):"
    )
    for line in str(told).splitlines():
        console.lines(f"  {line}")
    if clients := predictor.recorded("clients"):
        _show_clients(clients)
    if promised := predictor.recorded("guarantee"):
        show_guarantees(promised)


def _predictor_values(predictor: Predictor, data: bytes) -> dict[str, Any]:
    """A predictor for programs."""
    from gcfcp import scores

    table = predictor.threshold_table
    return {
        "kind": "predictor",
        "bytes": len(data),
        "sha256": predictor.fingerprint,
        "score": scores.describe(predictor.score)[0],
        "alpha": float(table.alpha),
        "rule": table.rule,
        "groups": list(predictor.groups.names),
        "atoms": len(table.membership),
        "coreset_centroids": 0 if table.coreset is None else len(table.coreset.values),
        "tells": asdict(predictor.disclosure) | {"minimal": predictor.disclosure.minimal},
        "provenance": predictor.provenance,
    }


def _show_clients(recorded: Sequence[dict[str, Any]]) -> None:
    """The clients of a predictor as a table; what no file tells has no column."""
    detailed = any("bytes" in c or "suppressed" in c for c in recorded)
    console.table(
        ["client", "records", "weight"] + ["suppressed", "bytes sent"] * detailed,
        [
            [
                str(c.get("client", "-")),
                _number(c.get("n"), ",.0f"),
                _number(c.get("share"), ".4f"),
            ]
            + [_withheld(c), _number(c.get("bytes"), ",.0f")] * detailed
            for c in recorded
        ],
    )


def _withheld(client: dict[str, Any]) -> str:
    """How many records, or by group how many groups, a client did not describe."""
    groups = codec.number(client.get("hidden_groups"))
    return f"{groups:,.0f} groups" if groups else _number(client.get("suppressed"), ",.0f")


def _number(number: Any, form: str) -> str:
    """A number of a predictor's provenance, and a dash for anything that is not a number.

    A predictor may come from anyone, so what its provenance holds can be anything.
    """
    known = codec.number(number)
    return format(known, form) if known is not None and abs(known) < 2**64 else "-"


def show_plan(found: Plan) -> None:
    """Print a plan: the groups as a table, the atoms without a finite threshold, and advice."""
    console.table(
        [
            "group",
            "threshold",
            "records",
            "weight",
            "charge",
            "missing",
            "least alpha",
            "most from",
        ],
        [
            [
                g.group,
                _finite(g),
                f"{g.records:,}",
                f"{g.weight:.4f}",
                f"{g.charge:.3g}" if math.isfinite(g.charge) else "",
                f"{g.missing:,}" if g.missing else "",
                f"{g.least_alpha:.3g}",
                "" if g.largest_client is None else f"{g.largest_client} {g.largest_share:.1%}",
            ]
            for g in found.attention_first
        ],
        left=2,
        title=f"alpha {found.alpha:g}, {clients(len(found.clients))}",
    )
    console.lines(f"{found.correction}")
    infinite = [a for a in found.atoms if a.reason is not None]
    console.lines(
        f"{len(found.atoms) - len(infinite)} of {len(found.atoms)} {found.by}s will have a finite "
        "threshold"
    )
    for atom in infinite:
        console.lines(f"  {' & '.join(atom.groups)}: {atom.reason}")
    for note in found.notes:
        console.lines(f"* {note}")
    for screened in found.screening:
        if screened.flagged:
            console.lines(f"! {screened}")
    for advice in found.advice:
        console.lines(f"-> {advice}")


def _finite(group: GroupPlan) -> console.Cell:
    """Whether the threshold of a group will be finite."""
    if group.nobody:
        return "no records", "bold red"
    return ("finite", "green") if group.finite else ("infinite", "bold red")


def show_calibration(result: Calibration) -> None:
    """Print to standard error what a calibration promises, and how many thresholds are finite."""
    from gcfcp.calibration import EVERYTHING_GIVEN

    show_guarantees([asdict(g) for g in result.guarantee], error=True)
    for g in result.guarantee:
        if g.certified_status == EVERYTHING_GIVEN:
            why = "" if g.records else "no site has described a record of it, so that "
            console.note(
                f"warning: group {g.group!r}: {why}no finite threshold would keep the promise; its "
                "sets will hold everything (gcfcp plan says more)"
            )
    console.note(f"promised {result.guarantee[0].promise}")
    console.note(result.state)


def show_guarantees(guarantees: Sequence[dict[str, Any]], error: bool = False) -> None:
    """Print what is promised for each group, and how well the promise is founded."""
    counted = any("records" in g for g in guarantees)
    console.table(
        ["group", "promised coverage"] + ["records", "effective"] * counted,
        [
            [
                str(g.get("group", "-")),
                f"{_number(g.get('certified'), '.4f')} ({g.get('certified_status', 'unknown')})",
            ]
            + [_number(g.get("records"), ",.0f"), _number(g.get("effective_n"), ",.0f")] * counted
            for g in guarantees
        ],
        left=2,
        error=error,
    )
    if any(g.get("certified_status") == "measured" for g in guarantees):
        (console.note if error else console.lines)(
            "measured: not proved where groups overlap and summaries are compressed, but it held "
            "in every measurement; with upper representatives and calibrate --rule max it is proved"
            " (summarize --by group --shape then keeps the sets small)"
        )


def show_report(found: AuditReport, sites: bool = False) -> None:
    """Print the merged audits of all clients as a table, and what its words mean.

    sites: Whether the coverage at each site is printed too.
    """
    from gcfcp.audit import span

    colours = {"kept": "green", "broken": "bold red"}
    promised = "" if found.alpha is None else f", promised {1 - found.alpha:g}"
    said = any(g.full or g.empty for g in found.groups)
    console.table(
        ["group", "verdict", "coverage", "interval", "covered", "records", "mean size"]
        + ["full sets", "empty sets"] * said,
        [
            [
                g.group,
                (g.verdict, colours.get(g.verdict, "yellow")),
                g.found,
                f"[{g.low:.4f}, {g.high:.4f}]",
                span(g.covered, g.covered_at_most),
                span(g.total, g.total_at_most),
                "" if g.mean_size is None else f"{g.mean_size:.3g}",
                *[_share(g.full), _share(g.empty)][: 2 * said],
            ]
            for g in found.groups
        ],
        left=2,
        title=f"{found.confidence:.0%} confidence for all groups together{promised}",
    )
    console.lines(f"mixture of the clients: {found.mixture_text}")
    for g in found.groups:
        _explain_group(g)
    if any(g.lowest != g.highest for g in found.groups):
        console.lines(
            "between a and b: sites with a min_count do not tell small numbers, so that the share "
            "of covered records is only known to lie there; the interval allows for all of it"
        )
    if found.round is not None:
        console.lines(f"round: {found.round}")
    if found.margin is not None:
        console.lines(
            f"kept: the coverage is not below {1 - (found.alpha or 0):g} by more than "
            f"{found.margin:g}; intervals: {found.interval}, {found.adjustment}"
        )
    if sites:
        _show_sites(found)


def _share(part: float | None) -> str:
    """A share of the records in percent; nothing if it was not counted."""
    return "" if part is None else f"{part:.1%}"


def _explain_group(g: GroupAudit) -> None:
    """Print what else there is to say about one group."""
    from gcfcp.audit import GIVEN_EVERYTHING

    if g.suppressed:
        console.lines(
            f"{g.group}: it is suppressed at {', '.join(g.suppressed_at)}, and the interval allows "
            "for the records there"
        )
    elif not g.total_at_most:
        console.lines(f"{g.group}: there are no records of this group")
    if g.verdict == GIVEN_EVERYTHING:
        how_many = "all" if g.full is None else f"{g.full:.1%}"
        infinite = (
            "" if g.infinite is None else f", and {g.infinite:.1%} have an infinite threshold"
        )
        console.lines(
            f"{g.group}: {how_many} of its sets hold everything{infinite}; such a set is never "
            "wrong and says nothing (gcfcp plan says what would help)"
        )


def _show_sites(found: AuditReport) -> None:
    """Print the coverage of each group at each site."""
    from gcfcp.audit import MOST_SITES, span

    if not found.sites:
        console.lines(f"coverage is not told site by site for more than {MOST_SITES} sites")
        return
    below = 0.0 if found.alpha is None else 1 - found.alpha
    console.table(
        ["site", "group", "coverage", "interval", "records"],
        [
            [
                site.client,
                g.group,
                "" if g.coverage is None else f"{g.coverage:.4f}",
                (f"[{g.low:.4f}, {g.high:.4f}]", "yellow" if g.high < below else ""),
                span(g.total, g.total_at_most),
            ]
            for site in found.sites
            for g in site.groups
        ],
        left=2,
        title=f"Site by site: {found.confidence:.0%} confidence for all sites and groups together",
    )
    console.lines(_promised_to_sites(found))


def _promised_to_sites(found: AuditReport) -> str:
    """What is promised to a single site, and what is not."""
    if found.site_groups:
        return (
            f"promised is the coverage of each group, and among them of {len(found.site_groups)} "
            "sites as a whole; to a group within one site nothing is promised"
        )
    return (
        "promised is the coverage of each group over all sites together; to a single site nothing "
        "is promised, unless the groups file lists the sites (sites = [...])"
    )
