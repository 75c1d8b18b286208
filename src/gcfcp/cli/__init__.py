"""The command line: parse, call the library, print.

Exit codes: 0 done; 1 the input is wrong, said in one line on standard error; 2 usage. With `--json`
a result is printed for machines. "-" is standard input or output. No file is overwritten without
`--force`, and every file is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gcfcp import console
from gcfcp.cli import given, shown
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from gcfcp.coverage import AuditReport

app = typer.Typer(
    name="gcfcp",
    help="Prediction sets that keep their promise for every group, from data that stay where they "
    "are. Try: gcfcp demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_arguments: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


class ScoreName(StrEnum):
    THR = "thr"
    APS = "aps"
    RAPS = "raps"
    RESIDUAL = "residual"
    CQR = "cqr"
    COLUMN = "column"


class Missing(StrEnum):
    ERROR = "error"
    DROP = "drop"


class Representation(StrEnum):
    UPPER = "upper"
    MEAN = "mean"


class Merge(StrEnum):
    POOL = "pool"
    RECOMPRESS = "recompress"


class Rule(StrEnum):
    SIMULTANEOUS = "simultaneous"
    MAX = "max"


# --- options that several commands share --------------------------------------------------------

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="CSV or Parquet file, or - for standard input.")
]
Summaries = Annotated[
    list[str], typer.Argument(metavar="SUMMARY...", help="Files that summarize or merge wrote.")
]
KnownKeys = Annotated[
    str | None,
    typer.Option(
        help="File of clients and their public keys; what they have not signed is refused."
    ),
]
PredictorFile = Annotated[
    str, typer.Argument(metavar="PREDICTOR", help="The file that calibrate wrote.")
]
Output = Annotated[str, typer.Option("-o", "--output", help="File to write, or -.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Client = Annotated[str, typer.Option(help="Name of this site, as the others know it.")]
Alpha = Annotated[float, typer.Option(help="Share of outcomes that may be missed, in every group.")]
MixtureText = Annotated[
    str,
    typer.Option(
        "--mixture",
        help="uniform, proportional, or weights: a=0.5,b=0.5 or a JSON file or text of them.",
    ),
]
MinCount = Annotated[
    int, typer.Option(help="Nothing that stands for fewer records than this leaves the site.")
]
MissingRows = Annotated[
    Missing, typer.Option("--missing", help="What to do with rows that have no score.")
]
Seed = Annotated[
    int | None,
    typer.Option(help="Of randomised scores; drawn and told if not given.", min=0),
]
MergeWay = Annotated[
    Merge, typer.Option("--merge", help="Keep all centroids, or compress them again.")
]
RuleName = Annotated[
    Rule, typer.Option("--rule", help="simultaneous (the paper's), or max (proved, larger sets).")
]


def _version(value: bool) -> None:
    if value:
        from gcfcp import __version__

        print(f"gcfcp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# --- at a site ---------------------------------------------------------------------------------


@app.command(
    epilog="Example: gcfcp summarize records.csv --groups groups.toml --client hospital-a "
    "-o hospital-a.gcfcp"
)
def summarize(
    data: Data,
    groups: Annotated[str, typer.Option(help="The groups file (TOML), the same at every site.")],
    client: Client,
    output: Output,
    score: Annotated[
        ScoreName | None,
        typer.Option(
            metavar="SCORE",
            help="From y with prediction (residual), lo and hi (cqr), proba_LABEL "
            "(thr, aps, raps), or a ready column score; by default what the columns say.",
        ),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="Fineness: about delta / 2 centroids an atom.")
    ] = 250,
    representative: Annotated[
        Representation, typer.Option(help="upper loses no coverage; mean is the paper's.")
    ] = Representation.UPPER,
    min_count: MinCount = 1,
    model: Annotated[
        str | None, typer.Option(help="Fingerprint of the model, the same at every site.")
    ] = None,
    missing: MissingRows = Missing.ERROR,
    seed: Seed = None,
    randomize: Annotated[
        bool, typer.Option(help="Randomised aps and raps; all sites must choose alike.")
    ] = True,
    lam: Annotated[float, typer.Option(help="Penalty of raps.")] = 0.01,
    k_reg: Annotated[int, typer.Option(help="Rank from which raps has a penalty.")] = 5,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make this site's summary: scores in, a few hundred numbers out.

    Only the file that is written needs to leave the site; gcfcp inspect says what it tells.
    """
    from gcfcp import tabular
    from gcfcp.groups import Groups

    given.check_output(output, force, as_json)
    family = Groups.from_toml(groups)
    parameters: dict[str, Any] = {}
    if score in (ScoreName.APS, ScoreName.RAPS):
        parameters["randomized"] = randomize
    if score is ScoreName.RAPS:
        parameters |= {"lam": lam, "k_reg": k_reg}
    with tabular.open_table(data) as table, console.progress(f"reading {data}") as advance:
        by = tabular.scoring(table, None if score is None else score.value, **parameters)
        summary, rows = tabular.summarize_table(
            table,
            by,
            groups=family,
            client=client,
            delta=delta,
            representative=representative.value,
            min_count=min_count,
            model=model,
            missing=missing.value,
            rng=given.generator_of(by.score, seed),
            progress=advance,
        )
    given.write(output, summary.to_bytes(), force)
    if as_json:
        console.show_json(
            {
                "file": output,
                "rows": rows.read,
                "dropped": rows.dropped,
                "score": summary.score,
                **asdict(summary.disclosure),
            }
        )
        return
    if rows.dropped:
        console.note(f"{rows.dropped:,} of {rows.read:,} rows had no score and were dropped")
    for line in f"score {summary.score}; {summary.disclosure}".splitlines():
        console.note(line)


@app.command(epilog="Example: gcfcp inspect hospital-a.gcfcp")
def inspect(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A summary, an audit or a predictor; or -.")
    ],
    as_json: Json = False,
) -> None:
    """Say what a file discloses, before it is sent."""
    from gcfcp.audit import Audit
    from gcfcp.client import ClientSummary
    from gcfcp.predictor import Predictor

    data, name = given.read(file), given.name_of(file)
    if data[:6] == b"GCFCPA":
        shown.show_audit(Audit.from_bytes(data, name), as_json)
    elif data[:5] == b"GCFCP":
        shown.show_summary(ClientSummary.from_bytes(data, name), as_json)
    elif data.lstrip()[:1] == b"{":
        shown.show_predictor(Predictor.from_json(data, name), data, as_json)
    else:
        raise GCFCPError(f"{name} is no summary, no audit and no predictor: gcfcp made none such")


@app.command(epilog="Example: gcfcp predict predictor.json new.parquet -o sets.parquet --keep id")
def predict(
    predictor: PredictorFile,
    data: Data,
    output: Output,
    keep: Annotated[
        list[str] | None, typer.Option(help="Column to copy into the output; may be repeated.")
    ] = None,
    missing: MissingRows = Missing.ERROR,
    seed: Seed = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the prediction set or interval of every row."""
    from gcfcp import tabular

    given.check_output(output, force, as_json)
    loaded = given.load_predictor(predictor)
    with tabular.open_table(data) as table, console.progress(f"reading {data}") as advance:
        rows = tabular.predict_table(
            table,
            loaded,
            output,
            keep=tuple(keep or ()),
            missing=missing.value,
            rng=given.generator_of(loaded.score, seed),
            progress=advance,
        )
    if as_json:
        console.show_json({"file": output, "rows": rows.read, "dropped": rows.dropped})
    else:
        dropped = f", {rows.dropped:,} without a prediction dropped" if rows.dropped else ""
        console.note(f"{rows.used:,} rows written to {given.name_of(output, 'output')}{dropped}")


@app.command(
    epilog="Example: gcfcp audit predictor.json labelled.csv --client hospital-a -o a.audit"
)
def audit(
    predictor: PredictorFile,
    data: Data,
    client: Client,
    output: Output,
    min_count: MinCount = 1,
    missing: MissingRows = Missing.ERROR,
    seed: Seed = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Count who was covered on labelled data, by group: counts only."""
    from gcfcp import tabular
    from gcfcp.predictor import Predictor

    given.check_output(output, force, as_json)
    raw = given.read(predictor)
    loaded = Predictor.from_json(raw, given.name_of(predictor))
    with tabular.open_table(data) as table, console.progress(f"reading {data}") as advance:
        found, rows = tabular.audit_table(
            table,
            loaded,
            client=client,
            min_count=min_count,
            missing=missing.value,
            rng=given.generator_of(loaded.score, seed),
            predictor_id=hashlib.sha256(raw).hexdigest(),
            progress=advance,
        )
    given.write(output, found.to_bytes(), force)
    if as_json:
        console.show_json(
            {
                "file": output,
                "rows": rows.read,
                "dropped": rows.dropped,
                **shown.audit_values(found),
            }
        )
        return
    if rows.dropped:
        console.note(f"{rows.dropped:,} of {rows.read:,} rows had no score and were dropped")
    console.note(
        f"{client}: {found.n:,} records counted in {len(found.groups)} groups and "
        f"{len(found.atom_total)} atoms; {int(found.suppressed.sum())} groups and "
        f"{found.suppressed_atoms} atoms suppressed (min_count {found.min_count})"
    )


@app.command(epilog="Example: gcfcp keygen -o hospital-a.key")
def keygen(
    output: Annotated[str, typer.Option("-o", "--output", help="File of the private key.")],
) -> None:
    """Make a key to sign with; what is printed goes to the server, the file to nobody."""
    from gcfcp import signing

    print(signing.new_key(output))
    console.note(f"{output} stays here; tell the server the public key above, by another way")


@app.command(epilog="Example: gcfcp sign hospital-a.gcfcp --key hospital-a.key")
def sign(
    file: Annotated[str, typer.Argument(help="A summary or an audit.")],
    key: Annotated[str, typer.Option(help="The private key that keygen made.")],
    force: Force = False,
) -> None:
    """Sign a file; the signature is a small file beside it, and both are sent."""
    from gcfcp import signing

    output = file + signing.SUFFIX
    given.check_output(output, force)
    given.write(output, signing.sign(given.read(file), key), force)
    console.note(f"{output} written; send it with {file}")


# --- at the server -----------------------------------------------------------------------------


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
        given.load_summaries(summaries, known_keys),
        alpha,
        given.mixture_of(mixture),
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
        title=f"alpha {found.alpha:g}, {shown.clients(len(found.clients))}, "
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

    given.check_output(output, force, as_json)
    merged = gcfcp.merge(given.load_summaries(summaries, known_keys), client, delta)
    given.write(output, merged.to_bytes(), force)
    if as_json:
        members = [{"client": name, "n": n} for name, n in merged.members]
        console.show_json({"file": output, "members": members, **asdict(merged.disclosure)})
        return
    told = shown.clients(len(merged.members))
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

    given.check_output(output, force, as_json)
    loaded = given.load_summaries(summaries, known_keys)
    result = gcfcp.calibrate(
        loaded, alpha, given.mixture_of(mixture), merge.value, rule=rule.value, delta=delta
    )
    first = loaded[0]
    try:
        score: Any = scores.from_name(first.score, first.parameters)
    except GCFCPError:
        score = first.score
    predictor = gcfcp.Predictor(score, result)
    text = predictor.to_json(coreset=coreset)
    given.write(output, text.encode(), force)
    if as_json:
        console.show_json(
            {
                "file": output,
                "alpha": result.alpha,
                "clients": result.shares,
                "guarantee": [asdict(g) for g in result.guarantee],
                "table": [asdict(r) for r in result.table],
            }
        )
        return
    shown.show_guarantees([asdict(g) for g in result.guarantee], error=True)
    finite = sum(r.reason is None for r in result.table)
    console.note(
        f"{len(result.table)} atoms, {finite} with a finite threshold; "
        f"{shown.clients(len(result.shares))}, alpha {result.alpha:g}"
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
        typer.Option(help="Shortfall that still counts as kept; alpha / 2 unless given."),
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
        given.check_output(output, force)
    report = gcfcp.merge_audits(
        given.load_audits(audits), given.mixture_of(mixture), alpha, confidence, margin=margin
    )
    if output is not None:
        text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False) + "\n"
        given.write(output, text.encode(), force)
    if as_json:
        if output != "-":
            console.show_json(report.to_dict())
    elif output != "-":
        shown.show_report(report)


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

    given.check_output(output, force)
    loaded = given.load_predictor(predictor)
    alpha = float(loaded.table.alpha)

    def merged(files: Sequence[str]) -> AuditReport:
        found = given.load_audits(files)
        weights = given.own_mixture(loaded, found) if mixture is None else given.mixture_of(mixture)
        return gcfcp.merge_audits(found, weights, alpha, confidence)

    page = render(
        loaded,
        merged(audits) if audits else None,
        {name: merged(files) for name, files in given.baselines(baseline or []).items()} or None,
        gcfcp.plan(
            given.load_summaries(summary), alpha, loaded.provenance.get("mixture", "uniform")
        )
        if summary
        else None,
        shlex.join(["gcfcp", *_arguments.get()]),
    )
    given.write(output, page.encode(), force)
    if output != "-":
        console.note(f"open {output} in a browser")


# --- whole runs --------------------------------------------------------------------------------


@app.command(epilog="Example: gcfcp demo")
def demo(
    directory: Annotated[
        str | None,
        typer.Option("-o", "--output", help="Where the files go; a fresh ./gcfcp-demo."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run a whole federated calibration on built-in data, ending in a report to look at."""
    from gcfcp import demo as story

    result = story.run(directory, force=force, quiet=as_json)
    if as_json:
        console.show_json(result)


# --- entry -------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> None:
    """One command, in this process; what is wrong is an exception."""
    token = _arguments.set(tuple(arguments))
    try:
        app(args=list(arguments), standalone_mode=False)
    finally:
        _arguments.reset(token)


def main() -> None:
    """The console command."""
    _arguments.set(tuple(sys.argv[1:]))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # no name is a reason to fail
    try:
        with console.warnings_as_notes():
            try:
                app()
            finally:
                sys.stdout.flush()  # what cannot be written is said here, not while Python ends
    except GCFCPError as error:
        console.fail(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # the reader has left, and knows
            console.fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
        sys.exit(1)
