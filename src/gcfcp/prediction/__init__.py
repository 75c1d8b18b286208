"""Prediction: sets and intervals from a score and thresholds, and the file that carries them.

| module       | what it is for                                  |
|--------------|-------------------------------------------------|
| `predictor`  | `Predictor`: sets and intervals                 |
| `file`       | the predictor's file, written and read          |
| `provenance` | where the thresholds come from, in plain values |
"""

from gcfcp.prediction.predictor import Predictor

__all__ = ["Predictor"]
