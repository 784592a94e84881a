"""Progress on standard error: where somebody looks, and only of what takes its time."""

from __future__ import annotations

import sys
import time
from typing import Any

from ._options import options

# Seconds before anything is shown.
_AFTER = 0.5


def wanted(asked: bool | None) -> bool:
    """Whether progress is to be shown: as asked, as `pithead.options` says, or where somebody looks."""
    choice = options.progress if asked is None else asked
    return _somebody_looks() if choice is None else choice


def _somebody_looks() -> bool:
    if "ipykernel" in sys.modules:
        return True
    # A script may have a terminal, too: its output is its own.
    return hasattr(sys, "ps1") and sys.stderr is not None and sys.stderr.isatty()


class Bar:
    """A bar that appears late and goes when the work is done. Called with done, total, and one more number."""

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, unit
        self._started = time.monotonic()
        self._bar: Any = None

    def __call__(self, done: int, total: int, more: int) -> None:
        if self._bar is None:
            if time.monotonic() - self._started < _AFTER:
                return
            self._bar = self._make(total)
        if self._bar is False:
            return
        self._bar.total = total or None
        self._bar.n = done
        self._bar.set_postfix_str(self._told(more), refresh=False)
        self._bar.refresh()

    def _make(self, total: int) -> Any:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return False
        is_bytes = self._unit == "B"
        return tqdm(total=total or None, desc=self._what, unit=self._unit, unit_scale=is_bytes, leave=False, file=sys.stderr)

    def _told(self, more: int) -> str:
        return f"{more:,} rows" if self._unit == "B" else f"{more / 1e6:.1f} MB over the link"

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar:
            self._bar.close()
        self._bar = False
