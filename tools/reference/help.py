"""What a command's --help says, as data."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# A heading such as "Options:", or "Usage: …" with something after it.
_HEADING = re.compile(r"(?P<name>[A-Z][^:]*):(?P<rest> .*)?")
_DEFAULT = re.compile(r"\s*\[default: (?P<text>[^]]*)\]")
_ALIAS = re.compile(r"\s*\[alias(?:es)?: (?P<text>[^]]*)\]")
_VALUES = re.compile(r"\s*Possible values:(?P<text>(?: - \S+:.*)+)")
# What every command has, and headings of text that are no entries.
_OWN = ("-h, --help", "-V, --version", "help")
_TEXTS = ("Examples", "Environment")


@dataclass(frozen=True)
class Entry:
    """An option, an argument or a command, with what it means.

    Attributes
    ----------
    name
        As it is written, such as `-o, --output <FILE>`.
    default
        Empty where there is none.
    """

    name: str
    text: str
    default: str = ""


@dataclass
class Help:
    """The help of one command.

    Attributes
    ----------
    command
        All words, such as `pithead drive serve`.
    about
        Paragraphs that say what it does.
    groups
        Entries by heading: `Options`, `Arguments`, `Commands` and others.
    """

    command: str
    about: list[str] = field(default_factory=list)
    usage: str = ""
    groups: dict[str, list[Entry]] = field(default_factory=dict)


def all_commands(program: Path, words: tuple[str, ...] = ()) -> Iterator[Help]:
    """The help of all commands, each before those below it."""
    shown = parsed(" ".join(("pithead", *words)), _said(program, words))
    yield shown
    for entry in shown.groups.get("Commands", []):
        # It runs in Python, and its parser is read there.
        if (*words, entry.name) != ("cell",):
            yield from all_commands(program, (*words, entry.name))


def parsed(command: str, said: str) -> Help:
    """Help as clap writes it."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in said.splitlines():
        heading = _HEADING.fullmatch(line)
        if heading and (heading["rest"] is None or heading["name"] == "Usage"):
            sections.append((heading["name"], [heading["rest"] or ""]))
        else:
            sections[-1][1].append(line)
    found = Help(command, about=_paragraphs(sections[0][1]))
    for name, lines in sections[1:]:
        if name == "Usage":
            found.usage = " ".join(" ".join(lines).split())
        elif name == "Exit codes":
            found.groups[name] = [Entry(*line.split(maxsplit=1)) for line in lines if line.strip()]
        elif name not in _TEXTS:
            found.groups[name] = [entry for entry in _entries(lines) if entry.name not in _OWN]
    return found


def _said(program: Path, words: tuple[str, ...]) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PITHEAD_")}
    command = [str(program), *words, "--help"]
    # Lines are as long as they are wherever this runs.
    shown = {"NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(command, env=environment | shown, capture_output=True, text=True, check=True)
    return done.stdout


def _paragraphs(lines: list[str]) -> list[str]:
    return [" ".join(text.split()) for text in re.split(r"\n\s*\n", "\n".join(lines)) if text.strip()]


def _entries(lines: list[str]) -> Iterator[Entry]:
    """Entries begin with two to six spaces; what they mean is beside or below them, further in."""
    name, text = "", ""
    for line in lines:
        start = re.match(r" {2,6}(?=[-<\[a-z])(?P<name>\S+(?: \S+)*)(?P<text>  .*)?$", line)
        if start and not start["name"].startswith("- "):
            if name:
                yield _entry(name, text)
            name, text = start["name"], start["text"] or ""
        elif line.strip() or text:
            text += " " + line.strip()
    if name:
        yield _entry(name, text)


def _entry(name: str, text: str) -> Entry:
    text = " ".join(text.split())
    values = _VALUES.search(text)
    if values:
        parts = [part.partition(":") for part in re.split(r" - (?=\S+:)", values["text"]) if part.strip()]
        listed = ", ".join(f"`{value.strip()}` ({_lower(meaning.strip())})" for value, _, meaning in parts)
        text = text.replace(values[0], f": {listed}")
    default, alias = _DEFAULT.search(text), _ALIAS.search(text)
    text = _ALIAS.sub("", _DEFAULT.sub("", text)).strip()
    if alias:
        name = f"{name}, {alias['text']}"
    return Entry(name, text, default["text"] if default else "")


def _lower(text: str) -> str:
    """A meaning within a sentence: `Aligned columns` begins small, `Arrow IPC` and names do not."""
    first = text.split(" ")[0].rstrip(",:")
    keeps = first in ("Arrow", "Parquet", "JSON", "CSV", "Vortex") or first[1:].lower() != first[1:]
    return text if keeps else text[:1].lower() + text[1:]
