"""The program `pithead` of this checkout, for tests that start processes."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


_PORTS = itertools.count(os.getpid() * 64)


def free_port() -> int:
    """A port to listen at that nobody else takes before: connections go out from ports above 32,768."""
    for number in _PORTS:
        port = 20_000 + number % 12_000
        with socket.socket() as free:
            if free.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("the numbers end")


def program() -> Path:
    """Its path. A test that needs it is skipped where it is not built."""
    path = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "pithead"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path
