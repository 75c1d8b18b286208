"""The same data give the same bytes, and these tell no more than they say. All else is refused."""

import json
import math
import os
import struct
import sys
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import (
    ClientSummary,
    DigestBuilder,
    GCFCPError,
    GCFCPWarning,
    Groups,
    TDigest,
    codec,
    scores,
    summarize,
)
from gcfcp.summary import Making, assemble

THREE = Groups(["all", "female", "over_65"])


def records(n=1000, seed=0, groups=THREE, kind="exponential"):
    rng = np.random.default_rng(seed)
    membership = rng.random((n, len(groups))) < 0.4
    membership[:, 0] = True
    scores = {
        "exponential": lambda: rng.exponential(size=n),
        "discrete": lambda: rng.integers(0, 4, size=n) / 3,
        "negative": lambda: -rng.exponential(size=n),
        "infinite": lambda: np.where(rng.random(n) < 0.05, np.inf, rng.normal(size=n)),
    }[kind]()
    return scores, membership


def summary(n=1000, seed=0, groups=THREE, kind="exponential", client="hospital-a", **options):
    return summarize(*records(n, seed, groups, kind), groups=groups, client=client, **options)


# --- what it says ---------------------------------------------------------------------------------


def test_each_atom_is_the_digest_of_its_scores():
    scores, membership = records()
    s = summary(delta=25, representative="mean")
    rows, index = np.unique(membership, axis=0, return_inverse=True)
    assert np.array_equal(s.membership, rows)
    for a in range(len(rows)):
        digest = TDigest.from_values(scores[index.ravel() == a], 25)
        own = slice(s.start[a], s.start[a + 1])
        assert np.array_equal(s.values[own], digest.means)
        assert np.array_equal(s.counts[own], digest.weights)
        assert s.errors[a] == digest.error_weight
        assert s.atom_counts[a] == digest.total
    assert (s.client, s.n, s.delta, s.representative) == ("hospital-a", 1000, 25.0, "mean")
    assert (s.score, s.parameters, s.model) == ("unnamed", {}, None)
    assert s.library == f"gcfcp {gcfcp.__version__}"


def test_score_and_model_travel():
    s = summary(score=gcfcp.scores.RAPS(lam=0.02, k_reg=3), model="sha256:abc")
    assert (s.score, s.model) == ("raps", "sha256:abc")
    assert s.parameters == {"lam": 0.02, "k_reg": 3, "randomized": True}

    class Own:
        def __init__(self):
            self.parameters = {"width": np.float32(0.5), "knots": np.int64(3)}

    assert scores.describe(Own()) == ("Own", {"width": 0.5, "knots": 3})
    assert ClientSummary.from_bytes(summary(score=Own()).to_bytes()).parameters["knots"] == 3
    assert summary(score="my score").score == "my score"


def test_arrays_are_read_only():
    s = summary()
    for name in ("membership", "start", "values", "counts", "errors"):
        with pytest.raises(ValueError):
            getattr(s, name)[0] = 0


# --- the same data give the same bytes ------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(
        st.tuples(
            st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 1.0, math.inf])),
            st.tuples(st.just(True), st.booleans(), st.booleans()),
        ),
        min_size=1,
        max_size=60,
    ),
    order=st.randoms(use_true_random=False),
    delta=st.sampled_from([2, 5.0, 250]),
    representative=st.sampled_from(["mean", "upper"]),
    min_count=st.integers(1, 6),
)
def test_row_order_makes_no_difference_and_the_round_trip_none(
    data, order, delta, representative, min_count
):
    def bytes_of(rows):
        return summarize(
            [score for score, _ in rows],
            [row for _, row in rows],
            groups=THREE,
            client="k",
            delta=delta,
            representative=representative,
            min_count=min_count,
        ).to_bytes()

    shuffled = list(data)
    order.shuffle(shuffled)
    written = bytes_of(data)
    assert bytes_of(shuffled) == written
    read = ClientSummary.from_bytes(written)
    assert read.to_bytes() == written
    assert read == ClientSummary.from_bytes(written)
    assert hash(read) == hash(ClientSummary.from_bytes(written))


def test_the_type_of_the_input_makes_no_difference():
    import pandas as pd
    import polars as pl

    scores, membership = records(50)
    expected = summary(50).to_bytes()
    for s, m in [
        (scores.tolist(), membership.tolist()),
        (pd.Series(scores), pd.DataFrame(membership, columns=THREE.names)),
        (pl.Series(scores), pl.DataFrame(membership, schema=list(THREE.names))),
        (scores, membership.astype(float)),
        (np.asfortranarray(scores), np.asfortranarray(membership)),
    ]:
        assert summarize(s, m, groups=THREE, client="hospital-a").to_bytes() == expected
    same = {"delta": np.int64(250), "min_count": np.int32(1)}
    assert summarize(scores, membership, groups=THREE, client="hospital-a", **same) == summary(50)


def test_the_data_are_left_as_they_were():
    scores, membership = records(50)
    before = scores.copy(), membership.copy()
    summarize(scores, membership, groups=THREE, client="k")
    assert np.array_equal(scores, before[0])
    assert np.array_equal(membership, before[1])


def test_a_stream_gives_the_same_summary():
    scores, membership = records(3000)
    rows, index = np.unique(membership, axis=0, return_inverse=True)
    builders = []
    for a in range(len(rows)):
        builders.append(DigestBuilder(25, "upper"))
        for chunk in np.array_split(scores[index.ravel() == a], 7):
            builders[-1].add(chunk)
    s = assemble(builders, rows, Making(THREE, "hospital-a", 25))
    assert s == summary(3000, delta=25)


# --- the format, from its documentation alone -----------------------------------------------------


def read_by_the_book(data):
    """A reader written only from the docstrings of gcfcp.codec and gcfcp.summary.layout."""
    length = int.from_bytes(data[8:12], "little")
    header, body = json.loads(data[12 : 12 + length]), data[12 + length : -32]
    a, m, w = header["atoms"], header["centroids"], header["width"]
    key = -(-len(header["groups"]) // 8)
    keys, body = body[: a * key], body[a * key :]
    whole = [int.from_bytes(body[w * i : w * i + w], "little") for i in range(2 * a + m)]
    values = struct.unpack(f"<{m}d", body[w * len(whole) :])
    atoms, at = [], 0
    for i in range(a):
        bits = "".join(f"{byte:08b}" for byte in keys[key * i : key * i + key])
        names = [g for g, bit in zip(header["groups"], bits, strict=False) if bit == "1"]
        size = whole[i]
        atoms.append((names, whole[a + i], whole[2 * a + at : 2 * a + at + size],
                      list(values[at : at + size])))  # fmt: skip
        at += size
    return header, atoms


@pytest.mark.parametrize(("G", "n"), [(1, 1), (1, 10), (3, 100_000), (8, 2000), (9, 10), (17, 500)])
def test_the_documentation_is_enough_to_read_it(G, n):
    groups = Groups([f"g{i}" for i in range(G)])
    s = summary(n, groups=groups, kind="infinite", delta=10)
    header, atoms = read_by_the_book(s.to_bytes())
    assert header["n"] == n
    assert header["groups"] == list(groups.names)
    assert len(atoms) == len(s.errors)
    for i, (names, error, counts, values) in enumerate(atoms):
        own = slice(s.start[i], s.start[i + 1])
        assert names == [
            g for g, member in zip(groups.names, s.membership[i], strict=True) if member
        ]
        assert (error, counts, values) == (
            s.errors[i],
            s.counts[own].tolist(),
            s.values[own].tolist(),
        )


def test_it_is_small():
    groups = Groups.from_toml_text(
        "\n".join(f"group_number_{i:02d} = \"age >= {i} and sex = 'F'\"" for i in range(16))
    )
    rng = np.random.default_rng(0)
    membership = np.eye(16, dtype=bool)[rng.integers(16, size=200_000)]
    s = summarize(
        rng.random(200_000), membership, groups=groups, client="a hospital of usual name",
        score=gcfcp.scores.RAPS(), model="sha256:" + "0" * 64,
    )  # fmt: skip
    data = s.to_bytes()
    header = int.from_bytes(data[8:12], "little")
    named = summarize(
        rng.random(2000), membership[:2000], groups=Groups(groups.names), client="a hospital",
        score=gcfcp.scores.RAPS(), model="sha256:" + "0" * 64,
    )  # fmt: skip
    assert int.from_bytes(named.to_bytes()[8:12], "little") < 1000
    assert header < 1700  # The sixteen conditions alone have 500 characters.
    assert (len(data) - header) / len(s.values) <= 12


def test_large_clusters_still_take_twelve_bytes_a_centroid():
    values = np.arange(3_000_000, dtype=np.float64)
    everyone = np.ones((len(values), 1), dtype=bool)
    s = summarize(values, everyone, groups=Groups(["all"]), client="k", delta=50)
    assert s.counts.max() > 2**16
    data = s.to_bytes()
    assert (len(data) - 12 - int.from_bytes(data[8:12], "little") - 32) / len(s.values) <= 12


# --- what is refused when it is read --------------------------------------------------------------


def rewritten(s, body=None, **fields):
    """The bytes of the summary with other fields in its header, and a correct checksum."""
    data = s.to_bytes()
    length = int.from_bytes(data[8:12], "little")
    header = json.loads(data[12 : 12 + length])
    for key, value in fields.items():
        if value is ...:
            del header[key]
        else:
            header[key] = value
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
    return resealed(text, data[12 + length : -32] if body is None else body)


def resealed(text, body):
    import hashlib

    data = b"GCFCPS" + struct.pack("<HI", 1, len(text)) + text + body
    return data + hashlib.sha256(data).digest()


def body_of(s):
    data = s.to_bytes()
    return bytearray(data[12 + int.from_bytes(data[8:12], "little") : -32])


def refused(data, words=None):
    """Reading raises a GCFCPError of one line, and takes no more memory than the file's size."""
    tracemalloc.start()
    try:
        with pytest.raises(GCFCPError, match=words) as error:
            ClientSummary.from_bytes(data, "k.gcfcp")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(error.value).startswith("k.gcfcp ")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert peak < 300_000 + 40 * len(data), f"{peak} bytes for a file of {len(data)}"


def test_every_truncation_and_every_flipped_bit_is_refused():
    data = summary(30, delta=5).to_bytes()
    for length in range(len(data)):
        with pytest.raises(GCFCPError):
            ClientSummary.from_bytes(data[:length])
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 1 << place % 8
        with pytest.raises(GCFCPError):
            ClientSummary.from_bytes(bytes(altered))


@pytest.mark.parametrize("key", list(json.loads(summary().to_bytes()[12:].split(b"}")[0] + b"}}")))
@pytest.mark.parametrize(
    "value", [..., None, -1, 1.5, math.nan, math.inf, 2**70, "", "x\ny", [], {}, [[1]], True]
)
def test_a_hostile_header_is_refused_field_by_field(key, value):
    s = summary(40, delta=5)
    if (key, value) in [("model", None), ("predicates", None), ("members", [])]:
        return  # The summary has this value already.
    if (key, value) in [("parameters", {}), ("suppressed_groups", []), ("delta", 2**70)]:
        return  # The summary has this value already, or could have it.
    refused(rewritten(s, **{key: value}))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n": 41}, "add up"),
        ({"n": 10**9}, "add up"),
        ({"suppressed": 1}, "add up|suppressed_groups"),
        ({"suppressed": 1, "n": 41, "suppressed_groups": [2, 0, 0]}, "suppressed_groups"),
        ({"uncovered": 5}, "add up"),
        ({"min_count": 3}, "below min_count=3"),
        ({"delta": 1.99}, "at least 2"),
        ({"representative": "median"}, "neither"),
        ({"client": "a\x1bb"}, "printable"),
        ({"client": " "}, "printable"),
        ({"client": "x" * 201}, "printable"),
        ({"client": "\ud800"}, "UTF-8|JSON|printable"),
        ({"score": "a\u202eb"}, "U\\+202E"),
        ({"model": "\x00"}, "printable"),
        ({"library": "a\nb"}, "printable"),
        ({"groups": ["all", "female", "all"]}, "twice"),
        ({"groups": ["all", "female", "over\n65"]}, "control"),
        ({"groups": ["all", "female", "other"]}, "fingerprint"),
        ({"fingerprint": "0" * 64}, "fingerprint"),
        ({"parameters": {"lam": math.nan}}, "not finite"),
        ({"parameters": {"lam": [1]}}, "plain values"),
        ({"parameters": {"a\tb": 1}}, "printable"),
        ({"members": [["b", 20], ["a", 20]]}, "ascending"),
        ({"members": [["a", 20], ["a", 20]]}, "ascending"),
        ({"members": [["a", 20], ["b", 21]]}, "add up"),
        ({"members": [["a", 0], ["b", 40]]}, "positive whole number"),
        ({"members": [["hospital-a", 40]]}, "one way"),
        ({"atoms": 2**62}, "header asks for"),
        ({"centroids": 2**62}, "header asks for"),
        ({"atoms": 2**40, "centroids": 0}, "header asks for"),
        ({"width": 9}, "width is not 1 to 8"),
        ({"width": 0}, "width is not 1 to 8"),
        ({"more": 1}, "one way"),
    ],
)  # fmt: skip
def test_a_header_that_does_not_fit_is_refused(fields, words):
    refused(rewritten(summary(40, delta=5), **fields), words)


def test_a_header_written_in_another_way_is_refused():
    data = summary(40).to_bytes()
    length = int.from_bytes(data[8:12], "little")
    header = json.loads(data[12 : 12 + length])
    refused(resealed(json.dumps(header).encode(), data[12 + length : -32]), "one way")
    twice = data[12 : 12 + length].replace(b'"n":40', b'"n":40,"n":40')
    refused(resealed(twice, data[12 + length : -32]), "one way")
    refused(resealed(b'{"a":' * 20_000 + b"1" + b"}" * 20_000, b""), "JSON")


def layout(s):
    """Where the parts of the body begin: keys, sizes, errors, counts, values, end."""
    a, m = len(s.errors), len(s.values)
    w = (len(body_of(s)) - 8 * m - a * -(-len(s.groups) // 8)) // (2 * a + m)
    return np.cumsum([0, a * -(-len(s.groups) // 8), a * w, a * w, m * w, 8 * m]), w


def test_a_body_that_does_not_fit_is_refused():
    s = summary(40, delta=5)
    at, w = layout(s)
    assert w == 1

    def altered(place, value):
        body = body_of(s)
        body[place : place + len(value)] = value
        return rewritten(s, body=bytes(body))

    def number(i, value):
        return altered(at[4] + 8 * i, struct.pack("<d", value))

    refused(altered(0, bytes(body_of(s)[:1]) * 2), "occurs twice")  # An atom stands there twice.
    refused(altered(0, b"\xff"), "ascending|one way")  # There are no groups for some of these bits.
    refused(altered(0, b"\x81"), "one way")  # It is the same atom with one bit of the padding set.
    refused(altered(0, b"\x00"), "no group")
    refused(altered(at[1], b"\x00"), "at least one centroid")
    refused(altered(at[1], b"\x01"), "each centroid must be part of one")
    refused(altered(at[1], b"\xff"), "more centroids than the file")
    refused(altered(at[2], b"\xff"), "above its number of records")
    refused(altered(at[3], b"\x00"), "below min_count")
    refused(altered(at[3], b"\xff"), "add up|above its number")
    refused(number(0, math.nan), "NaN")
    refused(number(0, -math.inf), "-inf")
    refused(number(0, 1e9), "ascending")
    refused(number(1, float(s.values[0])), "ascending")
    refused(rewritten(s, body=bytes(body_of(s)) + b"\x00"), "header asks for")
    refused(rewritten(s, body=bytes(body_of(s))[:-1]), "header asks for")
    refused(rewritten(s, body=b""), "header asks for")


def test_counts_that_overflow_are_refused():
    """These sizes and counts add up only modulo 2**64."""
    groups = Groups([f"g{i}" for i in range(16)])
    a = m = 4096
    keys = np.arange(1, a + 1, dtype=">u2").tobytes()
    values = np.zeros(m).tobytes()
    header = json.loads(
        summary(10, groups=groups).to_bytes()[12:].split(b'"width"')[0].decode() + '"width":7}'
    )
    fields = {k: header[k] for k in header} | {"atoms": a, "centroids": m, "width": 7, "n": 40}

    def file(sizes, counts):
        whole = np.concatenate([sizes, np.zeros(a, dtype=np.uint64), counts]).astype("<u8")
        body = keys + whole.view(np.uint8).reshape(-1, 8)[:, :7].tobytes() + values
        return resealed(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode(), body)

    huge = np.full(a, 2**52, dtype=np.uint64)  # 4096 of these add up to 2**64.
    ones = np.ones(a, dtype=np.uint64)
    refused(file(huge, ones), "more centroids than the file")
    refused(file(ones, huge), "more than 2\\*\\*53")
    refused(file(ones, huge * 4), "not below 2\\*\\*53")


def test_wrong_files_are_named(tmp_path):
    with pytest.raises(GCFCPError, match=r"cannot read .*gone.gcfcp: No such file"):
        ClientSummary.load(tmp_path / "gone.gcfcp")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(GCFCPError, match="text is not a gcfcp file"):
        ClientSummary.load(tmp_path / "text")
    s = summary()
    s.save(tmp_path / "k.gcfcp")
    assert ClientSummary.load(tmp_path / "k.gcfcp") == s
    assert sorted(os.listdir(tmp_path)) == ["k.gcfcp", "text"]
    (tmp_path / "audit").write_bytes(codec.pack(b"A", 1, {}, b""))
    with pytest.raises(GCFCPError, match="audit is an audit, but a summary is needed here"):
        ClientSummary.load(tmp_path / "audit")
    (tmp_path / "new").write_bytes(codec.pack(b"Z", 1, {}, b""))
    with pytest.raises(GCFCPError, match="new is of the unknown kind b'Z', but a summary"):
        ClientSummary.load(tmp_path / "new")


def test_a_summary_made_by_hand_is_checked_too():
    s = summary(40)
    for field, value in [
        ("counts", s.counts[:-1]),
        ("errors", s.errors[:-1]),
        ("start", s.start[:-1]),
        ("membership", s.membership[:, :-1]),
        ("values", s.values[::-1].copy()),
        ("n", 41),
        ("suppressed_groups", (0, 0)),
    ]:
        with pytest.raises(GCFCPError):
            replace(s, **{field: value})


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "membership", "words"),
    [
        ([], np.zeros((0, 3), bool), "scores is empty"),
        ([1.0, 2.0], [[1, 0, 0]], "2 scores and 1 membership rows"),
        ([[1.0]], [[1, 0, 0]], "shape"),
        (1.0, [[1, 0, 0]], "shape"),
        ([1.0, math.nan, 3, math.nan], [[1, 0, 0]] * 4, "2 of 4 scores are NaN.*row 2"),
        ([1.0, 2.0, -math.inf], [[1, 0, 0]] * 3, "1 of 3 scores are -inf.*row 3"),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), [[1, 0, 0]] * 2, "NaN.*row 2"),
        (["1", "2"], [[1, 0, 0]] * 2, "cannot be read as numbers"),
        ([1j, 2], [[1, 0, 0]] * 2, "cannot be read as numbers"),
        ([None, 2.0], [[1, 0, 0]] * 2, "NaN"),
        ([{}, 2.0], [[1, 0, 0]] * 2, "cannot be read as numbers"),
        ([[1.0], [2.0, 3.0]], [[1, 0, 0]] * 2, "cannot be read as numbers"),
        ([1.0], [[1, 0, 2]], "neither true/false nor 0/1"),
        ([1.0], [[1, 0, 0.5]], "neither true/false nor 0/1"),
        ([1.0], [["yes", "no", "no"]], "neither true/false nor 0/1"),
        ([1.0], [[1, 0]], "2 columns for 3 groups"),
        ([1.0], [1, 0, 0], "shape"),
    ],
)
def test_bad_records_are_an_error(scores, membership, words):
    with pytest.raises(GCFCPError, match=words) as error:
        summarize(scores, membership, groups=THREE, client="k")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delta": 1.9}, "delta=1.9"),
        ({"delta": math.nan}, "delta=nan"),
        ({"delta": math.inf}, "delta=inf"),
        ({"delta": "25"}, "delta='25'"),
        ({"delta": True}, "delta=True"),
        ({"representative": "max"}, "neither"),
        ({"min_count": 0}, "min_count=0"),
        ({"min_count": 2.0}, "min_count=2.0"),
        ({"min_count": True}, "min_count=True"),
        ({"client": ""}, "client=''"),
        ({"client": "a\nb"}, "printable"),
        ({"client": "\udcff"}, "printable"),
        ({"client": 7}, "client=7"),
        ({"model": ""}, "model=''"),
        ({"score": "a\x00"}, "printable"),
        ({"groups": ["all", "female", "over_65"]}, "gcfcp.Groups"),
    ],
)
def test_bad_options_are_an_error(options, words):
    scores, membership = records(50)
    given = {"groups": THREE, "client": "k"} | options
    with pytest.raises(GCFCPError, match=words):
        summarize(scores, membership, **given)


def test_records_in_no_group_are_counted_and_reported():
    scores, membership = records(100)
    membership[:7] = False
    with pytest.warns(GCFCPWarning, match="k: 7 of 100 records belong to no group"):
        s = summarize(scores, membership, groups=THREE, client="k")
    assert (s.n, s.uncovered, s.disclosure.uncovered) == (100, 7, 7)
    assert s.membership.any(axis=1).all()
    assert int(s.counts.sum()) == 93
    assert ClientSummary.from_bytes(s.to_bytes()) == s


def test_few_records_in_no_group_are_reported_here_and_not_described_there():
    scores, membership = records(200)
    membership[:3] = False
    with pytest.warns(GCFCPWarning, match="3 of 200"):
        s = summarize(scores, membership, groups=THREE, client="k", min_count=5)
    assert s.uncovered == 0
    assert s.suppressed >= 3


# --- infinite scores ------------------------------------------------------------------------------


@pytest.mark.parametrize("representative", ["mean", "upper"])
@pytest.mark.parametrize("min_count", [1, 10])
def test_infinite_scores_stay_infinite(representative, min_count):
    scores, _ = records(1000, kind="infinite")
    s = summary(1000, kind="infinite", representative=representative, min_count=min_count)
    true = int(np.isinf(scores).sum())
    counted = int(s.counts[np.isinf(s.values)].sum())
    assert counted == true if min_count == 1 else counted + s.suppressed >= true
    assert s == ClientSummary.from_bytes(s.to_bytes())


def test_only_infinite_scores():
    s = summarize([math.inf] * 3, np.eye(3, dtype=bool), groups=THREE, client="k")
    assert s.values.tolist() == [math.inf] * 3
    assert s == ClientSummary.from_bytes(s.to_bytes())


# --- disclosure control ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["exponential", "discrete", "negative", "infinite"])
@pytest.mark.parametrize("representative", ["mean", "upper"])
@pytest.mark.parametrize("m", [2, 5, 30])
def test_no_centroid_and_no_atom_stands_for_fewer_than_min_count(kind, representative, m):
    groups = Groups([f"g{i}" for i in range(6)])
    scores, membership = records(600, groups=groups, kind=kind)
    s = summary(600, groups=groups, kind=kind, min_count=m, representative=representative)
    rows, counts = np.unique(membership, axis=0, return_counts=True)
    small = counts < m
    assert s.counts.min() >= m
    assert np.array_equal(s.membership, rows[~small])
    # Where small atoms have fewer than m records, others are withheld to make up m - 1.
    assert s.suppressed == max(counts[small].sum(), m - 1)
    assert s.n == 600
    # The bound of each group is not below the truth, nor above the number of all suppressed.
    hidden = counts[small] @ rows[small]
    assert (np.array(s.suppressed_groups) >= hidden).all()
    assert max(s.suppressed_groups) <= s.suppressed
    if representative == "upper":
        exact = np.isin(s.values[np.isfinite(s.values)], scores)
        assert not exact.any()
        # A maximum of 0 can be recognised in spite of the rounding, and this is reported.
        assert (s.disclosure.exact_scores > 0) == (kind == "discrete" and m < 30)
        # At each representative, the summary counts no more records than there are up to it.
        for i, row in enumerate(s.membership):
            own = np.sort(scores[(membership == row).all(axis=1)])
            at = s.values[s.start[i] : s.start[i + 1]]
            reached = np.cumsum(s.counts[s.start[i] : s.start[i + 1]])
            assert (np.searchsorted(own, at, side="right") >= reached).all()


def test_the_limit_of_the_score_is_not_passed():
    rng = np.random.default_rng(0)
    scores = np.append(rng.random(99), 1.0)
    one = Groups({"all": "TRUE"})
    s = summarize(
        scores, np.ones((100, 1)), groups=one, client="k", min_count=5, score=gcfcp.scores.THR()
    )
    assert s.values.max() == 1.0
    free = summarize(scores, np.ones((100, 1)), groups=one, client="k", min_count=5)
    assert free.values.max() > 1.0


def test_suppressed_records_do_not_give_away_their_atom():
    """The bound of a group is the same for 0, 1, ..., m - 1 suppressed members."""
    m, groups = 5, Groups(["all", "a", "b"])

    def hiding(small):
        """A summary of 80 records that are described and four that are not."""
        rows = [[1, 0, 0]] * 40 + [[1, 1, 1]] * 40 + small
        scores = np.random.default_rng(0).random(len(rows))
        return summarize(scores, np.array(rows), groups=groups, client="k", min_count=m)

    seen = {(hiding([[1, 1, 0]] * i + [[1, 0, 1]] * (4 - i))).suppressed_groups for i in range(5)}
    assert seen == {(4, 4, 4)}


def test_a_group_that_is_not_there_looks_like_a_rare_one():
    rows = np.array([[1, 0, 0]] * 40 + [[1, 1, 0]] * 3)
    s = summarize(np.arange(43.0), rows, groups=THREE, client="k", min_count=5)
    assert s.suppressed_groups == (4, 4, 4)
    options = {"groups": THREE, "client": "k", "min_count": 5, "absent": ["over_65"]}
    assert summarize(np.arange(43.0), rows, **options).suppressed_groups == (4, 4, 0)


def test_many_suppressed_records_are_bounded_by_what_atoms_can_hold():
    groups = Groups({"all": "TRUE", "a": "a = 1", "b": "b = 1", "c": "c = 1", "d": "d = 1"})
    rows = [[1, *map(int, f"{i:04b}")] for i in range(1, 16) for _ in range(3)] + [
        [1, 0, 0, 0, 0]
    ] * 40
    s = summarize(np.arange(85.0), rows, groups=groups, client="k", min_count=5)
    assert s.suppressed == 45
    # Each of a, b, c and d has 8 possible atoms of up to 4 records, and the true number is 24.
    assert s.suppressed_groups == (45, 32, 32, 32, 32)


def test_everything_suppressed_is_still_a_summary():
    s = summarize([1.0, 2.0], [[1, 0, 0], [1, 1, 0]], groups=THREE, client="k", min_count=5)
    assert (len(s.errors), len(s.values), s.suppressed) == (0, 0, 2)
    assert ClientSummary.from_bytes(s.to_bytes()) == s
    assert s.disclosure.smallest_atom == s.disclosure.smallest_centroid == 0
    assert "no atom is described" in str(s.disclosure)


def test_the_disclosure_is_true():
    scores, membership = records(500)
    for options in [{}, {"min_count": 20}, {"representative": "mean", "delta": 10}]:
        s = summarize(scores, membership, groups=THREE, client="k", **options)
        d = s.disclosure
        counts = np.unique(membership, axis=0, return_counts=True)[1]
        shown = counts[counts >= s.min_count]
        assert (d.client, d.records, d.atoms, d.min_count) == ("k", 500, len(shown), s.min_count)
        assert d.smallest_atom == s.atom_counts.min() <= shown.min()
        assert d.smallest_centroid == s.counts.min()
        assert d.suppressed == s.min_count - 1  # No atom is small.
        assert d.centroids == len(s.values)
        assert d.bytes == len(s.to_bytes())
        held = int(np.isin(s.values, scores).sum())
        assert d.exact_scores == held
        assert f"{d.bytes:,} bytes leave for 500 records" in str(d)
    assert "none holds a record's exact score" in str(summary(500, min_count=20).disclosure)


def test_a_zero_shows_through_the_rounding_and_is_counted():
    s = summarize([0.0] * 50, np.ones((50, 1)), groups=Groups(["all"]), client="k", min_count=5)
    assert s.disclosure.exact_scores == 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    scores=st.lists(st.floats(-10, 10), min_size=1, max_size=80),
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(1, 12),
)
def test_records_are_conserved(scores, seed, m):
    membership = np.random.default_rng(seed).random((len(scores), 3)) < 0.5
    membership[:, 0] = True
    s = summarize(scores, membership, groups=THREE, client="k", min_count=m, delta=7)
    assert int(s.counts.sum()) + s.suppressed == s.n == len(scores)
    assert Fraction(int(s.errors.sum()), s.n) <= 1


def test_its_short_form_shows_no_arrays():
    """Whoever logs a summary writes neither scores nor counts of atoms into the log."""
    shown = repr(summary())
    assert "hospital-a" in shown
    assert "array" not in shown


def test_limits_of_the_fields_of_a_summary():
    made = summary(50)
    assert replace(made, delta=sys.float_info.max).delta == sys.float_info.max
    for members in ((("hospital-a", 49),), (("hospital-a", 51),), (("a", 20), ("b", 29))):
        with pytest.raises(GCFCPError, match="members"):
            replace(made, members=members)
    assert replace(made, parameters={"k": 2**63 - 1}).parameters == {"k": 2**63 - 1}
    for number in (2**63, -(2**63), 2**64, 10**30):
        with pytest.raises(GCFCPError, match="is not between"):
            replace(made, parameters={"k": number})


def test_a_summary_needs_a_record_and_a_min_count():
    for wrong in ({"min_count": 0}, {"n": 0}):
        with pytest.raises(GCFCPError, match="must both be at least 1"):
            replace(summary(50), **wrong)


def test_what_min_count_does_not_hide():
    """The threat model names these exceptions; a reader of a summary finds all of them."""
    groups = gcfcp.Groups(["all", "rare"])
    scores = np.repeat([0.0, 0.3, 1.0, np.inf, 0.5], [20, 20, 20, 20, 3])
    rare = np.arange(len(scores)) >= 80
    told = summarize(
        scores, np.column_stack([~rare, rare]), groups=groups, client="a", min_count=10
    )
    assert np.inf in told.values
    assert told.suppressed == 9  # This would be the same for none to nine records of "rare".
    assert told.disclosure.exact_scores == 1  # A score of 0 shows.
    assert 0.3 not in told.values
    limited = summarize(
        np.ones(20),
        np.ones((20, 2)),
        groups=groups,
        client="a",
        min_count=10,
        score=gcfcp.scores.THR(),
    )
    assert limited.values.tolist() == [1.0]  # Nothing is rounded beyond the score's limit.


DISCRETE = {
    "two decimals": lambda rng: rng.integers(0, 101, 400) / 100,
    "whole numbers": lambda rng: rng.integers(0, 5000, 400).astype(float),
    "zeros and ones": lambda rng: rng.integers(0, 2, 400).astype(float),
    "eighths": lambda rng: rng.integers(-80, 80, 400) / 8,
    "large whole numbers": lambda rng: rng.integers(0, 10**6, 400).astype(float),
    "single precision": lambda rng: rng.normal(size=400).astype(np.float32).astype(float),
    "half precision": lambda rng: rng.normal(size=400).astype(np.float16).astype(float),
    "twelve bits": lambda rng: rng.integers(2048, 4096, 400) / 4096,
    "one value": lambda rng: np.full(400, rng.random()),
}


@pytest.mark.parametrize("by", ["atom", "group"])
@pytest.mark.parametrize("representative", ["mean", "upper"])
@pytest.mark.parametrize("kind", DISCRETE)
def test_no_value_is_a_score_unless_the_disclosure_says_so(kind, representative, by):
    """With 0.1.0, means of equal scores were sent as they are, and scores of up to 12 bits were on
    the grid to which others were rounded."""
    if by == "group" and representative == "mean":
        return  # This is refused.
    for seed in range(5):
        rng = np.random.default_rng(seed)
        scores = DISCRETE[kind](rng)
        membership = np.column_stack([np.ones(400, bool), rng.random((400, 2)) < 0.5])
        s = summarize(
            scores, membership, groups=THREE, client="k", min_count=5, by=by,
            representative=representative,
        )  # fmt: skip
        assert not np.isin(s.values, scores).any()
        zeros = np.count_nonzero((s.values > 0) & (s.values < 1e-300))
        assert s.disclosure.exact_scores == zeros
        assert (zeros > 0) <= (0.0 in scores)
        limited = summarize(
            np.clip(scores, 0, 1), membership, groups=THREE, client="k", min_count=5, by=by,
            representative=representative, score=gcfcp.scores.THR(),
        )  # fmt: skip
        shown = np.isin(limited.values, np.clip(scores, 0, 1))
        assert limited.disclosure.exact_scores >= np.count_nonzero(shown)
        assert "can undo that" in str(limited.disclosure)


def test_means_of_an_older_version_count_as_exact():
    """gcfcp 0.1.0 did not round means, so that each of them may be the score of equal records."""
    old = summarize(np.full(50, 0.1), np.ones((50, 1)), groups=Groups({"all": "TRUE"}), client="k")
    old = replace(old, representative="mean", min_count=5)
    assert old.disclosure.exact_scores == 1


# --- sites as groups, and groups that a client cannot have ----------------------------------------

SITES = Groups(["all", "female", "over_65"], sites=["hospital-a", "hospital-b"])


def header_of(s):
    data = s.to_bytes()
    return json.loads(data[12 : 12 + int.from_bytes(data[8:12], "little")])


def version_of(s):
    return int.from_bytes(s.to_bytes()[6:8], "little")


def some(client="hospital-a", groups=SITES, n=200, seed=0, women=True, **options):
    scores, membership = records(n, seed)
    membership[:, 1] &= women
    return summarize(scores, membership, groups=groups, client=client, **options)


def test_the_site_is_filled_in_from_the_client():
    s = some("hospital-b")
    assert np.array_equal(s.membership[:, 3:], [[False, True]] * len(s.membership))
    assert s.possible.tolist() == [True, True, True, False, True]
    scores, membership = records(200)
    full = SITES.complete(membership, "hospital-b")
    assert summarize(scores, full, groups=SITES, client="hospital-b") == s
    with pytest.raises(GCFCPError, match="row 1 belongs to site hospital-b, but its site is 'hosp"):
        summarize(scores, full, groups=SITES, client="hospital-a")
    with pytest.raises(GCFCPError, match="site='c' is not one of the sites hospital-a, hospital-b"):
        some("c")


def test_declared_groups_are_in_order_and_named_once():
    s = some(groups=THREE, women=False, absent=["female", "female"])
    assert s.absent == ("female",)
    assert s.possible.tolist() == [True, False, True]
    assert not s.possible.flags.writeable
    own = Groups(["a", "b", "c"])
    both = summarize([1.0], [[0, 1, 0]], groups=own, client="k", absent=iter(["c", "a"]))
    assert both.absent == ("a", "c")
    assert summary().absent == ()
    assert summary().possible.all()


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        ("female", r"absent='female' is not a list of groups: give one such as \['all'\]"),
        (None, "absent=None is not a list of groups"),
        (["men"], "absent='men' is not one of the groups all, female, over_65: give the names"),
        ([["all"]], r"absent=\['all'\] is not one of the groups"),
        (["site hospital-b"], "absent='site hospital-b' is the group of a site: leave it out"),
    ],
)
def test_groups_that_cannot_be_declared_absent(absent, words):
    with pytest.raises(GCFCPError, match=words):
        some(absent=absent)


def test_a_record_of_a_group_that_was_declared_absent_is_an_error():
    membership = np.ones((9, 3), bool)
    membership[[0, 1, 2, 5], 2] = False
    words = "5 records belong to group 'over_65', which was declared absent, the first in row 4:"
    with pytest.raises(GCFCPError, match=words):
        summarize(np.arange(9.0), membership, groups=THREE, client="k", absent=["over_65"])
    with pytest.raises(GCFCPError, match="5 records belong to group 'over_65', which was declared"):
        assemble(
            [np.arange(4.0), np.arange(5.0)],
            np.array([[1, 1, 0], [1, 1, 1]], dtype=bool),
            Making(THREE, "k", 5, min_count=7, absent=["over_65"]),
        )


def test_nothing_is_suppressed_in_a_group_that_is_not_possible():
    s = some(min_count=100, women=False, absent=["female"])
    assert s.suppressed > 0
    assert [bool(b) for b in s.suppressed_groups] == [True, False, True, True, False]


def test_only_sites_and_absent_groups_need_the_second_version():
    assert version_of(summary()) == 1
    assert not {"sites", "absent"} & set(header_of(summary()))
    with_sites, with_absent = some(), some(groups=THREE, women=False, absent=["female"])
    assert version_of(with_sites) == version_of(with_absent) == 2
    assert header_of(with_sites)["sites"] == ["hospital-a", "hospital-b"]
    assert header_of(with_sites)["groups"] == list(SITES.names)
    assert header_of(with_sites)["absent"] == header_of(with_absent)["sites"] == []
    assert header_of(with_absent)["absent"] == ["female"]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40),
    declare=st.lists(st.sampled_from(["x", "y", "z"]), max_size=4),
    sites=st.lists(st.sampled_from("abc"), max_size=3, unique=True).map(lambda s: [*s, "k"]),
    with_sites=st.booleans(),
    min_count=st.integers(1, 6),
)
def test_sites_and_absent_groups_survive_the_round_trip(
    rows, declare, sites, with_sites, min_count
):
    groups = Groups(["x", "y", "z"], sites=sites if with_sites else [])
    membership = np.column_stack([rows, np.ones(len(rows), bool)])
    absent = [name for name in declare if not membership[:, "xyz".index(name)].any()]
    s = summarize(
        np.arange(len(rows)) / 7,
        membership,
        groups=groups,
        client="k",
        min_count=min_count,
        absent=absent,
    )
    again = ClientSummary.from_bytes(s.to_bytes())
    assert again == s
    assert again.to_bytes() == s.to_bytes()
    assert again.groups == groups
    assert again.absent == tuple(name for name in "xyz" if name in absent)
    assert np.array_equal(again.possible, s.possible)
    expected = [name not in absent for name in "xyz"] + [site == "k" for site in groups.sites]
    assert s.possible.tolist() == expected
    assert not s.membership[:, ~s.possible].any()
    assert version_of(s) == (2 if absent or with_sites else 1)


def second(s, **fields):
    """As `rewritten`, in version 2 of the format."""
    data = bytearray(rewritten(s, **fields))
    data[6] = 2
    import hashlib

    return bytes(data[:-32]) + hashlib.sha256(data[:-32]).digest()


def test_there_is_one_version_for_each_summary():
    refused(second(summary(40)), "one way")
    refused(second(summary(40), sites=[], absent=[]), "one way")
    refused(rewritten(some(n=40)), "one way")
    refused(rewritten(summary(40), absent=[]), "one way")
    s = some(n=40)
    assert ClientSummary.from_bytes(second(s)) == s
    refused(second(s, absent=...), "one way")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"absent": ["female"]}, "a record belongs to group 'female', which this client cannot"),
        ({"absent": ["over_65", "all"]}, "in their order and each once"),
        ({"absent": ["all", "all"]}, "in their order and each once"),
        ({"absent": ["men"]}, "in their order and each once"),
        ({"absent": ["site hospital-b"]}, "of groups that are not sites"),
        ({"absent": [["all"]]}, "in their order and each once"),
        ({"absent": "all"}, "absent is not a list"),
        ({"absent": None}, "absent is not a list"),
        ({"absent": {}}, "absent is not a list"),
        ({"sites": None}, "not a list"),
        ({"sites": ["hospital-b", "hospital-a"]}, "do not end with the groups of their sites"),
        ({"sites": []}, "fingerprint|one way"),
        ({"client": "hospital-b"}, "a record belongs to group 'site hospital-a'"),
        ({"client": "c"}, "client 'c' is not one of the sites hospital-a, hospital-b: use the"),
        ({"members": [["hospital-a", 20], ["x", 20]]}, "client 'x' is not one of the sites"),
        ({"uncovered": 1, "n": 41}, "does not belong to exactly one site"),
        (
            {"suppressed": 1, "n": 41, "suppressed_groups": [1, 0, 0, 1, 1]},
            "a suppressed record belongs to group 'site hospital-b', which this client cannot have",
        ),
    ],
)  # fmt: skip
def test_a_header_with_other_sites_or_absent_groups_is_refused(fields, words):
    refused(second(some(n=40, delta=5), **fields), words)


def test_an_atom_of_no_site_or_of_two_is_refused():
    s = some(n=40, delta=5)
    for sites in ([False, False], [True, True]):
        membership = s.membership.copy()
        membership[:, 3:] = sites
        with pytest.raises(GCFCPError, match="exactly one site"):
            replace(s, membership=membership)


def test_a_bound_on_a_group_that_was_declared_absent_is_refused():
    s = some(groups=THREE, women=False, absent=["female"], min_count=100)
    bounds = (s.suppressed_groups[0], 1, s.suppressed_groups[2])
    with pytest.raises(GCFCPError, match="a suppressed record belongs to group 'female'"):
        replace(s, suppressed_groups=bounds)


def test_an_aggregate_can_have_what_one_of_its_members_can():
    a = some("hospital-a", women=False, absent=["female"])
    b = some("hospital-b", seed=1)
    region = gcfcp.merge([b, a], "region")
    assert region.absent == ()
    assert region.possible.all()
    assert ClientSummary.from_bytes(region.to_bytes()) == region
    b = some("hospital-b", seed=1, women=False, absent=["female"])
    region = gcfcp.merge([b, a], "region")
    assert region.absent == ("female",)
    assert region.possible.tolist() == [True, False, True, True, True]
    alone = gcfcp.merge([a], "hospital-a")
    assert alone.absent == a.absent
    assert alone.possible.tolist() == [True, False, True, True, False]


def test_what_a_client_says_about_itself_is_disclosed():
    d = some(women=False, absent=["female"]).disclosure
    assert d.absent == ("female",)
    assert d.sites == ("hospital-a",)
    assert "the records belong to the groups of the sites hospital-a\n" in str(d)
    assert str(d).endswith("\n  no record can belong to the groups female")
    assert str(summary().disclosure).endswith("records belong to no group")


def test_thresholds_of_sites_differ():
    groups = Groups(["all"], sites=["a", "b"])
    made = [
        summarize(np.linspace(0, top, 99), np.ones((99, 1)), groups=groups, client=name)
        for name, top in (("a", 1), ("b", 3))
    ]
    calibration = gcfcp.calibrate(made, alpha=0.1)
    thresholds = calibration.thresholds(groups.complete(np.ones((2, 1)), ["a", "b"]))
    assert thresholds[0] < 1 < 2.5 < thresholds[1] < 3


@pytest.mark.parametrize("by", ["atom", "group"])
@pytest.mark.parametrize("min_count", [1, 10])
@pytest.mark.parametrize("score", ["thr", gcfcp.scores.THR(), "residual"])
def test_scores_beyond_the_limits_of_their_definition_are_refused_at_the_site(score, min_count, by):
    """With a min_count the line said "a value of inf is above limit=1.0: raise the limit"."""
    groups = gcfcp.Groups(["all"])
    options = {"groups": groups, "client": "a", "score": score, "by": by, "min_count": min_count}
    for value in (math.inf, -0.5):
        scores = np.full(40, 0.5)
        scores[[3, 7]] = value
        if score == "residual" and value > 0:
            gcfcp.summarize(scores, np.ones((40, 1)), **options)
            continue
        with pytest.raises(GCFCPError, match=r"^2 scores are not from 0 to .* in row 4; corr"):
            gcfcp.summarize(scores, np.ones((40, 1)), **options)
