"""The benchmarks run, and their checks are able to fail. No test here depends on a time."""

import json
import math
import multiprocessing
import runpy
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import cases, data, measure, oracles, peers, report  # noqa: E402
from benchmarks.cases import clients, thresholds  # noqa: E402
from benchmarks.cases.digests import step_error  # noqa: E402
from benchmarks.cases.thresholds import _coreset, _solve_all  # noqa: E402

QUICK = measure.Scale(quick=True, turns=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.CASES)
def test_every_case_runs_and_its_checks_hold(name, tmp_path, capsys):
    """A result that differs from its oracle raises an error. A peer that is missing is listed."""
    assert command.main(["--quick", "--turns", "1", "--only", name, "--output", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["quick"]
    assert set(written["machine"]["versions"]) >= {"gcfcp", "numpy", *peers.PACKAGES}
    for case in written["cases"]:
        assert case["checks"], f"{case['key']} checks nothing"
        for entry in case["entries"]:
            assert (entry["timing"] is not None) + (entry["why_not"] is not None) <= 1
            assert entry["timing"] or entry["why_not"] or entry["figures"]
    text = (tmp_path / "results.md").read_text()
    assert "**missed**" not in text  # Times are not judged in quick mode.
    for chart, begins in (("chart.png", b"\x89PNG"), ("chart.svg", b"<?xml")):
        assert (tmp_path / chart).read_bytes().startswith(begins)
    printed = capsys.readouterr().out
    assert written["cases"][0]["what"] in printed
    assert "after installation" in printed.splitlines()[0]


def test_a_wrong_result_stops_the_benchmark(monkeypatch):
    monkeypatch.setattr("benchmarks.cases.thresholds.plain_lp", lambda *_: 123.0)
    with pytest.raises(measure.CheckError, match=r"123\.0"):
        cases.CASES["records"](QUICK)


@pytest.mark.slow
def test_a_peer_that_is_not_there_is_listed(monkeypatch):
    def gone(name, package):
        raise peers.MissingError(f"missing: {package} is not installed")

    monkeypatch.setattr(peers, "_module", gone)
    listed = {e.name: e.why_not for case in cases.CASES["digest"](QUICK) for e in case.entries}
    for name in ("fastdigest", "pytdigest", "datasketches", "tdigest (pure Python)"):
        assert "not installed" in listed[name]


def test_a_peer_that_fails_is_listed_with_its_message(monkeypatch, tmp_path):
    worker = tmp_path / "conditionalconformal_worker.py"
    worker.write_text(
        'print(\'{"numpy": "9"}\', flush=True)\ninput()\nprint(\'{"error": "TypeError: no"}\')\n'
    )
    monkeypatch.setattr(peers, "_HERE", tmp_path)
    monkeypatch.setattr(peers, "_OWN_PYTHON", Path(sys.executable))
    ones = np.ones((3, 1), dtype=bool)
    with peers.ConditionalConformal() as peer:
        run = peer.problem(np.arange(3.0), ones, ones[:1], 0.1, warm=False)
        with pytest.raises(peers.MissingError, match="failed on NumPy 9: TypeError: no"):
            run()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_the_oracles_agree_with_each_other_and_with_the_solver(seed):
    problem = data.overlapping(200, groups=3, atoms=6, seed=seed)
    coreset = _coreset(problem)
    ones = np.ones(200)
    for row, found in zip(coreset.membership, _solve_all(coreset), strict=True):
        lp = oracles.plain_lp(problem.scores, problem.membership, ones, 1.0, 0.1, row)
        assert found == pytest.approx(lp, rel=1e-8)
        if math.isfinite(lp):
            bracket = oracles.bisection(problem.scores, problem.membership, ones, 1.0, 0.1, row)
            width = 1e-3 * (2 * problem.scores.max() - problem.scores.min())
            assert lp - 1e-9 <= bracket <= lp + width


def test_ratios_are_taken_within_turns():
    """If the machine is ten times slower during one turn, no ratio changes."""
    ours = measure.Timing((1.0, 10.0, 1.0))
    peer = measure.Timing((2.0, 20.0, 2.0))
    assert measure.Ratio.of(peer, ours).median == 2.0
    assert measure.Ratio.of(peer, ours).by_turn == (2.0, 2.0, 2.0)


def test_targets_are_judged_by_their_direction():
    assert measure.at_most("", 1.0, 2.0).met
    assert not measure.at_most("", 3.0, 2.0).met
    assert measure.at_least("", 3.0, 2.0).met
    assert not measure.at_least("", 1.0, 2.0).met


def test_a_missed_target_is_reported_as_missed():
    entry = measure.Entry("gcfcp", measure.Timing((1.0,)))
    case = measure.Case("k", "w", "d", (entry,), (measure.at_most("claim", 3.0, 2.0),))
    assert "**missed**" in "\n".join(report.target_table([case], quick=False))
    assert "not judged" in "\n".join(report.target_table([case], quick=True))


def test_where_a_peer_wins_stands_below_the_targets():
    entry = measure.Entry("gcfcp", measure.Timing((1.0,)))
    target = measure.at_most("claim", 3.0, 2.0)
    said = "HiGHS is faster with 9 groups"
    case = measure.Case("k", "w", "d", (entry,), (target,), says=(said,))
    where = {
        "threads": {"libraries": []},
        "versions": {},
        **dict.fromkeys(("processor", "cores", "memory_gb", "system", "python", "date"), "x"),
        **dict.fromkeys(("load", "command", "commit"), "x"),
    }
    for page in (report.as_targets([case], where, False), report.as_markdown([case], where, False)):
        assert page.count(f"- {said}.") == 1


def test_the_rival_is_the_fastest_way_of_the_lp():
    times = {"gcfcp": 1.0, "HiGHS plain, one atom": 5.0, "HiGHS sparse, one atom": 3.0}
    assert report._fastest_lp(times) == {"HiGHS sparse, one atom": 3.0}
    assert report._fastest_lp({"gcfcp": 1.0}) == {}
    timings = {name: measure.Timing((t,)) for name, t in times.items()}
    assert thresholds._best_lp(timings) == "HiGHS sparse, one atom"


def test_the_step_error_is_that_of_the_definition():
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = np.sort(rng.integers(0, 12, size=30).astype(float))
        means = np.sort(rng.choice(np.arange(0, 12, 0.5), size=5, replace=False))
        weights = rng.random(5) + 0.1
        at = np.concatenate([values, means, values - 1e-9, means - 1e-9])
        F = (values <= at[:, None]).mean(axis=1)
        F_hat = ((means <= at[:, None]) * weights).sum(axis=1) / weights.sum()
        assert step_error(values, means, weights) == pytest.approx(np.abs(F - F_hat).max())


def test_peak_memory_counts_what_is_allocated():
    assert 8e6 <= measure.peak_memory(lambda: np.ones(10**6)) < 9e6


@pytest.mark.slow
def test_the_memory_of_a_process_is_its_own():
    """A process that a large process starts does not begin with its parent's memory."""
    ballast = np.ones(10**8)  # These are 800 MB.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        arrival = pool.submit(clients._arrival, 20, 20, 1).result()
    assert ballast[-1] == 1
    assert arrival.sent < arrival.peak < 200e6


def test_the_readme_shows_the_committed_run():
    """Its table has the day and the targets of the committed results.

    Making the table anew leaves the rest of the page alone.
    """
    readme = (ROOT / "README.md").read_text()
    written = json.loads((ROOT / "benchmarks" / "results" / "results.json").read_text())
    targets = [target for case in written["cases"] for target in case["targets"]]
    met = sum(target["met"] for target in targets)
    assert f"{met} of {len(targets)} [targets]" in readme
    assert written["machine"]["date"][:10] in readme
    assert {case["key"] for case in written["cases"]} >= {
        "groups",
        "clients",
        "points",
        "summarize",
    }

    entry = measure.Entry("gcfcp", measure.Timing((1.0,)))
    case = measure.Case("summarize", "w", "d", (entry,), (measure.at_most("claim", 3.0, 2.0),))
    where = {"processor": "P", "cores": 2, "date": "2000-01-02 03:04"}
    made = report.into_readme(readme, [case], where)
    assert "0 of 1 [targets]" in made
    assert report.into_readme(made, [case], where) == made
    for mark in (report.BEGINS, report.ENDS):
        assert readme.count(mark) == made.count(mark) == 1
    assert made.split(report.BEGINS)[0] == readme.split(report.BEGINS)[0]
    assert made.split(report.ENDS)[1] == readme.split(report.ENDS)[1]


def test_the_page_has_what_a_secure_sum_was_measured_to_cost():
    rows = json.loads((ROOT / "benchmarks/secure/results/cost.json").read_text())["rows"]
    table = runpy.run_path(str(ROOT / "benchmarks/secure/cost.py"))["table"]
    assert {row["sites"] for row in rows} >= {3, 10, 30}
    assert table(rows) in (ROOT / "docs/secure.md").read_text()
