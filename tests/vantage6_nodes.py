"""Nodes of vantage6 without Docker: each run is a process with what the image would start.

A node writes the input of a run to a file, starts a container with certain variables, and reads the
file of the output when it has ended. `Nodes` does this with processes, for the client that vantage6
gives a central function. The command, the variables and their encoding are those of
`vantage6.node.docker.task_manager` in vantage6 4.15, and those of the Dockerfile.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vantage6.common.globals import ENV_VAR_EQUALS_REPLACEMENT

DOCKERFILE = Path(__file__).parents[1] / "examples/vantage6/Dockerfile"


def image() -> tuple[list[str], dict[str, str]]:
    """The command and the variables of the image."""
    text = DOCKERFILE.read_text()
    command = json.loads(re.findall(r"^CMD (.*)$", text, re.M)[0])
    assert command[0] == "python"
    return [sys.executable, *command[1:]], dict(re.findall(r"^ENV (\w+)=(.*)$", text, re.M))


def encoded(value: str) -> str:
    """A variable as a node encodes it."""
    return base64.b32encode(value.encode()).decode().replace("=", ENV_VAR_EQUALS_REPLACEMENT)


class Nodes:
    """A client of vantage6 whose organisations have nodes in this directory.

    algorithm_env: What the configuration of each organisation's node has under this name.
    databases: What a task says about databases; a task cannot say more about variables.
    offline: The organisations whose nodes are offline: their runs stay pending.
    """

    def __init__(
        self,
        folder: Path,
        algorithm_env: dict[int, dict[str, str]],
        databases: list[dict[str, Any]] | None = None,
        offline: tuple[int, ...] = (),
    ) -> None:
        self.folder, self.algorithm_env = folder, algorithm_env
        self.databases, self.offline = databases or [], offline
        self.runs: dict[int, tuple[int, subprocess.Popen[bytes] | None]] = {}
        self.fetched: set[int] = set()  # The runs whose results were asked for.
        self.organization = SimpleNamespace(list=lambda: [{"id": k} for k in algorithm_env])
        self.task = SimpleNamespace(create=self._create)
        self.run = SimpleNamespace(from_task=self._runs)
        self.result = SimpleNamespace(from_task=self._results)

    def start(self, number: int, organization: int, input_: dict[str, Any]) -> None:
        """Start the container of a run."""
        place = self.folder / f"task-{number:09d}"
        place.mkdir(parents=True)
        (place / "input").write_text(json.dumps(input_))
        (place / "output").write_bytes(b"")
        (place / "token").write_text("token")
        variables = {
            "INPUT_FILE": str(place / "input"),
            "OUTPUT_FILE": str(place / "output"),
            "TOKEN_FILE": str(place / "token"),
            "TEMPORARY_FOLDER": str(place),
            "USER_REQUESTED_DATABASE_LABELS": ",".join(db["label"] for db in self.databases),
        }
        for database in self.databases:
            for key in ("query", "sheet_name", "preprocessing"):
                if key in database:
                    variables[f"{database['label'].upper()}_{key.upper()}"] = database[key]
        variables |= self.algorithm_env[organization]  # The node's own come last.
        command, of_image = image()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GCFCP")}
        environment |= of_image | {key: encoded(value) for key, value in variables.items()}
        with open(place / "log", "wb") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=place, stdout=log, stderr=subprocess.STDOUT
            )
        self.runs[number] = (organization, process)

    def _create(
        self, input_: dict[str, Any], organizations: list[int], name: str, description: str
    ) -> dict[str, Any]:
        (organization,) = organizations
        number = len(self.runs) + 1
        if organization in self.offline:
            self.runs[number] = (organization, None)
        else:
            self.start(number, organization, input_)
        return {"id": number}

    def _runs(self, task_id: int) -> list[dict[str, Any]]:
        organization, process = self.runs[task_id]
        if process is None:
            status = "pending"
        else:
            code = process.poll()
            status = "active" if code is None else "crashed" if code else "completed"
        return [{"status": status, "organization": {"id": organization}}]

    def monotonic(self, expected: int) -> float:
        """A clock that runs to the deadline when so many results were fetched, and not before."""
        return time.monotonic() + (1e6 if len(self.fetched) >= expected else 0)

    def _results(self, task_id: int) -> list[Any]:
        self.fetched.add(task_id)
        return [json.loads((self.folder / f"task-{task_id:09d}/output").read_bytes())]

    def call(self, organization: int, method: str, **kwargs: Any) -> tuple[int, Any, str]:
        """Call a function at one node; its exit code, its output if there is one, and its log."""
        number = len(self.runs) + 1
        self.start(number, organization, {"method": method, "kwargs": kwargs})
        process = self.runs[number][1]
        assert process is not None
        code = process.wait(timeout=100)
        place = self.folder / f"task-{number:09d}"
        output = (place / "output").read_bytes()
        return code, json.loads(output) if output else None, (place / "log").read_text()

    def stop(self) -> None:
        """End all containers that still run."""
        for _, process in self.runs.values():
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
