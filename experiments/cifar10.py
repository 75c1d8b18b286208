"""Section 5.2, Table 2 and Fig. 5: CIFAR-10, five clients with two classes each.

The input is a probability file of the 10,000 test images (see `probabilities`).
`models.cifar10_file` makes one with torchvision and a network of your own.
"""

from __future__ import annotations

from typing import Any

from experiments.windows import one, prepare, report

__all__ = ["NAME", "RUNS", "SETTINGS", "TITLE", "one", "prepare", "report"]

NAME = "cifar10"
TITLE = "CIFAR-10 (section 5.2, Table 2, Fig. 5)"
RUNS = 50
SETTINGS: dict[str, Any] = {
    "paper": "cifar10",
    "figure": "fig5",
    "labels": 10,
    "client_labels": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]],
    "windows": [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 8, 9]],
    "n_cal": 5000,
    "n_test": 5000,
    "alpha": 0.1,
    "alphas": [0.05, 0.1, 0.15, 0.2, 0.25, 0.3],
    "deltas": [25, 250, 2500],
    "speed_points": 2,
    "simulation": {
        "counts": [1000] * 10,
        "kin": [0, 0, 1, 1, 1, 1, 1, 1, 0, 0],  # 0 is a vehicle, 1 is an animal.
        "accuracy": 0.93,
        "resemblance": 0.5,
        "spread": 0.5,
    },
}
