"""Prediction from one small file: it is exact to the last bit, needs only NumPy, and everything
that is read from the file is checked."""

import hashlib
import json
import math
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import gcfcp
from gcfcp import GCFCPError, GCFCPWarning, Groups, Predictor, calibrate, methods, summarize
from gcfcp.scores import APS, CQR, RAPS, THR, AbsoluteResidual
from gcfcp.thresholds import SeenOnly
from without import BESIDE_NUMPY, run_without

GROUPS = Groups(["all", "even", "late"])
L = 5


def data(n, seed=0):
    """Probabilities, labels and memberships of n records."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(L, 0.5), size=n)
    labels = np.array([rng.choice(L, p=p) for p in probabilities])
    best = probabilities.argmax(axis=1)
    membership = np.column_stack([np.ones(n, dtype=bool), best % 2 == 0, best >= 3])
    return probabilities, labels, membership


def calibrated(score, n=400, alpha=0.1, clients=2, rule="simultaneous", merge="pool", **options):
    told = []
    for k in range(clients):
        probabilities, labels, membership = data(n, k)
        rng = np.random.default_rng(k)
        if isinstance(score, AbsoluteResidual | CQR):
            prediction = probabilities[:, :2].cumsum(axis=1) if isinstance(score, CQR) else labels
            scores = score.of(prediction, labels + rng.normal(size=n))
        elif isinstance(score, str):
            scores = 1 - probabilities[np.arange(n), labels]
        else:
            scores = score.of(probabilities, labels, rng=rng)
        options = {"delta": 50} | options
        told.append(
            summarize(scores, membership, groups=GROUPS, client=f"k{k}", score=score, **options)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GCFCPWarning)
        return calibrate(told, alpha, rule=rule, merge=merge)


EVERY_ROW = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)][1:], dtype=bool)


# --- Sets and intervals ---------------------------------------------------------------------------


@pytest.mark.parametrize("score", [THR(), APS(), APS(randomized=False), RAPS(lam=0.1, k_reg=2)])
def test_a_label_is_in_the_set_iff_its_score_is_at_most_the_threshold(score):
    predictor = Predictor(score, calibrated(score))
    probabilities, _, membership = data(300, 7)
    sets = predictor.predict_set(probabilities, membership, rng=np.random.default_rng(1))
    every = score.all(probabilities, rng=np.random.default_rng(1))
    assert np.array_equal(sets, every <= predictor.thresholds(membership)[:, None])
    assert sets.dtype == bool
    assert sets.shape == (300, L)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 4, 5, 97, 3_000])
@pytest.mark.parametrize("method", ["simultaneous", "max", "constant", "with a shape"])
def test_the_least_probability_in_a_set_gives_the_sets_of_the_scores(method, n, dtype):
    """Predictors compare probabilities with a number that is kept for each atom."""
    score = THR()
    if method == "constant":
        probabilities, labels, membership = data(400)
        made = methods.split_cp([(score.of(probabilities, labels), membership)], 0.1)
    elif method == "with a shape":
        shape = gcfcp.Shape(GROUPS, (0.25, 0.5, -0.125))
        made = calibrated(score, rule="max", by="group", shape=shape)
    else:
        made = calibrated(score, rule=method)
    predictor = Predictor(score, made)
    probabilities = data(n, 3)[0].astype(dtype)
    rng = np.random.default_rng(n)
    membership = EVERY_ROW[rng.integers(len(EVERY_ROW), size=n)]  # Some atoms were never seen.
    thresholds = predictor.thresholds(membership)
    # Ties with the threshold are where a comparison in another form could go wrong.
    tied = (thresholds >= 0) & (thresholds <= 1)
    probabilities[tied, 0] = 1 - thresholds[tied]
    probabilities[tied, 1] = thresholds[tied]
    probabilities[tied, 2:] = 0
    sets = predictor.predict_set(probabilities, membership)
    assert np.array_equal(sets, score.all(probabilities) <= thresholds[:, None])
    assert n < 97 or 0 < sets.mean() < 1


@pytest.mark.parametrize("atoms", [2, 127])
def test_a_table_made_by_hand_is_checked(atoms):
    """Few thresholds and many are inverted in other ways."""
    groups = Groups([f"g{i}" for i in range(7)])
    rows = np.array([[k >> i & 1 for i in range(7)] for k in range(1, atoms + 1)], dtype=bool)
    thresholds = np.linspace(0.2, 0.9, atoms, dtype=np.float32)
    p = np.column_stack([1.0 - thresholds.astype(float), thresholds])
    made = gcfcp.ThresholdTable(groups, Fraction(1, 10), rows, thresholds, SeenOnly())
    assert np.array_equal(Predictor(THR(), made).predict_set(p, rows), 1 - p <= thresholds[:, None])
    thresholds[1] = np.nan
    with pytest.raises(GCFCPError, match=f"1 of {atoms} thresholds are NaN"):
        Predictor(THR(), made).predict_set(p, rows)


def test_rows_in_no_group_are_warned_of_where_sets_are_made():
    predictor = Predictor(THR(), calibrated(THR()))
    with pytest.warns(GCFCPWarning, match="1 row belongs to no group"):
        sets = predictor.predict_set(data(1)[0], np.zeros((1, 3), dtype=bool))
    assert sets.all()


def test_intervals():
    score = AbsoluteResidual()
    predictor = Predictor(score, calibrated(score))
    _, _, membership = data(50, 7)
    f = np.linspace(-1, 1, 50)
    intervals = predictor.predict_interval(f, membership)
    t = predictor.thresholds(membership)
    assert intervals == pytest.approx(np.column_stack([f - t, f + t]))
    cqr = Predictor(CQR(), calibrated(CQR()))
    pairs = np.column_stack([f, f + 1])
    t = cqr.thresholds(membership)
    assert cqr.predict_interval(pairs, membership) == pytest.approx(
        pairs + np.column_stack([-t, t])
    )


def test_infinite_thresholds_give_everything():
    few = calibrated(THR(), n=3)
    assert all(math.isinf(r.threshold) for r in few.table)
    probabilities, _, membership = data(20, 3)
    assert Predictor(THR(), few).predict_set(probabilities, membership).all()
    few = calibrated(AbsoluteResidual(), n=3)
    intervals = Predictor(AbsoluteResidual(), few).predict_interval(np.zeros(20), membership)
    assert intervals.tolist() == [[-math.inf, math.inf]] * 20


def test_groups_may_depend_on_the_label():
    predictor = Predictor(THR(), calibrated(THR()))
    probabilities, _, _ = data(40, 9)
    membership = np.random.default_rng(0).random((40, L, 3)) < 0.5
    membership[..., 0] = True
    sets = predictor.predict_set(probabilities, membership)
    for y in range(L):
        alone = predictor.predict_set(probabilities, membership[:, y])
        assert np.array_equal(sets[:, y], alone[:, y])


@pytest.mark.parametrize("score", [THR(), APS(), RAPS(), "own"])
def test_an_empty_set_gets_the_best_label_if_asked(score):
    predictor = Predictor(score, calibrated(score, alpha=0.9))
    probabilities, _, membership = data(200, 5)
    given = 1 - probabilities if isinstance(score, str) else probabilities
    rng = [np.random.default_rng(2) for _ in range(2)]
    sets = predictor.predict_set(given, membership, rng=rng[0])
    filled = predictor.predict_set(given, membership, rng=rng[1], allow_empty=False)
    empty = ~sets.any(axis=1)
    assert empty.any()
    assert np.array_equal(sets[~empty], filled[~empty])
    assert filled[empty].sum(axis=1).tolist() == [1] * int(empty.sum())
    assert np.array_equal(filled[empty].argmax(axis=1), probabilities[empty].argmax(axis=1))


class Distance:
    """A score that is not part of the library: the distance of a label from a real prediction."""

    name = "distance"

    def __init__(self, scale=1.0):
        self.parameters = {"scale": scale}

    def all(self, prediction, rng=None):
        return self.parameters["scale"] * np.abs(np.arange(L) - np.asarray(prediction)[:, None])

    def of(self, prediction, y, rng=None):
        return self.all(prediction)[np.arange(len(y)), y]

    def predict(self, prediction, thresholds, rng=None):
        return self.all(prediction) <= np.reshape(thresholds, (len(thresholds), -1))


def own_calibration(score):
    rng = np.random.default_rng(0)
    prediction = rng.uniform(0, L - 1, size=300)
    labels = np.clip(np.rint(prediction + rng.normal(size=300)), 0, L - 1).astype(int)
    _, _, membership = data(300)
    told = summarize(
        score.of(prediction, labels), membership, groups=GROUPS, client="k", score=score
    )
    return calibrate([told], 0.2)


def test_a_score_of_ones_own(tmp_path):
    score, (_, _, membership) = Distance(2.0), data(30, 1)
    predictor = Predictor(score, own_calibration(score))
    prediction = np.linspace(-3, 7, 30)
    sets = predictor.predict_set(prediction, membership)
    assert np.array_equal(sets, score.all(prediction) <= predictor.thresholds(membership)[:, None])
    filled = predictor.predict_set(prediction, membership, allow_empty=False)
    assert filled[0].tolist() == [True, False, False, False, False]
    assert filled[-1].tolist() == [False, False, False, False, True]
    predictor.save(tmp_path / "p.json")
    # Loaded without the object, the predictor takes a matrix of scores. Loaded with it, the
    # predictor takes predictions, as before.
    named = Predictor.load(tmp_path / "p.json")
    assert named.score == "distance"
    assert np.array_equal(named.predict_set(score.all(prediction), membership), sets)
    again = Predictor.load(tmp_path / "p.json", score=Distance(2.0))
    assert np.array_equal(again.predict_set(prediction, membership), sets)
    with pytest.raises(GCFCPError, match=r"made for score 'distance' \{'scale': 2.0\}, not for"):
        Predictor.load(tmp_path / "p.json", score=Distance(3.0))
    with pytest.raises(GCFCPError, match="not for 'thr'"):
        Predictor.load(tmp_path / "p.json", score=THR())
    with pytest.raises(GCFCPError, match="only a name and cannot be inverted"):
        named.predict_interval(prediction, membership)


def test_a_score_that_cannot_rank_labels_says_so():
    class Bare:
        name = "bare"

        def of(self, prediction, y, rng=None):
            return np.asarray(prediction)

        def predict(self, prediction, thresholds, rng=None):
            return np.zeros((len(prediction), 2), dtype=bool)

    told = summarize(np.arange(50.0), np.ones((50, 3)), groups=GROUPS, client="k", score=Bare())
    predictor = Predictor(Bare(), calibrate([told], 0.1))
    assert not predictor.predict_set(np.zeros(3), np.ones((3, 3))).any()
    with pytest.raises(GCFCPError, match="'bare' has no `all"):
        predictor.predict_set(np.zeros(3), np.ones((3, 3)), allow_empty=False)


def test_the_name_of_a_score_is_the_score():
    calibration = calibrated(RAPS(lam=0.1, k_reg=1, randomized=False))
    predictor = Predictor("raps", calibration)
    assert predictor.score == RAPS(lam=0.1, k_reg=1, randomized=False)
    assert Predictor.from_json(predictor.to_json()).score == predictor.score


# --- What is refused ------------------------------------------------------------------------------


def test_what_does_not_fit_is_an_error():
    calibration = calibrated(THR())
    probabilities, _, membership = data(10)
    predictor = Predictor(THR(), calibration)
    for wrong, words in [
        (lambda: Predictor(APS(), calibration), "summarised with score 'thr' .*given 'aps'"),
        (lambda: Predictor("other", calibration), "summarised with score 'thr'"),
        (lambda: Predictor(None, calibration), "score=None is neither"),
        (lambda: Predictor(7, calibration), "score=7 is neither"),
        (lambda: Predictor(THR(), 5), "int holds no thresholds"),
        (lambda: Predictor(THR(), None), "NoneType holds no thresholds"),
        (lambda: predictor.predict_set(probabilities[:9], membership), "9 predictions and 10"),
        (lambda: predictor.predict_set(0.5, membership), "1 predictions and 10"),
        (lambda: predictor.predict_interval(probabilities, membership), "use predict_set"),
        (lambda: predictor.predict_set(probabilities * 2, membership), "sum to 2"),
        (lambda: predictor.predict_set(probabilities, membership[:, :2]), "2 columns for 3 groups"),
        (lambda: Predictor(RAPS(lam=1), calibrated(RAPS())), "use the same"),
        (
            lambda: Predictor(AbsoluteResidual(), calibrated(AbsoluteResidual())).predict_set(
                np.zeros(10), membership
            ),
            "use predict_interval",
        ),
    ]:
        with pytest.raises(GCFCPError, match=words) as error:
            wrong()
        assert "\n" not in str(error.value)


def test_matrices_of_scores_are_checked():
    predictor = Predictor("own", calibrated("own"))
    _, _, membership = data(4)
    with pytest.raises(GCFCPError, match=r"shape \(4,\)"):
        predictor.predict_set(np.zeros(4), membership)
    with pytest.raises(GCFCPError, match="1 NaN"):
        predictor.predict_set([[0.0, math.nan]] + [[0.0, 0.0]] * 3, membership)


# --- The file -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "options"),
    [
        (THR(), {}),
        (APS(randomized=False), {"merge": "recompress"}),
        (RAPS(), {"rule": "max"}),
        (AbsoluteResidual(), {"n": 3}),
        (THR(), {"min_count": 12}),
        (THR(), {"n": 60, "min_count": 12}),
        ("own", {"representative": "mean"}),
        (CQR(), {"alpha": 1 / 3}),
    ],
)
@pytest.mark.parametrize("coreset", [False, True])
def test_the_round_trip_is_exact(score, options, coreset, tmp_path):
    predictor = Predictor(score, calibrated(score, **options))
    predictor.save(tmp_path / "p.json", coreset=coreset)
    loaded = Predictor.load(tmp_path / "p.json")
    # Saved again, the text is the same.
    assert loaded.to_json(coreset=coreset) == predictor.to_json(coreset=coreset)
    assert loaded.score == predictor.score
    assert loaded.groups.fingerprint == GROUPS.fingerprint
    a, b = predictor.table, loaded.table
    assert (a.alpha, a.rule) == (b.alpha, b.rule)
    # Atoms that were not seen have the same thresholds to the last bit before and after loading,
    # also where records were suppressed, and whether they were solved before or after.
    assert predictor.thresholds(EVERY_ROW).tobytes() == loaded.thresholds(EVERY_ROW).tobytes()
    assert predictor.thresholds(a.membership).tobytes() == a.thresholds_by_atom.tobytes()
    if not coreset:
        assert [r.groups for r in loaded.atoms] == [loaded.groups.names_of(r) for r in b.membership]
        assert {(r.count, r.weight) for r in loaded.atoms} == {(None, None)}
        return
    assert loaded.records == predictor.records
    assert a.thresholds_by_atom.tobytes() == b.thresholds_by_atom.tobytes()
    if a.rule == "simultaneous" and a.source.charge is None:
        rng = [np.random.default_rng(0), np.random.default_rng(0)]
        rows = np.repeat(EVERY_ROW, 20, axis=0)
        assert np.array_equal(predictor.thresholds(rows, rng[0]), loaded.thresholds(rows, rng[1]))


def test_a_predictor_knows_what_each_client_weighs():
    weighed = calibrated(THR()).retarget(mixture={"k0": 0.25, "k1": 0.75})
    predictor = Predictor(THR(), weighed)
    for one in (predictor, Predictor.from_json(predictor.to_json())):
        assert [one.share_of(client) for client in ("k0", "k1", "k2")] == [0.25, 0.75, None]
    assert Predictor(THR(), predictor.threshold_table).share_of("k0") is None


@pytest.mark.parametrize(
    "clients",
    [
        None,
        "k0",
        [["k0", 0.5]],
        [{"client": "k0"}],
        *([{"client": "k0", "share": x}] for x in (-0.1, 1.1, 10**400, "0.5", "inf", True, [0.5])),
        [{"client": "k0", "share": 0.5}, {"client": "k0", "share": 0.5}],
    ],
)
def test_a_weight_that_a_file_does_not_give_clearly_is_not_known(clients):
    data = json.loads(Predictor(THR(), calibrated(THR())).to_json())
    data["provenance"]["clients"] = clients
    assert Predictor.from_json(json.dumps(data)).share_of("k0") is None


def test_the_file_can_be_read_by_people(tmp_path):
    predictor = Predictor(THR(), calibrated(THR(), model="sha256:12", merge="recompress"))
    text = predictor.to_json()
    read = json.loads(text)
    assert read["format"] == "gcfcp predictor"
    assert read["version"] == 3
    assert read["score"] == {"name": "thr", "parameters": {}}
    assert read["alpha"] == "1/10"
    assert read["groups"]["names"] == ["all", "even", "late"]
    assert read["covers"] == "all"
    listed = {tuple(entry["groups"]): entry["threshold"] for entry in read["table"]}
    assert len(listed) == len(read["table"]) == 7
    for record in predictor.calibration.table:
        assert listed[record.groups] == record.threshold
    provenance = read["provenance"]
    assert (provenance["alpha"], provenance["mixture"]) == (0.1, "proportional")
    assert (provenance["merge"], provenance["recompression_delta"]) == ("recompress", 50.0)
    assert provenance["model"] == "sha256:12"
    assert [c["client"] for c in provenance["clients"]] == ["k0", "k1"]
    assert [c["n"] for c in provenance["clients"]] == [400, 400]
    assert [g["group"] for g in provenance["guarantee"]] == ["all", "even", "late"]
    infinite = Predictor(THR(), calibrated(THR(), n=3)).to_json()
    assert '"threshold": "inf"' in infinite
    assert "group 'all' has too few records for alpha=0.1" in infinite
    assert "has 6 records and needs" in Predictor(THR(), calibrated(THR(), n=3)).to_json(
        coreset=True
    )
    assert "NaN" not in infinite
    assert "Infinity" not in infinite


def test_the_coreset_is_left_out_unless_it_is_asked_for(tmp_path):
    predictor = Predictor(THR(), calibrated(THR()))
    predictor.save(tmp_path / "small.json")
    predictor.save(tmp_path / "whole.json", coreset=True)
    small = Predictor.load(tmp_path / "small.json")
    assert (tmp_path / "small.json").stat().st_size < (tmp_path / "whole.json").stat().st_size / 2
    assert np.array_equal(small.thresholds(EVERY_ROW), predictor.thresholds(EVERY_ROW))
    with pytest.raises(GCFCPError, match="loaded from a file without it: calibrate again"):
        small.to_json(coreset=True)
    with pytest.raises(GCFCPError, match="randomised thresholds need the coreset"):
        small.thresholds(EVERY_ROW, threshold_rng=np.random.default_rng(0))
    with pytest.warns(GCFCPWarning, match="1 row belongs to no group"):
        assert small.thresholds([[0, 0, 0]]).tolist() == [math.inf]
    largest = Predictor(THR(), calibrated(THR(), rule="max"))
    small = Predictor.from_json(largest.to_json(coreset=False))  # This rule needs no coreset.
    assert np.array_equal(small.thresholds(EVERY_ROW), largest.thresholds(EVERY_ROW))


def test_every_method_makes_a_predictor(tmp_path):
    clients = []
    for k in range(2):
        probabilities, labels, membership = data(200, k)
        clients.append((THR().of(probabilities, labels), membership))
    probabilities, _, membership = data(20, 9)
    for method in (methods.split_cp, methods.fedcp, methods.gcfcp, methods.mondrian_fedcp):
        result = method(clients, 0.1)
        predictor = Predictor(THR(), result)
        loaded = Predictor.from_json(predictor.to_json())
        assert loaded.provenance == json.loads(json.dumps(predictor.provenance))
        assert np.array_equal(
            loaded.predict_set(probabilities, membership),
            probabilities >= 1 - result.thresholds(membership)[:, None],
        )


# --- Files that are refused -----------------------------------------------------------------------


def altered(**changes):
    read = json.loads(Predictor(THR(), calibrated(THR(), n=60)).to_json(coreset=True))
    return _altered(read, changes)


def altered_public(**changes):
    return _altered(json.loads(Predictor(THR(), calibrated(THR(), n=60)).to_json()), changes)


def _altered(read, changes):
    for path, value in changes.items():
        *parents, last = [int(k) if k.isdigit() else k for k in path.split("__")]
        where = read
        for key in parents:
            where = where[key]
        if value is ...:
            del where[last]
        else:
            where[last] = value
    return json.dumps(read)


HOSTILE = [
    {"format": "gcfcp summary"},
    {"version": 2},
    {"version": 3},
    {"version": 4},
    {"version": "1"},
    {"table__0__count": None},
    {"score__name": "a\x00b"},
    {"score__name": ["thr"]},
    {"score": None},
    {"score__parameters": {"lam": 1}},
    {"score__name": "raps", "score__parameters": {"lam": -1}},
    {"score__parameters": 5},
    {"alpha": 0.1},
    {"alpha": "0.1"},
    {"alpha": "1/0"},
    {"alpha": "11/10"},
    {"alpha": "0/10"},
    {"alpha": "1e-999999999"},
    {"alpha": "-1/10"},
    {"alpha": "9" * 100_000 + "/" + "9" * 100_001},
    {"rule": "median"},
    {"rule": ["max"]},
    {"rule": "max"},
    {"rule": "constant", "table": []},
    {"groups__fingerprint": "0" * 64},
    {"groups__names": ["all", "even"]},
    {"groups__names": ["all", "even", "even"]},
    {"groups__predicates": ["TRUE"]},
    {"groups": []},
    {"table": None},
    {"table": {}},
    {"table__0": 5},
    {"table__0__threshold": "nan"},
    {"table__0__threshold": None},
    {"table__0__threshold": "1.0"},
    {"table__0__threshold": True},
    {"table__0__threshold": 10**400},
    {"table__0__groups": ["nobody"]},
    {"table__0__groups": []},
    {"table__0__groups": None},
    {"table__0__groups": [["all"]]},
    {"table__0__count": -1},
    {"table__0__count": 1.5},
    {"table__0__weight": "inf"},
    {"table__0__reason": 5},
    {"group_thresholds": [1.0, 2.0, 3.0]},
    {"group_thresholds": [1.0], "rule": "max"},
    {"group_thresholds": "abc", "rule": "max"},
    {"hopeless": ["nobody"]},
    {"hopeless": 5},
    {"provenance": []},
    {"coreset__test": 0},
    {"coreset__test": -1},
    {"coreset__test": "inf"},
    {"coreset__atoms": []},
    {"coreset__atoms": None},
    {"coreset__atoms__0__values": []},
    {"coreset__atoms__0__values": [2.0, 1.0], "coreset__atoms__0__weights": [1, 1]},
    {"coreset__atoms__0__values": ["inf", "inf"], "coreset__atoms__0__weights": [1, 1]},
    {"coreset__atoms__0__values": ["-inf", 1], "coreset__atoms__0__weights": [1, 1]},
    {"coreset__atoms__0__values": [1, 2], "coreset__atoms__0__weights": [1]},
    {"coreset__atoms__0__values": [1, 2], "coreset__atoms__0__weights": [1, 0]},
    {"coreset__atoms__0__values": [1, 2], "coreset__atoms__0__weights": [1e308, 1e308]},
    {"coreset__atoms__0__values": [1, 2], "coreset__atoms__0__weights": [1, "inf"]},
    {"coreset__atoms__0__groups": []},
    {"coreset__atoms__0__groups": ["all", "even", "late", "nobody"]},
    {"coreset__carriers": [True]},
    {"coreset__carriers": "abc"},
    {"coreset__carriers": 5},
    *({key: ...} for key in ("format", "version", "score", "groups", "alpha", "rule", "table",
                             "group_thresholds", "coreset", "hopeless", "provenance")),
]  # fmt: skip


HOSTILE_PUBLIC = [
    {"version": 1},
    {"version": 2},
    {"coreset": None},
    {"hopeless": None},
    {"note": "x"},
    {"covers": ...},
    {"covers": "some"},
    {"covers": True},
    {"by": ...},
    {"by": "group"},
    {"shape": ...},
    {"shape": {"coefficients": [0, 0, 0], "sources": []}},
    {"table": {}},
    {"table__0": 5},
    {"table__0__count": 5},
    {"table__0__weight": 0.5},
    {"table__0__reason": 5},
    {"table__0__groups": []},
    {"table__0__groups": ["nobody"]},
    {"table__0__threshold": "nan"},
    {"table__1__groups": ["late"]},
    {"group_thresholds": [1.0, 2.0, 3.0]},
    {"rule": "max"},
    {"rule": "max", "group_thresholds": [1.0, 2.0]},
    {"rule": "max", "group_thresholds": [1.0, 2.0, 3.0], "covers": "seen"},
    {"rule": "constant", "table": []},
    {"rule": "constant", "covers": "seen"},
]


@pytest.mark.few(40)
@pytest.mark.parametrize(
    ("make", "changes"),
    [(altered, c) for c in HOSTILE] + [(altered_public, c) for c in HOSTILE_PUBLIC],
    ids=lambda c: str(c)[:60] if isinstance(c, dict) else c.__name__,
)
def test_a_hostile_file_is_one_error(make, changes):
    with pytest.raises(GCFCPError) as error:
        Predictor.from_json(make(**changes), "p.json")
    message = str(error.value)
    assert message.startswith("p.json ")
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "5",
        '"x"',
        "[" * 10**5,
        "{}",
        b"\xff\xfe",
        '{"format": NaN}',
        b"GCFCPS",
    ],
    ids=repr,
)
def test_what_is_no_predictor_is_refused(text):
    with pytest.raises(GCFCPError, match=r"is not a predictor|is a summary, but a predictor is"):
        Predictor.from_json(text)


@pytest.mark.slow
def test_a_small_file_cannot_ask_for_a_large_matrix():
    """The matrix of atoms and groups grows with the square of the file that lists both."""
    names = [f"g{i:05d}" for i in range(20_000)]
    groups = Groups(names)
    read = json.loads(altered())
    read["groups"] = {"names": names, "predicates": None, "fingerprint": groups.fingerprint}
    read["table"] = [{"groups": [name], "threshold": 1} for name in names]
    read["coreset"] = None
    text = json.dumps(read)
    tracemalloc.start()
    with pytest.raises(GCFCPError, match="20000 atoms of 20000 groups are more than a file of"):
        Predictor.from_json(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * len(text)


# --- Without other libraries, and in many threads -------------------------------------------------


def test_numpy_alone_loads_and_predicts(tmp_path):
    predictor = Predictor(THR(), calibrated(THR()))
    predictor.save(tmp_path / "p.json")
    probabilities, _, _ = data(7, 3)
    np.savez(
        tmp_path / "d.npz",
        p=probabilities,
        m=EVERY_ROW,
        sets=predictor.predict_set(probabilities, EVERY_ROW),
    )
    program = """
import numpy as np, gcfcp
d = np.load("d.npz")
sets = gcfcp.Predictor.load("p.json").predict_set(d["p"], d["m"])
assert np.array_equal(sets, d["sets"])
print("the same")
"""
    run = run_without(BESIDE_NUMPY, program, cwd=tmp_path)
    assert run.stdout == "the same\n", run.stderr


def test_many_threads_predict_the_same(tmp_path):
    predictor = Predictor(THR(), calibrated(THR()))
    text = predictor.to_json()
    probabilities, _, _ = data(700, 4)
    membership = np.repeat(EVERY_ROW, 100, axis=0)
    expected = predictor.predict_set(probabilities, membership)
    shared = Predictor.from_json(text)
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(shared.predict_set, probabilities, membership) for _ in range(24)]
        assert all(np.array_equal(job.result(), expected) for job in jobs)


def test_the_library_that_wrote_a_file_is_named():
    read = json.loads(Predictor(THR(), calibrated(THR(), n=60)).to_json())
    assert read["library"] == f"gcfcp {gcfcp.__version__}"


# --- Two kinds of randomness ----------------------------------------------------------------------


def test_randomised_thresholds_and_randomised_scores_have_a_generator_each():
    """`rng` draws the scores and `threshold_rng` the thresholds, and the sets follow from both."""
    rng = np.random.default_rng(0)
    groups = gcfcp.Groups(["all", "half"])
    membership = np.column_stack([np.ones(300, bool), rng.random(300) < 0.5])
    p = rng.dirichlet(np.ones(4), 300)
    y = rng.integers(4, size=300)
    score = gcfcp.scores.APS()
    told = gcfcp.summarize(
        score.of(p, y, rng=rng), membership, groups=groups, client="a", delta=5000, score=score
    )
    predictor = gcfcp.Predictor(score, gcfcp.calibrate([told], 0.2))

    def sets(scores, thresholds):
        chosen = None if thresholds is None else np.random.default_rng(thresholds)
        return predictor.predict_set(
            p, membership, np.random.default_rng(scores), threshold_rng=chosen
        )

    plain = predictor.thresholds(membership)
    drawn = predictor.thresholds(membership, threshold_rng=np.random.default_rng(7))
    every = score.all(p, rng=np.random.default_rng(3))
    assert np.array_equal(sets(3, None), every <= plain[:, None])
    assert np.array_equal(sets(3, 7), every <= drawn[:, None])
    assert (drawn <= plain).all()
    assert (drawn < plain).any()
    assert not np.array_equal(sets(3, 7), sets(4, 7))
    assert not np.array_equal(sets(3, 7), sets(3, 8))


def test_intervals_from_randomised_thresholds():
    rng = np.random.default_rng(1)
    groups = gcfcp.Groups(["all"])
    told = gcfcp.summarize(
        rng.exponential(size=60), np.ones((60, 1)), groups=groups, client="a", score="residual"
    )
    predictor = gcfcp.Predictor(gcfcp.scores.AbsoluteResidual(), gcfcp.calibrate([told], 0.2))
    rows = np.ones((50, 1), bool)
    drawn = predictor.thresholds(rows, threshold_rng=np.random.default_rng(5))
    intervals = predictor.predict_interval(
        np.zeros(50), rows, threshold_rng=np.random.default_rng(5)
    )
    empty = drawn < 0
    assert np.isnan(intervals[empty]).all()
    assert np.array_equal(intervals[~empty, 1], drawn[~empty])
    assert len(np.unique(drawn)) > 1


# --- Names ----------------------------------------------------------------------------------------


def test_the_older_names_mean_the_same():
    groups = gcfcp.Groups(["all"])
    told = gcfcp.summarize(np.arange(30.0), np.ones((30, 1)), groups=groups, client="a")
    calibration = gcfcp.calibrate([told], 0.2)
    predictor = gcfcp.Predictor("own", calibration)
    assert calibration.table is calibration.atoms
    assert predictor.records is predictor.atoms is calibration.atoms
    assert predictor.table is predictor.threshold_table is calibration.threshold_table


def test_a_predictor_knows_the_fingerprint_of_its_file(tmp_path):
    groups = gcfcp.Groups(["all"])
    told = gcfcp.summarize(np.arange(30.0), np.ones((30, 1)), groups=groups, client="a")
    predictor = gcfcp.Predictor("own", gcfcp.calibrate([told], 0.2))
    for coreset in (True, False):
        predictor.save(tmp_path / "p.json", coreset=coreset)
        expected = hashlib.sha256((tmp_path / "p.json").read_bytes()).hexdigest()
        assert gcfcp.Predictor.load(tmp_path / "p.json").fingerprint == expected
        assert (predictor.fingerprint == expected) == (not coreset)


def test_a_score_that_is_only_named_keeps_its_parameters(tmp_path):
    """Whoever has the score itself can then use the file: name and parameters are the same."""

    class Scaled:
        name = "scaled"
        parameters = {"power": 2}  # noqa: RUF012

        def of(self, prediction, y, rng=None):
            return np.abs(np.asarray(y) - np.asarray(prediction))

        def predict(self, prediction, thresholds, rng=None):
            f = np.asarray(prediction)
            return np.stack([f - thresholds, f + thresholds], axis=1)

    groups = gcfcp.Groups(["all"])
    told = gcfcp.summarize(
        np.arange(30.0), np.ones((30, 1)), groups=groups, client="a", score=Scaled()
    )
    by_name = gcfcp.Predictor(told.score, gcfcp.calibrate([told], 0.2))
    by_name.save(tmp_path / "p.json")
    with_score = gcfcp.Predictor.load(tmp_path / "p.json", score=Scaled())
    assert with_score.predict_interval([0.0], [[1]]).tolist() == [[-24.0, 24.0]]
    again = gcfcp.Predictor.load(tmp_path / "p.json")
    assert again.to_json() == by_name.to_json() == with_score.to_json()


def test_a_family_of_very_many_crossing_groups_can_be_saved_and_loaded(tmp_path):
    """No weight of the test point is known to be enough, so that every threshold is infinite."""
    rng = np.random.default_rng(0)
    groups = Groups([f"g{i}" for i in range(100)])
    rows = rng.random((150, 100)) < 0.5
    told = [
        gcfcp.summarize(rng.random(300), np.repeat(rows, 2, axis=0), groups=groups, client=name)
        for name in ("a", "b")
    ]
    with pytest.warns(gcfcp.GCFCPWarning, match="rule='max' makes it finite"):
        calibration = gcfcp.calibrate(told, 0.2)
    predictor = Predictor("own", calibration)
    predictor.save(tmp_path / "p.json")
    loaded = Predictor.load(tmp_path / "p.json")
    assert np.isposinf(loaded.thresholds(rows[:3])).all()
    assert loaded.to_json() == predictor.to_json()
    assert np.isfinite(gcfcp.calibrate(told, 0.2, rule="max").thresholds(rows)).all()
