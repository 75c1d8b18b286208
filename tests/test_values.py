"""Values are values: nobody can change one, and a module of the core holds no other library."""

import dataclasses
import importlib
import pkgutil

import numpy as np
import pytest

import gcfcp
from gcfcp.thresholds import Simultaneous

ROOMS = (
    "audit",
    "calibration",
    "digest",
    "groups",
    "prediction",
    "solver",
    "summary",
    "thresholds",
)
ALONE = ("arrays", "checks", "codec", "errors", "libraries", "methods", "scores", "version")
MODULES = [f"gcfcp.{name}" for name in ALONE] + [
    found.name
    for room in ROOMS
    for found in pkgutil.iter_modules(
        importlib.import_module(f"gcfcp.{room}").__path__, f"gcfcp.{room}."
    )
]
# The loop variable of the simplex is the one dataclass that changes, and says so.
MUTABLE = {"Walk", "Highest"}
ABSENT = ("polars", "scipy", "matplotlib", "jinja2", "typer", "rich", "cryptography", "flwr")


def dataclasses_of(module: str) -> list[type]:
    there = vars(importlib.import_module(module)).values()
    return [
        c
        for c in there
        if isinstance(c, type) and dataclasses.is_dataclass(c) and c.__module__ == module
    ]


@pytest.mark.parametrize("module", MODULES)
def test_every_dataclass_is_frozen(module):
    for value in dataclasses_of(module):
        assert value.__dataclass_params__.frozen == (value.__name__ not in MUTABLE), value


def test_there_are_dataclasses_to_look_at():
    assert sum(len(dataclasses_of(module)) for module in MODULES) > 30


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_the_core_holds_no_other_library(module):
    for name, value in vars(importlib.import_module(module)).items():
        library = getattr(value, "__name__", "").split(".")[0]
        assert not (type(value).__name__ == "module" and library in ABSENT), name


def test_rules_are_compared_by_identity():
    """Their arrays cannot be compared in one word; a copy is another rule."""
    groups = gcfcp.Groups(["all"])
    told = gcfcp.summarize(np.arange(30.0), np.ones((30, 1)), groups=groups, client="a")
    source = gcfcp.calibrate([told], 0.2).threshold_table.source
    assert isinstance(source, Simultaneous)
    assert source == source
    assert source != dataclasses.replace(source)


def test_shared_arrays_cannot_be_written():
    from gcfcp.solver.problem import _shifts

    with pytest.raises(ValueError, match="read-only"):
        _shifts(3)[0] = 1.0
