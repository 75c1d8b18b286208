"""The commands that run at a site: summarize, join, inspect, predict, audit, keygen, sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gcfcp.checks import counted
from gcfcp.cli import console, inputs, printing
from gcfcp.cli.options import (
    Cells,
    Client,
    Data,
    Epsilon,
    Force,
    GridText,
    Json,
    MinCount,
    Missing,
    MissingRows,
    Output,
    PredictorFile,
    Representation,
    ScoreName,
    Seed,
    Separator,
    app,
)
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from numpy.random import Generator

    from gcfcp.groups import Groups
    from gcfcp.tables import Rows, Table


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
            help="The score: residual (from the columns y and prediction), cqr (y, lo and hi), "
            "thr, aps or raps (y and proba_LABEL for each label), or column (ready scores in the "
            "column score). By default the columns decide.",
        ),
    ] = None,
    delta: Annotated[
        float,
        typer.Option(help="How fine the digests are: about delta / 2 centroids for each atom."),
    ] = 250,
    representative: Annotated[
        Representation,
        typer.Option(
            help="What stands for a cluster of scores: upper (its largest score, loses no "
            "coverage) or mean (as in the paper)."
        ),
    ] = Representation.UPPER,
    min_count: MinCount = 1,
    by: Annotated[
        Cells | None,
        typer.Option(
            metavar="CELLS",
            help="What the summary describes: atom (each combination of groups, for the "
            "simultaneous rule) or group (each group, which stays useful with --min-count). By "
            "default it is group if --min-count is above 1 or --shape is given, and atom "
            "otherwise and with --holdout alone; all sites must choose the same.",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A shape, or last quarter's predictor, to subtract from the scores by group. It "
            "must come from other records than these.",
        ),
    ] = None,
    grid: GridText = None,
    epsilon: Epsilon = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            help="The share of the records, drawn at random, that goes into --shape-part and not "
            "into the output, such as 0.3."
        ),
    ] = None,
    shape_part: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --holdout, the file for the summary by atom of the records that were drawn; "
            "gcfcp shape makes a shape of it.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A fingerprint of the model, the same at every site.")
    ] = None,
    absent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="A group that this site cannot have; the option may be repeated. A record that "
            "belongs to it is an error.",
        ),
    ] = None,
    round: Annotated[
        str | None,
        typer.Option(
            "--round",
            metavar="ROUND",
            help="The round that the summary is for, such as 2026Q4; a signature covers it.",
        ),
    ] = None,
    date: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="The day of the summary, such as 2026-11-17."),
    ] = None,
    separator: Separator = ",",
    missing: MissingRows = Missing.ERROR,
    seed: Seed = None,
    randomize: Annotated[
        bool,
        typer.Option(help="Whether aps and raps are randomised; all sites must choose the same."),
    ] = True,
    lam: Annotated[
        float, typer.Option(help="The penalty of raps for each rank beyond k-reg.")
    ] = 0.01,
    k_reg: Annotated[
        int, typer.Option(help="The last rank of a label without a penalty in raps.")
    ] = 5,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make the summary of this site's calibration records.

    The records are a table with one row for each record; the summary holds a few hundred numbers
    that stand for their scores. Only the summary needs to leave the site, and gcfcp inspect says
    what it discloses.
    """
    from gcfcp import tables
    from gcfcp.groups import Groups
    from gcfcp.summary import Making

    inputs.check_output(output, force, as_json)
    drawn = _holdout(holdout, shape_part, output, seed, force)
    family = Groups.from_toml(groups)
    parameters: dict[str, Any] = {}
    if score in (ScoreName.APS, ScoreName.RAPS):
        parameters["randomized"] = randomize
    if score is ScoreName.RAPS:
        parameters |= {"lam": lam, "k_reg": k_reg}
    with (
        tables.open_table(data, separator) as table,
        console.progress(f"reading {data}") as advance,
    ):
        scoring = tables.scoring(table, None if score is None else score.value, **parameters)
        making = Making(
            groups=family,
            client=client,
            delta=delta,
            representative=representative.value,
            min_count=min_count,
            score=scoring.named,
            model=model,
            absent=absent or (),
            by=_cells(by, min_count, shape, holdout, grid),
            shape=shape,
            round=round,
            date=date,
            grid=grid,
            epsilon=epsilon,
        )
        (*parts, summary), rows = tables.summarize_table(
            table,
            scoring,
            making,
            missing=missing.value,
            rng=inputs.generator_of(scoring.score, seed),
            holdout=holdout,
            holdout_rng=drawn,
            progress=advance,
        )
        _warn_of_unmatched(table, family, rows, absent or ())
    if by is None and making.by == "group" and shape is None and not as_json:
        console.note("by group, because min_count is above 1; --by atom describes combinations")
    for part in parts:
        inputs.write(str(shape_part), part.to_bytes(), force)
        if not as_json:
            console.note(
                f"{shape_part} has {counted(part.n, 'record')} to make a shape of, by atom"
            )
    values = {"score": summary.score, **asdict(summary.disclosure)}
    text = f"score {summary.score}; {summary.disclosure}"
    _finish(output, summary.to_bytes(), force, as_json, rows, values, text)


def _cells(
    by: Cells | None, min_count: int, shape: str | None, holdout: float | None, grid: str | None
) -> str:
    """What the summary describes, if the user did not say it.

    With a holdout and without a shape, the server will subtract the shape, for which it needs
    atoms. On a grid a `min_count` hides small atoms, but nothing by group.
    """
    if by is not None:
        return by.value
    small = min_count > 1 and holdout is None and grid is None
    return "group" if small or shape is not None else "atom"


def _holdout(
    holdout: float | None, shape_part: str | None, output: str, seed: int | None, force: bool
) -> Generator | None:
    """The generator that draws the shape part; None if nothing is held out."""
    if (holdout is None) != (shape_part is None):
        raise GCFCPError("--holdout and --shape-part belong together: give both or neither")
    if holdout is None or shape_part is None:
        return None
    if shape_part == output:
        raise GCFCPError("--shape-part and the output are the same file: give two names")
    inputs.check_output(shape_part, force)
    return inputs.seeded(seed, "the holdout")


def _warn_of_unmatched(
    table: Table, groups: Groups, rows: Rows, absent: Sequence[str] = ()
) -> None:
    """Say which groups have no record here, and which values there are.

    It is said on standard error, to whoever runs the command beside the data.
    """
    from gcfcp import tables

    names = [name for name in rows.unmatched if name not in absent]
    for sentence in tables.explain_unmatched(table, groups, names):
        console.note(
            f"warning: {sentence}. If the site cannot have such records, say --absent to summarize"
        )


@app.command(
    epilog="Example: gcfcp join part-*.gcfcp --client hospital-a --delta 250 -o hospital-a.gcfcp"
)
def join(
    parts: Annotated[
        list[str],
        typer.Argument(
            metavar="PART...",
            help="Summaries of disjoint parts of this site's records, made with the site's name "
            "and without --min-count and --epsilon.",
        ),
    ],
    client: Client,
    output: Output,
    delta: Annotated[
        float | None,
        typer.Option(
            help="How fine the result is. The errors of the parts count in it, so that the parts "
            "must be finer; by default it is half of the smallest delta of the parts."
        ),
    ] = None,
    min_count: MinCount = 1,
    by: Annotated[
        Cells | None,
        typer.Option(
            metavar="CELLS",
            help="What the result describes: atom or group. By default it is what the parts "
            "describe, and group if --min-count is above 1 or --shape is given.",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A shape to subtract from the scores by group."),
    ] = None,
    epsilon: Epsilon = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make one summary of this site from summaries of parts of its records.

    The parts stay at the site, and the result leaves it. It counts as one client. Use gcfcp merge
    for the summaries of several sites.
    """
    import gcfcp

    inputs.check_output(output, force, as_json)
    found = inputs.load_parts(parts)
    cells = _cells(by, min_count, shape, None, None)
    made = gcfcp.join(
        found,
        client,
        delta=delta,
        min_count=min_count,
        by=cells if cells == "group" and found[0].grid is None else by and by.value,
        shape=shape,
        epsilon=epsilon,
        names=[inputs.name_of(path) for path in parts],
    )
    inputs.write(output, made.to_bytes(), force)
    if as_json:
        console.show_json({"file": output, "parts": len(parts), **asdict(made.disclosure)})
        return
    joined = f"{counted(len(parts), 'part')} with {counted(made.n, 'record')}"
    for line in f"{joined}; {made.disclosure}".splitlines():
        console.note(line)


def _finish(
    output: str,
    data: bytes,
    force: bool,
    as_json: bool,
    rows: Rows,
    values: dict[str, Any],
    text: str,
) -> None:
    """Write the file that leaves the site, and print what it is.

    values: What is printed for programs.
    text: What is printed for people.
    """
    inputs.write(output, data, force)
    if as_json:
        console.show_json({"file": output, "rows": rows.read, "dropped": rows.dropped, **values})
        return
    if rows.dropped:
        console.note(f"{rows.dropped:,} of {rows.read:,} rows had no score and were dropped")
    for line in text.splitlines():
        console.note(line)


@app.command(epilog="Example: gcfcp inspect hospital-a.gcfcp")
def inspect(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A summary, an audit, a shape or a predictor; - reads standard input.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Show what a file discloses, before you send it."""
    from gcfcp.audit import Audit
    from gcfcp.prediction import Predictor
    from gcfcp.shape import Shape
    from gcfcp.summary import ClientSummary

    if not as_json:
        console.check_tables()
    data, name = inputs.read(file), inputs.name_of(file)
    if data[:6] == b"GCFCPA":
        printing.show_audit(Audit.from_bytes(data, name), as_json)
    elif data[:5] == b"GCFCP":
        printing.show_summary(ClientSummary.from_bytes(data, name), as_json)
    elif data.lstrip()[:1] == b"{":
        if b'"gcfcp shape"' in data[:200]:
            printing.show_shape(Shape.from_json(data, name), data, as_json)
        else:
            printing.show_predictor(Predictor.from_json(data, name), data, as_json)
    else:
        raise GCFCPError(
            f"{name} is neither a summary, an audit, a shape nor a predictor: give a file that "
            "gcfcp made"
        )


@app.command(epilog="Example: gcfcp predict predictor.json new.parquet -o sets.parquet --keep id")
def predict(
    predictor: PredictorFile,
    data: Data,
    output: Output,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="A column to copy into the output; the option may be repeated."),
    ] = None,
    site: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The site that the rows are from, if the groups have one group for each site.",
        ),
    ] = None,
    separator: Separator = ",",
    missing: MissingRows = Missing.ERROR,
    seed: Seed = None,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="Put a quotation mark before texts in CSV that a spreadsheet would take for a "
            "formula.",
        ),
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the prediction set or interval of every row."""
    from gcfcp import tables

    inputs.check_output(output, force, as_json)
    loaded = inputs.load_predictor(predictor)
    with (
        tables.open_table(data, separator) as table,
        console.progress(f"reading {data}") as advance,
    ):
        rows = tables.predict_table(
            table,
            loaded,
            output,
            keep=tuple(keep or ()),
            site=site,
            missing=missing.value,
            rng=inputs.generator_of(loaded.score, seed),
            progress=advance,
            overwrite=force,
            escape_formulas=escape_formulas,
        )
    if as_json:
        console.show_json({"file": output, "rows": rows.read, "dropped": rows.dropped})
    else:
        dropped = f"; {rows.dropped:,} had a missing value and were dropped" if rows.dropped else ""
        written = f"{counted(rows.used, 'row')} written to {inputs.name_of(output, 'output')}"
        console.note(f"{written}{dropped}")


@app.command(
    epilog="Example: gcfcp audit predictor.json labelled.csv --client hospital-a -o a.audit"
)
def audit(
    predictor: PredictorFile,
    data: Data,
    client: Client,
    output: Output,
    min_count: MinCount = 1,
    round_: Annotated[
        str | None,
        typer.Option(
            "--round", metavar="TEXT", help="The round that the audit belongs to, such as 2026Q4."
        ),
    ] = None,
    date: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM-DD", help="The day of the audit, which is written to it."),
    ] = None,
    separator: Separator = ",",
    missing: MissingRows = Missing.ERROR,
    seed: Seed = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Count in each group how many outcomes were covered.

    The records are labelled, and none of them was used to calibrate. Only the counts are written.
    """
    from gcfcp import tables

    inputs.check_output(output, force, as_json)
    loaded = inputs.load_predictor(predictor)
    with (
        tables.open_table(data, separator) as table,
        console.progress(f"reading {data}") as advance,
    ):
        found, rows = tables.audit_table(
            table,
            loaded,
            client=client,
            min_count=min_count,
            missing=missing.value,
            rng=inputs.generator_of(loaded.score, seed),
            progress=advance,
            round=round_,
            date=date,
        )
        _warn_of_unmatched(table, loaded.groups, rows)
    records = counted(found.n, "record was", "records were")
    text = f"{client}: {records} counted {printing.counted_in(found)}"
    values = printing.audit_values(found)
    _finish(output, found.to_bytes(), force, as_json, rows, values, text)


@app.command(epilog="Example: gcfcp keygen -o hospital-a.key")
def keygen(
    output: Annotated[
        str, typer.Option("-o", "--output", help="The file to write the private key to.")
    ],
) -> None:
    """Make a pair of keys to sign files with.

    The public key is printed, and the server needs it. The private key is written to the file,
    which nobody else may have.
    """
    from gcfcp.summary import signatures

    print(signatures.new_key(output))
    console.note(
        f"{output} must stay here; give the server the public key above, separately from summaries"
    )


@app.command(epilog="Example: gcfcp sign hospital-a.gcfcp --key hospital-a.key")
def sign(
    file: Annotated[str, typer.Argument(help="A summary or an audit.")],
    key: Annotated[str, typer.Option(help="The private key that gcfcp keygen made.")],
    force: Force = False,
) -> None:
    """Sign a summary or an audit.

    The signature is written to a small file beside it. Send both files.
    """
    from gcfcp.summary import signatures

    output = file + signatures.SUFFIX
    inputs.check_output(output, force)
    inputs.write(output, signatures.sign(inputs.read(file), key), force)
    console.note(f"{output} was written; send it together with {file}")
