"""The explorer page: its numbers are those of `calibrate`, and no name becomes a part of it."""

from __future__ import annotations

import json
import re
import shlex
import sys
import warnings
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import gcfcp
from gcfcp import Groups, Predictor, calibrate, explore, summarize
from gcfcp.report import lookup, render, render_explorer
from gcfcp.report import numbers as num
from gcfcp.report.explorer import CHOICE

GROUPS = Groups({"all": "TRUE", "f": "sex = 'F'", "old": "age >= 65"})
SIZES = {"city": 60, "coast": 30, "isle": 12}
FEW = {"alphas": (0.02, 0.3), "parts": (0.5, 1), "within": None}
EVIL = "</script><img src=x onerror=alert(1)>&amp;"


def federation(groups=GROUPS, names=tuple(SIZES), **options):
    found = []
    for k, (name, n) in enumerate(zip(names, SIZES.values(), strict=True)):
        rng = np.random.default_rng(k)
        member = np.column_stack([np.ones(n, bool), rng.random(n) < 0.5, rng.random(n) < 0.3])
        score = rng.exponential(1 + member[:, 1])
        found.append(summarize(score, member, groups=groups, client=name, **options))
    return found


def data_of(page):
    """What the page looks up, as its script reads it."""
    (text,) = re.findall(r'<script type="application/json" id="explored">(.*?)</script>', page)
    return json.loads(text)


def quiet(summaries, setting, explored):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        return calibrate(summaries, setting.alpha, setting.stop.mixture, **explored.options)


def listed(data, place):
    return [data["texts"][text] for text in data["lists"][place]]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("made", "asked"),
    [
        ({}, {"rule": "max"}),
        ({"representative": "mean", "delta": 9}, {"clients": ["isle"]}),
        ({"by": "group", "min_count": 4}, {}),
    ],
    ids=str,
)
def test_the_numbers_of_the_page_are_those_of_calibrate(made, asked):
    summaries = federation(**made)
    explored = explore(summaries, **FEW, **asked)
    data = data_of(render_explorer(explored, date="today"))
    assert [float(text) for text, *_ in data["alphas"]] == list(explored.alphas)
    order = lookup._by_weight(explored.start)
    infinite = 0
    for column, columns in zip(data["settings"], explored.settings, strict=True):
        for shown, setting in zip(column, columns, strict=True):
            found = quiet(summaries, setting, explored)
            thresholds = np.array([r.threshold for r in found.atoms])[order]
            numbers = np.array([float(data["numbers"][t][0]) for t in shown["t"]])
            assert numbers.tobytes() == thresholds.tobytes()
            assert [data["numbers"][t][1] for t in shown["t"]] == [
                num.Cell.of(t, num.short).text for t in thresholds.tolist()
            ]
            weights = np.array([r.weight for r in found.atoms])
            shares = weights / (weights.sum() if explored.by == "atom" else 1.0)
            assert listed(data, shown["w"]) == [num.share(w) for w in shares[order]]
            charge, words, count, share = listed(data, shown["f"])
            assert words == str(found.correction)
            assert charge == found.correction.size
            without = np.isinf([r.threshold for r in found.atoms])
            assert count == f"{without.sum()} of {len(without)}"
            if explored.by == "atom":
                assert share == num.share(weights[without].sum() / weights.sum())
            promised = np.array(listed(data, shown["p"])).reshape(-1, 2)
            effective = listed(data, shown["e"])
            assert effective == [num.whole(g.effective_n) for g in found.guarantee]
            for (bound, ground), g in zip(promised, found.guarantee, strict=True):
                assert float(bound.rstrip("%")) <= 100 * g.certified + 1e-4
                assert float(bound.rstrip("%")) > 100 * g.certified - 0.11
                assert ground.startswith(g.certified_status)
                assert (g.theorem or "") in ground
            reasons = {r.reason for r in found.atoms if r.reason is not None}
            told = [data["texts"][reason] for reason, _ in shown["r"]]
            assert sorted(told) == sorted(f"{r[:1].upper()}{r[1:]}." for r in reasons)
            infinite += without.sum()
    assert infinite > 0


def test_shares_of_a_group_are_those_of_its_atoms():
    explored = explore(federation(), alphas=(0.02,), parts=(1,), clients=["isle"], within=None)
    data = data_of(render_explorer(explored))
    for column, columns in zip(data["settings"], explored.settings, strict=True):
        for shown, setting in zip(column, columns, strict=True):
            missing = listed(data, shown["m"])
            for g, name in enumerate(GROUPS.names):
                own = [r for r in setting.atoms if name in r.groups]
                without = sum(r.weight for r in own if np.isinf(r.threshold))
                assert missing[g] == num.share(without / sum(r.weight for r in own))


def test_the_sliders_stop_at_settings_only():
    explored = explore(federation(), rule="max", **FEW)
    data = data_of(render_explorer(explored))
    assert data["start"] == 1
    assert [line["name"] for line in data["lines"]] == [
        "every site counts the same", "city alone", "coast alone", "isle alone",
    ]  # fmt: skip
    for line in data["lines"]:
        assert [text for text, _ in line["stops"]] == ["0%", "50%", "100%"]
        assert line["stops"][0][1] == 0
    assert sorted({place for line in data["lines"] for _, place in line["stops"]}) == list(
        range(len(explored.stops))
    )
    texts = [text for text, *_ in data["stops"]]
    assert texts[0] == "in proportion to the records"
    assert "50% of the way from “in proportion to the records” to “isle alone”" in texts
    assert data["stops"][4][1] == "isle 100.0%, and 2 others not at all"


def test_the_page_says_what_a_choice_on_the_data_does_to_the_promise():
    page = unescape(render_explorer(explore(federation(), rule="max", **FEW)))
    for line in CHOICE:
        assert line in page
    guarantees = (Path(__file__).parent.parent / "docs" / "guarantees.md").read_text()
    assert "score, model, alpha and the mixture were fixed before anyone looked" in guarantees


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def test_no_name_becomes_a_part_of_the_page():
    """An attack: names of groups and sites that would end the script, or start another."""
    names = [EVIL, "<!--<script>", "</style><b>"]
    summaries = federation(Groups(names), tuple(names), score=EVIL, model=EVIL)
    explored = explore(summaries, rule="max", **FEW)
    page = render_explorer(explored, f"gcfcp {EVIL}", title=EVIL)
    reader = Tags()
    reader.feed(page)
    assert not [t for t, _ in reader.tags if t in ("img", "b", "iframe")]
    scripts = [attributes for t, attributes in reader.tags if t == "script"]
    assert scripts == [{"type": "application/json", "id": "explored"}, {}]
    assert [name for name, *_ in data_of(page)["groups"]] == names
    inner = page.split('id="explored">')[1].split("</script>")[0]
    assert not set("<>&") & set(inner)
    policy = next(a["content"] for t, a in reader.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_the_page_stays_small_and_says_what_is_left_out(monkeypatch):
    explored = explore(federation(), rule="max", **FEW)
    whole = render_explorer(explored, date="today")
    assert "had to be left out" not in whole
    size = len(lookup.lookup_of(explored).text)
    monkeypatch.setattr(lookup, "_BUDGET", size - 1)
    fewer = data_of(render_explorer(explored, date="today"))  # Fewer reasons are enough here.
    assert len(fewer["rows"]) == 4
    assert any(text.endswith(" of less weight") for text in fewer["texts"])
    monkeypatch.setattr(lookup, "_REASONS", 1)
    monkeypatch.setattr(lookup, "_BUDGET", len(json.dumps(fewer)) // 2)
    small = unescape(render_explorer(explored, date="today"))
    data = data_of(small)
    left = 4 - len(data["rows"])
    assert left > 0
    assert f"{num.counted(left, 'row')} of the table had to be left out: the combinations" in small
    assert listed(data, data["settings"][0][0]["f"])[2].endswith(" of 4")  # All are counted.


def test_the_same_exploration_gives_the_same_page():
    asked = {"rule": "max", "alphas": (), "parts": (1,), "within": None}
    pages = {
        render_explorer(explore(some, **asked), date="today")
        for some in (federation(), federation()[::-1])
    }
    assert len(pages) == 1


# --- the report -----------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("by", ["atom", "group"])
def test_a_report_explores_from_its_predictor_on(by):
    summaries = federation(by=by)
    options = {"rule": "max", "within": None}
    made = calibrate(summaries, 0.3, rule="max")
    predictor = Predictor.from_json(Predictor(made.summaries[0].score, made).to_json())
    explored = explore(summaries, 0.3, alphas=(0.1,), parts=(1,), **options)
    page = render(predictor, date="today", explored=explored)
    assert data_of(page)["start"] == 1
    assert "What another alpha or another mixture would cost" in page
    assert 'id="explored"' not in render(predictor, date="today")
    with pytest.raises(gcfcp.GCFCPError, match=r"thresholds \(they differ at .*\): give the summ"):
        render(predictor, explored=explore(summaries, 0.2, alphas=(), **options))
    with pytest.raises(gcfcp.GCFCPError, match="do not give the predictor's thresholds"):
        render(predictor, explored=explore(summaries[:2], 0.3, alphas=(), **options))
    other = federation(Groups(["x", "y", "z"]), by=by)
    with pytest.raises(gcfcp.GCFCPError, match=r"the summaries are for groups .*, but the predic"):
        render(predictor, explored=explore(other, 0.3, alphas=(), **options))


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """A function that runs a command beside the summaries: its exit code, and what it printed."""
    from gcfcp.cli import entry

    monkeypatch.chdir(folder)

    def go(*arguments):
        monkeypatch.setattr(sys, "argv", ["gcfcp", *arguments])
        capfd.readouterr()
        code = 0
        try:
            entry.main()
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capfd.readouterr()

    return go


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("sites")
    for s in federation():
        s.save(found / f"{s.client}.gcfcp")
    return found


FILES = [f"{name}.gcfcp" for name in SIZES]


def test_the_command_writes_the_page_and_its_commands_give_the_same_numbers(run, folder):
    asked = ["--alphas", "0.1:0.3:0.2", "--site", "isle", "--rule", "max", "-o", "explore.html"]
    code, out, err = run("explore", *FILES, *asked)
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        "18 settings were calibrated: 2 alphas at 9 mixtures",
        "fix alpha and the mixture with other records than those that you calibrate: for a setting "
        "that was chosen with the calibrated records nothing is proved",
        "open explore.html in a browser",
    ]
    page = (folder / "explore.html").read_text()
    data = data_of(page)
    # The command that the page shows for a setting, typed into a shell, gives its thresholds.
    place = next(i for i, (text, *_) in enumerate(data["stops"]) if text.startswith("25% "))
    more = re.findall('data-options="(.*?)"', page)
    assert more == ["--rule max"]
    options = shlex.split(f"{data['alphas'][1][2]} {data['stops'][place][2]} {more[0]}")
    assert options[:2] == ["--alpha", "0.3"]
    code, out, err = run("calibrate", *FILES, *options, "--json", "-o", "again.json")
    assert code == 0, err
    told = {
        tuple(data["groups"][g][0] for g in members): data["numbers"][number][0]
        for (_, members), number in zip(data["rows"], data["settings"][place][1]["t"], strict=True)
    }
    assert told == {tuple(r["groups"]): r["threshold"] for r in json.loads(out)["table"]}
    code, _, err = run("explore", *FILES, "-o", "explore.html")
    assert code == 1
    assert "--force" in err


def test_the_command_for_programs(run):
    assert (
        "did you mean 0.1?"
        in run(
            *(
                "explore",
                *FILES,
                "--alpha",
                "0.9",
                "--alphas",
                "0.9",
                "--no-sites",
                "--rule",
                "max",
            ),
            *("--json", "-o", "coverage.html"),
        )[2]
    )
    asked = ["--alphas", "0.1", "--no-sites", "--rule", "max", "--json", "-o", "programs.html"]
    told = json.loads(run("explore", *FILES, *asked)[1])
    assert told["alphas"] == [0.1]
    assert told["mixtures"][:2] == ["proportional", "uniform"]
    assert len(told["mixtures"]) == 5
    summaries = federation()
    for setting in told["settings"]:
        mixture = told["mixtures"][setting["mixture"]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
            found = calibrate(summaries, setting["alpha"], mixture, rule="max")
        numbers = [float(value) for value in setting["thresholds"]]
        assert numbers == [r.threshold for r in found.atoms]
        assert setting["reasons"] == [r.reason for r in found.atoms]


GIVEN = [word for file in FILES for word in ("--summary", file)]


def test_a_report_explores_the_summaries_of_its_predictor_only(run, folder):
    assert run("calibrate", *FILES, "--rule", "max", "-o", "p.json")[0] == 0
    code, _, err = run("report", "p.json", "--explore", "-o", "r.html")
    assert code == 1
    assert "--explore needs the summaries that the predictor was made of: give each" in err
    code, _, err = run("report", "p.json", "--explore", *GIVEN[:4], "-o", "r.html")
    assert code == 1
    assert "the summaries do not give the predictor's thresholds (they differ at all)" in err
    assert not (folder / "r.html").exists()


@pytest.mark.slow
def test_the_report_of_the_command_line_has_sliders(run, folder):
    assert run("calibrate", *FILES, "--rule", "max", "-o", "q.json")[0] == 0
    assert run("report", "q.json", "--explore", *GIVEN, "-o", "r.html")[0] == 0
    data = data_of((folder / "r.html").read_text())
    assert len(data["alphas"]) == 30
    assert len(data["stops"]) == 17


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--alphas", "0.1:0.2"], "--alphas '0.1:0.2' is neither FROM:TO:STEP"),
        (["--alphas", "a,b"], "--alphas 'a,b' is neither FROM:TO:STEP"),
        (["--alphas", "0.1:0.2:0"], "is neither FROM:TO:STEP"),
        (["--alphas", "0.1:0.2:1e-9"], "stands for more than 1,000 alphas: make STEP larger"),
        (["--alphas", "0.1,2"], "alpha=2.0 is not in (0, 1)"),
        (["--site", "isle", "--no-sites"], "--no-sites and --site 'isle' contradict each other"),
        (["--site", "moon"], "'moon' is not among the clients city, coast, isle"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_options_are_one_line(run, folder, options, words):
    code, out, err = run("explore", *FILES, *options, "-o", "wrong.html")
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert words in line
    assert not (folder / "wrong.html").exists()


def test_an_explored_alpha_that_is_a_coverage_is_asked_about_once(run):
    asked = ["--alphas", "0.1,0.8,0.9", "--no-sites", "--rule", "max", "-o", "asked.html"]
    code, _, err = run("explore", *FILES, *asked)
    assert code == 0
    assert [line for line in err.splitlines() if "did you mean" in line] == [
        "warning: alpha=0.9 lets 0.9 of the outcomes be missed: did you mean 0.1?"
    ]


def test_a_predictor_in_the_place_of_summaries_is_called_what_it_is(run):
    Path("explored.json").write_text('{"format": "gcfcp predictor", "version": 3}')
    code, _, err = run("explore", "explored.json", "-o", "wrong.html")
    assert code == 1
    assert err == "gcfcp: explored.json is a predictor, but a summary is needed here\n"


def test_alphas_are_counted_in_decimals():
    from gcfcp.calibration import ALPHAS
    from gcfcp.cli.explore import alphas_of

    assert tuple(alphas_of("0.01:0.3:0.01")) == ALPHAS
    assert alphas_of("0.05,0.1") == [0.05, 0.1]
    assert alphas_of("0.1:0.35:0.1") == [0.1, 0.2, 0.3]
