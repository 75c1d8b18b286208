"""The commands that run where summaries meet: plan, merge, calibrate, audit-merge, report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gcfcp.cli import console, inputs, printing
from gcfcp.cli.options import (
    Alpha,
    Force,
    Json,
    KnownKeys,
    Merge,
    MergeWay,
    MixtureText,
    Output,
    PredictorFile,
    Rule,
    RuleName,
    Summaries,
    app,
    typed,
)
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from gcfcp.audit import AuditReport


@app.command(epilog="Example: gcfcp plan site-*.gcfcp --alpha 0.1")
def plan(
    summaries: Summaries,
    alpha: Alpha = 0.1,
    mixture: MixtureText = "uniform",
    merge: MergeWay = Merge.POOL,
    rule: RuleName = Rule.SIMULTANEOUS,
    known_keys: KnownKeys = None,
    as_json: Json = False,
) -> None:
    """Say what will be finite, and what is missing where it will not."""
    import gcfcp

    found = gcfcp.plan(
        inputs.load_summaries(summaries, known_keys),
        alpha,
        inputs.mixture_of(mixture),
        merge.value,
        rule=rule.value,
    )
    if as_json:
        console.show_json(asdict(found) | {"finite": found.finite})
        return
    console.table(
        ["group", "threshold", "records", "weight", "missing", "least alpha"],
        [
            [
                g.group,
                ("finite", "green") if g.finite else ("infinite", "bold red"),
                f"{g.records:,}",
                f"{g.weight:.4f}",
                f"{g.missing:,}" if g.missing else "",
                f"{g.least_alpha:.3g}",
            ]
            for g in found.groups
        ],
        left=2,
        title=f"alpha {found.alpha:g}, {printing.clients(len(found.clients))}, "
        f"test weight {found.test_weight:.4g}",
    )
    infinite = [a for a in found.atoms if a.reason is not None]
    console.lines(f"{len(found.atoms) - len(infinite)} of {len(found.atoms)} atoms will be finite")
    for atom in infinite:
        console.lines(f"  {' & '.join(atom.groups)}: {atom.reason}")
    for screened in found.screening:
        if screened.flagged:
            console.lines(f"! {screened}")
    for advice in found.advice:
        console.lines(f"-> {advice}")


@app.command(
    epilog="Example: gcfcp merge site-a.gcfcp site-b.gcfcp --client region-north -o north.gcfcp"
)
def merge(
    summaries: Summaries,
    client: Annotated[str, typer.Option(help="Name of the aggregate.")],
    output: Output,
    delta: Annotated[
        float | None, typer.Option(help="Fineness of the result; the members' largest.")
    ] = None,
    known_keys: KnownKeys = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make one summary of several, for an aggregator between sites and server."""
    import gcfcp

    inputs.check_output(output, force, as_json)
    merged = gcfcp.merge(inputs.load_summaries(summaries, known_keys), client, delta)
    inputs.write(output, merged.to_bytes(), force)
    if as_json:
        members = [{"client": name, "n": n} for name, n in merged.members]
        console.show_json({"file": output, "members": members, **asdict(merged.disclosure)})
        return
    told = printing.clients(len(merged.members))
    for line in f"{told}; {merged.disclosure}".splitlines():
        console.note(line)


@app.command(epilog="Example: gcfcp calibrate site-*.gcfcp --alpha 0.1 -o predictor.json")
def calibrate(
    summaries: Summaries,
    output: Output,
    alpha: Alpha = 0.1,
    mixture: MixtureText = "uniform",
    merge: MergeWay = Merge.POOL,
    rule: RuleName = Rule.SIMULTANEOUS,
    delta: Annotated[
        float | None, typer.Option(help="Fineness of --merge recompress; the sites' largest.")
    ] = None,
    coreset: Annotated[
        bool,
        typer.Option(
            help="Keep the pooled centroids, which combinations of groups that were "
            "never seen need."
        ),
    ] = True,
    known_keys: KnownKeys = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn the sites' summaries into one predictor."""
    import gcfcp
    from gcfcp import scores

    inputs.check_output(output, force, as_json)
    loaded = inputs.load_summaries(summaries, known_keys)
    result = gcfcp.calibrate(
        loaded, alpha, inputs.mixture_of(mixture), merge.value, rule=rule.value, delta=delta
    )
    first = loaded[0]
    try:
        score: Any = scores.from_name(first.score, first.parameters)
    except GCFCPError:
        score = first.score
    predictor = gcfcp.Predictor(score, result)
    text = predictor.to_json(coreset=coreset)
    inputs.write(output, text.encode(), force)
    if as_json:
        console.show_json(
            {
                "file": output,
                "alpha": result.alpha,
                "clients": result.shares,
                "guarantee": [asdict(g) for g in result.guarantee],
                "table": [asdict(r) for r in result.atoms],
            }
        )
        return
    printing.show_guarantees([asdict(g) for g in result.guarantee], error=True)
    finite = sum(r.reason is None for r in result.atoms)
    console.note(
        f"{len(result.atoms)} atoms, {finite} with a finite threshold; "
        f"{printing.clients(len(result.shares))}, alpha {result.alpha:g}"
    )


@app.command(
    "audit-merge", epilog="Example: gcfcp audit-merge a.audit b.audit c.audit --mixture uniform"
)
def audit_merge(
    audits: Annotated[list[str], typer.Argument(metavar="AUDIT...", help="Files of gcfcp audit.")],
    mixture: MixtureText = "uniform",
    alpha: Annotated[
        float | None, typer.Option(help="What was promised, if the audits do not say.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of all groups' intervals together.")] = 0.95,
    margin: Annotated[
        float | None,
        typer.Option(help="Shortfall that still counts as kept; alpha / 2 unless inputs."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="JSON file to write as well.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say for every group whether the promise was kept."""
    import json

    import gcfcp

    if output is not None:
        inputs.check_output(output, force)
    report = gcfcp.merge_audits(
        inputs.load_audits(audits), inputs.mixture_of(mixture), alpha, confidence, margin=margin
    )
    if output is not None:
        text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False) + "\n"
        inputs.write(output, text.encode(), force)
    if as_json:
        if output != "-":
            console.show_json(report.to_dict())
    elif output != "-":
        printing.show_report(report)


@app.command(
    epilog="Example: gcfcp report predictor.json a.audit b.audit "
    "--baseline FedCP=fedcp-a.audit --baseline FedCP=fedcp-b.audit -o report.html"
)
def report(
    predictor: PredictorFile,
    output: Output,
    audits: Annotated[
        list[str] | None, typer.Argument(metavar="[AUDIT]...", help="Files of gcfcp audit.")
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=AUDIT",
            help="An audit of another method, or a pattern of several such as 'CP=*-cp.audit'; "
            "may be repeated.",
        ),
    ] = None,
    summary: Annotated[
        list[str] | None, typer.Option(help="A site's summary, to add the plan; repeated.")
    ] = None,
    mixture: Annotated[
        str | None, typer.Option(help="As for calibrate; by default that of the predictor.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of all groups' intervals together.")] = 0.95,
    force: Force = False,
) -> None:
    """Write one self-contained HTML page: what was promised, and what was found."""
    import gcfcp
    from gcfcp.report import render

    inputs.check_output(output, force)
    loaded = inputs.load_predictor(predictor)
    alpha = float(loaded.threshold_table.alpha)

    def merged(files: Sequence[str]) -> AuditReport:
        found = inputs.load_audits(files)
        weights = (
            inputs.own_mixture(loaded, found) if mixture is None else inputs.mixture_of(mixture)
        )
        return gcfcp.merge_audits(found, weights, alpha, confidence)

    page = render(
        loaded,
        merged(audits) if audits else None,
        {name: merged(files) for name, files in inputs.baselines(baseline or []).items()} or None,
        gcfcp.plan(
            inputs.load_summaries(summary), alpha, loaded.provenance.get("mixture", "uniform")
        )
        if summary
        else None,
        shlex.join(["gcfcp", *typed.get()]),
    )
    inputs.write(output, page.encode(), force)
    if output != "-":
        console.note(f"open {output} in a browser")
