"""A real Chromium, driven over the DevTools protocol: pages, keys, clicks, screenshots and requests."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

OWN_CHROMIUM = Path(__file__).parent.parent.parent / ".venv" / "browser" / "chromium"
"""Where scripts/browser.py puts one."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
PATIENCE_SECONDS = 120.0
KEYS = {"Escape": 27, "Enter": 13, "Tab": 9, "ArrowDown": 40}


def find_chromium() -> str | None:
    """The browser for tests: the one in `CHROMIUM`, on the PATH, or downloaded."""
    named = os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)
    return named or (str(OWN_CHROMIUM) if OWN_CHROMIUM.is_file() else None)


def require_chromium() -> str:
    """The browser; without one a test is skipped on a developer's machine, and fails where `CI` is set."""
    found = find_chromium()
    if found is not None:
        return found
    message = (
        "no Chromium: install it (apt-get install chromium, or python scripts/browser.py), or name one in CHROMIUM"
    )
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@contextmanager
def start_browser(profile: Path) -> Iterator["Browser"]:
    """A separate browser, which is closed at the end."""
    command = [require_chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = profile / "DevToolsActivePort"
        wait_until(lambda: port.exists() and "/devtools/" in port.read_text(), "the browser did not start")
        number, path = port.read_text().split()
        address = f"ws://127.0.0.1:{number}{path}"
        # nobody reads while a test does something else, and then no pong is seen either
        with connect(address, max_size=None, open_timeout=PATIENCE_SECONDS, ping_interval=None) as connection:
            yield Browser(connection)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(is_so: Any, otherwise: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(otherwise)
        time.sleep(0.02)


class Browser:
    """Sends commands and keeps the events that come meanwhile."""

    def __init__(self, connection: ClientConnection):
        self._connection = connection
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._connection.send(json.dumps(message))
        while True:
            got: dict[str, Any] = json.loads(self._connection.recv(timeout=PATIENCE_SECONDS * 2))
            if got.get("id") == number:
                if "error" in got:
                    raise AssertionError(f"{method}: {got['error']}")
                result: dict[str, Any] = got["result"]
                return result
            self.events.append(got)

    @contextmanager
    def page(self, width: int = 1400, height: int = 900, *, dark: bool = False) -> Iterator["Page"]:
        """A new page in a separate context."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events.clear()
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        page.set_theme(dark=dark)
        try:
            yield page
        finally:
            self.send("Target.disposeBrowserContext", browserContextId=context)


class Page:
    """A page, with the actions of a user and the visible content."""

    def __init__(self, browser: Browser, session: str):
        self._browser, self._session = browser, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **params)

    def resize(self, width: int, height: int) -> None:
        mobile = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def set_theme(self, *, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a report, and wait until it can be used."""
        self.go_to(f"{path.resolve().as_uri()}{fragment}")

    def go_to(self, address: str) -> None:
        """Open an address, and wait until it can be used."""
        self.send("Page.navigate", url="about:blank")  # else another fragment of the same page is no new page
        self.wait("location.href === 'about:blank'")
        self.send("Page.navigate", url=address)
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def js(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        try:
            got = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        except AssertionError as error:
            if not any(word in str(error) for word in ("navigated", "execution context", "Execution context")):
                raise
            return self.js(expression)  # the page has just become another, or is about to
        if "exceptionDetails" in got:
            raise AssertionError(f"{expression}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def wait(self, expression: str) -> None:
        wait_until(lambda: self.js(f"Boolean({expression})"), f"it never became true: {expression}; {self.problems()}")

    def go_back(self) -> None:
        """Go back in the history of the tab, as the button of the browser does."""
        self._go_in_history(-1)

    def go_forward(self) -> None:
        """Go forward in the history of the tab, as the button of the browser does."""
        self._go_in_history(1)

    def _go_in_history(self, steps: int) -> None:
        # While Chromium swaps a page with one of its back/forward cache, it runs scripts in the page that is leaving,
        # where `history.back()` does nothing. Only the tab itself knows when the swap is done.
        start, entries = self._history()
        index = start + steps
        self.send("Page.navigateToHistoryEntry", entryId=entries[index]["id"])
        wait_until(
            lambda: self._history()[0] == index,
            f"the tab never reached entry {index} of its history: {entries}",
        )

    def _history(self) -> tuple[int, list[dict[str, Any]]]:
        """Return the current index and the entries of the tab's history, once it shows a page."""
        found: list[dict[str, Any]] = []

        def is_known() -> bool:
            try:
                found.append(self.send("Page.getNavigationHistory"))
            except AssertionError as error:
                if "Not attached to an active page" not in str(error):
                    raise
            return bool(found)

        wait_until(is_known, "the tab never showed a page")
        return found[0]["currentIndex"], found[0]["entries"]

    def press(self, key: str) -> None:
        code = KEYS.get(key, ord(key[0].upper()))
        typed = {} if key in KEYS and key != "Enter" else {"text": "\r" if key == "Enter" else key}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **typed)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click in the middle of an element, once it stays where it is."""
        place = (
            f"(() => {{ const box = document.querySelector({json.dumps(selector)}); box.scrollIntoView({{block: 'nearest'}});"
            "const {left, top, width, height} = box.getBoundingClientRect(); return [left + width / 2, top + height / 2] })()"
        )
        found = self.js(place)
        while found != (now := self.js(f"new Promise((done) => setTimeout(() => done({place}), 100))")):
            found = now  # a page that is still being drawn moves its parts
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, *found)

    def mouse(self, kind: str, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, buttons=1)

    def text(self, selector: str = "body") -> str:
        """The words that can be seen in an element."""
        return str(self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def texts(self, selector: str) -> list[str]:
        """The words in each of these elements, on one line."""
        found: list[str] = self.js(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.innerText)"
        )
        return [" ".join(text.split()) for text in found]

    @property
    def ids(self) -> list[str]:
        """The ids of the rows that can be seen, from top to bottom."""
        return self.texts(".rows .row .id")

    def filter(self, query: str) -> None:
        """Type a filter, and wait until the page shows the selection."""
        self.js("(() => { const box = document.getElementById('filter'); box.focus(); box.select(); })()")
        self.send("Input.dispatchKeyEvent", type="keyDown", key="Backspace", windowsVirtualKeyCode=8)
        self.type(query)
        self.press("Enter")
        self.wait("!document.querySelector('.status').classList.contains('busy')")

    def picture(self, path: Path, *, whole: bool = False) -> Path:
        """A screenshot of the visible part, or of the whole page."""
        got = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(got["data"]))
        return path

    def problems(self) -> list[str]:
        """Errors and warnings in the console, and exceptions."""
        self.js("1")
        found = []
        for event in self._browser.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded":
                entry = params["entry"]
                found.append(f"{entry.get('text')}{f' ({url})' if (url := entry.get('url')) else ''}")
            elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(json.dumps(params["args"]))
        return found

    def requests(self) -> list[str]:
        """Everything that the page asked for."""
        self.js("1")
        sent = [event for event in self._browser.events if event.get("method") == "Network.requestWillBeSent"]
        return [str(event["params"]["request"]["url"]) for event in sent]

    def bodies(self) -> list[tuple[str, str]]:
        """The address of everything that the page has received, and all that was in it, with its headers."""
        self.js("1")
        events = [event for event in self._browser.events if "params" in event]
        done = {each["params"]["requestId"] for each in events if each["method"] == "Network.loadingFinished"}
        found = []
        for params in [each["params"] for each in events if each["method"] == "Network.responseReceived"]:
            if params["requestId"] in done:
                got = self.send("Network.getResponseBody", requestId=params["requestId"])
                text = base64.b64decode(got["body"]).decode() if got["base64Encoded"] else got["body"]
                found.append((str(params["response"]["url"]), f"{text}\n{json.dumps(params['response']['headers'])}"))
        return found

    def paused_request(self) -> dict[str, Any]:
        """The next request that waits to be let through, of those that `Fetch.enable` stops."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            self.js("1")
            for event in list(self._browser.events):
                if event.get("method") == "Fetch.requestPaused":
                    self._browser.events.remove(event)
                    found.append(event["params"])
                    return True
            return False

        wait_until(is_there, "the page asked for nothing")
        return found[0]

    def heap_mb(self) -> float:
        """The size of the JavaScript heap after it was tidied up."""
        self.send("HeapProfiler.collectGarbage")
        metrics = {each["name"]: each["value"] for each in self.send("Performance.getMetrics")["metrics"]}
        return float(metrics["JSHeapUsedSize"]) / 1e6
