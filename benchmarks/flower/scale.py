"""Measure how a round over Flower grows with its clients: the server's time and memory.

    python benchmarks/flower/scale.py [--clients 100 1000 10000 100000] [-o results/scale.json]

Every number of clients has a process of its own, so that the peak memory is that of this number.
Times are CPU times, because a clock would also count other programs on the machine. The clients are
simulated in the same process, and their summaries are made beforehand. The round of the ServerApp
is the real one: requests, replies, every check, every summary written to disk, calibration,
predictor and record. For the second table the same summaries are first merged in regions of 1,000,
as `gcfcp merge` does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

REGION = 1_000  # The number of clients that are merged into one region.
DISTINCT = 500  # The number of different data sets. Further clients repeat them under other names.


def summaries(count: int, delta: float = 100) -> list[bytes]:
    """The bytes of `count` summaries: 200 to 400 records, 4 overlapping groups, up to 8 atoms."""
    from dataclasses import replace

    import gcfcp

    groups = gcfcp.Groups(["all", "young", "rural", "female"])
    made = []
    for k in range(min(count, DISTINCT)):
        rng = np.random.default_rng(k)
        n = int(rng.integers(200, 401))
        everyone = np.ones((n, 1), dtype=bool)
        membership = np.concatenate([everyone, rng.random((n, 3)) < [0.4, 0.3, 0.5]], axis=1)
        made.append(
            gcfcp.summarize(
                rng.gamma(1 + k % 3, size=n),
                membership,
                groups=groups,
                client="x",
                delta=delta,
                min_count=5,
                score="gamma",
            )
        )
    out = []
    for k in range(count):
        one, name = made[k % len(made)], f"client-{k:06}"
        out.append(replace(one, client=name, members=((name, one.n),)).to_bytes())
    return out


def peak() -> float:
    """The most memory that this process held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def over_the_grid(count: int) -> dict[str, Any]:
    """Measure one round through a grid in this process, and a second one from disk."""
    from flwr.app import ConfigRecord, Message, RecordDict

    from flower_grid import InProcessGrid, InProcessNode
    from gcfcp.flower import Question, Target, Terms, conduct
    from gcfcp.rounds import protocol
    from gcfcp.summary import ClientSummary

    class Forgetful(InProcessGrid):
        """A grid that keeps no copy of what was sent, so that only the server's memory counts."""

        def push_messages(self, messages: Any) -> Any:
            ids = super().push_messages(messages)
            self.sent.clear()
            return ids

    data = summaries(count)
    groups = ClientSummary.from_bytes(data[0]).groups

    def answering(payload: bytes, name: str) -> Any:
        def handler(message: Message, context: Any) -> Message:
            request = protocol.Request.from_record(message.content[protocol.RECORD])
            record = ConfigRecord(protocol.answer(request.nonce, name, payload))
            return Message(RecordDict({protocol.RECORD: record}), reply_to=message)

        return handler

    nodes = {k + 1: InProcessNode(answering(d, f"client-{k:06}")) for k, d in enumerate(data)}
    question = Question(groups, "gamma", delta=100, min_count=5, by="atom")
    target = Target(0.1, "proportional")
    terms = Terms(deadline=36_000, min_clients=count)
    before = peak()
    with tempfile.TemporaryDirectory() as directory:
        start = time.process_time()
        result = conduct(Forgetful(nodes), question, target, terms, directory, lambda _: None)
        whole = time.process_time() - start
        thresholds = [r.threshold for r in result.calibration.atoms]
        del result
        start = time.process_time()
        again = conduct(Forgetful(nodes), question, target, terms, directory, lambda _: None)
        resumed = time.process_time() - start
        size = os.path.getsize(Path(directory) / "predictor.json")
    assert [r.threshold for r in again.calibration.atoms] == thresholds
    return {
        "clients": count,
        "bytes_received": sum(map(len, data)),
        "seconds": whole,
        "seconds_from_disk": resumed,
        "peak_mb_before": before,
        "peak_mb": peak(),
        "predictor_bytes": size,
    }


def in_regions(count: int) -> dict[str, Any]:
    """Measure regions of 1,000 clients, each merged from bytes, and a server that gets regions."""
    import gcfcp

    data = summaries(count)
    merged, times = [], []
    for start in range(0, count, REGION):
        begin = time.process_time()
        part = [gcfcp.ClientSummary.from_bytes(d) for d in data[start : start + REGION]]
        merged.append(gcfcp.merge(part, f"region-{start // REGION:04}").to_bytes())
        times.append(time.process_time() - begin)
        data[start : start + REGION] = [b""] * len(part)
    begin = time.process_time()
    calibration = gcfcp.calibrate(
        [gcfcp.ClientSummary.from_bytes(d) for d in merged], 0.1, "proportional"
    )
    seconds = time.process_time() - begin
    return {
        "clients": count,
        "regions": len(merged),
        "seconds_a_region": float(np.median(times)),
        "bytes_a_region": int(np.median([len(m) for m in merged])),
        "bytes_to_the_server": sum(map(len, merged)),
        "seconds_at_the_server": seconds,
        "certified": min(g.certified for g in calibration.guarantee),
        "peak_mb": peak(),
    }


def measured(what: str, count: int) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--only", what, "--clients", str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run all measurements, print two tables, and write the results if a file is named."""
    parser = argparse.ArgumentParser(description="Rounds of many clients")
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--only", choices=["grid", "regions"])
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if given.only:
        run = over_the_grid if given.only == "grid" else in_regions
        print(json.dumps(run(given.clients[0])))
        return
    results: dict[str, Any] = {"grid": [], "regions": []}
    print("| clients | received | server | from disk | peak memory |\n|---|---|---|---|---|")
    for count in given.clients:
        r = measured("grid", count)
        results["grid"].append(r)
        print(
            f"| {count:,} | {r['bytes_received'] / 1e6:.1f} MB | {r['seconds']:.1f} s "
            f"| {r['seconds_from_disk']:.1f} s | {r['peak_mb']:,.0f} MB |",
            flush=True,
        )
    print("\n| clients | regions | a region | bytes of one | server | peak memory |")
    print("|---|---|---|---|---|---|")
    for count in given.clients:
        if count < 10 * REGION:
            continue
        r = measured("regions", count)
        results["regions"].append(r)
        print(
            f"| {count:,} | {r['regions']} | {r['seconds_a_region']:.2f} s "
            f"| {r['bytes_a_region']:,} | {r['seconds_at_the_server']:.2f} s "
            f"| {r['peak_mb']:,.0f} MB |",
            flush=True,
        )
    if given.output:
        given.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
