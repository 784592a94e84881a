"""Pages of docs/reference: what is generated stands between notes, and what people write beside them."""

from __future__ import annotations

import re
from pathlib import Path

from pithead.cell.__main__ import _parser

from . import package
from .commands import EXIT_CODES, SHARED, of_argparse, section, table
from .help import Entry, Help, all_commands
from .settings import settings

_START, _END = r"<!-- generated: (?P<name>[^>]*?) -->\n", r"<!-- end of what is generated -->"
_REGION = re.compile(rf"(?P<start>{_START}).*?(?P<end>{_END})", re.DOTALL)


def generated(root: Path, program: Path) -> dict[str, str]:
    """Each page, by its path, as it should be."""
    return {
        "docs/reference/cli.md": _page(root, "docs/reference/cli.md", _commands(program)),
        "docs/reference/sql.md": _page(root, "docs/reference/sql.md", {"settings": settings(program)}),
        "docs/reference/python.md": package.page(),
    }


def _commands(program: Path) -> dict[str, str]:
    shown = {each.command: each for each in all_commands(program)}
    texts = {each.command: section(each) for each in [*shown.values(), *of_argparse(_parser(), "pithead cell")]}
    texts["exit codes"] = table("code", shown["pithead"].groups[EXIT_CODES])
    for group in SHARED:
        texts[group] = table("option", _of_group(shown, group))
    return texts


def _of_group(shown: dict[str, Help], group: str) -> list[Entry]:
    return next(each.groups[group] for each in shown.values() if group in each.groups)


def _page(root: Path, path: str, texts: dict[str, str]) -> str:
    """The page with its regions filled. A text without a place is an error, as is a place without a text."""
    page = (root / path).read_text()
    places = [found["name"] for found in _REGION.finditer(page)]
    if lost := sorted(set(texts) ^ set(places)):
        raise SystemExit(f"{path}: these have a place and no text, or a text and no place: {', '.join(lost)}")
    return _REGION.sub(lambda found: f"{found['start']}\n{texts[found['name']]}\n\n{found['end']}", page)
