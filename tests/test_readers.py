"""What a data scientist and a compliance officer read of the command line does not mislead them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import gcfcp
from test_cli import Ran, audits, predictor, run, sites, summaries

__all__ = ["audits", "predictor", "run", "sites", "summaries"]  # The fixtures of another file.

Run = Callable[..., Ran]


# --- audits of something else --------------------------------------------------------------------


@pytest.fixture
def uniform(summaries: list[str], run: Run) -> str:
    """A second predictor of the same summaries, for another mixture."""
    weights = "a=0.6,b=0.3,c=0.1"
    assert run("calibrate", *summaries, "--mixture", weights, "-o", "uniform.json").code == 0
    return "uniform.json"


def test_a_report_refuses_the_audits_of_another_predictor(
    audits: list[str], predictor: str, uniform: str, run: Run
) -> None:
    done = run("report", uniform, *audits, "-o", "r.html")
    asked, audited = (gcfcp.Predictor.load(p).fingerprint[:8] for p in (uniform, predictor))
    assert (done.code, done.err) == (
        1,
        f"gcfcp: the audit is of predictor {audited}.., but the report is about predictor "
        f"{asked}..: give the predictor that was audited, or audit this one\n",
    )
    assert not Path("r.html").exists()


def test_mixed_audits_are_refused_with_short_fingerprints(
    audits: list[str], predictor: str, uniform: str, run: Run
) -> None:
    run("audit", uniform, "c-new.parquet", "--client", "c", "-o", "c.audit", "--force")
    done = run("audit-merge", *audits)
    one, two = (gcfcp.Predictor.load(p).fingerprint[:8] for p in (predictor, uniform))
    assert (done.code, done.err) == (
        1,
        f"gcfcp: c.audit was audited with predictor {two}.., a.audit with {one}..: all clients "
        "must use the same\n",
    )


def test_a_report_refuses_a_baseline_of_other_groups(
    audits: list[str], predictor: str, run: Run
) -> None:
    Path("others.toml").write_text('all = "TRUE"\nyoung = "age < 30"\n')
    for name in "abc":
        run(
            "summarize", f"{name}.csv", "--groups", "others.toml", "--client", name,
            "-o", f"{name}-o.gcfcp",
        )  # fmt: skip
    run("calibrate", *(f"{name}-o.gcfcp" for name in "abc"), "-o", "other.json")
    for name in "abc":
        run("audit", "other.json", f"{name}-new.parquet", "--client", name, "-o", f"{name}-o.audit")
    done = run("report", predictor, *audits, "--baseline", "CP=?-o.audit", "-o", "r.html")
    ours, theirs = (
        gcfcp.Predictor.load(p).groups.fingerprint[:8] for p in (predictor, "other.json")
    )
    assert (done.code, done.err) == (
        1,
        f"gcfcp: CP is of groups {theirs}.., but the predictor is for groups {ours}..: audit with "
        "the predictor's groups\n",
    )


# --- what a verdict says -------------------------------------------------------------------------


@pytest.fixture
def empty_handed(sites: Path, run: Run) -> tuple[str, list[str]]:
    """A predictor whose group "rare" has no finite threshold, and its audits."""
    Path("groups.toml").write_text('all = "TRUE"\nrare = "age = 20"\n')
    for name in "abc":
        run("summarize", f"{name}.csv", "--groups", "groups.toml", "--client", name,
            "-o", f"{name}.gcfcp")  # fmt: skip
    assert (
        run("calibrate", *(f"{n}.gcfcp" for n in "abc"), "--alpha", 0.02, "-o", "p.json").code == 0
    )
    for name in "abc":
        run("audit", "p.json", f"{name}.csv", "--client", name, "-o", f"{name}.audit")
    return "p.json", [f"{name}.audit" for name in "abc"]


def test_a_promise_kept_by_giving_everything_is_called_so(
    empty_handed: tuple[str, list[str]], run: Run
) -> None:
    file, files = empty_handed
    shown = run("audit-merge", *files)
    line = next(line for line in shown.out.splitlines() if line.strip().startswith("rare "))
    assert "kept, but only by giving everything" in line
    assert "100.0%" in line
    assert (
        "rare: 100.0% of its sets hold everything, and 100.0% have an infinite threshold; such a "
        "set is never wrong and says nothing (gcfcp plan says what would help)"
    ) in shown.out.splitlines()
    groups = run("audit-merge", *files, "--json").json["groups"]
    assert [(g["full"], g["infinite"], g["empty"]) for g in groups][1] == (1.0, 1.0, 0.0)
    assert "everything" not in groups[0]["verdict"]
    for name in "abc":  # A site that tells no small numbers says it all the same.
        run("audit", file, f"{name}.csv", "--client", name, "-o", f"{name}.audit", "--force",
            "--min-count", 5)  # fmt: skip
    hidden = run("audit-merge", *files)
    line = next(line for line in hidden.out.splitlines() if line.strip().startswith("rare "))
    assert "kept, but only by giving everything" in line
    assert "rare: all of its sets hold everything; such a set" in hidden.out


def test_a_verdict_names_its_mixture_and_whether_it_was_promised(
    audits: list[str], run: Run
) -> None:
    own = "mixture of the clients: the predictor's mixture (a 0.3333, b 0.3333, c 0.3333)"
    assert own in run("audit-merge", *audits).out.splitlines()
    other = run("audit-merge", *audits, "--mixture", "a=0.5,b=0.25,c=0.25").out.splitlines()
    assert (
        "mixture of the clients: weights that were given (a 0.5, b 0.25, c 0.25); the promise was "
        "made for another mixture (a 0.3333, b 0.3333, c 0.3333)"
    ) in other


def test_coverage_is_shown_site_by_site_with_what_is_promised(audits: list[str], run: Run) -> None:
    shown = run("audit-merge", *audits, "--sites").out
    assert "Site by site: 95% confidence for all sites and groups together" in shown
    assert "to a single site nothing is promised" in shown
    rows = [
        line.split() for line in shown.splitlines() if line.strip().startswith(("a ", "b ", "c "))
    ]
    assert [row[:2] for row in rows] == [[s, g] for s in "abc" for g in ("all", "old", "women")]
    assert "Site by site" not in run("audit-merge", *audits).out


# --- a group that matches nobody -----------------------------------------------------------------


WOMEN = 'all = "TRUE"\nwomen = "sex = \'female\'"\n'


def other_words(name: str, words: dict[str, str]) -> None:
    """Let the column sex of a site hold other words."""
    data = pl.read_csv(f"{name}.csv")
    data.with_columns(pl.col("sex").replace(words)).write_csv(f"{name}.csv")


def test_a_group_that_matches_nobody_is_named_with_the_values_that_occur(
    sites: Path, run: Run
) -> None:
    Path("groups.toml").write_text(WOMEN)
    for name in "abc":
        other_words(name, {"F": "Female", "M": "Male"})
        data = pl.read_csv(f"{name}.csv")["sex"].value_counts().rows_by_key("sex")
        done = run("summarize", f"{name}.csv", "--groups", "groups.toml", "--client", name,
                   "-o", f"{name}.gcfcp")  # fmt: skip
        assert done.code == 0
        assert f"warning: group 'women' (sex = 'female') has none of the records of {name}.csv" in (
            done.err
        )
        assert f"'Female' ({data['Female'][0][0]})" in done.err
        assert "'Female' differs from 'female' only in capitals or blanks" in done.err
        # It is said at the site, and does not leave it.
        assert b"Female" not in Path(f"{name}.gcfcp").read_bytes()
    files = [f"{name}.gcfcp" for name in "abc"]
    quiet = run("summarize", "a.csv", "--groups", "groups.toml", "--client", "a", "-o", "n.gcfcp",
                "--absent", "women")  # fmt: skip
    assert "none of the records" not in quiet.err
    planned = run("plan", *files).out.splitlines()
    rows = [line.split()[0] for line in planned if line.strip().startswith(("women ", "all "))]
    assert rows == ["women", "all"]
    assert "Female" not in run("plan", *files).out + run("inspect", "a.gcfcp").out
    made = run("calibrate", *files, "-o", "p.json")
    assert "women" in made.err
    line = next(line for line in made.err.splitlines() if line.strip().startswith("women "))
    assert "proved" not in line
    assert "only by giving everything" in line
    assert "warning: group 'women': no site has described a record of it" in made.err


def test_a_plan_names_the_site_that_alone_lacks_a_group(sites: Path, run: Run) -> None:
    Path("groups.toml").write_text('all = "TRUE"\nwomen = "sex = \'F\'"\n')
    other_words("c", {"F": " F"})
    for name in "abc":
        done = run("summarize", f"{name}.csv", "--groups", "groups.toml", "--client", name,
                   "-o", f"{name}.gcfcp")  # fmt: skip
        assert ("' F'" in done.err) == (name == "c")
    planned = run("plan", "a.gcfcp", "b.gcfcp", "c.gcfcp").out
    assert "c has no record of group 'women' (sex = 'F'), which " in planned
    assert (
        "% of the records elsewhere belong to: ask the site how it writes these values" in planned
    )


# --- files ---------------------------------------------------------------------------------------


def summarised(run: Run, file: str, *more: object) -> Ran:
    return run("summarize", file, "--groups", "groups.toml", "--client", "a", "-o", "x.gcfcp",
               "--force", *more)  # fmt: skip


@pytest.mark.parametrize(("separator", "written"), [(";", ";"), ("\t", "tab"), ("\t", "\\t")])
def test_other_separators_are_named_and_can_be_given(
    sites: Path, run: Run, separator: str, written: str
) -> None:
    pl.read_csv("a.csv").write_csv("s.csv", separator=separator)
    done = summarised(run, "s.csv")
    assert done.code == 1
    assert "s.csv has one column, 'id" in done.err
    assert done.err.count("'") % 2 == 0  # No quotation is left open.
    assert f"--separator {'tab' if separator == chr(9) else repr(separator)}" in done.err
    assert summarised(run, "a.csv").code == 0
    expected = Path("x.gcfcp").read_bytes()
    assert summarised(run, "s.csv", "--separator", written).code == 0
    assert Path("x.gcfcp").read_bytes() == expected
    assert "is not one character" in summarised(run, "s.csv", "--separator", "ab").err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("y,prediction\n1,2\n".encode("utf-16"), "odd.csv is written in UTF-16: save it as CSV"),
        ("y,prediction\n1,2\n".encode("utf-16-le"), "odd.csv is written in UTF-16: save it as"),
        (
            b"PK\x03\x04rest",
            "odd.csv is an Excel workbook or another archive, and not a table: save",
        ),
        (b"\xd0\xcf\x11\xe0rest", "odd.csv is an Excel workbook"),
        (b"y,prediction,age,sex\n1,2,3,\xe9\n", "odd.csv is not written in UTF-8: save it as CSV"),
        (
            b"y,prediction,age,sex\nabc,2,3,F\n",
            "odd.csv: column 'y' holds the text 'abc' where a number has to be: correct it, or",
        ),
        (
            b'y,prediction,age,sex\n"1,5",2,3,F\n',
            "odd.csv: column 'y' holds the text '1,5' where a number has to be: write 1.5 with a",
        ),
        (
            b"y,prediction,age,sex\n1,2,3,F\n1,2,old,F\n",
            "odd.csv: group 'old': 'age >= 65' does not fit column 'age', which holds the text "
            "'old': compare it with text in quotes, or correct it if it has to hold numbers (",
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_why_and_what_to_do(
    sites: Path, run: Run, content: bytes, message: str
) -> None:
    Path("odd.csv").write_bytes(content)
    done = summarised(run, "odd.csv")
    assert done.code == 1
    assert done.err.startswith(f"gcfcp: {message}")
    assert len(done.err.splitlines()) == 1


def test_text_in_a_numeric_column_of_parquet_names_column_and_file(sites: Path, run: Run) -> None:
    pl.read_csv("a.csv").with_columns(pl.col("y").cast(str)).write_parquet("odd.parquet")
    done = summarised(run, "odd.parquet")
    assert done.err.startswith("gcfcp: odd.parquet: column 'y' has the type String, but the score")


def test_predictions_are_not_written_under_the_name_of_another_format(
    predictor: str, run: Run
) -> None:
    done = run("predict", predictor, "a.csv", "-o", "p.xlsx")
    assert (done.code, done.err) == (
        1,
        "gcfcp: p.xlsx would be CSV under another name, because .xlsx is not written: give a name "
        "that ends in .csv or .parquet\n",
    )
    assert not Path("p.xlsx").exists()


def test_a_column_that_needs_quotes_is_named_with_them(sites: Path, run: Run) -> None:
    pl.read_csv("a.csv").rename({"age": "education-num"}).write_csv("e.csv")
    Path("groups.toml").write_text('high = "education-num >= 13"\n')
    hint = '; write "education-num" in double quotes: \'"education-num" >= 13\'\n'
    assert summarised(run, "e.csv").err.endswith(hint)
    groups = gcfcp.Groups({"high": "education-num >= 13"})
    with pytest.raises(gcfcp.GCFCPError, match='write "education-num" in double quotes'):
        groups.membership({"education-num": [13, 9]})
    Path("groups.toml").write_text("high = '\"education-num\" >= 13'\n")
    assert summarised(run, "e.csv").code == 0


def test_rows_are_counted_from_one_through_the_whole_file(sites: Path, run: Run) -> None:
    Path("groups.toml").write_text('all = "TRUE"\n')
    p = pl.DataFrame({"y": ["0"] * 9, "proba_0": [1.0] * 9, "proba_1": [0.0] * 9})
    p[7, "proba_0"] = 0.5
    p.write_csv("p.csv")
    assert "p.csv: probabilities of row 8 sum to 0.5" in summarised(run, "p.csv").err


@pytest.mark.parametrize("options", [[], ["--skip-bad"]])
def test_a_file_that_is_given_twice_is_counted_once_and_named(
    summaries: list[str], run: Run, options: list[str]
) -> None:
    first, *others = summaries
    Path("copy.gcfcp").write_bytes(Path(first).read_bytes())
    given = [first, *others, first, "copy.gcfcp"]
    done = run("calibrate", *given, *options, "-o", "twice.json")
    assert done.code == 0
    assert f"{first} is given twice, and is counted once\n" in done.err
    assert f"copy.gcfcp holds the same as {first}, so it is counted once\n" in done.err
    run("calibrate", *summaries, "-o", "once.json")
    assert Path("twice.json").read_bytes() == Path("once.json").read_bytes()


def test_an_alpha_that_is_a_coverage_or_a_percentage_is_asked_about(
    summaries: list[str], run: Run
) -> None:
    warned = run("calibrate", *summaries, "--alpha", 0.9, "-o", "p.json")
    assert warned.code == 0
    assert "warning: alpha=0.9 lets 0.9 of the outcomes be missed: did you mean 0.1?" in warned.err
    refused = run("calibrate", *summaries, "--alpha", 10, "-o", "q.json")
    assert refused.code == 1
    assert refused.err.endswith(": did you mean 0.1?\n")


def test_a_table_with_other_labels_than_the_model_is_refused(sites: Path, run: Run) -> None:
    Path("groups.toml").write_text('all = "TRUE"\n')
    for name, labels in (("a", "cd"), ("b", "cd"), ("x", "ce"), ("z", "cde")):
        share = 1 / len(labels)
        data = {"y": ["c"] * 40} | {f"proba_{label}": [share] * 40 for label in labels}
        pl.DataFrame(data).write_csv(f"{name}.csv")
        run("summarize", f"{name}.csv", "--groups", "groups.toml", "--client", name,
            "-o", f"{name}.gcfcp", "--force")  # fmt: skip
    assert run("calibrate", "a.gcfcp", "b.gcfcp", "-o", "p.json").code == 0
    for other, labels in (("x", '["c","e"]'), ("z", '["c","d","e"]')):
        refused = run("calibrate", "a.gcfcp", f"{other}.gcfcp", "-o", "q.json")
        assert refused.err == (
            f'gcfcp: {other}.gcfcp has the labels {labels}, a.gcfcp has ["c","d"]: all clients '
            "must use the same model and the same labels\n"
        )
        done = run("audit", "p.json", f"{other}.csv", "--client", "a", "-o", "a.audit")
        assert "but the predictor is for 'c', 'd': use the model that the predictor was" in done.err
        done = run("predict", "p.json", f"{other}.csv", "-o", "s.csv")
        assert "but the predictor is for 'c', 'd'" in done.err
