"""The solver wakes no thread of BLAS, whatever their number is.

A thread of OpenBLAS that has been woken stays busy for up to a tenth of a second. The solver would
pay for that as often as it wakes one.
"""

import subprocess
import sys

import pytest

# The other threads of a process have been woken as often as they went to sleep by themselves.
PROGRAM = """
import threading, time
from fractions import Fraction
from pathlib import Path
import numpy as np
from gcfcp.solver import Coreset, Solver

def others():
    own = threading.get_native_id()
    return [t for t in Path("/proc/self/task").iterdir() if int(t.name) != own]

def asleep():
    return all("sleeping" in (t / "status").read_text() for t in others())

def woken():
    deadline = time.monotonic() + 10
    while not asleep() and time.monotonic() < deadline:
        time.sleep(0.01)
    lines = [line for t in others() for line in (t / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))

def solve(groups, atoms, heavy):
    rng = np.random.default_rng(groups)
    rows = np.vstack([np.eye(groups, dtype=bool), rng.random((atoms, groups)) < 6 / groups])
    rows = np.unique(rows[rows.any(axis=1)], axis=0)
    start = np.arange(len(rows) + 1) * 20
    values = np.sort(rng.gamma(2, size=(len(rows), 20)).round(3 if heavy else 15), axis=1)
    values += np.arange(20) * 1e-9
    weights = rng.integers(1, 4, size=values.size).astype(float)
    solver = Solver(Coreset(rows, start, values.ravel(), weights, heavy), Fraction(1, 10))
    solver.solve(rows[:: max(1, len(rows) // 400)])
    solver.coefficients()

before = woken()
for case in [(4, 40, 1.0), (16, 2000, 60.0), (60, 600, 1.0), (100, 400, 1.0), (200, 300, 2.0)]:
    solve(*case)
    print(*case, woken() - before)
    before = woken()
np.ones((700, 700)) @ np.ones((700, 700))
print("control", len(others()), woken() - before)
"""


@pytest.mark.slow
def test_the_solver_wakes_no_thread_of_blas():
    if sys.platform != "linux":
        pytest.skip("what threads do is read from /proc, which Linux has")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"OPENBLAS_NUM_THREADS": "2", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr
    *cases, (_, threads, control) = (line.split() for line in done.stdout.splitlines())
    if threads == "0" or control == "0":
        pytest.skip("BLAS of this NumPy has no second thread here, so that none can be woken")
    assert len(cases) == 5
    assert [case[-1] for case in cases] == ["0"] * 5, done.stdout
