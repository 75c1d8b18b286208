"""Fuzz one target, guided by coverage: python -m fuzz.run TARGET [-runs=N] [libFuzzer options].

This needs atheris (pip install atheris). Inputs that reach new code are kept in build/fuzz/TARGET.
A defect stops the run and leaves its input there. libFuzzer prints a summary at the end of the run.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gcfcp"]):
    from fuzz import mutations, targets

ROOT = Path(__file__).resolve().parent


def main() -> None:
    """Run libFuzzer on the target that the command line names."""
    name, options = sys.argv[1], sys.argv[2:]
    found = ROOT.parent / "build" / "fuzz" / name
    found.mkdir(parents=True, exist_ok=True)
    tally = [0, 0]

    def one(data: bytes) -> None:
        tally[0] += 1
        tally[1] += targets.check(name, data)
        if tally[0] % 10_000 == 0:
            print(
                f"{name}: {tally[0]:,} inputs, {tally[1]:,} accepted", file=sys.stderr, flush=True
            )

    def mutator(data: bytes, largest: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.3:
            return atheris.Mutate(data, largest)
        return mutations.mutate(name, data, chance)[:largest]

    atheris.Setup(
        [
            sys.argv[0],
            "-max_len=20000",
            "-rss_limit_mb=2048",
            "-timeout=10",
            f"-artifact_prefix={found}/defect-",
            *options,
            str(found),
            str(ROOT / "corpus" / name),
        ],
        one,
        custom_mutator=mutator,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
