"""Tables in memory that a statement names: those that were registered, and those that the caller's variables hold."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from . import _pithead
from ._errors import UserError
from ._sources import opened

T = TypeVar("T")

# Where this package's own code is, whose variables are nobody's.
_HERE = os.path.dirname(__file__)

_MISSING = re.compile(r"no dataset main\.([^;\n]+)")

Frames = dict[str, _pithead.Frame]


def frame_of(native: _pithead.Connection, source: Any) -> _pithead.Frame:
    """The rows of an object that gives Arrow data."""
    with opened(source) as (files, stream):
        if files:
            raise UserError(
                f"expected an object with Arrow data, got the path {files[0]}", "conn.load makes a dataset of files"
            )
        return native.frame(stream)


def with_variables(native: _pithead.Connection, frames: Frames, prepare: Callable[[Frames], T]) -> T:
    """What `prepare` gives with these tables and, where a dataset is missing, with the variable of its name that the caller sees."""
    frames = dict(frames)
    while True:
        try:
            return prepare(frames)
        except UserError as error:
            found = _MISSING.search(error.message)
            name = found[1] if found else None
            if name is None or name in frames or (table := _variable(name)) is None:
                raise
        frames[name] = frame_of(native, table)


def _variable(name: str) -> Any | None:
    """The innermost variable of this name outside of this package that holds a table. SQL folds names that are not quoted."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_HERE):
            for scope in (frame.f_locals, frame.f_globals):
                table = scope.get(name)
                if table is None and (known := [other for other in scope if other.lower() == name]):
                    table = scope[known[0]]
                if _is_table(table):
                    return table
        frame = frame.f_back
    return None


def _is_table(value: Any) -> bool:
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(value, polars.LazyFrame):
        return True
    has_columns = hasattr(value, "columns") or hasattr(value, "schema")
    return not isinstance(value, type) and has_columns and hasattr(value, "__arrow_c_stream__")
