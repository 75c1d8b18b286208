"""A score and its inverse agree to the last bit; formulas agree with MAPIE and with loops."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapie.conformity_scores import (
    AbsoluteConformityScore,
    APSConformityScore,
    LACConformityScore,
)

import gcfcp
from gcfcp import scores
from gcfcp.errors import GCFCPError
from gcfcp.scores import APS, CQR, RAPS, THR, AbsoluteResidual, Score, from_name

SETS = [
    THR(),
    APS(),
    APS(randomized=False),
    RAPS(lam=0.1, k_reg=2),
    RAPS(lam=0.03, k_reg=0, randomized=False),
]
INTERVALS = [AbsoluteResidual(), CQR()]
seeds = st.integers(0, 2**32 - 1)


def probabilities(n, L, seed=0, dtype=np.float64):
    """Rows of probabilities, with ties and zeros among them as in those of real models."""
    rng = np.random.default_rng([seed, n, L])
    p = rng.dirichlet(np.full(L, 0.5), n)
    p[::3] = rng.integers(0, 4, p[::3].shape) + np.eye(L)[rng.integers(0, L, len(p[::3]))]
    return (p / p.sum(axis=1, keepdims=True)).astype(dtype)


def rng(seed=0):
    return np.random.default_rng(seed)


# --- sets -------------------------------------------------------------------------------------


@pytest.mark.few(5)
@pytest.mark.parametrize("score", SETS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(seed=seeds, L=st.integers(1, 12))
@settings(derandomize=True, deadline=None, max_examples=15)
def test_a_label_is_in_the_set_if_and_only_if_its_score_is_at_most_t(score, dtype, seed, L):
    p = probabilities(9, L, seed, dtype)
    every = score.all(p, rng(seed))
    for y in range(L):
        own = score.of(p, np.full(len(p), y), rng(seed))
        np.testing.assert_array_equal(own, every[:, y])
        for t in (own, np.nextafter(own, -np.inf), np.nextafter(own, np.inf)):
            sets = score.predict(p, t, rng(seed))
            assert sets.dtype == bool
            np.testing.assert_array_equal(sets, every <= t[:, None])


@pytest.mark.parametrize("score", SETS, ids=repr)
def test_blocks_do_not_show(score, monkeypatch):
    p = probabilities(500, 7)
    t = rng(3).random(500)
    y = rng(4).integers(0, 7, 500)
    whole = score.all(p, rng()), score.of(p, y, rng()), score.predict(p, t, rng())
    monkeypatch.setattr(scores, "_BLOCK", 20)
    blocked = score.all(p, rng()), score.of(p, y, rng()), score.predict(p, t, rng())
    for one, other in zip(whole, blocked, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("score", SETS, ids=repr)
def test_sets_grow_with_the_threshold(score):
    p = probabilities(60, 8)
    previous = score.predict(p, -np.inf, rng())
    assert not previous.any()
    for t in [-1.0, 0.0, *np.linspace(0.01, 1.8, 60), np.inf]:
        sets = score.predict(p, t, rng())
        assert (sets >= previous).all()
        previous = sets
    assert previous.all()


@pytest.mark.parametrize("score", SETS, ids=repr)
def test_scores_keep_their_limits_even_where_tolerance_is_used(score):
    p = np.array([[1 + 9e-4, 0, 0], [0, 1 + 1e-7, -1e-7], [0.5, 0.5009, 0], [0, 0, 0.9991]])
    every = score.all(p, rng())
    assert (every >= score.lower).all()
    assert (every <= score.upper).all()
    for t in (0.0, 1.0, -1e-9, 1e-9):
        np.testing.assert_array_equal(score.predict(p, t, rng()), every <= t)


@pytest.mark.parametrize("score", SETS, ids=repr)
def test_a_threshold_per_label(score):
    p = probabilities(40, 5)
    t = rng(1).random((40, 5))
    sets = score.predict(p, t, rng())
    np.testing.assert_array_equal(sets, score.all(p, rng()) <= t)


@given(st.one_of(st.floats(0, 1), st.floats(0.49, 0.51), st.integers(0, 99).map(lambda k: k / 99)))
@settings(derandomize=True, deadline=None, max_examples=1000)
def test_the_least_probability_is_exact(t):
    least = scores._least_probability(t)
    assert (scores._least_probabilities(np.full(20, t)) == least).all()
    if t == 1:
        assert least == -np.inf
    else:
        assert 1.0 - least <= t
        assert 1.0 - np.nextafter(least, -np.inf) > t


@given(st.integers(0, 2**53), st.integers(0, 2**54))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_thr_compares_like_its_score_at_the_ends_of_the_grid(k, j):
    t, p = k * 2.0**-53, j * 2.0**-54
    pair = np.array([[p, 1 - p]])
    assert (THR().predict(pair, t) == (THR().all(pair) <= t)).all()


def test_thr_by_hand():
    p = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(THR().of(p, [1, 2]), [0.7, 0.2])
    assert THR().predict(p, [0.7, 0.2]).tolist() == [[True, True, False], [False, False, True]]


def ranked_by_loops(p, u, lam, k_reg):
    out = np.empty(p.shape)
    for i, row in enumerate(p):
        order = sorted(range(len(row)), key=lambda j: (-row[j], j))
        for place, j in enumerate(order):
            above = sum(row[k] for k in order[:place])
            out[i, j] = above + u[i] * row[j] + lam * max(0, place + 1 - k_reg)
    return out


@pytest.mark.parametrize(("lam", "k_reg"), [(0.0, 0), (0.1, 2), (0.01, 5)])
@pytest.mark.parametrize("randomized", [True, False])
def test_ranked_scores_equal_the_formula_in_loops(lam, k_reg, randomized):
    p = probabilities(200, 9)
    u = rng(5).random(200) if randomized else np.ones(200)
    expected = ranked_by_loops(p, u, lam, k_reg)
    np.testing.assert_allclose(RAPS(lam, k_reg, randomized).all(p, rng(5)), expected, rtol=1e-13)
    if lam == 0:
        np.testing.assert_array_equal(
            APS(randomized).all(p, rng(5)), RAPS(0, 0, randomized).all(p, rng(5))
        )


def test_equal_probabilities_are_ranked_by_label():
    uniform = np.full((1, 4), 0.25)
    assert APS(randomized=False).all(uniform).tolist() == [[0.25, 0.5, 0.75, 1.0]]


def test_randomised_aps_is_uniform_when_the_model_is_right():
    """If y ~ p and u is uniform, then s is uniform on [0, 1] for every p: P(s <= t) = t."""
    n = 40_000
    p = probabilities(n, 5, seed=11)
    y = (rng(1).random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(0, 4)
    s = np.sort(APS().of(p, y, rng(2)))
    # The bound is that of the Kolmogorov-Smirnov test at the level 1%.
    assert np.abs(s - (np.arange(n) + 0.5) / n).max() < 1.63 / np.sqrt(n)


def test_randomised_aps_marginal_is_exact_in_u():
    """As u goes from 0 to 1, the score of each label fills its own part of [0, 1]."""
    row = np.array([0.5, 0.125, 0.375])
    for u in np.linspace(0, 1, 9)[:-1]:
        got = APS()._scores(row[None], np.array([[u]]))[0]
        np.testing.assert_array_equal(got, [0.5 * u, 0.875 + 0.125 * u, 0.5 + 0.375 * u])


def test_scores_equal_those_of_mapie():
    p = rng(7).dirichlet(np.ones(6), 300)  # There are no ties: MAPIE breaks them differently.
    y = rng(8).integers(0, 6, 300)
    lac = LACConformityScore().get_conformity_scores(y, p, y_enc=y).ravel()
    np.testing.assert_array_equal(THR().of(p, y), lac)

    aps = APSConformityScore()
    aps.set_external_attributes(classes=np.arange(6), random_state=3)
    theirs = aps.get_conformity_scores(y, p, y_enc=y).ravel()
    u = 1 - np.random.RandomState(3).uniform(size=300)  # MAPIE subtracts u p_y.
    ours = APS()._scores(p, u[:, None])[np.arange(300), y]
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)

    f, outcomes = rng(9).normal(size=(2, 300))
    residual = np.abs(AbsoluteConformityScore().get_signed_conformity_scores(outcomes, f))
    np.testing.assert_array_equal(AbsoluteResidual().of(f, outcomes), residual)


@pytest.mark.parametrize("score", [APS(), RAPS()], ids=repr)
def test_randomised_scores_need_a_generator(score):
    p = probabilities(3, 4)
    for bad in (None, 0, np.random):
        for call in (lambda r: score.of(p, [0, 1, 2], r), lambda r: score.predict(p, 0.5, r)):
            with pytest.raises(
                GCFCPError, match=r"randomized: give rng=numpy\.random\.default_rng"
            ):
                call(bad)


def test_one_u_a_row():
    generator = rng()
    APS().of(probabilities(10, 4), np.zeros(10, dtype=int), generator)
    expected = rng()
    expected.random(10)
    assert generator.random() == expected.random()


@pytest.mark.parametrize("score", SETS, ids=repr)
@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([[0.5, 0.5], [0.9, 0.2]], "row 2 sum to 1.1, not to 1 within 0.001"),
        ([[0.5, 0.5], [np.nan, 1]], "row 2 sum to nan.*not finite"),
        ([[0.5, None]], "row 1 sum to nan"),
        ([[np.inf, 0]], "row 1 sum to inf.*not finite"),
        ([[0.5, 0.5], [1.1, -0.1]], "row 2, label 1 is -0.1, which is below 0"),
        ([0.5, 0.5], r"shape \(2,\), expected \(n, L\)"),
        (np.empty((2, 0)), r"shape \(2, 0\)"),
        ([["a", "b"]], "type <U1, not numbers"),
        ([[0.5, 0.5], [1]], "not an array of numbers"),
        ([[1j, 0]], "type complex128"),
    ],
)
def test_probabilities_that_cannot_be_used(score, p, message):
    for call in (lambda: score.predict(p, 0.5, rng()), lambda: score.all(p, rng())):
        with pytest.raises(GCFCPError, match=message):
            call()


@pytest.mark.parametrize("score", SETS, ids=repr)
def test_the_first_bad_row_is_named_across_blocks(score, monkeypatch):
    monkeypatch.setattr(scores, "_BLOCK", 16)
    p = probabilities(100, 4)
    p[77] *= 1.5
    with pytest.raises(GCFCPError, match="row 78 sum to 1"):
        score.predict(p, 0.5, rng())


@given(
    shape=st.one_of(
        st.tuples(st.integers(1, 4), st.integers(1, 16)),
        st.tuples(st.integers(1, 60), st.integers(1, 60)),
    ),
    off=st.one_of(st.floats(-2e-3, 2e-3), st.sampled_from([1e-3, -1e-3, 1e308, np.inf, np.nan])),
    least=st.sampled_from([0.0, -0.0, -9e-7, -1.1e-6, -0.1, -np.inf, np.nan]),
    wide=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_few_rows_are_judged_as_many_are(shape, off, least, wide):
    """A few rows are added up in another way, and refused in the same cases and words."""
    p = np.random.default_rng(0).dirichlet(np.ones(shape[1]), shape[0])
    p[-1] *= 1 + off
    with np.errstate(over="ignore", invalid="ignore"):
        p[-1, 0] += least
        p = p.astype(np.float64 if wide else np.float32)
    told = []
    for few in (scores._FEW_VALUES, 0):
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            patch.setattr(scores, "_FEW_VALUES", few)
            try:
                told.append(THR().predict(p, 0.5).tolist())
            except GCFCPError as error:
                told.append(str(error))
    assert told[0] == told[1]


def test_float32_and_float16_softmax_pass():
    logits = rng().normal(size=(300, 1000)) * 3
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for dtype in (np.float32, np.float16):
        assert THR().predict(p.astype(dtype), 0.99).shape == p.shape
    # Probabilities may also be whole numbers.
    assert THR().of([[0, 1], [1, 0]], [1, 1]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 3], r"y\[1\] = 3 is not a label: the labels are 0 \.\.\. 2"),
        ([-1, 0], r"y\[0\] = -1"),
        ([0.5, 1.0], "type float64: labels are whole numbers"),
        (["a", "b"], "labels are whole numbers"),
        ([0], r"shape \(1,\), expected \(2,\)"),
        ([[0], [1]], r"shape \(2, 1\)"),
    ],
)
def test_labels_that_cannot_be_used(y, message):
    with pytest.raises(GCFCPError, match=message):
        THR().of(probabilities(2, 3), y)


@pytest.mark.parametrize("score", SETS, ids=repr)
@pytest.mark.parametrize(
    ("t", "message"),
    [
        (np.nan, "1 of 1 thresholds are NaN"),
        ([0.5, np.nan], "1 of 2 thresholds are NaN"),
        (np.full((2, 3), np.nan), "6 of 6 thresholds are NaN"),
        ([0.5], r"shape \(1,\), expected one number or \(2,\)"),
        (np.ones((2, 1)), r"shape \(2, 1\), expected one number, \(2,\) or \(2, 3\)"),
        ("x", "not numbers"),
        (None, "NaN"),
    ],
)
def test_thresholds_that_cannot_be_used(score, t, message):
    with pytest.raises(GCFCPError, match=message):
        score.predict(probabilities(2, 3), t, rng())


@pytest.mark.parametrize("score", SETS, ids=repr)
def test_no_rows_make_no_sets(score):
    p = np.empty((0, 4))
    assert score.predict(p, 0.5, rng()).shape == (0, 4)
    assert score.predict(p, [], rng()).shape == (0, 4)
    assert score.of(p, [], rng()).shape == (0,)
    assert score.all(p, rng()).shape == (0, 4)


def test_frames_and_columns_are_arrays():
    p = probabilities(20, 3)
    y = rng().integers(0, 3, 20)
    expected = THR().of(p, y)
    names = ["a", "b", "c"]
    for frame, column in (
        (pd.DataFrame(p, columns=names), pd.Series(y)),
        (pl.DataFrame(p, schema=names), pl.Series(y)),
        (p.tolist(), y.tolist()),
        (np.asfortranarray(p), y.astype(np.uint8)),
    ):
        np.testing.assert_array_equal(THR().of(frame, column), expected)
        np.testing.assert_array_equal(THR().predict(frame, 0.6), THR().predict(p, 0.6))


# --- intervals --------------------------------------------------------------------------------

reals = st.floats(-1e300, 1e300, allow_nan=False)
nearby = st.one_of(reals, st.integers(-3, 3).map(float), st.floats(-2, 2))


def neighbours(y):
    return [y, np.nextafter(y, np.inf), np.nextafter(y, -np.inf)]


@pytest.mark.slow
@given(nearby, nearby, nearby)
@settings(derandomize=True, deadline=None, max_examples=600)
def test_an_interval_holds_every_y_whose_score_is_at_most_t(lo, hi, y):
    for score, prediction in ((AbsoluteResidual(), [lo]), (CQR(), [[lo, hi]])):
        for outcome in neighbours(y):
            s = score.of(prediction, [outcome])
            for t in (s, np.nextafter(s, np.inf), s + 1):
                a, b = score.predict(prediction, t)[0]
                assert a <= outcome <= b
            # The interval is also no wider than rounding makes necessary.
            a, b = score.predict(prediction, s)[0]
            ends = np.array([e for e in (a, b) if np.isfinite(e)])
            slack = 4 * np.spacing(np.abs([s[0], lo, hi, y]).max())
            predictions = np.repeat(np.array(prediction), len(ends), axis=0)
            assert (score.of(predictions, ends) <= s + slack).all()


@given(nearby, nearby, nearby)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_an_interval_leaves_out_what_lies_beyond(f, t, y):
    a, b = AbsoluteResidual().predict([f], t)[0]
    s = AbsoluteResidual().of([f], [y])[0]
    if a <= y <= b:
        assert s <= t + 4 * np.spacing(max(abs(f), abs(t), abs(y)))
    else:
        assert s > t


def test_the_end_that_plain_rounding_would_miss():
    """At f = -1 the score of y = 2^-53 is rounded to 1, but the end f + 1 = 0 lies below y."""
    y = 2.0**-53
    assert AbsoluteResidual().of([-1.0], [y])[0] == 1.0
    assert AbsoluteResidual().predict([-1.0], 1.0)[0, 1] >= y
    # Here rounding loses nothing, so the interval is not widened.
    assert AbsoluteResidual().predict([0.0], 0.5).tolist() == [[-0.5, 0.5]]


@given(nearby, nearby, st.lists(nearby, min_size=2, max_size=6))
@settings(derandomize=True, deadline=None)
def test_intervals_grow_with_the_threshold(lo, hi, thresholds):
    for score, prediction in ((AbsoluteResidual(), lo), (CQR(), [lo, hi])):
        ts = [-np.inf, *sorted(thresholds), np.inf]
        ends = score.predict([prediction] * len(ts), ts)
        assert np.isnan(ends[0]).all()
        assert ends[-1].tolist() == [-np.inf, np.inf]
        full = ends[~np.isnan(ends[:, 0])]
        assert np.isnan(ends[: len(ends) - len(full)]).all()  # The empty ones come first.
        assert (np.diff(full[:, 0]) <= 0).all()
        assert (np.diff(full[:, 1]) >= 0).all()


def test_intervals_by_hand():
    residual = AbsoluteResidual().predict([1.0, 2.0], [0.5, 0.0])
    np.testing.assert_allclose(residual, [[0.5, 1.5], [2, 2]], rtol=1e-15)
    assert CQR().of([[1, 3], [1, 3]], [2, 5]).tolist() == [-1, 2]
    cqr = CQR().predict([[1, 3], [1, 3]], [-0.5, 2])
    np.testing.assert_allclose(cqr, [[1.5, 2.5], [-1, 5]], rtol=1e-15)


def test_empty_intervals_are_nan():
    assert np.isnan(AbsoluteResidual().predict([1.0, 1.0], [-1e-300, -5e-324])).all()
    assert np.isnan(CQR().predict([[1, 3]], -2)).all()
    crossed = CQR().predict([[3, 1], [3, 1]], [0.5, 2])
    assert np.isnan(crossed[0]).all()
    np.testing.assert_allclose(crossed[1], [1, 3], rtol=1e-15)
    assert CQR().of([[3, 1]], [2]).tolist() == [1]


@pytest.mark.parametrize(
    ("score", "prediction", "y", "message"),
    [
        (AbsoluteResidual(), [1.0, np.nan], [1, 2], r"prediction\[1\] = nan is not finite"),
        (AbsoluteResidual(), [1.0, 2.0], [1, np.inf], r"y\[1\] = inf is not finite"),
        (AbsoluteResidual(), [1.0, 2.0], [1], "y has 1 rows, but prediction has 2"),
        (AbsoluteResidual(), [[1.0], [2.0]], [1, 2], r"shape \(2, 1\), expected \(n,\)"),
        (AbsoluteResidual(), ["a"], [1], "not numbers"),
        (CQR(), [1.0, 2.0], [1, 2], r"shape \(2,\), expected \(n, 2\)"),
        (CQR(), [[1.0, 2.0, 3.0]], [1], r"shape \(1, 3\), expected \(n, 2\)"),
        (CQR(), [[1.0, np.nan]], [1], r"prediction\[0, 1\] = nan"),
        (CQR(), [[1.0, 2.0]], [[1]], r"y has shape \(1, 1\)"),
    ],
)
def test_predictions_and_outcomes_that_cannot_be_used(score, prediction, y, message):
    with pytest.raises(GCFCPError, match=message):
        score.of(prediction, y)


@pytest.mark.parametrize("t", [np.nan, [1.0, 2.0], [[1.0]]])
def test_interval_thresholds_that_cannot_be_used(t):
    with pytest.raises(GCFCPError, match="thresholds"):
        AbsoluteResidual().predict([1.0], t)


# --- values, names, parameters ----------------------------------------------------------------


@pytest.mark.parametrize("score", SETS + INTERVALS, ids=repr)
def test_a_score_comes_back_from_its_name_and_parameters(score):
    again = from_name(score.name, json.loads(json.dumps(score.parameters)))
    assert again == score
    assert hash(again) == hash(score)
    assert isinstance(score, Score)
    assert score.kind == ("interval" if score in INTERVALS else "set")
    assert score.lower < score.upper


def test_parameters_are_plain():
    raps = RAPS(lam=np.float32(0.5), k_reg=np.int64(3), randomized=np.True_)
    assert raps.parameters == {"lam": 0.5, "k_reg": 3, "randomized": True}
    assert [type(v) for v in raps.parameters.values()] == [float, int, bool]
    assert THR().parameters == {}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_name("lac"), "score 'lac' is not one of residual, cqr, thr, aps, raps"),
        (lambda: from_name("thr", {"lam": 1}), "score 'thr' has no parameter 'lam'"),
        (lambda: from_name("aps", {"randomized": "yes"}), "randomized='yes'"),
        (lambda: RAPS(lam=-1), "lam=-1"),
        (lambda: RAPS(lam=np.nan), "lam=nan"),
        (lambda: RAPS(lam="1"), "lam='1'"),
        (lambda: RAPS(k_reg=1.5), "k_reg=1.5"),
        (lambda: RAPS(k_reg=-1), "k_reg=-1"),
        (lambda: RAPS(k_reg=True), "k_reg=True"),
        (lambda: APS(randomized=1), "randomized=1"),
    ],
)
def test_parameters_that_cannot_be_used(make, message):
    with pytest.raises(GCFCPError, match=message):
        make()


def test_a_score_of_ones_own():
    class Signed:
        def of(self, prediction, y, rng=None):
            return np.subtract(y, prediction)

        def predict(self, prediction, thresholds, rng=None):
            return np.stack([np.full_like(prediction, -np.inf), prediction + thresholds], axis=1)

    assert isinstance(Signed(), Score)
    assert not isinstance(object(), Score)


# --- names of labels -----------------------------------------------------------------------------

P = np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9]])


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["cat", "dog", "dog"], ["cat", "dog"]),
        (np.array(["cat", "dog", "dog"]), np.array(["cat", "dog"])),
        ([False, True, True], None),
        ([False, True, True], [False, True]),
        ([0.0, 1.0, 1.0], None),
        ([1.5, 2.5, 2.5], [1.5, 2.5]),
        ([7, 9, 9], (7, 9)),
    ],
)
def test_labels_may_have_names(y: object, classes: object) -> None:
    for make in (
        THR,
        lambda **o: APS(randomized=False, **o),
        lambda **o: RAPS(0.01, 1, False, **o),
    ):
        plain, named = make(), make(classes=classes)
        assert np.array_equal(named.of(P, y), plain.of(P, [0, 1, 1]))
        assert np.array_equal(named.predict(P, 0.5), plain.predict(P, 0.5))
        name, parameters = scores.describe(named)
        assert scores.from_name(name, parameters) == named
        assert scores.describe(plain)[1].keys() == parameters.keys() - {"classes"}


@pytest.mark.parametrize(
    ("classes", "y", "message"),
    [
        (None, ["cat", "dog", "dog"], r"labels are whole numbers 0 \.\.\. 1, or name them with cl"),
        (None, [0.5, 1, 1], "y is of type float64"),
        (
            ["cat", "dog"],
            ["cat", "cow", "dog"],
            r"y\[1\] = cow is not a label: the classes are cat",
        ),
        (
            ["cat", "dog", "owl"],
            ["cat"] * 3,
            "has 2 columns, but there are 3 classes .cat, dog, owl",
        ),
        (["cat", "cat"], ["cat"] * 3, "a class is named twice"),
        ([], [0] * 3, "is not a list of 1 to"),
        ("nonsense", [0] * 3, "is not a list of 1 to"),
        ("[" * 5000, [0] * 3, "is not a list of 1 to"),
        ([None, 1], [0] * 3, "class None is neither"),
        (["a\x1b", "b"], [0] * 3, "class='a.*' is not a name"),
    ],
)
def test_labels_that_cannot_be_are_refused(classes: object, y: list, message: str) -> None:
    with pytest.raises(GCFCPError, match=message):
        THR(classes=classes).of(P, y)


def test_names_of_labels_travel_and_other_ones_are_refused() -> None:
    groups = gcfcp.Groups(["all"])

    def site(client: str, classes: object) -> gcfcp.ClientSummary:
        score = THR(classes=classes)
        y = [0, 1, 1] if classes is None else [classes[i] for i in (0, 1, 1)]
        made = gcfcp.summarize(
            np.tile(score.of(P, y), 20), np.ones((60, 1)), groups=groups, client=client, score=score
        )
        return gcfcp.ClientSummary.from_bytes(made.to_bytes())

    cats = [site("a", ["cat", "dog"]), site("b", ["cat", "dog"])]
    predictor = gcfcp.Predictor("thr", gcfcp.calibrate(cats, 0.1))
    loaded = gcfcp.Predictor.from_json(predictor.to_json())
    assert loaded.score == THR(classes=("cat", "dog"))
    with pytest.raises(GCFCPError, match="has 3 columns, but there are 2 classes"):
        loaded.predict_set(np.full((1, 3), 1 / 3), [[1]])
    with pytest.raises(
        GCFCPError, match=r'b has the labels \["cat","owl"\], a has \["cat","dog"\]'
    ):
        gcfcp.calibrate([cats[0], site("b", ["cat", "owl"])], 0.1)
    # A site that names no labels, such as one with an older gcfcp, is let in.
    assert gcfcp.calibrate([cats[0], site("b", None)], 0.1)
    many = [f"label {i}" for i in range(1000)]
    score = THR(classes=many)
    made = gcfcp.summarize([0.5], [[1]], groups=groups, client="a", score=score)
    assert gcfcp.ClientSummary.from_bytes(made.to_bytes()).parameters == score.parameters
