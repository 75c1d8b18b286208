"""Draw the rooms of architecture.toml and the way of the data through them: architecture.svg."""

from __future__ import annotations

import tomllib
from html import escape

from page import BLUE, DOCS, GREEN, ORANGE

WIDTH, ROOM, GAP, TALL = 520, 44, 10, 78

# The way of the data. Each step is (from this room, to that room, what passes).
WAY = [
    ("scores", "summary", "scores"),
    ("groups", "summary", "memberships"),
    ("digest", "summary", ""),
    ("summary", "calibration", "summary, as bytes"),
    ("solver", "thresholds", ""),
    ("thresholds", "calibration", ""),
    ("calibration", "prediction", "thresholds"),
    ("prediction", "audit", "sets"),
    ("audit", "report", "coverage"),
]


def main() -> None:
    """Write docs/figures/architecture.svg."""
    floors = tomllib.loads((DOCS / "figures" / "architecture.toml").read_text())["floor"]
    place: dict[str, tuple[float, float, float]] = {}
    parts: list[str] = []
    for height, floor in enumerate(floors):
        y = 8 + (len(floors) - 1 - height) * TALL
        rooms = floor["room"]
        wide = (WIDTH - GAP * (len(rooms) + 1)) / len(rooms)
        core = any("prediction" in r["modules"] for f in floors[height:] for r in f["room"])
        colour = BLUE if core else ORANGE
        for i, room in enumerate(rooms):
            x = GAP + i * (wide + GAP)
            place[room["name"]] = (x, y, wide)
            size = min(14.0, (wide - 6) / (0.68 * len(room["name"])))
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{wide:.0f}" height="{ROOM}" rx="6" '
                f'fill="{colour}" fill-opacity="0.12" stroke="{colour}"/>'
                f'<text x="{x + wide / 2:.0f}" y="{y + 19}" text-anchor="middle" '
                f'font-size="{size:.3g}" font-weight="600" fill="currentColor">'
                f"{escape(room['name'])}</text>" + _what(room, x + wide / 2, y + 35, wide)
            )
    parts += [_arrow(place, *step) for step in WAY]
    tall = 8 + len(floors) * TALL - (TALL - ROOM) + 8
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {tall}" role="img" '
        'aria-label="The rooms of gcfcp, floor by floor, and the way of the data through them">'
        '<defs><marker id="architecture-tip" viewBox="0 0 8 8" refX="7" refY="4" '
        f'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{GREEN}"/>'
        f"</marker></defs>{''.join(parts)}</svg>\n"
    )
    (DOCS / "figures" / "architecture.svg").write_text(svg)


def _what(room: dict, x: float, y: float, wide: float) -> str:
    """The names of the room's modules, if they differ from its own name and fit into the room."""
    modules = ", ".join(room["modules"])
    if modules == room["name"].lower() or 6.2 * len(modules) > wide:
        return ""
    return (
        f'<text x="{x:.0f}" y="{y}" text-anchor="middle" font-size="11" fill="currentColor" '
        f'fill-opacity="0.75">{escape(modules)}</text>'
    )


def _arrow(place: dict[str, tuple[float, float, float]], a: str, b: str, what: str) -> str:
    """An arrow from room a to room b, with what passes. On one floor it runs sideways."""
    (ax, ay, aw), (bx, by, bw) = place[a], place[b]
    if ay == by:
        ends = (ax + aw, ay + ROOM / 2, bx, by + ROOM / 2)
        if ax > bx:
            ends = (ax, ay + ROOM / 2, bx + bw, by + ROOM / 2)
    else:
        end = min(max(ax + aw / 2, bx + 8), bx + bw - 8)
        ends = (ax + aw / 2, ay, end, by + ROOM)
    x1, y1, x2, y2 = ends
    line = (
        f'<path d="M{x1:.0f} {y1:.0f}L{x2:.0f} {y2 + (2 if ay != by else 0):.0f}" '
        f'stroke="{GREEN}" stroke-width="2" fill="none" marker-end="url(#architecture-tip)"/>'
    )
    if not what:
        return line
    # What passes stands between the floors, next to the room that it leaves.
    x, y = ((x1 + x2) / 2 + 8, ay - 13) if ay != by else (x1 - 10, ay - 6)
    return line + (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="12" fill="currentColor">{escape(what)}</text>'
    )


if __name__ == "__main__":
    main()
