"""Run gcfcp and its peers side by side: `python -m benchmarks` (or `python3 dev.py bench`).

Peers are other libraries that do the same job. Every case races gcfcp against them on the same data
in one run. They run in turns whose order is shuffled, and each target is a ratio of times within
that run. conditionalconformal needs an older NumPy and runs in a process of its own.

Every result that is shown was checked: against the peer or a plain linear program (LP) where these
can be had, and otherwise by the condition that proves it optimal, counted from the data. Of large
tables only a sample is checked, which the results name. A peer that is not installed, or that
fails, is listed with the reason.

| module    | what it is for                                                                   |
|-----------|----------------------------------------------------------------------------------|
| `measure` | timings in turns, ratios, peak memory, cases and targets                         |
| `data`    | the problems: synthetic, seeded, in the sizes of the paper's experiments         |
| `oracles` | the plain LP, and the paper's bisection over LPs                                 |
| `peers`   | thin adapters over fastdigest, pytdigest, datasketches, tdigest, MAPIE and       |
|           | conditionalconformal                                                             |
| `cases`   | what is measured: one function for each part of the table                        |
| `report`  | the results as text, JSON, Markdown and a chart                                  |
| `machine` | where the figures come from: machine, versions, threads                          |
| `tables`  | `python -m benchmarks.tables`: the commands on a table of 100,000,000 records    |
"""

import os

# This stands before NumPy is imported, so that NumPy and every later library use one thread.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
