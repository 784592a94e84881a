"""The program `pithead` of this checkout, for tests that start processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def program() -> Path:
    """Its path. A test that needs it is skipped where it is not built."""
    path = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "pithead"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path
