"""A headless Chromium that tests drive over WebDriver, with the standard library alone."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from programs import free_port

_DRIVER = shutil.which("chromedriver")
_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# The name of an element's number in WebDriver's JSON.
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

#: Why tests with a browser are skipped; none: they run.
MISSING = None if _DRIVER and _CHROMIUM else "no Chromium with chromedriver: apt-get install chromium chromium-driver"

CONTROL, ENTER = "\ue009", "\ue007"


class Browser:
    """A window of Chromium."""

    def __init__(self, width: int = 1280, height: int = 900, insecure: bool = False) -> None:
        assert _DRIVER and _CHROMIUM, MISSING
        port = free_port()
        self._driver = subprocess.Popen([_DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._url = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        arguments += [f"--window-size={width},{height}"]
        options = {"binary": _CHROMIUM, "args": arguments}
        wanted = {"goog:chromeOptions": options, "acceptInsecureCerts": insecure, "goog:loggingPrefs": {"browser": "ALL"}}
        self._wait(self._is_up, "chromedriver")
        session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._url += f"/session/{session['sessionId']}"
        self.size(width, height)

    def dark(self, is_dark: bool) -> None:
        """Prefers dark pages, or light ones."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        self._ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.kill()
            self._driver.wait()

    def open(self, url: str) -> None:
        """Goes to a page."""
        self._ask("POST", "/url", {"url": url})

    def click(self, css: str) -> None:
        """Clicks as a person does: where the element is seen."""
        self._ask("POST", f"/element/{self._find(css)}/click", {})

    def type(self, css: str, text: str, clear: bool = True) -> None:
        """Types into an element, after what was there is gone."""
        element = self._find(css)
        if clear:
            self._ask("POST", f"/element/{element}/clear", {})
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def text(self, css: str) -> str:
        """What a person reads there."""
        return str(self._ask("GET", f"/element/{self._find(css)}/text"))

    def run(self, script: str) -> Any:
        """What a script gives that runs in the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def until(self, script: str, seconds: float = 20) -> Any:
        """Waits until a script in the page gives something true, and returns that."""
        return self._wait(lambda: self.run(script), script, seconds)

    def messages(self) -> list[str]:
        """What the page's console has of errors and warnings: also of what the page's policy forbids."""
        entries = self._ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def size(self, width: int, height: int) -> None:
        """Makes what is seen of the page so large."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})

    def picture(self, file: Path) -> None:
        """Takes a picture of what is seen."""
        file.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def _find(self, css: str) -> str:
        return str(self._ask("POST", "/element", {"using": "css selector", "value": css})[_ELEMENT])

    def _is_up(self) -> bool:
        try:
            return bool(self._ask("GET", "/status")["ready"])
        except urllib.error.URLError:
            return False

    def _wait(self, check: Callable[[], Any], what: str, seconds: float = 20) -> Any:
        end = time.monotonic() + seconds
        while not (found := check()):
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.05)
        return found

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None
