"""Preprocessing. Names and arguments are those of `scanpy.pp`; nothing that is stored is rewritten."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import pandas as pd

from pithead import UserError

from . import _native
from ._asked import asking
from ._dataset import Dataset, Selection, View
from ._hvg import highly_variable_genes
from ._parts import Matrix, Transform
from ._pca import PcaResult, pca
from ._view import mask_of
from .get import are_counts, moments

__all__ = ["PcaResult", "calculate_qc_metrics", "highly_variable_genes", "log1p", "normalize_total", "pca", "untransform"]


def normalize_total(
    data: Selection, *, target_sum: float | None = None, key_added: str | None = None, layer: str | None = None
) -> None:
    """Scales each cell's values to the sum `target_sum`; None: the median of the cells' sums. What is stored stays as it is.

    For a dataset this is kept, for a view it holds in that view, by the sums of its own genes. Cells without counts stay so.
    `key_added` names a column of `obs` for the factors that cells are divided by.
    """
    matrix = data.matrix(layer=layer)
    if target_sum is not None and not (isinstance(target_sum, (int, float, np.number)) and 0 < target_sum < np.inf):
        raise UserError(f"target_sum={target_sum!r} is no sum that cells can have", hint="give a number above 0, such as 1e4")
    totals = _sums(data, matrix)
    if (totals < 0).any():
        raise UserError(
            f"{int((totals < 0).sum())} cells of {matrix.table} have negative sums",
            hint="normalise counts: take a layer or raw that holds them",
        )
    own = None if data._genes is None else data._spread(totals, np.float64, 0)

    def scaled(before: Transform) -> Transform:
        if before.log1p:
            raise UserError(
                f"{matrix.table} has been turned into logarithms already",
                hint="pp.untransform(ds) takes that back; then normalize_total, log1p",
            )
        target = _median(data, matrix, before, totals) if target_sum is None else float(target_sum)
        return replace(before, target_sum=target, totals=own)

    kept = _set(data, matrix, scaled)
    if len(totals) and (totals == 0).any():
        warnings.warn("Some cells have zero counts", stacklevel=2)
    if key_added is not None:
        assert kept.target_sum is not None
        data.set_obs(key_added, totals / kept.target_sum)


def _median(data: Selection, matrix: Matrix, before: Transform, totals: np.ndarray) -> float:
    """The median of the cells' sums as they are before this call; `totals` are those of stored values."""
    if before.target_sum is not None:
        if data._genes is None:
            # Over all genes, an earlier call has made every sum its target.
            return before.target_sum
        whole = before.totals if before.totals is not None else data._root._totals(matrix)[0]
        whole = whole if data._cells is None else whole[data._cells]
        totals = totals * np.divide(before.target_sum, whole, out=np.ones(len(whole)), where=whole != 0)
    median = float(np.median(totals)) if len(totals) else 0.0
    if not median > 0:
        raise UserError(
            "the median of the cells' sums is 0" if len(totals) else f"{data.name} selects no cell",
            hint="more than half of the cells have no counts: select those that do, or say target_sum=1e4",
        )
    return median


def log1p(data: Selection, *, base: float | None = None, layer: str | None = None) -> None:
    """Takes values as `log(1 + value)`, natural or to `base`, from now on. What is stored stays as it is.

    Raises UserError where values are -1 or below. Drives go through values that are no counts to find out.
    """
    if base is not None and not (isinstance(base, (int, float, np.number)) and 0 < base < np.inf and base != 1):
        raise UserError(f"base={base!r} is no base of a logarithm", hint="None is the natural one")
    matrix = data.matrix(layer=layer)

    def logarithms(before: Transform) -> Transform:
        if before.log1p or (matrix.key == "X" and "log1p" in data._root._note["uns"]):
            raise UserError(
                f"{matrix.table} holds logarithms already",
                hint="pp.untransform(ds) takes back what log1p set"
                if before.log1p
                else "what is stored was logarithms when it was loaded",
            )
        _check_logarithms(data, matrix)
        return replace(before, log1p=True, base=base)

    _set(data, matrix, logarithms)


def _check_logarithms(data: Selection, matrix: Matrix) -> None:
    """Refuses values that have no logarithm of 1 + value: a single one of them makes the mean of its gene no number."""
    if matrix.kind == "counts" or not data.n_obs or not len(matrix.var):
        return
    mean = moments([data], [matrix], [None], 0, log1p=True)["mean"][0]
    if not np.isfinite(mean).all():
        raise UserError(
            f"{int((~np.isfinite(mean)).sum())} genes of {matrix.table} have values of -1 or below, of which log1p is no number",
            hint="take logarithms of counts: take a layer or raw that holds them",
        )


def untransform(data: Selection, *, layer: str | None = None) -> None:
    """Takes back what `normalize_total` and `log1p` set: values are what is stored again."""
    _set(data, data.matrix(layer=layer), lambda _: Transform())


def _set(data: Selection, matrix: Matrix, change: Callable[[Transform], Transform]) -> Transform:
    assert isinstance(data, Dataset | View)
    return data.set_transform(matrix, change)


def _sums(data: Selection, matrix: Matrix) -> np.ndarray:
    """Sums of the cells' stored values over the selected genes, one for each selected cell."""
    if matrix.genes is None:
        totals = data._root._totals(matrix)[0]
        return totals if data._cells is None else totals[data._cells]
    plain = View(data, data._cells, data._genes)
    plain.set_transform(matrix, lambda _: Transform())
    return _cell_sums(plain, matrix, matrix.genes)[0]


def _cell_sums(data: Selection, matrix: Matrix, genes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    cells = data.cells(matrix)
    sums, nonzeros = np.zeros(data.n_obs), np.zeros(data.n_obs, dtype=np.int64)
    with asking(data):
        for listed in _native.gene_lists(genes):
            found = _native.module().cell_sums(data.conn._native, matrix.table, cells, listed)
            if found["sum"]:
                sums += _native.array(found["sum"], np.float64)
                nonzeros += _native.array(found["nonzeros"], np.uint32)
    return sums, nonzeros


def calculate_qc_metrics(
    data: Selection,
    *,
    expr_type: str = "counts",
    var_type: str = "genes",
    qc_vars: Collection[str] | str = (),
    percent_top: Collection[int] | None = None,
    layer: str | None = None,
    use_raw: bool = False,
    inplace: bool = False,
    log1p: bool = True,
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Metrics of quality of cells and of genes, with scanpy's names; with `inplace` they become columns of `obs` and `var`.

    `qc_vars` are columns of `var` that mark genes, such as mitochondrial ones. `percent_top` must be None, which is not
    scanpy's default: the share of the strongest genes needs each cell's values in one place, and drives keep them by genes.
    """
    if percent_top:
        raise UserError(
            "percent_top needs each cell's values in one place",
            hint="sc.pp.calculate_qc_metrics(ds.to_anndata()) has it, for what fits memory",
        )
    matrix = data.matrix(layer=layer, use_raw=use_raw)
    if inplace and (not isinstance(data, Dataset) or matrix.key == "raw"):
        raise UserError("metrics of genes belong to a whole dataset's X or layers", hint="inplace=False returns both tables")
    totals, nonzeros = _cell_sums(data, matrix, matrix.genes)
    obs = pd.DataFrame(index=data.obs_names)
    _add(obs, f"n_{var_type}_by_{expr_type}", nonzeros, log1p)
    _add(obs, f"total_{expr_type}", totals, log1p)
    for name in [qc_vars] if isinstance(qc_vars, str) else qc_vars:
        chosen = np.flatnonzero(mask_of(name, matrix.var, "qc_vars", f"{data.name}'s var"))
        part = (
            _cell_sums(data, matrix, chosen if matrix.genes is None else matrix.genes[chosen])[0]
            if len(chosen)
            else np.zeros(len(totals))
        )
        _add(obs, f"total_{expr_type}_{name}", part, log1p)
        with np.errstate(invalid="ignore"):
            obs[f"pct_{expr_type}_{name}"] = part / totals * 100
    found = moments([data], [matrix], [None], 0)
    var = pd.DataFrame(index=matrix.var.index)
    n_cells = found["nonzeros"][0]
    var[f"n_cells_by_{expr_type}"] = n_cells.astype(np.int64)
    _add(var, f"mean_{expr_type}", found["mean"][0], log1p)
    with np.errstate(invalid="ignore", divide="ignore"):
        var[f"pct_dropout_by_{expr_type}"] = (1 - n_cells / data.n_obs) * 100
    sums = found["mean"][0] * data.n_obs
    _add(var, f"total_{expr_type}", np.rint(sums) if are_counts([data], [matrix]) else sums, log1p)
    if not inplace:
        return obs, var
    assert isinstance(data, Dataset)
    data.set_obs(obs)
    data.set_var(var)
    return None


def _add(frame: pd.DataFrame, name: str, values: np.ndarray, log1p: bool) -> None:
    frame[name] = values
    if log1p:
        frame[f"log1p_{name}"] = np.log1p(values)
