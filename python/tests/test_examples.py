"""Examples: each runs by itself, and prints what its docstring shows."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "sdk/examples").glob("*.py"))


def shown(text: str) -> str:
    """What a docstring says that a program prints: its indented lines."""
    docstring = ast.get_docstring(ast.parse(text), clean=False) or ""
    return "".join(f"{line}\n" for line in re.findall(r"^    (.*)$", docstring, re.MULTILINE))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_prints_what_it_says(example: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "TMPDIR": str(tmp_path), "PYTHONWARNINGS": "error"}
    command = [sys.executable, str(example)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown(example.read_text()) != ""
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


def test_the_readme_lists_all() -> None:
    listed = re.findall(r"^\| \[(\w+\.py)\]", (ROOT / "sdk/examples/README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [example.name for example in EXAMPLES]
