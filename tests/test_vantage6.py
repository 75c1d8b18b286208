"""Rounds over vantage6: its mock client, the command of the image, and what a task cannot do.

`python3 dev.py vantage6` makes an environment that has vantage6, and runs this file there.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

TOOLS = pytest.importorskip(
    "vantage6.algorithm.tools",
    reason="vantage6 is not installed: python3 dev.py vantage6 brings it",
)

from carried import QUESTION, SECRET, by_files, codes, make_table, refuse_secret, write_site
from gcfcp.carriers import Letter, Node
from gcfcp.rounds import Ledger, Request, pack, unpack
from gcfcp.vantage6 import Code, Target, Terms, algorithm, round_to_json
from gcfcp.vantage6.carrier import Vantage6Carrier
from vantage6_nodes import DOCKERFILE, Nodes, image

EXAMPLE = Path(__file__).parents[1] / "examples/vantage6/three_hospitals.py"
SITES = {"hospital-a": 1, "hospital-b": 2, "hospital-c": 3, "hospital-d": 4, "hospital-e": 5}
OPTIONS = ("--score", "column", "--min-count", 10, "--by", "group")


@pytest.mark.slow
def test_the_example_gives_the_predictor_of_the_files(tmp_path: Path) -> None:
    """One round with an audit and the mock client, as the documentation shows it."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--directory", str(tmp_path / "h")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all: covered" in done.stdout  # The audit.
    sites = ("hospital-a", "hospital-b", "hospital-c")
    expected = by_files(
        tmp_path / "files",
        {name: tmp_path / "h" / name / "calibration.csv" for name in sites},
        tmp_path / "h/groups.toml",
        *("--score", "thr", "--min-count", 20, "--by", "group"),
    )
    assert (tmp_path / "h/predictor.json").read_bytes() == expected
    for name in sites:  # Each site keeps what it has told: a summary and an audit.
        assert len(Ledger(tmp_path / "h" / name / "ledger").entries()) == 2


# --- containers ----------------------------------------------------------------------------------


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Path]:
    """The directories of all sites, each with a table and the site's file."""
    found = {name: tmp_path / name for name in SITES}
    for name, directory in found.items():
        directory.mkdir()
        make_table(directory / "calibration.csv", SITES[name])
        write_site(directory / "site.toml", directory, client=name)
    return found


@pytest.fixture
def environments(sites: dict[str, Path]) -> dict[int, dict[str, str]]:
    """What the configuration of each node has as algorithm_env."""
    return {SITES[n]: {"GCFCP_SITE": str(path / "site.toml")} for n, path in sites.items()}


@pytest.fixture
def nodes(tmp_path: Path, environments: dict[int, dict[str, str]]) -> Iterator[Nodes]:
    made = Nodes(tmp_path / "tasks", environments)
    yield made
    made.stop()


def wait_for(expected: int, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the deadline come when so many results have, however slow this machine is."""
    clock = SimpleNamespace(monotonic=lambda: nodes.monotonic(expected), sleep=time.sleep)
    monkeypatch.setattr("gcfcp.carriers.exchange.time", clock)


def conduct(client: Nodes, missing: str = "fail", **more: Any) -> Any:
    """The result of the central function for all nodes that there are."""
    clients = {name: str(k) for name, k in SITES.items() if k in client.algorithm_env}
    terms = Terms(600, missing=missing, clients=clients)
    round_ = round_to_json(QUESTION, Target(0.1), terms)
    return algorithm.calibrate(mock_client=client, **round_, **more)


@pytest.mark.slow
def test_a_task_with_four_bad_nodes_then_a_second_one_for_the_rest(
    tmp_path: Path,
    sites: dict[str, Path],
    environments: dict[int, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One node raises, one hangs, one has no file, one claims the name of another."""
    monkeypatch.setenv("GCFCP_ROUNDS", str(tmp_path / "rounds"))
    tables = {name: path / "calibration.csv" for name, path in sites.items()}
    tables["hospital-b"].write_text(f"age,score\n40,{SECRET}\n50,{SECRET}x\n")
    tables["hospital-c"].unlink()
    os.mkfifo(tables["hospital-c"])  # It hangs, because nobody ever writes to the pipe.
    (sites["hospital-d"] / "site.toml").unlink()
    write_site(sites["hospital-e"] / "site.toml", sites["hospital-e"], client="hospital-a")
    nodes = Nodes(tmp_path / "tasks", environments)
    wait_for(4, nodes, monkeypatch)
    try:
        first = conduct(nodes)
    finally:
        nodes.stop()
    record = json.loads(first["record"])
    assert codes(record) == {
        "hospital-a": None,
        "hospital-b": Code.DATA_REFUSED,
        "hospital-c": Code.NO_ANSWER,
        "hospital-d": Code.SITE_NOT_SET_UP,
        "hospital-e": Code.WRONG_CLIENT,
    }
    assert (first["outcome"], first["predictor"], first["report"]) == ("failed", None, None)
    assert "hospital-b" in first["problem"]
    refuse_secret(tmp_path, json.dumps(first), but=("calibration.csv",))

    for k, (name, path) in enumerate(sites.items()):
        tables[name].unlink()
        make_table(tables[name], k)
        dataset = "corrected" if name == "hospital-e" else None
        write_site(path / "site.toml", path, client=name, dataset=dataset)
    make_table(tables["hospital-a"], SITES["hospital-a"])  # These records have been answered about.
    nodes = Nodes(tmp_path / "again", environments)
    wait_for(6, nodes, monkeypatch)
    try:
        second = conduct(nodes)
    finally:
        nodes.stop()
    record = json.loads(second["record"])
    assert codes(record) == dict.fromkeys(SITES)
    assert record["clients"][0]["status"] == "kept from an earlier run"
    assert len(nodes.runs) == 4  # The first one was not asked again.
    groups = sites["hospital-a"] / "groups.toml"
    assert second["predictor"].encode() == by_files(tmp_path / "f", tables, groups, *OPTIONS)
    refuse_secret(tmp_path / "again")


@pytest.mark.slow
def test_without_a_directory_for_rounds_every_site_repeats_its_answer(
    tmp_path: Path,
    sites: dict[str, Path],
    environments: dict[int, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that is offline is missing; the next task asks all, and the others say the same."""
    names = ("hospital-a", "hospital-b")
    few = {SITES[name]: environments[SITES[name]] for name in names}
    nodes = Nodes(tmp_path / "tasks", few, offline=(2,))
    wait_for(1, nodes, monkeypatch)
    first = conduct(nodes, missing="present")
    assert codes(json.loads(first["record"])) == {"hospital-a": None, "hospital-b": Code.NO_ANSWER}
    assert json.loads(first["predictor"])["provenance"]["missing"] == ["hospital-b"]
    nodes = Nodes(tmp_path / "again", few)
    wait_for(3, nodes, monkeypatch)
    second = conduct(nodes)
    assert (second["outcome"], len(nodes.runs)) == ("calibrated", 2)
    journal = Ledger(sites["hospital-a"] / "ledger").journal()
    assert [line["repeated"] for line in journal] == [False, True]
    tables = {name: sites[name] / "calibration.csv" for name in names}
    groups = sites["hospital-a"] / "groups.toml"
    assert second["predictor"].encode() == by_files(tmp_path / "f", tables, groups, *OPTIONS)


# --- what a task cannot do -----------------------------------------------------------------------


def request_of(**changes: Any) -> str:
    return base64.b64encode(pack(Request(QUESTION, "nonce").to_record() | changes)).decode()


def reply_in(output: dict[str, str]) -> dict[str, Any]:
    return unpack(base64.b64decode(output["reply"]))


def test_a_task_can_call_two_functions_and_nothing_else() -> None:
    """vantage6 calls whatever attribute of the module a task names."""
    names = {name for name, value in vars(algorithm).items() if callable(value)}
    assert names - {"__loader__", "__spec__"} == {"answer", "calibrate"}
    assert not callable(getattr(algorithm, "__loader__", None))
    assert image()[1] == {"PKG_NAME": algorithm.__name__}


@pytest.mark.slow
def test_a_task_decides_nothing_about_data_policy_or_ledger(
    tmp_path: Path, sites: dict[str, Path], nodes: Nodes
) -> None:
    """A task that filters rows, or names other files, gets the answer of the node's own file."""
    code, output, log = nodes.call(1, "answer", request=request_of())
    assert (code, reply_in(output)["client"]) == (0, "hospital-a")
    honest = reply_in(output)["payload"]
    assert str(sites["hospital-a"]) not in log  # The server reads it.

    # vantage6's own decorators would obey all of this.
    rows = json.dumps([{"function": "select_rows", "parameters": {"query": "age > 80"}}])
    nodes.databases = [
        {"label": "GCFCP_SITE", "query": "/evil", "preprocessing": rows},
        {"label": "gcfcp", "query": "SELECT 1", "sheet_name": "other", "preprocessing": rows},
    ]
    other = {"data": str(sites["hospital-b"] / "calibration.csv"), "questions": 9, "client": "x"}
    code, output, _ = nodes.call(1, "answer", request=request_of(**other))
    assert (code, reply_in(output)["payload"]) == (0, honest)
    # Arguments that do not exist are refused, also those of vantage6's mocks.
    for more in ({"mock_data": [1]}, {"site": "/evil"}, {"mock_client": {}}):
        code, output, _ = nodes.call(1, "answer", request=request_of(), **more)
        assert (code, output) == (1, None)
    code, output, log = nodes.call(1, "read_site", path="/etc/passwd")
    assert (code, output) == (1, None)
    assert len(Ledger(sites["hospital-a"] / "ledger").entries()) == 1


@pytest.mark.parametrize("request_", ["", "x", "====", "AAAA", None, 3, [], {}])
def test_a_request_that_makes_no_sense_gets_a_code(request_: Any) -> None:
    assert reply_in(algorithm.answer(request_))["code"] == Code.BAD_REQUEST


def test_a_node_that_names_no_file_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GCFCP_SITE", raising=False)
    assert reply_in(algorithm.answer(request_of()))["code"] == Code.SITE_NOT_SET_UP


@pytest.mark.parametrize(
    "change", [{"question": {}}, {"target": {"alpha": 7}}, {"terms": {"path": "/"}}]
)
def test_a_round_that_makes_no_sense_asks_nobody(change: dict[str, Any]) -> None:
    round_ = round_to_json(QUESTION, Target(), Terms()) | change
    client = SimpleNamespace()  # It has nothing that could be called.
    result = algorithm.calibrate(mock_client=client, **round_)
    assert (result["outcome"], result["record"]) == ("failed", None)
    assert result["problem"]


def test_a_name_of_a_round_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCFCP_ROUNDS", str(tmp_path / "rounds"))
    client = SimpleNamespace(organization=SimpleNamespace(list=list))
    round_ = round_to_json(QUESTION, Target(), Terms(deadline=0.1))
    algorithm.calibrate(mock_client=client, **round_, output="../../outside")
    assert [path.name for path in tmp_path.iterdir()] == ["rounds"]


# --- the carrier ---------------------------------------------------------------------------------


class StubClient:
    """A server of vantage6 that says what it is told to."""

    def __init__(self) -> None:
        self.status, self.answer, self.broken = "pending", {"reply": ""}, 0
        self.organization = SimpleNamespace(list=lambda: self._say([{"id": 7}, {"id": 8}]))
        self.task = SimpleNamespace(create=lambda **_: self._say({"id": 3}))
        self.run = SimpleNamespace(
            from_task=lambda _: self._say([{"status": self.status, "organization": {"id": 7}}])
        )
        self.result = SimpleNamespace(from_task=lambda _: self._say([self.answer]))

    def _say(self, value: Any) -> Any:
        if self.broken:
            self.broken -= 1
            raise ConnectionError(SECRET)
        return value


@pytest.fixture
def client() -> StubClient:
    return StubClient()


LETTER = Letter(Node("7", "7"), "summarize", {"request": "x"}, 3.5)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("crashed", Code.APP_FAILED),
        ("not allowed", Code.APP_FAILED),
        ("non-existing Docker image", Code.APP_FAILED),
        ("killed by user", Code.APP_FAILED),
        ("failed", Code.APP_FAILED),
        ("unknown error", Code.NODE_LOST),
        ("start failed", Code.NODE_LOST),
    ],
)
def test_a_run_that_ended_badly_has_a_code(client: StubClient, status: str, code: Code) -> None:
    carrier = Vantage6Carrier(client)
    (ticket,) = carrier.send([LETTER])
    assert carrier.receive([ticket]) == []
    client.status = status
    (reply,) = carrier.receive([ticket])
    assert (reply.ticket, reply.sender, reply.code) == (ticket, None, code)


def test_every_status_of_vantage6_is_known() -> None:
    from vantage6.common.task_status import TaskStatus

    from gcfcp.vantage6 import carrier

    waiting = {"pending", "initializing", "active"}
    known = {carrier._COMPLETED, *carrier._LOST, *carrier._FAILED} | waiting
    assert known == {status.value for status in TaskStatus}


@pytest.mark.parametrize("answer", [None, 3, [], {}, {"reply": 3}, {"reply": "x"}, {"reply": ""}])
def test_a_result_that_makes_no_sense_has_a_code(client: StubClient, answer: Any) -> None:
    client.status, client.answer = "completed", answer
    (reply,) = Vantage6Carrier(client).receive(["3"])
    assert (reply.sender, reply.code) == ("7", Code.NOT_UNDERSTOOD)


def test_a_server_that_cannot_be_reached_is_asked_later(client: StubClient) -> None:
    """The server is restarted: nothing is known meanwhile, and nothing is lost."""
    carrier = Vantage6Carrier(client)
    client.broken = 1
    assert carrier.nodes() == []
    assert [node.key for node in carrier.nodes()] == ["7", "8"]
    client.broken = 1
    assert carrier.send([LETTER]) == [None]
    (ticket,) = carrier.send([LETTER])
    client.status = "completed"
    client.answer = {"reply": base64.b64encode(pack({"protocol": 1})).decode()}
    client.broken = 1
    assert carrier.receive([ticket]) == []
    (reply,) = carrier.receive([ticket])
    assert (reply.sender, reply.record) == ("7", {"protocol": 1})


def test_only_the_wanted_organisations_are_asked(client: StubClient) -> None:
    assert [node.id for node in Vantage6Carrier(client, [8, 99]).nodes()] == ["8"]


# --- the image -----------------------------------------------------------------------------------


def test_the_dockerfile_is_clean() -> None:
    """hadolint finds nothing, and everything that is copied is there."""
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed: it comes with gcfcp[vantage6-test]")
    done = subprocess.run([hadolint, "--no-color", DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    root = Path(__file__).parents[1]
    for line in DOCKERFILE.read_text().splitlines():
        if line.startswith("COPY"):
            assert all((root / name).exists() for name in line.split()[1:-1])
    assert "log_traceback=False" in DOCKERFILE.read_text()


@pytest.mark.slow
def test_the_image_is_built_where_docker_is(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True).returncode:
        pytest.skip("Docker does not run here: the image is linted, and its command is run alone")
    root = Path(__file__).parents[1]
    command = [docker, "build", "-q", "-f", str(DOCKERFILE), str(root)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert built.returncode == 0, built.stderr
    check = "import gcfcp.vantage6.algorithm as a; print(a.answer('')['reply'][:4])"
    run = [docker, "run", "--rm", built.stdout.strip(), "python", "-c", check]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
