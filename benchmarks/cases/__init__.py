"""What is measured. Each function takes a `Scale` and returns the cases of its part."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cases import clients, digests, prediction, tables, thresholds, walls
from benchmarks.measure import Case, Scale

CASES: dict[str, Callable[[Scale], list[Case]]] = {
    "digest": digests.digest,
    "summarize": clients.summarize,
    "bytes": clients.bytes_sent,
    "table": thresholds.table,
    "points": thresholds.points,
    "records": thresholds.growth_with_records,
    "groups": thresholds.growth_with_groups,
    "atoms": walls.atoms,
    "threads": walls.threads,
    "disjoint": walls.disjoint,
    "clients": clients.growth_with_clients,
    "json": walls.files_of_calibrations,
    "prediction": prediction.prediction,
    "files": tables.files,
    "start": tables.start,
}
