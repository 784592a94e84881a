"""Tables of cells and of genes: pandas to Arrow and back, with categories, types and names kept in a note beside the table."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pithead import UserError

__all__ = ["HIDDEN", "check_ids", "from_table", "to_table", "with_values", "without_unused"]

HIDDEN = "pithead_"
"""Columns whose names start so are ours and not shown."""

_TAKEN = {"cell", "gene", "id"}


def check_ids(ids: pd.Index, what: str, where: str) -> None:
    """Raises if an id stands in two rows, and names both."""
    if ids.is_unique:
        return
    again = int(np.flatnonzero(ids.duplicated())[0])
    first = int(np.flatnonzero(ids == ids[again])[0])
    raise UserError(
        f"{where}: {what} {ids[again]!r} is in row {first + 1} and again in row {again + 1}; each must have an id of its own",
        hint="make_unique=True (--make-unique) adds -1, -2, … to those that come again",
    )


def to_table(
    frame: pd.DataFrame, position: str, hidden: dict[str, np.ndarray], where: str
) -> tuple[pa.Table, dict[str, Any]]:
    """The table that is stored for `frame`, and the note that `from_table` needs to make the frame again.

    `position` is "cell" or "gene": the column that numbers the rows. `hidden` are columns of ours, whose names start with
    `HIDDEN`. `where` names the source in errors.
    """
    columns: dict[str, Any] = {
        position: pa.array(np.arange(len(frame), dtype=np.int32)),
        "id": pa.array(frame.index.astype(str).to_numpy(dtype=object), pa.string()),
    }
    note: dict[str, Any] = {"index": None if frame.index.name is None else str(frame.index.name), "columns": []}
    original = [str(column) for column in frame.columns]
    if len(set(original)) < len(original):
        again = next(name for i, name in enumerate(original) if name in original[:i])
        raise UserError(f"{where}: there are two columns {again!r}", hint="rename one of them, then load again")
    for place, name in enumerate(original):
        series = frame.iloc[:, place]
        stored = name
        while stored in _TAKEN or stored in columns or stored.startswith(HIDDEN) or (stored != name and stored in original):
            stored = f"x_{stored}"
        entry: dict[str, Any] = {"name": name, "dtype": str(series.dtype)}
        if stored != name:
            entry["stored"] = stored
        if isinstance(series.dtype, pd.CategoricalDtype):
            columns[stored] = _categorical(series, entry)
        else:
            columns[stored] = _plain(series, f"{where}: column {name!r}")
        note["columns"].append(entry)
    for name, values in hidden.items():
        columns[name] = pa.array(values)
    return pa.table(columns), note


def _categorical(series: pd.Series, entry: dict[str, Any]) -> pa.Array:
    categories = series.cat.categories
    if categories.dtype.kind not in "iufb":
        categories = categories.astype(str)
    values = [value.item() if isinstance(value, np.generic) else value for value in categories]
    entry["categories"] = values
    entry["ordered"] = bool(series.cat.ordered)
    entry["dtype"] = str(categories.dtype)
    codes = series.cat.codes.to_numpy()
    kind = pa.string() if categories.dtype.kind not in "iufb" else None
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pc.take(pa.array(values, kind), indices)


def _plain(series: pd.Series, where: str) -> pa.Array:
    if series.dtype == np.float16:
        series = series.astype(np.float32)
    elif isinstance(series.dtype, np.dtype) and not series.dtype.isnative:
        # Arrow knows this machine's order of bytes only.
        series = series.astype(series.dtype.newbyteorder("="))
    try:
        values = pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as fault:
        raise UserError(
            f"{where} holds values of several kinds: {fault}",
            hint="make them all text, as with astype(str), or leave the column out",
        ) from fault
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_null(values.type) or pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    if pa.types.is_nested(values.type):
        raise UserError(f"{where} holds lists or records, not single values", hint="make several columns of it, or text")
    return values


def from_table(table: pa.Table, position: str, note: dict[str, Any]) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """The frame that `to_table` took, and the hidden columns. Rows may come in any order; without ids they are numbered."""
    table = table.take(pc.sort_indices(table.column(position).combine_chunks()))
    index: pd.Index = pd.RangeIndex(len(table))
    if "id" in table.column_names:
        index = pd.Index(table.column("id").cast(pa.string()).to_pandas().to_numpy(dtype=object), name=note["index"])
    known = {entry.get("stored", entry["name"]): entry for entry in note["columns"]}
    columns: dict[str, Any] = {}
    for stored, entry in known.items():
        if stored in table.column_names:
            columns[entry["name"]] = _column(table.column(stored), entry, index)
    hidden = {name: table.column(name).to_numpy() for name in table.column_names if name.startswith(HIDDEN)}
    return pd.DataFrame(columns, index=index), hidden


def stored_names(names: Collection[str], note: dict[str, Any]) -> list[str] | None:
    """What columns are called in the table; None where it does not have them all."""
    known = {entry["name"]: entry.get("stored", entry["name"]) for entry in note["columns"]}
    return [known[name] for name in names] if set(names) <= set(known) else None


def _column(values: pa.ChunkedArray, entry: dict[str, Any], index: pd.Index) -> pd.Series:
    if pa.types.is_string_view(values.type) or pa.types.is_large_string(values.type):
        values = values.cast(pa.string())
    dtype = entry["dtype"]
    if "categories" in entry:
        categories = pd.Index(entry["categories"], dtype=dtype)
        values = values.combine_chunks()
        codes = pc.index_in(values, value_set=pa.array(entry["categories"], values.type))
        if codes.null_count > values.null_count:
            lost = values.filter(pc.and_(pc.is_null(codes), pc.is_valid(values)))[0].as_py()
            raise UserError(
                f"the column {entry['name']!r} holds {lost!r}, which is none of its categories",
                hint="an UPDATE of the table put it there: take it back by another one, then use set_obs or set_var",
            )
        codes = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        return pd.Series(pd.Categorical.from_codes(codes, categories, ordered=entry["ordered"]), index=index)
    nullable = dtype.lower() in {"boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    if nullable and dtype != dtype.lower() or dtype == "boolean":
        return pd.Series(pd.array(values.to_pylist(), dtype=dtype), index=index)
    series = pd.Series(values.to_pandas().to_numpy(), index=index)
    if str(series.dtype) != dtype:
        series = series.astype(dtype)
    return series


def with_values(frame: pd.DataFrame, name: str, values: Any, what: str) -> pd.DataFrame:
    """A copy of `frame` with the column `name`. A Series is matched by its index; other values are taken in order, and
    a single one is that of all rows."""
    if isinstance(values, str) or not hasattr(values, "__len__"):
        values = [values] * len(frame)
    if isinstance(values, pd.Series):
        if not values.index.is_unique:
            again = values.index[values.index.duplicated()][0]
            raise UserError(f"column {name!r}: the values have the id {again!r} twice", hint="give each id once")
        missing = frame.index.difference(values.index)
        unknown = values.index.difference(frame.index)
        if len(missing) or len(unknown):
            example = (unknown if len(unknown) else missing)[0]
            raise UserError(
                f"column {name!r}: {len(missing)} {what} have no value and {len(unknown)} ids of the values are no {what}"
                f" of the dataset, as {example!r}",
                hint=f"give the values the dataset's ids as index; values in the {what}' order can be a list or array",
            )
        values = values.reindex(frame.index)
    elif len(values) != len(frame):
        raise UserError(
            f"column {name!r}: {len(values)} values for {len(frame)} {what}", hint=f"give one value for each of the {what}"
        )
    result = frame.copy()
    result[name] = values if isinstance(values, pd.Series | pd.Categorical) else pd.Series(values, index=frame.index)
    return result


def without_unused(part: pd.DataFrame, whole: pd.DataFrame) -> pd.DataFrame:
    """A copy without the categories that a selection leaves without rows, as AnnData does for views."""
    part = part.copy()
    for name in whole.columns:
        if isinstance(whole[name].dtype, pd.CategoricalDtype):
            part[name] = part[name].cat.remove_unused_categories()
    return part
