"""Five statistical offices calibrate one income model on the command line, from data to report.

The records are made here and look like those of the census data set "Adult": age, sex, race,
education, hours, and whether a person earns more than 50,000 a year. The offices differ in size and
in whom they have on record. One of them exports its tables with semicolons, and with blanks before
every text. Each runs the same commands. At the end there is a report to look at, and the time that
every step took.

    python examples/census.py                  in a new directory ./census
    python examples/census.py --output DIR
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import gcfcp

NUMBERS, WORDS = ["age", "education-num", "hours-per-week"], ["sex", "race", "workclass"]
# The records of each office, the mean age there, and how much harder its outcomes are to predict.
OFFICES = {
    "north": (6000, 38, 1.0),
    "south": (4000, 42, 1.2),
    "east": (2500, 36, 1.0),
    "west": (1500, 45, 1.6),
    "islands": (800, 50, 1.3),
}
ALPHA = "0.1"


def people(rng: np.random.Generator, n: int, age: float = 40, noise: float = 1.0) -> pl.DataFrame:
    """Records of n people with their income."""
    frame = pl.DataFrame(
        {
            "age": np.clip(rng.normal(age, 14, n), 17, 90).round().astype(int),
            "education-num": np.clip(rng.normal(10, 2.5, n), 1, 16).round().astype(int),
            "hours-per-week": np.clip(rng.normal(40, 12, n), 1, 99).round().astype(int),
            "sex": rng.choice(["Female", "Male"], n, p=[0.33, 0.67]),
            "race": rng.choice(["White", "Black", "Asian", "Other"], n, p=[0.83, 0.1, 0.04, 0.03]),
            "workclass": rng.choice(
                ["Private", "Government", "Self-employed"], n, p=[0.7, 0.2, 0.1]
            ),
        }
    )
    years, schooling = frame["age"].to_numpy(), frame["education-num"].to_numpy()
    earns = -3.4 + 0.32 * (schooling - 10) + 0.035 * (frame["hours-per-week"].to_numpy() - 40)
    earns += (
        0.06 * (years - 38)
        - 0.0022 * (years - 48.0) ** 2
        + 1.3 * (frame["sex"] == "Male").to_numpy()
    )
    # The model knows nothing of this: the self-employed are harder to predict.
    own = (frame["workclass"] == "Self-employed").to_numpy()
    earns += noise * rng.logistic(size=n) * np.where(own, 2.5, 1.0)
    return frame.with_columns(y=pl.Series(np.where(earns > -1.2, ">50K", "<=50K")))


def train(rng: np.random.Generator) -> object:
    """The model that all offices share. It was fitted to records of none of them."""
    prepare = make_column_transformer(
        (StandardScaler(), NUMBERS), (OneHotEncoder(handle_unknown="ignore"), WORDS)
    )
    records = people(rng, 5000)
    return make_pipeline(prepare, LogisticRegression(max_iter=1000)).fit(
        records.select(NUMBERS + WORDS), records["y"].to_numpy()
    )


def write_tables(directory: Path) -> None:
    """The tables of all offices: records to calibrate with, and later ones."""
    rng = np.random.default_rng(2026)
    model = train(rng)
    for office, (n, age, noise) in OFFICES.items():
        for part, size in {"calibration": n, "later": n}.items():
            frame = people(rng, size, age, noise)
            p = model.predict_proba(frame.select(NUMBERS + WORDS))
            frame = frame.with_columns(
                **{f"proba_{label}": p[:, i] for i, label in enumerate(model.classes_)}
            )
            path = directory / f"{office}-{part}.csv"
            if office == "west":  # As the files of "Adult" have it.
                frame = frame.with_columns((" " + pl.col(word)).alias(word) for word in WORDS)
                frame.write_csv(path, separator=";")
            else:
                frame.write_csv(path)


def groups() -> gcfcp.Groups:
    """The groups that are promised coverage, the same at every office."""
    everyone = gcfcp.Group("everyone", "TRUE")
    women = gcfcp.Group("women", "trim(sex) = 'Female'")  # One office has blanks before it.
    over_65 = gcfcp.Group("over_65", "age >= 65")
    graduates = gcfcp.Group("graduates", '"education-num" >= 13')
    own = gcfcp.Group("self_employed", "trim(workclass) = 'Self-employed'")
    return gcfcp.Groups([everyone, women, over_65, graduates, own, women & graduates])


def commands() -> list[tuple[str, list[str]]]:
    """What is typed: the step of the day, and the command."""
    gives = {office: ["--separator", ";"] if office == "west" else [] for office in OFFICES}
    summaries, audits = ([f"{o}.{kind}" for o in OFFICES] for kind in ("gcfcp", "audit"))
    every: list[tuple[str, list[str]]] = []
    for o, more in gives.items():
        made = ["--groups", "groups.toml", "--client", o, "-o", f"{o}.gcfcp"]
        every.append(("summarize", ["summarize", f"{o}-calibration.csv", *made, *more]))
    every.append(("inspect", ["inspect", "islands.gcfcp"]))
    every.append(("plan", ["plan", *summaries, "--alpha", ALPHA]))
    every.append(("calibrate", ["calibrate", *summaries, "--alpha", ALPHA, "-o", "predictor.json"]))
    every.append(("predict", ["predict", "predictor.json", "north-later.csv", "-o", "sets.csv"]))
    for o, more in gives.items():
        made = ["--client", o, "-o", f"{o}.audit", "--round", "2026Q4"]
        every.append(("audit", ["audit", "predictor.json", f"{o}-later.csv", *made, *more]))
    every.append(("audit-merge", ["audit-merge", *audits, "--sites"]))
    told = ["--title", "Income model", "--model", "logistic regression", "--owner", "A. Officer"]
    every.append(("report", ["report", "predictor.json", *audits, *told, "-o", "report.html"]))
    return every


def main() -> None:
    """Run the day."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="census", help="a new directory for the files")
    directory = Path(parser.parse_args().output)
    directory.mkdir(parents=True)
    begun = time.perf_counter()
    times: dict[str, float] = {}
    write_tables(directory)
    family = groups()
    (directory / "groups.toml").write_text(family.to_toml())
    north = pl.read_csv(directory / "north-calibration.csv")
    print(f"At north, before anything is sent:\n{family.count(north)}\n")
    times["data and model"] = time.perf_counter() - begun
    program = Path(sys.executable).with_name("gcfcp")
    for step, arguments in commands():
        print("$", shlex.join(["gcfcp", *arguments]), flush=True)
        began = time.perf_counter()
        subprocess.run([program, *arguments], cwd=directory, check=True)
        times[step] = times.get(step, 0.0) + time.perf_counter() - began
        print(flush=True)
    print("seconds:", ", ".join(f"{step} {seconds:.1f}" for step, seconds in times.items()))
    print(f"in all {sum(times.values()):.0f} s; open {directory / 'report.html'} in a browser")


if __name__ == "__main__":
    main()
