"""What holds for the whole process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Options:
    """Options of the package.

    Attributes
    ----------
    progress
        None, True or False. None: progress is shown on terminals and in notebooks, and in scripts it is not.
    rows
        Rows that a result shows of itself.
    """

    progress: bool | None = None
    rows: int = 10


options = Options()
