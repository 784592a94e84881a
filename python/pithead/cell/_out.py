"""A selection as an AnnData in memory."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from . import _native
from ._asked import asking

if TYPE_CHECKING:
    from anndata import AnnData

    from ._dataset import Selection
    from ._parts import Matrix

__all__ = ["csc_of", "to_anndata"]


def csc_of(
    selection: Selection, matrix: Matrix, genes: np.ndarray | None = None, *, log1p: bool | None = None
) -> sparse.csc_matrix:
    """Selected cells × genes of a matrix, 32-bit floats; `genes` are positions within the matrix's selected genes."""
    wanted = _positions(matrix, genes)
    cells = selection.cells(matrix, log1p=log1p)
    with asking(selection):
        taken = _native.module().take(
            selection.conn._native, matrix.table, cells, None if wanted is None else wanted.tolist()
        )
    found = _native.array(taken["genes"], np.int32)
    values = sparse.csc_matrix(
        (
            _native.array(taken["data"], np.float32),
            _native.array(taken["indices"], np.int32),
            _native.array(taken["indptr"], np.int64),
        ),
        shape=(selection.n_obs, len(found)),
    )
    # Drives answer in any order; the genes' positions say which column is which.
    expected = np.arange(len(matrix.var)) if wanted is None else wanted
    if np.array_equal(found, expected):
        return values
    place = np.argsort(found)
    return values[:, place[np.searchsorted(found[place], expected)]]


def _positions(matrix: Matrix, genes: np.ndarray | None) -> np.ndarray | None:
    if genes is None:
        return matrix.genes
    return np.asarray(genes) if matrix.genes is None else matrix.genes[genes]


def to_anndata(selection: Selection, *, layers: bool, raw: bool) -> AnnData:
    """See `Selection.to_anndata`."""
    from anndata import AnnData

    def values(**which: Any) -> sparse.csr_matrix:
        return csc_of(selection, selection.matrix(**which)).tocsr()

    uns = {key: dict(value) if hasattr(value, "write_uns") else value for key, value in selection.uns.items()}
    if selection.metadata:
        uns["pithead"] = selection.metadata
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Transforming to str index.*")
        result = AnnData(
            X=values(),
            obs=selection.obs,
            var=selection.var,
            uns=uns,
            obsm={key: selection.obsm[key] for key in selection.obsm},
            layers={layer: values(layer=layer) for layer in selection.layers} if layers else None,
        )
        if raw and selection.raw is not None:
            result.raw = AnnData(X=values(use_raw=True), obs=selection.obs[[]], var=selection.raw.var)
    return result
