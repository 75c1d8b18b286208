"""Every site as a group: to which group of a site each row belongs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools
from gcfcp.errors import GCFCPError


def group_of(site: str) -> str:
    """The name of the group of a site."""
    return f"site {site}"


def checked(sites: Any) -> tuple[str, ...]:
    """The names of the sites as a tuple, or an error that says which one cannot be used."""
    if isinstance(sites, str) or not isinstance(sites, Iterable):
        raise GCFCPError(f"sites={sites!r:.60} is not a list of clients: give one such as ['a']")
    names = tuple(checks.name("site", site) for site in sites)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise GCFCPError(f"site {name!r} is given twice: list each site once")
        seen.add(name)
    return names


def columns(sites: tuple[str, ...], site: Any, n: int) -> Bools:
    """Which of n rows belong to which site, (n, number of sites): each row to exactly one.

    site: The name of the site of all rows, or one name for each row.
    """
    place = {name: i for i, name in enumerate(sites)}
    found = np.zeros((n, len(sites)), dtype=np.bool_)
    if isinstance(site, str):
        if site not in place:
            raise _unknown("site", site, sites)
        found[:, place[site]] = True
        return found
    names = _names(site, n)
    places = [place.get(name, -1) if isinstance(name, str) else -1 for name in names]
    if -1 in places:
        row = places.index(-1)
        raise _unknown(f"row {row + 1}: site", names[row], sites)
    found[np.arange(n), places] = True
    return found


def check(sites: tuple[str, ...], given: Bools, own: Bools) -> None:
    """Raise an error that names the first row whose given site is not its own.

    given, own: Which rows belong to which site, of shape (n, number of sites), or with one more
    axis for the labels.
    """
    wrong = (given != own).any(axis=-1)
    if wrong.any():
        at = np.unravel_index(int(wrong.argmax()), wrong.shape)
        said = [group_of(site) for site, inside in zip(sites, given[at], strict=True) if inside]
        raise GCFCPError(
            f"membership row {at[0] + 1} belongs to {checks.listed(said) or 'no site'}, but its "
            f"site is {sites[int(own[at].argmax())]!r}: correct the row, or leave out the columns "
            "of the sites"
        )


def _names(site: Any, n: int) -> list[Any]:
    """The site of each of n rows as it was given."""
    try:
        names = np.asarray(checks.unmasked("site", site), dtype=object)
    except (TypeError, ValueError) as error:
        raise GCFCPError(f"site is not a list of names: {error}") from None
    if names.shape != (n,):
        raise GCFCPError(
            f"site has shape {names.shape} for {n} rows: give one name for all rows, or one for "
            "each row"
        )
    return list(names)


def _unknown(what: str, site: Any, sites: tuple[str, ...]) -> GCFCPError:
    """The error for a site that is not in the family."""
    return GCFCPError(
        f"{what}={site!r:.60} is not one of the sites {checks.listed(sites)}: give one of them, or "
        "add it to the sites of the groups"
    )
