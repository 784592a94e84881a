"""Pithead runs SQL on the drives that hold the data, so that only answers travel.

>>> import pithead
>>> with pithead.connect() as conn:
...     report = conn.load("trips", pithead.examples.trips())
...     conn.sql("SELECT city, count(*) AS n FROM trips GROUP BY city ORDER BY city").fetchall()
[('Bern', 2), ('Oslo', 3)]
"""

from __future__ import annotations

from . import _cpu

if _missing := _cpu.missing():
    raise ImportError(f"this build of pithead needs an x86-64-v3 CPU (Haswell, Excavator or later); this one lacks {_missing}")

from . import examples  # noqa: E402
from ._connection import Connection, DatasetInfo, LoadReport, LogEntry, connect  # noqa: E402
from ._errors import (  # noqa: E402
    AccessError,
    Cancelled,
    ConflictError,
    CorruptError,
    DriveError,
    Error,
    InternalError,
    LimitError,
    UnsupportedError,
    UserError,
)
from ._explain import Explained  # noqa: E402
from ._options import options  # noqa: E402
from ._pithead import __version__  # noqa: E402
from ._relation import Column, Relation, Schema  # noqa: E402

__all__ = [
    "AccessError",
    "Cancelled",
    "Column",
    "ConflictError",
    "Connection",
    "CorruptError",
    "DatasetInfo",
    "DriveError",
    "Error",
    "Explained",
    "InternalError",
    "LimitError",
    "LoadReport",
    "LogEntry",
    "Relation",
    "Schema",
    "UnsupportedError",
    "UserError",
    "__version__",
    "connect",
    "examples",
    "options",
]
