"""What may define a group: its name and its condition, checked once for groups and families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gcfcp import checks
from gcfcp.errors import GCFCPError
from gcfcp.groups import sites as _sites
from gcfcp.groups.predicates import problem_of


def checked_names(names: Any, of_sites: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names and those of the sites' groups, or an error that says which cannot be used."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise GCFCPError(f"groups must be a list of names, not {names!r:.80}")
    others = tuple(names)
    checked = others + tuple(_sites.group_of(site) for site in of_sites)
    if not checked:
        raise GCFCPError("a family of groups needs at least one group")
    for position, name in enumerate(checked):
        if problem := checks.group_name_problem(name):
            raise GCFCPError(f"group name {position} ({ascii(name)[:60]}) {problem}")
    if len(set(checked)) < len(checked):
        twice = next(name for name, count in Counter(checked).items() if count > 1)
        if others.count(twice) == 1:
            raise GCFCPError(f"group {twice!r} is called like the group of a site: rename it")
        raise GCFCPError(f"group name {twice!r} is given twice: names must differ")
    first: dict[str, str] = {}
    for name in checked:
        other = first.setdefault(checks.look(name), name)
        if other != name:
            raise GCFCPError(
                f"group names {other!a:.60} and {name!a:.60} look the same, because they "
                "differ only in how Unicode writes them: rename one of them"
            )
    return tuple(str(name) for name in checked)


def checked_predicates(
    names: tuple[str, ...], predicates: Iterable[Any] | None
) -> tuple[str, ...] | None:
    """The conditions without blanks at their ends, or an error that says which cannot be used."""
    if predicates is None:
        return None
    checked = (predicates,) if isinstance(predicates, str) else tuple(predicates)
    if len(checked) != len(names):
        raise GCFCPError(
            f"there are {len(checked)} conditions for {len(names)} groups: give one for each group"
        )
    for name, predicate in zip(names, checked, strict=True):
        if not isinstance(predicate, str):
            raise GCFCPError(
                f"group {name!r}: {predicate!r:.60} is of type {type(predicate).__name__}, "
                f'not a string such as "age >= 65"'
            )
        if problem := problem_of(predicate):
            raise GCFCPError(f"group {name!r}: {problem}")
    return tuple(predicate.strip() for predicate in checked)
