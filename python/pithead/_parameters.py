"""Values for placeholders, taken apart for the engine."""

from __future__ import annotations

import datetime as dt
import decimal as dec
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _arguments
from ._errors import UserError

Kind = tuple[str, Any]

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)
_DAY_NS = 86_400 * 10**9
_DIGITS_MAX = 76
# NumPy's units of time that have a length, in attoseconds.
_UNITS = {unit: length * 10**18 for unit, length in (("W", 604_800), ("D", 86_400), ("h", 3600), ("m", 60), ("s", 1))} | {
    "ms": 10**15,
    "us": 10**12,
    "ns": 10**9,
    "ps": 10**6,
    "fs": 10**3,
    "as": 1,
}
_NULLS = {("pandas", "NaTType"), ("pandas", "NAType"), ("numpy", "MaskedConstant")}
_GIVE = "give None, bool, int, float, str, bytes, Decimal, UUID, date, time, datetime, timedelta, or a list or dict of these"


def given(params: Sequence[Any] | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Names, if the values have any, and kind and value of each."""
    if params is None:
        return None
    if isinstance(params, Mapping):
        if wrong := next((name for name in params if not isinstance(name, str)), None):
            raise UserError(f"expected names of parameters as str, got {wrong!r}", "give a list for $1, $2 or ?")
        names = [_arguments.text("name of a parameter", name).lstrip("$") for name in params]
        return {"names": names, "values": [_taken(value) for value in params.values()]}
    if isinstance(params, (str, bytes, bytearray, memoryview)) or not isinstance(params, Sequence):
        raise UserError(
            f"expected parameters as a list or a dict, got {type(params).__name__}", "put the value into a list: [value]"
        )
    return {"names": None, "values": [_taken(value) for value in params]}


def sets(params: Any) -> list[Any]:
    """One set of parameters after the other, each of which `given` takes."""
    if isinstance(params, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(params, Iterable):
        raise UserError(
            f"expected a list of sets of parameters, got {type(params).__name__}",
            "write [[1, 'a'], [2, 'b']], or [{'k': 1}, {'k': 2}] for $k",
        )
    found = list(params)
    if not found:
        raise UserError(
            "expected at least one set of parameters, got none", "leave the call out where there is nothing to do"
        )
    for one in found:
        if one is None:
            raise UserError("expected a set of parameters, got None", "write [] for a statement without parameters")
        given(one)
    return found


def _taken(value: Any) -> Kind:
    # Subclasses, such as members of enums, may have methods of their own; what counts is the value that they were made of.
    if value is None or _origin(value) in _NULLS:
        return "null", None
    match value:
        case bool():
            return "bool", value
        case int():
            return _integer(int.__index__(value))
        case float():
            return "float", float.__float__(value)
        case str():
            return "str", _arguments.text("parameter", value)
        case bytes() | bytearray() | memoryview():
            return "bytes", memoryview(value).tobytes()
        case dt.datetime():
            return _moment(value)
        case dt.date():
            return "date", value.toordinal() - _EPOCH.toordinal()
        case dt.time():
            return _time(value)
        case dt.timedelta():
            return _length(value)
        case dec.Decimal():
            return _decimal(value)
        case uuid.UUID():
            return "uuid", value.bytes
        case list() | tuple():
            return "list", [_taken(item) for item in value]
        case Mapping():
            return _record(value)
    return _array(value)


def _origin(value: Any) -> tuple[str, str]:
    """The library that a value's type is of, and the type's name."""
    kind = type(value)
    return kind.__module__.partition(".")[0], kind.__name__


def _refused(value: Any, why: str | None = None) -> UserError:
    if why is None and hasattr(value, "value") and hasattr(type(value), "__members__"):
        return UserError(f"{value!r} of an enum cannot be a parameter", "give its .value")
    if why is not None:
        return UserError(why)
    return UserError(f"a value of type {type(value).__name__} cannot be a parameter", _GIVE)


def _integer(value: int) -> Kind:
    if -(2**63) <= value < 2**63:
        return "int", value
    if 0 < value < 2**64:
        return "uint", value
    if value.bit_length() > 256:
        raise UserError(
            f"an int of {value.bit_length()} bits has too many digits; at most {_DIGITS_MAX} are allowed", "give it as text"
        )
    return _decimal(dec.Decimal(value))


def _decimal(value: dec.Decimal) -> Kind:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return "float", float("nan") if value.is_nan() else float(value)
    # The digits of a number that is far above or below all that fit are not written out.
    shift = min(max(exponent, -2 * _DIGITS_MAX), 2 * _DIGITS_MAX) if value else max(min(exponent, 0), -_DIGITS_MAX)
    text = "".join(map(str, digits)).lstrip("0") + "0" * (max(shift, 0) if value else 0)
    scale = max(-shift, 0)
    precision = max(len(text), scale, 1)
    if precision > _DIGITS_MAX:
        raise UserError(f"{value:.6E} has too many digits; at most {_DIGITS_MAX} are allowed", "give it as a float")
    return "decimal", (("-" if sign and text else "") + (text or "0"), precision, scale)


def _moment(value: dt.datetime) -> Kind:
    kind = "timestamp" if value.tzinfo is None else "timestamptz"
    if hasattr(value, "asm8"):
        # A Timestamp of pandas, whose nanoseconds and far years datetime does not know; this is in UTC.
        return _instant(kind, *_attoseconds(value.asm8), value)
    epoch = _EPOCH if value.tzinfo is None else _EPOCH_UTC
    return kind, (value - epoch) // _MICROSECOND


def _time(value: dt.time) -> Kind:
    if value.tzinfo is not None:
        raise UserError(
            f"the time {value} has a zone, and times in a statement have none", "give value.replace(tzinfo=None)"
        )
    return "time", ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _length(value: dt.timedelta) -> Kind:
    if hasattr(value, "asm8"):
        return _interval(_attoseconds(value.asm8)[0], value)
    return _interval(value // _MICROSECOND * _UNITS["us"], value)


def _record(value: Mapping[Any, Any]) -> Kind:
    if not value or not all(isinstance(name, str) for name in value):
        raise UserError("a dict as a parameter is a record: expected fields with names, got " + repr(value)[:60], _GIVE)
    return "struct", [(_arguments.text("field", name), _taken(item)) for name, item in value.items()]


def _array(value: Any) -> Kind:
    """NumPy's scalars and arrays, and arrays, series and indices of pandas."""
    library, kind = _origin(value)[0], getattr(getattr(value, "dtype", None), "kind", None)
    dimensions = getattr(value, "ndim", None)
    if kind is None or dimensions is None or library not in ("numpy", "pandas"):
        raise _refused(value)
    if dimensions == 0:
        return _scalar(value, kind)
    if library == "pandas":
        # What is missing among texts is NaN there.
        return "list", [_taken(None if kind != "f" and _is_nan(item) else item) for item in value.tolist()]
    # As Python's own values, lists of plain values go faster; others would lose digits.
    is_plain = kind in "biuUSO" or (kind == "f" and value.dtype.itemsize <= 8)
    return "list", [_taken(item) for item in (value.tolist() if is_plain else list(value))]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _scalar(value: Any, kind: str) -> Kind:
    if kind in "Mm":
        return _numpy_time(value, kind)
    item = value.item() if kind in "biufUSO" else value
    if kind == "f" and type(item) is not float:
        # A long double has digits that no column holds.
        if item == float(item) or item != item:
            return "float", float(item)
        raise _refused(value, f"{item!r} has more digits than a float of 64 bits")
    if type(item) is type(value):
        raise _refused(value)
    return _taken(item)


def _numpy_time(value: Any, kind: str) -> Kind:
    import numpy as np

    if np.isnat(value):
        return "null", None
    unit, _ = np.datetime_data(value.dtype)
    if kind == "M":
        if unit in ("Y", "M", "W", "D"):
            return "date", _within(int(value.astype("datetime64[D]").astype(np.int64)), 31, value)
        return _instant("timestamp", *_attoseconds(value), value)
    if unit in ("Y", "M"):
        return "interval", (_within(int(value.astype("timedelta64[M]").astype(np.int64)), 31, value), 0, 0)
    if unit == "generic":
        raise _refused(value, f"{value!r} has no unit of time")
    return _interval(_attoseconds(value)[0], value)


def _attoseconds(value: Any) -> tuple[int, int]:
    """How long after 1970 or how long a time of NumPy is, and the length of its unit."""
    import numpy as np

    unit, step = np.datetime_data(value.dtype)
    return int(value.astype(np.int64)) * step * _UNITS[unit], _UNITS[unit]


def _instant(kind: str, since: int, unit: int, value: Any) -> Kind:
    """Microseconds where they suffice: nanoseconds of 64 bits end in 2262."""
    microseconds, rest = divmod(since, _UNITS["us"])
    if not rest:
        return kind, _within(microseconds, 63, value)
    nanoseconds, rest = divmod(since, _UNITS["ns"])
    if rest:
        raise _refused(value, f"{value} is finer than a nanosecond")
    return f"{kind}_ns", _within(nanoseconds, 63, value)


def _interval(length: int, value: Any) -> Kind:
    nanoseconds, rest = divmod(length, _UNITS["ns"])
    if rest:
        raise _refused(value, f"{value} is finer than a nanosecond")
    # The engine tells days from hours, and a difference of times has no days. Only what is longer than nanoseconds of 64 bits has.
    days, nanoseconds = (0, nanoseconds) if -(2**63) <= nanoseconds < 2**63 else divmod(nanoseconds, _DAY_NS)
    return "interval", (0, _within(days, 31, value), nanoseconds)


def _within(number: int, bits: int, value: Any) -> int:
    if not -(2**bits) <= number < 2**bits:
        raise _refused(value, f"{value} is beyond the times that a column holds")
    return number
