"""Vertices in fractions, from their definition: what the parts of the solver are tested against.

A vertex is a list of basic atoms and `at`, for each atom its breakpoint or its count. A place on
the line is a tuple (multiple of infinity, number, multiple of an infinitesimal). Only the data of
`Pieces` are used here, none of the solver's arithmetic.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

import oracles
from gcfcp.solver.problem import Pieces, pieces_of
from gcfcp.solver.vertex import Walk, factorise

KINDS = ["normal", "integers", "cents", "infinite", "infinite integers"]
ALPHA = Fraction(1, 5)


def draw_scores(rng, kind, n):
    lost = rng.random(n) < 0.25
    whole = rng.integers(-3, 4, size=n)
    return {
        "normal": rng.normal(size=n),
        "integers": whole * 1.0,
        "cents": whole * 0.1,
        "infinite": np.where(lost, np.inf, rng.normal(size=n)),
        "infinite integers": np.where(lost, np.inf, whole * 1.0),
    }[kind]


def draw(rng, kind, n=30, groups=3, test=1.0) -> tuple[Pieces, float]:
    """The pieces and t of a random problem with weights 1, 2 and 3."""
    membership = rng.random((n, groups)) < 0.5
    membership[~membership.any(axis=1), 0] = True
    weights = rng.integers(1, 4, size=n)
    core = oracles.coreset(draw_scores(rng, kind, n), membership, weights, test)
    pieces, _, t = pieces_of(core, ALPHA)
    return pieces, t


def inverse(matrix) -> list[list[Fraction]] | None:
    """None if there is none."""
    r = len(matrix)
    whole = [[*map(int, row), *(int(i == j) for j in range(r))] for i, row in enumerate(matrix)]
    reduced, pivots = oracles._reduce(whole)
    return [row[r:] for row in reduced] if pivots[:r] == list(range(r)) else None


def dot(x, y) -> Fraction:
    return sum((Fraction(a) * b for a, b in zip(x, y, strict=True)), Fraction(0))


def point(pieces: Pieces, a: int, i: int) -> tuple[Fraction, ...]:
    far = bool(pieces.infinite[a]) and i == pieces.size[a] - 1
    number = float(pieces.exact[pieces.start[a] + i])
    return Fraction(int(far)), Fraction(number), Fraction(float(pieces.tie[a]))


def slope(pieces: Pieces, a: int, i: int) -> Fraction:
    return Fraction(float(pieces.slopes[pieces.start[a] + a + i]))


def coefficients(pieces: Pieces, basis) -> list[list[Fraction]]:
    """Phi_A inv(Phi_basis) of every atom."""
    inv = inverse(pieces.rows[basis])
    assert inv is not None
    return [
        [dot(map(int, row), column) for column in zip(*inv, strict=True)] for row in pieces.rows
    ]


def theta(pieces: Pieces, basis, at) -> list[tuple[Fraction, ...]]:
    resting = [point(pieces, a, int(at[a])) for a in basis]
    levels = list(zip(*resting, strict=True))
    return [tuple(dot(c, level) for level in levels) for c in coefficients(pieces, basis)]


def located(pieces: Pieces, basis, at) -> np.ndarray:
    """`at` with the counts of the atoms outside the basis set from theta."""
    out = np.array(at)
    for a, place in enumerate(theta(pieces, basis, at)):
        if a not in basis:
            out[a] = sum(point(pieces, a, i) < place for i in range(pieces.size[a]))
    return out


def multipliers(pieces: Pieces, basis, at, row, t) -> list[Fraction]:
    pull = [Fraction(t) * int(k) for k in row]
    for a in set(range(len(pieces.size))).difference(map(int, basis)):
        for j in np.flatnonzero(pieces.rows[a]):
            pull[j] -= slope(pieces, a, int(at[a]))
    inv = inverse(pieces.rows[basis])
    return [dot(pull, column) for column in zip(*inv, strict=True)]


def in_terms(pieces: Pieces, basis, row) -> list[Fraction]:
    """c with c Phi_basis = row."""
    return [dot(map(int, row), column) for column in zip(*inverse(pieces.rows[basis]), strict=True)]


def violations(pieces: Pieces, basis, at, row, t) -> list[tuple[int, Fraction]]:
    """For each position: 1 or -1 if its theta must rise or fall, else 0; and the derivative."""
    out = []
    c = in_terms(pieces, basis, row)
    for b, y in enumerate(multipliers(pieces, basis, at, row, t)):
        a = int(basis[b])
        over, under = y - slope(pieces, a, at[a] + 1), slope(pieces, a, at[a]) - y
        if over > 0 or (over == 0 and c[b] < 0):
            out.append((1, -over))
        elif under > 0 or (under == 0 and c[b] > 0):
            out.append((-1, -under))
        else:
            out.append((0, Fraction(0)))
    return out


def optimal(pieces: Pieces, basis, at, row, t) -> bool:
    return not any(direction for direction, _ in violations(pieces, basis, at, row, t))


def step(pieces: Pieces, basis, at, row, t, b):
    """The long step of position b: the change of `at`, the entering atom and its breakpoint; or
    None if the derivative never turns."""
    direction, derivative = violations(pieces, basis, at, row, t)[b]
    lowers = direction * in_terms(pieces, basis, row)[b] < 0
    places = theta(pieces, basis, at)
    met = []
    for a, c in enumerate(coefficients(pieces, basis)):
        speed = direction * c[b]
        up = range(at[a] + (a == basis[b]), pieces.size[a])
        for i in up if speed > 0 else range(at[a] - 1, -1, -1) if speed < 0 else ():
            ahead = zip(point(pieces, a, i), places[a], strict=True)
            time = tuple((p - q) / speed for p, q in ahead)
            met.append((time, a, i, abs(speed) * (slope(pieces, a, i + 1) - slope(pieces, a, i))))
    passed = np.zeros(len(pieces.size), dtype=int)
    for _, a, i, gain in sorted(met):
        derivative += gain
        if derivative > 0 or (derivative == 0 and not lowers):
            return passed, a, i
        passed[a] += 1 if i >= at[a] else -1
    return None


def draw_basis(rng, pieces: Pieces) -> np.ndarray:
    """Random independent atoms."""
    r = pieces.rows.shape[1]
    bases = [
        basis
        for basis in itertools.combinations(range(len(pieces.size)), r)
        if abs(np.linalg.det(pieces.rows[list(basis)])) > 0.5
    ]
    return rng.permutation(bases[rng.integers(len(bases))])


def draw_walk(rng, pieces: Pieces, rows: np.ndarray, t) -> Walk:
    """Random vertices, one for each test row, with exact counts."""
    basis = np.array([draw_basis(rng, pieces) for _ in rows])
    at = np.zeros((len(rows), len(pieces.size)), dtype=np.int64)
    for i in range(len(rows)):
        at[i] = located(pieces, basis[i], rng.integers(pieces.size))
    walk = Walk.begun(basis, at, np.broadcast_to(t, len(rows)).astype(float))
    factorise(pieces, walk, rows)
    return walk
