"""gcfcp and its peers side by side: `python -m benchmarks` (or `python3 dev.py bench`).

Every case races gcfcp against the tools that do the same job, on the same data in one run, in turns
whose order is shuffled, and states its target as a ratio of that run. conditionalconformal needs an
older NumPy and runs in a process of its own. No result is shown that was not checked: against the
peer or a plain LP where these can be had, else by the condition that proves it optimal, counted
from the data; of large tables a sample, which the results name. A peer that is not installed, or
fails, is listed as such.

    measure   timings in turns, ratios, peak memory, cases and targets
    data      the problems: synthetic, seeded, in the sizes of the paper's experiments
    oracles   the plain LP and the paper's bisection over LPs
    peers     thin adapters over fastdigest, pytdigest, datasketches, tdigest, MAPIE and
              conditionalconformal
    cases     what is measured, a function for each row of the table
    report    JSON, Markdown, the chart
"""

import os

# Before NumPy is imported: one thread for every library, those that come later too.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
