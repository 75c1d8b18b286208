"""A headless Chromium, controlled over a pipe with its own DevTools protocol.

This needs neither a driver nor a port. Each message is JSON text that a zero byte ends. Messages go
to file descriptor 3 of the browser, and its answers come from its file descriptor 4
(--remote-debugging-pipe).
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-pipe",
]
_PATIENCE = 60  # After so many seconds without a message, even a busy machine has failed.


def find() -> str | None:
    """The path of the browser, or None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def page(profile: Path) -> Iterator[Page]:
    """One page of a fresh browser; the browser is ended when the block ends."""
    to_browser, ours_out = os.pipe()
    ours_in, from_browser = os.pipe()
    # The browser expects its pipe at descriptors 3 and 4. Both ends are first copied to numbers
    # from 10 on, because one of them may have the number 3 or 4 already.
    wrapper = (
        "import os, sys; from fcntl import F_DUPFD, fcntl; "
        f"r, w = fcntl({to_browser}, F_DUPFD, 10), fcntl({from_browser}, F_DUPFD, 10); "
        "os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[1], sys.argv[1:])"
    )
    binary = find()
    assert binary is not None
    browser = subprocess.Popen(
        [sys.executable, "-c", wrapper, binary, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(ours_out, ours_in)
    finally:
        os.close(ours_out)  # Without its pipe the browser ends by itself.
        os.close(ours_in)
        try:
            browser.wait(10)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()


class Page:
    """A page, and what a test can do with it.

    `requests` and `complaints` hold what the page has requested and complained of since it was
    opened.
    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._buffer = write, read, b""
        self._last = 0
        self._session: str | None = None
        self._loaded = False
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._last:
            self._notice(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _receive(self) -> dict[str, Any]:
        """The next message of the browser: an answer or an event."""
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser said nothing for {_PATIENCE} s")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self._buffer += data
        text, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(text))

    def _notice(self, event: dict[str, Any]) -> None:
        """Note what an event says about requests, complaints and the page's loading."""
        method, about = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(about["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{about['type']}")
        elif method == "Log.entryAdded":
            self.complaints.append(about["entry"]["text"])
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, path: Path, width: int, dark: bool = False, height: int = 900) -> None:
        """Load a file in a window of this size, and wait until it is drawn."""
        self.requests, self.complaints, self._loaded = [], [], False
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._notice(self._receive())
        self.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression on the page; a promise is awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if kind == "keyDown" and text else {}),
            )

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        self.send("Input.insertText", text=text)

    def screenshot(self) -> bytes:
        """A picture of the whole page, as PNG."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        answer = self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(answer["data"])


def main(report: str, folder: str) -> None:
    """Take pictures of a report: on a phone and on a desk, light and dark, and as a PDF."""
    with tempfile.TemporaryDirectory() as profile, page(Path(profile)) as opened:
        for width in (390, 1400):
            for dark in (False, True):
                opened.open(Path(report), width, dark)
                name = f"{Path(report).stem}-{width}-{'dark' if dark else 'light'}.png"
                (Path(folder) / name).write_bytes(opened.screenshot())
        (Path(folder) / f"{Path(report).stem}.pdf").write_bytes(opened.pdf())


if __name__ == "__main__":
    main(*sys.argv[1:])
