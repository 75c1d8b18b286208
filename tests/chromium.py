"""A headless Chromium, driven over a pipe by its own DevTools protocol: no driver, no port.

Messages are JSON ended by a zero byte, written to file descriptor 3 of the browser and read from
its descriptor 4 (--remote-debugging-pipe).
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
_PATIENCE = 60  # seconds, for a machine that is busy


def find() -> str | None:
    """The browser's path, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def page(profile: Path) -> Iterator[Page]:
    """One page of a fresh browser, which is ended with the block."""
    to_browser, ours_out = os.pipe()
    ours_in, from_browser = os.pipe()
    # The browser wants its pipe at descriptors 3 and 4: both are moved out of the way, then there.
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
        os.close(ours_out)  # without its pipe the browser ends by itself
        os.close(ours_in)
        try:
            browser.wait(10)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()


class Page:
    """What a test does with a page. `requests` and `complaints` are gathered from every `open`."""

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
        """The value of an expression on the page, awaited if it is a promise."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if kind == "keyDown" and text else {}),
            )

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        answer = self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(answer["data"])


def main(report: str, folder: str) -> None:
    """Pictures of a report to look at: on a phone, on a desk, light, dark, and on paper."""
    with tempfile.TemporaryDirectory() as profile, page(Path(profile)) as opened:
        for width in (390, 1400):
            for dark in (False, True):
                opened.open(Path(report), width, dark)
                name = f"{Path(report).stem}-{width}-{'dark' if dark else 'light'}.png"
                (Path(folder) / name).write_bytes(opened.screenshot())
        (Path(folder) / f"{Path(report).stem}.pdf").write_bytes(opened.pdf())


if __name__ == "__main__":
    main(*sys.argv[1:])
