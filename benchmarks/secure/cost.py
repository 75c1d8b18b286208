"""Measure what a secure sum costs: bytes and processor time, by the number of sites and of counts.

    python benchmarks/secure/cost.py [-o benchmarks/secure/results/cost.json]

Sites and server are in one process and hand each other the bytes that would travel. The sums are
signed, so every site checks the signatures of all others. Two cases are measured: nobody is lost,
and a third of the sites is lost after their shares, which is the dearest case for the server. Times
are processor times on one core; those of a site are the mean over all sites. Every sum is compared
with the plain one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from benchmarks.machine import machine  # noqa: E402
from gcfcp.summary import signatures  # noqa: E402
from secure_sum import Federation, counts, names  # noqa: E402


class Measured(Federation):
    """A federation that takes the time of every step of every site."""

    def step(self, step: str, name: str, request: bytes) -> bytes:
        began = time.process_time()
        reply = super().step(step, name, request)
        self.spent[name] += time.process_time() - began
        return reply


def one(number: int, length: int, lost: int, keys: Any, known: Any) -> dict[str, Any]:
    """One sum: what every site and the server have spent, sent and got."""
    federation = Measured(
        counts(names(number), length),
        keys,
        {name: known[name] for name in names(number)},
        lost={"mask": names(number)[:lost]},
    )
    federation.spent = defaultdict(float)
    began = time.process_time()
    found = federation.run()
    all_in_all = time.process_time() - began
    inside = names(number)[lost:]
    plain = np.sum([federation.vectors[name] for name in inside], axis=0)
    assert list(found.sites) == inside
    assert (found.values == plain.astype(np.uint64)).all()
    site = inside[-1]
    return {
        "sites": number,
        "counts": length,
        "lost": lost,
        "threshold": federation.roster.threshold,
        "sent_bytes": sum(len(d) for (_, n), d in federation.sent.items() if n == site),
        "got_bytes": sum(len(d) for (_, n), d in federation.got.items() if n == site),
        "site_seconds": round(sum(federation.spent[n] for n in inside) / len(inside), 4),
        "server_seconds": round(all_in_all - sum(federation.spent.values()), 4),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The table of docs/secure.md."""
    lines = [
        "| sites | counts | a site sends | and gets | time at a site | at the server | "
        "the same if a third is lost |",
        "|---|---|---|---|---|---|---|",
    ]
    lost = {(r["sites"], r["counts"]): r for r in rows if r["lost"]}
    for r in rows:
        worse = lost.get((r["sites"], r["counts"]))
        if not r["lost"]:
            then = "not measured" if worse is None else _time(worse["server_seconds"])
            lines.append(
                f"| {r['sites']} | {r['counts']:,} | {r['sent_bytes'] / 1000:.1f} kB | "
                f"{r['got_bytes'] / 1000:.1f} kB | {_time(r['site_seconds'])} | "
                f"{_time(r['server_seconds'])} | {then} |"
            )
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


CASES = [(sites, counts) for sites in (3, 10, 30) for counts in (1_000, 10_000)] + [(100, 10_000)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        everyone = names(max(sites for sites, _ in CASES))
        keys = {name: Path(folder) / name for name in everyone}
        known = {name: (signatures.new_key(path),) for name, path in keys.items()}
        where = machine() | {"command": "python benchmarks/secure/cost.py"}
        for number, length in CASES:
            for lost in (0, number // 3):
                rows.append(one(number, length, lost, keys, known))
                print(rows[-1], flush=True)
                if given.output is not None:  # What is measured stays if the rest is stopped.
                    text = json.dumps({"machine": where, "rows": rows}, indent=1)
                    given.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
