"""The commands that run where the summaries and the audits of all sites come together."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gcfcp.checks import counted, doubt_about_alpha
from gcfcp.cli import console, inputs, printing
from gcfcp.cli.options import (
    AggregateNames,
    Alpha,
    AuditKeys,
    AuditMixtureText,
    Confidence,
    Correction,
    CorrectionName,
    Force,
    Json,
    KnownKeys,
    MaxAtoms,
    Merge,
    MergeWay,
    MixtureText,
    Output,
    PredictorConfidence,
    PredictorFile,
    RoundName,
    RuleName,
    ShapeFile,
    SkipBad,
    Summaries,
    app,
    typed,
)
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from gcfcp.audit import Audit, AuditReport
    from gcfcp.calibration import Exploration, Mixture, Plan
    from gcfcp.prediction import Predictor
    from gcfcp.summary import ClientSummary


@app.command(epilog="Example: gcfcp plan site-*.gcfcp --alpha 0.1")
def plan(
    summaries: Summaries,
    alpha: Alpha = 0.1,
    mixture: MixtureText = "proportional",
    merge: MergeWay = Merge.POOL,
    rule: RuleName = None,
    correction: CorrectionName = Correction.SHARP,
    shape: ShapeFile = None,
    confidence: PredictorConfidence = None,
    known_keys: KnownKeys = None,
    aggregate: AggregateNames = None,
    round: RoundName = None,
    max_atoms: MaxAtoms = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="For counts on a grid without noise: say what noise of this epsilon would cost."
        ),
    ] = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Say which thresholds will be finite.

    Where a threshold would be infinite, it says how many records are missing and what would help.
    It also says which site has the largest share of each group, and which sites are unlike others.
    """
    import gcfcp

    warn_of_alpha(alpha)
    loaded = inputs.load_summaries(summaries, known_keys, aggregate, round, skip_bad)
    found = gcfcp.plan(
        loaded.summaries,
        alpha,
        loaded.mixture(mixture),
        merge.value,
        rule=rule and rule.value,
        correction=correction.value,
        shape=shape,
        confidence=confidence,
        aggregates=loaded.aggregates,
        max_atoms=_most_atoms(max_atoms),
        epsilon=epsilon,
    )
    if as_json:
        more = {"left_out": list(loaded.left_out)} if skip_bad else {}
        console.show_json(asdict(found) | {"finite": found.finite} | more)
    else:
        printing.show_plan(found)
    loaded.end()


@app.command(
    epilog="Example: gcfcp merge site-a.gcfcp site-b.gcfcp --client region-north -o north.gcfcp"
)
def merge(
    summaries: Summaries,
    client: Annotated[
        str, typer.Option(help="The name of the new summary, such as that of a region.")
    ],
    output: Output,
    delta: Annotated[
        float | None,
        typer.Option(help="How fine the result is; by default the largest delta of its parts."),
    ] = None,
    known_keys: KnownKeys = None,
    aggregate: AggregateNames = None,
    round: RoundName = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make one summary out of several.

    This is for an aggregator between the sites and the server, such as a region.
    """
    import gcfcp

    inputs.check_output(output, force, as_json)
    loaded = inputs.load_summaries(summaries, known_keys, aggregate, round, skip_bad)
    merged = gcfcp.merge(loaded.summaries, client, delta, aggregates=loaded.aggregates)
    inputs.write(output, merged.to_bytes(), force)
    _show_aggregate(merged, output, as_json)
    loaded.end()


def _show_aggregate(made: ClientSummary, output: str, as_json: bool) -> None:
    """Print what the summary of several clients discloses."""
    if as_json:
        members = [{"client": name, "n": n} for name, n in made.members]
        console.show_json({"file": output, "members": members, **asdict(made.disclosure)})
        return
    told = printing.clients(len(made.members))
    for line in f"{told}; {made.disclosure}".splitlines():
        console.note(line)


@app.command(epilog="Example: gcfcp add site-a.gcfcp site-b.gcfcp -o sum.gcfcp")
def add(
    summaries: Summaries,
    output: Output,
    client: Annotated[
        str | None, typer.Option(help="The name of the sum; by default 'sum of 3 clients'.")
    ] = None,
    known_keys: KnownKeys = None,
    aggregate: AggregateNames = None,
    round: RoundName = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Add up the counts of several sites on one public grid.

    Nothing is lost: the sum calibrates as its parts do, under the mixture proportional.
    """
    import gcfcp

    inputs.check_output(output, force, as_json)
    loaded = inputs.load_summaries(summaries, known_keys, aggregate, round, skip_bad)
    total = gcfcp.add(loaded.summaries, client, aggregates=loaded.aggregates)
    inputs.write(output, total.to_bytes(), force)
    _show_aggregate(total, output, as_json)
    loaded.end()


@app.command(epilog="Example: gcfcp grid near:predictor.json -o grid.json")
def grid(
    text: Annotated[
        str,
        typer.Argument(
            metavar="GRID",
            help="uniform:LOW,HIGH,CELLS, logarithmic:RELATIVE, logarithmic:RELATIVE,LOW,HIGH, "
            "edges:E1,E2,.., or near:PREDICTOR for cells that are narrow around the thresholds of "
            "an earlier predictor, made of other records.",
        ),
    ],
    output: Output,
    cells: Annotated[int, typer.Option(help="With near, how many cells there are at most.")] = 64,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a grid: public score values on which every site counts its records."""
    from gcfcp.grid import Grid
    from gcfcp.prediction import Predictor

    inputs.check_output(output, force, as_json)
    near = text.removeprefix("near:")
    made = Grid.parse(text) if near == text else Grid.near(Predictor.load(near), cells)
    inputs.write(output, made.to_json().encode(), force)
    if as_json:
        values = {"file": output, "fingerprint": made.fingerprint, "cells": len(made)}
        console.show_json(values | {"grid": made.values})
    else:
        console.note(f"{output} has the grid {made.fingerprint[:8]}..: {made}")


@app.command(epilog="Example: gcfcp shape site-*.gcfcp --alpha 0.1 -o shape.json")
def shape(
    summaries: Summaries,
    output: Output,
    alpha: Alpha = 0.1,
    mixture: MixtureText = "proportional",
    known_keys: KnownKeys = None,
    aggregate: AggregateNames = None,
    round: RoundName = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a shape out of summaries by atom.

    A shape is one number for each group. The sites subtract it from the scores of other records
    (gcfcp summarize --by group --shape), so that the promise is proved and the sets stay small. The
    predictor that gcfcp calibrate writes carries a shape too and can be given in its place.
    """
    import gcfcp

    inputs.check_output(output, force, as_json)
    warn_of_alpha(alpha)
    loaded = inputs.load_summaries(summaries, known_keys, aggregate, round, skip_bad)
    made = gcfcp.fit_shape(
        loaded.summaries, alpha, loaded.mixture(mixture), aggregates=loaded.aggregates
    )
    inputs.write(output, made.to_json().encode(), force)
    if as_json:
        console.show_json({"file": output, **printing.shape_values(made)})
    else:
        for name, coefficient in zip(made.groups.names, made.coefficients, strict=True):
            console.note(f"  {name}: {coefficient:+.6g}")
        count = printing.clients(len(loaded.summaries))
        console.note(f"made from {count}; it can be used with other records of theirs")
    loaded.end()


@app.command(epilog="Example: gcfcp calibrate site-*.gcfcp --alpha 0.1 -o predictor.json")
def calibrate(
    summaries: Summaries,
    output: Output,
    alpha: Alpha = 0.1,
    mixture: MixtureText = "proportional",
    merge: MergeWay = Merge.POOL,
    rule: RuleName = None,
    correction: CorrectionName = Correction.SHARP,
    shape: ShapeFile = None,
    confidence: PredictorConfidence = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="How fine --merge recompress is; by default the largest delta of the sites."
        ),
    ] = None,
    coreset: Annotated[
        bool,
        typer.Option(
            "--with-coreset/--no-coreset",
            help="Whether the predictor carries the pooled values of the sites, with counts by "
            "combination of groups. Without them it has the thresholds of all combinations that "
            "can occur, or of those that were seen if these are too many.",
        ),
    ] = False,
    known_keys: KnownKeys = None,
    aggregate: AggregateNames = None,
    round: RoundName = None,
    max_share: Annotated[
        float | None,
        typer.Option(
            help="The largest share of the weight of a group that one site may have, such as 0.5. "
            "If a site has more, nothing is written and the site is named."
        ),
    ] = None,
    allow_share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A site that may have more than --max-share; the option may be repeated.",
        ),
    ] = None,
    max_atoms: MaxAtoms = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn the sites' summaries into one predictor."""
    import gcfcp

    inputs.check_output(output, force, as_json)
    if not as_json:
        console.check_tables()
    warn_of_alpha(alpha)
    loaded = inputs.load_summaries(summaries, known_keys, aggregate, round, skip_bad)
    result = gcfcp.calibrate(
        loaded.summaries,
        alpha,
        loaded.mixture(mixture),
        merge.value,
        rule=rule and rule.value,
        correction=correction.value,
        delta=delta,
        shape=shape,
        confidence=confidence,
        aggregates=loaded.aggregates,
        round=round,
        max_share=max_share,
        allow_share=allow_share or (),
        max_atoms=_most_atoms(max_atoms),
    )
    predictor = gcfcp.Predictor(loaded.summaries[0].score, result)
    if loaded.left_out:
        predictor.provenance["left_out"] = [os.path.basename(path) for path in loaded.left_out]
    text = predictor.to_json(coreset=coreset)
    inputs.write(output, text.encode(), force)
    if '\n "covers": "seen"' in text:
        console.note(
            f"the predictor has the thresholds of the {len(result.atoms):,} combinations of groups "
            "that were seen, and a row of another one is an error; --with-coreset can solve it, "
            "and passes the sites' values on"
        )
    if as_json:
        console.show_json(
            {
                "file": output,
                "alpha": result.alpha,
                "clients": result.shares,
                "correction": asdict(result.correction),
                "guarantee": [asdict(g) for g in result.guarantee],
                "table": [asdict(r) for r in result.atoms],
                "largest_shares": [asdict(s) for s in result.largest_shares],
            }
        )
    else:
        printing.show_calibration(result)
    loaded.end()


@app.command(
    "audit-merge", epilog="Example: gcfcp audit-merge a.audit b.audit c.audit --confidence 0.99"
)
def audit_merge(
    audits: Annotated[
        list[str], typer.Argument(metavar="AUDIT...", help="The audits that gcfcp audit wrote.")
    ],
    mixture: AuditMixtureText = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="The share of outcomes that may be missed, if the audits do not say it."),
    ] = None,
    confidence: Confidence = 0.95,
    margin: Annotated[
        float | None,
        typer.Option(
            help="How far below the promise a coverage may lie and still count as kept; by default "
            "alpha / 2."
        ),
    ] = None,
    round_: Annotated[
        str | None,
        typer.Option("--round", metavar="TEXT", help="The round that all audits must belong to."),
    ] = None,
    sites: Annotated[
        bool,
        typer.Option("--sites", help="Also print the coverage of each group at each single site."),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="A JSON file to write the result to."),
    ] = None,
    known_keys: AuditKeys = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say for every group whether the promise was kept.

    The result names the mixture that it is about, and says where the promise was kept only by sets
    that hold everything.
    """
    import json

    import gcfcp

    if output is not None:
        inputs.check_output(output, force)
    if not as_json and output != "-":
        console.check_tables()
    report = gcfcp.merge_audits(
        inputs.load_audits(audits, known_keys),
        _mixture(mixture),
        alpha,
        confidence,
        margin=margin,
        round=round_,
    )
    if output is not None:
        text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False) + "\n"
        inputs.write(output, text.encode(), force)
    if as_json:
        if output != "-":
            console.show_json(report.to_dict())
    elif output != "-":
        printing.show_report(report, sites)


@app.command(
    epilog="Example: gcfcp report predictor.json a.audit b.audit "
    "--baseline FedCP=fedcp-a.audit --baseline FedCP=fedcp-b.audit -o report.html"
)
def report(
    predictor: PredictorFile,
    output: Output,
    audits: Annotated[
        list[str] | None,
        typer.Argument(metavar="[AUDIT]...", help="The audits that gcfcp audit wrote."),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=AUDIT",
            help="An audit of another method, or a pattern for several files such as "
            "'CP=*-cp.audit'; the option may be repeated.",
        ),
    ] = None,
    summary: Annotated[
        list[str] | None,
        typer.Option(
            help="A site's summary, so that the page says how many records are missing; the "
            "option may be repeated."
        ),
    ] = None,
    explore: Annotated[
        bool,
        typer.Option(
            "--explore",
            help="Add a section with sliders that shows what another alpha or mixture would cost. "
            "It needs every --summary that the predictor was made of, and tells each site's own "
            "thresholds.",
        ),
    ] = False,
    title: Annotated[str, typer.Option(help="The title of the page.")] = "Coverage report",
    model: Annotated[
        str | None, typer.Option(help="The name of the model, for the top of the page.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Who answers for it, for the top of the page.")
    ] = None,
    period: Annotated[
        str | None,
        typer.Option(
            help="The time that the page is about, such as '2026, fourth quarter'; by default the "
            "round of the audits."
        ),
    ] = None,
    mixture: AuditMixtureText = None,
    confidence: Confidence = 0.95,
    known_keys: AuditKeys = None,
    aggregate: AggregateNames = None,
    force: Force = False,
) -> None:
    """Write a report as one HTML page.

    It says what was promised and, if there are audits, whether that was kept, where it was not, and
    what was left out. The page needs no other file and no network.
    """
    import gcfcp
    from gcfcp.report import render

    inputs.check_output(output, force)
    if explore and not summary:
        raise GCFCPError(
            "--explore needs the summaries that the predictor was made of: give each of them with "
            "--summary"
        )
    loaded = inputs.load_predictor(predictor)
    alpha, weights = float(loaded.threshold_table.alpha), _mixture(mixture)
    found = None
    if audits:
        found = gcfcp.merge_audits(
            inputs.load_audits(audits, known_keys), weights, alpha, confidence
        )
    others = {}
    for name, files in inputs.baselines(baseline or []).items():
        other = inputs.load_audits(files, known_keys)
        beside = _beside(found, name, other) if weights is None and found else weights
        others[name] = gcfcp.merge_audits(other, beside, alpha, confidence)
    given = inputs.load_summaries(summary, known_keys, aggregate) if summary else None
    page = render(
        loaded,
        found,
        others or None,
        _plan_for(loaded, given) if given else None,
        shlex.join(["gcfcp", *typed.get()]),
        title=title,
        model=model,
        owner=owner,
        period=period,
        explored=_explored_from(loaded, given) if explore and given else None,
    )
    inputs.write(output, page.encode(), force)
    if output != "-":
        console.note(f"open {output} in a browser")


@app.command(epilog="Example: gcfcp verify *.gcfcp *.audit --known-keys keys.toml")
def verify(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Summaries and audits, in any order.")
    ],
    known_keys: Annotated[
        str, typer.Option(help="A file of clients and their public keys (TOML).")
    ],
    as_json: Json = False,
) -> None:
    """Say who signed these files.

    It is an error if one of them is not signed with a known key of its client. The signature of a
    file stands beside it, in a file of the same name with .sig at the end.
    """
    found = [
        {
            "file": name,
            "kind": kind,
            "client": one.client,
            "n": one.n,
            "round": getattr(one, "round", None),
            "date": getattr(one, "date", None),
        }
        for name, kind, one in inputs.verify(files, known_keys)
    ]
    if as_json:
        console.show_json(found)
        return
    for one in found:
        when = "".join(f", {what} {one[what]}" for what in ("round", "date") if one[what])
        what = f"{one['kind']} of {counted(one['n'], 'record')}{when}"
        console.lines(f"{one['file']}: {what}, signed by {one['client']}")


def warn_of_alpha(alpha: float) -> None:
    """Say so if alpha looks like the coverage that somebody wants."""
    if doubt := doubt_about_alpha(alpha):
        console.note(f"warning: {doubt}")


def _most_atoms(given: int | None) -> int:
    """The limit that the user gave, or that of the library."""
    from gcfcp.calibration import MAX_ATOMS

    return MAX_ATOMS if given is None else given


def _mixture(text: str | None) -> Mixture | None:
    """The mixture of an audit as the user wrote it; None stands for the predictor's own."""
    return None if text is None else inputs.mixture_of(text)


def _beside(found: AuditReport, name: str, audits: Sequence[Audit]) -> Mixture:
    """The mixture of the predictor's audit, under which the audits of a baseline are merged.

    Methods can only be compared under one mixture. If the baseline was audited at other clients,
    there is none.
    """
    if odd := sorted(set(found.shares) ^ {a.client for a in audits}):
        raise GCFCPError(
            f"only one of the predictor and baseline {name} was audited at {odd[0]!r}: audit both "
            "at the same clients, or give --mixture"
        )
    return found.shares


def _plan_for(predictor: Predictor, given: inputs.Gathered) -> Plan:
    """What `plan` says of these summaries, for the promise of the predictor."""
    import gcfcp

    return gcfcp.plan(given.summaries, **_made_with(predictor, given))


def _explored_from(predictor: Predictor, given: inputs.Gathered) -> Exploration:
    """Other settings of these summaries, from that of the predictor on."""
    import gcfcp
    from gcfcp.report import check_start

    made = _made_with(predictor, given)
    # Wrong summaries are refused before all other settings are computed.
    check_start(predictor, gcfcp.explore(given.summaries, alphas=(), parts=(), **made))
    with console.progress("calibrating", "settings") as advance:
        return gcfcp.explore(given.summaries, progress=advance, **made)


def _made_with(predictor: Predictor, given: inputs.Gathered) -> dict[str, Any]:
    """The arguments of `calibrate` with which a predictor was made of these summaries."""
    from gcfcp import codec

    made = predictor.provenance
    correction = made.get("correction")
    return {
        "alpha": float(predictor.threshold_table.alpha),
        "mixture": made.get("mixture", "proportional"),
        "merge": made.get("merge", "pool"),
        "rule": predictor.threshold_table.rule,
        "shape": getattr(predictor.threshold_table.source, "shape", None),
        "confidence": codec.number(made.get("confidence")),
        # A predictor of 0.1.0 says nothing of it, and has the paper's.
        "correction": correction.get("kind", "sharp") if isinstance(correction, dict) else "paper",
        "delta": made.get("recompression_delta"),
        "aggregates": given.aggregates,
        "max_atoms": None,  # The predictor exists, so that the operator has allowed its atoms.
    }
