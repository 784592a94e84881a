"""Random values of every type of Arrow, and values of any library in a form that is compared."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

EPOCH = dt.datetime(1970, 1, 1)
DAY_NS = 86_400 * 10**9
# From the year 1 to 9999, which datetime knows, and the years that nanoseconds reach.
YEARS_S, NEAR_S = (-62_135_596_800, 253_402_300_799), (-9_223_372_036, 9_223_372_035)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Kind:
    """A type, and how a value of it is drawn: as what `pyarrow.array` takes."""

    type: pa.DataType
    draw: Callable[[random.Random], Any]
    # What integers of the drawn values are cast from, where Python has no class that is as exact.
    raw: pa.DataType | None = None

    def array(self, rng: random.Random, rows: int, nulls: float) -> pa.Array:
        values = [None if rng.random() < nulls else self.draw(rng) for _ in range(rows)]
        return pa.array(values, self.type) if self.raw is None else pa.array(values, self.raw).cast(self.type)


def _whole(low: int, high: int) -> Callable[[random.Random], int]:
    return lambda rng: rng.choice(
        [low, high, 0, 1, rng.randint(low, high), min(max(rng.randint(-99, 99), low), high), min(2**53 + 1, high)]
    )


def _real(rng: random.Random) -> float:
    return rng.choice(
        [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), rng.uniform(-9, 9), rng.uniform(-1e9, 1e9)]
    )


def _single(rng: random.Random) -> float:
    return float(np.float32(_real(rng)))


def _text(rng: random.Random) -> str:
    return rng.choice(
        [
            "",
            "a",
            "a'b",
            "längerer Text über zwölf Bytes ✓",
            "\n\t",
            "a\0b",
            str(rng.randint(0, 999)),
            "x" * rng.randint(0, 40),
        ]
    )


def _bytes(rng: random.Random) -> bytes:
    return rng.choice([b"", b"\0", b"\xff\xfe", rng.randbytes(rng.randint(0, 30))])


def _moment(unit: str) -> Callable[[random.Random], int]:
    low, high = NEAR_S if unit == "ns" else YEARS_S
    scale = PER_SECOND[unit]
    return lambda rng: rng.choice(
        [0, -1, 1, low * scale, high * scale, rng.randint(low * scale, high * scale), rng.randint(-(10**9), 10**9)]
    )


def _length(unit: str) -> Callable[[random.Random], int]:
    most = 10**7 * PER_SECOND[unit]
    return lambda rng: rng.choice([0, -1, 1, 1001, rng.randint(-most, most)])


def _clock(unit: str) -> Callable[[random.Random], int]:
    most = 86_400 * PER_SECOND[unit] - 1
    return lambda rng: rng.choice([0, 1, most, rng.randint(0, most)])


def _decimal(precision: int, scale: int) -> Callable[[random.Random], decimal.Decimal]:
    most = 10**precision - 1
    exact = decimal.Context(prec=80)
    return lambda rng: decimal.Decimal(rng.choice([0, 1, -1, most, -most, rng.randint(-most, most)])).scaleb(-scale, exact)


def _listed(item: Callable[[random.Random], Any]) -> Callable[[random.Random], list[Any]]:
    return lambda rng: [None if rng.random() < 0.3 else item(rng) for _ in range(rng.randint(0, 4))]


def _record(rng: random.Random) -> dict[str, Any]:
    return {"n": rng.choice([None, _whole(-(2**63), 2**63 - 1)(rng)]), "t": rng.choice([None, _text(rng)])}


def kinds() -> dict[str, Kind]:
    """The types, by name."""
    found = {}
    for bits in (8, 16, 32, 64):
        found[f"int{bits}"] = Kind(getattr(pa, f"int{bits}")(), _whole(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        found[f"uint{bits}"] = Kind(getattr(pa, f"uint{bits}")(), _whole(0, 2**bits - 1))
    found["half"] = Kind(
        pa.float16(), lambda rng: np.float16(rng.choice([0.0, -0.0, 0.5, float("nan"), 65504, rng.uniform(-9, 9)]))
    )
    found["float"], found["double"] = Kind(pa.float32(), _single), Kind(pa.float64(), _real)
    found["bool"] = Kind(pa.bool_(), lambda rng: rng.random() < 0.5)
    found["string"], found["large_string"] = Kind(pa.string(), _text), Kind(pa.large_string(), _text)
    found["string_view"] = Kind(pa.string_view(), _text)
    found["dictionary"] = Kind(pa.dictionary(pa.int32(), pa.string()), _text)
    found["binary"], found["large_binary"] = Kind(pa.binary(), _bytes), Kind(pa.large_binary(), _bytes)
    found["fixed_binary"] = Kind(pa.binary(3), lambda rng: rng.randbytes(3))
    found["uuid"] = Kind(pa.uuid(), lambda rng: uuid.UUID(int=rng.getrandbits(128)))
    days = _whole(-719_162, 2_932_896)
    found["date32"] = Kind(pa.date32(), days, pa.int32())
    found["date64"] = Kind(pa.date64(), lambda rng: days(rng) * 86_400_000, pa.int64())
    for unit in PER_SECOND:
        found[f"timestamp_{unit}"] = Kind(pa.timestamp(unit), _moment(unit), pa.int64())
        found[f"zoned_{unit}"] = Kind(pa.timestamp(unit, "UTC"), _moment(unit), pa.int64())
        found[f"duration_{unit}"] = Kind(pa.duration(unit), _length(unit), pa.int64())
        is_narrow = unit in ("s", "ms")
        clock = pa.time32(unit) if is_narrow else pa.time64(unit)
        found[f"time_{unit}"] = Kind(clock, _clock(unit), pa.int32() if is_narrow else pa.int64())
    found["decimal"], found["wide_decimal"] = (
        Kind(pa.decimal128(9, 2), _decimal(9, 2)),
        Kind(pa.decimal128(38, 10), _decimal(38, 10)),
    )
    found["list"] = Kind(pa.list_(pa.int64()), _listed(_whole(-(2**63), 2**63 - 1)))
    found["texts"] = Kind(pa.list_(pa.string()), _listed(_text))
    found["lists"] = Kind(pa.list_(pa.list_(pa.float64())), _listed(_listed(_real)))
    found["struct"] = Kind(pa.struct({"n": pa.int64(), "t": pa.string()}), _record)
    found["structs"] = Kind(pa.list_(pa.struct({"n": pa.int64(), "t": pa.string()})), _listed(_record))
    found["null"] = Kind(pa.null(), lambda rng: None)
    return found


def table(rng: random.Random, names: list[str], rows: int) -> pa.Table:
    """A table of these types in chunks, and a column `row` that numbers the rows."""
    known = kinds()
    nulls = rng.choice([0.0, 0.2, 0.2, 1.0])
    columns = {name: known[name].array(rng, rows, nulls) for name in names}
    whole = pa.table({**columns, "row": pa.array(range(rows), pa.int32())})
    cut = rng.randint(0, rows)
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])


def plain(value: Any) -> Any:
    """A value of any library in a form in which equal values are equal, and others are not."""
    if value is None or value is pd.NA or value is pd.NaT or value is np.ma.masked:
        return None
    if isinstance(value, np.ndarray):
        return [plain(item) for item in (value if value.dtype.kind in "mM" else value.tolist())]
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return None if np.isnat(value) else _numpy_time(value)
    if isinstance(value, (pd.Timestamp, pd.Timedelta)):
        return _numpy_time(value.asm8)
    if isinstance(value, dt.datetime):
        naive = value if value.tzinfo is None else value.astimezone(dt.timezone.utc).replace(tzinfo=None)
        return "moment", (naive - EPOCH) // dt.timedelta(microseconds=1) * 1000
    if isinstance(value, dt.timedelta):
        return "length", value // dt.timedelta(microseconds=1) * 1000
    if isinstance(value, dt.date):
        return "day", value.toordinal()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, decimal.Decimal):
        return "decimal", str(value.normalize(decimal.Context(prec=80)))
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def _numpy_time(value: Any) -> tuple[str, int]:
    kind = "moment" if value.dtype.kind == "M" else "length"
    unit, step = np.datetime_data(value.dtype)
    scale = {**PER_SECOND, "D": 0}[unit]
    return kind, int(value.astype(np.int64)) * step * (DAY_NS if unit == "D" else 10**9 // scale)
