"""The command line: parse, call the library, print.

Exit codes: 0 done; 1 the input is wrong, said in one line on standard error; 2 usage. With `--json`
a result is printed for machines. "-" is standard input or output. No file is overwritten without
`--force`, and every file is written whole or not at all.
"""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
import shlex
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gcfcp import console
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from numpy.random import Generator

    from gcfcp.audit import Audit, AuditReport
    from gcfcp.client import ClientSummary
    from gcfcp.predictor import Predictor

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


class Experiment(StrEnum):
    SYNTHETIC = "synthetic"
    CIFAR10 = "cifar10"
    PATHMNIST = "pathmnist"
    IMAGENET = "imagenet"


_EXPERIMENTS = f"One of {', '.join(e.value for e in Experiment)}."


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

    _check_output(output, force, as_json)
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
            rng=_generator(by.score, seed),
            progress=advance,
        )
    _write(output, summary.to_bytes(), force)
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

    data, name = _read(file), _name(file)
    if data[:6] == b"GCFCPA":
        _show_audit(Audit.from_bytes(data, name), as_json)
    elif data[:5] == b"GCFCP":
        _show_summary(ClientSummary.from_bytes(data, name), as_json)
    elif data.lstrip()[:1] == b"{":
        _show_predictor(Predictor.from_json(data, name), data, as_json)
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

    _check_output(output, force, as_json)
    loaded = _predictor(predictor)
    with tabular.open_table(data) as table, console.progress(f"reading {data}") as advance:
        rows = tabular.predict_table(
            table,
            loaded,
            output,
            keep=tuple(keep or ()),
            missing=missing.value,
            rng=_generator(loaded.score, seed),
            progress=advance,
        )
    if as_json:
        console.show_json({"file": output, "rows": rows.read, "dropped": rows.dropped})
    else:
        dropped = f", {rows.dropped:,} without a prediction dropped" if rows.dropped else ""
        console.note(f"{rows.used:,} rows written to {_name(output, 'output')}{dropped}")


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

    _check_output(output, force, as_json)
    raw = _read(predictor)
    loaded = Predictor.from_json(raw, _name(predictor))
    with tabular.open_table(data) as table, console.progress(f"reading {data}") as advance:
        found, rows = tabular.audit_table(
            table,
            loaded,
            client=client,
            min_count=min_count,
            missing=missing.value,
            rng=_generator(loaded.score, seed),
            predictor_id=hashlib.sha256(raw).hexdigest(),
            progress=advance,
        )
    _write(output, found.to_bytes(), force)
    if as_json:
        console.show_json(
            {"file": output, "rows": rows.read, "dropped": rows.dropped, **_audit_values(found)}
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
    _check_output(output, force)
    _write(output, signing.sign(_read(file), key), force)
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
        _load_summaries(summaries, known_keys),
        alpha,
        _mixture(mixture),
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
        title=f"alpha {found.alpha:g}, {len(found.clients)} clients, "
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

    _check_output(output, force, as_json)
    merged = gcfcp.merge(_load_summaries(summaries, known_keys), client, delta)
    _write(output, merged.to_bytes(), force)
    if as_json:
        members = [{"client": name, "n": n} for name, n in merged.members]
        console.show_json({"file": output, "members": members, **asdict(merged.disclosure)})
        return
    for line in f"{len(merged.members)} clients; {merged.disclosure}".splitlines():
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

    _check_output(output, force, as_json)
    loaded = _load_summaries(summaries, known_keys)
    result = gcfcp.calibrate(
        loaded, alpha, _mixture(mixture), merge.value, rule=rule.value, delta=delta
    )
    first = loaded[0]
    try:
        score: Any = scores.from_name(first.score, first.parameters)
    except GCFCPError:
        score = first.score
    predictor = gcfcp.Predictor(score, result)
    text = predictor.to_json(coreset=coreset)
    _write(output, text.encode(), force)
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
    _show_guarantees([asdict(g) for g in result.guarantee], error=True)
    finite = sum(r.reason is None for r in result.table)
    console.note(
        f"{len(result.table)} atoms, {finite} with a finite threshold; "
        f"{len(loaded)} clients, alpha {result.alpha:g}"
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
        _check_output(output, force)
    report = gcfcp.merge_audits(
        _load_audits(audits), _mixture(mixture), alpha, confidence, margin=margin
    )
    if output is not None:
        text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False) + "\n"
        _write(output, text.encode(), force)
    if as_json:
        if output != "-":
            console.show_json(report.to_dict())
    elif output != "-":
        show_report(report)


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

    _check_output(output, force)
    loaded = _predictor(predictor)
    alpha = float(loaded.table.alpha)

    def merged(files: Sequence[str]) -> AuditReport:
        found = _load_audits(files)
        weights = _own_mixture(loaded, found) if mixture is None else _mixture(mixture)
        return gcfcp.merge_audits(found, weights, alpha, confidence)

    page = render(
        loaded,
        merged(audits) if audits else None,
        {name: merged(files) for name, files in _baselines(baseline or []).items()} or None,
        gcfcp.plan(_load_summaries(summary), alpha, loaded.provenance.get("mixture", "uniform"))
        if summary
        else None,
        shlex.join(["gcfcp", *_arguments.get()]),
    )
    _write(output, page.encode(), force)
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


@app.command(epilog="Example: gcfcp reproduce synthetic --runs 20 -o results")
def reproduce(
    experiment: Annotated[Experiment, typer.Argument(metavar="EXPERIMENT", help=_EXPERIMENTS)],
    probs: Annotated[
        str | None,
        typer.Option(
            help="File of probabilities and labels (npz); simulated without, and said so."
        ),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Repetitions; the paper's number unless given.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="Directory; gcfcp-EXPERIMENT unless given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; one a core unless given.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Repeat an experiment of the paper: its tables and figures beside ours."""
    from gcfcp import experiments

    name = experiment.value
    page = Path(output or f"gcfcp-{name}") / f"{name}.md"
    if page.exists() and not force:
        raise GCFCPError(f"{page} exists: give another directory, or --force to overwrite it")
    outcome = experiments.run(name, probs, runs, output, seed, jobs=jobs)
    if as_json:
        print(outcome.to_json())
        return
    console.table(
        ["row", "number", "verdict"],
        [[str(cell) for cell in row] for row in outcome.verdicts],
        left=3,
        title="SIMULATED DATA" if outcome.simulated else None,
    )
    console.lines(f"{page} and {len(outcome.files) - 1} more files")


# --- files -------------------------------------------------------------------------------------


def _name(path: str, stream: str = "input") -> str:
    return f"standard {stream}" if path == "-" else path


def _read(path: str) -> bytes:
    from gcfcp import codec

    return sys.stdin.buffer.read() if path == "-" else codec.read(path)


def _check_output(path: str, force: bool, as_json: bool = False) -> None:
    """Before any work is done: would the result find its place?"""
    if path == "-":
        if as_json:
            raise GCFCPError("--json and -o - both want standard output: write to a file")
        return
    if os.path.isdir(path):
        raise GCFCPError(f"{path} is a directory: give the name of a file")
    if not force and os.path.lexists(path):
        raise GCFCPError(f"{path} exists: give another name, or --force to overwrite it")
    if not os.path.isdir(Path(path).parent):
        raise GCFCPError(f"cannot write {path}: its directory does not exist")


def _write(path: str, data: bytes, force: bool) -> None:
    from gcfcp import codec

    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    _check_output(path, force)
    codec.write(path, data)


def _predictor(path: str) -> Predictor:
    from gcfcp.predictor import Predictor

    return Predictor.from_json(_read(path), _name(path))


def _load_all(paths: Sequence[str], load: Any) -> list[Any]:
    """All files, or all that is wrong with any of them, at once."""
    loaded, wrong = [], []
    for path in paths:
        try:
            loaded.append(load(_read(path), _name(path)))
        except GCFCPError as error:
            wrong.append(str(error))
    _fail_all(wrong, len(paths))
    return loaded


def _fail_all(wrong: Sequence[str], total: int) -> None:
    if len(wrong) > 1:
        for line in wrong:
            console.fail(line)
        raise GCFCPError(f"{len(wrong)} of {total} files cannot be used")
    if wrong:
        raise GCFCPError(wrong[0])


def _load_summaries(paths: Sequence[str], known_keys: str | None = None) -> list[ClientSummary]:
    from gcfcp import signing
    from gcfcp.client import ClientSummary

    known = None if known_keys is None else signing.load_known(known_keys)

    def load(data: bytes, name: str) -> ClientSummary:
        summary = ClientSummary.from_bytes(data, name)
        if known is not None:
            signing.verify(data, signing.read_signature(name), summary.client, known, name)
        return summary

    found: list[ClientSummary] = _load_all(paths, load)
    _check_alike(paths, found)
    return found


def _load_audits(paths: Sequence[str]) -> list[Audit]:
    from gcfcp.audit import Audit

    found: list[Audit] = _load_all(paths, Audit.from_bytes)
    _check_alike(paths, found)
    return found


def _check_alike(paths: Sequence[str], found: Sequence[Any]) -> None:
    """The library refuses the first misfit and names clients; people want all, by file."""
    first, wrong = found[0], []
    owner: dict[str, tuple[str, Any]] = {}
    for path, one in zip(paths, found, strict=True):
        if one.groups.fingerprint != first.groups.fingerprint:
            wrong.append(
                f"{path} was made for groups {one.groups.fingerprint[:8]}.., {paths[0]} for "
                f"{first.groups.fingerprint[:8]}..: use one groups file"
            )
        for what in ("score", "parameters", "model", "representative", "predictor"):
            theirs, ours = getattr(one, what, None), getattr(first, what, None)
            if theirs != ours:
                wrong.append(f"{path} has {what} {theirs!r:.60}, {paths[0]} {ours!r:.60}: use one")
        other = owner.setdefault(one.client, (path, one))
        if other[1] != one:
            wrong.append(
                f"{path} and {other[0]} are both of client {one.client!r} and differ: keep one"
            )
    _fail_all(wrong, len(paths))


def _baselines(given: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        name, _, path = text.partition("=")
        if not name or not path:
            raise GCFCPError(f"--baseline {text!r:.60} is not NAME=FILE")
        # The shell does not expand what stands behind the sign.
        several = [] if os.path.exists(path) else sorted(glob.glob(path))
        found.setdefault(name, []).extend(several or [path])
    return found


# --- values ------------------------------------------------------------------------------------


def _mixture(text: str) -> str | dict[str, float]:
    """uniform, proportional, a=0.5,b=0.5, or a JSON object, also from a file."""
    import json

    if text in ("uniform", "proportional"):
        return text
    if text.endswith(".json") or text.lstrip().startswith("{"):
        raw = text if text.lstrip().startswith("{") else _read(text).decode(errors="replace")
        try:
            found = json.loads(raw)
        except ValueError:
            raise GCFCPError(f"mixture {text:.60} is not JSON such as {{'a': 0.5}}") from None
        if not isinstance(found, dict):
            raise GCFCPError(f"mixture {text:.60} is not a JSON object of weights")
        return found
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, sign, number = part.rpartition("=")
        try:
            weights[name.strip()] = float(number)
        except ValueError:
            sign = ""
        if not sign:
            raise GCFCPError(
                f"mixture {text!r:.60} is neither uniform, proportional, nor weights such as "
                "a=0.5,b=0.5"
            )
    return weights


def _own_mixture(predictor: Predictor, audits: Sequence[Audit]) -> str | dict[str, float]:
    """The clients' weights as calibrated, where the same clients were audited."""
    clients = _entries(predictor.provenance.get("clients"))
    shares: dict[str, Any] = {str(c.get("client")): c.get("share") for c in clients}
    if set(shares) == {a.client for a in audits}:
        return shares
    console.note("warning: other clients were audited than calibrated; all weigh the same")
    return "uniform"


def _generator(score: Any, seed: int | None) -> Generator | None:
    """A generator for randomised scores; a seed that was drawn is told, so that it can be used."""
    if not getattr(score, "randomized", False):
        return None
    import numpy as np

    if seed is None:
        seed = secrets.randbits(32)
        console.note(f"seed {seed} (drawn; --seed {seed} repeats this)")
    return np.random.default_rng(seed)


# --- what is shown -----------------------------------------------------------------------------


def _show_summary(summary: ClientSummary, as_json: bool) -> None:
    described: list[dict[str, Any]] = [
        {
            "groups": list(_members(summary.groups.names, row)),
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
    console.lines(
        f"  score {summary.score} {summary.parameters or ''}, model {summary.model or 'unnamed'}, "
        f"delta {summary.delta:g}, {summary.representative} representatives"
    )
    if summary.is_aggregate:
        console.lines(
            f"  stands for {len(summary.members)} clients: "
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


def _members(names: Sequence[str], row: Any) -> tuple[str, ...]:
    return tuple(name for name, member in zip(names, row, strict=True) if member)


def _audit_values(found: Audit) -> dict[str, Any]:
    hidden = found.suppressed.tolist()

    def shown(values: Any) -> list[Any]:
        return [None if h else v for v, h in zip(values.tolist(), hidden, strict=True)]

    rows = zip(
        found.groups.names,
        hidden,
        shown(found.covered),
        shown(found.total),
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


def _show_audit(found: Audit, as_json: bool) -> None:
    values = _audit_values(found)
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


def _show_predictor(predictor: Predictor, data: bytes, as_json: bool) -> None:
    from gcfcp.client import describe_score

    provenance = predictor.provenance
    table = predictor.table
    centroids = 0 if table.coreset is None else len(table.coreset.values)
    if as_json:
        console.show_json(
            {
                "kind": "predictor",
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "score": describe_score(predictor.score)[0],
                "alpha": float(table.alpha),
                "rule": table.rule,
                "groups": list(predictor.groups.names),
                "atoms": len(table.membership),
                "coreset_centroids": centroids,
                "provenance": provenance,
            }
        )
        return
    clients = _entries(provenance.get("clients"))
    console.lines(
        f"{len(data):,} bytes: score {describe_score(predictor.score)[0]}, alpha "
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
    if promised := _entries(provenance.get("guarantee")):
        _show_guarantees(promised)


def _entries(given: Any) -> list[dict[str, Any]]:
    """The records of a predictor's provenance, which is whatever its file says."""
    return [e for e in given if isinstance(e, dict)] if isinstance(given, list) else []


def _told(number: Any, form: str) -> str:
    """A number of a predictor's provenance; a dash for what is none."""
    plain = isinstance(number, int | float) and not isinstance(number, bool)
    return format(number, form) if plain and abs(number) < 2**64 else "-"


def _show_guarantees(guarantees: Sequence[dict[str, Any]], error: bool = False) -> None:
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
