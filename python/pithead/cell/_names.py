"""The names of the tables that a dataset of cells is kept in, and the note that its main table carries."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

import numpy as np

from pithead import UserError

__all__ = ["KEY", "VERSION", "from_json", "generation", "generation_of", "info_of", "is_part", "note_of", "split", "to_json"]

KEY = "pithead.cell"
"""The key of our note in a dataset's metadata."""

VERSION = 1

_PART = re.compile(r"(obs|var|raw|raw\.var|layers\..+|obsm\..+)(~\d+)?")
_GENERATIONS = 10**12
_ARRAY_MAX = 4096


def split(name: str) -> tuple[str, str]:
    """Domain and dataset of a name; the first dot splits, and a name without one is in `main`.

    >>> split("lab.pbmc.v2"), split("pbmc")
    (('lab', 'pbmc.v2'), ('main', 'pbmc'))
    """
    domain, dot, dataset = name.partition(".")
    if not dot:
        domain, dataset = "main", domain
    if not domain or not dataset:
        raise UserError(f"{name!r} is no name of a dataset", hint="names are DOMAIN.DATASET, such as lab.pbmc, or DATASET")
    return domain, dataset


def info_of(conn: Any, name: str) -> Any | None:
    """What the catalogue has of the table `name` (`domain.dataset`), or None."""
    domain, dataset = split(name)
    return next((info for info in conn.datasets(domain) if info.name == dataset), None)


def note_of(info: Any) -> dict[str, Any] | None:
    """Our note in a table's metadata, or None where there is none."""
    text = info.metadata.get(KEY)
    return None if text is None else json.loads(text)


def is_part(name: str, dataset: str) -> bool:
    """Whether the table `name` is a part of `dataset`; both without domain."""
    return name.startswith(dataset + ".") and _PART.fullmatch(name[len(dataset) + 1 :]) is not None


def generation() -> str:
    """What to put behind the names of a load's parts. It is random, so that they meet no part of any other load.

    >>> generation() != generation(), is_part(f"pbmc.obs{generation()}", "pbmc")
    (True, True)
    """
    return f"~{secrets.randbelow(_GENERATIONS)}"


def generation_of(part: str) -> str:
    """What a part's name has of its load; nothing where the first load of an earlier release made it.

    >>> generation_of("pbmc.var~4"), generation_of("pbmc.var")
    ('~4', '')
    """
    match = re.search(r"~\d+$", part)
    return "" if match is None else match.group()


def to_json(value: Any, path: str, dropped: list[str]) -> Any:
    """`value` as JSON takes it; what it cannot take is left out, and its path added to `dropped`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, dict):
        taken = {str(key): to_json(each, f"{path}.{key}" if path else str(key), dropped) for key, each in value.items()}
        return {key: each for key, each in taken.items() if each is not _LEFT_OUT}
    if isinstance(value, list | tuple):
        taken_list = [to_json(each, path, dropped) for each in value]
        return _LEFT_OUT if any(each is _LEFT_OUT for each in taken_list) else taken_list
    if isinstance(value, np.ndarray) and value.dtype.kind in "iufbUO" and value.size <= _ARRAY_MAX:
        items = value.tolist()
        if value.dtype.kind != "O" or (value.ndim == 1 and all(isinstance(each, str) for each in items)):
            return {"__array__": items, "dtype": "object" if value.dtype.kind in "UO" else str(value.dtype)}
    dropped.append(path)
    return _LEFT_OUT


_LEFT_OUT = object()


def from_json(value: Any) -> Any:
    """What `to_json` took, arrays being arrays again."""
    if isinstance(value, dict):
        if "__array__" in value:
            return np.array(value["__array__"], dtype=value["dtype"])
        return {key: from_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [from_json(each) for each in value]
    return value
