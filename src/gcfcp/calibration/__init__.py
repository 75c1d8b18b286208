"""The server's side: from the clients' summaries to thresholds and to what is promised for them.

| module        | what it is for                                                             |
|---------------|----------------------------------------------------------------------------|
| `admission`   | what the server lets in, and how much one client may weigh                 |
| `clients`     | which summaries can be calibrated together, and in which order             |
| `mixture`     | the mixture of the clients, as exact shares                                |
| `pooling`     | all centroids of all clients, sorted by atom                               |
| `correction`  | how much the test point must weigh so that the promise is proved           |
| `problem`     | the weight of each record, the counts by group, and the coreset            |
| `noisy`       | levels from counts with noise, and what noise costs                        |
| `confidence`  | levels that keep the promise for this very predictor                       |
| `shapes`      | `fit_shape`: a shape from summaries                                        |
| `server`      | `calibrate`, and the `Calibration` that it returns                         |
| `remedies`    | what would make a threshold finite, tried before it is named               |
| `reasons`     | one record for each atom, and why its threshold is infinite if it is       |
| `guarantees`  | what is promised for each group, and whether it is proved or measured      |
| `planning`    | `plan`: which thresholds will be infinite, and what would help             |
| `influence`   | how much each client moves each threshold                                  |
| `unseen`      | how each site would fare if it took no part                                |
| `lines`       | mixtures on the way from one mixture to another                            |
| `exploration` | `explore`: the same summaries at many alphas and mixtures                  |
| `screening`   | which clients have scores that are distributed unlike all others           |
| `aggregators` | `merge` and `add`: one summary for several clients                         |
| `joining`     | `join`: one summary for several parts of one client                        |
"""

from gcfcp.calibration import mixture
from gcfcp.calibration.admission import MAX_ATOMS, Admission, LargestShare, parse_aggregates
from gcfcp.calibration.aggregators import add, merge
from gcfcp.calibration.clients import (
    SUMMARIES,
    Kind,
    in_order,
    misfits,
    one_each,
    out_of_range,
    set_aside,
    twin_texts,
)
from gcfcp.calibration.correction import CORRECTIONS, Correction
from gcfcp.calibration.exploration import ALPHAS, WITHIN, Exploration, Setting, explore
from gcfcp.calibration.guarantees import (
    EVERYTHING_GIVEN,
    MEASURED,
    PAPER,
    PROVED,
    Guarantee,
)
from gcfcp.calibration.joining import join
from gcfcp.calibration.lines import Line, Stop
from gcfcp.calibration.mixture import Mixture
from gcfcp.calibration.planning import GroupPlan, Plan, plan
from gcfcp.calibration.pooling import pool_of
from gcfcp.calibration.problem import MERGES, RULES, Problem, problem_of
from gcfcp.calibration.reasons import AtomRecord, cells_of, public_reasons
from gcfcp.calibration.screening import Screening, screen, screen_pool
from gcfcp.calibration.server import Calibration, calibrate
from gcfcp.calibration.shapes import fit_shape
from gcfcp.calibration.unseen import UnseenSite

__all__ = [
    "ALPHAS",
    "CORRECTIONS",
    "EVERYTHING_GIVEN",
    "MAX_ATOMS",
    "MEASURED",
    "MERGES",
    "PAPER",
    "PROVED",
    "RULES",
    "SUMMARIES",
    "WITHIN",
    "Admission",
    "AtomRecord",
    "Calibration",
    "Correction",
    "Exploration",
    "GroupPlan",
    "Guarantee",
    "Kind",
    "LargestShare",
    "Line",
    "Mixture",
    "Plan",
    "Problem",
    "Screening",
    "Setting",
    "Stop",
    "UnseenSite",
    "add",
    "calibrate",
    "cells_of",
    "explore",
    "fit_shape",
    "in_order",
    "join",
    "merge",
    "misfits",
    "mixture",
    "one_each",
    "out_of_range",
    "parse_aggregates",
    "plan",
    "pool_of",
    "problem_of",
    "public_reasons",
    "screen",
    "screen_pool",
    "set_aside",
    "twin_texts",
]
