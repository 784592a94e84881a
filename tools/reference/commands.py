"""Commands as Markdown."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable

from .help import Entry, Help

# Groups of options that many commands have. The page tells of them once, under these headings.
SHARED = {
    "Where datasets are": "where-datasets-are",
    "The link to drives on the network": "the-link-to-drives-on-the-network",
    "Who may connect": "who-may-connect",
}
EXIT_CODES = "Exit codes"
# As our parser in Python has it: "(default: all)", "(repeatable; default: all)", or alone.
_DEFAULT = re.compile(r"\(?(?:(?P<also>[^()]*); )?\bdefault: (?P<text>[^()]*)\)?")
_NOUNS = {"Commands": "command", "Arguments": "argument", "Options": "option"}


def section(shown: Help) -> str:
    """What a command does, how it is written, and its options."""
    parts = [*map(_sentence, shown.about), f"```text\n{shown.usage}\n```"]
    for name, entries in shown.groups.items():
        if name not in (*SHARED, EXIT_CODES) and entries:
            parts += [] if name in _NOUNS else [f"{name}:"]
            parts.append(table(_NOUNS.get(name, "option"), entries))
    also = [f"[{_lower(name)}](#{SHARED[name]})" for name in shown.groups if name in SHARED]
    if also:
        parts.append(f"It also has the options of {' and '.join(also)}.")
    return wrapped("\n\n".join(parts))


def wrapped(text: str) -> str:
    """Text whose paragraphs have lines of at most 120 characters; tables and code stay."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    for number in range(0, len(parts), 2):
        paragraphs = parts[number].split("\n\n")
        parts[number] = "\n\n".join(
            text if "\n" in text or text.startswith(("|", "-", "#", "<")) else _filled(text) for text in paragraphs
        )
    return "".join(parts)


def _filled(text: str) -> str:
    return textwrap.fill(text, width=120, break_long_words=False, break_on_hyphens=False)


def table(what: str, entries: Iterable[Entry]) -> str:
    """Entries as a table; defaults have a column of their own where there are any."""
    entries = list(entries)
    has_defaults = any(entry.default for entry in entries)
    rows = [[f"`{entry.name}`", entry.text, *([entry.default] if has_defaults else [])] for entry in entries]
    heads = [what, "meaning", *(["default"] if has_defaults else [])]
    return "\n".join([row(heads), "|" + "---|" * len(heads), *map(row, rows)])


def of_argparse(parser: argparse.ArgumentParser, name: str) -> list[Help]:
    """The commands below a parser of Python that users call by this name."""
    (below,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [_of_argparse(command, f"{name} {word}") for word, command in below.choices.items()]


def _of_argparse(parser: argparse.ArgumentParser, name: str) -> Help:
    groups: dict[str, list[Entry]] = {"Arguments": [], "Options": []}
    usage = f"{name} [OPTIONS]"
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            entry = _entry(action)
            groups["Options" if action.option_strings else "Arguments"].append(entry)
            usage += f" {entry.name}" if action.required else f" [{entry.name[1:-1]}]" if not action.option_strings else ""
    return Help(name, [parser.description or ""], usage, groups)


def _entry(action: argparse.Action) -> Entry:
    value = f"<{action.metavar or action.dest.upper()}>"
    several = "..." if action.nargs == "+" else ""
    name = ", ".join(action.option_strings)
    if action.nargs != 0:
        name = f"{name} {value}{several}".strip()
    text = (action.help or "the dataset") % vars(action)
    default = _DEFAULT.search(text)
    text = _DEFAULT.sub(lambda found: f"({found['also']})" if found["also"] else "", text).strip()
    if action.choices:
        listed = ", ".join(f"`{choice}`" for choice in action.choices)
        text = f"{text}: {listed}" if text else f"one of {listed}"
    return Entry(name, text[:1].upper() + text[1:], default["text"] if default else "")


def row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sentence(text: str) -> str:
    return text if text.endswith((".", ":", "?")) else f"{text}."


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
