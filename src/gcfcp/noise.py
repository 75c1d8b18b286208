"""Noise on counts for differential privacy: how a site draws it, and its law, which is public.

**What is protected.** A site adds independent discrete Laplace noise to every count of a vector:
P(noise = x) is in proportion to exp(-|x| / scale). If one record is added to the data or taken
away, the vector changes by at most the sensitivity D in sum, and with scale = D / epsilon the
probability of any release changes by at most the factor e^epsilon. (If one record is exchanged for
another one, the vector changes by 2 D, and the factor is e^(2 epsilon).)

- By atom a record is in one cell of one atom: D = 1.
- By group a record is in one cell of each of its groups: D is the number of groups that the site
  can have. With few groups by atom is cheaper: the noise of a group is then the sum over its atoms.

The number n of records is public by declaration. So what is hidden is what a record says, and not
whether it is counted in n.

**Who draws it.** The site, with OpenDP (extra `dp`), whose sampler is exact and takes its bits from
the operating system. There is no seed. What the server draws to learn the law (`imitated`) comes
from a seed and protects nothing.

**Noise of a sum.** Where only the sum of K sites is seen, the sum needs the noise of one site.
Discrete Laplace noise can be divided into K equal shares, each the difference of two negative
binomial variables of order 1/K. No maintained library draws these from secure bits, so that the
noise is not divided here but dealt out (`Makers`): some sites each add the whole noise, and the
others add none. Of d sites that may tell others their noise, and of a server that decides who is
lost, two numbers follow:

- At least 1 + d sites that add noise must be in the sum. Then one of them is honest, and its noise
  protects the records of all. Sites reveal nothing for any other sum (`gcfcp.secure`).
- Each spare site that adds noise as well may be lost, and the sum still be made.

The sum has between 1 + d and 1 + d + spare times the variance of one.

Cost: some 20 microseconds for each count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Floats, Ints
from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs

MECHANISM = "discrete Laplace"
"""The one mechanism: integers with P(x) in proportion to exp(-|x| / scale)."""

LEAST_EPSILON, MOST_EPSILON = 1e-6, 1e3
"""The epsilons that are allowed. Beyond them noise is larger than all counts, or none at all."""

_ROUNDING = 1 + 1e-9  # A scale is rounded up by less than this factor.


@dataclass(frozen=True)
class Noise:
    """The law of the noise in each count of a summary, and what it protects.

    The noise of a count is a sum of independent terms. A site's own summary has one term of one
    copy; a sum of sites has theirs.
    """

    epsilon: float  # The privacy loss of one record that is added or taken away.
    terms: tuple[tuple[float, int], ...]  # (scale, copies) of discrete Laplace noise, by scale.

    def __post_init__(self) -> None:
        checked_epsilon(self.epsilon)
        scales = [scale for scale, _ in self.terms]
        if not scales or scales != sorted(set(scales)):
            raise GCFCPError("the scales of the noise are not in ascending order, each once")
        for scale, copies in self.terms:
            if not checks.is_number(scale) or not 0 < scale <= 1e12:
                raise GCFCPError(f"scale={scale!r:.60} of the noise is not between 0 and 1e12")
            checks.whole("copies", copies, 1)

    @classmethod
    def of(cls, epsilon: float, sensitivity: int, copies: int = 1) -> Noise:
        """The noise that protects one record with this epsilon.

        - `sensitivity`: D, by how much one record can change all counts together.
        - `copies`: How many sites add it.
        """
        return cls(checked_epsilon(epsilon), ((scale_of(epsilon, sensitivity), copies),))

    @classmethod
    def total(cls, noises: Iterable[Noise]) -> Noise:
        """The noise of a sum of counts. Its epsilon is the largest: each protects its own site."""
        found: dict[float, int] = {}
        epsilon = 0.0
        for noise in noises:
            epsilon = max(epsilon, noise.epsilon)
            for scale, copies in noise.terms:
                found[scale] = found.get(scale, 0) + copies
        return cls(epsilon, tuple(sorted(found.items())))

    @property
    def scale(self) -> float:
        """The scale of the noise; the largest, if there are several terms."""
        return self.terms[-1][0]

    @property
    def variance(self) -> float:
        """The variance of the noise of one count."""
        return math.fsum(copies * variance_of(scale) for scale, copies in self.terms)

    def __str__(self) -> str:
        times = sum(copies for _, copies in self.terms)
        several = "" if times == 1 else f", {times:,} times"
        return f"{MECHANISM} noise of scale {self.scale:.4g}{several} (epsilon {self.epsilon:g})"

    @property
    def values(self) -> dict[str, Any]:
        """Plain values for a file."""
        return {
            "epsilon": self.epsilon,
            "mechanism": MECHANISM,
            "terms": [[scale, copies] for scale, copies in self.terms],
        }

    @classmethod
    def from_values(cls, values: Any) -> Noise:
        """The noise that `values` wrote; a GCFCPError if it makes no sense."""
        if not isinstance(values, Mapping) or values["mechanism"] != MECHANISM:
            raise GCFCPError(f"the noise is not {MECHANISM} noise")
        terms = values["terms"]
        if not isinstance(terms, list) or not all(
            isinstance(t, list) and len(t) == 2 and type(t[0]) is float and type(t[1]) is int
            for t in terms
        ):
            raise GCFCPError("the terms of the noise must be a list of [scale, copies]")
        return cls(values["epsilon"], tuple((scale, copies) for scale, copies in terms))


def checked_epsilon(value: Any) -> float:
    """An epsilon that can be used."""
    if not checks.is_number(value) or not LEAST_EPSILON <= value <= MOST_EPSILON:
        raise GCFCPError(
            f"epsilon={value!r:.60} is not a number from {LEAST_EPSILON:g} to {MOST_EPSILON:g}: 1 "
            "is usual, and a smaller epsilon protects more"
        )
    return checks.as_float(value)


def scale_of(epsilon: float, sensitivity: int) -> float:
    """D / epsilon, rounded up to a float, so that no more than epsilon is lost."""
    exact = Fraction(sensitivity) / Fraction(checked_epsilon(epsilon))
    scale = float(exact)
    return scale if Fraction(scale) >= exact else math.nextafter(scale, math.inf)


def fits(noise: Noise, sensitivity: int) -> bool:
    """Whether the noise of one site is what its epsilon needs."""
    least = sensitivity / noise.epsilon
    (scale, copies), *more = noise.terms
    return not more and copies == 1 and least / _ROUNDING <= scale <= least * _ROUNDING


def variance_of(scale: float) -> float:
    """The variance of discrete Laplace noise: 2 a / (1 - a)^2 with a = exp(-1 / scale)."""
    a = math.exp(-1 / scale)
    return 2 * a / math.expm1(-1 / scale) ** 2


# --- at a site ------------------------------------------------------------------------------------


def with_noise(counts: Ints, scale: float, sensitivity: int, epsilon: float) -> Ints:
    """The counts plus fresh discrete Laplace noise, which OpenDP draws from secure bits.

    OpenDP's own account of the loss is compared with epsilon before anything is drawn. Every call
    is a release of its own: two of the same counts lose twice epsilon.
    """
    needs("opendp", "noise for differential privacy", "dp")
    # These modules alone load ten times as fast as opendp.prelude.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
    release: Any = make_laplace(*space, scale=scale)
    while release.map(sensitivity) > epsilon:  # OpenDP rounds the loss up by some bits.
        scale = math.nextafter(scale, math.inf)
        release = make_laplace(*space, scale=scale)
    return np.array(release(counts.tolist()), dtype=np.int64)


@dataclass(frozen=True)
class Makers:
    """Which sites add noise to a sum, in which every site counts but few of them are needed.

    The sites are taken in the order of their names on the roster of the sum.
    """

    dishonest: int = 1  # How many sites may tell others their noise.
    spare: int = 0  # How many of the sites that add noise may be lost.

    def __post_init__(self) -> None:
        checks.whole("dishonest", self.dishonest, 0)
        checks.whole("spare", self.spare, 0)

    @property
    def number(self) -> int:
        """How many sites add noise: the first ones."""
        return self.needed + self.spare

    @property
    def needed(self) -> int:
        """How many of these must be in the sum."""
        return 1 + self.dishonest


# --- the law --------------------------------------------------------------------------------------


def imitated(rng: np.random.Generator, scale: float, copies: int, shape: tuple[int, ...]) -> Floats:
    """Sums of `copies` independent discrete Laplace variables, from a seeded generator.

    One such variable is the difference of two geometric ones, and a sum of them that of two
    negative binomial ones. This shows the law. It protects nothing, because a seed can be guessed.
    """
    p = -math.expm1(-1 / scale)
    up, down = (rng.negative_binomial(copies, p, size=shape) for _ in range(2))
    return (up - down).astype(np.float64)
