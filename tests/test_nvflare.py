"""Rounds over NVIDIA FLARE: its simulator, a lost, a late and a wrong site, and a second job.

`python3 dev.py nvflare` makes an environment that has FLARE, and runs this file there.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="FLARE is not installed: python3 dev.py nvflare brings it")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.recipe import SimEnv

import gcfcp
from carried import QUESTION, SECRET, by_files, codes, make_table, refuse_secret, write_site
from gcfcp.carriers import Letter, Node
from gcfcp.nvflare import CalibrationRecipe, Code, SiteExecutor, Target, Terms
from gcfcp.nvflare.carrier import FlareCarrier
from gcfcp.rounds import RECORD, Ledger, Request, pack, unpack

EXAMPLE = Path(__file__).parents[1] / "examples/nvflare/three_hospitals.py"
sys.path.insert(0, str(EXAMPLE.parent))

LETTER = {"request": "x"}  # Any message.
OWN_SITE = """
from pathlib import Path
from carried import QUESTION
import numpy as np
from gcfcp.rounds import Ledger, Policy, Records, Site

def read(question):
    return np.arange(60.0), np.column_stack([np.ones(60), np.arange(60) > 30])

def site(settings):
    ledger = Ledger(Path(__file__).parent / "ledger")
    return Site(settings["client"], Policy(QUESTION), ledger, Records("2026Q4", read))
"""


# --- in the simulator ----------------------------------------------------------------------------

TRIES = 5
LOST = ("Address already in use", "Communication error with client", "Subprocess died for client")


def again_if_a_client_was_lost(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test again, in a new folder, if the simulator says that it has lost a client's process.

    The simulator of FLARE looks for a free port for each client, closes it, and opens it again in
    the client's process some seconds later. Where another process has taken it, the client dies,
    or the simulator talks to another client in its place. That is no matter of gcfcp.
    """

    @functools.wraps(test)
    def run(tmp_path: Path, **fixtures: Any) -> None:
        for k in range(TRIES):
            folder = tmp_path / f"try-{k}"
            folder.mkdir()
            try:
                test(tmp_path=folder, **fixtures)
            except Exception as error:
                if k == TRIES - 1 or not lost_a_client(folder, str(error)):
                    raise
            else:
                return

    return run


def lost_a_client(folder: Path, printed: str) -> bool:
    """Whether the simulator says so, in what it printed or in a log."""
    logs = [path.read_text(errors="replace") for path in folder.rglob("log.txt")]
    return any(words in text for text in (printed, *logs) for words in LOST)


@pytest.mark.slow
@again_if_a_client_was_lost
def test_the_example_gives_the_predictor_of_the_files(tmp_path: Path) -> None:
    """One round with an audit, as the documentation shows it."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--directory", str(tmp_path / "h")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sites = ("hospital-a", "hospital-b", "hospital-c")
    expected = by_files(
        tmp_path / "files",
        {name: tmp_path / "h" / name / "calibration.csv" for name in sites},
        tmp_path / "h/groups.toml",
        *("--score", "thr", "--min-count", 20, "--by", "group"),
    )
    assert (tmp_path / "h/rounds/gcfcp/predictor.json").read_bytes() == expected
    # What `download_job` brings is the same.
    job = tmp_path / "h/simulation/gcfcp/server/simulate_job/gcfcp"
    assert (job / "predictor.json").read_bytes() == expected
    record = json.loads((job / "record.json").read_text())
    assert [entry["code"] for entry in record["audits"]] == [None] * 3
    assert {g["verdict"] for g in record["audit"]["groups"]} == {"kept"}
    for name in sites:  # Each site keeps what it has told.
        assert len(Ledger(tmp_path / "h" / name / "ledger").entries()) == 2


SITES = ("hospital-a", "hospital-b", "hospital-c", "hospital-d", "hospital-e")


def simulate(folder: Path, deadline: float, missing: str = "fail") -> dict[str, Any]:
    """Run a job over all sites whose files are in `folder/local`, and return its record."""
    local = folder / "simulation/round/local"
    (local / "gcfcp/server.toml").write_text(f"rounds = {json.dumps(str(folder / 'rounds'))}\n")
    recipe = CalibrationRecipe(
        QUESTION,
        Target(0.1),
        Terms(deadline, missing=missing, clients={name: name for name in SITES}),
        name="round",
    )
    allow(local)
    with suppress(RuntimeError):  # A job that fails, because clients are missing.
        env = SimEnv(clients=list(SITES), workspace_root=str(folder / "simulation"))
        recipe.execute(env)
    found: dict[str, Any] = json.loads((folder / "rounds/round/record.json").read_text())
    return found


def allow(local: Path) -> None:
    """Let jobs name the two classes of gcfcp, and no others."""
    from three_hospitals import write_allowed

    write_allowed(local)


def release(pipe: Path, record: Path, end: threading.Event) -> None:
    """Let a reader that hangs on a pipe go on when there is a record, so that processes can end."""
    while not end.wait(0.2):
        if record.exists():
            with suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.slow
@again_if_a_client_was_lost
def test_a_job_with_four_bad_sites_then_a_second_one_for_the_rest(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One site raises, one hangs, one has agreed to something else, one claims another's name."""
    local = tmp_path / "simulation/round/local/gcfcp"
    for k, name in enumerate(SITES):
        (tmp_path / name).mkdir()
        make_table(tmp_path / name / "calibration.csv", k)
        write_site(local / f"{name}.toml", tmp_path / name)
    tables = {name: tmp_path / name / "calibration.csv" for name in SITES}
    tables["hospital-b"].write_text(f"age,score\n40,{SECRET}\n50,{SECRET}x\n")
    tables["hospital-c"].unlink()
    os.mkfifo(tables["hospital-c"])  # It hangs, because nobody ever writes to the pipe.
    write_site(local / "hospital-d.toml", tmp_path / "hospital-d", min_count=20)
    write_site(local / "hospital-e.toml", tmp_path / "hospital-e", client="hospital-a")

    end = threading.Event()
    record = tmp_path / "rounds/round/record.json"
    helper = threading.Thread(target=release, args=(tables["hospital-c"], record, end))
    helper.start()
    try:
        first = simulate(tmp_path, deadline=40)
    finally:
        end.set()
        helper.join()
    assert codes(first) == {
        "hospital-a": None,
        "hospital-b": Code.DATA_REFUSED,
        "hospital-c": Code.NO_ANSWER,
        "hospital-d": Code.MIN_COUNT_DIFFERS,
        "hospital-e": Code.WRONG_CLIENT,
    }
    assert first["outcome"] == "failed"
    assert not (tmp_path / "rounds/round/predictor.json").exists()
    job = tmp_path / "simulation/round/server/simulate_job"
    assert json.loads((job / "gcfcp/record.json").read_text()) == first
    assert not (job / "gcfcp/predictor.json").exists()
    refuse_secret(tmp_path, *capfd.readouterr(), but=("calibration.csv",))

    for k, name in enumerate(SITES):
        tables[name].unlink()
        make_table(tables[name], k)
        # One has answered under another's name, and gives its records a new name to answer again.
        dataset = "corrected" if name == "hospital-e" else None
        write_site(local / f"{name}.toml", tmp_path / name, dataset=dataset)
    second = simulate(tmp_path, deadline=100)
    assert codes(second) == dict.fromkeys(SITES)
    assert second["clients"][0]["status"] == "kept from an earlier run"
    assert len(Ledger(tmp_path / "hospital-a/ledger").journal()) == 1  # It was not asked again.
    expected = by_files(
        tmp_path / "files",
        tables,
        tmp_path / "hospital-a/groups.toml",
        *("--score", "column", "--min-count", 10, "--by", "group"),
    )
    assert (job / "gcfcp/predictor.json").read_bytes() == expected


# --- the job -------------------------------------------------------------------------------------


def test_a_job_holds_the_question_and_no_code(tmp_path: Path) -> None:
    recipe = CalibrationRecipe(QUESTION, Target(0.2), Terms(min_clients=2), name="q4")
    recipe.export(str(tmp_path))
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {
        "config_fed_client.json",
        "config_fed_server.json",
        "gcfcp_round.json",
        "meta.json",
    }
    assert not list(tmp_path.rglob("custom"))  # FLARE would take it for code of its own.
    (client,) = tmp_path.rglob("config_fed_client.json")
    (executor,) = json.loads(client.read_text())["executors"]
    assert executor["executor"] == {"path": "gcfcp.nvflare.executor.SiteExecutor", "args": {}}


def test_a_site_can_allow_this_class_alone(tmp_path: Path) -> None:
    allow(tmp_path)
    workspace = SimpleNamespace(get_resources_file_path=lambda: str(tmp_path / "resources.json"))
    authorizer = ComponentPathAuthorizer()
    for path in ("controller.CalibrationController", "executor.SiteExecutor"):
        config = {"path": f"gcfcp.nvflare.{path}"}
        authorizer.authorize_component_config(config, workspace=workspace)
    for path in ("nvflare.app_common.executors.client_api_executor.ClientAPIExecutor", "os.system"):
        with pytest.raises(UnsafeComponentError):
            authorizer.authorize_component_config({"path": path}, workspace=workspace)


# --- a site --------------------------------------------------------------------------------------


def context_of(local: Path, name: str = "hospital-a") -> Any:
    """The context of a site whose directory `local` is given."""
    workspace = SimpleNamespace(
        get_site_config_dir=lambda: str(local), get_run_dir=lambda job: str(local.parent / job)
    )
    engine = SimpleNamespace(get_workspace=lambda: workspace)
    return SimpleNamespace(
        get_identity_name=lambda: name, get_engine=lambda: engine, get_job_id=lambda: "job"
    )


def ask(local: Path, content: Any, **headers: Any) -> dict[str, Any]:
    """The reply of a site to a task with this content."""
    task = Shareable()
    task[RECORD] = content
    for key, value in headers.items():
        task[key] = value
    reply = SiteExecutor().execute("summarize", task, context_of(local), Signal())
    assert set(reply) - {"__headers__"} == {RECORD}
    return unpack(reply[RECORD])


def request_of(**changes: Any) -> bytes:
    return pack(Request(QUESTION, "nonce").to_record() | changes)


@pytest.mark.parametrize("content", [None, b"", b"GCFCP", 3, {"a": 1}, pack({}), "text"])
def test_a_task_that_makes_no_sense_gets_a_code(tmp_path: Path, content: Any) -> None:
    assert ask(tmp_path, content)["code"] == Code.BAD_REQUEST


def test_a_site_without_a_file_answers_nothing(tmp_path: Path) -> None:
    assert ask(tmp_path, request_of())["code"] == Code.SITE_NOT_SET_UP


def test_nothing_in_a_task_reaches_the_policy_or_the_data(tmp_path: Path) -> None:
    """A task that names other data, another ledger or another policy is answered as any other."""
    assert not inspect.signature(SiteExecutor).parameters  # Nor can a job give it arguments.
    (tmp_path / "site").mkdir()
    make_table(tmp_path / "site/calibration.csv", 0)
    make_table(tmp_path / "other.csv", 1)
    write_site(tmp_path / "gcfcp/hospital-a.toml", tmp_path / "site")
    other = {
        "data": str(tmp_path / "other.csv"),
        "ledger": str(tmp_path / "other"),
        "client": "hospital-b",
        "questions": 100,
    }
    before = ask(tmp_path, request_of())
    assert before["client"] == "hospital-a"
    assert ask(tmp_path, request_of(**other), **other)["payload"] == before["payload"]
    assert not (tmp_path / "other").exists()
    # Another question about the same records is refused, whatever its task says.
    second = Request(gcfcp.rounds.Question(QUESTION.groups, "column", min_count=11), "n")
    assert ask(tmp_path, pack(second.to_record() | other))["code"] == Code.MIN_COUNT_DIFFERS


def test_the_log_of_a_site_has_codes_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """FLARE streams logs to the server."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/calibration.csv").write_text(f"age,score\n40,{SECRET}x\n")
    write_site(tmp_path / "gcfcp/hospital-a.toml", tmp_path / "site")
    with caplog.at_level("DEBUG"):
        ask(tmp_path, request_of())
        write_site(tmp_path / "gcfcp/hospital-a.toml", tmp_path / "site", data="nothing.csv")
        ask(tmp_path, request_of())
        (tmp_path / "gcfcp/hospital-a.toml").write_text("[")
        ask(tmp_path, request_of())
    found = [record.getMessage() for record in caplog.records]
    refused = [Code.DATA_REFUSED, Code.DATA_REFUSED, Code.SITE_NOT_SET_UP]
    assert found == [f"gcfcp: {code}" for code in refused]


def test_a_sites_own_file_is_not_taken_from_a_job(tmp_path: Path) -> None:
    """A site's own Python lies at the site; one that a job has brought is not loaded."""
    local, job = tmp_path / "local", tmp_path / "job/app/custom"
    (local / "gcfcp").mkdir(parents=True)
    job.mkdir(parents=True)
    for folder in (local / "gcfcp", job):
        (folder / "my_site.py").write_text(OWN_SITE)
    file = local / "gcfcp/hospital-a.toml"
    file.write_text('site = "my_site.py:site"\n')
    reply = ask(local, request_of())
    assert (reply["client"], "payload" in reply) == ("hospital-a", True)
    file.write_text(f"site = {json.dumps(str(job / 'my_site.py') + ':site')}\n")
    assert ask(local, request_of())["code"] == Code.SITE_NOT_SET_UP


# --- the carrier ---------------------------------------------------------------------------------


class StubController:
    """What the carrier needs of a controller: tasks go nowhere, and sites are lost on command."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.cancelled: list[Any] = []
        self.lost: set[str] = set()

    def send(self, task: Any, fl_ctx: Any, targets: list[str]) -> None:
        task.targets = targets
        self.sent.append(task)

    def cancel_task(self, task: Any, fl_ctx: Any) -> None:
        self.cancelled.append(task)

    def get_client_disconnect_time(self, name: str) -> float | None:
        return 1.0 if name in self.lost else None

    def bring(self, task: Any, result: Shareable) -> None:
        """FLARE brings the result of a task."""
        client = SimpleNamespace(name=task.targets[0])
        client_task = SimpleNamespace(task=task, client=client, result=result)
        task.result_received_cb(client_task=client_task, fl_ctx=None)


@pytest.fixture
def stub() -> StubController:
    return StubController()


@pytest.fixture
def abort() -> Signal:
    return Signal()


@pytest.fixture
def carrier(stub: StubController, abort: Signal) -> FlareCarrier:
    clients = [SimpleNamespace(name="a"), SimpleNamespace(name="b")]
    engine = SimpleNamespace(get_clients=lambda: clients)
    return FlareCarrier(stub, SimpleNamespace(get_engine=lambda: engine), abort)


def letters(*names: str) -> list[Letter]:
    return [Letter(Node(name, name), "summarize", LETTER, 3.5) for name in names]


def test_each_site_gets_its_own_task(carrier: FlareCarrier, stub: StubController) -> None:
    assert [node.key for node in carrier.nodes()] == ["a", "b"]
    tickets = carrier.send(letters("a", "b"))
    assert len(set(tickets)) == 2
    assert [(t.name, t.targets) for t in stub.sent] == [("summarize", ["a"]), ("summarize", ["b"])]
    assert carrier.receive(tickets) == []
    result = Shareable()
    result[RECORD] = pack({"protocol": 1})
    stub.bring(stub.sent[1], result)
    (reply,) = carrier.receive(tickets)
    assert (reply.ticket, reply.sender, reply.record) == (tickets[1], "b", {"protocol": 1})
    assert carrier.receive(tickets) == []  # Each reply comes once.
    stub.bring(stub.sent[1], result)  # A task that comes back twice is dropped.
    assert carrier.receive(tickets) == []


def test_a_site_whose_executor_fails_gets_a_code(
    carrier: FlareCarrier, stub: StubController
) -> None:
    """The text of an exception may stand in the headers, and is not read."""
    tickets = carrier.send(letters("a"))
    result = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    result.set_header("error", SECRET)
    stub.bring(stub.sent[0], result)
    (reply,) = carrier.receive(tickets)
    assert (reply.code, reply.record) == (Code.APP_FAILED, None)
    assert SECRET not in repr(reply)


@pytest.mark.parametrize("content", [None, b"", 3, "text", b"GCFCP" * 100])
def test_a_result_that_makes_no_sense_gets_a_code(
    carrier: FlareCarrier, stub: StubController, content: Any
) -> None:
    tickets = carrier.send(letters("a"))
    result = Shareable()
    result[RECORD] = content
    stub.bring(stub.sent[0], result)
    (reply,) = carrier.receive(tickets)
    assert reply.code == Code.NOT_UNDERSTOOD


def test_a_lost_site_is_named_and_asked_again_when_it_is_back(
    carrier: FlareCarrier, stub: StubController
) -> None:
    tickets = carrier.send(letters("a", "b"))
    stub.lost.add("a")
    (reply,) = carrier.receive(tickets)
    assert (reply.ticket, reply.sender, reply.code) == (tickets[0], None, Code.NODE_LOST)
    assert stub.cancelled == [stub.sent[0]]
    assert [node.id for node in carrier.nodes()] == ["b"]
    stub.lost.clear()
    assert [node.id for node in carrier.nodes()] == ["a", "b"]
    assert carrier.send(letters("a")) != [tickets[0]]


def test_a_job_that_flare_ends_says_so(carrier: FlareCarrier, abort: Signal) -> None:
    tickets = carrier.send(letters("a"))
    abort.trigger(True)
    for look in (carrier.nodes, lambda: carrier.receive(tickets)):
        with pytest.raises(gcfcp.GCFCPError, match="FLARE has ended the job"):
            look()
