"""Python without some of its libraries: as if they were not installed, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

# All that gcfcp can use beside NumPy, and what these libraries bring along.
BESIDE_NUMPY = [
    *(
        "click",
        "Crypto",
        "cryptography",
        "flwr",
        "jinja2",
        "markupsafe",
        "matplotlib",
        "pandas",
        "polars",
    ),
    *("pyarrow", "pyspark", "rich", "scipy", "sklearn", "typer"),
]

_HIDE = """
import sys

class Hidden:
    "Another finder, which does not find some libraries."

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Hidden(finder) for finder in sys.meta_path]
"""


def run_without(
    libraries: Iterable[str], program: str, *arguments: str, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python that has none of the libraries."""
    text = f"HIDDEN = {sorted(libraries)!r}\n{_HIDE}\n{program}"
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
