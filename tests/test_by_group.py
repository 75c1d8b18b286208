"""Summaries by group, from scores to prediction: against by-atom summaries and plain quantiles."""

from __future__ import annotations

import itertools
import json
import math
import struct
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import GCFCPError, Groups, Shape, tables
from gcfcp.calibration import screen
from gcfcp.summary import Making
from gcfcp.tables import summaries as streaming

THREE = Groups(["a", "b", "c"])
EXACT = 1e6  # A delta at which nothing is compressed.


def site(n, seed, grain=None, groups=3):
    rng = np.random.default_rng(seed)
    member = rng.random((n, groups)) < 0.5
    member[~member.any(axis=1), 0] = True
    scores = rng.normal(size=n) + member @ np.arange(groups)
    return (scores if grain is None else np.rint(scores / grain) * grain), member


def summarised(sizes, seed=0, grain=None, groups=THREE, **options):
    options = {"delta": EXACT} | options
    return [
        gcfcp.summarize(
            *site(n, 100 * seed + k, grain, len(groups)), groups=groups, client=f"c{k}", **options
        )
        for k, n in enumerate(sizes)
    ]


def by_the_book(parts, alpha, shape, weights, charge):
    """The levels by theorem 1, from the records: inf{t : Z(t) >= c} for each group.

    weights: The weight of a record of each client. charge: The weight of the test point.
    """
    levels = []
    for g in range(parts[0][1].shape[1]):
        pairs = [
            (float(r), w)
            for (scores, member), w in zip(parts, weights, strict=True)
            for r in (scores - shape.of(member))[member[:, g]]
        ]
        total = sum((w for _, w in pairs), Fraction(0))
        need, seen, level = (1 - alpha) * (total + charge), Fraction(0), math.inf
        for value, group in itertools.groupby(sorted(pairs), key=lambda p: p[0]):
            seen += sum((w for _, w in group), Fraction(0))
            if seen >= need:
                level = value
                break
        levels.append(level)
    return levels


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    seed=st.integers(0, 999),
    grain=st.sampled_from([None, 0.5, 0.01]),
    beta=st.tuples(*[st.integers(-300, 300).map(lambda k: k / 100)] * 3),
    alpha=st.sampled_from([Fraction(1, 10), Fraction(1, 5), Fraction(1, 2)]),
)
def test_levels_are_the_quantiles_of_theorem_1(sizes, seed, grain, beta, alpha):
    shape = Shape(THREE, beta)
    parts = [site(n, 100 * seed + k, grain) for k, n in enumerate(sizes)]
    made = summarised(sizes, seed, grain, by="group", shape=shape)
    atoms = summarised(sizes, seed, grain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Small groups have no finite level.
        found = gcfcp.calibrate(made, alpha)
        same = gcfcp.calibrate(atoms, alpha, shape=shape)
    levels = found.threshold_table.source.by_group
    n, inside = sum(sizes), [f"c{k}" in found.correction.inside for k in range(len(sizes))]
    weights = [
        Fraction(size, n) / (size + within) for size, within in zip(sizes, inside, strict=True)
    ]
    charge = sum((w for w, within in zip(weights, inside, strict=True) if within), Fraction(0))
    if not all(inside):
        charge += Fraction(1, n) / (1 - alpha)
    expected = by_the_book(parts, alpha, shape, weights, charge)
    assert levels.tolist() == expected
    assert same.threshold_table.source.by_group.tolist() == expected
    rows = np.array(list(itertools.product([False, True], repeat=3)))[1:]
    top = np.where(rows, levels, -np.inf).max(axis=1)
    assert (found.thresholds(rows) == shape.raised(top, rows)).all()
    assert (found.thresholds(rows) == same.thresholds(rows)).all()
    # A score is admitted if and only if its residual is at most the level.
    for scores, member in parts:
        row_level = np.where(member, levels, -np.inf).max(axis=1)
        residual = scores - shape.of(member)
        assert ((scores <= found.thresholds(member)) == (residual <= row_level)).all()


def test_without_a_shape_it_is_the_rule_max():
    by_group = gcfcp.calibrate(summarised([200, 90, 150], by="group"), 0.1)
    by_atom = gcfcp.calibrate(summarised([200, 90, 150]), 0.1, rule="max")
    assert (by_group.rule, by_group.by) == ("max", "group")
    rows = by_atom.threshold_table.membership
    assert (by_group.thresholds(rows) == by_atom.thresholds(rows)).all()
    assert [g.certified_status for g in by_group.guarantee] == ["proved"] * 3
    assert by_group.guarantee[0].promise == "on average over calibrations"


@pytest.mark.parametrize(
    "options", [{}, {"delta": 8}, {"min_count": 6}, {"delta": 8, "min_count": 9}]
)
def test_compression_and_hiding_only_raise_levels(options):
    plain = gcfcp.calibrate(summarised([300, 200], by="group"), 0.1)
    made = gcfcp.calibrate(summarised([300, 200], by="group", **options), 0.1)
    low, high = (c.threshold_table.source.by_group for c in (plain, made))
    assert (high >= low).all()
    assert made.guarantee[0].certified_status == "proved"


def test_a_large_shape_and_tiny_scores():
    """s - b rounds all scores to the same residual, and the threshold still covers all of them."""
    scores, member = np.linspace(0, 1e-6, 50), np.ones((50, 3), dtype=bool)
    shape = Shape(THREE, (1e12, 0.0, 0.0))
    made = gcfcp.summarize(scores, member, groups=THREE, client="a", by="group", shape=shape)
    assert (gcfcp.calibrate([made], 0.1).thresholds([[1, 1, 1]]) >= scores.max()).all()
    with pytest.raises(GCFCPError, match=r"9 scores such as .* less the shape they are infinite"):
        gcfcp.summarize(
            np.full(9, -np.finfo(float).max), np.ones((9, 3), bool), groups=THREE, client="a",
            by="group", shape=Shape(THREE, (1e300, 0, 0)),
        )  # fmt: skip


# --- what does not fit ----------------------------------------------------------------------------


def test_kinds_shapes_and_scores_are_not_mixed():
    shape, other = Shape(THREE, (1.0, 0, 0)), Shape(THREE, (0.0, 1, 0))
    a, b = site(60, 1), site(60, 2)

    def both(first, second):
        options = {"groups": THREE}
        return [
            gcfcp.summarize(*a, client="a", **options, **first),
            gcfcp.summarize(*b, client="b", **options, **second),
        ]

    group, shaped = {"by": "group"}, {"by": "group", "shape": shape}
    mark = f"{shape.fingerprint[:8]}.."
    for pair, words in (
        (both({}, group), "b was summarised with by 'group', a with 'atom': all clients must use"),
        (both(group, shaped), f"b was summarised with shape {mark}, a with None: all clients"),
        (both(shaped, group | {"shape": other}), "b was summarised with shape .*, a with"),
        (both(group, group | {"score": "cqr"}), "b was summarised with score 'cqr', a with"),
    ):
        with pytest.raises(GCFCPError, match=words):
            gcfcp.calibrate(pair, 0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "simultaneous"}, "by group do not tell how groups overlap: use rule='max'"),
        ({"shape": Shape(THREE, (1.0, 0, 0))}, "were not made with this shape: leave it out"),
        ({"confidence": 1.5}, r"confidence=1.5 is not in \(0, 1\)"),
        ({"confidence": 0.9, "merge": "recompress"}, "needs merge='pool' and correction='sharp'"),
        ({"confidence": 0.9, "correction": "paper"}, "needs merge='pool' and correction='sharp'"),
    ],
)
def test_what_by_group_refuses(options, words):
    with pytest.raises(GCFCPError, match=words):
        gcfcp.calibrate(summarised([60], by="group"), 0.1, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "simultaneous", "confidence": 0.9}, "a confidence is proved for one group at"),
        ({"rule": "simultaneous", "shape": Shape(THREE, (1.0, 0, 0))}, "a shape is subtracted"),
    ],
)
def test_what_by_atom_refuses(options, words):
    with pytest.raises(GCFCPError, match=words):
        gcfcp.calibrate(summarised([60]), 0.1, **options)


def test_residuals_out_of_range_are_refused():
    """1 - p lies in [0, 1], so that a residual lies in [-2, 3] for this shape."""
    groups, shape = Groups(["a", "b"]), Shape(Groups(["a", "b"]), (2.0, -2.0))

    def of(values):
        """What a site sends that does not check its scores."""
        member = np.ones((len(values), 2), dtype=bool)
        options = {"groups": groups, "client": "k", "by": "group", "shape": shape, "min_count": 2}
        return replace(gcfcp.summarize(values, member, score="mine", **options), score="thr")

    gcfcp.calibrate([of(np.linspace(0, 1, 40))], 0.2)
    with pytest.raises(
        GCFCPError, match=r"k has residuals from .* only takes residuals from -2 to"
    ):
        gcfcp.calibrate([of(np.linspace(0, 9, 40))], 0.2)


# --- the file -------------------------------------------------------------------------------------


def read_by_the_book(data):
    """A reader of version 3, written only from the docstrings of codec and layout."""
    assert data[:6] == b"GCFCPS"
    length = int.from_bytes(data[8:12], "little")
    header, body = json.loads(data[12 : 12 + length]), data[12 + length : -32]
    a, m, w = header["atoms"], header["centroids"], header["width"]
    key = -(-len(header["groups"]) // 8)
    keys, body = body[: a * key], body[a * key :]
    whole = [int.from_bytes(body[w * i : w * i + w], "little") for i in range(2 * a + m)]
    values = struct.unpack(f"<{m}d", body[w * len(whole) :])
    found, at = {}, 0
    for i in range(a):
        bits = "".join(f"{byte:08b}" for byte in keys[key * i : key * i + key])
        (name,) = [g for g, bit in zip(header["groups"], bits, strict=False) if bit == "1"]
        size = whole[i]
        found[name] = (whole[2 * a + at : 2 * a + at + size], list(values[at : at + size]))
        at += size
    return int.from_bytes(data[6:8], "little"), header, found


def test_the_documentation_is_enough_to_read_it():
    shape = Shape(THREE, (0.5, -1.25, 3.0), ("0123456789abcdef",))
    scores, member = site(80, 3)
    made = gcfcp.summarize(
        scores, member, groups=THREE, client="k", by="group", shape=shape, delta=EXACT
    )
    version, header, found = read_by_the_book(made.to_bytes())
    assert version == 3
    assert (header["by"], header["n"], header["suppressed"], header["uncovered"]) == (
        "group", 80, 0, 0,
    )  # fmt: skip
    assert header["shape"] == {"coefficients": [0.5, -1.25, 3.0], "sources": ["0123456789abcdef"]}
    assert header["sites"] == header["absent"] == []
    for g, name in enumerate(THREE.names):
        inside = np.sort((scores - shape.of(member))[member[:, g]])
        values, counts = np.unique(inside, return_counts=True)
        assert found[name] == (counts.tolist(), values.tolist())
    again = gcfcp.ClientSummary.from_bytes(made.to_bytes())
    assert again == made
    assert again.shape == shape
    assert not any(a.flags.writeable for a in (again.values, again.counts))


def changed(summary, **changes):
    """The bytes of a summary with other fields in its header, and a good checksum."""
    from gcfcp import codec

    data = summary.to_bytes()
    length = int.from_bytes(data[8:12], "little")
    header = json.loads(data[12 : 12 + length]) | changes
    return codec.pack(b"S", 3, header, data[12 + length : -32])


HIDING = gcfcp.summarize(
    np.arange(60.0),
    np.column_stack([np.ones(60, bool), np.arange(60) < 30, np.arange(60) < 3]),
    groups=Groups({"a": "TRUE", "b": "b = 1", "c": "c = 1"}),
    client="k",
    by="group",
    min_count=5,
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"by": "atom"}, "a summary by atom has no strangers"),
        ({"by": "x"}, "by='x' is neither"),
        ({"by": None}, "by=None is neither"),
        ({"shape": {}}, "the field 'coefficients' is missing"),
        ({"shape": []}, "must be an object"),
        ({"shape": {"coefficients": [1], "sources": []}}, "needs 3 finite coefficients"),
        ({"suppressed": 1}, "does not tell suppressed"),
        ({"uncovered": 1}, "does not tell suppressed"),
        ({"n": 10, "members": []}, "more than n=10|does not have n=10"),
        ({"strangers": [0, 0]}, "strangers must hold one count for each group"),
        ({"strangers": [0, 31, 0]}, "strangers must hold one count for each group"),
        ({"strangers": [0, "1", 0]}, "strangers must hold one count for each group"),
        ({"strangers": None}, "a field is wrong"),
        ({"suppressed_groups": [0, 0, 0]}, "neither described nor hidden nor declared absent"),
        ({"suppressed_groups": [0, 4, 4]}, "described although records of it are suppressed"),
        (
            {"suppressed_groups": [4, 0, 4]},
            "more than n=60 records, with those that are suppressed",
        ),
        ({"suppressed_groups": [0, 0, 61]}, "none above n"),
        ({"suppressed_groups": []}, "neither described nor hidden|one way"),
        ({"min_count": 1}, "although min_count is 1"),
        ({"absent": ["c"]}, "belongs to group 'c', which this client cannot have"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(changes, words):
    with pytest.raises(GCFCPError, match=words) as error:
        gcfcp.ClientSummary.from_bytes(changed(HIDING, **changes), "k.gcfcp")
    assert str(error.value).startswith("k.gcfcp is not a valid summary")


def test_a_combination_of_groups_is_refused():
    data = bytearray(HIDING.to_bytes())
    length = int.from_bytes(data[8:12], "little")
    from gcfcp import codec

    header = json.loads(data[12 : 12 + length])
    body = bytearray(data[12 + length : -32])
    body[1] |= 0b01000000
    with pytest.raises(GCFCPError, match="describes a combination of groups"):
        gcfcp.ClientSummary.from_bytes(codec.pack(b"S", 3, header, bytes(body)))


def test_by_atom_stays_what_it_is():
    """Neither the version nor the fields of a summary by atom have changed."""
    made = summarised([60])[0]
    data = made.to_bytes()
    header = json.loads(data[12 : 12 + int.from_bytes(data[8:12], "little")])
    assert int.from_bytes(data[6:8], "little") == 1
    assert not {"by", "shape"} & set(header)


# --- tables ---------------------------------------------------------------------------------------

CONDITIONS = Groups({"all": "TRUE", "old": "age >= 65", "f": "sex = 'F'", "rare": "age = 20"})


def frame(n=900, seed=0):
    rng = np.random.default_rng(seed)
    age, sex = rng.integers(20, 90, n), rng.choice(["F", "M"], n)
    return pl.DataFrame({"age": age, "sex": sex, "score": rng.normal(size=n).round(2)})


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("min_count", [1, 12])
@pytest.mark.parametrize("shape", [None, Shape(CONDITIONS, (0.25, -0.1, 1 / 3, 5.0))])
def test_a_table_gives_the_same_bytes(tmp_path, suffix, min_count, shape, monkeypatch):
    data, path = frame(), tmp_path / f"data.{suffix}"
    data.write_csv(path) if suffix == "csv" else data.write_parquet(path)
    options = {"min_count": min_count, "by": "group", "shape": shape}
    making = Making(CONDITIONS, "k", score="column", **options)
    expected = gcfcp.summarize(
        data["score"].to_numpy(), CONDITIONS.membership(data), groups=CONDITIONS, client="k",
        score="column", **options,
    )  # fmt: skip
    with tables.open_table(path) as table:
        (found,), _ = tables.summarize_table(table, tables.scoring(table, "column"), making)
    assert found.to_bytes() == expected.to_bytes()
    # In digest builders, few scores stay exact as well.
    monkeypatch.setattr(streaming, "EXACT_ROWS", 100)
    with tables.open_table(path) as table:
        (streamed,), _ = tables.summarize_table(table, tables.scoring(table, "column"), making)
    assert streamed.to_bytes() == expected.to_bytes()


def test_a_holdout_of_a_table_is_that_of_the_whole_frame(tmp_path):
    data, path = frame(), tmp_path / "data.parquet"
    data.write_parquet(path)
    making = Making(CONDITIONS, "k", score="column", by="group", min_count=3)
    with tables.open_table(path) as table:
        parts, _ = tables.summarize_table(
            table, tables.scoring(table, "column"), making, holdout=0.4,
            holdout_rng=np.random.default_rng(8),
        )  # fmt: skip
    assert parts == gcfcp.summarize(
        data["score"].to_numpy(), CONDITIONS.membership(data), groups=CONDITIONS, client="k",
        score="column", by="group", min_count=3, holdout=0.4, rng=np.random.default_rng(8),
    )  # fmt: skip


# --- what else can be done with them --------------------------------------------------------------

SITES = Groups({"all": "TRUE", "b": "b = 1"}, sites=["c0", "c1", "c2"])


def with_sites(**options):
    return [
        gcfcp.summarize(
            np.random.default_rng(k).normal(k, 1, n),
            np.column_stack([np.ones(n, bool), np.arange(n) % 3 == 0]),
            groups=SITES, client=f"c{k}", by="group", **options,
        )
        for k, n in enumerate((200, 90, 120))
    ]  # fmt: skip


@pytest.mark.parametrize("min_count", [1, 8])
def test_every_site_is_a_group(min_count):
    made = with_sites(min_count=min_count)
    calibration = gcfcp.calibrate(made, 0.1)
    levels = calibration.threshold_table.source.by_group
    assert (np.diff(levels[2:]) > 0).all()  # The scores of the sites lie one above the other.
    rows = SITES.complete(np.array([[1, 0], [1, 1]], dtype=bool), "c2")
    assert (calibration.thresholds(rows) == levels[[0, 4]].max()).all() or levels[4] >= levels[0]
    assert gcfcp.ClientSummary.from_bytes(made[0].to_bytes()) == made[0]
    unseen = calibration.unseen_site()
    assert {u.group for u in unseen} == {"all", "b"}
    # Scores of c2 lie above those of the others, which cover them less often.
    by = {(u.client, u.group): u.coverage for u in unseen}
    assert by["c2", "all"] < by["c0", "all"]


def test_a_false_number_of_records_of_a_site_is_refused():
    from gcfcp import codec

    made = with_sites()[0]
    data = made.to_bytes()
    length = int.from_bytes(data[8:12], "little")
    header = json.loads(data[12 : 12 + length]) | {"n": 999}
    with pytest.raises(GCFCPError, match="does not have n=999 records"):
        gcfcp.ClientSummary.from_bytes(codec.pack(b"S", 3, header, data[12 + length : -32]))


def test_merging_keeps_counts_bounds_and_kind():
    shape = Shape(THREE, (1.0, 2.0, 0.5))
    parts = summarised([80, 60, 9], by="group", shape=shape, min_count=7, delta=20)
    region = gcfcp.merge(parts, "region")
    assert gcfcp.merge(parts[::-1], "region").to_bytes() == region.to_bytes()
    assert (region.by, region.shape, region.n) == ("group", shape, 149)
    total = np.sum([s.atom_counts @ s.membership for s in parts], axis=0)
    assert (region.atom_counts @ region.membership == total).all()
    assert region.suppressed_groups == tuple(np.sum([s.suppressed_groups for s in parts], axis=0))
    assert gcfcp.ClientSummary.from_bytes(region.to_bytes()) == region
    whole = gcfcp.calibrate(parts, 0.2)
    merged = gcfcp.calibrate([region], 0.2, aggregates=["region"])
    low, high = (c.threshold_table.source.by_group for c in (whole, merged))
    assert (high >= low).all()


def test_retarget_without_influence_screening_and_plan():
    shape = Shape(THREE, (0.0, 1.0, 2.0))
    parts = summarised([200, 100, 150], by="group", shape=shape)
    calibration = gcfcp.calibrate(parts, 0.1)
    rows = np.eye(3, dtype=bool)
    assert (
        calibration.retarget("uniform", 0.2).thresholds(rows)
        == gcfcp.calibrate(parts, 0.2, "uniform").thresholds(rows)
    ).all()
    left = calibration.without("c1")
    assert (left.thresholds(rows) == gcfcp.calibrate(parts[::2], 0.1).thresholds(rows)).all()
    moved = {(i.client, i.group): i.largest for i in calibration.influence()}
    levels = calibration.threshold_table.source.by_group - left.threshold_table.source.by_group
    assert [moved["c1", g] for g in THREE.names] == levels.tolist()
    assert {s.atoms for s in screen(parts)} == {3}
    plan = gcfcp.plan(parts, 0.1)
    assert (plan.by, plan.finite, len(plan.atoms)) == ("group", True, 3)
    assert [a.threshold for a in plan.atoms] == calibration.threshold_table.source.by_group.tolist()


def test_an_odd_client_is_flagged_by_group_too():
    parts = [
        gcfcp.summarize(
            np.random.default_rng(k).normal(5 * (k == 3), 1, 300), np.ones((300, 1), bool),
            groups=Groups(["all"]), client=f"c{k}", by="group",
        )
        for k in range(6)
    ]  # fmt: skip
    assert [s.client for s in screen(parts) if s.flagged] == ["c3"]


def test_a_plan_names_the_sites_that_hide_a_group():
    """Nine of ten sites have no record of the group. Declared absent, it would be finite."""
    groups = Groups({"all": "TRUE", "rare": "x = 1"})
    rng = np.random.default_rng(0)

    def part(k, absent=()):
        member = np.column_stack([np.ones(80, bool), np.full(80, k == 0)])
        return gcfcp.summarize(
            rng.normal(size=80), member, groups=groups, client=f"c{k}", by="group", min_count=10,
            absent=absent,
        )  # fmt: skip

    plan = gcfcp.plan([part(k) for k in range(10)], 0.1)
    assert [g.finite for g in plan.groups] == [True, False]
    advice = "group 'rare' would be finite if the 9 sites that withhold it had no record of it and"
    assert any(a.startswith(advice) for a in plan.advice)
    declared = [part(0), *(part(k, ["rare"]) for k in range(1, 10))]
    assert gcfcp.plan(declared, 0.1).finite


def test_the_disclosure_says_what_is_hidden():
    text = str(HIDING.disclosure)
    assert "2 groups are described, the smallest of 30 records" in text
    assert "of these groups it is only told that they have few records or none: c" in text
    assert HIDING.disclosure.hidden == ("c",)
    assert (HIDING.disclosure.by, HIDING.disclosure.shape) == ("group", None)


# --- prediction -----------------------------------------------------------------------------------


def test_a_predictor_file_by_group_is_read_again():
    shape = Shape(THREE, (0.85, -0.26, 0.1))
    made = gcfcp.calibrate(summarised([200, 90], by="group", shape=shape, grain=0.01), 0.1)
    predictor = gcfcp.Predictor("s", made)
    rows = np.array(list(itertools.product([0, 1], repeat=3)))[1:]
    for coreset, version in ((False, 3), (True, 2)):
        text = predictor.to_json(coreset=coreset)
        again = gcfcp.Predictor.from_json(text)
        assert (again.thresholds(rows) == made.thresholds(rows)).all()
        assert again.to_json(coreset=coreset) == text
        assert again.by == "group"
        assert [a.groups for a in again.atoms] == [("a",), ("b",), ("c",)]
        assert [a.count is None for a in again.atoms] == [not coreset] * 3
        assert json.loads(text)["version"] == version
    shaped = gcfcp.calibrate(summarised([200, 90], 5), 0.1, shape=shape)
    both = gcfcp.Predictor.from_json(gcfcp.Predictor("s", shaped).to_json())
    assert (both.thresholds(rows) == shaped.thresholds(rows)).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 1}, "version 1 has no entries by and shape"),
        ({"version": 3}, "version 3 has no entry 'coreset'"),
        ({"version": 4}, "has format version 4, and this gcfcp reads versions 1 to 3"),
        ({"version": True}, "has format version True"),
        ({"by": "x"}, "by='x' is neither"),
        ({"rule": "first"}, "by group, the rule must be 'max'"),
        ({"table": []}, "the table must list each group"),
        ({"shape": {"coefficients": [1], "sources": []}}, "needs 3 finite coefficients"),
        ({"shape": 3}, "must be an object"),
        ({"next_shape": 3}, "must be an object"),
        ({"group_thresholds": [1.0]}, "not those of group_thresholds"),
    ],
)
def test_a_bad_predictor_file_is_refused(changes, words):
    made = gcfcp.calibrate(summarised([200], by="group", shape=Shape(THREE, (1.0, 0, 0))), 0.1)
    values = json.loads(gcfcp.Predictor("s", made).to_json(coreset=True)) | changes
    with pytest.raises(GCFCPError, match=words) as error:
        gcfcp.Predictor.from_json(json.dumps(values), "p.json")
    assert "p.json" in str(error.value)


def test_sets_hold_what_the_levels_admit():
    """The last bit counts: probabilities of two decimals, and a shape of two decimals."""
    rng = np.random.default_rng(4)
    score = gcfcp.scores.THR()

    def draw(n):
        p = rng.multinomial(100, [0.5, 0.3, 0.2], n) / 100
        y = np.array([rng.choice(3, p=row) for row in p])
        member = np.column_stack([np.ones(n, bool), p.max(axis=1) < 0.5, y[rng.permutation(n)] > 0])
        return p, y, member

    p, y, member = draw(400)
    shape = Shape(THREE, (0.85, -0.26, 0.11))
    made = gcfcp.summarize(
        score.of(p, y), member, groups=THREE, client="a", by="group", shape=shape, score=score,
        delta=EXACT,
    )  # fmt: skip
    predictor = gcfcp.Predictor(score, gcfcp.calibrate([made], 0.1))
    p, _, member = draw(500)
    levels = np.where(member, predictor.threshold_table.source.by_group, -np.inf).max(axis=1)
    expected = (1 - p) - shape.of(member)[:, None] <= levels[:, None]
    assert (predictor.predict_set(p, member) == expected).all()
