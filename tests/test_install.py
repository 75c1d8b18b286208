"""The wheel in fresh environments: alone it does the work of the core, with cli all commands."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from benchmarks import footprint

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
DISTRIBUTIONS = """
from importlib.metadata import distributions
print(*sorted({found.name.lower() for found in distributions()}))
"""
TABLE = "age,prediction,y\n" + "".join(f"{20 + i % 70},{i % 7},{i % 5}\n" for i in range(400))
SESSION = """
--version
summarize a.csv --groups groups.toml --client a -o a.gcfcp
summarize a.csv --groups groups.toml --client b -o b.gcfcp --min-count 5 --by atom
inspect a.gcfcp
plan a.gcfcp b.gcfcp
merge a.gcfcp b.gcfcp --client region -o region.gcfcp
calibrate a.gcfcp b.gcfcp -o p.json
predict p.json a.csv -o intervals.parquet
audit p.json a.csv --client a -o a.audit
audit-merge a.audit
report p.json a.audit -o report.html
"""
PLOT = """
import gcfcp, matplotlib
matplotlib.use("agg")
gcfcp.plots.thresholds_by_atom(gcfcp.Predictor.load("p.json")).figure.savefig("p.png")
"""


def run(command, cwd) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this clone, built as a user builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    if run([*PIP, "--version"], folder).returncode:
        pytest.skip("this Python has no pip")
    probe = run([*PIP, "download", "--no-deps", "--quiet", "hatchling"], folder)
    if probe.returncode:
        pytest.skip(f"pip cannot reach an index: {probe.stderr.strip().splitlines()[-1:]}")
    built = run([*PIP, "wheel", "--no-deps", "--quiet", "-w", folder / "built", ROOT], folder)
    assert built.returncode == 0, built.stderr
    (found,) = (folder / "built").iterdir()
    return found


def fresh(folder: Path, requirement: str) -> Path:
    """The directory of programs of a fresh environment with one requirement, and without pip."""
    venv.EnvBuilder(with_pip=False).create(folder)
    python = folder / "bin" / "python"
    done = run([*PIP, "--python", python, "install", "--quiet", requirement], folder)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.mark.slow
def test_the_wheel_alone_is_numpy_alone(wheel, tmp_path):
    programs = fresh(tmp_path / "env", str(wheel))
    found = run([programs / "python", "-I", "-c", DISTRIBUTIONS], tmp_path)
    assert found.stdout.split() == ["gcfcp", "numpy"]
    # -I: nothing is taken from PYTHONPATH, nor from the directory of the program.
    done = run([programs / "python", "-I", ROOT / "tests" / "numpy_alone.py"], tmp_path)
    assert done.stdout == "numpy alone\n", done.stderr
    done = run([programs / "gcfcp", "demo"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("gcfcp: typer is needed for the commands and is not installed")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_extra_cli_has_all_that_the_commands_need(wheel, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    programs = fresh(tmp_path / "env", f"{wheel}[cli]")
    (tmp_path / "a.csv").write_text(TABLE)
    (tmp_path / "groups.toml").write_text('everyone = "TRUE"\nover_65 = "age >= 65"\n')
    for line in SESSION.strip().splitlines():
        done = run([programs / "gcfcp", *line.split()], tmp_path)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    done = run([programs / "python", "-I", "-c", PLOT], tmp_path)
    assert done.returncode == 0, done.stderr
    done = run([programs / "gcfcp", "demo"], tmp_path)
    assert done.stderr.startswith("gcfcp: scikit-learn is needed for the demo")


def test_no_text_installs_gcfcp_from_an_index():
    """There is a clone, and a wheel of it."""
    places = ("src", "docs", "examples", "experiments", "benchmarks", "fuzz")
    files = [path for place in places for path in (ROOT / place).rglob("*")]
    files += ROOT.glob("*.*")
    for path in files:
        if any(part.startswith(".") for part in path.relative_to(ROOT).parts):
            continue  # Environments of peers are none of our text.
        if path.suffix in (".md", ".py", ".toml", ".yml"):
            found = re.search(r"pip install '?gcfcp", path.read_text(encoding="utf-8"))
            assert not found, f"{path}: {found[0] if found else ''}"


def test_the_readme_shows_the_footprint_that_was_measured():
    measured = footprint.RESULT.read_text(encoding="utf-8")
    readme = footprint.README.read_text(encoding="utf-8")
    shown = readme.split(footprint.BEGIN)[1].split(footprint.END)[0].strip()
    assert shown in measured
    assert footprint.into_readme(readme, shown + "\n") == readme
    assert f"{footprint.BEFORE[1]} MB" in shown


def test_the_footprint_is_written_as_it_was_measured():
    text = footprint.as_markdown((2, 70), (20, 300), (0.05, 0.1))
    assert "2 (gcfcp and NumPy) | 70 MB" in text
    assert "20 | 300 MB" in text
    assert "0.10 s of processor time, 2.0 times as long" in text
