"""The command line as a user meets it: files in, files out, and one line if something is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gcfcp
from gcfcp.cli import console
from gcfcp.cli import entry as cli

COMMANDS = [
    "summarize", "join", "inspect", "predict", "audit", "ledger", "plan", "merge", "add", "grid",
    "shape", "calibrate", "audit-merge", "report", "explore", "demo",
]  # fmt: skip
GROUPS = """
all = "TRUE"
old = "age >= 65"
women = "sex = 'F'"
"""


@dataclass(frozen=True)
class Ran:
    """What a command ended with: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """A function that runs a command in an empty directory, as `main` does."""
    monkeypatch.chdir(tmp_path)

    def go(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["gcfcp", *map(str, arguments)])
        capfd.readouterr()
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        out, err = capfd.readouterr()
        return Ran(int(code or 0), out, err)

    return go


def records(n: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=n)
    return pl.DataFrame(
        {
            "id": np.arange(n),
            "age": rng.integers(20, 90, n),
            "sex": rng.choice(["F", "M"], n),
            "prediction": centre,
            "y": centre + rng.normal(size=n) * (1 + seed),
        }
    )


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Three sites with calibration and labelled records, and a groups file."""
    (tmp_path / "groups.toml").write_text(GROUPS)
    for i, name in enumerate("abc"):
        records(300, i).write_csv(tmp_path / f"{name}.csv")
        records(200, 10 + i).write_parquet(tmp_path / f"{name}-new.parquet")
    return tmp_path


@pytest.fixture
def summaries(sites: Path, run: Callable[..., Ran]) -> list[str]:
    for name in "abc":
        done = run(
            "summarize", f"{name}.csv", "--groups", "groups.toml", "--client", name,
            "-o", f"{name}.gcfcp",
        )  # fmt: skip
        assert (done.code, done.out) == (0, "")
    return ["a.gcfcp", "b.gcfcp", "c.gcfcp"]


@pytest.fixture
def predictor(summaries: list[str], run: Callable[..., Ran]) -> str:
    assert run("calibrate", *summaries, "--alpha", 0.1, "-o", "predictor.json").code == 0
    return "predictor.json"


@pytest.fixture
def audits(predictor: str, run: Callable[..., Ran]) -> list[str]:
    for name in "abc":
        done = run(
            "audit", predictor, f"{name}-new.parquet", "--client", name, "-o", f"{name}.audit"
        )
        assert done.code == 0
    return ["a.audit", "b.audit", "c.audit"]


# --- the whole path ------------------------------------------------------------------------------


def test_the_files_hold_what_the_library_makes(summaries: list[str], predictor: str) -> None:
    groups = gcfcp.Groups.from_toml("groups.toml")
    score = gcfcp.scores.AbsoluteResidual()
    made = []
    for name in "abc":
        data = pl.read_csv(f"{name}.csv")
        values = score.of(data["prediction"].to_numpy(), data["y"].to_numpy())
        made.append(
            gcfcp.summarize(
                values, groups.membership(data), groups=groups, client=name, score=score
            )
        )
        assert gcfcp.ClientSummary.load(f"{name}.gcfcp") == made[-1]
    expected = gcfcp.Predictor(score, gcfcp.calibrate(made, 0.1, "proportional")).to_json()
    assert Path(predictor).read_text() == expected


def test_predict_writes_intervals(predictor: str, run: Callable[..., Ran]) -> None:
    done = run("predict", predictor, "a-new.parquet", "-o", "out.csv", "--keep", "id")
    assert done.code == 0
    found = pl.read_csv("out.csv")
    assert found.columns == ["id", "lower", "upper", "threshold"]
    assert len(found) == 200
    piped = run("predict", predictor, "a-new.parquet", "-o", "-", "--keep", "id")
    assert piped.out == Path("out.csv").read_text()


def test_audit_merge_and_report(audits: list[str], predictor: str, run: Callable[..., Ran]) -> None:
    shown = run("audit-merge", *audits)
    assert shown.code == 0
    assert "women" in shown.out
    found = run("audit-merge", *audits, "--json", "-o", "merged.json").json
    assert found == json.loads(Path("merged.json").read_text())
    assert [g["group"] for g in found["groups"]] == ["all", "old", "women"]
    assert found["alpha"] == 0.1
    done = run("report", predictor, *audits, "--baseline", "other=[a-c].audit", "-o", "r.html",
               "--summary", "a.gcfcp")  # fmt: skip
    assert done.code == 0, done.err
    page = Path("r.html").read_text()
    assert "women" in page
    assert "gcfcp report predictor.json" in page


def test_an_audit_is_about_the_mixture_of_its_predictor(
    summaries: list[str], run: Callable[..., Ran]
) -> None:
    weights = "a=0.5,b=0.375,c=0.125"
    assert run("calibrate", *summaries, "--mixture", weights, "-o", "p.json").code == 0
    files = [f"{name}.audit" for name in "abc"]
    for name, file, share in zip("abc", files, (0.5, 0.375, 0.125), strict=True):
        done = run("audit", "p.json", f"{name}-new.parquet", "--client", name, "-o", file, "--json")
        assert done.json["share"] == share
    assert "its weight in the predictor's mixture is 0.375" in run("inspect", "b.audit").out
    text = "the predictor's mixture (a 0.5, b 0.375, c 0.125)"
    assert f"mixture of the clients: {text}" in run("audit-merge", *files).out.splitlines()
    found = run("audit-merge", *files, "--json").json
    assert found["mixture_text"] == text
    assert found["mixture"] == {"a": 0.5, "b": 0.375, "c": 0.125}
    other = run("audit-merge", *files, "--json", "--mixture", "uniform").json
    assert other["mixture_text"].startswith("every site counts the same; the promise")
    assert other["groups"] != found["groups"]

    for name in "abc":  # A baseline that says nothing of weights is compared under the same ones.
        audit = gcfcp.Audit.load(f"{name}.audit")
        replace(audit, share=None, predictor="other").save(f"{name}-other.audit")
    done = run("report", "p.json", *files, "--baseline", "other=?-other.audit", "-o", "r.html")
    assert done.code == 0, done.err
    page = Path("r.html").read_text()
    assert f"Mixture of the clients in the audit: {text.replace(chr(39), '&#39;')}." in page
    assert "it is another one" not in page
    some = run("report", "p.json", *files, "--baseline", "other=a-other.audit", "-o", "s.html")
    assert some.code == 1
    assert "only one of the predictor and baseline other was audited at 'b'" in some.err


def test_audits_with_a_min_count_and_a_round(predictor: str, run: Callable[..., Ran]) -> None:
    files = []
    for name, when in (("a", "2026Q4"), ("b", "2026Q4"), ("c", "2026Q3")):
        options = ["--min-count", "10", "--round", when, "--date", "2026-11-17"]
        table, file = f"{name}-new.parquet", f"{name}-{when}.audit"
        done = run("audit", predictor, table, "--client", name, "-o", file, *options)
        assert done.code == 0, done.err
        assert "no cell of fewer than 10 covered or missed records is told" in done.err
        files.append(file)
    shown = run("inspect", files[0])
    assert "round 2026Q4, date 2026-11-17" in shown.out
    values = run("inspect", files[0], "--json").json
    assert (values["round"], values["date"]) == ("2026Q4", "2026-11-17")
    merged = run("audit-merge", *files[:2], "--round", "2026Q4")
    assert merged.code == 0, merged.err
    assert "round: 2026Q4" in merged.out
    late = run("audit-merge", *files, "--round", "2026Q4")
    assert late.code == 1
    assert "the audit of 'c' belongs to round '2026Q3' (2026-11-17), and not to" in late.err
    assert run("audit-merge", *files).code == 1
    wrong = run(
        "audit", predictor, "a-new.parquet", "--client", "a", "-o", "x.audit", "--date", "today"
    )
    assert "date='today' is not a day: give one such as 2026-11-17" in wrong.err


def test_audits_of_clients_that_the_predictor_does_not_know(
    audits: list[str], predictor: str, run: Callable[..., Ran]
) -> None:
    for name in "xy":
        done = run("audit", predictor, "a-new.parquet", "--client", name, "-o", f"{name}.audit")
        assert done.code == 0
    strangers = run("audit-merge", "x.audit", "y.audit")
    assert "mixture of the clients: in proportion to the audited records" in strangers.out
    mixed = run("audit-merge", *audits, "x.audit")
    assert mixed.code == 1
    assert "'a'" in mixed.err
    assert "'x' does not" in mixed.err
    assert run("audit-merge", *audits, "x.audit", "--mixture", "proportional").code == 0


def test_the_default_mixture_lets_every_record_count_the_same(
    summaries: list[str], run: Callable[..., Ran]
) -> None:
    for command in (["plan", *summaries, "--json"], ["calibrate", *summaries, "-o", "-"]):
        assert run(*command).out == run(*command, "--mixture", "proportional").out
    for command in ("plan", "calibrate", "audit-merge", "report"):
        words = " ".join(run(command, "--help").out.split())
        assert "as if all records lay in one place" in words
        assert "however few records it has" in words


def test_merge_makes_a_summary_of_several(summaries: list[str], run: Callable[..., Ran]) -> None:
    assert run("merge", *summaries[:2], "--client", "north", "-o", "north.gcfcp").code == 0
    loaded = [gcfcp.ClientSummary.load(f) for f in summaries[:2]]
    assert gcfcp.ClientSummary.load("north.gcfcp") == gcfcp.merge(loaded, "north")
    refused = run("plan", "north.gcfcp", "c.gcfcp")
    assert refused.code == 1
    assert "north.gcfcp says that it stands for 2 clients" in refused.err
    assert "--aggregate north=2" in refused.err
    assert run("plan", "north.gcfcp", "c.gcfcp", "--aggregate", "north").code == 0
    uniform = ["--mixture", "uniform"]
    assert run("plan", "north.gcfcp", "c.gcfcp", *uniform, "--aggregate", "north").code == 1
    found = run("plan", "north.gcfcp", "c.gcfcp", *uniform, "--aggregate", "north=2", "--json").json
    assert [round(c["share"], 6) for c in found["clients"]] == [0.333333, 0.666667]
    wrong = run("plan", "north.gcfcp", "c.gcfcp", "--aggregate", "north=5")
    assert wrong.code == 1
    assert "the server knows of 5" in wrong.err


@pytest.mark.few(1)
@pytest.mark.parametrize("file", ["a.gcfcp", "predictor.json", "a.audit"])
def test_inspect_knows_every_file(file: str, audits: list[str], run: Callable[..., Ran]) -> None:
    shown = run("inspect", file)
    assert shown.code == 0
    assert "bytes" in shown.out
    found = run("inspect", file, "--json").json
    assert found["bytes"] == os.path.getsize(file)


def test_inspect_names_the_labels(run: Callable[..., Ran]) -> None:
    score = gcfcp.scores.RAPS(classes=["<=50K", ">50K"], randomized=False)
    groups, values = gcfcp.Groups(["all"]), np.linspace(0, 1, 20)
    gcfcp.summarize(values, np.ones((20, 1)), groups=groups, client="a", score=score).save(
        "a.gcfcp"
    )
    shown = run("inspect", "a.gcfcp").out
    assert "'randomized': False} of the labels <=50K, >50K, model unnamed" in shown


def test_inspect_says_what_a_predictor_tells(
    summaries: list[str], run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("calibrate", *summaries, "-o", "p.json").code == 0
    assert run("calibrate", *summaries, "--no-coreset", "-o", "old.json").code == 0
    assert Path("p.json").read_bytes() == Path("old.json").read_bytes()  # An old script still runs.
    assert run("calibrate", *summaries, "--with-coreset", "-o", "with.json").code == 0
    shown = run("inspect", "p.json").out
    assert "it tells what prediction needs, and no more" in shown
    assert "values of clients: none, and no weights" in shown
    assert "counts: none by combination and none by group" in shown
    assert "names and numbers of records of 3 clients (a, b, c)" in shown
    found = run("inspect", "p.json", "--json").json["tells"]
    assert found["minimal"] is True
    assert (found["pooled_values"], found["counted_cells"]) == (0, 0)
    shown = run("inspect", "with.json").out
    assert "it tells more than prediction needs" in shown
    assert "the weights tell which client a value is from" in shown
    found = run("inspect", "with.json", "--json").json["tells"]
    assert found["minimal"] is False
    assert found["pooled_from"] == ["a", "b", "c"]
    assert found["pooled_values"] > 100
    monkeypatch.setattr("gcfcp.thresholds.every.MOST_COMBINATIONS", 1)
    told = run("calibrate", *summaries, "-o", "seen.json").err
    assert "the 4 combinations of groups that were seen, and a row of another one is an" in told


def test_every_result_has_a_form_for_machines(
    summaries: list[str], run: Callable[..., Ran]
) -> None:
    made = run("summarize", "a.csv", "--groups", "groups.toml", "--client", "x", "-o", "x.gcfcp",
               "--json").json  # fmt: skip
    assert made["rows"] == made["records"] == 300
    plan = run("plan", *summaries, "--json").json
    assert plan["finite"] is True
    short = run("plan", *summaries, "--alpha", 0.001, "--json").json
    assert short["finite"] is False
    assert short["atoms"][0]["threshold"] == "inf"
    merged = run("merge", *summaries, "--client", "m", "-o", "m.gcfcp", "--json").json
    assert [m["client"] for m in merged["members"]] == ["a", "b", "c"]
    done = run("calibrate", *summaries, "-o", "p.json", "--json").json
    assert len(done["table"]) == 4
    assert run("predict", "p.json", "a-new.parquet", "-o", "s.csv", "--json").json["rows"] == 200
    found = run("audit", "p.json", "a-new.parquet", "--client", "a", "-o", "a.audit", "--json").json
    assert [g["group"] for g in found["groups"]] == ["all", "old", "women"]


def test_mixtures_in_every_form(summaries: list[str], run: Callable[..., Ran]) -> None:
    Path("mix.json").write_text('{"a": 0.5, "b": 0.25, "c": 0.25}')
    texts = set()
    for text in ("a=0.5,b=0.25,c=0.25", '{"a": 0.5, "b": 0.25, "c": 0.25}', "mix.json"):
        done = run("calibrate", *summaries, "--mixture", text, "-o", "-")
        assert done.code == 0, done.err
        texts.add(done.out)
    assert len(texts) == 1
    assert json.loads(texts.pop())["provenance"]["mixture"] == {"a": 0.5, "b": 0.25, "c": 0.25}
    for text in ("even", "a=0.5,b=x", "a=1", "{", "none.json", "[1]"):
        bad = run("calibrate", *summaries, "--mixture", text, "-o", "-")
        assert bad.code == 1
        assert bad.err.startswith("gcfcp: ")


@pytest.mark.slow
def test_streams_compose(sites: Path, tmp_path: Path) -> None:
    """`summarize - | calibrate -` works as a pipe between two processes, in bytes."""
    command = [sys.executable, "-c", "from gcfcp.cli import main; main()"]
    with (sites / "a.csv").open("rb") as data:
        first = subprocess.run(
            [*command, "summarize", "-", "--groups", "groups.toml", "--client", "a", "-o", "-"],
            stdin=data, capture_output=True, cwd=tmp_path, check=True,
        )  # fmt: skip
    second = subprocess.run(
        [*command, "calibrate", "-", "-o", "-"],
        input=first.stdout, capture_output=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    found = gcfcp.Predictor.from_json(second.stdout)
    assert found.provenance["clients"][0]["n"] == 300
    assert b"\x1b" not in first.stderr + second.stderr  # A pipe gets no colours and no bar.


# --- nothing is lost -----------------------------------------------------------------------------


def test_no_overwrite_without_force(summaries: list[str], run: Callable[..., Ran]) -> None:
    before = Path("a.gcfcp").read_bytes()
    again = ("summarize", "b.csv", "--groups", "groups.toml", "--client", "b", "-o", "a.gcfcp")
    refused = run(*again)
    assert refused.code == 1
    assert "a.gcfcp exists" in refused.err
    assert Path("a.gcfcp").read_bytes() == before
    assert run(*again, "--force").code == 0
    assert Path("a.gcfcp").read_bytes() != before


def test_a_failure_leaves_no_file(sites: Path, run: Callable[..., Ran]) -> None:
    Path("holes.csv").write_text("age,sex,prediction,y\n30,F,1,2\n40,M,,2\n")
    before = sorted(os.listdir())
    bad = run("summarize", "holes.csv", "--groups", "groups.toml", "--client", "h", "-o", "h.gcfcp")
    assert bad.code == 1
    assert "1 of 2 rows" in bad.err
    assert sorted(os.listdir()) == before
    good = run("summarize", "holes.csv", "--groups", "groups.toml", "--client", "h", "-o",
               "h.gcfcp", "--missing", "drop")  # fmt: skip
    assert good.code == 0
    assert "1 of 2 rows had no score and were dropped" in good.err


# --- what is wrong is one line -------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("summarize", "none.csv", "--groups", "groups.toml", "--client", "a", "-o", "x"),
        ("summarize", "a.csv", "--groups", "none.toml", "--client", "a", "-o", "x"),
        ("summarize", "a.csv", "--groups", "groups.toml", "--client", "", "-o", "x"),
        ("summarize", "a.csv", "--groups", "groups.toml", "--client", "a", "-o", "no/x"),
        ("summarize", "a.csv", "--groups", "groups.toml", "--client", "a", "-o", "."),
        ("summarize", "a.csv", "--groups", "groups.toml", "--client", "a", "-o", "x",
         "--score", "thr"),
        ("summarize", "a.csv", "--groups", "groups.toml", "--client", "a", "-o", "x",
         "--delta", "1"),
        ("summarize", "a.csv", "--groups", "groups.toml", "--client", "a", "-o", "-", "--json"),
        ("summarize", "groups.toml", "--groups", "groups.toml", "--client", "a", "-o", "x"),
        ("inspect", "a.csv"),
        ("inspect", "."),
        ("plan", "a.csv"),
        ("calibrate", "groups.toml", "-o", "x"),
        ("predict", "groups.toml", "a.csv", "-o", "x"),
        ("audit", "a.csv", "a.csv", "--client", "a", "-o", "x"),
        ("audit-merge", "a.csv"),
        ("report", "a.csv", "-o", "x"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(sites: Path, run: Callable[..., Ran], arguments: tuple) -> None:
    done = run(*arguments)
    assert done.code == 1, done
    assert done.out == ""
    assert done.err.startswith("gcfcp: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    assert not Path("x").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("summarize",),
        ("summarize", "a.csv", "--groups", "groups.toml", "--client", "a"),
        ("plan", "--alpha", "a lot", "a.gcfcp"),
        ("plan",),
        ("summarize", "a.csv", "--groups", "g", "--client", "a", "-o", "x", "--score", "best"),
    ],
)
def test_usage_is_exit_code_two(run: Callable[..., Ran], arguments: tuple) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_all_bad_files_are_named_at_once(summaries: list[str], run: Callable[..., Ran]) -> None:
    good = Path("a.gcfcp").read_bytes()
    Path("cut.gcfcp").write_bytes(good[:-5])
    Path("flip.gcfcp").write_bytes(good[:100] + b"?" + good[101:])
    done = run("calibrate", "cut.gcfcp", "b.gcfcp", "flip.gcfcp", "gone.gcfcp", "-o", "p.json")
    assert done.code == 1
    for name in ("cut.gcfcp", "flip.gcfcp", "gone.gcfcp"):
        assert name in done.err
    assert "3 of 4 files cannot be used" in done.err


def test_all_misfits_are_named_at_once(summaries: list[str], run: Callable[..., Ran]) -> None:
    Path("other.toml").write_text('all = "TRUE"\n')
    for name, groups in (("x", "other.toml"), ("y", "other.toml")):
        run("summarize", "a.csv", "--groups", groups, "--client", name, "-o", f"{name}.gcfcp")
    run("summarize", "b.csv", "--groups", "groups.toml", "--client", "a", "-o", "twice.gcfcp")
    done = run("plan", "a.gcfcp", "x.gcfcp", "b.gcfcp", "y.gcfcp", "twice.gcfcp")
    assert done.code == 1
    for text in ("x.gcfcp was summarised for groups", "y.gcfcp was summarised for groups",
                 "a.gcfcp and twice.gcfcp: client 'a' sent two different"):  # fmt: skip
        assert text in done.err


def test_warnings_are_one_line(summaries: list[str], run: Callable[..., Ran]) -> None:
    done = run("calibrate", *summaries, "--alpha", 0.001, "-o", "p.json")
    assert done.code == 0
    assert [line for line in done.err.splitlines() if line.startswith("warning: ")]


# --- text from files is only text ----------------------------------------------------------------


def test_markup_in_names_is_shown_not_obeyed(sites: Path, run: Callable[..., Ran]) -> None:
    Path("odd.toml").write_text('"[red]all[/red]" = "TRUE"\n"[/]" = "age > 30"\n')
    done = run("summarize", "a.csv", "--groups", "odd.toml", "--client", "[bold]a", "-o", "x.gcfcp")
    assert done.code == 0, done.err
    shown = run("inspect", "x.gcfcp")
    assert "[red]all[/red]" in shown.out
    assert "[bold]a" in shown.out
    assert "[/]" in run("plan", "x.gcfcp").out


def test_control_characters_are_spelled_out(run: Callable[..., Ran]) -> None:
    Path("evil\x1b[2J.csv").write_text("a,\x1b[31mb\n1,2\n")
    done = run("inspect", "evil\x1b[2J.csv")
    assert done.code == 1
    assert "\x1b" not in done.err
    assert "\\x1b[2J" in done.err
    assert console.safe("a\x1bb\nc\x9b") == "a\\x1bb c\\x9b"


# --- a terminal, a pipe, a hurry -----------------------------------------------------------------


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_fault(predictor: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from gcfcp.cli import main; main()"]
    many = pl.concat([pl.read_parquet("a-new.parquet")] * 200)
    many.write_parquet("many.parquet")
    child = subprocess.Popen(
        [*command, "predict", predictor, "many.parquet", "-o", "-"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.read(10)
    child.stdout.close()
    err = child.stderr.read()
    child.wait()
    assert b"Traceback" not in err
    assert b"Exception" not in err


def test_interrupted_it_leaves_nothing_and_says_nothing(sites: Path) -> None:
    """The command waits for standard input, and Ctrl-C ends it."""
    before = sorted(os.listdir(sites))
    child = subprocess.Popen(
        [sys.executable, "-c", "from gcfcp.cli import main; print('up', flush=True); main()",
         "summarize", "-", "--groups", "groups.toml", "--client", "a", "-o", "x.gcfcp"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=sites,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode in (1, 130)
    assert b"Traceback" not in err
    assert sorted(os.listdir(sites)) == before


# --- randomness ----------------------------------------------------------------------------------


def test_seeds(run: Callable[..., Ran]) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 80)
    data = pl.DataFrame({f"proba_{i}": p[:, i] for i in range(3)} | {"y": rng.integers(0, 3, 80)})
    data.write_csv("p.csv")
    Path("groups.toml").write_text('all = "TRUE"\n')

    def made(*more: object) -> bytes:
        done = run("summarize", "p.csv", "--groups", "groups.toml", "--client", "a",
                   "--score", "aps", "-o", "a.gcfcp", "--force", *more)  # fmt: skip
        assert done.code == 0, done.err
        seeds.append(done.err.split("seed ")[1].split()[0] if "seed " in done.err else None)
        return Path("a.gcfcp").read_bytes()

    seeds: list[str | None] = []
    assert made("--seed", 3) == made("--seed", 3)
    assert made("--seed", 3) != made("--seed", 4)
    drawn = made()
    assert seeds[-1] is not None
    assert made("--seed", seeds[-1]) == drawn
    assert made("--no-randomize") == made("--no-randomize")
    assert seeds[-1] is None


# --- a grid --------------------------------------------------------------------------------------


def test_counts_on_a_grid_from_tables_to_sets(
    sites: Path, predictor: str, run: Callable[..., Ran]
) -> None:
    made = run("grid", f"near:{predictor}", "--cells", 50, "-o", "grid.json", "--json")
    assert made.code == 0
    assert 2 <= made.json["cells"] <= 50
    for name in "abc":
        done = run(
            "summarize", f"{name}.csv", "--groups", "groups.toml", "--client", name,
            "--grid", "grid.json", "-o", f"{name}.grid",
        )  # fmt: skip
        assert (done.code, done.out) == (0, ""), done.err
    parts = ["a.grid", "b.grid", "c.grid"]
    assert "cells of the public grid" in run("inspect", "a.grid").out
    added = run("add", *parts, "--client", "total", "-o", "total.grid", "--json").json
    assert added["records"] == 900
    assert run("inspect", "total.grid", "--json").json["cells"] == made.json["grid"]
    plain = run("calibrate", *parts, "-o", "parts.json", "--json")
    total = run("calibrate", "total.grid", "--aggregate", "total=3", "-o", "total.json", "--json")
    assert plain.code == total.code == 0, total.err
    one, two = (gcfcp.Predictor.load(f"{name}.json") for name in ("parts", "total"))
    rows = np.array([[True, False, False], [True, True, True]])
    assert one.thresholds(rows).tolist() == two.thresholds(rows).tolist()
    assert {g["certified_status"] for g in one.provenance["guarantee"]} == {"proved"}
    assert run("predict", "total.json", "a-new.parquet", "-o", "sets.csv").code == 0
    assert run("report", "total.json", "-o", "report.html").code == 0
    bad = run("summarize", "a.csv", "--groups", "groups.toml", "--client", "a", "--grid",
              "uniform:0,1", "-o", "x.grid")  # fmt: skip
    assert bad.code == 1
    assert "write uniform:LOW,HIGH,CELLS" in bad.err


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, run: Callable[..., Ran]) -> None:
    done = run(command, "--help")
    assert done.code == 0
    assert f"Example: gcfcp {command}" in " ".join(done.out.split())


def test_help_lists_every_command(run: Callable[..., Ran]) -> None:
    done = run("--help")
    for command in COMMANDS:
        assert command in done.out
    assert run("--version").out == f"gcfcp {gcfcp.__version__}\n"


def test_shell_completion() -> None:
    """The shell asks for the commands that begin with "aud"."""
    environment = os.environ | {
        "_GCFCP_COMPLETE": "complete_bash",
        "COMP_WORDS": "gcfcp aud",
        "COMP_CWORD": "1",
    }
    found = subprocess.run(
        [str(Path(sys.executable).with_name("gcfcp"))],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.split() == ["audit", "audit-merge"]


def test_the_command_line_starts_without_polars_and_matplotlib() -> None:
    """Otherwise --help and --version would wait for libraries that they do not need."""
    code = (
        "import sys; import gcfcp.cli.entry; "
        "print([m for m in ('polars', 'matplotlib') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


# --- sites as groups, and groups that a site cannot have ------------------------------------------


def test_every_site_as_a_group(sites: Path, run: Callable[..., Ran]) -> None:
    Path("sites.toml").write_text('sites = ["a", "b"]\n[groups]\nall = "TRUE"\nold = "age >= 65"\n')
    for name in "ab":
        done = run(
            "summarize", f"{name}.csv", "--groups", "sites.toml", "--client", name,
            "-o", f"{name}.gcfcp",
        )  # fmt: skip
        assert done.code == 0
        assert f"the records belong to the groups of the sites {name}" in done.err
    shown = run("inspect", "b.gcfcp")
    assert "    old = age >= 65\n    site a\n    site b\n" in shown.out
    assert run("inspect", "b.gcfcp", "--json").json["sites"] == ["b"]
    assert run("calibrate", "a.gcfcp", "b.gcfcp", "--alpha", 0.1, "-o", "p.json").code == 0
    assert run("predict", "p.json", "a-new.parquet", "--site", "a", "-o", "sets-a.csv").code == 0
    assert run("predict", "p.json", "a-new.parquet", "--site", "b", "-o", "sets-b.csv").code == 0
    assert (
        pl.read_csv("sets-a.csv")["threshold"].max() < pl.read_csv("sets-b.csv")["threshold"].min()
    )
    done = run("audit", "p.json", "a-new.parquet", "--client", "a", "-o", "a.audit", "--json")
    assert [g["total"] for g in done.json["groups"]][2:] == [200, 0]
    assert run("report", "p.json", "a.audit", "-o", "report.html").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the sites a, b: give the site of these rows (site=..., or --site on the command"),
        (["--site", "c"], "site='c' is not one of the sites a, b: give one of them"),
    ],
)
def test_a_prediction_without_its_site_is_one_line(
    arguments: list[str], message: str, sites: Path, run: Callable[..., Ran]
) -> None:
    Path("sites.toml").write_text('sites = ["a", "b"]\n')
    options = ("--groups", "sites.toml", "--client", "a", "-o", "a.gcfcp")
    assert run("summarize", "a.csv", *options).code == 0
    assert run("calibrate", "a.gcfcp", "--alpha", 0.1, "-o", "p.json").code == 0
    done = run("predict", "p.json", "a-new.parquet", *arguments, "-o", "out.csv")
    assert done.code == 1
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not Path("out.csv").exists()


def test_a_site_is_refused_where_no_group_is_a_site(
    predictor: str, run: Callable[..., Ran]
) -> None:
    done = run("predict", predictor, "a-new.parquet", "--site", "a", "-o", "out.csv")
    assert done.code == 1
    assert "site='a' is given, but the groups have no sites: leave it out" in done.err


def test_groups_that_a_site_cannot_have(sites: Path, run: Callable[..., Ran]) -> None:
    pl.read_csv("a.csv").filter(pl.col("age") < 65).write_csv("young.csv")
    options = ("--groups", "groups.toml", "--client", "a", "--absent", "old")
    done = run("summarize", "young.csv", *options, "-o", "a.gcfcp")
    assert done.code == 0
    assert "no record can belong to the groups old" in done.err
    assert "no record can belong to the groups old" in run("inspect", "a.gcfcp").out
    assert run("inspect", "a.gcfcp", "--json").json["absent"] == ["old"]
    done = run("summarize", "young.csv", *options, "--absent", "women", "-o", "b.gcfcp")
    assert done.code == 1
    assert "belong to group 'women', which was declared absent, the first in row" in done.err
    done = run("summarize", "young.csv", *options, "--absent", "men", "-o", "b.gcfcp")
    assert done.code == 1
    assert "absent='men' is not one of the groups all, old, women: give the names" in done.err
    assert not Path("b.gcfcp").exists()


# --- by group, with a shape and with confidence --------------------------------------------------


def summarize(run: Callable[..., Ran], data: str, output: str, *options: object) -> Ran:
    client = output[0]
    arguments = ("summarize", data, "--groups", "groups.toml", "--client", client, "-o", output)
    return run(*arguments, *options)


@pytest.mark.slow
def test_last_quarters_predictor_is_this_quarters_shape(
    predictor: str, sites: Path, run: Callable[..., Ran]
) -> None:
    for name in "abc":
        done = summarize(
            run, f"{name}-new.parquet", f"{name}2.gcfcp", "--shape", predictor, "--min-count", 5
        )
        assert (done.code, done.out) == (0, "")
        assert "groups are described" in done.err
        assert "the values are the scores less the shape" in done.err
    files = ["a2.gcfcp", "b2.gcfcp", "c2.gcfcp"]
    made = run("calibrate", *files, "--confidence", 0.9, "-o", "next.json")
    assert made.code == 0
    assert "promised for this predictor, with 90 % confidence" in made.err
    assert made.err.count("0.9000 (proved)") == 3
    loaded = [gcfcp.ClientSummary.load(f) for f in files]
    assert gcfcp.Shape.load(predictor) == gcfcp.Shape.load("next.json") == loaded[0].shape
    by_hand = gcfcp.calibrate(loaded, 0.1, confidence=0.9)
    assert Path("next.json").read_text() == gcfcp.Predictor("residual", by_hand).to_json()
    # It predicts, is audited and reported like any other.
    assert run("predict", "next.json", "a.csv", "-o", "sets.csv").code == 0
    data, sets = pl.read_csv("a.csv"), pl.read_csv("sets.csv")
    groups = gcfcp.Groups.from_toml("groups.toml")
    assert (sets["threshold"] == by_hand.thresholds(groups.membership(data))).all()
    assert run("audit", "next.json", "a.csv", "--client", "a", "-o", "a.audit").code == 0
    done = run("report", "next.json", "a.audit", "--summary", files[0], "-o", "report.html")
    assert done.code == 0
    page = Path("report.html").read_text()
    assert "The promise is about this very predictor: with 90% confidence" in page
    plan = run("plan", *files, "--confidence", 0.9)
    assert "3 of 3 groups will have a finite threshold" in plan.out


def test_a_shape_is_made_inspected_and_refused_for_its_own_records(
    summaries: list[str], run: Callable[..., Ran]
) -> None:
    done = run("shape", *summaries, "--alpha", 0.2, "-o", "shape.json")
    assert (done.code, done.out) == (0, "")
    shape = gcfcp.fit_shape([gcfcp.ClientSummary.load(f) for f in summaries], 0.2)
    assert gcfcp.Shape.load("shape.json") == shape
    assert run("inspect", "shape.json", "--json").json["coefficients"] == list(shape.coefficients)
    assert "a summary among them cannot be calibrated with it" in run("inspect", "shape.json").out
    again = summarize(run, "a.csv", "a2.gcfcp", "--shape", "shape.json")
    assert (again.code, again.err.count("\n")) == (1, 1)
    assert "a: the shape was made from these very records" in again.err
    assert not Path("a2.gcfcp").exists()
    own = run("calibrate", *summaries, "--shape", "shape.json", "-o", "p.json")
    assert own.code == 1
    assert "made from this very summary of a" in own.err


def test_min_count_means_by_group_and_says_so(sites: Path, run: Callable[..., Ran]) -> None:
    done = summarize(run, "a.csv", "a1.gcfcp", "--min-count", 5)
    assert "by group, because min_count is above 1; --by atom describes combinations" in done.err
    atom = summarize(run, "b.csv", "b1.gcfcp", "--min-count", 5, "--by", "atom")
    assert "by group" not in atom.err
    mixed = run("calibrate", "a1.gcfcp", "b1.gcfcp", "-o", "p.json")
    assert (mixed.code, mixed.err.splitlines()[0]) == (
        1,
        "gcfcp: b1.gcfcp was summarised with by 'atom', a1.gcfcp with 'group': all clients must "
        "use the same",
    )
    refused = run("calibrate", "a1.gcfcp", "--rule", "simultaneous", "-o", "p.json")
    assert "summaries by group do not tell how groups overlap: use rule='max'" in refused.err


def test_a_holdout_makes_two_files(sites: Path, run: Callable[..., Ran]) -> None:
    options = ("--holdout", 0.3, "--seed", 7, "--shape-part")
    done = summarize(run, "a.csv", "a1.gcfcp", *options, "part.gcfcp")
    assert "part.gcfcp has" in done.err
    part, level = (gcfcp.ClientSummary.load(f) for f in ("part.gcfcp", "a1.gcfcp"))
    assert part.n + level.n == 300
    assert (part.by, level.by) == ("atom", "atom")
    assert run("shape", "part.gcfcp", "-o", "shape.json").code == 0
    done = run("calibrate", "a1.gcfcp", "--shape", "shape.json", "-o", "p.json")
    assert "0.9000 (proved)" in done.err
    # With the shape at hand, the same seed gives the same records by group.
    again = summarize(
        run, "a.csv", "a2.gcfcp", *options, "part2.gcfcp", "--shape", "shape.json", "--min-count", 4
    )
    assert again.code == 0
    assert gcfcp.ClientSummary.load("a2.gcfcp").n == level.n
    assert gcfcp.ClientSummary.load("a2.gcfcp").by == "group"
    for wrong, words in (
        (("--holdout", 0.3), "belong together"),
        (("--shape-part", "x"), "belong together"),
        (("--holdout", 0.3, "--shape-part", "a3.gcfcp"), "the same file"),
        (("--holdout", 0.3, "--shape-part", "part.gcfcp"), "part.gcfcp exists"),
        (("--holdout", 2, "--shape-part", "x"), "holdout=2.0 is not in"),
    ):
        refused = summarize(run, "a.csv", "a3.gcfcp", *wrong)
        assert refused.code == 1
        assert words in refused.err
        assert not Path("a3.gcfcp").exists()


@pytest.mark.parametrize("command", ["summarize", "plan", "predict", "audit-merge", "report"])
def test_help_describes_every_argument_once(command: str, run: Callable[..., Ran]) -> None:
    shown = run(command, "--help").out
    arguments = shown.split("\nArguments:\n")[1].split("\nOptions:\n")[0]
    for line in arguments.strip().splitlines():
        if line.startswith("  ") and not line.startswith("   "):
            assert len(line.split()) > 3, line
    assert "Positional arguments" not in shown
    assert "\\[" not in shown
    assert "[required]" in shown
