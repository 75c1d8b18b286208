"""How much one record can move the threshold of another atom: the imbalance of a family of groups.

The simultaneous rule fits one line beta' Phi to all atoms. Exchanging one record of atom B for
another record can therefore move the threshold of atom A, in either direction. How far is a matter
of the memberships alone. For atoms Phi_1, ..., Phi_a of rank r let S be r - 1 of them, and

    rho(S, A, B) = det(S, Phi_B) / det(S, Phi_A)    for det(S, Phi_A) != 0.

`Imbalance.plus` is the largest rho of atom A over all S and B, and `Imbalance.minus` the largest
-rho. The larger of both, over all A, is gamma: the largest entry of any simplex tableau of the
atoms, which is known as their circuit imbalance measure (Dadush, Huiberts, Natura, Vegh 2020).
docs/guarantees.md shows what it is needed for.

How it is found. With y the normal of the hyperplane through S, rho(S, A, B) = y'Phi_B / y'Phi_A. So
it is enough to list the vectors (y'Phi_1, ..., y'Phi_a) for all hyperplanes that atoms span. The
atoms first fall apart into components: sets that no linear dependence connects. Each component has
an answer of its own.

| the atoms of a component                             | rho                                    |
|------------------------------------------------------|----------------------------------------|
| are linearly independent                             | 1 for B = A and 0 otherwise            |
| have few hyperplanes, or few minimal dependences     | exact, by listing all of them          |
| come from groups that form two laminar families, or  | -1, 0 or 1: their matrix is totally    |
| from groups that are intervals of the atoms          | unimodular                             |
| otherwise                                            | at most the largest determinant        |

A family of sets is laminar if any two of them are disjoint or one contains the other. Two
partitions, and everyone, are two laminar families. The last bound is proved and never too low, but
it is large for many groups.

Example: groups 1 and 2 overlap, and the atoms are {1}, {2} and {1, 2}. For A = {1} the hyperplane
through {1, 2} has y = (1, -1), and B = {2} gives rho = -1: a record in group 2 alone can push the
threshold of group 1 alone down, by raising that of the records in both.

Cost: the number of hyperplanes, at most some millions; the outcome is kept for the next time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from gcfcp.arrays import Bools, Floats, Ints

_ZERO = 1e-9  # Coefficients are ratios of small whole numbers; one below this size is zero.
_ALWAYS_LISTED = 20_000  # Up to this many subsets, all of them are listed, whatever is recognised.
_MOST_LISTED = 3_000_000  # Up to this many subsets, all of them are listed if nothing else helps.
_MOST_MINORS = 4_000  # A listing keeps at most this many determinants for each subset.
_LARGEST_GAMMA = 10**12  # A larger bound counts as infinite: no federation has so many records.
_AT_ONCE = 2**21  # A listing keeps about this many numbers in memory at a time.

# The largest determinants of matrices with entries -1 and 1, for the orders 0, 1, 2, ... (A003433).
_LARGEST_DETERMINANTS = (1, 1, 2, 4, 16, 48, 160, 576, 4096, 14336, 73728, 327680, 2985984)


@dataclass(frozen=True)
class Imbalance:
    """How far the exchange of one record can move the threshold of one atom."""

    plus: float  # The largest rho, at least 1.
    minus: float  # The largest -rho, or 0 if no rho is negative.
    ground: str  # How it was found: INDEPENDENT, LISTED, UNIMODULAR or BOUNDED.

    @property
    def gamma(self) -> float:
        """The larger of the two."""
        return max(self.plus, self.minus)


INDEPENDENT = "independent"
"""The atoms of the component are linearly independent."""

LISTED = "exact"
"""All hyperplanes, or all minimal dependences, were listed."""

UNIMODULAR = "unimodular"
"""The structure of the groups shows that no entry is above 1."""

BOUNDED = "at most"
"""The largest determinant bounds it from above; it may be far smaller."""

_FREE = Imbalance(1.0, 0.0, INDEPENDENT)


def imbalances(atoms: Bools, rows: Bools) -> list[Imbalance]:
    """The imbalance of each row (m, G) with respect to the atoms (a, G) of the records.

    A row may be one of the atoms or any other row in their span. For a row outside of the span the
    outcome means nothing, because its threshold is +inf.
    """
    key = np.packbits(atoms).tobytes()
    return [_of_row(key, atoms.shape, row.tobytes()) for row in rows]


def listing(atoms: Bools) -> int:
    """About how many subsets are listed for one row that is not among these atoms (a, G).

    It is at most that many, and 0 if there are so many that a bound takes the place of the list.
    """
    a, r = len(atoms) + 1, len(_basis(atoms.astype(np.float64))[0])
    size = min(math.comb(a, r - 1), math.comb(a, max(0, a - r - 1)))
    return size if size <= _MOST_LISTED else 0


@lru_cache(maxsize=2**14)
def _of_row(key: bytes, shape: tuple[int, int], row: bytes) -> Imbalance:
    """The imbalance of one row; the atoms are given by their packed bits, so that it is kept."""
    of_atoms = _of_atoms(key, shape)
    if row in of_atoms:
        return of_atoms[row]
    # An atom that was never seen connects the components that it depends on.
    atoms = np.vstack([_unpacked(key, shape), np.frombuffer(row, dtype=np.bool_)])
    last = len(atoms) - 1
    for component in _components(atoms):
        if last in component:
            own = atoms[component]
            at = int(np.flatnonzero(component == last)[0])
            return _of_component(own, np.arange(len(own)) != at)[at]
    raise AssertionError("every atom is in a component")


@lru_cache(maxsize=64)
def _of_atoms(key: bytes, shape: tuple[int, int]) -> dict[bytes, Imbalance]:
    """The imbalance of each atom, by the bytes of its membership row."""
    atoms = _unpacked(key, shape)
    found: dict[bytes, Imbalance] = {}
    for component in _components(atoms):
        own = atoms[component]
        for row, imbalance in zip(own, _of_component(own, np.ones(len(own), bool)), strict=True):
            found[row.tobytes()] = imbalance
    return found


def _unpacked(key: bytes, shape: tuple[int, int]) -> Bools:
    """The atoms (a, G) of their packed bits."""
    bits = np.unpackbits(np.frombuffer(key, dtype=np.uint8), count=shape[0] * shape[1])
    return bits.astype(np.bool_).reshape(shape)


# --- Components ----------------------------------------------------------------------------------


def _components(atoms: Bools) -> Iterator[Ints]:
    """The sets of atoms that linear dependences connect.

    With a basis of r atoms, every other atom is a combination of some of them, and is connected to
    these. A basic atom that no other atom needs is a component of its own.
    """
    basis, coordinates = _basis(atoms.astype(np.float64))
    owner = np.arange(len(basis))  # The component of each basic atom, named by one of its members.
    others = np.setdiff1d(np.arange(len(atoms)), basis)
    for i in others:
        joined = np.unique(owner[np.abs(coordinates[i]) > _ZERO])
        owner[np.isin(owner, joined)] = joined[0]
    of_other = owner[np.argmax(np.abs(coordinates[others]) > _ZERO, axis=1)]
    for name in np.unique(owner):
        yield np.sort(np.concatenate([basis[owner == name], others[of_other == name]]))


def _basis(rows: Floats) -> tuple[Ints, Floats]:
    """Independent rows that span all rows, and the coordinates (a, r) of all rows in them."""
    left, order = rows.copy(), []
    columns: list[int] = []
    for i, row in enumerate(left):
        pivot = int(np.argmax(np.abs(row)))
        if abs(row[pivot]) > _ZERO:
            order.append(i)
            columns.append(pivot)
            below = i + 1 + np.flatnonzero(left[i + 1 :, pivot])
            reduced = left[below] - np.outer(left[below, pivot] / row[pivot], row)
            left[below] = np.where(np.abs(reduced) < _ZERO, 0.0, reduced)
    basis = np.array(order, dtype=np.int64)
    reduced = rows[:, columns]
    coordinates = np.linalg.solve(reduced[basis].T, reduced.T).T
    return basis, np.where(np.abs(coordinates) < _ZERO, 0.0, coordinates)


# --- One component -------------------------------------------------------------------------------


def _of_component(atoms: Bools, seen: Bools) -> list[Imbalance]:
    """The imbalance of each atom of one component.

    - `seen`: Which of the atoms have records. S and B are atoms of these.
    """
    if len(atoms) == 1:
        return [_FREE]
    rows = atoms.astype(np.float64)
    columns = _basis(rows.T)[0]
    a, r = len(atoms), len(columns)
    size = min(math.comb(a, r - 1), math.comb(a, a - r - 1))
    if size > _ALWAYS_LISTED and _unimodular(atoms):
        return [Imbalance(1.0, 1.0, UNIMODULAR)] * a
    if size <= _MOST_LISTED:
        listed = _listed(rows[:, columns], seen)
        if listed is not None:
            return listed
    bound = _largest_determinant(atoms, columns)
    gamma = math.inf if bound > _LARGEST_GAMMA else float(bound)
    return [Imbalance(gamma, gamma, BOUNDED)] * a


def _listed(rows: Floats, seen: Bools) -> list[Imbalance] | None:
    """The exact imbalances from a list of all hyperplanes or of all minimal dependences.

    None if either list would need too many determinants.

    rho(S, A, B) = v_B / v_A for the vector v of a hyperplane, and for B other than A it is
    -z_A / z_B for the vector z of a minimal dependence sum_i z_i Phi_i = 0 that has both.
    """
    a, r = rows.shape
    plus, minus = np.ones(a), np.zeros(a)
    hyperplanes = math.comb(a, r - 1) <= math.comb(a, a - r - 1)
    width = r if hyperplanes else a - r
    if math.comb(width, width // 2) > _MOST_MINORS:
        return None
    matrix = rows if hyperplanes else _dependences(rows)
    ratios = _of_hyperplanes if hyperplanes else _of_dependences
    for vectors in _elementary(matrix):
        size = np.abs(vectors).max(axis=1, keepdims=True)
        high, low = ratios(np.where(np.abs(vectors) > _ZERO * size, vectors, 0.0), seen)
        plus, minus = np.maximum(plus, high.max(axis=0)), np.maximum(minus, -low.min(axis=0))
    # Each is a ratio of whole numbers; rounding must not leave it too low.
    return [
        Imbalance(_rounded(p), _rounded(m), LISTED)
        for p, m in zip(plus.tolist(), minus.tolist(), strict=True)
    ]


def _of_hyperplanes(v: Floats, seen: Bools) -> tuple[Floats, Floats]:
    """The largest and the smallest v_B / v_A over all B, for each vector and each A: (N, a).

    B is an atom that was seen. An atom that was not is an A alone; a hyperplane through it has
    v_A = 0 there and counts for nothing.
    """
    high = np.where(seen, v, -np.inf).max(axis=1, keepdims=True)
    low = np.where(seen, v, np.inf).min(axis=1, keepdims=True)
    inverse = np.divide(1.0, v, out=np.zeros_like(v), where=v != 0)
    return np.maximum(high * inverse, low * inverse), np.minimum(high * inverse, low * inverse)


def _of_dependences(z: Floats, seen: Bools) -> tuple[Floats, Floats]:
    """The largest and the smallest -z_A / z_B over all B other than A, as `_of_hyperplanes`."""
    inverse = np.divide(-1.0, z, out=np.zeros_like(z), where=(z != 0) & seen)
    ranked = np.sort(inverse, axis=1)
    # Where A itself has the extreme, the next one stands in its place.
    high = np.where(inverse == ranked[:, -1:], ranked[:, -2:-1], ranked[:, -1:]) * z
    low = np.where(inverse == ranked[:, :1], ranked[:, 1:2], ranked[:, :1]) * z
    return np.maximum(high, low), np.minimum(high, low)


def _rounded(ratio: float) -> float:
    """A whole number if the ratio is within rounding of one, and otherwise a little more."""
    whole = round(ratio)
    return float(whole) if abs(ratio - whole) < _ZERO else ratio * (1 + _ZERO)


def _dependences(rows: Floats) -> Floats:
    """A basis (a, a - r) of all z with sum_i z_i Phi_i = 0."""
    a = len(rows)
    basis, coordinates = _basis(rows)
    others = np.setdiff1d(np.arange(a), basis)
    kernel = np.zeros((a, len(others)))
    kernel[basis] = -coordinates[others].T
    kernel[others, np.arange(len(others))] = 1.0
    return kernel


def _elementary(matrix: Floats) -> Iterator[Floats]:
    """The vectors matrix @ y for the normals y of all hyperplanes through rows of the matrix.

    y is the vector of the (r - 1)-rowed determinants of r - 1 rows, with alternating signs. It is
    zero where the rows are dependent, and such y are left out. The determinants of more and more
    rows come from those of fewer, by expansion along the new row. For whole numbers all of this is
    exact. The subsets are listed in portions, so that the memory is bounded.
    """
    a, r = matrix.shape
    if r == 1:
        yield matrix.T
        return
    stack: list[tuple[int, Ints, Floats]] = [(0, np.array([-1]), np.ones((1, 1)))]
    while stack:
        taken, last, minors = stack.pop()
        if taken == r - 1:
            signs = (-1.0) ** np.arange(r)
            # The minors are in the order of the left-out column, from the last to the first.
            vectors = _distinct(minors[:, ::-1] * signs) @ matrix.T
            vectors = vectors[np.abs(vectors).max(axis=1) > _ZERO]
            if len(vectors):
                yield vectors
            continue
        # The next row comes after the last one, and leaves enough rows for those still to come.
        counts = np.maximum(a - (r - 2 - taken) - (last + 1), 0)
        for part in _portions(counts, math.comb(r, taken + 1) + a):
            repeat = np.repeat(part, counts[part])
            offset = np.concatenate([np.arange(c) for c in counts[part]])
            following = last[repeat] + 1 + offset
            stack.append(
                (taken + 1, following, _extended(minors[repeat], matrix[following], taken))
            )


def _distinct(normals: Floats) -> Floats:
    """The normals (N, r) without those that are multiples of others, where that is quick to tell.

    It is quick for up to 8 small whole numbers: divided by their greatest common divisor, and with
    the sign of the first, they fit into the eight bytes of one integer.
    """
    whole = np.rint(normals)
    if normals.shape[1] > 8 or np.abs(whole).max(initial=0) > 127 or (whole != normals).any():
        return normals
    small = np.zeros((len(whole), 8), dtype=np.int8)
    small[:, : whole.shape[1]] = whole
    divisor = np.gcd.reduce(small, axis=1)
    small = small[divisor > 0] // divisor[divisor > 0, None]
    leading = small[np.arange(len(small)), np.argmax(small != 0, axis=1)]
    small *= np.sign(leading)[:, None]
    keys = np.unique(np.ascontiguousarray(small).view(np.int64)[:, 0])
    return keys.view(np.int8).reshape(-1, 8)[:, : whole.shape[1]].astype(np.float64)


def _portions(counts: Ints, width: int) -> Iterator[Ints]:
    """The indices of `counts`, in portions whose counts times `width` stay below a limit."""
    ends = np.cumsum(counts) * width // _AT_ONCE
    yield from (np.flatnonzero(ends == e) for e in np.unique(ends) if counts[ends == e].any())


def _extended(minors: Floats, rows: Floats, taken: int) -> Floats:
    """All minors of one more row, from those of `taken` rows (N, C(r, taken)) and the row (N, r).

    The columns of the minors are in the order of itertools.combinations.
    """
    r = rows.shape[1]
    place = {columns: i for i, columns in enumerate(combinations(range(r), taken))}
    out = np.zeros((len(rows), math.comb(r, taken + 1)))
    for i, columns in enumerate(combinations(range(r), taken + 1)):
        for j, column in enumerate(columns):
            rest = place[columns[:j] + columns[j + 1 :]]
            out[:, i] += (-1.0) ** (taken - j) * rows[:, column] * minors[:, rest]
    return out


# --- What the structure of the groups shows -----------------------------------------------------


def _unimodular(atoms: Bools) -> bool:
    """Whether the groups are recognised as two laminar families, or as intervals of the atoms."""
    return _two_laminar(atoms) or _intervals(atoms)


def _two_laminar(atoms: Bools) -> bool:
    """Whether the groups can be divided into two families without crossing pairs.

    Two groups cross if they share an atom and each has an atom of its own. The division is a
    colouring of the groups with two colours in which crossing groups differ.
    """
    member = atoms.astype(np.int64)
    shared = member.T @ member
    sizes = np.diag(shared)
    crossing = (shared > 0) & (shared < np.minimum(sizes[:, None], sizes[None, :]))
    colour = np.zeros(len(sizes), dtype=np.int64)
    for start in range(len(sizes)):
        waiting = [] if colour[start] else [start]
        colour[start] = colour[start] or 1
        while waiting:
            neighbours = np.flatnonzero(crossing[g := waiting.pop()])
            if (colour[neighbours] == colour[g]).any():
                return False
            new = neighbours[colour[neighbours] == 0]
            colour[new] = -colour[g]
            waiting += new.tolist()
    return True


def _intervals(atoms: Bools) -> bool:
    """Whether every group is an interval of the atoms, in the order of their first and last group.

    Groups to which all atoms belong say nothing about the order and are left out of it.
    """
    telling = atoms[:, ~atoms.all(axis=0)]
    if not telling.shape[1]:
        return True
    first = np.argmax(telling, axis=1)
    last = telling.shape[1] - 1 - np.argmax(telling[:, ::-1], axis=1)
    ordered = telling[np.lexsort((last, first))].astype(np.int64)
    edges = np.abs(np.diff(ordered, axis=0, prepend=0, append=0)).sum(axis=0)
    return bool((edges <= 2).all())


def _largest_determinant(atoms: Bools, columns: Ints) -> int:
    """An upper bound on every determinant of atoms on independent columns.

    Every nonzero determinant is at least 1 in size, so that this bounds every rho. With r columns:

    - it is at most the largest determinant of zeros and ones of order r;
    - if all atoms are in one group, subtracting one row from the others shows that it is at most
      the largest determinant of order r - 1;
    - if p groups are disjoint, so that an atom is in at most one of them, each of them has a row
      that can be subtracted from the others; what is left is a determinant of order r - p with
      entries -1, 0 and 1.
    """
    r = len(columns)
    bounds = [_of_zeros_and_ones(r)]
    if atoms.all(axis=0).any():
        bounds.append(_of_zeros_and_ones(r - 1))
    bounds.append(_of_signs(r - _disjoint_groups(atoms)))
    return min(bounds)


def _disjoint_groups(atoms: Bools) -> int:
    """A number of groups of which no two share an atom: the best of some greedy choices."""
    present = atoms[:, atoms.any(axis=0)].astype(np.int64)
    meets = (present.T @ present) > 0
    order = np.argsort(present.sum(axis=0), kind="stable")
    best = 0
    for start in order:
        chosen = [start]
        for g in order:
            if not meets[g, chosen].any():
                chosen.append(g)
        best = max(best, len(chosen))
    return best


def _of_signs(order: int) -> int:
    """The largest determinant of entries between -1 and 1, or Hadamard's bound of it."""
    if order < len(_LARGEST_DETERMINANTS):
        return _LARGEST_DETERMINANTS[order]
    return math.isqrt(order**order)


def _of_zeros_and_ones(order: int) -> int:
    """The largest determinant of zeros and ones, or an upper bound of it.

    It is the largest one of signs of the next order, divided by 2 to the power of this order.
    """
    return max(1, _of_signs(order + 1) >> order)


def largest_of_any(groups: int) -> int:
    """An upper bound on gamma for every set of atoms that this many groups can have."""
    return _of_zeros_and_ones(groups)
