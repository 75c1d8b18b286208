"""The report in a real browser: it loads without help, fits, sorts, filters, and prints.

The tests need a Chromium, which `.ci/run` installs. To look at a report yourself, run
`python tests/chromium.py report.html DIR`, which takes pictures of it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chromium
import gcfcp
import samples
from gcfcp.report import render

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium.find() is None,
        reason="no Chromium on the path: apt-get install chromium, or set CHROMIUM to its binary",
    ),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    found = {}
    for name, sample in (("small", samples.small()), ("large", samples.large())):
        found[name] = folder / f"{name}.html"
        found[name].write_text(
            render(sample.predictor, sample.audit, sample.baselines, sample.plan, date="today"),
            encoding="utf-8",
        )
    found["awkward"] = folder / "awkward.html"
    found["awkward"].write_text(awkward(), encoding="utf-8")
    found["bare"] = folder / "bare.html"
    found["bare"].write_text(render(samples.small().predictor, date="today"), encoding="utf-8")
    return found


def awkward() -> str:
    """A page with the longest possible names, without a blank, with markup, and 5 baselines."""
    names = ["W" * 200, "<script>alert(1)</script>", "ß" * 100, "c"]
    groups = gcfcp.Groups(names, ["x > 0", "long_column_name_" * 20 + " > 1", "z = 'a'", "u = 1"])
    membership = np.eye(4, dtype=bool)[np.arange(400) % 4]
    scores = np.random.default_rng(0).random(400)
    client = "K" * 200
    summary = gcfcp.summarize(scores, membership, groups=groups, client=client, model="M" * 200)
    found = gcfcp.merge_audits(
        [gcfcp.audit(scores < 0.9, membership, groups=groups, client=client)], alpha=0.1
    )
    others = {f"{name}, at length": found for name in "abcde"}
    predictor = gcfcp.Predictor("s" * 100, gcfcp.calibrate([summary], alpha=0.1))
    return render(predictor, found, others, None, "gcfcp " + "--option " * 99, date="today")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def column(page: chromium.Page, table: str, index: int) -> list[str]:
    """The first line of each cell of a column, in the rows that can be seen."""
    return page.run(
        f"[...document.querySelectorAll('#{table} tbody tr')]"
        ".filter((row) => row.getClientRects().length)"
        f".map((row) => row.cells[{index}].innerText.split('\\n')[0].trim())"
    )


def luminance(png: bytes) -> float:
    return float(np.asarray(Image.open(io.BytesIO(png)).convert("L")).mean() / 255)


@pytest.mark.parametrize("name", ["small", "large", "awkward", "bare"])
@pytest.mark.parametrize("width", [390, 820, 1400])
def test_the_page_loads_alone_without_complaint_and_fits(
    pages: dict[str, Path], page: chromium.Page, name: str, width: int
) -> None:
    page.open(pages[name], width)
    assert page.complaints == []
    assert page.requests == [pages[name].resolve().as_uri()] + (
        ["data:,"] if "data:," in page.requests else []
    )
    assert page.run("document.documentElement.scrollWidth") <= width
    # Nothing is cut off either: whatever is wider than the page lies in a box that scrolls.
    outside = page.run(
        "[...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, svg') && "
        "e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert outside == []


def test_a_complaint_and_a_request_would_be_seen(page: chromium.Page, tmp_path: Path) -> None:
    """This shows that the test above is able to fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<main></main><img src='http://127.0.0.1:9/x.png'><script>nonsense()</script>"
        "<p style='width:3000px'>wide</p>"
    )
    page.open(bad, 390)
    assert any("nonsense" in c or "Uncaught" in c for c in page.complaints)
    assert "http://127.0.0.1:9/x.png" in page.requests
    assert page.run("document.documentElement.scrollWidth") > 390


def test_the_policy_lets_nothing_in(pages: dict[str, Path], page: chromium.Page) -> None:
    page.open(pages["small"], 1400)
    blocked = page.run(
        "new Promise((done) => {"
        " document.addEventListener('securitypolicyviolation', (e) => done(e.violatedDirective));"
        " document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}));"
        " setTimeout(() => done('nothing'), 3000); })"
    )
    assert blocked == "img-src"


@pytest.mark.parametrize("width", [390, 1400])
def test_the_table_sorts(pages: dict[str, Path], page: chromium.Page, width: int) -> None:
    page.open(pages["large"], width)
    head = "document.querySelectorAll('#coverage thead th')[3]"
    before = column(page, "coverage", 3)
    assert page.run(f"{head}.getAttribute('aria-sort')") == "none"

    page.run(f"{head}.querySelector('button').click()")
    assert page.run(f"{head}.getAttribute('aria-sort')") == "descending"
    down = [float(text.rstrip("%")) for text in column(page, "coverage", 3)]
    assert down == sorted(down, reverse=True)
    assert sorted(before) == sorted(column(page, "coverage", 3))

    page.run(f"{head}.querySelector('button').click()")
    assert page.run(f"{head}.getAttribute('aria-sort')") == "ascending"
    assert [float(t.rstrip("%")) for t in column(page, "coverage", 3)] == sorted(down)
    others = page.run(
        "[...document.querySelectorAll('#coverage thead th[aria-sort]')]"
        f".filter((h) => h !== {head}).map((h) => h.getAttribute('aria-sort'))"
    )
    assert set(others) == {"none"}

    page.run("document.querySelector('#coverage thead th button').click()")
    assert column(page, "coverage", 0) == sorted(column(page, "coverage", 0))


def test_infinite_thresholds_sort_as_numbers(pages: dict[str, Path], page: chromium.Page) -> None:
    page.open(pages["large"], 1400)
    page.run("document.getElementById('atoms-more').click()")
    page.run("document.querySelectorAll('#atoms thead th')[2].querySelector('button').click()")
    shown = column(page, "atoms", 2)
    values = [float("inf") if text == "∞" else float(text.replace(",", "")) for text in shown]
    assert values[0] == float("inf")
    assert values == sorted(values, reverse=True)


def test_the_keyboard_sorts_and_filters(pages: dict[str, Path], page: chromium.Page) -> None:
    page.open(pages["large"], 1400)
    page.run("document.querySelector('#coverage thead th button').focus()")
    page.press("Enter", 13, "\r")
    head = "document.querySelector('#coverage thead th')"
    assert page.run(f"{head}.getAttribute('aria-sort')") == "ascending"
    page.press("Tab", 9)
    assert page.run("document.activeElement.closest('th')?.innerText.startsWith('Verdict')")
    page.press(" ", 32, " ")
    assert column(page, "coverage", 1)[0].endswith("only by giving everything")

    page.run("document.getElementById('coverage-filter').focus()")
    page.type("INPATIENTS coast")
    assert column(page, "coverage", 0) == ["inpatients, coast"]
    assert page.run("document.querySelector('#coverage-bar output').value") == "1 of 30"
    page.run("document.getElementById('coverage-filter').select()")
    page.type("kept")
    everything = samples.large().predictor.gives_everything
    kept = [
        g.group
        for g, all_ in zip(samples.large().audit.groups, everything, strict=True)
        if g.verdict == "kept" or all_  # They are "kept, but only by giving everything".
    ]
    assert sorted(column(page, "coverage", 0)) == sorted(kept)
    assert 20 < len(kept) < 30
    page.type(" no such group")
    assert column(page, "coverage", 0) == []
    page.run(
        "{const i = document.getElementById('coverage-filter'); i.value = '';"
        " i.dispatchEvent(new Event('input'));}"
    )
    assert len(column(page, "coverage", 0)) == 30


def test_long_tables_unfold(pages: dict[str, Path], page: chromium.Page) -> None:
    page.open(pages["large"], 1400)
    all_atoms = len(samples.large().predictor.records or ())
    assert all_atoms > 90
    assert len(column(page, "atoms", 0)) == 15
    assert page.run("document.getElementById('atoms-more').innerText") == (
        f"Show all {all_atoms} combinations"
    )
    page.run("document.getElementById('atoms-more').click()")
    assert len(column(page, "atoms", 0)) == all_atoms
    assert page.run("document.getElementById('atoms-more').hidden")
    assert len(column(page, "client", 0)) == 15
    page.run("document.getElementById('client-filter').focus()")
    page.type("clinic-39")  # A row that is folded away is found all the same.
    assert column(page, "client", 0) == ["clinic-39"]


def test_labels_do_not_collide(pages: dict[str, Path], page: chromium.Page) -> None:
    """Neither the labels of 30 groups nor those of an axis do, on a phone or on a desk."""
    for width in (390, 1400):
        page.open(pages["large"], width)
        overlaps = page.run(
            "[...document.querySelectorAll('.axis')].map((axis) => {"
            " const b = [...axis.querySelectorAll('text')].map((t) => t.getBoundingClientRect())"
            "   .sort((p, q) => p.left - q.left);"
            " return b.slice(1).filter((r, i) => r.left < b[i].right).length; })"
        )
        assert overlaps
        assert set(overlaps) == {0}
        stacked = page.run(
            "{const b = [...document.querySelectorAll('#coverage tbody tr')]"
            ".map((r) => r.getBoundingClientRect()).sort((p, q) => p.top - q.top);"
            " b.slice(1).filter((r, i) => r.top < b[i].bottom - 1).length}"
        )
        assert stacked == 0


def test_marks_stand_where_the_numbers_say(pages: dict[str, Path], page: chromium.Page) -> None:
    """The place of a mark is linear in the coverage, and the promise lies below its label."""
    page.open(pages["large"], 1400)
    points = page.run(
        "[...document.querySelectorAll('#coverage tbody tr')].map((row) => {"
        " const mark = row.querySelector('.s0 use.mark').getBoundingClientRect();"
        " return [Number(row.cells[3].dataset.value), (mark.left + mark.right) / 2]; })"
    )
    coverage, x = np.array(points).T
    slope, start = np.polyfit(coverage, x, 1)
    assert slope > 0
    assert np.abs(slope * coverage + start - x).max() < 0.5
    line = page.run("document.querySelector('#coverage line.promise').getBoundingClientRect().left")
    label = page.run(
        "{const r = document.querySelector('#coverage .promised').getBoundingClientRect();"
        " (r.left + r.right) / 2}"
    )
    assert abs(slope * 0.9 + start - line) < 1
    assert abs(label - line) < 2


def contrast(page: chromium.Page, selector: str) -> float:
    """The contrast ratio, as WCAG defines it, between a text and what lies behind it."""
    colours = page.run(
        "{let e = document.querySelector(" + repr(selector) + ");"
        " const ink = getComputedStyle(e).color; let back;"
        " do { back = getComputedStyle(e).backgroundColor; e = e.parentElement; }"
        " while (e && /, 0\\)|transparent/.test(back)); [ink, back]}"
    )
    levels = []
    for colour in colours:
        rgb = np.array([float(v) for v in colour.split("(")[1].rstrip(")").split(",")[:3]]) / 255
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        levels.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(levels) + 0.05) / (min(levels) + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_both_modes_are_readable(pages: dict[str, Path], page: chromium.Page, dark: bool) -> None:
    page.open(pages["large"], 1400, dark=dark)
    picture = luminance(page.screenshot())
    assert picture < 0.25 if dark else picture > 0.8
    for selector in (
        "body",
        ".headline",
        ".facts dt",
        "#coverage thead button",
        "#coverage tbody td small",
        "#coverage .tag.good",
        "#coverage .tag.open",
        "#coverage .bad",
        ".chips li",
        ".note .soft",
    ):
        assert contrast(page, selector) >= 4.5, selector


def test_paper_shows_every_row_in_black_on_white(
    pages: dict[str, Path], page: chromium.Page
) -> None:
    page.open(pages["large"], 1400, dark=True)
    assert page.pdf().startswith(b"%PDF")
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    page.send("Emulation.setEmulatedMedia", media="print", features=[scheme])
    assert len(column(page, "atoms", 0)) == len(samples.large().predictor.records or ())
    assert len(column(page, "client", 0)) == 40
    assert not page.run("document.querySelector('.filter').getClientRects().length")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
