"""Files are written whole or not at all, keep their permissions, and never replace each other."""

from __future__ import annotations

import csv
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gcfcp
from gcfcp import GCFCPError, files, tables

START = [sys.executable, "-c", "from gcfcp.cli import main; main()"]
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX")


def _run(folder: Path, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*START, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, **options
    )


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a site: groups, a table, a summary, a predictor and new records."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "groups.toml").write_text('all = "TRUE"\nold = "age >= 65"\n')
    rng = np.random.default_rng(0)
    rows = zip(rng.random(500), rng.integers(20, 90, 500), strict=True)
    (folder / "a.csv").write_text("score,age\n" + "".join(f"{s:.6f},{a}\n" for s, a in rows))
    (folder / "new.csv").write_text("score_0,score_1,age,id\n" + "0.2,0.99,70,7\n" * 1000)
    for command in (
        ["summarize", "a.csv", "--groups", "groups.toml", "--client", "a", "-o", "a.gcfcp"],
        ["calibrate", "a.gcfcp", "-o", "predictor.json"],
    ):
        assert _run(folder, *command).returncode == 0
    return folder


# --- Permissions ---------------------------------------------------------------------------------


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.gcfcp", "out.csv", "out.parquet"])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_an_overwritten_file_keeps_its_mode(site: Path, name: str, mode: int) -> None:
    output = site / name
    output.write_bytes(b"old")
    output.chmod(mode)
    command = ["predict", "predictor.json", "new.csv"]
    if name == "out.gcfcp":
        command = ["summarize", "a.csv", "--groups", "groups.toml", "--client", "a"]
    found = _run(site, *command, "-o", name, "--force")
    assert found.returncode == 0, found.stderr
    assert output.read_bytes() != b"old"
    assert _mode(output) == mode


@posix
def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    for umask in (0o022, 0o077, 0o027):
        old = os.umask(umask)
        try:
            for overwrite in (True, False):
                path = tmp_path / f"{umask}-{overwrite}"
                files.write(path, b"x", overwrite=overwrite)
                assert _mode(path) == 0o666 & ~umask
        finally:
            os.umask(old)


@posix
def test_a_part_of_a_private_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with files.creating(path) as part:
        assert _mode(part) == 0o600


@posix
@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="needs root")
def test_an_overwritten_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_bytes(b"old")
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    files.write(path, b"new")
    found = path.stat()
    assert (found.st_uid, found.st_gid, _mode(path)) == (12345, 23456, 0o640)


@posix
def test_another_group_does_not_inherit_the_rights_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shared"
    path.write_bytes(b"old")
    path.chmod(0o664)
    true = os.stat

    def of_another_group(which, **options):
        found = true(which, **options)
        return os.stat_result([*found[:5], 54321, *found[6:]]) if which == path else found

    def refuse(*_: object) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(files.os, "stat", of_another_group)
    monkeypatch.setattr(files.os, "chown", refuse)
    files.write(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"new"
    assert _mode(path) == 0o644


@posix
def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(GCFCPError, match="not a regular file"):
        files.write(path, b"x")
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert list(tmp_path.iterdir()) == [path]


# --- Two at once ---------------------------------------------------------------------------------


def test_of_many_that_write_at_once_one_wins(tmp_path: Path) -> None:
    """Every loser is told, and what the winner wrote stays whole."""
    for trial in range(20):
        path = tmp_path / f"file{trial}"
        outcomes: dict[int, bool] = {}
        barrier = threading.Barrier(8)

        def attempt(k: int, path=path, outcomes=outcomes, barrier=barrier) -> None:
            barrier.wait()
            try:
                files.write(path, bytes([k]) * 1000, sync=False, overwrite=False)
                outcomes[k] = True
            except GCFCPError as error:
                outcomes[k] = "exists" not in str(error)

        started = [threading.Thread(target=attempt, args=(k,)) for k in range(8)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        (winner,) = (k for k, won in outcomes.items() if won)
        assert path.read_bytes() == bytes([winner]) * 1000
        assert len(outcomes) == 8
    assert not list(tmp_path.glob(".gcfcp-*"))


# Both processes have checked the output before either writes it, which the file "go" brings about.
RACE = """
import sys, time
from pathlib import Path
from gcfcp import tables, cli
from gcfcp.cli import inputs
check = inputs.check_output
def slow(*arguments):
    check(*arguments)
    Path(f"ready{sys.argv[-1]}").touch()
    while not Path("go").exists():
        time.sleep(0.005)
inputs.check_output = slow
del sys.argv[-1]
sys.argv[0] = "gcfcp"
cli.main()
""".replace("sys.argv[-1]}", "NAME}").replace(
    "check = inputs", "NAME = sys.argv[-1]\ncheck = inputs"
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.gcfcp", "out.csv", "out.parquet"])
def test_of_two_commands_without_force_one_succeeds(site: Path, tmp_path: Path, name: str) -> None:
    command = ["predict", site / "predictor.json", site / "new.csv"]
    if name == "out.gcfcp":
        command = ["summarize", site / "a.csv", "--groups", site / "groups.toml", "--client", "a"]
    for trial in range(3):
        folder = tmp_path / str(trial)
        folder.mkdir()
        both = [
            subprocess.Popen(
                [sys.executable, "-c", RACE, *map(str, command), "-o", name, str(k)],
                cwd=folder,
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
            )
            for k in range(2)
        ]
        waited = time.monotonic()
        while len(list(folder.glob("ready*"))) < 2 and time.monotonic() < waited + 60:
            time.sleep(0.01)
        (folder / "go").touch()
        said = [process.communicate(timeout=60)[1] for process in both]
        codes = [process.returncode for process in both]
        assert sorted(codes) == [0, 1], said
        line = said[codes.index(1)]
        assert line == f"gcfcp: {name} exists: give another name, or --force to overwrite it\n"
        assert (folder / name).stat().st_size > 0
        assert not list(folder.glob(".gcfcp-*"))


def test_without_hard_links_a_file_is_still_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(files.os, "link", refuse)
    path = tmp_path / "file"
    files.write(path, b"first", overwrite=False)
    with pytest.raises(GCFCPError, match="exists"):
        files.write(path, b"second", overwrite=False)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


# --- What killed processes leave -----------------------------------------------------------------

HOLD = """
import sys, time
from gcfcp import files
with files.creating("file") as part:
    part.write_bytes(b"half")
    print(part.name, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@posix
def test_a_sweep_removes_parts_of_the_dead_and_of_nobody_else(tmp_path: Path) -> None:
    alive, dead = (
        subprocess.Popen(
            [sys.executable, "-c", HOLD], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    )
    try:
        parts = [process.stdout.readline().strip() for process in (alive, dead)]
        dead.kill()
        dead.wait()
        others = [".gcfcp-00000000-0123456789abcdef.part", ".gcfcp-x.part", "own.part", "file"]
        for name in others:
            (tmp_path / name).write_bytes(b"x")
        assert files.sweep(tmp_path) == 1
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {parts[0], *others}
    finally:
        alive.kill()
        alive.wait()
        alive.stdout.close()
        dead.stdout.close()
    assert files.sweep(tmp_path) == 1


@posix
@pytest.mark.slow
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP"])
@pytest.mark.parametrize("name", ["out.parquet", "out.csv"])
def test_a_signal_ends_a_prediction_and_leaves_nothing(
    site: Path, tmp_path: Path, number: str, name: str
) -> None:
    """The table is long enough that the signal comes while it is read."""
    row = b"0.2,0.99,70,7\n"
    (tmp_path / "new.csv").write_bytes(b"score_0,score_1,age,id\n" + row * 1_500_000)
    started = subprocess.Popen(
        [*START, "predict", str(site / "predictor.json"), "new.csv", "-o", name],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    waited = time.monotonic()
    while not list(tmp_path.glob(".gcfcp-*")) and time.monotonic() < waited + 60:
        time.sleep(0.01)
    started.send_signal(getattr(signal, number))
    said = started.communicate(timeout=120)[1]
    assert started.returncode == 128 + getattr(signal, number), said
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


# --- Tables that change --------------------------------------------------------------------------

CHANGING = """
import sys
from gcfcp import cli
from gcfcp.groups import Groups
true, seen = Groups.membership, []
def membership(self, *arguments):
    found = true(self, *arguments)
    if not seen:
        seen.append(1)
        {change}
    return found
Groups.membership = membership
sys.argv[0] = "gcfcp"
cli.main()
"""
CHANGES = {
    "truncated": "open('t.csv', 'rb+').truncate(9_500_028)",
    "truncated in a row": "open('t.csv', 'rb+').truncate(9_500_020)",
    "appended": "open('t.csv', 'ab').write(b'0.5,0.5,70,7\\n' * 1000)",
    "rewritten": "f = open('t.csv', 'rb+'); f.seek(-14, 2); f.write(b'9'); f.close()",
    "replaced": "import os, shutil; shutil.copy('t.csv', 'u.csv'); os.replace('u.csv', 't.csv')",
    "removed": "import os; os.unlink('t.csv')",
}


@posix
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "change"),
    [
        *(("summarize", change) for change in CHANGES),
        *((name, change) for name in ("predict", "audit") for change in ("truncated", "appended")),
    ],
)
def test_a_table_that_changes_while_it_is_read_is_an_error(
    site: Path, tmp_path: Path, command: str, change: str
) -> None:
    """A truncated table gave a summary of a part of its rows in 0.1.0."""
    head = b"score,score_0,score_1,age,y\n"
    (tmp_path / "t.csv").write_bytes(head + b"0.25,0.25,0.5,70,1\n" * 1_500_000)
    arguments = {
        "summarize": ["summarize", "t.csv", "--groups", str(site / "groups.toml"), "--client", "a"],
        "predict": ["predict", str(site / "predictor.json"), "t.csv"],
        "audit": ["audit", str(site / "predictor.json"), "t.csv", "--client", "a"],
    }[command]
    found = subprocess.run(
        [sys.executable, "-c", CHANGING.replace("{change}", CHANGES[change]), *arguments,
         "-o", "out.file"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert found.returncode == 1, found.stderr
    assert found.stderr.startswith("gcfcp: t.csv changed while it was read")
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "out.file").exists()
    assert not list(tmp_path.glob(".gcfcp-*"))


def test_a_table_that_changed_between_opening_and_reading_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("score\n0.5\n0.75")  # The last line may lack its end.
    with tables.open_table(path) as table:
        assert sum(len(frame) for frame in table.batches(("score",), {})) == 2
        path.write_text("score\n0.5\n")
        with pytest.raises(GCFCPError, match=r"t\.csv changed while it was read"):
            list(table.batches(("score",), {}))


def test_a_reader_who_stops_early_is_not_told_of_changes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("score\n" + "0.5\n" * 600_000)
    with tables.open_table(path) as table:
        batches = table.batches(("score",), {})
        next(batches)
        path.write_text("score\n")
        batches.close()


# --- Formulas ------------------------------------------------------------------------------------

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", 'a;"=1', "plain", ""]


@pytest.fixture
def formulas(tmp_path: Path) -> Path:
    """A table whose labels and other texts look like formulas, with a predictor for it."""
    n = len(FORMULAS)
    columns = {"score_=cmd": [0.1] * n, "score_ok": [0.1] * n, "note": FORMULAS}
    frame = pl.DataFrame(columns | {"=x": [-1] * n, "change": [-1.5] * n})
    frame.write_parquet(tmp_path / "t.parquet")
    groups = gcfcp.Groups({"all": "TRUE"})
    summary = gcfcp.summarize(
        np.arange(50.0), np.ones((50, 1), bool), groups=groups, client="a", score="own"
    )
    gcfcp.Predictor("own", gcfcp.calibrate([summary], 0.1)).save(tmp_path / "p.json")
    return tmp_path


def _predicted(folder: Path, *options: str) -> dict[str, list[str]]:
    keep = ["--keep", "note", "--keep", "=x", "--keep", "change"]
    found = _run(
        folder, "predict", "p.json", "t.parquet", "-o", "o.csv", "--force", *keep, *options
    )
    assert found.returncode == 0, found.stderr
    with open(folder / "o.csv", newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    return dict(zip(head, map(list, zip(*rows, strict=True)), strict=True))


@pytest.mark.slow
def test_formulas_are_escaped_on_request(formulas: Path) -> None:
    """Numbers stay numbers, also negative ones."""
    found = _predicted(formulas, "--escape-formulas")
    dangerous = ("=", "+", "-", "@", "\t", "\r", "\n", "＝")
    expected = [f"'{t}" if t.startswith(dangerous) else t for t in FORMULAS]
    assert found["note"] == expected
    assert found["set"] == ["'=cmd|ok"] * len(FORMULAS)
    assert list(found) == ["note", "'=x", "change", "set", "size", "threshold"]
    assert set(found["change"]) == {"-1.5"}
    assert set(found["'=x"]) == {"-1"}


@pytest.mark.slow
def test_formulas_are_left_alone_by_default(formulas: Path) -> None:
    found = _predicted(formulas)
    assert found["note"] == FORMULAS
    assert found["set"] == ["=cmd|ok"] * len(FORMULAS)


@pytest.mark.slow
def test_formulas_are_a_matter_of_csv(formulas: Path) -> None:
    found = _run(formulas, "predict", "p.json", "t.parquet", "-o", "o.parquet", "--escape-formulas")
    assert found.returncode == 1
    assert "Parquet" in found.stderr
    assert not (formulas / "o.parquet").exists()
