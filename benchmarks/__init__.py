"""gcfcp and its peers side by side: `python -m benchmarks` (or `python3 dev.py bench`).

Every case races gcfcp against the tools that do the same job, on the same data, in one process,
in turns (ours, peer, ours, peer, ...), and states its target as a ratio of that run. Before
anything is timed, results are checked against the oracle that is raced: speed never costs
exactness here. A peer that is not installed, or fails, is listed as such.

    measure   timings in turns, ratios, peak memory, cases and targets
    data      the problems: synthetic, seeded, in the sizes of the paper's experiments
    oracles   the plain LP and the paper's bisection over LPs
    peers     thin adapters over fastdigest, pytdigest, datasketches, tdigest, MAPIE and
              conditionalconformal
    cases     what is measured, a function for each row of the table
    report    JSON, Markdown, the chart
"""
