"""The threat model claims nothing that no test attacks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/threat-model.md").read_text()
TABLE = PAGE[PAGE.index("## Attackers, and the tests that play them") : PAGE.index("## On the way")]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| ") and not line.startswith("| who ")
]


def named(cell):
    """The tests that a cell names: pairs of a file and a function."""
    found, file = [], None
    for word in re.findall(r"`([^`]+)`", cell):
        if word.endswith(".py"):
            file = word
        else:
            found.append((file, word))
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_every_row_names_tests_that_exist(row):
    who, can, cannot, shown_by = row
    assert all((who, can, cannot))
    tests = named(shown_by)
    assert tests
    for file, test in tests:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), (file, test)


def test_the_table_has_an_attacker_of_every_kind():
    attackers = " ".join(row[0] for row in ROWS)
    for kind in ("server", "site", "reader", "author", "kill"):
        assert kind in attackers
    assert len(ROWS) >= 20
