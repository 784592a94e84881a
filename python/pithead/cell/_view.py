"""Which cells and genes an index means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pithead import UserError

if TYPE_CHECKING:
    from ._dataset import Selection

__all__ = ["cell_positions", "gene_positions", "mask_of"]


def cell_positions(index: Any, selection: Selection) -> np.ndarray | None:
    """Positions in the whole dataset of the cells that `index` means within `selection`, ascending; None: all cells."""
    chosen = _chosen(index, selection.n_obs, lambda: selection.obs_names, "cell", selection.name)
    return _within(chosen, selection._cells)


def gene_positions(index: Any, selection: Selection) -> np.ndarray | None:
    """The same for genes. One id alone is a list of one."""
    index = [index] if isinstance(index, str) else index
    chosen = _chosen(index, selection.n_vars, lambda: selection.var_names, "gene", selection.name)
    return _within(chosen, selection._genes)


def _within(chosen: np.ndarray | None, whole: np.ndarray | None) -> np.ndarray | None:
    if chosen is None:
        return whole
    return chosen if whole is None else whole[chosen]


def _chosen(index: Any, n: int, names: Any, what: str, where: str) -> np.ndarray | None:
    if isinstance(index, slice):
        if index == slice(None):
            return None
        return np.sort(np.arange(n, dtype=np.int64)[index])
    is_mask = pd.api.types.is_bool_dtype(getattr(index, "dtype", None))
    if is_mask and np.any(pd.isna(index)):
        raise UserError(f"the mask of {what}s has missing values", hint="say what they mean: mask.fillna(False)")
    if isinstance(index, pd.Series) and is_mask and not index.index.equals(names()):
        # A Series that was computed from other rows would select the wrong ones if its ids were not looked at.
        if len(index) != n or set(index.index) != set(names()):
            raise UserError(
                f"the mask's ids are not the {what}s of {where}", hint="compute the mask from this selection's own table"
            )
        index = index.reindex(names())
    values = np.asarray(index, dtype=bool if is_mask else None)
    if values.ndim == 0:
        values = values[None]
    if values.ndim != 1:
        raise UserError(
            f"an index of {what}s has {values.ndim} dimensions", hint="give a mask, ids or positions in one dimension"
        )
    if values.dtype == bool:
        if len(values) != n:
            raise UserError(
                f"the mask has {len(values)} values for {n} {what}s of {where}", hint=f"give one value for each {what}"
            )
        return np.flatnonzero(values)
    if values.size == 0:
        return np.zeros(0, dtype=np.int64)
    if values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if low < -n or high >= n:
            raise UserError(
                f"{what} {high if high >= n else low} of {where}, which has {n}", hint=f"positions go from 0 to {n - 1}"
            )
        return np.unique(values.astype(np.int64) % n)
    positions = names().get_indexer(values.astype(object))
    if (positions < 0).any():
        missing = values[positions < 0]
        raise UserError(
            f"{where} has no {what} {str(missing[0])!r}"
            + (f", nor {len(missing) - 1} others that were asked for" if len(missing) > 1 else ""),
            hint=f"{'obs_names' if what == 'cell' else 'var_names'} holds the ids; the first is {str(names()[0])!r}"
            if n
            else "there is none",
        )
    return np.unique(positions)


def mask_of(mask: Any, frame: pd.DataFrame, argument: str, where: str) -> np.ndarray:
    """A boolean array for the rows of `frame`, from a mask or the name of a column that is one."""
    if isinstance(mask, str):
        if mask not in frame.columns:
            raise UserError(
                f"{argument}: {where} has no column {mask!r}; the columns are: {', '.join(map(str, frame.columns)) or 'none'}",
                hint=f"give a column of true and false, or a mask of {len(frame)} values",
            )
        mask = frame[mask]
    values = np.asarray(mask)
    if values.dtype == object and all(isinstance(each, bool | np.bool_) for each in values):
        values = values.astype(bool)
    if values.dtype != bool:
        raise UserError(
            f"{argument} holds {values.dtype} values, not true and false", hint="compare, as in var['mean'] > 0.1"
        )
    if values.shape != (len(frame),):
        raise UserError(
            f"{argument} has {len(values)} values for {len(frame)} rows of {where}", hint="give one value for each row"
        )
    return values
