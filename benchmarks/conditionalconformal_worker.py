"""Run conditionalconformal in a process of its own, which may have an older NumPy.

The process needs only NumPy and conditionalconformal. It reads the path of one .npz file from each
line of its input (scores, phi, rows, quantile, warm), computes the cutoffs of all rows, and answers
with one line of JSON. With warm = 1 it keeps the problem and its calibration solution from the line
before.
"""

import gc
import json
import sys
import time

import numpy as np
from conditionalconformal import CondConf


def setup(problem):
    peer = CondConf(lambda x, y: y, lambda x: x)
    peer.setup_problem(problem["phi"], problem["scores"])
    return peer


def main():
    print(json.dumps({"numpy": np.__version__}), flush=True)
    peer = None
    for line in sys.stdin:
        try:
            problem = dict(np.load(line.strip()))
            gc.collect()
            gc.disable()  # `measure.race` does the same for every other contestant.
            began = time.process_time()
            if peer is None or not problem["warm"]:
                peer = setup(problem)
            cutoffs = [
                float(
                    np.squeeze(peer.predict(float(problem["quantile"]), row[None], lambda c, x: c))
                )
                for row in problem["rows"]
            ]
            answer = {"seconds": time.process_time() - began, "cutoffs": cutoffs}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        gc.enable()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
