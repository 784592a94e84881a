"""What a piece of work takes: seconds, CPU of this process and of drives, memory, bytes over links. And processes to do it in."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
# Within Linux's tcp_info: bytes that were sent and acknowledged, and bytes that came.
_TCP_BYTES = struct.Struct("=120xQQ")
_STOP_SECONDS = 20
_PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """A process of the benchmark did not do what it was to do; the message says what."""


@contextlib.contextmanager
def stage(drives: Sequence[int] = ()) -> Iterator[dict[str, Any]]:
    """Measures what is done within it. `drives` are the drives' process numbers.

    Gives a dict that is filled at the end: `seconds`, `cpu_client` and `cpu_drives` (user and system, in seconds), `peak_bytes` (the
    largest memory of this process meanwhile), `link_bytes` (of this process's TCP connections, both ways).

    >>> with stage() as took:
    ...     size = len(bytearray(50_000_000))
    >>> took["peak_bytes"] > 50_000_000, took["cpu_drives"]
    (True, 0.0)
    """
    took: dict[str, Any] = {}
    forget_peak()
    before = (link_bytes(), cpu_of(drives), time.process_time(), time.perf_counter())
    yield took
    after = (link_bytes(), cpu_of(drives), time.process_time(), time.perf_counter())
    link, cpu_drives, cpu_client, seconds = (b - a for a, b in zip(before, after, strict=True))
    took.update(seconds=seconds, cpu_client=cpu_client, cpu_drives=cpu_drives, cpu=cpu_client + cpu_drives)
    took.update(peak_bytes=peak_bytes(), link_bytes=link)


def forget_peak() -> None:
    """Starts a new measurement of this process's largest memory."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The largest resident memory of this process since `forget_peak`."""
    found = re.search(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def cpu_of(processes: Sequence[int]) -> float:
    """CPU seconds of these processes so far, user and system."""
    total = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def link_bytes() -> int:
    """Bytes over the TCP connections that this process has open now, both ways, as the kernel counts them."""
    total = 0
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as connection:
                if connection.type == socket.SOCK_STREAM and connection.family in (socket.AF_INET, socket.AF_INET6):
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_BYTES.size)
                    total += sum(_TCP_BYTES.unpack(info))
    return total


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, least and greatest of some runs, and the runs.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'min': 1.0, 'max': 3.0, 'runs': [3.0, 1.0, 2.0]}
    """
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": list(values)}


def median(runs: Sequence[dict[str, Any]], key: str) -> float:
    """The median over runs of one of the figures that `stage` gives."""
    return statistics.median(run[key] for run in runs)


def missing(*modules: str) -> list[str]:
    """Those of these modules that are not installed.

    >>> missing("json", "no_such_module")
    ['no_such_module']
    """
    return [module for module in modules if importlib.util.find_spec(module) is None]


def end_with_parent() -> None:
    """Has the kernel send this process a SIGTERM when the one that started it ends, however that comes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def run_task(name: str, *, timeout: float | None = None, **arguments: Any) -> dict[str, Any]:
    """Does a task of `tasks` in a process of its own and gives what it returned.

    Raises Failed if it failed, or took longer than `timeout` seconds.
    """
    command = [sys.executable, "-W", "ignore", "-m", "cell.tasks", name, json.dumps(arguments)]
    # What a task prints is not its answer: some libraries print.
    reading, writing = os.pipe()
    environment = {**os.environ, "PITHEAD_BENCH_ANSWER": str(writing)}
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, pass_fds=[writing], env=environment)
    finally:
        os.close(writing)
    with os.fdopen(reading) as answer:
        timer = threading.Timer(timeout, child.kill) if timeout else None
        if timer:
            timer.start()
        try:
            text = answer.read()
            status = child.wait()
        finally:
            if timer:
                timer.cancel()
            child.kill()
    if status != 0 or not text:
        raise Failed(f"{name}: {_ending(status, timeout)}")
    return json.loads(text)


def _ending(status: int, timeout: float | None) -> str:
    if status == -signal.SIGKILL and timeout:
        return f"it was killed: longer than {timeout:g} s, or out of memory"
    return f"ended by signal {-status}" if status < 0 else f"ended with status {status}; see above"


class Drives:
    """Drives as processes of this machine, on `drive-0`, `drive-1`, … of a folder. A context manager that ends them."""

    def __init__(self, program: str, folder: Path, count: int) -> None:
        self._program, self._folder, self._count = program, folder, count
        self._children: list[subprocess.Popen[str]] = []
        self.addresses: list[str] = []

    def __enter__(self) -> Drives:
        try:
            for number in range(self._count):
                self._start(self._folder / f"drive-{number}")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def target(self) -> str:
        """What `pithead.connect` takes."""
        return "pithead://" + ",".join(self.addresses)

    @property
    def processes(self) -> list[int]:
        """Their process numbers."""
        return [child.pid for child in self._children]

    def _start(self, data: Path) -> None:
        data.parent.mkdir(parents=True, exist_ok=True)
        command = [self._program, "drive", "serve", "--data", str(data), "--listen", "127.0.0.1:0", "--slow-session-ms", "0"]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self._children.append(child)
        assert child.stderr is not None
        said = ""
        for line in child.stderr:
            if found := re.search(r" listening on (\S+)", line):
                self.addresses.append(found[1])
                # Read to the end, so that the drive never blocks on what it says.
                lines = (line for line in child.stderr if line != "stopping\n")
                threading.Thread(target=sys.stderr.writelines, args=(lines,), daemon=True).start()
                return
            said += line
        raise Failed(f"the drive on {data} did not start: {said.strip()}")

    def _stop(self) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            try:
                child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._children.clear()
        self.addresses.clear()


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
