"""What a predictor's file tells: enough to predict to the last bit, and nothing of single sites.

The attacks are tried on a file with the coreset too, where they succeed: otherwise they would show
nothing.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import GCFCPError, Groups, Predictor
from gcfcp.groups import possible_rows
from gcfcp.prediction.provenance import public_part
from gcfcp.thresholds import SeenOnly, ThresholdTable, every

FILES = Path(__file__).parent / "data" / "0.1.0"


def federation(seed=0, sizes=(97, 150, 211), groups=None, min_count=1, rare=0.15, **options):
    """The summaries of some sites whose records fall into overlapping groups."""
    rng = np.random.default_rng(seed)
    groups = groups or Groups({"all": "TRUE", "old": "age > 65", "rare": "code = 7"})
    told = []
    for k, n in enumerate(sizes):
        u = rng.random((n, len(groups)))
        membership = u < np.array([1.0, 0.4, rare, *[0.5] * (len(groups) - 3)])[: len(groups)]
        membership[:, 0] = True
        scores = rng.exponential(1 + membership.sum(axis=1))
        told.append(
            gcfcp.summarize(
                scores, membership, groups=groups, client=f"site-{k}", score="own",
                min_count=min_count, **options,
            )
        )  # fmt: skip
    return told


def calibrated(told, alpha=0.1, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        return gcfcp.calibrate(told, alpha, **options)


# --- The attacks ----------------------------------------------------------------------------------


def rates_of(text):
    """What a record of each site weighs, from the names, sizes and shares that every file has."""
    clients = json.loads(text)["provenance"]["clients"]
    return {c["client"]: Fraction(c["share"]) / c["n"] for c in clients}


def attributed(text):
    """Which site each pooled value is from: its weight is a multiple of one site's rate only.

    Returns pairs of a value and a site.
    """
    coreset = json.loads(text).get("coreset")
    if coreset is None:
        return []
    rates = rates_of(text)
    least = min(rates.values())
    unit = min(w for atom in coreset["atoms"] for w in atom["weights"])
    found = []
    for atom in coreset["atoms"]:
        for value, weight in zip(atom["values"], atom["weights"], strict=True):
            fits = [
                site
                for site, rate in rates.items()
                if abs((ratio := weight / unit / float(rate / least)) - round(ratio)) < 1e-9
                and round(ratio) == 1
            ]
            if len(fits) == 1:
                found.append((value, fits[0]))
    return found


def counts_of_sites(text):
    """The records of each of two sites in each cell and group, from the sums that a file tells.

    With c = n_1 + n_2 records of the weight w = r_1 n_1 + r_2 n_2, both numbers follow.
    """
    read = json.loads(text)
    (_, r1), (_, r2) = sorted(rates_of(text).items())
    sums = [(tuple(e["groups"]), e.get("count"), e.get("weight")) for e in read["table"]]
    sums += [
        (g["group"], g.get("records"), g.get("weight")) for g in read["provenance"]["guarantee"]
    ]
    found = {}
    for cell, count, weight in sums:
        if count is not None and weight is not None:
            first = (weight - float(r2) * count) / float(r1 - r2)
            found[cell] = (round(first), count - round(first))
    return found


def numbers_of_records(text):
    """Numbers of records that sentences in the file quote."""
    found = re.findall(r"([0-9,]+) (?:more )?(?:records?\b|suppressed|for alpha)", text)
    return {int(n.replace(",", "")) for n in found}


def test_values_cannot_be_attributed_to_sites_because_there_are_none():
    """Fails on 0.1.0, whose file has the coreset: most values are then attributed, all rightly."""
    told = federation(delta=5000)
    predictor = Predictor("own", calibrated(told, mixture="uniform"))
    known = {(float(v), s.client) for s in told for v in s.values}
    stolen = attributed(predictor.to_json(coreset=True))
    assert len(stolen) > 0.9 * len(known)
    assert set(stolen) <= known
    assert attributed(predictor.to_json()) == []
    # Nor does the file hold the values somewhere else: only thresholds may be among them.
    numbers = set(_numbers(json.loads(predictor.to_json())))
    listed = {entry["threshold"] for entry in json.loads(predictor.to_json())["table"]}
    assert numbers & {v for v, _ in known} <= listed


def _numbers(value):
    """All numbers in a JSON value."""
    if isinstance(value, dict):
        return itertools.chain.from_iterable(map(_numbers, value.values()))
    if isinstance(value, list):
        return itertools.chain.from_iterable(map(_numbers, value))
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


@pytest.mark.parametrize("by", ["atom", "group"])
def test_the_counts_of_a_site_do_not_follow_from_the_file(by):
    """Fails on 0.1.0, also with --no-coreset: counts and weights by atom gave each site's."""
    told = federation(sizes=(97, 211), rare=0.03, by=by)
    predictor = Predictor("own", calibrated(told, mixture="uniform"))
    truth = {}
    for row in told[0].membership:
        names = told[0].groups.names_of(row)
        at = [np.flatnonzero((s.membership == row).all(axis=1)) for s in told]
        truth[names] = tuple(
            int(s.atom_counts[i].sum()) if len(i) else 0 for s, i in zip(told, at, strict=True)
        )
    stolen = counts_of_sites(predictor.to_json(coreset=True))
    assert {cell: stolen[cell] for cell in truth} == truth
    assert counts_of_sites(predictor.to_json()) == {}
    again = Predictor.from_json(predictor.to_json(coreset=True))  # Nor from a file made of a file.
    assert counts_of_sites(again.to_json()) == {}


def test_reasons_quote_no_counts():
    """Fails on 0.1.0, whose reasons say how many records a group has and lacks."""
    told = federation(sizes=(60, 90), rare=0.05, min_count=4)
    predictor = Predictor("own", calibrated(told))
    assert any(math.isinf(a.threshold) for a in predictor.atoms)
    assert numbers_of_records(predictor.to_json(coreset=True))
    text = predictor.to_json()
    assert "has too few records for alpha=0.1" in text
    assert numbers_of_records(text) == set()
    again = Predictor.from_json(predictor.to_json(coreset=True))
    assert numbers_of_records(again.to_json()) == set()
    assert {r.reason for r in again.atoms} - {None}


def told_by(text):
    """What a file says beside thresholds, shapes and fingerprints of summaries."""
    read = json.loads(text)
    for entry in read["table"]:
        del entry["threshold"]
    del read["group_thresholds"], read["next_shape"]
    for client in read["provenance"]["clients"]:
        del client["sha256"]
    for sent in ("bytes_sent", "values_sent"):
        del read["provenance"][sent]
    for promise in read["provenance"]["guarantee"]:
        del promise["upper"]
    # What the test point weighs is one of some steps (1.125, 1.25, 1.5 records of a site, ...).
    for weight in ("records", "least_records"):
        del read["provenance"]["correction"][weight]
    del read["provenance"]["test_weight"]
    return read


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.sampled_from(["simultaneous", "max"]))
def test_federations_that_differ_in_counts_alone_have_the_same_file(first, second, rule):
    """Whatever the counts by atom and the scores are, the rest of the file is the same.

    Names, sizes and settings are those of both. The bounds at most, which are rounded, and the
    sums of bytes and values are looked at in other tests.
    """
    made = [
        Predictor("own", calibrated(federation(seed, rare=0.4), 0.2, mixture="uniform", rule=rule))
        for seed in (first, second)
    ]
    counts = [[a.count for a in p.atoms] for p in made]
    assert counts[0] != counts[1] or first == second
    assert told_by(made[0].to_json()) == told_by(made[1].to_json())


def test_an_upper_bound_does_not_tell_a_small_count():
    """It is 1 for small groups, and two decimals for others; it was a formula of the count."""
    uppers, exact = set(), set()
    for count in range(1, 30):
        rng = np.random.default_rng(0)
        membership = np.column_stack([np.ones(2000, bool), np.arange(2000) < count])
        told = gcfcp.summarize(
            rng.random(2000), membership, groups=Groups(["all", "rare"]), client="a", score="own",
            delta=30_000,
        )  # fmt: skip
        calibration = calibrated([told])
        exact.add(calibration.guarantee[1].upper)
        predictor = Predictor("own", calibration)
        uppers.add(json.loads(predictor.to_json())["provenance"]["guarantee"][1]["upper"])
    assert uppers == {1.0}
    bounds = json.loads(predictor.to_json())["provenance"]["guarantee"]
    assert all(round(g["upper"], 2) == g["upper"] for g in bounds)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0.001, 0.999), st.booleans())
def test_rounded_bounds_promise_no_more(lower, certified, upper, alpha, plain):
    """A promise is rounded down, a limit up, once and for all; 1 - alpha itself is kept."""
    if plain:
        certified = 1 - alpha
    given = {"group": "g", "lower": lower, "certified": certified, "upper": upper, "records": 7}
    once = public_part({"alpha": alpha, "guarantee": [given], "clients": []})
    (g,) = once["guarantee"]
    assert g["lower"] <= lower
    assert g["certified"] <= certified
    assert g["upper"] >= upper
    assert lower - g["lower"] <= 0.001
    assert g["upper"] - upper <= 0.01
    assert not plain or g["certified"] == 1 - alpha
    assert "records" not in g
    assert public_part(once) == once


# --- Exact to the last bit ------------------------------------------------------------------------


@st.composite
def families(draw):
    """Families of up to four groups, with conditions or names, and with or without sites."""
    others = draw(st.integers(1, 4))
    names = [f"g{i}" for i in range(others)]
    conditions = [draw(st.sampled_from(["TRUE", f"x > {i}"])) for i in range(others)]
    sites = [f"site-{k}" for k in range(draw(st.sampled_from([0, 0, 2])))]
    named = draw(st.booleans())
    return Groups(names, None if named else conditions, sites=sites)


def brute_force(groups):
    """All rows that can occur, by trying all rows."""
    found = []
    for row in itertools.product((False, True), repeat=len(groups)):
        sites = sum(row[len(groups.others) :])
        everyone = all(inside for inside, e in zip(row, groups.everyone, strict=True) if e)
        if any(row) and everyone and sites <= 1:
            found.append(row)
    return np.array(found, dtype=bool)


@given(families())
def test_the_possible_rows_are_all_rows_that_can_occur(groups):
    rows = possible_rows(groups, 1024)
    expected = brute_force(groups)
    assert np.array_equal(rows, expected)
    assert possible_rows(groups, len(expected)) is not None
    assert possible_rows(groups, len(expected) - 1) is None


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    families(),
    st.integers(0, 2**32),
    st.sampled_from([0.1, 0.3, 0.5]),
    st.sampled_from(["proportional", "uniform"]),
    st.sampled_from([1, 4]),
    st.sampled_from(["simultaneous", "max"]),
    st.sampled_from(["sharp", "paper"]),
)
def test_a_default_file_predicts_as_the_predictor_in_memory(
    groups, seed, alpha, mixture, min_count, rule, correction
):
    """For every combination of groups that can occur, to the last bit, seen or not."""
    rng = np.random.default_rng(seed)
    everyone = groups.everyone[: len(groups.others)]
    seen = rng.random((4, len(groups.others))) < 0.6  # Few combinations, so that some are unseen.
    told = []
    for k in range(2):
        membership = seen[rng.integers(len(seen), size=60)] | everyone
        membership[:, 0] |= ~membership.any(axis=1)
        told.append(
            gcfcp.summarize(
                np.round(rng.exponential(size=60), 2), membership, groups=groups,
                client=f"site-{k}", score="own", min_count=min_count, delta=20,
            )
        )  # fmt: skip
    try:
        calibration = calibrated(told, alpha, mixture=mixture, rule=rule, correction=correction)
    except GCFCPError:
        return
    predictor = Predictor("own", calibration)
    loaded = Predictor.from_json(predictor.to_json())
    rows = brute_force(groups)
    assert loaded.thresholds(rows).tobytes() == predictor.thresholds(rows).tobytes()
    assert loaded.to_json() == predictor.to_json()
    reasons = {r.groups: r.reason for r in loaded.atoms}
    for row, threshold in zip(rows, loaded.thresholds(rows).tolist(), strict=True):
        assert (reasons[groups.names_of(row)] is not None) == math.isinf(threshold)
    kept = Predictor.from_json(predictor.to_json(coreset=True))
    assert kept.thresholds(rows).tobytes() == predictor.thresholds(rows).tobytes()
    again = Predictor.from_json(kept.to_json())
    assert again.thresholds(rows).tobytes() == predictor.thresholds(rows).tobytes()


def test_seen_and_unseen_combinations_look_alike():
    told = federation(sizes=(60, 80), rare=0.0)
    predictor = Predictor("own", calibrated(told))
    read = json.loads(predictor.to_json())
    assert len(predictor.atoms) == 2
    assert [set(entry) - {"reason"} for entry in read["table"]] == [{"groups", "threshold"}] * 4
    with pytest.raises(GCFCPError, match=r"cannot occur.*correct its membership"):
        Predictor.from_json(predictor.to_json()).thresholds([[0, 1, 0]])  # It is not in "all".


@pytest.mark.parametrize("limit", ["MOST_COMBINATIONS", "_MOST_EFFORT", "_MOST_SUBSETS"])
def test_beyond_a_limit_the_file_has_what_was_seen(limit, monkeypatch, tmp_path):
    predictor = Predictor("own", calibrated(federation(rare=0.0)))
    whole = len(json.loads(predictor.to_json())["table"])
    monkeypatch.setattr(every, limit, 1)
    predictor.save(tmp_path / "p.json")
    loaded = Predictor.load(tmp_path / "p.json")
    assert json.loads(predictor.to_json())["covers"] == "seen"
    assert len(loaded.atoms) == len(predictor.atoms) < whole
    seen = predictor.table.membership
    assert loaded.thresholds(seen).tobytes() == predictor.thresholds(seen).tobytes()
    with pytest.raises(GCFCPError, match="make the predictor with gcfcp calibrate --with-coreset"):
        loaded.thresholds([[1, 0, 1]])
    assert loaded.disclosure.covers == "the combinations of groups seen"
    assert loaded.to_json() == predictor.to_json()


def test_beyond_the_limit_the_rule_max_still_knows_every_row():
    groups = Groups([f"g{i:02d}" for i in range(40)])
    rng = np.random.default_rng(0)
    membership = rng.random((500, 40)) < 0.3
    membership[:, 0] = True
    told = gcfcp.summarize(rng.random(500), membership, groups=groups, client="a", score="own")
    predictor = Predictor("own", calibrated([told], rule="max"))
    loaded = Predictor.from_json(predictor.to_json())
    assert [a.groups for a in loaded.atoms] == [(name,) for name in groups.names]
    rows = rng.random((200, 40)) < 0.4
    rows[:, 0] = True
    assert loaded.thresholds(rows).tobytes() == predictor.thresholds(rows).tobytes()
    assert loaded.to_json() == predictor.to_json()


@pytest.mark.parametrize("name", ["simultaneous", "max", "recompressed"])
def test_an_old_predictor_can_be_saved_without_its_coreset(name):
    old = Predictor.load(FILES / f"predictor-{name}.json")
    new = Predictor.from_json(old.to_json())
    rows = brute_force(old.groups)
    assert new.thresholds(rows).tobytes() == old.thresholds(rows).tobytes()
    assert new.disclosure.minimal
    assert not old.disclosure.minimal


# --- What it says of itself -----------------------------------------------------------------------


def test_a_predictor_says_what_it_tells():
    told = federation()
    predictor = Predictor("own", calibrated(told))
    public = predictor.disclosure
    assert public.minimal
    assert public == Predictor.from_json(predictor.to_json()).disclosure
    assert (public.pooled_values, public.counted_cells, public.counted_groups) == (0, 0, 0)
    assert public.clients == ("site-0", "site-1", "site-2")
    assert public.thresholds == 4
    assert public.shape_numbers == 3
    whole = Predictor.from_json(predictor.to_json(coreset=True)).disclosure
    assert not whole.minimal
    assert whole.pooled_values == len(calibrated(told).coreset.values)
    assert whole.pooled_from == public.clients
    assert (whole.counted_cells, whole.counted_groups, whole.detailed_clients) == (4, 3, 3)
    assert "values of clients: none" in str(public)
    assert "the weights tell which client a value is from" in str(whole)


def test_what_a_stranger_adds_to_the_provenance_is_named():
    read = json.loads(Predictor("own", calibrated(federation())).to_json())
    read["provenance"]["scores of site-0"] = [0.1, 0.2]
    read["provenance"]["clients"][0]["suppressed"] = 3
    told = Predictor.from_json(json.dumps(read)).disclosure
    assert not told.minimal
    assert told.other == ("scores of site-0",)
    assert told.detailed_clients == 1


# --- Memory and time ------------------------------------------------------------------------------

_LOAD = """
import sys, time
import gcfcp
data = open(sys.argv[1], "rb").read()
gcfcp.Predictor.from_json(open(sys.argv[2], "rb").read())  # Everything is imported.
def peak():
    return 1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
before = peak()
try:
    gcfcp.Predictor.from_json(data)
    print(peak() - before, "read")
except gcfcp.GCFCPError as error:
    print(peak() - before, error)
"""


def _base(groups, **entries):
    return {
        "format": "gcfcp predictor", "version": 1, "score": {"name": "own", "parameters": {}},
        "groups": groups.to_dict(), "alpha": "1/10", "rule": "simultaneous",
        "table": [{"groups": [groups.names[0]], "threshold": 1}], "group_thresholds": None,
        "coreset": None, "hopeless": None, "provenance": {},
    } | entries  # fmt: skip


def _combinations(rows, groups, names):
    """So many different sets of three names."""
    chosen = itertools.islice(itertools.combinations(range(groups), 3), rows)
    return [{"groups": [names[i] for i in three], "threshold": 1} for three in chosen]


def _matrix(groups, size):
    """Many atoms of many groups: the file of the issue has 4.4 MB and took 1.1 GB."""
    names = [f"{i:x}" for i in range(groups)]
    return _base(Groups(names), table=_combinations(size // 46, groups, names))


def _filled(piece, size):
    """A provenance that is one list of such a piece."""
    text = json.dumps(_base(Groups(["a"])), separators=(",", ":"))
    pieces = ",".join([piece] * (size // (len(piece.encode()) + 1)))
    return text.replace('"provenance":{}', f'"provenance":{{"x":[{pieces}]}}')


def _keys(size):
    text = json.dumps(_base(Groups(["a"])), separators=(",", ":"))
    pieces = ",".join(f'"{i:05x}":[]  ' for i in range(size // 12))
    return text.replace('"provenance":{}', f'"provenance":{{"x":{{{pieces}}}}}')


SIZE = 2_000_000
BOMBS = {
    "matrix": lambda: _matrix(2_000, SIZE),
    "matrix that is just allowed": lambda: _matrix(290, SIZE),
    "coreset": lambda: _base(
        Groups(["a"]),
        coreset={
            "test": 1,
            "carriers": None,
            "atoms": [
                {
                    "groups": ["a"],
                    "values": list(range(1000, 1000 + SIZE // 12)),
                    "weights": [999] * (SIZE // 12),
                }
            ],
        },
    ),
    "objects": lambda: _filled('{"a":1}    ', SIZE),
    "dense objects": lambda: _filled("{}", SIZE),
    "names": lambda: _keys(SIZE),
    "texts": lambda: _filled('"ab"', SIZE),
    "wide texts": lambda: _filled('"\u0101"', SIZE),
    "numbers": lambda: _filled("999", SIZE),
}


@pytest.mark.few(1)
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("kind", BOMBS)
def test_reading_takes_a_small_multiple_of_the_file(kind, tmp_path):
    """Fails on 0.1.0 for the matrix, which took 250 times as much as its file."""
    from gcfcp.prediction.file import MOST_MEMORY

    made = BOMBS[kind]()
    text = made if isinstance(made, str) else json.dumps(made, separators=(",", ":"))
    (tmp_path / "bomb.json").write_text(text)
    small = Predictor("own", calibrated(federation())).to_json(coreset=True)
    (tmp_path / "small.json").write_text(small)
    run = subprocess.run(
        [sys.executable, "-c", _LOAD, tmp_path / "bomb.json", tmp_path / "small.json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    peak, outcome = run.stdout.split(" ", 1)
    assert int(peak) < MOST_MEMORY * len(text.encode()) + 4_000_000
    assert ("read" in outcome) == (kind not in ("matrix", "dense objects"))
    assert len(outcome.splitlines()) == 1


def _seen_only(groups, membership):
    rng = np.random.default_rng(0)
    rows = np.unique(membership, axis=0)
    rows = rows[rows.any(axis=1)]
    return ThresholdTable(groups, Fraction(1, 10), rows, rng.random(len(rows)), SeenOnly())


@pytest.mark.slow
def test_large_predictors_are_read():
    """2,000 atoms of 64 groups, and 1,000 sites that are groups."""
    rng = np.random.default_rng(0)
    wide = _seen_only(Groups([f"g{i}" for i in range(64)]), rng.random((2000, 64)) < 0.1)
    sites = np.hstack([rng.random((4000, 3)) < 0.5, np.repeat(np.eye(1000, dtype=bool), 4, axis=0)])
    many = _seen_only(Groups(["a", "b", "c"], sites=[f"site {k}" for k in range(1000)]), sites)
    for table in (wide, many):
        loaded = Predictor.from_json(Predictor("own", table).to_json())
        found = loaded.thresholds(table.membership)
        assert found.tobytes() == table.thresholds_by_atom.tobytes()


@pytest.mark.slow
def test_a_thousand_groups_by_group_are_read():
    rng = np.random.default_rng(0)
    groups = Groups([f"g{i}" for i in range(1000)])
    membership = rng.random((3000, 1000)) < 0.02
    membership[:, 0] = True
    told = gcfcp.summarize(
        rng.random(3000), membership, groups=groups, client="a", score="own", by="group"
    )
    predictor = Predictor("own", calibrated([told], 0.2))
    for coreset in (False, True):
        loaded = Predictor.from_json(predictor.to_json(coreset=coreset))
        assert np.array_equal(loaded.thresholds(membership), predictor.thresholds(membership))
