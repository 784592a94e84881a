"""Hints that the engine writes for its command line are said in Python's words."""

from __future__ import annotations

import re
from pathlib import Path

from pithead._hints import _WORDS, in_python

CRATES = Path(__file__).resolve().parents[2] / "crates"
# Options of a server, which is started on a command line whoever its hosts are.
SERVERS = {"--access", "--client-ca", "--connections", "--data", "--kinetic", "--link", "--listen", "--lost", "--tls-cert", "--tls-key"}
# Crates that a Python program meets: all but those that are programs, read command lines, or are for tests.
MET = sorted({path.parent.name for path in CRATES.glob("*/src")} - {"bench", "cli", "e2e", "fakes", "fuzz", "workers", "xtask"})
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def hints() -> list[tuple[str, str]]:
    """Texts of the engine that hold an option, with where they are; tests are left out."""
    found = []
    for crate in MET:
        for path in sorted((CRATES / crate / "src").rglob("*.rs")):
            if {"tests", "faults"} & set(path.parts) or path.stem == "tests":
                continue
            text = path.read_text().partition("#[cfg(test)]")[0]
            lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
            texts = STRING.findall("\n".join(lines))
            found += [(found_text, str(path)) for found_text in texts if re.search(r"(?<![\w-])--[a-z]", found_text)]
    return found


def test_no_option_of_the_command_line_is_left() -> None:
    assert len(hints()) > 20
    for text, where in hints():
        # What a server or a command is told stands in its own errors, which a Python program does not see.
        if where.endswith(("entry/src/options.rs", "store/src/inspect.rs", "fleet/src/aside/taking.rs")):
            continue
        left = set(
            re.findall(
                r"--[a-z][a-z-]*",
                re.sub(r"`pithead [^`]*`|pithead drive [^\"]*", "", in_python(text.replace("{ENCODING_FALLBACK}", "arrow"))),
            )
        )
        assert left <= SERVERS, f"{where}: {text!r} becomes {in_python(text)!r}: add its words to pithead/_hints.py"


def test_the_words_are_those_of_the_engine() -> None:
    source = "\n".join(path.read_text() for crate in MET for path in (CRATES / crate / "src").rglob("*.rs"))
    for theirs, _ in _WORDS:
        assert theirs in source or theirs.replace('"', '\\"') in source, f"no hint of the engine says {theirs!r} any more"
