"""Parameters: values of Python in statements."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pithead

VALUES = [
    None,
    True,
    -5,
    2**63,
    2**64,
    1.5,
    float("nan"),
    "it's",
    b"\x00'",
    Decimal("12.340"),
    Decimal("-1E+3"),
    Decimal("0.00012"),
    Decimal("1" * 60),
    dt.date(2026, 2, 28),
    dt.time(1, 2, 3, 4),
    dt.datetime(1950, 1, 2, 3, 4, 5, 6),
    dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-5))),
    dt.timedelta(days=-1, microseconds=5),
    [1, None, 3],
    ["a", "b"],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(conn: pithead.Connection, value: object) -> None:
    for query, params in [("SELECT $1", [value]), ("SELECT ?", (value,)), ("SELECT $v", {"v": value})]:
        (back,) = conn.sql(query, params).fetchone()
        assert back == value or (value != value and back != back), query


def test_numpy_scalars_and_arrays(conn: pithead.Connection) -> None:
    params = [np.int32(7), np.float32(0.5), np.bool_(True), np.array([1, 2]), np.datetime64("2026-01-02", "D")]
    row = conn.sql("SELECT ?, ?, ?, ?, ?", params).fetchone()
    assert row == (7, 0.5, True, [1, 2], dt.date(2026, 1, 2))


def test_parameters_filter_at_the_drives(conn: pithead.Connection) -> None:
    conn.load("t", pa.table({"k": range(1000), "s": [f"s{k % 7}" for k in range(1000)]}))
    relation = conn.sql("SELECT count(*), sum(k) FROM t WHERE k < $most AND s = $s", {"most": 500, "s": "s3"})
    expected = [k for k in range(500) if k % 7 == 3]
    assert relation.fetchone() == (len(expected), sum(expected))
    filters = [node for node in relation.explain().nodes() if "s3" in node.text]
    assert filters and all(node.site == "drive" for node in filters)
    assert conn.sql("SELECT k FROM t WHERE k = ANY($1) ORDER BY k", [[3, 1]]).fetchall() == [(1,), (3,)]
    # A result keeps its values, and what was taken of it by one and by one is not given again.
    assert relation.fetchall() == []
    assert relation.fetchall() == relation.fetchall() != []


@pytest.mark.parametrize(
    ("query", "params", "told"),
    [
        ("SELECT $1", None, "no values"),
        ("SELECT ?, ?", [1], "up to \\$2"),
        ("SELECT $a", {"b": 1}, "parameters \\$a"),
        ("SELECT $1", [object()], "type object"),
        ("SELECT $1", "text", "expected parameters as a list"),
        ("SELECT $1", {1: 2}, "names of parameters"),
        ("SELECT $1", [[1, "a"]], "cannot be used"),
        ("SELECT $1", [Decimal("1." + "1" * 90)], "at most 76"),
    ],
)
def test_what_does_not_fit_is_refused(conn: pithead.Connection, query: str, params: object, told: str) -> None:
    with pytest.raises(pithead.UserError, match=told):
        conn.sql(query, params)


class Colour(str, enum.Enum):
    """An enum whose members are texts, as many APIs have them."""

    RED = "red"


class Level(enum.IntEnum):
    LOW = 3


class Share(float, enum.Enum):
    HALF = 0.5


class Loud(str):
    def __str__(self) -> str:
        return "wrong"


class Odd(int):
    def __int__(self) -> int:
        return -1

    __index__ = __int__


NANO = 1_700_000_000_123_456_789
UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")

EXACT = [
    (Colour.RED, "red"),
    (Level.LOW, 3),
    (Share.HALF, 0.5),
    (Loud("right"), "right"),
    (Odd(5), 5),
    (np.str_("x"), "x"),
    (np.bytes_(b"x"), b"x"),
    (bytearray(b"ab"), b"ab"),
    (memoryview(b"abcd")[::2], b"ac"),
    (UUID, UUID),
    (pd.NA, None),
    (pd.NaT, None),
    (np.datetime64("NaT"), None),
    (np.timedelta64("NaT"), None),
    (np.ma.masked, None),
    (np.float16(1.5), 1.5),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.array(5), 5),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.ma.array([1, 2], mask=[0, 1]), [1, None]),
    (pd.Series([1, None], dtype="Int64"), [1, None]),
    (pd.Index(["a"]), ["a"]),
    (pd.Categorical(["a", None]), ["a", None]),
    (np.datetime64("2026-01-02T03:04:05", "s"), dt.datetime(2026, 1, 2, 3, 4, 5)),
    (np.datetime64("2026-01", "M"), dt.date(2026, 1, 1)),
    (np.timedelta64(3, "D"), dt.timedelta(days=3)),
    (np.timedelta64(1500, "us"), dt.timedelta(microseconds=1500)),
    (pd.Timestamp("2026-01-02 03:04:05.000006"), dt.datetime(2026, 1, 2, 3, 4, 5, 6)),
    (pd.Timedelta(days=-1, microseconds=5), dt.timedelta(days=-1, microseconds=5)),
    (dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    (dt.timedelta.max, dt.timedelta.max),
    ({"a": 1, "b": ["x", None]}, {"a": 1, "b": ["x", None]}),
    ([1, 1.5], [1.0, 1.5]),
    ([Decimal("1.5"), Decimal("12")], [Decimal("1.5"), Decimal("12.0")]),
    ([-1, 2**63], [-1, 2**63]),
    ([1, Decimal("0.5")], [1, Decimal("0.5")]),
    ([[], [1], [None], None], [[], [1], [None], None]),
    ([dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 12)], [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, 12)]),
    (Decimal("NaN").copy_abs(), float("nan")),
    (Decimal("0E-90"), Decimal(0)),
    (Decimal("0E+999999"), Decimal(0)),
]


# Without addresses, so that all processes that share the tests name them alike.
@pytest.mark.parametrize(("value", "expected"), EXACT, ids=lambda value: repr(value).split(" at 0x")[0][:40])
def test_values_are_what_they_were_made_of(conn: pithead.Connection, value: object, expected: object) -> None:
    (back,) = conn.sql("SELECT $1", [value]).fetchone()
    assert back == expected or (expected != expected and back != back)
    assert type(back) is type(expected) or isinstance(back, Decimal)
    assert conn.sql("SELECT $v AS v", {"v": value}).fetchall() == [(back,)] or back != back


NANOSECONDS = [
    (pd.Timestamp(NANO), pa.timestamp("ns"), NANO),
    (pd.Timestamp(NANO, tz="Europe/Berlin"), pa.timestamp("ns", "UTC"), NANO),
    (np.datetime64(NANO, "ns"), pa.timestamp("ns"), NANO),
    (np.array(NANO, dtype="datetime64[ns]"), pa.timestamp("ns"), NANO),
    (pd.Timestamp(-1), pa.timestamp("ns"), -1),
    (pd.Timedelta(NANO), pa.month_day_nano_interval(), (0, 0, NANO)),
    (np.timedelta64(NANO, "ns"), pa.month_day_nano_interval(), (0, 0, NANO)),
    (np.timedelta64(-1, "ns"), pa.month_day_nano_interval(), (0, 0, -1)),
]


@pytest.mark.parametrize(("value", "kind", "exact"), NANOSECONDS, ids=lambda value: repr(value)[:40])
def test_nanoseconds_are_kept(conn: pithead.Connection, value: object, kind: pa.DataType, exact: object) -> None:
    for given in (value, [value]):
        column = conn.sql("SELECT $1 AS v", [given]).arrow().column(0)
        column = column if given is value else column.combine_chunks().flatten()
        assert column.type == kind
        assert (column[0].value if pa.types.is_timestamp(kind) else tuple(column[0].as_py())) == exact


def test_identifiers_are_found(conn: pithead.Connection) -> None:
    others = [uuid.UUID(int=number) for number in range(100)]
    table = pa.table({"u": pa.array([UUID, None, *others], pa.uuid()), "s": [str(UUID), None, *map(str, others)]})
    conn.load("t", table, slice_rows=10)
    relation = conn.sql("SELECT u FROM t WHERE u = $1", [UUID])
    assert relation.fetchall() == [(UUID,)] and relation.arrow().schema.field("u").type == pa.uuid()
    assert relation.df()["u"].tolist() == relation.fetchnumpy()["u"].tolist() == [UUID]
    assert relation.schema.columns[0].type == "uuid"
    filters = [node for node in relation.explain().nodes() if node.text.startswith("Filter")]
    assert filters and all(node.site == "drive" for node in filters)
    assert conn.sql("SELECT count(*) FROM t WHERE u = ANY($1)", [[UUID, others[3]]]).fetchone() == (2,)
    assert conn.sql("SELECT count(*) FROM t WHERE s = $1", [str(UUID)]).fetchone() == (1,)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (dt.time(1, 2, tzinfo=dt.timezone.utc), "has a zone"),
        (np.datetime64(1, "ps"), "finer than a nanosecond"),
        (np.datetime64(10**15, "s"), "beyond the times"),
        (np.timedelta64(5), "no unit of time"),
        (np.longdouble(1) / 3, "more digits than a float"),
        (np.complex64(1), "type complex64"),
        (enum.Enum("Plain", "A").A, "of an enum"),
        ({1: 2}, "a record"),
        ({}, "a record"),
        ({1, 2}, "type set"),
        ([2**53 + 1, 0.5], "does not hold exactly"),
        ([1, "a"], "values of type int64 and string"),
        ("\ud800", "half of a surrogate pair"),
        (10**400, "at most 76"),
        (Decimal("1E+999999"), "at most 76"),
        (Decimal("1E-999999"), "at most 76"),
        (pd.Period("2026-01"), "type Period"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_would_lose_something_is_refused(conn: pithead.Connection, value: object, told: str) -> None:
    with pytest.raises(pithead.UserError, match=told):
        conn.sql("SELECT $1", [value])


def test_lengths_of_time_compare_with_differences(conn: pithead.Connection) -> None:
    days = [0, 1, 10, 400]
    table = pa.table(
        {"a": pa.array([dt.datetime(2026, 1, 1)] * 4), "d": pa.array([dt.timedelta(days=each) for each in days])}
    )
    conn.load("t", table)
    for value in (dt.timedelta(days=10), pd.Timedelta(days=10), np.timedelta64(10, "D")):
        assert conn.sql("SELECT count(*) FROM t WHERE d = $1", [value]).fetchone() == (1,)
        assert conn.sql("SELECT count(*) FROM t WHERE d < $1", [value]).fetchone() == (2,)
        assert conn.sql("SELECT count(*) FROM t WHERE (a + d) - a >= $1", [value]).fetchone() == (2,)
        assert conn.sql("SELECT min(a + $1) FROM t", [value]).fetchone() == (dt.datetime(2026, 1, 11),)
