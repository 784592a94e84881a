"""Ranked genes as a table, and aggregates of groups of cells. Names and arguments are those of `scanpy.get`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pithead import UserError

from . import _native
from ._asked import asking
from ._catalog import Domain
from ._dataset import Selection
from ._groups import grouping_of
from ._parts import Matrix
from ._result import RankResult
from ._view import mask_of

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["aggregate", "rank_genes_groups_df"]

_FUNCTIONS = ("count_nonzero", "mean", "sum", "var")


def rank_genes_groups_df(
    data: Selection | RankResult,
    group: str | list[str] | None,
    *,
    key: str = "rank_genes_groups",
    pval_cutoff: float | None = None,
    log2fc_min: float | None = None,
    log2fc_max: float | None = None,
    gene_symbols: str | None = None,
) -> pd.DataFrame:
    """Ranked genes as a table, a row a gene and group.

    `data` is a result of `tl.rank_genes_groups`, or a dataset that has it in `uns[key]`.
    """
    result: Any = data
    if isinstance(data, Selection):
        result = data.uns.get(key)
        if not isinstance(result, RankResult):
            raise UserError(
                f"{data.name} has no ranked genes in uns[{key!r}]",
                hint="pithead.cell.tl.rank_genes_groups(ds, 'COLUMN') puts them there",
            )
    if not isinstance(result, RankResult):
        raise UserError(
            f"a {type(data).__name__} holds no ranked genes", hint="give a dataset, or what tl.rank_genes_groups returned"
        )
    return result.df(group, pval_cutoff=pval_cutoff, log2fc_min=log2fc_min, log2fc_max=log2fc_max, gene_symbols=gene_symbols)


def aggregate(
    data: Selection | Domain | Sequence[Selection],
    by: str | Sequence[str],
    func: str | Iterable[str],
    *,
    mask: Any = None,
    dof: int = 1,
    layer: str | None = None,
    use_raw: bool = False,
) -> AnnData:
    """Aggregates cells by groups, as for pseudobulk: an AnnData with a row a group and a layer for each of `func`.

    Parameters
    ----------
    data
        A dataset or view, or several: the union of their cells, over the genes that all of them have.
    by
        A column of `obs`, or several: then each combination that cells have is a group.
    func
        One or more of "count_nonzero", "mean", "sum" and "var".
    mask
        A mask of cells to take, or the name of a column of `obs` that is one. Means are over those cells.
    dof
        Degrees of freedom of the variance.
    layer, use_raw
        Which matrix to take; X by default.

    Examples
    --------
    >>> bulk = pithead.cell.get.aggregate(ds, ["kind", "donor"], ["sum", "mean"])
    >>> bulk.obs_names.tolist()
    ['T_d1', 'T_d2', 'B_d1', 'B_d2', 'NK_d1', 'NK_d2']
    >>> bulk.layers["sum"].shape
    (6, 25)
    """
    functions = [func] if isinstance(func, str) else list(func)
    for each in functions:
        if each not in _FUNCTIONS:
            more = ": a median needs all values, which ds.to_anndata() gets" if each == "median" else ""
            raise UserError(f"func={each!r} is not known", hint=f"it is one of: {', '.join(_FUNCTIONS)}{more}")
    selections = [data] if isinstance(data, Selection) else list(data)
    if mask is not None:
        selections = [each[mask_of(mask, each.obs, "mask", f"{each.name}'s obs")] for each in selections]
    matrices = [each.matrix(layer=layer, use_raw=use_raw) for each in selections]
    grouping = grouping_of(selections, by)
    warn_of_scales(selections, matrices, stacklevel=2)
    filled = np.flatnonzero(grouping.sizes)
    found = moments(selections, matrices, [codes for codes in grouping.codes], len(grouping.names))
    n = grouping.sizes[filled].astype(np.float64)[:, None]
    layers = {}
    mean, m2 = found["mean"][filled], found["m2"][filled]
    with np.errstate(invalid="ignore", divide="ignore"):
        if "sum" in functions:
            layers["sum"] = mean * n
            if are_counts(selections, matrices):
                layers["sum"] = np.rint(layers["sum"])
        if "mean" in functions:
            layers["mean"] = mean
        if "count_nonzero" in functions:
            layers["count_nonzero"] = found["nonzeros"][filled]
        if "var" in functions:
            layers["var"] = m2 / (n - dof)
    var = matrices[0].var.reindex(found["ids"])
    return _anndata(layers, grouping.table.iloc[filled], var, selections)


def are_counts(selections: Sequence[Selection], matrices: Sequence[Matrix]) -> bool:
    """Whether values are counts as they are stored. Then their sums are whole, and a mean times n is so but for rounding."""
    transforms = [each.transform(matrix) for each, matrix in zip(selections, matrices, strict=True)]
    is_plain = all(each.target_sum is None and not each.log1p for each in transforms)
    return is_plain and all(matrix.kind == "counts" for matrix in matrices)


def warn_of_scales(selections: Sequence[Selection], matrices: Sequence[Matrix], stacklevel: int) -> None:
    """Warns where values of several datasets cannot be compared: their cells have other sums, or only some are logarithms.

    Of values that were loaded as fractions it is not known what was done to them.
    """
    transforms = [each.transform(matrix) for each, matrix in zip(selections, matrices, strict=True)]
    sums: dict[str, str] = {}
    logarithms: dict[str, bool] = {}
    for each, matrix, transform in zip(selections, matrices, transforms, strict=True):
        if matrix.kind == "counts" or transform.target_sum is not None:
            sums[each.name] = "as counted" if transform.target_sum is None else f"{transform.target_sum:g}"
        if matrix.kind == "counts" or transform.log1p:
            logarithms[each.name] = transform.log1p
    if len(set(sums.values())) > 1:
        listed = ", ".join(f"{name} {total}" for name, total in sums.items())
        warnings.warn(
            f"the cells of these datasets have different sums, so that their values cannot be compared: {listed};"
            " pithead.cell.pp.normalize_total(ds, target_sum=1e4) of each, after pp.untransform(ds), sets one sum",
            stacklevel=stacklevel + 1,
        )
    if len(set(logarithms.values())) > 1:
        listed = ", ".join(name for name, taken in logarithms.items() if not taken)
        warnings.warn(
            f"some of these datasets are taken as logarithms, and others are not: {listed}; pithead.cell.pp.log1p(ds) sets that",
            stacklevel=stacklevel + 1,
        )


def moments(
    selections: Sequence[Selection], matrices: Sequence[Any], codes: Sequence[np.ndarray | None], n_groups: int, **how: Any
) -> Mapping[str, Any]:
    """Mean, sum of squares about it, and non-zeros, each of shape (n_groups + 1, genes); the last row is of cells in no group.

    `ids` names the genes: of several datasets, those that all have, in the first one's order, as after anndata.concat. `how`
    goes to `Selection.cells`.
    """
    parts = [
        (m.table, each.cells(m, groups=code, n_groups=n_groups, **how))
        for each, m, code in zip(selections, matrices, codes, strict=True)
    ]
    only = matrices[0].genes if len(parts) == 1 else None
    with asking(*selections):
        found = _native.module().moments(selections[0].conn._native, parts, genes=None if only is None else only.tolist())
    ids = ids_of(found, matrices)
    result: dict[str, Any] = {"ids": ids}
    for column in ("mean", "m2", "nonzeros"):
        result[column] = _native.array(found[column], np.float64, n_groups + 1, len(ids))
    if len(parts) > 1:
        common = matrices[0].var.index
        for matrix in matrices[1:]:
            common = common.intersection(matrix.var.index, sort=False)
        places = ids.get_indexer(common)
        places = places[places >= 0]
        result = {key: value[places] if key == "ids" else value[:, places] for key, value in result.items()}
    return result


def ids_of(found: Mapping[str, Any], matrices: Sequence[Matrix]) -> pd.Index:
    """The ids of the genes of an answer: for one dataset it has their positions."""
    if len(matrices) > 1:
        return pd.Index(found["ids"], dtype=object)
    places = _native.array(found["genes"], np.int32)
    only = matrices[0]
    return only.var.index[places if only.genes is None else np.searchsorted(only.genes, places)]


def _anndata(
    layers: dict[str, np.ndarray], obs: pd.DataFrame, var: pd.DataFrame, selections: Sequence[Selection]
) -> AnnData:
    from anndata import AnnData

    obs = obs.copy()
    for column in obs.columns:
        obs[column] = obs[column].cat.remove_unused_categories()
    result = AnnData(obs=obs, var=var, layers=layers, shape=(len(obs), len(var)))
    metadata = {each.name: each.metadata for each in selections if each.metadata}
    if metadata:
        result.uns["pithead"] = metadata
    return result
