"""Repeat an experiment of the paper: `python -m experiments EXPERIMENT`.

The options are `[--probs FILE] [--runs N] [-o DIRECTORY]`; `--help` lists all of them.

Exit codes and messages are those of `gcfcp`. 0 means that the experiment was done. 1 means that an
input is wrong, which one line on standard error explains. 2 means that the command was called in a
wrong way. Results are not overwritten without `--force`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import experiments
from gcfcp.cli import console
from gcfcp.errors import GCFCPError

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Experiment(StrEnum):
    SYNTHETIC = "synthetic"
    CIFAR10 = "cifar10"
    PATHMNIST = "pathmnist"
    IMAGENET = "imagenet"
    MANY_SITES = "many-sites"
    SHAPE_AND_LEVEL = "shape-and-level"


@app.command(
    epilog="dev.py runs this in the root of the repository, so relative paths start there. "
    "Example: python3 dev.py reproduce synthetic --runs 20 -o results"
)
def reproduce(
    experiment: Annotated[
        Experiment,
        typer.Argument(metavar="EXPERIMENT", help=f"One of {', '.join(experiments.NAMES)}."),
    ],
    probs: Annotated[
        str | None,
        typer.Option(
            help="A file of probabilities and labels (npz). Without it the data are simulated."
        ),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="The number of repetitions; the paper's unless given.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="A directory; gcfcp-EXPERIMENT unless given."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of everything that is drawn.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="The number of processes; one for each core unless given."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the output if it exists.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Repeat an experiment of the paper: its tables and figures beside ours."""
    name = experiment.value
    page = Path(output or f"gcfcp-{name}").resolve() / f"{name}.md"
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, and turn errors into one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A name that the terminal cannot show is escaped, so that the command does not fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        with console.warnings_as_notes():
            app(arguments)
    except GCFCPError as error:
        console.fail(error)
        sys.exit(1)
    except OSError as error:
        console.fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
