"""The reference says what the code says."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from reference import docstrings, package  # noqa: E402
from reference.commands import section, wrapped  # noqa: E402
from reference.help import parsed  # noqa: E402
from reference.pages import generated  # noqa: E402

SOURCES = sorted((ROOT / "python/pithead").rglob("*.py"))
# A name and a colon, as in the dialect that is not ours.
OTHER_DIALECT = re.compile(r"^\s*([a-z_]+(, [a-z_]+)* : |(Args|Arguments|Returns|Raises|Yields):\s*$|:param)", re.MULTILINE)
HELP = """Do a thing, and then
another.

More of it.

Usage: pithead thing [OPTIONS] <FILE>...

Arguments:
  <FILE>...  Files, or a|pattern

Options:
      --how <HOW>
          How it is done, in words that take
          two lines [default: by hand]

          Possible values:
          - fast:   Quickly
          - arrow:  Arrow IPC

  -q          Say nothing [alias: --quiet]
  -h, --help  Print help

Examples:
  pithead thing a
"""


def test_pages_are_what_the_code_says(program: Path) -> None:
    for path, text in generated(ROOT, program).items():
        assert (ROOT / path).read_text() == text, f"{path} is out of date: run `make reference`"


def test_every_public_name_says_what_it_is_for() -> None:
    assert package.undocumented() == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(ROOT)))
def test_docstrings_are_in_one_dialect(source: Path) -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            assert not OTHER_DIALECT.search(text), f"{getattr(node, 'name', source.name)}: {text}"


def test_help_becomes_tables() -> None:
    assert section(parsed("pithead thing", HELP)) == "\n".join(
        [
            "Do a thing, and then another.",
            "",
            "More of it.",
            "",
            "```text",
            "pithead thing [OPTIONS] <FILE>...",
            "```",
            "",
            "| argument | meaning |",
            "|---|---|",
            "| `<FILE>...` | Files, or a\\|pattern |",
            "",
            "| option | meaning | default |",
            "|---|---|---|",
            "| `--how <HOW>` | How it is done, in words that take two lines: `fast` (quickly), `arrow` (Arrow IPC)"
            " | by hand |",
            "| `-q, --quiet` | Say nothing |  |",
        ]
    )


def test_docstrings_become_parts() -> None:
    found = docstrings.parsed(
        """Does a thing.

        Parameters
        ----------
        first, second
            What is done,
            and to what.
        third
            More.

        Returns
        -------
        int
            How much.

        A paragraph
        after all.

        >>> 1 + 1
        2
        """
    )
    assert found.text == ["Does a thing.", "A paragraph after all."]
    assert found.sections["Parameters"] == [("first, second", "What is done, and to what."), ("third", "More.")]
    assert found.sections["Returns"] == [("int", "How much.")]
    assert found.examples == [">>> 1 + 1\n2"]


def test_lines_are_short_except_in_tables_and_code() -> None:
    long = "word " * 40
    text = wrapped(f"{long}\n\n| {long} |\n\n```text\n{long}\n```")
    assert [len(line) > 120 for line in text.splitlines()] == [False, False, False, True, False, False, True, False]
