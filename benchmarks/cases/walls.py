"""Many atoms, many groups and many clients: where the time of a calibration grows fastest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import gcfcp
from benchmarks import data
from benchmarks.cases.clients import _sent
from benchmarks.measure import Case, Elsewhere, Entry, Ratio, Scale, at_most, check, race
from benchmarks.oracles import WAYS, plain_lp

ALPHA = 0.1
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# A thread that BLAS has woken stays busy for a while, which counts too.
_ONE_THRESHOLD = """
import sys, time
from benchmarks import data
from benchmarks.cases.thresholds import _coreset, _solve
n, groups, atoms = map(int, sys.argv[1:])
coreset = _coreset(data.overlapping(n, groups=groups, atoms=atoms, seed=9))
_solve(coreset, coreset.membership[:1])
time.sleep(0.3)
began = time.process_time()
found = _solve(coreset, coreset.membership[:1])
time.sleep(0.3)
print(time.process_time() - began, *found)
"""
_BUSY = "import time; end = time.monotonic() + 300\nwhile time.monotonic() < end: pass"


def _summaries(problem: data.Scored, clients: int = 1) -> list[gcfcp.ClientSummary]:
    """Summaries with every score, of records that are dealt out to this many clients."""
    owner = np.arange(len(problem.scores)) % clients
    return [
        gcfcp.summarize(
            problem.scores[owner == k],
            problem.membership[owner == k],
            groups=problem.groups,
            client=f"{k:03}",
            delta=4.0 * len(problem.scores) + 4,  # Every score is a centroid of its own.
        )
        for k in range(clients)
    ]


def atoms(scale: Scale) -> list[Case]:
    """All thresholds of many atoms, beside one LP at its best setting.

    One client has the weight of one record, which is what a federation has whose groups are known
    to be unimodular. Twenty clients with the paper's weight have that of 20.
    """
    n = scale.size(40_000, 2_000)
    problems = {
        size: data.overlapping(n, groups=16, atoms=size, seed=9)
        for size in (scale.size(2_000, 60), scale.size(5_000, 150))
    }
    few, many = problems
    sites = data.at_sites(
        n, sites=scale.size(50, 5), others=14, atoms=scale.size(1_000, 60), seed=9
    )
    problem = problems[few]
    ones, row = np.ones(n), problem.membership[0]

    def one_lp(way: str) -> float:
        return plain_lp(problem.scores, problem.membership, ones, 1.0, ALPHA, row, way)

    made = {
        f"gcfcp, 16 groups x {few:,} atoms": (_summaries(problem), "sharp"),
        f"gcfcp, 16 groups x {few:,} atoms, 20 clients, the paper's weight": (
            _summaries(problem, 20),
            "paper",
        ),
        f"gcfcp, 16 groups x {many:,} atoms": (_summaries(problems[many]), "sharp"),
        f"gcfcp, {sites.membership.shape[1]} groups, mostly sites": (_summaries(sites), "sharp"),
    }

    def calibrated(name: str) -> gcfcp.Calibration:
        summaries, correction = made[name]
        return gcfcp.calibrate(summaries, ALPHA, correction=correction, max_atoms=None)

    first, paper, larger, by_site = made
    found = float(calibrated(first).thresholds(row[None])[0])
    exact = one_lp("plain")
    checked = check(abs(found - exact) <= 1e-6 * (1 + abs(exact)), "a threshold equals a plain LP")
    runs = {name: lambda name=name: calibrated(name) for name in made}
    runs |= {f"HiGHS {way}, one threshold": lambda way=way: one_lp(way) for way in WAYS}
    times = race(runs, min(scale.turns, 3))
    best = min((f"HiGHS {way}, one threshold" for way in WAYS), key=lambda k: times[k].median)
    return [
        Case(
            "atoms",
            "whole table, many atoms",
            f"{n:,} records, from summaries to thresholds, exact",
            tuple(Entry(name, t) for name, t in times.items()),
            (
                at_most(f"{first} / {best}", Ratio.of(times[first], times[best]), 3),
                at_most(f"{paper} / {best}", Ratio.of(times[paper], times[best]), 3),
                at_most(f"{larger} / {first}", Ratio.of(times[larger], times[first]), 3.5),
                at_most(f"{by_site}, seconds", times[by_site].median, 2),
            ),
            (checked,),
        )
    ]


@contextmanager
def _busy_cores() -> Iterator[None]:
    """Every core has something else to do."""
    others = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def threads(scale: Scale) -> list[Case]:
    """One threshold with as many threads of BLAS as there are cores, beside one thread."""
    size = scale.size(40_000, 2_000), scale.size(256, 100), scale.size(1_000, 160)
    said: list[list[str]] = []

    def solved(number: int) -> Elsewhere:
        done = subprocess.run(
            [sys.executable, "-c", _ONE_THRESHOLD, *map(str, size)],
            env={**os.environ, **dict.fromkeys(_THREADS, str(number))},
            capture_output=True,
            text=True,
            check=True,
        )
        seconds, *thresholds = done.stdout.split()
        said.append(thresholds)
        return Elsewhere(float(seconds))

    cores = os.cpu_count() or 1
    with _busy_cores():
        times = race(
            {name: lambda k=k: solved(k) for name, k in (("cores", cores), ("one", 1))}, scale.turns
        )
    ratio = Ratio.of(times["cores"], times["one"])
    return [
        Case(
            "threads",
            "one threshold, threads of BLAS",
            f"{size[1]} groups, {size[2]:,} atoms, on {cores} cores that are all busy",
            (
                Entry(f"as many threads as cores ({cores})", times["cores"]),
                Entry("one thread", times["one"]),
            ),
            (at_most("as many threads as cores / one thread", ratio, 1.05),),
            (check(all(one == said[0] for one in said), "both have the same threshold"),),
        )
    ]


def disjoint(scale: Scale) -> list[Case]:
    """Many groups that do not overlap, by the simultaneous rule and by rule "max"."""
    entries, targets = [], []
    for groups in (scale.size(500, 20), scale.size(1_000, 40)):
        rng = np.random.default_rng(groups)
        n = 40 * groups
        own = np.eye(groups, dtype=bool)[np.arange(n) % groups]
        scores = rng.gamma(2.0, 1.0, n)
        for everyone in (False, True):
            member = np.column_stack([own, np.ones(n, dtype=bool)]) if everyone else own
            summaries = _summaries(data.Scored(scores, member, np.zeros(n, dtype=np.int64)), 2)
            runs = {
                rule: lambda rule=rule, summaries=summaries: gcfcp.calibrate(
                    summaries, ALPHA, rule=rule, max_atoms=None
                )
                for rule in ("simultaneous", "max")
            }
            if not everyone:
                both = [run().threshold_table.thresholds_by_atom for run in runs.values()]
                check(np.array_equal(*both), "both rules have the same thresholds")
            times = race(runs, min(scale.turns, 5))
            name = f"{groups:,} groups{' and everyone' if everyone else ''}"
            entries += [Entry(f"{name}, rule {rule}", t) for rule, t in times.items()]
            ratio = Ratio.of(times["simultaneous"], times["max"])
            targets.append(at_most(f"{name}: simultaneous / max", ratio, 2))
    return [
        Case(
            "disjoint",
            "groups that do not overlap",
            "40 records in each group, 2 clients, from summaries to thresholds",
            tuple(entries),
            tuple(targets),
            ("without everyone, both rules have the same thresholds",),
        )
    ]


def files_of_calibrations(scale: Scale) -> list[Case]:
    """A predictor's file of many clients, beside their calibration."""
    K = scale.size(5_000, 20)
    summaries = [gcfcp.ClientSummary.from_bytes(b) for b in _sent(K, scale.size(997, 19))]
    calibration = gcfcp.calibrate(summaries, ALPHA)
    text = gcfcp.Predictor("unnamed", calibration).to_json()
    again = gcfcp.Predictor.from_json(text)
    rows = calibration.threshold_table.membership
    same = np.array_equal(again.thresholds(rows), calibration.threshold_table.thresholds_by_atom)
    checked = check(same, "the file has the thresholds of the calibration")

    def written() -> tuple[gcfcp.Calibration, str]:
        # A calibration keeps what it has once computed, so that each turn has its own. It is
        # returned, because otherwise the time to give up its memory would count here alone.
        own = gcfcp.calibrate(summaries, ALPHA)
        return own, gcfcp.Predictor("unnamed", own).to_json()

    runs = {
        "calibrate": lambda: gcfcp.calibrate(summaries, ALPHA),
        "calibrate and write": written,
    }
    times = race(runs, min(scale.turns, 5))
    ratio = Ratio.of(times["calibrate and write"], times["calibrate"])
    return [
        Case(
            "json",
            "a predictor's file",
            f"{K:,} clients of 7 atoms x ~126 centroids",
            tuple(Entry(name, t, figures={"MB": len(text) / 1e6}) for name, t in times.items()),
            (at_most("calibrate and write / calibrate", ratio, 1.5),),
            (checked,),
        )
    ]
