"""Parts of a dataset of cells: its matrices and what is done to their values, raw, and arrays with a row a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from . import _native

if TYPE_CHECKING:
    from ._dataset import Selection

__all__ = ["OBSM_COLUMNS_MAX", "Matrix", "Obsm", "Raw", "Transform"]

OBSM_COLUMNS_MAX = 4096
"""Columns that an array with a row a cell has at most. Each is a column of a table."""


@dataclass(frozen=True)
class Transform:
    """What is done to stored values on the fly: `value * target_sum / totals`, then `log1p`, by the logarithm of `base`.

    `totals` are those of a view whose own sums count, one for each cell of the dataset; None: those kept with the matrix.
    """

    target_sum: float | None = None
    log1p: bool = False
    base: float | None = None
    totals: np.ndarray | None = None


@dataclass(frozen=True)
class Matrix:
    """One of a dataset's matrices: X, raw or a layer. `key` is "X", "raw" or "layers.NAME"; `table` its full name."""

    key: str
    table: str
    kind: str
    genes: np.ndarray | None
    """Positions of the genes that a view selects; None: all."""
    var: pd.DataFrame
    """The selected genes."""


class Raw:
    """What is known of a raw matrix: its genes, which are others than those of X."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self.var = selection._root._var_frame("raw.var").copy()
        self.var_names = self.var.index
        self.n_vars = len(self.var)
        self.shape = (selection.n_obs, self.n_vars)

    def __repr__(self) -> str:
        return f"Raw of {self._selection.name} with n_obs × n_vars = {self.shape[0]} × {self.n_vars}"


class Obsm(Mapping[str, np.ndarray]):
    """Arrays with a row a cell, each read when it is asked for."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._tables: dict[str, str] = selection._root._obs_note()["obsm"]

    def __getitem__(self, key: str) -> np.ndarray:
        table = self._selection.conn.sql(f"SELECT * FROM {_native.quoted(self._tables[key])}").arrow()
        order = np.argsort(table.column("cell").to_numpy())
        names = sorted((name for name in table.column_names if name != "cell"), key=lambda name: int(name[1:]))
        columns = [table.column(name).to_numpy()[order] for name in names]
        values = np.stack(columns, axis=1) if columns else np.zeros((len(order), 0), dtype=np.float32)
        return values if self._selection._cells is None else values[self._selection._cells]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return "obsm: " + (", ".join(self._tables) or "empty")
