"""Repetitions on all cores. After an interruption they go on where they were.

Run r draws everything from `numpy.random.default_rng([seed, r])`, so the results depend neither on
the number of processes nor on the order in which they finish. Each finished run is written as one
line to `unfinished.jsonl` in the output directory. The same command, started again, reads these
lines and does the remaining runs. The first line of the file is a fingerprint of the settings, the
data and the code. If it differs, the file is begun anew. The file is removed once the results are
written.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gcfcp
from gcfcp.errors import GCFCPError

Arrays = Mapping[str, NDArray[Any]]
Settings = Mapping[str, Any]
OneRun = Callable[[Arrays, Settings, int], dict[str, Any]]

_STORE = "unfinished.jsonl"  # The file of finished runs, until the results are written.


def repeat(
    one: OneRun,
    arrays: Arrays,
    settings: Settings,
    runs: int,
    out: Path,
    *,
    title: str,
    jobs: int | None = None,
    progress: bool | None = None,
) -> list[dict[str, Any]]:
    """The results of `one(arrays, settings, run)` for run 0, 1, ..., runs - 1, in this order.

    out: The output directory. title: The name on the progress bar. jobs: The number of processes,
    by default one for each core. progress: Whether a bar is shown, by default on a terminal only.
    """
    if type(runs) is not int or runs < 1:
        raise GCFCPError(f"runs={runs!r} is not a whole number of at least 1")
    store = out / _STORE
    done = _read(store, signature(one, arrays, settings))
    todo = [r for r in range(runs) if r not in done]
    workers = min(jobs or os.cpu_count() or 1, len(todo))
    with _bar(title, runs, runs - len(todo), progress) as advance, store.open("a") as lines:
        for run, outcome in _outcomes(one, arrays, settings, todo, workers):
            lines.write(json.dumps({"run": run, "outcome": outcome}) + "\n")
            lines.flush()
            done[run] = outcome
            advance()
    # Every outcome goes through JSON once, so that it does not matter whether it was read from the
    # file or made now.
    return [json.loads(json.dumps(done[r])) for r in range(runs)]


def forget(out: Path) -> None:
    """Remove the file of finished runs, once the results are written."""
    (out / _STORE).unlink(missing_ok=True)


def signature(one: OneRun, arrays: Arrays, settings: Settings) -> str:
    """A fingerprint of everything that a run depends on, including the code."""
    digest = hashlib.sha256()
    for module in (__file__, gcfcp.__file__):
        for source in sorted(Path(module).parent.rglob("*.py")):
            digest.update(source.read_bytes())
    digest.update(f"{one.__module__}.{one.__qualname__}".encode())
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _read(store: Path, expected: str) -> dict[int, Any]:
    """The finished runs in the file. A line that was cut off by the interruption is dropped."""
    done: dict[int, Any] = {}
    try:
        lines = store.read_text().splitlines()
    except OSError:
        lines = []
    whole = [json.dumps({"signature": expected})]
    if lines[:1] == whole:
        for line in lines[1:]:
            try:
                entry = json.loads(line)
                done[entry["run"]] = entry["outcome"]
            except (ValueError, KeyError, TypeError):
                continue
            whole.append(line)
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text("\n".join(whole) + "\n")
    return done


def _outcomes(
    one: OneRun, arrays: Arrays, settings: Settings, todo: list[int], workers: int
) -> Iterator[tuple[int, Any]]:
    """Each run with its outcome, as soon as it is finished."""
    if workers <= 1:
        for run in todo:
            yield run, one(arrays, settings, run)
        return
    # The processes are spawned, because threads of NumPy and of the progress bar do not survive a
    # fork.
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="gcfcp-") as folder:
        for name, array in arrays.items():
            np.save(Path(folder) / f"{name}.npy", array)
        with ProcessPoolExecutor(workers, context, _open, (folder, dict(settings))) as pool:
            try:
                futures = {pool.submit(_work, one, run): run for run in todo}
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


_shared: dict[str, Any] = {}  # In a worker process: the arrays and settings of all its runs.


def _open(folder: str, settings: dict[str, Any]) -> None:
    """Prepare a worker process. The arrays are mapped from files, so all processes share them."""
    _shared["settings"] = settings
    _shared["arrays"] = {
        path.stem: np.load(path, mmap_mode="r") for path in Path(folder).glob("*.npy")
    }


def _work(one: OneRun, run: int) -> dict[str, Any]:
    return one(_shared["arrays"], _shared["settings"], run)


@contextmanager
def _bar(title: str, total: int, done: int, wanted: bool | None) -> Iterator[Callable[[], None]]:
    """A progress bar, and the function that advances it.

    It is shown if `wanted`. If that is None, it is shown on a terminal only.
    """
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, completed=done)
        yield lambda: bar.advance(task)
