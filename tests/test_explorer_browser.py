"""The explorer in a real browser: it loads alone, fits, is used with the keyboard, and is exact.

The tests need a Chromium, which `.ci/run` installs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import chromium
import gcfcp
from gcfcp import Groups, Predictor, calibrate, explore, summarize
from gcfcp.report import numbers as num
from gcfcp.report import render, render_explorer
from test_report_browser import contrast, luminance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium.find() is None,
        reason="no Chromium on the path: apt-get install chromium, or set CHROMIUM to its binary",
    ),
]

EVIL = "</script><img src=x onerror=alert(1)>"
ALPHAS = (0.02, 0.05, 0.2)


def sites(groups, sizes, **options):
    """Records of everyone, and of the other groups at random, or one other group each."""
    found = []
    for k, (name, n) in enumerate(sizes.items()):
        rng = np.random.default_rng(k)
        others = len(groups) - 1
        member = rng.random((n, others)) < 0.4
        if others > 5:
            member = np.eye(others, dtype=bool)[rng.integers(0, others, n)]
        scores = rng.exponential(1 + member[:, 0])
        member = np.column_stack([np.ones(n, bool), member])
        found.append(summarize(scores, member, groups=groups, client=name, **options))
    return found


SMALL = sites(
    Groups({"all": "TRUE", "f": "sex = 'F'", "old": "age >= 65"}), {"city": 90, "isle": 12}
)
EXPLORED = {"alphas": ALPHAS, "within": None, "rule": "max"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    evil = Groups(["W" * 200, EVIL, "ß" * 100])
    made = {
        "small": SMALL,
        "forty": sites(Groups([f"group {g}" for g in range(40)]), {"city": 400, "isle": 60}),
        "thirty": sites(Groups(["all", "f", "old"]), {f"site-{k:02}": 20 + k for k in range(30)}),
        "evil": sites(evil, {EVIL: 40, "K" * 200: 40}, score=EVIL, model="M" * 200),
        "groups": sites(Groups(["all", "f", "old"]), {"city": 90, "isle": 12}, by="group"),
        "one": SMALL[:1],
    }
    folder, found = tmp_path_factory.mktemp("explorers"), {}
    for name, summaries in made.items():
        parts = (0.25, 0.5, 0.75, 1) if name == "small" else (1,)
        explored = explore(summaries, parts=parts, **EXPLORED)
        page = render_explorer(explored, EVIL, date="today", title="Title")
        found[name] = folder / f"{name}.html"
        found[name].write_text(page, encoding="utf-8")
    predictor = Predictor(SMALL[0].score, calibrate(SMALL, 0.2, rule="max"))
    found["report"] = folder / "report.html"
    found["report"].write_text(
        render(predictor, explored=explore(SMALL, 0.2, **EXPLORED), date="today"), encoding="utf-8"
    )
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def text(page: chromium.Page, name: str) -> str:
    return page.run(f"document.getElementById('explore-{name}').innerText")


def thresholds(page: chromium.Page) -> dict[str, str]:
    """What the table shows: the threshold of each combination of groups."""
    return dict(
        page.run(
            "[...document.querySelectorAll('#explore-cells tbody tr')].map((row) => "
            "[[...row.querySelectorAll('li')].map((e) => e.textContent).join(' & '),"
            " row.cells[2].textContent])"
        )
    )


def shown_thresholds(found: gcfcp.Calibration) -> dict[str, str]:
    """What the table should show."""
    return {" & ".join(r.groups): num.Cell.of(r.threshold, num.short).text for r in found.atoms}


def quiet(*arguments, **options) -> gcfcp.Calibration:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        return calibrate(*arguments, **options)


@pytest.mark.parametrize("name", ["small", "forty", "thirty", "evil", "groups", "one", "report"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_loads_alone_without_complaint_and_fits(
    pages: dict[str, Path], page: chromium.Page, name: str, width: int
) -> None:
    page.open(pages[name], width)
    for key, code in (("End", 35), ("Home", 36)):
        for slider in ("alpha", "line", "part"):
            page.run(f"document.getElementById('explore-{slider}')?.focus()")
            page.press(key, code)
        assert page.run("document.documentElement.scrollWidth") <= width
        outside = page.run(
            "[...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, svg') && "
            "e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML)"
        )
        assert outside == []
    assert page.complaints == []
    assert [url for url in page.requests if url != "data:,"] == [pages[name].resolve().as_uri()]


def test_the_keyboard_moves_the_sliders_and_every_stop_is_exact(
    pages: dict[str, Path], page: chromium.Page
) -> None:
    page.open(pages["small"], 1280)
    assert thresholds(page) == shown_thresholds(quiet(SMALL, 0.1, rule="max"))
    for _ in range(20):  # Tab comes to the first slider by itself.
        page.press("Tab", 9)
        if page.run("document.activeElement.id") == "explore-alpha":
            break
    assert page.run("document.activeElement.id") == "explore-alpha"
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.press("Home", 36)
    for alpha in sorted({*ALPHAS, 0.1}):
        found = quiet(SMALL, alpha, rule="max")
        assert text(page, "alpha-text") == f"{alpha:g}"
        assert thresholds(page) == shown_thresholds(found)
        assert text(page, "correction") == str(found.correction)
        infinite = sum(np.isinf(r.threshold) for r in found.atoms)
        assert text(page, "count") == f"{infinite} of 4"
        assert f"{infinite} of 4 combinations of groups without" in text(page, "said")
        page.press("ArrowRight", 39)
    page.press("Tab", 9)
    assert page.run("document.activeElement.id") == "explore-line"
    page.press("ArrowDown", 40)  # From "uniform" to the city alone.
    page.press("ArrowDown", 40)  # And to the isle alone.
    page.press("Tab", 9)
    assert page.run("document.activeElement.id") == "explore-part"
    explored = explore(SMALL, clients=["isle"], **EXPLORED)
    for part in (0.25, 0.5, 0.75, 1):
        page.press("ArrowRight", 39)
        stop = next(s for s in explored.stops if s.part == part and s.line.client == "isle")
        assert text(page, "part-text") == f"{100 * part:g}%"
        assert thresholds(page) == shown_thresholds(quiet(SMALL, 0.2, stop.mixture, rule="max"))
        assert page.run("document.activeElement.getAttribute('aria-valuetext')").startswith(
            f"{100 * part:g}%: "
        )
    assert text(page, "mixture") == "isle alone"
    page.press("Tab", 9)
    page.press("Enter", 13, "\r")
    assert text(page, "alpha-text") == "0.1"
    assert text(page, "part-text") == "0%"
    assert thresholds(page) == shown_thresholds(quiet(SMALL, 0.1, rule="max"))


def test_what_is_infinite_is_said_with_its_reason(
    pages: dict[str, Path], page: chromium.Page
) -> None:
    page.open(pages["small"], 1280)
    page.run("document.getElementById('explore-alpha').focus()")
    page.press("Home", 36)
    found = quiet(SMALL, 0.02, rule="max")
    reasons = {r.reason for r in found.atoms if r.reason is not None}
    assert reasons
    for reason in reasons:
        assert reason[1:] in text(page, "reasons")
    assert page.run("document.querySelectorAll('#explore-reasons .note').length") == len(reasons)
    signs = page.run(
        "[...document.querySelectorAll('#explore-cells .infinite')]"
        ".filter((e) => e.getAttribute('visibility') === 'visible').map((e) => e.textContent)"
    )
    assert signs == ["∞"] * sum(np.isinf(r.threshold) for r in found.atoms)
    live = page.run("document.getElementById('explore-said').getAttribute('aria-live')")
    assert live == "polite"


def test_a_line_with_fewer_stops_keeps_the_way(tmp_path: Path, page: chromium.Page) -> None:
    explored = explore(SMALL, 0.1, alphas=(), parts=(0.5, 1), within=None, rule="max")
    cut = [s for s in explored.stops if not (s.part == 0.5 and s.line.client == "isle")]
    columns = tuple(c for c, s in zip(explored.settings, explored.stops, strict=True) if s in cut)
    object.__setattr__(explored, "stops", tuple(cut))
    object.__setattr__(explored, "settings", columns)
    file = tmp_path / "cut.html"
    file.write_text(render_explorer(explored), encoding="utf-8")
    page.open(file, 1280)
    page.run("document.getElementById('explore-part').focus()")
    page.press("ArrowRight", 39)
    assert text(page, "part-text") == "50%"
    page.run("document.getElementById('explore-line').focus()")
    page.press("End", 35)
    assert text(page, "mixture") == "in proportion to the records"
    assert text(page, "part-text") == "0%"
    assert page.run("document.getElementById('explore-part').max") == "1"
    page.press("Home", 36)
    assert text(page, "part-text") == "50%"


def test_long_tables_fold_and_rows_are_found(pages: dict[str, Path], page: chromium.Page) -> None:
    page.open(pages["forty"], 390)
    rows = (
        "[...document.querySelectorAll('#explore-cells tbody tr')]"
        ".filter((row) => row.getClientRects().length).length"
    )
    assert page.run(rows) == 15
    page.run("document.getElementById('explore-cells-more').click()")
    assert page.run(rows) == 39
    page.run("document.getElementById('explore-cells-filter').focus()")
    page.type("group 17")
    assert page.run(rows) == 1
    page.run("document.getElementById('explore-cells-filter').select()")
    page.type("infinite")
    assert page.run(rows) == int(text(page, "count").split(" ")[0])
    page.run("document.getElementById('explore-alpha').focus()")
    page.press("Home", 36)  # The rows that are found follow the slider.
    assert page.run(rows) == int(text(page, "count").split(" ")[0]) == 39


def test_no_name_is_run_or_becomes_markup(pages: dict[str, Path], page: chromium.Page) -> None:
    """An attack; a browser that ran it would show a dialog, request x, and have an image."""
    page.open(pages["evil"], 1280)
    assert page.run("document.querySelectorAll('img, iframe').length") == 0
    assert EVIL in page.run("document.querySelector('#explore-groups').textContent")
    assert EVIL in page.run("[...document.querySelectorAll('option')].map((o) => o.text).join()")
    assert not [url for url in page.requests if url.endswith("/x")]


def test_the_policy_lets_nothing_in(pages: dict[str, Path], page: chromium.Page) -> None:
    for name in ("small", "report"):
        page.open(pages[name], 1280)
        blocked = page.run(
            "new Promise((done) => { document.addEventListener('securitypolicyviolation', "
            "(e) => done(e.violatedDirective)); const s = document.createElement('script');"
            " s.textContent = 'window.ran = true'; document.body.append(s);"
            " setTimeout(() => done('nothing'), 3000); })"
        )
        assert blocked.startswith("script-src")
        assert page.run("window.ran === undefined")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_both_modes_are_readable(
    pages: dict[str, Path], page: chromium.Page, dark: bool, width: int
) -> None:
    page.open(pages["small"], width, dark=dark)
    page.run("document.getElementById('explore-alpha').focus()")
    page.press("Home", 36)
    picture = luminance(page.screenshot())
    assert picture < 0.25 if dark else picture > 0.8
    for selector in (
        *(".choice p", ".control label", ".control output", ".control select", ".control button"),
        *("#explore-said", ".facts dd", ".facts dt", "#explore-shares", "#explore-command"),
        *("#explore-cells td.num", "#explore-groups td small", "#explore-reasons .soft"),
    ):
        assert contrast(page, selector) >= 4.5, selector


def test_every_control_has_a_name(pages: dict[str, Path], page: chromium.Page) -> None:
    page.open(pages["small"], 1280)
    unnamed = page.run(
        "[...document.querySelectorAll('input, select, button')].filter((e) => "
        "!(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label')))"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
