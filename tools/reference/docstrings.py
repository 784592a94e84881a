"""Docstrings as Markdown. Their dialect is NumPy's, with names on lines of their own; see docs/internals/testing.md."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Examples")


@dataclass
class Docstring:
    """A docstring, taken apart.

    Attributes
    ----------
    text
        Paragraphs, those after the sections too.
    sections
        Of each section but the examples: names, each with what it means.
    examples
        What is typed at a prompt, and what comes.
    """

    text: list[str] = field(default_factory=list)
    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    @property
    def first(self) -> str:
        """The first paragraph, or nothing."""
        return self.text[0] if self.text else ""


def parsed(text: str | None) -> Docstring:
    """A docstring's parts. Unknown sections are text."""
    found = Docstring()
    lines = inspect.cleandoc(text or "").splitlines()
    number, section = 0, ""
    while number < len(lines):
        line = lines[number]
        if line in _SECTIONS and lines[number + 1 : number + 2] == ["-" * len(line)]:
            section, number = line, number + 2
            continue
        block, number = _block(lines, number)
        if not block:
            number += 1
        elif block[0].startswith(">>>"):
            found.examples.append("\n".join(block))
        elif section and section != "Examples" and (entries := _entries(block)):
            found.sections.setdefault(section, []).extend(entries)
        else:
            section = ""
            found.text.append(_markdown(block))
    return found


def _block(lines: list[str], start: int) -> tuple[list[str], int]:
    """Lines until an empty one, or until a section begins."""
    end = start
    while end < len(lines) and lines[end].strip():
        if end > start and lines[end] in _SECTIONS:
            break
        end += 1
    return lines[start:end], end


def _entries(block: list[str]) -> list[tuple[str, str]]:
    """Names, and below each what it means; nothing if the block is no such list."""
    if len(block) < 2 or not re.fullmatch(r"[\w, ]+", block[0]) or not block[1].startswith("    "):
        return []
    found: list[tuple[str, str]] = []
    for line in block:
        if line.startswith("    ") and found:
            name, text = found[-1]
            found[-1] = (name, f"{text} {line.strip()}".strip())
        else:
            found.append((line.strip(), ""))
    return found


def _markdown(block: list[str]) -> str:
    """A paragraph, or a list as it is."""
    return "\n".join(block) if block[0].startswith("- ") else " ".join(line.strip() for line in block)
