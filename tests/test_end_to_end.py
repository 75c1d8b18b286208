"""The whole path from records at several sites to prediction sets, with nothing but files between
the sites."""

import math
from pathlib import Path

import numpy as np
import pytest

import gcfcp
from gcfcp import ClientSummary, Groups, Predictor, calibrate, merge, plan, summarize
from gcfcp.scores import APS, CQR, THR, AbsoluteResidual

TOML = """
[groups]
all = "TRUE"
female = "sex = 'F'"
over_65 = "age >= 65"
young_men = "age < 30 and sex = 'M'"
"""

L = 6


def site(seed, n):
    """Columns, probabilities and labels of one site. Sites differ in age and in how good the model
    is."""
    rng = np.random.default_rng(seed)
    age = rng.normal(35 + 8 * (seed % 4), 18, size=n)
    sex = rng.choice(["F", "M"], size=n)
    noise = 0.5 + (age >= 65) + 0.3 * (seed % 4)
    logits = 3 * np.eye(L)[rng.integers(L, size=n)] + rng.normal(size=(n, L))
    shifted = logits + noise[:, None] * rng.gumbel(size=(n, L))
    labels = shifted.argmax(axis=1)
    p = np.exp(logits)
    return {"age": age, "sex": sex}, p / p.sum(axis=1, keepdims=True), labels


def coverage(covered, membership):
    return np.array([covered[inside].mean() for inside in membership.T])


def measured(predictor, n=5000):
    """Coverage by group under the uniform mixture, with as many test records of each site."""
    hits, members = [], []
    for k in range(4):
        columns, probabilities, labels = site(k + 40, n)
        membership = predictor.groups.membership(columns)
        sets = predictor.predict_set(probabilities, membership, rng=np.random.default_rng(k))
        hits.append(sets[np.arange(n), labels])
        members.append(membership)
    found = coverage(np.concatenate(hits), np.concatenate(members))
    return found, predictor.groups.names


@pytest.mark.parametrize("score", [THR(), APS()])
def test_from_four_sites_to_sets_through_files(score, tmp_path):
    (tmp_path / "groups.toml").write_text(TOML)
    sizes = [900, 1500, 400, 1200]
    for k, n in enumerate(sizes):  # This happens at each site.
        columns, probabilities, labels = site(k, n)
        groups = Groups.from_toml(tmp_path / "groups.toml")
        scores = score.of(probabilities, labels, rng=np.random.default_rng(100 + k))
        summarize(
            scores,
            groups.membership(columns),
            groups=groups,
            client=f"site-{k}",
            score=score,
            model="v1",
        ).save(tmp_path / f"site-{k}.gcfcp")
    # This happens at the server.
    summaries = [ClientSummary.load(path) for path in sorted(tmp_path.glob("*.gcfcp"))]
    assert plan(summaries, alpha=0.1).finite
    calibration = calibrate(summaries, alpha=0.1)
    Predictor(score, calibration).save(tmp_path / "predictor.json")
    # This may happen anywhere.
    predictor = Predictor.load(tmp_path / "predictor.json")
    found, names = measured(predictor)
    assert names == ("all", "female", "over_65", "young_men")
    # The coverage of one calibration lies within three standard deviations of c_G around 1 - alpha,
    # for 300 effective records. The 20,000 test records add a little.
    assert (found > 0.9 - 3 * math.sqrt(0.09 / 300)).all(), found
    assert (found < 0.9 + 3 * math.sqrt(0.09 / 300) + 0.02).all(), found


def test_regions_between_sites_and_server(tmp_path):
    groups = Groups.from_toml_text(TOML)
    told = []
    for k in range(6):
        columns, probabilities, labels = site(k, 300 + 100 * k)
        told.append(
            summarize(
                THR().of(probabilities, labels),
                groups.membership(columns),
                groups=groups,
                client=f"site-{k}",
                score=THR(),
            )
        )
    for name, own in (("north", told[:3]), ("south", told[3:])):
        merge(own, name).save(tmp_path / f"{name}.gcfcp")
    north, south = (ClientSummary.load(tmp_path / f"{n}.gcfcp") for n in ("north", "south"))
    assert [name for name, _ in north.members] == ["site-0", "site-1", "site-2"]
    assert len(north.to_bytes()) < sum(len(s.to_bytes()) for s in told[:3])
    above, flat = (
        calibrate([north, south], 0.1, "proportional", aggregates={"north": 3, "south": 3}),
        calibrate(told, 0.1, "proportional"),
    )
    for a, b in zip(above.table, flat.table, strict=True):
        assert (a.groups, a.count) == (b.groups, b.count)
        assert a.weight == pytest.approx(b.weight)
        # Another compression raises thresholds, but only a little.
        assert a.threshold >= b.threshold - 1e-3
        assert a.threshold <= b.threshold + 0.1
    assert above.without("south").guarantee[0].records == north.n


@pytest.mark.parametrize("score", [AbsoluteResidual(), CQR()])
def test_intervals_through_files(score, tmp_path):
    groups = Groups(["all", "left", "right"])

    def draw(seed, n):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, size=n)
        y = x**2 + (0.1 + 0.4 * (x > 0)) * rng.normal(size=n)
        f = x**2
        prediction = (
            f if isinstance(score, AbsoluteResidual) else np.column_stack([f - 0.2, f + 0.2])
        )
        return prediction, y, np.column_stack([np.ones(n, bool), x < 0.3, x > -0.3])

    told = []
    for k in range(3):
        prediction, y, membership = draw(k, 800)
        scores = score.of(prediction, y)
        told.append(summarize(scores, membership, groups=groups, client=f"k{k}", score=score))
    Predictor(score, calibrate(told, 0.1)).save(tmp_path / "p.json")
    prediction, y, membership = draw(9, 20_000)
    intervals = Predictor.load(tmp_path / "p.json").predict_interval(prediction, membership)
    covered = (intervals[:, 0] <= y) & (y <= intervals[:, 1])
    found = coverage(covered, membership)
    assert (np.abs(found - 0.9) < 0.04).all(), found
    widths = np.diff(intervals, axis=1)[:, 0]
    assert widths[membership[:, 1] & ~membership[:, 2]].mean() < widths[~membership[:, 1]].mean()


def test_groups_that_depend_on_the_label():
    """One group holds four common labels and another holds two rare ones, so that the rare labels
    are covered too."""
    groups = Groups(["all", "common", "rare"])
    label_groups = np.array([[1, 1, 0]] * 4 + [[1, 0, 1]] * 2, dtype=bool)  # The shape is (L, G).

    def draw(seed, n):
        rng = np.random.default_rng(seed)
        labels = rng.choice(L, size=n, p=[0.24] * 4 + [0.02] * 2)
        logits = 2.0 * np.eye(L)[labels] * (labels < 4)[:, None] + rng.gumbel(size=(n, L))
        p = np.exp(logits)
        return p / p.sum(axis=1, keepdims=True), labels

    told = []
    for k in range(3):
        p, labels = draw(k, 2000)
        scores, own = THR().of(p, labels), label_groups[labels]
        told.append(summarize(scores, own, groups=groups, client=f"k{k}", score=THR()))
    predictor = Predictor(THR(), calibrate(told, 0.1))
    p, labels = draw(50, 20_000)
    membership = np.broadcast_to(label_groups, (len(p), L, 3))
    sets = predictor.predict_set(p, membership)
    covered = sets[np.arange(len(p)), labels]
    rare = labels >= 4
    assert covered[rare].mean() == pytest.approx(0.9, abs=0.06)
    assert covered[~rare].mean() == pytest.approx(0.9, abs=0.03)
    plain = np.broadcast_to(np.array([[1, 0, 0]], dtype=bool), (len(p), 3))
    assert (
        predictor.predict_set(p, plain)[np.arange(len(p)), labels][rare].mean()
        != covered[rare].mean()
    )


def test_a_site_that_hides_small_groups_still_keeps_the_promise():
    groups = Groups.from_toml_text(TOML)
    told = []
    for k in range(4):
        columns, probabilities, labels = site(k, 1500)
        told.append(
            summarize(
                THR().of(probabilities, labels),
                groups.membership(columns),
                groups=groups,
                client=f"site-{k}",
                score=THR(),
                min_count=10,
            )
        )
        assert told[-1].disclosure.smallest_centroid >= 10
        assert told[-1].disclosure.exact_scores == 0
    predictor = Predictor(THR(), calibrate(told, 0.1))
    found, _ = measured(predictor)
    assert (found > 0.87).all(), found


SHARED = Path(__file__).parent.parent.parent / "shared" / "data" / "cifar10_resnet56.npz"


@pytest.mark.skipif(not SHARED.exists(), reason=f"needs the CIFAR-10 probabilities in {SHARED}")
def test_cifar10_as_in_the_paper():
    with np.load(SHARED) as data:
        probabilities = data["probs"].astype(float)
        labels = data["labels"].astype(int)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    order = np.random.default_rng(0).permutation(len(labels))
    probabilities, labels = probabilities[order], labels[order]
    best = probabilities.argmax(axis=1)
    windows = [(0, 1, 2, 3), (2, 3, 4, 5), (4, 5, 6, 7), (6, 7, 8, 9)]
    membership = np.column_stack([np.isin(best, w) for w in windows])
    groups, scores = Groups(["G1", "G2", "G3", "G4"]), THR().of(probabilities, labels)
    told = []
    for k in range(5):
        own = np.flatnonzero(labels[:5000] // 2 == k)
        told.append(
            summarize(scores[own], membership[own], groups=groups, client=f"c{k}", score=THR())
        )
    predictor = Predictor(THR(), calibrate(told, 0.1))
    sets = predictor.predict_set(probabilities[5000:], membership[5000:])
    covered = sets[np.arange(5000), labels[5000:]]
    found = coverage(covered, membership[5000:])
    assert (found > 0.88).all(), found
    assert (found < 0.93).all(), found
    assert gcfcp.audit(
        covered, membership[5000:], groups=groups, client="c", set_size=sets.sum(axis=1)
    )
