"""By atom, published counts agree with every number of records in a small atom, and the promise
stands."""

import itertools
import json
import warnings
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import GCFCPError, TDigest
from gcfcp.summary import Making, assemble
from gcfcp.summary.withheld import withheld


def rows_of(free, certain):
    """All possible atoms of so many free groups, in the order of their keys, and what is certain.

    The certain group comes last, if there is one.
    """
    rows = np.array(list(itertools.product([False, True], repeat=free)), dtype=bool)
    if certain:
        rows = np.column_stack([rows, np.ones(len(rows), dtype=bool)])
    return rows, np.array([False] * free + [True] * certain)


def published(rows, counts, certain, m):
    """Every number that leaves for these counts (a,) of all possible atoms, as a reader gets it."""
    there = counts > 0
    own, numbers = rows[there], counts[there]
    told = withheld(own, numbers, np.ones(rows.shape[1], bool), certain, m)
    shown = numbers.copy()
    if told.atom is not None:
        shown[told.atom] -= told.number
    outside = numbers[~own.any(axis=1) & (numbers >= m)].sum()
    described = tuple(
        (row.tobytes(), int(c))
        for row, c in zip(own[told.described], shown[told.described], strict=True)
    )
    return described, told.suppressed, tuple(told.bound.tolist()), int(outside)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("free", "certain", "m", "most"),
    [(1, 1, 2, 9), (1, 0, 4, 24), (1, 1, 5, 30), (2, 0, 2, 9), (2, 1, 2, 9), (2, 1, 3, 12)],
)
def test_every_number_of_a_small_atom_agrees_with_what_is_published(free, certain, m, most):
    """All data sets of up to `most` records an atom are divided by what is published of them. In
    each class in which some atom is described, each other atom has 0, 1, ..., m - 1 records."""
    rows, sure = rows_of(free, certain)
    classes = defaultdict(list)
    for counts in itertools.product(range(most + 1), repeat=len(rows)):
        if any(counts):
            classes[published(rows, np.array(counts), sure, m)].append(counts)
    seen = 0
    for told, members in classes.items():
        described, suppressed, _, outside = told
        # Data sets with more records than `most` in an atom have not been tried.
        if not described or max(c for _, c in described) + suppressed > most:
            continue
        keys = {key for key, _ in described}
        for a, row in enumerate(rows):
            if row.tobytes() in keys or (outside and not row.any()):
                continue
            assert {counts[a] for counts in members} >= set(range(m))
            seen += 1
    assert seen > 10


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data(), free=st.integers(1, 4), certain=st.booleans(), m=st.integers(2, 6))
def test_another_data_set_with_the_same_counts_can_be_built(data, free, certain, m):
    """The proof of the module, step by step: for a small atom and a number from 0 to m - 1 there
    are data with this number, and the same published counts."""
    rows, sure = rows_of(free, certain)
    size = st.one_of(st.just(0), st.integers(0, m - 1), st.integers(0, 12 * m))
    counts = np.array(data.draw(st.lists(size, min_size=len(rows), max_size=len(rows))))
    assume(counts.any())
    told = published(rows, counts, sure, m)
    described, total, _, outside = told
    assume(described)
    known = dict(described)
    places = [a for a, row in enumerate(rows) if row.tobytes() in known]
    small = [a for a, row in enumerate(rows) if a not in places and (row.any() or not outside)]
    assume(small)
    atom = data.draw(st.sampled_from(small))
    number = data.draw(st.integers(0, m - 1))
    others = [a for a in small if a != atom]
    u, true = len(small), int(counts[small].sum())
    other = np.zeros_like(counts)
    if outside:
        other[~rows.any(axis=1)] = outside
    for a in places:
        other[a] = known[rows[a].tobytes()]
    other[atom] = number
    exact = m <= true <= (u - 2) * (m - 1)
    lumped = len(others) * (m - 1) if u > 2 and total > m - 1 else 0
    left = true - number if exact else lumped
    for a in others:
        other[a] = min(left, m - 1)
        left -= other[a]
    assert left == 0
    if not exact:
        other[places[0]] += total - int(other[small].sum())
    assert published(rows, other, sure, m) == told


def header_counts(summary):
    """Every number of a summary that is no score: those of the header, and the counts."""
    data = summary.to_bytes()
    header = json.loads(data[12 : 12 + int.from_bytes(data[8:12], "little")])
    return json.dumps(header), summary.counts.tolist(), summary.start.tolist()


FAMILIES = {
    "a rare disease": ({"all": "TRUE", "hiv": "hiv = 1"}, [[1, 0]], [1, 1]),
    "two diseases": ({"all": "TRUE", "hiv": "hiv = 1", "tb": "tb = 1"}, [[1, 0, 0]], [1, 1, 0]),
    "men and women": ({"m": "s = 'M'", "w": "s = 'F'"}, [[1, 0], [0, 1]], [0, 0]),
    "both": ({"m": "s = 'M'", "w": "s = 'F'"}, [[0, 1], [1, 0]], [1, 1]),
    "bands": (
        {"all": "TRUE", "x": "a < 40", "y": "a >= 40", "z": "a > 65"},
        [[1, 1, 0, 0], [1, 0, 1, 0]],
        [1, 0, 1, 1],
    ),
}


@pytest.mark.parametrize("by", ["one", "table"])
@pytest.mark.parametrize("m", [2, 10])
@pytest.mark.parametrize("name", FAMILIES)
def test_zero_to_m_minus_1_rare_records_give_the_same_counts(name, m, by):
    """The issue's example among others: of 300 records, k turn out to be in a rare atom."""
    conditions, common, rare = FAMILIES[name]
    groups = gcfcp.Groups(conditions)
    rng = np.random.default_rng(0)
    scores = rng.normal(size=300)
    made = set()
    for k in range(m):
        # In the order of keys, the atom that the rare records come from is the first.
        rows = np.array(sorted(common), dtype=bool)
        atom = rows[np.arange(300) % len(rows)]
        atom[: k * len(rows) : len(rows)] = rare
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Some records are in no group.
            if by == "one":
                found = gcfcp.summarize(scores, atom, groups=groups, client="a", min_count=m)
            else:
                found = streamed(scores, atom, groups, m)
        assert found.suppressed != k or k == 0 or k == m - 1
        made.add(str(header_counts(found)))
    assert len(made) == 1


def streamed(scores, membership, groups, m, buffer=4096, **options):
    """The summary that is made from builders, as for a table that is larger than memory."""
    making = Making(groups, "a", min_count=m, **options)
    rows, index = np.unique(membership, axis=0, return_inverse=True)
    builders = []
    for a in range(len(rows)):
        builder = making.builder(buffer)
        builder.add(scores[index.ravel() == a])
        builders.append(builder)
    return assemble(builders, rows.astype(bool), making)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(2, 8),
    representative=st.sampled_from(["upper", "mean"]),
    buffer=st.sampled_from([16, 4096]),
)
def test_a_stream_tells_the_same_counts_and_understates_nothing(seed, m, representative, buffer):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 400))
    membership = np.column_stack([np.ones(n, bool), rng.random((n, 2)) < rng.random(2)])
    scores = rng.normal(size=n).round(int(rng.integers(0, 4)))
    options = {"representative": representative}
    held = gcfcp.summarize(scores, membership, groups=GROUPS, client="a", min_count=m, **options)
    stream = streamed(scores, membership, GROUPS, m, buffer, **options)
    assert stream.suppressed == held.suppressed
    assert stream.suppressed_groups == held.suppressed_groups
    assert np.array_equal(stream.membership, held.membership)
    assert np.array_equal(stream.atom_counts, held.atom_counts)
    if buffer > n:
        assert stream == held
    for a in range(len(held.errors)):
        also = slice(stream.start[a], stream.start[a + 1])
        true = np.sort(scores[(membership == held.membership[a]).all(axis=1)])
        for k, value in zip(np.cumsum(stream.counts[also]), stream.values[also], strict=True):
            assert value >= true[k - 1] or representative == "mean"


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.integers(0, 30), min_size=2, max_size=80),
    data=st.data(),
    delta=st.sampled_from([2, 6, 50]),
    representative=st.sampled_from(["upper", "mean"]),
)
def test_a_digest_without_its_largest_values_keeps_its_certificate(
    values, data, delta, representative
):
    whole = TDigest.from_values(values, delta, representative=representative)
    k = data.draw(st.integers(0, len(values) - 1))
    less = whole.without_largest(k)
    left = np.sort(values)[: len(values) - k]
    assert less.total == len(left)
    at = np.unique(np.concatenate([left, less.means, less.means - 1e-9]))
    true = np.searchsorted(left, at, side="right") / len(left)
    assert np.abs(true - less.cdf(at)).max() <= less.error + 1e-12
    if representative == "upper":
        assert (less.cdf(at) <= true + 1e-12).all()
    with pytest.raises(GCFCPError, match="is not between 0 and the total weight"):
        whole.without_largest(len(values))


GROUPS = gcfcp.Groups({"all": "TRUE", "a": "x = 1", "b": "y = 1"})


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(2, 6),
    mixture=st.sampled_from(["uniform", "proportional"]),
    correction=st.sampled_from(["sharp", "paper"]),
)
def test_withholding_never_lowers_a_threshold(seed, m, mixture, correction):
    """Against summaries of the same records that describe every one of them, with rule "max"."""
    rng = np.random.default_rng(seed)
    plain, hiding = [], []
    for k in range(int(rng.integers(1, 5))):
        n = int(rng.integers(10, 150))
        member = np.column_stack([np.ones(n, bool), rng.random((n, 2)) < rng.random(2)])
        scores = rng.normal(rng.choice([0.0, 3.0]), 1, n).round(int(rng.integers(0, 4)))
        options = {"groups": GROUPS, "client": f"c{k}", "delta": 1e6}
        plain.append(gcfcp.summarize(scores, member, **options))
        hiding.append(gcfcp.summarize(scores, member, min_count=m, **options))
    if not any(len(s.errors) for s in hiding):
        with pytest.raises(gcfcp.GCFCPError, match="no client describes a single atom"):
            gcfcp.calibrate(hiding, 0.2, mixture, rule="max", correction=correction)
        return
    rows = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        low, high = (
            gcfcp.calibrate(s, 0.2, mixture, rule="max", correction=correction).thresholds(rows)
            for s in (plain, hiding)
        )
    assert (high >= low).all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(2, 5))
def test_the_bounds_hold_for_every_group_and_the_requirement_with_them(seed, m):
    """What `calibration.problem` asks of rule "simultaneous": in each group of a row with a finite
    threshold, covered records are at least 1 - alpha of all records and the test point."""
    rng = np.random.default_rng(seed)
    n, alpha = int(rng.integers(60, 300)), 0.2
    member = np.column_stack([np.ones(n, bool), rng.random((n, 2)) < rng.uniform(0.2, 0.8, 2)])
    scores = rng.normal(size=n)
    found = gcfcp.summarize(scores, member, groups=GROUPS, client="c", min_count=m, delta=1e6)
    described = found.atom_counts @ found.membership
    assert (described + np.array(found.suppressed_groups) >= member.sum(axis=0)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = gcfcp.calibrate([found], alpha, rule="simultaneous")
        thresholds = made.thresholds(member)
    covered = scores <= thresholds
    for g in range(3):
        own = member[:, g]
        if np.isfinite(thresholds[own]).any():
            assert covered[own].sum() >= (1 - alpha) * own.sum()
