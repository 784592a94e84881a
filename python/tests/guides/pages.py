"""Pages of the documentation, as the blocks that tests run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

# Fences that are run, and fences that only show something.
RUN = ("console", "sh", "sql", "python")
SHOWN = ("cpp", "go", "rust", "text", "toml", "yaml")
# A hidden note to the tests. Its words are in docs/internals/testing.md.
_NOTE = re.compile(r"<!-- test: (?P<kind>\w+)(?P<rest>.*?)-->", re.DOTALL)


class PageError(Exception):
    """A page that the tests cannot read: it names page and line."""


@dataclass(frozen=True)
class Block:
    """Something of a page that is run, or that says why it is not.

    Attributes
    ----------
    line
        Of the page, that the text begins on.
    kind
        A fence's language; or `setup`, shell that readers do not see; or `stop`, servers that end here.
    skipped
        Why the block is not run; empty where it is.
    """

    page: str
    line: int
    kind: str
    text: str
    skipped: str = ""


@dataclass(frozen=True)
class Command:
    """A command of a shell block, and what the page shows below it.

    Attributes
    ----------
    shown
        None where the page shows nothing.
    """

    line: int
    text: str
    shown: tuple[str, ...] | None = None


def blocks_of(root: Path, page: str) -> list[Block]:
    """All blocks of a page, in order. A note that belongs to no block, and a fence of no known language, are errors."""
    found: list[Block] = []
    skipped = ""
    for block in _read(page, (root / page).read_text()):
        if block.kind == "skip":
            skipped = block.text
        elif block.kind in SHOWN:
            _expect(not skipped, block, f"a block of {block.kind} is never run, so it cannot be skipped")
        else:
            found.append(replace(block, skipped=skipped))
            skipped = ""
    if skipped:
        raise PageError(f"{page}: the last note, to skip a block, has no block after it")
    return found


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a shell block. In a console each has a prompt, and what is shown below."""
    if block.kind != "console":
        yield from (Command(line, text) for line, text in _statements(block.line, block.text.splitlines()))
        return
    lines = block.text.splitlines()
    _expect(not lines or lines[0].startswith("$ "), block, "a console begins with `$ ` and a command")
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text, shown = lines[start][2:], lines[start + 1 : end]
        while shown and shown[0].startswith("> "):
            text += "\n" + shown.pop(0)[2:]
        yield Command(block.line + start, text, tuple(shown) or None)


def _read(page: str, text: str) -> Iterator[Block]:
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.startswith("<!-- test:"):
            end = _index(lines, number, lambda line: line.endswith("-->"), page)
            yield _note(page, number + 1, "\n".join(lines[number : end + 1]))
            number = end
        elif line.lstrip().startswith("```"):
            language = line.strip().removeprefix("```")
            end = _index(lines, number + 1, lambda line: line.strip() == "```", page)
            block = Block(page, number + 2, language, "\n".join(lines[number + 1 : end]))
            known = (*RUN, *SHOWN)
            _expect(language in known, block, f"a fence of {language!r}: those known are {', '.join(known)}")
            yield block
            number = end
        number += 1


def _note(page: str, line: int, text: str) -> Block:
    found = _NOTE.fullmatch(text)
    block = Block(page, line, found["kind"] if found else "", found["rest"].strip() if found else text)
    _expect(block.kind in ("skip", "setup", "stop"), block, "a note to tests is of `skip`, `setup` or `stop`")
    if block.kind == "skip":
        _expect(len(block.text.split()) >= 3, block, "a block that is skipped says why, in words")
    return replace(block, line=line + 1) if block.kind == "setup" else block


def _index(lines: list[str], start: int, is_end: Callable[[str], bool], page: str) -> int:
    for number in range(start, len(lines)):
        if is_end(lines[number]):
            return number
    raise PageError(f"{page}:{start}: what begins here does not end")


def _statements(line: int, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Lines put together until the shell takes them for whole."""
    started, text = 0, ""
    for number, each in enumerate(lines):
        if not text and (not each.strip() or each.startswith("#")):
            continue
        started = started if text else line + number
        text = f"{text}\n{each}" if text else each
        if not text.endswith("\\") and _is_whole(text):
            yield started, text
            text = ""
    if text:
        yield started, text


def _is_whole(text: str) -> bool:
    done = subprocess.run(["bash", "-n", "-c", text], capture_output=True)
    return done.returncode == 0 and b"here-document" not in done.stderr


def _expect(holds: bool, block: Block, message: str) -> None:
    if not holds:
        raise PageError(f"{block.page}:{block.line}: {message}")
