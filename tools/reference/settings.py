"""Settings as Markdown."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import tempfile
from pathlib import Path

from .commands import row

_PREFIX = "pithead."


def settings(program: Path) -> str:
    """A table of our settings, in the order of the code's names."""
    found = [each for each in _shown(program) if each["name"].startswith(_PREFIX)]
    rows = [[f"`{each['name']}`", f"`{_default(each['value'])}`", _sentence(each["description"])] for each in found]
    return "\n".join([row(["setting", "default", "meaning"]), "|---|---|---|", *map(row, rows)])


def _shown(program: Path) -> list[dict[str, str]]:
    """What `SHOW ALL VERBOSE` says to a host with nothing set."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "one.csv").write_text("a\n1\n")
        where = ["--data", str(Path(directory) / "data")]
        _run(directory, program, "load", "one", "one.csv", "--drives-new", "1", *where)
        said = _run(directory, program, "sql", "-q", "--format", "csv", "-c", "SHOW ALL VERBOSE", *where)
    return list(csv.DictReader(io.StringIO(said)))


def _run(directory: str, program: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PITHEAD_")}
    command = [str(program), *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def _default(value: str) -> str:
    return {"true": "on", "false": "off"}.get(value, value)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith(".") else f"{text}."
