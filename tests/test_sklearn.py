"""Models of scikit-learn: summaries, sets and intervals, and the estimator's own manners."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from mapie.classification import SplitConformalClassifier
from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, QuantileRegressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import gcfcp
from gcfcp.sklearn import ConformalClassifier, ConformalRegressor, summarize

GROUPS = gcfcp.Groups({"all": "TRUE", "old": "age >= 50", "women": "sex = 'f'"})


def people(n, seed):
    """A frame of people, a label in words, and a number."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.integers(20, 80, n), "sex": rng.choice(["f", "m"], n)})
    frame["dose"] = rng.normal(size=n) + frame["age"] / 40
    noise = rng.normal(size=n) * np.where(frame["age"] >= 50, 1.5, 0.5)
    level = np.searchsorted([0.5, 1.7], frame["dose"] + noise)
    return frame, np.array(["no", "some", "yes"])[level], frame["dose"].to_numpy() * 2 + noise


def pipeline(last):
    columns = ["age", "dose"]
    return make_pipeline(_Columns(columns), StandardScaler(), last)


class _Columns:
    """Takes some columns of a frame, so that a pipeline can start from the whole frame."""

    def __init__(self, columns):
        self.columns = columns

    def get_params(self, deep=True):
        return {"columns": self.columns}

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X[self.columns].to_numpy(dtype=float)


@pytest.fixture(scope="module")
def classifier():
    X, label, _ = people(300, 1)
    return pipeline(LogisticRegression()).fit(X, label)


@pytest.fixture(scope="module")
def regressor():
    X, _, y = people(300, 1)
    return pipeline(LinearRegression()).fit(X, y)


# --- a site and a predictor ------------------------------------------------------------------


def test_a_summary_of_a_model_is_that_of_its_scores(classifier):
    X, label, _ = people(400, 2)
    score = gcfcp.scores.THR(classes=["no", "some", "yes"])
    by_hand = gcfcp.summarize(
        score.of(classifier.predict_proba(X), label),
        GROUPS.membership(X),
        groups=GROUPS,
        client="a",
        score=score,
        model="v1",
        min_count=5,
    )
    found = summarize(
        classifier, X, label, groups=GROUPS, client="a", fingerprint="v1", min_count=5
    )
    assert found == by_hand


def test_a_federation_from_models_to_sets_and_an_audit(classifier, tmp_path):
    summaries = [
        summarize(classifier, *people(600, seed)[:2], groups=GROUPS, client=f"site {seed}")
        for seed in (3, 4)
    ]
    calibration = gcfcp.calibrate(summaries, 0.1)
    predictor = gcfcp.Predictor("thr", calibration)
    predictor.save(tmp_path / "predictor.json")
    X, label, _ = people(2000, 5)
    for given in (predictor, tmp_path / "predictor.json", str(tmp_path / "predictor.json")):
        estimator = ConformalClassifier(classifier, given)
        sets = estimator.predict_set(X)
        member = GROUPS.membership(X)
        expected = predictor.predict_set(classifier.predict_proba(X), member)
        assert np.array_equal(sets, expected)
        assert estimator.classes_.tolist() == ["no", "some", "yes"]
        covered = estimator.covers(X, label)
        assert np.array_equal(
            covered, sets[np.arange(2000), np.searchsorted(estimator.classes_, label)]
        )
    audit = gcfcp.audit(covered, member, groups=GROUPS, client="site 3", alpha=0.1)
    assert min(g.coverage for g in gcfcp.merge_audits([audit]).groups) > 0.87


def test_an_alpha_that_is_a_coverage_is_asked_about(classifier):
    X, label, _ = people(100, 3)
    with pytest.warns(gcfcp.GCFCPWarning, match=r"alpha=0\.9 lets .* did you mean 0\.1\?"):
        ConformalClassifier(classifier, alpha=0.9).conformalize(X, label)


def test_a_predictor_is_read_once_and_again_if_another_is_given(classifier, tmp_path):
    summary = summarize(classifier, *people(300, 3)[:2], groups=GROUPS, client="a")
    paths = []
    for alpha in (0.1, 0.4):
        paths.append(tmp_path / f"{alpha}.json")
        gcfcp.Predictor("thr", gcfcp.calibrate([summary], alpha)).save(paths[-1])
    X = people(300, 5)[0]
    estimator = ConformalClassifier(classifier, paths[0])
    first = estimator.predict_set(X)
    paths[0].unlink()
    assert np.array_equal(estimator.predict_set(X), first)
    second = estimator.set_params(predictor=paths[1]).predict_set(X)
    assert second.sum() < first.sum()


# --- one machine, beside MAPIE ---------------------------------------------------------------


@pytest.mark.parametrize("n", [11, 57, 400])  # MAPIE refuses fewer, where 9 are enough.
def test_for_everyone_the_sets_are_those_of_mapie(classifier, n):
    X, label, _ = people(n, 6)
    new = people(500, 7)[0]
    theirs = SplitConformalClassifier(classifier, confidence_level=0.9).conformalize(X, label)
    _, sets = theirs.predict_set(new)
    ours = ConformalClassifier(classifier).conformalize(X, label).predict_set(new)
    assert np.array_equal(ours, sets[:, :, 0])


@pytest.mark.parametrize("n", [11, 57, 400])  # MAPIE refuses fewer, where 9 are enough.
def test_for_everyone_the_intervals_are_those_of_mapie(regressor, n):
    X, _, y = people(n, 6)
    new = people(500, 7)[0]
    theirs = SplitConformalRegressor(regressor, confidence_level=0.9).conformalize(X, y)
    _, intervals = theirs.predict_interval(new)
    ours = ConformalRegressor(regressor).conformalize(X, y).predict_interval(new)
    np.testing.assert_allclose(ours, intervals[:, :, 0], rtol=1e-12)


def test_a_pair_of_quantiles_is_conformalised_as_mapie_does():
    columns = ["age", "dose"]
    X, _, y = people(300, 1)
    fitted = [
        QuantileRegressor(quantile=q, alpha=0).fit(X[columns].to_numpy(), y)
        for q in (0.05, 0.95, 0.5)
    ]
    X, _, y = people(200, 6)
    X, new = X[columns].to_numpy(), people(300, 7)[0][columns].to_numpy()
    theirs = ConformalizedQuantileRegressor(fitted, confidence_level=0.9, prefit=True)
    theirs.conformalize(X, y)
    _, intervals = theirs.predict_interval(new, symmetric_correction=True)
    estimator = ConformalRegressor((fitted[0], fitted[1])).conformalize(X, y)
    np.testing.assert_allclose(estimator.predict_interval(new), intervals[:, :, 0], rtol=1e-9)
    middle = (fitted[0].predict(new) + fitted[1].predict(new)) / 2
    np.testing.assert_allclose(estimator.predict(new), middle)


def test_groups_are_covered_where_one_threshold_falls_short(regressor):
    X, _, y = people(4000, 8)
    new, _, outcome = people(8000, 9)
    old = new["age"].to_numpy() >= 50
    plain = ConformalRegressor(regressor).conformalize(X, y).covers(new, outcome)
    ours = ConformalRegressor(regressor, groups=GROUPS).conformalize(X, y)
    assert plain[old].mean() < 0.86
    assert ours.covers(new, outcome)[old].mean() > 0.88
    assert {g.certified_status for g in ours.calibration_.guarantee} == {"proved"}


def test_a_randomised_score_is_repeatable_and_uses_two_streams(classifier):
    X, label, _ = people(300, 6)
    new = people(300, 7)[0]

    def sets(seed):
        estimator = ConformalClassifier(
            classifier, conformity_score=gcfcp.scores.APS(), random_state=seed
        )
        return estimator.conformalize(X, label).predict_set(new)

    assert np.array_equal(sets(3), sets(3))
    assert not np.array_equal(sets(3), sets(4))
    estimator = ConformalClassifier(classifier, random_state=3)
    assert estimator._rng(0).random() != estimator._rng(1).random()
    assert sets(np.random.default_rng(0)).shape == (300, 3)


# --- as an estimator -------------------------------------------------------------------------


@pytest.mark.slow
@parametrize_with_checks([ConformalClassifier(LogisticRegression())])
def test_scikit_learns_own_checks_of_a_classifier(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([ConformalRegressor(LinearRegression())])
def test_scikit_learns_own_checks_of_a_regressor(estimator, check):
    check(estimator)


def test_a_clone_with_a_predictor_keeps_the_fitted_model(classifier):
    summary = summarize(classifier, *people(300, 3)[:2], groups=GROUPS, client="a")
    predictor = gcfcp.Predictor("thr", gcfcp.calibrate([summary], 0.1))
    estimator = clone(ConformalClassifier(classifier, predictor))
    X, label, _ = people(50, 5)
    before = estimator.predict_set(X)
    assert np.array_equal(estimator.fit(X, label).predict_set(X), before)
    assert estimator.model is classifier


def test_a_clone_without_one_is_not_fitted(classifier):
    copy = clone(ConformalClassifier(classifier).conformalize(*people(100, 3)[:2]))
    with pytest.raises(NotFittedError, match="no thresholds"):
        copy.predict_set(people(5, 4)[0])
    with pytest.raises(NotFittedError, match="no fitted model"):
        copy.predict(people(5, 4)[0])


def test_fitting_again_drops_the_old_thresholds():
    X, y = load_iris(return_X_y=True)
    estimator = ConformalClassifier(LogisticRegression(max_iter=1000)).fit(X[::2], y[::2])
    assert estimator.conformalize(X[1::2], y[1::2]).predict_set(X).shape == (150, 3)
    estimator.fit(X, y)
    with pytest.raises(NotFittedError, match="call conformalize"):
        estimator.predict_set(X)


def test_it_is_pickled_as_any_estimator(classifier):
    X, label, _ = people(200, 3)
    estimator = ConformalClassifier(classifier, groups=GROUPS).conformalize(X, label)
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.predict_set(X), estimator.predict_set(X))


def test_it_is_the_last_step_of_a_pipeline_and_is_cross_validated():
    X, y = load_iris(return_X_y=True)
    whole = make_pipeline(StandardScaler(), ConformalClassifier(LogisticRegression()))
    assert cross_val_score(whole, X, y, cv=3).min() > 0.9
    whole.fit(X[::2], y[::2])
    inner = whole[:-1].transform(X[1::2])
    assert whole[-1].conformalize(inner, y[1::2]).covers(inner, y[1::2]).mean() >= 0.9


def test_labels_of_every_type():
    X, y = load_iris(return_X_y=True)
    for names in (np.array(["a", "b", "c"]), np.array([5.0, 6.0, 7.0]), np.array([7, 8, 9])):
        model = LogisticRegression(max_iter=1000).fit(X[::2], names[y][::2])
        estimator = ConformalClassifier(model).conformalize(X[1::2], names[y][1::2])
        assert estimator.covers(X[1::2], names[y][1::2]).mean() >= 0.9
    model = LogisticRegression(max_iter=1000).fit(X[::2], y[::2] > 0)
    assert ConformalClassifier(model).conformalize(X, y > 0).predict_set(X).shape == (150, 2)


# --- what is refused -------------------------------------------------------------------------


def test_a_label_that_the_model_does_not_know(classifier):
    X, label, _ = people(20, 3)
    label = label.astype(object)
    label[[4, 9]] = "perhaps"
    with pytest.raises(gcfcp.GCFCPError, match=r"perhaps is not a label: .*no, some, yes"):
        summarize(classifier, X, label, groups=GROUPS, client="a")
    estimator = ConformalClassifier(classifier).conformalize(*people(100, 3)[:2])
    with pytest.raises(gcfcp.GCFCPError, match=r"perhaps is not a label: .*no, some, yes"):
        estimator.covers(X, label)


def test_a_predictor_of_other_labels(classifier):
    X, label, _ = people(300, 3)
    other = pipeline(LogisticRegression()).fit(X, np.char.upper(label))
    summary = summarize(other, X, np.char.upper(label), groups=GROUPS, client="a")
    predictor = gcfcp.Predictor("thr", gcfcp.calibrate([summary], 0.1))
    with pytest.raises(gcfcp.GCFCPError, match=r"labels NO, SOME, YES, and Pipeline has no, some"):
        ConformalClassifier(classifier, predictor).predict_set(X)


def test_a_classifier_without_probabilities():
    X, y = load_iris(return_X_y=True)
    model = LinearSVC().fit(X, y)
    with pytest.raises(gcfcp.GCFCPError, match=r"LinearSVC has no predict_proba.*Calibrated"):
        ConformalClassifier(model).conformalize(X, y)


def test_a_model_that_is_not_fitted():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(gcfcp.GCFCPError, match="LogisticRegression has not been fitted"):
        summarize(LogisticRegression(), X, y, groups=gcfcp.Groups({"all": "TRUE"}), client="a")
    with pytest.raises(NotFittedError, match="no fitted model"):
        ConformalClassifier(LogisticRegression()).conformalize(X, y)


def test_groups_that_cannot_be_known(regressor):
    X, _, y = people(50, 3)
    model = LinearRegression().fit(X[["dose"]].to_numpy(), y)
    bare = X[["dose"]].to_numpy()
    estimator = ConformalRegressor(model, groups=GROUPS)
    with pytest.raises(gcfcp.GCFCPError, match=r"conditions need named columns.*membership="):
        estimator.conformalize(bare, y)
    with pytest.raises(gcfcp.GCFCPError, match=r"have no conditions.*membership="):
        ConformalRegressor(regressor, groups=gcfcp.Groups(["a"])).conformalize(X, y)
    assert estimator.conformalize(bare, y, GROUPS.membership(X)).predictor_.groups is GROUPS


def test_a_predictor_leaves_nothing_to_calibrate(classifier):
    X, label, _ = people(300, 3)
    summary = summarize(classifier, X, label, groups=GROUPS, client="a")
    predictor = gcfcp.Predictor("thr", gcfcp.calibrate([summary], 0.1))
    with pytest.raises(gcfcp.GCFCPError, match="leave predictor= out"):
        ConformalClassifier(classifier, predictor).conformalize(X, label)


def test_the_other_kind_of_model_is_refused_before_it_is_calibrated():
    x, y = np.ones((20, 2)), np.arange(20) % 2
    with pytest.raises(gcfcp.GCFCPError, match=r"'residual' is not for .*: use ConformalRegressor"):
        ConformalClassifier(LinearRegression().fit(x, y)).conformalize(x, y)
    with pytest.raises(gcfcp.GCFCPError, match=r"'thr' is not for .*: use ConformalClassifier"):
        ConformalRegressor(LogisticRegression().fit(x, y)).conformalize(x, y)


def test_three_models_are_not_a_pair():
    models = [LinearRegression()] * 3
    with pytest.raises(gcfcp.GCFCPError, match="there are 3 models"):
        ConformalRegressor(models).fit(np.ones((3, 1)), np.ones(3))


def test_what_is_neither_a_classifier_nor_a_regressor():
    with pytest.raises(gcfcp.GCFCPError, match="StandardScaler is neither"):
        summarize(
            StandardScaler().fit(np.ones((3, 1))),
            np.ones((3, 1)),
            np.ones(3),
            groups=gcfcp.Groups({"all": "TRUE"}),
            client="a",
        )
