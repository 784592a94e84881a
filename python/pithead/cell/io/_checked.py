"""A writer that takes counts only, and names the cell and the gene of a value that is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ._source import Pieces, check_counts

__all__ = ["Checked"]


class Checked:
    """Looks at every value before the writer gets it. `read_mtx` is checked by the writer, which sees the file's lines."""

    def __init__(self, writer: Pieces, label: str, cells: pd.Index, genes: pd.Index) -> None:
        self._writer = writer
        self._label = label
        self._cells = cells
        self._genes = genes
        self._start = 0

    def push_csr(self, indptr: Any, indices: Any, data: Any) -> None:
        rows = self._start + np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        check_counts(self._label, self._cells, self._genes, rows, indices, data)
        self._start += len(indptr) - 1
        self._writer.push_csr(indptr, indices, data)

    def push_csc(self, indptr: Any, indices: Any, data: Any, n_cells: int) -> None:
        columns = self._start + np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        check_counts(self._label, self._cells, self._genes, indices, columns, data)
        self._start += len(indptr) - 1
        self._writer.push_csc(indptr, indices, data, n_cells)

    def push_dense(self, block: Any) -> None:
        rows, columns = np.indices(block.shape, sparse=True)
        cell, gene = np.broadcast_arrays(rows + self._start, columns)
        check_counts(self._label, self._cells, self._genes, cell.ravel(), gene.ravel(), block.ravel())
        self._start += len(block)
        self._writer.push_dense(block)

    def read_mtx(self, path: str, n_cells: int, cells_are_rows: bool = False, progress: Any = None) -> None:
        self._writer.read_mtx(path, n_cells, cells_are_rows, progress)
