"""A grid: public edges, counts that add up, one vector of counts, and the promise on the grid."""

import contextlib
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import ClientSummary, GCFCPError, Grid, Groups, add, calibrate, codec, summarize
from gcfcp.calibration import PROVED, merge, plan
from gcfcp.grid import MOST_CELLS
from gcfcp.summary import Making, counts_of, places_of, summary_from_counts, with_min_count
from gcfcp.summary.counts import CellCounter, raised

GROUPS = Groups({"all": "TRUE", "f": "sex = 'F'", "old": "age >= 65"})
GRID = Grid.uniform(0, 4, 32)
WAYS = "write uniform:LOW,HIGH,CELLS, logarithmic:RELATIVE,LOW,HIGH or edges:E1,E2,"


def rows(n, seed=0, infinite=0):
    rng = np.random.default_rng([seed, n])
    membership = np.column_stack([np.ones(n, bool), rng.random(n) < 0.5, rng.random(n) < 0.3])
    scores = np.round(np.abs(rng.normal(size=n)) * (1 + membership[:, 1]), 2)
    scores[:infinite] = np.inf
    return scores, membership


def site(name, n, seed=0, infinite=0, **options):
    options = {"grid": GRID, "score": "residual"} | options
    return summarize(*rows(n, seed, infinite), groups=GROUPS, client=name, **options)


def federation(by="atom", sizes=(60, 90, 41), **options):
    return [site(f"s{k}", n, k, by=by, **options) for k, n in enumerate(sizes)]


# --- the grid itself -----------------------------------------------------------------------------

GRIDS = [
    Grid([-1.0, 0.0, 0.5]),
    Grid.uniform(-1, 1, 7),
    Grid.logarithmic(0.3, 0.01, 10),
    Grid.logarithmic(0.3, 0.01, 10, negative=True),
]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(GRIDS),
    st.lists(st.floats(-20, 20) | st.just(math.inf), min_size=1, max_size=20),
)
def test_a_score_goes_up_to_the_first_edge_that_is_not_below_it(grid, scores):
    up = grid.up(scores)
    points = [*grid.upper_edges.tolist(), math.inf]
    assert up.tolist() == [min(p for p in points if p >= s) for s in scores]
    assert grid.up(up).tolist() == up.tolist()
    for edge in grid.upper_edges:
        assert np.array_equal(np.array(scores) <= edge, up <= edge)


def test_uniform_edges_are_rounded_once():
    grid = Grid.uniform(0, 1, 10)
    assert grid.upper_edges.tolist() == [i / 10 for i in range(1, 11)]
    assert len(grid) == 10
    assert str(grid) == "uniform, 10 cells from 0.1 to 1"


def test_logarithmic_edges_have_a_fixed_ratio_and_take_zero_and_below():
    grid = Grid.logarithmic(0.01)
    edges = grid.upper_edges
    assert edges[0] == 0
    assert edges[1] == 1e-6
    assert edges[-1] >= 1e6 > edges[-2]
    assert np.allclose(edges[2:] / edges[1:-1], 1.01 / 0.99, rtol=1e-12)
    assert grid.up([-5, 0, 1e-9]).tolist() == [0, 0, 1e-6]
    assert np.isposinf(grid.up([2e6])).all()
    both = Grid.logarithmic(0.01, negative=True).upper_edges
    assert np.array_equal(both, -both[::-1])
    assert len(both) == 2 * len(edges) - 1


def test_a_grid_near_a_predictor_is_finer_around_its_thresholds():
    calibration = calibrate(federation("group", (400, 300)), 0.1)
    levels = [r.threshold for r in calibration.atoms]
    predictor = gcfcp.Predictor(gcfcp.scores.AbsoluteResidual(), calibration)
    grid = Grid.near(predictor, cells=40)
    assert grid == Grid.near(calibration, cells=40, low=0.0)
    assert len(grid) <= 40
    edges = np.concatenate([[0.0], grid.upper_edges])
    width = np.diff(edges)
    beside = [width[np.searchsorted(edges, t) - 1] for t in levels]
    assert max(beside) < 0.05 < width.max()
    assert grid.upper_edges[-1] > 1.5 * max(levels)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Grid([]), "0 edges"),
        (lambda: Grid([1, 1]), "each above the one before"),
        (lambda: Grid([1, math.inf]), "finite"),
        (lambda: Grid([0.0, math.nan]), "finite"),
        (lambda: Grid(range(MOST_CELLS + 1)), "65,537 edges"),
        (lambda: Grid.uniform(1, 1, 4), "low=1 is not below high=1"),
        (lambda: Grid.uniform(0, math.inf, 4), "high=inf is not a finite number"),
        (lambda: Grid.uniform(0, 1, 0), "cells"),
        (lambda: Grid.logarithmic(1e-6), "more than 65,536 cells"),
        (lambda: Grid.logarithmic(0.1, 0, 1), "above 0"),
        (lambda: Grid.near(3), "no thresholds"),
        (lambda: Grid.parse("uniform:0,1"), f"cannot be read as a grid: {WAYS}"),
        (lambda: Grid.parse("uniform:0,1,2.5"), f"cannot be read as a grid: {WAYS}"),
        (lambda: Grid.parse("uniform:0,1,inf"), f"cannot be read as a grid: {WAYS}"),
        (lambda: Grid.parse("edges:0,x"), f"is not a number: {WAYS}"),
        (lambda: Grid.parse("0:10:100"), f"grid='0:10:100' is neither a grid nor a file: {WAYS}"),
        (lambda: Grid.parse("no.json"), f"grid='no.json' is neither a grid nor a file: {WAYS}"),
        (lambda: Grid.from_values({"uniform": [0, 1, 1e300]}), "cells"),
        (lambda: Grid.from_values({"uniform": [0, 1, 2], "edges": [1]}), "one entry"),
        (lambda: Grid.from_values({"edges": ["inf"]}), "list of numbers"),
        (lambda: Grid.from_values({"other": [1]}), "must be uniform"),
        (lambda: Grid.from_json("[]"), "is not a grid"),
        (lambda: Grid.from_json("{"), "not JSON"),
        (lambda: site("a", 5, grid=3), "grid=3 is not a grid"),
        (lambda: GRID.up([math.nan]), "NaN"),
    ],
)
def test_what_is_no_grid_is_an_error_of_one_line(make, message):
    with pytest.raises(GCFCPError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_grid_is_the_same_after_values_text_and_file(grid, tmp_path):
    assert Grid.from_values(grid.values).values == grid.values
    grid.save(tmp_path / "grid.json")
    found = Grid.parse(str(tmp_path / "grid.json"))
    assert found == grid
    assert hash(found) == hash(grid)
    assert found.values == grid.values
    assert Grid(grid.upper_edges) == grid != Grid([9.0])


def test_grids_are_written_on_a_command_line():
    assert Grid.parse("uniform:0,1,64") == Grid.uniform(0, 1, 64)
    assert Grid.parse("logarithmic:0.05") == Grid.logarithmic(0.05)
    assert Grid.parse("logarithmic:0.05,0.1,9") == Grid.logarithmic(0.05, 0.1, 9)
    assert Grid.parse("edges:1,2") == Grid([1, 2])


# --- summaries on a grid -------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["atom", "group"])
def test_a_summary_on_a_grid_counts_each_record_at_the_edge_of_its_cell(by):
    scores, membership = rows(80, infinite=3)
    summary = site("a", 80, infinite=3, by=by)
    up = GRID.up(scores)
    for row, a, b in zip(summary.membership, summary.start[:-1], summary.start[1:], strict=True):
        inside = membership[:, row.argmax()] if by == "group" else (membership == row).all(axis=1)
        values, counts = np.unique(up[inside], return_counts=True)
        assert summary.values[a:b].tolist() == values.tolist()
        assert summary.counts[a:b].tolist() == counts.tolist()
    assert summary.delta is None
    assert summary.exact
    again = ClientSummary.from_bytes(summary.to_bytes())
    assert again == summary
    assert again.grid == GRID
    assert len(summary.to_bytes()) < 1200
    shuffled = np.random.default_rng(1).permutation(80)
    other = summarize(
        scores[shuffled], membership[shuffled], groups=GROUPS, client="a", grid=GRID,
        score="residual", by=by,
    )  # fmt: skip
    assert other.to_bytes() == summary.to_bytes()


def test_the_calibration_is_that_of_scores_rounded_up():
    scores, membership = rows(120)
    exact = summarize(
        GRID.up(scores), membership, groups=GROUPS, client="a", delta=1e6, score="own"
    )
    ours = site("a", 120, score="own")
    for options in ({}, {"rule": "max"}, {"confidence": 0.8}):
        one, two = calibrate([ours], 0.2, **options), calibrate([exact], 0.2, **options)
        assert [r.threshold for r in one.atoms] == [r.threshold for r in two.atoms]


def test_with_a_shape_residuals_are_counted():
    shape = gcfcp.Shape(GROUPS, (0.25, 0.5, -0.125))
    scores, membership = rows(70)
    summary = site("a", 70, by="group", shape=shape, score="own")
    up = GRID.up(scores - shape.of(membership))
    place = int(np.flatnonzero(summary.membership[:, 1])[0])
    found = slice(summary.start[place], summary.start[place + 1])
    assert summary.values[found].tolist() == np.unique(up[membership[:, 1]]).tolist()
    assert ClientSummary.from_bytes(summary.to_bytes()) == summary


def test_min_count_merges_cells_upwards_and_suppresses_small_atoms():
    summary = site("a", 400, min_count=7)
    assert summary.counts.min() >= 7
    assert not summary.exact
    assert set(summary.values) <= set(GRID.points)
    assert ClientSummary.from_bytes(summary.to_bytes()) == summary
    with pytest.raises(GCFCPError, match="min_count=7 by group hides nothing on a grid"):
        site("a", 400, min_count=7, by="group")


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 8))
def test_merging_upwards_keeps_every_record_and_lowers_none(counts, m):
    counts = np.array(counts)
    if counts.sum() < m:
        return
    merged = raised(counts, m)
    assert merged.sum() == counts.sum()
    assert ((merged == 0) | (merged >= m)).all()
    assert (np.cumsum(merged) <= np.cumsum(counts)).all()
    assert ((merged == 0) | (counts > 0)).all()


@pytest.mark.parametrize(
    "options",
    [{"representative": "mean"}, {"shape": gcfcp.Shape(GROUPS, (0, 0, 0)), "by": "atom"}],
)
def test_what_does_not_go_with_a_grid_is_refused(options):
    with pytest.raises(GCFCPError):
        site("a", 20, **options)
    with pytest.raises(GCFCPError, match="'recompress' is not possible with a grid"):
        calibrate(federation(), 0.1, merge="recompress")


def test_grids_must_agree():
    with pytest.raises(GCFCPError, match=r"b was summarised with grid .*: all clients must use"):
        calibrate([site("a", 50), site("b", 50, grid=Grid.uniform(0, 4, 16))], 0.1)
    with pytest.raises(GCFCPError, match="with grid None"):
        calibrate([site("a", 50), site("b", 50, grid=None)], 0.1)


def test_scores_beyond_their_definition_are_found_on_a_grid():
    def thr(scores, edges):
        """What a site sends that does not check its scores."""
        member, groups = np.ones((len(scores), 1), bool), Groups(["all"])
        told = summarize(scores, member, groups=groups, client="a", grid=Grid(edges), score="mine")
        return replace(told, score="thr")

    calibrate([thr([0.2, 0.3, 0.9] * 9, [0.25, 0.8, 1.2])], 0.2)  # 1.2 stands for 0.8 to 1.
    calibrate([thr([0.2, 0.3, 0.9] * 9, [0.25, 0.8])], 0.4)  # Above 0.8 is not above 1.
    with pytest.raises(GCFCPError, match=r"between 1 and 1\.5, but score 'thr'"):
        calibrate([thr([0.2, 1.2], [0.25, 1, 1.5])], 0.2)
    with pytest.raises(GCFCPError, match="between -inf and -1, but score 'thr'"):
        calibrate([thr([0.2, -2.0], [-1, 1])], 0.2)


# --- what is promised ----------------------------------------------------------------------------


def status(summaries, **options):
    (found,) = {g.certified_status for g in calibrate(summaries, 0.1, **options).guarantee}
    return found


def test_the_simultaneous_rule_is_proved_on_a_grid_and_not_with_a_min_count():
    large = federation(sizes=(900, 700))
    made = calibrate(large, 0.1)
    assert made.rule == "simultaneous"
    assert status(large) == PROVED
    assert {g.lower for g in made.guarantee} == {0.9}
    assert made.guarantee[0].theorem == "theorem 2 (all groups together)"
    assert status([add(large)], aggregates={"sum of 2 clients": 2}) == PROVED
    assert status(federation(sizes=(900, 700), min_count=5)) == "measured"
    mixed = [site("a", 900), site("b", 900, min_count=5)]
    assert status(mixed) == "measured"
    assert status(federation(sizes=(900, 700), grid=None)) == "measured"
    assert status(federation(sizes=(900, 700), min_count=5), rule="max") == PROVED


# --- sums ----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(4)), st.sampled_from(["atom", "group"]), st.integers(1, 3))
def test_the_order_and_the_grouping_of_a_sum_change_nothing(order, by, cut):
    parts = federation(by, (30, 40, 20, 9))
    before = [s.to_bytes() for s in parts]
    whole = add(parts)
    assert add([parts[i] for i in order]).to_bytes() == whole.to_bytes()
    left = add([parts[i] for i in order[:cut]], "left")
    right = add([parts[i] for i in order[cut:]], "right")
    names = ["left", "right"]
    assert add([left, right], aggregates=names).to_bytes() == whole.to_bytes()
    assert [s.to_bytes() for s in parts] == before
    assert add([parts[0]]) is parts[0]
    assert whole.n == sum(s.n for s in parts)
    assert whole.client == "sum of 4 clients"
    assert np.array_equal(counts_of(whole), sum(counts_of(s) for s in parts))


@pytest.mark.parametrize("by", ["atom", "group"])
def test_a_sum_calibrates_as_its_parts_do(by):
    parts = federation(by)
    whole = add(parts, "region")
    for options in ({}, {"confidence": 0.2}) if by == "group" else ({}, {"rule": "max"}):
        one = calibrate(parts, 0.2, **options)
        two = calibrate([whole], 0.2, aggregates=["region"], **options)
        assert [r.threshold for r in one.atoms] == [r.threshold for r in two.atoms]
    assert merge(parts, "region") == whole


def test_what_cannot_be_added_is_refused():
    with pytest.raises(GCFCPError, match="only counts on a public grid add up"):
        add(federation(grid=None))
    with pytest.raises(GCFCPError, match="min_count=5"):
        add([site("a", 400), site("b", 400, min_count=5)])
    with pytest.raises(GCFCPError, match="aggregates are refused unless they are named"):
        add([add(federation()), site("z", 9)])
    with pytest.raises(GCFCPError, match="delta=100 is not possible with a grid"):
        merge(federation(), "r", 100)


def test_a_stream_is_counted_exactly_whatever_its_chunks_are():
    scores, _ = rows(500, infinite=4)
    counter = CellCounter(GRID)
    for part in np.split(scores, [3, 3, 200]):
        counter.add(part)
    assert counter.counts.tolist() == np.bincount(GRID.place(scores), minlength=33).tolist()
    with pytest.raises(GCFCPError):
        counter.add([0.1, math.nan])
    assert counter.count == 500


def test_a_score_of_many_records_is_counted_as_often():
    scores, _ = rows(500, infinite=4)
    numbers = np.random.default_rng(0).integers(1, 9, 500)
    one, many = CellCounter(GRID), CellCounter(GRID)
    one.add(np.repeat(scores, numbers))
    many.add(scores, numbers)
    assert many.counts.tolist() == one.counts.tolist()
    many.add([0.1], np.array([2**53 + 1]))  # A float could not hold it.
    assert many.count == one.count + 2**53 + 1


# --- one vector of counts ------------------------------------------------------------------------


def making(by="atom", **options):
    return Making(GROUPS, options.pop("client", "total"), score="residual", by=by, grid=GRID,
                  **options)  # fmt: skip


@pytest.mark.parametrize("by", ["atom", "group"])
def test_a_vector_of_counts_goes_there_and_back(by):
    parts = federation(by)
    vectors = [counts_of(s) for s in parts]
    assert {v.shape for v in vectors} == {(places_of(GROUPS, GRID, by),)}
    for part, vector in zip(parts, vectors, strict=True):
        assert vector[0] == part.n
        assert vector.min() >= 0
        assert summary_from_counts(vector, making(by, client=part.client)) == part
    blind = summary_from_counts(sum(vectors), making(by), ["s2", "s0", "s1"])
    assert blind.members == (("s0", None), ("s1", None), ("s2", None))
    assert blind.is_aggregate
    assert ClientSummary.from_bytes(blind.to_bytes()) == blind
    one, two = calibrate(parts, 0.1), calibrate([blind], 0.1, aggregates=["total"])
    assert [r.threshold for r in one.atoms] == [r.threshold for r in two.atoms]
    assert one.correction.records == two.correction.records
    assert two.guarantee[0].certified_status == PROVED
    assert plan([blind], 0.1, aggregates=["total"]).finite
    assert counts_of(blind).tolist() == sum(vectors).tolist()


def test_places_follow_from_groups_grid_and_by_alone():
    small = Grid([1.0, 2.0])
    scores, membership = [0.5, 1.5, 9.0], [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    made = summarize(scores, membership, groups=GROUPS, client="a", grid=small)
    rows_by_atom = [(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]
    expected = np.zeros((4, 3), int)
    for i, row in enumerate(membership):
        expected[rows_by_atom.index(tuple(row)), i] = 1
    assert counts_of(made).tolist() == [3, *expected.ravel().tolist()]
    made = summarize(scores, membership, groups=GROUPS, client="a", grid=small, by="group")
    assert counts_of(made).tolist() == [3, 1, 1, 1, 0, 1, 1, 0, 0, 1]


def test_records_in_no_group_are_in_n_only():
    groups = Groups(["f", "old"])
    with pytest.warns(gcfcp.GCFCPWarning, match="belong to no group"):
        made = summarize([1, 2, 3], [[0, 0], [1, 0], [1, 1]], groups=groups, client="a", grid=GRID)
    vector = counts_of(made)
    assert vector[0] == 3
    assert vector[1:].sum() == 2
    again = summary_from_counts(vector, Making(groups, "a", grid=GRID))
    assert again == made
    assert again.uncovered == 1


def test_wrong_vectors_are_refused():
    good = counts_of(site("a", 30))
    for bad, message in [
        (good[:-1], "do not fit"),
        (good.astype(float), "do not fit"),
        (-good, "negative"),
        (np.where(np.arange(len(good)) == 0, 29, good), "does not fit n=29"),
        (np.where(np.arange(len(good)) == 0, 31, good), "does not fit n=31"),
    ]:
        with pytest.raises(GCFCPError, match=message):
            summary_from_counts(bad, making())
    with pytest.raises(GCFCPError, match="count with min_count=1"):
        counts_of(site("a", 400, min_count=5))
    with pytest.raises(GCFCPError, match="has no grid"):
        counts_of(site("a", 40, grid=None))
    many = Groups([f"g{i}" for i in range(30)])
    with pytest.raises(GCFCPError, match=r"2\*\*30 combinations .* use by='group'"):
        places_of(many, GRID, "atom")
    with pytest.raises(GCFCPError, match="groups that are sites"):
        places_of(Groups(["all"], sites=["a"]), GRID, "atom")
    sited = Groups(["all"], sites=["a", "b"])
    vector = np.zeros(places_of(sited, GRID, "group"), int)
    vector[[0, 1, 34, 67]] = [2, 2, 1, 1]
    with pytest.raises(GCFCPError, match="sizes cannot be left open"):
        summary_from_counts(vector, Making(sited, "t", grid=GRID, by="group"), ["a", "b"])


@pytest.mark.parametrize("by", ["atom", "group"])
def test_min_count_applies_to_a_sum(by):
    parts = federation(by, (60, 70, 45))
    exact = sum(counts_of(s) for s in parts)
    told = summary_from_counts(exact, making(by, min_count=6), ["s0", "s1", "s2"])
    assert told.min_count == 6
    assert told.counts.min() >= 6
    assert ClientSummary.from_bytes(told.to_bytes()) == told
    whole = summary_from_counts(exact, making(by), ["s0", "s1", "s2"])
    assert with_min_count(whole, 6) == told
    plain = calibrate([whole], 0.2, aggregates=["total"], rule="max")
    hidden = calibrate([told], 0.2, aggregates=["total"], rule="max")
    assert hidden.guarantee[0].certified_status == PROVED
    by_groups = {r.groups: r.threshold for r in hidden.atoms}
    for record in plain.atoms:
        assert by_groups.get(record.groups, math.inf) >= record.threshold


def test_whether_a_small_group_of_a_sum_has_records_does_not_show():
    groups = Groups(["all", "rare"])
    told = []
    for rare in range(5):
        parts = []
        for k in range(2):
            inside = np.zeros(40, bool)
            inside[: rare if k == 0 else 0] = True
            member = np.column_stack([np.ones(40, bool), inside])
            parts.append(
                summarize(
                    np.linspace(0, 3, 40), member, groups=groups, client=f"s{k}", grid=GRID,
                    by="group",
                )
            )  # fmt: skip
        told.append(with_min_count(add(parts), 5).to_bytes())
    assert len(set(told)) == 1


def test_only_sums_on_a_grid_may_leave_sizes_open():
    whole = add(federation())
    names = tuple((name, None) for name, _ in whole.members)
    assert replace(whole, members=names).is_aggregate
    for members in (names[:1], (names[0], ("s1", 90), names[2])):
        with pytest.raises(GCFCPError):
            replace(whole, members=members)
    merged = merge(federation(grid=None), "r")
    with pytest.raises(GCFCPError, match="may leave their sizes open"):
        replace(merged, members=names)
    with pytest.raises(GCFCPError, match="not a sum with min_count=1 and"):
        with_min_count(site("a", 30), 5)


# --- bytes from strangers ------------------------------------------------------------------------


def test_there_is_one_way_to_write_a_summary_on_a_grid():
    summary = site("a", 20, infinite=1)
    data = summary.to_bytes()
    version, header, body = codec.unpack_with_version(data, b"S", 5, "x")
    assert version == 5
    assert "delta" not in header
    assert header["grid"] == {"uniform": [0, 4, 32]}

    def read(header, body):
        return ClientSummary.from_bytes(codec.pack(b"S", 5, header, bytes(body)))

    assert read(header, body) == summary
    for change, message in [
        ({"grid": {"uniform": [0, 4, 31]}}, "beyond the 31 cells"),
        ({"grid": {"edges": [1, 2]}}, "beyond|one way"),
        ({"delta": 250}, "one way"),
        ({"grid": {"uniform": [0.0, 4, 32]}}, "one way"),
        ({"grid": {"uniform": [0, 4, 1e9]}}, "cells"),
        ({"grid": 3}, "grid"),
        ({"min_count": 3}, "below min_count"),
        ({"members": [["a", None], ["b", None]], "by": "group"}, "."),
    ]:
        with pytest.raises(GCFCPError, match=message):
            read(header | change, body)
    for place, value in itertools.product(range(len(body)), (0, 255)):
        changed = bytearray(body)
        changed[place] = value
        with contextlib.suppress(GCFCPError):  # A record may lie in another cell.
            found = read(header, changed)
            assert found.to_bytes() == codec.pack(b"S", 5, header, bytes(changed))


@pytest.mark.parametrize(("by", "shape"), [("atom", None), ("group", None), ("group", (0.5, 1, 0))])
def test_a_table_larger_than_memory_gives_the_same_bytes(by, shape, tmp_path, monkeypatch):
    from gcfcp import tables

    scores, membership = rows(300)
    made = None if shape is None else gcfcp.Shape(GROUPS, shape)
    lines = [
        f"{s},{'F' if f else 'M'},{70 if old else 30}"
        for s, (_, f, old) in zip(scores.tolist(), membership, strict=True)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["score,sex,age", *lines]))
    how = Making(GROUPS, "a", score="score", by=by, shape=made, grid=GRID)
    exact = summarize(
        scores, membership, groups=GROUPS, client="a", score="score", by=by, shape=made, grid=GRID
    )
    monkeypatch.setattr("gcfcp.tables.summaries.EXACT_ROWS", 40)
    with tables.open_table(str(tmp_path / "a.csv")) as table:
        (found,), _ = tables.summarize_table(table, tables.scoring(table, "column"), how)
    assert found.to_bytes() == exact.to_bytes()
