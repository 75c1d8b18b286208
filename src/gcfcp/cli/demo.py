"""A whole federated calibration on built-in data, from files to a report.

Five sites hold handwritten digits (scikit-learn's, 1,797 of them), each site other ones. A model
was trained elsewhere on 200 of the images. Each site summarises the scores of a third of its images
and sends one small file; the summaries become a predictor; each site audits it on its other images.
Split CP and FedCP, which know no groups, get the same records.

The steps are commands of `gcfcp`, run here in this process exactly as they are printed; commands.sh
holds them for doing the same by hand. The table of averages repeats the random split, and states
its standard error.
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
from numpy.typing import NDArray

from gcfcp import methods, scores
from gcfcp.audit import UNKNOWN, Audit, AuditReport, merge_audits
from gcfcp.cli import console
from gcfcp.cli.entry import run as run_command
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.prediction import Predictor
from gcfcp.summary import ClientSummary

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]

ALPHA = 0.1
TRAINING = 200
CALIBRATION = 0.35  # of the rest; an audit that can tell takes more records than a calibration
SPLITS = 30
SITES = {
    "north": (0, 1, 2),
    "east": (3, 4),
    "south": (5, 6),
    "west": (7,),
    "centre": (8, 9),
}
GROUPS_TOML = """\
# Who is promised coverage. One family for all sites; groups may overlap.
[groups]
everyone = "TRUE"
round = "predicted in (0, 6, 8, 9)"
hooked = "predicted in (2, 3, 5, 9)"
faint = "ink < 280"
unsure = "top < 0.5"
"""
BASELINES: dict[str, tuple[str, Callable[..., Any]]] = {
    "split CP": ("split-cp", methods.split_cp),
    "FedCP": ("fedcp", methods.fedcp),
}
OURS = "gcfcp"


@dataclass(frozen=True)
class _Digits:
    """All images that the model was not trained on, as a table; and its accuracy there."""

    frame: pl.DataFrame
    probabilities: Floats
    y: NDArray[np.int64]
    site: NDArray[np.int64]
    accuracy: float

    def calibrates(self, split: int) -> NDArray[np.bool_]:
        """Which records calibrate; the others audit."""
        return np.random.default_rng([20, split]).random(len(self.y)) < CALIBRATION


def run(
    directory: str | None = None, *, force: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Run the demo; the result says what was found and where the files are."""
    _need_scikit_learn()
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
        commands = _commands()
        Path("commands.sh").write_text(
            "#!/bin/sh\n# What the demo did, by hand; --force, as the files are there already.\n"
            + "set -e\n"
            + "".join(f"{_as_text([*c, '--force'] if '-o' in c else c)}\n" for c in commands),
            encoding="utf-8",
        )
        _save_picture(reports, averages)
    result = {
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
    (place / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not quiet:
        _show(reports, averages)
        say(f"\nEvery file is in {place}. The same by hand, in that directory (commands.sh):\n")
        for command in commands:
            say(f"  {_as_text(command)}")
        say(f"\nThe report: {place / 'report.html'}")
    return result


def _say(text: str) -> None:
    print(text, flush=True)


def _silent(text: str) -> None:
    pass


def _need_scikit_learn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise GCFCPError(
            "the demo needs scikit-learn, which is not installed: pip install 'gcfcp[demo]'"
        ) from None


def _place(directory: str | None, force: bool) -> Path:
    """A directory for the files: the one that was asked for, or a fresh ./gcfcp-demo."""
    if directory is None and not force:
        names = ["gcfcp-demo", *(f"gcfcp-demo-{i}" for i in range(2, 1000))]
        directory = next((n for n in names if not os.path.lexists(n)), names[-1])
    path = Path(directory or "gcfcp-demo")
    try:
        if path.exists() and not force and any(path.iterdir()):
            raise GCFCPError(f"{path} holds files: give another directory, or --force")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GCFCPError(f"cannot use directory {path}: {error.strerror}") from None
    return path.resolve()


# --- data --------------------------------------------------------------------------------------


def _digits() -> _Digits:
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
    return [f"{name}.gcfcp" for name in SITES]


def _audits(method: str) -> list[str]:
    return [f"{name}-{method}.audit" for name in SITES]


def _audit_commands(method: str, predictor: str) -> list[list[str]]:
    return [
        ["audit", predictor, f"{name}-labelled.csv", "--client", name, "-o", file]
        for name, file in zip(SITES, _audits(method), strict=True)
    ]


def _commands() -> list[list[str]]:
    """Everything, in order, as typed in the directory of the files."""
    baselines = [
        text
        for name, (method, _) in BASELINES.items()
        for text in ("--baseline", f"{name}=*-{method}.audit")
    ]
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
        ["report", "predictor.json", *_audits(OURS), *baselines, "-o", "report.html"],
    ]


def _as_text(command: Sequence[str]) -> str:
    return shlex.join(["gcfcp", *command])


def _calibrate_and_audit(digits: _Digits, say: Callable[[str], None]) -> dict[str, AuditReport]:
    _save_baselines(digits)
    told = set()
    headings = {
        "summarize": "2. Each site summarises its scores; only the summary leaves it.",
        "plan": "3. Will every group get a finite threshold?",
        "calibrate": "4. The summaries become one predictor, from which sets follow anywhere.",
        "audit": "5. Each site counts who was covered among its labelled records; and the same "
        "with split CP and FedCP.",
        "report": "6. One page to show.",
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
    return {
        name: merge_audits([Audit.load(file) for file in _audits(method)])
        for name, method in {
            **{name: method for name, (method, _) in BASELINES.items()},
            OURS: OURS,
        }.items()
    }


def _run(command: Sequence[str]) -> str:
    """Run a command here, and return what it printed; its notes are kept from the terminal."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        run_command(command)
    return out.getvalue()


def _guarantee_in_words(predictor: Predictor) -> str:
    bounds = [g["certified"] for g in predictor.provenance["guarantee"]]
    status = predictor.provenance["guarantee"][0]["certified_status"]
    return f"coverage of at least {min(bounds):g} in each of {len(bounds)} groups ({status})"


def _save_baselines(digits: _Digits) -> None:
    groups = Groups.from_toml("groups.toml")
    clients = _clients(digits, groups.membership(digits.frame), digits.calibrates(0))
    for method, make in BASELINES.values():
        result = make(clients, ALPHA, groups=groups)
        Predictor(scores.THR(), result).save(f"{method}.json")


def _clients(
    digits: _Digits, membership: NDArray[np.bool_], chosen: NDArray[np.bool_]
) -> list[tuple[Floats, NDArray[np.bool_]]]:
    values = scores.THR().of(digits.probabilities, digits.y)
    return [
        (values[chosen & (digits.site == k)], membership[chosen & (digits.site == k)])
        for k in range(len(SITES))
    ]


# --- many splits -------------------------------------------------------------------------------


def _averages(digits: _Digits) -> dict[str, tuple[Floats, Floats, float]]:
    """For each method: mean coverage of the groups over the splits, its standard error, size.

    Every site weighs the same, as in the calibration.
    """
    groups = Groups.from_toml("groups.toml")
    membership = groups.membership(digits.frame)
    values = scores.THR().of(digits.probabilities, digits.y)
    found: dict[str, list[Floats]] = {name: [] for name in (*BASELINES, OURS)}
    sizes: dict[str, list[float]] = {name: [] for name in found}
    with console.progress(f"{SPLITS} more splits") as advance:
        for split in range(1, SPLITS + 1):
            calibrates = digits.calibrates(split)
            clients = _clients(digits, membership, calibrates)
            tests = ~calibrates
            inside = membership[tests]
            weight = 1 / np.bincount(digits.site[tests])[digits.site[tests]]
            for name in found:
                make = BASELINES[name][1] if name in BASELINES else methods.gcfcp
                thresholds = make(clients, ALPHA, groups=groups).thresholds(inside)
                covered = values[tests] <= thresholds
                found[name].append((weight * covered) @ inside / (weight @ inside))
                in_set = scores.THR().predict(digits.probabilities[tests], thresholds).sum(axis=1)
                sizes[name].append(float(weight @ in_set / weight.sum()))
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
    colours = {"kept": "green", "broken": "bold red"}
    short = {UNKNOWN: "too few"}
    ours = reports[OURS]

    def audited(report: AuditReport, g: int) -> console.Cell:
        record = report.groups[g]
        coverage = "" if record.coverage is None else f"{record.coverage:.3f} "
        return coverage + short.get(record.verdict, record.verdict), colours.get(record.verdict, "")

    print()
    console.table(
        ["group", "records", *reports],
        [
            [record.group, f"{record.total:,}", *(audited(r, g) for r in reports.values())]
            for g, record in enumerate(ours.groups)
        ],
        title=f"This split, audited: coverage and verdict, {1 - ALPHA:g} promised "
        f"({ours.confidence:.0%} confidence; too few: records, to tell)",
    )

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
        title=f"Averaged over {SPLITS} random splits: coverage ± standard error "
        f"(below: by more than 3 of them)",
    )


def _save_picture(
    reports: dict[str, AuditReport], averages: dict[str, tuple[Floats, Floats, float]]
) -> None:
    """coverage.png: the averages over the splits, ours on top."""
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
