"""Opening, listing and dropping datasets of cells, and domains of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from pithead import UserError

from . import _names
from ._asked import check_connection
from ._dataset import Dataset, Selection

__all__ = ["Domain", "drop", "ls", "open"]


def open(conn: Any, name: str) -> Dataset:
    """Opens the dataset of cells `name` (`domain.dataset`). Its matrices stay where they are.

    Raises UserError where there is none.
    """
    domain, dataset = _names.split(name)
    info = _names.info_of(conn, name)
    if info is None:
        there = [f"{each.domain}.{each.name}" for each in conn.datasets() if _is_main(each)]
        raise UserError(
            f"there is no dataset {domain}.{dataset}; the datasets of cells are: {', '.join(there) or 'none'}",
            hint=f"load one: pithead.cell.load(conn, 'FILE.h5ad', {name!r}), or python -m pithead.cell load {name} FILE.h5ad",
        )
    return Dataset(conn, domain, dataset, info)


def _is_main(info: Any) -> bool:
    note = _names.note_of(info)
    return note is not None and note.get("part") == "X"


def ls(conn: Any, domain: str | None = None) -> pd.DataFrame:
    """The datasets of cells, of one domain or all: name, cells, genes, kind of values, layers, bytes stored, source.

    `stored_bytes` counts all tables of the dataset.

    Examples
    --------
    >>> print(pithead.cell.ls(conn)[["name", "n_obs", "n_vars", "kind", "layers"]].to_string(index=False))
        name  n_obs  n_vars   kind layers
    lab.pbmc     60      25 counts  noise
    """
    infos = list(conn.datasets(domain))
    rows = []
    for info in infos:
        if not _is_main(info):
            continue
        note = _names.note_of(info)
        assert note is not None
        parts = [each for each in infos if each.domain == info.domain and _names.is_part(each.name, info.name)]
        rows.append(
            {
                "name": f"{info.domain}.{info.name}",
                "n_obs": note["n_obs"],
                "n_vars": note["n_vars"],
                "kind": note["kind"],
                "raw": "raw" in note["parts"],
                "layers": ", ".join(note["parts"]["layers"]),
                "stored_bytes": info.stored_bytes + sum(each.stored_bytes for each in parts),
                "source": note["source"],
                "loaded": note["loaded"],
            }
        )
    columns = ["name", "n_obs", "n_vars", "kind", "raw", "layers", "stored_bytes", "source", "loaded"]
    return pd.DataFrame(rows, columns=columns)


def drop(conn: Any, name: str, missing_ok: bool = False) -> None:
    """Drops a dataset of cells with all of its tables, and those that a load that was killed has left."""
    domain, dataset = _names.split(name)
    info = _names.info_of(conn, name)
    if info is not None and not _is_main(info):
        raise UserError(f"{domain}.{dataset} is a table, not a dataset of cells", hint=f"conn.drop({name!r}) drops a table")
    if info is None and not missing_ok:
        open(conn, name)
    # X goes first: with it the dataset is gone for all others, whatever happens to the rest.
    if info is not None:
        conn.drop(f"{domain}.{dataset}", missing_ok=True)
    for each in list(conn.datasets(domain)):
        note = _names.note_of(each)
        if note is not None and note.get("of") == dataset and _names.is_part(each.name, dataset):
            conn.drop(f"{domain}.{each.name}", missing_ok=True)


class Domain:
    """Several datasets taken as one: the union of their cells, their genes matched by id.

    Parameters
    ----------
    conn
        A connection, with `name`; or a list of datasets or views, all of one connection.
    name
        The domain whose datasets are meant, all of them.

    Genes that are not in every dataset are left out, and results say which: `result.dropped`.
    """

    def __init__(self, conn: Any, name: str | None = None) -> None:
        if name is None:
            if not isinstance(conn, Iterable) or isinstance(conn, str):
                raise UserError("a domain needs its name", hint="Domain(conn, 'lab'), or Domain([dataset, dataset])")
            self.datasets: list[Selection] = list(conn)
            self.name = ", ".join(each.name for each in self.datasets)
        else:
            self.datasets = [Dataset(conn, info.domain, info.name, info) for info in conn.datasets(name) if _is_main(info)]
            self.name = name
        if not self.datasets:
            raise UserError(f"the domain {self.name!r} has no dataset of cells", hint="pithead.cell.ls(conn) lists datasets")
        check_connection(self.datasets)

    @property
    def n_obs(self) -> int:
        """How many cells there are in all datasets."""
        return sum(each.n_obs for each in self.datasets)

    def __iter__(self) -> Iterator[Selection]:
        return iter(self.datasets)

    def __len__(self) -> int:
        return len(self.datasets)

    def __repr__(self) -> str:
        lines = [f"Domain {self.name} with {len(self)} datasets, {self.n_obs} cells"]
        return "\n".join(lines + [f"    {each.name}: {each.n_obs} × {each.n_vars}" for each in self.datasets])
