"""The demo leaves every file, shows honest figures, and its commands do the same by hand."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gcfcp
from gcfcp.cli import demo
from gcfcp.cli import entry as cli

pytestmark = pytest.mark.slow  # The whole demo is run several times.

pytest.importorskip("sklearn", reason="scikit-learn, which ships the demo's data, is not installed")

GCFCP = [sys.executable, "-c", "from gcfcp.cli import main; main()"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the demo once as a user does; the result is its directory and what it printed."""
    place = tmp_path_factory.mktemp("demo")
    done = subprocess.run([*GCFCP, "demo"], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "gcfcp-demo", done.stdout


def test_it_leaves_every_file_and_ends_with_the_report(ran: tuple[Path, str]) -> None:
    directory, out = ran
    names = {p.name for p in directory.iterdir()}
    assert {"groups.toml", "predictor.json", "sets.parquet", "report.html", "commands.sh",
            "coverage.png", "split-cp.json", "fedcp.json"} <= names  # fmt: skip
    for site in demo.SITES:
        assert {f"{site}.gcfcp", f"{site}-calibration.csv", f"{site}-gcfcp.audit"} <= names
    assert out.rstrip().splitlines()[-1] == f"The report: {directory / 'report.html'}"
    assert "\x1b" not in out


def test_it_shows_who_is_left_out_without_us(ran: tuple[Path, str]) -> None:
    """This is not a lucky split: the average of many splits is low by many standard errors."""
    found = json.loads((ran[0] / "results.json").read_text())
    averages = found["averages"]
    unsure = averages["groups"].index("unsure")
    for name in demo.BASELINES:
        gap = 0.9 - averages["coverage"][name][unsure]
        assert gap > 10 * averages["standard_error"][name][unsure]
    for coverage in averages["coverage"]["gcfcp"]:
        assert coverage >= 0.9
    verdicts = {g["group"]: g["verdict"] for g in found["split"]["split CP"]}
    assert verdicts["unsure"] == "broken"
    assert "broken" not in {g["verdict"] for g in found["split"]["gcfcp"]}
    assert "mixture of the clients: the predictor's mixture (centre 0.21" in ran[1]


def test_the_readme_shows_these_figures(ran: tuple[Path, str]) -> None:
    """They agree up to what another version of scikit-learn may change."""
    averages = json.loads((ran[0] / "results.json").read_text())["averages"]
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    rows = {
        cells[0].strip(): [float(c) for c in cells[1:4]]
        for line in readme.splitlines()
        if len(cells := line.strip("| ").split("|")) == 4 and cells[1].strip()[:1] in ("0", "1")
    }
    methods = ("split CP", "FedCP", "gcfcp")
    assert set(rows) == {*averages["groups"], "labels in a set"}
    for g, group in enumerate(averages["groups"]):
        for shown, method in zip(rows[group], methods, strict=True):
            assert shown == pytest.approx(averages["coverage"][method][g], abs=0.01)
    for shown, method in zip(rows["labels in a set"], methods, strict=True):
        assert shown == pytest.approx(averages["mean_size"][method], abs=0.05)


def test_the_sites_hold_different_digits(ran: tuple[Path, str]) -> None:
    import polars as pl

    directory, _ = ran
    ids: list[int] = []
    for site, labels in demo.SITES.items():
        for part in ("calibration", "labelled"):
            data = pl.read_csv(directory / f"{site}-{part}.csv")
            assert set(data["y"]) == set(labels)
            ids += data["id"].to_list()
    assert len(ids) == len(set(ids)) == 1797 - demo.TRAINING  # No image is used twice.


def without_results(directory: Path, copy: Path) -> list[Path]:
    """Copy the demo's directory without the files that the commands should make again.

    Returns these files.
    """
    shutil.copytree(directory, copy)
    made = [p for p in copy.iterdir() if p.suffix in (".gcfcp", ".audit", ".html")]
    made += [copy / "predictor.json", copy / "sets.parquet"]
    for path in made:
        path.unlink()
    return made


def check_same(made: list[Path], directory: Path) -> None:
    for path in made:
        assert path.exists()
        if path.suffix != ".html":  # A report holds its date.
            assert path.read_bytes() == (directory / path.name).read_bytes(), path.name


def test_the_printed_commands_make_the_same_files(
    ran: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, out = ran
    made = without_results(directory, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    commands = [line.strip() for line in out.splitlines() if line.startswith("  gcfcp ")]
    for command in commands:
        cli.run(shlex.split(command)[1:])
    check_same(made, directory)
    script = (directory / "commands.sh").read_text().splitlines()
    assert [line.removesuffix(" --force") for line in script[3:]] == commands


@pytest.mark.slow
def test_the_shell_script_makes_the_same_files(ran: tuple[Path, str], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    made = without_results(ran[0], copy)
    path = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    subprocess.run(["sh", "commands.sh"], cwd=copy, env=os.environ | {"PATH": path}, check=True)
    check_same(made, ran[0])


def test_an_existing_directory_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gcfcp-demo").mkdir()
    assert demo._place(None, force=False).name == "gcfcp-demo-2"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(gcfcp.GCFCPError, match="mine holds files"):
        demo._place("mine", force=False)
    assert demo._place(None, force=True).name == "gcfcp-demo"


def test_without_scikit_learn_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['sklearn'] = None; from gcfcp.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "demo"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "install gcfcp with its extra demo" in done.stderr
    assert list(tmp_path.iterdir()) == []
