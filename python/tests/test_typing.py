"""Types: a program that follows the guides passes a strict check, and so does the package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ("python.md", "cells.md")


def examples(guide: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides" / guide).read_text(), re.DOTALL))


def checked(*arguments: str, cache: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(cache),
        *arguments,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy has learned of the package and of what it imports, for all checks."""
    return tmp_path_factory.mktemp("mypy")


def test_guides_and_package_pass_a_strict_check(tmp_path: Path, cache: Path) -> None:
    programs = []
    for guide in GUIDES:
        programs.append(tmp_path / guide.replace(".md", "_guide.py"))
        programs[-1].write_text(examples(guide))
        assert "pithead.connect" in programs[-1].read_text()
    told = checked(*map(str, programs), "python/pithead", cache=cache)
    assert told.startswith("Success"), told


@pytest.mark.parametrize("wrong", ["conn.sql('SELECT 1').nothing()", "conn.sql(5)", "conn.load('t', [], slice_rows='5')"])
def test_mistakes_are_found(tmp_path: Path, cache: Path, wrong: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import pithead\nconn = pithead.connect()\n{wrong}\n")
    assert "Found 1 error" in checked(str(program), cache=cache)
