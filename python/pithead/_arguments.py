"""Arguments, looked at before the engine sees them, so that what is wrong with one is said in a sentence."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from typing import Any

from ._errors import UserError

# What a number of the engine holds at most.
_MOST = 2**63 - 1


def number(argument: str, value: Any, *, least: int, most: int = _MOST, hint: str | None = None) -> int:
    """The whole number that an argument has to be."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise UserError(f"{argument}: expected a whole number, got {_shown(value)}", hint) from None
    if not least <= found <= most:
        bounds = f"{least} or more" if most == _MOST else f"{least} to {most:,}"
        raise UserError(f"{argument}: expected {bounds}, got {found}", hint)
    return found


def text(argument: str, value: Any, hint: str | None = None) -> str:
    """The text that an argument has to be."""
    if not isinstance(value, str):
        raise UserError(f"{argument}: expected a str, got {_shown(value)}", hint)
    found = str.__str__(value)
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{argument}: the text at {error.start} is half of a surrogate pair, which is no character"
        ) from None
    return found


def texts(argument: str, values: Any, hint: str | None = None) -> list[str]:
    """The texts of a list; one alone is a list of one."""
    if isinstance(values, str):
        return [text(argument, values)]
    if isinstance(values, (bytes, bytearray)) or not hasattr(values, "__iter__"):
        raise UserError(f"{argument}: expected a str or a list of them, got {_shown(values)}", hint)
    return [text(argument, value, hint) for value in values]


def metadata(given: Mapping[str, str] | None) -> dict[str, str]:
    """What a dataset is to carry: texts by their names."""
    for name, value in (given or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise UserError(
                f"metadata: expected texts, got {name!r}: {value!r}", "write other values as JSON: json.dumps(value)"
            )
    return dict(given or {})


def path(argument: str, value: Any) -> str:
    """The path that an argument has to be, with `~` as the home directory."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        hint = f"os.fsdecode({_shown(value)}) makes a str of it" if isinstance(value, bytes) else None
        raise UserError(f"{argument}: expected a path as str or pathlib.Path, got {_shown(value)}", hint)
    if not value:
        raise UserError(f"{argument}: expected a path, got an empty text", 'write "." for the working directory')
    return os.path.expanduser(text(argument, value))


def _shown(value: Any) -> str:
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:59] + '…'} of type {type(value).__name__}"
