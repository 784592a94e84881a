"""Matrices that are like real counts, written as h5ad a block of cells at a time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
from scipy import sparse, special

GROUPS = 20
"""Groups of cells."""
_MARKERS = 50
_DEPTHS = 16
"""Classes that cells are put in by their totals, within each group."""
_BLOCK_VALUES = 8_000_000
_VERSION = 1


@dataclass(frozen=True)
class Size:
    """A matrix to make: `density` is the share of values that are not zero, expected; `groups` is how many groups cells have."""

    name: str
    cells: int
    genes: int
    density: float
    groups: int = GROUPS
    seed: int = 6


SIZES = {
    "small": Size("small", 2_000, 12_000, 0.07),
    "medium": Size("medium", 100_000, 20_000, 0.07),
    "large": Size("large", 500_000, 30_000, 0.035),
}


@dataclass
class _Model:
    """Counts of gene g in a cell of class k are negative binomial: mean `scale * depths[k] * means[group of k, g]`, size `sizes[g]`.

    Such a count is a Poisson number of clusters, each as large as a logarithmic distribution says. Clusters of all cells of a class
    can be drawn at one time, and there are about as many of them as values that are not zero.
    """

    means: np.ndarray
    sizes: np.ndarray
    depths: np.ndarray
    group: np.ndarray
    """The group of each cell."""
    depth: np.ndarray
    """The class of each cell's total."""
    scale: float = 1.0

    def rates(self, group: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """For each gene the expected clusters in one cell of the class, and the parameter of their sizes."""
        ratio = self.scale * self.depths[depth] * self.means[group] / self.sizes
        return self.sizes * np.log1p(ratio), ratio / (1 + ratio)


def make(size: Size, path: Path) -> dict[str, int]:
    """Writes the matrix, unless it is there already. Gives its numbers: `cells`, `genes`, `nonzeros`, `bytes`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = make(Size("tiny", 300, 200, 0.1), Path(folder) / "tiny.h5ad")
    ...     read = anndata.read_h5ad(Path(folder) / "tiny.h5ad")
    >>> read.shape, 0.08 < made["nonzeros"] / (300 * 200) < 0.12, float(read.X.min()) >= 0
    ((300, 200), True, True)
    """
    stamp = path.with_suffix(".json")
    wanted = {"version": _VERSION, **asdict(size)}
    if stamp.exists() and path.exists():
        found = json.loads(stamp.read_text())
        if found["made"] == wanted and found["bytes"] == path.stat().st_size:
            return {key: found[key] for key in ("cells", "genes", "nonzeros", "bytes")}
    path.parent.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    rng = np.random.default_rng(size.seed)
    model = _model(size, rng)
    partial = path.with_suffix(".partial")
    with h5py.File(partial, "w") as file:
        nonzeros = _write(file, size, model, rng)
    partial.rename(path)
    numbers = {"cells": size.cells, "genes": size.genes, "nonzeros": nonzeros, "bytes": path.stat().st_size}
    stamp.write_text(json.dumps({"made": wanted, **numbers}))
    return numbers


def _model(size: Size, rng: np.random.Generator) -> _Model:
    base = rng.lognormal(0, 2.0, size.genes)
    means = np.repeat(base[None, :], size.groups, axis=0)
    for group in range(size.groups):
        markers = rng.choice(size.genes, min(_MARKERS, size.genes // 4), replace=False)
        means[group, markers] *= rng.lognormal(np.log(6), 0.5, len(markers))
    means /= means.sum(axis=1, keepdims=True)
    # Groups are of different sizes, as clusters of real cells are; the smallest has about a hundredth of all.
    shares = np.geomspace(1, 8, size.groups)
    group = rng.choice(size.groups, size.cells, p=shares / shares.sum()).astype(np.int32)
    totals = rng.lognormal(0, 0.45, size.cells)
    bounds = np.quantile(totals, np.linspace(0, 1, _DEPTHS + 1))
    depth = np.clip(np.searchsorted(bounds, totals, side="right") - 1, 0, _DEPTHS - 1).astype(np.int32)
    depths = np.array([totals[depth == each].mean() if (depth == each).any() else 1.0 for each in range(_DEPTHS)])
    sizes = rng.lognormal(np.log(1.5), 0.5, size.genes)
    model = _Model(means, sizes, depths, group, depth)
    model.scale = _scale(model, size)
    return model


def _scale(model: _Model, size: Size) -> float:
    """Expected counts of a cell with which a value is not zero as often as is wanted; found by halving."""
    low, high = 1.0, 1e7
    shares = np.bincount(model.depth, minlength=_DEPTHS) / size.cells
    while high / low > 1.001:
        model.scale = (low * high) ** 0.5
        rates = [model.rates(group, depth)[0] for group in range(min(size.groups, 4)) for depth in range(_DEPTHS)]
        found = sum(-special.expm1(-rate).mean() * shares[place % _DEPTHS] for place, rate in enumerate(rates)) / min(size.groups, 4)
        low, high = (low, model.scale) if found > size.density else (model.scale, high)
    return model.scale


def _write(file: h5py.File, size: Size, model: _Model, rng: np.random.Generator) -> int:
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    matrix = file.create_group("X")
    matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": np.array([size.cells, size.genes])})
    data = matrix.create_dataset("data", (0,), np.float32, maxshape=(None,), chunks=(1 << 18,))
    indices = matrix.create_dataset("indices", (0,), np.int32, maxshape=(None,), chunks=(1 << 18,))
    starts = np.zeros(size.cells + 1, dtype=np.int64)
    totals = np.zeros(size.cells)
    rows = max(1, int(_BLOCK_VALUES / (size.genes * size.density)))
    for first in range(0, size.cells, rows):
        last = min(first + rows, size.cells)
        block = _block(model, first, last, size.genes, rng)
        begin = int(starts[first])
        for dataset, values in ((data, block.data), (indices, block.indices)):
            dataset.resize((begin + block.nnz,))
            dataset[begin:] = values
        starts[first + 1 : last + 1] = begin + block.indptr[1:]
        totals[first:last] = np.asarray(block.sum(axis=1, dtype=np.float64)).ravel()
    matrix.create_dataset("indptr", data=starts.astype(np.int32) if starts[-1] < 2**31 else starts)
    labels = [f"g{each:02}" for each in range(size.groups)]
    groups = pd.Categorical.from_codes(model.group, labels)
    cells = pd.Index([f"cell{each:07}" for each in range(size.cells)])
    genes = pd.Index([f"gene{each:05}" for each in range(size.genes)])
    anndata.io.write_elem(file, "obs", pd.DataFrame({"group": groups, "total": totals}, index=cells))
    anndata.io.write_elem(file, "var", pd.DataFrame(index=genes))
    for empty in ("uns", "obsm", "varm", "obsp", "varp", "layers"):
        anndata.io.write_elem(file, empty, {})
    return int(starts[-1])


def _block(model: _Model, first: int, last: int, genes: int, rng: np.random.Generator) -> sparse.csr_matrix:
    """Counts of the cells from `first` up to `last`."""
    group, depth = model.group[first:last], model.depth[first:last]
    rows, columns, values = [], [], []
    for label in np.unique(group):
        for level in np.unique(depth):
            members = np.flatnonzero((group == label) & (depth == level)).astype(np.int32)
            if not len(members):
                continue
            rate, size = model.rates(label, level)
            clusters = rng.poisson(rate * len(members))
            gene = np.repeat(np.arange(genes, dtype=np.int32), clusters)
            rows.append(members[rng.integers(0, len(members), len(gene))])
            columns.append(gene)
            values.append(rng.logseries(np.repeat(size, clusters)).astype(np.float32))
    parts = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    # Clusters of the same cell and gene are added up.
    block = sparse.coo_matrix(parts, shape=(last - first, genes)).tocsr()
    block.sort_indices()
    return block


def task(h5ad: str, size: dict[str, Any]) -> dict[str, int]:
    """`make` in a process of its own."""
    return make(Size(**size), Path(h5ad))
