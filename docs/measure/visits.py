"""The data behind the figures: visits to a doctor in the RAND Health Insurance Experiment.

20,190 person-years, in statsmodels (`statsmodels.datasets.randhie`, public domain). Outcome: visits
in the year. Model: Poisson regression. Clients: the three kinds of insurance plan (free care, a
coinsurance of 25 to 50 %, 95 % or more), which are real and differ. Groups: self-rated health,
limitations and chronic diseases, overlapping. A person contributes up to five years, which are not
independent; splits are by person-year.
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
    """One random split: calibration scores by client, and the rest to test on."""

    clients: dict[str, tuple[np.ndarray, np.ndarray]]
    scores: np.ndarray
    membership: np.ndarray


class Visits:
    def __init__(self) -> None:
        from statsmodels.datasets import randhie

        self.frame = randhie.load_pandas().data
        self.y = self.frame["mdvis"].to_numpy(float)
        self.features = self.frame.drop(columns=["mdvis"]).to_numpy(float)
        self.membership = GROUPS.membership(self.frame)
        self.plan = np.digitize(self.frame["lncoins"], [0.1, 4.2])

    def split(self, rng: np.random.Generator) -> Split:
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
