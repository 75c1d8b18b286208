"""`python -m gcfcp.flower run`: a round that is followed, and one that never starts."""

from __future__ import annotations

import os
import ssl
import stat
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; it comes with gcfcp[test]")

from cryptography import x509

from gcfcp.flower import run as module
from gcfcp.flower.__main__ import main

sys.path.insert(0, str(Path(__file__).parents[1] / "examples/flower"))
import keys

# A program in the place of flwr. Its directory says what the log holds and how the run ends.
FLWR = """#!/bin/sh
echo "$@" >> {here}/calls
case "$1" in
    run) echo '{{"success": true, "run-id": "42"}}' ;;
    log) cat {here}/log; test -e {here}/ends || exec sleep 60 ;;
    list) test -e {here}/status || exit 1
          printf '{{"success": true, "runs": [{{"status": "%s"}}]}}' "$(cat {here}/status)" ;;
    stop) echo '{{"success": true}}' ;;
esac
"""


@pytest.fixture
def flwr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a program in the place of flwr."""
    program = tmp_path / "flwr"
    program.write_text(FLWR.format(here=tmp_path))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(module, "_program", lambda: str(program))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    return tmp_path


def follow(flwr: Path, log: str, status: str, *more: str, ends: bool = True) -> int:
    """The exit code for a run with this log and this last status."""
    (flwr / "log").write_text(log)
    (flwr / "status").write_text(status)
    if ends:
        (flwr / "ends").touch()
    return main(["run", "app", "gcfcp", "-c", "alpha=0.2", *more])


def test_a_round_is_followed_to_its_end(flwr: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = "INFO : noise\ngcfcp: asking for summaries\ngcfcp: 3 clients were calibrated\n"
    assert follow(flwr, log, "finished:completed") == 0
    out = capfd.readouterr().out.splitlines()
    assert out[0].startswith("gcfcp: run 42 was taken in")
    assert out[1:] == ["gcfcp: asking for summaries", "gcfcp: 3 clients were calibrated"]
    calls = (flwr / "calls").read_text().splitlines()
    assert calls[0] == "run app gcfcp -c alpha=0.2 --format json"


def test_a_round_that_fails_has_exit_code_1(flwr: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = "gcfcp: asking for summaries\ngcfcp: failed: 0 clients answered\n"
    assert follow(flwr, log, "finished:failed") == 1
    assert capfd.readouterr().err == "gcfcp: run 42 ended: finished:failed\n"
    assert follow(flwr, "", "finished:failed") == 1  # The app could not even be loaded.
    assert "the SuperLink's log says why" in capfd.readouterr().err


def test_a_superlink_that_goes_away_is_said_with_the_remedy(
    flwr: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (flwr / "ends").touch()
    (flwr / "log").write_text("gcfcp: asking for summaries\n")
    assert main(["run", "app", "gcfcp"]) == 1  # There is no status, as if nobody answered.
    (flwr / "status").write_text("running")  # Nor does anyone work on a run that was lost.
    assert main(["run", "app", "gcfcp"]) == 1
    for line in capfd.readouterr().err.splitlines():
        assert line.startswith("gcfcp: run 42 cannot be followed any more")
        assert "run the same command again" in line


def test_a_round_that_does_not_start_is_stopped_and_says_why(
    flwr: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert follow(flwr, "noise\n", "pending", "--start", "0.3", ends=False) == 1
    err = capfd.readouterr().err
    assert err.startswith("gcfcp: run 42 has not started within 0.3 s (it is pending)")
    assert "flower-superexec" in err
    assert err.count("\n") == 1
    assert (flwr / "calls").read_text().splitlines()[-1] == "stop 42 gcfcp --format json"


def test_a_round_that_has_started_is_followed_even_if_its_log_comes_late(
    flwr: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = (flwr / "flwr").read_text()
    (flwr / "flwr").write_text(program.replace("log) cat", "log) sleep 1; cat"))
    log = "gcfcp: asking for summaries\n"
    assert follow(flwr, log, "finished:completed", "--start", "0.1") == 0
    assert capfd.readouterr().out.splitlines()[1:] == ["gcfcp: asking for summaries"]
    assert "stop" not in (flwr / "calls").read_text()


def test_a_certificate_without_loopback_is_named_as_the_cause(
    flwr: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LOOPBACK", [])
    keys.make_certificates(flwr, ["localhost"])
    port = serve(flwr)
    (flwr / "config.toml").write_text(
        f'[superlink.gcfcp]\naddress = "localhost:{port}"\nroot-certificates = "{flwr}/ca.crt"\n'
    )
    assert follow(flwr, "", "pending", "--start", "0.3", ends=False) == 1
    err = capfd.readouterr().err
    assert "the SuperLink's certificate does not name 127.0.0.1" in err
    assert "(it names localhost): make one that does" in err


def serve(directory: Path) -> int:
    """Serve TLS on loopback with the certificate in this directory; return the port."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.handle_request, daemon=True).start()
    return int(server.server_address[1])


def test_wrong_usage_has_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run"])
    assert caught.value.code == 2
    assert "usage: python -m gcfcp.flower run" in capsys.readouterr().err


def test_the_certificate_of_the_example_always_names_loopback(tmp_path: Path) -> None:
    for given in ([], ["--address", "calibration.example.org", "--address", "192.0.2.1"]):
        command = [sys.executable, keys.__file__, str(tmp_path), "hospital-a", *given]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ)
        leaf = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = {str(name.value) for name in names}
        assert found == {"127.0.0.1", "::1", "localhost", *given[1::2]}
