"""Values for placeholders, taken apart for the engine."""

from __future__ import annotations

import datetime as dt
import decimal as dec
from collections.abc import Mapping, Sequence
from typing import Any

from ._errors import UserError

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)


def given(params: Sequence[Any] | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Names, if the values have any, and kind and value of each."""
    if params is None:
        return None
    if isinstance(params, Mapping):
        if wrong := next((name for name in params if not isinstance(name, str)), None):
            raise UserError(f"expected names of parameters as str, got {wrong!r}", "give a list for $1, $2 or ?")
        return {"names": [name.lstrip("$") for name in params], "values": [_taken(value) for value in params.values()]}
    if isinstance(params, (str, bytes)) or not isinstance(params, Sequence):
        raise UserError(f"expected parameters as a list or a dict, got {type(params).__name__}", "put the value into a list: [value]")
    return {"names": None, "values": [_taken(value) for value in params]}


def _taken(value: Any) -> tuple[str, Any]:
    match value:
        case None:
            return "null", None
        case bool():
            return "bool", value
        case int():
            return _integer(value)
        case float():
            return "float", float(value)
        case str():
            return "str", str(value)
        case bytes() | bytearray() | memoryview():
            return "bytes", bytes(value)
        case dt.datetime():
            return _moment(value)
        case dt.date():
            return "date", (value - _EPOCH.date()).days
        case dt.time():
            return "time", ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        case dt.timedelta():
            return "interval", (value.days, (value.seconds * 1_000_000 + value.microseconds) * 1000)
        case dec.Decimal():
            return _decimal(value)
        case list() | tuple():
            return "list", [_taken(item) for item in value]
    # NumPy's scalars, and arrays without dimensions.
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        item = value.item()
        if type(item) is not type(value):
            return _taken(item)
    if hasattr(value, "tolist") and getattr(value, "ndim", None) == 1:
        return _taken(value.tolist())
    raise UserError(
        f"a value of type {type(value).__name__} cannot be a parameter",
        "give None, bool, int, float, str, bytes, Decimal, date, time, datetime, timedelta, or a list of one of these",
    )


def _integer(value: int) -> tuple[str, Any]:
    if -(2**63) <= value < 2**63:
        return "int", int(value)
    if 0 < value < 2**64:
        return "uint", int(value)
    return _decimal(dec.Decimal(value))


def _moment(value: dt.datetime) -> tuple[str, Any]:
    if value != value:  # pandas.NaT
        return "null", None
    if value.tzinfo is None:
        return "timestamp", (value - _EPOCH) // _MICROSECOND
    return "timestamptz", (value - _EPOCH_UTC) // _MICROSECOND


def _decimal(value: dec.Decimal) -> tuple[str, Any]:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return "float", float(value)
    text = "".join(map(str, digits)) + "0" * max(exponent, 0)
    scale = max(-exponent, 0)
    precision = max(len(text.lstrip("0")), scale, 1)
    if precision > 76:
        raise UserError(f"{value} has {precision} digits; at most 76 are allowed", "give it as a float")
    return "decimal", (("-" if sign else "") + (text.lstrip("0") or "0"), precision, scale)
