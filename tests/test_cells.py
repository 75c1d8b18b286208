"""What min_count hides in summaries by group, and attacks that try to find it."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp.summary import cells

M = 4


def published(atoms, counts, m=M, certain=None):
    """The counts that leave, as a reader has them: n, and N of each group; None if it is hidden."""
    atoms, counts = np.asarray(atoms, dtype=bool), np.asarray(counts)
    groups = atoms.shape[1]
    possible = np.ones(groups, dtype=bool)
    sure = np.zeros(groups, dtype=bool) if certain is None else np.asarray(certain, dtype=bool)
    told = cells.counted(atoms, counts, possible, sure, m)
    sizes = counts @ atoms
    assert (told.lowered >= 0).all()
    assert (told.bound[sizes < m] > 0).all()
    assert (told.bound[told.bound > 0] >= np.minimum(sizes, counts.sum())[told.bound > 0]).all()
    return int(counts.sum()), [
        None if hidden else int(n - low)
        for n, low, hidden in zip(sizes, told.lowered, told.bound, strict=True)
    ]


def differences(atoms, counts, m):
    """Every whole less groups that divide it up with fewer than m exceptions: the brute force."""
    groups = atoms.shape[1]
    found = set()
    for whole in range(-1, groups):
        others = [g for g in range(groups) if g != whole]
        for size in range(1, len(others) + 1):
            for parts in itertools.combinations(others, size):
                first = 1 if whole < 0 else atoms[:, whole].astype(int)
                value = first - atoms[:, parts].sum(axis=1)
                if counts[value != 0].sum() < m:
                    found.add((whole, parts))
    return found


def read(n, sizes, whole, parts):
    """What a reader computes for a difference; None if a count in it is hidden."""
    wanted = [n if whole < 0 else sizes[whole], *(sizes[g] for g in parts)]
    return None if None in wanted else wanted[0] - sum(wanted[1:])


ROWS = np.array(list(itertools.product([False, True], repeat=3)))


@settings(max_examples=400, deadline=None)
@given(
    counts=st.lists(st.sampled_from([0, 0, 1, 2, 3, 5, 20, 33]), min_size=8, max_size=8),
    moved=st.tuples(st.integers(0, 7), st.integers(0, 7)),
)
def test_no_difference_tells_how_many_exceptions_there_are(counts, moved):
    """Two data sets differ in one record. Whatever a reader can subtract is the same in both, if it
    is about fewer than m records in both."""
    before = np.array(counts)
    after = before.copy()
    after[moved[0]] -= 1
    after[moved[1]] += 1
    assume(moved[0] != moved[1] and after.min() >= 0)
    small = [differences(ROWS, c, M) for c in (before, after)]
    assume(small[0] == small[1])
    told = [published(ROWS[c > 0], c[c > 0]) for c in (before, after)]
    assume([s is None for s in told[0][1]] == [s is None for s in told[1][1]])
    for whole, parts in small[0]:
        assert read(*told[0], whole, parts) == read(*told[1], whole, parts), (whole, parts)


def test_the_attack_finds_it_in_exact_counts():
    """The same subtraction, with the true counts, tells the number: the test above can fail."""
    rows = np.array([[True, False], [False, True], [False, False]])
    for rest in range(M):
        exact = (100 + rest, [60, 40])
        assert read(*exact, -1, (0, 1)) == rest
        counts = np.array([60, 40, rest])
        n, sizes = published(rows[counts > 0], counts[counts > 0])
        assert read(n, sizes, -1, (0, 1)) == M - 1


@pytest.mark.parametrize("inside", range(M))
def test_a_group_inside_of_another(inside):
    rows = np.array([[True, True], [True, False], [False, False]])
    counts = np.array([50, inside, 30])
    n, (outer, inner) = published(rows[counts > 0], counts[counts > 0])
    assert n == 80 + inside
    assert outer == 50 + inside
    assert outer - inner == M - 1


def test_a_group_of_everyone_by_definition_is_exact_and_one_by_chance_is_not():
    rows, counts = np.array([[True, True], [True, False]]), np.array([30, 20])
    assert published(rows, counts, certain=[True, False]) == (50, [50, 30])
    assert published(rows, counts) == (50, [50 - (M - 1), 30])


def test_a_large_rest_is_left_alone():
    rows = np.array([[True, False], [False, True], [False, False]])
    assert published(rows, [60, 40, M]) == (104, [60, 40])


def test_without_a_min_count_every_count_is_exact():
    rows = np.array([[True, False], [False, True]])
    assert published(rows, [60, 1], m=1) == (61, [60, 1])


def test_too_many_overlaps_are_refused_and_not_left_incomplete(monkeypatch):
    monkeypatch.setattr(cells, "MOST_STEPS", 3)
    with pytest.raises(gcfcp.GCFCPError, match=r"3 groups overlap in so many ways .* fewer groups"):
        published(ROWS, [9] * 8)


# --- the bytes ------------------------------------------------------------------------------------

GROUPS = gcfcp.Groups({"all": "TRUE", "men": "sex = 'M'", "women": "sex = 'F'", "hiv": "hiv = 1"})


def counts_of(summary):
    """Every count that a summary publishes: all integers of its header and of its body."""
    data = summary.to_bytes()
    header = json.loads(data[12 : 12 + int.from_bytes(data[8:12], "little")])
    whole = {k: v for k, v in header.items() if k not in ("library", "fingerprint", "shape")}
    return whole, summary.atom_counts.tolist(), summary.counts.tolist()


def site(rare, unknown=0, seed=0, **options):
    """A site of 300 records, of which `rare` have HIV and `unknown` have no sex."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(300) < 0.5, "M", "F").astype(object)
    hiv = np.zeros(300, dtype=int)
    hiv[:rare] = 1
    sex[290 : 290 + unknown] = "?"
    membership = np.column_stack([np.ones(300, bool), sex == "M", sex == "F", hiv == 1])
    options = {"groups": GROUPS, "client": "a", "min_count": 10, "by": "group"} | options
    return gcfcp.summarize(rng.normal(size=300), membership, **options)


def test_a_rare_group_of_none_or_nine_gives_the_same_bytes():
    """Every record is elsewhere the same, so that here not only the counts are equal."""
    assert len({site(rare).to_bytes() for rare in range(10)}) == 1
    assert site(10).to_bytes() != site(9).to_bytes()
    assert site(3).suppressed_groups == (0, 0, 0, 9)


def test_a_rare_group_and_a_shape_give_the_same_counts():
    """With a shape the values of its members move, but no count does."""
    shape = gcfcp.Shape(GROUPS, (0.5, 0.25, 0.125, 3.0))
    assert counts_of(site(0, shape=shape)) == counts_of(site(9, shape=shape))


def test_records_without_a_sex_do_not_show():
    """They go from men to nobody, one after the other: n - men - women stays what it is."""
    told = []
    for unknown in range(10):
        rng = np.random.default_rng(1)
        sex = np.array(["M"] * 160 + ["F"] * 140, dtype=object)
        sex[:unknown] = "?"
        member = np.column_stack([np.ones(300, bool), sex == "M", sex == "F", np.zeros(300, bool)])
        s = gcfcp.summarize(
            rng.normal(size=300), member, groups=GROUPS, client="a", min_count=10, by="group"
        )
        told.append(counts_of(s))
    assert all(t == told[0] for t in told)


def test_by_atom_tells_what_by_group_hides():
    """The number of suppressed records is exact by atom, so that the attack succeeds there."""
    assert [site(k, by="atom").suppressed for k in (0, 3)] == [0, 3]


def test_a_declared_group_is_not_charged():
    assert site(0, absent=["hiv"]).suppressed_groups == (0, 0, 0, 0)
    assert site(0, absent=["hiv"]).absent == ("hiv",)


def test_lowering_a_count_only_raises_thresholds():
    """The records that are left out are the ones with the lowest scores."""
    rng = np.random.default_rng(3)
    names = gcfcp.Groups({"all": "TRUE", "nearly everyone": "x = 1"})
    for _ in range(50):
        n = int(rng.integers(60, 200))
        scores, member = rng.normal(size=n), np.ones((n, 2), dtype=bool)
        member[: rng.integers(0, 10), 1] = False
        options = {"groups": names, "client": "a", "by": "group", "delta": 1e6}
        plain = gcfcp.summarize(scores, member, **options)
        hidden = gcfcp.summarize(scores, member, min_count=10, **options)
        assert hidden.atom_counts.tolist() == [n - 9, n]
        for alpha in (0.3, 0.5):
            low, high = (
                gcfcp.calibrate([s], alpha).threshold_table.source.by_group for s in (plain, hidden)
            )
            assert (high >= low).all()
