"""Atoms that have nothing to do with each other are solved apart, with the same outcome."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp.solver import DividedSolver, Solver, quantile
from gcfcp.solver.parts import parts_of
from tests import oracles

ALPHAS = [Fraction(1, 10), Fraction(1, 5), Fraction(1, 2), Fraction(3, 7)]


def as_lists(membership):
    return [part.tolist() for part in parts_of(np.array(membership, dtype=bool))]


def test_groups_that_do_not_overlap_are_parts_with_everyone_or_without():
    disjoint = np.eye(4)
    assert as_lists(disjoint) == [[0], [1], [2], [3]]
    assert as_lists(np.column_stack([np.ones(4), disjoint])) == [[0], [1], [2], [3]]


def test_atoms_that_share_a_group_are_one_part():
    assert as_lists([[1, 0, 0], [1, 1, 0], [0, 0, 1]]) == [[0, 1], [2]]


def test_a_part_may_be_linked_through_everyone():
    # Groups: everyone, a, b, c, d. The first three atoms depend on each other only if their
    # coefficients do not add up to 0, and so do the last three, so that everyone links both.
    block = np.array([[1, 0], [0, 1], [1, 1]])
    rows = np.zeros((6, 5))
    rows[:, 0] = 1
    rows[:3, 1:3] = rows[3:, 3:] = block
    assert as_lists(rows) == [[0, 1, 2, 3, 4, 5]]
    assert as_lists(rows[:, 1:]) == [[0, 1, 2], [3, 4, 5]]


def test_an_atom_of_everyone_alone_is_a_part():
    rows = np.column_stack([np.ones(3), np.vstack([np.zeros(2), np.eye(2)])])
    assert as_lists(rows) == [[0], [1], [2]]


def rank(rows):
    return int(np.linalg.matrix_rank(rows)) if len(rows) else 0


families = st.integers(2, 7).flatmap(
    lambda groups: st.lists(
        st.lists(st.booleans(), min_size=groups, max_size=groups).filter(any),
        min_size=1,
        max_size=12,
        unique_by=tuple,
    )
)


@given(families, st.booleans())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_ranks_of_parts_add_up(rows, everyone):
    # That is what it means that no dependence connects two parts.
    rows = np.array(rows, dtype=bool)
    if everyone:
        rows = np.column_stack([np.ones(len(rows), dtype=bool), rows])
    parts = parts_of(rows)
    assert sorted(i for part in parts for i in part.tolist()) == list(range(len(rows)))
    assert sum(rank(rows[part].astype(float)) for part in parts) == rank(rows.astype(float))


def sparse_problem(rng):
    """A family in which atoms mostly fall into parts, with ties and scores of +inf."""
    groups, n = int(rng.integers(2, 8)), int(rng.integers(4, 60))
    membership = rng.random((n, groups)) < rng.choice([0.15, 0.3])
    own = rng.integers(0, groups, n)
    membership[np.arange(n), own] = True
    if rng.random() < 0.5:
        membership = np.column_stack([np.ones(n, dtype=bool), membership])
    scores = np.round(rng.normal(size=n), int(rng.choice([1, 6])))
    scores[rng.random(n) < rng.choice([0.0, 0.1, 0.4])] = np.inf
    weights = rng.integers(1, 4, n) if rng.random() < 0.5 else rng.random(n) + 0.1
    core = oracles.coreset(scores, membership, weights, float(rng.integers(1, 4)))
    return core, (scores, membership, weights)


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(50))
def test_parts_give_the_thresholds_of_the_whole(seed):
    rng = np.random.default_rng([15, seed])
    core, _ = sparse_problem(rng)
    alpha = ALPHAS[seed % len(ALPHAS)]
    divided, whole = DividedSolver(core, alpha), Solver(core, alpha)
    groups = core.membership.shape[1]
    rows = np.vstack([core.membership, rng.random((5, groups)) < 0.4, np.eye(groups, dtype=bool)])
    t = np.where(rng.random(len(rows)) < 0.3, -0.5, 1.0) * divided.t
    for mine, theirs in zip(divided.solve(rows, t), whole.solve(rows, t), strict=True):
        assert (mine.threshold, mine.bounded) == (theirs.threshold, theirs.bounded)
    if divided.t > 0:
        weight = np.full(len(rows), core.test)
        mine, theirs = divided.highest(rows, weight), whole.highest(rows, weight)
        assert (mine >= theirs).all()  # It may be higher where an optimum is not unique.
        apart = np.array([divided._place(row) for row in rows]) >= 0
        assert np.array_equal(mine[~apart], theirs[~apart])


@pytest.mark.parametrize("seed", range(20))
def test_parts_give_the_thresholds_of_an_oracle(seed):
    rng = np.random.default_rng([16, seed])
    core, (scores, membership, weights) = sparse_problem(rng)
    if np.isinf(scores).any():
        scores = np.where(np.isinf(scores), 9.0, scores)
        core = oracles.coreset(scores, membership, weights, core.test)
    alpha = ALPHAS[seed % len(ALPHAS)]
    for row, solution in zip(
        core.membership, DividedSolver(core, alpha).solve(core.membership), strict=True
    ):
        expected = oracles.dual_lp(scores, membership, weights, core.test, alpha, row)
        assert solution.threshold == pytest.approx(expected, abs=1e-6)


def test_a_part_at_infinity_is_seen_from_other_parts():
    # A row of one part must know that an atom of another part, with whom it shares everyone, rests
    # at +inf, because that atom may carry weight for suppressed records.
    membership = np.array([[1, 1, 0]] * 20 + [[1, 0, 1]] * 20, dtype=bool)
    scores = np.concatenate([np.arange(20.0), np.full(20, np.inf)])
    core = oracles.coreset(scores, membership, np.ones(40), 1.0)
    mine = DividedSolver(core, Fraction(1, 5)).solve(core.membership)
    theirs = Solver(core, Fraction(1, 5)).solve(core.membership)
    for one, other in zip(mine, theirs, strict=True):
        assert one.infinite_atoms.tolist() == other.infinite_atoms.tolist()
    assert mine[1].infinite_atoms.any()


def test_a_quantile_is_the_classical_rank():
    rng = np.random.default_rng(3)
    for n in (1, 9, 10, 57, 200):
        scores = rng.normal(size=n)
        place = -(-(n + 1) * 9 // 10)
        expected = np.sort(scores)[place - 1] if place <= n else np.inf
        assert quantile(scores, np.ones(n), 1.0, Fraction(1, 10)) == expected


def test_weights_that_are_not_whole_tie_within_rounding():
    # Ten weights of 0.1 add up to a little less than 1. Nine of ten are enough nevertheless.
    scores, weights = np.arange(10.0), np.full(10, 0.1)
    assert quantile(scores, weights, 0.0, Fraction(1, 10)) == 8.0
    assert quantile(scores, np.ones(10), 0.0, Fraction(1, 10)) == 8.0


def test_disjoint_groups_are_calibrated_as_each_by_itself():
    rng = np.random.default_rng(5)
    names = [f"g{i}" for i in range(40)]
    membership = np.eye(40, dtype=bool)[rng.integers(0, 40, 4000)]
    groups = gcfcp.Groups(names)
    summary = gcfcp.summarize(rng.normal(size=4000), membership, groups=groups, client="a")
    together = gcfcp.calibrate([summary], 0.1)
    apart = gcfcp.calibrate([summary], 0.1, rule="max")
    rows = np.eye(40, dtype=bool)
    assert np.array_equal(together.thresholds(rows), apart.thresholds(rows))
    assert len(together.threshold_table.source.solver.parts) == 40
