"""Flower's processes on one machine, started, watched and stopped: a SuperLink, SuperNodes, runs.

Everything is stopped by its process number when the `with` block ends, children included, and
Flower's own state lives in the deployment's directory, not in the home directory.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "gcfcp"  # of the SuperLink, in Flower's configuration


class Deployment:
    """A SuperLink on `host` with TLS and node authentication, and what is connected to it."""

    def __init__(
        self,
        directory: Path,
        keys: Path,
        host: str = "127.0.0.1",
        echo: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.directory, self.keys, self.host, self.echo = directory, keys, host, echo
        self.home = directory / "flower-home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = free_port(host)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *_: object) -> None:
        # Nodes first: a node that loses its server would only complain.
        for name in reversed(list(self.processes)):
            self.stop(name)
        self.sweep()

    def sweep(self) -> None:
        """End what outlived its parent: a node that is refused leaves a helper behind."""
        end_all(started_in(self.home))

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            # SuperLink and SuperNode start further programs of Flower's by name.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    # --- the server

    def start_superlink(self) -> None:
        keys = self.keys
        self._start(
            "superlink",
            f"flower-superlink --host {self.host} --port {self.port}"
            f" --ssl-ca-certfile {keys}/ca.crt --ssl-certfile {keys}/server.pem"
            f" --ssl-keyfile {keys}/server.key"
            " --enable-supernode-auth --disable-runtime-dependency-installation",
        )
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\n'
            f'address = "{self.address}"\nroot-certificates = "{keys}/ca.crt"\n'
        )
        self.wait("the SuperLink's answer", self._is_healthy)

    def _is_healthy(self) -> bool:
        trust = ssl.create_default_context(cafile=str(self.keys / "ca.crt"))
        try:
            with urllib.request.urlopen(
                f"https://{self.address}/health", context=trust, timeout=2
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def register(self, client: str) -> None:
        """Let the node with this public key in."""
        self.flwr(f"supernode register {self.keys}/{client}.pub {NAME} --format json")

    # --- the sites

    def start_node(self, client: str, config: dict[str, Any]) -> None:
        """A SuperNode with the key of `client` and a node configuration."""
        pairs = " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())
        self._start(
            client,
            f"flower-supernode --superlink {self.address} --root-certificates {self.keys}/ca.crt"
            f" --auth-supernode-private-key {self.keys}/{client}"
            f" --host 127.0.0.1 --port {free_port('127.0.0.1')}"
            f" --node-config {shlex.quote(pairs)}",
        )

    def wait_for_node(self, client: str) -> None:
        self.wait(f"{client} to connect", lambda: "SuperNode ID" in self.log(client))

    # --- runs

    def run(self, app: Path, config: dict[str, Any], timeout: float = 120) -> str:
        """`flwr run`, then wait for its end; the last status, such as finished:completed."""
        number = self.submit(app, config)
        self.follow(number)
        end = time.monotonic() + timeout
        while not (status := self.status(number)).startswith("finished"):
            if time.monotonic() > end:
                raise TimeoutError(f"run {number} did not end within {timeout} s")
            time.sleep(0.5)
        return status

    def submit(self, app: Path, config: dict[str, Any]) -> str:
        pairs = " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())
        return str(self.flwr(f"run {app} {NAME} -c {shlex.quote(pairs)} --format json")["run-id"])

    def status(self, number: str) -> str:
        return str(self.flwr(f"list {NAME} --run-id {number} --format json")["runs"][0]["status"])

    def follow(self, number: str) -> None:
        """Show what the server says as it goes, until the run ends: who has answered."""
        with subprocess.Popen(
            ["flwr", "log", number, NAME],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as log:
            assert log.stdout is not None
            for line in log.stdout:
                if line.startswith("gcfcp:"):
                    self.echo(line.rstrip())

    def flwr(self, command: str) -> dict[str, Any]:
        """What `flwr COMMAND` answers, as JSON."""
        if not command.startswith("list"):
            self.echo(f"$ flwr {command}")
        done = subprocess.run(
            ["flwr", *shlex.split(command)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise RuntimeError(f"flwr {command}:\n{done.stdout}{done.stderr}") from None
        if not answer.get("success", True):
            raise RuntimeError(f"flwr {command}: {answer}")
        return dict(answer)

    # --- processes

    def _start(self, name: str, command: str) -> None:
        self.echo(f"$ {command}")
        with open(self.log_file(name), "wb") as log:
            self.processes[name] = subprocess.Popen(
                shlex.split(command),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
            )

    def log_file(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def log(self, name: str) -> str:
        return self.log_file(name).read_text(errors="replace")

    def wait(self, what: str, ready: Callable[[], bool], timeout: float = 60) -> None:
        end = time.monotonic() + timeout
        while not ready():
            if time.monotonic() > end:
                raise TimeoutError(f"waited {timeout:.0f} s for {what}")
            time.sleep(0.1)

    def stop(self, name: str, how: int = signal.SIGTERM) -> None:
        """End a process and all that it started, some of which are in sessions of their own."""
        process = self.processes.pop(name)
        family = descendants(process.pid)
        process.send_signal(how)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        end_all(family)


Identity = tuple[int, str]  # process number and start time, which together are never reused


def end_all(processes: list[Identity], patience: float = 5) -> None:
    """Wait for these processes to end by themselves, then end them, each by its number."""
    end = time.monotonic() + patience
    while any(map(is_alive, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    for process in filter(is_alive, processes):
        os.kill(process[0], signal.SIGKILL)


def started_in(home: Path) -> list[Identity]:
    """The processes whose Flower home is this directory, whoever their parent is now."""
    mark = f"FLWR_HOME={home}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in environment and (started := _started(int(entry.name))):
            found.append((int(entry.name), started))
    return found


def descendants(pid: int) -> list[Identity]:
    """All processes below `pid`, from /proc (on other systems: none are found)."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        fields = _stat(entry)
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, frontier = [], [pid]
    while frontier:
        below = children.get(frontier.pop(), [])
        frontier += below
        found += below
    return [(p, started) for p in found if (started := _started(p))]


def _stat(path: Path) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may itself hold blanks."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _started(pid: int) -> str:
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return fields[19] if fields else ""


def is_alive(identity: Identity) -> bool:
    fields = _stat(Path(f"/proc/{identity[0]}/stat"))
    return bool(fields) and fields[19] == identity[1] and fields[0] != "Z"


def free_port(host: str) -> int:
    with socket.socket() as s:
        s.bind((host, 0))
        return int(s.getsockname()[1])
