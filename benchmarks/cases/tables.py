"""Predictions of a table on disk, and how long it takes until gcfcp is there.

Both run in a process of their own, as a user would start them, which tells its processor time and
the most memory that it held.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

import gcfcp
from benchmarks.measure import Case, Elsewhere, Entry, Ratio, Scale, at_most, check, race

_TELLS = """
import json, resource, time
from pathlib import Path
status = Path("/proc/self/status")
if status.exists():
    peak = int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": time.process_time(), "peak": peak}))
"""
_OURS = """
import sys, gcfcp
from gcfcp.tables import open_table, predict_table
with open_table(sys.argv[1]) as table:
    predict_table(table, gcfcp.Predictor.load(sys.argv[2]), sys.argv[3])
"""
_BY_HAND = """
import sys, gcfcp, polars as pl
predictor = gcfcp.Predictor.load(sys.argv[2])
frame = getattr(pl, "read_" + sys.argv[1].rsplit(".", 1)[1])(sys.argv[1])
member = predictor.groups.membership(frame.select("age"))
frame.drop("age").to_numpy() >= 1 - predictor.thresholds(member)[:, None]
"""


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    """A folder for compiled modules, which users have from their first run on."""
    return tempfile.TemporaryDirectory(prefix="gcfcp-bench-")


@dataclass(frozen=True)
class Ran:
    """What a program in a process of its own took and said."""

    time: Elsewhere  # Its processor time.
    peak: float  # The MB that it held at most.
    said: str  # What it printed.


def _run(program: str, *arguments: str) -> Ran:
    """Run a program as a user has it: its modules are compiled, but for those of the first run."""
    threads = {"OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    compiled = {"PYTHONPYCACHEPREFIX": _compiled().name, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program + _TELLS, *arguments],
        env={**os.environ, **threads, **compiled},
        capture_output=True,
        text=True,
        check=True,
    )
    *said, last = done.stdout.splitlines()
    told = json.loads(last)
    return Ran(Elsewhere(told["seconds"]), told["peak"], "\n".join(said))


def _predictor(labels: int) -> gcfcp.Predictor:
    """A predictor of two groups."""
    rng = np.random.default_rng(6)
    groups = gcfcp.Groups({"all": "TRUE", "old": "age >= 65"})
    probabilities = rng.dirichlet(np.full(labels, 0.05), size=2_000)
    member = groups.membership({"age": rng.integers(20, 90, len(probabilities))})
    y = (probabilities.cumsum(axis=1) > rng.random((len(probabilities), 1))).argmax(axis=1)
    thr = gcfcp.scores.THR()
    summary = gcfcp.summarize(
        thr.of(probabilities, y), member, groups=groups, client="a", score=thr
    )
    return gcfcp.Predictor(thr, gcfcp.calibrate([summary], 0.1))


def files(scale: Scale) -> list[Case]:
    """`predict` of a table, beside reading it and comparing."""
    L = scale.size(1_000, 20)
    predictor = _predictor(L)
    found = []
    for kind, n, most in (
        ("parquet", scale.size(100_000, 1_000), 1.5),
        ("csv", scale.size(20_000, 500), 2.0),
    ):
        with tempfile.TemporaryDirectory() as folder:
            names = [str(Path(folder) / name) for name in (f"in.{kind}", "p.json", f"out.{kind}")]
            rng = np.random.default_rng(7)
            p = rng.gamma(0.05, 1.0, size=(n, L)).astype(np.float32) + np.float32(1e-6)
            p /= p.sum(axis=1, keepdims=True)
            columns = {f"proba_{label}": p[:, label] for label in range(L)}
            table = pl.DataFrame({"age": rng.integers(20, 90, n), **columns})
            table.write_parquet(names[0]) if kind == "parquet" else table.write_csv(names[0])
            predictor.save(names[1])
            _run(_OURS, *names)  # Modules are compiled now.
            peak, by_hand = _run(_OURS, *names).peak, _run(_BY_HAND, *names).peak
            sizes = (pl.read_parquet if kind == "parquet" else pl.read_csv)(names[2])["size"]
            rows = predictor.groups.membership(table.select("age"))
            expected = predictor.predict_set(p, rows).sum(axis=1)
            what = f"{kind}: every set has as many labels as in memory"
            checked = check(np.array_equal(sizes.to_numpy(), expected), what)
            runs = {
                "gcfcp, file to file": lambda names=names: _run(_OURS, *names).time,
                "reading and comparing": lambda names=names: _run(_BY_HAND, *names).time,
            }
            times = race(runs, min(scale.turns, 5))
        ratio = Ratio.of(times["gcfcp, file to file"], times["reading and comparing"])
        targets = [at_most("time / reading and comparing", ratio, most)]
        if kind == "parquet":
            targets.append(at_most("peak MB", peak, 500))
        found.append(
            Case(
                f"file-{kind}",
                f"prediction sets of a {kind} file",
                f"{n:,} rows x {L:,} labels, float32, one thread, start-up included",
                tuple(
                    Entry(name, t, figures={"peak MB": held})
                    for (name, t), held in zip(times.items(), (peak, by_hand), strict=True)
                ),
                tuple(targets),
                (checked,),
            )
        )
    return found


_LOAD = "import sys, gcfcp\npredictor = gcfcp.Predictor.load(sys.argv[1])"
_STARTS = {
    "import numpy": "import numpy",
    "import gcfcp": "import gcfcp",
    "import gcfcp, load a predictor": _LOAD,
    "import gcfcp, load a predictor, predict a row": f"""{_LOAD}
import json
rows = json.loads(sys.argv[2]), [[True, False]]
print(json.dumps(predictor.predict_set(*rows).tolist()))
""",
}


def start(scale: Scale) -> list[Case]:
    """Start-up: `import gcfcp`, a loaded predictor and its first row, beside `import numpy`."""
    predictor = _predictor(10)
    row = [[0.91] + [0.01] * 9]
    with tempfile.TemporaryDirectory() as folder:
        name = str(Path(folder) / "p.json")
        predictor.save(name)
        runs = {
            what: lambda program=program: _run(program, name, json.dumps(row)).time
            for what, program in _STARTS.items()
        }
        for run in runs.values():
            run()  # Modules are compiled now.
        *_, whole = _STARTS.values()
        found = json.loads(_run(whole, name, json.dumps(row)).said)
        expected = predictor.predict_set(row, [[True, False]]).tolist()
        times = race(runs, scale.turns)
    _, imported, loaded, predicted = times.values()
    return [
        Case(
            "start",
            "start-up",
            "a fresh process, processor time, the interpreter included, modules compiled",
            tuple(Entry(k, t) for k, t in times.items()),
            (
                at_most("import gcfcp, seconds", imported.median, 0.3),
                at_most("import gcfcp and load a predictor, seconds", loaded.median, 0.5),
                at_most("the same and predict a row, seconds", predicted.median, 0.5),
            ),
            (check(found == expected, "the set of the row is that of the predictor in memory"),),
        )
    ]
