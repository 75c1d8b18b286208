"""Which cases of a test belong to the fast tests, and which examples hypothesis tries.

A test with very many cases has the mark `few(n)`: n of its cases, evenly spread, are run by
`dev.py test`, and the others by `dev.py slow`. CI runs both. A slow test with the mark `some(n)`
draws so many federations in each case that CI runs n of its cases; `dev.py long` runs the others.

Hypothesis tries the same examples in every run, so that a change is judged by itself and not by
chance. `HYPOTHESIS_PROFILE=random` searches further.
"""

from __future__ import annotations

import os
from collections import defaultdict
from importlib.util import find_spec

import pytest

if find_spec("hypothesis"):  # The environments of the platforms do without it.
    from hypothesis import settings

    settings.register_profile("same", derandomize=True)
    settings.register_profile("random", derandomize=False)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.hookimpl(tryfirst=True)  # Before pytest leaves out what -m does not ask for.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _mark_others(items, "few", "slow")
    _mark_others(items, "some", "long")


def _mark_others(items: list[pytest.Item], given: str, added: str) -> None:
    """Mark all cases of the tests with the mark `given(n)`, but n that are evenly spread."""
    cases: dict[str, list[tuple[pytest.Item, int]]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker(given)
        if mark and not item.get_closest_marker(added):
            cases[item.nodeid.partition("[")[0]].append((item, mark.args[0]))
    for found in cases.values():
        for place, (item, number) in enumerate(found):
            if place * number // len(found) == (place - 1) * number // len(found):
                item.add_marker(added)
