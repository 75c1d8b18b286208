"""What a data scientist and a compliance officer read of the command line does not mislead them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
