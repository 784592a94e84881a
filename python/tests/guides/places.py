"""The places that pages name, and where they are in a test: ports that are free, and a directory of its own."""

from __future__ import annotations

import random
import re
import socket
from pathlib import Path

# Below the ports that the kernel gives to connections.
_PORTS = (20_000, 32_000)
_ADDRESS = re.compile(r"\b(?P<host>127\.0\.0\.1|0\.0\.0\.0|server\d)(?::(?P<port>\d{4,5}))?\b")
_METRICS = re.compile(r"(?P<before>--metrics )(?P<port>\d{4,5})\b")
_ROOT = re.compile(r"(?<![\w./-])/(?=(?:disk\d*|array)\b)")
_ON = re.compile(r"# on (?P<server>server\d)")


class Places:
    """Documented addresses and paths as those of this run, and back.

    `server3` is 127.0.0.13. A port of each server is another free port. `/disk1` and `/array` are below `directory`. A line
    that ends with `# on server3` runs there: 0.0.0.0 is that server's. Else 0.0.0.0 is the first server's.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports: dict[tuple[str, str], str] = {}

    def real(self, text: str) -> str:
        """A command of the page, as it is run."""
        on = _ON.search(text)
        here = on["server"] if on else "server1"
        if re.search(r"\bpithead (drive|array) serve\b", text) and "--listen" not in text:
            text = re.sub(r"( serve)\b", r"\1 --listen 127.0.0.1:7433", text, count=1)
        text = _METRICS.sub(lambda found: found["before"] + self._port("127.0.0.1", found["port"]), text)
        text = _ADDRESS.sub(lambda found: self._address(found, here), text)
        return _ROOT.sub(f"{self._directory}/", text)

    def documented(self, text: str) -> str:
        """What a program said, with the addresses and paths of the page."""
        for (host, port), real in self._ports.items():
            text = text.replace(f"{_host(host)}:{real}", f"{host}:{port}").replace(f"0.0.0.0:{real}", f"0.0.0.0:{port}")
        text = re.sub(r"\b127\.0\.0\.1(\d)\b", r"server\1", text)
        return text.replace(f"{self._directory}/", "/")

    def _address(self, found: re.Match[str], here: str) -> str:
        host, port = found["host"], found["port"]
        if host == "0.0.0.0":
            return f"{host}:{self._port(here, port)}" if port else host
        return f"{_host(host)}:{self._port(host, port)}" if port else _host(host)

    def _port(self, host: str, port: str) -> str:
        if (host, port) not in self._ports:
            self._ports[host, port] = str(_free())
        return self._ports[host, port]


def _host(host: str) -> str:
    return f"127.0.0.1{host.removeprefix('server')}" if host.startswith("server") else host


def _free() -> int:
    for port in random.sample(range(*_PORTS), 1000):
        with socket.socket() as listener:
            try:
                listener.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
