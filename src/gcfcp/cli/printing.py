"""What commands print: tables for people, or JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gcfcp.cli import console

if TYPE_CHECKING:
    from gcfcp.audit import Audit, AuditReport
    from gcfcp.prediction import Predictor
    from gcfcp.summary import ClientSummary


def show_summary(summary: ClientSummary, as_json: bool) -> None:
    described: list[dict[str, Any]] = [
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
    if as_json:
        console.show_json(
            {
                "kind": "summary",
                **asdict(summary.disclosure),
                "score": summary.score,
                "parameters": summary.parameters,
                "model": summary.model,
                "delta": summary.delta,
                "representative": summary.representative,
                "fingerprint": summary.groups.fingerprint,
                "groups": list(summary.groups.names),
                "predicates": summary.groups.predicates,
                "members": [{"client": k, "n": n} for k, n in summary.members],
                "described": described,
                "library": summary.library,
            }
        )
        return
    console.lines(str(summary.disclosure))
    parameters = f" {summary.parameters}" if summary.parameters else ""
    console.lines(
        f"  score {summary.score}{parameters}, model {summary.model or 'unnamed'}, "
        f"delta {summary.delta:g}, {summary.representative} representatives"
    )
    if summary.is_aggregate:
        console.lines(
            f"  stands for {clients(len(summary.members))}: "
            + ", ".join(f"{k} ({n:,})" for k, n in summary.members)
        )
    predicates = summary.groups.predicates or ("",) * len(summary.groups)
    console.lines(f"  groups {summary.groups.fingerprint[:8]}..:")
    for name, predicate in zip(summary.groups.names, predicates, strict=True):
        console.lines(f"    {name}{' = ' + predicate if predicate else ''}")
    console.table(
        ["atom", "records", "centroids"],
        [[" & ".join(d["groups"]), f"{d['records']:,}", f"{d['centroids']:,}"] for d in described],
    )


def clients(count: int) -> str:
    return f"{count:,} client{'' if count == 1 else 's'}"


def audit_values(found: Audit) -> dict[str, Any]:
    hidden = found.suppressed.tolist()

    def published(values: Any) -> list[Any]:
        return [None if h else v for v, h in zip(values.tolist(), hidden, strict=True)]

    rows = zip(
        found.groups.names,
        hidden,
        published(found.covered),
        published(found.total),
        found.bound.tolist(),
        strict=True,
    )
    return {
        "client": found.client,
        "n": found.n,
        "min_count": found.min_count,
        "alpha": found.alpha,
        "predictor": found.predictor,
        "uncovered": found.uncovered,
        "suppressed_atoms": found.suppressed_atoms,
        "groups": [
            {"group": g, "suppressed": h, "covered": c, "total": t, "at_most": b}
            for g, h, c, t, b in rows
        ],
    }


def show_audit(found: Audit, as_json: bool) -> None:
    values = audit_values(found)
    if as_json:
        console.show_json({"kind": "audit", **values, "bytes": len(found.to_bytes())})
        return
    console.lines(
        f"{found.client}: {len(found.to_bytes()):,} bytes of counts for {found.n:,} records, "
        f"min_count {found.min_count}, {len(found.atom_total)} atoms described, "
        f"{found.suppressed_atoms} suppressed"
    )
    console.table(
        ["group", "covered", "total"],
        [
            [g["group"], "", f"suppressed, at most {g['at_most']:,}"]
            if g["suppressed"]
            else [g["group"], f"{g['covered']:,}", f"{g['total']:,}"]
            for g in values["groups"]
        ],
    )


def show_predictor(predictor: Predictor, data: bytes, as_json: bool) -> None:
    from gcfcp import scores

    provenance = predictor.provenance
    table = predictor.threshold_table
    centroids = 0 if table.coreset is None else len(table.coreset.values)
    if as_json:
        console.show_json(
            {
                "kind": "predictor",
                "bytes": len(data),
                "sha256": predictor.fingerprint,
                "score": scores.describe(predictor.score)[0],
                "alpha": float(table.alpha),
                "rule": table.rule,
                "groups": list(predictor.groups.names),
                "atoms": len(table.membership),
                "coreset_centroids": centroids,
                "provenance": provenance,
            }
        )
        return
    clients = predictor.recorded("clients")
    console.lines(
        f"{len(data):,} bytes: score {scores.describe(predictor.score)[0]}, alpha "
        f"{float(table.alpha):g}, rule {table.rule}, {len(table.membership)} atoms"
    )
    console.lines(
        f"  it passes on the pooled {centroids:,} centroids of the clients (calibrate --no-coreset "
        "leaves them out)"
        if centroids
        else "  it holds thresholds only, no centroids of any client"
    )
    if clients:
        console.table(
            ["client", "records", "weight", "suppressed", "bytes sent"],
            [
                [
                    str(c.get("client", "-")),
                    _told(c.get("n"), ",.0f"),
                    _told(c.get("share"), ".4f"),
                    _told(c.get("suppressed"), ",.0f"),
                    _told(c.get("bytes"), ",.0f"),
                ]
                for c in clients
            ],
        )
    if promised := predictor.recorded("guarantee"):
        show_guarantees(promised)


def _told(number: Any, form: str) -> str:
    """A number of a predictor's provenance; a dash for what is none."""
    plain = isinstance(number, int | float) and not isinstance(number, bool)
    return format(number, form) if plain and abs(number) < 2**64 else "-"


def show_guarantees(guarantees: Sequence[dict[str, Any]], error: bool = False) -> None:
    console.table(
        ["group", "promised coverage", "records", "effective"],
        [
            [
                str(g.get("group", "-")),
                f"{_told(g.get('certified'), '.4f')} ({g.get('certified_status', 'unknown')})",
                _told(g.get("records"), ",.0f"),
                _told(g.get("effective_n"), ",.0f"),
            ]
            for g in guarantees
        ],
        left=2,
        error=error,
    )
    if any(g.get("certified_status") == "measured" for g in guarantees):
        (console.note if error else console.lines)(
            "measured: not proved where groups overlap, but held in every measurement; with "
            "calibrate --rule max it is proved"
        )


def show_report(found: AuditReport) -> None:
    """A merged audit as a table."""
    colours = {"kept": "green", "broken": "bold red"}
    promised = "" if found.alpha is None else f", promised {1 - found.alpha:g}"
    console.table(
        ["group", "verdict", "coverage", "interval", "covered", "records", "mean size"],
        [
            [
                g.group,
                (g.verdict, colours.get(g.verdict, "yellow")),
                "" if g.coverage is None else f"{g.coverage:.4f}",
                f"[{g.low:.4f}, {g.high:.4f}]",
                f"{g.covered:,}",
                f"{g.total:,}",
                "" if g.mean_size is None else f"{g.mean_size:.3g}",
            ]
            for g in found.groups
        ],
        left=2,
        title=f"{found.confidence:.0%} confidence for all groups together{promised}",
    )
    for g in found.groups:
        if g.suppressed:
            console.lines(
                f"{g.group}: suppressed at {', '.join(g.suppressed_at)}; the interval "
                "allows for the records there"
            )
        elif not g.total:
            console.lines(f"{g.group}: no records")
    if found.margin is not None:
        console.lines(
            f"kept: not below {1 - (found.alpha or 0):g} by more than {found.margin:g}; "
            f"{found.interval}, {found.adjustment}"
        )
