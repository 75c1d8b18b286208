"""A whole federated calibration on built-in data, from files to a report.

The data are 1,797 images of handwritten digits, which come with scikit-learn. Each of five sites
holds different digits. A model was trained elsewhere on 200 of the images. Each site summarises the
scores of some of its images and sends one small file. The summaries become a predictor,
and each site audits it on its other images. Split CP and FedCP, which know no groups, get the same
records.

The steps are commands of `gcfcp`, run in this process exactly as they are printed. The file
commands.sh holds them, for doing the same by hand. The table of averages repeats the random split
30 times and states its standard error.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gcfcp import methods, scores
from gcfcp.arrays import Bools, Floats, Ints
from gcfcp.audit import UNKNOWN, Audit, AuditReport, merge_audits
from gcfcp.cli import console, waiting
from gcfcp.cli.entry import run as run_command
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.libraries import needs
from gcfcp.prediction import Predictor
from gcfcp.summary import ClientSummary

if TYPE_CHECKING:
    import polars as pl


ALPHA = 0.1
MIXTURE = "proportional"  # What `gcfcp calibrate` takes if no mixture is given.
TRAINING = 200  # The number of images that train the model.
CALIBRATION = 0.35  # This share of the other images calibrates. An audit needs more, to be certain.
SPLITS = 30  # The number of random splits that the averages are over.
# The digits that each site holds.
SITES = {
    "north": (0, 1, 2),
    "east": (3, 4),
    "south": (5, 6),
    "west": (7,),
    "centre": (8, 9),
}
GROUPS_TOML = """\
# Coverage is promised for each of these groups. All sites use this file, and groups may overlap.
[groups]
everyone = "TRUE"
round = "predicted in (0, 6, 8, 9)"
hooked = "predicted in (2, 3, 5, 9)"
faint = "ink < 280"
unsure = "top < 0.5"
"""
# For each other method the name of its files, and the function that makes its thresholds.
BASELINES: dict[str, tuple[str, Callable[..., Any]]] = {
    "split CP": ("split-cp", methods.split_cp),
    "FedCP": ("fedcp", methods.fedcp),
}
OURS = "gcfcp"  # What tables and files call the predictor beside the baselines.


@dataclass(frozen=True)
class _Digits:
    """All images that the model was not trained on."""

    frame: pl.DataFrame  # The table that is cut up into the files of the sites.
    probabilities: Floats  # What the model says, (n, 10).
    y: Ints  # The true digits.
    site: Ints  # The number of the site that holds each image.
    accuracy: float  # The share of these images on which the model is right.

    def calibrates(self, split: int) -> Bools:
        """Which records calibrate in random split number `split`; the others audit."""
        return np.random.default_rng([20, split]).random(len(self.y)) < CALIBRATION


def run(
    directory: str | None = None, *, force: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Run the demo, and return what was found and where the files are.

    directory: Where the files go; None makes a new directory.
    force: Whether a directory that holds files may be used.
    quiet: Whether nothing is printed.
    """
    for library in ("sklearn", "polars", "matplotlib", "jinja2", "rich"):
        needs(library, "the demo", "demo")
    place = _place(directory, force)
    say = _silent if quiet else _say
    say(f"Writing to {place}")
    digits = _digits()
    say(
        f"1. A model was trained on {TRAINING} images elsewhere; it is right on "
        f"{digits.accuracy:.1%} of the other {len(digits.y):,}."
    )
    with contextlib.chdir(place):
        _write_data(digits)
        for name, labels in SITES.items():
            say(f"   {name} holds the digits {', '.join(map(str, labels))}")
        reports = _calibrate_and_audit(digits, say)
        averages = _averages(digits)
        _write_commands()
        _save_picture(reports, averages)
    result = _result(place, reports, averages)
    (place / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not quiet:
        _show(reports, averages)
        say(f"\nEvery file is in {place}. To do the same by hand, run there (or: sh commands.sh)\n")
        for command in _commands():
            say(f"  {_as_text(command)}")
        say(f"\nThe report: {place / 'report.html'}")
    return result


def _say(text: str) -> None:
    with waiting.quiet():
        print(text, flush=True)


def _silent(text: str) -> None:
    """Say nothing."""


def _write_commands() -> None:
    """commands.sh: all commands of the demo, to be run once more."""
    commands = "".join(f"{_as_text([*c, '--force'] if '-o' in c else c)}\n" for c in _commands())
    Path("commands.sh").write_text(
        "#!/bin/sh\n# These commands do what the demo did. --force overwrites its files.\n"
        f"set -e\n{commands}",
        encoding="utf-8",
    )


def _result(
    place: Path,
    reports: dict[str, AuditReport],
    averages: dict[str, tuple[Floats, Floats, float]],
) -> dict[str, Any]:
    """What was found, in plain values for JSON."""
    return {
        "directory": str(place),
        "report": str(place / "report.html"),
        "alpha": ALPHA,
        "split": {name: report.to_dict()["groups"] for name, report in reports.items()},
        "averages": {
            "splits": SPLITS,
            "groups": [g.group for g in reports[OURS].groups],
            "coverage": {k: m.tolist() for k, (m, _, _) in averages.items()},
            "standard_error": {k: s.tolist() for k, (_, s, _) in averages.items()},
            "mean_size": {k: z for k, (_, _, z) in averages.items()},
        },
    }


def _place(directory: str | None, force: bool) -> Path:
    """The directory for the files: the one that was asked for, or a new one.

    The new one is ./gcfcp-demo, or ./gcfcp-demo-2 and so on if there is one already.
    """
    if directory is None and not force:
        names = ["gcfcp-demo", *(f"gcfcp-demo-{i}" for i in range(2, 1000))]
        directory = next((n for n in names if not os.path.lexists(n)), names[-1])
    path = Path(directory or "gcfcp-demo")
    try:
        if path.exists() and not force and any(path.iterdir()):
            raise GCFCPError(
                f"{path} holds files: give another directory, or --force to write there"
            )
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GCFCPError(f"cannot use directory {path}: {error.strerror}") from None
    return path.resolve()


# --- data --------------------------------------------------------------------------------------


def _digits() -> _Digits:
    """Train the model, and let it predict all other images."""
    import polars as pl
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    pixels, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    training, others = order[:TRAINING], order[TRAINING:]
    model = LogisticRegression(C=0.001, max_iter=2000).fit(pixels[training], y[training])
    p = model.predict_proba(pixels[others])
    predicted = p.argmax(axis=1)
    frame = pl.DataFrame(
        {
            "id": others,
            "predicted": predicted,
            "ink": pixels[others].sum(axis=1),
            "top": p.max(axis=1),
            **{f"proba_{label}": p[:, label] for label in range(10)},
            "y": y[others],
        }
    )
    owner = {label: k for k, labels in enumerate(SITES.values()) for label in labels}
    site = np.array([owner[label] for label in y[others].tolist()])
    accuracy = float(np.mean(predicted == y[others]))
    return _Digits(frame, p, y[others].astype(np.int64), site, accuracy)


def _write_data(digits: _Digits) -> None:
    """The groups file, two tables for each site, and a table without y to predict."""
    import polars as pl

    Path("groups.toml").write_text(GROUPS_TOML, encoding="utf-8")
    calibrates = digits.calibrates(0)
    for k, name in enumerate(SITES):
        for part, chosen in (("calibration", calibrates), ("labelled", ~calibrates)):
            rows = pl.Series((digits.site == k) & chosen)
            digits.frame.filter(rows).write_csv(f"{name}-{part}.csv")
    digits.frame.filter(pl.Series(~calibrates)).drop("y").write_parquet("new.parquet")


# --- the run -----------------------------------------------------------------------------------


def _summaries() -> list[str]:
    """The files of the sites' summaries."""
    return [f"{name}.gcfcp" for name in SITES]


def _audits(method: str) -> list[str]:
    """The files of the sites' audits of a method."""
    return [f"{name}-{method}.audit" for name in SITES]


def _audit_commands(method: str, predictor: str) -> list[list[str]]:
    """The commands with which the sites audit the predictor of a method."""
    return [
        ["audit", predictor, f"{name}-labelled.csv", "--client", name, "-o", file]
        for name, file in zip(SITES, _audits(method), strict=True)
    ]


def _commands() -> list[list[str]]:
    """All commands in order, as a user types them in the directory of the files."""
    baselines = [
        text
        for name, (method, _) in BASELINES.items()
        for text in ("--baseline", f"{name}=*-{method}.audit")
    ]
    summaries = [text for file in _summaries() for text in ("--summary", file)]
    return [
        *(
            [
                "summarize",
                f"{name}-calibration.csv",
                "--groups",
                "groups.toml",
                "--client",
                name,
                "-o",
                f"{name}.gcfcp",
            ]
            for name in SITES
        ),
        ["inspect", _summaries()[0]],
        ["plan", *_summaries(), "--alpha", str(ALPHA)],
        ["calibrate", *_summaries(), "--alpha", str(ALPHA), "-o", "predictor.json"],
        ["predict", "predictor.json", "new.parquet", "--keep", "id", "-o", "sets.parquet"],
        *_audit_commands(OURS, "predictor.json"),
        ["audit-merge", *_audits(OURS)],
        *(
            command
            for method, _ in BASELINES.values()
            for command in _audit_commands(method, f"{method}.json")
        ),
        ["report", "predictor.json", *_audits(OURS), *baselines, *summaries, "-o", "report.html"],
    ]


def _as_text(command: Sequence[str]) -> str:
    """A command as a line for the shell."""
    return shlex.join(["gcfcp", *command])


def _calibrate_and_audit(digits: _Digits, say: Callable[[str], None]) -> dict[str, AuditReport]:
    """Run all commands, say what they do, and return the merged audits of every method."""
    _save_baselines(digits)
    told = set()
    headings = {
        "summarize": "2. Each site summarises its scores; only the summary leaves it.",
        "plan": "3. Will every group get a finite threshold?",
        "calibrate": "4. The summaries become one predictor, which can be used anywhere.",
        "audit": "5. Each site counts how many of its labelled records are covered, also with "
        "split CP and FedCP.",
        "report": "6. A report shows what was found.",
    }
    for command in _commands():
        what = command[0]
        if what in headings and what not in told:
            told.add(what)
            say(headings[what])
        output = _run([*command, "--force"] if "-o" in command else command)
        if what == "summarize":
            summary = ClientSummary.load(command[-1])
            size = len(summary.to_bytes())
            say(f"   {summary.client}: {summary.n} records in, {size:,} bytes out")
        elif what == "plan":
            say(f"   {output.strip().splitlines()[-1].strip()}")
        elif what == "calibrate":
            say(f"   {_guarantee_in_words(Predictor.load('predictor.json'))}")
    ours = merge_audits([Audit.load(file) for file in _audits(OURS)])
    # All methods are compared under one mixture, as in the report.
    others = {
        name: merge_audits([Audit.load(file) for file in _audits(method)], ours.shares)
        for name, (method, _) in BASELINES.items()
    }
    return {**others, OURS: ours}


def _run(command: Sequence[str]) -> str:
    """Run a command in this process, and return what it printed; its notes are not shown."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        run_command(command)
    return out.getvalue()


def _guarantee_in_words(predictor: Predictor) -> str:
    """The lowest coverage that is promised for any group, and how well it is founded."""
    bounds = [g["certified"] for g in predictor.provenance["guarantee"]]
    status = predictor.provenance["guarantee"][0]["certified_status"]
    return f"coverage of at least {min(bounds):g} in each of {len(bounds)} groups ({status})"


def _save_baselines(digits: _Digits) -> None:
    """The predictors of the other methods, made from the records of the first split."""
    groups = Groups.from_toml("groups.toml")
    clients = _clients(digits, groups.membership(digits.frame), digits.calibrates(0))
    for method, make in BASELINES.values():
        result = make(clients, ALPHA, MIXTURE, groups=groups)
        Predictor(scores.THR(), result).save(f"{method}.json")


def _clients(digits: _Digits, membership: Bools, chosen: Bools) -> list[tuple[Floats, Bools]]:
    """For each site the scores and the memberships of its chosen records."""
    values = scores.THR().of(digits.probabilities, digits.y)
    return [
        (values[chosen & (digits.site == k)], membership[chosen & (digits.site == k)])
        for k in range(len(SITES))
    ]


def _ours(*args: Any, **options: Any) -> methods.Result:
    """What gcfcp calibrate makes of the records, without files."""
    return methods.gcfcp(*args, correction="sharp", **options)


# --- many splits -------------------------------------------------------------------------------


def _averages(digits: _Digits) -> dict[str, tuple[Floats, Floats, float]]:
    """For each method three averages over the random splits.

    They are the mean coverage of each group, its standard error, and the mean set size. Every
    record weighs the same, as in the calibration, whose mixture is proportional.
    """
    groups = Groups.from_toml("groups.toml")
    membership = groups.membership(digits.frame)
    values = scores.THR().of(digits.probabilities, digits.y)
    found: dict[str, list[Floats]] = {name: [] for name in (*BASELINES, OURS)}
    sizes: dict[str, list[float]] = {name: [] for name in found}
    with console.progress("calibrating again", "splits") as advance:
        for split in range(1, SPLITS + 1):
            calibrates = digits.calibrates(split)
            clients = _clients(digits, membership, calibrates)
            tests = ~calibrates
            inside = membership[tests]
            for name in found:
                make = BASELINES[name][1] if name in BASELINES else _ours
                thresholds = make(clients, ALPHA, MIXTURE, groups=groups).thresholds(inside)
                covered = values[tests] <= thresholds
                found[name].append(inside[covered].sum(axis=0) / inside.sum(axis=0))
                in_set = scores.THR().predict(digits.probabilities[tests], thresholds).sum(axis=1)
                sizes[name].append(float(in_set.mean()))
            if advance is not None:
                advance(split, SPLITS)
    return {
        name: (
            np.mean(runs, axis=0),
            np.std(runs, axis=0, ddof=1) / math.sqrt(SPLITS),
            float(np.mean(sizes[name])),
        )
        for name, runs in found.items()
    }


# --- what is shown -----------------------------------------------------------------------------


def _show(
    reports: dict[str, AuditReport], averages: dict[str, tuple[Floats, Floats, float]]
) -> None:
    """Print two tables: the audit of the first split, and the averages over all splits."""
    colours = {"kept": "green", "broken": "bold red"}
    short = {UNKNOWN: "too few"}
    ours = reports[OURS]

    def audited(report: AuditReport, g: int) -> console.Cell:
        record = report.groups[g]
        coverage = f"{record.found} " if record.coverage is None else f"{record.coverage:.3f} "
        return coverage + short.get(record.verdict, record.verdict), colours.get(record.verdict, "")

    _say("")
    console.table(
        ["group", "records", *reports],
        [
            [record.group, f"{record.total:,}", *(audited(r, g) for r in reports.values())]
            for g, record in enumerate(ours.groups)
        ],
        title=f"The audit of one split: coverage and verdict, {1 - ALPHA:g} promised "
        f"({ours.confidence:.0%} confidence; too few: there are too few records to tell)",
    )
    console.lines(f"mixture of the clients: {ours.mixture_text}")

    def averaged(name: str, g: int) -> console.Cell:
        mean, error = averages[name][0][g], averages[name][1][g]
        below = mean + 3 * error < 1 - ALPHA
        style = "bold red" if below else "green" if mean >= 1 - ALPHA else ""
        return f"{mean:.3f} ± {error:.3f}{' below' if below else ''}", style

    console.table(
        ["group", *reports],
        [
            *(
                [record.group, *(averaged(name, g) for name in reports)]
                for g, record in enumerate(ours.groups)
            ),
            ["labels in a set", *(f"{averages[name][2]:.2f}" for name in reports)],
        ],
        title=f"Averages over {SPLITS} random splits: coverage ± standard error "
        f"(below: more than 3 standard errors below {1 - ALPHA:g})",
    )


def _save_picture(
    reports: dict[str, AuditReport], averages: dict[str, tuple[Floats, Floats, float]]
) -> None:
    """coverage.png: the averages over the splits, with those of gcfcp on top."""
    from matplotlib.figure import Figure

    from gcfcp import plots

    drawn = {
        name: replace(
            reports[name],
            groups=tuple(
                replace(g, coverage=float(m), low=float(m - 2 * e), high=float(m + 2 * e))
                for g, m, e in zip(reports[name].groups, *averages[name][:2], strict=True)
            ),
        )
        for name in (OURS, *BASELINES)
    }
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    ax = plots.coverage_by_group(drawn, figure.subplots())
    ax.set_xlabel(
        f"coverage on digits at {len(SITES)} sites (line: the promised {1 - ALPHA:.0%})\n"
        f"mean of {SPLITS} random splits; bars: ± 2 standard errors"
    )
    figure.savefig("coverage.png", dpi=120)
