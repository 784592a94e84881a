"""Whether this CPU can run the engine, asked before anything of the engine is loaded."""

from __future__ import annotations

import platform

# What x86-64-v3 adds, as Linux names it.
_NEEDED = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")


def missing(flags: str | None = None) -> str | None:
    """The first feature that the engine was built for and this CPU lacks; None if it has all, or if that cannot be known."""
    if flags is None:
        if platform.machine() != "x86_64":
            return None
        flags = _flags()
    have = set(flags.split())
    return next((name for name in _NEEDED if name not in have), None) if have else None


def _flags() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next((line.split(":", 1)[1] for line in lines if line.startswith("flags")), "")
    except OSError:
        return ""
