"""What a connection is to, told from what it looks like."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from . import _arguments
from ._errors import UserError

_SCHEMES = ("pithead://", "pithead+tls://")
_EXAMPLE = 'write "pithead://host:port,host:port"'
# One or more of HOST:PORT, as no directory is likely to be called.
_LOOKS_REMOTE = re.compile(r"\s*[^/\\,]+:\d+\s*(,\s*[^/\\,]+(:\d+)?\s*)*")


def target_of(target: Any) -> tuple[str | None, list[str]]:
    """The directory, or the addresses, that `pithead.connect` was given; neither for a temporary directory."""
    if target is None:
        return None, []
    if isinstance(target, str) and target.startswith(_SCHEMES):
        return None, _addresses(target)
    if isinstance(target, str):
        _refuse_remote(target)
    if isinstance(target, (str, os.PathLike, bytes, bytearray)):
        return _directory(target), []
    if not isinstance(target, Iterable) or isinstance(target, (Mapping, memoryview)):
        raise UserError(f"target: expected a directory or addresses of drives, got a {type(target).__name__}", _EXAMPLE)
    addresses = [
        address for part in target for address in _addresses(_arguments.text("address of a drive", part), bare=True)
    ]
    if not addresses:
        raise UserError("expected at least one address of a drive", _EXAMPLE)
    return None, addresses


def _refuse_remote(target: str) -> None:
    if "://" in target:
        raise UserError(f"{target} is neither a directory nor an address of a drive", _EXAMPLE)
    if _LOOKS_REMOTE.fullmatch(target) and not os.path.isdir(target):
        raise UserError(
            f"{target} reads like addresses of drives, and there is no such directory",
            f'write "pithead://{target.strip()}"; a new directory of this name is "./{target}"',
        )


def _directory(target: Any) -> str:
    path = _arguments.path("target", target)
    if path.startswith("~"):
        raise UserError(
            f"{target} begins with the home of a user that is not known", f'a directory of this name is "./{target}"'
        )
    return path


def _addresses(target: str, bare: bool = False) -> list[str]:
    scheme, separator, rest = target.rpartition("://")
    if separator and scheme + separator not in _SCHEMES:
        raise UserError(f"{target} is no address of a drive", _EXAMPLE)
    addresses = [scheme + separator + part.strip() for part in rest.split(",") if part.strip()]
    if not addresses and not bare:
        raise UserError("expected at least one address of a drive", _EXAMPLE)
    return addresses
