"""A site in a file of its own, and a round in plain values."""

import json

import numpy as np
import pytest

import gcfcp
from gcfcp.carriers import Target, Terms, results_of, round_of, round_to_json
from gcfcp.rounds import Question, answer_summary, read_settings, read_site
from gcfcp.rounds.__main__ import main

GROUPS = gcfcp.Groups({"all": "TRUE", "over_65": "age >= 65"})
SITE = """\
client = "hospital-a"
ledger = "ledger"
data = "calibration.csv"
groups = "groups.toml"
score = "column"
min-count = 5
"""


@pytest.fixture
def folder(tmp_path):
    """A directory with all that a site needs."""
    rows = "".join(f"{30 + i},{i}\n" for i in range(60))
    (tmp_path / "calibration.csv").write_text("age,score\n" + rows)
    (tmp_path / "groups.toml").write_text(GROUPS.to_toml())
    (tmp_path / "site.toml").write_text(SITE)
    return tmp_path


def question():
    return Question(GROUPS, "column", min_count=5)


def test_paths_start_at_the_directory_of_the_file(folder, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    site = read_site(folder / "site.toml")
    assert site.client == "hospital-a"
    assert site.ledger.directory == folder / "ledger"
    summary = gcfcp.ClientSummary.from_bytes(answer_summary(site, question()))
    assert summary.n == 60
    # The directory as a whole can be elsewhere, as in a container, where the data set has a name.
    (folder / "site.toml").write_text(SITE + 'dataset = "2026Q4"\n')
    before = answer_summary(read_site(folder / "site.toml"), question())
    moved = folder.rename(tmp_path.parent / "moved")
    assert answer_summary(read_site(moved / "site.toml"), question()) == before


def test_the_carrier_may_know_the_name(folder):
    (folder / "site.toml").write_text(SITE.replace('client = "hospital-a"\n', ""))
    assert read_site(folder / "site.toml", "site-1").client == "site-1"
    with pytest.raises(gcfcp.GCFCPError, match=r"site\.toml does not say who the site is"):
        read_site(folder / "site.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client = ", "is not TOML"),
        ('client = "a"\nledger = 3\n', "ledger=3"),
        (SITE + 'file = "x"\n', "unknown key 'file'"),
        (SITE.replace("hospital-a", ""), "client"),
    ],
)
def test_a_bad_file_is_named(folder, text, message):
    (folder / "site.toml").write_text(text)
    with pytest.raises(gcfcp.GCFCPError, match=message):
        read_site(folder / "site.toml")
    with pytest.raises(gcfcp.GCFCPError, match="nothing"):
        read_settings(folder / "nothing.toml")


def test_a_function_of_the_sites_own_can_make_the_site(folder):
    (folder / "my_site.py").write_text(
        "from gcfcp.rounds import site_of, Ledger\n"
        "from pathlib import Path\n"
        "def site(settings):\n"
        "    kept = {k: v for k, v in settings.items() if k not in ('site', 'client', 'ledger')}\n"
        "    name, ledger = settings['client'] + ' (own)', Ledger(Path(settings['ledger']))\n"
        "    return site_of(kept, name, ledger)\n"
    )
    (folder / "site.toml").write_text(SITE + 'site = "my_site.py:site"\n')
    assert read_site(folder / "site.toml").client == "hospital-a (own)"
    with pytest.raises(gcfcp.GCFCPError, match="a directory that the server writes to"):
        read_site(folder / "site.toml", foreign=[folder])


def test_a_file_can_be_checked(folder, capsys):
    assert main([str(folder / "site.toml")]) == 0
    out = capsys.readouterr().out
    assert "hospital-a answers this question" in out
    assert "min_count: 5" in out
    assert not (folder / "ledger").exists()  # Nothing was answered.
    (folder / "calibration.csv").unlink()
    assert main([str(folder / "site.toml")]) == 1
    assert "cannot read" in capsys.readouterr().err
    assert main([]) == 2


ROUNDS = [
    (Target(), Terms()),
    (Target(0.2, mixture="uniform", audit=True), Terms(deadline=5, min_clients=3)),
    (
        Target(mixture={"a": 1.0, "b": 2.0}, max_share=0.6, allow_share=("a",)),
        Terms(clients={"a": "site-1", "b": "site-2"}, missing="present", aggregates={"a": 3}),
    ),
]


@pytest.mark.parametrize(("target", "terms"), ROUNDS)
def test_a_round_survives_json(target, terms):
    plain = json.loads(json.dumps(round_to_json(question(), target, terms)))
    asked, same_target, same_terms = round_of(plain)
    assert (asked.to_json(), same_target, same_terms) == (question().to_json(), target, terms)


@pytest.mark.parametrize(
    "change",
    [
        {"path": "/etc/passwd"},
        {"question": None},
        {"question": {"score": "x"}},
        {"target": {"alpha": 2}},
        {"target": {"alpha": "x"}},
        {"target": {"unknown": 2}},
        {"target": [1]},
        {"terms": {"clients": 3}},
        {"terms": {"deadline": None}},
        {"terms": {"clients": {"a": 1}, "min_clients": 2}},
        3,
        None,
    ],
)
def test_a_round_that_makes_no_sense_is_refused(change):
    plain = round_to_json(question(), Target(), Terms())
    with pytest.raises(gcfcp.GCFCPError):
        round_of(plain | change if isinstance(change, dict) else change)


def test_secure_sums_are_flowers_alone_for_now():
    grid = gcfcp.Grid.uniform(0, 60, 8)
    sums = Question(GROUPS, "column", min_count=5, grid=grid, secure=True)
    with pytest.raises(gcfcp.GCFCPError, match="over Flower alone"):
        round_to_json(sums, Target(), Terms())
    with pytest.raises(gcfcp.GCFCPError, match="over Flower alone"):
        round_of({"question": sums.to_json(), "target": {}, "terms": {}})
    plain = Question(GROUPS, "column", min_count=5, grid=grid)
    assert round_of(round_to_json(plain, Target(), Terms()))[0].grid == grid


def test_a_grid_is_a_file_or_words(folder):
    gcfcp.Grid.uniform(0, 60, 8).save(folder / "grid.json")
    for text, expected in (("grid.json", str(folder / "grid.json")), ("uniform:0,1,9",) * 2):
        (folder / "site.toml").write_text(SITE + f'grid = "{text}"\n')
        assert read_settings(folder / "site.toml")["grid"] == expected


def test_the_files_of_an_earlier_run_are_not_those_of_a_failed_one(tmp_path):
    (tmp_path / "predictor.json").write_text("{}")
    (tmp_path / "record.json").write_text('{"problem": null}')
    assert set(results_of(tmp_path, None)) == {"predictor.json", "record.json"}
    assert results_of(tmp_path, "two are missing") == {}
    (tmp_path / "record.json").write_text('{"problem": "two are missing"}')
    assert set(results_of(tmp_path, "two are missing")) == {"record.json"}
    assert results_of(tmp_path / "nowhere", "two are missing") == {}


def test_the_same_answer_as_that_of_the_library(folder):
    data = answer_summary(read_site(folder / "site.toml"), question())
    age = np.arange(30, 90)
    member = np.column_stack([np.ones(60), age >= 65])
    expected = gcfcp.summarize(
        np.arange(60.0),
        member,
        groups=GROUPS,
        client="hospital-a",
        score="column",
        min_count=5,
        by="group",
    )
    assert data == expected.to_bytes()
