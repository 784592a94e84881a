"""Highly variable genes by dispersion, from moments that the drives compute; after scanpy's `_highly_variable_genes.py`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pithead import UserError

from . import _native
from ._dataset import Dataset, Selection
from ._groups import grouping_of
from ._out import csc_of
from ._parts import Matrix
from .get import moments

__all__ = ["highly_variable_genes"]

_VALUES_MAX = 8_000_000


@dataclass(frozen=True)
class _Cutoffs:
    min_disp: float
    max_disp: float
    min_mean: float
    max_mean: float

    def hold(self, mean: np.ndarray, dispersion: np.ndarray) -> np.ndarray:
        return (mean > self.min_mean) & (mean < self.max_mean) & (dispersion > self.min_disp) & (dispersion < self.max_disp)


def highly_variable_genes(
    data: Selection,
    *,
    layer: str | None = None,
    n_top_genes: int | None = None,
    min_disp: float = 0.5,
    max_disp: float = np.inf,
    min_mean: float = 0.0125,
    max_mean: float = 3,
    n_bins: int = 20,
    flavor: str = "seurat",
    inplace: bool = True,
    batch_key: str | None = None,
) -> pd.DataFrame | None:
    """Marks genes whose dispersion is high beside genes of like mean (flavors "seurat" and "cell_ranger").

    Arguments and columns are those of `scanpy.pp.highly_variable_genes`. With `inplace` the columns `highly_variable`, `means`,
    `dispersions`, `dispersions_norm`, and with `batch_key` two more, are set in `var`; otherwise they are returned.

    "seurat" needs moments of values that are not logarithms. Where `pp.log1p` set those, drives leave the logarithm out; where
    logarithms were loaded, the values come to the client, a block of genes at a time.
    """
    if flavor not in ("seurat", "cell_ranger"):
        raise UserError(f"flavor={flavor!r} is not known", hint="it is 'seurat' or 'cell_ranger', which go by dispersion")
    if inplace and not isinstance(data, Dataset):
        raise UserError("columns of genes belong to a whole dataset", hint="inplace=False returns them for a view")
    matrix = data.matrix(layer=layer)
    cutoff: _Cutoffs | int = n_top_genes if n_top_genes is not None else _Cutoffs(min_disp, max_disp, min_mean, max_mean)
    if batch_key is None:
        mean, var, _ = _moments(data, matrix, flavor, None, 0)
        frame = _single(mean[0], var[0], matrix.var.index, cutoff, flavor, n_bins)
    else:
        grouping = grouping_of([data], batch_key)
        batches = np.flatnonzero(grouping.sizes)
        mean, var, nonzeros = _moments(data, matrix, flavor, grouping.codes[0], len(grouping.names))
        frames = []
        for batch in batches:
            there = nonzeros[batch] > 0
            frames.append(_batch(mean[batch], var[batch], there, matrix.var.index, cutoff, flavor, n_bins))
        frame = _merged(frames, matrix.var.index, cutoff)
    frame = frame.drop(columns="mean_bin", errors="ignore")
    if not inplace:
        return frame
    assert isinstance(data, Dataset)
    data.set_var(frame)
    data.uns["hvg"] = {"flavor": flavor}
    return None


def _moments(
    data: Selection, matrix: Matrix, flavor: str, codes: np.ndarray | None, n_groups: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance and non-zeros of each group (without groups: one row) and gene, of the values that the flavor goes by."""
    transform = data.transform(matrix)
    sizes = np.array([data.n_obs]) if codes is None else np.bincount(codes[codes >= 0], minlength=n_groups)
    if flavor == "seurat" and not transform.log1p:
        return _expm1_moments(data, matrix, codes, n_groups, sizes)
    found = moments([data], [matrix], [codes], n_groups, log1p=False if flavor == "seurat" else None)
    rows = slice(None) if codes is None else slice(0, n_groups)
    mean = found["mean"][rows]
    return mean, _variance(found["m2"][rows], mean, sizes), found["nonzeros"][rows]


def _variance(m2: np.ndarray, mean: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The variance from squared deviations of each group and gene. What is no more than sums round off is none.

    A mean of n values is off by up to n times what one number rounds off, and so are all deviations from it.
    """
    n = sizes[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        variance: np.ndarray = np.where(m2 <= (n * np.finfo(np.float64).eps * mean) ** 2, 0.0, m2) / (n - 1)
    return variance


def _expm1_moments(
    data: Selection, matrix: Matrix, codes: np.ndarray | None, n_groups: int, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    base = (data.uns.get("log1p") or {}).get("base")
    groups = np.zeros(data.n_obs, dtype=np.int64) if codes is None else codes
    n_genes = len(matrix.var)
    rows = 1 if codes is None else n_groups
    mean, var, nonzeros = (np.zeros((rows, n_genes)) for _ in range(3))
    step = min(max(_VALUES_MAX // max(data.n_obs, 1), 1), _native.LISTED_GENES_MAX)
    for start in range(0, n_genes, step):
        genes = np.arange(start, min(start + step, n_genes))
        block = csc_of(data, matrix, genes)
        values = np.expm1(block.data.astype(np.float64) * (np.log(base) if base is not None else 1.0))
        column = np.repeat(np.arange(len(genes)), np.diff(block.indptr))
        group = groups[block.indices]
        kept = group >= 0
        where = group[kept] * len(genes) + column[kept]
        length = rows * len(genes)
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = np.bincount(where, values[kept], length).reshape(rows, -1)
            means = sums / sizes[:, None]
            # About the mean, so that no digits are lost where it is large; zeros are not in the block.
            deviation = values[kept] - means.ravel()[where]
            there = np.bincount(where, values[kept] != 0, length).reshape(rows, -1)
            stored = np.bincount(where, minlength=length).reshape(rows, -1)
            m2 = np.bincount(where, deviation**2, length).reshape(rows, -1) + (sizes[:, None] - stored) * means**2
            # All deviations are off by as much as the mean is, which their sum tells.
            off = np.bincount(where, deviation, length).reshape(rows, -1) - (sizes[:, None] - stored) * means
            m2 -= off**2 / sizes[:, None]
            mean[:, genes], var[:, genes], nonzeros[:, genes] = means, _variance(m2, means, sizes), there
    return mean, var, nonzeros


def _single(
    mean: np.ndarray, var: np.ndarray, names: pd.Index, cutoff: _Cutoffs | int, flavor: str, n_bins: int
) -> pd.DataFrame:
    mean = np.where(mean == 0, 1e-12, mean)
    dispersion = var / mean
    if flavor == "seurat":
        dispersion = np.where(dispersion == 0, np.nan, dispersion)
        dispersion = np.log(dispersion)
        mean = np.log1p(mean)
    frame = pd.DataFrame({"means": mean, "dispersions": dispersion}, index=names)
    bins: Any = n_bins
    if flavor == "cell_ranger":
        bins = np.r_[-np.inf, np.percentile(frame["means"], np.arange(10, 105, 5)), np.inf]
        bins = np.unique(bins) if len(np.unique(bins)) < len(bins) else bins
    frame["mean_bin"] = pd.cut(frame["means"], bins=bins)
    grouped = frame.groupby("mean_bin", observed=True)["dispersions"]
    if flavor == "seurat":
        stats = grouped.agg(avg="mean", dev="std")
        alone = stats["dev"].isnull()
        stats.loc[alone, "dev"] = stats.loc[alone, "avg"]
        stats.loc[alone, "avg"] = 0
    else:
        stats = grouped.agg(avg="median", dev=_mad)
    stats = stats.loc[frame["mean_bin"]].set_index(frame.index)
    with np.errstate(invalid="ignore", divide="ignore"):
        frame["dispersions_norm"] = (frame["dispersions"] - stats["avg"]) / stats["dev"]
    frame["highly_variable"] = _chosen(mean, frame["dispersions_norm"].to_numpy(), cutoff)
    return frame[["highly_variable", "means", "dispersions", "dispersions_norm"]]


def _mad(values: pd.Series) -> float:
    """Median absolute deviation, scaled to the standard deviation of a normal distribution."""
    values = values.to_numpy()
    return float(np.median(np.abs(values - np.median(values))) / 0.6744897501960817)


def _chosen(mean: np.ndarray, dispersion: np.ndarray, cutoff: _Cutoffs | int) -> np.ndarray:
    if isinstance(cutoff, _Cutoffs):
        return cutoff.hold(mean, np.nan_to_num(dispersion))
    known = np.sort(dispersion[~np.isnan(dispersion)])[::-1]
    wanted = min(cutoff, len(dispersion))
    if wanted > len(known):
        warnings.warn(
            "`n_top_genes` > number of normalized dispersions, returning all genes with normalized dispersions.",
            stacklevel=5,
        )
        wanted = len(known)
    if wanted < 1:
        return np.zeros(len(dispersion), dtype=bool)
    return np.asarray(np.nan_to_num(dispersion, nan=-np.inf) >= known[wanted - 1])


def _batch(
    mean: np.ndarray, var: np.ndarray, there: np.ndarray, names: pd.Index, cutoff: Any, flavor: str, n_bins: int
) -> pd.DataFrame:
    """A batch's genes that any of its cells expresses; the others are rows of zeros."""
    frame = _single(mean[there], var[there], names[there], cutoff, flavor, n_bins)
    missing = pd.DataFrame(0.0, index=names[~there], columns=["means", "dispersions", "dispersions_norm"])
    missing["highly_variable"] = False
    return pd.concat([frame, missing]).loc[names]


def _merged(frames: list[pd.DataFrame], names: pd.Index, cutoff: _Cutoffs | int) -> pd.DataFrame:
    frame = pd.concat(frames, axis=0)
    frame["highly_variable"] = frame["highly_variable"].astype(int)
    frame["_id"] = frame.index
    kinds = dict(means="mean", dispersions="mean", dispersions_norm="mean", highly_variable="sum")
    frame = frame.groupby("_id").agg(kinds).loc[names].rename_axis(names.name)
    frame["highly_variable_nbatches"] = frame["highly_variable"]
    frame["highly_variable_intersection"] = frame["highly_variable_nbatches"] == len(frames)
    if isinstance(cutoff, _Cutoffs):
        frame["dispersions_norm"] = frame["dispersions_norm"].fillna(0)
        frame["highly_variable"] = cutoff.hold(frame["means"].to_numpy(), frame["dispersions_norm"].to_numpy())
        return frame
    by = ["highly_variable_nbatches", "dispersions_norm"]
    frame = frame.sort_values(by, ascending=False, na_position="last")
    frame["highly_variable"] = np.arange(len(frame)) < cutoff
    return frame.loc[names]
