"""The application, and the options that several commands share."""

from __future__ import annotations

from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(
    name="gcfcp",
    help="Prediction sets that keep their promise for every group, from data that stay where they "
    "are. Try: gcfcp demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

typed: ContextVar[tuple[str, ...]] = ContextVar("typed", default=())
"""What the user typed, for the report, which says how it was made."""


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
    typer.Option(help="Of randomised scores; drawn and told if not inputs.", min=0),
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
