"""The README's blocks are run as they stand, in order, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """The language and the text of every block."""
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def shown(text: str) -> list[str]:
    """The lines as a reader sees them, without blanks at the end and without empty lines."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.slow
def test_every_block_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    tools = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": tools + os.pathsep + os.environ["PATH"], "COLUMNS": "100"}
    printed = ""
    kinds = []
    for kind, text in blocks():
        kinds.append(kind)
        if kind == "toml":
            (tmp_path / "groups.toml").write_text(text, encoding="utf-8")
        elif kind == "text":
            assert "\n".join(shown(text)) in "\n".join(shown(printed))
        elif kind in ("python", "sh"):
            command = [sys.executable, "-c", text] if kind == "python" else ["sh", "-ec", text]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{text}\n{done.stderr}"
            printed = done.stdout
        else:
            assert "dev.py" in text
    assert kinds.count("python") == 2
    assert kinds.count("sh") == 4
    assert kinds.count("text") == 2
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    assert (tmp_path / "intervals.parquet").exists()


def test_links_and_pictures_exist() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target
    assert (ROOT / "docs/images/demo.png").stat().st_size < 200_000


@pytest.mark.parametrize("task", ["demo", "test"])
def test_the_two_commands_are_tasks_of_dev(task: str) -> None:
    done = subprocess.run([sys.executable, ROOT / "dev.py"], capture_output=True, text=True)
    assert f"python3 dev.py {task}" in done.stdout
