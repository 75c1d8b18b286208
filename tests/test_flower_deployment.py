"""Real deployments on this machine: TLS, node authentication, faults, kills, and a second try.

The machine may be busy, so time limits are generous. A killed node is missed by Flower after up to
60 s, which one of the tests has to wait for.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; it comes with gcfcp[test]")

from gcfcp.cli import entry as cli
from gcfcp.rounds import Ledger

sys.path.insert(0, str(Path(__file__).parents[1] / "examples/flower"))
import keys as key_maker
from deployment import Deployment, descendants, is_alive, started_in
from keys import make_keys, make_node_key

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked for in /proc"),
]

SECRET = "0.37194428"
PATIENT = "--start 900"  # On a busy machine a round takes long to start.
SITES = ("hospital-a", "hospital-b", "hospital-c")


def make_data(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = zip(rng.integers(20, 90, 200).tolist(), rng.random(200).tolist(), strict=True)
    path.write_text("age,score\n" + "".join(f"{age},{score}\n" for age, score in rows))


def record_of(round_: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((round_ / "record.json").read_text())
    return found


@dataclass
class Federation:
    """Sites with data in a directory, and what they and the server are told."""

    directory: Path
    sites: tuple[str, ...] = SITES

    def __post_init__(self) -> None:
        # The name of the server is all that is given; its certificate names loopback by itself.
        make_keys(self.keys, list(self.sites), ["localhost"])
        self.groups.write_text('all = "TRUE"\nover_65 = "age >= 65"\n')
        command = [sys.executable, "-m", "gcfcp.flower", "app", str(self.app)]
        subprocess.run(command, check=True)

    @property
    def keys(self) -> Path:
        return self.directory / "keys"

    @property
    def groups(self) -> Path:
        return self.directory / "groups.toml"

    @property
    def app(self) -> Path:
        return self.directory / "app"

    @property
    def round(self) -> Path:
        return self.directory / "round"

    def data(self, name: str) -> Path:
        return self.directory / f"{name}.csv"

    def node_config(self, name: str) -> dict[str, Any]:
        return {
            "client": name,
            "data": str(self.data(name)),
            "groups": str(self.groups),
            "score": "column",
            "ledger": str(self.directory / f"{name}-ledger"),
        }

    def run_config(self, **more: Any) -> dict[str, Any]:
        return {
            "groups": str(self.groups),
            "clients": str(self.keys / "roster.toml"),
            "output": str(self.round),
            "min-clients": len(self.sites),
        } | more

    def start(self, deployment: Deployment) -> None:
        """Start the SuperLink and a SuperNode for each site."""
        deployment.start_superlink()
        for name in self.sites:
            deployment.register(name)
            deployment.start_node(name, self.node_config(name))
        for name in self.sites:
            deployment.wait_for_node(name)

    def by_files(self) -> bytes:
        """The predictor if the sites' summaries go through files, which must be those of the round.

        Every summary of the round must be the one of its file, too.
        """
        files = []
        for name in self.sites:
            files.append(str(self.directory / f"{name}.gcfcp"))
            command = f"summarize {self.data(name)} --groups {self.groups} --client {name}"
            cli.run(shlex.split(f"{command} --min-count 10 -o {files[-1]}"))
            sent = (self.round / f"summaries/{name}.gcfcp").read_bytes()
            assert sent == Path(files[-1]).read_bytes()
        cli.run(shlex.split(f"calibrate {' '.join(files)} -o {self.directory / 'by-files.json'}"))
        return (self.directory / "by-files.json").read_bytes()


def test_a_round_with_a_failing_a_hung_and_an_unknown_node_then_the_rest(tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    round_, data = federation.round, federation.data
    make_node_key(federation.keys / "stranger")
    make_data(data("hospital-a"), 0)
    data("hospital-b").write_text(f"age,score\n40,{SECRET}\n50,{SECRET}x\n")  # This site fails.
    os.mkfifo(data("hospital-c"))  # This site hangs, because nobody ever writes to the pipe.
    with Deployment(tmp_path, federation.keys) as deployment:
        federation.start(deployment)
        stranger = federation.node_config("hospital-a") | {"ledger": str(tmp_path / "stranger-l")}
        deployment.start_node("stranger", stranger)
        refused = "Failed to initialize the connection to the SuperLink"
        deployment.wait("the stranger's end", lambda: refused in deployment.log("stranger"))
        deployment.stop("stranger")

        # A busy machine may need a second try, which asks only the clients without an answer.
        for deadline in (15, 60, 600):
            config = federation.run_config(deadline=deadline)
            assert deployment.run(federation.app, config, PATIENT) == 1
            codes = {e["client"]: e["code"] for e in record_of(round_)["clients"]}
            if codes["hospital-a"] is None and codes["hospital-b"] != "no-answer":
                break
        assert codes == {
            "hospital-a": None,
            "hospital-b": "data-refused",
            "hospital-c": "no-answer",
        }
        record = record_of(round_)
        assert record["outcome"] == "failed"
        assert record["missing"] == ["hospital-b", "hospital-c"]
        assert record["not_on_the_roster"] == []  # The stranger was not even let in.
        assert "SuperNode ID" not in deployment.log("stranger")
        assert not (round_ / "predictor.json").exists()
        for name in ("superlink", "stranger", *SITES):
            assert SECRET not in deployment.log(name)
        assert SECRET not in json.dumps(record)

        # Both sites are mended. The one that hung is started anew, since it would hang on.
        make_data(data("hospital-b"), 1)
        data("hospital-c").unlink()
        make_data(data("hospital-c"), 2)
        deployment.stop("hospital-c")
        deployment.start_node("hospital-c", federation.node_config("hospital-c"))
        config = federation.run_config(deadline=900)
        assert deployment.run(federation.app, config, PATIENT) == 0
        assert [e["status"] for e in record_of(round_)["clients"]] == [
            "kept from an earlier run",
            "answered",
            "answered",
        ]

        # A later run asks the same question and then another one. Each run starts the sites' apps
        # in new processes: they repeat what their ledgers hold, and give nothing else.
        later = federation.run_config(clients="", deadline=900)
        again = {"output": str(tmp_path / "again")}
        assert deployment.run(federation.app, later | again, PATIENT) == 0
        other = {"output": str(tmp_path / "other"), "delta": 100}
        assert deployment.run(federation.app, later | other, PATIENT) == 1
        codes = [e["code"] for e in record_of(tmp_path / "other")["clients"]]
        assert codes == ["delta-differs"] * 3

    for name in SITES:
        ledger = Ledger(tmp_path / f"{name}-ledger")
        (entry,) = ledger.entries()
        for where in (round_, tmp_path / "again"):
            assert (where / f"summaries/{name}.gcfcp").read_bytes() == entry.answer
        sent = [line["repeated"] for line in ledger.journal() if "code" not in line]
        # An answer that came too late for one run is repeated in the next one.
        assert sent[:2] == [False, True]
        assert all(sent[1:])
    assert [p for p in started_in(deployment.home) if is_alive(p)] == []
    assert (round_ / "predictor.json").read_bytes() == federation.by_files()


def test_a_superlink_that_is_killed_in_the_middle_of_a_round_goes_on_where_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    federation = Federation(tmp_path, SITES[:2])
    make_data(federation.data("hospital-a"), 0)
    os.mkfifo(federation.data("hospital-b"))  # This site hangs.
    with Deployment(tmp_path, federation.keys) as deployment:
        federation.start(deployment)
        config = federation.run_config(deadline=900)
        begun = deployment.begin(federation.app, config, PATIENT)
        arrived = (federation.round / "summaries/hospital-a.gcfcp").exists
        deployment.wait("the answer of hospital-a", arrived, 1200)
        superlink = deployment.processes["superlink"].pid
        for pid, _ in [*descendants(superlink), (superlink, "")]:
            os.kill(pid, signal.SIGKILL)
        deployment.stop("superlink")
        assert begun.wait(600) == 1
        assert "run the same command again when it is back" in capfd.readouterr().err

        # It is started again with its database, and so are the sites. Nobody registers a key again.
        federation.data("hospital-b").unlink()
        make_data(federation.data("hospital-b"), 1)
        deployment.start_superlink()
        for name in federation.sites:
            deployment.stop(name)
            deployment.start_node(name, federation.node_config(name))
        assert deployment.run(federation.app, config, PATIENT) == 0
        assert [e["status"] for e in record_of(federation.round)["clients"]] == [
            "kept from an earlier run",
            "answered",
        ]
    assert (federation.round / "predictor.json").read_bytes() == federation.by_files()


def test_a_node_that_is_killed_in_the_middle_of_a_round_is_asked_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    federation = Federation(tmp_path, SITES[:2])
    make_data(federation.data("hospital-a"), 0)
    os.mkfifo(federation.data("hospital-b"))  # This site hangs until it is killed.
    with Deployment(tmp_path, federation.keys) as deployment:
        federation.start(deployment)
        begun = deployment.begin(federation.app, federation.run_config(deadline=900), PATIENT)
        with pipe_that_is_read(deployment, federation.data("hospital-b")):
            deployment.kill_under_supervisor("hospital-b")
        federation.data("hospital-b").unlink()
        make_data(federation.data("hospital-b"), 1)
        assert begun.wait(1500) == 0
    said = capfd.readouterr().out
    assert "hospital-b is left out, because the connection was lost" in said
    assert "hospital-b answered" in said
    assert "speaks for another client" not in said
    log = deployment.log("hospital-b")
    assert log.count("SuperNode ID") == 2
    assert "supervise: flower-supernode ended with -9, starts again" in log
    codes = {e["client"]: e["code"] for e in record_of(federation.round)["clients"]}
    assert codes == {"hospital-a": None, "hospital-b": None}
    assert (federation.round / "predictor.json").read_bytes() == federation.by_files()


@contextmanager
def pipe_that_is_read(deployment: Deployment, path: Path) -> Iterator[None]:
    """Wait until a process reads from this pipe, and let it wait for something to read."""
    ends: list[int] = []

    def is_read() -> bool:
        with suppress(OSError):  # Nobody reads from it yet.
            ends.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return bool(ends)

    deployment.wait(f"somebody to read {path}", is_read, 1200)
    yield
    os.close(ends[0])


def test_a_certificate_without_loopback_is_said_to_be_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(key_maker, "LOOPBACK", [])
    federation = Federation(tmp_path, SITES[:1])
    with Deployment(tmp_path, federation.keys) as deployment:
        deployment.start_superlink()
        with deployment.begin(federation.app, federation.run_config(), "--start 15") as begun:
            assert begun.wait(900) == 1
    err = capfd.readouterr().err
    assert "has not started within 15 s (it is pending) and was stopped" in err
    assert "the SuperLink's certificate does not name 127.0.0.1" in err


def test_the_example_with_a_site_that_has_python_of_its_own(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "examples/flower/three_hospitals.py"
    command = [sys.executable, str(script), "--directory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    round_, files = tmp_path / "server/round", []
    for name in SITES:
        site = tmp_path / name
        files.append(str(site / "summary.gcfcp"))
        command = f"summarize {site}/calibration.csv --groups {site}/groups.toml --client {name}"
        cli.run(shlex.split(f"{command} --score thr --min-count 20 -o {files[-1]}"))
        assert (round_ / f"summaries/{name}.gcfcp").read_bytes() == Path(files[-1]).read_bytes()
    cli.run(shlex.split(f"calibrate {' '.join(files)} -o {tmp_path / 'by-files.json'}"))
    assert (round_ / "predictor.json").read_bytes() == (tmp_path / "by-files.json").read_bytes()
    record = record_of(round_)
    assert [e["code"] for e in record["audits"]] == [None] * 3
    # The server has sent no code, and the hospital's own file stayed where it was.
    assert [path.name for path in (tmp_path / "server/app").iterdir()] == ["pyproject.toml"]
    sent = list((tmp_path / "flower-home").rglob("my_site*"))
    assert sent == []
