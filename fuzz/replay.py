"""Try mutations of the seeds without coverage guidance: python -m fuzz.replay TARGET N [SEED].

A run with guidance prefers small inputs that are refused in new ways, so it seldom gets beyond
reading. Of the mutations here up to a fifth are accepted (RESULTS.md has the numbers), so
calibration, prediction and pages are reached far more often. A defect leaves its input in
build/fuzz/TARGET/.
"""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

from fuzz import mutations, targets

ROOT = Path(__file__).resolve().parent


def main(name: str, count: int, seed: int) -> None:
    """Try `count` mutations on one target; print how many were accepted and the peak of memory."""
    chance = random.Random(seed)
    inputs = [f.read_bytes() for f in sorted((ROOT / "corpus" / name).iterdir())]
    accepted = 0
    for _ in range(count):
        data = mutations.mutate(name, chance.choice(inputs), chance)
        try:
            accepted += targets.check(name, data)
        except BaseException:
            folder = ROOT.parent / "build" / "fuzz" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "defect-replay").write_bytes(data)
            raise
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{name}: {count:,} inputs, {accepted:,} accepted, {peak} MB at most")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
