"""All thresholds of a coreset, exact.

`Coreset` is the problem, `Solver` solves it for any atom, and `Solution` is one threshold with what
is known about it. `Evidence` proves a threshold, and `quantile` is the threshold of one group by
itself. The module `solve` explains how it works and why it is exact.

Each module imports only from those above it in this table.

| module        | what it is for                                                       |
|---------------|----------------------------------------------------------------------|
| `problem`     | the coreset, and the piecewise linear functions that it is made of    |
| `start`       | a first guess near the optimum                                        |
| `vertex`      | where the simplex stands, and what can be read off there              |
| `ray`         | the long step: how far a basic atom moves, and what stops it          |
| `walk`        | the simplex in floats, for many test rows side by side                |
| `certificate` | whether a walk has arrived at its optimum                             |
| `exchange`    | how high a threshold can get if one record is exchanged               |
| `exact`       | the same walk in rational arithmetic, where floats cannot tell        |
| `solve`       | the solver itself                                                     |
| `quantile`    | the threshold of one group by itself                                  |
"""

from gcfcp.solver.problem import Coreset, combined
from gcfcp.solver.quantile import quantile
from gcfcp.solver.solve import EXCESS, Evidence, Solution, Solver

__all__ = ["EXCESS", "Coreset", "Evidence", "Solution", "Solver", "combined", "quantile"]
