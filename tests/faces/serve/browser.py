"""A headless Chromium with its own profile, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


class Page:
    """One page of the browser. `messages`: its log, with every request that the browser blocked."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._next = socket, 0
        self.messages: list[str] = []
        self.asked_for: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Return the result of a call of the protocol."""
        self._next += 1
        self._socket.send(json.dumps({"id": self._next, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._next:
                assert "error" not in message, (method, message)
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(params["exceptionDetails"]))
        elif message.get("method") == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(arg.get("value", arg)) for arg in params["args"]))
        elif message.get("method") == "Network.requestWillBeSent":
            self.asked_for.append(params["request"]["url"])

    def open(self, url: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """Return the value of a JavaScript expression. A promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (expression, answer)
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 40) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.js(f"!!({expression})"):
            assert time.monotonic() < end, (
                expression,
                self.js("(document.querySelector('main') || document.body).innerText")[:2000],
                self.messages,
            )
            time.sleep(0.05)

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the window and its colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Write a screenshot as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """Yield a page of a new browser without user data. Skip the test if no browser is installed."""
    connect = pytest.importorskip("websockets.sync.client", reason="websockets is not installed").connect
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="tl-browser-", ignore_cleanup_errors=True) as folder:
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
        started = subprocess.Popen(
            [program, *options, "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(_page_of(Path(folder) / "profile"), max_size=None, ping_interval=None) as socket:
                yield Page(socket)
        finally:
            started.terminate()
            started.wait(20)


def _page_of(profile: Path) -> str:
    end = time.monotonic() + 60
    while True:
        try:
            port = (profile / "DevToolsActivePort").read_text().splitlines()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [page for page in json.load(answer) if page["type"] == "page"]
            return pages[0]["webSocketDebuggerUrl"]
        except (OSError, IndexError):
            assert time.monotonic() < end, "the browser did not start"
            time.sleep(0.1)
