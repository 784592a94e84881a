"""AnnData: h5ad files, read block by block through h5py, and objects in memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import pandas as pd
from scipy import sparse

from pithead import UserError

from .._parts import OBSM_COLUMNS_MAX
from ._source import NONZEROS_MAX, MatrixSource, Pieces, Source, as_numbers, csr_pieces

__all__ = ["open_hdf5", "read_anndata", "read_h5ad"]

_CUT_OFF = "the file is damaged or was cut off; copy it again and compare its size or checksum with the source's"


def open_hdf5(path: str | os.PathLike[str]) -> h5py.File:
    """Opens an HDF5 file for reading; says of one that is none, or not whole, what is wrong."""
    path = os.fspath(path)
    if not os.path.exists(path):
        raise UserError(f"there is no file {path}", hint="check the path; relative ones start at the working directory")
    try:
        return h5py.File(path, "r")
    except OSError as fault:
        if "truncated" in str(fault):
            raise UserError(f"{path} is cut off: {fault}", hint=_CUT_OFF) from fault
        raise UserError(f"{path} is no HDF5 file that can be read: {fault}", hint=_CUT_OFF) from fault


def read_h5ad(path: str | os.PathLike[str]) -> Source:
    """Opens an h5ad file. Tables are read now; X, raw and layers when they are loaded, in blocks.

    Raises UserError for files that are cut off, miss a part, or disagree with themselves.
    """
    path = os.fspath(path)
    file = open_hdf5(path)
    try:
        with warnings.catch_warnings():
            # That a file is of an older format is no concern of who loads it.
            warnings.simplefilter("ignore")
            source = _read(path, file)
    except (OSError, KeyError, RuntimeError) as fault:
        file.close()
        raise UserError(f"{path} cannot be read as h5ad: {fault}", hint=_CUT_OFF) from fault
    except BaseException:
        file.close()
        raise
    source.closers.append(file.close)
    return source


def _read(path: str, file: h5py.File) -> Source:
    from anndata.io import read_elem

    for part in ("obs", "var"):
        if part not in file:
            raise UserError(f"{path} has no {part}: it is no h5ad", hint="files of 10x Genomics are read by read_10x_h5")
    if "X" not in file:
        raise UserError(
            f"{path} has no X", hint="put a layer there first: adata.X = adata.layers['counts']; adata.write_h5ad(…)"
        )
    if isinstance(file["obs"], h5py.Dataset) or "raw.X" in file:
        tables = _legacy(path)
    else:
        tables = {part: read_elem(file[part]) for part in ("obs", "var", "uns", "obsm") if part in file}
        if "raw" in file:
            tables["raw.var"] = read_elem(file["raw/var"])
    obs, var = tables["obs"], tables["var"]
    source = Source(path, obs, var, _h5_matrix(file["X"], f"{path}: X", len(obs), len(var)))
    source.uns = dict(tables.get("uns", {}))
    for name, group in file.get("layers", {}).items():
        source.layers[name] = _h5_matrix(group, f"{path}: layers/{name}", len(obs), len(var))
    if "raw.var" in tables:
        raw_var = tables["raw.var"]
        group = file["raw.X"] if "raw.X" in file else file["raw/X"]
        source.raw = (_h5_matrix(group, f"{path}: raw/X", len(obs), len(raw_var)), raw_var)
    _take_obsm(source, dict(tables.get("obsm", {})))
    source.dropped += [f"{part}[{name!r}]" for part in ("varm", "obsp", "varp") for name in file.get(part, {})]
    return source


def _legacy(path: str) -> dict[str, Any]:
    """Tables of files older than anndata 0.7, which keep records where newer ones keep groups."""
    import anndata

    old = anndata.read_h5ad(path, backed="r")
    tables = {"obs": old.obs, "var": old.var, "uns": dict(old.uns), "obsm": dict(old.obsm)}
    if old.raw is not None:
        tables["raw.var"] = old.raw.var
    old.file.close()
    return tables


def _take_obsm(source: Source, obsm: dict[str, Any]) -> None:
    for name, values in obsm.items():
        if isinstance(values, pd.DataFrame):
            values = values.to_numpy()
        numeric = isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in "iuf"
        if numeric and values.shape[1] <= OBSM_COLUMNS_MAX:
            source.obsm[name] = values
        else:
            source.dropped.append(f"obsm[{name!r}]")


def _h5_matrix(item: Any, label: str, n_cells: int, n_genes: int) -> MatrixSource:
    if isinstance(item, h5py.Dataset):
        encoding, shape = "array", item.shape
    else:
        encoding = item.attrs.get("encoding-type") or f"{item.attrs.get('h5sparse_format', '')}_matrix"
        shape = tuple(int(each) for each in item.attrs.get("shape", item.attrs.get("h5sparse_shape", ())))
    if encoding not in ("array", "csr_matrix", "csc_matrix"):
        raise UserError(
            f"{label} is stored as {encoding}, which is not known", hint="read it with anndata and write it again"
        )
    if tuple(shape) != (n_cells, n_genes):
        raise UserError(
            f"{label} is {' × '.join(map(str, shape))}; its tables have {n_cells} cells and {n_genes} genes",
            hint="the parts of the file do not belong together; write it again with anndata",
        )

    def write(writer: Pieces, told: Callable[[int, int], None]) -> None:
        if encoding == "array":
            _write_dense(item, label, writer, told)
            return
        rows, columns = (n_cells, n_genes) if encoding == "csr_matrix" else (n_genes, n_cells)
        for piece in csr_pieces(label, _whole(item["indptr"], rows, label), item["indices"], item["data"], columns, told):
            if encoding == "csr_matrix":
                writer.push_csr(*piece[1:])
            else:
                writer.push_csc(*piece[1:], n_cells)

    return MatrixSource(label, n_cells, n_genes, write)


def _whole(indptr: Any, rows: int, label: str) -> np.ndarray:
    if indptr.shape != (rows + 1,):
        raise UserError(f"{label}: indptr has {indptr.size} values for {rows} rows", hint=_CUT_OFF)
    return np.asarray(indptr[:])


def _write_dense(values: Any, label: str, writer: Pieces, told: Callable[[int, int], None]) -> None:
    rows, columns = values.shape
    if columns == 0:
        # Rows without values cannot be told apart as dense ones.
        writer.push_csr(np.zeros(rows + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
        return
    step = max(NONZEROS_MAX // max(columns, 1), 1)
    for start in range(0, max(rows, 1), step):
        end = min(start + step, rows)
        try:
            block = np.ascontiguousarray(values[start:end])
        except OSError as fault:
            raise UserError(f"{label}: rows {start} to {end} cannot be read: {fault}", hint=_CUT_OFF) from fault
        writer.push_dense(as_numbers(block, label))
        told(end, rows)


def read_anndata(adata: Any) -> Source:
    """An AnnData in memory, or one that is backed by a file, as a source. Nothing is copied but one block at a time."""
    label = "AnnData" if not adata.isbacked else f"AnnData of {adata.filename}"
    if adata.X is None:
        raise UserError(f"the {label} has no X", hint="put a layer there first: adata.X = adata.layers['counts']")
    obs, var = adata.obs, adata.var
    source = Source(label, obs, var, _memory_matrix(adata.X, f"{label}: X", len(obs), len(var)))
    source.uns = dict(adata.uns)
    for name, layer in adata.layers.items():
        source.layers[name] = _memory_matrix(layer, f"{label}: layers[{name!r}]", len(obs), len(var))
    if adata.raw is not None:
        source.raw = (_memory_matrix(adata.raw.X, f"{label}: raw.X", len(obs), len(adata.raw.var)), adata.raw.var)
    _take_obsm(source, dict(adata.obsm))
    source.dropped += [f"{part}[{name!r}]" for part in ("varm", "obsp", "varp") for name in getattr(adata, part)]
    return source


def _memory_matrix(values: Any, label: str, n_cells: int, n_genes: int) -> MatrixSource:
    known = isinstance(values, np.ndarray | h5py.Dataset) or sparse.issparse(values) or hasattr(values, "to_memory")
    if not known:
        raise UserError(
            f"{label} is a {type(values).__name__}, which cannot be read", hint="make it an array or a scipy.sparse matrix"
        )

    def write(writer: Pieces, told: Callable[[int, int], None]) -> None:
        if isinstance(values, np.ndarray | h5py.Dataset):
            _write_dense(np.asarray(values) if isinstance(values, np.matrix) else values, label, writer, told)
        elif sparse.issparse(values):
            by_genes = values.format == "csc"
            matrix = values if by_genes else values.tocsr()
            for piece in csr_pieces(
                label, matrix.indptr, matrix.indices, matrix.data, n_cells if by_genes else n_genes, told
            ):
                if by_genes:
                    writer.push_csc(*piece[1:], n_cells)
                else:
                    writer.push_csr(*piece[1:])
        else:
            _write_backed(values, label, n_cells, n_genes, writer, told)

    return MatrixSource(label, n_cells, n_genes, write)


def _write_backed(
    values: Any, label: str, n_cells: int, n_genes: int, writer: Pieces, told: Callable[[int, int], None]
) -> None:
    """A sparse matrix of an AnnData that is backed by a file: slices of it come as scipy's matrices."""
    by_genes = values.format == "csc"
    length = n_genes if by_genes else n_cells
    step = max(int(NONZEROS_MAX / max(values.group["data"].shape[0] / max(length, 1), 1)), 1)
    for start in range(0, max(length, 1), step):
        end = min(start + step, length)
        block = as_numbers(values[:, start:end] if by_genes else values[start:end], label)
        if by_genes:
            writer.push_csc(block.indptr, block.indices, block.data, n_cells)
        else:
            writer.push_csr(block.indptr, block.indices, block.data)
        told(end, length)
