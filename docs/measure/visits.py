"""The data behind the figures: visits to a doctor in the RAND Health Insurance Experiment.

The 20,190 person-years come with statsmodels (`statsmodels.datasets.randhie`, public domain). The
outcome is the number of visits in the year, and the model is a Poisson regression. The clients are
the three kinds of insurance plan (free care, a coinsurance of 25 to 50 %, and of 95 % or more).
They are real, and they differ. The groups are self-rated health, limitations and chronic diseases,
and they overlap. A person contributes up to five years, which are not independent. The splits
ignore this: they are by person-year.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import PoissonRegressor

import gcfcp

GROUPS = gcfcp.Groups(
    {
        "everyone": "TRUE",
        "good health": "hlthg = 1",
        "fair health": "hlthf = 1",
        "poor health": "hlthp = 1",
        "physical limitation": "physlm > 0.5",
        "many diseases": "disea >= 20",
        "few diseases": "disea < 5",
    }
)
PLANS = ("free", "coinsurance 25-50 %", "coinsurance 95 %")
SCORE = gcfcp.scores.AbsoluteResidual()
TRAIN, CALIBRATION = 4000, 4000


@dataclass(frozen=True)
class Split:
    """One random split: the calibration records of each client, and the test records."""

    clients: dict[str, tuple[np.ndarray, np.ndarray]]  # Scores and memberships, by client.
    scores: np.ndarray  # (n,): The scores of the test records.
    membership: np.ndarray  # (n, G): The memberships of the test records.


class Visits:
    """All records, with outcomes, features, memberships and insurance plans."""

    def __init__(self) -> None:
        from statsmodels.datasets import randhie

        self.frame = randhie.load_pandas().data
        self.y = self.frame["mdvis"].to_numpy(float)
        self.features = self.frame.drop(columns=["mdvis"]).to_numpy(float)
        self.membership = GROUPS.membership(self.frame)
        self.plan = np.digitize(self.frame["lncoins"], [0.1, 4.2])

    def split(self, rng: np.random.Generator) -> Split:
        """Split at random: train the model on one part, calibrate on one, test on the rest."""
        order = rng.permutation(len(self.y))
        train, rest = order[:TRAIN], order[TRAIN:]
        calibration, test = rest[:CALIBRATION], rest[CALIBRATION:]
        model = PoissonRegressor(alpha=1e-3, solver="newton-cholesky")
        model.fit(self.features[train], self.y[train])
        scores = SCORE.of(model.predict(self.features), self.y)
        clients = {}
        for k, name in enumerate(PLANS):
            mine = calibration[self.plan[calibration] == k]
            clients[name] = (scores[mine], self.membership[mine])
        return Split(clients, scores[test], self.membership[test])
