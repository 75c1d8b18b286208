"""Parts of one site's records become that site's summary: `gcfcp.join` and `gcfcp join`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp.calibration import PROVED
from gcfcp.cli import main
from gcfcp.groups import Groups
from gcfcp.noise import Noise
from gcfcp.summary import sensitivity_of
from gcfcp.summary.joining import EXACT_ROWS

GROUPS = Groups({"all": "TRUE", "old": "age >= 65", "female": "sex = 'F'"})
GRID = gcfcp.Grid.uniform(-2, 2, 12)


def records(n: int, seed: int = 0, groups: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    membership = np.column_stack([np.ones(n, bool), rng.random((n, groups - 1)) < 0.4])
    return rng.normal(size=n), membership


def parts_of(scores, membership, cuts, groups=GROUPS, client="a", **how) -> list[Any]:
    """One summary for each part of the records; how the records are cut is given."""
    return [
        gcfcp.summarize(s, m, groups=groups, client=client, **how)
        for s, m in zip(np.split(scores, cuts), np.split(membership, cuts), strict=True)
        if len(s)
    ]


@st.composite
def sites(draw) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Scores with repetitions and infinities, three groups, and where the records are cut."""
    n = draw(st.integers(2, 120))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = rng.normal(size=n).round(draw(st.sampled_from([0, 1, 9])))
    scores[rng.random(n) < draw(st.sampled_from([0, 0, 0.05]))] = np.inf
    membership = np.column_stack([np.ones(n, bool), rng.random((n, 2)) < 0.4])
    cuts = sorted(draw(st.lists(st.integers(1, n - 1), max_size=6, unique=True)))
    return scores, membership, cuts


def exact(scores, membership, client="a", **how) -> Any:
    """The summary with every score as it is."""
    return gcfcp.summarize(scores, membership, groups=GROUPS, client=client, delta=10**6, **how)


# Small parts of random records may be equal by chance, and small groups have no finite threshold.
quietly = pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")


# --- the laws ------------------------------------------------------------------------------------


@quietly
@settings(max_examples=30, deadline=None)
@given(sites(), st.sampled_from([4, 10, 40]), st.sampled_from(["upper", "mean"]), st.data())
def test_the_order_of_parts_changes_no_bit_and_no_record_is_lost(site, delta, kind, data):
    scores, membership, cuts = site
    parts = parts_of(scores, membership, cuts, delta=delta, representative=kind)
    before = [p.to_bytes() for p in parts]
    found = gcfcp.join(parts, "a", delta=delta / 2)
    assert gcfcp.join(data.draw(st.permutations(parts)), "a", delta=delta / 2) == found
    assert [p.to_bytes() for p in parts] == before
    assert found.n == len(scores)
    assert found.members == (("a", len(scores)),)
    assert not found.is_aggregate
    whole = exact(scores, membership)
    assert np.array_equal(found.membership, whole.membership)
    assert np.array_equal(found.atom_counts, whole.atom_counts)
    assert gcfcp.ClientSummary.from_bytes(found.to_bytes()) == found


@quietly
@settings(max_examples=30, deadline=None)
@given(
    sites(),
    st.sampled_from([4, 10, 40]),
    st.sampled_from(["upper", "mean"]),
    st.sampled_from(["atom", "group"]),
)
def test_the_certified_error_is_no_less_than_the_error(site, delta, kind, by):
    """The supremum over all scores, found by counting, for each cell."""
    scores, membership, cuts = site
    parts = parts_of(scores, membership, cuts, delta=delta, representative=kind, by=by)
    found = gcfcp.join(parts, "a", delta=delta / 2)
    whole = exact(scores, membership, by=by)
    assert np.array_equal(found.membership, whole.membership)
    for i, error in enumerate(found.errors):
        ours, theirs = slice(*found.start[i : i + 2]), slice(*whole.start[i : i + 2])
        points = np.concatenate([found.values[ours], whole.values[theirs]])
        here = found.counts[ours] @ (found.values[ours][:, None] <= points)
        there = whole.counts[theirs] @ (whole.values[theirs][:, None] <= points)
        assert np.abs(here - there).max() <= error
        assert error <= math.sin(math.pi / found.delta) * found.counts[ours].sum() + 1e-9
        if kind == "upper":
            assert (here <= there).all()


@quietly
@settings(max_examples=30, deadline=None)
@given(
    sites(),
    st.sampled_from([4, 10, 40]),
    st.floats(0.02, 0.5),
    st.sampled_from(["atom", "group"]),
    st.sampled_from([1, 3]),
)
def test_no_threshold_is_below_that_of_the_exact_scores(site, delta, alpha, by, min_count):
    """The join beside another client, by the rule that is proved."""
    scores, membership, cuts = site
    other = exact(*records(40, 5), client="b", by=by)
    parts = parts_of(scores, membership, cuts, delta=delta)
    join = gcfcp.join(parts, "a", delta=delta / 2, by=by, min_count=min_count)
    plain = exact(scores, membership, by=by)
    every = GROUPS.membership({"age": [0, 70, 0, 70], "sex": ["M", "M", "F", "F"]})
    limits = [
        gcfcp.calibrate([s, other], alpha, rule="max").thresholds(every) for s in (join, plain)
    ]
    assert (limits[0] >= limits[1]).all()


@quietly
@settings(max_examples=20, deadline=None)
@given(sites(), st.sampled_from(["atom", "group"]), st.sampled_from([1, 3]), st.booleans())
def test_on_a_grid_it_is_the_summary_of_all_rows(site, by, min_count, later):
    """To the last bit, also with records in no group, and if the parts are by atom."""
    scores, membership, cuts = site
    membership = membership.copy()
    groups = Groups(["all", "old", "female"])
    membership[::3] = False
    min_count = 1 if by == "group" else min_count
    how = {"groups": groups, "client": "a", "grid": GRID}
    whole = gcfcp.summarize(scores, membership, by=by, min_count=min_count, **how)
    parts = parts_of(scores, membership, cuts, groups, grid=GRID, by="atom" if later else by)
    assert gcfcp.join(parts[::-1], "a", by=by, min_count=min_count) == whole


def test_nothing_is_compressed_where_nothing_could_be():
    scores, membership = records(60)
    parts = parts_of(scores, membership, [20, 40], delta=2000)
    found = gcfcp.join(parts, "a", delta=250)
    assert found.exact
    assert found == gcfcp.summarize(scores, membership, groups=GROUPS, client="a")


def test_a_single_part_is_the_result():
    [part] = parts_of(*records(500), [])
    assert gcfcp.join([part], "a") is part
    assert gcfcp.join([part], "a", delta=100).delta == 100
    assert gcfcp.join(iter([part]), "a", min_count=5).min_count == 5


def test_finer_parts_give_the_error_of_one_summary():
    scores, membership = records(20_000)
    parts = parts_of(scores, membership, np.arange(1000, 20_000, 1000), delta=2000)
    found = gcfcp.join(parts, "a", delta=250)
    whole = gcfcp.summarize(scores, membership, groups=GROUPS, client="a")
    assert (found.errors <= whole.errors).all()
    assert len(found.values) < 1.25 * len(whole.values)


def test_with_means_the_paper_s_bound_stays_proved():
    scores, membership = records(3000)
    parts = parts_of(scores, membership, [1000, 2000], delta=40, representative="mean")
    found = gcfcp.join(parts, "a")
    assert found.delta == 20
    for promise in gcfcp.calibrate([found], 0.1, rule="max").guarantee:
        assert promise.lower_status == PROVED
        assert promise.lower == pytest.approx(0.9 - math.sin(math.pi / 20))
        assert promise.lower <= promise.certified


def test_one_client_weighs_as_one():
    """20 parts as 20 clients, or as one: the mixture is another."""
    scores, membership = records(2000)
    parts = parts_of(scores, membership, np.arange(100, 2000, 100), delta=2000)
    other = gcfcp.summarize(*records(2000, 7), groups=GROUPS, client="b")
    found = gcfcp.calibrate([gcfcp.join(parts, "a", delta=250), other], 0.1, "uniform")
    assert [s.client for s in found.summaries] == ["a", "b"]
    assert [r.count for r in found.table] == [
        r.count
        for r in gcfcp.calibrate(
            [gcfcp.summarize(scores, membership, groups=GROUPS, client="a"), other], 0.1, "uniform"
        ).table
    ]


# --- what is hidden ------------------------------------------------------------------------------


def test_min_count_is_about_the_site_and_not_about_the_parts():
    """An atom of 4 + 4 records is small in both parts and not at the site."""
    scores = np.arange(80.0)
    membership = np.zeros((80, 3), bool)
    membership[:, 0] = True
    membership[[1, 2, 3, 4, 41, 42, 43, 44], 1] = True
    whole = gcfcp.summarize(scores, membership, groups=GROUPS, client="a", min_count=5, by="group")
    parts = parts_of(scores, membership, [40], delta=2000)
    found = gcfcp.join(parts, "a", min_count=5, by="group", delta=250)
    assert found.suppressed_groups == whole.suppressed_groups
    assert np.array_equal(found.membership, whole.membership)
    assert (found.counts >= 5).all()
    assert found.values.tolist() == whole.values.tolist()  # Nothing was compressed before.
    by_atom = gcfcp.join(parts, "a", min_count=5, delta=250)
    assert by_atom == gcfcp.summarize(scores, membership, groups=GROUPS, client="a", min_count=5)


@quietly
def test_scores_that_parts_do_not_hold_are_asked_for():
    """Men and women, and two records that are neither: men are told as those who are no women."""
    groups = Groups(["men", "women"])
    membership = np.zeros((100, 2), bool)
    membership[:49, 0] = membership[51:, 1] = True
    scores = np.random.default_rng(0).normal(size=100)
    parts = parts_of(scores, membership, [50], groups)
    with pytest.raises(gcfcp.GCFCPError, match=r"a: 2 records are in no group.*with_all"):
        gcfcp.join(parts, "a", min_count=5, by="group")


def test_noise_is_added_once():
    pytest.importorskip("opendp", reason="noise needs the extra dp")
    parts = parts_of(*records(3000), [1000, 1500], grid=GRID)
    found = gcfcp.join(parts, "a", epsilon=1.0)
    assert found.noise == Noise.of(1.0, sensitivity_of(found.possible, "atom"))
    alone = gcfcp.summarize(*records(3000), groups=GROUPS, client="a", grid=GRID, epsilon=1.0)
    assert (found.noise, found.n, len(found.values)) == (alone.noise, alone.n, len(alone.values))
    by_group = parts_of(*records(3000), [1000, 1500], grid=GRID, by="group")
    assert gcfcp.join(by_group, "a", epsilon=1.0).noise is not None
    with pytest.raises(gcfcp.GCFCPError, match=r"part 2 has noise of epsilon=1, .*give epsilon to"):
        gcfcp.join([parts[0], found], "a")


# --- shapes --------------------------------------------------------------------------------------


def test_a_shape_is_subtracted_from_parts_by_atom():
    scores, membership = records(4000)
    shape = gcfcp.Shape(GROUPS, (0.1, -0.7, 0.3))
    how = {"groups": GROUPS, "client": "a", "by": "group", "shape": shape}
    parts = parts_of(scores, membership, [1000, 3000], delta=2000)
    found = gcfcp.join(parts, "a", shape=shape, delta=250)
    plain = gcfcp.summarize(scores, membership, delta=10**6, **how)
    assert (found.by, found.shape) == ("group", plain.shape)
    assert np.array_equal(found.atom_counts, plain.atom_counts)
    for alpha in (0.05, 0.2):
        levels = [gcfcp.calibrate([s], alpha).thresholds(membership[:50]) for s in (found, plain)]
        assert (levels[0] >= levels[1]).all()
        assert (levels[0] <= levels[1] + 0.2).all()
    by_group = parts_of(scores, membership, [1000, 3000], delta=2000, by="group", shape=shape)
    again = gcfcp.join(by_group, "a", delta=250)
    assert np.array_equal(again.atom_counts, found.atom_counts)


def test_a_shape_of_these_very_records_is_refused():
    parts = parts_of(*records(400), [100], delta=400)
    site = gcfcp.join(parts, "a", delta=50)
    shape = gcfcp.fit_shape([site], 0.1)
    with pytest.raises(gcfcp.GCFCPError, match="a: the shape was made from these very records"):
        gcfcp.join(parts, "a", delta=50, shape=shape)


# --- what is refused -----------------------------------------------------------------------------


def test_a_part_that_is_given_twice_is_refused():
    first, second = parts_of(*records(400), [200])
    with pytest.raises(gcfcp.GCFCPError, match=r"part 1 and part 3 hold the same 200 records"):
        gcfcp.join([first, second, first], "a")
    copy = gcfcp.ClientSummary.from_bytes(first.to_bytes())
    with pytest.raises(gcfcp.GCFCPError, match=r"part 2 and part 3 hold .*: leave one of them out"):
        gcfcp.join([second, first, copy], "a")
    dated = replace(copy, date="2026-11-18")
    with pytest.raises(gcfcp.GCFCPError, match="hold the same 200 records"):
        gcfcp.join([first, dated], "a")
    for how in ({"by": "group"}, {"grid": GRID}, {"by": "group", "grid": GRID}):
        one = parts_of(*records(400), [], **how)
        again = parts_of(*records(400), [], **how)
        with pytest.raises(gcfcp.GCFCPError, match="hold the same 400 records"):
            gcfcp.join(one + again, "a")


def test_small_parts_may_be_equal_by_chance():
    scores, membership = np.zeros(12), np.ones((12, 3), bool)
    parts = parts_of(scores, membership, [6])
    with pytest.warns(gcfcp.GCFCPWarning, match="part 1 and part 2 are equal, which can be chance"):
        assert gcfcp.join(parts, "a").n == 12


REFUSED = {
    "client": ({"client": "b"}, r"part 2 is of client 'b', and not of 'a': .*use merge"),
    "groups": ({"groups": Groups(["all", "old", "x"])}, "part 2 was summarised for groups"),
    "min_count": (
        {"min_count": 5},
        "part 2 was summarised with min_count=5, .*min_count=5 to join",
    ),
    "score": ({"score": "mine"}, "with score 'mine', part 1 with 'unnamed': all parts of a site"),
    "model": ({"model": "m2"}, "part 2 was summarised with model 'm2'"),
    "kind": ({"representative": "mean"}, "with representative 'mean'"),
    "by": ({"by": "group"}, "part 2 was summarised with by 'group'"),
    "grid": ({"grid": GRID}, "part 2 was summarised with grid"),
    "round": ({"round": "2026Q4"}, "part 2 was summarised with round '2026Q4'"),
    "absent": ({"absent": ["old"]}, r"part 2 was summarised with absent"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_parts_that_do_not_fit_are_refused(what):
    other, message = REFUSED[what]
    scores, membership = records(60)
    membership[30:, 1] = False
    first = parts_of(scores[:30], membership[:30], [])
    second = parts_of(scores[30:], membership[30:], [], **other)
    with pytest.raises(gcfcp.GCFCPError, match=message):
        gcfcp.join(first + second, "a")


def test_labels_of_two_models_are_refused_also_behind_a_part_without_names():
    probabilities = np.full((30, 2), 0.5)
    parts = [
        gcfcp.summarize(
            score.of(probabilities, np.zeros(30, int) if names is None else [names[0]] * 30),
            np.ones((30, 3)),
            groups=GROUPS,
            client="a",
            score=score,
        )
        for names in (None, ("x", "y"), ("y", "z"))
        for score in [gcfcp.scores.THR(classes=names)]
    ]
    with pytest.raises(gcfcp.GCFCPError, match=r"part 3 has the labels .*all parts of a site must"):
        gcfcp.join(parts, "a")
    assert "classes" in gcfcp.join(parts[:2], "a", delta=20).parameters


def test_other_mistakes_have_their_message():
    first, second = parts_of(*records(400), [200])
    region = gcfcp.merge([first, replace(second, client="b", members=(("b", 200),))], "a")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ([], {}, "there are no parts"),
        (first, {}, "give a list of parts, not ClientSummary"),
        ([first, "x"], {}, "summaries were expected as parts, not str"),
        ([region], {}, "part 1 is the summary of 2 clients, and not a part"),
        ([first, second], {"delta": 250}, "delta=250 is too fine for parts of delta=250.*at most"),
        ([first, second], {"names": ["x"]}, "names has 1 entry for 2 parts"),
        ([first, second], {"by": "site"}, "by='site'"),
        ([first, second], {"epsilon": 1.0}, "epsilon=1 needs a grid"),
    ]
    for parts, how, message in cases:
        with pytest.raises(gcfcp.GCFCPError, match=message):
            gcfcp.join(parts, "a", **how)
    by_group = parts_of(*records(400), [200], by="group")
    shape = gcfcp.Shape(GROUPS, (0.1, -0.7, 0.3))
    for how, message in (
        ({"by": "atom"}, "cannot become a summary by atom"),
        ({"min_count": 5}, "min_count=5 needs parts by atom"),
        ({"shape": shape}, "already hold scores or residuals by group"),
    ):
        with pytest.raises(gcfcp.GCFCPError, match=message):
            gcfcp.join(by_group, "a", **how)
    on_grid = parts_of(*records(400), [200], grid=GRID)
    with pytest.raises(gcfcp.GCFCPError, match="delta=5 is not possible with a grid"):
        gcfcp.join(on_grid, "a", delta=5)
    with pytest.raises(gcfcp.GCFCPError, match="on a grid the residuals are counted"):
        gcfcp.join(on_grid, "a", shape=shape)


@quietly
def test_a_streamed_part_counts_for_more():
    part = replace(parts_of(*records(400), [])[0], delta=300.0)
    long = replace(
        part, n=EXACT_ROWS + 1, uncovered=EXACT_ROWS - 399, members=(("a", EXACT_ROWS + 1),)
    )
    assert gcfcp.join([part, long], "a").delta == 100


def test_sites_that_are_groups_stay():
    groups = Groups(["all"], sites=["a", "b"])
    parts = [
        gcfcp.summarize(s, np.ones((20, 1)), groups=groups, client="a", delta=2000)
        for s in np.random.default_rng(0).normal(size=(3, 20))
    ]
    found = gcfcp.join(parts, "a", delta=250)
    assert found.possible.tolist() == [True, True, False]


# --- on the command line -------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three tables of one site, their summaries, and the groups file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "groups.toml").write_text(GROUPS.to_toml())
    rng = np.random.default_rng(0)
    for part in "123":
        lines = [
            f"{rng.integers(20, 90)},{rng.choice(['F', 'M'])},{rng.normal():.3f},{rng.normal():.3f}"
            for _ in range(60)
        ]
        (tmp_path / f"{part}.csv").write_text("age,sex,prediction,y\n" + "\n".join(lines) + "\n")
        command(f"summarize {part}.csv --groups groups.toml --client a --delta 2000 -o {part}")
    return tmp_path


def command(line: str) -> int:
    """Run a command of gcfcp in this process, and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["gcfcp", *line.split()])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)


def test_the_command_joins_files(folder, capsys):
    assert command("join 2 3 1 --client a --delta 250 -o site.gcfcp") == 0
    parts = [gcfcp.ClientSummary.load(name) for name in "123"]
    assert gcfcp.ClientSummary.load("site.gcfcp") == gcfcp.join(parts, "a", delta=250)
    assert "3 parts with 180 records" in capsys.readouterr().err
    assert command("join 1 2 3 --client a --min-count 5 -o small.gcfcp --json") == 0
    assert '"parts": 3' in capsys.readouterr().out
    assert gcfcp.ClientSummary.load("small.gcfcp").by == "group"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("join 1 2 ./1 --client a -o new", "1 and ./1 are the same file: give each part once"),
        ("join 1 2 --client b -o new", "gcfcp: 1 is of client 'a', and not of 'b'"),
        ("join 1 groups.toml --client a -o new", "groups.toml"),
        ("join 1 2 --client a -o 3", "3 exists: give another name"),
        ("join 1 2 1 --client a -o new", "1 and 1 are the same file: give each part once"),
    ],
)
def test_the_command_says_what_is_wrong(folder, capsys, line, message):
    assert command(line) == 1
    assert message in capsys.readouterr().err
    assert not (folder / "new").exists()
