"""Section 5.3, Table 3 and Fig. 6: PathMNIST, nine tissue classes, five clients.

The input is a probability file of the validation and test images together (17,184 of them).
`models.pathmnist_file` trains a small CNN, the paper's kind, and makes one. The simulated softmax
has as many records of each class as there are images.
"""

from __future__ import annotations

from typing import Any

from experiments.windows import one, prepare, report

__all__ = ["NAME", "RUNS", "SETTINGS", "TITLE", "one", "prepare", "report"]

NAME = "pathmnist"
TITLE = "PathMNIST (section 5.3, Table 3, Fig. 6)"
RUNS = 50
SETTINGS: dict[str, Any] = {
    "paper": "pathmnist",
    "figure": "fig6",
    "labels": 9,
    "client_labels": [[0, 1], [2, 3], [4, 5], [6, 7], [8]],
    "windows": [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6, 7, 8]],
    "n_cal": 8592,
    "n_test": 8592,
    "alpha": 0.1,
    "alphas": [0.05, 0.1, 0.15, 0.2, 0.25, 0.3],
    "deltas": [25, 250, 2500],
    "simulation": {
        # The number of validation and test images of each class: adipose, background, debris,
        # lymphocytes, mucus, smooth muscle, normal mucosa, stroma, tumour.
        "counts": [2379, 1904, 1491, 1790, 1925, 1946, 1618, 1466, 2665],
        "kin": [0, 0, 1, 1, 1, 1, 2, 1, 2],
        "accuracy": 0.9,
        "resemblance": 0.5,
        "spread": 0.5,
    },
}
