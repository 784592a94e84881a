"""Rows of a result a few at a time, and what ended them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from . import _pithead
from ._errors import Cancelled, Error

T = TypeVar("T")
Row = tuple[Any, ...]


class Cursor:
    """Takes rows of one run after another. Threads may share it: each row of a run is given to one of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: _pithead.Stream | None = None
        # Rows that came and were not asked for yet.
        self._ahead: list[Row] = []
        self._failure: BaseException | None = None

    def many(self, size: int, run: Callable[[], _pithead.Stream]) -> list[Row]:
        """The next rows, fewer only where they end. The first call runs the statement, by `run`.

        Once the rows ended with an error, it is raised again: it must not be taken for their end.
        """
        with self._lock:
            if self._failure is not None:
                raise _again(self._failure)
            if self._stream is None:
                self._stream = run()
            while len(self._ahead) < size and (more := self._more(self._stream, 1)):
                self._ahead += more
            rows, self._ahead = self._ahead[:size], self._ahead[size:]
            return rows

    def rest(self) -> list[Row] | None:
        """The rows that are left of a run, which it ends; None where there is no run, or one that failed."""
        with self._lock:
            stream = self._stream
            if stream is None or self._failure is not None:
                self._stream, self._ahead, self._failure = None, [], None
                return None
            rows = self._ahead + self._more(stream, None)
            self._stream, self._ahead = None, []
            return rows

    def _more(self, stream: _pithead.Stream, rows_max: int | None) -> list[Row]:
        try:
            return guarded(stream, lambda: stream.fetch(rows_max))
        except BaseException as failure:
            self._failure = failure
            raise


def guarded(stream: _pithead.Stream, take: Callable[[], T]) -> T:
    """Takes rows, and raises what ended them, rather than what a library made of it."""
    try:
        return take()
    except Exception as error:
        try:
            stream.check()
        except BaseException as failure:
            raise failure from error
        raise


def _again(failure: BaseException) -> BaseException:
    if isinstance(failure, Error):
        return failure
    return Cancelled(f"the rows of this result ended early, with {failure!r}", "fetchall() takes them anew")
