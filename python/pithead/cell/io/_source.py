"""What a reader hands to a load: tables of cells and genes, and matrices that can be written piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd

from pithead import UserError

__all__ = ["NONZEROS_MAX", "MatrixSource", "Pieces", "Progress", "Source", "as_numbers", "check_counts", "csr_pieces", "row_blocks"]

NONZEROS_MAX = 8_000_000
"""Values that are held at one time at most, unless a single row has more."""

COUNT_MAX = 2**24
"""Up to here, whole numbers are floats of 32 bits."""

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how much of it is done, and how much there is."""


class Pieces(Protocol):
    """What a matrix is written to: the compiled `MatrixWriter`."""

    def push_csr(self, indptr: Any, indices: Any, data: Any) -> None: ...
    def push_csc(self, indptr: Any, indices: Any, data: Any, n_cells: int) -> None: ...
    def push_dense(self, block: Any) -> None: ...
    def read_mtx(self, path: str, n_cells: int, cells_are_rows: bool = False, progress: Any = None) -> None: ...


@dataclass
class MatrixSource:
    """A matrix that is not in memory: its shape, and `write(writer, told)`, which pushes it piece by piece.

    `told(done, total)` is called after each piece. `label` names file and place in errors.
    """

    label: str
    n_cells: int
    n_genes: int
    write: Callable[[Pieces, Callable[[int, int], None]], None]


@dataclass
class Source:
    """A dataset that can be loaded: tables in memory, matrices where they are. `close` lets files go."""

    label: str
    obs: pd.DataFrame
    var: pd.DataFrame
    x: MatrixSource
    layers: dict[str, MatrixSource] = field(default_factory=dict)
    raw: tuple[MatrixSource, pd.DataFrame] | None = None
    uns: dict[str, Any] = field(default_factory=dict)
    obsm: dict[str, np.ndarray] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    """What of the source cannot be kept, such as `obsp['distances']`."""
    closers: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Closes files, and removes what was unpacked."""
        while self.closers:
            self.closers.pop()()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        parts = [f"layers: {', '.join(self.layers)}"] if self.layers else []
        parts += ["raw"] if self.raw else []
        return f"Source {self.label}: {len(self.obs)} cells × {len(self.var)} genes" + "".join(f", {part}" for part in parts)


def row_blocks(indptr: np.ndarray, nonzeros_max: int | None = None) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose values together are at most `nonzeros_max`; a row that has more is a range alone.

    >>> import numpy as np
    >>> list(row_blocks(np.array([0, 3, 4, 9, 9]), 4))
    [(0, 2), (2, 3), (3, 4)]
    """
    nonzeros_max = NONZEROS_MAX if nonzeros_max is None else nonzeros_max
    rows = len(indptr) - 1
    start = 0
    while start < rows:
        end = int(np.searchsorted(indptr, indptr[start] + nonzeros_max, side="right")) - 1
        end = min(max(end, start + 1), rows)
        yield start, end
        start = end


def check_indptr(indptr: np.ndarray, rows: int, values: int, label: str) -> np.ndarray:
    """`indptr` as 64-bit numbers; raises unless it is that of a whole compressed matrix."""
    if indptr.ndim != 1 or len(indptr) != rows + 1:
        raise UserError(
            f"{label}: indptr has {indptr.size} values for {rows} rows",
            hint="the file is damaged or its shape is wrong; make it again",
        )
    indptr = indptr.astype(np.int64)
    if rows and ((np.diff(indptr) < 0).any() or indptr[0] < 0) or indptr[-1] > values:
        raise UserError(
            f"{label}: indptr asks for values up to {int(indptr.max())} and there are {values}, or it goes back",
            hint="the file is damaged or was cut off; make it again, or copy it again",
        )
    return indptr


def check_indices(indices: np.ndarray, columns: int, label: str) -> None:
    """Raises if an index lies outside of the matrix."""
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= columns):
        wrong = int(indices.min()) if int(indices.min()) < 0 else int(indices.max())
        raise UserError(
            f"{label}: column {wrong} of a matrix with {columns} columns", hint="the file is damaged; make it again"
        )


def csr_pieces(
    label: str, indptr: np.ndarray, indices: Any, data: Any, columns: int, told: Callable[[int, int], None]
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Blocks of rows of a compressed matrix of arrays or HDF5 datasets: first row, indptr, indices, data."""
    indptr = check_indptr(indptr, len(indptr) - 1, min(len(indices), len(data)), label)
    end_of_all = int(indptr[-1])
    # A matrix without rows is one block without rows, so that the writer learns the other length.
    for start, end in row_blocks(indptr) if len(indptr) > 1 else [(0, 0)]:
        low, high = int(indptr[start]), int(indptr[end])
        try:
            block, values = np.ascontiguousarray(indices[low:high]), np.ascontiguousarray(data[low:high])
        except OSError as fault:
            raise UserError(
                f"{label}: values {low} to {high} cannot be read: {fault}",
                hint="the file is damaged or cut off; copy it again",
            ) from fault
        check_indices(block, columns, label)
        if block.dtype not in (np.int32, np.int64) or not block.dtype.isnative:
            block = block.astype(np.int64)
        yield start, indptr[start : end + 1] - low, block, as_numbers(values, label)
        told(high, end_of_all)


def as_numbers(values: Any, label: str) -> Any:
    """An array or a sparse matrix of a type that the writer takes, and in this machine's order of bytes.

    Truth values are zeros and ones, and floats have 32 or 64 bits.
    """
    dtype = values.dtype
    if dtype.kind not in "biuf":
        raise UserError(
            f"{label} holds values of the type {dtype}, not numbers",
            hint="make them whole numbers or floats, then load again",
        )
    if dtype.kind == "b" or dtype.kind == "f" and dtype.itemsize < 4:
        return values.astype(np.float32)
    if dtype.kind == "f" and dtype.itemsize > 8:
        return values.astype(np.float64)
    return values if dtype.isnative else values.astype(dtype.newbyteorder("="))


def check_counts(label: str, cells: pd.Index, genes: pd.Index, cell: np.ndarray, gene: np.ndarray, data: np.ndarray) -> None:
    """Raises at the first value that is no count, and names its cell and gene.

    `cell` and `gene` are positions, one for each value of `data`.
    """
    if data.dtype.kind == "b":
        return
    wrong = data < 0 if data.dtype.kind == "i" else ~((data >= 0) & (data == np.floor(data)) & np.isfinite(data))
    if not wrong.any() and (large := data > COUNT_MAX).any():
        at = int(np.flatnonzero(large)[0])
        raise UserError(
            f"{label}: {data[at]} at cell {cells[int(cell[at])]!r} and gene {genes[int(gene[at])]!r} is more than {COUNT_MAX}, the"
            " largest count that is kept with all its digits",
            hint="kind='floats' keeps the nearest value of 32 bits (--kind floats)",
        )
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise UserError(
            f"{label}: {data[at]} at cell {cells[int(cell[at])]!r} (row {int(cell[at]) + 1}) and gene {genes[int(gene[at])]!r}"
            f" (column {int(gene[at]) + 1}) is no count",
            hint="kind='floats' keeps values of any kind (--kind floats); kind='auto' decides by what there is",
        )
