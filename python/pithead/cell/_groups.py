"""Groups of cells by columns of the tables of cells, the same groups for all datasets that are asked together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from pithead import UserError

from ._asked import check_connection
from ._dataset import Selection

__all__ = ["GroupError", "Grouping", "chosen_groups", "grouping_of"]


class GroupError(UserError, ValueError):
    """Groups that cannot be compared. It is a ValueError too, as what scanpy raises."""


@dataclass(frozen=True)
class Grouping:
    """Which group each cell is in.

    `names` are the groups in order; `codes` hold for each dataset the number of each cell's group, -1 for none; `sizes` are
    the groups' numbers of cells in all datasets; `table` has a row a group and the columns that groups were made by.
    """

    by: list[str]
    names: list[str]
    codes: list[np.ndarray]
    sizes: np.ndarray
    table: pd.DataFrame


def grouping_of(selections: Sequence[Selection], by: str | Iterable[str]) -> Grouping:
    """Groups the cells by one column, or by several at once; of several, combinations that no cell has are left out."""
    columns = [by] if isinstance(by, str) else list(by)
    if not columns:
        raise UserError("groupby names no column", hint="name one, or several in a list")
    check_connection(selections)
    _check_apart(selections)
    frames = [selection.obs_columns(columns) for selection in selections]
    codes, levels = [], []
    for column in columns:
        values = [_categorical(frame, column, selection.name) for frame, selection in zip(frames, selections, strict=True)]
        categories = list(dict.fromkeys(each for value in values for each in value.categories))
        place = {each: number for number, each in enumerate(categories)}
        maps = [np.array([place[each] for each in value.categories] + [-1], dtype=np.int64) for value in values]
        codes.append([each[value.codes] for each, value in zip(maps, values, strict=True)])
        levels.append(categories)
    if len(columns) == 1:
        names = [str(each) for each in levels[0]]
        table = pd.DataFrame({columns[0]: pd.Categorical(levels[0], categories=levels[0])}, index=names)
        merged = codes[0]
    else:
        merged, names, table = _combined(columns, codes, levels)
    if len(set(names)) < len(names):
        again = next(name for number, name in enumerate(names) if name in names[:number])
        raise GroupError(f"two groups of {columns} have the name {again!r}", hint="rename one, or group by another column")
    sizes = np.zeros(len(names), dtype=np.int64)
    for each in merged:
        sizes += np.bincount(each[each >= 0], minlength=len(names)).astype(np.int64)
    return Grouping(columns, names, [each.astype(np.int32) for each in merged], sizes, table)


def _check_apart(selections: Sequence[Selection]) -> None:
    """Refuses cells that are named twice: each would count twice."""
    seen: dict[str, np.ndarray] = {}
    for selection in selections:
        root = selection._root
        mine = np.zeros(root._note["n_obs"], dtype=bool)
        mine[slice(None) if selection._cells is None else selection._cells] = True
        before = seen.setdefault(root.name, np.zeros_like(mine))
        if len(before) == len(mine):
            twice = int((before & mine).sum())
            if twice:
                raise UserError(
                    f"{twice} cells of {root.name} are in two of the selections", hint="name each cell once, as in ds[cells]"
                )
            before |= mine


def _combined(
    columns: list[str], codes: list[list[np.ndarray]], levels: list[list[Any]]
) -> tuple[list[np.ndarray], list[str], pd.DataFrame]:
    """One code for several columns' codes, numbered in the order of the product, without combinations that no cell has."""
    merged = []
    for part in zip(*codes, strict=True):
        code = np.zeros(len(part[0]), dtype=np.int64)
        for each, categories in zip(part, levels, strict=True):
            code = code * len(categories) + each
        code[np.any(np.stack(part) < 0, axis=0)] = -1
        merged.append(code)
    there = np.unique(np.concatenate(merged)) if merged else np.zeros(0, dtype=np.int64)
    there = there[there >= 0]
    size = int(np.prod([len(categories) for categories in levels]))
    place = np.full(size + 1, -1, dtype=np.int64)
    place[there] = np.arange(len(there))
    combinations = list(product(*levels)) if size <= 1_000_000 else None
    if combinations is None:
        raise UserError(
            f"{' × '.join(columns)} makes {size:,} combinations",
            hint="group by fewer columns, or by columns with fewer values",
        )
    rows = [combinations[number] for number in there]
    names = ["_".join(map(str, row)) for row in rows]
    table = pd.DataFrame(
        {column: pd.Categorical([row[i] for row in rows], categories=levels[i]) for i, column in enumerate(columns)},
        index=names,
    )
    return [place[code] for code in merged], names, table


def _categorical(frame: pd.DataFrame, column: str, where: str) -> pd.Categorical:
    if column not in frame.columns:
        raise UserError(
            f"{where} has no column {column!r} in obs; the columns are: {', '.join(map(str, frame.columns)) or 'none'}",
            hint=f"ds.set_obs({column!r}, values) adds one",
        )
    series = frame[column]
    if isinstance(series.dtype, pd.CategoricalDtype):
        return pd.Categorical(series)
    if pd.api.types.is_float_dtype(series.dtype):
        raise GroupError(
            f"{where}: obs[{column!r}] holds fractions, not groups", hint="make groups of them, as with pandas.cut"
        )
    from natsort import natsorted

    # As AnnData makes categories of text: in natural order, so that 10 comes after 9.
    values = pd.Categorical(series)
    return values.reorder_categories(natsorted(values.categories))


def chosen_groups(grouping: Grouping, groups: Any, reference: str) -> tuple[list[int], int | None]:
    """Numbers of the groups to test, and of the reference (None: all other cells), by scanpy's rules. A group that is named again is
    tested once.

    Raises GroupError for groups that are not there, and for those with fewer than two cells.
    """
    by = ", ".join(grouping.by)
    place = {name: number for number, name in enumerate(grouping.names)}
    there = ", ".join(grouping.names) or "none"
    if isinstance(groups, str) and groups == "all":
        order = list(range(len(grouping.names)))
    elif isinstance(groups, str | int):
        raise GroupError(f"groups={groups!r} is no list of groups", hint=f"groups=[{str(groups)!r}]")
    else:
        order = []
        for name in groups:
            if str(name) not in place:
                raise GroupError(
                    f"no cell's {by} is {str(name)!r}; the groups are: {there}", hint="groups='all' takes every group"
                )
            if place[str(name)] not in order:
                order.append(place[str(name)])
    baseline = None
    if reference != "rest":
        if str(reference) not in place:
            raise GroupError(
                f"reference={reference!r} is no group of {by}; the groups are: {there}",
                hint="reference='rest' takes all other cells",
            )
        baseline = place[str(reference)]
        if baseline not in order:
            order.append(baseline)
    tested = [number for number in order if number != baseline]
    if not tested:
        raise GroupError(
            f"there is no group of {by} to compare with {reference!r}; the groups are: {there}",
            hint="name at least one other group",
        )
    single = [grouping.names[number] for number in order if grouping.sizes[number] < 2]
    if single:
        sizes = ", ".join(f"{name} ({grouping.sizes[place[name]]})" for name in single)
        others = [grouping.names[number] for number in tested if grouping.sizes[number] >= 2]
        raise GroupError(
            f"groups of {by} with fewer than two cells have no variance: {sizes}",
            hint=f"leave them out: groups={others!r}" if others else "group by a column with more cells a group",
        )
    return tested, baseline
