"""Names: of columns for libraries that want each name once, and as SQL writes them."""

from __future__ import annotations

from collections.abc import Iterable


def unique(names: Iterable[str]) -> list[str]:
    """The names, those that come again with the first of `_1`, `_2`, … that is free, as DuckDB's package has it.

    >>> unique(["a", "b", "a", "a", "a_1"])
    ['a', 'b', 'a_1', 'a_2', 'a_1_1']
    """
    found: dict[str, int] = {}
    for name in names:
        free = name
        if name in found:
            number = found[name] + 1
            while (free := f"{name}_{number}") in found:
                number += 1
            found[name] = number
        found[free] = 0
    return list(found)


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'
