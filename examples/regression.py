"""Regression with CQR across three clinics, on small real data.

    python examples/regression.py

The data are the 442 patients of scikit-learn's diabetes set (Efron et al. 2004): age, sex, body
mass, blood pressure, six blood values, and the progress of the disease after a year. The data set
has no clinics. We deal the patients at random to three clinics of unequal size, so the clients have
the same distribution here. Two gradient boosted quantile regressions give a lower and an upper end
for each patient, and CQR corrects them, group by group.

With 442 patients a single split says little, so the result is averaged over many splits. It also
shows what happens with small samples: coverage is somewhat above what was promised.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor

import gcfcp

ALPHA, SPLITS, TRAIN, CALIBRATION = 0.1, 20, 130, 200
GROUPS = gcfcp.Groups(
    {
        "all": "TRUE",
        "sex 1": "sex > 0",
        "sex 2": "sex <= 0",
        "over 55": "age >= 55",
        "body mass over 30": "bmi > 30",
    }
)


def quantiles(features: np.ndarray, y: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The lower and the upper end of every patient, (n, 2), from models of the training rows."""
    ends = []
    for level in (ALPHA / 2, 1 - ALPHA / 2):
        model = GradientBoostingRegressor(
            loss="quantile", alpha=level, n_estimators=50, max_depth=2, random_state=0
        )
        ends.append(model.fit(features[train], y[train]).predict(features))
    return np.column_stack(ends)


def main() -> None:
    """Compare raw quantiles, one threshold and GC-FCP over many splits, and print the averages."""
    data = load_diabetes(as_frame=True, scaled=False)
    frame, y = data.data, data.target.to_numpy()
    frame = frame.assign(sex=frame["sex"] - 1.5)
    membership = GROUPS.membership(frame)
    features = frame.to_numpy()
    score = gcfcp.scores.CQR()
    rng = np.random.default_rng(0)
    names = ("raw quantiles", "one threshold", "GC-FCP")
    covered = {name: np.zeros((SPLITS, len(GROUPS))) for name in names}
    width = {name: np.zeros((SPLITS, len(GROUPS))) for name in names}
    for split in range(SPLITS):
        order = rng.permutation(len(y))
        train, rest = order[:TRAIN], order[TRAIN:]
        calibration, test = rest[:CALIBRATION], rest[CALIBRATION:]
        ends = quantiles(features, y, train)
        scores = score.of(ends, y)
        clinics = dict(
            zip(("large", "middle", "small"), np.split(calibration, [110, 170]), strict=True)
        )
        clients = {name: (scores[rows], membership[rows]) for name, rows in clinics.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
            one = gcfcp.methods.fedcp(clients, ALPHA, "proportional", groups=GROUPS)
            ours = gcfcp.methods.gcfcp(clients, ALPHA, "proportional", groups=GROUPS)
        intervals = {
            "raw quantiles": ends[test],
            "one threshold": gcfcp.Predictor(score, one).predict_interval(
                ends[test], membership[test]
            ),
            "GC-FCP": gcfcp.Predictor(score, ours).predict_interval(ends[test], membership[test]),
        }
        for name, interval in intervals.items():
            low, high = interval.T
            hit = (low <= y[test]) & (y[test] <= high)
            for g, inside in enumerate(membership[test].T):
                covered[name][split, g] = hit[inside].mean()
                width[name][split, g] = (high - low)[inside].mean()

    print(f"{len(y)} patients, {SPLITS} splits; coverage (mean width), promised {1 - ALPHA:g}\n")
    print(f"{'':20}" + "".join(f"{name:>20}" for name in names))
    for g, group in enumerate(GROUPS.names):
        cells = (f"{covered[n][:, g].mean():.3f} ({width[n][:, g].mean():.0f})" for n in names)
        print(f"{group:20}" + "".join(f"{cell:>20}" for cell in cells))
    error = max(c.std(axis=0, ddof=1).max() for c in covered.values()) / np.sqrt(SPLITS)
    print(f"\nThe standard error of a coverage is at most {error:.3f}.")


if __name__ == "__main__":
    main()
