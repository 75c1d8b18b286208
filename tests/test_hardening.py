"""Summaries come from strangers: any bytes give either a GCFCPError or a valid value.

The same targets are fuzzed with coverage guidance in fuzz/. Here the seeds are replayed, and some
thousand mutations of them are tried, the same ones each time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

import gcfcp
from gcfcp import GCFCPError, codec
from gcfcp.cli import console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from fuzz import mutations, seeds, targets  # noqa: E402 (the path must be set first)

MUTATIONS = {
    "raw": 4000,
    "summary": 1200,
    "audit": 1200,
    "predictor": 500,
    "shape": 500,
    "grid": 500,
    "groups": 800,
    "table": 500,
    "sums": 500,
}


NEW_KEYS = {("sums", name) for name in ("keys", "roster", "delivery", "begin-noisy")}
"""Seeds that hold keys of the process that made them, or ask for keys that the harness lacks."""


@pytest.mark.parametrize("name", targets.TARGETS)
def test_every_seed_is_accepted_or_refused_with_a_line(name: str) -> None:
    accepted = [targets.check(name, f.read_bytes()) for f in sorted(_corpus(name))]
    assert any(accepted), "a target whose seeds are all refused tests nothing"


@pytest.mark.few(2)
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


@pytest.mark.slow
def test_the_corpus_is_not_outdated() -> None:
    """A seed of an old format would be refused at once, and would test nothing beyond that."""
    for target, named in seeds.inputs().items():
        for name, data in named.items():
            if (target, name) in NEW_KEYS:
                continue
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
    """The worst known input has 1,000 groups and many atoms, each of one centroid."""
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


# --- well-formed, and still hostile --------------------------------------------------------------

LARGEST = float(np.finfo(np.float64).max)
ATOMS = np.array(
    [[0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]], dtype=bool
)


def crafted(values: list, counts: list, membership: np.ndarray = ATOMS, **fields):
    """A summary that `summarize` would never write, but that `ClientSummary` accepts."""
    groups = gcfcp.Groups([f"g{g}" for g in range(membership.shape[1])])
    flat = np.concatenate([np.asarray(c, dtype=np.int64) for c in counts])
    n = int(flat.sum()) + fields.get("suppressed", 0) + fields.get("uncovered", 0)
    return gcfcp.ClientSummary(
        **{
            "client": "x",
            "n": n,
            "delta": 250.0,
            "representative": "upper",
            "groups": groups,
            "score": "own",
            "parameters": {},
            "model": None,
            "min_count": 1,
            "suppressed": 0,
            "suppressed_groups": (0,) * len(groups),
            "uncovered": 0,
            "members": ((fields.get("client", "x"), n),),
            "membership": membership,
            "start": np.cumsum([0, *map(len, values)]),
            "values": np.concatenate([np.asarray(v, dtype=np.float64) for v in values]),
            "counts": flat,
            "errors": np.zeros(len(membership), dtype=np.int64),
        }
        | fields
    )


def _spread(scale: float, k: int = 30) -> list:
    rng = np.random.default_rng(0)
    return [np.unique(scale * rng.normal(size=k)) for _ in ATOMS]


def _tiny() -> list:
    rng = np.random.default_rng(1)
    return [np.unique(rng.integers(1, 10**5, 30)) * 5e-324 for _ in ATOMS]


def _wide() -> list:
    rng = np.random.default_rng(2)
    return [
        np.unique(np.concatenate([v[:5], rng.random(5), 1e308 * rng.random(5)])) for v in _tiny()
    ]


def _ones(values: list) -> list:
    return [np.ones(len(v)) for v in values]


SUPPRESSED = {"suppressed": 2**40, "suppressed_groups": (2**40, 0, 5)}
HOSTILE = {
    "enormous": crafted(_spread(5e307), _ones(_spread(5e307))),
    "the ends of the line": crafted([[-LARGEST, LARGEST]] * 7, [[50, 50]] * 7),
    "denormal": crafted(_tiny(), _ones(_tiny())),
    "of every size at once": crafted(_wide(), _ones(_wide())),
    "counts near 2**53": crafted(_spread(1), [np.full(30, 2**53 // 210 - 1)] * 7),
    "one count of 2**50": crafted(_spread(1), [[2**50] + [1] * 29] * 7),
    "a large min_count": crafted(
        _spread(1), [np.full(30, 2**40)] * 7, min_count=2**40, **SUPPRESSED
    ),
    "all in no group": crafted(_spread(1), _ones(_spread(1)), uncovered=2**52),
    "half at infinity": crafted([[0.0, np.inf]] * 7, [[5, 5]] * 7),
    "all at infinity": crafted([[np.inf]] * 7, [[50]] * 7),
    "all equal": crafted([[0.5]] * 7, [[20]] * 7),
}


def test_a_summary_that_leaves_combinations_out_without_a_word_is_refused() -> None:
    """Seven of eight combinations are described, and nothing is said to be withheld."""
    hostile = crafted(_spread(1), [np.full(30, 9)] * 7, min_count=9)
    with pytest.raises(GCFCPError, match="the shape part of a holdout"):
        gcfcp.calibrate([hostile], 0.1)


def test_more_suppressed_records_than_small_cells_hold_are_refused() -> None:
    with pytest.raises(GCFCPError, match="there can be at most 0"):
        crafted(_spread(1), _ones(_spread(1)), **SUPPRESSED)
    with pytest.raises(GCFCPError, match="there can be at most 17"):  # 8 in the last atom, and 9.
        crafted(_spread(1), [np.full(30, 9)] * 7, min_count=9, **SUPPRESSED)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_summaries_give_a_valid_result_or_an_error(name: str) -> None:
    """Every rule, every way to merge and two alphas are tried, also with an honest client."""
    hostile = gcfcp.ClientSummary.from_bytes(HOSTILE[name].to_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        for choice in range(0, 256, 16):
            with contextlib.suppress(GCFCPError):
                targets.use_summary(hostile, choice)
        honest = crafted(_spread(1), _ones(_spread(1)), client="honest")
        for mixture in ("uniform", "proportional"):
            calibration = gcfcp.calibrate([honest, hostile], 0.1, mixture)
            assert not np.isnan(calibration.thresholds(ATOMS)).any()
            assert gcfcp.plan([honest, hostile], 0.1, mixture).clients
            assert calibration.influence()


@pytest.mark.parametrize("rule", ["simultaneous", "max"])
def test_a_thousand_groups_are_solved(rule: str) -> None:
    """With 1,000 groups and 80 atoms, the rank of the problem is that of the atoms."""
    rng = np.random.default_rng(0)
    membership = np.unique(rng.random((80, 1000)) < 0.05, axis=0)
    values = [np.unique(rng.normal(size=20)) for _ in membership]
    hostile = crafted(values, _ones(values), membership)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        found = gcfcp.calibrate([hostile], 0.2, rule=rule).thresholds(membership)
    assert not np.isnan(found).any()


def test_no_weights_of_clients_can_be_negative_or_infinite() -> None:
    honest = crafted(_spread(1), _ones(_spread(1)), client="honest")
    hostile = crafted(_spread(1), _ones(_spread(1)))
    for weight in (-1.0, np.inf, np.nan, "1", None):
        with pytest.raises(GCFCPError):
            gcfcp.calibrate([honest, hostile], 0.1, {"x": weight, "honest": 1.0})


# --- names ---------------------------------------------------------------------------------------

MARKUP = "<img src=x onerror=alert(1)>\"'&{{7*7}}[red]x[/red]"


def test_names_reach_a_page_as_text() -> None:
    """This holds for clients, groups, scores, models, reasons and provenance from a file."""
    from gcfcp.report import render

    groups = gcfcp.Groups([MARKUP, "b"])
    rng = np.random.default_rng(0)
    membership = np.column_stack([np.ones(60, bool), np.arange(60) < 3])
    summary = gcfcp.summarize(
        rng.random(60), membership, groups=groups, client=MARKUP, score=MARKUP, model=MARKUP
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        predictor = gcfcp.Predictor(MARKUP, gcfcp.calibrate([summary], 0.1))
        plan = gcfcp.plan([summary], 0.1)
    text = predictor.to_json().replace('"unlike": null', f'"unlike": {json.dumps(MARKUP)}')
    read = gcfcp.Predictor.from_json(text)
    audit = gcfcp.audit(
        np.ones(60, bool), membership, groups=groups, client=MARKUP, predictor=read.fingerprint
    )
    merged = gcfcp.merge_audits([audit], alpha=0.1)
    page = render(read, merged, {MARKUP: merged}, plan, MARKUP, title=MARKUP)
    assert "<img" not in page
    assert "{{7*7}}" in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


@pytest.mark.parametrize("name", ["\x1b[31m", "a\nb", "\x00", "\u2028", "\x9b", " ", "", "x" * 201])
def test_names_that_are_not_text_are_refused_in_every_file(name: str) -> None:
    for target in ("summary", "audit"):
        seed = sorted(_corpus(target))[0].read_bytes()
        flags, header, body = targets.split(seed)
        fields = codec.from_json(header) | {"client": name}
        data = targets.join(flags, json.dumps(fields).encode(), body)
        with pytest.raises(GCFCPError, match="is not a name"):
            targets.TARGETS[target](data)


def test_names_with_paths_in_them_stay_names(tmp_path: Path) -> None:
    """No file is ever written to a place that is named inside of another file."""
    name = "../../outside"
    summary = gcfcp.summarize(
        np.arange(30.0), np.ones((30, 1), bool), groups=gcfcp.Groups([name]), client=name
    )
    inner = tmp_path / "in" / "ner"
    inner.mkdir(parents=True)
    summary.save(inner / "a.gcfcp")
    gcfcp.Predictor("own", gcfcp.calibrate([_named_own(summary)], 0.1)).save(inner / "p.json")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.gcfcp", "in", "ner", "p.json"]


def _named_own(summary: gcfcp.ClientSummary) -> gcfcp.ClientSummary:
    return dataclasses.replace(summary, score="own")
