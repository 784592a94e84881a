"""Welch's test from sums, and whether answers of different engines agree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

TARGET_SUM = 1e4
"""What each cell's counts are scaled to before their logarithm is taken."""
_BLOCK_VALUES = 8_000_000
_TOLERANCE = 1e-4
_TOP = 20


@dataclass
class Sums:
    """Of values after normalisation: cells of each group (groups), and sums and sums of squares (groups × genes)."""

    cells: np.ndarray
    sums: np.ndarray
    squares: np.ndarray

    @classmethod
    def zeros(cls, group: np.ndarray, groups: int, genes: int) -> Sums:
        """Nothing yet, of cells in these groups."""
        cells = np.bincount(group, minlength=groups).astype(np.float64)
        return cls(cells, np.zeros(groups * genes), np.zeros(groups * genes))

    def add(self, place: np.ndarray, values: np.ndarray) -> None:
        """Adds values at `place`: their group times all genes, plus their gene."""
        self.sums += np.bincount(place, values, len(self.sums))
        self.squares += np.bincount(place, values * values, len(self.sums))

    def shaped(self) -> Sums:
        """With a row a group."""
        rows = len(self.cells)
        return Sums(self.cells, self.sums.reshape(rows, -1), self.squares.reshape(rows, -1))


def welch(sums: Sums) -> dict[str, np.ndarray]:
    """Each group against all other cells: `scores`, `pvals` and `pvals_adj`, groups × genes, and `order`, the genes by falling score.

    >>> sums = Sums(np.array([3.0, 3.0]), np.array([[6.0, 0.0], [15.0, 0.0]]), np.array([[14.0, 0.0], [77.0, 0.0]]))
    >>> answer = welch(sums)
    >>> answer["scores"].round(4).tolist(), answer["pvals"].round(4).tolist()
    ([[-3.6742, 0.0], [3.6742, 0.0]], [[0.0213, 1.0], [0.0213, 1.0]])
    """
    from scipy import stats

    n, rest = sums.cells[:, None], sums.cells.sum() - sums.cells[:, None]
    mean, mean_rest = sums.sums / n, (sums.sums.sum(axis=0) - sums.sums) / rest
    variance = (sums.squares - n * mean**2) / (n - 1)
    variance_rest = (sums.squares.sum(axis=0) - sums.squares - rest * mean_rest**2) / (rest - 1)
    # Rounding may leave a little less than nothing.
    deviation, deviation_rest = (np.sqrt(np.maximum(each, 0)) for each in (variance, variance_rest))
    with np.errstate(invalid="ignore", divide="ignore"):
        scores, pvals = stats.ttest_ind_from_stats(mean, deviation, n, mean_rest, deviation_rest, rest, equal_var=False)
    scores[np.isnan(scores)] = 0
    pvals[np.isnan(pvals)] = 1
    adjusted = np.stack([stats.false_discovery_control(row) for row in pvals])
    return {"scores": scores, "pvals": pvals, "pvals_adj": adjusted, "order": np.argsort(-scores, axis=1, kind="stable")}


def reference_task(h5ad: str, out: str) -> dict[str, Any]:
    """The answer by the definition: the file is read a block at a time, and sums are 64-bit. Kept in `out` for the next run."""
    if not Path(out).exists() or Path(out).stat().st_mtime < Path(h5ad).stat().st_mtime:
        np.savez(out, **welch(_file_sums(h5ad)))
    return {}


def _file_sums(h5ad: str) -> Sums:
    with h5py.File(h5ad) as file:
        genes = int(file["X"].attrs["shape"][1])
        group = file["obs/group/codes"][:].astype(np.int64)
        factors = TARGET_SUM / file["obs/total"][:]
        starts = file["X/indptr"][:].astype(np.int64)
        sums = Sums.zeros(group, len(file["obs/group/categories"]), genes)
        first = 0
        while first < len(group):
            last = max(int(np.searchsorted(starts, starts[first] + _BLOCK_VALUES, side="right")) - 1, first + 1)
            span = slice(int(starts[first]), int(starts[last]))
            cell = np.repeat(np.arange(first, last), np.diff(starts[first : last + 1]))
            values = np.log1p(file["X/data"][span].astype(np.float64) * factors[cell])
            sums.add(group[cell] * genes + file["X/indices"][span], values)
            first = last
    return sums.shaped()


def save(path: str, answer: dict[str, np.ndarray]) -> None:
    """Keeps an answer for `difference`."""
    np.savez(path, **{key: answer[key] for key in ("scores", "pvals", "order")})


def difference(path: Path, reference: Path) -> str | None:
    """In what two answers differ; None: in nothing that matters.

    Scores are compared gene by gene (1e-4, relative above 1), p-values by their logarithm, and the first genes by their scores, since
    genes with equal scores have no order.
    """
    ours, theirs = np.load(path), np.load(reference)
    a, b = ours["scores"].astype(np.float64), theirs["scores"].astype(np.float64)
    if a.shape != b.shape:
        return f"{a.shape} scores instead of {b.shape}"
    far = _far(a, b)
    if far.any():
        worst = np.unravel_index(np.argmax(np.abs(a - b) / np.maximum(1, np.abs(b))), a.shape)
        return f"{int(far.sum())} of {far.size} scores, such as {a[worst]:g} instead of {b[worst]:g} for group {worst[0]}, gene {worst[1]}"
    with np.errstate(divide="ignore"):
        p, q = (np.maximum(np.log10(each["pvals"]), -300) for each in (ours, theirs))
    # Scanpy's float32 values move a p-value of 1e-200 by more than one of 0.1.
    far = np.abs(p - q) > 1e-3 * np.maximum(1, np.abs(q))
    if far.any():
        return f"{int(far.sum())} of {far.size} p-values"
    best = np.take_along_axis(b, theirs["order"][:, :_TOP], axis=1)
    found = np.take_along_axis(b, ours["order"][:, :_TOP], axis=1)
    if _far(found, best).any():
        return "the first genes of a group"
    return None


def _far(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a - b) > _TOLERANCE * np.maximum(1, np.abs(b))
