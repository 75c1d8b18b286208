"""The command that shows what alpha and the mixture cost, on a page with sliders."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gcfcp.checks import counted
from gcfcp.cli import console, inputs
from gcfcp.cli.options import (
    AggregateNames,
    Alpha,
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
    RoundName,
    RuleName,
    ShapeFile,
    SkipBad,
    Summaries,
    app,
    typed,
)
from gcfcp.cli.server import warn_of_alpha
from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    from gcfcp.calibration import Exploration

MOST_ALPHAS = 1_000
"""The most alphas that FROM:TO:STEP may stand for."""


@app.command(epilog="Example: gcfcp explore last-quarter-*.gcfcp -o explore.html")
def explore(
    summaries: Summaries,
    output: Output,
    alpha: Alpha = 0.1,
    mixture: MixtureText = "proportional",
    alphas: Annotated[
        str,
        typer.Option(
            metavar="FROM:TO:STEP",
            help="The alphas at which the slider stops, besides --alpha; or a list such as "
            "0.05,0.1.",
        ),
    ] = "0.01:0.3:0.01",
    site: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A site towards which the mixture can be moved, until it counts alone; the option "
            "may be repeated. By default it is every site.",
        ),
    ] = None,
    no_sites: Annotated[
        bool,
        typer.Option(
            "--no-sites", help="Show no site alone, because that tells the site's own thresholds."
        ),
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(
            help="How many seconds of the processor it may take; the page says what was left out."
        ),
    ] = 60.0,
    title: Annotated[
        str, typer.Option(help="The title of the page.")
    ] = "What alpha and the mixture cost",
    merge: MergeWay = Merge.POOL,
    rule: RuleName = None,
    correction: CorrectionName = Correction.SHARP,
    shape: ShapeFile = None,
    confidence: PredictorConfidence = None,
    known_keys: KnownKeys = None,
    aggregate: AggregateNames = None,
    round: RoundName = None,
    max_atoms: MaxAtoms = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a page with sliders for alpha and the mixture.

    It shows thresholds, what is charged for the record to come, and what becomes infinite, at many
    settings that were all calibrated exactly. Explore the summaries of an earlier period: alpha and
    the mixture must be fixed without a look at the records that are calibrated. The page needs no
    other file and no network.
    """
    import gcfcp
    from gcfcp.calibration import MAX_ATOMS
    from gcfcp.report import render_explorer

    inputs.check_output(output, force, as_json)
    asked = alphas_of(alphas)
    warn_of_alpha(max(alpha, *asked))
    loaded = inputs.load_summaries(summaries, known_keys, aggregate, round, skip_bad)
    with console.progress("calibrating", "settings") as advance:
        explored = gcfcp.explore(
            loaded.summaries,
            alpha,
            loaded.mixture(mixture),
            merge.value,
            alphas=asked,
            clients=sites_of(site, no_sites),
            within=seconds,
            progress=advance,
            rule=rule and rule.value,
            correction=correction.value,
            shape=shape,
            confidence=confidence,
            aggregates=loaded.aggregates,
            round=round,
            max_atoms=MAX_ATOMS if max_atoms is None else max_atoms,
        )
    page = render_explorer(explored, shlex.join(["gcfcp", *typed.get()]), title=title)
    inputs.write(output, page.encode(), force)
    if as_json:
        console.show_json({"file": output, **_values(explored)})
    elif output != "-":
        _show(explored)
        console.note(f"open {output} in a browser")
    loaded.end()


def alphas_of(text: str) -> list[float]:
    """The alphas that the user wrote: FROM:TO:STEP, or a list with commas.

    They are counted in decimals, so that 0.01:0.3:0.01 has 0.03 and not 0.030000000000000002.
    """
    from decimal import Decimal, InvalidOperation

    parts = text.split(":") if ":" in text else text.split(",")
    try:
        given = [Decimal(part) for part in parts]
        if ":" not in text:
            return [float(value) for value in given]
        first, last, step = given
        if not all(value.is_finite() for value in given) or step <= 0 or last < first:
            raise InvalidOperation
    except (InvalidOperation, ValueError):
        raise GCFCPError(
            f"--alphas {text!r:.60} is neither FROM:TO:STEP, such as 0.01:0.3:0.01, nor a list, "
            "such as 0.05,0.1"
        ) from None
    if (last - first) / step >= MOST_ALPHAS:
        raise GCFCPError(
            f"--alphas {text!r:.60} stands for more than {MOST_ALPHAS:,} alphas: make STEP larger"
        )
    return [float(first + k * step) for k in range(int((last - first) / step) + 1)]


def sites_of(names: list[str] | None, none: bool) -> list[str] | None:
    """The sites that may count alone; None stands for all of them."""
    if none and names:
        raise GCFCPError(
            f"--no-sites and --site {names[0]!r:.60} contradict each other: give one of them"
        )
    return [] if none else names


def _show(explored: Exploration) -> None:
    """Say what was computed, what was left out, and what the page is not for."""
    every = [setting for column in explored.settings for setting in column]
    console.note(
        f"{counted(len(every), 'setting was', 'settings were')} calibrated: "
        f"{counted(len(explored.alphas), 'alpha')} at {counted(len(explored.stops), 'mixture')}"
    )
    for line in (*explored.notes, *explored.left_out):
        console.note(line)
    console.note(
        "fix alpha and the mixture with other records than those that you calibrate: for a setting "
        "that was chosen with the calibrated records nothing is proved"
    )


def _values(explored: Exploration) -> dict[str, Any]:
    """An exploration for programs."""
    from gcfcp.calibration import mixture

    return {
        "alphas": list(explored.alphas),
        "mixtures": [mixture.to_plain(stop.mixture) for stop in explored.stops],
        "rows": [list(record.groups) for record in explored.start.atoms],
        "settings": [
            {
                "alpha": setting.alpha,
                "mixture": place,
                "correction": setting.correction.records,
                "thresholds": [record.threshold for record in setting.atoms],
                "reasons": [record.reason for record in setting.atoms],
            }
            for place, column in enumerate(explored.settings)
            for setting in column
        ],
        "notes": list(explored.notes),
        "left_out": list(explored.left_out),
    }
