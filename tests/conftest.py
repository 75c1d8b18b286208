"""Which cases of a test belong to the fast tests.

A test with very many cases has the mark `few(n)`: n of its cases, evenly spread, are run by
`dev.py test`, and the others by `dev.py slow`. CI runs both.
"""

from __future__ import annotations

from collections import defaultdict

import pytest


@pytest.hookimpl(tryfirst=True)  # Before pytest leaves out what -m does not ask for.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: dict[str, list[tuple[pytest.Item, int]]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("few")
        if mark and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append((item, mark.args[0]))
    for found in cases.values():
        for place, (item, number) in enumerate(found):
            if place * number // len(found) == (place - 1) * number // len(found):
                item.add_marker("slow")
