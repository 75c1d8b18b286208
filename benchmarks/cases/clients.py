"""The work of a client, the bytes that it sends, and how the server's time grows with clients."""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

import gcfcp
from benchmarks import data
from benchmarks.measure import Case, Entry, Ratio, Scale, Timing, at_most, check, peak_memory, race
from benchmarks.oracles import plain_lp

ALPHA = 0.1
REGION = 500  # The number of clients that one aggregator merges.
RECORDS = 20_000  # The number of records of each client.


# --- one client ----------------------------------------------------------------------------------


def summarize(scale: Scale) -> list[Case]:
    """The whole work of a client, beside np.sort of its scores."""
    n = scale.size(10**7, 10**5)
    problem = data.overlapping(n, groups=8, atoms=40, seed=1)
    scores, membership, groups = problem.scores, problem.membership, problem.groups

    def run() -> gcfcp.ClientSummary:
        return gcfcp.summarize(scores, membership, groups=groups, client="a")

    checks = _summary_checks(run(), scores, membership)
    times = race({"np.sort": lambda: np.sort(scores), "gcfcp": run}, scale.turns)
    inputs = scores.nbytes + membership.nbytes
    peak = inputs + peak_memory(run)
    return [
        Case(
            "summarize",
            "summarize, a whole client",
            f"{n:,} rows x 8 overlapping groups, 40 atoms, delta = 250",
            (
                Entry("np.sort", times["np.sort"]),
                Entry("gcfcp", times["gcfcp"], figures={"peak MB": peak / 1e6}),
            ),
            (
                at_most("time of np.sort x", Ratio.of(times["gcfcp"], times["np.sort"]), 6),
                at_most("peak memory, inputs included, / inputs", peak / inputs, 3),
            ),
            checks,
        )
    ]


def _summary_checks(
    summary: gcfcp.ClientSummary, scores: data.Floats, membership: data.Bools
) -> tuple[str, ...]:
    """Compare every tenth atom with the digest of its scores, which are selected one by one."""
    same = True
    for i in range(0, len(summary.membership), 10):
        own = scores[(membership == summary.membership[i]).all(axis=1)]
        expected = gcfcp.TDigest.from_values(own, 250, representative="upper")
        part = slice(summary.start[i], summary.start[i + 1])
        same &= np.array_equal(summary.values[part], expected.means)
        same &= np.array_equal(summary.counts[part], expected.weights)
        same &= int(summary.errors[i]) == expected.error_weight
    return (
        check(bool(same), "atoms equal the digests of their own scores, to the last bit"),
        check(int(summary.counts.sum()) == len(scores), "every record is counted once"),
    )


def bytes_sent(scale: Scale) -> list[Case]:
    """The bytes of summaries, for several numbers of records and several deltas."""
    entries, targets = [], []
    sizes = (10**3, 10**4) if scale.quick else (10**3, 10**4, 10**5, 10**6, 10**7)
    for n in sizes:
        problem = data.seven_atoms(n, seed=2)
        for delta in (25, 250, 2500):
            summary = gcfcp.summarize(
                problem.scores, problem.membership, groups=problem.groups, client="a", delta=delta
            )
            sent = summary.to_bytes()
            check(gcfcp.ClientSummary.from_bytes(sent) == summary, "bytes read back are equal")
            header = 12 + int.from_bytes(sent[8:12], "little") + 32
            per_centroid = (len(sent) - header) / len(summary.values)
            label = f"n = {n:,}, delta = {delta}"
            figures = {
                "centroids": len(summary.values),
                "bytes": len(sent),
                "header and checksum": header,
                "bytes a centroid": per_centroid,
                "raw scores / bytes": 8 * n / len(sent),
            }
            entries.append(Entry(label, figures=figures))
            targets.append(per_centroid)
    return [
        Case(
            "bytes",
            "bytes sent by a client",
            "7 atoms of 3 groups",
            tuple(entries),
            (at_most("bytes a centroid, at most", max(targets), 12),),
            ("bytes read back are equal",),
            ("header and checksum are paid once a file and listed apart",),
        )
    ]


# --- many clients --------------------------------------------------------------------------------


@cache
def _originals(count: int) -> tuple[gcfcp.ClientSummary, ...]:
    """Summaries of `count` different clients."""
    summaries = []
    for seed in range(count):
        problem = data.seven_atoms(RECORDS, seed)
        summaries.append(
            gcfcp.summarize(
                problem.scores, problem.membership, groups=problem.groups, client=f"{seed:06}"
            )
        )
    return tuple(summaries)


def _sent(clients: int, distinct: int) -> Iterator[bytes]:
    """The bytes that the clients send: `distinct` summaries, repeated under other names."""
    originals = _originals(min(clients, distinct))
    for k in range(clients):
        summary, name = originals[k % len(originals)], f"{k:06}"
        if name != summary.client:
            summary = replace(summary, client=name, members=((name, summary.n),))
        yield summary.to_bytes()


def _arrive(
    stream: Iterable[bytes], clients: int, size: int
) -> tuple[gcfcp.Calibration, float, int]:
    """Calibrate from the clients' bytes: the calibration, the seconds, and the bytes sent.

    If `size` is below the number of clients, they are merged in regions of that size as they
    arrive, and the clients of only one region are held at a time. Otherwise all are pooled.
    """
    sent, took, regions = 0, 0.0, []
    stream = iter(stream)
    while files := list(islice(stream, size)):  # The time to make the bytes is not counted.
        began = time.process_time()
        received = [gcfcp.ClientSummary.from_bytes(file) for file in files]
        if size < clients:
            received = [gcfcp.merge(received, f"region-{len(regions):03}")]
        regions += received
        took += time.process_time() - began
        sent += sum(map(len, files))
    began = time.process_time()
    calibration = _calibrated(regions)
    return calibration, took + time.process_time() - began, sent


def _calibrated(summaries: list[gcfcp.ClientSummary]) -> gcfcp.Calibration:
    """The calibration of these summaries. The warning that clients are repeated is expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        return gcfcp.calibrate(
            summaries, ALPHA, aggregates=[s.client for s in summaries if s.is_aggregate]
        )


@dataclass(frozen=True)
class Arrival:
    """How long a calibration from bytes took, and how much memory it needed."""

    timing: Timing
    sent: int  # The number of bytes that the clients sent.
    peak: int  # The most bytes that the process held, beyond what it held before.
    error: float  # The largest certified error of an atom.
    summaries: tuple[bytes, ...]  # The summaries that were calibrated: clients' or regions'.

    @property
    def calibration(self) -> gcfcp.Calibration:
        """The calibration, computed once more from the summaries."""
        return _calibrated([gcfcp.ClientSummary.from_bytes(b) for b in self.summaries])


def _arrival(clients: int, distinct: int, turns: int, size: int | None = None) -> Arrival:
    """One calibration with this many clients, timed in `turns` turns.

    `size` is that of a region; None pools all clients.

    It must run in a process of its own. The peak memory of the process is then that of this
    calibration and of the summaries that are sent.
    """
    before = _held("VmRSS")
    _originals(min(clients, distinct))
    size = size or clients
    calibration, took, sent = _arrive(_sent(clients, distinct), clients, size)
    peak = _held("VmHWM") - before
    times = [took] + [_arrive(_sent(clients, distinct), clients, size)[1] for _ in range(turns - 1)]
    kept = tuple(s.to_bytes() for s in calibration.summaries)
    error = max(float((s.errors / s.atom_counts).max()) for s in calibration.summaries)
    return Arrival(Timing(tuple(times)), sent, peak, error, kept)


def _held(what: str) -> int:
    """The bytes that this process holds now ("VmRSS"), or the most that it held ("VmHWM").

    They come from /proc/self/status if it exists, because `ru_maxrss` of a new process starts at
    what its parent held.
    """
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields[what].split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def growth_with_clients(scale: Scale) -> list[Case]:
    """The time from bytes to thresholds, for up to 100,000 clients.

    Clients that are pooled are compared with others that are pooled, and those that are merged in
    regions with others that are merged.
    """
    pooled = (5, 20) if scale.quick else (10, 10**3)
    merged = (10, 20) if scale.quick else (10**4, 10**5)
    size = scale.size(REGION, 5)
    distinct = scale.size(997, 19)  # These are primes, so that no two regions are the same.
    runs = [(f"K = {K:,} pooled", K, None, scale.turns) for K in pooled]
    runs += [(f"K = {K:,} in regions", K, size, min(scale.turns, 3)) for K in merged]
    arrivals: dict[str, tuple[int, Arrival]] = {}
    for name, K, region, turns in runs:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            arrivals[name] = K, pool.submit(_arrival, K, distinct, turns, region).result()
    entries = {
        name: Entry(
            name,
            found.timing,
            figures={
                "bytes a client": found.sent / K,
                "peak MB": found.peak / 1e6,
                "memory a client, bytes": found.peak / K,
                "largest certified error": found.error,
                "microseconds a client": found.timing.median / K * 1e6,
            },
        )
        for name, (K, found) in arrivals.items()
    }
    names = list(entries)
    checks = [_pooled_is_exact(arrivals[names[0]][1])]
    if not scale.quick:
        checks.append(_merged_is_certified(arrivals[names[1]][1], arrivals[names[-1]][1]))

    def growth(high: str, low: str) -> float:
        each = (entries[name].figures["microseconds a client"] for name in (high, low))
        return next(each) / next(each)

    return [
        Case(
            "clients",
            "from bytes to table, growth with clients",
            f"{', '.join(names)}; summaries of 7 atoms x ~126 centroids",
            tuple(entries.values()),
            (
                at_most(f"time a client, {names[1]} / {names[0]}", growth(names[1], names[0]), 2),
                at_most(f"time a client, {names[3]} / {names[2]}", growth(names[3], names[2]), 2),
                at_most(f"peak GB, {names[3]}", entries[names[3]].figures["peak MB"] / 1e3, 8),
            ),
            tuple(checks),
            (
                f"in regions, gcfcp.merge takes {size} clients at a time as they come",
                f"there are {distinct} distinct summaries, sent over and over under other names; "
                "making them is not timed, holding them is part of the memory",
                "the certified error is the largest of an atom, as a share of its records: merging "
                "adds to it",
            ),
        )
    ]


def _pooled_is_exact(arrival: Arrival) -> str:
    """Compare each threshold of pooled summaries with a plain LP over all their centroids."""
    calibration = arrival.calibration
    scores = np.concatenate([s.values for s in calibration.summaries])
    rows = np.concatenate(
        [np.repeat(s.membership, np.diff(s.start), axis=0) for s in calibration.summaries]
    )
    weights = np.concatenate(
        [s.counts * calibration.shares[s.client] / (s.n + 1) for s in calibration.summaries]
    )
    for row in calibration.threshold_table.membership:
        exact = plain_lp(scores, rows, weights, calibration.test_weight, ALPHA, row)
        found = float(calibration.thresholds(row[None])[0])
        check(abs(found - exact) <= 1e-7 * (1 + abs(exact)), f"threshold {found} is {exact}")
    return f"K = {len(calibration.summaries)}: every threshold equals a plain LP over all centroids"


def _merged_is_certified(pooled: Arrival, merged: Arrival) -> str:
    """Compare merged digests with pooled centroids.

    The repeated clients have the same distribution as the originals. So F of the merged digests may
    differ from F of the pooled centroids by no more than the merges certify, and only downwards.
    """
    regions, clients = merged.calibration.summaries, pooled.calibration.summaries
    for a, row in enumerate(regions[0].membership):
        values, counts, added = [], [], 0
        for s in regions:
            check(np.array_equal(s.membership[a], row), "regions describe the same atoms")
            part = slice(s.start[a], s.start[a + 1])
            values.append(s.values[part])
            counts.append(s.counts[part])
            added += int(s.errors[a])
        originals = [
            (s.values[s.start[a] : s.start[a + 1]], s.counts[s.start[a] : s.start[a + 1]])
            for s in clients
        ]
        grid = np.unique(np.concatenate(values))
        F_merged = _cdf(np.concatenate(values), np.concatenate(counts), grid)
        F_pooled = _cdf(*(np.concatenate(x) for x in zip(*originals, strict=True)), grid)
        gap = F_pooled - F_merged
        total = sum(int(c.sum()) for c in counts)
        check(gap.min() >= -1e-12 and gap.max() <= added / total, f"atom {a} is within its error")
    return "merged digests lie below the pooled ones, by no more than their certified error"


def _cdf(values: data.Floats, counts: data.Ints, at: data.Floats) -> data.Floats:
    """The distribution function of the weighted values at the points `at`."""
    order = np.argsort(values)
    reached = np.concatenate([[0], np.cumsum(counts[order])])
    levels: data.Floats = reached[np.searchsorted(values[order], at, side="right")] / reached[-1]
    return levels
