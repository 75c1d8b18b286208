"""Prediction: sets and intervals from a score and thresholds, and the file that holds both.

| module       | what it is for                                                |
|--------------|---------------------------------------------------------------|
| `predictor`  | `Predictor`: prediction sets and prediction intervals         |
| `file`       | how the predictor's file is written and read                  |
| `provenance` | where the thresholds come from, in plain values for the file  |
| `disclosure` | what a predictor's file tells of the clients' records         |
"""

from gcfcp.prediction.disclosure import PredictorDisclosure
from gcfcp.prediction.predictor import Predictor

__all__ = ["Predictor", "PredictorDisclosure"]
