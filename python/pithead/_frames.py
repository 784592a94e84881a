"""Results as frames of pandas and as arrays of NumPy, of the types that DuckDB's package gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._names import unique

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa


# Powers of ten up to this one are floats, and so are whole numbers below that.
_EXACT_TENS, _EXACT = 22, 2**53
# Texts that are looked at before a column of them is made.
_LOOKED_AT = 1_000


def frame(table: pa.Table) -> pd.DataFrame:
    """A frame of pandas. Types are those that DuckDB's package gives, but for whole numbers and truth values with NULL.

    Those are of the nullable types. Dates are moments, and decimals are the floats next to them.
    """
    import pandas as pd

    names = unique(table.column_names)
    columns = {name: _series(table.column(place)) for place, name in enumerate(names)}
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=False)


def arrays(table: pa.Table) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of NumPy by column, masked ones where there are NULLs."""
    return {name: _array(table.column(place)) for place, name in enumerate(unique(table.column_names))}


def _series(column: pa.ChunkedArray) -> pd.Series[Any]:
    import pandas as pd
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_date(kind):
        try:
            return column.cast(pa.timestamp("us")).to_pandas()
        except pa.ArrowInvalid:
            # Days go further than microseconds of 64 bits.
            return column.cast(pa.timestamp("s")).to_pandas()
    if types.is_time(kind):
        return _coarse(column).to_pandas()
    if types.is_nested(kind):
        return pd.Series(_objects(column))
    if types.is_decimal(kind):
        return pd.Series(_floats(column))
    if types.is_string(kind) or types.is_large_string(kind):
        return column.to_pandas(deduplicate_objects=_has_few_texts(column))
    if column.null_count and (types.is_integer(kind) or types.is_boolean(kind)):
        mask = column.is_null().to_numpy()
        values = column.fill_null(False if types.is_boolean(kind) else 0).to_numpy()
        made = pd.arrays.BooleanArray if types.is_boolean(kind) else pd.arrays.IntegerArray
        return pd.Series(made(values, mask))
    return column.to_pandas()


def _array(column: Any) -> np.ndarray[Any, Any]:
    """An array or a chunked array, its NULLs masked."""
    import numpy as np
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_decimal(kind):
        values, mask = _floats(column), column.is_null().to_numpy(zero_copy_only=False)
        return np.ma.masked_array(values, mask=mask) if mask.any() else values
    if types.is_nested(kind) or not _has_numbers(kind):
        values = _objects(column)
        mask = np.fromiter((value is None for value in values), dtype=bool, count=len(values))
        return np.ma.masked_array(values, mask=mask) if mask.any() else values
    if column.null_count == 0:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    mask = column.is_null().to_numpy(zero_copy_only=False)
    values = column.drop_null().to_numpy(zero_copy_only=False)
    full = np.zeros(len(column), dtype=values.dtype)
    full[~mask] = values
    return np.ma.masked_array(full, mask=mask)


def _floats(column: Any) -> np.ndarray[Any, Any]:
    """The floats next to an array's decimals, NaN for NULL."""
    import numpy as np
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([np.empty(0), *(_floats(chunk) for chunk in column.chunks)])
    values = _short_floats(column)
    if values is None:
        # Arrow's own way from decimals multiplies by a negative power of ten, which is no float.
        return np.asarray(column.cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False))
    return values


def _short_floats(column: pa.Array) -> np.ndarray[Any, Any] | None:
    """The same of decimals that a float has all digits of, but for the point. None: they are longer."""
    import numpy as np
    from pyarrow import types

    buffer = column.buffers()[1]
    if not types.is_decimal128(column.type) or not 0 <= column.type.scale <= _EXACT_TENS or buffer is None:
        return None
    words = np.frombuffer(buffer, dtype="<i8", count=2 * (column.offset + len(column)))[2 * column.offset :]
    low, high = words[0::2], words[1::2]
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    is_short = (high == low >> 63) & (low < _EXACT) & (low > -_EXACT)
    if not (is_short if null is None else is_short | null).all():
        return None
    values: np.ndarray[Any, Any] = low / 10.0**column.type.scale
    if null is not None:
        values[null] = np.nan
    return values


def _has_few_texts(column: pa.ChunkedArray) -> bool:
    """Whether many rows seem to have the same text, so that one object does for all of them."""
    first = column.slice(0, _LOOKED_AT)
    return len(first.unique()) * 2 <= len(first)


def _has_numbers(kind: pa.DataType) -> bool:
    """Whether NumPy has a type of its own for it."""
    from pyarrow import types

    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return bool(is_number or types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind))


def _objects(column: Any) -> np.ndarray[Any, Any]:
    """Objects of Python, None for NULL. Lists are arrays, so that long ones need not be taken apart."""
    import numpy as np
    from pyarrow import types

    kind = column.type
    if types.is_time(kind):
        column = _coarse(column)
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    rows = _lists(column) if is_list or types.is_list_view(kind) else column.to_pylist(**_dicts(kind))
    found = np.empty(len(rows), dtype=object)
    for place, row in enumerate(rows):
        found[place] = row
    return found


def _lists(column: Any) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows: list[Any] = []
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        items = _array(chunk.flatten())
        start = 0
        for length in pc.list_value_length(chunk).to_pylist():
            end = start + (length or 0)
            rows.append(None if length is None else _plain(items[start:end]))
            start = end
    return rows


def _plain(items: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The items of one list, masked only where it has NULLs. Objects have None."""
    import numpy as np

    if isinstance(items, np.ma.MaskedArray) and (items.dtype == object or not items.mask.any()):
        return items.data
    return items


def _dicts(kind: pa.DataType) -> dict[str, Any]:
    from pyarrow import types

    return {"maps_as_pydicts": "lossy"} if types.is_nested(kind) else {}


def _coarse(column: Any) -> Any:
    """Times of day as Python's: without what is finer than a microsecond, as in DuckDB's package."""
    import pyarrow as pa

    return column.cast(pa.time64("us"), safe=False)
