"""Measure how long the service of the page on serving takes for one record (serving.md).

The predictor and the service are those of the page. One process of uvicorn answers on 127.0.0.1,
and one client asks over one connection, one record after the other.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import page
from blocks import Part, parts_of
from page import write_table

REQUESTS, WARM = 2000, 100


def parts() -> list[Part]:
    """The parts of the page."""
    return parts_of((page.DOCS / "howto" / "serving.md").read_text())


@contextlib.contextmanager
def service(directory: str) -> Iterator[str]:
    """The address of the service, which runs in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--log-level", "error", "--no-access-log"], cwd=directory
    )
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/interval"
    finally:
        process.terminate()
        process.wait(30)


def times_of(ask: Callable[[int], Any], n: int) -> np.ndarray:
    """The milliseconds of each of n calls, after some that warm up."""
    for i in range(min(n, WARM)):
        ask(i)
    found = []
    for i in range(n):
        begun = time.perf_counter()
        ask(i)
        found.append(1000 * (time.perf_counter() - begun))
    return np.array(found)


def measure(n: int) -> dict[str, np.ndarray]:
    """For each way of asking, the milliseconds of n single records."""
    import httpx

    import gcfcp

    given = parts()
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        try:
            for part in given:
                if part.kind == "file":
                    Path(part.title).write_text(part.text)
            exec(next(part.text for part in given if part.kind == "python"), {})
            predictor = gcfcp.Predictor.load("predictor.json")
            matrix = np.array([[True, True]])

            def alone(i: int) -> Any:
                row = {"age": [18 + i % 70], "prediction": [0.01 * i]}
                member = predictor.groups.membership(row)
                return predictor.predict_interval(row["prediction"], member)

            found = {
                "`gcfcp` with a membership matrix": times_of(
                    lambda i: predictor.predict_interval([0.01 * i], matrix), n
                ),
                "`gcfcp` with conditions of groups": times_of(alone, n),
            }
            with service(directory) as address, httpx.Client() as client:

                def ask(i: int) -> Any:
                    record = {"age": 18 + i % 70, "prediction": 0.01 * i}
                    return client.post(address, json=record).raise_for_status()

                found["the whole request, over HTTP"] = times_of(ask, n)
        finally:
            os.chdir(before)
    return found


def main(n: int = REQUESTS) -> None:
    """Write docs/measured/serving.md."""
    found = measure(n)
    rows = [
        [what, *(f"{np.quantile(times, q):.2f}" for q in (0.5, 0.95, 0.99))]
        for what, times in found.items()
    ]
    write_table(
        "serving",
        ["one record", "median, ms", "95 %, ms", "99 %, ms"],
        rows,
        f"""Each row is over {n:,} single records, one after the other, on one connection to one
        process on the same machine ({os.cpu_count()} cores, Python {platform.python_version()},
        with other programs running beside it).""",
    )
