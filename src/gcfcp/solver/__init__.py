"""All thresholds of a coreset, exact.

`Coreset` is the problem, `Solver` solves it for any atom, `DividedSolver` does so part by part, and
`Solution` is one threshold with what is known about it. `Evidence` proves a threshold, and
`quantile` is the threshold of one group by itself. The module `solve` explains how it works and why
it is exact.

Each module imports only from those above it in this table.

| module        | what it is for                                                       |
|---------------|----------------------------------------------------------------------|
| `problem`     | the coreset, and the piecewise linear functions that it is made of    |
| `products`    | products of matrices that one thread computes                         |
| `equations`   | inverses, determinants and equations that one thread computes         |
| `start`       | a first guess near the optimum                                        |
| `vertex`      | where the simplex stands, and what can be read off there              |
| `ray`         | the long step: how far a basic atom moves, and what stops it          |
| `walk`        | the simplex in floats, for many test rows side by side                |
| `nearest`     | where the walks of test rows start                                    |
| `predicted`   | a nearer start for the walks of a heavy test point                    |
| `vicinity`    | the few atoms that test rows move past a score                        |
| `certificate` | whether a walk has arrived at its optimum                             |
| `exchange`    | how high a threshold can get if one record is exchanged               |
| `exact`       | the same walk in rational arithmetic, where floats cannot tell        |
| `solve`       | the solver itself                                                     |
| `single`      | the threshold of one atom by itself, in closed form                   |
| `quantile`    | the threshold of one group by itself                                  |
| `parts`       | atoms that have nothing to do with each other                         |
| `divided`     | the solver of a coreset that falls into parts                         |
"""

from gcfcp.solver.divided import DividedSolver
from gcfcp.solver.problem import Coreset, combined
from gcfcp.solver.quantile import quantile
from gcfcp.solver.solve import EXCESS, Evidence, Solution, Solver

__all__ = [
    "EXCESS",
    "Coreset",
    "DividedSolver",
    "Evidence",
    "Solution",
    "Solver",
    "combined",
    "quantile",
]
