"""Audits with a min_count: small numbers of covered or missed records are not told, and intervals
stay valid."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import gcfcp
from gcfcp import codec
from gcfcp.audit import Audit, Counts, client, count, publish

NAMES = ("total", "total_strangers", "total_bound", "missed", "missed_strangers", "missed_bound")


def told_of(groups, rows, covered, missed, m):
    """Every number that leaves for these counts (a,) of all possible atoms."""
    total = covered + missed
    there = total > 0
    none = np.zeros(int(there.sum()), dtype=np.int64)
    counts = Counts(rows[there], covered[there], total[there], None, none)
    found = publish(counts, groups=groups, client="x", min_count=m)
    return (found.n, *(tuple(getattr(found.told, name).tolist()) for name in NAMES))


def usual(covered, missed, m):
    """Whether each atom has m more covered records than missed ones, as most audits have."""
    return ((covered - missed).min(axis=1) >= m) & (missed.sum(axis=1) >= 2 * m - 1)


WORLDS = {
    # Groups, possible atoms, m, the most records of a cell, and what the data are like.
    "one group": (["a"], [[0], [1]], 2, 7, None),
    "men and women": (["men", "women"], [[1, 0], [0, 1]], 2, 8, None),
    "all and a part": ({"all": "TRUE", "a": "x = 1"}, [[1, 0], [1, 1]], 2, 10, usual),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        "one group",
        pytest.param("men and women", marks=pytest.mark.slow),
        pytest.param("all and a part", marks=pytest.mark.slow),
    ],
)
def test_every_number_of_a_small_cell_agrees_with_what_is_published(world):
    """All data sets are divided by what is published of them. Wherever a cell (the covered or the
    missed records, in a group or outside of it) has fewer than m records, each number from 0 to
    m - 1 occurs in the same class."""
    names, rows, m, most, like = WORLDS[world]
    groups, rows = gcfcp.Groups(names), np.array(rows, dtype=bool)
    a = len(rows)
    classes = defaultdict(list)
    for cells in itertools.product(range(most + 1), repeat=2 * a):
        # Of a whole of fewer than 2 m - 1 records, a part that is told narrows the rest.
        if sum(cells) >= 4 * m:
            own = np.array(cells)
            classes[told_of(groups, rows, own[:a], own[a:], m)].append(cells)
    seen = 0
    for members in classes.values():
        cells = np.array(members)
        covered, missed = cells[:, :a], cells[:, a:]
        # Data sets with more records than `most` in a cell have not been tried.
        inner = cells.max(axis=1) <= most - (2 * m if like is None else m)
        if like is not None:
            inner &= like(covered, missed, m)
        for g, out in itertools.product(range(rows.shape[1]), (False, True)):
            inside = rows[:, g] ^ out
            for number in (covered @ inside, missed @ inside):
                if inside.any() and (number[inner] < m).any():
                    assert set(number.tolist()) >= set(range(m))
                    seen += 1
    assert seen > 20


NATURAL = {
    "men and women": (["men", "women"], [[1, 0], [0, 1]]),
    "all, men, women": ({"all": "TRUE", "m": "s = 'M'", "w": "s = 'F'"}, [[1, 1, 0], [1, 0, 1]]),
    "bands": (["young", "middle", "old"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
}


@pytest.mark.parametrize("m", [3, 10])
@pytest.mark.parametrize("name", NATURAL)
def test_zero_to_m_minus_1_missed_records_give_the_same_bytes(name, m):
    """In the first atom k of 200 records were missed, and in the others 60 of 200."""
    conditions, rows = NATURAL[name]
    groups, rows = gcfcp.Groups(conditions), np.array(rows, dtype=bool)
    atom = np.repeat(np.arange(len(rows)), 200)
    made = set()
    for k in range(m):
        covered = np.arange(len(atom)) % 200 >= 60
        covered[atom == 0] = np.arange(200) >= k
        # As many more are covered among women, so that the number of all missed is the same.
        if name == "all, men, women":
            covered[np.flatnonzero(atom == 1)[60 - k : 60]] = True
        found = gcfcp.audit(covered, rows[atom], groups=groups, client="x", min_count=m)
        made.add(found.to_bytes())
    assert len(made) == 1


@pytest.mark.parametrize("m", [3, 10])
@pytest.mark.parametrize("which", ["covered", "total"])
def test_zero_to_m_minus_1_covered_or_rare_records_give_the_same_bytes(which, m):
    groups = gcfcp.Groups({"all": "TRUE", "rare": "x = 1"})
    made = set()
    for k in range(m):
        rows = np.ones((300, 2), dtype=bool)
        covered = np.arange(300) % 5 > 0
        if which == "total":
            rows[k:, 1] = False
        else:
            rows[100:, 1] = False
            covered[:100] = np.arange(100) < k
            covered[100:] = np.arange(200) % 200 >= 50 + k
        made.add(gcfcp.audit(covered, rows, groups=groups, client="x", min_count=m).to_bytes())
    assert len(made) == 1


def ends_of(found, rows):
    """What a linear program finds out: the smallest and the largest number of covered and of missed
    records in each atom, as far as the published counts allow them."""
    r, a = found.ranges, len(rows)
    both = np.hstack([rows.T, rows.T]).astype(float)
    missed = np.hstack([np.zeros_like(rows.T), rows.T]).astype(float)
    limits = {
        "A_ub": np.vstack([both, -both, missed, -missed]),
        "b_ub": np.concatenate([r.most, -r.least, r.most_missed, -r.least_missed]),
        "A_eq": np.ones((1, 2 * a)),
        "b_eq": [found.n],
    }
    for cell in np.eye(2 * a):
        low, high = (linprog(sign * cell, **limits).fun * sign for sign in (1, -1))
        yield np.ceil(low - 1e-6), np.floor(high + 1e-6)


@pytest.mark.slow
def test_a_linear_program_finds_no_small_cell():
    """0.1.0 gave 245 of 1,770 hidden cells away. Here none of those with fewer than m records is
    found, and hardly one is narrowed."""
    rng = np.random.default_rng(1)
    rows = np.array(list(itertools.product([0, 1], repeat=3)), dtype=bool)
    small = narrowed = 0
    for _ in range(40):
        m = int(rng.integers(2, 8))
        n = int(rng.integers(2 * m, 120))
        atom = rng.choice(8, n, p=rng.dirichlet(np.full(8, rng.choice([0.2, 0.5, 2]))))
        covered = rng.random(n) < rng.choice([0.6, 0.9])
        groups = gcfcp.Groups(["a", "b", "c"])
        found = gcfcp.audit(covered, rows[atom], groups=groups, client="x", min_count=m)
        true = np.concatenate([np.bincount(atom[own], minlength=8) for own in (covered, ~covered)])
        for number, (low, high) in zip(true, ends_of(found, rows), strict=True):
            assert low <= number <= high
            if number < m:
                small += 1
                assert low < high
                narrowed += low > 0 or high < m - 1
    assert small > 300
    assert narrowed <= 0.01 * small


def test_the_linear_program_finds_cells_in_exact_counts():
    """The attack above works where counts are exact: there it finds what the groups determine."""
    rows = np.array([[1, 0], [0, 1]], dtype=bool)
    atom = np.repeat([0, 1], [60, 40])
    groups = gcfcp.Groups(["a", "b"])
    covered = np.arange(100) > 2
    for m, exact in ((1, True), (5, False)):
        found = gcfcp.audit(covered, rows[atom], groups=groups, client="x", min_count=m)
        low, high = list(ends_of(found, rows))[2]  # The missed records of a, of which there are 3.
        assert (low == high == 3) == exact


def test_sizes_and_atoms_are_not_published():
    """A width that is the same for all records of an atom would tell how many these are."""
    groups = gcfcp.Groups({"all": "TRUE", "hiv": "x = 1"})
    rows = np.column_stack([np.ones(300, bool), np.arange(300) < 3])
    width = np.where(rows[:, 1], 2.71828, 1.41421)
    options = {"groups": groups, "client": "x", "set_size": width}
    plain = gcfcp.audit(np.ones(300), rows, **options)
    told = (plain.size[0] - 1.41421 * plain.n) / (2.71828 - 1.41421)
    assert round(told) == 3  # The attack: one sum and the two known widths give the number.
    hiding = gcfcp.audit(np.ones(300), rows, min_count=10, **options)
    assert hiding.size is None
    assert len(hiding.atom_total) == 0
    assert b"size" not in hiding.to_bytes()


# --- what is merged -------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sites=st.integers(1, 3),
    m=st.integers(2, 10),
    mixture=st.sampled_from(["uniform", "proportional"]),
)
def test_the_interval_contains_the_one_of_the_exact_counts(seed, sites, m, mixture):
    """For one client the intervals are those of Clopper and Pearson, for several betting bounds."""
    rng = np.random.default_rng(seed)
    groups = gcfcp.Groups({"all": "TRUE", "a": "x = 1", "b": "y = 1"})
    plain, hiding = [], []
    for k in range(sites):
        n = int(rng.integers(1, 120))
        rows = np.column_stack([np.ones(n, bool), rng.random((n, 2)) < rng.random(2)])
        covered = rng.random(n) < rng.choice([0.1, 0.6, 0.95])
        options = {"groups": groups, "client": f"c{k}", "alpha": 0.1}
        plain.append(gcfcp.audit(covered, rows, **options))
        hiding.append(gcfcp.audit(covered, rows, min_count=m, **options))
    exact, open_ = (gcfcp.merge_audits(some, mixture) for some in (plain, hiding))
    for known, told in zip(exact.groups, open_.groups, strict=True):
        assert told.low <= known.low + 1e-12  # The bounds are rounded.
        assert told.high >= known.high - 1e-12
        assert told.covered <= known.covered <= told.covered_at_most
        assert told.total <= known.total <= told.total_at_most
        if known.coverage is not None and told.lowest is not None:
            assert told.lowest - 1e-12 <= known.coverage <= told.highest + 1e-12
        if told.coverage is not None:
            assert told.coverage == pytest.approx(known.coverage)


def test_an_open_coverage_is_shown_as_a_range_and_never_as_a_number():
    rows = np.ones((200, 1), dtype=bool)
    found = gcfcp.audit(
        np.arange(200) > 3, rows, groups=gcfcp.Groups({"all": "TRUE"}), client="x", min_count=10
    )
    report = gcfcp.merge_audits([found], alpha=0.1)
    record = report.groups[0]
    assert record.coverage is None
    assert (record.lowest, record.highest) == (pytest.approx(0.955), 1.0)
    assert "all: between 0.9550 and 1.0000 [" in str(report)
    assert "(191 to 200 of 200): kept" in str(report)
    # A site whose counts are exact leaves the mixture open all the same.
    other = gcfcp.audit(np.ones(50), rows[:50], groups=found.groups, client="y")
    assert gcfcp.merge_audits([found, other], alpha=0.1).groups[0].coverage is None


def test_too_many_overlaps_tell_less_and_are_no_error(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.random((400, 6)) < 0.5
    groups = gcfcp.Groups([f"g{i}" for i in range(6)])
    covered = rng.random(400) < 0.7

    def told():
        found = gcfcp.audit(covered, rows, groups=groups, client="x", min_count=5).told
        return int((found.total >= 0).sum()), int((found.missed >= 0).sum())

    assert told() == (6, 6)
    original = client.counted
    for most, expected in (
        (12, (6, 6)),
        (9, (6, 3)),
        (7, (6, 1)),
        (6, (6, 0)),
        (3, (1, 1)),
        (0, (0, 0)),
    ):

        def limited(atoms, *rest, most=most):
            if atoms.shape[1] > most:
                raise gcfcp.GCFCPError("too many")
            return original(atoms, *rest)

        monkeypatch.setattr(client, "counted", limited)
        assert told() == expected


# --- rounds ---------------------------------------------------------------------------------------


def of_round(name, client="x", **options):
    groups = gcfcp.Groups({"all": "TRUE"})
    return gcfcp.audit(
        np.arange(60) > 3, np.ones((60, 1)), groups=groups, client=client, round=name, **options
    )


@pytest.mark.parametrize("m", [1, 5])
def test_rounds_and_dates_travel(m):
    for made in (
        of_round("2026Q4", date="2026-11-17", min_count=m, share=0.5),
        of_round("2026Q4", min_count=m),
        of_round(None, date="2026-11-17", min_count=m),
    ):
        data = made.to_bytes()
        again = Audit.from_bytes(data)
        assert (again.round, again.date, again.share) == (made.round, made.date, made.share)
        assert again.to_bytes() == data
        assert data[6] == 3


def test_audits_of_another_round_are_refused():
    one, two, none = of_round("2026Q3", "a"), of_round("2026Q4", "b"), of_round(None, "c")
    assert gcfcp.merge_audits([two], round="2026Q4").round == "2026Q4"
    message = "audit of 'a' belongs to round '2026Q3', and not to round '2026Q4'"
    with pytest.raises(gcfcp.GCFCPError, match=message):
        gcfcp.merge_audits([one, two], round="2026Q4")
    with pytest.raises(gcfcp.GCFCPError, match="audit of 'c' belongs to no round, and not to"):
        gcfcp.merge_audits([two, none], round="2026Q4")
    both = "audit of 'a' belongs to round '2026Q3', and that of 'b' belongs to round '2026Q4'"
    with pytest.raises(gcfcp.GCFCPError, match=both):
        gcfcp.merge_audits([two, one])
    with pytest.raises(gcfcp.GCFCPError, match="belongs to no round: merge audits of one round"):
        gcfcp.merge_audits([two, none])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"round": ""}, "round='' is not a name"),
        ({"round": "a\nb"}, "round=.* is not a name"),
        ({"round": 4}, "round=4 is not a name"),
        ({"date": "17.11.2026"}, "date='17.11.2026' is not a day: give one such as 2026-11-17"),
        ({"date": "20261117"}, "date='20261117' is not a day"),
        ({"date": "2026-02-30"}, "date='2026-02-30' is not a day"),
        ({"date": 7}, "date=7 is not a day"),
    ],
)
def test_rounds_and_dates_are_checked(options, message):
    options = {"name": None} | {"name" if k == "round" else k: v for k, v in options.items()}
    with pytest.raises(gcfcp.GCFCPError, match=message):
        of_round(options.pop("name"), **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total": [4]}, "a count of total is below min_count=5"),
        ({"total": [61]}, "more than n=60 records"),
        ({"total": [-1]}, "total holds a value that is not a count"),
        ({"missed": [3]}, "a count of missed is below min_count=5"),
        ({"missed_bound": [61]}, "more than n=60 records"),
        ({"missed_bound": [-1]}, "missed_bound holds a value that is not a count"),
        ({"total_strangers": [61]}, "total_strangers holds more records than are described"),
        ({"total": [60, 60]}, "do not fit its groups"),
        ({"min_count": 1}, "although its min_count is 1"),
        ({"n": -1}, "n=-1"),
        ({"more": 1}, "not written in the one way"),
        ({"date": "x"}, "date='x' is not a day"),
    ],
)
def test_bad_files_are_refused(change, message):
    header, _ = codec.unpack(of_round("r", min_count=5).to_bytes(), b"A", 3, "x")
    with pytest.raises(gcfcp.GCFCPError, match=message):
        Audit.from_bytes(codec.pack(b"A", 3, header | change, b""), "x.audit")


def test_counts_of_batches_add_up_before_anything_is_hidden():
    groups = gcfcp.Groups({"all": "TRUE"})
    rows, covered = np.ones((40, 1), bool), np.arange(40) > 12
    added = count(covered[:20], rows[:20], groups=groups) + count(
        covered[20:], rows[20:], groups=groups
    )
    whole = gcfcp.audit(covered, rows, groups=groups, client="x", min_count=5)
    assert publish(added, groups=groups, client="x", min_count=5) == whole
