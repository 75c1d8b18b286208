"""The commands that run at a site: summarize, inspect, predict, audit, keygen, sign."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gcfcp.cli import console, inputs, printing
from gcfcp.cli.options import (
    Client,
    Data,
    Force,
    Json,
    MinCount,
    Missing,
    MissingRows,
    Output,
    PredictorFile,
    Representation,
    ScoreName,
    Seed,
    app,
)
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from gcfcp.tables import Rows


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
    from gcfcp import tables
    from gcfcp.groups import Groups

    inputs.check_output(output, force, as_json)
    family = Groups.from_toml(groups)
    parameters: dict[str, Any] = {}
    if score in (ScoreName.APS, ScoreName.RAPS):
        parameters["randomized"] = randomize
    if score is ScoreName.RAPS:
        parameters |= {"lam": lam, "k_reg": k_reg}
    with tables.open_table(data) as table, console.progress(f"reading {data}") as advance:
        by = tables.scoring(table, None if score is None else score.value, **parameters)
        summary, rows = tables.summarize_table(
            table,
            by,
            groups=family,
            client=client,
            delta=delta,
            representative=representative.value,
            min_count=min_count,
            model=model,
            missing=missing.value,
            rng=inputs.generator_of(by.score, seed),
            progress=advance,
        )
    values = {"score": summary.score, **asdict(summary.disclosure)}
    text = f"score {summary.score}; {summary.disclosure}"
    _finish(output, summary.to_bytes(), force, as_json, rows, values, text)


def _finish(
    output: str,
    data: bytes,
    force: bool,
    as_json: bool,
    rows: Rows,
    values: dict[str, Any],
    text: str,
) -> None:
    """Write what leaves the site, and say what it is: `values` for machines, `text` for people."""
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
        str, typer.Argument(metavar="FILE", help="A summary, an audit or a predictor; or -.")
    ],
    as_json: Json = False,
) -> None:
    """Say what a file discloses, before it is sent."""
    from gcfcp.audit import Audit
    from gcfcp.prediction import Predictor
    from gcfcp.summary import ClientSummary

    data, name = inputs.read(file), inputs.name_of(file)
    if data[:6] == b"GCFCPA":
        printing.show_audit(Audit.from_bytes(data, name), as_json)
    elif data[:5] == b"GCFCP":
        printing.show_summary(ClientSummary.from_bytes(data, name), as_json)
    elif data.lstrip()[:1] == b"{":
        printing.show_predictor(Predictor.from_json(data, name), data, as_json)
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
    from gcfcp import tables

    inputs.check_output(output, force, as_json)
    loaded = inputs.load_predictor(predictor)
    with tables.open_table(data) as table, console.progress(f"reading {data}") as advance:
        rows = tables.predict_table(
            table,
            loaded,
            output,
            keep=tuple(keep or ()),
            missing=missing.value,
            rng=inputs.generator_of(loaded.score, seed),
            progress=advance,
        )
    if as_json:
        console.show_json({"file": output, "rows": rows.read, "dropped": rows.dropped})
    else:
        dropped = f", {rows.dropped:,} without a prediction dropped" if rows.dropped else ""
        console.note(f"{rows.used:,} rows written to {inputs.name_of(output, 'output')}{dropped}")


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
    from gcfcp import tables

    inputs.check_output(output, force, as_json)
    loaded = inputs.load_predictor(predictor)
    with tables.open_table(data) as table, console.progress(f"reading {data}") as advance:
        found, rows = tables.audit_table(
            table,
            loaded,
            client=client,
            min_count=min_count,
            missing=missing.value,
            rng=inputs.generator_of(loaded.score, seed),
            progress=advance,
        )
    text = (
        f"{client}: {found.n:,} records counted in {len(found.groups)} groups and "
        f"{len(found.atom_total)} atoms; {int(found.suppressed.sum())} groups and "
        f"{found.suppressed_atoms} atoms suppressed (min_count {found.min_count})"
    )
    values = printing.audit_values(found)
    _finish(output, found.to_bytes(), force, as_json, rows, values, text)


@app.command(epilog="Example: gcfcp keygen -o hospital-a.key")
def keygen(
    output: Annotated[str, typer.Option("-o", "--output", help="File of the private key.")],
) -> None:
    """Make a key to sign with; what is printed goes to the server, the file to nobody."""
    from gcfcp.summary import signatures

    print(signatures.new_key(output))
    console.note(f"{output} stays here; tell the server the public key above, by another way")


@app.command(epilog="Example: gcfcp sign hospital-a.gcfcp --key hospital-a.key")
def sign(
    file: Annotated[str, typer.Argument(help="A summary or an audit.")],
    key: Annotated[str, typer.Option(help="The private key that keygen made.")],
    force: Force = False,
) -> None:
    """Sign a file; the signature is a small file beside it, and both are sent."""
    from gcfcp.summary import signatures

    output = file + signatures.SUFFIX
    inputs.check_output(output, force)
    inputs.write(output, signatures.sign(inputs.read(file), key), force)
    console.note(f"{output} written; send it with {file}")
