"""Headless Chromium, driven over a pipe: the standard library is enough for what tests need of it."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next(
    filter(
        None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))
    ),
    None,
)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1400,1000", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One tab."""

    def __init__(self, profile: str) -> None:
        """Start Chromium, which reads commands from file 3 and writes answers to file 4."""
        assert PROGRAM is not None
        told, self._write = os.pipe()
        self._read, answers = os.pipe()

        def connect() -> None:
            ends = [os.dup(told), os.dup(answers)]
            ends = [os.dup(end) if end in (3, 4) else end for end in ends]  # out of the way
            for end, number in zip(ends, (3, 4), strict=True):
                os.dup2(end, number, inheritable=True)

        self._process = subprocess.Popen(
            [PROGRAM, *_FLAGS, f"--user-data-dir={profile}"], preexec_fn=connect, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(told)
        os.close(answers)
        self._number, self._rest, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Send a command of Chrome's protocol; returns its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._read], [], [], 60.0)[0], "the browser says nothing"
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def value(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, path: Path) -> None:
        """Open a file, and wait until its page says that it is ready."""
        self.events.clear()
        address = path.resolve().as_uri()
        self.call("Page.navigate", url=address)
        self.until(f"location.href === '{address}' && document.documentElement?.dataset.ready === 'yes'")

    def until(self, script: str) -> None:
        """Wait until an expression holds."""
        end = time.monotonic() + 60.0
        while not self.value(f"Boolean({script})"):
            assert time.monotonic() < end, script
            time.sleep(0.02)

    def problems(self) -> list[str]:
        """Return what the page has logged as an error or a warning."""
        self.value("1")
        told = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                told.append(json.dumps(params["exceptionDetails"])[:400])
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                told.append(json.dumps(params["args"])[:400])
            if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                told.append(params["entry"]["text"])
        return told

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for, but for what it holds itself."""
        asked = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        addresses = [str(event["params"]["request"]["url"]) for event in asked]
        return [address for address in addresses if not address.startswith(("file:", "data:", "blob:"))]

    def key(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **text)

    def press(self, at: tuple[float, float]) -> None:
        """Press the mouse at a place."""
        self._mouse("mouseMoved", at, 0)
        self._mouse("mousePressed", at, 1)

    def move(self, at: tuple[float, float]) -> None:
        """Move the mouse, pressed, to a place."""
        self._mouse("mouseMoved", at, 1)

    def release(self, at: tuple[float, float]) -> None:
        """Let the mouse go at a place."""
        self._mouse("mouseReleased", at, 0)

    def drag(self, start: tuple[float, float], stop: tuple[float, float]) -> None:
        """Press the mouse at one place, move to another, and let it go."""
        self.press(start)
        for step in range(1, 9):
            share = step / 8
            self.move((start[0] + share * (stop[0] - start[0]), start[1] + share * (stop[1] - start[1])))
        self.release(stop)

    def click(self, at: tuple[float, float]) -> None:
        """Click at a place."""
        self.press(at)
        self.release(at)

    def _mouse(self, kind: str, at: tuple[float, float], buttons: int) -> None:
        button = "none" if kind == "mouseMoved" and not buttons else "left"
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=at[0],
            y=at[1],
            button=button,
            buttons=buttons,
            clickCount=1,
        )

    def picture(self) -> bytes:
        """Return a picture of what is seen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        one = Browser(profile)
        try:
            yield one
        finally:
            one.close()
