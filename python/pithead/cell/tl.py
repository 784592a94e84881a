"""Tools: which genes differ between groups of cells. Names, arguments and defaults are those of `scanpy.tl`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pithead import UserError

from . import _native
from ._asked import asking
from ._catalog import Domain
from ._dataset import Selection
from ._groups import Grouping, chosen_groups, grouping_of
from ._parts import Matrix
from ._result import Query, RankResult
from ._result import explained as explained_queries
from ._view import mask_of
from .get import ids_of, warn_of_scales

__all__ = ["rank_genes_groups"]

_METHODS = ("t-test", "t-test_overestim_var", "wilcoxon", "student")
_CORRECTIONS = ("benjamini-hochberg", "bonferroni")
_FOLD_CHANGES = ("scanpy", "seurat", "seurat_v4")


def rank_genes_groups(
    data: Selection | Domain | Sequence[Selection],
    groupby: str | Sequence[str],
    *,
    mask_var: Any = None,
    use_raw: bool | None = None,
    groups: str | Iterable[Any] = "all",
    reference: str = "rest",
    n_genes: int | None = None,
    rankby_abs: bool = False,
    pts: bool = False,
    key_added: str | None = None,
    copy: bool = False,
    method: str | None = None,
    corr_method: str = "benjamini-hochberg",
    tie_correct: bool = False,
    layer: str | None = None,
    mask_obs: Any = None,
    fold_change: str = "scanpy",
) -> RankResult:
    """Ranks genes that tell groups of cells apart. Drives compute it; what comes back is a few numbers a gene and group.

    Arguments and defaults are those of `scanpy.tl.rank_genes_groups`, and so are the results. What differs:

    Parameters
    ----------
    data
        A dataset or a view. Or a `Domain` or list of them: the union of their cells, genes matched by id.
    groupby
        A column of `obs`, or several: then each combination that cells have is a group, as `"B_donor1"`.
    mask_var
        A mask of genes, or the name of a column of `var` that is one. For several datasets: the genes' ids.
    groups, reference
        The reference "rest" is all other cells, those without a label among them.
    copy
        True: the result is not kept in `data.uns[key_added]`.
    method
        "t-test" (Welch's, the default), "t-test_overestim_var", "wilcoxon", or "student" (equal variances).
    mask_obs
        A mask of cells to look at, or the name of a column of `obs` that is one; as a view would do.
    fold_change
        "scanpy": of means of logarithms, turned back. "seurat": of means of values that were turned back, as Seurat 5 has it,
        and "seurat_v4" as Seurat 4.

    Returns the result, a mapping in scanpy's shape, see `RankResult`. Another call with other groups, another method of t-test
    or another reference uses what the drives have kept, and reads no slice.

    Raises
    ------
    UserError
        For names that are not there; as `ValueError` too for groups with fewer than two cells.

    Examples
    --------
    >>> pithead.cell.pp.normalize_total(ds, target_sum=1e4)
    >>> pithead.cell.pp.log1p(ds)
    >>> result = pithead.cell.tl.rank_genes_groups(ds, "kind", use_raw=False, groups=["B"], reference="T")
    >>> result["names"].dtype.names, len(result["names"]["B"])
    (('B',), 25)
    >>> result.df("B").columns.tolist()
    ['names', 'scores', 'logfoldchanges', 'pvals', 'pvals_adj']
    """
    asked = _Asked(method or "t-test", corr_method, fold_change, tie_correct, rankby_abs)
    asked.check()
    selections = _selections(data, mask_obs)
    matrices, use_raw = _matrices(selections, layer, use_raw)
    grouping = grouping_of(selections, groupby)
    groups = groups if isinstance(groups, str | int) else list(groups)
    tested, baseline = chosen_groups(grouping, groups, reference)
    _warn_of_counts(selections, matrices)
    warn_of_scales(selections, matrices, stacklevel=2)
    found, dropped = _ask(
        selections, matrices, grouping, tested, baseline, asked, _gene_mask(mask_var, selections, matrices, layer)
    )
    result = _result(found, selections, matrices, grouping, tested, baseline, asked, n_genes)
    if baseline is not None:
        # scanpy's frame of fractions has the reference where the list of groups has it, or at the end.
        listed = grouping.names if groups == "all" else [str(each) for each in groups]
        result._columns = list(dict.fromkeys([*listed, grouping.names[baseline]]))
    result.pts = pts
    result.dropped = dropped
    by = groupby if isinstance(groupby, str) else list(groupby)
    result.params = dict(
        groupby=by,
        reference="rest" if baseline is None else grouping.names[baseline],
        method=asked.method,
        use_raw=use_raw,
        layer=layer,
        corr_method=corr_method,
    )
    if fold_change != "scanpy":
        result.params["fold_change"] = fold_change
    if not copy and isinstance(data, Selection):
        data.uns[key_added or "rank_genes_groups"] = result
    return result


def explained(
    data: Selection | Domain | Sequence[Selection], groupby: str | Sequence[str], *, use_raw: bool | None, layer: str | None
) -> str:
    """Where the parts of a test's query would run, without running them; arguments are those of `rank_genes_groups`."""
    selections = _selections(data, None)
    matrices, _ = _matrices(selections, layer, use_raw)
    grouping = grouping_of(selections, groupby)
    return explained_queries(_queries(selections, _parts(selections, matrices, grouping)))


@dataclass(frozen=True)
class _Asked:
    method: str
    corr_method: str
    fold_change: str
    tie_correct: bool
    rankby_abs: bool

    def check(self) -> None:
        for argument, value, known in (
            ("method", self.method, _METHODS),
            ("corr_method", self.corr_method, _CORRECTIONS),
            ("fold_change", self.fold_change, _FOLD_CHANGES),
        ):
            if value not in known:
                more = "; for 'logreg' take ds.to_anndata() to scanpy" if value == "logreg" else ""
                raise UserError(f"{argument}={value!r} is not known", hint=f"it is one of: {', '.join(known)}{more}")


def _selections(data: Any, mask_obs: Any) -> list[Selection]:
    several = [data] if isinstance(data, Selection) else list(data)
    if not several or not all(isinstance(each, Selection) for each in several):
        raise UserError("there is no dataset to look at", hint="give a dataset, a view, a Domain, or a list of datasets")
    if mask_obs is None:
        return several
    if not isinstance(mask_obs, str) and len(several) > 1:
        raise UserError(
            "mask_obs of several datasets is the name of a column", hint="or take views: Domain([a[mask_a], b[mask_b]])"
        )
    return [each[mask_of(mask_obs, each.obs, "mask_obs", f"{each.name}'s obs")] for each in several]


def _matrices(selections: list[Selection], layer: str | None, use_raw: bool | None) -> tuple[list[Matrix], bool]:
    with_raw = [each.raw is not None for each in selections]
    if use_raw is None:
        use_raw = all(with_raw)
        if any(with_raw) and not use_raw:
            raise UserError(
                "some of these datasets have a raw matrix and some have none",
                hint="say use_raw=False, or load raw for all of them",
            )
    if layer is not None and use_raw:
        raise UserError(f"layer={layer!r} and raw cannot both be taken", hint="say use_raw=False to take the layer")
    return [each.matrix(layer=layer, use_raw=use_raw) for each in selections], use_raw


def _gene_mask(mask_var: Any, selections: list[Selection], matrices: list[Matrix], layer: str | None) -> Any:
    """For one dataset positions of genes within its matrix, for several a set of ids; None: all genes."""
    if len(selections) > 1:
        if mask_var is None:
            return None
        if isinstance(mask_var, str) or not all(isinstance(each, str) for each in mask_var):
            raise UserError(
                "mask_var of several datasets is a list of gene ids",
                hint="masks and columns number the genes of one dataset",
            )
        return set(mask_var)
    matrix = matrices[0]
    if mask_var is None:
        return matrix.genes
    chosen = np.flatnonzero(
        mask_of(mask_var, matrix.var, "mask_var", f"{selections[0].name}'s {'raw.var' if matrix.key == 'raw' else 'var'}")
    )
    if not len(chosen):
        raise UserError("mask_var leaves no gene", hint="a mask is true where a gene is to be tested")
    return chosen if matrix.genes is None else matrix.genes[chosen]


def _warn_of_counts(selections: list[Selection], matrices: list[Matrix]) -> None:
    for each, matrix in zip(selections, matrices, strict=True):
        transform = each.transform(matrix)
        if matrix.kind == "counts" and not transform.log1p and transform.target_sum is None:
            warnings.warn(
                f"the values of {matrix.table} are counts, and tests expect logarithms:"
                " pithead.cell.pp.normalize_total(ds) and pp.log1p(ds) set that, and rewrite nothing",
                stacklevel=3,
            )


def _ask(
    selections: list[Selection],
    matrices: list[Matrix],
    grouping: Grouping,
    tested: list[int],
    baseline: int | None,
    asked: _Asked,
    genes: Any,
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    native = _native.module()
    # Only ranks depend on the reference. Without it, partial results that drives have kept serve any pairing of groups.
    ranked = baseline if asked.method == "wilcoxon" else None
    parts = _parts(selections, matrices, grouping, ranked, asked.fold_change != "scanpy")
    bases = {_base(each, matrix) for each, matrix in zip(selections, matrices, strict=True)}
    if len(bases) > 1:
        raise UserError(
            f"the datasets' logarithms have different bases: {sorted(map(str, bases))}",
            hint="pp.log1p(ds, base=…) sets one base",
        )
    several = len(parts) > 1
    with asking(*selections):
        found = native.rank_genes(
            selections[0].conn._native,
            parts,
            method=asked.method,
            groups=tested,
            reference=baseline,
            corr_method=asked.corr_method,
            tie_correct=asked.tie_correct,
            fold_change=asked.fold_change,
            base=bases.pop(),
            genes=None if several or genes is None else np.asarray(genes).tolist(),
        )
    found["_parts"] = parts
    ids = ids_of(found, matrices)
    columns = ("scores", "pvals", "pvals_adj", "logfoldchanges", "pts", "pts_rest", "means", "means_rest")
    for column in columns:
        found[column] = _native.array(found[column], np.float64, len(tested), len(ids))
    if not several:
        found["ids"] = list(ids)
        return found, {}
    keep, dropped = _shared(selections, matrices, ids, genes)
    if not keep.all():
        # A correction depends on how many genes are tested, so it is made again for those that stay.
        for column in columns:
            found[column] = np.ascontiguousarray(found[column][:, keep])
        ids = ids[keep]
        rows = [
            _native.array(native.adjust(np.ascontiguousarray(row), asked.corr_method), np.float64) for row in found["pvals"]
        ]
        found["pvals_adj"] = np.stack(rows)
    found["ids"] = list(ids)
    return found, dropped


def _parts(
    selections: list[Selection],
    matrices: list[Matrix],
    grouping: Grouping,
    reference: int | None = None,
    expm1: bool = False,
) -> list[tuple[str, bytes]]:
    """Each matrix's table, and what the drives must know of its cells."""
    n_groups = len(grouping.names)
    return [
        (matrix.table, each.cells(matrix, groups=codes, n_groups=n_groups, reference=reference, expm1=expm1))
        for each, matrix, codes in zip(selections, matrices, grouping.codes, strict=True)
    ]


def _queries(selections: list[Selection], parts: list[tuple[str, bytes]]) -> list[Query]:
    return [
        (each.conn, table, _native.partials_sql(table, each._root._dense()), cells)
        for each, (table, cells) in zip(selections, parts, strict=True)
    ]


def _base(selection: Selection, matrix: Matrix) -> float | None:
    """The base of a matrix's logarithms: of those taken on the fly, else of those that were stored. None: the natural one."""
    transform = selection.transform(matrix)
    stored: dict[str, Any] = selection.uns.get("log1p") or {}
    return transform.base if transform.log1p else stored.get("base")


def _shared(
    selections: list[Selection], matrices: list[Matrix], ids: pd.Index, wanted: Collection[str] | None
) -> tuple[np.ndarray, dict[str, list[str]]]:
    """Which of `ids` every dataset has and the caller wants, and what each dataset has beyond what all have."""
    common = matrices[0].var.index
    for matrix in matrices[1:]:
        common = common.intersection(matrix.var.index)
    if not len(common):
        examples = ", ".join(
            f"{each.name}: {matrix.var.index[0]!r}"
            for each, matrix in zip(selections, matrices, strict=True)
            if len(matrix.var)
        )
        raise UserError(
            f"no gene id is in all of these datasets; their first are: {examples}",
            hint="load them with the same kind of ids (var_names='gene_ids')",
        )
    dropped = {}
    for each, matrix in zip(selections, matrices, strict=True):
        lost = matrix.var.index.difference(common, sort=False)
        if len(lost):
            dropped[each.name] = list(lost)
    if dropped:
        counts = ", ".join(f"{len(lost)} of {name}" for name, lost in dropped.items())
        warnings.warn(f"genes that not every dataset has are left out: {counts} (result.dropped names them)", stacklevel=4)
    if wanted is not None:
        common = common.intersection(pd.Index(sorted(wanted)))
        if not len(common):
            raise UserError("none of mask_var's ids is in every dataset", hint="var_names holds a dataset's ids")
    return ids.isin(common), dropped


def _result(
    found: dict[str, Any],
    selections: list[Selection],
    matrices: list[Matrix],
    grouping: Grouping,
    tested: list[int],
    baseline: int | None,
    asked: _Asked,
    n_genes: int | None,
) -> RankResult:
    ids = pd.Index(found["ids"], dtype=object)
    count = len(ids) if n_genes is None else max(min(int(n_genes), len(ids)), 0)
    rankings = _native.module().rankings(found["scores"], max(len(ids), 1), asked.rankby_abs)
    order = list(_native.array(rankings, np.int32).reshape(len(tested), len(ids))[:, :count])
    stats = {
        c: found[c] for c in ("scores", "pvals", "pvals_adj", "logfoldchanges", "pts", "pts_rest", "means", "means_rest")
    }
    return RankResult(
        groups=[grouping.names[number] for number in tested],
        genes=ids,
        stats=stats,
        order=order,
        params={},
        var=matrices[0].var.reindex(ids),
        reference_pts=None if baseline is None else found["pts_rest"][0],
        metadata={each.name: each.metadata for each in selections},
        profile=found["profile"],
        _queries=_queries(selections, found["_parts"]),
    )
