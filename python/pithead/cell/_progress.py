"""Progress on a terminal's last line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

__all__ = ["Progress", "progress_of"]

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how much of it is done, and how much there is (0: not known)."""

_EVERY_S = 0.1


class _Line:
    """Writes one line to stderr, over and over, and takes it away when the work is done."""

    def __init__(self) -> None:
        self._last = 0.0
        self._width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        finished = total and done >= total
        if now - self._last < _EVERY_S and not finished:
            return
        self._last = now
        text = f"{what}: {100 * done // total}%" if total else f"{what}: {done:,}"
        sys.stderr.write("\r" + text.ljust(self._width) + ("\r" + " " * len(text) + "\r" if finished else ""))
        sys.stderr.flush()
        self._width = 0 if finished else len(text)


def progress_of(progress: bool | Progress | None) -> Progress:
    """What to tell: the function that was given, a line on the terminal, or nothing. None: a line if stderr is a terminal."""
    if callable(progress):
        return progress
    if progress or (progress is None and sys.stderr.isatty()):
        return _Line()
    return lambda what, done, total: None
