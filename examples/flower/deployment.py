"""Start, watch and stop Flower's processes on one machine: a SuperLink, SuperNodes, runs.

When the `with` block ends, every process and its children are stopped, each by its process number.
Flower's own state is kept in the deployment's directory and not in the home directory.
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

NAME = "gcfcp"  # Flower's configuration knows the SuperLink by this name.
LONGEST = 1800  # After so many seconds a round is given up.
SUPERVISE = Path(__file__).with_name("supervise.py")


class Deployment:
    """A SuperLink on this machine with TLS and node authentication, and the nodes connected to it.

    directory: Logs and Flower's state are written here. keys: The directory that keys.py made.
    name: The name by which the nodes reach the SuperLink.
    echo: It is called with every command.
    """

    def __init__(
        self,
        directory: Path,
        keys: Path,
        name: str = "localhost",
        echo: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.directory, self.keys, self.name, self.echo = directory, keys, name, echo
        self.home = directory / "flower-home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *_: object) -> None:
        # The nodes are stopped first, because a node that loses its server logs errors.
        for name in reversed(list(self.processes)):
            self.stop(name)
        self.sweep()

    def sweep(self) -> None:
        """End processes that outlived their parent. A node that is refused leaves one behind."""
        end_all(started_in(self.home))

    @property
    def address(self) -> str:
        """The SuperLink's name and port."""
        return f"{self.name}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of all processes."""
        return os.environ | {
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            # SuperLink and SuperNode start other programs of Flower by name.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    # --- the server

    def start_superlink(self) -> None:
        """Start the SuperLink, and wait until it answers."""
        keys = self.keys
        self._start(
            "superlink",
            f"flower-superlink --host 127.0.0.1 --port {self.port}"
            f" --database {self.directory}/superlink.db"
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
        """Allow the node with this client's public key to connect."""
        self.flwr(f"supernode register {self.keys}/{client}.pub {NAME} --format json")

    # --- the sites

    def start_node(self, client: str, config: dict[str, Any]) -> None:
        """Start a SuperNode with the key of `client` and this node configuration.

        A supervisor starts it again whenever it ends.
        """
        pairs = " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())
        self._start(
            client,
            f"{sys.executable} {SUPERVISE} flower-supernode"
            f" --superlink {self.address} --root-certificates {self.keys}/ca.crt"
            f" --auth-supernode-private-key {self.keys}/{client}"
            f" --host 127.0.0.1 --port {free_port()}"
            f" --node-config {shlex.quote(pairs)}",
        )

    def wait_for_node(self, client: str) -> None:
        """Wait until the client's SuperNode is connected."""
        self.wait(f"{client} to connect", lambda: "SuperNode ID" in self.log(client))

    # --- runs

    def run(self, app: Path, config: dict[str, Any], more: str = "") -> int:
        """Run a round to its end, and return the exit code: 0 if it ended in a predictor."""
        with self.begin(app, config, more) as round_:
            try:
                return round_.wait(LONGEST)
            finally:
                round_.kill()

    def begin(self, app: Path, config: dict[str, Any], more: str = "") -> subprocess.Popen[bytes]:
        """Start a round, and return the process that follows it to its end."""
        pairs = " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())
        command = f"-m gcfcp.flower run {app} {NAME} -c {shlex.quote(pairs)} {more}".strip()
        self.echo(f"$ python {command}")
        return subprocess.Popen(
            [sys.executable, *shlex.split(command)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
        )

    def flwr(self, command: str) -> dict[str, Any]:
        """Run `flwr COMMAND`, and return its answer, which is JSON."""
        self.echo(f"$ flwr {command}")
        done = subprocess.run(
            ["flwr", *shlex.split(command)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
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
        """Start a process whose output goes to the log file of this name."""
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

    def wait(self, what: str, ready: Callable[[], bool], timeout: float = 300) -> None:
        """Wait until `ready` says so; `what` is named in the error if it never does."""
        end = time.monotonic() + timeout
        while not ready():
            if time.monotonic() > end:
                raise TimeoutError(f"waited {timeout:.0f} s for {what}")
            time.sleep(0.1)

    def kill_under_supervisor(self, name: str) -> None:
        """Kill a SuperNode and all that it started, without a warning. Its supervisor stays."""
        for process in descendants(self.processes[name].pid):
            os.kill(process[0], signal.SIGKILL)

    def stop(self, name: str, how: int = signal.SIGTERM) -> None:
        """End a process and all processes that it started, also those in other sessions."""
        process = self.processes.pop(name)
        family = descendants(process.pid)
        process.send_signal(how)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        end_all(family)


# A process number and a start time. Together they are never used again for another process.
Identity = tuple[int, str]


def end_all(processes: list[Identity], patience: float = 5) -> None:
    """Wait `patience` seconds for these processes to end, then end the others by their numbers."""
    end = time.monotonic() + patience
    while any(map(is_alive, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    for process in filter(is_alive, processes):
        os.kill(process[0], signal.SIGKILL)


def started_in(home: Path) -> list[Identity]:
    """The processes whose Flower home is this directory, whatever their parent is now."""
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
    """All processes that `pid` started, directly or not. Without /proc, none are found."""
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
    """The fields of /proc/PID/stat after the process's name, which may contain blanks."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _started(pid: int) -> str:
    """When the process started, or "" if there is no such process."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return fields[19] if fields else ""


def is_alive(identity: Identity) -> bool:
    """Whether this very process still runs."""
    fields = _stat(Path(f"/proc/{identity[0]}/stat"))
    return bool(fields) and fields[19] == identity[1] and fields[0] != "Z"


def free_port() -> int:
    """A port that no process uses at the moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
