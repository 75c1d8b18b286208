"""A real deployment on this machine: TLS, node authentication, faults, and a second try."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; it comes with gcfcp[test]")

import gcfcp
from gcfcp.cli import entry as cli
from gcfcp.rounds import Ledger
from gcfcp.summary import signatures, with_min_count

sys.path.insert(0, str(Path(__file__).parents[1] / "examples/flower"))
from deployment import Deployment, is_alive, started_in
from keys import make_keys, make_node_key

pytestmark = pytest.mark.slow

SECRET = "0.37194428"
SITES = ("hospital-a", "hospital-b", "hospital-c")


def make_data(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = zip(rng.integers(20, 90, 200).tolist(), rng.random(200).tolist(), strict=True)
    path.write_text("age,score\n" + "".join(f"{age},{score}\n" for age, score in rows))


def record_of(round_: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((round_ / "record.json").read_text())
    return found


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked for in /proc")
def test_a_round_with_a_failing_a_hung_and_an_unknown_node_then_the_rest(tmp_path: Path) -> None:
    keys, groups, round_ = tmp_path / "keys", tmp_path / "groups.toml", tmp_path / "round"
    make_keys(keys, list(SITES), ["127.0.0.1"])
    make_node_key(keys / "stranger")
    groups.write_text('all = "TRUE"\nover_65 = "age >= 65"\n')
    subprocess.run([sys.executable, "-m", "gcfcp.flower", "app", str(tmp_path / "app")], check=True)
    data = {name: tmp_path / f"{name}.csv" for name in SITES}
    make_data(data["hospital-a"], 0)
    data["hospital-b"].write_text(f"age,score\n40,{SECRET}\n50,{SECRET}x\n")  # This site fails.
    os.mkfifo(data["hospital-c"])  # This site hangs, because nobody ever writes to the pipe.

    def node_config(name: str) -> dict[str, Any]:
        return {
            "client": name,
            "data": str(data[name]),
            "groups": str(groups),
            "score": "column",
            "ledger": str(tmp_path / f"{name}-ledger"),
        }

    config = {
        "groups": str(groups),
        "clients": str(keys / "roster.toml"),
        "output": str(round_),
        "min-clients": 3,
    }
    with Deployment(tmp_path, keys) as deployment:
        deployment.start_superlink()
        for name in SITES:
            deployment.register(name)
            deployment.start_node(name, node_config(name))
        data["stranger"] = data["hospital-a"]
        deployment.start_node("stranger", node_config("stranger") | {"client": "hospital-a"})
        for name in SITES:
            deployment.wait_for_node(name)

        # A busy machine may need a second try, which asks only the clients without an answer.
        for deadline in (10, 30, 90):
            status = deployment.run(tmp_path / "app", config | {"deadline": deadline}, 200)
            assert status == "finished:failed"
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

        # All processes are ended, some by a kill; only the summaries that have arrived are left.
        for name in ("hospital-c", "superlink"):
            deployment.stop(name, signal.SIGKILL)
        for name in ("hospital-a", "hospital-b", "stranger"):
            deployment.stop(name)
        deployment.sweep()
        make_data(data["hospital-b"], 1)
        data["hospital-c"].unlink()
        make_data(data["hospital-c"], 2)
        deployment.start_superlink()
        for name in ("hospital-b", "hospital-c"):
            deployment.register(name)
            deployment.start_node(name, node_config(name))
        status = deployment.run(tmp_path / "app", config | {"deadline": 100})
        assert status == "finished:completed"

        # A later run asks the same question and then another one. Each run starts the sites' apps
        # in new processes: they repeat what their ledgers hold, and give nothing else.
        later = config | {"clients": "", "min-clients": 2, "deadline": 250}
        again = {"output": str(tmp_path / "again")}
        assert deployment.run(tmp_path / "app", later | again, 300) == "finished:completed"
        other = {"output": str(tmp_path / "other"), "delta": 100}
        assert deployment.run(tmp_path / "app", later | other, 300) == "finished:failed"
        assert [e["code"] for e in record_of(tmp_path / "other")["clients"]] == [
            "delta-differs",
            "delta-differs",
        ]

    for name in ("hospital-b", "hospital-c"):
        ledger = Ledger(tmp_path / f"{name}-ledger")
        (entry,) = ledger.entries()
        for where in (round_, tmp_path / "again"):
            assert (where / f"summaries/{name}.gcfcp").read_bytes() == entry.answer
        sent = [line["repeated"] for line in ledger.journal() if "code" not in line]
        assert sent == [False, True]
    record = record_of(round_)
    assert [e["status"] for e in record["clients"]] == [
        "kept from an earlier run",
        "answered",
        "answered",
    ]
    assert [p for p in started_in(deployment.home) if is_alive(p)] == []

    files = []
    for name in SITES:
        files.append(str(tmp_path / f"{name}.gcfcp"))
        command = f"summarize {data[name]} --groups {groups} --client {name} --min-count 10"
        cli.run(shlex.split(f"{command} -o {files[-1]}"))
        assert (round_ / f"summaries/{name}.gcfcp").read_bytes() == Path(files[-1]).read_bytes()
    cli.run(shlex.split(f"calibrate {' '.join(files)} -o {tmp_path / 'by-files.json'}"))
    assert (round_ / "predictor.json").read_bytes() == (tmp_path / "by-files.json").read_bytes()


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked for in /proc")
def test_a_signed_secure_sum_goes_on_without_a_node_that_hangs(tmp_path: Path) -> None:
    """Four nodes; one of them hangs when it should read its records to mask their counts."""
    names = (*SITES, "hospital-d")
    keys, groups, round_ = tmp_path / "keys", tmp_path / "groups.toml", tmp_path / "round"
    make_keys(keys, list(names), ["127.0.0.1"])
    groups.write_text('all = "TRUE"\nover_65 = "age >= 65"\n')
    subprocess.run([sys.executable, "-m", "gcfcp.flower", "app", str(tmp_path / "app")], check=True)
    signing = {name: tmp_path / f"{name}.signing" for name in names}
    known = "".join(f'{n} = "{signatures.new_key(path)}"\n' for n, path in signing.items())
    (tmp_path / "known.toml").write_text(known)
    agreed = {"groups": str(groups), "score": "column", "grid": "uniform:0,1,64", "secure": True}
    agreed |= {"known-keys": str(tmp_path / "known.toml")}
    hanging = (
        "from gcfcp.rounds import site_of, Ledger\n"
        "from dataclasses import replace\n"
        "from pathlib import Path\n"
        "import time\n"
        "def site(settings):\n"
        "    given = {k: v for k, v in settings.items() if k not in ('client', 'ledger', 'site')}\n"
        "    made = site_of(given, settings['client'], Ledger(Path(settings['ledger'])))\n"
        "    hang = lambda question: time.sleep(600)\n"
        "    return replace(made, calibration=replace(made.calibration, read=hang))\n"
    )
    (tmp_path / "hanging.py").write_text(hanging)
    config = agreed | {
        "clients": str(keys / "roster.toml"),
        "output": str(round_),
        "min-clients": 3,
        "missing": "present",
    }
    with Deployment(tmp_path, keys) as deployment:
        deployment.start_superlink()
        for k, name in enumerate(names):
            make_data(tmp_path / f"{name}.csv", k)
            node = agreed | {"client": name, "data": str(tmp_path / f"{name}.csv")}
            node |= {"ledger": str(tmp_path / f"{name}-ledger"), "key": str(signing[name])}
            if name == "hospital-d":
                node |= {"site": f"{tmp_path / 'hanging.py'}:site"}
            deployment.register(name)
            deployment.start_node(name, node)
        for name in names:
            deployment.wait_for_node(name)
        # The node that hangs costs one deadline.
        code = deployment.run(tmp_path / "app", config | {"deadline": 100}, 600)
        assert code == 0, (round_ / "record.json").read_text()
    record = record_of(round_)
    assert record["sum"]["sites"] == list(SITES)
    assert record["sum"]["dropped"] == ["hospital-d"]
    assert record["sum"]["signed"] is True
    plain = []
    for name in SITES:
        file = tmp_path / f"{name}.gcfcp"
        command = f"summarize {tmp_path / name}.csv --groups {groups} --client {name} --by group"
        cli.run(shlex.split(f"{command} --grid uniform:0,1,64 --min-count 1 -o {file}"))
        plain.append(gcfcp.ClientSummary.load(file))
    total = gcfcp.add(plain)
    total = replace(total, members=tuple((name, None) for name, _ in total.members))
    found = gcfcp.ClientSummary.load(round_ / "sum.gcfcp")
    assert found.to_bytes() == with_min_count(total, 10).to_bytes()
