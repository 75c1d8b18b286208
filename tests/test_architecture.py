"""The code keeps to the rooms of docs/figures/architecture.toml, from which the diagram is drawn.

Every module has one room, imports go down, a room is entered by its door, and libraries stay in the
rooms that are named for them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "gcfcp"
PLAN = ROOT / "docs" / "figures" / "architecture.toml"

FLOORS = tomllib.loads(PLAN.read_text())["floor"]
ROOMS = [
    {"floor": height, "needs": []} | room
    for height, floor in enumerate(FLOORS)
    for room in floor["room"]
]
PACKAGE = {"__init__", ""}  # The package itself, which imports the public names from the core.
# The highest floor of the core. The rooms above it are adapters.
CORE = max(r["floor"] for r in ROOMS if "prediction" in r["modules"])
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
    for path in sorted(SOURCE.rglob("*.py"))
}


def room_of(module: str) -> dict:
    """The one room that a module belongs to."""
    found = [r for r in ROOMS if module.split(".")[0] in r["modules"]]
    assert len(found) == 1, f"{module} stands in {len(found)} rooms of {PLAN.name}: put it in one"
    return found[0]


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Every name that a file imports, and whether it is imported together with the file.

    An import inside of a function happens only when the function runs.
    """
    tree = ast.parse(path.read_text())
    at_once = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in at_once
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively: write gcfcp. in full"
            assert node.module is not None
            if node.module == "gcfcp":
                for alias in node.names:
                    inside = alias.name in MODULES or (SOURCE / alias.name).is_dir()
                    yield f"gcfcp.{alias.name}" if inside else "gcfcp", id(node) in at_once
            else:
                yield node.module, id(node) in at_once


@pytest.mark.parametrize("module", [m for m in MODULES if m not in PACKAGE])
def test_imports_go_down(module: str) -> None:
    here = room_of(module)
    for name, _ in imported(MODULES[module]):
        package, _, rest = name.partition(".")
        if package != "gcfcp":
            continue
        there = room_of(rest) if rest else {"name": "gcfcp itself", "floor": CORE}
        assert there["floor"] < here["floor"] or there["name"] == here["name"], (
            f"{module} (floor {here['floor']}, {here['name']}) imports {name} "
            f"(floor {there['floor']}, {there['name']}): imports go down, or stay in the room"
        )


@pytest.mark.parametrize("module", list(MODULES))
def test_a_room_is_entered_by_its_door(module: str) -> None:
    """A module imports from another room only what that room's package exports."""
    here = module.split(".")[0]
    for name, _ in imported(MODULES[module]):
        package, *path = name.split(".")
        if package == "gcfcp" and len(path) > 1:
            assert path[0] == here, (
                f"{module} imports {name}: import it from gcfcp.{path[0]}, which exports it"
            )


def exported(room: str) -> set[str]:
    """The names in `__all__` of a room's package."""
    for node in ast.parse((SOURCE / room / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


@pytest.mark.parametrize("module", [m for m in MODULES if m not in PACKAGE])
def test_a_door_exports_what_others_take(module: str) -> None:
    here = module.split(".")[0]
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("gcfcp."):
            continue
        room = str(node.module).split(".")[1]
        if room != here and (SOURCE / room).is_dir():
            taken = {alias.name for alias in node.names} - exported(room)
            assert not taken, f"{module} takes {taken} from {room}, whose door does not export it"


@pytest.mark.parametrize("module", list(MODULES))
def test_libraries_stay_where_they_are_named(module: str) -> None:
    allowed = {"gcfcp", "numpy", "__future__", *sys.stdlib_module_names}
    if module not in PACKAGE:
        allowed |= set(room_of(module)["needs"])
    for name, _ in imported(MODULES[module]):
        library = name.split(".")[0]
        assert library in allowed, f"{module} imports {library}, which {PLAN.name} does not name"


@pytest.mark.parametrize("module", [m for m in MODULES if m not in PACKAGE])
def test_core_imports_numpy_alone_at_once(module: str) -> None:
    if room_of(module)["floor"] > CORE:
        pytest.skip("this is an adapter, which may import its library at once")
    for name, at_once in imported(MODULES[module]):
        library = name.split(".")[0]
        if at_once and library not in sys.stdlib_module_names:
            assert library in ("gcfcp", "numpy"), f"{module} imports {library} at once"


def test_importing_the_package_loads_numpy_alone() -> None:
    heavy = sorted({library for room in ROOMS for library in room["needs"]} | {"pandas", "click"})
    code = f"import sys, gcfcp; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_room_is_there() -> None:
    present = {m.split(".")[0] for m in MODULES} - PACKAGE
    assert present == {m for room in ROOMS for m in room["modules"]}
    assert all(room["what"] for room in ROOMS)


def test_the_diagram_shows_every_room() -> None:
    drawn = (PLAN.parent / "architecture.svg").read_text()
    for room in ROOMS:
        assert f">{room['name']}<" in drawn, (
            f"{room['name']} is not drawn: python docs/measure architecture"
        )
