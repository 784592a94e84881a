"""MatrixMarket files with their files of rows and columns."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, cast

import numpy as np
import pandas as pd

from pithead import UserError

from ._source import MatrixSource, Pieces

__all__ = ["existing", "keep_rows", "mtx_matrix", "mtx_shape", "read_lines"]

_LINES = 2_000_000


def _open(path: str) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.endswith(".gz") else open(path, "rb")


def existing(folder: str, names: list[str]) -> str:
    """The first of these files that is in the folder, as it is or with .gz."""
    if not os.path.isdir(folder):
        raise UserError(f"there is no folder {folder}", hint="check the path; relative ones start at the working directory")
    for name in names:
        for path in (os.path.join(folder, name), os.path.join(folder, name + ".gz")):
            if os.path.exists(path):
                return path
    there = ", ".join(sorted(os.listdir(folder))[:8]) or "nothing"
    raise UserError(
        f"{folder} has no {' or '.join(names)}, with or without .gz; it has: {there}",
        hint="prefix='…' says what file names begin with",
    )


def read_lines(path: str) -> list[str]:
    """The lines of a text file, perhaps of a .gz, without line ends and without empty lines at the end."""
    try:
        with _open(path) as file:
            text = file.read().decode()
    except (OSError, EOFError, UnicodeDecodeError) as fault:
        raise UserError(
            f"{path} cannot be read: {fault}", hint="the file is damaged or was cut off; copy it again"
        ) from fault
    return text.rstrip("\r\n").splitlines() if text.strip() else []


def mtx_shape(path: str) -> tuple[int, int, int]:
    """Rows, columns and entries that the head of a MatrixMarket file promises."""
    try:
        with _open(path) as file:
            first = file.readline()
            if not first.startswith(b"%%MatrixMarket matrix coordinate"):
                raise UserError(
                    f"{path} does not begin with '%%MatrixMarket matrix coordinate'",
                    hint="it is another kind of file, or its first line is lost",
                )
            line = file.readline()
            while line.startswith(b"%") or (line and not line.strip()):
                line = file.readline()
    except (OSError, EOFError) as fault:
        raise UserError(
            f"{path} cannot be read: {fault}", hint="the file is damaged or was cut off; copy it again"
        ) from fault
    numbers = line.split()
    if len(numbers) != 3 or not all(each.isdigit() for each in numbers):
        raise UserError(
            f"{path}: {line.decode(errors='replace').strip()!r} is not rows, columns and entries", hint="the file is damaged"
        )
    rows, columns, entries = (int(each) for each in numbers)
    return rows, columns, entries


def mtx_matrix(
    path: str, n_cells: int, n_genes: int, files: tuple[str, str], keep: np.ndarray | None, spill_dir: str | None
) -> tuple[MatrixSource, Callable[[], None]]:
    """The matrix in a MatrixMarket file, genes × cells or the other way, and what removes what it leaves.

    `files` say where the numbers of cells and genes come from. `keep` says which genes to take.
    """
    rows, columns, _ = mtx_shape(path)
    if (rows, columns) == (n_genes, n_cells):
        cells_are_rows = False
    elif (rows, columns) == (n_cells, n_genes):
        cells_are_rows = True
    else:
        raise UserError(
            f"{path} is a matrix of {rows} × {columns}, but {files[0]} and {files[1]}",
            hint="these files do not belong together, or one of them is cut off; get all of them again",
        )
    scratch: list[str] = []

    def write(writer: Pieces, told: Callable[[int, int], None]) -> None:
        whole = path
        if keep is not None:
            scratch.append(tempfile.mkdtemp(prefix="pithead-mtx-", dir=spill_dir))
            whole = os.path.join(scratch[-1], "matrix.mtx")
            keep_rows(path, keep, whole, cells_are_rows)
        writer.read_mtx(whole, n_cells, cells_are_rows, told)

    def close() -> None:
        while scratch:
            shutil.rmtree(scratch.pop(), ignore_errors=True)

    return MatrixSource(path, n_cells, n_genes if keep is None else int(keep.sum()), write), close


def keep_rows(path: str, keep: np.ndarray, to: str, columns: bool = False) -> int:
    """Writes a MatrixMarket file with some rows (or columns) of another one, numbered anew; returns its number of entries."""
    rows, cols, promised = mtx_shape(path)
    place = np.cumsum(keep)
    which = "column" if columns else "row"
    count = int(keep.sum())
    shape = f"{rows} {count}" if columns else f"{count} {cols}"
    entries = seen = 0
    with open(to, "w", newline="\n") as out:
        # The number of entries is known at the end; room is left for it.
        head = "%%MatrixMarket matrix coordinate real general\n{} {:<20}\n"
        out.write(head.format(shape, 0))
        for chunk in _entries(path):
            seen += len(chunk)
            at = chunk[which].to_numpy()
            if len(at) and (at.min() < 1 or at.max() > len(keep)):
                wrong = at.min() if at.min() < 1 else at.max()
                raise UserError(
                    f"{path}: an entry at {which} {wrong} of {len(keep)}", hint="the file is damaged; copy it again"
                )
            chunk = chunk[keep[at - 1]]
            chunk = chunk.assign(**{which: place[chunk[which].to_numpy() - 1]})
            chunk.to_csv(out, sep=" ", header=False, index=False)
            entries += len(chunk)
        if seen != promised:
            raise UserError(
                f"{path} has {seen} entries where its head says {promised}", hint="the file was cut off; copy it again"
            )
        out.seek(0)
        out.write(head.format(shape, entries))
    return entries


def _entries(path: str) -> Iterator[pd.DataFrame]:
    """The entries as chunks of a table of row, column and value."""
    head = 0
    with _open(path) as file:
        for line in file:
            head += 1
            if not line.startswith(b"%") and line.strip():
                break
    types = {"row": np.int64, "column": np.int64, "value": np.float64}
    try:
        yield from pd.read_csv(
            path, sep=r"\s+", header=None, skiprows=head, chunksize=_LINES, dtype=types, names=list(types)
        )
    except (OSError, EOFError, ValueError) as fault:
        raise UserError(
            f"{path} cannot be read: {fault}", hint="the file is damaged or was cut off; copy it again"
        ) from fault
