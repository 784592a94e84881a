"""Drives and arrays that a page starts. They end with the page, and with the tests whatever becomes of those."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_SERVE = re.compile(r"\bpithead (?:drive |array )?serve\b")
# All of the line, which may be there in part.
_ADDRESS = re.compile(r"listening on (\S+).*\n")
# Of prctl: the signal that a process gets when its parent dies.
_PDEATHSIG = 1
# Nothing takes so long that works.
PATIENCE_S = 120


def is_server(command: str) -> bool:
    """Whether the command stays, so that what follows it on the page is typed elsewhere."""
    return _SERVE.search(command) is not None


def end_with_parent() -> None:
    """In a new process: it dies with the tests, however those end."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def finished(command: list[str], environment: dict[str, str], folder: str) -> tuple[int, str]:
    """How a command ended, and what it said. One that does not end is killed, with all that it started."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=folder,
        text=True,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        said += f"\n(killed: it had not ended after {PATIENCE_S} s)"
    return process.returncode, said


@dataclass
class Server:
    """A process that listens, or that has ended at once: then `status` says how."""

    process: subprocess.Popen[bytes]
    log: Path
    address: str = ""

    @property
    def said(self) -> str:
        """All that it said until now."""
        return self.log.read_text()

    @property
    def status(self) -> int:
        """0 while it runs."""
        return self.process.poll() or 0

    def stop(self) -> None:
        """Ends it, and waits until it has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Servers:
    """The servers of a page."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.running: list[Server] = []

    def start(self, command: str, environment: dict[str, str], folder: str) -> Server:
        """Starts one, and waits until it listens or has ended."""
        log = self._directory / f"server-{len(self.running)}.log"
        command = re.sub(r"&\s*(#.*)?$", "", command.rstrip())
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}" if command.startswith("pithead") else command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        self.running.append(Server(process, log))
        return _listening(self.running[-1])

    def stop(self, address: str = "") -> None:
        """Ends the server at an address, or all. Each has a port of its own, wherever it listens."""
        port = address.rpartition(":")[2]
        chosen = [server for server in self.running if server.address.endswith(f":{port}" if port else "")]
        assert chosen or not address, f"no server listens on {address}"
        for server in chosen:
            server.stop()
            self.running.remove(server)


def _listening(server: Server) -> Server:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        ended = server.process.poll() is not None
        if found := _ADDRESS.search(server.said):
            server.address = found[1]
            return server
        if ended:
            return server
        time.sleep(0.005)
    raise AssertionError(f"the server does not listen; it said: {server.said}")
