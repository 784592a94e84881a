"""Downloads of EBI's Single Cell Expression Atlas: NAME.mtx, .mtx_rows, .mtx_cols, and ExpDesign-NAME.tsv, perhaps in a zip."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable

import numpy as np
import pandas as pd

from pithead import UserError

from ._mtx import mtx_matrix, read_lines
from ._source import Source

__all__ = ["read_scea"]


def read_scea(path: str | os.PathLike[str], *, matrix: str | None = None, spill_dir: str | None = None) -> Source:
    """Opens a folder or a zip of an experiment of the atlas. Its experiment design becomes columns of `obs`.

    Parameters
    ----------
    matrix
        Part of the name of the .mtx to take, where there are several. By default the one of filtered counts.
    spill_dir
        Where a zip is unpacked to until the source is closed.
    """
    path = os.fspath(path)
    closers: list[Callable[[], None]] = []
    try:
        folder = _unpacked(path, spill_dir, closers) if os.path.isfile(path) else path
        source = _read(path, folder, matrix)
    except BaseException:
        for close in closers:
            close()
        raise
    source.closers += closers
    return source


def _unpacked(path: str, spill_dir: str | None, closers: list[Callable[[], None]]) -> str:
    folder = tempfile.mkdtemp(prefix="pithead-scea-", dir=spill_dir)
    closers.append(lambda: shutil.rmtree(folder, ignore_errors=True))
    try:
        with zipfile.ZipFile(path) as archive:
            for item in archive.infolist():
                name = os.path.basename(item.filename)
                # Names inside a zip could lead anywhere; only their last part is used.
                if name and not item.is_dir():
                    with archive.open(item) as source, open(os.path.join(folder, name), "wb") as target:
                        shutil.copyfileobj(source, target, 1 << 20)
    except (zipfile.BadZipFile, OSError, EOFError) as fault:
        raise UserError(
            f"{path} is no zip that can be read: {fault}", hint="the file is damaged or was cut off; get it again"
        ) from fault
    return folder


def _read(path: str, folder: str, matrix: str | None) -> Source:
    if not os.path.isdir(folder):
        raise UserError(
            f"there is no file or folder {path}", hint="check the path; relative ones start at the working directory"
        )
    found = sorted(
        glob.glob(os.path.join(glob.escape(folder), "*.mtx")) + glob.glob(os.path.join(glob.escape(folder), "*.mtx.gz"))
    )
    chosen = _chosen(found, matrix, path)
    stem = chosen.removesuffix(".gz")
    genes_file, cells_file = _beside(stem + "_rows"), _beside(stem + "_cols")
    genes = [line.split("\t")[0] for line in read_lines(genes_file)]
    cells = [line.split("\t")[0] for line in read_lines(cells_file)]
    files = (f"{cells_file} has {len(cells)} cells", f"{genes_file} has {len(genes)} genes")
    x, close = mtx_matrix(chosen, len(cells), len(genes), files, None, None)
    obs = _design(folder, pd.Index(cells))
    source = Source(path, obs, pd.DataFrame(index=pd.Index(genes)), x)
    source.closers.append(close)
    return source


def _chosen(found: list[str], matrix: str | None, path: str) -> str:
    names = [os.path.basename(each) for each in found]
    if not found:
        raise UserError(f"{path} has no .mtx", hint="get 'Filtered counts (MatrixMarket)' from the experiment's Downloads")
    wanted = [each for each, name in zip(found, names, strict=True) if matrix is None or matrix in name]
    if matrix is None and len(wanted) > 1:
        wanted = [each for each in wanted if "filtered_counts" in os.path.basename(each)]
    if len(wanted) != 1:
        raise UserError(
            f"{path}: which matrix? There are: {', '.join(names)}", hint="matrix='…' is part of the name of one of them"
        )
    return wanted[0]


def _beside(path: str) -> str:
    for each in (path, path + ".gz"):
        if os.path.exists(each):
            return each
    raise UserError(
        f"there is no {path}, which says what the matrix's rows or columns are", hint="get it too; the zip has all three"
    )


def _design(folder: str, cells: pd.Index) -> pd.DataFrame:
    """The experiment design's rows of these cells."""
    files = sorted(
        glob.glob(os.path.join(glob.escape(folder), "ExpDesign-*.tsv"))
        + glob.glob(os.path.join(glob.escape(folder), "ExpDesign-*.txt"))
    )
    if not files:
        return pd.DataFrame(index=cells)
    try:
        table = pd.read_csv(files[0], sep="\t", dtype=str)
    except (ValueError, OSError) as fault:
        raise UserError(
            f"{files[0]} cannot be read: {fault}", hint="the file is damaged or was cut off; get it again"
        ) from fault
    ids = pd.Index(table.iloc[:, 0])
    if not ids.is_unique:
        again = int(np.flatnonzero(ids.duplicated())[0])
        first = int(np.flatnonzero(ids == ids[again])[0])
        raise UserError(
            f"{files[0]}: assay {ids[again]!r} is in line {first + 2} and again in line {again + 2}",
            hint="leave one of them",
        )
    places = ids.get_indexer(cells)
    if len(cells) and (places < 0).all():
        raise UserError(
            f"{files[0]} describes none of the matrix's cells: its first is {str(ids[0]) if len(ids) else 'none'!r},"
            f" the matrix's {str(cells[0])!r}",
            hint="the design is of another experiment; get the one that belongs to the matrix, or remove it",
        )
    if (places < 0).any():
        warnings.warn(
            f"{files[0]} has no line for {int((places < 0).sum())} of {len(cells)} cells; they have no values", stacklevel=5
        )
    design = table.iloc[:, 1:].copy()
    design.index = ids
    design = design.reindex(cells)
    for name in design.columns:
        numbers = pd.to_numeric(design[name], errors="coerce")
        if numbers.notna().sum() == design[name].notna().sum() and numbers.notna().any():
            design[name] = numbers
        else:
            design[name] = pd.Categorical(design[name])
    design.index.name = None
    return design
