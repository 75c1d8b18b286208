"""The imbalance of a family of groups: against brute force, and for families whose gamma is known.

A bound that is too low would break the promise, so that every case is compared with all subsets.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcfcp.groups import imbalance as module
from gcfcp.groups import imbalances, largest_of_any


def brute_force(atoms, row):
    """(plus, minus) by trying every hyperplane with a singular value decomposition; None for a row
    outside of the span of the atoms."""
    matrix = atoms.astype(float)
    _, sizes, right = np.linalg.svd(matrix)
    r = int((sizes > 1e-9).sum())
    inside = right[:r]
    x, a = matrix @ inside.T, row.astype(float) @ inside.T
    if np.abs(a @ inside - row).max() > 1e-9:
        return None
    plus, minus = 1.0, 0.0
    for chosen in itertools.combinations(range(len(x)), r - 1):
        _, values, normals = np.linalg.svd(x[list(chosen)]) if r > 1 else (0, [], np.ones((1, 1)))
        if r > 1 and (values > 1e-9).sum() < r - 1:
            continue
        divisor = normals[-1] @ a
        if abs(divisor) > 1e-9:
            rho = x @ normals[-1] / divisor
            plus, minus = max(plus, rho.max()), max(minus, -rho.min())
    return plus, minus


def all_rows(G):
    return np.array(list(itertools.product([False, True], repeat=G)))[1:]


@st.composite
def families(draw, G=5, most=8):
    """Some atoms of up to G groups, and a row that may be one of them or not."""
    groups = draw(st.integers(1, G))
    rows = all_rows(groups)
    order = draw(st.permutations(range(len(rows))))
    size = draw(st.integers(1, min(most, len(rows))))
    return rows[list(order[:size])], rows[order[draw(st.integers(0, len(rows) - 1))]]


@settings(max_examples=300, deadline=None)
@given(family=families())
def test_every_row_has_the_imbalance_of_brute_force(family):
    atoms, row = family
    expected = brute_force(atoms, row)
    if expected is not None:
        (found,) = imbalances(atoms, row[None])
        assert (found.plus, found.minus) == pytest.approx(expected, abs=1e-6)
        assert found.plus >= expected[0] - 1e-12
        assert found.minus >= expected[1] - 1e-12


@settings(max_examples=150, deadline=None)
@given(family=families(), listed=st.sampled_from([0, 3]))
def test_what_is_not_listed_is_never_too_low(family, listed):
    """With no listing allowed, what the structure shows and the determinants must do."""
    atoms, row = family
    expected = brute_force(atoms, row)
    if expected is None:
        return
    key = np.packbits(atoms).tobytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ALWAYS_LISTED", listed)
        patch.setattr(module, "_MOST_LISTED", listed)
        found = module._of_row.__wrapped__(key, atoms.shape, row.tobytes())
        module._of_atoms.cache_clear()
    module._of_atoms.cache_clear()
    assert found.plus >= expected[0] - 1e-9
    assert found.minus >= expected[1] - 1e-9


@settings(max_examples=60, deadline=None)
@given(family=families())
def test_listing_in_small_portions_changes_nothing(family):
    atoms, _ = family
    whole = imbalances(atoms, atoms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AT_ONCE", 7)
        module._of_row.cache_clear()
        module._of_atoms.cache_clear()
        assert imbalances(atoms, atoms) == whole
    module._of_row.cache_clear()
    module._of_atoms.cache_clear()


def gamma(atoms):
    return max(i.gamma for i in imbalances(atoms, atoms))


def grounds(atoms):
    return {i.ground for i in imbalances(atoms, atoms)}


def with_everyone(atoms):
    return np.hstack([np.ones((len(atoms), 1), dtype=bool), atoms])


def cube(m):
    return np.array(list(itertools.product([False, True], repeat=m)))


@pytest.mark.parametrize(("m", "expected"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 5)])
def test_everyone_and_crossing_attributes(m, expected):
    assert gamma(with_everyone(cube(m))) == expected


def test_the_counter_example_of_the_paper_has_gamma_2():
    atoms = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=bool)
    assert gamma(atoms) == 2


def windows(labels, width, step):
    starts = np.arange(0, labels - width + 1, step)
    return np.array([[s <= label < s + width for s in starts] for label in range(labels)])


def partitions(*sizes):
    rows = [
        np.concatenate([np.arange(size) == i for size, i in zip(sizes, cell, strict=True)])
        for cell in itertools.product(*map(range, sizes))
    ]
    return np.array(rows)


UNIMODULAR = {
    "windows": windows(10, 4, 2),
    "dense windows": windows(60, 20, 1),
    "everyone and windows": with_everyone(windows(60, 20, 1)),
    "two partitions": partitions(2, 5),
    "two large partitions": partitions(10, 5),
    "everyone and two partitions": with_everyone(partitions(12, 6)),
    "nested": np.tril(np.ones((12, 12), dtype=bool)),
    "two groups": all_rows(2),
    "two chains": np.array(
        [np.append(i <= np.arange(9), j <= np.arange(9)) for i in range(9) for j in range(9)]
    ),
}


@pytest.mark.parametrize("name", UNIMODULAR)
def test_unimodular_families_have_gamma_1(name):
    assert gamma(UNIMODULAR[name]) == 1


def test_structure_is_recognised_where_listing_is_out_of_reach():
    for name in ("dense windows", "everyone and windows", "two large partitions", "two chains"):
        assert grounds(UNIMODULAR[name]) == {module.UNIMODULAR}, name
    assert grounds(UNIMODULAR["nested"]) == {module.INDEPENDENT}


def test_three_crossing_groups_are_neither_laminar_nor_intervals():
    assert not module._two_laminar(all_rows(3))
    assert not module._intervals(all_rows(3))
    assert module._two_laminar(all_rows(2))


def test_disjoint_and_nested_groups_leave_atoms_alone():
    for atoms in (np.eye(500, dtype=bool), np.tril(np.ones((40, 40), dtype=bool))):
        assert all((i.plus, i.minus) == (1.0, 0.0) for i in imbalances(atoms, atoms))


def test_a_row_in_two_disjoint_groups_depends_on_both():
    (found,) = imbalances(np.eye(3, dtype=bool), np.array([[True, True, False]]))
    assert (found.plus, found.minus) == (1.0, 0.0)
    (inner,) = imbalances(np.array([[1, 0], [1, 1]], dtype=bool), np.array([[False, True]]))
    assert (inner.plus, inner.minus) == (1.0, 1.0)


def test_sites_and_attributes_are_bounded_by_the_attributes_alone():
    """Twenty sites and everyone count nothing: the bound is that of three attributes."""
    sites = [np.append(np.arange(20) == s, bits) for s in range(20) for bits in cube(3)]
    atoms = with_everyone(np.array(sites))
    (first, *_) = imbalances(atoms, atoms)
    assert first.ground == module.BOUNDED
    assert first.gamma == 4


def test_the_largest_determinants_are_those_of_brute_force():
    for order in (1, 2, 3):
        signs = np.array(list(itertools.product([-1.0, 0.0, 1.0], repeat=order * order)))
        found = np.abs(np.linalg.det(signs.reshape(-1, order, order))).max()
        assert round(found) == module._of_signs(order)
    for order in (1, 2, 3, 4):
        bits = np.array(list(itertools.product([0.0, 1.0], repeat=order * order)))
        found = np.abs(np.linalg.det(bits.reshape(-1, order, order))).max()
        assert round(found) == module._of_zeros_and_ones(order)
    published = [1, 1, 2, 3, 5, 9, 32, 56, 144, 320]  # OEIS A003432 from order 1 on.
    assert [largest_of_any(order) for order in range(1, 11)] == published
    assert all(module._of_signs(k) <= k ** (k / 2) * (1 + 1e-12) for k in range(1, 13))
    assert module._of_signs(20) == math.isqrt(20**20)


def test_seven_demographic_groups_are_listed_exactly():
    rng = np.random.default_rng(1)
    atoms = all_rows(7)[rng.permutation(127)[:26]]
    found = imbalances(atoms, atoms)
    assert {i.ground for i in found} == {module.LISTED}
    assert 2 <= max(i.gamma for i in found) <= 32


def test_a_bound_beyond_all_records_is_infinite():
    rng = np.random.default_rng(0)
    atoms = np.unique(rng.random((300, 120)) < 0.5, axis=0)
    assert {i.gamma for i in imbalances(atoms, atoms)} == {math.inf}
