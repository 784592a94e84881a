"""What 10x Genomics' Cell Ranger writes: folders with matrix.mtx, and HDF5 files of both versions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from pithead import UserError

from ._h5ad import open_hdf5
from ._mtx import existing, mtx_matrix, read_lines
from ._source import MatrixSource, Pieces, Source, csr_pieces

__all__ = ["read_10x_h5", "read_10x_mtx"]

_EXPRESSION = "Gene Expression"


def read_10x_mtx(
    path: str | os.PathLike[str],
    *,
    var_names: str = "gene_ids",
    gex_only: bool = True,
    prefix: str = "",
    spill_dir: str | None = None,
) -> Source:
    """Opens a folder with matrix.mtx, features.tsv or genes.tsv, and barcodes.tsv, each perhaps with .gz.

    Parameters
    ----------
    var_names
        What identifies a gene: "gene_ids", which are unique and match across datasets, or "gene_symbols", as scanpy's
        default. The other one is a column of `var`.
    gex_only
        Take features of the type "Gene Expression" only, as scanpy does.
    prefix
        What all file names begin with.
    spill_dir
        Where a matrix without its other features is written for a while, if there are any.
    """
    folder = os.fspath(path)
    matrix = existing(folder, [prefix + "matrix.mtx"])
    features = existing(folder, [prefix + "features.tsv", prefix + "genes.tsv"])
    barcodes = existing(folder, [prefix + "barcodes.tsv"])
    rows = [line.split("\t") for line in read_lines(features)]
    for number, row in enumerate(rows, 1):
        if len(row) < 1 or not row[0]:
            raise UserError(
                f"{features}, line {number}: no gene id",
                hint="each line is an id, a name, and perhaps a type, with tabs between",
            )
    table = pd.DataFrame(
        {"gene_ids": [row[0] for row in rows], "gene_symbols": [row[1] if len(row) > 1 else row[0] for row in rows]}
    )
    if any(len(row) > 2 for row in rows):
        table["feature_types"] = [row[2] if len(row) > 2 else _EXPRESSION for row in rows]
    obs = pd.DataFrame(index=pd.Index([line.split("\t")[0] for line in read_lines(barcodes)]))
    keep = _kept(table, gex_only, features)
    source_files = (f"{barcodes} has {len(obs)} cells", f"{features} has {len(table)} genes")
    x, closer = mtx_matrix(matrix, len(obs), len(table), source_files, keep, spill_dir)
    var = _indexed(table if keep is None else table[keep], var_names)
    source = Source(folder, obs, var, x)
    source.closers.append(closer)
    return source


def _kept(table: pd.DataFrame, gex_only: bool, where: str) -> np.ndarray | None:
    """Which features to take; None: all of them."""
    if not gex_only or "feature_types" not in table:
        return None
    keep = (table["feature_types"] == _EXPRESSION).to_numpy()
    if keep.all():
        return None
    if not keep.any():
        kinds = ", ".join(sorted(set(table["feature_types"])))
        raise UserError(
            f"{where} has no feature of the type {_EXPRESSION!r}; its types are: {kinds}",
            hint="gex_only=False takes all features",
        )
    return np.asarray(keep)


def _indexed(table: pd.DataFrame, var_names: str) -> pd.DataFrame:
    if var_names not in ("gene_ids", "gene_symbols"):
        raise UserError(f"var_names={var_names!r}", hint="it is 'gene_ids' or 'gene_symbols'")
    frame = table.set_index(var_names)
    frame.index.name = None
    if "feature_types" in frame:
        frame["feature_types"] = pd.Categorical(frame["feature_types"])
    return frame


def read_10x_h5(
    path: str | os.PathLike[str], *, genome: str | None = None, var_names: str = "gene_ids", gex_only: bool = True
) -> Source:
    """Opens an HDF5 file of Cell Ranger, version 2 (a group a genome) or 3 (the group `matrix`).

    `genome` says which one to take where there are several. The others are as in `read_10x_mtx`.
    """
    path = os.fspath(path)
    file = open_hdf5(path)
    try:
        group = file["matrix"] if "matrix" in file else _genome_group(file, genome, path)
        missing = [part for part in ("barcodes", "data", "indices", "indptr", "shape") if part not in group]
        if missing:
            raise UserError(
                f"{path}: {group.name} has no {', '.join(missing)}",
                hint="is it of Cell Ranger? h5ad files are read by read_h5ad",
            )
        table = _h5_features(group)
        keep = _kept(table, gex_only, path)
        if "genome" in table and genome is not None:
            of_genome = (table["genome"] == genome).to_numpy()
            if not of_genome.any():
                raise UserError(
                    f"{path} has no genome {genome!r}; it has: {', '.join(sorted(set(table['genome'])))}",
                    hint="give one of them",
                )
            keep = of_genome if keep is None else keep & of_genome
        obs = pd.DataFrame(index=pd.Index(_texts(group["barcodes"])))
        x = _h5_matrix(group, path, len(obs), len(table), keep)
    except (OSError, KeyError) as fault:
        file.close()
        raise UserError(
            f"{path} cannot be read: {fault}", hint="the file is damaged or was cut off; copy it again"
        ) from fault
    except BaseException:
        file.close()
        raise
    source = Source(path, obs, _indexed(table if keep is None else table[keep], var_names), x)
    source.closers.append(file.close)
    return source


def _genome_group(file: Any, genome: str | None, path: str) -> Any:
    genomes = [name for name in file if "barcodes" in file[name]]
    if genome is None and len(genomes) == 1:
        genome = genomes[0]
    if genome not in genomes:
        there = ", ".join(genomes) or "none: it is no file of Cell Ranger"
        raise UserError(f"{path}: which genome? There are: {there}", hint="genome='…' says which (--genome)")
    return file[genome]


def _texts(values: Any) -> list[str]:
    return [each.decode() if isinstance(each, bytes) else str(each) for each in values[:]]


def _h5_features(group: Any) -> pd.DataFrame:
    if "features" not in group:
        return pd.DataFrame({"gene_ids": _texts(group["genes"]), "gene_symbols": _texts(group["gene_names"])})
    features = group["features"]
    table = pd.DataFrame({"gene_ids": _texts(features["id"]), "gene_symbols": _texts(features["name"])})
    if "feature_type" in features:
        table["feature_types"] = _texts(features["feature_type"])
    if "genome" in features:
        table["genome"] = _texts(features["genome"])
    return table


def _h5_matrix(group: Any, path: str, n_cells: int, n_genes: int, keep: np.ndarray | None) -> MatrixSource:
    shape = tuple(int(each) for each in group["shape"][:])
    if shape != (n_genes, n_cells):
        raise UserError(
            f"{path}: the matrix is {shape[0]} genes × {shape[1]} cells; there are {n_genes} features and {n_cells} barcodes",
            hint="the file is damaged; make it again",
        )
    # The file holds genes × cells by columns, which are cells × genes by rows.
    place = None if keep is None else np.cumsum(keep) - 1

    def write(writer: Pieces, told: Callable[[int, int], None]) -> None:
        for _, indptr, indices, data in csr_pieces(path, group["indptr"][:], group["indices"], group["data"], n_genes, told):
            if keep is not None and place is not None:
                kept = keep[indices]
                indptr = np.concatenate([[0], np.cumsum(kept)])[indptr]
                indices, data = place[indices[kept]], data[kept]
            writer.push_csr(indptr.astype(np.int64), indices.astype(np.int64), data)

    return MatrixSource(path, n_cells, n_genes if keep is None else int(keep.sum()), write)
