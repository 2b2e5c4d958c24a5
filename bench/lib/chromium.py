"""Pages driven in headless Chromium over its debugging protocol: sizes, themes, keys, pointers, screenshots."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--remote-debugging-port=0", "--force-prefers-reduced-motion")
START_S = 60.0
KEYS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Home": 36}
"""Keys with their codes."""


class MissingBrowserError(Exception):
    """There is no Chromium."""


class PageError(Exception):
    """A script in a page failed."""


class Tab:
    """One tab; `said` is what its console said, `failed` what could not be loaded."""

    def __init__(self, loop: asyncio.AbstractEventLoop, session: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.loop, self.session, self.socket = loop, session, socket
        self.said: list[str] = []
        self.loaded = False
        self.numbers = itertools.count(1)
        self.answers: dict[int, Any] = {}

    async def _send(self, method: str, parameters: Mapping[str, Any]) -> Any:
        number = next(self.numbers)
        await self.socket.send_json({"id": number, "method": method, "params": dict(parameters), "sessionId": self.session})
        while number not in self.answers:
            self._take(json.loads(await self.socket.receive_str(timeout=120)))
        found = self.answers.pop(number)
        if "error" in found:
            raise PageError(f"{method}: {found['error']}")
        return found["result"]

    def _take(self, message: Mapping[str, Any]) -> None:
        if "id" in message:
            self.answers[message["id"]] = message
        elif message.get("method") == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(a.get("value", a.get("description"))) for a in message["params"]["args"]))
        elif message.get("method") == "Runtime.exceptionThrown":
            self.said.append(str(message["params"]["exceptionDetails"].get("exception", {}).get("description", message)))
        elif message.get("method") == "Log.entryAdded":
            self.said.append(message["params"]["entry"]["text"])
        elif message.get("method") == "Page.loadEventFired":
            self.loaded = True

    def call(self, method: str, **parameters: Any) -> Any:
        """One call of the protocol."""
        return self.loop.run_until_complete(self._send(method, parameters))

    def size(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Become as large as a screen, in a theme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, address: str) -> None:
        """Load a page to its end."""
        self.loaded = False
        self.call("Page.navigate", url=address)
        while not self.loaded:
            self.call("Runtime.evaluate", expression="1")

    def run(self, script: str) -> Any:
        """The value of an expression, awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise PageError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 60.0) -> None:
        """Wait until an expression holds."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise PageError(f"never: {condition}")
            time.sleep(0.03)

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {} if key in KEYS and key != "Enter" else {"text": "\r" if key == "Enter" else key}
        codes = {"windowsVirtualKeyCode": KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0), "key": key}
        self.call("Input.dispatchKeyEvent", type="keyDown", **text, **codes)
        self.call("Input.dispatchKeyEvent", type="keyUp", **codes)

    def type(self, text: str) -> None:
        """Insert text where the focus is."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click on the middle of an element."""
        x, y = self.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
          e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();
          return [b.left + b.width / 2, b.top + b.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, start: tuple[float, float], stop: tuple[float, float]) -> None:
        """Move the pressed pointer."""
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], button="left", clickCount=1)
        for part in (0.3, 0.7, 1.0):
            x, y = (a + (b - a) * part for a, b in zip(start, stop, strict=True))
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=stop[0], y=stop[1], button="left", clickCount=1)

    def picture(self, path: Path, whole: bool = False, quality: int | None = None) -> None:
        """Write what is seen as PNG, or the whole page; with a quality as WebP."""
        clip = {}
        if whole:
            box = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}}
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **clip,
                          **({"format": "png"} if quality is None else {"format": "webp", "quality": quality}))
        path.write_bytes(base64.b64decode(found["data"]))

    def paper(self) -> bytes:
        """The page as printed, as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])


class Browser:
    """A headless browser with a profile of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self.loop, self.folder = loop, folder

    async def start(self) -> None:
        found = shutil.which(os.environ.get("DOVETAIL_CHROMIUM", "chromium"))
        if found is None:
            raise MissingBrowserError("headless Chromium is needed for pages: apt-get install chromium")
        self.process = await asyncio.create_subprocess_exec(
            found, *FLAGS, f"--user-data-dir={self.folder}", "about:blank", stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE)
        assert self.process.stderr is not None
        async with asyncio.timeout(START_S):
            async for line in self.process.stderr:
                if b"DevTools listening on " in line:
                    address = line.decode().split("DevTools listening on ")[1].strip()
                    break
        self.drained = asyncio.ensure_future(self.process.stderr.read())
        self.http = aiohttp.ClientSession()
        self.socket = await self.http.ws_connect(address, max_msg_size=0)

    async def _call(self, number: int, method: str, parameters: Mapping[str, Any]) -> Any:
        await self.socket.send_json({"id": -number, "method": method, "params": dict(parameters)})
        while True:
            message = json.loads(await self.socket.receive_str(timeout=60))
            if message.get("id") == -number:
                return message["result"]

    def tab(self) -> Tab:
        """A new tab."""
        made = self.loop.run_until_complete(self._call(1, "Target.createTarget", {"url": "about:blank"}))
        joined = self.loop.run_until_complete(
            self._call(2, "Target.attachToTarget", {"targetId": made["targetId"], "flatten": True}))
        tab = Tab(self.loop, joined["sessionId"], self.socket)
        for domain in ("Page", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        return tab

    async def stop(self) -> None:
        await self.socket.close()
        await self.http.close()
        self.process.kill()
        await self.process.wait()
        await self.drained


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for as long as the block runs."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(loop, Path(folder))
        loop.run_until_complete(browser.start())
        try:
            yield browser
        finally:
            loop.run_until_complete(browser.stop())
            loop.close()


BEYOND = (Path(__file__).parent / "beyond.js").read_text(encoding="utf-8")


DRAWN = """Promise.race([new Promise(done => setTimeout(done, 5000)),
  new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))])"""
"""Until what a new size changes is drawn; pages in the background draw nothing, and are waited for no longer."""


def beyond(tab: Tab) -> list[str]:
    """Text that leaves its box or overlaps other text, and whatever is wider than the page."""
    tab.run(f"{DRAWN}.then(() => 0)")
    found: list[str] = tab.run(BEYOND)
    return found
