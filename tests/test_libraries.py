"""Without a library, one line says what to install; without any, the core does all of its work."""

import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import gcfcp
from gcfcp.libraries import MissingLibraryError, has, needs
from without import BESIDE_NUMPY, run_without

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
COMMAND = "from gcfcp.cli import main; main()"
TABLE = "age,prediction,y\n" + "".join(f"{20 + i},{i % 7},{i % 5}\n" for i in range(60))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """All files that the commands below read."""
    folder = tmp_path_factory.mktemp("files")
    groups = gcfcp.Groups({"everyone": "TRUE", "over_65": "age >= 65"})
    (folder / "groups.toml").write_text(groups.to_toml())
    (folder / "t.csv").write_text(TABLE)
    (folder / "keys.toml").write_text(f'a = "{64 * "0"}"\n')
    score = gcfcp.scores.AbsoluteResidual()
    membership = np.column_stack([np.ones(60), np.arange(60) >= 45])
    summary = gcfcp.summarize(
        np.arange(60.0), membership, groups=groups, client="a", score=score, min_count=1
    )
    summary.save(folder / "a.gcfcp")
    (folder / "a.gcfcp.sig").write_bytes(b"")
    predictor = gcfcp.Predictor(score, gcfcp.calibrate([summary], 0.2))
    predictor.save(folder / "p.json")
    audit = gcfcp.audit(np.arange(60) > 5, membership, groups=groups, client="a", alpha=0.2)
    audit.save(folder / "a.audit")
    return folder


def command(files, libraries, line):
    return run_without(libraries, COMMAND, *line.split(), cwd=files)


# library, extra, command
LINES = [
    ("typer", "cli", "plan a.gcfcp"),
    ("typer", "cli", "--help"),
    ("polars", "cli", "summarize t.csv --groups groups.toml --client a -o new"),
    ("polars", "cli", "predict p.json t.csv -o new"),
    ("polars", "cli", "audit p.json t.csv --client a -o new"),
    ("jinja2", "cli", "report p.json a.audit -o new"),
    ("rich", "cli", "inspect a.gcfcp"),
    ("rich", "cli", "plan a.gcfcp"),
    ("rich", "cli", "calibrate a.gcfcp -o new"),
    ("rich", "cli", "audit-merge a.audit -o new"),
    ("cryptography", "sign", "keygen -o new"),
    ("cryptography", "sign", "sign a.audit --key keys.toml"),
    ("cryptography", "sign", "plan a.gcfcp --known-keys keys.toml"),
    ("sklearn", "demo", "demo -o new"),
    ("polars", "demo", "demo -o new"),
    ("matplotlib", "demo", "demo -o new"),
    ("jinja2", "demo", "demo -o new"),
    ("rich", "demo", "demo -o new"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("library", "extra", "line"), LINES)
def test_a_command_without_its_library_says_what_to_install(files, library, extra, line):
    present = sorted(files.iterdir())
    done = command(files, [library], line)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"pip install '.[{extra}]' in a clone" in done.stderr
    name = {"sklearn": "scikit-learn"}.get(library, library)
    assert done.stderr.startswith(f"gcfcp: {name} is needed for ")
    assert sorted(files.iterdir()) == present


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "--version",
        "plan a.gcfcp --json",
        "merge a.gcfcp --client region -o new",
        "calibrate a.gcfcp -o new --json",
        "audit-merge a.audit -o new --json",
        "inspect a.gcfcp --json",
    ],
)
def test_a_command_asks_for_no_library_that_it_does_not_need(files, tmp_path, line):
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    done = command(tmp_path, set(BESIDE_NUMPY) - {"typer", "click"}, line)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new").exists() == ("new" in line)


PROGRAMS = [
    ("flwr", "flower", "import gcfcp.flower"),
    ("flwr", "flower", "import gcfcp; gcfcp.flower"),
    ("sklearn", "sklearn", "import gcfcp; gcfcp.sklearn"),
    ("pyspark", "spark", "import gcfcp; gcfcp.spark"),
    ("nvflare", "nvflare", "import gcfcp; gcfcp.nvflare"),
    ("vantage6", "vantage6", "import gcfcp; gcfcp.vantage6"),
    (
        "matplotlib",
        "cli",
        "import gcfcp; gcfcp.plots.thresholds_by_atom(gcfcp.Predictor.load('p.json'))",
    ),
    (
        "matplotlib",
        "cli",
        "import gcfcp; a = gcfcp.merge_audits([gcfcp.Audit.load('a.audit')])\n"
        "gcfcp.plots.coverage_by_group({'ours': a})",
    ),
    (
        "jinja2",
        "cli",
        "import gcfcp, gcfcp.report as r; r.render(gcfcp.Predictor.load('p.json'))",
    ),
    ("polars", "cli", "import gcfcp.tables as t; t.open_table('t.csv').__enter__()"),
    ("polars", "cli", "import gcfcp; gcfcp.Groups({'a': 'x > 1'}).membership({'x': [1, 2]})"),
    ("polars", "cli", "import gcfcp; gcfcp.Groups({'a': 'x > 1'}).columns"),
    (
        "polars",
        "cli",
        "import gcfcp, pandas; gcfcp.Groups(['a']).membership(pandas.DataFrame({'a': [True]}))",
    ),
    (
        "polars",
        "cli",
        "import gcfcp, pandas; gcfcp.Groups(['a']).membership({'a': pandas.Series([True])})",
    ),
    ("cryptography", "sign", "from gcfcp.summary import signatures as s; s.new_key('k')"),
    ("cryptography", "secure", "from gcfcp import secure; secure.begin(b'', 1, signed=False)"),
    ("Crypto", "secure", "from gcfcp import secure; secure.begin(b'', 1, signed=False)"),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("library", "extra", "program"), PROGRAMS)
def test_in_python_it_is_an_error_of_one_line(files, library, extra, program):
    done = run_without([library], program, cwd=files)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gcfcp.libraries.MissingLibraryError: "), done.stderr
    assert f"install gcfcp with its extra {extra} (pip install '.[{extra}]' in a clone)" in last
    assert "The above exception" not in done.stderr


def test_numpy_alone_does_all_of_the_core(tmp_path):
    program = (ROOT / "tests" / "numpy_alone.py").read_text()
    done = run_without(BESIDE_NUMPY, program, cwd=tmp_path)
    assert done.stdout == "numpy alone\n", done.stderr


def test_the_error_is_one_of_ours_and_of_imports():
    with pytest.raises(MissingLibraryError, match="no_such is needed for tests and is not instal"):
        needs("no_such", "tests", "cli")
    assert issubclass(MissingLibraryError, gcfcp.GCFCPError)
    assert issubclass(MissingLibraryError, ImportError)
    assert not has("no_such")
    assert has("numpy")
    assert needs("numpy", "tests", "cli") is None


def test_a_library_that_is_there_and_broken_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        MissingLibraryError, match=r"cannot be imported \(No module named 'no_such_"
    ):
        needs("broken_library", "tests", "cli")
    assert "broken_library" not in sys.modules


def test_every_extra_that_a_message_names_exists():
    assert {extra for _, extra, _ in LINES + PROGRAMS} <= set(EXTRAS)
