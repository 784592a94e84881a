"""Plots of results, drawn without a display."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from pithead import UserError

from ._dataset import Selection
from ._result import RankResult
from .get import rank_genes_groups_df

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["volcano"]

_UP, _DOWN, _NEITHER = "#c0392b", "#2c6fbb", "#b8b8b8"


def volcano(
    data: Selection | RankResult,
    group: str,
    *,
    path: str | os.PathLike[str] | None = None,
    key: str = "rank_genes_groups",
    pval_cutoff: float = 0.05,
    log2fc_cutoff: float = 1.0,
    n_labels: int = 10,
    gene_symbols: str | None = None,
    title: str | None = None,
    figsize: tuple[float, float] = (6, 5),
) -> Figure:
    """Fold changes of a group against significance: a point a gene, the most significant ones named.

    Parameters
    ----------
    data
        A result of `tl.rank_genes_groups`, or a dataset that has it in `uns[key]`.
    path
        Where to write it: .png, .svg or .pdf.
    pval_cutoff, log2fc_cutoff
        Genes beyond both are coloured; p-values are the adjusted ones.
    n_labels
        How many genes are named on each side.
    gene_symbols
        A column of `var` to take names from.
    """
    from matplotlib.figure import Figure

    table = rank_genes_groups_df(data, group, key=key, gene_symbols=gene_symbols)
    names = table[gene_symbols or "names"].astype(str).to_numpy()
    fold = table["logfoldchanges"].to_numpy(dtype=float)
    pvals = table["pvals_adj"].to_numpy(dtype=float)
    # A p-value below what a float holds is 0; it is drawn a little above the smallest one that is not.
    smallest = pvals[pvals > 0].min(initial=1.0)
    height = -np.log10(np.where(pvals > 0, pvals, smallest / 10))
    drawn = np.isfinite(fold) & np.isfinite(height)
    significant = drawn & (pvals < pval_cutoff)
    up, down = significant & (fold >= log2fc_cutoff), significant & (fold <= -log2fc_cutoff)
    figure = Figure(figsize=figsize, layout="constrained")
    axes = figure.add_subplot()
    for chosen, colour, label in (
        (drawn & ~up & ~down, _NEITHER, None),
        (up, _UP, f"{int(up.sum())} higher"),
        (down, _DOWN, f"{int(down.sum())} lower"),
    ):
        axes.scatter(
            fold[chosen], height[chosen], s=8, c=colour, label=label, linewidths=0, rasterized=int(drawn.sum()) > 5000
        )
    for at in (-log2fc_cutoff, log2fc_cutoff):
        axes.axvline(at, color="#dddddd", linewidth=0.8, zorder=0)
    axes.axhline(-np.log10(pval_cutoff), color="#dddddd", linewidth=0.8, zorder=0)
    for side in (up, down):
        strongest = np.flatnonzero(side)[np.argsort(-height[side] - 1e-3 * np.abs(fold[side]), kind="stable")[:n_labels]]
        for at in strongest:
            axes.annotate(names[at], (fold[at], height[at]), xytext=(3, 2), textcoords="offset points", fontsize=7)
    axes.set_xlabel("log2 fold change")
    axes.set_ylabel("-log10 adjusted p-value")
    axes.set_title(title if title is not None else _title(data, group, key))
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if path is not None:
        _write(figure, os.fspath(path))
    return figure


def _title(data: Any, group: str, key: str) -> str:
    params = (data if isinstance(data, RankResult) else data.uns[key]).params
    return (
        f"{group} against {'all other cells' if params['reference'] == 'rest' else params['reference']} ({params['method']})"
    )


def _write(figure: Any, path: str) -> None:
    if os.path.splitext(path)[1].lower() not in (".png", ".svg", ".pdf"):
        raise UserError(f"{path}: a plot is not written in that format", hint="end the name with .png, .svg or .pdf")
    try:
        figure.savefig(path, dpi=150)
    except OSError as fault:
        raise UserError(
            f"{path} cannot be written: {fault}", hint="check that its folder is there and may be written to"
        ) from fault
