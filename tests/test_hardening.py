"""Summaries come from strangers: whatever the bytes, GCFCPError or a valid value comes out.

The same targets are fuzzed with coverage guidance in fuzz/; here the seeds are replayed and some
thousand mutations of them are tried, the same ones each time.
"""

from __future__ import annotations

import random
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import gcfcp
from gcfcp import GCFCPError, codec, console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from fuzz import mutations, seeds, targets  # noqa: E402 (the path comes first)

MUTATIONS = {
    "raw": 4000,
    "summary": 1200,
    "audit": 1200,
    "predictor": 500,
    "groups": 800,
    "table": 500,
}


@pytest.mark.parametrize("name", targets.TARGETS)
def test_every_seed_is_accepted_or_refused_with_a_line(name: str) -> None:
    accepted = [targets.check(name, f.read_bytes()) for f in sorted(_corpus(name))]
    assert any(accepted), "a target whose seeds are all refused tests nothing"


@pytest.mark.parametrize("name", targets.TARGETS)
def test_mutations_are_accepted_or_refused_with_a_line(name: str) -> None:
    chance = random.Random(7)
    inputs = [f.read_bytes() for f in sorted(_corpus(name))]
    outcomes = [
        targets.check(name, mutations.mutate(name, chance.choice(inputs), chance))
        for _ in range(MUTATIONS[name])
    ]
    assert any(outcomes)
    assert not all(outcomes)


def _corpus(name: str) -> list[Path]:
    return [f for f in (ROOT / "fuzz" / "corpus" / name).iterdir() if f.is_file()]


def test_the_corpus_is_not_outdated() -> None:
    """Seeds that are refused because a format moved on would test its first line only."""
    for target, named in seeds.inputs().items():
        for name, data in named.items():
            kept = _seed(target, name)
            assert targets.check(target, kept) == targets.check(target, data), (target, name)


def test_a_harness_that_meets_a_defect_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (ROOT / "fuzz" / "corpus" / "summary" / "upper").read_bytes()
    monkeypatch.setattr(gcfcp.ClientSummary, "from_bytes", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        targets.check("summary", data)


# --- bombs -------------------------------------------------------------------------------------

DEEP = [b'{"a":' * n + b"1" + b"}" * n for n in (40, 400, 900, 100_000)] + [b"[" * 1_000_000]


@pytest.mark.parametrize("text", DEEP, ids=lambda t: str(len(t)))
def test_deep_json_is_refused_everywhere(text: bytes) -> None:
    for target in ("summary", "audit"):
        assert not targets.check(target, targets.join(0, text, b""))
    assert not targets.check("predictor", text)


def test_deep_json_within_a_valid_predictor_is_refused() -> None:
    predictor = (ROOT / "fuzz" / "corpus" / "predictor" / "upper").read_text()
    for depth in (40, 300, 900):
        nested = "[" * depth + "]" * depth
        text = predictor.replace('"provenance": {', f'"provenance": {{"x": {nested},')
        with pytest.raises(GCFCPError, match="not JSON"):
            gcfcp.Predictor.from_json(text)
    assert gcfcp.Predictor.from_json(
        predictor.replace('"provenance": {', '"provenance": {"x": [[[[]]]],')
    )


@pytest.mark.parametrize("bracket", ["[", "{a=", "a."])
def test_deep_groups_files_are_refused(bracket: str) -> None:
    with pytest.raises(GCFCPError):
        gcfcp.Groups.from_toml_text("a = " + bracket * 5000)


@pytest.mark.parametrize(
    "declared", [{"atoms": 2**40}, {"centroids": 2**40}, {"n": 2**52}, {"width": 8}]
)
def test_what_is_declared_takes_no_memory(declared: dict[str, int]) -> None:
    _, header, body = targets.split(_seed("summary", "upper"))
    fields = codec.from_json(header) | declared
    data = codec.pack(b"S", 1, fields, body)
    assert _peak(lambda: gcfcp.ClientSummary.from_bytes(data)) < 100_000


def test_memory_is_a_small_multiple_of_the_input() -> None:
    """The worst we know: 1,000 groups, many atoms of one centroid each."""
    rng = np.random.default_rng(0)
    groups = gcfcp.Groups([f"g{i}" for i in range(1000)])
    membership = rng.random((2000, 1000)) < 0.5
    summary = gcfcp.summarize(rng.random(2000), membership, groups=groups, client="a")
    data = summary.to_bytes()
    assert _peak(lambda: gcfcp.ClientSummary.from_bytes(data)) < 16 * len(data)
    small = gcfcp.summarize(rng.random(2000), _covering(membership), groups=_three(), client="a")
    text = gcfcp.Predictor("x", gcfcp.calibrate([small], 0.2)).to_json().encode()
    assert _peak(lambda: gcfcp.Predictor.from_json(text)) < 20 * len(text)


def _covering(membership: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(membership), bool), membership[:, :2]])


def _three() -> gcfcp.Groups:
    return gcfcp.Groups({"a": "TRUE", "b": "x > 1", "c": "x > 2"})


def _peak(action) -> int:
    tracemalloc.start()
    try:
        action()
    except GCFCPError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def _seed(target: str, name: str) -> bytes:
    return (ROOT / "fuzz" / "corpus" / target / name).read_bytes()


# --- a terminal and its reader -------------------------------------------------------------------

NASTY = ["\x1b[31mred", "\x9b2J", "[bold]x[/bold]", "<script>", "../../x", "a\rb", "\u202egnp"]


@pytest.mark.parametrize("name", NASTY)
def test_names_reach_the_terminal_as_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    console.lines(name)
    console.table(["name"], [[name]])
    console.note(name)
    console.show_json({name: [name, "\x7f"]})
    captured = capsys.readouterr()
    for shown in (captured.out, captured.err):
        assert all(c.isprintable() or c == "\n" for c in shown)
    for literal in ("[bold]x[/bold]", "<script>", "../../x"):
        assert name != literal or captured.out.count(literal) == 4


def test_json_with_control_characters_is_still_the_same_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {"a\x9b": "\x7f\u202e\U0001f600 \u00e9"}
    console.show_json(value)
    assert codec.from_json(capsys.readouterr().out) == value
