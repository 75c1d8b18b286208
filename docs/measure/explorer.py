"""The picture docs/images/explore.png: the explorer page of docs/howto/explore.md, in a browser.

It needs a Chromium. The page is that of the how-to, at alpha 0.05 with the isle alone.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PICTURE = ROOT / "docs" / "images" / "explore.png"
SIZE = (1100, 800)  # Width and height in pixels.


def main() -> None:
    """Take the picture."""
    sys.path.insert(0, str(ROOT / "tests"))
    import chromium

    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as profile,
        chromium.page(Path(profile)) as page,
    ):
        page.open(_page(Path(folder)), SIZE[0], height=SIZE[1])
        _move(page)
        PICTURE.write_bytes(_visible(page))


def _page(folder: Path) -> Path:
    """The page that the how-to makes with its first two blocks of code."""
    text = (ROOT / "docs" / "howto" / "explore.md").read_text()
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    command = re.search(r"```sh\ngcfcp (.*?)\n```", text, re.DOTALL)
    assert program is not None
    assert command is not None
    subprocess.run([sys.executable, "-c", program[1]], cwd=folder, check=True)
    start = "from gcfcp.cli import main; main()"
    subprocess.run([sys.executable, "-c", start, *command[1].split()], cwd=folder, check=True)
    return folder / "explore.html"


def _move(page: Any) -> None:
    """Move the sliders to alpha 0.05 and the isle alone, and the sliders to the top."""
    page.run(
        "{const set = (id, value) => { const e = document.getElementById(id); e.value = value;"
        " e.dispatchEvent(new Event('input')); };"
        " set('explore-alpha', 4); set('explore-line', 3); set('explore-part', 4);"
        " document.querySelector('.controls').scrollIntoView(); }"
    )


def _visible(page: Any) -> bytes:
    """A picture of what the window shows, as PNG."""
    answer = page.send("Page.captureScreenshot")
    return base64.b64decode(answer["data"])


if __name__ == "__main__":
    main()
