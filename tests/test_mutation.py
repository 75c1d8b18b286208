"""What mutation/config.toml names is there: a module that moved, or a line that changed, shows."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIG = tomllib.loads((ROOT / "mutation" / "config.toml").read_text())


@pytest.mark.parametrize("target", CONFIG["targets"])
def test_every_target_exists(target: str) -> None:
    assert (ROOT / target).exists(), f"mutation/config.toml: there is no {target}"


@pytest.mark.parametrize("entry", CONFIG.get("equivalent", []), ids=lambda e: e["original"])
def test_every_equivalent_mutant_is_one_of_a_line(entry: dict[str, str]) -> None:
    lines = {line.strip() for line in (ROOT / entry["file"]).read_text().splitlines()}
    assert lines.issuperset(entry["original"].splitlines())
    assert entry["mutated"] != entry["original"]
    assert entry["reason"].endswith(".")
