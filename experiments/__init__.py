"""The paper's experiments. Each is a preset: `python3 dev.py reproduce NAME`.

    outcome = experiments.run("cifar10", probs="cifar10_resnet56.npz", out="results")

Each preset writes these files into its directory:

    NAME.md      tables with the paper's value beside ours, and a verdict for each row
    runs.csv     one row for each run, method and group
    costs.csv    what each method sent and solved
    *.png, *.svg the figures

Every file holds the command that made it. Results depend only on the seed and the data, and not on
the number of processes. An interrupted run goes on where it was (see `montecarlo`).

| module            | what it is for                                                          |
|-------------------|-------------------------------------------------------------------------|
| `synthetic`       | a preset, as are `cifar10`, `pathmnist` and `imagenet`                  |
| `many_sites`      | another preset, which is not the paper's: the same records, more sites  |
| `shape_and_level` | another one: summaries by group beside summaries by atom                |
| `sites`           | what these two have in common                                           |
| `windows`         | what `cifar10` and `pathmnist` have in common                           |
| `montecarlo`      | repetitions on all cores                                                |
| `probabilities`   | probability files, and the simulated softmax where there is no file     |
| `evaluate`        | the methods side by side on the same test records                       |
| `timing`          | the seconds for one test point, against the paper's bisection           |
| `tables`          | the paper's numbers (`paper.toml`) beside ours                          |
| `figures`         | the paper's figures                                                     |
| `models`          | probability files from images and a network                             |
| `validity`        | another study: is the promise kept in random federations?               |
| `federations`     | the random federations of this study                                    |

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

NAMES = ("synthetic", "cifar10", "pathmnist", "imagenet", "many-sites", "shape-and-level")


@dataclass(frozen=True)
class Outcome:
    """What a preset found, and where it was written."""

    name: str
    directory: Path
    files: tuple[Path, ...]
    text: str = field(repr=False)  # The content of NAME.md.
    verdicts: tuple[tuple[str, str, str], ...]  # (row, number, verdict) for each paper's number.
    source: str  # Where the data come from, in words.
    simulated: bool

    def to_json(self) -> str:
        """The outcome for programs, without the text."""
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
    """What the report of a preset gets to know, and the files that it saves."""

    settings: dict[str, Any]
    arrays: dict[str, Any]
    runs: int
    simulated: bool
    header: str  # The command and the source of the data, which every file holds.
    files: list[Path] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The words on every figure if the data are simulated, or nothing."""
        return "SIMULATED data" if self.simulated else ""

    def save(self, made: Any, path: Path) -> None:
        """Write a figure, and remember its files."""
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
    """Run a preset and write its results into the directory `out`, by default gcfcp-NAME.

    probs: A probability file (see `probabilities`). Without one, cifar10, pathmnist and imagenet
    run on a simulated softmax and say so in every output. many-sites and shape-and-level look in
    ../shared/data first.
    runs: The number of repetitions, by default the paper's.
    seed: The seed of everything that is drawn.
    jobs: The number of processes, by default one for each core.
    progress: Whether a progress bar is shown, by default on a terminal only.
    settings: Changes to the preset's own settings. They are written into every output.
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
        + (_verdicts(verdicts) if getattr(preset, "FROM_PAPER", True) else ""),
        "runs.csv": tables.csv_text(records, header),
        "costs.csv": tables.csv_text(costs, header),
    }
    for file, text in texts.items():
        codec.write(directory / file, text.encode())
    montecarlo.forget(directory)
    files = tuple(directory / file for file in texts) + tuple(context.files)
    return Outcome(name, directory, files, texts[f"{name}.md"], tuple(verdicts), source, simulated)


def _preset(name: str) -> Any:
    """The module of a preset."""
    if name not in NAMES:
        raise GCFCPError(f"{name!r} is not one of {', '.join(NAMES)}")
    return importlib.import_module(f"experiments.{name.replace('-', '_')}")


def _command(
    name: str, probs: Any, runs: Any, out: Any, seed: int, settings: Mapping[str, Any] | None
) -> str:
    """The command that repeats this run."""
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
    """The head of NAME.md: title, command, data and settings."""
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
    """The last section of NAME.md: one line for each row of a table and kind of number.

    Numbers that differ from the paper's are listed with the reason.
    """
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
    """Whether the verdict says that our number agrees with the paper's."""
    return verdict.startswith(("within", "as the paper"))
