"""What the package's tests share, those in its docstrings among them."""

from __future__ import annotations

import faulthandler
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pithead

ROOT = Path(__file__).resolve().parents[1]
# How long the process may take to end when all tests have run: it closes connections that are open then, each in seconds.
_END_S = 120
# Tests import what stands beside them.
sys.path.insert(0, str(ROOT / "python/tests"))
# Jobs in the background of a shell ignore SIGINT, and programs that they start would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

from programs import program  # noqa: E402


def pytest_unconfigure() -> None:
    """A process that does not end says where it waits, and has failed."""
    # The alarm ends it even where the interpreter is gone already.
    faulthandler.register(signal.SIGALRM, file=2, all_threads=True, chain=True)
    signal.alarm(_END_S)


@pytest.fixture(autouse=True)
def _examples(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["pithead"] = pithead


@pytest.fixture
def conn() -> Iterator[pithead.Connection]:
    """Two drives inside this process, with nothing on them."""
    with pithead.connect(drives=2, threads=2) as connection:
        yield connection


@pytest.fixture(name="program")
def _program() -> Path:
    return program()


class Drives:
    """Drives as processes of their own."""

    def __init__(self, directory: Path, count: int) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.addresses: list[str] = []
        for number in range(count):
            command = [program(), "drive", "serve", "--listen", "127.0.0.1:0", "--data", directory / f"drive-{number}"]
            process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            self.processes.append(process)
            self.addresses.append(_address(process))

    @property
    def target(self) -> str:
        """What `pithead.connect` takes."""
        return "pithead://" + ",".join(self.addresses)

    def stop(self) -> None:
        """Kills them."""
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stderr
            process.stderr.close()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr
    for line in process.stderr:
        if found := re.search(r"127\.0\.0\.1:\d+", line):
            return found.group()
    raise AssertionError("the drive ended before it listened")


@pytest.fixture
def start_drives(tmp_path: Path) -> Iterator[Callable[[int], Drives]]:
    """Starts drives on the network of this machine; they end with the test."""
    started: list[Drives] = []

    def start(count: int) -> Drives:
        started.append(Drives(tmp_path / f"drives-{len(started)}", count))
        return started[-1]

    yield start
    for drives in started:
        drives.stop()
