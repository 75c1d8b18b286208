"""The application, and the options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import CommandFunctionType


class Command(TyperCommand):
    """A command whose help describes its arguments, whichever versions are installed.

    It differs from that of typer in three ways. 1. click 8.5 resets the description of an argument
    that typer 0.20 has set, and so it is set again. 2. click 8.5 lists such arguments too, so that
    they would be listed twice. 3. typer writes a backslash before "[required]" where rich is
    installed, which is meant for HTML.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        callback: Any = self.callback
        hints = get_type_hints(inspect.unwrap(callback), include_extras=True)
        for param in self.params:
            about = getattr(hints.get(param.name or ""), "__metadata__", ())
            text = next((info.help for info in about if hasattr(info, "help")), None)
            if param.param_type_name == "argument" and not getattr(param, "help", None):
                param.help = text

    def format_arguments(self, ctx: Any, formatter: Any) -> None:
        """Nothing: typer lists the arguments together with the options."""

    def get_help(self, ctx: Any) -> str:
        """The help of the command, as a terminal shows it."""
        return str(super().get_help(ctx)).replace("\\[", "[")


class App(typer.Typer):
    """An application of such commands."""

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **options: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """A decorator that makes a function a command."""
        return super().command(name, cls=cls, **options)


app = App(
    name="gcfcp",
    help="Make prediction sets that keep their promise for every group, while the data stay where "
    "they are. To see how it works, run: gcfcp demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

typed: ContextVar[tuple[str, ...]] = ContextVar("typed", default=())
"""The arguments that the user typed. The report shows them, so that it says how it was made."""


class ScoreName(StrEnum):
    """The scores that can be made from the columns of a table."""

    THR = "thr"
    APS = "aps"
    RAPS = "raps"
    RESIDUAL = "residual"
    CQR = "cqr"
    COLUMN = "column"


class Missing(StrEnum):
    """What is done with rows in which a value is missing."""

    ERROR = "error"
    DROP = "drop"


class Representation(StrEnum):
    """Which score stands for a cluster of scores."""

    UPPER = "upper"
    MEAN = "mean"


class Merge(StrEnum):
    """What is done with the centroids of all sites."""

    POOL = "pool"
    RECOMPRESS = "recompress"


class Rule(StrEnum):
    """How the thresholds are made."""

    SIMULTANEOUS = "simultaneous"
    MAX = "max"


class Cells(StrEnum):
    """What a summary describes."""

    ATOM = "atom"
    GROUP = "group"


class Correction(StrEnum):
    """How much the test point weighs."""

    SHARP = "sharp"
    PAPER = "paper"


# --- options that several commands share --------------------------------------------------------

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A CSV or Parquet file; - reads standard input.")
]
Separator = Annotated[
    str,
    typer.Option(
        "--separator",
        metavar="CHARACTER",
        help="What stands between the fields of a CSV file: a comma, ';' or tab.",
    ),
]
Summaries = Annotated[
    list[str],
    typer.Argument(
        metavar="SUMMARY...", help="The summaries that gcfcp summarize or gcfcp merge wrote."
    ),
]
KnownKeys = Annotated[
    str | None,
    typer.Option(
        help="A file of clients and their public keys. A summary that is not signed with the key "
        "of its client is refused."
    ),
]
AuditKeys = Annotated[
    str | None,
    typer.Option(
        "--known-keys",
        help="A file of clients and their public keys. An audit or a summary that is not signed "
        "with the key of its client is refused.",
    ),
]
AggregateNames = Annotated[
    list[str] | None,
    typer.Option(
        "--aggregate",
        metavar="NAME[=SITES]",
        help="A summary that may stand for several clients, with the number of its sites, such as "
        "north=3; the option may be repeated. Any other aggregate is refused. --mixture uniform "
        "needs the number.",
    ),
]
RoundName = Annotated[
    str | None,
    typer.Option(
        "--round",
        metavar="ROUND",
        help="The round, such as 2026Q4. A summary of another round, or of none, is refused.",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        help="Leave out files that are refused, name them, and go on with the others. Two "
        "different files of one client are both left out. The exit code is then 3.",
    ),
]
MaxAtoms = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        min=1,
        help="How many combinations of groups the rule simultaneous may be given, by default 1000. "
        "Twice as many take four to eight times as long; the rule max needs no limit.",
    ),
]
PredictorFile = Annotated[
    str, typer.Argument(metavar="PREDICTOR", help="The predictor that gcfcp calibrate wrote.")
]
Output = Annotated[
    str,
    typer.Option("-o", "--output", help="The file to write; - writes to standard output."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
Client = Annotated[str, typer.Option(help="The name of this site, as the other sites know it.")]
Alpha = Annotated[
    float, typer.Option(help="The share of outcomes that may be missed in every group.")
]
Confidence = Annotated[
    float,
    typer.Option(help="The confidence with which the intervals of all groups hold together."),
]
MixtureText = Annotated[
    str,
    typer.Option(
        "--mixture",
        help="How much each client counts: proportional (every record counts the same, as if all "
        "records lay in one place), uniform (every site counts the same, however few records it "
        "has), or weights. Weights are written as a=0.5,b=0.5, as a JSON object, or as the name of "
        "a .json file that holds one.",
    ),
]
AuditMixtureText = Annotated[
    str | None,
    typer.Option(
        "--mixture",
        help="How much each client counts in the audit: proportional (every audited record counts "
        "the same, as if all records lay in one place), uniform (every site counts the same, "
        "however few records it has), or weights as for gcfcp calibrate. By default it is the "
        "mixture of the audited predictor or, if the audits do not say what it is, proportional.",
    ),
]
MinCount = Annotated[
    int, typer.Option(help="Nothing that stands for fewer records than this leaves the site.")
]
MissingRows = Annotated[
    Missing,
    typer.Option(
        "--missing",
        help="What to do with rows in which a value for the score is missing: error stops, drop "
        "leaves them out.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="The seed of randomised scores. If it is not given, one is drawn and printed.", min=0
    ),
]
MergeWay = Annotated[
    Merge,
    typer.Option(
        "--merge",
        help="What to do with the centroids of all sites: pool keeps them, recompress compresses "
        "them again.",
    ),
]
RuleName = Annotated[
    Rule | None,
    typer.Option(
        "--rule",
        metavar="RULE",
        help="How thresholds are made: simultaneous fits all groups together, as in the paper; max "
        "takes the largest threshold of a record's groups, which is proved for compressed "
        "summaries too, but may make larger sets. By default it is simultaneous, and max for "
        "summaries by group, with --shape and with --confidence.",
    ),
]
GridText = Annotated[
    str | None,
    typer.Option(
        "--grid",
        metavar="GRID",
        help="Count the records in the cells of a public grid, the same at every site, in place of "
        "digests: a file that gcfcp grid wrote, or uniform:LOW,HIGH,CELLS, "
        "logarithmic:RELATIVE or edges:E1,E2,.. Such summaries add up (gcfcp add), and it is the "
        "one compression under which the simultaneous rule is proved.",
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        help="Add noise for differential privacy to the counts of the grid: the privacy loss of "
        "one record, such as 1. Every run is a release of its own: send one of them."
    ),
]
ShapeFile = Annotated[
    str | None,
    typer.Option(
        "--shape",
        metavar="FILE",
        help="A shape, or an earlier predictor, to subtract from the scores of summaries by atom. "
        "It must come from other records. Summaries by group carry their own.",
    ),
]
PredictorConfidence = Annotated[
    float | None,
    typer.Option(
        "--confidence",
        help="Let the promise be about this very predictor, with this confidence, such as 0.95. By "
        "default it is about the average over calibrations.",
    ),
]
CorrectionName = Annotated[
    Correction,
    typer.Option(
        "--correction",
        help="How much the record to come weighs in the fit: sharp is the least weight that is "
        "proved, paper is one record for each client.",
    ),
]


def _version(value: bool) -> None:
    """Print the version and end, if the user asked for it."""
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
