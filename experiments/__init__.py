"""The paper's experiments, one preset each: `python3 dev.py reproduce NAME`.

    outcome = experiments.run("cifar10", probs="cifar10_resnet56.npz", out="results")

Each preset writes into its directory

    NAME.md      tables with the paper's value beside ours, and a verdict for each row
    runs.csv     tidy: one row a run, method and group
    costs.csv    what each method sent and solved
    *.png, *.svg the figures

and every file holds the command that made it. Results depend on the seed and the data alone, not
on the number of processes; an interrupted run goes on where it was (`montecarlo`).

    synthetic       a preset, as are cifar10, pathmnist and imagenet
    windows         what cifar10 and pathmnist have in common
    montecarlo      repetitions on all cores
    probabilities   probability files, and the simulated softmax where there is none
    evaluate        the methods side by side on the same test records
    timing          seconds a test point, against the paper's bisection
    tables          the paper's numbers (`paper.toml`) beside ours
    figures         the paper's figures
    models          probability files from images and a network
    validity        the promise in random federations

The package gcfcp never imports the experiments, and its wheel does not contain them.
"""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from gcfcp import codec
from gcfcp.errors import GCFCPError

__all__ = ["NAMES", "Outcome", "run"]

NAMES = ("synthetic", "cifar10", "pathmnist", "imagenet")


@dataclass(frozen=True)
class Outcome:
    """What a preset found, and where it is written."""

    name: str
    directory: Path
    files: tuple[Path, ...]
    text: str = field(repr=False)  # NAME.md
    verdicts: tuple[tuple[str, str, str], ...]  # (row, number, verdict)
    source: str
    simulated: bool

    def to_json(self) -> str:
        return json.dumps(
            {
                "name": self.name,
                "directory": str(self.directory),
                "files": [f.name for f in self.files],
                "source": self.source,
                "simulated": self.simulated,
                "verdicts": [
                    {"row": row, "number": number, "verdict": verdict}
                    for row, number, verdict in self.verdicts
                ],
            },
            ensure_ascii=False,
        )


@dataclass
class _Context:
    """What a preset's report is told, and the files that it saves."""

    settings: dict[str, Any]
    arrays: dict[str, Any]
    runs: int
    simulated: bool
    header: str  # the command and the data, for every file
    files: list[Path] = field(default_factory=list)

    @property
    def label(self) -> str:
        return "SIMULATED data" if self.simulated else ""

    def save(self, made: Any, path: Path) -> None:
        from experiments import figures

        self.files += figures.save(made, path, self.header)


def run(
    name: str,
    probs: str | PathLike[str] | None = None,
    runs: int | None = None,
    out: str | PathLike[str] | None = None,
    seed: int = 0,
    *,
    jobs: int | None = None,
    progress: bool | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run a preset and write its results into `out` (gcfcp-NAME in this directory by default).

    probs: a probability file (see `probabilities`); without one, cifar10, pathmnist and imagenet
    run on a simulated softmax and say so in every output. runs: repetitions, by default the
    paper's. jobs: processes, by default one a core. progress: a bar, by default on a terminal.
    settings: changes to the preset's own, written into every output.
    """
    preset = _preset(name)
    if name == "synthetic" and probs is not None:
        raise GCFCPError("the synthetic preset draws its own data: leave --probs out")
    if type(seed) is not int or seed < 0:
        raise GCFCPError(f"seed={seed!r} is not a whole number of at least 0")
    unknown = set(settings or {}) - set(preset.SETTINGS)
    if unknown:
        raise GCFCPError(f"{name} has no setting {sorted(unknown)[0]!r}")
    chosen = {**preset.SETTINGS, **(settings or {}), "seed": seed}
    repetitions = preset.RUNS if runs is None else runs
    directory = Path(f"gcfcp-{name}" if out is None else out)
    command = _command(name, probs, runs, out, seed, settings)

    from experiments import montecarlo, tables

    arrays, source, simulated = preset.prepare(probs, chosen, seed)
    outcomes = montecarlo.repeat(
        preset.one,
        arrays,
        chosen,
        repetitions,
        directory,
        title=name,
        jobs=jobs,
        progress=progress,
    )
    records = [r for o in outcomes for r in o["records"]]
    costs = [c for o in outcomes for c in o["costs"]]
    notice = "SIMULATED DATA, " if simulated else ""
    header = f"{command}  ({notice}{source})"
    context = _Context(chosen, arrays, repetitions, simulated, header)
    body, verdicts = preset.report(records, costs, context, directory)
    texts = {
        f"{name}.md": _document(preset.TITLE, command, source, simulated, chosen, repetitions)
        + "\n".join(body)
        + _verdicts(verdicts),
        "runs.csv": tables.csv_text(records, header),
        "costs.csv": tables.csv_text(costs, header),
    }
    for file, text in texts.items():
        codec.write(directory / file, text.encode())
    montecarlo.forget(directory)
    files = tuple(directory / file for file in texts) + tuple(context.files)
    return Outcome(name, directory, files, texts[f"{name}.md"], tuple(verdicts), source, simulated)


def _preset(name: str) -> Any:
    if name not in NAMES:
        raise GCFCPError(f"{name!r} is none of {', '.join(NAMES)}")
    return importlib.import_module(f"experiments.{name}")


def _command(
    name: str, probs: Any, runs: Any, out: Any, seed: int, settings: Mapping[str, Any] | None
) -> str:
    parts = ["python3", "dev.py", "reproduce", name]
    for option, value in (("--probs", probs), ("--runs", runs), ("-o", out)):
        if value is not None:
            parts += [option, str(value) if isinstance(value, int) else fspath(value)]
    if seed:
        parts += ["--seed", str(seed)]
    changed = f"  # with settings {json.dumps(dict(settings))}" if settings else ""
    return shlex.join(parts) + changed


def _document(
    title: str,
    command: str,
    source: str,
    simulated: bool,
    settings: Mapping[str, Any],
    runs: int,
) -> str:
    warning = (
        "**SIMULATED DATA.** No probability file was given. Coverage and its differences between "
        "methods are real; set sizes are those of the simulation, and differences from the "
        "paper's numbers say nothing about the paper.\n\n"
        if simulated
        else ""
    )
    shown = {k: v for k, v in settings.items() if k != "simulation" or simulated}
    listed = "\n".join(f"- {k}: `{json.dumps(v)}`" for k, v in shown.items() if len(str(v)) < 400)
    return (
        f"# {title}\n\n    {command}\n\n{warning}Data: {source}. {runs} runs.\n\n"
        f"<details><summary>Settings</summary>\n\n{listed}\n\n</details>\n\n"
    )


def _verdicts(verdicts: list[tuple[str, str, str]]) -> str:
    """One line for each row of a table and kind of number; what differs is listed with why."""
    from experiments import tables

    by_row: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row, number, verdict in verdicts:
        kind, _, item = number.partition(", ")
        by_row.setdefault((row, kind), []).append((item, verdict))
    lines = []
    for (row, kind), own in by_row.items():
        met = [v for _, v in own if _is_met(v)]
        missed: dict[str, list[str]] = {}
        for item, verdict in own:
            if verdict not in met:
                difference, _, why = verdict.partition(": ")
                missed.setdefault(why, []).append(f"{item} {difference}".strip())
        said = "; ".join(f"{', '.join(items)} ({why})" for why, items in missed.items())
        lines.append([row, kind, f"{len(met)} of {len(own)}", said or "-"])
    counts = []
    for kind in dict.fromkeys(kind for _, kind in by_row):
        own_kind = [v for (_, k), own in by_row.items() if k == kind for _, v in own]
        counts.append(f"{kind}: {sum(map(_is_met, own_kind))} of {len(own_kind)}")
    return (
        "\n## Verdict by row\n\nWithin three standard errors of what the paper prints: "
        + "; ".join(counts)
        + ".\n\n"
        + tables.markdown(["row", "number", "as the paper", "differs by"], lines)
    )


def _is_met(verdict: str) -> bool:
    return verdict.startswith(("within", "as the paper"))
