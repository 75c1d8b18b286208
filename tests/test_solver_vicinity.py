"""Test rows walk among the few atoms that they move, with the outcome of a walk among all."""

from fractions import Fraction

import numpy as np
import pytest

import oracles
from gcfcp.solver import Solver, nearest, predicted, vicinity
from gcfcp.solver import solve as solver_module
from gcfcp.solver.problem import independent
from gcfcp.solver.vicinity import Vicinity, vicinity_of

ALPHA = Fraction(1, 10)


def scores_of(kind, rng, n):
    smooth = rng.gamma(2.0, 1.0, n)
    return {
        "continuous": smooth,
        "rounded": np.round(smooth, 1),
        "integers": np.rint(3 * smooth),
        "some infinite": np.where(rng.random(n) < 0.03, np.inf, smooth),
        "many infinite": np.where(rng.random(n) < 0.08, np.inf, smooth),
        "tails": np.where(rng.random(n) < 0.5, smooth * 1e12, smooth * 1e-12),
    }[kind]


KINDS = ["continuous", "rounded", "integers", "some infinite", "many infinite", "tails"]


def problem(kind, seed=0, test=1.0, n=3000, groups=7, clients=1):
    rng = np.random.default_rng(seed)
    membership = rng.random((n, groups)) < 0.4
    membership[:, 0] = True
    weights = rng.choice([1.0, 0.75, 0.3][:clients], size=n)
    return oracles.coreset(scores_of(kind, rng, n), membership, weights, test)


def one_by_one(core, rows=None):
    """Thresholds from walks among all atoms: a single row knows no vicinity."""
    solver = Solver(core, ALPHA)
    return [solver.solve(r)[0].threshold for r in (core.membership if rows is None else rows)]


@pytest.fixture
def counted(monkeypatch):
    """Every vicinity that is used, with which rows its outside atoms stayed in place."""
    seen = []
    stayed = Vicinity.stayed

    def recorded(self, walk):
        held = stayed(self, walk)
        seen.append((self, held))
        return held

    monkeypatch.setattr(Vicinity, "stayed", recorded)
    monkeypatch.setattr(vicinity, "_FEW", 4)
    monkeypatch.setattr(vicinity, "_LARGEST", 0.95)
    monkeypatch.setattr(nearest, "_FIRST_ROUND", 4)
    return seen


@pytest.mark.few(2)
@pytest.mark.parametrize("further", [0.0, 0.5, 2.0], ids=["none", "half", "twice"])
@pytest.mark.parametrize("kind", KINDS)
def test_thresholds_are_those_of_a_walk_among_all_atoms(kind, further, counted, monkeypatch):
    """With `further` below 1 atoms are left out that are needed, and the check must notice."""
    monkeypatch.setattr(vicinity, "_FURTHER", further)
    core = problem(kind, test=3.0, clients=3 if kind == "continuous" else 1)
    found = [s.threshold for s in Solver(core, ALPHA).solve(core.membership)]
    assert found == one_by_one(core)
    assert counted, "no row was walked in a vicinity"
    if further == 0.0 and kind == "continuous":
        assert not all(held.all() for _, held in counted), "nothing was left out that was needed"


@pytest.mark.parametrize("kind", ["continuous", "some infinite"])
def test_without_the_check_of_those_left_out_thresholds_would_be_wrong(kind, monkeypatch, counted):
    """The control of the test above: the check is what makes its outcome right."""
    monkeypatch.setattr(vicinity, "_FURTHER", 0.0)
    monkeypatch.setattr(Vicinity, "stayed", lambda self, walk: np.ones(len(walk.t), dtype=bool))
    core = problem(kind, test=3.0)
    found = [s.threshold for s in Solver(core, ALPHA).solve(core.membership)]
    assert found != one_by_one(core)


@pytest.mark.slow
def test_a_vicinity_in_which_nothing_stops_a_row_does_not_make_it_infinite(counted, monkeypatch):
    """A row that leaves the vicinity is solved among all atoms, where other scores stop it."""
    monkeypatch.setattr(vicinity, "_FURTHER", 0.0)
    core = problem("continuous")
    solver = Solver(core, ALPHA)
    t = np.full(len(core.membership), 40 * solver.t)
    t[next(nearest.rounds(len(t)))] = solver.t  # The vicinity is learned from light rows.
    unbounded = []
    descend = solver_module.descend

    def watched(pieces, walk, rows):
        outcome = descend(pieces, walk, rows)
        if pieces.pull.any():
            unbounded.append((outcome[1] < 0).any())
        return outcome

    monkeypatch.setattr(solver_module, "descend", watched)
    found = [s.threshold for s in solver.solve(core.membership, t)]
    assert any(unbounded)
    alone = [solver.solve(row, t[i : i + 1])[0].threshold for i, row in enumerate(core.membership)]
    assert found == alone


def test_few_atoms_are_walked_among_where_there_are_many(monkeypatch):
    """What a vicinity is for: with a test point of the weight of a record it is a small part."""
    rng = np.random.default_rng(3)
    atoms = np.unique(rng.random((600, 10)) < 0.5, axis=0)
    atoms[:, 0] = True
    atoms = np.unique(atoms, axis=0)
    membership = atoms[rng.integers(len(atoms), size=20 * len(atoms))]
    core = oracles.coreset(
        rng.gamma(2.0, 1.0, len(membership)), membership, np.ones(len(membership)), 1.0
    )
    sizes = []

    def watched(pieces, starts):
        found = vicinity_of(pieces, starts)
        sizes.append(None if found is None else len(found.atoms))
        return found

    monkeypatch.setattr(solver_module, "vicinity_of", watched)
    Solver(core, ALPHA).solve(core.membership)
    assert sizes[0] is None
    assert sizes[-1] < 0.3 * len(core.membership)


def test_no_vicinity_where_it_would_not_pay():
    """Few atoms, no row solved yet, or scores whose scaling cost bits."""
    solver = Solver(problem("continuous", groups=5), ALPHA)
    assert len(solver.coreset.membership) <= 64
    assert vicinity_of(solver._pieces, solver._at_rest) is None


# --- a predicted start ------------------------------------------------------------------------


def heavy(kind):
    """A test point of the weight of 60 records, whose walks are long."""
    return problem(kind, test=60.0, n=4000, groups=8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thresholds_do_not_depend_on_a_predicted_start(kind, monkeypatch, counted):
    monkeypatch.setattr(predicted, "_LONG", 0.0)
    monkeypatch.setattr(vicinity, "_LARGEST", 1.0)
    core = heavy(kind)
    rows = core.membership[:100]  # From the 17th on, starts are predicted.
    solved = Solver(core, ALPHA).solve(rows)
    assert [s.threshold for s in solved] == one_by_one(core, rows)
    assert counted


def test_a_predicted_start_saves_pivots(monkeypatch, counted):
    monkeypatch.setattr(vicinity, "_LARGEST", 1.0)
    core = heavy("continuous")
    taken = {}
    for long in (0.0, np.inf):
        monkeypatch.setattr(predicted, "_LONG", long)
        solved = Solver(core, ALPHA).solve(core.membership)
        taken[long] = sum(s.pivots for s in solved)
    assert taken[0.0] < 0.8 * taken[np.inf]


def test_newtons_steps_save_more_of_them(monkeypatch, counted):
    monkeypatch.setattr(vicinity, "_LARGEST", 1.0)
    monkeypatch.setattr(predicted, "_LONG", 0.0)
    core = heavy("continuous")
    taken = [sum(s.pivots for s in Solver(core, ALPHA).solve(core.membership))]
    monkeypatch.setattr(predicted, "_PARTS", ())
    taken += [sum(s.pivots for s in Solver(core, ALPHA).solve(core.membership))]
    assert taken[0] < 0.8 * taken[1]


def test_independent_atoms_are_those_of_an_elimination_one_by_one():
    rng = np.random.default_rng(5)
    rows = (rng.random((40, 9)) < 0.4).astype(float)
    order = np.array([rng.permutation(40) for _ in range(20)])
    basis, complete = predicted._independent(rows, order)
    assert complete.all()
    for found, own in zip(basis, order, strict=True):
        assert found.tolist() == independent(rows, own).tolist()
    _, complete = predicted._independent(rows[:, :8].repeat(2, axis=1), order)
    assert not complete.any()


def test_scores_below_are_counted_as_by_a_search_in_each_atom():
    solver = Solver(problem("rounded"), ALPHA)
    pieces = solver._pieces
    rng = np.random.default_rng(6)
    theta = rng.choice(pieces.values, size=(7, len(pieces.size)))
    expected = [
        [pieces.values[i : i + k].searchsorted(x) for i, k, x in zip(*sizes, row, strict=True)]
        for row in theta
        for sizes in [(pieces.start, pieces.size)]
    ]
    found = rng.integers(0, pieces.size + 1, size=theta.shape)
    predicted._follow(pieces, theta, found)
    assert found.tolist() == expected
