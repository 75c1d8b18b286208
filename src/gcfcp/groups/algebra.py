"""A single group, and new groups from it by `&`, `|` and `~`.

    over_65 = Group("over_65", "age >= 65")
    female = Group("female", "sex = 'F'")
    Groups([over_65, female, over_65 & female, (over_65 | ~female).named("special")])

The condition of a combination is SQL like any other, so that groups files hold it and fingerprints
agree: `over_65 & female` is the group `over_65 and female` with the condition
`(age >= 65) AND (sex = 'F')`.

Guarantee: For rows without missing values, the members of `a & b`, `a | b` and `~a` are what
NumPy's operators of the same name make of the members of a and b. Where a missing value leaves open
whether a row belongs, SQL's three truth values decide: the row is in no group of which this remains
open, so it is neither in `a` nor in `~a`. `a & b` and `a | b` agree with NumPy there too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gcfcp import checks
from gcfcp.errors import GCFCPError
from gcfcp.groups.definition import checked_names, checked_predicates


@dataclass(frozen=True)
class Group:
    """One group: a name, and the condition that decides from the columns of a row who belongs.

    `a & b` has the rows that belong to both groups, `a | b` those that belong to one of them or to
    both, and `~a` those that do not belong to a. The new name is made of the old ones, and `named`
    gives another one. A list of groups makes a family: `Groups([a, b, a & b])`.
    """

    name: str
    condition: str
    _link: str = field(default="", repr=False, compare=False)  # What the parts are joined by.

    def __post_init__(self) -> None:
        if not self._link:  # A combination may still get a shorter name.
            checked_names((self.name,))
        (condition,) = checked_predicates((self.name,), (self.condition,)) or ()
        object.__setattr__(self, "condition", condition)

    def named(self, name: str) -> Group:
        """The same group under another name."""
        return Group(name, self.condition)

    def __and__(self, other: object) -> Group:
        return NotImplemented if _is_family(other) else _joined("AND", self, _as_group(other))

    def __or__(self, other: object) -> Group:
        return NotImplemented if _is_family(other) else _joined("OR", self, _as_group(other))

    def __bool__(self) -> bool:
        """An error: without it `a and b` would be b alone, and `not a` would be False."""
        raise GCFCPError(
            f"group {self.name!r:.60} is neither true nor false: write & for and, | for or, "
            "~ for not"
        )

    def __invert__(self) -> Group:
        name = f"({self.name})" if self._link in ("AND", "OR") else self.name
        return Group(f"not {name}", f"NOT ({self.condition})", "NOT")


def _is_family(other: object) -> bool:
    """Whether this is a family, which knows itself what to do with a group."""
    return hasattr(other, "predicates")


def _as_group(other: object) -> Group:
    """The other operand, or an error if it is not a group."""
    if isinstance(other, Group):
        return other
    condition = other if isinstance(other, str) else "age >= 65"
    raise GCFCPError(
        f"a group is combined with groups alone, and not with a {type(other).__name__}: write "
        f"Group('name', {condition!r:.60})"
    )


def _joined(link: str, *groups: Group) -> Group:
    """The groups joined by AND or OR. Parts that are joined by the same word need no parentheses.

    This keeps a chain such as `a | b | c` flat, because conditions may not be nested deeply.
    """
    names = [
        f"({g.name})" if g._link in ("AND", "OR") and g._link != link else g.name for g in groups
    ]
    parts = [g.condition if g._link == link else f"({g.condition})" for g in groups]
    return Group(f" {link.lower()} ".join(names), f" {link} ".join(parts), link)


def named_enough(group: Group) -> Group:
    """The group, or an error if it is a combination whose name is too long for a family."""
    if len(group.name) > checks.MAX_NAME:
        raise GCFCPError(
            f"the name of this combination has {len(group.name)} characters ({group.name:.40}..), "
            f"and at most {checks.MAX_NAME} are allowed: give it another one with .named(...)"
        )
    return group
